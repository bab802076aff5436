
# A wait for a lock can end without a grant: by cancellation, timeout, the end of the backend, of
# its client, or of the server. In each case the backend returns at once, its queue node is
# deleted, and the waiter behind it is granted the lock in its turn. Tested with real servers, in
# two clusters.

use Refusals;
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my %node = map { $_ => cluster($_, $zk, restart_after_crash => 'on', 'zklock.session_timeout' => '1min') }
  qw(berlin paris);
my $table = Refusals->new($zk);
my $path = lock_path('wait');

# What "at once" may take on a busy machine, in seconds, long before a session is over; and a
# bound that is not over before the queue is seen as it shall be.
my $at_once = 20;
my $bound = 5;

# The words of each end, and what the client and the log are told besides.
my %words = (
	statement_timeout => 'canceling statement due to statement timeout',
	lock_timeout => 'canceling statement due to lock timeout',
	cancel => 'canceling statement due to user request',
	terminate => 'terminating connection due to administrator command');
my $context = '\n(?:.*DETAIL:.*\n)?.*CONTEXT:  while waiting for ZooKeeper lock "wait"';

# Holder and successor are of one cluster, who leaves the queue is of the other. It is
# connected before, so that the wait is all that takes time.
sub cast
{
	return {
		holder => background($node{berlin}),
		successor => background($node{berlin}),
		waiter => background($node{paris}, is_connected => 1) };
}

# Rows: from there on the time counts; and it is at once.
my $start;
my $clock = sub { $start = time; };
my $at_once_by_now = sub { in_time(time - $start, $at_once, 'soon after the end of the wait'); };

# Rows: who waits stands between holder and successor; its node is gone, and the queue moves
# on past the gap.
sub queued ($sql = undef)
{
	return ([ holder => "zk_lock('wait')" ],
		[ 'waiter starts' => $sql // "zk_lock('wait')" ], [ queue => wait => 2 ],
		[ 'successor starts' => "zk_lock('wait')" ], [ queue => wait => 3 ]);
}

my @moves_on = ([ nodes => wait => 2 ], $at_once_by_now, [ 'successor waits' ],
	[ holder => "zk_unlock('wait')", 't' ], [ 'successor ends' ],
	[ successor => "zk_unlock('wait')", 't' ], [ gone => 'wait' ]);
my @goes_on = ([ waiter => "RESET ALL; SELECT zk_try_lock('wait'), zk_unlock('wait')", 't|t' ]);

# The wait ends by itself, by its bound: the setting, the call, and what is said.
my $cannot = qr/could not obtain lock "wait" within ${bound}000 ms/;
foreach my $case (
	[ 'statement_timeout', undef, '!57014', qr/$words{statement_timeout}$context/ ],
	[ 'lock_timeout', undef, '!55P03', qr/$words{lock_timeout}$context/ ],
	[ undef, "zk_lock('wait', '${bound}s')", '!55P03', $cannot ],
	# the earlier of the two
	[ 'lock_timeout', "zk_lock('wait', '1 hour')", '!55P03', qr/$words{lock_timeout}/ ],
	[ undef, "zk_try_lock('wait', '${bound}s')", 'f' ])
{
	my ($setting, $sql, @expected) = @$case;
	$table->run('a wait ends by its bound: ' . join(', ', grep { defined } $setting, $sql), cast(),
		$setting ? [ waiter => "SET $setting = '${bound}s'" ] : (),
		$clock,
		queued($sql),
		[ 'waiter ends' => @expected ],
		sub { cmp_ok(time - $start, '>', $bound - 0.1, 'the bound is not over before its time'); },
		sub { in_time(time - $start, $bound + $at_once, 'the wait ends soon after its bound'); $start = time; },
		@moves_on, @goes_on);
}

$table->run('a wait ends by pg_cancel_backend()', cast(),
	queued(), $clock,
	[ cancel => 'waiter' ], [ 'waiter ends' => '!57014', qr/$words{cancel}$context/ ],
	@moves_on, @goes_on);

$table->run('a wait ends by pg_terminate_backend()', cast(),
	queued(), $clock,
	sub { my (%session) = @_; $session{waiter}->terminate; },
	[ 'waiter ends' => '!08006', qr/$words{terminate}$context/ ],
	@moves_on);

# PostgreSQL 17 and later.  It ends the session, so no error handler of a wait runs.
SKIP:
{
	skip 'there is no transaction_timeout before PostgreSQL 17', 1 if pg_major($node{paris}) < 17;
	$table->run('a wait, and an idle transaction, end by transaction_timeout', { %{ cast() }, idle => background($node{paris}) },
		[ waiter => "SET transaction_timeout = '${bound}s'" ],
		$clock,
		queued(),
		[ 'waiter ends' => '!08006', qr/terminating connection due to transaction timeout/, $bound + $at_once ],
		sub { cmp_ok(time - $start, '>', $bound - 0.1, 'not before its time'); $start = time; },
		sub { my (%session) = @_; assert_no_programs('the program of its session is gone', $session{waiter}); },
		@moves_on,
		# What an idle transaction has locked is free again.
		[ idle => "SET transaction_timeout = '${bound}s'" ], [ idle => "BEGIN; SELECT zk_xact_lock('wait')" ],
		[ successor => "zk_lock('wait')" ],
		[ successor => "zk_unlock('wait')", 't' ], [ gone => 'wait' ]);
}

# Without client_connection_check_interval a backend notices the loss of its
# client only when it has something to say, as in every wait of PostgreSQL.
$table->run('a wait ends when its client is gone, by client_connection_check_interval', cast(),
	[ waiter => "SET client_connection_check_interval = '200ms'" ],
	queued(), $clock,
	sub { my (%session) = @_; $session{waiter}->kill; },
	@moves_on);

$table->run('a wait ends by a fast shutdown', cast(),
	queued(), $clock,
	sub { $node{paris}->stop('fast'); },
	$at_once_by_now,
	[ 'waiter ends' => '!08006' ],
	@moves_on);
$node{paris}->start;

# As PostgreSQL has it: a smart shutdown waits for sessions, busy or idle.
$table->run('a wait goes on during a smart shutdown, which waits for it', { %{ cast() }, watcher => background($node{paris}) },
	queued(),
	sub (%session) {
		my ($paris, $watcher) = ($node{paris}, $session{watcher});
		$paris->command_ok([ 'pg_ctl', '-D', $paris->data_dir, '-m', 'smart', '-W', 'stop' ], 'is asked for');
		# Not by psql(), which writes to a psql that may have gone by then.
		poll_until
		{
			my (undef, $error) = run_command([ 'psql', '-XAtc', 'SELECT 1', $paris->connstr('postgres') ]);
			$error =~ /shutting down/;
		}
		'new connections to be refused', 30;
		is($watcher->query('SELECT wait_event_type FROM pg_stat_activity WHERE pid = ' . $session{waiter}->pid),
			'Extension', 'the waiter waits');
		$watcher->quit;
	},
	[ nodes => wait => 3 ],
	[ holder => "zk_unlock('wait')", 't' ], [ 'waiter ends' ], [ waiter => "zk_unlock('wait')", 't' ],
	sub { my (%session) = @_; $session{waiter}->quit; },
	[ 'successor ends' ], [ successor => "zk_unlock('wait')", 't' ],
	# The server ends with its last session.
	sub { poll_until { !-e $node{paris}->data_dir . '/postmaster.pid' } 'the server to end', 30; },
	[ gone => 'wait' ]);
$node{paris}->_update_pid(0);
$node{paris}->start;

# Whoever adopted the postmaster must have collected it.
my $postmaster = $node{paris}->{_pid};
$table->run('a wait ends when the postmaster is killed', cast(),
	queued(), $clock,
	sub { $node{paris}->kill9; },
	[ 'waiter ends' => '!08006' ],
	@moves_on,
	sub { poll_until { !kill 0, $postmaster } 'the postmaster to be gone', 30; });
$node{paris}->start;
is($node{paris}->safe_psql('postgres', "SELECT zk_try_lock('wait')"), 't', 'the cluster works after its restart');
assert_no_nodes($zk, $path, 'nothing left');

# Run statements in one session while another cancels it at random moments.
sub run_under_cancels ($session, $between, @statements)
{
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

my $holder = background($node{berlin});

# A cancel goes to the whole process group of the backend, of which its session's
# program is a member for a moment.
subtest "100 cancellations while the session's program starts do not end the program" => sub {
	my $waiter = background($node{paris});
	$holder->query_safe("SELECT zk_lock('wait')");
	my $cancelled = run_under_cancels($waiter, 0.004,
		("SELECT zk_lock('wait')", 'SELECT zk_disconnect()') x 100);
	unlike($waiter->error, qr/could not start/, 'the start of the program is not interrupted');
	cmp_ok($cancelled, '>=', 100, 'the backend is canceled');
	$waiter->quit;
	$holder->query_safe("SELECT zk_unlock('wait')");
	assert_no_nodes($zk, $path, 'nothing left');
};

subtest '200 cancellations of grants leave a node for each lock held, and no other' => sub {
	my $session = background($node{paris});
	my $below = lock_path('free');
	# The first ones connect and make the parents: those, too, get cancelled.
	my $cancelled = run_under_cancels($session, 0.003,
		map { "SELECT zk_lock('free/$_')" } 1 .. 400);
	note("$cancelled of 400 were cancelled");
	cmp_ok($cancelled, '>', 20, 'some were cancelled');
	my @held = split /\n/,
	  $session->query_safe('SELECT node FROM zk_session_locks ORDER BY node COLLATE "C"');
	cmp_ok(scalar @held, '<', 400, 'locks of canceled calls are not held');
	assert_becomes { join ' ', map { $_->[0] } $zk->ephemerals("$below/") } "@held",
	  'there is a node for each lock held, no other';
	$session->query_safe('SELECT zk_unlock_all()');
	poll_until { !$zk->ephemerals("$below/") } 'nodes to go', 30;
	is($session->query("SELECT zk_try_lock('wait')"), 't', 'the session goes on');
	assert_leave_nothing($zk, $path, $session);
};

my $log = slurp_file($node{paris}->logfile);
like($log, qr/$words{$_}$context/, "$_: the log says the same") foreach sort keys %words;

done_testing();
