
# Credentials for ZooKeeper (zklock.auth) do not get to where others can read them: not into
# stored settings, logs, messages, or the memory of a backend; and files with them that others
# can read are reported. Tested in real clusters with settings and files of all kinds.

use File::Temp ();
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $secret = 'digest:alice:nobody-may-read-this';
my $directory = File::Temp->newdir;

sub credentials_file ($mode)
{
	my $file = "$directory/auth";
	unlink $file;
	append_to_file($file, "$secret\n");
	chmod $mode, $file or die "could not chmod $file: $!";
	return $file;
}

# Where a setting can be stored that everybody reads, and how it is taken away.
# With one superuser of that name, whoever runs the tests.
my @of_superuser = map { [ "ALTER $_ SET %s", "ALTER $_ RESET %s" ] }
  'ROLE CURRENT_USER', 'ROLE ALL', 'DATABASE postgres', 'ROLE CURRENT_USER IN DATABASE postgres';
my @functions = (
	'CREATE OR REPLACE FUNCTION keeper() RETURNS int LANGUAGE sql SET %s AS $$ SELECT 1 $$',
	'ALTER FUNCTION keeper() SET %s');

my $stored = cluster('stored', $zk);
my $session = background($stored, first => "CREATE FUNCTION keeper() RETURNS int
	LANGUAGE sql AS 'SELECT 1'");

subtest 'credentials cannot be stored with a role, database or function' => sub {
	my @refused = map { $_->[0] } @of_superuser;
	foreach my $command (@refused, @functions)
	{
		assert_query($session, sprintf($command, "zklock.auth = '$secret'"), '22023', $command);
		unlike($session->error, qr/nobody-may/, 'the error does not repeat the secret');
		like($session->error, qr/DETAIL:.*\nHINT:  .*file/, 'the HINT names a file as the way out');
	}
	foreach my $command (@refused, @functions)
	{
		assert_query($session, sprintf($command, "zklock.auth = '\@/a/file'"), '00000', "a file: $command");
	}
	$session->query_safe(sprintf $_->[1], 'zklock.auth') foreach @of_superuser;
	is($session->query_safe("SET zklock.auth = '$secret'; SHOW zklock.auth"),
		'********', 'in a session it may be set');
	assert_query($session, sprintf($of_superuser[0][0], 'zklock.auth FROM CURRENT'),
		'22023', 'it cannot be stored from the session');
	is( $session->query_safe(
			"SELECT count(*) FROM pg_db_role_setting WHERE setconfig::text ~ 'nobody-may'"),
		0, 'nothing is stored');
};

# Where the server ran without the library nobody has looked at the value.
subtest 'stored credentials of before are not applied, and a warning is logged' => sub {
	foreach my $store (@of_superuser)
	{
		my $command = $store->[0];
		$session->query_safe(
			(sprintf $command, "zklock.auth = '\@/a/file'") . '; '
			  . "SET allow_system_table_mods = on; "
			  . "UPDATE pg_db_role_setting SET setconfig = ARRAY['zklock.auth=$secret']");
		my $offset = -s $stored->logfile;
		my $next = background($stored);
		is($next->query_safe('SHOW zklock.auth'), '', "not applied: $command");
		ok($stored->log_contains(
				qr/WARNING:  parameter "zklock.auth" of a database, role or function must not hold/,
				$offset),
			'a warning is logged');
		like($next->query("SELECT zk_lock('works')"), qr/^\d+$/, 'locks work without the credentials');
		$next->quit;
		$session->query_safe(sprintf $store->[1], 'zklock.auth');
	}
	unlike(slurp_file($stored->logfile) =~ s/^.*STATEMENT:.*\n//mgr,
		qr/(?:WARNING|ERROR|DETAIL).*nobody-may/, 'the log does not show it either');
};

my $node = cluster('files', $zk);
$node->safe_psql('postgres', 'CREATE ROLE ordinary LOGIN');
foreach my $case (
	[ 0600, '' ], [ 0400, '' ], [ 0640, 'group' ], [ 0644, 'others' ], [ 0604, 'others' ],
	[ 0660, 'group' ])
{
	my ($mode, $who) = @$case;
	my $file = credentials_file($mode);
	subtest sprintf('a file with credentials of mode %04o is reported if others can read it', $mode) => sub {
		$node->append_conf('postgresql.conf', "zklock.auth = '\@$file'");
		$node->reload;
		foreach my $user (undef, 'ordinary')
		{
			my $session = background($node, user => $user);
			my $offset = -s $node->logfile;
			$session->query_safe("SELECT zk_lock('file'), zk_unlock('file')");
			is($session->error =~ /WARNING:  file ".*auth" with the credentials.* has group or world access/ ? 1 : 0,
				$who && !$user ? 1 : 0, 'the superuser is warned, if there is a reason');
			is($session->error =~ /auth/ ? 1 : 0, 0, 'an ordinary role is not told of the file') if $user;
			is($node->log_contains(qr/group or world access/, $offset) ? 1 : 0,
				$who ? 1 : 0, 'the log has a warning if there is a reason');
			$session->query_safe("SELECT zk_disconnect(), zk_lock('file')");
			unlike($session->error, qr/world access/, 'the warning comes once');
		}
		unlike(slurp_file($node->logfile), qr/nobody-may/,
			'the log does not have the secret');
	};
}

# Whom a superuser lets set the parameter may not read the server's files that way.
subtest 'a role that may set zklock.auth needs pg_read_server_files to name a file' => sub {
	my $file = credentials_file(0600);
	$node->safe_psql('postgres', 'CREATE ROLE delegate LOGIN; GRANT SET, ALTER SYSTEM ON PARAMETER zklock.auth TO delegate');
	my $set = "SET zklock.auth = '\@$file'";
	my $delegate = background($node, user => 'delegate', first => "SELECT zk_is_held('x')");
	foreach my $command ($set, map { $set =~ s/^SET/$_ SET/r } 'ALTER ROLE delegate', 'ALTER SYSTEM')
	{
		assert_query($delegate, $command, '42501', "refused: $command");
		like($delegate->error, qr/DETAIL:  Only members of role "pg_read_server_files" may do that/, 'the DETAIL names the role that it takes');
	}
	assert_query($delegate, "SET zklock.auth = '$secret'", '00000', 'the role may set credentials of its own');
	local $ENV{PGOPTIONS} = "-c zklock.auth=\@$file";
	my ($status, $out, $err) = $node->psql('postgres', "SELECT zk_is_held('x'); SHOW zklock.auth", connstr => $node->connstr('postgres') . ' user=delegate');
	unlike($out, qr/\@/, 'the role cannot name a file when it connects');
	delete local $ENV{PGOPTIONS};
	# Whose function it is counts, not who calls it.
	my $define = sub ($owner) {
		$node->safe_psql('postgres', "CREATE FUNCTION names_file_$owner() RETURNS void LANGUAGE plpgsql SECURITY DEFINER
			AS \$\$ BEGIN SET LOCAL zklock.auth = '\@$file'; END \$\$; ALTER FUNCTION names_file_$owner() OWNER TO $owner");
	};
	$node->safe_psql('postgres', 'CREATE ROLE reader; GRANT SET ON PARAMETER zklock.auth TO reader; GRANT pg_read_server_files TO reader');
	$define->($_) foreach qw(reader delegate);
	assert_query($delegate, 'SELECT names_file_reader()', '00000', 'a function of a role that may read files names one for him');
	my $admin = background($node, first => "SELECT zk_is_held('x')");
	assert_query($admin, 'SELECT names_file_delegate()', '42501', 'a name of his own function is none for a superuser');
	$admin->quit;
	$node->safe_psql('postgres', 'DROP FUNCTION names_file_reader, names_file_delegate; DROP OWNED BY reader; DROP ROLE reader');
	$node->safe_psql('postgres', 'GRANT pg_read_server_files TO delegate');
	$delegate = background($node, user => 'delegate');
	$delegate->query_safe("SELECT zk_is_held('x')");
	assert_query($delegate, $set, '00000', 'a member of pg_read_server_files may name a file');
	$node->safe_psql('postgres', 'REVOKE pg_read_server_files FROM delegate');
	$delegate->query_safe("SET $_ = 0") foreach qw(parallel_setup_cost parallel_tuple_cost min_parallel_table_scan_size);
	like($delegate->query_safe('EXPLAIN (ANALYZE, COSTS OFF) SELECT sum(relpages) FROM pg_class'),
		qr/Workers Launched: [1-9]/, 'parallel workers take over a file that was set before');
};

# Where the file is, is not for everybody.
subtest 'a missing file with credentials is reported without its path' => sub {
	$node->append_conf('postgresql.conf', "zklock.auth = '\@$directory/gone'");
	$node->reload;
	my $session = background($node, user => 'ordinary');
	my $offset = -s $node->logfile;
	assert_query($session, "SELECT zk_lock('gone')", '58P01', 'the call fails');
	like($session->error, qr/could not read the file with the credentials for ZooKeeper: No such file/, 'the error says why');
	unlike($session->error, qr/\Q$directory\E/, 'the error does not have the path');
	ok($node->log_contains(qr/DETAIL:  It is "\Q$directory\E\/gone"\./, $offset), 'the log has the path');
};

# Does the memory of a process have it? Undefined if that cannot be read. In what it shares
# with others are the texts of statements, of those who wrote the secret in one, too.
sub has_in_memory ($pid, $text)
{
	open my $maps, '<', "/proc/$pid/maps" or return;
	open my $memory, '<:raw', "/proc/$pid/mem" or return;
	while (my $line = readline $maps)
	{
		my ($from, $to) = $line =~ /^(\w+)-(\w+) rw.p/ or next;
		sysseek $memory, hex $from, 0 or next;
		my $tail = '';
		for (my $left = hex($to) - hex $from; $left > 0; $left -= 1 << 20)
		{
			sysread $memory, my $bytes, $left < 1 << 20 ? $left : 1 << 20 or last;
			return 1 if index("$tail$bytes", $text) >= 0;
			$tail = substr $bytes, -length $text;
		}
	}
	return 0;
}

# What the backend has given to the session's program it has no more. Should the program
# die, the session is closed without it.
subtest 'a backend does not keep credentials in memory, and can end its session' => sub {
	my $file = credentials_file(0600);
	$node->append_conf('postgresql.conf', "zklock.auth = '\@$file'");
	$node->reload;
	my $session = background($node, 'zklock.session_timeout' => '2min', holds => 'memory');
	my ($program) = session_programs($session->pid);
	my $found = has_in_memory($session->pid, "\@$file");
	plan skip_all => 'the memory of other processes cannot be read' if !defined $found;
	is($found, 1, 'the backend has the path');
	is(has_in_memory($session->pid, 'nobody-may-read-this'), 0, "the backend's memory does not have the secret");
	kill KILL => $program;
	$session->query('SELECT zk_is_held($$memory$$)');
	$session->quit;
	assert_no_nodes($zk, lock_path('memory'), 'the session is ended without the secret');
};

done_testing();
