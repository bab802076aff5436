/*-------------------------------------------------------------------------
 *
 * auth.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_AUTH_H
#define ZKLOCK_AUTH_H

#include "postgres.h"

/* Define the settings of this module.  For _PG_init(). */
extern void zklock_auth_init(void);

/*
 * A number that is another one when a reload has found other credentials, in
 * zklock.auth or in the file that it names.
 */
extern uint64 zklock_auth_hash(void);

/*
 * The user's credentials, from the setting or the file that it names:
 * palloc'ed texts, to be wiped by the caller; not set if there are none.
 * Raises F0000 if the file holds none, and what opening it raises; warns if
 * others may read it.
 */
extern void zklock_auth_read(char **scheme, char **credentials);

/*
 * "user:password" that nobody can guess, palloc'ed; NULL without randomness.
 */
extern char *zklock_auth_make_identity(void);

#endif							/* ZKLOCK_AUTH_H */
