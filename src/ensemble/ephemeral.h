/*-------------------------------------------------------------------------
 *
 * ephemeral.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_EPHEMERAL_H
#define ZKLOCK_EPHEMERAL_H

#include "postgres.h"

#include "roundtrip.h"

/*
 * Of the znode at that path and those above it, down to that length of the
 * path, the uppermost that is ephemeral: it can have no children.  *reply is
 * that to a read of it, valid as long as the trip, and *found its path,
 * palloc'ed.  Both are NULL if there is none.  Never ZK_UNKNOWN.
 */
pg_nodiscard extern ZkOutcome zklock_ephemeral_find(ZkRoundTrip *trip,
													const char *path,
													int length,
													const ZkReply **reply,
													char **found);

/*
 * What was to be made at that path was refused, by that reply: raise 55000 if
 * an ephemeral znode of some other program's is in the way, there or above, and
 * tell whose it is.  It is looked for for a second at most, in reply to
 * ZK_FAILED: no result of ours says that a znode can have no children.
 */
extern void zklock_ephemeral_refuse(const ZkReply *reply,
									const char *path);

#endif							/* ZKLOCK_EPHEMERAL_H */
