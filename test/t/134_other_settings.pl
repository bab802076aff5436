
# A session whose zklock.root was changed does its next request at the new place: it reads and
# deletes there, and not where it was before.

use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk, 'zklock.root' => '/locks');
my $client = $zk->client;
my $session = background($node);

sub go_to ($there, $chroot)
{
	$there->query_safe("SET zklock.root = '/$chroot/locks'");
	return;
}

# A holder, a hold and a record at each place, to be told apart by their pids.
my %keeper = map { $_ => background($node) } qw(here there);
foreach my $place (sort keys %keeper)
{
	go_to($keeper{$place}, $place);
	$keeper{$place}->query_safe("SELECT zk_run_once('job', slot::text), zk_hold('hold' || slot, 'why'),
		zk_lock('lock' || slot) FROM generate_series(1, 3) AS slot");
}

# Have a session with one place, and then the settings of the other.
sub move ($from, $to)
{
	go_to($session, $from);
	$session->query_safe("SELECT zk_try_lock('free'), zk_unlock_all()");
	go_to($session, $to);
	return;
}

sub at ($place, $path) { return "/$place/locks/$path"; }

foreach ([ qw(here there) ], [ qw(there here) ])
{
	my ($from, $to) = @$_;
	subtest "a session moved from $from to $to reads and deletes there only" => sub {
		my $pid = $keeper{$to}->pid;
		my %token = map { $_ => $keeper{$to}->query_safe("SELECT token FROM zk_lock_queue('$_')") } qw(hold1 lock1);
		my $asks = sub ($sql, $expected) {
			move($from, $to);
			is($session->query_safe("SELECT $sql"), $expected, $sql);
		};

		$asks->("pid FROM zk_lock_queue('lock1')", $pid);
		$asks->("pid FROM zk_runs('job') WHERE slot = '2'", $pid);
		$asks->("count(*) FROM zk_all_locks() WHERE name LIKE '%1'", 2);
		$asks->("zk_forget_run('job', '1')", 't');
		ok(!$client->exists(at($to, '.once/job.once/1.once')), 'the record at the new place is deleted');
		$asks->("zk_run_once('job', '1')", 't');
		is(scalar(grep { $client->exists(at($_, '.once/job.once/1.once')) } qw(here there)),
			2, 'no record of the old place is deleted');

		$asks->("zk_request_release('lock1')", 1);
		# who listens already is told a little later
		assert_becomes { $keeper{$to}->query_safe("SELECT zk_release_requested('lock1')") } 't', 'the holder at the new place is asked';
		is($keeper{$from}->query_safe("SELECT zk_release_requested('lock1')"),
			'f', 'the holder at the old place is not asked')
		  if $from eq 'here';

		$asks->("zk_release_hold('hold1', $token{hold1})", 't');
		$asks->("zk_evict('lock1', $token{lock1})", 't');
		assert_knows_loss($keeper{$to}, 'lock1', 'the holder at the new place has lost its lock');
		assert_nodes($zk, at($to, 'hold2'), 1, 'other queue nodes stay');
		$keeper{$to}->query('SELECT zk_unlock_all()');
	};
}

done_testing();
