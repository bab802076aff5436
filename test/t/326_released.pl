
# A lock that was released before the commit, and had been lost by then: the transaction that
# wrote under it does not commit, however late ZooKeeper's answer to the release comes. Here it
# comes when the test lets it pass: a proxy holds the request back that releases the lock.

use Proxy;
use ZkLockTest;

my $zk = ZooKeeper->new(max_session_timeout => 60_000)->start;
my $node = cluster('berlin', $zk, 'zklock.session_timeout' => '60s');
$node->safe_psql('postgres', 'CREATE TABLE work (i int)');
my $stranger = $zk->client;
my $nlocks = 0;

# A session behind a proxy of its own, with a lock that nobody else has had.
sub holder ($guard)
{
	my $proxy = Proxy->new($zk->connect_string);
	my $session = background($node, route => $proxy->address, 'zklock.commit_guard' => $guard);
	return ($session, $proxy, 'released' . ++$nlocks);
}

# From the next request of that type on nothing comes through: 2 is a delete, 15 a create.
sub hold_back ($proxy, $type = 2) { return $proxy->trap($type, 1, 'rest'); }

# The request is sent, and held back.
sub await_held ($proxy) { return poll_until { $proxy->is_sprung } 'the request is held back', 60; }

sub delete_node ($name)
{
	$stranger->delete(lock_path("$name/$_")) foreach queue_nodes($zk, lock_path($name));
	return;
}

sub count_rows { return $node->safe_psql('postgres', 'SELECT count(*) FROM work'); }

# A COMMIT that waits for the answer, which comes now. On a busy machine a lock may have been
# held for long enough to be told of its loss at once: then nothing is left to wait for.
sub commit_waits ($session, $proxy)
{
	my $waits = 'SELECT count(*) FROM pg_stat_activity WHERE pid = ' . $session->pid
	  . " AND state = 'active' AND wait_event_type = 'Extension'";
	$session->start_query('COMMIT');
	poll_until { $session->is_done || $node->safe_psql('postgres', $waits) } 'the commit to wait', 60;
	$proxy->heal;
	return $session->wait_result;
}

# What is done with the lock, and how it is let go of; [ type of the request ].
my $take = q{BEGIN; SELECT zk_lock('%s'); INSERT INTO work VALUES (1)};
my %ways = (
	'zk_unlock' => [ $take, q{SELECT zk_unlock('%s')} ],
	'zk_unlock of several' => [ $take, q{SELECT zk_unlock_set(ARRAY['%s'])} ],
	'zk_unlock_shared' => [ q{BEGIN; SELECT zk_lock_shared('%s'); INSERT INTO work VALUES (1)}, q{SELECT zk_unlock_shared('%s')} ],
	'zk_unlock_all' => [ $take, 'SELECT zk_unlock_all()' ],
	'a lock of the transaction before' => [ q{SELECT zk_lock('%s'); BEGIN; INSERT INTO work VALUES (1)}, q{SELECT zk_unlock('%s')} ],
	'ROLLBACK TO SAVEPOINT' => [ q{BEGIN; SAVEPOINT s; SELECT zk_xact_lock('%s'); INSERT INTO work VALUES (1)}, 'ROLLBACK TO s; INSERT INTO work VALUES (2)' ],
	'all in one command' => [ 'BEGIN; SELECT /* %s */',
		q{WITH w AS (INSERT INTO work SELECT 1 FROM zk_lock('%s') RETURNING 1) SELECT zk_unlock('%s') FROM w} ],
	'a notification' => [ q{BEGIN; SELECT zk_lock('%s'); NOTIFY work}, q{SELECT zk_unlock('%s')} ],
	'a lock that could be kept' => [ "SET zklock.keep = '1min'; $take", q{SELECT zk_unlock('%s')} ],
	'a downgrade' => [ q{BEGIN; SELECT zk_lock('%1$s'), zk_lock_shared('%1$s'); INSERT INTO work VALUES (1)}, q{SELECT zk_unlock('%s')}, 15 ],
	'a downgrade that is released, too' => [ q{BEGIN; SELECT zk_lock('%1$s'), zk_lock_shared('%1$s'); INSERT INTO work VALUES (1)},
		q{SELECT zk_unlock('%1$s'), zk_unlock_shared('%1$s')}, 15 ]);

foreach my $way (sort keys %ways)
{
	subtest "a lock released ahead of COMMIT, and lost or not: $way" => sub {
		my ($work, $release, $type) = @{ $ways{$way} };
		foreach my $guard (qw(lease quorum))
		{
			foreach my $is_lost (0, 1)
			{
				my ($session, $proxy, $name) = holder($guard);
				$node->safe_psql('postgres', 'TRUNCATE work');
				$session->query_safe(sprintf $work, $name);
				hold_back($proxy, $type // 2);
				$session->query_safe($release =~ s/%(?:1\$)?s/$name/gr);
				await_held($proxy);
				delete_node($name) if $is_lost;
				commit_waits($session, $proxy);
				is($session->sqlstate, $is_lost ? '40001' : '00000', "$guard: " . ($is_lost ? 'it was lost' : 'it was held'));
				is($session->error, '', 'the lock that was held causes no warning') unless $is_lost;
				is(count_rows(), $is_lost || $way =~ /notification/ ? 0 : 1, 'the work is there only if the lock was held');
				$session->query_safe("SELECT zk_unlock_all() \\g /dev/null\nINSERT INTO work VALUES (3)");
				is($session->sqlstate, '00000', 'the next transaction commits');
				assert_leave_nothing($zk, lock_path($name), $session);
			}
		}
	};
}

# The release of the shared lock comes while the downgrade ends, at one moment or another: ZooKeeper
# tells of the node that there is then, and nobody is refused who has lost nothing.
subtest 'a lock released while its downgrade ends is not taken for lost' => sub {
	my $session = background($node, 'zklock.commit_guard' => 'quorum');
	my $round = q{BEGIN; SELECT zk_lock('ending'), zk_lock_shared('ending'); INSERT INTO work VALUES (1);
		SELECT zk_unlock('ending'); INSERT INTO work VALUES (2); SELECT zk_unlock_shared('ending'); COMMIT;};
	$session->query_safe(join "\n", ($round) x 400);
	is($session->error, '', 'each round commits, and nothing is said');
	assert_leave_nothing($zk, lock_path('ending'), $session);
};

subtest 'a lock deleted before its release lets nothing commit' => sub {
	my ($session, $proxy, $name) = holder('lease');
	$node->safe_psql('postgres', 'TRUNCATE work');
	$session->query_safe(sprintf $take, $name);
	hold_back($proxy);
	delete_node($name);
	my $released = $session->query("SELECT zk_unlock('$name')");
	if ($released eq 't')
	{
		commit_waits($session, $proxy);
		like($session->error, qr/WARNING:  lock "$name" had been lost before it was released\n/, 'the warning tells of the loss');
		like($session->error, qr/ERROR:  a lock was lost in this transaction\nDETAIL:  Lock "$name" was released after the loss\./, 'the error tells which lock was released after its loss');
	}
	else
	{
		note('it was held for more than a moment, and so it was told at once');
		$proxy->heal;
		$session->query('COMMIT');
	}
	isnt(count_rows(), 1, 'no work of the lost lock is committed');
};

# It waits for the answer for no longer than two seconds, so on a busy machine that is tried again.
# The warnings are more than the socket to the client takes.
subtest 'a backend whose client does not read the warnings of lost locks can be terminated' => sub {
	my ($session, $proxy, $name) = holder('lease');
	my ($key, $count, $long) = (326, 800, 'n' x 200);
	my $blocker = background($node, first => "SELECT pg_advisory_lock($key)");
	$session->query_safe("SELECT count(zk_lock('$name/$long' || i)) FROM generate_series(1, $count) AS i");
	hold_back($proxy);
	$session->query_safe('BEGIN; INSERT INTO work VALUES (1); SELECT zk_unlock_all()');
	delete_node("$name/$long$_") foreach 1 .. $count;
	$session->start_query("DO \$\$ BEGIN
		PERFORM pg_advisory_lock($key);
		LOOP PERFORM zk_unlock_all(), pg_sleep(0.01); END LOOP;
	END \$\$");
	wait_for_lock($node, $session->pid);
	$proxy->heal;
	$session->signal('STOP');
	$blocker->query_safe("SELECT pg_advisory_unlock($key)");
	my $activity = 'FROM pg_stat_activity WHERE pid = ' . $session->pid;
	poll_until { $blocker->query_safe("SELECT wait_event $activity") eq 'ClientWrite' } 'the backend to wait for its client', 60;
	$session->terminate;
	assert_soon { $blocker->query_safe("SELECT count(*) $activity") eq '0' } 'the backend ends', 20;
	$session->signal('CONT');
	$session->wait_result;
};

subtest 'zk_disconnect() tells of a loss, and nothing commits in the next session' => sub {
	my ($session, $proxy, $name);
	foreach (1 .. 10)
	{
		($session, $proxy, $name) = holder('lease');
		$node->safe_psql('postgres', 'TRUNCATE work');
		$session->query_safe(sprintf $take, $name);
		hold_back($proxy);
		$session->start_query('SELECT zk_disconnect()');
		await_held($proxy);
		delete_node($name);
		$proxy->heal;
		$session->wait_result;
		last if $session->error =~ /WARNING/ || $session->sqlstate ne '00000';
		note('again: the answer came too late');
	}
	if ($session->sqlstate eq '00000')
	{
		like($session->error, qr/WARNING:  lock "$name" had been lost before it was released\n/, 'zk_disconnect() warns of the loss');
		$session->query_safe("SELECT zk_lock('$name.2')");
		$session->query('COMMIT');
		is($session->sqlstate, '40001', 'a COMMIT in the next session is refused for the loss');
	}
	is(count_rows(), 0, 'no work of the lost lock is committed');
	$session->query_safe('ROLLBACK');
	assert_leave_nothing($zk, lock_path("$name.2"), $session);
};

# The user is warned at once, and the commit is refused all the same.
subtest 'a later call tells of a loss, and the transaction does not commit' => sub {
	my ($session, $proxy, $name) = holder('lease');
	$node->safe_psql('postgres', 'TRUNCATE work');
	$session->query_safe(sprintf $take, $name);
	hold_back($proxy);
	$session->query_safe("SELECT zk_unlock('$name')");
	await_held($proxy);
	delete_node($name);
	$proxy->heal;
	poll_until { $session->query_safe("SELECT zk_try_lock('$name.2'), zk_unlock('$name.2')"); $session->error ne '' } 'the warning', 60;
	like($session->error, qr/WARNING:  lock "$name" had been lost before it was released\n/, 'a later call warns of the loss');
	$session->query('COMMIT');
	is($session->sqlstate, '40001', 'the transaction of the lost lock does not commit');
	is(count_rows(), 0, 'no work of the lost lock is committed');
};

# Nothing that was written relies on the lock.
subtest 'a transaction that wrote nothing under the lost lock commits' => sub {
	my %idle = (
		'nothing is written' => [ q{BEGIN; SELECT zk_lock('%s')}, '' ],
		'what was written was so before' => [ q{BEGIN; INSERT INTO work VALUES (1)}, q{SELECT zk_lock('%s')} ],
		'what is written is so later' => [ q{BEGIN; SELECT zk_lock('%s')}, '', 'INSERT INTO work VALUES (1)' ]);
	foreach my $way (sort keys %idle)
	{
		my ($session, $proxy, $name) = holder('quorum');
		my ($begin, $take_late, $later) = @{ $idle{$way} };
		$node->safe_psql('postgres', 'TRUNCATE work');
		$session->query_safe(sprintf $begin, $name);
		$session->query_safe(sprintf $take_late, $name) if $take_late;
		hold_back($proxy);
		$session->query_safe("SELECT zk_unlock('$name')");
		await_held($proxy);
		delete_node($name);
		$session->query_safe($later) if $later;
		$session->query('COMMIT');
		is($session->sqlstate, '00000', "$way: it commits, and waits for nothing");
		$proxy->heal;
		poll_until { $session->query('SELECT 1'); $session->error ne '' } 'the warning', 60;
		like($session->error, qr/WARNING:  lock "$name" had been lost before it was released\n/, 'a warning tells of the loss after the commit');
		is(count_rows(), $way =~ /nothing/ ? 0 : 1, 'the work without the lock is committed');
	}
};

subtest 'a COMMIT that waits for the answer ends by a cancel or by zklock.connect_timeout' => sub {
	foreach my $case ([ 'quorum', 'cancel' ], [ 'lease', 'cancel' ], [ 'lease', 'wait' ], [ 'off', 'wait' ])
	{
		my ($guard, $what) = @$case;
		my ($session, $proxy, $name) = holder($guard);
		$node->safe_psql('postgres', 'TRUNCATE work');
		$session->query_safe("SET zklock.connect_timeout = '" . ($what eq 'cancel' ? '1h' : '1s') . "'");
		$session->query_safe(sprintf $take, $name);
		hold_back($proxy);
		$session->query_safe("SELECT zk_unlock('$name')");
		await_held($proxy);
		$session->start_query('COMMIT');
		if ($what eq 'cancel')
		{
			wait_for_wait($node, $session->pid, $session);
			$session->cancel;
		}
		$session->wait_result;
		is($session->sqlstate, $what eq 'cancel' ? '57014' : '00000', "$guard: $what");
		is(count_rows(), $what eq 'cancel' ? 0 : 1, 'the work is there unless the COMMIT was canceled');
		$proxy->heal;
		assert_leave_nothing($zk, lock_path($name), $session);
	}
};

# The delete may have been ours, or not: nobody can find out. A fresh proof will do.
subtest 'a COMMIT whose answer is lost needs a fresh proof' => sub {
	foreach my $guard (qw(lease quorum))
	{
		my ($session, $proxy, $name) = holder($guard);
		$node->safe_psql('postgres', 'TRUNCATE work');
		$session->query_safe(sprintf $take, $name);
		$proxy->trap(2, 1, 'replies');
		$session->query_safe("SELECT zk_unlock('$name')");
		await_held($proxy);
		assert_no_nodes($zk, lock_path($name), 'the node of the lock is deleted');
		$session->start_query('COMMIT');
		wait_for_wait($node, $session->pid, $session);
		$proxy->come_back;
		$session->wait_result;
		is($session->sqlstate, $guard eq 'lease' ? '00000' : '40001', $guard);
		like($session->error, qr/ERROR:  could not prove that the locks released in this transaction were held/, 'the error says that a proof is missing')
		  if $guard eq 'quorum';
		is(count_rows(), $guard eq 'lease' ? 1 : 0, 'the work is there only with a proof');
	}
};

# The node is looked for when the delete is refused, and the delete is repeated.
subtest 'a delete that is refused lets the work commit only if the node is there' => sub {
	my ($all, $delete) = (31, 8);
	foreach my $is_lost (0, 1)
	{
		my ($session, $proxy, $name) = holder('quorum');
		$node->safe_psql('postgres', 'TRUNCATE work');
		$session->query_safe(sprintf $take, $name);
		hold_back($proxy);
		$session->query_safe("SELECT zk_unlock('$name')");
		await_held($proxy);
		delete_node($name) if $is_lost;
		$stranger->set_acl(lock_path($name), [ [ $all & ~$delete, 'world', 'anyone' ] ]);
		commit_waits($session, $proxy);
		is($session->sqlstate, $is_lost ? '40001' : '00000', $is_lost ? 'it was lost' : 'it was held');
		is(count_rows(), $is_lost ? 0 : 1, 'the work is there only if the lock was held');
		$stranger->set_acl(lock_path($name), [ [ $all, 'world', 'anyone' ] ]);
		assert_no_nodes($zk, lock_path($name), 'the node of the lock is deleted in the end');
	}
};

done_testing();
