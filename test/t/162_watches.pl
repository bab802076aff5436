
# A wait that ends without the lock removes its watch. Otherwise watches would pile up on the
# server, and after a reconnect one packet with all of them would be larger than the server
# reads. Tested with a real server that has a small buffer, and a proxy.

use Proxy;
use ZkLockTest;

# Long enough for a server that reads 20 kB.
my $nlocks = 200;
my $long = 'x' x 150;
my $zk = ZooKeeper->new(java_options => ['-Djute.maxbuffer=20000'])->start;
my $proxy = Proxy->new('127.0.0.1:' . $zk->port);
my $node = cluster('berlin', $zk, 'zklock.max_locks' => 1000, 'zklock.session_timeout' => '60s');
my $holder = background($node);
my $session = background($node, route => $proxy->address, holds => 'mine');

# One by one: the reply to so long a request may be too long, too.
$holder->query_safe(
	"DO \$\$ BEGIN FOR i IN 1..$nlocks LOOP
		PERFORM zk_lock('held/' || i || '$long'); END LOOP; END \$\$");

# The watches whose znode is below that path are as many, in the end.
sub await_watches ($count, $what, $below = undef)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return assert_becomes { scalar(my @watched = $zk->watched_paths(lock_path($below // 'held'))) } $count, $what;
}

my $name = "'held/' || i || '$long'";
my %calls = (
	'with a timeout' => "zk_lock($name, '5ms')",
	'shared' => "zk_lock_shared($name, '5ms')",
	'as a try' => "zk_try_lock($name, '5ms')");
foreach my $how (sort keys %calls)
{
	# Each of the locks is waited for in vain.
	$session->query_safe(
		"DO \$\$ BEGIN FOR i IN 1..$nlocks LOOP
			BEGIN PERFORM $calls{$how}; EXCEPTION WHEN lock_not_available OR
				sqlclient_unable_to_establish_sqlconnection THEN NULL; END;
		END LOOP; END \$\$");
	await_watches(0, "$nlocks waits in vain, $how");
	assert_becomes { $zk->watch_count } $nlocks + 1, 'nothing but what is held is watched';
}

$session->query_safe("SET statement_timeout = '15ms'");
$session->query(join '', map { "SELECT zk_lock('held/$_$long');\n" } 1 .. $nlocks);
my $canceled = () = $session->error =~ /canceling statement/g;
is($canceled, $nlocks, 'each of the waits is canceled');
await_watches(0, 'canceled waits leave no watch');
$session->query_safe('RESET statement_timeout');

# For the first of a semaphore's waiters the watch is one of the list.
$holder->query_safe("SELECT zk_lock('permits/' || i, permits => 2) FROM generate_series(1, 20) i");
my $second = background($node);
$second->query_safe("SELECT zk_lock('permits/' || i, permits => 2) FROM generate_series(1, 20) i");
# A busy server may take longer to answer, and then a try raises.
$session->query("SELECT zk_try_lock('permits/$_', '100ms', permits => 2)") foreach 1 .. 20;
assert_becomes { $zk->watch_count } $nlocks + 1 + 2 * 20, 'waits for a permit leave none';

# One wait that is still under way, with the watch of the one before gone. That one may
# raise, as above.
$session->query("SELECT zk_try_lock('held/1$long', '100ms')");
start_in_queue($session, "SELECT zk_lock('held/2$long')", $zk, lock_path("held/2$long"), 2);
await_watches(1, 'a waiter watches one node');

# The connection is reset in the middle of it all.
my $since = time;
$proxy->reset_connections;
$holder->query_safe("SELECT zk_unlock('held/2$long')");
like($session->wait_result, qr/^\d+$/, 'the wait goes on after a reset');
assert_held($session, 'mine', 'the session goes on');
in_time(time - $since, 30, 'soon after the reset');
await_watches(0, 'the watch of a wait that ended with the lock is gone');

# Nor does the library name that of a wait whose end the server did not hear of.
start_in_queue($session, "SELECT zk_lock('held/3$long')", $zk, lock_path("held/3$long"), 2);
await_watches(1, 'another one');
$proxy->cut;
$session->cancel;
assert_ends($session, '57014', 'given up, and nobody hears it');
$proxy->come_back;
assert_held($session, 'mine', 'the session goes on');
await_watches(0, 'the watch of the canceled wait is gone');

$session->query_safe('SELECT zk_unlock_all()');
like($session->query_safe("SELECT zk_lock('mine')"), qr/^\d+$/, 'the next lock opens another session');

done_testing();
