
=pod

=head1 NAME

Pictures - the drawings of docs: how a lock works, how it is lost, which function to take, the dashboard

=head1 SYNOPSIS

  my %picture = Pictures::all();
  $picture{lock}->write('docs/lock.svg');

What a picture says is not typed in. Times come of the default session timeout and of the fractions
in the code, functions of the catalog's script, states of the code. What is not found there ends the
program, so a picture that was drawn was true then.

=cut

package Pictures;

use v5.36;

use Carp;
use Cwd qw(abs_path);
use File::Basename qw(dirname);
use JSON::PP qw(decode_json);
use List::Util qw(max);
use Svg;

my $top = dirname(dirname(dirname(abs_path(__FILE__))));

my %ink = (text => '#1f2328', quiet => '#57606a', line => '#57606a');
# Of each cluster, and what else is colored: border, and a light one to fill.
my %color = (
	berlin => [ '#0b5cad', '#ddf0ff' ],
	paris => [ '#a04a00', '#ffeeda' ],
	ensemble => [ '#3d4b57', '#f3f5f7' ],
	good => [ '#1a7f37', '#d9f5df' ],
	open => [ '#8a6500', '#fff3c4' ],
	bad => [ '#b3261e', '#ffe0dd' ],
	plain => [ '#57606a', '#ffffff' ]);
my %mono = (family => 'monospace', size => 12);

=pod

=head1 FACTS

=head2 loss_times

The times of a loss in seconds, with the default session timeout: timeout; heartbeat, the longest
time between two requests of a session with locks; proof, how old the request of a proof may be at
a commit; given_up, when a session is, after ZooKeeper's last answer.

=cut

sub loss_times
{
	my ($timeout) = code('src/session/session_settings.c', qr/"zklock\.session_timeout".*?&settings->session_timeout, (\d+),/s);
	my ($heartbeat) = code('src/common/contact.c', qr/contact_heartbeat_ms\(int timeout_ms\)\n\{\n\treturn timeout_ms \/ (\d+);/);
	my ($times, $part) = code('src/common/contact.c', qr/most = \(int64_t\) timeout_ms \* (\d+) \/ (\d+);/);
	# The date of a proof is so long before its request.
	my ($before, undef) = code('src/common/contact.c', qr/sent\.boot_ms - timeout_ms \/ (\d+), sent\.wall_ms - timeout_ms \/ (\d+)/);
	my ($margin) = code('src/program/program_session.c', qr/margin_ms = timeout \/ (\d+);/);
	my ($least) = code('src/program/program_session.c', qr/#define MARGIN_MIN_MS (\d+)/);
	code('src/program/program_session.c', qr/early_deadline = contact_at \+ timeout - margin_ms;/);
	return (
		timeout => $timeout / 1000,
		heartbeat => $timeout / $heartbeat / 1000,
		heartbeat_part => "T/$heartbeat",
		proof => ($timeout * $times / $part - $timeout / $before) / 1000,
		given_up => ($timeout - max($timeout / $margin, $least)) / 1000);
}

=pod

=head2 code($file, $pattern)

What the pattern captures in that file of the source; dies if it is not there.

=cut

sub code ($file, $pattern)
{
	open my $handle, '<', "$top/$file" or croak "could not read $file: $!";
	my $text = do { local $/ = undef; <$handle> };
	my @found = $text =~ $pattern or croak "$file has no longer what a picture shows: $pattern";
	return @found;
}

=pod

=head2 catalog

Of each function and procedure of the extension the names and types of its arguments, one text for
each variant.

=cut

sub catalog
{
	my ($version) = code('zklock.control', qr/^default_version = '([^']+)'/m);
	my ($script) = code("sql/zklock--$version.sql", qr/\A(.*)\z/s);
	my %of;
	push @{ $of{$1} }, $2 while $script =~ /^CREATE (?:FUNCTION|PROCEDURE) (\w+)\((.*?)\)\n/msg;
	return \%of;
}

=pod

=head2 call($call)

Returns the call, as C<zk_lock('a', permits =E<gt> 4)>, if the catalog has such a function: with that
name, an array where the call has one, and the arguments that it names.

=cut

sub call ($call)
{
	state $catalog = catalog();
	my ($name, $arguments) = $call =~ /\b(zk_\w+)(?:\((.*)\))?/ or croak "not a call: $call";
	my @variants = @{ $catalog->{$name} // croak "there is no function $name()" };
	@variants = grep { /^\s*\w+ text\[\]/ } @variants if ($arguments // '') =~ /^ARRAY/;
	foreach my $argument (($arguments // '') =~ /(\w+) =>/g)
	{
		@variants = grep { /(?:^|,)\s*\Q$argument\E / } @variants;
	}
	croak "no variant of $name() takes this: $call" if !@variants;
	return $call;
}

# A state that a session can have, or a contender in a queue.
sub state_of_session ($name)
{
	code('src/session/session_news.c', qr/"(\Q$name\E)"/);
	return $name;
}

sub state_in_queue ($name)
{
	code('src/functions/inspect.c', qr/is_holder \? "held" : "waiting"/);
	croak "no state of a contender: $name" if $name !~ /^(?:held|waiting)$/;
	return $name;
}

=pod

=head1 PICTURES

=head2 all

The pictures by the names of their files, without C<.svg>.

=cut

sub all { return (lock => lock_picture(), loss => loss_picture(), choose => choose_picture(), dashboard => dashboard_picture()); }

# Helpers -----------------------------------------------------------------

sub seconds ($number) { return Svg::number(sprintf '%.1f', $number); }

sub colors ($name) { return (stroke => $color{$name}[0], fill => $color{$name}[1]); }

# A number in a circle: the step of docs/how-it-works.md that the picture shows there.
sub step ($svg, $x, $y, $number)
{
	$svg->put(sprintf '<circle cx="%s" cy="%s" r="10" fill="%s"/>', $x, $y, $ink{text});
	$svg->text($x, $y + 4.5, $number, anchor => 'middle', color => '#ffffff', bold => 1, over => 1);
	return;
}

# How a lock works ----------------------------------------------------------

# The queue of the lock, in order.
sub contenders
{
	return (
		{ cluster => 'berlin', number => 1, state => state_in_queue('held'), token => 4294967311 },
		{ cluster => 'paris', number => 1, state => state_in_queue('waiting'), token => 4294967315 },
		{ cluster => 'berlin', number => 2, state => state_in_queue('waiting'), token => 4294967318 });
}

sub lock_picture
{
	my ($root) = code('src/names/name.c', qr/"zklock\.root".*?"(\/\w+)"/s);
	my $path = "$root/nightly";
	my ($program) = code('Makefile', qr/\b(zklock-session)\b/);
	my $call = call("zk_lock('nightly')");
	my @contenders = contenders();
	my $svg = Svg->new(860, 640,
		title => 'How a lock works',
		desc => 'Two PostgreSQL clusters, berlin and paris, share one ZooKeeper ensemble of three servers. '
		  . "Each backend that takes locks has a process $program beside it, with a ZooKeeper session of its own. "
		  . "The queue of the lock $path has a queue node for each contender: "
		  . join(', ', map { "$_->{state} ($_->{cluster}, token $_->{token})" } @contenders)
		  . '. Each waiter watches the queue node just ahead of its own. Fencing tokens rise.');

	my %x = ('berlin 1' => 36, 'berlin 2' => 228, 'paris 1' => 456, none => 648);
	my ($width, $server_y, $queue_y) = (176, 306, 412);
	foreach my $cluster ([ berlin => 20 ], [ paris => 440 ])
	{
		my ($name, $x) = @$cluster;
		$svg->box($x, 16, 400, 192, [], stroke => $color{$name}[0], fill => '#ffffff', radius => 10);
		$svg->text($x + 16, 39, "PostgreSQL cluster $name", bold => 1, color => $color{$name}[0]);
	}
	$svg->box(20, 262, 820, 300, [], colors('ensemble'), radius => 10);
	$svg->text(648, 287, 'ZooKeeper ensemble', bold => 1, color => $color{ensemble}[0]);

	my $server = 0;
	foreach my $contender (@contenders[ 0, 2, 1 ])
	{
		my ($cluster, $who) = ($contender->{cluster}, "$contender->{cluster} $contender->{number}");
		my $x = $x{$who};
		my $middle = $x + $width / 2;
		$svg->box($x, 52, $width, 50, [ [ "backend $contender->{number}", bold => 1 ], [ $call, %mono ] ], colors($cluster));
		$svg->line([ [ $middle, 102 ], [ $middle, 150 ] ], stroke => $color{$cluster}[0]);
		$svg->box($x, 150, $width, 38, [ [ $program, %mono ] ], colors($cluster));
		$svg->arrow([ [ $middle, 188 ], [ $middle, $server_y ] ], stroke => $color{$cluster}[0]);
		$server++;
		$svg->box($x, $server_y, $width, 32, [ "ZooKeeper server $server" ], colors('plain'));
	}
	$svg->box($x{none}, 52, $width, 50, [ [ 'backend 2', bold => 1 ], 'uses no lock' ], colors('plain'), dash => '4 3');
	$svg->text($x{none} + $width / 2, 130, "so it needs no $program", anchor => 'middle', size => 12, color => $ink{quiet});
	$svg->text(560, 240, 'a ZooKeeper session each', size => 12, color => $ink{quiet});
	$svg->text(648, 319, 'The servers agree on', size => 12, color => $ink{quiet});
	$svg->text(648, 335, 'one order of all writes.', size => 12, color => $ink{quiet});

	$svg->box(36, 360, 788, 186, [], stroke => $color{ensemble}[0], fill => '#ffffff', dash => '5 4');
	$svg->text(52, 384, 'queue of the lock', color => $color{ensemble}[0]);
	$svg->text(170, 384, $path, %mono, bold => 1, color => $color{ensemble}[0]);
	my $before;
	foreach my $i (0 .. $#contenders)
	{
		my $contender = $contenders[$i];
		my $x = 60 + 270 * $i;
		my $is_held = $contender->{state} eq 'held';
		$svg->box($x, $queue_y, 200, 78,
			[
				[ $contender->{state}, bold => 1, size => 15 ],
				"$contender->{cluster}, backend $contender->{number}",
				[ "token $contender->{token}", %mono ] ],
			colors($contender->{cluster}), thick => $is_held ? 3.5 : 1.5);
		if ($before)
		{
			$svg->arrow([ [ $x, $queue_y + 44 ], [ $before + 200, $queue_y + 44 ] ]);
			$svg->text(($x + $before + 200) / 2, $queue_y + 36, 'watches', anchor => 'middle', size => 12);
		}
		$before = $x;
	}
	$svg->arrow([ [ 60, 514 ], [ 800, 514 ] ], stroke => $ink{quiet}, thick => 1);
	$svg->text(430, 534, 'fencing tokens rise from holder to holder', anchor => 'middle', size => 12, color => $ink{quiet});

	step($svg, $x{'berlin 1'}, 52, 1);
	step($svg, $x{'berlin 1'} + $width / 2, 232, 2);
	step($svg, 60, $queue_y, 3);
	step($svg, 295, $queue_y + 62, 4);
	step($svg, 36, 592, 5);
	$svg->text(56, 597, 'When the holder releases the lock, its queue node is deleted. Only the waiter just behind it is told: it holds the lock.');
	$svg->text(56, 617, "If the backend of the holder crashes, its $program process closes the ZooKeeper session, with the same result.");
	return $svg;
}

# How a lock is lost --------------------------------------------------------

sub loss_picture
{
	my %time = loss_times();
	my ($timeout, $heartbeat, $proof, $given_up) = @time{qw(timeout heartbeat proof given_up)};
	my $end = $timeout * 1.2;
	my ($from, $width, $height, $lane_y) = (206, 634, 38, 148);
	my $x = sub ($second) { return $from + $second / $end * $width; };
	my ($early, $late) = map { seconds($_) } $given_up - $heartbeat, $given_up;
	my ($suspended, $connected, $lost) = map { state_of_session($_) } qw(suspended connected lost);
	code('src/queue/loss.c', qr/errcode\(ERRCODE_T_R_SERIALIZATION_FAILURE\)/);
	my $lost_code = '40001';
	my $svg = Svg->new(860, 530,
		title => 'How a lock is lost when the connection to ZooKeeper breaks',
		desc => sprintf('With the default session timeout T of %s s, counted from the last answer of ZooKeeper: the connection '
			  . 'breaks after up to %s s, and the ZooKeeper session is %s. With commit_guard = fresh, COMMIT passes without asking '
			  . 'until the last proof of the lock is %s s old; with an older proof, and with quorum, it waits from the beginning. '
			  . 'A proof comes with the grant, or with a COMMIT that had to ask; a heartbeat brings none. After %s s zklock gives the ZooKeeper session up: the running statement is canceled, and COMMIT '
			  . 'is refused (%s). After %s s at the earliest the ensemble ends the ZooKeeper session, and the next contender holds the lock.',
			map({ seconds($_) } $timeout, $heartbeat), $suspended, map({ seconds($_) } $proof, $given_up), $lost_code, seconds($timeout)));

	$svg->text(16, 28, sprintf('Session timeout T = %s s, the default of zklock.session_timeout', seconds($timeout)), bold => 1);
	my @lanes = (
		[ [ 'ZooKeeper session', 'zk_session.state' ],
			[ 0, $heartbeat, good => $connected ], [ $heartbeat, $given_up, open => $suspended ], [ $given_up, $end, bad => $lost ] ],
		[ [ 'running statement', 'of the holder' ],
			[ 0, $given_up, good => 'goes on' ], [ $given_up, $end, bad => "canceled ($lost_code)" ] ],
		[ [ 'COMMIT', 'fresh, last proof at 0 s' ],
			[ 0, $proof, good => 'passes: fresh proof' ], [ $proof, $given_up, open => 'waits for ZooKeeper' ],
			[ $given_up, $end, bad => "refused ($lost_code)" ] ],
		[ [ 'COMMIT', 'quorum; fresh, older proof' ],
			[ 0, $given_up, open => 'waits for ZooKeeper' ],
			[ $given_up, $end, bad => "refused ($lost_code)" ] ],
		[ [ 'ensemble', '' ],
			[ 0, $timeout, plain => 'keeps the queue node' ], [ $timeout, $end, plain => 'deletes it' ] ],
		[ [ 'next contender', '' ],
			[ 0, $timeout, plain => state_in_queue('waiting') ], [ $timeout, $end, good => 'holds the lock' ] ]);
	my $bottom = $lane_y + @lanes * ($height + 6);

	# What happens when: a line down through all lanes, and its text on a level of its own.
	foreach my $event (
		[ 0, 60, start => q(ZooKeeper's last answer) ],
		[ $heartbeat, 82, start => 'the connection breaks, at the latest' ],
		[ $proof, 104, start => 'a proof of 0 s is no longer fresh' ],
		[ $given_up, 126, end => 'zklock gives the ZooKeeper session up' ],
		[ $timeout, 60, end => 'the ensemble ends the ZooKeeper session, at the earliest' ])
	{
		my ($second, $y, $anchor, $text) = @$event;
		$svg->line([ [ $x->($second), $y + 5 ], [ $x->($second), $bottom ] ], dash => '3 3', thick => 1, under => 1);
		$svg->text($x->($second), $y, $text, anchor => $anchor, size => 12);
	}
	foreach my $i (0 .. $#lanes)
	{
		my ($names, @bars) = @{ $lanes[$i] };
		my $y = $lane_y + $i * ($height + 6);
		$svg->text(16, $y + ($names->[1] ? 16 : 23), $names->[0], bold => 1);
		$svg->text(16, $y + 32, $names->[1], $names->[1] =~ /[_=]/ ? (%mono, size => 11.5) : (size => 12), color => $ink{quiet}) if $names->[1];
		foreach my $bar (@bars)
		{
			my ($begin, $until, $kind, $text) = @$bar;
			$svg->box($x->($begin), $y, $x->($until) - $x->($begin), $height, [ [ $text, size => 12 ] ], colors($kind), radius => 2, thick => 1);
		}
	}
	my $axis = $bottom + 8;
	$svg->text(16, $axis + 14, 'seconds since', size => 12, color => $ink{quiet});
	$svg->text(16, $axis + 30, q(ZooKeeper's last answer), size => 12, color => $ink{quiet});
	$svg->line([ [ $x->(0), $axis ], [ $x->($end), $axis ] ], thick => 1);
	foreach my $tick (
		[ 0, start => '' ],
		[ $heartbeat, middle => $time{heartbeat_part} ],
		[ $proof, middle => 'T/' . seconds($timeout / $proof) ],
		[ $given_up, end => '' ],
		[ $timeout, start => 'T' ])
	{
		my ($second, $anchor, $part) = @$tick;
		$svg->line([ [ $x->($second), $axis - 4 ], [ $x->($second), $axis + 4 ] ], thick => 1);
		$svg->text($x->($second), $axis + 19, seconds($second), anchor => $anchor, size => 12);
		$svg->text($x->($second), $axis + 34, $part, anchor => $anchor, size => 12, color => $ink{quiet}) if $part;
	}
	$svg->text(16, $axis + 58, "From the moment the connection breaks until the ZooKeeper session is given up it takes $early to $late s.");
	$svg->text(16, $axis + 78, "If there is a connection again before that, the ZooKeeper session is $connected again, and nothing is lost.");
	$svg->text(16, $axis + 98, 'A proof comes with the grant of the lock, or with a COMMIT that had to ask. A heartbeat brings none.');
	return $svg;
}

# Which function ------------------------------------------------------------

sub choose_picture
{
	my @questions = (
		[ [ 'Must a job run only once,', 'though several clusters start it?' ],
			call("zk_run_once('nightly', '2026-11-20')"), 'true for exactly one caller' ],
		[ [ 'Must the lock stay until an operator ends it,', 'for days and over restarts?' ],
			call("zk_hold('nightly', 'reason')"), 'a permanent hold, ended by ' . call('zk_release_hold()') ],
		[ [ 'Does the work go on over many requests,', 'behind a connection pooler?' ],
			call("zk_try_lease('mailer', 'app-1', '30 s')"), 'a lease, which any session can renew' ],
		[ [ 'Is the work one transaction?' ],
			call("zk_xact_lock('nightly')"), 'COMMIT or ROLLBACK releases it' ],
		[ [ 'Is it one CALL of a procedure', 'with COMMITs inside?' ],
			call("zk_call_lock('nightly')"), 'the end of the CALL releases it' ],
		[ [ 'Can the wait take so long', 'that it would hold up VACUUM?' ],
			call("CALL zk_commit_and_lock('nightly')"), 'waits without a snapshot; ' . call('zk_unlock()') . ' releases it' ]);
	my @last = (call("zk_lock('nightly')"), call('zk_unlock()') . ' or the end of the session releases it');
	my @besides = (
		[ 'Several sessions read together', call("zk_lock_shared('a')"), call("zk_xact_lock_shared('a')") ],
		[ 'N sessions at a time', call("zk_lock('a', permits => 4)"), call("zk_xact_lock('a', permits => 4)") ],
		[ 'Several locks, all or none', call(q(zk_lock_set(ARRAY['a', 'b']))), call(q(zk_xact_lock_set(ARRAY['a', 'b']))) ],
		[ 'Do not wait, or not for long', call("zk_try_lock('a')"), call("zk_try_xact_lock('a', '5 s')") ],
		[ 'Refuse the write of a late holder', call("zk_fence('a')"), 'in each transaction that writes' ]);

	my ($left, $width, $right, $answer_width, $height, $gap) = (20, 330, 436, 404, 52, 22);
	my $y = 44;
	my $svg = Svg->new(860, $y + (@questions + 1) * ($height + $gap) + 34 + @besides * 26,
		title => 'Which function do I need?',
		desc => join(' ', map({ join(' ', @{ $_->[0] }) . " Yes: $_->[1], $_->[2]. No: go on." } @questions), "Otherwise: $last[0], $last[1].",
			'Besides:', map { "$_->[0]: $_->[1], $_->[2]." } @besides));
	$svg->text(20, 26, 'Which function do I need?', bold => 1, size => 15);
	foreach my $question (@questions, undef)
	{
		my ($ask, @answer) = $question ? @$question : ([], @last);
		my $middle = $y + $height / 2;
		if ($question)
		{
			$svg->box($left, $y, $width, $height, $ask, colors('berlin'));
			$svg->arrow([ [ $left + $width, $middle ], [ $right, $middle ] ]);
			$svg->text(($left + $width + $right) / 2 - 4, $middle - 7, 'yes', anchor => 'middle', size => 12, bold => 1);
			$svg->text($left + $width / 2 + 10, $y + $height + 15, 'no', size => 12, bold => 1);
			my $is_last = $question == $questions[-1];
			my $x = $left + $width / 2;
			$svg->arrow([ [ $x, $y + $height ], $is_last ? ([ $x, $middle + $height + $gap ], [ $right, $middle + $height + $gap ]) : [ $x, $y + $height + $gap ] ]);
		}
		$svg->box($right, $y, $answer_width, $height, [ [ $answer[0], %mono, size => 13, bold => 1 ], [ $answer[1], size => 12 ] ], colors('good'));
		$y += $height + $gap;
	}
	$y += 18;
	$svg->text(20, $y, 'Besides', bold => 1, size => 15);
	foreach my $besides (@besides)
	{
		my ($when, @calls) = @$besides;
		$y += 26;
		$svg->text(20, $y, $when);
		my $x = 266;
		foreach my $call (@calls)
		{
			$svg->text($x, $y, $call, $call =~ /^zk_/ ? %mono : (size => 12));
			$x = 560;
		}
	}
	return $svg;
}

# The dashboard -------------------------------------------------------------

# The upper part of docs/monitoring/grafana.json: its panels in their places, with their titles.
# What they show is made up: two clusters, and an outage of ZooKeeper.
sub dashboard_picture ()
{
	my ($json) = code('docs/monitoring/grafana.json', qr/\A(.*)\z/s);
	my @panels = grep { $_->{gridPos}{y} + $_->{gridPos}{h} <= 18 } @{ decode_json($json)->{panels} };
	my ($unit, $high) = (860 / 24, 25);
	my $svg = Svg->new(860, 20 + $high * max(map { $_->{gridPos}{y} + $_->{gridPos}{h} } @panels), size => 12,
		title => 'The dashboard for Grafana',
		desc => join(' ', 'The upper panels, with made-up values of two clusters and an outage of ZooKeeper:', join(', ', map { $_->{title} } @panels)) . '.');
	my %draw = (
		'state-timeline' => \&draw_states,
		bargauge => \&draw_bars,
		stat => sub ($svg, $x, $y, $width, $height, $i) {
			my @value = ('31', '9', '2', '42 s');
			$svg->text($x + $width / 2, $y + $height / 2 + 10, $value[ $i % @value ], anchor => 'middle', size => 24, bold => 1);
		},
		timeseries => \&draw_curves);
	my %count;
	foreach my $panel (@panels)
	{
		my ($x, $y, $width, $height) = @{ $panel->{gridPos} }{qw(x y w h)};
		($x, $y, $width, $height) = ($x * $unit + 4, $y * $high + 14, $width * $unit - 8, $height * $high - 6);
		$svg->box($x, $y, $width, $height, [], colors('plain'), radius => 3, thick => 1);
		my $top = $y + 18;
		my $line = '';
		foreach my $word (split(/ /, $panel->{title}), undef)
		{
			if (defined $word && $svg->width_of("$line $word", bold => 1) < $width - 20)
			{
				$line = $line eq '' ? $word : "$line $word";
				next;
			}
			$svg->text($x + 10, $top, $line, bold => 1);
			($line, $top) = ($word, $top + 15);
		}
		my $drawn = $draw{ $panel->{type} } // croak "how is a panel of the type $panel->{type} drawn?";
		$drawn->($svg, $x + 12, $top - 4, $width - 24, $y + $height - $top - 6, $count{ $panel->{type} }++);
	}
	return $svg;
}

# A lane for each cluster, with the time in which it reached no ensemble.
sub draw_states ($svg, $x, $y, $width, $height, $i)
{
	my $lane = 0;
	foreach my $cluster (qw(berlin paris))
	{
		my $top = $y + 6 + 34 * $lane++;
		$svg->text($x, $top + 15, $cluster);
		my ($from, $until) = ($x + 52, $x + $width);
		my ($gone, $back) = map { $from + $_ * ($until - $from) } 0.55, 0.6;
		$svg->box($from, $top, $gone - $from, 22, [ ['yes'] ], colors('good'), radius => 0, thick => 1);
		$svg->box($gone, $top, $back - $gone, 22, [], fill => $color{bad}[0], stroke => $color{bad}[0], radius => 0, thick => 1);
		$svg->box($back, $top, $until - $back, 22, [ ['yes'] ], colors('good'), radius => 0, thick => 1);
	}
	my $axis = $y + 6 + 34 * $lane + 12;
	foreach my $hour (0 .. 3)
	{
		$svg->text($x + 52 + ($width - 52) * (0.08 + 0.28 * $hour), $axis, sprintf('%02d:00', 9 + $hour), anchor => 'middle', size => 11, color => $ink{quiet});
	}
	return;
}

# A bar for each lock, as long as its queue.
sub draw_bars ($svg, $x, $y, $width, $height, $i)
{
	my @waiting = ([ nightly => 14 ], [ 'team/report' => 9 ], [ etl => 4 ], [ mailer => 1 ]);
	my $top = $y + 4;
	foreach my $lock (@waiting)
	{
		my ($name, $count) = @$lock;
		my $long = ($width - 130) * $count / $waiting[0][1];
		$svg->text($x, $top + 14, $name, %mono);
		$svg->box($x + 90, $top, $long, 19, [], colors('berlin'), radius => 0, thick => 1);
		$svg->text($x + 96 + $long, $top + 14, $count, bold => 1);
		$top += 25;
	}
	return;
}

# A curve for each cluster, which falls to nothing without ZooKeeper.
sub draw_curves ($svg, $x, $y, $width, $height, $i)
{
	my ($left, $bottom) = ($x + 8, $y + $height - 18);
	my $tall = $height - 26;
	$svg->line([ [ $left, $y + 2 ], [ $left, $bottom ], [ $x + $width, $bottom ] ], thick => 1);
	foreach my $cluster (qw(berlin paris))
	{
		my $level = $cluster eq 'berlin' ? 0.62 : 0.36;
		my @points = map {
			my $at = $_ / 60;
			my $is_away = $at > 0.55 && $at < 0.6;
			# Locks are lost, and waiters come together.
			my $part = $is_away ? 0.03 : $level + 0.12 * sin($_ * 0.7 + $i + 3 * $level) + ($i && $at >= 0.6 ? 0.25 * exp(-($at - 0.6) * 25) : 0);
			[ $left + $at * ($width - 8), $bottom - $part * $tall ]
		} 0 .. 60;
		$svg->line(\@points, stroke => $color{$cluster}[0], thick => 1.5);
	}
	$svg->text($left, $y + $height - 2, 'berlin', color => $color{berlin}[0], size => 11);
	$svg->text($left + 50, $y + $height - 2, 'paris', color => $color{paris}[0], size => 11);
	return;
}

1;
