
# A contender of style all knows its nodes by their GUID, which everybody can read.
# Nodes that a stranger makes with it are a stranger's: they make nobody a holder, and
# nobody lost.

use strict;
use warnings;

use Test::More;
use ZkLockTest;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk,
	'zklock.commit_guard' => 'quorum',
	'zklock.node_style' => 'all',
	'zklock.session_timeout' => '20s');
my $stranger = $zk->client;
my $rounds = 60;

# The order in which a server lists children is as good as random; so there are many.
foreach my $attempt (1 .. 3)
{
	my $lock = "forged-$attempt-";
	my $path = lock_path($lock);
	my ($holder, $waiter) = map { background($node) } 1 .. 2;
	$holder->query_safe("SELECT zk_lock('$lock'), zk_unlock('$lock')") foreach 0 .. $rounds;
	$holder->query_safe("SELECT zk_lock('$lock')");
	my $between = $stranger->create("$path/x-", '', ephemeral => 1, sequential => 1);
	$waiter->start_query("SELECT zk_lock('$lock')");
	my @names = wait_for_queue($zk, $path, 7);
	poll_until { grep { $_ eq $between } $zk->watched_paths('/') } 'it to watch';
	my ($guid) = $names[4] =~ /^_c_([0-9a-f-]{36})/;
	my @forged;
	foreach my $rank (0 .. 2)
	{
		my $mark = ('-lock-', '-pg__lock__', '-__WRIT__')[$rank];
		push @forged, map { sprintf '%s/_c_%s%s%010d', $path, $guid, $mark, $rank * $rounds + $_ } 0 .. $rounds - 1;
	}
	$stranger->create($_, '', ephemeral => 1) foreach @forged;
	$stranger->delete($between);
	poll_until { $waiter->is_done || !grep { $_ eq $between } $zk->watched_paths('/') }
	'it to look again';
	poll_until { $waiter->is_done || grep { m{^\Q$path\E/_c_} } $zk->watched_paths('/') }
	'and to watch';
	ok(!$waiter->is_done, 'who waits goes on to wait');
	is($holder->query_safe("SELECT zk_is_held('$lock')"), 't', 'for the holder');
	$stranger->delete($_) foreach @forged;
	$holder->query_safe("SELECT zk_unlock('$lock')");
	$waiter->wait_result;
	is($waiter->sqlstate, '00000', 'until its turn');
	is($waiter->query_safe("SELECT zk_is_held('$lock')"), 't', 'which is true');
	$_->quit foreach $holder, $waiter;
}

# Nor are they taken for its nodes where somebody looks at the queue, and evicts them.
my $holder = background($node);
$holder->query_safe("SELECT zk_lock('evicted')");
my ($guid) = (queue_nodes($zk, lock_path('evicted')))[0] =~ /^_c_([0-9a-f-]{36})/;
my $forged = $stranger->create(lock_path('evicted') . "/_c_$guid-lock-0000000001", '', ephemeral => 1);
my $token = $stranger->exists($forged)->{czxid};
is($node->safe_psql('postgres', "SELECT zk_evict('evicted', $token)"), 't', 'a forged one is evicted');
is($stranger->exists($forged), undef, 'and gone');
is($holder->query_safe("SELECT zk_is_held('evicted')"), 't', 'the holder holds the lock');
$holder->quit;

$node->stop;
done_testing();
