
# Locks of call scope outlive the commits of a procedure, and end with the statement that the
# client has sent, however it ends. What one session alone shows is in sql/calls; here a second
# session asks whether the lock is free, with real servers.

use ZkLockTest;

my $zk = ZooKeeper->new->start;
# With quorum an eviction is a loss at once.
my $node = cluster('berlin', $zk,
	init => [ allows_streaming => 'logical' ],
	'zklock.commit_guard' => 'quorum');
my $path = lock_path('call');
my $other = background($node);
my $gate = background($node);

sub sql { return $node->safe_psql('postgres', $_[0]); }

# Takes the lock, commits and rolls back, stands at the gate, and does what it is told.
sql(<<'SQL');
CREATE TABLE done (what text);
CREATE TABLE parent (i int PRIMARY KEY);
CREATE TABLE child (i int REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
CREATE PROCEDURE inner_steps() LANGUAGE plpgsql AS $$
BEGIN
	PERFORM zk_call_lock('call');
	COMMIT;
END $$;
CREATE PROCEDURE steps(what text) LANGUAGE plpgsql AS $$
BEGIN
	CALL inner_steps();
	PERFORM zk_call_lock('call');
	ROLLBACK;
	INSERT INTO done SELECT 'held' FROM zk_session_locks
	WHERE name = 'call' AND (session_acquisitions, call_acquisitions, xact_acquisitions) = (0, 2, 0);
	COMMIT;
	PERFORM pg_advisory_lock_shared(1);
	PERFORM pg_advisory_unlock_shared(1);
	COMMIT;
	EXECUTE what;
	INSERT INTO done VALUES ('all');
	COMMIT;
END $$;
SQL

sub is_free ($what)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	# A release is sent and not waited for.
	return is($other->query_safe("SELECT zk_try_lock('call', '10 s') AND zk_unlock('call')"), 't', "$what: free");
}

sub is_busy ($what)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is($other->query_safe("SELECT CASE WHEN zk_try_lock('call') THEN zk_unlock('call') END"), '', "$what: held");
}

sub has_nothing ($session, $what)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is($session->query_safe('SELECT count(*) FROM zk_session_locks'), 0, "$what: nothing is left");
}

# The session calls the procedure, which comes as far as the gate.
sub send_steps ($session, $what)
{
	$gate->query_safe('SELECT pg_advisory_lock(1)');
	sql('TRUNCATE done');
	$session->start_query("CALL steps(\$what\$$what\$what\$)");
	return;
}

# As above, and stands there.
sub start_steps ($session, $what)
{
	send_steps($session, $what);
	return wait_for_lock($node, $session->pid);
}

sub open_gate { return $gate->query_safe('SELECT pg_advisory_unlock(1)'); }

sub done { return sql("SELECT coalesce(string_agg(what, ' ' ORDER BY ctid), '') FROM done"); }

subtest 'a lock of call scope is released when its CALL succeeds, fails or is refused' => sub {
	my $evict = "DO \$\$ BEGIN PERFORM zk_evict('call', token) FROM zk_session_locks; END \$\$";
	foreach my $end (
		[ 'success', 'SELECT', '00000', 'held all' ],
		[ 'an error', 'SELECT 1 / 0', '22012', 'held' ],
		[ 'an error of the commit', 'INSERT INTO child VALUES (1)', '23503', 'held' ],
		[ 'a commit that is refused', $evict, '40001', 'held' ])
	{
		my ($what, $does, $sqlstate, $done) = @$end;
		my $session = background($node);
		start_steps($session, $does);
		is_busy("over commit and rollback, $what");
		open_gate();
		assert_ends($session, $sqlstate, "$what: how it ends");
		is_free($what);
		is(done(), $done, "$what: what was committed stays");
		has_nothing($session, $what);
	}
};

subtest 'a lock of call scope is released when its CALL is canceled, times out, or loses its session' => sub {
	my $session = background($node);
	my $ends = sub ($what) {
		assert_ends($session, '57014', $what);
		open_gate();
		is_free($what);
		has_nothing($session, $what);
	};
	start_steps($session, 'SELECT');
	$session->cancel;
	$ends->('canceled');

	# It may be over before anybody has seen it stand there.
	$session->query_safe("SET statement_timeout = '5s'");
	send_steps($session, 'SELECT');
	$ends->('timed out');
	is(done(), 'held', 'timed out at the gate');
	$session->query_safe('RESET statement_timeout');

	# The session is lost while the procedure works.
	start_steps($session, 'SELECT pg_sleep(600)');
	open_gate();
	# Before that it still has the lock of the gate, which is not its transaction's.
	wait_for_sleep($node, $session->pid);
	kill_session_program($session);
	assert_ends($session, '40001', 'lost');
	has_nothing($session, 'lost, and nothing to let go of');
	is_free('lost');
	$session->query_safe("SELECT zk_call_lock('call')");

	# It is lost as the procedure commits: then PostgreSQL aborts before it reports the error.
	sql(<<'SQL');
CREATE TABLE slow (i int);
CREATE FUNCTION nap() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(600); RETURN NULL; END';
CREATE CONSTRAINT TRIGGER nap AFTER INSERT ON slow DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION nap();
CREATE PROCEDURE commit_slowly() LANGUAGE plpgsql AS $$
BEGIN
	PERFORM zk_call_lock('call');
	INSERT INTO slow VALUES (1);
	COMMIT;
END $$;
SQL
	$session->start_query('CALL commit_slowly()');
	wait_for_sleep($node, $session->pid);
	kill_session_program($session);
	assert_ends($session, '40001', 'lost in a commit');
	has_nothing($session, 'lost in a commit');
	is_free('lost in a commit');
	$session->query_safe("SELECT zk_call_lock('call')");

	start_steps($session, 'SELECT');
	$session->terminate;
	assert_ends($session, '08006', 'terminated');
	open_gate();
	assert_no_nodes($zk, $path, 'terminated');
};

subtest 'a lock of call scope is released in a transaction that has failed' => sub {
	my $session = background($node);
	$session->query("BEGIN; SELECT zk_call_lock('call'); SELECT 1 / 0");
	is_free('by another statement');
	$session->query_safe('ROLLBACK');
	$session->query("BEGIN; SELECT zk_call_lock('call'), 1 / 0");
	is_free('by the call itself');
};

# What clients do that set a savepoint ahead of each statement.
subtest 'an error after a savepoint leaves a lock of call scope held until the transaction ends' => sub {
	my $session = background($node);
	foreach my $error ('SELECT 1 / 0', "SELECT zk_call_lock('other'), 1 / (zk_fencing_token('other') * 0)")
	{
		$session->query_safe("BEGIN; SELECT zk_call_lock('call'); INSERT INTO done VALUES ('in')");
		is_busy('in the transaction');
		$session->query_safe('SAVEPOINT s');
		assert_query($session, $error, '22012', 'a statement fails');
		is_busy('in the failed subtransaction');
		$session->query_safe('ROLLBACK TO s');
		is_busy('in the transaction that goes on');
		$session->query_safe('COMMIT');
		is_free('after it');
	}
	# and the guard still knows of it
	$session->query_safe("BEGIN; SELECT zk_call_lock('call');
		INSERT INTO done VALUES ('lost'); SAVEPOINT s");
	$session->query('SELECT 1 / 0');
	$session->query_safe('ROLLBACK TO s');
	$other->query_safe("SELECT zk_evict('call', token) FROM zk_lock_queue('call')");
	assert_query($session, 'COMMIT', '40001', 'evicted meanwhile: the commit is refused');
	has_nothing($session, 'refused');
};

# Two clients count up what nothing but the lock protects, over a commit.
subtest 'locks of call scope work in the extended protocol and in a pipeline' => sub {
	sql(<<'SQL');
CREATE TABLE counter (n int);
INSERT INTO counter VALUES (0);
CREATE PROCEDURE count_up() LANGUAGE plpgsql AS $$
DECLARE
	seen int;
BEGIN
	PERFORM zk_call_lock('call');
	COMMIT;
	SELECT n INTO seen FROM counter;
	COMMIT;
	UPDATE counter SET n = seen + 1;
END $$;
-- From PostgreSQL 18 on a pipeline is a transaction block, in which nothing commits.
CREATE PROCEDURE count_up_at_once() LANGUAGE plpgsql AS $$
DECLARE
	seen int;
BEGIN
	PERFORM zk_call_lock('call');
	SELECT n INTO seen FROM counter;
	UPDATE counter SET n = seen + 1;
END $$;
SQL
	my $script = $node->basedir . '/count.sql';
	my $pipeline = $node->basedir . '/pipeline.sql';
	append_to_file($script, "CALL count_up();\n");
	append_to_file($pipeline, "\\startpipeline\n" . "CALL count_up_at_once();\n" x 2 . "\\endpipeline\n");
	my $expected = 0;
	foreach my $mode (qw(simple extended prepared))
	{
		$node->command_ok([ 'pgbench', '-n', '-M', $mode, '-c', 2, '-t', 20, '-f', $script, 'postgres' ], $mode);
		is(sql('SELECT n FROM counter'), $expected += 40, "$mode: one at a time");
	}
	$node->command_ok([ 'pgbench', '-n', '-M', 'extended', '-c', 2, '-t', 10, '-f', $pipeline, 'postgres' ],
		'a pipeline');
	is(sql('SELECT n FROM counter'), $expected + 40, 'pipeline: one at a time');
	is_free('the end of the connections');
};

# What an apply worker does has no client.
subtest 'locks of call scope are refused in a background worker' => sub {
	sql('CREATE TABLE copied (i int); CREATE PUBLICATION everything FOR TABLE copied');
	sql("SELECT pg_create_logical_replication_slot('copy', 'pgoutput')");
	sql('CREATE DATABASE copy');
	my $connection = $node->connstr . ' dbname=postgres';
	$node->safe_psql('copy', <<"SQL");
CREATE EXTENSION zklock;
CREATE TABLE copied (i int);
CREATE FUNCTION takes() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM public.zk_call_lock(''call''); RETURN NEW; END';
CREATE TRIGGER takes BEFORE INSERT ON copied FOR EACH ROW EXECUTE FUNCTION takes();
ALTER TABLE copied ENABLE ALWAYS TRIGGER takes;
CREATE SUBSCRIPTION copy CONNECTION '$connection' PUBLICATION everything
	WITH (create_slot = false, slot_name = 'copy', copy_data = false);
SQL
	my $offset = -s $node->logfile;
	sql('INSERT INTO copied VALUES (1)');
	$node->wait_for_log(qr/locks of call scope cannot be used in a background worker/, $offset);
	pass('the apply worker logs the refusal');
	$node->safe_psql('copy', 'ALTER SUBSCRIPTION copy DISABLE; ALTER SUBSCRIPTION copy SET (slot_name = NONE);
		DROP SUBSCRIPTION copy');
};

$other->quit;
assert_no_nodes($zk, $path, 'nothing is left in ZooKeeper');
done_testing();
