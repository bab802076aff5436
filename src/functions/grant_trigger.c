/*-------------------------------------------------------------------------
 *
 * grant_trigger.c
 *	  What follows from any change of the tables zk_privileges and zk_closed.
 *
 * Triggers do what must hold for each change, by whatever command: COPY, a
 * restore and a subscription change the tables, too.  A prefix from which rows
 * of zk_privileges are taken stays in zk_closed; all backends are told; the
 * log has a line with the role; and a role that has rows cannot be dropped.
 * The triggers are fired ALWAYS, and for each row: where a subscription
 * applies changes no others are fired.
 *
 * The row of zk_closed is made ahead of the change that it is for.  So it
 * comes first to a subscriber, too, whose trigger then finds it there.  For the
 * same reason no trigger makes one for a row that is inserted: a subscription
 * that copies both tables would find it in its way.
 *
 * DROP ROLE asks PostgreSQL's list of what depends on a role, in all
 * databases, and an extension's rows are not in it.  Privileges for a type
 * are.  So each role with rows is granted USAGE of a type that nothing uses.
 * (Not of zk_role: a role with USAGE of it can make operators that other roles
 * would run unawares.)
 *
 * A row that is added although it is there already is skipped.  Otherwise a
 * restore, or the first copy of a subscription, would fail as a whole, and the
 * names that its other rows close would be open.
 *
 * Where a restore cannot read one row of zk_closed it loses all of them.  So
 * that it opens nothing then, PUBLIC has no USAGE of the type _zk_unclosed while
 * the table has rows, which is part of a dump, too (privilege.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/xact.h"
#include "commands/trigger.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "compat.h"
#include "grant_table.h"
#include "nodedata.h"
#include "privilege.h"
#include "role.h"
#include "text.h"

/* The type whose USAGE lets DROP ROLE know of rows. */
#define DEPENDENCY_TYPE "zk_privileges_by_name"

PG_FUNCTION_INFO_V1(zk_privileges_adding);
PG_FUNCTION_INFO_V1(zk_privileges_closing);
PG_FUNCTION_INFO_V1(zk_privileges_changed);
PG_FUNCTION_INFO_V1(zk_privileges_emptied);

static bool is_there(HeapTuple row, Relation table);
static char *text_of(HeapTuple row, Relation table, int column);
static Datum role_value_of(HeapTuple row, Relation table);
static Oid	role_of(HeapTuple row, Relation table);
static void log_change(HeapTuple row, Relation table, bool is_added);
static const char *role_called(HeapTuple row, Relation table);
static void log_privilege(const char *caller, const char *prefix,
						  const char *privilege, const char *role,
						  bool is_added);
static void depend_on(Relation table, Oid role);
static void forget_dependency(Relation table, Oid role);
static bool can_be_dropped(Relation table, Oid role);
static bool is_depended_on(Relation table, Oid role);
static bool has_rows(Relation table, Oid role);
static void mark_closed(Relation table, bool is_closed);

/*
 * Ahead of a row that is added to either table: one that is there already is
 * passed over, so that those with it are not lost.
 */
Datum
zk_privileges_adding(PG_FUNCTION_ARGS)
{
	TriggerData *data = (TriggerData *) fcinfo->context;
	Relation	table;
	ZkIdentity	caller;
	bool		is_known;

	if (!CALLED_AS_TRIGGER(fcinfo))
		return PointerGetDatum(NULL);
	table = data->tg_relation;
	zklock_grant_lock_changes(RelationGetNamespace(table));
	zklock_grant_begin_as_owner(table, &caller);
	is_known = is_there(data->tg_trigtuple, table);
	zklock_grant_end_as_owner(&caller);
	return PointerGetDatum(is_known ? NULL : data->tg_trigtuple);
}

/*
 * Ahead of what takes a row from zk_privileges: its prefix stays closed.  That
 * is done as the table's owner, because a role that may do the one may do the
 * other.
 */
Datum
zk_privileges_closing(PG_FUNCTION_ARGS)
{
	TriggerData *data = (TriggerData *) fcinfo->context;
	Relation	table;
	Oid			schema;
	ZkIdentity	caller;

	if (!CALLED_AS_TRIGGER(fcinfo))
		return PointerGetDatum(NULL);
	table = data->tg_relation;
	schema = RelationGetNamespace(table);
	zklock_grant_lock_changes(schema);
	zklock_grant_begin_as_owner(table, &caller);
	zklock_grant_close_prefix(schema, text_of(data->tg_trigtuple, table, ZK_COLUMN_PREFIX));
	zklock_grant_end_as_owner(&caller);
	return PointerGetDatum(TRIGGER_FIRED_BY_UPDATE(data->tg_event) ?
						   data->tg_newtuple : data->tg_trigtuple);
}

/*
 * Behind each change of a row of either table.  Of an UPDATE the log says that
 * the old row is gone, and that the new one is there.
 */
Datum
zk_privileges_changed(PG_FUNCTION_ARGS)
{
	TriggerData *data = (TriggerData *) fcinfo->context;
	HeapTuple	gone = NULL;
	HeapTuple	added = NULL;
	Relation	table;

	if (!CALLED_AS_TRIGGER(fcinfo))
		return PointerGetDatum(NULL);
	table = data->tg_relation;
	if (TRIGGER_FIRED_BY_INSERT(data->tg_event))
		added = data->tg_trigtuple;
	else
		gone = data->tg_trigtuple;
	if (TRIGGER_FIRED_BY_UPDATE(data->tg_event))
		added = data->tg_newtuple;

	CacheInvalidateRelcache(table);
	if (gone != NULL)
		log_change(gone, table, false);
	if (added != NULL)
		log_change(added, table, true);
	zklock_grant_lock_changes(RelationGetNamespace(table));
	if (!zklock_grant_is_privileges(table))
		mark_closed(table, added != NULL || !zklock_grant_is_empty(table));
	else
	{
		if (added != NULL)
			depend_on(table, role_of(added, table));
		if (gone != NULL && !has_rows(table, role_of(gone, table)))
			forget_dependency(table, role_of(gone, table));
	}
	return PointerGetDatum(NULL);
}

/*
 * Ahead of a TRUNCATE of either table, of which PostgreSQL itself tells
 * everybody: what the others do for each row.
 */
Datum
zk_privileges_emptied(PG_FUNCTION_ARGS)
{
	Relation	table;
	Oid			schema;
	ZkIdentity	caller;
	SysScanDesc scan;
	HeapTuple	row;
	List	   *roles = NIL;
	ListCell   *cell;

	if (!CALLED_AS_TRIGGER(fcinfo))
		return PointerGetDatum(NULL);
	table = ((TriggerData *) fcinfo->context)->tg_relation;
	schema = RelationGetNamespace(table);
	zklock_grant_lock_changes(schema);
	zklock_grant_begin_as_owner(table, &caller);
	scan = systable_beginscan(table, InvalidOid, false, NULL, 0, NULL);
	while (HeapTupleIsValid(row = systable_getnext(scan)))
	{
		log_change(row, table, false);
		if (!zklock_grant_is_privileges(table))
			continue;
		zklock_grant_close_prefix(schema, text_of(row, table, ZK_COLUMN_PREFIX));
		roles = list_append_unique_oid(roles, role_of(row, table));
	}
	systable_endscan(scan);
	foreach(cell, roles)
		forget_dependency(table, lfirst_oid(cell));
	if (!zklock_grant_is_privileges(table))
		mark_closed(table, false);
	zklock_grant_end_as_owner(&caller);
	return PointerGetDatum(NULL);
}

/* ---------------------------------------------------------------------
 * Rows
 * ---------------------------------------------------------------------
 */

/* Has the table a row with the key of this one?  Uses SPI. */
static bool
is_there(HeapTuple row, Relation table)
{
	const char *name = zklock_grant_quoted_schema(RelationGetNamespace(table));
	ZkParameters	parameters = {0};

	zklock_grant_add_column(&parameters, row, table, ZK_COLUMN_PREFIX);
	if (!zklock_grant_is_privileges(table))
		return zklock_grant_run(psprintf("SELECT FROM %s.zk_closed AS c"
							" WHERE c.prefix OPERATOR(pg_catalog.=) $1", name),
								&parameters) > 0;
	zklock_grant_add_column(&parameters, row, table, ZK_COLUMN_ROLE);
	zklock_grant_add_column(&parameters, row, table, ZK_COLUMN_PRIVILEGE);
	return zklock_grant_run(psprintf("SELECT FROM %s.zk_privileges AS p"
						" WHERE p.prefix OPERATOR(pg_catalog.=) $1"
						" AND p.role OPERATOR(%s.=) $2"
						" AND p.privilege OPERATOR(pg_catalog.=) $3", name,
						name), &parameters) > 0;
}

static char *
text_of(HeapTuple row, Relation table, int column)
{
	bool		is_null;		/* none is */

	return TextDatumGetCString(heap_getattr(row, column,
											RelationGetDescr(table),
											&is_null));
}

static Datum
role_value_of(HeapTuple row, Relation table)
{
	bool		is_null;		/* it is not */

	return heap_getattr(row, ZK_COLUMN_ROLE, RelationGetDescr(table), &is_null);
}

/* The role of a row: InvalidOid for everybody, and for nobody. */
static Oid
role_of(HeapTuple row, Relation table)
{
	bool		is_everybody;

	return zklock_role_oid(role_value_of(row, table), &is_everybody);
}

/* ---------------------------------------------------------------------
 * The log
 * ---------------------------------------------------------------------
 */

/*
 * The role that has done that, for the log.  The current role is the
 * owner of zk_grant(); the one that matters has called it.
 */
static void
log_change(HeapTuple row, Relation table, bool is_added)
{
	const char *caller = zklock_nodedata_caller_as(GetOuterUserId());
	const char *prefix =
		zklock_text_quotable_own(text_of(row, table, ZK_COLUMN_PREFIX));

	if (zklock_grant_is_privileges(table))
		log_privilege(caller, prefix, text_of(row, table, ZK_COLUMN_PRIVILEGE),
					  role_called(row, table), is_added);
	else if (is_added)
		ereport(LOG_SERVER_ONLY,
				(errmsg("%s closes the prefix \"%s\"", caller, prefix),
				 errhidecontext(true)));
	else
		ereport(LOG_SERVER_ONLY,
				(errmsg("%s opens the prefix \"%s\"", caller, prefix),
				 errhidecontext(true)));
}

/* The row's role as zk_grant() calls it. */
static const char *
role_called(HeapTuple row, Relation table)
{
	Datum		value = role_value_of(row, table);
	bool		is_everybody;

	(void) zklock_role_oid(value, &is_everybody);	/* its name says more */
	if (is_everybody)
		return ZK_PUBLIC_NAME;
	return zklock_text_quotable_own(zklock_role_shown(value));
}

static void
log_privilege(const char *caller, const char *prefix, const char *privilege,
			  const char *role, bool is_added)
{
	if (is_added)
		ereport(LOG_SERVER_ONLY,
				(errmsg("%s grants \"%s\" on \"%s\" to \"%s\"", caller,
						privilege, prefix, role),
				 errhidecontext(true)));
	else
		ereport(LOG_SERVER_ONLY,
				(errmsg("%s revokes \"%s\" on \"%s\" from \"%s\"", caller,
						privilege, prefix, role),
				 errhidecontext(true)));
}

/* ---------------------------------------------------------------------
 * What DROP ROLE knows, and a dump
 * ---------------------------------------------------------------------
 */

/* Have it known that the role has rows. */
static void
depend_on(Relation table, Oid role)
{
	if (can_be_dropped(table, role) && !is_depended_on(table, role))
		zklock_grant_run_as_owner(table,
								  psprintf("GRANT USAGE ON TYPE %s." DEPENDENCY_TYPE " TO %s",
										   zklock_grant_quoted_schema(RelationGetNamespace(table)),
										   quote_identifier(GetUserNameFromId(role, false))));
}

/* The other way round. */
static void
forget_dependency(Relation table, Oid role)
{
	if (can_be_dropped(table, role) && is_depended_on(table, role))
		zklock_grant_run_as_owner(table,
								  psprintf("REVOKE USAGE ON TYPE %s." DEPENDENCY_TYPE " FROM %s",
										   zklock_grant_quoted_schema(RelationGetNamespace(table)),
										   quote_identifier(GetUserNameFromId(role, false))));
}

/* Is there such a role, and is it not kept by what it owns anyway? */
static bool
can_be_dropped(Relation table, Oid role)
{
	return OidIsValid(role) && role != RelationGetForm(table)->relowner &&
		GetUserNameFromId(role, true) != NULL;
}

static bool
is_depended_on(Relation table, Oid role)
{
	HeapTuple	tuple = SearchSysCache2(TYPENAMENSP,
										CStringGetDatum(DEPENDENCY_TYPE),
										ObjectIdGetDatum(RelationGetNamespace(table)));
	bool		is_null;
	bool		is_found = false;
	Datum		list;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for type \"%s\"", DEPENDENCY_TYPE);
	list = SysCacheGetAttr(TYPENAMENSP, tuple, Anum_pg_type_typacl, &is_null);
	if (!is_null)
	{
		const Acl  *acl = DatumGetAclP(list);
		const AclItem *items = ACL_DAT(acl);

		for (int i = 0; i < ACL_NUM(acl) && !is_found; i++)
			is_found = items[i].ai_grantee == role;
	}
	ReleaseSysCache(tuple);
	return is_found;
}

/* Has zk_privileges rows for the role, as this statement leaves it? */
static bool
has_rows(Relation table, Oid role)
{
	SysScanDesc scan;
	HeapTuple	row;
	bool		is_found = false;

	CommandCounterIncrement();
	scan = systable_beginscan(table, InvalidOid, false, NULL, 0, NULL);
	while (!is_found && HeapTupleIsValid(row = systable_getnext(scan)))
		is_found = role_of(row, table) == role;
	systable_endscan(scan);
	return is_found;
}

/* Have a dump say whether zk_closed, which is the table, has rows. */
static void
mark_closed(Relation table, bool is_closed)
{
	Oid			schema = RelationGetNamespace(table);
	const char *name = zklock_grant_quoted_schema(schema);

	if (zklock_privilege_is_marked(schema) == is_closed)
		return;
	if (is_closed)
		zklock_grant_run_as_owner(table,
								  psprintf("REVOKE USAGE ON TYPE %s." ZK_CLOSED_MARK " FROM PUBLIC",
										   name));
	else
		zklock_grant_run_as_owner(table,
								  psprintf("GRANT USAGE ON TYPE %s." ZK_CLOSED_MARK " TO PUBLIC",
										   name));
}
