
# Privileges by name and fences survive a dump that is restored in a database of another
# encoding, and a copy of a template database. Names stay closed in each case, also where the
# other database lacks their characters. Tested with pg_dump and psql.

use PostgreSQL::Test::Utils qw(run_log);
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk, extension => undef);
$node->safe_psql('postgres', 'CREATE ROLE bob LOGIN; CREATE ROLE payroll');

sub database ($name, $encoding)
{
	$node->safe_psql('postgres', "CREATE DATABASE $name TEMPLATE template0 ENCODING '$encoding' LOCALE 'C'");
	return;
}

# The rows of one database in another, which is made for them; what fails there fails.
sub restore ($from, $to, $encoding)
{
	my $file = $node->basedir . "/$from.sql";
	ok(run_log([ 'pg_dump', '-d', $node->connstr($from), '-f', $file ]), "$from is dumped");
	database($to, $encoding);
	ok(run_log([ 'psql', '-qX', '-d', $node->connstr($to), '-f', $file ]), "$from is restored in $encoding");
	return;
}

# U+FF13, which has two spellings in EUC_TW.
my $three = "convert_from('\\xefbc93', 'UTF8')";
database('tw', 'EUC_TW');
$node->safe_psql('tw', 'CREATE EXTENSION zklock');
my $writer = background($node, database => 'tw');
$writer->query_safe("SELECT zk_grant('lock', $three, 'payroll'), zk_grant('lock', 'open', 'bob'), zk_fence($three, 3)");
subtest 'a dump from EUC_TW restored in UTF8 keeps privileges and fences' => sub {
	restore('tw', 'tw_utf8', 'UTF8');
	my ($super, $bob) = map { background($node, database => 'tw_utf8', user => $_) } 'postgres', 'bob';
	assert_query($bob, "SELECT zk_try_xact_lock($three)", '42501', 'the name is closed');
	assert_query($bob, "SELECT zk_try_xact_lock('open')", '00000', 'a granted name is granted in the restored database');
	assert_query($super, "SELECT zk_fence($three, 2)", '40001', 'an old token is refused in the restored database');
	is($super->query_safe("SELECT count(*) FROM zk_fences"), 1, 'zk_fences has one row');
};

# The rows are loaded as a whole, or not at all.
subtest 'a dump from UTF8 restored in LATIN1, which lacks a character, closes all names' => sub {
	database('letters', 'UTF8');
	$node->safe_psql('letters', 'CREATE EXTENSION zklock');
	$writer = background($node, database => 'letters');
	$writer->query_safe("SELECT zk_grant('lock', 'pay', 'payroll'), zk_grant('none', convert_from('\\xd096', 'UTF8'), 'public')");
	restore('letters', 'latin', 'LATIN1');
	my ($super, $bob) = map { background($node, database => 'latin', user => $_) } 'postgres', 'bob';
	is($super->query_safe('SELECT count(*) FROM zk_closed'), 0, 'the rows are not there');
	assert_query($bob, "SELECT zk_try_xact_lock('$_')", '42501', "lock $_ is closed all the same") foreach qw(pay other);
	like($bob->error, qr/DETAIL:  All names are closed, because .* the rows of zk_closed are lost/, 'the DETAIL says that the rows of zk_closed are lost');
	my $closed = "SELECT state FROM zk_check(false) WHERE item = 'closed prefixes'";
	is($super->query_safe($closed), 'error', 'zk_check() says so, too');
	$super->query_safe("SELECT zk_grant('lock', 'pay', 'bob')");
	is($super->query_safe($closed), '', 'zk_check() is silent when rows are there again');
	assert_query($bob, "SELECT zk_try_xact_lock('pay')", '00000', 'a name that is granted again can be locked');
	assert_query($bob, "SELECT zk_try_xact_lock('other')", '42501', 'all other names stay closed');
	$super->query_safe("SELECT zk_open('')");
	assert_query($bob, "SELECT zk_try_xact_lock('other')", '00000', "all names are open after zk_open('')");
};

subtest 'a dump of a database whose names were opened leaves them open' => sub {
	$writer->query_safe("SELECT zk_open('pay'), zk_open(prefix) FROM zk_closed WHERE prefix <> 'pay'");
	is($writer->query_safe('SELECT count(*) FROM zk_closed'), 0, 'no row is left');
	restore('letters', 'opened', 'LATIN1');
	my $bob = background($node, database => 'opened', user => 'bob');
	assert_query($bob, "SELECT zk_try_xact_lock('other')", '00000', 'other names stay open in the restored database');
	$writer->query_safe("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM zk_closed");
	$node->safe_psql('letters', "SELECT zk_grant('lock', 'pay', 'payroll')");
	$writer->query_safe("SELECT zk_grant('lock', 'pay/a', 'payroll'); COMMIT");
	is($writer->query_safe("SELECT string_agg(prefix, ' ' ORDER BY prefix) FROM zk_closed"), 'pay pay/a',
		'a transaction with an older snapshot closes both prefixes');
};

subtest 'a database made from a template has its privileges' => sub {
	$writer->quit;
	$node->safe_psql('postgres', 'CREATE DATABASE copy TEMPLATE letters');
	my $bob = background($node, database => 'copy', user => 'bob');
	assert_query($bob, "SELECT zk_try_xact_lock('pay')", '42501', 'a closed name stays closed in the copy');
};

done_testing();
