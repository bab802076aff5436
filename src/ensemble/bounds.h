/*-------------------------------------------------------------------------
 *
 * bounds.h
 *
 * The one rule: the bounds of a call are made when it begins, by one of the
 * functions below, and handed on.  All steps, locks and sessions of one call
 * have the same bounds.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_BOUNDS_H
#define ZKLOCK_BOUNDS_H

#include "postgres.h"

/* Which time is over at a deadline, and so what the error says. */
typedef enum ZkBoundedBy
{
	ZK_BY_CALLER,				/* a step's own: the caller has its own error */
	ZK_BY_TIMEOUT,				/* the timeout of the call: likewise */
	ZK_BY_LOCK_TIMEOUT,			/* 55P03 */
	ZK_BY_CONNECT_TIMEOUT		/* a call that waits for replies alone: 08001 */
} ZkBoundedBy;

/* All dates are by protocol_now(). */
typedef struct ZkBounds
{
	int64		timeout_ms;		/* the argument of the call; ZK_MS_MAX: it has
								 * none */
	bool		is_at_once;		/* it is zero: the call waits for replies, and
								 * for nobody else */
	int64		wait_until;		/* until when it waits for others */
	int64		deadline;		/* until when for replies; not earlier */
	ZkBoundedBy by;				/* whose that deadline is */
} ZkBounds;

/*
 * Of a call that begins now and waits for others for so long: until the
 * timeout or lock_timeout is over, whichever is first.  With a timeout of zero
 * it waits for replies alone, as below.  ZK_MS_MAX: without a timeout.
 */
extern ZkBounds zklock_bounds_of_wait(int64 timeout_ms);

/*
 * Of a call that begins now and waits for nobody: each reply must come within
 * zklock.connect_timeout, and before lock_timeout is over.
 */
extern ZkBounds zklock_bounds_of_question(void);

/*
 * Of a call that begins now and goes on until it is done: lock_timeout, or the
 * loss of the session.
 */
extern ZkBounds zklock_bounds_of_task(void);

/*
 * Until when a question is to be answered that is asked now, if each has
 * zklock.connect_timeout of its own within the bounds.
 */
extern int64 zklock_bounds_next_reply(const ZkBounds *bounds);

#endif							/* ZKLOCK_BOUNDS_H */
