/*-------------------------------------------------------------------------
 *
 * xact.h
 *	  Where locks follow transactions: commit, abort, savepoints, DISCARD ALL.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_XACT_H
#define ZKLOCK_XACT_H

/* Define the settings of this room and install its hooks.  For _PG_init(). */
extern void zklock_xact_init(void);

/* Register the transaction callbacks, once; before the first lock. */
extern void zklock_xact_follow(void);

/* Has the current transaction anything to commit: changes, or notifications? */
extern bool zklock_xact_has_written(void);

/* Is zklock.commit_guard quorum? */
extern bool zklock_xact_asks_quorum(void);

#endif							/* ZKLOCK_XACT_H */
