
# An ensemble that answers nothing any more holds up no end of a backend, in no state of its
# session, by no signal: what its program still tries to tell the ensemble, it does alone. Tested
# with a real server that is paused, or behind a proxy that swallows everything. And where requests
# arrive, and replies do not, a session that was given up is not kept alive by the attempts to end it.

use Faults;
use Preload;
use Proxy;
use ZkLockTest;

# What an end may take on a busy machine, in seconds. Of that a backend gives its
# program 0.2 s to close the session.
my $at_once = 15;

my $zk = ZooKeeper->new->start;
my $proxy = Proxy->new('127.0.0.1:' . $zk->port);
my %silence = (
	'stopped' => [ sub { $zk->pause }, sub { $zk->resume } ],
	'cut off' => [ sub { $proxy->cut }, sub { $proxy->heal } ]);

# The program of this cluster's sessions looks up names for as long as it likes, if
# they are of the kind that takes long.
my $preload = Preload::library('odd_names') or plan skip_all => 'there is no compiler';
my $node = cluster('berlin', $zk,
	servers => $proxy->address,
	environment => { LD_PRELOAD => $preload },
	'zklock.connect_timeout' => '1min',
	'zklock.session_timeout' => '20s',
	'zklock.commit_guard' => 'quorum');
$node->safe_psql('postgres', 'CREATE TABLE work (n int)');

# A session in each of the states in which it has to do with the ensemble, which
# falls silent on the way.
sub sessions_in_silence ($fall_silent)
{
	my %session = map { $_ => background($node, $_ eq 'looking up names' ? ('zklock.servers' => 'slow.zookeeper:2181') : ()) } (
		'idle with a lock', 'in a wait', 'asking for a lock it holds',
		'releasing', 'in the commit guard', 'connecting', 'looking up names');
	$session{'idle with a lock'}->query_safe("SELECT zk_lock('busy')");
	start_in_queue($session{'in a wait'}, "SELECT zk_lock('busy')", $zk, lock_path('busy'), 2);
	$session{'asking for a lock it holds'}->query_safe("SELECT zk_lock('held')");
	$session{'releasing'}->query_safe("SELECT zk_lock('let go')");
	$session{'in the commit guard'}->query_safe(
		"BEGIN; SELECT zk_xact_lock('commit'); INSERT INTO work VALUES (1)");

	$fall_silent->();
	$session{'asking for a lock it holds'}->start_query("SELECT zk_is_held('held')");
	$session{'releasing'}->query_safe("SELECT zk_unlock('let go')");
	$session{'in the commit guard'}->start_query('COMMIT');
	$session{$_}->start_query("SELECT zk_lock('new')")
	  foreach 'connecting', 'looking up names';
	wait_for_wait($node, $session{$_}->pid)
	  foreach grep { !/idle|releasing/ } sort keys %session;
	return %session;
}

# Seconds until none of these processes is there.
sub seconds_until_gone
{
	my @pids = @_;
	my $since = time;
	poll_until { !grep { -d "/proc/$_" } @pids } 'backends to end', 60;
	return time - $since;
}

# Each attempt to connect counts for the ensemble as a sign of life.
subtest 'a session that was given up blocks its queue for no longer than docs/safety.md says' => sub {
	my $timeout = 5;
	my $faults = Faults->new($zk->connect_string);
	my %way = map { $_ => $faults->way } qw(stays ends);
	my %holder = map { $_ => background($node, 'zklock.servers' => "127.0.0.1:$way{$_}",
		'zklock.session_timeout' => "${timeout}s", holds => $_) } keys %way;
	my %waiter = map { $_ => background($node, 'zklock.servers' => $zk->connect_string) } keys %way;
	start_in_queue($waiter{$_}, "SELECT zk_lock('$_', '8min')", $zk, lock_path($_), 2) foreach keys %way;

	my $since = time;
	$faults->arm($_, 'unheard', 0) foreach values %way;
	# An idle backend does not learn of the loss.
	wait_for_loss($holder{ends});
	$holder{ends}->terminate;
	poll_until { $waiter{ends}->is_done && $waiter{stays}->is_done } 'both locks to be granted', 10 * $timeout;
	my $took = time - $since;
	like($waiter{$_}->wait_result, qr/^\d+$/, "the backend $_: the waiter has the lock") foreach keys %way;
	in_time($took, 3.5 * $timeout, 'the waiters have the locks in time');
	note(sprintf '%.1f s', $took);
	$faults->heal($_, 'reset') foreach values %way;
	$_->quit foreach values %waiter, $holder{stays};
};

foreach my $how (sort keys %silence)
{
	my ($fall_silent, $speak) = @{ $silence{$how} };

	subtest "backends end at once one by one, ensemble $how" => sub {
		my %session = sessions_in_silence($fall_silent);
		foreach my $state (sort keys %session)
		{
			$session{$state}->terminate;
			my $took = seconds_until_gone($session{$state}->pid);
			in_time($took, $at_once, $state);
			note(sprintf '%.2f s', $took);
		}
		is(ask($node, 'SELECT count(*) FROM work'), '0', 'what could not be proved is not committed');
		$speak->();
		assert_soon { !$zk->ephemerals(lock_path('')) } 'their programs end the sessions when they can', 30;
	};

	foreach my $mode (qw(fast immediate))
	{
		subtest "a server stops at once, $mode shutdown, ensemble $how" => sub {
			my %session = sessions_in_silence($fall_silent);
			my @pids = map { $_->pid } values %session;
			my @programs = session_programs(@pids);
			cmp_ok(scalar @programs, '>=', 6, 'sessions have programs');
			my ($looking) = session_programs($session{'looking up names'}->pid);
			my $since = time;
			# The one whose servers have names that are looked up is beside the other one.
			my @nodes = ($node, $session{'looking up names'}->node);
			$_->stop($mode) foreach @nodes;
			my $took = time - $since;
			in_time($took, 2 * $at_once, 'both servers stop');
			note(sprintf '%.2f s', $took);
			in_time(seconds_until_gone($looking), $at_once,
				'a program that looks up names ends at once');
			$speak->();
			assert_soon { !grep { -d "/proc/$_" } @programs } 'no program is left', 50;
			# A session that could not be ended has its timeout left.
			assert_soon { !$zk->ephemerals(lock_path('')) } 'no node of a session is left', 50;
			local $ENV{LD_PRELOAD} = $preload;
			$_->start foreach @nodes;
		};
	}
}

done_testing();
