
# zklock works only when it is loaded by shared_preload_libraries; everything else that loads it
# fails with 55000 and says what to set. So a client cannot leave values behind for settings that
# it may not set. Tested with a real cluster and connections at the level of the protocol.

use IO::Socket::UNIX;

use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk);
$node->safe_psql('postgres', "CREATE ROLE app LOGIN; CREATE ROLE session_preload LOGIN SUPERUSER;
	ALTER ROLE session_preload SET session_preload_libraries = 'zklock'");

# How PostgreSQL ends the start of a connection with these parameters, as any client can send
# them: the fields of its error by their letters; none if it is ready for queries.
sub startup (%parameter)
{
	my $socket = IO::Socket::UNIX->new($node->host . '/.s.PGSQL.' . $node->port) or die "could not connect: $!";
	$parameter{database} = 'postgres';
	my $text = join('', map { "$_\0$parameter{$_}\0" } sort keys %parameter) . "\0";
	print $socket pack 'N N a*', 8 + length $text, 3 << 16, $text;
	$socket->flush;
	while (5 == read $socket, my $head, 5)
	{
		my ($kind, $length) = unpack 'a N', $head;
		read $socket, my $message, $length - 4;
		return () if $kind eq 'Z';
		return map { substr($_, 0, 1) => substr $_, 1 } split /\0/, $message if $kind eq 'E';
	}
	die "the connection ended without a word\n";
}

subtest "a client cannot set zklock's settings for superusers at its start" => sub {
	my %refused = (
		'zklock.root' => '/elsewhere', 'ZKLOCK.Root' => '/elsewhere', 'zklock.commit_guard' => 'off',
		'zklock.max_locks' => '100000', 'zklock.session_scope' => 'refuse');
	foreach my $name (sort keys %refused)
	{
		# As psql's PGOPTIONS and a service of libpq, and as JDBC's "options"; and as a parameter of its own.
		foreach my $parameters ([ options => "-c $name=$refused{$name}" ], [ $name => $refused{$name} ])
		{
			my %error = startup(user => 'app', @$parameters);
			is("$error{S} $error{C}", 'FATAL 42501', "$parameters->[0]: $parameters->[1]");
		}
	}
	is({ startup(user => 'app', options => '-c zklock.nonsense=1') }->{C}, '42602', 'a setting that does not exist is refused');
	is_deeply({ startup(user => 'app', options => '-c zklock.connect_timeout=3s') }, {}, 'what a role may set it may set early');
	is_deeply({ startup(user => 'session_preload', options => '-c zklock.root=/elsewhere') }, {}, 'a superuser may set at its start what it may set later');

	my ($root, $servers) = map { $node->safe_psql('postgres', "SHOW zklock.$_") } qw(root servers);
	my $session = background($node, user => 'app');
	is($session->query_safe("SELECT current_setting('zklock.root'), current_setting('zklock.servers')"), "$root|$servers",
		'values of postgresql.conf are used');
	foreach my $name (sort keys %refused)
	{
		assert_query($session, "$_ $name = '$refused{$name}'", '42501', "$_ $name") foreach 'SET', 'ALTER ROLE app SET';
	}
	$node->safe_psql('postgres', "ALTER ROLE app SET zklock.root = '/of-app'");
	$session = background($node, user => 'app');
	is($session->query_safe('SHOW zklock.root'), '/of-app', 'a value of ALTER ROLE is used');
	is({ startup(user => 'app', options => "-c zklock.root=$root") }->{C}, '42501', 'a client cannot take back a value of ALTER ROLE at its start');
	assert_query($session, 'ALTER ROLE app RESET zklock.root', '42501', 'the role cannot reset the value of ALTER ROLE');

	$node->safe_psql('postgres', 'ALTER ROLE app RESET ALL; GRANT SET ON PARAMETER zklock.root TO app');
	is_deeply({ startup(user => 'app', options => '-c zklock.root=/elsewhere') }, {}, 'a role with the privilege may set the value at its start');
};

# The same cluster without it. What is in its databases stays there.
subtest 'zklock that is loaded by anything else than shared_preload_libraries refuses to work' => sub {
	my $hint = qr/zklock must be loaded by shared_preload_libraries\n(?:.*\n)*?HINT:  .*shared_preload_libraries = 'zklock'.*restart/;
	$node->append_conf('postgresql.conf', q(shared_preload_libraries = ''));
	$node->restart;
	$node->safe_psql('postgres', 'CREATE DATABASE empty');
	foreach my $user ('app', undef)
	{
		my $session = background($node, user => $user);
		foreach my $sql ("SELECT zk_lock('x')", "SELECT zk_try_xact_lock('x')", "CALL zk_commit_and_lock('x')",
			"SELECT zk_is_held('x')", 'SELECT * FROM zk_session', 'SELECT * FROM zk_session_locks', "SELECT zk_fence('x')",
			"SELECT zk_lock_set(ARRAY['x', 'y'])", $user ? () : ('SELECT * FROM zk_check()', "LOAD 'zklock'"))
		{
			foreach my $attempt (1, 2)
			{
				assert_query($session, $sql, '55000', "$sql, attempt $attempt");
				like($session->error, $hint, 'the HINT says what to do');
			}
		}
		is($session->query_safe("SELECT current_setting('zklock.commit_guard', true) IS NULL"), 't', 'no setting is defined');
	}
	my $empty = background($node, database => 'empty');
	assert_query($empty, 'CREATE EXTENSION zklock', '55000', 'CREATE EXTENSION');
	like($empty->error, $hint, 'the HINT says what to do');
	is($empty->query_safe("SELECT count(*) FROM pg_extension WHERE extname = 'zklock'"), 0, 'the extension is not created');

	my %error = startup(user => 'session_preload');
	is("$error{S} $error{C}", 'FATAL 55000', 'session_preload_libraries');
	like($error{H}, qr/shared_preload_libraries = 'zklock'/, 'the HINT says what to do');
};

# It has no postmaster, and leaves shared memory before it closes its session.
subtest 'zklock works in a server for a single user' => sub {
	$node->append_conf('postgresql.conf', 'shared_preload_libraries = zklock');
	$node->stop;
	my ($out, $err) = ('', '');
	my @server = ($node->installed_command('postgres'), '--single', '-D', $node->data_dir, 'postgres');
	ok(IPC::Run::run(\@server, '<', \"SELECT zk_try_lock('single')\nSELECT state FROM zk_locks\n", '>', \$out, '2>', \$err),
		'ends well') or diag($err);
	like($out, qr/zk_try_lock = "t".*state = "held"/s, 'the session has its lock');
	assert_no_nodes($zk, lock_path('single'), 'nothing is left behind');
};

done_testing();
