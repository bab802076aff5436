/*-------------------------------------------------------------------------
 *
 * inspect.c
 *	  SQL functions that show something: the queue of a lock, all locks, who
 *	  waits, what this session holds, the session itself; all backends of this
 *	  cluster, and counters.
 *
 * Those about all backends, and the counters, open no session and do not ask
 * the ensemble.  What each promises stands with its COMMENT ON in sql/zklock--2.0.sql.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "catalog/pg_authid.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "args.h"
#include "board.h"
#include "compat.h"
#include "deadlock.h"
#include "lock_proof.h"
#include "name.h"
#include "nodedata.h"
#include "protocol.h"
#include "queue.h"
#include "session.h"
#include "stat.h"
#include "text.h"
#include "write_bound.h"

PG_FUNCTION_INFO_V1(zk_lock_queue);
PG_FUNCTION_INFO_V1(zk_all_locks);
PG_FUNCTION_INFO_V1(zk_contenders);
PG_FUNCTION_INFO_V1(zk_escape);
PG_FUNCTION_INFO_V1(zk_waits_in_postgres);
PG_FUNCTION_INFO_V1(zk_session_locks);
PG_FUNCTION_INFO_V1(zk_session);
PG_FUNCTION_INFO_V1(zk_backends);
PG_FUNCTION_INFO_V1(zk_locks);
PG_FUNCTION_INFO_V1(zk_stat);
PG_FUNCTION_INFO_V1(zk_stat_reset);
PG_FUNCTION_INFO_V1(zk_stat_roles);

static bool may_look(FunctionCallInfo fcinfo, const ZkLockCount *lock);
static void put_contenders(ReturnSetInfo *result, const ZkLockCount *lock,
						   int number);
static const char *state_of(const ZkQueueEntry *entry);
static bool may_see(const ZkBoardRow *row);
static void put_backend(ReturnSetInfo *result, const ZkBoardRow *row);
static void put_locks(ReturnSetInfo *result, const ZkBoardRow *row);
static void add_name(ZkRow *columns, const char *name);
static void add_date(ZkRow *columns, int64 unix_ms);

Datum
zk_lock_queue(PG_FUNCTION_ARGS)
{
	char	   *name = zklock_args_name(fcinfo, ZK_MAY_LOOK);
	ReturnSetInfo *result = zklock_args_begin_rows(fcinfo);
	int			nentries;
	ZkQueueEntry *entries = zklock_read_queue(NULL, zklock_name_path, name, false,
												&nentries);

	for (int i = 0; i < nentries; i++)
	{
		ZkQueueEntry *entry = &entries[i];
		bool		is_contender = entry->position > 0;
		ZkRow		row = {0};

		zklock_row_add(&row, is_contender, Int32GetDatum(entry->position));
		zklock_row_add_text(&row, state_of(entry));
		zklock_row_add_text(&row, !is_contender ? NULL :
							zklock_args_mode(entry->parsed.mode));
		zklock_row_add_text(&row, recipe_style_name(entry->parsed.style));
		zklock_row_add_text(&row, zklock_text_printable(entry->node));
		zklock_row_add_text(&row, entry->session_id == 0 ? NULL :
							zklock_args_session_id(entry->session_id));
		zklock_row_add_text(&row, entry->who.client);
		zklock_row_add_who(&row, &entry->who);
		zklock_row_add(&row, entry->token != 0,
					   TimestampTzGetDatum(entry->since));
		zklock_row_add(&row, entry->token != 0, Int64GetDatum(entry->token));
		zklock_row_add_text(&row, entry->who.text);
		zklock_row_add(&row, is_contender, Int32GetDatum(entry->parsed.permits));
		zklock_row_add_text(&row, zklock_name_shown(entry->who.owner));
		zklock_row_add(&row, entry->expires != 0,
					   TimestampTzGetDatum(entry->expires));
		zklock_row_put(result, &row);
	}
	return (Datum) 0;
}

Datum
zk_all_locks(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = zklock_args_begin_rows(fcinfo);

	foreach_ptr(const ZkLockCount, lock,
				zklock_count_locks(zklock_args_name(fcinfo, ZK_OWN)))
	{
		ZkRow		row = {0};

		if (!may_look(fcinfo, lock))
			continue;
		zklock_row_add_text(&row, zklock_name_shown(lock->name));
		zklock_row_add(&row, true, Int32GetDatum(lock->nholders));
		zklock_row_add(&row, true, Int32GetDatum(lock->nwaiters));
		zklock_row_put(result, &row);
	}
	return (Datum) 0;
}

/*
 * For zk_waits().  By their names the queues could not be told apart, nor read,
 * if they have characters that this database or its client lacks.
 */
Datum
zk_contenders(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = zklock_args_begin_rows(fcinfo);
	MemoryContext queue = AllocSetContextCreate(CurrentMemoryContext,
												"zklock queue",
												ALLOCSET_DEFAULT_SIZES);
	int			number = 0;

	foreach_ptr(const ZkLockCount, lock, zklock_count_locks(""))
	{
		MemoryContext caller;

		if (lock->nwaiters == 0 || !may_look(fcinfo, lock))
			continue;
		caller = MemoryContextSwitchTo(queue);
		put_contenders(result, lock, ++number);
		MemoryContextSwitchTo(caller);
		MemoryContextReset(queue);
	}
	return (Datum) 0;
}

Datum
zk_escape(PG_FUNCTION_ARGS)
{
	char	   *name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	char	   *utf8 = zklock_text_to_utf8(name);

	PG_RETURN_TEXT_P(cstring_to_text(zklock_text_printable(utf8)));
}

Datum
zk_waits_in_postgres(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = zklock_args_begin_rows(fcinfo);
	int			nfacts;
	ZkQueueEntry *facts = zklock_read_queue(NULL, zklock_name_waits_path, "any", false,
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
zk_session_locks(PG_FUNCTION_ARGS)
{
	zklock_show_locks(zklock_args_begin_rows(fcinfo));
	return (Datum) 0;
}

Datum
zk_session(PG_FUNCTION_ARGS)
{
	static const ZkClientStatus none = {0};
	const ZkClientStatus *status;
	bool		exists;
	bool		is_granted;
	char		version[16];
	int			subject = 0;
	bool		has_tls;
	const char *state;
	ZkRow		row = {0};

	zklock_session_attend();
	status = zklock_session_status();
	exists = status != NULL;
	if (!exists)
		status = &none;
	is_granted = exists && status->was_connected;
	has_tls = is_granted &&
		sscanf(status->tls, "%15s %*s %*s %*s %n", version, &subject) == 1 &&
		subject > 0;
	if (exists)
		state = protocol_end_state(status->state, status->loss);
	else if (zklock_has_locks())
		state = "lost";			/* what is held without one is held no more */
	else
		state = "none";
	zklock_row_add_text(&row, state);
	zklock_row_add_text(&row, is_granted ? status->server : NULL);
	zklock_row_add_text(&row, !is_granted ? NULL :
						zklock_args_session_id(status->session_id));
	zklock_row_add(&row, is_granted, Int32GetDatum(status->session_timeout_ms));
	zklock_row_add(&row, true, Int32GetDatum(status->npending));
	zklock_row_add_text(&row, exists && status->library[0] != '\0' ?
						status->library : NULL);
	zklock_row_add(&row, exists && status->program_pid != 0,
				   Int32GetDatum(status->program_pid));
	zklock_row_add(&row, is_granted, BoolGetDatum(has_tls));
	zklock_row_add_text(&row, has_tls ? version : NULL);
	zklock_row_add_text(&row, has_tls ? status->tls + subject : NULL);
	return zklock_row_datum(fcinfo, &row);
}

Datum
zk_backends(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = zklock_args_begin_rows(fcinfo);
	ZkBoardRow	row;

	for (int i = 0; i < zklock_board_size(); i++)
		if (zklock_board_read_live(i, &row))
			put_backend(result, &row);
	return (Datum) 0;
}

Datum
zk_locks(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = zklock_args_begin_rows(fcinfo);
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
	ReturnSetInfo *result = zklock_args_begin_rows(fcinfo);
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
	zklock_stat_reset();
	zklock_write_bound_reset();
	PG_RETURN_VOID();
}

Datum
zk_stat_roles(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = zklock_args_begin_rows(fcinfo);

	for (int number = 0; number < zklock_write_bound_size(); number++)
	{
		ZkWriteRow	row;
		const char *database;
		const char *role;
		ZkRow		columns = {0};

		if (!zklock_write_bound_read(number, &row))
			continue;
		database = get_database_name(row.database);
		role = row.role != InvalidOid ? GetUserNameFromId(row.role, true) : NULL;
		if ((database == NULL && row.database != InvalidOid) ||
			(role == NULL && row.role != InvalidOid))
			continue;			/* it was dropped */
		add_name(&columns, database);
		add_name(&columns, role);
		zklock_row_add(&columns, true, Int64GetDatum(row.nwrites));
		zklock_row_add(&columns, true, Int64GetDatum(row.nrefused));
		zklock_row_add(&columns, true, Int32GetDatum(row.max_creates));
		zklock_row_add(&columns, row.max_creates > 0, Int32GetDatum(row.level));
		zklock_row_add(&columns, true, TimestampTzGetDatum(row.since));
		zklock_row_put(result, &columns);
	}
	return (Datum) 0;
}

/* Is the role to see this lock? */
static bool
may_look(FunctionCallInfo fcinfo, const ZkLockCount *lock)
{
	return zklock_privilege_allows(fcinfo, zklock_name_part_of_utf8(lock->name),
								   ZK_MAY_LOOK);
}

/* Put the rows of zk_contenders() for one lock. */
static void
put_contenders(ReturnSetInfo *result, const ZkLockCount *lock, int number)
{
	const char *name = zklock_name_shown(lock->name);
	int			nentries;
	ZkQueueEntry *entries = zklock_read_queue(NULL, zklock_name_path_of_utf8,
											  lock->name, false, &nentries);

	for (int i = 0; i < nentries && entries[i].position > 0; i++)
	{
		const ZkQueueEntry *entry = &entries[i];
		ZkRow		row = {0};

		zklock_row_add(&row, true, Int32GetDatum(number));
		zklock_row_add_text(&row, name);
		zklock_row_add(&row, true, Int32GetDatum(entry->position));
		zklock_row_add_text(&row, state_of(entry));
		zklock_row_add_text(&row, zklock_args_mode(entry->parsed.mode));
		zklock_row_add(&row, entry->token != 0,
					   TimestampTzGetDatum(entry->since));
		zklock_row_add_text(&row, entry->session_id == 0 ? NULL :
							zklock_args_session_id(entry->session_id));
		zklock_row_add_text(&row, entry->who.client != NULL ? entry->who.client :
							recipe_style_name(entry->parsed.style));
		zklock_row_add_who(&row, &entry->who);
		zklock_row_put(result, &row);
	}
}

/* NULL: it is no contender. */
static const char *
state_of(const ZkQueueEntry *entry)
{
	if (entry->position == 0)
		return NULL;
	if (entry->is_releasing)
		return "releasing";
	return entry->is_holder ? "held" : "waiting";
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
	bool		is_waiting = row->wait.name[0] != '\0';
	bool		has_session = row->session.id != 0 &&
		row->session.loss != ZK_LOSS_IDLE;
	const char *state = "none";
	ZkRow		columns = {0};

	zklock_row_add(&columns, true, Int32GetDatum(row->pid));
	add_name(&columns, get_database_name(row->database));
	add_name(&columns, GetUserNameFromId(row->user, true));
	columns.is_hidden = !may_see(row);
	/* as zk_session has it: what is held without a session is held no more */
	if (row->session.is_open)
		state = protocol_end_state(row->session.state, row->session.loss);
	else if (row->nheld > 0)
		state = "lost";
	zklock_row_add_text(&columns, state);
	zklock_row_add_text(&columns, !has_session ? NULL :
						zklock_args_session_id(row->session.id));
	zklock_row_add_text(&columns, has_session ? row->session.server : NULL);
	zklock_row_add(&columns, row->session.since != 0,
				   TimestampTzGetDatum(row->session.since));
	zklock_row_add_text(&columns, is_waiting ?
						zklock_name_shown(row->wait.name) : NULL);
	zklock_row_add_text(&columns, is_waiting ?
						zklock_args_mode(row->wait.mode) : NULL);
	zklock_row_add(&columns, is_waiting, Int32GetDatum(row->wait.permits));
	zklock_row_add(&columns, is_waiting,
				   TimestampTzGetDatum(row->wait.since));
	zklock_row_add(&columns, true, Int32GetDatum(row->nheld));
	add_date(&columns, row->proof_ms);
	zklock_row_add_text(&columns, row->root[0] == '\0' ? NULL :
						zklock_text_printable(row->root));
	zklock_row_add(&columns, true, Int32GetDatum(row->session.max_locks));
	zklock_row_add(&columns, true, Int32GetDatum(row->session.max_creates));
	zklock_row_put(result, &columns);
}

/* Put the rows of zk_locks() for one backend. */
static void
put_locks(ReturnSetInfo *result, const ZkBoardRow *row)
{
	for (int i = 0; i < ZK_BOARD_LOCKS; i++)
	{
		const ZkBoardLock *lock = &row->locks[i];
		const ZkBoardHeld *held = &lock->held;
		const char *state = zklock_board_is_lost(row, held) ? "lost" : "held";

		if (lock->name[0] == '\0')
			continue;
		for (int mode = 0; mode < (int) lengthof(held->taken); mode++)
		{
			const ZkTaken *taken = &held->taken[mode];
			ZkRow		columns = {0};

			if (!zklock_board_is_taken(taken))
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
	zklock_row_add(columns, name != NULL, name == NULL ? (Datum) 0 :
				   DirectFunctionCall1(namein, CStringGetDatum(name)));
}

/* Milliseconds of the Unix epoch; 0: a NULL. */
static void
add_date(ZkRow *columns, int64 unix_ms)
{
	zklock_row_add(columns, unix_ms != 0,
				   TimestampTzGetDatum(zklock_nodedata_date(unix_ms)));
}
