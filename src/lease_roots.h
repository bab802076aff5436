/*-------------------------------------------------------------------------
 *
 * lease_roots.h
 *	  Below which roots the lease worker looks for leases.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LEASE_ROOTS_H
#define ZKLOCK_LEASE_ROOTS_H

#include "postgres.h"

#include "nodes/pg_list.h"

/* For the hooks of shared memory (zklock.c). */
extern void zklock_lease_roots_request_memory(void);
extern void zklock_lease_roots_make_memory(void);

/*
 * This backend takes a lease: the worker is to look below its root from now
 * on.  If it cannot, the log says so once.  Never waits.
 */
extern void zklock_lease_roots_note(void);

/* ---- for the worker ---- */

/*
 * The paths of all known roots, with the chroot, palloc'ed: that of this
 * process first.  Raises as zklock_name_path().
 */
extern List *zklock_lease_roots(void);

/*
 * Have the settings of roles and databases read, if that was long ago, by a
 * worker of a moment: they say other roots.  Without waiting for it.  To be
 * called in a transaction.
 */
extern void zklock_lease_roots_refresh(void);

/* The settings of this process have changed: read them all again. */
extern void zklock_lease_roots_forget(void);

#endif							/* ZKLOCK_LEASE_ROOTS_H */
