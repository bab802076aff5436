
# The root cannot be taken over (zklock.auth): it is never empty, so that a client without the
# credentials cannot delete it, although the ACL of "/" lets everybody delete there. A session with
# credentials takes nothing below a root that others may change, whoever has made it. Tested with
# clients with and without the credentials on real servers.

use Proxy;
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $secret = 'zklock:s3cr3t-of-this-test';
my $node = cluster('berlin', $zk, 'zklock.auth' => "digest:$secret");
my $stranger = $zk->client;
my $friend = $zk->client;
$friend->add_auth('digest', $secret);
my $root = lock_path('') =~ s{/$}{}r;
my @read = (1, 'world', 'anyone');

# What each function that takes something says below that root.
sub refused_everywhere ($why, $identity, $root_of = undef)
{
	foreach my $call ("zk_lock('a')", "zk_try_lock('a')", "zk_hold('a', 'why', '1s')", "zk_try_lease('a', 'app', '60s')",
		"zk_run_once('a', 'slot')", "zk_request_release('a')", "zk_lock_set(ARRAY['a', 'b'])")
	{
		my $session = background($node);
		$session->query_safe("SET zklock.root = '$root_of'") if $root_of;
		assert_query($session, "SELECT $call", '42501', "$call: $why");
		like($session->error, qr/can be changed by others\nDETAIL:  Its ACL gives more than to read to "$identity"/, 'the message names the identity')
		  if $identity;
		$session->quit;
	}
}

subtest 'a client without credentials cannot delete the root, also when no lock is left' => sub {
	my $session = background($node);
	$session->query_safe("SELECT zk_lock('first'), zk_unlock('first')");
	$friend->delete_recursive(lock_path('first')) if $stranger->exists(lock_path('first'));
	is(join(' ', $stranger->children($root)), '.root', 'the root has its child, and no lock');
	eval { $stranger->delete("$root/.root") };
	like($@, qr/NoAuth/, 'a stranger cannot delete the child');
	eval { $stranger->delete($root) };
	like($@, qr/NotEmpty/, 'nor the root');
	is(ask($node, 'SELECT count(*) FROM zk_all_locks()'), 0, 'the child is no lock');
	assert_query($session, "SELECT zk_lock('.root')", '42602', 'nor can it be one');
	$session->query_safe("SELECT zk_lock('second')");
	is(ask($node, 'SELECT string_agg(name, $$ $$) FROM zk_all_locks()'), 'second', 'a lock is taken in the root');
	is(scalar grep({ /\.release$/ } $stranger->children($root)), 0, 'nothing is left of the question whose the root is');
	$session->quit;
};

subtest 'a session takes nothing below a root that others may change' => sub {
	my $own = (grep { $_->[1] eq 'digest' } $friend->get_acl($root))[0];
	my %root = (
		'open' => [ 'world:anyone', [ 31, 'world', 'anyone' ] ],
		'made before there were credentials' => [ 'world:anyone', $own, [ 31, 'world', 'anyone' ] ],
		'made by another user' => [ 'digest:mallory:\S+', $own, [ 31, 'digest', 'mallory:nLzp8+5KnLN/5JyIjQCfgW1lbOY=' ], [@read] ],
		'that others may set' => [ 'world:anyone', $own, [ 3, 'world', 'anyone' ] ],
		'that others may administer' => [ 'digest:mallory:\S+', $own, [ 16, 'digest', 'mallory:nLzp8+5KnLN/5JyIjQCfgW1lbOY=' ], [@read] ]);
	my $number = 0;
	foreach my $which (sort keys %root)
	{
		my ($identity, @acl) = @{ $root{$which} };
		my $path = '/taken' . ++$number;
		$friend->create_path($path);
		$friend->set_acl($path, [@acl]);
		refused_everywhere("a root $which", $identity, $path);
		is(join(' ', grep { !/\.release$/ } $friend->children($path)), '', 'and makes nothing there');
	}
	refused_everywhere('the root of all, which is open', 'world:anyone', '/');
};

subtest 'a root with identities that are trusted can be used' => sub {
	my $path = '/shared';
	my $own = (grep { $_->[1] eq 'digest' } $friend->get_acl($root))[0];
	$friend->create_path($path);
	$friend->set_acl($path, [ $own, [ 31, 'digest', 'mallory:nLzp8+5KnLN/5JyIjQCfgW1lbOY=' ], [@read] ]);
	my $session = background($node);
	$session->query_safe("SET zklock.root = '$path'");
	assert_query($session, "SELECT zk_lock('a')", '42501', 'an identity that is not listed');
	$node->append_conf('postgresql.conf', "zklock.trusted_identities = 'sasl:app, digest:mallory:nLzp8+5KnLN/5JyIjQCfgW1lbOY='");
	$node->reload;
	poll_until { $session->query_safe('SHOW zklock.trusted_identities') =~ /mallory/ } 'the list is read', 30;
	is($session->query_safe("SELECT zk_lock('a') IS NOT NULL"), 't', 'one that is');
	is(join(' ', sort $stranger->children($path)), '.root a', 'a root that was made by hand gets its child');
	$session->quit;

	foreach my $bad ('mallory', 'digest:', ':x', 'digest:mallory:x', 'world:anyone', '"x509:CN=a')
	{
		my ($status) = $node->psql('postgres', "ALTER SYSTEM SET zklock.trusted_identities = '$bad'");
		isnt($status, 0, "the list '$bad' is refused");
	}
	is(ask($node, 'SHOW zklock.trusted_identities'), 'sasl:app, digest:mallory:nLzp8+5KnLN/5JyIjQCfgW1lbOY=', 'the list is as before');
};

subtest 'credentials are rotated over two clusters, one after the other' => sub {
	my $other = cluster('paris', $zk, 'zklock.auth' => "digest:$secret");
	my $new = 'zklock:n3w-s3cr3t';
	my $holder = background($other);
	$holder->query_safe("SELECT zk_lock('rotated')");
	my $client = $zk->client;
	$client->add_auth('digest', $new);
	$client->create_path('/of-new');
	my ($old_id) = map { $_->[2] } grep { $_->[1] eq 'digest' } $friend->get_acl($root);
	$client->set_acl('/of-new', [ [ 31, 'auth', '' ] ]);
	my ($new_id) = map { $_->[2] } $client->get_acl('/of-new');

	# Both identities in the ACL of the root, and each cluster trusts both, before the first one changes.
	foreach my $cluster ($node, $other)
	{
		$cluster->append_conf('postgresql.conf', "zklock.trusted_identities = 'digest:$old_id, digest:$new_id'");
		$cluster->reload;
	}
	$friend->set_acl($root, [ [ 31, 'digest', $old_id ], [ 31, 'digest', $new_id ], [@read] ]);
	my $session = background($other);
	is($session->query("SELECT zk_try_lock('of the old')"), 't', 'a cluster with the old credentials takes locks') or diag($session->error);
	$session->quit;
	$node->append_conf('postgresql.conf', "zklock.auth = 'digest:$new'");
	$node->restart;
	$session = background($node);
	is($session->query("SELECT zk_try_lock('of the new')"), 't', 'so does one with the new ones') or diag($session->error);
	assert_held($holder, 'rotated', 'a lock is held all the while');
	$_->quit foreach $session, $holder;
	$other->append_conf('postgresql.conf', "zklock.auth = 'digest:$new'");
	$other->restart;

	# At the end the old identity goes.
	$client->set_acl($root, [ [ 31, 'digest', $new_id ], [@read] ]);
	foreach my $cluster ($node, $other)
	{
		$cluster->append_conf('postgresql.conf', "zklock.trusted_identities = ''");
		$cluster->reload;
		$session = background($cluster);
		is($session->query("SELECT zk_try_lock('after')"), 't', 'the old identity is gone') or diag($session->error);
		$session->query_safe("SELECT zk_unlock('after')");
		$session->quit;
	}
};

subtest 'the znode of a chroot is the root where zklock.root is /, and no root otherwise' => sub {
	my $chrooted = cluster('bonn', $zk, 'zklock.auth' => "digest:$secret", 'zklock.root' => '/', servers => $zk->connect_string . '/chroot');
	my $session = background($chrooted);
	$session->query_safe("SELECT zk_lock('first'), zk_unlock('first')");
	$friend->delete_recursive('/chroot/first') if $friend->exists('/chroot/first');
	is(join(' ', $stranger->children('/chroot')), '.root', 'the znode of the chroot is made as a root');
	eval { $stranger->delete('/chroot') };
	like($@, qr/NotEmpty/, 'a stranger cannot delete it');
	$session->quit;

	# That of an operator, who has made it for all.
	$friend->create_path('/chroot2');
	$chrooted = cluster('ulm', $zk, 'zklock.auth' => "digest:$secret", 'zklock.root' => '/', servers => $zk->connect_string . '/chroot2');
	$session = background($chrooted);
	assert_query($session, "SELECT zk_lock('a')", '42501', 'a chroot that is open is no root');
	like($session->error, qr{root "/chroot2" of ZooKeeper locks can be changed by others}, 'the message names the chroot');
	$session->query_safe("SET zklock.root = '/zklock'");
	is($session->query_safe("SELECT zk_try_lock('a')"), 't', 'a root in it is made, and is not open');
	is(join(' ', sort $stranger->children('/chroot2/zklock')), '.root a', 'it has its child');
	eval { $stranger->delete_recursive('/chroot2') };
	like($@, qr/NoAuth/, 'a stranger cannot take it away with the chroot');
	$friend->set_acl('/chroot2', [ [ 31, 'auth', '' ], [@read] ]);
	$session->query_safe("SET zklock.root = '/'");
	is($session->query_safe("SELECT zk_try_lock('b')"), 't', 'a chroot that is closed is one');
	is(join(' ', sort $stranger->children('/chroot2')), '.root b zklock', 'and gets its child');
	$session->quit;
};

subtest 'a session at a server that lags behind learns of a root that was opened' => sub {
	my (%link, $seconds);
	my $ensemble = ZooKeeper->new(
		servers => 3,
		config => { syncLimit => 200 },
		link => sub ($from, $to, $what, $address) {
			return (split /:/, $address)[1] if $what ne 'quorum';
			return ($link{"$from to $to"} //= Proxy->new($address))->port;
		})->start;
	my $leader = $ensemble->leader;
	my ($follower) = $ensemble->followers;
	my $far = cluster('lagos', $ensemble, 'zklock.auth' => "digest:$secret", 'zklock.session_timeout' => '60s',
		servers => $ensemble->connect_string($follower));
	my ($client, $witness) = map { $ensemble->client(member => $_, timeout => 60) } $leader, $follower;
	$client->add_auth('digest', $secret);
	$client->create_path("/lagging/.root");
	$client->set_acl('/lagging', [ [ 31, 'auth', '' ], [@read] ]);
	my $session = background($far);
	$session->query_safe("SELECT zk_lock('at another root')");

	# What the leader says arrives at the follower so much later.
	assert_becomes { scalar $witness->get_acl('/lagging') } 2, 'the follower has the ACL of the root';
	$link{"$follower to $leader"}->delay(3);
	$client->set_acl('/lagging', [ [ 31, 'world', 'anyone' ] ]);
	is(scalar(my @acl = $witness->get_acl('/lagging')), 2, 'the follower does not know yet that it is open');
	assert_query($session, "SET zklock.root = '/lagging'; SELECT zk_lock('a')", '42501', 'the session is refused');
	like($session->error, qr/can be changed by others/, 'for what the leader knows');
	$_->close foreach $client, $witness;
	$session->quit;
};

subtest 'a session without credentials asks nothing' => sub {
	my $bare = cluster('rome', $zk, 'zklock.root' => '/bare');
	my $session = background($bare);
	is($session->query_safe("SELECT zk_try_lock('a')"), 't', 'a lock in a root of everybody');
	is(join(' ', sort $stranger->children('/bare')), '.root a', 'that root is never empty either');
	$session->query_safe("SET zklock.root = '/'");
	is($session->query_safe("SELECT zk_try_lock('free')"), 't', 'a lock in the root of all');
	$session->quit;

	# How many requests the first and the second lock of a session send, at least: besides them, an idle
	# session sends one now and then.
	my $requests = sub ($cluster) {
		my @least;
		foreach my $attempt (1 .. 5)
		{
			my $asking = background($cluster);
			$asking->query_safe("SET zklock.session_timeout = '5min'; SELECT count(*) FROM zk_lock_queue('counted')");
			foreach my $number (0, 1)
			{
				my $before = $zk->packets_received;
				$asking->query_safe("SELECT zk_lock('counted/$number')");
				my $sent = $zk->packets_received - $before;
				$least[$number] = $sent if !defined $least[$number] || $sent < $least[$number];
			}
			$asking->quit;
		}
		return "@least";
	};
	my $credentials = cluster('turin', $zk, 'zklock.auth' => "digest:$secret", 'zklock.root' => '/closed');
	foreach my $client ($friend, $stranger)
	{
		my $path = $client == $friend ? '/closed' : '/bare';
		$client->create_path("$path/counted/$_") foreach 0, 1;
		$client->set_acl($path, [ [ 31, 'auth', '' ], [@read] ]) if $client == $friend;
	}
	is($requests->($bare), '2 2', 'without credentials each lock takes a create and a list');
	is($requests->($credentials), '7 2', 'with them the first one takes five more');
};

done_testing();
