
# A message is written once, and what it tells of is done, also if the statement is canceled just as
# the log is written: PostgreSQL looks for interrupts behind each message. Tested with a library that
# cancels a process as it writes certain words.

use Preload;
use ZkLockTest;

my $library = Preload::library('canceled_by_log') or plan skip_all => 'there is no compiler';
my $zk = ZooKeeper->new->start;
my $plain = background(cluster('plain', $zk));

# A session of a cluster that is canceled as it writes these words, and how often its log has them.
my $count = 0;

sub canceled_at ($words, %setting)
{
	my $node = cluster('canceled' . ++$count, $zk, %setting,
		environment => { LD_PRELOAD => $library, ZKLOCK_TEST_CANCELED_AT => $words });
	return (background($node), sub { return scalar(() = slurp_file($node->logfile) =~ /\Q$words\E/g); });
}

subtest 'a deleted queue node is told once' => sub {
	my ($holder, $written) = canceled_at('LOG:  queue node of process', 'zklock.commit_guard' => 'quorum');
	$holder->query_safe('BEGIN');
	$holder->query_safe("SELECT zk_xact_lock('evicted')");
	$plain->query_safe("SELECT zk_evict('evicted', token) FROM zk_lock_queue('evicted')");
	$holder->query('COMMIT');
	# The latter if the interrupt for the loss comes just then, too.
	like($holder->sqlstate, qr/^(?:57014|40001)$/, 'the commit is canceled, or refused');
	poll_until { $holder->query_safe('SELECT pending_requests FROM zk_session') eq '0' } 'the deletion to be answered', 30;
	is($holder->query("SELECT zk_try_lock('other')"), 't', 'the session goes on');
	is($holder->error, '', 'and is not told again');
	is($written->(), 1, 'the log has the loss once');
	is($holder->query_safe(q(SELECT deleted_nodes FROM zk_stat WHERE datname = 'postgres')), 1, 'it is counted once');
	$holder->quit;
};

subtest 'a client of another style is told of once' => sub {
	my ($waiter, $written) = canceled_at('a contender of style "kazoo" may ignore');
	my $stranger = $zk->client;
	$stranger->create_path(lock_path('style'));
	$stranger->contend(lock_path('style/6ba7b8109dad11d180b400c04fd430c8__lock__'));
	assert_query($waiter, "SELECT zk_lock('style', '10s')", '57014', 'the statement is canceled');
	is($written->(), 1, 'it was told');
	assert_query($waiter, "SELECT zk_lock('style', '10ms')", '55P03', 'another one waits');
	is($written->(), 1, 'it is not told again');
	$waiter->quit;
};

subtest 'a lease that is taken is in the log' => sub {
	my ($owner, $written) = canceled_at('a lock taken in a transaction with a fixed snapshot', 'zklock.log_locks' => 'all');
	$owner->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ');
	$owner->query_safe('SELECT count(*) FROM pg_class');
	assert_query($owner, "SELECT zk_try_lease('lease', 'app', '1min')", '57014', 'the statement is canceled');
	is($written->(), 1, 'by the warning');
	like(slurp_file($owner->node->logfile), qr/ holds a lease of ZooKeeper lock "lease"\n/, 'the log has the lease');
	is($plain->query_safe("SELECT owner FROM zk_leader('lease')"), 'app', 'which is there');
	$owner->quit;
};

# As when the cancellation comes with the last reply.
subtest 'a call that is canceled when it has made its lease leaves none' => sub {
	my ($owner, $written) = canceled_at(': taken', 'log_min_messages' => 'debug1');
	assert_query($owner, "SELECT zk_try_lease('made', 'app', '1h')", '57014', 'the statement is canceled');
	is($written->(), 1, 'the lease was made');
	assert_no_nodes($zk, lock_path('made'), 'it is deleted');
	like($owner->query_safe("SELECT zk_try_lease('made', 'app', '1h')"), qr/^\d+$/, 'the next call gets one');
	$owner->quit;
};

done_testing();
