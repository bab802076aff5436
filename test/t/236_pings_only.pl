
# A session that gets no answer for its timeout is lost, though its server grants it and answers
# pings: no call hangs, nothing commits, and once there is an honest server nothing is left.
# Tested with a fake between the session and a real server that answers everything as if it were
# a ping.

use Liar;
use ZkLockTest;

my $timeout = 4;
my $zk = ZooKeeper->new->start;
my $liar = Liar->new('127.0.0.1:' . $zk->port);
my $node = cluster('berlin', $zk,
	servers => $liar->address,
	'zklock.session_timeout' => "${timeout}s");
$node->safe_psql('postgres', 'CREATE TABLE work (n int)');

my %session = map { $_ => background($node) } qw(asks waits commits idles);
$session{idles}->query_safe("SELECT zk_lock('busy')");
$session{asks}->query_safe("SELECT zk_lock('asked')");
$session{commits}->query_safe("SET zklock.commit_guard = 'quorum';
	BEGIN; SELECT zk_xact_lock('commit'); INSERT INTO work VALUES (1)");
start_in_queue($session{waits}, "SELECT zk_lock('busy')", $zk, lock_path('busy'), 2);

$liar->answer_pings_only;
my $since = time;
$session{asks}->start_query("SELECT zk_is_held('asked')");
$session{commits}->start_query('COMMIT');
foreach my $who (qw(asks commits))
{
	my $result = $session{$who}->wait_result;
	# The question may be answered before it is cancelled.
	ok($session{$who}->sqlstate eq '40001' || $result eq 'f',
		"the session that $who is told of the loss");
	in_time(time - $since, 5 * $timeout, 'the loss is told not long after the session timeout');
}
is($session{commits}->sqlstate, '40001', 'the commit is refused');
like(
	$session{commits}->error,
	qr/kept the session, and answered none of its requests/, 'the error says that the server answered no requests');
is(ask($node, 'SELECT count(*) FROM work'), '0', 'nothing is committed');

$liar->be_honest;
$session{idles}->query("SELECT zk_unlock_all()");
like($session{waits}->wait_result, qr/^\d+$/, 'the waiter has the lock in the end');
$session{waits}->query_safe("SELECT zk_unlock_all()");
$session{$_}->query('ROLLBACK; SELECT zk_unlock_all()') foreach qw(asks commits);
assert_no_nodes($zk, lock_path($_), "no node of $_ is left") foreach qw(asked commit busy);

done_testing();
