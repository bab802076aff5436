/*-------------------------------------------------------------------------
 *
 * deadlock.h
 *	  A waiter's part in finding deadlocks: it says what it waits for, and
 *	  looks whether that waits for it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_DEADLOCK_H
#define ZKLOCK_DEADLOCK_H

#include "postgres.h"

#include "nodes/pg_list.h"
#include "place.h"
#include "roundtrip.h"

/* What a waiter has said, and found; all zeros but look_at at first. */
typedef struct ZkDetector
{
	int64		look_at;		/* zklock_client_now() of the next look */
	ZkRoundTrip trip;			/* the question under way */
	ZkSessionNumber session;	/* whose the facts are */
	MemoryContext context;		/* in which the facts are */
	struct ZkFact *wait;		/* that it waits; NULL: not said */
	List	   *blocked;		/* ZkFact: who waits for us in PostgreSQL */
	List	   *questions;		/* ZkFact: whether others' are still true */
	bool		is_refused;		/* ZooKeeper does not let us say anything */

	ZkRequest  *listening;		/* for questions about blocked; or NULL */
	int64		question;		/* the last one that was heard, by its mzxid */
	int			nanswers;		/* to that one */

	List	   *holders;		/* LocalWaiter: of the lock, of this cluster */
	int64		holders_at;		/* when to look them up again */
	int64		again_at;		/* when to look without news; 0: not set */
	int			again_ms;		/* how long before that to look */
	int			look_ms;		/* how long a look may take; 0: not set */
	bool		is_suspicious;	/* the last look has found a cycle that was
								 * not confirmed, or has not come to an end */
	int			nsuspicions;	/* such cycles in a row */
	int64		suspicious_at;	/* when to look for it again */
} ZkDetector;

/*
 * When a wait that begins now is to be looked at first: after
 * deadlock_timeout.
 */
extern void zklock_deadlock_begin(ZkDetector *detector);

/*
 * Say, if it is new, that this backend waits for that place, and look for a
 * cycle then.  holds_locks: it holds other locks.  Who holds none, and keeps
 * nobody waiting in PostgreSQL either, is in no cycle, and asks nobody.  Sets
 * when to look again.  Takes round trips, until the deadline at most; raises
 * 40P01 if this backend is to give way, and on interrupts.
 */
extern void zklock_deadlock_look(ZkDetector *detector, const ZkPlace *place,
								 bool holds_locks, int64 deadline);

/*
 * The wait is over: take back what was said.  Never raises, never waits.
 */
extern void zklock_deadlock_end(ZkDetector *detector);

/* A wait in PostgreSQL that somebody has told of. */
typedef struct ZkWaitInPostgres
{
	int64		waiter;			/* sessions */
	int64		blocker;
	char	   *what;			/* what is waited for, palloc'ed */
} ZkWaitInPostgres;

/*
 * All of them below the present root: a list of ZkWaitInPostgres.  Those that
 * are told of keep a backend waiting that waits for a ZooKeeper lock itself.
 * Raises as the session does.
 */
extern List *zklock_deadlock_waits_in_postgres(void);

#endif							/* ZKLOCK_DEADLOCK_H */
