
# What is done to a queue from outside of it, and what stays in it when its maker
# has gone: zk_evict(), zk_hold(), zk_release_hold().

use strict;
use warnings;

use Proxy;
use Test::More;
use ZkLockTest;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my $proxy = Proxy->new($zk->connect_string);
my %node = (
	berlin => cluster('berlin', $zk, servers => $proxy->address),
	paris => cluster('paris', $zk));
my $foreign = $zk->client(timeout => 60);

# A session that has its connection to ZooKeeper.
sub connected
{
	my ($cluster) = @_;
	my $session = background($node{$cluster});
	$session->query_safe("SELECT zk_try_lock('connect/$cluster'), zk_unlock_all()");
	return $session;
}

# The token of the contender at that position.
sub token_at
{
	my ($session, $lock, $position) = @_;
	return $session->query_safe(
		"SELECT token FROM zk_lock_queue('$lock') WHERE position = $position");
}

sub break_connections
{
	$proxy->reset_connections;
	$proxy->heal;
	return;
}

foreach my $guard (qw(quorum lease))
{
	subtest "a holder is evicted in its transaction, commit_guard = $guard" => sub {
		my $holder = connected('berlin');
		my $waiter = connected('paris');
		my $admin = connected('paris');
		$holder->query_safe("CREATE TABLE evicted_$guard (i int);
			SET zklock.commit_guard = $guard");
		$holder->query_safe("BEGIN; SELECT zk_xact_lock('evict');
			INSERT INTO evicted_$guard VALUES (1)");
		my $token = token_at($admin, 'evict', 1);
		$waiter->start_query("SELECT zk_lock('evict')");
		wait_for_queue($zk, lock_path('evict'), 2);

		my $offset = -s $node{paris}->logfile;
		is($admin->query_safe("SELECT zk_evict('evict', $token)"), 't', 'evicted');
		like($waiter->wait_result, qr/^\d+$/, 'the next in line has the lock');
		my $line = sprintf 'process %d of user ".*" evicts process %d of user ".*" in database '
		  . '"postgres" of cluster "berlin" on host ".*" from ZooKeeper lock "evict"',
		  $admin->pid, $holder->pid;
		ok($node{paris}->log_contains(qr/LOG:  $line/, $offset), 'logged: who, and whom');
		ok($node{paris}->log_contains(qr/fencing token $token\./, $offset), 'with the token');
		is($admin->query_safe("SELECT zk_evict('evict', $token)"), 'f', 'gone is gone');

		# With lease the proof that it made when it took the lock has to grow
		# old: a third of 4 s.
		$holder->query_safe('SELECT pg_sleep(1.4)') if $guard eq 'lease';
		$holder->query('COMMIT');
		is($holder->sqlstate, '40001', 'the commit of the evicted holder is refused');
		like($holder->error, qr/lock "evict" was lost\n.*Another client of ZooKeeper deleted/s,
			'with the reason');
		is($holder->query_safe("SELECT count(*) FROM evicted_$guard"), 0, 'nothing of it remains');

		$holder->query_safe("SELECT zk_lock('evict-session')");
		$admin->query_safe("SELECT zk_evict('evict-session', token)
			FROM zk_lock_queue('evict-session')");
		is($holder->query_safe("SELECT zk_is_held('evict-session')"), 'f',
			'zk_is_held knows at once');
		$_->quit foreach $holder, $waiter, $admin;
		assert_no_nodes($zk, lock_path('evict'), 'nothing left');
	};
}

subtest 'waiters are evicted' => sub {
	my $holder = connected('berlin');
	my $admin = connected('paris');
	my ($first, $second) = map { connected($_) } qw(paris berlin);
	$holder->query_safe("SELECT zk_lock('line')");
	foreach ([ $first, 2 ], [ $second, 3 ])
	{
		$_->[0]->start_query("SELECT zk_lock('line')");
		wait_for_queue($zk, lock_path('line'), $_->[1]);
	}
	my $token = token_at($admin, 'line', 2);
	is($admin->query_safe("SELECT zk_evict('line', $token)"), 't', 'the first waiter is evicted');
	is(scalar(queue_nodes($zk, lock_path('line'))), 2, 'the others stay');
	$holder->query_safe("SELECT zk_unlock('line')");
	$second->wait_result;
	is($second->sqlstate, '00000', 'the one behind it gets the lock');
	$first->wait_result;
	is($first->sqlstate, '57000', 'the evicted one does not');
	$_->quit foreach $holder, $first, $second, $admin;
	assert_no_nodes($zk, lock_path('line'), 'nothing left');
};

subtest 'other clients, and children that are no contenders' => sub {
	my $admin = connected('paris');
	my $path = lock_path('foreign');
	$foreign->create_path($path);
	my $node = $foreign->create("$path/_c_6b29fc40-ca47-4067-b31d-00dd010662da-lock-", 'who',
		ephemeral => 1, sequential => 1);
	$foreign->create("$path/note", '{"client":"zklock","token":4711}');
	my $token = token_at($admin, 'foreign', 1);
	is($admin->query_safe("SELECT zk_evict('foreign', $token)"), 't', "another client's");
	is($admin->query_safe("SELECT zk_evict('foreign', 4711)"), 'f', 'what is no contender is not');
	ok($foreign->exists("$path/note"), 'and stays');
	$admin->quit;
};

subtest 'the connection breaks during an eviction' => sub {
	my $holder = connected('paris');
	my $admin = connected('berlin');
	foreach my $direction (qw(requests replies))
	{
		$holder->query_safe("SELECT zk_lock('cut')");
		my $token = token_at($admin, 'cut', 1);
		$proxy->cut($direction);
		$admin->start_query("SELECT zk_evict('cut', $token)");
		wait_for_wait($node{berlin}, $admin->pid);
		break_connections();
		is($admin->wait_result, 't', "$direction: known after reconnecting");
		is($holder->query_safe("SELECT zk_is_held('cut')"), 'f', 'and it is true');
		$holder->query_safe('SELECT zk_unlock_all()');
	}
	$_->quit foreach $holder, $admin;
	assert_no_nodes($zk, lock_path('cut'), 'nothing left');
};

foreach my $name (sort keys %node)
{
	ok(!$node{$name}->log_contains(qr/PANIC|TRAP|terminated by signal/),
		"$name did not crash");
}

done_testing();
