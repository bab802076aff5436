
# The worker of a cluster frees those whom no contender of zklock's stands beside: a client
# of another kind that waits behind a lease whose owner is gone.

use PostgreSQL::Test::Utils;
use Proxy;
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $proxy = Proxy->new($zk->connect_string);
my $owner = cluster('owner', $zk, servers => $proxy->address,
	'zklock.session_timeout' => '40s', 'zklock.connect_timeout' => '60s');
my $guard = cluster('guard', $zk, extension => undef,
	shared_preload_libraries => 'zklock', 'zklock.lease_worker' => 'on');
my $session = background($owner);
my $client = $zk->client;
my $names = lock_path('') . '.leases';

sub lease ($name, $ttl)
{
	return $session->query_safe("SELECT zk_lease('$name', 'app', '$ttl')");
}

# No contender of zklock's is there, for none would be seen by zk_lock_queue().
foreach my $name ('dead', 'deep/100%/name')
{
	my $token = lease($name, '2s');
	assert_nodes($zk, lock_path($name), 1, "a lease of $name");
	assert_nodes($zk, lock_path($name), 0, 'that nobody renews goes');
	is($session->query_safe("SELECT zk_lease_renew('$name', $token, '2s')"), 'f', 'its owner hears of it');
}

my $living = lease('living', '60s');
assert_soon { join(',', $client->children($names)) eq 'living' } 'names without leases are dropped', 60;
is($session->query_safe("SELECT zk_lease_renew('living', $living, '60s')"), 't', 'one that lives stays');

# A name that was dropped before its lease was there is noted again.
lease('slow', '2s');
assert_soon { !$client->exists("$names/slow") } 'a name is dropped', 60;
$proxy->trap(15, 2, 'rest');    # create2: the name's, the lease's
$session->start_query("SELECT zk_lease('slow', 'app', '2s')");
assert_soon { $proxy->is_sprung && !$client->exists("$names/slow") } 'and again, before its lease is made', 60;
$proxy->heal;
cmp_ok($session->wait_result, '>', 0, 'which is made then');
assert_nodes($zk, lock_path('slow'), 0, 'and goes when nobody renews it');

$client->create("$names/..%2Fa%00", 'x');
$client->create("$names/zookeeper%2Fquota", 'x');
lease('after', '2s');
assert_nodes($zk, lock_path('after'), 0, 'names that nobody can have do no harm');

my $worker = $guard->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type = 'zklock lease worker'");
is(scalar(session_programs($worker)), 1, 'the worker has a session');
$guard->append_conf('postgresql.conf', 'zklock.lease_worker = off');
$guard->reload;
assert_no_programs('switched off, it has none', $worker);

done_testing();
