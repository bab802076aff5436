
# A backend that takes locks for weeks leaks nothing, nor do its zklock-session program and the
# ZooKeeper server: descriptors, threads, processes, memory, watches. Tested with thousands of
# cycles in one session, counted in /proc and by a real server.

use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk);
my $holder = background($node);
my $session = background($node);
my $path = lock_path('leak');

# What the session's process has open besides PostgreSQL's own files, and how
# much memory it has for itself.
sub resources
{
	my $pid = $session->pid;
	my $context = $session->query_safe("SELECT coalesce(sum(total_bytes), 0)
		FROM pg_backend_memory_contexts WHERE name ~ '^zklock'");
	my @descriptors = grep { /^(?:socket|pipe|anon_inode)/ }
	  map { readlink $_ // '' } glob "/proc/$pid/fd/*";
	my $threads = () = glob "/proc/$pid/task/*";
	# One that ends is there for a moment.
	my @programs;
	eval { poll_until { (@programs = session_programs($pid)) == 1 } 'one program' };
	return {
		descriptors => scalar @descriptors,
		threads => $threads,
		programs => scalar @programs,
		memory => memory_of($pid),
		'memory of the program' => memory_of($programs[0]),
		context => $context };
}

sub memory_of ($pid)
{
	open my $status, '<', "/proc/$pid/status" or die $!;
	my ($memory) = map { /^RssAnon:\s+(\d+)/ ? $1 : () } <$status>;
	return $memory;
}

# Places that are held for more than a moment are watched.
sub compare ($before, $what, $nheld = 2)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $after = resources();
	is($after->{$_}, $before->{$_}, "$what: $_")
	  foreach qw(descriptors threads programs context);
	cmp_ok($after->{$_} - $before->{$_}, '<', 512, "$what: $_, in kB")
	  foreach 'memory', 'memory of the program';
	return assert_soon { $zk->watch_count <= 2 + $nheld } "$what: watches", 30;
}

# How many of these statements the statement_timeout cancels.
sub cancelled_by ($timeout, @statements)
{
	$session->query("SET statement_timeout = '$timeout'; " . join ";\n", @statements);
	my $cancelled = () = $session->error =~ /canceling statement/g;
	$session->query_safe('RESET statement_timeout');
	return $cancelled;
}

my $cycles = "DO \$\$ BEGIN FOR i IN 1..%d LOOP
	PERFORM zk_lock('leak'), zk_unlock('leak'); END LOOP; END \$\$";
# Each in a subtransaction and with another bound, at another point of the wait.
my $timeouts = "DO \$\$ BEGIN FOR i IN 1..%d LOOP
	BEGIN PERFORM zk_lock('leak', i %% 7 * interval '1 ms' + interval '1 ms');
	EXCEPTION WHEN lock_not_available THEN NULL; END; END LOOP; END \$\$";

my $transactions = "DO \$\$ BEGIN FOR i IN 1..%d LOOP
	PERFORM zk_xact_lock('leak'), zk_xact_lock_shared('many/' || i %% 10);
	BEGIN
		PERFORM zk_xact_lock('many/inner'), 1 / (i %% 2);
	EXCEPTION WHEN division_by_zero THEN NULL;
	END;
	IF i %% 3 = 0 THEN ROLLBACK; ELSE COMMIT; END IF;
	END LOOP; END \$\$";
my $sessions = "DO \$\$ BEGIN FOR i IN 1..%d LOOP
	PERFORM zk_lock('leak'), zk_disconnect(); END LOOP; END \$\$";

# The first of each make the session, and whatever PostgreSQL, the C library and
# we keep for the next time.
$holder->query_safe("SELECT zk_lock('other')");
$session->query_safe(sprintf $_, 20) foreach $sessions, $transactions;
$session->query_safe(sprintf $cycles, 300);
$holder->query_safe("SELECT zk_lock('leak')");
$session->query_safe(sprintf $timeouts, 50);
cancelled_by('5ms', ("SELECT zk_lock('leak')") x 20);
assert_released($zk, 'leak', $holder);
resources();
my $before = resources();
is($before->{threads}, 1, 'a session has no thread in the backend');
is($before->{programs}, 1, 'a session has one program');

subtest '2000 locks and releases leak nothing' => sub {
	$session->query_safe(sprintf $cycles, 2000);
	assert_no_nodes($zk, $path, 'nothing left');
	compare($before, 'after');
	is($session->query_safe('SELECT pending_requests FROM zk_session'), 0, 'no request is outstanding');
};

# While another one holds the lock.
sub leaves_nothing ($wait)
{
	$holder->query_safe("SELECT zk_lock('leak')");
	$wait->();
	wait_for_queue($zk, $path, 1);
	compare($before, 'while the lock is held');
	return assert_released($zk, 'leak', $holder);
}

subtest '300 waits that time out leak nothing' => sub {
	leaves_nothing(sub { $session->query_safe(sprintf $timeouts, 300); });
};

subtest '300 waits that are canceled leak nothing' => sub {
	leaves_nothing(sub { is(cancelled_by('4ms', ("SELECT zk_lock('leak')") x 300), 300, 'all of them'); });
};

subtest 'waits for 300 locks that are held leak nothing' => sub {
	$holder->query_safe("SELECT zk_lock_set(array_agg('many/' || i)) FROM generate_series(1, 300) i");
	$session->query_safe("DO \$\$ BEGIN FOR i IN 1..300 LOOP
		BEGIN PERFORM zk_try_lock('many/' || i, '2 ms');
		EXCEPTION WHEN sqlclient_unable_to_establish_sqlconnection
		THEN NULL; END; END LOOP; END \$\$");
	cancelled_by('8ms', map { "SELECT zk_lock('many/$_')" } 1 .. 300);
	compare($before, 'while the locks are held', 301);
	$holder->query_safe('SELECT zk_unlock_all()');
	$holder->query_safe("SELECT zk_lock('other')");
};

subtest '1000 transactions with errors in them leak nothing' => sub {
	$session->query_safe(sprintf $transactions, 1000);
	assert_no_nodes($zk, $path, 'nothing left');
	assert_soon { !$zk->ephemerals(lock_path('many/')) } 'no node is left below other locks', 30;
	compare($before, 'after');
};

subtest '100 sessions one after the other leak nothing' => sub {
	$session->query_safe(sprintf $sessions, 100);
	$session->query_safe("SELECT zk_lock('leak'), zk_unlock('leak')");
	assert_no_nodes($zk, $path, 'nothing left');
	compare($before, 'after');
	# The holder's, the session's, and that of the one who asks.
	assert_soon { $zk->counter('num_alive_connections') <= 4 } 'connections', 30;
	assert_soon { $zk->counter('global_sessions') <= 4 } 'sessions', 30;
};

# A session that ends gives back what it had, also the first ones of a backend.
subtest '350 sessions of a new backend leak neither memory nor descriptors' => sub {
	my $fresh = background($node);
	my $one = "SELECT zk_lock('leak'), zk_disconnect()";
	$fresh->query_safe($one);
	my $memory = memory_of($fresh->pid);
	$fresh->query_safe($one) foreach 1 .. 5;
	cmp_ok(memory_of($fresh->pid) - $memory, '<', 256, 'memory of the backend, in kB');

	# PostgreSQL lets a third of its descriptors be others', and counts.
	$fresh->query_safe(sprintf $sessions, 350);
	is($fresh->query_safe("SELECT state FROM zk_check(false) WHERE item = 'program'"), 'ok', 'no descriptor is taken for one in use');
};

done_testing();
