/*-------------------------------------------------------------------------
 *
 * loss.c
 *	  What the client is told when the loss of a lock, or a request to release
 *	  it, cancels its statement.
 *
 * The session's program interrupts the backend with SIGINT, as pg_cancel_backend() does:
 * the one interruption that every part of PostgreSQL honours and that
 * PL/pgSQL's EXCEPTION WHEN OTHERS does not catch.  The error that comes of it
 * says "canceling statement due to user request".  When it has reached the top
 * and is about to be reported, it is rewritten to name the lock.  Raising
 * another error further down would not do: it could be caught, and the
 * statement would go on without its lock.
 *
 * The hook runs while an error is reported: it must not raise and allocates
 * only in the error's own memory context.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "loss.h"

#include "utils/elog.h"
#include "utils/memutils.h"

#include "lock.h"

/* The next in the chain of hooks, or NULL. */
static emit_log_hook_type next_emit_log;

static void rewrite_cancellation(ErrorData *error);

void
zklock_loss_init(void)
{
	next_emit_log = emit_log_hook;
	emit_log_hook = rewrite_cancellation;
}

/*
 * A cancellation by the user in the statement that the loss interrupts is
 * explained by the loss too: both are true, and this one matters more.  So it is
 * with a request to release a lock, but for the SQLSTATE: the lock is still
 * held, and nothing should make an application run the transaction again.
 *
 * PostgreSQL calls the hook only for messages that go to the server's log, so
 * with log_min_messages above "error" the client gets the words of a user's
 * cancellation.
 */
static void
rewrite_cancellation(ErrorData *error)
{
	char		message[ZK_LOSS_TEXT_SIZE];
	char		detail[ZK_LOSS_TEXT_SIZE];
	ZkRequestText request;
	const char *hint;
	bool		is_recent;

	if (error->elevel == ERROR &&
		error->sqlerrcode == ERRCODE_QUERY_CANCELED &&
		zklock_describe_loss(message, detail, &hint, &is_recent) && is_recent)
	{
		error->sqlerrcode = ERRCODE_T_R_SERIALIZATION_FAILURE;
		error->message = MemoryContextStrdup(error->assoc_context, message);
		error->detail = MemoryContextStrdup(error->assoc_context, detail);
		error->hint = MemoryContextStrdup(error->assoc_context, hint);
	}
	else if (error->elevel == ERROR &&
			 error->sqlerrcode == ERRCODE_QUERY_CANCELED &&
			 zklock_describe_request(&request, &hint))
	{
		error->message = MemoryContextStrdup(error->assoc_context,
											 request.message);
		error->detail = MemoryContextStrdup(error->assoc_context,
											request.detail);
		error->detail_log = MemoryContextStrdup(error->assoc_context,
												request.detail_log);
		error->hint = MemoryContextStrdup(error->assoc_context, hint);
	}
	if (next_emit_log != NULL)
		next_emit_log(error);
}
