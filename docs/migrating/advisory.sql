-- PostgreSQL's advisory locks over all clusters: the 21 functions, by the names and with
-- the arguments that they have there, as locks of zklock. Programs that use advisory
-- locks, above all for their migrations, need no change but a search_path.
--
--   psql -d app -f advisory.sql        -- as a superuser, where zklock is installed
--   ALTER ROLE migrator IN DATABASE app SET search_path = public, zklock_advisory, pg_catalog;
--
-- docs/migrating.md says what differs. To take it away: DROP SCHEMA zklock_advisory CASCADE.
\set ON_ERROR_STOP on
BEGIN;
DO $$ BEGIN
	IF NOT EXISTS (SELECT FROM pg_extension WHERE extname = 'zklock') THEN
		RAISE EXCEPTION 'extension "zklock" is not in this database' USING HINT = 'CREATE EXTENSION zklock there first.';
	END IF;
END $$;
CREATE SCHEMA zklock_advisory;
GRANT USAGE ON SCHEMA zklock_advisory TO PUBLIC;
-- Bodies are parsed now, so a caller's search_path does not change what they mean.
SELECT set_config('search_path', format('pg_catalog, %I', n.nspname), true) AS path
FROM pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace
WHERE e.extname = 'zklock' \gset

-- The lock of a key. As with PostgreSQL a database has keys of its own; databases of one
-- name in different clusters share them. Where they have different names, or a name that
-- no lock may have, put a common word in the place of current_database(). The parentheses
-- are there because no part of a name but the first may end in ten digits.
CREATE FUNCTION zklock_advisory._name(key bigint) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
RETURN 'advisory/' || current_database() || '/(' || key || ')';

CREATE FUNCTION zklock_advisory._name(key1 integer, key2 integer) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
RETURN 'advisory/' || current_database() || '/(' || key1 || ',' || key2 || ')';

CREATE FUNCTION zklock_advisory.pg_advisory_lock(key bigint) RETURNS void
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
BEGIN ATOMIC SELECT zk_lock(zklock_advisory._name(key)); END;

CREATE FUNCTION zklock_advisory.pg_advisory_lock(key1 integer, key2 integer) RETURNS void
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
BEGIN ATOMIC SELECT zk_lock(zklock_advisory._name(key1, key2)); END;

CREATE FUNCTION zklock_advisory.pg_advisory_lock_shared(key bigint) RETURNS void
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
BEGIN ATOMIC SELECT zk_lock_shared(zklock_advisory._name(key)); END;

CREATE FUNCTION zklock_advisory.pg_advisory_lock_shared(key1 integer, key2 integer) RETURNS void
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
BEGIN ATOMIC SELECT zk_lock_shared(zklock_advisory._name(key1, key2)); END;

CREATE FUNCTION zklock_advisory.pg_advisory_xact_lock(key bigint) RETURNS void
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
BEGIN ATOMIC SELECT zk_xact_lock(zklock_advisory._name(key)); END;

CREATE FUNCTION zklock_advisory.pg_advisory_xact_lock(key1 integer, key2 integer) RETURNS void
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
BEGIN ATOMIC SELECT zk_xact_lock(zklock_advisory._name(key1, key2)); END;

CREATE FUNCTION zklock_advisory.pg_advisory_xact_lock_shared(key bigint) RETURNS void
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
BEGIN ATOMIC SELECT zk_xact_lock_shared(zklock_advisory._name(key)); END;

CREATE FUNCTION zklock_advisory.pg_advisory_xact_lock_shared(key1 integer, key2 integer) RETURNS void
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
BEGIN ATOMIC SELECT zk_xact_lock_shared(zklock_advisory._name(key1, key2)); END;

CREATE FUNCTION zklock_advisory.pg_try_advisory_lock(key bigint) RETURNS boolean
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
RETURN zk_try_lock(zklock_advisory._name(key));

CREATE FUNCTION zklock_advisory.pg_try_advisory_lock(key1 integer, key2 integer) RETURNS boolean
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
RETURN zk_try_lock(zklock_advisory._name(key1, key2));

CREATE FUNCTION zklock_advisory.pg_try_advisory_lock_shared(key bigint) RETURNS boolean
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
RETURN zk_try_lock_shared(zklock_advisory._name(key));

CREATE FUNCTION zklock_advisory.pg_try_advisory_lock_shared(key1 integer, key2 integer) RETURNS boolean
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
RETURN zk_try_lock_shared(zklock_advisory._name(key1, key2));

CREATE FUNCTION zklock_advisory.pg_try_advisory_xact_lock(key bigint) RETURNS boolean
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
RETURN zk_try_xact_lock(zklock_advisory._name(key));

CREATE FUNCTION zklock_advisory.pg_try_advisory_xact_lock(key1 integer, key2 integer) RETURNS boolean
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
RETURN zk_try_xact_lock(zklock_advisory._name(key1, key2));

CREATE FUNCTION zklock_advisory.pg_try_advisory_xact_lock_shared(key bigint) RETURNS boolean
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
RETURN zk_try_xact_lock_shared(zklock_advisory._name(key));

CREATE FUNCTION zklock_advisory.pg_try_advisory_xact_lock_shared(key1 integer, key2 integer) RETURNS boolean
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
RETURN zk_try_xact_lock_shared(zklock_advisory._name(key1, key2));

CREATE FUNCTION zklock_advisory.pg_advisory_unlock(key bigint) RETURNS boolean
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
RETURN zk_unlock(zklock_advisory._name(key));

CREATE FUNCTION zklock_advisory.pg_advisory_unlock(key1 integer, key2 integer) RETURNS boolean
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
RETURN zk_unlock(zklock_advisory._name(key1, key2));

CREATE FUNCTION zklock_advisory.pg_advisory_unlock_shared(key bigint) RETURNS boolean
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
RETURN zk_unlock_shared(zklock_advisory._name(key));

CREATE FUNCTION zklock_advisory.pg_advisory_unlock_shared(key1 integer, key2 integer) RETURNS boolean
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
RETURN zk_unlock_shared(zklock_advisory._name(key1, key2));

-- All locks of session scope, also those that were taken by name.
CREATE FUNCTION zklock_advisory.pg_advisory_unlock_all() RETURNS void
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
BEGIN ATOMIC SELECT zk_unlock_all(); END;

COMMENT ON SCHEMA zklock_advisory IS 'PostgreSQL''s advisory lock functions over zklock, for a search_path that has it before pg_catalog.';
COMMIT;
