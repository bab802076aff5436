-- PostgreSQL's advisory locks over all clusters: its 21 functions, with the same names,
-- arguments and results, as locks of zklock. A program that uses advisory locks, above all
-- for its migrations, needs no change but a search_path.
--
--   psql -X -d app -f advisory.sql     -- as a superuser, where zklock is installed
--   ALTER ROLE migrator IN DATABASE app SET search_path = shop, zklock_advisory, pg_catalog;
--
-- "shop" is the schema of its tables. It comes before all functions and operators, so none but
-- the migrator, and roles that it trusts, may create in it.
--
-- It also takes PostgreSQL's own functions away from everybody but superusers in this
-- database. Otherwise a program that sets another search_path would lock in this cluster
-- only, and nobody would be told. A tool that is meant to do so gets them back:
--
--   CALL zklock_advisory.allow_local('the_role_of_the_tool');
--
-- To install a newer version of this script, DROP SCHEMA zklock_advisory CASCADE and run it
-- again. Whoever locks in between is refused.
--
-- docs/migrating.md says what differs, and what the limits are. To take everything away:
--
--   CALL zklock_advisory.allow_local();                   -- everybody
--   DROP SCHEMA zklock_advisory CASCADE;
--
-- No object of another schema can change what is done here: all bodies are parsed now, with
-- a search_path of pg_catalog alone, or have no name without its schema.
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

-- The lock of a key. As with PostgreSQL a database has keys of its own; databases of one
-- name in different clusters share them. Where they have different names, or a name that
-- no lock may have, put a common word in the place of current_database(). Names that begin
-- with "advisory/" make HINTs of zklock speak of pg_advisory_unlock() and the like.
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

-- These know where zklock is, also after ALTER EXTENSION zklock SET SCHEMA.
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

-- In PL/pgSQL: what a function in SQL returns as void is NULL, PostgreSQL's own is not.
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

-- All locks of session scope, also those that were taken by name.
CREATE FUNCTION zklock_advisory._unlock_all() RETURNS void
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
RETURN :"zklock".zk_unlock_all();

CREATE FUNCTION zklock_advisory.pg_advisory_unlock_all() RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL RESTRICTED
AS $$ BEGIN PERFORM zklock_advisory._unlock_all(); END $$;

-- Rails looks for its tables in current_schemas(false). It has pg_catalog in it if the path
-- names that, and then Rails writes system tables into schema.rb. A path names pg_catalog here
-- only because these functions must come first, so it counts as implicit, as it otherwise is.
CREATE FUNCTION zklock_advisory.current_schemas(include_implicit boolean) RETURNS name[]
LANGUAGE sql STABLE STRICT PARALLEL SAFE
RETURN CASE WHEN include_implicit THEN pg_catalog.current_schemas(true)
	ELSE array_remove(array_remove(pg_catalog.current_schemas(false), 'pg_catalog'::name),
		'zklock_advisory'::name) END;

-- Which functions of these names a connection gets, with its search_path as it is now, and
-- whether it may call them. All is well with 21 rows of the schema zklock_advisory. A row of
-- another schema than that and pg_catalog is a function that somebody has put in the way.
CREATE VIEW zklock_advisory.in_use AS
SELECT n.nspname AS schema,
	format('%s(%s)', p.proname, oidvectortypes(p.proargtypes)) AS function,
	has_function_privilege(p.oid, 'EXECUTE') AS may_execute
FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
WHERE p.proname ~ '^pg_(try_)?advisory_(xact_)?(un)?lock(_shared|_all)?$'
	AND pg_function_is_visible(p.oid);
GRANT SELECT ON zklock_advisory.in_use TO PUBLIC;

-- PostgreSQL's own, as GRANT takes them. pg_advisory_unlock_all() stays with everybody: it
-- takes no lock, and asyncpg and others call it whenever a connection goes back to the pool.
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
