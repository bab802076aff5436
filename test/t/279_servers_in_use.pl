# The list of servers in use is one for the whole cluster: sessions that hold locks, those of idle
# and of busy backends, follow a new zklock.servers that has a server in common with it; any other
# list is refused with a line in the log and a row of zk_check(), no lock is lost, and it comes
# with the next restart. So does another chroot. Tested with three real servers and another
# ensemble, and with a postmaster, backends, parallel workers and ALTER SYSTEM.

use ZkLockTest;

my $zk = ZooKeeper->new(servers => 3)->start;
my $other = ZooKeeper->new->start;
my ($first, @others) = sort { ($a == $zk->leader) <=> ($b == $zk->leader) } $zk->members;
my ($from, $to) = ($zk->connect_string($first), $zk->connect_string(@others));
my $node = cluster('main', $zk, servers => $from, 'zklock.session_timeout' => '40s');
$node->safe_psql('postgres', 'CREATE TABLE done (what text)');

# Which of these servers have a connection of the session?
sub servers_of ($session_id, @members)
{
	@members = $zk->running unless @members;
	return join ' ', grep { $zk->four_letter_word('cons', $_) =~ /\bsid=\Q$session_id\E,/ } @members;
}

# As an administrator does it, with what the log says of it.
sub reload_with ($servers)
{
	my $offset = -s $node->logfile;
	$node->adjust_conf('postgresql.conf', 'zklock.servers', "'$servers'");
	$node->reload;
	poll_until { slurp_file($node->logfile, $offset) =~ /received SIGHUP/ } 'the reload';
	return $offset;
}

sub holder ($name)
{
	return background($node, holds => $name);
}

# A new session, an idle one and that of a busy backend have the same list.
sub assert_in_use ($servers, $what, @sessions)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	assert_becomes { $node->safe_psql('postgres', 'SHOW zklock.servers') } $servers, "$what: a new session";
	is($_->query_safe('SHOW zklock.servers'), $servers, "$what: a session that was there") foreach @sessions;
}

my ($idle, $busy) = map { holder($_) } qw(idle busy);
my %id = (idle => session_id_of($idle), busy => session_id_of($busy));
my $token = $idle->query_safe(q(SELECT zk_fencing_token('idle')));

subtest 'a list without a server in common is refused, and no lock is lost' => sub {
	$busy->start_query('SELECT pg_sleep(600)');
	foreach my $servers ($other->connect_string, $to, '', "$from/chroot", 'zk1:2181,,zk2:2181')
	{
		my $offset = reload_with($servers);
		assert_soon { $node->log_contains(qr/LOG:  invalid value for parameter "zklock.servers": "\Q$servers\E"/, $offset) } "refused: '$servers'";
		assert_in_use($from, 'the former list stays', $idle);
		my $new = holder("new $servers");
		is(servers_of(session_id_of($new)), $first, 'a new session is at the servers of the former list');
		$new->quit;
	}
	like(slurp_file($node->logfile), qr/DETAIL:  The list has no server in common with the one in use, "\Q$from\E", or another chroot\.\n.*HINT:  .*both lists first/,
		'the log says why, and what to do');
	is(scalar(() = slurp_file($node->logfile) =~ /invalid value for parameter "zklock.servers": "\Q$to\E"/g), 1, 'no backend repeats it');
	reload_with($to);
	like($idle->query_safe("SELECT state, what, remedy FROM zk_check(false) WHERE lower(item) = 'zklock.servers' AND state = 'error'"),
		qr/^error\|what stands in .*postgresql\.conf line \d+ is refused: .*\|.*restart/, 'zk_check() has a row of it');
	# Nothing stands in the file that could be refused.
	$node->adjust_conf('postgresql.conf', 'zklock.servers', undef);
	$node->reload;
	assert_soon { $idle->query_safe("SELECT state, what FROM zk_check(false) WHERE lower(item) = 'zklock.servers'") =~ /^error\|\Q$from\E; but it is not set any more/ }
	'zk_check() has a row of a line that was taken out';
	assert_in_use($from, 'the former list stays without a line', $idle);
	$node->append_conf('postgresql.conf', "zklock.servers = '$from'");
	assert_held($idle, 'idle', 'the lock is held');
	is($idle->query_safe(q(SELECT zk_fencing_token('idle'))), $token, 'with the token that it had');
	is(session_id_of($idle), $id{idle}, 'the session is the same');
	ok(!$busy->is_done, 'the busy statement goes on');
};

subtest 'sessions with locks follow a list that has a server in common, and then a new one' => sub {
	reload_with("$from,$to");
	assert_in_use("$from,$to", 'both lists', $idle);
	reload_with($to);
	assert_in_use($to, 'the new list', $idle);
	$zk->stop($first);
	assert_soon { servers_of($id{$_}, @others) } "the session of the $_ backend goes to the new servers when the former one stops" foreach sort keys %id;
	assert_held($idle, 'idle', 'it keeps its lock');
	is($idle->query_safe(q(SELECT zk_fencing_token('idle'))), $token, 'with the token that it had');
	$idle->query_safe("SELECT zk_unlock('idle'), zk_lock('idle')");
	is(session_id_of($idle), $id{idle}, 'it is the same session, also for the next lock');
	assert_query($idle, q(INSERT INTO done VALUES ('moved')), '00000', 'it commits');
	ok(!$busy->is_done, 'the busy statement goes on');
	$busy->cancel;
	assert_ends($busy, '57014', 'the busy statement ends when it is canceled');
	assert_held($busy, 'busy', 'the busy session has its lock');
	$zk->start($first);
};

# Its backend missed the list that had servers of both.
subtest 'a backend that has missed reloads has the list of the others' => sub {
	my $late = background($node);
	$late->start_query('SELECT pg_sleep(600)');
	reload_with("$from,$to");
	assert_in_use("$from,$to", 'both lists');
	reload_with($from);
	assert_in_use($from, 'back');
	$late->cancel;
	assert_ends($late, '57014', 'it ends');
	is($late->query_safe('SHOW zklock.servers'), $from, 'it has the list in use');
	$late->query_safe("SELECT zk_lock('late')");
	is(servers_of(session_id_of($late)), $first, 'its session is at a server of that list');
	$late->quit;
};

subtest 'nobody but the configuration sets servers and credentials' => sub {
	foreach my $setting ("zklock.servers = '$to'", "zklock.auth = 'digest:a:b'")
	{
		my $name = $setting =~ s/ .*//r;
		assert_query($idle, "SET $setting", '55P02', "SET $name");
		assert_query($idle, "$_ SET $setting", '55P02', "$_ SET $name")
		  foreach 'ALTER ROLE CURRENT_USER', 'ALTER DATABASE postgres', 'ALTER FUNCTION zk_lock(text, interval, integer)';
	}
};

subtest 'ALTER SYSTEM stores another list for the next restart, and says so' => sub {
	my $session = background($node);
	assert_query($session, "ALTER SYSTEM SET zklock.servers = 'no port'", '22023', 'a list that cannot be read is an error');
	assert_query($session, "ALTER SYSTEM SET zklock.servers = '" . $other->connect_string . "'", '00000', 'a list without a server in common is stored');
	like($session->error, qr/WARNING:  the new value of "zklock.servers" takes effect with the next restart/, 'with a warning');
	my $offset = -s $node->logfile;
	$node->reload;
	$node->wait_for_log(qr/LOG:  invalid value for parameter "zklock.servers"/, $offset);
	assert_in_use($from, 'the former list stays', $idle, $session);
	$session->query_safe("SET $_ = 0") foreach qw(parallel_setup_cost parallel_tuple_cost min_parallel_table_scan_size);
	like($session->query_safe('EXPLAIN (ANALYZE, COSTS OFF) SELECT sum(relpages) FROM pg_class'),
		qr/Workers Launched: [1-9]/, 'parallel workers start');
	assert_held($idle, 'idle', 'the lock is held');
	$_->quit foreach $idle, $busy, $session;
	$node->restart;
	is($node->safe_psql('postgres', 'SHOW zklock.servers'), $other->connect_string, 'the restart takes the list');
	my $there = holder('there');
	is(scalar(queue_nodes($other, lock_path('there'))), 1, 'locks are in the other ensemble');
	$there->quit;
};

done_testing();
