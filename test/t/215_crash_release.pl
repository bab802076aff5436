
# The end of a backend, in order or by a crash, releases its locks within moments and not after
# the session timeout, on ensembles with and without authentication: the zklock-session program
# ends the session when its backend is gone. Tested with real servers and each kind of end, from
# \q to kill -9 of the postmaster.

use Proxy;
use ZkLockTest;

my $session_timeout = 60;
my %setting = (
	'zklock.session_timeout' => "${session_timeout}s",
	'restart_after_crash' => 'on');

# A holder in one cluster and a waiter in another; the holder ends, and the
# waiter has the lock long before the session timeout. A bystander's lock goes,
# too, where all backends of the cluster do. $end may return when the end began.
sub holder_ends ($crashing, $other, $zk, $end, $what, $is_alone = 0, %option)
{
	my $holder = background($crashing, %option, holds => 'crash');
	my $bystander = background($crashing, holds => 'bystander');
	my $waiter = background($other);
	my $path = lock_path('crash');
	is($holder->query_safe('SELECT session_timeout_ms FROM zk_session'),
		1000 * $session_timeout, "$what: session timeout as asked for");
	start_in_queue($waiter, "SELECT zk_lock('crash')", $zk, $path, 2);
	my $start = time;
	my $began = $end->($holder);
	assert_ends($waiter, '00000', "$what: the waiter gets the lock");
	my $took = time - ($is_alone && $began || $start);
	in_time($took, $session_timeout / 2, 'long before the session timeout');
	note sprintf '%s: %.1f ms', $what, 1000 * $took;
	is_deeply([ map { $_->[0] } $zk->ephemerals("$path/") ], [ $waiter->query_safe('SELECT node FROM zk_session_locks') ],
		'whose node is the only one') if $is_alone;
	$bystander->quit if $is_alone;
	assert_no_nodes($zk, lock_path($_), "$what: $_ is released, too") foreach qw(bystander more);
	$waiter->query_safe("SELECT zk_unlock('crash')");
	assert_leave_nothing($zk, $path, $waiter, $bystander, $holder);
	assert_no_programs("$what: no program is left", $holder, $bystander);
	return;
}

my $zk = ZooKeeper->new(tick_time => 1000)->start;
my $crashing = cluster('berlin', $zk, %setting);
my $other = cluster('paris', $zk, %setting);

# In order, which costs nobody else anything.
$crashing->safe_psql('postgres', 'CREATE DATABASE doomed');
$crashing->safe_psql('doomed', 'CREATE EXTENSION zklock');
my %in_order = (
	quit => sub { $_[0]->quit; return; },
	pg_terminate_backend => sub { $_[0]->terminate; return; },
	# Both kinds of hold end with it.
	'pg_terminate_backend in a transaction' => sub {
		$_[0]->query_safe("BEGIN; SELECT zk_xact_lock('more')");
		my $start = time;
		$_[0]->terminate;
		return $start;
	},
	idle_session_timeout => sub {
		$_[0]->query_safe("SET idle_session_timeout = '200ms'");
		$crashing->poll_query_until('postgres', 'SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = ' . $_[0]->pid);
		return;
	},
	'DROP DATABASE WITH (FORCE)' => sub { $crashing->safe_psql('postgres', 'DROP DATABASE doomed WITH (FORCE)'); return; });
holder_ends($crashing, $other, $zk, $in_order{$_}, $_, 1, /DROP/ ? (database => 'doomed') : ()) foreach sort keys %in_order;

foreach my $mode (qw(fast immediate))
{
	holder_ends($crashing, $other, $zk, sub { $crashing->stop($mode); }, "$mode shutdown");
	$crashing->start;
}

foreach my $signal (qw(KILL ABRT SEGV))
{
	my $pid;
	holder_ends($crashing, $other, $zk, sub { kill $signal, $pid = $_[0]->pid; },
		"SIG$signal");
	wait_for_recovery($crashing, $pid);
}

# Nobody ends the backends then but they themselves.
holder_ends($crashing, $other, $zk,
	sub { $crashing->kill9; },
	'postmaster killed');
# As long as one of its backends is there it is refused, and the pid file is old.
poll_until { $crashing->{_pid} = undef; $crashing->start(fail_ok => 1) }
'the cluster to start', 30;

# In the middle of a statement, and of a transaction.
my $killed;
holder_ends($crashing, $other, $zk,
	sub {
		$_[0]->query_safe("BEGIN; SELECT zk_xact_lock('more')");
		$_[0]->start_query('SELECT pg_sleep(60)');
		kill 'KILL', $killed = $_[0]->pid;
	},
	'killed while it works');
wait_for_recovery($crashing, $killed);

# The end of a backend must not take long because ZooKeeper is away. The request to end
# the session has left by then, although the connection is reset soon after.
{
	my $proxy = Proxy->new($zk->connect_string);
	my $another = background($other);
	assert_within
	{
		my $session = background($other, is_connected => 1, route => $proxy->address, holds => 'quit');
		$proxy->cut;
		my $start = time;
		is($another->query_safe('SELECT pg_terminate_backend(' . $session->pid . ', 20000)'), 't', 'the backend ends');
		my $took = time - $start;
		$proxy->heal;
		$proxy->reset_connections;
		$took;
	}
	1, 'a backend that cannot reach ZooKeeper ends after about 200 ms';
	poll_until { !$zk->ephemerals(lock_path('quit/')) } 'the node to go', $session_timeout / 2;
}

$_->stop foreach $crashing, $other;
$zk->stop;

# An ensemble that carries out nothing for a connection without credentials, not
# even the end of its session; and one that knows no digest authentication.
my @enforced = (config => {
		'enforce.auth.enabled' => 'true',
		'enforce.auth.schemes' => 'digest' });
my @without_digest =
  (java_options => ['-Dzookeeper.DigestAuthenticationProvider.enabled=false']);
my %strict = (
	'authentication is enforced, an identity of its own' => [ '', @enforced ],
	'authentication is enforced, zklock.auth' =>
	  [ 'digest:crash:secret', @enforced ],
	'no digest authentication' => [ '', @without_digest ]);
foreach my $what (sort keys %strict)
{
	my ($auth, @option) = @{ $strict{$what} };
	my $name = join '_', $what =~ /(\w+)/g;
	my $ensemble = ZooKeeper->new(tick_time => 1000, @option)->start;
	my ($holding, $waiting) = map {
		cluster("${_}_$name", $ensemble, %setting, 'zklock.auth' => $auth)
	} qw(berlin paris);
	my ($holder, $waiter) = (background($holding, holds => 'crash'), background($waiting));
	my $start = time;
	kill 'KILL', $holder->pid;
	$waiter->query_safe("SELECT zk_lock('crash')");
	in_time(time - $start, $session_timeout / 2,
		"$what: long before the session timeout");
	wait_for_recovery($holding, $holder->pid);

	# The backend has no credentials any more with which another program could end it.
	my ($program) = session_programs($waiter->pid);
	$start = time;
	kill 'KILL', $program;
	$waiter->query("SELECT zk_is_held('crash')");
	$waiter->quit;
	my $next = background($holding, holds => 'crash');
	in_time(time - $start, $session_timeout / 2, "$what: and when its program is killed");
}

# Not that of ZkLockTest, which would find the crashes.
Test::More::done_testing();
