
# A transaction that has lost a lock does not commit, and a loss that comes after the commit
# guard undoes nothing: this tests the moments around COMMIT, with losses before, during and
# after the proof, and with waits for standbys and for other sessions that notify. Real servers;
# locks are lost by deleting their znodes, and a proxy holds up replies.

use Proxy;
use ZkLockTest;

my $zk = ZooKeeper->new(tick_time => 500)->start;
my $foreign = $zk->client;
# Without walsenders there is no synchronous replication to wait for.
my $node = cluster('berlin', $zk, init => [ allows_streaming => 1 ]);
# Of sessions that are to be lost, or whose proofs are to be old, soon.
my @short = ('zklock.session_timeout' => '3s');
$node->safe_psql('postgres', 'CREATE TABLE written (what text)');

sub written ($what)
{
	return $node->safe_psql('postgres', "SELECT count(*) FROM written WHERE what = '$what'");
}

# Name the standbys that a commit waits for, in this cluster or another; '' for none.
sub set_standbys ($names, $cluster = undef)
{
	$cluster //= $node;
	$cluster->append_conf('postgresql.conf', "synchronous_standby_names = '$names'");
	$cluster->reload;
	poll_until { $cluster->safe_psql('postgres', 'SHOW synchronous_standby_names') eq $names } 'the setting';
	wait_for_demand($cluster) if $names ne '';
	return;
}

sub wait_event ($session, $cluster = undef)
{
	$cluster //= $node;
	return $cluster->safe_psql('postgres', 'SELECT wait_event FROM pg_stat_activity WHERE pid = ' . $session->pid);
}

# Take a lock away by hand.
sub evict ($lock)
{
	my ($path) = map { $_->[0] } $zk->ephemerals(lock_path($lock) . '/');
	return $foreign->delete($path);
}

# The same, and the holder is told when it asks.
sub lose ($session, $lock)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	evict($lock);
	return assert_knows_loss($session, $lock, 'it is lost');
}

# This one notifies, and its commit waits for a standby. So the commits of others that notify
# wait for it.
sub hold_up_notifiers ($first, $table = 'written', $cluster = undef)
{
	$first->query_safe('SET synchronous_commit = on');
	set_standbys('nobody', $cluster);
	$first->start_query("INSERT INTO $table SELECT pg_notify('news', '')");
	poll_until { wait_event($first, $cluster) eq 'SyncRep' } 'the first to wait';
	return;
}

# Until the commit in this statement waits for that of another one that notifies.
sub start_to_wait_for_notifiers ($session, $sql)
{
	$session->start_query($sql);
	poll_until { wait_event($session) eq 'object' } 'the second to wait';
	return;
}

# The commit waits for a standby while the ensemble is paused, past the session timeout, when the
# session's clock would have run out. Then no standby is demanded any more.
sub assert_commits_late ($session, $commit)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	set_standbys('nobody');
	$session->start_query($commit);
	poll_until { wait_event($session) eq 'SyncRep' } 'it to wait';
	$zk->pause;
	background($node, first => 'SELECT pg_sleep(4.5)');
	is(wait_event($session), 'SyncRep', 'it still waits');
	ok(!$session->is_done, 'the client still waits for its COMMIT');
	set_standbys('');
	assert_ends($session, '00000', 'committed');
	return unlike($session->error, qr/canceling wait/, 'no cancellation');
}

# PostgreSQL answers a cancellation of this wait with a WARNING and "COMMIT":
# the client would believe in a commit that no standby has. So the loss of the
# lock must not be one.
subtest 'a loss of the lock does not cancel a commit that waits for a standby' => sub {
	my $session = background($node, @short, synchronous_commit => 'on',
		first => "BEGIN; SELECT zk_xact_lock('sync'); INSERT INTO written VALUES ('sync')");
	assert_commits_late($session, 'COMMIT');
	$zk->resume;
	is(written('sync'), '1', 'the row is there');
	assert_leave_nothing($zk, lock_path('sync'), $session);
};

# The process is stopped when it has asked for its proof and has not read the
# answer. When it goes on, the answer is there, and says what was true then.
subtest 'a proof that was asked for before a pause of the backend is not accepted at commit' => sub {
	my $proxy = Proxy->new($zk->connect_string);
	my $old = background($node, @short, route => $proxy->address, 'zklock.commit_guard' => 'quorum',
		first => "BEGIN; SELECT zk_xact_lock('proof'); INSERT INTO written VALUES ('proof')");
	my $new = background($node);
	$proxy->cut('replies');
	my $received = $zk->packets_received;
	$old->start_query('COMMIT');
	poll_until { $zk->packets_received > $received } 'the question to arrive';
	kill 'STOP', $old->pid;
	$proxy->heal;
	$new->query_safe("SELECT zk_lock('proof', '30s')");
	kill 'CONT', $old->pid;
	assert_ends($old, '40001', 'the commit is refused');
	is(written('proof'), '0', 'nothing is written');
};

# Deleted by hand, then granted to another: with the exclusive acquisition released, the
# shared one is lost, too.
subtest 'an evicted lock that was held in both modes does not come back in one of them' => sub {
	my ($old, $new) = map { background($node) } 1 .. 2;
	$old->query_safe("SELECT zk_lock('evicted'), zk_lock_shared('evicted')");
	evict('evicted');
	$new->query_safe("SELECT zk_lock('evicted')");
	$old->query_safe("SELECT zk_unlock('evicted')");
	assert_knows_loss($old, 'evicted', 'the evicted holder holds nothing');
	assert_held($new, 'evicted', 'the new one does');
	assert_nodes($zk, lock_path('evicted'), 1, 'no other contender is in the queue');
	$old->query_safe("BEGIN; INSERT INTO written VALUES ('evicted')");
	assert_query($old, 'COMMIT', '40001', 'the evicted holder commits nothing');
};

subtest 'a transaction that releases a lost lock is refused all the same' => sub {
	my $session = background($node);
	my $held = 'SELECT session_acquisitions, state FROM zk_session_locks';
	my %taken = (q{zk_unlock('released')} => 'zk_lock', q{zk_unlock_shared('released')} => 'zk_lock_shared',
		q{zk_unlock_set(ARRAY['released'])} => 'zk_lock', 'zk_unlock_all()' => 'zk_lock');
	foreach my $way (sort keys %taken)
	{
		$session->query_safe("SELECT $taken{$way}('released')");
		$session->query_safe("BEGIN; INSERT INTO written VALUES ('released')");
		lose($session, 'released');
		$session->query_safe("SELECT $way");
		like($session->error, qr/WARNING:  lock "released" had been lost before it was released/, "$way warns of the loss");
		is($session->query_safe($held), '0|lost', 'the lost lock is left when the transaction ends');
		assert_query($session, 'COMMIT', '40001', 'the commit is refused');
		like($session->error, qr/lock "released" was lost/, 'the error names the lock');
		is(written('released'), '0', 'nothing is written');
		is($session->query_safe($held), '', 'the transaction has left it');
	}
	$session->query_safe("INSERT INTO written VALUES ('later')");
	is(written('later'), '1', 'the next transaction is not refused');
};

subtest 'zk_disconnect() is refused in a transaction that has written and holds a lock, lost or not' => sub {
	my $session = background($node);
	foreach my $is_lost (0, 1)
	{
		$session->query_safe("SELECT zk_lock('released'); BEGIN; INSERT INTO written VALUES ('disconnected')");
		lose($session, 'released') if $is_lost;
		assert_query($session, 'SELECT zk_disconnect()', '25001', 'refused');
		$session->query_safe('ROLLBACK');
		assert_query($session, 'SELECT zk_disconnect()', '00000', 'not refused after the transaction');
	}
	is(written('disconnected'), '0', 'nothing is written');
};

# A commit is held up when it is past its guard, and not yet visible.
subtest 'a lock stays held until the commit is visible' => sub {
	foreach my $end ('no standby is demanded', 'canceled')
	{
		my $next = background($node);
		my $session = background($node, synchronous_commit => 'on',
			first => "BEGIN; SELECT zk_xact_lock('visible'); INSERT INTO written VALUES ('$end')");
		set_standbys('nobody');
		$session->start_query('COMMIT');
		poll_until { wait_event($session) eq 'SyncRep' } 'it to wait';
		assert_query($next, "SELECT zk_lock('visible', '1s')", '55P03', 'no other contender has the lock while the commit goes on');
		start_in_queue($next, "SELECT zk_lock('visible', '30s')", $zk, lock_path('visible'), 2);
		is(written($end), '0', 'the row is not visible while the commit goes on');
		$end eq 'canceled' ? $session->cancel : set_standbys('');
		assert_ends($next, '00000', "$end: then the next contender has the lock");
		is(written($end), '1', 'the row is visible when the lock has passed on');
		$session->wait_result;
		like($session->error, $end eq 'canceled' ? qr/committed locally/ : qr/^$/, 'the session is told how its commit ended');
		set_standbys('');
		assert_leave_nothing($zk, lock_path('visible'), $session, $next);
	}
};

# A cancellation that came before the commit is past its guard ends the transaction: later it
# could only end the wait for a standby. Here the last trigger asks for it, as it ends.
subtest 'a cancellation just before the commit guard ends the transaction' => sub {
	$node->safe_psql('postgres', q{CREATE TABLE canceled (what text);
		CREATE FUNCTION cancel() RETURNS trigger LANGUAGE plpgsql AS
			'BEGIN RETURN CASE WHEN pg_cancel_backend(pg_backend_pid()) THEN NULL::canceled END; END';
		CREATE CONSTRAINT TRIGGER cancel AFTER INSERT ON canceled DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW EXECUTE FUNCTION cancel()});
	my $session = background($node,
		first => "BEGIN; SELECT zk_xact_lock('canceled'); INSERT INTO canceled VALUES ('here')");
	assert_query($session, 'COMMIT', '57014', 'the commit is canceled');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM canceled'), '0', 'nothing is written');
};

# A transaction that notifies takes a lock of the whole cluster when it commits,
# and keeps it while it waits for a standby. Others that notify wait for it there:
# what they proved before says nothing any more.
subtest 'the commit guard waits for other sessions that notify before it asks for its proof' => sub {
	my @ways = ('NOTIFY news', q{SELECT pg_notify('news', '')});
	if (missing_extensions($node, 'tcn'))
	{
		note 'there is no tcn: a trigger that notifies is not tried';
	}
	else
	{
		$node->safe_psql('postgres', 'CREATE EXTENSION tcn; CREATE TABLE told (i int PRIMARY KEY);
			CREATE TRIGGER tell AFTER INSERT ON told
			FOR EACH ROW EXECUTE FUNCTION triggered_change_notification()');
		push @ways, 'INSERT INTO told VALUES (1)';
	}
	foreach my $way (@ways)
	{
		my ($first, $next) = map { background($node) } 1 .. 2;
		my $session = background($node, 'zklock.commit_guard' => 'quorum', synchronous_commit => 'local',
			first => "BEGIN; SELECT zk_xact_lock('news'); INSERT INTO written VALUES ('news'); $way");
		hold_up_notifiers($first);
		start_to_wait_for_notifiers($session, 'COMMIT');
		evict('news');
		$next->query_safe("SELECT zk_lock('news', '10 s')");
		set_standbys('');
		$first->wait_result;
		assert_ends($session, '40001', "$way: the commit is refused");
		is(written('news'), '0', 'nothing is written');
	}

	# A lease is proved anew behind that wait, too: by then a third of the session timeout is over.
	# Its guard would wait for standbys ahead of that, so none is demanded when it comes, which
	# the first one does not hear.
	my ($first, $session, $next) = map { background($node, @short) } 1 .. 3;
	my $token = $next->query_safe("SELECT zk_try_lease('news', 'app', '1 day')");
	$session->query_safe("SET synchronous_commit = local; BEGIN; INSERT INTO written VALUES ('leased'); NOTIFY news");
	hold_up_notifiers($first);
	kill STOP => $first->pid;
	set_standbys('');
	start_to_wait_for_notifiers($session, "SELECT zk_require_lease('news', $token); COMMIT");
	$next->query_safe("SELECT zk_evict('news', $token), pg_sleep(1.4)");
	kill CONT => $first->pid;
	$first->wait_result;
	assert_ends($session, '40001', 'a lease: the commit is refused');
	is(written('leased'), '0', 'nothing is written');
};

# postgres_fdw commits on its other connection while this one commits. That is to
# be over when we take the lock, or the two wait for each other; and it must not be
# done at all for a transaction that is known to have lost its lock.
subtest 'a commit with postgres_fdw does not deadlock when the remote transaction notifies, too' => sub {
	my @missing = missing_extensions($node, qw(postgres_fdw tcn));
	plan skip_all => "there is no @missing" if @missing;
	my $paris = cluster('paris', $zk, init => [ allows_streaming => 1 ]);
	my ($host, $port) = ($paris->host, $paris->port);
	$paris->safe_psql('postgres', "CREATE EXTENSION postgres_fdw;
		CREATE SERVER here FOREIGN DATA WRAPPER postgres_fdw
		OPTIONS (host '$host', port '$port', dbname 'postgres', options '-c lock_timeout=5s');
		CREATE USER MAPPING FOR CURRENT_USER SERVER here;
		CREATE EXTENSION tcn; CREATE TABLE told (i serial PRIMARY KEY, what text);
		CREATE TRIGGER tell AFTER INSERT ON told
		FOR EACH ROW EXECUTE FUNCTION triggered_change_notification();
		CREATE FOREIGN TABLE far (what text) SERVER here OPTIONS (table_name 'told')");
	my $told = sub {
		return $paris->safe_psql('postgres', "SELECT count(*) FROM told WHERE what = '$_[0]'");
	};
	my %order = (
		'the lock first' => [ "SELECT zk_lock('far')", 'SELECT FROM far' ],
		'the other connection first' => [ 'SELECT FROM far', "SELECT zk_lock('far')" ]);
	foreach my $order (sort keys %order)
	{
		my $session = background($paris);
		$session->query_safe($_) foreach @{ $order{$order} };
		$session->query_safe("BEGIN; INSERT INTO far VALUES ('$order'); NOTIFY news");
		assert_query($session, 'COMMIT', '00000', "$order: committed");
		is($told->($order), '1', 'committed on the remote server, too');

		if ($order eq 'the other connection first')
		{
			lose($session, 'far');
			$session->query_safe("BEGIN; INSERT INTO far VALUES ('late'); NOTIFY news");
			assert_query($session, 'COMMIT', '40001', 'refused');
			is($told->('late'), '0', 'nothing is written on the remote server');
			$session->query_safe("SELECT zk_unlock_all(), zk_lock('far');
				SET zklock.commit_guard = quorum");
			evict('far');
			$session->query_safe("BEGIN; INSERT INTO far VALUES ('unaware'); NOTIFY news");
			assert_query($session, 'COMMIT', '40001', 'refused, though nobody knew');
			is($told->('unaware'), '0', 'nothing is written on the remote server');
		}
	}

	# What happens there can take time. Then the quorum is asked again, behind the wait
	# for other notifiers as ever.
	$paris->safe_psql('postgres', q{CREATE TABLE plain (what text);
		CREATE TABLE slow (what text);
		CREATE FUNCTION be_slow() RETURNS trigger LANGUAGE plpgsql AS
			'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END';
		CREATE CONSTRAINT TRIGGER be_slow AFTER INSERT ON slow DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW EXECUTE FUNCTION be_slow();
		CREATE FOREIGN TABLE far_slow (what text) SERVER here OPTIONS (table_name 'slow');
		ALTER SERVER here OPTIONS (SET options '-c lock_timeout=30s -c synchronous_commit=local')});
	my ($first, $session, $gate, $next) = map { background($paris) } 1 .. 4;
	my $wait_for_lock = sub ($type, $what) {
		poll_until { $paris->safe_psql('postgres', "SELECT count(*) FROM pg_locks
			WHERE NOT granted AND locktype = '$type'") eq '1' } $what;
	};
	$gate->query_safe('SELECT pg_advisory_lock(1)');
	$session->query_safe('SELECT FROM far_slow');
	$session->query_safe("SET zklock.commit_guard = quorum; SET synchronous_commit = local;
		SELECT zk_lock('slow'); BEGIN; INSERT INTO far_slow VALUES ('slow');
		INSERT INTO plain VALUES ('slow'); NOTIFY news");
	$session->start_query('COMMIT');
	$wait_for_lock->('advisory', 'the commit there to wait');
	hold_up_notifiers($first, 'plain', $paris);
	$gate->query_safe('SELECT pg_advisory_unlock(1)');
	$wait_for_lock->('object', 'the commit here to wait');
	evict('slow');
	$next->query_safe("SELECT zk_lock('slow', '10 s')");
	set_standbys('', $paris);
	$_->wait_result foreach $first, $session;
	is($session->sqlstate, '40001', 'refused, after a long wait there and one here');
	is(ask($paris, "SELECT count(*) FROM plain WHERE what = 'slow'"), '0', 'nothing is written here');
};

# It is everybody's lock: who does not use zklock must not wait for ZooKeeper. The ensemble
# goes away while the session waits for that lock, so that its proof is too old behind it.
subtest 'other sessions that notify do not wait for ZooKeeper' => sub {
	my $timeout = Patience::steady(10);
	foreach my $guard (qw(fresh quorum))
	{
		my $first = background($node);
		my $session = background($node,
			'zklock.session_timeout' => "${timeout}s", 'zklock.commit_guard' => $guard, synchronous_commit => 'local',
			first => "BEGIN; SELECT zk_xact_lock('away'); INSERT INTO written VALUES ('$guard'); NOTIFY news");
		my $other = background($node, synchronous_commit => 'local', lock_timeout => '5s');
		my $granted = time;
		hold_up_notifiers($first);
		start_to_wait_for_notifiers($session, 'COMMIT');
		# The lease is two thirds of the session timeout.
		poll_until { $guard eq 'quorum' || time > $granted + 0.75 * $timeout } 'the proof to age', 60;
		$zk->pause;
		set_standbys('');
		$first->wait_result;
		wait_for_wait($node, $session->pid);
		assert_query($other, 'NOTIFY news', '00000', "$guard: another session notifies");
		ok(!$session->is_done, 'the commit with the old proof still waits');
		$zk->resume;
		assert_ends($session, '00000', 'the commit passes when ZooKeeper answers again');
		is(written($guard), '1', 'the row is written');
	}
};

# Many that notify, each behind a wait for the others: all of them get through.
subtest 'eight sessions that notify at a time all commit' => sub {
	my @crowd = map { background($node) } 1 .. 8;
	$crowd[$_]->query_safe("SET zklock.commit_guard = 'quorum'; SELECT zk_lock('crowd$_')") foreach 0 .. $#crowd;
	foreach my $round (1 .. 5)
	{
		$_->start_query("INSERT INTO written SELECT 'crowd' FROM pg_sleep(0.01), pg_notify('news', '')") foreach @crowd;
		assert_ends($_, '00000', "committed in round $round") foreach @crowd;
	}
	is(written('crowd'), 5 * @crowd, 'all is written');
};

# Without anything to wait for in between, the quorum is asked once.
subtest 'commit_guard = quorum asks ZooKeeper once for each commit' => sub {
	my $session = background($node,
		'zklock.session_timeout' => '10s', 'zklock.commit_guard' => 'quorum', holds => 'once');
	foreach my $what ("INSERT INTO written VALUES ('once')", 'NOTIFY news')
	{
		# The check, and the look at its node behind it.
		assert_least
		{
			my $before = $zk->packets_received;
			$session->query_safe($what);
			$zk->packets_received - $before;
		}
		2, "$what: two packets";
	}
};

subtest 'a transaction that only notifies counts as one that writes' => sub {
	my $session = background($node, holds => 'only');
	lose($session, 'only');
	assert_query($session, 'NOTIFY news', '40001', 'the notification is refused');
	$session->query_safe('BEGIN; SAVEPOINT s; NOTIFY news; ROLLBACK TO s; COMMIT');
	$session->query_safe('BEGIN; NOTIFY news');
	is($session->query_safe("SELECT zk_unlock('only')"), 'f', 'the lock is released');
	assert_query($session, 'COMMIT', '40001', 'the release does not make the commit pass');
	$session->query_safe('NOTIFY news');
};

subtest 'a transaction that only listens, or no longer listens, counts as one that writes' => sub {
	my $listens = 'SELECT * FROM pg_listening_channels()';
	foreach my $command ('LISTEN weather', 'UNLISTEN news', 'UNLISTEN *')
	{
		my $session = background($node, holds => 'only');
		# PostgreSQL ignores UNLISTEN in a session that has never listened.
		$session->query_safe('LISTEN news');
		lose($session, 'only');
		assert_query($session, $command, '40001', "$command is refused");
		is($session->query_safe($listens), 'news', "nothing of it remains: $command");
		$session->query_safe("BEGIN; SAVEPOINT s; $command; ROLLBACK TO s; COMMIT");
	}
};

subtest 'COMMIT PREPARED passes the commit guard as COMMIT does' => sub {
	my $session = background($node, 'zklock.commit_guard' => 'quorum');
	my $prepared = "SELECT count(*) FROM pg_prepared_xacts";
	foreach my $is_known (0, 1)
	{
		$session->query_safe("SELECT zk_lock('two'); BEGIN;
			INSERT INTO written VALUES ('two'); PREPARE TRANSACTION 'two'");
		$is_known ? lose($session, 'two') : evict('two');
		assert_query($session, "COMMIT PREPARED 'two'", '40001', 'refused');
		is($session->query_safe($prepared), '1', 'still prepared');
		$session->query_safe("ROLLBACK PREPARED 'two'");
		is($session->query_safe($prepared), '0', 'to roll it back is not refused');
		is(written('two'), '0', 'nothing is written');
		$session->query_safe('SELECT zk_unlock_all()');
	}
	$session->query_safe("SELECT zk_lock('two'); BEGIN;
		INSERT INTO written VALUES ('two'); PREPARE TRANSACTION 'two'");
	assert_query($session, "COMMIT PREPARED 'other'", '42704', 'COMMIT PREPARED of an unknown transaction fails as without zklock');
	$session->query_safe("COMMIT PREPARED 'two'");
	is(written('two'), '1', 'committed while the lock is held');
	evict('two');
	assert_query($session, "BEGIN; INSERT INTO written VALUES ('two'); PREPARE TRANSACTION 'two'",
		'40001', 'PREPARE TRANSACTION is refused without the lock');
};

subtest 'a loss of the lock does not cancel COMMIT PREPARED that waits for a standby' => sub {
	my $session = background($node, @short, holds => 'wait',
		first => "BEGIN; INSERT INTO written VALUES ('wait'); PREPARE TRANSACTION 'wait'");
	assert_commits_late($session, "COMMIT PREPARED 'wait'");

	# A loss that interrupts nobody is declared later, so perhaps only now; and
	# it may meet one of these statements.
	poll_until { $session->query('SELECT state FROM zk_session_locks') eq 'lost' } 'the lock to be lost';
	$zk->resume;

	# From now on a loss interrupts again.
	$session->query_safe("SELECT zk_unlock_all(), zk_lock('wait')");
	$session->start_query('SELECT pg_sleep(60)');
	wait_for_sleep($node, $session->pid);
	$zk->pause;
	assert_ends($session, '40001', 'the next statement is interrupted');
	$zk->resume;
};

# Whether a transaction has notified is found out by an error that nobody sees.
subtest 'the commit guard works with exit_on_error = on' => sub {
	my $session = background($node, first => "SET exit_on_error = on; SELECT zk_lock('careful')");
	$session->query_safe('BEGIN; NOTIFY news; COMMIT');
	is($session->query_safe('SHOW exit_on_error'), 'on', 'the session goes on');
};

# In a transaction block COMMIT PREPARED is refused, and the transaction may go on.
subtest 'a refused COMMIT PREPARED in a transaction block leaves losses interrupting statements' => sub {
	my $session = background($node, first => "SELECT zk_lock('block'); BEGIN; SAVEPOINT s");
	assert_query($session, "COMMIT PREPARED 'nothing'", '25001', 'refused');
	$session->query_safe('ROLLBACK TO s');
	my ($program) = session_programs($session->pid);
	$session->start_query('SELECT pg_sleep(60)');
	wait_for_sleep($node, $session->pid);
	kill 'KILL', $program;
	assert_ends($session, '40001', 'a loss still interrupts');
};

done_testing();
