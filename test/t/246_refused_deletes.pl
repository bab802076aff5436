
# A delete that ZooKeeper refuses, here for want of a right, is asked for again until it is
# done: what was released, given up or kept is gone soon after the right is back. It is
# said once in the log, and shown meanwhile. If it stays refused for a session timeout, and
# the session holds nothing, the session is ended, and its nodes with it.

use Patience qw(steady);
use Refusals;
use ZkLockTest;

my $all = 31;
my $delete = 8;

my $zk = ZooKeeper->new(tick_time => 250)->start;
my $table = Refusals->new($zk);
my $node = cluster('berlin', $zk, 'zklock.session_timeout' => '60s');
my $stranger = $zk->client;

# Rows: nobody may delete the nodes of that lock; everybody may again.
sub refuse ($name)
{
	return sub { $stranger->set_acl(lock_path($name), [ [ $all & ~$delete, 'world', 'anyone' ] ]); };
}

sub allow ($name)
{
	return sub { $stranger->set_acl(lock_path($name), [ [ $all, 'world', 'anyone' ] ]); };
}

sub cast { return { map { $_ => background($node) } @_ }; }

# The log from there on.
my $from;
sub mark { $from = -s $node->logfile; return; }

my $pending = 'SELECT pending_requests FROM zk_session';
my $check = q{SELECT state, substring(what, 'delete: \d+'), remedy ~ 'DELETE' FROM zk_check(false) WHERE item = 'releases'};
$table->run('a lock whose release is refused is released when that is allowed', cast(qw(one two)),
	\&mark,
	[ one => "zk_lock('released'), zk_lock('other')" ],
	refuse('released'),
	[ one => "zk_unlock('released')", 't' ], [ 'one becomes' => $pending, 1 ],
	[ 'two becomes' => "SELECT state FROM zk_lock_queue('released')", 'releasing' ],
	# Of this session alone.
	[ 'one becomes' => $check, 'warning|delete: 1|t' ], [ two => $check, '' ],
	[ two => "zk_try_lock('released')", 'f' ],
	# It takes the lock once more, and others beside it.
	[ one => "zk_lock('elsewhere', '10s') > 0, zk_unlock('elsewhere')", 't|t' ],
	[ one => "zk_lock('released', '60s') > 0, zk_unlock('released')", 't|t' ], [ 'one becomes' => $pending, 2 ],
	allow('released'),
	[ gone => 'released' ], [ 'one becomes' => $pending, 0 ],
	sub {
		my $path = lock_path('released');
		my @told = slurp_file($node->logfile, $from) =~ /\Q$path\E\/\S+" cannot be deleted/g;
		is(scalar @told, 1, 'it was logged once');
	},
	[ one => $check, '' ],
	[ two => "zk_try_lock('released')", 't' ],
	[ one => "zk_is_held('other')", 't' ]);

# Whoever is next has it, though the node ahead of him cannot be deleted. A reader waits
# until they are gone.
my $states = "SELECT string_agg(state, ' ' ORDER BY position) FROM zk_lock_queue('over')";
$table->run('the next waiter has a lock whose release is refused, and a reader waits', cast(qw(one two writer reader)),
	[ one => "zk_lock('over')" ],
	[ 'two starts' => "zk_lock('over')" ], [ 'two waits' ],
	[ 'writer starts' => "zk_lock('over')" ], [ 'writer waits' ],
	refuse('over'),
	[ one => "zk_unlock('over')", 't' ], [ 'two ends' => qr/^\d+$/ ],
	[ 'one becomes' => $states, 'releasing held waiting' ],
	[ two => "zk_unlock('over')", 't' ], [ 'writer ends' => qr/^\d+$/ ],
	[ 'one becomes' => $states, 'releasing releasing held' ],
	[ writer => "zk_unlock('over')", 't' ],
	[ 'reader starts' => "zk_lock_shared('over')" ], [ 'reader waits' ],
	[ 'one becomes' => $states, 'releasing releasing releasing waiting' ],
	[ one => "SELECT count(*) FROM zk_waits() WHERE name = 'over'", 3 ],
	allow('over'),
	[ 'reader ends' => qr/^\d+$/ ],
	[ reader => "zk_unlock_shared('over')", 't' ], [ gone => 'over' ],
	[ 'one becomes' => $pending, 0 ], [ 'two becomes' => $pending, 0 ]);

# It is in the way of no other lock.
$table->run('the node of a wait that was given up is in the way of no other lock', cast(qw(one two)),
	[ one => "zk_lock('given up')" ],
	refuse('given up'),
	[ two => "zk_try_lock('given up', '1s')", 'f' ], [ 'two becomes' => $pending, 1 ],
	[ two => "zk_lock('elsewhere', '60s') > 0, zk_unlock('elsewhere')", 't|t' ],
	allow('given up'),
	[ 'two becomes' => $pending, 0 ], [ queue => 'given up' => 1 ],
	[ one => "zk_is_held('given up')", 't' ],
	[ one => 'SELECT zk_unlock_all()' ], [ gone => 'given up' ]);

$table->run('a kept lock that is wanted is given up when its delete is allowed', cast(qw(one two)),
	[ one => "SET zklock.keep = '1h'; SELECT zk_lock('kept'), zk_unlock('kept')" ],
	[ one => "SELECT state FROM zk_session_locks WHERE name = 'kept'", 'kept' ],
	refuse('kept'),
	[ 'two starts' => "zk_lock('kept')" ], [ 'one becomes' => $pending, 1 ],
	allow('kept'),
	[ 'two ends' => qr/^\d+$/ ],
	[ two => "zk_unlock('kept')", 't' ], [ gone => 'kept' ]);

# What is released stands in the way of readers until it may be deleted. Who waits for that
# waits for nobody, so there is no deadlock: not with itself, and not with others.
$table->run('a circle through a lock that is released is no deadlock', cast(qw(one two)),
	[ one => "zk_lock('left'), zk_lock_shared('read'), zk_lock('other')" ], [ two => "zk_lock('wanted')" ],
	refuse('left'), refuse('read'),
	[ one => "zk_unlock('left'), zk_unlock_shared('read')", 't|t' ],
	[ one => "zk_try_lock('read', '4s')", 'f' ],
	[ one => "zk_try_lock_shared('left', '4s')", 'f' ],
	[ 'one starts' => "zk_lock('wanted')" ], [ nodes => '.waits' => 1 ],
	[ two => "zk_try_lock_shared('left', '4s')", 'f' ], [ two => "zk_try_lock('read', '4s')", 'f' ],
	[ two => "zk_unlock('wanted')", 't' ], [ 'one ends' => qr/^\d+$/ ],
	allow('left'), allow('read'),
	[ one => 'SELECT zk_unlock_all()' ], map { [ gone => $_ ] } qw(left read));

# So it is behind a node of its own that never held the lock.
$table->run('a wait behind a node of its own that was given up is no deadlock', cast(qw(one two)),
	[ one => "zk_lock('other')" ], [ two => "zk_lock('again')" ],
	refuse('again'),
	[ one => "zk_try_lock('again', '1s')", 'f' ], [ 'one becomes' => $pending, 1 ],
	[ two => 'SELECT zk_disconnect()' ], [ nodes => again => 1 ],
	[ one => "zk_try_lock('again', '4s')", 'f' ],
	allow('again'),
	[ one => "zk_unlock('other')", 't' ], [ gone => 'again' ]);

# However long it was refused, it is asked for again within a quarter of the session timeout.
my $allowed;
my $short = steady(4);
my $longer = 2 * $short;
$table->run('a delete that was refused for long is asked for again within a quarter of the session timeout',
	{ %{ cast('other') }, short => background($node, 'zklock.session_timeout' => $short . 's') },
	[ short => "zk_lock('slow'), zk_lock('beside')" ],
	refuse('slow'),
	[ short => "zk_unlock('slow')", 't' ],
	[ other => 'CREATE TABLE slow AS SELECT clock_timestamp() AS at' ],
	[ 'other becomes' => "SELECT clock_timestamp() > at + '${longer}s' FROM slow", 't' ],
	allow('slow'),
	sub { $allowed = time; },
	[ gone => 'slow' ],
	sub { in_time(time - $allowed, 1 + $short, 'the delete is soon done once it is allowed'); },
	[ short => "zk_unlock('beside')", 't' ]);

# One that holds another lock, or waits for one, goes on, and so the node stays. Without a
# lock it is ended, and the next lock has a session of its own.
$table->run('a session that holds nothing is ended when its deletes stay refused',
	{ %{ cast('other') }, map { $_ => background($node, 'zklock.session_timeout' => $short . 's') } qw(short waiter) },
	\&mark,
	[ short => "zk_lock('stuck'), zk_lock('held')" ], [ waiter => "zk_lock('too')" ],
	refuse('stuck'), refuse('too'),
	[ waiter => "zk_unlock('too')", 't' ], [ 'waiter starts' => "zk_lock('held')" ],
	[ short => "zk_unlock('stuck')", 't' ],
	[ other => 'CREATE TABLE refused AS SELECT clock_timestamp() AS at' ],
	[ 'other becomes' => "SELECT clock_timestamp() > at + '${longer}s' FROM refused", 't' ],
	[ short => "zk_is_held('held')", 't' ], [ nodes => stuck => 1 ], [ nodes => too => 1 ],
	[ short => "zk_unlock('held')", 't' ], [ gone => 'stuck' ],
	[ 'waiter ends' => qr/^\d+$/ ], [ waiter => "zk_unlock('held')", 't' ], [ gone => 'too' ],
	[ short => "zk_lock('after')" ],
	sub {
		like(slurp_file($node->logfile, $from),
			qr/refused for the session timeout of \d+ ms to delete what had been released/, 'the log says it');
	},
	[ short => "zk_unlock('after')", 't' ]);

done_testing();
