
# Locks follow transactions as advisory locks do, and a lock passes on only when the work of its
# holder is flushed and visible. One session alone is tested in sql/scopes and specs/savepoint;
# here a contender of another cluster tells when a lock is really free, with real servers.

use ZkLockTest;

my $zk = ZooKeeper->new->start;
# Its commits would flush what a test leaves unflushed.
my $berlin = cluster('berlin', $zk, autovacuum => 'off');
my $paris = cluster('paris', $zk);
my $rival = background($paris);

# The locks below 'tx/' that have a node, as "a b".
sub held
{
	my %held = map { m{/tx/(\w+)/} ? ($1 => 1) : () }
	  map { $_->[0] } $zk->ephemerals(lock_path('tx') . '/');
	return join ' ', sort keys %held;
}

# A release is not awaited.
sub is_held ($expected, $what)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return assert_becomes { held() } $expected, $what;
}

subtest 'a wait that times out in a savepoint leaves the outer lock held' => sub {
	my $session = background($berlin);
	$rival->query_safe("SELECT zk_lock('tx/busy')");
	$session->query_safe("BEGIN; SELECT zk_xact_lock('tx/a'); SAVEPOINT one");
	assert_query($session, "SELECT zk_xact_lock('tx/busy', '100ms')", '55P03', 'timed out');
	is_held('a busy', 'the outer lock is kept');
	assert_nodes($zk, lock_path('tx/busy'), 1, 'the waiter has left the queue');
	$session->query_safe('ROLLBACK TO one');
	$rival->query_safe("SELECT zk_unlock('tx/busy')");
	$session->query_safe("SELECT zk_xact_lock('tx/busy')");
	is_held('a busy', 'the transaction can go on');
	$session->query_safe('COMMIT');
	is_held('', 'all locks are released at the end of the transaction');
};

# The loop that works off a queue: each round holds the lock for its own
# transaction only, so that others get their turn.
subtest 'a procedure that commits in a loop releases its lock between the rounds' => sub {
	my ($session, $gate) = map { background($berlin) } 1 .. 2;
	$session->query_safe(q{CREATE TABLE rounds (round int, token bigint);
		CREATE PROCEDURE work() LANGUAGE plpgsql AS $$
		BEGIN
			FOR i IN 1..2 LOOP
				INSERT INTO rounds VALUES (i, zk_xact_lock('tx/work'));
				PERFORM pg_advisory_xact_lock(i);
				COMMIT;
			END LOOP;
		END $$});
	$gate->query_safe('SELECT pg_advisory_lock(1), pg_advisory_lock(2)');
	$session->start_query('CALL work()');
	poll_until { held() eq 'work' } 'the first round', 30;
	start_in_queue($rival, "SELECT zk_lock('tx/work')", $zk, lock_path('tx/work'), 2);
	$gate->query_safe('SELECT pg_advisory_unlock(1)');
	my $token = $rival->wait_result;
	wait_for_queue($zk, lock_path('tx/work'), 2);
	is($gate->query_safe('SELECT count(*) FROM rounds'), 1, 'between the rounds the lock is free');
	ok(!$session->is_done, 'the second round waits for its turn');
	$rival->query_safe("SELECT zk_unlock('tx/work')");
	$gate->query_safe('SELECT pg_advisory_unlock(2)');
	assert_ends($session, '00000', 'the procedure ends without an error');
	is( $session->query_safe("SELECT string_agg((token < $token)::text, ' '
			ORDER BY round) FROM rounds"),
		'true false', 'a new token each round');
	is_held('', 'nothing left');

};

# The WAL writer is stopped, so that an asynchronous commit stays unflushed. A
# lock that passes on before the flush guards what a crash will undo.
subtest 'work under a lock is flushed before the lock passes on, with synchronous_commit = off' => sub {
	my $session = background($berlin);
	my $observer = background($berlin, first => 'CREATE TABLE unsafe (i int)');
	my $wal_writer = $observer->query_safe(
		"SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'");
	my $insert_lsn = 'SELECT pg_current_wal_insert_lsn()';
	$session->query_safe('SET synchronous_commit = off');

	kill 'STOP', $wal_writer;
	$session->query_safe('BEGIN; INSERT INTO unsafe VALUES (1)');
	my $before = $session->query_safe($insert_lsn);
	$session->query_safe('COMMIT');
	my $flushed = "SELECT pg_current_wal_flush_lsn() > '%s'";
	is($observer->query_safe(sprintf $flushed, $before), 'f', 'a commit without a lock is not flushed');

	foreach my $case (map { my $function = $_; map { [ $function, $_ ] } qw(off fresh quorum) } qw(zk_xact_lock zk_lock))
	{
		my ($function, $guard) = @$case;
		$session->query_safe("SET zklock.commit_guard = '$guard'; BEGIN; SELECT $function('tx/sync');
			INSERT INTO unsafe VALUES (2)");
		start_in_queue($rival, "SELECT zk_lock('tx/sync')", $zk, lock_path('tx/sync'), 2);
		$before = $session->query_safe($insert_lsn);
		$session->start_query('COMMIT');
		if ($function eq 'zk_lock')
		{
			$session->wait_result;
			$session->start_query("SELECT zk_unlock('tx/sync')");
		}
		$rival->wait_result;
		is($observer->query_safe(sprintf $flushed, $before), 't', "$function, $guard: the commit is flushed when the lock passes on");
		$session->wait_result;
		$rival->query_safe("SELECT zk_unlock('tx/sync')");
	}
	# Under a hold or a lease nothing makes commits synchronous, so its release has to.
	foreach my $release (qw(zk_release_hold zk_evict zk_release_lease))
	{
		my $token = $observer->query_safe($release eq 'zk_release_lease'
			? "SELECT zk_try_lease('tx/sync', 'test', '60s')" : "SELECT zk_hold('tx/sync', 'test')");
		$before = $session->query_safe($insert_lsn);
		$session->query_safe('INSERT INTO unsafe VALUES (3)');
		is($observer->query_safe(sprintf $flushed, $before), 'f', 'work under it is not flushed');
		is($observer->query_safe("SELECT $release('tx/sync', $token)"), 't', "$release by another session");
		is($observer->query_safe(sprintf $flushed, $before), 't', 'the release flushes that work');
	}
	kill 'CONT', $wal_writer;

	# Where a page or a file begins there is nothing to flush of it yet.
	my %border = (
		file => 'SELECT pg_switch_wal()',
		page => 'DO $$ BEGIN FOR i IN 1 .. 5000 LOOP
			EXIT WHEN (pg_current_wal_insert_lsn() - \'0/0\') % 8192 = 24;
			PERFORM pg_logical_emit_message(false, \'x\', \'x\'); END LOOP; END $$');
	foreach my $what (sort keys %border)
	{
		my $token = $observer->query_safe("SELECT zk_hold('tx/sync', 'test')");
		# Others write, too, as the background writer does to note what runs.
		assert_soon { $observer->query_safe($border{$what});
			$observer->query_safe("SELECT (pg_current_wal_insert_lsn() - '0/0') % 8192") =~ /^(?:24|40)$/ }
		"WAL ends where a $what begins";
		is($observer->query_safe("SELECT zk_release_hold('tx/sync', $token)"), 't', 'released there');
	}
	is_held('', 'nothing left');
};

done_testing();
