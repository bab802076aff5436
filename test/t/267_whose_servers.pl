# Credentials (zklock.auth) go only to the servers that they belong to: a role that may set
# zklock.servers cannot have another role's secret sent to servers of its own. Tested with a
# proxy as such a server, which writes down all that it hears.

use Proxy;
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $directory = PostgreSQL::Test::Utils::tempdir();
my $heard = "$directory/heard";
append_to_file($heard, '');
my $proxy = Proxy->new($zk->connect_string, heard => sub { append_to_file($heard, $_[0]); });
my $own_servers = "zklock.servers = '" . $proxy->address . "'";
my %secret = map { $_ => "digest:$_:secret-of-$_" } qw(configuration file bob);
my $file = "$directory/file";
append_to_file($file, "$secret{file}\n");
chmod 0600, $file or die "could not chmod $file: $!";

# Everybody may make locks below that, whatever the credentials.
$zk->client->create_path(lock_path('of'));
my $node = cluster('berlin', $zk, 'zklock.auth' => $secret{configuration});
$node->safe_psql('postgres', <<"SQL");
CREATE ROLE admin LOGIN SUPERUSER;
CREATE ROLE app LOGIN;
CREATE ROLE bob LOGIN IN ROLE pg_monitor;
CREATE ROLE alice LOGIN;
CREATE DATABASE bobs OWNER bob;
SQL
$node->safe_psql('bobs', 'CREATE EXTENSION zklock');

# Whose secrets have arrived at the proxy since the last question?
my $heard_before = 0;
sub who_was_heard
{
	my $bytes = substr slurp_file($heard), $heard_before;
	$heard_before += length $bytes;
	my %whose = map { $_ => 1 } $bytes =~ /secret-of-(\w+)/g;
	return join ' ', sort { $a cmp $b } keys %whose;
}

my $count = 0;
sub lock_sql { $count++; return "zk_lock('of/$count')"; }

# A test: the lock is refused, and no secret has arrived.
sub assert_refused ($session, $what, @patterns)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	assert_query($session, 'SELECT ' . lock_sql(), '42501', "$what: refused");
	like($session->error, $_, 'the error says why')
	  foreach qr/the credentials for ZooKeeper are not sent to the servers in "zklock\.servers"/, @patterns;
	is(who_was_heard(), '', 'no secret was sent');
	return;
}

# A test: the lock is taken, and that secret was sent to the proxy, or "": none.
sub assert_sent ($session, $whose, $what, $query = 'SELECT ' . lock_sql())
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	assert_query($session, $query, '00000', "$what: allowed") or diag($session->error);
	is(who_was_heard(), $whose, 'with the secret of ' . ($whose || 'nobody'));
	$session->query_safe('SELECT zk_disconnect()');
	return;
}

# With these words of its own when it connects.
sub connect_with ($options, $user)
{
	local $ENV{PGOPTIONS} = $options;
	return background($node, user => $user);
}

subtest 'a superuser may send the configured credentials to any servers' => sub {
	my $session = background($node, user => 'admin', first => "SET $own_servers");
	assert_sent($session, 'configuration', 'sets the servers');
	$session->query_safe('RESET zklock.servers');
	assert_sent($session, '', 'resets them');

	# It is the same as if the servers were bob's.
	$node->safe_psql('postgres', 'GRANT SET ON PARAMETER zklock.servers TO bob');
	$session->query_safe("SET ROLE bob; SET $own_servers; RESET ROLE");
	assert_refused($session, 'as another role');
	$node->safe_psql('postgres', 'REVOKE SET ON PARAMETER zklock.servers FROM bob');
};

# Nobody else may set the servers.
subtest 'credentials of the configuration are not sent to servers stored for a role' => sub {
	$node->safe_psql('postgres', "ALTER ROLE app SET $own_servers");
	assert_refused(background($node, user => 'app'), 'without credentials',
		qr/DETAIL:  "zklock\.auth" is that of the configuration, and "zklock\.servers" is stored for a role or a database\.\nHINT/);
	$node->safe_psql('postgres', "ALTER ROLE app SET zklock.auth = '\@$file'");
	my $app = background($node, user => 'app');
	assert_sent($app, 'file', 'with credentials');
	$node->safe_psql('postgres', 'GRANT SET ON PARAMETER zklock.servers TO bob');
	assert_refused(background($node, user => 'app'), 'where others could have stored them',
		qr/DETAIL:  .* are stored for a role or a database, and roles that are not superusers may set the second one\.\nHINT:  .*revoke/);
	assert_sent($app, 'file', 'a session that has begun before');
};

$node->safe_psql('postgres', 'GRANT SET ON PARAMETER zklock.servers, zklock.auth TO bob, alice');

subtest 'a role that may set zklock.servers does not get the configured credentials sent there' => sub {
	my $bob = background($node, user => 'bob', first => "SET $own_servers");
	assert_refused($bob, 'in its session',
		qr/DETAIL:  "zklock\.auth" is that of the configuration, and "zklock\.servers" is set in this session by role "bob"\.\nHINT/);
	like($bob->query_safe(q(SELECT concat_ws('|', state, what) FROM zk_check(true) WHERE item = 'credentials')),
		qr/^error\|the credentials for ZooKeeper are not sent to the servers/, 'zk_check() says it');
	assert_refused(connect_with("-c " . $own_servers =~ s/[ ']//gr, 'bob'), 'when it connects');
	$bob->query_safe("RESET zklock.servers; BEGIN; SET $own_servers; ROLLBACK");
	assert_sent($bob, '', 'what was rolled back does not count');
	$bob->query_safe("SET zklock.servers = '" . $zk->connect_string . "/of_bob'");
	assert_sent($bob, '', 'another chroot of the same servers');

	# Its own credentials are its own affair.
	$bob->query_safe("SET $own_servers; SET zklock.auth = '$secret{bob}'");
	assert_sent($bob, 'bob', 'with credentials of its own');
	$bob->query_safe('RESET zklock.auth');
	assert_refused($bob, 'with no credentials of its own any more');

	# What it stores itself; and in its database for whoever connects there.
	$node->safe_psql('postgres', "ALTER ROLE bob SET $own_servers", extra_params => [ '-U', 'bob' ]);
	assert_refused(background($node, user => 'bob'), 'stored by itself');
	$node->safe_psql('postgres', 'ALTER ROLE bob RESET zklock.servers', extra_params => [ '-U', 'bob' ]);
	$node->safe_psql('bobs', "ALTER DATABASE bobs SET $own_servers", extra_params => [ '-U', 'bob' ]);
	assert_refused(background($node, user => 'admin', database => 'bobs'), "a superuser in that role's database");
};

subtest 'functions with settings of their own do not mix credentials and servers of two roles' => sub {
	my $define = sub ($name, $owner, $setting, $lock) {
		$node->safe_psql('postgres', "CREATE FUNCTION $name() RETURNS bigint LANGUAGE sql SECURITY DEFINER
			SET $setting AS \$\$ SELECT $lock \$\$; ALTER FUNCTION $name() OWNER TO $owner");
	};
	$define->('with_secret', 'admin', "zklock.auth = '\@$file'", lock_sql());
	$define->('of_alice', 'alice', $own_servers, lock_sql());
	$define->('of_admin', 'admin', $own_servers, lock_sql());
	my $bob = background($node, user => 'bob', first => "SET $own_servers");
	assert_query($bob, 'SELECT with_secret()', '42501', "a superuser's secret does not go to servers of who calls");
	is(who_was_heard(), '', 'no secret was sent');
	$bob->query_safe("SET zklock.auth = '$secret{bob}'; RESET zklock.servers");
	assert_query($bob, 'SELECT of_alice()', '42501', "the caller's secret does not go to servers of another role's function");
	is(who_was_heard(), '', 'no secret was sent');
	$bob->query_safe('RESET zklock.auth');
	assert_sent($bob, 'configuration', "servers of a superuser's function", 'SELECT of_admin()');
};

# Its program would move to the servers that are set, with the credentials that it has.
subtest 'a session that holds a lock does not move to servers of a role' => sub {
	my $bob = background($node, user => 'bob', holds => 'of/held');
	my $own = q(SELECT session_id FROM zk_session);
	my $id = $bob->query_safe($own);
	$bob->query_safe("SET $own_servers");
	assert_refused($bob, 'with other servers');
	$bob->query_safe("SET zklock.auth = ''");
	assert_refused($bob, 'with other servers, and without credentials for the next session');
	is($bob->query_safe($own), $id, 'it is the same session');
	is($bob->query_safe(q(SELECT zk_unlock('of/held'))), 't', 'its lock can be released');
	is(who_was_heard(), '', 'the release went to the servers of before');
	assert_sent($bob, '', 'the next session sends no secret');
	$bob->query_safe('RESET zklock.auth; RESET zklock.servers');
	assert_query($bob, 'SELECT ' . lock_sql(), '00000', 'with the configuration the lock is granted');
	is(who_was_heard(), '', 'nothing was sent to the proxy');

	# Who may do so, moves there.
	my $admin = background($node, user => 'admin', holds => 'of/admin', first => "SET $own_servers");
	assert_becomes { $admin->query_safe('SELECT 1'); who_was_heard() } 'configuration', 'a superuser moves a session';
	assert_held($admin, 'of/admin', 'the moved session holds its lock');
};

done_testing();
