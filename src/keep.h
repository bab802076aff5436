/*-------------------------------------------------------------------------
 *
 * keep.h
 *	  Places that are kept after the last release of their lock.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_KEEP_H
#define ZKLOCK_KEEP_H

#include "postgres.h"

#include "place.h"

/* Define the setting of this module.  For _PG_init(). */
extern void zklock_keep_init(void);

/*
 * Is the queue node of the place, which is made next, to be one that can be
 * kept?  It is that of an exclusive lock.  If so its data is made, in that
 * context: at the end of a transaction names cannot be looked up.  Raises as
 * zklock_nodedata_build().
 */
extern bool zklock_keep_prepare(ZkPlace *place, MemoryContext context);

/*
 * Take the kept place of a lock back: all of *place is set, but its name and
 * the path of its lock.  false if there is none, any more, or no fresh proof
 * of it: then it was left.  Mostly without a system call; never raises, never
 * waits.
 */
extern bool zklock_keep_take(ZkPlace *place);

/*
 * The lock was granted, and may be kept when it is released: from now on the
 * session's program looks who else comes.  Never raises, never waits.
 */
extern void zklock_keep_begin(ZkPlace *place);

/*
 * The last count of its lock is gone: keep the place, if that is allowed and
 * nobody waits for it.  false: it is to be left.  Never raises, never waits.
 */
extern bool zklock_keep_put(ZkPlace *place, ZkSessionNumber live);

/* Somebody else wants that lock, too: it is not kept for a while. */
extern void zklock_keep_note_rival(const char *lock_path);

/* Leave the place that is kept of that lock.  Never raises or waits. */
extern void zklock_keep_drop(const char *lock_path);

/*
 * Leave as many, the oldest first, that there are no more than that.  Never
 * raises or waits.
 */
extern void zklock_keep_drop_down_to(int most);

/*
 * At the end of a transaction: leave them all if settings have changed,
 * forget those that were given up.  Without any, a comparison.
 */
extern void zklock_keep_settle(void);

/* Is that the name of the queue node of one that is kept? */
extern bool zklock_keep_has_node(const char *node);

/* Call visit for each place that is kept. */
extern void zklock_keep_visit(void (*visit) (const ZkPlace *place,
											 void *argument),
							  void *argument);

#endif							/* ZKLOCK_KEEP_H */
