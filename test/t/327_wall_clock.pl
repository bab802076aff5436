
# No promise of zklock rests on a wall clock: it is set while locks are held, and that of one
# cluster is wrong by a day, but what takes long or is old is measured by a clock that nobody
# sets. Tested with a library in front of clock_gettime() in real clusters.

use Preload;
use ZkLockTest;

my $shim = Preload::library('odd_clock') or plan skip_all => 'there is no compiler';

# The clock of all processes that have the library is wrong by that many seconds from now on.
sub set_clock ($offset)
{
	open my $out, '+<', "$shim.offset" or die "$shim.offset: $!";
	syswrite $out, pack 'l', $offset;
	close $out;
	return;
}

append_to_file("$shim.offset", pack 'l', 0);
chmod 0644, "$shim.offset";
my $zk = ZooKeeper->new->start;
my $berlin = cluster('berlin', $zk, environment => { LD_PRELOAD => $shim });
my $client = $zk->client;

subtest 'the wall clock of the cluster is wrong when the test says so' => sub {
	my $real = time;
	set_clock(-3600);
	my $told = ask($berlin, 'SELECT extract(epoch FROM clock_timestamp())');
	set_clock(0);
	cmp_ok($told, '<', $real - 1800, "the cluster's clock is behind by an hour");
};

# The node is deleted in the first second, so that nobody has told the session of that when it
# lets go of the lock. It waits for the answer then, as for any lock that was held for long; for
# a second at most, and on a busy machine that may be too short.
foreach my $unlock ('zk_unlock($$moved$$)', 'zk_unlock_all()')
{
	subtest "$unlock tells of a lost lock though the wall clock was set back" => sub {
		my $holder;
		my $released;
		foreach my $try (1 .. 5)
		{
			$holder = background($berlin);
			$holder->query_safe("SELECT zk_lock('moved'), pg_sleep(0.5)");
			my ($queued) = queue_nodes($zk, lock_path('moved'));
			set_clock(-3600);
			$client->delete(lock_path("moved/$queued"));
			$released = $holder->query("SELECT $unlock");
			last if $holder->error ne '' || $try == 5;
			note('again: the answer has taken too long');
			$holder->quit;
			set_clock(0);
		}
		is($released, 'f', 'says that it was lost') if $unlock !~ /all/;
		like($holder->error, qr/lock "moved" had been lost before it was released/, 'the release warns of the loss');
		set_clock(0);
		assert_leave_nothing($zk, lock_path('moved'), $holder);
	};
}

# A lock, its proof and its release, with a clock that is set to and fro.
subtest 'a lock stays held while the wall clock is set to and fro' => sub {
	my $holder = background($berlin, first => 'CREATE TABLE written (i int)');
	foreach my $offset (86400, -86400, 0)
	{
		$holder->query_safe("SELECT zk_lock('held')");
		set_clock($offset);
		$holder->query_safe('INSERT INTO written VALUES (2)');
		assert_held($holder, 'held', "set to $offset seconds");
		is($holder->query_safe("SELECT zk_unlock('held')"), 't', 'it is released');
		is($holder->error, '', 'without a message');
	}
	assert_leave_nothing($zk, lock_path('held'), $holder);
};

done_testing();
