
# What the server's log tells of an outage: one line for each cause, however many
# backends are concerned, by those that hold or wait for locks.

use strict;
use warnings;

use Proxy;
use PostgreSQL::Test::Utils qw(slurp_file);
use Test::More;
use Time::HiRes qw(time);
use ZkLockTest;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my $proxy = Proxy->new($zk->connect_string);
my $node = cluster('berlin', $zk, servers => $proxy->address,
	'shared_preload_libraries' => 'zklock', 'zklock.session_timeout' => '30s');
my $alone = cluster('paris', $zk, servers => $proxy->address, 'zklock.session_timeout' => '30s');
my $monitor = background($node);
my $address = $proxy->address;
my $offset = 0;

sub from_here { $offset = -s $node->logfile; return; }

# The lines of that kind since then, each with its DETAIL.
sub lines
{
	my ($what, $of) = @_;
	my $log = slurp_file(($of || $node)->logfile, $of ? 0 : $offset);
	my @lines = $log =~ /LOG:  (ZooKeeper session 0x[0-9a-f]+ (?:$what).*(?:\n.*DETAIL:  .*)?)/g;
	return @lines;
}

# Until so many with locks are; those given look now and then.
sub wait_for_state
{
	my ($state, $count, @sessions) = @_;
	poll_until
	{
		$_->query_safe('SELECT 1') foreach @sessions;
		$monitor->query_safe("SELECT count(*) FROM zk_backends WHERE state = '$state'
			AND (held > 0 OR waiting_for IS NOT NULL)") == $count
	}
	"$count to be $state", 30;
	return;
}

my $holder = background($node);
my $idle = background($node);
my @waiters = map { background($node) } 1 .. 4;
$holder->query_safe("SET zklock.on_lock_loss = wait; SELECT zk_lock('outage')");
$idle->query_safe("SELECT zk_lock('nothing'), zk_unlock('nothing')");
$_->start_query("SELECT zk_lock_shared('outage')") foreach @waiters;
wait_for_queue($zk, lock_path('outage'), 5);
my $told_at;

subtest 'an outage' => sub {
	is(scalar lines('.*'), 0, 'nothing to be told yet');
	$proxy->refuse;
	$proxy->reset_connections;
	wait_for_state('suspended', 4);
	poll_until { lines('lost its connection') } 'the line', 10;
	my @lines = lines('lost its connection');
	is(scalar @lines, 1, 'one of four that wait tells');
	like($lines[0], qr/ to server "\Q$address\E"\n.*DETAIL:  It keeps its locks .* in time\./,
		'what');
	like($lines[0], qr/ Other backends that hold or wait for locks and used the same server, as far as they have noticed: [1-4]\./,
		'and for whom besides');
	wait_for_state('suspended', 5, $holder, $idle);
	is(scalar lines('.*'), 1, 'the holder sees it at its next statement, and is silent');
};

subtest 'its end' => sub {
	$proxy->heal;
	wait_for_state('connected', 4);
	my @lines = lines('is connected again');
	is(scalar @lines, 1, 'one tells');
	like($lines[0], qr/again, to server "\Q$address\E"\n.*DETAIL:  It had no connection since 2/, 'since when');
	wait_for_state('connected', 5, $holder, $idle);
	is(scalar lines('is connected again'), 1, 'the others are silent');
	is(scalar lines('is lost'), 0, 'nothing is lost');
	# Of either kind.
	$told_at = time;
};

subtest 'the next outage' => sub {
	poll_until { time > $told_at + 10.5 } 'the silence to be over', 20;
	from_here();
	$proxy->reset_connections;
	poll_until { lines('is connected again') } 'the end of it', 30;
	my @lines = lines('lost its connection|is connected again');
	like($lines[0], qr/ Lines about the like that were left out since the last one: 4\./,
		'tells of those who did not');
	poll_until
	{
		$monitor->query_safe('SELECT reconnects FROM zk_stat') >= 9
	}
	'all waiters to be back', 30;
};

subtest 'a loss' => sub {
	my $other = background($node);
	$other->query_safe("SET zklock.servers = '" . $zk->connect_string . "';
		SET zklock.on_lock_loss = wait; SELECT zk_lock('other')");
	from_here();
	$proxy->refuse;
	$proxy->reset_connections;
	poll_until { $holder->query_safe('SELECT 1'); lines('is lost') } 'the loss', 60;
	my @lines = lines('is lost');
	is(scalar @lines, 1, 'one tells');
	like($lines[0], qr/ and its locks with it\n.*DETAIL:  No contact with ZooKeeper for the session timeout of 30000 ms\./,
		'why');

	# Within ten seconds of the other one, unless this machine is slow.
	my ($program) = session_programs($other->pid);
	kill 'KILL', $program;
	poll_until { $other->query_safe('SELECT 1'); lines('is lost') == 2 } 'another loss', 30;
	@lines = lines('is lost');
	unlike($lines[1], qr/No contact with ZooKeeper/, 'one for another reason is told at once');
	$proxy->heal;
	$holder->query('SELECT zk_unlock_all()');
	$_->wait_result foreach @waiters;
	is(scalar lines('is lost'), 2, 'and nobody else');
	$other->quit;
};
$_->quit foreach $holder, $idle, @waiters;

subtest 'not preloaded' => sub {
	my @holders = map { background($alone) } 1 .. 2;
	# A client that does not read must not hold up who lets go of locks.
	$_->query_safe("SET client_min_messages = debug1; SET log_min_messages = debug1;
		SELECT zk_lock('each/' || pg_backend_pid())") foreach @holders;
	my $told = '';
	$proxy->reset_connections;
	foreach my $session (@holders)
	{
		poll_until
		{
			my $is_back = $session->query_safe('SELECT count(*) FROM zk_stat WHERE reconnects > 0');
			$told .= $session->error;
			$is_back
		}
		'it to be back', 30;
	}
	poll_until { lines('is connected again', $alone) == 2 } 'both to tell', 30;
	pass('each for itself');
	unlike($told, qr/ZooKeeper session/, 'not to its client');
	$_->quit foreach @holders;
};

$monitor->quit;
$proxy->stop;
done_testing();
