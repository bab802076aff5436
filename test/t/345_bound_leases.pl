
# A lease that is bound to a role and a cluster can be renewed, used and released by that role
# only; and the log names those who renew or release leases of others. Tested with three roles,
# two clusters with system identifiers of their own, and marks forged by another client.

use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $berlin = cluster('berlin', $zk);
# Not a copy of the cluster that initdb has made for all tests: those have one system identifier.
my $paris = cluster('paris', $zk, init => [ extra => ['--data-checksums'] ]);
foreach my $node ($berlin, $paris)
{
	$node->safe_psql('postgres', 'CREATE ROLE app LOGIN; CREATE ROLE deputy LOGIN; GRANT app TO deputy;
		CREATE ROLE stranger LOGIN; GRANT stranger TO app; CREATE TABLE work (who text); GRANT ALL ON work TO app');
}
my ($app, $deputy, $stranger) = map { background($berlin, user => $_) } qw(app deputy stranger);
my $away = background($paris);    # of a superuser

sub lease ($session, $name, $more = '')
{
	return $session->query_safe("SELECT zk_try_lease('$name', 'mailer', '60s'$more)");
}

# All that somebody else cannot do with a lease.
sub assert_refused ($session, $name, $token, $what)
{
	foreach my $call ("zk_try_lease('$name', 'mailer', '60s')", "zk_try_lease('$name', 'mailer', '60s', bound => true)",
		"zk_renew_lease('$name', $token, '60s')", "zk_require_lease('$name', $token)", "zk_release_lease('$name', $token)",
		"zk_release_lease('$name', $token, '60s')")
	{
		assert_query($session, "SELECT $call", '42501', "$what: $call");
	}
	like($session->error, qr/DETAIL:  It is bound to role "app" of the cluster whose .* is "\d+"\.\n.*HINT: .* zk_evict\(\)/, "$what: to whom");
	return;
}

foreach my $publishes ('on', 'off')
{
	subtest "a bound lease is its role's alone, with publish_identity = $publishes" => sub {
		my $name = "bound $publishes";
		$berlin->safe_psql('postgres', "ALTER ROLE app SET zklock.publish_identity = $publishes");
		$app = background($berlin, user => 'app');
		my $token = lease($app, $name, ', bound => true');
		cmp_ok($token, '>', 0, 'a bound lease is taken');
		is($app->query_safe("SELECT owner, bound_to FROM zk_leader('$name')"), 'mailer|app', 'zk_leader() shows the role that the lease is bound to');
		is(lease($deputy, $name), $token, 'a member of the role renews the lease');
		is($app->query_safe("SELECT zk_renew_lease('$name', $token, '60s')"), 't', 'the role itself renews the lease');
		assert_refused($stranger, $name, $token, 'another role');
		assert_refused($away, $name, $token, 'another cluster');
		$app->query_safe('SET ROLE stranger');
		assert_refused($app, $name, $token, 'a backend that knows it, as another role');
		$app->query_safe("RESET ROLE; BEGIN; SET LOCAL ROLE app; SELECT zk_require_lease('$name', $token); INSERT INTO work VALUES ('x'); COMMIT");
		assert_refused($stranger, $name, $token, 'after a renewal');
		is($stranger->query_safe("SELECT zk_try_lease('$name', 'other', '60s')"), '', 'another owner does not get the lease');
		is($away->query_safe("SELECT zk_evict('$name', $token)"), 't', 'zk_evict() ends it');
		is($app->query_safe("SELECT zk_renew_lease('$name', $token, '60s')"), 'f', 'the evicted lease cannot be renewed by its role');
	};
}
$berlin->safe_psql('postgres', 'ALTER ROLE app RESET ALL');
$app = background($berlin, user => 'app');

# Each renewal writes the data anew, also that of a commit.
subtest 'the binding of a lease survives a commit, and is not made later' => sub {
	my $token = lease($app, 'stays', ', bound => true');
	$berlin->safe_psql('postgres', 'ALTER ROLE app SET zklock.commit_guard = quorum');
	my $owner = background($berlin, user => 'app');
	$owner->query_safe("BEGIN; SELECT zk_require_lease('stays', $token); INSERT INTO work VALUES ('x'); COMMIT");
	assert_refused($stranger, 'stays', $token, 'after a commit');
	is($owner->query_safe("SELECT zk_release_lease('stays', $token)"), 't', 'its role releases the lease');
	$token = lease($app, 'stays');
	assert_query($app, "SELECT zk_try_lease('stays', 'mailer', '60s', bound => true)", '55000', 'a lease that is not bound cannot be bound later');
	is(lease($stranger, 'stays'), $token, 'any role that names its owner renews a lease that is not bound');
	assert_query($app, "SELECT zk_try_lease('stays', 'mailer', '60s', bound => NULL)", '22004', 'bound => NULL is refused');
};

subtest "a bound place in the queue is its role's alone" => sub {
	my $first = $away->query_safe("SELECT zk_try_lease('line', 'first', '60s')");
	is(lease($app, 'line', ', place => true, bound => true'), '', 'the place is taken');
	my $place = $away->query_safe("SELECT token FROM zk_lock_queue('line') WHERE position = 2");
	assert_refused($stranger, 'line', $place, 'the place is refused to other roles');
	$away->query_safe("SELECT zk_release_lease('line', $first)");
	assert_refused($stranger, 'line', $place, 'the place is refused to other roles in its turn, too');
	is(lease($app, 'line'), $place, 'its role has the lease in its turn');
};

# What anybody can write that can write there.
subtest 'a lease whose binding cannot be read is refused to every role' => sub {
	my $client = $zk->client;
	lease($app, 'odd');
	my $path = first_in_queue($zk, 'odd');
	my $token = $app->query_safe("SELECT (zk_leader('odd')).token");
	foreach my $bound ('1', '""', '"x"', '"/"', '"1/10"')
	{
		$client->set($path, qq({"client":"zklock","owner":"mailer","ttl":"60000","bound":$bound}));
		assert_query($away, "SELECT zk_release_lease('odd', $token)", '42501', "$bound: no role may release it");
	}
	# Like its own, but for what no number has.
	my ($cluster, $role) = split /\//, $berlin->safe_psql('postgres',
		"SELECT concat(system_identifier, '/', 'app'::regrole::oid) FROM pg_control_system()");
	foreach my $bound ("$cluster/${role}x", "$cluster/ $role", "$cluster/+$role", "$cluster/", "${cluster}0/$role")
	{
		$client->set($path, qq({"client":"zklock","owner":"mailer","ttl":"60000","bound":"$bound"}));
		assert_query($app, "SELECT zk_release_lease('odd', $token)", '42501', "$bound: no role may release it");
	}
};

subtest 'the log names a role that renews or releases a lease of another' => sub {
	my $from = -s $berlin->logfile;
	my $said = sub ($pattern) { scalar(() = slurp_file($berlin->logfile, $from) =~ /$pattern/g) };
	my $others = qr/that others have taken or renewed/;
	my $token = lease($app, 'own');
	my $again = background($berlin, user => 'app');
	lease($again, 'own');
	$again->query_safe("SELECT zk_release_lease('own', $token)");
	is($said->($others), 0, 'nothing is said of one\'s own');

	$token = lease($app, 'other');
	$berlin->safe_psql('postgres', "SET ROLE stranger; SELECT zk_release_lease('other', $token, '60s')");
	is($said->(qr/LOG:  process \d+ of user "[^"]+" as role "stranger" in database "postgres".* gives up a lease of ZooKeeper lock "other" $others\n.*DETAIL:  Owner "mailer", fencing token $token, delay 60000 ms\. Last taken or renewed by: process \d+ of user "app" in database "postgres" of cluster "berlin"/),
		1, 'the log names both roles and the former owner');

	$token = lease($away, 'far');
	$app->query_safe("SELECT zk_release_lease('far', $token)");
	is($said->(qr/lock "far" $others\n.* of cluster "paris"/), 1, 'the log names the cluster of the former owner');

	my $silent = background($berlin, first => 'SET zklock.publish_identity = off');
	$token = lease($silent, 'silent');
	$app->query_safe("SELECT zk_release_lease('silent', $token)");
	is($said->(qr/lock "silent" $others\n.* by: unknown\./), 1, 'the log says that the former owner is unknown');
	$token = lease($silent, 'silent');
	$silent->query_safe("SELECT zk_release_lease('silent', $token)");
	is($said->(qr/lock "silent" $others/), 1, 'a release of the own lease is not logged');

	$token = lease($away, 'renewed');
	$app->query_safe("SELECT zk_renew_lease('renewed', $token, '60s')") foreach 1 .. 3;
	is($said->(qr/renews a lease of ZooKeeper lock "renewed" $others/), 1, 'renewals are logged once');
};

done_testing();
