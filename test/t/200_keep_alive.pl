
# A backend that works, sleeps, waits for PostgreSQL, or is idle for longer than the session
# timeout keeps its ZooKeeper session and its locks. The statements here run for twice the
# session timeout, against a real server.

use Patience qw(steady);
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $timeout = steady(3);
my $berlin = cluster('berlin', $zk, 'zklock.session_timeout' => $timeout . 's');
my $paris = cluster('paris', $zk);
my $seconds = 2 * $timeout + 1;

my $blocker = background($berlin, first => 'CREATE TABLE work (done boolean);
	INSERT INTO work VALUES (false); BEGIN; LOCK TABLE work');

my %workload = (
	sleep => "SELECT pg_sleep($seconds)",
	busy => "DO \$\$ DECLARE until timestamptz := clock_timestamp() + '$seconds s';
		BEGIN WHILE clock_timestamp() < until LOOP END LOOP; END \$\$",
	# One query in C, without a look at the clock in between.
	query => 'SELECT count(*) FROM generate_series(1, 10000) a,
		generate_series(1, ' . 500 * $timeout . ') b',
	blocked => 'SELECT * FROM work',
	idle => undef);

# The ephemeral nodes of a lock, once there are so many: ZooKeeper's "dump" may be older than
# what a queue shows.
sub nodes ($name, $count)
{
	my @nodes;
	poll_until { @nodes = $zk->ephemerals(lock_path("$name/")); @nodes == $count } "$count nodes", 30;
	return \@nodes;
}

my (%session, %before, %id);
my $look = 'SELECT session_id, session_timeout_ms, state FROM zk_session';
foreach my $name (sort keys %workload)
{
	$session{$name} = background($berlin, holds => $name);
	$id{$name} = $session{$name}->query_safe($look);
	like($id{$name}, qr/\|${timeout}000\|connected$/, "$name: a session of $timeout s");
	$before{$name} = nodes($name, 1);
}

# One that stands in a queue for that long, too, and keeps its place.
my $waiter = background($berlin);
start_in_queue($waiter, "SELECT zk_lock('sleep')", $zk, lock_path('sleep'), 2);
$before{sleep} = nodes('sleep', 2);

$session{$_}->start_query($workload{$_}) foreach grep { $workload{$_} } sort keys %workload;
my $rival = background($paris);
my $tries = 'SELECT ' . join ', ', map { "zk_try_lock('$_')" } sort keys %workload;
my $in_vain = join '|', ('f') x keys %workload;
is($rival->query_safe($tries), $in_vain, 'nobody else gets the locks at the beginning');
$session{sleep}->wait_result;
is($rival->query_safe($tries), $in_vain, 'nobody else gets the locks after twice the session timeout');
$blocker->query_safe('COMMIT');

foreach my $name (sort keys %workload)
{
	$session{$name}->wait_result if $workload{$name} && $name ne 'sleep';
	is_deeply([ $zk->ephemerals(lock_path($name) . '/') ],
		$before{$name}, "$name: same node, same owner");
	is($session{$name}->query_safe($look), $id{$name}, "$name: same session");
	assert_held($session{$name}, $name, "$name: still held");
	is($session{$name}->query_safe("SELECT zk_unlock('$name')"),
		't', "$name: released");
}
assert_ends($waiter, '00000', 'the waiter is granted');
$waiter->query_safe("SELECT zk_unlock('sleep')");
assert_no_nodes($zk, lock_path($_), "$_: nothing left")
  foreach sort keys %workload;

done_testing();
