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
'If this session holds the lock exclusively, the shared acquisition is granted at once, and stays '
'when the exclusive one is released. Release it with zk_unlock_shared(). All else is as with '
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
'transaction or call scope.';

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
'exclusive or shared. A lock that is held in both modes has two rows.';
COMMENT ON COLUMN zk_session_locks.state IS
'held; lost, until the lost lock is released; or kept: released, but its queue node is still '
'there (zklock.keep). The view shows what this session knows, and does not ask ZooKeeper.';
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
	OUT root text,
	OUT max_locks integer,
	OUT max_creates integer)
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
COMMENT ON COLUMN zk_backends.max_locks IS
'Value of zklock.max_locks when the ZooKeeper session was opened.';
COMMENT ON COLUMN zk_backends.max_creates IS
'Value of zklock.max_creates when the ZooKeeper session was opened. 0 means no bound.';

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
'held or lost. Kept locks are not shown.';
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
'Leases taken, and places in the queue taken for a lease. Renewals are not counted.';
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

-- zk_check(): what is wrong here, and what helps.
--
-- _zk_check_facts() finds out what only C can, and PostgreSQL's catalogs have the
-- rest. What that means is said by rules: each function below has one subject, and
-- a table whose lines are
--
--     number, condition, state, what was found, what helps
--
-- Of such a table the first line whose condition is true makes the row of
-- zk_check(), which at the end puts the rows in order. docs/monitoring.md lists the
-- items.

CREATE FUNCTION _zk_check_facts(
	with_session boolean,
	OUT item text,
	OUT fact text,
	OUT place integer,
	OUT subject text,
	OUT value text,
	OUT number bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zk_check_facts' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE COST 1000
ROWS 30;

COMMENT ON FUNCTION _zk_check_facts(boolean) IS
'Helper of zk_check(). Returns what was found, without a judgment. If fact is error, value is the '
'message and subject the hint.';

CREATE TYPE _zk_check_fact AS (
	nr bigint,				-- the order in which the facts were found
	item text,				-- item to number: as _zk_check_facts() says
	fact text,				-- of a server: in words
	quality integer,		-- of a server's address: what was found, the better the greater
	place integer,
	subject text,
	value text,
	number bigint);

COMMENT ON TYPE _zk_check_fact IS
'Helper of zk_check(). One fact.';

CREATE TYPE _zk_check_row AS (
	item text,
	state text,
	what text,
	remedy text);

COMMENT ON TYPE _zk_check_row IS
'Helper of zk_check(). One row of its result.';

CREATE FUNCTION _zk_check_named_facts(with_session boolean)
RETURNS SETOF _zk_check_fact
LANGUAGE sql VOLATILE PARALLEL UNSAFE
BEGIN ATOMIC
	SELECT f.nr, f.item, COALESCE(w.fact, f.fact), w.quality, f.place, f.subject, f.value, f.number
	FROM _zk_check_facts(with_session) WITH ORDINALITY
			AS f(item, fact, place, subject, value, number, nr)
		-- AskVerdict of src/common/ask.h
		LEFT JOIN (VALUES
			('0', 0, 'unheard'),
			('1', 1, 'unresolved'),
			('2', 2, 'unreachable'),
			('3', 3, 'no connection'),
			('4', 4, 'closed'),
			('5', 5, 'untrusted'),
			('6', 6, 'silent'),
			('7', 7, 'stranger'),
			('8', 8, 'idle'),
			('9', 9, 'serving'),
			('10', NULL, 'settings'),
			('11', NULL, 'encrypted'),
			('12', NULL, 'requests'),
			('13', NULL, 'fsync'))
			AS w(number, quality, fact) ON w.number = f.fact AND starts_with(f.item, 'server ');
END;

COMMENT ON FUNCTION _zk_check_named_facts(boolean) IS
'Helper of zk_check(). Returns the facts, with words for what was found at servers.';

-- Facts may be there twice: if the session is lost while it is asked, another one is
-- opened, and all is asked again.
CREATE FUNCTION _zk_check_last(facts _zk_check_fact[], about text)
RETURNS SETOF _zk_check_fact
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
	SELECT f.*
	FROM unnest(facts) AS f
	WHERE f.item = about
	ORDER BY f.nr DESC
	LIMIT 1;
END;

COMMENT ON FUNCTION _zk_check_last(_zk_check_fact[], text) IS
'Helper of zk_check(). Returns the last fact about an item, which is the one that counts.';

-- Installation and settings, as PostgreSQL knows them. What not everybody may read
-- is read by the owner of the extension, so that all callers are told the same.
-- These are in PL/pgSQL because a BEGIN ATOMIC body depends on the columns of the
-- system views that it reads, and pg_upgrade would stop where these have changed.

CREATE FUNCTION _zk_check_extension()
RETURNS SETOF _zk_check_row
LANGUAGE plpgsql VOLATILE PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	made text := (SELECT e.extversion FROM pg_extension AS e WHERE e.extname = 'zklock');
	files text;
BEGIN
	RETURN QUERY SELECT 'extension', 'ok',
		format('version %s in this database, PostgreSQL %s',
			made, current_setting('server_version')),
		NULL;
	-- This reads the files of all extensions, and raises if those of any are broken.
	SELECT a.default_version INTO files
		FROM pg_available_extensions() AS a
		WHERE a.name = 'zklock';
	IF made <> files THEN
		RETURN QUERY SELECT 'extension files', 'warning',
			format('version %s in this database, files of version %s', made, files),
			'ALTER EXTENSION zklock UPDATE in each database.';
	END IF;
EXCEPTION WHEN OTHERS THEN
	RETURN QUERY SELECT 'extension files', 'note', SQLERRM, NULL;
END $$;

COMMENT ON FUNCTION _zk_check_extension() IS
'Helper of zk_check(). Compares the version of the objects in this database with that of the '
'files.';

CREATE FUNCTION _zk_check_settings()
RETURNS SETOF _zk_check_row
LANGUAGE plpgsql VOLATILE PARALLEL RESTRICTED SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN QUERY
	SELECT s.name, rule.state, rule.what, rule.remedy
	FROM pg_settings AS s
		CROSS JOIN LATERAL (SELECT current_setting(s.name), concat(current_setting(s.name),
			', source: ', s.source, ' ' || s.sourcefile, ':' || s.sourceline))
			AS is_set(value, shown)
		CROSS JOIN LATERAL (
			SELECT r.*
			FROM (VALUES
				(1, s.name = 'zklock.servers' AND is_set.value = '', 'error',
					'no servers are set',
					'Set it in postgresql.conf to the servers of your ensemble, for example '
					'''zk1:2181,zk2:2181,zk3:2181'', and reload.'),
				(2, s.name = 'zklock.commit_guard' AND is_set.value = 'off', 'warning',
					is_set.shown || '; no commit is refused here, even if a lock is lost',
					'Set it to lease, which is the default, or to quorum, wherever commits need '
					'their locks.'),
				(3, true, 'ok',
					is_set.shown,
					NULL))
				AS r(nr, applies, state, what, remedy)
			WHERE r.applies
			ORDER BY r.nr
			LIMIT 1) AS rule
	WHERE s.name LIKE 'zklock.%'
		AND s.name NOT IN ('zklock.auth', 'zklock.ssl_passphrase_command')
	ORDER BY s.name;
END $$;

COMMENT ON FUNCTION _zk_check_settings() IS
'Helper of zk_check(). Checks the settings, and shows where they come from. It never reads the '
'values of zklock.auth and zklock.ssl_passphrase_command.';

-- Settings that make other locks of the same names, or locks that refuse nothing.
CREATE FUNCTION _zk_check_other_settings()
RETURNS SETOF _zk_check_row
LANGUAGE plpgsql VOLATILE PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN QUERY
	WITH watched(name, remedy) AS (VALUES
		('zklock.root',
			'Locks below another root are other locks. If that is not intended, RESET the '
			'setting.'),
		('zklock.commit_guard',
			'No commit of these sessions is refused when a lock is lost. If that is not intended, '
			'RESET the setting.')
	), altered AS (
		SELECT lower(split_part(c.line, '=', 1)) AS name,
			substr(c.line, strpos(c.line, '=') + 1) AS value,
			r.rolname, d.datname,
			NULLIF(concat_ws(' in ', 'role "' || r.rolname || '"',
				'database "' || d.datname || '"'), '') AS whose,
			CASE WHEN a.setrole = 0 AND a.setdatabase <> 0 THEN 'DATABASE' ELSE 'ROLE' END AS kind
		FROM pg_db_role_setting AS a
			CROSS JOIN LATERAL unnest(a.setconfig) AS c(line)
			LEFT JOIN pg_roles AS r ON r.oid = a.setrole
			LEFT JOIN pg_database AS d ON d.oid = a.setdatabase
	)
	SELECT a.name, 'warning',
		format('%s for sessions of %s, by ALTER %s',
			a.value, COALESCE(a.whose, 'all roles'), a.kind),
		w.remedy
	FROM altered AS a
		JOIN watched AS w ON w.name = a.name
	WHERE a.value IS DISTINCT FROM current_setting(w.name)
		AND (a.name <> 'zklock.commit_guard' OR a.value = 'off')
	ORDER BY a.name, a.rolname, a.datname;
END $$;

COMMENT ON FUNCTION _zk_check_other_settings() IS
'Helper of zk_check(). Checks the settings that sessions of other roles or databases of this '
'cluster have.';

-- A line that is refused leaves the former value; a line without a name that
-- cannot be read keeps the server from taking any.
CREATE FUNCTION _zk_check_refused_settings()
RETURNS SETOF _zk_check_row
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	refused record;
BEGIN
	FOR refused IN
		SELECT f.*
		FROM pg_file_settings AS f
		WHERE f.error IS NOT NULL AND (f.name IS NULL OR lower(f.name) LIKE 'zklock.%')
		ORDER BY f.seqno
	LOOP
		RETURN QUERY SELECT COALESCE(refused.name, 'postgresql.conf'), 'error',
			concat_ws(': ',
				format('what stands in %s line %s is refused',
					refused.sourcefile, refused.sourceline),
				refused.error),
			CASE WHEN lower(refused.name) = 'zklock.servers'
				THEN 'The server''s log says why. Correct the file, and reload. A list that has '
					'no server in common with the one in use, or another chroot, is used after a '
					'restart.'
				ELSE 'Correct the file, and reload; see the server''s log.' END;
	END LOOP;
EXCEPTION WHEN OTHERS THEN
	RETURN QUERY SELECT 'settings', 'error', SQLERRM, NULL;
END $$;

COMMENT ON FUNCTION _zk_check_refused_settings() IS
'Helper of zk_check(). Returns the lines of the configuration files that PostgreSQL does not '
'accept.';

-- Whether it runs is seen, not concluded from the settings.
CREATE FUNCTION _zk_check_lease_worker()
RETURNS SETOF _zk_check_row
LANGUAGE plpgsql VOLATILE PARALLEL RESTRICTED SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN QUERY
	SELECT 'lease worker', rule.state, rule.what, rule.remedy
	FROM (SELECT current_setting('zklock.lease_worker'), (
			SELECT a.pid
			FROM pg_stat_activity AS a
			WHERE a.backend_type = 'zklock lease worker'
			LIMIT 1)) AS worker(setting, pid)
		CROSS JOIN LATERAL (VALUES
			(1, worker.setting = 'off', 'ok',
				'switched off (zklock.lease_worker)',
				NULL),
			(2, worker.pid IS NOT NULL, 'ok',
				format('it runs, as process %s', worker.pid),
				NULL),
			(3, true, 'warning',
				'it does not run: leases whose term is over may stay, and no session is told of '
				'lost locks (zklock.loss_channel)',
				'If the log says that there is no slot for it, increase max_worker_processes, and '
				'restart. Otherwise the log says why it ended.'))
			AS rule(nr, applies, state, what, remedy)
	WHERE rule.applies
	ORDER BY rule.nr
	LIMIT 1;
END $$;

COMMENT ON FUNCTION _zk_check_lease_worker() IS
'Helper of zk_check(). Checks whether the lease worker runs.';

CREATE FUNCTION _zk_check_program(facts _zk_check_fact[])
RETURNS SETOF _zk_check_row
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
BEGIN ATOMIC
	SELECT 'program', rule.state, rule.what, rule.remedy
	FROM _zk_check_last(facts, 'program') AS f
		CROSS JOIN LATERAL (VALUES
			(1, f.fact = 'error', 'error',
				f.value,
				f.subject),
			(2, true, 'ok',
				format('"%s" runs, protocol %s, ZooKeeper''s client library %s',
					f.subject, f.number, f.value),
				NULL))
			AS rule(nr, applies, state, what, remedy)
	WHERE rule.applies
	ORDER BY rule.nr
	LIMIT 1;
END;

COMMENT ON FUNCTION _zk_check_program(_zk_check_fact[]) IS
'Helper of zk_check(). Checks whether zklock-session can be run.';

-- The servers, as they answer without a session.

CREATE FUNCTION _zk_check_addresses(
	facts _zk_check_fact[],
	OUT item text,
	OUT place integer,
	OUT address text,
	OUT quality integer,
	OUT verdict text,
	OUT mode text,
	OUT release text,
	OUT reply text,
	OUT answer_ms numeric)
RETURNS SETOF record
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
	SELECT f.item, f.place, f.subject, f.quality,
		CASE WHEN f.fact = 'serving' AND said.mode = 'read-only' THEN 'reading' ELSE f.fact END,
		said.mode, substring(f.value, '[0-9][0-9.]*'), f.value, round(f.number / 1000.0, 1)
	FROM unnest(facts) AS f
		CROSS JOIN LATERAL (SELECT substring(f.value, E'\nMode: ([a-z-]+)')) AS said(mode)
	WHERE f.quality IS NOT NULL;
END;

COMMENT ON FUNCTION _zk_check_addresses(_zk_check_fact[]) IS
'Helper of zk_check(). Returns what was found at each address of the servers.';

-- Each server of the list is as good as the best of its addresses. It may be in the
-- list under several names.
CREATE FUNCTION _zk_check_counts(
	facts _zk_check_fact[],
	OUT named bigint,
	OUT unheard bigint,
	OUT reached bigint,
	OUT serving bigint,
	OUT without_quorum bigint,
	OUT standalone bigint,
	OUT leaders bigint,
	OUT members bigint,
	OUT sessions bigint)
RETURNS record
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
	WITH server AS (
		SELECT DISTINCT ON (a.place) a.*
		FROM _zk_check_addresses(facts) AS a
		ORDER BY a.place, a.quality DESC, a.verdict DESC
	)
	SELECT count(*),
		count(*) FILTER (WHERE s.verdict = 'unheard'),
		count(*) FILTER (
			WHERE s.verdict NOT IN ('unheard', 'unresolved', 'unreachable', 'no connection')),
		count(*) FILTER (WHERE s.verdict = 'serving'),
		count(*) FILTER (WHERE s.verdict IN ('idle', 'reading')),
		count(DISTINCT s.address) FILTER (WHERE s.mode = 'standalone'),
		count(DISTINCT s.address) FILTER (WHERE s.mode = 'leader'),
		count(DISTINCT s.address) FILTER (WHERE s.mode IN ('leader', 'follower', 'observer')),
		-- without an answer to its own questions this session is no proof that a server serves
		(SELECT f.number FROM _zk_check_last(facts, 'sessions') AS f
			WHERE NOT EXISTS (
				SELECT FROM _zk_check_last(facts, 'session') AS own WHERE own.fact = 'late'))
	FROM server AS s;
END;

COMMENT ON FUNCTION _zk_check_counts(_zk_check_fact[]) IS
'Helper of zk_check(). Counts the servers: those that are named, can be reached, and serve, and '
'those of each kind. Counts the ZooKeeper sessions of this cluster that are connected.';

CREATE FUNCTION _zk_check_conf_number(conf text, setting text)
RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE
RETURN substring(conf, format('(?n)^%s=([0-9]{1,9})(?![0-9])', setting))::bigint;

COMMENT ON FUNCTION _zk_check_conf_number(text, text) IS
'Helper of zk_check(). Returns a number from a server''s reply to "conf".';

CREATE FUNCTION _zk_check_conf(
	facts _zk_check_fact[],
	OUT address text,
	OUT min_ms bigint,
	OUT max_ms bigint,
	OUT sync_ms bigint,
	OUT connections bigint,
	OUT volatile_directory text)
RETURNS SETOF record
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
	SELECT f.subject,
		_zk_check_conf_number(f.value, 'minSessionTimeout'),
		_zk_check_conf_number(f.value, 'maxSessionTimeout'),
		CASE WHEN a.mode <> 'standalone'
			THEN _zk_check_conf_number(f.value, 'tickTime')
				* _zk_check_conf_number(f.value, 'syncLimit') END,
		_zk_check_conf_number(f.value, 'maxClientCnxns'),
		substring(f.value, '(?n)^data(?:Log)?Dir=(/(?:tmp|run|var/run|dev/shm)/.*)$')
	FROM unnest(facts) AS f
		JOIN _zk_check_addresses(facts) AS a ON a.place = f.place AND a.address = f.subject
	WHERE f.fact = 'settings';
END;

COMMENT ON FUNCTION _zk_check_conf(_zk_check_fact[]) IS
'Helper of zk_check(). Returns the settings of the servers that answer "conf".';

CREATE FUNCTION _zk_check_tls_remedy(reason text)
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
	SELECT rule.remedy
	FROM (VALUES
		(1, '^Could not load the module for TLS',
			'Install zklock again: its file zklock-session-tls.so belongs beside zklock-session; '
			'and OpenSSL (libssl), which it needs.'),
		(2, E'"zklock\\.ssl_cert_file" has expired| alert certificate expired',
			'Renew the client certificate, and replace the file that zklock.ssl_cert_file names; '
			'or set the clock of this machine, or of the server, if it is wrong.'),
		(3, 'Could not load file',
			'Correct that file, or the setting that names it. See docs/tls.md.'),
		(4, 'CRL',
			'Renew the lists in the file that zklock.ssl_crl_file names: it must have one in date '
			'of each authority.'),
		(5, 'certificate has expired',
			'Renew that certificate, and restart the server if it does not read the new one; or '
			'set the clock of this machine if it is wrong.'),
		(6, 'not yet valid',
			'Set the clock of this machine (NTP), or wait until that certificate is valid.'),
		(7, 'certificate revoked',
			'Give the server a new certificate, or correct the list in the file that '
			'zklock.ssl_crl_file names.'),
		(8, 'it has no subjectAltName',
			'Issue the server a certificate that has its name or address, as it stands in '
			'zklock.servers, as subjectAltName: its CN is not looked at.'),
		(9, 'is not for "',
			'Name the server in zklock.servers as its certificate does, or issue one for that '
			'name.'),
		(10, 'is not good',
			'Let zklock.ssl_ca_file name a file with the authority that has signed the server''s '
			'certificate.'),
		(11, ' alert |right after the TLS handshake',
			'The server may want a client certificate of an authority that it knows: see '
			'zklock.ssl_cert_file and zklock.ssl_key_file, and the server''s log.'),
		(12, 'closed the connection',
			'Name the port where it speaks TLS, its secureClientPort, in zklock.servers, or set '
			'zklock.ssl to off. Or its maxClientCnxns or maxCnxns are reached: raise them.'),
		(13, 'in the TLS handshake|TLS with server',
			'Name the port where it speaks TLS, its secureClientPort, in zklock.servers; or set '
			'zklock.ssl to off.'),
		(14, 'Could not connect',
			'Start the server, or correct its port in zklock.servers.'),
		(15, '',
			'See docs/tls.md.'))
		AS rule(nr, pattern, remedy)
	WHERE reason ~ rule.pattern
	ORDER BY rule.nr
	LIMIT 1;
END;

COMMENT ON FUNCTION _zk_check_tls_remedy(text) IS
'Helper of zk_check(). Returns the remedy for a failure of TLS with a server.';

CREATE FUNCTION _zk_check_servers(facts _zk_check_fact[], with_session boolean)
RETURNS SETOF _zk_check_row
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
BEGIN ATOMIC
	SELECT a.item, rule.state, rule.what, rule.remedy
	FROM _zk_check_counts(facts) AS c
		CROSS JOIN _zk_check_addresses(facts) AS a
		LEFT JOIN LATERAL (
			-- the average and the longest, in the words of "mntr", tabs shown as question marks
			SELECT regexp_match(f.value, concat(E'^zk_avg_fsynctime.([0-9]{1,9}[.][0-9]{1,9})\n',
				E'zk_min_fsynctime.[0-9]+\nzk_max_fsynctime.([0-9]{1,12})\n'))
			FROM unnest(facts) AS f
			WHERE f.fact = 'fsync' AND f.place = a.place AND f.subject = a.address
				AND f.value !~ '(?n)^zk_cnt_fsynctime.0$'
			LIMIT 1) AS flushes(ms) ON true
		CROSS JOIN LATERAL (SELECT
			CASE WHEN c.serving > 0 OR c.sessions > 0 THEN 'warning' ELSE 'error' END,
			format('%s is a %s, release %s, answers in %s ms%s%s', a.address,
				CASE WHEN a.mode = 'standalone' THEN 'standalone server'
					WHEN a.mode = 'read-only' THEN 'server that only reads'
					WHEN a.mode IN ('leader', 'follower', 'observer') THEN a.mode
					ELSE 'server of an unknown kind' END,
				a.release, a.answer_ms,
				', outstanding requests: ' || substring(a.reply, '(?n)^Outstanding: ([0-9]{1,9})$'),
				', fsync since its start: ' || round(flushes.ms[1]::numeric, 1)::text
					|| ' ms on average, ' || flushes.ms[2] || ' ms at most'),
			flushes.ms[1]::numeric > 100)
			AS one(missing, described, is_slow)
		CROSS JOIN LATERAL (
			SELECT r.*
			FROM (VALUES
				(1, a.verdict = 'unheard' AND with_session, one.missing,
					'there was no answer in time',
					'Check the DNS of this machine, or name the server by its address. If it is '
					'named by its address, this machine is too busy, or '
					'zklock.ssl_passphrase_command is slow: try again.'),
				(2, a.verdict = 'unheard', one.missing,
					'there was no answer in time',
					'Run zk_check(true), which waits longer. If it says the same, check the DNS '
					'of this machine, or name the server by its address. '
					'zklock.ssl_passphrase_command may be slow, too.'),
				(3, a.verdict = 'unresolved', one.missing,
					'its name has no address: ' || a.reply,
					'Correct the name in zklock.servers, or the DNS.'),
				(4, a.verdict = 'unreachable', one.missing,
					format('%s cannot be reached: %s', a.address, a.reply),
					'Find out why the server does not run: see its log, and whether its disk is '
					'full (df on dataDir and dataLogDir). Start it, or correct its port in '
					'zklock.servers.'),
				(5, a.verdict = 'no connection', one.missing,
					a.address || ' does not answer: no connection in time',
					'Check that the machine is up, and that no firewall is in between.'),
				(6, a.verdict = 'closed', one.missing,
					a.address || ' closes connections without an answer',
					'Raise its maxClientCnxns (connections from one address) or maxCnxns (all '
					'connections) if they are reached. If its disk is full (df on dataDir and '
					'dataLogDir), free space. If it wants TLS, set zklock.ssl. If it is no '
					'ZooKeeper server, correct zklock.servers.'),
				(7, a.verdict = 'untrusted', one.missing,
					'no TLS: ' || a.reply,
					_zk_check_tls_remedy(a.reply)),
				(8, a.verdict = 'silent', one.missing,
					a.address || ' accepts connections, but does not answer',
					'If that is its port for TLS, set zklock.ssl. If it is another port of a '
					'ZooKeeper server, the server hangs: see its log, and restart it.'),
				(9, a.verdict = 'stranger', 'error',
					format('%s is not a ZooKeeper server; it answered "%s"', a.address, a.reply),
					'Correct the port in zklock.servers.'),
				(10, a.verdict = 'idle', one.missing,
					a.address || ' is a ZooKeeper server that serves no clients',
					'It has no quorum, or has just been started, or its disk is full (df on '
					'dataDir and dataLogDir). Start the other servers, and see its log.'),
				(11, a.verdict = 'reading', one.missing,
					one.described,
					'It has no quorum: start the other servers.'),
				(12, one.is_slow, 'warning',
					one.described,
					'Its disk is slow, and each lock waits for it. Give dataLogDir a disk of its '
					'own, and find out what else writes to this disk.'),
				(13, a.answer_ms > 100, 'note',
					one.described,
					'Check the network and the load of the server.'),
				(14, true, 'ok',
					one.described,
					NULL))
				AS r(nr, applies, state, what, remedy)
			WHERE r.applies
			ORDER BY r.nr
			LIMIT 1) AS rule
	ORDER BY a.place, a.item, a.address;
END;

COMMENT ON FUNCTION _zk_check_servers(_zk_check_fact[], boolean) IS
'Helper of zk_check(). Checks each address of each server.';

CREATE FUNCTION _zk_check_certificates(facts _zk_check_fact[])
RETURNS SETOF _zk_check_row
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
BEGIN ATOMIC
	WITH connection AS (
		SELECT f.place, f.subject AS address, substr(f.item, length('server ') + 1) AS server,
			said.word[1] AS version, said.word[2] AS cipher, said.word[5] AS server_subject,
			-- when the first certificate of either side expires; 0: there is none
			to_timestamp(said.word[3]::bigint) AS server_until,
			to_timestamp(NULLIF(said.word[4]::bigint, 0)) AS client_until
		FROM unnest(facts) AS f
			CROSS JOIN LATERAL (SELECT regexp_match(f.value,
				E'^(\\S+) (\\S+) ([0-9]{1,12}) ([0-9]{1,12}) (.*)$')) AS said(word)
		WHERE f.fact = 'encrypted' AND said.word IS NOT NULL
	), certificate AS (
		SELECT 1 AS part, c.place, 'tls ' || c.server AS item, c.server_until AS until,
			format('%s speaks %s, %s; its certificate, of %s, and its authorities are valid until '
				'%s', c.address, c.version, c.cipher, c.server_subject, c.server_until) AS what,
			'Renew what expires first: the server''s certificate, or that of an authority.'
				AS remedy
		FROM connection AS c
		UNION ALL
		SELECT 2, 0, 'client certificate', min(c.client_until),
			concat('it is valid until ', min(c.client_until)),
			'Renew it, and replace the file that zklock.ssl_cert_file names.'
		FROM connection AS c
		HAVING min(c.client_until) IS NOT NULL
	)
	SELECT c.item, rule.state, c.what, rule.remedy
	FROM certificate AS c
		CROSS JOIN LATERAL (VALUES
			(c.until < now() + '30 days'::interval, 'warning', c.remedy),
			(c.until >= now() + '30 days'::interval, 'ok', NULL))
			AS rule(applies, state, remedy)
	WHERE rule.applies
	ORDER BY c.part, c.place, c.item;
END;

COMMENT ON FUNCTION _zk_check_certificates(_zk_check_fact[]) IS
'Helper of zk_check(). Checks when certificates expire.';

CREATE FUNCTION _zk_check_ensemble(facts _zk_check_fact[])
RETURNS SETOF _zk_check_row
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
BEGIN ATOMIC
	SELECT 'ensemble', rule.state, rule.what, rule.remedy
	FROM _zk_check_counts(facts) AS c
		CROSS JOIN LATERAL (VALUES
			(1, c.serving = 0 AND c.sessions > 0, 'warning',
				format('none of the %s servers has answered zk_check(), but ZooKeeper sessions of '
					'this cluster are connected: %s', c.named, c.sessions),
				'Locks of these sessions are not affected. A new ZooKeeper session may be late, or '
				'get no connection: see the rows of the servers.'),
			(2, c.reached = 0 AND c.unheard > 0, 'error',
				format('none of the %s servers has answered in time', c.named),
				'See the rows of the servers. Run zk_check(true), which waits longer.'),
			(3, c.reached = 0, 'error',
				format('none of the %s servers can be reached', c.named),
				'No lock can be taken until a server serves. See the rows of the servers.'),
			(4, c.serving = 0 AND c.without_quorum > 0, 'error',
				format('none of the %s servers serves: no quorum', c.named),
				'No lock can be taken until a server serves. See the rows of the servers.'),
			(5, c.serving = 0, 'error',
				format('none of the %s servers serves', c.named),
				'No lock can be taken until a server serves. See the rows of the servers.'),
			(6, c.standalone > 1 OR (c.standalone > 0 AND c.members > 0), 'error',
				format('the servers are not of one ensemble: %s standalone, %s members',
					c.standalone, c.members),
				'Name the servers of one ensemble in zklock.servers: the same name is another lock '
				'in each.'),
			(7, c.leaders > 1, 'warning',
				format('%s of the servers are leaders: an election may be under way', c.leaders),
				'Try again. If it stays so, zklock.servers names several ensembles: the same name '
				'is another lock in each.'),
			(8, c.serving < c.named, 'warning',
				format('only %s of %s servers serve', c.serving, c.named),
				'See the rows of the other servers.'),
			(9, c.standalone = 1, 'note',
				'a single server',
				'Run three servers where locks must survive the loss of one.'),
			(10, c.named = 1, 'ok',
				'the one server named serves',
				NULL),
			(11, true, 'ok',
				format('all %s servers serve', c.named),
				NULL))
			AS rule(nr, applies, state, what, remedy)
	WHERE c.named > 0 AND rule.applies
	ORDER BY rule.nr
	LIMIT 1;
END;

COMMENT ON FUNCTION _zk_check_ensemble(_zk_check_fact[]) IS
'Helper of zk_check(). Checks the servers taken together.';

-- The server that allows the fewest counts; 0 is any number.
CREATE FUNCTION _zk_check_connections(facts _zk_check_fact[])
RETURNS SETOF _zk_check_row
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
BEGIN ATOMIC
	SELECT 'connections', rule.state, rule.what, rule.remedy
	FROM (SELECT current_setting('max_connections')::bigint,
			COALESCE(min(NULLIF(c.connections, 0)), min(c.connections))
		FROM _zk_check_conf(facts) AS c) AS n(wanted, allowed)
		CROSS JOIN LATERAL (VALUES
			(1, n.allowed IS NULL, 'note',
				'how many the servers allow cannot be known: they do not answer "conf"',
				'Compare maxClientCnxns (60 by default) of the servers with the sum of '
				'max_connections behind one address; or add conf to 4lw.commands.whitelist.'),
			(2, n.allowed = 0, 'ok',
				'the servers allow any number from an address',
				NULL),
			(3, n.allowed < n.wanted, 'note',
				format('a server allows %s from one address; max_connections is %s',
					n.allowed, n.wanted),
				'Raise maxClientCnxns of the servers, set it to 0, or use a pooler, if so many '
				'backends may lock at a time.'),
			(4, true, 'ok',
				format('a server allows %s from one address; max_connections is %s',
					n.allowed, n.wanted),
				NULL))
			AS rule(nr, applies, state, what, remedy)
	WHERE rule.applies AND (SELECT c.serving FROM _zk_check_counts(facts) AS c) > 0
	ORDER BY rule.nr
	LIMIT 1;
END;

COMMENT ON FUNCTION _zk_check_connections(_zk_check_fact[]) IS
'Helper of zk_check(). Checks how many connections the servers allow.';

-- value is the length of the longest request that the server was seen to take. There is
-- no such fact of a server that could not be tried in time.
CREATE FUNCTION _zk_check_request_size(facts _zk_check_fact[], with_session boolean)
RETURNS SETOF _zk_check_row
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
BEGIN ATOMIC
	WITH wanted(bytes) AS (
		SELECT pg_size_bytes(current_setting('zklock.max_lock_bytes')) * 2 - 1
	), tried AS (
		SELECT f.place, f.subject AS address, f.value::bigint AS bytes
		FROM unnest(facts) AS f
		WHERE f.fact = 'requests'
	), taken AS (
		SELECT w.bytes AS wanted, min(t.bytes) AS shortest, count(DISTINCT t.place) AS known,
			string_agg(DISTINCT t.address, ', ') FILTER (WHERE t.bytes < w.bytes) AS too_short
		FROM wanted AS w
			LEFT JOIN tried AS t ON true
		GROUP BY w.bytes
	)
	SELECT 'jute.maxbuffer', rule.state, rule.what, rule.remedy
	FROM _zk_check_counts(facts) AS c
		CROSS JOIN taken AS t
		CROSS JOIN LATERAL (VALUES
			(1, t.too_short IS NOT NULL, 'error',
				format('it is less than twice zklock.max_lock_bytes: %s takes no request of %s '
					'bytes, but one of %s', t.too_short, t.wanted, t.shortest),
				format('Set zklock.max_lock_bytes to %skB or less wherever this ensemble is used, '
					'or raise jute.maxbuffer of all servers. The end of a session that holds more '
					'makes a transaction that the servers cannot read again: after a restart none '
					'of them starts.', (t.shortest + 1) / 2048)),
			(2, t.known < c.serving, 'note',
				format('of some servers it could not be found out whether they take requests of '
					'%s bytes, twice zklock.max_lock_bytes', t.wanted),
				'Try again; or compare zklock.max_lock_bytes with jute.maxbuffer of all servers '
				'(1 MB by default), of which it may be half.'),
			(3, true, 'ok',
				format('all servers take requests of %s bytes: twice zklock.max_lock_bytes',
					t.wanted),
				NULL))
			AS rule(nr, applies, state, what, remedy)
	WHERE rule.applies AND c.serving > 0 AND with_session
	ORDER BY rule.nr
	LIMIT 1;
END;

COMMENT ON FUNCTION _zk_check_request_size(_zk_check_fact[], boolean) IS
'Helper of zk_check(). Compares jute.maxbuffer of the servers with zklock.max_lock_bytes.';

-- An ensemble waits for syncLimit * tickTime for a leader that hangs. A session should
-- survive that, with a third more.
CREATE FUNCTION _zk_check_session_timeout(facts _zk_check_fact[])
RETURNS SETOF _zk_check_row
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
BEGIN ATOMIC
	WITH timeout AS (
		SELECT max(c.min_ms) AS min_ms, min(c.max_ms) AS max_ms, max(c.sync_ms) AS sync_ms,
			(extract(epoch FROM current_setting('zklock.session_timeout')::interval) * 1000)::bigint
				AS asked_ms
		FROM _zk_check_conf(facts) AS c
	)
	SELECT 'session timeout', rule.state, rule.what, rule.remedy
	FROM timeout AS t
		CROSS JOIN LATERAL (VALUES
			(1, t.asked_ms < t.min_ms OR t.asked_ms > t.max_ms, 'warning',
				format('%s ms are asked for, the servers grant %s to %s ms',
					t.asked_ms, t.min_ms, t.max_ms),
				'Set zklock.session_timeout to what they grant, or minSessionTimeout and '
				'maxSessionTimeout (2 and 20 ticks by default) of the servers.'),
			(2, 3 * t.asked_ms < 4 * t.sync_ms, 'warning',
				format('%s ms are less than four thirds of syncLimit * tickTime, %s ms',
					t.asked_ms, t.sync_ms),
				'Set zklock.session_timeout to four thirds of syncLimit * tickTime of the '
				'ensemble or more: the ensemble waits for syncLimit * tickTime for a leader that '
				'hangs.'),
			(3, t.max_ms IS NULL AND 3 * t.asked_ms < 4 * 10000, 'note',
				format('%s ms are asked for; syncLimit and tickTime cannot be known, for the '
					'servers do not answer "conf"', t.asked_ms),
				'Compare zklock.session_timeout with syncLimit * tickTime of the ensemble, of '
				'which it must be at least four thirds (13.4 s by default); or add conf to '
				'4lw.commands.whitelist.'),
			(4, t.max_ms IS NULL, 'ok',
				format('%s ms are asked for; syncLimit and tickTime cannot be known, for the '
					'servers do not answer "conf"', t.asked_ms),
				NULL),
			(5, t.sync_ms IS NOT NULL, 'ok',
				format('%s ms, at least four thirds of syncLimit * tickTime, %s ms',
					t.asked_ms, t.sync_ms),
				NULL),
			(6, true, 'ok',
				format('%s ms, within what the servers grant', t.asked_ms),
				NULL))
			AS rule(nr, applies, state, what, remedy)
	WHERE rule.applies AND (SELECT c.serving FROM _zk_check_counts(facts) AS c) > 0
	ORDER BY rule.nr
	LIMIT 1;
END;

COMMENT ON FUNCTION _zk_check_session_timeout(_zk_check_fact[]) IS
'Helper of zk_check(). Compares zklock.session_timeout with the settings of the servers.';

-- A fencing token is a zxid. If zk_fences has a greater one than the ensemble has come
-- to, the ensemble has begun anew.
CREATE FUNCTION _zk_check_data(facts _zk_check_fact[])
RETURNS SETOF _zk_check_row
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
BEGIN ATOMIC
	WITH zxid AS (
		SELECT substring(a.reply, '(?n)^Zxid: 0x([0-9a-f]{1,16})$') AS digits
		FROM _zk_check_addresses(facts) AS a
	), come_to AS (
		SELECT max(('x' || lpad(z.digits, 16, '0'))::bit(64)::bigint) AS zxid,
			(SELECT max(f.token) FROM zk_fences AS f) AS token
		FROM zxid AS z
	), volatile AS (
		SELECT string_agg(DISTINCT concat(c.address, ' in ', c.volatile_directory), ', ') AS servers
		FROM _zk_check_conf(facts) AS c
		WHERE c.volatile_directory IS NOT NULL
	)
	SELECT 'data', rule.state, rule.what, rule.remedy
	FROM come_to AS c
		CROSS JOIN volatile AS v
		CROSS JOIN LATERAL (VALUES
			(1, c.token > c.zxid, 'error',
				format('the ensemble has lost its data, or is another one: it has come to %s, and '
					'zk_fences to token %s', c.zxid, c.token),
				'Permanent holds are gone, and slots of jobs run again. See docs/operations.md, '
				'Fencing tokens and a new ensemble.'),
			(2, v.servers IS NOT NULL, 'warning',
				'servers keep their data where a restart of the machine deletes it: ' || v.servers,
				'Set dataDir (and dataLogDir) in zoo.cfg to a directory on a disk, and move all '
				'of the old one there, with its file myid. In Debian''s /var/lib/zookeeper, myid '
				'is a link to a file with a text: write the number of the server into that file, '
				'or no member of an ensemble starts.'),
			(3, true, 'ok',
				'nothing was found that would lose it',
				NULL))
			AS rule(nr, applies, state, what, remedy)
	WHERE rule.applies AND (SELECT n.serving FROM _zk_check_counts(facts) AS n) > 0
	ORDER BY rule.nr
	LIMIT 1;
END;

COMMENT ON FUNCTION _zk_check_data(_zk_check_fact[]) IS
'Helper of zk_check(). Checks whether the ensemble has lost data, or may lose it.';

-- Credentials and session

CREATE FUNCTION _zk_check_credentials(facts _zk_check_fact[])
RETURNS SETOF _zk_check_row
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
BEGIN ATOMIC
	SELECT 'credentials', rule.state, rule.what, rule.remedy
	FROM _zk_check_last(facts, 'credentials') AS f
		CROSS JOIN LATERAL (VALUES
			(1, f.fact = 'error', 'error',
				f.value,
				f.subject),
			(2, f.fact = 'none' AND current_setting('zklock.publish_identity') = 'on', 'note',
				'zklock.auth is not set: every client that reaches the ensemble may delete the '
				'znodes of zklock, and read which user, host and process made them '
				'(zklock.publish_identity)',
				'Set zklock.auth if clients that you do not trust can reach the ensemble.'),
			(3, f.fact = 'none', 'note',
				'zklock.auth is not set: every client that reaches the ensemble may delete the '
				'znodes of zklock',
				'Set zklock.auth if clients that you do not trust can reach the ensemble.'),
			(4, true, 'ok',
				format('zklock.auth has credentials of scheme "%s"', f.subject),
				NULL))
			AS rule(nr, applies, state, what, remedy)
	WHERE rule.applies
	ORDER BY rule.nr
	LIMIT 1;
END;

COMMENT ON FUNCTION _zk_check_credentials(_zk_check_fact[]) IS
'Helper of zk_check(). Checks zklock.auth.';

CREATE FUNCTION _zk_check_session(facts _zk_check_fact[], with_session boolean)
RETURNS SETOF _zk_check_row
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
BEGIN ATOMIC
	SELECT 'session', rule.state, rule.what, rule.remedy
	FROM zk_session AS own
		LEFT JOIN _zk_check_last(facts, 'session') AS f ON true
		LEFT JOIN _zk_check_last(facts, 'program') AS program ON true
		CROSS JOIN LATERAL (VALUES
			(1, f.fact = 'error', 'error',
				f.value,
				f.subject),
			(2, f.fact = 'not tried' AND program.fact = 'error', 'error',
				'not tried, because its program cannot be run',
				'See the row "program".'),
			(3, f.fact = 'not tried', 'error',
				'not tried, because no server can grant one',
				'See the rows of the servers.'),
			(4, f.fact = 'not granted', 'error',
				'no session was granted in zklock.connect_timeout, '
					|| current_setting('zklock.connect_timeout'),
				'See the rows of the servers. Check the network, the load of the ensemble, and its '
				'disks: how long fsync takes.'),
			(5, f.fact = 'late', 'error',
				'the ensemble has not answered all in zklock.connect_timeout, '
					|| current_setting('zklock.connect_timeout'),
				'See the rows of the servers. Check the network, the load of the ensemble, and its '
				'disks: how long fsync takes.'),
			(6, f.fact = 'lost', 'error',
				f.value,
				f.subject),
			(7, f.fact = 'suspended', 'warning',
				'this connection has a ZooKeeper session that is not connected',
				'See zk_session, and the rows of the servers.'),
			(8, f.fact IS NOT NULL, 'ok',
				format('connected to %s; all questions together took %s ms', f.subject, f.number),
				NULL),
			(9, own.state IN ('none', 'idle'), 'ok',
				'this connection has no ZooKeeper session, and none was opened: zk_check(true) '
				'opens one',
				NULL),
			(10, own.state = 'connected', 'ok',
				'this connection has a ZooKeeper session, at ' || own.server,
				NULL),
			(11, true, 'warning',
				'this connection has a ZooKeeper session that is not connected',
				'See zk_session, and the rows of the servers.'))
			AS rule(nr, applies, state, what, remedy)
	WHERE rule.applies AND (f.fact IS NOT NULL OR NOT with_session)
	ORDER BY rule.nr
	LIMIT 1;
END;

COMMENT ON FUNCTION _zk_check_session(_zk_check_fact[], boolean) IS
'Helper of zk_check(). Checks the ZooKeeper session of this backend.';

-- There is no row where a name has more addresses than are asked, or where its
-- addresses were not known in time: then it cannot be told.
CREATE FUNCTION _zk_check_moved_servers(facts _zk_check_fact[])
RETURNS SETOF _zk_check_row
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
BEGIN ATOMIC
	WITH known AS (
		SELECT a.address
		FROM _zk_check_addresses(facts) AS a
	), unclear AS (
		SELECT a.place
		FROM _zk_check_addresses(facts) AS a
		GROUP BY a.place
		-- ASK_ADDRESSES_MAX of src/common/ask.h
		HAVING count(*) >= 4 OR bool_or(a.verdict IN ('unheard', 'unresolved'))
	), own AS (
		SELECT COALESCE(f.subject, CASE WHEN s.state = 'connected' THEN s.server END) AS server
		FROM zk_session AS s
			LEFT JOIN _zk_check_last(facts, 'session') AS f ON f.place > 0
	), other AS (
		SELECT count(*) AS number, string_agg(DISTINCT b.server, ', ') AS servers
		FROM zk_backends AS b
		WHERE b.pid <> pg_backend_pid() AND b.state = 'connected'
			AND b.server NOT IN (SELECT k.address FROM known AS k)
	)
	SELECT 'moved servers', rule.state, rule.what, rule.remedy
	FROM own
		CROSS JOIN other
		CROSS JOIN LATERAL (VALUES
			(1, own.server NOT IN (SELECT k.address FROM known AS k), 'warning',
				own.server || ', where this connection''s session is, is behind no name of '
					'zklock.servers',
				'Check that server: it may be outdated, or no longer in its ensemble. When its '
				'connection ends, the session goes on at another server by itself: stop that '
				'server, or end the connection when its locks are released.'),
			(2, other.number > 0, 'note',
				format('other backends whose sessions are, as far as they know, at servers behind '
					'no name of zklock.servers: %s (%s)', other.number, other.servers),
				'Check these servers: they may be outdated, or no longer in their ensemble. When '
				'their connections end, the sessions go on at other servers by themselves. See '
				'zk_backends.'))
			AS rule(nr, applies, state, what, remedy)
	WHERE rule.applies AND EXISTS (SELECT FROM known) AND NOT EXISTS (SELECT FROM unclear)
	ORDER BY rule.nr
	LIMIT 1;
END;

COMMENT ON FUNCTION _zk_check_moved_servers(_zk_check_fact[]) IS
'Helper of zk_check(). Finds ZooKeeper sessions at servers to which no name of zklock.servers '
'leads.';

CREATE FUNCTION _zk_check_releases(facts _zk_check_fact[])
RETURNS SETOF _zk_check_row
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
BEGIN ATOMIC
	SELECT f.item, 'warning',
		format('znodes of this session that ZooKeeper does not let it delete: %s; each blocks its '
			'lock', f.number),
		'The log has the reason, and zk_lock_queue shows the nodes as releasing. Give the right '
		'DELETE on the lock''s znode back; or end the session with zk_disconnect(), and its nodes '
		'with it.'
	FROM _zk_check_last(facts, 'releases') AS f;
END;

COMMENT ON FUNCTION _zk_check_releases(_zk_check_fact[]) IS
'Helper of zk_check(). Finds releases that ZooKeeper has refused.';

-- What only a session can tell: docs/monitoring.md marks these items. In the fact about
-- the session place is the timeout that was granted.

CREATE FUNCTION _zk_check_not_looked_at(with_session boolean)
RETURNS SETOF _zk_check_row
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
BEGIN ATOMIC
	SELECT 'not looked at', 'note',
		'jute.maxbuffer, granted timeout, digest, chroot, root, acl, writing, clock, other roots, '
		'leases, containers: only a session tells',
		'Run zk_check(true), too: after each change of the settings or of the ensemble, and now '
		'and then.'
	WHERE NOT with_session;
END;

COMMENT ON FUNCTION _zk_check_not_looked_at(boolean) IS
'Helper of zk_check(). Names what cannot be checked without a ZooKeeper session.';

CREATE FUNCTION _zk_check_granted_timeout(facts _zk_check_fact[])
RETURNS SETOF _zk_check_row
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
BEGIN ATOMIC
	SELECT 'granted timeout', rule.state, rule.what, rule.remedy
	FROM (SELECT f.place,
			(extract(epoch FROM current_setting('zklock.session_timeout')::interval) * 1000)::bigint
		FROM _zk_check_last(facts, 'session') AS f
		WHERE f.place > 0) AS t(granted_ms, asked_ms)
		CROSS JOIN LATERAL (VALUES
			(1, t.granted_ms <> t.asked_ms, 'warning',
				format('%s ms were asked for, %s ms granted', t.asked_ms, t.granted_ms),
				'Set zklock.session_timeout to what the ensemble grants, or minSessionTimeout and '
				'maxSessionTimeout (2 and 20 ticks by default) of its servers. A session that is '
				'in use keeps its timeout until its locks are released.'),
			(2, true, 'ok',
				format('%s ms, as asked for', t.granted_ms),
				NULL))
			AS rule(nr, applies, state, what, remedy)
	WHERE rule.applies
	ORDER BY rule.nr
	LIMIT 1;
END;

COMMENT ON FUNCTION _zk_check_granted_timeout(_zk_check_fact[]) IS
'Helper of zk_check(). Checks the session timeout that the ensemble has granted.';

CREATE FUNCTION _zk_check_has_credentials(facts _zk_check_fact[])
RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN EXISTS (SELECT FROM _zk_check_last(facts, 'credentials') AS f WHERE f.fact = 'set');

COMMENT ON FUNCTION _zk_check_has_credentials(_zk_check_fact[]) IS
'Helper of zk_check(). Returns whether zklock.auth is set.';

CREATE FUNCTION _zk_check_digest(facts _zk_check_fact[])
RETURNS SETOF _zk_check_row
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
BEGIN ATOMIC
	SELECT 'digest', rule.state, rule.what, rule.remedy
	FROM _zk_check_last(facts, 'session') AS f
		CROSS JOIN LATERAL (VALUES
			(1, _zk_check_has_credentials(facts), 'note',
				'with zklock.auth sessions have no identity of their own: there is no hand-over, '
				'and every client with the credentials may write to queue nodes',
				NULL),
			(2, f.fact = 'no identity', 'note',
				'the ensemble refuses digest authentication: there is no hand-over, and every '
				'client may write to queue nodes',
				'Enable the digest authentication of ZooKeeper.'),
			(3, true, 'ok',
				'the ensemble knows digest authentication',
				NULL))
			AS rule(nr, applies, state, what, remedy)
	WHERE rule.applies AND f.place > 0
	ORDER BY rule.nr
	LIMIT 1;
END;

COMMENT ON FUNCTION _zk_check_digest(_zk_check_fact[]) IS
'Helper of zk_check(). Checks whether ZooKeeper sessions have an identity of their own.';

-- subject is the path, value ZooKeeper's word for an error (or the session of an
-- ephemeral znode), place the number of children, number the date in milliseconds.
CREATE FUNCTION _zk_check_znodes(facts _zk_check_fact[])
RETURNS SETOF _zk_check_row
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
BEGIN ATOMIC
	SELECT f.item, rule.state, rule.what, rule.remedy
	FROM (VALUES
			(1, 'chroot'),
			(2, 'root'),
			(3, 'acl'),
			(4, 'writing'))
			AS looked_at(nr, item)
		CROSS JOIN LATERAL _zk_check_last(facts, looked_at.item) AS f
		CROSS JOIN LATERAL (SELECT
			_zk_check_has_credentials(facts),
			(SELECT c.place / 1000 FROM _zk_check_last(facts, 'clock') AS c),
			CASE WHEN f.number BETWEEN 1 AND 9999999999999
				THEN to_timestamp(f.number / 1000)::text
				ELSE 'an impossible date' END)
			AS one(has_credentials, write_ms, made)
		CROSS JOIN LATERAL (
			SELECT r.*
			FROM (VALUES
				('chroot', 1, f.fact = 'ephemeral', 'error',
					format('znode "%s" is ephemeral, of session %s: no lock can be below it',
						f.subject, f.value),
					'Another program has made it. End that program, or set another chroot in '
					'zklock.servers.'),
				('chroot', 2, f.fact = 'no node', 'warning',
					format('znode "%s" does not exist', f.subject),
					'Check the spelling in zklock.servers: locks below another chroot are other '
					'locks. If it is right, create the znode, or leave that to the first lock: the '
					'row "writing" tells whether it can.'),
				('chroot', 3, f.fact = 'done' AND f.place = 0
						AND current_setting('zklock.root') <> '/', 'warning',
					format('znode "%s" is empty: nobody has had a lock there', f.subject),
					'Check the spelling in zklock.servers: locks below another chroot are other '
					'locks. If it is right, leave the rest to the first lock: the row "writing" '
					'tells whether it can make it.'),
				('chroot', 4, f.fact = 'done', 'ok',
					format('znode "%s" is there since %s', f.subject, one.made),
					NULL),
				('chroot', 5, true, 'warning',
					format('znode "%s" cannot be read: %s', f.subject, f.value),
					'See its ACL (getAcl in zkCli.sh), and zklock.auth.'),

				('root', 1, f.fact = 'ephemeral', 'error',
					format('znode "%s" is ephemeral, of session %s: no lock can be below it',
						f.subject, f.value),
					'Another program has made it. End that program, or set another zklock.root.'),
				('root', 2, f.fact = 'no node', 'note',
					format('znode "%s" does not exist yet', f.subject),
					'Leave that to the first lock: the row "writing" tells whether it can. If '
					'there should be locks already, check the spelling of zklock.root: locks below '
					'another root are other locks.'),
				('root', 3, f.fact = 'done', 'ok',
					format('znode "%s" is there since %s, with %s znodes in it',
						f.subject, one.made, f.place),
					NULL),
				('root', 4, true, 'error',
					format('znode "%s" cannot be read: %s', f.subject, f.value),
					'See its ACL (getAcl in zkCli.sh), and zklock.auth.'),

				('acl', 1, f.fact = 'done', 'ok',
					format('not everybody may create and delete in znode "%s"', f.subject),
					NULL),
				('acl', 2, f.fact = 'open' AND one.has_credentials, 'warning',
					format('everybody may create or delete in znode "%s", whatever zklock.auth is',
						f.subject),
					'Set its ACL by hand (setAcl in zkCli.sh) to that of your credentials, see '
					'docs/security.md, ACLs.'),
				('acl', 3, f.fact = 'open', 'ok',
					format('everybody may create and delete in znode "%s", as without zklock.auth '
						'it has to be', f.subject),
					NULL),
				('acl', 4, true, 'note',
					format('the ACL of znode "%s" cannot be read: %s', f.subject, f.value),
					NULL),

				('writing', 1, f.fact = 'done' AND one.write_ms > 1000, 'warning',
					format('a znode was made in "%s", but only in %s ms: each lock takes longer '
						'than that', f.subject, one.write_ms),
					'Find out how long fsync takes on the servers: see their rows, mntr, and '
					'"fsync-ing the write ahead log" in their logs. Give dataLogDir a disk of its '
					'own. If the disks are fast, check the network and the load of the ensemble.'),
				('writing', 2, f.fact = 'done', 'ok',
					format('a znode was made in "%s", in %s ms, and taken away',
						f.subject, one.write_ms),
					NULL),
				('writing', 3, f.fact = 'denied' AND one.has_credentials, 'error',
					format('this session may not create znodes in "%s": no lock can be taken',
						f.subject),
					'Its ACL is for other credentials than those of zklock.auth (getAcl in '
					'zkCli.sh): all databases and clients of a lock need the same.'),
				('writing', 4, f.fact = 'denied', 'error',
					format('this session may not create znodes in "%s": no lock can be taken',
						f.subject),
					'Its ACL demands credentials: set zklock.auth to them.'),
				('writing', 5, f.fact = 'quota', 'error',
					format('a quota of ZooKeeper for "%s" is exceeded: no lock can be taken',
						f.subject),
					'Raise the quota (setquota in zkCli.sh), or find out who has used it up.'),
				('writing', 6, f.fact = 'local', 'error',
					'sessions of this ensemble are local to a server, and may not have ephemeral '
					'znodes: no lock can be taken',
					'Set localSessionsUpgradingEnabled to true on all its servers, or '
					'localSessionsEnabled to false.'),
				('writing', 7, f.fact = 'no containers', 'error',
					format('the server has no container znodes: no lock can be taken (it was asked '
						'to create one in "%s", and %s)', f.subject, f.value),
					'Use servers of Apache ZooKeeper: docs/interop.md, Other servers.'),
				('writing', 8, true, 'error',
					format('no znode could be made in "%s": %s', f.subject, f.value),
					'Try again; see the servers'' logs.'))
				AS r(item, nr, applies, state, what, remedy)
			WHERE r.item = f.item AND r.applies
			ORDER BY r.nr
			LIMIT 1) AS rule
	ORDER BY looked_at.nr;
END;

COMMENT ON FUNCTION _zk_check_znodes(_zk_check_fact[]) IS
'Helper of zk_check(). Checks the chroot and the root, and what this session may do there.';

-- number is by how many milliseconds the ensemble's clock is ahead, at least; place is how
-- many microseconds the write took that has told it.
CREATE FUNCTION _zk_check_clock(facts _zk_check_fact[])
RETURNS SETOF _zk_check_row
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
BEGIN ATOMIC
	SELECT 'clock', rule.state, rule.what, rule.remedy
	FROM (SELECT abs(f.number), CASE WHEN f.number < 0 THEN 'behind' ELSE 'ahead of' END
		FROM _zk_check_last(facts, 'clock') AS f) AS clock(off_ms, side)
		CROSS JOIN LATERAL (SELECT format('the ensemble''s clock is %s ours by %s or more',
			clock.side,
			CASE WHEN clock.off_ms >= 7200000 THEN format('%s hours', clock.off_ms / 3600000)
				WHEN clock.off_ms >= 120000 THEN format('%s minutes', clock.off_ms / 60000)
				ELSE format('%s ms', clock.off_ms) END)) AS difference(words)
		CROSS JOIN LATERAL (VALUES
			(1, clock.off_ms = 0, 'ok',
				'the ensemble''s clock is as ours, as far as can be seen',
				NULL),
			(2, clock.off_ms <= 2000, 'ok',
				difference.words,
				NULL),
			(3, true, CASE WHEN clock.off_ms > 60000 THEN 'warning' ELSE 'note' END,
				difference.words,
				'Set the clocks (NTP). Locks do not depend on them. Dates in views and terms of '
				'leases as they are shown do; and a job that makes its slot of zk_run_once() from '
				'the date claims that of another day.'))
			AS rule(nr, applies, state, what, remedy)
	WHERE rule.applies
	ORDER BY rule.nr
	LIMIT 1;
END;

COMMENT ON FUNCTION _zk_check_clock(_zk_check_fact[]) IS
'Helper of zk_check(). Checks the clock of the ensemble''s leader.';

CREATE FUNCTION _zk_check_other_roots(facts _zk_check_fact[])
RETURNS SETOF _zk_check_row
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
BEGIN ATOMIC
	SELECT 'other roots', 'warning',
		'beside the root, or what is above it, zklock has made: '
			|| string_agg(DISTINCT format('"%s" by %s', f.subject, f.value), ', '),
		'Locks below another root, or another chroot, are other locks. Check the spelling of '
		'zklock.root and zklock.servers, here and there. If it is right, delete znodes that are '
		'not used any more; and give each root that is used its own chroot, where it does not see '
		'the others.'
	FROM unnest(facts) AS f
	WHERE f.item = 'sibling'
	HAVING count(*) > 0;
END;

COMMENT ON FUNCTION _zk_check_other_roots(_zk_check_fact[]) IS
'Helper of zk_check(). Finds what zklock has made beside the root.';

-- number is for how many milliseconds the term has been over.
CREATE FUNCTION _zk_check_leases(facts _zk_check_fact[])
RETURNS SETOF _zk_check_row
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
BEGIN ATOMIC
	SELECT 'leases', rule.state, rule.what, rule.remedy
	FROM (SELECT count(*),
			string_agg(format('"%s" of "%s"', f.subject, f.value), ', ')
				FILTER (WHERE f.number > 60000)
		FROM unnest(facts) AS f
		WHERE f.item = 'leases') AS lease(number, overdue)
		CROSS JOIN LATERAL (VALUES
			(1, lease.overdue IS NOT NULL, 'warning',
				'leases whose term has been over for more than a minute: ' || lease.overdue,
				'See the row "clock", and the log of the lease worker, which may lack the right '
				'to delete there. zk_evict() removes a lease.'),
			(2, current_setting('zklock.lease_worker') = 'off', 'note',
				'there are leases, and no lease worker in this cluster: other clients behind a '
				'lease whose term is over wait until a contender of zklock comes',
				'Switch zklock.lease_worker on, in one cluster at least.'),
			(3, true, 'ok',
				'no lease that was looked at is overdue',
				NULL))
			AS rule(nr, applies, state, what, remedy)
	WHERE rule.applies AND lease.number > 0
	ORDER BY rule.nr
	LIMIT 1;
END;

COMMENT ON FUNCTION _zk_check_leases(_zk_check_fact[]) IS
'Helper of zk_check(). Finds leases whose term is over.';

-- number is how many znodes were looked at, place how many of them never had a child.
CREATE FUNCTION _zk_check_containers(facts _zk_check_fact[])
RETURNS SETOF _zk_check_row
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
BEGIN ATOMIC
	SELECT 'containers', rule.state, rule.what, rule.remedy
	FROM _zk_check_last(facts, 'containers') AS f
		CROSS JOIN LATERAL (VALUES
			(1, f.place > 0, 'note',
				format('%s of %s znodes of lock names that were looked at have never had a queue '
					'node, "%s" among them: ZooKeeper does not remove them',
					f.place, f.number, f.subject),
				'Set znode.container.maxNeverUsedIntervalMs of the servers, to 3600000 for '
				'instance; or delete them (delete in zkCli.sh).'),
			(2, true, 'ok',
				format('all %s znodes of lock names that were looked at have been used', f.number),
				NULL))
			AS rule(nr, applies, state, what, remedy)
	WHERE rule.applies AND f.number > 0
	ORDER BY rule.nr
	LIMIT 1;
END;

COMMENT ON FUNCTION _zk_check_containers(_zk_check_fact[]) IS
'Helper of zk_check(). Finds znodes of locks that ZooKeeper does not remove.';

CREATE FUNCTION _zk_check_triggers()
RETURNS SETOF _zk_check_row
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
BEGIN ATOMIC
	WITH must(relation, enable, enabled) AS (VALUES
		('zk_fences'::regclass, 'REPLICA', 'R')
	), wrong AS (
		SELECT t.tgname::text AS name, t.tgrelid AS relation,
			format('ALTER TABLE %s ENABLE %s TRIGGER %I', m.relation, m.enable, t.tgname) AS command
		FROM must AS m
			JOIN pg_trigger AS t ON t.tgrelid = m.relation AND NOT t.tgisinternal
		WHERE t.tgenabled::text <> m.enabled
	)
	SELECT 'triggers', 'warning',
		'triggers of zk_fences are not fired when they must be: '
			|| string_agg(w.name, ', ' ORDER BY w.name, w.relation),
		format('pg_restore --disable-triggers leaves them so. %s.',
			string_agg(w.command, '; ' ORDER BY w.name, w.relation))
	FROM wrong AS w
	HAVING count(*) > 0;
END;

COMMENT ON FUNCTION _zk_check_triggers() IS
'Helper of zk_check(). Finds triggers that a restore has left disabled.';

CREATE FUNCTION zk_check(
	with_session boolean DEFAULT true,
	OUT item text,
	OUT state text,
	OUT what text,
	OUT remedy text)
RETURNS SETOF record
LANGUAGE sql VOLATILE PARALLEL UNSAFE COST 1000 ROWS 30
BEGIN ATOMIC
	WITH asked AS (
		SELECT COALESCE(zk_check.with_session, false) AS session
	), found AS MATERIALIZED (
		SELECT a.session, ARRAY(SELECT f FROM _zk_check_named_facts(a.session) AS f) AS facts
		FROM asked AS a
	)
	SELECT r.item, r.state, r.what, r.remedy
	FROM found AS f
		CROSS JOIN LATERAL (
			SELECT 1, t.* FROM _zk_check_extension() WITH ORDINALITY AS t
			UNION ALL
			SELECT 2, t.* FROM _zk_check_settings() WITH ORDINALITY AS t
			UNION ALL
			SELECT 3, t.* FROM _zk_check_other_settings() WITH ORDINALITY AS t
			UNION ALL
			SELECT 4, t.* FROM _zk_check_refused_settings() WITH ORDINALITY AS t
			UNION ALL
			SELECT 5, t.* FROM _zk_check_lease_worker() WITH ORDINALITY AS t
			UNION ALL
			SELECT 6, t.* FROM _zk_check_program(f.facts) WITH ORDINALITY AS t
			UNION ALL
			SELECT 7, t.* FROM _zk_check_servers(f.facts, f.session) WITH ORDINALITY AS t
			UNION ALL
			SELECT 8, t.* FROM _zk_check_certificates(f.facts) WITH ORDINALITY AS t
			UNION ALL
			SELECT 9, t.* FROM _zk_check_ensemble(f.facts) WITH ORDINALITY AS t
			UNION ALL
			SELECT 10, t.* FROM _zk_check_connections(f.facts) WITH ORDINALITY AS t
			UNION ALL
			SELECT 11, t.* FROM _zk_check_request_size(f.facts, f.session) WITH ORDINALITY AS t
			UNION ALL
			SELECT 12, t.* FROM _zk_check_session_timeout(f.facts) WITH ORDINALITY AS t
			UNION ALL
			SELECT 13, t.* FROM _zk_check_data(f.facts) WITH ORDINALITY AS t
			UNION ALL
			SELECT 14, t.* FROM _zk_check_credentials(f.facts) WITH ORDINALITY AS t
			UNION ALL
			SELECT 15, t.* FROM _zk_check_session(f.facts, f.session) WITH ORDINALITY AS t
			UNION ALL
			SELECT 16, t.* FROM _zk_check_moved_servers(f.facts) WITH ORDINALITY AS t
			UNION ALL
			SELECT 17, t.* FROM _zk_check_releases(f.facts) WITH ORDINALITY AS t
			UNION ALL
			SELECT 18, t.* FROM _zk_check_not_looked_at(f.session) WITH ORDINALITY AS t
			UNION ALL
			SELECT 19, t.* FROM _zk_check_granted_timeout(f.facts) WITH ORDINALITY AS t
			UNION ALL
			SELECT 20, t.* FROM _zk_check_digest(f.facts) WITH ORDINALITY AS t
			UNION ALL
			SELECT 21, t.* FROM _zk_check_znodes(f.facts) WITH ORDINALITY AS t
			UNION ALL
			SELECT 22, t.* FROM _zk_check_clock(f.facts) WITH ORDINALITY AS t
			UNION ALL
			SELECT 23, t.* FROM _zk_check_other_roots(f.facts) WITH ORDINALITY AS t
			UNION ALL
			SELECT 24, t.* FROM _zk_check_leases(f.facts) WITH ORDINALITY AS t
			UNION ALL
			SELECT 25, t.* FROM _zk_check_containers(f.facts) WITH ORDINALITY AS t
			UNION ALL
			SELECT 26, t.* FROM _zk_check_triggers() WITH ORDINALITY AS t)
			AS r(part, item, state, what, remedy, nr)
	ORDER BY r.part, r.nr;
END;

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
'returns true. Returns how many holders were asked, and does not wait for them. A warning names '
'holders that cannot be asked. reason is one line of at most 512 bytes. ROLLBACK does not undo '
'it.';

CREATE FUNCTION zk_release_requested(name text)
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

COMMENT ON FUNCTION zk_release_requested(text) IS
'Returns true if this session holds the lock and another session has asked for it with '
'zk_request_release(). Each call reads from ZooKeeper once, and waits for at most one second. A '
'NOTICE tells once for each request when and why it was made.';

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
CREATE FUNCTION zk_try_lease(name text, owner text, ttl interval, timeout interval DEFAULT '0',
	data text DEFAULT NULL, place boolean DEFAULT false)
RETURNS bigint
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

COMMENT ON FUNCTION zk_try_lease(text, text, interval, interval, text, boolean) IS
'Takes a lease of the lock for the owner, or renews the one that this owner has. Returns its '
'fencing token, or NULL if another contender still has the lock when the timeout is over. The '
'lease ends ttl (2 s to one day) later. Any session may renew it. With place the owner joins the '
'queue, and stays there if it calls again within ttl. data is a line for zk_leader(). ROLLBACK '
'does not undo it.';

CREATE FUNCTION zk_renew_lease(name text, token bigint, ttl interval)
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

COMMENT ON FUNCTION zk_renew_lease(text, bigint, interval) IS
'Renews the lease with that token, from now on for ttl, or for its longest earlier ttl if that is '
'longer. Returns true. Returns false, with a warning, if there is no such lease.';

CREATE FUNCTION zk_release_lease(name text, token bigint, delay interval DEFAULT '0')
RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

COMMENT ON FUNCTION zk_release_lease(text, bigint, interval) IS
'Gives up the lease with that token. The lock is free at once, or after the delay, in which '
'no session can renew the lease. Returns true. Returns false, with a warning, if there is no such '
'lease. ROLLBACK does not undo it. What this cluster has committed is flushed to disk first.';

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
	zk_check(boolean), _zk_check_facts(boolean), _zk_check_settings(),
	_zk_check_refused_settings(), _zk_check_lease_worker(),
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
	zk_check(boolean), _zk_check_facts(boolean), _zk_check_settings(),
	_zk_check_refused_settings(), _zk_check_lease_worker()
TO pg_monitor;

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
