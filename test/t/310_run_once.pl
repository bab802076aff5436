
# zk_run_once() tells one of all callers to run a slot: also when the connection breaks between
# the request and its reply, when the ensemble restarts, and when the first caller has long
# finished. Tested with sessions of two clusters, and a proxy that cuts what one of them asks.
# (Many callers at a time: the torture, of the kind "once".)

use Proxy;
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $proxy = Proxy->new($zk->connect_string);
my %node = (berlin => cluster('berlin', $zk, servers => $proxy->address), paris => cluster('paris', $zk));
my $stranger = $zk->client;

# What is above the records exists, so that one request makes a record.
$node{paris}->safe_psql('postgres', "SELECT zk_run_once('job', 'parents')");

sub record ($job, $slot) { return lock_path(".once/$job.once/$slot.once"); }

sub run_once ($session, $slot) { return $session->query("SELECT zk_run_once('job', '$slot')"); }

# The record is made by a transaction, and nobody hears of it.
sub lose_reply { return $proxy->trap(14, 1, 'replies'); }

sub wait_for_record ($slot)
{
	poll_until { $stranger->exists(record('job', $slot)) } "the record of $slot", 30;
	return;
}

subtest 'zk_run_once() whose request is lost asks again, and may be too late' => sub {
	my ($session, $rival) = map { background($node{$_}, is_connected => 1) } qw(berlin paris);
	# One asks while somebody else is faster, one while nobody is.
	foreach my $wins ('t', 'f')
	{
		$proxy->cut('requests');
		start_to_wait($session, "SELECT zk_run_once('job', 'request $wins')");
		is(run_once($rival, "request $wins"), 't', 'the rival is told to run the slot')
		  if $wins eq 'f';
		$proxy->come_back;
		is($session->wait_result, $wins, "the answer of the session whose request was lost");
		is(run_once($rival, "request $wins"), 'f', 'the rival is not told to run the slot after that');
	}
};

subtest 'a record outlives the session that made it, and the next one finds it' => sub {
	my $session = background($node{berlin});
	my $rival = background($node{paris}, is_connected => 1);
	$session->query_safe("SET zklock.session_timeout = '2s'");
	run_once($session, 'before');
	my $id = $session->query_safe('SELECT session_id FROM zk_session');
	lose_reply();
	$session->start_query("SELECT zk_run_once('job', 'lost')");
	wait_for_record('lost');
	poll_until { $zk->four_letter_word('dump') !~ /\Q$id\E\b/ } 'the session to end', 30;
	is(run_once($rival, 'lost'), 'f', 'another session is not told to run the slot');
	$proxy->come_back;
	is($session->wait_result, 't', 'the record is found by the next session');
	isnt($session->query_safe('SELECT session_id FROM zk_session'), $id, 'the next session has another id');

	# Its delete is done, and the slot claimed anew, when the next session goes on.
	$id = $session->query_safe('SELECT session_id FROM zk_session');
	$proxy->trap(14, 3, 'replies');
	$session->start_query("SELECT zk_forget_run('job', 'lost')");
	poll_until { !$stranger->exists(record('job', 'lost')) } 'it to be deleted', 30;
	is(run_once($rival, 'lost'), 't', 'the slot is free once the record is deleted');
	poll_until { $zk->four_letter_word('dump') !~ /\Q$id\E\b/ } 'the session to end', 30;
	$proxy->come_back;
	$session->wait_result;
	is(run_once($rival, 'lost'), 'f', 'the record of the later run stays');
};

subtest 'the record of a backend that was terminated says by whom the slot was taken' => sub {
	my ($session, $rival) = map { background($node{$_}, is_connected => 1) } qw(berlin paris);
	lose_reply();
	$session->start_query("SELECT zk_run_once('job', 'gone')");
	wait_for_record('gone');
	kill 'TERM', $session->pid;
	$session->wait_result;
	$proxy->come_back;
	is(run_once($rival, 'gone'), 'f', 'a backend that ends there leaves the slot taken');
	is($rival->query_safe("SELECT pid FROM zk_runs('job') WHERE slot = 'gone'"),
		$session->pid, 'the record says which backend has taken the slot');
	is($rival->query_safe("SELECT zk_forget_run('job', 'gone')"), 't', 'zk_forget_run() frees the slot');
	is(run_once($rival, 'gone'), 't', 'the freed slot is run by another session');
};

# The answer has come, and so has the cancel, when the backend goes on: nobody hears the answer.
# Also if nothing is said to the server's log in between. No other record is there, or these
# would be asked for next.
subtest 'zk_run_once() that is canceled as its reply comes gives the slot to the next call' => sub {
	my ($session, $rival) = map { background($node{$_}, is_connected => 1) } qw(berlin paris);
	my ($program) = session_programs($session->pid);
	my $turns = sub { slurp_file("/proc/$program/status") =~ /^voluntary_ctxt_switches:\s+(\d+)/m ? $1 : 0 };
	foreach my $log (qw(administrative none))
	{
		$session->query_safe("SET zklock.log_locks = '$log'");
		my ($job, $sql) = ("alone $log", "SELECT zk_run_once('alone $log', 'slot')");
		$stranger->create_path(lock_path(".once/$job.once"));
		lose_reply();
		$session->start_query($sql);
		poll_until { $stranger->exists(record($job, 'slot')) } 'the record', 30;
		kill 'STOP', $session->pid;
		my $before = $turns->();
		$proxy->heal;
		poll_until { $turns->() > $before } 'its program to hear the answer', 30;
		kill 'INT', $session->pid;
		kill 'CONT', $session->pid;
		assert_ends($session, '57014', "log_locks = $log: it is canceled");
		is($rival->query($sql), 'f', 'another session is not told to run the slot');
		is($session->query($sql), 't', 'the session that was canceled is told to run the slot when it asks again');
		is($session->query($sql), 'f', 'the session that was canceled is told once');
	}
};

subtest 'records and calls outlive a restart of the ensemble' => sub {
	my ($session, $rival) = map { background($node{$_}, is_connected => 1) } qw(berlin paris);
	is(run_once($session, 'kept'), 't', 'a slot is claimed before the restart');
	$zk->stop;
	$proxy->go_away;
	$session->start_query("SELECT zk_run_once('job', 'restart')");
	$rival->start_query("SELECT zk_run_once('job', 'kept')");
	wait_for_wait($node{berlin}, $session->pid);
	$zk->start;
	$proxy->heal;
	is($session->wait_result, 't', 'a session that asks during the restart is told to run the slot');
	is($rival->wait_result, 'f', 'a slot claimed before the restart stays claimed');
	is(run_once($rival, 'restart'), 'f', 'a slot claimed during the restart stays claimed');
};

# A record is deleted when its own time is over, whatever others ask for theirs.
subtest 'a record is deleted when its own time is over, and others stay' => sub {
	my $session = background($node{paris}, is_connected => 1);
	my $other = $zk->client;
	my %strange = (
		note => 'no record',
		'other.once' => 'a record of another client, which does not say for how long',
		'lies.once' => '{"client":"zklock","retain":"0","retain":"-1"}',
		'x-0000000000' => '',
		'_c_6ba7b810-9dad-4a12-80b4-00c04fd430c8-permits-5-lock-0000000000' => '',
		'_c_6ba7b810-9dad-8a12-80b4-00c04fd430c8-lock-0000000000' => '{"client":"zklock","twin":""}');
	$session->query_safe("SELECT zk_run_once('kept', 'long', '1 hour'), zk_run_once('kept', 'short', '0')");
	$other->create(lock_path(".once/kept.once/$_"), $strange{$_}) foreach sort keys %strange;
	$other->create(lock_path(".once/kept.once/$_"), '{"retain":"0"}') foreach 'parent.once', 'parent.once/child';
	$other->create(lock_path('.once/kept.once/session.once'), '{"retain":"0"}', ephemeral => 1);
	$session->query_safe("SELECT zk_run_once('kept', 'old ' || i, '1 ms') FROM generate_series(1, 150) AS i");
	my $left = sub {
		return $session->query_safe("SELECT count(*) FROM zk_runs('kept') WHERE slot LIKE 'old %'");
	};
	my $calls = 0;
	while ($left->() > 0 && $calls < 200)
	{
		$calls++;
		$session->query_safe("SELECT pg_sleep(0.01), zk_run_once('kept', 'more $calls', '0')");
	}
	is($left->(), 0, "old records go, here with $calls more claims");
	$session->query_safe("SELECT pg_sleep(0.01), zk_run_once('kept', 'last', '0')");
	poll_until { $session->query_safe("SELECT count(*) FROM zk_runs('kept') WHERE slot LIKE 'more %'") eq '0' }
	'those claims to go, too, beside one that has children', 30;
	ok($other->exists(lock_path(".once/kept.once/$_")), "$_ stays")
	  foreach sort(keys %strange), 'parent.once/child', 'session.once';
	is($session->query_safe("SELECT zk_run_once('kept', 'long')"), 'f',
		'one that is to be kept stays, whatever others ask for theirs');
	is($session->query_safe("SELECT zk_run_once('kept', 'short')"), 't', 'a record that was to be kept for no time has gone');
	is(run_once($session, 'unharmed'), 't', 'a record of another job can still be made');

	# Nobody waits for strangers.
	$session->query_safe("SET lock_timeout = '4s'");
	is($session->query_safe("SELECT zk_forget_run('kept', 'long')"), 't', 'a record is deleted');
	is($session->query_safe("SELECT zk_forget_run('kept', 'other')"), 't', 'a record of another client is deleted');
	$other->delete(lock_path(".once/kept.once/$_"))
	  foreach 'session.once', 'parent.once/child', 'parent.once', grep { $_ ne 'other.once' } keys %strange;
};

# A delete names a path, and the slot may have been claimed anew meanwhile. Each of
# these deletes is stopped on its way until somebody else has deleted the record,
# and claimed the slot.
subtest 'a late delete of a record leaves the one that was made anew' => sub {
	# zk_run_once() makes its record before, zk_forget_run() has two checks: multis as well.
	my @late = ([ "zk_run_once('racy', 'new %d', '0')", 2 ], [ "zk_forget_run('racy', 'old %d')", 3 ]);
	my @other = ("zk_run_once('racy', 'newer %d', '0')", "zk_forget_run('racy', 'old %d')");
	my $watcher = $zk->client;
	my ($late, $other, $claimer) = map { background($node{$_}, is_connected => 1) } qw(berlin paris paris);
	my $number = 0;
	foreach my $first (@late)
	{
		foreach my $second (@other)
		{
			$number++;
			my ($sql, $faster) = map { sprintf "SELECT $_", $number } $first->[0], $second;
			my $old = record('racy', "old $number");
			$claimer->query_safe("SELECT zk_run_once('racy', 'old $number', '0'); SELECT pg_sleep(0.01)");
			$proxy->trap(14, $first->[1], 'rest');
			$late->start_query($sql);
			poll_until { $proxy->is_sprung } 'the delete to be sent', 30;
			$other->query_safe($faster);
			poll_until { !$watcher->exists($old) } 'the other one to delete it', 30;
			is($claimer->query_safe("SELECT zk_run_once('racy', 'old $number', '1 hour')"), 't',
				"$sql; $faster: the slot is claimed anew");
			$proxy->heal;
			is($late->wait_result, $sql =~ /forget/ ? 'f' : 't', 'the late delete has deleted nothing');
			is($late->sqlstate, '00000', 'the late call sees no error');
			# behind the delete
			$late->query_safe("SELECT count(*) FROM zk_runs('racy')");
			is($claimer->query_safe("SELECT zk_run_once('racy', 'old $number')"), 'f', 'no other session has the slot');
		}
	}
	$claimer->query_safe("SELECT zk_forget_run('racy', slot) FROM zk_runs('racy')");
	assert_no_nodes($zk, lock_path('.once/racy.once'), 'no record of the job is left');
};

# The version of the guard is a counter of 32 bits, and one of its values means any
# version to the server.
subtest 'each deletion of a record counts in the version of the guard' => sub {
	my $session = background($node{paris}, is_connected => 1);
	my $watcher = $zk->client;
	my $version = sub { return $watcher->exists(lock_path('.once'))->{version}; };
	my $before = $version->();
	is($session->query_safe("SELECT zk_run_once('counted', 'a'), zk_forget_run('counted', 'a')"),
		't|t', 'a record is deleted');
	is($version->(), $before + 1, 'the deletion counts in the version of the guard');
	is($session->query_safe("SELECT zk_forget_run('counted', 'a')"), 'f', 'no record is deleted where there is none');
	is($version->(), $before + 1, 'a deletion of nothing does not count');
};

# Ages are differences of the clocks of two servers, of two leaders for example. The
# one who leads when the record is made is 40 days behind, or the one who leads when it
# might be deleted is a day ahead; or the database is, that might delete it.
subtest 'clocks that differ delete no record before its time' => sub {
	plan skip_all => 'no libfaketime' unless ZooKeeper::can_set_clocks();
	my %case = (
		'made by a server that is behind' => [ '-40d', [ 1, 3 ], 2, '30 days' ],
		'met by a server that is ahead' => [ '+1d', [ 1, 2 ], 3, '1 hour' ]);
	foreach my $what (sort keys %case)
	{
		my ($clock, $first, $then, $retain) = @{ $case{$what} };
		# Of two with the same data that one leads which has the higher number.
		my $three = ZooKeeper->new(servers => 3, clocks => { 3 => $clock })->start(@$first);
		my ($made, $old) = map {
			my $session = background($node{paris}, 'zklock.servers' => $three->connect_string);
			$session;
		} 1 .. 2;
		is($three->leader, $first->[1], "$what: the leader");
		is($made->query_safe("SELECT zk_run_once('late', 'slot', '$retain')"), 't', 'a slot is claimed');
		is($old->query_safe("SELECT zk_run_once('late', 'old', '0')"), 't', 'a slot is claimed for no time');
		$three->start($then);
		$three->kill_leader;
		$three->wait_ready;
		is($three->leader, $then, 'another server leads');
		# Each of these looks at all records there are.
		$made->query_safe("SELECT zk_run_once('late', i::text, '1 hour') FROM generate_series(1, 10) AS i");
		is($old->query_safe("SELECT zk_run_once('late', 'slot', '$retain')"), 'f', 'the record is still there');
		is($old->query_safe("SELECT zk_run_once('late', 'old')"), 't', 'the record that was to be kept for no time has gone');
	}

	my $ahead = cluster('ahead', $zk, environment => ZooKeeper::clock('+1d'));
	my $session = background($ahead);
	is($session->query_safe("SELECT zk_run_once('day', 'own', '1 hour')"), 't', 'a database that is a day ahead');
	is($node{paris}->safe_psql('postgres', "SELECT zk_run_once('day', 'other', '1 hour')"), 't', 'a slot of a cluster whose clock is right is run');
	$session->query_safe("SELECT zk_run_once('day', i::text, '1 hour') FROM generate_series(1, 10) AS i");
	is($session->query_safe("SELECT bool_or(zk_run_once('day', slot)) FROM unnest(ARRAY['own', 'other']) AS slot"),
		'f', 'deletes neither');
};

done_testing();
