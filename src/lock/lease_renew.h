/*-------------------------------------------------------------------------
 *
 * lease_renew.h
 *	  A lease is renewed, or given up, by its token.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LEASE_RENEW_H
#define ZKLOCK_LEASE_RENEW_H

#include "postgres.h"

#include "lease_node.h"

/*
 * Renew the lease with that token.  A talk of zklock_roundtrip_must_run(),
 * about a ZkLeasing.  It ends as ZK_LEASE_HELD or _NONE.
 */
extern ZkOutcome zklock_lease_renew(ZkRoundTrip *trip, void *leasing);

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

#endif							/* ZKLOCK_LEASE_RENEW_H */
