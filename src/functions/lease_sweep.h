/*-------------------------------------------------------------------------
 *
 * lease_sweep.h
 *	  The lease worker's way through all leases of this cluster's roots.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LEASE_SWEEP_H
#define ZKLOCK_LEASE_SWEEP_H

#include "postgres.h"

#include "session.h"

/*
 * Go on until that time (protocol_now()): delete leases whose term is over, and
 * the names of locks that have none any more.  ZK_LATE: nobody has answered;
 * else ZK_ANSWERED.  Raises as the session does.
 */
pg_nodiscard extern ZkOutcome zklock_lease_sweep(int64 until);

/* When to go on with the first of the roots, protocol_now(). */
extern int64 zklock_lease_sweep_next_at(void);

/* Are there no names below any root, as of the last look? */
extern bool zklock_lease_sweep_is_idle(void);

/* All roots are to be looked at when it goes on. */
extern void zklock_lease_sweep_begin_anew(void);

#endif							/* ZKLOCK_LEASE_SWEEP_H */
