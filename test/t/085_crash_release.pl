
# A backend that is killed leaves its session behind. With zklock preloaded the
# next in line must not wait for the session timeout, and nobody's session may
# be closed while its process lives.

use strict;
use warnings;

use PostgreSQL::Test::Utils qw(slurp_dir slurp_file);
use Test::More;
use Time::HiRes qw(time);
use ZkLockTest;
use ZooKeeper;

my $session_timeout = 20;
my $zk = ZooKeeper->new(tick_time => 1000)->start;
my %setting = (
	'zklock.session_timeout' => "${session_timeout}s",
	'restart_after_crash' => 'on');
my $crashing = cluster('berlin', $zk, %setting,
	'shared_preload_libraries' => 'zklock');
my $other = cluster('paris', $zk, %setting);

sub notes
{
	return
	  grep { /^zklock\./ } slurp_dir($crashing->data_dir . '/pg_stat_tmp');
}

# Pid of the worker; it has no database, so pg_stat_activity does not show it.
sub worker
{
	my ($cluster) = @_;
	my ($postmaster) =
	  split /\n/, slurp_file($cluster->data_dir . '/postmaster.pid');
	my ($pid) = `ps -o pid=,args= --ppid $postmaster` =~
	  /^\s*(\d+) .*zklock crash release/m;
	return $pid;
}

# A holder on the crashing cluster and a waiter on the other.
sub contend
{
	my ($holder, $waiter) = (background($crashing), background($other));
	$holder->query_safe("SELECT zk_lock('crash')");
	$waiter->start_query("SELECT zk_lock('crash')");
	wait_for_queue($zk, lock_path('crash'), 2);
	return ($holder, $waiter);
}

# The waiter has the lock long before the session timeout.
sub granted_soon
{
	my ($waiter, $since, $what) = @_;
	$waiter->wait_result;
	is($waiter->sqlstate, '00000', "$what: the waiter gets the lock");
	cmp_ok(time - $since, '<', $session_timeout / 2,
		"$what: ahead of the session timeout");
	$waiter->query_safe("SELECT zk_unlock('crash')");
	$waiter->quit;
	assert_no_nodes($zk, lock_path('crash'), "$what: nothing left");
	return;
}

subtest 'kill -9 of a backend' => sub {
	my ($holder, $waiter) = contend();
	my ($note) = notes();
	ok($note, 'there is a note of the session');
	my $file = $crashing->data_dir . "/pg_stat_tmp/$note";
	is((stat $file)[2] & 0777, 0600, 'that only the server can read');

	my $since = time;
	kill 'KILL', $holder->pid;
	granted_soon($waiter, $since, 'killed');
	$crashing->poll_query_until('postgres', 'SELECT true');
	is_deeply([ notes() ], [], 'the note is gone');
	like(
		slurp_file($crashing->logfile),
		qr/released the ZooKeeper locks of crashed process ${\$holder->pid}/,
		'the log tells');
};

subtest 'immediate shutdown and start' => sub {
	my ($holder, $waiter) = contend();
	my $since = time;
	$crashing->stop('immediate');
	$crashing->start;
	granted_soon($waiter, $since, 'restarted');
	is_deeply([ notes() ], [], 'the note is gone');
};

subtest 'a backend in good order takes its note with it' => sub {
	my $session = background($crashing);
	$session->query_safe("SELECT zk_lock('orderly')");
	is(scalar(notes()), 1, 'a note while it lives');
	$session->quit;
	poll_until { !notes() } 'the note to go', 10;
	is(scalar(notes()), 0, 'none after');
	assert_no_nodes($zk, lock_path('orderly'), 'and no node');
};

# The worker starts anew when it is terminated, with all backends alive.
subtest 'a session of a living process is not touched' => sub {
	my $session = background($crashing);
	$session->query_safe("SELECT zk_lock('alive')");
	my $worker_pid = worker($crashing);
	kill 'TERM', $worker_pid;
	poll_until
	{
		my $pid = worker($crashing);
		defined $pid && $pid != $worker_pid;
	}
	'another worker', 30;
	is(scalar(notes()), 1, 'the note stays');
	is($session->query_safe("SELECT zk_is_held('alive')"),
		't', 'and the lock is held');
	$session->quit;
};

# Somebody else's note: as in a copy of the data directory on this machine.
subtest 'a note of another data directory is not believed' => sub {
	my $session = background($crashing);
	$session->query_safe("SELECT zk_lock('copied')");
	my ($note) = notes();
	my $content = slurp_file($crashing->data_dir . "/pg_stat_tmp/$note");
	# Of a process that is dead, for all that can be seen.
	my ($pid, $nobody) = map { pack 'i', $_ } $session->pid, 2**22;
	is($content =~ s/\Q$pid\E/$nobody/g, 1, 'the pid in the note is changed');

	my $copy = PostgreSQL::Test::Cluster->new('copy');
	$copy->init;
	$copy->append_conf('postgresql.conf',
		"shared_preload_libraries = 'zklock'");
	my $file = $copy->data_dir . "/pg_stat_tmp/$note";
	open my $fh, '>:raw', $file or die "$file: $!";
	print $fh $content;
	close $fh;
	# It looks at the notes first of all, so it has by the time it is stopped.
	$copy->start;
	poll_until { worker($copy) } 'the worker', 30;
	$copy->stop;
	is($session->query_safe("SELECT zk_is_held('copied')"),
		't', 'the lock is held');
	ok(-e $file, 'the note is left alone');
	$session->quit;
};

done_testing();
