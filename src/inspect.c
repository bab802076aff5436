/*-------------------------------------------------------------------------
 *
 * inspect.c
 *	  SQL functions that look: the queue of a lock, all locks, who waits, what
 *	  this session holds, the session itself.
 *
 * What each promises stands with its COMMENT ON in sql/zklock--2.0.sql.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "args.h"
#include "board.h"
#include "deadlock.h"
#include "keep.h"
#include "lock.h"
#include "nodedata.h"
#include "queue.h"
#include "session.h"
#include "tree.h"

PG_FUNCTION_INFO_V1(zk_lock_queue);
PG_FUNCTION_INFO_V1(zk_all_locks);
PG_FUNCTION_INFO_V1(zk_waits_in_postgres);
PG_FUNCTION_INFO_V1(zk_process);
PG_FUNCTION_INFO_V1(zk_locks);
PG_FUNCTION_INFO_V1(zk_session);

static Datum make_row(FunctionCallInfo fcinfo, Datum *values, bool *nulls);
static void put_lock(const ZkLockInfo *info, void *argument);
static void put_kept(const ZkPlace *place, void *argument);
static void put_lock_row(ReturnSetInfo *result, const ZkLockInfo *info,
						 const char *state);

Datum
zk_lock_queue(PG_FUNCTION_ARGS)
{
	char	   *name = zklock_args_name(fcinfo);
	ReturnSetInfo *result = zklock_args_begin_rows(fcinfo);
	ZkQueueEntry *entries;
	int			nentries;

	entries = zklock_read_queue(zklock_name_path, name, &nentries);
	for (int i = 0; i < nentries; i++)
	{
		ZkQueueEntry *entry = &entries[i];
		ZkNodeData *who = &entry->who;
		bool		is_contender = entry->position > 0;
		Datum		values[17] = {0};
		bool		nulls[17] = {0};

		values[0] = Int32GetDatum(entry->position);
		nulls[0] = !is_contender;
		values[1] = zklock_args_text_or_null(!is_contender ? NULL :
											 entry->is_releasing ? "releasing" :
											 entry->is_holder ? "held" : "waiting",
											 &nulls[1]);
		values[2] = zklock_args_text_or_null(is_contender ?
											 zklock_args_mode(entry->mode) : NULL,
											 &nulls[2]);
		values[3] = zklock_args_text_or_null(recipe_style_name(entry->style),
											 &nulls[3]);
		values[4] = CStringGetTextDatum(zklock_nodedata_printable(entry->node));
		values[5] = zklock_args_text_or_null(entry->session_id == 0 ? NULL :
											 zklock_args_session_id(entry->session_id),
											 &nulls[5]);
		values[6] = zklock_args_text_or_null(who->client, &nulls[6]);
		values[7] = zklock_args_text_or_null(who->cluster, &nulls[7]);
		values[8] = zklock_args_text_or_null(who->database, &nulls[8]);
		values[9] = zklock_args_text_or_null(who->username, &nulls[9]);
		values[10] = zklock_args_text_or_null(who->application, &nulls[10]);
		values[11] = Int32GetDatum(who->pid);
		nulls[11] = who->pid == 0;
		values[12] = zklock_args_text_or_null(who->host, &nulls[12]);
		values[13] = TimestampTzGetDatum(entry->since);
		nulls[13] = entry->token == 0;
		values[14] = Int64GetDatum(entry->token);
		nulls[14] = entry->token == 0;
		values[15] = zklock_args_text_or_null(who->text, &nulls[15]);
		values[16] = Int32GetDatum(entry->permits);
		nulls[16] = !is_contender;
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}

Datum
zk_all_locks(PG_FUNCTION_ARGS)
{
	char	   *name = zklock_args_name(fcinfo);
	ReturnSetInfo *result = zklock_args_begin_rows(fcinfo);
	ListCell   *cell;

	foreach(cell, zklock_count_locks(name))
	{
		const ZkLockCount *lock = lfirst(cell);
		Datum		values[3];
		bool		nulls[3] = {0};

		values[0] = CStringGetTextDatum(zklock_nodedata_printable(lock->name));
		values[1] = Int32GetDatum(lock->nholders);
		values[2] = Int32GetDatum(lock->nwaiters);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}

Datum
zk_waits_in_postgres(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = zklock_args_begin_rows(fcinfo);
	ListCell   *cell;

	foreach(cell, zklock_deadlock_waits_in_postgres())
	{
		const ZkWaitInPostgres *wait = lfirst(cell);
		Datum		values[3];
		bool		nulls[3] = {0};

		values[0] = CStringGetTextDatum(wait->what);
		values[1] = CStringGetTextDatum(zklock_args_session_id(wait->waiter));
		values[2] = CStringGetTextDatum(zklock_args_session_id(wait->blocker));
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}

Datum
zk_process(PG_FUNCTION_ARGS)
{
	ZkNodeData	own;
	int64		session;
	Datum		values[3];
	bool		nulls[3];

	zklock_nodedata_read_own(&own);
	values[0] = zklock_args_text_or_null(!PG_ARGISNULL(0) &&
										 zklock_board_session_of(PG_GETARG_INT32(0), &session) ?
										 zklock_args_session_id(session) : NULL,
										 &nulls[0]);
	values[1] = zklock_args_text_or_null(own.cluster, &nulls[1]);
	values[2] = zklock_args_text_or_null(own.host, &nulls[2]);
	return make_row(fcinfo, values, nulls);
}

Datum
zk_locks(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = zklock_args_begin_rows(fcinfo);

	zklock_visit_locks(put_lock, result);
	zklock_keep_visit(put_kept, result);
	return (Datum) 0;
}

/* Put one row of zk_locks(); argument is the ReturnSetInfo. */
static void
put_lock(const ZkLockInfo *info, void *argument)
{
	put_lock_row(argument, info, info->is_lost ? "lost" : "held");
}

/* The same for a lock that is kept. */
static void
put_kept(const ZkPlace *place, void *argument)
{
	const ZkLockInfo info = {
		.name = place->name,
		.mode = place->mode,
		.permits = place->permits,
		.token = place->token,
		.node = place->node,
		.granted_at = place->granted_at
	};

	put_lock_row(argument, &info, "kept");
}

static void
put_lock_row(ReturnSetInfo *result, const ZkLockInfo *info, const char *state)
{
	Datum		values[10] = {0};
	bool		nulls[10] = {0};

	values[0] = CStringGetTextDatum(info->name);
	values[1] = CStringGetTextDatum(zklock_args_mode(info->mode));
	values[2] = CStringGetTextDatum(state);
	values[3] = Int32GetDatum(info->session_count);
	values[4] = Int32GetDatum(info->call_count);
	values[5] = Int32GetDatum(info->xact_count);
	values[6] = Int64GetDatum(info->token);
	/* the root in it may be of another encoding than the name */
	values[7] = CStringGetTextDatum(zklock_nodedata_printable(info->node));
	values[8] = TimestampTzGetDatum(info->granted_at);
	values[9] = Int32GetDatum(info->permits);
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

Datum
zk_session(PG_FUNCTION_ARGS)
{
	ZkClientStatus status;
	bool		exists = zklock_session_status(&status);
	bool		is_granted = exists && status.was_connected;
	bool		has_program = exists && status.program_pid != 0;
	Datum		values[7] = {0};
	bool		nulls[7] = {0};

	/* what is held without a session is held no more */
	values[0] = CStringGetTextDatum(exists ? zklock_args_state(status.state) :
									zklock_has_locks() ? "lost" : "none");
	values[1] = zklock_args_text_or_null(is_granted ? status.server : NULL,
										 &nulls[1]);
	values[2] = zklock_args_text_or_null(is_granted ?
										 zklock_args_session_id(status.session_id) : NULL,
										 &nulls[2]);
	values[3] = Int32GetDatum(is_granted ? status.session_timeout_ms : 0);
	nulls[3] = !is_granted;
	values[4] = Int32GetDatum(exists ? status.npending : 0);
	values[5] = zklock_args_text_or_null(exists && status.library[0] != '\0' ?
										 status.library : NULL, &nulls[5]);
	values[6] = Int32GetDatum(has_program ? status.program_pid : 0);
	nulls[6] = !has_program;
	return make_row(fcinfo, values, nulls);
}

/* The result of a function that returns one row. */
static Datum
make_row(FunctionCallInfo fcinfo, Datum *values, bool *nulls)
{
	TupleDesc	desc;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values,
											 nulls));
}
