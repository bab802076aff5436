
# Requests to release (zk_request_release) of holders that ended before they heard them do not
# pile up: sessions that ask other holders delete them, requests of living holders stay, and
# there is a bound. Tested with thousands of such znodes on a real server, and Curator.

use Peer;
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk);
$node->safe_psql('postgres', 'CREATE ROLE mallory LOGIN; GRANT zklock_job TO mallory');
my $stranger = $zk->client;
my $asking = background($node, user => 'mallory');
my $parent = lock_path('.release');

sub requests { return ($stranger->exists($parent) || {})->{num_children} || 0; }

# A session of the same role that holds locks, has them asked for, and is ended.
sub leave_requests (@locks)
{
	my $holder = background($node, user => 'mallory');
	my $names = join ', ', map { "'$_'" } @locks;
	$holder->query_safe("SELECT zk_lock_set(ARRAY[$names])");
	is($asking->query_safe("SELECT sum(zk_request_release(name)) FROM unnest(ARRAY[$names]) AS name"),
		scalar(@locks), 'asked: ' . @locks);
	$holder->kill;
	poll_until { !queue_nodes($zk, lock_path($locks[-1])) } 'it to go', 30;
	return;
}

SKIP:
{
	skip 'not installed: ' . Peer::missing('Curator InterProcessMutex'), 1 if Peer::missing('Curator InterProcessMutex');

	my $curator = Peer->new('Curator InterProcessMutex', $zk);
	$stranger->create_path(lock_path('payments'));
	foreach my $below ('!x', 'x')
	{
		leave_requests("payments/$below");
		eval { $stranger->delete(lock_path("payments/$below")) };
		is(join(' ', $stranger->children(lock_path('payments'))), '',
			"payments/$below: nothing is left in the queue above");
		$curator->choose(lock_path('payments'));
		is($curator->ask('try'), 'locked', 'Curator gets the lock that nobody holds');
		$curator->ask('unlock');
	}
}

subtest 'requests to holders that have ended are deleted by those who ask others' => sub {
	my @named = map { "$_ \"quoted\" \\ \x{c3}\x{a4}" } 1 .. 5;
	leave_requests(@named);
	cmp_ok(requests(), '>=', 5, 'the requests are left at first');
	leave_requests('one more');
	is(requests(), 1, 'requests of any name are deleted');

	foreach my $round (1 .. 12)
	{
		leave_requests(map { "r$round $_" } 1 .. 40);
	}
	note(requests() . ' requests are left of 480');
	cmp_ok(requests(), '<', 96, 'hardly more than there were holders at a time');
};

subtest 'requests to holders that live stay' => sub {
	my $holder = background($node, holds => 'heard');
	$asking->query_safe("SELECT zk_request_release('heard', 'why')");
	my ($mine) = queue_nodes($zk, lock_path('heard'));
	leave_requests(map { "other $_" } 1 .. 20) foreach 1 .. 5;
	ok($stranger->exists("$parent/$mine.release"), 'the request of a living holder stays');
	is($holder->query_safe("SELECT zk_release_requested('heard')"), 't', 'the living holder hears of the request');

	my %strange = (
		"$mine.release.release" => '{"client":"zklock","lock":"gone"}',
		'x' => '{"client":"zklock","lock":"gone"}',
		'a-lock-0000000001.release' => 'from afar',
		'b-lock-0000000001.release' => '{"client":"zklock","lock":"',
		'c-lock-0000000001.release' => '{"client":"zklock","lock":"\\',
		'd-lock-0000000001.release' => '{"client":"zklock","lock":"a//b"}',
		'e-lock-0000000001.release' => '{"client":"zklock","lock":"gone","more":""',
		'_c_6ba7b810-9dad-41d1-80b4-00c04fd430c8-lock-0000000001.release' =>
		  '{"client":"zklock","lock":"heard\\/../x"}');
	$stranger->create("$parent/$_", $strange{$_}) foreach sort keys %strange;
	leave_requests(map { "more $_" } 1 .. 20) foreach 1 .. 5;
	ok($stranger->exists("$parent/$_"), "who is asked cannot be told: $_")
	  foreach sort keys %strange;
	$stranger->delete("$parent/$_") foreach sort keys %strange;
};

subtest 'requests beyond ten thousand are refused until outdated ones are found' => sub {
	my $holder = background($node, holds => 'full');
	$stranger->delete("$parent/$_") foreach $stranger->children($parent);
	$stranger->create_path($parent);
	$stranger->create_many(10_000, sub { "$parent/strange $_[0].release" }, 'kept');
	assert_query($asking, "SELECT zk_request_release('full')", '54000', 'one more is refused');
	like($asking->error, qr/too many requests to release locks.*DETAIL:.*HINT:/s, 'the error has a DETAIL and a HINT');
	is($asking->query_safe("SELECT zk_request_release('free')"), 0, 'a request for a free lock is not refused');
	my @outdated = grep { /strange 1\d\d\d\./ } $stranger->children($parent);
	$stranger->delete("$parent/$_") foreach @outdated;
	$stranger->create_many(scalar @outdated, sub { "$parent/lock-" . (1e9 + $_[0]) . '.release' },
		'{"client":"zklock","lock":"gone"}');
	assert_soon {
		$asking->query("SELECT zk_request_release('full')");
		$asking->sqlstate eq '00000';
	} 'a request is accepted when outdated ones are found', 60;
};

done_testing();
