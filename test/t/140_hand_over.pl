
# A lock passes to the next waiter of another cluster without a read where that is safe, and
# after a look at the queue where it is not. The packet counter of a real server tells which of
# the two it was.

use ZkLockTest;

my $timeout = 12;    # of sessions, seconds: long enough for a proof to be fresh
my $zk = ZooKeeper->new->start;
my %node = map { $_ => cluster($_, $zk, 'zklock.session_timeout' => "${timeout}s") }
  qw(berlin paris);
my $stranger = $zk->client;

# Sessions that all have the connection to ZooKeeper, and no heartbeat due.
my @pool = map { background($node{ $_ % 2 ? 'paris' : 'berlin' }) } 1 .. 4;
$_->query_safe("SELECT zk_lock('warm'), zk_unlock('warm')") foreach @pool;

# How many transactions there were.
sub zxid { return $zk->four_letter_word('srvr') =~ /^Zxid: (0x[0-9a-f]+)$/m ? hex $1 : undef; }

subtest 'a cycle of lock and unlock takes three requests, a try of a busy lock takes one' => sub {
	my ($one, $two) = @pool;
	my $before = $zk->packets_received;
	$one->query_safe("SELECT zk_lock('cycle'), zk_unlock('cycle')") foreach 1 .. 20;
	# Its answer is behind that of the last delete.
	$one->query_safe("SELECT count(*) FROM zk_lock_queue('cycle')");
	my $mine = 3 * 20;
	my $received = $zk->packets_received - $before;
	assert_no_nodes($zk, lock_path('cycle'));
	# That question has cost some, and a lock's first use its parents.
	cmp_ok($received, '>=', $mine, 'create, list, delete');
	cmp_ok($received, '<', $mine + 30, 'the cycles take no further requests');

	$one->query_safe("SELECT zk_lock('cycle')");
	my $zxid = zxid();
	$before = $zk->packets_received;
	is($two->query_safe("SELECT zk_try_lock('cycle')"), 'f', 'busy')
	  foreach 1 .. 10;
	cmp_ok($zk->packets_received - $before, '<', 20, 'each try takes one request');
	# The server writes, too: it removes an empty container now and then.
	cmp_ok(zxid() - $zxid, '<', 5, 'the tries write nothing');
	$one->query_safe("SELECT zk_unlock('cycle')");
};

subtest 'a holder that had to wait hands the lock over in two requests' => sub {
	my ($first, $second, $third) = @pool;
	assert_least
	{
		line_up($zk, 'pass', $first, $second, $third);
		$first->query_safe("SELECT zk_unlock('pass')");
		$second->wait_result;
		wait_for_queue($zk, lock_path('pass'), 2);
		like(first_in_queue($zk, 'pass'), marked_as('handed over'), 'the node of the holder is marked as handed over');

		my $before = $zk->packets_received;
		assert_passes('pass', $second, $third, 'granted');
		poll_until { $zk->packets_received - $before >= 2 } 'set and delete', 30;
		my $received = $zk->packets_received - $before;
		wait_for_queue($zk, lock_path('pass'), 1);
		assert_held($third, 'pass', 'it is held');
		assert_released($zk, 'pass', $third);
		$received;
	}
	2, 'two requests, both of the holder';
};

subtest 'an evicted holder does not hand over its lock' => sub {
	my ($first, $second, $third) = @pool;
	assert_least
	{
		line_up($zk, 'lost', $first, $second, $third);
		$first->query_safe("SELECT zk_unlock('lost')");
		$second->wait_result;
		wait_for_queue($zk, lock_path('lost'), 2);
		$stranger->delete(first_in_queue($zk, 'lost'));
		$third->wait_result;
		assert_knows_loss($second, 'lost', 'the evicted holder knows that it holds nothing');

		my $before = $zk->packets_received;
		$second->query_safe("SELECT zk_unlock('lost')");
		# What is asked behind it is answered behind it.
		is($second->query_safe("SELECT zk_try_lock('lost')"), 'f', 'the next one has it');
		my $received = $zk->packets_received - $before;
		assert_released($zk, 'lost', $third);
		$received;
	}
	2, 'a delete and the look of the try, but no set';
};

subtest 'a stranger cannot mark a node as handed over' => sub {
	my ($first, $second, $third) = @pool;
	line_up($zk, 'guarded', $first, $second);
	eval { $stranger->set(first_in_queue($zk, 'guarded'), 'unlock'); };
	like($@, qr/NoAuth|NOAUTH|-102/i, 'a stranger cannot write to the node');
	isnt(scalar $stranger->get(first_in_queue($zk, 'guarded')), undef, 'a stranger can read the node');
	ok(!$second->is_done, 'the waiter waits');
	# A waiter that gives up lets the one behind it in, no sooner than its turn.
	start_in_queue($third, "SELECT zk_lock('guarded')", $zk, lock_path('guarded'), 3);
	$second->cancel;
	assert_ends($second, '57014', 'the waiter in the middle gives up');
	wait_for_queue($zk, lock_path('guarded'), 2);
	wait_for_watch($zk, first_in_queue($zk, 'guarded'));
	ok(!$third->is_done, 'the waiter behind it goes on waiting');
	assert_passes('guarded', $first, $third, 'the waiter behind it is granted the lock in its turn');
	assert_released($zk, 'guarded', $third);
};

# Curator's Revoker, for example, sets the data of a holder's node.
subtest "data set on another client's node is not taken for a hand-over" => sub {
	my ($session) = @pool;
	$stranger->create_path(lock_path('revoked'));
	foreach my $name (node_prefix(),
		'6ba7b8109dad11d180b400c04fd430c8__lock__')
	{
		my $theirs = $stranger->contend(lock_path('revoked') . "/$name", 'me');
		start_in_queue($session, "SELECT zk_lock('revoked')", $zk, lock_path('revoked'), 2);
		wait_for_watch($zk, $theirs);
		my $before = $zk->packets_received;
		$stranger->set($theirs, '__REVOKE__');
		poll_until { $zk->packets_received - $before >= 3 } 'it to look again', 30;
		ok(!$session->is_done, 'the waiter goes on waiting');
		$stranger->delete($theirs);
		assert_ends($session, '00000', 'the waiter is granted the lock when the node is deleted');
		assert_released($zk, 'revoked', $session);
	}
};

# The holder is a reader, too, and releases what it has as a writer: the writer behind it
# must not take that for the end of the lock, in whichever way the holder got it.
subtest 'a lock held in both modes is handed over when both are released' => sub {
	my ($first, $second, $third) = @pool;
	line_up($zk, 'both', $first, $second, $third);
	foreach my $pair ([ $first, $second ], [ $second, $third ])
	{
		my ($holder, $next) = @$pair;
		my $old = first_in_queue($zk, 'both');
		$holder->query_safe("SELECT zk_lock_shared('both'); SELECT zk_unlock('both')");
		is(first_in_queue($zk, 'both'), $old, 'the node stays');
		wait_for_watch($zk, $old);
		ok(!$next->is_done, 'the writer waits');
		$holder->query_safe("SELECT zk_unlock_shared('both')");
		assert_ends($next, '00000', 'the writer is granted the lock when both modes are released');
	}
	assert_released($zk, 'both', $third);
	$first->query_safe("SELECT zk_lock('both'), zk_lock_shared('both'), zk_unlock('both'), zk_unlock_shared('both')
		FROM generate_series(1, 20)");
	assert_no_nodes($zk, lock_path('both'));
};

# Readers look: several may go ahead together, and some may be there.
subtest 'readers behind a holder that hands over are all granted, a writer behind them waits' => sub {
	my ($first, $second, @readers) = @pool;
	line_up($zk, 'readers', $first, $second);
	start_in_queue($readers[$_], "SELECT zk_lock_shared('readers')", $zk, lock_path('readers'), $_ + 3) foreach 0, 1;
	$first->query_safe("SELECT zk_unlock('readers')");
	$second->wait_result;
	ok(!(grep { $_->is_done } @readers), 'the readers wait');
	$second->query_safe("SELECT zk_unlock('readers')");
	assert_ends($_, '00000', 'granted') foreach @readers;
	# Nor does one of them hand over what the others hold.
	start_in_queue($second, "SELECT zk_lock('readers')", $zk, lock_path('readers'), 3);
	wait_for_wait($second->node, $second->pid);
	$readers[1]->query_safe("SELECT zk_unlock_shared('readers')");
	my ($left) = wait_for_queue($zk, lock_path('readers'), 2);
	wait_for_watch($zk, $left, $second);
	ok(!$second->is_done, 'a writer waits for all of them');
	$readers[0]->query_safe("SELECT zk_unlock_shared('readers')");
	assert_ends($second, '00000', 'the writer is granted the lock when all readers have released it');
	assert_released($zk, 'readers', $second);
};

# A proof older than a third of the session timeout will not do: the waiter asks
# the quorum for its own node first.
subtest 'a hand-over whose waiter has an old proof is checked with ZooKeeper' => sub {
	my ($first, $second, $third, $fourth) = @pool;
	line_up($zk, 'long', $first, $second, $third, $fourth);
	my $queued = time;
	$first->query_safe("SELECT zk_unlock('long')");
	$second->wait_result;
	poll_until { time > $queued + $timeout / 3 + 1 } 'the proof to age',
	  $timeout;

	my @queue = queue_nodes($zk, lock_path('long'));
	$stranger->delete(lock_path("long/$queue[1]"));
	$second->query_safe("SELECT zk_unlock('long')");
	assert_ends($third, '57000', 'one whose node was deleted is told');
	assert_ends($fourth, '00000', 'the next one is granted');
	assert_held($fourth, 'long', 'ZooKeeper confirms the holder');
	assert_released($zk, 'long', $fourth);
};

# Nobody else is behind the holder, so it is this waiter to which it hands the lock over: by its
# node, and to a waiter of its own cluster in shared memory.
subtest 'a waiter with an old proof whose node was deleted is not handed the lock' => sub {
	my ($first, $second, @waiters) = @pool;
	foreach my $waiter (@waiters)
	{
		line_up($zk, 'gone', $first, $second, $waiter);
		my $queued = time;
		$first->query_safe("SELECT zk_unlock('gone')");
		$second->wait_result;
		poll_until { time > $queued + $timeout / 3 + 1 } 'the proof to age', $timeout;
		my @queue = wait_for_queue($zk, lock_path('gone'), 2);
		$stranger->delete(lock_path("gone/$queue[1]"));
		$second->query_safe("SELECT zk_unlock('gone')");
		assert_ends($waiter, '57000', 'the waiter is told of the deletion');
		assert_no_nodes($zk, lock_path('gone'));
	}
};

# The news arrives while the waiter is stopped, and is read when its session is long over and the
# lock another's: that of a hand-over, or the list that tells that it is the first.
foreach my $what ('hand-over', 'deletion')
{
	subtest "a waiter that is stopped during a $what queues again" => sub {
		my ($first, $second, $sleeper, $fourth) = @pool;
		my @ahead = $what eq 'deletion' ? $first : ($first, $second);
		line_up($zk, 'asleep', @ahead, $sleeper, $fourth);
		if (@ahead > 1)
		{
			$first->query_safe("SELECT zk_unlock('asleep')");
			$second->wait_result;
		}
		kill 'STOP', $sleeper->pid or die "could not stop it: $!";
		assert_passes('asleep', $ahead[-1], $fourth, 'the next one is granted when its session ends');
		kill 'CONT', $sleeper->pid;
		wait_for_queue($zk, lock_path('asleep'), 2);
		ok(!$sleeper->is_done, 'the sleeper was not granted, but queues again');
		my $token = $fourth->query_safe("SELECT zk_fencing_token('asleep')");
		$fourth->query_safe("SELECT zk_unlock('asleep')");
		cmp_ok($sleeper->wait_result, '>', $token, 'the stopped waiter is granted the lock in a turn of its own');
		assert_released($zk, 'asleep', $sleeper);
	};
}

# An ensemble that knows no digest authentication: without an identity nodes are
# not guarded, so none may be marked, and all works by looking.
subtest 'locks pass on without hand-over where digest authentication is disabled' => sub {
	plan skip_all => 'ZooKeeper 3.6 always has it' if $zk->version < v3.7;
	my $plain = ZooKeeper->new(java_options =>
		  ['-Dzookeeper.DigestAuthenticationProvider.enabled=false'])->start;
	my $node = cluster('oslo', $plain);
	my @sessions = map { background($node) } 1 .. 3;
	assert_query($sessions[0], "SELECT zk_lock('plain')", '00000', 'the first use works');
	foreach (1 .. 10)
	{
		assert_query(background($node), "SELECT count(*) FROM zk_lock_queue('plain')",
			'00000', 'a session that looks at the queue first works, too');
	}
	start_in_queue($sessions[$_], "SELECT zk_lock('plain')", $plain, lock_path('plain'), $_ + 1) foreach 1, 2;
	unlike($_, marked_as('handed over'), 'no node is marked as handed over') foreach queue_nodes($plain, lock_path('plain'));
	assert_passes('plain', $sessions[ $_ - 1 ], $sessions[$_], 'granted in turn') foreach 1, 2;
	assert_released($plain, 'plain', $sessions[2]);
};

done_testing();
