
# Each kind of wait for ZooKeeper has a name in pg_stat_activity, from PostgreSQL 17 on, so that
# a busy lock is told from an ensemble that is slow or unreachable. Tested with a proxy that
# holds up requests or replies of a real server.

use Proxy;
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $proxy = Proxy->new($zk->connect_string);
my $node = cluster('berlin', $zk,
	servers => $proxy->address,
	'zklock.session_timeout' => '60s',
	'zklock.connect_timeout' => '60s');
plan skip_all => 'waits of extensions have no names before PostgreSQL 17'
  if pg_major($node) < 17;

my $holder = background($node);
my $session = background($node);

# A statement that waits for that event until it gets what it needs.
sub waits_for ($event, $sql, $end)
{
	$session->start_query($sql);
	wait_for_event($node, $session->pid, $event);
	pass("$sql waits for $event");
	$end->();
	assert_ends($session, '00000', 'the statement ends without an error');
	return;
}

$proxy->cut;
waits_for('ZkLockConnect', "SELECT zk_lock('free')", sub { $proxy->heal; });
$proxy->cut('replies');
waits_for('ZkLockRequest', "SELECT count(*) FROM zk_lock_queue('free')", sub { $proxy->heal; });

$holder->query_safe("SELECT zk_lock('busy')");
waits_for('ZkLockAcquire', "SELECT zk_lock('busy')",
	sub { $holder->query_safe("SELECT zk_unlock('busy')"); });

$session->query_safe("SET zklock.commit_guard = 'quorum'");
$session->query_safe('BEGIN; CREATE TABLE guarded (a int)');
$proxy->cut('replies');
waits_for('ZkLockCommit', 'COMMIT', sub { $proxy->heal; });

$holder->query_safe("SELECT zk_lock('again')");
$session->start_query("SELECT zk_lock('again')");
wait_for_event($node, $session->pid, 'ZkLockAcquire');
$proxy->go_away;
wait_for_event($node, $session->pid, 'ZkLockConnect');
$proxy->heal;
wait_for_event($node, $session->pid, 'ZkLockAcquire');
pass('a waiter waits for its connection when that is gone');
$holder->query_safe('SELECT zk_unlock_all()');
$session->wait_result;
$session->query_safe('SELECT zk_unlock_all()');

is( $node->safe_psql('postgres',
		"SELECT string_agg(name, ' ' ORDER BY name) FROM pg_wait_events
		 WHERE type = 'Extension' AND name LIKE 'ZkLock%'"),
	'ZkLockAcquire ZkLockCommit ZkLockConnect ZkLockRequest',
	'these are all there are');

done_testing();
