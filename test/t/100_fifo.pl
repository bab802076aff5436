
# A lock is granted in the order in which the contenders joined its queue, and each grant has a
# greater fencing token than the one before. Tested with real servers: waiters of two clusters,
# and the queue as ZooKeeper lists it.

use ZkLockTest;

my $zk = ZooKeeper->new->start;
my %node = map { $_ => cluster($_, $zk) } qw(berlin paris);

sub contenders { return queue_nodes($zk, lock_path('fifo')); }

subtest 'six waiters of two clusters are granted in the order of the queue' => sub {
	my $client = $zk->client;
	my $holder = background($node{berlin}, name => 'holder');
	my @tokens = $holder->query_safe("SELECT zk_lock('fifo')");
	my @nodes = contenders();
	is(scalar @nodes, 1, 'the holder has a node');

	my @waiters;
	foreach my $number (1 .. 6)
	{
		my $waiter = background($node{ $number % 2 ? 'paris' : 'berlin' });
		start_in_queue($waiter, "SELECT zk_lock('fifo')", $zk, lock_path('fifo'), $number + 1);
		push @waiters, $waiter;
	}
	my @queue = contenders();
	is($queue[0], $nodes[0], 'the holder is the first of them');

	foreach my $number (1 .. 6)
	{
		my $waiter = shift @waiters;
		shift @queue;
		is(scalar(grep { $_->is_done } $waiter, @waiters), 0, "nobody is granted before the lock is released");
		$holder->query_safe("SELECT zk_unlock('fifo')");
		push @tokens, $waiter->wait_result;
		# the grant may come before the holder's node goes
		wait_for_queue($zk, lock_path('fifo'), scalar @queue);
		is_deeply([ contenders() ],
			\@queue, "waiter $number follows, no other node went");
		is( $client->exists(lock_path('fifo') . "/$queue[0]")->{czxid},
			$tokens[-1],
			'its token is the czxid of the first node');
		is(scalar(grep { $_->is_done } @waiters), 0, 'nobody else is granted');
		$holder = $waiter;
	}
	is_deeply(\@tokens, [ sort { $a <=> $b } @tokens ], 'tokens rise');
	is(keys %{ { map { $_ => 1 } @tokens } }, 7, 'no two tokens are the same');
	assert_released($zk, 'fifo', $holder);
};

done_testing();
