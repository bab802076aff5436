
# ZooKeeper restarts, stalls, or is gone for longer than the session timeout. A
# short trouble must cost nobody the lock or the place in the queue; after a
# long one the lock is lost, and then no transaction that relied on it may
# commit.

use strict;
use warnings;

use Proxy;
use Test::More;
use Time::HiRes qw(time);
use ZkLockTest;
use ZooKeeper;

my $zk = ZooKeeper->new->start;

# A server that starts accepts connections a moment before it can serve them,
# and forgets some of these for good (seen with 3.8.0: a NullPointerException in
# removeCnxn). The proxy keeps clients away until it is ready, as a load
# balancer does; what a forgotten connection means for us is tested with the
# network.
my $proxy = Proxy->new($zk->connect_string);
my %node = map { $_ => cluster($_, $zk, servers => $proxy->address) }
  qw(berlin paris);

# A session with its own session timeout.
sub session
{
	my ($cluster, $timeout) = @_;
	my $session = background($node{$cluster});
	$session->query_safe("SET zklock.session_timeout = '$timeout'");
	return $session;
}

sub nodes
{
	my ($name) = @_;
	return [ $zk->ephemerals(lock_path($name) . '/') ];
}

# Until the session sees itself in that state.
sub wait_for_state
{
	my ($session, $state) = @_;
	# The loss may cancel the very statement that asks.
	poll_until { $session->query('SELECT state FROM zk_session') eq $state; }
	"the session to be $state", 30;
	return;
}

sub stop_server
{
	$zk->stop;
	$proxy->refuse;
	$proxy->reset_connections;
	return;
}

sub start_server
{
	$zk->start;
	$proxy->heal;
	return;
}

subtest 'restart within the session timeout' => sub {
	my ($holder, $second) = map { session('berlin', '15s') } 1 .. 2;
	my $first = session('paris', '15s');
	$holder->query_safe("SELECT zk_lock('kept')");
	$holder->query_safe("BEGIN; CREATE TABLE kept (); SELECT zk_xact_lock('kept/too')");
	my $id = $holder->query_safe('SELECT session_id FROM zk_session');
	$first->start_query("SELECT zk_lock('kept')");
	wait_for_queue($zk, lock_path('kept'), 3);
	$second->start_query("SELECT zk_lock('kept')");
	wait_for_queue($zk, lock_path('kept'), 4);
	my $before = nodes('kept');

	stop_server();
	wait_for_state($holder, 'suspended');
	is($holder->query_safe('SELECT state FROM zk_locks ORDER BY name LIMIT 1'),
		'held', 'suspended is not lost');
	start_server();
	wait_for_state($holder, 'connected');
	is_deeply(nodes('kept'), $before, 'holder and waiters keep their nodes');
	is($holder->query_safe('SELECT session_id FROM zk_session'),
		$id, 'and sessions');
	is($holder->query_safe("SELECT zk_is_held('kept')"), 't', 'it is still held');
	ok(!$first->is_done && !$second->is_done, 'the waiters still wait');
	is($holder->query('COMMIT'), '', 'the transaction under way goes on');
	is($holder->sqlstate, '00000', 'and commits');

	foreach my $pair ([ $holder, $first ], [ $first, $second ])
	{
		$pair->[0]->query_safe("SELECT zk_unlock('kept')");
		$pair->[1]->wait_result;
		is($pair->[1]->sqlstate, '00000', 'granted in turn');
	}
	$second->query_safe("SELECT zk_unlock('kept')");
	poll_until { !@{ nodes('kept') } } 'nodes to go', 10;
	$_->quit foreach $holder, $first, $second;
};

subtest 'release and wait while the server restarts' => sub {
	my $holder = session('berlin', '15s');
	my $waiter = session('paris', '15s');
	my $newcomer = session('paris', '15s');
	$holder->query_safe("SELECT zk_lock('released'), zk_lock('busy')");
	$newcomer->query_safe("SELECT zk_try_lock('connect'), zk_unlock('connect')");
	$waiter->start_query("SELECT zk_lock('released')");
	wait_for_queue($zk, lock_path('released'), 2);
	stop_server();
	wait_for_state($holder, 'suspended');
	is($holder->query_safe("SELECT zk_unlock('released')"),
		't', 'a release does not wait for the server');
	$newcomer->start_query("SELECT zk_lock('busy')");
	start_server();
	$waiter->wait_result;
	is($waiter->sqlstate, '00000', 'it arrives when the server is back');
	wait_for_queue($zk, lock_path('busy'), 2);
	$holder->query_safe("SELECT zk_unlock('busy')");
	$newcomer->wait_result;
	is($newcomer->sqlstate, '00000', 'who asked meanwhile is in the queue');
	$_->quit foreach $holder, $waiter, $newcomer;
	assert_no_nodes($zk, lock_path($_), "$_: nothing left")
	  foreach qw(released busy);
};

subtest 'a pause shorter than the session timeout' => sub {
	my $holder = session('berlin', '6s');
	my $waiter = session('paris', '6s');
	$holder->query_safe("CREATE TABLE stalled (i int); SELECT zk_lock('stalled')");
	$waiter->start_query("SELECT zk_lock('stalled')");
	wait_for_queue($zk, lock_path('stalled'), 2);
	my $before = nodes('stalled');
	$zk->pause;
	$holder->query_safe('BEGIN; INSERT INTO stalled VALUES (1); SELECT pg_sleep(2.5)');
	# Its lease is over, so it has to ask.
	$holder->start_query('COMMIT');
	poll_until
	{
		$node{berlin}->safe_psql('postgres',
			'SELECT wait_event_type FROM pg_stat_activity WHERE pid = '
			  . $holder->pid) eq 'Extension';
	}
	'the commit to wait for its proof', 10;
	$zk->resume;
	$holder->wait_result;
	is($holder->sqlstate, '00000', 'it commits once the server answers');
	is_deeply(nodes('stalled'), $before, 'holder and waiter keep their nodes');
	$holder->query_safe("SELECT zk_unlock('stalled')");
	$waiter->wait_result;
	is($waiter->sqlstate, '00000', 'and the lock passes on');
	$waiter->query_safe("SELECT zk_unlock('stalled')");
	assert_no_nodes($zk, lock_path('stalled'), 'nothing left');
	$_->quit foreach $holder, $waiter;
};

subtest 'a pause longer than the session timeout' => sub {
	$node{berlin}->safe_psql('postgres', 'CREATE TABLE lost (i int)');
	# One waits for the proof in COMMIT, one is still at work, one has but a
	# session lock, one holds no lock, one is in the queue.
	my ($early, $late, $session_only, $free, $waiter) =
	  map { session('berlin', '2s') } 1 .. 5;
	$free->query_safe("SELECT zk_lock('lost/none'), zk_unlock('lost/none')");
	$session_only->query_safe("SELECT zk_lock('lost/session')");
	$waiter->start_query("SELECT zk_lock('lost/session')");
	wait_for_queue($zk, lock_path('lost/session'), 2);
	$early->query_safe("BEGIN; SELECT zk_xact_lock('lost/early');
		INSERT INTO lost VALUES (1); SELECT pg_sleep(0.8)");
	$late->query_safe("BEGIN; SELECT zk_xact_lock('lost/late');
		INSERT INTO lost VALUES (2)");
	is(scalar @{ nodes('lost') }, 4, 'all have their nodes');
	# The one in the queue may keep its place, or start anew: it held nothing.
	my $old = [ grep { $_->[0] !~ m{/session/.*-0000000001$} } @{ nodes('lost') } ];

	$zk->pause;
	$early->start_query('COMMIT');
	$early->wait_result;
	is($early->sqlstate, '40001', 'a COMMIT that waits for its proof fails');
	like($early->error, qr/lock "lost\/early" was lost.*DETAIL:  The connection broke at .*, and the lock was given up at .*HINT/s,
		'and says why');
	wait_for_state($session_only, 'lost');
	is( $session_only->query_safe('SELECT name, state, session_holds FROM zk_locks'),
		'lost/session|lost|1',
		'zk_locks shows the loss while ZooKeeper is away');
	$late->query('COMMIT');
	is($late->sqlstate, '40001', 'a COMMIT after the loss fails');
	$session_only->query('INSERT INTO lost VALUES (3)');
	is($session_only->sqlstate, '40001',
		'so does a writing transaction under a session lock');
	$session_only->query_safe('BEGIN; SELECT * FROM lost; COMMIT');
	is($session_only->sqlstate, '00000', 'one that reads may end');
	is($session_only->query_safe('SELECT state FROM zk_session'),
		'lost', 'zk_session says so until the lock is let go of');
	$free->query_safe('INSERT INTO lost VALUES (4)');
	$session_only->query("SELECT zk_lock('lost/other')");
	is($session_only->sqlstate, '40001', 'no new lock until the lost one is let go');
	like($session_only->error, qr/HINT:  Release it with zk_unlock\(\) or zk_unlock_all\(\)/,
		'with a hint');
	is($session_only->query("SELECT zk_is_held('lost/session')"),
		'f', 'zk_is_held knows');
	is($session_only->query("SELECT zk_fencing_token('lost/session') IS NULL"),
		't', 'zk_fencing_token gives none');
	$zk->resume;

	# The server's clock stood still, too.
	my $gone = eval {
		poll_until
		{
			my %now = map { $_->[0] => 1 } @{ nodes('lost') };
			!grep { $now{ $_->[0] } } @$old;
		}
		'the old nodes to go', 10;
	};
	ok($gone, "the old holders' nodes go")
	  || diag explain { old => $old, now => nodes('lost') };
	$waiter->wait_result;
	is($waiter->sqlstate, '00000', 'the waiter queues again and is granted');

	$session_only->query("SELECT zk_lock('lost/other')");
	is($session_only->sqlstate, '40001', 'still refused, now that ZooKeeper is back');
	$session_only->query('INSERT INTO lost VALUES (3)');
	is($session_only->sqlstate, '40001', 'writes, too');
	is($session_only->query("SELECT zk_unlock('lost/session')"),
		'f', 'zk_unlock lets go of it');
	like($session_only->error, qr/WARNING:  lock "lost\/session" had been lost/,
		'with a warning');
	$session_only->query_safe('INSERT INTO lost VALUES (5)');
	like($session_only->query_safe("SELECT zk_lock('lost/other')"),
		qr/^\d+$/, 'then everything works again');
	$session_only->query_safe('SELECT zk_unlock_all()');
	$waiter->query_safe('SELECT zk_unlock_all()');

	# Theirs were of a transaction, and went with it.
	foreach my $session ($early, $late)
	{
		$session->query("BEGIN; SELECT zk_xact_lock('lost/early');
			INSERT INTO lost VALUES (6); COMMIT");
		is($session->sqlstate, '00000', 'the transaction can be run again');
	}
	is( $free->query_safe("SELECT string_agg(i::text, ' ' ORDER BY i) FROM lost"),
		'4 5 6 6',
		'no row of a refused transaction exists');
	poll_until { !@{ nodes('lost') } } 'nodes to go', 10;
	$_->quit foreach $early, $late, $session_only, $free, $waiter;
};

# The other ways to let go of a lost lock, and commit_guard = off.
subtest 'after the loss' => sub {
	my %session = map { $_ => session('berlin', '2s') } qw(all discard disconnect off);
	foreach my $name (sort keys %session)
	{
		$session{$name}->query_safe("SELECT zk_lock('loss/$name'), zk_lock('loss/$name'),
			zk_lock_shared('loss/$name'), zk_lock('loss/$name/2')");
	}
	$session{off}->query_safe('SET zklock.commit_guard = off');
	$zk->pause;
	wait_for_state($session{$_}, 'lost') foreach sort keys %session;
	$zk->resume;
	poll_until { !@{ nodes('loss') } } 'the old nodes to go', 10;

	$session{all}->query_safe('SELECT zk_unlock_all()');
	$session{discard}->query_safe('DISCARD ALL');
	$session{disconnect}->query_safe('SELECT zk_disconnect()');
	foreach my $name (qw(all discard disconnect))
	{
		is($session{$name}->query_safe('SELECT count(*) FROM zk_locks'),
			0, "$name: nothing is held any more");
		$session{$name}->query_safe("BEGIN; CREATE TABLE after_$name ();
			SELECT zk_lock('loss/$name'); COMMIT");
		is(scalar @{ nodes("loss/$name") }, 1, "$name: new locks work");
	}
	$session{off}->query_safe('CREATE TABLE after_off ()');
	is($session{off}->sqlstate, '00000', 'off: the commit is not refused');
	$session{off}->query('SELECT zk_lock(\'loss/new\')');
	is($session{off}->sqlstate, '40001', 'off: but a new lock is');
	$_->quit foreach values %session;
	poll_until { !@{ nodes('loss') } } 'nodes to go', 10;
};

# The process is stopped, as a suspended machine would do it: nothing in it can
# notice. Its COMMIT stands ready for the moment when it wakes up.
foreach my $guard (qw(lease quorum))
{
	subtest "the backend is stopped, commit_guard = $guard" => sub {
		my $sleeper = session('berlin', '2s');
		my $rival = session('paris', '2s');
		$sleeper->query_safe("SET zklock.commit_guard = $guard;
			CREATE TABLE slept_$guard (i int)");
		$rival->query_safe("CREATE TABLE slept_$guard (i int)");
		$sleeper->query_safe("BEGIN; SELECT zk_xact_lock('slept');
			INSERT INTO slept_$guard VALUES (1)");
		$rival->start_query("BEGIN; SELECT zk_xact_lock('slept');
			INSERT INTO slept_$guard VALUES (2); COMMIT");
		wait_for_queue($zk, lock_path('slept'), 2);
		kill 'STOP', $sleeper->pid;
		$rival->wait_result;
		is($rival->sqlstate, '00000', 'the rival gets the lock and commits');
		$sleeper->start_query('COMMIT');
		kill 'CONT', $sleeper->pid;
		$sleeper->wait_result;
		is($sleeper->sqlstate, '40001', 'the sleeper is refused');
		like($sleeper->error, qr/lock "slept" was lost/, 'because of the lock');
		is($sleeper->query_safe("SELECT count(*) FROM slept_$guard"),
			0, 'its row does not exist');
		is($sleeper->query_safe("SELECT zk_xact_lock('slept') > 0"),
			't', 'the same backend works again');
		assert_no_nodes($zk, lock_path('slept'), 'nothing left');
		$_->quit foreach $sleeper, $rival;
	};
}

foreach my $name (sort keys %node)
{
	ok(!$node{$name}->log_contains(qr/PANIC|TRAP|terminated by signal/),
		"$name did not crash");
}

done_testing();
