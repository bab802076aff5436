
# In an ensemble of three servers a lock is the same through each server, and no server that is
# killed, hung or cut off costs a session its lock or its place in the queue. Tested with real
# servers, one of which is killed, paused or put behind a proxy.

use Proxy;
use ZkLockTest;

my $zk = ZooKeeper->new(servers => 3)->start;
my %node = map { $_ => cluster($_, $zk, 'zklock.session_timeout' => '15s') }
  qw(berlin paris);

sub nodes ($name) { return [ $zk->ephemerals(lock_path($name) . '/') ]; }

# A session that uses one member of the ensemble.
sub session_at ($cluster, $member)
{
	return background($node{$cluster}, 'zklock.servers' => $zk->connect_string($member));
}

# It stands in the queue when there are so many nodes of sessions.
sub start_as ($count, $session, $lock)
{
	$session->start_query("SELECT zk_lock('$lock')");
	poll_until { @{ nodes($lock) } == $count } 'it to queue', 30;
	return;
}

sub assert_rising (@tokens) { return is("@tokens", join(' ', sort { $a <=> $b } @tokens), 'tokens rise'); }

subtest 'a lock is the same through each server of an ensemble' => sub {
	my @sessions = map { session_at($_ == 2 ? 'paris' : 'berlin', $_) } $zk->members;
	my @tokens = $sessions[0]->query_safe("SELECT zk_lock('through')");
	like($sessions[0]->query_safe('SELECT server FROM zk_session'),
		qr/:${\ $zk->port(1)}$/, 'connected to the one named');
	foreach my $member (2, 3)
	{
		is($sessions[ $member - 1 ]->query_safe("SELECT zk_try_lock('through')"),
			'f', "server $member knows the lock");
		start_as($member, $sessions[ $member - 1 ], 'through');
	}
	foreach my $member (2, 3)
	{
		push @tokens, assert_passes('through', @sessions[ $member - 2, $member - 1 ], 'granted in turn');
	}
	assert_rising(@tokens);
	assert_leave_nothing($zk, lock_path('through'), @sessions);
};

subtest 'sessions of one backend begin with different servers' => sub {
	my $session = background($node{berlin});
	my %servers;
	foreach my $round (1 .. 3)
	{
		$session->query_safe("SELECT zk_lock('after')");
		$servers{ $session->query_safe('SELECT server FROM zk_session') } = 1;
		$session->query_safe('SELECT zk_unlock_all(), zk_disconnect()');
	}
	cmp_ok(scalar(keys %servers), '>', 1, 'not all sessions begin with the same server');
	$session->quit;
};

subtest 'a leader that is killed costs no session its lock or its place' => sub {
	my $holder = background($node{berlin});
	my @waiters = map { background($node{ $_ % 2 ? 'paris' : 'berlin' }) } 1 .. 4;
	# Wherever their sessions are, some are connected to the leader.
	my @tokens = $holder->query_safe("SELECT zk_lock('killed')");
	start_as($_ + 2, $waiters[$_], 'killed') foreach 0 .. $#waiters;
	$holder->query_safe('CREATE TABLE survived (i int);
		BEGIN; INSERT INTO survived VALUES (1)');
	my $before = nodes('killed');

	my $leader = $zk->kill_leader;
	# The guard may have to wait for the new leader, and then is satisfied.
	assert_query($holder, 'COMMIT', '00000', 'the holder commits');
	$zk->wait_ready;
	is_deeply(nodes('killed'), $before, 'holder and waiters keep their nodes');
	assert_held($holder, 'killed', 'it is held');
	is(scalar(grep { $_->is_done } @waiters), 0, 'nobody was granted meanwhile');

	foreach my $waiter (@waiters)
	{
		push @tokens, assert_passes('killed', $holder, $waiter, 'the lock passes on with the new leader');
		$holder->quit;
		$holder = $waiter;
	}
	assert_rising(@tokens);
	assert_leave_nothing($zk, lock_path('killed'), $holder);
	$zk->start($leader);
};

# Two of three are gone: no quorum. What is held is held, but nobody can prove
# it, so a commit waits; and nobody is granted anything.
subtest 'a commit under a lock waits while there is no quorum' => sub {
	my $holder = background($node{berlin}, 'zklock.commit_guard' => 'quorum', holds => 'quorum',
		first => 'CREATE TABLE unproven (i int)');
	my $waiter = background($node{paris});
	start_as(2, $waiter, 'quorum');
	my $before = nodes('quorum');
	$zk->pause($zk->followers);
	start_to_wait($holder, 'INSERT INTO unproven VALUES (1)');
	ok(!$waiter->is_done, 'the waiter waits');
	$zk->resume;
	$zk->wait_ready;
	assert_ends($holder, '00000', 'the commit goes on with the quorum');
	is_deeply(nodes('quorum'), $before, 'holder and waiter keep their nodes');
	assert_passes('quorum', $holder, $waiter, 'the waiter is granted');
	assert_leave_nothing($zk, lock_path('quorum'), $holder, $waiter);
};

# One server answers no connection and no handshake any more, of however many that
# come. Whoever meets it turns to the next in a part of the session timeout.
subtest 'a server that accepts connections and is silent costs no session its lock' => sub {
	my @proxies = map { Proxy->new('127.0.0.1:' . $zk->port($_)) } $zk->members;
	my $servers = join ',', map { $_->address } @proxies;
	my @sessions = map { background($node{berlin}, 'zklock.servers' => $servers, holds => "silent$_") } 0 .. 5;
	$proxies[0]->cut;
	my $since = time;
	$_->reset_connections foreach @proxies;
	$sessions[$_]->start_query("SELECT zk_is_held('silent$_')") foreach 0 .. $#sessions;
	is(join(' ', map { $_->wait_result } @sessions), 't t t t t t', 'all keep their locks');
	in_time(time - $since, 12, 'before the session timeout');
};

# The two others elect a leader after ten seconds only, as with ZooKeeper's defaults: a
# session has some three seconds left then to find one of them.
subtest 'a leader that hangs costs no session its lock' => sub {
	my $count = 6;
	my $usual = ZooKeeper->new(
		servers => 3,
		tick_time => 2000,
		config => { syncLimit => 5 })->start;
	my $node = cluster('tokyo', $usual, 'zklock.session_timeout' => '15s');
	my @ours = map { background($node, holds => "ours$_") } 0 .. $count - 1;
	my $leader = $usual->leader;
	$usual->pause($leader);
	$ours[$_]->start_query("SELECT zk_is_held('ours$_')") foreach 0 .. $#ours;
	my $lost = grep { $_->wait_result ne 't' } @ours;
	$usual->resume;
	$usual->wait_ready;
	is($lost, 0, 'no session of ours has lost its lock');
	is(scalar(grep { $ours[$_]->query("SELECT zk_is_held('ours$_')") ne 't' } 0 .. $#ours),
		0, 'no session has lost its lock when the old leader is back');
};

done_testing();
