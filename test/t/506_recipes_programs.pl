
# The programs of docs/recipes.md: a migration of several shards, a service in
# Java and one in Python on the same lock as SQL, and trying again in Python.

use File::Basename qw(dirname);
use File::Path qw(mkpath);
use IPC::Run;
use Peer;
use PostgreSQL::Test::Utils;
use Proxy;
use Recipes;
use ZkLockTest;

my $missing = Peer::missing();
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
my @programs;

# In the background. On a busy machine Go takes minutes for the standard library.
sub start (@command)
{
	my $self = { out => '', in => '' };
	# Should the test be killed, its programs go too.
	$self->{run} = IPC::Run::start([ 'setpriv', '--pdeathsig', 'KILL', @command ],
		'<', \$self->{in}, '>', \$self->{out}, '2>&1',
		IPC::Run::timeout(3 * $PostgreSQL::Test::Utils::timeout_default));
	push @programs, $self;
	return $self;
}

# The exit status, or 128 and the signal.
sub finish ($self)
{
	$self->{run}->finish;
	note $self->{out};
	my $status = $self->{run}->full_result(0);
	return $status & 127 ? 128 + ($status & 127) : $status >> 8;
}

sub run { return finish(start(@_)); }

sub wait_output ($self, $pattern)
{
	poll_until { $self->{run}->pump_nb; $self->{out} =~ $pattern } "output like $pattern", 60;
	return $self->{out} =~ $pattern ? $1 : undef;
}

sub dsn ($node)
{
	return 'host=127.0.0.1 port=' . $node->port . ' dbname=app';
}

END
{
	my $status = $?;
	$_->{run}->kill_kill(grace => 0) foreach @programs;
	$? = $status;
}

subtest 'migrations' => sub {
	my @migrate =
	  ($recipes->save('migrate'), $recipes->save('migration'), map { dsn($_) } $berlin, $paris);
	my $path = '/zklock/migrate/shop';
	my $fresh = sub {
		$_->safe_psql('app', 'DROP TABLE IF EXISTS orders, schema_version;
			CREATE TABLE orders (id int);
			CREATE TABLE schema_version (version int PRIMARY KEY)') foreach $berlin, $paris;
	};
	my $state = sub {
		return join ' ', map {
			$_->safe_psql('app', "SELECT (SELECT count(*) FROM schema_version) || '/' ||
				(SELECT count(*) FROM pg_attribute
				 WHERE attrelid = 'orders'::regclass AND attname = 'note')")
		} $berlin, $paris;
	};

	$fresh->();
	is(run(@migrate), 0, 'a migration');
	is($state->(), '1/1 1/1', 'of both shards');
	is(run(@migrate), 0, 'once more');
	is($state->(), '1/1 1/1', 'changes nothing');

	# A reader holds up the change in the second shard.
	$fresh->();
	my $reader = background($paris, database => 'app');
	$reader->query_safe('BEGIN; SELECT * FROM orders');
	my $first = start(@migrate);
	$paris->poll_query_until('app', "SELECT count(*) = 1 FROM pg_locks WHERE NOT granted")
	  or die 'no migration waits';
	is($state->(), '1/1 0/0', 'one shard after the other');
	my $second = start(@migrate);
	wait_for_queue($zk, $path, 2);
	$reader->query_safe('COMMIT');
	is(finish($first), 0, 'the first migrator');
	is(finish($second), 0, 'then the second');
	is($state->(), '1/1 1/1', 'each shard was changed once');

	$fresh->();
	$paris->safe_psql('app', 'ALTER TABLE orders ADD COLUMN note text');
	is(run(@migrate), 3, 'a failure in the middle');
	is($state->(), '1/1 0/1', 'the first shard has the change');
	assert_no_nodes($zk, $path, 'the lock is free');
	$paris->safe_psql('app', 'ALTER TABLE orders DROP COLUMN note');
	is(run(@migrate), 0, 'again');
	is($state->(), '1/1 1/1', 'now the second has it too');

	$fresh->();
	my $local = background($berlin, database => 'app');
	$local->query_safe('BEGIN; SELECT * FROM orders');
	$first = start(@migrate);
	$berlin->poll_query_until('app', "SELECT count(*) = 1 FROM pg_locks WHERE NOT granted")
	  or die 'no migration waits';
	Recipes::evict($paris, 'migrate/shop');
	$second = start(@migrate);
	$berlin->poll_query_until('app', "SELECT count(*) = 2 FROM pg_locks WHERE NOT granted")
	  or die 'the second one does not wait for the first';
	$reader->query_safe('BEGIN; SELECT * FROM orders');
	$local->query_safe('COMMIT');
	is(finish($first), 1, 'a migrator that lost its lock');
	like($first->{out}, qr/the lock was lost/, 'ends');
	like($state->(), qr{1/1 0/0}, 'before the next shard');
	$reader->query_safe('COMMIT');
	is(finish($second), 0, 'the one that has it now');
	is($state->(), '1/1 1/1', 'goes on');
	is(run('psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-v', 'token=1', '-d', dsn($paris),
			'-f', $migrate[1]), 3, 'a forgotten one');
	like($programs[-1]{out}, qr/a newer holder of lock/, 'is refused by the fence');
};

SKIP:
{
	if ($missing)
	{
		$recipes->code('WithLock.java');
		skip "not installed: $missing", 1;
	}
	subtest 'a service in Java' => sub {
		my $source = $recipes->save('WithLock.java');
		mkpath(Peer::build_directory() . '/service');
		is(run(Peer::java_compiler('curator-recipes.jar', 'service'), $source), 0, 'it compiles');
		my $proxy = Proxy->new($zk->connect_string);
		my @with_lock =
		  (Peer::java_command('WithLock', 'service'), $proxy->address, '/zklock/report', 'sh', '-c');
		my $lock = background($paris, database => 'app');

		$lock->query_safe("SELECT zk_lock('report')");
		my $service = start(@with_lock, 'echo "token $TOKEN"; read -r line; exit 7');
		wait_for_queue($zk, '/zklock/report', 2);
		is($service->{out}, '', 'it waits for SQL');
		$lock->start_query("SELECT zk_unlock('report'); SELECT zk_lock('report')");
		my $token = wait_output($service, qr/token (\d+)/);
		wait_for_queue($zk, '/zklock/report', 2);
		is($control->query_safe("SELECT token FROM zk_lock_queue('report') WHERE state = 'held'"),
			$token, 'it has the lock, and its token');
		ok(!$lock->is_done, 'SQL waits for it');
		$service->{in} .= "\n";
		is(finish($service), 7, 'it ends with the status of its command');
		cmp_ok((split /\n/, $lock->wait_result)[-1], '>', $token, 'then SQL has it, with a greater one');
		$lock->query_safe("SELECT zk_unlock('report')");

		$service = start(@with_lock, 'echo "token $TOKEN"; exec sleep 600');
		wait_output($service, qr/token (\d+)/);
		$proxy->go_away;
		$proxy->heal;
		is(finish($service), 143, 'its command is stopped when the connection breaks');
		assert_no_nodes($zk, '/zklock/report', 'nothing left');
	};
}

SKIP:
{
	if ($missing || !$has_psycopg2)
	{
		$recipes->code($_) foreach qw(report.py style);
		skip 'not installed: ' . ($missing || 'python3-psycopg2'), 1;
	}
	subtest 'a service in Python' => sub {
		my @report =
		  ('/usr/bin/python3', $recipes->save('report.py'), $zk->connect_string, dsn($berlin));
		my $done = sub {
			return $control->query_safe("SELECT count(*) FROM work_done WHERE what = 'report_work'");
		};
		my $lock = background($paris, database => 'app');

		$lock->query_safe("SELECT zk_lock('report')");
		my $service = start(@report);
		wait_for_queue($zk, '/zklock/report', 2);
		is($done->(), 0, 'it waits for SQL');
		Recipes::close_gate($control, 'report_work');
		$lock->query_safe("SELECT zk_unlock('report')");
		Recipes::wait_at_gate($berlin, 1);
		is($lock->query_safe("SELECT zk_try_lock('report')"), 'f', 'SQL does not get it meanwhile');
		Recipes::open_gate($control, 'report_work');
		is(finish($service), 0, 'it ends');
		is($done->(), 1, 'and has worked');
		is($lock->query_safe("SELECT zk_lock('report') > 0"), 't', 'then SQL has it');
		$lock->query_safe('SELECT zk_unlock_all()');

		$control->query_safe("SELECT zk_fence('report', 1::bigint << 40)");
		isnt(run(@report), 0, 'a newer holder has been here');
		like($programs[-1]{out}, qr/a newer holder of lock "report"/, 'so it is refused');
		is($done->(), 1, 'without having worked');
		assert_no_nodes($zk, '/zklock/report', 'nothing left');

		# As a service that cannot be told of extra_lock_patterns.
		$control->query_safe('CREATE ROLE reporter LOGIN');
		$recipes->install('style', $berlin);
		my $reporter = background($berlin, database => 'app', user => 'reporter');
		$reporter->query_safe("SELECT zk_lock('plain')");
		is($reporter->query_safe('SHOW zklock.node_style'), 'kazoo', 'the style of the role');
		my $peer = Peer->new('Kazoo Lock', $zk);
		$peer->choose('/zklock/plain');
		is($peer->ask('try'), 'busy', 'a plain Kazoo lock sees it');
		$reporter->query_safe("SELECT zk_unlock('plain')");
		is($peer->ask('lock'), 'locked', 'and has it then');
	};
}

SKIP:
{
	if (!$has_psycopg2)
	{
		$recipes->code('retry.py');
		skip 'not installed: python3-psycopg2', 1;
	}
	subtest 'trying again in Python' => sub {
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
			return start('/usr/bin/python3', '-B', '-c', $program, $module,
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

		is(finish($transact->($work)), 0, 'no trouble');
		is($state->(), '1 done, attempts: 1', 'done');

		Recipes::close_gate($control, 'order_work');
		my $client = $transact->($work);
		Recipes::wait_at_gate($berlin, 1);
		Recipes::evict($paris, 'order');
		Recipes::open_gate($control, 'order_work');
		is(finish($client), 0, 'the lock is lost');
		is($state->(), '1 done, attempts: 2', 'done again');

		my $holder = background($paris, database => 'app');
		$holder->query_safe("SELECT zk_lock('order')");
		$client = $transact->("SET LOCAL lock_timeout = '2s'; $work");
		$berlin->poll_query_until('app', 'SELECT last_value >= 2 FROM attempt');
		$holder->quit;
		is(finish($client), 0, 'the lock is not free in time');
		like($state->(), qr/^1 done, attempts: [2-5]/, 'done then');

		Recipes::close_gate($control, 'order_work');
		$client = $transact->($work);
		Recipes::wait_at_gate($berlin, 1);
		$control->query_safe($terminate);
		Recipes::open_gate($control, 'order_work');
		is(finish($client), 0, 'the backend dies at work');
		is($state->(), '1 done, attempts: 2', 'done again');

		foreach my $ending ('dies before it has committed', 'commits, but nobody hears of it')
		{
			Recipes::close_gate($control, 'commit');
			$client = $transact->($work);
			Recipes::wait_at_gate($berlin, 1);
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
			is(finish($client), 0, "the backend $ending");
			is($state->(), '1 done, attempts: ' . ($ending =~ /dies/ ? 2 : 1), 'done once');
		}

		isnt(finish($transact->('SELECT 1 / 0')), 0, 'a mistake');
		is($state->(), '0 done, attempts: 1', 'is not repeated');
		isnt(finish($transact->("$work; DO \$\$ BEGIN RAISE SQLSTATE '40001'; END \$\$")), 0,
			'one that fails always');
		is($state->(), '0 done, attempts: 5', 'ends');
	};
}

subtest 'leaders in three languages' => sub {
	Recipes::prepare_work($_, 'mailer_work') foreach $berlin, $paris;
	$_->safe_psql('app', 'CREATE ROLE service LOGIN; GRANT INSERT, SELECT ON work_done, trouble TO service') foreach $berlin, $paris;
	my ($source, $java, $python) = map { $recipes->save($_) } qw(leader.go Leader.java leader.py);
	my $directory = dirname($source);
	local %ENV = (%ENV, GO111MODULE => 'off', GOPATH => '/usr/share/gocode', GOCACHE => "$directory/cache",
		GOFLAGS => '', HOME => $directory);
	my @ticks;
	push @ticks, [ Python => '/usr/bin/python3', $python, dsn($berlin) . ' user=service' ] if $has_psycopg2;
	push @ticks, [ Java => 'java', '-cp', '/usr/share/java/postgresql.jar', $java,
		'jdbc:postgresql://127.0.0.1:' . $paris->port . '/app?user=service' ]
	  if -e '/usr/share/java/postgresql.jar' && -e '/usr/bin/java';
	if (-e '/usr/bin/go' && -d '/usr/share/gocode/src/github.com/lib/pq')
	{
		is(run('go', 'build', '-o', "$directory/leader", $source), 0, 'Go compiles');
		push @ticks, [ Go => "$directory/leader", 'postgres://service@127.0.0.1:' . $berlin->port . '/app?sslmode=disable' ];
	}
	plan skip_all => 'not installed: python3-psycopg2, libpostgresql-jdbc-java, golang-github-lib-pq-dev' if !@ticks;
	my $tick = sub ($which) {
		my ($language, @command) = @$which;
		my $status = run(@command, $language, "$language:80");
		return "$status $programs[-1]{out}";
	};
	my $leader = sub { return $control->query_safe("SELECT owner, data FROM zk_leader('mailer')"); };
	my $work = sub { return join ' ', map { $_->safe_psql('app', "SELECT count(*) FROM work_done WHERE what = 'mailer_work'") } $berlin, $paris; };
	foreach my $i (0 .. $#ticks)
	{
		my ($one, $next) = ($ticks[$i], $ticks[ ($i + 1) % @ticks ]);
		$_->safe_psql('app', 'TRUNCATE work_done, trouble') foreach $berlin, $paris;
		is($tick->($one), "0 leads\n", "$one->[0] leads");
		is($leader->(), "$one->[0]|$one->[0]:80", 'as all know');
		is($tick->($next), "0 follows\n", "$next->[0] follows") if @ticks > 1;
		is($tick->($one), "0 leads\n", 'at its next tick, over another connection, it still leads');
		like($work->(), qr/^(2 0|0 2)$/, 'and alone has worked');
		$_->safe_psql('app', "INSERT INTO trouble VALUES ('mailer_work')") foreach $berlin, $paris;
		unlike($tick->($one), qr/^0/, 'an error of the work is one of the tick');
		like($work->(), qr/^(2 0|0 2)$/, 'and rolled back');
		$control->query_safe("SELECT zk_lease_release('mailer', token) FROM zk_leader('mailer')");
	}
	assert_no_nodes($zk, '/zklock/mailer', 'nothing left');
};

$control->quit;
$recipes->assert_all_taken;
done_testing();
