
# At the end of ZooKeeper's sequence counter, zklock refuses the lock rather than guess which
# contender is first, and the hint says how the counter starts again. The counter is set in the
# files of a real server that is stopped.

use File::Basename qw(dirname);
use ZkLockTest;

plan skip_all => 'this Java has no compiler'
  unless ZooKeeper::can_set_counters();

# What the documentation says is what must be.
my $design = slurp_file(
	dirname($INC{'ZooKeeper.pm'}) . '/../../docs/operations.md');
my ($limit) = $design =~ /^From (\d+) on, zklock refuses/m;
my $last = 2**31 - 1;
my $uuid = '6ba7b810-9dad-41d1-80b4-00c04fd430c8';

my $zk = ZooKeeper->new->start;

my %counter = (refused => $limit - 1, stuck => $last);
my $stranger = $zk->client;
$stranger->create_path(lock_path('foreign'));
$stranger->create_path(lock_path($_)) foreach keys %counter;
$stranger->close;
$zk->set_counters(map { (lock_path($_), $counter{$_}) } keys %counter);
$stranger = $zk->client;

my %node = map { $_ => cluster($_, $zk, 'zklock.session_timeout' => '60s') }
  qw(berlin paris);
my ($holder, $waiter) = map { background($node{$_}) } qw(berlin paris);

# The number of the one lock that a session holds.
sub number ($session) { return $session->query_safe('SELECT right(node, 10)::bigint FROM zk_session_locks'); }

sub unlock
{
	$_->query_safe('SELECT zk_unlock_all()') foreach @_;
	return;
}

# No kind of lock is granted with a number that others cannot be compared with.
subtest 'locks are refused when their sequence counter is at its end' => sub {
	$holder->query_safe("SELECT zk_lock('refused')");
	is(number($holder), $limit - 1, 'the last number below it is granted');
	assert_query($waiter, "SELECT zk_lock('refused', '30 s')", '54000', 'a contender behind the last number is refused at once');
	assert_held($holder, 'refused', 'the holder keeps the lock');
	unlock($holder);
	foreach my $sql ("zk_lock('refused')", "zk_try_lock('refused')",
		"zk_xact_lock_shared('refused', '1 s')", "zk_lock('refused', permits => 2)",
		"zk_lock('stuck')", "zk_try_lock('stuck')")
	{
		assert_query($waiter, "SELECT $sql", '54000', "$sql is refused");
	}
	like($waiter->error, qr/sequence numbers of lock "stuck" are used up/, 'the error says that the sequence numbers are used up');
	assert_no_nodes($zk, lock_path($_), 'nothing of ours is left') foreach qw(refused stuck);
};

subtest 'the hint names the znode whose deletion starts the counter again' => sub {
	$waiter->query("SELECT zk_lock('refused')");
	my ($path) = $waiter->error =~ /\nHINT:  .*"delete (.*)" in ZooKeeper's zkCli.sh/;
	is($path, lock_path('refused'), 'the hint has the path of the lock');
	assert_no_nodes($zk, $path);
	$stranger->delete($path);
	$holder->query_safe("SELECT zk_lock('refused')");
	is(number($holder), 0, 'the counter starts again when the znode was deleted');
	unlock($holder);
	assert_no_nodes($zk, $path);
};

# What another client's counter has come to, with numbers in no order any more.
foreach my $number ('-000000005', '-2147483648', $last, $limit)
{
	subtest "a lock with a contender numbered $number is refused" => sub {
		my $path = lock_path('foreign');
		my $theirs =
		  $stranger->create("$path/_c_$uuid-lock-$number", '', ephemeral => 1);
		foreach my $sql ("zk_lock('foreign')", "zk_try_lock('foreign')",
			"zk_lock_shared('foreign')", "zk_try_lock('foreign', permits => 2)")
		{
			assert_query($waiter, "SELECT $sql", '54000', "$sql is refused");
		}
		wait_for_queue($zk, $path, 1);
		$stranger->delete($theirs);
		is($waiter->query_safe("SELECT zk_try_lock('foreign')"), 't', 'the lock is granted when that contender is gone');
		unlock($waiter);
		assert_no_nodes($zk, $path);
	};
}

done_testing();
