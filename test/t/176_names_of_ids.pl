
# A lock whose name ends in a number, such as 'orders/1000000000', is no contender for the lock
# above it, although its znode looks like a queue node. Every contender of any client counts,
# also one that has only a number for a name or belongs to no session. Tested with znodes of all
# kinds on a real server.

use List::Util qw(min);

use ZkLockTest;

my $zk = ZooKeeper->new(java_options => ['-Dzookeeper.extendedTypesEnabled=true'])->start;
my $node = cluster('berlin', $zk, 'zklock.session_timeout' => '60s', 'deadlock_timeout' => '100ms');
my $stranger = $zk->client;
my ($below, $session, $other) = map { background($node, is_connected => 1) } 1 .. 3;
my $uuid = '6ba7b810-9dad-41d1-80b4-00c04fd430c8';

# With numbers before and behind those of contenders, the greatest and the least, and what
# stands for no number of a queue; also the words of other clients.
my @ids = ('0000000000', '999999999', '1000000000', '2147483646', '2147483647', '4294967295',
	'9223372036854775807', '-123456789', '-1234567890', '1700000000000', 'report-2026112700',
	'20260228235959', "$uuid-000000000001", 'lock-0000000000', 'read-1234567890', 'x-1-0000000000',
	'1000000000/lines', '1000000000/0000000000');

# Takes locks below the name, so that each list of its queue has them.
sub fill ($name)
{
	$below->query_safe("SELECT zk_lock('$name/$_')") foreach @ids;
	return;
}

fill('orders');

subtest 'each name that ends in a number has a lock of its own' => sub {
	foreach my $id (@ids)
	{
		is($session->query_safe("SELECT zk_try_lock('orders/$id')"), 'f', "$id is held");
	}
	is($session->query_safe("SELECT string_agg(name, ' ' ORDER BY name) FROM zk_all_locks('orders')"),
		$session->query_safe("SELECT string_agg('orders/' || id, ' ' ORDER BY 'orders/' || id) FROM unnest(string_to_array('@ids', ' ')) AS id"),
		'zk_all_locks shows them, and not the one above');
	is($session->query_safe("SELECT zk_lock_path('orders/1000000001') > 0, zk_unlock_path('orders/1000000001')"), 't|t', 'zk_lock_path() of such a name');
};

subtest 'locks below do not count in the queue of the lock above' => sub {
	foreach my $call ("zk_try_lock('orders')", "zk_lock('orders', '60 s') > 0", "zk_try_lock_shared('orders')",
		"zk_try_lock('orders', permits => 3)", "zk_try_xact_lock('orders')")
	{
		is($session->query_safe("SELECT $call"), 't', $call);
		is($session->query_safe("SELECT count(*) FILTER (WHERE position = 1 AND state = 'held'),
				count(*) FILTER (WHERE position > 1), count(*) FILTER (WHERE position IS NULL AND style = 'none')
				FROM zk_lock_queue('orders')"), join('|', $call =~ /xact/ ? 0 : 1, 0, 17), 'zk_lock_queue');
		is($session->query_safe("SELECT holder_count, waiter_count FROM zk_all_locks('orders') WHERE name = 'orders'"),
			$call =~ /xact/ ? '' : '1|0', 'zk_all_locks');
		$session->query_safe('SELECT zk_unlock_all()');
	}
	is($session->query_safe("SELECT zk_try_lease('orders', 'app', '60 s', '60 s') > 0"), 't', 'a lease');
	is($session->query_safe("SELECT owner FROM zk_leader('orders')"), 'app', 'zk_leader');
	is($session->query_safe("SELECT zk_try_lease('orders', 'app', '60 s') > 0"), 't', 'its renewal');
	is($session->query_safe("SELECT zk_release_lease('orders', token) FROM zk_leader('orders')"), 't', 'its end');
	is($session->query_safe("SELECT zk_hold('orders', 'why', '60 s') > 0"), 't', 'a hold');
	is($session->query_safe("SELECT zk_release_hold('orders', token) FROM zk_lock_queue('orders') WHERE position = 1"), 't', 'its end');
	is($session->query_safe("SELECT count(*) FROM zk_lock_queue('orders') WHERE position IS NOT NULL"), 0, 'nothing left');
};

# A lock below whose number is greater is behind the contender, whatever it is.
subtest 'locks below cost no request more' => sub {
	my %counts = (ids => [], words => []);
	$below->query_safe("SELECT zk_lock('$_/plain')") foreach qw(ids words);
	$below->query_safe("SELECT zk_lock('ids/' || i) FROM generate_series(1000000000, 1000000100) AS i");
	# By turns, so that what else is sent on a busy machine is counted for both. zk_unlock()
	# waits for no reply: a question behind it does.
	foreach my $attempt (1 .. 10)
	{
		foreach my $name (qw(words ids))
		{
			$session->query_safe("SELECT count(*) FROM zk_lock_queue('$name')");
			my $before = $zk->packets_received;
			$session->query_safe("SELECT zk_lock('$name')");
			push $counts{$name}->@*, $zk->packets_received - $before;
			$session->query_safe("SELECT zk_unlock('$name')");
		}
		last if $attempt >= 3 && min($counts{ids}->@*) == min($counts{words}->@*);
	}
	is(least_of($counts{ids}->@*), least_of($counts{words}->@*), 'ids cost no request more');
	is($session->query_safe("SELECT zk_try_lock('ids'), zk_unlock('ids')"), 't|t', 'a try reads some of many');
	my $theirs = $stranger->contend(lock_path('ids') . '/x-1-');
	is($session->query_safe("SELECT zk_try_lock('ids')"), 'f', 'a try finds a contender among many locks below');
	$stranger->delete($theirs);
};

# Each contender, by name and options of its create; a sub makes one otherwise.
my %contender = (
	'a bare number, of a session' => [ '', ephemeral => 1, sequential => 1 ],
	'a bare number, persistent' => [ '', sequential => 1 ],
	'a bare number with a TTL' => [ '', sequential => 1, ttl => 3_600_000 ],
	'a word, persistent' => [ 'order-', sequential => 1 ],
	'ZooKeeper\'s recipe' => [ 'x-72057602912714752-', ephemeral => 1, sequential => 1 ],
	'a word of .NET' => [ 'lock-', ephemeral => 1, sequential => 1 ],
	'Curator' => [ "_c_$uuid-lock-", ephemeral => 1, sequential => 1 ],
	'Kazoo' => [ '6ba7b8109dad11d180b400c04fd430c8__lock__', ephemeral => 1, sequential => 1 ],
	'Hive, persistent' => [ 'LOCK-EXCLUSIVE-', sequential => 1 ],
	'Hive, in other words' => [ 'LOCK-EXCLUSIVE-', sequential => 1, data => '{"client":"zklock","format":1,"node":"name"}' ],
	'a hold' => sub { $other->query_safe("SELECT zk_hold('orders', 'why')") },
	'a lease' => sub { $other->query_safe("SELECT zk_try_lease('orders', 'app', '1 h', '60 s')") });

foreach my $kind (sort keys %contender)
{
	subtest "a contender made as $kind is waited for" => sub {
		my $how = $contender{$kind};
		my $theirs;
		if (ref $how eq 'ARRAY')
		{
			my ($prefix, %option) = @$how;
			$theirs = $stranger->create(lock_path('orders') . "/$prefix", delete $option{data} // 'me', %option);
		}
		else
		{
			$how->();
			($theirs) = map { lock_path('orders') . "/$_" }
			  $session->query_safe("SELECT node FROM zk_lock_queue('orders') WHERE position = 1");
		}
		is($session->query_safe("SELECT zk_try_lock('orders')"), 'f', 'a try fails');
		is($session->query_safe("SELECT string_agg(state, ' ') FROM zk_lock_queue('orders') WHERE position IS NOT NULL"),
			'held', 'zk_lock_queue shows it');
		is($session->query_safe("SELECT holder_count FROM zk_all_locks('orders') WHERE name = 'orders'"), 1, 'zk_all_locks shows it');
		start_to_wait($session, "SELECT zk_lock('orders')");
		wait_for_watch($zk, $theirs);
		ok(!$session->is_done, 'the waiter waits');
		$stranger->delete($theirs);
		assert_ends($session, '00000', 'the waiter is granted the lock when the contender is gone');
		$session->query_safe("SELECT zk_unlock('orders')");
	};
}

# A list may have a lock below that the list before had not, with a number of those ahead; and
# behind a waiter a contender may come.
subtest 'a lock below that is taken during a wait does not hold up the waiter' => sub {
	foreach my $mode ('', '_shared')
	{
		my $low = 1_700_000_000_001 + length $mode;
		$other->query_safe("SELECT zk_lock('orders')");
		start_to_wait($session, "SELECT zk_lock$mode('orders')");
		my ($ahead) = $below->query_safe("SELECT node FROM zk_lock_queue('orders') WHERE position = 1");
		wait_for_watch($zk, $ahead);
		my $theirs = $stranger->create(lock_path('orders') . '/', 'me', sequential => 1);
		$below->query_safe("SELECT zk_lock('orders/$low')");
		$other->query_safe("SELECT zk_unlock('orders')");
		assert_ends($session, '00000', 'the lock below is not in the way');
		is($other->query_safe("SELECT zk_try_lock('orders', permits => 1)"), 'f', 'the waiter holds the lock');
		$session->query_safe('SELECT zk_unlock_all()');
		is($other->query_safe("SELECT zk_try_lock('orders')"), 'f', 'the contender that came has the lock when the waiter lets go');
		$stranger->delete($theirs);
		is($other->query_safe("SELECT zk_lock('orders', '60 s') > 0"), 't', 'the lock is granted when the contender is gone');
		$other->query_safe('SELECT zk_unlock_all()');
	}
};

subtest 'locks below neither give nor take a permit' => sub {
	$other->query_safe("SELECT zk_lock('orders', permits => 2)");
	my $third = background($node, first => "SELECT zk_lock('orders', permits => 2)");
	start_to_wait($session, "SELECT zk_lock('orders', permits => 2)");
	$below->query_safe("SELECT zk_lock('orders/1700000000005')");
	ok(!$session->is_done, 'the waiter still waits for a permit');
	$other->query_safe("SELECT zk_unlock('orders')");
	assert_ends($session, '00000', 'the waiter is granted a permit');
	$_->query_safe('SELECT zk_unlock_all()') foreach $session, $third;
	$third->quit;
};

subtest 'a deadlock is found over a lock that has locks below' => sub {
	$session->query_safe("SELECT zk_lock('orders')");
	$other->query_safe("SELECT zk_lock('elsewhere')");
	start_to_wait($session, "SELECT zk_lock('elsewhere')");
	$other->start_query("SELECT zk_lock('orders')");
	assert_soon { $session->is_done || $other->is_done } 'the deadlock is found', 60;
	my ($victim, $survivor) = $session->is_done ? ($session, $other) : ($other, $session);
	assert_ends($victim, '40P01', 'one of the two sessions gives way');
	$victim->query_safe('SELECT zk_unlock_all()');
	assert_ends($survivor, '00000', 'the other session is granted the lock');
	$survivor->query_safe('SELECT zk_unlock_all()');
};

# What cannot be known counts: a znode that may not be read, and one that another client has
# made for its own locks below, which is as persistent as a contender may be.
subtest 'a child that cannot be told from a contender counts as one' => sub {
	$below->query_safe("SELECT zk_lock('doubt/plain')");
	my $path = lock_path('doubt') . '/0000000000';
	$stranger->create($path, '', container => 1, acl => [ [ 31, 'ip', '192.0.2.1' ] ]);
	is($session->query_safe("SELECT zk_try_lock('doubt')"), 'f', 'a child that may not be read counts');
	is($session->query_safe("SELECT count(*) FROM zk_lock_queue('doubt') WHERE position = 1"), 1, 'zk_lock_queue() shows that child as a contender');
	$stranger->delete($path);
	is($session->query_safe("SELECT zk_try_lock('doubt'), zk_unlock('doubt')"), 't|t', 'the lock is free when the child is gone');

	$stranger->create_path("$path/part");
	is($session->query_safe("SELECT zk_try_lock('doubt')"), 'f', 'a persistent child counts');
	assert_told($session, "SELECT zk_lock('doubt', '100 ms')",
		qr/DETAIL:  The znode "[^"]*doubt\/0000000000" belongs to no session and may be a contender/, 'of which who waits is told');
	$stranger->delete_recursive($path);

	$stranger->create($path, '{"client":"zklock","format":1,"node":"name"}');
	is($session->query_safe("SELECT zk_try_lock('doubt'), zk_unlock('doubt')"), 't|t', 'but not if its data say that it is a name\'s');
	is($session->query_safe("SELECT zk_lock('doubt/0000000000') > 0, zk_unlock('doubt/0000000000')"), 't|t', 'which may be a lock\'s, too');
	poll_until { !$stranger->children($path) } 'its queue node to go, which zk_unlock() does not wait for';
	$stranger->delete($path);

	foreach my $number (1_234_567_890, 3_000_000_000)
	{
		my $chosen = $stranger->create(lock_path('doubt') . "/$number", '', ephemeral => 1);
		is($session->query_safe("SELECT zk_try_lock('doubt')"), $number < 2**31 ? 'f' : 't',
			"a number that its client has chosen, $number");
		$stranger->delete($chosen);
		$session->query_safe('SELECT zk_unlock_all()');
	}

	$stranger->create($path, '', container => 1);
	is($session->query_safe("SELECT zk_try_lock('doubt')"), 'f', 'a container of another client looks like a persistent one');
	$stranger->delete($path);
};

subtest 'names that other clients would take for contenders are refused' => sub {
	foreach my $name ("orders/_c_$uuid-lock-1000000000", 'orders/a__lock__1', 'orders/a__rlock__12345678901', 'orders/__READ__1',
		'orders/x-__WRIT__0000000001/part', 'orders/LOCK-SHARED-7')
	{
		assert_query($session, "SELECT zk_try_lock('$name')", '42602', $name);
	}
};

$below->query_safe('SELECT zk_unlock_all()');
$stranger->close;
done_testing();
