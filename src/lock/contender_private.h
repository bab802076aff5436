/*-------------------------------------------------------------------------
 *
 * contender_private.h
 *	  A contender on its way, for the modules of the family contender_*.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CONTENDER_PRIVATE_H
#define ZKLOCK_CONTENDER_PRIVATE_H

#include "postgres.h"

#include "contender.h"
#include "deadlock.h"
#include "nested.h"
#include "nodes/pg_list.h"
#include "portability/instr_time.h"
#include "recipe.h"
#include "roundtrip.h"
#include "stat.h"

/* A contender on its way. */
typedef struct Standing
{
	ZkContender *contender;
	ZkRoundTrip trip;			/* the question under way */

	/* our node */
	ZkRequest  *create;			/* of our queue node; owns the node until the
								 * grant; NULL before we joined */
	bool		is_node_known;	/* place->node holds the full path */
	int			attempts;		/* to create the node */
	bool		is_paid;		/* the next one was counted with its parents */
	int			nparents;		/* creates of containers that are above it */
	ZkRequest  *parents[RECIPE_DEPTH_MAX];	/* the uppermost first; each may be
											 * NULL */

	/* who is ahead; contender_watch.c */
	bool		is_next_first;	/* nobody is ahead of the one just ahead */
	bool		is_handed_over; /* whoever was ahead has let go, to us */
	bool		is_told;		/* and has said so in shared memory */
	bool		watches_queue;	/* lists are to be watched */
	bool		saw_others;		/* the last list has shown somebody ahead */
	List	   *nested;			/* children of the queue that are no
								 * contenders, though they look like some:
								 * names */
	int64		keeper_until;	/* for how long whoever may keep the lock has
								 * to tell; 0: it was not waited for yet */
	bool		is_ahead_read;	/* the last reply is the read of the one just
								 * ahead */
	List	   *leases;			/* the leased nodes of the last list that has
								 * shown somebody ahead: names */
	int64		lease_at;		/* when the term of one may be over; 0: not
								 * looked at yet */
	char	   *seen;			/* the one ahead whose data was set when we
								 * last looked at it, palloc'ed; NULL if none
								 * was */
	int			seen_version;	/* with seen: how often */

	/* for the statistics; contender.c */
	bool		has_waited;
	instr_time	wait_begun;		/* valid if it has */
	ZkStat		way;			/* how the lock was granted */

	/* for the log; contender_log.c */
	int			nahead;			/* how many those are; valid if the log may
								 * ask */
	char	   *first;			/* and the path of the first, palloc'ed or
								 * NULL */
	int64		started_at;
	int64		log_at;			/* when log_lock_waits wants a message */
	bool		is_wait_logged;

	ZkDetector	detector;		/* of deadlocks */
} Standing;

/* ---- contender.c ---- */

/*
 * What the reply about a znode of a lock's queue means for a contender; NULL:
 * there was none in time.  Raises if ZooKeeper refuses.
 */
extern ZkWaitEnd contender_step(const ZkReply *reply, const char *path);

/* The name of our queue node. */
extern const char *contender_node_name(const Standing *standing);

/* ---- contender_watch.c ---- */

/*
 * Watch the contender ahead, or with NULL the whole queue, until the queue
 * has moved, the deadline or the loss of the session; notes whether the lock
 * was handed over to us.
 */
extern ZkWaitEnd contender_watch(Standing *standing, const char *ahead);

/*
 * Read whether that contender, the one ahead, surely holds the lock.  A
 * contender that keeps locks may merely keep it, if nobody is ahead of it and
 * its data does not say that it holds it.
 */
extern bool contender_is_held(Standing *standing, const char *ahead);

/*
 * The same when our node is in the queue, which makes the other one give the
 * lock up or say that it holds it.  ZK_WAIT_TIMEOUT: it is held, or there was
 * no message in time.  ZK_WAIT_OVER: list again.
 */
extern ZkWaitEnd contender_await_keeper(Standing *standing, const char *ahead);

/*
 * Delete those of standing->leases whose term is over.  ZK_WAIT_NO_NODE: some are
 * gone, list again.
 */
extern ZkWaitEnd contender_time_out(Standing *standing);

/* ---- contender_log.c ---- */

/*
 * Called for errors while the lock of that name, a const char *, is waited
 * for: their CONTEXT says so.
 */
extern void contender_add_context(void *name);

/*
 * The time of the contender is over: log that, and raise 55P03, or for a try
 * return. is_known: the ensemble has said that others are ahead; without that
 * a try raises 08001.
 */
extern void contender_refuse(Standing *standing, bool is_known);

pg_noreturn extern void contender_raise_evicted(Standing *standing);
pg_noreturn extern void contender_raise_mismatch(const Standing *standing,
												 const char *child);

/*
 * Keep of a list what the log may want to know of those who are ahead of
 * `mine`, or with NULL of all that are in it.  They can only become fewer.
 */
extern void contender_note_ahead(Standing *standing,
								 const ZkChildren *children, const char *mine);

/* Say that we wait, and for whom. */
extern void contender_log_wait(Standing *standing);

/* Say that the lock is granted, if the wait was logged. */
extern void contender_log_grant(const Standing *standing);

#endif							/* ZKLOCK_CONTENDER_PRIVATE_H */
