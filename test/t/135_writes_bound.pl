
# zklock.max_creates bounds what a role may write to ZooKeeper in one second, over all its
# backends and all kinds of calls, also if it connects anew. The judge is the transaction log of
# a real server; the bound is by the time that has passed, so a slow machine only has more room.

use FindBin;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);
use lib "$FindBin::RealBin/../torture/lib";
use Torture::TransactionLog;
use ZkLockTest;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk);
$node->safe_psql('postgres', "CREATE ROLE flood LOGIN; CREATE ROLE other LOGIN; CREATE TABLE work (i int);
	ALTER ROLE flood SET zklock.max_creates = 50; ALTER ROLE flood SET zklock.commit_guard = quorum;
	GRANT zklock_operator TO flood; GRANT INSERT, SELECT ON work TO flood; CREATE DATABASE second");
$node->safe_psql('second', 'CREATE EXTENSION zklock');
my $admin = background($node, holds => 'asked');
my $token = $admin->query_safe("SELECT zk_try_lease('held', 'app', '10min')");

sub last_zxid { return hex($zk->four_letter_word('srvr') =~ /^Zxid: 0x([0-9a-f]+)/m ? $1 : die 'no zxid'); }

# What the ensemble has logged in between, but for what ends a znode or a session.
sub writes_between ($first, $last)
{
	my %count;
	foreach my $path (glob $zk->data_dir . '/version-2/log.*')
	{
		Torture::TransactionLog::read_file(
			$path,
			sub ($transaction) {
				return if $transaction->{zxid} <= $first || $transaction->{zxid} > $last;
				$count{ join ' ', sort map { $_->{kind} } @{ $transaction->{changes} } }++;
			});
	}
	note(join ', ', map { "$count{$_} $_" } sort keys %count);
	my $sum = 0;
	$sum += $count{$_} foreach grep { !/^(?:delete|close)$/ } keys %count;
	return $sum;
}

# A statement that makes this call again and again for so many seconds.
sub again ($seconds, $call)
{
	return "DO \$do\$ DECLARE until timestamptz := clock_timestamp() + '$seconds s'; i int := 0;
		BEGIN
			WHILE clock_timestamp() < until LOOP
				i := i + 1;
				BEGIN
					$call;
				EXCEPTION WHEN configuration_limit_exceeded THEN
					PERFORM pg_sleep(0.002);
				END;
			END LOOP;
		END \$do\$";
}

# Whatever room there is, this takes more. Nothing of it stays.
my $too_many = "SELECT zk_lock_set(ARRAY(SELECT 'many/' || i FROM generate_series(1, 100) AS i))";

sub ask_roles ($columns, $where) { return ask($node, "SELECT $columns FROM zk_stat_roles WHERE $where"); }

my $of_flood = "usename = 'flood' AND datname = 'postgres'";

subtest 'zklock.max_creates bounds all calls and all backends of a role together' => sub {
	my %call = (
		'locks' => "PERFORM zk_lock('locks'); PERFORM zk_unlock('locks')",
		'containers' => "PERFORM zk_try_lock('new/' || i || '/a/b/c'); PERFORM zk_unlock('new/' || i || '/a/b/c')",
		'leases' => "PERFORM zk_try_lease('lease/' || i, 'app', '60s')",
		'places in line' => "PERFORM zk_try_lease('held', 'app' || i, '60s', place => true)",
		'renewals' => "PERFORM zk_renew_lease('held', $token, '10min')",
		'what is not there' => "PERFORM zk_renew_lease('held', 1, '10min')",
		'leaders' => "PERFORM zk_leader('held')",
		'runs' => "PERFORM zk_run_once('job', i::text)",
		'requests' => "PERFORM zk_request_release('asked')",
		'holds' => "PERFORM zk_hold('hold/' || i, 'flood', '1s')",
		'proofs' => "PERFORM zk_try_lock('mine'), zk_is_held('mine')",
		'sessions' => "PERFORM zk_disconnect(); PERFORM count(*) FROM zk_lock_queue('held')");
	my ($begun, $first) = (clock_gettime(CLOCK_MONOTONIC), last_zxid());
	my %session = map { $_ => background($node, user => 'flood') } sort keys %call;
	$session{$_}->start_query(again(4, $call{$_})) foreach sort keys %call;
	for my $i (1 .. 8)
	{
		my $session = background($node, user => 'flood');
		$session->query("SELECT zk_lock('again/$i')");
		$session->quit;
	}
	foreach my $what (sort keys %session)
	{
		$session{$what}->wait_result;
		is($session{$what}->sqlstate, '00000', $what) or diag($session{$what}->error);
	}
	my $elapsed = clock_gettime(CLOCK_MONOTONIC) - $begun;
	my $writes = writes_between($first, last_zxid());
	cmp_ok($writes, '<=', 50 + 50 * $elapsed, sprintf 'as many as it may write in %.1f s', $elapsed);
	cmp_ok($writes, '>=', 25, 'the role does write');
	cmp_ok($writes, '<=', ask_roles('writes', $of_flood), 'zk_stat_roles counts all writes');
	is(ask_roles('refused_writes > 0, max_creates, last_writes BETWEEN 0 AND 100', $of_flood), 't|50|t', 'zk_stat_roles counts the refusals');
	is(ask($node, "SELECT s.refused_writes = sum(r.refused_writes) FROM zk_stat AS s JOIN zk_stat_roles AS r USING (datname)
			WHERE datname = 'postgres' GROUP BY s.refused_writes"),
		't', 'zk_stat has the same number of refusals');
	is(ask($node, "SELECT DISTINCT max_locks, max_creates FROM zk_backends WHERE usename = 'flood'"), '1000|50', 'zk_backends shows the bounds of each backend');
	$_->quit foreach values %session;
};

subtest 'a refused write names the role and the bound, and leaves no znode' => sub {
	# So many may be written at once, also with a smaller bound: 20.
	$node->safe_psql('postgres', 'ALTER ROLE flood SET zklock.max_creates = 5');
	my $session = background($node, user => 'flood');
	assert_query($session, $too_many, '53400', 'a call with too many writes is refused');
	like($session->error,
		qr/too many writes to ZooKeeper in one second\nDETAIL:  All sessions of role "flood" in database "postgres" may make 5 a second together\.\nHINT:  .*zklock\.max_creates/,
		'the message names the role, the database and the bound');
	is($session->query_safe('SELECT count(*) FROM zk_session_locks'), 0, 'leaves no lock');
	assert_soon { !$zk->ephemerals(lock_path('many/')) } 'no znode is left of the refused call';
	assert_query($session, 'SET zklock.max_creates = 0', '42501', 'the role itself cannot raise its bound');

	$session->query(again(1, "PERFORM zk_renew_lease('held', $token, '10min')"));
	is($admin->query_safe("SELECT owner, token FROM zk_leader('held')"), "app|$token", 'a lease whose renewal is refused is held');
	$session->quit;
};

subtest 'zklock.max_creates refuses neither releases nor proofs of commits' => sub {
	$node->safe_psql('postgres', 'GRANT SET ON PARAMETER zklock.max_creates TO flood');
	my ($session, $fellow) = map { background($node, user => 'flood') } 1 .. 2;
	$_->query_safe('SET zklock.max_creates = 0') foreach $session, $fellow;
	my $lease = $session->query_safe("SELECT zk_try_lease('own', 'app', '10min')");
	$session->query_safe("SELECT zk_lock('own lock')");
	$fellow->query_safe("SELECT zk_lock('of fellow')");
	$session->query_safe("BEGIN; SELECT zk_require_lease('own', $lease); INSERT INTO work VALUES (1)");

	# Proofs of commits are counted, and not refused, so there is no room for twenty seconds.
	$_->query_safe('SET zklock.max_creates = 1') foreach $session, $fellow;
	$fellow->query_safe('INSERT INTO work VALUES (2)') for 1 .. 60;
	is(ask_roles('last_writes > 30', $of_flood), 't', 'proofs of commits are counted, and not refused');
	assert_query($session, 'COMMIT', '53400', 'a commit that would renew a lease is refused');
	is($session->query_safe('SELECT count(*) FROM work WHERE i = 1'), 0, 'the refused commit writes nothing');
	$session->query_safe('SET zklock.max_creates = 1');
	assert_query($session, "SELECT zk_try_lease('left', 'app', '60s')", '53400', 'a new lease is refused');
	assert_no_nodes($zk, lock_path('left'));
	is($session->query_safe("SELECT zk_unlock('own lock')"), 't', 'a lock is released');
	is($session->query_safe("SELECT zk_release_lease('own', $lease)"), 't', 'a lease, which was still held, is released');
	is($fellow->query_safe('SELECT zk_unlock_all() IS NOT NULL'), 't', 'all locks are released');
	assert_soon { !$zk->ephemerals(lock_path('own lock')) && !$zk->ephemerals(lock_path('of fellow')) } 'the nodes of both are gone';
	$_->quit foreach $session, $fellow;
};

subtest 'zklock.max_creates counts each role and each database apart' => sub {
	$node->safe_psql('postgres', 'ALTER ROLE flood SET zklock.max_creates = 1');
	my $session = background($node, user => 'flood');
	assert_query($session, $too_many, '53400', 'a role at its bound');
	my $other = background($node, user => 'other');
	is($other->query_safe("SELECT zk_try_lock_set(ARRAY['a', 'b', 'c'])"), 't', 'another role is not');
	my $elsewhere = background($node, user => 'flood', database => 'second');
	is($elsewhere->query_safe("SELECT zk_try_lock_set(ARRAY['d', 'e', 'f'])"), 't', 'the role is not at its bound in another database');
	assert_query($session, $too_many, '53400', 'the role is still at its bound');
	$node->safe_psql('postgres', 'CREATE FUNCTION as_owner(text) RETURNS bigint LANGUAGE sql SECURITY DEFINER RETURN zk_lock($1)');
	assert_query($session, "SELECT as_owner('many/' || i) FROM generate_series(1, 100) AS i", '53400', "also in a superuser's function");
	my $before = ask_roles('writes', "usename = 'postgres' OR usename = current_user");
	$admin->query_safe('SET SESSION AUTHORIZATION flood');
	is($admin->query_safe("SELECT zk_try_lock('by whom')"), 't', 'a superuser who acts as the role may write');
	$admin->query_safe('RESET SESSION AUTHORIZATION');
	cmp_ok(ask_roles('writes', "usename = 'postgres' OR usename = current_user"), '>', $before, 'counts as who has logged in');
	is($other->query_safe("SELECT count(*) FROM zk_stat_roles WHERE usename IN ('flood', 'other')"), 3, 'every role sees the counts of both');
	$admin->query_safe('SET zklock.max_creates = 0');
	is($admin->query_safe("SELECT zk_try_lock_set(ARRAY(SELECT 'free/' || i FROM generate_series(1, 100) AS i))"), 't', 'with zklock.max_creates = 0 there is no bound');
	is(ask_roles('max_creates, last_writes IS NULL', "usename = current_user"), '0|t', 'zk_stat_roles shows that there is no bound');
	$node->safe_psql('postgres', 'SELECT zk_stat_reset()');
	is(ask_roles('writes, refused_writes', $of_flood), '0|0', 'zk_stat_reset() begins anew');
	is(ask_roles('writes > 0', "usename = 'flood' AND datname = 'second'"), 't', 'zk_stat_reset() leaves the counts of another database');
	assert_query($session, $too_many, '53400', 'zk_stat_reset() does not reset the bound');
	$_->quit foreach $session, $other, $elsewhere;
};

$admin->quit;
done_testing;
