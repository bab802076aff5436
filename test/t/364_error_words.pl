
# An error of a lock call names the lock and what stands in the way: the holder, the ACL, the
# credentials. (That a wait which is ended names its lock is in t/110.) Other sessions are named
# only to members of pg_monitor. Tested with real servers and a proxy; each table is a subtest.

use Proxy;
use Refusals;
use ZkLockTest;

# ZooKeeper's number of the request for a node's data.
use constant GET => 4;

my $zk = ZooKeeper->new->start;
my $proxy = Proxy->new($zk->connect_string);
my $table = Refusals->new($zk, $proxy);
my $node = cluster('berlin', $zk, servers => $proxy->address);
$node->safe_psql('postgres', 'CREATE ROLE clerk LOGIN');

# Also when the ensemble falls silent for some seconds.
my $holder = background($node, 'zklock.session_timeout' => '60s', holds => 'words');
my $held = 'Held by process ' . $holder->pid
  . ' of user "\w+" in database "postgres" of cluster "berlin" on host "[^"]+"\.';
my $one = "DETAIL:  $held 1 contender is ahead\\.";
my $two = "DETAIL:  $held Up to 2 contenders are ahead\\.";
my $context = qr/^CONTEXT:  while waiting for ZooKeeper lock "words"$/m;

sub connected { return background($node, is_connected => 1, @_); }

# Until the log says that from there on.
my $offset;
sub mark { $offset = -s $node->logfile; return; }
sub logs ($pattern)
{
	poll_until { slurp_file($node->logfile, $offset) =~ $pattern } "the log to have $pattern", 30;
	return pass("the log has $pattern");
}

# What a session is told by a wait that is in vain.
sub told
{
	my ($name, $sql, $pattern) = @_;
	return sub (%session) { assert_told($session{$name}, $sql, $pattern, "$name: $sql"); };
}

$table->run('the CONTEXT of a wait comes first in PL/pgSQL, once, and ends with the wait', { session => connected() },
	[ session => "SET lock_timeout = '1s'; DO \$\$ BEGIN PERFORM zk_lock('words'); END \$\$", '!55P03',
		qr/$context\nSQL statement/, \qr/while waiting.*while waiting/s ],
	[ session => "DO \$\$ BEGIN
		BEGIN PERFORM zk_lock('words', '1s'); EXCEPTION WHEN lock_not_available THEN END;
		RAISE division_by_zero; END \$\$", '!22012', \qr/while waiting/ ]);

$table->run('the error of a call for several locks names the one that is held', { session => connected() },
	told(session => "SELECT zk_lock_set(ARRAY['words', 'words/a', 'words/b'], '1s')", qr/$one\n$context/),
	sub { my (%session) = @_; is($session{session}->sqlstate, '55P03', 'the call for several locks fails with 55P03'); });

$table->run('the error of a wait names the holder, to members of pg_monitor',
	{ clerk => connected(user => 'clerk'), session => connected(), waiter => connected() },
	told(session => "SELECT zk_lock('words', '1s')",
		qr/ERROR:  could not obtain lock "words" within 1000 ms\n$one\n$context/),
	told(session => "SET lock_timeout = '1s'; SELECT zk_lock('words')",
		qr/ERROR:  canceling statement due to lock timeout\n$one\n$context/),
	# Who does not wait is told as well, and of no milliseconds.
	told(session => "RESET lock_timeout; SELECT zk_lock('words', '0')",
		qr/ERROR:  could not obtain lock "words"\n$one\n$context/),
	# Others are told how many, but not who. The log is.
	\&mark,
	told(clerk => "SELECT zk_lock('words', '0')", qr/DETAIL:  1 contender is ahead\.\n$context/),
	sub (%session) {
		poll_until
		{
			$session{clerk}->query("SELECT zk_lock('words', '0')");
			unlike($session{clerk}->error, qr/Held by/, 'an ordinary role is not told who holds the lock');
			slurp_file($node->logfile, $offset) =~ /$one/;
		}
		'the log to say who', 30;
	},
	[ 'waiter starts' => "zk_lock('words')" ], [ queue => words => 2 ],
	told(session => "SELECT zk_lock('words', '1s')", qr/$two/),
	told(session => "SELECT zk_hold('words', 'why', '1s')",
		qr/could not obtain lock "words" within 1000 ms\n$two\n$context/),
	[ cancel => 'waiter' ],
	[ 'waiter ends' => '!57014' ],
	[ queue => words => 1 ]);

# Who held it when the wait began, and who holds it when it ends, may be two.
my $second = connected();
my $second_pid = $second->pid;
$table->run('the error of a wait names the holder at its end', { second => $second, session => connected() },
	[ 'second starts' => "zk_lock('words')" ], [ queue => words => 2 ],
	[ 'session starts' => "zk_lock('words', '10s')" ], [ queue => words => 3 ],
	sub { $holder->query_safe("SELECT zk_unlock('words')"); },
	[ 'second ends' => qr/^\d+$/ ],
	[ 'session ends' => '!55P03', qr/contenders? (?:is|are) ahead\./, 40 ],
	# For which the server has 200 ms.
	sub (%session) {
		my $error = $session{session}->error;
		unlike($error, qr/Held by process @{[ $holder->pid ]} /, 'it is not the one of the beginning');
		SKIP: {
			skip 'the server is too slow to say who is ahead', 1 if $error !~ /Held by/ && Patience::slowness() > 2;
			like($error, qr/DETAIL:  Held by process $second_pid of user .*\. 1 contender is ahead\./, 'it is that of the end');
		}
	},
	# As it was.
	sub { $second->query_safe("SELECT zk_unlock('words')"); $holder->query_safe("SELECT zk_lock('words')"); });

# Only the backend itself knows what has come through the proxy to it.
$table->run('a wait ends in time though the ensemble is silent and the holder cannot be named',
	{ waiter => connected(),
		cut_off => background($node, 'zklock.session_timeout' => '60s', log_lock_waits => 'on', deadlock_timeout => '1ms') },
	[ 'waiter starts' => "zk_lock('words')" ], [ queue => words => 2 ],
	\&mark,
	[ 'cut_off starts' => "zk_lock('words', '5s')" ],
	sub { logs(qr/still waiting for ExclusiveLock on ZooKeeper lock "words"/); },
	[ break => 'cut replies' ],
	[ 'cut_off ends' => '!55P03', qr/DETAIL:  Up to 2 contenders are ahead\./, 40 ], [ mend => 'cut replies' ],
	[ cancel => 'waiter' ],
	[ 'waiter ends' => '!57014' ],
	[ 'quit' ], [ queue => words => 1 ]);

$table->run('a try does not read the data of the holder', { session => connected() },
	sub { $proxy->trap(GET, 1, 'requests'); },
	[ session => "zk_try_lock('words')", 'f' ],
	sub { ok(!$proxy->is_sprung, 'no request for data was sent'); $proxy->trap(GET, 0, 'requests'); });

# Secrets are not told. Nobody may do more than read in that root, and one session in the znode of the lock.
my $anna = $zk->client;
$anna->add_auth('digest', 'anna:secret');
$anna->create_path("/still/$_") foreach '.root', 'words/closed';
$anna->set_acl('/still/words/closed', [ [ 31, 'auth', '' ], [ 1, 'world', 'anyone' ] ]);
$anna->set_acl('/still', [ [ 1, 'world', 'anyone' ] ]);
my @still = ('zklock.root' => '/still');
$table->run('the error of an ACL says which rights and credentials there were', { owner => background($node, @still, 'zklock.auth' => 'digest:anna:secret'),
		stranger => background($node, @still), other => background($node, @still, 'zklock.auth' => 'digest:otto:secret') },
	[ owner => "zk_lock('words/closed')" ],
	[ stranger => "zk_lock('words/closed', '30s')", '!42501',
		qr/DETAIL:  ZooKeeper said of znode ".*words\/closed.*": .*does not give this right to everybody, and this session has no credentials\.\nHINT:  Set "zklock.auth" to/ ],
	[ other => "zk_lock('words/closed', '30s')", '!42501',
		qr/does not give this right to the credentials of this session, which are those of "zklock.auth"\.\nHINT:  Compare the ACLs of both znodes with "getAcl"/,
		qr/CONTEXT:  while waiting for ZooKeeper lock "words\/closed"/,
		\qr/secret|otto|anna/ ]);

# Who made a hold does not hold it.
my $token;
$table->run('the error of a wait behind a permanent hold names its maker and reason', { maker => connected(), session => connected() },
	sub { my (%session) = @_; $token = $session{maker}->query_safe("SELECT zk_hold('words/kept', 'new disks')"); },
	told(session => "SELECT zk_lock('words/kept', '1s')",
		qr/DETAIL:  A permanent hold, made by process \d+ of user "\w+" .* \("new disks"\); zk_release_hold\(\) ends it\. 1 contender is ahead\./),
	sub { my (%session) = @_; $session{maker}->query_safe("SELECT zk_release_hold('words/kept', $token)"); });

$table->run('no queue node is left at the end', { holder => $holder }, [ 'quit' ], [ gone => 'words' ]);
done_testing();
