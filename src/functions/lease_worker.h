/*-------------------------------------------------------------------------
 *
 * lease_worker.h
 *	  A background worker that deletes leases whose term is over.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LEASE_WORKER_H
#define ZKLOCK_LEASE_WORKER_H

/* Define the setting of this module, and register the worker.  For _PG_init(). */
extern void zklock_lease_worker_init(void);

#endif							/* ZKLOCK_LEASE_WORKER_H */
