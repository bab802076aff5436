
# zklock.max_lock_bytes keeps the end of a session smaller than what a server reads
# (jute.maxbuffer), because no server would start again that has a larger one in its log
# (ZOOKEEPER-4306). zk_check() finds out what the servers read. Tested with a real server that
# has a small buffer.

use ZkLockTest;

# As little beyond jute.maxbuffer as there can be.
my $size = 65536;
my $zk = ZooKeeper->new(
	java_options => [ "-Djute.maxbuffer=$size", '-Dzookeeper.jute.maxbuffer.extrasize=1024' ])->start;
my $node = cluster('berlin', $zk, 'zklock.max_locks' => 10000);

# Takes locks with long names until that is refused.
sub fill ($session)
{
	return assert_query($session, "DO \$\$ BEGIN FOR i IN 1..2000 LOOP
			PERFORM zk_lock('full/' || repeat('x', 400) || i); END LOOP; END \$\$",
		'53400', 'locks beyond the bound are refused');
}

# The bytes of the paths of its queue nodes, each with its length, as in the transaction.
sub bytes_of_paths
{
	my @paths = map { $_->[0] } $zk->ephemerals(lock_path('full/'));
	my $bytes = 0;
	$bytes += 4 + length foreach @paths;
	return $bytes;
}

# Ends the session and the servers; the servers have the transaction to read at their start.
sub end_and_stop ($session)
{
	$session->quit;
	poll_until { !$zk->ephemerals(lock_path('full/')) } 'nodes to go with the session', 60;
	return $zk->stop;
}

subtest 'zk_check() tells which zklock.max_lock_bytes the servers bear' => sub {
	foreach my $case (
		[ '512kB', qr/^error\|it is less than twice zklock\.max_lock_bytes: 127\.0\.0\.1:\d+ takes no request of 1048575 bytes, but one of 65535\|Set zklock\.max_lock_bytes to 32kB or less/ ],
		[ '33kB', qr/^error\|.* takes no request of 67583 bytes, but one of 33791\|Set zklock\.max_lock_bytes to 16kB or less/ ],
		[ '32kB', qr/^ok\|all servers take requests of 65535 bytes: twice zklock\.max_lock_bytes\|$/ ])
	{
		my ($setting, $pattern) = @$case;
		my $row;
		my $session = background($node, 'zklock.max_lock_bytes' => $setting);
		# A busy machine may need more time than zk_check() has.
		poll_until {
			$row = $session->query_safe("SELECT state, what, remedy FROM zk_check() WHERE item = 'jute.maxbuffer'");
			$row !~ /could not be found out/
		} 'zk_check() to find it out', 60;
		like($row, $pattern, $setting);
		is($session->query_safe("SELECT count(*) FROM zk_check(false) WHERE item = 'jute.maxbuffer'"), 0, 'zk_check(false) has no such row');
		$session->quit;
	}
};

subtest 'locks up to zklock.max_lock_bytes are granted, and the server starts again' => sub {
	my $session = background($node, 'zklock.max_lock_bytes' => '64kB', 'zklock.keep' => '10min');
	$session->query_safe("SELECT zk_lock('full/' || repeat('k', 400) || i), zk_unlock('full/' || repeat('k', 400) || i)
		FROM generate_series(1, 20) AS i");
	is($session->query_safe("SELECT count(*) FROM zk_session_locks WHERE state = 'kept'"), 20, 'some are kept');
	fill($session);
	like($session->error, qr/too many ZooKeeper locks\nDETAIL:  This session holds \d+, and the paths of their queue nodes would have \d+ bytes in total\. The limit is 65536 bytes/,
		'the DETAIL says how much there is');
	like($session->error, qr/HINT:  .*"zklock\.max_lock_bytes" to at most half of jute\.maxbuffer of the ZooKeeper servers/, 'the HINT says what may be changed');
	is($session->query_safe("SELECT count(*) FROM zk_session_locks WHERE state = 'kept'"), 0, 'kept ones go first');
	my $held = $session->query_safe('SELECT count(*) FROM zk_session_locks');
	assert_becomes { scalar(my @nodes = $zk->ephemerals(lock_path('full/'))) } $held, 'those that are held stay';
	my $bytes = bytes_of_paths();
	cmp_ok($bytes, '<=', $size, 'the znodes have no more bytes than allowed');
	cmp_ok($bytes, '>', $size - 700, 'the znodes fill the allowed bytes');
	is($session->query_safe("SELECT bool_and(zk_is_held(name)) FROM (SELECT name FROM zk_session_locks LIMIT 3) AS l"), 't', 'the locks are held');
	$session->query_safe("SELECT zk_unlock(name) FROM zk_session_locks LIMIT 2");
	like($session->query("SELECT zk_lock('full/' || repeat('y', 400))"), qr/^\d+$/, 'with room there is one more');
	end_and_stop($session);
	$zk->start;
	like(background($node)->query_safe("SELECT zk_lock('served')"), qr/^\d+$/, 'the server starts again, and serves');
};

# What makes the bound necessary: with a larger one the server does not come back.
subtest 'a session with more than jute.maxbuffer keeps the server from starting again' => sub {
	my $session = background($node, 'zklock.max_lock_bytes' => '72kB');
	fill($session);
	cmp_ok(bytes_of_paths(), '>', $size + 1024, 'the znodes have more bytes than the server reads');
	end_and_stop($session);
	ok(!eval { $zk->start; 1 }, 'the server does not start any more');
	$zk->kill9;
};

done_testing();
