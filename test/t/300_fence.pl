
# zk_fence() keeps an old holder from writing to a guarded table, in a database that knows the
# lock by its token only, whichever holder comes first; the tokens survive a dump, and are known to
# be greater than those of an ensemble that was restored. Tested with four clusters, one of which
# never talks to ZooKeeper.

use PostgreSQL::Test::Utils qw(command_fails_like command_ok);
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $berlin = cluster('berlin', $zk, 'zklock.session_timeout' => '2s');
my $paris = cluster('paris', $zk);

# The third database never talks to ZooKeeper.
my $guarded = cluster('guarded', $zk, servers => '127.0.0.1:1');
$guarded->safe_psql('postgres',
	'CREATE TABLE account (balance int); INSERT INTO account VALUES (0)');

sub balance { return $guarded->safe_psql('postgres', 'SELECT balance FROM account'); }

subtest 'a paused holder that writes too late is refused by zk_fence()' => sub {
	my ($old, $new) = (background($berlin), background($paris));
	my ($old_write, $new_write) = map { background($guarded) } 1 .. 2;
	my $old_token = $old->query_safe("SELECT zk_lock('account')");
	kill 'STOP', $old->pid;
	my $new_token = $new->query_safe("SELECT zk_lock('account', '30s')");
	cmp_ok($new_token, '>', $old_token, 'tokens rise');

	$new_write->query_safe("BEGIN; SELECT zk_fence('account', $new_token)");
	$new_write->query_safe('UPDATE account SET balance = balance + 1');
	# The old one is behind the new one, which has not committed yet.
	$old_write->query_safe('BEGIN');
	$old_write->start_query("SELECT zk_fence('account', $old_token)");
	wait_for_lock($old_write->node, $old_write->pid);
	$new_write->query_safe('COMMIT');
	assert_ends($old_write, '40001', 'the older holder is refused');
	like($old_write->error, qr/a newer holder of lock "account" has been here/,
		'the error says that a newer holder has been here');
	$old_write->query('ROLLBACK');
	is(balance(), 1, 'only the newer has written');

	kill 'CONT', $old->pid;
	assert_knows_loss($old, 'account', 'the old holder does not hold it');
};

subtest 'a new holder waits for an old one that is inside, which then does not pass again' => sub {
	my ($first, $second) = map { background($guarded) } 1 .. 2;
	$first->query_safe("BEGIN; SELECT zk_fence('order', 5)");
	$second->start_query("SELECT zk_fence('order', 9)");
	wait_for_lock($second->node, $second->pid);
	$first->query_safe('COMMIT');
	assert_ends($second, '00000', 'the newer holder passes when the older one has committed');
	assert_query($first, "SELECT zk_fence('order', 5)", '40001', 'the older holder does not pass again');
};

subtest 'a repeatable read snapshot does not get past zk_fence()' => sub {
	my $session = background($guarded, first => 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
	$guarded->safe_psql('postgres', "SELECT zk_fence('snapshot', 9)");
	assert_query($session, "SELECT zk_fence('snapshot', 5)", '40001', 'the older token is refused');
	$session->query('ROLLBACK');
};

# A read of zk_fences by the snapshot has a predicate lock that covers the rows of all names: with
# few rows PostgreSQL reads the whole table. The first round makes the rows, the others raise tokens.
subtest 'serializable transactions that fence different names do not make each other fail' => sub {
	my @sessions = map { background($guarded, first => 'SET default_transaction_isolation = serializable') } 1 .. 4;
	my ($refused, $rounds) = (0, 20);
	foreach my $round (1 .. $rounds)
	{
		foreach my $number (0 .. $#sessions)
		{
			$sessions[$number]->query("BEGIN; SELECT zk_fence('serial $number', $round)");
			$refused++ if $sessions[$number]->sqlstate ne '00000';
		}
		foreach my $session (@sessions)
		{
			$session->query('COMMIT');
			$refused++ if $session->sqlstate ne '00000';
		}
		$guarded->safe_psql('postgres', 'ANALYZE zk_fences') if $round == 1;
	}
	is($refused, 0, "none of @{[ $rounds * @sessions ]} transactions is refused");

	my ($first, $second) = @sessions;
	$first->query_safe("BEGIN; SELECT zk_fence('serial', 5)");
	$second->start_query("BEGIN; SELECT zk_fence('serial', 9)");
	wait_for_lock($guarded, $second->pid);
	$first->query_safe('COMMIT');
	assert_ends($second, '40001', 'one that fences the same name is refused');
	$second->query_safe('ROLLBACK');
	$_->quit foreach @sessions;
};

# Tenants of one database, each with a root of its own, use the same name.
subtest 'zk_fence() keeps the tokens of each root apart' => sub {
	my %set = (
		anna => q{SET zklock.root = '/anna'},
		bert => q{SET zklock.root = '/bert'},
		carl => q{SET zklock.root = '/carl'});
	foreach my $role (sort keys %set)
	{
		$paris->safe_psql('postgres', "CREATE ROLE $role LOGIN; GRANT zklock_operator TO $role; ALTER ROLE $role $set{$role}");
	}
	my %tenant = map { ($_ => background($paris, user => $_)) } keys %set;
	my %token;
	foreach my $role (sort keys %tenant)
	{
		$token{$role} = $tenant{$role}->query_safe("SELECT zk_lock('job')");
		# Whoever waits for a row of another's fails here, and the test does not hang.
		assert_query($tenant{$role}, "SET lock_timeout = '20s'; BEGIN; SELECT zk_fence('job')", '00000', "$role waits for nobody");
	}
	foreach my $role (sort keys %tenant)
	{
		assert_query($tenant{$role}, "SELECT zk_fence('job', $token{$role}); COMMIT", '00000', "$role is refused by nobody");
		assert_query($tenant{$role}, "SELECT zk_fence('job', $token{$role} - 1)", '40001', 'an older token of the same root is refused');
	}
	is($paris->safe_psql('postgres', q{SELECT root, name, token FROM zk_fences WHERE name = 'job' ORDER BY claimed_by}),
		"/anna|job|$token{anna}\n/bert|job|$token{bert}\n/carl|job|$token{carl}", 'zk_fences has a row for each root');

	my $session = background($paris, first => q{SET zklock.root = '/anna'});
	$session->query_safe(q{SELECT zk_lock('mine'); SET zklock.root = '/bert'});
	assert_query($session, q{SELECT zk_fence('mine')}, '55000', 'a lock held below another root cannot be fenced');
	# "/a/b" and "c" are the znode of "/a" and "b/c": the row is that of the lock as it was taken.
	$session->query_safe(q{SET zklock.root = '/a/b'; SELECT zk_lock('c'); SET zklock.root = '/a'; SELECT zk_fence('b/c')});
	is($session->query_safe(q{SELECT l.root, l.name FROM zk_fences NATURAL JOIN zk_session_locks AS l}), '/a/b|c', 'as zk_session_locks shows it');
	$_->quit foreach $session, values %tenant;
};

# Who owns a database can dump it without being a superuser.
subtest 'a dump by the owner of the database keeps the tokens' => sub {
	my $dump = $guarded->basedir . '/owner.sql';
	$guarded->safe_psql('postgres', $_)
	  foreach 'CREATE ROLE keeper LOGIN', 'CREATE DATABASE kept OWNER keeper',
	  'CREATE DATABASE kept_again OWNER keeper';
	$guarded->safe_psql('kept', $_)
	  foreach 'CREATE EXTENSION zklock', "SELECT zk_fence('order', 9)",
	  "SET zklock.root = '/team'; SELECT zk_fence('order', 5)",
	  'SET ROLE keeper; CREATE TABLE orders AS SELECT 1 AS n';
	command_ok([ 'pg_dump', '-f', $dump, '-d', $guarded->connstr('kept') . ' user=keeper' ],
		'pg_dump');
	command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $dump,
			'-d', $guarded->connstr('kept_again') ], 'restore');
	my $session = background($guarded, database => 'kept_again');
	assert_query($session, "SELECT zk_fence('order', 8)", '40001', 'an old token is refused there');
	assert_query($session, "SET zklock.root = '/team'; SELECT zk_fence('order', 8)", '00000', 'each root has its own token');
	is($session->query_safe('SELECT n FROM orders'), 1, "the owner's table is restored");
	$session->query_safe('SET ROLE keeper');
	assert_query($session, 'UPDATE zk_fences SET token = 1', '42501',
		'the owner of the database may not change tokens');
};

# As docs/backup.md tells it: what came behind the copy is gone, and the tokens begin anew.
subtest 'an ensemble restored from a copy has the holds and the tokens of the copy' => sub {
	my $ensemble = ZooKeeper->new->start;
	my $site = cluster('oslo', $ensemble, 'zklock.session_timeout' => '4s');
	my $data = $ensemble->data_dir . '/version-2';
	ask($site, "SELECT zk_hold('before', 'disk replacement'), zk_run_once('job', 'before')");
	$ensemble->stop;
	command_ok([ 'cp', '-a', $data, "$data.copy" ], 'the data are copied');
	$ensemble->start;

	my $after = background($site);
	$after->query_safe("SELECT zk_hold('after', 'disk replacement'), zk_run_once('job', 'after')");
	$after->query_safe("SELECT zk_lock('work'), zk_unlock('work')") foreach 1 .. 20;
	$after->query_safe("SELECT zk_lock('work'); SELECT zk_fence('work')");
	$after->quit;
	$ensemble->stop;
	command_ok([ 'rm', '-r', $data ], 'the data are lost');
	command_ok([ 'mv', "$data.copy", $data ], 'the copy takes their place');
	$ensemble->start;

	my $session = background($site);
	is($session->query_safe("SELECT zk_try_lock('before'), zk_try_lock('after')"), 'f|t', 'the hold of the copy is there, and the later one is not');
	is($session->query_safe("SELECT zk_run_once('job', 'before'), zk_run_once('job', 'after')"), 'f|t', 'a run since the copy is forgotten');
	$session->query_safe("SELECT zk_lock('work', '60 s')");
	assert_query($session, "SELECT zk_fence('work')", '40001', 'zk_fence() refuses the tokens of the restored ensemble');
	like($session->query_safe("SELECT state, what FROM zk_check(false) WHERE item = 'data'"), qr/^error\|the ensemble has lost its data/, 'zk_check() says so');
	$session->query_safe('TRUNCATE zk_fences');
	assert_query($session, "SELECT zk_fence('work')", '00000', 'zk_fence() passes after TRUNCATE');
	$session->quit;
	$_->stop foreach $site, $ensemble;
};

# The table of another database fits as a whole or not at all.
subtest 'a restore of the tokens fails where there are some, and fits when the table is empty' => sub {
	my $dump = $guarded->basedir . '/fences.dump';
	$guarded->safe_psql('postgres', "CREATE DATABASE $_") foreach qw(dumped refilled);
	ask($guarded, 'CREATE EXTENSION zklock', $_) foreach qw(dumped refilled);
	ask($guarded, "SELECT zk_fence('a', 5), zk_fence('b', 6)", 'dumped');
	ask($guarded, "SELECT zk_fence('a', 9)", 'refilled');
	my $tokens = sub { ask($guarded, q{SELECT string_agg(name || ' ' || token, ', ' ORDER BY name) FROM zk_fences}, 'refilled') };
	my @restore = ('pg_restore', '--data-only', '-t', 'zk_fences', '-d', $guarded->connstr('refilled'), $dump);
	command_ok([ 'pg_dump', '-Fc', '-f', $dump, '-d', $guarded->connstr('dumped') ], 'pg_dump');
	command_fails_like(\@restore, qr/duplicate key/, 'a row that is there makes the whole table fail');
	is($tokens->(), 'a 9', 'no row is restored');
	ask($guarded, 'TRUNCATE zk_fences', 'refilled');
	command_ok(\@restore, 'after TRUNCATE the restore succeeds');
	is($tokens->(), 'a 5, b 6', 'the tokens of the dump are there');
};

done_testing();
