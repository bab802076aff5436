/*-------------------------------------------------------------------------
 *
 * row.c
 *	  Puts the rows of SQL functions.
 *
 *-------------------------------------------------------------------------
 */
#include "row.h"

#include "access/htup_details.h"
#include "catalog/pg_type_d.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

ReturnSetInfo *
zklock_row_begin(FunctionCallInfo fcinfo)
{
	InitMaterializedSRF(fcinfo, 0);
	return (ReturnSetInfo *) fcinfo->resultinfo;
}

const char *
zklock_row_mode_name(RecipeMode mode)
{
	return mode == RECIPE_SHARED ? "shared" : "exclusive";
}

char *
zklock_row_session_id(int64 session_id)
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
		text = zklock_row_session_id(session_id);
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
	zklock_row_add_text(row, zklock_row_mode_name(mode));
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
