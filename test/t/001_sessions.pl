
# Sessions that the harness opens: one that stood idle for longer than a query may take still
# answers, and sessions use TLS if the environment asks for it. Tested against a real cluster and
# a real ZooKeeper server.

use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk);
my $session = background($node);
# As if it had stood there for so long.
$session->{timeout}->end_time(time - 1);
is($session->query_safe('SELECT 1'), '1', 'a session that stood idle answers');
$session->query_safe("SELECT zk_lock('any')");
my $program = $session->query_safe('SELECT program_pid FROM zk_session');
like(slurp_file("/proc/$program/comm"), qr/^zklock-session/, 'it has a program');
is($session->query_safe('SELECT ssl FROM zk_session'), $ENV{ZKLOCK_TEST_TLS} ? 't' : 'f', 'with TLS if it should');

done_testing();
