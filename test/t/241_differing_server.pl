
# One server has other data than its leader (ZOOKEEPER-2355, -3144, -4837: a follower that kept a
# znode whose session had ended): the leader finds nothing to delete, and a read shows it. No call asks
# for ever; it says which server differs. Tested with a fake before a real server that answers
# as the leader would.

use Liar;
use ZkLockTest;

# Operations and errors, from ZooKeeper's protocol.
my @write = (2, 5, 14);
my ($get, $create2) = (4, 15);
my ($no_node, $bad_version) = (-101, -103);

my $zk = ZooKeeper->new(tick_time => 250)->start;
my $liar = Liar->new('127.0.0.1:' . $zk->port);
my $node = cluster('berlin', $zk,
	'zklock.lease_worker' => 'off',
	'zklock.commit_guard' => 'quorum',
	'zklock.connect_timeout' => '30s',
	# So that a call that asks for ever ends here.
	'statement_timeout' => '15s');
$node->safe_psql('postgres', 'CREATE TABLE written ()');
my $session = background($node, 'zklock.servers' => $liar->address);
my $other = background($node);

# That statement, while the fake denies it, says which server differs.
sub assert_differs ($sql, $what)
{
	$session->query($sql);
	is($session->sqlstate, '58000', "$what: SQLSTATE");
	like($session->error, qr/ZooKeeper server "${\ $liar->address}" differs from its leader/, "$what: the message names the server");
	$liar->deny;
	return;
}

# The path of the only queue node.
sub node_of ($name) { return first_in_queue($zk, $name); }

subtest 'what only this server has cannot be removed, and the call says so' => sub {
	my $token = $other->query_safe("SELECT zk_lock('evicted')");
	$liar->deny(node_of('evicted'), $no_node, @write);
	assert_differs("SELECT zk_evict('evicted', $token)", 'an eviction');
	like($session->error, qr/DETAIL:  Znode "${\ node_of('evicted')}": the server shows it, and the leader does not have it\./, 'the DETAIL has the znode');
	is($session->query_safe("SELECT zk_evict('evicted', $token)"), 't', 'a true answer evicts');
	$other->query_safe('SELECT zk_unlock_all()');

	$token = $other->query_safe("SELECT zk_hold('held', 'because')");
	$liar->deny(node_of('held'), $no_node, @write);
	assert_differs("SELECT zk_release_hold('held', $token)", 'the release of a permanent hold');

	$other->query_safe("SELECT zk_run_once('job', 'today')");
	$liar->deny('today', $no_node, @write);
	assert_differs("SELECT zk_forget_run('job', 'today')", 'the deletion of a record');
	$liar->deny('.once', $bad_version, 14);
	assert_differs("SELECT zk_forget_run('job', 'today')", 'the deletion of a record by a guard that the leader has set');
};

subtest 'a run is not recorded where the server does not show what the leader has' => sub {
	$liar->deny('.once', $bad_version, 14);
	assert_differs("SELECT zk_run_once('job', 'tomorrow')", 'a run by a guard that the leader has set');
	$other->query_safe("SELECT zk_run_once('job', 'later')");
	$liar->deny('later', $no_node, $get);
	assert_differs("SELECT zk_run_once('job', 'later')", 'a run whose record only the leader has');
	$liar->deny(lock_path('.once'), $no_node, $get);
	assert_differs("SELECT zk_run_once('job', 'at last')", 'a run whose guard only the leader has');
};

subtest 'a lease that only this server has' => sub {
	my $token = $other->query_safe("SELECT zk_try_lease('lease', 'app', '1 min')");
	foreach my $refusal ($no_node, $bad_version)
	{
		$liar->deny(node_of('lease'), $refusal, @write);
		assert_differs("SELECT zk_renew_lease('lease', $token, '1 min')", "is not renewed after $refusal");
		$liar->deny(node_of('lease'), $refusal, @write);
		assert_differs("SELECT zk_try_lease('lease', 'app', '1 min')", "is not taken again after $refusal");
		$liar->deny(node_of('lease'), $refusal, @write);
		assert_differs("SELECT zk_release_lease('lease', $token, '1 s')", "is not given up after $refusal");
	}
	$session->query_safe("BEGIN; SELECT zk_require_lease('lease', $token); INSERT INTO written DEFAULT VALUES");
	$liar->deny(node_of('lease'), $bad_version, @write);
	assert_differs('COMMIT', 'is not proved by a commit');
	$other->query_safe("SELECT zk_release_lease('lease', $token)");
};

subtest 'behind a lease that only this server has nobody asks for ever' => sub {
	$other->query_safe("SELECT zk_try_lease('overdue', 'app', '2 s')");
	foreach my $refusal ($no_node, $bad_version)
	{
		foreach my $sql (q{zk_lock('overdue')}, q{zk_try_lock('overdue', '20 s')}, q{zk_try_lease('overdue', 'next', '1 min', '20 s')})
		{
			$liar->deny(node_of('overdue'), $refusal, @write);
			assert_differs("SELECT $sql", "$sql after $refusal");
		}
	}
	# Now its term is over for this session.
	$liar->deny(node_of('overdue'), $no_node, @write);
	assert_differs("SELECT zk_try_lock('overdue')", 'a try that waits for nobody');
	assert_query($session, "SELECT zk_lock('overdue')", '00000', 'a true answer lets it in');
};

subtest 'behind a contender that a server lists and does not find' => sub {
	$other->query_safe("SELECT zk_lock('listed')");
	$liar->deny(node_of('listed'), $no_node, $get);
	assert_differs("SELECT zk_lock('listed')", 'a wait');
	$other->query_safe("SELECT zk_hold('first', 'because')");
	$liar->deny(node_of('first'), $no_node, $get);
	assert_differs("SELECT zk_leader('first')", 'a look at the first contender');
};

# It shows the waiter a holder, and nothing else: the wait ends as any does.
subtest 'a wait behind a holder that only this server has ends in its time' => sub {
	my $token = $other->query_safe("SELECT zk_lock('stale')");
	$liar->deny(node_of('stale'), $no_node, @write);
	assert_query($session, "SET lock_timeout = '1s'; SELECT zk_lock('stale')", '55P03', 'lock_timeout ends it');
	assert_differs("RESET lock_timeout; SELECT zk_evict('stale', $token)", 'the eviction of that holder');
};

# The lock's znode is made by the leader, whether this server shows one or not.
subtest 'a znode that cannot be made is not made for ever' => sub {
	$liar->deny(lock_path('vanishing') . '/', $no_node, $create2);
	foreach my $sql ("zk_lock('vanishing')", "zk_try_lease('vanishing', 'app', '1 min')")
	{
		$session->query("SELECT $sql");
		like($session->error, qr/ERROR:  could not create znode "${\ lock_path('vanishing')}"/, "$sql: the message");
		is($session->sqlstate, '58000', "$sql: SQLSTATE");
	}
	$liar->deny;
};

$_->quit foreach $session, $other;
done_testing();
