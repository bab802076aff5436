/*-------------------------------------------------------------------------
 *
 * contender.h
 *	  How a place is won: one contender's way through the queue of one lock.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CONTENDER_H
#define ZKLOCK_CONTENDER_H

#include "postgres.h"

#include "place.h"
#include "recipe.h"
#include "roundtrip.h"

/* A contender: for what place, and in what way. */
typedef struct ZkContender
{
	ZkPlace    *place;			/* whose first part is set; the grant sets the
								 * rest */
	bool		wants_list;		/* do not believe a holder that says that it
								 * lets go, unless it was first in our list */
	RecipeStyle style;			/* of our queue node's name */
	bool		holds_locks;	/* this session holds other locks: others may
								 * wait for it while it waits */
	bool		is_try;			/* if others have the lock, that is no error */
	bool		wants_keep;		/* the lock may be kept after its release: the
								 * node is to say so, if it is an exclusive
								 * one of style _CURATOR */
	ZkBounds	bounds;			/* of the call.  At once: a list before the
								 * node is made shows whether it need try */
	char	   *data;			/* is set to that of our node, palloc'ed */
} ZkContender;

/*
 * Queue up and wait: ZK_WAIT_GRANTED; ZK_WAIT_TIMEOUT of a try that is busy:
 * others are ahead, and patience is at its end; or ZK_WAIT_LOST.  When it ends
 * in any other way than GRANTED, by an error too, nothing of ours stays in the
 * queue.  Needs an open session.  Raises
 * 55P03 at the deadline, and says who holds the lock to members of pg_monitor
 * and to the log; 08001 for a try if the ensemble has not said that somebody
 * does; 57000 when somebody removed our node; 54000 when the queue's sequence
 * numbers are used up; 55000 when the first of the queue has another number of
 * permits.  Also on interrupts, and when ZooKeeper refuses.
 */
extern ZkWaitEnd zklock_contend(ZkContender *contender);

/*
 * Confirm a grant that rests on a message of the one ahead: is nobody ahead of
 * this contender?  A node ahead may be about to be deleted; this waits for
 * that until the deadline of its bounds.  True also if the session was lost:
 * that is noticed elsewhere.  Raises on interrupts, and when ZooKeeper refuses
 * to answer.
 */
extern bool zklock_contend_confirm(ZkContender *contender);

/*
 * How long a contender that does not wait for others waits to hear whether the
 * lock is held or merely kept: two writes of the ensemble, and a margin for a
 * busy machine.
 */
#define ZK_KEEPER_MS 1000

/*
 * Does the queue node at that path, whose mark says that the lock may be kept,
 * surely hold it?  Its data says so, or it cannot be read in time.
 */
extern bool zklock_contend_is_held(ZkRoundTrip *trip, const char *path);

/*
 * When to look at the queue again (protocol_now()) without news of the node
 * ahead, which is watched; its name.
 */
extern int64 zklock_contend_look_at(const char *ahead);

/* Raise 54000: the numbers of that lock's queue are used up. */
pg_noreturn extern void zklock_contend_raise_exhausted(const char *name,
													   const char *lock_path);

/*
 * Raise 55P03 for a contender whose time is over, of which it has but the place
 * and the bounds.  ahead: who was, for the client and for the log; NULL:
 * ZooKeeper has not answered.
 */
pg_noreturn extern void zklock_contend_raise_timeout(const ZkContender *contender,
													 const char *ahead,
													 const char *ahead_log);

#endif							/* ZKLOCK_CONTENDER_H */
