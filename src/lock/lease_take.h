/*-------------------------------------------------------------------------
 *
 * lease_take.h
 *	  A lease is taken for an owner, and renewed or given up by its token.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LEASE_TAKE_H
#define ZKLOCK_LEASE_TAKE_H

#include "postgres.h"

#include "lease_node.h"

/* ---- for an owner (lease_take.c) ---- */

/* A call that takes a lease. */
typedef struct ZkLeaseTaking
{
	ZkLeasing	leasing;		/* with owner */
	bool		stays_queued;	/* where others have the lock, the owner's node
								 * stays in the queue */
	bool		is_counted;		/* by zklock_take_rate_count(), once a call */

	int			nparentless;	/* how often its node could not be made because
								 * the lock's znode was not there */

	/*
	 * The node that this call has made, as long as the call is to delete it if
	 * the wait is in vain.
	 */
	ZkRequest  *create;			/* NULL: there is none */
	char		guid[RECIPE_GUID_LEN + 1];	/* in its name; "": likewise */
} ZkLeaseTaking;

/*
 * Takes a lease for the owner, or renews the one that the owner has; waits for
 * the contenders that are ahead of it.  A talk of zklock_roundtrip_must_run(),
 * about a ZkLeaseTaking.  It ends as ZK_LEASE_HELD, _QUEUED or _BUSY.
 *
 * Raises 08001 if the ensemble does not answer in time, unless others were
 * ahead and the time of the call is over.  So it is never ZK_LATE.
 */
extern ZkOutcome zklock_lease_take(ZkRoundTrip *trip, void *taking);

/*
 * At the end of each attempt of zklock_lease_take(): what it made and nobody
 * needs is deleted.  Never raises.
 */
extern void zklock_lease_end_taking(void *taking);

/* ---- by its token (lease_renew.c) ---- */

/*
 * Renew the lease with that token.  A talk of zklock_roundtrip_must_run(),
 * about a ZkLeasing.  It ends as ZK_LEASE_HELD or _NONE.
 */
extern ZkOutcome zklock_lease_renew(ZkRoundTrip *trip, void *leasing);

/*
 * Find the lease with that token, which is mine then.  A talk likewise, about a
 * ZkLeasing; it ends as ZK_LEASE_HELD or _NONE.
 */
extern ZkOutcome zklock_lease_locate(ZkRoundTrip *trip, void *leasing);

/* A call that gives a lease up. */
typedef struct ZkLeaseReleasing
{
	ZkLeasing	leasing;		/* with token */
	int64		delay_ms;		/* for how long the lock stays taken; 0: it is
								 * free at once */
	ZkLeased   *tried;			/* one that may have been given up by this
								 * call: the reply was lost; NULL: none */
} ZkLeaseReleasing;

/*
 * Likewise give it up, about a ZkLeaseReleasing.  It ends as ZK_LEASE_RELEASED,
 * with the lease as mine, or _NONE.
 */
extern ZkOutcome zklock_lease_release(ZkRoundTrip *trip, void *releasing);

#endif							/* ZKLOCK_LEASE_TAKE_H */
