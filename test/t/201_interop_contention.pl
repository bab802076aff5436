
# Many at once, on both sides: backends of two clusters and processes of another
# client add to one counter that nothing but the lock protects. And they are
# served in the order in which they came.

use strict;
use warnings;

use Matrix;
use Peer;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkLockTest;
use ZooKeeper;

plan skip_all => 'there is no ' . Peer::missing() if Peer::missing();

my $times = 25;
my $zk = ZooKeeper->new->start;
# Those that exclude zklock and are excluded by it; two processes of each. All
# are in the default style; a style is a property of the lock's users.
my @kinds = map { $_->{client} }
  grep { $_->{'one lock'} eq 'yes' } Matrix::rows('With node style curator');
my %peers;
foreach my $kind (@kinds)
{
	$peers{ Peer::library($kind) } ||=
	  [ map { Peer->new($kind, $zk) } 1 .. 2 ];
}

# The counterpart of the drivers' command "increment".
my $increment = <<'SQL';
CREATE PROCEDURE increment(lock text, shared bool, file text, times int)
LANGUAGE plpgsql AS $$
DECLARE
	count bigint;
BEGIN
	FOR i IN 1 .. times LOOP
		IF shared THEN
			PERFORM zk_xact_lock_shared(lock);
		ELSE
			PERFORM zk_xact_lock(lock);
		END IF;
		count := pg_read_file(file);
		PERFORM pg_sleep(0.001);
		EXECUTE format('COPY (SELECT %s) TO %L', count + 1, file);
		COMMIT;
	END LOOP;
END $$
SQL

my @nodes = map { cluster($_, $zk) } qw(berlin munich);
$_->safe_psql('postgres', $increment) foreach @nodes;
my @sessions = map { background($_) } @nodes, @nodes;
# Makes the root, which the recipe in Java does not.
$sessions[0]->query_safe("SELECT zk_try_lock('first'), zk_unlock('first')");

# All of them add at the same time. The last one of zklock's sessions takes the
# lock shared: it excludes the others, as they do it. Returns what is in the
# counter and what went wrong.
sub race
{
	my ($lock, $kind, @peers) = @_;
	my $file = "$PostgreSQL::Test::Utils::tmp_check/$lock";
	append_to_file($file, "0\n");
	$_->choose(lock_path($lock), $kind) foreach @peers;

	$_->start_command("increment $file $times") foreach @peers;
	foreach my $i (0 .. $#sessions)
	{
		my $shared = $i == $#sessions ? 'true' : 'false';
		$sessions[$i]->start_query(
			"CALL increment('$lock', $shared, '$file', $times)");
	}
	$_->wait_result foreach @sessions;
	my @answers = map { $_->wait_answer } @peers;

	chomp(my $count = slurp_file($file));
	return ($count,
		grep({ $_ ne 'done' } @answers),
		grep({ $_ } map { $_->error } @sessions));
}

# Do they have the lock one after the other, first come, first served? A client
# of each kind stands between two backends, and another one behind them.
sub test_order
{
	my ($lock, $kind, @peers) = @_;
	my $path = lock_path($lock);
	my ($holder, $waiter) = @sessions;
	my $stands = 1;
	$_->choose($path, $kind) foreach @peers;

	$holder->query_safe("SELECT zk_lock('$lock')");
	$peers[0]->start_command('lock');
	wait_for_queue($zk, $path, ++$stands);
	$waiter->start_query("SELECT zk_lock('$lock')");
	wait_for_queue($zk, $path, ++$stands);
	$peers[1]->start_command('lock');
	wait_for_queue($zk, $path, ++$stands);

	my @waiting = ($peers[0], $waiter, $peers[1]);
	is(scalar(grep { $_->is_done } @waiting), 0, 'all wait');
	$holder->query_safe("SELECT zk_unlock('$lock')");
	is($peers[0]->wait_answer, 'locked', 'the first client is the next');
	is(scalar(grep { $_->is_done } $waiter, $peers[1]), 0, 'it alone');
	$peers[0]->ask('unlock');
	like($waiter->wait_result, qr/^\d+$/, 'then comes the backend');
	ok(!$peers[1]->is_done, 'it alone');
	$waiter->query_safe("SELECT zk_unlock('$lock')");
	is($peers[1]->wait_answer, 'locked', 'then the second client');
	$peers[1]->ask('unlock');
	return;
}

foreach my $i (0 .. $#kinds)
{
	my $kind = $kinds[$i];
	my @peers = @{ $peers{ Peer::library($kind) } };
	subtest "$kind: order" => sub { test_order("order$i", $kind, @peers); };
	subtest "$kind: contention" => sub {
		my ($count, @errors) = race("race$i", $kind, @peers);
		is("@errors", '', 'no errors');
		is($count, $times * (@sessions + @peers), 'none lost');
		assert_no_nodes($zk, lock_path("race$i"));
	};
}

# The counter tells: where there is no exclusion, counts are lost.
subtest 'without mutual exclusion' => sub {
	my @peers = @{ $peers{kazoo} };
	my $round = 0;
	my $lost;
	poll_until
	{
		my ($count, @errors) = race('none' . ++$round, 'Kazoo Lock', @peers);
		$lost = @errors || $count < $times * (@sessions + @peers);
	}
	'counts to be lost';
	ok($lost, "in round $round");
};

$_->quit foreach map({ @$_ } values %peers), @sessions;

done_testing();
