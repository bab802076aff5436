/*-------------------------------------------------------------------------
 *
 * check.c
 *	  zk_check(): the table of its items; runs each step in a subtransaction.
 *
 * An item is a line of the table: what has to be asked for it, and the function
 * that says in rows what that means and what helps.  First all is asked, then
 * all rows are put, for some items need what others have asked.
 *
 * The one rule: it raises for interrupts alone, and not for that of a loss.
 * Each function of the table runs in a subtransaction of its own, and an error
 * that it meets becomes the row of its item.  A session with locks that is lost
 * stays as it is.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/guc.h"
#include "utils/resowner.h"

#include "args.h"
#include "check_private.h"
#include "compat.h"
#include "lock.h"
#include "lock_proof.h"
#include "protocol.h"
#include "row.h"
#include "session.h"

PG_FUNCTION_INFO_V1(zk_check);

/* Asks, or puts rows.  May raise. */
typedef void (*CheckStep) (Check *check);

typedef struct CheckItem
{
	const char *item;			/* as docs/monitoring.md has it */
	bool		needs_session;	/* zk_check(false) has no such row */
	CheckStep	ask;			/* or NULL */
	CheckStep	tell;
} CheckItem;

static void put_not_looked_at(Check *check);

/* The order is that of the rows, and that of asking. */
static const CheckItem items[] = {
	{"extension", false, NULL, check_tell_extension},
	{"settings", false, NULL, check_tell_settings},
	{"settings", false, NULL, check_tell_other_settings},
	{"settings", false, NULL, check_tell_refused_settings},
	{"lease worker", false, NULL, check_tell_lease_worker},
	{"program", false, check_ask_servers, check_tell_program},
	{"servers", false, NULL, check_tell_servers},
	{"certificates", false, NULL, check_tell_certificates},
	{"ensemble", false, NULL, check_tell_ensemble},
	{"connections", false, NULL, check_tell_connections},
	{"jute.maxbuffer", true, NULL, check_tell_request_size},
	{"session timeout", false, NULL, check_tell_session_timeout},
	{"data", false, NULL, check_tell_data},
	{"credentials", false, check_ask_credentials, check_tell_credentials},
	{"session", false, check_ask_session, check_tell_session},
	{"moved servers", false, check_ask_others, check_tell_moved_servers},
	{"releases", false, NULL, check_tell_releases},
	{"not looked at", false, NULL, put_not_looked_at},
	{"granted timeout", true, NULL, check_tell_granted_timeout},
	{"digest", true, NULL, check_tell_digest},
	{"chroot", true, NULL, check_tell_chroot},
	{"root", true, NULL, check_tell_root},
	{"acl", true, NULL, check_tell_acl},
	{"writing", true, NULL, check_tell_writing},
	{"clock", true, NULL, check_tell_clock},
	{"quota", true, NULL, check_tell_quota},
	{"leases", true, NULL, check_tell_leases},
	{"triggers", false, NULL, check_tell_triggers}
};

static bool run_step(Check *check, const char *item, CheckStep step);
static char *describe_error(const ErrorData *error);

Datum
zk_check(PG_FUNCTION_ARGS)
{
	Check		check = {
		.result = zklock_row_begin(fcinfo),
		.function = fcinfo->flinfo->fn_oid,
		.has_session = !PG_ARGISNULL(0) && PG_GETARG_BOOL(0),
		.deadline = protocol_now() +
		atoi(GetConfigOption("zklock.connect_timeout", false, false))
	};
	bool		is_told[lengthof(items)] = {0}; /* an error has made its row */

	if (check.has_session)
		zklock_args_refuse_restricted();
	zklock_session_poll();
	zklock_session_interrupt_on_loss(false);
	for (int i = 0; i < (int) lengthof(items); i++)
	{
		if (items[i].ask != NULL)
			is_told[i] = !run_step(&check, items[i].item, items[i].ask);
	}
	zklock_session_poll();	/* the questions have taken their time */
	for (int i = 0; i < (int) lengthof(items); i++)
	{
		if (!is_told[i] && (check.has_session || !items[i].needs_session))
			(void) run_step(&check, items[i].item, items[i].tell);
	}
	if (zklock_has_locks() && zklock_session_live() != 0)
		zklock_session_interrupt_on_loss(true);
	return (Datum) 0;
}

/* What needs a session; docs/monitoring.md marks these items. */
static void
put_not_looked_at(Check *check)
{
	StringInfoData names;

	if (check->has_session)
		return;
	initStringInfo(&names);
	for (int i = 0; i < (int) lengthof(items); i++)
	{
		if (items[i].needs_session)
			appendStringInfo(&names, "%s%s", names.len > 0 ? ", " : "",
							 items[i].item);
	}
	check_put(check, "not looked at", CHECK_NOTE,
			  psprintf("%s: only a session tells", names.data),
			  "Run zk_check(true), too: after each change of the settings or of the ensemble, and now and then.");
}

/* false: there was an error, which has made a row. */
static bool
run_step(Check *check, const char *item, CheckStep step)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ErrorData  *volatile error = NULL;

	CHECK_FOR_INTERRUPTS();
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		step(check);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	if (error == NULL)
		return true;

	/* interrupts are not ours to keep */
	if (error->sqlerrcode == ERRCODE_QUERY_CANCELED)
		ReThrowError(error);
	check_put(check, item, CHECK_ERROR, describe_error(error), error->hint);
	FreeErrorData(error);
	return false;
}

/* Its message, detail and SQLSTATE, palloc'ed. */
static char *
describe_error(const ErrorData *error)
{
	StringInfoData text;

	initStringInfo(&text);
	if (error->message != NULL)
		appendStringInfoString(&text, error->message);
	if (error->detail != NULL)
		appendStringInfo(&text, ": %s", error->detail);
	appendStringInfo(&text, " (SQLSTATE %s)",
					 unpack_sql_state(error->sqlerrcode));
	return text.data;
}
