
# docs/migrating/fence.sql does in a database without the extension what zk_fence(name, token) of
# the extension does: the same results, errors, table and comparison. Each case runs in a
# database with the extension and in one with the script, which an owner who is no superuser has
# run.

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use PostgreSQL::Test::Utils;
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk, extension => undef);
my $script = abs_path(dirname(__FILE__)) . '/../../docs/migrating/fence.sql';

$node->safe_psql('postgres', 'CREATE ROLE owner LOGIN CREATEDB; CREATE ROLE worker LOGIN;
	CREATE DATABASE extension; CREATE DATABASE script OWNER owner');
install_as_documented($node, 'extension');
$node->safe_psql('extension', 'GRANT zklock_operator TO worker');
command_ok([ 'psql', '-X', '-q', '-d', $node->connstr('script'), '-U', 'owner', '-f', $script ],
	'the script is run by the owner of a database');
my ($grant) = slurp_file($script) =~ /^-- +(GRANT EXECUTE .*;)$/m or die 'the script does not say what to grant';
$node->safe_psql('script', $grant);

# What a statement raises, or "none".
sub raises ($session, $sql)
{
	$session->query($sql);
	my ($error) = ($session->error // '') =~ /ERROR:  (.*)/;
	return $session->sqlstate eq '00000' ? 'none' : $session->sqlstate . ' ' . ($error // '');
}

my $age = "extract(epoch FROM now() - '2007-12-31')::bigint << 32";
my @cases = (
	[ "'elsewhere', 7" => 'none' ],
	[ "'elsewhere', 7" => 'none' ],
	[ "'elsewhere', 9" => 'none' ],
	[ "'elsewhere', 8" => '40001 a newer holder of lock "elsewhere" has been here' ],
	[ "'elsewhere', 0" => '22023 fencing token must be greater than zero' ],
	[ "'elsewhere', -1" => '22023 fencing token must be greater than zero' ],
	[ "'elsewhere', NULL" => '22004 fencing token must not be null' ],
	[ 'NULL, 7' => '22004 lock name must not be null' ],
	[ "'forged', 9223372036854775807" => '22023 implausible fencing token for lock "forged"' ],
	[ "'forged', $age" => '22023 implausible fencing token for lock "forged"' ],
	[ "'elsewhere', 1100::bigint << 32" => '22023 implausible fencing token for lock "elsewhere"' ],
	[ "'elsewhere', 1000::bigint << 32" => 'none' ],
	[ "'elsewhere', 9" => '40001 a newer holder of lock "elsewhere" has been here' ],
	[ "repeat('x', 500), 1" => 'none' ]);

sub test ($database)
{
	my ($first, $second) = map { background($node, database => $database, user => 'worker') } 1 .. 2;
	foreach my $case (@cases)
	{
		is(raises($first, "SELECT zklock.zk_fence($case->[0])"), $case->[1], "zk_fence($case->[0])");
	}
	is($node->safe_psql($database, "SELECT token, claimed_by, claimed_at <= now() FROM zklock.zk_fences WHERE name = 'elsewhere'"),
		(1000 << 32) . '|worker|t', 'zk_fences has the last claim');
	is(raises($first, 'SELECT FROM zklock.zk_fences'), '42501 permission denied for table zk_fences', 'a role that may call zk_fence() may not read its table');
	my $nobody = background($node, database => $database);
	$nobody->query_safe('CREATE ROLE nobody') if $database eq 'extension';
	$nobody->query_safe('SET ROLE nobody');
	is(raises($nobody, "SELECT zklock.zk_fence('elsewhere', 9)"),
		'42501 permission denied for function zk_fence', 'other roles may not call zk_fence()');
	$nobody->quit;

	foreach my $end ('COMMIT', 'ROLLBACK')
	{
		foreach my $level ('READ COMMITTED', 'REPEATABLE READ')
		{
			my $name = lc "$end/$level";
			$first->query_safe("SELECT zklock.zk_fence('$name', 5)");
			$first->query_safe("BEGIN; SELECT zklock.zk_fence('$name', 7)");
			$second->query_safe("BEGIN ISOLATION LEVEL $level");
			$second->start_query("SELECT zklock.zk_fence('$name', 6)");
			poll_until
			{
				$node->safe_psql('postgres', 'SELECT wait_event_type FROM pg_stat_activity WHERE pid = ' . $second->pid) eq 'Lock';
			}
			'the older holder to wait';
			$first->query_safe($end);
			$second->wait_result;
			is($second->sqlstate, $end eq 'COMMIT' ? '40001' : '00000', "$level: an older one, after $end of a newer one");
			$second->query('ROLLBACK');
		}
	}
	$_->quit foreach $first, $second;
	return;
}

foreach my $database (qw(extension script))
{
	subtest "zk_fence() of the $database accepts, refuses and waits as the table of cases says" => sub { test($database) };
}

subtest 'the table zk_fences is the same in the extension and the script' => sub {
	my ($extension, $plain) = map { $node->safe_psql($_, <<~'SQL') } qw(extension script);
		SELECT attname, format_type(atttypid, atttypmod), attnotnull FROM pg_attribute
		WHERE attrelid = 'zklock.zk_fences'::regclass AND attnum > 0 ORDER BY attnum;
		SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint
		WHERE conrelid = 'zklock.zk_fences'::regclass AND contype IN ('c', 'p') ORDER BY conname;
		SQL
	is($plain, $extension, 'columns and constraints');
	like($plain, qr/^zk_fences_pkey\|PRIMARY KEY \(root, name\)$/m, 'a row for each root and name');
};

subtest 'zk_fence() of the script keeps the tokens of each root apart' => sub {
	my $session = background($node, database => 'script', user => 'worker');
	is(raises($session, "SELECT zklock.zk_fence('elsewhere', 9, '/team')"), 'none', 'the same name below another root');
	is(raises($session, "SELECT zklock.zk_fence('elsewhere', 9, '/zklock')"),
		'40001 a newer holder of lock "elsewhere" has been here', 'without a root the default root is meant');
	is(raises($session, "SELECT zklock.zk_fence('elsewhere', 9, NULL)"), '22004 root must not be null', 'a NULL root is refused');
};

subtest 'the comparison of tokens is the same in the extension and the script' => sub {
	my ($extension, $plain) = map {
		$node->safe_psql($_, q{SELECT prosrc FROM pg_proc WHERE proname = '_zk_fence_compare'}) =~ s/^\s*HINT = .*?;\n//msgr
	} qw(extension script);
	is($plain, $extension, 'the functions are the same but for hints');
};

subtest 'a dump by the owner of the database keeps the tokens of the script' => sub {
	my $dump = PostgreSQL::Test::Utils::tempdir_short() . '/dump';
	command_ok([ 'pg_dump', '-d', $node->connstr('script'), '-U', 'owner', '-f', $dump ], 'the owner dumps the database');
	$node->safe_psql('postgres', 'CREATE DATABASE restored OWNER owner');
	command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('restored'), '-U', 'owner', '-f', $dump ],
		'the owner restores the dump');
	my $session = background($node, database => 'restored', user => 'worker');
	is(raises($session, "SELECT zklock.zk_fence('elsewhere', 9)"),
		'40001 a newer holder of lock "elsewhere" has been here', 'an old token is refused in the restored database');
};

done_testing();
