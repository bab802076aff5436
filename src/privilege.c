/*-------------------------------------------------------------------------
 *
 * privilege.c
 *	  Privileges by name: who may do what below a prefix.
 *
 * The rows are those of the table zk_privileges in this database.  A name that
 * none of them covers is everybody's.  One that some cover is for the roles to
 * which any of these gives what is asked, and for superusers: rows add up.
 *
 * A backend reads the table at each check, unless it knows that there are no
 * rows.  That it may be otherwise a trigger of the table has told by
 * PostgreSQL's own messages about relations: to everybody at commit; to the
 * backend itself at once, and again when it is rolled back.  So it is heeded
 * when what GRANT changes is.
 *
 * The one rule: where there are no rows, a check is one test.
 *
 *-------------------------------------------------------------------------
 */
#include "privilege.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "commands/trigger.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "recipe.h"

/* Is the table known to have no rows? */
static bool is_open;

/* The table, and how often we were told that it may have changed. */
static Oid	table_id;		/* InvalidOid until it is read */
static uint64 nchanges;

PG_FUNCTION_INFO_V1(zk_privileges_changed);

static bool covers(const char *prefix, const char *name);
static bool includes(const char *given, const char *what);
static void note_change(Datum arg, Oid relation);

void
zklock_privilege_check(FunctionCallInfo fcinfo, const char *name,
					   const char *what)
{
	const char *prefix;
	const char *role;

	if (what == ZK_OWN ||
		zklock_privilege_allows(fcinfo, name, what, &prefix))
		return;
	role = GetUserNameFromId(GetUserId(), false);
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied for ZooKeeper lock or job \"%.*s\"",
					pg_mbcliplen(name, strlen(name), RECIPE_NAME_MAX), name),
			 errdetail("Rows of zk_privileges cover this name, and none gives role \"%s\" the privilege \"%s\".",
					   role, what),
			 errhint("The row that is missing: SELECT zk_grant(%s, %s, '%s').",
					 quote_literal_cstr(prefix), quote_literal_cstr(role),
					 what)));
}

/*
 * The table is read by a snapshot of this moment, as all that PostgreSQL's own
 * privileges rest on: a transaction's own may be old.
 */
bool
zklock_privilege_allows(FunctionCallInfo fcinfo, const char *name,
						const char *what, const char **prefix)
{
	Oid			role = GetUserId();
	bool		is_given = false;
	bool		is_empty = true;
	uint64		as_of;
	Relation	table;
	SysScanDesc scan;
	HeapTuple	tuple;

	*prefix = NULL;
	if (is_open)
		return true;
	if (table_id == InvalidOid)
		CacheRegisterRelcacheCallback(note_change, (Datum) 0);
	table_id = get_relname_relid("zk_privileges",
								 get_func_namespace(fcinfo->flinfo->fn_oid));
	table = table_open(table_id, AccessShareLock);
	as_of = nchanges;
	scan = systable_beginscan(table, InvalidOid, false, NULL, 0, NULL);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Datum		row[3];
		bool		nulls[3];	/* none is */
		char	   *covered;

		is_empty = false;
		heap_deform_tuple(tuple, RelationGetDescr(table), row, nulls);
		covered = TextDatumGetCString(row[0]);
		if (!covers(covered, name))
		{
			pfree(covered);
			continue;
		}
		is_given |= includes(TextDatumGetCString(row[2]), what) &&
			(DatumGetObjectId(row[1]) == InvalidOid ||
			 has_privs_of_role(role, DatumGetObjectId(row[1])));
		if (*prefix == NULL || strlen(covered) > strlen(*prefix))
			*prefix = covered;
	}
	systable_endscan(scan);
	table_close(table, AccessShareLock);
	is_open = is_empty && as_of == nchanges;
	return is_given || *prefix == NULL || superuser_arg(role);
}

/* Every change of the table ends here, also that of a restore. */
Datum
zk_privileges_changed(PG_FUNCTION_ARGS)
{
	if (CALLED_AS_TRIGGER(fcinfo))
		CacheInvalidateRelcache(((TriggerData *) fcinfo->context)->tg_relation);
	return PointerGetDatum(NULL);
}

/* The empty prefix covers all; others that name and those below it. */
static bool
covers(const char *prefix, const char *name)
{
	size_t		length = strlen(prefix);

	return length == 0 || (strncmp(prefix, name, length) == 0 &&
						   (name[length] == '\0' || name[length] == '/'));
}

/* Does one privilege include the other? */
static bool
includes(const char *given, const char *what)
{
	return strcmp(given, what) == 0 ||
		(strcmp(given, ZK_MAY_LOCK) == 0 && strcmp(what, ZK_MAY_SHARE) == 0);
}

/* PostgreSQL calls this, also where nothing may be read or raised. */
static void
note_change(Datum arg, Oid relation)
{
	if (relation != InvalidOid && relation != table_id)
		return;
	nchanges++;
	is_open = false;
}
