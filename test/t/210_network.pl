
# The network fails at the worst moment: while a node is being created or
# deleted, or before there is any session. Each request then is carried out, or
# not, and nobody knows. There must be exactly one node in the end, or none: an
# orphan would hold the lock for as long as the backend lives.

use strict;
use warnings;

use File::Temp ();
use Proxy;
use Test::More;
use Time::HiRes qw(time);
use ZkLockTest;
use ZooKeeper;

# Empty znodes of locks stay: what is cut off here is the create of the node.
my $zk = ZooKeeper->new(
	java_options => ['-Dznode.container.checkIntervalMs=3600000'])->start;

# A command more: while this file exists, the proxy accepts connections that
# nobody will ever answer, and says so in the file.
my $swallow = File::Temp->newdir . '/swallow';
{
	no warnings qw(redefine once);
	my ($accept, @swallowed) = (\&Proxy::_accept);
	*Proxy::_accept = sub {
		my ($state) = @_;
		return $accept->($state) unless -e $swallow;
		push @swallowed, $state->{listener}->accept;
		open my $file, '>>', $swallow or die $!;
		print $file "one\n";
		close $file;
	};
}
(my $swallow_directory = $swallow) =~ s{/[^/]*$}{};
mkdir $swallow_directory;

my $proxy = Proxy->new($zk->connect_string);
my $berlin = cluster('berlin', $zk,
	servers => $proxy->address,
	'zklock.session_timeout' => '6s');
my $paris = cluster('paris', $zk);
my $rival = background($paris);
my $pid_waits = sub { wait_for_wait($berlin, $_[0]->pid) };

sub nodes
{
	my ($name) = @_;
	return [ map { $_->[0] } $zk->ephemerals(lock_path($name) . '/') ];
}

# A session that is connected.
sub session
{
	my $session = background($berlin);
	$session->query_safe("SELECT zk_lock('connect'), zk_unlock('connect')");
	return $session;
}

# What is cut, and what ends it: a link that comes back, or a reset connection.
foreach my $case (
	[ 'requests cut, link back', 'requests', 0 ],
	[ 'replies cut, link back', 'replies', 0 ],
	[ 'requests cut, connection reset', 'requests', 1 ],
	[ 'replies cut, connection reset', 'replies', 1 ],
	[ 'both cut, connection reset', 'both', 1 ])
{
	my ($what, $direction, $reset) = @$case;
	my $heal = sub {
		$proxy->reset_connections if $reset;
		$proxy->heal;
	};
	# Until the server has what gets through.
	my $wait_for_create = sub {
		my ($count) = @_;
		return if $direction ne 'replies';
		poll_until { @{ nodes('cut') } == $count } 'the create to arrive', 10;
	};

	subtest "create: $what" => sub {
		my $session = session();
		$session->query_safe("SELECT zk_lock('cut'), zk_unlock('cut')");
		$proxy->cut($direction);
		$session->start_query("SELECT zk_lock('cut')");
		$pid_waits->($session);
		$wait_for_create->(1);
		$heal->();
		my $token = $session->wait_result;
		is($session->sqlstate, '00000', 'granted');
		my $nodes = nodes('cut');
		is(scalar @$nodes, 1, 'exactly one node');
		is($session->query_safe('SELECT node, token FROM zk_locks'),
			"$nodes->[0]|$token", 'the one it knows');
		my $client = $zk->client;
		is($client->exists($nodes->[0])->{czxid}, $token, 'with its token');
		$client->close;
		is($rival->query_safe("SELECT zk_try_lock('cut')"), 'f', 'it holds');
		$session->query_safe("SELECT zk_unlock('cut')");
		assert_no_nodes($zk, lock_path('cut'), 'nothing left');
		$session->quit;
	};

	subtest "create and wait: $what" => sub {
		my $session = session();
		$rival->query_safe("SELECT zk_lock('cut')");
		$proxy->cut($direction);
		$session->start_query("SELECT zk_lock('cut')");
		$pid_waits->($session);
		$wait_for_create->(2);
		$heal->();
		wait_for_queue($zk, lock_path('cut'), 2);
		# The server makes a node known to who lists a queue before it is its session's.
		eval { poll_until { @{ nodes('cut') } == 2 } 'one node of each', 10 };
		is(scalar @{ nodes('cut') }, 2, 'one node of each');
		ok(!$session->is_done, 'it waits');
		$rival->query_safe("SELECT zk_unlock('cut')");
		$session->wait_result;
		is($session->sqlstate, '00000', 'granted');
		is(scalar @{ nodes('cut') }, 1, 'exactly one node');
		$session->query_safe("SELECT zk_unlock('cut')");
		assert_no_nodes($zk, lock_path('cut'), 'nothing left');
		$session->quit;
	};

	subtest "create is cancelled: $what" => sub {
		my $session = session();
		$proxy->cut($direction);
		$session->start_query("SELECT zk_lock('cut')");
		$pid_waits->($session);
		$wait_for_create->(1);
		my $start = time;
		$berlin->safe_psql('postgres',
			'SELECT pg_cancel_backend(' . $session->pid . ')');
		$session->wait_result;
		is($session->sqlstate, '57014', 'cancelled');
		cmp_ok(time - $start, '<', 2, 'at once');
		$heal->();
		assert_no_nodes($zk, lock_path('cut'), 'no orphan');
		is($session->query_safe("SELECT zk_try_lock('cut')"), 't',
			'the session goes on');
		is(scalar @{ nodes('cut') }, 1, 'with one node');
		$session->query_safe("SELECT zk_unlock('cut')");
		assert_no_nodes($zk, lock_path('cut'), 'nothing left');
		$session->quit;
	};

	subtest "unlock: $what" => sub {
		my $session = session();
		$session->query_safe("SELECT zk_lock('cut')");
		$proxy->cut($direction);
		my $start = time;
		is($session->query_safe("SELECT zk_unlock('cut')"), 't', 'released');
		cmp_ok(time - $start, '<', 1, 'without waiting');
		is($session->query_safe('SELECT count(*) FROM zk_locks'),
			0, 'nothing is held here');
		$heal->();
		assert_no_nodes($zk, lock_path('cut'), 'the node goes');
		is($session->query_safe("SELECT zk_try_lock('cut')"), 't',
			'the session goes on');
		$session->query_safe("SELECT zk_unlock('cut')");
		assert_no_nodes($zk, lock_path('cut'), 'nothing left');
		$session->quit;
	};
}

# What is left of the cancelled wait is ahead of the try in every queue on the
# way, but nobody holds the lock.
subtest 'a try after a cancelled wait' => sub {
	my $session = session();
	$session->query_safe("SELECT zk_lock('again'), zk_unlock('again')");
	$proxy->cut('replies');
	$session->start_query("SELECT zk_lock('again')");
	$pid_waits->($session);
	poll_until { @{ nodes('again') } == 1 } 'the create to arrive', 10;
	$berlin->safe_psql('postgres',
		'SELECT pg_cancel_backend(' . $session->pid . ')');
	$session->wait_result;
	is($session->sqlstate, '57014', 'cancelled');
	my $before = $zk->packets_received;
	$session->start_query("SELECT zk_try_lock('again')");
	poll_until { $zk->packets_received > $before } 'the try to ask', 10;
	$proxy->heal;
	is($session->wait_result, 't', 'the try is not in its own way');
	$session->query('SELECT zk_unlock_all()');
	assert_no_nodes($zk, lock_path('again'), 'nothing left');
	$session->quit;
};

subtest 'the connection is reset while holding and waiting' => sub {
	my ($holder, $waiter) = map { session() } 1 .. 2;
	$holder->query_safe("SELECT zk_lock('reset')");
	$waiter->start_query("SELECT zk_lock('reset')");
	wait_for_queue($zk, lock_path('reset'), 2);
	my $before = nodes('reset');
	foreach (1 .. 5)
	{
		$proxy->reset_connections;
		poll_until { $proxy->connections >= 2 } 'both to be back', 10;
	}
	is_deeply(nodes('reset'), $before, 'both keep their nodes');
	ok(!$waiter->is_done, 'the waiter waits');
	$holder->query_safe("SELECT zk_unlock('reset')");
	$waiter->wait_result;
	is($waiter->sqlstate, '00000', 'and is granted');
	$waiter->query_safe("SELECT zk_unlock('reset')");
	assert_no_nodes($zk, lock_path('reset'), 'nothing left');
	$_->quit foreach $holder, $waiter;
};

# A connection may be accepted and never served: by a ZooKeeper server that is
# just starting, by a load balancer without a server behind it. The session
# lives, another attempt would find it; a lock must not be lost for that.
subtest 'a reconnect that nobody answers' => sub {
	my ($holder, $waiter) = map { session() } 1 .. 2;
	my $id = $holder->query_safe('SELECT session_id FROM zk_session');
	$holder->query_safe("SELECT zk_lock('swallowed')");
	$waiter->start_query("SELECT zk_lock('swallowed')");
	wait_for_queue($zk, lock_path('swallowed'), 2);
	my $before = nodes('swallowed');

	open my $file, '>', $swallow or die $!;
	close $file;
	$proxy->reset_connections;
	poll_until { -s $swallow >= 2 * length "one\n" } 'both to reconnect', 10;
	unlink $swallow;
	poll_until
	{
		$holder->query('SELECT state FROM zk_session') =~ /connected|lost|none/;
	}
	'a decision', 20;
	is($holder->query('SELECT state, session_id FROM zk_session'),
		"connected|$id", 'the session is kept');
	is_deeply(nodes('swallowed'), $before, 'and the nodes in the queue');
	$holder->query("SELECT zk_unlock('swallowed')");
	$waiter->wait_result;
	$_->quit foreach $holder, $waiter;
	assert_no_nodes($zk, lock_path('swallowed'), 'nothing left');
};

# Refused at once, or a silence in which nobody knows.
foreach my $case ([ 'refuses', sub { $proxy->refuse; } ],
	[ 'does not answer', sub { $proxy->cut; } ])
{
	my ($what, $break) = @$case;
	subtest "the server $what" => sub {
		my $session = background($berlin);
		$session->query_safe("SET zklock.connect_timeout = '1s'");
		$break->();
		foreach my $sql ("SELECT zk_lock('unreachable')",
			"SELECT zk_try_lock('unreachable')",
			"SELECT * FROM zk_lock_queue('unreachable')")
		{
			my $start = time;
			$session->query($sql);
			my $took = time - $start;
			is($session->sqlstate, '08001', $sql);
			cmp_ok($took, '<', 5, 'ends with connect_timeout');
			like($session->error,
				qr/ERROR:  could not connect to ZooKeeper within 1000 ms\nDETAIL:  .+\nHINT:  .+/,
				'with DETAIL and HINT');
		}
		$session->query_safe("SET zklock.connect_timeout = '9s'");
		my $start = time;
		$session->query("SELECT zk_lock('unreachable', '300ms')");
		is($session->sqlstate, '55P03', 'a shorter timeout ends it, too');
		cmp_ok(time - $start, '<', 5, 'in its time');
		$session->query("SELECT zk_try_lock('unreachable', '300ms')");
		is($session->sqlstate, '08001', 'a try does not take that for busy');
		$session->query_safe("SET zklock.connect_timeout = '1min'");
		$session->start_query("SELECT zk_lock('unreachable')");
		$pid_waits->($session);
		$berlin->safe_psql('postgres',
			'SELECT pg_cancel_backend(' . $session->pid . ')');
		$session->wait_result;
		is($session->sqlstate, '57014', 'it can be cancelled');

		$proxy->heal;
		$session->query_safe("SET zklock.connect_timeout = '10s'");
		like($session->query("SELECT zk_lock('unreachable')"),
			qr/^\d+$/, 'the same backend works when the server is back');
		is(scalar @{ nodes('unreachable') }, 1, 'with one node');
		$session->quit;
		assert_no_nodes($zk, lock_path('unreachable'), 'nothing left');
	};
}

# Who is not connected when the backend ends ends the session once that is possible, long
# before the ensemble would.
subtest 'quit while there is no connection' => sub {
	my $session = background($berlin);
	$session->query_safe("SET zklock.session_timeout = '40s'; SELECT zk_lock('away')");
	$proxy->refuse;
	$proxy->reset_connections;
	poll_until { $session->query_safe('SELECT state FROM zk_session') eq 'suspended' } 'it to notice', 20;
	my $pid = $session->pid;
	$session->quit;
	poll_until { !-d "/proc/$pid" } 'the backend to end', 20;
	$proxy->heal;
	assert_no_nodes($zk, lock_path('away'), 'nothing left');
};

# The end of a backend must not take long because ZooKeeper is away.
subtest 'quit while cut off' => sub {
	my $session = session();
	$session->query_safe("SELECT zk_lock('quit')");
	$proxy->cut;
	my $start = time;
	$berlin->safe_psql('postgres',
		'SELECT pg_terminate_backend(' . $session->pid . ', 5000)');
	cmp_ok(time - $start, '<', 4, 'the backend ends');
	is($berlin->safe_psql('postgres',
			'SELECT count(*) FROM pg_stat_activity WHERE pid = ' . $session->pid),
		0, 'really');
	$proxy->heal;
	$proxy->reset_connections;
	poll_until { !@{ nodes('quit') } } 'the node to go', 20;
	pass('its node goes, with the session timeout at the latest');
};

# The end of the connection is found by a request that cannot be sent, and not by
# reading: then the client library tells nobody. No server is to be had any more, so
# nothing else tells it either.
subtest 'reset just ahead of a request' => sub {
	my $session = session();
	$session->query_safe("SELECT zk_lock('reset')");
	my $pid = $session->pid;
	my $program;
	foreach my $file (glob '/proc/[0-9]*/cmdline')
	{
		open my $title, '<', $file or next;
		next
		  unless (readline($title) // '') =~ /^zklock: session of backend $pid\b/;
		($program) = $file =~ /(\d+)/;
	}
	kill 'STOP', $program;
	$proxy->refuse;
	$proxy->reset_connections;
	$session->start_query("SELECT zk_try_lock('other', '3s')");
	$pid_waits->($session);
	kill 'CONT', $program;
	$session->wait_result;
	my $is_lost = eval {
		poll_until { $session->query("SELECT zk_is_held('reset')") ne 't' }
		'the lock to be lost', 15;
	};
	ok($is_lost, 'the lock is lost with the session');
	$proxy->heal;
	$session->quit;
	assert_no_nodes($zk, lock_path('reset'), 'its node goes');
};

ok(!$berlin->log_contains(qr/PANIC|TRAP|terminated by signal/),
	'the cluster did not crash');

done_testing();
