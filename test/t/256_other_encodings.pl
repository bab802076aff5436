
# Fences survive a dump that is restored in a database of another encoding, and a lease is its
# owner's there whatever characters he has. Tested with pg_dump and psql.

use PostgreSQL::Test::Utils qw(run_log);
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk, extension => undef);

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
$writer->query_safe("SELECT zk_fence($three, 3)");
subtest 'a dump from EUC_TW restored in UTF8 keeps fences' => sub {
	restore('tw', 'tw_utf8', 'UTF8');
	my $super = background($node, database => 'tw_utf8');
	assert_query($super, "SELECT zk_fence($three, 2)", '40001', 'an old token is refused in the restored database');
	is($super->query_safe("SELECT count(*) FROM zk_fences"), 1, 'zk_fences has one row');
};

# A backslash and a "u" are two characters of the owner, and no escape of JSON.
subtest 'an owner with a backslash has a lease in a database that is not UTF8' => sub {
	database('latin', 'LATIN1');
	$node->safe_psql('latin', 'CREATE EXTENSION zklock');
	my ($first, $second) = map { background($node, database => 'latin') } 1 .. 2;
	my $take = q(SELECT zk_try_lease('latin', 'DOM\user', '60s'));
	my $token = $first->query_safe($take);
	is($second->query_safe($take), $token, 'another session finds it');
	is($second->query_safe("SELECT zk_release_lease('latin', $token)"), 't', 'and gives it up');
};

done_testing();
