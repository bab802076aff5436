/*-------------------------------------------------------------------------
 *
 * deadlock.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_DEADLOCK_H
#define ZKLOCK_DEADLOCK_H

#include "postgres.h"

#include "nodes/pg_list.h"
#include "place.h"
#include "roundtrip.h"

/* What a waiter has said, and found; all zeros before it begins. */
typedef struct ZkDetector
{
	int64		check_at;		/* protocol_now() of the next check */
	int64		timer_at;		/* when deadlock_timeout is over */
	bool		has_searched;		/* it is, and a cycle was searched for */
	ZkRoundTrip trip;			/* the request under way */
	ZkSessionNumber session;	/* whose the facts are */
	MemoryContext context;		/* in which the facts are */
	List	   *facts;			/* ZkFact: what has been said, the wait first */
	bool		is_refused;		/* ZooKeeper does not let us say anything */
	char	   *claim;			/* path of our claim on a cycle, in that
								 * context; NULL: none */

	int64		cycle_at;		/* when to search for a cycle without news */
	int			pause_ms;		/* how long before that */
} ZkDetector;

/*
 * A wait begins, at that protocol_now(): it is said after a moment, and
 * searched for a cycle after deadlock_timeout.
 */
extern void zklock_deadlock_begin(ZkDetector *detector, int64 now);

/*
 * Say, if it is new, that this backend waits for that place, and search for a
 * cycle, then and when deadlock_timeout is over.  A backend that holds no lock,
 * and keeps nobody waiting in PostgreSQL either, is in no cycle, and asks
 * nobody.  Sets when to check again.  Takes round trips, until the deadline at
 * most; raises 40P01 if this backend is to give way, and on interrupts.
 */
extern void zklock_deadlock_search(ZkDetector *detector, const ZkPlace *place,
								   int64 deadline);

/* The wait is over: take back what was said.  Never raises, never waits. */
extern void zklock_deadlock_end(ZkDetector *detector);

/*
 * Read the name of a fact that says that the session waiter waits for
 * blocker, in PostgreSQL; false if it is no such name.
 */
extern bool zklock_deadlock_parse_fact(const char *name, int64 *waiter,
									   int64 *blocker);

#endif							/* ZKLOCK_DEADLOCK_H */
