
# A try answers "false" to a job that asks whether it runs elsewhere, and the job is
# skipped. So false must be the ensemble's word: where nobody has answered, a try
# raises, whichever of its bounds comes first.

use Proxy;
use Refusals;
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $proxy = Proxy->new($zk->connect_string);
my $table = Refusals->new($zk, $proxy);
my $berlin = cluster('berlin', $zk,
	servers => $proxy->address,
	'zklock.session_timeout' => '30s',
	'zklock.connect_timeout' => '30s');
my $paris = cluster('paris', $zk);

# Every kind of call, each with the setting that bounds it, if it does not do so itself.
my @tries = (
	[ "zk_try_lock('asked', '300ms')" ],
	[ "zk_try_lock_shared('asked', '300ms')" ],
	[ "zk_try_xact_lock('asked', '300ms')" ],
	[ "zk_try_xact_lock_shared('asked', '300ms')" ],
	[ "zk_try_lock('asked', '300ms', permits => 2)" ],
	[ "zk_try_lock(ARRAY['asked', 'asked too'], '300ms')" ],
	[ "zk_try_xact_lock(ARRAY['asked', 'asked too'], '300ms')" ],
	[ "zk_try_lock_path('asked/below', '300ms')" ],
	[ "zk_try_xact_lock_path('asked/below', '300ms', mode => 'shared')" ],
	[ "zk_try_lock('asked', '1 hour')", 'lock_timeout' ],
	[ "zk_try_lock('asked')", 'lock_timeout' ],
	[ "zk_try_lock('asked')", 'zklock.connect_timeout' ],
	[ "zk_try_lock(ARRAY['asked', 'asked too'])", 'zklock.connect_timeout' ],
	[ "zk_try_lease('leased', 'app', '9s')", 'zklock.connect_timeout' ]);

# These say themselves that the time was too short.
my @waits = (
	[ "zk_lock('asked', '300ms')" ],
	[ "zk_lock(ARRAY['asked', 'asked too'], '300ms')" ],
	[ "zk_lock('asked')", 'lock_timeout' ],
	[ "zk_hold('asked', 'why', '300ms')" ],
	[ "zk_run_once('asked', 'slot')", 'lock_timeout' ],
	[ "zk_request_release('asked')", 'lock_timeout' ],
	[ "count(*) FROM zk_lock_queue('asked')", 'lock_timeout' ]);

# What each says; a try long before the connection or the session is given up.
my @raises = ('!08001', qr/^DETAIL:  .+\nHINT:  .+/m, 15);
my @is_late = ('!55P03',
	qr/^DETAIL:  (There was no connection to ZooKeeper|The connection to ZooKeeper is down|ZooKeeper has not answered)\.(?: .*)?$/m);
my @calls = ((map { [ $_, @raises ] } @tries), (map { [ $_, @is_late ] } @waits));

# All are asked at once, by a session each, that has been connected or not.
my %cast = map { $_ => background($berlin) } 0 .. $#calls;
my @rows;
foreach my $fault ('stopped', 'paused', 'cut', 'cut replies')
{
	foreach my $connect ('SELECT zk_disconnect()', "SELECT zk_try_lock('connect'), zk_unlock('connect')")
	{
		push @rows, (map { [ $_ => $connect ] } keys %cast),
		  (map { $calls[$_][0][1] ? [ $_ => "SET $calls[$_][0][1] = '300ms'" ] : () } 0 .. $#calls),
		  [ break => $fault ],
		  (map { [ "$_ starts" => $calls[$_][0][0] ] } 0 .. $#calls),
		  (map { [ "$_ ends" => @{ $calls[$_] }[1 .. $#{ $calls[$_] }] ] } 0 .. $#calls),
		  # Who has never had a session says why.
		  ($fault eq 'stopped' && $connect =~ /disconnect/
			? [ 0 => "zk_try_lock('asked', '3s')", '!08001', qr/^DETAIL:  Server ".*" closed the connection/m ] : ()),
		  [ mend => $fault ],
		  (map { [ $_ => 'RESET ALL; SELECT count(*) FROM zk_session_locks', 0 ] } 0 .. $#calls),
		  # The ensemble is back, and all is free.
		  [ 0 => "zk_try_lock(ARRAY['asked', 'asked/below', 'asked too'], '30s')", 't' ], [ 0 => 'SELECT zk_unlock_all()' ],
		  [ gone => 'asked' ], [ gone => 'asked too' ];
	}
}
$table->run('nobody answers', \%cast, @rows);

# Once the ensemble has said that somebody is ahead, false is true, unless that has
# been known for no more than a broken connection.
$table->run('trouble in the middle of a wait',
	{ asker => background($berlin, is_connected => 1), rival => background($paris) },
	[ rival => "zk_lock('middle')" ],
	# A busy server may take longer.
	[ 'asker becomes' => "zk_try_lock(ARRAY['middle', 'middle too'], '300ms')", 'f' ],
	[ 'asker becomes' => "zk_try_lock('middle', '300ms')", 'f' ],
	sub (%session) { is($session{asker}->error, '', 'and nothing is said'); },
	[ asker => "zk_lock('middle', '300ms')", '!55P03', \qr/ZooKeeper has not answered|connection to ZooKeeper/ ],
	[ asker => 'zk_stat_reset()', '' ], [ 'asker starts' => "zk_try_lock('middle', '8s')" ],
	[ queue => middle => 2 ], [ 'asker waits' ], [ break => 'refused' ],
	[ 'asker ends' => '!08001', qr/The connection to ZooKeeper is down/ ], [ mend => 'refused' ],
	[ queue => middle => 1 ], [ asker => "SELECT tries_in_vain FROM zk_stat WHERE datname = 'postgres'", 1 ],
	# A silence that nobody has noticed yet.
	[ 'asker starts' => "zk_try_lock('middle', '8s')" ], [ queue => middle => 2 ], [ 'asker waits' ],
	[ break => 'cut' ],
	[ 'asker ends' => 'f' ], [ mend => 'cut' ], [ queue => middle => 1 ],
	[ rival => 'SELECT zk_unlock_all()' ],
	[ asker => "zk_try_lock('middle', '30s')", 't' ],
	[ 'quit' ], [ gone => 'middle' ]);

# What stands in the queue of a lock that was canceled is the session's own, and goes before
# it tries again.
$table->run('a try behind a create that was canceled',
	{ asker => background($berlin, is_connected => 1) },
	[ asker => "SELECT zk_lock('undone'); SELECT zk_unlock('undone')" ], [ gone => 'undone' ],
	[ break => 'cut replies' ],
	[ 'asker starts' => "zk_lock('undone')" ], [ queue => undone => 1 ],
	[ cancel => 'asker' ], [ 'asker ends' => '!57014' ],
	[ 'asker starts' => "zk_try_lock('undone')" ], [ 'asker waits' ],
	[ mend => 'cut replies' ], [ 'asker ends' => 't' ],
	[ 'quit' ], [ gone => 'undone' ]);

# Each session is lost, and no request answered.
subtest 'a try whose session is lost goes on in the next one until lock_timeout' => sub {
	my $session = background($berlin, is_connected => 1);
	my $nlost;
	# With more time on a busy machine, for several sessions to begin.
	foreach my $seconds (3, 9, 27)
	{
		$session->query_safe("SET lock_timeout = '${seconds}s'; SET zklock.connect_timeout = '@{[ 4 * $seconds ]}s'");
		$proxy->trap(14, 1, 'replies');    # multi
		$session->start_query("SELECT zk_forget_run('asked', 'slot')");
		$nlost = -1;
		do
		{
			poll_until { $session->is_done || $proxy->is_sprung } 'its request', 30;
			kill KILL => session_programs($session->pid);
			$nlost++;
			$proxy->trap(14, 1, 'replies') if !$session->is_done;
			$proxy->come_back;
		} until $session->is_done;
		assert_ends($session, '55P03', 'it is over at its time');
		last if $nlost > 1;
	}
	cmp_ok($nlost, '>', 1, 'after several sessions');
};

done_testing();
