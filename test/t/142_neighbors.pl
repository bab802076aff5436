
# Backends of one cluster hand locks to each other through shared memory. ZooKeeper still has the
# last word: no lock is held twice, no waiter is forgotten, and waiters of other clusters come in
# their turn. Tested with real servers, whose packet counter tells what a hand-over costs, and a
# proxy.

use Proxy;
use ZkLockTest;

my $timeout = 12;    # of sessions, seconds: long enough for a proof to be fresh
my $zk = ZooKeeper->new->start;
my %setting = (
	'zklock.session_timeout' => "${timeout}s",
	'max_connections' => 20);
my $berlin = cluster('berlin', $zk, %setting);
my $paris = cluster('paris', $zk, %setting);
my $stranger = $zk->client;

# Three neighbors, and one from abroad.
my @pool = map { background($berlin) } 1 .. 3;
my $abroad = background($paris);
$_->query_safe("SELECT zk_lock('warm'), zk_unlock('warm')")
  foreach @pool, $abroad;

sub nodes { return queue_nodes($zk, lock_path($_[0])); }

# How many sessions watch that node.
sub watchers ($node)
{
	my ($list) = $zk->four_letter_word('wchp') =~ /\Q$node\E\n((?:\t\S+\n?)*)/;
	return scalar(() = ($list // '') =~ /0x/g);
}

# A test: the lock passes on; how many requests that has cost, of which there must be one.
sub requests_to_pass ($lock, $session, $other, $what)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $before = $zk->packets_received;
	assert_passes($lock, $session, $other, $what);
	poll_until { $zk->packets_received > $before } 'the delete', 30;
	return $zk->packets_received - $before;
}

# Until one that waited behind the holder has left, and nobody but the next one watches it.
sub wait_until_left ($lock, $nleft)
{
	my ($holder) = wait_for_queue($zk, lock_path($lock), $nleft);
	poll_until { watchers($holder) == 1 && $zk->watch_count <= 2 } 'the one behind it to look again', 30;
	return;
}

# The delete is one request and one write, whether or not the holder had to wait
# itself.
subtest 'a hand-over to a waiter of the same cluster takes one request' => sub {
	my @received;
	while (@received < 6 || @received < 20 && !grep { $_ == 1 } @received)
	{
		line_up($zk, 'pass', @pool);
		foreach my $next (1, 2)
		{
			push @received, requests_to_pass('pass', $pool[ $next - 1 ], $pool[$next], 'granted');
			wait_for_queue($zk, lock_path('pass'), 3 - $next);
			assert_held($pool[$next], 'pass', 'it is held');
		}
		assert_released($zk, 'pass', $pool[2]);
	}
	# Heartbeats may be counted too, on a busy machine most times.
	is(least_of(@received), 1, 'one hand-over costs one request');
};

# The server stands still. Nobody needs it to pass the lock on.
subtest 'a lock passes on within a cluster while ZooKeeper is silent' => sub {
	line_up($zk, 'silent', @pool, $abroad);
	$zk->pause;
	assert_passes('silent', $pool[0], $pool[1], 'the second has it');
	assert_passes('silent', $pool[1], $pool[2], 'the third has it');
	ok(!$abroad->is_done, 'the one from abroad waits');
	$zk->resume;
	wait_for_queue($zk, lock_path('silent'), 2);
	assert_held($pool[2], 'silent', 'ZooKeeper confirms the holder');
	ok(!$abroad->is_done, 'the one from abroad still waits');
	assert_passes('silent', $pool[2], $abroad, 'the waiter of the other cluster is granted the lock in its turn');
	assert_released($zk, 'silent', $abroad);
};

# It looks once a second by itself, for the sake of deadlocks. The lock is released just after
# that. On a busy machine that takes several tries.
subtest 'the release of a neighbor wakes the waiter up though the ensemble is silent' => sub {
	my ($holder, $waiter) = @pool;
	my $turns = sub { slurp_file('/proc/' . $waiter->pid . '/status') =~ /^voluntary_ctxt_switches:\s+(\d+)/m ? $1 : 0 };
	my $now = 'extract(epoch FROM clock_timestamp())';
	my $took;
	foreach my $try (1 .. 10)
	{
		$holder->query_safe("SELECT zk_lock('woken')");
		start_in_queue($waiter, "SELECT zk_lock('woken') IS NULL, $now", $zk, lock_path('woken'), 2);
		wait_for_watch($zk, (nodes('woken'))[0]);
		$zk->pause;
		my $before = $turns->();
		poll_until { $turns->() > $before + 1 } 'the waiter to look by itself', 60;
		my ($told_at) = split /\|/, $holder->query_safe("SELECT $now, zk_unlock('woken')");
		my (undef, $woken_at) = split /\|/, $waiter->wait_result;
		$zk->resume;
		$took = $woken_at - $told_at;
		assert_released($zk, 'woken', $waiter);
		last if $took < 0.4;
		note("again: it took $took s");
	}
	in_time($took, 0.4, 'before it looks by itself');
};

# Its delete does not get through, so its node stays in the queue. Those who
# have a hand-over need not look; those who have to look wait for it.
subtest "a lock is handed over while the delete of the former holder's node is held up" => sub {
	my $proxy = Proxy->new($zk->connect_string);
	my $cut = background($berlin, route => $proxy->address);
	my $theirs = node_prefix();

	line_up($zk, 'stays', $cut, $pool[0], $abroad);
	my ($first) = nodes('stays');
	$stranger->contend(lock_path("stays/$theirs"));
	$proxy->cut;
	assert_passes('stays', $cut, $pool[0], 'the neighbor has it');
	assert_held($pool[0], 'stays', 'ZooKeeper confirms the holder');
	is($pool[0]->query_safe("BEGIN; SET LOCAL zklock.commit_guard = quorum;
		CREATE TEMP TABLE work AS SELECT 1; COMMIT; SELECT 'done'"),
		'done', 'the new holder may commit');
	ok(!$abroad->is_done, 'the waiter of the other cluster still waits');
	assert_passes('stays', $pool[0], $abroad, 'the lock is handed over to the other cluster');
	is((nodes('stays'))[0], $first, 'the node of the former holder is still there');
	is($pool[1]->query_safe("SELECT zk_try_lock('stays')"),
		'f', 'a try sees that node and finds the lock busy');
	$proxy->heal;
	poll_until { (nodes('stays'))[0] ne $first } 'the node to go', 30;
	$stranger->delete(lock_path('stays') . "/$_")
	  foreach grep { /^\Q$theirs\E/ } nodes('stays');
	assert_released($zk, 'stays', $abroad);
};

# Whoever gave up is told in vain, or not at all, and the one behind it comes.
# More often than there is room for backends: each leaves its place.
subtest 'a waiter behind one that has given up is told of the release' => sub {
	my ($first, $second, $third) = @pool;
	foreach my $how (qw(cancel terminate))
	{
		assert_least
		{
			my $leaving = background($berlin);
			line_up($zk, 'leave', $first, $leaving, $second);
			$leaving->$how;
			$leaving->wait_result;
			wait_until_left('leave', 2);
			sleep 0.1;
			ok(!$second->is_done, "$how: who waits behind it goes on to wait");
			my $received = requests_to_pass('leave', $first, $second, "$how: until its turn");
			assert_released($zk, 'leave', $second);
			$received;
		}
		1, "$how: it was told";
	}
	$first->query_safe("SELECT zk_lock('leave')");
	$second->query_safe(
		"DO \$\$ BEGIN FOR i IN 1 .. 100 LOOP
			BEGIN
				ASSERT NOT zk_try_lock('leave', '1 ms');
			EXCEPTION WHEN sqlclient_unable_to_establish_sqlconnection THEN
				NULL; -- nobody has answered within a millisecond
			END;
		END LOOP; END \$\$");
	$first->query_safe("SELECT zk_unlock('leave')");

	assert_least
	{
		line_up($zk, 'leave', $second, $third);
		my $received = requests_to_pass('leave', $second, $third, 'after a hundred that gave up');
		assert_released($zk, 'leave', $third);
		$received;
	}
	1, 'it was told';

	# Who has left its place is not taken for one that was told.
	my $leaving = background($berlin);
	line_up($zk, 'leave', $third, $first, $leaving, $abroad);
	assert_passes('leave', $third, $first, 'a holder that has waited can hand the lock over');
	wait_for_queue($zk, lock_path('leave'), 3);
	$leaving->cancel;
	assert_ends($leaving, '57014', 'a neighbor gives up');
	wait_until_left('leave', 2);
	my $count = sub { $paris->safe_psql('postgres', 'SELECT sum(grants_handed_over) FROM zk_stat') };
	my $before = $count->();
	assert_passes('leave', $first, $abroad, 'the one from abroad has it');
	assert_becomes { $count->() - $before } 1, 'the lock is handed over to the other cluster';
	assert_released($zk, 'leave', $abroad);
};

# How many waiters of that cluster were told of a release by a neighbor.
sub told { return $berlin->safe_psql('postgres', 'SELECT sum(grants_told) FROM zk_stat'); }

# On a busy machine some have not said yet that they wait. Without places one in eight would be told.
sub assert_most_told ($lock, $first, $second)
{
	my $before = told();
	foreach (1 .. 10)
	{
		line_up($zk, $lock, $first, $second);
		assert_passes($lock, $first, $second, 'it passes');
		assert_released($zk, $lock, $second);
	}
	assert_soon { told() - $before >= 5 } 'most of them were told of the release by their neighbor';
	return;
}

# All wait for the same node, so they all have the same few places for those that may be told:
# each way of ending a wait gives its place back.
subtest 'waiters that have given up leave their places in shared memory to others' => sub {
	my ($first, $second) = @pool;
	my $rounds = 10;
	$first->query_safe("SELECT zk_lock('room')");
	my ($holder) = nodes('room');
	my $wait = sub ($session, $sql) {
		start_in_queue($session, $sql, $zk, lock_path('room'), 2);
		wait_for_watch($zk, $holder);
	};
	my $left = sub {
		wait_for_queue($zk, lock_path('room'), 1);
		poll_until { watchers($holder) == 0 } 'its watch to go', 30;
	};
	foreach (1 .. $rounds)
	{
		$wait->($second, "SELECT zk_lock('room')");
		$second->cancel;
		assert_ends($second, '57014', 'canceled');
		$left->();
	}
	foreach (1 .. $rounds)
	{
		my $leaving = background($berlin);
		$wait->($leaving, "SELECT zk_lock('room')");
		$leaving->terminate;
		$leaving->wait_result;
		$left->();
	}
	# A subtransaction is rolled back each time, by a timeout of the wait itself.
	my $sql = "DO \$\$ BEGIN FOR i IN 1 .. $rounds LOOP
		BEGIN
			SET LOCAL lock_timeout = '200ms';
			PERFORM zk_xact_lock('room');
			RAISE 'granted';
		EXCEPTION WHEN lock_not_available THEN
			NULL;
		END;
	END LOOP; END \$\$";
	$second->query_safe($sql);
	$left->();

	$first->query_safe("SELECT zk_unlock('room')");
	assert_most_told('room', $first, $second);
};

# Whoever makes a hold waits like others, and its cleanup must not mind that this
# backend has never waited for a neighbor before.
subtest 'zk_hold() works as the first wait of a backend' => sub {
	foreach my $how ('granted', 'cancelled')
	{
		my $maker = background($berlin, first => "SELECT zk_is_held('warm')");
		$pool[0]->query_safe("SELECT zk_lock('held')");
		start_in_queue($maker, "SELECT zk_hold('held', 'maintenance')", $zk, lock_path('held'), 2);
		wait_for_watch($zk, (nodes('held'))[0]);
		if ($how eq 'cancelled')
		{
			$maker->cancel;
			assert_ends($maker, '57014', 'the call is canceled');
			$pool[0]->query_safe("SELECT zk_unlock('held')");
		}
		else
		{
			$pool[0]->query_safe("SELECT zk_unlock('held')");
			assert_ends($maker, '00000', 'the hold is made');
			is($pool[0]->query_safe("SELECT zk_try_lock('held')"), 'f', 'the hold keeps others out');
			is($maker->query_safe("SELECT zk_release_hold('held',
				(SELECT token FROM zk_lock_queue('held')))"), 't', 'the hold is released');
		}
		assert_leave_nothing($zk, lock_path('held'), $maker);
	}
};

# What was said once is not said of the next lock.
subtest 'a release that was told counts for one lock only' => sub {
	my ($first, $second) = @pool;
	$stranger->create_path(lock_path('foreign'));
	my $made = $stranger->contend(lock_path('foreign/6ba7b8109dad11d180b400c04fd430c8__lock__'));
	line_up($zk, 'told', $first, $second);
	assert_passes('told', $first, $second, 'told');
	start_in_queue($second, "SELECT zk_lock('foreign')", $zk, lock_path('foreign'), 2);
	wait_for_watch($zk, $made);
	ok(!$second->is_done, 'a foreign holder is waited for');
	my $before = $zk->packets_received;
	sleep 1;
	cmp_ok($zk->packets_received - $before, '<', 200, 'the waiter does not ask for the foreign holder again and again');
	$stranger->delete($made);
	assert_ends($second, '00000', 'the lock is granted when the foreign node is deleted');
	assert_released($zk, 'foreign', $second);
	assert_released($zk, 'told', $second);
};

# A proof that is older than a third of the session timeout will not do, and a
# read of the own node would not either: the server may lag behind. The quorum is
# asked.
subtest 'a waiter with an old proof asks ZooKeeper before it takes a lock handed over' => sub {
	my ($first, $second) = @pool;
	my (@received, @proofs);
	foreach (1 .. 2)
	{
		line_up($zk, 'long', $first, $second);
		my $queued = time;
		poll_until { time > $queued + $timeout / 3 + 1 } 'the proof to age',
		  $timeout;
		my $before = $zk->packets_received;
		assert_passes('long', $first, $second, 'granted');
		poll_until { $zk->ephemerals(lock_path('long') . '/') == 1 } 'the delete', 30;
		push @received, $zk->packets_received - $before;
		# That of the node is dated a third of the timeout before it at least.
		push @proofs, $second->query_safe("SELECT last_proof > to_timestamp($queued - $timeout / 4)
			FROM zk_backends WHERE pid = pg_backend_pid()");
		assert_released($zk, 'long', $second);
	}
	cmp_ok(least_of(@received), '>=', 2, 'the grant includes a check by ZooKeeper');
	like("@proofs", qr/t/, 'the check counts as a proof');

	# also while the node of the one before still stands
	my $proxy = Proxy->new($zk->connect_string);
	my $cut = background($berlin, route => $proxy->address);
	line_up($zk, 'long', $cut, $second);
	sleep $timeout / 3 + 1;
	$proxy->cut;
	assert_passes('long', $cut, $second, 'granted');
	wait_for_queue($zk, lock_path('long'), 2);
	$proxy->heal;
	wait_for_queue($zk, lock_path('long'), 1);
	assert_released($zk, 'long', $second);

	# and refused if it says that the waiter's own is not there
	line_up($zk, 'long', $first, $second);
	sleep $timeout / 3 + 1;
	$stranger->delete(lock_path('long') . '/' . (nodes('long'))[1]);
	$first->query_safe("SELECT zk_unlock('long')");
	assert_ends($second, '57000', 'one whose node was deleted is told');
	assert_no_nodes($zk, lock_path('long'));
};

# The check is not answered before the time of the call is over, while the session still has its
# connection. (A backend ended with SIGSEGV as it looked for the holder in that reply.)
subtest 'a lock that is handed over, and cannot be checked in time, is not granted' => sub {
	my $first = $pool[0];
	my $proxy = Proxy->new($zk->connect_string);
	my $cut = background($berlin, route => $proxy->address);
	$first->query_safe("SELECT zk_lock('late')");
	my $patience = $timeout / 3 + 3;
	start_in_queue($cut, "SELECT zk_lock('late', '$patience s')", $zk, lock_path('late'), 2);
	wait_for_watch($zk, (nodes('late'))[0]);
	my $queued = time;
	poll_until { time > $queued + $timeout / 3 + 1 } 'the proof to age', $timeout;
	$proxy->cut;
	$first->query_safe("SELECT zk_unlock('late')");
	assert_ends($cut, '55P03', 'the call ends with an error');
	$proxy->heal;
	assert_no_nodes($zk, lock_path('late'));
	is($cut->query_safe('SELECT 1'), '1', 'the connection is still there');
};

# Nobody can know of an eviction until the next proof, as a holder cannot, so the
# guard has to.
subtest 'a waiter that was evicted may not commit after a hand-over' => sub {
	my ($first, $second, $third) = @pool;
	$second->query_safe('CREATE TABLE work (i int); SET zklock.commit_guard = quorum');
	line_up($zk, 'evicted', $first, $second, $third);
	$stranger->delete(lock_path('evicted') . '/' . (nodes('evicted'))[1]);
	wait_for_watch($zk, (nodes('evicted'))[0]);
	$first->query_safe("SELECT zk_unlock('evicted')");
	$second->wait_result;
	assert_ends($third, '00000', 'the one behind it is granted');
	assert_query($second, 'INSERT INTO work VALUES (1)', '40001', 'it may not commit');
	is(ask($berlin, 'SELECT count(*) FROM work'), '0', 'it has not written');
	$second->query_safe('SELECT zk_unlock_all(); RESET zklock.commit_guard');
	assert_released($zk, 'evicted', $third);
};

# One of them has been evicted, which it does not know of. The entry is its own; the other
# one has none, and must not take what others are told for its.
subtest 'a waiter does not take a hand-over that is meant for another waiter' => sub {
	my ($first, $second, $third) = @pool;
	my ($holder, $waiter) = map { background($berlin) } 1 .. 2;
	line_up($zk, 'two', $first, $second);
	my ($node, $evicted) = nodes('two');
	$third->query_safe("SET lock_timeout = '8s'");
	start_in_queue($third, "SELECT zk_lock('two')", $zk, lock_path('two'), 3);
	wait_for_watch($zk, $evicted);
	$stranger->delete(lock_path('two') . "/$evicted");
	poll_until { watchers($node) == 2 } 'both to wait for the first', 30;
	$second->cancel;
	assert_ends($second, '57014', 'the one that was evicted leaves');
	line_up($zk, 'another', $holder, $waiter);
	assert_passes('another', $holder, $waiter, 'another lock is handed over meanwhile');
	assert_ends($third, '55P03', 'the waiter for the first lock goes on waiting');
	$third->query_safe('RESET lock_timeout');
	assert_released($zk, 'two', $first);
	assert_released($zk, 'another', $waiter);
};

# Two ensembles count alike, so a node of one may have the number of a node of the other.
subtest 'a hand-over in one ensemble is not taken for one in another ensemble' => sub {
	my $elsewhere = ZooKeeper->new->start;
	my $counter = $elsewhere->client;
	my @theirs = map { background($berlin, route => $elsewhere->connect_string) } 1, 2;
	my ($first, $second) = @pool;
	my $difference;
	$_->query_safe("SELECT zk_lock('warm'), zk_unlock('warm')") foreach @theirs;
	$_->create_path(lock_path($_ == $counter ? 'alike' : 'number')) foreach $stranger, $counter;
	foreach my $try (1 .. 5)
	{
		$difference = $first->query_safe("SELECT zk_lock('number')") -
		  $theirs[0]->query_safe("SELECT zk_lock('alike')");
		last if $difference == 0;
		$first->query_safe("SELECT zk_unlock('number')");
		$theirs[0]->query_safe("SELECT zk_unlock('alike')");
		assert_no_nodes($zk, lock_path('number'));
		assert_no_nodes($elsewhere, lock_path('alike'));
		my $late = $difference > 0 ? $counter : $stranger;
		$late->create("/count$try-$_", '') foreach 1 .. abs $difference;
	}
	is($difference, 0, 'two holders with one token');
	start_in_queue($second, "SELECT zk_lock('number')", $zk, lock_path('number'), 2);
	start_in_queue($theirs[1], "SELECT zk_lock('alike', '8s')", $elsewhere, lock_path('alike'), 2);
	wait_for_watch($zk, (nodes('number'))[0]);
	wait_for_watch($elsewhere, (queue_nodes($elsewhere, lock_path('alike')))[0]);
	assert_passes('number', $first, $second, 'the waiter for the released lock has it');
	assert_ends($theirs[1], '55P03', 'the waiter in the other ensemble times out');
	assert_released($zk, 'number', $second);
};

# The next one comes within microseconds. It must find no lock of PostgreSQL's
# still held by the transaction before, which takes milliseconds to let go of so
# many.
subtest 'the next holder finds the locks of the former transaction released' => sub {
	my ($first, $second) = @pool;
	foreach (1 .. 10)
	{
		# That of the round before may still be on its way out.
		assert_no_nodes($zk, lock_path('over'), 'nothing left of the last round');
		$first->query_safe("BEGIN; SELECT zk_xact_lock('over');
			SELECT count(pg_advisory_xact_lock(i)) FROM generate_series(1, 1000) i");
		$second->start_query("DO \$\$ BEGIN PERFORM zk_xact_lock('over');
			ASSERT (SELECT bool_and(pg_try_advisory_xact_lock(i))
				FROM generate_series(1, 1000) i); END \$\$");
		wait_for_queue($zk, lock_path('over'), 2);
		wait_for_watch($zk, (nodes('over'))[0]);
		$first->query_safe('COMMIT');
		assert_ends($second, '00000', 'the advisory locks of the former holder are free');
	}
	assert_no_nodes($zk, lock_path('over'));
};

# Counting without protection but the lock: none is lost, from two clusters and
# a dozen backends.
subtest 'eight backends and another cluster count up without losing an increment' => sub {
	my $count = 90;
	$berlin->safe_psql('postgres',
		'CREATE TABLE turns (turn serial, token bigint PRIMARY KEY); CREATE TABLE busy (who int)');
	my @many = map { background($berlin) } 1 .. 8;
	# Whoever is inside writes a row that all see at once, and takes it back.
	my $sql = "DO \$\$ DECLARE token bigint; BEGIN
		FOR i IN 1 .. $count LOOP
			token := zk_lock('counter');
			COMMIT;
			ASSERT NOT EXISTS (SELECT FROM busy), 'somebody is inside';
			INSERT INTO busy VALUES (pg_backend_pid());
			INSERT INTO turns (token) VALUES (token);
			COMMIT;
			DELETE FROM busy WHERE who = pg_backend_pid();
			COMMIT;
			PERFORM zk_unlock('counter');
		END LOOP; END \$\$";
	my $elsewhere = "DO \$\$ BEGIN FOR i IN 1 .. $count LOOP
		PERFORM zk_lock('counter'), zk_unlock('counter'); END LOOP; END \$\$";
	$_->start_query($sql) foreach @many;
	$abroad->start_query($elsewhere);
	assert_ends($_, '00000', 'done') foreach @many, $abroad;
	is(ask($berlin, 'SELECT count(*) FROM turns'), @many * $count, 'all turns, each with a token of its own');
	is($berlin->safe_psql('postgres',
			'SELECT count(*) FROM (SELECT token < lag(token) OVER (ORDER BY turn)
				AS is_late FROM turns) AS t WHERE is_late'),
		'0', 'tokens rise in the order of the turns');
	assert_no_nodes($zk, lock_path('counter'));
};

# So many have been told by now that no place were left if each had kept its own.
subtest 'backends tell each other of a release also after hundreds of hand-overs' => sub {
	my ($first, $second) = @pool;
	my $places = 512;
	my @many = map { background($berlin) } 1 .. 4;
	# As many as it takes: on a busy machine fewer have said by then that they wait.
	foreach my $round (1 .. 50)
	{
		last if told() > $places;
		$_->start_query("DO \$\$ BEGIN FOR i IN 1 .. 50 LOOP PERFORM zk_lock('many'), zk_unlock('many'); END LOOP; END \$\$")
		  foreach @many;
		assert_ends($_, '00000', "round $round") foreach @many;
	}
	my $before = told();
	plan skip_all => "only $before were told on this busy machine" if $before <= $places && Patience::slowness() > 2;
	cmp_ok($before, '>', $places, 'there are fewer places');
	assert_most_told('after', $first, $second);
};

done_testing();
