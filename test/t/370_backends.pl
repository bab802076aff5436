
# zk_backends and zk_locks show what each backend of a cluster holds and waits for, without
# asking ZooKeeper, to those who may see it; and no row is left of a backend that has ended.
# Tested with real servers that stop, programs that are killed, and a crash.

use Proxy;
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk,
	'restart_after_crash' => 'on', 'zklock.session_timeout' => '15s');
my $monitor = background($node);

sub sql { return $monitor->query_safe($_[0]); }

sub backend ($session, $columns)
{
	return sql("SELECT $columns FROM zk_backends WHERE pid = " . $session->pid);
}

sub locks ($session, $columns)
{
	return sql("SELECT $columns FROM (SELECT * FROM zk_locks WHERE pid = "
		  . $session->pid . ' ORDER BY name, mode) AS l');
}

sub nobody_left ($what)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	poll_until { sql('SELECT count(*) FROM zk_backends') == 0 } 'the rows to go', 30;
	return pass($what);
}

subtest 'zk_backends and zk_locks show what a backend holds' => sub {
	my $holder = background($node);
	is(backend($holder, 'count(*)'), 0, 'no row without a session');
	$holder->query_safe("SELECT zk_lock('a'), zk_lock('a'), zk_lock_shared('b')");
	is(backend($holder, "state, datname, usename = current_user, waiting_for, lock_count"),
		'connected|postgres|t||2', 'zk_backends shows the backend');
	is(backend($holder, 'session_id, server'), $holder->query_safe('SELECT session_id, server FROM zk_session'), 'zk_backends shows its ZooKeeper session');
	is(backend($holder, "now() - state_since < '1 min' AND state_since <= now()"), 't', 'zk_backends shows since when');
	is(locks($holder, 'name, mode, state, session_acquisitions, xact_acquisitions, permits'),
		"a|exclusive|held|2|0|1\nb|shared|held|1|0|1", 'zk_locks shows its locks');
	is(backend($holder, 'root'), $holder->query_safe('SELECT DISTINCT root FROM zk_session_locks'), 'zk_backends shows its root');
	is(backend($holder, 'root'), lock_path('') =~ s{/$}{}r, 'the root is that of the configuration');
	is(locks($holder, 'token, granted_at'),
		$holder->query_safe('SELECT token, granted_at FROM zk_session_locks ORDER BY name'),
		'zk_locks shows the same tokens as zk_session_locks');
	is(locks($holder, "last_proof BETWEEN now() - interval '1 min' AND now()"), "t\nt", 'zk_locks shows a proof of each lock');
	is(backend($holder, "last_proof BETWEEN now() - interval '1 min' AND now()"), 't', 'zk_backends shows the latest proof');

	$holder->query_safe("SELECT zk_lock_shared('a'), zk_unlock('a')");
	is(locks($holder, 'name, mode, session_acquisitions'), "a|exclusive|1\na|shared|1\nb|shared|1", 'zk_locks shows both modes of a lock');
	$holder->query_safe("SELECT zk_unlock('a')");
	is(locks($holder, 'name, mode, session_acquisitions'), "a|exclusive|0\na|shared|1\nb|shared|1", 'zk_locks shows the mode that is left, and that of the node');
	$holder->query_safe("BEGIN; SELECT zk_xact_lock('c', permits => 3); SAVEPOINT s;
		SELECT zk_xact_lock('d'), zk_xact_lock('c', permits => 3)");
	is(locks($holder, 'name, session_acquisitions, xact_acquisitions, permits'),
		"a|0|0|1\na|1|0|1\nb|1|0|1\nc|0|2|3\nd|0|1|1", 'zk_locks shows locks of an open transaction');
	$holder->query_safe('ROLLBACK TO s');
	is(locks($holder, 'name, xact_acquisitions'), "a|0\na|0\nb|0\nc|1", 'zk_locks does not show locks that were rolled back');
	$holder->query_safe("NOTIFY news; SELECT zk_unlock_shared('b')");
	is(locks($holder, "name, state, session_acquisitions"), "a|held|0\na|held|1\nb|leaving|0\nc|held|0", 'zk_locks shows which lock is released at the end of the transaction');
	$holder->query_safe('COMMIT; SELECT zk_unlock_all()');
	is(locks($holder, 'count(*)'), 0, 'zk_locks shows nothing after all were released');
	is(backend($holder, 'state, lock_count'), 'connected|0', 'zk_backends still shows the session');
	$holder->query_safe('SELECT zk_disconnect()');
	is(backend($holder, "state, session_id, server, state_since > now() - interval '1 min'"),
		'none|||t', 'zk_backends shows that the session is closed');
	$holder->query_safe("SELECT zk_lock('again')");
	is(backend($holder, 'state, lock_count'), 'connected|1', 'zk_backends shows the next session');
	$holder->quit;
	nobody_left('its row goes with it');
};

# A transaction that goes on after its lock never waits in the session's loop again.
subtest 'zk_backends shows the session of a backend in its first transaction' => sub {
	my $holder = background($node);
	$holder->start_query("SELECT zk_lock('first'), pg_sleep(600)");
	wait_for_sleep($node, $holder->pid);
	like(backend($holder, 'session_id, state'), qr/^0x[0-9a-f]+\|connected$/, 'the session is shown at once');
	is(locks($holder, 'name'), 'first', 'zk_locks shows its lock');
	$holder->cancel;
	$holder->wait_result;
	is(locks($holder, 'name, session_acquisitions'), 'first|1', 'zk_locks shows the lock after the error');
};

subtest 'zk_backends shows what a backend waits for' => sub {
	my ($holder, $waiter) = map { background($node) } 1 .. 2;
	$holder->query_safe("SELECT zk_lock('queue')");
	foreach my $end ('granted', 'cancelled', 'out of time', 'killed')
	{
		my $timeout = $end eq 'out of time' ? "'10 s'" : 'NULL';
		$waiter->start_query("SELECT zk_lock_shared('queue', $timeout)");
		poll_until { backend($waiter, 'waiting_for') eq 'queue' } 'it to wait', 30;
		is(backend($waiter, "waiting_mode, waiting_permits, waiting_since BETWEEN
				now() - interval '1 min' AND now(), state, lock_count"),
			'shared|1|t|connected|0', 'zk_backends shows how it waits, and since when');
		$holder->query_safe("SELECT zk_unlock('queue')") if $end eq 'granted';
		$waiter->cancel if $end eq 'cancelled';
		$waiter->terminate if $end eq 'killed';
		$waiter->wait_result;
		last if $end eq 'killed';
		is(backend($waiter, 'waiting_for, waiting_mode, waiting_permits, waiting_since'), '|||',
			"$end: it waits no more");
		next if $end ne 'granted';
		is(backend($waiter, 'lock_count'), 1, 'zk_backends counts the granted lock');
		$waiter->query_safe("SELECT zk_unlock_shared('queue')");
		$holder->query_safe("SELECT zk_lock('queue')");
	}
	poll_until { backend($waiter, 'count(*)') == 0 } 'the row of a killed one to go', 30;
	$waiter = background($node, first => "SELECT zk_try_lock('queue')");
	is(backend($waiter, 'waiting_for, lock_count'), '|0', 'zk_backends shows no wait of a try');
	$waiter->start_query("SELECT zk_lock('queue')");
	poll_until { backend($waiter, 'waiting_for') eq 'queue' } 'it to wait', 30;
	$holder->query_safe("SELECT zk_unlock('queue')");
	$waiter->wait_result;
	is(backend($waiter, 'waiting_for, lock_count'), '|1', 'zk_backends counts a lock granted after a wait');
};

subtest 'zk_locks shows sixteen locks of a backend, and zk_backends counts all' => sub {
	# Rows are beside one another as backends begin, as a rule.
	my ($holder, @neighbors) = (map { background($node) } 0 .. 8)[ 4, 0 .. 3, 5 .. 8 ];
	$_->query_safe("SELECT zk_lock('beside/' || pg_backend_pid())") foreach @neighbors;
	$holder->query_safe("SELECT zk_lock_set(ARRAY(SELECT 'many/' || i FROM generate_series(1, 40) i))");
	is(backend($holder, 'lock_count'), 40, 'all are counted');
	is_deeply([ grep { backend($_, 'state, lock_count') . locks($_, 'name') ne 'connected|1beside/' . $_->pid } @neighbors ], [],
		'no other row is touched');
	is(locks($holder, 'count(*)'), 16, 'zk_locks shows sixteen of them');
	$holder->query_safe("SELECT zk_unlock('many/' || i) FROM generate_series(1, 40) i
		WHERE i NOT IN (7, 33)");
	is(backend($holder, 'lock_count'), 2, 'two are left');
	is(locks($holder, 'name'), "many/33\nmany/7", 'zk_locks shows the two that are left');
};

# A line that is not given back is missed only when all others are taken.
subtest 'zk_locks shows the locks of a session that has held hundreds one after the other' => sub {
	my $holder = background($node);
	my %ways = (
		'unlocked' => "PERFORM zk_lock('turn/' || i), zk_unlock('turn/' || i);",
		'at the end of the transaction' => "PERFORM zk_xact_lock('turn/' || i); COMMIT;",
		'of a transaction that is rolled back' => "PERFORM zk_xact_lock('turn/' || i); ROLLBACK;",
		'of a subtransaction that is rolled back' => "BEGIN
			PERFORM zk_xact_lock('turn/' || i); RAISE division_by_zero; EXCEPTION WHEN division_by_zero THEN NULL; END;",
		'in both modes' => "PERFORM zk_lock('turn/' || i), zk_lock_shared('turn/' || i);
			PERFORM zk_unlock('turn/' || i), zk_unlock_shared('turn/' || i);");
	foreach my $way (sort keys %ways)
	{
		$holder->query_safe("DO \$\$ BEGIN FOR i IN 1 .. 40 LOOP $ways{$way} END LOOP; END \$\$");
		$holder->query_safe("SELECT zk_lock('then/' || i) FROM generate_series(1, 3) i");
		is(locks($holder, 'name'), "then/1\nthen/2\nthen/3", "$way: what is held then is told of");
		is(backend($holder, 'lock_count'), 3, 'the locks of the backend are counted');
		$holder->query_safe('SELECT zk_unlock_all()');
	}

	# With all lines taken, whoever comes has that of whoever went last.
	$holder->query_safe("SELECT zk_lock('line/' || i) FROM generate_series(1, 16) i");
	$holder->query_safe("SELECT zk_unlock('line/' || i), zk_lock('line/' || i + 16) FROM generate_series(1, 40) i");
	is(locks($holder, "count(*), min(substr(name, 6)::int), max(substr(name, 6)::int)"), '16|41|56', 'the last sixteen');
	$holder->query_safe("SELECT zk_disconnect()");
	is(locks($holder, 'count(*)'), 0, 'none is left');
};

subtest 'zk_backends does not mix up backends whose sessions are closed' => sub {
	my ($open, @closed) = map { background($node) } 1 .. 5;
	$_->query_safe("SELECT zk_lock('closed' || pg_backend_pid())") foreach $closed[0], $closed[1], $open, $closed[2], $closed[3];
	$_->query_safe('SELECT zk_disconnect()') foreach @closed;
	is(sql('SELECT session_id FROM zk_backends WHERE pid = ' . $open->pid), session_id_of($open),
		'zk_backends shows the session of the open backend');
};

subtest 'zk_locks shows names of other encodings, cut at a character' => sub {
	my $holder = background($node);
	my $long = "l\xc3\xa4" . "\xe2\x82\xac" x 100;
	$holder->query_safe("SELECT zk_lock('$long')");
	is(locks($holder, 'octet_length(name), name'),
		'126|' . "l\xc3\xa4" . "\xe2\x82\xac" x 41, 'clipped at a character');
	is(sql("SELECT '$long' LIKE name || '%' FROM zk_locks"), 't', 'the clipped name is the beginning of the name');

	# Another database need not have the characters, nor the same bytes for them.
	sql("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
	$node->safe_psql('latin', 'CREATE EXTENSION zklock');
	my $latin = background($node, database => 'latin');
	$latin->query_safe("SET client_encoding = 'UTF8'; SELECT zk_lock('d\xc3\xa4')");
	is(locks($latin, 'name'), "d\xc3\xa4", 'from one encoding to another');
	like($latin->query_safe("SELECT datname, name FROM zk_backends JOIN zk_locks USING (pid)
			WHERE pid = " . $holder->pid), qr/^postgres\|l\xc3\xa4<U\+20AC>/, 'characters that the other database lacks are shown as escapes');
};

# As in pg_stat_activity, the name is what bytes the other database has put down.
subtest 'zk_backends raises 22021, and nothing else, for a role name in another encoding' => sub {
	my $latin = background($node, database => 'latin');
	$latin->query_safe("SET client_encoding = 'LATIN1'; CREATE ROLE \"r\xe4\" LOGIN");
	my $holder = background($node, user => "r\xe4", holds => 'of another');
	my $asker = background($node, first => "SET client_encoding = 'LATIN1'");
	my $where = 'WHERE pid = ' . $holder->pid;
	assert_query($asker, "SELECT usename FROM $_ $where", '22021', "$_ has no such character") foreach qw(pg_stat_activity zk_backends);
	is($asker->query_safe("SELECT state, lock_count FROM zk_backends $where"), 'connected|1', 'all else is told');
	is($asker->query_safe("SELECT name, mode FROM zk_locks $where"), 'of another|exclusive', 'the locks of the other backend are shown');
	assert_query($latin, "SELECT * FROM zk_backends $where", '00000', 'the database that has the character shows all');
	$holder->quit;
};

subtest 'zk_backends shows details to the own role and to monitors only' => sub {
	sql('CREATE ROLE anna LOGIN; CREATE ROLE bert LOGIN; CREATE ROLE chris LOGIN IN ROLE pg_read_all_stats;
		CREATE ROLE team; GRANT team TO bert');
	my %session = map { $_ => background($node, user => $_) } qw(anna bert chris);
	$session{anna}->query_safe("SELECT zk_lock('theirs')");
	my $seen = sub {
		return $session{ $_[0] }->query_safe('SELECT b.usename, b.state, b.lock_count, l.name
			FROM zk_backends b LEFT JOIN zk_locks l USING (pid) WHERE pid = ' . $session{anna}->pid);
	};
	is($seen->('anna'), 'anna|connected|1|theirs', 'the own role sees all');
	is($seen->('chris'), 'anna|connected|1|theirs', 'a member of pg_read_all_stats sees all');
	is($seen->('bert'), 'anna|||', 'another role sees only that the backend is there');
	$session{anna}->quit;
	sql('GRANT anna TO bert');
	$session{anna} = background($node, user => 'anna');
	$session{anna}->query_safe("SELECT zk_lock('theirs')");
	is($seen->('bert'), 'anna|connected|1|theirs', 'a member of the role sees all');
};

subtest 'zk_backends shows the user who logged in, not the current one' => sub {
	my $holder = background($node, first => "SET SESSION AUTHORIZATION anna; SELECT zk_lock('whose')");
	is(sql('SELECT b.usename = a.usename, b.usename FROM zk_backends AS b JOIN pg_stat_activity AS a USING (pid)
			WHERE pid = ' . $holder->pid), 't|' . sql('SELECT current_user'), 'zk_backends shows the user who logged in');
};

subtest 'zk_backends shows a session that is suspended, and its locks as held' => sub {
	my $holder = background($node);
	# A server that starts anew takes its time.
	$holder->query_safe("SET zklock.session_timeout = '60s'; SELECT zk_lock('outage')");
	my $id = backend($holder, 'session_id');
	$zk->stop;
	poll_until { $holder->query_safe('SELECT 1'); backend($holder, 'state') eq 'suspended' } 'it to notice', 30;
	is(backend($holder, 'session_id, lock_count'), "$id|1", 'nothing is lost yet');
	is(locks($holder, 'name, state'), 'outage|held', 'the lock is shown as held');
	$zk->start;
	poll_until { $holder->query_safe('SELECT 1'); backend($holder, 'state') eq 'connected' } 'it to be back', 60;
	is(backend($holder, 'session_id, lock_count'), "$id|1", 'the session and the lock are as before');
};

# It runs nothing itself, and so has noted nothing: its program tells.
subtest 'zk_backends shows an idle backend as suspended when its program says so' => sub {
	my ($idle, $asleep) = map { background($node) } 1 .. 2;
	$_->query_safe("SET zklock.session_timeout = '60s'; SELECT zk_lock('idle/' || pg_backend_pid())")
	  foreach $idle, $asleep;
	my ($program) = session_programs($asleep->pid);
	kill 'STOP', $program;
	my $since = backend($idle, 'state_since');
	$zk->stop;
	poll_until { backend($idle, 'state') eq 'suspended' } 'another one to see it suspended', 30;
	is(backend($idle, 'state, state_since, lock_count'), 'suspended||1', 'zk_backends shows no time for what the backend has not noticed');
	is(locks($idle, 'state'), 'held', 'zk_locks shows its lock as held');
	is(backend($asleep, 'state'), 'connected', 'a backend whose program is stopped is shown as connected');
	kill 'CONT', $program;
	poll_until { backend($asleep, 'state') eq 'suspended' } 'it to run', 30;
	$zk->start;
	poll_until { backend($_, 'state') eq 'connected' } 'it to be back', 60 foreach $idle, $asleep;
	is(backend($idle, 'state, state_since'), "connected|$since", 'the backend is shown as connected since before');

	kill 'KILL', $program;
	poll_until { backend($asleep, 'state') eq 'lost' } 'it to be seen to have no program', 30;
	is(locks($asleep, 'state'), 'lost', 'the lock is lost, too');
	is(backend($idle, 'state'), 'connected', 'the other backend is shown as connected');
};

# Where all that is read.
subtest 'the title of a zklock-session program tells the state of its session' => sub {
	my $holder = background($node, holds => 'other');
	my ($program) = session_programs($holder->pid);
	is(backend($holder, 'state'), 'connected', 'its own is connected');
	open my $title, '<', "/proc/$program/cmdline" or die $!;
	like(readline($title), qr/^zklock: session of backend @{[$holder->pid]}, connected *\0$/, 'the title of the program says that it is connected');
	kill 'STOP', $program;
	is($holder->query_safe("SELECT zk_disconnect(), clock_timestamp() - statement_timestamp() > '1.9 s'"), '|t', 'zk_disconnect() gives the program its time to end');
	kill 'CONT', $program;
	is(backend($holder, 'state'), 'none', 'a backend without a session is shown as such');
};

subtest 'zk_backends shows a lost session until its locks are released' => sub {
	my $holder = background($node, holds => 'lost');
	my ($program) = session_programs($holder->pid);
	kill 'KILL', $program;
	# The loss may cancel the statement that looks for it. That it is lost is seen before
	# it knows itself; that its session has no number is what it has noted.
	poll_until { $holder->query('SELECT 1'); backend($holder, 'session_id, state') eq '|lost' } 'it to notice', 30;
	is(backend($holder, 'lock_count'), 1, 'the lock is to be let go of');
	is(locks($holder, 'name, state'), 'lost|lost', 'zk_locks shows the lock as lost');
	$holder->query_safe("SELECT zk_lock_queue('other')");
	is(backend($holder, 'state') . locks($holder, 'state'), 'connectedlost', 'the lock is shown as lost when there is a new session');
	$holder->query("SELECT zk_unlock('lost'), zk_disconnect()");
	is(backend($holder, 'state, lock_count'), 'none|0', 'nothing is shown as lost after the release');
};

subtest 'zk_backends dates a loss that was noticed late by its own time' => sub {
	my $proxy = Proxy->new($zk->connect_string);
	my $holder = background($node, route => $proxy->address, 'zklock.session_timeout' => '2s', holds => 'late');
	$proxy->go_away;
	# The ensemble ends a session later than its program gives it up.
	wait_for_queue($zk, lock_path('late'), 0);
	my $before = sql('SELECT clock_timestamp()');
	poll_until { $holder->query('SELECT 1'); backend($holder, 'state, state_since > now()') eq 'lost|f' } 'it to notice', 30;
	is(backend($holder, "state_since < '$before'"), 't', 'state_since is the time of the loss');
};

subtest 'a crash leaves no rows in zk_backends' => sub {
	nobody_left('nobody is there');
	my $holder = background($node, holds => 'crash');
	kill 'KILL', $holder->pid;
	$holder->quit;
	$monitor->quit;
	wait_for_recovery($node, $holder->pid);
	$monitor = background($node);
	is(sql('SELECT count(*) FROM zk_backends'), 0, 'zk_backends is empty after the crash');
};

subtest 'zk_locks shows no row that is half of another while backends change them' => sub {
	my @busy = map { background($node) } 1 .. 4;
	$_->start_query("DO \$\$ BEGIN FOR i IN 1 .. 400 LOOP
		PERFORM zk_lock('busy/' || pg_backend_pid()), zk_lock('busy/x/' || pg_backend_pid());
		COMMIT;
		PERFORM zk_unlock_all();
	END LOOP; END \$\$") foreach @busy;
	my $torn = 0;
	until (4 == grep { $_->is_done } @busy)
	{
		$torn += sql("SELECT count(*) FROM (SELECT pid, name FROM zk_locks) AS l
			WHERE name NOT IN ('busy/' || pid, 'busy/x/' || pid)");
	}
	is($torn, 0, 'no row is half of another');
	$_->wait_result foreach @busy;
	is(join(' ', map { $_->sqlstate } @busy), '00000 00000 00000 00000', 'all have ended well');
	is(sql('SELECT sum(lock_count) FROM zk_backends'), 0, 'no lock is left');
};

done_testing();
