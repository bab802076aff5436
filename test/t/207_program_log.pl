
# With log_min_messages = debug1, each state of a session in its zklock-session program is a line
# of the server's log, with the reason. Tested with a proxy in front of a real server.

use Proxy;
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $proxy = Proxy->new($zk->connect_string);
my $node = cluster('berlin', $zk, servers => $proxy->address,
	'zklock.session_timeout' => '4s');
my $address = $proxy->address;
my $from = 0;

# The log from there on, and the program's lines in it.
sub log_text () { return substr slurp_file($node->logfile), $from; }
sub lines ()
{
	my @lines = log_text() =~ /DEBUG:  zklock: program of session 0x[0-9a-f]+: at [\d:.]{12} UTC: (.*)/g;
	return @lines;
}

# Wait for a line; the session looks now and then, as only its own process writes the log.
sub wait_for_line ($session, $pattern, $what)
{
	assert_soon { $session->query('SELECT 1; SELECT zk_is_held(\'told\')'); grep { /$pattern/ } lines() } $what, 60;
	return;
}

my $session = background($node);

subtest "the program's lines tell each state of a session and why it changed" => sub {
	$session->query_safe("SET log_min_messages = debug1");
	$session->query_safe("SELECT zk_lock('told')");
	wait_for_line($session, qr/^connects to \Q$address\E$/, 'to whom it connects');
	wait_for_line($session, qr/^connecting -> connected: server "\Q$address\E" grants session 0x[0-9a-f]+ a timeout of 4000 ms$/,
		'that it is connected, for how long');
	$proxy->reset_connections;
	wait_for_line($session, qr/^connected -> suspended: Server "\Q$address\E" closed the connection; lost in \d+ ms unless it is connected again$/,
		'that it is suspended, and why');
	wait_for_line($session, qr/^suspended -> connected: server "\Q$address\E"/, 'that it is connected again');
	$proxy->go_away;
	wait_for_line($session, qr/^suspended -> lost: no contact for the session timeout: /, 'that it is lost, and why');
	$proxy->heal;
	$session->query('SELECT zk_unlock_all()');
};

subtest "the program's lines are not logged without debug1" => sub {
	my $other = background($node);
	$from = -s $node->logfile;
	$other->query_safe("SELECT zk_lock('told')");
	$proxy->reset_connections;
	assert_soon { $other->query_safe('SELECT 1'); log_text() =~ /is connected again/ } 'the session is connected again', 60;
	is(scalar lines(), 0, 'the log has no line of the program');
	$other->quit;
};
$session->quit;

done_testing();
