
=pod

=head1 NAME

Torture::Report - histories merged, and the tables at the end

=head1 DESCRIPTION

Reads what workers and nemeses have written, makes of it what Torture::Checker
takes, and counts.

=cut

package Torture::Report;

use v5.36;

use List::Util qw(max sum0);
use Torture::History qw(at_time_of_day);

# What a worker may run into when others are cancelled, killed or cut off.
# Anything else is worth a look.
my %expected_sqlstate = map { $_ => 1 } (
	'40P01',    # a deadlock; whether there was one is judged elsewhere
	'40001',    # lock lost, or a newer holder has been here
	'57014',    # cancelled
	'42501',    # a delete was refused that somebody waited for
	'55P03',    # could not get the lock in time
	'57000',    # evicted while it waited
	'57P01',    # terminated
	'57P02',    # another backend was killed: crash shutdown
	'57P03',    # starting up again
	'08000',    # the connection broke; DBI's own word for it
	'08006',    # the same; or ZooKeeper's session was lost
	'08001',    # could not connect, to PostgreSQL or to ZooKeeper
	'?????');   # the connection broke without a word

=pod

=head2 new(workers => [paths], nemeses => [paths])

=cut

sub new ($class, %option)
{
	my $self = bless { cycles => [], claims => [], stops => {}, evictions => {}, faults => {},
		map { $_ => [] } qw(killed unexpected leftovers partial other_tokens) }, $class;
	$self->_read_worker($_) foreach @{ $option{workers} };
	$self->_read_nemesis($_) foreach @{ $option{nemeses} };
	return $self;
}

=pod

=head2 cycles, stops, frozen_programs, standby, refusals, evictions, spins

As L<Torture::Checker>, L<Torture::Witness> and L<Torture::Excuses> want them.

=head2 claims($name), notes($list)

The claims of that job, or all; what was noted down: "killed" (process ids), "unexpected"
(errors), "leftovers", "partial", "other_tokens" (lines of text).

=cut

sub cycles { return $_[0]->{cycles}; }
sub stops { return $_[0]->{stops}; }
sub frozen_programs { return $_[0]->{frozen_programs} || {}; }
sub standby { return $_[0]->{standby} || []; }
sub refusals { return $_[0]->{refusals} || {}; }
sub evictions { return $_[0]->{evictions}; }
sub spins { return @{ $_[0]->{spins} || [] }; }
sub notes { return @{ $_[0]->{ $_[1] } // die "there is no list $_[1]" }; }

sub claims ($self, $name = undef)
{
	return grep { !defined $name || $_->{name} eq $name } @{ $self->{claims} };
}

sub _read_worker ($self, $path)
{
	my ($worker) = $path =~ /(\d+)$/;
	my $cycle;
	my $note = sub ($list, $entry, $text) {
		push @{ $self->{$list} }, "worker $worker cycle $entry->{cycle}: $text";
	};
	my $set_time = sub ($entry) { $cycle->{ $entry->{event} } = $entry->{time}; };
	my $set_time_of = sub ($entry) { $cycle->{ $entry->{event} }{ $entry->{name} } = $entry->{time}; };
	my $end = sub ($entry) {
		@{$cycle}{qw(outcome ended)} = @{$entry}{qw(event time)};
		@{$cycle}{qw(failed_at sqlstate)} = ($entry->{time}, $entry->{sqlstate} || '') if $entry->{event} ne 'committed';
		$cycle->{lost_at} = $entry->{time} if ($entry->{sqlstate} || '') eq '40001';
	};
	my %read = (
		asked => sub ($entry) {
			$cycle->{over} = $entry->{time} if $cycle;
			$cycle = {
				worker => $worker,
				asked => $entry->{time},
				locks => [],
				map { $_ => $entry->{$_} }
				  qw(cycle kind name pid scope wait patience cluster keeps term) };
			push @{ $self->{cycles} }, $cycle;
		},
		granted => sub ($entry) { @{$cycle}{qw(granted locks)} = ($entry->{time}, _locks($entry->{locks})); },
		(map { $_ => $set_time } qw(commit_sent release_sent gave_up)),
		(map { $_ => $set_time_of } qw(wanted got)),
		(map { $_ => $end } qw(committed refused unknown)),
		failed => sub ($entry) {
			return unless $cycle && $cycle->{cycle} == $entry->{cycle};
			my $sqlstate = $entry->{sqlstate} || '';
			$cycle->{gave_up} = $entry->{time} if $entry->{stage} eq 'asking';
			@{$cycle}{qw(failed_at sqlstate)} = ($entry->{time}, $sqlstate);
			$cycle->{lost_at} = $entry->{time} if $sqlstate eq '40001';
			$cycle->{is_deadlock} = 1 if $sqlstate eq '40P01';
		},
		hold_released => sub ($entry) { $cycle->{was_held} = $entry->{was_held}; },
		spun => sub ($entry) { push @{ $self->{spins} }, { worker => $worker, %$entry }; },
		claimed => sub ($entry) { push @{ $self->{claims} }, { worker => $worker, %$entry }; },
		leftover => sub ($entry) { $note->('leftovers', $entry, "$entry->{held} held"); },
		partial => sub ($entry) { $note->('partial', $entry, "$cycle->{name}: $entry->{taken} taken"); },
		other_tokens => sub ($entry) { $note->('other_tokens', $entry, $cycle->{name}); },
		evict_sent => sub ($entry) { $self->{evictions}{ $entry->{token} } = [ $entry->{time}, 9**9**9 ]; },
		evicted => sub ($entry) { $self->{evictions}{ $entry->{token} }[1] = $entry->{time}; });
	Torture::History::read_events(
		$path,
		sub ($entry) {
			my $event = $entry->{event};
			$read{$event}->($entry) if $read{$event};
			$self->{count}{$event}++;
			$self->{count}{too_late}++
			  if $event eq 'released' && !$entry->{was_held};
			$self->{count}{was_evicted}++
			  if $event eq 'evicted' && $entry->{answer};
			$self->_count_error($worker, $entry) if $entry->{sqlstate};
		});
	return;
}

# Of "name:mode:token", several with blanks between.
sub _locks ($text)
{
	my @locks;
	foreach my $lock (split / /, $text)
	{
		my %lock;
		@lock{qw(name mode token)} = split /:/, $lock;
		push @locks, \%lock;
	}
	return \@locks;
}

sub _count_error ($self, $worker, $entry)
{
	$self->{errors}{ $entry->{stage} }{ $entry->{sqlstate} }++;
	push @{ $self->{unexpected} },
	  "worker $worker cycle $entry->{cycle}, $entry->{stage}:"
	  . " $entry->{sqlstate} $entry->{message}"
	  unless $expected_sqlstate{ $entry->{sqlstate} };
	return;
}

sub _read_nemesis ($self, $path)
{
	my %since;    # when what stands still was stopped
	my $ended = sub ($list, $target, $entry) { push @$list, [ delete $since{$target}, $entry->{time} ]; };
	my %read = (
		write => sub ($entry) { $self->{writes}{ $entry->{is_marked} ? 'marked' : 'other' }{ $entry->{result} }++; },
		fault => sub ($entry) {
			my $kind = $entry->{kind};
			$self->{faults}{$kind}++;
			push @{ $self->{killed} }, $entry->{pid} if $kind eq 'crash';
			$since{ $kind =~ /^stop_/ ? $entry->{pid} : $entry->{target} } = $entry->{time}
				if $kind =~ /^(?:stop_|freeze_|refuse_deletes)/;
		},
		heal => sub ($entry) {
			my ($kind, $target) = @{$entry}{qw(kind target)};
			$ended->($self->{frozen_programs}{ $target =~ s/.* //r } ||= [], $target, $entry)
				if $kind eq 'freeze_program';
			$ended->($self->{standby} ||= [], $target, $entry) if $kind eq 'freeze_standby';
			$ended->($self->{stops}{$target} ||= [], $target, $entry) if $kind =~ /^stop_/;
			$ended->($self->{refusals}{$target} ||= [], $target, $entry) if $kind eq 'refuse_deletes';
		});
	Torture::History::read_events(
		$path,
		sub ($entry) {
			return if $self->_note_impostor($entry);
			push @{ $self->{timeline} }, $entry if $entry->{event} ne 'write';
			$read{ $entry->{event} }->($entry);
		});
	# If the nemesis itself came to grief.
	push @{ $self->{stops}{$_} }, [ $since{$_}, 9**9**9 ] foreach grep { /^\d+$/ } keys %since;
	return;
}

# What the impostor has written, or false.
sub _note_impostor ($self, $entry)
{
	my $event = $entry->{event};
	push @{ $self->{strangers} }, $entry->{id} if $event eq 'session';
	$self->{forged}{ $entry->{kind} }++ if $event eq 'forged';
	$self->{said}{ $entry->{is_watched} ? 'heard' : 'unheard' }++ if $event eq 'said';
	return $event =~ /^(session|forged|said)$/ || ($entry->{kind} // '') eq 'forged';
}

=pod

=head2 strangers, words_heard

The sessions of the impostor; how many of its words somebody waited for.

=cut

sub strangers { return @{ $_[0]->{strangers} || [] }; }
sub words_heard { return $_[0]->{said}{heard} || 0; }

=pod

=head2 silences($session_timeout, @clusters)

When the ensemble was away for longer than a session lives, in seconds, for the sake of those who
do nothing: [from, to, cluster], as long as nothing was wrong with the network of that
cluster, then and shortly afterwards.

=cut

# In seconds.
my $shortly = 2;

sub silences ($self, $session_timeout, @clusters)
{
	my (%begin, @silences, @cuts);
	foreach my $entry (sort { $a->{time} <=> $b->{time} } @{ $self->{timeline} })
	{
		my ($kind, $target, $time) = @{$entry}{qw(kind target time)};
		if ($entry->{event} eq 'fault')
		{
			$begin{"$kind $target"} = $time;
			next;
		}
		my $span = [ $begin{"$kind $target"} // 0, $time, $target ];
		# The end of the test heals sooner.
		push @silences, $span if $kind eq 'kill_all_idle' && $time - $span->[0] > $session_timeout;
		push @cuts, $span if $kind =~ /^(cut|refuse|part_)/;
	}
	my @quiet;
	foreach my $cluster (@clusters)
	{
		push @quiet, map { [ @{$_}[ 0, 1 ], $cluster ] } grep {
			my ($from, $to) = @$_;
			!grep { $_->[0] < $to + $shortly && $_->[1] > $from
				  && $_->[2] =~ /^(server|\Q$cluster\E$)/ } @cuts
		} @silences;
	}
	return @quiet;
}

=pod

=head2 hangs

What became of those who held a lock when a server began to hang: how many there were,
and how many lost it before it served again. Without those whom something else has hit.

=cut

sub hangs ($self)
{
	my ($holders, $lost) = (0, 0);
	my ($from, %hit);
	foreach my $entry (sort { $a->{time} <=> $b->{time} } @{ $self->{timeline} })
	{
		my $pid = $entry->{pid} || ($entry->{target} =~ /^(?:program of )?(\d+)$/ ? $1 : '');
		$hit{$pid} = $entry->{time};
		$from = $entry->{time} if $entry->{kind} eq 'hang' && $entry->{event} eq 'fault';
		next unless $entry->{kind} eq 'hang' && $entry->{event} eq 'heal' && $from;
		my @held = grep {
			     $_->{granted} && $_->{granted} < $from
			  && ($_->{ended} || $_->{release_sent} || $_->{lost_at} || $_->{over} || 0) > $from
			  && ($hit{ $_->{pid} } || 0) < $from - $shortly
			  && !grep { $self->{evictions}{ $_->{token} } } @{ $_->{locks} }
		} grep { $_->{kind} !~ /^(hold|lease|foreign)$/ } @{ $self->{cycles} };
		$holders += @held;
		$lost += grep { ($_->{lost_at} || 9**9**9) < $entry->{time} } @held;
	}
	return ($holders, $lost);
}

=pod

=head2 writes($where, $result)

How many attempts of the stranger to write into nodes that are "marked" or
"other" had that result.

=cut

sub writes ($self, $where, $result)
{
	return $self->{writes}{$where}{$result} || 0;
}

=pod

=head2 faults, grants, grants_by_kind, outcomes

Counts; outcomes by name.

=cut

sub faults { return sum0(values %{ $_[0]->{faults} }); }

# How often a worker was granted a lock with a token that it had before.
sub taken_back ($self)
{
	my %seen = map { ("$_->{worker} $_->{name} $_->{token}" => 1) } $self->spins;
	return sum0(map { $_->{grants} - 1 } $self->spins) + scalar grep { $seen{"$_->[0] $_->[1]{name} $_->[1]{token}"}++ }
	  map { my $cycle = $_; map { [ $cycle->{worker}, $_ ] } @{ $cycle->{locks} } }
	  grep { $_->{granted} } @{ $self->{cycles} };
}

sub grants { return scalar grep { $_->{granted} } @{ $_[0]->{cycles} }; }

sub grants_by_kind ($self)
{
	my %count;
	$count{ $_->{kind} }++ foreach grep { $_->{granted} } @{ $self->{cycles} };
	return %count;
}

sub outcomes ($self)
{
	my %count = (committed => 0, refused => 0, unknown => 0);
	$count{ $_->{outcome} }++ foreach grep { $_->{outcome} } @{ $self->{cycles} };
	return %count;
}

=pod

=head2 note_records($zero, @rows)

Adds to each cycle that has committed the time of its commit record, given the
rows of L<Torture::Stage> and the time of day when the machine's clock was 0.

=cut

sub note_records ($self, $zero, @rows)
{
	my %cycle = map { ("$_->{worker} $_->{cycle}" => $_) } @{ $self->{cycles} };
	foreach my $entry (map { @{ $_->{entries} } } @rows)
	{
		my $cycle = $cycle{"$entry->{worker} $entry->{cycle}"} or next;
		$cycle->{recorded} = at_time_of_day($entry->{recorded}, $zero);
	}
	return;
}

=pod

=head2 tables(more => count, ...)

The lines of the summary.

=cut

sub tables ($self, @more)
{
	my %outcome = $self->outcomes;
	my @lines = _table(
		'workload',
		[ 'locks asked for', scalar @{ $self->{cycles} } ],
		[ 'granted', $self->grants ],
		[ 'taken in both modes', $self->{count}{took_both_modes} || 0 ],
		[ 'unlocked before COMMIT', $self->{count}{unlocked_early} || 0 ],
		[ 'try failed', $self->{count}{gave_up} || 0 ],
		(map { [ $_, $outcome{$_} ] } qw(committed refused unknown)),
		[ 'unlocked too late', $self->{count}{too_late} || 0 ],
		[ 'evicted', $self->{count}{was_evicted} || 0 ],
		@more);
	push @lines, _table('granted, by kind', $self->_rows_by_kind);
	push @lines,
	  _table('faults',
		map { [ $_, $self->{faults}{$_} ] } sort keys %{ $self->{faults} });
	push @lines, _table(
		"a stranger's writes into queue nodes",
		map {
			my ($where, $result) = @$_;
			[ "$result, $where nodes", $self->writes($where, $result) ]
		} map { my $where = $_; map { [ $where, $_ ] } qw(refused gone accepted) }
		  qw(marked other));
	push @lines, _table(
		"an impostor's nodes and words",
		(map { [ "made: $_", $self->{forged}{$_} ] } sort keys %{ $self->{forged} }),
		(map { [ $_, $self->{said}{$_} ] } sort keys %{ $self->{said} }))
	  if $self->{forged};
	my @errors;
	foreach my $stage (sort keys %{ $self->{errors} })
	{
		my $count = $self->{errors}{$stage};
		push @errors, map { [ "$stage: $_", $count->{$_} ] } sort keys %$count;
	}
	push @lines, _table('errors by stage and SQLSTATE', @errors);
	return @lines;
}

# With what happened to holds and slots, too.
sub _rows_by_kind ($self)
{
	my %grants = $self->grants_by_kind;
	my %answers;
	$answers{ $_->{answer} }++ foreach $self->claims;
	my $repeated = grep { $_->{was_repeated} } $self->claims;
	return (
		(map { [ $_, $grants{$_} ] } sort keys %grants),
		[ 'once: true', $answers{t} || 0 ],
		[ 'once: false', $answers{f} || 0 ],
		[ 'once: error, and repeated', $repeated ],
		[ 'once: outcome unknown', $answers{open} || 0 ],
		[ 'free: deadlocks', scalar grep { $_->{is_deadlock} } @{ $self->{cycles} } ],
		[ 'hold: outcome unknown, found', $self->{count}{hold_found} || 0 ],
		[ 'hold: outcome unknown, void', $self->{count}{hold_void} || 0 ]);
}

sub _table ($title, @rows)
{
	my $width = max(0, map { length $_->[0] } @rows);
	return ($title, map { sprintf "  %-*s %7s", $width, @$_ } @rows);
}

=pod

=head2 around(@cycles)

What these cycles did, and the faults from shortly before the first to the end
of the last: the lines to read when a violation is to be understood. Times are
in seconds after the first step of the first cycle.

=cut

sub around ($self, @cycles)
{
	my @steps;
	my @kinds = (
		[ asked => ' asks' ],
		[ commit_sent => ' sends COMMIT' ],
		[ recorded => ': its commit record' ],
		[ ended => ': OUTCOME' ],
		[ release_sent => ' asks to release' ]);
	foreach my $cycle (@cycles)
	{
		my $who = "worker $cycle->{worker} (pid $cycle->{pid}, $cycle->{scope} scope)";
		my @locks = map {
			"token $_->{token}"
				. (@{ $cycle->{locks} } > 1 || $_->{mode} eq 'shared' ? " ($_->{name}, $_->{mode})" : '')
		} @{ $cycle->{locks} };
		push @steps, [ $cycle->{granted}, "$who gets " . join ', ', @locks ] if $cycle->{granted};
		push @steps, [ $cycle->{failed_at}, "$who fails: $cycle->{sqlstate}" ] if $cycle->{failed_at};
		foreach my $event ($cycle->{kind} eq 'free' ? qw(wanted got) : ())
		{
			push @steps, map { [ $cycle->{$event}{$_}, "$who $event $_" ] } keys %{ $cycle->{$event} };
		}
		push @steps, map { [ $cycle->{ $_->[0] }, $who . $_->[1] =~ s/OUTCOME/$cycle->{outcome}/r ] }
		  grep { $cycle->{ $_->[0] } } @kinds;
	}
	return unless @steps;
	@steps = sort { $a->[0] <=> $b->[0] } @steps;
	my ($from, $to) = ($steps[0][0] - 5, $steps[-1][0]);
	my %pids = map { $_->{pid} => 1 } @cycles;
	foreach my $entry (@{ $self->{timeline} })
	{
		next if $entry->{time} < $from || $entry->{time} > $to;
		# Of the faults of single backends only theirs.
		next if $entry->{pid} && !$pids{ $entry->{pid} };
		next if $entry->{target} =~ /^(?:program of )?(\d+)$/ && !$pids{$1};
		push @steps,
		  [
			$entry->{time},
			"-- $entry->{event} $entry->{kind} $entry->{target}"
			  . ($entry->{pid} ? " pid $entry->{pid}" : '') ];
	}
	my $zero = $steps[0][0];
	return map { sprintf '%8.3f %s', $_->[0] - $zero, $_->[1] }
	  sort { $a->[0] <=> $b->[0] } @steps;
}

1;
