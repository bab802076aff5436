
# An error names the lock and says what stands in the way: who waits for which lock
# when a wait is ended, who holds it, whose ACL it is and what credentials there were,
# which server it is that is none. Who works elsewhere is for members of pg_monitor.

use strict;
use warnings;

use IO::Socket::INET;
use POSIX ();
use PostgreSQL::Test::Utils qw(slurp_file);
use Proxy;
use Test::More;
use ZkLockTest;
use ZooKeeper;

# ZooKeeper's number of the request for a node's data.
use constant GET => 4;

my $zk = ZooKeeper->new->start;
my $proxy = Proxy->new($zk->connect_string);
my $node = cluster('berlin', $zk, servers => $proxy->address);
$node->safe_psql('postgres', 'CREATE ROLE clerk LOGIN');

my $holder = background($node);
my $holder_text = 'Held by process ' . $holder->pid
  . ' of user "\w+" in database "postgres" of cluster "berlin" on host "[^"]+"\.';
my $context = qr/^CONTEXT:  while waiting for ZooKeeper lock "words"$/m;

# A session that is connected.
sub session
{
	my (%option) = @_;
	my $session = background($node, %option);
	$session->query_safe("SELECT zk_try_lock('other'), zk_unlock('other')");
	return $session;
}

# What the log says from there on, once it says anything like that.
sub log_since
{
	my ($offset, $pattern) = @_;
	poll_until { slurp_file($node->logfile, $offset) =~ $pattern } "the log to have $pattern", 30;
	return slurp_file($node->logfile, $offset);
}

# What a session is told by a wait that is in vain. On a busy machine there may have
# been no time to ask who holds it: then it waits again.
sub told
{
	my ($session, $sql, $pattern, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	foreach my $attempt (1 .. 20)
	{
		note('again: there was no time to ask who holds it') if $attempt > 1;
		$session->query($sql);
		last if $session->error =~ $pattern;
	}
	return like($session->error, $pattern, $what);
}

# Also when the ensemble falls silent for some seconds.
$holder->query_safe("SET zklock.session_timeout = '60s'; SELECT zk_lock('words')");

my %ends = (
	lock_timeout => [ '55P03', "SET lock_timeout = '2s'" ],
	statement_timeout => [ '57014', "SET statement_timeout = '2s'" ],
	pg_cancel_backend => ['57014'],
	pg_terminate_backend => ['08006']);
foreach my $what (sort keys %ends)
{
	my ($sqlstate, $setting) = @{ $ends{$what} };
	my $session = session();
	my $offset = -s $node->logfile;
	$session->query_safe($setting) if $setting;
	$session->start_query("SELECT zk_lock('words')");
	if (!$setting)
	{
		wait_for_queue($zk, lock_path('words'), 2);
		$node->safe_psql('postgres', "SELECT $what(" . $session->pid . ')');
	}
	$session->wait_result;
	is($session->sqlstate, $sqlstate, "$what ends a wait");
	like($session->error, $context, 'and the client is told for what');
	like(log_since($offset, qr/CONTEXT:  while/), qr/CONTEXT:  while waiting for ZooKeeper lock "words"/,
		'so is the log');
	$session->quit;
	assert_nodes($zk, lock_path('words'), 1, 'it has left the queue');
}

subtest 'in PL/pgSQL the context comes first' => sub {
	my $session = session();
	$session->query("SET lock_timeout = '1s'; DO \$\$ BEGIN PERFORM zk_lock('words'); END \$\$");
	like($session->error, qr/$context\nSQL statement/, 'and is there once');
	is(scalar(() = $session->error =~ /while waiting/g), 1, 'no more');
	$session->query("DO \$\$ BEGIN
		BEGIN PERFORM zk_lock('words', '1s'); EXCEPTION WHEN lock_not_available THEN END;
		RAISE division_by_zero; END \$\$");
	unlike($session->error, qr/while waiting/, 'and it ends with the wait');
	$session->quit;
};

subtest 'several locks as one call' => sub {
	my $session = session();
	told($session, "SELECT zk_lock(ARRAY['words', 'words/a', 'words/b'], '1s')",
		qr/DETAIL:  $holder_text 1 contender is ahead\./, 'one of them has a holder');
	is($session->sqlstate, '55P03', 'and they are not to be had');
	like($session->error, $context, 'for this one');
	$session->quit;
};

subtest 'who is in the way' => sub {
	my $clerk = session(user => 'clerk');
	my $session = session();
	told($session, "SELECT zk_lock('words', '1s')",
		qr/ERROR:  could not obtain lock "words" within 1000 ms\nDETAIL:  $holder_text 1 contender is ahead\.\n$context/,
		'a member of pg_monitor is told');
	told($session, "SET lock_timeout = '1s'; SELECT zk_lock('words')",
		qr/ERROR:  canceling statement due to lock timeout\nDETAIL:  $holder_text 1 contender is ahead\.\n$context/,
		'by lock_timeout, too');
	told($session, "RESET lock_timeout; SELECT zk_lock('words', '0')",
		qr/ERROR:  could not obtain lock "words"\nDETAIL:  $holder_text 1 contender is ahead\.\n$context/,
		'who does not wait is told as well, and of no milliseconds');

	my $offset = -s $node->logfile;
	told($clerk, "SELECT zk_lock('words', '0')", qr/DETAIL:  1 contender is ahead\.\n$context/, 'others are told how many');
	unlike($clerk->error, qr/Held by/, 'but not who');
	poll_until
	{
		$clerk->query("SELECT zk_lock('words', '0')");
		slurp_file($node->logfile, $offset) =~ /DETAIL:  $holder_text 1 contender is ahead\./;
	}
	'the log to say who', 30;
	pass('the log is');

	my $waiter = session();
	$waiter->start_query("SELECT zk_lock('words')");
	wait_for_queue($zk, lock_path('words'), 2);
	told($session, "SELECT zk_lock('words', '1s')", qr/DETAIL:  $holder_text Up to 2 contenders are ahead\./, 'behind a waiter it is the first');
	told($session, "SELECT zk_hold('words', 'why', '1s')",
		qr/could not obtain lock "words" within 1000 ms\nDETAIL:  $holder_text Up to 2 contenders are ahead\.\n$context/,
		'a hold is told the same');

	# Only the backend itself knows what has come through the proxy to it.
	my $cut_off = background($node);
	$cut_off->query_safe("SET zklock.session_timeout = '60s'; SET log_lock_waits = on; SET deadlock_timeout = '1ms'");
	$offset = -s $node->logfile;
	$cut_off->start_query("SELECT zk_lock('words', '5s')");
	log_since($offset, qr/still waiting for ExclusiveLock on ZooKeeper lock "words"/);
	my $start = time;
	$proxy->cut('replies');
	$cut_off->wait_result;
	cmp_ok(time - $start, '<', 15, 'an ensemble that falls silent does not prolong the wait');
	is($cut_off->sqlstate, '55P03', 'which ends in time');
	like($cut_off->error, qr/DETAIL:  Up to 2 contenders are ahead\./, 'with what was known');
	$proxy->heal;
	$node->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $waiter->pid . ')');
	$waiter->wait_result;
	$_->quit foreach $waiter, $session, $clerk, $cut_off;
	assert_nodes($zk, lock_path('words'), 1, 'nothing left');
};

subtest 'a try is not asked to know' => sub {
	my $session = session();
	$proxy->trap(GET, 1, 'requests');
	is($session->query_safe("SELECT zk_try_lock('words')"), 'f', 'it is in vain');
	ok(!$proxy->is_sprung, 'and has read nobody\'s data');
	$proxy->trap(GET, 0, 'requests');
	$session->quit;
};

subtest 'an ACL' => sub {
	my $owner = session();
	$owner->query_safe("SET zklock.auth = 'digest:anna:secret'");
	$owner->query_safe("SELECT zk_lock('words/closed')");
	my $stranger = session();
	$stranger->query("SELECT zk_lock('words/closed', '30s')");
	is($stranger->sqlstate, '42501', 'is not for a session without credentials');
	like($stranger->error,
		qr/DETAIL:  ZooKeeper said of znode ".*words\/closed.*": .*does not give this right to everybody, and this session has no credentials\.\nHINT:  Set "zklock.auth" to/,
		'which has none');
	$stranger->query_safe("SET zklock.auth = 'digest:otto:secret'");
	$stranger->query("SELECT zk_lock('words/closed', '30s')");
	is($stranger->sqlstate, '42501', 'nor for one with others');
	like($stranger->error,
		qr/does not give this right to the credentials of this session, those of "zklock.auth"\.\nHINT:  See what "getAcl"/,
		'which has those');
	like($stranger->error, qr/CONTEXT:  while waiting for ZooKeeper lock "words\/closed"/, 'the lock is named');
	unlike($stranger->error, qr/secret|otto|anna/, 'secrets are not');
	$_->quit foreach $owner, $stranger;
};

subtest 'a server that is not ZooKeeper' => sub {
	my $listener = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 10)
	  or die "could not listen: $!";
	my $address = '127.0.0.1:' . $listener->sockport;
	my $pid = fork // die "could not fork: $!";
	if ($pid == 0)
	{
		while (my $client = $listener->accept)
		{
			sysread $client, my $request, 1000;
			syswrite $client, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain\r\n\r\nno\r\n";
		}
		POSIX::_exit(0);
	}
	my $session = background($node);
	$session->query_safe("SET zklock.servers = '$address'; SET zklock.connect_timeout = '3s'");
	$session->query("SELECT zk_lock('words')");
	is($session->sqlstate, '08P01', 'is no ZooKeeper');
	like($session->error, qr/DETAIL:  What answers at "\Q$address\E" granted/, 'and is named');
	$session->quit;
	kill 'KILL', $pid;
	waitpid $pid, 0;
};

$holder->quit;
poll_until { !$zk->ephemerals(lock_path('words')) } 'all queue nodes to go', 10;
pass('nothing left but containers');
done_testing();
