
# What an administrator may set, or get wrong: too many connections,
# credentials, a chroot, names instead of addresses, a dead server in the list.
# Each mistake must be told from the others by its message.

use strict;
use warnings;

use IO::Socket::INET;
use PostgreSQL::Test::Utils;
use Proxy;
use Test::More;
use Time::HiRes qw(time);
use ZkLockTest;
use ZooKeeper qw(free_port);

my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk, 'zklock.connect_timeout' => '2s');
my $client = $zk->client;

# A session with other settings.
sub session
{
	my (%setting) = @_;
	my $session = background($node);
	$session->query_safe("SET \"$_\" = '$setting{$_}'") foreach sort keys %setting;
	return $session;
}

subtest 'maxClientCnxns' => sub {
	my $small = ZooKeeper->new(config => { maxClientCnxns => 2 })->start;
	my @sessions =
	  map { session('zklock.servers' => $small->connect_string) } 1 .. 3;
	foreach my $number (1, 2)
	{
		# Four-letter words are connections, too.
		poll_until
		{
			$sessions[ $number - 1 ]->query("SELECT zk_try_lock('limit/$number')") eq 't';
		}
		'a connection', 20;
	}
	# At which point the server closes the connection, and what the client
	# library says to that, is by chance.
	$sessions[2]->query_safe("SET zklock.connect_timeout = '500ms'");
	foreach my $attempt (1 .. 6)
	{
		my $start = time;
		$sessions[2]->query("SELECT zk_lock('limit/3')");
		is($sessions[2]->sqlstate, '08001', 'one connection too many');
		cmp_ok(time - $start, '<', 5, 'is an error after connect_timeout');
		like($sessions[2]->error, qr/DETAIL:  .+\nHINT:  .*maxClientCnxns/,
			'and the hint names the setting');
	}
	$sessions[0]->quit;
	poll_until
	{
		$sessions[2]->query("SELECT zk_try_lock('limit/3')") eq 't';
	}
	'room for it', 20;
	pass('with room for it the same backend connects');
	$_->quit foreach @sessions;
	$small->stop;
};

subtest 'credentials' => sub {
	my $secret = 'zklock:s3cr3t-of-this-test';
	# Whoever makes a znode owns it, the root of all locks as well.
	$client->create_path(lock_path('shared'));
	my $session = session('zklock.auth' => "digest:$secret");
	like($session->query_safe("SELECT zk_lock('auth')"), qr/^\d+$/, 'they work');
	my ($path) = map { $_->[0] } $zk->ephemerals(lock_path('auth') . '/');
	ok($path, 'there is a node');
	like($client->get($path), qr/"client":"zklock"/, 'everybody may read it');
	eval { $client->set($path, 'mine'); };
	like($@, qr/NoAuth/, 'nobody else may change it');
	my $friend = $zk->client;
	$friend->add_auth('digest', $secret);
	is(eval { $friend->set($path, $client->get($path) . ''); 1 }, 1, 'but who has the secret');
	$friend->close;

	# As everybody may read: who is here can be seen without the secret.
	my $open = session();
	is( $open->query_safe("SELECT state, client FROM zk_lock_queue('auth')"),
		'held|zklock',
		'a session without credentials sees the queue');
	$open->query("SELECT zk_lock('auth')");
	is($open->sqlstate, '42501', 'and may not join it: the znode, too, has the ACL');
	my $same = session('zklock.auth' => "digest:$secret");
	$same->start_query("SELECT zk_lock('auth')");
	wait_for_queue($zk, lock_path('auth'), 2);
	$session->query_safe("SELECT zk_unlock('auth')");
	$same->wait_result;
	is($same->sqlstate, '00000', 'a session with the same credentials waits in it');
	$same->quit;
	assert_no_nodes($zk, lock_path('auth'), 'nothing left');

	# A znode that an administrator made, open to all.
	$session->query_safe("SELECT zk_lock('shared')");
	$open->start_query("SELECT zk_lock('shared')");
	wait_for_queue($zk, lock_path('shared'), 2);
	$session->query_safe("SELECT zk_unlock('shared')");
	$open->wait_result;
	is($open->sqlstate, '00000', 'in a znode open to all they can wait for each other');
	$open->query_safe("SELECT zk_unlock('shared')");
	assert_no_nodes($zk, lock_path('shared'), 'nothing left');

	is($session->query_safe('SHOW zklock.auth'), '********', 'SHOW hides them');
	is($session->query_safe("SELECT count(*) FROM pg_settings WHERE name = 'zklock.auth'"),
		'0', 'pg_settings does not have them: it would show reset_val');
	$node->safe_psql('postgres', 'CREATE ROLE ordinary LOGIN');
	my $ordinary = background($node, user => 'ordinary');
	# Settings of a library exist once it is loaded.
	$ordinary->query_safe("SELECT zk_fencing_token('auth')");
	$ordinary->query('SHOW zklock.auth');
	is($ordinary->sqlstate, '42501', 'an ordinary user may not ask');
	$ordinary->query("SET zklock.auth = 'digest:a:b'");
	is($ordinary->sqlstate, '42501', 'nor set them');
	$session->query("SET zklock.auth = 'no-colon-but-secret'");
	unlike($session->error =~ s/^LINE.*//mr, qr/but-secret/,
		'a bad value is not repeated in the message');
	$_->quit foreach $session, $open, $ordinary;
};

# The log of the server shows every statement, and every setting that a reload
# changes. A file keeps the secret out of both.
subtest 'credentials in a file' => sub {
	my $secret = 'zklock:file-secret-of-this-test';
	my $file = $node->basedir . '/zookeeper.auth';
	append_to_file($file, "digest:$secret\n");
	my $offset = -s $node->logfile;
	$node->append_conf('postgresql.conf', "zklock.auth = '\@$file'");
	$node->append_conf('postgresql.conf', 'log_min_messages = debug1');
	$node->reload;
	$node->wait_for_log(qr/parameter "zklock.auth" changed/, $offset);

	my $session = session();
	like($session->query_safe("SELECT zk_lock('file')"), qr/^\d+$/, 'it works');
	my ($path) = map { $_->[0] } $zk->ephemerals(lock_path('file') . '/');
	eval { $client->set($path, 'mine'); };
	like($@, qr/NoAuth/, 'the node has its ACL');
	is($session->query_safe('SHOW zklock.auth'), "\@$file",
		'SHOW gives the file');
	$session->query_safe("SELECT zk_unlock('file')");
	# Errors of all kinds, on the look-out for the secret.
	$session->query("SET zklock.servers = '127.0.0.1:1'; SET zklock.connect_timeout = '200ms';
		SELECT zk_lock('file')");
	is($session->sqlstate, '08001', 'an error');
	unlike($session->error, qr/file-secret/, 'does not give it away');
	$session->quit;
	ok(!$node->log_contains(qr/file-secret/), 'nor does the log of PostgreSQL');
	unlike(slurp_file($zk->log_file), qr/file-secret/, 'nor that of ZooKeeper');

	my $broken = session('zklock.auth' => "\@$file.missing");
	$broken->query("SELECT zk_lock('file')");
	is($broken->sqlstate, '58P01', 'a file of credentials that is missing');
	like($broken->error, qr/could not open file ".*missing": No such file/,
		'a missing file is named');
	is($broken->sqlstate, '58P01', 'with PostgreSQL\'s SQLSTATE for that');
	append_to_file("$file.bad", "only-a-secret\n");
	$broken = session('zklock.auth' => "\@$file.bad");
	$broken->query("SELECT zk_lock('file')");
	is($broken->sqlstate, 'F0000', 'a bad one is an error');
	unlike($broken->error, qr/only-a-secret/, 'which does not show what is in it');
	$node->adjust_conf('postgresql.conf', 'zklock.auth', undef, 1);
	$node->adjust_conf('postgresql.conf', 'log_min_messages', undef, 1);
	$node->reload;
	assert_no_nodes($zk, lock_path('file'), 'nothing left');
};

subtest 'credentials that the ensemble refuses' => sub {
	# It must not try for ever.
	my $session = session('zklock.auth' => 'nosuchscheme:whatever',
		statement_timeout => '10s');
	$session->query("SELECT zk_lock('refused')");
	is($session->sqlstate, '28000', 'SQLSTATE');
	like($session->error, qr/ZooKeeper refused the credentials\nHINT:  .*zklock\.auth/,
		'message');
	$session->query_safe('RESET zklock.auth');
	like($session->query("SELECT zk_lock('refused')"), qr/^\d+$/,
		'the same backend works with better ones');
	$session->quit;
	assert_no_nodes($zk, lock_path('refused'), 'nothing left');
};

subtest 'an ACL that keeps us out' => sub {
	$client->create_path(lock_path('theirs'));
	$client->add_auth('digest', 'them:secret');
	$client->create(lock_path('theirs/only'), '',
		acl => [ [ 31, 'auth', '' ], [ 1, 'world', 'anyone' ] ]);
	my $session = session();
	$session->query("SELECT zk_lock('theirs/only')");
	is($session->sqlstate, '42501', 'SQLSTATE');
	like($session->error, qr/DETAIL:  .*theirs\/only.*\nHINT:  .*ACL/, 'message');
	is($session->query_safe("SELECT zk_try_lock('ours')"), 't',
		'the session goes on');
	$session->quit;
};

subtest 'chroot' => sub {
	my $session = session('zklock.servers' => $zk->connect_string . '/prod/a',
		'zklock.root' => '/locks');
	like($session->query_safe("SELECT zk_lock('chrooted')"), qr/^\d+$/,
		'a chroot that does not exist yet is made');
	my ($path) = map { $_->[0] } $zk->ephemerals('/prod/a/locks/chrooted/');
	ok($path, 'the node is below it');
	is($session->query_safe("SELECT zk_is_held('chrooted')"), 't', 'held');
	is($session->query_safe('SELECT count(*) FROM zk_lock_queue(\'chrooted\')'),
		1, 'queue');
	my $same = session('zklock.root' => '/prod/a/locks');
	is($same->query_safe("SELECT zk_try_lock('chrooted')"), 'f',
		'it is the same lock as by its full path');
	$session->query_safe("SELECT zk_unlock('chrooted')");
	assert_no_nodes($zk, '/prod/a/locks/chrooted', 'nothing left');
	$_->quit foreach $session, $same;
};

# Servers without a "host:port" that is known to work.
my ($dead, $port) = (free_port(), $zk->port);
my %servers = (
	'a name' => "localhost:$port",
	'a dead server first' => "127.0.0.1:$dead,127.0.0.1:$port",
	'a dead server last' => "127.0.0.1:$port,127.0.0.1:$dead",
	'blanks' => " 127.0.0.1:$port , 127.0.0.1:$dead ",
	'a name that does not exist, and one that does' =>
	  "no-such-host.invalid:$port,localhost:$port");
foreach my $what (sort keys %servers)
{
	subtest "servers: $what" => sub {
		# Which one is tried first is random.
		foreach my $attempt (1 .. 5)
		{
			my $session = session('zklock.servers' => $servers{$what});
			my $start = time;
			$session->query("SELECT zk_lock('servers')");
			is($session->sqlstate, '00000', "attempt $attempt works");
			cmp_ok(time - $start, '<', 2, 'within connect_timeout');
			$session->quit;
		}
		assert_no_nodes($zk, lock_path('servers'), 'nothing left');
	};
}

# The connection breaks, and the dead server is as likely a choice as the other.
subtest 'reconnects with a dead server in the list' => sub {
	my $proxy = Proxy->new($zk->connect_string);
	my $session = session('zklock.session_timeout' => '10s',
		'zklock.servers' => "127.0.0.1:$dead," . $proxy->address);
	$session->query_safe("SELECT zk_lock('reconnect')");
	my $id = $session->query_safe('SELECT session_id FROM zk_session');
	foreach my $round (1 .. 3)
	{
		$proxy->reset_connections;
		is($session->query("SELECT zk_is_held('reconnect')"), 't', 'held');
	}
	is($session->query_safe('SELECT session_id FROM zk_session'), $id,
		'the session is the same');
	$session->quit;
	assert_no_nodes($zk, lock_path('reconnect'), 'nothing left');
};

my %bad = (
	'no server' => [ '', '55000', qr/servers are not configured.*HINT:  Set it/s ],
	'an unknown name' => [
		'no-such-host.invalid:2181', '08001',
		qr/could not resolve the ZooKeeper servers\nDETAIL:  .*no-such-host\.invalid.*\nHINT:  .*zklock\.servers/
	],
	'nobody listens' => [
		"127.0.0.1:$dead", '08001',
		qr/could not connect.*\nDETAIL:  .*refused.*\nHINT:  Check that ZooKeeper is running/
	]);
foreach my $what (sort keys %bad)
{
	my ($servers, $sqlstate, $message) = @{ $bad{$what} };
	subtest "servers: $what" => sub {
		my $session = session('zklock.servers' => $servers,
			'zklock.connect_timeout' => '500ms');
		$session->query("SELECT zk_lock('bad')");
		is($session->sqlstate, $sqlstate, 'SQLSTATE');
		like($session->error, $message, 'message');
		$session->query_safe('RESET zklock.servers');
		is($session->query("SELECT zk_try_lock('bad')"), 't',
			'the same backend works once they are right');
		$session->quit;
		assert_no_nodes($zk, lock_path('bad'), 'nothing left');
	};
}

# A port on which something else answers.
subtest 'servers: PostgreSQL' => sub {
	my $other = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 5)
	  or die $!;
	my $pid = fork // die $!;
	if ($pid == 0)
	{
		# Greets like an SSH server, and listens no more.
		while (my $connection = $other->accept)
		{
			syswrite $connection, "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n" x 3;
		}
		POSIX::_exit(0);
	}
	my $session = session('zklock.servers' => '127.0.0.1:' . $other->sockport);
	my $start = time;
	$session->query("SELECT zk_lock('other')");
	like($session->sqlstate, qr/^08(P01|001)$/, 'SQLSTATE');
	cmp_ok(time - $start, '<', 4, 'within connect_timeout');
	kill 'KILL', $pid;
	waitpid $pid, 0;
	$session->query_safe('RESET zklock.servers');
	is($session->query("SELECT zk_try_lock('other')"), 't',
		'the same backend works once they are right');
	$session->quit;
	assert_no_nodes($zk, lock_path('other'), 'nothing left');
};

subtest 'zklock.max_locks' => sub {
	my $session = session('zklock.max_locks' => 10);
	$session->query_safe("SELECT zk_lock('many/' || i) FROM generate_series(1, 10) i");
	$session->query("SELECT zk_lock('many/11')");
	is($session->sqlstate, '53400', 'SQLSTATE');
	like($session->query("SELECT zk_lock('many/10')"), qr/^\d+$/,
		'one that is held may be taken again');
	is(scalar(my @nodes = $zk->ephemerals(lock_path('many') . '/')), 10, '10 nodes');
	$session->query_safe('SELECT zk_unlock_all()');
	poll_until { !(my @nodes = $zk->ephemerals(lock_path('many') . '/')) }
	'nodes to go', 10;
	$session->quit;
};

$client->close;
ok(!$node->log_contains(qr/PANIC|TRAP|terminated by signal/),
	'the cluster did not crash');

done_testing();
