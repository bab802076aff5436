/*-------------------------------------------------------------------------
 *
 * args.c
 *	  Reads the arguments of SQL functions, and puts their rows.
 *
 *-------------------------------------------------------------------------
 */
#include "args.h"

#include <math.h>

#include "access/htup_details.h"
#include "catalog/pg_type_d.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "replication/logicalworker.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "name_spelling.h"
#include "session.h"

/*
 * An apply worker runs triggers in such an operation since PostgreSQL 16, and
 * holds nobody's locks but its own.
 */
void
zklock_args_refuse_restricted(void)
{
	if (InSecurityRestrictedOperation() && !IsLogicalWorker())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("ZooKeeper locks cannot be used in a security-restricted operation"),
				 errdetail("An index expression, a materialized view or a similar function of an object's owner is being evaluated."),
				 errhint("Call the function in a statement of its own.")));
}

void
zklock_args_require(FunctionCallInfo fcinfo, int number, const char *what,
					const char *hint)
{
	if (PG_ARGISNULL(number))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be null", what),
				 hint != NULL ? errhint("%s", hint) : 0));
}

char *
zklock_args_text(FunctionCallInfo fcinfo, int number, const char *what)
{
	zklock_args_require(fcinfo, number, what, NULL);
	return text_to_cstring(PG_GETARG_TEXT_PP(number));
}

char *
zklock_args_spelled(FunctionCallInfo fcinfo, int number, const char *what)
{
	return zklock_name_spell(what, zklock_args_text(fcinfo, number, what));
}

int64
zklock_args_token(FunctionCallInfo fcinfo, int number)
{
	zklock_args_require(fcinfo, number, "fencing token", NULL);
	if (PG_GETARG_INT64(number) <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("fencing token must be greater than zero")));
	return PG_GETARG_INT64(number);
}

int
zklock_args_permits(FunctionCallInfo fcinfo, int number)
{
	int			permits;

	zklock_args_require(fcinfo, number, "number of permits", NULL);
	permits = PG_GETARG_INT32(number);
	if (permits < 1 || permits > RECIPE_PERMITS_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("number of permits must be between 1 and %d",
						RECIPE_PERMITS_MAX)));
	return permits;
}

int64
zklock_args_timeout(FunctionCallInfo fcinfo, int number, bool is_try)
{
	if (is_try)
		zklock_args_require(fcinfo, number, "timeout of a try",
							"Leave it out, or use zk_lock() to wait without a bound.");
	if (PG_ARGISNULL(number))
		return ZK_MS_MAX;
	return zklock_args_interval(fcinfo, number, "timeout");
}

int64
zklock_args_interval(FunctionCallInfo fcinfo, int number, const char *what)
{
	const Interval *interval = PG_GETARG_INTERVAL_P(number);
	double		ms = interval->time / 1000.0 +
		(interval->day + interval->month * (double) DAYS_PER_MONTH) *
		SECS_PER_DAY * 1000.0;

	if (ms < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not be negative", what)));
	return (int64) Min(ceil(ms), (double) ZK_MS_MAX);
}

ReturnSetInfo *
zklock_args_begin_rows(FunctionCallInfo fcinfo)
{
	InitMaterializedSRF(fcinfo, 0);
	return (ReturnSetInfo *) fcinfo->resultinfo;
}

const char *
zklock_args_mode(RecipeMode mode)
{
	return mode == RECIPE_SHARED ? "shared" : "exclusive";
}

char *
zklock_args_session_id(int64 session_id)
{
	return psprintf("0x%llx", (unsigned long long) session_id);
}

void
zklock_row_add(ZkRow *row, bool is_known, Datum value)
{
	Assert(row->ncolumns < ZK_COLUMNS_MAX);
	row->values[row->ncolumns] = value;
	row->nulls[row->ncolumns++] = !is_known || row->is_hidden;
}

void
zklock_row_add_text(ZkRow *row, const char *text)
{
	if (text != NULL)
		zklock_row_add(row, true, CStringGetTextDatum(text));
	else
		zklock_row_add(row, false, (Datum) 0);
	row->is_text[row->ncolumns - 1] = true;
}

void
zklock_row_add_session(ZkRow *row, int64 session_id)
{
	char	   *text = NULL;

	if (session_id != 0)
		text = zklock_args_session_id(session_id);
	zklock_row_add_text(row, text);
}

void
zklock_row_add_who(ZkRow *row, const ZkNodeData *who)
{
	zklock_row_add_text(row, who->cluster);
	zklock_row_add_text(row, who->database);
	zklock_row_add_text(row, who->username);
	zklock_row_add_text(row, who->application);
	zklock_row_add(row, who->pid != 0, Int32GetDatum(who->pid));
	zklock_row_add_text(row, who->host);
}

void
zklock_row_add_taken(ZkRow *row, const char *name, RecipeMode mode,
					 const char *state, const ZkTaken *taken, int64 token)
{
	zklock_row_add_text(row, name);
	zklock_row_add_text(row, zklock_args_mode(mode));
	zklock_row_add_text(row, state);
	for (int scope = 0; scope < ZK_NSCOPES; scope++)
		zklock_row_add(row, true, Int32GetDatum(taken->counts[scope]));
	zklock_row_add(row, true, Int64GetDatum(token));
}

/*
 * The database has the objects of one version, and the library may be of
 * another one. A number that is read as a text would end the server.
 */
static void
require_columns(TupleDesc desc, const ZkRow *row)
{
	bool		fits = row->ncolumns == desc->natts;

	for (int i = 0; fits && i < row->ncolumns; i++)
		fits = (TupleDescAttr(desc, i)->atttypid == TEXTOID) == row->is_text[i];
	if (!fits)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("this function of zklock was created by another version, whose result has other columns"),
				 errhint("Restart PostgreSQL, so that it loads the library that is installed. If that does not help, run ALTER EXTENSION zklock UPDATE, or drop the extension and create it again.")));
}

void
zklock_row_put(ReturnSetInfo *result, ZkRow *row)
{
	require_columns(result->setDesc, row);
	tuplestore_putvalues(result->setResult, result->setDesc, row->values,
						 row->nulls);
}

Datum
zklock_row_datum(FunctionCallInfo fcinfo, ZkRow *row)
{
	TupleDesc	desc;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	require_columns(desc, row);
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), row->values,
											 row->nulls));
}
