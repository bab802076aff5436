
# A list of names that a driver sends is never taken for the name of one lock: zk_lock() refuses it,
# and zk_lock_set() takes several locks. Tested with six real drivers of four languages, as
# docs/recipes.md lists them.

use File::Basename qw(dirname);
use Peer;
use PostgreSQL::Test::Utils;
use Programs;
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $berlin = cluster('berlin', $zk, listen_addresses => '127.0.0.1');
my $port = $berlin->port;
my $user = getpwuid $<;
my $directory = PostgreSQL::Test::Utils::tempdir();
my $programs = dirname(__FILE__) . '/../interop';

# What the program says: of the list to zk_try_lock(), then to zk_try_lock_set(), the outcome and the locks held.
sub outcome (@command)
{
	my $status = run_program(@command);
	return join ' | ', $status, map { s/^(None|null)$//r } split /\n/, last_output();
}

my $taken = 'locked | acct-1 acct-2';
my $refused = '42602 | ';
my $unknown = '42883 | ';
my $dsn = "host=127.0.0.1 port=$port dbname=postgres user=$user";
my $packages = '/usr/lib/python3/dist-packages';
my $has_psycopg = 'import importlib.util, sys; sys.exit(importlib.util.find_spec("psycopg") is None)';

subtest 'psycopg2 sends a list as an array' => sub {
	plan skip_all => 'not installed: python3-psycopg2' if !-d "$packages/psycopg2";
	is(outcome('/usr/bin/python3', "$programs/lists.py", 'psycopg2', $dsn),
		"0 | $unknown | $taken", 'only zk_try_lock_set() takes the list');
};

subtest 'psycopg 3 sends a list of names as a text' => sub {
	plan skip_all => 'not installed: python3-psycopg' if system('/usr/bin/python3', '-c', $has_psycopg) != 0;
	is(outcome('/usr/bin/python3', "$programs/lists.py", 'psycopg', $dsn),
		"0 | $refused | $taken", 'only zk_try_lock_set() takes the list');
};

subtest 'pg of Ruby sends a list of names as a text' => sub {
	plan skip_all => 'not installed: ruby-pg'
	  if !-e '/usr/bin/ruby' || system('ruby', '-e', 'begin; require "pg"; rescue LoadError; exit 1; end') != 0;
	is(outcome('ruby', "$programs/lists.rb", $dsn), "0 | $refused | $taken", 'only zk_try_lock_set() takes the list');
};

# Without an encoder it writes what Ruby prints, which is no array.
subtest 'pg of Ruby without an encoder is refused by both functions' => sub {
	plan skip_all => 'not installed: ruby-pg'
	  if !-e '/usr/bin/ruby' || system('ruby', '-e', 'begin; require "pg"; rescue LoadError; exit 1; end') != 0;
	is(outcome('ruby', "$programs/lists.rb", $dsn, 'plain'), '0 | 42602 |  | 22P02', 'the list is refused');
};

subtest 'JDBC sends a list as an array' => sub {
	my $driver = '/usr/share/java/postgresql.jar';
	plan skip_all => 'not installed: libpostgresql-jdbc-java' if !-e $driver || !-e '/usr/bin/java';
	is(outcome('java', '-cp', $driver, "$programs/Lists.java", "jdbc:postgresql://127.0.0.1:$port/postgres?user=$user"),
		"0 | $unknown | $taken", 'only zk_try_lock_set() takes the list');
};

subtest 'lib/pq sends a list of names as a text' => sub {
	plan skip_all => 'not installed: golang-go, golang-github-lib-pq-dev'
	  if !-e '/usr/bin/go' || !-d '/usr/share/gocode/src/github.com/lib/pq';
	local %ENV = (%ENV, Peer::go_environment());
	is(system('go', 'build', '-o', "$directory/lists", "$programs/lists.go"), 0, 'it compiles');
	is(outcome("$directory/lists", "postgres://$user\@127.0.0.1:$port/postgres?sslmode=disable"),
		"0 | $refused | $taken", 'only zk_try_lock_set() takes the list');
};

subtest 'docs/recipes.md lists the drivers' => sub {
	my $page = slurp_file(dirname(__FILE__) . '/../../docs/recipes.md');
	like($page, qr/^\| \Q$_\E[^|]*\| /m, $_) foreach 'psycopg 3', 'psycopg2', 'node-postgres', 'postgres.js', 'lib/pq', 'JDBC', 'pg (Ruby)', 'Rails';
	is(ask($berlin, "SELECT zk_try_lock('acct-1,acct-2') AND zk_unlock('acct-1,acct-2')"), 't',
		'a list with commas alone is an ordinary name');
};

done_testing();
