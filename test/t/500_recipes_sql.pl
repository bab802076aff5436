
# The recipes of docs/recipes.md that need nothing but SQL do what the text around them says:
# each block is taken from the document and run in two clusters. All SQL of the document runs as
# it stands, in order, as the roles that it names, in a database that has nothing but zklock.

use File::Basename qw(dirname);
use Pages;
use Recipes;
use ZkLockTest;

chomp(my $pkglibdir = qx(pg_config --pkglibdir));
my $has_pg_cron = -e "$pkglibdir/pg_cron.so";
my $recipes = Recipes->new('sql');
my $zk = ZooKeeper->new->start;
# With quorum an eviction is a loss at once; nothing has to be waited for.
my ($berlin, $paris) = map {
	cluster($_, $zk, extension => undef, with_cron(), 'zklock.commit_guard' => 'quorum', 'zklock.session_timeout' => '20s')
} qw(berlin paris);

# Its database is that in which all is typed.
sub with_cron
{
	return $has_pg_cron
	  ? (shared_preload_libraries => 'zklock, pg_cron', 'cron.database_name' => 'bare', 'cron.host' => $PostgreSQL::Test::Cluster::test_pghost)
	  : ();
}

foreach my $node ($berlin, $paris)
{
	Recipes::prepare_database($node);
	Recipes::prepare_work($node, 'rebuild_work', 'part int');
	Recipes::prepare_work($node, $_) foreach qw(etl_work order_work maintenance_work mailer_work billing_work);
}

sub reset_work
{
	$_->safe_psql('app', 'TRUNCATE work_done, trouble') foreach $berlin, $paris;
	return;
}

# The code with other values of the variables that it sets.
sub with_variables ($code, %value)
{
	foreach my $name (keys %value)
	{
		$code =~ s/^\\set $name .*$/\\set $name $value{$name}/m or die "$name is not set in: $code";
	}
	return $code;
}

sub held ($session)
{
	return $session->query_safe("SELECT coalesce(string_agg(name || ' ' || state, ' '), '')
		FROM zk_session_locks");
}

subtest 'each recipe of the document has a test, and its blocks are found' => sub {
	foreach my $group (Recipes::groups())
	{
		my @files = glob(dirname(__FILE__) . "/*_recipes_$group.pl");
		is(scalar @files, 1, "a test runs the blocks of $group");
	}
	my $block = "```sql\nSELECT 1;\n```\n";
	my $name = "<!-- recipe: sql/one -->\n";
	is_deeply({ Recipes::parse("text\n$name$block") }, { 'sql/one' => "SELECT 1;\n" },
		'a block is found');
	my %wrong = (
		'without a name' => $block,
		'without a name, in a list' => "- item\n\n  ```sql\n  SELECT 1;\n  ```\n",
		'called like another' => "$name$block$name$block",
		'away from its name' => "${name}text\n$block",
		'without an end' => "$name```sql\nSELECT 1;\n");
	foreach my $what (sort keys %wrong)
	{
		ok(!eval { Recipes::parse($wrong{$what}); 1 }, "a block $what is an error");
	}
};

subtest 'the recipe reason shows waiters in another cluster why a lock is held' => sub {
	my ($holder, $other) = map { background($_, database => 'app') } $berlin, $paris;
	$holder->query_safe($recipes->code('reason'));
	like($other->query_safe($recipes->code('reason-who')), qr/^held\|rebuild of the index, ticket 4711\|/, 'the queue has the reason');
	is($holder->query_safe($recipes->code('reason-over')), 't', 'the lock is released');
	$_->quit foreach $holder, $other;
};

subtest 'the recipe rebuild is done by one caller at a time' => sub {
	$recipes->install('rebuild', $berlin, $paris);
	my ($first, $second, $gate) = map { background($_, database => 'app') } $berlin, $paris, $berlin;

	Recipes::at_gate($gate, 'rebuild_work', sub { $first->start_query('CALL rebuild()'); });
	$second->query_safe('CALL rebuild()');
	like($second->error, qr/running elsewhere/, 'the second returns at once');
	$second->query_safe($recipes->code('rebuild-do'));
	is(Recipes::work_done($paris, 'rebuild_work'), 'nothing', 'the second caller and the DO block do nothing');
	Recipes::open_gate($gate, 'rebuild_work');
	assert_ends($first, '00000', 'the first ends well');
	is(Recipes::work_done($berlin, 'rebuild_work'), '1 2 3', 'the first caller has done all parts');
	is($first->query_safe('SELECT count(DISTINCT xmin::text) FROM work_done'), 3,
		'in three transactions');
	assert_no_nodes($zk, lock_path('rebuild'), 'nothing left');
	$second->query_safe('CALL rebuild()');
	$second->query_safe($recipes->code('rebuild-do'));
	is(Recipes::work_done($paris, 'rebuild_work'), '1 2 3 1', 'others can call it afterwards');

	reset_work();
	assert_query($first, 'BEGIN; CALL rebuild()', '2D000', 'CALL in a transaction block is refused');
	$first->query('ROLLBACK');
	is(held($first), '', 'no lock is left');

	$first->query_safe("INSERT INTO trouble VALUES ('rebuild_work 2')");
	$first->query('CALL rebuild()');
	like($first->error, qr/trouble in rebuild_work/, 'the second part fails');
	is(Recipes::work_done($berlin, 'rebuild_work'), '1', 'the first part stays');
	is(held($first), '', 'no lock is left');

	reset_work();
	Recipes::at_gate($gate, 'rebuild_work', sub { $first->start_query('CALL rebuild()'); });
	Recipes::evict($paris, 'rebuild');
	Recipes::open_gate($gate, 'rebuild_work');
	assert_ends($first, '40001', 'the lock was lost: the commit is refused');
	is(Recipes::work_done($berlin, 'rebuild_work'), 'nothing', 'no part stays');
	is(held($first), '', 'nothing to let go of');
	$first->query_safe('CALL rebuild()');
	is(Recipes::work_done($berlin, 'rebuild_work'), '1 2 3', 'it can be called again');

	reset_work();
	Recipes::at_gate($gate, 'rebuild_work', sub { $first->start_query('CALL rebuild()'); });
	$first->cancel;
	assert_ends($first, '57014', 'it is canceled');
	Recipes::open_gate($gate, 'rebuild_work');
	assert_no_nodes($zk, lock_path('rebuild'), 'no lock is left');
	$second->query_safe('CALL rebuild()');
	is(Recipes::work_done($paris, 'rebuild_work'), '1 2 3', 'others can call it after a cancellation');
};

subtest 'the recipe etl is done by two at a time' => sub {
	reset_work();
	my @gate = map { background($_, database => 'app') } $berlin, $paris;
	my @load = map { background($_, database => 'app') } $berlin, $paris, $berlin, $paris;
	Recipes::close_gate($_, 'etl_work') foreach @gate;
	foreach my $count (1 .. 3)
	{
		start_in_queue($load[ $count - 1 ], $recipes->code('etl'), $zk, lock_path('etl'), $count);
	}
	Recipes::wait_at_gate($berlin, 2);
	Recipes::wait_at_gate($paris, 1);
	start_in_queue($load[3], $recipes->code('etl'), $zk, lock_path('etl'), 4);
	wait_for_wait($paris, $load[3]->pid);
	Recipes::wait_at_gate($paris, 1);

	my $other = background($berlin, database => 'app');
	assert_query($other, "SELECT zk_try_lock('etl', permits => 4)", '55000', 'another number is refused');
	# Ten minutes are too long here.
	$other->query_safe("SET lock_timeout = '2s'");
	$other->query_safe($recipes->code('etl-try'));
	is(Recipes::work_done($berlin, 'etl_work'), 'nothing', 'a caller that gives up does nothing');

	# A crash of the client gives the permit back.
	$load[0]->kill;
	$berlin->safe_psql('app', 'SELECT pg_terminate_backend(' . $load[0]->pid . ')');
	Recipes::wait_at_gate($paris, 2);
	pass('the end of one lets the fourth in');
	Recipes::open_gate($_, 'etl_work') foreach @gate;
	$_->wait_result foreach @load[ 1 .. 3 ];
	is(join(' ', map { $_->sqlstate } @load[ 1 .. 3 ]), '00000 00000 00000', 'the other callers end without errors');
	assert_no_nodes($zk, lock_path('etl'), 'nothing left');
	$other->query_safe('RESET lock_timeout');
	$other->query_safe($recipes->code('etl-try'));
	is($berlin->safe_psql('app', 'SELECT count(*) FROM work_done'), 2,
		'the caller that gave up can do it later');
};

subtest 'the recipe of a maintenance window waits for workers and keeps newcomers out' => sub {
	reset_work();
	my ($worker, $late, $gate) = map { background($berlin, database => 'app') } 1 .. 3;
	my ($maintenance, $maintenance_gate) = map { background($paris, database => 'app') } 1 .. 2;
	Recipes::close_gate($gate, 'order_work');
	Recipes::close_gate($maintenance_gate, 'maintenance_work');

	$worker->start_query($recipes->code('window-worker'));
	Recipes::wait_at_gate($berlin, 1);
	start_in_queue($maintenance, $recipes->code('window-maintenance'), $zk, lock_path('shop/open'), 2);
	start_in_queue($late, $recipes->code('window-worker'), $zk, lock_path('shop/open'), 3);
	Recipes::open_gate($gate, 'order_work');
	assert_ends($worker, '00000', 'a worker at work finishes');
	Recipes::wait_at_gate($paris, 1);
	ok(!$late->is_done, 'then the window is open, and newcomers wait');
	is(scalar queue_nodes($zk, lock_path('shop/open')), 2, 'the newcomer is in the queue behind the maintenance');
	Recipes::open_gate($maintenance_gate, 'maintenance_work');
	$_->wait_result foreach $maintenance, $late;
	is($late->sqlstate, '00000', 'the worker goes on when the window is closed');

	my $told = $maintenance->query_safe($recipes->code('window-close'));
	my ($token) = $told =~ /^the token is (\d+)$/ or die "no token in: $told";
	$maintenance->quit;
	$maintenance_gate->quit;
	start_in_queue($late, $recipes->code('window-worker'), $zk, lock_path('shop/open'), 2);
	like($worker->query_safe($recipes->code('window-who')),
		qr/^$token\|moving to new disks, Anna\|.*\|paris\|/, 'the queue shows who holds the lock, and why');
	ok(!$late->is_done, 'a hold needs no session');
	is($worker->query_safe("\\set token $token\n" . $recipes->code('window-reopen')), 't',
		'another cluster ends it');
	assert_ends($late, '00000', 'the worker goes on when the hold is released');
	is($berlin->safe_psql('app', "SELECT count(*) FROM work_done WHERE what = 'order_work'"),
		3, 'three have worked');
	assert_leave_nothing($zk, lock_path('shop/open'), $worker, $late, $gate);
};

subtest 'the recipe of fenced writes refuses an old holder in the database and the store' => sub {
	$recipes->install('ledger', $berlin);
	# The store is in a database that knows nothing of zklock.
	$paris->safe_psql('postgres', $recipes->code('store'));
	my ($old, $new) = map { background($berlin, database => 'app') } 1 .. 2;
	my $store = background($paris);
	my $put = sub ($token, $body) {
		return $store->query_safe(with_variables($recipes->code('store-put'), token => $token, body => "'$body'"));
	};

	# The guard must not be what refuses.
	$old->query_safe("SET zklock.commit_guard = off");
	my $old_token = $old->query_safe("SELECT zk_lock('ledger')");
	$old->query_safe($recipes->code('fence'));
	is($put->($old_token, 'old'), 'written', 'the holder writes');
	is($put->($old_token, 'old again'), 'written', 'more than once');
	# Nor must it know of its eviction.
	my ($program) = session_programs($old->pid);
	kill 'STOP', $program;
	Recipes::evict($paris, 'ledger');
	my $new_token = $new->query_safe("SELECT zk_lock('ledger')");
	$new->query_safe($recipes->code('fence'));
	is($put->($new_token, 'new'), 'written', 'the next holder writes');
	$old->query($recipes->code('fence'));
	kill 'CONT', $program;
	like($old->error, qr/a newer holder of lock "ledger" has been here/,
		'the old one is refused by the database');
	is($put->($old_token, 'late'), '', 'the old holder is refused by the store');
	is($berlin->safe_psql('app', 'SELECT balance FROM ledger'), 2, 'two writes');
	is($paris->safe_psql('postgres', 'SELECT body FROM store'), 'new', 'the newest body');

	# The lock is held elsewhere.
	assert_query($old, "SELECT zk_fence('ledger', $old_token)", '40001', 'an old token from elsewhere is refused');
};

subtest 'the recipe post tries again after the errors that it should, and only then' => sub {
	$recipes->install('retry', $berlin);
	my $session = background($berlin, database => 'app');
	# The first so many attempts fail.
	$session->query_safe(<<~'SQL');
		CREATE TABLE posted (attempt int);
		CREATE SEQUENCE attempts;
		CREATE PROCEDURE ledger_work() LANGUAGE plpgsql AS $$
		DECLARE
			attempt int := nextval('attempts');
		BEGIN
			INSERT INTO posted VALUES (attempt);
			RAISE NOTICE 'transaction %', pg_current_xact_id();
			IF attempt > current_setting('test.failures')::int THEN
				RETURN;
			ELSIF current_setting('test.sqlstate') <> 'lost' THEN
				RAISE EXCEPTION 'trouble' USING ERRCODE = current_setting('test.sqlstate');
			END IF;
			PERFORM zk_evict('ledger', zk_fencing_token('ledger'));
			PERFORM zk_is_held('ledger');
			PERFORM zk_xact_lock('another');
		END $$;
		SQL
	my $post = sub ($sqlstate, $failures) {
		$session->query_safe("TRUNCATE posted; SELECT setval('attempts', 1, false);
			SET test.sqlstate = '$sqlstate'; SET test.failures = $failures");
		$session->query('CALL post()');
		my %transactions = map { $_ => 1 } $session->error =~ /transaction (\d+)/g;
		my $state = $session->sqlstate;
		return join ' ', $state, 'attempts', scalar(keys %transactions), 'posted',
		  $session->query_safe("SELECT coalesce(string_agg(attempt::text, ' '), 'none') FROM posted");
	};
	foreach my $sqlstate (qw(40001 40P01 55P03 08001 08006 lost))
	{
		is($post->($sqlstate, 2), '00000 attempts 3 posted 3',
			"$sqlstate is tried again, in another transaction, and nothing is left of what failed");
	}
	is($post->('22012', 2), '22012 attempts 1 posted none', 'an error of the work is not tried again');
	is($post->('40001', 9), '40001 attempts 5 posted none', 'five attempts are the most');

	my $holder = background($paris, database => 'app', holds => 'ledger');
	$session->query_safe("SET lock_timeout = '50ms'");
	is($post->('', 0), '55P03 attempts 0 posted none', 'a lock that does not become free ends the attempts');
	assert_leave_nothing($zk, lock_path('ledger'), $holder);
};

# One tick of a process of that name; what it ended with.
sub tick ($session, $me, $sql = $recipes->code('tick'))
{
	$session->query(with_variables($sql, me => $me, address => "$me:8080"));
	my ($state) = $session->error =~ /^(?:psql:\S+ )?ERROR:  (.*)/m;
	return $state // '';
}

subtest 'the recipe of a leader behind a pooler has one leader at a time' => sub {
	reset_work();
	my ($first, $second, $other) = map { background($_, database => 'app') } $berlin, $paris, $paris;
	my $who = sub { return $other->query_safe('SELECT owner, data FROM (' . ($recipes->code('who-leads') =~ s/;//r) . ') AS q'); };
	my $works = sub { return join ' ', map { $_->safe_psql('app', 'SELECT count(*) FROM work_done') } $berlin, $paris; };
	is(tick($_->[0], $_->[1]), '', "a tick of $_->[1]") foreach [ $first, 'app-1' ], [ $second, 'app-2' ], [ $first, 'app-1' ];
	is($works->(), '2 0', 'one of both has worked');
	is($who->(), 'app-1|app-1:8080', 'zk_leader() shows the leader');
	is(tick($other, 'app-1'), '', 'a tick of the leader over another connection');
	is($works->(), '2 1', 'the leader has worked over another connection');

	my $depose = sub ($who) { return $other->query_safe($recipes->code('step-down') =~ s/app-1/$who/r); };
	is($depose->('app-1'), 't', 'it steps down');
	is(tick($_->[0], $_->[1]), '', "a tick of $_->[1]") foreach [ $second, 'app-2' ], [ $first, 'app-1' ];
	is($works->(), '2 2', 'the first tick after the leader has stepped down makes the next leader');
	is($depose->('app-1'), '', 'a former leader cannot step down for the new one');
	is($depose->('app-2'), 't', 'it steps down');
	is(tick($first, 'app-1'), '', 'the other leads again');
	my $next = background($paris, database => 'app');
	start_in_queue($next, $recipes->code('next'), $zk, lock_path('mailer'), 2);
	is($other->query_safe($recipes->code('hand-over')), 't', 'the leader is told to hand over');
	cmp_ok($next->wait_result, '>', 0, 'the one that waits is the next leader');
	is(tick($_->[0], $_->[1]), '', "a tick of $_->[1]") foreach [ $first, 'app-1' ], [ $second, 'app-2' ], [ $first, 'app-1' ];
	is($who->(), 'app-2|app-2:8080', 'the other contender is the next leader');
	is($works->(), '3 3', 'no work was done in between');

	# The leader dies, or comes too late with its commit.
	my $short = $recipes->code('tick') =~ s/'30 s'/'2 s'/r;
	$depose->('app-2');
	tick($second, 'app-2', $short);
	$second->quit;
	assert_soon { tick($first, 'app-1'); $who->() =~ /^app-1/ } 'a dead leader is followed';
	reset_work();
	my $gate = background($berlin, database => 'app');
	Recipes::at_gate($gate, 'mailer_work',
		sub { $first->start_query($recipes->code('tick')); });
	Recipes::evict($paris, 'mailer');
	is(tick($other, 'app-3'), '', 'another one leads');
	Recipes::open_gate($gate, 'mailer_work');
	$first->wait_result;
	like($first->error, qr/the lease of lock "mailer" with fencing token \d+ is not held/, 'the former one is late');
	is($works->(), '0 1', 'the late run has done nothing');
	$first->query('ROLLBACK');
	$depose->('app-3');
	is($depose->('app-3'), '', 'nobody leads');
	assert_no_nodes($zk, lock_path('mailer'), 'nothing left');
};

subtest 'the recipe billing is done at least once, and commits once' => sub {
	reset_work();
	(my $billing = $recipes->code('billing')) =~ s/'10 min'/'2 s'/ or die 'which term?';
	$_->safe_psql('app', $billing) foreach $berlin, $paris;
	my ($first, $second, $gate) = map { background($_, database => 'app') } $berlin, $paris, $berlin;
	my $works = sub { return join ' ', map { $_->safe_psql('app', 'SELECT count(*) FROM work_done') } $berlin, $paris; };
	my $forget = sub { reset_work(); $second->query_safe("SELECT zk_forget_run('billing', slot) FROM zk_runs('billing')"); };

	# Who runs it dies.
	Recipes::at_gate($gate, 'billing_work', sub { $first->start_query('CALL billing()'); });
	$second->query_safe('CALL billing()');
	is($works->(), '0 0', 'one run at a time');
	$gate->query_safe("SELECT pg_terminate_backend(" . $first->pid . ')');
	assert_soon { $second->query_safe('CALL billing()'); $works->() eq '0 1' } 'another cluster takes over';
	$second->query_safe('CALL billing()');
	is($works->(), '0 1', 'the work is not done again');
	like($second->query_safe("SELECT cluster FROM zk_runs('billing')"), qr/^paris$/, 'the record names the cluster that has done it');

	# It stands still until another one has taken over.
	$forget->();
	$first = background($berlin, database => 'app');
	$first->start_query('CALL billing()');
	Recipes::wait_at_gate($berlin, 1);
	assert_soon { $second->query_safe('CALL billing()'); $works->() eq '0 1' } 'another cluster takes over again';
	Recipes::open_gate($gate, 'billing_work');
	assert_ends($first, '40001', 'the former run is late');
	is($works->(), '0 1', 'the late run has done nothing');

	$forget->();
	$first->query_safe("INSERT INTO trouble VALUES ('billing_work')");
	$first->query('CALL billing()');
	like($first->error, qr/trouble in billing_work/, 'the work fails');
	assert_soon { $second->query_safe('CALL billing()'); $works->() eq '0 1' } 'another cluster does it';
	assert_no_nodes($zk, lock_path('billing'), 'nothing left');
};

subtest 'the recipe of triggers takes a lock for each row, and another one at COMMIT' => sub {
	$recipes->install($_, $berlin) foreach qw(trigger trigger-deferred);
	my ($writer, $rival, $gate) = map { background($_, database => 'app') } $berlin, $paris, $berlin;
	my ($begin, $update, $insert, $commit) = $recipes->code('trigger-use') =~ /^(BEGIN;)\n(UPDATE.*?;).*\n(INSERT.*?;)\n(COMMIT;)/
	  or die 'other statements';
	# A comment behind the last statement would be one of its own.
	my $all = "$begin $update $insert $commit";
	my $balance = sub { return $berlin->safe_psql('app', 'SELECT balance, (SELECT count(*) FROM outbox) FROM accounts'); };

	$rival->query_safe("SELECT zk_lock('account/7')");
	$writer->query_safe($begin);
	start_in_queue($writer, $update, $zk, lock_path('account/7'), 2);
	$rival->query_safe("SELECT zk_unlock('account/7')");
	assert_ends($writer, '00000', 'the statement waits for the lock of its row');
	$rival->query_safe("SELECT zk_lock('outbox')");
	$writer->query_safe($insert);
	is(held($writer), 'account/7 held', 'the deferred trigger has not asked for its lock');
	start_in_queue($writer, $commit, $zk, lock_path('outbox'), 2);
	is($balance->(), '0|0', 'COMMIT waits');
	$rival->query_safe("SELECT zk_unlock('outbox')");
	assert_ends($writer, '00000', 'COMMIT has the lock');
	is($balance->(), '1|1', 'and has committed');
	is(held($writer), '', 'COMMIT has released both locks');

	my $locks_of = sub ($sql) {
		$writer->query_safe("BEGIN; $sql");
		my $names = $writer->query_safe("SELECT string_agg(name, ' ' ORDER BY name) FROM zk_session_locks WHERE state = 'held'");
		$writer->query_safe('ROLLBACK');
		return $names;
	};
	is($locks_of->('INSERT INTO accounts VALUES (8, 0)'), 'account/8', 'a new row');
	is($locks_of->('DELETE FROM accounts WHERE id = 7'), 'account/7', 'a deleted row');
	is($locks_of->('UPDATE accounts SET id = 70 WHERE id = 7'), 'account/7 account/70', 'another key');
	is($balance->(), '1|1', 'all of that was rolled back');
	$writer->query_safe('BEGIN; DELETE FROM accounts WHERE id = 7');
	is($writer->query_safe('SELECT count(*) FROM accounts'), 0, 'the trigger lets a row be deleted');
	$writer->query_safe('ROLLBACK');

	# Between the lock of the deferred trigger and the commit another trigger stands at a gate.
	$writer->query_safe($all);
	$berlin->safe_psql('app', q{CREATE FUNCTION wait_here() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN CALL order_work(); RETURN NULL; END $$;
		CREATE CONSTRAINT TRIGGER lock_z AFTER INSERT ON outbox DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW EXECUTE FUNCTION wait_here()});
	foreach my $name ('account/7', 'outbox')
	{
		Recipes::at_gate($gate, 'order_work', sub { $writer->start_query($all); });
		Recipes::evict($paris, $name);
		Recipes::open_gate($gate, 'order_work');
		assert_ends($writer, '40001', "without the lock $name COMMIT is refused");
		is($balance->(), '2|2', 'and nothing of the transaction is left');
	}
	assert_leave_nothing($zk, lock_path('outbox'), $writer, $rival, $gate);
};

subtest 'all SQL of the document, typed in order as the roles that it names, runs in a database that has only zklock' => sub {
	# What the document names as the reader's own.
	$berlin->safe_psql('postgres', 'CREATE DATABASE bare; CREATE ROLE reporter');
	install_as_documented($berlin, 'bare');
	my %needs_pg_cron = map { $_ => 1 } 'cron/extension', 'cron/schedule', 'cron/leader-schedule', 'cron/longest';
	my %session;
	my $session_of = sub ($role) { return background($berlin, database => 'bare', $role eq 'postgres' ? () : (user => $role)); };
	my $type = sub ($name, $role, $sql) {
		my $is_alone = $sql =~ /^SET search_path/;
		my $session = $is_alone ? $session_of->($role) : ($session{$role} //= $session_of->($role));
		$session->query($sql);
		unlike($session->error, qr/ERROR|WARNING/, "$name, as $role");
		$session->quit if $is_alone;
	};
	my ($page) = grep { $_->{name} eq 'docs/recipes.md' } Pages::all();
	my @typed = map { [ Recipes::named($_), $_->{code} ] } grep { $_->{language} eq 'sql' } Pages::blocks($page);
	cmp_ok(scalar @typed, '>', 25, 'there are blocks');
	my %count;
	$count{ $_->[1] }++ foreach @typed;
	is(join(' ', sort keys %count), 'jobs ops postgres', 'of three roles');
	$type->(@$_) foreach grep { $has_pg_cron || !$needs_pg_cron{ $_->[0] } } @typed;
	$type->("the procedure $_", 'jobs', "CALL $_()") foreach qw(nightly billing rebuild post);
	is($session{jobs}->query_safe("SELECT string_agg(name, ' ' ORDER BY name) FROM zk_session_locks"), '', 'no lock of jobs is left');
	is($session{postgres}->query_safe("SELECT string_agg(name, ' ' ORDER BY name) FROM zklock.zk_session_locks"), 'migrate/shop',
		'one lock is left, which the document says to take by hand');
	is($session{jobs}->query_safe('SELECT balance, (SELECT body FROM store) FROM ledger'), '1|the report', 'the fenced writes are done');
	is($session{postgres}->query_safe("SELECT string_agg(jobname || ' as ' || username, ', ' ORDER BY jobname) FROM cron.job"),
		'longest-rebuild as ops, mailer as jobs, nightly as jobs', 'pg_cron has the jobs of these roles') if $has_pg_cron;
	$recipes->code($_) foreach qw(roles work billing-grants);
	$_->quit foreach values %session;
	# Of all databases, or of another one.
	$berlin->safe_psql('postgres', 'ALTER DATABASE app RESET zklock.session_scope; ALTER ROLE reporter RESET zklock.node_style');
};

$recipes->assert_all_taken;
done_testing();
