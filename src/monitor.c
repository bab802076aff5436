/*-------------------------------------------------------------------------
 *
 * monitor.c
 *	  SQL functions that show all backends of this cluster, and counters.
 *
 * None of them opens a session or asks the ensemble.  What each promises
 * stands with its COMMENT ON in sql/zklock--2.0.sql.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_authid.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "args.h"
#include "board.h"
#include "compat.h"
#include "nodedata.h"
#include "stat.h"

PG_FUNCTION_INFO_V1(zk_backends);
PG_FUNCTION_INFO_V1(zk_backend_locks);
PG_FUNCTION_INFO_V1(zk_stat);
PG_FUNCTION_INFO_V1(zk_stat_reset);

static bool may_see(const ZkBoardRow *row);
static void put_backend(ReturnSetInfo *result, const ZkBoardRow *row);
static void put_locks(ReturnSetInfo *result, const ZkBoardRow *row);
static void put_counters(ReturnSetInfo *result, const ZkStatRow *row);
static const char *state_of(const ZkBoardRow *row);
static bool is_lost(const ZkBoardRow *row, const ZkBoardHeld *held);
static Datum name_or_null(const char *name, bool *is_null);
static Datum date_or_null(int64 unix_ms, bool *is_null);

Datum
zk_backends(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = zklock_args_begin_rows(fcinfo);
	ZkBoardRow	row;

	for (int i = 0; i < zklock_board_size(); i++)
		if (zklock_board_read(i, &row))
			put_backend(result, &row);
	return (Datum) 0;
}

Datum
zk_backend_locks(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = zklock_args_begin_rows(fcinfo);
	ZkBoardRow	row;

	for (int i = 0; i < zklock_board_size(); i++)
		if (zklock_board_read(i, &row) && may_see(&row))
			put_locks(result, &row);
	return (Datum) 0;
}

Datum
zk_stat(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = zklock_args_begin_rows(fcinfo);
	ZkStatRow	row;

	for (int i = 0; i < zklock_stat_size(); i++)
		if (zklock_stat_read(i, &row))
			put_counters(result, &row);
	return (Datum) 0;
}

Datum
zk_stat_reset(PG_FUNCTION_ARGS)
{
	zklock_stat_reset();
	PG_RETURN_VOID();
}

/* By the rules of pg_stat_activity. */
static bool
may_see(const ZkBoardRow *row)
{
	return has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS) ||
		has_privs_of_role(GetUserId(), row->user);
}

/* Put one row of zk_backends(). */
static void
put_backend(ReturnSetInfo *result, const ZkBoardRow *row)
{
	bool		is_waiting = row->awaited[0] != '\0';
	bool		has_session = row->session_id != 0;
	Datum		values[13] = {0};
	bool		nulls[13];

	memset(nulls, true, sizeof(nulls));
	values[0] = Int32GetDatum(row->pid);
	nulls[0] = false;
	values[1] = name_or_null(get_database_name(row->database), &nulls[1]);
	values[2] = name_or_null(GetUserNameFromId(row->user, true), &nulls[2]);
	if (may_see(row))
	{
		values[3] = zklock_args_text_or_null(state_of(row), &nulls[3]);
		values[4] = zklock_args_text_or_null(!has_session ? NULL :
											 zklock_args_session_id(row->session_id),
											 &nulls[4]);
		values[5] = zklock_args_text_or_null(has_session ? row->server : NULL,
											 &nulls[5]);
		values[6] = TimestampTzGetDatum(row->state_since);
		nulls[6] = row->session_number == 0;
		values[7] = zklock_args_text_or_null(!is_waiting ? NULL :
											 zklock_nodedata_printable(row->awaited),
											 &nulls[7]);
		values[8] = zklock_args_text_or_null(!is_waiting ? NULL :
											 zklock_args_mode(row->awaited_mode),
											 &nulls[8]);
		values[9] = Int32GetDatum(row->awaited_permits);
		values[10] = TimestampTzGetDatum(row->awaited_since);
		nulls[9] = nulls[10] = !is_waiting;
		values[11] = Int32GetDatum(row->nheld);
		nulls[11] = false;
		values[12] = date_or_null(row->proof_ms, &nulls[12]);
	}
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/* Put the rows of zk_backend_locks() for one backend. */
static void
put_locks(ReturnSetInfo *result, const ZkBoardRow *row)
{
	for (int i = 0; i < ZK_BOARD_LOCKS; i++)
	{
		const ZkBoardLock *lock = &row->locks[i];
		const ZkBoardHeld *held = &lock->held;

		if (lock->name[0] == '\0')
			continue;
		for (int mode = 0; mode < (int) lengthof(held->since); mode++)
		{
			Datum		values[11] = {0};
			bool		nulls[11] = {0};

			if (held->session_counts[mode] == 0 &&
				held->call_counts[mode] == 0 && held->xact_counts[mode] == 0)
				continue;
			values[0] = Int32GetDatum(row->pid);
			values[1] = CStringGetTextDatum(zklock_nodedata_printable(lock->name));
			values[2] = CStringGetTextDatum(zklock_args_mode((RecipeMode) mode));
			values[3] = CStringGetTextDatum(is_lost(row, held) ? "lost" : "held");
			values[4] = Int32GetDatum(held->session_counts[mode]);
			values[5] = Int32GetDatum(held->call_counts[mode]);
			values[6] = Int32GetDatum(held->xact_counts[mode]);
			values[7] = Int64GetDatum(held->token);
			values[8] = TimestampTzGetDatum(held->since[mode]);
			values[9] = Int32GetDatum(held->permits);
			values[10] = date_or_null(held->proof_ms, &nulls[10]);
			tuplestore_putvalues(result->setResult, result->setDesc, values,
								 nulls);
		}
	}
}

/*
 * Put one row of zk_stat(), in the order of its columns; none for a database
 * that was dropped.
 */
static void
put_counters(ReturnSetInfo *result, const ZkStatRow *row)
{
	static const ZkStat columns[] = {
		ZK_STAT_GRANT_AT_ONCE, ZK_STAT_GRANT_HANDED_OVER, ZK_STAT_GRANT_TOLD,
		ZK_STAT_GRANT_LISTED, ZK_STAT_GRANT_KEPT, ZK_STAT_KEPT_FOR_OTHERS,
		ZK_STAT_TRY_IN_VAIN, ZK_STAT_TIMEOUT,
		ZK_STAT_CANCEL, ZK_STAT_DEADLOCK, ZK_STAT_LOSS, ZK_STAT_REFUSED_COMMIT,
		ZK_STAT_EVICTION, ZK_STAT_SESSION, ZK_STAT_RECONNECT, ZK_STAT_REQUEST
	};
	Datum		values[lengthof(columns) + 5];
	bool		nulls[lengthof(columns) + 5] = {0};
	Datum		waits[ZK_STAT_WAITS];
	int64		nwaits = 0;
	int			n = 0;

	for (int i = 0; i < ZK_STAT_WAITS; i++)
	{
		nwaits += row->waits[i];
		waits[i] = Int64GetDatum(row->waits[i]);
	}
	values[n++] = name_or_null(get_database_name(row->database), &nulls[0]);
	if (nulls[0] && row->database != InvalidOid)
		return;
	for (int i = 0; i < (int) lengthof(columns); i++)
		values[n++] = Int64GetDatum(row->counts[columns[i]]);
	values[n++] = Int64GetDatum(nwaits);
	values[n++] = Float8GetDatum(row->counts[ZK_STAT_WAIT_US] / 1000.0);
	values[n++] = PointerGetDatum(construct_array(waits, ZK_STAT_WAITS,
												  INT8OID, sizeof(int64),
												  FLOAT8PASSBYVAL,
												  TYPALIGN_DOUBLE));
	values[n++] = TimestampTzGetDatum(row->since);
	Assert(n == lengthof(values));
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/* As zk_session has it: what is held without a session is held no more. */
static const char *
state_of(const ZkBoardRow *row)
{
	if (row->is_session_open)
		return zklock_args_state(row->state);
	return row->nheld > 0 ? "lost" : "none";
}

static bool
is_lost(const ZkBoardRow *row, const ZkBoardHeld *held)
{
	return held->is_evicted || !row->is_session_open ||
		row->state == ZK_CLIENT_LOST ||
		held->session_number != row->session_number;
}

/* NULL: it was dropped meanwhile. */
static Datum
name_or_null(const char *name, bool *is_null)
{
	*is_null = name == NULL;
	return name == NULL ? (Datum) 0 :
		DirectFunctionCall1(namein, CStringGetDatum(name));
}

static Datum
date_or_null(int64 unix_ms, bool *is_null)
{
	*is_null = unix_ms == 0;
	return TimestampTzGetDatum(TimestampTzPlusMilliseconds(time_t_to_timestamptz(unix_ms / 1000),
														   unix_ms % 1000));
}
