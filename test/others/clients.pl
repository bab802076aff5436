
# Programs of the npm registry that take PostgreSQL's advisory locks, with the drop-in of
# docs/migrating/advisory.sql on two clusters: one migrates while the other waits, or says why
# not; and with a search_path without the drop-in nothing is migrated. "make check
# SUITE=others" installs the programs.

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use PostgreSQL::Test::Utils;
use Programs;
use ZkLockTest;

my $here = abs_path(dirname(__FILE__));
my $zk = ZooKeeper->new->start;
my ($berlin, $paris) = map {
	cluster($_, $zk, extension => undef, listen_addresses => '127.0.0.1', log_statement => 'all')
} qw(berlin paris);
foreach my $node ($berlin, $paris)
{
	$node->safe_psql('postgres', 'CREATE DATABASE app; CREATE ROLE migrator LOGIN');
	$node->safe_psql('app', 'CREATE SCHEMA zklock; CREATE EXTENSION zklock SCHEMA zklock;
		GRANT CREATE ON SCHEMA public TO migrator; GRANT CREATE ON DATABASE app TO migrator');
	command_ok([ 'psql', '-X', '-q', '-d', $node->connstr('app'), '-f', "$here/../../docs/migrating/advisory.sql" ],
		$node->name . ': the drop-in');
	$node->safe_psql('postgres', 'ALTER ROLE migrator IN DATABASE app SET search_path = public, zklock_advisory, pg_catalog');
}

# The key that each takes, what it makes, what it does while somebody else has the lock, and
# whether it makes that on the connection that has the lock: only then a commit can be refused.
my $waits = sub ($run, $key) {
	wait_for_queue($zk, lock_path("advisory/app/($key)"), 2);
	return 'waits';
};
my $refuses = sub ($words) {
	return sub ($run, $key) {
		is($run->finish, 1, 'the program gives up while the other cluster has the lock');
		like($run->output, $words, 'the program says why');
		return 'refused';
	};
};
my %program = (
	'advisory-lock' => [ q('-683745024,1991398831'), 'public.advisory_lock_work', $waits, 'another' ],
	'emmett' => [ 999956789, 'public.emt_streams', $waits, 'the same' ],
	'graphile-migrate' => [ '4727445306447283', 'public.graphile_work', $refuses->(qr/Failed to get exclusive lock/), 'the same' ],
	'knex' => [ 4711, 'public.knex_work', $waits, 'the same' ],
	'kysely' => [ '3853314791062309107', 'public.kysely_work', $waits, 'the same' ],
	'node-pg-migrate' => [ '7241865325823964', 'public.node_pg_migrate_work',
		$refuses->(qr/Another migration is already running/), 'the same' ],
	'pg-boss' => [ "('x' || md5('app.pgboss.pgboss'))::bit(64)::bigint", 'pgboss.job', $waits, 'the same' ],
	# asks each second
	'postgres-migrations' => [ '-8525285245963000605', 'public.postgres_migrations_work', sub ($run, $key) {
			poll_until { slurp_file($berlin->logfile) =~ /pg_try_advisory_lock\Q($key)/ } 'it to ask for the lock', 60;
			return 'waits';
		}, 'the same' ],
	'prisma' => [ 72707369, 'public.prisma_work', $waits, 'the same' ],
	'slonik' => [ '3851601914', 'public.slonik_work', $waits, 'another' ]);

sub url ($node) { return 'postgresql://migrator@127.0.0.1:' . $node->port . '/app'; }

my $directory = PostgreSQL::Test::Utils::tempdir_short();

sub start ($name, $node, @path)
{
	return start_program('node', "$here/migrate.js", $name, url($node), "$directory/$name", @path);
}

# The process of the cluster that was the last to run a statement like that.
sub last_pid_of ($node, $pattern)
{
	my @entries = grep { $_ =~ $pattern } split /\n(?!\t)/, slurp_file($node->logfile);
	return $entries[-1] =~ /\[(\d+)\]/ ? $1 : undef;
}

# Prisma wants a schema without tables for its first migration; postgres-migrations takes the
# table "migrations" of graphile-migrate for its own, in whatever schema it is.
foreach my $name ('prisma', (grep { !/^(?:prisma|graphile-migrate)$/ } sort keys %program), 'graphile-migrate')
{
	subtest "$name migrates with the drop-in, and only while no other cluster has its lock" => sub {
		my ($key, $table, $is_held, $connection) = @{ $program{$name} };
		my $is_made = "SELECT to_regclass('$table') IS NOT NULL";
		mkdir "$directory/$name";
		append_to_file("$directory/$name/1_work.sql", 'CREATE TABLE ' . $table =~ s/public\.//r . ' (what text)');
		$key = $berlin->safe_psql('app', "SELECT $key");

		my $run = start($name, $berlin, 'public');
		is($run->finish, 1, 'the program fails with a search_path without the drop-in');
		like($run->output, qr/permission denied for function pg_(try_)?advisory/, 'the advisory lock of PostgreSQL is refused');
		is($berlin->safe_psql('app', $is_made), 'f', 'nothing is migrated without the lock');

		my $other = background($paris, database => 'app', user => 'migrator', first => "SELECT pg_advisory_lock($key)");
		$run = start($name, $berlin);
		my $answer = $is_held->($run, $key);
		is($berlin->safe_psql('app', $is_made), 'f', 'nothing is migrated while the other cluster has the lock');
		$other->quit;
		wait_for_queue($zk, lock_path("advisory/app/($key)"), 0) if $answer eq 'refused';
		$run = start($name, $berlin) if $answer eq 'refused';
		is($run->finish, 0, 'the program ends well when the lock is free');
		is($berlin->safe_psql('app', $is_made), 't', 'the database is migrated then');
		my ($made) = $table =~ /(\w+)$/;
		my $is_same = last_pid_of($berlin, qr/CREATE TABLE .*\b$made\b/i) == last_pid_of($berlin, qr/pg_(?:try_)?advisory_(?:xact_)?lock\s*\(/);
		is($is_same ? 'the same' : 'another', $connection, 'the migration runs on the connection that has the lock, or on another one');

		is(start($name, $paris)->finish, 0, 'the program ends well in the other cluster');
		is($paris->safe_psql('app', $is_made), 't', 'the database of the other cluster is migrated, too');
		is(start($name, $berlin, 'public,zklock_advisory,pg_catalog')->finish, 0, 'a second run, with the drop-in in the path that the program gives, ends well');
		assert_no_nodes($zk, lock_path("advisory/app/($key)"));
	};
}

done_testing();
