/*-------------------------------------------------------------------------
 *
 * monitor.c
 *	  Shows all backends of this cluster, their locks, and the counters; asks
 *	  no ensemble.
 *
 * They open no session, and do not ask the ensemble.  What each promises stands
 * with its COMMENT ON in sql/zklock--2.0.sql.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_authid.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "args.h"
#include "board.h"
#include "compat.h"
#include "name_spelling.h"
#include "protocol.h"
#include "row.h"
#include "stat.h"
#include "text.h"

PG_FUNCTION_INFO_V1(zk_backends);
PG_FUNCTION_INFO_V1(zk_locks);
PG_FUNCTION_INFO_V1(zk_stat);
PG_FUNCTION_INFO_V1(zk_stat_reset);

static bool may_see(const ZkBoardRow *row);
static void put_backend(ReturnSetInfo *result, const ZkBoardRow *row);
static void add_wait(ZkRow *columns, const ZkBoardRow *row);
static const char *state_shown(const ZkBoardRow *row);
static void put_locks(ReturnSetInfo *result, const ZkBoardRow *row);
static void add_name(ZkRow *columns, const char *name);
static void add_date(ZkRow *columns, int64 unix_ms);

Datum
zk_backends(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = zklock_row_begin(fcinfo);
	ZkBoardRow	row;

	for (int i = 0; i < zklock_board_size(); i++)
		if (zklock_board_read_live(i, &row))
			put_backend(result, &row);
	return (Datum) 0;
}

Datum
zk_locks(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = zklock_row_begin(fcinfo);
	ZkBoardRow	row;

	for (int i = 0; i < zklock_board_size(); i++)
		if (zklock_board_read_live(i, &row) && may_see(&row))
			put_locks(result, &row);
	return (Datum) 0;
}

/* In the order of its columns. */
Datum
zk_stat(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = zklock_row_begin(fcinfo);
	ZkStatRow	row;

	for (int number = 0; number < zklock_stat_size(); number++)
	{
		const char *database;
		Datum		waits[ZK_STAT_WAITS];
		int64		nwaits = 0;
		ZkRow		counters = {0};

		if (!zklock_stat_read(number, &row))
			continue;
		database = get_database_name(row.database);
		if (database == NULL && row.database != InvalidOid)
			continue;			/* it was dropped */
		for (int i = 0; i < ZK_STAT_WAITS; i++)
		{
			nwaits += row.counts[ZK_STAT_WAIT + i];
			waits[i] = Int64GetDatum(row.counts[ZK_STAT_WAIT + i]);
		}
		add_name(&counters, database);
		for (int i = 0; i <= ZK_STAT_REQUEST; i++)
			zklock_row_add(&counters, true, Int64GetDatum(row.counts[i]));
		zklock_row_add(&counters, true, Int64GetDatum(nwaits));
		zklock_row_add(&counters, true,
					   Float8GetDatum(row.counts[ZK_STAT_WAIT_US] / 1000.0));
		zklock_row_add(&counters, true,
					   PointerGetDatum(construct_array(waits, ZK_STAT_WAITS,
													   INT8OID, sizeof(int64),
													   FLOAT8PASSBYVAL,
													   TYPALIGN_DOUBLE)));
		zklock_row_add(&counters, true, TimestampTzGetDatum(row.since));
		zklock_row_put(result, &counters);
	}
	return (Datum) 0;
}

Datum
zk_stat_reset(PG_FUNCTION_ARGS)
{
	zklock_args_refuse_restricted();
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
	bool		has_session = row->session.id != 0 &&
		row->session.loss != ZK_LOSS_IDLE;
	ZkRow		columns = {0};

	zklock_row_add(&columns, true, Int32GetDatum(row->pid));
	add_name(&columns, get_database_name(row->database));
	add_name(&columns, GetUserNameFromId(row->user, true));
	columns.is_hidden = !may_see(row);
	zklock_row_add_text(&columns, state_shown(row));
	zklock_row_add_session(&columns, has_session ? row->session.id : 0);
	zklock_row_add_text(&columns, has_session ? row->session.server : NULL);
	zklock_row_add(&columns, row->session.since != 0,
				   TimestampTzGetDatum(row->session.since));
	add_wait(&columns, row);
	zklock_row_add(&columns, true, Int32GetDatum(row->nheld));
	add_date(&columns, row->proof_ms);
	zklock_row_add_text(&columns, row->root[0] == '\0' ? NULL :
						zklock_text_printable(row->root));
	zklock_row_put(result, &columns);
}

/* What it waits for; NULLs if it does not. */
static void
add_wait(ZkRow *columns, const ZkBoardRow *row)
{
	bool		is_waiting = row->wait.name[0] != '\0';
	const char *name = NULL;
	const char *mode = NULL;

	if (is_waiting)
	{
		name = zklock_name_shown(row->wait.name);
		mode = zklock_row_mode_name(row->wait.mode);
	}
	zklock_row_add_text(columns, name);
	zklock_row_add_text(columns, mode);
	zklock_row_add(columns, is_waiting, Int32GetDatum(row->wait.permits));
	zklock_row_add(columns, is_waiting, TimestampTzGetDatum(row->wait.since));
}

/* As zk_session has it: what is held without a session is held no more. */
static const char *
state_shown(const ZkBoardRow *row)
{
	if (row->session.is_open)
		return protocol_end_state(row->session.state, row->session.loss);
	return row->nheld > 0 ? "lost" : "none";
}

/* Put the rows of zk_locks() for one backend. */
static void
put_locks(ReturnSetInfo *result, const ZkBoardRow *row)
{
	for (int i = 0; i < ZK_BOARD_LOCKS; i++)
	{
		const ZkBoardLock *lock = &row->locks[i];
		const ZkBoardHeld *held = &lock->held;
		const char *state = held->is_leaving ? "leaving" : "held";

		if (lock->name[0] == '\0')
			continue;
		if (zklock_board_is_lost(row, held))
			state = "lost";
		for (int mode = 0; mode < (int) lengthof(held->taken); mode++)
		{
			const ZkTaken *taken = &held->taken[mode];
			ZkRow		columns = {0};

			if (!zklock_board_is_taken(taken) && mode != (int) held->mode)
				continue;
			zklock_row_add(&columns, true, Int32GetDatum(row->pid));
			zklock_row_add_taken(&columns,
								 zklock_name_shown(lock->name),
								 (RecipeMode) mode, state, taken, held->token);
			zklock_row_add(&columns, true, TimestampTzGetDatum(taken->since));
			zklock_row_add(&columns, true, Int32GetDatum(held->permits));
			add_date(&columns, held->proof_ms);
			zklock_row_put(result, &columns);
		}
	}
}

/* NULL: it was dropped meanwhile. */
static void
add_name(ZkRow *columns, const char *name)
{
	if (name != NULL)
		zklock_row_add(columns, true,
					   DirectFunctionCall1(namein, CStringGetDatum(name)));
	else
		zklock_row_add(columns, false, (Datum) 0);
}

/* Milliseconds of the Unix epoch; 0: a NULL. */
static void
add_date(ZkRow *columns, int64 unix_ms)
{
	zklock_row_add(columns, unix_ms != 0,
				   TimestampTzGetDatum(zklock_nodedata_date(unix_ms)));
}
