
# ALTER EXTENSION UPDATE leads from every released version to the newest, with the same result as
# CREATE EXTENSION; released scripts have not been changed; the commands of docs/releases.md lead
# back; and pg_upgrade takes all to a new cluster. Tested by comparing catalogs, also with a
# version that is made up here.

use Builds;
use Cwd qw(abs_path);
use Digest::SHA qw(sha256_hex);
use File::Basename qw(dirname);
use Pages;
use ZkLockTest;

my $tree = abs_path(dirname(__FILE__) . '/../..');
my $zk = ZooKeeper->new->start;
my ($newest) = slurp_file("$tree/zklock.control") =~ /^default_version = '(.*)'/m;
my %released = slurp_file("$tree/test/released") =~ /^(\d\S*) +([0-9a-f]{64})$/mg;
my $ndatabases = 0;

# All that an extension consists of, a line for each fact.
my $catalog = slurp_file("$tree/test/lib/extension_facts.sql");

# What the statements make of a database that is new.
sub catalog_after ($node, @statements)
{
	my $database = 'upgrade' . ++$ndatabases;
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->safe_psql($database, join ';', @statements);
	return { map { $_ => 1 } split /\n/, $node->safe_psql($database, $catalog) };
}

# The facts that one has and the other has not, or a word that there are none.
sub difference ($fresh, $upgraded)
{
	return join "\n", (map { "missing: $_" } grep { !$upgraded->{$_} } sort keys %$fresh),
	  (map { "too much: $_" } grep { !$fresh->{$_} } sort keys %$upgraded);
}

my $node = cluster('berlin', $zk);

subtest 'released scripts have not been changed' => sub {
	foreach my $version (sort keys %released)
	{
		my $script = "$tree/sql/zklock--$version.sql";
		is(sha256_hex(-e $script ? slurp_file($script) : ''), $released{$version},
			"zklock--$version.sql: changes go to an upgrade script");
	}
	pass('as far as there is something');
};

my $fresh = catalog_after($node, 'CREATE EXTENSION zklock');
cmp_ok(scalar keys %$fresh, '>', 300, 'the facts of a fresh installation');

# The newest is one of them as soon as it is released.
foreach my $version (sort keys %released)
{
	subtest "an upgrade from $version to $newest makes what CREATE EXTENSION makes" => sub {
		my @from = ("CREATE EXTENSION zklock VERSION '$version'");
		is(difference($fresh, catalog_after($node, @from, 'ALTER EXTENSION zklock UPDATE')),
			'', 'the upgrade makes the same objects as CREATE EXTENSION');
		# The library knows the functions of all scripts.
		like($node->safe_psql("upgrade$ndatabases", "SELECT zk_lock('upgrade')"), qr/^\d+$/, 'a lock works after the upgrade');
		catalog_after($node, @from);
		like($node->safe_psql("upgrade$ndatabases", "SELECT zk_lock('upgrade')"), qr/^\d+$/,
			'a lock works with the old script and the new library');
	};
}

# The commands of docs/releases.md, for a database from which there is no other way back.
subtest 'after an update the extension is created anew, with the rows that a dump has' => sub {
	my %command = map { $_->{value} => $_->{code} } grep { $_->{kind} eq 'downgrade' }
	  Pages::blocks(Pages::page('docs/releases.md', slurp_file("$tree/docs/releases.md")));
	is_deeply([ sort keys %command ], [qw(after before)], 'the page has the commands');
	$node->safe_psql('postgres', 'CREATE DATABASE app');
	$node->safe_psql('app', q{
		CREATE SCHEMA zklock;
		CREATE EXTENSION zklock SCHEMA zklock;
		SET search_path = zklock;
		SELECT zk_fence('resource', 4711)});
	local @ENV{qw(PGHOST PGPORT)} = ($node->host, $node->port);
	my $directory = PostgreSQL::Test::Utils::tempdir();
	my $rows = 'SELECT token FROM zklock.zk_fences';
	my $before = $node->safe_psql('app', $rows);
	is($before, '4711', 'the table has rows');
	foreach my $when (qw(before after))
	{
		is(system('sh', '-e', '-c', "cd '$directory'; exec >&2; $command{$when}"), 0, "the commands: $when");
	}
	is($node->safe_psql('app', $rows), $before, 'the rows are there again');
};

# pg_upgrade creates each object anew, with the bodies of functions as PostgreSQL prints them.
subtest 'pg_upgrade takes the extension and its rows to another cluster' => sub {
	my $old = PostgreSQL::Test::Cluster->new('rome');
	my $new = PostgreSQL::Test::Cluster->new('oslo');
	foreach my $cluster ($old, $new)
	{
		$cluster->init;
		$cluster->append_conf('postgresql.conf', "shared_preload_libraries = 'zklock'\n");
	}
	$old->start;
	$old->safe_psql('postgres', q{CREATE SCHEMA "o's"; CREATE EXTENSION zklock SCHEMA "o's"});
	$old->safe_psql('postgres', q{
		SET search_path = "o's";
		SELECT zk_fence('resource', 4711);
		CREATE VIEW public.mine AS SELECT zk_escape(name) FROM zk_session_locks});
	# The same body is printed with other names of columns that nobody reads.
	my $facts = sub ($node) {
		return { map { s/BEGIN ATOMIC.*//r => 1 } split /\n/, $node->safe_psql('postgres', $catalog) };
	};
	my $before = $facts->($old);
	$old->stop;
	my $directory = PostgreSQL::Test::Utils::tempdir();
	my @command = ('pg_upgrade', '--no-sync', '-d', $old->data_dir, '-D', $new->data_dir,
		'-b', $old->config_data('--bindir'), '-B', $new->config_data('--bindir'),
		'-s', $new->host, '-p', $old->port, '-P', $new->port);
	# It leaves a script where it is run.
	my $is_upgraded = system('sh', '-c', 'cd "$0" && exec "$@" >upgrade.log', $directory, @command) == 0;
	ok($is_upgraded, 'pg_upgrade') or diag(slurp_file("$directory/upgrade.log"));
	return if !$is_upgraded;
	$new->start;
	is(difference($before, $facts->($new)), '', 'the upgraded cluster has the same objects');
	is($new->safe_psql('postgres', q{SET search_path = "o's";
		SELECT (SELECT token FROM zk_fences), (SELECT count(*) FROM public.mine)}),
		'4711|0', 'rows and views are there');
	is($new->safe_psql('postgres', q{SELECT state FROM "o's".zk_check(false) WHERE item = 'extension'}), 'ok',
		'zk_check() works in the upgraded cluster');
	$new->safe_psql('postgres', 'DROP EXTENSION zklock CASCADE');
	$new->stop;
};

subtest 'a step that an upgrade script forgets is found' => sub {
	plan skip_all => 'this PostgreSQL bears one installation only' if !Builds->can_be;
	my $build = Builds->copy;
	my $next = '9.9';
	# What a release may bring, each with the step that leads there.
	my %step = (
		'a function' => q{
			CREATE FUNCTION zk_new(n integer DEFAULT 1) RETURNS integer
			LANGUAGE sql IMMUTABLE RETURN n;},
		'its comment' => q{COMMENT ON FUNCTION zk_new(integer) IS 'New.';},
		'its privileges' => q{REVOKE EXECUTE ON FUNCTION zk_new(integer) FROM PUBLIC;
			GRANT EXECUTE ON FUNCTION zk_new(integer) TO zklock_job;},
		'a default' => q{
			CREATE OR REPLACE FUNCTION zk_lock_shared(name text, timeout interval DEFAULT '1 day')
			RETURNS bigint AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;},
		'another comment' => q{COMMENT ON FUNCTION zk_unlock_all() IS 'Otherwise.';},
		'a column' => q{ALTER TABLE zk_fences ADD COLUMN note text DEFAULT 'none';},
		'a column\'s comment' => q{COMMENT ON COLUMN zk_fences.name IS 'Whose.';},
		'a column\'s privilege' => q{GRANT UPDATE (name) ON zk_fences TO zklock_job;},
		'a view' => q{CREATE VIEW zk_new_view AS SELECT 1 AS one;},
		'a view\'s option' => q{ALTER VIEW zk_session_locks SET (security_invoker = true);},
		'a table\'s privilege' => q{GRANT INSERT ON zk_fences TO zklock_job;},
		'an index' => q{CREATE INDEX zk_new_index ON zk_fences (token);},
		'a constraint' => q{ALTER TABLE zk_fences ADD CONSTRAINT zk_new_check CHECK (token <> 4711);},
		'a condition of dumps' => q{
			SELECT pg_catalog.pg_extension_config_dump('zk_fences', 'WHERE token > 1');});
	my %before =
	  ('its comment' => ['a function'], 'its privileges' => ['a function']);
	my @order = sort { !!$before{$a} <=> !!$before{$b} || $a cmp $b } keys %step;
	# Steps stand ahead of the move to the schema of the extension; an upgrade moves all in first.
	my ($whole, $move) = slurp_file("$tree/sql/zklock--$newest.sql") =~ /^(.*)(^-- All is moved .*)\z/ms;
	my $opening = 'CREATE SCHEMA zklock_script;' . $move =~ s/(?== quote_ident)=/<>/r
	  =~ s/member\.target/'zklock_script'/r =~ s/^DROP SCHEMA.*//mr . 'SET LOCAL search_path = zklock_script, pg_temp;';
	$build->edit("zklock--$next.sql", sub { $_ = join "\n", $whole, @step{@order}, $move });
	my $other = cluster('paris', $zk, $build->settings);
	my $upgrade_by = sub {
		my @left = @_;
		my $script = join "\n", $opening, @step{@left}, $move;
		unlink $build->script_directory . "/zklock--$newest--$next.sql";
		$build->edit("zklock--$newest--$next.sql", sub { $_ = $script; });
		return catalog_after($other, "CREATE EXTENSION zklock VERSION '$newest'",
			"ALTER EXTENSION zklock UPDATE TO '$next'");
	};
	my $wanted = catalog_after($other, "CREATE EXTENSION zklock VERSION '$next'");
	is(difference($wanted, $upgrade_by->(@order)), '', 'with all steps the upgrade makes the same objects');
	foreach my $forgotten (@order)
	{
		my @left = grep {
			my $step = $_;
			$step ne $forgotten && !grep { $_ eq $forgotten } @{ $before{$step} || [] }
		} @order;
		like(difference($wanted, $upgrade_by->(@left)), qr/^missing: /, "forgotten and found: $forgotten");
	}
	$step{more} = 'CREATE FUNCTION zk_more() RETURNS integer LANGUAGE sql RETURN 1;';
	like(difference($wanted, $upgrade_by->(@order, 'more')),
		qr/^too much: .*zk_more/m, 'what a fresh installation has not is found, too');
};

done_testing();
