/*-------------------------------------------------------------------------
 *
 * lock.h
 *	  What this backend holds: locks by name, mode and scope, with counts.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LOCK_H
#define ZKLOCK_LOCK_H

#include "postgres.h"

#include "board.h"
#include "compat.h"
#include "nodes/execnodes.h"
#include "recipe.h"
#include "released.h"
#include "roundtrip.h"
#include "utils/timestamp.h"

/* A lock that is held here; lock_private.h. */
struct Lock;

/* What somebody asks for.  Names are in the database's encoding. */
typedef struct ZkLockOrder
{
	const char *name;
	RecipeMode	mode;
	ZkScope		scope;
	int			permits;		/* 1, or of a counting semaphore */
	bool		is_try;			/* busy is an answer, not an error */
	ZkBounds	bounds;			/* of the call, also if it takes several */
	bool		wants_list;		/* see ZkContender */
	bool		is_of_set;		/* one of several that the call takes */
} ZkLockOrder;

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
 * on an upgrade or for another number of permits than that of the queue, 53400
 * past zklock.max_locks, 54000 past what a count can hold, 42602 for a bad
 * name, and whatever a session or the queue raises.  On failure nothing is
 * held that was not held before, and nothing is left in ZooKeeper.
 */
extern int64 zklock_acquire(const ZkLockOrder *order, struct Lock **taken);

/*
 * Leave the place of that lock if it is kept after its release.  Raises 42602
 * for a bad name.
 */
extern void zklock_drop_kept(const char *name);

/*
 * Take one count back, as if its order had never been granted.  In the
 * subtransaction of the order; of several orders of one lock the last comes
 * first.  Never raises if interrupts are held, never waits.
 */
extern void zklock_give_back(struct Lock *lock, RecipeMode mode,
							 ZkScope scope);

/*
 * Take back one count of session scope.  false with a WARNING if there is
 * none, or if the lock had been lost as far as that is known.  work: what the
 * transaction has to commit by now.  If it wrote while it held the lock, and
 * that had been lost, it must not commit.  Of a lock that was held for long it
 * waits for the answer, for a second at most; raises on interrupts then, when
 * the lock is released.
 */
extern bool zklock_release(const char *name, RecipeMode mode, ZkWork work);

/* Take back all counts of session scope.  Likewise, and waits likewise. */
extern void zklock_release_session_scope(ZkWork work);

/* Fencing token of a lock held here, in either mode; 0 if it is not held. */
extern int64 zklock_token(const char *name);

/* What a fencing token is a token of. */
typedef struct ZkTokenOf
{
	char	   *root;			/* as it was when the lock was taken, palloc'ed */
	char	   *name;			/* likewise */
	bool		is_sole;		/* held exclusively and with one permit */
} ZkTokenOf;

/*
 * The same for somebody who may use it: no later grant has that token.
 * *of, unless NULL or the result is 0, is set.
 */
extern int64 zklock_tell_token(const char *name, ZkTokenOf *of);

/*
 * Does the ensemble confirm that this backend holds the lock, in either mode?
 * Asks the quorum.
 */
extern bool zklock_confirm_held(const char *name);

/* The same by that deadline: false if there is no answer by then. */
extern bool zklock_confirm_by(const char *name, int64 deadline);

/*
 * Has somebody asked this session to release the lock?  false if it is not
 * held here, in either mode.  Asks the ensemble, and tells the user, as
 * zklock_recall_read().
 */
extern bool zklock_read_recall(const char *name);

/*
 * Put the rows of zk_locks, for each lock and mode that is held, and for each
 * lock that is kept.
 */
extern void zklock_show_locks(ReturnSetInfo *result);

/*
 * Raise 40001 if a lock held here is known to be lost, as zklock_acquire().
 * If it is the session that is lost, no interrupt for that comes any more.
 */
extern void zklock_refuse_if_lost(void);

/* ---- for hooks.c ---- */

extern bool zklock_has_locks(void);

/* Of transaction or call scope: they end by themselves. */
extern bool zklock_has_xact_locks(void);

/*
 * Is a lock known to be lost that is held here, or on which the transaction
 * relied and which it has let go of?  Never raises.
 */
extern bool zklock_has_lost(void);

/*
 * The transaction is over: its counts end.  Never raises, never waits.
 */
extern void zklock_end_transaction(void);

/* A subtransaction is over: its counts pass to the parent, or end. */
extern void zklock_end_subtransaction(bool is_commit, SubTransactionId mine,
									  SubTransactionId parent);

/* The loss of a lock, in words for an error. */
typedef struct ZkLoss
{
	char		message[768];
	char		detail[768];
	const char *hint;
} ZkLoss;

/*
 * Is a lock held here known to be lost?  Then say so in words.  Never raises.
 */
extern bool zklock_describe_loss(ZkLoss *loss);

/*
 * The current statement is canceled by a signal: if the loss of a lock has
 * sent it, describe that likewise and return true.  The lock is held here, or
 * was let go of before the interrupt took effect.
 */
extern bool zklock_explain_cancellation(ZkLoss *loss);

/* Raise 40001 with these words. */
pg_noreturn extern void zklock_raise_loss(const ZkLoss *loss);

/*
 * Raise 40001 unless every lock held here is good: by the lease, or if there
 * is none that is fresh, or with always_ask, by a quorum's word for each
 * node; and as zklock_released_prove().  May wait and be cancelled.
 */
extern void zklock_prove_locks(bool always_ask);

/* Are they by now, by the lease?  Never raises or waits. */
extern bool zklock_are_proved(void);

#endif							/* ZKLOCK_LOCK_H */
