
# The lease worker deletes overdue leases also if there are more leases than it can time at once,
# and those of other clusters, of which nobody tells it. Tested in a build that can time 50 leases
# at once, and that looks below its roots every two seconds instead of every five minutes.

use Builds;
use ZkLockTest;

plan skip_all => 'this PostgreSQL bears one installation only' if !Builds->can_be;
my $build = Builds->of_tree(edit => {
	'src/ensemble/expiry.c' => sub { s/(#define SEEN_MAX) 100000\b/$1 50/; },
	'src/lease/lease_sweep.c' => sub { s/(#define LOOK_MS) 300000\b/$1 2000/; } });
my $zk = ZooKeeper->new->start;
my $other = lock_path('') =~ s{/$}{-other}r;
my $guard = cluster('guard', $zk, 'zklock.lease_worker' => 'on', 'zklock.lease_roots' => $other, $build->settings);
my $session = background(cluster('owner', $zk));

sub worker () { return ask($guard, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'zklock lease worker'"); }

subtest 'a worker that sleeps finds the lease of another cluster' => sub {
	assert_soon { session_programs(worker()) == 0 } 'the worker has no session', 60;
	$session->query_safe("SELECT zk_try_lease('alone', 'app', '2s')");
	assert_nodes($zk, lock_path('alone'), 0, 'the overdue lease is deleted');
};

# A version that is not remembered is not timed. Those that are renewed must not keep the others
# from being remembered.
subtest 'more leases than the worker can time at once are deleted all the same' => sub {
	my $take = "SELECT string_agg(zk_try_lease('%s/' || n, 'app', '%s')::text, ',' ORDER BY n) FROM generate_series(1, %d) AS n";
	my @living = split /,/, $session->query_safe(sprintf $take, 'living', '20s', 60);
	$session->query_safe(sprintf $take, 'dead', '2s', 80);
	$session->query_safe("SET zklock.root = '$other'; SELECT zk_try_lease('few', 'app', '2s'); RESET zklock.root");
	my $renew = 'SELECT bool_and(zk_renew_lease(lock, token, $$20s$$)) FROM (VALUES '
	  . join(', ', map { "('living/$_', $living[ $_ - 1 ])" } 1 .. 60) . ') AS v(lock, token)';
	my $are_renewed = 1;
	assert_soon
	{
		$are_renewed &&= $session->query_safe($renew) eq 't';
		!queue_nodes($zk, "$other/few") && !grep { queue_nodes($zk, lock_path("dead/$_")) } 1 .. 80;
	}
	'all overdue leases are deleted', 120;
	ok($are_renewed, 'all leases that are renewed stay');
};

done_testing();
