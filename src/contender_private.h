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
#include "nodes/pg_list.h"
#include "portability/instr_time.h"
#include "roundtrip.h"
#include "stat.h"

/* How a step on the way ended.  None of them is a grant. */
typedef enum Step
{
	STEP_GO_ON,
	STEP_NO_NODE,				/* there is no such znode */
	STEP_OUT_OF_PATIENCE,		/* others are ahead, or the deadline came
								 * first */
	STEP_SESSION_LOST
} Step;

/* A contender on its way. */
typedef struct Standing
{
	ZkContender *contender;
	ZkRoundTrip trip;			/* the question under way */

	/* our node; contender_node.c */
	ZkRequest  *create;			/* of our queue node; owns the node until the
								 * grant; NULL before we joined */
	bool		is_node_known;	/* place->node holds the full path */
	char		prefix[RECIPE_NODE_SIZE];	/* its name up to the number */
	char	   *data;			/* of our node, palloc'ed */
	int			attempts;		/* to create the node */

	/* who is ahead; contender_watch.c */
	ZkRequest  *list;			/* of the queue, as soon as the one ahead is
								 * gone; NULL: none was promised */
	ZkRequest  *closed;			/* may others create in the queue?  NULL: that
								 * was not asked; of the lock's present znode */
	bool		is_next_first;	/* nobody is ahead of the one just ahead */
	bool		is_handed_over; /* whoever was ahead has let go, to us */
	bool		is_told;		/* and has said so in shared memory */
	bool		watches_queue;	/* lists are to be watched */
	bool		is_told_busy;	/* the last list has shown somebody ahead */
	int64		keeper_until;	/* for how long whoever may keep the lock has
								 * to tell; 0: it was not waited for yet */
	bool		is_ahead_read;	/* the last reply is the read of the one just
								 * ahead */
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
 * How the answer to a question about a lock's queue lets a contender go on;
 * NULL: there was none in time.  Raises what ZooKeeper has against it.
 */
extern Step contender_step(const Standing *standing, const ZkReply *reply);

/* The name of our queue node. */
extern const char *contender_node_name(const Standing *standing);

/* ---- contender_node.c ---- */

/*
 * Have a node in the queue and a list of the queue that is not older: the
 * first time both requests go out back to back, and the server answers them
 * in that order.  NULL if the deadline comes first.
 */
extern const ZkReply *contender_join(Standing *standing);

/* Send the create of our node. */
extern void contender_send_create(Standing *standing);

/*
 * Read the reply to our create, which is there when the list's is.  false if
 * there is no node yet: then contender_join() is to be called again.
 */
extern bool contender_take_node(Standing *standing);

/*
 * Create the parents of our node: the root for good, the rest as containers,
 * which the server removes when they are empty.
 */
extern void contender_make_parents(Standing *standing);

/* Our node goes, and is not ours any more. */
extern void contender_withdraw(Standing *standing);

/* Tell who is behind us that we wait no more. */
extern void contender_announce(const Standing *standing);

/* ---- contender_watch.c ---- */

/*
 * Watch the contender ahead, or with NULL the whole queue, until the queue
 * has moved, the deadline or the loss of the session; notes whether the lock
 * was handed over to us.
 */
extern ZkWaitEnd contender_watch(Standing *standing, const char *ahead);

/*
 * Watch a child of the lock's znode, and wait until something becomes of it,
 * the deadline or the loss of the session.
 */
extern ZkWaitEnd contender_watch_child(Standing *standing, const char *child);

/*
 * Does that contender, the one ahead, hold the lock for sure?  One that keeps
 * locks may merely keep it, if nobody is ahead of it and its data does not
 * say otherwise.
 */
extern bool contender_is_held(Standing *standing, const char *ahead);

/*
 * The same once we stand in the queue, which makes it give the lock up or say
 * that it holds it.  STEP_OUT_OF_PATIENCE: it is held, or that was not heard
 * in time.  STEP_GO_ON: look again.
 */
extern Step contender_await_keeper(Standing *standing, const char *ahead);

/*
 * What was asked for the sake of the one ahead is of no interest any more.
 */
extern void contender_forget_ahead(Standing *standing);

/*
 * The list that was promised for when the one ahead is gone, if it is; NULL
 * if it was not asked for, or lost, or what it says may be outdated: unlike one
 * that we ask for, it does not wait for us to be awake.
 */
extern const ZkReply *contender_promised_list(Standing *standing);


/* ---- contender_busy.c ---- */

/* Set contender->busy, if it is wanted: patience is at its end. */
extern void contender_note_busy(Standing *standing);

/*
 * Called for errors while the lock of that name, a const char *, is waited
 * for: their CONTEXT says so.
 */
extern void contender_add_context(void *name);

/* ---- contender_log.c ---- */

/*
 * Who holds the lock and has been read last, or is read now, by that deadline
 * at the latest: zklock_nodedata_describe(), palloc'ed.  NULL if that cannot
 * be told.
 */
extern char *contender_describe_holder(Standing *standing, int64 deadline);

pg_noreturn extern void contender_raise_evicted(Standing *standing);
pg_noreturn extern void contender_raise_exhausted(const Standing *standing);
pg_noreturn extern void contender_raise_mismatch(const Standing *standing,
												 const char *child);

/*
 * Keep of a list what the log may want to know of those who are ahead of
 * `mine`, or with NULL of all that are in it.  They can only become fewer.
 */
extern void contender_note_ahead(Standing *standing, const ZkReply *list,
								 const char *mine);

/* Say that we wait, and for whom. */
extern void contender_log_wait(Standing *standing);

/* Say that patience is at its end, and who was in the way. */
extern void contender_log_failure(Standing *standing);

/*
 * What a look at the queue has brought, at DEBUG2; next: the node it names.
 */
extern void contender_log_verdict(const Standing *standing,
								  RecipeVerdict verdict, const char *next);

/*
 * Say that the lock is granted: at DEBUG2, and if the wait was logged, its
 * end.
 */
extern void contender_log_grant(const Standing *standing);

#endif							/* ZKLOCK_CONTENDER_PRIVATE_H */
