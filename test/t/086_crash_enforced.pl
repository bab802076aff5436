
# Crash release where the ensemble carries out nothing for a connection without
# credentials (enforce.auth), and where it knows no digest authentication at all.
# The take-over of a dead backend's session must present some, and the log must
# tell the truth about what became of it.

use strict;
use warnings;

use PostgreSQL::Test::Utils qw(slurp_dir slurp_file);
use Test::More;
use Time::HiRes qw(time);
use ZkLockTest;
use ZooKeeper;

my $session_timeout = 20;
my %enforced = (
	'enforce.auth.enabled' => 'true',
	'enforce.auth.schemes' => 'digest');

# A cluster whose crashed backend has held the lock, and how long it took until
# another cluster had it.
sub crash
{
	my ($zk, $name, %setting) = @_;
	my %common = (
		'zklock.session_timeout' => "${session_timeout}s",
		'restart_after_crash' => 'on',
		%setting);
	my $crashing = cluster("berlin_$name", $zk, %common,
		'shared_preload_libraries' => 'zklock');
	my $other = cluster("paris_$name", $zk, %common);
	my ($holder, $waiter) = (background($crashing), background($other));
	$holder->query_safe("SELECT zk_lock('crash/$name')");
	my $since = time;
	kill 'KILL', $holder->pid;
	$crashing->poll_query_until('postgres', 'SELECT true');
	$waiter->query_safe("SELECT zk_lock('crash/$name')");
	my $seconds = time - $since;
	$waiter->query_safe('SELECT zk_unlock_all()');
	$waiter->quit;
	poll_until
	{
		!grep { /^zklock\./ } slurp_dir($crashing->data_dir . '/pg_stat_tmp');
	}
	'the note to go', 30;
	return ($seconds, slurp_file($crashing->logfile), $holder->pid);
}

foreach my $auth ('', 'digest:crash:secret')
{
	subtest 'authentication is enforced, '
	  . ($auth ? 'zklock.auth' : 'an identity of its own') => sub {
		my $zk = ZooKeeper->new(tick_time => 1000, config => \%enforced)->start;
		my ($seconds, $log, $pid) =
		  crash($zk, $auth ? 'auth' : 'own', 'zklock.auth' => $auth);
		cmp_ok($seconds, '<', $session_timeout / 2, 'ahead of the session timeout');
		like($log, qr/LOG:  released the ZooKeeper locks of crashed process $pid\n/,
			'the log tells');
		$zk->stop;
	};
}

# Without digest authentication an identity is refused; the take-over goes on
# without.
subtest 'no digest authentication' => sub {
	my $zk = ZooKeeper->new(
		tick_time => 1000,
		java_options => ['-Dzookeeper.DigestAuthenticationProvider.enabled=false'])->start;
	my ($seconds, $log, $pid) = crash($zk, 'none');
	cmp_ok($seconds, '<', $session_timeout / 2, 'ahead of the session timeout');
	like($log, qr/LOG:  released the ZooKeeper locks of crashed process $pid\n/, 'the log tells');
	$zk->stop;
};

# The worker has the credentials of postgresql.conf, which the ensemble refuses; the
# holder had its own. It must not say that it has released anything, nor try again
# and again, which would keep the session alive.
subtest 'the ensemble refuses the credentials of the worker' => sub {
	my $zk = ZooKeeper->new(tick_time => 1000)->start;
	my $cluster = cluster('berlin_refused', $zk,
		'zklock.session_timeout' => '4s',
		'restart_after_crash' => 'on',
		'shared_preload_libraries' => 'zklock',
		'zklock.auth' => 'unknown:secret');
	$cluster->safe_psql('postgres', "ALTER ROLE CURRENT_USER SET zklock.auth = ''");
	my $holder = background($cluster);
	$holder->query_safe("SELECT zk_lock('refused')");
	kill 'KILL', $holder->pid;
	poll_until { !$zk->ephemerals(lock_path('refused')) } 'the lock to go with its session', 30;
	my $log = slurp_file($cluster->logfile);
	like($log, qr/could not release the ZooKeeper locks of crashed process ${\$holder->pid}\n/,
		'the log tells');
	unlike($log, qr/released the ZooKeeper locks/, 'and nothing else');
	is(scalar(grep { /^zklock\./ } slurp_dir($cluster->data_dir . '/pg_stat_tmp')),
		0, 'the note is gone');
	$zk->stop;
};

done_testing();
