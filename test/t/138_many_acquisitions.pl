
# A lock can be acquired 2147483647 times in a scope, and once more is refused with 54000: no
# count overflows. Tested in a build whose first acquisition counts as all but one of them.

use Builds;
use ZkLockTest;

plan skip_all => 'this PostgreSQL bears one installation only' if !Builds->can_be;
my $build = Builds->of_tree(edit => {
	'src/lock/lock_table.c' => sub {
		s/(taken->counts\[scope\])\+\+;/$1 += $1 == 0 ? 2147483646 : 1;/;
		s/(lock->xact\[mode\]->count)\+\+;/$1 += $1 == 0 ? 2147483646 : 1;/;
	} });
my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk, $build->settings);
my $monitor = background($node);

foreach my $scope (qw(session xact call))
{
	subtest "the 2147483648th acquisition of $scope scope is refused" => sub {
		my $function = $scope eq 'session' ? 'zk_lock' : "zk_${scope}_lock";
		my $session = background($node);
		my $counts = "SELECT session_acquisitions, xact_acquisitions, call_acquisitions FROM";
		my $expected = join '|', map { $_ eq $scope ? 2_147_483_647 : 0 } qw(session xact call);
		my $lock = "SELECT $function('many') > 0";
		$session->query_safe('BEGIN');
		$session->query_safe($lock) foreach 1, 2;
		is($session->query_safe("$counts zk_session_locks"), $expected, 'zk_session_locks shows the number');
		is($monitor->query_safe("$counts zk_locks"), $expected, 'zk_locks shows the number');
		$session->query_safe('SAVEPOINT before');
		assert_query($session, $lock, '54000', 'one more is refused');
		like($session->error, qr/too many acquisitions of lock "many"\nDETAIL:  This session has taken it 2147483647 times\.\nHINT: /,
			'in words');
		$session->query_safe('ROLLBACK TO before');
		is($session->query_safe("$counts zk_session_locks"), $expected, 'nothing has changed');
		is($session->query_safe("SELECT zk_lock_shared('many') > 0"), 't', 'the other mode counts for itself');
		$session->query_safe('COMMIT');
		$session->query_safe('SELECT zk_unlock_all()');
		is($session->query_safe('SELECT count(*) FROM zk_session_locks'), 0, 'all can be released');
		assert_leave_nothing($zk, lock_path('many'), $session);
	};
}

done_testing();
