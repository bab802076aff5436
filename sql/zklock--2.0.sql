-- zklock 2.0: distributed locks through ZooKeeper
\echo Use "CREATE EXTENSION zklock" to load this file. \quit

-- Functions with a name argument are not STRICT: a NULL name raises an error,
-- so that nobody goes on without the lock. None may run in a parallel worker,
-- as with pg_advisory_lock().
--
-- Plain names mean PostgreSQL's objects, or ours: no pg_catalog., no OPERATOR().
-- The schema that the extension is created in may be one where other roles create
-- objects, and a planted function or operator that fits a call better than
-- PostgreSQL's own would be taken. So this script creates everything in a schema
-- of its own, which no other session sees before the transaction has committed,
-- and moves it where it belongs at the end. Bodies are BEGIN ATOMIC or RETURN:
-- PostgreSQL parses them here, whatever search_path a caller has later. Those in
-- PL/pgSQL SET search_path, and call nothing of ours. The reasons are in
-- docs/decisions/0015-plain-names.md.

CREATE SCHEMA zklock_script;
SET LOCAL search_path = zklock_script, pg_temp;

CREATE FUNCTION zk_lock(
	name text,
	timeout interval DEFAULT NULL,
	permits integer DEFAULT 1)
RETURNS bigint
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_lock(text, interval, integer) IS
'Takes an exclusive lock of session scope, first come, first served. Returns its fencing token. timeout and lock_timeout bound the wait (55P03). With permits > 1 it is a counting semaphore. Counted: call zk_unlock() as often. ROLLBACK does not release it.';

CREATE FUNCTION zk_lock_shared(name text, timeout interval DEFAULT NULL)
RETURNS bigint
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_lock_shared(text, interval) IS
'Like zk_lock(), but shared: several sessions can hold it in this mode. If this session holds the lock exclusively, it is granted at once, and stays when the exclusive hold is released. Release with zk_unlock_shared().';

CREATE FUNCTION zk_xact_lock(
	name text,
	timeout interval DEFAULT NULL,
	permits integer DEFAULT 1)
RETURNS bigint
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_xact_lock(text, interval, integer) IS
'Like zk_lock(), but of transaction scope: released after the commit is durable and visible, at rollback, or at rollback to an earlier savepoint. It cannot be released before. PREPARE TRANSACTION is refused meanwhile.';

CREATE FUNCTION zk_xact_lock_shared(name text, timeout interval DEFAULT NULL)
RETURNS bigint
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_xact_lock_shared(text, interval) IS
'Like zk_lock_shared(), but of transaction scope.';

CREATE FUNCTION zk_try_lock(
	name text,
	timeout interval DEFAULT '0',
	permits integer DEFAULT 1)
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_try_lock(text, interval, integer) IS
'Takes an exclusive lock of session scope if it is free, or becomes free within timeout: true. Otherwise false, and nothing is left behind. Raises 08001 if ZooKeeper does not answer in time.';

CREATE FUNCTION zk_try_lock_shared(name text, timeout interval DEFAULT '0')
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_try_lock_shared(text, interval) IS
'Like zk_try_lock(), but shared.';

CREATE FUNCTION zk_try_xact_lock(
	name text,
	timeout interval DEFAULT '0',
	permits integer DEFAULT 1)
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_try_xact_lock(text, interval, integer) IS
'Like zk_try_lock(), but of transaction scope.';

CREATE FUNCTION zk_try_xact_lock_shared(name text, timeout interval DEFAULT '0')
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_try_xact_lock_shared(text, interval) IS
'Like zk_try_lock(), but shared and of transaction scope.';

CREATE FUNCTION zk_call_lock(
	name text,
	timeout interval DEFAULT NULL,
	permits integer DEFAULT 1)
RETURNS bigint
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_call_lock(text, interval, integer) IS
'Like zk_lock(), but of call scope: released when the client''s query, a CALL for example, ends, or with its transaction if that goes on. COMMIT and ROLLBACK in a procedure leave it. It cannot be released before. Raises 0A000 in a background worker.';

CREATE FUNCTION zk_try_call_lock(
	name text,
	timeout interval DEFAULT '0',
	permits integer DEFAULT 1)
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_try_call_lock(text, interval, integer) IS
'Like zk_try_lock(), but of call scope.';

-- Several locks as one call

CREATE FUNCTION zk_lock(
	names text[],
	timeout interval DEFAULT NULL,
	modes text[] DEFAULT NULL)
RETURNS bigint[]
AS 'MODULE_PATHNAME', 'zk_lock_names' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_lock(text[], interval, text[]) IS
'Takes several locks of session scope, all or none. It takes them in the byte order of their names, so two such calls never deadlock. modes: exclusive or shared, for each name. timeout and lock_timeout bound the whole call. Returns the fencing tokens in the order of the names.';

CREATE FUNCTION zk_xact_lock(
	names text[],
	timeout interval DEFAULT NULL,
	modes text[] DEFAULT NULL)
RETURNS bigint[]
AS 'MODULE_PATHNAME', 'zk_xact_lock_names' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_xact_lock(text[], interval, text[]) IS
'Like zk_lock(text[]), but of transaction scope.';

CREATE FUNCTION zk_try_lock(
	names text[],
	timeout interval DEFAULT '0',
	modes text[] DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_try_lock_names' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_try_lock(text[], interval, text[]) IS
'Like zk_try_lock(text), for several locks, see zk_lock(text[]).';

CREATE FUNCTION zk_try_xact_lock(
	names text[],
	timeout interval DEFAULT '0',
	modes text[] DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_try_xact_lock_names' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_try_xact_lock(text[], interval, text[]) IS
'Like zk_try_lock(text[]), but of transaction scope.';

CREATE FUNCTION zk_unlock(names text[], modes text[] DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_unlock_names' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_unlock(text[], text[]) IS
'Releases one hold of session scope of each lock; modes as in zk_lock(text[]). True if all were held. Otherwise false, with a warning for each that was not held or had been lost; the others are released.';

-- Waits that hold nothing. No parameter is for output: PL/pgSQL takes such ones
-- only if there is a variable for them, though they had a default.

CREATE PROCEDURE zk_commit_and_lock(
	name text,
	timeout interval DEFAULT NULL,
	permits integer DEFAULT 1)
AS 'MODULE_PATHNAME' LANGUAGE C;

COMMENT ON PROCEDURE zk_commit_and_lock(text, interval, integer) IS
'Like zk_lock(), for long waits. Commits the transaction, then waits in a new one without snapshot, transaction id and locks, so vacuum goes on. The lock has session scope; zk_fencing_token() returns its token. Raises 25001 in a transaction block, 2D000 in a function.';

-- Paths. The name itself comes first, so that an error names it and not an ancestor;
-- and one that has too many components is refused for its own sake.
CREATE FUNCTION _zk_path_names(name text)
RETURNS text[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
	SELECT array_cat(ARRAY[_zk_path_names.name], ARRAY(
		SELECT array_to_string(p.parts[1:g.i], '/')
		FROM string_to_array(_zk_path_names.name, '/') AS p(parts)
			CROSS JOIN LATERAL generate_series(1, 20) AS g(i)
		WHERE g.i < cardinality(p.parts)));
END;

COMMENT ON FUNCTION _zk_path_names(text) IS
'Part of zk_lock_path(): the name and its ancestors.';

CREATE FUNCTION _zk_path_modes(name text, mode text)
RETURNS text[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
	SELECT array_cat(ARRAY[_zk_path_modes.mode], array_fill(
		'shared'::text,
		ARRAY[cardinality(_zk_path_names(_zk_path_modes.name)) - 1]));
END;

COMMENT ON FUNCTION _zk_path_modes(text, text) IS
'Part of zk_lock_path(): the modes for _zk_path_names(); mode is that of the name itself.';

CREATE FUNCTION zk_lock_path(
	name text,
	timeout interval DEFAULT NULL,
	mode text DEFAULT 'exclusive')
RETURNS bigint
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
RETURN (zk_lock(
	_zk_path_names(zk_lock_path.name),
	zk_lock_path.timeout,
	_zk_path_modes(zk_lock_path.name, zk_lock_path.mode)))[1];

COMMENT ON FUNCTION zk_lock_path(text, interval, text) IS
'Takes a lock and its ancestors, all or none: for a/b/c that is a and a/b shared, and a/b/c in the mode given. So an exclusive holder of a keeps others from all names below it; a shared one keeps no writers out. timeout and lock_timeout bound the whole call. Returns the fencing token of the lock itself. Release with zk_unlock_path().';

CREATE FUNCTION zk_xact_lock_path(
	name text,
	timeout interval DEFAULT NULL,
	mode text DEFAULT 'exclusive')
RETURNS bigint
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
RETURN (zk_xact_lock(
	_zk_path_names(zk_xact_lock_path.name),
	zk_xact_lock_path.timeout,
	_zk_path_modes(zk_xact_lock_path.name, zk_xact_lock_path.mode)))[1];

COMMENT ON FUNCTION zk_xact_lock_path(text, interval, text) IS
'Like zk_lock_path(), but of transaction scope.';

CREATE FUNCTION zk_try_lock_path(
	name text,
	timeout interval DEFAULT '0',
	mode text DEFAULT 'exclusive')
RETURNS boolean
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
RETURN zk_try_lock(
	_zk_path_names(zk_try_lock_path.name),
	zk_try_lock_path.timeout,
	_zk_path_modes(zk_try_lock_path.name, zk_try_lock_path.mode));

COMMENT ON FUNCTION zk_try_lock_path(text, interval, text) IS
'Like zk_try_lock(text), for the locks of zk_lock_path().';

CREATE FUNCTION zk_try_xact_lock_path(
	name text,
	timeout interval DEFAULT '0',
	mode text DEFAULT 'exclusive')
RETURNS boolean
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
RETURN zk_try_xact_lock(
	_zk_path_names(zk_try_xact_lock_path.name),
	zk_try_xact_lock_path.timeout,
	_zk_path_modes(zk_try_xact_lock_path.name, zk_try_xact_lock_path.mode));

COMMENT ON FUNCTION zk_try_xact_lock_path(text, interval, text) IS
'Like zk_try_lock_path(), but of transaction scope.';

CREATE FUNCTION zk_unlock_path(name text, mode text DEFAULT 'exclusive')
RETURNS boolean
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
RETURN zk_unlock(
	_zk_path_names(zk_unlock_path.name),
	_zk_path_modes(zk_unlock_path.name, zk_unlock_path.mode));

COMMENT ON FUNCTION zk_unlock_path(text, text) IS
'Releases one acquisition of session scope of each lock that zk_lock_path() takes in that mode: true. Otherwise false, with a warning for each that was not held or had been lost; the others are released.';

CREATE FUNCTION zk_unlock(name text)
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_unlock(text) IS
'Releases one exclusive hold of session scope: true. If there is none, or the lock is known to be lost: false and a warning.';

CREATE FUNCTION zk_unlock_shared(name text)
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_unlock_shared(text) IS
'Like zk_unlock(), for one shared hold.';

CREATE FUNCTION zk_unlock_all()
RETURNS void
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_unlock_all() IS
'Releases all holds of session scope, also those of lost locks.';

CREATE FUNCTION zk_disconnect()
RETURNS void
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_disconnect() IS
'Releases all holds of session scope and closes the ZooKeeper session. The next lock opens a new one. Raises 55000 while locks of transaction or call scope are held.';

CREATE FUNCTION zk_fencing_token(name text)
RETURNS bigint
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_fencing_token(text) IS
'The fencing token of a lock that this session holds; NULL if it holds none. Each later holder, in any database or client, has a greater one. No other grant has a token that was asked for: the lock is not kept after its release (zklock.keep).';

CREATE FUNCTION zk_is_held(name text)
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_is_held(text) IS
'Asks ZooKeeper whether this session still holds the lock. If true, the session lives for at least another third of its timeout. Waits while the connection is down. After a pause of the process the answer can take 3/10 of the timeout (4.5 s). Raises 08006 if answers are too slow.';

-- Fencing. Two words: a token is a lock's, and rises with every grant
-- (zk_fencing_token); a fence is a resource's in this database, and lets nobody
-- with an older token pass (zk_fence, zk_fences). What begins with an underscore
-- is a part of zk_fence, and nobody's to call.
CREATE TABLE zk_fences (
	root text,
	name text,
	token bigint NOT NULL CHECK (token > 0),
	claimed_by name NOT NULL,
	claimed_at timestamptz NOT NULL,
	PRIMARY KEY (root, name)
);

COMMENT ON TABLE zk_fences IS
'For each resource guarded with zk_fence(): the greatest fencing token seen in this database. Part of a dump. Changed only through zk_fence().';

COMMENT ON COLUMN zk_fences.root IS
'Chroot of zklock.servers, and zklock.root, with escapes for characters that are not ASCII. The same name below another root is another resource.';
COMMENT ON COLUMN zk_fences.name IS
'The resource, named like the lock.';
COMMENT ON COLUMN zk_fences.token IS
'The greatest fencing token.';
COMMENT ON COLUMN zk_fences.claimed_by IS
'The role that logged in and first used that token.';
COMMENT ON COLUMN zk_fences.claimed_at IS
'When, by the clock of this database server.';

SELECT pg_extension_config_dump('zk_fences', '');

-- A subscription brings the fences of another database, which has not asked those here.
CREATE FUNCTION _zk_fences_applied()
RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	is_there boolean;
BEGIN
	-- A restore with --disable-triggers leaves it so that it is fired for others, who lock the row.
	IF current_setting('session_replication_role') <> 'replica' THEN
		RETURN new;
	ELSIF TG_OP = 'UPDATE' THEN
		RETURN CASE WHEN new.token >= old.token THEN new END;
	END IF;
	EXECUTE format('UPDATE %s SET token = $3, claimed_by = $4, claimed_at = $5 WHERE root = $1 AND name = $2 AND token < $3',
				   TG_RELID::regclass)
		USING new.root, new.name, new.token, new.claimed_by, new.claimed_at;
	EXECUTE format('SELECT EXISTS (SELECT FROM %s WHERE root = $1 AND name = $2)', TG_RELID::regclass)
		INTO is_there USING new.root, new.name;
	RETURN CASE WHEN NOT is_there THEN new END;
END $$;

COMMENT ON FUNCTION _zk_fences_applied() IS
'Part of zk_fences: of a row that is there and one that a subscription applies, the greater token stays.';

CREATE TRIGGER applied BEFORE INSERT OR UPDATE ON zk_fences
	FOR EACH ROW EXECUTE FUNCTION _zk_fences_applied();
ALTER TABLE zk_fences ENABLE REPLICA TRIGGER applied;

CREATE FUNCTION _zk_fence_compare(
	name text,
	token bigint,
	newest bigint,
	claimed_at timestamptz,
	now timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	-- The upper half of a token is the number of the ensemble's election. One a
	-- second is more than any ensemble does for years; elections that fail count
	-- too, so it may be ahead by some. There was no ZooKeeper before 2008. Both
	-- dates are of the database server's clock; if it was set back, or is that of
	-- another machine after a failover, 1000 elections are allowed all the same.
	elections bigint := (token >> 32) - COALESCE(newest >> 32, 0);
	most numeric := CASE WHEN newest IS NULL
		THEN greatest(1000, extract(epoch FROM now) - extract(epoch FROM '2008-01-01 UTC'::timestamptz))
		ELSE 1000 + greatest(0, floor(extract(epoch FROM now)) - floor(extract(epoch FROM claimed_at))) END;
BEGIN
	IF newest > token THEN
		RAISE EXCEPTION USING
			ERRCODE = 'serialization_failure',
			MESSAGE = format('a newer holder of lock "%s" has been here', name),
			DETAIL = format('Fencing token %s is older than %s.', token, newest),
			HINT = 'Take the lock again and run the transaction again. If that never helps, the ensemble has lost its data, or is another one, and its tokens start anew (zk_check() tells): when no holder from before is left, TRUNCATE zk_fences as a superuser.';
	ELSIF elections > most THEN
		RAISE EXCEPTION USING
			ERRCODE = 'invalid_parameter_value',
			MESSAGE = format('implausible fencing token for lock "%s"', name),
			DETAIL = CASE WHEN newest IS NULL
				THEN format('Its ensemble would have elected %s leaders, more than one a second since 2008.', elections)
				ELSE format('Fencing token %s is %s elections of a leader ahead of %s, which claimed the lock %s seconds ago.',
					token, elections, newest, most - 1000) END,
			HINT = 'A greater token than there can be would refuse all holders for ever. If it is right, delete the lock''s row of zk_fences first, as a superuser.';
	END IF;
END $$;

COMMENT ON FUNCTION _zk_fence_compare(text, bigint, bigint, timestamptz, timestamptz) IS
'Part of zk_fence(): raises 40001 if newest is greater than token, 22023 for a token that the ensemble cannot have come to yet.';

CREATE FUNCTION _zk_fence_own_lock(name text, OUT root text, OUT resource text, OUT token bigint)
RETURNS record
AS 'MODULE_PATHNAME', 'zk_fence_own_lock' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION _zk_fence_own_lock(text) IS
'Part of zk_fence(): zk_fencing_token(), with root and name of the lock as they were when it was taken. Raises 55000 if the lock is not held here exclusively, or is a semaphore.';

-- A token that cannot be must not get in, so it is looked at first. The row is
-- locked by the INSERT whether it is changed or not: until the end of the
-- transaction no other holder, older or newer, gets past it.
CREATE FUNCTION _zk_fence_claim(root text, name text, token bigint)
RETURNS boolean
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
BEGIN ATOMIC
	SELECT _zk_fence_compare(_zk_fence_claim.name, _zk_fence_claim.token, f.token, f.claimed_at,
							 clock_timestamp())
		FROM (VALUES (true)) AS one
			LEFT JOIN zk_fences AS f
				ON f.root = _zk_fence_claim.root
					AND f.name = _zk_fence_claim.name;
	INSERT INTO zk_fences AS f (root, name, token, claimed_by, claimed_at)
		VALUES (_zk_fence_claim.root, _zk_fence_claim.name, _zk_fence_claim.token, session_user,
				clock_timestamp())
		ON CONFLICT (root, name) DO UPDATE
			SET token = excluded.token,
				claimed_by = excluded.claimed_by,
				claimed_at = excluded.claimed_at
			WHERE f.token < excluded.token;
	SELECT _zk_fence_compare(_zk_fence_claim.name, _zk_fence_claim.token, f.token, f.claimed_at,
							 clock_timestamp())
		FROM zk_fences AS f
		WHERE f.root = _zk_fence_claim.root
			AND f.name = _zk_fence_claim.name;
	SELECT true;
END;

COMMENT ON FUNCTION _zk_fence_claim(text, text, bigint) IS
'Part of zk_fence(), which asks before whether the caller may.';

CREATE FUNCTION zk_fence(name text, token bigint)
RETURNS void
AS 'MODULE_PATHNAME', 'zk_fence_claim' LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_fence(text, bigint) IS
'Like zk_fence(name), with a token from elsewhere. Raises 40001 if a greater token was here. Other calls for that name below this root wait until this transaction ends. Not for everybody: a token that is too great refuses all holders.';

CREATE FUNCTION zk_fence(name text)
RETURNS void
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
BEGIN ATOMIC
	SELECT _zk_fence_claim(own.root, own.resource, own.token)
		FROM _zk_fence_own_lock(zk_fence.name) AS own;
END;

COMMENT ON FUNCTION zk_fence(text) IS
'Refuses this transaction (40001) if a newer holder of the lock has used zk_fence() in this database. Call it first in each transaction that changes what the lock guards. Raises 55000 if this session does not hold the lock exclusively, or holds a semaphore.';

CREATE FUNCTION zk_lock_queue(
	name text,
	OUT "position" integer,
	OUT state text,
	OUT mode text,
	OUT style text,
	OUT node text,
	OUT session_id text,
	OUT client text,
	OUT cluster text,
	OUT datname text,
	OUT usename text,
	OUT application_name text,
	OUT pid integer,
	OUT host text,
	OUT since timestamptz,
	OUT token bigint,
	OUT data text,
	OUT permits integer,
	OUT lease_owner text,
	OUT lease_expires_at timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED
ROWS 10;

COMMENT ON FUNCTION zk_lock_queue(text) IS
'The queue of a lock: a row for each holder and waiter of every client and cluster, in order. Other children of its znode come last, with a NULL position. An ephemeral znode in the place of the queue is a holder. Of a lease: who renewed it last, its owner and data, and when its term is over, by ZooKeeper''s clock, unless it is renewed.';

CREATE FUNCTION zk_escape(name text)
RETURNS text
AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION zk_escape(text) IS
'A name as it may be printed: with characters that nobody sees, or that turn text round, as <U+200B>. The name itself is in the views, where it can be compared and given to functions.';

CREATE FUNCTION zk_who(
	name text,
	OUT "position" integer,
	OUT state text,
	OUT who text,
	OUT location text,
	OUT since timestamptz)
RETURNS SETOF record
LANGUAGE sql VOLATILE PARALLEL RESTRICTED ROWS 10
BEGIN ATOMIC
	SELECT q."position", q.state,
		CASE WHEN q.lease_owner IS NOT NULL THEN left(zk_escape(q.lease_owner), 20)
			WHEN q.pid IS NOT NULL
			THEN concat(left(q.usename, 12), ' ', q.pid)
			ELSE left(COALESCE(q.data, q.client, q.style), 20) END,
		left(
			CASE WHEN q.lease_expires_at IS NOT NULL
				THEN to_char(q.lease_expires_at, '"lease until "HH24:MI:SS')
				WHEN q.session_id IS NULL AND q.token IS NOT NULL
					AND q.client = 'zklock'
				THEN concat('hold: ', q.data)
				WHEN q.pid IS NULL THEN COALESCE(q.session_id, 'no session')
				ELSE concat_ws('@',
					concat_ws('/', q.cluster, q.datname),
					split_part(q.host, '.', 1)) END, 24),
		date_trunc('second', q.since)
	FROM zk_lock_queue(zk_who.name) AS q
	WHERE q."position" IS NOT NULL
	ORDER BY q."position";
END;

COMMENT ON FUNCTION zk_who(text) IS
'zk_lock_queue() for a terminal of 100 columns: who (user and process) and location (cluster/database@host), cut to 20 and 24 characters. A hold shows its reason, a lease its owner and how long it lasts, another client its ZooKeeper session, or that it has none.';

CREATE FUNCTION zk_all_locks(
	prefix text DEFAULT '',
	OUT name text,
	OUT holder_count integer,
	OUT waiter_count integer)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED
ROWS 100;

COMMENT ON FUNCTION zk_all_locks(text) IS
'All locks that somebody holds or waits for, of every client and cluster. prefix limits it to one name and those below: team for team and team/nightly, not teams. Sends one request for each znode below the root. Bounded by lock_timeout.';

-- Waits for PostgreSQL's own locks, in every cluster, by those who are waited for.
CREATE FUNCTION _zk_waits_in_postgres(
	OUT waits_for text,
	OUT session_id text,
	OUT blocked_by_session_id text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zk_waits_in_postgres' LANGUAGE C VOLATILE PARALLEL RESTRICTED
ROWS 10;

COMMENT ON FUNCTION _zk_waits_in_postgres() IS
'Part of zk_waits(): who waits in PostgreSQL for sessions that wait for ZooKeeper locks.';

-- Each queue that somebody waits in. The names may be escaped; the number tells them apart.
CREATE FUNCTION _zk_contenders(
	OUT lock integer,
	OUT name text,
	OUT "position" integer,
	OUT state text,
	OUT mode text,
	OUT since timestamptz,
	OUT session_id text,
	OUT client text,
	OUT cluster text,
	OUT datname text,
	OUT usename text,
	OUT application_name text,
	OUT pid integer,
	OUT host text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zk_contenders' LANGUAGE C VOLATILE PARALLEL RESTRICTED
ROWS 100;

COMMENT ON FUNCTION _zk_contenders() IS
'Part of zk_waits(): who stands in the queues of locks that somebody waits for.';

CREATE FUNCTION zk_waits(
	OUT cluster text,
	OUT datname text,
	OUT pid integer,
	OUT usename text,
	OUT host text,
	OUT session_id text,
	OUT client text,
	OUT waits_for text,
	OUT name text,
	OUT since timestamptz,
	OUT blocked_by_cluster text,
	OUT blocked_by_datname text,
	OUT blocked_by_pid integer,
	OUT blocked_by_usename text,
	OUT blocked_by_host text,
	OUT blocked_by_session_id text,
	OUT blocked_by_client text)
RETURNS SETOF record
LANGUAGE sql VOLATILE PARALLEL RESTRICTED ROWS 100
BEGIN ATOMIC
	WITH queued AS MATERIALIZED (
		SELECT * FROM _zk_contenders()
	), known AS (
		SELECT DISTINCT ON (q.session_id) q.*
		FROM queued AS q
		WHERE q.session_id IS NOT NULL
	)
	SELECT w.cluster, w.datname, w.pid, w.usename, w.host, w.session_id, w.client,
		format('%s on ZooKeeper lock "%s"',
			CASE WHEN w.mode = 'shared'
				THEN 'ShareLock' ELSE 'ExclusiveLock' END, zk_escape(w.name)),
		w.name, w.since,
		b.cluster, b.datname, b.pid, b.usename, b.host, b.session_id, b.client
	FROM queued AS w
		JOIN queued AS b ON b.lock = w.lock
			AND b."position" < w."position"
	WHERE w.state = 'waiting'
		AND b.state IN ('held', 'releasing')
	UNION ALL
	SELECT w.cluster, w.datname, w.pid, w.usename, w.host, p.session_id, w.client,
		p.waits_for, NULL::text, NULL::timestamptz,
		b.cluster, b.datname, b.pid, b.usename, b.host, p.blocked_by_session_id, b.client
	FROM _zk_waits_in_postgres() AS p
		LEFT JOIN known AS w ON w.session_id = p.session_id
		LEFT JOIN known AS b ON b.session_id = p.blocked_by_session_id;
END;

COMMENT ON FUNCTION zk_waits() IS
'Who waits for whom, below this session''s root: a row for each waiter and each holder in its way, of every client and cluster. If name is NULL, it waits for a lock of PostgreSQL''s own. Sends one request for each znode below the root and for each contender; lock_timeout bounds each.';

CREATE FUNCTION _zk_mermaid(label text)
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
	SELECT string_agg(
		CASE WHEN strpos('"#<>&`*\', c.letter) > 0
			THEN concat('#', ascii(c.letter), ';')
			ELSE c.letter END, '' ORDER BY c.number)
	FROM unnest(string_to_array(_zk_mermaid.label, NULL))
		WITH ORDINALITY AS c(letter, number);
END;

COMMENT ON FUNCTION _zk_mermaid(text) IS
'Part of zk_wait_graph(): a text, escaped for Mermaid.';

CREATE FUNCTION zk_wait_graph()
RETURNS text
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
BEGIN ATOMIC
	WITH waits AS MATERIALIZED (
		SELECT w.*, concat('s', w.session_id) AS waiter,
			concat('s', COALESCE(w.blocked_by_session_id, md5(w.name))) AS blocker
		FROM zk_waits() AS w
	), boxes AS (
		SELECT DISTINCT ON (b.box) b.box,
			CASE WHEN b.pid IS NOT NULL THEN concat('process ', b.pid)
				WHEN b.session_id IS NOT NULL THEN concat('session ', b.session_id)
				ELSE concat('hold of ', zk_escape(b.name)) END AS who,
			CASE WHEN b.cluster IS NULL AND b.datname IS NULL THEN b.client
				ELSE concat_ws(', ', b.cluster, b.datname) END AS location
		FROM waits AS w
			CROSS JOIN LATERAL (VALUES
				(w.waiter, w.pid, w.session_id, w.name, w.cluster, w.datname, w.client),
				(w.blocker, w.blocked_by_pid, w.blocked_by_session_id, w.name,
					w.blocked_by_cluster, w.blocked_by_datname, w.blocked_by_client))
				AS b(box, pid, session_id, name, cluster, datname, client)
		ORDER BY b.box
	), lines AS (
		SELECT 1 AS part, format(E'\t%s["%s"]', b.box,
			concat_ws('<br>', _zk_mermaid(b.who), _zk_mermaid(b.location))) AS line
		FROM boxes AS b
		UNION ALL
		SELECT 2, format(E'\t%s %s|"%s"| %s', w.waiter,
			CASE WHEN w.name IS NULL THEN '-.->' ELSE '-->' END,
			_zk_mermaid(COALESCE(zk_escape(w.name), w.waits_for)), w.blocker)
		FROM waits AS w
	)
	SELECT concat(E'flowchart LR\n',
		string_agg(concat(l.line, E'\n'), ''
			ORDER BY l.part, l.line COLLATE "C"))
	FROM lines AS l;
END;

COMMENT ON FUNCTION zk_wait_graph() IS
'zk_waits() as a picture for Mermaid: a box for each process, an arrow from waiter to holder, dashed for PostgreSQL''s own locks.';

CREATE FUNCTION zk_session_locks(
	OUT name text,
	OUT mode text,
	OUT state text,
	OUT session_acquisitions integer,
	OUT call_acquisitions integer,
	OUT xact_acquisitions integer,
	OUT token bigint,
	OUT node text,
	OUT granted_at timestamptz,
	OUT permits integer,
	OUT root text)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED
ROWS 10;

COMMENT ON FUNCTION zk_session_locks() IS
'The locks of this session, for the view zk_session_locks.';

CREATE VIEW zk_session_locks AS SELECT * FROM zk_session_locks();

COMMENT ON VIEW zk_session_locks IS
'The locks that this session holds. For other backends of this cluster see zk_locks, for everybody zk_lock_queue() and zk_all_locks().';

COMMENT ON COLUMN zk_session_locks.name IS
'Name of the lock.';
COMMENT ON COLUMN zk_session_locks.mode IS
'exclusive or shared. A lock held in both modes has two rows.';
COMMENT ON COLUMN zk_session_locks.state IS
'held; lost, until it is released; or kept: released, but not yet given up (zklock.keep). As known here without asking.';
COMMENT ON COLUMN zk_session_locks.session_acquisitions IS
'Acquisitions of session scope in that mode.';
COMMENT ON COLUMN zk_session_locks.call_acquisitions IS
'Acquisitions of call scope in that mode.';
COMMENT ON COLUMN zk_session_locks.xact_acquisitions IS
'Acquisitions of transaction scope in that mode.';
COMMENT ON COLUMN zk_session_locks.token IS
'Its fencing token.';
COMMENT ON COLUMN zk_session_locks.node IS
'Path of its queue node.';
COMMENT ON COLUMN zk_session_locks.granted_at IS
'When it was granted in that mode, by this server''s clock.';
COMMENT ON COLUMN zk_session_locks.permits IS
'How many may hold it: 1, or more for a semaphore.';
COMMENT ON COLUMN zk_session_locks.root IS
'Chroot of zklock.servers, and zklock.root. The same name below another root is another lock.';

CREATE FUNCTION zk_session(
	OUT state text,
	OUT server text,
	OUT session_id text,
	OUT session_timeout_ms integer,
	OUT pending_requests integer,
	OUT client_version text,
	OUT program_pid integer,
	OUT ssl boolean,
	OUT ssl_version text,
	OUT ssl_subject text)
RETURNS record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_session() IS
'The ZooKeeper session of this backend, for the view zk_session.';

CREATE VIEW zk_session AS SELECT * FROM zk_session();

COMMENT ON VIEW zk_session IS
'The ZooKeeper session of this backend, always one row. Does not open a session.';

COMMENT ON COLUMN zk_session.state IS
'none, connecting, connected, suspended (no connection now; the session may live), lost (until the lost locks are released) or idle (closed after zklock.idle_timeout; nothing was lost).';
COMMENT ON COLUMN zk_session.server IS
'The server it is, or was, connected to.';
COMMENT ON COLUMN zk_session.session_id IS
'Its number, as ZooKeeper prints it.';
COMMENT ON COLUMN zk_session.session_timeout_ms IS
'The session timeout that the ensemble has granted, in milliseconds.';
COMMENT ON COLUMN zk_session.pending_requests IS
'Requests under way.';
COMMENT ON COLUMN zk_session.client_version IS
'Version of ZooKeeper''s C client. NULL until the program has answered.';
COMMENT ON COLUMN zk_session.program_pid IS
'Process that holds the session. NULL without one.';
COMMENT ON COLUMN zk_session.ssl IS
'Whether its connection is, or was, encrypted (zklock.ssl).';
COMMENT ON COLUMN zk_session.ssl_version IS
'Version of TLS. NULL without it.';
COMMENT ON COLUMN zk_session.ssl_subject IS
'Subject of the server''s certificate. NULL without TLS.';

-- All backends of this cluster. Whose rows somebody sees, the functions decide.
CREATE FUNCTION zk_backends(
	OUT pid integer,
	OUT datname name,
	OUT usename name,
	OUT state text,
	OUT session_id text,
	OUT server text,
	OUT state_since timestamptz,
	OUT waiting_for text,
	OUT waiting_mode text,
	OUT waiting_permits integer,
	OUT waiting_since timestamptz,
	OUT lock_count integer,
	OUT last_proof timestamptz,
	OUT root text,
	OUT max_locks integer,
	OUT max_creates integer)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED
ROWS 100;

COMMENT ON FUNCTION zk_backends() IS
'The backends of this cluster, for the view zk_backends.';

CREATE VIEW zk_backends AS SELECT * FROM zk_backends();

COMMENT ON VIEW zk_backends IS
'The backends of this cluster that have, or had, a ZooKeeper session. A row is what its backend knew last; only the state of its session is always current. Other roles'' details need pg_read_all_stats. Asks nobody.';

COMMENT ON COLUMN zk_backends.pid IS
'Process of the backend.';
COMMENT ON COLUMN zk_backends.datname IS
'Its database.';
COMMENT ON COLUMN zk_backends.usename IS
'Its role.';
COMMENT ON COLUMN zk_backends.state IS
'State of its ZooKeeper session, as in zk_session.';
COMMENT ON COLUMN zk_backends.session_id IS
'Number of the session, as ZooKeeper prints it.';
COMMENT ON COLUMN zk_backends.server IS
'The server it is, or was, connected to.';
COMMENT ON COLUMN zk_backends.state_since IS
'Since when it is in that state. NULL if the backend has been idle since before.';
COMMENT ON COLUMN zk_backends.waiting_for IS
'The lock it waits for: the first 127 bytes of the name, without the root. NULL if none.';
COMMENT ON COLUMN zk_backends.waiting_mode IS
'The mode it waits for.';
COMMENT ON COLUMN zk_backends.waiting_permits IS
'The permits it names.';
COMMENT ON COLUMN zk_backends.waiting_since IS
'Since when it waits; anew if it queued again after a loss of its session.';
COMMENT ON COLUMN zk_backends.lock_count IS
'Number of locks it holds; zk_locks lists them.';
COMMENT ON COLUMN zk_backends.last_proof IS
'When the ensemble last proved that it keeps the session, for one session timeout from then on. Old if no commit has asked since.';
COMMENT ON COLUMN zk_backends.root IS
'As in zk_session_locks, for the lock it waited for or took last: the first 127 bytes. NULL before the first.';
COMMENT ON COLUMN zk_backends.max_locks IS
'zklock.max_locks, when its session was opened.';
COMMENT ON COLUMN zk_backends.max_creates IS
'zklock.max_creates, when its session was opened; 0: no bound. What the role has used of it is in zk_stat_roles.';

CREATE FUNCTION zk_locks(
	OUT pid integer,
	OUT name text,
	OUT mode text,
	OUT state text,
	OUT session_acquisitions integer,
	OUT call_acquisitions integer,
	OUT xact_acquisitions integer,
	OUT token bigint,
	OUT granted_at timestamptz,
	OUT permits integer,
	OUT last_proof timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED
ROWS 100;

COMMENT ON FUNCTION zk_locks() IS
'The locks of the backends of this cluster, for the view zk_locks.';

CREATE VIEW zk_locks AS SELECT * FROM zk_locks();

COMMENT ON VIEW zk_locks IS
'The locks that the backends of this cluster hold, at most 16 for each backend; zk_backends.lock_count has the number. Visibility and age of the rows are as in zk_backends.';

COMMENT ON COLUMN zk_locks.pid IS
'Process of the backend.';
COMMENT ON COLUMN zk_locks.name IS
'Name of the lock, without its root: the first 127 bytes.';
COMMENT ON COLUMN zk_locks.mode IS
'As in zk_session_locks.';
COMMENT ON COLUMN zk_locks.state IS
'held or lost. Kept locks are not shown.';
COMMENT ON COLUMN zk_locks.session_acquisitions IS
'As in zk_session_locks.';
COMMENT ON COLUMN zk_locks.call_acquisitions IS
'As in zk_session_locks.';
COMMENT ON COLUMN zk_locks.xact_acquisitions IS
'As in zk_session_locks.';
COMMENT ON COLUMN zk_locks.token IS
'Its fencing token.';
COMMENT ON COLUMN zk_locks.granted_at IS
'As in zk_session_locks.';
COMMENT ON COLUMN zk_locks.permits IS
'As in zk_session_locks.';
COMMENT ON COLUMN zk_locks.last_proof IS
'Date of the latest proof for this lock, as in zk_backends.';

-- Counters
CREATE FUNCTION zk_stat(
	OUT datname name,
	OUT grants_at_once bigint,
	OUT grants_handed_over bigint,
	OUT grants_told bigint,
	OUT grants_listed bigint,
	OUT grants_kept bigint,
	OUT keeps_given_up bigint,
	OUT tries_in_vain bigint,
	OUT timeouts bigint,
	OUT cancels bigint,
	OUT deadlocks bigint,
	OUT losses bigint,
	OUT refused_commits bigint,
	OUT evictions bigint,
	OUT leases_taken bigint,
	OUT leases_ended bigint,
	OUT refused_creates bigint,
	OUT sessions bigint,
	OUT reconnects bigint,
	OUT requests bigint,
	OUT waits bigint,
	OUT wait_time_ms double precision,
	OUT wait_histogram bigint[],
	OUT stats_reset timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED
ROWS 10;

COMMENT ON FUNCTION zk_stat() IS
'Counters of each database of this cluster, for the view zk_stat.';

CREATE VIEW zk_stat AS SELECT * FROM zk_stat();

COMMENT ON VIEW zk_stat IS
'Counters for each database that has used locks, since the server started or zk_stat_reset(). The 128th database and all later ones share the row whose datname is NULL. Asks nobody.';

COMMENT ON COLUMN zk_stat.datname IS
'The database. NULL: all that have no row of their own.';
COMMENT ON COLUMN zk_stat.grants_at_once IS
'Grants without a wait. Locks that the session already holds are not counted.';
COMMENT ON COLUMN zk_stat.grants_handed_over IS
'Grants after a wait, handed over by the holder through ZooKeeper.';
COMMENT ON COLUMN zk_stat.grants_told IS
'Grants after a wait, handed over by a holder of this cluster in shared memory.';
COMMENT ON COLUMN zk_stat.grants_listed IS
'Grants after a wait, found by reading the queue, which is slowest.';
COMMENT ON COLUMN zk_stat.grants_kept IS
'Grants of locks that this session had kept (zklock.keep).';
COMMENT ON COLUMN zk_stat.keeps_given_up IS
'Kept locks given up because somebody else wanted them. If many, turn zklock.keep off.';
COMMENT ON COLUMN zk_stat.tries_in_vain IS
'Tries that did not get the lock, also those that raised 08001.';
COMMENT ON COLUMN zk_stat.timeouts IS
'Lock requests that timed out (55P03).';
COMMENT ON COLUMN zk_stat.cancels IS
'Lock requests that were canceled, or met statement_timeout. Not those of lost locks or terminated backends.';
COMMENT ON COLUMN zk_stat.deadlocks IS
'Lock requests that ended in a deadlock (40P01).';
COMMENT ON COLUMN zk_stat.losses IS
'Sessions lost, with or without locks.';
COMMENT ON COLUMN zk_stat.refused_commits IS
'Commits refused with 40001.';
COMMENT ON COLUMN zk_stat.evictions IS
'Evictions that sessions of this database have made.';
COMMENT ON COLUMN zk_stat.leases_taken IS
'Leases taken, and places in line. No renewals.';
COMMENT ON COLUMN zk_stat.leases_ended IS
'Leases given up, or removed after their term; by the lease worker where datname is NULL.';
COMMENT ON COLUMN zk_stat.refused_creates IS
'Calls refused because of zklock.max_creates (53400), of all roles.';
COMMENT ON COLUMN zk_stat.sessions IS
'Sessions opened.';
COMMENT ON COLUMN zk_stat.reconnects IS
'Sessions reconnected, to any server.';
COMMENT ON COLUMN zk_stat.requests IS
'Requests sent, about as many as reach ZooKeeper. Counted at the end of a transaction.';
COMMENT ON COLUMN zk_stat.waits IS
'Waits for somebody ahead, however they ended.';
COMMENT ON COLUMN zk_stat.wait_time_ms IS
'Total time of these waits, in milliseconds.';
COMMENT ON COLUMN zk_stat.wait_histogram IS
'These waits by length: below 1, 3, 10, 30, 100, 300, 1000, 3000, 10000, 30000, 100000, 300000 ms, and longer.';
COMMENT ON COLUMN zk_stat.stats_reset IS
'Start of the server, or the last zk_stat_reset().';

CREATE FUNCTION zk_stat_roles(
	OUT datname name,
	OUT usename name,
	OUT writes bigint,
	OUT refused_writes bigint,
	OUT max_creates integer,
	OUT last_writes integer,
	OUT stats_reset timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED
ROWS 10;

COMMENT ON FUNCTION zk_stat_roles() IS
'What each role of this cluster has written to ZooKeeper, for the view zk_stat_roles.';

CREATE VIEW zk_stat_roles AS SELECT * FROM zk_stat_roles();

COMMENT ON VIEW zk_stat_roles IS
'What each role has written to ZooKeeper in each database, since the server started or zk_stat_reset(), and how near it is to its bound (zklock.max_creates). The role is the one that logged in. Asks nobody.';

COMMENT ON COLUMN zk_stat_roles.datname IS
'The database. NULL: none, which is the lease worker; or, if usename is NULL too, all that have no row of their own.';
COMMENT ON COLUMN zk_stat_roles.usename IS
'The role. NULL: the 1001st pair of database and role, and all later ones, share this row and its bound.';
COMMENT ON COLUMN zk_stat_roles.writes IS
'Writes that were counted. What only ends a znode is not: its create has paid for that.';
COMMENT ON COLUMN zk_stat_roles.refused_writes IS
'Calls refused because of zklock.max_creates (53400).';
COMMENT ON COLUMN zk_stat_roles.max_creates IS
'zklock.max_creates of the session that wrote last. 0: no bound.';
COMMENT ON COLUMN zk_stat_roles.last_writes IS
'Writes of about the last second, as the bound counts them: it refuses what would be more than max_creates, or than 20 where that is less. NULL without a bound.';
COMMENT ON COLUMN zk_stat_roles.stats_reset IS
'Start of the server, or the last zk_stat_reset() in this database.';

CREATE FUNCTION zk_stat_reset()
RETURNS void
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_stat_reset() IS
'Sets the counters of this database in zk_stat and zk_stat_roles to 0; without a row of its own in zk_stat, those of the shared row.';

-- Privileges by name. The type is a role's name for people, dumps and subscribers, and
-- its OID within: see src/ensemble/role.c. Comparisons are those of what is stored.
CREATE TYPE zk_role;

CREATE FUNCTION _zk_role_in(cstring) RETURNS zk_role
AS 'MODULE_PATHNAME', 'zk_role_in' LANGUAGE C STABLE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION _zk_role_in(cstring) IS
'Part of the type zk_role.';

CREATE FUNCTION _zk_role_out(zk_role) RETURNS cstring
AS 'MODULE_PATHNAME', 'zk_role_out' LANGUAGE C STABLE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION _zk_role_out(zk_role) IS
'Part of the type zk_role.';

CREATE FUNCTION _zk_role_recv(internal) RETURNS zk_role
AS 'MODULE_PATHNAME', 'zk_role_recv' LANGUAGE C STABLE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION _zk_role_recv(internal) IS
'Part of the type zk_role.';

CREATE FUNCTION _zk_role_send(zk_role) RETURNS bytea
AS 'MODULE_PATHNAME', 'zk_role_send' LANGUAGE C STABLE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION _zk_role_send(zk_role) IS
'Part of the type zk_role.';

CREATE TYPE zk_role (
	INPUT = _zk_role_in, OUTPUT = _zk_role_out, RECEIVE = _zk_role_recv, SEND = _zk_role_send,
	LIKE = bytea);

COMMENT ON TYPE zk_role IS
'A role by its name, or - for everybody. A name behind ! was unknown when it was read in, a number behind ! is that of a role that is gone; both are nobody.';

-- Who may use it can make operators of it, which its owner's queries of zk_privileges may
-- find in another schema.
REVOKE USAGE ON TYPE zk_role FROM PUBLIC;

-- Comparisons with texts are those with what is shown.
CREATE CAST (zk_role AS text) WITH INOUT AS IMPLICIT;

CREATE FUNCTION _zk_role_eq(zk_role, zk_role) RETURNS bool
AS 'byteaeq' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION _zk_role_eq(zk_role, zk_role) IS
'Part of the type zk_role.';

CREATE FUNCTION _zk_role_lt(zk_role, zk_role) RETURNS bool
AS 'bytealt' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION _zk_role_lt(zk_role, zk_role) IS
'Part of the type zk_role.';

CREATE FUNCTION _zk_role_le(zk_role, zk_role) RETURNS bool
AS 'byteale' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION _zk_role_le(zk_role, zk_role) IS
'Part of the type zk_role.';

CREATE FUNCTION _zk_role_ge(zk_role, zk_role) RETURNS bool
AS 'byteage' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION _zk_role_ge(zk_role, zk_role) IS
'Part of the type zk_role.';

CREATE FUNCTION _zk_role_gt(zk_role, zk_role) RETURNS bool
AS 'byteagt' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION _zk_role_gt(zk_role, zk_role) IS
'Part of the type zk_role.';

CREATE FUNCTION _zk_role_cmp(zk_role, zk_role) RETURNS int4
AS 'byteacmp' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION _zk_role_cmp(zk_role, zk_role) IS
'Part of the type zk_role.';

CREATE OPERATOR = (
	FUNCTION = _zk_role_eq, LEFTARG = zk_role, RIGHTARG = zk_role, COMMUTATOR = =,
	RESTRICT = eqsel, JOIN = eqjoinsel, MERGES);
CREATE OPERATOR < (
	FUNCTION = _zk_role_lt, LEFTARG = zk_role, RIGHTARG = zk_role, COMMUTATOR = >, NEGATOR = >=,
	RESTRICT = scalarltsel, JOIN = scalarltjoinsel);
CREATE OPERATOR <= (
	FUNCTION = _zk_role_le, LEFTARG = zk_role, RIGHTARG = zk_role, COMMUTATOR = >=, NEGATOR = >,
	RESTRICT = scalarlesel, JOIN = scalarlejoinsel);
CREATE OPERATOR >= (
	FUNCTION = _zk_role_ge, LEFTARG = zk_role, RIGHTARG = zk_role, COMMUTATOR = <=, NEGATOR = <,
	RESTRICT = scalargesel, JOIN = scalargejoinsel);
CREATE OPERATOR > (
	FUNCTION = _zk_role_gt, LEFTARG = zk_role, RIGHTARG = zk_role, COMMUTATOR = <, NEGATOR = <=,
	RESTRICT = scalargtsel, JOIN = scalargtjoinsel);

CREATE OPERATOR CLASS zk_role_ops DEFAULT FOR TYPE zk_role USING btree AS
	OPERATOR 1 < (zk_role, zk_role), OPERATOR 2 <= (zk_role, zk_role), OPERATOR 3 = (zk_role, zk_role),
	OPERATOR 4 >= (zk_role, zk_role), OPERATOR 5 > (zk_role, zk_role),
	FUNCTION 1 _zk_role_cmp(zk_role, zk_role);

-- A row of zk_closed closes a prefix, one of zk_privileges gives it to a role. Who did it
-- is told by session_user and by the role that it has SET: zk_grant() runs as its owner.
CREATE TABLE zk_closed (
	prefix text PRIMARY KEY,
	closed_by text DEFAULT session_user::text,
	closed_as text DEFAULT
		CASE current_setting('role') WHEN 'none'
			THEN session_user::text ELSE current_setting('role') END,
	closed_at timestamptz DEFAULT now()
);

COMMENT ON TABLE zk_closed IS
'Prefixes of names that are closed: only superusers, and roles to which zk_privileges gives something, may use them. zk_grant() closes a prefix, zk_open() opens it. Part of a dump.';

COMMENT ON COLUMN zk_closed.prefix IS
'It covers the name that it is, and those below it; empty: all names.';
COMMENT ON COLUMN zk_closed.closed_by IS
'The role that had logged in.';
COMMENT ON COLUMN zk_closed.closed_as IS
'The role that it had taken by SET ROLE; without one the same.';
COMMENT ON COLUMN zk_closed.closed_at IS
'When the transaction began that did it.';

CREATE TABLE zk_privileges (
	prefix text,
	role zk_role,
	privilege text CONSTRAINT "share, lock, look, request, run, hold, lease, or evict" CHECK (
		privilege = ANY ('{share,lock,look,request,run,hold,lease,evict}'::text[])),
	granted_by text DEFAULT session_user::text,
	granted_as text DEFAULT
		CASE current_setting('role') WHEN 'none'
			THEN session_user::text ELSE current_setting('role') END,
	granted_at timestamptz DEFAULT now(),
	PRIMARY KEY (prefix, role, privilege)
);

COMMENT ON TABLE zk_privileges IS
'Who may do what with which names of locks and jobs in this database: what zk_grant() has given. Part of a dump.';

COMMENT ON COLUMN zk_privileges.prefix IS
'It covers the name that it is, and those below it; empty: all names.';
COMMENT ON COLUMN zk_privileges.role IS
'The role that has the privilege, and with it its members; - for everybody; ! for a role that is gone, or was unknown when the row was restored: nobody.';
COMMENT ON COLUMN zk_privileges.privilege IS
'share, lock, look, request, run, hold, lease or evict.';
COMMENT ON COLUMN zk_privileges.granted_by IS
'The role that had logged in.';
COMMENT ON COLUMN zk_privileges.granted_as IS
'The role that it had taken by SET ROLE; without one the same.';
COMMENT ON COLUMN zk_privileges.granted_at IS
'When the transaction began that did it.';

SELECT pg_extension_config_dump('zk_closed', '');

-- A dump has the rows of a table as a whole, so they may all be lost where one of them cannot
-- be read, in a database of another encoding. It has the privileges of a type in any case.
CREATE DOMAIN _zk_unclosed AS boolean;

COMMENT ON DOMAIN _zk_unclosed IS
'Part of zk_closed: while that has rows, PUBLIC has no USAGE of this type. If it has none then, they were lost, and all names are closed.';

GRANT USAGE ON TYPE _zk_unclosed TO PUBLIC;

-- DROP ROLE knows of the privileges for a type, and not of rows.
CREATE DOMAIN zk_privileges_by_name AS boolean;

COMMENT ON DOMAIN zk_privileges_by_name IS
'Part of zk_privileges: each role with rows is granted USAGE of this type, so that it cannot be dropped before DROP OWNED BY it.';

SELECT pg_extension_config_dump('zk_privileges', '');

CREATE FUNCTION _zk_privileges_adding()
RETURNS trigger
AS 'MODULE_PATHNAME', 'zk_privileges_adding' LANGUAGE C;

COMMENT ON FUNCTION _zk_privileges_adding() IS
'Part of zk_privileges and zk_closed: passes over rows that are there already, so that a restore does not lose those with them.';

CREATE FUNCTION _zk_privileges_closing()
RETURNS trigger
AS 'MODULE_PATHNAME', 'zk_privileges_closing' LANGUAGE C;

COMMENT ON FUNCTION _zk_privileges_closing() IS
'Part of zk_privileges: keeps the prefixes closed that rows are taken from.';

CREATE FUNCTION _zk_privileges_changed()
RETURNS trigger
AS 'MODULE_PATHNAME', 'zk_privileges_changed' LANGUAGE C;

COMMENT ON FUNCTION _zk_privileges_changed() IS
'Part of zk_privileges and zk_closed: tells all backends that one has changed, the log who did it, and PostgreSQL which roles have rows.';

CREATE FUNCTION _zk_privileges_emptied()
RETURNS trigger
AS 'MODULE_PATHNAME', 'zk_privileges_emptied' LANGUAGE C;

COMMENT ON FUNCTION _zk_privileges_emptied() IS
'Part of zk_privileges and zk_closed: does for TRUNCATE what the others do for each row.';

-- For each row, and ALWAYS: no others are fired for changes that a subscription applies.
CREATE TRIGGER adding BEFORE INSERT ON zk_privileges
	FOR EACH ROW EXECUTE FUNCTION _zk_privileges_adding();
CREATE TRIGGER adding BEFORE INSERT ON zk_closed
	FOR EACH ROW EXECUTE FUNCTION _zk_privileges_adding();
CREATE TRIGGER closing BEFORE UPDATE OR DELETE ON zk_privileges
	FOR EACH ROW EXECUTE FUNCTION _zk_privileges_closing();
CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON zk_privileges
	FOR EACH ROW EXECUTE FUNCTION _zk_privileges_changed();
CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON zk_closed
	FOR EACH ROW EXECUTE FUNCTION _zk_privileges_changed();
CREATE TRIGGER emptied BEFORE TRUNCATE ON zk_privileges
	FOR EACH STATEMENT EXECUTE FUNCTION _zk_privileges_emptied();
CREATE TRIGGER emptied BEFORE TRUNCATE ON zk_closed
	FOR EACH STATEMENT EXECUTE FUNCTION _zk_privileges_emptied();
ALTER TABLE zk_privileges ENABLE ALWAYS TRIGGER adding;
ALTER TABLE zk_closed ENABLE ALWAYS TRIGGER adding;
ALTER TABLE zk_privileges ENABLE ALWAYS TRIGGER closing;
ALTER TABLE zk_privileges ENABLE ALWAYS TRIGGER changed;
ALTER TABLE zk_closed ENABLE ALWAYS TRIGGER changed;
ALTER TABLE zk_privileges ENABLE ALWAYS TRIGGER emptied;
ALTER TABLE zk_closed ENABLE ALWAYS TRIGGER emptied;

CREATE FUNCTION zk_grant(privilege text, prefix text, role text)
RETURNS void
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE SECURITY DEFINER;

COMMENT ON FUNCTION zk_grant(text, text, text) IS
'Gives a role, or public, privileges on a name and all below it; the prefix '''' covers all names. privilege: share, lock, look, request, run, hold, lease, evict, several with commas, or all. It closes the prefix: only superusers, and roles to which a row gives something, may use its names. With none it only closes.';

CREATE FUNCTION zk_revoke(privilege text, prefix text, role text)
RETURNS void
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE SECURITY DEFINER;

COMMENT ON FUNCTION zk_revoke(text, text, text) IS
'Takes away what zk_grant() gave for just that prefix and role, which may be written as zk_privileges shows it. What is held or waited for stays. The prefix stays closed, also without a row; zk_open() opens it.';

CREATE FUNCTION zk_open(prefix text)
RETURNS void
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE SECURITY DEFINER;

COMMENT ON FUNCTION zk_open(text) IS
'Opens a prefix to everybody: deletes its rows of zk_privileges and zk_closed. Those of shorter and longer prefixes stay, and close the names that they cover.';

-- What zk_check() tells.
CREATE FUNCTION _zk_check_facts(
	with_session boolean,
	OUT item text,
	OUT fact text,
	OUT place integer,
	OUT subject text,
	OUT value text,
	OUT number bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zk_check_facts' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE
ROWS 30;

COMMENT ON FUNCTION _zk_check_facts(boolean) IS
'Part of zk_check(): what was found, without a judgement. If fact is error, value is the message and subject the hint.';

CREATE FUNCTION _zk_check_settings(
	OUT item text,
	OUT state text,
	OUT what text,
	OUT remedy text)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER ROWS 15
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	refused record;
	reason text;
BEGIN
	RETURN QUERY SELECT 'extension', 'ok',
			format('version %s in this database, PostgreSQL %s', e.extversion, current_setting('server_version')),
			NULL
		FROM pg_extension AS e WHERE e.extname = 'zklock';
	-- It reads those of all extensions, and raises if one of them is broken.
	BEGIN
		RETURN QUERY SELECT 'extension files', 'warning',
				format('version %s in this database, files of version %s', e.extversion, a.default_version),
				'ALTER EXTENSION zklock UPDATE in each database.'
			FROM pg_extension AS e
				JOIN pg_available_extensions() AS a ON a.name = e.extname
			WHERE e.extname = 'zklock' AND e.extversion <> a.default_version;
	EXCEPTION WHEN OTHERS THEN
		RETURN QUERY SELECT 'extension files', 'note', SQLERRM, NULL;
	END;

	RETURN QUERY SELECT 'zklock.servers', 'error', 'no servers are set',
			'Set it in postgresql.conf to the servers of your ensemble, for example ''zk1:2181,zk2:2181,zk3:2181'', and reload.'
		WHERE current_setting('zklock.servers') = '';
	RETURN QUERY SELECT s.name, CASE WHEN g.is_off THEN 'warning' ELSE 'ok' END,
			concat(current_setting(s.name), ', source: ', s.source, ' ' || s.sourcefile, ':' || s.sourceline,
				CASE WHEN g.is_off THEN '; no commit is refused here, whatever lock is lost' END),
			CASE WHEN g.is_off
				THEN 'Set it to lease, which is the default, or to quorum, where nothing may be committed without its lock.' END
		FROM pg_settings AS s
			CROSS JOIN LATERAL (SELECT s.name = 'zklock.commit_guard' AND s.setting = 'off') AS g(is_off)
		WHERE s.name LIKE 'zklock.%' AND s.name NOT IN ('zklock.auth', 'zklock.ssl_passphrase_command')
			AND (s.name <> 'zklock.servers' OR current_setting(s.name) <> '')
		ORDER BY s.name;

	-- Whether it runs is seen, not concluded from the settings.
	RETURN QUERY SELECT 'lease worker', v.state, v.what, v.remedy
		FROM (SELECT (SELECT a.pid FROM pg_stat_activity AS a
				WHERE a.backend_type = 'zklock lease worker' LIMIT 1)) AS w(pid)
			CROSS JOIN LATERAL (VALUES
				(1, w.pid IS NOT NULL AND current_setting('zklock.lease_worker') = 'on', 'ok',
					format('it runs, as process %s', w.pid), NULL),
				(2, current_setting('zklock.lease_worker') = 'off', 'ok', 'switched off (zklock.lease_worker)', NULL),
				(3, true, 'warning', 'it does not run: leases whose term is over may stay, and no session is told of lost locks (zklock.loss_channel)',
					'If the log says that there is no slot for it, increase max_worker_processes, and restart. Otherwise the log says why it ended.'))
				AS v(nr, applies, state, what, remedy)
		WHERE v.applies
		ORDER BY v.nr
		LIMIT 1;

	-- What other sessions of this cluster have instead, where that makes other locks of the
	-- same names, or locks that refuse nothing.
	RETURN QUERY SELECT v.name, 'warning',
			format('%s for sessions of %s, by ALTER %s', n.value,
				COALESCE(NULLIF(concat_ws(' in ', 'role "' || r.rolname || '"', 'database "' || d.datname || '"'), ''), 'all roles'),
				CASE WHEN o.setrole = 0 AND o.setdatabase <> 0 THEN 'DATABASE' ELSE 'ROLE' END),
			v.remedy
		FROM pg_db_role_setting AS o
			CROSS JOIN LATERAL unnest(o.setconfig) AS c(line)
			CROSS JOIN LATERAL (SELECT lower(split_part(c.line, '=', 1)), substr(c.line, strpos(c.line, '=') + 1)) AS n(name, value)
			JOIN LATERAL (VALUES
				('zklock.root', 'Locks below another root are other locks. If that is not meant, take the setting back, with RESET.'),
				('zklock.servers', 'Locks of another ensemble, or below another chroot, are other locks. If that is not meant, take the setting back, with RESET.'),
				('zklock.commit_guard', 'No commit of these sessions is refused when a lock is lost. If that is not meant, take the setting back, with RESET.')) AS v(name, remedy)
				ON v.name = n.name
			LEFT JOIN pg_roles AS r ON r.oid = o.setrole
			LEFT JOIN pg_database AS d ON d.oid = o.setdatabase
		WHERE n.value IS DISTINCT FROM current_setting(v.name)
			AND (v.name <> 'zklock.commit_guard' OR n.value = 'off')
		ORDER BY v.name, r.rolname, d.datname;

	-- What the files say and the server does not take: it goes on with what it had.
	-- A line without a name that it cannot read keeps it from taking anything.
	FOR refused IN SELECT f.* FROM pg_file_settings AS f
		WHERE f.error IS NOT NULL AND (f.name IS NULL OR lower(f.name) LIKE 'zklock.%')
		ORDER BY f.seqno
	LOOP
		reason := '';
		IF lower(refused.name) = 'zklock.servers' THEN
			BEGIN
				PERFORM set_config('zklock.servers', refused.setting, true);
				RAISE triggered_action_exception; -- to undo it
			EXCEPTION WHEN OTHERS THEN
				GET STACKED DIAGNOSTICS reason = PG_EXCEPTION_DETAIL;
			END;
		END IF;
		RETURN QUERY SELECT COALESCE(refused.name, 'postgresql.conf'), 'error',
			concat_ws(': ', format('what stands in %s line %s is refused', refused.sourcefile, refused.sourceline),
				refused.error, NULLIF(reason, '')),
			'Correct the file, and reload; see the server''s log.';
	END LOOP;
EXCEPTION WHEN OTHERS THEN
	RETURN QUERY SELECT 'settings', 'error', SQLERRM, NULL;
END $$;

COMMENT ON FUNCTION _zk_check_settings() IS
'Part of zk_check(): what PostgreSQL knows, read as the owner of the extension, so that every caller is told the same. It never reads the values of zklock.auth and zklock.ssl_passphrase_command.';

CREATE FUNCTION zk_check(
	with_session boolean DEFAULT true,
	OUT item text,
	OUT state text,
	OUT what text,
	OUT remedy text)
RETURNS SETOF record
LANGUAGE sql VOLATILE PARALLEL UNSAFE ROWS 30
BEGIN ATOMIC
	WITH fact AS MATERIALIZED (
		-- of a server ask.h has the number of what was found, the better the greater
		SELECT f.item, CASE WHEN v.words IS NULL THEN f.fact ELSE v.words[f.fact::integer + 1] END AS fact,
			f.place, f.subject, f.value, f.number, f.ordinal, CASE WHEN v.words IS NOT NULL THEN f.fact::integer END AS quality
		FROM _zk_check_facts(COALESCE(zk_check.with_session, false)) WITH ORDINALITY AS f(
				item, fact, place, subject, value, number, ordinal)
			LEFT JOIN (VALUES (ARRAY['unheard', 'unresolved', 'unreachable', 'no connection', 'closed',
				'untrusted', 'silent', 'stranger', 'idle', 'serving', 'settings', 'counters', 'encrypted', 'requests'])) AS v(words)
				ON starts_with(f.item, 'server ')
	), address AS MATERIALIZED (
		SELECT f.*, a.mode, substring(f.value, '[0-9][0-9.]*') AS release,
			CASE WHEN f.fact = 'serving' AND a.mode = 'read-only' THEN 'reading' ELSE f.fact END AS verdict
		FROM fact AS f
			CROSS JOIN LATERAL (SELECT substring(f.value, E'\nMode: ([a-z-]+)')) AS a(mode)
		WHERE f.quality <= 9
	), server AS MATERIALIZED (
		-- the best of its addresses
		SELECT DISTINCT ON (a.place) a.*
		FROM address AS a
		ORDER BY a.place, a.quality DESC, a.verdict DESC
	), setting AS MATERIALIZED (
		SELECT f.place, f.subject,
			substring(f.value, '(?n)^tickTime=([0-9]{1,6})(?![0-9])')::bigint AS tick_ms,
			substring(f.value, '(?n)^syncLimit=([0-9]{1,6})(?![0-9])')::bigint AS sync_limit,
			substring(f.value, '(?n)^minSessionTimeout=([0-9]{1,9})(?![0-9])')::bigint AS min_ms,
			substring(f.value, '(?n)^maxSessionTimeout=([0-9]{1,9})(?![0-9])')::bigint AS max_ms,
			substring(f.value, '(?n)^maxClientCnxns=([0-9]{1,9})(?![0-9])')::bigint AS most,
			regexp_match(f.value, E'(?n)^data(?:Log)?Dir=(/(?:tmp|run|var/run|dev/shm)/.*)$') AS volatile
		FROM fact AS f
		WHERE f.fact = 'settings'
	), clock AS (
		-- of each server: by its own clock, how late it gets the leader's changes, and
		-- how many of them were not earlier than they were made
		SELECT DISTINCT f.subject,
			substring(f.value, 'zk_p50_propagation_latency.([0-9]{1,15})')::bigint AS half_ms,
			substring(f.value, 'zk_max_propagation_latency.([0-9]{1,15})')::bigint AS most_ms,
			substring(f.value, 'zk_cnt_propagation_latency.([0-9]{1,15})')::bigint AS late,
			substring(f.value, 'received_count.([0-9]{1,15})')::bigint AS changes
		FROM fact AS f
		WHERE f.fact = 'counters'
	), request AS (
		-- of the servers that serve: the longest request that the one takes that takes the
		-- shortest, as far as it was tried, and what it is to take
		SELECT min(f.value::bigint) AS bytes, count(DISTINCT f.place) AS known,
			pg_size_bytes(current_setting('zklock.max_lock_bytes')) * 2 - 1 AS wanted,
			string_agg(DISTINCT f.subject, ', ') FILTER (WHERE f.value::bigint <
				pg_size_bytes(current_setting('zklock.max_lock_bytes')) * 2 - 1) AS small
		FROM fact AS f
		WHERE f.fact = 'requests'
	), encryption AS MATERIALIZED (
		-- 1 version, 2 cipher, 5 subject of the server; and when the first certificate of
		-- either side expires
		SELECT f.place, f.item, f.subject, m.part,
			to_timestamp(m.part[3]::double precision) AS theirs,
			to_timestamp(NULLIF(m.part[4]::double precision, 0::double precision)) AS ours
		FROM fact AS f
			CROSS JOIN LATERAL (SELECT regexp_match(f.value,
				E'^(\\S+) (\\S+) ([0-9]{1,12}) ([0-9]{1,12}) (.*)$')) AS m(part)
		WHERE f.fact = 'encrypted' AND m.part IS NOT NULL
	), ensemble AS MATERIALIZED (
		-- servers of the list, each of them once, whatever names it has there
		SELECT count(*) AS named,
			count(*) FILTER (WHERE s.quality > 3) AS reached,
			count(*) FILTER (WHERE s.verdict = 'serving') AS serving,
			count(*) FILTER (WHERE s.verdict IN ('idle', 'reading')) AS without_quorum,
			count(DISTINCT s.subject) FILTER (WHERE s.mode = 'standalone') AS alone,
			count(DISTINCT s.subject) FILTER (WHERE s.mode = 'leader') AS leaders,
			count(DISTINCT s.subject) FILTER (
				WHERE s.mode IN ('leader', 'follower', 'observer')) AS members
		FROM server AS s
	), release AS (
		SELECT string_agg(DISTINCT a.release, ', ') AS releases,
			count(DISTINCT a.release) AS number,
			-- ZOOKEEPER-4537
			bool_or(a.release ~ '^(3\.6\.|3\.7\.0$|3\.8\.0$)') AS has_bugs
		FROM address AS a
		WHERE a.fact = 'serving'
	), granted AS (
		SELECT max(t.min_ms) AS min_ms, min(t.max_ms) AS max_ms,
			max(t.tick_ms * t.sync_limit) FILTER (WHERE s.mode <> 'standalone') AS sync_ms
		FROM setting AS t
			JOIN address AS s ON s.place = t.place AND s.subject = t.subject
	), connection AS (
		-- of the server that allows the fewest; 0 is any number
		SELECT COALESCE(min(t.most) FILTER (WHERE t.most > 0), min(t.most)) AS most
		FROM setting AS t
	), own AS (
		SELECT COALESCE(zk_check.with_session, false) AS with_session, o.state AS session_state, o.server,
			current_setting('max_connections')::bigint AS max_connections,
			(extract(epoch FROM current_setting('zklock.session_timeout')::interval)
				* 1000::numeric)::integer AS session_ms,
			EXISTS (SELECT FROM fact AS f WHERE f.item = 'credentials' AND f.fact = 'set') AS has_credentials,
			current_setting('zklock.root') <> '/' AS has_root
		FROM zk_session AS o
	), step AS (
		-- the last one of each: a session that was lost on the way is asked for anew
		SELECT DISTINCT ON (f.item) f.*,
			CASE WHEN f.number BETWEEN 1 AND 9999999999999
				THEN to_timestamp((f.number / 1000)::double precision)::text
				ELSE 'an impossible date' END AS date
		FROM fact AS f
		ORDER BY f.item, f.ordinal DESC
	), rule(part, item, nr, applies, state, what, remedy) AS (
		-- Of the rules of one item the first that applies makes the row.
		SELECT 1, s.item, r.*
		FROM step AS s, LATERAL (VALUES
			(1, s.fact = 'runs', 'ok',
				format('"%s" runs, protocol %s, ZooKeeper''s client library %s', s.subject, s.number, s.value),
				NULL))
			AS r(nr, applies, state, what, remedy)
		WHERE s.item = 'program'
		UNION ALL
		SELECT 5, 'ensemble', r.*
		FROM ensemble AS e, LATERAL (VALUES
			(1, e.reached = 0, 'error', 'none of the %s servers can be reached',
				'Until then no lock can be had. See the rows of the servers.'),
			(2, e.serving = 0 AND e.without_quorum > 0, 'error', 'none of the %s servers serves: no quorum',
				'Until then no lock can be had. See the rows of the servers.'),
			(3, e.serving = 0, 'error', 'none of the %s servers serves',
				'Until then no lock can be had. See the rows of the servers.'),
			(4, e.alone > 1 OR (e.alone > 0 AND e.members > 0), 'error',
				'the servers are not of one ensemble: %2$s standalone, %3$s members',
				'Name the servers of one ensemble in zklock.servers: the same name is another lock in each.'),
			(5, e.leaders > 1, 'warning', '%4$s of the servers are leaders: an election may be under way',
				'Try again. If it stays so, zklock.servers names several ensembles: the same name is another lock in each.'),
			(6, e.serving < e.named, 'warning', 'only %5$s of %1$s servers serve', 'See the rows of the other servers.'),
			(7, e.alone = 1, 'note', 'a single server', 'Run three servers where locks must survive the loss of one.'),
			(8, e.named > 1 AND e.named % 2 = 0, 'note', 'all %s servers serve: an even number',
				'An odd number bears as much, and needs a smaller quorum.'),
			(9, e.named = 1, 'ok', 'the one server named serves', NULL),
			(10, true, 'ok', 'all %s servers serve', NULL))
			AS v(nr, applies, state, what, remedy),
			LATERAL (SELECT v.nr, v.applies, v.state,
				format(v.what, e.named, e.alone, e.members, e.leaders, e.serving), v.remedy)
			AS r(nr, applies, state, what, remedy)
		WHERE e.named > 0
		UNION ALL
		SELECT 6, 'release', 1, true, CASE WHEN l.has_bugs OR l.number > 1 THEN 'note' ELSE 'ok' END,
			concat('servers of release ', l.releases,
				CASE WHEN l.has_bugs THEN ', in which a change that is agreed upon may stay unseen until the next one (ZOOKEEPER-4537)' END),
			CASE WHEN l.has_bugs THEN 'Upgrade the servers. zklock copes with it, at the cost of a request where no answer comes.'
				WHEN l.number > 1 THEN 'Finish the upgrade of the servers.' END
		FROM release AS l
		WHERE l.number > 0
		UNION ALL
		SELECT 7, 'connections', r.*
		FROM own AS o CROSS JOIN ensemble AS e CROSS JOIN connection AS c, LATERAL (VALUES
			(1, c.most IS NULL, 'note',
				'how many the servers allow cannot be known: they do not answer "conf"',
				'Compare maxClientCnxns (60 by default) of the servers with the sum of max_connections behind one address; or add conf to 4lw.commands.whitelist.'),
			(2, c.most = 0, 'ok', 'the servers allow any number from an address', NULL),
			(3, o.max_connections > c.most, 'note', 'a server allows %s from one address; max_connections is %s',
				'Raise maxClientCnxns of the servers, set it to 0, or use a pooler, if so many backends may lock at a time.'),
			(4, true, 'ok', 'a server allows %s from one address; max_connections is %s', NULL))
			AS v(nr, applies, state, what, remedy),
			LATERAL (SELECT v.nr, v.applies, v.state,
				format(v.what, c.most, o.max_connections), v.remedy)
			AS r(nr, applies, state, what, remedy)
		WHERE e.serving > 0
		UNION ALL
		SELECT 8, 'jute.maxbuffer', r.*
		FROM own AS o CROSS JOIN ensemble AS e CROSS JOIN request AS q, LATERAL (VALUES
			(1, q.small IS NOT NULL, 'warning',
				'it is less than twice zklock.max_lock_bytes: %1$s takes no request of %2$s bytes, but one of %3$s',
				'Set zklock.max_lock_bytes to %4$skB or less wherever this ensemble is used, or raise jute.maxbuffer of all servers. The end of a session that holds more makes a transaction that the servers cannot read again: after a restart none of them starts.'),
			(2, q.known < e.serving, 'note',
				'of some servers it could not be found out whether they take requests of %2$s bytes, twice zklock.max_lock_bytes',
				'Try again; or compare zklock.max_lock_bytes with jute.maxbuffer of all servers (1 MB by default), of which it may be half.'),
			(3, true, 'ok', 'all servers take requests of %2$s bytes: twice zklock.max_lock_bytes', NULL))
			AS v(nr, applies, state, what, remedy),
			LATERAL (SELECT v.nr, v.applies, v.state,
				format(v.what, q.small, q.wanted, q.bytes),
				format(v.remedy, q.small, q.wanted, q.bytes, (q.bytes + 1) / 2048))
			AS r(nr, applies, state, what, remedy)
		WHERE e.serving > 0 AND o.with_session
		UNION ALL
		SELECT 8, 'session timeout', r.*
		FROM own AS o CROSS JOIN ensemble AS e CROSS JOIN granted AS g, LATERAL (VALUES
			(1, o.session_ms < g.min_ms OR o.session_ms > g.max_ms, 'warning',
				'%s ms are asked for, the servers grant %s to %s ms',
				'Set zklock.session_timeout to what they grant, or minSessionTimeout and maxSessionTimeout (2 and 20 ticks by default) of the servers.'),
			(2, 3 * o.session_ms < 4 * g.sync_ms, 'warning',
				'%1$s ms are less than four thirds of syncLimit * tickTime, %4$s ms',
				'Set zklock.session_timeout to four thirds of syncLimit * tickTime of the ensemble or more: for that long a leader that hangs is waited for.'),
			(3, g.max_ms IS NULL AND 3 * o.session_ms < 4 * 10000, 'note',
				'%s ms are asked for; syncLimit and tickTime cannot be known, for the servers do not answer "conf"',
				'Compare zklock.session_timeout with syncLimit * tickTime of the ensemble, of which it must be at least four thirds (13.4 s by default); or add conf to 4lw.commands.whitelist.'),
			(4, g.max_ms IS NULL, 'ok',
				'%s ms are asked for; syncLimit and tickTime cannot be known, for the servers do not answer "conf"', NULL),
			(5, g.sync_ms IS NOT NULL, 'ok', '%1$s ms, at least four thirds of syncLimit * tickTime, %4$s ms', NULL),
			(6, true, 'ok', '%s ms, within what the servers grant', NULL))
			AS v(nr, applies, state, what, remedy),
			LATERAL (SELECT v.nr, v.applies, v.state,
				format(v.what, o.session_ms, g.min_ms, g.max_ms, g.sync_ms), v.remedy)
			AS r(nr, applies, state, what, remedy)
		WHERE e.serving > 0
		UNION ALL
		SELECT 9, s.item, 1, s.fact <> 'error', CASE WHEN s.fact = 'none' THEN 'note' ELSE 'ok' END,
			CASE WHEN s.fact = 'none'
				THEN concat('zklock.auth is not set: everybody who reaches the ensemble may delete what is made',
					CASE WHEN current_setting('zklock.publish_identity') = 'on'
						THEN ', and read by which user, host and process (zklock.publish_identity)' END)
				ELSE format('zklock.auth has credentials of scheme "%s"', s.subject) END,
			CASE WHEN s.fact = 'none'
				THEN 'Set zklock.auth where others reach the ensemble whom you do not trust.' END
		FROM step AS s
		WHERE s.item = 'credentials'
		UNION ALL
		SELECT 10, 'session', r.*
		FROM own AS o, LATERAL (VALUES
			(1, o.session_state = 'none' OR o.session_state = 'idle', 'ok',
				'this connection has none, and none was opened: zk_check(true) does', NULL),
			(2, o.session_state = 'connected', 'ok', concat('this connection has one, at ', o.server), NULL),
			(3, true, 'warning', 'this connection has one that is not connected',
				'See zk_session, and the rows of the servers.'))
			AS r(nr, applies, state, what, remedy)
		WHERE NOT o.with_session AND NOT EXISTS (SELECT FROM step AS s WHERE s.item = 'session')
		UNION ALL
		-- All that is found in the ensemble itself; docs/monitoring.md marks these rows.
		SELECT 10, 'not looked at', 1, true, 'note',
			'jute.maxbuffer, granted timeout, digest, chroot, root, acl, writing, clock, other roots, leases, containers: only a session tells',
			'Run zk_check(true), too: after each change of the settings or of the ensemble, and now and then.'
		FROM own AS o
		WHERE NOT o.with_session
		UNION ALL
		SELECT 10, 'session', r.*
		FROM step AS s, LATERAL (VALUES
			(0, s.fact = 'not tried' AND EXISTS (SELECT FROM fact AS f WHERE f.item = 'program' AND f.fact = 'error'),
				'error', 'not tried, for its program cannot be run', 'See the row "program".'),
			(1, s.fact = 'not tried', 'error', 'not tried, for no server can grant one', 'See the rows of the servers.'),
			(2, s.fact = 'not granted', 'error',
				concat('no session was granted in zklock.connect_timeout, ',
					current_setting('zklock.connect_timeout')),
				'See the rows of the servers; look into the network and the ensemble''s load.'),
			(3, s.fact = 'late', 'error',
				concat('the ensemble has not answered all in zklock.connect_timeout, ',
					current_setting('zklock.connect_timeout')),
				'See the rows of the servers; look into the network and the ensemble''s load.'),
			(4, s.fact = 'lost', 'error', s.value, s.subject),
			(5, s.fact = 'suspended', 'warning', 'this connection has one that is not connected',
				'See zk_session, and the rows of the servers.'),
			(6, s.fact <> 'error', 'ok',
				format('connected to %s; it took %s ms to ask all this', s.subject, s.number), NULL))
			AS r(nr, applies, state, what, remedy)
		WHERE s.item = 'session'
		UNION ALL
		-- Where names have more addresses than are asked, or are not known, it cannot be told.
		SELECT 10, 'moved servers', r.*
		FROM own AS o, LATERAL (
			SELECT (
					SELECT l.server
					FROM (SELECT COALESCE((SELECT s.subject FROM step AS s WHERE s.item = 'session' AND s.place > 0),
							CASE WHEN o.session_state = 'connected' THEN o.server END)) AS l(server)
					WHERE NOT EXISTS (SELECT FROM address AS a WHERE a.subject = l.server)) AS own,
				count(b.server) AS number,
				string_agg(DISTINCT b.server, ', ') AS servers
			FROM zk_backends AS b
			WHERE b.pid <> pg_backend_pid() AND b.state = 'connected'
				AND NOT EXISTS (SELECT FROM address AS a WHERE a.subject = b.server)) AS m,
			LATERAL (VALUES
			(1, m.own IS NOT NULL, 'warning',
				format('%s, where this connection''s session is, is behind no name of zklock.servers', m.own),
				'Look at that server: it may be outdated, or gone from its ensemble. The session goes on at another one by itself when its connection ends: stop that server, or end the connection when its locks are released.'),
			(2, m.number > 0, 'note',
				format('other backends whose sessions are, as far as they know, at servers behind no name of zklock.servers: %s (%s)',
					m.number, m.servers),
				'Look at these servers: they may be outdated, or gone from their ensemble. The sessions go on at others by themselves when their connections end. See zk_backends.'))
			AS r(nr, applies, state, what, remedy)
		WHERE EXISTS (SELECT FROM address AS a)
			AND NOT EXISTS (
				SELECT FROM address AS a
				GROUP BY a.place
				HAVING count(*) >= 4 OR bool_or(a.verdict IN ('unheard', 'unresolved')))
		UNION ALL
		SELECT 11, 'granted timeout', r.*
		FROM own AS o, step AS s, LATERAL (VALUES
			(1, s.place <> o.session_ms, 'warning',
				format('%s ms were asked for, %s ms granted', o.session_ms, s.place),
				'Set zklock.session_timeout to what the ensemble grants, or minSessionTimeout and maxSessionTimeout (2 and 20 ticks by default) of its servers. A session that is in use keeps its timeout until its locks are released.'),
			(2, true, 'ok', format('%s ms, as asked for', s.place), NULL))
			AS r(nr, applies, state, what, remedy)
		WHERE s.item = 'session' AND s.place > 0
		UNION ALL
		SELECT 12, 'digest', r.*
		FROM own AS o, step AS s, LATERAL (VALUES
			(1, o.has_credentials, 'note',
				'with zklock.auth sessions have no identity of their own: no hand-over, and whoever has the credentials may write to queue nodes',
				NULL),
			(2, s.fact = 'no identity', 'note',
				'the ensemble refuses digest authentication: no hand-over, and everybody may write to queue nodes',
				'Enable the digest authentication of ZooKeeper.'),
			(3, true, 'ok', 'the ensemble knows digest authentication', NULL))
			AS r(nr, applies, state, what, remedy)
		WHERE s.item = 'session' AND s.place > 0
		UNION ALL
		SELECT v.part, s.item, v.nr, v.applies, v.state,
			format(v.what, s.subject, s.value, s.date, s.place), v.remedy
		FROM own AS o, step AS s, LATERAL (VALUES
			(0, 13, 'chroot', s.fact = 'ephemeral', 'error', 'znode "%s" is ephemeral, of session %s: no lock can be below it',
				'Another program has made it. End that, or set another chroot in zklock.servers.'),
			(0, 14, 'root', s.fact = 'ephemeral', 'error', 'znode "%s" is ephemeral, of session %s: no lock can be below it',
				'Another program has made it. End that, or set another zklock.root.'),
			(1, 13, 'chroot', s.fact = 'no node', 'warning', 'znode "%s" does not exist',
				'Is it mistyped in zklock.servers? Locks below another chroot are other locks. Otherwise create it, or leave that to the first lock.'),
			(2, 13, 'chroot', s.fact = 'done' AND s.place = 0 AND o.has_root, 'warning', 'znode "%s" is empty: nobody has had a lock there',
				'Is it mistyped in zklock.servers? Locks below another chroot are other locks. Otherwise leave the rest to the first lock.'),
			(3, 13, 'chroot', s.fact = 'done', 'ok', 'znode "%1$s" is there since %3$s', NULL),
			(4, 13, 'chroot', true, 'warning', 'znode "%s" cannot be read: %s',
				'See its ACL (getAcl in zkCli.sh), and zklock.auth.'),
			(4, 14, 'root', s.fact = 'no node', 'note', 'znode "%s" does not exist yet',
				'The first lock makes it. If there should be locks by now, zklock.root is mistyped: locks below another root are other locks.'),
			(5, 14, 'root', s.fact = 'done', 'ok', 'znode "%1$s" is there since %3$s, with %4$s znodes in it', NULL),
			(6, 14, 'root', true, 'error', 'znode "%s" cannot be read: %s',
				'See its ACL (getAcl in zkCli.sh), and zklock.auth.'),
			(7, 15, 'acl', s.fact = 'done', 'ok', 'not everybody may create and delete in znode "%s"', NULL),
			(8, 15, 'acl', s.fact = 'open' AND o.has_credentials, 'warning',
				'everybody may create or delete in znode "%s", whatever zklock.auth is',
				'Set its ACL by hand (setAcl in zkCli.sh) to that of your credentials, see docs/background.md, ACLs.'),
			(9, 15, 'acl', s.fact = 'open', 'ok',
				'everybody may create and delete in znode "%s", as without zklock.auth it has to be', NULL),
			(10, 15, 'acl', true, 'note', 'the ACL of znode "%s" cannot be read: %s', NULL),
			(11, 16, 'writing', s.fact = 'done', 'ok', 'a znode was made in "%s", and taken away', NULL),
			(12, 16, 'writing', s.fact = 'denied' AND o.has_credentials, 'error',
				'this session may not create znodes in "%s": no lock can be had',
				'Its ACL is for other credentials than those of zklock.auth (getAcl in zkCli.sh): all databases and clients of a lock need the same.'),
			(13, 16, 'writing', s.fact = 'denied', 'error',
				'this session may not create znodes in "%s": no lock can be had',
				'Its ACL is for those with credentials: set zklock.auth to them.'),
			(14, 16, 'writing', s.fact = 'quota', 'error', 'a quota of ZooKeeper for "%s" is exceeded: no lock can be had',
				'Raise the quota (setquota in zkCli.sh), or find out who has used it up.'),
			(15, 16, 'writing', s.fact = 'local', 'error',
				'sessions of this ensemble are local to a server, and may not have ephemeral znodes: no lock can be had',
				'Set localSessionsUpgradingEnabled to true on all its servers, or localSessionsEnabled to false.'),
			(16, 16, 'writing', true, 'error', 'no znode could be made in "%s": %s', 'Try again; see the servers'' logs.'))
			AS v(nr, part, item, applies, state, what, remedy)
		WHERE v.item = s.item
		UNION ALL
		SELECT 17, s.item, r.*
		FROM step AS s, LATERAL (VALUES
			(1, s.number = 0, 'ok', 'the ensemble''s clock is as ours, as far as can be seen', NULL),
			(2, true, CASE WHEN abs(s.number) > 60000 THEN 'warning'
					WHEN abs(s.number) > 2000 THEN 'note' ELSE 'ok' END,
				format('the ensemble''s clock is %s ours by %s or more',
					CASE WHEN s.number < 0 THEN 'behind' ELSE 'ahead of' END,
					CASE WHEN abs(s.number) >= 7200000 THEN format('%s hours', abs(s.number) / 3600000)
						WHEN abs(s.number) >= 120000 THEN format('%s minutes', abs(s.number) / 60000)
						ELSE format('%s ms', abs(s.number)) END),
				CASE WHEN abs(s.number) > 2000
					THEN 'Set the clocks (NTP). Locks do not depend on them. Dates in views and terms of leases as they are shown do; and a job that makes its slot of zk_run_once() from the date claims that of another day.' END))
			AS r(nr, applies, state, what, remedy)
		WHERE s.item = 'clock'
		UNION ALL
		SELECT 18, 'clocks', r.*
		FROM ensemble AS e, (
			SELECT count(c.half_ms) AS known,
				string_agg(format('%s (%s s)', c.subject, c.half_ms / 1000), ', ')
					FILTER (WHERE c.half_ms > 60000) AS ahead,
				string_agg(format('%s (%s s)', c.subject, c.most_ms / 1000), ', ')
					FILTER (WHERE c.most_ms > 60000) AS once_ahead,
				string_agg(c.subject, ', ')
					FILTER (WHERE c.changes > 9 AND c.late * 10 < c.changes) AS behind
			FROM clock AS c) AS c, LATERAL (VALUES
			(1, c.ahead IS NOT NULL, 'warning', 'the clocks of servers are ahead of the leader''s: %s',
				'Set the clocks (NTP). What is shown are counters, which begin anew when a server is restarted.'),
			(2, c.once_ahead IS NOT NULL, 'note', 'clocks of servers were ahead of the leader''s, or they stood still: %2$s',
				'Compare the clocks. What is shown are counters since the start of the server.'),
			(3, c.behind IS NOT NULL, 'note', 'clocks of servers are behind the leader''s, by how much cannot be known: %3$s',
				'Compare the clocks, and set them (NTP).'),
			(4, c.known < e.members, 'note', 'the clocks of servers that do not lead cannot be known: they do not answer "mntr"',
				'Compare them, or add mntr to 4lw.commands.whitelist.'),
			(5, true, 'ok', 'the servers'' clocks do not differ much, as far as can be seen', NULL))
			AS v(nr, applies, state, what, remedy),
			LATERAL (SELECT v.nr, v.applies, v.state,
				format(v.what, c.ahead, c.once_ahead, c.behind), v.remedy)
			AS r(nr, applies, state, what, remedy)
		WHERE e.members > 0
		UNION ALL
		SELECT 10, 'releases', 1, true, 'warning',
			format('znodes of this session that ZooKeeper does not let it delete: %s; each blocks its lock', f.number),
			'The log has the reason, and zk_lock_queue shows the nodes as releasing. Give the right DELETE on the lock''s znode back; or end the session with zk_disconnect(), and its nodes with it.'
		FROM fact AS f
		WHERE f.item = 'releases'
		UNION ALL
		SELECT 19, 'other roots', 1, true, 'warning',
			concat('beside the root, or what is above it, zklock has made: ', s.others),
			'Locks below another root, or another chroot, are other locks. Is zklock.root or zklock.servers mistyped, here or there? If not, and nobody uses these any more, delete them; if they are meant, give each its own chroot, where it does not see the others.'
		FROM (SELECT string_agg(DISTINCT format('"%s" by %s', f.subject, f.value), ', ') AS others
			FROM fact AS f
			WHERE f.item = 'sibling') AS s
		WHERE s.others IS NOT NULL
		UNION ALL
		SELECT 20, 'leases', r.*
		FROM (SELECT count(*) AS number,
				string_agg(format('"%s" of "%s"', f.subject, f.value), ', ')
					FILTER (WHERE f.number > 60000) AS overdue
			FROM fact AS f
			WHERE f.item = 'leases') AS l, LATERAL (VALUES
			(1, l.overdue IS NOT NULL, 'warning',
				concat('leases whose term has been over for more than a minute: ', l.overdue),
				'See the row "clock", and the log of the lease worker: may it delete there? zk_evict() removes one.'),
			(2, current_setting('zklock.lease_worker') = 'off', 'note',
				'there are leases, and no lease worker in this cluster: behind one that is over other clients wait until somebody asks',
				'Switch zklock.lease_worker on, in one cluster at least.'),
			(3, true, 'ok', 'no lease that was looked at is overdue', NULL))
			AS r(nr, applies, state, what, remedy)
		WHERE l.number > 0
		UNION ALL
		SELECT 20, s.item, r.*
		FROM step AS s, LATERAL (VALUES
			(1, s.place > 0, 'note',
				format('%s of %s znodes of lock names that were looked at have never had a queue node, "%s" among them: ZooKeeper does not remove them',
					s.place, s.number, s.subject),
				'Set znode.container.maxNeverUsedIntervalMs of the servers, to 3600000 for instance; or delete them (delete in zkCli.sh).'),
			(2, true, 'ok', format('all %s znodes of lock names that were looked at have been used', s.number), NULL))
			AS r(nr, applies, state, what, remedy)
		WHERE s.item = 'containers' AND s.number > 0
		UNION ALL
		SELECT 20, 'data', r.*
		FROM ensemble AS e, (
			SELECT string_agg(DISTINCT concat(t.subject, ' in ', t.volatile[1]), ', ') AS lost
			FROM setting AS t
			WHERE t.volatile IS NOT NULL) AS d, (
			SELECT (SELECT max(f.token) FROM zk_fences AS f) AS token,
				max(concat('x', lpad(
					substring(a.value, '(?n)^Zxid: 0x([0-9a-f]{1,16})$'), 16, '0'))::bit(64)::bigint) AS zxid
			FROM address AS a
			WHERE a.value ~ '(?n)^Zxid: 0x[0-9a-f]{1,16}$') AS n, LATERAL (VALUES
			(1, n.token > n.zxid, 'error',
				format('the ensemble has lost its data, or is another one: it has come to %s, and zk_fences to token %s',
					n.zxid, n.token),
				'Holds are gone, and slots of jobs run again. See docs/operations.md, Fencing tokens and a new ensemble.'),
			(2, d.lost IS NOT NULL, 'warning',
				concat('servers keep their data where a restart of the machine deletes it: ', d.lost),
				'Set dataDir (and dataLogDir) in zoo.cfg to a directory on a disk, and move all of the old one there, with its file myid. In Debian''s /var/lib/zookeeper that is a link to a text: write the number of the server into it, or no member of an ensemble starts.'),
			(3, true, 'ok', 'nothing is seen that would lose it', NULL))
			AS r(nr, applies, state, what, remedy)
		WHERE e.serving > 0
		UNION ALL
		SELECT 21, 'privileges', r.*
		FROM (SELECT count(*) AS number,
				count(*) FILTER (WHERE left(p.role::text, 1) = '!') AS dead,
				min(format('"%s" of role "%s"', p.prefix, p.role))
					FILTER (WHERE left(p.role::text, 1) = '!') AS first
			FROM zk_privileges AS p) AS p, LATERAL (VALUES
			(1, p.dead > 0, 'warning',
				format('rows of zk_privileges that give nobody anything, for their roles are gone, or were unknown when they were restored: %s of %s, %s among them',
					p.dead, p.number, p.first),
				'SELECT * FROM zk_privileges WHERE role::text ~ ''^!'' shows them. Call zk_grant() for the roles that are meant, and zk_revoke() with the roles as they are shown.'),
			(2, true, 'ok', format('rows of zk_privileges: %s, all of roles that there are', p.number), NULL))
			AS r(nr, applies, state, what, remedy)
		WHERE p.number > 0
		UNION ALL
		SELECT 21, 'closed prefixes', 1, true, 'error',
			'names were closed, and the rows of zk_closed are lost, as in a restore that failed: all names are closed',
			'Restore the rows; or give what is wanted to roles with zk_grant(), and then open all other names: SELECT zk_open('''').'
		WHERE NOT EXISTS (SELECT FROM zk_closed)
			AND NOT has_type_privilege('public', '_zk_unclosed'::regtype, 'USAGE')
		UNION ALL
		SELECT 21, 'closed prefixes', 2, true, 'note',
			format('closed prefixes that are for superusers alone, for no row gives a name of theirs to anybody: %s, "%s" among them',
				c.number, zk_escape(c.first)),
			'Give them to roles with zk_grant(), or open them to everybody with zk_open().'
		FROM (SELECT count(*) AS number, min(c.prefix) AS first
			FROM zk_closed AS c
			WHERE NOT EXISTS (
				SELECT FROM zk_privileges AS p
				WHERE left(p.role::text, 1) <> '!'
					AND (p.prefix = '' OR c.prefix = '' OR p.prefix = c.prefix
						OR starts_with(c.prefix, concat(p.prefix, '/'))
						OR starts_with(p.prefix, concat(c.prefix, '/'))))) AS c
		WHERE c.number > 0
		UNION ALL
		SELECT 21, 'publications', 1, true, 'warning',
			format('one of zk_privileges and zk_closed is published without the other: by %s', p.names),
			'A subscriber opens names then that are closed here. Publish both tables, or neither.'
		FROM (SELECT string_agg(format('%I', p.pubname), ', ') AS names
			FROM (SELECT p.pubname
				FROM pg_publication AS p
					JOIN pg_publication_rel AS r ON r.prpubid = p.oid
					JOIN pg_class AS c ON c.oid = r.prrelid
				WHERE c.oid IN ('zk_privileges'::regclass, 'zk_closed'::regclass)
					AND NOT EXISTS (
						SELECT FROM pg_publication_namespace AS n
						WHERE n.pnpubid = p.oid AND n.pnnspid = c.relnamespace)
				GROUP BY p.pubname
				HAVING count(*) = 1) AS p) AS p
		WHERE p.names IS NOT NULL
		UNION ALL
		SELECT 21, 'triggers', 1, true, 'warning',
			concat('triggers of zk_privileges, zk_closed and zk_fences are not fired when they must be: ', t.names),
			format('pg_restore --disable-triggers leaves them so. %s; and UPDATE zk_privileges SET role = role, so that DROP ROLE knows of all rows.',
				t.commands)
		FROM (SELECT string_agg(t.tgname::text, ', ' ORDER BY t.tgname, t.tgrelid) AS names,
				string_agg(format('ALTER TABLE %s ENABLE %s TRIGGER %I',
					t.tgrelid::regclass, t.must, t.tgname), '; ' ORDER BY t.tgname, t.tgrelid) AS commands
			FROM (SELECT t.tgname, t.tgrelid, t.tgenabled,
					CASE t.tgrelid WHEN 'zk_fences'::regclass THEN 'REPLICA' ELSE 'ALWAYS' END AS must
				FROM pg_trigger AS t
				WHERE t.tgrelid = ANY (ARRAY['zk_privileges'::regclass, 'zk_closed'::regclass,
						'zk_fences'::regclass])
					AND NOT t.tgisinternal) AS t
			WHERE t.tgenabled::text <> left(t.must, 1)) AS t
		WHERE t.names IS NOT NULL
	), line(part, place, item, state, what, remedy) AS (
		SELECT 0, t.ordinal, t.item, t.state, t.what, t.remedy
		FROM _zk_check_settings() WITH ORDINALITY AS t(item, state, what, remedy, ordinal)
		UNION ALL
		(SELECT DISTINCT ON (r.part, r.item) r.part, 0, r.item, r.state, r.what, r.remedy
		FROM rule AS r
		WHERE r.applies
		ORDER BY r.part, r.item, r.nr)
		UNION ALL
		SELECT CASE f.item WHEN 'program' THEN 1 WHEN 'credentials' THEN 9 ELSE 10 END,
			0, f.item, 'error', f.value, f.subject
		FROM fact AS f
		WHERE f.fact = 'error'
		UNION ALL
		SELECT 4, a.place, a.item,
			CASE WHEN a.verdict = 'serving' THEN CASE WHEN a.number > 100000 THEN 'note' ELSE 'ok' END
				WHEN e.serving = 0 OR a.verdict = 'stranger' THEN 'error' ELSE 'warning' END,
			format(v.what, a.subject, a.value,
				CASE a.mode WHEN 'standalone' THEN 'standalone server' WHEN 'read-only' THEN 'server that only reads'
					WHEN 'leader' THEN 'leader' WHEN 'follower' THEN 'follower' WHEN 'observer' THEN 'observer'
					ELSE 'server of an unknown kind' END,
				a.release, round(a.number::numeric / 1000.0, 1)),
			CASE WHEN a.verdict = 'untrusted' THEN (SELECT t.remedy
					FROM (VALUES
						(0, '^Could not load the module for TLS', 'Install zklock again: its file zklock-session-tls.so belongs beside zklock-session; and OpenSSL (libssl), which it needs.'),
						(1, '"zklock\.ssl_cert_file" has expired| alert certificate expired',
							'Renew the client certificate, and replace the file that zklock.ssl_cert_file names; or set the clock of this machine, or of the server, if it is wrong.'),
						(2, 'Could not load file', 'Correct that file, or the setting that names it. See docs/background.md, TLS.'),
						(3, 'CRL', 'Renew the lists in the file that zklock.ssl_crl_file names: it must have one in date of each authority.'),
						(4, 'certificate has expired', 'Renew that certificate, and restart the server if it does not read it anew; or set the clock of this machine if it is wrong.'),
						(5, 'not yet valid', 'Set the clock of this machine (NTP), or wait until that certificate is valid.'),
						(6, 'certificate revoked', 'Give the server a new certificate, or correct the list in the file that zklock.ssl_crl_file names.'),
						(7, 'it has no subjectAltName', 'Issue the server a certificate that has its name or address, as it stands in zklock.servers, as subjectAltName: its CN is not looked at.'),
						(8, 'is not for "', 'Name the server in zklock.servers as its certificate does, or issue one for that name.'),
						(9, 'is not good', 'Let zklock.ssl_ca_file name a file with the authority that has signed the server''s certificate.'),
						(10, ' alert |right after the TLS handshake', 'The server may want a client certificate of an authority that it knows: see zklock.ssl_cert_file and zklock.ssl_key_file, and the server''s log.'),
						(11, 'closed the connection', 'Name the port where it speaks TLS, its secureClientPort, in zklock.servers, or set zklock.ssl to off. Or its maxClientCnxns or maxCnxns are reached: raise them.'),
						(12, 'in the TLS handshake|TLS with server', 'Name the port where it speaks TLS, its secureClientPort, in zklock.servers; or set zklock.ssl to off.'),
						(13, 'Could not connect', 'Start the server, or correct its port in zklock.servers.'),
						(14, '', 'See docs/background.md, TLS.')) AS t(nr, pattern, remedy)
					WHERE a.value ~ t.pattern
					ORDER BY t.nr
					LIMIT 1)
				WHEN a.verdict <> 'serving' OR a.number > 100000 THEN v.remedy END
		FROM address AS a CROSS JOIN ensemble AS e
			JOIN (VALUES
				('unheard', 'nothing was heard of it in time',
					CASE WHEN zk_check.with_session
						THEN 'Look into the DNS of this machine, or name the server by its address. If it is one, the machine is too busy, or zklock.ssl_passphrase_command slow: try again.'
						ELSE 'Run zk_check(true), which waits longer. If it says the same, look into the DNS of this machine, or name the server by its address. zklock.ssl_passphrase_command may be slow, too.' END),
				('unresolved', 'its name has no address: %2$s', 'Correct the name in zklock.servers, or the DNS.'),
				('unreachable', '%s cannot be reached: %s', 'Start the server, or correct its port in zklock.servers.'),
				('no connection', '%s does not answer: no connection in time',
					'Is the machine up? Look for a firewall in between.'),
				('closed', '%s closes connections without a word',
					'maxClientCnxns, for all connections from this address, or maxCnxns, for all, may be reached there: raise it. Or it wants TLS (zklock.ssl), or is no ZooKeeper.'),
				('untrusted', 'no TLS: %2$s', NULL),
				('silent', '%s takes connections and says nothing',
					'Is that its port for TLS? Then set zklock.ssl. If not, and it is a ZooKeeper, it hangs: see its log, and restart it.'),
				('stranger', '%s is not a ZooKeeper; it said "%s"', 'Correct the port in zklock.servers.'),
				('idle', '%s is a ZooKeeper that serves nobody',
					'It has no quorum, or is just starting: start the other servers; see its log.'),
				('reading', '%1$s is a %3$s, release %4$s, answers in %5$s ms',
					'It has no quorum: start the other servers.'),
				('serving', '%1$s is a %3$s, release %4$s, answers in %5$s ms',
					'Look into the network and the server''s load.'))
				AS v(verdict, what, remedy) ON v.verdict = a.verdict
		UNION ALL
		SELECT 4, t.place, overlay(t.item, 'tls', 1, 6),
			CASE WHEN t.theirs < now() + '30 days'::interval THEN 'warning' ELSE 'ok' END,
			format('%s speaks %s, %s; its certificate, of %s, and its authorities are valid until %s',
				t.subject, t.part[1], t.part[2], t.part[5], t.theirs),
			CASE WHEN t.theirs < now() + '30 days'::interval
				THEN 'Renew what expires first: the server''s certificate, or that of an authority.' END
		FROM encryption AS t
		UNION ALL
		SELECT 9, 1, 'client certificate',
			CASE WHEN c.until < now() + '30 days'::interval THEN 'warning' ELSE 'ok' END,
			concat('it is valid until ', c.until),
			CASE WHEN c.until < now() + '30 days'::interval
				THEN 'Renew it, and replace the file that zklock.ssl_cert_file names.' END
		FROM (SELECT min(t.ours) AS until FROM encryption AS t) AS c
		WHERE c.until IS NOT NULL
	)
	SELECT l.item, l.state, l.what, l.remedy
	FROM line AS l
	ORDER BY l.part, l.place, l.item;
END;

COMMENT ON FUNCTION zk_check(boolean) IS
'Finds out what is wrong with zklock here: a row for each thing looked at, with state (ok, note, warning, error), finding and remedy. An error is a row, not raised. With false (or NULL) it opens no session, makes nothing, and takes a second at most: for monitoring.';

-- Jobs that run once: records in ZooKeeper of who ran which slot of a job.
CREATE FUNCTION zk_run_once(name text, slot text, retain interval DEFAULT '30 days')
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_run_once(text, text, interval) IS
'True for exactly one caller for each name and slot, in all clusters, for good. Not undone by ROLLBACK. After an error the slot may be taken: repeat the call in the same session. Records older than retain are deleted; their slots can be claimed again.';

CREATE FUNCTION zk_forget_run(name text, slot text)
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_forget_run(text, text) IS
'Deletes the record of a slot, so that zk_run_once() returns true once more: for a job that failed. False if there is none. Not undone by ROLLBACK.';

CREATE FUNCTION zk_runs(
	name text,
	OUT slot text,
	OUT claimed_at timestamptz,
	OUT cluster text,
	OUT datname text,
	OUT usename text,
	OUT application_name text,
	OUT pid integer,
	OUT host text,
	OUT data text)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED
ROWS 100;

COMMENT ON FUNCTION zk_runs(text) IS
'The slots claimed by zk_run_once() for this name whose records still exist: when (ZooKeeper''s clock), and by whom, as it said itself.';

-- Politely
CREATE FUNCTION zk_request_release(name text, reason text DEFAULT NULL)
RETURNS integer
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_request_release(text, text) IS
'Asks all holders of the lock, except this session, to release it, and returns how many were asked. Does not wait. Their zk_release_requested() is then true. A warning names holders that cannot be asked. reason: one line, 512 bytes. Not undone by ROLLBACK.';

CREATE FUNCTION zk_release_requested(name text)
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_release_requested(text) IS
'True if this session holds the lock and somebody has asked for it by zk_request_release(). Each call costs one read of ZooKeeper, and waits for a second at most. A NOTICE says when it was asked and why, once for each request.';

-- By force
CREATE FUNCTION zk_evict(name text, token bigint)
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_evict(text, bigint) IS
'Removes the holder or waiter with that fencing token from the queue, of any client, and waits until ZooKeeper has confirmed it: true. False if there is none. Always logged.';

-- Holds that outlive their maker
CREATE FUNCTION zk_hold(name text, reason text, timeout interval DEFAULT NULL)
RETURNS bigint
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_hold(text, text, interval) IS
'Takes an exclusive lock and leaves it in ZooKeeper until zk_release_hold(). It outlives this session, the cluster, and restarts of ZooKeeper. It belongs to no session, not even this one. Returns the token that the release needs. Raises 55000 if this session holds the lock.';

CREATE FUNCTION zk_release_hold(name text, token bigint)
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_release_hold(text, bigint) IS
'Releases the hold with that token, from any session of any cluster, and waits until the ensemble has confirmed it: true. If there is none: false and a warning. Not undone by ROLLBACK. First flushes to disk what this cluster has committed.';

-- Leases, which belong to an owner and to no session
CREATE FUNCTION zk_try_lease(name text, owner text, ttl interval, timeout interval DEFAULT '0',
	data text DEFAULT NULL, place boolean DEFAULT false, bound boolean DEFAULT false)
RETURNS bigint
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_try_lease(text, text, interval, interval, text, boolean, boolean) IS
'Takes an exclusive lock for an owner, or renews it: its token, or NULL while others have it, after the timeout. Any session may renew it. It ends ttl (2 s to a day) later. With place the owner joins the queue, and stays if he calls again within ttl. data: a line for zk_leader(). bound: to the current role and this cluster. Not undone by ROLLBACK.';

CREATE FUNCTION zk_renew_lease(name text, token bigint, ttl interval)
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_renew_lease(text, bigint, interval) IS
'Renews the lease with that token for ttl from now on, or for the longest that it has had before: true. False if it is not held any more.';

CREATE FUNCTION zk_release_lease(name text, token bigint, keep_for interval DEFAULT '0')
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_release_lease(text, bigint, interval) IS
'Gives up the lease with that token: true. The lock is free at once, or after keep_for, in which nobody can renew it. If there is none: false and a warning. Not undone by ROLLBACK. First flushes to disk what this cluster has committed.';

CREATE FUNCTION zk_require_lease(name text, token bigint)
RETURNS void
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_require_lease(text, bigint) IS
'Renews the lease with that token, and lets this transaction commit only while it is held: otherwise 40001, here or at COMMIT (zklock.commit_guard). A rollback to an earlier savepoint ends that.';

CREATE FUNCTION zk_leader(
	name text,
	OUT owner text,
	OUT data text,
	OUT since timestamptz,
	OUT token bigint,
	OUT expires_at timestamptz,
	OUT is_overdue boolean,
	OUT bound_to text)
RETURNS record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_leader(text) IS
'Who holds the lock, as of this call; NULL: nobody. Of a lease: its owner and data, and when it ends by ZooKeeper''s clock, if it is not renewed; is_overdue: that is past by this server''s clock. bound_to: the role that it is bound to. The owner of another lock is shown to members of pg_monitor.';

-- Privileges. docs/privileges.md has the reason for each.

-- The roles are the cluster's, so they may be there, from another database. But
-- somebody may have made them who must not have what they are given here.
DO LANGUAGE plpgsql $$
DECLARE
	role_name text;
	fault text;
	members text;
BEGIN
	FOREACH role_name IN ARRAY ARRAY['zklock_job', 'zklock_operator']::text[]
	LOOP
		IF NOT EXISTS (
			SELECT FROM pg_roles r
			WHERE r.rolname = role_name)
		THEN
			-- Unless CREATE EXTENSION in another database is faster: that is waited for.
			BEGIN
				EXECUTE format('CREATE ROLE %I NOLOGIN', role_name);
				EXECUTE format('COMMENT ON ROLE %I IS %L', role_name,
					CASE role_name WHEN 'zklock_job'
						THEN 'Extension zklock: may claim runs of jobs, and ask holders to release a lock.'
						ELSE 'Extension zklock: zklock_job, and may take locks away, hold them for good, and see who holds them.' END);
				CONTINUE;
			EXCEPTION WHEN duplicate_object OR unique_violation THEN
				NULL;
			END;
		END IF;
		SELECT CASE
				WHEN r.rolcanlogin THEN 'It may log in.'
				WHEN r.rolsuper OR r.rolcreaterole OR r.rolcreatedb OR r.rolreplication
					OR r.rolbypassrls THEN 'It may do what has nothing to do with zklock.'
				WHEN g.oid IS NOT NULL
				THEN format('It is a member of role "%s".', g.rolname)
				WHEN o.objid IS NOT NULL
				THEN format('It owns %s, so whoever made that may have its privileges by it.',
									   pg_describe_object(o.classid, o.objid, 0))
				ELSE format('Role "%s", which is no superuser, may grant it.',
									   a.rolname) END
		INTO fault
		FROM pg_roles r
			LEFT JOIN (pg_auth_members gm JOIN pg_roles g
					ON gm.roleid = g.oid
					AND g.rolname <> 'zklock_job')
				ON gm.member = r.oid
			LEFT JOIN (pg_auth_members am JOIN pg_roles a
					ON am.member = a.oid
					AND am.admin_option AND NOT a.rolsuper)
				ON am.roleid = r.oid
			-- functions, and tables with functions in their indexes, run as who owns them
			LEFT JOIN (pg_shdepend o JOIN pg_database d
					ON o.dbid = d.oid
					AND d.datname = current_database()
					AND o.deptype = 'o'::"char"
					AND (o.classid = 'pg_proc'::regclass
						OR o.classid = 'pg_class'::regclass))
				ON o.refobjid = r.oid
				AND o.refclassid = 'pg_authid'::regclass
		WHERE r.rolname = role_name
			AND (r.rolcanlogin OR r.rolsuper OR r.rolcreaterole OR r.rolcreatedb
				OR r.rolreplication OR r.rolbypassrls
				OR g.oid IS NOT NULL OR a.oid IS NOT NULL OR o.objid IS NOT NULL)
		LIMIT 1;
		IF fault IS NOT NULL
		THEN
			RAISE EXCEPTION USING
				ERRCODE = 'object_not_in_prerequisite_state',
				MESSAGE = format('role "%s" cannot be trusted with privileges of zklock', role_name),
				DETAIL = fault,
				HINT = 'Whoever made it may not be meant to have them. Drop it, and CREATE EXTENSION makes it anew, or alter it so that it may do nothing, is a member of nothing, owns no functions or tables in this database, and none but superusers may grant it.';
		END IF;

		-- They may have been made members for another database.
		SELECT string_agg(
				DISTINCT format('"%s"', m.rolname), ', ')
		INTO members
		FROM pg_roles r
			JOIN pg_auth_members rm
				ON rm.roleid = r.oid
			JOIN pg_roles m
				ON rm.member = m.oid
				AND NOT m.rolsuper
				AND m.rolname <> 'zklock_operator'
		WHERE r.rolname = role_name;
		IF members IS NOT NULL
		THEN
			RAISE WARNING USING
				MESSAGE = format('role "%s" was there already and has members', role_name),
				DETAIL = format('They get the privileges of zklock that it is given: %s.', members),
				HINT = 'REVOKE it from those who are not meant to have them.';
		END IF;
	END LOOP;
END $$;

GRANT zklock_job TO zklock_operator;

-- What ALTER DEFAULT PRIVILEGES of whoever runs this gives others is not meant for
-- these: of functions they have what everybody has, of tables and views nothing.
DO LANGUAGE plpgsql $$
DECLARE
	command text;
BEGIN
	FOR command IN
		SELECT DISTINCT format('REVOKE ALL ON %s %s FROM %s', o.kind, o.name,
			CASE WHEN a.grantee = 0 THEN 'PUBLIC'
				ELSE quote_ident(r.rolname) END)
		FROM pg_extension AS e
			JOIN pg_depend AS d ON d.refobjid = e.oid
				AND d.refclassid = 'pg_extension'::regclass
				AND d.deptype = 'e'::"char"
			JOIN (
				SELECT p.tableoid, p.oid, 'ROUTINE', p.oid::regprocedure::text, p.proowner, p.proacl
				FROM pg_proc AS p
				UNION ALL
				SELECT c.tableoid, c.oid, 'TABLE', c.oid::regclass::text, c.relowner, c.relacl
				FROM pg_class AS c) AS o(classid, oid, kind, name, owner, acl)
				ON o.oid = d.objid AND o.classid = d.classid
			CROSS JOIN LATERAL aclexplode(o.acl) AS a
			LEFT JOIN pg_roles AS r ON r.oid = a.grantee
		WHERE e.extname = 'zklock'
			AND a.grantee <> o.owner
			AND (a.grantee <> 0
				OR o.kind = 'TABLE')
	LOOP
		EXECUTE command;
	END LOOP;
END $$;

REVOKE EXECUTE ON FUNCTION
	_zk_fences_applied(),
	_zk_fence_compare(text, bigint, bigint, timestamptz, timestamptz),
	_zk_fence_own_lock(text), _zk_fence_claim(text, text, bigint),
	_zk_privileges_adding(), _zk_privileges_changed(), _zk_privileges_closing(), _zk_privileges_emptied(),
	zk_grant(text, text, text), zk_revoke(text, text, text), zk_open(text),
	zk_fence(text, bigint),
	zk_lock_queue(text), zk_who(text), zk_all_locks(text), zk_runs(text),
	zk_check(boolean), _zk_check_facts(boolean), _zk_check_settings(),
	zk_waits(), zk_wait_graph(),
	_zk_contenders(), _zk_waits_in_postgres(),
	zk_run_once(text, text, interval), zk_forget_run(text, text),
	zk_request_release(text, text), zk_evict(text, bigint),
	zk_hold(text, text, interval), zk_release_hold(text, bigint),
	zk_stat_reset()
FROM PUBLIC;

GRANT EXECUTE ON FUNCTION
	zk_run_once(text, text, interval), zk_request_release(text, text)
TO zklock_job;

GRANT EXECUTE ON FUNCTION
	zk_fence(text, bigint), zk_forget_run(text, text), zk_evict(text, bigint),
	zk_hold(text, text, interval), zk_release_hold(text, bigint)
TO zklock_operator;

GRANT EXECUTE ON FUNCTION
	zk_lock_queue(text), zk_who(text), zk_all_locks(text), zk_runs(text),
	zk_waits(), zk_wait_graph(),
	_zk_contenders(), _zk_waits_in_postgres()
TO pg_monitor, zklock_operator;

GRANT EXECUTE ON FUNCTION
	zk_check(boolean), _zk_check_facts(boolean), _zk_check_settings()
TO pg_monitor;

-- The database's owner reads them for a dump, of which they are part.
GRANT SELECT ON zk_fences, zk_privileges, zk_closed TO pg_monitor, pg_database_owner;
GRANT SELECT ON zk_privileges, zk_closed TO zklock_operator;
GRANT SELECT ON zk_session_locks, zk_session, zk_backends, zk_locks, zk_stat, zk_stat_roles TO PUBLIC;

-- All is moved to the schema that the extension is created in. Types go last, for
-- the names of functions and operators have the types of their arguments in them.
-- What is part of another object, as the type of a table's rows or of an array is,
-- goes with that.
DO LANGUAGE plpgsql $$
DECLARE
	member record;
BEGIN
	FOR member IN
		SELECT o.type, o.identity, e.extnamespace::regnamespace AS target
		FROM pg_extension AS e
			JOIN pg_depend AS d ON d.refclassid = 'pg_extension'::regclass
				AND d.refobjid = e.oid AND d.deptype = 'e'
			CROSS JOIN LATERAL pg_identify_object(d.classid, d.objid, 0) AS o
		WHERE e.extname = 'zklock' AND o.schema = 'zklock_script'
			AND NOT EXISTS (
				SELECT FROM pg_depend AS part
				WHERE part.classid = d.classid AND part.objid = d.objid AND part.deptype = 'i')
		ORDER BY o.type = 'type'
	LOOP
		EXECUTE format('ALTER %s %s SET SCHEMA %s',
			member.type, member.identity, member.target);
	END LOOP;
END $$;

DROP SCHEMA zklock_script;
