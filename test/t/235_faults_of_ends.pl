
# Releases and ends of transactions that meet a fault: no release waits for long, no end of a
# transaction but a COMMIT whose proof is missing fails, and that one writes nothing. The table
# is in test/lib/Calls.pm.

use Calls;
use ZkLockTest;

Calls::run('ends');

done_testing();
