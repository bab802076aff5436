/*-------------------------------------------------------------------------
 *
 * hooks.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_HOOKS_H
#define ZKLOCK_HOOKS_H

#include "postgres.h"

/* Define the settings of this module and install its hooks.  For _PG_init(). */
extern void zklock_hooks_init(void);

/* Register the transaction callbacks, once; before the first lock. */
extern void zklock_hooks_follow(void);

/*
 * Has the current transaction anything to commit, as far as PostgreSQL knows, or
 * does a statement run that may write?  Not what is written through a foreign
 * server.
 */
extern bool zklock_hooks_has_written(void);

/* Is zklock.commit_guard quorum? */
extern bool zklock_hooks_asks_quorum(void);

#endif							/* ZKLOCK_HOOKS_H */
