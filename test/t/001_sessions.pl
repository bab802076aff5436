
# Sessions that the harness opens: one that stood idle for longer than a query may take still
# answers, one whose cluster has crashed says so, and sessions use TLS if the environment asks for
# it. Tested against a real cluster and a real ZooKeeper server.

use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk, restart_after_crash => 'on');
my $session = background($node);
# As if it had stood there for so long.
$session->{timeout}->end_time(time - 1);
is($session->query_safe('SELECT 1'), '1', 'a session that stood idle answers');
$session->query_safe("SELECT zk_lock('any')");
my $program = $session->query_safe('SELECT program_pid FROM zk_session');
like(slurp_file("/proc/$program/comm"), qr/^zklock-session/, 'it has a program');
is($session->query_safe('SELECT ssl FROM zk_session'), $ENV{ZKLOCK_TEST_TLS} ? 't' : 'f', 'with TLS if it should');

my $other = background($node);
is(ask($node, 'SELECT 1'), '1', 'a session that is kept for questions answers');
kill 'KILL', $other->pid;
wait_for_recovery($node, $other->pid);
$session->query('SELECT 1');
is($session->sqlstate, '08006', 'a session whose backend has ended with its cluster says so');
is(ask($node, 'SELECT 1'), '1', 'questions are asked in a new session behind a crash');

done_testing();
