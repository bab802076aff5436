
# What a wait in zk_try_lease() costs does not depend on how many wait: a waiter times the leases
# that are held, and none of those that wait. Tested with a real server that counts requests.

use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk);
my $holder = background($node);
my @waiters;

sub lease ($session, $name, $owner, $more = "'60s'")
{
	return $session->query_safe("SELECT zk_try_lease('$name', '$owner', $more)");
}

# More of them in the queue, while the lease is renewed.
sub join_line ($name, $count, $token)
{
	while (@waiters < $count)
	{
		my $number = @waiters + 1;
		push @waiters, background($node);
		$holder->query_safe("SELECT zk_renew_lease('$name', $token, '9s')");
		start_in_queue($waiters[-1], "SELECT zk_try_lease('$name', 'app$number', '9s', '5min')", $zk, lock_path($name), $number + 1);
	}
	return;
}

# Requests of each that waits, in a second, while the lease is renewed. What else was going on
# makes it more: the least counts.
sub requests_each ($count, $token)
{
	my $least;
	foreach (1 .. 2)
	{
		my ($before, $since) = ($zk->packets_received, time);
		poll_until { $holder->query_safe("SELECT zk_renew_lease('line', $token, '9s'), pg_sleep(0.5)"); time >= $since + 4 } 'requests to come', 60;
		my $rate = ($zk->packets_received - $before) / (time - $since) / $count;
		$least = $rate if !defined $least || $rate < $least;
	}
	note(sprintf '%d wait: %.1f requests a second each', $count, $least);
	return $least;
}

# A look at the lease in each of its terms, and heartbeats: less than one a second. With a look at
# all others each of twenty has seven.
subtest 'each of twenty waiters for a lease sends as few requests as each of five' => sub {
	my $held = lease($holder, 'line', 'first', "'9s'");
	foreach my $count (5, 20)
	{
		join_line('line', $count, $held);
		my $rate = requests_each($count, $held);
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

subtest 'dead leases among many are removed by the waiter behind them' => sub {
	my $more = sub ($term) { "'$term', permits => 6" };
	my @living = map { lease($holder, 'dead', "living$_", $more->('1 day')) } 1 .. 2;
	lease($holder, 'dead', "dead$_", $more->('2s')) foreach 1 .. 4;
	my $waiter = background($node);
	start_in_queue($waiter, "SELECT zk_try_lease('dead', 'next', '60s', '3min', permits => 6)", $zk, lock_path('dead'), 7);
	cmp_ok($waiter->wait_result, '>', $living[1], 'the waiter has a lease when the dead ones are over');
	assert_soon { lease($holder, 'dead', 'later', $more->('60s')); queue_nodes($zk, lock_path('dead')) == 4 } 'the dead leases are removed';
	is($holder->query_safe("SELECT zk_renew_lease('dead', $_, '60s')"), 't', 'a living lease stays') foreach @living;
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

# Nobody renews or waits here, so that what is counted is the call's, but for a heartbeat.
subtest 'a call that asks again for a lease among many reads little of the queue' => sub {
	lease($holder, 'many', "app$_", "'1 day', permits => 40") foreach 1 .. 30;
	my @counts;
	foreach (1 .. 3)
	{
		my $before = $zk->packets_received;
		isnt(lease($holder, 'many', 'app30', "'1 day', permits => 40"), '', 'the lease is asked for again');
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
