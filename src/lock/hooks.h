/*-------------------------------------------------------------------------
 *
 * hooks.h
 *	  Where PostgreSQL calls us, as far as others must know of it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_HOOKS_H
#define ZKLOCK_HOOKS_H

#include "released.h"

/* Define the settings of this module and install its hooks.  For _PG_init(). */
extern void zklock_hooks_init(void);

/* Register the transaction callbacks, once; before the first lock. */
extern void zklock_hooks_follow(void);

/* What has the current transaction to commit? */
extern ZkWork zklock_hooks_work(void);

/* Is zklock.commit_guard quorum? */
extern bool zklock_hooks_asks_quorum(void);

#endif							/* ZKLOCK_HOOKS_H */
