
# The queue is fair: contenders of two clusters are granted in the order in
# which they joined, each with a greater token, and log_lock_waits says who
# holds up whom. A waiter that overtakes, or that is forgotten, shows here.

use ZkLockTest;

my $zk = ZooKeeper->new->start;
my %logging = (log_lock_waits => 'on', deadlock_timeout => '100ms');
my %node = map { $_ => cluster($_, $zk, %logging) } qw(berlin paris);

# The ephemeral nodes of a lock, first contender first.
sub contenders ($name)
{
	my @names = map { $_->[0] =~ s{.*/}{}r } $zk->ephemerals(lock_path($name) . '/');
	@names = sort { substr($a, -10) cmp substr($b, -10) } @names;
	return @names;
}

subtest 'six waiters of two clusters' => sub {
	my $client = $zk->client;
	my $holder = background($node{berlin}, name => 'holder');
	my @tokens = $holder->query_safe("SELECT zk_lock('fifo')");
	my @nodes = contenders('fifo');
	is(scalar @nodes, 1, 'the holder has a node');

	my @waiters;
	foreach my $number (1 .. 6)
	{
		my $waiter = background($node{ $number % 2 ? 'paris' : 'berlin' });
		start_in_queue($waiter, "SELECT zk_lock('fifo')", $zk, lock_path('fifo'), $number + 1);
		push @waiters, $waiter;
	}
	my @queue = contenders('fifo');
	is($queue[0], $nodes[0], 'the holder is the first of them');

	foreach my $number (1 .. 6)
	{
		my $waiter = shift @waiters;
		shift @queue;
		is(scalar(grep { $_->is_done } $waiter, @waiters),
			0, "nobody is granted before the lock is released");
		$holder->query_safe("SELECT zk_unlock('fifo')");
		push @tokens, $waiter->wait_result;
		# the grant may come before the holder's node goes
		wait_for_queue($zk, lock_path('fifo'), scalar @queue);
		is_deeply([ contenders('fifo') ],
			\@queue, "waiter $number follows, no other node went");
		is( $client->exists(lock_path('fifo') . "/$queue[0]")->{czxid},
			$tokens[-1],
			'its token is the czxid of the first node');
		is(scalar(grep { $_->is_done } @waiters), 0, 'nobody else is granted');
		$holder = $waiter;
	}
	is_deeply(\@tokens, [ sort { $a <=> $b } @tokens ], 'tokens rise');
	is(keys %{ { map { $_ => 1 } @tokens } }, 7, 'and differ');
	$holder->query_safe("SELECT zk_unlock('fifo')");
	assert_no_nodes($zk, lock_path('fifo'), 'nothing left');
};

subtest 'a writer between readers' => sub {
	my ($reader, $late_reader) = map { background($node{berlin}) } 1 .. 2;
	my ($writer, $second_reader) = map { background($node{paris}) } 1 .. 2;

	$reader->query_safe("SELECT zk_lock_shared('mixed')");
	$second_reader->query_safe("SELECT zk_lock_shared('mixed')");
	is(scalar contenders('mixed'), 2, 'readers of two clusters hold it together');
	start_in_queue($writer, "SELECT zk_lock('mixed')", $zk, lock_path('mixed'), 3);
	start_in_queue($late_reader, "SELECT zk_lock_shared('mixed')", $zk, lock_path('mixed'), 4);

	$reader->query_safe("SELECT zk_unlock_shared('mixed')");
	wait_for_queue($zk, lock_path('mixed'), 3);
	ok(!$writer->is_done, 'the writer waits for both readers');
	$second_reader->query_safe("SELECT zk_unlock_shared('mixed')");
	assert_ends($writer, '00000', 'then it is granted');
	ok(!$late_reader->is_done, 'ahead of the reader that came later');
	$writer->query_safe("SELECT zk_unlock('mixed')");
	assert_ends($late_reader, '00000', 'who gets it in the end');
	$late_reader->query_safe("SELECT zk_unlock_shared('mixed')");
	assert_no_nodes($zk, lock_path('mixed'), 'nothing left');
};

subtest 'log_lock_waits' => sub {
	my $holder = background($node{berlin});
	my $waiter = background($node{paris});
	my $offset = -s $node{paris}->logfile;
	my ($pid, $holder_pid) = ($waiter->pid, $holder->pid);

	$holder->query_safe("SELECT zk_lock('logged')");
	$waiter->start_query("SELECT zk_lock('logged')");
	$node{paris}->wait_for_log(
		qr/process $pid still waiting for ExclusiveLock on ZooKeeper lock "logged" after \d+\D/,
		$offset);
	$node{paris}->wait_for_log(
		qr/DETAIL:  Held by process $holder_pid of user "\w+" in database "postgres" of cluster "berlin" on host "[^"]+"\. 1 contender is ahead/,
		$offset);
	ok(!$node{paris}->log_contains(qr/process $pid acquired/, $offset),
		'the wait is logged while it lasts, with the holder');
	$holder->query_safe("SELECT zk_unlock('logged')");
	$waiter->wait_result;
	$node{paris}->wait_for_log(
		qr/process $pid acquired ExclusiveLock on ZooKeeper lock "logged" after \d+\D/,
		$offset);
	pass('and its end');

	$offset = -s $node{paris}->logfile;
	$waiter->query_safe("SELECT zk_lock('uncontended')");
	ok(!$node{paris}->log_contains(qr/process $pid (still|acquired)/, $offset),
		'no word of a lock that was free');
	$waiter->query_safe('SELECT zk_unlock_all()');
	assert_no_nodes($zk, lock_path($_), "$_: nothing left")
	  foreach qw(logged uncontended);
};

done_testing();
