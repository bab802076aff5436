
# While the network fails, a request is carried out or not, and the session does not know which:
# exactly one node is left, or none, for a node that nobody knows of would hold the lock. Tested
# with real sessions behind a proxy that cuts, refuses or resets their connections. (A request or
# a reply that is lost: test/lib/Calls.pm.)

use Proxy;
use Refusals;
use ZkLockTest;

my $zk = ZooKeeper->new->start;

my $heard = PostgreSQL::Test::Utils::tempdir() . '/heard';
my $proxy = Proxy->new($zk->connect_string, heard => sub ($data) { append_to_file($heard, $data); });
my $berlin = cluster('berlin', $zk,
	servers => $proxy->address,
	'zklock.session_timeout' => '6s');
my $client = $zk->client;
my $table = Refusals->new($zk, $proxy);

sub nodes ($name) { return [ map { $_->[0] } $zk->ephemerals(lock_path($name) . '/') ]; }

# A session that is connected, of a timeout that is not over while the network is cut.
sub connected { return background($berlin, is_connected => 1, 'zklock.session_timeout' => '15s'); }

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
