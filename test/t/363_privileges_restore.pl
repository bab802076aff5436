
# Privileges by name and fences survive a dump and logical replication to another cluster: what
# is lost on the way closes names and opens none, and the greater token counts. Tested with
# pg_dump, psql, and publications between two clusters.

use PostgreSQL::Test::Utils qw(run_command run_log);
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $berlin = cluster('berlin', $zk, init => [ allows_streaming => 'logical' ]);
my $paris = cluster('paris', $zk, extension => undef);

sub berlin ($sql, $database = 'postgres') { return ask($berlin, $sql, $database); }
sub paris ($sql, $database) { return ask($paris, $sql, $database); }

# May the role take that lock?
sub takes ($session, $role, $name, $expected, $what)
{
	$session->query_safe("SET ROLE $role");
	assert_query($session, "SELECT zk_try_xact_lock('$name')", $expected ? '00000' : '42501', $what);
	$session->query_safe('RESET ROLE');
	return;
}

subtest 'a dump restored where roles differ keeps privileges by the names of the roles' => sub {
	berlin('CREATE ROLE payroll; CREATE ROLE missing; CREATE ROLE bob; CREATE ROLE gone');
	# others have the numbers of these there
	$paris->safe_psql('postgres', 'CREATE ROLE bob; CREATE ROLE robert; CREATE ROLE payroll; CREATE ROLE tenant LOGIN; CREATE DATABASE copy; CREATE DATABASE used; CREATE DATABASE replica');
	berlin("SELECT zk_grant('lock', 'pay', 'payroll'), zk_grant('lock', 'miss', 'missing'), zk_grant('lock', 'was_bobs', 'bob'),
		zk_grant('lock', 'gone', 'gone'), zk_grant('none', 'shut', 'public'), zk_grant('lock', 'free', 'public'),
		zk_grant('lock', 'taken', 'payroll'), zk_revoke('lock', 'taken', 'payroll')");
	berlin('ALTER ROLE bob RENAME TO robert; CREATE ROLE bob');
	my $number = berlin("SELECT 'gone'::regrole::oid");
	berlin('REVOKE USAGE ON TYPE zk_privileges_by_name FROM gone; DROP ROLE gone');

	my $file = $berlin->basedir . '/dump';
	ok(run_log([ 'pg_dump', '-d', $berlin->connstr('postgres'), '-f', $file ]), 'pg_dump succeeds');
	ok(run_log([ 'psql', '-qX', '-d', $paris->connstr('copy'), '-f', $file ]), 'the dump is restored where a role is missing');
	is(paris("SELECT string_agg(concat_ws(' ', prefix, role), ', ' ORDER BY prefix) FROM zk_privileges", 'copy'),
		"free -, gone !$number, miss !missing, pay payroll, was_bobs robert", 'all rows are there, by the names of the roles');
	is(paris('SELECT granted_by FROM zk_privileges WHERE prefix = \'pay\'', 'copy'), berlin('SELECT session_user'),
		'rows say who granted them');

	my $session = background($paris, database => 'copy');
	takes($session, 'payroll', 'pay', 1, 'a role that exists there has its privilege');
	takes($session, 'tenant', 'free', 1, 'a privilege of PUBLIC is kept');
	takes($session, 'robert', 'was_bobs', 1, 'a renamed role has its privilege');
	takes($session, 'bob', 'was_bobs', 0, 'a role that has the former name has no privilege');
	takes($session, 'tenant', $_, 0, "closed: $_") foreach qw(miss gone shut taken);
	paris('CREATE ROLE missing', 'copy');
	takes($session, 'missing', 'miss', 0, 'a role that is made later gets no privilege by its name');
	paris("SELECT zk_grant('lock', 'miss', 'missing'), zk_revoke('all', 'miss', '!missing'), zk_revoke('lock', 'gone', '!$number')", 'copy');
	takes($session, 'missing', 'miss', 1, 'a role that is made later can be granted the privilege');
	is(paris("SELECT count(*) FROM zk_privileges WHERE role::text ~ '^!'", 'copy'), 0, 'rows of missing roles can be revoked');

	# PostgreSQL loads a table as a whole or not at all
	paris('CREATE EXTENSION zklock', 'used');
	paris("SELECT zk_grant('lock', 'pay', 'payroll'), zk_grant('lock', 'shut', 'robert')", 'used');
	foreach my $times (1 .. 2)
	{
		my ($out, $error) = run_command([ 'psql', '-qX', '-d', $paris->connstr('used'), '-f', $file ]);
		unlike($error, qr/ERROR:(?!.*type .* does not|.*role .* does not)/, "restored over rows that are there, $times");
	}
	is(paris('SELECT string_agg(prefix, \' \' ORDER BY prefix) FROM zk_closed', 'used'),
		'free gone miss pay shut taken was_bobs', 'all prefixes of both are closed');
	is(paris("SELECT string_agg(concat_ws(' ', prefix, role), ', ' ORDER BY prefix) FROM zk_privileges", 'used'),
		"free -, gone !$number, miss missing, pay payroll, shut robert, was_bobs robert", 'rows of both are there, once each');
};

subtest 'logical replication of privileges is heeded by sessions of the subscriber' => sub {
	berlin('TRUNCATE zk_privileges, zk_closed; CREATE ROLE tenant');
	berlin("SELECT zk_grant('lock', 'pay', 'payroll')");
	berlin('CREATE PUBLICATION privileges FOR TABLE zk_privileges, zk_closed');
	paris('CREATE EXTENSION zklock', 'replica');
	my $tenant = background($paris, database => 'replica', user => 'tenant');
	my $may = "SELECT zk_try_xact_lock('pay')";
	assert_query($tenant, $may, '00000', 'before the replication every name is open');

	# what is seen by others may still be on its way to this session
	my $heeds = sub ($expected, $what, $sql = $may) {
		poll_until { $tenant->query($sql); $tenant->sqlstate eq $expected } $what, 180;
		pass($what);
	};
	my $applied = sub ($sql) {
		berlin($sql);
		$berlin->wait_for_catchup('privileges');
	};
	paris("CREATE SUBSCRIPTION privileges CONNECTION '" . $berlin->connstr . " dbname=postgres' PUBLICATION privileges WITH (binary = true)", 'replica');
	$heeds->('42501', 'a session that was there heeds the first copy');
	poll_until { paris("SELECT count(*) FROM pg_subscription_rel WHERE srsubstate <> 'r'", 'replica') eq '0' } 'the copy to be done', 180;
	$applied->("SELECT zk_grant('lock', 'pay', 'tenant')");
	$heeds->('00000', 'a grant');
	$applied->("SELECT zk_revoke('lock', 'pay', 'tenant')");
	$heeds->('42501', 'a revoke');
	$applied->("SELECT zk_open('pay')");
	$heeds->('00000', 'zk_open()');
	$applied->("INSERT INTO zk_privileges VALUES ('pay', 'payroll', 'lock'); DELETE FROM zk_privileges");
	$heeds->('42501', 'what is deleted leaves its prefix closed');
	$applied->("INSERT INTO zk_privileges VALUES ('x', 'payroll', 'lock'); TRUNCATE zk_privileges");
	$heeds->('42501', 'a prefix stays closed when its rows are truncated', "SELECT zk_try_xact_lock('x')");
	is(paris("SELECT string_agg(prefix, ' ' ORDER BY prefix) FROM zk_closed", 'replica'), 'pay x', 'the closed prefixes are the same as in the publisher');
	like(slurp_file($paris->logfile), qr/process \d+ of user ".*" in database "replica" grants "lock" on "pay" to "tenant"/,
		"the subscriber's log has the grant");
	paris('DROP SUBSCRIPTION privileges', 'replica');
};

# A publication FOR ALL TABLES has these, too. What was claimed on either side counts.
subtest 'logical replication of fences keeps the greater token' => sub {
	my $row = sub ($name, $token) { "INSERT INTO zk_fences VALUES ('/r', '$name', $token, 'who', now())" };
	my $tokens = sub { paris("SELECT string_agg(name || ' ' || token, ', ' ORDER BY name) FROM zk_fences", 'replica') };
	paris(join(';', map { $row->(@$_) } [ 'greater', 9 ], [ 'less', 1 ], [ 'own', 2 ]), 'replica');
	berlin(join(';', map { $row->(@$_) } [ 'greater', 5 ], [ 'less', 5 ]));
	berlin('CREATE PUBLICATION fences FOR TABLE zk_fences');
	paris("CREATE SUBSCRIPTION fences CONNECTION '" . $berlin->connstr . " dbname=postgres' PUBLICATION fences", 'replica');
	poll_until { $tokens->() eq 'greater 9, less 5, own 2' } 'the first copy', 180;
	pass('of two tokens a first copy leaves the greater one');
	poll_until { paris("SELECT count(*) FROM pg_subscription_rel WHERE srsubstate <> 'r'", 'replica') eq '0' } 'the copy to be done', 180;
	berlin($row->('own', 1) . "; UPDATE zk_fences SET token = token + 1 WHERE name <> 'own'");
	$berlin->wait_for_catchup('fences');
	is($tokens->(), 'greater 9, less 6, own 2', 'an INSERT and an UPDATE leave the greater token');
	berlin("UPDATE zk_fences SET token = 10 WHERE name = 'greater'");
	$berlin->wait_for_catchup('fences');
	is($tokens->(), 'greater 10, less 6, own 2', 'a later UPDATE leaves the greater token');
	paris('DROP SUBSCRIPTION fences', 'replica');
	my $told = "SELECT what FROM zk_check(false) WHERE item = 'publications'";
	is(berlin($told), '', 'zk_check() has nothing to say');
	berlin('CREATE PUBLICATION "Half" FOR TABLE zk_closed');
	like(berlin($told), qr/without the other: by "Half"$/, 'zk_check() warns of a publication with one of the two tables');
};

done_testing();
