
# A ZooKeeper session without locks costs the leader of the ensemble nothing: the server that it
# is connected to answers its heartbeats. The session is kept all the same, its first lock has a
# fresh proof, and a server that has lost its leader holds that lock up for some seconds only.
# Three real servers with proxies between them.

use Proxy;
use ZkLockTest;

my $timeout = 6;    # of most sessions, seconds
my $long = 24;      # of the one whose server is cut off

# By these followers reach their leader. They bear with its silence for longer than the tests.
my %to_leader;
my $zk = ZooKeeper->new(
	servers => 3,
	config => { syncLimit => 200 },
	max_session_timeout => 1000 * $long,
	link => sub ($from, $to, $what, $address) {
		return (split /:/, $address)[1] if $what ne 'quorum';
		return ($to_leader{"$from to $to"} //= Proxy->new($address))->port;
	})->start;
my $node = cluster('berlin', $zk,
	'zklock.session_timeout' => "${timeout}s");
my ($follower, $other) = $zk->followers;
$node->safe_psql('postgres', 'CREATE TABLE work (i int)');
my $first_lock = "BEGIN; SELECT zk_xact_lock('first'); INSERT INTO work VALUES (1); COMMIT";

# At that follower first; it has had a lock.
sub session_at ($member, %setting)
{
	return background($node,
		'zklock.servers' => $zk->connect_string($member), first => $first_lock, %setting);
}

# What the leader has had to do: requests of its own clients, and all that followers hand on.
sub led { return $zk->monitor($zk->leader)->{prep_processor_request_queued}; }

sub count_requests { return $node->safe_psql('postgres', 'SELECT sum(requests) FROM zk_stat'); }

# They are idle until the last subtest, at the server that will be cut off. The list begins with
# another server for each session.
my @cut_off = map { session_of_list() } 1 .. 2;
my $idle_since = time;

sub session_of_list
{
	my $session = background($node,
		'zklock.session_timeout' => "${long}s",
		'zklock.servers' => $zk->connect_string($follower, $other));
	my $port = $zk->port($follower);
	do
	{
		$session->query_safe("SELECT zk_disconnect(); $first_lock");
	} until $session->query_safe('SELECT server FROM zk_session') =~ /:$port$/;
	return $session;
}

my @idle = map { session_at($_) } ($follower, $other) x 3;
my @identities = map { session_id_of($_) } @idle;

subtest 'idle sessions send no request to the leader' => sub {
	my ($least, $seconds) = (1000, 0);
	# Once will do, on a busy machine.
	foreach (1 .. 3)
	{
		my ($before, $start) = (led(), time);
		sleep $timeout;
		$seconds = time - $start;
		$least = led() - $before;
		last if $least < @idle;
		note("again: $least requests to the leader in $seconds s");
	}
	cmp_ok($least, '<', scalar @idle, 'less than a request for each of them in a session timeout');
	note("$least requests to the leader in $seconds s");
};

subtest 'the first lock of an idle session takes no request more than the next one' => sub {
	my ($first, $second);
	foreach my $session (@idle[ 0 .. 2 ])
	{
		my $before = count_requests();
		$session->query_safe($first_lock);
		$first = count_requests() - $before;
		$session->query_safe($first_lock);
		$second = count_requests() - $before - $first;
		last if $first == $second;
	}
	is($first, $second, 'the first lock takes as many requests as the next one');
};

subtest 'idle sessions are kept for many session timeouts' => sub {
	# On a busy machine one or another is lost for want of a processor.
	my $same = grep { session_id_of($idle[$_]) eq $identities[$_] } 0 .. $#idle;
	cmp_ok($same, '>=', 2, 'the server that answers them has told the leader');
};

subtest 'a session that holds a lock sends its heartbeats to the leader' => sub {
	$idle[0]->query_safe("SELECT zk_lock('held')");
	my $before = led();
	assert_soon { led() - $before >= 3 } 'heartbeats of the holder go to the leader', 10 * $timeout;
	$idle[0]->query_safe("SELECT zk_unlock('held')");
};

# The library would give up the connection after two thirds of the session timeout, of which a
# quarter may have passed since it was answered last.
subtest 'a server that has lost its leader holds up the first lock for some seconds only' => sub {
	# Longer than half of the session timeout: it might have sent heartbeats.
	my $left = 0.55 * $long - (time - $idle_since);
	sleep $left if $left > 0;
	$to_leader{"$follower to " . $zk->leader}->cut;
	my $start = time;
	$cut_off[$_]->start_query("SELECT zk_lock('cut $_')") foreach 0 .. $#cut_off;
	poll_until { grep { $_->is_done } @cut_off } 'one to be granted its lock', 4 * $long;
	in_time(time - $start, (2 / 3 - 1 / 4) * $long, 'the session turns to another server soon');
	assert_ends($_, '00000', 'granted') foreach @cut_off;
	my $port = $zk->port($other);
	like($_->query_safe('SELECT server FROM zk_session'), qr/:$port$/, 'the session is at the other server') foreach @cut_off;
};

done_testing();
