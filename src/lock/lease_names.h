/*-------------------------------------------------------------------------
 *
 * lease_names.h
 *	  The names of locks that have leases, below <root>/.leases.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LEASE_NAMES_H
#define ZKLOCK_LEASE_NAMES_H

#include "postgres.h"

#include "nodes/pg_list.h"

#include "roundtrip.h"

/* The name of a lock, and where it is noted; palloc'ed. */
typedef struct ZkLockName
{
	const char *name;			/* in UTF-8, without the root */
	const char *pointer;		/* path of its znode below .leases */
	int			root_length;	/* of that path, and of the lock's */
} ZkLockName;

/*
 * If a lease's node was made later than this after its name was noted, the name
 * is noted once more: a worker may have dropped it meanwhile.
 */
#define ZK_LEASE_NAME_MS 500

/* The name of that lock.  Raises 42602 for a bad one. */
extern ZkLockName zklock_lease_names_of(const char *name);

/*
 * Note the name, and wake the worker.  The reply to the last request, NULL if it
 * did not come in time.  Raises 55000 if an ephemeral znode is in the way.
 */
extern const ZkReply *zklock_lease_names_note(ZkRoundTrip *trip,
											  const ZkLockName *name);

/*
 * For the worker: these locks (children of .leases below that root) have no
 * leases now.  Delete the names of those that have had none for a while.  false
 * at the deadline of the trip, and if the session is lost.
 */
extern bool zklock_lease_names_drop(ZkRoundTrip *trip, const char *root,
									const List *idle);

#endif							/* ZKLOCK_LEASE_NAMES_H */
