
# zk_all_locks() lists the locks in use with the number of their holders and waiters: those of
# other clients, of hundreds of names, across a lost connection, and within timeouts. Tested with
# znodes like other clients make, and a proxy.

use Proxy;
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $proxy = Proxy->new($zk->connect_string);
my $node = cluster('berlin', $zk, servers => $proxy->address);
my $session = background($node);
my $foreign = $zk->client;
my $count = 0;

# A lock's znode with children of those names.
sub make ($lock, @children)
{
	$foreign->create_path(lock_path($lock));
	$foreign->create(lock_path("$lock/$_"), '') foreach @children;
	return;
}

sub curator ($sequence, $what = undef, $group = undef)
{
	return sprintf '_c_a4b0c6d2-7813-%s-a1c0-%012d-%slock-%010d', $group || '4a12', ++$count,
	  $what || '', $sequence;
}

sub census ($prefix) { return $session->query_safe("SELECT * FROM zk_all_locks('$prefix')"); }

subtest 'zk_all_locks() counts holders and waiters of every client' => sub {
	make('count/exclusive', map { curator($_) } 1 .. 3);
	make('count/kazoo', map { sprintf '%032x__lock__%010d', ++$count, $_ } 4, 5);
	make('count/readers',
		curator(1, 'shared-'), curator(2, 'shared-'), curator(3), curator(4, 'shared-'));
	make('count/permits', map { curator($_, 'permits-3-') } 1 .. 5);
	make('count/mixed', curator(1, 'permits-3-'), curator(2), curator(3, 'permits-3-'));
	make('count/nobody', 'config', 'x');
	make('count/hold', curator(7, '', '8a12'), curator(8));
	is(census('count'), join("\n",
			'count/exclusive|1|2', 'count/hold|1|1', 'count/kazoo|1|1', 'count/mixed|1|2',
			'count/permits|3|2', 'count/readers|2|2'),
		'holders and waiters are counted by the names of their nodes');
	is($session->query_safe("SELECT name, holder_count, waiter_count
			FROM zk_all_locks('count') c
			WHERE holder_count <> (SELECT count(*) FROM zk_lock_queue(c.name) WHERE state = 'held')"),
		'', 'the counts agree with zk_lock_queue()');
};

subtest 'zk_all_locks() shows names in the encoding of the database' => sub {
	make("name/\xc3\xa4/b c", curator(1));
	make('name/job.once', curator(1));
	make('name', curator(1));
	is(census('name'), "name|1|0\nname/\xc3\xa4/b c|1|0", 'a name above others, and no records');
	my $latin = $node->connstr('latin');
	$node->safe_psql('postgres',
		"CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'");
	$node->safe_psql('latin', 'CREATE EXTENSION zklock');
	make("name/\xe2\x82\xac", curator(1));
	is($node->safe_psql('latin', "SELECT convert_to(name, 'UTF8') FROM zk_all_locks('name')
			WHERE name <> 'name'"),
		join("\n", map { '\\x' . unpack 'H*', $_ } "name/\xc3\xa4/b c", 'name/<U+20AC>'),
		'names are shown in the encoding of the database');
};

subtest 'zk_all_locks() lists hundreds of locks' => sub {
	foreach my $i (1 .. 40)
	{
		make("many/$i", curator(1));
		make("many/$i/$_", curator(1), curator(2)) foreach 1 .. 10;
	}
	is($session->query_safe(
			"SELECT count(*), sum(holder_count), sum(waiter_count), count(DISTINCT name) FROM zk_all_locks('many')"),
		'440|440|400|440', 'all locks are listed');
	is($session->query_safe('SELECT count(*) > 440 FROM zk_all_locks()'), 't', 'all locks below the root are listed');
	is($session->query_safe('SELECT pending_requests FROM zk_session'), 0, 'nothing is left under way');
};

subtest 'zk_all_locks() lists all locks though its connection is lost' => sub {
	$proxy->cut('replies');
	start_to_wait($session, "SELECT count(*) FROM zk_all_locks('many')");
	$proxy->come_back;
	is($session->wait_result, 440, 'all locks are listed after the lost replies');
	$session->query_safe("SELECT zk_disconnect()");
	$session->query_safe("SET zklock.session_timeout = '2s'; SELECT zk_all_locks('name')");
	my $id = session_id_of($session);
	$proxy->trap(8, 200, 'requests');    # a list in the middle
	start_to_wait($session, "SELECT count(*) FROM zk_all_locks('many')");
	poll_until { $zk->four_letter_word('dump') !~ /\Q$id\E\b/ } 'the session to end', 30;
	$proxy->come_back;
	is($session->wait_result, 440, 'all locks are listed when the session was lost in between');
};

subtest 'zk_all_locks() ends by lock_timeout and statement_timeout' => sub {
	$proxy->cut;
	assert_query($session, "SET lock_timeout = '300ms'; SELECT zk_all_locks('many')", '55P03', 'lock_timeout');
	$session->query("RESET lock_timeout; SET statement_timeout = '300ms'; SELECT zk_all_locks('many')");
	is($session->sqlstate, '57014', 'statement_timeout');
	$proxy->come_back;
	is($session->query_safe("RESET statement_timeout; SELECT count(*) FROM zk_all_locks('many')"),
		440, 'the next call lists all locks');
};

subtest 'zk_all_locks() warns of znodes that it may not list' => sub {
	my $owner = $zk->client;
	$owner->add_auth('digest', 'me:secret');
	$foreign->create_path(lock_path('secret'));
	$owner->create(lock_path('secret/closed'), '', acl => [ [ 31, 'auth', '' ] ]);
	make('secret/open', curator(1));
	is(census('secret'), 'secret/open|1|0', 'the closed znode is left out');
	like($session->error, qr/WARNING:  could not list the contenders of 1 znode\n/, 'a warning tells of the znode that cannot be listed');
};

subtest "zk_all_locks() below the root of ZooKeeper leaves out ZooKeeper's own znodes" => sub {
	$session->query_safe("SET zklock.root = '/'");
	is($session->query_safe("SELECT count(*) FROM zk_all_locks() WHERE name LIKE 'zookeeper%'"),
		0, "ZooKeeper's own znodes are not listed");
	is($session->query_safe("SELECT count(*) FROM zk_all_locks() WHERE name LIKE '%/count/exclusive'"),
		1, 'other locks are listed');
	is($session->query_safe("SET zklock.root = '/unknown'; SELECT count(*) FROM zk_all_locks()"),
		0, 'an unknown root has no locks');
};

done_testing();
