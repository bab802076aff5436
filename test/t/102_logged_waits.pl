
# log_lock_waits and log_lock_failures log waits for ZooKeeper locks, with the holder, at next to
# no cost for the ensemble: the first is on by default from PostgreSQL 19 on, and every wait that
# is longer than deadlock_timeout comes to it. A proxy between a real cluster and a real server
# shows which requests are sent.

use Proxy;
use ZkLockTest;

# ZooKeeper's number of the request for a list.
use constant LIST => 8;

my $zk = ZooKeeper->new->start;
my $proxy = Proxy->new($zk->connect_string);
my $node = cluster('berlin', $zk,
	servers => $proxy->address,
	'log_lock_waits' => 'on',
	'zklock.session_timeout' => '60s');
my $holder = background($node);
my $holder_text = 'Held by process ' . $holder->pid . ' of user "\w+" in database "postgres" of cluster "berlin" on host "[^"]+"';

# What the log says of a backend since then, once it says anything like that.
sub log_since ($offset, $pattern)
{
	poll_until { slurp_file($node->logfile, $offset) =~ $pattern } "the log to have $pattern", 30;
	return slurp_file($node->logfile, $offset);
}

# A waiter that has come to its wait, and has nothing more to ask.
sub waiter ($place)
{
	my $waiter = background($node, is_connected => 1, deadlock_timeout => '1s');
	start_in_queue($waiter, "SELECT zk_lock('logged')", $zk, lock_path('logged'), $place);
	poll_until { scalar $zk->watched_paths(lock_path('logged')) == $place - 1 } 'its watch', 30;
	return $waiter;
}

subtest 'log_lock_waits names the holder without a request to ZooKeeper' => sub {
	$holder->query_safe("SELECT zk_lock('logged')");
	my $offset = -s $node->logfile;
	my $waiter = waiter(2);
	$proxy->cut('requests');
	like(log_since($offset, qr/still waiting for/),
		qr/$holder_text\. 1 contender is ahead\./, 'the wait is logged with the holder while no request gets through');
	$proxy->heal;

	$offset = -s $node->logfile;
	my $next = waiter(3);
	$proxy->trap(LIST, 1, 'requests');
	like(log_since($offset, qr/still waiting for/),
		qr/$holder_text\. Up to 2 contenders are ahead\./, 'a waiter further behind logs the holder, too');
	ok(!$proxy->is_sprung, 'no list of the queue is read for that');
	$proxy->trap(LIST, 0, 'requests');

	$holder->query_safe("SELECT zk_unlock('logged')");
	foreach my $session ($waiter, $next)
	{
		assert_ends($session, '00000', 'granted');
		my $acquired = 'process ' . $session->pid . ' acquired ExclusiveLock on ZooKeeper lock';
		like(log_since($offset, qr/$acquired/), qr/$acquired "logged" after \d+\D/, 'the end of the wait is logged');
		$session->query_safe("SELECT zk_unlock('logged'), zk_lock('free')");
		unlike(log_since($offset, qr/$acquired/), qr/(?:still waiting for|acquired) .* lock "free"/, 'the grant of a free lock is not logged');
		$session->query_safe("SELECT zk_unlock('free')");
	}
	assert_no_nodes($zk, lock_path('logged'));
};

subtest 'log_lock_waits names the first holder of a semaphore' => sub {
	my $other = background($node);
	$_->query_safe("SELECT zk_lock('permits', permits => 2)") foreach $holder, $other;
	my $waiter = background($node, 'deadlock_timeout' => '100ms');
	my $offset = -s $node->logfile;
	$waiter->start_query("SELECT zk_lock('permits', permits => 2)");
	like(log_since($offset, qr/still waiting for/),
		qr/$holder_text\. Up to 2 contenders are ahead\./, 'the log names the first holder of the semaphore');
	assert_passes('permits', $other, $waiter, 'granted');
	assert_released($zk, 'permits', $holder, $waiter);
};

# Each change of a contender's state is a line for whoever asks for DEBUG1.
subtest 'log_min_messages = debug1 logs each change of the state of a contender' => sub {
	my $waiter = background($node, log_min_messages => 'debug1', deadlock_timeout => '50ms');
	my $node_of = sub ($name) { return qr/"\Q@{[lock_path($name)]}\E\/[^"]+"/; };
	my $offset = -s $node->logfile;
	$waiter->query_safe("SELECT zk_lock('free')");
	my $contender = qr/zklock: contender @{[$node_of->('free')]}, fencing token \d+/;
	like(log_since($offset, qr/$contender: granted/), qr/$contender: in the queue\n.*$contender: granted: nobody was ahead\n/s,
		'the log tells that the contender joins the queue and is granted the lock');

	$holder->query_safe("SELECT zk_lock('awaited')");
	$offset = -s $node->logfile;
	$waiter->start_query("SELECT zk_lock('awaited')");
	$contender = qr/zklock: contender @{[$node_of->('awaited')]}/;
	like(log_since($offset, qr/$contender: no deadlock/),
		qr/$contender: waits behind "[^"\/]+"\n.*$contender: no deadlock; searched for one because/s,
		'it waits behind another one, and searches for a deadlock');
	assert_passes('awaited', $holder, $waiter, 'granted');
	like(log_since($offset, qr/$contender.*: granted/),
		qr/$contender, fencing token \d+: granted: (?:handed over|nobody is ahead any more)/, 'the log tells how the contender was granted the lock');

	$holder->query_safe("SELECT zk_lock('in vain')");
	$offset = -s $node->logfile;
	is($waiter->query("SELECT zk_lock('in vain', '100ms')"), '', 'the wait ends without the lock');
	$contender = qr/zklock: contender @{[$node_of->('in vain')]}/;
	like(log_since($offset, qr/$contender: withdrawn/), qr/$contender: withdrawn: 55P03\n/, 'the log tells that the contender left, with the SQLSTATE');
	$holder->query_safe("SELECT zk_unlock('in vain')");
	$waiter->query_safe('SELECT zk_unlock_all()');
};

# PostgreSQL 18 and later.
subtest 'log_lock_failures logs each call that does not get the lock, with the holder' => sub {
	plan skip_all => 'there is no log_lock_failures before PostgreSQL 18'
	  if pg_major($node) < 18;
	my $session = background($node);
	my $failed = 'process ' . $session->pid . ' could not obtain (\w+) on ZooKeeper lock';
	$holder->query_safe("SELECT zk_lock('busy')");

	my $offset = -s $node->logfile;
	is($session->query_safe("SELECT zk_try_lock('busy')"), 'f', 'off by default');
	unlike(slurp_file($node->logfile, $offset), qr/$failed/, 'nothing is logged without log_lock_failures');

	$session->query_safe("SET log_lock_failures = on; SET deadlock_timeout = '10s'");
	foreach my $try (
		"zk_try_lock('busy')", "zk_try_xact_lock_shared('busy')",
		"zk_try_lock('busy', '200ms')", "zk_lock('busy', '0')",
		"zk_lock('busy', '200ms')", "zk_try_lock_set(ARRAY['a', 'busy', 'c'])",
		"zk_try_lock_set(ARRAY['a', 'busy', 'c'], '200ms')", "zk_hold('busy', 'why', '0')")
	{
		my $mode = $try =~ /shared/ ? 'ShareLock' : 'ExclusiveLock';
		my $log;
		foreach my $attempt (1 .. 20)
		{
			note('again: there was no time to ask who holds it') if $attempt > 1;
			$offset = -s $node->logfile;
			$session->query("SELECT $try");
			last if ($log = slurp_file($node->logfile, $offset)) =~ $holder_text;
		}
		my @failures = $log =~ /LOG:  $failed "busy"\n/g;
		is("@failures", $mode, "$try is logged, once");
		like($log, qr/DETAIL:  $holder_text\. 1 contender is ahead\./, 'the log names the holder');
	}

	$holder->query_safe("SELECT zk_unlock('busy')");
	$offset = -s $node->logfile;
	is($session->query_safe("SELECT zk_try_lock('busy')"), 't', 'a free lock is granted');
	unlike(slurp_file($node->logfile, $offset), qr/$failed/, 'the grant of a free lock is not logged');
	assert_released($zk, 'busy', $session);
};

done_testing();
