/*-------------------------------------------------------------------------
 *
 * grant.c
 *	  Privileges by name are given and taken: zk_grant(), zk_revoke(),
 *	  zk_open(), and what follows from any change of their tables.
 *
 * What must hold for each change, whoever makes it and however, triggers do:
 * COPY, a restore and a subscription change the tables, too.  A prefix that
 * rows of zk_privileges are taken from stays in zk_closed; all backends are
 * told, and the log says who did what; a role that has rows cannot be dropped.
 * The triggers are fired ALWAYS, and for each row: where a subscription applies
 * changes no others are fired.
 *
 * The row of zk_closed is made ahead of the change that it is for.  So it
 * comes first to a subscriber, too, whose trigger then finds it there.  For the
 * same reason no trigger makes one for a row that is inserted: a subscription
 * that copies both tables would find it in its way.
 *
 * DROP ROLE asks PostgreSQL's list of what depends on a role, in all databases,
 * and an extension's rows are not in it.  Privileges for a type are.  So each
 * role with rows is granted USAGE of a type that nothing uses.  (Not of zk_role:
 * whoever has that can make operators, for others to run unawares.)
 *
 * A row that is added and is there already is passed over.  A restore or the
 * first copy of a subscription would fail for it as a whole otherwise, and what
 * its other rows close would be open.
 *
 * Where a restore cannot read one row of zk_closed it loses all of them.  So
 * that it opens nothing then, PUBLIC has no USAGE of the type _zk_unclosed while
 * the table has rows, which is part of a dump, too (privilege.c).
 *
 * Whoever changes something here waits for others who do: what one looks at
 * before its change, others must not change meanwhile.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "grant.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/varlena.h"

#include "args.h"
#include "compat.h"
#include "name.h"
#include "nodedata.h"
#include "privilege.h"
#include "role.h"
#include "text.h"

/* Columns of zk_privileges; the first one is that of zk_closed, too. */
#define COLUMN_PREFIX 1
#define COLUMN_ROLE 2
#define COLUMN_PRIVILEGE 3

/* Most parameters of a command here. */
#define PARAMETERS_MAX 4

/* How zk_grant() and zk_revoke() call everybody. */
#define PUBLIC_NAME "public"

/* The type whose USAGE lets DROP ROLE know of rows. */
#define DEPENDENCY_TYPE "zk_privileges_by_name"

/* What stands for all privileges, and for none. */
#define ALL_WORD "all"
#define NONE_WORD "none"

static const char *const privileges[] = {
	ZK_MAY_SHARE, ZK_MAY_LOCK, ZK_MAY_LOOK, ZK_MAY_REQUEST, ZK_MAY_RUN,
	ZK_MAY_HOLD, ZK_MAY_LEASE, ZK_MAY_EVICT
};

#define NPRIVILEGES ((int) lengthof(privileges))

/* Parameters of a command that reads or changes the tables. */
typedef struct Parameters
{
	int			number;
	Oid			types[PARAMETERS_MAX];
	Datum		values[PARAMETERS_MAX];
	char		nulls[PARAMETERS_MAX];	/* 'n', or ' ' if there is a value */
} Parameters;

/* Who somebody is, while somebody else acts. */
typedef struct Identity
{
	Oid			user;
	int			context;
} Identity;

PG_FUNCTION_INFO_V1(zk_grant);
PG_FUNCTION_INFO_V1(zk_revoke);
PG_FUNCTION_INFO_V1(zk_open);
PG_FUNCTION_INFO_V1(zk_privileges_adding);
PG_FUNCTION_INFO_V1(zk_privileges_closing);
PG_FUNCTION_INFO_V1(zk_privileges_changed);
PG_FUNCTION_INFO_V1(zk_privileges_emptied);

static char *read_prefix(FunctionCallInfo fcinfo, int number);
static Oid	read_role(FunctionCallInfo fcinfo, const char **shown,
					  bool *is_found);
static bool is_as_shown(const char *role);
static Datum read_privileges(FunctionCallInfo fcinfo, bool may_be_none);
static bool is_privilege(const char *word);
pg_noreturn static void refuse_privilege(const char *word, bool may_be_none);
static Oid	begin_change(FunctionCallInfo fcinfo, const char *function);
static void lock_changes(Oid schema);
static bool is_there(HeapTuple row, Relation table);
static void add_column(Parameters *parameters, HeapTuple row, Relation table,
					   int column);
static void add_parameter(Parameters *parameters, Oid type, Datum value);
static void add_text(Parameters *parameters, const char *value);
static void add_role(Parameters *parameters, Oid schema, bool is_known,
					 Oid role);
static uint64 run(const char *text, Parameters *parameters);
static const char *quoted_schema(Oid schema);
static void close_prefix(Oid schema, const char *prefix);
static void tell_if_last(Oid schema, const char *prefix);
static void begin_as_owner(Relation table, Identity *before);
static void end_as_owner(const Identity *before);
static void become_owner(Relation table, Identity *before);
static void become(const Identity *identity);
static Oid	find_schema(void);
static void delete_rows(Oid schema, Oid role);
static Oid	role_type(Oid schema);
static bool is_privileges(Relation table);
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
static bool is_empty(Relation table);
static bool table_has_lost_rows(Oid schema);
static void run_as_owner(Relation table, const char *text);

/* ---------------------------------------------------------------------
 * SQL functions
 * ---------------------------------------------------------------------
 */

Datum
zk_grant(PG_FUNCTION_ARGS)
{
	Datum		given = read_privileges(fcinfo, true);
	char	   *prefix = read_prefix(fcinfo, 1);
	const char *shown;
	bool		is_found;
	Oid			role = read_role(fcinfo, &shown, &is_found);
	Oid			schema;
	Parameters	parameters = {0};

	if (!is_found)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("role \"%s\" does not exist", shown),
				 errhint("Write the name of a role as it is, without quotes of its own, or \"public\" for everybody.")));
	schema = begin_change(fcinfo, "zk_grant()");
	close_prefix(schema, prefix);
	add_text(&parameters, prefix);
	add_role(&parameters, schema, true, role);
	add_parameter(&parameters, TEXTARRAYOID, given);
	(void) run(psprintf("INSERT INTO %s.zk_privileges (prefix, role, privilege)"
						" SELECT $1, $2, p FROM pg_catalog.unnest($3) AS p"
						" ON CONFLICT DO NOTHING", quoted_schema(schema)),
			   &parameters);	/* it may be there */
	SPI_finish();
	PG_RETURN_VOID();
}

/*
 * A row may be called by what the table shows, too: of a role that is gone
 * there is nothing else.
 */
Datum
zk_revoke(PG_FUNCTION_ARGS)
{
	Datum		taken = read_privileges(fcinfo, false);
	char	   *prefix = read_prefix(fcinfo, 1);
	const char *shown;
	bool		is_found;
	Oid			role = read_role(fcinfo, &shown, &is_found);
	Oid			schema;
	const char *name;
	Parameters	parameters = {0};

	if (!is_found && !is_as_shown(shown))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("role \"%s\" does not exist", shown),
				 errhint("A role that is gone is called as zk_privileges shows it, with \"!\" ahead.")));
	schema = begin_change(fcinfo, "zk_revoke()");
	name = quoted_schema(schema);
	add_text(&parameters, prefix);
	add_role(&parameters, schema, is_found, role);
	add_text(&parameters, shown);
	add_parameter(&parameters, TEXTARRAYOID, taken);
	if (run(psprintf("DELETE FROM %s.zk_privileges AS p"
					 " WHERE p.prefix OPERATOR(pg_catalog.=) $1"
					 " AND (p.role OPERATOR(%s.=) $2"
					 " OR CAST(p.role AS pg_catalog.text) OPERATOR(pg_catalog.=) $3)"
					 " AND p.privilege OPERATOR(pg_catalog.=) ANY ($4)",
					 name, name), &parameters) > 0)
		tell_if_last(schema, prefix);
	else
		ereport(WARNING,
				(errcode(ERRCODE_WARNING_PRIVILEGE_NOT_REVOKED),
				 errmsg("no privileges on \"%s\" could be revoked from \"%s\"",
						prefix, shown),
				 errdetail("No row of zk_privileges has this prefix, this role and such a privilege."),
				 errhint("SELECT * FROM zk_privileges shows what there is. A row of a shorter prefix, or of another role, is a row of its own.")));
	SPI_finish();
	PG_RETURN_VOID();
}

/* The rows first: their trigger would close the prefix again. */
Datum
zk_open(PG_FUNCTION_ARGS)
{
	char	   *prefix = read_prefix(fcinfo, 0);
	Oid			schema = begin_change(fcinfo, "zk_open()");
	const char *name = quoted_schema(schema);
	const char *covering;
	Parameters	parameters = {0};
	uint64		nrows;

	add_text(&parameters, prefix);
	nrows = run(psprintf("DELETE FROM %s.zk_privileges AS p"
						 " WHERE p.prefix OPERATOR(pg_catalog.=) $1", name),
				&parameters);
	if (prefix[0] == '\0' && table_has_lost_rows(schema))
		close_prefix(schema, "");
	nrows += run(psprintf("DELETE FROM %s.zk_closed AS c"
						  " WHERE c.prefix OPERATOR(pg_catalog.=) $1", name),
				 &parameters);
	if (nrows == 0)
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg("prefix \"%s\" was not closed", prefix),
				 errdetail("No row of zk_privileges or zk_closed has this prefix.")));
	if (zklock_privilege_is_closed(fcinfo, prefix, &covering))
		ereport(NOTICE,
				(errmsg("names below \"%s\" stay closed by the prefix \"%s\"",
						prefix, covering),
				 errhint("To open that one, too: SELECT zk_open(%s).",
						 quote_literal_cstr(covering))));
	SPI_finish();
	PG_RETURN_VOID();
}

/* ---------------------------------------------------------------------
 * Triggers
 * ---------------------------------------------------------------------
 */

/*
 * Ahead of a row that is added to either table: one that is there already is
 * passed over, so that those with it are not lost.
 */
Datum
zk_privileges_adding(PG_FUNCTION_ARGS)
{
	TriggerData *data = (TriggerData *) fcinfo->context;
	Relation	table;
	Identity	caller;
	bool		is_known;

	if (!CALLED_AS_TRIGGER(fcinfo))
		return PointerGetDatum(NULL);
	table = data->tg_relation;
	lock_changes(RelationGetNamespace(table));
	begin_as_owner(table, &caller);
	is_known = is_there(data->tg_trigtuple, table);
	end_as_owner(&caller);
	return PointerGetDatum(is_known ? NULL : data->tg_trigtuple);
}

/*
 * Ahead of what takes a row from zk_privileges: its prefix stays closed.  That
 * is done as the table's owner, for whoever may do the one may do the other.
 */
Datum
zk_privileges_closing(PG_FUNCTION_ARGS)
{
	TriggerData *data = (TriggerData *) fcinfo->context;
	Relation	table;
	Oid			schema;
	Identity	caller;

	if (!CALLED_AS_TRIGGER(fcinfo))
		return PointerGetDatum(NULL);
	table = data->tg_relation;
	schema = RelationGetNamespace(table);
	lock_changes(schema);
	begin_as_owner(table, &caller);
	close_prefix(schema, text_of(data->tg_trigtuple, table, COLUMN_PREFIX));
	end_as_owner(&caller);
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
	lock_changes(RelationGetNamespace(table));
	if (!is_privileges(table))
		mark_closed(table, added != NULL || !is_empty(table));
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
	Identity	caller;
	SysScanDesc scan;
	HeapTuple	row;
	List	   *roles = NIL;
	ListCell   *cell;

	if (!CALLED_AS_TRIGGER(fcinfo))
		return PointerGetDatum(NULL);
	table = ((TriggerData *) fcinfo->context)->tg_relation;
	schema = RelationGetNamespace(table);
	lock_changes(schema);
	begin_as_owner(table, &caller);
	scan = systable_beginscan(table, InvalidOid, false, NULL, 0, NULL);
	while (HeapTupleIsValid(row = systable_getnext(scan)))
	{
		log_change(row, table, false);
		if (!is_privileges(table))
			continue;
		close_prefix(schema, text_of(row, table, COLUMN_PREFIX));
		roles = list_append_unique_oid(roles, role_of(row, table));
	}
	systable_endscan(scan);
	foreach(cell, roles)
		forget_dependency(table, lfirst_oid(cell));
	if (!is_privileges(table))
		mark_closed(table, false);
	end_as_owner(&caller);
	return PointerGetDatum(NULL);
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

/* As the owner: whoever may drop what a role has may drop these, too. */
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
		Identity	caller;
		ListCell   *cell;

		lock_changes(schema);
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

	if (run("SELECT e.extnamespace FROM pg_catalog.pg_extension AS e"
			" WHERE e.extname OPERATOR(pg_catalog.=) 'zklock'::pg_catalog.name",
			&(Parameters) {0}) == 0)
		return InvalidOid;
	return DatumGetObjectId(SPI_getbinval(SPI_tuptable->vals[0],
										  SPI_tuptable->tupdesc, 1,
										  &is_null));
}

static void
delete_rows(Oid schema, Oid role)
{
	const char *name = quoted_schema(schema);
	Parameters	parameters = {0};

	add_role(&parameters, schema, true, role);
	(void) run(psprintf("DELETE FROM %s.zk_privileges AS p"
						" WHERE p.role OPERATOR(%s.=) $1", name, name),
			   &parameters);	/* it may have none */
}

/* ---------------------------------------------------------------------
 * Arguments
 * ---------------------------------------------------------------------
 */

/* A name, or the empty prefix; raises 42602 if it is neither. */
static char *
read_prefix(FunctionCallInfo fcinfo, int number)
{
	char	   *prefix = zklock_args_spelled(fcinfo, number, "prefix");

	if (prefix[0] != '\0')
		(void) zklock_name_path(prefix, NULL);	/* it raises */
	return prefix;
}

/*
 * The role, or InvalidOid for everybody; if not *is_found, there is none of
 * that name.
 */
static Oid
read_role(FunctionCallInfo fcinfo, const char **shown, bool *is_found)
{
	Oid			role;

	*shown = zklock_args_text(fcinfo, 2, "role");
	*is_found = strcmp(*shown, PUBLIC_NAME) == 0;
	if (*is_found)
		return InvalidOid;
	role = get_role_oid(*shown, true);
	*is_found = OidIsValid(role);
	return role;
}

/* May zk_privileges show a role so that is not called so? */
static bool
is_as_shown(const char *role)
{
	return role[0] != '\0' && strchr("!-\"", role[0]) != NULL;
}

/*
 * The privileges of a list with commas, as an array of texts.  They are words,
 * as in GRANT: in upper case they are the same.
 */
static Datum
read_privileges(FunctionCallInfo fcinfo, bool may_be_none)
{
	const char *list = zklock_args_text(fcinfo, 0, "privilege");
	List	   *words;
	const char *first;
	Datum		found[NPRIVILEGES];
	int			nfound = 0;

	if (!SplitIdentifierString(pstrdup(list), ',', &words) || words == NIL ||
		list_length(words) > NPRIVILEGES)
		refuse_privilege(list, may_be_none);
	first = linitial(words);
	if (list_length(words) == 1 && strcmp(first, ALL_WORD) == 0)
		for (int i = 0; i < NPRIVILEGES; i++)
			found[nfound++] = CStringGetTextDatum(privileges[i]);
	else if (list_length(words) > 1 || strcmp(first, NONE_WORD) != 0 ||
			 !may_be_none)
		foreach_ptr(const char, word, words)
		{
			if (!is_privilege(word))
				refuse_privilege(word, may_be_none);
			found[nfound++] = CStringGetTextDatum(word);
		}
	return PointerGetDatum(construct_array(found, nfound, TEXTOID, -1, false,
										   TYPALIGN_INT));
}

static bool
is_privilege(const char *word)
{
	for (int i = 0; i < NPRIVILEGES; i++)
		if (strcmp(privileges[i], word) == 0)
			return true;
	return false;
}

static void
refuse_privilege(const char *word, bool may_be_none)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unrecognized privilege \"%s\"", word),
			 errdetail("The privileges are share, lock, look, request, run, hold, lease and evict."),
			 may_be_none ?
			 errhint("The arguments are privilege, prefix and role, in the order of GRANT. Name one privilege, several with commas, \"all\", or \"none\", which only closes the names.") :
			 errhint("The arguments are privilege, prefix and role, in the order of REVOKE. Name one privilege, several with commas, or \"all\". zk_open() opens names that are closed.")));
}

/* ---------------------------------------------------------------------
 * Changes
 * ---------------------------------------------------------------------
 */

/* The schema of the tables; from here to SPI_finish() SPI can be used. */
static Oid
begin_change(FunctionCallInfo fcinfo, const char *function)
{
	Oid			schema = get_func_namespace(fcinfo->flinfo->fn_oid);

	PreventCommandIfReadOnly(function);
	lock_changes(schema);
	SPI_connect();
	return schema;
}

/*
 * To the end of the transaction: nobody else changes the tables.  Reading goes
 * on, and so do changes that began earlier.  It is no lock of the table: who owns
 * the database may ANALYZE that in a transaction, and would keep a revocation
 * waiting for as long as he likes.
 */
static void
lock_changes(Oid schema)
{
	LockDatabaseObject(RelationRelationId,
					   get_relname_relid("zk_privileges", schema), 0,
					   ExclusiveLock);
}

/* Has the table a row with the key of this one?  Uses SPI. */
static bool
is_there(HeapTuple row, Relation table)
{
	const char *name = quoted_schema(RelationGetNamespace(table));
	Parameters	parameters = {0};

	add_column(&parameters, row, table, COLUMN_PREFIX);
	if (!is_privileges(table))
		return run(psprintf("SELECT FROM %s.zk_closed AS c"
							" WHERE c.prefix OPERATOR(pg_catalog.=) $1", name),
				   &parameters) > 0;
	add_column(&parameters, row, table, COLUMN_ROLE);
	add_column(&parameters, row, table, COLUMN_PRIVILEGE);
	return run(psprintf("SELECT FROM %s.zk_privileges AS p"
						" WHERE p.prefix OPERATOR(pg_catalog.=) $1"
						" AND p.role OPERATOR(%s.=) $2"
						" AND p.privilege OPERATOR(pg_catalog.=) $3", name,
						name), &parameters) > 0;
}

/* What the row has in that column, which is a NULL where it is refused later. */
static void
add_column(Parameters *parameters, HeapTuple row, Relation table, int column)
{
	TupleDesc	columns = RelationGetDescr(table);
	bool		is_null;
	Datum		value = heap_getattr(row, column, columns, &is_null);

	add_parameter(parameters, TupleDescAttr(columns, column - 1)->atttypid,
				  value);
	if (is_null)
		parameters->nulls[parameters->number - 1] = 'n';
}

static void
add_parameter(Parameters *parameters, Oid type, Datum value)
{
	int			i = parameters->number++;

	Assert(i < PARAMETERS_MAX);
	parameters->types[i] = type;
	parameters->values[i] = value;
	parameters->nulls[i] = ' ';
}

static void
add_text(Parameters *parameters, const char *value)
{
	add_parameter(parameters, TEXTOID, CStringGetTextDatum(value));
}

/* A zk_role; a NULL unless it is known. */
static void
add_role(Parameters *parameters, Oid schema, bool is_known, Oid role)
{
	add_parameter(parameters, role_type(schema), zklock_role_value(role));
	if (!is_known)
		parameters->nulls[parameters->number - 1] = 'n';
}

/* Run a command; how many rows it has found or changed. */
static uint64
run(const char *text, Parameters *parameters)
{
	int			result PG_USED_FOR_ASSERTS_ONLY =
		SPI_execute_with_args(text, parameters->number, parameters->types,
							  parameters->values, parameters->nulls, false, 0);

	Assert(result >= 0);		/* what fails raises */
	return SPI_processed;
}

static const char *
quoted_schema(Oid schema)
{
	return quote_identifier(get_namespace_name(schema));
}

/*
 * Have a row of zk_closed for the prefix.  If the rows were lost, it is not to
 * look as if this were the only one: what was closed for that stays so.
 */
static void
close_prefix(Oid schema, const char *prefix)
{
	Parameters	parameters = {0};

	if (prefix[0] != '\0' && table_has_lost_rows(schema))
		close_prefix(schema, "");
	add_text(&parameters, prefix);
	(void) run(psprintf("INSERT INTO %s.zk_closed (prefix) VALUES ($1)"
						" ON CONFLICT DO NOTHING", quoted_schema(schema)),
			   &parameters);	/* it may be there */
}

/* Whoever takes away may believe that all is as it was before. */
static void
tell_if_last(Oid schema, const char *prefix)
{
	Parameters	parameters = {0};

	add_text(&parameters, prefix);
	if (run(psprintf("SELECT FROM %s.zk_privileges AS p"
					 " WHERE p.prefix OPERATOR(pg_catalog.=) $1",
					 quoted_schema(schema)), &parameters) == 0)
		ereport(NOTICE,
				(errmsg("prefix \"%s\" stays closed, and no row gives it to anybody",
						prefix),
				 errdetail("Only superusers, and roles to which a row of a shorter prefix gives something, may use these names."),
				 errhint("To open them to everybody: SELECT zk_open(%s).",
						 quote_literal_cstr(prefix))));
}

/* From here to end_as_owner() SPI can be used, as the table's owner. */
static void
begin_as_owner(Relation table, Identity *before)
{
	SPI_connect();
	become_owner(table, before);
}

static void
end_as_owner(const Identity *before)
{
	become(before);
	SPI_finish();
}

/* Act as the table's owner; *before is who does otherwise. */
static void
become_owner(Relation table, Identity *before)
{
	GetUserIdAndSecContext(&before->user, &before->context);
	SetUserIdAndSecContext(RelationGetForm(table)->relowner,
						   before->context | SECURITY_LOCAL_USERID_CHANGE);
}

static void
become(const Identity *identity)
{
	SetUserIdAndSecContext(identity->user, identity->context);
}

/* ---------------------------------------------------------------------
 * Rows
 * ---------------------------------------------------------------------
 */

static Oid
role_type(Oid schema)
{
	return GetSysCacheOid2(TYPENAMENSP, Anum_pg_type_oid,
						   CStringGetDatum("zk_role"),
						   ObjectIdGetDatum(schema));
}

/* Is it zk_privileges, or zk_closed? */
static bool
is_privileges(Relation table)
{
	return strcmp(RelationGetRelationName(table), "zk_privileges") == 0;
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

	return heap_getattr(row, COLUMN_ROLE, RelationGetDescr(table), &is_null);
}

/* Whose row it is: InvalidOid for everybody, and for nobody. */
static Oid
role_of(HeapTuple row, Relation table)
{
	bool		is_everybody;

	return zklock_role_oid(role_value_of(row, table), &is_everybody);
}

/*
 * Who has done that, for whoever reads the log later.  The current role is the
 * owner of zk_grant(); the one that matters has called it.
 */
static void
log_change(HeapTuple row, Relation table, bool is_added)
{
	const char *caller = zklock_nodedata_caller_as(GetOuterUserId());
	const char *prefix =
		zklock_text_quotable_own(text_of(row, table, COLUMN_PREFIX));

	if (is_privileges(table))
		log_privilege(caller, prefix, text_of(row, table, COLUMN_PRIVILEGE),
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
	return is_everybody ? PUBLIC_NAME :
		zklock_text_quotable_own(zklock_role_shown(value));
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
 * What DROP ROLE knows
 * ---------------------------------------------------------------------
 */

/* Have it known that the role has rows. */
static void
depend_on(Relation table, Oid role)
{
	if (can_be_dropped(table, role) && !is_depended_on(table, role))
		run_as_owner(table,
					 psprintf("GRANT USAGE ON TYPE %s." DEPENDENCY_TYPE " TO %s",
							  quoted_schema(RelationGetNamespace(table)),
							  quote_identifier(GetUserNameFromId(role, false))));
}

/* The other way round. */
static void
forget_dependency(Relation table, Oid role)
{
	if (can_be_dropped(table, role) && is_depended_on(table, role))
		run_as_owner(table,
					 psprintf("REVOKE USAGE ON TYPE %s." DEPENDENCY_TYPE " FROM %s",
							  quoted_schema(RelationGetNamespace(table)),
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

	Assert(HeapTupleIsValid(tuple));
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

	if (zklock_privilege_is_marked(schema) != is_closed)
		run_as_owner(table,
					 psprintf(is_closed ?
							  "REVOKE USAGE ON TYPE %s." ZK_CLOSED_MARK " FROM PUBLIC" :
							  "GRANT USAGE ON TYPE %s." ZK_CLOSED_MARK " TO PUBLIC",
							  quoted_schema(schema)));
}

/* Has it no row, whatever the transaction's snapshot, as this statement leaves it? */
static bool
is_empty(Relation table)
{
	SysScanDesc scan;
	bool		is_found;

	CommandCounterIncrement();
	scan = systable_beginscan(table, InvalidOid, false, NULL, 0, NULL);
	is_found = HeapTupleIsValid(systable_getnext(scan));
	systable_endscan(scan);
	return !is_found;
}

/* Had zk_closed rows that were lost? */
static bool
table_has_lost_rows(Oid schema)
{
	Relation	closed;
	bool		is_lost;

	if (!zklock_privilege_is_marked(schema))
		return false;
	closed = table_open(get_relname_relid("zk_closed", schema),
						AccessShareLock);
	is_lost = is_empty(closed);
	table_close(closed, NoLock);
	return is_lost;
}

static void
run_as_owner(Relation table, const char *text)
{
	Identity	caller;

	begin_as_owner(table, &caller);
	(void) run(text, &(Parameters) {0});	/* no rows */
	end_as_owner(&caller);
}
