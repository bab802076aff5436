
# A release in a transaction that has written takes effect when the transaction ends: whoever is
# next sees what was written under the lock. Until then the lock is held, and can be taken again.
# Any other transaction releases at once, and so does DISCARD ALL.

use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk, 'deadlock_timeout' => '200ms', max_prepared_transactions => 5);
my $stranger = $zk->client;
$node->safe_psql('postgres', q{
	CREATE TABLE work (i int, released bool);
	CREATE TABLE fired (i int);
	CREATE FUNCTION release_all() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM zk_unlock_all(); RETURN NULL; END $$;
	CREATE FUNCTION release() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM zk_unlock('way'); RETURN NEW; END $$;
	CREATE TRIGGER fires BEFORE INSERT ON fired FOR EACH ROW EXECUTE FUNCTION release();
	CREATE TRIGGER truncates BEFORE TRUNCATE ON fired EXECUTE FUNCTION release_all();
	CREATE TABLE copied (i int, released bool DEFAULT zk_unlock('way'));
	CREATE FUNCTION release_ahead() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM zk_unlock('way'); END $$;
	CREATE PROCEDURE many(n int, ends_each bool) LANGUAGE plpgsql AS $$ BEGIN
		FOR i IN 1 .. n LOOP
			PERFORM zk_lock('many/' || i);
			INSERT INTO work VALUES (i);
			PERFORM zk_unlock('many/' || i);
			IF ends_each THEN COMMIT; END IF;
		END LOOP;
	END $$;
});
$node->safe_psql('postgres', q{CREATE EVENT TRIGGER ahead ON ddl_command_start WHEN TAG IN ('COMMENT') EXECUTE FUNCTION release_ahead()});
my ($holder, $next) = map { background($node, is_connected => 1) } 1 .. 2;

# What zk_session_locks says of the lock: state and acquisitions.
sub shown ($session, $name)
{
	return $session->query_safe("SELECT string_agg(concat_ws(' ', mode, state, session_acquisitions + call_acquisitions + xact_acquisitions), ', ' ORDER BY mode)
		FROM zk_session_locks WHERE name = '$name'");
}

sub delete_node ($name)
{
	$stranger->delete(lock_path("$name/$_")) foreach queue_nodes($zk, lock_path($name));
	return;
}

# How a transaction has written, with the release of the lock 'way' in it.
my $unlock = q{SELECT zk_unlock('way')};
my %writes = (
	'a row' => "INSERT INTO work VALUES (1); $unlock",
	'a notification' => "NOTIFY work; $unlock",
	'a savepoint that was released' => "SAVEPOINT s; INSERT INTO work VALUES (1); RELEASE s; $unlock",
	'a savepoint that was rolled back' => "SAVEPOINT s; INSERT INTO work VALUES (1); ROLLBACK TO s; $unlock",
	'by the statement itself' => q{INSERT INTO work VALUES (1, zk_unlock('way'))},
	'by the statement itself, within a block' => q{DO $$ BEGIN INSERT INTO work VALUES (1, zk_unlock('way')); END $$},
	'by a CTE' => q{WITH w AS (INSERT INTO work VALUES (1)) SELECT zk_unlock('way')},
	'in a BEFORE trigger' => 'INSERT INTO fired VALUES (1)',
	'in a BEFORE trigger of TRUNCATE' => 'TRUNCATE fired',
	'in a parameter of EXECUTE' => q{PREPARE ins AS INSERT INTO work VALUES (1, $1); EXECUTE ins(zk_unlock('way')); DEALLOCATE ins},
	'in a DEFAULT of COPY' => qq{COPY copied (i) FROM PROGRAM 'echo 1'},
	'in a trigger ahead of a command' => 'COMMENT ON TABLE work IS NULL',
	'zk_unlock_all' => 'INSERT INTO work VALUES (1); SELECT zk_unlock_all()',
	'zk_unlock_set' => q{INSERT INTO work VALUES (1); SELECT zk_unlock_set(ARRAY['way'])});

foreach my $way (sort keys %writes)
{
	subtest "a release stays to the end of the transaction: $way" => sub {
		foreach my $end (qw(COMMIT ROLLBACK))
		{
			my $token = $holder->query_safe("SELECT zk_lock('way')");
			$holder->query_safe("BEGIN; $writes{$way}");
			is($holder->error, '', 'nothing is said');
			is(shown($holder, 'way'), 'exclusive leaving 0', 'zk_session_locks');
			is($next->query_safe("SELECT state, token FROM zk_locks WHERE name = 'way'"), "leaving|$token", 'zk_locks');
			is($next->query_safe("SELECT state, token FROM zk_lock_queue('way')"), "held|$token", 'zk_lock_queue');
			is($next->query_safe("SELECT zk_try_lock('way')"), 'f', 'nobody else gets the lock');
			is($holder->query_safe("SELECT zk_is_held('way'), zk_fencing_token('way') IS NULL"), 'f|t', 'the user holds it no more');
			start_to_wait($next, "SELECT zk_lock('way') > $token");
			$holder->query_safe($end);
			is($next->wait_result, 't', "$end: the next one gets the lock");
			is(shown($holder, 'way'), '', 'and the holder has it no more');
			$next->query_safe("SELECT zk_unlock('way')");
		}
	};
}

subtest 'the next holder sees what was written' => sub {
	my $count = background($node, is_connected => 1);
	$holder->query_safe("TRUNCATE work; BEGIN; SELECT zk_lock('seen'); INSERT INTO work VALUES (1); SELECT zk_unlock('seen')");
	start_to_wait($count, q{DO $$ BEGIN PERFORM zk_lock('seen'); RAISE NOTICE 'rows: %', (SELECT count(*) FROM work); PERFORM zk_unlock('seen'); END $$});
	$holder->query_safe('COMMIT');
	$count->wait_result;
	like($count->error, qr/rows: 1/, 'the row is there');
};

subtest 'any other transaction releases at once' => sub {
	foreach my $sql ("BEGIN; $unlock", "UPDATE work SET i = 1 WHERE false; BEGIN; UPDATE work SET i = 1 WHERE false; $unlock",
		"BEGIN; SAVEPOINT s; SELECT zk_unlock('way'); ROLLBACK TO s", "BEGIN; SELECT count(*) FROM work; SELECT zk_unlock_all()")
	{
		$holder->query_safe("SELECT zk_lock('way')");
		$holder->query_safe($sql);
		is(shown($holder, 'way'), '', $sql);
		assert_soon { $next->query_safe("SELECT zk_try_lock('way')") eq 't' } 'the lock is free';
		$next->query_safe("SELECT zk_unlock('way')");
		$holder->query_safe('ROLLBACK');
	}
};

subtest 'a lock that is leaving can be taken again, with its token' => sub {
	my $token = $holder->query_safe("SELECT zk_lock('again')");
	$holder->query_safe("BEGIN; INSERT INTO work VALUES (1); SELECT zk_unlock('again')");
	is($holder->query_safe("SELECT zk_lock('again')"), $token, 'the same token');
	is(shown($holder, 'again'), 'exclusive held 1', 'it is held');
	is($holder->query_safe("SELECT zk_lock_shared('again'), zk_try_xact_lock('again')"), "$token|t", 'in other modes and scopes, too');
	$holder->query_safe("SELECT zk_unlock_shared('again'), zk_unlock('again'); SAVEPOINT s; SELECT zk_xact_lock('again')");
	is(shown($holder, 'again'), 'exclusive held 2', 'it is held in transaction scope');
	$holder->query_safe('COMMIT');
	is(shown($holder, 'again'), '', 'it is left with the transaction');

	$holder->query_safe("SELECT zk_lock('again')");
	$token = $holder->query_safe("BEGIN; INSERT INTO work VALUES (1); SELECT zk_unlock('again'); SAVEPOINT s; SELECT zk_xact_lock('again')");
	$holder->query_safe('ROLLBACK TO s');
	is(shown($holder, 'again'), 'exclusive leaving 0', 'what ROLLBACK TO gives back goes back to leaving');
	is($next->query_safe("SELECT zk_try_lock('again')"), 'f', 'and nobody else gets it');
	$holder->query_safe("SELECT zk_lock('again'); COMMIT");
	is(shown($holder, 'again'), 'exclusive held 1', 'what was taken again in session scope stays');
	$holder->query_safe("SELECT zk_unlock('again')");
	is(shown($holder, 'again'), '', 'until it is released');

	# released while it is taken in another scope, too, which ends first
	foreach my $release ("zk_unlock('again')", 'zk_unlock_all()')
	{
		$holder->query_safe("SELECT zk_lock('again'); BEGIN; INSERT INTO work VALUES (1); SAVEPOINT s; SELECT zk_xact_lock('again'); SELECT $release; ROLLBACK TO s");
		is(shown($holder, 'again'), 'exclusive leaving 0', "$release ahead of ROLLBACK TO");
		$holder->query_safe('COMMIT');
		is(shown($holder, 'again'), '', 'it is left with the transaction');
	}

	# what a call gives back that fails
	$next->query_safe("SELECT zk_lock('busy')");
	$holder->query_safe("SELECT zk_lock('again'); BEGIN; INSERT INTO work VALUES (1); SELECT zk_unlock('again')");
	is($holder->query_safe("SELECT zk_try_lock_set(ARRAY['again', 'busy', 'free'])"), 'f', 'a set of which one is busy');
	is(shown($holder, 'again'), 'exclusive leaving 0', 'the one that was leaving is so again');
	is(shown($holder, 'free'), '', 'the other one is given back at once');
	$holder->query_safe('ROLLBACK');
	$next->query_safe("SELECT zk_unlock('busy')");
};

subtest 'what takes a leaving lock anew is refused, and waits for nobody' => sub {
	my %refused = (
		"zk_lock('up')" => 'zk_lock_shared', "zk_try_lock('up')" => 'zk_lock_shared', "zk_xact_lock('up')" => 'zk_lock_shared',
		"zk_lock('up', permits => 2)" => 'zk_lock', "zk_try_lock('up', permits => 2)" => 'zk_lock',
		"zk_hold('up', 'why')" => 'zk_lock', "zk_try_lease('up', 'me', '1min')" => 'zk_lock');
	foreach my $call (sort keys %refused)
	{
		my $release = $refused{$call} =~ s/lock/unlock/r;
		$holder->query_safe("SELECT $refused{$call}('up'); BEGIN; INSERT INTO work VALUES (1); SELECT $release('up')");
		assert_query($holder, "SELECT $call", '55000', $call);
		like($holder->error, qr/lock "up" is held by this session until the transaction ends.*HINT:  COMMIT first/s, 'the error says why');
		$holder->query_safe('ROLLBACK');
		is(shown($holder, 'up'), '', 'and it is gone');
	}
};

subtest 'a release twice warns, and says that the first one takes effect later' => sub {
	$holder->query_safe("SELECT zk_lock('twice'); BEGIN; INSERT INTO work VALUES (1); SELECT zk_unlock('twice')");
	is($holder->query("SELECT zk_unlock('twice')"), 'f', 'the second one');
	like($holder->error, qr/WARNING:  lock "twice" is not held.*HINT:  It was released before in this transaction/s, 'the hint');
	$holder->query_safe('COMMIT');
};

subtest 'PREPARE TRANSACTION and zk_disconnect() are refused' => sub {
	$holder->query_safe("SELECT zk_lock('prepared'); BEGIN; INSERT INTO work VALUES (1); SELECT zk_unlock('prepared')");
	assert_query($holder, 'SAVEPOINT s; SELECT zk_disconnect()', '25001', 'zk_disconnect() with a leaving lock');
	$holder->query_safe('ROLLBACK TO s');
	assert_query($holder, q{PREPARE TRANSACTION 'p'}, '0A000', 'PREPARE with a leaving lock');
	is(shown($holder, 'prepared'), '', 'the failed transaction has released it');
	$holder->query_safe("SELECT zk_lock('prepared'); BEGIN; INSERT INTO work VALUES (1)");
	assert_query($holder, 'SELECT zk_disconnect()', '25001', 'zk_disconnect() with a held lock');
	$holder->query_safe("ROLLBACK; BEGIN; SELECT zk_unlock('prepared'); INSERT INTO work VALUES (1); PREPARE TRANSACTION 'p'; ROLLBACK PREPARED 'p'");
	is(shown($holder, 'prepared'), '', 'what was released before it wrote does not matter');
	$holder->query_safe("SELECT zk_lock('prepared'); BEGIN; INSERT INTO work VALUES (1); SELECT zk_unlock('prepared'), zk_lock('prepared') > 0; PREPARE TRANSACTION 'p'; ROLLBACK PREPARED 'p'");
	is(shown($holder, 'prepared'), 'exclusive held 1', 'nor what was taken again in session scope, which stays');
	$holder->query_safe("SELECT zk_unlock('prepared')");
	$holder->query_safe("BEGIN; INSERT INTO work VALUES (1); SELECT zk_disconnect(); COMMIT");
};

subtest 'DISCARD ALL releases at once, whatever was lost' => sub {
	$holder->query_safe("SELECT zk_lock('discarded'), zk_lock('lost'); CREATE TEMP TABLE temporary (i int)");
	delete_node('lost');
	# The loss may cancel the question.
	poll_until { $holder->query("SELECT state FROM zk_session_locks WHERE name = 'lost'") eq 'lost' } 'the loss to be known', 30;
	is(shown($holder, 'lost'), 'exclusive lost 1', 'the loss is known');
	$holder->query_safe('DISCARD ALL');
	is($holder->sqlstate, '00000', 'DISCARD ALL succeeds');
	like($holder->error, qr/WARNING:  lock "lost" had been lost before it was released/, 'and warns of the loss');
	unlike($holder->error, qr/discarded/, 'of nothing else');
	is($holder->query_safe('SELECT count(*) FROM zk_session_locks'), 0, 'all are released');
	assert_released($zk, 'discarded', $holder);
};

subtest 'a leaving lock that is lost interrupts, dooms its transaction, and is gone after it' => sub {
	foreach my $sql ('SELECT pg_sleep(60)', 'COMMIT')
	{
		$holder->query_safe("TRUNCATE work; SELECT zk_lock('doomed'); BEGIN; INSERT INTO work VALUES (1); SELECT zk_unlock('doomed')");
		$holder->start_query($sql) if $sql =~ /sleep/;
		wait_for_sleep($node, $holder->pid) if $sql =~ /sleep/;
		delete_node('doomed');
		if ($sql =~ /sleep/)
		{
			$holder->wait_result;
			is($holder->sqlstate, '40001', "$sql: the statement is interrupted");
			like($holder->error, qr/lock "doomed" was lost/, 'and says so');
			$holder->query_safe('ROLLBACK');
		}
		else
		{
			wait_in_transaction($holder, "SELECT state FROM zk_session_locks WHERE name = 'doomed'", 'lost');
			is(shown($holder, 'doomed'), 'exclusive lost 0', 'the loss is known');
			assert_query($holder, $sql, '40001', $sql);
		}
		is($node->safe_psql('postgres', 'SELECT count(*) FROM work'), 0, 'nothing is written');
		is(shown($holder, 'doomed'), '', 'it is gone');
		assert_query($holder, "BEGIN; INSERT INTO work VALUES (1); COMMIT", '00000', 'the next transaction commits');
	}
};

subtest 'with commit_guard quorum the COMMIT asks for a leaving lock' => sub {
	$holder->query_safe("TRUNCATE work; SET zklock.commit_guard = quorum; SELECT zk_lock('asked'); BEGIN; INSERT INTO work VALUES (1); SELECT zk_unlock('asked')");
	delete_node('asked');
	assert_query($holder, 'COMMIT', '40001', 'COMMIT');
	$holder->query_safe('RESET zklock.commit_guard');
};

subtest 'a loop over many names in one transaction' => sub {
	my $few = background($node, 'zklock.max_locks' => 10);
	assert_query($few, 'CALL many(11, false)', '53400', 'it reaches zklock.max_locks');
	like($few->error, qr/DETAIL:  This session holds 10.*It has released 10 of them in this transaction.*HINT:  COMMIT more often, for example in a procedure/s, 'the error says why');
	assert_query($few, 'CALL many(20, true)', '00000', 'it does not, where each turn commits');
	assert_query($few, q{BEGIN; DO $$ BEGIN FOR i IN 1 .. 20 LOOP PERFORM zk_lock('many/' || i), zk_unlock('many/' || i); END LOOP; END $$; COMMIT},
		'00000', 'nor where nothing is written');
};

subtest 'a deadlock through a leaving lock is found, and the error says so' => sub {
	$holder->query_safe("BEGIN; SELECT zk_lock('one'); INSERT INTO work VALUES (1); SELECT zk_unlock('one')");
	$next->query_safe("BEGIN; SELECT zk_lock('two'); INSERT INTO work VALUES (1); SELECT zk_unlock('two')");
	$_->query_safe("SAVEPOINT s") foreach $holder, $next;
	$next->start_query("SELECT zk_lock('one')");
	$holder->start_query("SELECT zk_lock('two')");
	assert_soon { $holder->is_done || $next->is_done } 'one of both gives way';
	my ($victim, $other) = $holder->is_done ? ($holder, $next) : ($next, $holder);
	$victim->wait_result;
	is($victim->sqlstate, '40P01', 'it is a deadlock');
	like($victim->error, qr/This process has released locks in its transaction, which has written: others get them when it ends/, 'the DETAIL says why');
	$victim->query_safe('ROLLBACK');
	$other->wait_result;
	is($other->sqlstate, '00000', 'the other one gets the lock');
	$_->query_safe('ROLLBACK; SELECT zk_unlock_all()') foreach $holder, $next;
};

subtest 'a backend that ends leaves nothing' => sub {
	foreach my $how (qw(terminate kill))
	{
		my $dying = background($node, first => "SELECT zk_lock('dying')");
		$dying->query_safe("BEGIN; INSERT INTO work VALUES (1); SELECT zk_unlock('dying')");
		$dying->terminate if $how eq 'terminate';
		kill_session_program($dying) if $how eq 'kill';
		assert_no_nodes($zk, lock_path('dying'), "$how: its node is gone");
	}
};

subtest 'a lock that may be kept is kept when the transaction has ended' => sub {
	$holder->query_safe("SET zklock.keep = '1min'; SELECT zk_lock('keep'); BEGIN; INSERT INTO work VALUES (1); SELECT zk_unlock('keep')");
	is(shown($holder, 'keep'), 'exclusive leaving 0', 'until then it is leaving');
	$holder->query_safe('COMMIT');
	is(shown($holder, 'keep'), 'exclusive kept 0', 'then it is kept');
	$holder->query_safe('RESET zklock.keep; SELECT zk_unlock_all()');
};

subtest 'a lock in both modes keeps others out until both are released' => sub {
	$holder->query_safe("SELECT zk_lock('both'), zk_lock_shared('both')");
	is(shown($holder, 'both'), 'exclusive held 1, shared held 1', 'two rows');
	is($holder->query("SELECT zk_unlock('both')"), 't', 'the exclusive one is released');
	like($holder->error, qr/NOTICE:  lock "both" is still held in exclusive mode/, 'a NOTICE');
	is(shown($holder, 'both'), 'exclusive held 0, shared held 1', 'it is shown as exclusive');
	is($next->query_safe("SELECT zk_try_lock_shared('both')"), 'f', 'readers wait');
	is($next->query_safe("SELECT string_agg(mode, ' ') FROM zk_lock_queue('both')"), 'exclusive', 'its node is the exclusive one');
	assert_query($holder, "SELECT zk_lock('both')", '00000', 'it can be taken again, for it is exclusive');
	$holder->query_safe("SELECT zk_unlock_shared('both'), zk_unlock('both')");
	is($holder->error, '', 'the other order says nothing');
	assert_soon { $next->query_safe("SELECT zk_try_lock_shared('both')") eq 't' } 'then readers get in';
	$next->query_safe('SELECT zk_unlock_all()');
};

assert_leave_nothing($zk, lock_path('way'), $holder, $next);
done_testing();
