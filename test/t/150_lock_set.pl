
# A call for several locks takes all of them or none, whatever interrupts it. ZooKeeper is asked
# what is left behind, not the session. Tested with real servers in two clusters. (That no two
# such calls make a deadlock is for the torture, of the kind "set".)

use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $berlin = cluster('berlin', $zk);
my $paris = cluster('paris', $zk);
my $rival = background($paris);

# The locks below 'sev/' that have a node, each as often as it has one: "a b b".
# That of 'sev' itself, an ancestor of them all, is ".".
sub nodes
{
	return join ' ', sort map { m{/sev/(?:([\w/]+)/)?_c_} ? $1 // '.' : () }
	  map { $_->[0] } $zk->ephemerals(lock_path('sev') . '/');
}

# A release is not awaited.
sub nodes_are ($expected, $what)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return assert_becomes { nodes() } $expected, $what;
}

# What a session holds: "a:1+0 b:0+2" is a once in the session, b twice in the
# transaction.
sub assert_holds ($session, $expected, $what)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $holds = $session->query_safe("SELECT coalesce(string_agg(format('%s:%s+%s',
			substr(name, 5), session_acquisitions, xact_acquisitions), ' ' ORDER BY name, mode), '') FROM zk_session_locks");
	return is($holds, $expected, $what);
}

sub names { return 'ARRAY[' . join(', ', map { "'sev/$_'" } @_) . ']'; }

# The one in the middle is held by the rival: a is taken before, c is not even
# asked for. Whatever ends the call then, a goes and what was held stays.
$rival->query_safe("SELECT zk_lock('sev/b')");
my $cancel = 'pg_cancel_backend()';
my %ends = (
	'its timeout' => [ "%s(%s, '400ms')", '55P03', qr/could not obtain lock "sev\/b" within 400 ms/ ],
	'no time' => [ "%s(%s, '0')", '55P03', qr/could not obtain lock "sev\/b"$/m ],
	'lock_timeout' => [ '%s(%s)', '55P03', qr/due to lock timeout/, "SET lock_timeout = '400ms'" ],
	'statement_timeout' =>
	  [ '%s(%s)', '57014', qr/due to statement timeout/, "SET statement_timeout = '400ms'" ],
	$cancel => [ '%s(%s)', '57014', qr/due to user request/ ]);

foreach my $what (sort keys %ends)
{
	foreach my $function (qw(zk_lock_set zk_xact_lock_set))
	{
		subtest "$function() that is ended by $what leaves nothing behind" => sub { ends($what, $function); };
	}
}

sub ends ($what, $function)
{
	my ($call, $sqlstate, $message, $setting) = @{ $ends{$what} };
	my $session = background($berlin, is_connected => 1);
	my $run = sub ($sql, $meanwhile, $names, $state, $error) {
		$session->query_safe($setting) if $setting;
		$sql = sprintf $sql, sprintf $call, $function, names(@$names);
		if ($what eq $cancel)
		{
			start_in_queue($session, $sql, $zk, lock_path('sev/b'), 2);
			nodes_are($meanwhile, 'it waits for one and holds those before it');
			$session->cancel;
			$session->wait_result;
			like($session->error, $error, 'message');
		}
		# On a busy machine the time may be over before it comes to the one that is held.
		else { assert_told($session, $sql, $error, 'message'); }
		is($session->sqlstate, $state, 'SQLSTATE');
		$session->query_safe('RESET lock_timeout; RESET statement_timeout');
	};

	# with nothing held before
	$run->('SELECT %s', 'a b b', [qw(c b a)], $sqlstate, $message);
	assert_holds($session, '', 'holds nothing');
	nodes_are('b', 'nothing left in ZooKeeper');

	# caught, with some of them held before, in both scopes
	$session->query_safe("SELECT zk_lock('sev/a'), zk_lock('sev/d'); BEGIN;
		SELECT zk_xact_lock('sev/a'); SAVEPOINT s; SELECT zk_xact_lock('sev/a')");
	my $before = 'a:1+2 d:1+0';
	assert_holds($session, $before, 'some are held before');
	$run->(
		q{DO $$ BEGIN
			PERFORM %s;
		EXCEPTION WHEN lock_not_available OR query_canceled THEN
			RAISE NOTICE 'caught %%', SQLSTATE;
		END $$}, 'a aa b b d', [qw(d c b a a aa)], '00000', qr/caught $sqlstate/);
	assert_holds($session, $before, 'holds what it held');
	nodes_are('a b d', 'ZooKeeper has the nodes of before');
	$session->query_safe('ROLLBACK TO s');
	assert_holds($session, 'a:1+1 d:1+0', 'the counts are in order');
	$session->query_safe('COMMIT');
	assert_holds($session, 'a:1+0 d:1+0', 'to the end');
	$session->quit;
	nodes_are('b', 'nothing left in ZooKeeper');
	return;
}

subtest 'a failed try of several locks leaves counts and queues as they were' => sub {
	my $session = background($berlin, first => "SELECT zk_lock('sev/a'); BEGIN; SELECT zk_xact_lock('sev/a')");
	foreach my $function (qw(zk_try_lock_set zk_try_xact_lock_set))
	{
		foreach my $timeout ('', ", '1s'")
		{
			is($session->query_safe("SELECT $function(" . names(qw(a c b a aa)) . "$timeout)"),
				'f', "$function$timeout: false");
			assert_holds($session, 'a:1+1', 'holds what it held');
		}
	}
	# In transaction scope a try that fails leaves no trace in the counts.
	$session->query_safe('SAVEPOINT s');
	is($session->query_safe('SELECT zk_try_xact_lock_set(' . names(qw(a a b)) . ')'), 'f', 'false');
	is($session->query_safe('SELECT zk_try_xact_lock_set(' . names(qw(a aa)) . ')'), 't', 'true');
	assert_holds($session, 'a:1+2 aa:0+1', 'counted');
	$session->query_safe('RELEASE s');
	assert_holds($session, 'a:1+2 aa:0+1', 'counted outside');
	$session->query_safe('COMMIT; SELECT zk_unlock_all()');
	nodes_are('b', 'nothing left');
	is($session->query_safe('SELECT zk_try_lock_path(\'sev/b/c\')'), 'f', 'path: false');
	assert_holds($session, '', 'holds nothing');
	nodes_are('b', 'nothing left');
};
$rival->query_safe("SELECT zk_unlock('sev/b')");

# Each wait takes most of the time that is given for both.
subtest 'one timeout bounds the waits for all locks of a set' => sub {
	my $session = background($berlin);
	my $second = background($paris);
	foreach my $bound ([ 'SELECT zk_lock_set(%s, \'6s\')', 'timeout' ],
		[ 'SET lock_timeout = \'6s\'; SELECT zk_lock_set(%s)', 'lock_timeout' ])
	{
		my ($sql, $what) = @$bound;
		$second->query_safe("SELECT zk_lock('sev/b')");
		my $took;
		# On a busy machine the time may be over before it comes to the second.
		foreach my $attempt (1 .. 5)
		{
			note('again: ' . $session->error) if $attempt > 1;
			$rival->query_safe("SELECT zk_lock('sev/a')");
			my $start = time;
			start_in_queue($session, sprintf($sql, names(qw(a b))), $zk, lock_path('sev/a'), 2);
			# four of the six seconds, by the server's clock
			$second->query_safe('SELECT pg_sleep(4)');
			$rival->query_safe("SELECT zk_unlock('sev/a')");
			$session->wait_result;
			$took = time - $start;
			last if $session->error =~ /lock "sev\/b"/;
		}
		is($session->sqlstate, '55P03', "$what: SQLSTATE");
		like($session->error, qr/lock "sev\/b"/, "$what: while it waits for the second");
		cmp_ok($took, '>', 5.9, "$what: not before its time");
		in_time($took, 10, "$what: the bound is not for each lock");
		assert_holds($session, '', 'holds nothing');
		$second->query_safe("SELECT zk_unlock('sev/b')");
		nodes_are('', 'nothing left');
	}
};

# Rows hold, columns ask; a and a/b/c are above and below a/b, a/d beside it.
subtest 'locks of a name and of its ancestors exclude each other as the table says' => sub {
	my @forms = (
		"zk_%slock_path('sev/a')", "zk_%slock_path('sev/a/b')",
		"zk_%slock_path('sev/a/d')", "zk_%slock_path('sev/a', mode => 'shared')",
		"zk_%slock_path('sev/a/b', mode => 'shared')", "zk_%slock('sev/a')",
		"zk_%slock_shared('sev/a')", "zk_%slock('sev/a/b')");
	#                     a  a/b a/d Sa Sa/b Xa Sa' Xa/b
	my %compatible = (
		$forms[0] => [qw(f  f   f   f  f    f  f   t)],
		$forms[1] => [qw(f  f   t   t  f    f  t   f)],
		$forms[2] => [qw(f  t   f   t  t    f  t   t)],
		$forms[3] => [qw(f  t   t   t  t    f  t   t)],
		$forms[4] => [qw(f  f   t   t  t    f  t   f)],
		$forms[5] => [qw(f  f   f   f  f    f  f   t)],
		$forms[6] => [qw(f  t   t   t  t    f  t   t)],
		$forms[7] => [qw(t  f   t   t  f    t  t   f)]);
	my $session = background($berlin);
	foreach my $holder (@forms)
	{
		$session->query_safe('SELECT ' . sprintf $holder, '');
		my @granted;
		foreach my $asker (@forms)
		{
			push @granted, $rival->query_safe('SELECT ' . sprintf $asker, 'try_');
			$rival->query_safe('SELECT zk_unlock_all()');
		}
		is("@granted", "@{ $compatible{$holder} }", sprintf $holder, '');
		$session->query_safe('SELECT zk_unlock_all()');
		nodes_are('', 'nothing left');
	}

	# Who wants the whole waits for all below, and keeps newcomers out.
	$session->query_safe("SELECT zk_lock_path('sev/a/b')");
	$rival->start_query("SELECT zk_lock_path('sev/a')");
	nodes_are('. . a a a/b', 'a session that wants the whole waits for those that have a part');
	my $third = background($berlin);
	is($third->query_safe("SELECT zk_try_lock_path('sev/a/d')"), 'f',
		'a newcomer below stays behind the one who waits for the whole');
	$session->query_safe("SELECT zk_unlock_path('sev/a/b')");
	assert_ends($rival, '00000', 'the whole is had when the last below is released');
	is($rival->query_safe("SELECT zk_unlock_path('sev/a')"), 't', 'released');
	nodes_are('', 'nothing left');
};

# The first is granted, then the session is lost. That lock is the call's, not the
# session's: when the call has failed there is nothing to be released. The rival
# has a longer timeout and keeps its lock.
my $patient = background($paris, 'zklock.session_timeout' => '60s', holds => 'sev/b');
my @short = ('zklock.session_timeout' => '4s');

sub loses ($session, $sql, $sqlstate, @patterns)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	start_in_queue($session, $sql, $zk, lock_path('sev/b'), 2);
	$zk->pause;
	assert_ends($session, $sqlstate, 'SQLSTATE');
	$zk->resume;
	like($session->error, $_, 'says what is lost, since when and why, and what to do') foreach @patterns;
	return;
}

# What was lost can be taken again, and nothing stays behind.
sub goes_on ($session)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($session->query("SELECT zk_try_lock('sev/a', '20s')"), 't', 'can be taken again');
	$session->quit;
	return nodes_are('b', 'nothing left in ZooKeeper');
}

foreach my $function (qw(zk_lock_set zk_xact_lock_set zk_try_lock_set))
{
	my $sql = "SELECT $function(" . names(qw(a b)) . ", '1 minute')";
	subtest "a session lost during $sql fails the call" => sub {
		my $session = background($berlin, @short);
		# There is nothing to be released.
		loses($session, $sql, '40001', qr/lock "sev\/a" was lost/, qr/HINT:  Run the transaction again/,
			qr/DETAIL:  The connection broke at .*No contact with ZooKeeper/);
		assert_holds($session, '', 'holds nothing');
		goes_on($session);
	};
}

subtest 'a transaction that catches the loss of its session during a call can commit' => sub {
	my $session = background($berlin, @short, first => 'BEGIN; CREATE TEMP TABLE caught (sqlstate text)');
	loses($session, q{DO $$ BEGIN
			PERFORM zk_lock_set(} . names(qw(a b)) . q{);
		EXCEPTION WHEN serialization_failure THEN
			INSERT INTO caught VALUES (SQLSTATE);
		END $$}, '00000');
	# What was lost was never had, so nothing was written under it.
	$session->query_safe('COMMIT');
	is($session->query_safe('TABLE caught'), '40001', 'the transaction has committed');
	assert_holds($session, '', 'holds nothing');
	goes_on($session);
};

subtest 'a lock held before stays lost after a session is lost during a call' => sub {
	my $session = background($berlin, @short, holds => 'sev/d');
	# It names one of them; the other one is to be released.
	loses($session, 'SELECT zk_lock_set(' . names(qw(a b)) . ')', '40001',
		qr/lock "sev\/[ad]" was lost/, qr/HINT:  Release it with zk_unlock\(\)/);
	assert_holds($session, 'd:1+0', 'only the lock held before is listed');
	is($session->query_safe("SELECT state FROM zk_session_locks"), 'lost', 'the lock held before is lost');
	is($session->query_safe("SELECT zk_unlock('sev/d')"), 'f', 'released');
	goes_on($session);
};

done_testing();
