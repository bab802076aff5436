
# The harness that all other tests rely on does what it says: servers start, pause and stop, the
# protocol client reads and writes znodes, the proxy cuts and delays. Tested against real
# ZooKeeper servers, without zklock and without PostgreSQL.

use strict;
use warnings;

use FindBin;
use IO::Socket::INET;
use Patience qw(in_time);
use POSIX ();
use Proxy;
use Test::More;
use Time::HiRes qw(sleep);
use ZooKeeper qw(poll_until free_port is_alive);

my $zk = ZooKeeper->new->start;

subtest 'a server that was started tells its mode and address' => sub {
	is($zk->mode, 'standalone', 'the mode of a single server');
	like($zk->connect_string, qr/^127\.0\.0\.1:\d+$/, 'one address');
	is($zk->leader, 1, 'a standalone server is its own leader');
};

subtest 'the protocol client creates, reads, lists and deletes znodes' => sub {
	my $client = $zk->client;
	is($client->timeout, 3600, 'gets the long timeout it asks for');
	$client->create_path('/locks/nightly');
	is_deeply([ $client->children('/locks') ], ['nightly'], 'children');

	my $path = $client->contend('/locks/nightly/_c_x-lock-', 'me');
	is($path, '/locks/nightly/_c_x-lock-0000000000', 'sequence number');
	my ($data, $stat) = $client->get($path);
	is($data, 'me', 'data');
	is($stat->{owner}, $client->session_id, 'owner of an ephemeral node');
	is($stat->{data_length}, 2, 'stat is read to its end');
	$client->set($path, '');
	is($client->get($path), '', 'data set');
	is_deeply(
		[ $zk->ephemerals('/locks') ],
		[ [ $path, $client->session_id ] ],
		'the server lists it as ephemeral');

	$client->create('/locks/container', undef, container => 1);
	ok($client->exists('/locks/container'), 'a container');
	is($client->exists('/nowhere'), undef, 'exists of nothing');
	eval { $client->delete('/locks'); };
	like($@, qr{^delete /locks: NotEmpty}, 'an error has its name');
	eval { $client->get('/nowhere'); };
	like($@, qr{^get_data /nowhere: NoNode}, 'an error has the path of the request');

	$client->close;
	is(scalar(my @left = $zk->ephemerals('/locks')),
		0, 'ephemeral nodes go with their session');
	my $next = $zk->client;
	$next->delete_recursive('/locks');
	is($next->exists('/locks'), undef, 'delete_recursive');
};

# Also when nobody listens on it yet, and whatever file system the other process sees.
subtest 'a port is given to one process' => sub {
	my $port = free_port();
	local $ENV{ZKLOCK_TEST_PORTS} = "$port-$port";
	like(scalar qx($^X -I'$FindBin::Bin/../lib' -MZooKeeper=free_port -e 'print free_port()' 2>&1), qr/^no port from $port to $port is free/, 'no other process gets it');
};

subtest 'an abandoned session ends by its timeout' => sub {
	foreach my $case ([ long => 60 ], [ short => 1 ])
	{
		my ($name, $timeout) = @$case;
		my $client = $zk->client(timeout => $timeout);
		$client->create("/$name", '', ephemeral => 1);
		$client->abandon;
	}
	poll_until { !$zk->ephemerals('/short') } 'the session to end', 30;
	is(scalar(my @nodes = $zk->ephemerals('/long')), 1, 'the other session with the longer timeout is still there');
	$zk->client->delete('/long');
};

subtest 'an ACL lets only its owner write' => sub {
	my $owner = $zk->client;
	$owner->add_auth('digest', 'me:secret');
	$owner->create('/mine', 'x',
		acl => [ [ 31, 'auth', '' ], [ 1, 'world', 'anyone' ] ]);
	my $other = $zk->client;
	is($other->get('/mine'), 'x', 'anyone reads');
	eval { $other->set('/mine', 'y'); };
	like($@, qr/NoAuth/, 'only the owner writes');
	$owner->delete('/mine');
};

subtest 'the counters of requests and watches are right' => sub {
	my $client = $zk->client;
	my $before = $zk->packets_received;
	$client->children('/') foreach 1 .. 10;
	is($zk->packets_received - $before, 10, 'packets received');
	is($zk->watch_count, 0, 'no watches');
	is($zk->monitor->{server_state}, 'standalone', 'mntr');
};

subtest 'a paused server is silent, and answers when it is resumed' => sub {
	$zk->pause;
	is($zk->mode, '', 'a paused server does not answer');
	$zk->resume;
	is($zk->wait_ready->mode, 'standalone', 'a resumed one does');
	$zk->pause;
	$zk->stop;
	is($zk->running, 0, 'a paused server can be stopped');
	$zk->start;
};

# As of a server that goes on, where SIGCHLD has a handler; and the machine may be so busy that
# it takes longer than a moment.
subtest 'a signal does not break the wait for a reply' => sub {
	my $client = $zk->client;
	foreach my $asks (sub { $client->children('/'); 1 }, sub { $zk->mode eq 'standalone' })
	{
		my $nsignals = 0;
		local $SIG{USR1} = sub { $nsignals++ };
		my ($waiting, $server) = ($$, $zk->pid);
		kill STOP => $server;
		my $pid = fork // die "could not fork: $!";
		if (!$pid)
		{
			# Some of them come while it waits.
			foreach (1 .. 25)
			{
				sleep 0.05;
				kill USR1 => $waiting;
			}
			kill CONT => $server;
			POSIX::_exit(0);
		}
		ok(eval { $asks->() }, 'the reply is waited for') or diag($@);
		waitpid $pid, 0;
		cmp_ok($nsignals, '>', 0, 'after a signal');
	}
};

subtest 'a restart keeps port, data and sessions' => sub {
	my $port = $zk->port;
	my $client = $zk->client;
	$client->create('/kept', 'data');
	$client->create('/held', '', ephemeral => 1);
	$client->abandon;
	$zk->kill9;
	$zk->start;
	is($zk->port, $port, 'port');
	my $next = $zk->client;
	is($next->get('/kept'), 'data', 'data');
	ok($next->exists('/held'), 'session');
};

subtest 'a proxy forwards, cuts, resets and refuses connections' => sub {
	my $proxy = Proxy->new($zk->connect_string);
	my $client = ZooKeeper::Client->new($proxy->address);
	is($proxy->connections, 1, 'forwards');

	# A request that nobody waits for here: children of the root.
	my $request = sub { $client->_send(pack('l> l>', 1, 12)
			  . pack('N', 1) . '/' . "\0"); };
	my $replied = sub {
		IO::Select->new($client->{socket})->can_read($_[0]) ? 1 : 0;
	};

	$proxy->cut;
	my $before = $zk->packets_received;
	$request->();
	is($replied->(0.3), 0, 'cut: no reply');
	is($zk->packets_received, $before, 'cut: the server got nothing');
	$proxy->heal;
	is($replied->(10), 1, 'healed: the reply comes');
	$client->_receive;

	$proxy->cut('replies');
	$before = $zk->packets_received;
	$request->();
	poll_until { $zk->packets_received > $before } 'the request to arrive';
	is($replied->(0.3), 0, 'replies cut: the server got it, no reply');
	$proxy->reset_connections;
	eval { $client->_receive; };
	like($@, qr/ConnectionLoss/, 'reset: the connection is gone');
	is($proxy->connections, 0, 'reset: nothing is left');

	$proxy->refuse;
	is(IO::Socket::INET->new($proxy->address), undef, 'refused');
	my $taken = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => $proxy->port, Listen => 1);
	is($taken, undef, 'refused: the port is nobody else\'s meanwhile');
	$proxy->heal;
	ok(ZooKeeper::Client->new($proxy->address), 'healed');
	my $pid = $proxy->{pid};
	$proxy->stop;
	is(kill(0, $pid), 0, 'stopped');
};

subtest 'a proxy obeys while its server hangs' => sub {
	my $server = IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1');
	my $proxy = Proxy->new('127.0.0.1:' . $server->sockport);
	my @clients = map { IO::Socket::INET->new($proxy->address) } 1 .. 5;
	my $since = time;
	# In between it comes to its clients.
	$proxy->connections foreach 1 .. 20;
	in_time(time - $since, 60, 'twenty commands to the proxy');
};

subtest 'servers and proxies end with the process that started them' => sub {
	# A child starts a server and a proxy and is killed without a word.
	pipe(my $read, my $write) or die $!;
	my $pid = fork // die $!;
	if ($pid == 0)
	{
		my $own = ZooKeeper->new->start;
		my $proxy = Proxy->new($own->connect_string);
		syswrite $write, $own->pid . ' ' . $proxy->{pid} . "\n";
		kill 'KILL', $$;
	}
	close $write;
	my @pids = split ' ', readline $read;
	waitpid $pid, 0;
	is(scalar @pids, 2, 'server and proxy ran');
	# They are not our children: whoever adopted them may leave a zombie.
	poll_until { !grep { is_alive($_) } @pids } 'them to end', 30;
	pass('they have ended');
};

$zk->stop;
is($zk->running, 0, 'stopped');

subtest 'an ensemble of three elects another leader when the leader is killed or paused' => sub {
	my $ensemble = ZooKeeper->new(servers => 3)->start;
	my $leader = $ensemble->leader;
	is(scalar(my @followers = $ensemble->followers), 2, 'two followers');
	my ($follower) = @followers;
	my $client = $ensemble->client(member => $follower);
	$client->create('/x', '', ephemeral => 1);
	is_deeply(
		[ $ensemble->ephemerals('/') ],
		[ [ '/x', $client->session_id ] ],
		'the leader lists a node made through a follower');

	is($ensemble->kill_leader, $leader, 'the leader is killed');
	$ensemble->wait_ready;
	isnt($ensemble->leader, $leader, 'another one is elected');
	is(scalar(my @running = $ensemble->running), 2, 'two are left');
	$ensemble->start($leader);
	is($ensemble->mode($leader), 'follower', 'it comes back as a follower');

	$leader = $ensemble->leader;
	$ensemble->pause($leader);
	poll_until
	{
		grep { $_ != $leader && $ensemble->mode($_) eq 'leader' }
		  $ensemble->members;
	}
	'the others to elect a leader';
	pass('a paused leader is replaced');
	$ensemble->resume;
	$ensemble->wait_ready;
	$ensemble->stop;
	is($ensemble->running, 0, 'stopped');
};

done_testing();
