--
-- zk_all_locks() lists the locks that are in use, and how many hold and wait for each.
-- As far as one session shows it; what other clients and lost connections do to it is in
-- t/350_all_locks.pl.
--

SELECT * FROM zk_all_locks('census');
SELECT zk_lock('census') > 0 AS token;
SELECT zk_lock_shared('census/a') > 0 AS token;
SELECT zk_lock('census/a/b', permits => 3) > 0 AS token;
SELECT zk_lock('census/deep/deeper/deepest') > 0 AS token;
SELECT zk_lock(E'census/\u00e4 \u20ac') > 0 AS token;
SELECT zk_lock('censuses') > 0 AS token;

-- A name is that one and those below it, and not what begins with the same letters.
SELECT * FROM zk_all_locks('census');
SELECT * FROM zk_all_locks('census/a');
SELECT * FROM zk_all_locks('census/deep');
SELECT * FROM zk_all_locks('census/unknown');
-- All of them: those of this session are among them.
SELECT name FROM zk_session_locks EXCEPT SELECT name FROM zk_all_locks();
SELECT count(*) = count(DISTINCT name) AS distinct_names FROM zk_all_locks('');

-- Records of jobs are no locks, also where they look like a queue. A hold is one.
SELECT zk_run_once('census/job', 'lock-0000000001');
SELECT zk_hold('census/held', 'test') AS token \gset
SELECT * FROM zk_all_locks('census/job');
SELECT * FROM zk_all_locks('census/held');
SELECT zk_release_hold('census/held', :token);
SELECT zk_forget_run('census/job', 'lock-0000000001');

-- What nobody holds is not there.
SELECT zk_unlock_all();
SELECT * FROM zk_all_locks('census');

-- Bad arguments
SELECT zk_all_locks(NULL);
SELECT zk_all_locks('/census');
SELECT zk_all_locks('census//a');

-- For those who monitor
CREATE ROLE regress_zklock_census;
SET ROLE regress_zklock_census;
SELECT zk_all_locks();
RESET ROLE;
GRANT pg_monitor TO regress_zklock_census;
SET ROLE regress_zklock_census;
SELECT * FROM zk_all_locks('census');
RESET ROLE;
DROP ROLE regress_zklock_census;
