
# A session whose settings have changed, here to another chroot, goes there with
# whatever it does next: it reads and deletes there, and not where it was before.

use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk, 'zklock.root' => '/locks');
my $client = $zk->client;
my $session = background($node);

sub go_to ($there, $chroot)
{
	$there->query_safe("SET zklock.servers = '" . $zk->connect_string . "/$chroot'");
	return;
}

# A holder, a hold and a record at each place, to be told apart by their pids.
my %keeper = map { $_ => background($node) } qw(here there);
foreach my $place (sort keys %keeper)
{
	go_to($keeper{$place}, $place);
	$keeper{$place}->query_safe("SELECT zk_run_once('job', slot::text),
		zk_hold('hold' || slot, 'why') FROM generate_series(1, 3) AS slot");
	$keeper{$place}->query_safe(
		"SELECT zk_lock('lock' || i) FROM generate_series(1, 3) AS i");
}

# Have a session with one place, and then the settings of the other.
sub move ($from, $to)
{
	go_to($session, $from);
	$session->query_safe("SELECT zk_try_lock('free'), zk_unlock_all()");
	go_to($session, $to);
	return;
}

sub at ($place, $path)
{
	return "/$place/locks/$path";
}

foreach ([ qw(here there) ], [ qw(there here) ])
{
	my ($from, $to) = @$_;
	subtest "from $from to $to" => sub {
		my $pid = $keeper{$to}->pid;
		my $token = {};
		foreach my $lock ('hold1', 'lock1')
		{
			$token->{$lock} =
			  $keeper{$to}->query_safe("SELECT token FROM zk_lock_queue('$lock')");
		}

		move($from, $to);
		is($session->query_safe("SELECT pid FROM zk_lock_queue('lock1')"), $pid, 'zk_lock_queue');
		move($from, $to);
		is($session->query_safe("SELECT pid FROM zk_runs('job') WHERE slot = '2'"), $pid, 'zk_runs');
		move($from, $to);
		is($session->query_safe("SELECT count(*) FROM zk_all_locks() WHERE name LIKE '%1'"),
			2, 'zk_all_locks');

		move($from, $to);
		is($session->query_safe("SELECT zk_forget_run('job', '1')"), 't', 'zk_forget_run');
		ok(!$client->exists(at($to, '.once/job.once/1.once')), 'deletes the one');
		move($from, $to);
		is($session->query_safe("SELECT zk_run_once('job', '1')"), 't', 'zk_run_once');
		is(scalar(grep { $client->exists(at($_, '.once/job.once/1.once')) } qw(here there)),
			2, 'and not the other');

		move($from, $to);
		is($session->query_safe("SELECT zk_request_release('lock1')"), '1', 'zk_request_release');
		# who listens already is told a little later
		ok(eval {
				poll_until {
					$keeper{$to}->query_safe("SELECT zk_release_requested('lock1')") eq 't';
				} 'the news', 20;
			}, 'asks the one');
		is($keeper{$from}->query_safe("SELECT zk_release_requested('lock1')"),
			'f', 'and not the other')
		  if $from eq 'here';

		move($from, $to);
		is($session->query_safe("SELECT zk_release_hold('hold1', $token->{hold1})"), 't',
			'zk_release_hold');
		move($from, $to);
		is($session->query_safe("SELECT zk_evict('lock1', $token->{lock1})"), 't', 'zk_evict');
		assert_knows_loss($keeper{$to}, 'lock1', 'the one');
		assert_nodes($zk, at($to, 'hold2'), 1, 'others stay');
		$keeper{$to}->query('SELECT zk_unlock_all()');
	};
}

done_testing();
