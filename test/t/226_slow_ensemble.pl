
# Where each answer of ZooKeeper takes longer than a third of the session timeout, a commit is
# refused with 08006 instead of asking without end, and no other commit is. Tested with a proxy
# that delays a real server.

use Proxy;
use ZkLockTest;

my $zk = ZooKeeper->new(tick_time => 200, max_session_timeout => 10_000)->start;
my $slow = Proxy->new($zk->connect_string, delay => 0.2);
my $node = cluster('berlin', $zk, 'zklock.session_timeout' => '1s');
$node->safe_psql('postgres', 'CREATE TABLE work (i int)');

foreach my $guard (qw(fresh quorum))
{
	my $session = background($node, route => $slow->address, 'zklock.commit_guard' => $guard,
		first => 'CREATE TABLE IF NOT EXISTS work (i int)');
	poll_until { $session->query("SELECT zk_lock('slow')"); $session->sqlstate eq '00000' } 'the proxy', 30;
	# On a busy machine a session of a second may be lost.
	my (@refusal, $state);
	foreach (1 .. 10)
	{
		$session->query('INSERT INTO work VALUES (1)');
		@refusal = ($session->sqlstate, $session->error);
		$state = $session->query('SELECT state FROM zk_session_locks');
		last if $refusal[0] ne '40001' && $state eq 'held';
		note("again: $refusal[1]$state");
		poll_until { $session->query("SELECT zk_unlock_all(), zk_lock('slow')"); $session->sqlstate eq '00000' }
		'another one', 30;
	}
	is($refusal[0], '08006', "$guard: refused");
	like($refusal[1], qr/could not prove.*DETAIL:  The last answer of ZooKeeper reached this commit after \d{3,} ms\. A commit can rely on answers within 166 ms if .*\nHINT:  Run zk_check\(\) to find out whether the ensemble is slow/s, 'the error says that the proof was not possible, and what to do');
	is($state, 'held', 'the lock is not lost');
}
is($node->safe_psql('postgres', 'SELECT count(*) FROM work'), '0', 'nothing is written');

# Locks that were taken one after the other have proofs of every age. While the guard asks for
# those that are too old, others become too old; so it asks for all at once.
subtest 'a commit with hundreds of locks of every age passes' => sub {
	my $far = Proxy->new($zk->connect_string);
	my %take = (
		locks => [ q{PERFORM zk_xact_lock(format('many locks/%s', i))}, '' ],
		leases => [ 'PERFORM zk_require_lease(name, token) FROM taken WHERE at = i',
			q{CREATE TEMP TABLE taken AS SELECT i AS at, name, zk_try_lease(name, 'app', '60s') AS token
				FROM generate_series(1, 400) AS i, format('many leases/%s', i) AS name} ]);
	foreach my $what (sort keys %take)
	{
		my ($take, $prepare) = @{ $take{$what} };
		my $session = background($node, 'zklock.session_timeout' => '6s', route => $far->address);
		$session->query_safe($prepare) if $prepare;
		$session->query_safe("BEGIN;
			DO \$\$ BEGIN
				FOR i IN 1 .. 400 LOOP $take; PERFORM pg_sleep(0.01); END LOOP;
			END \$\$;
			INSERT INTO work VALUES (0)");
		$far->delay(0.03);
		is(commit_ends($session, $what), '00000', "a commit with 400 $what passes") || diag($session->error);
		$far->delay(0);
		next if $what eq 'leases';

		# One after the other they would take 400 times as long as one answer.
		$session->query_safe("BEGIN; SELECT count(zk_xact_lock(format('many locks/%s', i))) FROM generate_series(1, 400) AS i;
			INSERT INTO work VALUES (0); SET LOCAL zklock.commit_guard = quorum");
		$far->trap(14, 1, 'replies');    # multi
		assert_within
		{
			my $begun = time;
			$session->start_query('COMMIT');
			poll_until { $far->is_sprung } 'the commit to ask', 60;
			$far->go_away;
			$far->delay(0.03);
			$far->come_back;
			poll_until { $session->is_done } 'the end of the COMMIT', 60;
			time - $begun;
		}
		12, 'answers that a broken connection has lost are asked for together';
		$session->wait_result;
		is($session->sqlstate, '00000', 'the commit passes') || diag($session->error);
		$far->delay(0);
	}
	is($node->safe_psql('postgres', 'DELETE FROM work RETURNING i'), "0\n0\n0", 'the rows are written');
};

# A COMMIT has no statement_timeout: it must end by itself. A time is given that a commit without
# an end does not keep.
sub commit_ends ($session, $what)
{
	$session->start_query('COMMIT');
	poll_until { $session->is_done } "$what: the end of a COMMIT", 90;
	$session->wait_result;
	return $session->sqlstate;
}

# A session over a network where each answer takes so long, with leases that a near one takes.
sub lessee ($delay, $timeout, $term, @names)
{
	my $near = background($node);
	my %token = map { $_ => $near->query_safe("SELECT zk_try_lease('$_', 'app', '$term')") } @names;
	my $far = Proxy->new($zk->connect_string, delay => $delay);
	my $session = background($node, 'zklock.session_timeout' => $timeout, route => $far->address,
		first => 'CREATE TABLE IF NOT EXISTS work (i int)');
	return ($session, $far, $near, map { "SELECT zk_require_lease('$_', $token{$_});" } @names);
}

# Alone each is fresh when its answer is there; of a lock and a lease never both.
foreach my $case ([ 'a lease', '1s', '' ], [ 'a lock and a lease', '1800ms', "SELECT zk_lock('held');" ])
{
	my ($what, $timeout, $lock) = @$case;
	subtest "a commit that rests on $what is refused when no proof is fresh" => sub {
		my ($session, $far, $near, @rests) = lessee(0.2, $timeout, '30s', $what);
		# On a busy machine such a session may be lost.
		foreach (1 .. 10)
		{
			$session->query("$lock BEGIN; @rests INSERT INTO work VALUES (2)");
			last if $session->sqlstate eq '00000' && commit_ends($session, $what) eq '08006';
			note('again: ' . $session->error);
			$session->query('ROLLBACK');
			$session->query('SELECT zk_unlock_all()');
		}
		is($session->sqlstate, '08006', 'the commit is refused with 08006');
		like($session->error, qr/could not prove that the .*HINT:  Run zk_check\(\) to find (?:out whether the ensemble is slow|what slows the ensemble down)/s, 'the error says that the proof was not possible, and what to do');
		is($node->safe_psql('postgres', 'SELECT count(*) FROM work'), '0', 'nothing is written');
	};
}

# One after the other the answers would take longer than a third of the session timeout, which
# is all the time that the guard has.
subtest 'a commit that rests on many leases renews them together' => sub {
	my @names = map { "many/$_" } 1 .. 24;
	my ($session, $far, $near, @rests) = lessee(0.075, '10s', '60s', @names);
	$session->query_safe("BEGIN; @rests INSERT INTO work VALUES (3)");
	# Somebody else renews them meanwhile, and each version is another one.
	$near->query_safe("SELECT zk_try_lease('$_', 'app', '60s')") foreach @names;
	is(commit_ends($session, 'many leases'), '00000', 'the commit passes');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM work'), '1', 'the row is written');

	# What was renewed less than a third of the session timeout ago would not be asked for again.
	$session->query_safe("BEGIN; @rests INSERT INTO work VALUES (4); SELECT pg_sleep(4)");
	$near->query_safe("SELECT zk_evict('many/7', token) FROM zk_lock_queue('many/7')");
	is(commit_ends($session, 'without one'), '40001', 'a commit without one of the leases is refused');
	like($session->error, qr/the lease of lock "many\/7"/, 'the error names the lost lease');
};

# Not of both together, which is as long as a first connection and its reply may take.
subtest 'a call on an open session ends after zklock.connect_timeout without a reply' => sub {
	my $timeout = 8;
	my $far = ZooKeeper->new->start;
	my $silent = Proxy->new($far->connect_string);
	assert_within
	{
		my $session = background($node, 'zklock.servers' => $silent->address, 'zklock.session_timeout' => '60s', is_connected => 1);
		$session->query_safe("SET zklock.connect_timeout = '${timeout}s'");
		$silent->cut('replies');
		my $start = time;
		assert_query($session, "SELECT zk_request_release('bounded')", '08001', 'the call is not answered');
		my $took = time - $start;
		$silent->heal;
		$session->quit;
		$took;
	}
	1.75 * $timeout, 'the call ends in that time, not in twice as much';
};

done_testing();
