/*-------------------------------------------------------------------------
 *
 * outside.c
 *	  Waits that hold nothing: procedures that end their transaction first.
 *
 * PostgreSQL knows no procedure outside of a transaction.  But one that has
 * just begun holds back nobody: a snapshot is taken by the first statement
 * that reads, and those of the catalogs the wait loop drops
 * (session_wait.c).  So vacuum goes on while such a procedure waits, and what
 * is read after it is read with a snapshot from after the grant, at every
 * isolation level.
 *
 *-------------------------------------------------------------------------
 */
#include "outside.h"

#include "access/xact.h"
#include "executor/spi.h"
#include "nodes/parsenodes.h"

#include "compat.h"

static bool is_atomic(FunctionCallInfo fcinfo);
pg_noreturn static void refuse(int code, const char *message,
							   const char *hint);

void
zklock_outside_begin(FunctionCallInfo fcinfo, const char *procedure)
{
	if (IsSubTransaction())
		refuse(ERRCODE_INVALID_TRANSACTION_TERMINATION,
			   psprintf("%s() cannot run while a subtransaction is active",
						procedure),
			   "CALL it outside of blocks with EXCEPTION and of savepoints, or use zk_lock().");
	if (is_atomic(fcinfo) && IsTransactionBlock())
		refuse(ERRCODE_ACTIVE_SQL_TRANSACTION,
			   psprintf("%s() cannot run inside a transaction block", procedure),
			   "CALL it before BEGIN, or use zk_lock() or zk_xact_lock().");
	if (is_atomic(fcinfo))
		refuse(ERRCODE_INVALID_TRANSACTION_TERMINATION,
			   psprintf("%s() cannot end the transaction that it is called in", procedure),
			   "CALL it by itself, in a DO block, or in a procedure without SECURITY DEFINER and SET that is called so; not in a function, and not by EXECUTE. Or use zk_lock().");
	SPI_connect_ext(SPI_OPT_NONATOMIC);
	SPI_commit();
	SPI_finish();
}

/* Must the caller's transaction go on, whatever is called in it? */
static bool
is_atomic(FunctionCallInfo fcinfo)
{
	return fcinfo->context == NULL || !IsA(fcinfo->context, CallContext) ||
		castNode(CallContext, fcinfo->context)->atomic;
}

static void
refuse(int code, const char *message, const char *hint)
{
	ereport(ERROR,
			(errcode(code),
			 errmsg_internal("%s", message),
			 errdetail("It ends the transaction before it waits, so that it holds back no vacuum, and what is read after it is newer than the lock."),
			 errhint("%s", hint)));
}
