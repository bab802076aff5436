
# A request that ZooKeeper does not execute is sent again within the bounds of the call, and not
# longer; an unknown error is reported with its number. Tested with a proxy that refuses all
# requests, and with a server that throttles. Single refusals are cells of test/lib/Calls.pm.

use Faults;
use Liar;
use Time::HiRes qw(time);
use ZkLockTest;

# What a server says that has too many requests, in ZooKeeper's protocol.
my $throttled = -127;

my $zk = ZooKeeper->new->start;
my $liar = Liar->new('127.0.0.1:' . $zk->port);
my $node = cluster('berlin', $zk, servers => $liar->address,
	'deadlock_timeout' => '10s', 'zklock.session_timeout' => '30s');

subtest 'calls end by their bounds while all requests are throttled' => sub {
	my $session = background($node, is_connected => 1);
	my $holder = background($node, 'zklock.servers' => $zk->connect_string, holds => 'other');
	$session->query_safe("SELECT zk_lock('held')");
	$liar->answer_all_with($throttled);

	# A try ends by its bound, and says what the server says.
	$session->query_safe("SET zklock.connect_timeout = '1s'");
	assert_within
	{
		my $begun = time;
		assert_query($session, "SELECT zk_try_lock('new')", '08001', 'could not ask ZooKeeper for lock "new" in the time given');
		my $took = time - $begun;
		like($session->error, qr/DETAIL:  Server "[^"]+" has not executed a request: operation was throttled/, 'the DETAIL quotes the server');
		like($session->error, qr/HINT:  .*throttled_op_wait_time/, 'the HINT names the setting of ZooKeeper');
		$took;
	}
	3, 'the try ends within its bound';
	foreach my $bound ([ "SET lock_timeout = '500ms'", '55P03', 'lock timeout' ], [ "SET lock_timeout = 0; SET statement_timeout = '500ms'", '57014', 'statement timeout' ])
	{
		my ($set, $state, $text) = @$bound;
		$session->query_safe($set);
		assert_query($session, "SELECT zk_lock('new')", $state, $text);
	}
	$session->query_safe('SET statement_timeout = 0');
	$session->start_query("SELECT zk_lock('new')");
	wait_for_wait($node, $session->pid);
	$session->cancel;
	assert_ends($session, '57014', 'a cancel ends it');

	# One without a bound goes on when they are executed again.
	$session->start_query("SELECT zk_lock('other')");
	wait_for_wait($node, $session->pid);
	$liar->be_honest;
	wait_for_queue($zk, lock_path('other'), 2, $session);
	$holder->quit;
	like($session->wait_result, qr/^\d+$/, 'the wait is granted its lock');
	is($session->query_safe("SELECT zk_is_held('held')"), 't', 'nothing is lost');
	assert_leave_nothing($zk, lock_path('held'), $session);
};

subtest 'a call whose requests are throttled for a session timeout fails with 53000' => sub {
	my $session = background($node, is_connected => 1, 'zklock.session_timeout' => '8s');
	$liar->answer_all_with($throttled);
	assert_query($session, "SELECT zk_lock('given up')", '53000', 'ZooKeeper has not executed the request');
	like($session->error, qr/throttled/, 'the error quotes the server');
	$liar->be_honest;
	assert_query($session, "SELECT zk_lock('given up')", '00000', 'the next one is executed');
	assert_leave_nothing($zk, lock_path('given up'), $session);
};

# The list of the queue was asked for behind the create that was not executed, so the session's
# node is not in it. Its reply is late: it comes with that to the create that was sent again.
subtest 'a list that is older than the create is not taken for the queue' => sub {
	my $faults = Faults->new($zk->connect_string);
	my $way = $faults->way;
	my $session = background($node, 'zklock.servers' => "127.0.0.1:$way", is_connected => 1);
	$zk->client->create_path(lock_path('late list'));
	$faults->arm($way, "put off $throttled", 1);
	start_in_queue($session, "SELECT zk_lock('late list')", $zk, lock_path('late list'), 1);
	my ($program) = session_programs($session->pid);
	kill STOP => $program;
	$faults->heal($way);
	kill CONT => $program;
	like($session->wait_result, qr/^\d+$/, 'the lock is granted') || diag($session->error);
	assert_leave_nothing($zk, lock_path('late list'), $session);
};

# It may have been done: it is undone.
subtest 'an error code that zklock does not know is reported with 58000 and its number' => sub {
	my $session = background($node, is_connected => 1);
	# Of a create2.
	$liar->refuse(1, -199, 15);
	assert_query($session, "SELECT zk_lock('unknown')", '58000', 'request to ZooKeeper failed');
	like($session->error, qr/unknown error -199/, 'the error has the number of the unknown code');
	assert_leave_nothing($zk, lock_path('unknown'), $session);
};

# A server that throttles whatever has waited for a millisecond behind another request.
subtest 'requests that a real server throttles are executed in the end' => sub {
	my $busy = ZooKeeper->new(java_options => [ '-Dzookeeper.request_throttle_max_requests=1', '-Dzookeeper.throttled_op_wait_time=1' ])->start;
	my @sessions = map { background($node, 'zklock.servers' => $busy->connect_string) } 1 .. 4;
	my $throttled = sub { return $busy->counter('throttled_ops'); };
	my $round = 0;
	poll_until
	{
		$round++;
		$_->start_query("SELECT count(zk_lock('lock ' || i)) + count(zk_run_once('run', 'round $round, ' || i))
			FROM generate_series(1, 20) i; SELECT zk_unlock_all()") foreach @sessions;
		foreach my $session (@sessions)
		{
			$session->wait_result;
			die $session->error if $session->sqlstate ne '00000';
		}
		$throttled->();
	}
	'requests to be throttled', 60;
	cmp_ok($throttled->(), '>', 0, 'requests were throttled, and all statements done');
	assert_leave_nothing($busy, lock_path(''), @sessions);
};

done_testing();
