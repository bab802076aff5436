
# Any client can make a znode that looks like a hold of zk_hold(). It stands in the queue like
# any other node, whatever is in it, and many of them cost a few requests. Tested with forged
# znodes on a real server.

use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk, 'zklock.session_timeout' => '20s');
my $marked = node_prefix('hold');
my $stranger = $zk->client;

# Make what looks like a hold.
sub forge ($path, $data)
{
	$stranger->create_path($path);
	return $stranger->create("$path/$marked", $data, sequential => 1);
}

# It stands like any other node: a try fails, a wait waits.
sub assert_stands ($name, $what)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $session = background($node);
	is($session->query("SELECT zk_try_lock('$name')"), 'f', "$what: a try fails");
	assert_query($session, "SELECT zk_lock('$name', '1 s')", '55P03', "$what: a wait waits");
	return;
}

subtest 'a forged hold stands in the queue whatever data it has' => sub {
	foreach my $data ('', '{', '{"client":"zklock","token":-1}',
		'{"client":"zklock","twin":"_c_6ba7b810-9dad-11d1-80b4-00c04fd430c8-lock-0000000000"}', 'x' x 5000)
	{
		my $forged = forge(lock_path('c'), $data);
		assert_stands('c', '"' . substr($data, 0, 20) . '"');
		$stranger->delete($forged);
	}
};

subtest 'a try behind ten thousand forged holds asks a few times only' => sub {
	my $crowd = $zk->client;
	my $path = lock_path('many');
	my $session = background($node, is_connected => 1);
	$crowd->create_path($path);
	$crowd->create_many(10_000, "$path/$marked", 'me', ephemeral => 1, sequential => 1);
	my $before = $zk->packets_received;
	is($session->query_safe("SELECT zk_try_lock('many')"), 'f', 'a try fails');
	cmp_ok($zk->packets_received - $before, '<', 100, 'having asked a few times');
};

done_testing();
