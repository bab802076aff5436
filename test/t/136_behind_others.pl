
# zklock works behind another library that uses the same hooks of PostgreSQL, and passes on what
# that library has asked for. Tested with pg_stat_statements loaded ahead of zklock.

use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $name = 'pg_stat_statements';
my ($directory) = run_command([ 'pg_config', '--pkglibdir' ]);
plan skip_all => "there is no $name" unless -e "$directory/$name.so";

my $node = cluster('berlin', $zk, 'shared_preload_libraries' => 'pg_stat_statements, zklock');
$node->safe_psql('postgres', 'CREATE EXTENSION pg_stat_statements; CREATE TABLE work (n int)');
my ($session, $other) = map { background($node) } 1 .. 2;
$session->query_safe("SELECT zk_lock('a')");
start_in_queue($other, "SELECT zk_lock('a')", $zk, lock_path('a'), 2);
$session->query_safe('DISCARD ALL');
assert_ends($other, '00000', 'DISCARD ALL lets go of a lock, which is handed over');
$other->query_safe("BEGIN; INSERT INTO work VALUES (1); PREPARE TRANSACTION 'p'");
$other->query_safe("COMMIT PREPARED 'p'");
is($node->safe_psql('postgres', 'SELECT n FROM work'), 1, 'COMMIT PREPARED, with a lock held');
is( $node->safe_psql('postgres',
		"SELECT count(*) FROM pg_stat_statements WHERE query IN ('DISCARD ALL', 'SELECT zk_lock(\$1)')"),
	2, 'the other library has seen both statements');
is($node->safe_psql('postgres', 'SELECT count(*) > 0 FROM zk_backends'), 't', 'zklock has its shared memory, too');

done_testing();
