-- zklock 2.0: distributed locks through ZooKeeper
\echo Use "CREATE EXTENSION zklock" to load this file. \quit

-- Functions with a name argument are not STRICT: a NULL name raises an error,
-- so that nobody goes on without the lock. None may run in a parallel worker,
-- as with pg_advisory_lock().
--
-- Others may have made objects in the schema that this is created in. What one
-- of ours calls is therefore called with just the types that it is declared
-- with: such a function is preferred to all that would fit, and CREATE FUNCTION
-- fails if somebody else's is there already. Types, operators and functions of
-- PostgreSQL's are qualified; bodies are parsed now, so that no search_path of a
-- caller's changes what they mean.

CREATE FUNCTION zk_lock(
	name text,
	timeout interval DEFAULT NULL,
	permits integer DEFAULT 1)
RETURNS bigint
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_lock(text, interval, integer) IS
'Taking: Takes an exclusive lock of session scope, waiting for it in line. Returns its fencing token, which rises with every grant. timeout and lock_timeout bound the wait, connecting included (error 55P03, nothing left behind). With permits greater than 1 the lock is a counting semaphore: the first permits contenders of the queue hold it, and all its users must name the same number (otherwise 55000). Counted: release as often with zk_unlock(). Ends with the session, DISCARD ALL or zk_unlock_all(); survives ROLLBACK.';

CREATE FUNCTION zk_lock_shared(name text, timeout interval DEFAULT NULL)
RETURNS bigint
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_lock_shared(text, interval) IS
'Taking: Like zk_lock(), but shared: held together with other shared holders. While this session holds the lock exclusively it is granted at once, and stays when the exclusive hold is released. Release with zk_unlock_shared().';

CREATE FUNCTION zk_xact_lock(
	name text,
	timeout interval DEFAULT NULL,
	permits integer DEFAULT 1)
RETURNS bigint
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_xact_lock(text, interval, integer) IS
'Taking: Like zk_lock(), but of transaction scope: released after the commit is durable and visible, at rollback, or at rollback to a savepoint set before it; cannot be released earlier. PREPARE TRANSACTION is refused while it is held.';

CREATE FUNCTION zk_xact_lock_shared(name text, timeout interval DEFAULT NULL)
RETURNS bigint
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_xact_lock_shared(text, interval) IS
'Taking: Like zk_lock_shared(), but of transaction scope, see zk_xact_lock().';

CREATE FUNCTION zk_try_lock(
	name text,
	timeout interval DEFAULT '0',
	permits integer DEFAULT 1)
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_try_lock(text, interval, integer) IS
'Taking: Takes an exclusive lock of session scope if that is possible at once, or within timeout: true. Otherwise false, and nothing is left behind. Without a timeout a busy lock costs one read of ZooKeeper. Raises an error if ZooKeeper cannot be reached.';

CREATE FUNCTION zk_try_lock_shared(name text, timeout interval DEFAULT '0')
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_try_lock_shared(text, interval) IS
'Taking: Like zk_try_lock(), but shared.';

CREATE FUNCTION zk_try_xact_lock(
	name text,
	timeout interval DEFAULT '0',
	permits integer DEFAULT 1)
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_try_xact_lock(text, interval, integer) IS
'Taking: Like zk_try_lock(), but of transaction scope, see zk_xact_lock().';

CREATE FUNCTION zk_try_xact_lock_shared(name text, timeout interval DEFAULT '0')
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_try_xact_lock_shared(text, interval) IS
'Taking: Like zk_try_lock(), but shared and of transaction scope, see zk_xact_lock().';

CREATE FUNCTION zk_call_lock(
	name text,
	timeout interval DEFAULT NULL,
	permits integer DEFAULT 1)
RETURNS bigint
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_call_lock(text, interval, integer) IS
'Taking: Like zk_lock(), but of call scope: released when what the client has sent, a CALL for example, is over, however it ends; or with its transaction, if that goes on. COMMIT and ROLLBACK in a procedure leave it; it cannot be released earlier. Raises 0A000 in a background worker, which has no client.';

CREATE FUNCTION zk_try_call_lock(
	name text,
	timeout interval DEFAULT '0',
	permits integer DEFAULT 1)
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_try_call_lock(text, interval, integer) IS
'Taking: Like zk_try_lock(), but of call scope, see zk_call_lock().';

-- Several locks as one call

CREATE FUNCTION zk_lock(
	names text[],
	timeout interval DEFAULT NULL,
	modes text[] DEFAULT NULL)
RETURNS bigint[]
AS 'MODULE_PATHNAME', 'zk_lock_names' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_lock(text[], interval, text[]) IS
'Taking: Takes several locks of session scope, all or none: exclusive, or as modes says for each name (exclusive or shared). They are taken in the byte order of the names, whatever order they are asked in, so that two such calls do not wait for each other. timeout and lock_timeout bound all of it together. Returns the fencing tokens in the order of the names. Counted like zk_lock(text), also where a name comes twice. Release with zk_unlock() or zk_unlock_shared(), all at once or one by one.';

CREATE FUNCTION zk_xact_lock(
	names text[],
	timeout interval DEFAULT NULL,
	modes text[] DEFAULT NULL)
RETURNS bigint[]
AS 'MODULE_PATHNAME', 'zk_xact_lock_names' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_xact_lock(text[], interval, text[]) IS
'Taking: Like zk_lock(text[]), but of transaction scope, see zk_xact_lock().';

CREATE FUNCTION zk_try_lock(
	names text[],
	timeout interval DEFAULT '0',
	modes text[] DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_try_lock_names' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_try_lock(text[], interval, text[]) IS
'Taking: Takes several locks of session scope, see zk_lock(text[]), if that is possible at once, or within timeout for all of them together: true. Otherwise false, and nothing is left behind.';

CREATE FUNCTION zk_try_xact_lock(
	names text[],
	timeout interval DEFAULT '0',
	modes text[] DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_try_xact_lock_names' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_try_xact_lock(text[], interval, text[]) IS
'Taking: Like zk_try_lock(text[]), but of transaction scope, see zk_xact_lock().';

CREATE FUNCTION zk_unlock(names text[], modes text[] DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_unlock_names' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_unlock(text[], text[]) IS
'Releasing: Releases one hold of session scope of each lock: exclusive, or as modes says for each name. True if all were held; otherwise false, and a warning for each that was not held or had been lost, while the others are released.';

-- Waits that hold nothing. No parameter is for output: PL/pgSQL takes such ones
-- only if there is a variable for them, though they had a default.

CREATE PROCEDURE zk_wait_lock(
	name text,
	timeout interval DEFAULT NULL,
	permits integer DEFAULT 1)
AS 'MODULE_PATHNAME' LANGUAGE C;

COMMENT ON PROCEDURE zk_wait_lock(text, interval, integer) IS
'Taking: zk_lock() as a procedure, for long waits: commits the transaction, and waits in a new one that has no snapshot, no transaction id and no locks, so that vacuum goes on, and what is read afterwards was read after the grant at every isolation level. Leaves the lock held in session scope; zk_fencing_token() has its token. Raises 25001 in a transaction block, 2D000 in a function or a block with EXCEPTION, and what zk_lock() does; what was committed stays so.';

-- Paths. The name itself comes first, so that an error names it and not an ancestor;
-- and one that has too many components is refused for its own sake.
CREATE FUNCTION _zk_path_names(name text)
RETURNS text[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
	SELECT pg_catalog.array_cat(ARRAY[_zk_path_names.name], ARRAY(
		SELECT pg_catalog.array_to_string(p.parts[1:g.i], '/'::text)
		FROM pg_catalog.string_to_array(_zk_path_names.name, '/'::text) AS p(parts)
			CROSS JOIN LATERAL pg_catalog.generate_series(1, 20) AS g(i)
		WHERE g.i OPERATOR(pg_catalog.<) pg_catalog.cardinality(p.parts)));
END;

COMMENT ON FUNCTION _zk_path_names(text) IS
'Taking: Part of zk_lock_path() and its kin: the name, and its ancestors.';

CREATE FUNCTION _zk_path_modes(name text, mode text)
RETURNS text[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
	SELECT pg_catalog.array_cat(ARRAY[_zk_path_modes.mode], pg_catalog.array_fill(
		'shared'::text,
		ARRAY[pg_catalog.cardinality(_zk_path_names(_zk_path_modes.name)) OPERATOR(pg_catalog.-) 1]));
END;

COMMENT ON FUNCTION _zk_path_modes(text, text) IS
'Taking: Part of zk_lock_path() and its kin: the modes that go with _zk_path_names(), of which mode is that of the name itself.';

CREATE FUNCTION zk_lock_path(name text, timeout interval DEFAULT NULL)
RETURNS bigint
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
RETURN (zk_lock(
	_zk_path_names(zk_lock_path.name), zk_lock_path.timeout,
	_zk_path_modes(zk_lock_path.name, 'exclusive'::text)))[1];

COMMENT ON FUNCTION zk_lock_path(text, interval) IS
'Taking: Takes an exclusive lock of session scope and shared locks of its ancestors, all or none: for a/b/c that is a/b/c exclusive, a and a/b shared, ancestors first. Whoever holds an ancestor exclusively excludes all below it; names beside each other do not exclude each other. timeout and lock_timeout bound all of it together. Returns the fencing token of the lock itself. Release with zk_unlock_path().';

CREATE FUNCTION zk_lock_path_shared(name text, timeout interval DEFAULT NULL)
RETURNS bigint
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
RETURN (zk_lock(
	_zk_path_names(zk_lock_path_shared.name), zk_lock_path_shared.timeout,
	_zk_path_modes(zk_lock_path_shared.name, 'shared'::text)))[1];

COMMENT ON FUNCTION zk_lock_path_shared(text, interval) IS
'Taking: Like zk_lock_path(), but the lock itself is shared too. Release with zk_unlock_path_shared().';

CREATE FUNCTION zk_xact_lock_path(name text, timeout interval DEFAULT NULL)
RETURNS bigint
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
RETURN (zk_xact_lock(
	_zk_path_names(zk_xact_lock_path.name), zk_xact_lock_path.timeout,
	_zk_path_modes(zk_xact_lock_path.name, 'exclusive'::text)))[1];

COMMENT ON FUNCTION zk_xact_lock_path(text, interval) IS
'Taking: Like zk_lock_path(), but of transaction scope, see zk_xact_lock().';

CREATE FUNCTION zk_xact_lock_path_shared(name text, timeout interval DEFAULT NULL)
RETURNS bigint
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
RETURN (zk_xact_lock(
	_zk_path_names(zk_xact_lock_path_shared.name), zk_xact_lock_path_shared.timeout,
	_zk_path_modes(zk_xact_lock_path_shared.name, 'shared'::text)))[1];

COMMENT ON FUNCTION zk_xact_lock_path_shared(text, interval) IS
'Taking: Like zk_lock_path_shared(), but of transaction scope, see zk_xact_lock().';

CREATE FUNCTION zk_try_lock_path(name text, timeout interval DEFAULT '0')
RETURNS boolean
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
RETURN zk_try_lock(
	_zk_path_names(zk_try_lock_path.name), zk_try_lock_path.timeout,
	_zk_path_modes(zk_try_lock_path.name, 'exclusive'::text));

COMMENT ON FUNCTION zk_try_lock_path(text, interval) IS
'Taking: Takes the locks of zk_lock_path() if that is possible at once, or within timeout for all of them together: true. Otherwise false, and nothing is left behind.';

CREATE FUNCTION zk_try_lock_path_shared(name text, timeout interval DEFAULT '0')
RETURNS boolean
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
RETURN zk_try_lock(
	_zk_path_names(zk_try_lock_path_shared.name), zk_try_lock_path_shared.timeout,
	_zk_path_modes(zk_try_lock_path_shared.name, 'shared'::text));

COMMENT ON FUNCTION zk_try_lock_path_shared(text, interval) IS
'Taking: Like zk_try_lock_path(), but the lock itself is shared too.';

CREATE FUNCTION zk_try_xact_lock_path(name text, timeout interval DEFAULT '0')
RETURNS boolean
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
RETURN zk_try_xact_lock(
	_zk_path_names(zk_try_xact_lock_path.name), zk_try_xact_lock_path.timeout,
	_zk_path_modes(zk_try_xact_lock_path.name, 'exclusive'::text));

COMMENT ON FUNCTION zk_try_xact_lock_path(text, interval) IS
'Taking: Like zk_try_lock_path(), but of transaction scope, see zk_xact_lock().';

CREATE FUNCTION zk_try_xact_lock_path_shared(name text, timeout interval DEFAULT '0')
RETURNS boolean
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
RETURN zk_try_xact_lock(
	_zk_path_names(zk_try_xact_lock_path_shared.name), zk_try_xact_lock_path_shared.timeout,
	_zk_path_modes(zk_try_xact_lock_path_shared.name, 'shared'::text));

COMMENT ON FUNCTION zk_try_xact_lock_path_shared(text, interval) IS
'Taking: Like zk_try_lock_path_shared(), but of transaction scope, see zk_xact_lock().';

CREATE FUNCTION zk_unlock_path(name text)
RETURNS boolean
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
RETURN zk_unlock(
	_zk_path_names(zk_unlock_path.name), _zk_path_modes(zk_unlock_path.name, 'exclusive'::text));

COMMENT ON FUNCTION zk_unlock_path(text) IS
'Releasing: Releases one hold of session scope of each lock that zk_lock_path() takes: true. False and a warning for each that was not held or had been lost.';

CREATE FUNCTION zk_unlock_path_shared(name text)
RETURNS boolean
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
RETURN zk_unlock(
	_zk_path_names(zk_unlock_path_shared.name), _zk_path_modes(zk_unlock_path_shared.name, 'shared'::text));

COMMENT ON FUNCTION zk_unlock_path_shared(text) IS
'Releasing: Like zk_unlock_path(), for zk_lock_path_shared().';

CREATE FUNCTION zk_unlock(name text)
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_unlock(text) IS
'Releasing: Releases one exclusive hold of session scope: true. If there is none, or if the lock had been lost, false and a warning. Does not wait for ZooKeeper.';

CREATE FUNCTION zk_unlock_shared(name text)
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_unlock_shared(text) IS
'Releasing: Like zk_unlock(), for one shared hold.';

CREATE FUNCTION zk_unlock_all()
RETURNS void
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_unlock_all() IS
'Releasing: Releases all holds of session scope of this session, those of lost locks too. Does not wait for ZooKeeper.';

CREATE FUNCTION zk_disconnect()
RETURNS void
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_disconnect() IS
'Releasing: Releases all holds of session scope and closes the ZooKeeper session of this backend; the next lock opens a new one. Raises 55000 while locks of transaction scope are held.';

CREATE FUNCTION zk_fencing_token(name text)
RETURNS bigint
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_fencing_token(text) IS
'Fencing: The fencing token of a lock that this session holds, in either mode; NULL if it holds none. A later holder of the lock has a greater one, in every database and in clients in other languages (it is the czxid of the queue node).';

CREATE FUNCTION zk_is_held(name text)
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_is_held(text) IS
'Fencing: Asks the ensemble whether this session still holds the lock, in either mode: one transaction of the quorum, which a lagging server cannot answer. True means that the ensemble will not end the session for another third of its timeout; after a pause of the process that takes up to 3/10 of the timeout to find out. Waits while the connection is down; raises 08006 if the ensemble answers too late for any certainty.';

-- Fencing. Two words: a token is a lock's, and rises with every grant
-- (zk_fencing_token); a fence is a resource's in this database, and lets nobody
-- with an older token pass (zk_fence, zk_fences). What begins with an underscore
-- is a part of zk_fence, and nobody's to call.
CREATE TABLE zk_fences (
	name pg_catalog.text PRIMARY KEY,
	token bigint NOT NULL CHECK (token OPERATOR(pg_catalog.>) 0::bigint),
	claimed_by pg_catalog.name NOT NULL,
	claimed_at pg_catalog.timestamptz NOT NULL
);

COMMENT ON TABLE zk_fences IS
'Fencing: For each resource guarded with zk_fence(): the greatest fencing token that has claimed it in this database, by whom and when. Part of a dump. Changed only through zk_fence().';

COMMENT ON COLUMN zk_fences.name IS
'The resource, which is called like the lock.';
COMMENT ON COLUMN zk_fences.token IS
'The greatest fencing token that has claimed it.';
COMMENT ON COLUMN zk_fences.claimed_by IS
'The role that logged in and claimed it with that token.';
COMMENT ON COLUMN zk_fences.claimed_at IS
'When that was, by the clock of this database server.';

SELECT pg_catalog.pg_extension_config_dump('zk_fences', '');

CREATE FUNCTION _zk_fence_compare(
	name text,
	token bigint,
	newest bigint,
	claimed_at pg_catalog.timestamptz,
	now pg_catalog.timestamptz)
RETURNS void
AS 'MODULE_PATHNAME', 'zk_fence_compare' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION _zk_fence_compare(text, bigint, bigint, timestamptz, timestamptz) IS
'Fencing: Part of zk_fence(): raises 40001 if newest, the token that claimed the resource at that time, is greater than token; 22004 or 22023 for a bad argument, and for a token that is greater than the ensemble can have come to until now.';

CREATE FUNCTION _zk_fence_own_token(name text)
RETURNS bigint
AS 'MODULE_PATHNAME', 'zk_fence_own_token' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION _zk_fence_own_token(text) IS
'Fencing: Part of zk_fence(): zk_fencing_token(), but raises 55000 if the lock is not held here, or with more than one permit.';

-- A token that cannot be must not get in, so it is looked at first. The row is
-- locked by the INSERT whether it is changed or not: until the end of the
-- transaction no other holder, older or newer, gets past it.
CREATE FUNCTION zk_fence(name text, token bigint)
RETURNS void
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
BEGIN ATOMIC
	SELECT _zk_fence_compare(zk_fence.name, zk_fence.token, f.token, f.claimed_at,
							 pg_catalog.clock_timestamp())
		FROM (VALUES (true)) AS one
			LEFT JOIN zk_fences AS f
				ON f.name OPERATOR(pg_catalog.=) zk_fence.name;
	INSERT INTO zk_fences AS f (name, token, claimed_by, claimed_at)
		VALUES (zk_fence.name, zk_fence.token, session_user,
				pg_catalog.clock_timestamp())
		ON CONFLICT (name) DO UPDATE
			SET token = excluded.token,
				claimed_by = excluded.claimed_by,
				claimed_at = excluded.claimed_at
			WHERE f.token OPERATOR(pg_catalog.<) excluded.token;
	SELECT _zk_fence_compare(zk_fence.name, zk_fence.token, f.token, f.claimed_at,
							 pg_catalog.clock_timestamp())
		FROM zk_fences AS f
		WHERE f.name OPERATOR(pg_catalog.=) zk_fence.name;
END;

COMMENT ON FUNCTION zk_fence(text, bigint) IS
'Fencing: Claims the guarded resource of that name in this database for the holder of the fencing token, until the end of the transaction, which waits for another claimant to end its own. Raises 40001 if a holder with a greater token has been here: then this one is no longer the holder. For tokens that come from elsewhere, so not for everybody: whoever may call it can shut out all older holders.';

CREATE FUNCTION zk_fence(name text)
RETURNS void
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
BEGIN ATOMIC
	SELECT zk_fence(zk_fence.name, _zk_fence_own_token(zk_fence.name));
END;

COMMENT ON FUNCTION zk_fence(text) IS
'Fencing: zk_fence() with the token of the lock of that name that this session holds; raises 55000 if it holds none, or with more than one permit, whose holders do not exclude each other. Call it first in each transaction that changes what the lock guards.';

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
	OUT database text,
	OUT username text,
	OUT application text,
	OUT pid integer,
	OUT host text,
	OUT since timestamptz,
	OUT token bigint,
	OUT data text,
	OUT permits integer,
	OUT held_since timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED
ROWS 10;

COMMENT ON FUNCTION zk_lock_queue(text) IS
'Looking: The queue of a lock: one row for each contender of every client and cluster, in order, with state (held, waiting, releasing: its owner is letting go, or kept: nobody holds it, whoever comes has it at once), mode, style of its node, owning ZooKeeper session, who it says it is, since when (ZooKeeper''s clock) and fencing token. Children of the znode that are not contenders come last, with a NULL position. data is what other clients wrote into their node; permits is 1, or how many may hold a semaphore. held_since is a bound: a holder was granted the lock between since and held_since, at once if they are equal; NULL if no bound is known but now.';

CREATE FUNCTION zk_who(
	name text,
	OUT "position" integer,
	OUT state text,
	OUT who text,
	OUT "where" text,
	OUT since timestamptz)
RETURNS SETOF record
LANGUAGE sql VOLATILE PARALLEL RESTRICTED ROWS 10
BEGIN ATOMIC
	SELECT q."position", q.state,
		CASE WHEN q.pid IS NOT NULL
			THEN pg_catalog.concat(pg_catalog."left"(q.username, 12), ' ', q.pid)
			ELSE pg_catalog."left"(COALESCE(q.data, q.client, q.style), 20) END,
		pg_catalog."left"(
			CASE WHEN q.session_id IS NULL AND q.token IS NOT NULL
					AND q.client OPERATOR(pg_catalog.=) 'zklock'::pg_catalog.text
				THEN pg_catalog.concat('hold: ', q.data)
				WHEN q.pid IS NULL THEN q.session_id
				ELSE pg_catalog.concat_ws('@',
					pg_catalog.concat_ws('/', q.cluster, q.database),
					pg_catalog.split_part(q.host, '.', 1)) END, 24),
		pg_catalog.date_trunc('second', q.since)
	FROM zk_lock_queue(zk_who.name) AS q
	WHERE q."position" IS NOT NULL
	ORDER BY q."position";
END;

COMMENT ON FUNCTION zk_who(text) IS
'Looking: zk_lock_queue() for a terminal of 100 columns: for each contender, in order, position, state, who (user and process; of other clients what they say of themselves), where (cluster/database@host; of a hold its reason, of other clients their ZooKeeper session), cut to 20 and 24 characters, and since when it stands in the queue, to the second.';

CREATE FUNCTION zk_all_locks(
	prefix text DEFAULT '',
	OUT name text,
	OUT holders integer,
	OUT waiters integer)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED
ROWS 100;

COMMENT ON FUNCTION zk_all_locks(text) IS
'Looking: All locks that somebody of any client and cluster holds or waits for: name, how many hold it and how many wait. With prefix, a lock name, only that one and those below it: team for team and team/nightly, but not teams. One request to ZooKeeper for each znode below the root; each lock is counted at a moment of its own. Bounded by lock_timeout. A warning tells of znodes that ZooKeeper denies to list.';

-- Waits for PostgreSQL's own locks, in every cluster, by those who are waited for.
CREATE FUNCTION _zk_waits_in_postgres(
	OUT waits_for text,
	OUT session_id text,
	OUT blocked_by_session_id text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zk_waits_in_postgres' LANGUAGE C VOLATILE PARALLEL RESTRICTED
ROWS 10;

COMMENT ON FUNCTION _zk_waits_in_postgres() IS
'Looking: Part of zk_waits(): what sessions that wait for a ZooKeeper lock have said of those who wait for them in PostgreSQL.';

CREATE FUNCTION zk_waits(
	OUT cluster text,
	OUT database text,
	OUT pid integer,
	OUT username text,
	OUT host text,
	OUT session_id text,
	OUT client text,
	OUT waits_for text,
	OUT name text,
	OUT since timestamptz,
	OUT blocked_by_cluster text,
	OUT blocked_by_database text,
	OUT blocked_by_pid integer,
	OUT blocked_by_username text,
	OUT blocked_by_host text,
	OUT blocked_by_session_id text,
	OUT blocked_by_client text)
RETURNS SETOF record
LANGUAGE sql VOLATILE PARALLEL RESTRICTED ROWS 100
BEGIN ATOMIC
	WITH queued AS MATERIALIZED (
		SELECT l.name, q."position", q.state, q.mode, q.since, q.cluster, q.database,
			q.pid, q.username, q.host, q.session_id, COALESCE(q.client, q.style) AS client
		FROM zk_all_locks(''::text) AS l
			CROSS JOIN LATERAL zk_lock_queue(l.name) AS q
		WHERE l.waiters OPERATOR(pg_catalog.>) 0 AND q."position" IS NOT NULL
	), known AS (
		SELECT DISTINCT ON (q.session_id) q.*
		FROM queued AS q
		WHERE q.session_id IS NOT NULL
	)
	SELECT w.cluster, w.database, w.pid, w.username, w.host, w.session_id, w.client,
		pg_catalog.format('%s on ZooKeeper lock "%s"',
			CASE WHEN w.mode OPERATOR(pg_catalog.=) 'shared'::text
				THEN 'ShareLock' ELSE 'ExclusiveLock' END, w.name),
		w.name, w.since,
		b.cluster, b.database, b.pid, b.username, b.host, b.session_id, b.client
	FROM queued AS w
		JOIN queued AS b ON b.name OPERATOR(pg_catalog.=) w.name
			AND b."position" OPERATOR(pg_catalog.<) w."position"
	WHERE w.state OPERATOR(pg_catalog.=) 'waiting'::text
		AND b.state OPERATOR(pg_catalog.=) ANY (ARRAY['held', 'kept', 'releasing']::text[])
	UNION ALL
	SELECT w.cluster, w.database, w.pid, w.username, w.host, p.session_id, w.client,
		p.waits_for, NULL::text, NULL::timestamptz,
		b.cluster, b.database, b.pid, b.username, b.host, p.blocked_by_session_id, b.client
	FROM _zk_waits_in_postgres() AS p
		LEFT JOIN known AS w ON w.session_id OPERATOR(pg_catalog.=) p.session_id
		LEFT JOIN known AS b ON b.session_id OPERATOR(pg_catalog.=) p.blocked_by_session_id;
END;

COMMENT ON FUNCTION zk_waits() IS
'Looking: Who waits for whom, in the locks below this session''s root: one row for each waiter and holder, of every client and cluster. waits_for says it in words, name is the lock. A row without a name is a wait for one of PostgreSQL''s own locks, and is there if who is waited for waits for a ZooKeeper lock himself. One request to ZooKeeper for each znode below the root, and one for each contender of a lock that somebody waits for, each of a moment of its own. Each of these queries is bounded by lock_timeout.';

CREATE FUNCTION _zk_process(
	pid integer,
	OUT session_id text,
	OUT cluster text,
	OUT host text)
RETURNS record
AS 'MODULE_PATHNAME', 'zk_process' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION _zk_process(integer) IS
'Looking: Part of zk_blocking(): the ZooKeeper session of a process of this cluster, NULL if it is not known, and what processes of this cluster write into their queue nodes.';

CREATE FUNCTION zk_blocking(
	pid integer,
	OUT waits_for text,
	OUT cluster text,
	OUT database text,
	OUT blocked_by_pid integer,
	OUT username text,
	OUT host text,
	OUT session_id text,
	OUT client text)
RETURNS SETOF record
LANGUAGE sql VOLATILE PARALLEL RESTRICTED ROWS 1
BEGIN ATOMIC
	SELECT w.waits_for, w.blocked_by_cluster, w.blocked_by_database, w.blocked_by_pid,
		w.blocked_by_username, w.blocked_by_host, w.blocked_by_session_id, w.blocked_by_client
	FROM _zk_process(zk_blocking.pid) AS p
		CROSS JOIN zk_waits() AS w
	WHERE CASE WHEN p.session_id IS NOT NULL
		THEN w.session_id OPERATOR(pg_catalog.=) p.session_id
		ELSE w.pid OPERATOR(pg_catalog.=) zk_blocking.pid
			AND w.host OPERATOR(pg_catalog.=) p.host
			AND COALESCE(w.cluster, '') OPERATOR(pg_catalog.=) COALESCE(p.cluster, '') END;
END;

COMMENT ON FUNCTION zk_blocking(integer) IS
'Looking: Whom a process of this cluster waits for, in whatever cluster and client: what pg_blocking_pids() cannot know. No row if it does not wait for a ZooKeeper lock. Reads as zk_waits() does. Unless zklock is preloaded, a process is known by what it has written into its queue node, so not with zklock.publish_identity = off.';

CREATE FUNCTION _zk_mermaid(label text)
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
	SELECT pg_catalog.string_agg(
		CASE WHEN pg_catalog.strpos('"#<>&`*\', c.letter) OPERATOR(pg_catalog.>) 0
			THEN pg_catalog.concat('#', pg_catalog.ascii(c.letter), ';')
			ELSE c.letter END, ''::text ORDER BY c.number)
	FROM pg_catalog.unnest(pg_catalog.string_to_array(_zk_mermaid.label, NULL::text))
		WITH ORDINALITY AS c(letter, number);
END;

COMMENT ON FUNCTION _zk_mermaid(text) IS
'Looking: Part of zk_wait_graph(): a text between the quotes of Mermaid, which reads HTML and Markdown there, with entities for what has a meaning in these.';

CREATE FUNCTION zk_wait_graph()
RETURNS text
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
BEGIN ATOMIC
	WITH waits AS MATERIALIZED (
		SELECT w.*, pg_catalog.concat('s', w.session_id) AS waiter,
			pg_catalog.concat('s', COALESCE(w.blocked_by_session_id, pg_catalog.md5(w.name))) AS blocker
		FROM zk_waits() AS w
	), boxes AS (
		SELECT DISTINCT ON (b.box) b.box,
			CASE WHEN b.pid IS NOT NULL THEN pg_catalog.concat('process ', b.pid)
				WHEN b.session_id IS NOT NULL THEN pg_catalog.concat('session ', b.session_id)
				ELSE pg_catalog.concat('hold of ', b.name) END AS who,
			CASE WHEN b.cluster IS NULL AND b.database IS NULL THEN b.client
				ELSE pg_catalog.concat_ws(', ', b.cluster, b.database) END AS "where"
		FROM waits AS w
			CROSS JOIN LATERAL (VALUES
				(w.waiter, w.pid, w.session_id, w.name, w.cluster, w.database, w.client),
				(w.blocker, w.blocked_by_pid, w.blocked_by_session_id, w.name,
					w.blocked_by_cluster, w.blocked_by_database, w.blocked_by_client))
				AS b(box, pid, session_id, name, cluster, database, client)
		ORDER BY b.box
	), lines AS (
		SELECT 1 AS part, pg_catalog.format(E'\t%s["%s"]', b.box,
			pg_catalog.concat_ws('<br>', _zk_mermaid(b.who), _zk_mermaid(b."where"))) AS line
		FROM boxes AS b
		UNION ALL
		SELECT 2, pg_catalog.format(E'\t%s %s|"%s"| %s', w.waiter,
			CASE WHEN w.name IS NULL THEN '-.->' ELSE '-->' END,
			_zk_mermaid(COALESCE(w.name, w.waits_for)), w.blocker)
		FROM waits AS w
	)
	SELECT pg_catalog.concat(E'flowchart LR\n',
		pg_catalog.string_agg(pg_catalog.concat(l.line, E'\n'), ''::text
			ORDER BY l.part, l.line COLLATE pg_catalog."C"))
	FROM lines AS l;
END;

COMMENT ON FUNCTION zk_wait_graph() IS
'Looking: zk_waits() as the text of a picture, for Mermaid: a box for each process, an arrow from who waits to who is waited for, with the lock; a dashed one for PostgreSQL''s own locks.';

CREATE FUNCTION zk_locks(
	OUT name text,
	OUT mode text,
	OUT state text,
	OUT session_holds integer,
	OUT call_holds integer,
	OUT xact_holds integer,
	OUT token bigint,
	OUT node text,
	OUT granted_at timestamptz,
	OUT permits integer)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED
ROWS 10;

COMMENT ON FUNCTION zk_locks() IS
'Looking: The locks of this session, for the view zk_locks.';

CREATE VIEW zk_locks AS SELECT * FROM zk_locks();

COMMENT ON VIEW zk_locks IS
'Looking: The locks that this session holds. Those of another backend of this cluster: SELECT * FROM zk_backend_locks WHERE pid = ...; those of everybody: zk_lock_queue(), zk_all_locks().';

COMMENT ON COLUMN zk_locks.name IS
'Name of the lock.';
COMMENT ON COLUMN zk_locks.mode IS
'exclusive or shared. A lock that is held in both modes has a row for each.';
COMMENT ON COLUMN zk_locks.state IS
'held; lost, until it is released; or kept, which is not held any more (see zklock.keep). As far as is known here without asking.';
COMMENT ON COLUMN zk_locks.session_holds IS
'How many holds of session scope there are in that mode.';
COMMENT ON COLUMN zk_locks.call_holds IS
'How many holds of call scope there are in that mode.';
COMMENT ON COLUMN zk_locks.xact_holds IS
'How many holds of transaction scope there are in that mode.';
COMMENT ON COLUMN zk_locks.token IS
'Its fencing token.';
COMMENT ON COLUMN zk_locks.node IS
'Path of the queue node, the znode that stands for this session in the queue.';
COMMENT ON COLUMN zk_locks.granted_at IS
'When it was granted in that mode, by the clock of this database server.';
COMMENT ON COLUMN zk_locks.permits IS
'How many may hold it: 1, or the number of a semaphore.';

CREATE FUNCTION zk_session(
	OUT state text,
	OUT server text,
	OUT session_id text,
	OUT session_timeout_ms integer,
	OUT pending_requests integer,
	OUT client_version text,
	OUT program_pid integer)
RETURNS record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_session() IS
'Looking: The ZooKeeper session of this backend, for the view zk_session.';

CREATE VIEW zk_session AS SELECT * FROM zk_session();

COMMENT ON VIEW zk_session IS
'Looking: The ZooKeeper session of this backend, always one row. Does not open a session.';

COMMENT ON COLUMN zk_session.state IS
'none, connecting, connected, suspended (no connection now; the session may live) or lost (until the lost locks are let go of).';
COMMENT ON COLUMN zk_session.server IS
'Address of the server that it is or was connected to.';
COMMENT ON COLUMN zk_session.session_id IS
'Its number, as ZooKeeper prints it.';
COMMENT ON COLUMN zk_session.session_timeout_ms IS
'The session timeout, as the ensemble has granted it, in milliseconds.';
COMMENT ON COLUMN zk_session.pending_requests IS
'How many requests are not over.';
COMMENT ON COLUMN zk_session.client_version IS
'Version of ZooKeeper''s C client. NULL until the program of the session has answered.';
COMMENT ON COLUMN zk_session.program_pid IS
'Process of the program that holds the session. NULL without one.';

-- All backends of this cluster. Whose rows somebody sees, the functions decide.
CREATE FUNCTION zk_backends(
	OUT pid integer,
	OUT database name,
	OUT username name,
	OUT state text,
	OUT session_id text,
	OUT server text,
	OUT state_since timestamptz,
	OUT waiting_for text,
	OUT waiting_mode text,
	OUT waiting_permits integer,
	OUT waiting_since timestamptz,
	OUT held integer,
	OUT last_proof timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED
ROWS 100;

COMMENT ON FUNCTION zk_backends() IS
'Monitoring: The backends of this cluster, for the view zk_backends.';

CREATE VIEW zk_backends AS SELECT * FROM zk_backends();

COMMENT ON VIEW zk_backends IS
'Monitoring: The backends of this cluster that have, or had, a ZooKeeper session. All as the backend itself knew it last: one that is idle learns of an outage at its next statement, or if it holds nothing at its next lock. Without zklock in shared_preload_libraries the own row alone. Of the backends of other roles only pid, database and username, save for superusers and members of pg_read_all_stats. Asks nobody and opens no session; raises nothing, save 22021 for the name of a database or a role in another encoding, as pg_stat_activity does.';

COMMENT ON COLUMN zk_backends.pid IS
'Process of the backend.';
COMMENT ON COLUMN zk_backends.database IS
'Its database.';
COMMENT ON COLUMN zk_backends.username IS
'Its role.';
COMMENT ON COLUMN zk_backends.state IS
'State of its ZooKeeper session, as in zk_session.';
COMMENT ON COLUMN zk_backends.session_id IS
'Number of the session, as ZooKeeper prints it.';
COMMENT ON COLUMN zk_backends.server IS
'Address of the server that it is or was connected to.';
COMMENT ON COLUMN zk_backends.state_since IS
'Since when it is in that state.';
COMMENT ON COLUMN zk_backends.waiting_for IS
'The lock that is waited for: the first 127 bytes of its name, which is without its root. NULL if none is.';
COMMENT ON COLUMN zk_backends.waiting_mode IS
'In which mode it is waited for.';
COMMENT ON COLUMN zk_backends.waiting_permits IS
'With how many permits.';
COMMENT ON COLUMN zk_backends.waiting_since IS
'Since when it is waited for; anew if the backend has to queue up again after a loss of its session.';
COMMENT ON COLUMN zk_backends.held IS
'How many locks it holds. zk_backend_locks has them.';
COMMENT ON COLUMN zk_backends.last_proof IS
'The latest date of a proof: from then on the ensemble keeps the session for one session timeout. It grows old while no commit asks for one.';

CREATE FUNCTION zk_backend_locks(
	OUT pid integer,
	OUT name text,
	OUT mode text,
	OUT state text,
	OUT session_holds integer,
	OUT call_holds integer,
	OUT xact_holds integer,
	OUT token bigint,
	OUT granted_at timestamptz,
	OUT permits integer,
	OUT last_proof timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED
ROWS 100;

COMMENT ON FUNCTION zk_backend_locks() IS
'Monitoring: The locks of the backends of this cluster, for the view zk_backend_locks.';

CREATE VIEW zk_backend_locks AS SELECT * FROM zk_backend_locks();

COMMENT ON VIEW zk_backend_locks IS
'Monitoring: The locks that the backends of this cluster hold, at most 16 of each: zk_backends.held says how many there are. Whose, and how new, is as in zk_backends.';

COMMENT ON COLUMN zk_backend_locks.pid IS
'Process of the backend.';
COMMENT ON COLUMN zk_backend_locks.name IS
'Name of the lock, without its root: the first 127 bytes.';
COMMENT ON COLUMN zk_backend_locks.mode IS
'As in zk_locks.';
COMMENT ON COLUMN zk_backend_locks.state IS
'held or lost. Locks that are kept are not shown.';
COMMENT ON COLUMN zk_backend_locks.session_holds IS
'As in zk_locks.';
COMMENT ON COLUMN zk_backend_locks.call_holds IS
'As in zk_locks.';
COMMENT ON COLUMN zk_backend_locks.xact_holds IS
'As in zk_locks.';
COMMENT ON COLUMN zk_backend_locks.token IS
'Its fencing token.';
COMMENT ON COLUMN zk_backend_locks.granted_at IS
'As in zk_locks.';
COMMENT ON COLUMN zk_backend_locks.permits IS
'How many may hold it: 1, or the number of a semaphore.';
COMMENT ON COLUMN zk_backend_locks.last_proof IS
'Date of the latest proof that the ensemble keeps this lock, as in zk_backends.';

-- Counters
CREATE FUNCTION zk_stat(
	OUT database name,
	OUT granted_at_once bigint,
	OUT granted_handed_over bigint,
	OUT granted_told bigint,
	OUT granted_listed bigint,
	OUT granted_kept bigint,
	OUT kept_for_others bigint,
	OUT tries_in_vain bigint,
	OUT timeouts bigint,
	OUT cancels bigint,
	OUT deadlocks bigint,
	OUT losses bigint,
	OUT refused_commits bigint,
	OUT evictions bigint,
	OUT sessions bigint,
	OUT reconnects bigint,
	OUT requests bigint,
	OUT bytes_sent bigint,
	OUT bytes_received bigint,
	OUT waits bigint,
	OUT wait_time_ms double precision,
	OUT wait_histogram bigint[],
	OUT stats_reset timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED
ROWS 10;

COMMENT ON FUNCTION zk_stat() IS
'Monitoring: Counters of each database of this cluster, for the view zk_stat.';

CREATE VIEW zk_stat AS SELECT * FROM zk_stat();

COMMENT ON VIEW zk_stat IS
'Monitoring: Counters, a row for each database whose backends have used locks. They start with 0 when the server does. What has no row of its own, from the 128th database on, is in the one whose database is NULL. Without zklock in shared_preload_libraries: one row, of what this backend has counted itself. Asks nobody, opens no session.';

COMMENT ON COLUMN zk_stat.database IS
'Name of the database. NULL: all that have no row of their own.';
COMMENT ON COLUMN zk_stat.granted_at_once IS
'Grants of locks for which nobody was ahead. Locks that the session holds already do not count anywhere.';
COMMENT ON COLUMN zk_stat.granted_handed_over IS
'Grants after a wait, handed over by the holder ahead through the ensemble.';
COMMENT ON COLUMN zk_stat.granted_told IS
'Grants after a wait, told by a holder of this cluster in shared memory.';
COMMENT ON COLUMN zk_stat.granted_listed IS
'Grants after a wait, found by a look at the queue, which is the slowest of them.';
COMMENT ON COLUMN zk_stat.granted_kept IS
'Grants of locks that this session had kept after their release (see zklock.keep).';
COMMENT ON COLUMN zk_stat.kept_for_others IS
'Kept locks that were given up because somebody else wanted them, counted when their session notices. Many: zklock.keep is not for these sessions.';
COMMENT ON COLUMN zk_stat.tries_in_vain IS
'Tries that did not get the lock, also those that raised 08001.';
COMMENT ON COLUMN zk_stat.timeouts IS
'55P03 of who wanted a lock.';
COMMENT ON COLUMN zk_stat.cancels IS
'Cancels and statement_timeout on the way to a lock, but not those for a loss. A backend that was terminated counts in waits alone.';
COMMENT ON COLUMN zk_stat.deadlocks IS
'40P01 of who waited for a lock.';
COMMENT ON COLUMN zk_stat.losses IS
'Sessions lost, whether they held locks or not.';
COMMENT ON COLUMN zk_stat.refused_commits IS
'Commits refused with 40001.';
COMMENT ON COLUMN zk_stat.evictions IS
'Contenders that sessions of this database have evicted.';
COMMENT ON COLUMN zk_stat.sessions IS
'Sessions that were connected for the first time.';
COMMENT ON COLUMN zk_stat.reconnects IS
'Sessions that were connected again, to whichever server.';
COMMENT ON COLUMN zk_stat.requests IS
'Requests of backends to the programs of their sessions, counted at the end of a transaction. What goes to the ensemble is hardly different.';
COMMENT ON COLUMN zk_stat.bytes_sent IS
'Bytes from backends to these programs.';
COMMENT ON COLUMN zk_stat.bytes_received IS
'Bytes from these programs to backends.';
COMMENT ON COLUMN zk_stat.waits IS
'How often somebody was ahead, however the wait ended.';
COMMENT ON COLUMN zk_stat.wait_time_ms IS
'How long these waits were in all, in milliseconds.';
COMMENT ON COLUMN zk_stat.wait_histogram IS
'How many of them were shorter than 1, 3, 10, 30, 100, 300, 1000, 3000, 10000, 30000, 100000, 300000 ms (and not shorter than the bound before), and how many longer.';
COMMENT ON COLUMN zk_stat.stats_reset IS
'When the counters were last 0: start of the server, or zk_stat_reset().';

CREATE FUNCTION zk_stat_reset()
RETURNS void
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_stat_reset() IS
'Monitoring: Sets the counters of this database in zk_stat to 0; if it has no row of its own, those of all that have none.';

-- It uses subtransactions, so not in a parallel query's leader either.
CREATE FUNCTION zk_check(
	with_session boolean DEFAULT true,
	OUT item text,
	OUT state text,
	OUT what text,
	OUT remedy text)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE
ROWS 30;

COMMENT ON FUNCTION zk_check(boolean) IS
'Checks: What is wrong with zklock here, and what helps: a row for each thing that was looked at, with state (ok, note, warning or error), what was found, and a remedy (NULL if none is needed). Raises nothing but cancellations: an error that it meets is a row. Looks at the settings, the files, each server of zklock.servers, and, with the session of this backend, which it opens if there is none, at chroot, root, ACLs, clocks and queues. Takes zklock.connect_timeout at most, in milliseconds, and a second. For that it makes an ephemeral znode in the root, and takes it away. With false (or NULL) no session is used or opened and nothing is made: then it takes a second at most, for monitoring.';

-- Jobs that run once: records in ZooKeeper of who ran which slot of a job.
CREATE FUNCTION zk_run_once(name text, slot text, retain interval DEFAULT '30 days')
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_run_once(text, text, interval) IS
'Jobs: True for exactly one caller for each name and slot, in all databases and clusters, also long after that one has finished; false for all others. Not undone by ROLLBACK. At most once: after an error nobody has got a true yet, and the next call of this session gets it if it is for the same slot and the slot was claimed. After a true, some records that are older than retain by ZooKeeper''s clock are deleted; their slots can be claimed anew.';

CREATE FUNCTION zk_forget_run(name text, slot text)
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_forget_run(text, text) IS
'Jobs: Deletes the record of a slot, so that zk_run_once() returns true for it once more: for a job that has failed. False if there is no record. Not undone by ROLLBACK.';

CREATE FUNCTION zk_runs(
	name text,
	OUT slot text,
	OUT claimed_at timestamptz,
	OUT cluster text,
	OUT database text,
	OUT username text,
	OUT application text,
	OUT pid integer,
	OUT host text,
	OUT data text)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED
ROWS 100;

COMMENT ON FUNCTION zk_runs(text) IS
'Jobs: The slots of zk_run_once() that were claimed for this name and whose records were not deleted yet: when (ZooKeeper''s clock), and by whom, as it said itself. data is what another client wrote into a record.';

-- Politely
CREATE FUNCTION zk_request_release(name text, reason text DEFAULT NULL)
RETURNS integer
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_request_release(text, text) IS
'Requests: Asks all holders of the lock but this session to release it, and returns how many were asked; does not wait for them. Sessions of zklock can be asked, in any cluster: zk_release_requested() is true there. A warning names those that cannot be asked. reason, if given, is one line of at most 512 bytes (22023), shown to the holder with who asks. Not undone by ROLLBACK.';

CREATE FUNCTION zk_release_requested(name text)
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_release_requested(text) IS
'Requests: True if this session holds the lock, in either mode, and somebody has asked it by zk_request_release() to release it. Each call asks ZooKeeper, with one read, and waits for the reply for a second at most. A NOTICE says when it was asked and why, once for each request.';

-- By force
CREATE FUNCTION zk_evict(name text, token bigint)
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_evict(text, bigint) IS
'By force: Removes by force whoever stands in the queue of the lock with that fencing token, a holder or a waiter of any client, as zk_lock_queue() shows it, and waits until the ensemble has confirmed it. False if there is nobody. A holder that was evicted learns of it at its next proof: its commit is refused with 40001, with commit_guard = lease up to a third of its session timeout later. Logged.';

-- Holds that outlive their maker
CREATE FUNCTION zk_hold(name text, reason text, timeout interval DEFAULT NULL)
RETURNS bigint
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_hold(text, text, interval) IS
'Holds: Takes an exclusive lock, waiting in line like zk_lock(), and keeps it in ZooKeeper until zk_release_hold() is called: it outlives ROLLBACK, this session, the cluster and ZooKeeper''s restarts. It is nobody''s lock: this session does not hold it either. Returns the fencing token, which the release needs; zk_lock_queue() shows the token, the reason, and who made it. Raises 55000 if this session holds the lock.';

CREATE FUNCTION zk_release_hold(name text, token bigint)
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_release_hold(text, bigint) IS
'Holds: Releases the hold of zk_hold() with that token, in any session of any cluster, and waits until the ensemble has confirmed it: true. If there is none, false and a warning. Not undone by ROLLBACK.';

-- Privileges. docs/privileges.md has the reason for each.

-- The roles are the cluster's, so they may be there, from another database. But
-- somebody may have made them who must not have what they are given here.
DO LANGUAGE plpgsql $$
DECLARE
	role_name pg_catalog.text;
	fault pg_catalog.text;
	members pg_catalog.text;
BEGIN
	FOREACH role_name IN ARRAY ARRAY['zklock_job', 'zklock_operator']::pg_catalog.text[]
	LOOP
		IF NOT EXISTS (
			SELECT FROM pg_catalog.pg_roles r
			WHERE r.rolname OPERATOR(pg_catalog.=) role_name::pg_catalog.name)
		THEN
			EXECUTE pg_catalog.format('CREATE ROLE %I NOLOGIN', role_name);
			CONTINUE;
		END IF;
		SELECT CASE
				WHEN r.rolcanlogin THEN 'It may log in.'
				WHEN r.rolsuper OR r.rolcreaterole OR r.rolcreatedb OR r.rolreplication
					OR r.rolbypassrls THEN 'It may do what has nothing to do with zklock.'
				WHEN g.oid IS NOT NULL
				THEN pg_catalog.format('It is a member of role "%s".', g.rolname)
				ELSE pg_catalog.format('Role "%s", which is no superuser, may grant it.',
									   a.rolname) END
		INTO fault
		FROM pg_catalog.pg_roles r
			LEFT JOIN (pg_catalog.pg_auth_members gm JOIN pg_catalog.pg_roles g
					ON gm.roleid OPERATOR(pg_catalog.=) g.oid
					AND g.rolname OPERATOR(pg_catalog.<>) 'zklock_job'::pg_catalog.name)
				ON gm.member OPERATOR(pg_catalog.=) r.oid
			LEFT JOIN (pg_catalog.pg_auth_members am JOIN pg_catalog.pg_roles a
					ON am.member OPERATOR(pg_catalog.=) a.oid
					AND am.admin_option AND NOT a.rolsuper)
				ON am.roleid OPERATOR(pg_catalog.=) r.oid
		WHERE r.rolname OPERATOR(pg_catalog.=) role_name::pg_catalog.name
			AND (r.rolcanlogin OR r.rolsuper OR r.rolcreaterole OR r.rolcreatedb
				OR r.rolreplication OR r.rolbypassrls
				OR g.oid IS NOT NULL OR a.oid IS NOT NULL)
		LIMIT 1;
		IF fault IS NOT NULL
		THEN
			RAISE EXCEPTION USING
				ERRCODE = 'object_not_in_prerequisite_state',
				MESSAGE = pg_catalog.format('role "%s" cannot be trusted with privileges of zklock', role_name),
				DETAIL = fault,
				HINT = 'Whoever made it may not be meant to have them. Drop it, and CREATE EXTENSION makes it anew, or alter it so that it may do nothing, is a member of nothing, and none but superusers may grant it.';
		END IF;

		-- They may have been made members for another database.
		SELECT pg_catalog.string_agg(
				DISTINCT pg_catalog.format('"%s"', m.rolname), ', '::pg_catalog.text)
		INTO members
		FROM pg_catalog.pg_roles r
			JOIN pg_catalog.pg_auth_members rm
				ON rm.roleid OPERATOR(pg_catalog.=) r.oid
			JOIN pg_catalog.pg_roles m
				ON rm.member OPERATOR(pg_catalog.=) m.oid
				AND NOT m.rolsuper
				AND m.rolname OPERATOR(pg_catalog.<>) 'zklock_operator'::pg_catalog.name
		WHERE r.rolname OPERATOR(pg_catalog.=) role_name::pg_catalog.name;
		IF members IS NOT NULL
		THEN
			RAISE WARNING USING
				MESSAGE = pg_catalog.format('role "%s" was there already and has members', role_name),
				DETAIL = pg_catalog.format('They get the privileges of zklock that it is given: %s.', members),
				HINT = 'REVOKE it from those who are not meant to have them.';
		END IF;
	END LOOP;
END $$;

GRANT zklock_job TO zklock_operator;

REVOKE EXECUTE ON FUNCTION
	_zk_fence_compare(text, bigint, bigint, timestamptz, timestamptz),
	_zk_fence_own_token(text),
	zk_fence(text, bigint),
	zk_lock_queue(text), zk_who(text), zk_all_locks(text), zk_runs(text), zk_check(boolean),
	zk_waits(), zk_blocking(integer), zk_wait_graph(),
	_zk_waits_in_postgres(), _zk_process(integer),
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
	zk_waits(), zk_blocking(integer), zk_wait_graph(),
	_zk_waits_in_postgres(), _zk_process(integer)
TO pg_monitor, zklock_operator;

GRANT EXECUTE ON FUNCTION zk_check(boolean) TO pg_monitor;

-- The database's owner reads it for a dump, of which it is part.
GRANT SELECT ON zk_fences TO pg_monitor, pg_database_owner;
GRANT SELECT ON zk_locks, zk_session, zk_backends, zk_backend_locks, zk_stat TO PUBLIC;
