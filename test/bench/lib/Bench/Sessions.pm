
=pod

=head1 NAME

Bench::Sessions - new sessions, tries in vain, and holders that go

=cut

package Bench::Sessions;

use v5.36;

use Bench::Stats qw(wait_times);
use Time::HiRes qw(time);
use ZooKeeper qw(poll_until);

=pod

=head2 fresh($zookeeper, $contestant, $count)

From nothing to the first lock held, on a lock that has been there before. Ends
of sessions are not part of it.

=cut

sub fresh ($zk, $contestant, $count)
{
	return { wait_times($contestant->fresh($count, 'fresh')) };
}

=pod

=head2 try($zookeeper, $contestant, $count)

What a try costs that finds the lock held: time, requests, and writes, by the
transaction ids that the server gives out.

=cut

sub _zxid ($zk)
{
	my ($zxid) =
	  $zk->four_letter_word('srvr', $zk->leader) =~ /^Zxid: 0x([0-9a-f]+)/m;
	return hex $zxid;
}

sub try ($zk, $contestant, $count)
{
	$contestant->start_try($count, 'tried');
	my $zxid = _zxid($zk);
	my $packets = $zk->packets_received;
	$contestant->try_in_vain;
	$packets = $zk->packets_received - $packets;
	$zxid = _zxid($zk) - $zxid;
	return {
		wait_times($contestant->finish_try),
		packets_received => $packets / $count,
		writes => $zxid / $count };
}

=pod

=head2 release($zookeeper, $holder, $waiter, $how)

How long it takes until the waiter has the lock after the holder has been killed
("kill") or has left in order ("leave"). Both are stopped afterwards.

=cut

sub release ($zk, $holder, $waiter, $how)
{
	my $znode = $holder->znode('released');
	$holder->start_take('released');
	my (undef, $pid) = $holder->taken;
	$waiter->start_take('released');
	my $client = $zk->client;
	poll_until { $client->exists($znode)->{num_children} == 2 }
	'a holder and a waiter';

	my $begin = time() * 1_000_000;
	if ($how eq 'kill')
	{
		kill 'KILL', $pid;
	}
	else
	{
		$holder->leave;
	}
	my ($granted) = $waiter->taken;
	$holder->stop;
	$waiter->stop;
	return { p50 => $granted - $begin };
}

1;
