
# With log_min_messages = debug1, each state of a backend's place in the queue of a lock is a
# line of the server's log, with the node, the fencing token and the reason: also a lock that is
# kept, taken back or given up. Tested with a real server.

use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk);
my $session = background($node, log_min_messages => 'debug1');

# What the log tells of places of that lock while these statements run: state, state, why.
# Until is a pattern of what is still on its way then, and statements that look for it.
sub told ($name, $sql, %until)
{
	my $from = -s $node->logfile;
	my $read = sub {
		my $log = substr slurp_file($node->logfile), $from;
		return $log =~ /DEBUG:  zklock: place "\Q@{[ lock_path($name) ]}\E(?:\/[^"]*)?", fencing token \d+: (.*)/g;
	};
	$session->query($sql);
	assert_soon { $session->query($until{asking}); grep { /$until{line}/ } $read->() } "$name: $until{line}", 60
	  if %until;
	return $read->();
}

is_deeply([ told('plain', "SELECT zk_lock('plain'), zk_unlock('plain')") ],
	[ 'none -> wanted: a contender sets out', 'wanted -> held: granted', 'held -> none: unlocked' ],
	'a lock is taken and released');

is_deeply([ told('xact', "BEGIN; SAVEPOINT a; SELECT zk_xact_lock('xact'); ROLLBACK TO a; SELECT zk_xact_lock('xact'); COMMIT") ],
	[ ('none -> wanted: a contender sets out', 'wanted -> held: granted', 'held -> none: rolled back'),
	  ('none -> wanted: a contender sets out', 'wanted -> held: granted', 'held -> none: ended with its transaction or call') ],
	'a lock ends with its savepoint or transaction');

is_deeply([ told('both', "SELECT zk_lock('both'), zk_lock_shared('both'), zk_unlock('both')") ],
	[ 'none -> wanted: a contender sets out', 'wanted -> held: granted' ],
	'a lock is taken in both modes, and one of them is released');
is_deeply([ told('both', "SELECT zk_unlock_shared('both')") ], [ 'held -> none: unlocked' ], 'the other mode is released');

my $other = background($node);
$other->query_safe("SELECT zk_lock('busy')");
is_deeply([ told('busy', "SELECT zk_lock('busy', '1ms')") ],
	[ 'none -> wanted: a contender sets out', 'wanted -> none: 55P03' ], 'a wait that ends in vain');

subtest 'the log tells why a lock is kept, taken back or given up' => sub {
	$session->query_safe("SET zklock.keep = '1h'");
	is_deeply([ told('kept', "SELECT zk_lock('kept'), zk_unlock('kept')") ],
		[ 'none -> wanted: a contender sets out', 'wanted -> held: granted',
		  'held -> kept: nobody waits for its lock' ],
		'a released lock is kept');
	is_deeply([ told('kept', "SELECT zk_lock('kept'), zk_unlock('kept')") ],
		[ 'kept -> held: taken back', 'held -> kept: nobody waits for its lock' ], 'a kept lock is taken back');
	is_deeply([ told('kept', "SET application_name = 'else'; SELECT 1") ],
		[ 'kept -> held: taken back',
		  'held -> none: it was kept for another caller, or for another time' ],
		'a kept lock is given up for another application_name');
	is_deeply([ told('kept', "SELECT zk_lock('kept'), zk_fencing_token('kept'), zk_unlock('kept')") ],
		[ 'none -> wanted: a contender sets out', 'wanted -> held: granted',
		  'not kept: the user was told its token', 'held -> none: unlocked' ],
		'a lock whose token was told is not kept');
	is_deeply([ told('kept', "SELECT zk_lock('kept'), zk_unlock('kept'); SELECT zk_unlock_all()") ],
		[ 'none -> wanted: a contender sets out', 'wanted -> held: granted',
		  'held -> kept: nobody waits for its lock',
		  'kept -> held: taken back', 'held -> none: all locks are released' ],
		'a kept lock is given up by zk_unlock_all()');
	$session->query_safe('RESET zklock.keep');
};

subtest 'the log tells why a lock is lost' => sub {
	my $token = $session->query_safe("SELECT zk_lock('lost')");
	$other->query_safe("SELECT zk_evict('lost', $token)");
	like(join("\n", told('lost', 'SELECT 1', line => qr/^held -> lost: /, asking => "SELECT zk_is_held('lost')")),
		qr/^held -> lost: (?:its node is gone|the quorum has no such node)$/, 'an evicted lock is logged as lost');
	is_deeply([ told('lost', "SELECT zk_unlock('lost')") ], [ 'lost -> none: unlocked' ], 'a lost lock is released');
};

$_->quit foreach $session, $other;
done_testing;
