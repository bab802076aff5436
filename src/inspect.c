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

#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "args.h"
#include "board.h"
#include "deadlock.h"
#include "lock.h"
#include "name.h"
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
		bool		is_contender = entry->position > 0;
		ZkRow		row = {0};

		zklock_row_add(&row, is_contender, Int32GetDatum(entry->position));
		zklock_row_add_text(&row, !is_contender ? NULL :
							entry->is_releasing ? "releasing" :
							entry->is_holder ? "held" : "waiting");
		zklock_row_add_text(&row, !is_contender ? NULL :
							zklock_args_mode(entry->mode));
		zklock_row_add_text(&row, recipe_style_name(entry->style));
		zklock_row_add_text(&row, zklock_nodedata_printable(entry->node));
		zklock_row_add_text(&row, entry->session_id == 0 ? NULL :
							zklock_args_session_id(entry->session_id));
		zklock_row_add_text(&row, entry->who.client);
		zklock_row_add_who(&row, &entry->who);
		zklock_row_add(&row, entry->token != 0,
					   TimestampTzGetDatum(entry->since));
		zklock_row_add(&row, entry->token != 0, Int64GetDatum(entry->token));
		zklock_row_add_text(&row, entry->who.text);
		zklock_row_add(&row, is_contender, Int32GetDatum(entry->permits));
		zklock_row_put(result, &row);
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
		ZkRow		row = {0};

		zklock_row_add_text(&row, zklock_nodedata_printable(lock->name));
		zklock_row_add_int(&row, lock->nholders);
		zklock_row_add_int(&row, lock->nwaiters);
		zklock_row_put(result, &row);
	}
	return (Datum) 0;
}

Datum
zk_waits_in_postgres(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = zklock_args_begin_rows(fcinfo);
	int			nfacts;
	ZkQueueEntry *facts = zklock_read_queue(zklock_name_waits_path, "any",
											&nfacts);

	for (int i = 0; i < nfacts; i++)
	{
		const char *what = facts[i].who.text;
		int64		waiter;
		int64		blocker;
		ZkRow		row = {0};

		/* one of a stranger's says nothing */
		if (!zklock_deadlock_parse_fact(facts[i].node, &waiter, &blocker) ||
			facts[i].session_id != blocker)
			continue;
		zklock_row_add_text(&row, what != NULL ? what : "");
		zklock_row_add_text(&row, zklock_args_session_id(waiter));
		zklock_row_add_text(&row, zklock_args_session_id(blocker));
		zklock_row_put(result, &row);
	}
	return (Datum) 0;
}

Datum
zk_process(PG_FUNCTION_ARGS)
{
	ZkNodeData	own;
	int64		session;
	ZkRow		row = {0};

	zklock_nodedata_read_own(&own);
	zklock_row_add_text(&row, !PG_ARGISNULL(0) &&
						zklock_board_session_of(PG_GETARG_INT32(0), &session) ?
						zklock_args_session_id(session) : NULL);
	zklock_row_add_text(&row, own.cluster);
	zklock_row_add_text(&row, own.host);
	return zklock_row_datum(fcinfo, &row);
}

Datum
zk_locks(PG_FUNCTION_ARGS)
{
	zklock_show_locks(zklock_args_begin_rows(fcinfo));
	return (Datum) 0;
}

Datum
zk_session(PG_FUNCTION_ARGS)
{
	ZkClientStatus status;
	bool		exists = zklock_session_status(&status);
	bool		is_granted = exists && status.was_connected;
	ZkRow		row = {0};

	/* what is held without a session is held no more */
	zklock_row_add_text(&row, exists ? zklock_args_state(status.state) :
						zklock_has_locks() ? "lost" : "none");
	zklock_row_add_text(&row, is_granted ? status.server : NULL);
	zklock_row_add_text(&row, !is_granted ? NULL :
						zklock_args_session_id(status.session_id));
	zklock_row_add(&row, is_granted, Int32GetDatum(status.session_timeout_ms));
	zklock_row_add_int(&row, exists ? status.npending : 0);
	zklock_row_add_text(&row, exists && status.library[0] != '\0' ?
						status.library : NULL);
	zklock_row_add(&row, exists && status.program_pid != 0,
				   Int32GetDatum(status.program_pid));
	return zklock_row_datum(fcinfo, &row);
}
