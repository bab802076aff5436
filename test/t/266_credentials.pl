
# With credentials (zklock.auth) a lock is handed over as without, but only where
# nobody who lacks them can have made the node that says so. Others who have them
# may do everything with a queue node but write to it.

use strict;
use warnings;

use Proxy;
use Test::More;
use ZkLockTest;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my $secret = 'zklock:s3cr3t-of-this-test';
my $node = cluster('berlin', $zk,
	'zklock.auth' => "digest:$secret", 'zklock.session_timeout' => '20s');
my $stranger = $zk->client;
my $friend = $zk->client;
$friend->add_auth('digest', $secret);
my $mark = '_c_6ba7b810-9dad-8a11-80b4-00c04fd430c8-lock-';

# An administrator made the root, open to all.
$stranger->create_path(lock_path('any') =~ s{/any$}{}r);

# A session learns from its first two locks how the server calls it.
my @pool = map { background($node) } 1 .. 3;
foreach my $session (@pool)
{
	poll_until
	{
		$session->query_safe("SELECT zk_lock('warm')");
		my $nodes = $session->query_safe('SELECT node FROM zk_locks');
		$session->query_safe("SELECT zk_unlock('warm')");
		$nodes =~ /-8a11-/;
	}
	'its nodes to be marked';
}

sub path
{
	my ($lock) = @_;
	return lock_path($lock) . '/' . (queue_nodes($zk, lock_path($lock)))[0];
}

sub queue_up
{
	my ($lock, @sessions) = @_;
	foreach my $position (0 .. $#sessions)
	{
		$sessions[$position]->start_query("SELECT zk_lock('$lock')");
		wait_for_queue($zk, lock_path($lock), $position + 1);
		next if $position == 0;
		my $ahead = (queue_nodes($zk, lock_path($lock)))[ $position - 1 ];
		poll_until { grep { /\Q$ahead\E$/ } $zk->watched_paths('/') } 'it to watch';
	}
	$sessions[0]->wait_result;
	return;
}

subtest 'a lock is handed over' => sub {
	my ($first, $second, $third) = @pool;
	my @received;
	# Heartbeats may be counted too; hardly each time.
	foreach (1 .. 3)
	{
		queue_up('pass', @pool);
		$first->query_safe("SELECT zk_unlock('pass')");
		$second->wait_result;
		wait_for_queue($zk, lock_path('pass'), 2);
		my $before = $zk->packets_received;
		$second->query_safe("SELECT zk_unlock('pass')");
		$third->wait_result;
		is($third->sqlstate, '00000', 'granted');
		poll_until { $zk->packets_received - $before >= 2 } 'set and delete';
		push @received, $zk->packets_received - $before;
		is($third->query_safe("SELECT zk_is_held('pass')"), 't', 'held');
		$third->query_safe("SELECT zk_unlock('pass')");
		assert_no_nodes($zk, lock_path('pass'));
	}
	is((sort { $a <=> $b } @received)[0], 2, 'two requests, both of the holder');
};

subtest 'who may do what' => sub {
	my ($session) = @pool;
	$session->query_safe("SELECT zk_lock('acl')");
	my $path = path('acl');
	my @acl = sort { $a->[0] <=> $b->[0] } $friend->get_acl($path);
	is_deeply([ map { $_->[0] } @acl ], [ 1, 29, 31 ],
		'everybody reads, friends do all but write, the session does all');
	is($acl[0][2], 'anyone', 'everybody');
	like($acl[1][2], qr/^zklock:/, 'friends');
	isnt($acl[2][2], $acl[1][2], 'the session');
	is_deeply([ map { $_->[0] } $friend->get_acl(lock_path('acl')) ], [ 31, 1 ],
		"the lock's znode has only friends");
	eval { $friend->set($path, '__REVOKE__') };
	like($@, qr/NoAuth/, 'a friend cannot set it');
	eval { $stranger->create(lock_path('acl') . '/x-', '', ephemeral => 1, sequential => 1) };
	like($@, qr/NoAuth/, 'a stranger cannot create beside it');
	$friend->delete($path);
	is($session->query_safe("SELECT zk_is_held('acl')"), 'f', 'a friend can delete it');
	$session->query_safe('SELECT zk_unlock_all()');
};

# Each of these znodes lets, or may have let, strangers in.
subtest 'a word in an open queue is not believed' => sub {
	my ($holder, $waiter, $last) = @pool;
	my ($ours) = grep { $_->[0] == 31 } $friend->get_acl(lock_path('warm'));
	my $open = [ [ 31, 'world', 'anyone' ] ];
	my %queue = (
		'made by a stranger' => sub { $stranger->create($_[0], '', acl => $open); },
		'where a stranger may do one thing' => sub {
			$stranger->create($_[0], '', acl => [ $ours, [ 1, 'world', 'anyone' ],
					[ 4, 'world', 'anyone' ] ]);
		},
		'closed later' => sub { $stranger->create($_[0], '', acl => $open); });
	foreach my $how (sort keys %queue)
	{
		(my $lock = $how) =~ s/ /-/g;
		my $path = lock_path($lock);
		$queue{$how}->($path);
		$holder->query_safe("SELECT zk_lock('$lock')");
		my $forged = $stranger->create("$path/$mark", '',
			ephemeral => 1, sequential => 1);
		$stranger->set_acl($path, [ $ours, [ 1, 'world', 'anyone' ] ])
		  if $how eq 'closed later';
		$waiter->start_query("SELECT zk_lock('$lock')");
		poll_until { grep { $_ eq $forged } $zk->watched_paths('/') } 'it to watch';
		my $received = $zk->packets_received;
		$stranger->set($forged, '');
		poll_until { $zk->packets_received > $received + 1 } 'it to look';
		poll_until { grep { $_ eq $forged } $zk->watched_paths('/') } 'it to watch';
		ok(!$waiter->is_done, "$how: who waits goes on to wait");
		is($holder->query_safe("SELECT zk_is_held('$lock')"), 't', 'for the holder');
		$friend->delete($forged);

		# Without the stranger all goes on, by looking.
		$last->start_query("SELECT zk_lock('$lock')");
		wait_for_queue($zk, $path, 3);
		foreach my $pair ([ $holder, $waiter ], [ $waiter, $last ])
		{
			my ($former, $next) = @$pair;
			$former->query_safe("SELECT zk_unlock('$lock')");
			$next->wait_result;
			is($next->sqlstate, '00000', 'granted in turn');
			is($next->query_safe("SELECT zk_is_held('$lock')"), 't', 'held');
		}
		$last->query_safe("SELECT zk_unlock('$lock')");
		assert_no_nodes($zk, $path, 'nothing left');
	}
};

# Between the create and the question for its ACL somebody may make another node of
# that name, with an ACL of his own. Nothing is learnt from that.
subtest 'names are learnt from nodes of our own' => sub {
	my $proxy = Proxy->new($zk->connect_string);
	my ($ours) = grep { $_->[0] == 31 } $friend->get_acl(lock_path('warm'));
	my $other = $zk->client;
	$other->add_auth('digest', 'other:secret');
	$other->create(lock_path('name'), '', acl => [ [ 31, 'auth', '' ] ]);
	my ($theirs) = $other->get_acl(lock_path('name'));
	foreach my $nlocks (0, 1)
	{
		my $victim = background($node);
		$victim->query_safe("SET zklock.servers = '" . $proxy->address . "'");
		$victim->query_safe("SELECT zk_lock('first'), zk_unlock('first')") foreach 1 .. $nlocks;
		$other->create(lock_path('bait'), '');
		$victim->query_safe('SELECT zk_session()');
		$proxy->trap(15, 1, 'replies');    # create2
		$victim->start_query("SELECT zk_lock('bait')");
		poll_until { $proxy->is_sprung } 'the reply to the create';
		my ($name) = wait_for_queue($zk, lock_path('bait'), 1);
		$other->delete(lock_path("bait/$name"));
		$other->create(lock_path("bait/$name"), '', ephemeral => 1, acl => [ $theirs, $ours ]);
		$proxy->heal;
		$victim->wait_result;
		$victim->query('SELECT zk_unlock_all()');
		eval { $other->delete(lock_path("bait/$name")) };
		$other->delete(lock_path('bait'));
		$victim->query_safe("SELECT zk_lock('after-$nlocks-$_-')") foreach 1 .. 3;
		my @acl = map { $friend->get_acl($_), $friend->get_acl((lock_path("after-$nlocks-3-") . '/' .
			(queue_nodes($zk, lock_path("after-$nlocks-3-")))[0])) } lock_path("after-$nlocks-3-");
		ok(!(grep { $_->[2] eq $theirs->[2] } @acl), "after $nlocks: the other is in no ACL of ours");
		$victim->quit;
	}
	$proxy->stop;
	$other->close;
};

$_->quit foreach @pool;
done_testing();
