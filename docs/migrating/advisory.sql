-- This script makes PostgreSQL's advisory locks valid in all clusters. It creates the 21 functions
-- of advisory locks with the same names, arguments and results; each of them takes or releases a
-- lock of zklock. A program that uses advisory locks, for example for its migrations, needs only
-- another search_path.
--
-- Run the script as a superuser in a database where zklock is installed, and set the path:
--
--   psql -X -d app -f advisory.sql
--   ALTER ROLE migrator IN DATABASE app SET search_path = shop, zklock_advisory, pg_catalog;
--
-- "shop" is the schema of the migrator's tables. It comes before PostgreSQL's own functions and
-- operators. So only the migrator, and roles that it trusts, may create in it.
--
-- The script also revokes PostgreSQL's own functions from PUBLIC in this database. Otherwise a
-- program with another search_path would lock in this cluster only, and nobody would notice. A
-- role that is meant to lock in this cluster only gets them back:
--
--   CALL zklock_advisory.allow_local('the_role_of_the_tool');
--
-- To install a newer version of this script: DROP SCHEMA zklock_advisory CASCADE and run it
-- again. Calls in between are refused.
--
-- docs/migrating.md says what differs, and what the limits are. To remove everything:
--
--   CALL zklock_advisory.allow_local();                   -- every role
--   DROP SCHEMA zklock_advisory CASCADE;
--
-- No object of another schema can change what these functions do: PostgreSQL parses their bodies
-- now, with a search_path of pg_catalog alone, or the bodies name the schema of each object.
\set ON_ERROR_STOP on
BEGIN;
SET LOCAL search_path = pg_catalog, pg_temp;
DO $$ BEGIN
	IF NOT EXISTS (SELECT FROM pg_extension WHERE extname = 'zklock') THEN
		RAISE EXCEPTION 'extension "zklock" is not in this database'
			USING HINT = 'CREATE EXTENSION zklock there first.';
	END IF;
	IF NOT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
		RAISE EXCEPTION 'must be superuser to take functions of PostgreSQL away from PUBLIC'
			USING ERRCODE = '42501';
	END IF;
END $$;
SELECT n.nspname AS zklock FROM pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace
WHERE e.extname = 'zklock' \gset

CREATE SCHEMA zklock_advisory;
GRANT USAGE ON SCHEMA zklock_advisory TO PUBLIC;
COMMENT ON SCHEMA zklock_advisory IS
'Functions with the names of PostgreSQL''s advisory lock functions that take locks of zklock. A '
'connection uses them if its search_path has this schema before pg_catalog.';

-- Returns the name of the lock of a key. As with PostgreSQL, each database has keys of its own.
-- Databases of the same name in different clusters share their keys. If the databases have
-- different names, or a name that no lock may have, write a common word in place of
-- current_database(). If a lock's name begins with "advisory/", HINTs of zklock name functions such
-- as pg_advisory_unlock().
CREATE FUNCTION zklock_advisory._name(key bigint) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN
	IF key IS NULL THEN
		RAISE null_value_not_allowed USING MESSAGE = 'key of an advisory lock must not be null';
	END IF;
	RETURN pg_catalog.concat('advisory/', pg_catalog.current_database(), '/(', key, ')');
END $$;

CREATE FUNCTION zklock_advisory._name(key1 integer, key2 integer) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN
	IF key1 IS NULL OR key2 IS NULL THEN
		RAISE null_value_not_allowed USING MESSAGE = 'key of an advisory lock must not be null';
	END IF;
	RETURN pg_catalog.concat(
		'advisory/', pg_catalog.current_database(), '/(', key1, ',', key2, ')');
END $$;

-- These functions find zklock also after ALTER EXTENSION zklock SET SCHEMA.
CREATE FUNCTION zklock_advisory._lock(name text) RETURNS bigint
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
RETURN :"zklock".zk_lock(name, NULL::interval, 1);

CREATE FUNCTION zklock_advisory._lock_shared(name text) RETURNS bigint
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
RETURN :"zklock".zk_lock_shared(name, NULL::interval);

CREATE FUNCTION zklock_advisory._xact_lock(name text) RETURNS bigint
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
RETURN :"zklock".zk_xact_lock(name, NULL::interval, 1);

CREATE FUNCTION zklock_advisory._xact_lock_shared(name text) RETURNS bigint
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
RETURN :"zklock".zk_xact_lock_shared(name, NULL::interval);

-- These functions are in PL/pgSQL, because a void result of a function in SQL is NULL. That of
-- PostgreSQL's own functions is not.
CREATE FUNCTION zklock_advisory.pg_advisory_lock(key bigint) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL RESTRICTED
AS $$ BEGIN PERFORM zklock_advisory._lock(zklock_advisory._name(key)); END $$;

CREATE FUNCTION zklock_advisory.pg_advisory_lock(key1 integer, key2 integer) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL RESTRICTED
AS $$ BEGIN PERFORM zklock_advisory._lock(zklock_advisory._name(key1, key2)); END $$;

CREATE FUNCTION zklock_advisory.pg_advisory_lock_shared(key bigint) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL RESTRICTED
AS $$ BEGIN PERFORM zklock_advisory._lock_shared(zklock_advisory._name(key)); END $$;

CREATE FUNCTION zklock_advisory.pg_advisory_lock_shared(key1 integer, key2 integer) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL RESTRICTED
AS $$ BEGIN PERFORM zklock_advisory._lock_shared(zklock_advisory._name(key1, key2)); END $$;

CREATE FUNCTION zklock_advisory.pg_advisory_xact_lock(key bigint) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL RESTRICTED
AS $$ BEGIN PERFORM zklock_advisory._xact_lock(zklock_advisory._name(key)); END $$;

CREATE FUNCTION zklock_advisory.pg_advisory_xact_lock(key1 integer, key2 integer) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL RESTRICTED
AS $$ BEGIN PERFORM zklock_advisory._xact_lock(zklock_advisory._name(key1, key2)); END $$;

CREATE FUNCTION zklock_advisory.pg_advisory_xact_lock_shared(key bigint) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL RESTRICTED
AS $$ BEGIN PERFORM zklock_advisory._xact_lock_shared(zklock_advisory._name(key)); END $$;

CREATE FUNCTION zklock_advisory.pg_advisory_xact_lock_shared(key1 integer, key2 integer)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL RESTRICTED
AS $$ BEGIN PERFORM zklock_advisory._xact_lock_shared(zklock_advisory._name(key1, key2)); END $$;

CREATE FUNCTION zklock_advisory.pg_try_advisory_lock(key bigint) RETURNS boolean
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
RETURN :"zklock".zk_try_lock(zklock_advisory._name(key), '0'::interval, 1);

CREATE FUNCTION zklock_advisory.pg_try_advisory_lock(key1 integer, key2 integer) RETURNS boolean
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
RETURN :"zklock".zk_try_lock(zklock_advisory._name(key1, key2), '0'::interval, 1);

CREATE FUNCTION zklock_advisory.pg_try_advisory_lock_shared(key bigint) RETURNS boolean
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
RETURN :"zklock".zk_try_lock_shared(zklock_advisory._name(key), '0'::interval);

CREATE FUNCTION zklock_advisory.pg_try_advisory_lock_shared(key1 integer, key2 integer)
RETURNS boolean
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
RETURN :"zklock".zk_try_lock_shared(zklock_advisory._name(key1, key2), '0'::interval);

CREATE FUNCTION zklock_advisory.pg_try_advisory_xact_lock(key bigint) RETURNS boolean
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
RETURN :"zklock".zk_try_xact_lock(zklock_advisory._name(key), '0'::interval, 1);

CREATE FUNCTION zklock_advisory.pg_try_advisory_xact_lock(key1 integer, key2 integer)
RETURNS boolean
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
RETURN :"zklock".zk_try_xact_lock(zklock_advisory._name(key1, key2), '0'::interval, 1);

CREATE FUNCTION zklock_advisory.pg_try_advisory_xact_lock_shared(key bigint) RETURNS boolean
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
RETURN :"zklock".zk_try_xact_lock_shared(zklock_advisory._name(key), '0'::interval);

CREATE FUNCTION zklock_advisory.pg_try_advisory_xact_lock_shared(key1 integer, key2 integer)
RETURNS boolean
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
RETURN :"zklock".zk_try_xact_lock_shared(zklock_advisory._name(key1, key2), '0'::interval);

CREATE FUNCTION zklock_advisory.pg_advisory_unlock(key bigint) RETURNS boolean
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
RETURN :"zklock".zk_unlock(zklock_advisory._name(key));

CREATE FUNCTION zklock_advisory.pg_advisory_unlock(key1 integer, key2 integer) RETURNS boolean
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
RETURN :"zklock".zk_unlock(zklock_advisory._name(key1, key2));

CREATE FUNCTION zklock_advisory.pg_advisory_unlock_shared(key bigint) RETURNS boolean
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
RETURN :"zklock".zk_unlock_shared(zklock_advisory._name(key));

CREATE FUNCTION zklock_advisory.pg_advisory_unlock_shared(key1 integer, key2 integer)
RETURNS boolean
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
RETURN :"zklock".zk_unlock_shared(zklock_advisory._name(key1, key2));

-- Releases all locks of session scope, also those that zk_lock() has taken.
CREATE FUNCTION zklock_advisory._unlock_all() RETURNS void
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
RETURN :"zklock".zk_unlock_all();

CREATE FUNCTION zklock_advisory.pg_advisory_unlock_all() RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL RESTRICTED
AS $$ BEGIN PERFORM zklock_advisory._unlock_all(); END $$;

-- Rails looks for its tables in current_schemas(false). If the path names pg_catalog, the result
-- contains pg_catalog, and Rails writes system tables into schema.rb. Here a path names pg_catalog
-- only so that the functions of this script come first. So this function treats pg_catalog as
-- implicit, as it is in other paths.
CREATE FUNCTION zklock_advisory.current_schemas(include_implicit boolean) RETURNS name[]
LANGUAGE sql STABLE STRICT PARALLEL SAFE
RETURN CASE WHEN include_implicit THEN pg_catalog.current_schemas(true)
	ELSE array_remove(array_remove(pg_catalog.current_schemas(false), 'pg_catalog'::name),
		'zklock_advisory'::name) END;

-- Shows which functions of these names a connection gets with its present search_path, and whether
-- it may call them. The path is right if there are 21 rows of the schema zklock_advisory. A row
-- with another schema than zklock_advisory and pg_catalog is a function of another role, which is
-- called in place of the right one.
CREATE VIEW zklock_advisory.in_use AS
SELECT n.nspname AS schema,
	format('%s(%s)', p.proname, oidvectortypes(p.proargtypes)) AS function,
	has_function_privilege(p.oid, 'EXECUTE') AS may_execute
FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
WHERE p.proname ~ '^pg_(try_)?advisory_(xact_)?(un)?lock(_shared|_all)?$'
	AND pg_function_is_visible(p.oid);
GRANT SELECT ON zklock_advisory.in_use TO PUBLIC;

-- Lists PostgreSQL's own functions in the form of GRANT. pg_advisory_unlock_all() is not among
-- them, and stays open: it takes no lock, and asyncpg and other clients call it each time a
-- connection goes back to the pool.
CREATE FUNCTION zklock_advisory._local() RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
RETURN (SELECT string_agg(format('pg_catalog.%I(%s)', proname, oidvectortypes(proargtypes)), ', ')
	FROM pg_proc
	WHERE pronamespace = 'pg_catalog'::regnamespace
	  AND proname ~ '^pg_(try_)?advisory_(xact_)?(un)?lock(_shared)?$');

CREATE PROCEDURE zklock_advisory.allow_local(role regrole)
LANGUAGE plpgsql AS $$ BEGIN
	EXECUTE pg_catalog.format('GRANT EXECUTE ON FUNCTION %s TO %s',
		zklock_advisory._local(), role);
END $$;

CREATE PROCEDURE zklock_advisory.allow_local()
LANGUAGE plpgsql AS $$ BEGIN
	EXECUTE pg_catalog.format('GRANT EXECUTE ON FUNCTION %s TO PUBLIC',
		zklock_advisory._local());
END $$;

CREATE PROCEDURE zklock_advisory.refuse_local(role regrole)
LANGUAGE plpgsql AS $$ BEGIN
	EXECUTE pg_catalog.format('REVOKE EXECUTE ON FUNCTION %s FROM %s',
		zklock_advisory._local(), role);
END $$;

CREATE PROCEDURE zklock_advisory.refuse_local()
LANGUAGE plpgsql AS $$ BEGIN
	EXECUTE pg_catalog.format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC',
		zklock_advisory._local());
END $$;

GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA zklock_advisory TO PUBLIC;
REVOKE EXECUTE ON ALL PROCEDURES IN SCHEMA zklock_advisory FROM PUBLIC;
CALL zklock_advisory.refuse_local();
COMMIT;
