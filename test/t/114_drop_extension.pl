
# DROP EXTENSION takes the SQL functions away, not the locks: sessions go on holding and waiting,
# the commit guard goes on checking, and each lock ends as it would have. Tested with real
# servers and sessions that hold, wait, keep and have fenced while the extension is dropped.

use ZkLockTest;

my $zk = ZooKeeper->new->start;
my %node = map { $_ => cluster($_, $zk, 'zklock.commit_guard' => 'quorum') } qw(berlin paris);
my $node = $node{berlin};
my $abroad = background($node{paris});
my ($waiter, $owner) = map { background($node) } 1 .. 2;
$owner->query_safe('CREATE TABLE written (what text)');

my $holder = background($node, first => "SELECT zk_lock('held'), zk_lock('lost')");
start_in_queue($waiter, "SELECT zk_lock('held')", $zk, lock_path('held'), 2);
my $keeper = background($node, 'zklock.keep' => '10min', first => "SELECT zk_lock('kept'), zk_unlock('kept')");
is($keeper->query_safe('SELECT state FROM zk_session_locks'), 'kept', 'a lock is kept');
my $writer = background($node, first => "BEGIN; SELECT zk_xact_lock('fenced'); SELECT zk_fence('fenced')");

# Who has fenced something has its row, and so the table, locked.
$owner->start_query('DROP EXTENSION zklock');
wait_for_lock($owner->node, $owner->pid);
ok(!$owner->is_done, 'DROP EXTENSION waits for a transaction that has called zk_fence()');
$writer->query_safe("INSERT INTO written VALUES ('fenced'); COMMIT");
assert_ends($owner, '00000', 'DROP EXTENSION waits for no other transaction');
assert_no_nodes($zk, lock_path('fenced'), 'that transaction has let go of its lock');

subtest 'a lock that is held stays held, and guards commits, after DROP EXTENSION' => sub {
	assert_query($holder, "SELECT zk_unlock('held')", '42883', 'zk_unlock() does not exist any more');
	is($abroad->query_safe("SELECT zk_try_lock('held')"), 'f', 'the lock is still held');
	$holder->query_safe("INSERT INTO written VALUES ('held')");
	pass('the extension guards a commit');
	my $client = $zk->client;
	$client->delete(map { $_->[0] } $zk->ephemerals(lock_path('lost') . '/'));
	assert_query($holder, "INSERT INTO written VALUES ('lost')", '40001', 'a commit without the lock is refused');
	like($holder->error, qr/lock "lost" was lost/, 'the error names the lock');
};

subtest 'a waiter goes on waiting after DROP EXTENSION, and is granted the lock' => sub {
	ok(!$waiter->is_done, 'the waiter goes on waiting');
	$holder->query_safe('DISCARD ALL');
	$holder->query_safe("INSERT INTO written VALUES ('free')");
	like($waiter->wait_result, qr/^\d+$/, 'DISCARD ALL releases the lock, and the waiter has it');
	assert_leave_nothing($zk, lock_path('held'), $waiter);
};

is($abroad->query_safe("SELECT zk_try_lock('kept', '10 s')"), 't', 'a kept lock is given up for another contender');

subtest 'an extension that is created again has the locks of before' => sub {
	$owner->query_safe("SELECT pg_backend_pid()");
	$holder->query_safe('CREATE EXTENSION zklock');
	$holder->query_safe("SELECT zk_lock('again')");
	$owner->query_safe('DROP EXTENSION zklock; CREATE EXTENSION zklock');
	is($holder->query_safe("SELECT zk_is_held('again') AND zk_unlock('again')"), 't', 'a lock of before can be released');
};

done_testing();
