
# A lock with several permits never has more holders than permits, across clusters, and permits
# pass on in the order of the queue. A wait costs one watch, and a release wakes one waiter.
# Tested with real servers, whose counters tell requests and watches.

use Proxy;
use ZkLockTest;

my $zk = ZooKeeper->new->start;
# Requests are counted: none is to be for log_lock_waits, which is on by default from PostgreSQL 19 on.
my %node = map { $_ => cluster($_, $zk, 'zklock.session_timeout' => '60s', log_lock_waits => 'off') }
  qw(berlin paris);
my @pool = map { background($node{ $_ % 2 ? 'paris' : 'berlin' }) } 1 .. 7;
my $stranger = $zk->client;
my $uuid = '6ba7b810-9dad-41d1-80b4-00c04fd430c8';

sub take ($session, $lock, $permits)
{
	$session->start_query("SELECT zk_lock('$lock', permits => $permits)");
	return;
}

# These take a permit one after the other.
sub line_up_for ($lock, $permits, @numbers)
{
	foreach my $number (@numbers)
	{
		take($pool[$number], $lock, $permits);
		wait_for_queue($zk, lock_path($lock), $number + 1);
	}
	return;
}

sub granted { return join ' ', grep { $pool[$_]->is_done } 0 .. $#pool; }

sub states ($lock)
{
	return $node{paris}->safe_psql('postgres',
		"SELECT string_agg(left(state, 1), '' ORDER BY position) FROM zk_lock_queue('$lock')");
}

subtest 'the first three contenders of the queue hold a lock with three permits' => sub {
	line_up_for('three', 3, 0 .. $#pool);
	wait_for_wait($_->node, $_->pid) foreach @pool[ 3 .. $#pool ];
	$pool[$_]->wait_result foreach 0 .. 2;
	is(granted(), '0 1 2', 'three of seven');
	is(states('three'), 'hhhwwww', 'zk_lock_queue() shows three holders and four waiters');
	is( $pool[0]->query_safe("SELECT permits, session_acquisitions FROM zk_session_locks"), '3|1', 'zk_session_locks shows the permits');

	# One of them leaves, each time another one than the longest holder.
	my @holders = (0, 1, 2);
	foreach my $next (3 .. $#pool)
	{
		my $leaving = splice @holders, $next % 2 ? 1 : 2, 1;
		assert_passes('three', $pool[$leaving], $pool[$next], "$leaving leaves, $next follows");
		push @holders, $next;
		is(scalar(grep { !$pool[$_]->is_done } $next + 1 .. $#pool), $#pool - $next, 'no other waiter is granted a permit');
	}
	assert_released($zk, 'three', @pool[ @holders ]);
};

subtest 'waiters for a permit that give up do not hold up the others' => sub {
	line_up_for('two', 2, 0 .. 5);
	$pool[$_]->wait_result foreach 0, 1;
	# the first that waits, and one behind it
	foreach my $number (2, 4)
	{
		$pool[$number]->cancel;
		assert_ends($pool[$number], '57014', "$number gives up");
	}
	wait_for_queue($zk, lock_path('two'), 4);
	ok(!$pool[3]->is_done && !$pool[5]->is_done, 'the others wait');
	assert_passes('two', $pool[1], $pool[3], 'the next waiter is granted the permit');
	ok(!$pool[5]->is_done, 'the last waiter still waits');
	assert_passes('two', $pool[0], $pool[5], 'the last waiter is granted the permit');
	assert_released($zk, 'two', @pool[ 3, 5 ]);
};

subtest 'a grant of a permit wakes the next waiter and no other' => sub {
	line_up_for('quiet', 2, 0 .. $#pool);
	$pool[$_]->wait_result foreach 0, 1;
	my $watched = sub { return scalar(my @nodes = $zk->watched_paths(lock_path('quiet') . '/')); };
	# Each has its watch, the first one that of the queue; and so have two places that are held
	# for more than a moment.
	poll_until { $watched->() == 4 && $zk->watch_count == 7 } 'five watches of five who wait, and two', 30;
	my $before = $zk->packets_received;
	$pool[0]->query_safe("SELECT zk_unlock('quiet')");
	$pool[2]->wait_result;
	poll_until { $watched->() == 3 && $zk->watch_count >= 5 } 'the next one to watch the queue', 30;
	# delete; list, set, the watch's removal; list, list with a watch; and some
	# patience with heartbeats
	cmp_ok($zk->packets_received - $before, '<=', 9, 'few requests');
	is(granted(), '0 1 2', 'one more holder');
	# That of the queue of the contender that was granted is gone; its place is watched from the next
	# heartbeat on.
	assert_becomes { $zk->watch_count } 6, 'three nodes, the queue and two places are watched', 60;
	foreach my $number (3 .. $#pool)
	{
		$pool[ $number - 2 ]->query_safe("SELECT zk_unlock('quiet')");
		$pool[$number]->wait_result;
	}
	assert_released($zk, 'quiet', @pool[ 5, 6 ]);
};

# Where there are no permits, or another client's lock, is in t/198.
subtest 'a call that names another number of permits is refused' => sub {
	$pool[0]->query_safe("SELECT zk_lock('mixed', permits => 2)");
	foreach my $other ("zk_lock('mixed', permits => 3)", "zk_try_lock('mixed', permits => 4)",
		"zk_xact_lock('mixed', '10 s', 5)")
	{
		assert_query($pool[1], "SELECT $other", '55000', "$other is refused");
	}
	like($pool[1]->error, qr/This call names permits => 5\. .* has 2/, 'the error names both numbers of permits');
	assert_released($zk, 'mixed', $pool[0]);
};

# Who names another number than the first of the queue leaves again; but that
# may take long, if its connection is down. It must not be the end of those who
# are right and come meanwhile.
subtest 'a contender with another number of permits in the queue is waited for' => sub {
	foreach my $permits (1, 2)
	{
		my $path = lock_path("wrong$permits");
		$pool[0]->query_safe("SELECT zk_lock('wrong$permits', permits => $permits)");
		my $theirs = $stranger->contend("$path/_c_$uuid-permits-9-lock-");
		is( $pool[2]->query_safe("SELECT zk_try_lock('wrong$permits', permits => $permits)") . states("wrong$permits"),
			'fhw', "$permits: a try finds it busy, and one holds it");
		line_up_for("wrong$permits", $permits, 2, 3);
		wait_for_watch($zk, $theirs);
		$stranger->delete($theirs);
		$pool[0]->query_safe("SELECT zk_unlock('wrong$permits')");
		foreach my $number (2, 3)
		{
			assert_ends($pool[$number], '00000', "$permits: granted when the odd contender has left");
			$pool[$number]->query_safe("SELECT zk_unlock('wrong$permits')");
		}
		assert_no_nodes($zk, $path);
	}
};

# Data that was set may say that the one ahead was granted. If the list says that it
# was not, there is nothing to be had from looking again.
subtest 'data set on the node ahead is not taken for a permit' => sub {
	my $path = lock_path('set');
	foreach my $name ("_c_$uuid-permits-2-lock-", node_prefix('handed over'))
	{
		$_->query_safe("SELECT zk_lock('set', permits => 2)") foreach @pool[ 0, 2 ];
		my $theirs = $stranger->contend("$path/$name");
		$stranger->set($theirs, 'before') if $name =~ /permits/;
		take($pool[3], 'set', 2);
		foreach my $when ('before it came', 'once', 'once more')
		{
			wait_for_watch($zk, $theirs);
			$stranger->set($theirs, $when) unless $when =~ /before/;
			wait_for_watch($zk, $theirs, $pool[3]);
			my $before = $zk->packets_received;
			$pool[4]->query_safe('SELECT pg_sleep(0.5)');
			cmp_ok($zk->packets_received - $before, '<=', 10, "$when: it waits quietly");
			ok(!$pool[3]->is_done, 'the waiter does not take set data for a permit');
		}
		$stranger->delete($theirs);
		assert_passes('set', $pool[0], $pool[3], 'the waiter is granted a permit in its turn');
		$pool[$_]->query_safe("SELECT zk_unlock('set')") foreach 2, 3;
		assert_no_nodes($zk, $path);
	}
};

subtest 'a permit of a holder that was terminated goes to the next waiter' => sub {
	$_->query_safe("SELECT zk_lock('mortal', permits => 2)") foreach @pool[ 0, 1 ];
	take($pool[2], 'mortal', 2);
	wait_for_queue($zk, lock_path('mortal'), 3);
	$pool[1]->terminate;
	assert_ends($pool[2], '00000', 'the next one follows');
	assert_released($zk, 'mortal', @pool[ 0, 2 ]);
};

# Who queues up while the connection of the one ahead of it is down takes that
# one for a waiter. It may have become a holder when it is back, and must say so.
subtest 'a holder whose grant was delayed still passes its permit on' => sub {
	my $proxy = Proxy->new($zk->connect_string);
	my $oslo = cluster('oslo', $zk,
		servers => $proxy->address, 'zklock.session_timeout' => '60s');
	my $late = background($oslo, is_connected => 1);
	$_->query_safe("SELECT zk_lock('late', permits => 2)") foreach @pool[ 0, 2 ];

	$proxy->trap(8, 1, 'rest');    # the list: its create is answered
	take($late, 'late', 2);
	my $ahead = (wait_for_queue($zk, lock_path('late'), 3))[2];
	take($pool[3], 'late', 2);
	wait_for_watch($zk, $ahead);
	$pool[0]->query_safe("SELECT zk_unlock('late')");
	wait_for_queue($zk, lock_path('late'), 3);
	$proxy->come_back;
	assert_ends($late, '00000', 'granted when it is back');

	$pool[2]->query_safe("SELECT zk_unlock('late')");
	assert_soon { $pool[3]->is_done } 'the one behind it follows when another holder leaves', 30;
	$late->query_safe("SELECT zk_unlock('late')");
	$pool[3]->wait_result;
	assert_released($zk, 'late', $pool[3]);
};

# The one ahead may be granted a permit after it was listed, and before it is watched: its data says
# so. What was seen of another node, or of an older version, does not count.
subtest 'a grant of the node ahead between the list and the watch is noticed' => sub {
	my $proxy = Proxy->new($zk->connect_string);
	foreach my $way ('another node', 'the same node, set again')
	{
		my $path = lock_path($way);
		my $count = $way eq 'another node' ? 4 : 3;
		$stranger->create_path($path);
		my @theirs = map { $stranger->contend("$path/_c_$uuid-permits-2-lock-") } 1 .. $count;
		my $waiter = background($node{berlin}, route => $proxy->address, is_connected => 1);
		take($waiter, $way, 2);
		wait_for_watch($zk, $theirs[-1]);
		set_and_be_seen($zk, $stranger, $theirs[-1]);
		my $before = $zk->packets_received;
		$pool[0]->query_safe('SELECT pg_sleep(0.5)');
		cmp_ok($zk->packets_received - $before, '<=', 10, "$way: data that grants nothing is looked at once");

		$proxy->trap(4, 1, 'rest');    # getData, of the one that is next in the list
		$count == 4 ? $stranger->delete($theirs[3]) : $stranger->set($theirs[2], 'again');
		poll_until { $proxy->is_sprung } 'it to watch the one ahead', 30;
		$stranger->delete($theirs[0]);
		$stranger->set($theirs[2], 'granted');
		$proxy->heal;
		$stranger->delete($theirs[1]);
		assert_soon { $waiter->is_done } "$way: the other permit is the waiter's", 20;
		$waiter->wait_result;
		$stranger->delete($theirs[2]);
		assert_released($zk, $way, $waiter);
	}
};

done_testing();
