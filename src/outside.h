/*-------------------------------------------------------------------------
 *
 * outside.h
 *	  Waits that hold nothing: procedures that end their transaction first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_OUTSIDE_H
#define ZKLOCK_OUTSIDE_H

#include "postgres.h"

#include "fmgr.h"

/*
 * Commit the transaction of a procedure's caller, and go on in another one,
 * which has done nothing so far: it has no snapshot, no transaction id and no
 * locks.  What the arguments point to may be gone after this; what was
 * palloc'ed by the procedure is not.  Raises 25001 in a transaction block,
 * 2D000 in a subtransaction and where else none can be ended, and what a
 * commit raises: then nothing is committed.
 */
extern void zklock_outside_begin(FunctionCallInfo fcinfo,
								 const char *procedure);

#endif							/* ZKLOCK_OUTSIDE_H */
