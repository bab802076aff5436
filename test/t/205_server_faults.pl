
# While ZooKeeper restarts or stalls for less than the session timeout, locks and places in a
# queue stay. Once it is gone for longer, the lock is lost, and no transaction that relied on it
# commits. Tested with a real server that is stopped, paused and started again.

use Proxy;
use Refusals;
use ZkLockTest;

my $zk = ZooKeeper->new->start;

# A server that starts accepts connections a moment before it can serve them,
# and forgets some of these for good (seen with 3.8.0: a NullPointerException in
# removeCnxn). The proxy keeps clients away until it is ready, as a load
# balancer does; what a forgotten connection means for us is tested with the
# network.
my $proxy = Proxy->new($zk->connect_string);
my $table = Refusals->new($zk, $proxy);
my %node = map { $_ => cluster($_, $zk, servers => $proxy->address) } qw(berlin paris);

# Sessions with their own session timeout, each in its cluster.
sub cast ($timeout, %cluster)
{
	return { map { $_ => background($node{ $cluster{$_} }, 'zklock.session_timeout' => $timeout) } keys %cluster };
}

$table->run('locks and queues outlive a restart within the session timeout',
	cast('15s', holder => 'berlin', second => 'berlin', first => 'paris'),
	[ holder => "zk_lock('kept')" ],
	[ holder => "BEGIN; CREATE TABLE kept (); SELECT zk_xact_lock('kept/too')" ],
	[ 'holder notes' => 'SELECT session_id FROM zk_session' ],
	[ 'first starts' => "zk_lock('kept')" ], [ queue => kept => 3 ],
	[ 'second starts' => "zk_lock('kept')" ], [ queue => kept => 4 ], [ nodes => kept => 4 ],
	[ break => 'down' ], [ state => holder => 'suspended' ],
	# Suspended is not lost.
	[ holder => 'SELECT state FROM zk_session_locks ORDER BY name LIMIT 1', 'held' ],
	[ mend => 'down' ], [ state => holder => 'connected' ], [ same => 'kept' ],
	[ 'holder repeats' => 'SELECT session_id FROM zk_session' ],
	[ holder => "zk_is_held('kept')", 't' ],
	[ 'first waits' ], [ 'second waits' ],
	[ holder => 'COMMIT', '' ],
	[ holder => "zk_unlock('kept')", 't' ], [ 'first ends' ], [ first => "zk_unlock('kept')", 't' ],
	[ 'second ends' ], [ second => "zk_unlock('kept')", 't' ], [ gone => 'kept' ]);

$table->run('a release and a wait while the server restarts are done when it is back',
	cast('15s', holder => 'berlin', waiter => 'paris', newcomer => 'paris'),
	[ holder => "zk_lock('released'), zk_lock('busy')" ],
	[ newcomer => "zk_try_lock('connect'), zk_unlock('connect')" ],
	[ 'waiter starts' => "zk_lock('released')" ], [ queue => released => 2 ],
	[ break => 'down' ], [ state => holder => 'suspended' ],
	# It does not wait for the server, and arrives when that is back.
	[ holder => "zk_unlock('released')", 't' ],
	[ 'newcomer starts' => "zk_lock('busy')" ],
	[ mend => 'down' ],
	[ 'waiter ends' ],
	[ queue => busy => 2 ],
	[ holder => "zk_unlock('busy')", 't' ], [ 'newcomer ends' ],
	[ 'quit' ], [ gone => 'released' ], [ gone => 'busy' ]);

$table->run('a COMMIT waits for its proof over a pause shorter than the session timeout',
	cast('9s', holder => 'berlin', waiter => 'paris'),
	[ holder => "CREATE TABLE stalled (i int); SELECT zk_lock('stalled')" ],
	[ 'waiter starts' => "zk_lock('stalled')" ], [ queue => stalled => 2 ], [ nodes => stalled => 2 ],
	[ break => 'paused' ],
	[ holder => 'BEGIN; INSERT INTO stalled VALUES (1); SELECT pg_sleep(3.5)' ],
	# Its lease is over, so it has to ask.
	[ 'holder starts' => 'COMMIT' ],
	[ 'holder waits' ],
	[ mend => 'paused' ],
	[ 'holder ends' ],
	[ same => 'stalled' ],
	[ holder => "zk_unlock('stalled')", 't' ], [ 'waiter ends' ], [ waiter => "zk_unlock('stalled')", 't' ],
	[ gone => 'stalled' ]);

# One waits for the proof in COMMIT, one is still at work, one has but a session
# lock, one holds no lock, one is in the queue.
my @old;
my $again = "BEGIN; SELECT zk_xact_lock('lost/early'); INSERT INTO lost VALUES (6); COMMIT";
$node{berlin}->safe_psql('postgres', 'CREATE TABLE lost (i int)');
$table->run('locks are lost over a pause longer than the session timeout, and nothing commits',
	cast('4s', map { $_ => 'berlin' } qw(early late keeper free waiter)),
	[ free => "zk_lock('lost/none'), zk_unlock('lost/none')" ],
	# For all that happens while it waits.
	[ waiter => "SET zklock.connect_timeout = '2min'" ],
	[ keeper => "zk_lock('lost/session')" ],
	[ 'waiter starts' => "zk_lock('lost/session')" ], [ queue => 'lost/session' => 2 ],
	[ early => "BEGIN; SELECT zk_xact_lock('lost/early'); INSERT INTO lost VALUES (1); SELECT pg_sleep(1.6)" ],
	[ late => "BEGIN; SELECT zk_xact_lock('lost/late'); INSERT INTO lost VALUES (2)" ],
	[ nodes => lost => 4 ],
	# The one in the queue may keep its place, or start anew: it held nothing.
	sub { @old = grep { !m{/session/.*-0000000001$} } map { $_->[0] } $zk->ephemerals(lock_path('lost/')); },
	[ break => 'paused' ],
	[ early => 'COMMIT', '!40001',
		qr/lock "lost\/early" was lost.*DETAIL:  The connection broke at .*, and the lock was given up at .*HINT/s ],
	[ state => keeper => 'lost' ],
	[ keeper => 'SELECT name, state, session_acquisitions FROM zk_session_locks', 'lost/session|lost|1' ],
	# Idle in a transaction there is no statement to cancel: none may run when the loss comes, not even
	# one that asks for it.
	sub { my $now = time; poll_until { time > $now + 5 } 'the session timeout of 4 s to pass', 30; },
	[ late => 'SELECT state FROM zk_session_locks', 'lost' ],
	[ late => 'COMMIT', '!40001' ],
	# Only one that reads may end, and until the lost lock is let go there is no new one.
	[ keeper => 'INSERT INTO lost VALUES (3)', '!40001' ],
	[ keeper => 'BEGIN; SELECT * FROM lost; COMMIT', '' ],
	[ keeper => 'SELECT state FROM zk_session', 'lost' ],
	[ free => 'INSERT INTO lost VALUES (4)' ],
	[ keeper => "zk_lock('lost/other')", '!40001', qr/HINT:  Release it with zk_unlock\(\) or zk_unlock_all\(\)/ ],
	[ keeper => "zk_is_held('lost/session')", 'f' ],
	[ keeper => "zk_fencing_token('lost/session') IS NULL", 't' ],
	[ mend => 'paused' ],
	# The server's clock stood still, too.
	sub {
		poll_until
		{
			my %now = map { $_->[0] => 1 } $zk->ephemerals(lock_path('lost/'));
			!grep { $now{$_} } @old;
		}
		'the old nodes to go', 30;
	},
	# It queues again.
	[ 'waiter ends' ],
	[ keeper => "zk_lock('lost/other')", '!40001' ],
	[ keeper => 'INSERT INTO lost VALUES (3)', '!40001' ],
	[ keeper => "zk_unlock('lost/session')", 'f', qr/WARNING:  lock "lost\/session" had been lost/ ],
	[ keeper => 'INSERT INTO lost VALUES (5)' ],
	[ keeper => "zk_lock('lost/other')", qr/^\d+$/ ],
	[ keeper => 'SELECT zk_unlock_all()' ],
	[ waiter => 'SELECT zk_unlock_all()' ],
	# Theirs were of a transaction, and went with it.
	[ early => $again ],
	[ late => $again ],
	[ free => "SELECT string_agg(i::text, ' ' ORDER BY i) FROM lost", '4 5 6 6' ],
	[ gone => 'lost' ]);

# The other ways to let go of a lost lock, and commit_guard = off.
my %let_go = (all => 'SELECT zk_unlock_all()', discard => 'DISCARD ALL', disconnect => 'SELECT zk_disconnect()');
$table->run('a session locks again once it has let go of its lost locks',
	cast('2s', map { $_ => 'berlin' } keys %let_go, 'off'),
	(map { [ $_ => "zk_lock('loss/$_'), zk_lock('loss/$_'), zk_lock_shared('loss/$_'), zk_lock('loss/$_/2')" ] }
		keys %let_go, 'off'),
	[ off => 'SET zklock.commit_guard = off' ],
	[ break => 'paused' ],
	(map { [ state => $_ => 'lost' ] } keys %let_go, 'off'),
	[ mend => 'paused' ],
	[ gone => 'loss' ],
	(map { [ $_ => $let_go{$_} ] } keys %let_go),
	(map {
		[ $_ => 'SELECT count(*) FROM zk_session_locks', 0 ],
		[ $_ => "BEGIN; CREATE TABLE after_$_ (); SELECT zk_lock('loss/$_'); COMMIT" ],
		[ nodes => "loss/$_" => 1 ]
	} keys %let_go),
	[ off => 'CREATE TABLE after_off ()' ],
	[ off => "zk_lock('loss/new')", '!40001' ],
	[ 'quit' ], [ gone => 'loss' ]);

# The process is stopped, as a suspended machine would do it: nothing in it can
# notice. Its COMMIT stands ready for the moment when it wakes up.
foreach my $guard (qw(fresh quorum))
{
	$table->run("a backend that was stopped for too long cannot commit, commit_guard = $guard",
		cast('2s', sleeper => 'berlin', rival => 'paris'),
		[ sleeper => "SET zklock.commit_guard = $guard; CREATE TABLE slept_$guard (i int)" ],
		[ rival => "CREATE TABLE slept_$guard (i int)" ],
		[ sleeper => "BEGIN; SELECT zk_xact_lock('slept'); INSERT INTO slept_$guard VALUES (1)" ],
		[ 'rival starts' => "BEGIN; SELECT zk_xact_lock('slept'); INSERT INTO slept_$guard VALUES (2); COMMIT" ],
		[ queue => slept => 2 ],
		sub { my (%session) = @_; kill 'STOP', $session{sleeper}->pid; },
		[ 'rival ends' ],
		[ 'sleeper starts' => 'COMMIT' ],
		sub { my (%session) = @_; kill 'CONT', $session{sleeper}->pid; },
		[ 'sleeper ends' => '!40001', qr/lock "slept" was lost\n.*stood still/s ],
		[ sleeper => "SELECT count(*) FROM slept_$guard", 0 ],
		[ sleeper => "zk_xact_lock('slept') > 0", 't' ],
		[ gone => 'slept' ]);
}

# As one is that little processor time is granted to.
$table->run('a backend that is stopped again and again, and runs in between, keeps its lock',
	cast('4s', sleeper => 'berlin'),
	[ sleeper => "zk_lock('slept')", qr/^\d+$/ ],
	sub (%session) {
		my $since = time;
		poll_until { kill $_ => $session{sleeper}->pid foreach qw(CONT STOP); time > $since + 5 } 'its session timeout to pass', 30;
		kill CONT => $session{sleeper}->pid;
	},
	[ sleeper => "zk_is_held('slept')", 't' ],
	[ 'quit' ], [ gone => 'slept' ]);

done_testing();
