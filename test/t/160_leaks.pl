
# A backend of a connection pool lives for weeks. Nothing may pile up in it, in its
# session's program or in the server: descriptors, threads, processes, memory,
# watches.

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
	my @programs = session_programs($pid);
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
	cmp_ok($zk->watch_count, '<=', 2 + $nheld, "$what: watches");
	return;
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
my $again = "SELECT zk_lock('leak'), zk_unlock('leak')";

# The first of each make the session, and whatever PostgreSQL, the C library and
# we keep for the next time.
$holder->query_safe("SELECT zk_lock('other')");
$session->query_safe(sprintf $_, 20) foreach $sessions, $transactions;
$session->query_safe(sprintf $cycles, 300);
$holder->query_safe("SELECT zk_lock('leak')");
$session->query_safe(sprintf $timeouts, 50);
$session->query("SET statement_timeout = '5ms'; " . "SELECT zk_lock('leak');\n" x 20);
$session->query_safe('RESET statement_timeout');
$holder->query_safe("SELECT zk_unlock('leak')");
assert_no_nodes($zk, $path, 'warm');
resources();
my $before = resources();
is($before->{threads}, 1, 'a session has no thread in the backend');
is($before->{programs}, 1, 'but a program');

subtest '2000 locks and releases' => sub {
	$session->query_safe(sprintf $cycles, 2000);
	assert_no_nodes($zk, $path, 'nothing left');
	compare($before, 'after');
	is($session->query_safe('SELECT pending_requests FROM zk_session'), 0,
		'no request is outstanding');
};

subtest '300 waits that time out' => sub {
	$holder->query_safe("SELECT zk_lock('leak')");
	$session->query_safe(sprintf $timeouts, 300);
	poll_until { $zk->ephemerals("$path/") == 1 } 'nodes to go', 10;
	compare($before, 'while the lock is held');
	$holder->query_safe("SELECT zk_unlock('leak')");
	assert_no_nodes($zk, $path, 'nothing left');
};

subtest '300 waits that are cancelled' => sub {
	$holder->query_safe("SELECT zk_lock('leak')");
	$session->query_safe("SET statement_timeout = '4ms'");
	$session->query("SELECT zk_lock('leak');\n" x 300);
	my $cancelled = () = $session->error =~ /canceling statement/g;
	is($cancelled, 300, 'all of them');
	$session->query_safe('RESET statement_timeout');
	poll_until { $zk->ephemerals("$path/") == 1 } 'nodes to go', 10;
	compare($before, 'while the lock is held');
	$holder->query_safe("SELECT zk_unlock('leak')");
	assert_no_nodes($zk, $path, 'nothing left');
};

subtest 'waits for 300 locks, one after the other' => sub {
	$holder->query_safe("SELECT zk_lock(array_agg('many/' || i)) FROM generate_series(1, 300) i");
	$session->query_safe("DO \$\$ BEGIN FOR i IN 1..300 LOOP
		BEGIN PERFORM zk_try_lock('many/' || i, '2 ms');
		EXCEPTION WHEN sqlclient_unable_to_establish_sqlconnection
		THEN NULL; END; END LOOP; END \$\$");
	$session->query_safe("SET statement_timeout = '8ms'");
	$session->query(join '', map { "SELECT zk_lock('many/$_');\n" } 1 .. 300);
	$session->query_safe('RESET statement_timeout');
	eval { poll_until { $zk->watch_count <= 2 + 301 } 'watches to go', 10 };
	compare($before, 'while the locks are held', 301);
	$holder->query_safe('SELECT zk_unlock_all()');
	$holder->query_safe("SELECT zk_lock('other')");
};

# Somebody takes DELETE from the lock's ACL, and gives it back.
subtest 'a deletion that is refused for a while' => sub {
	my $stranger = $zk->client;
	my $refused = lock_path('refused');
	$session->query_safe("SELECT zk_lock('refused')");
	$stranger->set_acl($refused, [ [ 1 | 2 | 4 | 16, 'world', 'anyone' ] ]);
	is($session->query_safe("SELECT zk_unlock('refused')"), 't', 'released');
	poll_until { $session->query_safe('SELECT pending_requests FROM zk_session') == 1 }
	'all else to be answered', 10;
	is(scalar(queue_nodes($zk, $refused)), 1, 'the node is there');
	is($session->query_safe("SELECT zk_lock('refused', '60s') > 0"), 't', 'and hands the lock on, though it stays');
	is($session->query_safe("SELECT zk_unlock('refused')"), 't', 'which is released once more');
	is($session->query_safe("SELECT zk_lock('elsewhere', '10s') > 0, zk_unlock('elsewhere')"), 't|t',
		'which does not wait for it with other locks');
	start_in_queue($holder, "SELECT zk_lock('refused')", $zk, $refused, 3);
	$stranger->set_acl($refused, [ [ 31, 'world', 'anyone' ] ]);
	assert_ends($holder, '00000', 'it goes as soon as it may, without anybody asking');
	poll_until { $session->query_safe('SELECT pending_requests FROM zk_session') == 0 }
	'the deletion to be over', 10;
	$holder->query_safe("SELECT zk_unlock('refused')");
	assert_no_nodes($zk, $refused);
};

subtest '1000 transactions, and errors in them' => sub {
	$session->query_safe(sprintf $transactions, 1000);
	assert_no_nodes($zk, $path, 'nothing left');
	poll_until { !(my @nodes = $zk->ephemerals(lock_path('many') . '/')) }
	'nodes to go', 10;
	compare($before, 'after');
};

subtest '100 sessions one after the other' => sub {
	$session->query_safe(sprintf $sessions, 100);
	$session->query_safe($again);
	assert_no_nodes($zk, $path, 'nothing left');
	compare($before, 'after');
	# The holder's, the session's, and that of the one who asks.
	cmp_ok($zk->monitor->{num_alive_connections}, '<=', 4, 'connections');
	cmp_ok($zk->counter('global_sessions'), '<=', 4, 'sessions');
};

# A session that ends gives back what it had, also the first ones of a backend.
subtest 'the first sessions of a backend' => sub {
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
