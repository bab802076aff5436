
# Whatever happens to a zklock-session program costs its backend the ZooKeeper session and no
# other process anything, and whatever happens to the backend leaves no program, znode or
# descriptor behind. Tested with real servers: programs and backends are killed, stopped, starved
# and replaced.

use Builds;
use ZkLockTest;

# Long for those that are not to be lost, on a busy machine; and what is waited for until it is.
my $session_timeout = 20;
my @short = ('zklock.session_timeout' => '4s');

my $zk = ZooKeeper->new->start;
my %setting = ('zklock.session_timeout' => "${session_timeout}s", 'restart_after_crash' => 'on');
my $node = cluster('berlin', $zk, %setting);
my $other = cluster('paris', $zk, %setting);
my $path = lock_path('program');
my $postmaster = $node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');

sub program_of ($session) { return $session->query_safe('SELECT program_pid FROM zk_session'); }

# Kill the program of a session, and wait until it is reaped.
sub kill_program ($session, $pid = program_of($session))
{
	kill 'KILL', $pid;
	poll_until { !session_programs($session->pid) } 'it to be reaped', 30;
	return;
}

# How often statements of a session have ended in each way; none may be but those.
my %seen;

sub assert_seen ($allowed, $what)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @odd = grep { !/^(?:$allowed)$/ } keys %seen;
	return is("@odd", '', "$what: " . join ', ', map { "$_: $seen{$_}" } sort keys %seen);
}

# Somebody else can have the lock, and has it long before a timeout of a minute.
sub assert_free ($name, $what)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is($other->safe_psql('postgres', "SELECT zk_try_lock('$name', '60s')"), 't', $what);
}

sub library_directory
{
	my ($directory) = split /:/, $node->safe_psql('postgres', 'SHOW dynamic_library_path');
	($directory) = run_command([ 'pg_config', '--pkglibdir' ]) if $directory eq '$libdir';
	return $directory;
}

subtest "zklock.so has no thread and does not link ZooKeeper's client" => sub {
	my $directory = library_directory();
	my ($linked) = run_command([ 'ldd', "$directory/zklock.so" ]);
	unlike($linked, qr/zookeeper|pthread/, "zklock.so is linked with neither ZooKeeper's client nor threads");
	my ($symbols) = run_command([ 'nm', '-D', "$directory/zklock.so" ]);
	unlike($symbols, qr/ U (?:zoo|pthread_)/, 'it refers to none of their functions');
	ok(-x "$directory/zklock-session", 'the program is beside it');
};

foreach my $signal (qw(KILL SEGV ABRT))
{
	subtest "a program killed by SIG$signal costs its backend the lock and nothing else" => sub {
		my $holder = background($node, holds => 'program');
		my $token = $holder->query_safe("SELECT zk_fencing_token('program')");
		kill $signal, program_of($holder);
		assert_soon { !session_programs($holder->pid) } 'no zombie stays, though the backend is idle', 30;
		assert_query($holder, "CREATE TABLE never_$signal ()", '40001', 'a transaction that writes is refused');
		like($holder->error,
			qr/lock "program" was lost\nDETAIL:  The lock was given up at .*program of the session.*has ended/,
			'the error says that the program has ended');
		$holder->query("SELECT zk_unlock('program')");
		my $again = $holder->query_safe("SELECT zk_lock('program')");
		cmp_ok($again, '>', $token, 'the same backend locks again');
		$holder->quit;
		assert_no_programs('nothing is left', $holder);
	};
}

subtest 'a zklock-session that is started by hand says that it is of no use' => sub {
	PostgreSQL::Test::Utils::command_checks_all(
		[ library_directory() . '/zklock-session' ], 1, [qr/^$/],
		[qr/^This program is started by PostgreSQL's extension zklock and is of no use otherwise\.$/],
		'the program says what it is for');
};

subtest 'a program killed during a statement cancels the statement if it holds a lock' => sub {
	my $holder = background($node, holds => 'program');
	my $start = time;
	my $program = program_of($holder);
	$holder->start_query('SELECT pg_sleep(60)');
	wait_for_sleep($node, $holder->pid);
	kill 'KILL', $program;
	assert_ends($holder, '40001', 'the statement is canceled');
	in_time(time - $start, $session_timeout / 2, 'soon after the program was killed');
	$holder->query_safe('SELECT zk_unlock_all()');
	assert_free('program', 'the lock is free');
	$holder->query_safe("SELECT zk_lock('program'), zk_unlock('program')");
	$program = program_of($holder);
	my $bystander = background($node, first => 'SELECT pg_advisory_lock(17)');
	$holder->start_query('SELECT pg_advisory_lock(17), 17');
	wait_for_lock($node, $holder->pid);
	kill_program($holder, $program);
	$bystander->query_safe('SELECT pg_advisory_unlock(17)');
	is($holder->wait_result, '|17', 'without a lock nothing is canceled');
};

# The ensemble would keep the session for a minute.
foreach my $end (
	[ 'releases', sub { $_[0]->query('SELECT zk_unlock_all()'); } ],
	[ 'disconnects', sub { $_[0]->quit; } ],
	[ 'ends a transaction that has nothing to do with it', sub { $_[0]->query_safe('SELECT 1'); },
		# Its release is not answered, nor awaited for long.
		sub { kill 'STOP', program_of($_[0]); $_[0]->query_safe('SELECT zk_unlock_all()'); } ])
{
	my ($what, $do, $do_before) = @$end;
	subtest "a session whose program was killed ends when its backend $what" => sub {
		my $long = ZooKeeper->new(tick_time => 3000)->start;
		my @there = (route => $long->connect_string, 'zklock.session_timeout' => '60s');
		my ($holder, $next) = (background($node, @there, holds => 'program'), background($other, @there));
		my $program = program_of($holder);
		$do_before->($holder) if $do_before;
		kill_program($holder, $program);
		$do->($holder);
		is($next->query("SELECT zk_try_lock('program', '30s')"), 't', 'another program has ended its session');
	};
}

# The loss is known although something else is still to be read.
subtest 'a program killed during a statement is noticed behind an unread reply' => sub {
	my ($holder, $rival) = (background($node, holds => 'program'), background($other, holds => 'rival'));
	my $program = program_of($holder);
	$holder->start_query("SELECT zk_try_lock('rival', '1s'), pg_sleep(60)");
	wait_for_sleep($node, $holder->pid);
	kill 'KILL', $program;
	assert_ends($holder, '40001', 'the reason for the cancellation is found');
};

# Nothing is held any more when the transaction ends, and the session's nodes are there.
subtest 'a lock released by a savepoint is free though the program was killed' => sub {
	my $session = background($node, 'zklock.session_timeout' => '60s',
		first => "BEGIN; SAVEPOINT a; SELECT zk_xact_lock('program')");
	kill_program($session);
	$session->query_safe('ROLLBACK TO a; COMMIT');
	is($other->safe_psql('postgres', "SELECT zk_try_lock('program', '20s')"),
		't', 'the lock is free long before the session timeout');
	assert_leave_nothing($zk, $path, $session);
};

subtest 'a program killed at thirty random moments fails no call without an error of ours' => sub {
	# Whoever is hit fails with an error of its own, or does not notice.
	my $session = background($node);
	%seen = ();
	foreach my $round (1 .. 30)
	{
		my $count = 2 * $round;
		$session->start_query("BEGIN; SELECT zk_xact_lock('program');
			SELECT zk_xact_lock('more/' || i) FROM generate_series(1, $count) i; COMMIT");
		my $deadline = time + 30;
		my @programs;
		@programs = session_programs($session->pid) until @programs || $session->is_done || time > $deadline;
		# As it starts, and every other time a little later than the time before.
		Time::HiRes::sleep($round / 500) if $round % 2;
		kill 'KILL', @programs;
		$session->wait_result;
		$seen{ $session->sqlstate }++;
		$session->query('ROLLBACK; SELECT zk_unlock_all()');
	}
	assert_seen('00000|40001|08006|08001|25P02', 'the only errors of those calls');
	is($session->query_safe("SELECT zk_try_lock('program', '60s')"), 't', 'the next call is granted its lock');
	assert_leave_nothing($zk, $path, $session);
	assert_no_programs('no program is left', $session);
};

# Nobody wakes its backend up. Only PostgreSQL does, ten seconds after the last statement, to send
# statistics.
subtest 'a call ends with the session timeout when the program stands still' => sub {
	my $timeout = 3;
	assert_within
	{
		my $holder = background($node, 'zklock.session_timeout' => "${timeout}s", 'zklock.connect_timeout' => '2min',
			holds => 'still');
		my $program = program_of($holder);
		kill 'STOP', $program;
		my $start = time;
		$holder->query("SELECT zk_is_held('still')");
		my $took = time - $start;
		kill 'CONT', $program;
		$holder->quit;
		$took;
	}
	$timeout + 5, 'the call ends within the session timeout and a moment';
};

subtest 'a program that stands still is replaced after a bounded wait' => sub {
	my $timeout = 6;
	my $holder = background($node, 'zklock.session_timeout' => "${timeout}s", 'zklock.connect_timeout' => '2min',
		holds => 'program');
	my $program = program_of($holder);
	kill 'STOP', $program;
	my $start = time;
	$holder->query("SELECT zk_is_held('program')");
	in_time(time - $start, 3 * $timeout, 'the wait for the program is bounded by the session timeout');
	is($holder->query("SELECT zk_is_held('program')"), 'f', 'the session is lost');
	$holder->query("SELECT zk_unlock('program')");
	$holder->query_safe("SELECT zk_lock('program')");
	isnt(program_of($holder), $program, 'the backend has another program');
	kill 'CONT', $program;
	poll_until { !grep { $_ == $program } session_programs($holder->pid) } 'it to end', 30;
	assert_held($holder, 'program', 'the old program does not harm the new session');
	$program = program_of($holder);
	kill 'STOP', $program;
	$start = time;
	assert_query($holder, "SELECT zk_lock_queue('other')", '40001', 'a question that is asked again hears of the loss');
	in_time(time - $start, 3 * $timeout, 'within that time, too');
	$holder->query("SELECT zk_unlock_all()");
	assert_leave_nothing($zk, $path, $holder);
};

# Nobody closes a session that is given up, unless its program does.
subtest 'an idle backend whose session was given up blocks no other contender' => sub {
	my $second = ZooKeeper->new(tick_time => 2000)->start;
	my @there = (route => $second->connect_string);
	my ($holder, $waiter) = (background($node, @there, @short, holds => 'program'), background($other, @there, @short));
	my $program = program_of($holder);
	# A server that comes back gives every session a new timeout.
	$second->stop;
	poll_until { $holder->query('SELECT state FROM zk_session') eq 'lost' } 'the loss', 30;
	$second->start;
	assert_query($waiter, "SELECT zk_lock('program', '60s')", '00000', 'another session is granted the lock');
	assert_soon { !grep { $_ == $program } session_programs($holder->pid) }
	'its program has ended the session', 30;
};

subtest 'the program ignores signals to its process group and gets no rights' => sub {
	my $holder = background($node, holds => 'program');
	my $program = program_of($holder);
	# AddressSanitizer wants to see all of it, and needs more.
	if (!$ENV{ASAN_OPTIONS})
	{
		ok(!open(my $memory, '<', "/proc/$program/mem"), "the program's memory cannot be read by others");
		like(slurp_file("/proc/$program/limits"), qr/^Max data size +536870912 /m, "the program's memory is limited");
	}
	like(slurp_file("/proc/$program/status"), qr/^NoNewPrivs:\s+1$/m, 'the program cannot gain privileges');
	kill $_, $program foreach qw(TERM INT HUP QUIT PIPE);
	# To the whole process group, as PostgreSQL itself and a terminal do.
	$holder->start_query('SELECT pg_sleep(60)');
	wait_for_sleep($node, $holder->pid);
	$holder->cancel;
	assert_ends($holder, '57014', 'a cancellation reaches the backend');
	assert_held($holder, 'program', 'the lock stays');
	is(program_of($holder), $program, 'the program is the same');
	$holder->quit;
	assert_no_programs('the program ends with its backend', $holder);
};

subtest "COPY PROGRAM inherits no descriptor of the session's program" => sub {
	my $session = background($node);
	my $file = $node->basedir . '/descriptors';
	my @inherited;
	foreach my $statement ('SELECT 1', "SELECT zk_lock('program')")
	{
		$session->query_safe($statement);
		unlink $file;
		$session->query_safe("COPY (SELECT 1) TO PROGRAM 'cat > /dev/null; ls -l /proc/self/fd > $file'");
		push @inherited, scalar(() = slurp_file($file) =~ /socket|memfd|anon_inode/g);
	}
	is($inherited[1], $inherited[0], 'the child has no more descriptors with a session than without');
	$session->query("COPY (SELECT 1) TO PROGRAM 'cat > /dev/null; exit 3'");
	like($session->error, qr/child process exited with exit code 3/, 'its end is PostgreSQL\'s to learn of');
	assert_held($session, 'program', 'the lock is held');
};

subtest 'a backend without descriptors gets an error, and a lock when it has some again' => sub {
	my $session = background($node);
	# Far beyond what the program has.
	$session->query_safe("SELECT zk_lock('program')");
	my $descriptors = () = glob '/proc/' . $session->pid . '/fd/*';
	$session->query_safe('SELECT zk_disconnect()');
	# One after the other, whatever is the last one that there is.
	%seen = ();
	foreach my $limit ($descriptors - 2 .. $descriptors + 6)
	{
		system_or_bail('prlimit', '--pid', $session->pid, "--nofile=$limit:4096");
		foreach my $round (1, 2)
		{
			$session->query("SELECT zk_lock('program')");
			$seen{ $session->sqlstate }++;
		}
		$session->query('SELECT zk_unlock_all(), zk_disconnect()');
	}
	assert_seen('00000|53000|53300|XX000|58000|54000', 'the only errors of calls without descriptors');
	ok($seen{'00000'} && keys %seen > 1, 'the lock is granted with some limits and refused with others');
	system_or_bail('prlimit', '--pid', $session->pid, '--nofile=4096:4096');
	like($session->query_safe("SELECT zk_lock('program')"), qr/^\d+$/, 'the lock is granted with more descriptors');
};

# PostgreSQL's own limit, which other extensions use up.
subtest 'locks work again when other extensions have given descriptors back' => sub {
	plan skip_all => 'there is no dblink' if missing_extensions($node, 'dblink');
	$node->append_conf('postgresql.conf', 'max_files_per_process = 80');
	$node->restart;
	$node->safe_psql('postgres', 'CREATE EXTENSION IF NOT EXISTS dblink');
	my $session = background($node);
	# More sessions than there are descriptors, or entries for their programs: each gives its own back.
	$session->query_safe("SELECT zk_lock('program'), zk_unlock_all(), zk_disconnect()") foreach 1 .. 100;
	my $connection = $node->connstr('postgres') =~ s/'/''/gr;
	my $count = 0;
	while ($count < 60)
	{
		$session->query("SELECT dblink_connect('c$count', '$connection')");
		last if $session->sqlstate ne '00000';
		$count++;
	}
	%seen = ();
	foreach my $open (reverse 0 .. $count - 1)
	{
		foreach my $function (qw(zk_lock zk_try_lock zk_lock_queue zk_lock))
		{
			$session->query("SELECT $function('program')");
			$seen{ $session->sqlstate }++;
		}
		$session->query('SELECT zk_unlock_all()');
		$session->query("SELECT dblink_disconnect('c$open')");
		last if $seen{'00000'};
	}
	ok($seen{'00000'}, 'with enough of them it works: ' . join ', ', map { "$_: $seen{$_}" } sort keys %seen);
	$session->quit;
	$node->adjust_conf('postgresql.conf', 'max_files_per_process', undef, 1);
	$node->restart;
	$postmaster = $node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');
};

subtest 'backends use no processor time while an ensemble refuses connections' => sub {
	my $gone = ZooKeeper->new->start;
	my @there = ('zklock.servers' => $gone->connect_string, 'zklock.session_timeout' => '10s');
	my ($holder, $waiter) = (background($node, @there, holds => 'program'), background($other, @there));
	$waiter->start_query("SELECT zk_lock('program')");
	poll_until { session_programs($waiter->pid) } 'the waiter\'s program', 30;
	my $start = time;
	$gone->stop;
	$holder->query("SELECT zk_is_held('program')");
	my $took = time - $start;
	cmp_ok($took, '>', 1, 'zk_is_held() waits for the outage');
	my %used = map { $_ => ticks_of($_) } $holder->pid, $waiter->pid;
	cmp_ok($used{ $_->pid }, '<', 100 * $took / 4, 'the backend does not use processor time for asking again')
	  foreach $holder, $waiter;
	$gone->start;
	$waiter->wait_result;
};

subtest 'a lock fails with 53000 where no process can be started' => sub {
	plan skip_all => 'no limit holds for this user' if $> == 0;
	my $session = background($node);
	system_or_bail('prlimit', '--pid', $session->pid, '--nproc=1:4096');
	assert_query($session, "SELECT zk_lock('program')", '53000', 'SQLSTATE');
	like($session->error,
		qr/could not start a ZooKeeper session\nDETAIL:  Could not start the program ".*zklock-session(?:-tls)?": .*\nHINT:  If the program is missing or cannot be executed, install zklock again. Otherwise raise the limits of processes, .*zk_check\(\)/,
		'message');
	system_or_bail('prlimit', '--pid', $session->pid, '--nproc=4096:4096');
	like($session->query_safe("SELECT zk_lock('program')"), qr/^\d+$/, 'the same backend is granted a lock when processes can be started');
};

# The library finds its program wherever both are; and what it finds may be
# something else, after an upgrade of the files.
subtest 'a relocated installation finds its own program and refuses other versions' => sub {
	plan skip_all => 'this PostgreSQL bears one installation only' if !Builds->can_be;
	my $build = Builds->copy;
	my $elsewhere = cluster('elsewhere', $zk, $build->settings);
	my $moved = $build->library_directory;
	my $program_file = $ENV{ZKLOCK_TEST_TLS} ? 'zklock-session-tls' : 'zklock-session';
	my $session = background($elsewhere, holds => 'program');
	assert_held($session, 'program', 'a lock works in the copied installation');

	my %bad = (
		'a program of another version' => [
			"#!/usr/bin/perl\nopen my \$c, '>&=', 3;\nsyswrite \$c, pack 'LSSx120', 128, 7, 99;\nsleep 1;\n",
			qr/is of another version of zklock.*restart the server/ ],
		'one that says nothing' => [ "#!/bin/sh\nexit 0\n", qr/has ended/ ],
		'one that talks nonsense' =>
		  [ "#!/bin/sh\necho nonsense, and a lot of it, that is no frame at all >&3\n",
			qr/is of another version|has sent an invalid message/ ]);
	foreach my $what (sort keys %bad)
	{
		my ($text, $message) = @{ $bad{$what} };
		unlink "$moved/$program_file";
		append_to_file("$moved/$program_file", $text);
		chmod 0755, "$moved/$program_file";
		assert_held($session, 'program', "$what: sessions that are there go on");
		my $new = background($elsewhere);
		assert_query($new, "SELECT zk_lock('new')", '08006', "$what: a new one is refused");
		like($new->error, $message, "$what: with the reason");
	}
	unlink "$moved/$program_file";
	my $new = background($elsewhere);
	assert_query($new, "SELECT zk_lock('new')", '53000', 'a missing program fails the call');
	like($new->error, qr/No such file or directory/, 'the error says that the program is missing');
	kill_program($session);
	assert_query($session, "DO 'BEGIN PERFORM zk_forget_run(''new'', ''x'');
		EXCEPTION WHEN insufficient_resources THEN PERFORM zk_lock(''new''); END'", '40001', 'the loss is reported where the error of the missing program is caught');
	$_->quit foreach $new, $session;
	$elsewhere->stop;
};

subtest 'a rollback of a thousand locks does not wait for a program that does not read' => sub {
	my $session = background($node,
		first => "BEGIN; SELECT zk_xact_lock(repeat('x', 200) || i) FROM generate_series(1, 1000) i");
	my $program = program_of($session);
	kill 'STOP', $program;
	my $start = time;
	$session->query_safe('ROLLBACK');
	in_time(time - $start, $session_timeout / 2, 'an abort does not hang');
	kill 'CONT', $program;
	assert_soon { !(my @nodes = $zk->ephemerals(lock_path('x' x 200))) } 'all nodes are deleted when the program goes on', 60;
	$session->query_safe("SELECT zk_lock('program')");
	assert_leave_nothing($zk, $path, $session);
};

subtest 'backends that end with requests under way leave nothing behind' => sub {
	my @sessions = map { background($node) } 1 .. 5;
	foreach my $session (@sessions)
	{
		$session->query_safe("SELECT zk_lock('many/' || i) FROM generate_series(1, 200) i");
		$session->start_query("SELECT zk_unlock_all(), zk_lock('many/' || i) FROM generate_series(201, 400) i");
	}
	$_->terminate foreach @sessions;
	$_->wait_result, $_->quit foreach @sessions;
	assert_no_programs('nothing is left', @sessions);
	assert_soon { !(my @nodes = $zk->ephemerals(lock_path('many') . '/')) } 'no node is left', 30;
};

# One that is lost is made up for when the session timeout has passed.
subtest 'no wake-up of a waiter is lost while eight take turns' => sub {
	my $script = $node->basedir . '/wake.sql';
	append_to_file($script, "SELECT zk_lock('program');\nSELECT zk_unlock('program');\n");
	my $log = $node->basedir . '/wake';
	$node->command_ok(
		[
			'pgbench', '-n', '-M', 'prepared', '-c', 8, '-t', 400, '-l',
			"--log-prefix=$log", '-f', $script, 'postgres'
		],
		'contenders take turns');
	my $longest = 0;
	foreach my $file (glob "'$log'.*")
	{
		foreach my $line (split /\n/, slurp_file($file))
		{
			my $took = (split ' ', $line)[2];
			$longest = $took if $took > $longest;
		}
	}
	note sprintf 'longest: %.1f ms', $longest / 1000;
	cmp_ok($longest, '>', 0, 'pgbench has measured the waits');
	cmp_ok($longest, '<', 1e6 * $session_timeout * 2 / 3, 'no wait was as long as a lost wake-up makes it');
};

is(ask($node, 'SELECT pg_postmaster_start_time()'), $postmaster, 'the cluster has been up all the time');
ok(!$node->log_contains(qr/PANIC|TRAP|terminated by signal|all server processes terminated/),
	'no backend has crashed');

# It would look for the ensemble for two session timeouts, in order to close its session.
subtest 'a program without a backend ends at once when it is asked to' => sub {
	my $silent = ZooKeeper->new->start;
	my $session = background($node,
		route => $silent->connect_string, 'zklock.session_timeout' => '1min', holds => 'orphan');
	my $backend = $session->pid;
	my $program = program_of($session);
	$silent->stop;
	kill 'KILL', $backend;
	poll_until { $node->log_contains("\\(PID $backend\\) was terminated") } 'its backend to end', 30;
	assert_soon { kill('TERM', $program); !session_programs($backend) } 'the program ends', 30;
	wait_for_recovery($node, $backend);
};

# The server that is process 1 inherits all orphans, and takes one of which it
# knows nothing, and that dies badly, for one of its own.
subtest "a cluster that is process 1 of a container survives the end of a session's program" => sub {
	my @container = qw(unshare --map-current-user --pid --fork --kill-child --mount-proc);
	plan skip_all => 'no namespaces here' if system("@container true >/dev/null 2>&1") != 0;
	$node->stop;
	my $log = $node->logfile;
	my $offset = -s $log;
	my $pid = fork // die $!;
	if ($pid == 0)
	{
		open STDOUT, '>>', $log or die $!;
		open STDERR, '>&', \*STDOUT or die $!;
		exec @container, $node->installed_command('postgres'), '-D', $node->data_dir;
	}
	$node->wait_for_log(qr/database system is ready to accept connections/, $offset);
	my $start = $node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');
	foreach my $end (
		'SELECT pg_terminate_backend(pg_backend_pid())',
		"COPY (SELECT 1) TO PROGRAM 'kill -9 \$PPID'")
	{
		my ($session, $waiter) = (background($node, holds => 'program'), background($other));
		start_in_queue($waiter, "SELECT zk_lock('program')", $zk, $path, 2);
		$session->query($end);
		assert_ends($waiter, '00000', 'the lock passes on');
		$_->quit foreach $session, $waiter;
		wait_for_recovery($node, $session->pid) if $end =~ /kill/;
	}
	# After the first end all went on; the second was a crash of a backend,
	# which PostgreSQL answers by itself, once.
	my $crashes = () = slurp_file($log, $offset) =~ /terminating any other active server processes/g;
	is($crashes, 1, 'nothing but the killed backend was a crash');
	kill 'KILL', $pid;
	waitpid $pid, 0;
	assert_no_nodes($zk, $path, 'nothing left');
};

done_testing();
