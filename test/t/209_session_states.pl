
# With log_min_messages = debug1, each change of the state of a ZooKeeper session is a line of
# the server's log, with the session's number, its id, and the reason; and an idle session that
# was lost knows it at the next question. Tested with a proxy in front of a real server.

use Proxy;
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $proxy = Proxy->new($zk->connect_string);
my $node = cluster('berlin', $zk, servers => $proxy->address,
	'zklock.session_timeout' => '30s');
my $address = $proxy->address;

# The lines of that session: after its number and id.
sub lines ($number)
{
	my @lines = slurp_file($node->logfile) =~ /DEBUG:  zklock: session $number, (0x[0-9a-f]+: .*)/g;
	return @lines;
}

# Wait for a line; the session looks now and then, as only its own process writes the log.
sub wait_for_line ($session, $pattern, $what)
{
	assert_soon { $session->query('SELECT * FROM zk_session'); grep { /$pattern/ } lines(1) } $what, 60;
	return;
}

my $session = background($node);
$session->query_safe('SET log_min_messages = debug1');

subtest 'the log tells each state of a session from its opening to its loss' => sub {
	$session->query_safe("SELECT zk_lock('told')");
	my @lines = lines(1);
	is($lines[0], '0x0: none -> opening: asked for, with a session timeout of 30000 ms', 'it is asked for');
	like($lines[1], qr/^0x[0-9a-f]{6,}: opening -> connected: server "\Q$address\E", session timeout 30000 ms$/,
		'it is granted, with which id, for how long');
	is(scalar @lines, 2, 'no more is told of it while nothing changes');
	$proxy->go_away;
	wait_for_line($session, qr/: connected -> suspended: no connection to server "\Q$address\E" for \d+ ms$/,
		'it is suspended');
	$proxy->heal;
	wait_for_line($session, qr/: suspended -> connected: server "\Q$address\E"/, 'it is connected again');
	kill_session_program($session);
	wait_for_line($session, qr/: (?:connected|suspended) -> lost: The program of the session, process \d+, has ended\.$/,
		'it is lost, and why');
};

subtest 'the log tells the next session of a backend under another number' => sub {
	$session->query('SELECT zk_unlock_all()');
	$session->query_safe("SELECT zk_lock('told')");
	like((lines(1))[-1], qr/: lost -> none: closed$/, 'the first one is closed');
	like((lines(2))[-1], qr/: opening -> connected: /, 'the second one is granted');
	$session->query_safe('SELECT zk_disconnect()');
	like((lines(2))[-1], qr/: connected -> none: closed$/, 'the second session is closed');
};
$session->quit;

# A program that stands still sends no news: the backend finds out by the clock, when it looks.
# Whatever an idle session is asked first has to look.
subtest 'the first question after a loss is answered by a session that knows it' => sub {
	$node->safe_psql('postgres', 'CREATE TABLE asked (what text)');
	my @questions = (
		[ "SELECT zk_fencing_token('first/0') IS NULL", '00000', 't' ],
		[ "SELECT state FROM zk_session_locks WHERE name = 'first/1'", '00000', 'lost' ],
		[ 'SELECT state FROM zk_session', '00000', 'lost' ],
		[ "SELECT zk_unlock('first/3')", '00000', 'f' ],
		[ "SELECT zk_is_held('first/4')", '00000', 'f' ],
		[ "SELECT zk_lock('first/5')", '40001', '' ],
		[ "SELECT zk_fence('first/6')", '55000', '' ],
		[ "INSERT INTO asked VALUES ('late')", '40001', '' ],
	);
	my @sessions = map {
		background($node, 'zklock.session_timeout' => '3s', holds => "first/$_")
	} 0 .. $#questions;
	my $timeout_ms = $sessions[0]->query_safe('SELECT session_timeout_ms FROM zk_session');
	my @programs = session_programs(map { $_->pid } @sessions);
	kill STOP => @programs;
	sleep 2 + int($timeout_ms / 1000);    # by then the sessions are over, whoever looks
	foreach my $i (0 .. $#questions)
	{
		my ($sql, $state, $result) = @{ $questions[$i] };
		is($sessions[$i]->query($sql), $result, $sql);
		is($sessions[$i]->sqlstate, $state, 'the SQLSTATE of that question') or diag($sessions[$i]->error);
	}
	kill KILL => @programs;
	is(ask($node, 'SELECT count(*) FROM asked'), 0, 'nothing was written');
	assert_no_nodes($zk, lock_path("first/$_")) foreach 0 .. $#questions;
};

done_testing();
