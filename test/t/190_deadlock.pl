
# Deadlocks over ZooKeeper locks are found: over several clusters and sessions, over semaphores,
# and through PostgreSQL's own locks. One session fails with 40P01 and the whole cycle, the
# others go on, and a session that only waits is never told of a deadlock. Tested with real
# servers in two clusters, and with clients that write false waits into ZooKeeper.

use Proxy;
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my %setting = ('deadlock_timeout' => '300ms', 'max_connections' => 40);
my %node = map { $_ => cluster($_, $zk, %setting) } qw(berlin paris);
$_->safe_psql('postgres', 'CREATE TABLE account (id int PRIMARY KEY, sum int);
	INSERT INTO account SELECT i, 0 FROM generate_series(1, 9) i')
  foreach values %node;

sub session { return background($node{ $_[0] }); }

# One that waits, says so, and leaves it to others to look for a cycle.
sub patient ($cluster, %option) { return background($node{$cluster}, deadlock_timeout => '120s', %option); }

# A statement that is to wait for that lock, behind so many others.
sub wait_behind ($session, $sql, $lock, $length)
{
	start_in_queue($session, $sql, $zk, lock_path($lock), $length);
	return;
}

sub who ($cluster, $session)
{
	return 'rocess ' . $session->pid . " of cluster \"$cluster\", database \"postgres\"";
}

# How many facts there are.
sub said
{
	my @facts = $zk->ephemerals(lock_path('.waits/'));
	return scalar @facts;
}

# Until so many of those who wait have said so.
sub wait_until_said ($count)
{
	poll_until { said() == $count } "$count facts", 60;
	return;
}

# These sessions end. Facts are taken back without anybody waiting for that.
sub assert_nothing_said (@sessions)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$_->quit foreach @sessions;
	return assert_becomes { said() } 0, 'no published wait is left';
}

# The one that has given way ends its transaction, and the other one's is granted.
sub assert_goes_on ($other, $victim)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$victim->query('ROLLBACK');
	$victim->query_safe('SELECT zk_unlock_all()');
	assert_ends($other, '00000', 'the other one goes on');
	$other->query('COMMIT');
	return assert_nothing_said($victim, $other);
}

# One of two that wait for each other gives way.
sub assert_one_gives_way ($one, $other, $what)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	poll_until { $one->is_done || $other->is_done } 'one to give way', 60;
	my ($victim, $survivor) = $one->is_done ? ($one, $other) : ($other, $one);
	assert_ends($victim, '40P01', $what);
	return assert_goes_on($survivor, $victim);
}

# So many waits are told of a deadlock.
sub assert_length ($session, $length, $what)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(scalar(() = $session->error =~ /waits for/g), $length, $what);
}

# Half of a deadlock: one, with these settings, holds a lock and waits for that of the other one, of
# another cluster.
sub half_a_deadlock (%setting)
{
	my $one = background($node{berlin}, %setting, holds => 'a');
	my $other = background($node{paris}, holds => 'b');
	wait_behind($one, "SELECT zk_lock('b')", 'b', 2);
	return ($one, $other);
}

# Two of berlin, of which one holds a lock, the other one a row.
sub lock_and_row
{
	return (background($node{berlin}, first => "BEGIN; SELECT zk_xact_lock('e')"),
		background($node{berlin}, first => 'BEGIN; UPDATE account SET sum = 1 WHERE id = 1'));
}

# What a session says that waits behind that node: by default the stranger, who makes that, of himself.
sub make_fact ($stranger, $node, $session_id = sprintf('%016x', $stranger->session_id))
{
	return $stranger->create(lock_path(".waits/$session_id"), "$node\n{}", ephemeral => 1);
}

# A client of another make stands in a queue, and says that it waits.
sub stand_and_say ($stranger, $lock)
{
	return make_fact($stranger, $stranger->contend(lock_path("$lock/x-lock-")));
}

# It waits while all the others are found. What is said below another root no other test counts.
my @below = ('zklock.root' => '/long-wait', log_min_messages => 'debug1');
my $long_holder = background($node{paris}, @below);
my $long_waiter = background($node{berlin}, @below, 'zklock.session_timeout' => '5s');

sub start_long_wait
{
	$_->query('SELECT zk_unlock_all()') foreach $long_waiter, $long_holder;
	$long_holder->query_safe("SELECT zk_lock('held')");
	$long_waiter->query("SELECT zk_lock('mine')");
	$long_waiter->start_query("SELECT zk_lock('held')");
	return;
}
start_long_wait();

subtest 'a deadlock of two sessions in two clusters is found, reported and counted' => sub {
	my $one = patient('berlin', holds => 'a');
	my $other = background($node{paris}, first => "BEGIN; SELECT zk_xact_lock('b')");
	wait_behind($one, "SELECT zk_lock('b')", 'b', 2);
	wait_until_said(1);
	assert_query($other, "SELECT zk_xact_lock('a')", '40P01', 'the session that searches gives way');
	my ($p, $q) = (who('berlin', $one), who('paris', $other));
	like($other->error, qr/ERROR:  deadlock detected
DETAIL:  P$q waits for ExclusiveLock on ZooKeeper lock "a"; blocked by p$p\.
P$p waits for ExclusiveLock on ZooKeeper lock "b"; blocked by p$q\.
HINT:  See server log for query details\./, 'the cycle is told');
	assert_ends($one, '00000', 'the other one goes on, for the transaction is over');
	$other->query('ROLLBACK');
	ok($node{paris}->log_contains(
		"Process " . $other->pid . ": SELECT zk_xact_lock\\('a'\\)"), 'the log has the statement');
	$_->quit foreach $one, $other;
	assert_becomes { ask($node{paris}, "SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'") } 1,
	  'PostgreSQL counts it';
	assert_nothing_said();
};

# What it says of PostgreSQL's locks is old: it is stopped, and cannot take that back.
subtest 'a wait in PostgreSQL that is over is not taken for part of a deadlock' => sub {
	# For longer than it is stopped, however busy the machine is.
	my $teller = background($node{berlin}, 'zklock.session_timeout' => '40s', holds => 'old/a',
		first => 'BEGIN; UPDATE account SET sum = 1 WHERE id = 9');
	my $waiter = background($node{berlin}, holds => 'old/b');
	my $last = background($node{paris}, holds => 'old/c');
	$waiter->start_query('UPDATE account SET sum = 2 WHERE id = 9');
	wait_for_lock($node{berlin}, $waiter->pid);
	wait_behind($teller, "SELECT zk_lock('old/c')", 'old/c', 2);
	wait_until_said(2);
	kill 'STOP', $teller->pid;
	$waiter->cancel;
	assert_ends($waiter, '57014', 'the wait in PostgreSQL is canceled');
	assert_query($last, "SELECT zk_lock('old/b', '3s')", '55P03', 'a wait in PostgreSQL that is not published again is not believed');
	kill 'CONT', $teller->pid;
	$last->query_safe('SELECT zk_unlock_all()');
	assert_ends($teller, '00000', 'the other wait is granted');
	assert_nothing_said($teller, $waiter, $last);
};

# It is read once more behind the claim, from the leader.
subtest 'a cycle that ends before it is claimed is no deadlock' => sub {
	plan skip_all => 'a proxy does not know what is encrypted' if $ENV{ZKLOCK_TEST_TLS};
	my $proxy = Proxy->new($zk->connect_string);
	my $one = patient('paris', holds => 'ended/a');
	my $other = background($node{berlin}, route => $proxy->address, holds => 'ended/b');
	wait_behind($one, "SELECT zk_lock('ended/b')", 'ended/b', 2);
	wait_until_said(1);
	my $stranger = $zk->client;
	my $claims = lock_path('.waits/claims');
	$stranger->create_path($claims);
	my $changes = $stranger->exists($claims)->{cversion};
	$proxy->trap(15, 3, 'rest');    # create2: of its queue node, its fact, its claim
	$other->start_query("SELECT zk_lock('ended/a')");
	poll_until { $proxy->is_sprung } 'it to claim the cycle', 60;
	is(said(), 2, 'both have said that they wait');
	$one->cancel;
	assert_ends($one, '57014', 'one of them waits no more');
	wait_until_said(1);
	$proxy->heal;
	poll_until { $stranger->exists($claims)->{cversion} >= $changes + 2 } 'the claim to come and go', 60;
	$stranger->close;
	$one->query_safe('SELECT zk_unlock_all()');
	assert_ends($other, '00000', 'the other one waits on, and is granted');
	assert_nothing_said($one, $other);
};

# How long the cycle is must not count, nor how many reads that takes.
subtest 'a deadlock of eight sessions is found in a few round trips' => sub {
	my $far = 0.15;    # each way, seconds
	my $proxy = Proxy->new($zk->connect_string, delay => $far);
	my @ring = map { background($node{ $_ % 2 ? 'paris' : 'berlin' }, route => $proxy->address,
			deadlock_timeout => $_ < 7 ? '120s' : '300ms') } 0 .. 7;
	$ring[$_]->start_query("SELECT zk_lock('far/$_')") foreach 0 .. $#ring;
	$_->wait_result foreach @ring;
	wait_behind($ring[$_], "SELECT zk_lock('far/" . ($_ + 1) . "')", 'far/' . ($_ + 1), 2)
	  foreach 0 .. $#ring - 1;
	wait_until_said($#ring);
	my $begun = time;
	assert_query($ring[-1], "SELECT zk_lock('far/0')", '40P01', 'the deadlock is found');
	my $trips = (time - $begun - 0.3) / 2 / $far;
	assert_length($ring[-1], scalar @ring, 'all sessions are named');
	note("after $trips round trips");
	cmp_ok($trips, '<', 40, 'after a few round trips, not after three for each of the ring, twice');
	assert_nothing_said(reverse @ring);
};

subtest 'a deadlock over a semaphore needs all its holders' => sub {
	my ($first, $second, $waiter) = (patient('berlin'), session('paris'), patient('berlin'));
	$_->query_safe("SELECT zk_lock('permit', permits => 2)") foreach $first, $second;
	$waiter->query_safe("SELECT zk_lock('c'), zk_lock('d')");
	wait_behind($waiter, "SELECT zk_lock('permit', permits => 2)", 'permit', 3);
	wait_behind($first, "SELECT zk_lock('c')", 'c', 2);
	wait_until_said(2);
	ok(!$first->is_done && !$waiter->is_done, 'a permit may still be let go of');
	assert_query($second, "SELECT zk_lock('d')", '40P01', 'no permit can be released any more');
	assert_length($second, 2, 'the shortest cycle is told');
	$second->query_safe('SELECT zk_unlock_all()');
	assert_ends($waiter, '00000', 'the permit is enough for the waiter');
	$waiter->query_safe('SELECT zk_unlock_all()');
	assert_ends($first, '00000', 'the first holder of a permit is granted its lock');
	assert_nothing_said($first, $second, $waiter);
};

# All that are asked about wait for it, but of so many holders not all are.
subtest 'a semaphore of which one holder does not wait is in no deadlock' => sub {
	my $waiter = background($node{berlin}, 'zklock.session_timeout' => '4s', holds => 'c');
	my ($stranger, $free) = map { $zk->client } 1 .. 2;
	$free->create_path(lock_path('many'));
	my @permits = map { $_->contend(lock_path('many/_c_6ba7b810-9dad-4a12-80b4-00c04fd430c8-permits-65-lock-')) }
	  ($stranger) x 64, $free;
	stand_and_say($stranger, 'c');
	wait_behind($waiter, "SELECT zk_lock('many', permits => 65)", 'many', 66);
	my $before = $zk->packets_received;
	poll_until { $zk->packets_received > $before + 2 * @permits } 'two searches', 60;
	$free->delete($permits[-1]);
	assert_ends($waiter, '00000', 'the last permit may be let go of');
	$_->close foreach $stranger, $free;
	assert_nothing_said($waiter);
};

subtest 'a session that holds a row and waits for a ZooKeeper lock gives way' => sub {
	my ($lock, $row) = lock_and_row();
	$lock->start_query('UPDATE account SET sum = 2 WHERE id = 1');
	wait_for_lock($node{berlin}, $lock->pid);
	assert_query($row, "SELECT zk_xact_lock('e')", '40P01', 'the session that waits for ZooKeeper gives way');
	my ($p, $q) = (who('berlin', $row), who('berlin', $lock));
	like($row->error, qr/DETAIL:  P$p waits for ExclusiveLock on ZooKeeper lock "e"; blocked by p$q\.
P$q waits for ShareLock on transaction \d+; blocked by p$p\./, 'both waits are told');
	assert_goes_on($lock, $row);
};

# Nobody tells the waiter when the row's waiter comes.
subtest 'a deadlock is found when the wait for a row comes last' => sub {
	my ($lock, $row) = lock_and_row();
	wait_behind($row, "SELECT zk_xact_lock('e')", 'e', 2);
	$lock->start_query('UPDATE account SET sum = 2 WHERE id = 1');
	assert_ends($row, '40P01', 'the session that waits for ZooKeeper gives way, though it came first');
	assert_goes_on($lock, $row);
};

# One of berlin that holds a row waits for a lock of paris', and another one that holds a lock waits
# for the row, if need be behind one in between; all have said so.
sub wait_over_row ($between = undef)
{
	my $abroad = background($node{paris}, holds => 'f');
	my $lock = background($node{berlin}, first => "BEGIN; SELECT zk_xact_lock('g')");
	my $row = patient('berlin', first => 'BEGIN; UPDATE account SET sum = 1 WHERE id = 1');
	$between->query_safe('BEGIN; UPDATE account SET sum = 1 WHERE id = 2') if $between;
	foreach my $waiter (grep { $_ } $between, $lock)
	{
		$waiter->start_query('UPDATE account SET sum = 2 WHERE id = ' . ($between && $waiter == $lock ? 2 : 1));
		wait_for_lock($node{berlin}, $waiter->pid);
	}
	wait_behind($row, "SELECT zk_xact_lock('f')", 'f', 2);
	wait_until_said(2);
	return ($row, $lock, $abroad);
}

# The one abroad has given way: it lets go, and so does each of the others in turn.
sub assert_all_go_on ($abroad, $row, @others)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$abroad->query_safe('SELECT zk_unlock_all()');
	assert_ends($row, '00000', 'the others go on');
	$row->query_safe('COMMIT');
	foreach my $session (@others)
	{
		$session->wait_result;
		$session->query_safe('COMMIT');
	}
	return assert_nothing_said($row, @others, $abroad);
}

subtest 'a deadlock over rows, two sessions of one cluster and another cluster is found' => sub {
	my $between = session('berlin');
	my ($row, $lock, $abroad) = wait_over_row($between);
	assert_query($abroad, "SELECT zk_lock('g')", '40P01', 'the session that searches gives way');
	assert_length($abroad, 3, 'three are in the cycle');
	assert_all_go_on($abroad, $row, $between, $lock);
};

# The leader itself waits for its workers, which is no wait for a lock.
subtest 'a deadlock over a lock that a parallel worker waits for is found' => sub {
	$node{berlin}->safe_psql('postgres', q{
		CREATE TABLE few (i int);
		CREATE TABLE many AS SELECT generate_series(1, 10000) i;
		ANALYZE many;
		CREATE FUNCTION look(int) RETURNS bigint LANGUAGE plpgsql PARALLEL SAFE AS
			'BEGIN RETURN (SELECT count(*) FROM few); END'});
	my ($table, $query) = (session('berlin'), session('berlin'));
	$query->query_safe("SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
		SET min_parallel_table_scan_size = 0; SET parallel_leader_participation = off;
		SELECT zk_lock('p')");
	$table->query_safe('BEGIN; LOCK TABLE few IN ACCESS EXCLUSIVE MODE');
	$query->start_query('SELECT sum(look(i)) FROM many');
	$node{berlin}->poll_query_until('postgres', "SELECT count(*) > 0 FROM pg_stat_activity
		WHERE backend_type = 'parallel worker' AND wait_event_type = 'Lock'") or die 'no worker waits';
	assert_query($table, "SELECT zk_xact_lock('p')", '40P01', 'the deadlock is found');
	like($table->error, qr/waits for AccessShareLock on relation \d+ of database \d+; blocked by/, 'the error names the table lock');
	assert_goes_on($query, $table);
};

# Who waits for a snapshot waits for no lock.
subtest 'a deadlock over a deferrable transaction that waits for a snapshot is found' => sub {
	my ($writer, $reader, $abroad) = (session('berlin'), session('berlin'), patient('paris'));
	# Who is given way to by that one may not wait for long.
	my $wait_for_snapshot = sub ($loser = undef) {
		$reader->query_safe('BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE');
		$reader->start_query('SELECT sum(sum) FROM account');
		poll_until
		{
			$node{berlin}->safe_psql('postgres', 'SELECT wait_event FROM pg_stat_activity WHERE pid = ' . $reader->pid)
			  eq 'SafeSnapshot' || $loser && $loser->is_done;
		}
		'it to wait for its snapshot, or to have done so', 30;
	};
	my $begin = sub {
		$reader->query_safe("SELECT zk_lock('safe')");
		$writer->query_safe('BEGIN ISOLATION LEVEL SERIALIZABLE; UPDATE account SET sum = 1 WHERE id = 1');
	};
	my $end = sub {
		$writer->query('ROLLBACK');
		$reader->wait_result;
		$reader->query_safe('COMMIT; SELECT zk_unlock_all()');
	};

	$begin->();
	$wait_for_snapshot->();
	assert_query($writer, "SELECT zk_xact_lock('safe')", '40P01', 'the session that waits for ZooKeeper gives way');
	my ($p, $q) = (who('berlin', $writer), who('berlin', $reader));
	like($writer->error, qr/DETAIL:  P$p waits for ExclusiveLock on ZooKeeper lock "safe"; blocked by p$q\.
P$q waits for a safe snapshot; blocked by p$p\./, 'the error names the safe snapshot');
	$end->();

	# the other way round, and over another cluster
	$begin->();
	$abroad->query_safe("SELECT zk_lock('abroad')");
	wait_behind($abroad, "SELECT zk_lock('safe')", 'safe', 2);
	wait_until_said(1);
	wait_behind($writer, "SELECT zk_xact_lock('abroad')", 'abroad', 2);
	$wait_for_snapshot->($writer);
	assert_ends($writer, '40P01', 'the session that waits for ZooKeeper gives way also if it came first');
	$end->();
	$abroad->wait_result;
	assert_nothing_said($writer, $reader, $abroad);
};

subtest 'the session whose deadlock_timeout is over first gives way' => sub {
	my ($patient, $hasty) = half_a_deadlock(deadlock_timeout => '60s');
	wait_until_said(1);
	$hasty->query_safe("SET deadlock_timeout = '100ms'");
	$hasty->start_query("SELECT zk_lock('a')");
	assert_ends($hasty, '40P01', 'the session with the short deadlock_timeout gives way');
	assert_goes_on($patient, $hasty);
};

# It is there, and who said it does not know: it is taken back after the reconnect, and said anew.
subtest 'a deadlock is found when the reply to the published wait is lost' => sub {
	plan skip_all => 'a proxy does not know what is encrypted' if $ENV{ZKLOCK_TEST_TLS};
	my $proxy = Proxy->new($zk->connect_string);
	my $one = background($node{berlin}, route => $proxy->address, holds => 'a');
	my $other = background($node{paris}, holds => 'b');
	# the second znode that it makes, behind its queue node
	$proxy->trap(15, 2, 'replies');
	wait_behind($one, "SELECT zk_lock('b')", 'b', 2);
	poll_until { $proxy->is_sprung } 'it to be said', 30;
	wait_until_said(1);
	# the delete of it, which no server gets: it is sent again
	$proxy->trap(2, 1, 'requests');
	$proxy->come_back;
	poll_until { $proxy->is_sprung } 'it to be taken back', 30;
	$proxy->come_back;
	$other->start_query("SELECT zk_lock('a')");
	assert_one_gives_way($one, $other, 'one of the two sessions gives way');
};

subtest 'a session that holds no lock publishes no wait' => sub {
	my ($holder, @waiters) = (background($node{berlin}, holds => 'h'), map { session('paris') } 1 .. 3);
	$_->start_query("SELECT zk_lock('h')") foreach @waiters;
	wait_for_queue($zk, lock_path('h'), 4);
	sleep 1;    # three times what they wait for until they would
	is(said(), 0, 'no wait is published');
	$holder->quit;
	foreach (1 .. 3)
	{
		my $next;
		poll_until { ($next) = grep { $_->is_done } @waiters; $next } 'one to go on', 30;
		@waiters = grep { $_ != $next } @waiters;
		$next->wait_result;
	}
};

# Facts are anybody's to delete who may write there. Who waits long looks after his.
subtest 'a published wait that a stranger deletes is published again' => sub {
	my ($one, $other) = half_a_deadlock('zklock.session_timeout' => '3s');
	wait_until_said(1);
	my $stranger = $zk->client;
	$stranger->delete($_->[0]) foreach $zk->ephemerals(lock_path('.waits/'));
	$other->start_query("SELECT zk_lock('a')");
	assert_one_gives_way($one, $other, 'the wait is published again, and the deadlock is found');
};

# What the stranger said ends no wait, and leaves nothing.
sub assert_not_believed ($stranger, $one, $holder, $waiter)
{
	ok(!$one->is_done, 'the session that waits for the lock goes on waiting');
	$stranger->close;
	$holder->query_safe('SELECT zk_unlock_all()');
	assert_ends($one, '00000', 'the waiter is granted the lock when it is released');
	$one->query_safe('SELECT zk_unlock_all()');
	$waiter->wait_result;
	return assert_nothing_said($one, $holder, $waiter);
}

# A holder of one lock, which waits for nothing, and one that holds the other and is to wait for it.
sub holders { return (background($node{berlin}, holds => 'a'), background($node{paris}, holds => 'b')); }

sub session_id ($session)
{
	return sprintf '%016s', session_id_of($session) =~ s/^0x//r;
}

# That a session waits only that session says. Its fact counts if it is its own.
subtest 'a wait that one client publishes for another session is not believed' => sub {
	my ($one, $holder) = holders();
	my ($waiter, $stranger) = (session('paris'), $zk->client);
	wait_behind($waiter, "SELECT zk_lock('a')", 'a', 2);
	make_fact($stranger, lock_path('a/') . (queue_nodes($zk, lock_path('a')))[1], session_id($holder));
	wait_behind($one, "SELECT zk_lock('b')", 'b', 2);
	wait_until_said(2);
	sleep 1;    # it searches at once
	assert_not_believed($stranger, $one, $holder, $waiter);
};

subtest 'a wait in PostgreSQL that a stranger publishes is not believed' => sub {
	my ($one, $holder) = holders();
	my ($waiter, $stranger) = (background($node{paris}, holds => 'c'), $zk->client);
	my @ids = map { session_id($_) } $holder, $waiter;
	wait_behind($waiter, "SELECT zk_lock('a')", 'a', 2);
	wait_until_said(1);
	$stranger->create_path(lock_path('.waits/pg'));
	my $lie = $stranger->create(lock_path(".waits/pg/$ids[0]-$ids[1]"), 'nothing', ephemeral => 1);
	is(ask($node{berlin}, 'SELECT count(*) FROM zk_waits() WHERE name IS NULL'), 0, 'zk_waits() does not show it');
	wait_behind($one, "SELECT zk_lock('b')", 'b', 2);
	wait_until_said(3);
	my $since = time;
	poll_until { $stranger->set($lie, 'nothing'); $one->is_done || time > $since + 2 } 'it to have searched', 30;
	assert_not_believed($stranger, $one, $holder, $waiter);
};

# Its word is older than its lock.
subtest 'a client that publishes a wait for a lock it holds is in no deadlock' => sub {
	my ($one, $stranger) = (session('berlin'), $zk->client);
	$one->query_safe("SELECT zk_lock_shared('a')");
	my $reader = '_c_6b29fc40-ca47-4067-b31d-00dd010662da-__READ__';
	$stranger->create_path(lock_path($_)) foreach 'b', '.waits';
	$stranger->contend(lock_path("b/$reader"));
	make_fact($stranger, $stranger->contend(lock_path("a/$reader")));
	# Others say what makes no sense.
	my @odd = map { $zk->client } 1, 2;
	my @words = ($odd[0]->contend(lock_path('a/x-lock-')), "none\n{}");
	foreach my $client (@odd)
	{
		$client->contend(lock_path("b/$reader"));
		$client->set(make_fact($client, ''), shift @words);
	}
	wait_behind($one, "SELECT zk_lock('b')", 'b', 4);
	wait_until_said(4);
	sleep 1;    # it searches at once
	ok(!$one->is_done, 'no deadlock is found');
	$_->close foreach $stranger, @odd;
	assert_ends($one, '00000', 'the waiter is granted the lock');
	$one->quit;
	assert_nothing_said();
};

# Names that read alike, but are not what zklock writes. Each would be one more wait of the same two.
subtest 'a thousand znodes that look like published waits do not hide a deadlock' => sub {
	my ($row, $lock, $abroad) = wait_over_row();
	my $stranger = $zk->client;
	my ($fact) = grep { m{/pg/} } map { $_->[0] } $zk->ephemerals(lock_path('.waits/'));
	$stranger->create("$fact-$_", '') foreach 1 .. 1100;
	assert_query($abroad, "SELECT zk_lock('g')", '40P01', 'the deadlock is found all the same');
	$stranger->delete("$fact-$_") foreach 1 .. 1100;
	assert_all_go_on($abroad, $row, $lock);
};

# A client that waits likewise and says so, but does not search, is one of a cycle. Who
# has looked before it is complete looks again after a session timeout.
subtest 'a deadlock with a client that does not search is found' => sub {
	foreach my $is_newest (0, 1)
	{
		my $lock = $is_newest ? 'newest' : 'older';
		my $one = background($node{berlin}, 'zklock.session_timeout' => $is_newest ? '20s' : '3s', holds => "$lock/a");
		my $stranger = $zk->client;
		$stranger->create_path(lock_path("$lock/b"));
		$stranger->contend(lock_path("$lock/b/x-lock-"));
		# Of a lock that is not below the root.
		$one->query_safe("SET zklock.root = '/'; SELECT zk_lock('outside'); RESET zklock.root") if $is_newest;
		make_fact($stranger, $stranger->contend('/outside/x-lock-')) if $is_newest;
		wait_behind($one, "SELECT zk_lock('$lock/b')", "$lock/b", 2);
		if (!$is_newest)
		{
			wait_until_said(1);
			stand_and_say($stranger, "$lock/a");
		}
		assert_ends($one, '40P01', 'the other one gives way');
		like($one->error, qr{ on ZooKeeper lock "/outside"; blocked by process }, 'the path is told') if $is_newest;
		$one->quit;
		$stranger->close;
		assert_nothing_said();
	}
};

# After a session timeout, and then after twice as long.
subtest 'a long wait is searched for deadlocks more and more seldom' => sub {
	my $line = qr/(\d\d):(\d\d):(\d\d\.\d+) .*?\[@{[ $long_waiter->pid ]}\] .* no deadlock; searched for one because the wait goes on/;
	my $longest = 0;
	assert_soon
	{
		# A busy machine may lose so short a session, and the wait with it.
		$long_waiter->wait_result, start_long_wait() if $long_waiter->is_done;
		my ($log, @times) = slurp_file($node{berlin}->logfile);
		push @times, 3600 * $1 + 60 * $2 + $3 while $log =~ /$line/g;
		my @pauses = map { $times[$_] - $times[ $_ - 1 ] } 1 .. $#times;
		($longest) = sort { $b <=> $a } @pauses, 0;
		$longest > 9;
	}
	'a pause is twice as long as the session timeout', 90;
	$long_holder->quit;
	$long_waiter->quit;
};

# The wait is the same as ever, but for a line in the log.
subtest 'a lock is granted where no session may publish waits' => sub {
	$zk->client->set_acl(lock_path('.waits'), [ [ 1, 'world', 'anyone' ] ]);
	my ($one, $other) = half_a_deadlock();
	poll_until { $node{berlin}->log_contains('process ' . $one->pid . ' cannot detect deadlocks over ZooKeeper locks') }
	'the log to say so', 30;
	$other->quit;
	assert_ends($one, '00000', 'the waiter is granted the lock');
};

foreach my $name (sort keys %node)
{
	ok(!$node{$name}->log_contains(qr/Znode "[^"]*\.ask" cannot be created/), 'it is nothing that somebody else asks, too');
	$node{$name}->stop;
}

done_testing();
