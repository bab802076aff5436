/*-------------------------------------------------------------------------
 *
 * lease_names.h
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
 * Make the name of that lock, unless it is there.  *reply: to the last request.
 * Asked again as long as its outcome is unknown, so it is never ZK_UNKNOWN.
 * Raises 55000 if an ephemeral znode is in the way.
 */
pg_nodiscard extern ZkOutcome zklock_lease_names_make(ZkRoundTrip *trip,
													  const ZkName *name,
													  const ZkReply **reply);

/*
 * For the worker: these locks (children of .leases below that root,
 * ZK_READS_AT_ONCE at most) seem to have no leases.  Delete the names of those
 * that have none.  Never ZK_UNKNOWN.
 */
pg_nodiscard extern ZkOutcome zklock_lease_names_drop(ZkRoundTrip *trip,
													  const char *root,
													  const List *idle);

#endif							/* ZKLOCK_LEASE_NAMES_H */
