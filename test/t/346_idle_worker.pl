
# The lease worker has a session of ZooKeeper's while there are leases, and none before anybody has
# asked for one. It knows below which roots there may be some, also after a restart, and no tenant
# takes the room of all others.

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

subtest 'no leases, no session' => sub {
	my $received = $zk->packets_received;
	wait_for_rounds(2);
	is($zk->packets_received, $received, 'nothing is sent before the first lease');
	is(scalar(session_programs(worker())), 0, 'and there is no session');
	my $session = background($node);
	my $token = lease($session, 'first', '1 day');
	assert_soon { session_programs(worker()) == 1 } 'it wakes up for the first one', 60;
	$session->query_safe("SELECT zk_release_lease('first', $token)");
	assert_soon { session_programs(worker()) == 0 } 'and sleeps when the last one is gone', 120;
	is(scalar($zk->client->children(lock_path('.leases'))), 0, 'with the name of its lock');
	lease($session, 'next', '2s');
	assert_nodes($zk, lock_path('next'), 0, 'it wakes up again, and deletes what nobody renews');
};

subtest 'a restart' => sub {
	my $session = background($node, first => "SET zklock.root = '/of-a-session'");
	lease($session, 'left', '2s');
	$node->stop('immediate');
	$node->start;
	assert_soon { !queue_nodes($zk, '/of-a-session/left') } 'what was left from before it goes', 120;
};

subtest 'a tenant with many roots' => sub {
	my $from = -s $node->logfile;
	$node->safe_psql('postgres', "CREATE ROLE greedy LOGIN; GRANT SET ON PARAMETER zklock.root TO greedy;
		CREATE ROLE modest LOGIN; ALTER ROLE modest SET zklock.root = '/modest'");
	my $greedy = background($node, user => 'greedy');
	$greedy->query_safe("SET zklock.root = '/greedy/$_'; SELECT zk_try_lease('there', 'app', '1 day')") foreach 1 .. 9;
	ok($node->log_contains(qr{does not look after leases below znode "/greedy/9"\n.*DETAIL:  .* 8 of one role}, $from),
		'the log says which is too many');
	lease(background($node, user => 'modest'), 'there', '2s');
	assert_soon { !queue_nodes($zk, '/modest/there') } 'another one has room', 120;
};

done_testing();
