
# docs/migrating.md: each statement of its tables is run. The drop-in for PostgreSQL's
# advisory locks has all of them, and does over two clusters what they do on one: with the
# SQL that migrators send, and with Rails and Alembic as Debian has them. The programs in
# Java and Go compile, and give a timeout as a string, of which sql/lease tells more.

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
	cluster($_, $zk, extension => undef, 'listen_addresses' => '127.0.0.1', 'zklock.commit_guard' => 'quorum')
} qw(berlin paris);
my $path = "$docs/migrating/advisory.sql";
my $where = 'public, zklock_advisory, pg_catalog';

# As the front page installs it.
foreach my $node ($berlin, $paris)
{
	$node->safe_psql('postgres', 'CREATE DATABASE app; CREATE DATABASE other; CREATE ROLE migrator LOGIN');
	foreach my $database (qw(app other))
	{
		$node->safe_psql($database, 'CREATE SCHEMA zklock; GRANT USAGE ON SCHEMA zklock TO PUBLIC;
			CREATE EXTENSION zklock SCHEMA zklock; GRANT CREATE ON SCHEMA public TO migrator');
		command_ok([ 'psql', '-X', '-q', '-d', $node->connstr($database), '-f', $path ], "$database: the drop-in");
	}
	my ($setting) = $page =~ /^(ALTER ROLE .*;)$/m or die 'the page does not say how to set it';
	$node->safe_psql('postgres', $setting);
}

command_checks_all([ 'psql', '-X', '-q', '-d', $berlin->connstr('postgres'), '-f', $path ], 3, [qr/^$/],
	[qr/ERROR:  extension "zklock" is not in this database/], 'where zklock is not installed');
is($berlin->safe_psql('postgres', "SELECT to_regnamespace('zklock_advisory') IS NULL"), 't', 'nothing is left of it');

sub migrator ($node, %option) { return background($node, database => 'app', user => 'migrator', %option); }

subtest 'all 21 of them' => sub {
	my $list = sub {
		return $berlin->safe_psql('app', "SELECT string_agg(concat_ws(' ', proname, proargtypes::regtype[],
				prorettype::regtype, provolatile, proparallel), E'\\n' ORDER BY proname, proargtypes)
			FROM pg_proc WHERE pronamespace = '$_[0]'::regnamespace AND proname ~ '^pg_(try_)?advisory'");
	};
	my $ours = $list->('zklock_advisory');
	is($ours, $list->('pg_catalog'), 'names, arguments, results');
	is(scalar(split /\n/, $ours), 21, 'so many');
};

subtest 'keys over two clusters' => sub {
	my ($here, $there) = map { migrator($_) } $berlin, $paris;
	my $elsewhere = background($paris, database => 'other', user => 'migrator');
	# The fifth and those behind it are Flyway's, Ecto's, and one as Rails computes it.
	foreach my $key ('42', '-1', '9223372036854775807', '-9223372036854775808', '77431708279161', '129653361',
		'2988211364217205800', '1, 2', '2147483647, -2147483648')
	{
		$here->query_safe("SELECT pg_advisory_lock($key)");
		is($there->query_safe("SELECT pg_try_advisory_lock($key), pg_try_advisory_xact_lock($key),
				pg_try_advisory_lock_shared($key), pg_try_advisory_xact_lock_shared($key)"), 'f|f|f|f', "$key is taken");
		is($elsewhere->query_safe("SELECT pg_try_advisory_lock($key)"), 't', 'not in another database');
		is($here->query_safe("SELECT pg_advisory_unlock($key)"), 't', 'until it is released');
		is($there->query_safe("SELECT pg_advisory_lock($key), pg_advisory_unlock($key)"), '|t', 'for all');
	}
	$here->query_safe('SELECT pg_advisory_lock_shared(7)');
	is($there->query_safe('SELECT pg_try_advisory_lock_shared(7), pg_try_advisory_lock_shared(7),
			pg_advisory_unlock_shared(7)'), 't|t|t', 'readers share');
	is($there->query_safe('SELECT pg_try_advisory_lock(8), pg_try_advisory_lock(0, 7)'), 't|t', 'other keys are free');
	$there->query_safe('SELECT pg_advisory_unlock_all()');
	$here->query_safe('SELECT pg_advisory_unlock_all()');
	is($there->query_safe('SELECT count(*) FROM zklock.zk_locks'), 0, 'all are released');
	is($here->query_safe('SELECT pg_try_advisory_xact_lock(9)'), 't', 'a try of a transaction');
	$here->query_safe('BEGIN; SELECT pg_advisory_xact_lock(9)');
	is($there->query_safe('SELECT pg_try_advisory_lock(9)'), 'f', 'of a transaction');
	$here->query_safe('COMMIT');
	$there->query_safe('SELECT pg_advisory_lock(9)');
	is($there->query_safe('SELECT zklock.zk_fencing_token(\'advisory/app/(9)\') > 0'), 't', 'by that name');
	assert_query($here, 'SELECT pg_advisory_lock(NULL)', '22004', 'NULL is refused');
	is($here->query_safe('SELECT current_schema'), 'public', 'tables go where they went');
};

# From the sources of its driver for postgres: the key is a string.
subtest 'what golang-migrate sends' => sub {
	my ($here, $there) = map { migrator($_) } $berlin, $paris;
	$_->query_safe('PREPARE t AS SELECT pg_advisory_lock($1); PREPARE u AS SELECT pg_advisory_unlock($1)')
		foreach $here, $there;
	$here->query_safe("EXECUTE t('1486264103')");
	start_in_queue($there, "EXECUTE t('1486264103')", $zk, lock_path('advisory/app/(1486264103)'), 2);
	ok(!$there->is_done, 'the other cluster waits');
	is($here->query_safe("EXECUTE u('1486264103')"), 't', 'it is released');
	assert_ends($there, '00000', 'and the other one has it');
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

subtest 'Rails' => sub {
	plan skip_all => 'not installed: ruby-activerecord, ruby-pg'
	  if !-e '/usr/bin/ruby' || system("ruby -e 'require \"active_record\"; require \"pg\"' 2>/dev/null") != 0;
	my $script = "$docs/../test/interop/migrate.rb";
	my (undef, $key) = program('ruby', $script, url($berlin), 'key');
	like($key, qr/^\d+$/, 'its key');
	chomp $key;
	my $other = held_elsewhere($key);
	my ($status, $out) = program('ruby', $script, url($berlin));
	isnt($status, 0, 'while another cluster migrates');
	like($out, qr/ConcurrentMigrationError/, 'it refuses to');
	$other->quit;
	wait_for_queue($zk, lock_path("advisory/app/($key)"), 0);
	foreach my $node ($berlin, $paris)
	{
		($status, $out) = program('ruby', $script, url($node));
		is("$status $out", "0 migrated\n", 'then it migrates ' . $node->name);
		is($node->safe_psql('app', "SELECT 'public.migrated'::regclass"), 'migrated', 'in the schema of tables');
	}
};

subtest 'Alembic' => sub {
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
	is($berlin->safe_psql('app', "SELECT to_regclass('public.alembic_work') IS NULL"), 't',
		'while another cluster migrates it waits');
	$other->quit;
	is($run->finish, 0, 'then it goes on');
	is($berlin->safe_psql('app', "SELECT 'public.alembic_work'::regclass"), 'alembic_work', 'and has migrated');
};

# No Debian has it: the one that GOLANG_MIGRATE names, or that is in PATH.
subtest 'golang-migrate' => sub {
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
	is($berlin->safe_psql('app', "SELECT to_regclass('public.go_work') IS NULL"), 't', 'while another cluster migrates it waits');
	$other->quit;
	is($run->finish, 0, 'then it goes on');
	is($berlin->safe_psql('app', "SELECT 'public.go_work'::regclass, 'public.go_migrations'::regclass"),
		'go_work|go_migrations', 'and has migrated, in the schema of tables');
};

subtest 'the tables' => sub {
	my @statements = map { /`(SELECT [^`]*)`/g } grep { /^\|/ } split /\n/, $page;
	cmp_ok(scalar @statements, '>', 15, 'they have statements');
	foreach my $statement (@statements)
	{
		my $session = background($berlin, database => 'app', first => 'SET search_path = "$user", public, zklock');
		$session->query_safe("BEGIN; SELECT zk_lock('job')") if $statement =~ /unlock|fenc/;
		$session->query_safe("DO \$\$ BEGIN IF zk_forget_run('nightly', '2026-11-20') THEN END IF; END \$\$");
		my $token = '';
		$token = $session->query_safe("SELECT zk_lease('job', 'app-1', '30 s')") if $statement =~ /zk_(lease_re|xact_lease|leader)/;
		isnt($session->query_safe($statement =~ s/\b\d{8,}\b/$token/r), 'f', $statement);
		my ($name) = $statement =~ /(?<!zk)_lock\w*\('(job|etl)'/;
		if ($name && $statement !~ /unlock|queue/)
		{
			my $rival = background($paris, database => 'app', first => 'SET search_path = "$user", public, zklock');
			is($rival->query_safe("SELECT zk_try_lock('$name')"), $statement =~ /xact/ ? 't' : 'f', 'another cluster')
			  if $statement !~ /permits/;
			$rival->quit;
		}
		if ($statement =~ /zk_(lease|xact_lease|leader)/)
		{
			# where no answer has come in time it raises
			assert_becomes { $session->query("SELECT zk_try_lock('job', '100ms')") } 'f', 'a lease';
			is($session->query_safe("SELECT zk_evict('job', token) FROM zk_leader('job')"), 't', 'that ends');
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
	is("$status $out", "0 another one has it\n", 'while another cluster has it');
	$holder->query_safe('SELECT zklock.zk_unlock_all()');
	($status, $out) = program(@command, $name, '100 s');
	is("$status $out", "0 done\n", 'then it works');
	assert_no_nodes($zk, lock_path($name), 'nothing left');
	$holder->quit;
	return;
}

$_->safe_psql('app', 'ALTER DATABASE app SET search_path = "$user", public, zklock; CREATE ROLE service LOGIN')
  foreach $berlin, $paris;

subtest 'JDBC' => sub {
	my $driver = '/usr/share/java/postgresql.jar';
	plan skip_all => 'not installed: libpostgresql-jdbc-java' if !-e $driver || !-e '/usr/bin/java';
	works_as_one('java', 'java', '-cp', $driver, "$docs/migrating/Lock.java",
		'jdbc:postgresql://127.0.0.1:' . $berlin->port . '/app?user=service');
};

subtest 'Go' => sub {
	plan skip_all => 'not installed: golang-github-lib-pq-dev'
	  if !-e '/usr/bin/go' || !-d '/usr/share/gocode/src/github.com/lib/pq';
	local %ENV = (%ENV, Peer::go_environment());
	is(system('go', 'build', '-o', "$directory/lock", "$docs/migrating/lock.go"), 0, 'it compiles');
	works_as_one('go', "$directory/lock", 'postgres://service@127.0.0.1:' . $berlin->port . '/app?sslmode=disable');
};

done_testing();
