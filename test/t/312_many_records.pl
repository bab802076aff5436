
# zk_run_once() keeps at most 100,000 records of one job and refuses more, and a claim costs the
# same however many there are. Tested with that many records made by another client on a real
# server, and a proxy that loses a reply.

use Proxy;
use ZkLockTest;

my $most = 100_000;
my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk, 'zklock.session_timeout' => '20s');
my $stranger = $zk->client;
my $session = background($node);
my $directory = lock_path('.once/job.once');

sub records { return $stranger->exists($directory)->{num_children}; }

# Claims of so many slots, all of which must be granted.
sub claim ($slots, $count)
{
	my $start = time;
	my $won = $session->query_safe("SELECT count(*) FROM generate_series(1, $count) AS i
		WHERE zk_run_once('job', '$slots ' || i, '1 day')");
	is($won, $count, "$slots: all claimed");
	note(sprintf '%s: %.2f ms for a claim', $slots, 1000 * (time - $start) / $count);
	return;
}

# Records whose time is over, or is not.
sub add_records
{
	my ($slots, $count, $retain) = @_;
	$stranger->create_many($count, sub { "$directory/$slots $_[0].once" },
		qq({"client":"zklock","retain":"$retain"}));
	return;
}

subtest 'records whose time is over are deleted faster than new ones come' => sub {
	my $claims = 600;
	claim('first', 200);
	add_records('old', 5000, 0);
	my $before = records();
	claim('second', $claims);
	note('old ones left: ' . (records() - 200 - $claims));
	cmp_ok(records(), '<', $before - $claims, 'each claim has deleted more than one old record');
};

subtest 'record 100,001 of a job is refused, and there is room again after zk_forget_run()' => sub {
	# Each call may delete some of the old ones, and make room.
	$stranger->delete("$directory/$_") foreach grep { /^old / } $stranger->children($directory);
	add_records('kept', $most - records(), 1 << 40);
	is(records(), $most, 'as many as there may be');
	foreach (1 .. 2)
	{
		assert_query($session, "SELECT zk_run_once('job', 'one too many')", '54000', 'one more is refused');
		like($session->error, qr/too many records of runs of "job".*DETAIL:.*HINT:/s,
			'the error has a DETAIL and a HINT');
	}
	ok(!$stranger->exists("$directory/one too many.once"), 'the refused record is not left behind');
	is($session->query_safe("SELECT zk_run_once('job', 'first 1')"), 'f', 'a slot claimed before is still known');
	is($session->query_safe("SELECT zk_run_once('other', 'first 1')"), 't', 'other jobs are unharmed');
	$session->query_safe("SELECT zk_forget_run('job', slot) FROM unnest(ARRAY['first 2', 'first 3']) AS slot");
	is($session->query_safe("SELECT zk_run_once('job', 'one too many')"), 't', 'a slot is granted when there is room again');
};

# Whose reply was lost finds its own record among those that it counts.
subtest 'a claim whose reply was lost does not count its own record' => sub {
	my $proxy = Proxy->new($zk->connect_string);
	my $asker = background($node, route => $proxy->address, first => q(SELECT zk_run_once('other', 'connect')));
	add_records('kept too', $most - 1 - records(), 1 << 40) if records() < $most - 1;
	foreach my $case ([ 'last', '00000', 't' ], [ 'over', '54000' ])
	{
		my ($slot, $state, $result) = @$case;
		my $before = records();
		$proxy->trap(14, 1, 'replies');    # multi
		$asker->start_query("SELECT zk_run_once('job', '$slot')");
		poll_until { $stranger->exists("$directory/$slot.once") } 'the record', 30;
		$proxy->reset_connections;
		$proxy->heal;
		my $got = $asker->wait_result;
		is($asker->sqlstate, $state, "$before others: $state");
		is($got, $result, 'the claim is granted') if $result;
	}
	$asker->quit;
	$proxy->stop;
};

done_testing();
