/*-------------------------------------------------------------------------
 *
 * check.c
 *	  The facts that zk_check() tells: of the program, the servers, the
 *	  credentials, and what only a session knows.
 *
 * What they mean, and what helps, is decided in SQL, in zk_check() itself.
 *
 * The one rule: it raises for interrupts alone, and not for that of a loss.
 * Each step runs in a subtransaction of its own, and an error that it meets
 * becomes a fact.  A session with locks that is lost stays as it is.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/resowner.h"

#include "args.h"
#include "auth.h"
#include "board.h"
#include "check_private.h"
#include "lock.h"
#include "lock_proof.h"
#include "protocol.h"
#include "session.h"
#include "text.h"

PG_FUNCTION_INFO_V1(zk_check_facts);

/* One thing that is looked at, and puts facts.  May raise. */
typedef void (*CheckStep) (Check *check);

static void run_step(Check *check, const char *item, CheckStep step);
static char *describe_error(const ErrorData *error);
static void check_credentials(Check *check);
static void put_connected(const Check *check);

Datum
zk_check_facts(PG_FUNCTION_ARGS)
{
	Check		check = {
		.result = zklock_args_begin_rows(fcinfo),
		.has_session = PG_GETARG_BOOL(0),
		.deadline = protocol_now() +
		atoi(GetConfigOption("zklock.connect_timeout", false, false))
	};
	const ZkClientStatus *status;

	zklock_session_attend();
	status = zklock_session_status();
	if (status != NULL && status->nrefused > 0)
		check_put_fact(&check, "releases", NULL, 0, NULL, NULL, status->nrefused);
	zklock_session_interrupt_on_loss(false);
	run_step(&check, "program", check_ask_servers);
	run_step(&check, "credentials", check_credentials);
	if (!check_put_trouble(&check) && check.has_session && check.list.nservers > 0)
		run_step(&check, "session", check_ask_session);
	zklock_session_attend();	/* the steps have taken their time */
	put_connected(&check);
	if (zklock_has_locks() && zklock_session_live() != 0)
		zklock_session_interrupt_on_loss(true);
	return (Datum) 0;
}

static void
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
		return;

	/* interrupts are not ours to keep */
	if (error->sqlerrcode == ERRCODE_QUERY_CANCELED)
		ReThrowError(error);
	check_put_fact(check, item, "error", 0, error->hint,
				   describe_error(error), 0);
	FreeErrorData(error);
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

/* Are there any?  Reading them may fail: that is a fact, too. */
static void
check_credentials(Check *check)
{
	char	   *scheme = NULL;
	char	   *credentials = NULL;

	zklock_auth_read(&scheme, &credentials);
	if (scheme != NULL)
		explicit_bzero(credentials, strlen(credentials));
	if (scheme == NULL)
		check_put_fact(check, "credentials", "none", 0, NULL, NULL, 0);
	else
		check_put_fact(check, "credentials", "set", 0,
					   zklock_text_quotable_own(scheme), NULL, 0);
}

/*
 * How many sessions of this cluster, the own one included, are connected?  A server that serves these may have no connection
 * left for a question, or a name that is looked up too slowly for one.
 */
static void
put_connected(const Check *check)
{
	int64		nconnected = 0;
	ZkBoardRow	row;

	for (int i = 0; i < zklock_board_size(); i++)
		if (zklock_board_read_live(i, &row) && row.session.is_open &&
			row.session.state == ZK_CLIENT_CONNECTED)
			nconnected++;
	check_put_fact(check, "sessions", "connected", 0, NULL, NULL, nconnected);
}
