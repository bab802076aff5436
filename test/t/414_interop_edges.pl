
# The rules of docs/interop.md for zklock next to other clients hold at the edges too: paths,
# chroots, names below names, foreign data, requests to release, credentials. Each is shown with
# the real clients on a real server.

use Peer;
use ZkLockTest;

# Looks for empty containers often, so that one can see which znodes are some.
my $zk = ZooKeeper->new(
	container_check => 100)->start;
# One client of each library, of those that exclude zklock.
my @kinds = (
	'Curator InterProcessMutex',
	'go-zookeeper Lock',
	'ZooKeeper recipes WriteLock (Java)',
	'Kazoo Lock with lock-');
plan skip_all => 'not installed: ' . Peer::missing(@kinds[ 0, 2, 3 ]) if Peer::missing(@kinds[ 0, 2, 3 ]);
my $no_go = Peer::missing($kinds[1]);
my %peer = map { $_ => Peer->new($_, $zk) } Peer::installed(@kinds);
my ($curator, $go, $recipe, $kazoo) = @peer{@kinds};
my $node = cluster('berlin', $zk);
my $stranger = $zk->client;
my ($session, $waiter) = map { background($node) } 1 .. 2;

# Makes the root.
$session->query_safe("SELECT zk_try_lock('first'), zk_unlock('first')");

# Until somebody watches a node below this path, that is, waits in line.
sub wait_for_waiter ($path)
{
	poll_until { $zk->watched_paths("$path/") } "a waiter below $path", 30;
	return;
}

sub answer ($peer, $command)
{
	$peer->start_command($command);
	return $peer->wait_answer;
}

# zklock holds the lock of this name, and the client waits for it on this path.
sub test_waits ($peer, $lock, $path)
{
	$session->query_safe("SELECT zk_lock('$lock')");
	$peer->choose($path);
	$peer->start_command('lock');
	wait_for_waiter($path);
	ok(!$peer->is_done, 'it waits');
	$session->query_safe("SELECT zk_unlock('$lock')");
	is($peer->wait_answer, 'locked', 'the client has the lock when zklock has released it');
	$peer->ask('unlock');
	return;
}

foreach my $kind (@kinds)
{
	subtest "$kind waits for zklock on the path of a name" => sub {
		Peer::require_installed($kind);
		$session->query_safe("SELECT zk_try_lock('team/first'), zk_unlock_all()");
		test_waits($peer{$kind}, 'team/nightly', lock_path('team/nightly'));
	};
}

subtest 'a client waits for zklock on the path of a name below a chroot' => sub {
	my $waiter = background($waiter->node, 'zklock.servers' => $zk->connect_string . '/apps', 'zklock.root' => '/locks', holds => 'team/nightly');
	# Kazoo makes the znode once, and fails if it is removed later.
	$stranger->create('/apps/locks/team/nightly/keep', '');
	$kazoo->choose('/apps/locks/team/nightly');
	is($kazoo->ask('try'), 'busy', 'the client finds the lock busy');
	$waiter->query_safe('SELECT zk_unlock_all(); RESET ALL');
	is($kazoo->ask('lock'), 'locked', 'the lock is free afterwards');
	$kazoo->ask('unlock');
};

subtest "each client but ZooKeeper's recipe makes the parents of a lock" => sub {
	my %outcome;
	foreach my $kind (sort keys %peer)
	{
		(my $parent = lc $kind) =~ s/\W+//g;
		$peer{$kind}->choose(lock_path("$parent/lock"));
		$outcome{$kind} = answer($peer{$kind}, 'lock');
		$peer{$kind}->ask('unlock') if $outcome{$kind} eq 'locked';
	}
	like(delete $outcome{ $kinds[2] }, qr/^error .*NoNode/, "$kinds[2] fails");
	is(join(' ', grep { $_ ne 'locked' } values %outcome), '', 'the other clients make the parents');
};

# Whoever comes first makes the lock's znode, as a container, which ZooKeeper
# removes once it is empty, or as one that stays.
subtest 'locks of zklock and Curator leave no empty znode behind' => sub {
	my @made = grep { $peer{ $kinds[$_] } } 0 .. $#kinds;
	foreach my $i (@made)
	{
		my $peer = $peer{ $kinds[$i] };
		$peer->choose(lock_path("made$i"));
		$peer->ask($_) foreach qw(lock unlock);
	}
	$session->query_safe("SELECT zk_lock('made'), zk_unlock('made')");
	poll_until { !$stranger->exists(lock_path('made')) } 'our znode to go', 30;
	poll_until { !$stranger->exists(lock_path('made0')) } 'Curator\'s to go', 30;
	my @left = grep { $stranger->exists(lock_path("made$_")) } @made;
	is("@left", join(' ', grep { $_ > 0 } @made), 'the empty znodes of the other clients stay');
};

# What the number at the end of a child belongs to is not the same for all of
# them: for Go it follows the last dash, and everybody has one.
subtest 'Go fails next to a node of Kazoo, and its node holds up zklock until its session ends' => sub {
	Peer::require_installed($kinds[1]);
	my $path = lock_path('go_kazoo');
	$kazoo->choose($path, 'Kazoo Lock');
	$kazoo->ask('lock');
	my $other = Peer->new('go-zookeeper Lock', $zk);
	$other->choose($path);
	like(answer($other, 'lock'), qr/^error .*parsing/, 'Go fails with a parsing error');
	$kazoo->ask('unlock');
	is(scalar(queue_nodes($zk, $path)), 1, 'Go leaves its node behind');
	is($session->query_safe("SELECT zk_try_lock('go_kazoo')"),
		'f', 'the node of Go holds up zklock');
	$other->quit;
	is($session->query_safe("SELECT zk_try_lock('go_kazoo', '30 s')"),
		't', 'until Go\'s session ends');
	$session->query_safe("SELECT zk_unlock('go_kazoo')");
};

# A child that is a lock of its own is no contender.
subtest 'names below a lock disturb Go, and Curator where they sort first' => sub {
	$waiter->query_safe("SELECT zk_lock('deep/er')");
	is($session->query_safe("SELECT zk_try_lock('deep'), zk_unlock('deep')"),
		't|t', 'zklock is not disturbed by a lock below');
	foreach my $kind (@kinds[ 0, 2, 3 ])
	{
		$peer{$kind}->choose(lock_path('deep'), $kind);
		is(answer($peer{$kind}, 'lock'), 'locked', "a lock below does not disturb $kind");
		is(answer($peer{$kind}, 'unlock'), 'unlocked', 'the client releases the lock');
	}
	if (!$no_go)
	{
		my $other = Peer->new('go-zookeeper Lock', $zk);
		$other->choose(lock_path('deep'));
		like(answer($other, 'lock'), qr/^error .*parsing/, 'Go fails with a parsing error');
		$other->quit;
		is($session->query_safe("SELECT zk_try_lock('deep', '30 s'), zk_unlock('deep')"),
			't|t', "zklock has the lock when Go's session has ended");
	}
	$waiter->query_safe("SELECT zk_unlock('deep/er')");
	foreach my $child ('0', '!b')
	{
		$waiter->query_safe("SELECT zk_lock('deep/$child')");
		$curator->choose(lock_path('deep'));
		$curator->start_command('lock');
		wait_for_waiter(lock_path('deep'));
		ok(!$curator->is_done, "Curator takes '$child' for one ahead of it");
		$waiter->query_safe("SELECT zk_unlock('deep/$child')");
		is($curator->wait_answer, 'locked', 'Curator has the lock when the child is gone');
		$curator->ask('unlock');
	}
};

# Kazoo 2.8 takes any writer for one ahead of its reader, later ones do not.
subtest "a writer behind Kazoo's ReadLock waits for it, or both wait with Kazoo 2.8" => sub {
	my ($release) = $kazoo->version =~ /^Kazoo (\d+\.\d+)/ or die $kazoo->version;
	my $path = lock_path('reader');
	$session->query_safe("SELECT zk_lock('reader')");
	$kazoo->choose($path, 'Kazoo ReadLock with lock-');
	$kazoo->start_command('lock');
	wait_for_waiter($path);
	my @queue = start_in_queue($waiter, "SELECT zk_lock('reader')", $zk, $path, 3);
	$session->query_safe("SELECT zk_unlock('reader')");
	if (version->parse("v$release") < v2.9)
	{
		poll_until
		{
			my @watched = $zk->watched_paths("$path/");
			"@watched" eq join ' ', map { "$path/$_" } sort @queue[ 1, 2 ];
		}
		'the two to wait for each other', 30;
		ok(!$kazoo->is_done && !$waiter->is_done, 'neither has the lock');
		$waiter->cancel;
		assert_ends($waiter, '57014', 'the writer gives up');
		is($kazoo->wait_answer, 'locked', 'the reader has the lock when the writer has given up');
		$kazoo->ask('unlock');
		return;
	}
	is($kazoo->wait_answer, 'locked', 'the reader has its turn');
	ok(!$waiter->is_done, 'the writer waits for the reader');
	$kazoo->ask('unlock');
	assert_ends($waiter, '00000', 'the writer has the lock after the reader');
	$waiter->query_safe("SELECT zk_unlock('reader')");
};

# Its permits are called by 32 random hexadecimal digits.
subtest "a permit of Kazoo's Semaphore that ends in ten digits counts as a contender" => sub {
	my $path = lock_path('permit');
	$stranger->create_path($path);
	$stranger->create("$path/6ba7b8109dad11d180b4ff0123456789", '', ephemeral => 1);
	is($session->query_safe("SELECT zk_try_lock('permit')"),
		'f', 'a try finds the permit busy');
	is($session->query_safe("SELECT style, mode FROM zk_lock_queue('permit')"),
		'unknown|exclusive', 'zk_lock_queue() shows it as a contender');
};

subtest 'zk_lock_queue() shows what other clients say about themselves' => sub {
	my %expected = (
		# its address, if the machine's name leads to one
		$kinds[0] => qr/^[0-9.:a-f]*$/,
		$kinds[1] => qr/^$/,
		$kinds[2] => qr/^<U\+0012>4$/,
		$kinds[3] => qr/^kazoo$/);
	foreach my $i (grep { $peer{ $kinds[$_] } } 0 .. $#kinds)
	{
		my $peer = $peer{ $kinds[$i] };
		$peer->choose(lock_path("data$i"), $kinds[$i]);
		$peer->ask('lock');
		like($session->query_safe("SELECT data FROM zk_lock_queue('data$i')"),
			$expected{ $kinds[$i] }, "$kinds[$i]: data");
		is( $session->query_safe("SELECT num_nulls(client, cluster, datname,
				usename, application_name, pid, host), since IS NOT NULL, token > 0
				FROM zk_lock_queue('data$i')"), '7|t|t', 'since and token');
		$peer->ask('unlock');
	}
};

# It overwrites the node's data, as a request. Only its owner may write to a node
# of zklock's: its waiters would take that for a release.
subtest "Curator's Revoker is refused by zklock's nodes" => sub {
	my $path = lock_path('revoked');
	my $token = $session->query_safe("SELECT zk_lock('revoked')");
	my ($ours) = queue_nodes($zk, $path);
	$waiter->start_query("SELECT zk_lock('revoked')");
	wait_for_waiter($path);
	like(answer($curator, "revoke $path/$ours"), qr/^error .*NoAuth/, 'the request of the Revoker is refused');
	is( $session->query_safe("SELECT data IS NULL, client, state, token = $token
			FROM zk_lock_queue('revoked') WHERE position = 1"),
		't|zklock|held|t', 'the node still says who holds the lock');
	ok(!$waiter->is_done, 'the waiter goes on waiting');
	assert_held($session, 'revoked', 'the holder has the lock');
	assert_passes('revoked', $session, $waiter, 'the waiter has the lock when it is released');
	$waiter->query_safe("SELECT zk_unlock('revoked')");
};

# With credentials. Last, because a client cannot be made to forget them.
$session = background($session->node, 'zklock.auth' => 'digest:alice:secret', 'zklock.root' => '/guarded',
	first => q(SELECT zk_try_lock('first'), zk_unlock('first')));
# A root of these credentials, with znodes of locks that everybody may enter.
$stranger->create_path('/open/' . lc($_) =~ s/\W+//gr) foreach @kinds;
my $alice = $zk->client;
$alice->add_auth('digest', 'alice:secret');
$alice->set_acl('/open', [ [ 31, 'auth', '' ], [ 1, 'world', 'anyone' ] ]);
foreach my $kind (@kinds)
{
	my $peer = $peer{$kind};
	(my $lock = lc $kind) =~ s/\W+//g;
	subtest "$kind needs the credentials for locks made with zklock.auth" => sub {
		Peer::require_installed($kind);
		$session->query_safe("SET zklock.root = '/open'");
		assert_query($session, "SELECT zk_lock('$lock')", '42501', 'a znode that everybody can change is refused');

		$session->query_safe("SET zklock.root = '/guarded';
			SELECT zk_lock('$lock')");
		my ($ours) = queue_nodes($zk, "/guarded/$lock");
		like(answer($curator, "revoke /guarded/$lock/$ours"), qr/^error .*NoAuth/,
			'our data cannot be overwritten')
		  if $peer == $curator;
		$peer->choose("/guarded/$lock");
		like(answer($peer, 'lock'), qr/^error .*(?:NoAuth|not authenticated)/i,
			'without credentials it is refused');
		$session->query_safe("SELECT zk_unlock('$lock')");
		$peer->ask('auth alice:secret');
		test_waits($peer, $lock, "/guarded/$lock");
	};
}

done_testing();
