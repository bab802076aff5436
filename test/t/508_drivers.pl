
# Each function can be called by position, whether a driver tells the types of parameters or leaves
# them open. A list of names that a driver sends is never taken for the name of one lock: zk_lock()
# refuses it, and zk_lock_set() takes several locks. Tested with six real drivers of four languages,
# as docs/reference/limits.md lists them.

use DriverCalls;
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
my $programs = dirname(__FILE__) . '/../others';

my @lists = map { driver_call("SELECT $_(?)", 'l:acct-1,acct-2') } qw(zk_try_lock zk_try_lock_set);
my $taken = 'done: acct-1 acct-2';
my $refused = '42602: none';
my $unknown = '42883: none';
my $dsn = "host=127.0.0.1 port=$port dbname=postgres user=$user";
my $packages = '/usr/lib/python3/dist-packages';
my $has_psycopg = 'import importlib.util, sys; sys.exit(importlib.util.find_spec("psycopg") is None)';

sub lists (@command) { return join ' | ', driver_outcomes(\@lists, @command); }

sub assert_positional ($interval, @command)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @calls = positional_calls($berlin, $interval);
	cmp_ok(scalar @calls, '>', 60, 'there are calls');
	ok((grep { /zk_lock\(\?, \Q$interval\E, \?\)/ } @calls), 'a lock with three parameters is among them');
	return is(join("\n", misunderstood(\@calls, @command)), '', 'all functions are called by position');
}

subtest 'psycopg2 sends a list as an array' => sub {
	plan skip_all => 'not installed: python3-psycopg2' if !-d "$packages/psycopg2";
	my @command = ('/usr/bin/python3', "$programs/calls.py", 'psycopg2', $dsn);
	is(lists(@command), "$unknown | $taken", 'only zk_try_lock_set() takes the list');
	assert_positional('?', @command);
};

subtest 'psycopg 3 sends a list of names as a text' => sub {
	plan skip_all => 'not installed: python3-psycopg' if system('/usr/bin/python3', '-c', $has_psycopg) != 0;
	my @command = ('/usr/bin/python3', "$programs/calls.py", 'psycopg', $dsn);
	is(lists(@command), "$refused | $taken", 'only zk_try_lock_set() takes the list');
	assert_positional('?', @command);
};

subtest 'pg of Ruby sends a list of names as a text' => sub {
	plan skip_all => 'not installed: ruby-pg'
	  if !-e '/usr/bin/ruby' || system('ruby', '-e', 'begin; require "pg"; rescue LoadError; exit 1; end') != 0;
	my @command = ('ruby', "$programs/calls.rb", $dsn);
	is(lists(@command), "$refused | $taken", 'only zk_try_lock_set() takes the list');
	assert_positional('?', @command);
	# Without an encoder it writes what Ruby prints, which is no array.
	my @plain = map { s/l:/plain:/r } @lists;
	is(join(' | ', driver_outcomes(\@plain, @command)), '42602: none | 22P02: none', 'a list that is not encoded is refused by both functions');
};

subtest 'JDBC sends a list as an array, and needs a cast for an interval' => sub {
	my $driver = '/usr/share/java/postgresql.jar';
	plan skip_all => 'not installed: libpostgresql-jdbc-java' if !-e $driver || !-e '/usr/bin/java';
	my @command = ZooKeeper::java('-cp', $driver, "$programs/Calls.java", "jdbc:postgresql://127.0.0.1:$port/postgres?user=$user");
	is(lists(@command), "$unknown | $taken", 'only zk_try_lock_set() takes the list');
	assert_positional('?::interval', @command);
};

subtest 'lib/pq sends a list of names as a text' => sub {
	plan skip_all => 'not installed: golang-go, golang-github-lib-pq-dev'
	  if !-e '/usr/bin/go' || !-d '/usr/share/gocode/src/github.com/lib/pq';
	local %ENV = (%ENV, Peer::go_environment());
	is(system('go', 'build', '-o', "$directory/calls", "$programs/calls.go"), 0, 'it compiles');
	my @command = ("$directory/calls", "postgres://$user\@127.0.0.1:$port/postgres?sslmode=disable");
	is(lists(@command), "$refused | $taken", 'only zk_try_lock_set() takes the list');
	assert_positional('?', @command);
};

subtest 'docs/reference/limits.md lists the drivers' => sub {
	my $page = slurp_file(dirname(__FILE__) . '/../../docs/reference/limits.md');
	like($page, qr/^\| \Q$_\E[^|]*\| /m, $_) foreach 'psycopg 3', 'psycopg2', 'node-postgres', 'postgres.js', 'lib/pq', 'JDBC', 'pg (Ruby)', 'Rails';
	is(ask($berlin, "SELECT zk_try_lock('acct-1,acct-2') AND zk_unlock('acct-1,acct-2')"), 't',
		'a list with commas alone is an ordinary name');
};

done_testing();
