
# A role that may choose zklock.root, or the chroot of zklock.servers, could choose the name by
# which a znode is judged: it needs the privileges of all those names. And zk_fence() does not
# believe the tokens of servers that the session has chosen. Tested with roles that may set
# these.

use Proxy;
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $servers = $zk->connect_string;
my $node = cluster('berlin', $zk, 'zklock.root' => '/prod/locks');
$node->safe_psql('postgres', <<'SQL');
CREATE ROLE tenant LOGIN;
CREATE ROLE groot LOGIN;
CREATE ROLE gservers LOGIN;
GRANT SET ON PARAMETER zklock.root TO groot;
GRANT SET ON PARAMETER zklock.servers TO gservers;
ALTER ROLE tenant SET zklock.root = '/prod';
SELECT zk_grant('all', 'vip', 'postgres');
SQL

sub assert_denied ($session, $name, $what)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	assert_query($session, "SELECT zk_try_lock('$name')", '42501', $what);
	like($session->error, qr/DETAIL:  .*prefix "vip" is closed/, 'the DETAIL names the closed prefix');
	return;
}

subtest 'a role that sets zklock.root needs the privileges of all names of the znode' => sub {
	my $session = background($node, user => 'groot');
	foreach my $way ([ '/', 'prod/locks/vip' ], [ '/prod', 'locks/vip/x' ], [ '/prod/locks/vip', 'x' ], [ '/prod/locks/vip/x', 'y/z' ])
	{
		my ($root, $name) = @$way;
		$session->query_safe("SET zklock.root = '$root'");
		assert_denied($session, $name, "$name below $root");
		assert_query($session, "SELECT zk_lock_set(ARRAY['$name', 'free'])", '42501', 'a list with that name is refused');
		assert_query($session, "SELECT zk_try_lease('$name', 'groot', '10s')", '42501', 'a lease of that name is refused');
	}
	$session->query_safe("SET zklock.root = '/prod'");
	assert_query($session, "SELECT zk_try_lock('locks/vips')", '00000', 'a name that nothing covers is free');
	$session->query_safe("RESET zklock.root");
	assert_query($session, "SELECT zk_try_lock('a/vip')", '00000', 'below the configured root the name is judged as it is');
	$session->query_safe('SELECT zk_unlock_all()');
};

subtest 'a role that stores zklock.root for itself needs the privileges of all names' => sub {
	background($node, user => 'groot')->query_safe("ALTER ROLE groot SET zklock.root = '/prod'");
	assert_denied(background($node, user => 'groot'), 'locks/vip', 'a stored root counts as chosen by the role');
	assert_query(background($node, user => 'tenant'), "SELECT zk_try_lock('a/vip')", '00000',
		'the root of who may not set it is judged by the name below it');
};

subtest 'a role that sets a chroot needs the privileges of all names of the znode' => sub {
	my $session = background($node, user => 'gservers');
	$session->query_safe("SET zklock.servers = '$servers/prod/locks/vip'");
	assert_denied($session, 'x', 'a chroot of zklock.servers counts as chosen by the role');
	assert_query(background($node, user => 'gservers'), "SELECT zk_try_lock('a/vip')", '00000', 'a role without a chroot is judged by the name alone');
};

subtest 'zk_fence() does not believe tokens of servers that the session has chosen' => sub {
	my $proxy = Proxy->new($servers);
	my $own = $proxy->address;
	my $session = background($node, user => 'gservers');
	$session->query_safe("SET zklock.servers = '$own'");
	$session->query_safe("SELECT zk_lock('fenced')");
	assert_query($session, "SELECT zk_fence('fenced')", '42501', 'a token of chosen servers is refused');
	like($session->error, qr/is not accepted from servers that this session has chosen/, 'the error says why');
	$session->query_safe('RESET zklock.servers');
	assert_query($session, "SELECT zk_fence('fenced')", '42501', 'a token is refused if the session has had such servers once');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM zk_fences'), 0, 'no token was believed');
	$session->query_safe('SELECT zk_disconnect()');
	$session->query_safe("SELECT zk_lock('fenced')");
	assert_query($session, "SELECT zk_fence('fenced')", '00000', 'a token of the configured servers is believed');

	$session->query_safe("SET zklock.servers = '$own'");
	# It tells the session of them. Whether these answer in time is no matter.
	$session->query_safe("DO \$\$ BEGIN PERFORM zk_is_held('fenced'); EXCEPTION WHEN OTHERS THEN END \$\$");
	$session->query_safe('RESET zklock.servers');
	assert_query($session, "SELECT zk_fence('fenced')", '42501', 'a token is refused if the session has moved to such servers');

	$session->query_safe("SELECT zk_unlock_all(); SET zklock.servers = '$servers'");
	$session->query_safe("SELECT zk_disconnect(), zk_lock('fenced')");
	assert_query($session, "SELECT zk_fence('fenced')", '00000', 'a token is believed if the role has named the configured servers');
	$session->quit;

	$node->safe_psql('postgres', "ALTER ROLE tenant SET zklock.servers = '$own'");
	my $tenant = background($node, user => 'tenant');
	$tenant->query_safe("SELECT zk_lock('of tenant')");
	assert_query($tenant, "SELECT zk_fence('of tenant')", '00000', 'a token is believed from servers that a superuser has stored');
	$tenant->quit;
};

subtest 'a privilege for the other name lets a role use the znode' => sub {
	my $session = background($node, user => 'groot');
	$node->safe_psql('postgres', "SELECT zk_grant('lock', 'vip', 'groot')");
	assert_query($session, "SELECT zk_try_lock('locks/vip')", '00000', 'a privilege for the other name is enough');
	$node->safe_psql('postgres', "SELECT zk_grant('none', '', 'public'), zk_grant('lock', 'locks/own', 'groot')");
	assert_query($session, "SELECT zk_try_lock('locks/own/a')", '00000', 'where all are closed, the name that is asked for counts');
	assert_query($session, "SELECT zk_try_lock('locks/other')", '42501', 'another name stays closed');
};

done_testing();
