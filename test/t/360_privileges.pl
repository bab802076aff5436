
# Each function and table may be used by the roles that docs/privileges.md names, and by no
# others; and CREATE EXTENSION does not trust roles of its names that somebody has made before.
# Tested against the catalog, function by function.

use FindBin;
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk);

sub sql { return ask($node, $_[0]); }

# Each function or relation, by its name or that with its arguments, and who the
# tables of the pages say may use it.
sub documented
{
	my %users;
	my @rows = map { split /\n/, slurp_file("$FindBin::Bin/../../docs/$_.md") } qw(privileges decisions/internal-functions);
	my $is_of_users;
	foreach my $row (@rows)
	{
		$is_of_users = $row =~ /^\|/ && ($is_of_users || $row =~ /\| may be used by \|/);
		next unless $is_of_users;
		my ($what, $who) = $row =~ /^\| (`_?zk_.*?) \| (.*?) \|/ or next;
		my @names = $what =~ /`(_?zk_[^`]+)`/g;
		my @suffixes = $what =~ /`(_(?!zk_)[^`]+)`/g;
		@names = map { my $name = $_; map { $name . $_ } '', @suffixes } @names
		  if @suffixes;
		$users{$_} = $who foreach @names;
	}
	return \%users;
}

sub may ($role, $function)
{
	return sql("SELECT has_function_privilege('$role', '$function', 'EXECUTE')") eq 't';
}

subtest 'every function and table may be used by whom the page says' => sub {
	my $documented = documented();
	my %missing = %$documented;
	sql('CREATE ROLE anybody');
	foreach my $function (split /\n/, sql(<<'SQL'))
SELECT p.oid::regprocedure FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid
WHERE d.classid = 'pg_proc'::regclass AND d.deptype = 'e' AND p.proname ~ '^_?zk_'
SQL
	{
		my ($name) = $function =~ /^(\w+)/;
		my $key = { 'zk_fence(text)' => 'zk_fence(name)',
			'zk_fence(text,bigint)' => 'zk_fence(name, token)' }->{$function} || $name;
		my $users = $documented->{$key};
		ok($users, "$function is there") or next;
		delete $missing{$key};
		is(may('anybody', $function), $users eq 'every role', "$function: every role?");
		foreach my $role (qw(pg_monitor zklock_job zklock_operator))
		{
			my $may = $users eq 'every role' || $users =~ /`$role`/
			  || ($role eq 'zklock_operator' && $users =~ /`zklock_job`/);
			is(may($role, $function), !!$may, "$function: $role?");
		}
	}
	is_deeply([ sort keys %missing ], ['zk_fences'], 'the page names nothing that does not exist');
	foreach my $role (qw(anybody zklock_job zklock_operator pg_monitor))
	{
		is(sql("SELECT has_table_privilege('$role', 'zk_fences', 'SELECT')"),
			$role eq 'pg_monitor' ? 't' : 'f', "$role reads zk_fences?");
		is(sql("SELECT has_table_privilege('$role', 'zk_fences', 'INSERT, UPDATE, DELETE, TRUNCATE')"),
			'f', "$role does not change them");
	}
};

sub roles
{
	return sql(<<'SQL');
SELECT string_agg(rolname || ' ' || rolcanlogin || ' ' || rolsuper, ', ' ORDER BY rolname)
FROM pg_roles WHERE rolname LIKE 'zklock%'
SQL
}

my $as_made = 'zklock_job false false, zklock_operator false false';

subtest 'CREATE EXTENSION uses roles that are there, and warns of their members' => sub {
	is(roles(), $as_made, 'the roles are made');
	sql('DROP EXTENSION zklock');
	is(roles(), $as_made, 'the roles stay after DROP EXTENSION');
	sql('GRANT zklock_operator TO anybody, pg_monitor');
	my ($rc, $out, $err) = $node->psql('postgres', 'CREATE EXTENSION zklock');
	is(roles(), $as_made, 'the roles are used again');
	like($err, qr/WARNING:  role "zklock_operator" was there already and has members
DETAIL:  .*: "anybody", "pg_monitor"\.
HINT:  /, 'a warning names the members of the role');
	unlike($err, qr/zklock_job/, 'a role without members is not named');
	sql('REVOKE zklock_operator FROM pg_monitor');
	ok(may('anybody', 'zk_evict(text,bigint)'), 'the member of the role may call its functions');
	sql('CREATE ROLE super SUPERUSER; GRANT zklock_job TO super WITH ADMIN OPTION');
	sql('CREATE DATABASE other');
	$node->safe_psql('other', 'CREATE EXTENSION zklock');
	pass('the roles are used in another database, also if a superuser may grant them');
	$node->safe_psql('other', 'DROP EXTENSION zklock');
	sql('DROP EXTENSION zklock; DROP ROLE zklock_job, zklock_operator');
};

# The first has made the roles and not committed yet. Whoever comes then waits for it.
subtest 'CREATE EXTENSION in two databases at a time makes the roles once' => sub {
	foreach my $end ('COMMIT', 'ROLLBACK')
	{
		my ($first, $second) = map { background($node, database => $_) } 'postgres', 'other';
		$first->query_safe('BEGIN; CREATE EXTENSION zklock');
		$second->start_query('CREATE EXTENSION zklock');
		poll_until
		{
			sql("SELECT count(*) FROM pg_stat_activity WHERE datname = 'other' AND wait_event_type = 'Lock'") == 1;
		}
		'the second to wait', 60;
		$first->query_safe($end);
		$second->wait_result;
		is($second->error, '', "the second succeeds after $end of the first");
		is(roles(), $as_made, 'the roles are the same');
		$_->quit foreach $first, $second;
		sql('DROP EXTENSION IF EXISTS zklock');
		$node->safe_psql('other', 'DROP EXTENSION zklock');
		sql('DROP ROLE zklock_job, zklock_operator');
	}
};

# What the installer gives to whoever he makes something for is not meant for this.
subtest "default privileges of the installer give no access to zklock's tables and functions" => sub {
	sql(join ';', map { "ALTER DEFAULT PRIVILEGES $_" }
		'GRANT ALL ON TABLES TO anybody', 'GRANT ALL ON TABLES TO PUBLIC',
		'GRANT ALL ON ROUTINES TO anybody WITH GRANT OPTION');
	sql('CREATE ROLE nobody; CREATE EXTENSION zklock');
	foreach my $role ('anybody', 'nobody')
	{
		ok(!may($role, 'zk_evict(text,bigint)'), "$role may not call what is the operator's");
		is(sql("SELECT has_table_privilege('$role', 'zk_fences', 'INSERT, UPDATE, DELETE, TRUNCATE, SELECT')"),
			'f', 'the role may not use zk_fences');
		is(sql("SELECT has_table_privilege('$role', 'zk_session_locks', 'SELECT')"), 't', 'the role may read zk_session_locks');
		ok(may($role, 'zk_lock(text,interval,integer)'), 'the role may take locks');
	}
	is(sql("SELECT string_agg(DISTINCT a.grantee::regrole::text, ' ') FROM pg_proc, aclexplode(proacl) AS a
			WHERE proname ~ '^_?zk_' AND a.grantee <> 0 AND a.grantee <> proowner
				AND a.grantee::regrole::text NOT IN ('zklock_job', 'zklock_operator', 'pg_monitor')"),
		'', 'no other role is named in the privileges');
	sql(join ';', map { "ALTER DEFAULT PRIVILEGES $_" }
		'REVOKE ALL ON TABLES FROM anybody', 'REVOKE ALL ON TABLES FROM PUBLIC',
		'REVOKE ALL ON ROUTINES FROM anybody');
	sql('DROP EXTENSION zklock; DROP ROLE zklock_job, zklock_operator, nobody');
};

subtest 'CREATE EXTENSION refuses roles of its names that others could use' => sub {
	sql('CREATE ROLE planter CREATEROLE');
	my %planted = (
		'a login' => 'CREATE ROLE zklock_job LOGIN',
		'one that its maker may grant' =>
		  'CREATE ROLE zklock_operator; RESET ROLE; GRANT zklock_operator TO planter WITH ADMIN OPTION',
		'one that may create roles' => 'CREATE ROLE zklock_job CREATEROLE',
		'one that is another, too' =>
		  'CREATE ROLE zklock_operator; RESET ROLE; GRANT pg_read_server_files TO zklock_operator',
		'the one in the other' =>
		  'CREATE ROLE zklock_operator; CREATE ROLE zklock_job IN ROLE zklock_operator',
		'one that others run functions as' => "CREATE ROLE zklock_operator; RESET ROLE;
			CREATE FUNCTION planted() RETURNS int LANGUAGE sql SECURITY DEFINER AS 'SELECT 1';
			ALTER FUNCTION planted() OWNER TO zklock_operator",
		'one whose tables have indexes' =>
		  'CREATE ROLE zklock_operator; RESET ROLE; CREATE TABLE planted(); ALTER TABLE planted OWNER TO zklock_operator',
		map { ("one with $_" => "RESET ROLE; CREATE ROLE zklock_operator $_") }
		  qw(SUPERUSER CREATEDB REPLICATION BYPASSRLS));
	foreach my $what (sort keys %planted)
	{
		sql("SET ROLE planter; $planted{$what}");
		my $before = roles();
		my ($rc, $out, $err) = $node->psql('postgres', '\set VERBOSITY verbose
CREATE EXTENSION zklock');
		like($err, qr/ERROR:  55000: role "zklock_\w+" cannot be trusted/, "$what is refused");
		like($err, qr/DETAIL:  (It (may log in|may do what|is a member of|owns (function|table) public\.planted)|Role "planter")/, 'the DETAIL says why the role cannot be trusted');
		like($err, qr/HINT/, 'there is a HINT');
		is(roles(), $before, 'no role was made');
		is(sql("SELECT count(*) FROM pg_proc WHERE proname ~ '^_?zk_'"), 0, 'no function was made');
		sql('DROP FUNCTION IF EXISTS planted; DROP TABLE IF EXISTS planted; DROP ROLE IF EXISTS zklock_job, zklock_operator');
	}
	sql('CREATE EXTENSION zklock');
	is(roles(), $as_made, 'the extension is created without such roles');
};

done_testing();
