/*-------------------------------------------------------------------------
 *
 * lock_proof.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LOCK_PROOF_H
#define ZKLOCK_LOCK_PROOF_H

#include "postgres.h"

#include "lock_table.h"
#include "loss.h"
#include "nodes/execnodes.h"

/*
 * Attend to the session, and look what has become of the places of all locks
 * that are held.  The questions below are answered by what was known then, and
 * change nothing.  Never raises or waits.
 */
extern void zklock_attend_locks(void);

/* What a fencing token is a token of. */
typedef struct ZkTokenOf
{
	char	   *root;			/* as it was when the lock was taken, palloc'ed */
	char	   *name;			/* likewise */
	bool		is_sole;		/* held exclusively and with one permit */
} ZkTokenOf;

/*
 * Attend, and tell the user that token: no later grant has it, because the lock
 * is not kept.  *of, unless NULL or the result is 0, is set.
 */
extern int64 zklock_tell_token(const ZkName *name, ZkTokenOf *of);

/*
 * Does the ensemble confirm that this backend holds the lock, in either mode?
 * Asks the quorum.  Not of a lock that is leaving: the user has released it.
 */
extern bool zklock_confirm_held(const ZkName *name);

/*
 * The same of a lock that is held, be it leaving or not, by that deadline:
 * false if there is no answer by then.
 */
extern bool zklock_confirm_by(Lock *lock, int64 deadline);

/*
 * Has somebody asked this session to release the lock?  false if it is not
 * held here, in either mode.  Asks the ensemble, and tells the user, as
 * zklock_release_request_read().
 */
extern bool zklock_read_release_request(const ZkName *name);

/*
 * Put the rows of zk_session_locks, for each lock and mode that is held, and
 * for each lock that is kept.
 */
extern void zklock_show_locks(ReturnSetInfo *result);

/*
 * Raise 40001 if a lock held here is known to be lost, as zklock_lock_acquire().
 * If it is the session that is lost, no interrupt for that comes any more.
 */
extern void zklock_refuse_if_lost(void);

/* ---- losses ---- */

/* A question: is a lock known to be lost that is held here?  Never raises. */
extern bool zklock_has_lost(void);

/* The same; then say so in words. */
extern bool zklock_describe_loss(ZkLoss *loss);

/*
 * The current statement is canceled by a signal: if the loss of a lock has
 * sent it, describe that likewise and return true.  The lock is held here, or
 * was let go of before the interrupt took effect.  Never raises or waits.
 */
extern bool zklock_explain_cancellation(ZkLoss *loss);

/*
 * Raise 40001 unless every lock held here is good: with commit_guard = fresh, or if
 * there is none that is fresh, or with always_ask, by the quorum's answer for
 * each node.  May wait and be cancelled.
 */
extern void zklock_prove_locks(bool always_ask);

/* A question: are they by now, with commit_guard = fresh?  Never raises. */
extern bool zklock_are_proved(void);

/* ---- for lock.c ---- */

/*
 * Warn that it has no count of session scope in that mode to take back, and
 * how what there is is let go of.  lock: its entry, NULL if there is none.
 */
extern void zklock_lock_warn_not_held(const ZkName *name, const Lock *lock,
									  RecipeMode mode);

/*
 * It is let go of, and had been lost: an interrupt for that may be still to
 * come.  Never raises.
 */
extern void zklock_lock_note_late_loss(const Lock *lock);

#endif							/* ZKLOCK_LOCK_PROOF_H */
