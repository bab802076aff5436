
# While the network fails, a request is carried out or not, and the session does not know which:
# exactly one node is left, or none, for a node that nobody knows of would hold the lock. Tested
# with real sessions behind a proxy that cuts, swallows, refuses or resets their connections.

use Proxy;
use Refusals;
use ZkLockTest;

# Empty znodes of locks stay: what is cut off here is the create of the node.
my $zk = ZooKeeper->new(
	java_options => ['-Dznode.container.checkIntervalMs=3600000'])->start;

# A command more: while this file exists, the proxy accepts connections that
# nobody will ever answer, and says so in the file.
my $swallow = PostgreSQL::Test::Utils::tempdir() . '/swallow';
{
	no warnings qw(redefine once);
	my ($accept, @swallowed) = (\&Proxy::_accept);
	*Proxy::_accept = sub ($state) {
		return $accept->($state) unless -e $swallow;
		push @swallowed, $state->{listener}->accept;
		append_to_file($swallow, "one\n");
	};
}

my $heard = "$swallow.heard";
my $proxy = Proxy->new($zk->connect_string, heard => sub ($data) { append_to_file($heard, $data); });
my $berlin = cluster('berlin', $zk,
	servers => $proxy->address,
	'zklock.session_timeout' => '6s');
my $client = $zk->client;
my $table = Refusals->new($zk, $proxy);

sub nodes ($name) { return [ map { $_->[0] } $zk->ephemerals(lock_path($name) . '/') ]; }

# A session that is connected, of a timeout that is not over while the network is cut.
sub connected { return background($berlin, is_connected => 1, 'zklock.session_timeout' => '15s'); }

# What is left of the cancelled wait is ahead of the try in every queue on the
# way, but nobody holds the lock.
my $before;
$table->run('a try after a canceled wait is granted', { asker => connected() },
	[ asker => "zk_lock('again'), zk_unlock('again')" ],
	[ break => 'cut replies' ],
	[ 'asker starts' => "zk_lock('again')" ], [ 'asker waits' ], [ nodes => again => 1 ],
	[ cancel => 'asker' ], [ 'asker ends' => '!57014' ],
	sub { $before = $zk->packets_received; },
	[ 'asker starts' => "zk_try_lock('again')" ],
	sub { poll_until { $zk->packets_received > $before } 'the try to ask', 30; },
	[ mend => 'cut replies' ],
	[ 'asker ends' => 't' ],
	[ asker => 'SELECT zk_unlock_all()' ], [ gone => 'again' ]);

# So is a node of which the reply is lost, for who made it.
$table->run('a try whose create has lost its reply is granted', { asker => connected() },
	[ asker => "zk_lock('again'), zk_unlock('again')" ], [ gone => 'again' ],
	sub { $proxy->trap(15, 1, 'replies'); },    # create2
	[ 'asker starts' => "zk_try_lock('again')" ], [ nodes => again => 1 ],
	[ mend => 'reset' ],
	[ 'asker ends' => 't' ], [ nodes => again => 1 ],
	[ asker => 'SELECT zk_unlock_all()' ], [ gone => 'again' ]);

my $reset = sub {
	$proxy->reset_connections;
	poll_until { $proxy->connections >= 2 } 'both to be back', 30;
};
$table->run('a holder and a waiter keep their nodes when connections are reset', { holder => connected(), waiter => connected() },
	[ holder => "zk_lock('reset')" ],
	[ 'waiter starts' => "zk_lock('reset')" ], [ queue => reset => 2 ], [ nodes => reset => 2 ],
	($reset) x 5,
	[ same => 'reset' ], [ 'waiter waits' ],
	[ holder => "zk_unlock('reset')", 't' ], [ 'waiter ends' ],
	[ waiter => "zk_unlock('reset')", 't' ], [ gone => 'reset' ]);

# A connection may be accepted and never served: by a ZooKeeper server that is
# just starting, by a load balancer without a server behind it. The session
# lives, another attempt would find it; a lock must not be lost for that.
my $away = sub {
	append_to_file($swallow, '');
	$proxy->reset_connections;
	poll_until { -s $swallow >= 2 * length "one\n" } 'both to reconnect', 30;
	unlink $swallow;
};
$table->run('a session outlives a reconnect that nobody answers', { holder => connected(), waiter => connected() },
	[ holder => "zk_lock('swallowed')" ],
	[ 'holder notes' => 'SELECT session_id FROM zk_session' ],
	[ 'waiter starts' => "zk_lock('swallowed')" ], [ queue => swallowed => 2 ], [ nodes => swallowed => 2 ],
	$away,
	[ state => holder => 'connected' ],
	[ 'holder repeats' => 'SELECT session_id FROM zk_session' ], [ same => 'swallowed' ],
	[ holder => "zk_unlock('swallowed')", 't' ], [ 'waiter ends' ],
	[ 'quit' ], [ gone => 'swallowed' ]);

# Refused at once, or a silence in which nobody knows. A shorter timeout ends it, too; a try
# does not take that for busy; and it can be cancelled.
foreach my $fault ('refused', 'cut')
{
	$table->run("calls fail with 08001 without a server for the first connection: $fault", { asker => background($berlin) },
		[ break => $fault ],
		[ asker => "SET zklock.connect_timeout = '1s'" ],
		(map {
			[ asker => $_, '!08001', 20,
				qr/ERROR:  could not connect to ZooKeeper within 1000 ms\nDETAIL:  .+\nHINT:  .+/ ]
		} "zk_lock('unreachable')", "zk_try_lock('unreachable')", "SELECT * FROM zk_lock_queue('unreachable')"),
		[ asker => "SET zklock.connect_timeout = '1min'" ],
		[ asker => "zk_lock('unreachable', '300ms')", '!55P03', 30 ],
		[ asker => "zk_try_lock('unreachable', '300ms')", '!08001', 30 ],
		[ 'asker starts' => "zk_lock('unreachable')" ], [ 'asker waits' ],
		[ cancel => 'asker' ], [ 'asker ends' => '!57014' ],
		[ mend => $fault ],
		[ asker => "zk_lock('unreachable')", qr/^\d+$/ ], [ nodes => unreachable => 1 ],
		[ 'quit' ], [ gone => 'unreachable' ]);
}

# Who is not connected when the backend ends ends the session once that is possible, long
# before the ensemble would.
$table->run('a session whose backend ends without a connection is closed once there is one', { holder => background($berlin, 'zklock.session_timeout' => '90s') },
	[ holder => "zk_lock('away')" ],
	[ break => 'refused' ], [ state => holder => 'suspended' ],
	sub (%session) {
		$session{holder}->quit;
		poll_until { !-d '/proc/' . $session{holder}->pid } 'the backend to end', 30;
	},
	[ mend => 'refused' ], [ gone => 'away' ]);

# The end of the connection is found by a request that cannot be sent, and not by
# reading: then the client library tells nobody. No server is to be had any more, so
# nothing else tells it either.
subtest 'a lock is lost with a session whose connection is reset just ahead of a request' => sub {
	my $session = background($berlin, is_connected => 1, holds => 'reset');
	my ($program) = session_programs($session->pid);
	kill 'STOP', $program;
	$proxy->go_away;
	start_to_wait($session, "SELECT zk_try_lock('other', '6s')");
	kill 'CONT', $program;
	$session->wait_result;
	assert_soon { $session->query("SELECT zk_is_held('reset')") ne 't' } 'the lock is lost with the session', 40;
	$proxy->heal;
	assert_leave_nothing($zk, lock_path('reset'), $session);
};

# A server to which the session comes back may still have a create that came before it went
# to another one: here it is executed by who goes on with the session meanwhile.
$table->run('the node of a create that is executed late goes', { asker => connected() },
	sub { $proxy->trap(15, 1, 'requests'); },
	[ 'asker starts' => "zk_lock('delayed')" ],
	sub { poll_until { $proxy->is_sprung } 'the create'; },
	[ mend => 'reset' ], [ 'asker ends' => qr/^\d+$/ ], [ nodes => delayed => 1 ],
	[ break => 'refused' ],
	sub {
		my ($prefix) = slurp_file($heard) =~ m{(/[-\w]+/delayed/_c_[-0-9a-f]{36}-lock-)};
		my $server = ZooKeeper::Client->new($zk->connect_string,
			session => $client->exists(nodes('delayed')->[0])->{owner});
		like($server->contend($prefix), qr/^\Q$prefix\E/, 'it comes');
		$server->abandon;
	},
	[ nodes => delayed => 2 ],
	[ mend => 'refused' ], [ nodes => delayed => 1 ],
	[ asker => "zk_unlock('delayed')", 't' ], [ gone => 'delayed' ]);

# The ensemble takes the session up again before it is over; its word comes when the program
# counts it as lost.
$table->run('a session is lost though its reconnect is answered, too late', { holder => background($berlin) },
	[ holder => "zk_lock('late')" ],
	[ break => 'refused' ], [ state => holder => 'suspended' ],
	sub (%session) {
		my ($program) = session_programs($session{holder}->pid);
		sleep 3;
		kill 'STOP', $program;
		$proxy->trap(0, 1, 'replies');    # the request to connect, which has a zxid there
		$proxy->heal;
		kill 'CONT', $program;
		poll_until { $proxy->is_sprung } 'it to try again';
		kill 'STOP', $program;
		$proxy->heal;
		sleep 3.5;
		kill 'CONT', $program;
	},
	[ state => holder => 'lost' ], [ 'quit' ], [ gone => 'late' ]);

done_testing();
