/*-------------------------------------------------------------------------
 *
 * privilege.c
 *	  Privileges by name: who may do what below a prefix.
 *
 * The rows are those of the table zk_privileges in this database.  A name that
 * none of them covers is everybody's.  One that some cover is for the roles to
 * which any of these gives what is asked, and for superusers: rows add up.
 *
 * A backend reads the table when it needs the rows for the first time, and
 * again after a change.  A trigger of the table has the change told by
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
#include "utils/memutils.h"
#include "utils/rel.h"

#include "compat.h"
#include "name.h"
#include "recipe.h"

/* A row of the table. */
typedef struct Row
{
	char	   *prefix;
	Oid			role;			/* InvalidOid: PUBLIC */
	char	   *what;
} Row;

/* Are the rows those of the table? */
static bool is_current;

/* Row, and the context of it all; NULL until they are read. */
static List *rows;
static MemoryContext RowContext;

/* The table, and how often we were told that it may have changed. */
static Oid	table_id;
static uint64 nchanges;

PG_FUNCTION_INFO_V1(zk_privileges_changed);

static void read_rows(FunctionCallInfo fcinfo);
static void forget_rows(Datum arg, Oid relation);

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

bool
zklock_privilege_allows(FunctionCallInfo fcinfo, const char *name,
						const char *what, const char **prefix)
{
	Oid			role = GetUserId();

	*prefix = NULL;
	read_rows(fcinfo);
	foreach_ptr(const Row, row, rows)
	{
		size_t		length = strlen(row->prefix);

		/* the empty prefix covers all; others that name and those below it */
		if (length > 0 && (strncmp(row->prefix, name, length) != 0 ||
						   (name[length] != '\0' && name[length] != '/')))
			continue;
		if ((strcmp(row->what, what) == 0 ||
			 (strcmp(row->what, ZK_MAY_LOCK) == 0 &&
			  strcmp(what, ZK_MAY_SHARE) == 0)) &&
			(row->role == InvalidOid || has_privs_of_role(role, row->role)))
			return true;
		if (*prefix == NULL || length > strlen(*prefix))
			*prefix = row->prefix;
	}
	return *prefix == NULL || superuser_arg(role);
}

/* Every change of the table ends here, also that of a restore. */
Datum
zk_privileges_changed(PG_FUNCTION_ARGS)
{
	if (CALLED_AS_TRIGGER(fcinfo))
		CacheInvalidateRelcache(((TriggerData *) fcinfo->context)->tg_relation);
	return PointerGetDatum(NULL);
}

/*
 * Read the table unless that was done.  By a snapshot of this moment, as all
 * that PostgreSQL's own privileges rest on: a transaction's own may be old.
 */
static void
read_rows(FunctionCallInfo fcinfo)
{
	MemoryContext caller;
	Relation	table;
	SysScanDesc scan;
	HeapTuple	tuple;
	uint64		as_of;

	if (is_current)
		return;
	if (RowContext == NULL)
	{
		CacheRegisterRelcacheCallback(forget_rows, (Datum) 0);
		RowContext = AllocSetContextCreate(TopMemoryContext,
										   "zklock privileges",
										   ALLOCSET_SMALL_SIZES);
	}
	rows = NIL;
	MemoryContextReset(RowContext);
	table_id = get_relname_relid("zk_privileges",
								 get_func_namespace(fcinfo->flinfo->fn_oid));
	table = table_open(table_id, AccessShareLock);
	as_of = nchanges;
	scan = systable_beginscan(table, InvalidOid, false, NULL, 0, NULL);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		TupleDesc	columns = RelationGetDescr(table);
		bool		is_null;	/* none is */
		char	   *prefix;
		Row		   *row;

		caller = MemoryContextSwitchTo(RowContext);
		row = palloc(sizeof(*row));
		prefix = TextDatumGetCString(heap_getattr(tuple, 1, columns, &is_null));
		row->prefix = zklock_name_try_spell(prefix);
		if (row->prefix == NULL)
			row->prefix = prefix;	/* which no name begins with */
		row->role = DatumGetObjectId(heap_getattr(tuple, 2, columns, &is_null));
		row->what = TextDatumGetCString(heap_getattr(tuple, 3, columns, &is_null));
		rows = lappend(rows, row);
		MemoryContextSwitchTo(caller);
	}
	systable_endscan(scan);
	table_close(table, AccessShareLock);
	is_current = as_of == nchanges;
}

/* PostgreSQL calls this, also where nothing may be read or raised. */
static void
forget_rows(Datum arg, Oid relation)
{
	if (relation != InvalidOid && relation != table_id)
		return;
	nchanges++;
	is_current = false;
}
