/*-------------------------------------------------------------------------
 *
 * lock.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LOCK_H
#define ZKLOCK_LOCK_H

#include "postgres.h"

#include "board.h"
#include "compat.h"
#include "order.h"
#include "recipe.h"
#include "utils/timestamp.h"

/* A lock that is held here; lock_table.h. */
struct Lock;

/* Define the settings of this module.  For _PG_init(). */
extern void zklock_lock_init(void);

/*
 * How long a request ZooKeeper's servers must take for zklock.max_lock_bytes,
 * in bytes.
 */
extern int	zklock_lock_request_bytes(void);

/*
 * May locks of that scope be taken?  Raises 0A000, or warns once a statement,
 * as zklock.session_scope says.  name: of the lock, for the HINT.
 */
extern void zklock_check_scope(ZkScope scope, const char *name);

/*
 * Take a lock, or count it once more.  Result: its fencing token, or 0
 * if a try found it busy.  *taken, unless taken is NULL, is set when the lock
 * is counted, for zklock_give_back().  Raises as zklock_check_scope(); 55P03
 * when a wait is over its bound, 08001 when a try is and the ensemble has not
 * said that the lock is busy, 40001 when this backend has a lost lock, 55000
 * on an upgrade or for another number of permits than that of the queue, also
 * where the lock is leaving (lock_table.h), 53400
 * past zklock.max_locks, 54000 past what a count can hold, and whatever a session
 * or the queue raises.  On failure nothing is
 * held that was not held before, and nothing is left in ZooKeeper.
 */
extern int64 zklock_lock_acquire(const ZkOrder *order, struct Lock **taken);

/*
 * Raise 55000 if this session holds the lock, or is leaving it: it would stand in
 * the way of who takes it anew.  why: a sentence for the DETAIL.
 */
extern void zklock_refuse_own(const ZkName *name, const char *why);

/*
 * Does this session hold the lock of that name, or keep it after its release?
 */
extern bool zklock_has_at_hand(const ZkName *name);

/*
 * In REPEATABLE READ and above a transaction block reads what was committed
 * before its snapshot, which is older than a grant in it: the work of the
 * previous holder is invisible.  If so, raise a WARNING.
 */
extern void zklock_warn_of_snapshot(void);

/* Leave the place of that lock if it is kept after its release. */
extern void zklock_drop_kept(const ZkName *name);

/*
 * Take one count back, as if its order had never been granted: at once,
 * whatever was written since.  In the subtransaction of the order; of several
 * orders of one lock the last comes first.  Never raises if interrupts are held,
 * never waits.
 */
extern void zklock_give_back(struct Lock *lock, RecipeMode mode,
							 ZkScope scope);

/*
 * Take back one count of session scope.  false with a WARNING if there is
 * none, or if the lock had been lost as far as that is known.  With the last
 * count the lock is released: if the current transaction has written, when that
 * ends, so that the next holder sees what was written; else at once.  Then, of a
 * lock that was held for long, it waits for the answer, for a second at most, and
 * raises on interrupts, when the lock is released.
 */
extern bool zklock_lock_release(const ZkName *name, RecipeMode mode,
								bool has_written);

/*
 * Take back all counts of session scope.  Likewise, waits likewise, and warns of
 * each lock that had been lost.
 */
extern void zklock_release_session_scope(bool has_written);

/* ---- for hooks.c ---- */

/*
 * The transaction is over: its counts end.  Never raises, never waits.
 */
extern void zklock_end_transaction(void);

/* A subtransaction is over: its counts pass to the parent, or end. */
extern void zklock_end_subtransaction(bool is_commit, SubTransactionId mine,
									  SubTransactionId parent);

#endif							/* ZKLOCK_LOCK_H */
