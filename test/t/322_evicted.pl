
# A session whose lock or place was taken away is told what is known: that its queue node was
# deleted, by zk_evict() or by another client, and where to look. The logs of both sides name the
# same token, whatever their settings, and nothing is left beside the queue. Tested with sessions
# of two clusters.

use List::Util qw(min);
use Proxy;
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my %node = map { $_ => cluster($_, $zk, 'zklock.commit_guard' => 'quorum') } qw(berlin paris);
$node{berlin}->safe_psql('postgres', 'CREATE ROLE clerk LOGIN; CREATE TABLE work (i int); GRANT ALL ON work TO clerk');
my $operator = background($node{paris}, 'zklock.log_locks' => 'none');
my $words = lock_path('.release');
my $see = 'Search for this token in the log of the cluster where zk_evict\(\) was called: it says who called it\.';

# What the DETAIL says.
sub deleted ($token)
{
	return qr/The queue node with fencing token $token was deleted by zk_evict\(\), or by another client of ZooKeeper\./;
}

# Evict whoever stands there in the queue; his token and queue node.
sub evict ($name, $position)
{
	my ($token, $queued) = split /\|/, $operator->query_safe(
		"SELECT token, node FROM zk_lock_queue('$name') WHERE position = $position");
	is($operator->query_safe("SELECT zk_evict('$name', $token)"), 't', 'evicted');
	return ($token, $queued);
}

# What the log of a cluster says from there on, once it says anything like that.
sub log_has ($name, $offset, $pattern, $what)
{
	my $log;
	eval { poll_until { ($log = slurp_file($node{$name}->logfile, $offset)) =~ $pattern } 'the log', 30 };
	return like($log, $pattern, $what);
}

# Both logs tell of it.
sub logs_have ($offset, $token, $queued)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $deleted = deleted($token);
	log_has('berlin', $offset->{berlin},
		qr/queue node of process \d+ for ZooKeeper lock "evicted" was deleted\n.*DETAIL:  $deleted Its name was "\Q$queued\E"\.\n.*HINT:  $see/,
		'the log where the lock was held tells of the deletion');
	my $by = 'process ' . $operator->pid . ' of user "\w+" in database "postgres" from \S+';
	return log_has('paris', $offset->{paris},
		qr/LOG:  $by evicts a contender from ZooKeeper lock "evicted"\n.*queue node "\Q$queued\E", fencing token $token\./,
		'the log of the evicting cluster says by whom, with the same token');
}

sub log_sizes { return { map { $_ => -s $node{$_}->logfile } keys %node }; }

# Nothing is written down for anybody.
sub no_words { return assert_no_nodes($zk, $words, 'nothing is left beside the queue') || die "a word is left\n"; }

subtest 'a holder that is evicted is told at its COMMIT, and both logs tell' => sub {
	foreach my $user (undef, 'clerk')
	{
		my $holder = background($node{berlin}, $user ? (user => $user) : ());
		my $offset = log_sizes();
		$holder->query_safe("SELECT zk_lock('evicted')");
		my ($token, $queued) = evict('evicted', 1);
		assert_query($holder, 'INSERT INTO work VALUES (1)', '40001', 'the evicted holder cannot commit');
		like($holder->error,
			qr/lock "evicted" was lost\nDETAIL:  @{[ deleted($token) ]}\nHINT:  Release it .* run the transaction again\. $see/,
			'the error tells the holder what is known');
		logs_have($offset, $token, $queued);
		no_words();
		$holder->query_safe('SELECT zk_unlock_all()');
		is($holder->query("SELECT zk_try_lock('evicted'), zk_is_held('evicted')"), 't|t', 'the lock can be taken again');
		assert_leave_nothing($zk, lock_path('evicted'), $holder);
	}
};

subtest 'a holder of several locks is told of each that was evicted when it releases them' => sub {
	my $holder = background($node{berlin});
	foreach my $release ('SELECT zk_unlock_all()', 'DISCARD ALL')
	{
		$holder->query_safe("SELECT zk_lock_set(ARRAY['one', 'two', 'three'])");
		my %token = map { $_ => (evict($_, 1))[0] } qw(one two);
		assert_query($holder, 'INSERT INTO work VALUES (1)', '40001', 'the holder of two evicted locks cannot commit');
		$holder->query_safe($release);
		foreach my $name (sort keys %token)
		{
			like($holder->error,
				qr/WARNING:  lock "$name" had been lost before it was released\nDETAIL:  @{[ deleted($token{$name}) ]}\nHINT:  $see/,
				"$release: a warning tells of $name");
		}
		is(scalar(() = $holder->error =~ /WARNING/g), 2, "$release: there is one warning for each");
	}
};

subtest 'a waiter that is evicted is told, and not granted the lock' => sub {
	my $holder = background($node{paris}, holds => 'evicted');
	my $waiter = background($node{berlin}, user => 'clerk');
	my $offset = -s $node{berlin}->logfile;
	start_in_queue($waiter, "SELECT zk_lock('evicted')", $zk, lock_path('evicted'), 2);
	wait_for_wait($node{berlin}, $waiter->pid);
	my ($token, $queued) = evict('evicted', 2);
	my $deleted = deleted($token);
	$holder->query_safe("SELECT zk_unlock('evicted')");
	assert_ends($waiter, '57000', 'the evicted waiter is not granted the lock');
	like($waiter->error, qr/was deleted\nDETAIL:  $deleted\nHINT:  Run the statement again to join the queue again\. $see/,
		'the error tells the waiter what is known');
	log_has('berlin', $offset, qr/DETAIL:  $deleted Its name was "\Q$queued\E"\./, 'the log of that cluster tells the same');
	no_words();
	assert_leave_nothing($zk, lock_path('evicted'), $holder, $waiter);
};

# The lease has not heard of it yet, so the work is committed; the next one holds the lock
# meanwhile. Who releases it learns of it, and so do both logs.
subtest 'a release of a lock that was evicted is warned about, however it is released' => sub {
	$node{berlin}->safe_psql('postgres', 'CREATE TABLE overlap (i int)');
	my %way = (
		zk_unlock => [ '', 'zk_lock', "SELECT zk_unlock('evicted')", 'f' ],
		'zk_unlock of several' => [ '', 'zk_lock', "SELECT zk_unlock_set(ARRAY['evicted'])", 'f' ],
		'zk_unlock, at the end of the transaction' => [ 'BEGIN', 'zk_lock', "SELECT zk_unlock('evicted'); COMMIT", 't' ],
		zk_unlock_all => [ '', 'zk_lock', 'SELECT zk_unlock_all()', '' ],
		'zk_unlock_all, at the end of the transaction' => [ 'BEGIN', 'zk_lock', 'SELECT zk_unlock_all(); COMMIT', '' ],
		'DISCARD ALL' => [ '', 'zk_lock', 'DISCARD ALL', '' ],
		'the end of a transaction' => [ 'BEGIN', 'zk_xact_lock', 'COMMIT', '' ],
		# The news comes meanwhile, and is not about the other lock.
		'likewise the end, and then zk_unlock of another one' => [ "SELECT zk_lock('good'); BEGIN", 'zk_xact_lock',
			"ROLLBACK; SELECT zk_unlock('good') FROM pg_sleep(0.3)", 't' ],
		'a lock that was held in both modes' => [
			"SELECT zk_lock('evicted'), zk_lock_shared('evicted'); SELECT zk_unlock('evicted')",
			'zk_fencing_token', "SELECT zk_unlock_shared('evicted')", 'f' ],
		'a kept lock' => [ "SET zklock.keep = '1min'", 'zk_lock', "SELECT zk_unlock('evicted')", 'f' ]);
	my $ntold = 0;
	foreach my $way (sort keys %way)
	{
		my ($begin, $function, $release, $result) = @{ $way{$way} };
		my ($holder, $next) = map { background($node{$_}) } qw(berlin paris);
		my $offset = log_sizes();
		$holder->query_safe("SET zklock.commit_guard = 'fresh'; $begin");
		$holder->query_safe("SELECT $function('evicted')");
		my ($token, $queued) = evict('evicted', 1);
		$next->query_safe("SELECT zk_lock('evicted')");
		$holder->query('INSERT INTO overlap VALUES (1)');
		if ($holder->sqlstate eq '40001' && $ntold++ < 8)
		{
			note('again: it was held for more than a moment, and so he was told');
			$_->quit foreach $holder, $next;
			redo;
		}
		is($holder->sqlstate, '00000', "$way: the lease lets it work");

		my $released = $holder->query($release);
		if ($holder->error eq '' && $way !~ /end/ && $ntold++ < 8)
		{
			note('again: the answer took longer than the lock was held, and for no longer it is awaited');
			$_->quit foreach $holder, $next;
			redo;
		}
		is($released, $result, "$way: the result of the release");
		# At the end of a transaction nobody waits for the answer.
		poll_until { $holder->error ne '' || $holder->query('SELECT') . $holder->error } 'the news', 30
		  if $way =~ /end/;
		like($holder->error,
			qr/WARNING:  lock "evicted" had been lost before it was released\nDETAIL:  @{[ deleted($token) ]}\nHINT:  $see/,
			"$way: a warning says what is known");
		logs_have($offset, $token, $queued);
		no_words();
		$holder->query_safe('SELECT');
		is($holder->error, '', "$way: the loss is told once");
		assert_leave_nothing($zk, lock_path('evicted'), $holder, $next);
	}
};

# A cycle that is short does not become long for that. The best of several, for busy machines.
subtest 'a release is waited for as long as the lock was held' => sub {
	my $proxy = Proxy->new($zk->connect_string);
	my $holder = background($node{berlin}, route => $proxy->address, first => q(SELECT zk_lock('brief'), zk_unlock('brief')));
	my @took;
	while (@took < 3 || @took < 10 && min(@took) >= 0.7)
	{
		# Or a delete of before, for which nobody waits, springs the trap.
		poll_until { $holder->query_safe('SELECT pending_requests FROM zk_session') eq '0' } 'it to be confirmed', 30;
		$proxy->trap(2, 1, 'replies');    # delete
		$holder->query_safe("SELECT zk_lock('brief'), pg_sleep(0.02)");
		push @took, -time;
		is($holder->query("SELECT zk_unlock('brief')"), 't', 'the brief lock is released');
		$took[-1] += time;
		$proxy->come_back;
	}
	in_time(min(@took), 0.7, 'a brief lock is not waited for a second');
};

# Promised is one second.
subtest 'a release of a lock that was held for long is waited for a second at most' => sub {
	my $proxy = Proxy->new($zk->connect_string);
	my $holder = background($node{berlin}, route => $proxy->address, 'zklock.session_timeout' => '1min', is_connected => 1);
	assert_within
	{
		poll_until { $holder->query_safe('SELECT pending_requests FROM zk_session') eq '0' } 'former requests to be answered', 30;
		$holder->query_safe("SELECT zk_lock('long'), pg_sleep(5)");
		$proxy->trap(2, 1, 'replies');    # delete
		my $begun = time;
		is($holder->query("SELECT zk_unlock('long')"), 't', 'the lock is released without an answer');
		my $took = time - $begun;
		$proxy->come_back;
		$took;
	}
	3, 'zk_unlock() after five seconds of the lock';
	$holder->quit;
};

# With the ensemble away nobody waits for long, and not for each one.
subtest 'releases without an answer wait once, and not for each lock' => sub {
	my $holder = background($node{berlin}, first => "SELECT zk_lock(i::text) FROM generate_series(1, 20) AS i");
	$zk->pause;
	my $begun = time;
	is($holder->query("SELECT bool_and(zk_unlock(i::text)) FROM generate_series(1, 20) AS i"), 't', 'all 20 locks are released');
	in_time(time - $begun, 15, q(only the first one waits));
	$zk->resume;
};

subtest 'a holder whose node another client deleted is told the same' => sub {
	my $holder = background($node{berlin});
	my $offset = -s $node{berlin}->logfile;
	my $token = $holder->query_safe("SELECT zk_lock('evicted')");
	my ($queued) = queue_nodes($zk, lock_path('evicted'));
	$zk->client->delete(lock_path("evicted/$queued"));
	$holder->query('INSERT INTO work VALUES (1)');
	like($holder->error, qr/DETAIL:  @{[ deleted($token) ]}\nHINT/, 'the error tells the same of a deletion by another client');
	log_has('berlin', $offset, qr/DETAIL:  @{[ deleted($token) ]} Its name was "\Q$queued\E"\./, 'the log names the node that was deleted');
};

is($node{berlin}->safe_psql('postgres', 'SELECT count(*) FROM work'), 0, 'no work under an evicted lock was written');
done_testing();
