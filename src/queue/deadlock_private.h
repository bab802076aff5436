/*-------------------------------------------------------------------------
 *
 * deadlock_private.h
 *	  Deadlocks, for the modules of the family deadlock_*.
 *
 * deadlock.c calls deadlock_graph.c, both call deadlock_fact.c, and that calls
 * deadlock_local.c.  Nothing calls the other way.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_DEADLOCK_PRIVATE_H
#define ZKLOCK_DEADLOCK_PRIVATE_H

#include "postgres.h"

#include "cycle.h"
#include "deadlock.h"
#include "nodedata.h"
#include "recipe.h"

/* ---- deadlock_local.c: who waits in PostgreSQL ---- */

/* A backend of this cluster, and its ZooKeeper session. */
typedef struct LocalWaiter
{
	int			pid;
	int64		session;
} LocalWaiter;

/*
 * The backends of this cluster that hold ZooKeeper locks and wait for this one
 * in PostgreSQL, or for one that does: a list of LocalWaiter.  Raises on
 * interrupts.
 */
extern List *deadlock_local_waiters(void);

/* What a backend waits for there, in UTF-8, palloc'ed; "" if for nothing. */
extern char *deadlock_describe_wait(int pid);

/* ---- deadlock_fact.c: what this backend says ---- */

/* One of a detector's facts, in the detector's context. */
typedef struct ZkFact
{
	int64		session;		/* who waits: we ourselves, for a lock, or
								 * another one, for us */
	char	   *path;
	char	   *data;
	int64		czxid;			/* of its znode; 0: it was asked for, and may
								 * be there */
	bool		is_others;		/* somebody else's stands in its place */
} ZkFact;

/* The fact that a session waits, as this backend has said it; or NULL. */
extern ZkFact *deadlock_find_fact(const ZkDetector *detector, int64 session);

/*
 * Say that we wait with the place's queue node.  Result: is that new?  false
 * also if ZooKeeper refuses it, or if the fact is not known to be there: then
 * the next check says it.  Raises on interrupts.
 */
extern bool deadlock_publish_wait(ZkDetector *detector, const ZkPlace *place);

/*
 * Note in our fact, if there is one, that our deadlock_timeout is over.  Nobody
 * waits for the reply: what is read behind it is not older.
 */
extern void deadlock_publish_searched(ZkDetector *detector);

/* Say that those wait for us in PostgreSQL.  Result: is anybody new? */
extern bool deadlock_publish_blocked(ZkDetector *detector, const ZkPlace *place,
									 List *waiters);

/*
 * Say once more who waits for us in PostgreSQL, as we have just seen.  Nobody
 * waits for the replies.
 */
extern void deadlock_repeat(const ZkDetector *detector);

/* Take back what is said of processes that are not among the waiters. */
extern void deadlock_forget_gone(ZkDetector *detector, List *waiters);

/* Check whether all that was said is there; what is not may be said anew. */
extern void deadlock_forget_deleted(ZkDetector *detector);

/* Take all back.  Never raises, never waits. */
extern void deadlock_take_all_back(ZkDetector *detector);

/* The path of the fact that the maker says of a session, palloc'ed. */
extern char *deadlock_fact_path(const ZkPlace *place, int64 session,
								int64 maker);

/* Below which the facts stand, and those of waits in PostgreSQL; palloc'ed. */
extern char *deadlock_facts_directory(const ZkPlace *place);
extern char *deadlock_postgres_directory(const ZkPlace *place);

/* The path of the claim on a cycle with that newest fact, palloc'ed. */
extern char *deadlock_claim_path(const ZkPlace *place, int64 newest);

/*
 * Read the name of a fact that says that a session waits for a lock.  false if
 * it is none.
 */
extern bool deadlock_parse_waiter(const char *name, int64 *waiter);

/* What a session says of its wait for a lock; strings are palloc'ed. */
typedef struct SaidWait
{
	char	   *lock_path;
	char	   *node;			/* name of its queue node */
	bool		has_searched;		/* its deadlock_timeout is over */
	ZkNodeData	who;
} SaidWait;

/* Read that of the data of its fact; false if that is no such data. */
extern bool deadlock_parse_wait(const ZkReply *reply, SaidWait *said);

/* ---- deadlock_graph.c: who waits for whom ---- */

/* One in the graph; strings are palloc'ed. */
typedef struct Member
{
	int64		session;
	ZkNodeData	who;			/* as its queue node has it, or its fact */
	bool		has_searched;		/* its deadlock_timeout is over, and it has
								 * searched or will at once */
	char	   *lock_path;		/* what it waits for; NULL: no lock of ours */
	RecipeMode	mode;			/* valid with lock_path */
} Member;

/* The graph of waits, as far as it matters to node 0, this backend. */
typedef struct Graph
{
	CycleGraph	shape;
	Member		members[CYCLE_NODES_MAX];
	const char *in_postgres[CYCLE_EDGES_MAX];	/* by edge: what is waited for
												 * there; NULL: a lock of ours */
	int			versions[CYCLE_EDGES_MAX];	/* with in_postgres: of the fact */
} Graph;

/* How new what is read has to be. */
typedef enum GraphAge
{
	GRAPH_OF_SERVER,			/* as our server happens to have it */
	GRAPH_NEWEST				/* as it is now: the leader's knowledge */
} GraphAge;

/*
 * Follow who waits for whom from this backend on, which waits for that place,
 * as its fact of that czxid says.  NULL if that came to no end: the
 * session was lost, time is over, or there was news of our own wait.  Raises on interrupts.
 */
extern Graph *deadlock_follow(ZkRoundTrip *trip, const ZkPlace *place,
							  int64 session, int64 said, GraphAge age);

#endif							/* ZKLOCK_DEADLOCK_PRIVATE_H */
