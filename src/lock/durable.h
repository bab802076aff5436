/*-------------------------------------------------------------------------
 *
 * durable.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_DURABLE_H
#define ZKLOCK_DURABLE_H

#include "postgres.h"

/*
 * The transaction that is about to commit, or to be prepared, does so with
 * synchronous_commit = on at least.
 */
extern void zklock_durable_insist(void);

/*
 * Wait until what the transaction has written so far is on the synchronous
 * standbys, if there are any.  After zklock_durable_insist().  Raises 40001 if
 * that takes longer, and on interrupts.
 */
extern void zklock_durable_await_standbys(int64 most_ms);

/*
 * For the release of a lock that belongs to no session: the work under it had
 * no guard, and perhaps synchronous_commit was off.  All commits that are
 * visible in this cluster now must survive a crash before the next holder is
 * let in.
 */
extern void zklock_durable_flush_commits(void);

#endif							/* ZKLOCK_DURABLE_H */
