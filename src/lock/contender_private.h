/*-------------------------------------------------------------------------
 *
 * contender_private.h
 *	  A contender on its way, for the modules of the family contender_*.
 *
 * contender.c calls contender_watch.c, both call contender_log.c, and all of
 * them call contender_step.c.  Nothing calls the other way.
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

/*
 * Where a contender is on its way, and so what it does next.  Only contender.c
 * moves it from one to another.
 */
typedef enum ContenderState
{
	CONTENDER_LOOKING,			/* it waits for nobody: list the queue before
								 * a node is made, for it may be busy */
	CONTENDER_JOINING,			/* make a node, or read the reply to that, and
								 * list the queue */
	CONTENDER_LISTING,			/* the node is there: list the queue */
	CONTENDER_WAITING,			/* others are ahead: wait for news of them */
	CONTENDER_HEARING,			/* it waits for nobody, and somebody is ahead
								 * who may merely keep the lock: hear which */
	CONTENDER_MISMATCHED,		/* the first has another number of permits:
								 * refuse, unless that one is on its way out */

	/* the end of the way */
	CONTENDER_GRANTED,
	CONTENDER_OUT_OF_TIME,		/* the deadline of the order has come, or the
								 * lock is busy and it waits for nobody */
	CONTENDER_LOST				/* the session is */
} ContenderState;

/* What a reply about a znode of the queue says. */
typedef enum ContenderAnswer
{
	ANSWER_FOUND,				/* what was asked for */
	ANSWER_NO_NODE,				/* there is no such znode */
	ANSWER_NONE,				/* there is no reply by the deadline */
	ANSWER_LOST					/* the session is */
} ContenderAnswer;

/* What has become of the node that is to stand in the queue. */
typedef enum OwnNodeState
{
	OWN_NODE_NONE,				/* it is not made, or was withdrawn */
	OWN_NODE_ASKED,				/* its create was sent; place->node is the
								 * path without the number */
	OWN_NODE_STANDS				/* it was made; place->node is its path */
} OwnNodeState;

/* Our queue node, and what was made for it; contender_step.c. */
typedef struct OwnNode
{
	OwnNodeState state;
	ZkRequest  *create;			/* owns the node until the grant; valid unless
								 * the state is OWN_NODE_NONE */
	int			ncreates;		/* how often it was sent */
	char	   *data;			/* palloc'ed; NULL before the first create */
	RecipeMark	mark;			/* in its name, valid from then on */
	bool		wants_keep;		/* the lock may be kept after its release */

	int			nrounds;		/* how often its parents were made */
	int			nparents;		/* creates of containers that are above it */
	ZkRequest  *parents[RECIPE_DEPTH_MAX];	/* the uppermost first; each may be
											 * NULL */
} OwnNode;

/* How the one ahead has said that it lets go. */
typedef enum AheadWord
{
	AHEAD_SILENT,
	AHEAD_SET_NODE,				/* it has set the data of its node */
	AHEAD_TOLD					/* in shared memory */
} AheadWord;

/* The contenders ahead, as of the last list that has shown one. */
typedef struct Ahead
{
	bool		is_known;		/* the last list has shown one */
	char	   *next;			/* the child that the verdict names,
								 * palloc'ed; NULL: none, as for the first
								 * waiter of a semaphore */
	bool		is_next_first;	/* nobody is ahead of that one */
	bool		is_next_read;	/* the last reply of the trip is the read of
								 * that one */
	int			count;			/* how many are ahead; valid if the log may
								 * ask */
	char	   *first;			/* and the path of the first, palloc'ed or
								 * NULL */
	List	   *leases;			/* the leased nodes: names */
	int64		lease_at;		/* when the term of one may be over; 0: not
								 * looked at yet */
	List	   *nested;			/* children of the queue that are no
								 * contenders, though they look like some:
								 * names */
} Ahead;

/* What is watched of those ahead; contender_watch.c. */
typedef struct AheadWatch
{
	bool		is_of_queue;	/* lists are watched, and no node */
	AheadWord	word;			/* of the one that was watched last */
	int64		keeper_until;	/* for how long one that may keep the lock has
								 * to tell; 0: it was not waited for yet */
	char	   *seen;			/* the one ahead whose data was set when we
								 * last looked at it, palloc'ed; NULL if none
								 * was */
	int			seen_version;	/* with seen: how often */
} AheadWatch;

/* The wait, for statistics and the log. */
typedef struct ContenderWait
{
	int64		started_at;		/* protocol_now() */
	int64		log_at;			/* when log_lock_waits wants a message */
	bool		is_logged;		/* it has got one */
	instr_time	begun;			/* when it began to wait for others; zero: it
								 * has not */
} ContenderWait;

/* A contender on its way. */
typedef struct Contender
{
	const ZkOrder *order;
	ZkPlace    *place;			/* of the lock */
	ContenderState state;
	ZkStat		way;			/* how the lock was granted; valid in
								 * CONTENDER_GRANTED */

	ZkRoundTrip trip;			/* the question under way */
	ZkSessionNumber safe_for;	/* which session with credentials knows that
								 * others cannot change the znode of the lock;
								 * 0: none */
	OwnNode		node;
	Ahead		ahead;
	AheadWatch	watch;
	ContenderWait wait;
	ZkDetector	detector;		/* of deadlocks */
} Contender;

/* ---- contender_step.c ---- */

/*
 * What that reply about a znode of the queue says; NULL: there was none in
 * time.  Raises if ZooKeeper refuses.
 */
extern ContenderAnswer contender_read_answer(const ZkReply *reply,
											 const char *path);

/* Nothing was found: the state that an answer without a node leads to. */
extern ContenderState contender_end_without(ContenderAnswer answer);

/* The name of a place's queue node. */
extern const char *contender_node_name(const ZkPlace *place);

/*
 * Have a node in the queue, if there is none, and a list that is not older.
 * The first time both requests go out back to back, and the server answers
 * them in that order.  NULL if the deadline comes first.  As long as it is not
 * known that the znode of the lock is safe, that is asked ahead.
 */
extern const ZkReply *contender_join(Contender *contender);

/* Is that known, or has the session no credentials? */
extern bool contender_is_safe(const Contender *contender);

/*
 * Read the reply to our create, which is there when the list's is.  false if
 * there is no node yet: then contender_join() is to be called again.
 */
extern bool contender_take_node(Contender *contender);

/* Our node goes, and is not ours any more. */
extern void contender_withdraw(Contender *contender);

/*
 * The containers that we have made are used, or will not be: if our node is
 * not known to have been there.
 */
extern void contender_end_parents(Contender *contender);

/*
 * What does a list tell, for our node or, with OWN_NODE_NONE, for one that is
 * still to be made?  Sets contender->ahead.  Raises if our node has gone, and
 * if the numbers are used up, so the verdict is RECIPE_HELD, _WAIT or
 * _MISMATCH.  false: there was no answer to what had to be read besides.
 */
extern bool contender_judge(Contender *contender, const ZkReply *list,
							RecipeVerdict *verdict);

/*
 * The recipe's verdict over a list, for the node of that name in that place
 * or, with NULL, for one that is still to be made.
 */
extern RecipeVerdict contender_verdict(const ZkPlace *place,
									   const ZkChildren *children,
									   const char *mine, int *ahead);

/*
 * Keep of a list what the log may want to know of the contenders ahead of our
 * node or, before the node was made, of all contenders.  They can only become
 * fewer.
 */
extern void contender_note_ahead(Contender *contender,
								 const ZkChildren *children);

pg_noreturn extern void contender_raise_evicted(const ZkPlace *place);

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
extern void contender_refuse(Contender *contender, bool is_known);

/* The first contender of the queue has another number of permits. */
pg_noreturn extern void contender_raise_mismatch(const Contender *contender);

/* Say that we wait, and for whom. */
extern void contender_log_wait(Contender *contender);

/* Say that the lock is granted, if the wait was logged. */
extern void contender_log_grant(const Contender *contender);

/* ---- contender_watch.c ---- */

/*
 * Watch the contender ahead, or the whole queue if there is none to watch,
 * until the queue has moved: CONTENDER_LISTING; the deadline, or the loss of
 * the session.  watch.word: whether the lock was handed over to us.
 */
extern ContenderState contender_watch(Contender *contender);

/*
 * Read whether the one ahead surely holds the lock.  A contender that keeps
 * locks may merely keep it, if nobody is ahead of it and its data does not say
 * that it holds it.
 */
extern bool contender_is_held(Contender *contender);

/*
 * The same when our node is in the queue, which makes the other one give the
 * lock up or say that it holds it.  CONTENDER_OUT_OF_TIME: it is held, or there
 * was no message in time.  CONTENDER_LISTING: it may be gone.
 */
extern ContenderState contender_hear_keeper(Contender *contender);

/* What has become of the leases ahead. */
typedef enum LeasesAhead
{
	LEASES_STAND,				/* there are none, or none whose term is over */
	LEASES_GONE,				/* some were deleted: list the queue again */
	LEASES_UNKNOWN				/* there was no answer in time, or the session
								 * is lost */
} LeasesAhead;

/* Delete those of contender->ahead.leases whose term is over. */
extern LeasesAhead contender_end_leases(Contender *contender);

#endif							/* ZKLOCK_CONTENDER_PRIVATE_H */
