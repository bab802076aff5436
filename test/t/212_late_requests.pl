
# A server holds up a request whose connection is gone, and executes it when the session
# comes back to that server. Meanwhile the session has repeated the request over another
# server, or given it up, and whatever it made may be gone again. Here a proxy keeps the
# request from the server; later the test sends it in the name of the session. What it
# makes must go, and what it would delete must stay.

use Proxy;
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $heard = PostgreSQL::Test::Utils::tempdir() . '/heard';
my $proxy = Proxy->new($zk->connect_string, heard => sub ($data) { append_to_file($heard, $data); });
my $node = cluster('late', $zk, servers => $proxy->address);
my $other = cluster('other', $zk);
my $client = $zk->client;

# Types of ZooKeeper's requests.
my ($delete, $multi, $create, $auth) = (2, 14, 15, 100);

# All that the session's program has sent, without lengths.
sub messages
{
	my $data = slurp_file($heard);
	my @messages;
	while (length $data >= 4 && length $data >= 4 + unpack 'N', $data)
	{
		push @messages, unpack 'N/a', $data;
		substr $data, 0, 4 + length $messages[-1], '';
	}
	return @messages;
}

sub of_type ($type) { return grep { length $_ >= 8 && (unpack 'l> l>', $_)[1] == $type } messages(); }

# Of the last session, in ZooKeeper.
my $number;

# A session that is connected by the proxy. The program of the one before may be connected, too, and
# be about to close its own.
sub session (%option)
{
	truncate_file();
	my $session = background($node, is_connected => 1, 'zklock.session_timeout' => '40s', %option);
	$number = session_number(session_id_of($session));
	return $session;
}

sub truncate_file { open my $file, '>', $heard or die $!; close $file; return; }

# Do that, and keep the nth request of that type from now on. It is lost with its connection.
sub hold_up ($type, $nth, $do)
{
	$proxy->trap($type, $nth, 'requests');
	$do->();
	poll_until { $proxy->is_sprung } 'the request to be sent', 60;
	my $held = (of_type($type))[-1];
	$proxy->come_back;
	return $held;
}

# Execute it for the session, which is between two connections meanwhile.
sub execute ($held)
{
	my @auth = of_type($auth);
	$proxy->go_away;
	my $server = ZooKeeper::Client->new($zk->connect_string, session => $number);
	$server->replay(@auth, $held);
	$server->abandon;
	return;
}

# Its node is there, and would be taken for another contender's.
subtest 'a call waits for the create of a canceled call before it' => sub {
	my $session = session();
	$client->create_path(lock_path('undone'));
	truncate_file();
	$proxy->trap($create, 1, 'replies');
	start_in_queue($session, "SELECT zk_lock('undone')", $zk, lock_path('undone'), 1);
	$session->cancel;
	assert_ends($session, '57014', 'a call is canceled before the reply to its create');
	assert_query($session, "SELECT zk_lock('undone', '300ms')", '55P03', 'the next call is out of time');
	is(scalar(my @creates = of_type($create)), 1, 'the next call has asked for no other node');
	$session->start_query("SELECT zk_try_lock('undone', '30s')");
	wait_for_wait($node, $session->pid);
	$proxy->heal;
	is($session->wait_result, 't', 'a try is granted when the reply has come');
	assert_nodes($zk, lock_path('undone'), 1, 'one node is left');
	assert_released($zk, 'undone', $session);
	$session->quit;
};

subtest 'a try is granted though the reply to its first create is lost' => sub {
	my $session = session('zklock.connect_timeout' => '60s');
	$client->create_path(lock_path('lost'));
	foreach my $how ("zk_try_lock('lost')", "zk_try_lock('lost', '30s')")
	{
		$proxy->trap($create, 1, 'replies');
		start_in_queue($session, "SELECT $how", $zk, lock_path('lost'), 1);
		$proxy->come_back;
		is($session->wait_result, 't', "$how: granted");
		assert_nodes($zk, lock_path('lost'), 1, 'one node is left');
		assert_released($zk, 'lost', $session);
	}
	$session->quit;
};

# The slot would be taken, and never run.
subtest 'a record that was forgotten is not made by a request executed late' => sub {
	my $session = session();
	my $run = "SELECT zk_run_once('job', 'slot', '1h')";
	$session->query_safe("SELECT zk_run_once('job', 'another', '1h')");
	my $held = hold_up($multi, 1, sub { $session->start_query($run); });
	is($session->wait_result, 't', 'the record is made by the repeated request');
	is($other->safe_psql('postgres', "SELECT zk_forget_run('job', 'slot')"), 't', 'the record is forgotten');
	execute($held);
	is($other->safe_psql('postgres', "SELECT count(*) FROM zk_runs('job')"), 1, 'the request, executed late, makes no record');
	is($other->safe_psql('postgres', $run), 't', 'the slot is free');
	$proxy->heal;
	$session->quit;
};

# It may be done as long as the node is there that goes with it.
subtest 'a hold that was given up is not made by a request executed late' => sub {
	my $session = session();
	$session->query_safe("SELECT zk_lock('hold'), zk_unlock('hold')");
	$proxy->trap($multi, 1, 'requests');
	$session->start_query("SELECT zk_hold('hold', 'maintenance')");
	poll_until { $proxy->is_sprung } 'the hold to be made', 60;
	my $held = (of_type($multi))[-1];
	$session->cancel;
	assert_ends($session, '57014', 'zk_hold() is canceled');

	# The next connection ends between the two deletes.
	$proxy->reset_connections;
	$proxy->trap($delete, 2, 'rest');
	$proxy->heal;
	poll_until { $proxy->is_sprung } 'the first delete', 60;
	execute($held);
	is(scalar grep({ $client->get(lock_path("hold/$_")) =~ /maintenance/ } queue_nodes($zk, lock_path('hold'))),
		0, 'executed late it makes no hold');
	$proxy->heal;
	assert_no_nodes($zk, lock_path('hold'), 'nothing is left of the hold');
	$session->quit;
};

# The same with a lease, which another call of the owner may have by then.
subtest 'a lease that was given up is not made by a request executed late' => sub {
	my $session = session();
	$session->query_safe("SELECT zk_release_lease('lease', zk_try_lease('lease', 'app', '1h'))");
	truncate_file();
	$proxy->trap($multi, 1, 'requests');
	$session->start_query("SELECT zk_try_lease('lease', 'app', '1h')");
	poll_until { $proxy->is_sprung } 'the lease to be made', 60;
	my $held = (of_type($multi))[-1];
	$session->cancel;
	assert_ends($session, '57014', 'zk_try_lease() is canceled');
	$proxy->reset_connections;
	$proxy->heal;
	assert_no_nodes($zk, lock_path('lease'), 'the twin is deleted');
	my $token = $other->safe_psql('postgres', "SELECT zk_try_lease('lease', 'app', '1h')");
	execute($held);
	is(join(' ', $other->safe_psql('postgres', "SELECT count(*), min(token) FROM zk_lock_queue('lease')")), "1|$token", 'executed late it makes no lease');
	$proxy->heal;
	$other->safe_psql('postgres', "SELECT zk_release_lease('lease', $token)");
	assert_no_nodes($zk, lock_path('lease'), 'nothing is left of the lease');
	$session->quit;
};

# The transaction that made it was done, and its reply is lost with the session.
subtest 'a lease whose reply is lost with the session is found by the next one' => sub {
	my $session = background($node, is_connected => 1, 'zklock.session_timeout' => '4s', 'zklock.connect_timeout' => '60s');
	$session->query_safe("SELECT zk_release_lease('next', zk_try_lease('next', 'app', '1h'))");
	foreach my $way ('replies', 'requests')
	{
		$proxy->trap($multi, 1, $way);
		$session->start_query("SELECT zk_try_lease('next', 'app', '1h', '60s')");
		poll_until { $proxy->is_sprung } 'the lease to be made', 60;
		$proxy->go_away;
		my $until = time + 6;
		poll_until { time > $until } 'the session to be lost';
		$proxy->come_back;
		my $token = $session->wait_result;
		is($other->safe_psql('postgres', "SELECT zk_try_lease('next', 'app', '1h')"), $token, "$way: the owner has the lease");
		assert_nodes($zk, lock_path('next'), 1, "$way: one node is left");
		is($session->query_safe("SELECT zk_release_lease('next', $token)"), 't', "$way: it is given up");
	}
	$session->quit;
};

done_testing();
