
# A message is written once, and what it tells of is done, also if the statement is canceled just as
# the log is written: PostgreSQL looks for interrupts behind each message. Tested with libraries that
# cancel a process as it writes certain words, or gets an answer.

use File::Basename qw(dirname);
use Preload;
use Proxy;
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

# A call that ends with an error has made nothing, or undone it, also if the cancellation came with the
# last answer: with the reply to the lease, or to its renewal, and with a grant.
my $proxy = Proxy->new($zk->connect_string);
my $file = PostgreSQL::Test::Utils::tempdir() . '/cancel';
my $node = cluster('undone', $zk,
	servers => $proxy->address,
	environment => { LD_PRELOAD => Preload::library('canceled_by_reply'), ZKLOCK_TEST_CANCELED_IF => $file });

chmod 0777, dirname($file);
sub cancel_at_reply { return PostgreSQL::Test::Utils::append_to_file($file, ''); }

subtest 'a call that is canceled with the reply to its lease leaves none' => sub {
	my $owner = background($node);
	$owner->query_safe("SELECT zk_release_lease('made', zk_try_lease('made', 'app', '1h'))");
	$proxy->trap(14, 1, 'replies');    # multi, that makes the lease
	$owner->start_query("SELECT zk_try_lease('made', 'app', '1h')");
	assert_soon { join('', queue_nodes($zk, lock_path('made'))) =~ /-8a14-/ } 'the lease is made';
	cancel_at_reply();
	$proxy->heal;
	assert_ends($owner, '57014', 'the call is canceled');
	ok(!-e $file, 'as it got something');
	assert_no_nodes($zk, lock_path('made'), 'the lease is deleted');
	like($owner->query_safe("SELECT zk_try_lease('made', 'app', '1h')"), qr/^\d+$/, 'the next call gets one');
	$owner->quit;
};

# Another call of the owner has found it, and renewed it, which has told a client its token.
subtest 'a call that is canceled with the reply to its renewal leaves the lease to others' => sub {
	my $owner = background($node);
	$owner->query_safe("SELECT zk_release_lease('found', zk_try_lease('found', 'app', '1h'))");
	$proxy->trap(14, 1, 'replies');
	$owner->start_query("SELECT zk_try_lease('found', 'app', '1h')");
	assert_soon { join('', queue_nodes($zk, lock_path('found'))) =~ /-8a14-/ } 'the lease is made';
	my $token = $plain->query_safe("SELECT zk_try_lease('found', 'app', '1h')");
	$proxy->trap(5, 1, 'replies');    # setData, that renews it
	$proxy->come_back;
	poll_until { $proxy->is_sprung } 'it to be renewed', 30;
	cancel_at_reply();
	$proxy->heal;
	assert_ends($owner, '57014', 'the call is canceled');
	poll_until { $owner->query_safe('SELECT pending_requests FROM zk_session') eq '0' } 'what it has made to be given up', 30;
	is($plain->query_safe("SELECT zk_renew_lease('found', $token, '1h')"), 't', 'the other call has its lease');
	$owner->quit;
};

subtest 'a waiter that is canceled with the grant has no lock' => sub {
	my ($holder, $waiter) = map { background($node) } 1 .. 2;
	$holder->query_safe("SELECT zk_lock('granted')");
	start_in_queue($waiter, "SELECT zk_lock('granted')", $zk, lock_path('granted'), 2);
	poll_until { $holder->query_safe("SELECT count(*) FROM zk_backends WHERE waiting_for = 'granted'") eq '1' } 'it to wait';
	my $pid = $waiter->pid;
	kill 'STOP', $pid or die "could not stop it: $!";
	poll_until { slurp_file("/proc/$pid/stat") =~ /\) T / } 'it to stop';
	$holder->query_safe("SELECT zk_unlock('granted')");
	$waiter->cancel;
	kill 'CONT', $pid;
	assert_ends($waiter, '57014', 'the wait is canceled');
	is($waiter->query_safe('SELECT count(*) FROM zk_session_locks'), 0, 'it holds nothing');
	assert_no_nodes($zk, lock_path('granted'), 'and is in no queue');
	$_->quit foreach $holder, $waiter;
};

done_testing();
