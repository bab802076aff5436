
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

=pod

=head2 measure($fleet, $backends, $say, storms => [kinds], names => 50)

names: so many for each backend of the two clusters, when all locks are listed.
Storms of the network have a fleet of their own, at the end, so that no other figure
is about sessions that go through a program of ours.

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
	my @of_network = grep { Bench::Storm::is_of_network($_) } @storms;
	$fleet->resize($backends);
	# Everybody's first lock at the same moment, and what that costs.
	my $before = $fleet->memory;
	$step->('open', { before => $before, %{ _take_locks($fleet, $backends) } });
	$step->('idle', _idle($fleet, $backends));
	$weather->($_)
	  foreach grep { !Bench::Storm::is_of_network($_) } @storms;
	$step->('queue', _queue($fleet));
	$step->('commit', _commit($fleet));
	$step->('names', _names($fleet, $option{names} * $backends)) if $option{names};
	$step->('crash', _crash($fleet));
	_close($fleet);
	return \%seen unless @of_network;

	$fleet->route('network');
	$fleet->resize($backends);
	my $through = _take_locks($fleet, $backends);
	$through->{connections} = $fleet->network('count')->{connections};
	$step->('through', $through);
	die "sessions do not go through the network\n"
	  if $through->{connections} < $backends - $through->{missing};
	$weather->($_) foreach @of_network;
	$step->('after', _queue($fleet));
	_close($fleet);
	$fleet->route('servers');
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
		"SELECT count(*) FROM (SELECT unnest(zk_lock(array_agg('name-#-' || i)))"
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
