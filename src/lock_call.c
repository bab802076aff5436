/*-------------------------------------------------------------------------
 *
 * lock_call.c
 *	  Locks of call scope: they end with what the client has sent, for a
 *	  procedure that commits on its way, however it ends.
 *
 * A client's message is one call, whatever is called in it: CALL, DO, SELECT,
 * several statements in one string.  PostgreSQL keeps what belongs to it in
 * MessageContext, and clears that when it is done and about to be idle: after
 * the commit, or after the abort that an error or a cancellation has led to,
 * and before the client is told that it may go on.  So a callback of that
 * context is where these locks end.  No hook would do: the library may have
 * been loaded in the middle of the call, by the very function that takes the
 * lock.
 *
 * A call need not be the end of its transaction: in a transaction block, and
 * in the extended protocol before Sync.  What it wrote is not committed then,
 * so its locks stay until the transaction ends.
 *
 * The one rule: the callback may neither raise nor wait, and it runs outside
 * of any transaction.
 *
 *-------------------------------------------------------------------------
 */
#include "lock_private.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/memutils.h"

/* Ours in MessageContext; it is there if is_followed. */
static MemoryContextCallback at_end;
static bool is_followed;

/*
 * Are all calls that took locks over, but not their transaction?  A later
 * call in the same transaction that takes one, too, puts it off for all.
 */
static bool is_over;

static void end_call(void *arg);

void
zklock_call_follow(void)
{
	if (MessageContext == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("locks of call scope cannot be used in a background worker"),
				 errdetail("It has no client whose calls could end."),
				 errhint("Use locks of session or of transaction scope.")));
	is_over = false;
	if (is_followed)
		return;
	at_end.func = end_call;
	MemoryContextRegisterResetCallback(MessageContext, &at_end);
	is_followed = true;
}

bool
zklock_call_is_over(void)
{
	return is_over;
}

/*
 * In a transaction that is still good, the locks are left to its end
 * (zklock_end_transaction()).  A failed one is as good as over, but not one
 * of which a subtransaction has failed: ROLLBACK TO makes it go on.
 */
static void
end_call(void *arg)
{
	is_followed = false;
	if (proc_exit_inprogress || in_error_recursion_trouble())
		return;
	is_over = IsTransactionState() || GetCurrentTransactionNestLevel() > 1;
	if (is_over || !zklock_has_locks())
		return;

	/* a WARNING would look for interrupts, too */
	HOLD_INTERRUPTS();
	zklock_lock_end_scopes(false, true);
	RESUME_INTERRUPTS();
}
