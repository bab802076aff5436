
# Who has a lock, and since when? Nobody writes that down, so what is shown is a bound,
# and never a lie: the grant was not later. A contender that is letting go is not shown
# as one that holds, and all of it fits on a terminal.

use strict;
use warnings;

use Test::More;
use ZkLockTest;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my $node = cluster('production-eu', $zk);
my $name = 'who';
my $path = lock_path($name);
# What our nodes are called whose set is a hand-over.
my $mark = '_c_6ba7b810-9dad-8a11-80b4-00c04fd430c8-lock-';

sub sql { return $node->safe_psql('postgres', $_[0]); }

# Of each contender: state, and how held_since stands to since and to that of the
# contender that is the last to have joined.
sub held
{
	return sql(<<"SQL");
SELECT string_agg(state || CASE
		WHEN held_since IS NULL THEN ''
		WHEN held_since = since THEN ' at once'
		WHEN held_since < since THEN ' too early'
		WHEN held_since = (SELECT max(since) FROM zk_lock_queue('$name')) THEN ' when the last one came'
		ELSE ' in between' END, ', ' ORDER BY position)
FROM zk_lock_queue('$name') WHERE position IS NOT NULL
SQL
}

# A session that waits, behind so many; a moment passes between two who join.
sub queued
{
	my ($sql, $ahead) = @_;
	my $session = background($node);
	$session->query_safe("SELECT zk_try_lock('other'), zk_unlock('other')");
	my $last = sql("SELECT max(since) FROM zk_lock_queue('$name')");
	poll_until { sql("SELECT clock_timestamp() > '$last'::timestamptz + interval '20 ms'") eq 't' } 'a moment'
	  if $last;
	$session->start_query($sql);
	wait_for_queue($zk, $path, $ahead + 1);
	return $session;
}

sub granted
{
	my ($session) = @_;
	$session->wait_result;
	is($session->sqlstate, '00000', 'granted') or diag($session->error);
	return;
}

# The exact time is in between. A session may learn of its grant that much later than
# it was.
sub is_true_of
{
	my ($session, $what, $later) = @_;
	$later ||= '0';
	is($session->query_safe(<<"SQL"), 't', $what);
SELECT q.since <= l.granted_at
	AND l.granted_at <= coalesce(q.held_since, 'infinity') + interval '$later'
FROM zk_lock_queue('$name') q JOIN zk_locks l USING (token)
SQL
	return;
}

subtest 'since when it is held' => sub {
	my $first = queued("SELECT zk_lock('$name')", 0);
	granted($first);
	is(held(), 'held at once', 'the first one ever');
	my $second = queued("SELECT zk_lock('$name')", 1);
	my $third = queued("SELECT zk_lock('$name')", 2);
	is(held(), 'held at once, waiting, waiting', 'also with others behind it');
	$first->query_safe("SELECT zk_unlock('$name')");
	granted($second);
	poll_until { scalar queue_nodes($zk, $path) == 2 } 'the first to go';
	is(held(), 'held, waiting', 'of one that had to wait nothing is known but that');
	my $fourth = queued("SELECT zk_lock('$name')", 2);
	is(held(), 'held when the last one came, waiting, waiting', 'until the next one has come');
	is_true_of($second, 'which was not before the grant');
	sql('SELECT pg_cancel_backend(' . $third->pid . ')');
	$third->wait_result;
	poll_until { held() eq 'held, waiting' } 'a waiter to leave';
	pass('when somebody leaves, it is not known who that was');
	is_true_of($second, 'and nothing untrue is said');
	$second->query_safe("SELECT zk_unlock('$name')");
	granted($fourth);
	$fourth->query_safe("SELECT zk_unlock('$name')");
	assert_no_nodes($zk, $path, 'nothing left');
	$first->query_safe("SELECT zk_lock('$name')");
	is(held(), 'held at once', 'one that finds nobody, in a queue that was used');
	is_true_of($first, 'which is so', '10 s');
	$first->query_safe("SELECT zk_unlock('$name')");
	$_->quit foreach $first, $second, $third, $fourth;
};

subtest 'readers, permits, downgrades, holds' => sub {
	# A queue that was used, and is nobody's to be removed.
	$name = 'readers';
	$path = lock_path($name);
	my $client = $zk->client;
	$client->create_path($path);
	$client->delete($client->create("$path/$mark", '', sequential => 1));
	$client->close;

	my @readers = map { queued("SELECT zk_lock_shared('$name')", $_) } 0 .. 1;
	granted($_) foreach @readers;
	is(held(), 'held when the last one came, held at once', 'readers');
	my $writer = queued("SELECT zk_lock('$name')", 2);
	is(held(), 'held when the last one came, held when the last one came, waiting', 'with a writer behind them');
	$_->query_safe("SELECT zk_unlock_shared('$name')") foreach @readers;
	granted($writer);
	$writer->query_safe("SELECT zk_lock_shared('$name'), zk_unlock('$name')");
	poll_until { sql("SELECT mode FROM zk_lock_queue('$name')") eq 'shared' } 'the downgrade';
	is(held(), 'held at once', 'after a downgrade: when that was');
	$writer->query_safe("SELECT zk_unlock_shared('$name')");
	assert_no_nodes($zk, $path, 'nothing left');

	my @permits = map { queued("SELECT zk_lock('$name', permits => 2)", $_) } 0 .. 3;
	granted($permits[0]);
	granted($permits[1]);
	$permits[0]->query_safe("SELECT zk_unlock('$name')");
	granted($permits[2]);
	poll_until { scalar queue_nodes($zk, $path) == 3 } 'a permit to pass on';
	poll_until { held() =~ /^held, held in between, waiting$/ }
	'who was granted a permit with others behind him to say so';
	is_true_of($permits[2], 'when that was', '10 s');
	$permits[1]->query_safe("SELECT zk_unlock('$name')");
	granted($permits[3]);
	$_->query_safe('SELECT zk_unlock_all()') foreach @permits;
	assert_no_nodes($zk, $path, 'nothing left');

	my $token = sql("SELECT zk_hold('$name', 'new disks, and a reason that is long')");
	is(held(), 'held at once', 'a hold: when it was made');
	sql("SELECT zk_release_hold('$name', $token)");
	$_->quit foreach @readers, $writer, @permits;
	assert_no_nodes($zk, $path, 'nothing left');
};

subtest 'who is letting go does not hold' => sub {
	my $client = $zk->client;
	$client->create_path($path);
	my $leaving = $client->create("$path/$mark", '{"client":"zklock"}', ephemeral => 1, sequential => 1);
	like(held(), qr/^held/, 'a contender');
	$client->set($leaving, '');
	is(held(), 'releasing', 'that has set its data to nothing');
	is(sql("SELECT state, who FROM zk_who('$name')"), 'releasing|curator', 'zk_who() says so, too');
	$client->delete($leaving);
	$client->close;
	assert_no_nodes($zk, $path, 'nothing left');
};

subtest 'a contender for good' => sub {
	my $client = $zk->client;
	$client->create_path($path);
	my $stays = $client->create("$path/$mark", 'somebody else', sequential => 1);
	is(sql("SELECT who, coalesce(\"where\", '') FROM zk_who('$name')"), 'somebody else|', 'of another client is no hold');
	$client->delete($stays);
	$client->close;
	assert_no_nodes($zk, $path, 'nothing left');
};

subtest 'it fits on a terminal' => sub {
	sql('CREATE ROLE reporting_application_owner LOGIN SUPERUSER');
	sql('CREATE DATABASE warehouse_reporting');
	$node->safe_psql('warehouse_reporting', 'CREATE EXTENSION zklock');
	my $holder = background($node, database => 'warehouse_reporting', user => 'reporting_application_owner');
	$holder->query_safe("SELECT zk_lock('$name')");
	my $client = $zk->client;
	$client->create("$path/_c_6ba7b810-9dad-11d1-80b4-00c04fd430c8-lock-", "10.11.12.13 and more of that\e[2J",
		ephemeral => 1, sequential => 1);
	my $waiter = queued("SELECT zk_hold('$name', 'new disks, and a reason that is long')", 2);
	my ($rc, $table) = $node->psql('postgres', "\\pset format aligned\n\\pset tuples_only off\nSET timezone = 'Asia/Kolkata'; SELECT * FROM zk_who('$name')");
	note($table);
	my @lines = grep { /\|/ } split /\n/, $table;
	is(scalar @lines, 4, 'a head and three contenders');
	cmp_ok(length, '<=', 100, $_) foreach @lines;
	like($lines[1], qr/ 1 \| held +\| reporting_ap \d+ +\| production-eu\/warehouse_ ?\| /, 'the holder');
	like($lines[2], qr/ 2 \| waiting \| 10\.11\.12\.13 and more +\| 0x[0-9a-f]+ +\| /, 'a client of another make');
	$client->close;
	$holder->quit;
	granted($waiter);
	like(sql("SELECT who, \"where\" FROM zk_who('$name')"), qr/^\w+ \d+\|hold: new disks, and a r$/, 'a hold');
	sql("SELECT zk_release_hold('$name', token) FROM zk_lock_queue('$name')");
	$waiter->quit;
	assert_no_nodes($zk, $path, 'nothing left');
};

my ($rc, $out, $err) = $node->psql('postgres', 'SELECT * FROM zk_who(NULL)');
like($err, qr/lock name must not be null/, 'NULL is an error');

done_testing();
