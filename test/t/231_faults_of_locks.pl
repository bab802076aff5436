
# A call that takes a lock and meets a fault, at any of its requests: it has its lock, or says
# in time why not; then nothing of it is left in ZooKeeper, and its session goes on. The table
# is in test/lib/Calls.pm. That it has all calls is tested here.

use Calls;
use ZkLockTest;

Calls::complete();
Calls::run('locks');

done_testing();
