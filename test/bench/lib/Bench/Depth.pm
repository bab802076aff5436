
=pod

=head1 NAME

Bench::Depth - how long a hand-over takes in front of a long queue

=head1 DESCRIPTION

So many contenders wait for a lock that is held. When all stand in the queue and
the server has become quiet, the holder lets go, and so do the first waiters as
they get the lock, until one of them keeps it. Measured is from one contender's
release until the next one knows that it holds the lock, and what the server
sent meanwhile, for each hand-over. Joining the queue is not part of it, and
neither is the very first hand-over, by a holder that did not have to wait for
the lock, but where there is no other one.

=cut

package Bench::Depth;

use v5.36;

use Bench::Stats qw(percentile read_cycles hand_overs);
use ZooKeeper qw(poll_until);

# How many hand-overs are measured: never so many that the queue is no longer as
# deep as we say.
my %measured = (1 => 1, 10 => 9, 100 => 50, 1000 => 100);

# The server is quiet when it sends less than that many bytes, in that time in
# seconds; sessions are kept alive all the time.
my $quiet_bytes = 10_000;
my $quiet_time = 0.1;

sub _wait_for_queue ($zk, $znode, $count)
{
	my $client = $zk->client;
	poll_until
	{
		my $stat = $client->exists($znode);
		$stat && $stat->{num_children} == $count;
	}
	"$count contenders at $znode", 120;
	$client->close;

	poll_until
	{
		my $before = $zk->counter('response_bytes');
		Time::HiRes::sleep($quiet_time);
		$zk->counter('response_bytes') - $before < $quiet_bytes;
	}
	'the server to be quiet';
	return;
}

=pod

=head2 measure($zookeeper, $contestant, $depth)

Returns p50 and p95 (of more than one) of the hand-over in microseconds,
response_bytes and packets_received for each hand-over.

=cut

sub measure ($zk, $contestant, $depth)
{
	my $count = $measured{$depth};
	my $first = $depth > 1 ? 1 : 0;
	my @stops = ($first || (), $first + $count);
	$contestant->start_queue($depth, join(',', @stops), 'deep');
	_wait_for_queue($zk, $contestant->znode('deep'), $depth + 1);
	$contestant->let_go if $first;

	my $bytes = $zk->counter('response_bytes');
	my $packets = $zk->packets_received;
	$contestant->let_go;
	$bytes = $zk->counter('response_bytes') - $bytes;
	$packets = $zk->packets_received - $packets;

	my $cycles = read_cycles($contestant->drain);
	my @times = (hand_overs(@$cycles))[ $first .. $first + $count - 1 ];
	return {
		p50 => percentile(50, @times),
		p95 => $count > 1 ? percentile(95, @times) : undef,
		response_bytes => $bytes / $count,
		packets_received => $packets / $count };
}

1;
