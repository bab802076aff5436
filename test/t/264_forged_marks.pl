
# A client that may create znodes in a queue can forge one that looks handed over. With
# commit_guard = fresh a waiter behind it may believe that; with quorum no transaction commits on
# it, and no question is answered with "held". Tested with forged znodes, copied names and stolen
# sessions on real servers.

use Preload;
use Proxy;
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $other_zk = ZooKeeper->new->start;
my %setting = ('zklock.session_timeout' => '20s');
my $node = cluster('berlin', $zk, %setting);
my $stranger = $zk->client;
my $forged_name = node_prefix('handed over');

$node->safe_psql('postgres', 'CREATE TABLE written (what text)');

# A holder, a forged node behind it, and one who waits for that.
sub queue_up ($lock, $cluster = $node, %setting)
{
	my ($holder, $waiter) = (background($node, holds => $lock), background($cluster, %setting));
	my $forged = $stranger->contend(lock_path("$lock/$forged_name"));
	start_waiting($waiter, "SELECT zk_lock('$lock')", $forged);
	return ($holder, $waiter, $forged);
}

sub start_waiting ($waiter, $query, $ahead)
{
	$waiter->start_query($query);
	wait_for_watch($zk, $ahead);
	return;
}

subtest 'a forged hand-over is not believed with commit_guard = quorum' => sub {
	my ($holder, $waiter, $forged) = queue_up('quorum', $node, 'zklock.commit_guard' => 'quorum');
	set_and_be_seen($zk, $stranger, $forged) foreach 1 .. 3;
	ok(!$waiter->is_done, 'the waiter goes on waiting');
	assert_held($holder, 'quorum', 'the holder still holds the lock');
	$stranger->delete($forged);
	assert_passes('quorum', $holder, $waiter, 'the waiter is granted the lock in its turn');
};

subtest 'a forged hand-over is not believed by zk_hold()' => sub {
	my ($holder, $waiter) = (background($node, holds => 'hold'), background($node));
	my $forged = $stranger->contend(lock_path("hold/$forged_name"));
	start_waiting($waiter, "SELECT zk_hold('hold', 'works')", $forged);
	set_and_be_seen($zk, $stranger, $forged);
	ok(!$waiter->is_done, 'the hold waits');
	$holder->quit;
	$stranger->delete($forged);
	like($waiter->wait_result, qr/^\d+$/, 'the hold is granted in its turn');
};

# The guard is asked for more only afterwards.
subtest 'a grant by a forged hand-over is checked before a commit with quorum' => sub {
	foreach my $way (
		'a question',
		"SET zklock.commit_guard = 'quorum'; INSERT INTO written VALUES ('false')",
		"BEGIN; INSERT INTO written VALUES ('false'); SET zklock.commit_guard = 'quorum'; COMMIT")
	{
		my ($holder, $waiter, $forged) = queue_up('again', $node, 'zklock.session_timeout' => '2s');
		$stranger->set($forged, '');
		assert_ends($waiter, '00000', 'the waiter believes the forged hand-over');
		if ($way eq 'a question')
		{
			assert_knows_loss($waiter, 'again', 'zk_is_held() says that the lock is not held');
		}
		else
		{
			assert_query($waiter, $way, '40001', 'its commit is refused');
			like($waiter->error, qr/another contender ahead in the queue/, 'the error says that another contender is ahead');
		}
		assert_held($holder, 'again', 'the holder holds it');
		$holder->query_safe("SET zklock.commit_guard = 'quorum';
			INSERT INTO written VALUES ('true')");
		is($waiter->query_safe('SELECT state FROM zk_session_locks'), 'lost', 'the waiter that believed the forged hand-over has lost the lock');

		# The former believer does not pass its error on, not even to who would believe it.
		my $next = background($node);
		start_in_queue($next, "SELECT zk_lock('again')", $zk, lock_path('again'), 4);
		wait_for_wait($node, $next->pid);
		$stranger->delete($forged);
		$waiter->query_safe('SELECT zk_unlock_all()');
		my ($first) = wait_for_queue($zk, lock_path('again'), 2);
		wait_for_watch($zk, $first, $next);
		ok(!$next->is_done, 'the session that believed it hands nothing over');
		$holder->query_safe('SELECT zk_unlock_all()');
		assert_ends($next, '00000', 'the next waiter is granted the lock when the holder releases it');
	}
	is(ask($node, "SELECT count(*) FROM written WHERE what = 'false'"), '0', 'nothing was written on a forged hand-over');
};

# Whichever it looks at first.
subtest 'a true hand-over does not make a forged one of another lock true' => sub {
	foreach my $true ('one', 'two')
	{
		my ($holder, $waiter) = map { background($node) } 1 .. 2;
		$waiter->query_safe("SET zklock.session_timeout = '2s'");
		my %forged;
		foreach my $lock ('one', 'two')
		{
			$holder->query_safe("SELECT zk_lock('$lock')");
			$forged{$lock} = $stranger->contend(lock_path($lock) . "/$forged_name");
			start_waiting($waiter, "SELECT zk_lock('$lock')", $forged{$lock});
			$stranger->set($forged{$lock}, '');
			assert_ends($waiter, '00000', 'the waiter believes the forged hand-over');
		}
		$holder->query_safe("SELECT zk_unlock('$true')");
		$stranger->delete($forged{$true});
		assert_query($waiter, "SET zklock.commit_guard = 'quorum'; INSERT INTO written VALUES ('false')",
			'40001', "only $true was true");
		$stranger->delete($forged{ $true eq 'one' ? 'two' : 'one' });
		$_->quit foreach $holder, $waiter;
		assert_no_nodes($zk, lock_path($_)) foreach 'one', 'two';
	}
};

# The look waits for whoever is ahead; meanwhile the session may end.
subtest 'a commit is refused when its session is lost while a forged hand-over is checked' => sub {
	my ($holder, $waiter, $forged) = queue_up('lost');
	$stranger->set($forged, '');
	$waiter->wait_result;
	my $program = $waiter->query_safe('SELECT program_pid FROM zk_session');
	$waiter->query_safe("SET zklock.commit_guard = 'quorum'; BEGIN;
		INSERT INTO written VALUES ('false')");
	$zk->wait_closed;
	my $watches = $zk->watch_count;
	$waiter->start_query('COMMIT');
	poll_until { $zk->watch_count > $watches } 'it to watch';
	kill 'KILL', $program;
	$waiter->wait_result;
	like($waiter->sqlstate, qr/^(40001|57014)$/, 'the commit is refused');
	is($waiter->query('SELECT 1'), '1', 'the backend goes on');
	$stranger->delete($forged);
	$_->quit foreach $holder, $waiter;
	is(ask($node, "SELECT count(*) FROM written WHERE what = 'false'"), '0', 'nothing was written');
};

# As when the interrupt of the loss comes late: the backend finds the loss by itself.
subtest 'a commit is refused when its session is lost and no interrupt tells it' => sub {
	my $library = Preload::library('no_interrupts') or plan skip_all => 'there is no compiler';
	my $deaf = cluster('paris', $zk, %setting, environment => { LD_PRELOAD => $library });
	my $proxy = Proxy->new($zk->connect_string);
	my ($holder, $waiter, $forged) = queue_up('late', $deaf,
		route => $proxy->address, 'zklock.session_timeout' => '2s');
	$stranger->set($forged, '');
	$waiter->wait_result;
	$waiter->query_safe("SET zklock.commit_guard = quorum; BEGIN; CREATE TABLE false_word ()");
	$proxy->cut;
	assert_query($waiter, 'COMMIT', '40001', 'the commit is refused');
	like($waiter->error, qr/DETAIL:  The connection broke at/, 'the DETAIL says what has happened');
	$stranger->delete($forged);
};

# An honest word that is looked at again holds, be there one ahead or several.
subtest 'a true hand-over is confirmed when it is checked' => sub {
	my @sessions = map { background($node) } 1 .. 4;
	$sessions[0]->query_safe("SELECT zk_lock('true')");
	foreach my $position (1 .. $#sessions)
	{
		start_in_queue($sessions[$position], "SELECT zk_lock('true')", $zk, lock_path('true'), $position + 1);
	}
	foreach my $position (1 .. $#sessions)
	{
		assert_passes('true', $sessions[ $position - 1 ], $sessions[$position], 'granted');
		assert_held($sessions[$position], 'true', 'ZooKeeper confirms the holder');
		$sessions[$position]->query_safe("SET zklock.commit_guard = 'quorum';
			INSERT INTO written VALUES ('handed over')");
	}
};

# Backends of one cluster tell each other. The name of a node can be copied to
# where it says nothing: into another queue, or into that of another ensemble.
subtest 'a node name copied to another queue is not taken for a hand-over there' => sub {
	foreach my $way ([ $zk, 'told', 'here' ], [ $other_zk, 'there', 'there' ])
	{
		my ($ensemble, $lock, $copied) = @$way;
		my ($holder, $waiter) = map { background($node) } 1 .. 2;
		my $teller = background($node, $ensemble == $zk ? () : ('zklock.servers' => $ensemble->connect_string));
		# The second number, so that the copy comes behind the holder.
		$teller->query_safe("SELECT zk_lock('$lock'), zk_unlock('$lock')");
		$teller->query_safe("SELECT zk_lock('$lock')");
		my ($name) = queue_nodes($ensemble, lock_path($lock));

		$holder->query_safe("SELECT zk_lock('$copied')");
		my $copy = lock_path($copied) . "/$name";
		$stranger->create($copy, '', ephemeral => 1);
		$stranger->delete($stranger->contend(lock_path($copied) . '/x-'))
		  foreach 1 .. 2;
		start_waiting($waiter, "SELECT zk_lock('$copied')", $copy);
		$teller->query_safe("SELECT zk_unlock('$lock')");
		$teller->quit;
		# What must not happen has no condition to wait for.
		eval { poll_until { $waiter->is_done } 'a false grant', 1 };
		ok(!$waiter->is_done, 'the waiter behind the copied name is not granted the lock');
		assert_held($holder, $copied, 'ZooKeeper confirms the holder of that lock');
		$stranger->delete($copy);
		$holder->quit;
		assert_ends($waiter, '00000', 'granted in its turn');
		assert_leave_nothing($zk, lock_path($copied), $waiter);
	}
};

# Who knows the number of a session can go on with it, and make nodes in its name. If
# the reply to a create was lost these look like the one that it has made.
subtest "nodes made under a stolen session id are not taken for the waiter's own" => sub {
	my $proxy = Proxy->new($zk->connect_string);
	my $holder = background($node);
	my $waiter = background($node,
		route => $proxy->address, 'zklock.commit_guard' => 'quorum', holds => 'other');
	my $path = lock_path('name');
	$holder->query_safe("SELECT zk_lock('name'), zk_unlock('name')") foreach 0 .. 20;
	$holder->query_safe("SELECT zk_lock('name')");
	$proxy->trap(15, 1, 'replies');    # create2
	$waiter->start_query("SELECT zk_lock('name')");
	my @names = wait_for_queue($zk, $path, 2);
	my $owner = $stranger->exists("$path/$names[1]")->{owner};
	my $thief = $zk->client(session => $owner, timeout => 20);
	$thief->create(sprintf('%s/%s%010d', $path, $names[1] =~ s/\d{10}$//r, $_), '', ephemeral => 1)
	  foreach 0 .. 19;
	$stranger->delete("$path/$names[1]");
	$proxy->come_back;
	wait_for_watch($zk, $names[0], $waiter);
	ok(!$waiter->is_done, 'the waiter goes on waiting');
	assert_held($holder, 'name', 'the holder still holds the lock');
	assert_passes('name', $holder, $waiter, 'the waiter is granted the lock in its turn');
};

# A create whose reply was lost is undone, whoever else has used its GUID by then.
subtest 'nodes made with the GUID of a lost create are deleted with it' => sub {
	my $proxy = Proxy->new($zk->connect_string);
	my $path = lock_path('back');
	my $other = background($node, first => "SELECT zk_lock('back'), zk_unlock('back')");
	my $session = background($node, route => $proxy->address, holds => 'other');
	$proxy->trap(15, 1, 'replies');    # create2
	$session->start_query("SELECT zk_lock('back')");
	my ($name) = wait_for_queue($zk, $path, 1);
	my $prefix = $name =~ s/\d{10}$//r;
	$stranger->create(sprintf('%s/%s%010d', $path, $prefix, $_), '', ephemeral => 1)
	  foreach 1000 .. 1029;
	$session->cancel;
	assert_ends($session, '57014', 'the statement gives up');
	$proxy->come_back;
	assert_no_nodes($zk, $path, 'all nodes with that GUID are deleted');
	assert_held($session, 'other', 'the session is the same');
	$other->query_safe("SELECT zk_lock('back', '5s')");
};

done_testing();
