
# Another library of the backend takes the handler of SIGCHLD away, as interpreters of procedural
# languages do. The end of a session's program, which is a child of the backend, interrupts the
# statement all the same.

use Preload;
use ZkLockTest;

my $library = Preload::library('other_handler') or plan skip_all => 'there is no compiler';
my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk, environment => { LD_PRELOAD => $library });

my $session = background($node, holds => 'lost');
is($session->query_safe("SELECT count(*) FROM pg_ls_dir('other_handler', true, false)"),
	'0', 'the handler is taken away');
$session->start_query('SELECT pg_sleep(600)');
wait_for_sleep($node, $session->pid);
kill_session_program($session);
assert_ends($session, '40001', 'the statement ends with the program');

done_testing();
