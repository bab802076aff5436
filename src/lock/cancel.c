/*-------------------------------------------------------------------------
 *
 * cancel.c
 *	  Writes the error of a statement that was canceled because a lock was
 *	  lost.
 *
 * A loss cancels the running statement: the session's program sends SIGINT,
 * as pg_cancel_backend() does.  Every part of PostgreSQL obeys that, and
 * EXCEPTION WHEN OTHERS of PL/pgSQL does not catch it.  PostgreSQL's error says
 * "canceling statement due to user request", with SQLSTATE 57014.  An error of
 * our own could be caught, and the statement would go on without its lock.
 *
 * So it becomes the error of a loss in two steps, and no time plays a part:
 * - As it is raised it gets the words of the loss.  An interrupt has been sent
 *	 then of which no error has come yet; none will come of it any more.  Its
 *	 SQLSTATE stays, for the sake of handlers.  Whatever becomes of the error
 *	 from there on, in subtransactions however long their abort takes, and in
 *	 handlers that raise it again, these words mark it.
 * - As it is about to be reported it gets SQLSTATE 40001.  PostgresMain() then
 *	 calls one of the methods by which it talks to its client, comm_reset(),
 *	 ahead of the report: to the client and to the server's log, whatever
 *	 log_min_messages says.
 *
 * The first step is a callback of error_context_stack, which is there while
 * the executor or a utility command runs.  An error of the parser, the planner
 * or the commit takes both steps at the second.  A background worker reports
 * without comm_reset(): what goes to the log has the SQLSTATE by
 * emit_log_hook, and what it passes on to others has the words alone.
 *
 * An interrupt belongs to a statement, which here is all that one message of the
 * client does.  A statement begins with the first call of a hook below, and is
 * over when PostgreSQL clears MessageContext.  PostgreSQL ignores an interrupt
 * that comes between two statements; so it is over when the next one begins.
 *
 * The one rule: what is called here while an error is raised or reported must
 * not raise, and does not wait.
 *
 *-------------------------------------------------------------------------
 */
#include "cancel.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/memutils.h"

/*
 * Of the client's connection only its methods are of interest, and the headers
 * of what may encrypt it need not be installed.
 */
#undef ENABLE_GSS
#undef ENABLE_SSPI
#undef USE_OPENSSL
#include "libpq/libpq.h"

#include "compat.h"
#include "lock_proof.h"
#include "session.h"

/* What PostgreSQL says to an interrupt by SIGINT. */
#define CANCELED_BY_SIGINT "canceling statement due to user request"

/* The next in each chain of hooks, which of errors may be NULL. */
static ExecutorRun_hook_type next_ExecutorRun;
static ExecutorFinish_hook_type next_ExecutorFinish;
static emit_log_hook_type next_emit_log;

/* The client's methods, with our own comm_reset(); and the one it calls. */
static PQcommMethods methods;
static void (*next_comm_reset) (void);

/* What one message of the client does. */
static struct
{
	bool		is_running;		/* it has begun, and is not over: at_end is
								 * registered */
	MemoryContextCallback at_end;	/* in MessageContext */

	/* Until the error is reported, or another statement begins. */
	bool		is_named;		/* a loss has canceled it */
	ZkLoss		named;			/* if so: what the error is to say */
}			Statement;

/* In an ErrorContextCallback of ours: its statement may write. */
#define WRITER ((void *) &Statement)

static void executor_run(EXECUTOR_RUN_PARAMETERS_COMPAT);
static void executor_finish(QueryDesc *query);
static bool is_writer(const QueryDesc *query);
static void begin_statement(void);
static void end_statement(void *arg);
static void at_raise(void *arg);
static void at_report(void);
static void at_log(ErrorData *error);
static bool name_loss(const ErrorData *error);
static bool is_of_loss(const ErrorData *error);
static ErrorData *copy_error(void);

void
zklock_cancel_init(void)
{
	next_ExecutorRun = ExecutorRun_hook != NULL ? ExecutorRun_hook :
		standard_ExecutorRun;
	ExecutorRun_hook = executor_run;
	next_ExecutorFinish = ExecutorFinish_hook != NULL ? ExecutorFinish_hook :
		standard_ExecutorFinish;
	ExecutorFinish_hook = executor_finish;
	next_emit_log = emit_log_hook;
	emit_log_hook = at_log;
}

void
zklock_cancel_follow(void)
{
	Assert(PqCommMethods != &methods);
	methods = *PqCommMethods;
	next_comm_reset = methods.comm_reset;
	methods.comm_reset = at_report;
	PqCommMethods = &methods;
}

void
zklock_cancel_enter(ErrorContextCallback *frame, bool is_writer)
{
	begin_statement();
	frame->callback = at_raise;
	frame->arg = is_writer ? WRITER : NULL;
	frame->previous = error_context_stack;
	error_context_stack = frame;
}

void
zklock_cancel_leave(const ErrorContextCallback *frame)
{
	Assert(error_context_stack == frame);
	error_context_stack = frame->previous;
}

bool
zklock_cancel_runs_writer(void)
{
	for (const ErrorContextCallback *frame = error_context_stack;
		 frame != NULL; frame = frame->previous)
		if (frame->callback == at_raise && frame->arg == WRITER)
			return true;
	return false;
}

void
zklock_cancel_end_transaction(void)
{
	if (MessageContext == NULL)
		Statement.is_running = false;
}

/* ---------------------------------------------------------------------
 * Statements
 * ---------------------------------------------------------------------
 */

static void
executor_run(EXECUTOR_RUN_PARAMETERS_COMPAT)
{
	ErrorContextCallback frame;

	Assert(IsTransactionState());
	zklock_cancel_enter(&frame, is_writer(query));
	next_ExecutorRun(EXECUTOR_RUN_ARGUMENTS_COMPAT);
	zklock_cancel_leave(&frame);
}

/* Triggers run here. */
static void
executor_finish(QueryDesc *query)
{
	ErrorContextCallback frame;

	Assert(IsTransactionState());
	zklock_cancel_enter(&frame, is_writer(query));
	next_ExecutorFinish(query);
	zklock_cancel_leave(&frame);
}

/* Is it anything but a plain SELECT? */
static bool
is_writer(const QueryDesc *query)
{
	return query->operation != CMD_SELECT ||
		query->plannedstmt->hasModifyingCTE;
}

/* If the statement that runs has not begun yet, it does. */
static void
begin_statement(void)
{
	if (Statement.is_running || IsParallelWorker())
		return;
	Statement.is_running = true;
	Statement.is_named = false;
	zklock_session_begin_statement();
	if (MessageContext == NULL)
		return;
	Statement.at_end.func = end_statement;
	MemoryContextRegisterResetCallback(MessageContext, &Statement.at_end);
}

static void
end_statement(void *arg)
{
	Assert(Statement.is_running);
	Statement.is_running = false;
}

/* ---------------------------------------------------------------------
 * Errors
 * ---------------------------------------------------------------------
 */

/*
 * Called for whatever is raised, also for notices.  Where PostgreSQL finds a
 * timeout, say, together with the interrupt it raises the error of the timeout
 * alone: a handler that catches it must not go on without the lock.
 */
static void
at_raise(void *arg)
{
	ErrorData  *error;

	if (zklock_session_interrupt() == 0)
		return;
	error = copy_error();
	if (error->elevel == ERROR && !name_loss(error))
		zklock_session_keep_interrupt();
	FreeErrorData(error);
}

/* In place of comm_reset(): an error is about to be reported. */
static void
at_report(void)
{
	ErrorData  *error;

	Assert(next_comm_reset != NULL && InterruptHoldoffCount > 0);
	next_comm_reset();
	if (zklock_session_interrupt() == 0 && !Statement.is_named)
		return;
	if (geterrcode() != ERRCODE_QUERY_CANCELED)
		return;
	error = copy_error();
	if (is_of_loss(error) ||
		(zklock_session_interrupt() != 0 && name_loss(error) &&
		 Statement.is_named))
		errcode(ERRCODE_T_R_SERIALIZATION_FAILURE);
	FreeErrorData(error);
}

/* It goes to the server's log. */
static void
at_log(ErrorData *error)
{
	if (is_of_loss(error))
		error->sqlerrcode = ERRCODE_T_R_SERIALIZATION_FAILURE;
	if (next_emit_log != NULL)
		next_emit_log(error);
}

/*
 * If the current error is a cancellation by SIGINT, put the words of the loss into
 * it, if there is one, and return true.  If the user has sent one, too, the error tells of the
 * loss: both are true, and the loss matters more.  A cancellation by a timeout has
 * words of its own, and keeps them.
 */
static bool
name_loss(const ErrorData *error)
{
	if (error->message_id == NULL ||
		error->sqlerrcode != ERRCODE_QUERY_CANCELED ||
		strcmp(error->message_id, CANCELED_BY_SIGINT) != 0)
		return false;
	zklock_session_read();
	Statement.is_named = zklock_explain_cancellation(&Statement.named);
	zklock_session_end_interrupt();
	if (!Statement.is_named)
		return true;
	errmsg_internal("%s", Statement.named.message);
	errdetail_internal("%s", Statement.named.detail);
	errhint("%s", Statement.named.hint);
	return true;
}

/*
 * Does the error, perhaps raised anew by a handler, have the words of the loss?
 */
static bool
is_of_loss(const ErrorData *error)
{
	return Statement.is_named && error->elevel == ERROR &&
		error->sqlerrcode == ERRCODE_QUERY_CANCELED &&
		error->message != NULL &&
		strstr(error->message, Statement.named.message) != NULL;
}

/* A copy of the current error, to be freed. */
static ErrorData *
copy_error(void)
{
	MemoryContext caller = MemoryContextSwitchTo(TopMemoryContext);
	ErrorData  *copy = CopyErrorData();

	MemoryContextSwitchTo(caller);
	return copy;
}
