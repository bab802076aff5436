--
-- Privileges by name: which names a prefix covers, whom a row is for, and who may grant. What
-- each function needs, and that a change is heeded in other sessions, is told in t/361.
--
CREATE ROLE regress_zklock_tenant IN ROLE zklock_operator;
CREATE ROLE regress_zklock_payroll;
CREATE ROLE regress_zklock_stranger;
CREATE PROCEDURE only_row(prefix text, role text, privileges text) LANGUAGE plpgsql AS $$
BEGIN
	DELETE FROM zk_privileges;
	PERFORM zk_grant(prefix, role, privileges);
END $$;

--
-- Which names a prefix covers
--
CALL only_row('pay', 'regress_zklock_payroll', 'lock');
SET SESSION AUTHORIZATION regress_zklock_tenant;
SELECT zk_try_xact_lock('pay');
SELECT zk_try_xact_lock('pay/a');
SELECT zk_try_xact_lock('pay/a/b');
SELECT name, zk_try_xact_lock(name) FROM unnest('{pa,payment,pay-x,Pay,x/pay,other}'::text[]) AS name;
SELECT zk_try_lock('pay_/');
SELECT zk_try_lock('a//pay');
-- Of a set each, and then nothing is taken
SELECT zk_lock('{other,pay/x}'::text[], '0');
SELECT count(*) FROM zk_locks;

RESET SESSION AUTHORIZATION;
CALL only_row('', 'public', 'none');
SET SESSION AUTHORIZATION regress_zklock_tenant;
SELECT zk_try_lock('any');
RESET SESSION AUTHORIZATION;
SELECT zk_try_xact_lock('any') AS superuser;

-- Rows add up, each for its prefix, and none above it.
SELECT zk_grant('a', 'regress_zklock_tenant', 'look');
SELECT zk_grant('a/b', 'regress_zklock_tenant', 'lock');
SET SESSION AUTHORIZATION regress_zklock_tenant;
SELECT zk_try_xact_lock('a/b'), count(*) AS who FROM zk_who('a/b');
SELECT count(*) AS who FROM zk_who('a');
SELECT zk_try_xact_lock('a');
RESET SESSION AUTHORIZATION;

-- A prefix is a name, for a role that there is, and privileges are words.
SELECT zk_grant('pay/', 'regress_zklock_tenant', 'lock');
SELECT zk_grant('/pay', 'regress_zklock_tenant', 'lock');
SELECT zk_grant('pay//x', 'regress_zklock_tenant', 'lock');
SELECT zk_grant(NULL, 'regress_zklock_tenant', 'lock');
\set VERBOSITY terse
SELECT zk_grant('p', NULL, 'lock');
\set VERBOSITY default
SELECT zk_grant('p', 'regress_zklock_tenant', NULL);
SELECT zk_grant('a', 'regress_zklock_tenant', 'look') AS again;
SELECT zk_grant('p', 'nobody there', 'lock');
\set VERBOSITY terse
SELECT zk_grant('p', 'regress_zklock_tenant', 'lokc');
\set VERBOSITY default
SELECT count(*) FROM zk_privileges WHERE prefix IN ('p', 'pay/');
SELECT zk_grant('p', 'public', 'all');
SELECT string_agg(privilege, ' ' ORDER BY privilege) AS "all" FROM zk_privileges WHERE prefix = 'p';
SELECT zk_revoke('p', 'public', 'all');
SELECT count(*) FROM zk_privileges WHERE prefix = 'p';

--
-- Whom a row is for
--
CALL only_row('pay', 'regress_zklock_payroll', 'lock, look');
SET SESSION AUTHORIZATION regress_zklock_stranger;
SELECT zk_try_xact_lock('pay');
RESET SESSION AUTHORIZATION;
GRANT regress_zklock_payroll TO regress_zklock_stranger;
SET SESSION AUTHORIZATION regress_zklock_stranger;
SELECT zk_try_xact_lock('pay'), zk_try_xact_lock_shared('pay');
RESET SESSION AUTHORIZATION;
-- One that does not inherit, until it is SET
ALTER ROLE regress_zklock_stranger NOINHERIT;
SELECT current_setting('server_version_num')::int >= 160000 AS by_member \gset
\if :by_member
UPDATE pg_auth_members SET inherit_option = false WHERE member = 'regress_zklock_stranger'::regrole;
\endif
SET SESSION AUTHORIZATION regress_zklock_stranger;
SELECT zk_try_xact_lock('pay');
SET ROLE regress_zklock_payroll;
SELECT zk_try_xact_lock('pay');
RESET SESSION AUTHORIZATION;
REVOKE regress_zklock_payroll FROM regress_zklock_stranger;
SET SESSION AUTHORIZATION regress_zklock_stranger;
SELECT zk_try_xact_lock('pay');
RESET SESSION AUTHORIZATION;

-- Who calls a function of its owner's may what that one may, and not more, not even a superuser.
CREATE FUNCTION pay_now() RETURNS boolean SECURITY DEFINER LANGUAGE sql AS $$SELECT zk_try_xact_lock('pay')$$;
ALTER FUNCTION pay_now() OWNER TO regress_zklock_payroll;
SET SESSION AUTHORIZATION regress_zklock_stranger;
SELECT pay_now();
RESET SESSION AUTHORIZATION;
ALTER FUNCTION pay_now() OWNER TO regress_zklock_stranger;
SELECT pay_now();

-- But who has a lock he is told only if he may know himself.
CREATE FUNCTION pay_holder() RETURNS boolean SECURITY DEFINER LANGUAGE sql AS $$SELECT owner IS NOT NULL FROM zk_leader('pay')$$;
SELECT zk_lock('pay') > 0 AS granted, pay_holder();
SET SESSION AUTHORIZATION regress_zklock_stranger;
SELECT pay_holder();
RESET SESSION AUTHORIZATION;
SELECT zk_unlock('pay');

-- Everybody
SELECT zk_grant('pay', 'public', 'lock');
SET SESSION AUTHORIZATION regress_zklock_stranger;
SELECT zk_try_xact_lock('pay');
RESET SESSION AUTHORIZATION;
SELECT zk_revoke('pay', 'public', 'all');
SET SESSION AUTHORIZATION regress_zklock_stranger;
SELECT zk_try_xact_lock('pay');
RESET SESSION AUTHORIZATION;

-- A name as the hint quotes it; a role that is renamed keeps its rows, one that is made anew has none.
CREATE ROLE "regress_zklock ""o'clock";
SET SESSION AUTHORIZATION "regress_zklock ""o'clock";
SELECT zk_try_xact_lock('pay');
RESET SESSION AUTHORIZATION;
SELECT zk_grant('pay', 'regress_zklock "o''clock', 'lock');
SET SESSION AUTHORIZATION "regress_zklock ""o'clock";
SELECT zk_try_xact_lock('pay');
RESET SESSION AUTHORIZATION;
ALTER ROLE "regress_zklock ""o'clock" RENAME TO regress_zklock_even;
SET SESSION AUTHORIZATION regress_zklock_even;
SELECT zk_try_xact_lock('pay');
RESET SESSION AUTHORIZATION;
DROP ROLE regress_zklock_even;
CREATE ROLE regress_zklock_even;
SET SESSION AUTHORIZATION regress_zklock_even;
SELECT zk_try_xact_lock('pay');
RESET SESSION AUTHORIZATION;
-- The row of the dropped one can be seen.
SELECT count(*) FROM zk_privileges WHERE role::text ~ '^\d+$';

--
-- Who may grant
--
CREATE PROCEDURE deny() LANGUAGE plpgsql AS $$
DECLARE
	denied text;
BEGIN
	FOREACH denied IN ARRAY ARRAY[
		$q$SELECT zk_grant('', 'public', 'all')$q$, $q$SELECT zk_revoke('pay', 'regress_zklock_payroll', 'all')$q$,
		$q$INSERT INTO zk_privileges VALUES ('', '-', 'lock')$q$, 'DELETE FROM zk_privileges',
		'TRUNCATE zk_privileges', $q$SELECT _zk_privileges_of('', 'public', 'lock')$q$,
		'SELECT _zk_privileges_changed()', $q$SELECT _zk_fence_claim('/zklock', 'pay', 1)$q$,
		'ALTER TABLE zk_privileges DISABLE TRIGGER changed']
	LOOP
		BEGIN
			EXECUTE denied;
			RAISE WARNING '% may: %', current_user, denied;
		EXCEPTION WHEN insufficient_privilege THEN
			RAISE NOTICE '% may not: %', current_user, denied;
		END;
	END LOOP;
END $$;
SET SESSION AUTHORIZATION regress_zklock_tenant;
CALL deny();
-- but look
SELECT count(*) > 0 AS rows FROM zk_privileges;
RESET SESSION AUTHORIZATION;
SET SESSION AUTHORIZATION regress_zklock_stranger;
CALL deny();
SELECT * FROM zk_privileges;
RESET SESSION AUTHORIZATION;
GRANT EXECUTE ON FUNCTION zk_grant TO regress_zklock_stranger;
SET SESSION AUTHORIZATION regress_zklock_stranger;
SELECT zk_grant('pay', 'regress_zklock_stranger', 'lock');
SELECT zk_try_xact_lock('pay');
RESET SESSION AUTHORIZATION;

--
-- A change is heeded in its transaction at once, and no more when it is rolled back
--
DELETE FROM zk_privileges;
BEGIN;
SET LOCAL ROLE regress_zklock_tenant;
SELECT zk_try_xact_lock('pay');
RESET ROLE;
SELECT zk_grant('pay', 'public', 'none');
SAVEPOINT a;
SET LOCAL ROLE regress_zklock_tenant;
SELECT zk_try_xact_lock('pay');
ROLLBACK TO a;
SELECT zk_grant('pay', 'regress_zklock_tenant', 'lock');
SAVEPOINT b;
SET LOCAL ROLE regress_zklock_tenant;
SELECT zk_try_xact_lock('pay');
RESET ROLE;
SAVEPOINT c;
SELECT zk_revoke('pay', 'regress_zklock_tenant', 'lock');
SAVEPOINT d;
SET LOCAL ROLE regress_zklock_tenant;
SELECT zk_try_xact_lock('pay');
ROLLBACK TO c;
SET LOCAL ROLE regress_zklock_tenant;
SELECT zk_try_xact_lock('pay');
ROLLBACK;
SET ROLE regress_zklock_tenant;
SELECT zk_try_xact_lock('pay');
RESET ROLE;

REVOKE EXECUTE ON FUNCTION zk_grant FROM regress_zklock_stranger;
DROP FUNCTION pay_now, pay_holder;
DROP PROCEDURE deny(), only_row(text, text, text);
DROP ROLE regress_zklock_tenant, regress_zklock_payroll, regress_zklock_stranger, regress_zklock_even;
