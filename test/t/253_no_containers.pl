
# A server of another kind has no container znodes: ClickHouse Keeper before its release with them
# closes the connection or says "bad arguments", others say "unimplemented". All calls that
# make znodes say so and name the server. A connection that breaks for another reason, and a
# path that a server refuses, are told as what they are. Tested with a fake before a real server
# that refuses containers.

use Liar;
use Proxy;
use ZkLockTest;

# Operations and errors, from ZooKeeper's protocol.
my ($create_container, $multi, $create2, @others) = (19, 14, 15, 1 .. 9, 12);
my %refusal = (
	'close' => 'it closed the connection',
	-6 => 'it answered "unimplemented"',
	-8 => 'it answered "bad arguments"');
# Each with a name that was never used: a container is there for a while.
my @calls = (
	q{zk_lock('NAME')}, q{zk_try_lock('NAME/b')}, q{zk_xact_lock_shared('NAME')}, q{zk_lock('NAME', permits => 2)},
	q{zk_hold('NAME', 'because')}, q{zk_try_lease('NAME', 'app', '1 min')}, q{zk_run_once('NAME', 'today')});

my $zk = ZooKeeper->new(tick_time => 250)->start;
my $liar = Liar->new('127.0.0.1:' . $zk->port);
my $node = cluster('berlin', $zk, 'statement_timeout' => '30s');
my $session = background($node, route => $liar->address);
my $other = background($node);
# The root is there, as for a cluster that has used Apache's servers before.
$other->query_safe("SELECT zk_lock('held')");

foreach my $error (sort keys %refusal)
{
	subtest "a server that answers $error to a container is refused" => sub {
		foreach my $sql (map { s/NAME/new$error/r } @calls)
		{
			$liar->deny('/', $error, $create_container);
			$session->query("SELECT $sql");
			is($session->sqlstate, '0A000', "$sql: SQLSTATE") or diag $session->error;
			like($session->error, qr/ERROR:  ZooKeeper server "${\ $zk->connect_string}" has no container znodes\n/, "$sql: the message names the server");
			like($session->error, qr/DETAIL:  It was asked several times to create container znode "[^"]+", and \Q$refusal{$error}\E\.\n/, "$sql: the DETAIL");
		}
		my $row = $session->query_safe("SELECT state, what, remedy FROM zk_check(true) WHERE item = 'writing'");
		like($row, qr/^error\|the server has no container znodes: no lock can be taken \(it was asked .*, and \Q$refusal{$error}\E\)\|.*docs\/interop\.md/, 'zk_check() says it');
		$liar->deny;
		assert_query($session, "SELECT zk_lock('new$error'), zk_unlock('new$error')", '00000', 'a server that has containers takes it');
	};
}

subtest 'a connection that breaks, or a path that is refused, is told as such' => sub {
	$liar->refuse(1, 'lose', $create_container);
	assert_query($session, q{SELECT zk_lock('broken/once')}, '00000', 'one break changes nothing');
	ok($liar->has_come, 'it broke');
	$liar->deny('/', 'close', $create_container, $multi, $create2, @others);
	$session->query(q{SET lock_timeout = '3s'; SELECT zk_lock('broken')});
	like($session->sqlstate, qr/^(?:55P03|08...)$/, 'a server that closes every connection is not blamed for containers');
	$liar->deny('/', -8, $create_container, $multi);
	assert_query($session, q{RESET lock_timeout; SELECT zk_lock('refused')}, '22023', 'a path that the server refuses');
	like($session->error, qr/ZooKeeper refused the path/, 'and it says so');
	$liar->deny;
};

# As an older server of another kind, which does not know this way to create a znode.
subtest 'a connection that ends with each create of a queue node is not made for ever' => sub {
	$other->query_safe("SELECT zk_lock('ended'), zk_unlock('ended')");
	$liar->deny('/', 'close', $create2);
	assert_query($session, q{SELECT zk_lock('ended')}, '08006', 'the call ends');
	like($session->error, qr/could not join a lock's queue: the connection to ZooKeeper was lost/, 'it says so');
	$liar->deny;
	assert_query($session, q{SELECT zk_lock('ended')}, '00000', 'a server that creates the node takes it');
};

subtest 'zk_check() leaves no container' => sub {
	my $root = lock_path('') =~ s{/$}{}r;
	my @before = sort $zk->client->children($root);
	like($session->query_safe("SELECT state FROM zk_check(true) WHERE item = 'writing'"), qr/^ok/, 'all is well');
	assert_becomes { join ' ', sort $zk->client->children($root) } "@before", 'the root is as before';

	my $proxy = Proxy->new($zk->connect_string);
	my $unanswered = background($node, route => $proxy->address, first => 'SELECT count(*) FROM zk_lock_queue($$held$$)');
	$proxy->trap($create_container, 1, 'replies');
	like($unanswered->query_safe("SET zklock.connect_timeout = '2s'; SELECT what FROM zk_check(true) WHERE item = 'session'"),
		qr/has not answered all/, 'its container is not answered');
	ok($proxy->is_sprung, 'it was sent');
	$proxy->heal;
	assert_becomes { join ' ', sort $zk->client->children($root) } "@before", 'the root is as before without an answer, too';
	$unanswered->quit;
};

$_->quit foreach $session, $other;
done_testing();
