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

#include "name.h"
#include "roundtrip.h"

/*
 * If a lease's node was made later than this after its name was noted, the name
 * is noted once more: a worker may have dropped it meanwhile.
 */
#define ZK_LEASE_NAME_MS 500

/*
 * Note the name of that lock at that path, zklock_name_lease_path()'s, and wake
 * the worker.  The reply to the last request, NULL if it
 * did not come in time.  Raises 55000 if an ephemeral znode is in the way.
 */
extern const ZkReply *zklock_lease_names_note(ZkRoundTrip *trip,
											  const ZkName *name,
											  const char *pointer);

/*
 * For the worker: these locks (children of .leases below that root) have no
 * leases now.  Delete the names of those that have had none for a while.  false
 * at the deadline of the trip, and if the session is lost.
 */
extern bool zklock_lease_names_drop(ZkRoundTrip *trip, const char *root,
									const List *idle);

#endif							/* ZKLOCK_LEASE_NAMES_H */
