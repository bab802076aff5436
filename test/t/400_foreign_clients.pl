
# zklock shares queues with other clients: Curator, Kazoo, go-zookeeper, ZooKeeper's recipe, and
# administrators with a shell. A contender ahead holds up a session, whatever its style; a child
# that is no contender does not. Tested with znodes named as those clients do it. (Nodes of ours
# that others delete: t/140, t/320, t/322.)

use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk);
my $stranger = $zk->client;
my $session = background($node);
$stranger->create_path(lock_path('made'));
my $uuid = '6ba7b810-9dad-11d1-80b4-00c04fd430c8';

# A node of the stranger's in the queue of a lock.
sub stand_in_queue ($lock, $prefix, $data = undef)
{
	$stranger->create_path(lock_path($lock));
	return $stranger->create(lock_path($lock) . "/$prefix", $data // 'me',
		ephemeral => 1, sequential => 1);
}

sub nodes ($lock) { return map { $_->[0] } $zk->ephemerals(lock_path($lock) . '/'); }

my %style = (
	'Curator' => "_c_$uuid-lock-",
	'Curator, writer' => "_c_$uuid-__WRIT__",
	'Curator, reader' => "_c_$uuid-__READ__",
	'Kazoo' => '6ba7b8109dad11d180b400c04fd430c8__lock__',
	'Kazoo, reader' => '6ba7b8109dad11d180b400c04fd430c8__rlock__',
	'go-zookeeper' => "_c_6ba7b8109dad11d180b400c04fd430c8-lock-",
	'ZooKeeper\'s recipe' => 'x-72057602912714752-',
	'nobody we know' => 'whatever-');

foreach my $style (sort keys %style)
{
	subtest "a contender of $style ahead is waited for" => sub {
		my $theirs = stand_in_queue('foreign', $style{$style});
		is($session->query_safe("SELECT zk_try_lock('foreign')"),
			'f', 'a try fails');
		start_to_wait($session, "SELECT zk_lock('foreign')");
		wait_for_queue($zk, lock_path('foreign'), 2);
		my ($ours) = grep { $_ ne $theirs } nodes('foreign');
		ok(!$session->is_done, 'the session waits');
		is($node->safe_psql('postgres', "SELECT string_agg(state, ' ' ORDER BY position)
			FROM zk_lock_queue('foreign')"), 'held waiting', 'zk_lock_queue shows both');
		$stranger->delete($theirs);
		assert_ends($session, '00000', 'the session has the lock when the contender is gone');
		is_deeply([ nodes('foreign') ], [$ours], 'the session has the queue node of before');

		# And the other way round: it comes after us.
		$theirs = stand_in_queue('foreign', $style{$style});
		assert_held($session, 'foreign', 'a contender behind us leaves the lock with us');
		$stranger->delete($theirs);
		assert_released($zk, 'foreign', $session);
	};
}

# Whoever takes no notice of our nodes is named to who looks.
subtest 'a look at a queue warns of contenders that may not wait for our nodes' => sub {
	my $theirs = stand_in_queue('unseen', $style{'Kazoo'});
	my $look = "SELECT count(*) FROM zk_lock_queue('unseen')";
	$session->query($look);
	like($session->error,
		qr/WARNING:  a contender of style "kazoo" may ignore the queue nodes/,
		'a warning names the style');
	$session->query("SET zklock.node_style = kazoo; $look; RESET zklock.node_style");
	is($session->error, '', 'no warning with nodes that the client waits for');
	$stranger->delete($theirs);
	assert_no_nodes($zk, lock_path('unseen'), 'nothing left');
};

# And to who waits behind it, once for each lock. The styles that were warned of.
sub warnings_behind ($lock, $theirs, $sql = undef)
{
	$session->start_query($sql // "SELECT zk_lock('$lock')");
	wait_for_watch($zk, $theirs);
	$stranger->delete($theirs);
	$session->wait_result;
	my @warnings = $session->error =~ /WARNING:  a contender of style "(\w+)" may ignore/g;
	$session->query_safe('SELECT zk_unlock_all()');
	return "@warnings";
}

subtest 'a wait behind a contender that may not wait for our nodes warns once for each lock' => sub {
	is(warnings_behind('mixed', stand_in_queue('mixed', $style{'Kazoo'})), 'kazoo', 'a warning names the style');
	is(warnings_behind('mixed', stand_in_queue('mixed', $style{'Kazoo'})), '', 'the warning comes once for a lock');
	is(warnings_behind('mixed/b', stand_in_queue('mixed/b', $style{'Curator, writer'})), 'curator_rw', 'the warning comes for each lock');
	is(warnings_behind('mixed/c', stand_in_queue('mixed/c', $style{$_})), '', "none behind $_")
	  foreach 'Curator', 'go-zookeeper', 'ZooKeeper\'s recipe';
	is(warnings_behind('mixed/d', stand_in_queue('mixed/d', $style{'Kazoo'}),
			"SET zklock.node_style = kazoo; SELECT zk_lock('mixed/d')"), '', 'no warning with nodes that the client waits for');
	$session->query_safe('RESET zklock.node_style');

	my $other = background($node, first => "SET zklock.node_style = kazoo; SELECT zk_lock('mixed/e')");
	start_to_wait($session, "SELECT zk_lock('mixed/e')");
	$other->query_safe('SELECT zk_unlock_all()');
	$session->wait_result;
	is($session->error, '', 'no warning behind a backend of another style');
	$session->query_safe('SELECT zk_unlock_all()');
};

# Readers hold together whatever they are written in.
subtest 'a foreign reader lets readers in and keeps writers out' => sub {
	my $reader = stand_in_queue('read', "_c_$uuid-__READ__");
	is($session->query_safe("SELECT zk_try_lock_shared('read')"),
		't', 'a reader gets the lock');
	$session->query_safe("SELECT zk_unlock_shared('read')");
	is($session->query_safe("SELECT zk_try_lock('read')"), 'f', 'a writer does not get the lock');
	$stranger->delete($reader);
	assert_no_nodes($zk, lock_path('read'), 'nothing left');
};

# The znode of the lock itself goes when nobody uses it; here under our feet.
subtest 'a lock works when its znode is deleted between two uses' => sub {
	foreach (1 .. 3)
	{
		$session->query_safe("SELECT zk_lock('vanishing/below'), zk_unlock('vanishing/below')");
		assert_no_nodes($zk, lock_path('vanishing/below'), 'nothing left');
		$stranger->delete_recursive(lock_path('vanishing'));
	}
	like($session->query("SELECT zk_lock('vanishing/below')"), qr/^\d+$/,
		'it is made anew');
	$session->query_safe('SELECT zk_unlock_all()');
};

# The sequence number restarts with a new znode, the token must not.
subtest "fencing tokens rise when the lock's znode is made again" => sub {
	my @tokens;
	foreach (1 .. 3)
	{
		push @tokens, $session->query_safe("SELECT zk_lock('token')");
		my @queue = queue_nodes($zk, lock_path('token'));
		like($queue[0], qr/0000000000$/, 'the sequence number restarts');
		assert_released($zk, 'token', $session);
		$stranger->delete(lock_path('token'));
	}
	is_deeply(\@tokens, [ sort { $a <=> $b } @tokens ], 'the token rises');
};

done_testing();
