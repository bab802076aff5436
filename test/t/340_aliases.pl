
# Node style "all": three queue nodes for one contender. They are made one by
# one, and whatever happens in between, there is one holder, nobody waits for
# ever, and not a single node is left behind.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Proxy;
use Test::More;
use Time::HiRes qw(time);
use ZkLockTest;
use ZooKeeper;

# Numbers of ZooKeeper's protocol: create2 and delete.
my ($create, $delete) = (15, 2);
# Empty znodes of locks stay: what is cut off here is the create of a queue node.
my $zk = ZooKeeper->new(
	java_options => ['-Dznode.container.checkIntervalMs=3600000'])->start;
my $proxy = Proxy->new($zk->connect_string);
# Berlin is behind the proxy.
my $berlin = cluster('berlin', $zk,
	servers => $proxy->address,
	'zklock.session_timeout' => '8s',
	'zklock.node_style' => 'all');
my $paris = cluster('paris', $zk, 'zklock.node_style' => 'all');
my $stranger = $zk->client;
my $uuid = '6ba7b810-9dad-41d1-80b4-00c04fd430c8';
my %foreign = (
	Curator => "_c_$uuid-lock-",
	Kazoo => '6ba7b8109dad41d180b400c04fd430c8__lock__',
	'a writer of Curator' => "_c_$uuid-__WRIT__",
	'one of zklock' => '_c_6ba7b810-9dad-8a11-80b4-00c04fd430c8-lock-',
	'a stranger' => 'mylock_');

my ($one, $two) = map { background($paris) } 1 .. 2;
my $far = background($berlin);

# The lock's znode is there, and the session is connected.
sub prepare
{
	my ($lock, @sessions) = @_;
	$_->query_safe("SELECT zk_lock('$lock'), zk_unlock('$lock')")
	  foreach $one, @sessions;
	wait_for_queue($zk, lock_path($lock), 0);
	return lock_path($lock);
}

sub numbers { return map { /(\d{10})$/ ? $1 + 0 : () } @_; }

# Whose aliases are all there, and in which order; strangers as their number.
sub order
{
	my ($path) = @_;
	my (@order, %count);
	foreach my $node (queue_nodes($zk, $path))
	{
		my ($guid) = $node =~ /^_c_(.{14}8a13.{18})-/;
		push @order, $guid // $node unless $guid && $count{$guid}++;
	}
	is(join(' ', map { $_ // 0 } values %count),
		join(' ', map { 3 } keys %count), 'three nodes each');
	return @order;
}

sub watches
{
	my ($node) = @_;
	poll_until { $zk->watched_paths($node) } "$node to be watched", 30;
	return;
}

# Sends a query of the far session and holds back its requests from the nth
# create on, as if the network were slow just then. The creates ahead are done.
sub start_and_hold
{
	my ($nth, $sql) = @_;
	my ($lock) = $sql =~ /'([^']+)'/;
	my $before = queue_nodes($zk, lock_path($lock));
	$proxy->trap($create, $nth, 'rest');
	$far->start_query($sql);
	poll_until { $proxy->is_sprung } 'the create', 30;
	wait_for_queue($zk, lock_path($lock), $before + $nth - 1);
	return;
}

subtest 'requests, nodes and the queue' => sub {
	my $path = prepare('plain', $two);
	my $before = $zk->packets_received;
	$one->query_safe("SELECT zk_lock('plain'), zk_unlock('plain')")
	  foreach 1 .. 20;
	assert_no_nodes($zk, $path);
	my $received = $zk->packets_received - $before;
	cmp_ok($received, '>=', 20 * 7, 'three creates, a list, three deletes');
	cmp_ok($received, '<', 20 * 7 + 15, 'and no more');

	my $token = $one->query_safe("SELECT zk_lock('plain')");
	my @nodes = queue_nodes($zk, $path);
	like("@nodes", qr/^_c_(.{14}8a13.{18})-lock-\d+ _c_\1-pg__lock__\d+ _c_\1-__WRIT__\d+$/,
		'the nodes in the order of their numbers');
	my @found = numbers(@nodes);
	is($found[2], $found[0] + 2, 'which are adjacent');
	$before = $zk->packets_received;
	is($two->query_safe("SELECT zk_try_lock('plain')"), 'f', 'busy')
	  foreach 1 .. 10;
	cmp_ok($zk->packets_received - $before, '<', 20, 'a try in vain: one request');

	$two->start_query("SELECT zk_lock('plain')");
	wait_for_queue($zk, $path, 6);
	$stranger->create("$path/$foreign{Kazoo}", '', ephemeral => 1, sequential => 1);
	is($far->query_safe(
			"SELECT string_agg(format('%s %s %s', position, state, style), ', ' ORDER BY position)
			FROM zk_lock_queue('plain')"),
		'1 held all, 2 waiting all, 3 waiting kazoo', 'one row for each contender');
	is($far->query_safe("SELECT token FROM zk_lock_queue('plain') WHERE position = 1"),
		$token, 'with its token');
	$one->query_safe("SELECT zk_unlock('plain')");
	cmp_ok($two->wait_result, '>', $token, 'the next has a newer token');
	$two->query_safe("SELECT zk_unlock('plain')");
	$stranger->delete("$path/" . (queue_nodes($zk, $path))[0]);
	assert_no_nodes($zk, $path);
};

foreach my $who (sort keys %foreign)
{
	foreach my $nth (2, 3)
	{
		subtest "$who comes before node $nth" => sub {
			my $path = prepare('between', $far);
			start_and_hold($nth, "SELECT zk_lock('between')");
			my $node = $stranger->create("$path/$foreign{$who}", '',
				ephemeral => 1, sequential => 1);
			my ($number) = numbers($node);
			is(scalar queue_nodes($zk, $path), $nth, 'it is the last');
			$proxy->heal;

			# all three are made anew, behind it
			watches($node);
			my @nodes = wait_for_queue($zk, $path, 4);
			is("$path/$nodes[0]", $node, 'now it is the first');
			cmp_ok((numbers(@nodes))[1], '>', $number, 'the others are new');
			ok(!$far->is_done, 'and wait');
			$stranger->delete($node);
			like($far->wait_result, qr/^\d+$/, 'until it has gone');
			$far->query_safe("SELECT zk_unlock('between')");
			assert_no_nodes($zk, $path);
		};
	}
}

subtest 'who came in between has left before the list' => sub {
	my $path = prepare('gap', $far);
	start_and_hold(2, "SELECT zk_lock('gap')");
	$stranger->delete(
		$stranger->create("$path/$foreign{Curator}", '', ephemeral => 1, sequential => 1));
	$proxy->heal;
	like($far->wait_result, qr/^\d+$/, 'granted');
	my @found = numbers(queue_nodes($zk, $path));
	is($found[1] - $found[0], 2, 'with a gap');
	$far->query_safe("SELECT zk_unlock('gap')");
	assert_no_nodes($zk, $path);
};

subtest 'readers between a reader\'s nodes stay' => sub {
	my $path = prepare('readers', $far);
	start_and_hold(3, "SELECT zk_lock_shared('readers')");
	my $node = $stranger->create("$path/_c_$uuid-__READ__", '',
		ephemeral => 1, sequential => 1);
	$one->query_safe("SELECT zk_lock_shared('readers')");
	$proxy->heal;
	like($far->wait_result, qr/^\d+$/, 'granted');
	is(scalar queue_nodes($zk, $path), 7, 'all at a time');
	$two->start_query("SELECT zk_lock('readers')");
	wait_for_queue($zk, $path, 10);
	$_->query_safe("SELECT zk_unlock_shared('readers')") foreach $one, $far;
	watches($node);
	ok(!$two->is_done, 'a writer waits for the last of them');
	$stranger->delete($node);
	$two->wait_result;
	$two->query_safe("SELECT zk_unlock('readers')");
	assert_no_nodes($zk, $path);
};

foreach my $nth (2, 3)
{
	subtest "another contender with aliases comes before node $nth" => sub {
		my $path = prepare('others', $far, $two);
		start_and_hold($nth, "SELECT zk_lock('others')");
		my ($first) = queue_nodes($zk, $path);
		$two->start_query("SELECT zk_lock('others')");
		wait_for_queue($zk, $path, 3 + $nth - 1);
		watches("$path/");
		ok(!$two->is_done, 'it waits, as it came later');
		$proxy->heal;
		like($far->wait_result, qr/^\d+$/, 'the first one is granted');
		is((queue_nodes($zk, $path))[0], $first, 'without starting anew');
		is(scalar(order($path)), 2, 'in the queue');
		ok(!$two->is_done, 'the other one goes on to wait');
		$far->query_safe("SELECT zk_unlock('others')");
		like($two->wait_result, qr/^\d+$/, 'until it is its turn');
		$two->query_safe("SELECT zk_unlock('others')");
		assert_no_nodes($zk, $path);
	};
}

subtest 'a try' => sub {
	my $path = prepare('try', $far);
	start_and_hold(2, "SELECT zk_try_lock('try')");
	my $node = $stranger->create("$path/$foreign{Curator}", '',
		ephemeral => 1, sequential => 1);
	$proxy->heal;
	is($far->wait_result, 'f', 'is in vain if somebody came in between');
	is_deeply([ map { "$path/$_" } queue_nodes($zk, $path) ], [$node],
		'and leaves nothing behind');
	$stranger->delete($node);
};

# The queue of all styles: who came first is served first.
subtest 'among other styles of zklock' => sub {
	my $path = prepare('styles', $two, $far);
	my $kazoo = background($paris);
	my $curator = background($paris);
	my $shared = background($paris);
	$kazoo->query_safe("SET zklock.node_style = kazoo");
	$curator->query_safe("SET zklock.node_style = curator");
	my @waiting = ($curator, $two, $kazoo, $far, $shared);
	my $count = 3;
	$one->query_safe("SELECT zk_lock('styles')");
	foreach my $session (@waiting)
	{
		my $suffix = $session == $shared ? '_shared' : '';
		$session->start_query("SELECT zk_lock$suffix('styles')");
		$count += $session == $curator || $session == $kazoo ? 1 : 3;
		wait_for_queue($zk, $path, $count);
	}
	my $last = $one;
	while (my $next = shift @waiting)
	{
		$last->query_safe('SELECT zk_unlock_all()');
		like($next->wait_result, qr/^\d+$/, 'the next one');
		is(scalar(grep { $_->is_done } @waiting), 0, 'it alone');
		$last = $next;
	}
	$last->query_safe('SELECT zk_unlock_all()');
	assert_no_nodes($zk, $path);
	$_->quit foreach $kazoo, $curator, $shared;
};

foreach my $nth (1 .. 3)
{
	foreach my $end ('cancel', 'timeout', 'terminate')
	{
		subtest "$end before node $nth" => sub {
			my $path = prepare('ended', $far);
			$far->query_safe("SET lock_timeout = '1s'") if $end eq 'timeout';
			start_and_hold($nth, "SELECT zk_lock('ended')");
			$berlin->safe_psql('postgres', "SELECT pg_${end}_backend(" . $far->pid . ')')
			  if $end ne 'timeout';
			poll_until { $far->is_done } 'the end', 30 if $end ne 'terminate';
			$proxy->heal;
			$far->wait_result;
			assert_no_nodes($zk, $path);
			if ($end eq 'terminate')
			{
				$far->quit;
				$far = background($berlin);
			}
			else
			{
				is($far->sqlstate, $end eq 'cancel' ? '57014' : '55P03', 'it ended');
				$far->query_safe('RESET lock_timeout');
				like($far->query_safe("SELECT zk_lock('ended')"), qr/^\d+$/, 'and again');
				is(scalar queue_nodes($zk, $path), 3, 'three nodes');
				$far->query_safe("SELECT zk_unlock('ended')");
				assert_no_nodes($zk, $path);
			}
		};
	}

	# What becomes of the create, nobody knows: it was carried out, or not.
	foreach my $direction ('requests', 'replies')
	{
		subtest "the connection is lost: $direction of node $nth" => sub {
			my $path = prepare('lost', $far);
			$proxy->trap($create, $nth, $direction);
			$far->start_query("SELECT zk_lock('lost')");
			poll_until { $proxy->is_sprung } 'the create', 30;
			$proxy->reset_connections;
			$proxy->heal;
			like($far->wait_result, qr/^\d+$/, 'granted');
			poll_until { queue_nodes($zk, $path) == 3 } 'the others to go', 10;
			is(scalar(order($path)), 1, 'in the queue');
			is($far->query_safe("SELECT zk_is_held('lost')"), 't', 'it is held');
			$far->query_safe("SELECT zk_unlock('lost')");
			assert_no_nodes($zk, $path);
		};
	}

	subtest "the connection is lost at the delete of node $nth" => sub {
		my $path = prepare('lost', $far);
		$far->query_safe("SELECT zk_lock('lost')");
		$proxy->trap($delete, $nth, 'requests');
		$far->query_safe("SELECT zk_unlock('lost')");
		poll_until { $proxy->is_sprung } 'the delete', 30;
		$proxy->reset_connections;
		$proxy->heal;
		assert_no_nodes($zk, $path);
	};
}

# Each kind of client waits for one of the nodes only.
foreach my $rank (0 .. 2)
{
	subtest "somebody deletes node $rank" => sub {
		my $path = prepare('deleted', $two, $far);
		$one->query_safe("SET zklock.commit_guard = quorum;
			CREATE TABLE IF NOT EXISTS written (a int);
			SELECT zk_lock('deleted')");
		$two->start_query("SELECT zk_lock('deleted')");
		my @nodes = wait_for_queue($zk, $path, 6);
		watches("$path/");

		# of a waiter: it learns when it looks
		$stranger->delete("$path/$nodes[3 + $rank]");
		$far->start_query("SELECT zk_lock('deleted')");
		wait_for_queue($zk, $path, 8);
		# of the holder: when it commits
		$stranger->delete("$path/$nodes[$rank]");
		$one->query("BEGIN; INSERT INTO written VALUES (1); COMMIT");
		is($one->sqlstate, '40001', 'the holder\'s commit is refused');
		is($one->query_safe("SELECT zk_is_held('deleted')"), 'f', 'not held');
		is($one->query_safe('SELECT count(*) FROM written'), 0, 'nothing written');
		$one->query('SELECT zk_unlock_all()');
		$two->wait_result;
		is($two->sqlstate, '57000', 'the waiter was removed');
		like($far->wait_result, qr/^\d+$/, 'the next one has the lock');
		is(scalar(order($path)), 1, 'and nobody else is in the queue');
		$far->query_safe("SELECT zk_unlock('deleted')");
		assert_no_nodes($zk, $path);
		$one->query_safe('RESET zklock.commit_guard');
	};
}

# Exclusive to shared, in the same place of the queue.
subtest 'a downgrade' => sub {
	my $path = prepare('downgrade', $two, $far);
	$far->query_safe("SELECT zk_lock('downgrade'), zk_lock_shared('downgrade')");
	my @before = queue_nodes($zk, $path);
	$one->start_query("SELECT zk_lock_shared('downgrade')");
	wait_for_queue($zk, $path, 6);
	$two->start_query("SELECT zk_lock('downgrade')");
	wait_for_queue($zk, $path, 9);
	ok(!$one->is_done, 'a reader waits');
	$far->query_safe("SELECT zk_unlock('downgrade')");
	like($one->wait_result, qr/^\d+$/, 'until there is none but readers');
	ok(!$two->is_done, 'a writer goes on to wait');
	my @after = wait_for_queue($zk, $path, 9);
	is(join(' ', map { /-(\D+)\d+$/ } @after[ 0 .. 2 ]),
		'shared-lock- shared__lock__ __READ__', 'all nodes are shared ones');
	is_deeply([ numbers(@after[ 0 .. 2 ]) ], [ numbers(@before) ], 'with the old numbers');
	is($far->query_safe("SELECT zk_is_held('downgrade')"), 't', 'it is held');
	is($far->query_safe("SELECT string_agg(concat_ws(' ', position, state, mode, style), ', ' ORDER BY position)
			FROM zk_lock_queue('downgrade')"),
		'1 held shared all, 2 held shared all, 3 waiting exclusive all', 'in the queue');
	is($far->query_safe("SELECT token = zk_fencing_token('downgrade')
			FROM zk_lock_queue('downgrade') WHERE position = 1"), 't', 'with its token');
	$_->query_safe("SELECT zk_unlock_shared('downgrade')") foreach $far, $one;
	like($two->wait_result, qr/^\d+$/, 'the writer comes last');
	$two->query_safe("SELECT zk_unlock('downgrade')");
	assert_no_nodes($zk, $path);
};

foreach my $nth (1 .. 3)
{
	foreach my $direction ('requests', 'replies')
	{
		subtest "the connection is lost in a downgrade: $direction of delete $nth" => sub {
			my $path = prepare('downgrade', $far);
			$far->query_safe("SELECT zk_lock('downgrade'), zk_lock_shared('downgrade')");
			$one->start_query("SELECT zk_lock('downgrade')");
			wait_for_queue($zk, $path, 6);
			$proxy->trap($delete, $nth, $direction);
			$far->query_safe("SELECT zk_unlock('downgrade')");
			poll_until { $proxy->is_sprung } 'the delete', 30;
			$proxy->reset_connections;
			$proxy->heal;
			is($far->query_safe("SELECT zk_is_held('downgrade')"), 't', 'it is held');
			my @nodes = wait_for_queue($zk, $path, 6);
			is(join(' ', map { /-(\D+)\d+$/ } @nodes[ 0 .. 2 ]),
				'shared-lock- shared__lock__ __READ__', 'all nodes are shared ones');
			ok(!$one->is_done, 'the writer waits');
			$far->query_safe("SELECT zk_unlock_shared('downgrade')");
			$one->wait_result;
			$one->query_safe("SELECT zk_unlock('downgrade')");
			assert_no_nodes($zk, $path);
		};
	}

	subtest "a downgrade of which node $nth is gone" => sub {
		my $path = prepare('downgrade', $far);
		$far->query_safe("SELECT zk_lock('downgrade'), zk_lock_shared('downgrade')");
		$stranger->delete("$path/" . (queue_nodes($zk, $path))[ $nth - 1 ]);
		$far->query_safe("SELECT zk_unlock('downgrade')");
		is($far->query_safe("SELECT zk_is_held('downgrade')"), 'f', 'the lock is lost');
		$far->query('CREATE TABLE never (a int)');
		is($far->sqlstate, '40001', 'nothing is committed on the strength of it');
		$far->query("SELECT zk_unlock_shared('downgrade')");
		assert_no_nodes($zk, $path);
	};

	subtest "the release of a downgrade under way, at delete $nth" => sub {
		my $path = prepare('downgrade', $far);
		$far->query_safe("SELECT zk_lock('downgrade'), zk_lock_shared('downgrade')");
		$proxy->trap($delete, $nth, 'rest');
		$far->query_safe("SELECT zk_unlock('downgrade')");
		poll_until { $proxy->is_sprung } 'the delete', 30;
		$far->query_safe("SELECT zk_unlock_shared('downgrade')");
		$proxy->heal;
		assert_no_nodes($zk, $path);
	};
}

subtest 'the log counts contenders, not nodes' => sub {
	my $path = prepare('logged', $two);
	my $before = -s $berlin->logfile;
	$far->query_safe("SET log_lock_waits = on; SET deadlock_timeout = '100ms'");
	$one->query_safe("SELECT zk_lock('logged')");
	$two->start_query("SELECT zk_lock('logged')");
	wait_for_queue($zk, $path, 6);
	$far->start_query("SELECT zk_lock('logged')");
	poll_until { slurp_file($berlin->logfile, $before) =~ /still waiting for ExclusiveLock/ }
	'the message', 30;
	my $log = slurp_file($berlin->logfile, $before);
	my $pid = $one->pid;
	like($log, qr/Held by process $pid .*\. Up to 2 contenders are ahead\./, 'who and how many');
	foreach my $session ($one, $two, $far)
	{
		$session->wait_result if $session != $one;
		$session->query_safe("SELECT zk_unlock('logged')");
	}
	assert_no_nodes($zk, $path);
	$far->query_safe('RESET log_lock_waits; RESET deadlock_timeout');
};

subtest 'evictions' => sub {
	my $path = prepare('evict', $two, $far);
	my $token = $one->query_safe("SELECT zk_lock('evict')");
	$two->start_query("SELECT zk_lock('evict')");
	wait_for_queue($zk, $path, 6);
	my $waiter = $far->query_safe(
		"SELECT token FROM zk_lock_queue('evict') WHERE position = 2");
	is($far->query_safe("SELECT zk_evict('evict', $waiter)"), 't', 'of a waiter');
	is(scalar queue_nodes($zk, $path), 3, 'all its nodes');
	is($far->query_safe("SELECT zk_evict('evict', $token)"), 't', 'of the holder');
	assert_no_nodes($zk, $path);
	$two->wait_result;
	is($two->sqlstate, '57000', 'the waiter is told');
	is($one->query_safe("SELECT zk_is_held('evict')"), 'f', 'so is the holder');
	$one->query_safe('SELECT zk_unlock_all()');
};

subtest 'the session is lost' => sub {
	my $path = prepare('session', $far);
	$far->query_safe("SELECT zk_lock('session')");
	$one->start_query("SELECT zk_lock('session')");
	wait_for_queue($zk, $path, 6);
	$proxy->cut;
	like($one->wait_result, qr/^\d+$/, 'the next one has the lock');
	$proxy->heal;
	$far->query('CREATE TABLE never (a int)');
	is($far->sqlstate, '40001', 'the other one does not commit');
	$far->query('SELECT zk_unlock_all()');
	$one->query_safe("SELECT zk_unlock('session')");
	assert_no_nodes($zk, $path);
};

# No order of the creates is forced here. Whether they were interleaved, and how
# often somebody started anew, is told by the server's log.
subtest 'many at a time, and others in between' => sub {
	my $path = prepare('crowd');
	my $times = 25;
	my @crowd = map { background($paris) } 1 .. 8;
	$paris->safe_psql('postgres', <<'SQL');
CREATE TABLE counter AS SELECT 0 AS value;
CREATE PROCEDURE count_up(times int) LANGUAGE plpgsql AS $$
DECLARE
	seen int;
BEGIN
	FOR i IN 1 .. times LOOP
		PERFORM zk_xact_lock('crowd');
		seen := value FROM counter;
		COMMIT;
		PERFORM zk_xact_lock('crowd');
		UPDATE counter SET value = value + 1;
		COMMIT;
	END LOOP;
END $$;
SQL
	my $before = -s $paris->logfile;
	$_->query_safe("SET log_min_messages = debug1;
		SELECT zk_lock('warm'), zk_unlock('warm')") foreach @crowd;
	my $start = time;
	$crowd[$_]->start_query(($_ % 2 ? '' : 'SET zklock.node_style = curator; ')
		. "CALL count_up($times)") foreach 0 .. $#crowd;
	# Somebody who comes and goes meanwhile, like a foreign client that tries.
	my $tries = 0;
	until (!grep { !$_->is_done } @crowd)
	{
		my $node = $stranger->create("$path/$foreign{Kazoo}", '',
			ephemeral => 1, sequential => 1);
		$stranger->delete($node);
		$tries++;
	}
	$_->wait_result foreach @crowd;
	is(join(' ', map { $_->sqlstate } @crowd), join(' ', map { '00000' } @crowd),
		'all are served');
	is($paris->safe_psql('postgres', 'SELECT value FROM counter'),
		$times * @crowd, 'each time');
	my $log = slurp_file($paris->logfile, $before);
	my @attempts = $log =~ /interleaved with others', attempt (\d+)/g;
	my ($most) = sort { $b <=> $a } @attempts, 0;
	note(sprintf '%d locks of style all in %.1f s, %d visits of a stranger: %d times anew, at most %d times in a row',
		$times * @crowd, time - $start, $tries, scalar @attempts, $most);
	cmp_ok($most, '<', 50, 'nobody starves');
	assert_no_nodes($zk, $path);
	$_->quit foreach @crowd;
};

$_->quit foreach $one, $two, $far;

done_testing();
