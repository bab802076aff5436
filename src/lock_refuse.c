/*-------------------------------------------------------------------------
 *
 * lock_refuse.c
 *	  What is refused for the sake of what this backend holds already, in
 *	  words; and the warning of a fixed snapshot.
 *
 *-------------------------------------------------------------------------
 */
#include "lock_private.h"

#include <limits.h>

#include "access/xact.h"
#include "utils/guc.h"

/* zklock.snapshot_warning: warn when a lock comes after the snapshot? */
static bool snapshot_warning;

void
zklock_lock_refuse_init(void)
{
	DefineCustomBoolVariable("zklock.snapshot_warning",
							 "Warns when a lock is taken in a transaction whose snapshot is already fixed.",
							 NULL,
							 &snapshot_warning, true,
							 PGC_USERSET, 0,
							 NULL, NULL, NULL);
}

/*
 * In REPEATABLE READ and above the transaction block reads what was committed
 * before the lock was granted: the work of the holder before us is invisible.
 */
void
zklock_lock_warn_of_snapshot(void)
{
	if (snapshot_warning && IsolationUsesXactSnapshot() && IsTransactionBlock())
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg("a lock taken in a transaction with a fixed snapshot does not protect what it reads"),
				 errdetail("The transaction does not see what earlier holders of the lock have committed meanwhile."),
				 errhint("Take the lock before the transaction, or use READ COMMITTED and read in a later statement.")));
}

void
zklock_lock_refuse_upgrade(const Lock *lock)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("cannot upgrade lock \"%s\" from shared to exclusive",
					lock->name),
			 errdetail("Two sessions that upgrade the same lock would wait for each other for ever."),
			 errhint("Release the shared lock first, or take the exclusive lock from the start.")));
}

void
zklock_lock_refuse_count(const Lock *lock)
{
	ereport(ERROR,
			(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
			 errmsg("too many holds of lock \"%s\"", lock->name),
			 errdetail("This session holds it %d times.", INT_MAX),
			 errhint("Release it as often as it is taken. A lock of session scope is not released by the end of a transaction.")));
}

void
zklock_lock_refuse_permits(const Lock *lock, int permits)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("lock \"%s\" is held here with another number of permits",
					lock->name),
			 errdetail("This call names %d, the lock was taken with %d.",
					   permits, lock->place.permits),
			 errhint("All users of a lock must name the same number of permits; a shared lock has 1.")));
}
