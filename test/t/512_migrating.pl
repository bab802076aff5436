
# Each statement of docs/migrating.md runs and does what the page says; and the drop-in for
# PostgreSQL's advisory locks does over two clusters what they do in one, with the SQL of
# migrators, with Rails and Alembic as Debian has them, and with programs in Java and Go.

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use Peer;
use PostgreSQL::Test::Utils;
use Programs;
use ZkLockTest;

my $docs = abs_path(dirname(__FILE__)) . '/../../docs';
my $page = slurp_file("$docs/migrating.md");
my $zk = ZooKeeper->new->start;
my ($berlin, $paris) = map {
	cluster($_, $zk, extension => undef, listen_addresses => '127.0.0.1',
		'zklock.commit_guard' => 'quorum')
} qw(berlin paris);
my $path = "$docs/migrating/advisory.sql";
my $where = 'public, zklock_advisory, pg_catalog';

# As the front page installs it.
foreach my $node ($berlin, $paris)
{
	$node->safe_psql('postgres', 'CREATE DATABASE app; CREATE DATABASE other; CREATE ROLE migrator LOGIN;
		CREATE ROLE stranger LOGIN; CREATE ROLE tool LOGIN');
	foreach my $database (qw(app other))
	{
		install_as_documented($node, $database);
		$node->safe_psql($database, 'CREATE SCHEMA shop AUTHORIZATION migrator; GRANT CREATE ON SCHEMA public TO migrator');
		command_ok([ 'psql', '-X', '-q', '-d', $node->connstr($database), '-f', $path ], "$database: the drop-in");
	}
	my ($setting) = $page =~ /^(ALTER ROLE .*;)$/m or die 'the page does not say how to set it';
	$node->safe_psql('postgres', $setting . $setting =~ s/ app / other /r);
}

command_checks_all([ 'psql', '-X', '-q', '-d', $berlin->connstr('postgres'), '-f', $path ], 3, [qr/^$/],
	[qr/ERROR:  extension "zklock" is not in this database/], 'the drop-in is refused where zklock is not installed');
is($berlin->safe_psql('postgres', "SELECT to_regnamespace('zklock_advisory') IS NULL"), 't', 'nothing is left of it');

command_checks_all([ 'psql', '-X', '-q', '-d', $berlin->connstr('app') . ' user=migrator', '-f', $path ], 3, [qr/^$/],
	[qr/ERROR:  must be superuser/], 'the drop-in is refused to a role that is no superuser');

# They show NULL as such: '' is another thing.
sub shows_null ($node, %option)
{
	my $path = delete $option{path};
	my $session = background($node, %option);
	$session->query_safe('\\pset null NULL');
	$session->query_safe("SET search_path = $path") if $path;
	return $session;
}

sub migrator ($node, %option) { return shows_null($node, database => 'app', user => 'migrator', %option); }

# All names with their arguments, as they are called with the number that is given.
my @calls = split /\n/, $berlin->safe_psql('app', "SELECT proname || CASE pronargs WHEN 0 THEN '()' WHEN 1 THEN '(%d)' ELSE '(%1\$d, %1\$d)' END
	FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace AND proname ~ '^pg_(try_)?advisory' ORDER BY proname, pronargs");
sub calls ($number) { return map { s/%(?:1\$)?d/$number/gr } @calls; }

subtest 'the drop-in has all 21 functions of advisory locks' => sub {
	my $list = sub {
		return $berlin->safe_psql('app', "SELECT string_agg(concat_ws(' ', proname, proargtypes::regtype[],
				prorettype::regtype, provolatile, proparallel), E'\\n' ORDER BY proname, proargtypes)
			FROM pg_proc WHERE pronamespace = '$_[0]'::regnamespace AND proname ~ '^pg_(try_)?advisory'");
	};
	my $ours = $list->('zklock_advisory');
	is($ours, $list->('pg_catalog'), 'names, arguments, results');
	is(scalar(split /\n/, $ours), 21, 'there are 21 functions');
};

subtest 'a key of the drop-in is one lock in two clusters' => sub {
	my ($here, $there) = map { migrator($_) } $berlin, $paris;
	my $elsewhere = shows_null($paris, database => 'other', user => 'migrator');
	# The fifth and those behind it are Flyway's, Ecto's, and one as Rails computes it.
	foreach my $key ('42', '-1', '9223372036854775807', '-9223372036854775808', '77431708279161', '129653361',
		'2988211364217205800', '1, 2', '2147483647, -2147483648')
	{
		$here->query_safe("SELECT pg_advisory_lock($key)");
		is($there->query_safe("SELECT pg_try_advisory_lock($key), pg_try_advisory_xact_lock($key),
				pg_try_advisory_lock_shared($key), pg_try_advisory_xact_lock_shared($key)"), 'f|f|f|f', "$key is taken");
		is($elsewhere->query_safe("SELECT pg_try_advisory_lock($key)"), 't', 'the key is free in another database');
		is($here->query_safe("SELECT pg_advisory_unlock($key)"), 't', 'the key is released');
		is($there->query_safe("SELECT pg_advisory_lock($key), pg_advisory_unlock($key)"), '|t', 'the other cluster can take the key');
	}
	$here->query_safe('SELECT pg_advisory_lock_shared(7)');
	is($there->query_safe('SELECT pg_try_advisory_lock_shared(7), pg_try_advisory_lock_shared(7),
			pg_advisory_unlock_shared(7)'), 't|t|t', 'readers share');
	is($there->query_safe('SELECT pg_try_advisory_lock(8), pg_try_advisory_lock(0, 7)'), 't|t', 'other keys are free');
	$there->query_safe('SELECT pg_advisory_unlock_all()');
	$here->query_safe('SELECT pg_advisory_unlock_all()');
	is($there->query_safe('SELECT count(*) FROM zklock.zk_session_locks'), 0, 'all are released');
	is($here->query_safe('SELECT pg_try_advisory_xact_lock(9)'), 't', 'a try of transaction scope is true');
	$here->query_safe('BEGIN; SELECT pg_advisory_xact_lock(9)');
	is($there->query_safe('SELECT pg_try_advisory_lock(9)'), 'f', 'a key of transaction scope is taken for the other cluster');
	$here->query_safe('COMMIT');
	$there->query_safe('SELECT pg_advisory_lock(9)');
	is($there->query_safe('SELECT zklock.zk_fencing_token(\'advisory/app/(9)\') > 0'), 't', 'the key is the lock advisory/app/(9)');
	assert_query($here, 'SELECT pg_advisory_lock(NULL)', '22004', 'NULL is refused');
	is($here->query_safe('SELECT current_schema'), 'shop', 'tables go where the page says');
};

# Ten digits at the end look like the number of a queue entry.
subtest 'a key of ten digits works like any other key' => sub {
	my $database = 'app_2026112700';
	foreach my $node ($berlin, $paris)
	{
		$node->safe_psql('postgres', "CREATE DATABASE $database");
		$node->safe_psql($database, 'CREATE EXTENSION zklock');
		command_ok([ 'psql', '-X', '-q', '-d', $node->connstr($database), '-f', $path ], $node->name . ': the drop-in');
	}
	my ($here, $there) = map { shows_null($_, database => $database, path => $where) } $berlin, $paris;
	foreach my $key ('999999999', '1000000000', '2026112700', '-2147483648', '1, 1000000000', '0000000001')
	{
		is($here->query_safe("SELECT pg_advisory_lock($key)"), '', "$key");
		is($there->query_safe("SELECT pg_try_advisory_lock($key)"), 'f', 'the other cluster cannot take the key');
		is($here->query_safe("SELECT pg_advisory_unlock($key)"), 't', 'released');
	}
};

# A program that asks PostgreSQL's own functions, and one that asks these, are answered alike.
subtest "the drop-in answers like PostgreSQL's own functions" => sub {
	my ($theirs, $ours) = (shows_null($berlin, database => 'postgres'), migrator($berlin));
	my @statements = map { ("SELECT $_", "SELECT $_ IS NULL, count($_), coalesce($_\::text, 'none'), pg_typeof($_)") } calls(1);
	push @statements, 'SELECT pg_advisory_unlock_all()', 'CREATE TEMP TABLE job AS SELECT i FROM generate_series(1, 3) AS i',
		'UPDATE job SET i = i + 10 WHERE pg_advisory_xact_lock(i) IS NOT NULL RETURNING i',
		'SELECT pg_advisory_lock(i), pg_advisory_unlock(i) FROM job', 'SELECT a FROM pg_advisory_xact_lock_shared(1, 2) AS a',
		'SELECT (SELECT pg_advisory_lock(7)) IS NOT NULL, pg_advisory_unlock(7)';
	foreach my $statement (@statements)
	{
		# of a lock that is not held both warn
		is($ours->query_safe($statement), $theirs->query_safe($statement), $statement);
		is($ours->error =~ /WARNING/, $theirs->error =~ /WARNING/, 'both warn alike') if $statement =~ /unlock/;
	}
	is($ours->query_safe('SELECT count(*) FROM zklock.zk_session_locks'), 0, 'no lock is left');
};

# A program with a search_path of its own, whoever has set it, gets PostgreSQL's functions. It
# must not migrate in its own cluster alone without a word.
subtest 'a session without the drop-in in its path is refused, and locks nothing' => sub {
	my ($in_use) = $page =~ /^(SELECT schema, .*);$/m or die 'the page does not say how to ask';
	$in_use .= ' ORDER BY 1, 2';
	my $there = migrator($paris, first => 'SELECT pg_advisory_lock(1), pg_advisory_lock(1, 1)');
	is($there->query_safe($in_use), 'zklock_advisory|t|21', 'with the path as it should be');
	my %path = ('the default' => '"$user", public', 'Rails, knex, JDBC' => 'public', 'PostgreSQL first' => 'public, pg_catalog, zklock_advisory');
	foreach my $what (sort keys %path)
	{
		my $session = migrator($berlin, path => $path{$what});
		foreach my $call (grep { !/unlock_all/ } calls(1))
		{
			assert_query($session, "SELECT $call", '42501', "$what: $call");
		}
		like($session->error, qr/permission denied for function pg_/, 'the error says that the function is not permitted');
		# asyncpg calls it whenever a connection goes back to the pool
		is($session->query_safe('SELECT pg_advisory_unlock_all()'), '', 'pg_advisory_unlock_all() is permitted');
		is($session->query_safe($in_use), "pg_catalog|f|20\npg_catalog|t|1", "the query of the page shows PostgreSQL's own functions");
	}
	# and so can somebody's function whose arguments fit better than theirs
	my $planted = migrator($berlin, first => 'CREATE FUNCTION shop.pg_advisory_lock(integer) RETURNS integer LANGUAGE sql RETURN 1');
	is($planted->query_safe($in_use), "shop|t|1\nzklock_advisory|t|21", 'a function that somebody has put in the way');
	$planted->query_safe('DROP FUNCTION shop.pg_advisory_lock(integer)');
	{
		local $ENV{PGOPTIONS} = '-c search_path=public';
		assert_query(migrator($berlin), 'SELECT pg_try_advisory_lock(1)', '42501', 'options of libpq');
	}
	my $session = migrator($berlin);
	$session->query_safe('CREATE FUNCTION public.locks() RETURNS boolean LANGUAGE sql SET search_path = public
		AS $$ SELECT pg_try_advisory_lock(1) $$');
	assert_query($session, 'SELECT public.locks()', '42501', 'SET of a function');
	$session->query_safe('DROP FUNCTION public.locks()');
	assert_query(shows_null($berlin, database => 'app', user => 'stranger'), 'SELECT pg_advisory_xact_lock(1)', '42501', 'a role without the setting');
	assert_query(migrator($berlin), 'SELECT pg_catalog.pg_advisory_lock(1)', '42501', 'the schema written out');
	$berlin->safe_psql('app', 'GRANT migrator TO stranger');
	assert_query(shows_null($berlin, database => 'app', user => 'stranger', first => 'SET ROLE migrator'), 'SELECT pg_advisory_xact_lock(1)',
		'42501', 'a role that is set later');
	$berlin->safe_psql('app', 'REVOKE migrator FROM stranger');
	is(shows_null($berlin, user => 'stranger')->query_safe('SELECT pg_try_advisory_xact_lock(1)'), 't', "PostgreSQL's own functions work where there is no drop-in");
	# the limits
	is($berlin->safe_psql('app', 'SELECT pg_try_advisory_lock(1)'), 't', 'a superuser is not bound by it');
};

# What is meant to lock in its cluster alone, and what becomes of it in a dump.
subtest "a role that is exempt uses PostgreSQL's own advisory locks, also after a dump" => sub {
	my $tool = sub { return shows_null($berlin, database => $_[0] // 'app', user => 'tool'); };
	my $try = 'SELECT pg_try_advisory_xact_lock(1)';
	my ($allow, $refuse) = map { $page =~ /^(CALL zklock_advisory\.${_}_local\('tool'\);)/m ? $1 : die "the page has no $_" } qw(allow refuse);
	assert_query($tool->(), $allow, '42501', 'a role cannot exempt itself');
	$berlin->safe_psql('app', $allow);
	is($tool->()->query_safe($try), 't', "an exempt role uses PostgreSQL's own functions");
	my $dump = "$PostgreSQL::Test::Utils::tmp_check/app.sql";
	command_ok([ 'pg_dump', '-f', $dump, '-d', $berlin->connstr('app') ], 'a dump');
	$berlin->safe_psql('postgres', 'CREATE DATABASE restored');
	command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $dump, '-d', $berlin->connstr('restored') ], 'the dump is restored');
	is($tool->('restored')->query_safe($try), 't', 'the exemption is restored');
	assert_query(shows_null($berlin, database => 'restored', user => 'migrator'), $try, '42501', 'other roles are refused in the restored database');
	my $restored = shows_null($berlin, database => 'restored', user => 'migrator', path => $where);
	is($restored->query_safe('SELECT pg_try_advisory_lock(1), pg_advisory_unlock(1)'), 't|t', 'the functions work');
	$restored->quit;
	$berlin->safe_psql('app', $refuse);
	assert_query($tool->(), $try, '42501', 'the role is refused when its exemption is taken back');

	# To take it away, and to install it again.
	my ($remove) = slurp_file($path) =~ /((?:^--   .*\n)+)-- *\n-- No object/m or die 'the script does not say how';
	$berlin->safe_psql('restored', "CALL zklock_advisory.refuse_local('tool');" . $remove =~ s/^--   //mgr);
	is(shows_null($berlin, database => 'restored', user => 'stranger')->query_safe($try), 't', 'without the drop-in they are everybody\'s again');
	unlike(join('', run_command([ 'pg_dump', '-d', $berlin->connstr('restored') ])), qr/advisory/, 'a dump has nothing of the drop-in');
	command_ok([ 'psql', '-X', '-q', '-d', $berlin->connstr('restored'), '-f', $path ], 'the drop-in is installed again');
	is(shows_null($berlin, database => 'restored', user => 'migrator', path => $where)->query_safe($try), 't', 'the drop-in works after it was installed again');
	my ($renew) = slurp_file($path) =~ /^-- To install a newer .*(DROP SCHEMA zklock_advisory CASCADE) and run it\n/m or die 'the script does not say how to renew it';
	$berlin->safe_psql('restored', $renew);
	assert_query(shows_null($berlin, database => 'restored', user => 'migrator', path => $where), $try, '42501', 'between two versions it is refused');
	command_ok([ 'psql', '-X', '-q', '-d', $berlin->connstr('restored'), '-f', $path ], 'another version of the drop-in is installed');
	is(shows_null($berlin, database => 'restored', user => 'migrator', path => $where)->query_safe($try), 't', 'another version of the drop-in works');
	$berlin->safe_psql('postgres', 'DROP DATABASE restored WITH (FORCE)');
};

# Whoever may create in a schema that is in the path can put functions and operators in the way.
subtest 'the drop-in is not misled by objects of others in its path' => sub {
	my $planted = "RETURNS %s LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''planted''; END'";
	my %planted = (bigint => [ 'zk_lock(text)', 'zk_lock(text, interval)', 'zk_lock_shared(text)', 'zk_xact_lock(text)' ],
		boolean => [ 'zk_try_lock(text)', 'zk_try_xact_lock(text)', 'zk_try_lock_shared(text)', 'zk_unlock(varchar)' ],
		text => [ 'concat(text, text, text, bigint, text)', 'concat(text, name, text, bigint, text)', 'format(text, text, regrole)',
			'format(text, text)', 'format(text, name, text)' ],
		name => [ 'current_database()' ], 'name[]' => [ 'array_remove(name[], name)', 'current_schemas(boolean)' ]);
	my @sql = map { my $type = $_; map { "CREATE FUNCTION public.$_ " . sprintf $planted, $type } @{ $planted{$type} } } sort keys %planted;
	push @sql, "CREATE FUNCTION public.joined(text, text) @{[ sprintf $planted, 'text' ]}",
		'CREATE OPERATOR public.|| (LEFTARG = text, RIGHTARG = text, FUNCTION = public.joined)';
	foreach my $when ('before', 'after')
	{
		$berlin->safe_psql('postgres', 'CREATE DATABASE planted');
		# the worst schema to install it in
		$berlin->safe_psql('planted', 'CREATE EXTENSION zklock SCHEMA public');
		my @steps = (sub { $berlin->safe_psql('planted', join ';', @sql) },
			sub { command_ok([ 'psql', '-X', '-q', '-d', $berlin->connstr('planted'), '-f', $path ], "they came $when it") });
		$_->() foreach $when eq 'before' ? @steps : reverse @steps;
		my $session = shows_null($berlin, database => 'planted', user => 'migrator', path => $where);
		foreach my $call (calls(1))
		{
			$session->query_safe("SELECT $call");
		}
		is($session->query_safe('SELECT string_agg(DISTINCT name, \' \') FROM public.zk_session_locks'), 'advisory/planted/(1) advisory/planted/(1,1)',
			'the tries, behind the release of all, have taken these');
		$berlin->safe_psql('planted', "SET search_path = $where; CALL zklock_advisory.allow_local('tool'); CALL zklock_advisory.refuse_local('tool')");
		$session->quit;
		$berlin->safe_psql('postgres', 'DROP DATABASE planted WITH (FORCE)');
	}
};

# What the page has under "What differs".
subtest 'the drop-in differs from PostgreSQL where the page says so' => sub {
	my ($here, $there) = map { migrator($_) } $berlin, $paris;
	foreach my $call (map { s/\b1\b/NULL/gr } grep { !/all/ } calls(1))
	{
		assert_query($here, "SELECT $call", '22004', "$call");
	}
	like($here->error, qr/ERROR:  key of an advisory lock must not be null/, 'the error says that the key is NULL');
	$here->query_safe('SELECT pg_advisory_lock_shared(1)');
	assert_query($here, "SELECT $_(1)", '55000', "$_ does not upgrade") foreach qw(pg_advisory_lock pg_try_advisory_lock pg_advisory_xact_lock);
	is($here->query_safe('SELECT pg_advisory_unlock(1)'), 'f', 'a release in the other mode is false');
	like($here->error, qr/HINT:  It is held in shared mode: release it with pg_advisory_unlock_shared\(\)/, 'HINTs have the names that the caller knows');
	is($here->query_safe('SELECT pg_advisory_unlock_shared(1)'), 't', 'a release in the own mode is true');
	$here->query_safe('SELECT pg_advisory_lock(1)');
	$here->query_safe('SELECT pg_advisory_unlock_shared(1)');
	like($here->error, qr/HINT:  It is held in exclusive mode: release it with pg_advisory_unlock\(\)/, 'the HINT names the function for exclusive mode');

	is($here->query_safe("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"), 0, 'pg_locks does not have it');
	is($here->query_safe('SELECT name, mode FROM zklock.zk_session_locks'), 'advisory/app/(1)|exclusive', 'zk_session_locks has the key');
	start_in_queue($there, 'SELECT pg_advisory_lock(1)', $zk, lock_path('advisory/app/(1)'), 2);
	is($paris->safe_psql('app', 'SELECT pg_blocking_pids(' . $there->pid . ')'), '{}', 'pg_blocking_pids() knows nothing of the wait');
	assert_becomes { $paris->safe_psql('app', 'SELECT waiting_for FROM zklock.zk_backends WHERE pid = ' . $there->pid) }
	'advisory/app/(1)', 'zk_backends knows it';
	assert_becomes { $paris->safe_psql('app', 'SELECT wait_event_type FROM pg_stat_activity WHERE pid = ' . $there->pid) }
	'Extension', 'the event is of another type';
	is($here->query_safe('SELECT pg_advisory_unlock(1)'), 't', 'released');
	assert_ends($there, '00000', 'the waiter has the key');
	$there->query_safe('SELECT pg_advisory_unlock_all()');

	$here->query_safe('BEGIN; SELECT pg_advisory_xact_lock(1)');
	assert_query($here, "PREPARE TRANSACTION 'advisory'", '0A000', 'PREPARE TRANSACTION is refused');
	$here->query_safe('ROLLBACK; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_advisory_xact_lock(1)');
	like($here->error, qr/WARNING:  a lock taken in a transaction with a fixed snapshot/, 'a fixed snapshot warns');
	$here->query_safe('COMMIT');
	my $bounded = shows_null($berlin, database => 'app', path => $where, 'zklock.max_locks' => 5);
	assert_query($bounded, 'SELECT pg_advisory_xact_lock(i) FROM generate_series(1, 10) AS i', '53400', 'more keys than zklock.max_locks are refused');
	my $behind = shows_null($berlin, database => 'app', path => $where, 'zklock.session_scope' => 'refuse');
	assert_query($behind, 'SELECT pg_advisory_lock(1)', '0A000', 'session scope can be refused');
	like($behind->error, qr/HINT:  .*such as pg_advisory_xact_lock\(\)/, 'the HINT has the name that the caller knows');

	# PostgreSQL would let the reader pass the writer that waits.
	my ($reader, $writer, $other) = map { shows_null($_, database => 'app', path => $where, deadlock_timeout => '100ms') }
	  $berlin, $paris, $berlin;
	$reader->query_safe('SELECT pg_advisory_lock_shared(1)');
	$other->query_safe('SELECT pg_advisory_lock(2)');
	start_in_queue($writer, 'SELECT pg_advisory_lock(1)', $zk, lock_path('advisory/app/(1)'), 2);
	start_in_queue($other, 'SELECT pg_advisory_lock_shared(1)', $zk, lock_path('advisory/app/(1)'), 3);
	$reader->start_query('SELECT pg_advisory_lock(2)');
	assert_soon { grep { $_->is_done && $_->error =~ /ERROR:  deadlock detected/ } $reader, $writer, $other }
	'one of them is told of the deadlock', 60;
	$_->terminate foreach $reader, $writer, $other;
	$_->quit foreach $reader, $writer, $other;

	# a loss
	my $loser = migrator($berlin, first => 'SELECT pg_advisory_lock(3)');
	is($paris->safe_psql('app', "SELECT zklock.zk_evict('advisory/app/(3)', token) FROM zklock.zk_lock_queue('advisory/app/(3)')"), 't', 'taken away');
	assert_told($loser, 'CREATE TEMP TABLE late (i integer)', qr/lock "advisory\/app\/\(3\)" was lost/, 'the loss is told');
	like($loser->error, qr/HINT:  Release it with pg_advisory_unlock\(\) or pg_advisory_unlock_all\(\)/, 'the HINT names the functions of the drop-in');
};

# It waits for the snapshots of its cluster, of which one is that of a session that waits for the key.
subtest 'CREATE INDEX CONCURRENTLY beside a waiter of the same cluster ends the waiter' => sub {
	my $path = lock_path('advisory/app/(5)');
	my $holder = migrator($berlin, first => 'CREATE TABLE indexed (i integer)');
	foreach my $node ($paris, $berlin)
	{
		$holder->query_safe('SELECT pg_advisory_lock(5)');
		my $waiter = migrator($node);
		start_in_queue($waiter, 'SELECT pg_advisory_lock(5)', $zk, $path, 2);
		$holder->query_safe('CREATE INDEX CONCURRENTLY ON indexed (i)');
		my $is_there = $node == $berlin;
		assert_ends($waiter, '40P01', 'of its own cluster: who waits for the key gives way') if $is_there;
		is(scalar queue_nodes($zk, $path), 2, 'of another cluster: who waits for the key waits on') if !$is_there;
		is($holder->query_safe('SELECT pg_advisory_unlock(5)'), 't', 'the key is released');
		assert_ends($waiter, '00000', 'the waiter of the other cluster has the key') if !$is_there;
		$waiter->quit;
		assert_no_nodes($zk, $path);
	}
	is($berlin->safe_psql('app', "SELECT count(*) FROM pg_index WHERE indrelid = 'shop.indexed'::regclass AND indisvalid"), 2, 'both indexes are made');
	$holder->query_safe('DROP TABLE indexed');
};

# From the sources of its driver for postgres: the key is a string.
subtest 'the statements of golang-migrate lock over two clusters' => sub {
	my ($here, $there) = map { migrator($_) } $berlin, $paris;
	$_->query_safe('PREPARE t AS SELECT pg_advisory_lock($1); PREPARE u AS SELECT pg_advisory_unlock($1)')
		foreach $here, $there;
	$here->query_safe("EXECUTE t('1486264103')");
	start_in_queue($there, "EXECUTE t('1486264103')", $zk, lock_path('advisory/app/(1486264103)'), 2);
	ok(!$there->is_done, 'the other cluster waits');
	is($here->query_safe("EXECUTE u('1486264103')"), 't', 'it is released');
	assert_ends($there, '00000', 'the other cluster has the key');
};

sub url ($node) { return 'postgresql://migrator@127.0.0.1:' . $node->port . '/app'; }
sub program (@command) { return (run_program(@command), last_output()); }

my $directory = PostgreSQL::Test::Utils::tempdir_short();
sub file ($name, $text)
{
	my $file = "$directory/$name";
	mkdir dirname($file);
	open my $handle, '>', $file or die "$file: $!";
	print $handle $text;
	close $handle or die "$file: $!";
	return $file;
}

# The lock of a migrator, held on the other cluster: it waits, or says so.
sub held_elsewhere ($key)
{
	my $session = migrator($paris);
	$session->query_safe("SELECT pg_advisory_lock($key)");
	return $session;
}

subtest 'Rails migrates one cluster at a time with the drop-in' => sub {
	plan skip_all => 'not installed: ruby-activerecord, ruby-pg'
	  if !-e '/usr/bin/ruby' || system("ruby -e 'require \"active_record\"; require \"pg\"' 2>/dev/null") != 0;
	my $script = "$docs/../test/others/migrate.rb";
	my (undef, $key) = program('ruby', $script, url($berlin), 'key');
	like($key, qr/^\d+$/, 'Rails tells its key');
	chomp $key;
	my $other = held_elsewhere($key);
	my ($status, $out) = program('ruby', $script, url($berlin));
	isnt($status, 0, 'while another cluster migrates');
	like($out, qr/ConcurrentMigrationError/, 'Rails refuses to migrate');
	$other->quit;
	wait_for_queue($zk, lock_path("advisory/app/($key)"), 0);
	foreach my $node ($berlin, $paris)
	{
		($status, $out) = program('ruby', $script, url($node));
		# 6.1 and 7.0 lock on a second connection
		like("$status $out", qr/^0 ([01]) locks here\nmigrated\n$/, 'then it migrates ' . $node->name);
		is($node->safe_psql('app', "SELECT 'shop.migrated'::regclass"), 'shop.migrated', 'the table is in the schema of tables');
	}
	# With pg_catalog in the path it took the tables of that for its own.
	(undef, my $ours) = program('ruby', $script, url($berlin), 'dump');
	(undef, my $usual) = program('ruby', $script, url($berlin) . '?options=-csearch_path%3Dshop', 'dump');
	like($ours, qr/create_table "migrated"/, 'schema.rb has the table');
	is($ours, $usual, 'schema.rb is the same with the usual path');
};

subtest 'Alembic migrates one cluster at a time with the drop-in' => sub {
	plan skip_all => 'not installed: python3-alembic' if !-d '/usr/lib/python3/dist-packages/alembic';
	my $ini = file('alembic/alembic.ini', "[alembic]\nscript_location = $directory/alembic\n");
	file('alembic/script.py.mako', '');
	mkdir "$directory/alembic/versions";
	file('alembic/env.py', <<~'PYTHON');
		from alembic import context
		from sqlalchemy import create_engine, text
		engine = create_engine(context.get_x_argument(as_dictionary=True)['url'])
		with engine.connect() as connection:
		    context.configure(connection=connection)
		    with context.begin_transaction():
		        connection.execute(text('SELECT pg_advisory_xact_lock(4711)'))
		        context.run_migrations()
		PYTHON
	file('alembic/versions/1_work.py', <<~'PYTHON');
		from alembic import op
		revision = '1'
		down_revision = None
		def upgrade():
		    op.execute('CREATE TABLE alembic_work (what text)')
		PYTHON
	my $other = held_elsewhere(4711);
	my $run = start_program('/usr/bin/python3', '-m', 'alembic', '-c', $ini,
		'-x', 'url=' . url($berlin), 'upgrade', 'head');
	wait_for_queue($zk, lock_path("advisory/app/(4711)"), 2);
	is($berlin->safe_psql('app', "SELECT to_regclass('shop.alembic_work') IS NULL"), 't',
		'while another cluster migrates it waits');
	$other->quit;
	is($run->finish, 0, 'the migration ends without an error');
	is($berlin->safe_psql('app', "SELECT 'shop.alembic_work'::regclass"), 'shop.alembic_work', 'the table is made');
};

# No Debian has it: the one that GOLANG_MIGRATE names, or that is in PATH.
subtest 'golang-migrate migrates one cluster at a time with the drop-in' => sub {
	my $migrate = $ENV{GOLANG_MIGRATE} // (grep { -x } map { "$_/migrate" } split /:/, $ENV{PATH})[0];
	plan skip_all => 'there is no golang-migrate' if !$migrate;
	file('go/1_work.up.sql', 'CREATE TABLE go_work (what text)');
	my %url = map { $_->name => url($_) . '?sslmode=disable&x-migrations-table=go_migrations' } $berlin, $paris;
	# Its key is in the log, for it makes its table first, under the same lock.
	my $other = migrator($paris);
	program($migrate, '-path', "$directory/go", '-database', $url{paris}, 'version');
	my $log = slurp_file($paris->logfile);
	my ($key) = $log =~ /SELECT pg_advisory_lock\(\$1\)\n[^\n]*parameters: \$1 = '(-?\d+)'/ or die 'its key is not in the log';
	$other->query_safe("SELECT pg_advisory_lock($key)");
	my $run = start_program($migrate, '-path', "$directory/go",
		'-database', $url{berlin}, 'up');
	wait_for_queue($zk, lock_path("advisory/app/($key)"), 2);
	is($berlin->safe_psql('app', "SELECT to_regclass('shop.go_work') IS NULL"), 't', 'while another cluster migrates it waits');
	$other->quit;
	is($run->finish, 0, 'the migration ends without an error');
	is($berlin->safe_psql('app', "SELECT 'shop.go_work'::regclass, 'shop.go_migrations'::regclass"),
		'shop.go_work|shop.go_migrations', 'the tables are made in the schema of tables');
};

subtest "each statement of the page's tables does what its row says" => sub {
	my @statements = map { /`(SELECT [^`]*)`/g } grep { /^\|/ } split /\n/, $page;
	cmp_ok(scalar @statements, '>', 15, 'they have statements');
	foreach my $statement (@statements)
	{
		my $session = background($berlin, database => 'app', first => 'SET search_path = zklock');
		$session->query_safe("BEGIN; SELECT zk_lock('job')") if $statement =~ /unlock|fenc/;
		$session->query_safe("DO \$\$ BEGIN IF zk_forget_run('nightly', '2026-11-20') THEN END IF; END \$\$");
		my $token = '';
		$token = $session->query_safe("SELECT zk_try_lease('job', 'app-1', '30 s')") if $statement =~ /zk_(re\w+_lease|leader)/;
		isnt($session->query_safe($statement =~ s/\b\d{8,}\b/$token/r), 'f', $statement);
		my ($name) = $statement =~ /(?<!zk)_lock\w*\('(job|etl)'/;
		if ($name && $statement !~ /unlock|queue/)
		{
			my $rival = background($paris, database => 'app', first => 'SET search_path = zklock');
			is($rival->query_safe("SELECT zk_try_lock('$name')"), $statement =~ /xact/ ? 't' : 'f', 'another cluster')
			  if $statement !~ /permits/;
			$rival->quit;
		}
		if ($statement =~ /zk_(?:\w+_lease|leader)\w*\('(\w+)'/)
		{
			my $leased = $1;
			if ($statement =~ /zk_release_lease\('job', \d+\)/)
			{
				assert_becomes { $session->query("SELECT zk_try_lock('job', '100ms')") } 't', 'the lease is released';
				$session->quit;
				next;
			}
			is($session->query_safe("SELECT count(lease_expires_at) FROM zk_lock_queue('$leased')"), '1', 'there is a lease of the lock');
			is($session->query_safe("SELECT zk_evict('$leased', token) FROM zk_leader('$leased')"), 't', 'the lease can be evicted');
		}
		$session->quit;
	}
};

sub works_as_one ($what, @command)
{
	my $holder = background($paris, database => 'app');
	my $name = "program/$what";
	$holder->query_safe("SELECT zklock.zk_lock('$name')");
	my ($status, $out) = program(@command, $name, '3 s');
	is("$status $out", "0 another session has the lock\n", 'while another cluster has it');
	$holder->query_safe('SELECT zklock.zk_unlock_all()');
	($status, $out) = program(@command, $name, '100 s');
	is("$status $out", "0 done\n", 'the program works when the lock is free');
	assert_no_nodes($zk, lock_path($name), 'nothing left');
	$holder->quit;
	return;
}

$_->safe_psql('app', 'CREATE ROLE service LOGIN')
  foreach $berlin, $paris;

subtest 'the JDBC program of the page waits and gives up in time' => sub {
	my $driver = '/usr/share/java/postgresql.jar';
	plan skip_all => 'not installed: libpostgresql-jdbc-java' if !-e $driver || !-e '/usr/bin/java';
	works_as_one('java', ZooKeeper::java('-cp', $driver, "$docs/migrating/Lock.java",
			'jdbc:postgresql://127.0.0.1:' . $berlin->port . '/app?user=service'));
};

subtest 'the Go program of the page waits and gives up in time' => sub {
	plan skip_all => 'not installed: golang-go, golang-github-lib-pq-dev'
	  if !-e '/usr/bin/go' || !-d '/usr/share/gocode/src/github.com/lib/pq';
	local %ENV = (%ENV, Peer::go_environment());
	is(system('go', 'build', '-o', "$directory/lock", "$docs/migrating/lock.go"), 0, 'it compiles');
	works_as_one('go', "$directory/lock", 'postgres://service@127.0.0.1:' . $berlin->port . '/app?sslmode=disable');
};

done_testing();
