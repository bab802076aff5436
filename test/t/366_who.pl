
# zk_who() shows who has a lock and who waits, fits on a terminal, and shows a contender that is
# releasing as such. Tested with znodes of other clients on a real server.

use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $node = cluster('production-eu', $zk);
my $name = 'who';
my $path = lock_path($name);
# What our nodes are called whose set is a hand-over.
my $mark = node_prefix('handed over');

sub sql { return $node->safe_psql('postgres', $_[0]); }

sub states { return sql("SELECT string_agg(state, ', ' ORDER BY position) FROM zk_lock_queue('$name')"); }

subtest 'a contender that is handing over is shown as releasing' => sub {
	my $client = $zk->client;
	$client->create_path($path);
	my $leaving = $client->create("$path/$mark", '{"client":"zklock"}', ephemeral => 1, sequential => 1);
	is(states(), 'held', 'a contender is shown as holder');
	$client->set($leaving, '');
	is(states(), 'releasing', 'a contender with empty data is shown as releasing');
	is(sql("SELECT state, who FROM zk_who('$name')"), 'releasing|curator', 'zk_who() says so, too');
	$client->delete($leaving);
	$client->close;
	assert_no_nodes($zk, $path, 'nothing left');
};

subtest 'a persistent contender of another client is not taken for a hold' => sub {
	my $client = $zk->client;
	$client->create_path($path);
	my $stays = $client->create("$path/$mark", 'somebody else', sequential => 1);
	is(sql("SELECT who, location FROM zk_who('$name')"), 'somebody else|no session', "a persistent contender is shown as another client's");
	my $token = sql("SELECT token FROM zk_lock_queue('$name') WHERE session_id IS NULL AND client IS NULL");
	my $session = background($node);
	is($session->query_safe("SELECT zk_release_hold('$name', $token)"), 'f', 'zk_release_hold() does not release it');
	like($session->error, qr/WARNING:  there is no permanent hold.*\nHINT:  .*Remove it with zk_evict\(\)/, 'the HINT says that zk_evict() removes it');
	is($session->query_safe("SELECT zk_evict('$name', $token)"), 't', 'zk_evict() removes it');
	$session->quit;
	ok(!$client->exists($stays), 'it is gone');
	$client->close;
	assert_no_nodes($zk, $path, 'nothing left');
};

subtest 'zk_who() fits into a hundred columns' => sub {
	sql('CREATE ROLE reporting_application_owner LOGIN SUPERUSER');
	sql('CREATE DATABASE warehouse_reporting');
	$node->safe_psql('warehouse_reporting', 'CREATE EXTENSION zklock');
	my $holder = background($node, database => 'warehouse_reporting', user => 'reporting_application_owner');
	$holder->query_safe("SELECT zk_lock('$name')");
	my $client = $zk->client;
	$client->create("$path/_c_6ba7b810-9dad-11d1-80b4-00c04fd430c8-lock-", "10.11.12.13 and more of that\e[2J",
		ephemeral => 1, sequential => 1);
	my $waiter = background($node);
	start_in_queue($waiter, "SELECT zk_hold('$name', 'new disks, and a reason that is long')", $zk, $path, 3);
	my ($rc, $table) = $node->psql('postgres', "\\pset format aligned\n\\pset tuples_only off\nSET timezone = 'Asia/Kolkata'; SELECT * FROM zk_who('$name')");
	note($table);
	my @lines = grep { /\|/ } split /\n/, $table;
	is(scalar @lines, 4, 'a head and three contenders');
	cmp_ok(length, '<=', 100, $_) foreach @lines;
	like($lines[1], qr/ 1 \| held +\| reporting_ap \d+ +\| production-eu\/warehouse_ ?\| /, 'the holder');
	like($lines[2], qr/ 2 \| waiting \| 10\.11\.12\.13 and more +\| 0x[0-9a-f]+ +\| /, 'a client of another make');
	$client->close;
	$holder->quit;
	assert_ends($waiter, '00000', 'granted');
	like(sql("SELECT who, location FROM zk_who('$name')"), qr/^\w+ \d+\|hold: new disks, and a r$/, 'a hold');
	sql("SELECT zk_release_hold('$name', token) FROM zk_lock_queue('$name')");
	assert_leave_nothing($zk, $path, $waiter);
};

my ($rc, $out, $err) = $node->psql('postgres', 'SELECT * FROM zk_who(NULL)');
like($err, qr/lock name must not be null/, 'NULL is an error');

done_testing();
