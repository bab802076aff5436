/*-------------------------------------------------------------------------
 *
 * grant.c
 *	  SQL functions by which privileges by name are given and taken.
 *
 * What follows from any change of their tables, triggers do (grant_trigger.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/varlena.h"

#include "args.h"
#include "compat.h"
#include "grant_table.h"
#include "name.h"
#include "privilege.h"

/* What stands for all privileges, and for none. */
#define ALL_WORD "all"
#define NONE_WORD "none"

static const char *const privileges[] = {
	ZK_MAY_SHARE, ZK_MAY_LOCK, ZK_MAY_LOOK, ZK_MAY_REQUEST, ZK_MAY_RUN,
	ZK_MAY_HOLD, ZK_MAY_LEASE, ZK_MAY_EVICT
};

#define NPRIVILEGES ((int) lengthof(privileges))

PG_FUNCTION_INFO_V1(zk_grant);
PG_FUNCTION_INFO_V1(zk_revoke);
PG_FUNCTION_INFO_V1(zk_open);

static Oid	begin_change(FunctionCallInfo fcinfo, const char *function);
static void tell_if_last(Oid schema, const char *prefix);
static char *read_prefix(FunctionCallInfo fcinfo, int number);
static Oid	read_role(FunctionCallInfo fcinfo, const char **shown,
					  bool *is_found);
static bool is_as_shown(const char *role);
static Datum read_privileges(FunctionCallInfo fcinfo, bool may_be_none);
static bool is_privilege(const char *word);
pg_noreturn static void refuse_privilege(const char *word, bool may_be_none);

Datum
zk_grant(PG_FUNCTION_ARGS)
{
	Datum		given = read_privileges(fcinfo, true);
	char	   *prefix = read_prefix(fcinfo, 1);
	const char *command;
	const char *shown;
	bool		is_found;
	Oid			role = read_role(fcinfo, &shown, &is_found);
	Oid			schema;
	ZkParameters	parameters = {0};

	if (!is_found)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("role \"%s\" does not exist", shown),
				 errhint("Write the name of the role without double quotes, or \"public\" for everybody.")));
	schema = begin_change(fcinfo, "zk_grant()");
	zklock_grant_close_prefix(schema, prefix);
	zklock_grant_add_text(&parameters, prefix);
	zklock_grant_add_role(&parameters, schema, true, role);
	zklock_grant_add_parameter(&parameters, TEXTARRAYOID, given);
	command = psprintf("INSERT INTO %s.zk_privileges (prefix, role, privilege)"
					   " SELECT $1, $2, p FROM pg_catalog.unnest($3) AS p"
					   " ON CONFLICT DO NOTHING",
					   zklock_grant_quoted_schema(schema));
	(void) zklock_grant_run(command, &parameters);	/* it may be there */
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
	ZkParameters	parameters = {0};

	if (!is_found && !is_as_shown(shown))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("role \"%s\" does not exist", shown),
				 errhint("Name a role that was dropped as zk_privileges shows it, with \"!\" in front.")));
	schema = begin_change(fcinfo, "zk_revoke()");
	name = zklock_grant_quoted_schema(schema);
	zklock_grant_add_text(&parameters, prefix);
	zklock_grant_add_role(&parameters, schema, is_found, role);
	zklock_grant_add_text(&parameters, shown);
	zklock_grant_add_parameter(&parameters, TEXTARRAYOID, taken);
	if (zklock_grant_run(psprintf("DELETE FROM %s.zk_privileges AS p"
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
				 errhint("See the rows that there are: SELECT * FROM zk_privileges. Revoke a privilege for exactly the prefix and the role of its row.")));
	SPI_finish();
	PG_RETURN_VOID();
}

/* The rows first: their trigger would close the prefix again. */
Datum
zk_open(PG_FUNCTION_ARGS)
{
	char	   *prefix = read_prefix(fcinfo, 0);
	Oid			schema = begin_change(fcinfo, "zk_open()");
	const char *name = zklock_grant_quoted_schema(schema);
	const char *covering;
	ZkParameters	parameters = {0};
	uint64		nrows;

	zklock_grant_add_text(&parameters, prefix);
	nrows = zklock_grant_run(psprintf("DELETE FROM %s.zk_privileges AS p"
						 " WHERE p.prefix OPERATOR(pg_catalog.=) $1", name),
							 &parameters);
	if (prefix[0] == '\0' && zklock_grant_has_lost_rows(schema))
		zklock_grant_close_prefix(schema, "");
	nrows += zklock_grant_run(psprintf("DELETE FROM %s.zk_closed AS c"
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
				 errhint("To open the shorter prefix, too, run SELECT zk_open(%s).",
						 quote_literal_cstr(covering))));
	SPI_finish();
	PG_RETURN_VOID();
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
	zklock_grant_lock_changes(schema);
	SPI_connect();
	return schema;
}

/* The last row of a prefix was taken away: tell that the names stay closed. */
static void
tell_if_last(Oid schema, const char *prefix)
{
	ZkParameters	parameters = {0};

	zklock_grant_add_text(&parameters, prefix);
	if (zklock_grant_run(psprintf("SELECT FROM %s.zk_privileges AS p"
					 " WHERE p.prefix OPERATOR(pg_catalog.=) $1",
					 zklock_grant_quoted_schema(schema)), &parameters) == 0)
		ereport(NOTICE,
				(errmsg("prefix \"%s\" stays closed, and no row gives it to anybody",
						prefix),
				 errdetail("Only superusers, and roles to which a row of a shorter prefix gives a privilege, may use these names."),
				 errhint("To open the names to everybody, run SELECT zk_open(%s).",
						 quote_literal_cstr(prefix))));
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
	*is_found = strcmp(*shown, ZK_PUBLIC_NAME) == 0;
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
