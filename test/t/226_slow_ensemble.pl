
# Where each answer takes longer than a third of the session timeout, no proof is
# ever fresh. A commit says so instead of asking for ever.

use Proxy;
use ZkLockTest;

my $zk = ZooKeeper->new(tick_time => 200)->start;
my $slow = Proxy->new($zk->connect_string, delay => 0.2);
my $node = cluster('berlin', $zk, 'zklock.session_timeout' => '1s');
$node->safe_psql('postgres', 'CREATE TABLE work (i int)');

foreach my $guard (qw(lease quorum))
{
	my $session = background($node);
	$session->query_safe("SET zklock.servers = '" . $slow->address . "';
		SET zklock.commit_guard = $guard");
	poll_until { $session->query("SELECT zk_lock('slow')"); $session->sqlstate eq '00000' } 'the proxy', 30;
	# On a busy machine a session of a second may be lost.
	foreach (1 .. 10)
	{
		$session->query('INSERT INTO work VALUES (1)');
		last if $session->sqlstate ne '40001';
		note("again: " . $session->error);
		poll_until { $session->query("SELECT zk_unlock_all(), zk_lock('slow')"); $session->sqlstate eq '00000' }
		'another one', 30;
	}
	is($session->sqlstate, '08006', "$guard: refused");
	like($session->error, qr/could not prove.*HINT:  Increase/s, 'with the reason');
	is($session->query_safe("SELECT state FROM zk_locks"), 'held', 'the lock is not lost');
}
is($node->safe_psql('postgres', 'SELECT count(*) FROM work'), '0', 'nothing is written');
done_testing();
