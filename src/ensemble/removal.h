/*-------------------------------------------------------------------------
 *
 * removal.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_REMOVAL_H
#define ZKLOCK_REMOVAL_H

#include "postgres.h"

#include "roundtrip.h"

/* A znode to be deleted; the first part is the caller's order. */
typedef struct ZkRemoval
{
	const char *path;
	const char *guard;			/* see zklock_client_remove_guarded(); or NULL */
	const char *doing;			/* completes "could not ..." */
	int64		czxid;			/* which one there */

	bool		is_tried;		/* a delete has been sent */
	bool		is_removed;		/* valid when it is over: by us */
} ZkRemoval;

/*
 * Delete a znode and await the confirmation, but never a later one at the
 * same path; with a guard as often as others are faster with theirs.  Raises
 * 58000 if the server differs from its leader.  At ZK_LOST the caller does it
 * again, with the next session.  Never ZK_UNKNOWN.
 */
pg_nodiscard extern ZkOutcome zklock_removal_do(ZkRoundTrip *trip,
												ZkRemoval *removal);

/*
 * The version of a guard counts up and wraps; the one value that means any
 * version to the server is of no use.  Set the guard once more.  Nobody waits
 * for the reply.
 */
extern void zklock_removal_advance(const char *guard);

#endif							/* ZKLOCK_REMOVAL_H */
