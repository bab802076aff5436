/*-------------------------------------------------------------------------
 *
 * privilege.c
 *	  Privileges by name: what each role may do below a prefix.
 *
 * Two tables of this database say that.  A row of zk_privileges gives a role
 * something; a row of zk_closed closes a prefix, whatever else is there.  A
 * name that no row of either table covers may be used by every role.  Once a
 * row covers a name, only superusers may use it, and roles to which at least
 * one covering row of zk_privileges gives the privilege.
 *
 * If zk_closed was emptied without its triggers, by a restore that failed, all
 * names are closed.
 *
 * A backend reads the tables when it needs the rows for the first time, and
 * again after a change.  Triggers (grant_trigger.c) announce the change by
 * PostgreSQL's own messages about relations: to all backends at commit, and to
 * the changing backend itself at once, and again at a rollback.  So a change
 * takes effect when a change by GRANT does.
 *
 * The one rule: where there are no rows, a check is a look into a cache.
 *
 *-------------------------------------------------------------------------
 */
#include "privilege.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "compat.h"
#include "name.h"
#include "name_spelling.h"
#include "recipe.h"
#include "role.h"

/* A row of either table. */
typedef struct Row
{
	char	   *prefix;
	char	   *what;			/* NULL: it only closes the prefix */
	Oid			role;			/* InvalidOid: is_everybody, or nobody */
	bool		is_everybody;
} Row;

/* What this backend has read of the tables.  It outlives transactions. */
static struct
{
	bool		is_current;		/* the rows are those of the tables */
	List	   *rows;			/* Row */
	MemoryContext context;		/* of the rows; NULL until they are read */
	Oid			schema;			/* where the tables are */
	Oid			privileges;		/* the tables */
	Oid			closed;
	int			nclosed;		/* rows of the second */
	uint64		nchanges;		/* how often we were told that a table may have
								 * changed */
}			Cache;

static const char *find_refused(FunctionCallInfo fcinfo, const char *name,
								const char *what, const char **prefix);
static bool is_given(const char *name, Oid role, const char *what);
static const char *find_prefix(const char *name);
static bool covers(const Row *row, const char *name);
static bool gives(const Row *row, Oid role, const char *what);
static void read_rows(FunctionCallInfo fcinfo);
static void read_table(Relation table);
static Row *read_row(Relation table, HeapTuple tuple);
static void forget_rows(Datum arg, Oid relation);
static bool cache_has_lost_rows(void);

void
zklock_privilege_check(FunctionCallInfo fcinfo, const char *name,
					   const char *what)
{
	const char *refused;
	const char *prefix;
	const char *role;

	if (what == ZK_OWN)
		return;
	refused = find_refused(fcinfo, name, what, &prefix);
	if (refused == NULL)
		return;
	if (cache_has_lost_rows())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for ZooKeeper lock or job \"%.*s\"",
						pg_mbcliplen(name, strlen(name), RECIPE_NAME_MAX), name),
				 errdetail("All names are closed, because names were closed in this database and the rows of zk_closed are lost, for example in a restore that failed."),
				 errhint("Restore the rows. Or grant the privileges that you want with zk_grant(), and then open all other names: SELECT zk_open('').")));
	role = GetUserNameFromId(GetUserId(), false);
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied for ZooKeeper lock or job \"%.*s\"",
					pg_mbcliplen(name, strlen(name), RECIPE_NAME_MAX), name),
			 refused == name ?
			 errdetail("The prefix \"%s\" is closed, and no row of zk_privileges gives role \"%s\" the privilege \"%s\".",
					   prefix, role, what) :
			 errdetail("Below another root the same znode has the name \"%s\". Its prefix \"%s\" is closed, and no row of zk_privileges gives role \"%s\" the privilege \"%s\". A session that chooses \"%s\" or \"%s\" itself needs the privilege for each name of the znode.",
					   refused, prefix, role, what, "zklock.root",
					   "zklock.servers"),
			 errhint("Let a superuser, or a role that may execute zk_grant(), run SELECT zk_grant('%s', %s, %s).",
					 what, quote_literal_cstr(prefix),
					 quote_literal_cstr(role))));
}

bool
zklock_privilege_allows(FunctionCallInfo fcinfo, const char *name,
						const char *what)
{
	const char *prefix;

	return find_refused(fcinfo, name, what, &prefix) == NULL;
}

bool
zklock_privilege_is_closed(FunctionCallInfo fcinfo, const char *name,
						   const char **prefix)
{
	read_rows(fcinfo);
	*prefix = find_prefix(name);
	if (*prefix == NULL && cache_has_lost_rows())
		*prefix = "";
	return *prefix != NULL;
}

bool
zklock_privilege_is_marked(Oid schema)
{
	HeapTuple	type = SearchSysCache2(TYPENAMENSP,
									   CStringGetDatum(ZK_CLOSED_MARK),
									   ObjectIdGetDatum(schema));
	bool		is_default;
	Datum		list;
	bool		is_everybodys;

	if (!HeapTupleIsValid(type))
		return false;			/* of a former script */
	list = SysCacheGetAttr(TYPENAMENSP, type, Anum_pg_type_typacl, &is_default);
	is_everybodys = is_default;
	if (!is_default)
	{
		const Acl  *acl = DatumGetAclP(list);
		const AclItem *items = ACL_DAT(acl);

		for (int i = 0; i < ACL_NUM(acl); i++)
			is_everybodys |= items[i].ai_grantee == ACL_ID_PUBLIC &&
				(ACLITEM_GET_PRIVS(items[i]) & ACL_USAGE) != 0;
	}
	ReleaseSysCache(type);
	return !is_everybodys;
}

/*
 * The name that the current role may not do that with: the one given, or one
 * that its znode has below another root.  NULL if there is none.  *prefix is the
 * longest one that covers it.
 *
 * A row has a name, and counts below every root.  Where the administrator has
 * chosen the root, the name below that is asked for.  A session that chooses it
 * itself would choose by which name it is judged.
 */
static const char *
find_refused(FunctionCallInfo fcinfo, const char *name, const char *what,
			 const char **prefix)
{
	Oid			role = GetUserId();

	if (zklock_privilege_is_closed(fcinfo, name, prefix) &&
		!is_given(name, role, what) && !superuser_arg(role))
		return name;
	if (Cache.rows == NIL || superuser_arg(role) || !zklock_name_is_root_chosen())
		return NULL;
	foreach_ptr(const char, other, zklock_name_others(name))
	{
		*prefix = find_prefix(other);

		/* all names are closed below the root that is asked for */
		if (*prefix != NULL && (*prefix)[0] != '\0' &&
			!is_given(other, role, what))
			return other;
	}
	return NULL;
}

/* Does a row give the role that? */
static bool
is_given(const char *name, Oid role, const char *what)
{
	foreach_ptr(const Row, row, Cache.rows)
		if (covers(row, name) && gives(row, role, what))
			return true;
	return false;
}

/* The longest prefix with a row that covers the name, or NULL. */
static const char *
find_prefix(const char *name)
{
	const char *prefix = NULL;

	foreach_ptr(const Row, row, Cache.rows)
		if (covers(row, name) &&
			(prefix == NULL || strlen(row->prefix) > strlen(prefix)))
			prefix = row->prefix;
	return prefix;
}

/* Had zk_closed rows that were lost?  By what was read of it. */
static bool
cache_has_lost_rows(void)
{
	return Cache.nclosed == 0 && zklock_privilege_is_marked(Cache.schema);
}

/* The empty prefix covers all names; others the name and those below it. */
static bool
covers(const Row *row, const char *name)
{
	size_t		length = strlen(row->prefix);

	return length == 0 ||
		(strncmp(row->prefix, name, length) == 0 &&
		 (name[length] == '\0' || name[length] == '/'));
}

/* Does the row give that role what it asks for? */
static bool
gives(const Row *row, Oid role, const char *what)
{
	if (row->what == NULL ||
		!(row->is_everybody ||
		  (OidIsValid(row->role) && has_privs_of_role(role, row->role))))
		return false;
	return strcmp(row->what, what) == 0 ||
		(strcmp(row->what, ZK_MAY_LOCK) == 0 &&
		 strcmp(what, ZK_MAY_SHARE) == 0);
}

/*
 * Read the tables unless that was done.  By a snapshot of this moment, as all
 * that PostgreSQL's own privileges rest on: a transaction's own may be old.
 *
 * Each table has a snapshot of its own.  The removal of the last row of a
 * prefix from zk_privileges leaves a row in zk_closed, so zk_closed is read
 * last.
 */
static void
read_rows(FunctionCallInfo fcinfo)
{
	Relation	privileges;
	Relation	closed;
	int			nprivileges;
	uint64		as_of;

	if (Cache.is_current)
		return;
	if (Cache.context == NULL)
	{
		CacheRegisterRelcacheCallback(forget_rows, (Datum) 0);
		Cache.context = AllocSetContextCreate(TopMemoryContext,
										   "zklock privileges",
										   ALLOCSET_SMALL_SIZES);
	}
	Cache.rows = NIL;
	MemoryContextReset(Cache.context);
	Cache.schema = get_func_namespace(fcinfo->flinfo->fn_oid);
	Cache.privileges = get_relname_relid("zk_privileges", Cache.schema);
	Cache.closed = get_relname_relid("zk_closed", Cache.schema);
	privileges = table_open(Cache.privileges, AccessShareLock);
	closed = table_open(Cache.closed, AccessShareLock);
	as_of = Cache.nchanges;
	read_table(privileges);
	nprivileges = list_length(Cache.rows);
	read_table(closed);
	Cache.nclosed = list_length(Cache.rows) - nprivileges;
	table_close(closed, AccessShareLock);
	table_close(privileges, AccessShareLock);
	Cache.is_current = as_of == Cache.nchanges;
}

/* Add the table's rows to those that we have. */
static void
read_table(Relation table)
{
	SysScanDesc scan = systable_beginscan(table, InvalidOid, false, NULL, 0,
										  NULL);
	HeapTuple	tuple;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		MemoryContext caller = MemoryContextSwitchTo(Cache.context);

		Cache.rows = lappend(Cache.rows, read_row(table, tuple));
		MemoryContextSwitchTo(caller);
	}
	systable_endscan(scan);
}

static Row *
read_row(Relation table, HeapTuple tuple)
{
	TupleDesc	columns = RelationGetDescr(table);
	Row		   *row = palloc0(sizeof(*row));
	bool		is_null;		/* none is */
	char	   *prefix = TextDatumGetCString(heap_getattr(tuple, 1, columns,
														  &is_null));

	row->prefix = zklock_name_try_spell(prefix);
	if (row->prefix == NULL)
		row->prefix = prefix;	/* which no name begins with */
	if (RelationGetRelid(table) == Cache.closed)
		return row;
	row->role = zklock_role_oid(heap_getattr(tuple, 2, columns, &is_null),
								&row->is_everybody);
	row->what = TextDatumGetCString(heap_getattr(tuple, 3, columns, &is_null));
	return row;
}

/* PostgreSQL calls this, also where nothing may be read or raised. */
static void
forget_rows(Datum arg, Oid relation)
{
	if (relation != InvalidOid && relation != Cache.privileges &&
		relation != Cache.closed)
		return;
	Cache.nchanges++;
	Cache.is_current = false;
}
