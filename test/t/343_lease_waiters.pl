
# What a wait in zk_try_lease() costs does not depend on how many wait: a waiter looks at the
# lease just ahead only. A dead lease in the middle of the queue holds up no one all the same.
# Tested with a real server that counts requests.

use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk);
my $holder = background($node);
my @waiters;

sub lease ($session, $name, $owner, $more = "'60s'")
{
	return $session->query_safe("SELECT zk_try_lease('$name', '$owner', $more)");
}

# More of them in the queue; each renews its place every three seconds.
sub join_line ($name, $count)
{
	while (@waiters < $count)
	{
		my $number = @waiters + 1;
		push @waiters, background($node);
		start_in_queue($waiters[-1], "SELECT zk_try_lease('$name', 'app$number', '9s', '5min')", $zk, lock_path($name), $number + 1);
	}
	return;
}

# Requests of each that waits, in a second. What else was going on makes it more: the least counts.
sub requests_each ($count)
{
	my $least;
	foreach (1 .. 2)
	{
		my ($before, $since) = ($zk->packets_received, time);
		poll_until { time >= $since + 4 } 'requests to come', 60;
		my $rate = ($zk->packets_received - $before) / (time - $since) / $count;
		$least = $rate if !defined $least || $rate < $least;
	}
	note(sprintf '%d wait: %.1f requests a second each', $count, $least);
	return $least;
}

# A renewal of one's own, a look at the one ahead when that was renewed, and heartbeats: less than
# one a second. With a look at all others each of twenty has seven.
subtest 'each of twenty waiters for a lease sends as few requests as each of five' => sub {
	lease($holder, 'line', 'first', "'1 day'");
	foreach my $count (5, 20)
	{
		join_line('line', $count);
		my $rate = requests_each($count);
		cmp_ok($rate, '>', 0, "$count renew their places");
		cmp_ok($rate, '<', 2, 'a waiter sends less than two requests a second');
	}
	is(scalar(grep { $_->is_done } @waiters), 0, 'all wait');
	$holder->query_safe("SELECT zk_evict('line', token) FROM zk_lock_queue('line') WHERE position = 1");
	cmp_ok($waiters[0]->wait_result, '>', 0, 'the first of them has it then');
	is(scalar(grep { $_->is_done } @waiters), 1, 'no other waiter has the lease');
	# Each is the next when the one before it is not renewed any more, or gives it up.
	my $token = $waiters[0]->query_safe("SELECT (zk_leader('line')).token");
	$waiters[0]->query_safe("SELECT zk_release_lease('line', $token)");
	cmp_ok($waiters[1]->wait_result, '>', $token, 'the second has it when the first gives it up');
	cmp_ok($waiters[2]->wait_result, '>', $token, 'the third when the second does not renew it');
	@waiters = ();
};

subtest 'dead leases in the middle of the queue are removed by the waiter behind them' => sub {
	my $token = lease($holder, 'dead', 'first', "'60s'");
	lease($holder, 'dead', "dead$_", "'2s', place => true") foreach 1 .. 4;
	my $waiter = background($node);
	start_in_queue($waiter, "SELECT zk_try_lease('dead', 'living', '60s', '3min')", $zk, lock_path('dead'), 6);
	assert_soon { queue_nodes($zk, lock_path('dead')) == 2 } 'the dead leases are removed';
	$holder->query_safe("SELECT zk_release_lease('dead', $token)");
	cmp_ok($waiter->wait_result, '>', $token, 'that waiter has the lease then');
};

# Other clients time nobody.
subtest 'a dead lease ahead of another client is removed by the lease behind both' => sub {
	my $client = $zk->client;
	lease($holder, 'mixed', 'dead', "'2s'");
	my $other = $client->contend(lock_path('mixed/x-lock-'));
	my $waiter = background($node);
	start_in_queue($waiter, "SELECT zk_try_lease('mixed', 'living', '60s', '3min')", $zk, lock_path('mixed'), 3);
	assert_soon { queue_nodes($zk, lock_path('mixed')) == 2 } 'the dead lease is removed';
	ok(!$waiter->is_done, 'the other client has the lock');
	$client->delete($other);
	cmp_ok($waiter->wait_result, '>', 0, 'the waiter has the lease when the other client has left');
};

# A renewal is seen by who waits, though it reads nothing else.
subtest 'a holder that renews its lease keeps it, and the waiter sees that' => sub {
	my $token = lease($holder, 'renewed', 'app', "'3s'");
	my $waiter = background($node);
	$waiter->start_query("SELECT zk_try_lease('renewed', 'other', '60s', '7s')");
	my $is_held = 1;
	until ($waiter->is_done || !$is_held)
	{
		$is_held = $holder->query_safe("SELECT zk_renew_lease('renewed', $token, '3s'), pg_sleep(0.2)") =~ /^t/;
	}
	ok($is_held, 'the holder keeps its lease');
	is($waiter->wait_result, '', 'the waiter does not get the lease');
};

# By the clock of the server, which made the node and has its renewal: a busy machine is late for
# a renewal, and even then before the term is over.
subtest 'a place in the queue is renewed when a third of its term is over' => sub {
	lease($holder, 'paced', 'first', "'1 day'");
	my $waiter = background($node);
	my $place = (start_in_queue($waiter, "SELECT zk_try_lease('paced', 'app', '18s', '5min')", $zk, lock_path('paced'), 2))[1];
	my $client = $zk->client;
	my $stat;
	poll_until { $stat = $client->exists(lock_path("paced/$place")); !$stat || $stat->{version} > 0 } 'a renewal', 60;
	cmp_ok($stat->{mtime} - $stat->{ctime}, '<', 12_000, 'long before it is over');
	cmp_ok($stat->{version}, '<', 4, 'the place is not renewed again and again');
};

# Nobody renews or waits here, so that what is counted is the call's, but for a heartbeat.
subtest 'a call that asks again for its place in a long queue reads little of the queue' => sub {
	lease($holder, 'places', 'first', "'1 day'");
	lease($holder, 'places', "app$_", "'1 day', place => true") foreach 1 .. 30;
	my @counts;
	foreach (1 .. 3)
	{
		my $before = $zk->packets_received;
		is(lease($holder, 'places', 'app30', "'1 day', place => true"), '', 'the place is asked for again');
		push @counts, $zk->packets_received - $before;
	}
	cmp_ok((sort { $a <=> $b } @counts)[0], '<', 15, "it takes few requests: @counts");
};

subtest 'zk_try_lease() of a busy lock writes nothing' => sub {
	my $zxid = sub { return $zk->four_letter_word('srvr') =~ /^Zxid: (\S+)/m; };
	my $other = background($node, is_connected => 1);
	lease($holder, 'busy', 'app', "'1 day'");
	my $writes = 0;
	foreach (1 .. 5)
	{
		my ($before) = $zxid->();
		is(lease($other, 'busy', 'other'), '', 'the lease is not to be had');
		my ($after) = $zxid->();
		$writes++ if $after ne $before;
	}
	cmp_ok($writes, '<', 5, 'not each of five calls is followed by a write');
};

done_testing();
