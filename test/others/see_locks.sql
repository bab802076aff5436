-- What PostgreSQL's tests of advisory locks look at, for locks of the drop-in: pg_locks has
-- them, and isolationtester sees who waits for one. For the database in which the drop-in is.

-- Of a backend that holds more than 16 locks zk_locks does not show all.
CREATE VIEW zklock_advisory.pg_locks AS
WITH here AS (
	SELECT pid, name, mode, true AS is_granted, NULL::timestamptz AS since FROM zklock.zk_locks WHERE state = 'held'
	UNION ALL
	SELECT pid, waiting_for, waiting_mode, false, waiting_since FROM zklock.zk_backends WHERE waiting_for IS NOT NULL),
keys AS (
	SELECT here.*, (regexp_match(name, '^advisory/.*/\((-?\d+)(?:,(-?\d+))?\)$'))::bigint[] AS key
	FROM here WHERE name LIKE 'advisory/' || current_database() || '/(%')
SELECT * FROM pg_catalog.pg_locks
UNION ALL
SELECT 'advisory', (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()), NULL, NULL, NULL, NULL, NULL,
	CASE WHEN key[2] IS NULL THEN (key[1] >> 32 & 4294967295)::oid ELSE (key[1] & 4294967295)::oid END,
	CASE WHEN key[2] IS NULL THEN (key[1] & 4294967295)::oid ELSE (key[2] & 4294967295)::oid END,
	CASE WHEN key[2] IS NULL THEN 1 ELSE 2 END,
	NULL, pid, CASE mode WHEN 'shared' THEN 'ShareLock' ELSE 'ExclusiveLock' END, is_granted, false, since
FROM keys;
GRANT SELECT ON zklock_advisory.pg_locks TO PUBLIC;

-- As in specs/000_see_waits.spec. A single look would not do: a lock that has just been passed
-- on arrives a moment after the step that passed it on.
ALTER FUNCTION pg_catalog.pg_isolation_test_session_is_blocked(int, int[])
	RENAME TO pg_isolation_test_session_is_blocked_by_lock;
CREATE FUNCTION pg_catalog.pg_isolation_test_session_is_blocked(blocked_pid int, interesting_pids int[])
RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	IF pg_catalog.pg_isolation_test_session_is_blocked_by_lock($1, $2) THEN
		RETURN true;
	END IF;
	FOR i IN 1..20 LOOP
		PERFORM FROM zklock.zk_backends WHERE pid = $1 AND waiting_for IS NOT NULL;
		IF NOT FOUND THEN
			RETURN false;
		END IF;
		PERFORM pg_catalog.pg_sleep(0.01);
	END LOOP;
	RETURN true;
END $$;
