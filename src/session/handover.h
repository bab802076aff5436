/*-------------------------------------------------------------------------
 *
 * handover.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_HANDOVER_H
#define ZKLOCK_HANDOVER_H

#include "postgres.h"

/* For the hooks of shared memory (zklock.c). */
extern void zklock_handover_request_memory(void);
extern void zklock_handover_make_memory(void);

/*
 * This backend waits for the contender with the queue node of that path and
 * czxid, which must be the one just ahead.  Ends an earlier wait.  Raises
 * nothing.
 */
extern void zklock_handover_await(const char *node, int64 czxid);

/*
 * Has that contender handed its lock over?  It sets our latch when it does.
 */
extern bool zklock_handover_has_told(void);

/* Wait no longer. */
extern void zklock_handover_forget(void);

/*
 * The holder of that queue node lets go of the lock: tell the backend that
 * waits for it, if there is one here.  Result: is there?  It may have given
 * up since, so the node must be deleted all the same.  Never raises or waits.
 */
extern bool zklock_handover_tell(const char *node, int64 czxid);

#endif							/* ZKLOCK_HANDOVER_H */
