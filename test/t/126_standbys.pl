
# The work of a holder is as safe as synchronous_commit = on makes it before the next contender
# gets the lock: it survives a failover to a synchronous standby, whatever the setting says. A
# lease ends by time, so its transaction does not begin to commit while the standby does not
# answer. Tested with a real standby whose receiver is stopped.

use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $berlin = cluster('berlin', $zk, init => [ allows_streaming => 1 ], wal_sender_timeout => '10min');
$berlin->safe_psql('postgres', 'CREATE TABLE written (what text)');
my $standby = standby_of($berlin);
my $receiver;
poll_until { $receiver = $standby->safe_psql('postgres', 'SELECT pid FROM pg_stat_wal_receiver') } 'the standby to receive', 60;
demand('*');
my $other = background($berlin);

# Which standbys are synchronous.
sub demand ($names)
{
	my $state = $names eq '' ? 'async' : 'sync';
	$berlin->append_conf('postgresql.conf', "synchronous_standby_names = '$names'");
	$berlin->reload;
	poll_until { $berlin->safe_psql('postgres', 'SELECT sync_state FROM pg_stat_replication') eq $state } "the standby to be $state", 60;
	while_away(sub { wait_for_demand($berlin) }) if $names ne '';
	return;
}

sub written ($what) { return ask($berlin, "SELECT count(*) FROM written WHERE what = '$what'"); }

# The standby receives nothing while that runs.
sub while_away ($code)
{
	kill STOP => $receiver;
	my $is_ok = eval { $code->(); 1 };
	kill CONT => $receiver;
	die $@ if !$is_ok;
	return;
}

# Does the statement wait for the standby?  The lock stays meanwhile.
sub assert_waits ($session, $sql, $name, $what)
{
	while_away(
		sub {
			$session->start_query($sql);
			poll_until
			{
				$session->is_done
				  || ask($berlin, 'SELECT wait_event FROM pg_stat_activity WHERE pid = ' . $session->pid) eq 'SyncRep';
			}
			'it to wait for the standby, or to be done', 60;
			ok(!$session->is_done, "$what: waits for the standby");
			is($other->query_safe("SELECT zk_try_lock('$name')"), 'f', 'no other session gets the lock meanwhile');
		});
	return assert_ends($session, '00000', 'it is done when the standby has it');
}

foreach my $level (qw(off local))
{
	subtest "synchronous_commit = $level: a commit under a lock waits for the standby" => sub {
		my $session = background($berlin);
		$session->query_safe("SET synchronous_commit = $level; SELECT zk_lock('session')");
		assert_waits($session, "INSERT INTO written VALUES ('$level')", 'session', 'session scope');
		is($session->query_safe('SHOW synchronous_commit'), $level, 'the setting is as before');
		$session->query_safe("BEGIN; INSERT INTO written VALUES ('$level'); PREPARE TRANSACTION 'two'");
		assert_waits($session, "COMMIT PREPARED 'two'", 'session', 'COMMIT PREPARED');
		$session->query_safe("SELECT zk_unlock_all(); BEGIN; SELECT zk_xact_lock('xact'); INSERT INTO written VALUES ('$level')");
		assert_waits($session, 'COMMIT', 'xact', 'transaction scope');
		is(written($level), 3, 'all is written');

		# Without a lock the setting is the user's.
		while_away(sub { $session->query_safe("INSERT INTO written VALUES ('unguarded')") });
		$session->quit;
	};
}

# What pg_receivewal has received it tells soon. It flushes at the end of a segment only.
subtest 'synchronous_commit = remote_write: a commit under a lock waits until the standby has flushed it' => sub {
	my $of_receiver = "FROM pg_stat_replication WHERE application_name = 'receiver'";
	my @receivewal = (qw(pg_receivewal --no-loop --status-interval=1 --slot=receiver), '-D', PostgreSQL::Test::Utils::tempdir(),
		'-d', $berlin->connstr . ' application_name=receiver');
	$berlin->command_ok([ @receivewal, '--create-slot' ], 'there is a slot for the receiver');
	my $receiving = IPC::Run::start(\@receivewal, '<', \undef, '>&', \my $output);
	$berlin->append_conf('postgresql.conf', "synchronous_standby_names = 'receiver'");
	$berlin->reload;
	poll_until { ask($berlin, "SELECT sync_state $of_receiver") eq 'sync' } 'the receiver to be the synchronous one', 60;
	my $session = background($berlin);
	while_away(
		sub {
			$session->query_safe("SET synchronous_commit = remote_write; INSERT INTO written VALUES ('without a lock')");
			is(written('without a lock'), 1, 'without a lock a commit waits until it is received');
			$session->query_safe("SELECT zk_lock('received')");
			$session->start_query("INSERT INTO written VALUES ('received')");
			poll_until { $session->is_done || ask($berlin, "SELECT count(*) $of_receiver AND write_lsn >= pg_current_wal_lsn()
				AND EXISTS (SELECT FROM pg_stat_activity AS a WHERE a.pid = @{[ $session->pid ]} AND a.wait_event = 'SyncRep')") eq '1' }
			'it to wait though all is received', 60;
			ok(!$session->is_done, 'under a lock it waits until it is flushed');
		});
	$receiving->kill_kill;
	poll_until { ask($berlin, "SELECT count(*) $of_receiver") eq '0' } 'the receiver to be gone', 60;
	demand('*');
	assert_ends($session, '00000', 'it is done when a standby has flushed it');
	ask($berlin, "SELECT pg_drop_replication_slot('receiver')");
	$session->quit;
};

subtest 'a commit that rests on a lease is refused while the standby does not answer' => sub {
	my $session = background($berlin);
	my $begin = "SELECT zk_try_lease('leased', 'app', '20s') AS token \\gset\nBEGIN; SELECT zk_require_lease('leased', :token);";
	$session->query_safe("$begin INSERT INTO written VALUES ('early')");
	while_away(
		sub {
			my $since = time;
			assert_query($session, 'COMMIT', '40001', 'does not commit without the standby');
			like($session->error, qr/synchronous standbys are too slow for a commit that rests on a lease/, 'the error names the standbys');
			in_time(time - $since, 20, 'after three tenths of its term, and before it is over');
		});
	is(written('early'), 0, 'nothing is written');
	$berlin->wait_for_catchup($standby);
	$session->query_safe("$begin INSERT INTO written VALUES ('leased')");
	assert_query($session, 'COMMIT', '00000', 'it commits when the standby answers');
	is(written('leased'), 1, 'the row is written');

	# Who takes standbys off the list lets the commits go on that wait for them.
	$session->query_safe("SELECT zk_try_lease('leased for long', 'app', '1 day') AS token \\gset
		BEGIN; SELECT zk_require_lease('leased for long', :token); INSERT INTO written VALUES ('let go on')");
	while_away(
		sub {
			$session->start_query('COMMIT');
			poll_until { ask($berlin, 'SELECT wait_event FROM pg_stat_activity WHERE pid = ' . $session->pid) eq 'SyncRep' }
			'it to wait for the standby', 60;
			demand('');
			assert_ends($session, '00000', 'it commits when no standby is demanded any more');
		});
	demand('*');

	# Without anything to commit there is nothing to wait for.
	while_away(
		sub {
			$session->query_safe($begin);
			assert_query($session, 'COMMIT', '00000', 'a transaction that only reads does not wait');
		});
	$session->quit;
};

subtest 'a commit that rests on a lease released by another connection is refused' => sub {
	my $session = background($berlin, 'zklock.commit_guard' => 'quorum');
	$session->query_safe("SELECT zk_try_lease('given up', 'app', '60s') AS token \\gset
		BEGIN; SELECT zk_require_lease('given up', :token); INSERT INTO written VALUES ('given up')");
	is($other->query_safe("SELECT zk_release_lease('given up', token) FROM zk_leader('given up')"), 't', 'another connection releases the lease');
	assert_query($session, 'COMMIT', '40001', 'commit_guard = quorum refuses the commit');
	is(written('given up'), 0, 'nothing is written');
	$session->quit;
};

subtest 'work committed under a lock survives a failover' => sub {
	my $session = background($berlin);
	$session->query_safe("SET synchronous_commit = off; BEGIN; SELECT zk_xact_lock('last'); INSERT INTO written VALUES ('last'); COMMIT");
	$berlin->stop('immediate');
	$standby->promote;
	is($standby->safe_psql('postgres', "SELECT count(*) FROM written WHERE what = 'last'"), 1, 'what was committed under a lock is there');
};

done_testing();
