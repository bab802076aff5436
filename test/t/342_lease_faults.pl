
# Leases stay right where calls are canceled or killed, or come on a standby, where strangers set
# or make nodes, and where deletes are refused. Tested with sessions of two
# clusters, one behind a proxy that holds back requests and replies.

use Proxy;
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $proxy = Proxy->new($zk->connect_string);
my $berlin = cluster('berlin', $zk, servers => $proxy->address,
	init => [ allows_streaming => 1 ], 'zklock.session_timeout' => '20s', restart_after_crash => 'on');
my $paris = cluster('paris', $zk);
my $stranger = $zk->client;
my ($here, $there) = (background($berlin, is_connected => 1), background($paris));
$berlin->safe_psql('postgres', 'CREATE TABLE work (who text)');

sub lease ($session, $name, $owner, $more = "'60s'")
{
	return $session->query_safe("SELECT zk_try_lease('$name', '$owner', $more)");
}

sub node_of ($name) { return (queue_nodes($zk, lock_path($name)))[0]; }

subtest 'zk_try_lease() that is canceled, terminated or killed leaves nothing for long' => sub {
	lease($there, 'middle', 'other');
	my $waiting = background($berlin);
	start_in_queue($waiting, "SELECT zk_try_lease('middle', 'app', '60s', '60s')", $zk, lock_path('middle'), 2);
	$waiting->cancel;
	assert_ends($waiting, '57014', 'the wait for a lease is canceled');
	wait_for_queue($zk, lock_path('middle'), 1);

	my $terminated = background($berlin);
	start_in_queue($terminated, "SELECT zk_try_lease('middle', 'app', '1 day', '60s')", $zk, lock_path('middle'), 2);
	$terminated->terminate;
	assert_nodes($zk, lock_path('middle'), 1, 'terminated while it waits, its place goes with it');

	start_in_queue($waiting, "SELECT zk_try_lease('middle', 'app', '2s', '60s')", $zk, lock_path('middle'), 2);
	my ($queue, $since) = (join(' ', queue_nodes($zk, lock_path('middle'))), time);
	poll_until { $there->query_safe(q{SELECT zk_try_lock('middle')}); time > $since + 4 } 'twice its term to pass', 30;
	is(join(' ', queue_nodes($zk, lock_path('middle'))), $queue, 'while it waits its place stays');
	kill KILL => $waiting->pid;
	wait_for_queue($zk, lock_path('middle'), 1);
	wait_for_recovery($berlin, $waiting->pid);
	$here = background($berlin, is_connected => 1);

	# What it has made another call of the owner's may have found, and renewed.
	$there->query_safe(q{SELECT zk_release_lease('found', zk_try_lease('found', 'app', '60s'))});
	$proxy->trap(14, 1, 'replies');    # multi, that makes the lease
	$here->start_query("SELECT zk_try_lease('found', 'app', '60s')");
	assert_soon { (node_of('found') // '') =~ /-8a14-/ } 'the lease is made';
	my $token = lease($there, 'found', 'app');
	$here->cancel;
	assert_ends($here, '57014', 'the call whose lease was found is canceled');
	$proxy->heal;
	assert_soon { $here->query_safe('SELECT pending_requests FROM zk_session') eq '0' } 'the canceled call has given up its lease';
	is($there->query_safe("SELECT zk_renew_lease('found', $token, '60s')"), 't', 'the lease that was renewed stays');

	my $from = -s $berlin->logfile;
	$here->query_safe("SET zklock.log_locks = 'all'");
	my $delayed = lease($here, 'given up', 'app');
	$proxy->trap(5, 1, 'replies');    # setData
	$here->start_query("SELECT zk_release_lease('given up', $delayed, '2s')");
	poll_until { $proxy->is_sprung } 'it to be given up', 30;
	$proxy->come_back;
	is($here->wait_result, 't', 'the reply to its end is lost, which is to come with a delay');
	ok($berlin->log_contains(qr/gives up a lease of ZooKeeper lock "given up"\n.*DETAIL:  Owner "app", fencing token $delayed\./, $from), 'the log says whose lease has ended');
	$here->query_safe('RESET zklock.log_locks');
};

# Each waits for what the other one does, and for nothing else.
subtest 'a wait for a lease ends when the lease does' => sub {
	my $token = lease($there, 'line', 'first');
	start_to_wait($here, "SELECT zk_try_lease('line', 'second', '1 day', '60s')");
	my $since = time;
	$there->query_safe("SELECT zk_release_lease('line', $token)");
	cmp_ok($here->wait_result, '>', $token, 'the lease of the one that waits begins');
	in_time(time - $since, 30, 'the wait for a lease ends at once');

	$token = lease($there, 'refused', 'first', "'2s'");
	$stranger->set_acl(lock_path('refused'), [ [ 31 & ~8, 'world', 'anyone' ] ]);
	my $from = -s $berlin->logfile;
	$here->start_query("SELECT zk_try_lease('refused', 'second', '1 day', '60s')");
	assert_soon { $berlin->log_contains(qr/removing a lease below znode "\S+\/refused" that was not renewed for 2000 ms/, $from) }
		'the delete of an old lease is tried';
	$stranger->set_acl(lock_path('refused'), [ [ 31, 'world', 'anyone' ] ]);
	cmp_ok($here->wait_result, '>', $token, 'the delete of an old lease is tried again after a refusal');

	$token = lease($there, 'refused too', 'app');
	$stranger->set_acl(lock_path('refused too'), [ [ 31 & ~8, 'world', 'anyone' ] ]);
	assert_query($there, "SELECT zk_release_lease('refused too', $token)", '42501', 'zk_release_lease() raises when its delete is refused');
	$stranger->set_acl(lock_path('refused too'), [ [ 31, 'world', 'anyone' ] ]);
	is($there->query_safe("SELECT zk_release_lease('refused too', $token)"), 't', 'zk_release_lease() may be tried again');

	my ($all, $read) = (31, 1);
	$token = lease($there, 'hidden', 'app');
	my $hidden = lock_path('hidden') . '/' . node_of('hidden');
	$stranger->set_acl($hidden, [ [ $all & ~$read, 'world', 'anyone' ] ]);
	assert_query($here, "SELECT $_('hidden', $token)", '42501', "$_(): a lease that may not be read is not said to be gone")
	  foreach qw(zk_release_lease zk_require_lease);
	$stranger->set_acl($hidden, [ [ $all, 'world', 'anyone' ] ]);
	is($here->query_safe("SELECT zk_release_lease('hidden', $token)"), 't', 'a lease that may be read again is given up');
};

subtest 'a renewal that comes before a late delete keeps the lease' => sub {
	my $token = lease($there, 'late', 'app', "'2s'");
	is($here->query_safe("SELECT zk_try_lock('late')"), 'f', 'the lease is not free at first');
	$here->query_safe('SELECT pg_sleep(2.1)');
	$proxy->trap(2, 1, 'rest');    # delete
	$here->start_query("SELECT zk_try_lock('late')");
	assert_soon { $proxy->is_sprung } 'a delete of the old lease is under way';
	is($there->query_safe("SELECT zk_renew_lease('late', $token, '2s')"), 't', 'a renewal comes before the delete');
	$proxy->heal;
	is($here->wait_result, 'f', 'the late delete deletes nothing');
	is($there->query_safe("SELECT zk_renew_lease('late', $token, '2s')"), 't', 'the owner still has the renewed lease');

	$proxy->trap(5, 1, 'replies');    # setData
	$here->query_safe("BEGIN; INSERT INTO work VALUES ('late')");
	$here->start_query("SELECT zk_require_lease('late', $token)");
	my $next = $there->query_safe("SELECT zk_lock('late', '30s')");
	cmp_ok($next, '>', $token, 'somebody else has it before the reply to a renewal is there');
	$proxy->heal;
	is($here->wait_result, '', 'zk_require_lease() ends without an error');
	assert_query($here, 'COMMIT', '40001', 'COMMIT is refused: the renewal is as old as its request');
};

# Its own renewal is done by the server, and somebody evicts the lease behind it, before the answer
# comes after more than a third of the session timeout.
subtest 'the renewal by a commit is as old as its request' => sub {
	my $session = background($berlin, is_connected => 1, 'zklock.session_timeout' => '6s');
	my $token = lease($there, 'guarded', 'app');
	$session->query_safe("SET zklock.commit_guard = quorum; BEGIN; SELECT zk_require_lease('guarded', $token);
		INSERT INTO work VALUES ('guarded')");
	$proxy->trap(5, 1, 'replies');    # setData
	$session->start_query('COMMIT');
	poll_until { $proxy->is_sprung } 'the commit to renew the lease', 30;
	my $until = time + 2.1;
	is($there->query_safe("SELECT zk_evict('guarded', $token)"), 't', 'the lease is evicted');
	poll_until { time > $until } 'a third of the session timeout to pass';
	$proxy->heal;
	assert_ends($session, '40001', 'the commit is refused');
	is($berlin->safe_psql('postgres', "SELECT count(*) FROM work WHERE who = 'guarded'"), 0, 'nothing is written');
};

# The transaction that deletes the twin makes the lease, and sets the lock's name.
subtest 'a lease whose answer takes long, or is lost, is renewed at once' => sub {
	my $noted = lock_path('.leases/slow');
	my $take = sub ($term) { "SELECT zk_try_lease('slow', 'app', '$term')" };
	my $release = q{SELECT zk_release_lease('slow', (zk_leader('slow')).token)};
	my $times_noted = sub ($do) {
		my $before = $stranger->exists($noted)->{version};
		$do->();
		return $stranger->exists($noted)->{version} - $before;
	};
	my $version = sub { $stranger->exists(lock_path('slow') . '/' . node_of('slow'))->{version} };
	$here->query_safe($_) foreach $take->('1 day'), $release;
	assert_least
	{
		my $count = $times_noted->(sub { $here->query_safe($take->('1 day')) });
		is($version->(), 0, 'a new lease needs no renewal');
		$here->query_safe($release);
		$count;
	}
	1, 'the name is noted once';
	foreach my $end ('heal', 'come_back')
	{
		my $count = $times_noted->(
			sub {
				$proxy->trap(14, 1, 'replies');    # multi
				$here->start_query($take->('6s'));
				assert_soon { (node_of('slow') // '') =~ /-8a14-/ } 'the lease is made';
				my $until = time + 2.1;
				poll_until { time > $until } 'a third of its term to pass';
				$proxy->$end;
				like($here->wait_result, qr/^\d+$/, "$end: the lease is taken");
			});
		cmp_ok($version->(), '>', 0, "$end: the lease was renewed");
		is($count, 1, "$end: the name of its lock is noted once");
		is(scalar(queue_nodes($zk, lock_path('slow'))), 1, "$end: one node is left");
		$here->query_safe($release);
	}
};

# Each step of the taking, of a name that is not noted yet, and of one that is.
subtest 'a call that is canceled or terminated in a step leaves nothing, or one lease for a term' => sub {
	foreach my $step ([ 15, 'create of the twin' ], [ 14, 'the transaction' ])
	{
		my ($type, $what) = @$step;
		foreach my $way ('rest', 'replies')
		{
			foreach my $end ('cancel', 'terminate')
			{
				my $name = "step/$type/$way/$end";
				my $session = background($berlin, is_connected => 1);
				$proxy->trap($type, 1, $way);
				$session->start_query("SELECT zk_try_lease('$name', 'app', '1 day')");
				poll_until { $proxy->is_sprung } "$what to be under way", 30;
				$session->$end;
				$proxy->heal;
				assert_soon { !queue_nodes($zk, lock_path($name)) } "$what, $way, $end: nothing is left";
			}
		}
	}
};

subtest 'a COMMIT ends with the lease or the session when its server hangs' => sub {
	# Without another session, it is over when that cannot be connected, or when it takes too long.
	foreach my $case ([ '2s', '20s', qr/^40001$/ ], [ '60s', '4s', qr/^0800[16]$/ ])
	{
		my ($term, $timeout, $sqlstate) = @$case;
		my $session = background($berlin, is_connected => 1, 'zklock.session_timeout' => $timeout,
			first => "SET zklock.connect_timeout = '2s'");
		my $token = lease($there, "hang $term", 'app', "'$term'");
		$session->query_safe("SET zklock.commit_guard = quorum; BEGIN; SELECT zk_require_lease('hang $term', $token);
			INSERT INTO work VALUES ('hang')");
		$proxy->cut;
		my $since = time;
		$session->query('COMMIT');
		like($session->sqlstate, $sqlstate, "with a lease of $term");
		in_time(time - $since, 15, 'the COMMIT ends with the lease or the session');
		$proxy->heal;
	}

	# The session is lost, and there is another one before the term is over.
	my $lost = background($berlin, is_connected => 1, 'zklock.session_timeout' => '4s');
	my $kept = lease($there, 'kept on', 'app');
	$lost->query_safe("SET zklock.commit_guard = quorum; BEGIN; SELECT zk_require_lease('kept on', $kept); INSERT INTO work VALUES ('next session')");
	$proxy->cut;
	my $number = $lost->query_safe('SELECT session_id FROM zk_session');
	$lost->start_query('COMMIT');
	my $until = time + 4.5;
	poll_until { time > $until } 'the session to be lost';
	$proxy->heal;
	is($lost->wait_result, '', 'a COMMIT goes on in the next session');
	is($berlin->safe_psql('postgres', "SELECT count(*) FROM work WHERE who = 'next session'"), 1, 'what the next session has proved is written');
	isnt($lost->query_safe('SELECT session_id FROM zk_session'), $number, 'it was another session');

	# The connection breaks behind the renewal, whose outcome is unknown; so the commit reads the
	# lease of two, and the term of the other one is over first.
	my $session = background($berlin, is_connected => 1);
	my ($short, $long) = (lease($there, 'over', 'app', q('3s')), lease($there, 'on', 'app'));
	$session->query_safe("BEGIN; SELECT zk_require_lease('over', $short), zk_require_lease('on', $long);
		SET LOCAL zklock.commit_guard = quorum; INSERT INTO work VALUES ('hang')");
	$proxy->trap(5, 1, 'replies');    # setData
	$session->start_query('COMMIT');
	poll_until { $proxy->is_sprung } 'the commit to renew a lease', 30;
	$proxy->go_away;
	assert_ends($session, '40001', 'COMMIT without a connection when the shortest term is over');
	like($session->error, qr/the lease of lock "over"/, 'the error names the lease whose term is over');
	$proxy->come_back;
	is($berlin->safe_psql('postgres', "SELECT count(*) FROM work WHERE who = 'hang'"), 0, 'nothing was committed');
};

# A renewal of the same millisecond came before the commit: a quorum is asked anew.
subtest 'a commit right after a renewal asks a quorum anew' => sub {
	my $token = lease($here, 'at once', 'app');
	$here->query_safe('SET zklock.commit_guard = quorum');
	my $version = sub { return $stranger->exists(lock_path('at once') . '/' . node_of('at once'))->{version}; };
	foreach my $round (1 .. 20)
	{
		my $before = $version->();
		$here->query_safe("BEGIN; INSERT INTO work VALUES ('at once'); SELECT zk_require_lease('at once', $token); COMMIT");
		is($version->() - $before, 2, "round $round: one renewal by the call, and one by the commit");
	}
	$here->query_safe('RESET zklock.commit_guard');
};

subtest 'a lease is not free sooner than others were told' => sub {
	my $token = lease($there, 'term', 'app');
	$here->query_safe("BEGIN; SELECT zk_require_lease('term', $token); INSERT INTO work VALUES ('long')");
	is($there->query_safe("SELECT zk_renew_lease('term', $token, '2s')"), 't', 'the lease is renewed for less');
	assert_query($there, "SELECT zk_lock('term', '4s')", '55P03', 'the lease is not free sooner than was said before');
	$here->query_safe('COMMIT');

	# A node of the same name elsewhere is of a higher version already.
	$token = lease($there, 'known', 'app', "'4s'");
	my $forged = lock_path('else') . '/' . node_of('known');
	$stranger->create_path(lock_path('else'));
	$stranger->create($forged, '{"owner":"x","term":"60000"}');
	$stranger->set($forged, '{"owner":"x","term":"60000"}');
	is($here->query_safe("SELECT zk_try_lock('else')"), 'f', 'a node of that name is seen');
	$here->query_safe('SELECT pg_sleep(4.2)');
	is($there->query_safe("SELECT zk_renew_lease('known', $token, '4s')"), 't', 'the owner renews the lease');
	is($here->query_safe("SELECT zk_try_lock('known')"), 'f', 'the lease is not free before its renewed term is over');
	is($there->query_safe("SELECT zk_renew_lease('known', $token, '4s')"), 't', 'the owner still has the renewed lease');
	$stranger->delete($forged);

	# Whoever looks at both in turn times each of them.
	my @twins = ('a twin', 'another twin');
	foreach my $name (@twins)
	{
		$stranger->create_path(lock_path($name));
		$stranger->create(lock_path($name) . '/' . node_of('term'), '{"client":"zklock","owner":"x","term":"2000"}');
	}
	assert_soon { "@{[ map { $here->query_safe(qq{SELECT zk_try_lock('$_')}) } @twins ]}" eq 't t' } 'two leases of one name end with their terms';
	$here->query_safe("SELECT zk_unlock('$_')") foreach @twins;
};

subtest 'nodes that strangers set or make are no leases of ours' => sub {
	my $token = lease($there, 'set', 'app', "'2s'");
	$stranger->set(lock_path('set') . '/' . node_of('set'), '{"owner":"app","term":"2000"}');
	is($here->query_safe("SELECT zk_renew_lease('set', $token, '2s')"), 'f', 'a lease whose owner was overwritten is not renewed');
	assert_query($here, "SELECT zk_lock('set', '3s')", '55P03', 'a lease without a term is there for the longest term');
	$stranger->set(lock_path('set') . '/' . node_of('set'), '{"client":"zklock","owner":"app","term":"9000000000000000"}');
	is($here->query_safe("SELECT lease_expires_at BETWEEN now() AND now() + '2 days' FROM zk_lock_queue('set')"), 't', 'a lease is there for no longer than the longest term');
	is($here->query_safe("SELECT zk_evict('set', $token)"), 't', 'the overwritten lease is evicted');
	is($here->query_safe("SELECT zk_try_lock('set'), zk_unlock('set')"), 't|t', 'the lock of the evicted lease is free');
	lease($there, 'set too', 'app');

	# A lease is of no session.
	$stranger->create_path(lock_path('mortal'));
	my $mortal = $stranger->create(lock_path('mortal') . '/' . node_of('set too'), '{"client":"zklock","owner":"x","term":"2000"}', ephemeral => 1);
	assert_query($here, "SELECT zk_lock('mortal', '3s')", '55P03', 'a node that is a lease by its name, and of a session, is none');
	ok(!!$stranger->exists($mortal), 'a node of a session is not deleted as a lease');
	$stranger->delete($mortal);

	# Of the same path, and even the same version.
	$token = lease($here, 'anew', 'app');
	my $path = lock_path('anew') . '/' . node_of('anew');
	my @copy = ($path, '{"client":"zklock","owner":"app","term":"60000"}');
	my $replace = sub { $stranger->delete($path); $stranger->create(@copy); };
	$replace->();
	is($here->query_safe("SELECT zk_renew_lease('anew', $token, '60s')"), 'f', 'a lease that was made anew is another one');
	is(lease($here, 'anew', 'app'), '', 'it is no lease of the owner for the session that knows the first one');
	my $other = background($berlin, is_connected => 1);
	$proxy->trap(5, 1, 'rest');    # setData
	$other->start_query("SELECT zk_release_lease('anew', $token, '60s')");
	assert_soon { $proxy->is_sprung } 'the end of the lease is under way';
	$replace->();
	$stranger->set(@copy);
	$proxy->heal;
	is($other->wait_result, 'f', 'a lease made anew meanwhile is not given up');
	$stranger->delete($path);

	# Somebody else has the lock.
	$there->query_safe("SELECT zk_lock('behind')");
	my $behind = lock_path('behind') . '/' . (node_of('set too') =~ s/.{10}$/0000000009/r);
	$stranger->create($behind, '{"client":"zklock","owner":"app","term":"86400000"}');
	my $forged = $here->query_safe("SELECT token FROM zk_lock_queue('behind') WHERE position = 2");
	is(lease($here, 'behind', 'app'), '', 'a lease that is forged behind a holder is not its owner\'s');
	is($here->query_safe("SELECT zk_renew_lease('behind', $forged, '60s')"), 'f', 'a lease that is forged behind a holder is not renewed');
	is($here->query_safe("SELECT zk_try_lease('behind', 'app', '60s', '1s')"), '', 'nor does a wait end with it');
	$stranger->delete($behind);
	$there->query_safe("SELECT zk_unlock('behind')");

	my $name = node_of('set too') =~ s/.{10}$/0000000000/r;
	$stranger->create_path(lock_path('forged'));
	$stranger->create(lock_path('forged') . "/$name", '{"owner":"app","term":"2000"}', ephemeral => 1);
	is(lease($here, 'forged', 'app'), '', 'an ephemeral node is no lease');
	assert_query($here, "SELECT zk_lock('forged', '3s')", '55P03', 'an ephemeral node is not timed as a lease');
	$stranger->delete(lock_path('forged') . "/$name");

	$stranger->create(lock_path('forged') . "/$name", '{"client":"zklock","owner":"x","term":"0"}');
	$stranger->create(lock_path('forged') . "/$name/child", '');
	my $log = -s $paris->logfile;
	assert_query($there, "SELECT zk_lock('forged', '3s')", '55P03', 'a lease that cannot be deleted stays');
	my @lines = slurp_file($paris->logfile, $log) =~ /removing a lease below/g;
	cmp_ok(scalar(@lines), '<', 5, 'the delete of a lease is tried now and then');
};

# With all reads under way at once the time for n leases would grow with n times n.
subtest 'leases of a long queue are read many at a time, but not all at once' => sub {
	my $name = node_of('set too') =~ s/.{10}$//r;
	$stranger->create_path(lock_path('long'));
	$stranger->create(lock_path('long') . '/' . $name . sprintf('%010d', $_), qq({"owner":"o$_","term":"86400000"})) foreach 1 .. 600;
	my $received = $zk->packets_received;
	$proxy->trap(4, 1, 'replies');    # getData
	$here->start_query("SELECT zk_try_lease('long', 'o600', '60s')");
	assert_soon { $zk->packets_received > $received + 64 } 'many leases are read at a time';
	cmp_ok($zk->packets_received, '<', $received + 100, 'not all leases are read at a time');
	$proxy->heal;
	is($here->wait_result, '', 'the call reads all leases in the end');
	wait_for_queue($zk, lock_path('long'), 600);
	$stranger->delete(lock_path('long') . "/$_") foreach queue_nodes($zk, lock_path('long'));
};

# The worker deletes the name of a lock without leases, unless somebody may be about to make one.
subtest 'the lease worker drops no name that was set meanwhile' => sub {
	my $own = Proxy->new($zk->connect_string);
	my $rome = cluster('rome', $zk, servers => $own->address, 'zklock.lease_worker' => 'on');
	$rome->safe_psql('postgres', "SELECT zk_try_lease('awake', 'rome', '1 day')");
	$own->trap(2, 1, 'rest');    # delete
	$stranger->create(lock_path('.leases/idle'), 'idle');
	assert_soon { $own->is_sprung } 'a name is about to be dropped later', 60;
	my @names = $stranger->children(lock_path('.leases'));
	$stranger->set(lock_path(".leases/$_"), $_) foreach @names;
	$own->heal;
	lease($there, 'next', 'app');    # behind the delete
	my %left = map { $_ => 1 } $stranger->children(lock_path('.leases'));
	is_deeply([ grep { !$left{$_} } @names ], [], 'each name that was set meanwhile stays');
	$rome->stop;
};

subtest 'a lease is renewed in a read-only transaction, and not in an aborted one' => sub {
	my $token = lease($there, 'read', 'app');
	is($here->query_safe("BEGIN READ ONLY; SELECT zk_renew_lease('read', $token, '60s'); COMMIT"), 't', 'a lease is renewed in a read-only transaction');
	is($here->query_safe("BEGIN READ ONLY; SELECT zk_require_lease('read', $token); COMMIT"), '', 'a read-only transaction may rest on a lease');
	assert_query($here, "BEGIN; SELECT 1/0", '22012', 'a statement aborts the transaction');
	assert_query($here, "SELECT zk_renew_lease('read', $token, '60s')", '25P02', 'zk_renew_lease() is refused in an aborted transaction');
	$here->query_safe('ROLLBACK');
};

# The application goes on with its token where the standby has become the primary.
subtest 'the token of a lease is good on the standby that has become the primary' => sub {
	$berlin->backup('copy');
	my $standby = PostgreSQL::Test::Cluster->new('standby');
	$standby->init_from_backup($berlin, 'copy', has_streaming => 1);
	$standby->start;
	my $token = lease($here, 'failover', 'app', "'60s'");
	my $session = background($standby);
	is($session->query_safe("SELECT zk_renew_lease('failover', $token, '60s')"), 't', 'the lease is renewed on a standby');
	$here->query_safe("BEGIN; SELECT zk_require_lease('failover', $token); INSERT INTO work VALUES ('old'); COMMIT");
	$berlin->wait_for_catchup($standby);
	$berlin->stop('immediate');
	$standby->promote;
	$session->query_safe("BEGIN; SELECT zk_require_lease('failover', $token); INSERT INTO work VALUES ('new'); COMMIT");
	is($standby->safe_psql('postgres', "SELECT string_agg(who, ' ' ORDER BY who) FROM work WHERE who IN ('old', 'new')"),
		'new old', 'the token is good on the new primary');
	is(lease($session, 'failover', 'app'), $token, 'the owner has the lease on the new primary');
	is(lease($there, 'failover', 'other'), '', 'another owner does not get the lease');
	is($session->query_safe("SELECT zk_release_lease('failover', $token)"), 't', 'the owner gives the lease up');
};

done_testing();
