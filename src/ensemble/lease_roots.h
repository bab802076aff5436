/*-------------------------------------------------------------------------
 *
 * lease_roots.h
 *	  Below which roots the lease worker looks for leases, and when it begins.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LEASE_ROOTS_H
#define ZKLOCK_LEASE_ROOTS_H

#include "postgres.h"

#include "nodes/pg_list.h"

/* For the hooks of shared memory (zklock.c).  The latter reads the file. */
extern void zklock_lease_roots_request_memory(void);
extern void zklock_lease_roots_make_memory(void);

/*
 * This backend is about to take a lease: the worker is to look below its root
 * from now on, also after a restart.  If it cannot, the log says so once.
 * Writes a file if the root is new.
 */
extern void zklock_lease_roots_note(void);

/*
 * The name of a lock that may have leases is written below this backend's root:
 * wake the worker, if it sleeps.  Never waits.
 */
extern void zklock_lease_roots_wake(void);

/* ---- for the worker ---- */

/* A root that this cluster has asked for a lease below. */
typedef struct ZkLeaseRoot
{
	char	   *root;			/* zklock.root's value */
	char	   *path;			/* with the chroot */
	uint64		noted;			/* counts the calls of the two above for it */
	bool		is_idle;		/* no names of locks were there, and no call
								 * since */
} ZkLeaseRoot;

/*
 * All of them, palloc'ed.  This process is the worker from now on: it is the
 * one that is woken.
 */
extern List *zklock_lease_roots(void);

/* Whether names of locks are there, as of a look that began behind that read. */
extern void zklock_lease_roots_tell(const ZkLeaseRoot *root, bool is_idle);

/*
 * The worker is about to sleep: it is to be woken by the next name that is
 * written.  false: some root is not idle, and it is not.
 */
extern bool zklock_lease_roots_sleep(void);

#endif							/* ZKLOCK_LEASE_ROOTS_H */
