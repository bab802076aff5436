-- Locks with several permits: their arguments, counts of acquisitions, and views, in one
-- session. Several holders are in t/145.
SELECT zk_lock('sem', permits => 2) > 0 AS granted;
SELECT zk_lock('sem', permits => 2) > 0 AS counted;
SELECT name, mode, state, session_acquisitions, permits FROM zk_session_locks;
SELECT "position", state, mode, style, permits FROM zk_lock_queue('sem');

-- its holders are all valid at a time: tokens order them, a fence is for one
SELECT zk_fencing_token('sem') > 0 AS has_token;
SELECT zk_fence('sem');
SELECT count(*) FROM zk_fences WHERE name = 'sem';
SELECT zk_try_lock('sem', permits => 3);
SELECT zk_lock('sem');
SELECT zk_lock_shared('sem');
SELECT zk_xact_lock('sem', permits => 2) > 0 AS same_node;
SELECT zk_unlock('sem');
SELECT zk_unlock('sem');
SELECT zk_unlock('sem');
BEGIN;
SELECT zk_xact_lock('sem', NULL, 5) > 0 AS granted, zk_try_xact_lock('sem', '1 s', 5) AS counted;
SELECT xact_acquisitions, permits FROM zk_session_locks;
COMMIT;
SELECT count(*) FROM zk_session_locks;

-- bad numbers
SELECT zk_lock('sem', permits => 0);
SELECT zk_lock('sem', permits => -1);
SELECT zk_try_lock('sem', permits => 10001);
SELECT zk_xact_lock('sem', permits => NULL);
SELECT zk_lock('sem', permits => 10000) > 0 AS granted;
SELECT zk_unlock('sem');
