
# docs/decisions/comparison.md names for each kind of lock the SQL that does the same. Each
# row's SQL is taken from there, and must do what other kinds of locks are used
# for.

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use PostgreSQL::Test::Utils qw(slurp_file);
use ZkLockTest;

my $document = dirname(dirname(dirname(abs_path(__FILE__)))) . '/docs/decisions/comparison.md';
my $zk = ZooKeeper->new->start;
# With quorum an eviction is a loss at once; nothing has to be waited for.
my ($berlin, $paris) =
  map { cluster($_, $zk, 'zklock.commit_guard' => 'quorum') } qw(berlin paris);
my $rival = background($paris);

# Of the row at hand: its SQL, what was run of it, and the session that runs it.
my (@sql, %was_run, $session);

# The rows: from the first cell, without markup, to the SQL in the last.
sub rows
{
	my %rows;
	foreach my $line (split /\n/, slurp_file($document))
	{
		next unless $line =~ /^\| (.*) \| (.*) \| (.*) \|$/;
		my ($title, $cell) = ($1, $3);
		$title =~ s/[`*]//g;
		$rows{$title} = [ grep { /\bzk_\w/ } $cell =~ /`([^`]*)`/g ]
		  unless $title eq 'kind of lock';
	}
	return %rows;
}

# What the document says, as a statement.
sub statement ($sql)
{
	die "the row does not say $sql, but: @sql" unless grep { $_ eq $sql } @sql;
	$was_run{$sql} = 1;
	return $sql if $sql =~ /^SELECT/;
	return $sql =~ /\(/ ? "SELECT $sql" : "SELECT * FROM $sql";
}

sub run { return $session->query_safe(statement($_[0])); }

sub evict ($name)
{
	$rival->query_safe("SELECT zk_evict('$name', token) FROM zk_lock_queue('$name')
		WHERE position = 1");
	return;
}

sub is_free ($name, $timeout = undef)
{
	my $free = $rival->query_safe("SELECT zk_try_lock('$name', '@{[ $timeout // '0' ]}')");
	$rival->query_safe("SELECT zk_unlock('$name')") if $free eq 't';
	return $free eq 't';
}

# A release is not awaited by who releases.
sub becomes_free { return is_free($_[0], '30 s'); }

sub is_fenced ($sql, $lock)
{
	$lock->();
	$session->query_safe('BEGIN; ' . statement($sql) . '; COMMIT');
	evict('a');
	$rival->query_safe("SELECT zk_lock('a')");
	# The fence is in one database.
	my $token = $rival->query_safe("SELECT zk_fencing_token('a')");
	$berlin->safe_psql('postgres', "SELECT zk_fence('a', $token)");
	# The guard must not be what refuses.
	$session->query_safe('SET zklock.commit_guard = off');
	assert_query($session, 'BEGIN; ' . statement($sql), '40001', 'an older holder is refused');
	$session->query('ROLLBACK');
	return;
}

my %check = (
	'Spin lock: try, sleep, try again' => sub {
		run("SELECT zk_lock('job')");
		ok(!is_free('job'), 'it is held');
		start_to_wait($rival, statement("SELECT zk_lock('job')"));
		my $queue = join ' ', wait_for_queue($zk, lock_path('job'), 2);
		$session->query_safe("SELECT zk_unlock('job')");
		$rival->wait_result;
		like($queue, qr/ @{[ queue_nodes($zk, lock_path('job')) ]}$/, 'who waits keeps its place');
	},
	'Reentrant lock' => sub {
		run("zk_lock('a')") foreach 1, 2;
		is(run("zk_unlock('a')"), 't', 'released once');
		ok(!is_free('a'), 'and still held');
		is(run("zk_unlock('a')"), 't', 'released twice');
		ok(becomes_free('a'), 'and free');
		$session->query_safe('BEGIN');
		run("zk_xact_lock('a')") foreach 1, 2;
		$session->query_safe('COMMIT');
		ok(becomes_free('a'), 'or by COMMIT');
	},
	'Timed lock' => sub {
		$rival->query_safe("SELECT zk_lock('a')");
		foreach my $timeout (qw(lock_timeout statement_timeout))
		{
			$session->query_safe("SET $timeout = '100ms'");
			$session->query(statement("zk_lock('a', '5 s')"));
			is($session->sqlstate, $timeout =~ /lock/ ? '55P03' : '57014', $timeout);
			$session->query_safe("RESET $timeout");
		}
		assert_query($session, statement("zk_lock('a', '5 s')"), '55P03', 'its own timeout');
		assert_nodes($zk, lock_path('a'), 1, 'nothing is left');
	},
	'Read/write lock' => sub {
		run("zk_lock_shared('a')");
		is($rival->query_safe("SELECT zk_try_lock_shared('a')"), 't', 'shared with others');
		$rival->query_safe("SELECT zk_unlock_shared('a')");
		assert_query($session, "SELECT zk_lock('a')", '55000', 'an upgrade is refused at once');
		$session->query_safe("SELECT zk_unlock_shared('a'), zk_lock('a')");
		start_in_queue($rival, "SELECT zk_lock('a')", $zk, lock_path('a'), 2);
		run("zk_lock_shared('a')");
		$session->query_safe("SELECT zk_unlock('a')");
		is($session->query_safe("SELECT zk_is_held('a')"), 't', 'a downgrade keeps the place');
		ok(!$rival->is_done, 'and no writer slips in');
		$session->query_safe("SELECT zk_unlock_shared('a')");
		$rival->wait_result;
	},
	'Counting semaphore' => sub {
		my $sql = "zk_lock('etl', permits => 4)";
		my @session = map { background($berlin) } 1 .. 3;
		$_->query_safe(statement($sql)) foreach @session, $session;
		my $try = "SELECT zk_try_lock('etl', permits => 4)";
		is($rival->query_safe($try), 'f', 'four hold it, no more');
		$session[0]->kill;
		kill 'TERM', $session[0]->pid;
		poll_until { $rival->query_safe($try) eq 't' } 'a permit to come back', 10;
		pass('a dead holder\'s permit comes back');
	},
	'Several locks at once' => sub {
		$rival->query_safe("SELECT zk_lock('a')");
		start_in_queue($session, statement("zk_lock(ARRAY['b', 'a'])"), $zk, lock_path('a'), 2);
		ok(is_free('b'), 'none is held while another is waited for');
		$rival->query_safe("SELECT zk_unlock('a')");
		$session->wait_result;
		ok(!is_free('a') && !is_free('b'), 'then all are');
	},
	'A row with SELECT ... FOR UPDATE in a common database' => sub {
		$session->query_safe('BEGIN');
		run("zk_xact_lock('a')");
		ok(!is_free('a'), 'held in the transaction');
		evict('a');
		assert_query($session, 'COMMIT', '40001', 'a commit without it is refused');
		ok(becomes_free('a'), 'it has ended with the transaction');
	},
	'SETNX with an expiry (Redis)' => sub {
		is_fenced("zk_fence('a')", sub { run("zk_lock('a')") });
	},
	'Curator InterProcessMutex' => sub {
		run("zk_lock('a')");
		like((queue_nodes($zk, lock_path('a')))[0], qr/^_c_[0-9a-f-]{36}-lock-\d{10}$/,
			'a node as Curator makes it');
	},
	'Curator\'s isOwnedByCurrentThread, isAcquiredInThisProcess' => sub {
		$session->query_safe("SELECT zk_lock('a')");
		is(run("zk_is_held('a')"), 't', 'held');
		like(run('zk_locks'), qr/^a\|exclusive\|held\|/, 'as the session says');
		evict('a');
		like(run('zk_locks'), qr/^a\|exclusive\|held\|/, 'which does not know of an eviction');
		is(run("zk_is_held('a')"), 'f', 'as the quorum does');
	},
	'Curator\'s getParticipantNodes' => sub {
		$session->query_safe("SELECT zk_lock('a')");
		start_in_queue($rival, "SELECT zk_lock('a')", $zk, lock_path('a'), 2);
		like(run("SELECT * FROM zk_lock_queue('a')"),
			qr/^1\|held\|.*\|berlin\|.*\n2\|waiting\|.*\|paris\|/, 'who and where');
		$session->query_safe("SELECT zk_unlock('a')");
		$rival->wait_result;
	},
	'Curator\'s Revoker (ask the holder)' => sub {
		$rival->query_safe("SELECT zk_lock('a')");
		is($rival->query_safe(statement("zk_release_requested('a')")), 'f', 'not asked');
		is(run("zk_request_release('a', 'why')"), '1', 'one holder is asked');
		assert_soon { $rival->query_safe(statement("zk_release_requested('a')")) eq 't' }
		'and hears it', 30;
		my $evict = statement("zk_evict('a', token)");
		my $token = $rival->query_safe("SELECT zk_fencing_token('a')");
		$evict =~ s/\btoken\b/$token/;
		is($session->query_safe($evict), 't', 'it is evicted');
		assert_query($rival, 'CREATE TABLE unseen ()', '40001', 'and may not commit');
	},
	'Hive\'s lock manager: shared locks on the parents of what is locked' => sub {
		run("zk_lock_path('db/table/partition')");
		ok(!is_free('db') && !is_free('db/table'), 'its ancestors are locked');
		is($rival->query_safe("SELECT zk_try_lock_path('db/table/other')"), 't', 'shared');
	},
	'Hive\'s keepAlive: a lock that outlives its session' => sub {
		my $token = run("zk_hold('db/table', 'migration 4711')");
		$session->quit;
		$session = background($berlin);
		ok(!is_free('db/table'), 'it does');
		like($rival->query_safe("SELECT data, usename, since FROM zk_lock_queue('db/table')"),
			qr/^migration 4711\|\w+\|20/, 'the queue shows who, when and why');
		my $release = statement("zk_release_hold('db/table', token)");
		$release =~ s/\btoken\b/$token/;
		is($session->query_safe($release), 't', 'released by another session');
		ok(is_free('db/table'), 'and free');
	},
	'A job that must run once under any of these' => sub {
		my $sql = "zk_run_once('nightly', '2026-11-20')";
		is(run($sql), 't', 'true for one');
		is($rival->query_safe(statement($sql)), 'f', 'caller');
	});

my %rows = rows();
is_deeply([ sort keys %rows ], [ sort keys %check ], 'every kind of lock has a row and a check');
foreach my $title (sort keys %rows)
{
	next unless $check{$title};
	subtest $title => sub {
		@sql = @{ $rows{$title} };
		%was_run = ();
		$session = background($berlin);
		$check{$title}->();
		is_deeply([ sort keys %was_run ], [ sort @sql ], 'all of its SQL was run');
		$session->quit;
		$rival->query_safe('SELECT zk_unlock_all()');
		assert_becomes { scalar(my @left = $zk->ephemerals(lock_path(''))) } 0, 'nothing is left';
	};
}

done_testing();
