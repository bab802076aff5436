
# A queue node that is deleted and made again by another client under the same name is not the
# holder's: with commit_guard = quorum the former holder commits nothing, and no question is
# answered with "held". Tested with znodes that are made again on a real server.

use Preload;
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my %setting = ('zklock.commit_guard' => 'quorum', 'zklock.session_timeout' => '20s');
my $node = cluster('berlin', $zk, %setting);
my $stranger = $zk->client;
$node->safe_psql('postgres', 'CREATE TABLE counter (n int); INSERT INTO counter VALUES (0)');

# Delete the nodes of a lock, and make them anew.
sub remake ($lock, $in_between)
{
	my @names = queue_nodes($zk, lock_path($lock));
	$stranger->delete(lock_path($lock) . "/$_") foreach @names;
	$in_between->();
	$stranger->create_path(lock_path($lock));
	$stranger->create(lock_path($lock) . "/$_", '', ephemeral => 1) foreach @names;
	return @names;
}

# Unless who had the first ones has deleted these, too, when it let go.
sub remove ($lock, @names)
{
	foreach my $name (@names)
	{
		eval { $stranger->delete(lock_path($lock) . "/$name"); 1 }
		  or $@ =~ /NoNode/
		  or die $@;
	}
	return;
}

foreach my $style (qw(curator kazoo))
{
	foreach my $function (qw(zk_lock zk_xact_lock))
	{
		subtest "a lock by $function() whose node was made again is lost, style $style" => sub {
			my ($old, $next) = map { background($node) } 1 .. 2;
			$_->query_safe("SET zklock.node_style = '$style'") foreach $old, $next;
			$old->query_safe("BEGIN; SELECT $function('lock')");
			my $n = $old->query_safe('SELECT n FROM counter');
			my @names = remake('lock', sub {
				$next->query_safe("BEGIN; SELECT zk_xact_lock('lock');
					UPDATE counter SET n = n + 1; COMMIT");
				assert_no_nodes($zk, lock_path('lock'), 'the next one has come and gone');
			});
			if ($function eq 'zk_lock')
			{
				# The loss may cancel the question.
				$old->query_safe('SAVEPOINT asks');
				assert_knows_loss($old, 'lock', "the old holder's lock is lost");
				$old->query_safe('ROLLBACK TO asks');
			}
			assert_query($old, "UPDATE counter SET n = $n + 1; COMMIT", '40001', 'the commit is refused');
			is(ask($node, 'SELECT n FROM counter'), $n + 1, 'no update is lost');
			$_->quit foreach $old, $next;
			remove('lock', @names);
		};
	}
}

# Both modes are on one node.
subtest 'a lock held in both modes whose node was made again is lost in both' => sub {
	my ($old, $next) = map { background($node) } 1 .. 2;
	$old->query_safe("SELECT zk_lock('both'), zk_lock_shared('both')");
	my @names = remake('both', sub { });
	$old->query_safe("SELECT zk_unlock('both')");
	assert_knows_loss($old, 'both', 'the shared mode is lost, too');
	assert_query($old, "SELECT zk_lock_shared('both')", '40001', 'a lost lock is not acquired once more');
	assert_query($old, 'BEGIN; UPDATE counter SET n = n + 1; COMMIT', '40001', 'the commit is refused');
	$old->query_safe('SELECT zk_unlock_all()');
	remove('both', @names);

	# And with the exclusive mode released before.
	$old->query_safe("SELECT zk_lock('both'), zk_lock_shared('both'); SELECT zk_unlock('both')");
	assert_held($old, 'both', 'the lock is still held');
	@names = remake('both', sub { });
	assert_knows_loss($old, 'both', 'the lock is not held when its node was made again');
	remove('both', @names);
};

# That there is a node of the name is half an answer: whose it is a look tells. If that
# cannot be sent both are asked again.
subtest 'a lock whose node was made again is lost when the second look cannot be sent' => sub {
	my $library = Preload::library('unsent_look') or plan skip_all => 'there is no compiler';
	my $paris = cluster('paris', $zk, %setting, environment => { LD_PRELOAD => $library });
	my $flag = "$library.once";
	my $old = background($paris, holds => 'unsent');
	my @names = remake('unsent', sub { append_to_file($flag, ''); });
	assert_knows_loss($old, 'unsent', 'the lock whose node was made again is not held');
	ok(!-e $flag, 'the second look could not be sent at first');
	$old->quit;
	remove('unsent', @names);
};

done_testing();
