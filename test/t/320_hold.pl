
# zk_evict() takes another session's node out of a queue, and zk_hold() leaves one that outlives
# its maker until zk_release_hold(). Tested with sessions of two clusters, one behind a proxy
# that cuts its requests and replies, and with makers that are killed.

use Proxy;
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $proxy = Proxy->new($zk->connect_string);
my @crashing = (restart_after_crash => 'on');
my %node = (
	berlin => cluster('berlin', $zk, servers => $proxy->address, @crashing),
	paris => cluster('paris', $zk, @crashing));
my $foreign = $zk->client;

# The token of the contender at that position.
sub token_at ($session, $lock, $position)
{
	return $session->query_safe("SELECT token FROM zk_lock_queue('$lock') WHERE position = $position");
}

# The first lock makes the root, which says by whom, and stays: it is no container.
$node{paris}->safe_psql('postgres', "SET zklock.root = '" . lock_path('another') . "'; SELECT zk_lock('first')");
like($foreign->get(lock_path('another')), qr/"client":"zklock"/, 'the root is made as one');

# The token may come from a server that is ahead of ours.  There is no queue, so the
# lock's znode and its root are read, too: another program's may be in the way.
my $asker = background($node{paris}, is_connected => 1);
assert_least
{
	my $before = $zk->packets_received;
	$asker->query_safe("SELECT zk_evict('nobody', 1)");
	$zk->packets_received - $before;
}
4, 'zk_evict() takes four requests: the quorum is asked ahead of the queue';

foreach my $guard (qw(quorum fresh))
{
	subtest "a holder is evicted in its transaction, commit_guard = $guard" => sub {
		my ($holder, $waiter, $admin) = map { background($node{$_}, is_connected => 1) } qw(berlin paris paris);
		$holder->query_safe("CREATE TABLE evicted_$guard (i int);
			SET zklock.commit_guard = $guard");
		$holder->query_safe("BEGIN; SELECT zk_xact_lock('evict');
			INSERT INTO evicted_$guard VALUES (1)");
		my $token = token_at($admin, 'evict', 1);
		start_in_queue($waiter, "SELECT zk_lock('evict')", $zk, lock_path('evict'), 2);

		my $offset = -s $node{paris}->logfile;
		is($admin->query_safe("SELECT zk_evict('evict', $token)"), 't', 'zk_evict() says that it has deleted the node');
		like($waiter->wait_result, qr/^\d+$/, 'the next in line has the lock');
		my $who = sprintf 'process %d of user ".*" in database ".*" from \S+ evicts a contender from ZooKeeper lock "evict"',
		  $admin->pid;
		my $whom = sprintf 'It is process %d of user ".*" in database "postgres" of cluster "berlin" on host ".*"',
		  $holder->pid;
		ok($node{paris}->log_contains(qr/LOG:  $who\n.*DETAIL:  $whom/, $offset), 'the log says who evicted whom');
		ok($node{paris}->log_contains(qr/fencing token $token\./, $offset), 'the log has the token of the evicted holder');
		is($admin->query_safe("SELECT zk_evict('evict', $token)"), 'f', 'a second zk_evict() of the same token finds nothing');

		# With fresh it has to have heard of it.
		wait_in_transaction($holder, 'SELECT state FROM zk_session_locks', 'lost') if $guard eq 'fresh';
		assert_query($holder, 'COMMIT', '40001', 'the commit of the evicted holder is refused');
		like($holder->error, qr/lock "evict" was lost\nDETAIL:  The queue node with fencing token $token was deleted by zk_evict/, 'the error says who deleted the queue node');
		is($holder->query_safe("SELECT count(*) FROM evicted_$guard"), 0, 'nothing of the refused transaction is written');

		$holder->query_safe("SELECT zk_lock('evict-session')");
		$admin->query_safe("SELECT zk_evict('evict-session', token)
			FROM zk_lock_queue('evict-session')");
		assert_knows_loss($holder, 'evict-session', 'zk_is_held() knows of the eviction at once');
		assert_leave_nothing($zk, lock_path('evict'), $holder, $waiter, $admin);
	};
}

subtest 'zk_evict() evicts contenders of other clients, and no other children' => sub {
	my $admin = background($node{paris}, is_connected => 1);
	my $path = lock_path('foreign');
	$foreign->create_path($path);
	my $node = $foreign->create("$path/_c_6b29fc40-ca47-4067-b31d-00dd010662da-lock-", 'who',
		ephemeral => 1, sequential => 1);
	$foreign->create("$path/note", '{"client":"zklock","token":4711}');
	my $token = token_at($admin, 'foreign', 1);
	is($admin->query_safe("SELECT zk_evict('foreign', $token)"), 't', "a contender of another client is evicted");
	is($admin->query_safe("SELECT zk_evict('foreign', 4711)"), 'f', 'a node that is no contender is not evicted');
	ok($foreign->exists("$path/note"), 'the node that is no contender stays');

	# Whose token it is cannot be told of a node that may not be read.
	my ($all, $read) = (31, 1);
	my $hidden = $foreign->create("$path/_c_6b29fc40-ca47-4067-b31d-00dd010662db-lock-", 'who',
		ephemeral => 1, sequential => 1);
	$token = token_at($admin, 'foreign', 1);
	$foreign->set_acl($hidden, [ [ $all & ~$read, 'world', 'anyone' ] ]);
	assert_query($admin, "SELECT zk_evict('foreign', $token)", '42501', 'zk_evict() raises for a node that may not be read');
	is($admin->query_safe("SELECT zk_release_hold('foreign', $token)"), 'f', 'zk_release_hold() knows by its name that it is no permanent hold');
	$foreign->set_acl($hidden, [ [ $all, 'world', 'anyone' ] ]);
	is($admin->query_safe("SELECT zk_evict('foreign', $token)"), 't', 'a node that may be read again is evicted');
};

# Its delete is done, and the reply lost. What stands there when it asks again has the
# same path, and is not what it was to delete.
subtest 'a hold made anew stays when the reply to the release of the first is lost' => sub {
	my ($maker, $releaser) = map { background($node{$_}, is_connected => 1) } qw(paris berlin);
	my $token = $maker->query_safe("SELECT zk_hold('anew', 'first')");
	my ($path) = map { lock_path("anew/$_") } queue_nodes($zk, lock_path('anew'));
	# Or the delete of its first release springs the trap.
	poll_until { $releaser->query_safe('SELECT pending_requests FROM zk_session') eq '0' } 'that to be confirmed';
	$proxy->trap(2, 1, 'replies');
	$releaser->start_query("SELECT zk_release_hold('anew', $token)");
	poll_until { $proxy->is_sprung && !$foreign->exists($path) } 'it to be deleted', 30;
	$foreign->create($path, 'second');
	$proxy->come_back;
	is($releaser->wait_result, 't', 'zk_release_hold() says that the hold is released');
	ok($foreign->exists($path), 'the node that was made anew stays');
	$foreign->delete($path) if $foreign->exists($path);
	assert_leave_nothing($zk, lock_path('anew'), $maker, $releaser);
};

sub hold_nodes ($lock) { return queue_nodes($zk, lock_path($lock)); }

sub is_free ($session, $lock, $what)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	assert_soon { $session->query_safe("SELECT zk_try_lock('$lock')") eq 't' } $what, 30
	  and $session->query_safe("SELECT zk_unlock('$lock')");
	return assert_no_nodes($zk, lock_path($lock), "$what: nothing is left");
}

subtest 'a hold outlives its maker and restarts of all servers' => sub {
	my ($maker, $other) = map { background($node{$_}, is_connected => 1) } qw(berlin paris);
	my $earlier = $maker->query_safe("SELECT zk_lock('hold')");
	start_in_queue($other, "SELECT zk_hold('hold', 'moving to new disks')", $zk, lock_path('hold'), 2);
	ok(!$other->is_done, 'zk_hold() waits behind the holder');
	$maker->query_safe("SELECT zk_unlock('hold')");
	my $token = $other->wait_result;
	cmp_ok($token, '>', $earlier, 'the token of the hold is higher than that of the earlier lock');
	is_deeply([ $zk->ephemerals(lock_path('hold') . '/') ], [], 'no session owns the node of the hold');
	is($other->query_safe('SELECT count(*) FROM zk_session_locks'), 0, 'the session that made the hold has no lock');
	is( $maker->query_safe("SELECT state, mode, style, session_id IS NULL, cluster, pid, token, data
			FROM zk_lock_queue('hold')"),
		join('|', 'held', 'exclusive', 'curator', 't', 'paris', $other->pid, $token,
			'moving to new disks'),
		'zk_lock_queue shows who and why');

	# On a busy machine a server is away for longer than the default.
	my $waiter = background($node{berlin}, is_connected => 1, 'zklock.connect_timeout' => '1min');
	start_in_queue($waiter, "SELECT zk_lock_shared('hold')", $zk, lock_path('hold'), 2);
	is($other->query_safe("SELECT zk_try_lock('hold')"), 'f', 'the session that made the hold cannot take the lock');
	is($other->query_safe("SELECT zk_try_lock_set(ARRAY['a new one', 'hold'])"), 'f', 'the session that made the hold cannot take several locks with it');
	$other->query_safe('SELECT zk_unlock_all()');
	$other->query_safe('DISCARD ALL');
	$other->query_safe('SELECT zk_disconnect()');
	$other->quit;
	is(scalar hold_nodes('hold'), 2, 'still there after DISCARD ALL, zk_disconnect and exit');
	$zk->restart;
	$node{paris}->restart;
	$other = background($node{paris}, is_connected => 1);
	# The waiter may have got a new session, and the end of the old one is due.
	assert_soon { scalar hold_nodes('hold') == 2 } 'the hold is there after restarts of ZooKeeper and PostgreSQL', 30;
	ok(!$waiter->is_done, 'the waiter still waits behind the hold');

	is($other->query_safe("SELECT zk_release_hold('hold', $earlier)"), 'f', 'zk_release_hold() with another token releases nothing');
	like($other->error, qr/WARNING:  there is no permanent hold of lock "hold" with that token\n(?!HINT)/, 'zk_release_hold() with another token warns');
	is($maker->query_safe("SELECT zk_release_hold('hold', $token)"), 't', 'a session of another cluster releases the hold');
	assert_ends($waiter, '00000', 'the waiter gets the lock');
	$waiter->query_safe("SELECT zk_unlock_shared('hold')");
	is_free($other, 'hold', 'the lock is free after the hold');
};

# As Curator's Revoker does with the node of a holder: the token is in there.
subtest 'no other client can write into a hold' => sub {
	my $maker = background($node{paris}, is_connected => 1);
	my $token = $maker->query_safe("SELECT zk_hold('written', 'test')");
	my ($hold) = hold_nodes('written');
	my $foreign = $zk->client;
	ok(!eval { $foreign->set(lock_path("written/$hold"), '__REVOKE__'); 1 }, 'a write is refused');
	like($@, qr/NoAuth/, 'the refused write says NoAuth');
	is($maker->query_safe("SELECT data FROM zk_lock_queue('written')"), 'test', 'the data of the hold is not changed');
	$foreign->close;
	$maker->quit;
	my $other = background($node{berlin}, is_connected => 1);
	is($other->query_safe("SELECT zk_release_hold('written', $token)"), 't', 'another session releases it');
	is_free($other, 'written', 'the lock is free after the hold');
};

subtest 'a hold stays after kill -9 of its maker, until zk_evict() removes it' => sub {
	my ($maker, $other) = map { background($node{$_}, is_connected => 1) } qw(paris berlin);
	my $token = $maker->query_safe("SELECT zk_hold('killed', 'test')");
	kill 'KILL', $maker->pid;
	$maker->quit;
	wait_for_recovery($node{paris}, $maker->pid);
	poll_until { !$zk->ephemerals(lock_path('killed')) } 'the session to end', 30;
	is($other->query_safe("SELECT zk_try_lock('killed')"), 'f', 'the hold is there after kill -9 of its maker');
	is($other->query_safe("SELECT zk_evict('killed', $token)"), 't', 'zk_evict() removes the hold');
	is_free($other, 'killed', 'the lock is free after zk_evict()');
};

subtest 'a hold is not undone by ROLLBACK, and a transaction under it commits' => sub {
	my $session = background($node{paris}, is_connected => 1);
	$session->query_safe("BEGIN; CREATE TABLE under_hold (); SELECT zk_lock('under');
		SELECT zk_hold('over', 'test')");
	is($session->query('COMMIT'), '', 'a guarded commit under a hold says nothing');
	is($session->sqlstate, '00000', 'a guarded commit under a hold is done');
	$session->query("BEGIN; SELECT zk_hold('rolled back', 'test'); ROLLBACK");
	is($session->query_safe("SELECT sum(zk_release_hold(name, token)::int)
		FROM unnest(ARRAY['over', 'rolled back']) AS name, zk_lock_queue(name)"),
		2, 'not undone by ROLLBACK');
};

my $admin = background($node{paris}, is_connected => 1);

# A session whose hold is not made, or made and not heard of.
sub spring ($direction, $lock, $timeout = '1s')
{
	my $maker = background($node{berlin});
	# Some of these sessions have to time out, and others must not: they undo it themselves.
	$maker->query_safe("SET zklock.session_timeout = '$timeout'; SELECT zk_lock('$lock'), zk_unlock('$lock')");
	assert_no_nodes($zk, lock_path($lock), "$direction lost: free at first");
	$proxy->trap(14, 1, $direction);    # multi
	$maker->start_query("SELECT zk_hold('$lock', 'test')");
	poll_until { $proxy->is_sprung } 'the trap to spring', 30;
	return $maker;
}

# There is either the hold or the node of its maker.
subtest 'a maker that is killed leaves the hold or nothing' => sub {
	my $maker = spring('requests', 'killed');
	my $waiter = background($node{paris}, is_connected => 1);
	$waiter->start_query("SELECT zk_lock('killed')");
	# On a busy machine the maker's session, of a second, may have ended by then.
	poll_until { $waiter->is_done || queue_nodes($zk, lock_path('killed')) == 2 } 'it to wait', 30;
	kill 'KILL', $maker->pid;
	assert_ends($waiter, '00000', 'ahead of it: a waiter gets the lock when the session has ended');
	is(scalar hold_nodes('killed'), 1, 'no hold is left beside the lock of the waiter');
	$waiter->query_safe("SELECT zk_unlock('killed')");
	$proxy->come_back;
	$maker->quit;
	wait_for_recovery($node{berlin}, $maker->pid);

	$maker = spring('replies', 'killed');
	kill 'KILL', $maker->pid;
	$proxy->come_back;
	poll_until { !$zk->ephemerals(lock_path('killed')) } 'the session to end', 30;
	is( $admin->query_safe("SELECT state, data, zk_release_hold('killed', token)
			FROM zk_lock_queue('killed') WHERE state = 'held'"),
		'held|test|t', 'behind it: the hold stands, can be seen and released');
	$maker->quit;
	$waiter->quit;
	wait_for_recovery($node{berlin}, $maker->pid);
};

subtest 'a maker that is evicted before there is a hold is told, and leaves nothing' => sub {
	my $maker = spring('requests', 'evicted', '20s');
	my $token = token_at($admin, 'evicted', 1);
	is($admin->query_safe("SELECT zk_evict('evicted', $token), zk_try_lock('evicted')"), 't|t',
		'the maker is evicted before there is a hold, and the lock is taken');
	$proxy->come_back;
	assert_ends($maker, '57000', 'zk_hold() tells that its place was taken away');
	is($admin->query_safe("SELECT zk_is_held('evicted'), zk_unlock('evicted')"), 't|t', 'the lock of the other session is not touched');
	assert_no_nodes($zk, lock_path('evicted'), 'nothing is left in the queue');
};

# Then nobody knows whether there is a hold, nor can it be undone at once.
subtest 'a cancel of zk_hold() without a connection warns that there may be a hold' => sub {
	my $maker = spring('requests', 'warned', '20s');
	my ($program) = session_programs($maker->pid);
	$proxy->go_away;
	poll_until { slurp_file("/proc/$program/cmdline") !~ /connected/ } 'it to notice', 30;
	$maker->cancel;
	assert_ends($maker, '57014', 'zk_hold() is canceled');
	like($maker->error, qr/WARNING:  there may be a permanent hold of lock "warned" now\nDETAIL:  .* Its token is \d+\./, 'the cancel warns that there may be a hold');
	$proxy->come_back;
	$maker->quit;
	is_free($admin, 'warned', 'no hold is left');
};

subtest 'another client waits behind a hold' => sub {
	my $foreign = $zk->client;
	my $token = $admin->query_safe("SELECT zk_hold('foreign-waits', 'test')");
	my ($hold) = hold_nodes('foreign-waits');
	my $node = $foreign->create(lock_path('foreign-waits') . '/_c_6b29fc40-ca47-4067-b31d-00dd010662da-lock-',
		'', ephemeral => 1, sequential => 1);
	is((hold_nodes('foreign-waits'))[0], $hold, 'the node of the other client is behind the hold');
	$admin->query_safe("SELECT zk_release_hold('foreign-waits', $token)");
	is_deeply([ map { lock_path("foreign-waits/$_") } hold_nodes('foreign-waits') ], [$node],
		'the node of the other client is the first when the hold is released');
};
$admin->quit;

# Others: sql/durable.
subtest 'zk_hold() with no time to wait in the queue still waits for a slow answer' => sub {
	my $session = background($node{berlin}, is_connected => 1);
	# Not to wait in the queue is not the same as not to wait for an answer.
	$zk->pause;
	start_to_wait($session, "SELECT zk_hold('bound/free', 'x', '0')");
	$zk->resume;
	like($session->wait_result, qr/^\d+$/, 'zk_hold() makes the hold when the answer comes');
	$session->query_safe("SELECT zk_release_hold('bound/free', token) FROM zk_lock_queue('bound/free')");
};

# In whatever session it was done, and however that committed.
subtest 'work under a hold survives a crash once it is released' => sub {
	my ($worker, $other) = map { background($node{$_}, is_connected => 1) } qw(paris berlin);
	$worker->query_safe('CREATE TABLE work (i int); SET synchronous_commit = off');
	my $token = $worker->query_safe("SELECT zk_hold('crash', 'work')");
	my ($wal_writer) = $worker->query_safe("SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'");
	kill 'STOP', $wal_writer;
	$worker->query_safe('INSERT INTO work VALUES (1)');
	start_in_queue($other, "SELECT zk_lock('crash')", $zk, lock_path('crash'), 2);
	$worker->query_safe("SELECT zk_release_hold('crash', $token)");
	$node{paris}->kill9;
	kill 'KILL', $wal_writer;
	$other->wait_result;
	$other->quit;
	$worker->kill;
	# As long as one of its backends is there it is refused, and the pid file is old.
	poll_until { $node{paris}->{_pid} = undef; $node{paris}->start(fail_ok => 1) }
	'the cluster to start', 30;
	is($node{paris}->safe_psql('postgres', 'SELECT count(*) FROM work'), 1, 'the work is there after the crash');
};

done_testing();
