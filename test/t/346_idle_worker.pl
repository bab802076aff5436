
# The lease worker has a ZooKeeper session only while there are leases below its roots: that of
# postgresql.conf, and those of zklock.lease_roots. Tested with a real server that counts requests.

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

sub lease ($session, $name, $term) { return $session->query_safe("SELECT zk_try_lease('$name', 'app', '$term')"); }

sub set_roots (@roots)
{
	$node->append_conf('postgresql.conf', "zklock.lease_roots = '" . join(', ', @roots) . "'");
	$node->reload;
	return;
}

subtest 'the lease worker has a session only while there are leases' => sub {
	assert_soon { ask($node, 'SELECT sessions > 0 FROM zk_stat WHERE datname IS NULL') eq 't' } 'the worker looks when it starts', 60;
	assert_soon { session_programs(worker()) == 0 } 'the worker closes its session when it has found nothing', 60;
	my $received = $zk->packets_received;
	wait_for_rounds(2);
	is($zk->packets_received, $received, 'the worker sends nothing then');
	my $session = background($node);
	my $token = lease($session, 'first', '1 day');
	assert_soon { session_programs(worker()) == 1 } 'the worker opens a session for the first lease', 60;
	$session->query_safe("SELECT zk_release_lease('first', $token)");
	assert_soon { session_programs(worker()) == 0 } 'the worker closes its session when the last lease is gone', 120;
	is(scalar($zk->client->children(lock_path('.leases'))), 0, 'the name of the lock is removed from .leases');
	lease($session, 'next', '2s');
	assert_nodes($zk, lock_path('next'), 0, 'the worker opens a session again, and deletes an overdue lease');
	assert_soon { session_programs(worker()) == 0 } 'and closes it again', 120;
};

subtest 'a lease below a root that is not in zklock.lease_roots does not wake the worker' => sub {
	my $sessions = "SELECT sessions FROM zk_stat WHERE datname IS NULL";
	my $before = ask($node, $sessions);
	my $session = background($node, first => "SET zklock.root = '/elsewhere'");
	lease($session, 'left', '2s');
	wait_for_rounds(2);
	is(ask($node, $sessions), $before, 'the worker has opened no session');
	is(scalar queue_nodes($zk, '/elsewhere/left'), 1, 'the overdue lease stays');
	set_roots('/elsewhere');
	assert_soon { !queue_nodes($zk, '/elsewhere/left') } 'the lease is deleted when the root is in the list', 60;
	assert_soon { session_programs(worker()) == 0 } 'the worker closes its session', 120;
	lease($session, 'next', '2s');
	assert_soon { !queue_nodes($zk, '/elsewhere/next') } 'a lease below this root wakes the worker now', 60;
	$session->quit;
};

# A session that comes once times nothing, and another cluster, in which the lease was taken, is gone.
subtest 'a call that finds the lock leased wakes the worker' => sub {
	my $gone = cluster('gone', $zk);
	my $token = $gone->safe_psql('postgres', "SELECT zk_try_lease('left behind', 'DOM\\user', '4s')");
	$gone->stop('immediate');
	my $taken;
	assert_soon { $taken = $node->safe_psql('postgres', "SELECT zk_try_lease('left behind', 'next', '60s')") } 'the next owner has it', 60;
	cmp_ok($taken, '>', $token, 'with a token of its own');
	assert_soon { session_programs(worker()) == 1 } 'the worker looks after it', 60;
	$node->safe_psql('postgres', "SELECT zk_release_lease('left behind', $taken)");
	assert_soon { session_programs(worker()) == 0 } 'the worker closes its session', 120;
};

subtest 'the lease worker looks below each root of a long list' => sub {
	set_roots(lock_path('') =~ s{/$}{}r, '/turn/1', map { "/turn/$_" } 1 .. 40);
	my $session = background($node);
	foreach my $number (1 .. 40)
	{
		$session->query_safe("SET zklock.root = '/turn/$number'");
		lease($session, 'there', $number % 2 ? '2s' : '1 day');
	}
	assert_soon { !grep { queue_nodes($zk, "/turn/" . (2 * $_ - 1) . '/there') } 1 .. 20 } 'the overdue leases are deleted', 60;
	is(scalar(grep { queue_nodes($zk, "/turn/" . 2 * $_ . '/there') } 1 .. 20), 20, 'the others stay');
	$session->quit;
};

subtest 'an overdue lease behind many others of the same lock is deleted' => sub {
	my $client = $zk->client;
	my $session = background($node);
	lease($session, 'many', '1 day');
	my $path = lock_path('many');
	my ($prefix) = map { s/.{10}$//r } queue_nodes($zk, $path);
	my $data = '{"client":"zklock","owner":"app","term":"%d"}';
	$client->create(sprintf('%s/%s%010d', $path, $prefix, $_), sprintf($data, $_ < 200 ? 86_400_000 : 2000)) foreach 101 .. 200;
	assert_nodes($zk, $path, 100, 'it is deleted');
	unlike(join(' ', queue_nodes($zk, $path)), qr/0000000200/, 'and no other one');
	$session->quit;
};

subtest 'the lease worker deletes overdue leases of before a restart' => sub {
	set_roots('/of-a-session');
	my $session = background($node, first => "SET zklock.root = '/of-a-session'");
	lease($session, 'left', '2s');
	$node->stop('immediate');
	$node->start;
	assert_soon { !queue_nodes($zk, '/of-a-session/left') } 'the overdue lease of before the restart is deleted', 120;
};

done_testing();
