
# After a known workload zk_stat has exactly the expected numbers, for each database; and
# superusers alone may reset it. Tested with real servers, a second cluster, and a proxy for
# outages.

use Proxy;
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $proxy = Proxy->new($zk->connect_string);
my $node = cluster('berlin', $zk, servers => $proxy->address,
	'zklock.session_timeout' => '15s');
my $paris = cluster('paris', $zk, 'zklock.session_timeout' => '15s');
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', 'CREATE EXTENSION zklock');
my $monitor = background($node);
my ($first, $second) = map { background($node) } 1 .. 2;
my $abroad = background($paris);

my @counters = qw(grants_at_once grants_handed_over grants_told grants_listed grants_kept keeps_given_up
	tries_in_vain timeouts cancels deadlocks unanswered_calls losses deleted_nodes refused_commits evictions leases_taken
	leases_ended refused_writes sessions
	reconnects waits);

# All that are not 0, of the database postgres.
sub numbers ($session = undef)
{
	my $row = ($session || $monitor)->query_safe('SELECT ' . join(', ', @counters)
		  . " FROM zk_stat WHERE datname = 'postgres'");
	my %number;
	@number{@counters} = split /\|/, $row if $row ne '';
	return { map { $_ => $number{$_} } grep { $number{$_} } keys %number };
}

# A test: since the last one these have been counted, and nothing else.
my %last;

sub counted ($what, %expected)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $now = numbers();
	is_deeply({ map { $_ => $now->{$_} - ($last{$_} || 0) }
			  grep { $now->{$_} != ($last{$_} || 0) } keys %$now }, \%expected, $what);
	%last = %$now;
	return;
}

is($monitor->query_safe('SELECT count(*) FROM zk_stat'), 0, 'nothing at first');

subtest 'zk_stat counts grants at once' => sub {
	$first->query_safe("SELECT zk_lock('a'), zk_unlock('a')") foreach 1 .. 10;
	counted('each of ten grants is counted', grants_at_once => 10, sessions => 1);
	$first->query_safe("SELECT zk_lock('a'), zk_lock('a'), zk_lock_shared('a'); SELECT zk_unlock_all()");
	counted('a lock that is held already is not counted again', grants_at_once => 1);
	$first->query_safe("SELECT zk_lock_set(ARRAY['a', 'b', 'c']); SELECT zk_unlock_all()");
	counted('each lock of a set is counted', grants_at_once => 3);
	$first->query_safe("BEGIN; SELECT zk_xact_lock('a'), zk_try_xact_lock_shared('b'); ROLLBACK");
	counted('grants of transaction scope are counted', grants_at_once => 2);
	$first->query_safe("SELECT zk_release_hold('a', zk_hold('a', 'maintenance'))");
	counted('permanent holds are counted', grants_at_once => 1);
};

subtest 'zk_stat counts tries, timeouts and cancellations that were in vain' => sub {
	$second->query_safe("SELECT zk_lock('a')");
	counted('a session', grants_at_once => 1, sessions => 1);
	$first->query_safe("SELECT zk_try_lock('a') FROM generate_series(1, 3)");
	counted('tries', tries_in_vain => 3);
	$first->query_safe("SELECT zk_try_lock_set(ARRAY['a', 'b', 'c'])");
	counted('a try of several', tries_in_vain => 1);
	# Long enough to find its place in the queue, and to wait there.
	$first->query_safe("SELECT zk_try_lock('a', '2 s')");
	counted('one that waits', tries_in_vain => 1, waits => 1);
	assert_query($first, "SELECT zk_lock('a', '2 s')", '55P03', 'the time is up');
	counted('a timeout', timeouts => 1, waits => 1);
	assert_query($first, "SET lock_timeout = '2 s'; SELECT zk_lock('a')", '55P03', 'the time is up');
	counted('lock_timeout', timeouts => 1, waits => 1);
	$first->query('SET lock_timeout = 0');
	$first->query("SELECT zk_lock('a', '0')");
	counted('without a wait', timeouts => 1);
	assert_query($first, "SET statement_timeout = '2 s'; SELECT zk_lock('a')", '57014', 'the statement is canceled');
	$first->query('RESET statement_timeout');
	counted('a cancel', cancels => 1, waits => 1);
	is($monitor->query_safe("SELECT wait_time_ms BETWEEN 2000 AND 100000 AND stats_reset < now(),
			(SELECT sum(n) FROM unnest(wait_histogram) n) = waits, cardinality(wait_histogram),
			wait_histogram[1:4]
		FROM zk_stat"), 't|t|13|{0,0,0,0}', 'how long the waits took');
	$second->query_safe("SELECT zk_unlock('a')");
};

subtest 'zk_stat counts leases' => sub {
	my $token = $first->query_safe("SELECT zk_try_lease('lease', 'app', '2 s')");
	counted('a lease is counted, and the grant of its lock', leases_taken => 1, grants_at_once => 1);
	$first->query_safe("SELECT zk_try_lease('lease', 'app', '2 s'), zk_renew_lease('lease', $token, '2 s')");
	counted('renewals of leases are not counted');
	is($second->query_safe("SELECT zk_try_lease('lease', 'other', '60 s')"), '', 'no other owner gets the lease');
	counted('a try in vain is counted as that of a lock', tries_in_vain => 1);
	isnt($second->query_safe("SELECT zk_try_lease('lease', 'other', '60 s', '60 s')"), '', 'its term is over');
	counted('a lease whose term is over is counted', leases_ended => 1, leases_taken => 1, grants_listed => 1, waits => 1);
	$second->query_safe("SELECT zk_release_lease('lease', zk_try_lease('lease', 'other', '60 s'), '2 s')");
	counted('a lease that was released is counted', leases_ended => 1);
	assert_soon { $second->query_safe("SELECT zk_try_lock('lease')") eq 't' } 'the released lease is gone after its term';
	$second->query_safe("SELECT zk_unlock('lease')");
	is(delete numbers()->{leases_ended}, 2, 'a lease released with a delay is not counted again');
	%last = %{ numbers() };
};

subtest 'zk_stat counts grants after a wait by the way they were learned of' => sub {
	line_up($zk, 'told', $first, $second, $abroad);
	counted('who holds it', grants_at_once => 1);
	$first->query_safe("SELECT zk_unlock('told')");
	$second->wait_result;
	counted('told by a neighbor', grants_told => 1, waits => 1);
	$second->query_safe("SELECT zk_unlock('told')");
	$abroad->wait_result;
	is_deeply(numbers($abroad), { grants_handed_over => 1, sessions => 1, waits => 1 },
		'handed over to another cluster');
	$abroad->query_safe("SELECT zk_unlock('told')");

	line_up($zk, 'listed', $abroad, $first);
	$abroad->query_safe("SELECT zk_unlock('listed')");
	$first->wait_result;
	counted('listed behind one that had it at once', grants_listed => 1, waits => 1);
	start_in_queue($second, "SELECT zk_lock_shared('listed')", $zk, lock_path('listed'), 2);
	wait_for_watch($zk, first_in_queue($zk, 'listed'));
	$first->query_safe("SELECT zk_unlock('listed')");
	$second->wait_result;
	counted("a reader's grant by a list is counted", grants_listed => 1, waits => 1);
	$second->query_safe("SELECT zk_unlock_shared('listed')");
};

subtest 'zk_stat counts evictions, refused commits, losses and reconnects' => sub {
	$first->query_safe("SET zklock.commit_guard = quorum; CREATE TABLE work (i int); SELECT zk_lock('evicted')");
	$second->query_safe("SELECT zk_evict('evicted', token) FROM zk_lock_queue('evicted')");
	counted('an eviction', evictions => 1, grants_at_once => 1);
	is($second->query_safe("SELECT zk_evict('evicted', 1)"), 'f', 'nobody is there');
	counted('an eviction of no holder is not counted');
	assert_query($first, 'INSERT INTO work VALUES (1)', '40001', 'its commit is refused');
	counted('the refused commit is counted once, and the loss of its lock', refused_commits => 1, deleted_nodes => 1);
	assert_query($first, "INSERT INTO work SELECT zk_lock('more')", '40001', 'no lock is granted');
	counted('a refused lock is not counted as a refused commit');
	$first->query("SELECT zk_unlock_all(); RESET zklock.commit_guard");

	my ($program) = session_programs($second->pid);
	$second->query_safe("SELECT zk_lock('lost')");
	kill 'KILL', $program;
	wait_for_loss($second);
	$second->query('SELECT zk_unlock_all()');
	counted('a session that is lost', grants_at_once => 1, losses => 1);
	wait_for_queue($zk, lock_path('lost'), 0);
	$second->query_safe("SELECT zk_lock('lost'), zk_unlock('lost')");
	counted('the next session is counted', grants_at_once => 1, sessions => 1);

	$first->query_safe("SELECT zk_lock('kept')");
	my $suspended = $monitor->query_safe("SELECT count(*) FROM zk_backends WHERE state = 'connected'");
	is($suspended, 2, 'two sessions');
	# Who holds nothing need not look at its session.
	$second->query_safe("SELECT zk_lock('kept/too')");
	counted('two locks', grants_at_once => 2);
	$proxy->reset_connections;
	foreach my $session ($first, $second)
	{
		poll_until { $session->query_safe('SELECT 1'); ($last{reconnects} || 0) < (numbers()->{reconnects} || 0) }
		'the session to be back', 30;
		counted('reconnected', reconnects => 1);
	}
	# Who does not look meanwhile counts them all later.
	foreach my $step (([ go_away => 'suspended' ], [ heal => 'connected' ]) x 2)
	{
		my ($do, $state) = @$step;
		$proxy->$do;
		poll_until { $monitor->query_safe("SELECT count(*) FROM zk_backends WHERE state = '$state'") eq '2' } $state, 30;
	}
	$_->query_safe('SELECT zk_unlock_all()') foreach $first, $second;
	counted('reconnects that the backend has not seen are counted', reconnects => 4);
};

# Nothing is caught on this way out.
subtest 'zk_stat counts the wait of a backend that was terminated' => sub {
	my $waiter = background($node);
	$first->query_safe("SELECT zk_lock('ended')");
	$waiter->start_query("SELECT zk_lock('ended')");
	my $of_waiter = 'SELECT count(waiting_for), count(*) FROM zk_backends WHERE pid = ' . $waiter->pid;
	my $waited = q(SELECT wait_time_ms FROM zk_stat WHERE datname = 'postgres');
	my $before = $monitor->query_safe($waited);
	poll_until { $monitor->query_safe("$of_waiter AND waiting_since < clock_timestamp() - '300ms'::interval") eq '1|1' } 'it to wait', 30;
	$waiter->terminate;
	$waiter->wait_result;
	poll_until { $monitor->query_safe($of_waiter) eq '0|0' } 'it to end', 30;
	counted('the wait of the terminated backend is counted', grants_at_once => 1, sessions => 1, waits => 1);
	cmp_ok($monitor->query_safe($waited) - $before, '>=', 290, 'wait_time_ms has its length');
};

# Its signal comes as a cancel; what it says in the end is 40001.
subtest 'zk_stat counts a loss that interrupts a statement as a loss and no cancellation' => sub {
	my $own = Proxy->new($zk->connect_string);
	my $loser = background($node, route => $own->address,
		'zklock.session_timeout' => '4s', 'zklock.commit_guard' => 'quorum', holds => 'loss');
	counted('a lock', grants_at_once => 1, sessions => 1);
	$loser->query_safe('BEGIN; INSERT INTO work VALUES (2)');
	$own->go_away;
	assert_query($loser, 'COMMIT', '40001', 'a commit that waited for its proof');
	counted('the refused commit is counted', losses => 1, refused_commits => 1);

	$own->heal;
	# The former one may still be in the way of the same lock.
	$loser->query_safe("SELECT zk_unlock_all(), zk_lock('next')");
	counted('the next session', grants_at_once => 1, sessions => 1);
	$loser->start_query("SELECT zk_lock('ended')");
	poll_until
	{
		$monitor->query_safe('SELECT waiting_for FROM zk_backends WHERE pid = ' . $loser->pid) eq 'ended'
	}
	'it to wait', 30;
	$own->go_away;
	assert_ends($loser, '40001', 'a wait for another lock');
	counted('a lost wait is not counted as canceled', losses => 1, waits => 1);

	$own->heal;
	$loser->query_safe('SELECT zk_unlock_all(), count(*) FROM zk_lock_queue(\'ended\')');
	counted('and another one', sessions => 1);
	$own->cut;
	$loser->query("SET lock_timeout = '200 ms'; SELECT count(*) FROM zk_lock_queue('ended')");
	is($loser->sqlstate, '55P03', 'a question that is not answered');
	$own->heal;
	counted('a question without an answer is counted', unanswered_calls => 1);
	$loser->quit;
	$own->stop;
	$first->query_safe("SELECT zk_unlock('ended')");
};

# However it is noticed: by a statement that runs, by a commit, by the release.
subtest 'zk_stat counts each lock that was lost because its queue node was deleted' => sub {
	my %way = (
		'a statement that runs' => sub ($session) { assert_ends($session, '40001', 'the statement is canceled') },
		# Its reply tells, which may come behind it: it is awaited for as long as the lock was held.
		'a release' => sub ($session) { $session->query_safe("SELECT zk_unlock('deleted')") },
		'a commit' => sub ($session) { assert_query($session, 'SET LOCAL zklock.commit_guard = quorum; COMMIT', '40001', 'the commit is refused') });
	foreach my $what (sort keys %way)
	{
		my $take = $what =~ /commit/ ? 'BEGIN; SELECT zk_xact_lock' : 'SELECT zk_lock';
		$second->query_safe("$take('deleted')");
		if ($what =~ /runs/)
		{
			$second->start_query('SELECT pg_sleep(600)');
			wait_for_sleep($node, $second->pid);
		}
		$monitor->query_safe("SELECT zk_evict('deleted', token) FROM zk_lock_queue('deleted')");
		$way{$what}->($second);
		my $now;
		poll_until
		{
			$second->query('SELECT zk_unlock_all()');
			$now = numbers();
			$now->{deleted_nodes} > $last{deleted_nodes}
		}
		"$what: the count", 30;
		is($now->{deleted_nodes} - $last{deleted_nodes}, 1, "$what: the lock is counted once");
		%last = %$now;
	}
};

# By whatever error: class 08, 55P03 and 57014.
subtest 'zk_stat counts each call that ended without an answer' => sub {
	my $own = Proxy->new($zk->connect_string);
	my $caller = background($node, route => $own->address, 'zklock.connect_timeout' => '1s');
	$own->go_away;
	assert_query($caller, "SELECT zk_lock('far')", '08001', 'there is no session');
	counted('a call without a session is counted', unanswered_calls => 1);
	assert_query($caller, "SELECT zk_try_lock('far')", '08001', 'a try fails');
	counted('a try is counted', unanswered_calls => 1);
	assert_query($caller, "SELECT zk_lock('far', '100 ms')", '55P03', 'its time is over first');
	counted('a timeout is counted in both', unanswered_calls => 1, timeouts => 1);
	assert_query($caller, "SET statement_timeout = '100 ms'; SELECT zk_lock('far')", '57014', 'the statement is canceled first');
	counted('a cancellation is counted in both', unanswered_calls => 1, cancels => 1);
	assert_query($caller, 'SELECT zk_lock_queue(\'far\')', '57014', 'a question is canceled');
	counted('a question is counted', unanswered_calls => 1);
	is($caller->query_safe("SET statement_timeout = 0; DO \$\$ BEGIN PERFORM zk_lock('far'); EXCEPTION WHEN OTHERS THEN NULL; END \$\$"), '', 'a handler catches the error');
	counted('a call whose error is caught is counted', unanswered_calls => 1);
	$own->heal;
	$caller->query_safe("SELECT zk_lock('far')");
	counted('an answer is none', grants_at_once => 1, sessions => 1);
	$caller->query_safe("SET statement_timeout = '300 ms'");
	$own->cut;
	assert_query($caller, 'SELECT count(*) FROM zk_lock_queue(\'far\')', '57014', 'a question to a server that hangs is canceled');
	$own->heal;
	counted('a question to a server that hangs is counted', unanswered_calls => 1);
	$caller->query_safe('SET statement_timeout = 0');
	$caller->start_query('SELECT zk_lock(\'ended\', NULL, 2), pg_sleep(600)');
	wait_for_sleep($node, $caller->pid);
	$caller->cancel;
	assert_ends($caller, '57014', 'a statement that does not wait for ZooKeeper is canceled');
	counted('a cancellation in between is not counted', grants_at_once => 1);
	$caller->quit;
	$own->stop;
};

subtest 'zk_stat counts the requests that were sent' => sub {
	my $traffic = sub {
		$monitor->query_safe("SELECT requests FROM zk_stat WHERE datname = 'postgres'");
	};
	my $cycle = "SELECT zk_lock('cycle'), zk_unlock('cycle')";
	# An empty container may be removed, and made anew.
	$second->query_safe("SELECT zk_lock('cycle/stays')");
	$first->query_safe($cycle);
	my $before = $traffic->();
	$first->query_safe($cycle);
	my $each = $traffic->() - $before;
	cmp_ok($each, '>=', 3, 'a create, a list, a delete');
	$first->query_safe($cycle) foreach 1 .. 20;
	is($traffic->() - $before, 21 * $each, 'each cycle takes as many requests');
	$before = $traffic->();
	$first->query_safe("SELECT zk_lock('cycle'), zk_disconnect()");
	cmp_ok($traffic->() - $before, '>=', 2, 'requests of a session that is closed at once are counted');
	$before = $traffic->();
	$first->query_safe($cycle);
	cmp_ok($traffic->() - $before, '>=', 3, 'requests of the next session are counted from its beginning');
	$second->query_safe("SELECT zk_unlock('cycle/stays')");
	%last = %{ numbers() };
};

subtest 'zk_stat counts each database apart and starts again at a reset' => sub {
	my $other = background($node, database => 'other', holds => 'a');
	counted('grants of another database are not counted here');
	is($monitor->query_safe("SELECT grants_at_once, sessions FROM zk_stat WHERE datname = 'other'"),
		'1|1', 'zk_stat has a row of the other database');
	$monitor->query_safe('CREATE ROLE anna LOGIN');
	my $anna = background($node, user => 'anna');
	assert_query($anna, 'SELECT zk_stat_reset()', '42501', 'an ordinary user may not reset statistics');
	is($anna->query_safe('SELECT count(*) FROM zk_stat'), 2, 'every role may see the numbers');
	$anna->quit;
	my $before = $monitor->query_safe("SELECT stats_reset FROM zk_stat WHERE datname = 'postgres'");
	$monitor->query_safe('SELECT zk_stat_reset()');
	is_deeply(numbers(), {}, 'all numbers are 0 after a reset');
	is($monitor->query_safe("SELECT stats_reset > '$before' AND stats_reset <= now(), requests, wait_time_ms,
			wait_histogram FROM zk_stat WHERE datname = 'postgres'"),
		't|0|0|{' . join(',', (0) x 13) . '}', 'the time of the reset is shown, and all numbers are 0');
	is($monitor->query_safe("SELECT grants_at_once FROM zk_stat WHERE datname = 'other'"), 1,
		'a reset leaves the numbers of other databases');
	$other->quit;
	poll_until { $node->psql('postgres', 'DROP DATABASE other') == 0 } 'the database to be dropped', 30;
	is($monitor->query_safe('SELECT count(*) FROM zk_stat'), 1, 'a dropped database has no row');
	$_->quit foreach $monitor, $first, $second;
	$node->restart;
	$monitor = background($node);
	is($monitor->query_safe('SELECT count(*) FROM zk_stat'), 0, 'nothing after a restart');
};

# Each of these is a database of its own to its backends; their files are those of one.
subtest 'the 128th database and all later ones share a row of zk_stat' => sub {
	my $admin = background($paris);
	my $directory = $paris->data_dir . '/base';
	my $original = $admin->query_safe("SELECT oid FROM pg_database WHERE datname = 'postgres'");
	my $columns = $admin->query_safe("SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
		WHERE attrelid = 'pg_database'::regclass AND attnum > 0 AND NOT attisdropped AND attname NOT IN ('oid', 'datname')");
	my $read = sub ($database) {
		return $admin->query_safe("SELECT grants_at_once FROM zk_stat WHERE datname IS NOT DISTINCT FROM $database");
	};
	$_->quit foreach $admin, $abroad;
	$paris->restart;
	$admin = background($paris, first => 'SELECT zk_stat_reset()');
	$admin->query_safe("INSERT INTO pg_database (oid, datname, $columns) SELECT 90000 + i, 'd' || i, $columns
		FROM pg_database, generate_series(2, 131) AS i WHERE datname = 'postgres'");
	foreach my $i (2 .. 131)
	{
		symlink($original, "$directory/@{[ 90000 + $i ]}") or die "could not make a link: $!";
	}
	my $count = "SELECT zk_lock('many'), zk_unlock('many'), zk_disconnect();";
	my $script = join '', map { "\\connect d$_\n" . ($_ < 126 ? "SELECT zk_stat_reset();\n" : "$count\n") } 2 .. 131;
	$paris->safe_psql('postgres', $script);
	is($read->("'d$_'"), 1, "database $_ has a row of its own") foreach 126, 127;
	is($read->('NULL'), 4, 'what happens in four more is in one row');
	is($admin->query_safe("SELECT count(*), count(datname), min(datname) FILTER (WHERE datname IN ('d128', 'd131')) FROM zk_stat"),
		'128|127|', 'there are 128 rows and none beyond them');
	$paris->safe_psql('d130', 'SELECT zk_stat_reset()');
	is($read->('NULL'), '', 'one of them resets them all');
	is($read->("'d127'"), 1, 'a row of its own is not reset with them');
	$paris->safe_psql('d127', $count);
	is($read->("'d127'"), 2, 'a row of its own goes on being counted in');
};

done_testing();
