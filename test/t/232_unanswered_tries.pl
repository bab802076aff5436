
# A try answers "false" only if ZooKeeper has said that somebody else has the lock: where nobody
# has answered it raises, whichever of its bounds comes first. Tested with real sessions behind a
# proxy that refuses, cuts and loses replies.

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

# Once the ensemble has said that somebody is ahead, false is true, unless that has
# been known for no more than a broken connection.
$table->run('a try that has lost its connection raises, and one that was told who is ahead says false',
	{ asker => background($berlin, is_connected => 1), rival => background($paris) },
	[ rival => "zk_lock('middle')" ],
	# A busy server may take longer.
	[ 'asker becomes' => "zk_try_lock_set(ARRAY['middle', 'middle too'], '300ms')", 'f' ],
	[ 'asker becomes' => "zk_try_lock('middle', '300ms')", 'f' ],
	sub (%session) { is($session{asker}->error, '', 'the try that said false has told nothing else'); },
	[ asker => "zk_lock('middle', '3s')", '!55P03', \qr/ZooKeeper has not answered|connection to ZooKeeper/ ],
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
$table->run('a try behind a canceled create of its own session is granted',
	{ asker => background($berlin, is_connected => 1) },
	[ asker => "SELECT zk_lock('undone'); SELECT zk_unlock('undone')" ], [ gone => 'undone' ],
	# Or the next one waited for the reply to the delete. This one comes behind it.
	[ asker => "SELECT count(*) FROM zk_lock_queue('undone')", 0 ],
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
		assert_ends($session, '55P03', 'the call ends at lock_timeout');
		last if $nlost > 1;
	}
	cmp_ok($nlost, '>', 1, 'the call has gone on in several sessions');
};

done_testing();
