
=pod

=head1 NAME

Bench::Scale - one size of the fleet, through all that may happen to it

=cut

package Bench::Scale;

use v5.36;

use Bench::Stats qw(percentile);
use Bench::Storm;
use Time::HiRes qw(time sleep);
use ZooKeeper qw(poll_until);

# How long anything may take that takes all backends.
my $patience = 180;

# What the backend itself says that it had at most, in kB.
my $peak = q{(regexp_match(pg_read_file('/proc/self/status'),
	'VmHWM:\s+(\d+)'))[1]};
$peak =~ s/\s+/ /g;

# How long an idle fleet is looked at.
my $idle_s = 8;

# The tables of the report: [step, title, [title of a row, what is in its cells], ...].
my @of_first_locks = (
	[ 'half of the backends have their lock after, s', 'half' ],
	[ 'the last backend has its lock after, s', 'last' ],
	[ 'all backends stand in their queue after, s', 'all' ],
	[ 'backends that failed', 'failed' ],
	[ 'sessions of the ensemble', 'sessions' ]);
my @of_queue = (
	[ 'waiters, granted, overtaken', 'waiters', 'granted', 'overtaken' ],
	[ 'hand-overs a second', 'rate' ],
	[ 'backends that failed', 'failed' ],
	[ 'backends that failed to release', 'failed_to_release' ]);
my @of_storm = (
	[ 'the new list is read, the old addresses are gone after, s', 'read', 'old_gone' ],
	[ 'sessions that had not moved by then', 'not_moved' ],
	[ 'the last server stops after, s', 'last_stops' ],
	[ 'servers serve again after, s', 'away' ],
	[ 'half of the sessions are back after, s', 'half' ],
	[ 'the last session is back after, s', 'last_new' ],
	[ 'sessions, and how many of them are lost', 'sessions', 'lost' ],
	[ 'locks lost, by their holders', 'not_held' ],
	[ 'attempts to connect, for each session', 'opens' ],
	[ 'attempts to connect that were refused, for each session', 'refused' ],
	[ 'look-ups of names, for each session', 'look_ups' ],
	[ 'processes and threads begun by the machine, for each session', 'forks' ],
	[ 'queues of servers found full', 'overflows' ],
	[ 'CPU of all programs, s', 'cpu_programs' ]);
my %storm = (
	restart => 'Storm: all servers are killed and started again',
	leader => 'Storm: the leader is killed',
	cut => 'Storm: the servers stand still for half a session timeout',
	long => 'Storm: the servers stand still for 0.7 of a session timeout',
	named => 'Storm: all servers are killed and started again; their names were looked up',
	addresses => 'Storm: all servers are killed, and come back at other addresses behind the same names',
	rolling => 'Storm: each server in turn is killed, and comes back at another address',
	network => 'Storm: the network is gone for half a session timeout, with all connections',
	silence => 'Storm: nothing passes for half a session timeout, and connections stay',
	reload => 'Storm: the list of servers is replaced, and the old addresses go');

=pod

=head2 tables(storms)

The tables of a report: a list of [step, title, [title of a row, keys of its cells], ...].

=cut

sub tables (@storms)
{
	my %of_way;
	push @{ $of_way{ Bench::Storm::way($_) } }, [ $_, $storm{$_}, @of_storm ] foreach @storms;
	return (
		[
			'open', 'All ask for their first lock at once', @of_first_locks,
			[ 'private memory of a backend without a session, kB', 'before backend' ]
		],
		[
			'idle', 'All wait or hold, and do nothing',
			[ 'private memory of a backend, of its program, kB', 'memory backend', 'memory program' ],
			[ 'live heap of a server, resident memory, kB', 'memory heap', 'memory server' ],
			[ 'watches', 'watches' ],
			[ 'requests a second', 'requests' ],
			[ 'CPU of all programs, backends, servers, s a second', 'cpu_programs', 'cpu_backends', 'cpu_servers' ]
		],
		@{ $of_way{servers} // [] },
		[ 'queue', 'The lock goes through the queue', @of_queue ],
		[
			'commit', 'All COMMIT at once',
			[ 'half of the backends have committed after, s', 'half' ],
			[ 'the last backend has committed after, s', 'last' ],
			[ 'all locks are free after, s', 'gone' ],
			[ 'backends that failed', 'failed' ]
		],
		[
			'names', 'Many locks',
			[ 'locks held', 'names' ],
			[ 'taken in, s', 'taken' ],
			[ 'listed by zk_all_locks(), in s', 'found', 'list' ],
			[ 'requests, bytes from the servers', 'requests', 'bytes' ],
			[ 'peak memory of the backend that lists, kB', 'peak' ],
			[ 'live heap of a server, kB', 'heap' ],
			[ 'released in, s', 'released' ],
			[ 'backends that failed', 'failed' ]
		],
		[
			'crash', 'A cluster is killed',
			[ 'sessions', 'killed' ],
			[ 'all its nodes are gone after, s', 'gone' ],
			[ 'sessions that still stand 3 s later', 'sessions_left' ],
			[ 'all its sessions are gone after, s', 'sessions_gone' ]
		],
		[ 'by_names', 'First locks, of servers with names', @of_first_locks ],
		@{ $of_way{names} // [] },
		[ 'after_names', 'The queue after that', @of_queue ],
		[ 'through', 'First locks, through a program as the network', @of_first_locks ],
		@{ $of_way{network} // [] },
		[ 'after', 'The queue after that', @of_queue ]);
}

=pod

=head2 measure($fleet, $backends, $say, storms => [kinds], names => 50)

names: so many for each backend of the two clusters, when all locks are listed.
Storms for which the sessions reach the servers by names, or through the program network, have
fleets of their own, so that no other figure is about these.

Returns {step}{what}: times in seconds, memory in kB. The fleet is without
sessions afterwards.

=cut

sub measure ($fleet, $backends, $say, %option)
{
	my %seen = (backends => $backends);
	my $step = sub ($name, $seen) {
		$say->(sprintf '%5d backends  %-8s %s', $backends, $name, _words($seen));
		$seen{$name} = $seen;
	};
	my $weather = sub ($kind) { $step->($kind, Bench::Storm::weather($fleet, $kind, $patience)); };
	my @storms = @{ $option{storms} };
	my %storms;
	push @{ $storms{ Bench::Storm::way($_) } }, $_ foreach @storms;
	$fleet->resize($backends);
	# Everybody's first lock at the same moment, and what that costs.
	my $before = $fleet->memory;
	$step->('open', { before => $before, %{ _take_locks($fleet, $backends) } });
	$step->('idle', _idle($fleet, $backends));
	$weather->($_) foreach @{ $storms{servers} // [] };
	$step->('queue', _queue($fleet));
	$step->('commit', _commit($fleet));
	$step->('names', _names($fleet, $option{names} * $backends)) if $option{names};
	$step->('crash', _crash($fleet));
	_close($fleet);

	if ($storms{names})
	{
		$fleet->route('names');
		$fleet->resize($backends);
		$step->('by_names', _take_locks($fleet, $backends));
		$weather->($_) foreach @{ $storms{names} };
		$step->('after_names', _queue($fleet));
		_close($fleet);
		$fleet->zookeeper->kill9;
		$fleet->move;
		$fleet->zookeeper->start;
		$fleet->route('servers');
	}
	if ($storms{network})
	{
		$fleet->route('network');
		$fleet->resize($backends);
		my $through = _take_locks($fleet, $backends);
		$through->{connections} = $fleet->network('count')->{connections};
		$step->('through', $through);
		die "sessions do not go through the network\n"
		  if $through->{connections} < $backends - $through->{missing};
		# What comes after that one goes by the new list.
		$weather->($_) foreach sort { ($a eq 'reload') <=> ($b eq 'reload') } @{ $storms{network} };
		$step->('after', _queue($fleet));
		_close($fleet);
		$fleet->network('pass');
		$fleet->route('servers');
	}
	return \%seen;
}

sub _close ($fleet)
{
	$fleet->close_all;
	poll_until { !$fleet->zookeeper->counter('global_sessions') }
	'all sessions to end', $patience;
	return;
}

sub _words ($seen)
{
	return join '  ', map {
		my $value = $seen->{$_};
		"$_ "
		  . (!defined $value ? '?'
			: ref $value ? '(' . _words($value) . ')'
			: $value =~ /^-?\d+$/ ? $value
			: $value =~ /^[\d.e-]+$/ ? sprintf('%.2f', $value)
			: $value)
	} sort keys %$seen;
}

# How many answers were not what they should be, by SQLSTATE.
sub _failures ($key, @answers)
{
	my %count;
	$count{ $_->{$key} }++ foreach grep { $_->{$key} !~ /^(00000|-)$/ } @answers;
	return join(' ', map { "$count{$_} x $_" } sort keys %count) || 0;
}

sub _times ($from, @answers)
{
	my @times = map { $_->{answered} - $from } grep { $_->{answered} } @answers;
	return (percentile(50, @times), percentile(100, @times));
}

sub _leader ($fleet)
{
	my $zk = $fleet->zookeeper;
	return $zk->monitor($zk->leader);
}

sub _take_locks ($fleet, $backends)
{
	$fleet->ask_all('first', q{SELECT zk_lock('one')}, $patience, 'east');
	my $begin = time();
	$fleet->send('holders', q{SELECT zk_lock('own-@-#')});
	$fleet->send('waiters', q{SELECT zk_lock('one')});
	my @answers = $fleet->collect('holders', $patience);
	my ($half, $last) = _times($begin, @answers);
	my $wanted = $backends + 1;
	my $all = eval {
		poll_until
		{
			_leader($fleet)->{ephemerals_count} >= $wanted;
		}
		'all to stand in their queue', 60;
		time() - $begin;
	};
	my $nodes = keys %{ $fleet->owners };
	return {
		half => $half,
		last => $last,
		all => $all,
		missing => $wanted - $nodes,
		sessions => _leader($fleet)->{global_sessions},
		failed => _failures('state', @answers) };
}

sub _idle ($fleet, $backends)
{
	my $zk = $fleet->zookeeper;
	sleep(3);
	my ($before, $cpu) = ($zk->counter('packets_received'), $fleet->cpu);
	my $begin = time();
	sleep($idle_s);
	my ($after, $cpu_after) = ($zk->counter('packets_received'), $fleet->cpu);
	my $took = time() - $begin;
	return {
		memory => $fleet->memory,
		watches => $zk->watch_count,
		sessions => _leader($fleet)->{global_sessions},
		requests => ($after - $before) / $took,
		map { ("cpu_$_" => ($cpu_after->{$_} - $cpu->{$_}) / $took) }
		  keys %$cpu };
}

# The lock goes through all who wait for it, to the last.
sub _queue ($fleet)
{
	my $begin = time();
	$fleet->ask_all('first', q{SELECT zk_unlock('one')}, $patience, 'east');
	my @answers =
	  $fleet->collect('waiters', $patience, q{SELECT zk_unlock('one')});
	my @granted = sort { $a->{answered} <=> $b->{answered} }
	  grep { $_->{state} eq '00000' } @answers;
	my $overtaken = grep {
		$granted[$_]{value} < $granted[ $_ - 1 ]{value}
	} 1 .. $#granted;
	my $took = @granted ? $granted[-1]{answered} - $begin : undef;
	return {
		waiters => scalar @answers,
		granted => scalar @granted,
		overtaken => $overtaken,
		took => $took,
		rate => $took ? @granted / $took : undef,
		failed => _failures('state', @answers),
		failed_to_release => _failures('second', @answers) };
}

# As many transactions as there are backends, each with a lock, end together.
sub _commit ($fleet)
{
	my $nodes = _leader($fleet)->{ephemerals_count};
	my @begun = $fleet->ask_all('all',
		q{BEGIN; SELECT zk_xact_lock('work-@-#')}, $patience);
	my $begin = time();
	$fleet->send('all', 'COMMIT');
	my @ended = $fleet->collect('all', $patience);
	my ($half, $last) = _times($begin, @ended);
	poll_until { _leader($fleet)->{ephemerals_count} <= $nodes }
	'the locks of the transactions to go', $patience;
	return {
		half => $half,
		last => $last,
		gone => time() - $begin,
		failed => _failures('state', @begun, @ended) };
}

# A list of all locks, when there are many.
sub _names ($fleet, $names)
{
	my $zk = $fleet->zookeeper;
	my $each = int($names / $fleet->{each} + 0.5);
	my $begin = time();
	my @taken = $fleet->ask_all('all',
		"SELECT count(*) FROM (SELECT unnest(zk_lock_set(array_agg('name-#-' || i)))"
		  . " FROM generate_series(1, $each) AS i) AS t",
		$patience, 'east');
	my $took = time() - $begin;
	my $heap = $fleet->memory->{heap};
	my $pid = ($fleet->backends('west'))[0];
	my ($bytes, $requests) =
	  ($zk->counter('response_bytes'), $zk->packets_received);
	my $sql = q{SELECT count(*) || ' ' || sum(holder_count) FROM zk_all_locks()};
	my $asked = time();
	my $counted = $fleet->cluster_of('west')->safe_psql('postgres',
		qq{$sql; SELECT pg_backend_pid(); SELECT $peak;});
	my $answered = time();
	my ($found, $peak) = (split /\n/, $counted)[0, 2];
	my %seen = (
		names => $each * @taken,
		taken => $took,
		heap => $heap,
		found => (split ' ', $found)[0],
		holders => (split ' ', $found)[1],
		list => $answered - $asked,
		peak => $peak,
		bytes => $zk->counter('response_bytes') - $bytes,
		requests => $zk->packets_received - $requests,
		failed => _failures('state', @taken));
	$begin = time();
	my @released =
	  $fleet->ask_all('all', 'SELECT zk_unlock_all()', $patience, 'east');
	my $left = $fleet->{holders};
	poll_until { _leader($fleet)->{ephemerals_count} <= $left }
	'the names to be let go', $patience;
	$seen{released} = time() - $begin;
	return \%seen;
}

# One of the clusters ends without a word.
sub _crash ($fleet)
{
	my $zk = $fleet->zookeeper;
	my $nodes = grep { m{/own-west-} } keys %{ $fleet->owners };
	my $begin = time();
	my $killed = $fleet->crash('west');
	my $dead = time();
	poll_until { !grep { m{/own-west-} } keys %{ $fleet->owners } }
	'the nodes of the crashed cluster to go', $patience;
	my $gone = time() - $begin;
	# Those that have closed are gone by then; others end by their timeout.
	sleep(3);
	my $left = _leader($fleet)->{global_sessions} - $fleet->{each};
	poll_until { _leader($fleet)->{global_sessions} <= $fleet->{each} }
	'its sessions to end', $patience;
	my %seen = (
		killed => $killed,
		killing => $dead - $begin,
		nodes => $nodes,
		gone => $gone,
		sessions_left => $left,
		sessions_gone => time() - $begin);
	$fleet->restart('west');
	return \%seen;
}

1;
