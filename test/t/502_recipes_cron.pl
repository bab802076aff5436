
# The recipes of docs/recipes.md for jobs run a job once, and have one leader: on two clusters
# with the real pg_cron, and from the line of a crontab as cron would run it.

use strict;

# Ahead of the modules, so that it comes after their ends, when no server runs.
END { ZooKeeper::sweep_clocks(); }

use Programs;
use Recipes;
use PostgreSQL::Test::Utils;
use ZkLockTest;

chomp(my $pkglibdir = qx(pg_config --pkglibdir));
my $has_pg_cron = -e "$pkglibdir/pg_cron.so";

# What fails, as its session may when the machine stands still for seconds, comes
# again with the next minute, or the one after it.
my $next_minutes = 180;

my $recipes = Recipes->new('cron');
my $zk = ZooKeeper->new->start;
my ($berlin, $paris) = map {
	cluster($_, $zk, extension => undef, with_cron(), 'zklock.commit_guard' => 'quorum')
} qw(berlin paris);
my %node = (berlin => $berlin, paris => $paris);
foreach my $node ($berlin, $paris)
{
	Recipes::prepare_database($node);
	Recipes::prepare_work($node, $_) foreach qw(nightly_work mailer_work);
	# The role that the document makes for jobs, with its grants; its tables are in public here.
	$node->safe_psql('app', 'CREATE ROLE jobs LOGIN IN ROLE zklock_job; CREATE ROLE ops; GRANT ALL ON work_done, trouble TO jobs');
	$recipes->install($_, $node) foreach qw(nightly grants);
	$node->safe_psql('app', 'GRANT ALL ON nightly_done TO jobs');
	# A minute is too long to see that who stands by goes on doing so.
	my $leader = $recipes->code('leader');
	is($leader =~ s/'1 min'/'500 ms'/, 1, 'a leader stands by');
	$node->safe_psql('app', $leader);
}

sub with_cron
{
	return () unless $has_pg_cron;
	return (
		shared_preload_libraries => 'zklock, pg_cron',
		'cron.database_name' => 'app',
		'cron.host' => $PostgreSQL::Test::Cluster::test_pghost);
}

# Like cron: /bin/sh, with little in the environment but how to reach the
# cluster. Of the command, cron takes a bare % for the end of the line.
sub start_shell ($node, $command, @arguments)
{
	chomp(my $psql = qx(sh -c 'command -v psql'));
	(my $bin = $psql) =~ s{/psql$}{};
	return start_program('env', '-i',
		"PATH=$PostgreSQL::Test::Utils::tmp_check/recipes:$bin:/usr/bin:/bin",
		'PGHOST=' . $node->host, 'PGPORT=' . $node->port,
		'/bin/sh', '-c', $command, @arguments);
}

sub run_shell { return start_shell(@_)->finish; }

sub crontab_command ($name)
{
	my ($command) = $recipes->code($name) =~ /^(?:\S+\s+){5}(.*)\n\z/
	  or die "$name is not a line of a crontab";
	$command =~ s/(?<!\\)%.*//;
	$command =~ s/\\%/%/g;
	return $command;
}

sub count_work ($procedure, @nodes)
{
	my $count = 0;
	$count += $_->safe_psql('app', "SELECT count(*) FROM work_done WHERE what = '$procedure'")
	  foreach @nodes;
	return $count;
}

sub leaders
{
	return split /\n/, $berlin->safe_psql('app',
		"SELECT cluster FROM zk_lock_queue('mailer') ORDER BY position");
}

# In a new slot, whatever the day. Not while pg_cron has the job: its next run could claim the slot
# before the work is forgotten, too.
sub forget_nightly
{
	$berlin->safe_psql('app',
		"SELECT zk_forget_run('nightly', slot) FROM zk_runs('nightly')");
	$_->safe_psql('app', 'TRUNCATE work_done, trouble') foreach $berlin, $paris;
	return;
}

# pg_cron 1.4 knows no shorter time than a minute. So let their clocks go before
# the minute, that of paris two seconds late, and look later. Without libfaketime
# the real minute has to do.
subtest 'the query missed shows nights that nobody has claimed, or whose claim came to nothing' => sub {
	my $missed = sub ($node) { return [ map { (split /\|/, $_, -1)[ 0, 1 ] } split /\n/, $node->safe_psql('app', "SET ROLE jobs; " . $recipes->code('missed')) ]; };
	my $yesterday = $berlin->safe_psql('app', "SELECT to_char((now() AT TIME ZONE 'UTC')::date - 1, 'YYYY-MM-DD')");
	my $claimed = sub ($node) { my %by = @{ $missed->($node) }; return scalar(keys %by) . ($by{$yesterday} // ' done'); };
	is($claimed->($berlin), '7', 'nobody has claimed a night');
	$berlin->safe_psql('app', "SELECT zk_run_once('nightly', '$yesterday')");
	is($claimed->($berlin), '7berlin', 'this one has claimed the last night');
	is($claimed->($paris), '6 done', 'another one does not know whether it came to something');
	$berlin->safe_psql('app', "INSERT INTO nightly_done VALUES ('$yesterday')");
	is($claimed->($berlin), '6 done', 'it has done the work');
	forget_nightly();
};

sub set_clock ($node, $real, $second)
{
	ZooKeeper::sweep_clocks();
	local %ENV = (%ENV, %{ ZooKeeper::clock(sprintf '%+d', $second - $real % 60) }, FAKETIME_DISABLE_SHM => 1);
	# What the postmaster starts out of a signal handler has the real clock, as
	# pg_cron would at first. If it fails, it is started again, and not from there.
	$node->safe_psql('postgres', 'ALTER DATABASE app ALLOW_CONNECTIONS false');
	$node->restart;
	$node->safe_psql('postgres', 'ALTER DATABASE app ALLOW_CONNECTIONS true');
	return;
}

if ($has_pg_cron)
{
	foreach my $node ($berlin, $paris)
	{
		# Its launcher has failed until there was the database.
		$node->poll_query_until('app', "SELECT count(*) = 1 FROM pg_stat_activity
			WHERE application_name = 'pg_cron scheduler'") or die 'no pg_cron';
		$recipes->install('extension', $node);
	}
	if (ZooKeeper::can_set_clocks())
	{
		my $now = time;
		set_clock($berlin, $now, 51);
		set_clock($paris, $now, 49);
	}
	# Behind that, so that no job has met another minute before.
	foreach my $node ($berlin, $paris)
	{
		background($node, database => 'app', user => 'jobs')->query_safe($recipes->code($_)) foreach qw(schedule leader-schedule);
		is($node->safe_psql('app', "UPDATE cron.job SET schedule = '* * * * *'
			WHERE schedule = '*/10 3-4 * * *' RETURNING jobname"),
			'nightly', $node->name . ': the night comes sooner');
	}
}

subtest 'the recipe run-once runs a program from a crontab once' => sub {
	my $script = $recipes->save('run-once');
	my $command = crontab_command('crontab-run-once');
	my $done = PostgreSQL::Test::Utils::tempdir() . '/backups';    # one that no former run has left
	is($command =~ s{/usr/local/bin/backup}{sh -c 'echo done >>"$done"'}, 1,
		'the line names the program');

	is(run_shell($berlin, $command), 0, 'the first to come');
	is(run_shell($paris, $command), 0, 'the second to come');
	is(slurp_file($done), "done\n", 'one has run it');
	like($paris->safe_psql('app', "SELECT slot FROM zk_runs('backup')"),
		qr/^\d{4}-\d\d-\d\d$/, 'its slot is the day');

	my $failing = "run-once failing today sh -c 'echo done >>\"$done\"; exit 9'";
	is(run_shell($berlin, $failing), 9, 'a program that fails passes on its status');
	is(run_shell($paris, $failing), 9, 'another cluster may try after a failure');
	is(slurp_file($done), "done\n" x 3, 'the program was run by both');

	reconfigure($berlin, 'zklock.servers' => '127.0.0.1:1');
	$berlin->safe_psql('app', "ALTER DATABASE app SET zklock.connect_timeout = '200ms'");
	is(run_shell($berlin, 'run-once away today touch never'), 75, 'without ZooKeeper the status is 75');
	$berlin->safe_psql('app', 'ALTER DATABASE app RESET zklock.connect_timeout');
	reconfigure($berlin, 'zklock.servers' => undef);
	is(run_shell($paris, "PGPORT=1 run-once away today touch never"), 75, 'without a database the status tells of it');
	ok(!-e 'never', 'the program was not run');
};

subtest 'the recipe longest evicts a holder of this cluster that is late' => sub {
	my ($job) = $recipes->code('longest') =~ /\$\$(.*)\$\$/s;
	my $holder = background($berlin, database => 'app', holds => 'rebuild');
	is($berlin->safe_psql('app', $job), '', 'a holder is not evicted within the time');
	is($paris->safe_psql('app', $job =~ s/'2 hours'/'0'/r), '', 'another cluster does not evict the holder');
	is($berlin->safe_psql('app', $job =~ s/'2 hours'/'0'/r), 't', 'the holder is evicted when it is late');
	assert_query($holder, "INSERT INTO work_done VALUES ('late')", '40001', 'the transaction of the evicted holder does not commit');
	$holder->quit;
	is($berlin->safe_psql('app', $recipes->code('longest') . "SELECT cron.unschedule('longest-rebuild')") =~ s/^\d+\n//r, 't', 'pg_cron takes the job') if $has_pg_cron;
};

SKIP:
{
	skip 'there is no pg_cron for this PostgreSQL', 2 unless $has_pg_cron;
	my $status = sub ($node, $job) {
		return $node->safe_psql('app', "SELECT coalesce(string_agg(DISTINCT status, ' '), '')
			FROM cron.job_run_details JOIN cron.job USING (jobid) WHERE jobname = '$job'");
	};

	# The second one comes when the first has finished: no lock would stop it. A minute may
	# have begun while the database was without ZooKeeper, above; that one's job has failed.
	subtest 'the recipe nightly runs once with pg_cron on two clusters' => sub {
		poll_until
		{
			2 == grep { $status->($_, 'nightly') =~ /succeeded/ } $berlin, $paris;
		}
		'the next minute', $next_minutes;
		$_->safe_psql('app', "SET ROLE jobs; SELECT cron.unschedule('nightly')") foreach $berlin, $paris;
		my $runs = $berlin->safe_psql('app',
			"SELECT string_agg(cluster, ' ') FROM zk_runs('nightly')");
		# Two, should it be midnight. berlin, but on a machine that is too slow.
		like($runs, qr/^\w+( \w+)?$/, "one has run it: $runs");
		is(count_work('nightly_work', $berlin, $paris), scalar(split / /, $runs), 'the job has run once');
	};

	subtest 'the recipe of a leader with pg_cron is followed by another leader' => sub {
		my ($first, $second);
		poll_until { ($first, $second) = leaders(); $second } 'both to be in the queue', $next_minutes;
		isnt($first, $second, 'each cluster has one');
		poll_until { count_work('mailer_work', $node{$first}) >= 2 } 'rounds of work', $next_minutes;
		is(count_work('mailer_work', $node{$second}), 0, 'one works, the other stands by');

		# First its job: with the next minute it would come again, and lead before the other one
		# if that one had to begin anew, too. The call that runs goes on.
		$node{$first}->safe_psql('app', "SET ROLE jobs; SELECT cron.unschedule('mailer')");
		$node{$first}->safe_psql('app', "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE query ~ '^CALL lead_mailer'");
		assert_soon { count_work('mailer_work', $node{$second}) >= 2 } 'when the first has gone the other leads',
		  $next_minutes;

		# Another one, without pg_cron.
		my $loop = start_shell($node{$first}, $recipes->code('leader-loop'));
		my $token = sub ($state) {
			return $berlin->safe_psql('app', "SELECT max(token) FROM zk_lock_queue('mailer')
				WHERE application_name = 'psql' AND state = '$state'") || 0;
		};
		poll_until { $token->('waiting') } 'another one', $next_minutes;
		my $before = count_work('mailer_work', $node{$first});

		$node{$second}->safe_psql('app', "INSERT INTO trouble VALUES ('mailer_work')");
		assert_soon { count_work('mailer_work', $node{$first}) >= $before + 2 } 'a leader whose work fails steps down',
		  $next_minutes;

		my $old;
		poll_until { $old = $token->('held') } 'the loop to hold the lock', $next_minutes;
		$berlin->safe_psql('app', "SELECT zk_evict('mailer', $old)");
		poll_until { $token->('held') > $old } 'it to come again', $next_minutes;
		poll_until { $loop->output =~ /was lost/ } 'its words', $next_minutes;
		like($loop->output, qr/lock "mailer" was lost/, 'a leader that lost its lock steps down');

		# A token of the day after tomorrow.
		$node{$first}->safe_psql('app', "SELECT zk_fence('mailer', 1::bigint << 40)");
		assert_soon { $loop->output =~ /newer holder/ } 'a leader with an old token steps down', $next_minutes;
		$loop->kill;
		$node{$second}->safe_psql('app', "SET ROLE jobs; SELECT cron.unschedule('mailer')");
	};
}
if (!$has_pg_cron)
{
	$recipes->code($_) foreach qw(extension schedule leader-schedule leader-loop);
}

subtest 'the recipe slots gives the same slots to clocks that differ a little' => sub {
	my $slots = sub ($time) {
		(my $sql = $recipes->code('slots')) =~ s/\bnow\(\)/timestamptz '$time UTC'/g;
		return [ split /\|/, $berlin->safe_psql('app', $sql) ];
	};
	is_deeply($slots->('2026-11-20 03:00:02'),
		[ '2026-11-20', '2026-11-20', '2026-11-20 03', '2026-11-20 03:00' ], 'the slots of a night');
	is_deeply($slots->('2026-11-20 02:59:58'), $slots->('2026-11-20 03:00:02'), 'the slots are the same for clocks that differ a little');
	my ($early, $late) = map { $slots->($_) } '2026-11-20 23:59:58', '2026-11-21 00:00:02';
	is_deeply([ @{$early}[ 1 .. 3 ] ], [ '2026-11-21', '2026-11-21 00', '2026-11-21 00:00' ],
		'those of midnight are the next day\'s');
	is_deeply([ @{$early}[ 1 .. 3 ] ], [ @{$late}[ 1 .. 3 ] ], 'the slots are the same for clocks that differ a little');
	is($berlin->safe_psql('app', "SELECT bool_and(zk_run_once('slots', slot))
		FROM (VALUES ('$early->[0]'), ('$early->[2]'), ('$early->[3]')) AS s (slot)"), 't',
		'they are good slots');
};

subtest 'the recipe of a crontab runs a job once, and tells failures' => sub {
	my $command = crontab_command('crontab');
	forget_nightly();
	is(run_shell($_, $command), 0, 'no error') foreach $berlin, $paris;
	is(count_work('nightly_work', $berlin), 1, 'the first one runs it');
	is(count_work('nightly_work', $paris), 0, 'the second one does not');

	forget_nightly();
	$berlin->safe_psql('app', "INSERT INTO trouble VALUES ('nightly_work')");
	is(run_shell($berlin, $command), 1, 'the job fails');
	is(count_work('nightly_work', $berlin), 0, 'the failed job has done nothing');
	is(run_shell($paris, $command), 0, 'another cluster runs the job without an error');
	is(count_work('nightly_work', $paris), 1, 'the job was run there');
	is(run_shell($berlin, "PGPORT=1 $command"), 2, 'without a database the status tells of it');

	# A job that fails must be able to give its slot free, or it must not begin: the
	# next attempts would do nothing, and succeed.
	foreach my $node ($berlin, $paris)
	{
		$node->safe_psql('app', 'CREATE ROLE novice LOGIN IN ROLE zklock_job; GRANT ALL ON work_done, trouble TO novice');
	}
	forget_nightly();
	foreach my $node ($berlin, $paris)
	{
		my $name = $node->name;
		my $refused = start_shell($node, $command =~ s/-U jobs/-U novice/r);
		is($refused->finish, 1, "a role that may not give its slot free, $name: an error");
		like($refused->output, qr/ERROR:  role novice may not call zk_forget_run/, 'the error says which function the role may not call');
	}
	is($berlin->safe_psql('app', "SELECT count(*) FROM zk_runs('nightly')"), 0, 'nobody has the slot');
	is(run_shell($berlin, "PGUSER=novice run-once nobody today touch never"), 77, 'run-once does not begin the program');
	ok(!-e 'never', 'the program was not run');
	$berlin->safe_psql('app', "INSERT INTO trouble VALUES ('nightly_work')");
	my $fails = start_shell($berlin, $command);
	is($fails->finish, 1, 'with the grants: the job fails');
	like($fails->output, qr/ERROR:  trouble in nightly_work/, 'the job fails with its own error');
	is(run_shell($paris, $command), 0, 'another cluster runs the job without an error');
	is(count_work('nightly_work', $paris), 1, 'the job was run there');

	# Nor is it hidden if ZooKeeper is away just then: whoever works long forgets the
	# slot over another connection than it was claimed with.
	forget_nightly();
	$berlin->safe_psql('app', "INSERT INTO trouble VALUES ('nightly_work')");
	my $gate_away = background($berlin, database => 'app');
	my $away = Recipes::at_gate($gate_away, 'nightly_work', sub { start_shell($berlin, "$command"); });
	$zk->pause;
	Recipes::open_gate($gate_away, 'nightly_work');
	isnt($away->finish, 0, 'a job that fails when ZooKeeper is away');
	$zk->resume;
	like($away->output, qr/WARNING:  nightly: trouble in nightly_work/, 'its error is told');
	$gate_away->quit;

	forget_nightly();
	my $gate = background($berlin, database => 'app');
	my $shell = Recipes::at_gate($gate, 'nightly_work', sub { start_shell($berlin, $command); });
	is(run_shell($paris, $command), 0, 'while it is at work, the others do not wait');
	$berlin->safe_psql('app', "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE wait_event = 'advisory'");
	isnt($shell->finish, 0, 'a job that was killed');
	is(run_shell($paris, $command), 0, 'another cluster ends without an error');
	is(count_work('nightly_work', $berlin, $paris), 0, 'the job is not run while its slot is taken');
	like($paris->safe_psql('app', "SELECT cluster FROM zk_runs('nightly')"), qr/^berlin$/,
		'ZooKeeper knows who had it');
	forget_nightly();
	is(run_shell($paris, $command), 0, 'the job can be called when its slot is free');
	is(count_work('nightly_work', $paris), 1, 'the job is run when its slot is free');
};

$recipes->assert_all_taken;
done_testing();
