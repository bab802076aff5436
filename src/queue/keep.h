/*-------------------------------------------------------------------------
 *
 * keep.h
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
 * Is the next queue node of that lock to be one that can be kept?  It is that
 * of an exclusive lock.
 */
extern bool zklock_keep_is_wanted(const char *lock_path);

/*
 * Take a place back that is kept: it is ours again.  false if it is not, any
 * more, or there is no fresh proof of it: then it was left.  Mostly without a
 * system call; never raises, never waits.
 */
extern bool zklock_keep_take(ZkPlace *place);

/*
 * The lock was granted, on a node with that data whose name says that it may
 * be kept: the session's program looks from now on who else comes.  Never
 * raises, never waits.
 */
extern void zklock_keep_begin(ZkPlace *place, const char *data);

/*
 * The last count of its lock is gone: keep the place, if that is allowed and
 * nobody waits for it.  It must stay where it is while it is kept.  false: it
 * is to be left, and will not be kept.  Never raises, never waits.
 */
extern bool zklock_keep_put(ZkPlace *place, ZkSessionNumber live);

/*
 * A question: is it kept, as far as this backend has noticed?  The program may
 * have given it up since.
 */
extern bool zklock_keep_is_kept(const ZkPlace *place);

/* Somebody else wants that lock, too: it is not kept for a while. */
extern void zklock_keep_note_rival(const char *lock_path);

/*
 * Leave the place if it is kept; why, for the log at DEBUG1.  Never raises or
 * waits.
 */
extern void zklock_keep_drop(ZkPlace *place, const char *why);

/*
 * Leave as many that there are no more than that, and the paths of their nodes
 * have no more bytes than that.  Never raises or waits.
 */
extern void zklock_keep_drop_down_to(int most, Size most_bytes);

/*
 * Leave all.  is_awaited: the caller waits until their nodes are gone
 * (zklock_session_await_undone()).  Never raises or waits.
 */
extern void zklock_keep_drop_all(const char *why, bool is_awaited);

/*
 * At the end of a transaction: leave those that were kept under other
 * settings, forget those that were given up.  Without any, a comparison.
 */
extern void zklock_keep_review(void);

/*
 * A question: is that place kept, as far as can be told without taking it back?
 * live: zklock_session_live().
 */
extern bool zklock_keep_can_be_taken(const ZkPlace *place,
									 ZkSessionNumber live);

#endif							/* ZKLOCK_KEEP_H */
