
# Each change of the privileges by name is a line of the log, whoever makes it and however; and a
# role that has privileges cannot be dropped until they are taken away. Tested with functions,
# plain SQL and DROP OWNED in several databases.

use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk);
sub sql ($sql, $database = 'postgres') { return ask($node, $sql, $database); }

sql('CREATE ROLE bob; CREATE ROLE carl; CREATE ROLE dba; CREATE ROLE anna LOGIN IN ROLE dba');
sql("GRANT EXECUTE ON FUNCTION zk_grant, zk_revoke, zk_open TO dba; GRANT ALL ON zk_privileges, zk_closed TO dba");
sql('CREATE DATABASE other; CREATE DATABASE empty');
sql('CREATE EXTENSION zklock', 'other');

my $anna = background($node, user => 'anna', first => 'SET ROLE dba');

# The lines of that statement, without who; they all say who.
sub logged ($sql, @expected)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $from = -s $node->logfile;
	$anna->query_safe($sql);
	my $log = substr(slurp_file($node->logfile), $from);
	my @lines = $log =~ /LOG:  process \d+ of user "anna" as role "dba" in database "postgres" from \[local\] (.*)$/mg;
	is_deeply([ sort @lines ], [ sort @expected ], $sql) or diag($log);
	return;
}

subtest 'each change of privileges is logged with the role that made it' => sub {
	$anna->query_safe('SET client_min_messages = log');
	logged("SELECT zk_grant('lock, look', 'pay', 'bob')",
		'closes the prefix "pay"', 'grants "lock" on "pay" to "bob"', 'grants "look" on "pay" to "bob"');
	unlike($anna->error, qr/process/, 'the client is told nothing');
	logged("SELECT zk_grant('lock', 'pay', 'bob')");
	logged("SELECT zk_grant('run', 'pay', 'public')", 'grants "run" on "pay" to "public"');
	logged("SELECT zk_revoke('look', 'pay', 'bob')", 'revokes "look" on "pay" from "bob"');
	logged("UPDATE zk_privileges SET prefix = 'p' WHERE privilege = 'run'",
		'revokes "run" on "pay" from "public"', 'grants "run" on "p" to "public"');
	logged("INSERT INTO zk_privileges VALUES (U&'x\\000Ay', 'no such role', 'lock')",
		'grants "lock" on "x<U+000A>y" to "!no such role"');
	logged("DELETE FROM zk_privileges WHERE privilege = 'run'", 'revokes "run" on "p" from "public"', 'closes the prefix "p"');
	logged('TRUNCATE zk_privileges', 'revokes "lock" on "pay" from "bob"',
		'revokes "lock" on "x<U+000A>y" from "!no such role"', 'closes the prefix "x<U+000A>y"');
	logged("SELECT zk_open('pay')", 'opens the prefix "pay"');
	logged('TRUNCATE zk_closed', 'opens the prefix "p"', 'opens the prefix "x<U+000A>y"');
};

# Who has the schema drops the extension with it, and no row is asked then.
subtest 'the log says who dropped the extension, and so opened all names' => sub {
	sql('CREATE DATABASE owned');
	sql('CREATE SCHEMA annas AUTHORIZATION anna; CREATE EXTENSION zklock SCHEMA annas', 'owned');
	my $owner = background($node, database => 'owned', user => 'anna');
	my $from = -s $node->logfile;
	$owner->query_safe('DROP SCHEMA annas CASCADE');
	like(substr(slurp_file($node->logfile), $from),
		qr/LOG:  process \d+ of user "anna" in database "owned" from \[local\] drops the extension zklock, and so opens all names$/m,
		'the log says who dropped the extension');
};

# The error of a DROP ROLE, and its DETAIL.
sub refused ($role, $database, $detail)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $session = background($node, database => $database);
	assert_query($session, "DROP ROLE $role", '2BP01', "$role cannot be dropped");
	like($session->error, qr/DETAIL: .*\b$detail/s, "for $detail");
	$session->quit;
	return;
}

subtest 'a role that has privileges by name cannot be dropped' => sub {
	sql("SELECT zk_grant('lock, look', 'pay', 'bob'), zk_grant('lock', 'pay', 'carl'), zk_revoke('look', 'pay', 'bob')");
	refused('bob', 'postgres', 'privileges for type zk_privileges_by_name');
	refused('bob', 'empty', '1 object in database postgres');
	sql("SELECT zk_grant('lock', 'pay', 'bob')", 'other');
	sql('ALTER ROLE bob RENAME TO robert');
	refused('robert', 'empty', '1 object in database other');
	is(sql("SELECT role FROM zk_privileges WHERE role = 'robert'", 'other'), 'robert', 'a renamed role is shown under its new name');
	sql("SELECT zk_revoke('all', 'pay', 'robert')", 'other');
	my $from = -s $node->logfile;
	sql('DROP OWNED BY robert');
	like(substr(slurp_file($node->logfile), $from), qr/ revokes "lock" on "pay" from "robert"/, 'DROP OWNED takes them away');
	is(sql('SELECT string_agg(role::text, $$ $$) FROM zk_privileges'), 'carl', 'rows of other roles stay');
	is(sql("SELECT prefix FROM zk_closed"), 'pay', 'the prefix stays closed');
	sql('DROP OWNED BY robert', 'empty');
	sql('DROP ROLE robert');
	pass('a role without rows can be dropped');

	sql("DELETE FROM zk_privileges; SELECT zk_grant('lock', 'a', 'carl')");
	refused('carl', 'other', '1 object in database postgres');
	sql("UPDATE zk_privileges SET role = 'dba'");
	sql('DROP ROLE carl; TRUNCATE zk_privileges');
	sql("SELECT zk_grant('lock', 'a', current_user::text), zk_revoke('lock', 'a', current_user::text)");
	is(sql("SELECT count(*) FROM pg_type AS t, aclexplode(typacl) AS a WHERE typname = 'zk_privileges_by_name' AND grantee NOT IN (0, typowner)"),
		0, 'nothing is left of those that have no more');
};

# Each changes what PostgreSQL notes of the type, which it does not let two do at a time.
subtest 'two sessions that change privileges at a time both succeed' => sub {
	my ($first, $second) = map { background($node) } 1, 2;
	sql('CREATE ROLE one; CREATE ROLE two');
	$first->query_safe("BEGIN; SELECT zk_grant('lock', 'b', 'one')");
	$second->start_query("SELECT zk_grant('lock', 'b', 'two')");
	wait_for_lock($node, $second->pid);
	$first->query_safe('COMMIT');
	assert_ends($second, '00000', 'the second succeeds');
	refused($_, 'empty', '1 object in database postgres') foreach qw(one two);
	# the first takes away one row of a role, the second the other, and neither sees that of the other gone
	sql("SELECT zk_grant('lock', 'c', 'one')");
	$first->query_safe("BEGIN; DELETE FROM zk_privileges WHERE prefix = 'b' AND role = 'one'");
	$second->start_query("DELETE FROM zk_privileges WHERE prefix = 'c' AND role = 'one'");
	wait_for_lock($node, $second->pid);
	$first->query_safe('COMMIT');
	assert_ends($second, '00000', 'the second change waits for the first');
	sql('DROP ROLE one');
	pass('the role can be dropped after the last of its rows');
	# Who owns the database may do that.
	$first->query_safe('BEGIN; ANALYZE zk_privileges, zk_closed');
	assert_query($second, "SET lock_timeout = '30s'; SELECT zk_revoke('lock', 'c', 'two'), zk_grant('run', 'c', 'two')",
		'00000', 'ANALYZE in a transaction keeps nobody waiting');
	$first->query_safe('COMMIT');
	$_->quit foreach $first, $second;
};

# What is closed for a reason that nobody has meant, is told.
subtest 'zk_check() names privileges of missing roles, and triggers that are off' => sub {
	my $rows = sub { sql("SELECT concat_ws(': ', item, state, what, remedy) FROM zk_check(false)
		WHERE item IN ('privileges', 'closed prefixes', 'triggers')") };
	sql('TRUNCATE zk_privileges; TRUNCATE zk_closed');
	is($rows->(), '', 'zk_check() has no such row without privileges');
	sql("SELECT zk_grant('none', '', 'public'), zk_grant('lock', 'pay/a', 'dba'), zk_grant('none', 'pay', 'dba'), zk_grant('none', 'pay/a/b', 'dba')");
	is($rows->(), 'privileges: ok: rows of zk_privileges: 1, all of roles that exist', 'zk_check() finds nothing wrong with good rows');
	sql("INSERT INTO zk_privileges VALUES ('lost', 'no such role', 'lock'); SELECT zk_open(''), zk_grant('none', 'lost', 'public')");
	like($rows->(), qr/^privileges: warning: .*: 1 of 2, "lost" of role "!no such role" among them: .*zk_revoke/m, 'zk_check() warns of rows of missing roles');
	like($rows->(), qr/^closed prefixes: note: .*: 1, "lost" among them: .*zk_open/m, 'zk_check() notes the prefixes that such rows close');
	sql('DELETE FROM zk_privileges; ALTER TABLE zk_privileges DISABLE TRIGGER ALL; INSERT INTO zk_privileges VALUES ($$late$$, $$dba$$, $$look$$); ALTER TABLE zk_privileges ENABLE TRIGGER ALL');
	my ($remedy) = $rows->() =~ /^triggers: warning: .*: adding, changed, closing, emptied: .*? leaves them so\. (.*), so that/m;
	ok($remedy, 'zk_check() warns of triggers that are not always fired');
	sql($remedy =~ s/; and /; /r);
	sql('ALTER TABLE zk_fences ENABLE TRIGGER ALL');
	like($rows->(), qr/^triggers: .*: applied: .*ALTER TABLE zk_fences ENABLE REPLICA TRIGGER applied;/m, 'zk_check() warns of a trigger of fences that would be fired wrongly');
	sql('ALTER TABLE zk_fences ENABLE REPLICA TRIGGER applied');
	unlike($rows->(), qr/triggers/, 'the remedy of zk_check() mends the triggers');
	is(sql("SELECT count(*) FROM pg_type AS t, aclexplode(typacl) AS a WHERE typname = 'zk_privileges_by_name' AND grantee = 'dba'::regrole"),
		1, 'PostgreSQL has noted the privilege of the role');
};

$anna->quit;
done_testing();
