
# Sessions that find no server try again, and servers that elect a leader have
# their listeners up all the time: they hang up on whoever comes. Thousands of
# sessions at one short pace would keep them from it. So the pace slows down, and
# is not everybody's.

use IO::Select;
use IO::Socket::INET;
use Time::HiRes qw(time);
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $node = cluster('tokyo', $zk);

# When that session connects to a server that hangs up on it, until it gives up.
sub attempts ($timeout, $patience)
{
	my $listener = IO::Socket::INET->new(
		LocalAddr => '127.0.0.1',
		LocalPort => ZooKeeper::free_port(),
		Listen => 50,
		ReuseAddr => 1) or die "could not listen: $!";
	my $select = IO::Select->new($listener);
	my $session = background($node);
	$session->query_safe("SET zklock.servers = '127.0.0.1:" . $listener->sockport . "';
		SET zklock.session_timeout = '$timeout';
		SET zklock.connect_timeout = '$patience'");
	$session->start_query("SELECT zk_lock('nowhere')");
	my @times;
	until ($session->is_done)
	{
		next unless $select->can_read(0.02);
		$listener->accept->close;
		push @times, time();
	}
	assert_ends($session, '08001', 'could not connect');
	$session->quit;
	return @times;
}

sub pauses { return map { $_[$_] - $_[ $_ - 1 ] } 1 .. $#_; }

# The library's own pace, a sixtieth of the session timeout, were 24 attempts.
my @first = attempts('15s', '6s');
cmp_ok(scalar @first, '>=', 4, 'it tries again and again');
cmp_ok(scalar @first, '<=', 16, 'less and less often');

my @second = attempts('15s', '6s');
my @pauses = map { sprintf '%.2f', $_ } pauses(@first);
isnt("@pauses", join(' ', map { sprintf '%.2f', $_ } pauses(@second)),
	'another session has another pace');
my ($longest) = sort { $b <=> $a } pauses(@first), pauses(@second);
cmp_ok($longest, '<', 5, 'and no pause is a large part of the session timeout');

# A session with a lock, and a server that is away: it is back in time.
my $holder = background($node);
$holder->query_safe("SET zklock.session_timeout = '30s'");
$holder->query_safe("SELECT zk_lock('kept')");
my $id = $holder->query_safe('SELECT session_id FROM zk_session');
$zk->stop;
poll_until { $holder->query('SELECT state FROM zk_session') eq 'suspended' }
'the session to be suspended', 30;
$zk->start;
is($holder->query("SELECT zk_is_held('kept')"), 't', 'a lock survives the pauses');
is($holder->query_safe('SELECT session_id FROM zk_session'), $id, 'in its session');
$holder->quit;
assert_no_nodes($zk, lock_path('kept'), 'nothing left');

done_testing();
