
# A holder that ends in any orderly way leaves no node behind. Without that a lock
# would hang for seconds after every disconnect. For other ways see
# 215_crash_release.

use Time::HiRes qw(time);
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my %node = map {
	$_ => cluster($_, $zk,
		'zklock.session_timeout' => '20s')
} qw(berlin paris);
my $path = lock_path('held');

# Holder in paris, waiter in berlin: the holder ends, its node goes, and the
# waiter is granted, all within a second.
sub holder_ends ($what, $end, %option)
{
	subtest $what => sub {
		my $holder = background($node{paris}, %option);
		my $waiter = background($node{berlin});
		$holder->query_safe("SELECT zk_lock('held'), zk_lock('second')");
		start_in_queue($waiter, "SELECT zk_lock('held')", $zk, $path, 2);

		my $start = time;
		my $began = $end->($holder);
		$waiter->wait_result;
		cmp_ok(time - ($began || $start), '<', 10,
			'the lock passes on long before the session timeout');
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
		$_[0]->terminate;
		return;
	});

# In a transaction of its own: both kinds of hold end with it.
holder_ends(
	'pg_terminate_backend in a transaction',
	sub {
		$_[0]->query_safe("BEGIN; SELECT zk_xact_lock('third')");
		my $start = time;
		$_[0]->terminate;
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

done_testing();
