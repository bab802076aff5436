
# Drivers of Node.js, Python and Go send timeouts and lists of names as docs/using.md and
# docs/recipes.md say, and each function can be called by position. Tested with node-postgres and
# postgres.js of npm's registry, psycopg2, psycopg 3, asyncpg and pgx. "make check SUITE=others"
# installs them.

use Cwd qw(abs_path);
use DriverCalls;
use File::Basename qw(dirname);
use Peer;
use PostgreSQL::Test::Utils;
use Programs;
use ZkLockTest;

my $here = abs_path(dirname(__FILE__));
my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk, listen_addresses => '127.0.0.1');
my $user = getpwuid $<;
my $url = "postgresql://$user\@127.0.0.1:" . $node->port . '/postgres';
my $holder = background($node, holds => 'held');
my $told = sub ($name) { return slurp_file("$here/../../docs/$name"); };

# What the program says of each call.
sub said (@command)
{
	is(run_program(@command), 0, 'the program ends well');
	my %said = map { /^([^:]+): (.*)$/ ? ($1 => $2) : () } split /\n/, last_output();
	return \%said;
}

sub assert_positional (@command)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @calls = positional_calls($node);
	cmp_ok(scalar @calls, '>', 60, 'there are calls');
	return is(join("\n", misunderstood(\@calls, @command)), '', 'all functions are called by position');
}

subtest 'node-postgres sends timeouts without a type, and a list as a text' => sub {
	my $said = said('node', "$here/drivers.js", 'node-postgres', $url);
	is($said->{$_}, 'false, none', "a $_ as the timeout is taken for one") foreach qw(string number cast);
	is($said->{free}, 'true, free', 'a lock that is free is taken');
	is($said->{list}, '42602, none', 'zk_try_lock() refuses a list');
	is($said->{'list of a set'}, 'true, acct-1 acct-2', 'zk_try_lock_set() takes several locks');
	like($told->('using.md'), qr/^\| node-postgres \| no type \| `zk_lock\(\$1, \$2\)` \| a number of seconds \|$/m, 'as the page on timeouts says');
	like($told->('recipes.md'), qr/^\| node-postgres \| text, `\{acct-1,acct-2\}` \| several locks \| 42602 \|$/m, 'as the page on lists says');
	assert_positional('node', "$here/drivers.js", 'node-postgres', $url);
};

subtest 'query_timeout of node-postgres leaves a call that gets the lock later' => sub {
	my $run = start_program('node', "$here/drivers.js", 'timeout', $url);
	like($run->wait_output(qr/(query_timeout: .*)\ngiven up/), qr/timeout/, 'the call is given up');
	wait_for_queue($zk, lock_path('held'), 2);
	$holder->query_safe("SELECT zk_unlock('held')");
	assert_soon { first_in_queue($zk, lock_path('held')) && $node->safe_psql('postgres', "SELECT count(*) FROM zk_locks WHERE name = 'held'") == 1 } 'the connection in the pool gets the lock', 30;
	$run->type("\n");
	is($run->finish, 0, 'the program ends well');
	like($run->output, qr/^then: held$/m, 'the next user of the connection has the lock');
	$holder->query_safe("SELECT zk_lock('held')");
};

subtest 'postgres.js sends a list to zk_try_lock() as the name of one lock' => sub {
	my $said = said('node', "$here/drivers.js", 'postgres.js', $url);
	is($said->{$_}, 'false, none', "a $_ as the timeout is taken for one") foreach qw(string number);
	is($said->{list}, 'true, acct-1,acct-2', 'a list is one lock');
	is($said->{'list of a set'}, 'true, acct-1 acct-2', 'zk_try_lock_set() takes several locks');
	like($told->('recipes.md'), qr/^\| postgres\.js \| what the server wants; text, `acct-1,acct-2` \| several locks \| \*\*one lock/m, 'as the page on lists says');
	assert_positional('node', "$here/drivers.js", 'postgres.js', $url);
};

foreach my $driver (qw(psycopg2 psycopg))
{
	subtest "$driver sends timeouts as strings and timedeltas" => sub {
		my $has = "import importlib.util, sys; sys.exit(importlib.util.find_spec('$driver') is None)";
		plan skip_all => "not installed: python3-$driver" if system('/usr/bin/python3', '-c', $has) != 0;
		my $said = said('/usr/bin/python3', "$here/timeouts.py", $driver, "host=127.0.0.1 port=@{[ $node->port ]} dbname=postgres user=$user");
		is_deeply($said, { string => 'False', timedelta => 'False', free => 'True' }, 'each is taken for a timeout');
		like($told->('using.md'), qr/^\| psycopg 3, psycopg2 \| no type \| `zk_lock\(%s, %s\)` \| a `timedelta` \|$/m, 'as the page says');
	};
}

subtest 'asyncpg wants a timedelta, or a cast for a string' => sub {
	plan skip_all => 'not installed: python3-asyncpg' if !-d '/usr/lib/python3/dist-packages/asyncpg';
	my $said = said('/usr/bin/python3', "$here/timeouts_asyncpg.py", $url);
	is_deeply($said, {
			'string' => 'an error', 'string with casts' => 'False', 'timedelta' => 'False', 'free' => 'True',
			'list' => 'an error', 'list of a set' => 'True', 'held' => 'acct-1 acct-2 free',
			'reset' => 'pooled', 'reset with the line' => 'none' },
		'each call does what the pages say');
	like($told->('using.md'), qr/^\| asyncpg \| an error: it wants a `timedelta` \| `zk_lock\(\$1, \$2::text::interval\)` \| a `timedelta` \|$/m, 'the page on timeouts');
	like($told->('using.md'), qr/^\| asyncpg \| `SELECT pg_advisory_unlock_all\(\); .*` \| \*\*stay\*\* \|/m, 'the page on pools');
	like($told->('recipes.md'), qr/^\| asyncpg \| what the server wants \| several locks \| an error of its own \|$/m, 'the page on lists');
	assert_positional('/usr/bin/python3', "$here/timeouts_asyncpg.py", $url);
};

subtest 'pgx sends timeouts as what the server wants' => sub {
	plan skip_all => 'not installed: golang-go, golang-github-jackc-pgx-v4-dev'
	  if !-e '/usr/bin/go' || !-d '/usr/share/gocode/src/github.com/jackc/pgx/v4';
	local %ENV = (%ENV, Peer::go_environment());
	my $program = PostgreSQL::Test::Utils::tempdir() . '/timeouts';
	is(run_program('go', 'build', '-o', $program, "$here/timeouts.go"), 0, 'it compiles');
	is_deeply(said($program, $url), { string => 'false', duration => 'false', free => 'true' }, 'each is taken for a timeout');
	like($told->('using.md'), qr/^\| pgx \| what the server wants \| `zk_lock\(\$1, \$2\)` \| a `time\.Duration` \|$/m, 'as the page says');
	assert_positional($program, $url);
};

assert_held($holder, 'held', 'the lock was held all the time');
$holder->quit;
done_testing();
