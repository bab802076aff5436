
# With credentials (zklock.auth) a lock passes from one session to the next in turn, without
# hand-over: every client with the credentials may write to queue nodes, so written data proves
# nothing. Strangers cannot enter the queue. Tested with clients with and without the credentials
# on a real server.

use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $secret = 'zklock:s3cr3t-of-this-test';
my $node = cluster('berlin', $zk, 'zklock.auth' => "digest:$secret");
my $stranger = $zk->client;
my $friend = $zk->client;
$friend->add_auth('digest', $secret);
my @pool = map { background($node) } 1 .. 3;
# A root of ours, and in it the queue of one lock that strangers may enter.
$friend->create_path(lock_path('open'));
$friend->set_acl(lock_path('') =~ s{/$}{}r, [ [ 31, 'auth', '' ], [ 1, 'world', 'anyone' ] ]);

subtest 'locks with credentials pass in turn without a hand-over' => sub {
	foreach my $number (0 .. 2)
	{
		start_in_queue($pool[$number], "SELECT zk_lock('pass')", $zk, lock_path('pass'), $number + 1);
	}
	$pool[0]->wait_result;
	my @nodes = queue_nodes($zk, lock_path('pass'));
	unlike($_, marked_as('handed over'), 'no queue node is marked as handed over') foreach @nodes;
	wait_for_watch($zk, $nodes[1]);

	# What a holder's hand-over would be.
	set_and_be_seen($zk, $friend, lock_path("pass/$nodes[1]"));
	ok(!$pool[2]->is_done, 'a set of the one ahead grants nothing');
	foreach my $number (0, 1)
	{
		assert_passes('pass', $pool[$number], $pool[ $number + 1 ], 'granted in turn');
		assert_held($pool[ $number + 1 ], 'pass', 'ZooKeeper confirms the holder');
	}
	assert_released($zk, 'pass', $pool[2]);
};

subtest 'credentials are read from a file whose lines end as in DOS' => sub {
	my $file = $node->basedir . '/credentials';
	append_to_file($file, "digest:$secret\r\n");
	chmod 0600, $file or die "could not chmod $file: $!\n";
	my $session = background($node, 'zklock.auth' => "\@$file", holds => 'file');
	my ($first) = queue_nodes($zk, lock_path('file'));
	ok(eval { $friend->set(lock_path("file/$first"), ''); 1 }, 'a client with the same credentials may write');
	assert_leave_nothing($zk, lock_path('file'), $session);
};

subtest 'the ACL lets everybody read, and only those with the credentials write' => sub {
	my ($session) = @pool;
	$session->query_safe("SELECT zk_lock('acl')");
	my ($name) = queue_nodes($zk, lock_path('acl'));
	my $path = lock_path("acl/$name");
	foreach my $znode ($path, lock_path('acl'))
	{
		my ($everybody, $owner) = sort { $a->[0] <=> $b->[0] } $friend->get_acl($znode);
		is_deeply($everybody, [ 1, 'world', 'anyone' ], 'everybody may read');
		is($owner->[0], 31, 'a client with the credentials may do all');
		like($owner->[2], qr/^zklock:/, 'the ACL names the user of the credentials');
		eval { $stranger->contend("$znode/x-") };
		like($@, qr/NoAuth|NoChildren/, 'a stranger cannot create below it');
	}
	eval { $stranger->delete($path) };
	like($@, qr/NoAuth/, 'a stranger cannot delete the node');
	$friend->delete($path);
	assert_knows_loss($session, 'acl', 'a friend can delete it');
	$session->query_safe('SELECT zk_unlock_all()');
};

subtest 'a queue that is open to strangers is not used' => sub {
	assert_query($pool[0], "SELECT zk_lock('open')", '42501', 'others can change the znode of the lock');
	assert_no_nodes($zk, lock_path('open'), 'nothing is left in it');
};

done_testing();
