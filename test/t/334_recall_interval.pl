
# Whoever asks for a lock again and again does not keep its holder from ever being
# done.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time);
use ZkLockTest;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my $berlin = cluster('berlin', $zk);
my $paris = cluster('paris', $zk);
my $other = background($paris);

# Ask for the lock from the other cluster.
sub request
{
	my ($lock) = @_;
	return $other->query_safe("SELECT zk_request_release('$lock', 'why not')");
}

subtest 'a holder is not canceled at will' => sub {
	my $session = background($berlin);
	$session->query_safe("SET zklock.on_release_request = 'cancel'");
	$session->query_safe("SET zklock.release_cancel_interval = '5s'");
	$session->query_safe("SELECT zk_lock('often')");
	my $since;
	foreach my $round (1 .. 3)
	{
		$session->start_query('SELECT pg_sleep(60)');
		wait_for_sleep($berlin, $session->pid);
		my $asked = time;
		is(request('often'), 1, 'asked');
		$session->wait_result;
		is($session->sqlstate, '57014', "it is canceled, time $round");
		like($session->error, qr/due to a request to release lock "often"/, 'for that');
		if ($since)
		{
			cmp_ok(time - $since, '>', 4.5, 'not before its time');
			cmp_ok(time - $since, '<', 15, 'nor long after');
		}
		else
		{
			cmp_ok(time - $asked, '<', 4, 'at once');
		}
		$since = time;
	}
	is($session->query_safe("SELECT zk_release_requested('often')"), 't', 'it knows all the same');

	# One that comes too soon is not forgotten, nor does it meet a later lock.
	is(request('often'), 1, 'asked once more');
	$session->query_safe("SELECT zk_unlock('often'), zk_lock('often')");
	$session->query_safe('SELECT pg_sleep(6)');
	is($session->error, '', 'a request to a former holder cancels nothing');
	$session->quit;
};

$other->quit;
done_testing();
