
# The root cannot be taken over (zklock.auth): it is never empty, so that a client without the
# credentials cannot delete it, although the ACL of "/" lets everybody delete there. A session with
# credentials takes nothing below a root that others may change, whoever has made it. Tested with
# clients with and without the credentials on real servers.

use Certificates;
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
	$friend->delete_recursive(lock_path('first'));
	assert_becomes { join(' ', $stranger->children($root)) } '.root', 'the root has its child, and no lock';
	eval { $stranger->delete("$root/.root") };
	like($@, qr/NoAuth/, 'a stranger cannot delete the child');
	eval { $stranger->delete($root) };
	like($@, qr/NotEmpty/, 'nor the root');
	is(ask($node, 'SELECT count(*) FROM zk_all_locks()'), 0, 'the child is no lock');
	assert_query($session, "SELECT zk_lock('.root')", '42602', 'nor can it be one');
	$session->query_safe("SELECT zk_lock('second')");
	is(ask($node, 'SELECT string_agg(name, $$ $$) FROM zk_all_locks()'), 'second', 'a lock is taken in the root');
	assert_becomes { scalar grep { /\.release$/ } $stranger->children($root) } 0, 'nothing is left of the question whose the root is';
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
	assert_becomes { join(' ', sort $stranger->children($path)) } '.root a', 'a root that was made by hand gets its child';
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
	$friend->delete_recursive('/chroot/first');
	assert_becomes { join ' ', $stranger->children('/chroot') } '.root', 'the znode of the chroot is made as a root';
	eval { $stranger->delete('/chroot') };
	like($@, qr/NotEmpty/, 'a stranger cannot delete it');
	$session->quit;

	# That of an operator, who has made it for all.
	$friend->create_path('/chroot2');
	$chrooted = cluster('ulm', $zk, 'zklock.auth' => "digest:$secret", 'zklock.root' => '/', servers => $zk->connect_string . '/chroot2');
	$session = background($chrooted);
	assert_query($session, "SELECT zk_lock('a')", '42501', 'a chroot that is open is no root');
	like($session->error, qr{znode "/chroot2" of ZooKeeper locks can be changed by others}, 'the message names the chroot');
	$session->query_safe("SET zklock.root = '/zklock'");
	is($session->query_safe("SELECT zk_try_lock('a')"), 't', 'a root in it is made, and is not open');
	# What has shown that it may be written to goes without being awaited.
	assert_becomes { join ' ', sort $stranger->children('/chroot2/zklock') } '.root a', 'it has its child';
	eval { $stranger->delete_recursive('/chroot2') };
	like($@, qr/NoAuth/, 'a stranger cannot take it away with the chroot');
	$friend->set_acl('/chroot2', [ [ 31, 'auth', '' ], [@read] ]);
	$session->query_safe("SET zklock.root = '/'");
	is($session->query_safe("SELECT zk_try_lock('b')"), 't', 'a chroot that is closed is one');
	assert_becomes { join ' ', sort $stranger->children('/chroot2') } '.root b zklock', 'and gets its child';
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
	assert_becomes { join(' ', sort $stranger->children('/bare')) } '.root a', 'that root is never empty either';
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
		next if $client != $friend;
		$client->set_acl($_, [ [ 31, 'auth', '' ], [@read] ]) foreach map { "$path$_" } '', '/counted', '/counted/0', '/counted/1';
	}
	is($requests->($bare), '2 2', 'without credentials each lock takes a create and a list');
	is($requests->($credentials), '8 3', 'with them the first one takes six more, and each further one the ACL of its znode');
};

# The credentials of the other one have changed.
my $fresh = cluster('milan', $zk, 'zklock.auth' => "digest:$secret");

# Below a root in which a stranger has made a znode: is the holder of a lock safe from that client?
sub assert_safe ($cluster, $client, $root)
{
	my $one = background($cluster, 'zklock.root' => $root);
	if ($one->query("SELECT zk_try_lock('a')") ne 't')
	{
		is($one->sqlstate, '42501', 'no lock is taken in a znode that others can change');
		return $one->quit;
	}
	my ($queue_node) = grep { /lock/ } $client->children("$root/a");
	eval { $client->delete("$root/a/$queue_node") };
	like($@, qr/NoAuth/, 'others cannot delete the node of the holder');
	return $one->quit;
}

subtest 'a znode that others have made before the root had its ACL is not used' => sub {
	$stranger->create($_, '') foreach '/planted', '/planted/a', '/planted/b', '/planted/b/a';
	$friend->set_acl('/planted', [ [ 31, 'auth', '' ], [@read] ]);
	my $session = background($fresh, 'zklock.root' => '/planted');
	foreach my $call ("zk_lock('a')", "zk_try_lock('a')", "zk_hold('a', 'why', '1s')", "zk_try_lease('a', 'app', '60s')", "zk_lock('b/a')")
	{
		assert_query($session, "SELECT $call", '42501', $call);
		like($session->error, qr{znode "/planted/\S+" of ZooKeeper locks can be changed by others.*HINT:  .*setAcl -R}s, 'the message names the znode and the way');
	}
	is($session->query_safe("SELECT zk_try_lock('c')"), 't', 'the other locks are free');
	$session->quit;
	assert_no_nodes($zk, '/planted/a', 'nothing is left in that znode');
	$friend->set_acl('/planted/a', [ [ 31, 'auth', '' ], [@read] ]);
	assert_safe($fresh, $stranger, '/planted');
};

# Its subject is no secret: getAcl shows it.
subtest 'with a client certificate a stranger who makes the root gets no lock deleted' => sub {
	Certificates::need_tls();
	my $good = Certificates->new(PostgreSQL::Test::Utils::tempdir(), 'good');
	$good->issue('server', 'DNS:localhost,IP:127.0.0.1');
	$good->issue('client');
	my $tls = ZooKeeper->new(tls => $good->of_server('server'))->start;
	my $oslo = cluster('oslo', $tls, servers => $tls->secure_connect_string, $good->settings('client'), 'zklock.auth' => 'x509');
	my $session = background($oslo, 'zklock.root' => '/first');
	$session->query_safe("SELECT zk_lock('x')");
	my $mallet = $tls->client;
	my ($subject) = grep { $_->[1] eq 'x509' } $mallet->get_acl('/first');
	$mallet->create($_, '') foreach '/second', '/second/a', '/second/.root';
	$mallet->set_acl('/second', [ $subject, [@read] ]);
	assert_safe($oslo, $mallet, '/second');
	$session->quit;
};

subtest 'zk_check() looks at the root anew in a session that has taken locks there' => sub {
	my $session = background($fresh, 'zklock.root' => '/checked');
	$session->query_safe("SELECT zk_lock('a')");
	my $acl = "SELECT state FROM zk_check() WHERE item = 'acl'";
	is($session->query_safe($acl), 'ok', 'nobody else may change it');
	my ($own) = grep { $_->[1] eq 'digest' } $friend->get_acl('/checked');
	$friend->set_acl('/checked', [ $own, [ 31, 'world', 'anyone' ] ]);
	is($session->query_safe($acl), 'error', 'everybody may change it since');
	assert_query($session, "SELECT zk_lock('b')", '42501', 'the next lock is refused');
	$session->quit;
};

subtest 'below a root that was deleted and made anew by a stranger the holder is safe' => sub {
	my $session = background($fresh, 'zklock.root' => '/anew');
	$session->query_safe("SELECT zk_lock('x'), zk_unlock('x')");
	$friend->delete_recursive('/anew');
	$stranger->create('/anew', '');
	$stranger->create('/anew/b', '');
	assert_query($session, "SELECT zk_try_lock('b')", '42501', 'no lock in a znode of the stranger');
	is($session->query_safe("SELECT zk_try_lock('a')"), 't', 'a lock in one of its own');
	my ($queue_node) = grep { /lock/ } $stranger->children('/anew/a');
	eval { $stranger->delete("/anew/a/$queue_node") };
	like($@, qr/NoAuth/, 'the stranger cannot delete its node');
	$session->quit;
};

subtest 'a root that was made by hand gets its child, whatever a session has met before' => sub {
	my ($own) = grep { $_->[1] eq 'digest' } $friend->get_acl('/planted');
	$stranger->create('/short', '', ephemeral => 1, acl => [ $own, [@read] ]);
	$friend->create_path('/handmade');
	$friend->set_acl('/handmade', [ [ 31, 'auth', '' ], [@read] ]);
	my $session = background($fresh, 'zklock.root' => '/short');
	assert_query($session, "SELECT zk_try_lock('a')", '55000', 'an ephemeral root is in the way');
	$session->query_safe("SET zklock.root = '/handmade'; SELECT zk_try_lock('a')");
	ok($stranger->exists('/handmade/.root'), 'the root has its child');
	$session->quit;
};

done_testing();
