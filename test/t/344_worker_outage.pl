
# The lease worker is quick where it matters: losses that its cluster knows of are told while
# ZooKeeper is away, work goes on soon after an outage, and many leases delay nothing else. Tested
# with real servers behind proxies that go away or are slow.

use Proxy;
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $proxy = Proxy->new($zk->connect_string);
my $owner = cluster('owner', $zk);
my @worker = ('zklock.lease_worker' => 'on', max_connections => 20);
my $guard = cluster('guard', $zk, @worker, servers => $proxy->address, 'zklock.session_timeout' => '4s');
my $session = background($owner);
my $client = $zk->client;
my $root = lock_path('') =~ s{/$}{}r;

sub lease ($name, $term) { return $session->query_safe("SELECT zk_try_lease('$name', 'app', '$term')"); }

# A session that listens, and what it has heard so far.
sub listener ($node)
{
	my $listener = background($node);
	my $heard = '';
	$listener->query_safe('LISTEN losses');
	return sub ($pattern) {
		$heard .= $listener->query('SELECT 1');
		return $heard =~ /Asynchronous notification "losses" with payload "$pattern"/;
	};
}

# Leases of another cluster wake no worker. It looks as long as there are leases.
sub keep_awake ($node) { return $node->safe_psql('postgres', "SELECT zk_try_lease('awake', 'worker', '1 day')"); }

keep_awake($guard);
my $hears = listener($guard);
my $holder = background($guard, 'zklock.loss_channel' => 'losses');
my $token = $holder->query_safe("SELECT zk_lock('held')");
lease('before', '2s');
assert_nodes($zk, lock_path('before'), 0, 'a lease that is over goes');

subtest 'the lease worker tells losses during an outage and goes on after it' => sub {
	my $from = -s $guard->logfile;
	$proxy->cut;
	assert_soon { $hears->("$token held") } 'a loss that the cluster knows of is told while nobody answers', 60;
	assert_soon { $guard->log_contains(qr/LOG:  the lease worker gets no answer from ZooKeeper/, $from) } 'the log says that ZooKeeper gives no answer', 60;
	lease('outage', '2s');
	$session->query_safe('SELECT pg_sleep(2.1)');
	my $since = time;
	$proxy->come_back;
	assert_soon { !queue_nodes($zk, lock_path('outage')) } 'a lease that is over goes when it has ended', 90;
	my $took = time - $since;
	in_time($took, 20, 'the lease is deleted soon after the outage');
	note(sprintf 'after %.1f s', $took);
	my @said = slurp_file($guard->logfile, $from) =~ /gets no answer/g;
	cmp_ok(scalar(@said), '<=', 2, 'the log line is not repeated');
	$holder->query_safe("SELECT zk_unlock_all()");
};

$guard->stop;

# One after the other these would take a minute.
subtest 'six hundred leases over a slow connection do not delay the telling of a loss' => sub {
	my $slow = Proxy->new($zk->connect_string, delay => 0.025);
	lease('name', '1 day');
	my ($node) = map { s/.{10}$//r } queue_nodes($zk, lock_path('name'));
	my $data = '{"client":"zklock","owner":"app","term":"86400000"}';
	foreach my $number (1 .. 600)
	{
		$client->create_path(lock_path("many$number"));
		$client->create(lock_path("many$number") . "/${node}0000000000", $data);
		$client->create("$root/.leases/many$number", "many$number");
	}
	my $far = cluster('far', $zk, @worker, servers => $slow->address, 'zklock.session_timeout' => '30s',
		'zklock.lease_roots' => "$root-role");
	keep_awake($far);
	my $told = listener($far);
	my $idle = background($far, 'zklock.loss_channel' => 'losses');
	lease('round', '2s');
	assert_soon { !queue_nodes($zk, lock_path('round')) } 'the worker is in the middle of them', 90;
	my $number = $idle->query_safe("SELECT zk_lock('taken')");
	my $since = time;
	$client->delete(first_in_queue($zk, 'taken'));
	assert_soon { $told->("$number taken") } 'a loss is told', 120;
	my $took = time - $since;
	in_time($took, 25, 'the loss is told in time');
	note(sprintf 'after %.1f s', $took);
	$session->query_safe("SET zklock.root = '$root-role'; SELECT zk_try_lease('few', 'app', '2s'); RESET zklock.root");
	assert_soon { !queue_nodes($zk, "$root-role/few") } 'an overdue lease below another root is deleted, too', 60;
	$far->stop;
	$client->delete("$root/.leases/many$_") foreach 1 .. 600;
};

subtest 'a lease worker without a slot is reported by zk_check() and the log' => sub {
	my $few = cluster('few', $zk, @worker, max_worker_processes => 1, log_min_messages => 'debug1');
	my $row = "SELECT state, what, remedy FROM zk_check(false) WHERE item = 'lease worker'";
	like($few->safe_psql('postgres', $row), qr/^warning\|it does not run.*\|.*max_worker_processes/, 'zk_check() says that it does not run');
	ok($few->log_contains(qr/LOG:  there is no slot for the background worker "zklock lease worker"/), 'the log says that there is no slot');
	$few->append_conf('postgresql.conf', 'max_worker_processes = 2');
	my $from = -s $few->logfile;
	$few->restart;
	assert_soon { $few->safe_psql('postgres', $row) =~ /^ok\|it runs, as process \d+/ } 'zk_check() says that it runs when there is a slot';
	my $no_slot = qr/LOG:  there is no slot for the background worker "zklock loss notice"/;
	my @holders;
	# What is noted after the line is followed by another try, and that is over when more is noted.
	foreach my $name (qw(lost second third))
	{
		push @holders, background($few, 'zklock.loss_channel' => 'losses', holds => $name);
		$client->delete(first_in_queue($zk, $name));
		assert_soon { $few->log_contains(qr/lock "$name" of process \d+, .*: lost, to be told on/, $from) && $few->log_contains($no_slot, $from) }
			"the log says that the notice of lock $name has no slot", 60;
	}
	is(scalar(() = slurp_file($few->logfile, $from) =~ /$no_slot/g), 1, 'the log says it once');
	$few->append_conf('postgresql.conf', 'zklock.lease_worker = off');
	$few->reload;
	assert_soon { $few->safe_psql('postgres', $row) =~ /^ok\|switched off/ } 'zk_check() says that it is switched off';
};

done_testing();
