
# Servers may keep sessions local until they have ephemeral znodes (localSessionsEnabled). Locks
# work where such a session becomes a global one; where localSessionsUpgradingEnabled=false
# forbids that, the error names the setting. Tested with two ensembles of three real servers.

use ZkLockTest;

# A setting of all members of an ensemble.
sub ensemble ($upgrading)
{
	return ZooKeeper->new(servers => 3,
		config => { localSessionsEnabled => 'true', localSessionsUpgradingEnabled => $upgrading ? 'true' : 'false' })->start;
}

my $zk = ensemble(1);
my $strict = ensemble(0);
my $node = cluster('berlin', $zk);

subtest 'a local session becomes a global one with its first lock' => sub {
	# Each server is a session's first.
	foreach my $member ($zk->members)
	{
		my $session = background($node, 'zklock.servers' => $zk->connect_string($member), is_connected => 1);
		my $id = session_id_of($session);
		like($session->query_safe("SELECT zk_lock('global')"), qr/^\d+$/, "server $member: it has a lock");
		is(session_id_of($session), $id, 'the session has the same id');
		assert_leave_nothing($zk, lock_path('global'), $session);
	}
};

subtest 'a session that became a global one keeps its lock when its server is killed' => sub {
	my $session = background($node, holds => 'moved');
	my $id = session_id_of($session);
	my ($port) = $session->query_safe('SELECT server FROM zk_session') =~ /:(\d+)$/;
	my ($member) = grep { $zk->port($_) == $port } $zk->members;
	$zk->kill9($member);
	assert_soon { $session->query("SELECT zk_is_held('moved') FROM zk_session WHERE state = 'connected'") eq 't' } 'a lock survives its server', 60;
	is(session_id_of($session), $id, 'the session is the same');
	$zk->start;
	assert_leave_nothing($zk, lock_path('moved'), $session);
};

subtest "a local session that may not become a global one is refused, with the setting's name" => sub {
	my $session = background($node, 'zklock.servers' => $strict->connect_string);
	foreach my $sql ("SELECT zk_lock('local')", "SELECT zk_try_lock('local')", "SELECT zk_xact_lock_shared('local')")
	{
		assert_query($session, $sql, '0A000', 'ZooKeeper allows this session no ephemeral znodes');
		like($session->error, qr/HINT:  .*"localSessionsUpgradingEnabled"/, 'the setting is named');
	}
	# Without a root it does not try.
	$strict->client->create_path(lock_path('root'));
	like($session->query_safe("SELECT * FROM zk_check(true)"), qr/^writing\|error\|.*local.*localSessionsUpgradingEnabled/m, 'zk_check() says it');
	$session->quit;
};

done_testing();
