
# A holder relies on its lock only as long as the ensemble cannot have given it to another
# contender: this tests what an acknowledged write proves. Only the leader ends sessions, and it
# hears of a session at a follower by that follower's answers to its pings alone; so after a
# pause of the client a write may be acknowledged for a session that is about to end
# (src/common/contact.h). Three real servers, of which one is killed or paused.

use ZkLockTest;

my $timeout = 6;    # of sessions, seconds
my $reserve = $timeout / 3;    # what a proof leaves at least
# Followers bear with a leader that stands still for longer than a session.
my $zk = ZooKeeper->new(servers => 3, config => { syncLimit => 40 })->start;
my %setting = (
	'zklock.session_timeout' => "${timeout}s");
my %node = map { $_ => cluster($_, $zk, %setting) } qw(berlin paris);
my $follower = ($zk->followers)[0];
my @others = grep { $_ != $follower } $zk->members;
$node{berlin}->safe_psql('postgres', 'CREATE TABLE work (i int)');

# A session at one of these servers: of berlin's at the follower, of paris' at
# another one, unless others are named.
sub session_of ($cluster, @members)
{
	@members = $cluster eq 'berlin' ? $follower : @others unless @members;
	return background($node{$cluster}, 'zklock.servers' => $zk->connect_string(@members),
		first => "SELECT zk_lock('warm'), zk_unlock('warm')");
}

# One of berlin's, at the follower unless another member is named, that holds the lock, and one of paris'
# that waits for it.
sub holder_and_next ($lock, $guard, @members)
{
	return take_and_queue($lock, $guard, session_of('berlin', @members), session_of('paris'));
}

sub take_and_queue ($lock, $guard, $holder, $next)
{
	$holder->query_safe("SET zklock.commit_guard = $guard; SELECT zk_lock('$lock')");
	start_in_queue($next, "SELECT zk_lock('$lock')", $zk, lock_path($lock), 2);
	return ($holder, $next);
}

# The next one is granted the lock, so long after that moment.
sub assert_granted_later ($next, $since, $seconds, $what)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	poll_until { $next->is_done } 'the next one to be granted the lock', 60;
	cmp_ok(time - $since, '>', $seconds, $what);
	return assert_ends($next, '00000', 'granted');
}

# Its statement ends with the loss.
sub assert_lost ($session, $what)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	poll_until { $session->is_done } 'its statement to end', 5 * $timeout;
	$session->wait_result;
	return like($session->sqlstate, qr/^(40001|08006)$/, $what);
}

my $ask_again = "DO \$\$ BEGIN LOOP PERFORM count(*) FROM zk_lock_queue('warm');
	PERFORM pg_sleep(0.05); END LOOP; END \$\$";

# The sessions have just been busy, and the leader has heard of that, which takes
# half a tick; then backends and programs stand still, almost for the session
# timeout. When they wake up an answer waits for them. So the connections are good.
sub stand_still (@sessions)
{
	my @processes = map { ($_->pid, session_programs($_->pid)) } @sessions;
	$zk->pause($follower);
	$_->start_query("SELECT count(*) FROM zk_lock_queue('warm')")
	  foreach @sessions;
	wait_for_wait($node{berlin}, $_->pid) foreach @sessions;
	kill 'STOP', @processes;
	$zk->resume($follower);
	sleep 0.85 * $timeout;
	kill 'CONT', @processes;
	$_->wait_result foreach @sessions;
	return;
}

# Holder and next one, and the holder has stood still and does that. On a busy machine it stands still
# for longer than its session lasts, and then all begins anew.
sub holder_that_stood_still ($lock, $guard, $sql)
{
	foreach my $attempt (1 .. 5)
	{
		my ($holder, $next) = holder_and_next($lock, $guard);
		stand_still($holder);
		my $answer = $holder->query($sql);
		return ($holder, $next) if $holder->sqlstate eq '00000' && $answer ne 'f';
		note('again: it stood still for too long');
		assert_leave_nothing($zk, lock_path($lock), $next, $holder);
	}
	die "$lock: it always stood still for too long";
}

# The follower goes right after it has told the holder that it holds the lock. The
# next one is not granted it before the reserve is over, and then the holder has
# lost it.
sub follower_goes ($holder, $next, $lock)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $asked = time;
	$zk->kill9($follower);
	assert_granted_later($next, $asked, $reserve, 'the next contender is granted the lock after the reserve');
	assert_query($holder, 'INSERT INTO work VALUES (1)', '40001', 'the former holder does not commit');
	$zk->start($follower);
	assert_leave_nothing($zk, lock_path($lock), $holder, $next);
	return;
}

# Nothing was paused: a question that was answered with yes leaves the reserve.
subtest 'a confirmed lock stays held for the reserve when its follower is killed' => sub {
	my ($holder, $next) = holder_and_next('gone', 'fresh');
	# Long enough for the last heartbeat to be as old as it gets.
	sleep 0.15 * $timeout;
	assert_held($holder, 'gone', 'it is held');
	follower_goes($holder, $next, 'gone');
};

# All that the leader has heard of an idle session are the follower's reports of its pulses.
subtest 'a first lock stays held for the reserve when its follower is killed' => sub {
	my ($holder, $next) = (session_of('berlin'), session_of('paris'));
	# More than the session timeout since the session was opened, and any part of a pulse.
	sleep 1.1 * $timeout + rand $timeout / 4;
	take_and_queue('first', 'fresh', $holder, $next);
	$holder->query_safe('INSERT INTO work VALUES (2)');
	follower_goes($holder, $next, 'first');
};

# The question is answered a moment before the session ends: that it is alive says
# nothing of how long it will be.
subtest 'a lock confirmed after a pause stays held for the reserve when its follower is killed' => sub {
	my ($holder, $next) = holder_that_stood_still('pause', 'fresh', "SELECT zk_is_held('pause')");
	follower_goes($holder, $next, 'pause');
};

# The same with a commit in place of the question.
subtest 'a commit after a pause is followed by the reserve before the next grant' => sub {
	foreach my $guard (qw(fresh quorum))
	{
		my ($holder, $next) = holder_that_stood_still('commit', $guard, 'INSERT INTO work VALUES (3)');
		my $committed = time;
		$zk->kill9($follower);
		assert_granted_later($next, $committed, $reserve, "$guard: after the reserve");
		$zk->start($follower);
		assert_leave_nothing($zk, lock_path('commit'), $holder, $next);
	}
};

# The leader hears all that its own clients send.
subtest 'a lock held at the leader passes on after the whole session timeout' => sub {
	my ($holder, $next) = holder_and_next('leader', 'quorum', $zk->leader);
	$holder->query_safe('INSERT INTO work VALUES (4)');
	my $committed = time;
	my @processes = ($holder->pid, session_programs($holder->pid));
	kill 'STOP', @processes;
	assert_granted_later($next, $committed, 0.9 * $timeout, 'the next contender is granted the lock after the whole session timeout');
	kill 'CONT', @processes;
	assert_leave_nothing($zk, lock_path('leader'), $holder, $next);
};

# Holder and waiter are neighbors at one follower. The leader ends the sessions of
# both, and somebody elsewhere is granted the lock, before the one tells the other
# that it lets go.
subtest 'a hand-over between two sessions that were paused does not grant a lock held elsewhere' => sub {
	my ($holder, $waiter, $third);
	# On a busy machine the holder stands still for longer than its session lasts, too.
	foreach my $attempt (1 .. 5)
	{
		($holder, $waiter, $third) = map { session_of($_) } qw(berlin berlin paris);
		$holder->query_safe("SELECT zk_lock('told')");
		my ($first) = wait_for_queue($zk, lock_path('told'), 1);
		stand_still($holder, $waiter);
		$waiter->start_query("SELECT zk_lock('told')");
		wait_for_watch($zk, $first, $waiter);
		last if !$waiter->is_done;
		note('again: it stood still for too long');
		$waiter->wait_result;
		assert_leave_nothing($zk, lock_path('told'), $waiter, $holder, $third);
	}
	$zk->pause($follower);
	my $theirs = $third->query_safe("SELECT zk_lock('told')");
	$holder->query("SELECT zk_unlock('told')");
	wait_for_wait($node{berlin}, $waiter->pid);
	ok(!$waiter->is_done, 'the waiter is not granted what a third one holds');
	$third->query_safe("SELECT zk_unlock('told')");
	$zk->resume($follower);
	my $ours = assert_ends($waiter, '00000', 'the waiter is granted the lock later');
	cmp_ok($ours, '>', $theirs, "the waiter's node is younger than that of the session in between");
	assert_leave_nothing($zk, lock_path('told'), $holder, $waiter, $third);
};

# The session's program would interrupt the statement, but the backend finds the loss
# first, in a call that needs no lock and goes on with a new session.
subtest 'a loss that a question finds first ends the statement' => sub {
	my $holder = session_of('berlin');
	$holder->query_safe("SELECT zk_lock('busy')");
	my ($program) = session_programs($holder->pid);
	$holder->start_query($ask_again);
	kill 'STOP', $program;
	assert_lost($holder, 'the statement ends with the loss');
	kill 'CONT', $program;
	assert_leave_nothing($zk, lock_path('busy'), $holder);
};

# A follower that has lost its leader answers reads; the heartbeat is none, and
# comes also between reads.
subtest 'a follower without a leader is noticed before the session timeout' => sub {
	my ($noticed, $lost);
	# Once in time will do, on a busy machine.
	foreach (1 .. 3)
	{
		my $holder = session_of('berlin');
		$holder->query_safe("SELECT zk_lock('cut')");
		my $reader = session_of('berlin');
		$reader->query_safe("SELECT zk_lock('busy')");
		$reader->start_query($ask_again);
		my $leader = $zk->leader;
		$zk->pause($leader);
		my $start = time;
		# The loss may also interrupt the question.
		poll_until { $holder->query('SELECT state FROM zk_session') ne 'connected' }
		'the session to notice', 3 * $timeout;
		$noticed = time - $start;
		assert_lost($reader, 'the statement of another one ends');
		$lost = time - $start;
		$zk->resume($leader);
		$zk->wait_ready;
		$_->quit foreach $holder, $reader;
		assert_no_nodes($zk, lock_path($_)) foreach qw(cut busy);
		last if $noticed < $timeout && $lost < 1.2 * $timeout;
		note("again: after $noticed and $lost seconds");
	}
	in_time($noticed, $timeout, 'before the leader could end it');
	in_time($lost, 1.2 * $timeout, 'a session that reads all the time is lost not much later');
};

done_testing();
