
# Sessions that are connected before a backend needs one: a backend that takes one
# has what it would have made itself, with all that hangs on it, and where there is
# none, or none that fits, it makes its own.

use strict;
use warnings;

use PostgreSQL::Test::Utils qw(slurp_file);
use Test::More;
use Time::HiRes qw(time);
use ZkLockTest;
use ZooKeeper;

my $ready = 3;
my $zk = ZooKeeper->new(tick_time => 1000)->start;
my %setting = (
	'zklock.session_timeout' => '20s',
	'restart_after_crash' => 'on');
my $node = cluster('berlin', $zk, %setting,
	'shared_preload_libraries' => 'zklock',
	'zklock.ready_sessions' => $ready);
my $other = cluster('paris', $zk, %setting);
my $path = lock_path('ready');

# It has no database, so pg_stat_activity does not show it.
sub worker
{
	my ($postmaster) =
	  split /\n/, slurp_file($node->data_dir . '/postmaster.pid');
	my ($pid) = `ps -o pid=,args= --ppid $postmaster` =~
	  /^\s*(\d+) .*zklock ready sessions/m;
	return $pid;
}

# The programs that wait, by their titles; and the worker's.
sub wait_until_ready
{
	my @waiting;
	poll_until
	{
		my $pid = worker();
		@waiting = defined $pid ? session_programs($pid) : ();
		@waiting == $ready
	}
	'sessions to be ready', 30;
	# Listed is what is connected.
	poll_until { $zk->counter('global_sessions') >= $ready } 'their connections', 30;
	return @waiting;
}

# A backend that got a session from the worker.
sub taker
{
	my @waiting;
	my $session;
	poll_until
	{
		@waiting = wait_until_ready();
		$session = background($node);
		$session->query_safe("SELECT zk_lock('ready')");
		my $program = $session->query_safe('SELECT program_pid FROM zk_session');
		my $is_taken = grep { $_ == $program } @waiting;
		$session->quit unless $is_taken;
		$is_taken;
	}
	'a ready session', 30;
	return $session;
}

subtest 'taken and given back' => sub {
	my $session = taker();
	my $program = $session->query_safe('SELECT program_pid FROM zk_session');
	is_deeply([ session_programs($session->pid) ], [$program], 'its title says whose it is');
	is($session->query_safe('SELECT session_timeout_ms FROM zk_session'), 20000,
		'with the settings');
	like($session->query_safe('SELECT node FROM zk_locks'), qr/_c_........-....-8a11-/,
		'and an identity that locks can be handed over with');
	is($session->query_safe("SELECT zk_is_held('ready')"), 't', 'it works');
	wait_until_ready();
	pass('another takes its place');
	$session->quit;
	assert_no_nodes($zk, $path, 'its end is the end of its session');
	assert_no_programs('and of the program, which the worker reaps', $session);
};

subtest 'killed backend' => sub {
	my ($session, $waiter) = (taker(), background($other));
	$waiter->start_query("SELECT zk_lock('ready')");
	wait_for_queue($zk, $path, 2);
	my $start = time;
	kill 'KILL', $session->pid;
	$waiter->wait_result;
	is($waiter->sqlstate, '00000', 'its lock passes on');
	cmp_ok(time - $start, '<', 10, 'long before the session timeout');
	$_->quit foreach $session, $waiter;
	$node->poll_query_until('postgres', 'SELECT true');
	wait_until_ready();
	pass('there are ready ones again');
};

subtest 'killed program' => sub {
	my $session = taker();
	my $program = $session->query_safe('SELECT program_pid FROM zk_session');
	$session->start_query('SELECT pg_sleep(60)');
	wait_for_sleep($node, $session->pid);
	kill 'KILL', $program;
	$session->wait_result;
	is($session->sqlstate, '40001', 'cancels the statement');
	$session->query_safe('SELECT zk_unlock_all()');
	is($session->query_safe("SELECT zk_try_lock('ready', '10s')"), 't', 'the next session works');
	poll_until { !-e "/proc/$program" } 'it to be reaped', 30;
	pass('no zombie stays');
	$session->quit;
	assert_no_nodes($zk, $path, 'nothing left');
};

subtest 'settings of its own' => sub {
	my @waiting = wait_until_ready();
	my $session = background($node);
	$session->query_safe("SET zklock.session_timeout = '10s'");
	$session->query_safe("SELECT zk_lock('ready')");
	my $program = $session->query_safe('SELECT program_pid FROM zk_session');
	ok(!grep({ $_ == $program } @waiting), 'it has a session of its own');
	is($session->query_safe('SELECT session_timeout_ms FROM zk_session'), 10000, 'as it should be');
	$session->quit;
};

subtest 'a reload' => sub {
	my @before = wait_until_ready();
	$node->adjust_conf('postgresql.conf', 'zklock.session_timeout', "'19s'");
	$node->reload;
	poll_until
	{
		my %now = map { $_ => 1 } session_programs(worker());
		!grep { $now{$_} } @before
	}
	'the old ones to end', 30;
	my $session = taker();
	is($session->query_safe('SELECT session_timeout_ms FROM zk_session'), 19000,
		'brings ready sessions of the new settings');
	$session->quit;
};

subtest 'the worker ends' => sub {
	my $session = taker();
	kill 'TERM', worker();
	poll_until { defined worker() } 'another', 30;
	wait_until_ready();
	is($session->query_safe("SELECT zk_is_held('ready')"), 't', 'what it had given away stays');
	$session->quit;
	assert_no_nodes($zk, $path, 'nothing left');
};

subtest 'the ensemble is away' => sub {
	wait_until_ready();
	$zk->stop;
	my $session = background($node);
	$session->query_safe("SET zklock.connect_timeout = '500ms'");
	$session->query("SELECT zk_lock('ready')");
	like($session->sqlstate, qr/^08/, 'as without ready sessions');
	$zk->start;
	poll_until { $session->query("SELECT zk_try_lock('ready', '5s')"); $session->sqlstate eq '00000' }
	'it to be back', 60;
	$session->quit;
	my $taker = taker();
	is($taker->query_safe("SELECT zk_is_held('ready')"), 't', 'then there are ready ones again');
	$taker->quit;
};

my $pid = worker();
$node->stop;
assert_no_programs('with the server they go', $pid);

subtest 'a program that stands still once it is taken' => sub {
	my $rome = cluster('rome', $zk, %setting,
		'shared_preload_libraries' => 'zklock',
		'zklock.session_timeout' => '4s',
		'zklock.ready_sessions' => 1);
	my $is_ready = sub {
		my ($count) = @_;
		poll_until
		{
			$rome->safe_psql('postgres', 'SELECT what FROM zk_check(false)') =~ /process \d+; $count of 1 are ready/
		}
		"$count to be ready", 30;
		return;
	};
	$is_ready->(1);
	my $session = background($rome);
	$session->query_safe("SELECT zk_lock('still')");
	my ($program) = split /\n/, $session->query_safe('SELECT program_pid FROM zk_session');
	kill 'STOP', $program;
	poll_until { $session->query("SELECT zk_is_held('still')"); $session->query_safe('SELECT state FROM zk_session') ne 'connected' }
	'its loss', 30;
	$session->query('SELECT zk_unlock_all()');
	$session->query_safe("SELECT zk_lock('still', '30s')");
	poll_until { !kill 0, $program } 'it to be killed', 30;
	pass('it is killed, and replaced');
	$session->quit;

	$rome->safe_psql('postgres', "ALTER SYSTEM SET zklock.servers = ''");
	$rome->reload;
	$is_ready->(0);
	$rome->safe_psql('postgres', 'ALTER SYSTEM RESET zklock.servers');
	$rome->reload;
	$is_ready->(1);
	pass('none are made while no servers are set');
	$rome->stop;
};

done_testing();
