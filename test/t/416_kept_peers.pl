
# Other clients get a lock that zklock keeps (zklock.keep) at once, and wait behind a lease as
# long as it is renewed. Tested with the real clients, counters that nothing but the lock
# protects, and the lease worker of a second cluster.

use Peer;
use PostgreSQL::Test::Utils;
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk, 'zklock.session_timeout' => '15s');
my @sessions = map { background($node) } 1 .. 2;
$_->query_safe("SET zklock.keep = '10min'; SELECT zk_lock('first'), zk_unlock('first')")
  foreach @sessions;

# Kazoo's semaphore counts what is there, and has no node of its own until there is room.
my %peer;
foreach my $kind (grep { $_ ne 'Kazoo Semaphore' } Peer::installed(Peer::kinds()))
{
	my $peer = $peer{ Peer::library($kind) } ||= Peer->new($kind, $zk);
	(my $lock = "kept/$kind") =~ tr/ /_/;
	# Not for some seconds after a rival was met for a lock of the same hash.
	poll_until
	{
		$sessions[0]->query_safe("SELECT zk_lock('$lock'), zk_unlock('$lock')");
		$sessions[0]->query_safe("SELECT state FROM zk_session_locks WHERE name = '$lock'") eq 'kept'
	}
	"$lock to be kept", 30;
	my ($own) = queue_nodes($zk, lock_path($lock));
	like($own, marked_as('kept'), "$kind: it is kept");
	$peer->choose(lock_path($lock), $kind);
	is($peer->ask('lock'), 'locked', "$kind: it has it");
	poll_until { !grep { $_ eq $own } queue_nodes($zk, lock_path($lock)) } 'our node to go', 30;
	is($peer->ask('unlock'), 'unlocked', "$kind: and lets go of it");
}

# The ones that take our nodes for what they are.
foreach my $kind (Peer::installed('Curator InterProcessMutex', 'go-zookeeper Lock'))
{
	my $times = 40;
	my $peer = $peer{ Peer::library($kind) };
	(my $lock = "count/$kind") =~ tr/ /_/;
	my $file = PostgreSQL::Test::Utils::tempdir() . '/' . ($lock =~ tr/\//_/r);
	append_to_file($file, "0\n");
	chmod 0666, $file;
	$sessions[0]->query_safe("SELECT zk_lock('$lock'), zk_unlock('$lock')");
	$peer->choose(lock_path($lock), $kind);
	$_->start_query("DO \$\$ BEGIN FOR i IN 1 .. $times LOOP
		PERFORM zk_lock('$lock');
		EXECUTE format('COPY (SELECT %s) TO %L', pg_read_file('$file')::int + 1, '$file');
		PERFORM zk_unlock('$lock');
		PERFORM pg_sleep(random() * 0.02);
		END LOOP; END \$\$") foreach @sessions;
	is($peer->ask("increment $file $times"), 'done', "$kind: it counts");
	foreach my $session (@sessions)
	{
		assert_ends($session, '00000', 'the sessions have counted, too');
	}
	is(slurp_file($file) + 0, 3 * $times, 'nothing is lost');
}

my $guard = cluster('guard', $zk, 'zklock.lease_worker' => 'on');
$guard->safe_psql('postgres', "SELECT zk_try_lease('awake', 'guard', '1 day')");
my ($owner, $second) = @sessions;
foreach my $kind (Peer::installed('Curator InterProcessMutex', 'Kazoo Lock with lock-', 'go-zookeeper Lock'))
{
	my $peer = $peer{ Peer::library($kind) };
	(my $lock = "leased/$kind") =~ tr/ /_/;
	my $token = $owner->query_safe("SELECT zk_try_lease('$lock', 'app', '4s')");
	$peer->choose(lock_path($lock), $kind);
	$peer->start_command('lock');
	wait_for_queue($zk, lock_path($lock), 2);
	$owner->query_safe("SELECT zk_renew_lease('$lock', $token, '4s'), pg_sleep(0.5) FROM generate_series(1, 10)");
	is($owner->query_safe("SELECT zk_renew_lease('$lock', $token, '4s')"), 't', "$kind: who renews a lease keeps it");
	ok(!$peer->is_done, "$kind: it waits behind that");
	is($peer->wait_answer, 'locked', "$kind: and has the lock when nobody renews it");
	is($owner->query_safe("SELECT zk_renew_lease('$lock', $token, '2s')"), 'f', 'the owner cannot renew the lease any more');
	start_in_queue($second, "SELECT zk_try_lease('$lock', 'next', '2s', '60s')", $zk, lock_path($lock), 2);
	ok(!$second->is_done, 'the next owner waits for it');
	is($peer->ask('unlock'), 'unlocked', "$kind: it lets go");
	cmp_ok($second->wait_result, '>', $token, 'the next owner has the lease');
}

foreach my $kind (grep { Peer::missing($_) } Peer::kinds())
{
	subtest "$kind behind a lock that is kept" => sub { Peer::require_installed($kind); };
}

done_testing();
