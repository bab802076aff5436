
# An ensemble of three: a lock is the same through every server, and the death of
# any one of them costs nobody a lock or a place in the queue.

use strict;
use warnings;

use Test::More;
use ZkLockTest;
use ZooKeeper;

my $zk = ZooKeeper->new(servers => 3)->start;
my %node = map { $_ => cluster($_, $zk, 'zklock.session_timeout' => '15s') }
  qw(berlin paris);

sub nodes
{
	my ($name) = @_;
	return [ $zk->ephemerals(lock_path($name) . '/') ];
}

# A session that uses one member of the ensemble.
sub session_at
{
	my ($cluster, $member) = @_;
	my $session = background($node{$cluster});
	$session->query_safe(
		"SET zklock.servers = '" . $zk->connect_string($member) . "'");
	return $session;
}

subtest 'through different servers' => sub {
	my @sessions = map { session_at($_ == 2 ? 'paris' : 'berlin', $_) } $zk->members;
	my $lock = "SELECT zk_lock('through')";
	my @tokens = $sessions[0]->query_safe($lock);
	like($sessions[0]->query_safe('SELECT server FROM zk_session'),
		qr/:${\ $zk->port(1)}$/, 'connected to the one named');
	foreach my $member (2, 3)
	{
		is($sessions[ $member - 1 ]->query_safe("SELECT zk_try_lock('through')"),
			'f', "server $member knows the lock");
		$sessions[ $member - 1 ]->start_query($lock);
		poll_until { @{ nodes('through') } == $member } 'it to queue', 10;
	}
	foreach my $member (2, 3)
	{
		$sessions[ $member - 2 ]->query_safe("SELECT zk_unlock('through')");
		push @tokens, $sessions[ $member - 1 ]->wait_result;
	}
	is_deeply(\@tokens, [ sort { $a <=> $b } @tokens ], 'tokens rise');
	$_->quit foreach @sessions;
	poll_until { !@{ nodes('through') } } 'nodes to go', 10;
};

subtest 'the leader is killed' => sub {
	my $holder = background($node{berlin});
	my @waiters = map { background($node{ $_ % 2 ? 'paris' : 'berlin' }) } 1 .. 4;
	# Wherever their sessions are, some are connected to the leader.
	my @tokens = $holder->query_safe("SELECT zk_lock('killed')");
	foreach my $number (1 .. @waiters)
	{
		$waiters[ $number - 1 ]->start_query("SELECT zk_lock('killed')");
		poll_until { @{ nodes('killed') } == $number + 1 } 'it to queue', 10;
	}
	$holder->query_safe('CREATE TABLE survived (i int);
		BEGIN; INSERT INTO survived VALUES (1)');
	my $before = nodes('killed');

	my $leader = $zk->kill_leader;
	# The guard may have to wait for the new leader, and then is satisfied.
	$holder->query('COMMIT');
	is($holder->sqlstate, '00000', 'the holder commits');
	$zk->wait_ready;
	is_deeply(nodes('killed'), $before, 'holder and waiters keep their nodes');
	is($holder->query_safe("SELECT zk_is_held('killed')"), 't', 'it is held');
	is(scalar(grep { $_->is_done } @waiters), 0, 'nobody was granted meanwhile');

	foreach my $waiter (@waiters)
	{
		$holder->query_safe("SELECT zk_unlock('killed')");
		push @tokens, $waiter->wait_result;
		is($waiter->sqlstate, '00000', 'grants go on');
		$holder->quit;
		$holder = $waiter;
	}
	is_deeply(\@tokens, [ sort { $a <=> $b } @tokens ], 'in order');
	$holder->quit;
	assert_no_nodes($zk, lock_path('killed'), 'nothing left');
	$zk->start($leader);
};

# Two of three are gone: no quorum. What is held is held, but nobody can prove
# it, so a commit waits; and nobody is granted anything.
subtest 'without a quorum' => sub {
	my $holder = background($node{berlin});
	my $waiter = background($node{paris});
	$holder->query_safe("SET zklock.commit_guard = quorum;
		CREATE TABLE unproven (i int); SELECT zk_lock('quorum')");
	$waiter->start_query("SELECT zk_lock('quorum')");
	poll_until { @{ nodes('quorum') } == 2 } 'it to queue', 10;
	my $before = nodes('quorum');
	$zk->pause($zk->followers);
	$holder->start_query('INSERT INTO unproven VALUES (1)');
	wait_for_wait($node{berlin}, $holder->pid);
	ok(!$waiter->is_done, 'the waiter waits');
	$zk->resume;
	$zk->wait_ready;
	$holder->wait_result;
	is($holder->sqlstate, '00000', 'the commit goes on with the quorum');
	is_deeply(nodes('quorum'), $before, 'and all keep their nodes');
	$holder->query_safe("SELECT zk_unlock('quorum')");
	$waiter->wait_result;
	is($waiter->sqlstate, '00000', 'the waiter is granted');
	$_->quit foreach $holder, $waiter;
	poll_until { !@{ nodes('quorum') } } 'nodes to go', 10;
};

done_testing();
