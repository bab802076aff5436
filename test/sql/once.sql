--
-- zk_run_once() is true once for each slot, records the run, and refuses bad arguments.
-- Races between sessions and lost connections are in t/310.
--

-- The records outlive the test.
CREATE PROCEDURE pg_temp.forget_all() LANGUAGE plpgsql AS $$
BEGIN
	PERFORM zk_forget_run(job, slot)
	FROM unnest(ARRAY['once/job', 'once/other', 'once/old', 'once/silent']) AS job,
		zk_runs(job);
END $$;
CALL pg_temp.forget_all();

SELECT zk_run_once('once/job', '2026-11-20'), zk_run_once('once/job', '2026-11-20');
SELECT zk_run_once('once/job', '2026-11-20');
SELECT zk_run_once('once/job', '2026-11-21'), zk_run_once('once/other', '2026-11-20');
-- A slot may look like a queue node, and like a path of another job's.
SELECT zk_run_once('once/job', '20261120093000'), zk_run_once('once/job', 'lock-0000000001'),
	zk_run_once('once/job', E'\u00e4 \u20ac.once');
SELECT zk_run_once('once/job', '20261120093000');

-- Not undone by ROLLBACK
BEGIN;
SELECT zk_run_once('once/job', 'rolled back');
ROLLBACK;
SELECT zk_run_once('once/job', 'rolled back');

-- No lock is taken, and the lock of that name is another matter.
SELECT * FROM zk_session_locks;
SELECT zk_lock('once/job') > 0 AS token;
SELECT "position", state FROM zk_lock_queue('once/job');
SELECT zk_run_once('once/job', 'while locked');
SELECT zk_unlock('once/job');

-- The records
SELECT slot, datname = current_database() AS datname_ok, usename = session_user AS usename_ok,
	pid = pg_backend_pid() AS pid_ok, host <> '' AS has_host, data,
	claimed_at BETWEEN now() - interval '1 minute' AND clock_timestamp() + interval '1 second' AS claimed_at_ok
FROM zk_runs('once/job');
SELECT * FROM zk_runs('once/unknown');

-- Once more
SELECT zk_forget_run('once/job', '2026-11-20'), zk_forget_run('once/job', '2026-11-20');
SELECT zk_run_once('once/job', '2026-11-20'), zk_run_once('once/job', '2026-11-20');
SELECT zk_forget_run('once/unknown', '2026-11-20');

-- Retention: a record goes when its own time is over, and only with a claim
SELECT zk_run_once('once/old', 'b', '1 day'), zk_run_once('once/old', 'a', '0');
SELECT pg_sleep(0.01);
-- not after a false
SELECT zk_run_once('once/old', 'b', '0');
SELECT slot FROM zk_runs('once/old');
SELECT zk_run_once('once/old', 'c', '0');
SELECT slot FROM zk_runs('once/old');
SELECT pg_sleep(0.01);
SELECT zk_run_once('once/old', 'd');
SELECT slot FROM zk_runs('once/old');

-- Bad arguments
SELECT zk_run_once(NULL, 'a');
SELECT zk_run_once('once/job', NULL);
SELECT zk_run_once('once/job', 'a', NULL);
SELECT zk_run_once('once/job', 'a', '-1 s');
SELECT zk_run_once('once//job', 'a');
SELECT zk_run_once('once/job', '');
SELECT zk_run_once('once/job', 'a/b');
SELECT zk_run_once('once/job', '..');
SELECT zk_run_once('once/job', E'a\tb');
SELECT zk_run_once('once/job', E'\U0001F600');
SELECT zk_run_once('once/job', repeat('x', 513));
SELECT zk_run_once('once/job', repeat('x', 512));
SELECT zk_forget_run('once/job', NULL);
SELECT zk_forget_run('once/job', 'a/b');
SELECT zk_runs(NULL);

-- Who may
CREATE ROLE regress_zklock_once;
SET ROLE regress_zklock_once;
SELECT zk_run_once('once/job', 'by anybody');
RESET ROLE;
GRANT zklock_job TO regress_zklock_once;
SET ROLE regress_zklock_once;
SELECT zk_run_once('once/job', 'by a job');
SELECT zk_forget_run('once/job', 'by a job');
SELECT zk_runs('once/job');
RESET ROLE;
GRANT zklock_operator TO regress_zklock_once;
SET ROLE regress_zklock_once;
SELECT slot, usename = session_user AS by_me FROM zk_runs('once/job') WHERE slot LIKE 'by a%';
SELECT zk_forget_run('once/job', 'by a job');
RESET ROLE;
DROP ROLE regress_zklock_once;

-- Without identity
SET zklock.publish_identity = off;
SELECT zk_run_once('once/silent', 'a'), zk_run_once('once/silent', 'a');
SELECT * FROM zk_runs('once/silent') AS r(slot, claimed_at) WHERE claimed_at IS NULL;
SELECT slot, cluster, datname, usename, application_name, pid, host, data FROM zk_runs('once/silent');
RESET zklock.publish_identity;
CALL pg_temp.forget_all();
SELECT * FROM zk_runs('once/job');
