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

/* Our queue node, and what was made for it; contender_step.c. */
typedef struct OwnNode
{
	ZkRequest  *create;			/* owns the node until the grant; NULL: it is
								 * not made, or was withdrawn */
	int			ncreates;		/* how often it was sent */
	char	   *data;			/* palloc'ed; NULL before the first create */
	RecipeMark	mark;			/* in its name, valid from then on */
	bool		wants_keep;		/* the lock may be kept after its release */

	int			nrounds;		/* how often its parents were made */
	int			nparents;		/* creates of containers that are above it */
	ZkRequest  *parents[RECIPE_DEPTH_MAX];	/* the uppermost first; each may be
											 * NULL */
} OwnNode;

/* The contenders ahead, as of the last list that has shown one. */
typedef struct Ahead
{
	bool		is_known;		/* the last verdict was to wait for one */
	char	   *next;			/* the child that the verdict names,
								 * palloc'ed; NULL: none, as for the first
								 * waiter of a semaphore */
	bool		is_next_first;	/* nobody is ahead of that one */
	uint64		next_read;		/* which question of the trip was the last
								 * read of one ahead that was there; 0: none */
	int			count;			/* how many are ahead; valid if the log may
								 * ask */
	char	   *first;			/* and the path of the first, palloc'ed or
								 * NULL */
	struct ZkLeased *owned;		/* the lease of the owner for whom this
								 * contender takes one, palloc'ed; NULL: none
								 * was ahead */
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
	ZkPlace    *place;			/* of the lock.  When the create of the node
								 * was sent, its node is the path without the
								 * number; when it stands, it has a token */
	ZkStat		way;			/* how the lock was granted; valid then */

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
 * Read a znode of the queue: the result is ZK_OK or ZK_NO_NODE.  Never
 * ZK_UNKNOWN.  Raises if ZooKeeper refuses.
 */
pg_nodiscard extern ZkOutcome contender_read(ZkRoundTrip *trip, ZkRead read,
											 const char *path,
											 const ZkReply **reply);

/* The name of a place's queue node. */
extern const char *contender_node_name(const ZkPlace *place);

/* Is our node in the queue, as far as it was told? */
extern bool contender_stands(const Contender *contender);

/*
 * Have a node in the queue, if there is none, and a list that is not older:
 * *list, of whatever result.  The first time both requests go out back to back,
 * and the server answers them in that order.  As long as it is not known that
 * the znode of the lock is safe, that is asked ahead.  Never ZK_UNKNOWN.
 */
pg_nodiscard extern ZkOutcome contender_join(Contender *contender,
											 const ZkReply **list);

/* Is that known, or has the session no credentials? */
extern bool contender_is_safe(const Contender *contender);

/*
 * Read the reply to our create, unless the node stands: it is there when the
 * list's is.  false if there is no node yet: then contender_join() is to be
 * called again.
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
 * What does a list tell, for our node or, before that stands, for one that is
 * still to be made?  Sets contender->ahead.  Raises if our node has gone, and
 * if the numbers are used up, so the verdict is RECIPE_HELD, _WAIT or
 * _MISMATCH.  The outcome is that of what had to be read besides.
 *
 * One owner has one lease: behind another contender for the same owner, and
 * behind a lease of his, it is _WAIT, whatever the mode and the permits.
 */
pg_nodiscard extern ZkOutcome contender_judge(Contender *contender,
											  const ZkReply *list,
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
 * until the queue has moved.  *is_handed_over: by what the one ahead says the
 * lock is ours, and contender->way says how it has said so.
 */
pg_nodiscard extern ZkOutcome contender_watch(Contender *contender,
											  bool *is_handed_over);

/*
 * Read whether the one ahead surely holds the lock.  A contender that keeps
 * locks may merely keep it, if nobody is ahead of it and its data does not say
 * that it holds it.
 */
pg_nodiscard extern ZkOutcome contender_is_held(Contender *contender,
												bool *is_held);

/*
 * The same when our node is in the queue, which makes the other one give the
 * lock up or say that it holds it.  Also held: there was no message in time.
 */
pg_nodiscard extern ZkOutcome contender_ask_keeper(Contender *contender,
												   bool *is_held);

/*
 * Delete those of contender->ahead.leases whose term is over.  *are_gone: some
 * were deleted, so that the queue is to be listed again.
 */
pg_nodiscard extern ZkOutcome contender_end_leases(Contender *contender,
												   bool *are_gone);

#endif							/* ZKLOCK_CONTENDER_PRIVATE_H */
