
# A holder that is asked to release its lock hears of it when it calls zk_release_requested(),
# and is never held up or harmed by the request, of which nothing is left. Tested with sessions
# of two clusters, and with other clients that cannot be asked.

use Peer;
use Proxy;
use ZkLockTest;

# Looks for empty containers often, so that one can see them go.
my $zk = ZooKeeper->new(
	container_check => 100)->start;
my %node = map { $_ => cluster($_, $zk) } qw(berlin paris);
my @peers = ('Curator InterProcessMutex', 'Kazoo Lock', 'go-zookeeper Lock');
Peer::prepare(Peer::installed(@peers));
my $stranger = $zk->client;
my $holder = background($node{berlin}, name => 'nightly job');
my $other = background($node{paris});
$_->query_safe("SELECT zk_lock('warm'), zk_unlock('warm')") foreach $holder, $other;

# Ask from the other cluster, in a session that is over at once.
sub request ($lock, $reason = undef)
{
	return $node{paris}->safe_psql('postgres', $reason
		? "SELECT zk_request_release('$lock', '$reason')"
		: "SELECT zk_request_release('$lock')");
}

# The requests that lie there for a lock.
sub requests ($lock)
{
	my $parent = lock_path('.release');
	# It goes when it is empty.
	my @all = eval { $stranger->children($parent) };
	return grep { (eval { $stranger->get("$parent/$_") } // '') =~ /"lock":"\Q$lock\E"/ } @all;
}

sub assert_no_requests ($lock)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return assert_soon { !requests($lock) } 'no request is left', 30;
}

sub is_requested ($session, $lock) { return $session->query_safe("SELECT zk_release_requested('$lock')"); }

# Run it and count the NOTICEs of requests.
sub notices ($session, $sql)
{
	$session->query_safe($sql);
	my $count = () = $session->error =~ /NOTICE:  release of lock ".*" was requested/g;
	return $count;
}

subtest 'a holder hears a request whose maker has gone' => sub {
	$holder->query_safe("SELECT zk_lock('ask')");
	is(request('ask', 'new disks'), 1, 'zk_request_release() asks one holder');
	my ($mine) = queue_nodes($zk, lock_path('ask'));
	is((requests('ask'))[-1], "$mine.release", 'the request is a znode named for the node of the holder');
	is(scalar(queue_nodes($zk, lock_path('ask'))), 1, 'no request is below the znode of the lock');
	$other->query("SELECT zk_lock('ask.release')");
	isnt($other->sqlstate, '00000', 'no session can lock the znode of requests');

	is($holder->query_safe("SELECT zk_lock('ask'), zk_is_held('ask') IS NULL"), $holder->query_safe("SELECT zk_fencing_token('ask')") . '|f', 'the holder takes the lock again');
	is($holder->error, '', 'a holder that takes the lock again is not told');
	is(is_requested($holder, 'ask'), 't', 'zk_release_requested() tells the holder');
	like($holder->error, qr/NOTICE:  release of lock "ask" was requested$/m, 'a notice tells that the release was requested');
	like($holder->error,
		qr/DETAIL:  Requested at 20\d\d-.* by process \d+ of user ".+" in database "postgres" of cluster "paris" on host ".+" \("new disks"\)\.$/m,
		'the notice says when, by whom and why');
	is(notices($holder, "SELECT zk_release_requested('ask')"), 0, 'the holder is told once');

	is(request('ask', 'hurry up'), 1, 'the holder is asked once more');
	my $error = '';
	poll_until {
		is_requested($holder, 'ask');
		$error = $holder->error;
	} 'it to be told again', 30;
	like($error, qr/\("hurry up"\)/, 'the holder is told of the second request');
	is(scalar(requests('ask')), 1, 'both requests are one znode');

	$holder->query_safe('SELECT zk_unlock_all()');
	is(is_requested($holder, 'ask'), 'f', 'zk_release_requested() is false once the lock is released');
	assert_no_nodes($zk, lock_path('ask'));
	assert_no_requests('ask');
	assert_soon { !$stranger->exists(lock_path('.release')) } 'the parent of requests goes when it is empty', 30;
};

subtest 'a request to one holder is not heard by the next' => sub {
	$holder->query_safe("SELECT zk_lock('later')");
	request('later');
	is(is_requested($holder, 'later'), 't', 'the first holder hears the request');
	$holder->query_safe("SELECT zk_unlock('later'), zk_lock('later')");
	is(is_requested($holder, 'later'), 'f', 'the second holder does not hear the request to the first');
	request('later');
	is(is_requested($holder, 'later'), 't', 'the second holder hears its own request');
	kill KILL => session_programs($holder->pid);
	poll_until { !session_programs($holder->pid) } 'its session to be lost', 30;
	assert_query($holder, 'SELECT zk_unlock_all()', '00000', 'a lost lock with a request is released');
};

# The owner of a lease is in no session: whoever renews the lease by its token hears of it.
subtest 'a leader is asked to resign' => sub {
	my $token = $holder->query_safe("SELECT zk_try_lease('leader', 'berlin', '60s')");
	my ($node) = queue_nodes($zk, lock_path('leader'));
	is($holder->query_safe("SELECT zk_release_requested('leader', $token)"), 'f', 'nobody asks at first');
	is(notices($holder, "SELECT zk_renew_lease('leader', $token, '60s')"), 0, 'a renewal says nothing then');
	is(request('leader', 'new disks'), 1, 'zk_request_release() asks the lease');
	is((requests('leader'))[-1], "$node.release", 'the request is a znode named for the node of the lease');
	foreach my $how ("SELECT zk_renew_lease('leader', $token, '60s')",
		"BEGIN; SELECT zk_require_lease('leader', $token); COMMIT", "SELECT zk_release_requested('leader', $token)")
	{
		# A server that lags behind may not have it yet.
		assert_soon { notices($holder, $how) == 1 } "a notice comes with: $how", 30;
		like($holder->error, qr/DETAIL:  Requested at 20.* by process .* of cluster "paris" .*"new disks"/, 'it says by whom and why');
	}
	is($other->query_safe("SELECT zk_release_requested('leader', $token)"), 't', 'another cluster hears of it, too');
	is($other->query_safe("SELECT zk_release_requested('leader', 1)"), 'f', 'there is no lease with that token');
	like($other->error, qr/WARNING:  there is no lease of lock "leader" with that token/, 'a warning says so');
	is($other->query_safe("SELECT zk_release_lease('leader', $token)"), 't', 'the leader resigns');
	assert_no_requests('leader');

	$token = $holder->query_safe("SELECT zk_try_lease('leader', 'berlin', '60s')");
	$holder->query_safe("SELECT zk_release_lease('leader', $token, '60s')");
	is(request('leader'), 0, 'a lease that was given up with a delay is not asked');
	assert_no_requests('leader');
	$stranger->delete_recursive(lock_path('leader'));
};

# A lease that ends by itself leaves its request until somebody else is asked.
subtest 'the request to a dead leader goes' => sub {
	$holder->query_safe("SELECT zk_try_lease('dead leader', 'berlin', '2s')");
	is(request('dead leader'), 1, 'the lease is asked');
	$other->query_safe("SELECT zk_lock('dead leader', '30s')");
	assert_soon { request('dead leader'); requests('dead leader') == 1 } 'only the living holder has a request', 30;
	assert_released($zk, 'dead leader', $other);
};

subtest 'zk_request_release() asks nobody when nobody holds the lock' => sub {
	is(request('nobody'), 0, 'no holder is asked of a lock that was never used');
	$other->query_safe("SELECT zk_lock('nobody')");
	start_in_queue($holder, "SELECT zk_lock('nobody')", $zk, lock_path('nobody'), 2);
	is($other->query_safe("SELECT zk_request_release('nobody')"), 0, 'no holder is asked: the only other session waits');
	$other->query_safe("SELECT zk_unlock('nobody')");
	$holder->wait_result;
	is(is_requested($holder, 'nobody'), 'f', 'a waiter that gets the lock was not asked');
	$holder->query_safe("SELECT zk_unlock('nobody')");
	is(scalar(requests('nobody')), 0, 'no request was made');
};

subtest 'each of several holders is asked, but the one that asks' => sub {
	my @readers = map { background($node{$_}) } qw(berlin paris paris);
	foreach my $kind (
		[ "zk_lock_shared('readers')", "zk_lock('readers')", 'readers' ],
		[ "zk_lock('permits', permits => 3)", "zk_lock('permits', permits => 3)", 'permits' ])
	{
		my ($take, $wait, $lock) = @$kind;
		$_->query_safe("SELECT $take") foreach @readers;
		start_in_queue($other, "SELECT $wait", $zk, lock_path($lock), 4);
		is(request($lock), 3, "$lock: all holders are asked");
		is(is_requested($_, $lock), 't', 'each holder hears the request') foreach @readers;
		# One of them asks the others.
		is($readers[0]->query_safe("SELECT zk_request_release('$lock')"), 2, 'all holders but the one that asks are asked');
		$_->query_safe('SELECT zk_unlock_all()') foreach @readers;
		$other->wait_result;
		is(is_requested($other, $lock), 'f', 'a waiter that gets the lock was not asked');
		$other->query_safe('SELECT zk_unlock_all()');
		assert_no_requests($lock);
	}
};

# ---------------------------------------------------------------------------
# Who else there is
# ---------------------------------------------------------------------------

subtest 'a permanent hold cannot be asked, and a warning says so' => sub {
	my $token = $other->query_safe("SELECT zk_hold('durable', 'for good')");
	is($holder->query_safe("SELECT zk_request_release('durable')"), 0, 'no holder is asked of a permanent hold');
	like($holder->error, qr/WARNING:  could not ask 1 holder of lock "durable" to release it/, 'a warning says that one holder could not be asked');
	like($holder->error, qr/DETAIL:  Not asked: the permanent hold with token $token of process .*"for good"/, 'the warning says which hold could not be asked');
	like($holder->error, qr/HINT: .*zk_release_hold/, 'the hint says how to release the hold');
	$other->query_safe("SELECT zk_release_hold('durable', $token)");
};

SKIP:
{
	skip 'not installed: ' . Peer::missing($peers[0]), 1 if Peer::missing($peers[0]);

	my $curator = Peer->new('Curator InterProcessMutex', $zk);
	subtest "Curator's Revoker is refused, and a znode of a request is heard from any client" => sub {
		$holder->query_safe("SELECT zk_lock('ours')");
		my ($ours) = queue_nodes($zk, lock_path('ours'));
		$curator->start_command('revoke ' . lock_path("ours/$ours"));
		like($curator->wait_answer, qr/^error .*NoAuth/, 'a request by the Revoker of Curator is refused');
		is(is_requested($holder, 'ours'), 'f', 'the holder does not hear the Revoker of Curator');
		# What works from any client: the znode that zklock makes.
		$stranger->create_path(lock_path('.release'));
		$stranger->create(lock_path(".release/$ours.release"), 'from afar');
		poll_until { is_requested($holder, 'ours') eq 't' } 'it to hear', 30;
		like($holder->error, qr/by another client \("from afar"\)/, 'any client can make the znode of a request');
		$holder->query_safe("SELECT zk_unlock('ours')");
		poll_until { !$stranger->exists(lock_path(".release/$ours.release")) } 'it to be removed', 30;
	};
}

foreach my $kind (@peers)
{
	subtest "$kind cannot be asked" => sub {
		Peer::require_installed($kind);
		my $peer = Peer->new($kind, $zk);
		$peer->choose(lock_path('deaf'));
		$peer->ask('lock');
		my ($theirs) = queue_nodes($zk, lock_path('deaf'));
		my $before = $stranger->get(lock_path("deaf/$theirs"));
		is($holder->query_safe("SELECT zk_request_release('deaf')"), 0, 'no holder is asked of a lock of another client');
		like($holder->error, qr/DETAIL:  Not asked: another client.*, style ".*", session 0x/, 'the warning says that another client was not asked');
		is($stranger->get(lock_path("deaf/$theirs")), $before, 'the node of the other client is not touched');
		$peer->ask('unlock');
	};
}

subtest 'of very many holders that cannot be asked ten are named' => sub {
	$stranger->create_path(lock_path('many'));
	$stranger->create(lock_path(sprintf 'many/_c_%08d-0000-4000-8000-000000000000-__READ__', $_), '',
		ephemeral => 1, sequential => 1) foreach 1 .. 12;
	is($holder->query_safe("SELECT zk_request_release('many')"), 0, 'none of the twelve holders is asked');
	like($holder->error, qr/WARNING:  could not ask 12 holders of lock "many"/, 'the warning counts all holders');
	my $one = qr/another client[^;]*, style "curator\w*", session 0x[0-9a-f]+/;
	like($holder->error, qr/DETAIL:  Not asked: (?:$one; ){10}\.\.\.\.$/m, 'the warning names ten holders');
	$stranger->delete_recursive(lock_path('many'));
};

# ---------------------------------------------------------------------------
# Who may ask what
# ---------------------------------------------------------------------------

# Bad arguments: sql/release.
subtest 'privileges are required for a request, and any reason is shown' => sub {
	$node{paris}->safe_psql('postgres', 'CREATE ROLE ordinary LOGIN');
	my $user = background($node{paris}, user => 'ordinary');
	$holder->query_safe("SELECT zk_lock('asked')");
	assert_query($user, "SELECT zk_request_release('asked')", '42501', 'a user without zklock_job may not ask');
	$node{paris}->safe_psql('postgres', 'GRANT zklock_job TO ordinary');
	is($user->query_safe("SELECT zk_request_release('asked')"), 1, 'a user with zklock_job asks');
	is(notices($holder, "SELECT zk_release_requested('asked')"), 1, 'the holder hears the request');
	like($holder->error, qr/of user "ordinary"/, 'the notice names the user');
	$user->query_safe("SELECT zk_request_release('asked', 'é \"quoted\" \\')");
	my $shown = '("é \\"quoted\\" \\\\")';
	poll_until { notices($holder, "SELECT zk_release_requested('asked')") &&
		  index($holder->error, $shown) >= 0 } 'an odd reason', 30;
	$holder->query_safe("SELECT zk_unlock('asked')");
	assert_no_requests('asked');
};

# ---------------------------------------------------------------------------
# What is left behind, and what it costs
# ---------------------------------------------------------------------------

subtest 'a request to a holder that has gone is removed by the next request' => sub {
	my $leaving = background($node{berlin}, holds => 'gone');
	request('gone');
	my ($old) = requests('gone');
	$leaving->quit;
	poll_until { !queue_nodes($zk, lock_path('gone')) } 'its node to go', 30;
	is_deeply([ requests('gone') ], [$old], 'the request is left when its holder ends');
	$holder->query_safe("SELECT zk_lock('gone')");
	is(request('gone'), 1, 'the next request asks the new holder');
	my ($mine) = queue_nodes($zk, lock_path('gone'));
	assert_soon { join(' ', requests('gone')) eq "$mine.release" } 'the next request removes the old one', 30;
	is(is_requested($holder, 'gone'), 't', 'the new holder hears the request');
	$holder->query_safe("SELECT zk_unlock('gone')");
	assert_no_requests('gone');
};

subtest 'requests to ask and to be asked are as few as the docs say' => sub {
	# What is held for a second is watched, and on a busy machine the questions take longer.
	assert_becomes { $zk->watch_count } 0, 'nothing is watched before';
	$other->query_safe("SELECT zk_lock('cost')");
	assert_becomes { $zk->watch_count } 1, 'a lock held for a second is watched';
	my $before = $zk->packets_received;
	$other->query_safe("SELECT count(*) FROM generate_series(1, 1000)
		WHERE zk_release_requested('cost')");
	my $received = ($zk->packets_received - $before) / 1000;
	cmp_ok(abs($received - 1), '<', 0.2, "one request for each question ($received)");
	is($zk->watch_count, 1, 'questions set no watch');
	$other->query_safe("SELECT zk_unlock('cost')");

	# Heartbeats may be counted too; hardly each time. The child keeps ZooKeeper
	# from removing what requests are in, and is listed and read itself.
	my (@first, @next);
	foreach my $lock (map { "cost $_" } 1 .. 5)
	{
		# Those that sessions left at their end, too.
		eval { $stranger->delete_recursive(lock_path('.release')) };
		$other->query_safe("SELECT zk_lock('$lock')");
		foreach my $received (\@first, \@next)
		{
			$before = $zk->packets_received;
			is($holder->query_safe("SELECT zk_request_release('$lock')"), 1, 'the holder is asked');
			push @$received, $zk->packets_received - $before;
			is(is_requested($other, $lock), 't', 'the holder hears the request');
			$stranger->create_path(lock_path('.release/stays'));
			assert_released($zk, $lock, $other);
			wait_for_queue($zk, lock_path('.release'), 1);
			$other->query_safe("SELECT zk_lock('$lock')");
		}
		$stranger->delete(lock_path('.release/stays'));
		$other->query_safe("SELECT zk_unlock('$lock')");
	}
	is(least_of(@first), 9, 'nine requests to ask the first holder');
	is(least_of(@next), 8, 'eight requests to ask another holder, with an old request there');
	$other->query_safe("SELECT zk_unlock('cost')");
};

# ---------------------------------------------------------------------------
# Faults
# ---------------------------------------------------------------------------

subtest 'a request made while the connection was broken is heard afterwards' => sub {
	my ($server) = split /,/, $zk->connect_string;
	my $proxy = Proxy->new($server);
	my $session = background($node{berlin}, route => $proxy->address, 'zklock.session_timeout' => '10 s', holds => 'broken');
	$proxy->go_away;
	poll_until { $session->query_safe('SELECT state FROM zk_session') ne 'connected' } 'it to break', 30;
	request('broken', 'meanwhile');
	is(is_requested($session, 'broken'), 'f', 'zk_release_requested() is false without a connection');
	$proxy->heal;
	poll_until { is_requested($session, 'broken') eq 't' } 'it to be made again', 30;
	like($session->error, qr/meanwhile/, 'the request made meanwhile is heard with the next connection');
	is($session->query_safe("SELECT zk_unlock('broken')"), 't', 'the lock is held all the time');
	assert_no_requests('broken');
};

# As the request is about to be made: nobody would read it.
subtest 'a holder that leaves meanwhile is not asked, and no request is left' => sub {
	my $proxy = Proxy->new($zk->connect_string);
	$holder->query_safe("SELECT zk_lock('leaving')");
	my $asker = background($node{paris}, route => $proxy->address, first => q(SELECT count(*) FROM zk_lock_queue('leaving')));
	$proxy->trap(15, 1, 'rest');    # create2
	$asker->start_query("SELECT zk_request_release('leaving')");
	poll_until { $proxy->is_sprung } 'the request to be on its way', 30;
	$holder->query_safe("SELECT zk_unlock('leaving')");
	assert_no_nodes($zk, lock_path('leaving'));
	$proxy->heal;
	is($asker->wait_result, 0, 'the holder that leaves is not asked');
	assert_no_requests('leaving');
	$asker->quit;
};

subtest 'zk_release_requested() is false without a reply in a second' => sub {
	my $proxy = Proxy->new($zk->connect_string);
	my $session = background($node{berlin}, route => $proxy->address, 'zklock.session_timeout' => '40s',
		'zklock.connect_timeout' => '1min', holds => 'silent');
	assert_within
	{
		# Without a connection it is false at once.
		poll_until { $session->query_safe('SELECT state FROM zk_session') eq 'connected' } 'a connection', 60;
		$proxy->cut('replies');
		my $begun = time;
		is(is_requested($session, 'silent'), 'f', 'nothing is known of a request without a reply');
		my $took = time - $begun;
		$proxy->come_back;
		$took;
	}
	3, 'zk_release_requested() of a lock that is held, without a reply';
	assert_leave_nothing($zk, lock_path('silent'), $session);
};

$_->quit foreach $holder, $other;

subtest 'a request is made and heard without digest authentication' => sub {
	plan skip_all => 'ZooKeeper 3.6 always has it' if $zk->version < v3.7;
	my $plain = ZooKeeper->new(java_options =>
		  ['-Dzookeeper.DigestAuthenticationProvider.enabled=false'])->start;
	my $node = cluster('oslo', $plain);
	my @sessions = map { background($node) } 1 .. 2;
	$sessions[0]->query_safe("SELECT zk_lock('plain')");
	is($sessions[1]->query_safe("SELECT zk_request_release('plain')"), 1, 'the holder is asked without digest authentication');
	is(is_requested($sessions[0], 'plain'), 't', 'the holder hears the request without digest authentication');
	my ($mine) = queue_nodes($plain, lock_path('plain'));
	my $client = $plain->client;
	like($client->get(lock_path("plain/$mine")), qr/zklock/, 'the queue node is not touched');
};

subtest 'a request is made and heard with credentials, and refused without them' => sub {
	my $node = $node{paris};
	my @sessions = map { background($node, 'zklock.auth' => 'digest:alice:secret', 'zklock.root' => '/guarded') } 1 .. 2;
	$sessions[0]->query_safe("SELECT zk_lock('guarded')");
	is($sessions[1]->query_safe("SELECT zk_request_release('guarded')"), 1, 'the holder is asked with credentials');
	is(is_requested($sessions[0], 'guarded'), 't', 'the holder hears the request with credentials');
	my $stranger = background($node, 'zklock.root' => '/guarded');
	assert_query($stranger, "SELECT zk_request_release('guarded')", '42501', 'a request without credentials is refused');
};

done_testing();
