
# The lease worker has a ZooKeeper session only while there are leases. It knows the roots below
# which leases were taken, also after a restart, and no tenant takes the room of all others.
# Tested with a real server that counts requests.

use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk, 'zklock.lease_worker' => 'on');

sub worker () { return ask($node, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'zklock lease worker'"); }

# Rounds of the worker's, each of which waits at its end.
sub wait_for_rounds ($count)
{
	my $worker = worker();
	my $waits = sub { slurp_file("/proc/$worker/status") =~ /^voluntary_ctxt_switches:\s+(\d+)/m; return $1; };
	my $before = $waits->();
	poll_until { $waits->() >= $before + $count } "$count rounds", 120;
	return;
}

sub lease ($session, $name, $ttl) { return $session->query_safe("SELECT zk_try_lease('$name', 'app', '$ttl')"); }

subtest 'the lease worker has a session only while there are leases' => sub {
	my $received = $zk->packets_received;
	wait_for_rounds(2);
	is($zk->packets_received, $received, 'the worker sends nothing before the first lease');
	is(scalar(session_programs(worker())), 0, 'the worker has no session');
	my $session = background($node);
	my $token = lease($session, 'first', '1 day');
	assert_soon { session_programs(worker()) == 1 } 'the worker opens a session for the first lease', 60;
	$session->query_safe("SELECT zk_release_lease('first', $token)");
	assert_soon { session_programs(worker()) == 0 } 'the worker closes its session when the last lease is gone', 120;
	is(scalar($zk->client->children(lock_path('.leases'))), 0, 'the name of the lock is removed from .leases');
	lease($session, 'next', '2s');
	assert_nodes($zk, lock_path('next'), 0, 'the worker opens a session again, and deletes an overdue lease');
};

# There is room for 64.
subtest 'roots without leases make room for others, time and again' => sub {
	my $from = -s $node->logfile;
	my $session = background($node);
	foreach my $round (1, 2)
	{
		foreach my $number (1 .. 40)
		{
			my $root = "/turn-$round/$number";
			$session->query_safe("SET zklock.root = '$root'");
			my $token = lease($session, 'there', $number == 40 ? '2s' : '1 day');
			$session->query_safe("SELECT zk_release_lease('there', $token)") if $number < 40;
		}
		assert_soon { !queue_nodes($zk, "/turn-$round/40/there") } "round $round: the last root is looked after", 60;
		assert_soon { session_programs(worker()) == 0 } 'and then none has leases', 120;
	}
	ok(!$node->log_contains(qr/does not look after/, $from), 'none was too many');
};

subtest 'the lease worker deletes overdue leases of before a restart' => sub {
	my $session = background($node, first => "SET zklock.root = '/of-a-session'");
	lease($session, 'left', '2s');
	$node->stop('immediate');
	$node->start;
	assert_soon { !queue_nodes($zk, '/of-a-session/left') } 'the overdue lease of before the restart is deleted', 120;
};

subtest 'a role with too many roots leaves room for other roles' => sub {
	my $from = -s $node->logfile;
	$node->safe_psql('postgres', "CREATE ROLE greedy LOGIN; GRANT SET ON PARAMETER zklock.root TO greedy;
		CREATE ROLE modest LOGIN; ALTER ROLE modest SET zklock.root = '/modest'");
	my $greedy = background($node, user => 'greedy');
	$greedy->query_safe("SET zklock.root = '/greedy/$_'; SELECT zk_try_lease('there', 'app', '1 day')") foreach 1 .. 9;
	ok($node->log_contains(qr{does not look after leases below znode "/greedy/9"\n.*DETAIL:  .* 8 of one role}, $from),
		'the log says which root is too many');
	lease(background($node, user => 'modest'), 'there', '2s');
	assert_soon { !queue_nodes($zk, '/modest/there') } 'an overdue lease of another role is deleted', 120;
};

done_testing();
