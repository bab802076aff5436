
# A session that has held a lock for more than a moment hears at once that it was taken away,
# whatever it does meanwhile. Tested with a session timeout of 60 s, so that no proof tells of
# the loss before the watch does.

use Proxy;
use ZkLockTest;

my $zk = ZooKeeper->new(max_session_timeout => 60_000)->start;
my $node = cluster('berlin', $zk, init => [ allows_streaming => 1 ], 'zklock.session_timeout' => '60s');
my $operator = background($node);
my $client = $zk->client;
my $deleted = qr/The queue node with fencing token \d+ was deleted by zk_evict\(\), or by another client/;
my $soon = 14;

my %scopes = (session => 'zk_lock', call => 'zk_call_lock', transaction => 'zk_xact_lock');
my %ways = (
	'zk_evict()' => sub ($name) {
		$operator->query_safe("SELECT zk_evict('$name', token) FROM zk_lock_queue('$name') WHERE position = 1");
		sleep 0.5;    # what asks meanwhile would be interrupted
	},
	'another client' => sub ($name) {
		$client->delete(lock_path("$name/" . (queue_nodes($zk, lock_path($name)))[0]));
		sleep 0.5;    # likewise
	});

# So many places are watched; nobody waits for a lock here.
sub await_watches ($count, $what = 'the place is watched')
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return assert_becomes { $zk->watch_count } $count, $what;
}

# A session that holds it, in a transaction if need be.
sub hold ($scope, $name)
{
	my $holder = background($node);
	$holder->query_safe('BEGIN') if $scope ne 'session';
	$holder->query_safe("SELECT $scopes{$scope}('$name')");
	return $holder;
}

# All holds of a session are gone.
sub quit ($holder)
{
	$holder->quit;
	return await_watches(0, 'no watch is left');
}

foreach my $scope (sort keys %scopes)
{
	foreach my $way (sort keys %ways)
	{
		subtest "a lock of $scope scope that is lost is told at once: $way" => sub {
			my $holder = hold($scope, 'idle');
			await_watches(1);
			my $begun = time;
			$ways{$way}->('idle');
			assert_becomes { $holder->query("SELECT zk_fencing_token('idle') IS NULL") } 't', 'an idle holder has no token any more', $soon;
			# The interrupt may come only now.
			assert_becomes { $holder->query('SELECT state FROM zk_session_locks') } 'lost', 'zk_session_locks shows the lock as lost';
			assert_query($holder, "SELECT $scopes{$scope}('idle')", '40001', 'the lost lock is not taken again');
			like($holder->error, qr/lock "idle" was lost\nDETAIL:  $deleted/, 'the error says that the queue node was deleted');
			in_time(time - $begun, $soon, 'the holder hears of the loss before a proof is due');
			quit($holder);

			$holder = hold($scope, 'asked');
			await_watches(1);
			$ways{$way}->('asked');
			my $try = "SELECT zk_try_@{[ $scopes{$scope} =~ s/^zk_//r ]}('asked')";
			poll_until { $holder->query($try) ne 't' } 're-entry to be refused', $soon;
			is($holder->sqlstate, '40001', 'a try of the lost lock raises');
			quit($holder);

			$holder = background($node);
			$holder->start_query("DO \$\$ BEGIN PERFORM $scopes{$scope}('busy');
				BEGIN PERFORM pg_sleep(60); EXCEPTION WHEN OTHERS THEN NULL; END; END \$\$");
			wait_for_sleep($node, $holder->pid);
			await_watches(1);
			$begun = time;
			$ways{$way}->('busy');
			assert_ends($holder, '40001', 'a running statement is interrupted');
			like($holder->error, qr/ERROR:  lock "busy" was lost\nDETAIL:  $deleted/, 'the interrupted statement says why');
			in_time(time - $begun, $soon, 'the running statement is interrupted at once');
			$holder->query_safe('SELECT zk_unlock_all()');
			is($holder->query_safe("SELECT zk_try_lock('busy')"), 't', 'the session takes the lock again after its release');
			quit($holder);
		};
	}
}

subtest 'a lock that is held for a moment costs no further request' => sub {
	my $other = background($node, is_connected => 1);
	my $holder = background($node, is_connected => 1, first => "SELECT zk_lock('short'), zk_unlock('short')");
	assert_least
	{
		my $before = $zk->packets_received;
		$holder->query_safe("SELECT zk_lock('short'), zk_unlock('short')") foreach 1 .. 10;
		# By the time that this one is watched they would be, too.
		$other->query_safe("SELECT zk_lock('short')");
		poll_until { $zk->watch_count == 1 } 'the other one to be watched';
		my $received = $zk->packets_received - $before;
		$other->query_safe("SELECT zk_unlock('short')");
		poll_until { $zk->watch_count == 0 } 'it to be gone';
		$received;
	}
	3 * 10 + 2 + 1, 'three requests for each, and one for the one that is held longer';
};

subtest 'an old proof is renewed before a lock is taken again' => sub {
	my $holder = background($node);
	my $asks = sub {
		my $before = $holder->query_safe("SELECT sum(requests) FROM zk_stat");
		is($holder->query_safe("SELECT zk_try_lock('again')"), 't', 'a held lock is taken again');
		$holder->query_safe('SELECT pg_stat_clear_snapshot()');
		return $holder->query_safe("SELECT sum(requests) FROM zk_stat") - $before;
	};
	$holder->query_safe("SET zklock.session_timeout = '6s'; SELECT zk_lock('again')");
	is($asks->(), 0, 'a fresh proof asks ZooKeeper nothing');
	poll_until { $asks->() == 1 } 'an old one not to', 30;
	is($asks->(), 0, 'the renewed proof asks ZooKeeper nothing');
	quit($holder);
};

subtest 'no statement is interrupted for a lock that was released, in one mode or both, or kept' => sub {
	my ($holder, $other) = map { background($node) } 1 .. 2;
	$holder->query_safe("SELECT zk_lock('held'); SELECT zk_lock('left'), zk_lock('both'), zk_lock_shared('both')");
	await_watches(3);
	$holder->start_query("DO \$\$ BEGIN PERFORM zk_unlock('left'), zk_unlock('both'); PERFORM pg_sleep(3); END \$\$");
	await_watches(2, 'the node of both modes is watched');
	assert_ends($holder, '00000', 'a statement is not interrupted for a lock that its session releases');
	is($holder->query_safe("SELECT string_agg(state, ' ') FROM zk_session_locks"), 'held held held', 'the other two locks are held, one of them with a row for each mode');
	$ways{'another client'}->('both');
	assert_becomes { $holder->query("SELECT DISTINCT state FROM zk_session_locks WHERE name = 'both'") } 'lost', 'the lock that was left in shared mode is lost when it is taken away', $soon;
	$holder->query_safe("SELECT zk_unlock_shared('both')");
	await_watches(1);

	# What is kept is held by nobody.
	$holder->query_safe("SET zklock.keep = '1h'");
	my $keep = sub {
		poll_until
		{
			$holder->query_safe("SELECT zk_lock('kept'), zk_unlock('kept')");
			$holder->query_safe("SELECT count(*) FROM zk_session_locks WHERE state = 'kept'") == 1;
		}
		'it to be kept', 30;
		await_watches(3, 'the place and the queue of the kept lock are watched');
	};
	my %who = (
		'when it is given up' => sub { $other->query_safe("SELECT zk_lock('kept'), zk_unlock('kept')") },
		'when it is taken away' => sub { $ways{'another client'}->('kept') });
	foreach my $what (sort keys %who)
	{
		$keep->();
		$operator->query_safe('SELECT pg_advisory_lock(1)');
		$holder->start_query('SELECT pg_advisory_lock(1), pg_advisory_unlock(1)');
		poll_until { ask($node, "SELECT wait_event FROM pg_stat_activity WHERE pid = @{[ $holder->pid ]}") eq 'advisory' } 'the statement to wait';
		$who{$what}->();
		$operator->query_safe('SELECT pg_advisory_unlock(1)');
		assert_ends($holder, '00000', "a statement is not interrupted for a kept lock $what");
		is($holder->query_safe("SELECT string_agg(state, ' ') FROM zk_session_locks"), 'held', 'the other lock is still held');
	}
	$keep->();
	$holder->start_query("SELECT zk_lock('kept'), pg_sleep(60)");
	wait_for_sleep($node, $holder->pid);
	$ways{'another client'}->('kept');
	assert_ends($holder, '40001', 'a statement is interrupted for a kept lock that was taken again');
	$other->quit;
	quit($holder);
};

subtest 'a waiter that is evicted loses none of its locks, and is watched once granted' => sub {
	# Of another cluster, or it may be handed the lock before anything else is heard of its node.
	my $abroad = cluster('paris', $zk, 'zklock.session_timeout' => '60s');
	my ($first, $waiter) = map { background($_) } $node, $abroad;
	$first->query_safe("SELECT zk_lock('queue')");
	$waiter->query_safe("SELECT zk_lock('held')");
	start_in_queue($waiter, "SELECT zk_lock('queue')", $zk, lock_path('queue'), 2);
	wait_for_wait($abroad, $waiter->pid);
	await_watches(3, 'the node ahead of the waiter and its lock are watched');
	$operator->query_safe("SELECT zk_evict('queue', token) FROM zk_lock_queue('queue') WHERE position = 2");
	$first->query_safe("SELECT zk_unlock('queue')");
	assert_ends($waiter, '57000', 'the evicted waiter ends with its error');
	is($waiter->query_safe('SELECT state FROM zk_session_locks'), 'held', 'the evicted waiter still has its other lock');

	# Who has waited is told like others.
	$first->query_safe("SELECT zk_lock('queue')");
	start_in_queue($waiter, "SELECT zk_lock('queue')", $zk, lock_path('queue'), 2);
	wait_for_wait($abroad, $waiter->pid);
	$first->query_safe("SELECT zk_unlock('queue')");
	$waiter->wait_result;
	await_watches(2, 'the lock that was granted is watched');
	$ways{'zk_evict()'}->('queue');
	assert_becomes { $waiter->query("SELECT state FROM zk_session_locks WHERE name = 'queue'") } 'lost', 'the waiter that was granted the lock is told of its loss', $soon;
	$_->quit foreach $first, $waiter;
	await_watches(0, 'no watch is left of the waiter');

	# The first of those who wait for a permit watches the queue to the end.
	my @holder = map { background($node) } 1 .. 2;
	$waiter = background($node);
	$_->query_safe("SELECT zk_lock('permits', permits => 2)") foreach @holder;
	start_in_queue($waiter, "SELECT zk_lock('permits', permits => 2)", $zk, lock_path('permits'), 3);
	await_watches(3, 'the queue of the waiter and two permits are watched');
	assert_passes('permits', $holder[0], $waiter, 'the waiter is granted a permit');
	await_watches(2, 'two permits are watched in the end');
	$holder[1]->quit;
	await_watches(1);
	$ways{'another client'}->('permits');
	assert_becomes { $waiter->query('SELECT state FROM zk_session_locks') } 'lost', 'the waiter that was granted a permit is told of its loss', $soon;
	$holder[0]->quit;
	quit($waiter);
};

subtest 'locks that are lost one after the other interrupt one statement each' => sub {
	my $holder = background($node, first => "SELECT zk_lock('a'), zk_lock('b'), zk_lock('c')");
	await_watches(3);
	foreach my $name (qw(a b))
	{
		$holder->start_query('SELECT pg_sleep(60)');
		wait_for_sleep($node, $holder->pid);
		$ways{'another client'}->($name);
		assert_ends($holder, '40001', "$name interrupts");
		is($holder->query_safe("SELECT string_agg(name, ' ') FROM zk_session_locks WHERE state = 'lost'"), $name, 'the lock that interrupted is the one that is lost');
		$holder->query_safe("SELECT zk_unlock('$name')");
	}
	assert_held($holder, 'c', 'the third lock is still held');
	quit($holder);
};

subtest 'a commit that is under way is not interrupted' => sub {
	$node->safe_psql('postgres', 'CREATE TABLE work (i int)');
	my $holder = hold('transaction', 'commit');
	$holder->query_safe('INSERT INTO work VALUES (1)');
	await_watches(1);
	$operator->query_safe("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
	$operator->query_safe('SELECT pg_reload_conf()');
	poll_until { $holder->query_safe('SHOW synchronous_standby_names') eq 'nobody' } 'the setting';
	wait_for_demand($node);
	$holder->start_query('COMMIT');
	poll_until { $operator->query_safe("SELECT wait_event FROM pg_stat_activity WHERE pid = @{[ $holder->pid ]}") eq 'SyncRep' } 'it to wait';
	my $offset = -s $node->logfile;
	$ways{'another client'}->('commit');
	await_watches(0, 'the watch of the deleted node is gone');
	ok(!$holder->is_done, 'the COMMIT still waits for its standby');
	$operator->query_safe('ALTER SYSTEM RESET synchronous_standby_names');
	$operator->query_safe('SELECT pg_reload_conf()');
	assert_ends($holder, '00000', 'the COMMIT under way is done');
	unlike(slurp_file($node->logfile, $offset), qr/ERROR|canceling/, 'the log has no error of the COMMIT');
	quit($holder);
};

subtest 'a loss while there was no connection is heard when there is one again' => sub {
	my $proxy = Proxy->new($zk->connect_string);
	my $holder = background($node, route => $proxy->address, first => q(SELECT zk_lock('apart'), zk_lock('stays')));
	await_watches(2);
	$proxy->reset_connections;
	await_watches(2, 'both locks are watched over the next connection');
	is($holder->query_safe("SELECT string_agg(state, ' ') FROM zk_session_locks"), 'held held', 'both locks are held after the reset');
	$proxy->go_away;
	$ways{'another client'}->('apart');
	$proxy->come_back;
	assert_becomes { $holder->query("SELECT state FROM zk_session_locks WHERE name = 'apart'") } 'lost', 'the loss is heard when there is a connection again', 30;
	is($holder->query_safe("SELECT state FROM zk_session_locks WHERE name = 'stays'"), 'held', 'the other lock is still held');
	quit($holder);
};

done_testing();
