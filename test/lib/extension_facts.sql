-- All that the extension zklock consists of, a line for each fact: what it is called, and how
-- it is. What a role may do is what counts, and not how it came to it.
WITH member AS (
	SELECT classid, objid,
		(pg_identify_object(classid, objid, 0)).type || ' '
		|| (pg_identify_object(classid, objid, 0)).identity AS name
	FROM pg_depend
	WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
		AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zklock')
), acl AS (
	SELECT classid, objid, ''::text AS part, coalesce(proacl, acldefault('f', proowner)) AS now,
		acldefault('f', proowner) AS usual, 0 AS subid
	FROM member JOIN pg_proc p ON p.oid = objid AND classid = 'pg_proc'::regclass
	UNION ALL
	SELECT classid, objid, '', coalesce(relacl, acldefault('r', relowner)), acldefault('r', relowner), 0
	FROM member JOIN pg_class c ON c.oid = objid AND classid = 'pg_class'::regclass
	UNION ALL
	SELECT classid, objid, ' column ' || attname, attacl, NULL, attnum
	FROM member JOIN pg_attribute a ON a.attrelid = objid AND classid = 'pg_class'::regclass
	WHERE NOT attisdropped AND attnum > 0
), fact (name, what) AS (
	SELECT name, 'is there' FROM member
	UNION ALL
	SELECT name, 'comment: ' || obj_description(objid, classid::regclass::name) FROM member
	UNION ALL
	SELECT name, 'definition: ' || pg_get_functiondef(objid) FROM member
	WHERE classid = 'pg_proc'::regclass
	UNION ALL
	SELECT name || part, 'privilege: ' || x.grantee::regrole || ' ' || x.privilege_type || ' ' || x.is_grantable
	FROM member JOIN acl USING (classid, objid), aclexplode(now) x
	UNION ALL
	SELECT name || part, 'privilege that a dump leaves out: ' || x.grantee::regrole || ' ' || x.privilege_type
	FROM member JOIN acl USING (classid, objid)
		LEFT JOIN pg_init_privs i ON i.objoid = objid AND i.classoid = classid AND i.objsubid = subid,
		aclexplode(coalesce(i.initprivs, usual)) x
	UNION ALL
	SELECT name, 'relation: ' || concat_ws(', ', relkind, relpersistence, relrowsecurity,
		relforcerowsecurity, relreplident, reloptions::text)
	FROM member JOIN pg_class c ON c.oid = objid WHERE classid = 'pg_class'::regclass
	UNION ALL
	SELECT name, 'view: ' || pg_get_viewdef(objid)
	FROM member JOIN pg_class c ON c.oid = objid
	WHERE classid = 'pg_class'::regclass AND relkind IN ('v', 'm')
	UNION ALL
	SELECT name, format('column %s: %s',
		row_number() OVER (PARTITION BY objid ORDER BY attnum),
		concat_ws(', ', attname, format_type(atttypid, atttypmod), attnotnull, attidentity,
			attgenerated, attstorage, attcompression, attcollation::regcollation,
			pg_get_expr(adbin, adrelid), col_description(objid, attnum)))
	FROM member JOIN pg_attribute a ON attrelid = objid
		LEFT JOIN pg_attrdef d ON adrelid = attrelid AND adnum = attnum
	WHERE classid = 'pg_class'::regclass AND attnum > 0 AND NOT attisdropped
	UNION ALL
	SELECT name, 'constraint: ' || conname || ' ' || pg_get_constraintdef(c.oid)
	FROM member JOIN pg_constraint c ON conrelid = objid WHERE classid = 'pg_class'::regclass
	UNION ALL
	SELECT name, 'index: ' || pg_get_indexdef(indexrelid)
	FROM member JOIN pg_index ON indrelid = objid WHERE classid = 'pg_class'::regclass
	UNION ALL
	SELECT name, 'trigger: ' || pg_get_triggerdef(t.oid)
	FROM member JOIN pg_trigger t ON tgrelid = objid
	WHERE classid = 'pg_class'::regclass AND NOT tgisinternal
	UNION ALL
	SELECT name, 'rule: ' || pg_get_ruledef(r.oid)
	FROM member JOIN pg_rewrite r ON ev_class = objid
	WHERE classid = 'pg_class'::regclass AND rulename <> '_RETURN'
	UNION ALL
	SELECT 'extension', concat_ws(', ', extversion, extrelocatable, extnamespace::regnamespace)
	FROM pg_extension WHERE extname = 'zklock'
	UNION ALL
	SELECT 'extension', 'dumps ' || t.relation::regclass || ' '
		|| extcondition[t.number]
	FROM pg_extension, unnest(extconfig) WITH ORDINALITY t (relation, number)
	WHERE extname = 'zklock'
)
SELECT to_json(name || ': ' || what) FROM fact WHERE what IS NOT NULL ORDER BY 1::text COLLATE "C"
