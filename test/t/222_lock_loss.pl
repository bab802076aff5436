
# A statement that runs when its lock is lost ends within a second of the loss, with an error
# that names the lock and that no exception handler in PL/pgSQL can swallow. Tested with a real
# server that is paused, and by killing the session's program.

use Fcntl;
use IPC::Run;
use POSIX ();
use ZkLockTest;

my $timeout = 4;
my $zk = ZooKeeper->new(tick_time => 500)->start;
my $node = cluster('berlin', $zk, 'zklock.session_timeout' => "${timeout}s");
$node->safe_psql('postgres', 'CREATE TABLE written (what text)');

# For how long it had no contact when it gave up, how long an attempt to connect was given, and how
# long all of it took.
my %told;

# Run a statement in a session that holds the lock, stop the server, and see the
# statement fail before the server could have given the lock to another.
sub loses ($what, $setup, $sql)
{
	my $session = background($node, first => $setup);
	start_in_queue($session, $sql, $zk, lock_path('lost'), 1);
	my $since = time;
	$zk->pause;
	assert_ends($session, '40001', "$what: SQLSTATE");
	my $took = time - $since;
	like($session->error, qr/lock "lost" was lost/, "$what: names the lock");
	like(
		$session->error,
		qr/DETAIL:  The connection broke at .*, and the lock was given up at .*No contact with ZooKeeper/,
		"$what: says when the connection broke, when it was given up, and why");
	push @{ $told{took} }, $took;
	in_time($took, 5 * $timeout, "$what: long before it would end by itself");
	my %number = $session->error =~ /(No contact|did not answer)\D* (\d+) ms/g;
	push @{ $told{$_} }, $number{$_} foreach keys %number;
	$zk->resume;
	return assert_leave_nothing($zk, lock_path('lost'), $session);
}

loses('asleep', "SELECT zk_lock('lost')", 'SELECT pg_sleep(60)');
loses(
	'computing',
	"BEGIN; SELECT zk_xact_lock('lost')",
	'SELECT count(*) FROM generate_series(1, 100000000000)');
loses('in the statement that took the lock', 'SELECT 1', "SELECT zk_lock('lost'), pg_sleep(60)");
loses(
	'in PL/pgSQL that catches everything',
	'SELECT 1', "DO \$\$ BEGIN
		PERFORM zk_lock('lost');
		LOOP
			BEGIN
				PERFORM pg_sleep(60);
			EXCEPTION WHEN OTHERS THEN
				NULL;
			END;
		END LOOP;
	END \$\$");

# The second lock is held by another session, so this one waits in a queue.
{
	my $other = background($node, 'zklock.session_timeout' => '30s', holds => 'other');
	loses('waiting for another lock', "SELECT zk_lock('lost')", "SELECT zk_lock('other')");
	assert_held($other, 'other', 'a session with a longer timeout keeps its lock');
}

# On a busy machine some are later.
my %least = map { $_ => (sort { $a <=> $b } @{ $told{$_} })[0] } keys %told;
in_time($least{took}, $timeout + 1, 'a statement ends within a second of the loss');
cmp_ok($least{'No contact'}, '<', $timeout * 1000, 'the loss is declared before the ensemble may end the session');
cmp_ok($least{'No contact'}, '>', $timeout * 900, 'the loss is declared shortly before the session timeout');
cmp_ok($least{'did not answer'}, '<', $timeout * 150, 'the server had its chance twice in what was left');

subtest 'a statement that waits for a row ends when its lock is lost' => sub {
	$node->safe_psql('postgres', "INSERT INTO written VALUES ('row')");
	my $blocker = background($node, first => "BEGIN; UPDATE written SET what = 'row' WHERE what = 'row'");
	my $session = background($node, first => "BEGIN; SELECT zk_xact_lock('lost')");
	$session->start_query("UPDATE written SET what = 'lost'");
	wait_for_lock($session->node, $session->pid);
	$zk->pause;
	assert_ends($session, '40001', 'the wait for the row ends');
	$zk->resume;
	$blocker->query_safe('COMMIT');
	is(ask($node, 'SELECT what FROM written'), 'row', 'nothing is written');
};

# The signal must be meant for the lock: no lock, no cancellation.
subtest 'a statement of a session without a lock runs to its end during an outage' => sub {
	my $session = background($node, first => "SELECT zk_lock('lost'), zk_unlock('lost')");
	assert_no_nodes($zk, lock_path('lost'), 'released');
	$session->start_query("SELECT pg_sleep($timeout * 1.5)");
	$zk->pause;
	assert_ends($session, '00000', 'its statement runs to the end');
	$zk->resume;
	is($session->query_safe("SELECT zk_lock('lost') > 0"), 't', 'the session is granted a lock again');
};

# What is written when the lock is released already does not rest on it.
subtest 'a commit of work after the release of a lost lock is not refused' => sub {
	my $session = background($node, holds => 'lost');
	kill_session_program($session);
	# The loss may also interrupt the question.
	wait_for_loss($session);
	is($session->query_safe("BEGIN; SELECT zk_unlock('lost')"), 'f', 'zk_unlock() says that the lock was lost');
	assert_query($session, "INSERT INTO written VALUES ('since'); COMMIT", '00000', 'the commit is not refused');
	assert_leave_nothing($zk, lock_path('lost'), $session);
};

# The release of another lock closes the lost session.
subtest 'a commit is refused when a lock is lost of which one of two modes was released' => sub {
	my $session = background($node,
		first => "BEGIN; SELECT zk_lock('lost'), zk_lock_shared('lost'), zk_lock('other')");
	my ($program) = session_programs($session->pid);
	is($session->query_safe("SELECT zk_unlock('lost')"), 't', 'the exclusive mode is released');
	kill KILL => $program;
	wait_in_transaction($session, 'SELECT state FROM zk_session', 'lost');
	is($session->query_safe("SELECT zk_unlock('other')"), 'f', 'the session is lost, and closed');
	assert_query($session, "INSERT INTO written VALUES ('shared')", '00000', 'the transaction writes');
	$session->start_query('COMMIT');
	assert_ends($session, '40001', 'its commit is refused');
	like($session->error, qr/lock "lost" was lost/, 'the error names the lock');
	assert_leave_nothing($zk, lock_path('lost'), $session);
};

# The interrupt comes while nothing looks for it, and an error lets go of the lock before
# anything does: what the error says that comes of it names the lock all the same.
subtest 'a lock that is released before its loss interrupts the statement is named all the same' => sub {
	my $fifo = $node->basedir . '/fifo';
	POSIX::mkfifo($fifo, 0600) or die "could not make a FIFO: $!";
	my $session = background($node, is_connected => 1);
	my ($program) = session_programs($session->pid);
	$session->start_query("DO \$\$ BEGIN
		BEGIN
			PERFORM zk_xact_lock('late');
			PERFORM 1 / (lo_import('$fifo', 4711)::bigint - 4711);
		EXCEPTION WHEN division_by_zero THEN
			NULL;
		END;
		PERFORM pg_sleep(60);
	END \$\$");
	# It can be written to once the statement has opened it to read. Then the backend waits for
	# what is written, and looks for no interrupt before the division.
	my $writer;
	poll_until { sysopen $writer, $fifo, O_WRONLY | O_NONBLOCK } 'the statement to read', 30;
	poll_until { slurp_file('/proc/' . $session->pid . '/stat') =~ /\) S / } 'the backend to wait', 30;
	kill KILL => $program;
	# A dead program has closed its socket, which interrupts the backend.
	poll_until { !ZooKeeper::is_alive($program) } 'the program to end', 30;
	close $writer;
	$session->wait_result;
	is($session->sqlstate, '40001', 'SQLSTATE');
	like($session->error, qr/lock "late" was lost/, 'names the lock');
	assert_leave_nothing($zk, lock_path('late'), $session);
	unlink $fifo;
};

# The error of an interrupt becomes that of the loss where it is raised, and gets its SQLSTATE
# where it is reported, however long that takes and whoever catches it on the way.
subtest 'a loss is reported with 40001 whatever catches or delays its error' => sub {
	my $sleep = 'PERFORM pg_sleep(60);';
	my $tables = "EXECUTE (SELECT string_agg(format('CREATE TEMP TABLE many_%s (i int PRIMARY KEY, t text);', i), '')
		FROM generate_series(1, 150) AS i);";
	my $in_block = sub ($do, $handler) { "DO \$\$ BEGIN PERFORM zk_lock('lost'); BEGIN $do EXCEPTION $handler END; END \$\$" };
	$node->safe_psql('postgres', "CREATE TABLE sleepy (i int);
		CREATE FUNCTION sleep_on() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(60); RETURN NULL; END';
		CREATE CONSTRAINT TRIGGER later AFTER INSERT ON sleepy DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW EXECUTE FUNCTION sleep_on();
		CREATE PROCEDURE commit_sleepy() LANGUAGE plpgsql AS 'BEGIN PERFORM zk_lock(''lost''); INSERT INTO sleepy VALUES (1); COMMIT; END'");
	my %way = (
		'a subtransaction whose abort takes long' => [ '', $in_block->("$tables $sleep", 'WHEN division_by_zero THEN NULL;') ],
		'log_min_messages = panic' => [ 'SET log_min_messages = panic', "SELECT zk_lock('lost'), pg_sleep(60)" ],
		'both' => [ 'SET log_min_messages = panic', $in_block->("$tables $sleep", 'WHEN division_by_zero THEN NULL;') ],
		'WHEN OTHERS' => [ '', $in_block->($sleep, 'WHEN OTHERS THEN NULL;') ],
		'raised again' => [ '', $in_block->("$tables $sleep", 'WHEN query_canceled THEN RAISE;') ],
		'raised anew, with its own words' => [ '', $in_block->($sleep,
				"WHEN query_canceled THEN RAISE EXCEPTION 'sorry: %', SQLERRM USING ERRCODE = SQLSTATE;") ],
		'at a commit, in a deferred trigger' => [ "BEGIN; SELECT zk_lock('lost'); INSERT INTO sleepy VALUES (1)", 'COMMIT' ],
		q(at a procedure's commit) => [ '', 'CALL commit_sleepy()' ]);
	foreach my $way (sort keys %way)
	{
		my ($setup, $sql) = @{ $way{$way} };
		my $session = background($node, is_connected => 1);
		my ($program) = session_programs($session->pid);
		$session->query_safe($setup) if $setup;
		$session->start_query($sql);
		wait_for_sleep($node, $session->pid);
		kill KILL => $program;
		assert_ends($session, '40001', "$way: SQLSTATE");
		like($session->error, qr/lock "lost" was lost/, 'names the lock');
		like($session->error, qr/DETAIL:  The .*\nHINT:  /, 'the error has a DETAIL and a HINT') if $way !~ /anew/;
		assert_leave_nothing($zk, lock_path('lost'), $session);
	}
	is(ask($node, 'SELECT count(*) FROM sleepy'), 0, 'nothing is written');
};

# A call may find the end of the program before the signal of its death has come. Each
# session meets that now and then; each works as hard as it can, so one after the other.
subtest 'a handler does not go on without the lock whose loss a call has found' => sub {
	foreach my $attempt (1 .. 12)
	{
		my $session = background($node, is_connected => 1);
		$session->start_query("DO \$\$
			DECLARE ends_at timestamptz := clock_timestamp() + interval '2 min';
			BEGIN
				PERFORM zk_lock('found/' || pg_backend_pid());
				WHILE clock_timestamp() < ends_at LOOP
					BEGIN
						PERFORM zk_xact_lock('inner/' || pg_backend_pid());
						PERFORM 1 / 0;
					EXCEPTION WHEN OTHERS THEN
						NULL;
					END;
				END LOOP;
			END \$\$");
		wait_for_queue($zk, lock_path('found/' . $session->pid), 1);
		kill KILL => session_programs($session->pid);
		assert_ends($session, '40001', 'the loop ends');
		assert_leave_nothing($zk, lock_path('found/' . $session->pid), $session);
	}
};

# The backend is stopped until the time of its wait is over, too. PostgreSQL has one flag for all
# that cancels a statement, and raises the error of the timeout.
subtest 'a handler that catches a timeout does not go on without the lock that was lost meanwhile' => sub {
	my $other = background($node);
	$node->safe_psql('postgres', 'CREATE TABLE busy (i int)');
	$other->query_safe('BEGIN; LOCK TABLE busy');
	foreach my $case ([ 'lock_timeout', 'OTHERS' ], [ 'statement_timeout', 'query_canceled' ])
	{
		my ($timeout, $caught) = @$case;
		my $session = background($node, is_connected => 1);
		my ($program) = session_programs($session->pid);
		$session->query_safe("SELECT zk_lock('lost'); SET $timeout = '3s'");
		$session->start_query("DO \$\$ BEGIN
			BEGIN LOCK TABLE busy; EXCEPTION WHEN $caught THEN RAISE LOG 'caught'; END;
			PERFORM pg_sleep(1);
		END \$\$");
		wait_for_lock($node, $session->pid);
		kill STOP => $session->pid;
		kill KILL => $program;
		my $stopped = time;
		poll_until { time > $stopped + 3.5 } 'the time of the wait to be over';
		kill CONT => $session->pid;
		assert_ends($session, '40001', "a loss beside a $timeout");
		like($session->error, qr/lock "lost" was lost.* at RAISE/s, 'the error names the lock, behind the handler of the timeout');
		assert_leave_nothing($zk, lock_path('lost'), $session);
	}
};

subtest 'a loss is reported with 40001 in the extended protocol' => sub {
	append_to_file(my $script = $node->basedir . '/lost.sql', "SELECT zk_lock('lost'), pg_sleep(60);\n");
	foreach my $mode (qw(extended prepared))
	{
		my $bench = IPC::Run::start(
			[ $node->installed_command('pgbench'), '-n', '-M', $mode, '-t', 1, '--failures-detailed', '-f', $script, $node->connstr('postgres') ],
			'>', \my $out, '2>', \my $error);
		my $pid;
		poll_until
		{
			($pid = ask($node, "SELECT pid FROM pg_stat_activity WHERE query LIKE '%pg_sleep(60)%' AND wait_event = 'PgSleep'")) ne '';
		}
		"$mode: it holds the lock and sleeps", 60;
		kill KILL => session_programs($pid);
		$bench->finish;
		like($out, qr/number of serialization failures: 1 /, "$mode: pgbench counts a serialization failure") || note($error);
		assert_no_nodes($zk, lock_path('lost'), 'no queue node is left');
	}
};

# What cancels a statement later is none of the loss, whatever came of that: it was said by an
# error of ours that was caught, by the cancellation itself that was caught, or nobody was
# interrupted, for the session was idle.
subtest 'a cancellation after a loss that was dealt with keeps its own message' => sub {
	my $catch = "DO \$\$ BEGIN
		%s
		BEGIN
			LOOP
				PERFORM pg_sleep(0.01), zk_fencing_token('lost');
				%s
			END LOOP;
		EXCEPTION WHEN query_canceled OR serialization_failure THEN
			NULL;
		END;
		PERFORM zk_unlock_all();
		%s
	END \$\$";
	my $sleep = 'PERFORM pg_sleep(60);';
	my $again = "BEGIN $sleep EXCEPTION WHEN division_by_zero THEN NULL; END;";
	my %way = (
		'an error that was caught' => [ 'SELECT 1', sprintf($catch, "PERFORM zk_lock('lost');", "PERFORM zk_lock('lost');", $sleep) ],
		'a cancellation that was caught' => [ "SELECT zk_lock('lost')", sprintf($catch, '', '', $sleep) ],
		'likewise, and in another block' => [ "SELECT zk_lock('lost')", sprintf($catch, '', '', $again) ],
		'idle' => [ "SELECT zk_lock('lost')", 'SELECT pg_sleep(60), zk_fencing_token($$lost$$)' ]);
	foreach my $way (sort keys %way)
	{
		foreach my $by (qw(pg_cancel_backend statement_timeout))
		{
			my ($setup, $sql) = @{ $way{$way} };
			my $session = background($node, is_connected => 1);
			$session->query_safe($setup);
			$session->query_safe("SET statement_timeout = '8s'") if $by eq 'statement_timeout';
			my ($program) = session_programs($session->pid);
			if ($way eq 'idle')
			{
				kill KILL => $program;
				poll_until { !-d "/proc/$program" } 'the program to be reaped';
				my $killed = time;
				poll_until { time > $killed + 0.5 } 'the signal to be long past';
			}
			$session->start_query($sql);
			if ($way ne 'idle')
			{
				wait_for_queue($zk, lock_path('lost'), 1);
				wait_for_sleep($node, $session->pid);
				kill KILL => $program;
				# Nothing of it is left when it has dealt with its loss.
				assert_no_nodes($zk, lock_path('lost'), "$way: it is lost");
			}
			wait_for_sleep($node, $session->pid);
			# That it has gone on until its timeout, that one's own words say.
			if ($by eq 'pg_cancel_backend')
			{
				my $slept = time;
				poll_until { time > $slept + 1 } 'it to sleep on';
				ok(!$session->is_done, "$way: it goes on");
				$session->cancel;
			}
			assert_ends($session, '57014', "the statement is canceled by $by");
			like($session->error, $by eq 'pg_cancel_backend' ? qr/due to user request/ : qr/due to statement timeout/, 'the error has the words of the later cancellation');
		}
	}
};

done_testing();
