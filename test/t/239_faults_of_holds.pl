
# Permanent holds, leases, records of runs, evictions and requests to release that meet a fault:
# what was changed outlives the session, so it is done as the call says, or not at all. The table
# is in test/lib/Calls.pm.

use Calls;
use ZkLockTest;

Calls::run('holds');

done_testing();
