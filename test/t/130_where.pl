
# Locks work in backends, background workers, on a hot standby and across a promotion. In
# parallel workers, autovacuum workers and walsenders they are refused, because a lock there
# would end with another process's work. Tested with real servers: each kind of process is made
# to call zklock.

use Proxy;
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $primary = cluster('primary', $zk,
	init => [ allows_streaming => 'logical' ],
	max_connections => 30,
	# Out of the way until its turn comes.
	autovacuum => 'off',
	autovacuum_naptime => '1s',
	autovacuum_analyze_threshold => 0,
	autovacuum_analyze_scale_factor => 0);
my $other = cluster('other', $zk);
my $rival = background($other);

# The ephemeral nodes of a lock.
sub nodes ($name) { return [ $zk->ephemerals(lock_path($name) . '/') ]; }

subtest 'locks are refused in parallel workers' => sub {
	my $session = background($primary);
	# A function that lies: C functions of zklock are PARALLEL RESTRICTED.
	$session->query_safe(q{CREATE TABLE many AS SELECT generate_series(1, 1000) i;
		ANALYZE many;
		CREATE FUNCTION lie(i int) RETURNS boolean
		LANGUAGE plpgsql PARALLEL SAFE AS $$
		BEGIN RETURN zk_try_lock('parallel'); END $$;
		CREATE FUNCTION fails(i int) RETURNS boolean LANGUAGE plpgsql PARALLEL SAFE AS 'BEGIN RAISE query_canceled; END'});
	my $force = pg_major($primary) >= 16 ? 'debug_parallel_query' : 'force_parallel_mode';
	$session->query_safe("SET $force = on");
	assert_query($session, 'SELECT count(*) FROM many WHERE lie(i)', '0A000', 'the call is refused');
	like($session->error, qr/ZooKeeper locks cannot be used in a parallel worker/, 'the error says where locks cannot be used');
	is_deeply(nodes('parallel'), [], 'no node');

	$session->query_safe("SELECT zk_lock('parallel')");
	assert_query($session, 'SELECT count(*) FROM many WHERE fails(i)', '57014', 'an error of a worker is passed on');
	my $before = nodes('parallel');
	like($session->query_safe("SET $force = off; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
			SET min_parallel_table_scan_size = 0;
			EXPLAIN (ANALYZE, COSTS off) SELECT count(*) FROM many"),
		qr/Workers Launched: [1-9]/, 'a session that holds a lock runs a parallel query');
	is_deeply(nodes('parallel'), $before, 'the parallel query leaves the lock as it is');
	is($session->query_safe(
			"SELECT count(*) > 0 AND zk_try_lock('parallel') FROM many"),
		't', 'the leader of a parallel query may take a lock');
	$session->query_safe('SELECT zk_unlock_all()');
	assert_no_nodes($zk, lock_path('parallel'), 'nothing left');
};

subtest 'locks are refused in an autovacuum worker' => sub {
	my $session = background($primary);
	my $offset = -s $primary->logfile;
	$session->query_safe(q{CREATE FUNCTION indexed(i int) RETURNS boolean
		LANGUAGE plpgsql IMMUTABLE AS $$
		BEGIN RETURN public.zk_try_xact_lock('autovacuum'); END $$;
		CREATE TABLE vacuumed (i int);
		CREATE INDEX ON vacuumed (indexed(i));
		INSERT INTO vacuumed SELECT generate_series(1, 100)});
	assert_no_nodes($zk, lock_path('autovacuum'), 'a session uses the function');
	reconfigure($primary, autovacuum => 'on');
	$primary->wait_for_log(qr/ERROR:  ZooKeeper locks cannot be used in a security-restricted operation/, $offset);
	pass('refused in an autovacuum worker');
	is_deeply(nodes('autovacuum'), [], 'no node');
	reconfigure($primary, autovacuum => 'off');
	$session->query_safe('DROP TABLE vacuumed');
};

# The functions of a table's owner run in the session of whoever maintains the table.
subtest 'nothing is taken, released or written in a security-restricted operation' => sub {
	my %call = (
		(map { my $f = $_; map { ("$f$_" => "$f$_('x', '0')") } '', '_shared' } qw(zk_lock zk_xact_lock zk_try_lock zk_try_xact_lock)),
		(map { ($_ => "$_(ARRAY['x'], '0')") } qw(zk_lock_set zk_xact_lock_set zk_try_lock_set zk_try_xact_lock_set)),
		(map { ($_ => "$_('x/y', '0')") } qw(zk_lock_path zk_xact_lock_path zk_try_lock_path zk_try_xact_lock_path)),
		(map { ($_ => "$_('x', '0')") } qw(zk_call_lock zk_try_call_lock)),
		zk_unlock => "zk_unlock('mine')", zk_unlock_shared => "zk_unlock_shared('mine')",
		zk_unlock_set => "zk_unlock_set(ARRAY['mine'])", zk_unlock_path => "zk_unlock_path('mine')",
		zk_unlock_all => 'zk_unlock_all()', zk_disconnect => 'zk_disconnect()', zk_stat_reset => 'zk_stat_reset()',
		zk_fence => "zk_fence('mine')", zk_evict => "zk_evict('mine', 1)",
		zk_hold => "zk_hold('x', 'why', '0')", zk_release_hold => "zk_release_hold('mine', 1)",
		zk_run_once => "zk_run_once('x', 'slot')", zk_forget_run => "zk_forget_run('x', 'slot')",
		zk_request_release => "zk_request_release('mine')", zk_check => 'zk_check(true)',
		zk_try_lease => "zk_try_lease('x', 'owner', '10s')", zk_try_lease_shared => "zk_try_lease_shared('x', 'owner', '10s')", zk_renew_lease => "zk_renew_lease('x', 1, '10s')",
		zk_release_lease => "zk_release_lease('x', 1)", zk_require_lease => "zk_require_lease('x', 1)");
	my $asking = join ' ', qw(zk_all_locks zk_backends zk_is_held zk_leader zk_lock_queue zk_locks zk_release_requested
	  zk_runs zk_session zk_session_locks zk_stat zk_wait_graph zk_waits zk_who zk_fencing_token);
	my $session = background($primary);
	is($session->query_safe("SELECT string_agg(DISTINCT p.proname::text COLLATE \"C\", ' ' ORDER BY p.proname::text COLLATE \"C\")
			FROM pg_proc AS p JOIN pg_depend AS d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
				JOIN pg_extension AS e ON d.refclassid = 'pg_extension'::regclass AND e.oid = d.refobjid AND e.extname = 'zklock'
			WHERE p.provolatile = 'v' AND p.prokind = 'f' AND p.proname !~ '^_' AND p.prorettype <> 'trigger'::regtype
				AND p.proname <> ALL (string_to_array('$asking', ' '))"),
		join(' ', sort keys %call), 'the table has each function that does more than ask');
	$session->query_safe(q{CREATE ROLE owner;
		CREATE TABLE calls AS SELECT ''::text AS call; GRANT SELECT ON calls TO owner;
		GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO owner;
		CREATE SCHEMA owned AUTHORIZATION owner;
		SET ROLE owner;
		CREATE FUNCTION owned.indexed(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE SET search_path = public AS $$
		DECLARE c text;
		BEGIN
			FOR c IN SELECT call FROM calls WHERE call <> '' LOOP
				BEGIN
					EXECUTE 'SELECT ' || c;
					RAISE WARNING '% is done', c;
				EXCEPTION WHEN OTHERS THEN
					IF SQLSTATE <> '42501' OR SQLERRM !~ 'security-restricted' THEN
						RAISE WARNING '%: % %', c, SQLSTATE, SQLERRM;
					END IF;
				END;
			END LOOP;
			RETURN i;
		END $$;
		CREATE TABLE owned.trap (i int);
		CREATE INDEX ON owned.trap (owned.indexed(i));
		INSERT INTO owned.trap SELECT generate_series(1, 2);
		RESET ROLE});
	$session->query_safe('INSERT INTO calls VALUES ' . join ', ', map { "(\$\$$_\$\$)" } values %call);
	$session->query_safe("SELECT zk_lock('mine')");
	assert_query($session, 'ANALYZE owned.trap', '00000', 'a superuser analyzes the table');
	is($session->error, '', 'each call is refused');
	is($session->query_safe("SELECT zk_is_held('mine'), count(*) FROM zk_session_locks"), 't|1', 'the lock of the superuser is still held');
	is_deeply(nodes('x'), [], 'nothing was made');
	assert_query($session, 'SELECT zk_unlock_all()', '00000', 'a statement of its own may release it');
	$session->query_safe('DROP OWNED BY owner; DROP ROLE owner; DROP TABLE calls');
};

subtest 'locks are refused in a walsender' => sub {
	my ($code, $out, $error) = $primary->psql('postgres',
		"SELECT zk_try_lock('walsender')",
		replication => 'database');
	isnt($code, 0, 'the call is refused');
	like($error, qr/ZooKeeper locks cannot be used in a walsender/, 'the error says where locks cannot be used');
	is_deeply(nodes('walsender'), [], 'no node');
};

# PostgreSQL 17 and later.
subtest 'a login trigger can take a lock' => sub {
	plan skip_all => 'there are no triggers of logins before PostgreSQL 17'
	  if pg_major($other) < 17;
	$other->safe_psql('postgres', 'CREATE DATABASE guarded');
	$other->safe_psql('guarded', q{CREATE EXTENSION zklock;
		CREATE FUNCTION lock_it() RETURNS event_trigger LANGUAGE plpgsql AS $$
		BEGIN PERFORM public.zk_lock('login', '500ms'); END $$;
		CREATE EVENT TRIGGER lock_it ON login EXECUTE FUNCTION lock_it()});

	my $session = background($other, database => 'guarded');
	assert_held($session, 'login', 'the login trigger takes the lock');
	my ($code, undef, $error) = $other->psql('guarded', 'SELECT 1');
	isnt($code, 0, 'another login times out meanwhile');
	like($error, qr/FATAL:  could not obtain lock "login" within 500 ms/, 'the error says where locks cannot be used');
	wait_for_queue($zk, lock_path('login'), 1);
	assert_leave_nothing($zk, lock_path('login'), $session);
	is($other->safe_psql('guarded', "SELECT zk_is_held('login')"), 't', 'the next login has the lock');
	assert_no_nodes($zk, lock_path('login'), 'nothing left');
	$other->safe_psql('postgres', 'DROP DATABASE guarded');
};

# An apply worker of logical replication is a background worker that runs
# triggers. Its locks order what comes from several publishers.
subtest 'an apply worker of logical replication can take a lock' => sub {
	$primary->safe_psql('postgres', 'CREATE TABLE applied (i int, worker text)');
	$primary->safe_psql('postgres', 'CREATE PUBLICATION changes FOR TABLE applied');
	$other->safe_psql('postgres', q{CREATE TABLE applied (i int, worker text);
		CREATE FUNCTION lock_it() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			PERFORM public.zk_xact_lock('applied');
			NEW.worker := (SELECT backend_type FROM pg_stat_activity
				WHERE pid = pg_backend_pid());
			PERFORM pg_sleep(600) WHERE NEW.i = 3;
			RETURN NEW;
		END $$;
		CREATE TRIGGER lock_it BEFORE INSERT ON applied
		FOR EACH ROW EXECUTE FUNCTION lock_it();
		ALTER TABLE applied ENABLE ALWAYS TRIGGER lock_it});
	$other->safe_psql('postgres', "CREATE SUBSCRIPTION changes CONNECTION '"
		  . $primary->connstr
		  . " dbname=postgres' PUBLICATION changes WITH (copy_data = off)");

	my $holder = background($primary, holds => 'applied');
	$primary->safe_psql('postgres', 'INSERT INTO applied VALUES (1), (2)');
	wait_for_queue($zk, lock_path('applied'), 2);
	is(ask($other, 'SELECT count(*) FROM applied'), 0, 'it waits');

	my $find = "SELECT pid FROM pg_stat_subscription WHERE subname = 'changes'";
	my $first = $other->safe_psql('postgres', $find);
	my $node = (queue_nodes($zk, lock_path('applied')))[1];
	$other->safe_psql('postgres', "SELECT pg_terminate_backend($first)");
	assert_soon { !grep { $_ eq $node } queue_nodes($zk, lock_path('applied')) }
	'terminated while it waits it leaves no node', 30;

	# The launcher starts another one.
	wait_for_queue($zk, lock_path('applied'), 2);
	isnt($other->safe_psql('postgres', $find), $first, 'its successor waits');
	$holder->query_safe("SELECT zk_unlock('applied')");
	$other->poll_query_until('postgres', 'SELECT count(*) = 2 FROM applied');
	like($other->safe_psql('postgres', 'SELECT DISTINCT worker FROM applied'),
		qr/^logical replication (apply )?worker$/, 'is granted and applies the rows');
	assert_no_nodes($zk, lock_path('applied'), 'nothing left');

	# It reports to the log alone.
	my $proxy = Proxy->new($zk->connect_string);
	my $from = -s $other->logfile;
	reconfigure($other, 'zklock.servers' => $proxy->address);
	$other->safe_psql('postgres', "ALTER DATABASE postgres SET zklock.session_timeout = '4s'");
	$other->safe_psql('postgres', 'ALTER DATABASE postgres SET log_error_verbosity = verbose');
	$other->safe_psql('postgres', "SELECT pg_terminate_backend(pid) FROM ($find) AS worker");
	$primary->safe_psql('postgres', 'INSERT INTO applied VALUES (3)');
	$other->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type LIKE 'logical replication%' AND wait_event = 'PgSleep'");
	$proxy->cut;
	assert_soon { $other->log_contains(qr/ERROR:  40001: lock "applied" was lost/, $from) } 'its statement is canceled when the lock is lost, with 40001 in the log', 60;
	$proxy->come_back;
	$other->safe_psql('postgres', 'DROP SUBSCRIPTION changes');
	$other->safe_psql('postgres', "ALTER DATABASE postgres RESET $_") foreach qw(zklock.session_timeout log_error_verbosity);
	reconfigure($other, 'zklock.servers' => undef);
	$primary->safe_psql('postgres', 'DROP PUBLICATION changes');
};

subtest 'a loss during CREATE INDEX CONCURRENTLY leaves an invalid index, which IF NOT EXISTS skips' => sub {
	my ($builder, $writer, $other) = map { background($primary) } 1 .. 3;
	$builder->query_safe("CREATE TABLE indexed (i int); SELECT zk_lock('index')");
	$writer->query_safe('BEGIN; INSERT INTO indexed VALUES (1)');
	my $create = 'CREATE INDEX CONCURRENTLY IF NOT EXISTS by_i ON indexed (i)';
	$builder->start_query($create);
	$primary->poll_query_until('postgres', 'SELECT count(*) > 0 FROM pg_locks WHERE NOT granted') or die 'it does not wait';
	$other->query_safe("SELECT zk_evict('index', token) FROM zk_lock_queue('index')");
	assert_ends($builder, '40001', 'the loss cancels the command');
	$writer->query_safe('COMMIT');
	$builder->query_safe("SELECT zk_unlock_all(), zk_lock('index')");
	my $is_valid = "SELECT indisvalid FROM pg_index WHERE indexrelid = 'by_i'::regclass";
	assert_query($builder, $create, '00000', 'the second attempt does nothing');
	is($builder->query_safe($is_valid), 'f', 'the index stays invalid');
	$builder->query_safe('DROP INDEX CONCURRENTLY by_i');
	$builder->query_safe($create);
	is($builder->query_safe($is_valid), 't', 'without the index of before the command makes a valid one');
	$builder->query_safe('DROP TABLE indexed');
	$_->quit foreach $builder, $writer, $other;
};

my $standby = standby_of($primary);

# Splitters of reads and writes do that, and it looks as if it worked.
subtest 'a lock taken over the connection of a standby does not guard what is written to the primary' => sub {
	my ($reader, $writer, $evictor) = map { background($_) } $standby, $primary, $primary;
	$writer->query_safe('CREATE TABLE split (i int)');
	$reader->query_safe("SET zklock.commit_guard = quorum; SELECT zk_lock('split')");
	$writer->query_safe('SET zklock.commit_guard = quorum; BEGIN; INSERT INTO split VALUES (1)');
	$evictor->query_safe("SELECT zk_evict('split', token) FROM zk_lock_queue('split')");
	assert_query($writer, 'COMMIT', '00000', 'the transaction commits without the lock');
	$reader->query('SELECT zk_unlock_all()');
	$writer->query_safe('DROP TABLE split');
	$_->quit foreach $reader, $writer, $evictor;
};

subtest 'recovery cancels a wait on a standby that has a snapshot, and no CALL zk_commit_and_lock()' => sub {
	reconfigure($standby, max_standby_streaming_delay => '200ms');
	my $holder = background($primary, holds => 'recovery');
	$holder->query_safe('CREATE TABLE gone AS SELECT generate_series(1, 100) AS i');
	$primary->wait_for_catchup($standby);
	my ($waiter, $caller) = map { background($standby) } 1 .. 2;
	start_in_queue($waiter, "SELECT zk_lock('recovery') FROM gone", $zk, lock_path('recovery'), 2);
	start_in_queue($caller, "CALL zk_commit_and_lock('recovery')", $zk, lock_path('recovery'), 3);
	$holder->query_safe('DELETE FROM gone');
	$holder->query_safe('VACUUM gone');
	assert_ends($waiter, '40001', 'the wait with a snapshot is canceled');
	like($waiter->error, qr/canceling statement due to conflict with recovery/, 'PostgreSQL says why');
	$holder->query_safe("SELECT zk_unlock('recovery')");
	assert_ends($caller, '00000', 'the call without a snapshot waits on, and gets the lock');
	$holder->query_safe('DROP TABLE gone');
	$_->quit foreach $holder, $waiter, $caller;
};

subtest 'a lock taken on a hot standby stays held across its promotion' => sub {
	my $here = background($standby);
	my $there = background($primary);

	is($here->query_safe('SELECT pg_is_in_recovery()'), 't', 'a standby');
	like($here->query_safe("SELECT zk_lock('standby')"), qr/^\d+$/, 'a lock is granted on a standby');
	my $nodes = nodes('standby');
	is(scalar @$nodes, 1, 'the lock has a queue node');
	is($there->query_safe("SELECT zk_try_lock('standby')"), 'f', 'the primary does not get the lock');
	like($there->query_safe("SELECT cluster FROM zk_lock_queue('standby')"), qr/^standby$/, 'the primary sees which cluster holds the lock');
	$here->query_safe("BEGIN; SELECT zk_xact_lock('transaction')");
	is($there->query_safe("SELECT zk_try_lock('transaction')"), 'f', 'the primary does not get a lock of transaction scope either');
	$here->query_safe('COMMIT');
	assert_no_nodes($zk, lock_path('transaction'), 'released at the end of the transaction');
	start_in_queue($there, "SELECT zk_lock('standby')", $zk, lock_path('standby'), 2);

	my $id = session_id_of($here);
	$standby->promote;
	$standby->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()');
	is($here->query_safe('SELECT pg_is_in_recovery()'), 'f', 'promoted');
	is(session_id_of($here), $id, 'the session is the same');
	is_deeply([ grep { $_->[0] eq $nodes->[0][0] } @{ nodes('standby') } ], $nodes, 'the queue node is the same');
	ok(!$there->is_done, 'the old primary still waits');
	$here->query_safe("BEGIN; CREATE TABLE written ();
		SELECT zk_xact_lock('transaction'); COMMIT");
	is($here->query_safe("SELECT zk_unlock('standby')"), 't', 'released');
	assert_ends($there, '00000', 'it is granted the lock');
	$there->query_safe('SELECT zk_unlock_all()');
	assert_no_nodes($zk, lock_path($_), "$_: nothing left")
	  foreach qw(standby transaction);
};

done_testing();
