
# The lease worker deletes overdue leases that no contender of zklock stands beside, so that
# other clients behind them get the lock; and it tells idle sessions of lost locks by NOTIFY.
# Tested with real servers, a proxy, and a cluster whose worker fails, is slow, or is stopped.

use Proxy;
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $proxy = Proxy->new($zk->connect_string);
my $owner = cluster('owner', $zk, servers => $proxy->address,
	'zklock.session_timeout' => '40s', 'zklock.connect_timeout' => '60s');
my $guard = cluster('guard', $zk, init => [ allows_streaming => 1 ],
	'zklock.lease_worker' => 'on', 'zklock.session_timeout' => '20s',
	max_connections => 20);
my $session = background($owner);
my $client = $zk->client;
my $names = lock_path('') . '.leases';

# Leases of the other cluster wake nobody here. The worker looks as long as there are leases.
$guard->safe_psql('postgres', "SELECT zk_try_lease('awake', 'guard', '1 day')");

sub lease ($name, $term) { return $session->query_safe("SELECT zk_try_lease('$name', 'app', '$term')"); }

# No contender of zklock's is there, for none would be seen by zk_lock_queue().
foreach my $name ('dead', 'deep/100%/name')
{
	my $token = lease($name, '2s');
	assert_nodes($zk, lock_path($name), 1, "a lease of $name");
	assert_nodes($zk, lock_path($name), 0, 'the lease that nobody renews is deleted');
	is($session->query_safe("SELECT zk_renew_lease('$name', $token, '2s')"), 'f', 'the owner cannot renew the deleted lease');
}

my $living = lease('living', '1 day');
assert_soon { join(',', sort $client->children($names)) eq 'awake,living' } 'names without leases are dropped', 60;
is($session->query_safe("SELECT zk_renew_lease('living', $living, '60s')"), 't', 'a lease that is not overdue stays');

# A name that was dropped before its lease is there is made again.
lease('slow', '2s');
assert_soon { !$client->exists("$names/slow") } 'a name is dropped', 60;
$proxy->trap(14, 2, 'rest');    # multi, that makes the lease: the first one finds no name
$session->start_query("SELECT zk_try_lease('slow', 'app', '2s')");
assert_soon { $proxy->is_sprung && !$client->exists("$names/slow") } 'and again, before its lease is made', 60;
$proxy->heal;
cmp_ok($session->wait_result, '>', 0, 'the lease is made then');
assert_nodes($zk, lock_path('slow'), 0, 'the lease is deleted when nobody renews it');

$client->create("$names/..%2Fa%00", 'x');
$client->create("$names/zookeeper%2Fquota", 'x');
lease('after', '2s');
assert_nodes($zk, lock_path('after'), 0, 'names that no lock can have do no harm');

# An idle session runs nothing that could tell it. Somebody else listens here, so that it
# stays idle.
subtest 'an idle session that loses a lock is told by NOTIFY' => sub {
	$guard->safe_psql('postgres', 'CREATE DATABASE elsewhere');
	$guard->safe_psql('elsewhere', 'CREATE EXTENSION zklock');
	my $listener = background($guard);
	my $heard = '';
	my $hears = sub ($pattern) {
		$heard .= $listener->query('SELECT 1');
		return $heard =~ /Asynchronous notification "Losses" with payload "$pattern"/;
	};
	$listener->query_safe('LISTEN "Losses"');
	my @elsewhere = (database => 'elsewhere', 'zklock.loss_channel' => 'Losses');
	my $early = background($guard, @elsewhere, holds => 'early');
	my %holder = map { $_ => background($guard, 'zklock.loss_channel' => 'Losses',
			'zklock.session_timeout' => $_ eq 'expired' ? '4s' : '20s') }
	  qw(evicted expired released handed);
	my %token = map { $_ => $holder{$_}->query_safe("SELECT zk_lock('$_')") } keys %holder;
	$holder{evicted}->query_safe("SET zklock.loss_channel = 'of the next lock'; SELECT zk_lock('evicted')");
	my $alone = background($guard, @elsewhere);
	my $number_alone = $alone->query_safe("LISTEN \"Losses\"; SELECT zk_lock('alone')");
	$guard->safe_psql('postgres', "ALTER DATABASE elsewhere SET lock_timeout = '1ms'");
	$guard->safe_psql('postgres', 'ALTER DATABASE elsewhere ALLOW_CONNECTIONS false');
	my $silent = background($guard, holds => 'silent');
	# Settings say where the next session, or lock, is; not where those are that are held.
	my @moved = map { background($guard, 'zklock.loss_channel' => 'Losses') } 1;
	$moved[0]->query_safe("SELECT zk_lock('held'); SET zklock.root = '/elsewhere'; SELECT zk_lock('held, too')");

	# A standby that is away must not keep the notice from its session.
	$guard->append_conf('postgresql.conf', "synchronous_standby_names = 'away'");
	$guard->reload;
	assert_soon { $guard->safe_psql('postgres', 'SHOW synchronous_standby_names') eq 'away' } 'a standby is waited for';
	my ($program) = session_programs($holder{expired}->pid);
	kill 'STOP', $program;    # its session expires
	$client->delete(lock_path($_) . '/' . (queue_nodes($zk, lock_path($_)))[0])
	  foreach qw(evicted alone silent);
	$client->contend(lock_path('evicted/x-lock-'));    # who has it then is somebody else
	$holder{released}->query_safe("SELECT zk_unlock('released')");
	$holder{handed}->query_safe("SELECT zk_lock_shared('handed'); SELECT zk_unlock('handed')");
	foreach my $name (qw(evicted expired))
	{
		assert_soon { $hears->("$token{$name} $name") } "$name: the session is told which lock", 60;
	}
	# A round more, so that what is told is told.
	my $last = $holder{released};
	my $number = $last->query_safe("SELECT zk_lock('the last one')");
	$client->delete(lock_path('the last one') . '/' . (queue_nodes($zk, lock_path('the last one')))[0]);
	assert_soon { $hears->("$number the last one") } 'one that is lost later, too', 60;
	is(scalar(() = $heard =~ /Asynchronous/g), 3, 'each once, and nobody of what is held or released');
	assert_soon { $alone->query('SELECT 1') =~ /payload "$number_alone alone"/ } 'in its database, though that takes no connections', 60;
	kill 'CONT', $program;

	# A transaction that waits for the standby holds up each NOTIFY, but not all workers.
	my $writer = $holder{handed};
	my $queue = 'FROM pg_stat_activity WHERE';
	$writer->start_query('BEGIN; CREATE TABLE written(); NOTIFY "none"; COMMIT');
	assert_soon { $guard->safe_psql('postgres', "SELECT count(*) $queue wait_event = 'SyncRep'") } 'a NOTIFY is held up';
	$last->query_safe("SELECT zk_unlock_all()");
	my %many = map { $_ => $last->query_safe("SELECT zk_lock('many/$_')") } 1 .. 9;
	$client->delete(lock_path("many/$_") . '/' . (queue_nodes($zk, lock_path("many/$_")))[0]) foreach keys %many;
	# In one database each notice fails now. It is no other's turn that it takes.
	$alone->query_safe("SELECT zk_unlock_all(); SELECT zk_lock('late')");
	$client->delete(lock_path($_) . '/' . (queue_nodes($zk, lock_path($_)))[0]) foreach qw(early late);
	my $waiting = "$queue backend_type = 'zklock loss notice' AND wait_event_type = 'Lock'";
	assert_soon { $guard->safe_psql('postgres', "SELECT count(*) $waiting") == 1 } 'and a notice', 60;
	lease('a round', '2s') foreach 1 .. 2;
	assert_nodes($zk, lock_path('a round'), 0, 'rounds go on');
	is($guard->safe_psql('postgres', "SELECT count(*) $queue backend_type = 'zklock loss notice'"), 1, 'one of all');
	$guard->append_conf('postgresql.conf', "synchronous_standby_names = ''");
	$guard->reload;
	$writer->wait_result;
	foreach my $number (sort keys %many)
	{
		assert_soon { $hears->("$many{$number} many/$number") } "$number: it is told then", 60;
	}
	# What is let go of before the notice is sent is not told, nor what has its place by then. Until
	# the postmaster goes on, no worker begins.
	$last->query_safe('SELECT zk_unlock_all()');
	$last->query_safe("SELECT zk_lock('left/$_')") foreach 1, 2;
	$number = $writer->query_safe("SELECT zk_lock('stays')");
	kill 'STOP', $guard->{_pid};
	$client->delete(lock_path($_) . '/' . (queue_nodes($zk, lock_path($_)))[0]) foreach qw(left/1 left/2 stays);
	lease('a round', '2s') foreach 1 .. 2;
	assert_nodes($zk, lock_path('a round'), 0, 'a round has found them');
	$last->query_safe("SELECT zk_unlock('left/1'), zk_unlock('left/2'); SELECT zk_lock('new')");
	kill 'CONT', $guard->{_pid};
	assert_soon { $hears->("$number stays") } 'what stays lost is told', 60;
	unlike($heard, qr/payload "\d+ (?:left|new|")/, 'no loss is told of locks that were released');
	assert_query($last, "SET zklock.loss_channel = '" . 'x' x 64 . "'", '22023', 'what no channel can be named');
};

# A NOTIFY writes nothing that a standby needs, and so waits for none, as a rule. But each 32768th
# transaction begins a page of pg_xact, and that is in the WAL. The notice's is such a one.
subtest 'a standby that is away does not hold up the notice of a loss' => sub {
	my $alone = cluster('alone', $zk, init => [ allows_streaming => 1 ], 'zklock.lease_worker' => 'on',
		'zklock.session_timeout' => '20s', autovacuum => 'off');
	$alone->stop;
	$alone->append_conf('postgresql.conf', "synchronous_standby_names = 'away'");
	system_or_bail($alone->installed_command('pg_resetwal'), '-x', 32_768, $alone->data_dir);
	$alone->start;
	my $holder = background($alone, 'zklock.loss_channel' => 'losses');
	my $listener = background($alone, first => 'LISTEN losses');
	# More locks have come and gone than there are lines for them.
	$holder->query_safe("SELECT zk_lock('before/' || i), zk_unlock('before/' || i) FROM generate_series(1, 40) i");
	my $token = $holder->query_safe("SELECT zk_lock('behind')");
	is($alone->safe_psql('postgres', 'SELECT pg_snapshot_xmax(pg_current_snapshot())'), 32_768, 'the next transaction begins a page');
	$client->delete(lock_path('behind') . '/' . (queue_nodes($zk, lock_path('behind')))[0]);
	assert_soon { $listener->query('SELECT 1') =~ /payload "$token behind"/ } 'it is told', 60;
	$_->quit foreach $holder, $listener;
	$alone->stop;
};

my $worker = $guard->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type = 'zklock lease worker'");
is(scalar(session_programs($worker)), 1, 'the worker has a session');
is($guard->safe_psql('postgres', 'SELECT requests > 0 FROM zk_stat WHERE datname IS NULL'), 't', 'whose requests are of no database');

# What fails in round after round is said once, until a round has gone well. A reload begins one.
subtest 'rounds of the lease worker that fail are logged once, and the next round works' => sub {
	my $from = -s $guard->logfile;
	my $complaint = qr/there is no client certificate to use as the credentials/;
	my $complaints = sub { scalar(() = slurp_file($guard->logfile, $from) =~ /$complaint/g) };
	my $wakes = sub { slurp_file("/proc/$worker/status") =~ /^voluntary_ctxt_switches:\s+(\d+)/m; return $1; };
	foreach my $time (1, 2)
	{
		$guard->append_conf('postgresql.conf', "zklock.auth = 'x509'");
		foreach my $round (1 .. 6)
		{
			my $former = $wakes->();
			$guard->reload;
			assert_soon { $wakes->() > $former } "round $round";
		}
		assert_soon { $complaints->() >= $time } 'the log has the complaint';
		$guard->append_conf('postgresql.conf', "zklock.auth = ''");
		$guard->reload;
		lease("well $time", '2s');
		assert_nodes($zk, lock_path("well $time"), 0, 'the next one is as good as ever');
	}
	is($complaints->(), 2, 'the log has the complaint once each time');
	$guard->safe_psql('postgres', "SELECT pg_cancel_backend($worker)");
	assert_soon { $guard->log_contains(qr/canceling statement due to user request/, $from) } 'a round is cancelled';
	$guard->reload;
	lease('at last', '2s');
	assert_nodes($zk, lock_path('at last'), 0, 'the worker goes on after the cancellation');
	is($guard->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type = 'zklock lease worker'"),
		$worker, 'the worker is the same process');
};

$guard->append_conf('postgresql.conf', 'zklock.lease_worker = off');
$guard->reload;
assert_no_programs('switched off, it has none', $worker);

# Far away, a long queue takes more time to read than there is. Its name has the hash 64, so that
# the server lists it ahead of the others.
my $slow = Proxy->new($zk->connect_string, delay => 0.5);
lease('far', '2s');
my ($name) = map { s/.{10}$//r } queue_nodes($zk, lock_path('far'));
$client->create_path(lock_path('@'));
$client->create(lock_path('@') . '/' . $name . sprintf('%010d', $_), '{"owner":"x","term":"60000"}') foreach 1 .. 1500;
$client->create("$names/\@", '@');
lease("far/$_", '2s') foreach 1 .. 3;
$guard->append_conf('postgresql.conf', "zklock.connect_timeout = '4500ms'");
# Both lists first, then the new one.
foreach my $servers ($zk->connect_string . ',' . $slow->address, $slow->address)
{
	$guard->append_conf('postgresql.conf', "zklock.servers = '$servers'");
	$guard->reload;
	assert_soon { $guard->safe_psql('postgres', 'SHOW zklock.servers') eq $servers } 'the list in use';
}
$guard->append_conf('postgresql.conf', 'zklock.lease_worker = on');
$guard->reload;
assert_soon { !grep { /\d{10}$/ } map { queue_nodes($zk, lock_path("far$_")) } '', '/1', '/2', '/3' } 'overdue leases behind a long queue are deleted', 180;
ok(!!$client->exists("$names/\@"), 'the name of the long queue is not dropped');

# The end of the server interrupts a wait, and is nothing to complain about.
$guard->append_conf('postgresql.conf', "zklock.connect_timeout = '180s'");
$guard->reload;
$slow->cut;
my $from = -s $guard->logfile;
my $since = time;
$guard->stop('fast');
in_time(time - $since, 60, 'the cluster stops in time');
unlike(slurp_file($guard->logfile, $from), qr/FATAL|ERROR|WARNING/, 'the worker logs no error when the cluster stops');

done_testing();
