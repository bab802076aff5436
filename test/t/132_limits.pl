
# Mistakes in the settings and limits of the ensemble have messages of their own: too many
# connections, credentials, an ACL, a chroot, names instead of addresses, a dead server in the
# list, something that is no ZooKeeper. Tested with real servers, a proxy, and fake servers.

use FakeServer;
use Proxy;
use Refusals;
use ZkLockTest;
use ZooKeeper qw(free_port);

my $zk = ZooKeeper->new->start;
my $proxy = Proxy->new($zk->connect_string);
my $table = Refusals->new($zk, $proxy);
my $node = cluster('berlin', $zk, 'zklock.connect_timeout' => '20s');
my $client = $zk->client;

# At which point the server closes the connection, and what the client library says to
# that, is by chance.
my $small = ZooKeeper->new(config => { maxClientCnxns => 2 })->start;
my @small = ('zklock.servers' => $small->connect_string);
$table->run('a connection beyond maxClientCnxns is refused with a HINT',
	{ first => background($node, @small), second => background($node, @small),
		third => background($node, @small, 'zklock.connect_timeout' => '500ms') },
	# Four-letter words are connections, too.
	[ 'first becomes' => "zk_try_lock('limit/1')", 't' ],
	[ 'second becomes' => "zk_try_lock('limit/2')", 't' ],
	(map { [ third => "zk_lock('limit/3')", '!08001', qr/DETAIL:  .+\nHINT:  .*maxClientCnxns/, 20 ] } 1 .. 6),
	sub { my (%session) = @_; $session{first}->quit; },
	# With room for it the same backend connects.
	[ 'third becomes' => "zk_try_lock('limit/3')", 't' ]);
$small->stop;

# What a stranger may do with the only node of a lock.
sub look_at_node ($name)
{
	my ($path) = map { $_->[0] } $zk->ephemerals(lock_path("$name/"));
	like($client->get($path), qr/"client":"zklock"/, 'everybody may read it');
	eval { $client->set($path, 'mine') };
	return like($@, qr/NoAuth/, 'nobody else may change it');
}

# The root becomes that of these credentials, or everybody's; before it was that of the former ones.
my $former;
sub give_root ($credentials)
{
	my $root = lock_path('') =~ s{/$}{}r;
	my $owner = $zk->client;
	$owner->add_auth('digest', $former) if $former;
	$owner->set_acl($root, [ [ 31, 'world', 'anyone' ] ]);
	$owner = $zk->client;
	$owner->add_auth('digest', $credentials) if $credentials;
	$owner->set_acl($root, [ [ 31, 'auth', '' ], [ 1, 'world', 'anyone' ] ]) if $credentials;
	$former = $credentials;
	return;
}

my @secret = ('zklock.auth' => 'digest:zklock:s3cr3t-of-this-test');
# One lock whose znode is open to all.
$client->create_path(lock_path('shared'));
give_root('zklock:s3cr3t-of-this-test');
$node->safe_psql('postgres', 'CREATE ROLE ordinary LOGIN');
$table->run('locks with credentials can be read by all and taken by those who have them',
	{ session => background($node, @secret), fellow => background($node, @secret), open => background($node),
		ordinary => background($node, user => 'ordinary') },
	[ session => "zk_lock('auth')", qr/^\d+$/ ],
	[ nodes => auth => 1 ],
	sub { look_at_node('auth'); },
	# Who is here can be seen without the secret. To join, the znode has the ACL.
	[ open => "SELECT state, client FROM zk_lock_queue('auth')", 'held|zklock' ],
	[ open => "zk_lock('auth')", '!42501' ],
	[ 'fellow starts' => "zk_lock('auth')" ], [ queue => auth => 2 ],
	[ session => "zk_unlock('auth')", 't' ], [ 'fellow ends' ], [ fellow => 'SELECT zk_unlock_all()' ],
	[ gone => 'auth' ],
	[ session => "zk_lock('shared')", '!42501', qr/can be changed by others/ ],
	[ gone => 'shared' ],
	[ session => 'SHOW zklock.auth', '********' ],
	# It would show reset_val.
	[ session => "SELECT count(*) FROM pg_settings WHERE name = 'zklock.auth'", 0 ],
	# Settings of a library exist once it is loaded.
	[ ordinary => "zk_fencing_token('auth')" ],
	[ ordinary => 'SHOW zklock.auth', '!42501' ],
	sub (%session) {
		$session{session}->query("ALTER SYSTEM SET zklock.auth = 'no-colon-but-secret'");
		like($session{session}->error, qr/invalid value for parameter "zklock.auth"\nHINT:  Use scheme:credentials/, 'a bad value is refused');
		unlike($session{session}->error =~ s/^LINE.*//mr, qr/but-secret/, 'a bad value is not repeated');
	});

give_root('zklock:file-secret-of-this-test');
# The log of the server shows every statement, and every setting that a reload
# changes. A file keeps the secret out of both.
my $file = $node->basedir . '/zookeeper.auth';
append_to_file($file, "digest:zklock:file-secret-of-this-test\n");
append_to_file("$file.bad", "only-a-secret\n");
my $offset = -s $node->logfile;
$node->append_conf('postgresql.conf', "zklock.auth = '\@$file'\nlog_min_messages = debug1");
$node->reload;
$node->wait_for_log(qr/parameter "zklock.auth" changed/, $offset);
$table->run('credentials in a file work and appear in no message and no log', { session => background($node) },
	[ session => "zk_lock('file')", qr/^\d+$/ ],
	[ nodes => file => 1 ],
	sub { look_at_node('file'); },
	[ session => 'SHOW zklock.auth', "\@$file" ],
	[ session => "zk_unlock('file')", 't' ],
	sub {
		ok(!$node->log_contains(qr/file-secret/), "PostgreSQL's log does not have the secret");
		unlike(slurp_file($zk->log_file), qr/file-secret/, "ZooKeeper's log does not have the secret");
	},
	# Errors of all kinds, on the look-out for the secret.
	[ session => "ALTER SYSTEM SET zklock.auth = '\@$file.missing'", '!22023', qr/DETAIL:  File ".*missing" could not be read: No such file/ ],
	[ session => "ALTER SYSTEM SET zklock.auth = '\@$file.bad'", '!22023', qr/DETAIL:  File ".*bad" does not hold a line/, \qr/only-a-secret/ ],
	[ gone => 'file' ]);
$node->adjust_conf('postgresql.conf', $_, undef, 1) foreach qw(zklock.auth log_min_messages);
$node->reload;

give_root(undef);
# It must not try for ever.
$table->run('credentials that the ensemble refuses fail the call with 28000',
	{ session => background($node, 'zklock.auth' => 'nosuchscheme:whatever', statement_timeout => '60s') },
	[ session => "zk_lock('refused')", '!28000', qr/ZooKeeper refused the credentials\nHINT:  .*zklock\.auth/ ],
	[ 'quit' ], [ gone => 'refused' ]);

$client->create_path(lock_path('theirs'));
$client->add_auth('digest', 'them:secret');
$client->create(lock_path('theirs/only'), '', acl => [ [ 31, 'auth', '' ], [ 1, 'world', 'anyone' ] ]);
$table->run('an ACL that gives the session no rights fails the call with 42501', { session => background($node) },
	[ session => "zk_lock('theirs/only')", '!42501', qr/DETAIL:  .*theirs\/only.*\nHINT:  .*ACL/ ],
	[ session => "zk_try_lock('ours')", 't' ]);

# It is the same lock as by its full path.
$table->run('a chroot that does not exist is made with the first lock',
	{ session => background($node, 'zklock.servers' => $zk->connect_string . '/prod/a', 'zklock.root' => '/locks'),
		fellow => background($node, 'zklock.root' => '/prod/a/locks') },
	[ session => "zk_lock('chrooted')", qr/^\d+$/ ],
	sub { wait_for_queue($zk, '/prod/a/locks/chrooted', 1); },
	[ session => "zk_is_held('chrooted')", 't' ],
	[ session => "count(*) FROM zk_lock_queue('chrooted')", 1 ],
	[ fellow => "zk_try_lock('chrooted')", 'f' ],
	[ session => "zk_unlock('chrooted')", 't' ],
	sub { assert_no_nodes($zk, '/prod/a/locks/chrooted', 'nothing left'); });

$table->run("with the root / and without a chroot no name leads to what is ZooKeeper's own",
	{ session => background($node, 'zklock.root' => '/') },
	(map { [ session => "zk_lock('$_')", '!42602' ] } 'zookeeper', 'zookeeper/quota'));

# A session of this cluster, or of one beside it, where the servers are these.
sub session_at ($servers, @option)
{
	return background($node, 'zklock.servers' => '', @option) if $servers eq '';
	reconfigure($node, 'zklock.servers' => $servers);
	return background($node, @option);
}

# Servers without a "host:port" that is known to work. Which one is tried first is random.
my ($dead, $port) = (free_port(), $zk->port);
foreach my $servers ("localhost:$port", "127.0.0.1:$dead,127.0.0.1:$port", "127.0.0.1:$port,127.0.0.1:$dead",
	" 127.0.0.1:$port , 127.0.0.1:$dead ", "no-such-host.invalid:$port,localhost:$port")
{
	$table->run("a lock works with zklock.servers = '$servers'", { map { $_ => session_at($servers) } 1 .. 5 },
		(map { ([ $_ => "zk_lock('servers')" ], [ $_ => "zk_unlock('servers')", 't' ]) } 1 .. 5),
		[ gone => 'servers' ]);
}

# The connection breaks, and the dead server is as likely a choice as the other.
my $reset = sub { $proxy->reset_connections; };
$table->run('a session reconnects with a dead server in the list',
	{ session => session_at("127.0.0.1:$dead," . $proxy->address, 'zklock.session_timeout' => '10s') },
	[ session => "zk_lock('reconnect')" ],
	[ 'session notes' => 'SELECT session_id FROM zk_session' ],
	(map { ($reset, [ session => "zk_is_held('reconnect')", 't' ]) } 1 .. 3),
	[ 'session repeats' => 'SELECT session_id FROM zk_session' ],
	[ 'quit' ], [ gone => 'reconnect' ]);

# Something else answers, at once or to what it is sent.
my $ssh = FakeServer->new(sub { syswrite $_[0], "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n" x 3; return 0; });
my $http = FakeServer->answering(
	"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain\r\n\r\nno\r\n");
# It is up and hangs up, which the library calls "Host is down".
my $closing = FakeServer->answering('');
# It grants a session, hangs up on what is asked, and knows nothing of that session then.
my $forgetful = FakeServer->new(sub ($connection) {
	# The client sends the length of its request by itself.
	my $hello = '';
	while (length $hello < 4 + 45)
	{
		sysread $connection, $hello, 1000, length $hello or return 0;
	}
	my $id = unpack 'x20 q>', $hello;
	syswrite $connection, pack 'N N N q> N a16 C', 37, 0, $id ? 0 : 4000, $id ? 0 : 4711, 16, '', 0;
	return sysread($connection, $hello, 1000) && 0;
});

foreach my $bad (
	[ '', '!55000', qr/servers are not configured.*HINT:  Set it/s ],
	[ 'no-such-host.invalid:2181', '!08001',
		qr/could not resolve the ZooKeeper servers\nDETAIL:  .*no-such-host\.invalid.*\nHINT:  .*zklock\.servers/ ],
	[ "127.0.0.1:$dead", '!08001',
		qr/could not connect.*\nDETAIL:  Server "127\.0\.0\.1:$dead" cannot be reached: Connection refused\.\nHINT:  Check that ZooKeeper is running.*zk_check\(\)/ ],
	[ $closing, '!08001',
		qr/could not connect.*\nDETAIL:  Server "$closing" closed the connection\.\nHINT:  .*quorum.*zk_check\(\)/,
		\qr/errno|retcode|Host is down/, 20 ],
	[ $forgetful, '!08006', qr/ZooKeeper sessions are lost as soon as they are granted\nDETAIL:  \d+ in a row/, 20 ],
	[ $ssh, '!08P01|08001', 20 ],
	[ $http, '!08P01', qr/DETAIL:  What answers at "$http" is not ZooKeeper\.\nHINT:  Correct .*zk_check\(\)/, 20 ])
{
	my ($servers, @expected) = @$bad;
	$table->run("a lock fails where zklock.servers = '$servers' leads to no ZooKeeper",
		# That those are lost is told once several were.
		{ session => session_at($servers, 'zklock.connect_timeout' => $servers eq $forgetful ? '15s' : '3s') },
		[ session => "zk_lock('bad')", @expected ],
		[ 'quit' ], [ gone => 'bad' ]);
}

$table->run('calls without servers say so, where a lock is concerned', { session => session_at('') },
	(map { [ session => "SELECT $_", '!55000', qr/servers are not configured.*HINT:  Set it/s ] } "zk_lock('none')", "zk_try_lock('none')",
		"count(*) FROM zk_lock_queue('none')"),
	[ session => "SELECT zk_is_held('none'), zk_fencing_token('none'), zk_unlock_all(), (SELECT state FROM zk_session)", 'f|||none' ]);

# A bound that comes before connect_timeout ends the wait too. A try raises: that it has asked
# nobody must not look like a busy lock.
$table->run('calls end by each bound where nobody listens',
	{ session => session_at("127.0.0.1:$dead", 'zklock.connect_timeout' => '300ms') },
	(map { [ session => "SELECT $_", '!08001', qr/could not connect to ZooKeeper within 300 ms\nDETAIL:  Server "127.0.0.1:$dead" cannot be reached: Connection refused\.\n.*CONTEXT:  while waiting for ZooKeeper lock "none"/s ] }
		"zk_lock('none')", "zk_lock_shared('none', '1 minute')", "zk_try_lock('none', '1 minute')"),
	[ session => "SELECT zk_lock('none', '100 ms')", '!55P03', qr/could not obtain lock "none" within 100 ms/ ],
	[ session => "SELECT zk_try_lock('none', '100 ms')", '!08001', qr/could not ask ZooKeeper for lock "none" in the time given/ ],
	[ session => "SET lock_timeout = '100ms'" ],
	[ session => "SELECT zk_lock('none')", '!55P03', qr/canceling statement due to lock timeout/ ],
	[ session => "SELECT zk_try_lock('none', '1 minute')", '!08001', qr/could not ask ZooKeeper for lock "none" in the time given/ ],
	[ session => "RESET lock_timeout; SET statement_timeout = '100ms'" ],
	[ session => "SELECT zk_lock('none')", '!57014', qr/canceling statement due to statement timeout\n.*CONTEXT:  while waiting for ZooKeeper lock "none"/s ],
	[ session => 'RESET statement_timeout' ],
	[ session => 'SELECT count(*) FROM zk_session_locks', 0 ]);
reconfigure($node, 'zklock.servers' => undef);

subtest 'only sessions that are lost as soon as they are granted are counted as such' => sub {
	my $session = background($node, route => $proxy->address);
	my $granted = sub { $node->safe_psql('postgres', "SELECT sessions FROM zk_stat WHERE datname = 'postgres'") };
	# These have lasted, by the zklock.connect_timeout that is set when their loss is noticed.
	foreach (1 .. 3)
	{
		$session->query_safe("SET zklock.connect_timeout = '1min'; SELECT zk_try_lock('lasts'), zk_unlock('lasts')");
		my $program = $session->query_safe('SELECT program_pid FROM zk_session');
		$session->query_safe("SET zklock.connect_timeout = '100ms'; SELECT pg_sleep(0.2)");
		kill 'KILL', $program;
		poll_until { !session_programs($session->pid) } 'it to be reaped', 30;
		$session->query("SELECT count(*) FROM zk_lock_queue('lasts')");    # which has no time to connect
	}
	$session->query_safe("SET zklock.connect_timeout = '1min'; SELECT zk_disconnect()");
	my $before = $granted->();
	$session->route("$forgetful");
	$session->query_safe("SET zklock.connect_timeout = '3s'");
	assert_query($session, "SELECT zk_lock('bad')", '08006', 'a server that forgets sessions');
	my ($number) = $session->error =~ /DETAIL:  (\d+) in a row/;
	cmp_ok($number, '<=', $granted->() - $before, 'no more are counted than were granted');
};

# A server could not read the end of a session whose znodes have more than it takes for
# a transaction (ZOOKEEPER-4306).
subtest 'locks with long names are refused when their znodes would be too much for one session' => sub {
	my $session = background($node, 'zklock.max_locks' => 10000);
	assert_query($session, "DO \$\$ BEGIN FOR i IN 1..1200 LOOP
			PERFORM zk_lock('long/' || repeat('x', 490) || i); END LOOP; END \$\$",
		'53400', 'are refused when there are too many for a session');
	like($session->error, qr/DETAIL:  This session holds \d+, and the paths of their queue nodes would have 52\d{4} bytes in total\. The limit is 524288 bytes/,
		'the DETAIL says how much there is');
	like($session->error, qr/HINT:  Release some of them, or use shorter names/, 'the HINT says what to do');
	my $held = $session->query_safe('SELECT count(*) FROM zk_session_locks');
	cmp_ok($held, '>', 400, 'many can be held');
	$session->query_safe("SELECT zk_unlock('long/' || repeat('x', 490) || 1)");
	like($session->query("SELECT zk_lock('long/one')"), qr/^\d+$/, 'one more lock is granted after a release');
	$session->quit;
	poll_until { !$zk->ephemerals(lock_path('long/')) } 'nodes to go with the session', 60;
};

subtest 'two million names and names of 20 MB are refused with a short message' => sub {
	my $session = background($node);
	my $before = -s $node->logfile;
	assert_query($session, "SELECT zk_lock_set(array_fill('a'::text, ARRAY[2000000]))", '54000', 'two million names');
	like($session->error, qr/too many lock names in one call\nDETAIL:  There are 2000000, and one call may have 20000/,
		'the message says how many names there are');
	foreach my $call ("zk_lock(repeat('x', 20000000))", "zk_lock_set(ARRAY[repeat('x', 20000000)])",
		"zk_run_once('job', repeat('x', 20000000))", "zk_lock_set(ARRAY['a'], NULL, ARRAY[repeat('x', 20000000)])")
	{
		$session->query("SELECT $call");
		like($session->sqlstate, qr/^(42602|22023)$/, "$call is refused");
		cmp_ok(length $session->error, '<', 2000, 'the message is short');
	}
	cmp_ok((-s $node->logfile) - $before, '<', 20000, 'the log stays short, too');
};

done_testing();
