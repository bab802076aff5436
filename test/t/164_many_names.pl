
# Locks with names that are used once leave nothing behind: who makes a lock's znode
# takes it away again, faster than the server removes empty containers, and without
# a request more for a name that is used again.

use strict;
use warnings;

use Test::More;
use ZkLockTest;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk);
my $stranger = $zk->client;
my $kept = 128;    # containers that a session keeps for the next time

sub znodes { return $zk->counter('znode_count'); }

subtest 'many names, one session' => sub {
	my $session = background($node);
	$session->query_safe("SELECT zk_lock('first'), zk_unlock('first')");
	my $before = znodes();
	$session->start_query("DO \$\$ BEGIN FOR i IN 1 .. 1000 LOOP
		PERFORM zk_lock('order/' || i || '/item'); PERFORM zk_unlock('order/' || i || '/item');
		END LOOP; END \$\$");
	my $most = 0;
	until ($session->is_done)
	{
		my $now = znodes() - $before;
		$most = $now if $now > $most;
	}
	$session->wait_result;
	is($session->sqlstate, '00000', 'locked and unlocked');
	cmp_ok($most, '<', 2 * $kept + 20, "$most znodes at most meanwhile");
	poll_until { znodes() - $before <= 2 * $kept } 'the rest to go';

	# All go with the session, held or not; but not what others are in.
	$stranger->create(lock_path('order/others'), '');
	$session->query_safe("SELECT zk_lock('order/held')");
	$session->quit;
	poll_until { znodes() <= $before + 1 } 'the kept ones to go';
	is($stranger->exists(lock_path('order/held')), undef, 'and that of a held lock');
	ok($stranger->exists(lock_path('order/others')), 'what others are in stays');
	$stranger->delete_recursive(lock_path('order'));
};

subtest 'many sessions, one name each' => sub {
	my $session = background($node);
	my $before = znodes();
	foreach my $number (1 .. 20)
	{
		$session->query_safe("SELECT zk_lock('job/$number/step'); SELECT zk_disconnect()");
		$node->safe_psql('postgres', "SELECT zk_lock('job/$number/step')");
	}
	poll_until { znodes() <= $before } 'nothing of them to be left';
	pass('nothing is left');
	$session->quit;
};

# The end of a session is one request, whatever it holds: a close that goes out while
# others are unanswered may be lost.
subtest 'the end of a session with many locks' => sub {
	foreach my $how ('pg_terminate_backend', 'kill -9')
	{
		my $old = background($node);
		$old->query_safe("SELECT count(zk_lock('many/' || i)) FROM generate_series(1, 1000) i");
		my @next = map { background($node) } 1 .. 2;
		$next[0]->start_query("SELECT zk_lock('many/1')");
		$next[1]->start_query("SELECT zk_lock('many/1000')");
		wait_for_queue($zk, lock_path("many/$_"), 2) foreach 1, 1000;
		if ($how eq 'kill -9')
		{
			$old->kill;
		}
		else
		{
			$node->safe_psql('postgres', 'SELECT pg_terminate_backend(' . $old->pid . ')');
		}
		# The session timeout is 15 s, and counts from later than now.
		$_->wait_result(10) foreach @next;
		is($_->sqlstate, '00000', "$how: released at once") foreach @next;
		$_->quit foreach @next;
	}
	# Of what they have let go of something may still be on its way out.
	eval { $stranger->delete_recursive(lock_path('many')) };
};

# What the program of a session does for each of its containers must not keep it from
# anything else.
subtest 'many locks with deep names' => sub {
	my ($session, $next) = map { background($node) } 1 .. 2;
	$session->query_safe("SELECT zk_lock('warm')");
	$session->query_safe("SELECT count(zk_lock('deep/' || i || '/y/y/y/y/y/y/y/y/y/y/y/y'))
		FROM generate_series(1, 999) i");
	$next->start_query("SELECT zk_lock('warm')");
	wait_for_queue($zk, lock_path('warm'), 2);
	my ($program) = session_programs($session->pid);
	my $ticks = sub {
		open my $stat, '<', "/proc/$program/stat" or return 0;
		return (split ' ', <$stat> =~ s/.*\) //r)[11];
	};
	my $before = $ticks->();
	$session->query_safe('SELECT zk_unlock_all()');
	$next->wait_result(10);
	is($next->sqlstate, '00000', 'all are let go of');
	# In hundredths of a second, 1,000 deletes and as many removals included.
	cmp_ok($ticks->() - $before, '<', 100, 'with little work');
	$_->quit foreach $session, $next;
	eval { $stranger->delete_recursive(lock_path('deep')) };
};

# Each statement makes its parents, where the first attempt fails one by one.
subtest 'hundreds of locks held, each below others' => sub {
	my $session = background($node);
	foreach my $levels (2, 3, 8)
	{
		my $name = join '/', 'tenant%d', ('x') x ($levels - 1);
		foreach my $number (1 .. 300)
		{
			$session->query(sprintf "SELECT zk_lock('$name')", $number);
			last if $session->sqlstate ne '00000';
		}
		is($session->sqlstate, '00000', "$levels levels: all are taken") or diag $session->error;
		$session->query_safe('SELECT zk_unlock_all()');
	}
	$session->quit;
};

subtest 'a name that is used again' => sub {
	my $session = background($node);
	my $cycle = "SELECT zk_lock('hot'), zk_unlock('hot')";
	$session->query_safe($cycle);
	my $czxid = $stranger->exists(lock_path('hot'))->{czxid};
	my @received;
	foreach (1 .. 3)
	{
		my $before = $zk->packets_received;
		$session->query_safe($cycle) foreach 1 .. 20;
		assert_no_nodes($zk, lock_path('hot'));
		push @received, $zk->packets_received - $before;
	}
	cmp_ok((sort { $a <=> $b } @received)[0], '<', 3 * 20 + 15, 'create, list, delete');
	is($stranger->exists(lock_path('hot'))->{czxid}, $czxid, 'the znode stays');

	# Also with others in between, as long as they are few.
	$session->query_safe("DO \$\$ BEGIN FOR i IN 1 .. 100 LOOP
		PERFORM zk_lock('few-' || i % 50); PERFORM zk_unlock('few-' || i % 50);
		PERFORM zk_lock('hot'); PERFORM zk_unlock('hot'); END LOOP; END \$\$");
	is($stranger->exists(lock_path('hot'))->{czxid}, $czxid, 'it stays');

	# And names that come in turn.
	my $turn = "DO \$\$ BEGIN FOR i IN 1 .. 100 LOOP
		PERFORM zk_lock('turn-' || i); PERFORM zk_unlock('turn-' || i); END LOOP; END \$\$";
	$session->query_safe($turn);
	my $before = $zk->packets_received;
	$session->query_safe($turn);
	cmp_ok($zk->packets_received - $before, '<', 3 * 100 + 25, 'three requests for each');
	$session->quit;
};

# Whoever is in it, or comes into it, keeps it or makes it anew.
subtest 'a name that others use' => sub {
	my ($maker, $other) = map { background($node) } 1 .. 2;
	$maker->query_safe("SELECT zk_lock('shared')");
	$other->start_query("SELECT zk_lock('shared')");
	wait_for_queue($zk, lock_path('shared'), 2);
	$maker->query_safe("SELECT zk_unlock('shared')");
	$other->wait_result;
	$maker->query_safe("DO \$\$ BEGIN FOR i IN 1 .. 300 LOOP
		PERFORM zk_lock('else-' || i); PERFORM zk_unlock('else-' || i); END LOOP; END \$\$");
	is($other->query_safe("SELECT zk_is_held('shared')"), 't', 'held');
	$other->query_safe("SELECT zk_unlock('shared')");

	# Both for the same names, each removing what the other is about to use.
	my @loop = map { "DO \$\$ BEGIN FOR i IN 1 .. 800 LOOP
		PERFORM zk_lock('both-' || i * $_ % 397); PERFORM zk_unlock('both-' || i * $_ % 397);
		END LOOP; END \$\$" } 5, 7;
	$maker->start_query($loop[0]);
	$other->start_query($loop[1]);
	$_->wait_result foreach $maker, $other;
	is($_->sqlstate, '00000', 'no error') foreach $maker, $other;
	$_->quit foreach $maker, $other;
};

$node->stop;

subtest 'a quota' => sub {
	plan skip_all => 'ZooKeeper 3.6 only counts' if $zk->version < v3.7;
	my $strict = ZooKeeper->new(java_options => ['-Dzookeeper.enforceQuota=true'])->start;
	my $tenant = cluster('paris', $strict, 'zklock.root' => '/tenant');
	my $client = $strict->client;
	$client->create_path('/tenant');
	# What setquota -N makes (org.apache.zookeeper.StatsTrack).
	$client->create_path('/zookeeper/quota/tenant');
	$client->create('/zookeeper/quota/tenant/zookeeper_limits',
		'count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=20');
	$client->create('/zookeeper/quota/tenant/zookeeper_stats', 'count=1,bytes=0');
	my $session = background($tenant);
	foreach my $number (1 .. 20)
	{
		$session->query("SELECT zk_lock('name-$number')");
		last if $session->sqlstate ne '00000';
	}
	is($session->sqlstate, '53400', 'the lock is refused');
	like($session->error, qr/a quota of ZooKeeper is exceeded/, 'with the reason');
	is($session->query_safe("SELECT count(*) BETWEEN 5 AND 15 FROM zk_locks"), 't', 'others are held');
	$session->query_safe('SELECT zk_unlock_all()');
	$session->quit;
	$tenant->stop;
};

done_testing();
