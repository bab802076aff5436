
# Each combination of node style, mode and permits, scope, zklock.keep, timeout and situation has
# the promised outcome: result, queue, and what is left. Each is a lock of its own and one
# assertion; promise() is the table of what must come out, made from the documents and not from
# the code. Real servers, and two clusters.

use List::Util qw(sum);
use ZkLockTest;

# How long a call of a cell waits that is to be refused, and one that is to be granted.
my ($short, $long) = (30, 10_000);
# One that wrongly waits for a holder does so for longer than so many milliseconds, for which
# hardly any machine stalls.
my $at_once = 10_000;

my @kinds = ('exclusive', 'shared', 'permits 3');
my @scopes = qw(session transaction call);
my @keeps = qw(off on);
my @timeouts = ('try 0', 'try in time', 'lock in time');

my $zk = ZooKeeper->new->start;
my %setting = (
	'deadlock_timeout' => '100ms',
	'max_connections' => 80,
	'zklock.session_timeout' => '12s',
	'zklock.commit_guard' => 'quorum');
my %node = map { $_ => cluster($_, $zk, %setting) } qw(berlin paris);
$node{berlin}->safe_psql('postgres', 'CREATE TABLE work (name text)');

# The test's own client: what is left is not asked of zklock.
my $client = $zk->client;
my $observer = background($node{paris});
my @styles = split /,/, $observer->query_safe(q(
	SELECT array_to_string(enumvals, ',') FROM pg_settings WHERE name = 'zklock.node_style')
	  || '');
my %next_style = map { $styles[ $_ - 1 ] => $styles[$_] } 0 .. $#styles;
my $cells = 0;

=pod

=head1 WHAT IS PROMISED

The caller is a session of one cluster; whoever else is there, of the other:

  free           nobody is there
  kept           somebody has taken and released the lock, and keeps it if he can
  held           by an exclusive holder; of a semaphore all permits are taken
  partly held    by a shared holder; of a semaphore two of three permits are taken
  leased, partly leased  the same, by leases
  other style    by an exclusive holder whose nodes have another style
  other permits  by a holder that names another number of permits
  waited for     by a shared holder (three of a semaphore), and an exclusive waiter
  deadlocked     the caller waits for a holder that waits for the caller
  scope refused  nobody is there, and zklock.session_scope is "refuse"
  evicted        the caller holds the lock, and is evicted
  evicted in line  the caller waits, and is evicted
  lost           the caller holds the lock, and ZooKeeper ends its session
  lost in line   the caller waits, and ZooKeeper ends its session

A transaction ends by COMMIT, or where the cell is of "lock in time" by ROLLBACK.

Excluded are: permits of a shared lock, and a shared lock of call scope, which SQL
cannot say; and what a try with timeout 0 would meet in line, for it waits in none. Other
clients are in t/410_interop_matrix.pl.

Situations that are made for one cell at a time (waited for, evicted, lost) take most of the time. Of
their cells a run plays a third or a half, so that each three of style, kind, scope, zklock.keep and
timeout meet; make nightly plays all.

=cut

# What must come out of a cell:
#   result  granted; refused, of a try; or SQLSTATE
#   queue   the rows of zk_lock_queue() then: state, mode, style
#   nodes   how many nodes of contenders there are then
#   left    how many when all have let go
sub promise ($cell)
{
	my ($situation, $kind, $timeout) = @$cell{qw(situation kind timeout)};
	my $in_time = $timeout ne 'try 0';
	my $in_vain = $timeout eq 'lock in time' ? '55P03' : 'refused';
	my @ours = ($kind, $cell->{style});
	my @ahead = holders($cell);

	return outcome('0A000', []) if $situation eq 'scope refused' && $cell->{scope} eq 'session';
	return outcome('granted', [ held(\@ours) ], is_kept($cell) ? 1 : 0)
	  if $situation eq 'free' || $situation eq 'scope refused';
	return outcome('granted', [ held(\@ours) ]) if $situation eq 'kept';
	# A semaphore is no other client's lock, nor one with other permits.
	return outcome('55000', [ held(@ahead) ])
	  if $situation eq 'other permits' || $ahead[0][0] ne 'permits 3' && $kind eq 'permits 3';
	# Readers go together, and so do those who take a permit each.
	return $kind ne 'exclusive' && $ahead[0][0] eq $kind && @ahead < 3
	  ? outcome('granted', [ held(@ahead, \@ours) ])
	  : outcome($in_vain, [ held(@ahead) ])
	  if grep { $_ eq $situation } 'held', 'partly held', 'leased', 'partly leased', 'other style';
	if ($situation eq 'waited for')
	{
		my @line = (held(@ahead), waiting(waiter($cell)));
		return outcome('refused', \@line) if !$in_time;
		return outcome('granted', [ @line, waiting(\@ours) ]);
	}
	# Of those who wait for each other one gives way, the others go on.
	if ($situation eq 'deadlocked')
	{
		my $others = $kind eq 'permits 3' ? 3 : 1;
		return outcome(join(' ', $in_time ? '40P01' : 'refused', ('granted') x $others), []);
	}
	# Nothing is committed, and the lock is there to be taken.
	return outcome('granted, commit 40001, unlock f, taken t', [])
	  if $situation eq 'evicted' || $situation eq 'lost';
	return outcome('57000', [ held(@ahead) ]) if $situation eq 'evicted in line';
	# He joins the queue again, with a new session.
	return outcome('granted', [ held(@ahead), waiting(\@ours) ])
	  if $situation eq 'lost in line';
	die "nothing is promised for $situation";
}

sub outcome ($result, $rows, $left = undef)
{
	return { result => $result, queue => join(', ', @$rows), nodes => scalar @$rows, left => $left || 0 };
}

# Who is ahead of the caller, each as kind and style.
sub holders ($cell)
{
	my ($situation, $kind, $style) = @$cell{qw(situation kind style)};
	my $is_semaphore = $kind eq 'permits 3';
	return [ 'exclusive', $next_style{$style} ] if $situation eq 'other style';
	return $is_semaphore ? [ 'exclusive', $style ] : [ 'permits 3', 'curator' ]
	  if $situation eq 'other permits';
	return ([ $kind, $style ]) x ($situation =~ /^partly/ ? 2 : 3) if $is_semaphore;
	return [ 'shared', $style ] if $situation =~ /^partly/ || $situation eq 'waited for';
	return [ 'exclusive', $style ];
}

sub waiter ($cell) { return [ $cell->{kind} eq 'permits 3' ? 'permits 3' : 'exclusive', $cell->{style} ]; }

# Only the session of a plain exclusive lock of that style keeps it, and only if it
# has met nobody.
sub is_kept ($cell)
{
	return $cell->{keep} eq 'on' && $cell->{kind} eq 'exclusive' && $cell->{style} eq 'curator';
}

sub held { return map { row('held', @$_) } @_; }
sub waiting { return map { row('waiting', @$_) } @_; }

# A semaphore's nodes, and a reader's of style "curator", are zklock's own.
sub row ($state, $kind, $style)
{
	my $mode = $kind eq 'shared' ? 'shared' : 'exclusive';
	my $shown = $kind eq 'permits 3' || "$kind $style" eq 'shared curator' ? 'zklock' : $style;
	return "$state $mode $shown";
}

# The rest makes these situations, and looks.

# The calls of SQL, and what lets go of the lock again.
sub call ($name, $kind, $scope, $timeout, $milliseconds = undef)
{
	my %part = (session => '', transaction => 'xact_', call => 'call_');
	my $try = $timeout eq 'lock in time' ? '' : 'try_';
	my $shared = $kind eq 'shared' ? '_shared' : '';
	my $permits = $kind eq 'permits 3' ? ', permits => 3' : '';
	my $bound = $timeout eq 'try 0' ? '' : ", '${milliseconds}ms'";
	return "SELECT zk_$try$part{$scope}lock$shared('$name'$bound$permits)";
}

sub call_of ($cell, $milliseconds) { return call(@$cell{qw(name kind scope timeout)}, $milliseconds); }

sub unlock ($name, $kind) { return 'SELECT zk_unlock' . ($kind eq 'shared' ? '_shared' : '') . "('$name')"; }

sub style_of { return "SET zklock.node_style = '$_[0]'"; }

# Statements in a row, each after a word that its outcome is found by.
sub start_script ($session, @items)
{
	my $script = '';
	while (my ($word, $sql) = splice @items, 0, 2)
	{
		$script .= "$sql;\n\\echo '\@$word' :SQLSTATE\n";
	}
	$session->start_query($script);
	return;
}

sub end_script ($session)
{
	my (%found, @lines);
	my $took = 0;
	foreach my $line (split /\n/, $session->wait_result)
	{
		if (my ($word, $sqlstate) = $line =~ /^\@(\S+) (\w{5})$/)
		{
			my $out = join ' ', @lines;
			$out = 'granted' if $out =~ /^(t|\d+)$/;
			$out = 'refused' if $out eq 'f';
			$found{$word} = { result => $sqlstate eq '00000' ? $out : $sqlstate, took => $took };
			@lines = ();
		}
		elsif ($line =~ /^Time: ([\d.]+) ms/) { $took = $1; }
		else { push @lines, $line; }
	}
	return \%found;
}

sub script ($session, @items)
{
	start_script($session, @items);
	return end_script($session);
}

# A session; errors do not end its transaction.
sub open_session ($cluster, $keep)
{
	my $session = background($node{$cluster});
	$session->query_safe("\\set ON_ERROR_ROLLBACK on\n\\timing on\n"
		  . 'SET zklock.keep = ' . ($keep eq 'on' ? "'10min'" : '0'));
	return $session;
}

# How many nodes stand in the queue of each of these locks.
sub count_nodes (@names)
{
	my %count;
	foreach my $name (@names)
	{
		my @children = eval { $client->children(lock_path($name)) };
		die $@ if $@ && $@ !~ /NoNode/;
		$count{$name} = grep { /\d{10}$/ } @children;
	}
	return \%count;
}

sub read_queues (@names)
{
	my %rows = map { $_ => '' } @names;
	my $list = join ', ', map { "'$_'" } @names;
	my $out = $observer->query_safe(
		"SELECT n || '|' || string_agg(concat_ws(' ', state, mode, style), ', ' ORDER BY position)
		FROM unnest(ARRAY[$list]) n, zk_lock_queue(n) GROUP BY n");
	foreach my $line (split /\n/, $out)
	{
		my ($name, $rows) = split /\|/, $line;
		$rows{$name} = $rows;
	}
	return \%rows;
}

# What is under way may take a while: until it is as promised, or for some seconds.
# Where much is broken there is no use in so much patience.
my $patience = 20;

sub settle ($ask, $cells, $found, $promised)
{
	my $until = time + $patience;
	while (1)
	{
		my $is = $ask->(map { $_->{name} } @$cells);
		$_->{got}{$found} = $is->{ $_->{name} } foreach @$cells;
		return if !grep { $_->{got}{$found} ne $_->{promise}{$promised} } @$cells;
		last if time > $until;
		sleep 0.01;
	}
	$patience = 1;
	return;
}

sub look (@looked)
{
	settle(\&read_queues, \@looked, 'queue', 'queue');
	settle(\&count_nodes, \@looked, 'nodes', 'nodes');
	return;
}

sub look_what_is_left (@looked)
{
	settle(\&count_nodes, \@looked, 'left', 'left');
	return;
}

# The cells of a situation: those that differ in style and kind make a batch.
sub batches ($situation, %only)
{
	my @batches;
	foreach my $scope (@scopes)
	{
		foreach my $keep (@keeps)
		{
			push @batches, [ cells_of($situation, $scope, $keep, $_) ]
			  foreach @{ $only{timeouts} || \@timeouts };
		}
	}
	return @batches;
}

sub cells_of ($situation, $scope, $keep, $timeout)
{
	my @batch;
	foreach my $style (@styles)
	{
		foreach my $kind (grep { "$scope $_" ne 'call shared' } @kinds)
		{
			my $cell = {
				name => 'c' . ++$cells, situation => $situation, style => $style,
				kind => $kind, scope => $scope, keep => $keep, timeout => $timeout };
			$cell->{promise} = promise($cell);
			push @batch, $cell;
		}
	}
	return @batch;
}

# The cells of a situation that is made for one at a time: of those that differ in nothing but the
# timeout one is played.
sub single_cells ($situation, $timeouts = \@timeouts)
{
	my @cells = map { @$_ } batches($situation, timeouts => $timeouts);
	return @cells if plays_all();
	my %number = map { my $values = $_; map { $values->[$_] => $_ } 0 .. $#$values } \@styles, \@kinds, \@scopes, \@keeps;
	return grep { $_->{timeout} eq $timeouts->[ sum(@number{ @$_{qw(style kind scope keep)} }) % @$timeouts ] } @cells;
}

# One assertion for each cell.
sub judge
{
	foreach my $cell (@_)
	{
		my ($got, $promise) = map { $cell->{$_} } qw(got promise);
		my $text = sub ($record) {
			return sprintf '%s | %s | %s, %s left',
			  map { $record->{$_} // 'nothing' } qw(result queue nodes left);
		};
		local $Test::Builder::Level = $Test::Builder::Level + 2;
		is($text->($got), $text->($promise), join ', ',
			@$cell{qw(situation style kind scope)}, "keep $cell->{keep}", $cell->{timeout});
	}
	return;
}

# Sessions by keep: the caller's, those of up to three holders, and one that waits.
my (%caller, %holder, %waiter);
foreach my $keep (@keeps)
{
	$caller{$keep} = open_session('berlin', $keep);
	$holder{$keep} = [ map { open_session('paris', $keep) } 1 .. 3 ];
	$waiter{$keep} = open_session('paris', $keep);
}

# Those ahead of the caller take the locks of these cells.
sub take_ahead (@batch) { return take_by(sub ($name, $kind, $number) { call($name, $kind, 'session', 'lock in time', $long) }, @batch); }

# Or leases of them, which outlive the sessions.
my @leased;

sub take_leases (@batch)
{
	@leased = map { $_->{name} } @batch;
	return take_by(sub ($name, $kind, $number) {
		my $shared = $kind eq 'shared' ? '_shared' : '';
		my $permits = $kind eq 'permits 3' ? ', permits => 3' : '';
		return "SELECT zk_try_lease$shared('$name', 'owner $number', '1 h', '${long}ms'$permits)";
	}, @batch);
}

sub release_leases ($keep)
{
	my $names = join ', ', map { "'$_'" } @leased;
	$holder{$keep}[0]->query_safe("SELECT count(zk_release_lease(n, token)) FROM unnest(ARRAY[$names]) n, zk_lock_queue(n) WHERE lease_owner IS NOT NULL");
	return;
}

sub take_by ($how, @batch)
{
	my @sessions = @{ $holder{ $batch[0]{keep} } };
	foreach my $number (0 .. $#sessions)
	{
		my @script;
		foreach my $cell (@batch)
		{
			my $ahead = (holders($cell))[$number] or next;
			push @script, style => style_of($ahead->[1]), $cell->{name} => $how->($cell->{name}, $ahead->[0], $number);
		}
		my $found = script($sessions[$number], @script);
		foreach my $name (grep { /^c/ } keys %$found)
		{
			diag("$name: its holder got $found->{$name}{result}")
			  if $found->{$name}{result} ne 'granted';
		}
	}
	return;
}

sub release_ahead ($keep)
{
	$_->query_safe('SELECT zk_unlock_all()') foreach @{ $holder{$keep} };
	return;
}

# What a call has come to; a try in vain that took longer than it may, or one that
# did not wait as long as it was told to, is another matter.
sub verdict ($cell, $outcome)
{
	my ($result, $took) = @$outcome{qw(result took)};
	my $is_try = $cell->{timeout} eq 'try 0';
	return "$result, but not at once" if $is_try && $result =~ /^(refused|55000)$/ && $took > $at_once;
	return "$result too early" if !$is_try && $result =~ /^(refused|55P03)$/ && $took < $short - 1;
	return $result;
}

# The caller makes the calls of a batch, and lets go. Then those ahead do, by $release.
sub call_and_look ($release, @batch)
{
	my ($scope, $keep, $timeout) = @{ $batch[0] }{qw(scope keep timeout)};
	my $session = $caller{$keep};
	$session->query_safe('BEGIN') if $scope ne 'session';
	my $found = script($session, map { (style => style_of($_->{style}), $_->{name} =>
			call_of($_, $_->{promise}{result} =~ /granted|55000/ ? $long : $short)) } @batch);
	$_->{got}{result} = verdict($_, $found->{ $_->{name} }) foreach @batch;

	# Where no answer came in time, for a server that waits for its disk may be silent for seconds,
	# the call is made again.
	foreach my $cell ((grep { $_->{got}{result} =~ /^08/ } @batch) x 30)
	{
		next if $cell->{got}{result} !~ /^08/;
		note("again: $cell->{name}: $cell->{got}{result}");
		$found = script($session, style => style_of($cell->{style}),
			$cell->{name} => call_of($cell, 10 * $short));
		$cell->{got}{result} = verdict($cell, $found->{ $cell->{name} });
	}
	look(@batch);
	if ($scope eq 'session')
	{
		my @held = grep { $_->{got}{result} eq 'granted' } @batch;
		$found = script($session, map { ($_->{name} => unlock(@$_{qw(name kind)})) } @held);
		$_->{got}{result} .= ', not unlocked'
		  foreach grep { $found->{ $_->{name} }{result} ne 'granted' } @held;
	}
	else { $session->query_safe($timeout eq 'lock in time' ? 'ROLLBACK' : 'COMMIT'); }
	# Whether he keeps what another one has kept is his own affair.
	$session->query_safe('SELECT zk_unlock_all()') if $batch[0]{situation} eq 'kept';
	$release->($keep) if $release;
	look_what_is_left(@batch);
	return;
}

# All cells of a situation that one of these makes, and the other one ends.
sub play ($situation, $begin = undef, $end = undef)
{
	subtest "calls for a lock, situation: $situation" => sub {
		foreach my $batch (batches($situation))
		{
			$begin->(@$batch) if $begin;
			call_and_look($end, @$batch);
			judge(@$batch);
		}
	};
	return;
}

play('free');
$_->query_safe("SET zklock.session_scope = 'refuse'") foreach values %caller;
play('scope refused');
$_->query_safe('RESET zklock.session_scope') foreach values %caller;
play('kept', sub (@batch) {
	script($holder{ $batch[0]{keep} }[0], map {
		(style => style_of($_->{style}), lock => "SELECT zk_lock('$_->{name}')",
			unlock => "SELECT zk_unlock('$_->{name}')")
	} @batch);
});
play($_, \&take_ahead, \&release_ahead) foreach 'held', 'partly held', 'other permits', 'other style';
play($_, \&take_leases, \&release_leases) foreach 'leased', 'partly leased';

# Until so many nodes stand in the queue.
sub wait_for_nodes ($name, $count)
{
	return if eval { poll_until { count_nodes($name)->{$name} >= $count } 'nodes', $patience };
	diag("$name: not $count nodes");
	$patience = 1;
	return;
}

# One behind the other, and each has its turn.
sub let_in_turn ($cell)
{
	my ($keep, $name) = @$cell{qw(keep name)};
	my ($session, $ahead) = ($caller{$keep}, $waiter{$keep});
	my @waiter = @{ waiter($cell) };
	take_ahead($cell);
	start_script($ahead, style => style_of($waiter[1]),
		$name => call($name, $waiter[0], 'session', 'lock in time', $long),
		unlock => unlock($name, $waiter[0]));
	my @holders = holders($cell);
	wait_for_nodes($name, 1 + @holders);

	$session->query_safe(style_of($cell->{style}));
	start_script($session, $name => "BEGIN;\n" . call_of($cell, $long), end => 'COMMIT');
	my $found = $cell->{timeout} eq 'try 0' ? end_script($session) : undef;
	look($cell);
	release_ahead($keep);
	$cell->{got}{result} = verdict($cell, ($found // end_script($session))->{$name});
	my $turn = end_script($ahead);
	$cell->{got}{result} .= ", the waiter ahead $turn->{$name}{result}"
	  if $turn->{$name}{result} ne 'granted';
	$session->query_safe('SELECT zk_unlock_all()');
	look_what_is_left($cell);
	return;
}

subtest 'calls for a lock, situation: waited for' => sub {
	foreach my $cell (single_cells('waited for'))
	{
		let_in_turn($cell);
		judge($cell);
	}
};

# The caller, and the others of the deadlock, for each cell of a batch.
my @sets = map {
	[ open_session('berlin', 'off'), map { open_session('paris', 'off') } 1 .. 3 ]
} 1 .. @styles * @kinds;

# The caller holds one lock and waits for the cell's, which the others hold, who wait
# for the caller's in their turn. Each lets go when its call is over.
sub lock_each_other (@batch)
{
	my %of = map { $batch[$_]{name} => $sets[$_] } 0 .. $#batch;
	my $keep = $batch[0]{keep} eq 'on' ? "'10min'" : '0';
	my $end = $batch[0]{timeout} eq 'lock in time' ? 'ROLLBACK' : 'COMMIT';
	my %others;
	foreach my $cell (@batch)
	{
		my ($name, $kind, $style) = @$cell{qw(name kind style)};
		my ($session, @other) = @{ $of{$name} };
		my $count = $kind eq 'permits 3' ? 3 : 1;
		$others{$name} = [ @other[ 0 .. $count - 1 ] ];
		$_->query_safe("SET zklock.keep = $keep; " . style_of($style))
		  foreach $session, @{ $others{$name} };
		$session->query_safe("BEGIN;\n"
			  . call("$name.own", 'exclusive', $cell->{scope}, 'lock in time', $long));
		foreach my $other (@{ $others{$name} })
		{
			# All permits are in the cycle, or both wait in the cell's mode.
			my ($holds, $asks) = $count == 3 ? ($kind, 'exclusive') : ('exclusive', $kind);
			$other->query_safe(call($name, $holds, 'session', 'lock in time', $long));
			start_script($other,
				$name => call("$name.own", $asks, 'session', 'lock in time', $long),
				unlock => 'SELECT zk_unlock_all()');
		}
	}
	foreach my $cell (@batch)
	{
		my $name = $cell->{name};
		my $count = @{ $others{$name} };
		wait_for_nodes("$name.own", 1 + $count);
		start_script($of{$name}[0], $name => call_of($cell, $long),
			end => $end, unlock => 'SELECT zk_unlock_all()');
	}
	foreach my $cell (@batch)
	{
		my $name = $cell->{name};
		my @results = map { end_script($_)->{$name} } $of{$name}[0], @{ $others{$name} };
		$results[0]{result} = verdict($cell, $results[0]);
		$cell->{got}{result} = join ' ', sort map { $_->{result} } @results;
		$cell->{got}{result} =~ s/^(granted.*) (refused)$/$2 $1/;
	}
	look(@batch);
	look_what_is_left(@batch);
	return;
}

subtest 'calls for a lock, situation: deadlocked' => sub {
	foreach my $batch (batches('deadlocked'))
	{
		lock_each_other(@$batch);
		judge(@$batch);
	}
};

# A session's number in the ensemble, and its program.
sub session_of ($session)
{
	my ($id, $program) = $session->query_safe('SELECT session_id, program_pid FROM zk_session') =~ /^(\w+)\|(\d+)/;
	return (session_number($id), $program);
}

# The ensemble ends that session, as if it had been silent for too long. Meanwhile
# its program stands still, or it would take the session back.
sub end_session ($id, $program)
{
	kill STOP => $program;
	$zk->client(session => $id)->close;
	kill CONT => $program;
	return;
}

# The caller has the lock when it happens.
sub lose ($blow, $cell)
{
	my ($name, $kind, $scope) = @$cell{qw(name kind scope)};
	my $session = $caller{ $cell->{keep} };
	my $taker = $waiter{ $cell->{keep} };
	$session->query_safe(style_of($cell->{style}));
	# If psql's own savepoint fails, it does not say so.
	$session->query_safe("\\set ON_ERROR_ROLLBACK off\nBEGIN") if $scope ne 'session';
	my $result = script($session, take => call_of($cell, $long))->{take}{result};
	$blow->([ session_of($session) ], $name, 1);
	# Whoever notices first, the write or the commit.
	my $found = script($session, write => "INSERT INTO work VALUES ('$name')",
		commit => $scope eq 'session' ? 'SELECT' : 'COMMIT');
	my ($refused) = grep { $_ ne '' && $_ ne 'granted' } map { $found->{$_}{result} } qw(write commit);
	$session->query('ROLLBACK') if $scope ne 'session';
	$result .= ', commit ' . ($refused // 'done');
	$result .= ', unlock ' . ($scope eq 'session'
		? script($session, unlock => unlock($name, $kind))->{unlock}{result} =~ s/refused/f/r : 'f');
	look($cell);
	$taker->query_safe(style_of($cell->{style}));
	my $next = script($taker, take => call($name, $kind, 'session', 'try 0'));
	$cell->{got}{result} = $result . ', taken ' . ($next->{take}{result} =~ s/granted/t/r);
	$taker->query_safe('SELECT zk_unlock_all()');
	look_what_is_left($cell);
	return;
}

sub evict ($name, $position)
{
	my $is = $observer->query_safe(
		"SELECT zk_evict('$name', token) FROM zk_lock_queue('$name') WHERE position = $position");
	diag("$name: not evicted") if $is ne 't';
	return;
}

# What befalls the caller, with that lock, at that position.
my %blow = (
	evicted => sub { my ($session, $name, $position) = @_; evict($name, $position) },
	lost => sub { my ($session) = @_; end_session(@$session) });

# The caller waits when it happens. It learns of it in its turn.
sub lose_in_line ($blow, $cell)
{
	my ($name, $keep) = @$cell{qw(name keep)};
	my $session = $caller{$keep};
	take_ahead($cell);
	my @ahead = holders($cell);
	$session->query_safe(style_of($cell->{style}));
	# It needs one before it waits.
	$session->query_safe("SELECT zk_lock('warm'); SELECT zk_unlock_all()");
	my @session = session_of($session);
	start_script($session, $name => "BEGIN;\n" . call_of($cell, $long), end => 'COMMIT');
	wait_for_nodes($name, 1 + @ahead);
	$blow->(\@session, $name, 1 + @ahead);
	look($cell);
	release_ahead($keep);
	$cell->{got}{result} = verdict($cell, end_script($session)->{$name});
	$session->query_safe('SELECT zk_unlock_all()');
	look_what_is_left($cell);
	return;
}

foreach my $situation (sort keys %blow)
{
	subtest "calls for a lock, the caller is $situation" => sub {
		foreach my $cell (single_cells($situation))
		{
			lose($blow{$situation}, $cell);
			judge($cell);
		}
	};

	subtest "calls for a lock, the caller is $situation in line" => sub {
		foreach my $cell (single_cells("$situation in line", [ @timeouts[ 1, 2 ] ]))
		{
			lose_in_line($blow{$situation}, $cell);
			judge($cell);
		}
	};
}

is($node{berlin}->safe_psql('postgres', 'SELECT count(*) FROM work'),
	0, 'nothing was written without its lock');

done_testing();
