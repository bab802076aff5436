
# A holder that ends in any orderly way leaves no node behind; one that is
# killed keeps the lock for the session timeout, and then it passes on. Without
# the first a lock would hang for seconds after every disconnect, without the
# second for ever.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time);
use ZkLockTest;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my %node = map {
	$_ => cluster($_, $zk,
		restart_after_crash => 'on',
		'zklock.session_timeout' => '2s')
} qw(berlin paris);
my $path = lock_path('held');
my $session_timeout = 2;

# Holder in paris, waiter in berlin: the holder ends, its node goes, and the
# waiter is granted, all within a second.
sub holder_ends
{
	my ($what, $end, %option) = @_;
	subtest $what => sub {
		my $holder = background($node{paris}, %option);
		my $waiter = background($node{berlin});
		$holder->query_safe("SELECT zk_lock('held'), zk_lock('second')");
		$waiter->start_query("SELECT zk_lock('held')");
		wait_for_queue($zk, $path, 2);

		my $start = time;
		my $began = $end->($holder);
		$waiter->wait_result;
		cmp_ok(time - ($began || $start), '<', 1, 'the lock passes on at once');
		is($waiter->sqlstate, '00000', 'to the waiter');
		my @nodes = map { $_->[0] } $zk->ephemerals("$path/");
		is(scalar @nodes, 1, 'no node is left but the new holder\'s');
		is($nodes[0],
			$waiter->query_safe('SELECT node FROM zk_locks'),
			'and it is that one');
		$waiter->query_safe("SELECT zk_unlock('held')");
		$waiter->quit;
		$holder->quit;
		assert_no_nodes($zk, lock_path($_), "$_: nothing left")
		  foreach qw(held second third);
	};
	return;
}

holder_ends('quit', sub { $_[0]->quit; return; });

holder_ends(
	'pg_terminate_backend',
	sub {
		$node{paris}->safe_psql('postgres',
			'SELECT pg_terminate_backend(' . $_[0]->pid . ')');
		return;
	});

# In a transaction of its own: both kinds of hold end with it.
holder_ends(
	'pg_terminate_backend in a transaction',
	sub {
		$_[0]->query_safe("BEGIN; SELECT zk_xact_lock('third')");
		my $start = time;
		$node{paris}->safe_psql('postgres',
			'SELECT pg_terminate_backend(' . $_[0]->pid . ')');
		return $start;
	});

holder_ends(
	'idle_session_timeout',
	sub {
		$_[0]->query_safe("SET idle_session_timeout = '200ms'");
		$node{paris}->poll_query_until('postgres',
			'SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = '
			  . $_[0]->pid);
		return;
	});

holder_ends(
	'DROP DATABASE WITH (FORCE)',
	sub {
		$node{paris}->safe_psql('postgres', 'DROP DATABASE doomed WITH (FORCE)');
		return;
	},
	database => do {
		$node{paris}->safe_psql('postgres', 'CREATE DATABASE doomed');
		$node{paris}->safe_psql('doomed', 'CREATE EXTENSION zklock');
		'doomed';
	});

holder_ends('fast shutdown',
	sub { $node{paris}->stop('fast'); return; });
$node{paris}->start;

# PostgreSQL ends all backends of the cluster then, and none of them gets to
# close its session.
foreach my $case (
	[ 'a backend is killed', sub { kill 'KILL', $_[0]->pid; } ],
	[ 'immediate shutdown', sub { $node{paris}->stop('immediate'); } ])
{
	my ($what, $end) = @$case;
	subtest $what => sub {
		my $holder = background($node{paris});
		my $bystander = background($node{paris});
		my $waiter = background($node{berlin});
		my $offset = -s $node{paris}->logfile;

		my $granted = $holder->query_safe(
			"SELECT zk_lock('held') > 0, session_timeout_ms FROM zk_session");
		$granted = $holder->query_safe('SELECT session_timeout_ms FROM zk_session');
		is($granted, 1000 * $session_timeout, 'session timeout as asked for');
		my ($node) = map { $_->[0] } $zk->ephemerals("$path/");
		$bystander->query_safe("SELECT zk_lock('bystander')");
		$waiter->start_query("SELECT zk_lock('held')");
		wait_for_queue($zk, $path, 2);

		my $start = time;
		$end->($holder);
		my ($still) = grep { $_->[0] eq $node } $zk->ephemerals("$path/");
		ok($still, 'the node is still there');
		$waiter->wait_result;
		my $took = time - $start;
		is($waiter->sqlstate, '00000', 'the waiter gets the lock');
		cmp_ok($took, '>', $session_timeout / 3, 'not at once');
		# Two ticks for the rounding.
		cmp_ok($took, '<', $session_timeout + 1 + 1,
			'after the session timeout');
		my @nodes = map { $_->[0] } $zk->ephemerals("$path/");
		isnt("@nodes", $node, 'the old node is gone');
		is(scalar @nodes, 1, 'one is left');

		$node{paris}->start if $what =~ /shutdown/;
		$node{paris}->poll_query_until('postgres', 'SELECT true');
		is( $node{paris}->safe_psql('postgres',
				"SELECT zk_try_lock('held'), zk_try_lock('bystander')"),
			'f|t',
			'the cluster is back, and zklock works');
		is($waiter->query_safe("SELECT zk_unlock('held')"), 't', 'released');
		assert_no_nodes($zk, $path, 'nothing left');
		assert_no_nodes($zk, lock_path('bystander'), 'nor of the bystander');
		$waiter->quit;
	};
}

done_testing();
