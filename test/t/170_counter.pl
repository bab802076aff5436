
# The end of ZooKeeper's sequence counter, which nobody can wait for: it is set
# in the files of a server that is not running. Near the end a queue drains and
# starts again with the number 0, also if the lock is never idle; and where that
# is impossible zklock refuses the lock rather than guess who is first.

use strict;
use warnings;

use File::Basename qw(dirname);
use PostgreSQL::Test::Utils;
use Proxy;
use Test::More;
use ZkLockTest;
use ZooKeeper;

plan skip_all => 'there is no default-jdk-headless'
  unless ZooKeeper::can_set_counters();

# What the documentation says is what must be.
my $operations = slurp_file(
	dirname($INC{'ZooKeeper.pm'}) . '/../../docs/operations.md');
my ($prune) = $operations =~ /^- From (\d+) \(2\^30\) on/m;
my ($drain) = $operations =~ /^- From (\d+) on, contenders \*\*drain\*\*/m;
my ($limit) = $operations =~ /^From (\d+) on, zklock then refuses/m;
my $last = 2**31 - 1;
my $uuid = '6ba7b810-9dad-41d1-80b4-00c04fd430c8';

# Empty znodes of locks stay unless somebody deletes them.
my $zk = ZooKeeper->new(
	java_options => ['-Dznode.container.checkIntervalMs=3600000'])->start;

my %counter = (
	below => $drain - 2,
	busy => $drain - 60,
	readers => $drain - 2,
	permits => $drain - 2,
	try => $drain - 1,
	try_shared => $drain - 1,
	try_permits => $drain - 1,
	patience => $drain - 1,
	connection => $drain - 1,
	overtaken => $drain - 1,
	late => $drain - 1,
	blocked => $drain,
	'shut/lock' => $drain,
	refused => $limit - 1,
	stuck => $last,
	pruned => $prune,
	kept => $prune + 1,
	passed_on => $prune);
my $stranger = $zk->client;
$stranger->create_path(lock_path('foreign'));
# all but the right to delete children
$stranger->create(lock_path('shut'), '', acl => [ [ 23, 'world', 'anyone' ] ]);
$stranger->create_path(lock_path($_)) foreach keys %counter;
$stranger->create(lock_path("$_/note"), '') foreach qw(blocked refused);
$stranger->close;
$zk->set_counters(map { (lock_path($_), $counter{$_}) } keys %counter);
$stranger = $zk->client;

my %node = map { $_ => cluster($_, $zk, 'zklock.session_timeout' => '60s') }
  qw(berlin paris);
my @sessions = map { background($node{$_}) } qw(berlin paris berlin paris);
my ($holder, $waiter, $third, $fourth) = @sessions;

# The number of the one lock that a session holds.
sub number
{
	my ($session) = @_;
	return $session->query_safe('SELECT right(node, 10)::bigint FROM zk_locks');
}

sub unlock
{
	$_->query_safe('SELECT zk_unlock_all()') foreach @_;
	return;
}

sub node_of
{
	my ($session) = @_;
	return (grep { $_->safe_psql('postgres',
				'SELECT count(*) FROM pg_stat_activity WHERE pid = ' . $session->pid) }
		  values %node)[0];
}

# A session waits for a lock whose queue has so many nodes: its own has come, and
# is gone again.
sub wait_for_drain
{
	my ($session, $sql, $lock, $count) = @_;
	my $changes = $stranger->exists(lock_path($lock))->{cversion};
	$session->start_query($sql);
	poll_until { $stranger->exists(lock_path($lock))->{cversion} >= $changes + 2 }
	'it to come and go', 30;
	wait_for_queue($zk, lock_path($lock), $count);
	return;
}

subtest 'an idle lock starts again at the drain limit' => sub {
	my @seen;
	foreach (1 .. 4)
	{
		$holder->query_safe("SELECT zk_lock('below')");
		push @seen, number($holder);
		unlock($holder);
	}
	is("@seen", join(' ', $drain - 2, $drain - 1, 0, 1), 'numbers');
	assert_no_nodes($zk, lock_path('below'));
};

# Two clusters add to one counter that nothing but the lock protects.
subtest 'a lock that is never idle' => sub {
	my $file = "$PostgreSQL::Test::Utils::tmp_check/counter";
	my ($times, @pool) =
	  (30, map { background($node{ $_ % 2 ? 'paris' : 'berlin' }) } 1 .. 6);
	append_to_file($file, "0\n");
	$_->safe_psql('postgres', <<'SQL') foreach values %node;
CREATE TABLE turns (turn int, token bigint, number bigint);
CREATE PROCEDURE increment(file text, times int) LANGUAGE plpgsql AS $$
DECLARE
	count int;
BEGIN
	FOR i IN 1 .. times LOOP
		PERFORM zk_xact_lock('busy');
		count := pg_read_file(file);
		INSERT INTO turns SELECT count, token, right(node, 10)::bigint FROM zk_locks;
		EXECUTE format('COPY (SELECT %s) TO %L', count + 1, file);
		COMMIT;
	END LOOP;
END $$
SQL
	$_->start_query("CALL increment('$file', $times)") foreach @pool;
	$_->wait_result foreach @pool;
	is(join('', map { $_->error } @pool), '', 'nobody is lost');
	chomp(my $count = slurp_file($file));
	is($count, $times * @pool, 'nor any turn');

	my @turns = sort { $a->[0] <=> $b->[0] } map { [ split /\|/ ] }
	  map { split /\n/, $_->safe_psql('postgres', 'TABLE turns') } values %node;
	is_deeply([ map { $_->[0] } @turns ], [ 0 .. $count - 1 ], 'one at a time');
	is(scalar(grep { $turns[$_][1] <= $turns[ $_ - 1 ][1] } 1 .. $#turns),
		0, 'tokens rise');
	my @restarts =
	  grep { $turns[$_][2] < $turns[ $_ - 1 ][2] } 1 .. $#turns;
	is(scalar(@restarts), 1, 'numbers rise, and start again once');
	cmp_ok($turns[ $restarts[0] - 1 ][2], '<', $drain,
		'before the drain limit is passed');
	cmp_ok($turns[-1][2], '<', $count, 'from 0');
	assert_no_nodes($zk, lock_path('busy'));
	$_->quit foreach @pool;
};

subtest 'shared locks drain' => sub {
	$_->query_safe("SELECT zk_lock_shared('readers')") foreach $holder, $waiter;
	wait_for_drain($third, "SELECT zk_lock_shared('readers')", 'readers', 2);
	wait_for_drain($fourth, "SELECT zk_lock_shared('readers')", 'readers', 2);
	unlock($waiter);
	wait_for_queue($zk, lock_path('readers'), 1);
	ok(!$third->is_done && !$fourth->is_done, 'they wait for the last reader');
	unlock($holder);
	$_->wait_result foreach $third, $fourth;
	is(join(' ', sort map { number($_) } $third, $fourth), '0 1',
		'and hold the lock together');
	unlock($third, $fourth);
	assert_no_nodes($zk, lock_path('readers'));
};

subtest 'semaphores drain' => sub {
	my $sql = "SELECT zk_lock('permits', permits => 3)";
	$_->query_safe($sql) foreach $holder, $waiter;
	wait_for_drain($third, $sql, 'permits', 2);
	wait_for_drain($fourth, $sql, 'permits', 2);
	unlock($holder, $waiter);
	$_->wait_result foreach $third, $fourth;
	is(join(' ', sort map { number($_) } $third, $fourth), '0 1', 'numbers');
	$holder->query_safe($sql);
	is($waiter->query_safe($sql =~ s/zk_lock/zk_try_lock/r), 'f', 'it counts on');
	unlock($holder, $third, $fourth);
	assert_no_nodes($zk, lock_path('permits'));
};

my %try = (
	try => "zk_lock('try')",
	try_shared => "zk_lock_shared('try_shared')",
	try_permits => "zk_lock('try_permits', permits => 2)");
foreach my $lock (sort keys %try)
{
	subtest "a try while the queue drains: $lock" => sub {
		my $sql = 'SELECT ' . $try{$lock} =~ s/zk_/zk_try_/r;
		$holder->query_safe("SELECT $try{$lock}");
		wait_for_drain($third, "SELECT $try{$lock}", $lock, 1);
		is($waiter->query_safe($sql), 'f', 'is false with somebody there');
		wait_for_queue($zk, lock_path($lock), 1);
		is(number($holder), $drain - 1, 'nothing but the holder is left');
		unlock($holder);
		$third->wait_result;
		unlock($third);
		assert_no_nodes($zk, lock_path($lock));
	};
}

subtest 'a try may drain the queue' => sub {
	is($waiter->query_safe("SELECT zk_try_lock('stuck')"), 't', 'it gets the lock');
	is(number($waiter), 0, 'although the counter had come to its end');
	unlock($waiter);
	assert_no_nodes($zk, lock_path('stuck'));
};

subtest 'waits that end while the queue drains' => sub {
	my $path = lock_path('patience');
	$holder->query_safe("SELECT zk_lock('patience')");
	$waiter->query("SELECT zk_lock('patience', '200 ms')");
	is($waiter->sqlstate, '55P03', 'timeout');
	is($waiter->query_safe("SELECT zk_try_lock('patience', '500 ms')"),
		'f', 'of a try');
	foreach my $end ('pg_cancel_backend', 'pg_terminate_backend')
	{
		wait_for_drain($fourth, "SELECT zk_lock('patience')", 'patience', 1);
		node_of($fourth)->safe_psql('postgres', "SELECT $end(" . $fourth->pid . ')');
		$fourth->wait_result;
		isnt($fourth->sqlstate, '00000', $end);
	}
	wait_for_queue($zk, $path, 1);
	is(number($holder), $drain - 1, 'the holder is all that is left');
	unlock($holder);
	is($waiter->query_safe("SELECT zk_try_lock('patience')"), 't', 'free');
	is(number($waiter), 0, 'and started again');
	unlock($waiter);
	assert_no_nodes($zk, $path);
	$fourth = background($node{paris});
};

subtest 'the connection breaks while the queue drains' => sub {
	my $proxy = Proxy->new($zk->connect_string);
	my $session = background($node{berlin});
	$session->query_safe("SET zklock.session_timeout = '10s';
		SET zklock.servers = '" . $proxy->address . "'");
	$holder->query_safe("SELECT zk_lock('connection')");
	wait_for_drain($session, "SELECT zk_lock('connection')", 'connection', 1);
	my $watched = lock_path('connection') . '/';
	poll_until { $zk->watched_paths($watched) } 'its watch', 10;
	$proxy->refuse;
	$proxy->reset_connections;
	poll_until { !$zk->watched_paths($watched) } 'its watch to go', 30;
	unlock($holder);
	$proxy->heal;
	$session->wait_result;
	is(number($session), 0, 'it goes on when the connection is back');
	$session->quit;
	assert_no_nodes($zk, lock_path('connection'));
	$proxy->stop;
};

# While it is stopped the queue drains, and fills again with lower numbers than
# it had: these are not ahead of it.
subtest 'who is late to see that the queue has drained' => sub {
	$holder->query_safe("SELECT zk_lock('late')");
	wait_for_drain($waiter, "SELECT zk_lock('late')", 'late', 1);
	kill 'STOP', $waiter->pid;
	unlock($holder);
	$third->query_safe("SELECT zk_lock('late')");
	is(number($third), 0, 'another one starts the queue again');
	kill 'CONT', $waiter->pid;
	wait_for_queue($zk, lock_path('late'), 2);
	ok(!$waiter->is_done, 'then it joins the new queue');
	unlock($third);
	$waiter->wait_result;
	is(number($waiter), 1, 'and has its turn');
	unlock($waiter);
	assert_no_nodes($zk, lock_path('late'));
};

# Another client comes later, and takes no part in this.
subtest 'others overtake' => sub {
	$holder->query_safe("SELECT zk_lock('overtaken')");
	wait_for_drain($waiter, "SELECT zk_lock('overtaken')", 'overtaken', 1);
	my $theirs = $stranger->create(lock_path('overtaken') . "/_c_$uuid-lock-", '',
		ephemeral => 1, sequential => 1);
	my $before = $zk->packets_received;
	unlock($holder);
	# Counted as the leader sees it, which takes no packets.
	poll_until { $zk->ephemerals(lock_path('overtaken') . '/') == 2 }
	'it to queue up again', 10;
	poll_until { $zk->watched_paths($theirs) } 'it to watch', 10;
	ok(!$waiter->is_done, 'then it waits with a node again');
	# unlock; list, get, watch; create, list, watch; and some patience with heartbeats
	cmp_ok($zk->packets_received - $before, '<=', 15, 'and has not polled');
	$stranger->delete($theirs);
	$waiter->wait_result;
	is(number($waiter), $drain + 2, 'and goes on with the number it got');
	unlock($waiter);
	$holder->query_safe("SELECT zk_lock('overtaken')");
	is(number($holder), 0, 'the next one starts again');
	unlock($holder);
	assert_no_nodes($zk, lock_path('overtaken'));
};

subtest 'a child that is no contender' => sub {
	$holder->query_safe("SELECT zk_lock('blocked')");
	is(number($holder), $drain, 'it goes on with its number');
	$waiter->start_query("SELECT zk_lock('blocked')");
	wait_for_queue($zk, lock_path('blocked'), 3);
	ok(!$waiter->is_done, 'others wait');
	unlock($holder);
	$waiter->wait_result;
	is(number($waiter), $drain + 1, 'as ever');
	unlock($waiter);

	$holder->query_safe("SELECT zk_lock('refused')");
	is(number($holder), $limit - 1, 'up to the last number below the limit');
	unlock($holder);
	foreach my $sql ("zk_lock('refused')", "zk_try_lock('refused')",
		"zk_xact_lock_shared('refused', '1 s')", "zk_lock('refused', permits => 2)")
	{
		$waiter->query("SELECT $sql");
		is($waiter->sqlstate, '54000', "then $sql is refused");
	}
	like($waiter->error, qr/sequence numbers of lock "refused" are used up\n.*\nHINT:  .*delete the znode/,
		'and told why');
	poll_until { queue_nodes($zk, lock_path('refused')) == 1 }
	'nodes to go', 10;
	pass('nothing of ours is left');

	$stranger->delete_recursive(lock_path('refused'));
	$holder->query_safe("SELECT zk_lock('refused')");
	is(number($holder), 0, 'the cure of the hint works');
	unlock($holder);
	assert_no_nodes($zk, lock_path('refused'));
	$stranger->delete(lock_path('blocked/note'));
	$holder->query_safe("SELECT zk_lock('blocked')");
	is(number($holder), 0, 'so does removing what is in the way');
	unlock($holder);
};

subtest 'a deletion that is refused' => sub {
	$holder->query_safe("SELECT zk_lock('shut/lock')");
	is(number($holder), $drain + 1, 'is no reason to refuse the lock');
	wait_for_drain($waiter, "SELECT zk_lock('shut/lock')", 'shut/lock', 1);
	unlock($holder);
	$waiter->wait_result;
	is(number($waiter), $drain + 3, 'for others neither');
	unlock($waiter);
	assert_no_nodes($zk, lock_path('shut/lock'));
};

# What another client's counter has come to, with numbers in no order any more.
foreach my $number ('-000000005', '-2147483648', $last, $limit)
{
	subtest "a contender numbered $number" => sub {
		my $path = lock_path('foreign');
		my $theirs =
		  $stranger->create("$path/_c_$uuid-lock-$number", '', ephemeral => 1);
		foreach my $sql ("zk_lock('foreign')", "zk_try_lock('foreign')",
			"zk_lock_shared('foreign')", "zk_try_lock('foreign', permits => 2)")
		{
			$waiter->query("SELECT $sql");
			is($waiter->sqlstate, '54000', "$sql is refused");
		}
		wait_for_queue($zk, $path, 1);
		$stranger->delete($theirs);
		is($waiter->query_safe("SELECT zk_try_lock('foreign')"), 't',
			'not any more when it is gone');
		unlock($waiter);
		assert_no_nodes($zk, $path);
	};
}

subtest 'an idle lock is pruned halfway' => sub {
	$holder->query_safe("SELECT zk_lock('pruned'), zk_unlock('pruned')");
	poll_until { !$stranger->exists(lock_path('pruned')) } 'the znode to go', 10;
	$holder->query_safe("SELECT zk_lock('pruned')");
	is(number($holder), 0, 'and starts again');
	unlock($holder);

	$holder->query_safe("SELECT zk_lock('kept'), zk_unlock('kept')");
	assert_no_nodes($zk, lock_path('kept'));
	$holder->query_safe("SELECT zk_lock('kept')");
	is(number($holder), $prune + 2, 'not at each release');
	unlock($holder);

	$holder->query_safe("SELECT zk_lock('passed_on')");
	$waiter->start_query("SELECT zk_lock('passed_on')");
	wait_for_queue($zk, lock_path('passed_on'), 2);
	unlock($holder);
	$waiter->wait_result;
	is(number($waiter), $prune + 1, 'nor under the feet of those who wait');
	unlock($waiter);
	assert_no_nodes($zk, lock_path('passed_on'));
};

$stranger->close;
$_->quit foreach $holder, $waiter, $third, $fourth;
ok(!$_->log_contains(qr/PANIC|TRAP|terminated by signal/),
	$_->name . ' did not crash')
  foreach values %node;

done_testing();
