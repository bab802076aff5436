
# The server's log has one line of each backend that holds or waits for locks when its connection
# to ZooKeeper breaks, comes back, or the session is lost, and no line of other backends. Tested
# with a proxy that goes away.

use Proxy;
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $proxy = Proxy->new($zk->connect_string);
my $node = cluster('berlin', $zk, servers => $proxy->address,
	'zklock.session_timeout' => '30s');
my $address = $proxy->address;

# The lines of that kind, each with its DETAIL.
sub lines ($what)
{
	my $log = slurp_file($node->logfile);
	my @lines = $log =~ /LOG:  (ZooKeeper session 0x[0-9a-f]+ (?:$what).*(?:\n.*DETAIL:  .*)?)/g;
	return @lines;
}

# Until so many have told it; those given look now and then.
sub wait_for_lines ($what, $count, @sessions)
{
	poll_until
	{
		$_->query('SELECT 1') foreach @sessions;
		lines($what) == $count
	}
	"$count to tell that it $what", 60;
	return;
}

my $holder = background($node);
my $idle = background($node);
my @waiters = map { background($node) } 1 .. 4;
$holder->query_safe("SELECT zk_lock('outage')");
$idle->query_safe("SELECT zk_lock('nothing'), zk_unlock('nothing')");
$_->start_query("SELECT zk_lock_shared('outage')") foreach @waiters;
# Their nodes can be there before they know of them, and who knows of none has nothing to tell.
my $monitor = background($node);
poll_until { $monitor->query_safe("SELECT count(*) FROM zk_backends WHERE waiting_for = 'outage'") == 4 }
'four to wait', 60;

subtest 'each backend with locks logs that its connection broke' => sub {
	is(scalar lines('.*'), 0, 'nothing is logged before the outage');
	$proxy->go_away;
	wait_for_lines('lost its connection', 4);
	my @lines = lines('lost its connection');
	like($lines[0], qr/ to server "\Q$address\E"\n.*DETAIL:  It keeps its locks .* in time\.$/, 'the line names the server and what becomes of the locks');
	wait_for_lines('lost its connection', 5, $holder, $idle);
	is(scalar lines('.*'), 5, 'the holder says it at its next statement; who has no lock is silent');
};

subtest 'each backend with locks logs that it is connected again' => sub {
	$proxy->heal;
	wait_for_lines('is connected again', 5, $holder, $idle);
	my @lines = lines('is connected again');
	like($lines[0], qr/again, to server "\Q$address\E"\n.*DETAIL:  It had no connection since 2/, 'the line says since when there was no connection');
	is(scalar lines('is lost'), 0, 'nothing is lost');
};

subtest 'each backend with locks logs that its session is lost, and why' => sub {
	my $other = background($node, route => $zk->connect_string, holds => 'other');
	kill_session_program($other);
	wait_for_lines('is lost', 1, $other);
	unlike((lines('is lost'))[0], qr/No contact with ZooKeeper/, 'a program that was killed is not reported as an outage');

	$proxy->go_away;
	# The loss may cancel the statement that looks for it.
	wait_for_lines('is lost', 6, $holder);
	like((lines('is lost'))[1], qr/ and its locks with it\n.*DETAIL:  No contact with ZooKeeper for 2[4-9]\d{3} ms, with a session timeout of 30000 ms\. Server "127\.0\.0\.1:\d+" .*\.$/,
		'the line says why the session is lost');
	$proxy->heal;
	$holder->query('SELECT zk_unlock_all()');
	$_->wait_result foreach @waiters;
	is(scalar lines('is lost'), 6, 'no backend logs another loss');
};
$_->quit foreach $holder, $idle, $monitor, @waiters;

subtest 'lines about the connection go to the log and not to the client' => sub {
	# A client that does not read must not hold up who lets go of locks.
	my $session = background($node);
	my $told = '';
	$session->query_safe("SET client_min_messages = debug1; SELECT zk_lock('each')");
	$proxy->reset_connections;
	poll_until
	{
		$session->query_safe('SELECT 1');
		$told .= $session->error;
		lines('is connected again') == 6
	}
	'it to be back', 30;
	unlike($told, qr/ZooKeeper session/, 'the client is told nothing');
};

done_testing();
