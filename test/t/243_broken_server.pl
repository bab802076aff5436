
# A server that grants sessions, and whose answers make no sense, costs a session and two
# programs with each request, for another one ends the session. A call ends all the same after
# zklock.connect_timeout, with an error that says so, and does not start one program after the
# other meanwhile. Tested with a fake that spoils each answer.

use Liar;
use ZkLockTest;

# Of a call, in seconds; and what a busy machine adds, beside the time for which a new
# session may wait to be connected, which is the same again.
my $timeout = 3;
my $most_seconds = 2 * $timeout + 10;

# Programs that a call starts in that time. Between its sessions there are 0, 0, 0.1, 0.2,
# 0.4, 0.8, 1 s.
my $most_programs = 18;

# What is said to everything, and nothing behind it.
my %answer = ('all is well' => 0, 'a failure' => -1, 'no connection' => -4, 'moved' => -118);

my $zk = ZooKeeper->new(tick_time => 250)->start;
my $liar = Liar->new('127.0.0.1:' . $zk->port);
my $node = cluster('berlin', $zk,
	servers => $liar->address,
	'statement_timeout' => '20s',
	'zklock.connect_timeout' => "${timeout}s", 'zklock.session_timeout' => '5s');
my $session = background($node);

# With a session from before, and without; those that have no bound of their own, too.
$session->query_safe("SELECT zk_lock('a'), zk_unlock('a')");
foreach my $what (sort keys %answer)
{
	$liar->answer_all_with($answer{$what});
	foreach my $sql ("SELECT zk_try_lock('a')", "SELECT zk_lock('a')", "SELECT zk_run_once('a', 'today')",
		"SELECT zk_hold('a', 'because')")
	{
		my ($began, $before) = (time, $liar->nconnections);
		$session->query($sql);
		in_time(time - $began, $most_seconds, "$what: $sql ends in time");
		like($session->sqlstate, qr/^(?:08...|5[38]...)$/, 'the call raises an error about ZooKeeper')
		  or diag($session->error);
		cmp_ok($liar->nconnections - $before, '<=', $most_programs, 'the call starts few programs')
		  or diag($session->error);
	}
}

$liar->be_honest;
assert_soon { ($session->query("SELECT zk_lock('a')") // '') =~ /^\d+$/ } 'the next call that meets a good server has the lock', 30;
assert_leave_nothing($zk, lock_path('a'), $session);
done_testing();
