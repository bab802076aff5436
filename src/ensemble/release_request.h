/*-------------------------------------------------------------------------
 *
 * release_request.h
 *
 * Also declares what release_request_ask.c has.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_RELEASE_REQUEST_H
#define ZKLOCK_RELEASE_REQUEST_H

#include "postgres.h"

#include "name.h"
#include "recipe.h"
#include "roundtrip.h"

/* Size of the path of a request, with its NUL. */
#define ZK_RELEASE_REQUEST_SIZE (RECIPE_PATH_SIZE + 2 * sizeof(ZK_RELEASE_SUFFIX))

/*
 * The path of the request to the holder whose queue node is called node:
 * <root>/.release/<node>.release, with the first root_length bytes of the
 * lock's path. false if the node's name is too long.
 */
extern bool zklock_release_request_path(char path[ZK_RELEASE_REQUEST_SIZE],
										const char *lock_path, int root_length,
										const char *node);

/*
 * Read whether there is a request to release the lock of that name whose
 * queue node here is called node: one read.  If so, tell the user who asks,
 * with a NOTICE, unless *told says that this has been done; then that is set:
 * the czxid plus the number of times that it was renewed, which no later
 * request has, for each renewal has a zxid of its own.  false if there is none,
 * if there is no connection, and if the server does not answer within a second.
 * Raises on interrupts.
 */
extern bool zklock_release_request_read(const char *name, const char *lock_path,
										int root_length, const char *node,
										int64 *told);

/*
 * Read that request together with the trip's next question, ahead of it; and
 * when that was answered: the request, or NULL if there is none.
 */
extern void zklock_release_request_get_ahead(ZkRoundTrip *trip, const char *lock_path,
											 int root_length, const char *node);
extern const ZkReply *zklock_release_request_reply_ahead(const ZkRoundTrip *trip);

/*
 * Tell the user of that request to release the lock of that name, with a NOTICE.
 */
extern void zklock_release_request_tell(const char *name, const ZkReply *request);

/*
 * Delete that request.  Nobody waits for the reply: the program of the session
 * repeats the delete until it is confirmed.  Never raises.
 */
extern void zklock_release_request_remove(const char *lock_path, int root_length,
										  const char *node);

/* ---- release_request_ask.c ---- */

/*
 * Ask the holders of that lock to release it; reason is a line, or NULL.
 * Result: how many were asked.  A WARNING names the holders that could not be
 * asked.  Some outdated requests are deleted.  Waits for the ensemble, not for
 * the holders.  If this raises, some holders may have been asked.
 */
extern int	zklock_release_request_ask(const ZkName *name, const char *reason);

#endif							/* ZKLOCK_RELEASE_REQUEST_H */
