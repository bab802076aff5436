
# A try answers "false" to a job that asks whether it runs elsewhere, and the job is
# skipped. So false must be the ensemble's word: where nobody has answered, a try
# raises, whichever of its bounds comes first.

use strict;
use warnings;

use Proxy;
use Test::More;
use Time::HiRes qw(time);
use ZkLockTest;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my $proxy = Proxy->new($zk->connect_string);
my $berlin = cluster('berlin', $zk,
	servers => $proxy->address,
	'zklock.session_timeout' => '15s',
	'zklock.connect_timeout' => '30s');
my $paris = cluster('paris', $zk);
my $rival = background($paris);

# How the ensemble is unreachable, and how it comes back.
my %trouble = (
	'stopped' => [ sub { $zk->stop; }, sub { $zk->start; } ],
	'paused' => [ sub { $zk->pause; }, sub { $zk->resume; } ],
	'behind a network that swallows everything' =>
	  [ sub { $proxy->cut; }, sub { $proxy->heal; } ],
	'behind one whose replies are lost' =>
	  [ sub { $proxy->cut('replies'); }, sub { $proxy->heal; } ]);

# Every kind of try, with settings of its own.
my @tries = (
	[ "zk_try_lock('asked', '300ms')" ],
	[ "zk_try_lock_shared('asked', '300ms')" ],
	[ "zk_try_xact_lock('asked', '300ms')" ],
	[ "zk_try_xact_lock_shared('asked', '300ms')" ],
	[ "zk_try_lock('asked', '300ms', permits => 2)" ],
	[ "zk_try_lock(ARRAY['asked', 'asked too'], '300ms')" ],
	[ "zk_try_xact_lock(ARRAY['asked', 'asked too'], '300ms')" ],
	[ "zk_try_lock_path('asked/below', '300ms')" ],
	[ "zk_try_xact_lock_path_shared('asked/below', '300ms')" ],
	[ "zk_try_lock('asked', '1 hour')", "lock_timeout = '300ms'" ],
	[ "zk_try_lock('asked')", "lock_timeout = '300ms'" ],
	[ "zk_try_lock('asked')", "zklock.connect_timeout = '300ms'" ],
	[ "zk_try_lock(ARRAY['asked', 'asked too'])", "zklock.connect_timeout = '300ms'" ]);

# Not so with those that say themselves that the time was too short.
my @waits = (
	[ "zk_lock('asked', '300ms')" ],
	[ "zk_lock(ARRAY['asked', 'asked too'], '300ms')" ],
	[ "zk_lock('asked')", "lock_timeout = '300ms'" ],
	[ "zk_hold('asked', 'why', '300ms')" ],
	[ "zk_run_once('asked', 'slot')", "lock_timeout = '300ms'" ],
	[ "zk_request_release('asked')", "lock_timeout = '300ms'" ],
	[ "count(*) FROM zk_lock_queue('asked')", "lock_timeout = '300ms'" ]);

# A session that has been connected, or not.
sub session
{
	my ($is_connected) = @_;
	my $session = background($berlin);
	$session->query_safe("SELECT zk_lock('connect'), zk_unlock('connect')")
	  if $is_connected;
	return $session;
}

# How long a statement took that was given under a setting of its own.
sub ask
{
	my ($session, $sql, $setting) = @_;
	$session->query_safe('RESET ALL');
	$session->query_safe("SET $setting") if $setting;
	my $start = time;
	$session->query("SELECT $sql");
	return time - $start;
}

# Whatever was asked, nothing came of it.
sub nothing_left
{
	my ($session) = @_;
	$session->query_safe('RESET ALL');
	is($session->query_safe('SELECT count(*) FROM zk_locks'), 0, 'nothing is held');
	is( $session->query_safe(
			"SELECT zk_try_lock(ARRAY['asked', 'asked/below', 'asked too'], '30s')"),
		't',
		'the ensemble is back: all is free');
	$session->query_safe('SELECT zk_unlock_all()');
	$session->quit;
	assert_no_nodes($zk, lock_path('asked/below'), 'nothing left below');
	is(scalar grep({ $_->[0] =~ m{/asked} } $zk->ephemerals('/')),
		0, 'nor anywhere');
}

foreach my $what (sort keys %trouble)
{
	my ($break, $mend) = @{ $trouble{$what} };
	foreach my $is_connected (0, 1)
	{
		my $since = $is_connected ? 'after' : 'before';
		subtest "$what, $since the first connection" => sub {
			my $session = session($is_connected);
			$break->();
			foreach my $try (@tries)
			{
				my $took = ask($session, @$try);
				my $name = join ' with ', @$try;
				is($session->sqlstate, '08001', $name);
				cmp_ok($took, '<', 3, 'in its time');
				like($session->error,
					qr/^DETAIL:  .+\nHINT:  .+/m, 'with DETAIL and HINT');
			}
			foreach my $wait (@waits)
			{
				ask($session, @$wait);
				my $name = join ' with ', @$wait;
				is($session->sqlstate, '55P03', $name);
				like($session->error,
					qr/^DETAIL:  (There was no connection to ZooKeeper|The connection to ZooKeeper is down|ZooKeeper has not answered)\.(?: .*)?$/m,
					'which says that nobody has answered');
			}
			$mend->();
			nothing_left($session);
		};
	}
}

# Once the ensemble has said that somebody is ahead, false is true, unless that has
# been known for no more than a broken connection.
subtest 'trouble in the middle of a wait' => sub {
	$rival->query_safe("SELECT zk_lock('middle')");
	my $session = session(1);
	is($session->query_safe("SELECT zk_try_lock('middle', '300ms')"),
		'f', 'busy');
	is($session->error, '', 'without a word');
	is( $session->query_safe("SELECT zk_try_lock(ARRAY['middle', 'middle too'], '300ms')"),
		'f', 'so are several');
	$session->query("SELECT zk_lock('middle', '300ms')");
	is($session->sqlstate, '55P03', 'a lock raises');
	unlike($session->error, qr/ZooKeeper has not answered|connection to ZooKeeper/, 'and does not complain of the ensemble');

	$session->start_query("SELECT zk_try_lock('middle', '8s')");
	wait_for_queue($zk, lock_path('middle'), 2);
	wait_for_wait($berlin, $session->pid);
	$proxy->refuse;
	$proxy->reset_connections;
	$session->wait_result;
	is($session->sqlstate, '08001', 'the connection was lost on the way');
	like($session->error, qr/The connection to ZooKeeper is down/, 'as it says');
	$proxy->heal;
	wait_for_queue($zk, lock_path('middle'), 1);

	$session->start_query("SELECT zk_try_lock('middle', '8s')");
	wait_for_queue($zk, lock_path('middle'), 2);
	wait_for_wait($berlin, $session->pid);
	$proxy->cut;
	is($session->wait_result, 'f', 'a silence that nobody has noticed yet');
	$proxy->heal;
	wait_for_queue($zk, lock_path('middle'), 1);
	$rival->query_safe('SELECT zk_unlock_all()');
	is($session->query_safe("SELECT zk_try_lock('middle', '30s')"), 't', 'it is free');
	$session->quit;
	assert_no_nodes($zk, lock_path('middle'), 'nothing left');
};

$rival->quit;
done_testing();
