/*-------------------------------------------------------------------------
 *
 * lease_take.h
 *
 * Also declares what lease_renew.c has.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LEASE_TAKE_H
#define ZKLOCK_LEASE_TAKE_H

#include "postgres.h"

#include "lease_node.h"
#include "order.h"
#include "place.h"

/* ---- for an owner (lease_take.c) ---- */

/* How far a lease under way has come. */
typedef enum ZkLeaseStage
{
	ZK_LEASE_NOTHING,			/* nothing of it is there, or it is made */
	ZK_LEASE_TWIN,				/* the lock is ours, under the twin */
	ZK_LEASE_SENT				/* the lease may be there instead */
} ZkLeaseStage;

/* A call that takes a lease. */
typedef struct ZkLeaseTaking
{
	ZkLeasing	leasing;
	ZkOrder		order;			/* with the owner; its bounds are the call's */

	ZkLeaseStage stage;
	bool		is_new;			/* this call has made the lease */
	ZkPlace		twin;			/* from _TWIN on: ours */
	char		path[RECIPE_PATH_SIZE]; /* from _SENT on: of the lease */
} ZkLeaseTaking;

/*
 * Takes a lease for the owner, or renews the one that the owner has; waits for
 * the contenders that are ahead.  A talk of zklock_roundtrip_must_run(), about
 * a ZkLeaseTaking.  It ends as ZK_LEASE_HELD or _BUSY.
 *
 * Raises 08001 if the ensemble does not answer in time, 55000 if the lease of
 * the owner has another mode or number of permits, and as zklock_contender_win_place().  So
 * it is never ZK_LATE.
 */
extern ZkOutcome zklock_lease_take(ZkRoundTrip *trip, void *taking);

/*
 * At the end of each attempt of zklock_lease_take(): what is not finished is
 * deleted.  Never raises.
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
	ZkLeasing	leasing;
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
