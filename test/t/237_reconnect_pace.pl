
# Sessions that find no server try again at a pace that slows down and differs between them, so
# that thousands of them do not keep servers from electing a leader. Tested by counting the
# attempts at a listener that hangs up on whoever connects.

use IO::Select;
use IO::Socket::INET;
use Proxy;
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $node = cluster('tokyo', $zk);

# When that session connects to a server that hangs up on it, until it gives up; there may be others.
sub attempts ($timeout, $patience, $others = '')
{
	my $listener = IO::Socket::INET->new(
		LocalAddr => '127.0.0.1',
		LocalPort => ZooKeeper::free_port(),
		Listen => 50,
		ReuseAddr => 1) or die "could not listen: $!";
	my $select = IO::Select->new($listener);
	my $session = background($node, 'zklock.servers' => '127.0.0.1:' . $listener->sockport . $others,
		'zklock.session_timeout' => $timeout, 'zklock.connect_timeout' => $patience);
	$session->start_query("SELECT zk_lock('nowhere')");
	my @times;
	until ($session->is_done)
	{
		next unless $select->can_read(0.02);
		$listener->accept->close;
		push @times, time();
	}
	assert_ends($session, '08001', 'could not connect');
	return @times;
}

sub pauses { return map { $_[$_] - $_[ $_ - 1 ] } 1 .. $#_; }

# The library's own pace, a sixtieth of the session timeout, were 24 attempts.
my @first = attempts('15s', '6s');
cmp_ok(scalar @first, '>=', 4, 'a session without a server tries again and again');
cmp_ok(scalar @first, '<=', 16, 'a session without a server tries less and less often');

my @second = attempts('15s', '6s');
my @pauses = map { sprintf '%.2f', $_ } pauses(@first);
isnt("@pauses", join(' ', map { sprintf '%.2f', $_ } pauses(@second)),
	'another session has another pace');
my ($longest) = sort { $b <=> $a } pauses(@first), pauses(@second);
cmp_ok($longest, '<', 5, 'no pause is a large part of the session timeout');

# A server that grants a session, as the client asks for it, and hangs up without another word
# may do so for ever. It has none of the first pauses again only because it takes connections.
my $port = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 50, ReuseAddr => 1) or die "could not listen: $!";
my $granted = background($node, 'zklock.servers' => '127.0.0.1:' . $port->sockport, 'zklock.session_timeout' => '15s');
$granted->start_query("SELECT zk_lock('nowhere', '6s')");
my $ngrants = 0;
until ($granted->is_done)
{
	next unless IO::Select->new($port)->can_read(0.02);
	my $client = $port->accept;
	my $handshake = '';
	sysread $client, $handshake, 1000;
	next unless length $handshake >= 44;
	# Its timeout, a number for it, and a password.
	syswrite $client, pack 'N N a4 q> N a16 C', 37, 0, substr($handshake, 16, 4), 42, 16, 'secret', 0;
	sysread $client, my $request, 1000;
	close $client;
	$ngrants++;
}
assert_ends($granted, '55P03', 'could not obtain lock');
cmp_ok($ngrants, '>=', 2, 'a session that was granted and hears no more tries again');
cmp_ok($ngrants, '<=', 16, 'a session that was granted and hears no more tries less and less often');
$granted->quit;
$port->close;

# One that is silent has its three seconds, and a part of them then, while another one answers.
# The other one would come twice or thrice otherwise.
my $silent = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 50) or die "could not listen: $!";
my @beside = attempts('15s', '9s', ',127.0.0.1:' . $silent->sockport);
cmp_ok(scalar @beside, '>', 5, 'a silent server takes up less and less');

# A session with a lock, and a server that is away: it is back in time.
my $holder = background($node, 'zklock.session_timeout' => '30s', holds => 'kept');
my $id = $holder->query_safe('SELECT session_id FROM zk_session');
$zk->stop;
poll_until { $holder->query('SELECT state FROM zk_session') eq 'suspended' } 'the session to be suspended', 30;
$zk->start;
is($holder->query("SELECT zk_is_held('kept')"), 't', 'a lock survives the pauses');
is($holder->query_safe('SELECT session_id FROM zk_session'), $id, 'the lock survives in its session');
assert_leave_nothing($zk, lock_path('kept'), $holder);

# The only good server is silent for one attempt. It has its turn again, though the other one is
# quick to hang up. That one comes twice between two of its turns, and not thrice.
my $rude = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 50) or die "could not listen: $!";
my $proxy = Proxy->new('127.0.0.1:' . $zk->port);

# Close each connection that comes there, until that is so of how many have come.
sub hang_up ($until)
{
	my ($count, $deadline) = (0, time + 120);
	until ($until->($count))
	{
		die 'it takes too long' if time > $deadline;
		next unless IO::Select->new($rude)->can_read(0.02);
		$rude->accept->close;
		$count++;
	}
	return;
}

$holder = background($node, 'zklock.session_timeout' => '30s',
	'zklock.servers' => '127.0.0.1:' . $rude->sockport . ',' . $proxy->address);
$holder->start_query("SELECT zk_lock('only')");
hang_up(sub { $holder->is_done });
like($holder->wait_result, qr/^\d+$/, 'a lock of the good one');
$id = $holder->query_safe('SELECT session_id FROM zk_session');
$proxy->cut;
$proxy->reset_connections;
hang_up(sub ($count) { $count == 3 });
$proxy->heal;
$holder->start_query("SELECT zk_is_held('only')");
hang_up(sub { $holder->is_done });
is($holder->wait_result, 't', 'survives its silence');
is($holder->query_safe('SELECT session_id FROM zk_session'), $id, 'in its session');
$holder->quit;

# A session that is lost soon shares the time to connect with the next one, of the same
# call. Later calls have a time of their own; that of the last one is over here.
my $young = background($node, 'zklock.connect_timeout' => '1min', holds => 'young');
# On a busy machine its answer may take longer.
$young->query_safe("SET zklock.connect_timeout = '100ms'");
poll_until { $young->query("SELECT zk_unlock_all(), zk_lock('young')"); $young->sqlstate eq '00000' } 'an answer';
$young->query_safe("SET zklock.connect_timeout = '1min'; SELECT zk_unlock('young'), pg_sleep(0.2)");
my ($number, $program) = $young->query_safe('SELECT session_id, program_pid FROM zk_session') =~ /^0x([0-9a-f]+)\|(\d+)$/;
# Who stands still does not take its session back.
kill STOP => $program;
$zk->client(session => session_number($number))->close;
kill CONT => $program;
poll_until { $young->query('SELECT state FROM zk_session') eq 'lost' } 'the session to be lost', 30;
assert_query($young, "SELECT zk_try_lock('young')", '00000', 'the next call has its time to connect');
$young->quit;

done_testing();
