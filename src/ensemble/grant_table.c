/*-------------------------------------------------------------------------
 *
 * grant_table.c
 *	  The tables zk_privileges and zk_closed, for the functions and triggers
 *	  that change them.
 *
 * A transaction that changes one of them waits for other transactions that do.
 * So nothing that it has read before its change is changed meanwhile.
 *
 *-------------------------------------------------------------------------
 */
#include "grant_table.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "compat.h"
#include "nodedata.h"
#include "privilege.h"
#include "role.h"

static Oid	role_type(Oid schema);
static void become_owner(Relation table, ZkIdentity *before);
static void become(const ZkIdentity *identity);
static Oid	find_schema(void);
static void delete_rows(Oid schema, Oid role);

/* ---------------------------------------------------------------------
 * Commands
 * ---------------------------------------------------------------------
 */

void
zklock_grant_add_column(ZkParameters *parameters, HeapTuple row, Relation table, int column)
{
	TupleDesc	columns = RelationGetDescr(table);
	bool		is_null;
	Datum		value = heap_getattr(row, column, columns, &is_null);

	zklock_grant_add_parameter(parameters, TupleDescAttr(columns, column - 1)->atttypid,
							   value);
	if (is_null)
		parameters->nulls[parameters->number - 1] = 'n';
}

void
zklock_grant_add_parameter(ZkParameters *parameters, Oid type, Datum value)
{
	int			i = parameters->number++;

	Assert(i < ZK_PARAMETERS_MAX);
	parameters->types[i] = type;
	parameters->values[i] = value;
	parameters->nulls[i] = ' ';
}

void
zklock_grant_add_text(ZkParameters *parameters, const char *value)
{
	zklock_grant_add_parameter(parameters, TEXTOID, CStringGetTextDatum(value));
}

void
zklock_grant_add_role(ZkParameters *parameters, Oid schema, bool is_known, Oid role)
{
	zklock_grant_add_parameter(parameters, role_type(schema), zklock_role_value(role));
	if (!is_known)
		parameters->nulls[parameters->number - 1] = 'n';
}

static Oid
role_type(Oid schema)
{
	return GetSysCacheOid2(TYPENAMENSP, Anum_pg_type_oid,
						   CStringGetDatum("zk_role"),
						   ObjectIdGetDatum(schema));
}

uint64
zklock_grant_run(const char *text, ZkParameters *parameters)
{
	int			result PG_USED_FOR_ASSERTS_ONLY =
		SPI_execute_with_args(text, parameters->number, parameters->types,
							  parameters->values, parameters->nulls, false, 0);

	Assert(result >= 0);		/* what fails raises */
	return SPI_processed;
}

void
zklock_grant_run_as_owner(Relation table, const char *text)
{
	ZkIdentity	caller;

	zklock_grant_begin_as_owner(table, &caller);
	(void) zklock_grant_run(text, &(ZkParameters) {0});	/* no rows */
	zklock_grant_end_as_owner(&caller);
}

const char *
zklock_grant_quoted_schema(Oid schema)
{
	const char *name = get_namespace_name(schema);

	if (name == NULL)
		elog(ERROR, "cache lookup failed for namespace %u", schema);
	return quote_identifier(name);
}

/* ---------------------------------------------------------------------
 * The acting role
 * ---------------------------------------------------------------------
 */

void
zklock_grant_begin_as_owner(Relation table, ZkIdentity *before)
{
	SPI_connect();
	become_owner(table, before);
}

void
zklock_grant_end_as_owner(const ZkIdentity *before)
{
	become(before);
	SPI_finish();
}

/* Act as the table's owner; *before is who does otherwise. */
static void
become_owner(Relation table, ZkIdentity *before)
{
	GetUserIdAndSecContext(&before->user, &before->context);
	SetUserIdAndSecContext(RelationGetForm(table)->relowner,
						   before->context | SECURITY_LOCAL_USERID_CHANGE);
}

static void
become(const ZkIdentity *identity)
{
	SetUserIdAndSecContext(identity->user, identity->context);
}

/* ---------------------------------------------------------------------
 * Rows
 * ---------------------------------------------------------------------
 */

/*
 * Reading goes on, and so do changes that began earlier.  It is no lock of the
 * table: the owner of the database may ANALYZE the table in a transaction, and a
 * revocation would wait for the end of that.
 */
void
zklock_grant_lock_changes(Oid schema)
{
	LockDatabaseObject(RelationRelationId,
					   get_relname_relid("zk_privileges", schema), 0,
					   ExclusiveLock);
}

/*
 * If the rows were lost, it is not to
 * look as if this were the only one: what was closed for that stays so.
 */
void
zklock_grant_close_prefix(Oid schema, const char *prefix)
{
	ZkParameters	parameters = {0};

	if (prefix[0] != '\0' && zklock_grant_has_lost_rows(schema))
		zklock_grant_close_prefix(schema, "");
	zklock_grant_add_text(&parameters, prefix);
	(void) zklock_grant_run(psprintf("INSERT INTO %s.zk_closed (prefix) VALUES ($1)"
						" ON CONFLICT DO NOTHING", zklock_grant_quoted_schema(schema)),
							&parameters);	/* it may be there */
}

bool
zklock_grant_has_lost_rows(Oid schema)
{
	Relation	closed;
	bool		is_lost;

	if (!zklock_privilege_is_marked(schema))
		return false;
	closed = table_open(get_relname_relid("zk_closed", schema),
						AccessShareLock);
	is_lost = zklock_grant_is_empty(closed);
	table_close(closed, NoLock);
	return is_lost;
}

bool
zklock_grant_is_empty(Relation table)
{
	SysScanDesc scan;
	bool		is_found;

	CommandCounterIncrement();
	scan = systable_beginscan(table, InvalidOid, false, NULL, 0, NULL);
	is_found = HeapTupleIsValid(systable_getnext(scan));
	systable_endscan(scan);
	return !is_found;
}

bool
zklock_grant_is_privileges(Relation table)
{
	return strcmp(RelationGetRelationName(table), "zk_privileges") == 0;
}

/* ---------------------------------------------------------------------
 * DROP EXTENSION and DROP OWNED
 * ---------------------------------------------------------------------
 */

void
zklock_grant_log_drop(Oid extension)
{
	const char *name = get_extension_name(extension);

	if (name != NULL && strcmp(name, "zklock") == 0)
		ereport(LOG_SERVER_ONLY,
				(errmsg("%s drops the extension zklock, and so opens all names",
						zklock_nodedata_caller_as(GetOuterUserId())),
				 errhidecontext(true)));
}

/* As the owner: a role that may drop what a role has may drop these, too. */
void
zklock_grant_forget_roles(List *roles)
{
	Oid			schema;

	SPI_connect();
	schema = find_schema();
	if (OidIsValid(schema))
	{
		Relation	table = table_open(get_relname_relid("zk_privileges", schema),
									   RowExclusiveLock);
		ZkIdentity	caller;
		ListCell   *cell;

		zklock_grant_lock_changes(schema);
		become_owner(table, &caller);
		foreach(cell, roles)
			delete_rows(schema, lfirst_oid(cell));
		become(&caller);
		table_close(table, NoLock);
	}
	SPI_finish();
}

/* That of the extension in this database, or InvalidOid. */
static Oid
find_schema(void)
{
	bool		is_null;

	if (zklock_grant_run("SELECT e.extnamespace FROM pg_catalog.pg_extension AS e"
						 " WHERE e.extname OPERATOR(pg_catalog.=) 'zklock'::pg_catalog.name",
						 &(ZkParameters) {0}) == 0)
		return InvalidOid;
	return DatumGetObjectId(SPI_getbinval(SPI_tuptable->vals[0],
										  SPI_tuptable->tupdesc, 1,
										  &is_null));
}

static void
delete_rows(Oid schema, Oid role)
{
	const char *name = zklock_grant_quoted_schema(schema);
	ZkParameters	parameters = {0};

	zklock_grant_add_role(&parameters, schema, true, role);
	(void) zklock_grant_run(psprintf("DELETE FROM %s.zk_privileges AS p"
						" WHERE p.role OPERATOR(%s.=) $1", name, name),
							&parameters);	/* it may have none */
}
