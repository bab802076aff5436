
# A wait can end in many ways besides a grant: cancelled, timed out, the backend
# terminated, the client gone, the server shut down or killed. In each case the
# backend must come back at once, its node must go, and whoever waited behind it
# must not be forgotten: an orphan would block the lock for everybody.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use ZkLockTest;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my %node = map { $_ => cluster($_, $zk, restart_after_crash => 'on') }
  qw(berlin paris);
my $path = lock_path('wait');

# What "at once" may take on a busy machine, in seconds; and a bound that is not over before
# the queue is seen as it shall be.
my $at_once = 4;
my $bound = 3;

# The words of each end, and what the client and the log are told besides.
my %words = (
	statement_timeout => 'canceling statement due to statement timeout',
	lock_timeout => 'canceling statement due to lock timeout',
	cancel => 'canceling statement due to user request',
	terminate => 'terminating connection due to administrator command');
my $context = '\n(?:.*DETAIL:.*\n)?.*CONTEXT:  while waiting for ZooKeeper lock "wait"';

# Holder and successor are of one cluster, who leaves the queue is of the other.
my $holder = background($node{berlin});
my $successor = background($node{berlin});

# How many ephemeral nodes are below the path, as ZooKeeper's dump has it.
sub count_nodes
{
	my ($below) = @_;
	my @nodes = $zk->ephemerals("$below/");
	return scalar @nodes;
}

# Seconds until the condition holds.
sub seconds_until(&$)
{
	my ($condition, $what) = @_;
	my $start = time;
	poll_until { $condition->() } $what, 30;
	return time - $start;
}

# A session of paris that waits between holder and successor.
sub queue_up
{
	my ($sql, @setup) = @_;
	my $waiter = background($node{paris});
	# Connected before, so that the wait is all that takes time.
	$waiter->query_safe($_)
	  foreach "SELECT zk_try_lock('other'), zk_unlock('other')", @setup;
	$holder->query_safe("SELECT zk_lock('wait')");
	$waiter->start_query($sql);
	wait_for_queue($zk, $path, 2);
	$successor->start_query("SELECT zk_lock('wait')");
	wait_for_queue($zk, $path, 3);
	return $waiter;
}

# The waiter's node is gone, the queue moves on past the gap.
sub queue_moves_on
{
	my ($start) = @_;
	my $took = seconds_until { count_nodes($path) == 2 } 'the node to go';
	$took = time - $start if $start;
	cmp_ok($took, '<', $at_once, 'its node is gone at once');
	ok(!$successor->is_done, 'the holder still holds');
	$holder->query_safe("SELECT zk_unlock('wait')");
	$successor->wait_result;
	is($successor->sqlstate, '00000', 'the next waiter gets the lock');
	$successor->query_safe("SELECT zk_unlock('wait')");
	assert_no_nodes($zk, $path, 'nothing left');
	return;
}

# The wait ends by itself, by its bound; the session goes on.
sub bound_ends_wait
{
	my ($what, $sqlstate, $message, $sql, @setup) = @_;
	subtest $what => sub {
		my $start = time;
		my $waiter = queue_up($sql, @setup);
		my $result = $waiter->wait_result;
		my $took = time - $start;
		is($waiter->sqlstate, $sqlstate, 'SQLSTATE');
		like($waiter->error . $result, $message, 'message');
		cmp_ok($took, '>', $bound - 0.1, 'not before its time');
		cmp_ok($took, '<', $bound + $at_once, 'and not much later');
		queue_moves_on();
		is($waiter->query("RESET ALL; SELECT zk_try_lock('wait'), zk_unlock('wait')"),
			't|t', 'the session goes on');
	};
	return;
}

bound_ends_wait('statement_timeout', '57014',
	qr/$words{statement_timeout}$context/, "SELECT zk_lock('wait')", "SET statement_timeout = '${bound}s'");
bound_ends_wait('lock_timeout', '55P03',
	qr/$words{lock_timeout}$context/, "SELECT zk_lock('wait')", "SET lock_timeout = '${bound}s'");
bound_ends_wait('timeout argument', '55P03',
	qr/could not obtain lock "wait" within ${bound}000 ms/,
	"SELECT zk_lock('wait', '${bound}s')");
bound_ends_wait('the earlier of lock_timeout and argument', '55P03',
	qr/$words{lock_timeout}/, "SELECT zk_lock('wait', '1 hour')", "SET lock_timeout = '${bound}s'");
bound_ends_wait('a try with a timeout', '00000', qr/^f$/,
	"SELECT zk_try_lock('wait', '${bound}s')");

subtest 'pg_cancel_backend' => sub {
	my $waiter = queue_up("SELECT zk_lock('wait')");
	my $start = time;
	$node{paris}
	  ->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $waiter->pid . ')');
	$waiter->wait_result;
	cmp_ok(time - $start, '<', $at_once, 'ends at once');
	is($waiter->sqlstate, '57014', 'SQLSTATE');
	like($waiter->error, qr/$words{cancel}$context/, 'message');
	queue_moves_on($start);
	is($waiter->query("SELECT zk_try_lock('wait'), zk_unlock('wait')"),
		't|t', 'the session goes on');
};

subtest 'pg_terminate_backend' => sub {
	my $waiter = queue_up("SELECT zk_lock('wait')");
	my $start = time;
	$node{paris}->safe_psql('postgres',
		'SELECT pg_terminate_backend(' . $waiter->pid . ')');
	$waiter->wait_result;
	cmp_ok(time - $start, '<', $at_once, 'ends at once');
	is($waiter->sqlstate, '08006', 'the connection is gone');
	like($waiter->error, qr/$words{terminate}$context/, 'message');
	queue_moves_on($start);
};

# PostgreSQL 17 and later.  It ends the session, so no error handler of a wait runs.
subtest 'transaction_timeout' => sub {
	plan skip_all => 'there is no transaction_timeout before PostgreSQL 17'
	  if pg_major($node{paris}) < 17;
	my $start = time;
	my $waiter = queue_up("SELECT zk_lock('wait')", "SET transaction_timeout = '${bound}s'");
	$waiter->wait_result;
	cmp_ok(time - $start, '>', $bound - 0.1, 'not before its time');
	cmp_ok(time - $start, '<', $bound + $at_once, 'and not much later');
	is($waiter->sqlstate, '08006', 'the connection is gone');
	like($waiter->error, qr/terminating connection due to transaction timeout/, 'message');
	assert_no_programs('so is the program of its session', $waiter);
	queue_moves_on();

	my $idle = background($node{paris});
	$idle->query_safe("SET transaction_timeout = '${bound}s'");
	$idle->query_safe("BEGIN; SELECT zk_xact_lock('wait')");
	$successor->start_query("SELECT zk_lock('wait')");
	$successor->wait_result;
	is($successor->sqlstate, '00000', 'what an idle transaction has locked is free again');
	$successor->query_safe("SELECT zk_unlock('wait')");
	assert_no_nodes($zk, $path, 'nothing left');
};

# Without client_connection_check_interval a backend notices the loss of its
# client only when it has something to say, as in every wait of PostgreSQL.
subtest 'the client vanishes' => sub {
	my $waiter = queue_up("SELECT zk_lock('wait')",
		"SET client_connection_check_interval = '200ms'");
	my $start = time;
	$waiter->kill;
	queue_moves_on($start);
};

subtest 'fast shutdown' => sub {
	my $waiter = queue_up("SELECT zk_lock('wait')");
	my $start = time;
	$node{paris}->stop('fast');
	cmp_ok(time - $start, '<', $at_once, 'is not held up');
	$waiter->wait_result;
	is($waiter->sqlstate, '08006', 'the connection is gone');
	queue_moves_on($start);
	$node{paris}->start;
};

# As PostgreSQL has it: a smart shutdown waits for sessions, busy or idle.
subtest 'smart shutdown' => sub {
	my $waiter = queue_up("SELECT zk_lock('wait')");
	my $watcher = background($node{paris});
	$node{paris}->command_ok(
		[ 'pg_ctl', '-D', $node{paris}->data_dir, '-m', 'smart', '-W', 'stop' ],
		'is asked for');
	# Not by psql(), which writes to a psql that may have gone by then.
	poll_until
	{
		my (undef, $error) =
		  run_command([ 'psql', '-XAtc', 'SELECT 1', $node{paris}->connstr('postgres') ]);
		$error =~ /shutting down/;
	}
	'new connections to be refused', 30;
	is(count_nodes($path), 3, 'the waiter stays in the queue');
	is($watcher->query("SELECT wait_event_type FROM pg_stat_activity
		WHERE pid = " . $waiter->pid), 'Extension', 'and waits');
	$watcher->quit;

	$holder->query_safe("SELECT zk_unlock('wait')");
	$waiter->wait_result;
	is($waiter->sqlstate, '00000', 'it is granted the lock');
	is($waiter->query_safe("SELECT zk_unlock('wait')"), 't', 'and releases it');
	$waiter->quit;
	$successor->wait_result;
	$successor->query_safe("SELECT zk_unlock('wait')");
	poll_until { !-e $node{paris}->data_dir . '/postmaster.pid' }
	'the server to end', 30;
	pass('the server ends with its last session');
	$node{paris}->_update_pid(0);
	$node{paris}->start;
	assert_no_nodes($zk, $path, 'nothing left');
};

subtest 'postmaster killed' => sub {
	my $waiter = queue_up("SELECT zk_lock('wait')");
	my $start = time;
	my $postmaster = $node{paris}->{_pid};
	$node{paris}->kill9;
	$waiter->wait_result;
	cmp_ok(time - $start, '<', $at_once, 'the waiter ends at once');
	is($waiter->sqlstate, '08006', 'the connection is gone');
	queue_moves_on($start);
	# Whoever adopted it must have collected it.
	poll_until { !kill 0, $postmaster } 'the postmaster to be gone', 30;
	$node{paris}->start;
	is($node{paris}->safe_psql('postgres', "SELECT zk_try_lock('wait')"),
		't', 'the cluster works after its restart');
	assert_no_nodes($zk, $path, 'nothing left');
};

# Run statements in one session while another cancels it at random moments.
sub run_under_cancels
{
	my ($session, $between, @statements) = @_;
	my $canceller = background($node{paris});
	my $pid = $session->pid;
	$session->start_query(join "\n", map { "$_;" } @statements);
	until ($session->is_done)
	{
		$canceller->query_safe("DO \$\$ BEGIN
			FOR i IN 1..5 LOOP
				PERFORM pg_sleep(random() * $between);
				PERFORM pg_cancel_backend($pid);
			END LOOP; END \$\$");
	}
	$session->wait_result;
	my $cancelled = () = $session->error =~ /canceling statement/g;
	return $cancelled;
}

# Create, list, watch and delete are under way at the moment of some of these.
subtest '200 cancels on a lock that another holds' => sub {
	my $waiter = background($node{paris});
	$holder->query_safe("SELECT zk_lock('wait')");
	my $cancelled =
	  run_under_cancels($waiter, 0.01, ("SELECT zk_lock('wait')") x 200);
	is($cancelled, 200, 'all were cancelled');
	poll_until { count_nodes($path) == 1 } 'their nodes to go', 10;
	assert_nodes($zk, $path, 1, 'only the holder is in the queue');
	is($waiter->query_safe('SELECT count(*) FROM zk_locks'), 0,
		'the session holds nothing');
	$waiter->start_query("SELECT zk_lock('wait') > 0");
	wait_for_queue($zk, $path, 2);
	$holder->query_safe("SELECT zk_unlock('wait')");
	is($waiter->wait_result, 't', 'it still can wait and be granted');
	$waiter->quit;
	assert_no_nodes($zk, $path, 'nothing left');
};

# A cancel goes to the whole process group of the backend, of which its session's
# program is a member for a moment.
subtest '100 cancels while the program of a session starts' => sub {
	my $waiter = background($node{paris});
	$holder->query_safe("SELECT zk_lock('wait')");
	my $cancelled = run_under_cancels($waiter, 0.004,
		("SELECT zk_lock('wait')", 'SELECT zk_disconnect()') x 100);
	unlike($waiter->error, qr/could not start/, 'which is not hit by them');
	cmp_ok($cancelled, '>=', 100, 'the backend is');
	$waiter->quit;
	$holder->query_safe("SELECT zk_unlock('wait')");
	assert_no_nodes($zk, $path, 'nothing left');
};

subtest '200 cancels on free locks' => sub {
	my $session = background($node{paris});
	my $below = lock_path('free');
	# The first ones connect and make the parents: those, too, get cancelled.
	my $cancelled = run_under_cancels($session, 0.003,
		map { "SELECT zk_lock('free/$_')" } 1 .. 400);
	note("$cancelled of 400 were cancelled");
	cmp_ok($cancelled, '>', 20, 'some were cancelled');
	my @held = split /\n/,
	  $session->query_safe('SELECT node FROM zk_locks ORDER BY node COLLATE "C"');
	cmp_ok(scalar @held, '<', 400, 'and are not held');
	my @nodes;
	eval {
		poll_until
		{
			@nodes = map { $_->[0] } $zk->ephemerals("$below/");
			"@nodes" eq "@held";
		}
		'nodes to go', 10;
	};
	is_deeply(\@nodes, \@held, 'there is a node for each lock held, no other');
	$session->query_safe('SELECT zk_unlock_all()');
	poll_until { count_nodes($below) == 0 } 'nodes to go', 10;
	is($session->query("SELECT zk_try_lock('wait')"), 't', 'the session goes on');
	$session->quit;
	assert_no_nodes($zk, $path, 'nothing left');
};

my $log = slurp_file($node{paris}->logfile);
like($log, qr/$words{$_}$context/, "$_: the log says the same") foreach sort keys %words;

foreach my $name (sort keys %node)
{
	ok( !$node{$name}->log_contains(
			qr/PANIC|TRAP|terminated by signal|terminating any other active/),
		"$name did not crash");
}

done_testing();
