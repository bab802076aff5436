/*-------------------------------------------------------------------------
 *
 * lease_sweep.h
 *
 * Also declares what lease_worker.c has.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LEASE_SWEEP_H
#define ZKLOCK_LEASE_SWEEP_H

#include "postgres.h"

#include "session.h"

/* Define the setting of the lease worker, and register it (lease_worker.c).  For _PG_init(). */
extern void zklock_lease_worker_init(void);

/*
 * Go on until that time (protocol_now()), or until nothing is due: delete leases
 * whose term is over, and the names of locks that have none any more.  ZK_LATE:
 * nobody has answered; else ZK_ANSWERED.  Raises as the session does.
 */
pg_nodiscard extern ZkOutcome zklock_lease_sweep(int64 until);

/* When to go on, protocol_now(). */
extern int64 zklock_lease_sweep_next_at(void);

/* Has the last look at each root found no names of locks, and is none due? */
extern bool zklock_lease_sweep_is_idle(void);

/* So the next look is far off, if none is due before. */
extern void zklock_lease_sweep_rest(void);

/* Read the settings again, and look below all roots when it goes on. */
extern void zklock_lease_sweep_begin_anew(void);

#endif							/* ZKLOCK_LEASE_SWEEP_H */
