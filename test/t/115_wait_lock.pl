
# CALL zk_commit_and_lock() waits without a snapshot: VACUUM removes dead rows meanwhile, and at
# every isolation level the statements after it see what the former holder has committed. Where a
# transaction cannot be ended the call is refused. Tested with real servers; pg_stat_activity and
# pg_locks show what a waiter holds.

use Proxy;
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk, autovacuum => 'off');
my $path = lock_path('calm');
my $holder = background($node);

sub sql { return $node->safe_psql('postgres', $_[0]); }

# What pg_stat_activity shows of a waiter that could hold back others; all in this
# order: backend_xmin, backend_xid, locks but that of its virtual transaction.
sub burden ($pid)
{
	return sql("SELECT coalesce(backend_xmin::text, 'none'), coalesce(backend_xid::text, 'none'),
		(SELECT count(*) FROM pg_locks l WHERE l.pid = a.pid AND locktype <> 'virtualxid')
		FROM pg_stat_activity a WHERE pid = $pid");
}

# Does VACUUM remove rows that are deleted now?
sub vacuum_removes
{
	sql('DROP TABLE IF EXISTS dead; CREATE TABLE dead AS SELECT generate_series(1, 1000) AS i');
	sql('DELETE FROM dead');
	sql('VACUUM dead');
	return sql('SELECT pg_relation_size(\'dead\') = 0') eq 't';
}

# The waiter is behind the holder.
sub starts_to_wait ($session, $sql)
{
	start_in_queue($session, $sql, $zk, $path, 2);
	wait_for_wait($node, $session->pid);
	return;
}

# The holder lets go, the waiter gets the lock; its output.
sub is_granted ($session, $what)
{
	$holder->query_safe("SELECT zk_unlock('calm')");
	my $result = assert_ends($session, '00000', "$what: granted");
	is( $session->query_safe("SELECT name, session_acquisitions, xact_acquisitions, token = zk_fencing_token('calm')
			FROM zk_session_locks WHERE name = 'calm'"),
		'calm|1|0|t', "$what: held in session scope, with a token");
	return $result;
}

sub lets_go ($session)
{
	$session->query_safe('SELECT zk_unlock_all()');
	assert_no_nodes($zk, $path, 'nothing left');
	return;
}

sql(<<'SQL');
CREATE TABLE work (i int);
INSERT INTO work VALUES (0);
CREATE PROCEDURE outer_call() LANGUAGE plpgsql AS $$ BEGIN CALL zk_commit_and_lock('calm'); END $$;
SQL

subtest 'a SELECT that waits for a lock holds back VACUUM' => sub {
	my $waiter = background($node);
	$holder->query_safe("SELECT zk_lock('calm')");
	starts_to_wait($waiter, "SELECT zk_lock('calm')");
	ok(!vacuum_removes(), 'VACUUM removes no rows during the wait');
	is_granted($waiter, 'SELECT');
	lets_go($waiter);
};

# In a backend that has looked into no catalog yet, and in one that has.
my %calls = (
	'CALL' => "CALL zk_commit_and_lock('calm')",
	'CALL with all arguments' => "CALL zk_commit_and_lock('calm', '1 hour', 1)",
	'CALL in a procedure' => 'CALL outer_call()',
	'CALL in a DO block' => "DO \$\$ BEGIN PERFORM FROM work; CALL zk_commit_and_lock('calm'); END \$\$");
foreach my $what (sort keys %calls)
{
	subtest "a waiter by $what does not hold back VACUUM" => sub {
		my $waiter = background($node);
		foreach my $round (1, 2)
		{
			$holder->query_safe("SELECT zk_lock('calm')");
			starts_to_wait($waiter, $calls{$what});
			poll_until { burden($waiter->pid) eq 'none|none|0' } 'it to hold nothing while it waits', 30;
			ok(vacuum_removes(), 'VACUUM removes the rows during the wait');
			is_granted($waiter, $what);
			lets_go($waiter);
		}
		$waiter->query_safe($calls{$what});
		is($waiter->query_safe("SELECT zk_unlock('calm')"), 't', 'a free lock is granted, too');
		lets_go($waiter);
	};
}

subtest 'a waiter by CALL holds no snapshot after its wait was logged either' => sub {
	my $waiter = background($node, first => "SET deadlock_timeout = '50ms'; SET log_lock_waits = on");
	$holder->query_safe("SELECT zk_lock('calm')");
	my $offset = -s $node->logfile;
	starts_to_wait($waiter, "CALL zk_commit_and_lock('calm')");
	$node->wait_for_log(qr/still waiting for ExclusiveLock on ZooKeeper lock "calm"/, $offset);
	poll_until { burden($waiter->pid) eq 'none|none|0' } 'it to hold nothing', 30;
	is_granted($waiter, 'CALL');
	lets_go($waiter);
};

# What was read from catalogs before it has left a snapshot.
subtest 'a COMMIT that waits for the proof of its locks holds no snapshot' => sub {
	my $proxy = Proxy->new($zk->connect_string);
	my $session = background($node, route => $proxy->address, 'zklock.session_timeout' => '60s',
		'zklock.commit_guard' => 'quorum', is_connected => 1);
	$proxy->trap(14, 1, 'replies');    # multi
	# One message for all, for PostgreSQL drops such a snapshot when it waits for the next one.
	$session->start_query("BEGIN\\; SELECT zk_xact_lock('calm'), to_regclass('pg_foreign_server') IS NOT NULL\\; COMMIT");
	poll_until { $proxy->is_sprung } 'it to ask', 30;
	assert_becomes { burden($session->pid) } 'none|none|0', 'neither a snapshot nor a lock';
	ok(!$session->is_done, 'it still waits');
	$proxy->heal;
	assert_ends($session, '00000', 'the transaction is committed');
	assert_no_nodes($zk, $path, 'nothing left');
};

subtest 'CALL zk_commit_and_lock() works in the simple, extended and prepared protocol' => sub {
	my $script = $node->basedir . '/wait.sql';
	append_to_file($script,
		"CALL zk_commit_and_lock('calm');\nSELECT zk_unlock('calm');\n");
	foreach my $mode (qw(simple extended prepared))
	{
		$node->command_ok(
			[ 'pgbench', '-n', '-M', $mode, '-c', 2, '-t', 5, '-f', $script, 'postgres' ], $mode);
	}
	assert_no_nodes($zk, $path, 'nothing left');
};

# The snapshot trap cannot close.
foreach my $level ('read committed', 'repeatable read', 'serializable')
{
	subtest "a read after CALL zk_commit_and_lock() sees the former holder's commit, $level" => sub {
		my $waiter = background($node, 'default_transaction_isolation' => "$level");
		foreach my $sql (
			"CALL zk_commit_and_lock('calm'); SELECT max(i) FROM work",
			"DO \$\$ BEGIN PERFORM FROM work; CALL zk_commit_and_lock('calm'); RAISE '%', (SELECT max(i) FROM work); END \$\$")
		{
			$holder->query_safe("SELECT zk_lock('calm')");
			starts_to_wait($waiter, $sql);
			my $newest = sql('INSERT INTO work SELECT max(i) + 1 FROM work RETURNING i');
			$holder->query_safe("SELECT zk_unlock('calm')");
			my $read = $waiter->wait_result . $waiter->error;
			like($read, qr/\b$newest\b/, 'the row that was committed during the wait is read');
			unlike($read, qr/WARNING/, 'no warning');
			lets_go($waiter);
		}
	};
}

# What else ends a wait is in specs/timeouts.
subtest 'a canceled CALL zk_commit_and_lock() leaves its queue and keeps other locks' => sub {
	$holder->query_safe("SELECT zk_lock('calm')");
	my $session = background($node, holds => 'mine');
	starts_to_wait($session, "CALL zk_commit_and_lock('calm')");
	$session->cancel;
	assert_ends($session, '57014', 'SQLSTATE');
	like($session->error, qr/due to user request/, 'message');
	is($session->query_safe('SELECT name FROM zk_session_locks'), 'mine', 'the session holds the lock of before');
	assert_nodes($zk, $path, 1, 'the session is in no queue any more');
	lets_go($holder);
};

subtest 'CALL zk_commit_and_lock() commits only if all locks of the session are still held' => sub {
	my $session = background($node, 'zklock.commit_guard' => 'quorum', holds => 'mine');
	sql("SELECT zk_evict('mine', token) FROM zk_lock_queue('mine')");
	assert_query($session, "DO \$\$ BEGIN INSERT INTO work VALUES (2000); CALL zk_commit_and_lock('calm'); END \$\$",
		'40001', 'the transaction is not committed with a lost lock');
	is(sql('SELECT count(*) FROM work WHERE i = 2000'), 0, 'nothing is written');
	assert_no_nodes($zk, $path, 'the session has not joined the queue');
};

subtest 'the timeout of CALL zk_commit_and_lock() includes the commit' => sub {
	sql(<<'SQL');
CREATE TABLE slow (i int);
CREATE FUNCTION nap() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.2); RETURN NULL; END';
CREATE CONSTRAINT TRIGGER nap AFTER INSERT ON slow DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION nap();
SQL
	my $session = background($node, is_connected => 1);
	assert_query($session, "DO \$\$ BEGIN INSERT INTO slow VALUES (1); CALL zk_commit_and_lock('calm', '100ms'); END \$\$",
		'55P03', 'the timeout is over after the commit');
	is(sql('SELECT count(*) FROM slow'), 1, 'the transaction is committed');
	assert_no_nodes($zk, $path, 'the session has not joined the queue');
};

ok(!$node->log_contains(qr/snapshot .* still active|WARNING:  .*leak/), 'no complaint in the log');
done_testing();
