/*-------------------------------------------------------------------------
 *
 * parents.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_PARENTS_H
#define ZKLOCK_PARENTS_H

#include "postgres.h"

#include "roundtrip.h"

/*
 * How often parents are made anew when they vanish between their creation and
 * that of what is to be in them: the server removes empty containers at any
 * time.
 */
#define PARENT_ATTEMPTS 10

/*
 * Create what is above the znode of that path: its first root_length bytes,
 * which are the root, or that and more,
 * for good, with our name as data, the rest as
 * containers, of which the server removes those that are empty.  *refusal: the
 * reply to one that is refused, else NULL: whether all are there the next create
 * tells.  Never ZK_UNKNOWN.  Raises 0A000 if the server has no containers.
 */
pg_nodiscard extern ZkOutcome zklock_parents_make(ZkRoundTrip *trip,
												  const char *path,
												  int root_length,
												  const ZkReply **refusal);

/*
 * Create a znode, and what is above it if need be, as
 * zklock_parents_make().  *reply: to the last create of any.  With ZK_UNKNOWN
 * the znode may be there, or be made yet; a second create says ZK_NODE_EXISTS if
 * it is there, but not who made it.
 */
pg_nodiscard extern ZkOutcome zklock_parents_create(ZkRoundTrip *trip,
													const char *path,
													int root_length,
													ZkNodeKind kind,
													const char *data,
													const ZkReply **reply);

/*
 * Create a container, and find out whether the server has any.  Sets *refusal to
 * NULL, or to how it refuses containers: words for a DETAIL.  *reply: to the
 * create, or to a check of that path behind it.  Never ZK_UNKNOWN.
 */
pg_nodiscard extern ZkOutcome zklock_parents_try_container(ZkRoundTrip *trip,
														   const char *path,
														   const ZkReply **reply,
														   const char **refusal);

/* Raise that this znode, which is above a queue node, has vanished too often. */
pg_noreturn extern void zklock_parents_raise_deleted(const char *path);

#endif							/* ZKLOCK_PARENTS_H */
