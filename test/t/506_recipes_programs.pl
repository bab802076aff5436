
# The programs of docs/recipes.md do what the text says: a migration of several shards, services
# in Java and Python on the same lock as SQL, trying again in Python, and leaders in three
# languages. Each is compiled or run against two clusters.

use File::Basename qw(dirname);
use File::Path qw(mkpath);
use List::Util qw(min);
use Peer;
use Programs;
use Proxy;
use Recipes;
use ZkLockTest;

my ($no_curator, $no_kazoo) = map { Peer::missing($_) } 'Curator InterProcessMutex', 'Kazoo Lock';
my $has_psycopg2 = -d '/usr/lib/python3/dist-packages/psycopg2';

my $recipes = Recipes->new('programs');
my $zk = ZooKeeper->new->start;
my ($berlin, $paris) = map {
	cluster($_, $zk, extension => undef,
		'listen_addresses' => '127.0.0.1',
		'zklock.root' => '/zklock',
		'zklock.commit_guard' => 'quorum')
} qw(berlin paris);
Recipes::prepare_database($_) foreach $berlin, $paris;
Recipes::prepare_work($berlin, $_) foreach qw(report_work order_work);
my $control = background($berlin, database => 'app');

sub dsn ($node) { return 'host=127.0.0.1 port=' . $node->port . ' dbname=app'; }

subtest 'the recipe migrate changes each shard once, also after failures and losses' => sub {
	my @migrate =
	  ($recipes->save('migrate'), $recipes->save('migration'), map { dsn($_) } $berlin, $paris);
	my $path = '/zklock/migrate/shop';
	my $fresh = sub {
		$_->safe_psql('app', 'DROP TABLE IF EXISTS orders, schema_version;' . $recipes->code('versions')) foreach $berlin, $paris;
	};
	my $state = sub {
		return join ' ', map {
			$_->safe_psql('app', "SELECT (SELECT count(*) FROM schema_version) || '/' ||
				(SELECT count(*) FROM pg_attribute
				 WHERE attrelid = 'orders'::regclass AND attname = 'note')")
		} $berlin, $paris;
	};

	$fresh->();
	is(run_program(@migrate), 0, 'a migration');
	is($state->(), '1/1 1/1', 'both shards are changed');
	is(run_program(@migrate), 0, 'a second migration succeeds');
	is($state->(), '1/1 1/1', 'the second migration changes nothing');

	# A reader holds up the change in the second shard.
	$fresh->();
	my $reader = background($paris, database => 'app', first => 'BEGIN; SELECT * FROM orders');
	my $first = start_program(@migrate);
	$paris->poll_query_until('app', "SELECT count(*) = 1 FROM pg_locks WHERE NOT granted")
	  or die 'no migration waits';
	is($state->(), '1/1 0/0', 'one shard after the other');
	my $second = start_program(@migrate);
	wait_for_queue($zk, $path, 2);
	$reader->query_safe('COMMIT');
	is($first->finish, 0, 'the first migrator');
	is($second->finish, 0, 'the second migrator succeeds');
	is($state->(), '1/1 1/1', 'each shard was changed once');

	$fresh->();
	$paris->safe_psql('app', 'ALTER TABLE orders ADD COLUMN note text');
	is(run_program(@migrate), 3, 'a failure in the middle');
	is($state->(), '1/1 0/1', 'the first shard has the change');
	assert_no_nodes($zk, $path, 'the lock is free');
	$paris->safe_psql('app', 'ALTER TABLE orders DROP COLUMN note');
	is(run_program(@migrate), 0, 'the migration succeeds when it is repeated');
	is($state->(), '1/1 1/1', 'now the second has it too');

	$fresh->();
	my $local = background($berlin, database => 'app', first => 'BEGIN; SELECT * FROM orders');
	$first = start_program(@migrate);
	$berlin->poll_query_until('app', "SELECT count(*) = 1 FROM pg_locks WHERE NOT granted")
	  or die 'no migration waits';
	Recipes::evict($paris, 'migrate/shop');
	$second = start_program(@migrate);
	$berlin->poll_query_until('app', "SELECT count(*) = 2 FROM pg_locks WHERE NOT granted")
	  or die 'the second one does not wait for the first';
	$reader->query_safe('BEGIN; SELECT * FROM orders');
	$local->query_safe('COMMIT');
	is($first->finish, 1, 'a migrator that lost its lock');
	like($first->output, qr/the lock was lost/, 'the migrator that lost its lock says so');
	like($state->(), qr{1/1 0/0}, 'the migrator that lost its lock has not changed the next shard');
	$reader->query_safe('COMMIT');
	is($second->finish, 0, 'the one that has it now');
	is($state->(), '1/1 1/1', 'each shard was changed once');
	is(run_program('psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-v', 'token=1', '-d', dsn($paris),
			'-f', $migrate[1]), 3, 'a forgotten one');
	like(last_output(), qr/a newer holder of lock/, 'the fence refuses a migration with an old token');

	# CREATE INDEX CONCURRENTLY waits for all snapshots of the cluster, and nobody sees a deadlock over two connections.
	$fresh->();
	my $concurrently = PostgreSQL::Test::Utils::tempdir() . '/concurrently.sql';
	PostgreSQL::Test::Utils::append_to_file($concurrently, <<~'SQL');
		SELECT pg_advisory_lock(42), pg_advisory_unlock(42);
		SET lock_timeout = '20s';
		CREATE INDEX CONCURRENTLY IF NOT EXISTS by_id ON orders (id);
		SQL
	my $gate = background($berlin, database => 'app', first => 'SELECT pg_advisory_lock(42)');
	my @index = ($migrate[0], $concurrently, dsn($berlin));
	$first = start_program(@index);
	$berlin->poll_query_until('app', "SELECT count(*) = 1 FROM pg_locks WHERE NOT granted")
	  or die 'no migration waits';
	$second = start_program(@index);
	wait_for_queue($zk, $path, 2);
	$gate->query_safe('SELECT pg_advisory_unlock(42)');
	is($first->finish, 0, 'an index is made concurrently while another migrator waits');
	is($second->finish, 0, 'the other migrator goes on then');
	$gate->quit;

	$fresh->();
	my $by_hand = background($berlin, database => 'app');
	$by_hand->query_safe($recipes->code($_)) foreach qw(by-hand migration);
	like($state->(), qr{^1/1 }, 'a migration by hand changes the shard');
	$by_hand->quit;
};

# The numbers of the processes whose command line is like that.
sub processes ($pattern)
{
	return map { m{(\d+)} } grep { my $line = eval { slurp_file($_) } // ''; $line =~ $pattern } glob '/proc/[0-9]*/cmdline';
}

subtest 'the recipe with-lock runs a command while it holds a lock, and ends it when the lock is lost' => sub {
	local @ENV{qw(PGHOST PGPORT PGDATABASE PGOPTIONS)} = ('127.0.0.1', $berlin->port, 'app', '-c zklock.session_timeout=4s');
	my $with_lock = $recipes->save('with-lock');
	my $path = '/zklock/report';
	my $is_free = sub ($what) {
		local $Test::Builder::Level = $Test::Builder::Level + 1;
		wait_for_queue($zk, $path, 0);
		return pass("$what: the lock is free");
	};
	my $begin = sub ($shell, @option) {
		my $run = start_program($with_lock, @option, 'report', 'sh', '-c', $shell);
		$run->wait_output(qr/(begun)/);
		return $run;
	};

	is(run_program('sh', '-c', q(printf 'a\nb' | "$0" report sh -c 'cat; echo "$1" >&2; exit 7' - "two  words" 2>"$0.err"), $with_lock), 7,
		'the exit status is that of the command');
	is(last_output(), "a\nb", 'standard input and output are the own ones');
	is(slurp_file("$with_lock.err"), "two  words\n", 'arguments and standard error, too');
	$is_free->('the command has ended');
	is(run_program($with_lock, 'report', 'sh', '-c', 'kill -9 $$'), 137, 'the status has the signal that ended the command');
	is(run_program($with_lock, 'report', '/nowhere'), 127, 'there is no such command');
	is(run_program($with_lock, 'report'), 64, 'there is no command');

	my $run = $begin->('echo begun $TOKEN; read line; exit 3');
	is($control->query_safe("SELECT zk_try_lock('report')"), 'f', 'the lock is held while the command runs');
	like($run->output, qr/^begun @{[ $control->query_safe("SELECT token FROM zk_lock_queue('report')") ]}$/m, 'TOKEN is the fencing token');
	foreach my $bound ('0s', '300ms')
	{
		is(run_program($with_lock, '-w', $bound, 'report', 'touch', "$with_lock.ran"), 75, "-w $bound: the lock is not granted");
	}
	my $waiter = start_program($with_lock, 'report', 'touch', "$with_lock.ran");
	wait_for_queue($zk, $path, 2);
	$waiter->signal('INT');
	is($waiter->finish, 130, 'a ^C ends the wait for the lock');
	wait_for_queue($zk, $path, 1);
	ok(!-e "$with_lock.ran", 'no command runs without the lock');
	$run->type("\n");
	is($run->finish, 3, 'the holder ends as it wants to');
	$is_free->('a line of input');
	{
		local $ENV{PGPORT} = ZooKeeper::free_port();
		is(run_program($with_lock, 'report', 'true'), 75, 'there is no database');
	}

	# All that is between two quotes of SQL or of the shell.
	my $odd = q{it's "odd" \\' $(touch x) `touch x`; %s :name --};
	$run = start_program($with_lock, $odd, 'sh', '-c', 'echo begun; read line');
	$run->wait_output(qr/(begun)/);
	is($control->query_safe("SELECT count(*) FROM zk_lock_queue(\$odd\$$odd\$odd\$)"), 1, 'a name of odd characters is the name of the lock');
	$run->type("\n");
	is($run->finish, 0, 'the command ends well');

	my $stays = q(trap "echo stubborn" TERM; echo begun; while :; do sleep 0.1; done);
	$run = $begin->('echo begun; exec sleep 600');
	Recipes::evict($paris, 'report');
	is($run->finish, 76, 'a lost lock ends the command');
	like($run->output, qr/the lock was lost/, 'with-lock says that the lock was lost');
	$run = $begin->("$stays & wait");
	Recipes::evict($paris, 'report');
	is($run->finish, 76, 'a lost lock ends a command that ignores TERM, and its children');
	like($run->output, qr/stubborn/, 'TERM came first');
	ok(!processes(qr/stubborn/), 'no process of the command is left');
	$run = $begin->('echo begun; exec sleep 600');
	my ($psql) = processes(qr/^psql\0.*name=report\0/);
	kill 'KILL', $psql;
	is($run->finish, 76, 'a psql that was killed ends the command');
	$is_free->('a psql that was killed');
	$run = $begin->('echo begun; exec sleep 600');
	$zk->stop;
	is($run->finish, 76, 'an outage of ZooKeeper ends the command');
	$zk->start;
	$is_free->('an outage of ZooKeeper');

	# A lease, which no session holds. The database is restarted meanwhile, so the other one is asked.
	my $leader = sub ($column) { return $paris->safe_psql('app', "SELECT $column FROM zk_leader('report')"); };
	# On a busy machine psql may take seconds to get a lease, of which with-lock is sure for part of the
	# term, and the command for which it is not does not run.
	my $term = int min(60, Patience::stretched(10));
	my $leased = sub ($shell) {
		$run = $begin->($shell, '-l', $term);
		return like($leader->('owner'), qr/^with-lock /, 'the lock is leased');
	};
	$leased->('echo begun $TOKEN; read line; exit 3');
	like($run->output, qr/^begun @{[ $leader->('token') ]}$/m, 'TOKEN is that of the lease');
	is(run_program($with_lock, '-l', $term, '-w', '0s', 'report', 'touch', "$with_lock.ran"), 75, 'another one is not granted it');
	is(run_program($with_lock, '-l', $_, 'report', 'true'), 64, "a term of $_ s") foreach 9, 86401, 90000;
	my $until = $leader->('expires_at');
	assert_soon { $leader->('expires_at') ne $until } 'the lease is renewed', 30;
	$control->quit;
	$berlin->restart;
	$control = background($berlin, database => 'app');
	$until = $leader->('expires_at');
	assert_soon { $leader->('expires_at') ne $until } 'the lease is renewed after a restart of the database', 30;
	$run->type("\n");
	is($run->finish, 3, 'the command outlives the restart');
	$is_free->('a lease is given up');

	# While the script stands still its psql gets the lease.
	foreach my $signal (qw(INT TERM HUP))
	{
		$control->query_safe("SELECT zk_lock('report')");
		$run = start_program($with_lock, '-l', 300, 'report', 'touch', "$with_lock.ran");
		wait_for_queue($zk, $path, 2);
		$run->signal('STOP');
		$control->query_safe("SELECT zk_unlock('report')");
		assert_soon { $leader->('owner') =~ /^with-lock / } "the lock is leased before a SIG$signal";
		$run->signal($_) foreach $signal, 'CONT';
		is($run->finish, { INT => 130, TERM => 143, HUP => 129 }->{$signal}, "SIG$signal ends with-lock before the command");
		$is_free->("a SIG$signal before the command");
		ok(!-e "$with_lock.ran", 'no command runs after a signal');
	}
	# A signal while a program of with-lock's, in whose place the lines of sh are, waits for the file
	# "go" beside it, which it says by "asked".
	my $signaled = sub ($program, $lines, $until, $ends, $what) {
		my $bin = dirname($with_lock) . "/own-$program";
		mkpath($bin);
		PostgreSQL::Test::Utils::append_to_file("$bin/$program", "#!/bin/sh\nbin=$bin PATH=\${PATH#*:}\n$lines");
		chmod 0755, "$bin/$program";
		local $ENV{PATH} = "$bin:$ENV{PATH}";
		$run = start_program($with_lock, '-l', 300, 'report', 'touch', "$with_lock.ran");
		assert_soon { -e "$bin/asked" } $until;
		$run->signal('TERM');
		PostgreSQL::Test::Utils::append_to_file("$bin/go", '');
		is($run->finish, 143, $ends);
		$is_free->($what);
		ok(!-e "$with_lock.ran", 'no command runs after a signal');
	};
	# The first psql after the one that takes the lease.
	$signaled->('timeout', <<~'SH', 'the lease is about to be renewed', 'a signal during the first renewal ends with-lock', 'a signal during the first renewal');
		[ -e $bin/go ] || touch $bin/asked
		while ! [ -e $bin/go ]; do sleep 0.05; done
		exec timeout "$@"
		SH
	# One that has got the lease, and of which nobody hears: as one whose statement is canceled too late.
	$signaled->('psql', <<~'SH', 'the lease is taken', 'a signal ends with-lock, which does not know that it has a lease', 'a lease that with-lock did not know of');
		! [ -e $bin/go ] || exec psql "$@"
		head -n 3 | psql "$@" >$bin/token
		! [ -s $bin/token ] || touch $bin/asked
		while ! [ -e $bin/go ]; do sleep 0.05; done
		SH
	$leased->('echo begun; exec sleep 600');
	Recipes::evict($paris, 'report');
	is($run->finish, 76, 'a lease that was evicted ends the command');
	$leased->('echo begun; exec sleep 600');
	$control->quit;
	$berlin->stop;
	is($run->finish, 76, 'an outage of the database ends the command when the term is nearly over');
	$berlin->start;
	$control = background($berlin, database => 'app');
	# no worker looks below this root
	is($paris->safe_psql('app', "SELECT zk_lock('report', '@{[ 3 * $term ]}s') > 0, zk_unlock('report')"), 't|t', 'an outage of the database: the lease ends');

	foreach my $signal (qw(INT TERM HUP))
	{
		$run = $begin->(qq(trap "echo caught; exit 9" $signal; echo begun; while :; do sleep 0.1; done));
		$run->signal($signal);
		is($run->finish, 9, "the command gets SIG$signal");
		like($run->output, qr/caught/, "the command can handle SIG$signal");
	}
	{
		# The command ends before with-lock, which is slow here, looks whether it has.
		PostgreSQL::Test::Utils::append_to_file(my $slow = dirname($with_lock) . '/slow-kill', <<~'SH');
			kill() { builtin kill "$@"; set -- $?; sleep 0.3; return "$1"; }
			SH
		local $ENV{BASH_ENV} = $slow;
		$run = $begin->(q(trap 'exit 9' TERM; echo begun; while :; do sleep 0.01; done));
		$run->signal('TERM');
		is($run->finish, 9, 'the status is that of the command, and not of the signal');
	}
	$is_free->('a signal');
	$run = $begin->('echo begun; read line; echo over');
	$run->signal('KILL');
	is($control->query_safe("SELECT zk_try_lock('report')"), 'f', 'the lock is held while the command runs on');
	$run->type("\n");
	$run->wait_output(qr/(over)/);
	$is_free->('the command of a with-lock that was killed');
};

SKIP:
{
	if ($no_curator)
	{
		$recipes->code('WithLock.java');
		skip "not installed: $no_curator", 1;
	}
	subtest 'the recipe WithLock in Java shares a lock with SQL' => sub {
		my $source = $recipes->save('WithLock.java');
		mkpath(Peer::build_directory() . '/service');
		is(run_program(Peer::java_compiler('curator-recipes.jar', 'service'), $source), 0, 'it compiles');
		my $proxy = Proxy->new($zk->connect_string);
		my @with_lock =
		  (Peer::java_command('WithLock', 'service'), $proxy->address, '/zklock/report', 'sh', '-c');
		my $lock = background($paris, database => 'app');

		$lock->query_safe("SELECT zk_lock('report')");
		my $service = start_program(@with_lock, 'echo "token $TOKEN"; read -r line; exit 7');
		wait_for_queue($zk, '/zklock/report', 2);
		is($service->output, '', 'the service waits for SQL');
		$lock->start_query("SELECT zk_unlock('report'); SELECT zk_lock('report')");
		my $token = $service->wait_output(qr/token (\d+)/);
		wait_for_queue($zk, '/zklock/report', 2);
		is($control->query_safe("SELECT token FROM zk_lock_queue('report') WHERE state = 'held'"),
			$token, 'the service has the lock and knows its token');
		ok(!$lock->is_done, 'SQL waits for it');
		$service->type("\n");
		is($service->finish, 7, 'it ends with the status of its command');
		cmp_ok((split /\n/, $lock->wait_result)[-1], '>', $token, 'SQL has the lock with a greater token');
		$lock->query_safe("SELECT zk_unlock('report')");

		$service = start_program(@with_lock, 'echo "token $TOKEN"; exec sleep 600');
		$service->wait_output(qr/token (\d+)/);
		$proxy->go_away;
		$proxy->heal;
		is($service->finish, 143, 'its command is stopped when the connection breaks');
		assert_no_nodes($zk, '/zklock/report', 'nothing left');
	};
}

SKIP:
{
	if ($no_kazoo || !$has_psycopg2)
	{
		$recipes->code($_) foreach qw(report.py style);
		skip 'not installed: ' . ($no_kazoo || 'python3-psycopg2'), 1;
	}
	subtest 'the recipe report in Python shares a lock with SQL' => sub {
		my @report =
		  ('/usr/bin/python3', $recipes->save('report.py'), $zk->connect_string, dsn($berlin));
		my $done = sub {
			return $control->query_safe("SELECT count(*) FROM work_done WHERE what = 'report_work'");
		};
		my $lock = background($paris, database => 'app');

		$lock->query_safe("SELECT zk_lock('report')");
		my $service = start_program(@report);
		wait_for_queue($zk, '/zklock/report', 2);
		is($done->(), 0, 'the service waits for SQL');
		Recipes::at_gate($control, 'report_work', sub { $lock->query_safe("SELECT zk_unlock('report')"); });
		is($lock->query_safe("SELECT zk_try_lock('report')"), 'f', 'SQL does not get it meanwhile');
		Recipes::open_gate($control, 'report_work');
		is($service->finish, 0, 'the service ends without an error');
		is($done->(), 1, 'the service has worked');
		is($lock->query_safe("SELECT zk_lock('report') > 0"), 't', 'SQL has the lock afterwards');
		$lock->query_safe('SELECT zk_unlock_all()');

		$control->query_safe("SELECT zk_fence('report', 1::bigint << 40)");
		isnt(run_program(@report), 0, 'a newer holder has been here');
		like(last_output(), qr/a newer holder of lock "report"/, 'the fence refuses the service');
		is($done->(), 1, 'the refused service has not worked');
		assert_no_nodes($zk, '/zklock/report', 'nothing left');

		# As a service that cannot be told of extra_lock_patterns.
		$control->query_safe('CREATE ROLE reporter LOGIN');
		$recipes->install('style', $berlin);
		my $reporter = background($berlin, database => 'app', user => 'reporter', holds => 'plain');
		is($reporter->query_safe('SHOW zklock.node_style'), 'kazoo', 'the style of the role');
		my $peer = Peer->new('Kazoo Lock', $zk);
		$peer->choose('/zklock/plain');
		is($peer->ask('try'), 'busy', 'a plain Kazoo lock sees it');
		$reporter->query_safe("SELECT zk_unlock('plain')");
		is($peer->ask('lock'), 'locked', 'a plain Kazoo lock has it when SQL has released it');
	};
}

SKIP:
{
	if (!$has_psycopg2)
	{
		$recipes->code($_) foreach 'retry.py', 'transact';
		skip 'not installed: python3-psycopg2', 1;
	}
	subtest 'the recipe retry in Python tries again after the errors that it should' => sub {
		my $module = $recipes->save('retry.py');
		my $proxy = Proxy->new('127.0.0.1:' . $berlin->port);
		my $program = <<~'PYTHON';
			import os, sys
			sys.path.insert(0, os.path.dirname(sys.argv[1]))
			import retry
			retry.transact(sys.argv[2], lambda cursor: cursor.execute(sys.argv[3]))
			PYTHON
		my $transact = sub ($sql) {
			$control->query_safe("TRUNCATE work_done, trouble; SELECT setval('attempt', 1, false)");
			return start_program('/usr/bin/python3', '-B', '-c', $program, $module,
				'host=127.0.0.1 port=' . $proxy->port . ' dbname=app',
				"SELECT nextval('attempt'); $sql");
		};
		my $state = sub {
			return $control->query_safe("SELECT (SELECT count(*) FROM work_done) || ' done, attempts: ' ||
				(SELECT last_value FROM attempt)");
		};
		my $work = "SELECT zk_xact_lock('order'); CALL order_work()";
		my $terminate = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'advisory'";
		# COMMIT can be held up, too.
		$control->query_safe(<<~'SQL');
			CREATE SEQUENCE attempt;
			CREATE FUNCTION check_at_commit() RETURNS trigger LANGUAGE plpgsql AS $$
			BEGIN
				PERFORM pg_advisory_xact_lock_shared(hashtext('commit'));
				RETURN NULL;
			END $$;
			CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON work_done
				DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION check_at_commit();
			SQL

		is($transact->($work)->finish, 0, 'no trouble');
		is($state->(), '1 done, attempts: 1', 'the work is done in the first attempt');

		my $example = $recipes->code('transact') =~ s/dbname=app/'host=127.0.0.1 port=' . $berlin->port . ' dbname=app'/er;
		$control->query_safe('TRUNCATE work_done');
		is(start_program('env', 'PYTHONPATH=' . dirname($module), '/usr/bin/python3', '-B', '-c', $example)->finish, 0, 'the example');
		is($control->query_safe('SELECT count(*) FROM work_done'), 1, 'the example has done its work');

		my $client = Recipes::at_gate($control, 'order_work', sub { $transact->($work); });
		Recipes::evict($paris, 'order');
		Recipes::open_gate($control, 'order_work');
		is($client->finish, 0, 'the lock is lost');
		is($state->(), '1 done, attempts: 2', 'the work is done in the second attempt');

		my $holder = background($paris, database => 'app', holds => 'order');
		$client = $transact->("SET LOCAL lock_timeout = '2s'; $work");
		$berlin->poll_query_until('app', 'SELECT last_value >= 2 FROM attempt');
		$holder->quit;
		is($client->finish, 0, 'the lock is not free in time');
		like($state->(), qr/^1 done, attempts: [2-5]/, 'the work is done when the lock is free');

		$client = Recipes::at_gate($control, 'order_work', sub { $transact->($work); });
		$control->query_safe($terminate);
		Recipes::open_gate($control, 'order_work');
		is($client->finish, 0, 'the backend dies at work');
		is($state->(), '1 done, attempts: 2', 'the work is done in the second attempt');

		foreach my $ending ('dies before it has committed', 'commits, but nobody hears of it')
		{
			$client = Recipes::at_gate($control, 'commit', sub { $transact->($work); });
			if ($ending =~ /dies/)
			{
				$control->query_safe($terminate);
				Recipes::open_gate($control, 'commit');
			}
			else
			{
				$proxy->cut('replies');
				Recipes::open_gate($control, 'commit');
				$berlin->poll_query_until('app', 'SELECT count(*) = 1 FROM work_done');
				$proxy->come_back;
			}
			is($client->finish, 0, "the backend $ending");
			is($state->(), '1 done, attempts: ' . ($ending =~ /dies/ ? 2 : 1), 'done once');
		}

		isnt($transact->('SELECT 1 / 0')->finish, 0, 'a mistake');
		is($state->(), '0 done, attempts: 1', 'an error of the work is not tried again');
		isnt($transact->("$work; DO \$\$ BEGIN RAISE SQLSTATE '40001'; END \$\$")->finish, 0,
			'one that fails always');
		is($state->(), '0 done, attempts: 5', 'five attempts are the most');
	};
}

subtest 'the recipes of a leader in Go, Java and Python have one leader at a time' => sub {
	Recipes::prepare_work($_, 'mailer_work') foreach $berlin, $paris;
	$_->safe_psql('app', 'CREATE ROLE service LOGIN; GRANT INSERT, SELECT ON work_done, trouble TO service') foreach $berlin, $paris;
	my ($source, $java, $python) = map { $recipes->save($_) } qw(leader.go Leader.java leader.py);
	my $directory = dirname($source);
	local %ENV = (%ENV, Peer::go_environment(), HOME => $directory);
	my @ticks;
	push @ticks, [ Python => '/usr/bin/python3', $python, dsn($berlin) . ' user=service' ] if $has_psycopg2;
	push @ticks, [ Java => ZooKeeper::java('-cp', '/usr/share/java/postgresql.jar', $java,
			'jdbc:postgresql://127.0.0.1:' . $paris->port . '/app?user=service') ]
	  if -e '/usr/share/java/postgresql.jar' && -e '/usr/bin/java';
	if (-e '/usr/bin/go' && -d '/usr/share/gocode/src/github.com/lib/pq')
	{
		is(run_program('go', 'build', '-o', "$directory/leader", $source), 0, 'Go compiles');
		push @ticks, [ Go => "$directory/leader", 'postgres://service@127.0.0.1:' . $berlin->port . '/app?sslmode=disable' ];
	}
	plan skip_all => 'not installed: python3-psycopg2, libpostgresql-jdbc-java, golang-github-lib-pq-dev' if !@ticks;
	my $tick = sub ($which) {
		my ($language, @command) = @$which;
		my $status = run_program(@command, $language, "$language:80");
		return "$status " . last_output();
	};
	my $leader = sub { return $control->query_safe("SELECT owner, data FROM zk_leader('mailer')"); };
	my $work = sub { return join ' ', map { $_->safe_psql('app', "SELECT count(*) FROM work_done WHERE what = 'mailer_work'") } $berlin, $paris; };
	my $asks = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'service' AND query LIKE '%zk_try_lease%' AND wait_event_type = 'Extension'";
	$_->safe_psql('app', "ALTER ROLE service SET default_transaction_isolation = 'repeatable read'") foreach $berlin, $paris;
	foreach my $i (0 .. $#ticks)
	{
		my ($one, $next) = ($ticks[$i], $ticks[ ($i + 1) % @ticks ]);
		$_->safe_psql('app', 'TRUNCATE work_done, trouble') foreach $berlin, $paris;
		is($tick->($one), "0 leads\n", "$one->[0] leads");
		is($leader->(), "$one->[0]|$one->[0]:80", 'zk_leader() shows the leader');
		is($tick->($next), "0 follows\n", "$next->[0] follows") if @ticks > 1;
		is($tick->($one), "0 leads\n", 'at its next tick, over another connection, it still leads');
		like($work->(), qr/^(2 0|0 2)$/, 'only the leader has worked');
		$_->safe_psql('app', "INSERT INTO trouble VALUES ('mailer_work')") foreach $berlin, $paris;
		unlike($tick->($one), qr/^0/, 'an error of the work is one of the tick');
		like($work->(), qr/^(2 0|0 2)$/, 'the failed work is rolled back');

		# What another leader may have committed before it lost the lease.
		$_->safe_psql('app', 'TRUNCATE work_done, trouble') foreach $berlin, $paris;
		$zk->pause;
		my $run = start_program($one->@[ 1 .. $#$one ], $one->[0], "$one->[0]:80");
		assert_soon { grep { $_->safe_psql('app', $asks) } $berlin, $paris } "$one->[0] asks for the lease";
		$_->safe_psql('app', "INSERT INTO trouble VALUES ('mailer_work')") foreach $berlin, $paris;
		$zk->resume;
		isnt($run->finish, 0, 'the tick has an error');
		like($run->output, qr/trouble in mailer_work/, 'the work sees what was committed before it had the lease');
		$control->query_safe("SELECT zk_release_lease('mailer', token) FROM zk_leader('mailer')");
	}
	assert_no_nodes($zk, '/zklock/mailer', 'nothing left');
};

$control->quit;
$recipes->assert_all_taken;
done_testing();
