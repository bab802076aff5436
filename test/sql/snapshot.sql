--
-- A lock that is taken in a transaction with a fixed snapshot warns: the transaction
-- reads what was committed before the lock was granted, so the lock does not guard these
-- reads.
--
SELECT zk_lock('snapshot/connect') > 0 AS token, zk_unlock('snapshot/connect');

BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT zk_xact_lock('snapshot') > 0 AS token;
-- Once is enough: what is held already is no news.
SELECT zk_xact_lock('snapshot') > 0 AS token;
SELECT zk_xact_lock_shared('snapshot') > 0 AS token;
COMMIT;

BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT zk_lock('snapshot') > 0 AS token;
COMMIT;
SELECT zk_unlock('snapshot');

-- in each of the functions
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT zk_lock_shared('snapshot/1') > 0 AS token;
SELECT zk_xact_lock_shared('snapshot/2') > 0 AS token;
SELECT zk_try_lock('snapshot/3');
SELECT zk_try_lock_shared('snapshot/4');
SELECT zk_try_xact_lock('snapshot/5');
SELECT zk_try_xact_lock_shared('snapshot/6');
-- and once for all that one statement takes
SELECT zk_xact_lock('snapshot/7') > 0 AS one, zk_xact_lock('snapshot/8') > 0 AS other;
COMMIT;
SELECT zk_unlock_all();

-- Not in READ COMMITTED, where the next statement sees everything
BEGIN ISOLATION LEVEL READ COMMITTED;
SELECT zk_xact_lock('snapshot') > 0 AS token;
COMMIT;
BEGIN ISOLATION LEVEL READ UNCOMMITTED;
SELECT zk_xact_lock('snapshot') > 0 AS token;
COMMIT;

-- Nor outside of a transaction block, where the next statement has a snapshot of its own
SET default_transaction_isolation = 'repeatable read';
SELECT zk_lock('snapshot') > 0 AS token, zk_unlock('snapshot');
RESET default_transaction_isolation;

-- Nor for a lock that is taken before the transaction, which is the remedy
SELECT zk_lock('snapshot') > 0 AS token;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT zk_lock('snapshot') > 0 AS token;
SELECT zk_is_held('snapshot');
COMMIT;
SELECT zk_unlock('snapshot'), zk_unlock('snapshot');

-- Any user may silence it for himself.
CREATE ROLE regress_zklock_snapshot;
SET ROLE regress_zklock_snapshot;
SET zklock.snapshot_warning = off;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT zk_xact_lock('snapshot') > 0 AS token;
COMMIT;
RESET zklock.snapshot_warning;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT zk_xact_lock('snapshot') > 0 AS token;
COMMIT;
RESET ROLE;
DROP ROLE regress_zklock_snapshot;
