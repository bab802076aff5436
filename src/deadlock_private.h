/*-------------------------------------------------------------------------
 *
 * deadlock_private.h
 *	  Deadlocks, for the rooms of the family deadlock_*.
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
 *                         it waits with, a newline, and who it is
 *   pg/<session>-<maker>  the first session waits for the maker, in
 *                         PostgreSQL; what it waits for there
 *
 * Sessions are 16 hexadecimal digits.  While there is a <session>.ask, that
 * session sets the data of its facts of the second form once more whenever it
 * has seen that they are still true.
 */
typedef struct ZkFact
{
	char	   *path;
	char	   *data;
	ZkRequest  *request;		/* its create, or NULL */
	bool		is_tried;		/* a create has been sent: it may be there */
	int64		czxid;			/* 0: it is not known to be there */
	int64		waiter;			/* the session of a wait in PostgreSQL */
} ZkFact;

/* The znodes that they are in, below the root. */
#define ZK_WAITS_IN_POSTGRES "pg"

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
	char	   *lock_path;		/* what it waits for; NULL: no lock of ours */
	RecipeMode	mode;			/* valid with lock_path */
} Member;

/* Who waits for whom, as far as it matters to node 0, this backend. */
typedef struct Graph
{
	CycleGraph	shape;
	Member		members[CYCLE_NODES_MAX];
	char	   *in_postgres[CYCLE_EDGES_MAX];	/* by edge: what is waited for
												 * there; NULL: a lock of ours */
	int			versions[CYCLE_EDGES_MAX];	/* with in_postgres: of the fact */
} Graph;

/* ---- deadlock_graph.c ---- */

/* Paths of facts, and of the question for such, palloc'ed. */
extern char *deadlock_path_of_wait(const ZkPlace *place, int64 session);
extern char *deadlock_path_of_blocked(const ZkPlace *place, int64 waiter,
									  int64 maker);
extern char *deadlock_path_of_question(const ZkPlace *place, int64 maker);

/*
 * Follow who waits for whom from this backend on, which waits for that place,
 * as its fact of that czxid says.  is_newest: all of it is read as it is now,
 * not as our server happens to have it.  NULL if that came to no end: the
 * session was lost, or time is over.  Raises on interrupts.
 */
extern Graph *deadlock_follow(ZkRoundTrip *trip, const ZkPlace *place,
							  int64 session, int64 said, bool is_newest);

/*
 * Who of this cluster holds the lock of that place, as their queue nodes have
 * it: a list of LocalWaiter.  For those who are not on the board.
 */
extern List *deadlock_local_holders(ZkRoundTrip *trip, const ZkPlace *place);

/* ---- deadlock_local.c ---- */

/*
 * Does anybody wait for a lock of PostgreSQL's that this backend holds?  Never
 * raises; no more than a look at its own locks.
 */
extern bool deadlock_is_waited_for(void);

/* The backends that have a session, as far as they are on the board. */
extern List *deadlock_local_candidates(void);

/*
 * Those of them that wait for this backend in PostgreSQL, or for one that
 * does.  Raises on interrupts.
 */
extern List *deadlock_local_waiters(List *candidates);

/* What a backend waits for there, palloc'ed; "" if for nothing. */
extern char *deadlock_describe_wait(int pid);

#endif							/* ZKLOCK_DEADLOCK_PRIVATE_H */
