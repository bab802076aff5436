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
 * the worker.  *reply: to the last request.  Asked again as long as its outcome
 * is unknown, so it is never ZK_UNKNOWN.  Raises 55000 if an ephemeral znode is
 * in the way.
 */
pg_nodiscard extern ZkOutcome zklock_lease_names_note(ZkRoundTrip *trip,
													  const ZkName *name,
													  const char *pointer,
													  const ZkReply **reply);

/*
 * For the worker: these locks (children of .leases below that root,
 * ZK_READS_AT_ONCE at most) have no leases now.  Delete the names of those that
 * have had none for a while.  Never ZK_UNKNOWN.
 */
pg_nodiscard extern ZkOutcome zklock_lease_names_drop(ZkRoundTrip *trip,
													  const char *root,
													  const List *idle);

#endif							/* ZKLOCK_LEASE_NAMES_H */
