
# zklock.idle_timeout ends a ZooKeeper session that is not used and has no locks, with its
# program. No lock is lost by that, and the next lock opens another session. Tested with a real
# server, which counts sessions.

use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk,
	'zklock.session_timeout' => '8s');
my $idle = 500;    # ms
my $cycle = "SELECT zk_lock('x') > 0, zk_unlock('x')";

# Of clients, without the one that each word takes.
sub ensemble_sessions { return $zk->counter('global_sessions'); }

sub losses { return $node->safe_psql('postgres', 'SELECT coalesce(sum(losses), 0) FROM zk_stat'); }

sub state_of ($session)
{
	return $node->safe_psql('postgres', 'SELECT state FROM zk_backends WHERE pid = ' . $session->pid);
}

sub wait_until_ended (@sessions)
{
	return poll_until { !session_programs(map { $_->pid } @sessions) } 'the programs to end', 60;
}

subtest 'twenty idle sessions end after zklock.idle_timeout without a loss' => sub {
	my @pool = map { background($node, 'zklock.idle_timeout' => $idle) } 1 .. 20;
	my $before = ensemble_sessions();
	my $losses = losses();
	my $length = -s $node->logfile;
	$_->query_safe($cycle) foreach @pool;
	wait_until_ended(@pool);
	assert_soon { ensemble_sessions() <= $before } 'the ensemble has none of their sessions', 60;
	is(state_of($pool[0]), 'idle', 'zk_backends says so');
	is($node->safe_psql('postgres', 'SELECT session_id IS NULL FROM zk_backends WHERE pid = ' . $pool[0]->pid),
		't', 'zk_backends shows no session id');
	is($pool[1]->query_safe('SELECT state, program_pid IS NULL FROM zk_session'), 'idle|t', 'zk_session shows idle and no program');
	is($_->query($cycle), 't|t', 'the next lock works') foreach @pool[ 0 .. 3 ];
	is($_->error, '', 'without a message') foreach @pool[ 0 .. 3 ];
	is($pool[0]->query("SET zklock.idle_timeout = 0; $cycle; SELECT state FROM zk_session"), "t|t\nconnected",
		'another session is open');
	is(losses(), $losses, 'no session was lost');
	unlike(substr(slurp_file($node->logfile), $length), qr/lost|WARNING|ERROR/, 'the log has no loss, warning or error');
	is($pool[1]->query_safe("SELECT state FROM zk_check(false) WHERE item = 'session'"), 'ok',
		'zk_check() has nothing to say of it');
	$pool[1]->query_safe('SELECT zk_disconnect()');
	is($pool[1]->query_safe('SELECT state FROM zk_session'), 'none', 'what is idle can be closed');
};

# These all have a lock, wait for one, or had one in a transaction that is not over.
subtest 'a session that holds, waits for or keeps a lock does not count as idle' => sub {
	my %session = map { $_ => background($node, 'zklock.idle_timeout' => $idle) }
	  ('held', 'waiting', 'kept', 'in a transaction');
	$session{held}->query_safe("SELECT zk_lock('held')");
	$session{kept}->query_safe("SET zklock.keep = '1h'; SELECT zk_lock('kept'), zk_unlock('kept')");
	$session{'in a transaction'}->query_safe("BEGIN; SAVEPOINT s; SELECT zk_xact_lock('first'); ROLLBACK TO s");
	start_to_wait($session{waiting}, "SELECT zk_lock('held')");
	my $idler = background($node, 'zklock.idle_timeout' => 4 * $idle);
	$idler->query_safe($cycle);
	# It begins to be idle after them, and is so for longer than they may be.
	wait_until_ended($idler);
	is(scalar session_programs(map { $_->pid } values %session), 4, 'all have their sessions');
	assert_held($session{held}, 'held', 'the lock is held');
	is($session{kept}->query_safe("SELECT state FROM zk_session_locks"), 'kept', 'it is kept');
	$session{held}->query_safe("SELECT zk_unlock('held')");
	assert_ends($session{waiting}, '00000', 'the waiter is granted the lock');

	# What is kept is given up first, and then the session is idle.
	$session{kept}->query_safe("SET zklock.keep = '1s'; SELECT zk_lock('short'), zk_unlock('short')");
	$session{kept}->query_safe("SELECT zk_try_lock('kept'), zk_unlock('kept')");
	wait_until_ended($session{kept});
	assert_no_nodes($zk, lock_path($_)) foreach qw(kept short);
};

# A look is a use, and a change of the setting reaches a session that is there.
subtest 'a look at a queue counts as use, and a new zklock.idle_timeout reaches an open session' => sub {
	my $session = background($node);
	$session->query_safe($cycle);
	my $before = session_id_of($session);
	$session->query_safe("SET zklock.idle_timeout = '1h'");
	$session->query_safe("SELECT count(*) FROM zk_lock_queue('x')");
	is(session_id_of($session), $before, 'the session stays');
	$session->query_safe("SET zklock.idle_timeout = $idle");
	wait_until_ended($session);
	is($session->query("SELECT count(*) FROM zk_lock_queue('x')"), '0', 'a look at a queue opens another session');
	is($session->error, '', 'without a message');
	wait_until_ended($session);
	like($session->query("SELECT zk_run_once('job', '1h')"), qr/^[tf]$/, 'zk_run_once() opens another session');
};

# A lease is no lock of the session, which may end in a transaction that rests on it. The commit
# asks, by another session.
subtest 'a commit that rests on a lease passes after its session has ended by idleness' => sub {
	my $session = background($node, 'zklock.idle_timeout' => $idle, 'zklock.commit_guard' => 'quorum');
	my $token = $session->query_safe("SELECT zk_try_lease('job', 'app', '1h')");
	$session->query_safe("BEGIN; CREATE TABLE leased (); SELECT zk_require_lease('job', $token)");
	wait_until_ended($session);
	assert_query($session, 'COMMIT', '00000', 'the transaction commits');
	is($session->error, '', 'without a message');
};

# The program decides while the backend begins to use the session. One that has stood still finds
# that its time is over, and a request.
subtest 'a call at the moment of zklock.idle_timeout loses no lock' => sub {
	my $patience = 3;
	my $session = background($node, 'zklock.idle_timeout' => "${patience}s");
	my $which = "SELECT zk_lock('x') > 0, zk_unlock('x'), program_pid FROM zk_session";
	my $program;
	poll_until
	{
		$session->query_safe($cycle);
		($program) = session_programs($session->pid);
	}
	'a program', 60;
	kill 'STOP', $program;
	sleep 1.2 * $patience;
	$session->start_query($which);
	wait_for_wait($node, $session->pid);
	kill 'CONT', $program;
	is(assert_ends($session, '00000', 'granted'), "t|t|$program", 'the lock is granted in the same session');
	my $losses = losses();
	$session->query_safe('SET zklock.idle_timeout = 1');
	my $answer = $session->query(<<~'SQL');
		DO $$
		DECLARE
			first bigint;
		BEGIN
			FOR i IN 1 .. 200 LOOP
				PERFORM zk_lock('race');
				PERFORM zk_unlock('race');
				COMMIT;
				PERFORM pg_sleep(random() * 0.01);
			END LOOP;
		END $$
		SQL
	is($session->sqlstate, '00000', 'two hundred locks, and a session that may end behind each');
	is($session->error, '', 'without a message');
	is(losses(), $losses, 'no session was lost');
	note($node->safe_psql('postgres', 'SELECT sum(sessions) FROM zk_stat') . ' sessions');
	$session->quit;
	assert_no_nodes($zk, lock_path('race'));
};

done_testing();
