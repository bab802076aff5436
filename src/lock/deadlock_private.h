/*-------------------------------------------------------------------------
 *
 * deadlock_private.h
 *	  Deadlocks, for deadlock.c and deadlock_graph.c.
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

/*
 * A fact: an ephemeral znode below <root>/.waits, of the session that says
 * it.  Its path is of one of two forms, its data text in UTF-8:
 *
 *   <session>             the session waits; the path of the queue node that
 *                         it waits with, a newline, and who it is; and once its
 *                         deadlock_timeout is over ZK_FACT_LOOKED
 *   pg/<session>-<maker>  the first session waits for the maker, in
 *                         PostgreSQL; what it waits for there
 *
 * Sessions are 16 hexadecimal digits.  Whenever a session has seen that its
 * facts of the second form are still true it sets their data once more: a new
 * version says so.
 *
 * A claim on a cycle is an ephemeral znode, too, of the session that is to give
 * way: claims/<czxid of the newest fact of those who are stuck there>.
 */
#define ZK_FACT_LOOKED "\nlooked"
#define ZK_WAITS_CLAIMS "claims"

typedef struct ZkFact
{
	int64		session;		/* who waits: we ourselves, for a lock, or
								 * another one, for us */
	char	   *path;
	char	   *data;
	bool		is_others;		/* what is there is somebody else's */
	int64		czxid;			/* valid once it was made */
} ZkFact;

/* A backend of this cluster, and its ZooKeeper session. */
typedef struct LocalWaiter
{
	int			pid;
	int64		session;
} LocalWaiter;

/* One in the graph; strings are palloc'ed. */
typedef struct Member
{
	int64		session;
	ZkNodeData	who;			/* as its queue node has it, or its fact */
	bool		has_looked;		/* its deadlock_timeout is over, and it has
								 * searched or will at once */
	char	   *lock_path;		/* what it waits for; NULL: no lock of ours */
	RecipeMode	mode;			/* valid with lock_path */
} Member;

/* Who waits for whom, as far as it matters to node 0, this backend. */
typedef struct Graph
{
	CycleGraph	shape;
	Member		members[CYCLE_NODES_MAX];
	const char *in_postgres[CYCLE_EDGES_MAX];	/* by edge: what is waited for
												 * there; NULL: a lock of ours */
	int			versions[CYCLE_EDGES_MAX];	/* with in_postgres: of the fact */
} Graph;

/* A cycle that was found. */
typedef struct Cycle
{
	Graph	   *graph;
	int			length;			/* 0: there is none */
	int			way[CYCLE_NODES_MAX];	/* its edges, from node 0 on */
	int64		newest;			/* czxid of the newest fact of those who are
								 * stuck */
} Cycle;

/* The path of the fact that the maker says of a session, palloc'ed. */
extern char *deadlock_path(const ZkPlace *place, int64 session, int64 maker);

/* The path of the claim on a cycle with that newest fact, palloc'ed. */
extern char *deadlock_claim_path(const ZkPlace *place, int64 newest);

/*
 * Follow who waits for whom from this backend on, which waits for that place,
 * as its fact of that czxid says.  is_newest: all of it is read as it is now,
 * not as our server happens to have it.  NULL if that came to no end: the
 * session was lost, or time is over.  Raises on interrupts.
 */
extern Graph *deadlock_follow(ZkRoundTrip *trip, const ZkPlace *place,
							  int64 session, int64 said, bool is_newest);

/*
 * The backends of this cluster that hold ZooKeeper locks and wait for this one
 * in PostgreSQL, or for one that does: a list of LocalWaiter.  Raises on
 * interrupts.
 */
extern List *deadlock_local_waiters(void);

/* What a backend waits for there, in UTF-8, palloc'ed; "" if for nothing. */
extern char *deadlock_describe_wait(int pid);

#endif							/* ZKLOCK_DEADLOCK_PRIVATE_H */
