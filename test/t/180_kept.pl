
# zklock.keep leaves a lock that no other session waits for with the session that used it last:
# taking it again sends no request, and another contender gets it at once. Tested with real
# servers, a second cluster as the other contender, and the server's counters.

use ZkLockTest;

my $timeout = 24;    # of sessions, seconds: no proof gets old on the way
my $zk = ZooKeeper->new->start;
my %node = map { $_ => cluster($_, $zk, 'zklock.session_timeout' => "${timeout}s") }
  qw(berlin paris);
my $stranger = $zk->client;
my $names = 0;
my @backends;	# that there were

# A session that keeps locks, and another one that does not; they are connected already.
sub keeper ($time) { return connected('berlin', first => "SET zklock.keep = '$time'"); }
sub rival { return connected('paris'); }

sub connected ($cluster, %option)
{
	my $session = background($node{$cluster}, is_connected => 1, %option);
	push @backends, $session->pid;
	return $session;
}

sub new_name { return 'kept' . ++$names; }

# Take and release it; it is kept then. The token.
sub cycle ($session, $name)
{
	return $session->query_safe("SELECT zk_lock('$name')")
	  . ($session->query_safe("SELECT zk_unlock('$name')") eq 't' ? '' : ' not held');
}

sub states ($session)
{
	return $session->query_safe(q(SELECT string_agg(name || ' ' || state, ', ' ORDER BY name) FROM zk_session_locks));
}

sub assert_states ($session, $expected, $what)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(states($session), $expected, $what);
}

# The lock is taken anew, as its greater token tells.
sub assert_anew ($session, $name, $token, $what)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return cmp_ok(cycle($session, $name), '>', $token, $what);
}

# What another cluster sees of its queue.
sub queue_state ($session, $name)
{
	return $session->query_safe("SELECT string_agg(state, ', ' ORDER BY position) FROM zk_lock_queue('$name')");
}

sub keep_one ($session, $name)
{
	# The watches of those who have left go with their sessions.
	poll_until { !session_programs(grep { !kill 0, $_ } @backends) } 'the end of their sessions', 30;
	$zk->wait_closed;
	my $watches = $zk->watch_count;
	my $token = cycle($session, $name);
	poll_until { $zk->watch_count > $watches } 'its queue is watched', 20;
	return $token;
}

# It keeps a lock: the session, the lock's name, and its token.
sub keeper_of_one ($time)
{
	my @keeper = (keeper($time), new_name());
	return (@keeper, keep_one(@keeper));
}

subtest 'a kept lock is taken again without a request to ZooKeeper' => sub {
	my ($keeper, $name, $token) = keeper_of_one('1min');
	assert_states($keeper, "$name kept", 'kept');
	is($keeper->query_safe("SELECT zk_fencing_token('$name') IS NULL"), 't', 'zk_fencing_token() knows no token of a kept lock');
	is($keeper->query_safe("SELECT zk_is_held('$name')"), 'f', 'zk_is_held() is false');
	my $node = join ' ', queue_nodes($zk, lock_path($name));
	like($node, marked_as('kept'), 'the node of a kept lock is marked');

	my $before = $zk->packets_received;
	is(cycle($keeper, $name), $token, 'the same token') foreach 1 .. 10;
	# Most of them at once: a proof is good for a third of the timeout.
	is($keeper->query_safe("SELECT DISTINCT zk_lock('$name'), zk_unlock('$name') FROM generate_series(1, 90)"),
		"$token|t", 'the same token, again and again');
	is($keeper->query_safe("BEGIN; SELECT zk_xact_lock('$name'); COMMIT"), $token, 'a kept lock is taken again in transaction scope');
	is($keeper->query_safe("SELECT zk_try_lock('$name')"), 't', 'a kept lock is taken again by a try');
	assert_states($keeper, "$name held", 'held');
	$keeper->query_safe("SELECT zk_unlock('$name')");
	# heartbeats of a few sessions; else it were 300
	cmp_ok($zk->packets_received - $before, '<', 80, 'hundred cycles, no request');
	is(join(' ', queue_nodes($zk, lock_path($name))), $node, 'the same node');
	is($keeper->query("SELECT zk_unlock('$name')"), 'f', 'it is not held any more');
	like($keeper->error, qr/WARNING/, 'zk_unlock() warns that the lock is not held');
	assert_leave_nothing($zk, lock_path($name), $keeper);
};

subtest "a kept lock is taken again without waking the session's program" => sub {
	my ($keeper, $name) = keeper_of_one('1min');
	my ($program) = session_programs($keeper->pid);
	# Requests, and how often the program has gone to sleep.
	my $work = sub {
		my ($sleeps) = slurp_file("/proc/$program/status") =~ /^voluntary_ctxt_switches:\s+(\d+)/m;
		return ($keeper->query_safe('SELECT sum(requests) FROM zk_stat'), $sleeps);
	};
	my @before = $work->();
	$keeper->query_safe("DO \$\$ BEGIN FOR i IN 1 .. 10000 LOOP"
		  . " PERFORM zk_lock('$name'); PERFORM zk_unlock('$name'); END LOOP; END \$\$");
	my @after = $work->();
	my ($requests, $sleeps) = map { $after[$_] - $before[$_] } 0, 1;
	is($requests, 0, 'ten thousand cycles, no request');
	# for heartbeats
	cmp_ok($sleeps, '<', 200, 'the program is hardly woken');
	cmp_ok($keeper->query_safe('SELECT sum(grants_kept) FROM zk_stat'), '>=', 10000, 'zk_stat counts the grants');
};

subtest 'another contender gets a kept lock at once, whatever its keeper does' => sub {
	my $rival = rival();
	my %busy = (idle => '', 'in a transaction' => 'BEGIN; SELECT 1', 'in a long statement' => 'SELECT pg_sleep(600)');
	foreach my $how (sort keys %busy)
	{
		my ($keeper, $name) = keeper_of_one('10min');
		$keeper->start_query($busy{$how}) if $busy{$how};
		ok($rival->query_safe("SELECT zk_lock('$name', '20s')"), "while its backend is $how");
		assert_states($rival, "$name held", 'held by the other');
		$rival->query_safe("SELECT zk_unlock('$name')");
		$keeper->cancel;
		$keeper->wait_result if $busy{$how};
		$keeper->query('ROLLBACK');
		assert_states($keeper, '', 'nothing is kept any more');
		is(cycle($keeper, $name) =~ /^\d+$/, 1, 'it can be taken again');
	}

	my ($keeper, $name) = keeper_of_one('10min');
	kill STOP => $keeper->pid;
	ok($rival->query_safe("SELECT zk_lock('$name', '20s')"), 'while its backend is stopped');
	kill CONT => $keeper->pid;
	$rival->query_safe("SELECT zk_unlock('$name')");

	$name = new_name();
	keep_one($keeper, $name);
	my $path = lock_path($name);
	my $theirs = $stranger->contend("$path/x-1-");
	poll_until { queue_nodes($zk, $path) == 1 } 'the node to go for a client of any make', 20;
	is(join(' ', map { "$path/$_" } queue_nodes($zk, $path)), $theirs, 'a kept lock is given up for another client, too');
	$stranger->delete($theirs);
};

subtest 'a try by another session is true for a kept lock and false for a held one' => sub {
	my $rival = rival();
	my $keeper = keeper('10min');
	my @names = map { new_name() } 1 .. 4;

	# held for the first time: this is answered as well
	my $first = new_name();
	$keeper->query_safe("SELECT zk_lock('$first')");
	is($rival->query_safe("SELECT zk_try_lock('$first')"), 'f', 'it is held: false');
	poll_until { $stranger->get(first_in_queue($zk, $first)) =~ /"kept":false/ } 'which is written down', 20;
	$keeper->query_safe("SELECT zk_unlock('$first')");
	keep_one($keeper, $_) foreach @names;
	is($rival->query_safe("SELECT zk_try_lock('$names[0]')"), 't', 'it is kept: true');
	is($rival->query_safe("SELECT zk_try_lock_set(ARRAY['$names[1]', '$names[2]'])"), 't', 'a try of several kept locks is true');
	$rival->query_safe('SELECT zk_unlock_all()');

	$keeper->query_safe("SELECT zk_lock('$names[3]')");
	my $before = $zk->packets_received;
	is($rival->query_safe("SELECT zk_try_lock('$names[3]')"), 'f', 'it is held: false');
	cmp_ok($zk->packets_received - $before, '<', 60, 'asked once whether it is held, and not for a second');
	wait_for_queue($zk, lock_path($names[3]), 1);
	my ($zxid) = $zk->four_letter_word('srvr') =~ /^Zxid: (\S+)/m;
	$before = $zk->packets_received;
	is($rival->query_safe("SELECT zk_try_lock('$names[3]')"), 'f', 'again') foreach 1 .. 10;
	cmp_ok($zk->packets_received - $before, '<', 30, 'ten tries of a held lock take few requests');
	like($zk->four_letter_word('srvr'), qr/^Zxid: $zxid$/m, 'the tries write nothing');
	is($keeper->query_safe("SELECT zk_unlock('$names[3]')"), 't', 'released');
	assert_states($keeper, '', 'a lock that another session wants is not kept');
	is($rival->query_safe("SELECT zk_try_lock('$names[3]', '20s')"), 't', 'the lock is granted when its holder has released it');
	$rival->query_safe('SELECT zk_unlock_all()');
	cycle($keeper, $names[3]);
	assert_states($keeper, '', 'the lock is not kept for a while after that');
};

subtest 'a keeper that does not answer is not waited for longer than a second' => sub {
	my $rival = connected('paris', 'zklock.connect_timeout' => '1min');
	my ($keeper, $name) = keeper_of_one('10min');
	my ($program) = session_programs($keeper->pid);
	kill STOP => $program;
	assert_within
	{
		my $begun = time;
		is($rival->query_safe("SELECT zk_try_lock('$name')"), 'f', 'a try finds the lock busy');
		time - $begun;
	}
	3, 'the try has waited for about a second';
	kill CONT => $program;
	assert_no_nodes($zk, lock_path($name), 'the program gives the kept lock up when it runs again');
};

subtest 'a session can take its own kept lock in other modes' => sub {
	my $keeper = keeper('10min');
	my @names = map { new_name() } 1 .. 7;
	my $given_up = 'SELECT sum(keeps_given_up) FROM zk_stat';
	my $before = $keeper->query_safe($given_up);
	keep_one($keeper, $_) foreach @names;
	ok($keeper->query_safe("SELECT zk_lock_shared('$names[0]')"), 'shared');
	$keeper->query_safe("SELECT zk_lock('$names[1]', NULL, 2)");
	is($keeper->query_safe("SELECT permits FROM zk_session_locks WHERE name = '$names[1]'"), 2, 'two permits');
	is($keeper->query_safe("SELECT zk_try_lock_shared('$names[2]')"), 't', 'shared, tried');
	ok($keeper->query_safe("SELECT zk_lock_set(ARRAY['$names[3]', 'b$names[3]'])"), 'a set of them');
	ok($keeper->query_safe("SET zklock.node_style = 'kazoo'; SELECT zk_lock('$names[4]')"), 'another style');
	like(first_in_queue($zk, $names[4]), qr/__lock__/, 'the node has the name of that style');
	$keeper->query_safe("RESET zklock.node_style; SELECT zk_unlock_all()");
	cycle($keeper, $names[5]);
	ok($keeper->query_safe("SELECT zk_release_hold('$names[5]', zk_hold('$names[5]', 'for a test'))"), 'a hold');
	cycle($keeper, $names[6]);
	ok($keeper->query_safe("SELECT zk_release_lease('$names[6]', zk_try_lease('$names[6]', 'app', '60s'))"), 'a lease');
	is($keeper->query_safe('SELECT count(*) FROM zk_session_locks'), 0, 'nothing is left');
	is($keeper->query_safe($given_up), $before, 'no kept lock was given up for another session');
	$keeper->quit;
	assert_no_nodes($zk, lock_path($_)) foreach @names;
};

subtest 'a kept lock is given up when zklock.keep is over' => sub {
	my ($keeper, $name, $token) = keeper_of_one('2s');
	is($keeper->query_safe("SELECT DISTINCT zk_lock('$name'), zk_unlock('$name') FROM generate_series(1, 20)"),
		"$token|t", 'the kept lock is taken again');
	assert_no_nodes($zk, lock_path($name), 'the kept lock is given up while its backend is idle');
	assert_states($keeper, '', 'the backend lists no lock');
	assert_anew($keeper, $name, $token, 'the next time it is another');
};

subtest 'a kept lock ends with changes of role, application and settings' => sub {
	my %end = (
		'DISCARD ALL' => 'DISCARD ALL',
		zk_unlock_all => 'SELECT zk_unlock_all()',
		zk_disconnect => 'SELECT zk_disconnect()',
		'the setting' => 'SET zklock.keep = 0',
		'another application' => "SET application_name = 'another'",
		'another role' => 'SET ROLE pg_monitor',
		'another user' => 'SET SESSION AUTHORIZATION pg_monitor',
		'another setting' => "SET zklock.session_timeout = '9s'");
	foreach my $how (sort keys %end)
	{
		my ($keeper, $name) = keeper_of_one('10min');
		$keeper->query_safe($end{$how});
		assert_no_nodes($zk, lock_path($name), $how);
		assert_states($keeper, '', 'none is left');
	}
	my ($ended, $name) = keeper_of_one('10min');
	$ended->terminate;
	assert_no_nodes($zk, lock_path($name), 'the end of its backend');
	my ($keeper, $other, $token) = keeper_of_one('10min');
	kill_session_program($keeper);
	poll_until { queue_nodes($zk, lock_path($other)) == 0 } 'the death of its program', $timeout + 10;
	assert_anew($keeper, $other, $token, 'the next session takes it anew');
};

subtest 'kept locks count against zklock.max_locks and are given up first' => sub {
	my $keeper = keeper('10min');
	my @names = map { new_name() } 1 .. 4;
	$keeper->query_safe('SET zklock.max_locks = 3');
	keep_one($keeper, $_) foreach @names[ 0 .. 2 ];
	assert_states($keeper, join(', ', map { "$_ kept" } @names[ 0 .. 2 ]), 'three');
	cycle($keeper, $names[3]);
	assert_states($keeper, join(', ', map { "$_ kept" } @names[ 1 .. 3 ]), 'the oldest has gone');
	assert_no_nodes($zk, lock_path($names[0]));
	$keeper->query_safe("SELECT zk_lock_set(ARRAY['$names[0]', '$names[1]', '$names[2]'])");
	assert_states($keeper, join(', ', map { "$_ held" } @names[ 0 .. 2 ]), 'all, for others');
	assert_query($keeper, "SELECT zk_lock('$names[3]')", '53400', 'a further lock is refused when all are held');
	$keeper->quit;

	# nor more than zklock.max_lock_bytes: eight of some 500 bytes
	$keeper = keeper('10min');
	$keeper->query_safe("SET zklock.max_lock_bytes = '4kB'");
	my @long = map { join '/', "long$_", ('x' x 100) x 4 } 1 .. 12;
	cycle($keeper, $_) foreach @long;
	cmp_ok($keeper->query_safe('SELECT count(*) FROM zk_session_locks'), '<=', 8, 'no more than may be held at a time');
	assert_no_nodes($zk, lock_path($long[0]), 'the oldest has gone');
	is(queue_nodes($zk, lock_path($long[11])), 1, 'the newest lock is kept');
	$keeper->quit;

	# more than there are slots
	$keeper = keeper('10min');
	cycle($keeper, "many$_") foreach 1 .. 150;
	is($keeper->query_safe(q(SELECT count(*), min(state) FROM zk_session_locks)), '64|kept', 'no more than 64');
	poll_until { grep({ queue_nodes($zk, lock_path("many$_")) } 1 .. 150) == 64 } 'all others have gone', 20;
};

subtest 'the loss of a kept lock disturbs no transaction' => sub {
	my ($keeper, $name, $token) = keeper_of_one('10min');
	$node{berlin}->safe_psql('postgres', 'CREATE TABLE t (n int)');
	my $offset = -s $node{berlin}->logfile;
	$keeper->query_safe('BEGIN; INSERT INTO t VALUES (1)');
	kill_session_program($keeper);
	$keeper->query_safe('SELECT pg_sleep(0.2)');
	$keeper->query_safe('COMMIT');
	is($keeper->query_safe('SELECT count(*) FROM t'), 1, 'committed');
	unlike(slurp_file($node{berlin}->logfile, $offset), qr/lost/, 'nothing in the log');

	# nor is a lock that is held mixed up with it
	assert_anew($keeper, $name, $token, 'taken anew');
};

subtest 'an evicted lock is not kept any more' => sub {
	my ($keeper, $name, $token) = keeper_of_one('10min');
	$node{paris}->safe_psql('postgres', "SELECT zk_evict('$name', '$token')");
	poll_until { states($keeper) eq '' } 'is not kept', 20;
	assert_anew($keeper, $name, $token, 'the evicted lock is taken anew');
};

subtest 'a kept lock with an old proof is taken anew' => sub {
	my $keeper = background($node{berlin}, first => "SET zklock.session_timeout = '4s'; SET zklock.keep = '10min'");
	my $name = new_name();
	my $token = keep_one($keeper, $name);
	my $get_old = sub {
		# no condition to wait for: a proof gets old by the clock
		my $until = time + 3;
		poll_until { time > $until } 'time to pass', 20;
	};
	$get_old->();
	assert_anew($keeper, $name, $token, 'is not relied on: the lock is taken anew');
	assert_states($keeper, "$name kept", 'the lock is kept again');
	is(queue_nodes($zk, lock_path($name)), 1, 'the queue has one node');
	$token = $keeper->query_safe("SELECT token FROM zk_lock_queue('$name')");

	# a node that is gone, which nobody has told the session yet
	$get_old->();
	my ($program) = session_programs($keeper->pid);
	kill STOP => $program;
	$stranger->delete(lock_path($name) . "/$_") foreach queue_nodes($zk, lock_path($name));
	start_to_wait($keeper, "SELECT zk_lock('$name')");
	ok(!$keeper->is_done, 'a kept lock with an old proof is not taken back without a reply');
	kill CONT => $program;
	cmp_ok($keeper->wait_result, '>', $token, 'a lock whose node is gone is taken anew');
};

subtest 'zk_lock_queue() shows a kept lock as held' => sub {
	my $rival = rival();
	my ($keeper, $name, $token) = keeper_of_one('10min');
	is(queue_state($rival, $name), 'held', 'kept');
	my $node = first_in_queue($zk, $name);
	my $data = $stranger->get($node);
	is($keeper->query_safe("SELECT zk_lock('$name')"), $token, 'taken back');
	is(queue_state($rival, $name), 'held', 'held');
	$keeper->query_safe("SELECT zk_unlock('$name')");
	is(scalar $stranger->get($node), $data, 'nothing is written for it');
	ok($rival->query_safe("SELECT zk_lock('$name', '20s')"), 'another contender gets the kept lock');
};

# Taken back at once, in one transaction with the change, and after it.
subtest 'a kept lock is not taken back by another application or user' => sub {
	my ($keeper, $name, $token) = keeper_of_one('10min');
	my $row = "FROM zk_lock_queue('$name') WHERE state = 'held'";
	isnt($keeper->query_safe("BEGIN; SET LOCAL application_name = 'bob'; SELECT zk_lock('$name')"),
		$token, 'another application contends for it');
	is($keeper->query_safe("SELECT application_name $row"), 'bob', 'zk_lock_queue() names the other application');
	$keeper->query_safe("COMMIT; SELECT zk_unlock('$name')");
	assert_no_nodes($zk, lock_path($name), 'a lock released under another name than at its grant is not kept');
};

subtest 'a lock is kept for the time of zklock.keep at its grant' => sub {
	my ($keeper, $name) = keeper_of_one('10min');
	$keeper->query_safe("SET zklock.keep = '2s'");
	assert_states($keeper, '', 'a kept lock is given up when zklock.keep changes');
	$keeper->query_safe("SELECT zk_lock('$name'); SET zklock.keep = '3s'; SELECT zk_unlock('$name')");
	assert_states($keeper, '', 'a lock granted under another zklock.keep is not kept');
	cycle($keeper, $name);
	assert_states($keeper, "$name kept", 'a lock granted under the new zklock.keep is kept');
	$keeper->query_safe("SELECT zk_lock('$name'), pg_sleep(4)");
	$keeper->query_safe("SELECT zk_unlock('$name')");
	assert_states($keeper, "$name kept", 'its time begins with its release, however long it was held');
	assert_no_nodes($zk, lock_path($name), 'the kept lock is given up when its time is over');
};

subtest 'a lock that two sessions take in turn is not kept' => sub {
	my $keeper = keeper('10min');
	my $rival = background($node{paris}, 'zklock.keep' => '10min');
	my $name = new_name();
	keep_one($keeper, $name);
	cycle($rival, $name);
	cycle($keeper, $name);
	assert_states($keeper, '', 'it is not kept for a while');
	assert_states($rival, '', 'the other session does not keep it either');
	poll_until {
		cycle($keeper, $name);
		states($keeper) eq "$name kept"
	} 'and later it is again', 20;
};

subtest 'a lock whose token was told is not kept' => sub {
	my $keeper = keeper('10min');
	my $writer = background($node{berlin});
	my %by = (
		zk_fence => sub { $keeper->query_safe("SELECT zk_fence('$_[0]')") },
		'zk_fence with a token' => sub { $keeper->query_safe("SELECT zk_fence('$_[0]', $_[1])") },
		zk_fencing_token => sub {
			$writer->query_safe("SELECT zk_fence('$_[0]', "
				  . $keeper->query_safe("SELECT zk_fencing_token('$_[0]')") . ')');
		});
	foreach my $how (sort keys %by)
	{
		my $name = new_name();
		cycle($keeper, $name);
		my @tokens;
		foreach my $grant (1, 2)
		{
			push @tokens, $keeper->query_safe("SELECT zk_lock('$name')");
			$by{$how}->($name, $tokens[-1]);
			is($keeper->query_safe("SELECT zk_unlock('$name')"), 't', "$how: released");
			assert_states($keeper, '', 'a lock whose token was told is not kept');
		}
		cmp_ok($tokens[1], '>', $tokens[0], 'the next grant has a greater token');
		$writer->query("SELECT zk_fence('$name', $tokens[0])");
		is($writer->sqlstate, '40001', 'zk_fence() refuses the first token');
		cycle($keeper, $name);
		assert_states($keeper, "$name kept", 'a grant whose token nobody asks for is kept again');
		$keeper->query_safe('SELECT zk_unlock_all()');
	}

	# and what was not kept leaves room for others
	my $name = new_name();
	$keeper->query_safe("SELECT zk_lock('$name'), zk_fencing_token('$name'), zk_unlock('$name') FROM generate_series(1, 70)");
	cycle($keeper, $name);
	assert_states($keeper, "$name kept", 'after as many as can be kept');

	# a fence that fails
	$keeper->query_safe('SELECT zk_unlock_all()');
	$name = new_name();
	cycle($keeper, $name);
	$keeper->query("SELECT zk_lock('$name'), 1 / (zk_fencing_token('$name') IS NULL)::int");
	$keeper->query_safe("SELECT zk_unlock('$name')");
	assert_states($keeper, '', 'a lock whose token was told in a failed transaction is not kept');
};

assert_no_nodes($zk, lock_path("kept$_")) foreach 1 .. $names;
done_testing();
