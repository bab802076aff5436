/*-------------------------------------------------------------------------
 *
 * lock_log.h
 *	  What the server's log says of each lock that is taken (zklock.log_locks).
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LOCK_LOG_H
#define ZKLOCK_LOCK_LOG_H

#include "postgres.h"

#include "lock_table.h"

/*
 * Note who takes the lock, if the log is to say it, while the catalog may
 * still be read: at the end of a transaction it may not.
 */
extern void zklock_lock_log_holder(Lock *lock);

/*
 * Say that the lock is taken in that mode, or how it has ended.  Interrupts
 * wait: the caller of a lock must hear that the lock is held.
 */
extern void zklock_lock_log_taken(const Lock *lock, RecipeMode mode);
extern void zklock_lock_log_end(const Lock *lock, const char *how);

#endif							/* ZKLOCK_LOCK_LOG_H */
