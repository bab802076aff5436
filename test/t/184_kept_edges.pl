
# Kept locks (zklock.keep) stay correct in rare situations: cancellations, requests to release,
# more locks than can be kept, and nodes that other clients have marked as kept. Each of these
# once went wrong. Tested with real servers, a proxy, and forged nodes.

use Proxy;
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my %node = map { $_ => cluster($_, $zk, 'zklock.session_timeout' => '12s', 'log_statement' => 'none') }
  qw(berlin paris);
my $stranger = $zk->client;
my $rival = background($node{paris});

sub keeper (%setting) { return background($node{berlin}, 'zklock.keep' => '10min', %setting); }

sub assert_states ($session, $expected, $what)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is($session->query_safe(q(SELECT string_agg(name || ' ' || state, ', ' ORDER BY name) FROM zk_session_locks)),
		$expected, $what);
}

# A node with a keeper's mark, at the head of a queue that exists.
sub forge ($name, %option)
{
	$rival->query_safe("SELECT zk_lock('$name'), zk_unlock('$name')");
	assert_no_nodes($zk, lock_path($name));
	return $stranger->contend(lock_path($name) . '/' . node_prefix('kept'), 'x', %option);
}

subtest 'a cancellation while a kept lock is taken back leaves nothing behind' => sub {
	# With the snapshot fixed each grant warns, and a warning looks for cancels.
	foreach my $round (1 .. 3)
	{
		my $keeper = keeper();
		$keeper->query_safe("SELECT zk_lock('cancel'), zk_unlock('cancel')");
		$keeper->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
		assert_query($keeper, "SET statement_timeout = '@{[ 60 + 7 * $round ]}ms';
			DO \$\$ BEGIN FOR i IN 1 .. 1000000 LOOP
				PERFORM zk_lock('cancel'); PERFORM zk_unlock('cancel'); END LOOP; END \$\$", '57014', 'canceled');
		$keeper->query_safe('ROLLBACK');
		$keeper->query_safe('RESET statement_timeout; SELECT zk_unlock_all()');
		is($rival->query_safe("SELECT zk_try_lock('cancel', '10s')"), 't', 'nothing stays behind');
		$rival->query_safe("SELECT zk_unlock('cancel')");
	}
};

# Once there is one its program reads who has come.
subtest 'locks below a kept one do not end it' => sub {
	$rival->query_safe("SELECT zk_lock('above/0')");
	my $keeper = keeper();
	$keeper->query_safe("SELECT zk_lock('above'), zk_unlock('above')");
	foreach my $below (1 .. 3)
	{
		$rival->query_safe("SELECT zk_lock('above/$below')");
		assert_states($keeper, 'above kept', "it stays, with $below below it");
	}
	$keeper->query_safe("SELECT zk_lock('above'), zk_unlock('above')");
	is($rival->query_safe("SELECT zk_try_lock('above', '10s')"), 't', 'another contender gets the kept lock');
	$rival->query_safe('SELECT zk_unlock_all()');
};

# Nobody would tell its program who has come.
subtest 'a lock whose queue cannot be read is not kept' => sub {
	my $proxy = Proxy->new($zk->connect_string);
	my $keeper = keeper(route => $proxy->address);
	$rival->query_safe("SELECT zk_lock('unread'), zk_unlock('unread')");
	$proxy->trap(8, 2, 'rest');    # the first list is that of the contender
	$keeper->query_safe("SELECT zk_lock('unread'), zk_unlock('unread')");
	poll_until { $proxy->is_sprung } 'its program to ask for the queue';
	$stranger->set_acl(lock_path('unread'), [ [ 30, 'world', 'anyone' ] ]);
	$proxy->heal;
	assert_becomes { $keeper->query_safe('SELECT count(*) FROM zk_session_locks') } 0, 'keeps nothing';
};

subtest 'a lock that was to be released is not kept' => sub {
	my $keeper = keeper();
	$keeper->query_safe("SELECT zk_lock('asked')");
	is($keeper->query_safe("SELECT zk_release_requested('asked')"), 'f', 'no release is requested at first');
	is($rival->query_safe("SELECT zk_request_release('asked')"), 1, 'one is asked');
	assert_becomes { $keeper->query_safe("SELECT zk_release_requested('asked')") } 't', 'the holder hears that its release is requested';
	$keeper->query_safe("SELECT zk_unlock('asked')");
	assert_states($keeper, '', 'what was to be released is not kept');
	$keeper->query_safe("SELECT zk_lock('asked')");
	is($keeper->query_safe("SELECT zk_release_requested('asked')"), 'f', 'the request ends with the release');
	$keeper->query_safe("SELECT zk_unlock('asked')");

	# of a lock that is kept: who takes it back is asked
	$keeper->query_safe("SELECT zk_lock('kept'), zk_unlock('kept')");
	assert_states($keeper, 'asked kept, kept kept', 'it is kept');
	$rival->query_safe("SELECT zk_request_release('kept')");
	is($keeper->query_safe("SELECT zk_release_requested('kept')"), 'f', 'zk_release_requested() is false while nobody holds the lock');
	$keeper->query_safe("SELECT zk_lock('kept')");
	assert_becomes { $keeper->query_safe("SELECT zk_release_requested('kept')") } 't', 'the holder hears that its release is requested';
	$keeper->query_safe("SELECT zk_unlock('kept')");
	assert_states($keeper, 'asked kept', 'the lock is released and not kept');
};

# Whoever said that he let go may have lied: what rests on that alone ends with its release.
subtest "a lock granted on another session's word is not kept" => sub {
	my @sessions = ($rival, background($node{paris}), keeper());
	start_in_queue($sessions[$_], "SELECT zk_lock('word')", $zk, lock_path('word'), $_ + 1) foreach 0 .. 2;
	foreach (0, 1)
	{
		$sessions[$_]->wait_result;
		$sessions[$_]->query_safe("SELECT zk_unlock('word')");
	}
	$sessions[2]->wait_result;
	# longer than a lock is not kept for those who were met
	$sessions[2]->query_safe("SELECT pg_sleep(5.2); SELECT zk_unlock('word')");
	assert_states($sessions[2], '', 'is not kept');
	$sessions[2]->query_safe("SELECT zk_lock('word'), zk_unlock('word')");
	assert_states($sessions[2], 'word kept', 'the next grant of the lock is kept');
};

subtest 'locks beyond the number that can be kept are released' => sub {
	my $keeper = keeper();
	$keeper->query_safe("SELECT zk_lock('many/' || i) FROM generate_series(1, 70) i");
	my $begun = time;
	is($rival->query_safe("SELECT zk_try_lock('many/$_')"), 'f', 'busy') foreach (66 .. 70) x 4;
	unlike(first_in_queue($zk, 'many/70'), marked_as('kept'), 'what cannot be kept does not say so');
	in_time(time - $begun, 19, 'no try waits for an answer that nobody gives');
	is($keeper->query_safe("SELECT count(*) FROM generate_series(1, 70) i WHERE zk_unlock('many/' || i)"), 70,
		'released');
	is($keeper->query_safe("SELECT count(*) || min(state) FROM zk_session_locks"), '64kept', '64 are kept');
};

subtest 'a lease is granted while the lock is only kept' => sub {
	my $keeper = keeper();
	$keeper->query_safe("SELECT zk_lock('leased')");
	is($rival->query_safe("SELECT zk_try_lease('leased', 'app', '9s')"), '', 'nobody gets one while the lock is held');
	$keeper->query_safe("SELECT zk_unlock('leased')");
	assert_soon { $rival->query_safe("SELECT zk_try_lease('leased', 'app', '9s')") ne '' } 'a lease is granted while the lock is only kept';
};

subtest 'a set of locks is not kept' => sub {
	my $keeper = keeper();
	$keeper->query_safe("SELECT zk_lock('set/d')");
	my $names = join ',', map { "'set/$_'" } 'a' .. 'd';
	is($rival->query_safe("SELECT zk_try_lock_set(ARRAY[$names])"), 'f', 'busy');
	poll_until { $stranger->get(first_in_queue($zk, 'set/d')) =~ /"kept":false/ } 'it says so', 30;
	wait_for_queue($zk, lock_path("set/$_"), 0) foreach 'a' .. 'c';
	wait_for_queue($zk, lock_path('set/d'), 1);
	is($rival->query_safe("SELECT zk_try_lock_set(ARRAY[$names])"), 'f', 'busy') foreach 1 .. 3;
	wait_for_queue($zk, lock_path("set/$_"), 0) foreach 'a' .. 'c';
	$keeper->query_safe("SELECT zk_unlock('set/d')");
	ok($keeper->query_safe("SELECT zk_lock_set(ARRAY[$names])"), 'a set is taken');
	$keeper->query_safe("SELECT zk_unlock_set(ARRAY[$names])");
	assert_states($keeper, '', 'no lock of the set is kept');
};

subtest 'nodes that strangers have marked as kept do not hold up a try' => sub {
	my $node = forge('hidden', acl => [ [ 31, 'digest', 'a:b' ] ]);
	is($rival->query("SELECT zk_try_lock('hidden')"), 'f', 'one that cannot be read is busy');

	# one that sets its data all the time
	$node = forge('restless');
	assert_within
	{
		my $begun = time;
		$rival->start_query("SELECT zk_try_lock('restless')");
		$stranger->set($node, 'x' . time) until $rival->is_done || time - $begun > 40;
		my $took = time - $begun;
		is($rival->wait_result, 'f', 'one that sets its data all the time is busy');
		$took;
	}
	3, 'a contender that changes its data again and again is listened to for about a second';
	$stranger->delete($node);

	# one that never answers, and another number of permits; the wait is the caller's
	$node = forge('silent');
	my @took;
	while (@took < 3 || @took < 10 && !grep { $_ < 0.9 } @took)
	{
		push @took, -time;
		assert_query($rival, "SELECT zk_lock('silent', '200ms', 3)", '55P03', 'the wait ends by its time, and not for its permits');
		$took[-1] += time;
	}
	in_time(least_of(@took), 0.9, 'the wait ends by its 200 ms');
	assert_query($rival, "SELECT zk_lock('silent', '20s', 3)", '55000', 'with more of it, the permits');

	# and who tries finds no deadlock
	$rival->query_safe("SET deadlock_timeout = '100ms'; SELECT zk_lock('mine')");
	is($rival->query_safe("SELECT zk_try_lock('silent')"), 'f', 'busy, whoever waits for whom');
	$rival->query_safe('RESET deadlock_timeout; SELECT zk_unlock_all()');
	$stranger->delete($node);
};

my @soon = (deadlock_timeout => '200ms');
# It waits for who waits for it, but would have given the lock up, were it not stopped.
subtest 'a session that only keeps a lock is not part of a deadlock' => sub {
	my ($keeper, $other) = (keeper(@soon), background($node{paris}, @soon));
	$keeper->query_safe("SELECT zk_lock('held'), zk_lock('x'), zk_unlock('x')");
	assert_states($keeper, 'held held, x kept', 'kept');
	$other->query_safe("SELECT zk_lock('y')");
	start_in_queue($keeper, "SELECT zk_lock('y', '30s')", $zk, lock_path('y'), 2);
	poll_until { $zk->ephemerals(lock_path('.waits/')) == 1 } 'it to say that it waits';
	my ($program) = session_programs($keeper->pid);
	kill 'STOP', $program;
	assert_query($other, "SELECT zk_lock('x', '2s')", '55P03', 'a session that waits for the lock goes on waiting');
	kill 'CONT', $program;
	$other->query_safe('SELECT zk_unlock_all()');
	assert_ends($keeper, '00000', 'the session that only keeps a lock is granted the one it waits for');
};

done_testing();
