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

-- PostgreSQL lets nobody create tables and types in pg_catalog, but does not refuse
-- to move them there. pg_upgrade creates them anew, where they are.
DO LANGUAGE plpgsql $$
BEGIN
	IF EXISTS (
		SELECT FROM pg_extension AS e
		WHERE e.extname = 'zklock' AND e.extnamespace = 'pg_catalog'::regnamespace)
	THEN
		RAISE EXCEPTION USING
			ERRCODE = 'invalid_schema_name',
			MESSAGE = 'extension "zklock" must not be created in schema "pg_catalog"',
			DETAIL = 'pg_upgrade would not be able to create its tables there.',
			HINT = 'Create another schema, and name it in CREATE EXTENSION zklock SCHEMA.';
	END IF;
END $$;

CREATE FUNCTION zk_lock(
	name text,
	timeout interval DEFAULT NULL,
	permits integer DEFAULT 1)
RETURNS bigint
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

COMMENT ON FUNCTION zk_lock(text, interval, integer) IS
'Takes an exclusive lock of session scope. Waiters get it first come, first served. Returns the '
'fencing token. timeout and lock_timeout bound the wait (55P03). With permits > 1 the lock is a '
'counting semaphore. A session can take the lock several times, and must call zk_unlock() as many '
'times. ROLLBACK does not release the lock.';

CREATE FUNCTION zk_lock_shared(name text, timeout interval DEFAULT NULL)
RETURNS bigint
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

COMMENT ON FUNCTION zk_lock_shared(text, interval) IS
'Takes a shared lock of session scope: several sessions can hold it together, all in shared mode. '
'If this session holds the lock exclusively, the shared acquisition is granted at once, and others '
'are kept out until both are released. Release it with zk_unlock_shared(). All else is as with '
'zk_lock().';

CREATE FUNCTION zk_xact_lock(
	name text,
	timeout interval DEFAULT NULL,
	permits integer DEFAULT 1)
RETURNS bigint
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

COMMENT ON FUNCTION zk_xact_lock(text, interval, integer) IS
'Takes an exclusive lock of transaction scope. It is released when the commit is durable and '
'visible, at ROLLBACK, or at a rollback to an earlier savepoint; zk_unlock() does not release it. '
'PREPARE TRANSACTION is refused while the lock is held. All else is as with zk_lock().';

CREATE FUNCTION zk_xact_lock_shared(name text, timeout interval DEFAULT NULL)
RETURNS bigint
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

COMMENT ON FUNCTION zk_xact_lock_shared(text, interval) IS
'Takes a shared lock of transaction scope. It is released as by zk_xact_lock(). All else is as '
'with zk_lock_shared().';

CREATE FUNCTION zk_try_lock(
	name text,
	timeout interval DEFAULT '0',
	permits integer DEFAULT 1)
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

COMMENT ON FUNCTION zk_try_lock(text, interval, integer) IS
'Takes an exclusive lock of session scope if the lock is free, or becomes free within timeout. '
'Returns true if the lock was taken. Otherwise returns false, and leaves nothing in the queue. '
'Raises 08001 if ZooKeeper does not answer in time.';

CREATE FUNCTION zk_try_lock_shared(name text, timeout interval DEFAULT '0')
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

COMMENT ON FUNCTION zk_try_lock_shared(text, interval) IS
'Takes a shared lock of session scope if it can be granted at once, or within timeout. Returns '
'true or false as zk_try_lock() does. The lock is that of zk_lock_shared().';

CREATE FUNCTION zk_try_xact_lock(
	name text,
	timeout interval DEFAULT '0',
	permits integer DEFAULT 1)
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

COMMENT ON FUNCTION zk_try_xact_lock(text, interval, integer) IS
'Takes an exclusive lock of transaction scope if the lock is free, or becomes free within '
'timeout. Returns true or false as zk_try_lock() does. The lock is that of zk_xact_lock().';

CREATE FUNCTION zk_try_xact_lock_shared(name text, timeout interval DEFAULT '0')
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

COMMENT ON FUNCTION zk_try_xact_lock_shared(text, interval) IS
'Takes a shared lock of transaction scope if it can be granted at once, or within timeout. '
'Returns true or false as zk_try_lock() does. The lock is that of zk_xact_lock_shared().';

CREATE FUNCTION zk_call_lock(
	name text,
	timeout interval DEFAULT NULL,
	permits integer DEFAULT 1)
RETURNS bigint
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

COMMENT ON FUNCTION zk_call_lock(text, interval, integer) IS
'Takes an exclusive lock of call scope. It is released when the client''s query ends, for example '
'a CALL. If a transaction goes on after the query, the lock is released at the end of the '
'transaction. COMMIT and ROLLBACK in a procedure do not release it, nor does zk_unlock(). Raises '
'0A000 in a background worker. All else is as with zk_lock().';

CREATE FUNCTION zk_try_call_lock(
	name text,
	timeout interval DEFAULT '0',
	permits integer DEFAULT 1)
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

COMMENT ON FUNCTION zk_try_call_lock(text, interval, integer) IS
'Takes an exclusive lock of call scope if the lock is free, or becomes free within timeout. '
'Returns true or false as zk_try_lock() does. The lock is that of zk_call_lock().';

-- Several locks as one call

CREATE FUNCTION zk_lock_set(
	names text[],
	timeout interval DEFAULT NULL,
	modes text[] DEFAULT NULL)
RETURNS bigint[]
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

COMMENT ON FUNCTION zk_lock_set(text[], interval, text[]) IS
'Takes several locks of session scope: all of them, or none. It takes them in the byte order of '
'their names, so that two such calls do not deadlock with each other. modes has exclusive or '
'shared for each name; NULL means exclusive for all. timeout and lock_timeout bound the whole '
'call. Returns the fencing tokens in the order of the names.';

CREATE FUNCTION zk_xact_lock_set(
	names text[],
	timeout interval DEFAULT NULL,
	modes text[] DEFAULT NULL)
RETURNS bigint[]
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

COMMENT ON FUNCTION zk_xact_lock_set(text[], interval, text[]) IS
'Takes several locks of transaction scope: all of them, or none. They are released as by '
'zk_xact_lock(). All else is as with zk_lock_set().';

CREATE FUNCTION zk_try_lock_set(
	names text[],
	timeout interval DEFAULT '0',
	modes text[] DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

COMMENT ON FUNCTION zk_try_lock_set(text[], interval, text[]) IS
'Takes several locks of session scope if all of them are free, or become free within timeout. '
'Returns true or false as zk_try_lock() does. The locks are those of zk_lock_set().';

CREATE FUNCTION zk_try_xact_lock_set(
	names text[],
	timeout interval DEFAULT '0',
	modes text[] DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

COMMENT ON FUNCTION zk_try_xact_lock_set(text[], interval, text[]) IS
'Takes several locks of transaction scope if all of them are free, or become free within timeout. '
'Returns true or false as zk_try_lock() does. The locks are those of zk_xact_lock_set().';

CREATE FUNCTION zk_unlock_set(names text[], modes text[] DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

COMMENT ON FUNCTION zk_unlock_set(text[], text[]) IS
'Releases one acquisition of session scope of each lock. modes has exclusive or shared for each '
'name, as in zk_lock_set(). Returns true if all locks were held. Otherwise returns false, with '
'a warning for each lock that was not held or had been lost; the other locks are released.';

-- Waits that hold nothing. No parameter is for output: PL/pgSQL takes such ones
-- only if there is a variable for them, though they had a default.

CREATE PROCEDURE zk_commit_and_lock(
	name text,
	timeout interval DEFAULT NULL,
	permits integer DEFAULT 1)
AS 'MODULE_PATHNAME' LANGUAGE C;

COMMENT ON PROCEDURE zk_commit_and_lock(text, interval, integer) IS
'Commits the transaction, then takes an exclusive lock of session scope as zk_lock() does. It '
'waits in a new transaction that has no snapshot, transaction ID or locks of PostgreSQL, so the '
'wait does not hold up vacuum. zk_fencing_token() returns the token. Raises 25001 in a '
'transaction block, and 2D000 in a function.';

-- Paths

CREATE FUNCTION zk_lock_path(
	name text,
	timeout interval DEFAULT NULL,
	mode text DEFAULT 'exclusive')
RETURNS bigint
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

COMMENT ON FUNCTION zk_lock_path(text, interval, text) IS
'Takes a lock and the locks of its ancestors: all of them, or none. For a/b/c these are a and a/b '
'in shared mode, and a/b/c in the given mode. A session that holds a exclusively excludes all '
'others from the names below a. A session that holds a in shared mode excludes none from them. '
'timeout and lock_timeout bound the whole call. Returns the fencing token of the lock itself. '
'Release it with zk_unlock_path().';

CREATE FUNCTION zk_xact_lock_path(
	name text,
	timeout interval DEFAULT NULL,
	mode text DEFAULT 'exclusive')
RETURNS bigint
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

COMMENT ON FUNCTION zk_xact_lock_path(text, interval, text) IS
'Takes the locks of zk_lock_path() with transaction scope: all of them, or none. They are '
'released as by zk_xact_lock(). All else is as with zk_lock_path().';

CREATE FUNCTION zk_try_lock_path(
	name text,
	timeout interval DEFAULT '0',
	mode text DEFAULT 'exclusive')
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

COMMENT ON FUNCTION zk_try_lock_path(text, interval, text) IS
'Takes the locks of zk_lock_path() if all of them can be granted at once, or within timeout. '
'Returns true or false as zk_try_lock() does.';

CREATE FUNCTION zk_try_xact_lock_path(
	name text,
	timeout interval DEFAULT '0',
	mode text DEFAULT 'exclusive')
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

COMMENT ON FUNCTION zk_try_xact_lock_path(text, interval, text) IS
'Takes the locks of zk_xact_lock_path() if all of them can be granted at once, or within timeout. '
'Returns true or false as zk_try_lock() does.';

CREATE FUNCTION zk_unlock_path(name text, mode text DEFAULT 'exclusive')
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

COMMENT ON FUNCTION zk_unlock_path(text, text) IS
'Releases one acquisition of session scope of each lock that zk_lock_path() takes for that name '
'and mode. Returns true if all locks were held. Otherwise returns false, with a warning for each '
'lock that was not held or had been lost; the other locks are released.';

CREATE FUNCTION zk_unlock(name text)
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

COMMENT ON FUNCTION zk_unlock(text) IS
'Releases one exclusive acquisition of session scope. Returns true. Returns false, with a '
'warning, if there is no such acquisition, or if the lock is known to be lost.';

CREATE FUNCTION zk_unlock_shared(name text)
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

COMMENT ON FUNCTION zk_unlock_shared(text) IS
'Releases one shared acquisition of session scope. Returns true or false as zk_unlock() does.';

CREATE FUNCTION zk_unlock_all()
RETURNS void
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

COMMENT ON FUNCTION zk_unlock_all() IS
'Releases all acquisitions of session scope, also those of lost locks.';

CREATE FUNCTION zk_disconnect()
RETURNS void
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

COMMENT ON FUNCTION zk_disconnect() IS
'Releases all acquisitions of session scope, and closes the ZooKeeper session. The next call that '
'takes a lock opens a new ZooKeeper session. Raises 55000 while this session holds locks of '
'transaction or call scope, and 25001 if it holds any lock in a transaction that has written.';

CREATE FUNCTION zk_fencing_token(name text)
RETURNS bigint
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_fencing_token(text) IS
'Returns the fencing token of a lock that this session holds, or NULL if this session does not '
'hold it. Each later holder of the lock, in any database or client, has a greater token. Once you '
'have asked for the token, no other grant gets the same one: zklock.keep does not keep the lock '
'after its release.';

CREATE FUNCTION zk_is_held(name text)
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

COMMENT ON FUNCTION zk_is_held(text) IS
'Asks ZooKeeper whether this session still holds the lock. If it returns true, the ZooKeeper '
'session lives for at least another third of its timeout (5 s by default). Waits while the '
'connection is down. After a pause of the process the answer can take 3/10 of the session timeout '
'(4.5 s). Raises 08006 if ZooKeeper answers too slowly.';

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
'Greatest fencing token that zk_fence() has seen in this database, for each guarded resource. '
'Part of a dump. Only zk_fence() changes it.';

COMMENT ON COLUMN zk_fences.root IS
'Chroot of zklock.servers, followed by zklock.root. Characters that are not ASCII are escaped, '
'and so is "<". '
'The same name below another root is another resource.';
COMMENT ON COLUMN zk_fences.name IS
'Name of the resource, which is the name of the lock.';
COMMENT ON COLUMN zk_fences.token IS
'Greatest fencing token so far.';
COMMENT ON COLUMN zk_fences.claimed_by IS
'Role that logged in and was the first to use this token.';
COMMENT ON COLUMN zk_fences.claimed_at IS
'Time of that first use, by the clock of this cluster.';

SELECT pg_extension_config_dump('zk_fences', '');

-- A subscription applies rows of another database, which does not know the tokens here.
CREATE FUNCTION _zk_fences_applied()
RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	is_there boolean;
BEGIN
	-- After a restore with --disable-triggers it is fired for others, too. zk_fence()
	-- has compared the tokens then, with the row locked.
	IF current_setting('session_replication_role') <> 'replica' THEN
		RETURN new;
	ELSIF TG_OP = 'UPDATE' THEN
		RETURN CASE WHEN new.token >= old.token THEN new END;
	END IF;
	EXECUTE format(
			'UPDATE %s SET token = $3, claimed_by = $4, claimed_at = $5 '
			'WHERE root = $1 AND name = $2 AND token < $3', TG_RELID::regclass)
		USING new.root, new.name, new.token, new.claimed_by, new.claimed_at;
	EXECUTE format(
			'SELECT EXISTS (SELECT FROM %s WHERE root = $1 AND name = $2)', TG_RELID::regclass)
		INTO is_there
		USING new.root, new.name;
	RETURN CASE WHEN NOT is_there THEN new END;
END $$;

COMMENT ON FUNCTION _zk_fences_applied() IS
'Helper of zk_fences. Keeps the greater token when a subscription applies a row that is already '
'there.';

CREATE TRIGGER applied BEFORE INSERT OR UPDATE ON zk_fences
	FOR EACH ROW EXECUTE FUNCTION _zk_fences_applied();
ALTER TABLE zk_fences ENABLE REPLICA TRIGGER applied;

CREATE FUNCTION _zk_fence_compare(
	name text,
	token bigint,
	newest bigint,
	claimed_at timestamptz,
	now timestamptz)
RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	-- The upper half of a token is the number of elections of a leader that the ensemble has
	-- had. No ensemble has one election a second for years. Elections that fail count, too, so
	-- a token may be some numbers ahead. There was no ZooKeeper before 2008. Both dates come
	-- from the clock of the database machine. The clock may have been set back, or may be that
	-- of another machine after a failover. So 1000 elections are always allowed.
	elections bigint := (token >> 32) - COALESCE(newest >> 32, 0);
	seconds numeric := CASE WHEN newest IS NULL
		THEN extract(epoch FROM now) - extract(epoch FROM '2008-01-01 UTC'::timestamptz)
		ELSE greatest(0, floor(extract(epoch FROM now)) - floor(extract(epoch FROM claimed_at)))
		END;
	most numeric := CASE WHEN newest IS NULL THEN greatest(1000, seconds) ELSE 1000 + seconds END;
BEGIN
	IF newest > token THEN
		RAISE EXCEPTION USING
			ERRCODE = 'serialization_failure',
			MESSAGE = format('a newer holder of lock "%s" has been here', name),
			DETAIL = format('Fencing token %s is older than %s.', token, newest),
			HINT = 'Take the lock again, and run the transaction again. If that never helps, run '
				'zk_check(): it tells whether the ensemble has lost its data, or is another one, '
				'so that its tokens start anew. If so, TRUNCATE zk_fences as a superuser when no '
				'earlier holder is left.';
	ELSIF elections > most THEN
		RAISE EXCEPTION USING
			ERRCODE = 'invalid_parameter_value',
			MESSAGE = format('implausible fencing token for lock "%s"', name),
			DETAIL = CASE WHEN newest IS NULL
				THEN format('Its ensemble would have elected %s leaders, more than one a second '
					'since 2008.', elections)
				ELSE format('Fencing token %s is %s elections of a leader ahead of %s, which '
					'claimed the lock %s seconds ago.', token, elections, newest, seconds)
				END,
			HINT = 'Give the token that zk_fencing_token() returned to the holder: one that is too '
				'great would refuse all holders for ever. If the token is right all the same, '
				'delete the lock''s row of zk_fences first, as a superuser.';
	END IF;
	RETURN newest < token;
END $$;

COMMENT ON FUNCTION _zk_fence_compare(text, bigint, bigint, timestamptz, timestamptz) IS
'Helper of zk_fence(). Raises 40001 if newest is greater than token, and 22023 for a token that '
'the ensemble cannot have reached yet. Returns true if token is greater.';

CREATE FUNCTION _zk_fence_own_lock(name text, OUT root text, OUT resource text, OUT token bigint)
RETURNS record
AS 'MODULE_PATHNAME', 'zk_fence_own_lock' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION _zk_fence_own_lock(text) IS
'Helper of zk_fence(). Returns zk_fencing_token(), with the root and name that the lock had when '
'it was taken. Raises 55000 if this session does not hold the lock exclusively, or if the lock is '
'a semaphore.';

-- The first INSERT makes the row, if there is none. The second one locks the row whether it
-- changes it or not: until the end of the transaction no other holder, older or newer, gets past
-- it. Each compares the tokens with the row locked. No statement reads the table by a snapshot.
-- Under SERIALIZABLE the predicate lock of such a read covers other rows, too, and refused
-- transactions that had nothing to do with each other.
CREATE FUNCTION _zk_fence_claim(root text, name text, token bigint)
RETURNS boolean
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
BEGIN ATOMIC
	INSERT INTO zk_fences AS f (root, name, token, claimed_by, claimed_at)
		VALUES (_zk_fence_claim.root, _zk_fence_claim.name, _zk_fence_claim.token, session_user,
				clock_timestamp())
		ON CONFLICT (root, name) DO NOTHING
		RETURNING _zk_fence_compare(f.name, f.token, NULL::bigint, NULL::timestamptz,
									f.claimed_at);
	INSERT INTO zk_fences AS f (root, name, token, claimed_by, claimed_at)
		VALUES (_zk_fence_claim.root, _zk_fence_claim.name, _zk_fence_claim.token, session_user,
				clock_timestamp())
		ON CONFLICT (root, name) DO UPDATE
			SET token = excluded.token,
				claimed_by = excluded.claimed_by,
				claimed_at = excluded.claimed_at
			WHERE _zk_fence_compare(f.name, excluded.token, f.token, f.claimed_at,
									excluded.claimed_at);
	SELECT true;
END;

COMMENT ON FUNCTION _zk_fence_claim(text, text, bigint) IS
'Helper of zk_fence(). Compares the token with the row of zk_fences, and writes it there. '
'zk_fence() checks beforehand that the caller may do so.';

CREATE FUNCTION zk_fence(name text, token bigint)
RETURNS void
AS 'MODULE_PATHNAME', 'zk_fence_claim' LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION zk_fence(text, bigint) IS
'Refuses this transaction (40001) if a greater token was used for this name in this database. '
'Other calls for the same name below this root wait until this transaction ends. Not every role '
'may call it: a token that is too great refuses all later holders.';

CREATE FUNCTION zk_fence(name text)
RETURNS void
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
BEGIN ATOMIC
	SELECT _zk_fence_claim(own.root, own.resource, own.token)
		FROM _zk_fence_own_lock(zk_fence.name) AS own;
END;

COMMENT ON FUNCTION zk_fence(text) IS
'Refuses this transaction (40001) if a newer holder of the lock has used zk_fence() in this '
'database. Call it first in each transaction that changes what the lock guards. Raises 55000 if '
'this session does not hold the lock exclusively, or if the lock is a semaphore.';

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
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000
ROWS 10;

COMMENT ON FUNCTION zk_lock_queue(text) IS
'Returns the queue of a lock: a row for each holder and waiter of all clients and clusters, in '
'their order. Other children of the lock''s znode come last, with NULL as position. An ephemeral '
'znode in place of the queue is shown as a holder. The row of a lease names its owner, its data, '
'the session that renewed it last, and when its term ends by ZooKeeper''s clock.';

CREATE FUNCTION zk_escape(name text)
RETURNS text
AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION zk_escape(text) IS
'Returns the name in a form that can be printed: characters that are invisible or change the '
'direction of text become escapes such as <U+200B>. Views and functions return the name itself, '
'which can be compared and given to other functions.';

CREATE FUNCTION zk_who(
	name text,
	OUT "position" integer,
	OUT state text,
	OUT who text,
	OUT location text,
	OUT since timestamptz)
RETURNS SETOF record
LANGUAGE sql VOLATILE PARALLEL RESTRICTED COST 1000 ROWS 10
BEGIN ATOMIC
	SELECT q."position", q.state, left(shown.who, 20), left(shown.location, 24),
		date_trunc('second', q.since)
	FROM zk_lock_queue(zk_who.name) AS q
		CROSS JOIN LATERAL (SELECT
			CASE WHEN q.lease_owner IS NOT NULL THEN zk_escape(q.lease_owner)
				WHEN q.pid IS NOT NULL THEN concat(left(q.usename, 12), ' ', q.pid)
				ELSE COALESCE(q.data, q.client, q.style) END,
			CASE WHEN q.lease_expires_at IS NOT NULL
					THEN to_char(q.lease_expires_at, '"lease until "HH24:MI:SS')
				WHEN q.session_id IS NULL AND q.token IS NOT NULL AND q.client = 'zklock'
					THEN concat('hold: ', q.data)
				WHEN q.pid IS NULL
					THEN COALESCE(q.session_id, 'no session')
				ELSE concat_ws('@', concat_ws('/', q.cluster, q.datname),
					split_part(q.host, '.', 1)) END)
			AS shown(who, location)
	WHERE q."position" IS NOT NULL
	ORDER BY q."position";
END;

COMMENT ON FUNCTION zk_who(text) IS
'Returns zk_lock_queue() for a terminal of 100 columns: who (user and process) is cut to 20 '
'characters, location (cluster/database@host) to 24. A permanent hold shows its reason, a lease '
'its owner and the end of its term, another client its ZooKeeper session, or that it has none.';

CREATE FUNCTION zk_all_locks(
	prefix text DEFAULT '',
	OUT name text,
	OUT holder_count integer,
	OUT waiter_count integer)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000
ROWS 100;

COMMENT ON FUNCTION zk_all_locks(text) IS
'Returns all locks that have a holder or a waiter, of all clients and clusters. prefix limits '
'them to one name and the names below it: team means team and team/nightly, not teams. Names that '
'zklock.names does not allow are left out. Sends a request for each znode below the root. '
'lock_timeout bounds the call.';

-- Waits for PostgreSQL's own locks, in every cluster, by those who are waited for.
CREATE FUNCTION _zk_waits_in_postgres(
	OUT waits_for text,
	OUT session_id text,
	OUT blocked_by_session_id text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zk_waits_in_postgres' LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000
ROWS 10;

COMMENT ON FUNCTION _zk_waits_in_postgres() IS
'Helper of zk_waits(). Returns the waits in PostgreSQL for sessions that wait for ZooKeeper '
'locks.';

-- The contenders of each queue in which somebody waits. Names that the encoding of this
-- database lacks are shown escaped, and may look the same: lock, a number, tells them apart.
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
AS 'MODULE_PATHNAME', 'zk_contenders' LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000
ROWS 100;

COMMENT ON FUNCTION _zk_contenders() IS
'Helper of zk_waits(). Returns the contenders of each lock that has a waiter.';

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
LANGUAGE sql VOLATILE PARALLEL RESTRICTED COST 1000 ROWS 100
BEGIN ATOMIC
	WITH contender AS MATERIALIZED (
		SELECT * FROM _zk_contenders()
	), waiter AS (
		SELECT c.*, CASE WHEN c.mode = 'shared' THEN 'ShareLock' ELSE 'ExclusiveLock' END AS wanted
		FROM contender AS c
		WHERE c.state = 'waiting'
	), holder AS (
		SELECT c.*
		FROM contender AS c
		WHERE c.state IN ('held', 'releasing')
	), session AS (
		-- what one of its nodes says of it
		SELECT DISTINCT ON (c.session_id) c.*
		FROM contender AS c
		WHERE c.session_id IS NOT NULL
	)
	-- waits for ZooKeeper locks
	SELECT w.cluster, w.datname, w.pid, w.usename, w.host, w.session_id, w.client,
		format('%s on ZooKeeper lock "%s"', w.wanted, zk_escape(w.name)), w.name, w.since,
		h.cluster, h.datname, h.pid, h.usename, h.host, h.session_id, h.client
	FROM waiter AS w
		JOIN holder AS h ON h.lock = w.lock AND h."position" < w."position"
	UNION ALL
	-- waits for PostgreSQL's own locks
	SELECT w.cluster, w.datname, w.pid, w.usename, w.host, p.session_id, w.client,
		p.waits_for, NULL, NULL,
		h.cluster, h.datname, h.pid, h.usename, h.host, p.blocked_by_session_id, h.client
	FROM _zk_waits_in_postgres() AS p
		LEFT JOIN session AS w ON w.session_id = p.session_id
		JOIN session AS h ON h.session_id = p.blocked_by_session_id;
END;

COMMENT ON FUNCTION zk_waits() IS
'Returns which waiter waits for which holder, below zklock.root: a row for each such pair, of all '
'clients and clusters. If name is NULL, the wait is for one of PostgreSQL''s own locks. Names that '
'zklock.names does not allow are left out. Sends a request for each znode below the root and for '
'each contender. lock_timeout bounds each request.';

CREATE FUNCTION _zk_mermaid(label text)
RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
	SELECT string_agg(CASE WHEN strpos(E'"#<>&`*\\', c.letter) > 0
			THEN concat('#', ascii(c.letter), ';')
			ELSE c.letter END, '' ORDER BY c.nr)
	FROM unnest(string_to_array(_zk_mermaid.label, NULL)) WITH ORDINALITY AS c(letter, nr);
END;

COMMENT ON FUNCTION _zk_mermaid(text) IS
'Helper of zk_wait_graph(). Returns the text, escaped for Mermaid.';

CREATE FUNCTION zk_wait_graph()
RETURNS text
LANGUAGE sql VOLATILE PARALLEL RESTRICTED COST 1000
BEGIN ATOMIC
	-- A node of the picture has the number of its session, or that of a lock's name.
	WITH wait AS MATERIALIZED (
		SELECT w.*, concat('s', w.session_id) AS waiter,
			concat('s', COALESCE(w.blocked_by_session_id,
				to_hex(hashtextextended(w.name, 0::bigint)))) AS blocker
		FROM zk_waits() AS w
	), party AS (
		SELECT w.waiter AS node, w.pid, w.session_id, w.name, w.cluster, w.datname, w.client
		FROM wait AS w
		UNION ALL
		SELECT w.blocker, w.blocked_by_pid, w.blocked_by_session_id, w.name,
			w.blocked_by_cluster, w.blocked_by_datname, w.blocked_by_client
		FROM wait AS w
	), box AS (
		SELECT DISTINCT ON (p.node) p.node,
			CASE WHEN p.pid IS NOT NULL THEN concat('process ', p.pid)
				WHEN p.session_id IS NOT NULL THEN concat('session ', p.session_id)
				ELSE concat('permanent hold of ', zk_escape(p.name)) END AS who,
			CASE WHEN p.cluster IS NULL AND p.datname IS NULL THEN p.client
				ELSE concat_ws(', ', p.cluster, p.datname) END AS location
		FROM party AS p
		ORDER BY p.node
	), line AS (
		SELECT 1 AS part, format(E'\t%s["%s"]', b.node,
			concat_ws('<br>', _zk_mermaid(b.who), _zk_mermaid(b.location))) AS text
		FROM box AS b
		UNION ALL
		SELECT 2, format(E'\t%s %s|"%s"| %s', w.waiter,
			CASE WHEN w.name IS NULL THEN '-.->' ELSE '-->' END,
			_zk_mermaid(COALESCE(zk_escape(w.name), w.waits_for)), w.blocker)
		FROM wait AS w
	)
	SELECT concat(E'flowchart LR\n',
		string_agg(concat(l.text, E'\n'), '' ORDER BY l.part, l.text COLLATE "C"))
	FROM line AS l;
END;

COMMENT ON FUNCTION zk_wait_graph() IS
'Returns zk_waits() as a diagram for Mermaid: a box for each process, and an arrow from each '
'waiter to each holder in its way. The arrows of waits for PostgreSQL''s own locks are dashed.';

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
'Returns the rows of the view zk_session_locks: the locks of this session.';

CREATE VIEW zk_session_locks AS SELECT * FROM zk_session_locks();

COMMENT ON VIEW zk_session_locks IS
'Locks that this session holds. For other backends of this cluster see zk_locks, for all clients '
'zk_lock_queue() and zk_all_locks().';

COMMENT ON COLUMN zk_session_locks.name IS
'Name of the lock.';
COMMENT ON COLUMN zk_session_locks.mode IS
'exclusive or shared. A lock that is held in both modes has two rows, and one of exclusive mode '
'without acquisitions when only shared ones are left.';
COMMENT ON COLUMN zk_session_locks.state IS
'held; leaving: released, and held until the transaction ends, which has written; lost, until the '
'lost lock is released; or kept: released, but its queue node is still there (zklock.keep). The '
'view shows what this session knows, and does not ask ZooKeeper.';
COMMENT ON COLUMN zk_session_locks.session_acquisitions IS
'Number of acquisitions of session scope in this mode.';
COMMENT ON COLUMN zk_session_locks.call_acquisitions IS
'Number of acquisitions of call scope in this mode.';
COMMENT ON COLUMN zk_session_locks.xact_acquisitions IS
'Number of acquisitions of transaction scope in this mode.';
COMMENT ON COLUMN zk_session_locks.token IS
'Fencing token of the lock.';
COMMENT ON COLUMN zk_session_locks.node IS
'Path of the queue node.';
COMMENT ON COLUMN zk_session_locks.granted_at IS
'Time of the grant in this mode, by the clock of this cluster.';
COMMENT ON COLUMN zk_session_locks.permits IS
'Number of sessions that may hold the lock: 1, or more for a semaphore.';
COMMENT ON COLUMN zk_session_locks.root IS
'Chroot of zklock.servers, followed by zklock.root. The same name below another root is another '
'lock.';

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
'Returns the row of the view zk_session: the ZooKeeper session of this backend.';

CREATE VIEW zk_session AS SELECT * FROM zk_session();

COMMENT ON VIEW zk_session IS
'ZooKeeper session of this backend. Always has one row. Opens no ZooKeeper session.';

COMMENT ON COLUMN zk_session.state IS
'none, connecting, connected, suspended (there is no connection now, but the ZooKeeper session '
'may still live), lost (until the lost locks are released), or idle (closed after '
'zklock.idle_timeout; nothing was lost).';
COMMENT ON COLUMN zk_session.server IS
'ZooKeeper server of the connection, or of the last one.';
COMMENT ON COLUMN zk_session.session_id IS
'Number of the ZooKeeper session, as ZooKeeper prints it.';
COMMENT ON COLUMN zk_session.session_timeout_ms IS
'Session timeout that the ensemble has granted, in milliseconds.';
COMMENT ON COLUMN zk_session.pending_requests IS
'Number of requests that are not answered yet.';
COMMENT ON COLUMN zk_session.client_version IS
'Version of ZooKeeper''s C client. NULL until zklock-session has answered.';
COMMENT ON COLUMN zk_session.program_pid IS
'Process ID of zklock-session. NULL if there is no such process.';
COMMENT ON COLUMN zk_session.ssl IS
'Whether the connection, or the last one, is encrypted (zklock.ssl).';
COMMENT ON COLUMN zk_session.ssl_version IS
'Version of TLS. NULL without TLS.';
COMMENT ON COLUMN zk_session.ssl_subject IS
'Subject of the ZooKeeper server''s certificate. NULL without TLS.';

-- All backends of this cluster. The functions decide whose rows a role may see.
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
	OUT root text)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED
ROWS 100;

COMMENT ON FUNCTION zk_backends() IS
'Returns the rows of the view zk_backends: the backends of this cluster.';

CREATE VIEW zk_backends AS SELECT * FROM zk_backends();

COMMENT ON VIEW zk_backends IS
'Backends of this cluster that have, or had, a ZooKeeper session. A row shows what its backend '
'knew last; only the state of the ZooKeeper session is always current. The details of other roles '
'need pg_read_all_stats. Does not ask ZooKeeper.';

COMMENT ON COLUMN zk_backends.pid IS
'Process ID of the backend.';
COMMENT ON COLUMN zk_backends.datname IS
'Database of the backend.';
COMMENT ON COLUMN zk_backends.usename IS
'Role of the backend.';
COMMENT ON COLUMN zk_backends.state IS
'State of the ZooKeeper session, as in zk_session.';
COMMENT ON COLUMN zk_backends.session_id IS
'Number of the ZooKeeper session, as ZooKeeper prints it.';
COMMENT ON COLUMN zk_backends.server IS
'ZooKeeper server of the connection, or of the last one.';
COMMENT ON COLUMN zk_backends.state_since IS
'Time since which the session has been in this state. NULL if the backend has been idle since '
'before.';
COMMENT ON COLUMN zk_backends.waiting_for IS
'Lock for which the backend waits: the first 127 bytes of its name, without the root. NULL if it '
'waits for none.';
COMMENT ON COLUMN zk_backends.waiting_mode IS
'Mode in which the backend wants that lock.';
COMMENT ON COLUMN zk_backends.waiting_permits IS
'Number of permits that the backend names for that lock.';
COMMENT ON COLUMN zk_backends.waiting_since IS
'Start of the wait, or the time at which the backend joined the queue again after its ZooKeeper '
'session was lost.';
COMMENT ON COLUMN zk_backends.lock_count IS
'Number of locks that the backend holds. zk_locks lists them.';
COMMENT ON COLUMN zk_backends.last_proof IS
'Time of the last proof that the ensemble keeps the ZooKeeper session, for one session timeout '
'from that time. It is old if no commit has needed a newer one.';
COMMENT ON COLUMN zk_backends.root IS
'Root, as in zk_session_locks, of the lock for which the backend waited, or which it took, last: '
'the first 127 bytes. NULL before the first lock.';

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
'Returns the rows of the view zk_locks: the locks of the backends of this cluster.';

CREATE VIEW zk_locks AS SELECT * FROM zk_locks();

COMMENT ON VIEW zk_locks IS
'Locks that the backends of this cluster hold, at most 16 for each backend; '
'zk_backends.lock_count has their number. Visibility and age of the rows are as in zk_backends.';

COMMENT ON COLUMN zk_locks.pid IS
'Process ID of the backend.';
COMMENT ON COLUMN zk_locks.name IS
'Name of the lock without its root: the first 127 bytes.';
COMMENT ON COLUMN zk_locks.mode IS
'As in zk_session_locks.';
COMMENT ON COLUMN zk_locks.state IS
'held, leaving or lost, as in zk_session_locks. Kept locks are not shown.';
COMMENT ON COLUMN zk_locks.session_acquisitions IS
'As in zk_session_locks.';
COMMENT ON COLUMN zk_locks.call_acquisitions IS
'As in zk_session_locks.';
COMMENT ON COLUMN zk_locks.xact_acquisitions IS
'As in zk_session_locks.';
COMMENT ON COLUMN zk_locks.token IS
'Fencing token of the lock.';
COMMENT ON COLUMN zk_locks.granted_at IS
'As in zk_session_locks.';
COMMENT ON COLUMN zk_locks.permits IS
'As in zk_session_locks.';
COMMENT ON COLUMN zk_locks.last_proof IS
'Time of the last proof for this lock, as in zk_backends.';

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
	OUT unanswered_calls bigint,
	OUT losses bigint,
	OUT deleted_nodes bigint,
	OUT refused_commits bigint,
	OUT evictions bigint,
	OUT leases_taken bigint,
	OUT leases_ended bigint,
	OUT refused_writes bigint,
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
'Returns the rows of the view zk_stat: the counters of each database of this cluster.';

CREATE VIEW zk_stat AS SELECT * FROM zk_stat();

COMMENT ON VIEW zk_stat IS
'Counters for each database that has used locks, since the start of the cluster or '
'zk_stat_reset(). The 128th database and all later ones share the row whose datname is NULL. Does '
'not ask ZooKeeper.';

COMMENT ON COLUMN zk_stat.datname IS
'Name of the database. NULL for all databases that have no row of their own.';
COMMENT ON COLUMN zk_stat.grants_at_once IS
'Grants without a wait. Taking a lock that the session already holds is not counted.';
COMMENT ON COLUMN zk_stat.grants_handed_over IS
'Grants after a wait that the holder handed over through ZooKeeper.';
COMMENT ON COLUMN zk_stat.grants_told IS
'Grants after a wait that a holder of this cluster handed over in shared memory.';
COMMENT ON COLUMN zk_stat.grants_listed IS
'Grants after a wait for which the queue had to be read, which is the slowest way.';
COMMENT ON COLUMN zk_stat.grants_kept IS
'Grants of locks that the session had kept (zklock.keep).';
COMMENT ON COLUMN zk_stat.keeps_given_up IS
'Kept locks that were given up because another contender wanted them. If there are many, turn '
'zklock.keep off.';
COMMENT ON COLUMN zk_stat.tries_in_vain IS
'Tries that did not get the lock, also those that raised 08001.';
COMMENT ON COLUMN zk_stat.timeouts IS
'Lock requests that timed out (55P03).';
COMMENT ON COLUMN zk_stat.cancels IS
'Lock requests that were canceled, also by statement_timeout. Cancellations because of a lost '
'lock, and terminations of the backend, are not counted.';
COMMENT ON COLUMN zk_stat.deadlocks IS
'Lock requests that ended in a deadlock (40P01).';
COMMENT ON COLUMN zk_stat.unanswered_calls IS
'Calls that ended without an answer of ZooKeeper: with an SQLSTATE of class 08, or earlier, by a '
'timeout or a cancellation. Those of the lease worker are in the row whose datname is NULL.';
COMMENT ON COLUMN zk_stat.losses IS
'ZooKeeper sessions that were lost, with or without locks.';
COMMENT ON COLUMN zk_stat.deleted_nodes IS
'Locks that were lost because their queue node was deleted, by zk_evict() or another client of '
'ZooKeeper. An idle session counts the loss with its next statement.';
COMMENT ON COLUMN zk_stat.refused_commits IS
'Commits that were refused with 40001.';
COMMENT ON COLUMN zk_stat.evictions IS
'Evictions by sessions of this database.';
COMMENT ON COLUMN zk_stat.leases_taken IS
'Leases taken. Renewals are not counted.';
COMMENT ON COLUMN zk_stat.leases_ended IS
'Leases that were given up, or removed after their term. Those that the lease worker removed are '
'in the row whose datname is NULL.';
COMMENT ON COLUMN zk_stat.refused_writes IS
'Calls that were refused because of zklock.max_creates (53400).';
COMMENT ON COLUMN zk_stat.sessions IS
'ZooKeeper sessions that were opened.';
COMMENT ON COLUMN zk_stat.reconnects IS
'Reconnections of ZooKeeper sessions, to the same or another server.';
COMMENT ON COLUMN zk_stat.requests IS
'Requests sent, about as many as reach ZooKeeper. They are counted at the end of a transaction.';
COMMENT ON COLUMN zk_stat.waits IS
'Waits for a contender ahead, however they ended.';
COMMENT ON COLUMN zk_stat.wait_time_ms IS
'Total time of these waits, in milliseconds.';
COMMENT ON COLUMN zk_stat.wait_histogram IS
'Number of these waits by length: below 1, 3, 10, 30, 100, 300, 1000, 3000, 10000, 30000, 100000, '
'300000 ms, and longer.';
COMMENT ON COLUMN zk_stat.stats_reset IS
'Start of the cluster, or the last zk_stat_reset().';

CREATE FUNCTION zk_stat_reset()
RETURNS void
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_stat_reset() IS
'Sets the counters of this database in zk_stat to 0. If the database has no row of its own, sets '
'those of the shared row to 0.';

-- What is wrong here, and what helps. docs/monitoring.md lists the items.
CREATE FUNCTION zk_check(
	with_session boolean DEFAULT true,
	OUT item text,
	OUT state text,
	OUT what text,
	OUT remedy text)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000 ROWS 30;

COMMENT ON FUNCTION zk_check(boolean) IS
'Finds out what is wrong with zklock here. Returns a row for each thing that was checked, with '
'its state (ok, note, warning or error), the finding and a remedy. An error is a row, and is not '
'raised. With false or NULL it opens no ZooKeeper session, creates nothing, and takes at most one '
'second: use that for monitoring.';

-- Jobs that run once: records in ZooKeeper of who ran which slot of a job.
CREATE FUNCTION zk_run_once(name text, slot text, retain interval DEFAULT '30 days')
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

COMMENT ON FUNCTION zk_run_once(text, text, interval) IS
'Claims a slot of a job: returns true for exactly one caller for each name and slot, in all '
'clusters, and false for all others. ROLLBACK does not undo it. After an error the slot may be '
'claimed nevertheless: repeat the call in the same session. Later claims of other slots delete '
'records older than retain, whose slots can then be claimed again.';

CREATE FUNCTION zk_forget_run(name text, slot text)
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

COMMENT ON FUNCTION zk_forget_run(text, text) IS
'Deletes the record of a slot, so that zk_run_once() returns true once more: for a job that '
'failed. Returns true. Returns false, with a warning, if there is no such record. ROLLBACK does '
'not undo it.';

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
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000
ROWS 100;

COMMENT ON FUNCTION zk_runs(text) IS
'Returns the records of zk_run_once() for this name: each slot that was claimed, when by '
'ZooKeeper''s clock, and by which session, as that session described itself.';

-- Politely
CREATE FUNCTION zk_request_release(name text, reason text DEFAULT NULL)
RETURNS integer
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

COMMENT ON FUNCTION zk_request_release(text, text) IS
'Asks all holders of the lock, except this session, to release it: their zk_release_requested() '
'returns true. The owner of a lease hears of it, too, when the lease is renewed. Returns how many '
'holders were asked, and does not wait for them. A warning names holders that cannot be asked. '
'reason is one line of at most 512 bytes. ROLLBACK does not undo it.';

CREATE FUNCTION zk_release_requested(name text)
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

COMMENT ON FUNCTION zk_release_requested(text) IS
'Returns true if this session holds the lock and another session has asked for it with '
'zk_request_release(). Each call reads from ZooKeeper once, and waits for at most one second. A '
'NOTICE tells once for each request when and why it was made.';

CREATE FUNCTION zk_release_requested(name text, token bigint)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_lease_release_requested'
LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

COMMENT ON FUNCTION zk_release_requested(text, bigint) IS
'Returns true if there is a lease of the lock with that token, and somebody has asked for it with '
'zk_request_release(). A NOTICE tells once when and why, and so does each zk_renew_lease() and '
'zk_require_lease(). Returns false, with a warning, if there is no such lease.';

-- By force
CREATE FUNCTION zk_evict(name text, token bigint)
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

COMMENT ON FUNCTION zk_evict(text, bigint) IS
'Removes the holder or waiter with that fencing token from the queue, whatever client it is, and '
'waits until ZooKeeper has confirmed it. Returns true. Returns false, with a warning, if there is '
'no such contender. Each eviction is written to the log.';

-- Permanent holds, which outlive their maker
CREATE FUNCTION zk_hold(name text, reason text, timeout interval DEFAULT NULL)
RETURNS bigint
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

COMMENT ON FUNCTION zk_hold(text, text, interval) IS
'Makes a permanent hold: takes an exclusive lock that stays in ZooKeeper until zk_release_hold(). '
'It outlives this session, the cluster, and restarts of ZooKeeper. It belongs to no session, not '
'even to this one. Returns the token that zk_release_hold() needs. Raises 55000 if this session '
'holds the lock.';

CREATE FUNCTION zk_release_hold(name text, token bigint)
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

COMMENT ON FUNCTION zk_release_hold(text, bigint) IS
'Releases the permanent hold with that token, from any session of any cluster, and waits until '
'ZooKeeper has confirmed it. Returns true. Returns false, with a warning, if there is no such '
'hold. ROLLBACK does not undo it. What this cluster has committed is flushed to disk first.';

-- Leases, which belong to an owner and to no session
CREATE FUNCTION zk_try_lease(name text, owner text, term interval, timeout interval DEFAULT '0',
	data text DEFAULT NULL, permits integer DEFAULT 1)
RETURNS bigint
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

COMMENT ON FUNCTION zk_try_lease(text, text, interval, interval, text, integer) IS
'Takes a lease of the lock for the owner, or renews the one that this owner has. Returns its '
'fencing token, or NULL if other contenders still have the lock when the timeout is over. The '
'lease ends after its term (2 s to one day). Any session may renew it. With permits, so many '
'owners can have a lease at a time. data is a line for zk_leader(). Raises 55000 if this session '
'holds the lock. ROLLBACK does not undo it.';

CREATE FUNCTION zk_try_lease_shared(name text, owner text, term interval,
	timeout interval DEFAULT '0', data text DEFAULT NULL)
RETURNS bigint
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

COMMENT ON FUNCTION zk_try_lease_shared(text, text, interval, interval, text) IS
'Takes a shared lease of the lock for the owner, or renews the one that this owner has. All '
'shared leases and locks can be held at a time. All else is as with zk_try_lease().';

CREATE FUNCTION zk_renew_lease(name text, token bigint, term interval)
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

COMMENT ON FUNCTION zk_renew_lease(text, bigint, interval) IS
'Renews the lease with that token: from now on for this term, or for its longest earlier term if '
'that is longer. Returns true. Returns false, with a warning, if there is no such lease.';

CREATE FUNCTION zk_release_lease(name text, token bigint, delay interval DEFAULT '0')
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

COMMENT ON FUNCTION zk_release_lease(text, bigint, interval) IS
'Gives up the lease with that token. The lock is free at once, or after the delay, in which '
'no session can renew the lease. Returns true. Returns false, with a warning, if there is no such '
'lease. Raises 25001 if the current transaction requires the lease and has written. ROLLBACK does '
'not undo it. What this cluster has committed is flushed to disk first.';

CREATE FUNCTION zk_require_lease(name text, token bigint)
RETURNS void
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

COMMENT ON FUNCTION zk_require_lease(text, bigint) IS
'Renews the lease with that token, and lets this transaction commit only while the lease is held. '
'If the lease is lost, this call or COMMIT raises 40001 (zklock.commit_guard). A rollback to a '
'savepoint before this call ends the requirement.';

CREATE FUNCTION zk_leader(
	name text,
	OUT owner text,
	OUT data text,
	OUT since timestamptz,
	OUT token bigint,
	OUT expires_at timestamptz,
	OUT is_overdue boolean)
RETURNS record
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

COMMENT ON FUNCTION zk_leader(text) IS
'Returns who holds the lock at the time of the call, or NULL if it is free. For a lease these '
'are its owner and data, when it ends by ZooKeeper''s clock unless it is renewed (expires_at), and '
'whether that time is past by the clock of this cluster (is_overdue). The holder of a lock '
'without a lease is shown as owner, to members of pg_monitor only.';

-- Privileges. docs/privileges.md has the reason for each.

-- The roles are the cluster's, so they may be there, from another database. But
-- somebody may have made them who must not have what they are given here.
DO LANGUAGE plpgsql $$
DECLARE
	role_name text;
	fault text;
	members text;
BEGIN
	FOREACH role_name IN ARRAY ARRAY['zklock_job', 'zklock_operator']
	LOOP
		IF NOT EXISTS (SELECT FROM pg_roles AS r WHERE r.rolname = role_name) THEN
			-- Unless CREATE EXTENSION in another database is faster: that is waited for.
			BEGIN
				EXECUTE format('CREATE ROLE %I NOLOGIN', role_name);
				EXECUTE format('COMMENT ON ROLE %I IS %L', role_name,
					CASE WHEN role_name = 'zklock_job'
						THEN 'Role of extension zklock. Its members may call zk_run_once() and '
							'zk_request_release().'
						ELSE 'Role of extension zklock. Its members are members of zklock_job, '
							'may evict contenders, make and release permanent holds, and see '
							'the contenders of all locks.' END);
				CONTINUE;
			EXCEPTION WHEN duplicate_object OR unique_violation THEN
				NULL;
			END;
		END IF;

		SELECT f.fault INTO fault
			FROM pg_roles AS r
				CROSS JOIN LATERAL (
					SELECT 1, 'It may log in.'
					WHERE r.rolcanlogin
					UNION ALL
					SELECT 2, 'It may do what has nothing to do with zklock.'
					WHERE r.rolsuper OR r.rolcreaterole OR r.rolcreatedb OR r.rolreplication
						OR r.rolbypassrls
					UNION ALL
					SELECT 3, format('It is a member of role "%s".', g.rolname)
					FROM pg_auth_members AS m
						JOIN pg_roles AS g ON g.oid = m.roleid AND g.rolname <> 'zklock_job'
					WHERE m.member = r.oid
					UNION ALL
					-- functions, and tables with functions in their indexes, run as their owner
					SELECT 4, format('It owns %s, which may give its privileges to other roles.',
						pg_describe_object(o.classid, o.objid, 0))
					FROM pg_shdepend AS o
						JOIN pg_database AS d ON d.oid = o.dbid AND d.datname = current_database()
					WHERE o.refclassid = 'pg_authid'::regclass AND o.refobjid = r.oid
						AND o.deptype = 'o'
						AND o.classid IN ('pg_proc'::regclass, 'pg_class'::regclass)
					UNION ALL
					SELECT 5, format('Role "%s", which is no superuser, may grant it.', g.rolname)
					FROM pg_auth_members AS m
						JOIN pg_roles AS g ON g.oid = m.member AND NOT g.rolsuper
					WHERE m.roleid = r.oid AND m.admin_option)
					AS f(nr, fault)
			WHERE r.rolname = role_name
			ORDER BY f.nr
			LIMIT 1;
		IF fault IS NOT NULL THEN
			RAISE EXCEPTION USING
				ERRCODE = 'object_not_in_prerequisite_state',
				MESSAGE = format('role "%s" cannot be trusted with privileges of zklock',
					role_name),
				DETAIL = fault,
				HINT = 'Drop the role: CREATE EXTENSION creates it again. Or alter it so that it '
					'has no attributes, is a member of no role, owns no functions or tables in '
					'this database, and only superusers may grant it.';
		END IF;

		-- They may have been made members for another database.
		SELECT string_agg(DISTINCT format('"%s"', g.rolname), ', ') INTO members
			FROM pg_roles AS r
				JOIN pg_auth_members AS m ON m.roleid = r.oid
				JOIN pg_roles AS g ON g.oid = m.member
			WHERE r.rolname = role_name AND NOT g.rolsuper AND g.rolname <> 'zklock_operator';
		IF members IS NOT NULL THEN
			RAISE WARNING USING
				MESSAGE = format('role "%s" was there already and has members', role_name),
				DETAIL = format('These members get the privileges that zklock gives to the role: '
					'%s.', members),
				HINT = 'REVOKE the role from members that must not have these privileges.';
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
		WITH member AS (
			SELECT d.classid, d.objid
			FROM pg_extension AS e
				JOIN pg_depend AS d ON d.refclassid = 'pg_extension'::regclass
					AND d.refobjid = e.oid AND d.deptype = 'e'
			WHERE e.extname = 'zklock'
		), object AS (
			SELECT 'ROUTINE' AS kind, p.oid::regprocedure::text AS name, p.proowner AS owner,
				p.proacl AS acl
			FROM member AS m
				JOIN pg_proc AS p ON m.classid = 'pg_proc'::regclass AND m.objid = p.oid
			UNION ALL
			SELECT 'TABLE', c.oid::regclass::text, c.relowner, c.relacl
			FROM member AS m
				JOIN pg_class AS c ON m.classid = 'pg_class'::regclass AND m.objid = c.oid
		)
		SELECT DISTINCT format('REVOKE ALL ON %s %s FROM %s', o.kind, o.name,
			CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(r.rolname) END)
		FROM object AS o
			CROSS JOIN LATERAL aclexplode(o.acl) AS a
			LEFT JOIN pg_roles AS r ON r.oid = a.grantee
		WHERE a.grantee <> o.owner AND (a.grantee <> 0 OR o.kind = 'TABLE')
	LOOP
		EXECUTE command;
	END LOOP;
END $$;

REVOKE EXECUTE ON FUNCTION
	_zk_fences_applied(),
	_zk_fence_compare(text, bigint, bigint, timestamptz, timestamptz),
	_zk_fence_own_lock(text), _zk_fence_claim(text, text, bigint),
	zk_fence(text, bigint),
	zk_lock_queue(text), zk_who(text), zk_all_locks(text), zk_runs(text),
	zk_check(boolean), zk_waits(), zk_wait_graph(),
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

GRANT EXECUTE ON FUNCTION zk_check(boolean) TO pg_monitor;

-- The database's owner reads it for a dump, of which it is part.
GRANT SELECT ON zk_fences TO pg_monitor, pg_database_owner;
GRANT SELECT ON
	zk_session_locks, zk_session, zk_backends, zk_locks, zk_stat
TO PUBLIC;

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
		WHERE e.extname = 'zklock' AND o.schema = quote_ident('zklock_script')
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
