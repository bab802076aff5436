/*-------------------------------------------------------------------------
 *
 * recall.h
 *	  What others write for the owner of a queue node: requests to release
 *	  the lock, and who has evicted it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_RECALL_H
#define ZKLOCK_RECALL_H

#include "postgres.h"

#include "name.h"
#include "recipe.h"
#include "roundtrip.h"

/* Size of the path of a request, with its NUL. */
#define ZK_RECALL_PATH_SIZE (RECIPE_PATH_SIZE + 2 * sizeof(ZK_RELEASE_SUFFIX))

/* What stands ahead of the queue node's name in that of what is written. */
#define ZK_REQUEST ""
#define ZK_EVICTION "evicted-"

/*
 * The path of the request to the holder whose queue node is called node, or
 * where who evicts it writes down who he is: <root>/.release/<node>.release,
 * with the first root_length bytes of the lock's path, and with that prefix.
 * false if the node's name is too long.
 */
extern bool zklock_recall_path(char path[ZK_RECALL_PATH_SIZE],
							   const char *lock_path, int root_length,
							   const char *prefix, const char *node);

/*
 * Read whether there is a request to release the lock of that name whose
 * queue node here is called node: one read.  If so, tell the user who asks,
 * with a NOTICE, unless *told says that this has been done; then that is set:
 * the czxid plus the number of times that it was renewed, which no later
 * request has, for each renewal has a zxid of its own.  false if there is none, if there is no connection,
 * and if the server does not answer within a second.  Raises on interrupts.
 */
extern bool zklock_recall_read(const char *name, const char *lock_path,
							   int root_length, const char *node,
							   int64 *told);

/*
 * Delete that request.  Nobody waits for the reply: the program of the session
 * repeats the delete until it is confirmed.  Never raises.
 */
extern void zklock_recall_remove(const char *lock_path, int root_length,
								 const char *node);

/* Longest text about who has evicted somebody, with its NUL. */
#define ZK_EVICTOR_SIZE 256

/*
 * Write down that it is this session that evicts the owner of that queue node
 * of the lock of that name: to be called before.  Where that is refused, takes
 * more than a second, or finds too much of the kind, nothing is written.
 * false if the session was lost.  Raises on interrupts.  The trip's deadline
 * is within that second then.
 */
extern bool zklock_recall_tell_eviction(ZkRoundTrip *trip, const char *name,
										const char *node);

/*
 * The queue node of this session was deleted: who says that he did it?
 * Result: a zklock_nodedata_describe(), palloc'ed; NULL if nobody says so, or
 * if there is no reply within a second.  What was written is deleted, for
 * nobody else reads it.  Raises on interrupts.  Afterwards the trip's deadline
 * is within that second.
 */
extern char *zklock_recall_read_eviction(ZkRoundTrip *trip,
										 const char *lock_path,
										 int root_length, const char *node);

/* Who that is, from what he has written down, likewise. */
extern char *zklock_recall_evictor(const ZkReply *written);

#endif							/* ZKLOCK_RECALL_H */
