
# A waiter is granted the lock although the node ahead of it was hidden from it: ZooKeeper 3.8.4
# and 3.9.2 and later do not tell a client of a node that it may not read, so the waiter must
# look by itself. Tested with a stranger that changes the ACL of its node, on a real server.

use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk, 'zklock.session_timeout' => '1s');
my $waiter = background($node);
my $stranger = $zk->client;

$waiter->query_safe("SELECT zk_try_lock('hidden'), zk_unlock('hidden')");
$stranger->add_auth('digest', 'stranger:secret');
$stranger->create_path(lock_path('hidden'));

# What the mark in its name says of a node.
my %mark = ('a client of another make' => '', 'one with our mark' => 'handed over');
foreach my $who (sort keys %mark)
{
	my $theirs = $stranger->contend(lock_path('hidden') . '/' . node_prefix($mark{$who}), '');
	$waiter->start_query("SELECT zk_lock('hidden')");
	wait_for_watch($zk, $theirs);
	$stranger->set_acl($theirs, [ [ 31, 'auth', '' ] ]);
	ok(!$waiter->is_done, "$who: the waiter goes on waiting");
	$stranger->delete($theirs);
	assert_ends($waiter, '00000', "$who: the waiter is granted the lock");
	$waiter->query_safe("SELECT zk_unlock('hidden')");
	assert_no_nodes($zk, lock_path('hidden'), "$who: nothing left");
}

done_testing();
