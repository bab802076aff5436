/*-------------------------------------------------------------------------
 *
 * inspect.c
 *	  Shows the queue of a lock, all locks, waits, and the session and the
 *	  locks of this backend.
 *
 * What each promises stands with its COMMENT ON in sql/zklock--2.0.sql.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"


#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "deadlock.h"
#include "given_name.h"
#include "lock_proof.h"
#include "name.h"
#include "name_allowed.h"
#include "name_spelling.h"
#include "nodedata.h"
#include "protocol.h"
#include "queue_list.h"
#include "row.h"
#include "session.h"
#include "text.h"

PG_FUNCTION_INFO_V1(zk_lock_queue);
PG_FUNCTION_INFO_V1(zk_all_locks);
PG_FUNCTION_INFO_V1(zk_contenders);
PG_FUNCTION_INFO_V1(zk_escape);
PG_FUNCTION_INFO_V1(zk_waits_in_postgres);
PG_FUNCTION_INFO_V1(zk_session_locks);
PG_FUNCTION_INFO_V1(zk_session);

static void put_contenders(ReturnSetInfo *result, const ZkLockCount *lock,
						   int number);
static const char *state_of(const ZkQueueEntry *entry);

Datum
zk_lock_queue(PG_FUNCTION_ARGS)
{
	ZkName		name = zklock_given_name(fcinfo, ZK_GIVEN_TO_PROVE);
	ReturnSetInfo *result = zklock_row_begin(fcinfo);
	int			nentries;
	ZkQueueEntry *entries = zklock_read_queue(NULL, &name, false, &nentries);

	for (int i = 0; i < nentries; i++)
	{
		ZkQueueEntry *entry = &entries[i];
		bool		is_contender = entry->position > 0;
		ZkRow		row = {0};

		zklock_row_add(&row, is_contender, Int32GetDatum(entry->position));
		zklock_row_add_text(&row, state_of(entry));
		zklock_row_add_text(&row, !is_contender ? NULL :
							zklock_row_mode_name(entry->parsed.mode));
		zklock_row_add_text(&row, recipe_style_name(entry->parsed.style));
		zklock_row_add_text(&row, zklock_text_printable(entry->node));
		zklock_row_add_session(&row, entry->session_id);
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
	ReturnSetInfo *result = zklock_row_begin(fcinfo);

	foreach_ptr(const ZkLockCount, lock,
				zklock_count_locks(zklock_given_prefix(fcinfo)))
	{
		ZkRow		row = {0};

		if (!zklock_name_is_allowed(lock->name))
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
	ReturnSetInfo *result = zklock_row_begin(fcinfo);
	MemoryContext queue = AllocSetContextCreate(CurrentMemoryContext,
												"zklock queue",
												ALLOCSET_DEFAULT_SIZES);
	int			number = 0;

	foreach_ptr(const ZkLockCount, lock, zklock_count_locks(""))
	{
		MemoryContext caller;

		if (lock->nwaiters == 0 || !zklock_name_is_allowed(lock->name))
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
	ReturnSetInfo *result = zklock_row_begin(fcinfo);
	int			nfacts;
	ZkQueueEntry *facts = zklock_read_below(zklock_name_waits_path(), &nfacts);

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
		zklock_row_add_text(&row, zklock_row_session_id(waiter));
		zklock_row_add_text(&row, zklock_row_session_id(blocker));
		zklock_row_put(result, &row);
	}
	return (Datum) 0;
}

Datum
zk_session_locks(PG_FUNCTION_ARGS)
{
	zklock_show_locks(zklock_row_begin(fcinfo));
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

	zklock_session_poll();
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
	zklock_row_add_session(&row, is_granted ? status->session_id : 0);
	zklock_row_add(&row, is_granted, Int32GetDatum(status->session_timeout_ms));
	zklock_row_add(&row, true, Int32GetDatum(zklock_session_count_pending()));
	zklock_row_add_text(&row, exists && status->library[0] != '\0' ?
						status->library : NULL);
	zklock_row_add(&row, exists && status->program_pid != 0,
				   Int32GetDatum(status->program_pid));
	zklock_row_add(&row, is_granted, BoolGetDatum(has_tls));
	zklock_row_add_text(&row, has_tls ? version : NULL);
	zklock_row_add_text(&row, has_tls ? status->tls + subject : NULL);
	return zklock_row_datum(fcinfo, &row);
}

/* Put the rows of zk_contenders() for one lock. */
static void
put_contenders(ReturnSetInfo *result, const ZkLockCount *lock, int number)
{
	const char *name = zklock_name_shown(lock->name);
	int			nentries;
	ZkQueueEntry *entries = zklock_read_below(zklock_name_path_of_utf8(lock->name),
											  &nentries);

	for (int i = 0; i < nentries && entries[i].position > 0; i++)
	{
		const ZkQueueEntry *entry = &entries[i];
		ZkRow		row = {0};

		zklock_row_add(&row, true, Int32GetDatum(number));
		zklock_row_add_text(&row, name);
		zklock_row_add(&row, true, Int32GetDatum(entry->position));
		zklock_row_add_text(&row, state_of(entry));
		zklock_row_add_text(&row, zklock_row_mode_name(entry->parsed.mode));
		zklock_row_add(&row, entry->token != 0,
					   TimestampTzGetDatum(entry->since));
		zklock_row_add_session(&row, entry->session_id);
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
