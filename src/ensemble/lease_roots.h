/*-------------------------------------------------------------------------
 *
 * lease_roots.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LEASE_ROOTS_H
#define ZKLOCK_LEASE_ROOTS_H

#include "postgres.h"

#include "nodes/pg_list.h"

/* Define the setting.  For _PG_init(). */
extern void zklock_lease_roots_init(void);

/* For the hooks of shared memory (zklock.c). */
extern void zklock_lease_roots_request_memory(void);
extern void zklock_lease_roots_make_memory(void);

/*
 * The name of a lock that may have leases is written below this session's root:
 * wake the worker, if it sleeps and looks below that root.  Never waits.
 */
extern void zklock_lease_roots_wake(void);

/* Does a worker of this cluster look below this session's root? */
extern bool zklock_lease_roots_have_own(void);

/* ---- for the worker ---- */

/*
 * The paths of all of them, with the chroot, palloc'ed; each once.  This process
 * is the worker from now on: it is the one that is woken.
 */
extern List *zklock_lease_roots(void);

/*
 * The worker has found no names, and is about to sleep: it is to be woken by
 * the next name that is written.  false: one may have been written since the
 * last call, so it is to look again first.
 */
extern bool zklock_lease_roots_sleep(void);

#endif							/* ZKLOCK_LEASE_ROOTS_H */
