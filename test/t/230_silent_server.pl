
# One server of the ensemble takes connections, or packets, and never answers, as one that is
# switched off or behind a firewall: new sessions wait for it no longer than a moment, and none
# fails. Tested with sockets that listen and never answer, ahead of a real server in
# zklock.servers, and with a proxy that falls silent.

use IO::Socket::INET;
use List::Util qw(max);
use Proxy;
use ZkLockTest;

my $zk = ZooKeeper->new->start;

# Connections to it are completed by the kernel and lie in its backlog.
my @silent = map { IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 128) || die "could not listen: $!" } 1, 2;
my ($silent_address, $another) = map { '127.0.0.1:' . $_->sockport } @silent;

my $node = cluster('berlin', $zk,
	servers => "$silent_address," . $zk->connect_string,
	'zklock.session_timeout' => '15s');

# Which server comes first is by chance, so several sessions.
my $longest = 0;
foreach my $i (1 .. 8)
{
	my $session = background($node);
	my $since = time;
	my $function = $i % 2 ? 'zk_lock' : 'zk_try_lock';
	assert_query($session, "SELECT $function('silent'), zk_unlock('silent')", '00000', "session $i gets the lock");
	$longest = max($longest, time - $since);
}
in_time($longest, 8, 'no session waits as long as the client library would');
assert_no_nodes($zk, lock_path('silent'), 'no node of the lock is left');

my $session = background($node);
is($session->query_safe("SELECT count(*) FROM zk_lock_queue('silent')"), '0', 'a queue is read');

# A network that falls silent and then delivers all that was sent meanwhile: that is
# not much more than what was wanted, or a crowd would keep the servers from coming up
# to date. Heartbeats and the library's pings are among it.
my $proxy = Proxy->new('127.0.0.1:' . $zk->port);
my $patient = background($node, 'zklock.servers' => $proxy->address, holds => 'silent');
my $packets = $zk->packets_received;
$proxy->cut;
$patient->start_query("SELECT zk_lock('other')");
sleep 5;    # that long is the silence
$proxy->heal;
like($patient->wait_result, qr/^\d+$/, 'the lock is granted behind a network that was silent');
cmp_ok($zk->packets_received - $packets, '<', 18, 'few requests have piled up behind the silence');
$patient->query_safe('SELECT zk_disconnect()');

# With none that answers, zklock.connect_timeout bounds it all.
$session = background($node,
	'zklock.servers' => "$silent_address,$another", 'zklock.connect_timeout' => '4s');
my $since = time;
assert_query($session, "SELECT zk_lock('silent')", '08001', 'zk_lock() raises 08001 where no server answers');
my $took = time - $since;
like($session->error, qr/within 4000 ms.*HINT/s, 'the error says how long it took and what to do');
like($session->error, qr/Server "(?:$silent_address|$another)" did not answer within \d{4} ms/, 'the error says which server was silent');
cmp_ok($took, '>', 3.5, 'zk_lock() does not raise before zklock.connect_timeout');
in_time($took, 8, 'zk_lock() raises not long after zklock.connect_timeout');
# lock_timeout bounds it, too; an ensemble that is down is told as such then.
my $nobody = '127.0.0.1:' . ZooKeeper::free_port();
foreach ([ $nobody, qr/(?:Server|Could not connect to server) "[^"]+"(?: cannot be reached)?: Connection refused\.\nHINT:  Check that ZooKeeper is running.*zk_check\(\)/ ],
	[ $silent_address, qr/no connection to ZooKeeper\..*HINT:  Check that the servers.*zk_check\(\)/s ])
{
	my ($servers, $pattern) = @$_;
	my $session = background($node, 'zklock.servers' => $servers, 'zklock.connect_timeout' => '4s', lock_timeout => '1s');
	# An attempt has to end before.
	assert_soon { $session->query("SELECT zk_lock('silent')"); $session->error =~ $pattern } 'the new list is asked', 30;
	foreach my $call ("zk_lock('silent')", "count(*) FROM zk_lock_queue('silent')")
	{
		assert_query($session, "SELECT $call", '55P03', "lock_timeout, $call");
		like($session->error, $pattern, 'the error of lock_timeout says why, and what to do');
	}
}

done_testing();
