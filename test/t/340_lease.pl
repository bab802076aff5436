
# Leases of locks belong to an owner, not to a session: this tests who takes, renews, sees and
# loses them, over two clusters, and what a transaction that rests on one may commit. Tested with
# real servers.

use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $berlin = cluster('berlin', $zk);
my $paris = cluster('paris', $zk);
$_->safe_psql('postgres', 'CREATE TABLE work (who text)') foreach $berlin, $paris;

my ($here, $there) = (background($berlin), background($paris));

sub lease ($session, $name, $owner, $more = "'30s'")
{
	return $session->query_safe("SELECT zk_try_lease('$name', '$owner', $more)");
}

sub shared ($session, $name, $owner, $more = "'30s'")
{
	return $session->query_safe("SELECT zk_try_lease_shared('$name', '$owner', $more)");
}

# A query that ends with that SQLSTATE and says that.
sub assert_says ($session, $sql, $sqlstate, $what, $pattern)
{
	assert_query($session, $sql, $sqlstate, $what);
	like($session->error, $pattern, "$what: and says so");
	return;
}

subtest "a lease is its owner's, from any session and cluster" => sub {
	my $token = lease($here, 'one', 'app');
	cmp_ok($token, '>', 0, 'a token');
	is(lease($here, 'one', 'app'), $token, 'the owner gets the same token again');
	is(lease($there, 'one', 'app'), $token, 'the owner gets the same token from another cluster');
	is(lease($there, 'one', 'other'), '', 'nobody else gets it');
	my $since = time;
	$there->query_safe("SET lock_timeout = '2s'");
	is(lease($there, 'one', 'other', "'30s', '45s'"), '', 'another owner does not get the lease within lock_timeout');
	$there->query_safe('RESET lock_timeout');
	in_time(time - $since, 30, 'lock_timeout ends the wait');
	is($there->query_safe("SELECT zk_try_lock('one')"), 'f', 'the lock is busy for a try');
	is($there->query_safe("SELECT zk_renew_lease('one', $token, '30s')"), 't', 'renewed by its token');
	is($there->query_safe("SELECT zk_renew_lease('one', $token + 1, '30s')"), 'f', 'another token renews nothing');
	is($there->query_safe("SELECT zk_renew_lease('two', $token, '30s')"), 'f', 'the token renews no lease of another lock');
	is($there->query_safe("SELECT zk_release_lease('one', $token)"), 't', 'the lease is released');
	is($here->query_safe("SELECT zk_renew_lease('one', $token, '30s')"), 'f', 'a released lease is not renewed');
	assert_says($here, "SELECT zk_release_lease('one', $token)", '00000', 'a released lease is not released again',
		qr/there is no lease of lock "one" with that token/);
	my $next = lease($there, 'one', 'other');
	cmp_ok($next, '>', $token, 'the next one has a greater token');
	$there->query_safe("SELECT zk_release_lease('one', $next)");
	assert_no_nodes($zk, lock_path('one'));
};

subtest 'zk_leader(), zk_lock_queue() and zk_who() show a lease' => sub {
	my $token = lease($here, 'seen', 'app', "'30s', data => 'host:80'");
	is($here->query_safe(
			"SELECT owner, data, token, expires_at - since > '25s', is_overdue FROM zk_leader('seen')"),
		"app|host:80|$token|t|f", 'zk_leader()');
	is($there->query_safe(
			"SELECT state, lease_owner, data, lease_expires_at IS NOT NULL FROM zk_lock_queue('seen')"),
		'held|app|host:80|t', 'zk_lock_queue()');
	like($there->query_safe("SELECT concat_ws('|', who, location) FROM zk_who('seen')"),
		qr/^app\|lease until \d\d:\d\d:\d\d$/, 'zk_who()');
	$there->query_safe("SELECT zk_renew_lease('seen', $token, '40s')");
	is($here->query_safe("SELECT owner, data FROM zk_leader('seen')"), 'app|host:80', 'a renewal keeps owner and data');
	lease($there, 'seen', 'app', "'30s', data => 'other:81'");
	is($here->query_safe("SELECT data FROM zk_leader('seen')"), 'other:81', 'the owner sets other data');
	assert_told($there, "SELECT zk_lock('seen', '100ms')", qr/A lease of "app" for 40000 ms/, 'the error of a wait names the lease');
	is($there->sqlstate, '55P03', 'the wait ends with 55P03');
	is($here->query_safe("SELECT zk_leader('nobody') IS NULL"), 't', 'zk_leader() is NULL where no contender leads');
	my $led = q{SELECT owner FROM zk_leader('led')};
	$there->query_safe("SELECT zk_lock('led')");
	like($here->query_safe($led), qr/^process \d+ of user ".+" in database "postgres" of cluster "paris"/, 'a session that holds the lock leads');
	$berlin->safe_psql('postgres', "CREATE ROLE ordinary LOGIN; CREATE FUNCTION led() RETURNS text LANGUAGE sql SECURITY DEFINER RETURN ($led)");
	is(background($berlin, user => 'ordinary')->query_safe("SELECT coalesce(($led), led(), 'nobody')"), 'nobody', 'an ordinary role is not told who leads');
	$there->query_safe("SELECT zk_unlock('led')");
	lease($here, $_, 'app') foreach 'p/q', 'p%2Fq';
	my $names = join ' ', sort $zk->client->children(lock_path('.leases'));
	like($names, qr/\bp%252Fq p%2Fq\b/, 'two names are two for the worker');
	is($here->query_safe("SELECT zk_evict('seen', $token)"), 't', 'evicted');
	is($here->query_safe("SELECT zk_renew_lease('seen', $token, '30s')"), 'f', 'the evicted lease cannot be renewed');
};

subtest 'a lease that is not renewed is lost to another contender' => sub {
	my $token = lease($here, 'late', 'app', "'2s'");
	my $successor = background($paris);
	start_to_wait($successor, "SELECT zk_lock('late', '60s')");
	cmp_ok($successor->wait_result, '>', $token, 'a waiter of another cluster gets the lock');
	is($here->query_safe("SELECT zk_renew_lease('late', $token, '2s')"), 'f', 'the overdue lease cannot be renewed');
	$successor->query_safe("SELECT zk_unlock('late')");

	$token = lease($here, 'late', 'app', "'2s'");
	assert_soon { $there->query_safe("SELECT zk_try_lock('late')") eq 't' } 'tries alone end an overdue lease';
	$there->query_safe("SELECT zk_unlock('late')");
	$token = lease($here, 'late', 'app', "'2s'");
	assert_soon { lease($there, 'late', 'other') ne '' } 'another owner who asks again and again gets the lease';
};

subtest 'a lease that is renewed keeps other contenders out, also for its delay' => sub {
	my $token = lease($here, 'kept', 'app', "'4s'");
	my $waiter = background($paris);
	$waiter->start_query("SELECT zk_lock('kept', '7s')");
	while (!$waiter->is_done)
	{
		is($here->query_safe("SELECT zk_renew_lease('kept', $token, '4s')"), 't', 'renewed') or last;
		$here->query_safe('SELECT pg_sleep(0.3)');
	}
	assert_ends($waiter, '55P03', 'the waiter does not get the lock');
	$here->query_safe("SELECT zk_release_lease('kept', $token, '3s')");
	is(lease($here, 'kept', 'app', "'2s'"), '', 'the delay keeps the owner out, too');
	my $from = -s $paris->logfile;
	assert_soon { lease($there, 'kept', 'other', "'2s'") ne '' } 'another owner gets the lease when the delay is over';
	like(slurp_file($paris->logfile, $from), qr{znode "\S+/kept" that .* 3000 ms\n.*DETAIL:  It has no owner: it was given up with a delay},
		'the log does not speak of an owner without a name');
};

subtest 'shared leases are held together, and keep writers out' => sub {
	my $one = shared($here, 'read', 'a');
	my $two = shared($there, 'read', 'b');
	cmp_ok($two, '>', $one, 'two owners have a shared lease');
	is(shared($there, 'read', 'a'), $one, 'an owner gets the same shared lease again');
	is(lease($there, 'read', 'c'), '', 'nobody gets an exclusive lease meanwhile');
	is($there->query_safe("SELECT zk_try_lock('read'), zk_try_lock_shared('read'), zk_unlock_shared('read')"), 'f|t|t',
		'a shared lock is to be had, and an exclusive one is not');
	assert_says($here, "SELECT zk_try_lease('read', 'a', '30s')", '55000', 'the owner of a shared lease does not get an exclusive one',
		qr/The owner has a shared lease, with fencing token $one\. This call asks for the only lease/);
	is($there->query_safe("SELECT zk_renew_lease('read', $one, '30s')"), 't', 'a shared lease is renewed by its token');
	is($here->query_safe("SELECT count(*) FROM zk_lock_queue('read') WHERE state = 'held' AND mode = 'shared' AND lease_owner IS NOT NULL"),
		2, 'zk_lock_queue() shows two shared leases');
	my $writer = background($paris);
	start_in_queue($writer, "SELECT zk_try_lease('read', 'w', '30s', '60s')", $zk, lock_path('read'), 3);
	is(shared($there, 'read', 'd'), '', 'readers come behind a writer');
	my $reader = background($berlin);
	start_in_queue($reader, "SELECT zk_try_lease_shared('read', 'd', '30s', '60s')", $zk, lock_path('read'), 4);
	$here->query_safe("SELECT zk_release_lease('read', $_)") foreach $one, $two;
	my $token = $writer->wait_result;
	cmp_ok($token, '>', $two, 'the writer gets the lease when both readers have left');
	$here->query_safe("SELECT zk_release_lease('read', $token)");
	cmp_ok($reader->wait_result, '>', $token, 'a reader gets the lease when the writer has left');

	lease($here, 'dies', 'app', "'2s'");
	start_to_wait($writer, "SELECT zk_lock_shared('dies', '60s')");
	cmp_ok($writer->wait_result, '>', 0, 'a shared waiter gets the lock of an exclusive lease that is not renewed');
	$writer->query_safe("SELECT zk_unlock_shared('dies')");
	shared($here, 'die', $_, "'2s'") foreach 'a', 'b', 'c';
	start_to_wait($writer, "SELECT zk_lock('die', '60s')");
	cmp_ok($writer->wait_result, '>', 0, 'a writer gets the lock of three shared leases that are not renewed');
	$writer->query_safe("SELECT zk_unlock('die')");
};

subtest 'with permits so many owners have a lease' => sub {
	my $more = "'30s', permits => 3";
	my @tokens = map { lease($here, 'pool', "o$_", $more) } 1 .. 3;
	is(scalar(grep { $_ ne '' } @tokens), 3, 'three owners have a lease');
	is(lease($there, 'pool', 'o4', $more), '', 'the fourth has none');
	is(lease($there, 'pool', 'o2', $more), $tokens[1], 'the second owner gets the same one again');
	assert_query($there, "SELECT zk_try_lease('pool', 'o5', '30s')", '55000', 'another number of permits is refused');
	my $waiter = background($paris);
	start_in_queue($waiter, "SELECT zk_try_lease('pool', 'o4', '30s', '60s', permits => 3)", $zk, lock_path('pool'), 4);
	is($here->query_safe("SELECT zk_release_lease('pool', $tokens[1])"), 't', 'one of the three is given up');
	cmp_ok($waiter->wait_result, '>', $tokens[2], 'the fourth owner has one then');
	is($here->query_safe("SELECT count(*) FROM zk_lock_queue('pool') WHERE state = 'held' AND permits = 3"), 3, 'zk_lock_queue() shows three');

	# Of three the second is not renewed.
	@tokens = map { lease($here, 'dying', "o$_", $_ == 2 ? "'2s', permits => 3" : $more) } 1 .. 3;
	start_in_queue($waiter, "SELECT zk_try_lease('dying', 'o4', '30s', '60s', permits => 3)", $zk, lock_path('dying'), 4);
	cmp_ok($waiter->wait_result, '>', $tokens[2], 'a waiter gets the lease of the one that is not renewed');
	is($here->query_safe("SELECT zk_renew_lease('dying', $tokens[1], '2s'), zk_renew_lease('dying', $tokens[0], '2s')"), 'f|t', 'the other leases stay');
};

subtest 'an owner has one lease, from whichever connections, modes and permits' => sub {
	my @sessions = ($here, $there, background($paris));
	my @waiting = map { background($berlin) } 1 .. 3;
	my ($count, %tokens) = (1);
	$here->query_safe("SELECT zk_lock('sole')");
	start_in_queue($_, "SELECT zk_try_lease('sole', 'app', '60s', '60s')", $zk, lock_path('sole'), ++$count) foreach @waiting;
	$here->query_safe("SELECT zk_unlock('sole')");
	$tokens{ $_->wait_result } = 1 foreach @waiting;
	is(scalar(keys %tokens), 1, 'all that wait for one owner get one lease');
	assert_nodes($zk, lock_path('sole'), 1, 'one node is left of those that wait');
	foreach my $more ('', ', permits => 5')
	{
		my $name = "sole$more" =~ s/\W//gr . '/together';
		$_->start_query("SELECT zk_try_lease('$name', 'app', '60s', '30s'$more)") foreach @sessions;
		%tokens = map { $_->wait_result => 1 } @sessions;
		is(scalar(keys %tokens), 1, "all that ask at a time get one lease$more");
		assert_nodes($zk, lock_path($name), 1, "one node is left of all that asked$more");
	}
	$_->start_query("SELECT zk_try_lease_shared('soles', 'app', '60s', '30s')") foreach @sessions;
	%tokens = map { $_->wait_result => 1 } @sessions;
	is(scalar(keys %tokens), 1, 'a shared one, too');
	assert_nodes($zk, lock_path('soles'), 1, 'one node is left of those that are shared');
};

# Nobody else times it.
subtest 'a dead lease does not keep its owner from another kind of lease' => sub {
	$here->query_safe("SELECT zk_try_lease_shared('kind', 'app', '2s')");
	is($here->query("SELECT zk_try_lease('kind', 'app', '2s')"), '', 'as long as it is not dead it does');
	is($here->sqlstate, '55000', 'the error says so');
	assert_soon { $here->query("SELECT zk_try_lease('kind', 'app', '60s')") } 'the owner has the other kind of lease';
};

# What was committed under the lease before is not seen.
subtest 'a lease that is taken in a transaction with a fixed snapshot is warned of' => sub {
	my $warning = qr/WARNING:  a lock taken in a transaction with a fixed snapshot does not protect what it reads/;
	$here->query_safe("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT zk_try_lease('fixed', 'app', '60s')");
	like($here->error, $warning, 'a lease that is taken');
	$here->query_safe("SELECT zk_try_lease('fixed', 'app', '60s')");
	unlike($here->error, $warning, 'not one that is renewed');
	$here->query_safe('COMMIT');
};

subtest 'a transaction that rests on a lease commits only while the lease is held' => sub {
	my $token = lease($there, 'work', 'app', "'6s'");
	$here->query_safe("BEGIN; SELECT zk_require_lease('work', $token); INSERT INTO work VALUES ('good'); COMMIT");
	is($berlin->safe_psql('postgres', 'SELECT who FROM work'), 'good', 'the transaction commits');

	$here->query_safe("BEGIN; SELECT zk_require_lease('work', $token); INSERT INTO work VALUES ('late')");
	assert_soon { $there->query_safe("SELECT zk_try_lock('work')") eq 't' } 'somebody else has the lock';
	assert_says($here, 'COMMIT', '40001', 'it does not commit', qr/the lease of lock "work" with fencing token $token is not held/);
	is($berlin->safe_psql('postgres', 'SELECT count(*) FROM work'), '1', 'nothing of the refused transaction is written');
	assert_query($here, "SELECT zk_require_lease('work', $token)", '40001', 'another transaction cannot rest on the lost lease');
	$there->query_safe("SELECT zk_unlock('work')");

	$token = lease($there, 'work', 'app', "'60s'");
	$here->query_safe("BEGIN; SAVEPOINT a; SELECT zk_require_lease('work', $token); ROLLBACK TO a");
	$there->query_safe("SELECT zk_release_lease('work', $token)");
	$here->query_safe("SET LOCAL zklock.commit_guard = quorum; INSERT INTO work VALUES ('no lease'); COMMIT");
	is($berlin->safe_psql('postgres', 'SELECT count(*) FROM work'), '2', 'rolled back, it does not count');

	$token = lease($there, 'work', 'app', "'60s'");
	$here->query_safe("BEGIN; SAVEPOINT a; SELECT zk_require_lease('work', $token); RELEASE a;
		SAVEPOINT b; SELECT zk_require_lease('work', $token); ROLLBACK TO b; INSERT INTO work VALUES ('quorum')");
	$there->query_safe("SELECT zk_release_lease('work', $token)");
	$here->query_safe("SET zklock.commit_guard = quorum");
	assert_query($here, 'COMMIT', '40001', 'commit_guard = quorum asks for the lease at COMMIT');
	# Of a thousand others a backend forgets what it knows; of this one it must not. The setting went
	# with the transaction that failed.
	$token = lease($there, 'work', 'app', "'60s'");
	$here->query_safe("SET zklock.commit_guard = quorum; BEGIN; SELECT zk_require_lease('work', $token);
		INSERT INTO work VALUES ('many');
		SELECT count(zk_try_lease('many/' || i, 'app', '2s')) FROM generate_series(1, 1000) AS i");
	$there->query_safe("SELECT zk_evict('work', $token)");
	assert_query($here, 'COMMIT', '40001', 'the lost lease is found among a thousand others');
	$here->query_safe('RESET zklock.commit_guard');
	$token = lease($there, 'work', 'app', "'60s'");
	$here->query_safe("BEGIN; SELECT zk_require_lease('work', $token); INSERT INTO work VALUES ('given up'); SELECT zk_evict('work', $token)");
	assert_query($here, 'COMMIT', '40001', 'zk_evict() in the transaction itself');
	$token = lease($there, 'work', 'app', "'60s'");
	$here->query_safe("BEGIN; SELECT zk_require_lease('work', $token); SELECT zk_release_lease('work', $token); INSERT INTO work VALUES ('given up')");
	assert_query($here, 'COMMIT', '40001', 'zk_release_lease() in the transaction itself, ahead of what it writes');
	$token = lease($there, 'work', 'app', "'60s'");
	$here->query_safe("BEGIN; SELECT zk_require_lease('work', $token); INSERT INTO work VALUES ('leaks')");
	assert_says($here, "SELECT zk_release_lease('work', $token)", '25001', 'zk_release_lease() behind what the transaction has written',
		qr/would not see what this transaction has written/);
	$here->query_safe('ROLLBACK');
	assert_query($here, "BEGIN; SELECT zk_require_lease('work', $token);
		INSERT INTO work SELECT 'leaks' WHERE zk_release_lease('work', $token)", '25001', 'zk_release_lease() in a statement that writes');
	$here->query_safe("ROLLBACK; INSERT INTO work SELECT 'free' WHERE zk_release_lease('work', $token)");
	is($berlin->safe_psql('postgres', "SELECT count(*) FROM work WHERE who = 'free'"), 1, 'a lease that is not required is given up in any transaction');
	# What a call has told the transaction, no earlier renewal belies.
	foreach my $call ("SELECT zk_renew_lease('work', TOKEN, '60s')", "SELECT zk_release_requested('work', TOKEN)",
		"SAVEPOINT s; SELECT zk_require_lease('work', TOKEN)")
	{
		$token = lease($there, 'work', 'app', "'60s'");
		$here->query_safe("BEGIN; SELECT zk_require_lease('work', $token); INSERT INTO work VALUES ('told')");
		$there->query_safe("SELECT zk_evict('work', $token)");
		$here->query($call =~ s/TOKEN/$token/r);
		$here->query_safe('ROLLBACK TO s') if $call =~ /SAVEPOINT/;
		assert_query($here, 'COMMIT', '40001', "it does not commit behind: $call");
	}
	# A commit that reads it anew finds a node with that token, and no owner.
	$token = lease($there, 'delayed', 'app', "'60s'");
	$here->query_safe("SET zklock.commit_guard = quorum; BEGIN; SELECT zk_require_lease('delayed', $token); INSERT INTO work VALUES ('given up')");
	$there->query_safe("SELECT zk_release_lease('delayed', $token, '1 day')");
	assert_query($here, 'COMMIT', '40001', 'zk_release_lease() elsewhere, with a delay');
	is($here->query_safe("RESET zklock.commit_guard; SELECT lease_owner IS NULL FROM zk_lock_queue('delayed')"), 't', 'it is not taken back');
	my $hasty = background($berlin, 'zklock.session_timeout' => '4s');
	foreach my $end ('zk_release_lease', 'zk_evict')
	{
		$token = lease($there, 'work', 'app', "'1 day'");
		my $write = $end eq 'zk_evict' ? '' : "INSERT INTO work VALUES ('deposed');";
		$hasty->query_safe("BEGIN; SELECT zk_require_lease('work', $token); $write SELECT pg_sleep(1.4)");
		$there->query_safe("SELECT $end('work', $token)");
		assert_query($hasty, 'COMMIT', '40001', "$end() elsewhere, after a third of the session timeout");
	}
	# A third of its session timeout is more than the whole term.
	my $patient = background($berlin, 'zklock.session_timeout' => '30s');
	$token = lease($there, 'work', 'app', "'5s'");
	$patient->query_safe("BEGIN; SELECT zk_require_lease('work', $token); INSERT INTO work VALUES ('old'); SELECT pg_sleep(3.1)");
	$there->query_safe("SELECT zk_evict('work', $token)");
	assert_query($patient, 'COMMIT', '40001', 'no proof is older than six tenths of the term');
	$token = lease($there, 'work', 'app', "'60s'");
	$here->query_safe("BEGIN; SELECT zk_require_lease('work', $token)");
	assert_query($here, "PREPARE TRANSACTION 'p'", '0A000', 'PREPARE TRANSACTION is refused');
};

subtest 'a lease cannot be renewed with other credentials' => sub {
	my $session = background($berlin, 'zklock.auth' => 'digest:one:secret', 'zklock.root' => '/guarded');
	my $token = lease($session, 'guarded', 'app');
	my $other = background($berlin, 'zklock.auth' => 'digest:other:secret', 'zklock.root' => '/guarded');
	assert_says($other, "SELECT zk_renew_lease('guarded', $token, '30s')", '42501', 'a session with other credentials',
		qr/could not use a lease/);
	is($session->query_safe("SELECT zk_release_lease('guarded', $token)"), 't', 'the former credentials may release the lease');
};

# Other bad input: sql/lease.
subtest 'an owner that is too long in UTF-8 is refused' => sub {
	$berlin->safe_psql('postgres', "CREATE DATABASE bytes ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0");
	$berlin->safe_psql('bytes', 'CREATE EXTENSION zklock');
	my $bytes = "repeat(convert_from('\\xfc', 'SQL_ASCII'), 512)";
	assert_says(background($berlin, database => 'bytes'), "SELECT zk_try_lease('bad', $bytes, '9s', data => $bytes)",
		'22023', 'what is too long in UTF-8', qr/The owner has more than 512 bytes/);
	assert_no_nodes($zk, lock_path('bad'));
};

done_testing();
