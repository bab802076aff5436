-- This script makes zk_fence(name, token) in a database where the extension cannot be installed,
-- for example in a managed PostgreSQL. It needs PostgreSQL 10 or later.
--
-- The lock is held elsewhere: in a cluster with zklock, or by a program with Curator or Kazoo. The
-- program sends the fencing token of the lock along with each transaction that writes here. If a
-- greater token has been here before, the function refuses the transaction (40001), as the function
-- of the extension does.
--
-- Run the script as the role that is to own the table, and let the program call the function:
--
--   psql -d app -f fence.sql
--   GRANT EXECUTE ON FUNCTION zklock.zk_fence(text, bigint, text) TO worker;
--
-- Call the function first in each transaction:
--
--   SELECT zklock.zk_fence('accounts', 4294967311);
--
-- If the lock is not held below the root /zklock, name the root: zk_fence('accounts', 4294967311,
-- '/team'). The same name below another root is another lock.
--
-- Do not grant the function to every role: a token that is too great refuses all holders. Before
-- you install the extension in the schema zklock, run DROP SCHEMA zklock CASCADE.
\set ON_ERROR_STOP on
BEGIN;
SET LOCAL search_path = pg_catalog, pg_temp;
CREATE SCHEMA zklock;
GRANT USAGE ON SCHEMA zklock TO PUBLIC;

CREATE TABLE zklock.zk_fences (
	root text,
	name text,
	token bigint NOT NULL CHECK (token > 0),
	claimed_by name NOT NULL,
	claimed_at timestamptz NOT NULL,
	PRIMARY KEY (root, name)
);

COMMENT ON TABLE zklock.zk_fences IS
'Greatest fencing token that zk_fence() has seen in this database, for each guarded resource. Only '
'zk_fence() changes it.';

CREATE FUNCTION zklock._zk_fence_compare(
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
			HINT = 'Take the lock again, and run the transaction again. If that never helps, the '
				'ensemble has lost its data, or is another one, so that its tokens start anew. '
				'Then TRUNCATE zklock.zk_fences as its owner when no earlier holder is left.';
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
				'delete the lock''s row of zklock.zk_fences first, as its owner.';
	END IF;
	RETURN newest < token;
END $$;

COMMENT ON FUNCTION zklock._zk_fence_compare(text, bigint, bigint, timestamptz, timestamptz) IS
'Helper of zk_fence(). Raises 40001 if newest is greater than token, and 22023 for a token that '
'the ensemble cannot have reached yet. Returns true if token is greater.';

-- The first INSERT makes the row, if there is none. The second one locks the row, whether it
-- changes the row or not. So no other holder, older or newer, gets past the row until the
-- transaction ends. Each compares the tokens with the row locked. No statement reads the table by
-- a snapshot: under SERIALIZABLE such a read would make transactions fail that have nothing to do
-- with each other.
CREATE FUNCTION zklock.zk_fence(name text, token bigint, root text DEFAULT '/zklock')
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	is_newer boolean;	-- RETURNING wants a variable
BEGIN
	IF name IS NULL THEN
		RAISE EXCEPTION USING
			ERRCODE = 'null_value_not_allowed',
			MESSAGE = 'lock name must not be null';
	ELSIF token IS NULL THEN
		RAISE EXCEPTION USING
			ERRCODE = 'null_value_not_allowed',
			MESSAGE = 'fencing token must not be null';
	ELSIF token <= 0 THEN
		RAISE EXCEPTION USING
			ERRCODE = 'invalid_parameter_value',
			MESSAGE = 'fencing token must be greater than zero';
	ELSIF root IS NULL THEN
		RAISE EXCEPTION USING
			ERRCODE = 'null_value_not_allowed',
			MESSAGE = 'root must not be null';
	END IF;
	-- Some encodings (EUC_TW, EUC_JP) have a character twice. Both are the same name.
	name := convert_from(convert_to(name, 'UTF8'), 'UTF8');
	root := convert_from(convert_to(root, 'UTF8'), 'UTF8');
	INSERT INTO zklock.zk_fences AS f (root, name, token, claimed_by, claimed_at)
		VALUES (zk_fence.root, zk_fence.name, zk_fence.token, session_user, clock_timestamp())
		ON CONFLICT ON CONSTRAINT zk_fences_pkey DO NOTHING
		RETURNING zklock._zk_fence_compare(f.name, f.token, NULL::bigint, NULL::timestamptz,
			f.claimed_at) INTO is_newer;
	INSERT INTO zklock.zk_fences AS f (root, name, token, claimed_by, claimed_at)
		VALUES (zk_fence.root, zk_fence.name, zk_fence.token, session_user, clock_timestamp())
		ON CONFLICT ON CONSTRAINT zk_fences_pkey DO UPDATE
			SET token = excluded.token,
				claimed_by = excluded.claimed_by,
				claimed_at = excluded.claimed_at
			WHERE zklock._zk_fence_compare(f.name, excluded.token, f.token, f.claimed_at,
				excluded.claimed_at);
END $$;

COMMENT ON FUNCTION zklock.zk_fence(text, bigint, text) IS
'Refuses this transaction (40001) if a greater token was used for this name and root in this '
'database. root is the chroot of zklock.servers, followed by zklock.root, where the lock is held. '
'Other calls for the same name and root wait until this transaction ends. Not every role may call '
'it: a token that is too great refuses all later holders.';

REVOKE EXECUTE ON FUNCTION
	zklock._zk_fence_compare(text, bigint, bigint, timestamptz, timestamptz),
	zklock.zk_fence(text, bigint, text)
FROM PUBLIC;
COMMIT;
