
# Tries and looks at queues that meet a fault: a try says "false" only if ZooKeeper has said so,
# a look raises or shows what is there, and neither leaves anything. The table is in
# test/lib/Calls.pm.

use Calls;
use ZkLockTest;

Calls::run('tries');

done_testing();
