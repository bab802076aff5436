
# An ephemeral znode of another program where a lock's queue would be, or above it, leaves no
# room for a queue: the call fails with 55000 and says whose znode it is, and the views show it.
# Tested with such znodes on a real server.

use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk);
$node->safe_psql('postgres', 'CREATE ROLE ordinary LOGIN; CREATE ROLE monitor LOGIN IN ROLE pg_monitor; GRANT zklock_job TO ordinary, monitor');
my $session = background($node, holds => 'mine');
my $other = $zk->client;
my $owner = sprintf '0x%llx', $other->session_id;

# An ephemeral znode of the other program, in the way of what it is called on.
sub make ($path)
{
	$other->create_path($path =~ s{/[^/]+$}{}r);
	return $other->create($path, 'host-7 pid 4711', ephemeral => 1);
}

make(lock_path('simple'));
make(lock_path('above'));

my %in_the_way = (
	"zk_lock('simple')" => 'simple',
	"zk_lock('simple', '5s')" => 'simple',
	"zk_lock_shared('simple')" => 'simple',
	"zk_lock('simple', NULL, 3)" => 'simple',
	"zk_try_lock('simple')" => 'simple',
	"zk_try_lock('simple', '5s')" => 'simple',
	"zk_xact_lock('simple')" => 'simple',
	"zk_lock_set(ARRAY['a', 'simple'])" => 'simple',
	"zk_hold('simple', 'why')" => 'simple',
	"zk_try_lease('simple', 'app', '60s')" => 'simple',
	"zk_lock('above/it')" => 'above',
	"zk_try_lock('above/it/further')" => 'above',
	"zk_try_lease('above/it', 'app', '60s')" => 'above');
foreach my $call (sort keys %in_the_way)
{
	my $path = lock_path($in_the_way{$call});
	assert_query($session, "SELECT $call", '55000', $call);
	like($session->error,
		qr/ephemeral znode "\Q$path\E" is in the way\nDETAIL:  It belongs to session $owner, another client \("host-7 pid 4711"\)\..*\nHINT:  .*docs\/interop\.md/,
		'the error names the znode, its session and its client');
}
is($session->query_safe('SELECT count(*) FROM zk_session_locks'), 1, 'nothing else is held then');

subtest 'the owner of a znode that is in the way is told only to roles that may see others' => sub {
	my %knows = (ordinary => 0, monitor => 1);
	foreach my $role (sort keys %knows)
	{
		my $asking = background($node, user => $role);
		assert_query($asking, "SELECT zk_lock('simple')", '55000', $role);
		is($asking->error =~ /$owner|4711/ ? 1 : 0, $knows{$role}, 'only a role that may see others is told whose znode it is');
		$asking->quit;
	}
	like(slurp_file($node->logfile), qr/DETAIL:  .*$owner, another client \("host-7 pid 4711"\)/, 'the log tells it');
};

subtest 'the views show a znode that is in the way as a holder' => sub {
	is($session->query_safe("SELECT position, state, mode, style, node, session_id, data, since IS NOT NULL, token > 0 FROM zk_lock_queue('simple')"),
		'1|held|exclusive|none|' . lock_path('simple') . "|$owner|host-7 pid 4711|t|t", 'zk_lock_queue');
	is($session->query_safe("SELECT position, state, node, session_id, data, token FROM zk_lock_queue('above/it/further')"),
		'1|held|' . lock_path('above') . "|$owner|host-7 pid 4711|", 'zk_lock_queue of a lock below');
	is($session->query_safe("SELECT state, who, location FROM zk_who('simple')"), "held|host-7 pid 4711|$owner", 'zk_who');
	is($session->query_safe("SELECT name, holder_count, waiter_count FROM zk_all_locks() WHERE name <> 'mine'"), "above|1|0\nsimple|1|0", 'zk_all_locks');
	is($session->query_safe("SELECT count(*) FROM zk_lock_queue('nothing/there')"), 0, 'zk_lock_queue() of an unused lock is empty');
	is($session->query_safe("SELECT zk_request_release('simple')"), 0, 'zk_request_release() asks no holder');
	like($session->error, qr/could not ask 1 holder/, 'zk_request_release() warns that it could not ask');
};

subtest 'a znode that is in the way can be evicted, and the lock is free when it is gone' => sub {
	my $token = $session->query_safe("SELECT token FROM zk_lock_queue('simple')");
	is($session->query_safe("SELECT zk_evict('above/it', '$token')"), 'f', 'zk_evict() of a lock below does not remove the znode');
	is($session->query_safe("SELECT zk_evict('simple', '$token')"), 't', 'zk_evict() of that lock removes the znode');
	like($session->query("SELECT zk_lock('simple')"), qr/^\d+$/, 'the lock is granted when the znode is gone');
	$other->delete(lock_path('above'));
	like($session->query("SELECT zk_lock('above/it')"), qr/^\d+$/, 'a lock below is granted when the znode is deleted');
	$session->query_safe("SELECT zk_unlock('simple'), zk_unlock('above/it')");
};

# Not of a lock, but of what zklock has besides.
subtest 'a znode in the way of requests, records or leases fails the call' => sub {
	my $holder = background($node, holds => 'asked');
	foreach my $case ([ '.release' => "zk_request_release('asked')" ], [ '.once' => "zk_run_once('job', '1')" ],
		[ '.leases' => "zk_try_lease('leased', 'app', '60s')" ])
	{
		my ($name, $call) = @$case;
		my $path = lock_path($name);
		# An administrator may have to delete what is there.
		eval { $other->delete_recursive($path) };
		make($path);
		assert_query($session, "SELECT $call", '55000', "$name: $call");
		like($session->error, qr/znode "\Q$path\E" is in the way\nDETAIL:  It belongs to session $owner/, 'is told');
		$other->delete($path);
		$session->query_safe("SELECT $call");
	}
	$holder->quit;
};

subtest 'an ephemeral znode as the root fails all locks' => sub {
	make('/ephemeral');
	my $elsewhere = background($node, 'zklock.root' => '/ephemeral');
	assert_query($elsewhere, "SELECT zk_lock('any')", '55000', 'a lock below an ephemeral root is refused');
	like($elsewhere->error, qr/znode "\/ephemeral" is in the way\nDETAIL:  It belongs to session $owner/, 'the error names the root and its session');
	like($elsewhere->query_safe("SELECT state, what FROM zk_check() WHERE item = 'writing'"),
		qr/^error\|no znode could be made in "\/ephemeral": /, 'zk_check() says that no znode can be made there');
	$elsewhere->quit;
};

is($session->query_safe("SELECT zk_is_held('mine')"), 't', 'a lock held before is still held');

done_testing();
