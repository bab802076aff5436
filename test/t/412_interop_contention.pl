
# Backends of two clusters and processes of another client on one lock exclude each other under
# load, and get the lock in the order in which they came. All add to one counter that nothing but
# the lock protects. Tested with each real client that docs/interop.md calls one lock with
# zklock.

use Matrix;
use Peer;
use PostgreSQL::Test::Utils;
use ZkLockTest;

my $times = 25;
my $zk = ZooKeeper->new->start;
# Those that exclude zklock and are excluded by it; two processes of each.
my @rows =
  grep { $_->{'one lock'} eq 'yes' } Matrix::rows('With node style');
my %peers;
foreach my $kind (Peer::installed(map { $_->{client} } @rows))
{
	$peers{ Peer::library($kind) } ||=
	  [ map { Peer->new($kind, $zk) } 1 .. 2 ];
}
# Clients that only read share the lock, with each other and with our readers.
my %is_reader = map { $_->{client} => $_->{mode} eq 'shared' }
  Matrix::rows('What stands in the queue');

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

# All of them add at the same time, with one reader at most: it excludes the
# others, as they do it. Ours is the last session. Returns what is in the counter,
# what should be, and what went wrong.
sub race ($lock, $kind)
{
	my $file = "$PostgreSQL::Test::Utils::tmp_check/$lock";
	my @peers = @{ $peers{ Peer::library($kind) } };
	my @backends = @sessions;
	if ($is_reader{$kind})
	{
		pop @peers;
		pop @backends;
	}
	unlink $file;    # of a first run
	append_to_file($file, "0\n");
	$_->choose(lock_path($lock), $kind) foreach @peers;

	$_->start_command("increment $file $times") foreach @peers;
	foreach my $backend (@backends)
	{
		my $shared = $backend == $sessions[-1] ? 'true' : 'false';
		$backend->start_query("CALL increment('$lock', $shared, '$file', $times)");
	}
	$_->wait_result foreach @backends;
	my @answers = map { $_->wait_answer } @peers;

	chomp(my $count = slurp_file($file));
	return (
		$count,
		$times * (@backends + @peers),
		grep({ $_ ne 'done' } @answers),
		grep({ $_ } map { $_->error } @backends));
}

# Do they have the lock one after the other, first come, first served? One client
# stands between two backends, and another one behind them.
sub test_order ($lock, $kind)
{
	my @peers = @{ $peers{ Peer::library($kind) } };
	my $path = lock_path($lock);
	my ($holder, $waiter) = @sessions;
	$_->choose($path, $kind) foreach @peers;

	$holder->query_safe("SELECT zk_lock('$lock')");
	$peers[0]->start_command('lock');
	wait_for_queue($zk, $path, 2);
	start_in_queue($waiter, "SELECT zk_lock('$lock')", $zk, $path, 3);
	$peers[1]->start_command('lock');
	wait_for_queue($zk, $path, 4);

	my @waiting = ($peers[0], $waiter, $peers[1]);
	is(scalar(grep { $_->is_done } @waiting), 0, 'the three contenders wait');
	$holder->query_safe("SELECT zk_unlock('$lock')");
	is($peers[0]->wait_answer, 'locked', 'the first client is the next');
	is(scalar(grep { $_->is_done } $waiter, $peers[1]), 0, 'no other contender has the lock');
	$peers[0]->ask('unlock');
	like($waiter->wait_result, qr/^\d+$/, 'the backend is the next');
	ok(!$peers[1]->is_done, 'the second client still waits');
	$waiter->query_safe("SELECT zk_unlock('$lock')");
	is($peers[1]->wait_answer, 'locked', 'the second client is the last');
	$peers[1]->ask('unlock');
	return;
}

my $number = 0;
foreach my $row (@rows)
{
	my $kind = $row->{client};
	my $style = Matrix::set_style($row, @sessions);
	$number++;
	subtest "node style $style: backends and $kind get the lock in the order of the queue" => sub {
		Peer::require_installed($kind);
		test_order("order$number", $kind);
	};
	subtest "node style $style: backends and $kind lose no increment" => sub {
		Peer::require_installed($kind);
		my ($count, $expected, @errors) = race("race$number", $kind);
		# That Kazoo was told of our nodes cannot be seen in its own.
		s/^.*WARNING:  a contender of style "kazoo" may ignore .*\n^HINT:  .*\n//mg
		  foreach $kind =~ /with lock-/ ? @errors : ();
		is(join('', @errors), '', 'no client and no backend fails');
		is($count, $expected, 'no increment is lost');
		assert_no_nodes($zk, lock_path("race$number"));
	};
}

# The counter tells: where there is no exclusion, counts are lost.
Matrix::set_style($rows[0], @sessions);
subtest 'increments are lost where a client does not wait for zklock' => sub {
	Peer::require_installed('Kazoo Lock');
	my $round = 0;
	my $is_lost = poll_until
	{
		my ($count, $expected, @errors) = race('none' . ++$round, 'Kazoo Lock');
		$count < $expected;
	}
	'counts to be lost';
	ok($is_lost, "in round $round");
};

done_testing();
