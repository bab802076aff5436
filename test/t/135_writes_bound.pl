
# zklock.max_creates bounds what a session takes in one second: locks, permanent holds, leases,
# runs and requests to release. What is refused has written nothing, and nothing else is refused.
# The judge is the transaction log of a real server; the bound is by the time that has passed, so
# a slow machine only has more room.

use FindBin;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);
use lib "$FindBin::RealBin/../torture/lib";
use Torture::TransactionLog;
use ZkLockTest;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk);
$node->safe_psql('postgres', 'CREATE ROLE flood LOGIN; CREATE TABLE work (i int);
	ALTER ROLE flood SET zklock.commit_guard = quorum;
	GRANT zklock_operator TO flood; GRANT INSERT, SELECT ON work TO flood');
my $admin = background($node, holds => 'asked');
my $token = $admin->query_safe("SELECT zk_try_lease('held', 'app', '10min')");

sub last_zxid { return hex($zk->four_letter_word('srvr') =~ /^Zxid: 0x([0-9a-f]+)/m ? $1 : die 'no zxid'); }

# How many changes of that kind the ensemble has logged in between, below that znode.
sub changes_between ($first, $last, $kind, $below)
{
	my $sum = 0;
	foreach my $path (glob $zk->data_dir . '/version-2/log.*')
	{
		Torture::TransactionLog::read_file(
			$path,
			sub ($transaction) {
				return if $transaction->{zxid} <= $first || $transaction->{zxid} > $last;
				$sum += grep { $_->{kind} =~ $kind && ($_->{path} // '') =~ m{^\Q$below\E} } @{ $transaction->{changes} };
			});
	}
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

# The first request for a lease of a name is refused as a whole, for want of its znode in .leases.
is(changes_between(0, last_zxid(), qr/^create$/, lock_path('held') . '/'), 2, 'a contender and its lease are made, and each once');

sub refused { return ask($node, "SELECT refused_writes FROM zk_stat WHERE datname = 'postgres'"); }

# A session whose bound is one a second, and which has taken one.
sub at_its_bound
{
	my $session = background($node, user => 'flood');
	$session->query_safe('SET zklock.max_creates = 1');
	assert_query($session, "SELECT zk_try_lock('use/' || i) FROM generate_series(1, 50) AS i", '53400', 'a session at its bound');
	return $session;
}

$node->safe_psql('postgres', 'GRANT SET ON PARAMETER zklock.max_creates TO flood');

subtest 'zklock.max_creates bounds what a session takes, whatever it is' => sub {
	my %call = (
		'locks' => [ "PERFORM zk_lock('locks'); PERFORM zk_unlock('locks')", lock_path('locks/') ],
		'new locks' => [ "PERFORM zk_try_lock('new/' || i || '/a'); PERFORM zk_unlock('new/' || i || '/a')", lock_path('new/') ],
		'several' => [ "PERFORM zk_lock_set(ARRAY['two/a', 'two/b']); PERFORM zk_unlock_all()", lock_path('two/') ],
		'leases' => [ "PERFORM zk_try_lease('lease/' || i, 'app', '60s')", lock_path('lease/') ],
		'shared leases' => [ "PERFORM zk_try_lease_shared('share', 'app' || i, '60s')", lock_path('share/') ],
		'runs' => [ "PERFORM zk_run_once('job', i::text)", lock_path('.once/') ],
		'requests' => [ "PERFORM zk_request_release('asked')", lock_path('.release/') ],
		'holds' => [ "PERFORM zk_hold('hold/' || i, 'flood', '1s')", lock_path('hold/') ]);
	my $first = last_zxid();
	my $before = refused();
	my (%session, %begun);
	foreach my $what (sort keys %call)
	{
		$session{$what} = background($node, user => 'flood');
		$session{$what}->query_safe('SET zklock.max_creates = 20');
		$begun{$what} = clock_gettime(CLOCK_MONOTONIC);
		$session{$what}->start_query(again(3, $call{$what}[0]));
	}
	foreach my $what (sort keys %session)
	{
		$session{$what}->wait_result;
		my $may = 20 + 20 * (clock_gettime(CLOCK_MONOTONIC) - $begun{$what});
		is($session{$what}->sqlstate, '00000', $what) or diag($session{$what}->error);

		# A lock's znode, its queue node, and of a permanent hold another one.
		my $made = changes_between($first, last_zxid(), qr/^(?:create|set)/, $call{$what}[1]);
		cmp_ok($made, '<=', 4 * $may, "$what: as many as the bound lets");
		cmp_ok($made, '>=', 10, "$what: the session does write");
	}
	cmp_ok(refused(), '>', $before, 'zk_stat counts the refused calls');
	$_->quit foreach values %session;
};

subtest 'a refused call names the bound, and has written nothing' => sub {
	my $session = background($node, user => 'flood');
	$session->query_safe('SET zklock.max_creates = 5');
	my $first = last_zxid();
	my $twenty = "SELECT zk_lock_set(ARRAY(SELECT 'many/' || i FROM generate_series(1, 20) AS i))";
	assert_query($session, $twenty, '53400', 'a call with more locks than the bound is refused');
	like($session->error, qr/too many locks in one call\nDETAIL:  The call takes 20, and this session may take 5 in a second\.\nHINT:  Take fewer/, 'the message has both numbers');
	is(changes_between($first, last_zxid(), qr/^create/, lock_path('many')), 0, 'it has created nothing');
	is($session->query_safe('SELECT count(*) FROM zk_session_locks'), 0, 'it leaves no lock');
	is($session->query_safe("SELECT zk_try_lock_set(ARRAY['a', 'b', 'c', 'd', 'e'])"), 't', 'nor has it taken any of the room');

	$session = at_its_bound();
	foreach my $call ("zk_lock('no')", "zk_try_xact_lock('no')", "zk_hold('no', 'why', '1s')", "zk_run_once('no', 'slot')",
		"zk_request_release('no')", "zk_try_lease('no', 'app', '60s')", "zk_lock_path('no/a')")
	{
		$session->query_safe('RESET zklock.max_creates');
		$session->query_safe('SET zklock.max_creates = 1');
		$first = last_zxid();
		assert_query($session, "SELECT zk_try_lock('use/more'), $call", '53400', "$call is refused");
		is(changes_between($first, last_zxid(), qr/^create/, lock_path('no')), 0, 'and creates nothing');
		$session->query('SELECT zk_unlock_all()');
	}
	$session->query_safe('SET zklock.max_creates = 1');
	assert_query($session, "SELECT zk_try_lock('x/' || i) FROM generate_series(1, 50) AS i", '53400', 'one more');
	like($session->error,
		qr/too many locks, leases, runs or requests in one second\nDETAIL:  This session may take 1 in a second\.\nHINT:  Run the call again after a second.*zklock\.max_creates/,
		'the message names the bound');
	$session->quit;

	my $other = background($node, user => 'flood');
	is($other->query_safe("SELECT zk_try_lock_set(ARRAY(SELECT 'free/' || i FROM generate_series(1, 100) AS i))"), 't', 'another session has a bound of its own');
	$other->query_safe('SET zklock.max_creates = 0');
	is($other->query_safe("SELECT zk_try_lock_set(ARRAY(SELECT 'freer/' || i FROM generate_series(1, 200) AS i))"), 't', 'with zklock.max_creates = 0 there is no bound');
	$other->quit;
	$node->safe_psql('postgres', 'CREATE ROLE bound LOGIN');
	$other = background($node, user => 'bound');
	assert_query($other, 'SET zklock.max_creates = 0', '42501', 'a role itself cannot raise its bound');
	$other->quit;
};

subtest 'zklock.max_creates refuses neither releases, renewals nor proofs, nor what the session has' => sub {
	my $session = background($node, user => 'flood');
	my $lease = $session->query_safe("SELECT zk_try_lease('own', 'app', '10min')");
	$session->query_safe("SELECT zk_lock('own lock')");
	$session->query_safe('SET zklock.keep = 60000');
	$session->query_safe("SELECT zk_lock('kept'), zk_unlock('kept')");
	my $is_kept = "SELECT count(*) FROM zk_session_locks WHERE name = 'kept' AND state = 'kept'";
	$session->query_safe('SET zklock.max_creates = 1');
	assert_query($session, "SELECT zk_try_lock('use/' || i) FROM generate_series(1, 50) AS i", '53400', 'a session at its bound');

	# No call of these counts, so that none of them is refused, however many there are in a second.
	my $before = refused();
	my %call = (
		'a lock that is held' => "zk_lock('own lock')",
		'a set of locks that are held' => "zk_lock_set(ARRAY['own lock', 'own lock'])",
		'a proof' => "zk_is_held('own lock')",
		'a renewal' => "zk_renew_lease('own', $lease, '10min')",
		'a renewal of a lease that the owner has' => "zk_try_lease('own', 'app', '10min')",
		'a question' => "zk_leader('held')",
		'a new session' => "zk_leader('own')");
	foreach my $what (sort keys %call)
	{
		is($session->query("SELECT count($call{$what}) FROM generate_series(1, 20)"), 20, $what) or diag($session->error);
	}
	if ($session->query_safe($is_kept))
	{
		is($session->query("SELECT zk_lock('kept') IS NOT NULL, zk_unlock('kept')"), 't|t', 'a kept lock is taken back');
	}
	$session->query_safe('INSERT INTO work VALUES (2)') for 1 .. 20;
	pass('commits, which prove the lock');
	$session->query_safe("BEGIN; SELECT zk_require_lease('own', $lease); INSERT INTO work VALUES (1); COMMIT");
	pass('a commit that rests on a lease');
	is($session->query_safe("SELECT zk_release_lease('own', $lease)"), 't', 'a lease is released');
	is($session->query_safe('SELECT zk_unlock_all() IS NOT NULL'), 't', 'all locks are released');
	is(refused(), $before, 'no call was refused');
	assert_soon { !$zk->ephemerals(lock_path('own lock')) } 'the nodes are gone';
	$session->quit;
};

$admin->quit;
done_testing;
