
# The data of a hold names the node of its maker, its twin. It is a stranger's word,
# and may name any node: one of ours below another lock, or one that stays for ever.

use strict;
use warnings;

use Test::More;
use ZkLockTest;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk, 'zklock.session_timeout' => '20s');
my $marked = '_c_6ba7b810-9dad-8a12-80b4-00c04fd430c8-lock-';
my $stranger = $zk->client;

# Make what looks like an unfinished hold, whose maker's node is that one.
sub forge
{
	my ($path, $twin) = @_;
	$stranger->create_path($path);
	return $stranger->create("$path/$marked", qq({"client":"zklock","twin":"$twin"}),
		sequential => 1);
}

# It stands like any other node: a try fails, a wait waits.
sub assert_stands
{
	my ($name, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $session = background($node);
	is($session->query("SELECT zk_try_lock('$name')"), 'f', "$what: a try fails");
	$session->query("SELECT zk_lock('$name', '1 s')");
	is($session->sqlstate, '55P03', "$what: a wait waits");
	$session->quit;
	return;
}

# A session that holds a lock below this one's znode asks for this one; the hold
# says that the session's own queue node there is its twin.
subtest 'a twin below another lock' => sub {
	my ($holder, $other) = map { background($node) } 1 .. 2;
	my $path = lock_path('a');
	$holder->query_safe("SELECT zk_lock('a/x')");
	my ($held) = queue_nodes($zk, "$path/x");
	my $forged = forge($path, "x/$held");
	$other->start_query("SELECT zk_lock('a/x')");
	wait_for_queue($zk, "$path/x", 2);
	$holder->query("SELECT zk_lock('a', '1 s')");
	is($holder->sqlstate, '55P03', 'the hold is waited for');
	is($holder->query_safe("SELECT zk_is_held('a/x')"), 't', 'nothing is lost');
	ok(!$other->is_done, 'and nothing granted twice');
	$holder->query_safe("SELECT zk_unlock('a/x')");
	$other->wait_result;
	is($other->sqlstate, '00000', 'until its turn');
	$stranger->delete($forged);
	$_->quit foreach $holder, $other;
};

subtest 'a twin that is no queue node' => sub {
	my $waiter = background($node);
	my $path = lock_path('b');
	my $forged = forge($path, 'stays');
	$stranger->create("$path/stays", '');
	$waiter->start_query("SELECT zk_lock('b')");
	poll_until { $zk->watched_paths($path) } 'the waiter to watch', 10;
	$stranger->delete($forged);
	$waiter->wait_result;
	is($waiter->sqlstate, '00000', 'whoever is alone in the queue is granted the lock');
	$waiter->quit;
	$stranger->delete("$path/stays");
};

subtest 'a twin that is no name' => sub {
	foreach my $twin ('', '/', '..', 'x/../y', 'x' x 5000)
	{
		my $forged = forge(lock_path('c'), $twin);
		assert_stands('c', '"' . substr($twin, 0, 20) . '"');
		$stranger->delete($forged);
	}
};

subtest 'a void hold that cannot be deleted' => sub {
	my $forged = forge(lock_path('d'),
		'_c_6ba7b810-9dad-11d1-80b4-00c04fd430c8-lock-0000000000');
	$stranger->create("$forged/child", '');
	assert_stands('d', 'one with a child');
};

subtest 'void ones' => sub {
	my $session = background($node);
	my $path = lock_path('void');
	forge($path, sprintf '_c_6ba7b810-9dad-11d1-80b4-00c04fd430c8-lock-%010d', $_)
	  foreach 0 .. 99;
	is($session->query_safe("SELECT zk_try_lock('void')"), 't', 'a try clears all of them away');
	assert_nodes($zk, $path, 1, 'and has the lock');
	$session->quit;
};

# The maker of the hold, a client of another make, and the waiter have all read the
# queue before there is a hold; then its maker dies. Only the other client is woken.
subtest 'a hold that was made behind our back' => sub {
	my $waiter = background($node);
	my $path = lock_path('late');
	$waiter->query_safe("SET zklock.session_timeout = '2s'");
	$stranger->create_path($path);
	my $guid = '6ba7b810-9dad-11d1-80b4-00c04fd430c8';
	my ($maker, $other) = map {
		$stranger->create("$path/_c_$guid-lock-", '', ephemeral => 1, sequential => 1)
	} 1 .. 2;
	$waiter->start_query("SELECT zk_lock('late')");
	poll_until { grep { $_ eq $other } $zk->watched_paths("$path/") } 'the waiter to watch', 10;
	my ($twin) = $maker =~ m{/([^/]+)$};
	$stranger->create("$path/${marked}0000000000", qq({"client":"zklock","twin":"$twin"}));
	$stranger->delete($maker);
	wait_for_queue($zk, $path, 2);
	pass('the waiter looks again, and clears it away');
	$stranger->delete($other);
	$waiter->wait_result;
	is($waiter->sqlstate, '00000', 'granted');
	$waiter->quit;
};

subtest 'many of them' => sub {
	my $crowd = $zk->client;
	my $path = lock_path('many');
	my $session = background($node);
	$session->query_safe("SELECT zk_lock('warm'), zk_unlock('warm')");
	$crowd->create_path($path);
	$crowd->create_many(10_000, "$path/$marked", 'me', ephemeral => 1, sequential => 1);
	my $before = $zk->packets_received;
	is($session->query_safe("SELECT zk_try_lock('many')"), 'f', 'a try fails');
	cmp_ok($zk->packets_received - $before, '<', 100, 'having asked a few times');
	$session->quit;
	$crowd->close;
};

done_testing();
