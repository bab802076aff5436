/*-------------------------------------------------------------------------
 *
 * cycle.h
 *
 * Values in, verdict out: no socket, no clock, no PostgreSQL header.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CYCLE_H
#define ZKLOCK_CYCLE_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Most nodes and edges of a graph.  What does not fit counts as not waiting.
 */
#define CYCLE_NODES_MAX 128
#define CYCLE_EDGES_MAX 1024

/* One who waits, or is waited for. */
typedef struct CycleNode
{
	bool		needs_one;		/* any one of those it waits for will do, as
								 * for a permit; else all have to let go */
	bool		has_way_out;	/* with needs_one: one of those it waits for
								 * is not in the graph, and may let go */
	bool		is_stuck;		/* set by cycle_mark_stuck() */
} CycleNode;

/* The node `from` waits for the node `to`: a fact says so. */
typedef struct CycleEdge
{
	int			from;
	int			to;
	int64_t		said;			/* when: the czxid of the fact */
} CycleEdge;

typedef struct CycleGraph
{
	int			nnodes;
	int			nedges;
	CycleNode	nodes[CYCLE_NODES_MAX];
	CycleEdge	edges[CYCLE_EDGES_MAX];
} CycleGraph;

/*
 * Add a node, or an edge.  Result: its index, -1 if there is no more room, as
 * for an edge to a node for which there was none.
 */
extern int	cycle_add_node(CycleGraph *graph);
extern int	cycle_add_edge(CycleGraph *graph, int from, int to, int64_t said);

/*
 * Mark the nodes that wait for ever unless somebody gives up, by the edges
 * that were said at that time or before.  A node that waits for nobody is not
 * stuck.  One that needs all those it waits for is stuck if any of them is;
 * one that needs any one of them (needs_one) is stuck if all of them are.
 */
extern void cycle_mark_stuck(CycleGraph *graph, int64_t latest);

/*
 * Find a shortest path of at least one edge between two nodes.  It has only
 * nodes that are stuck, and edges that were said at `latest` or before.  From
 * a node to itself it is a cycle.  Result: how many edges it has, which are in
 * way, in order; 0: there is no path.
 */
extern int	cycle_find(const CycleGraph *graph, int from, int to,
					   int64_t latest, int way[CYCLE_NODES_MAX]);

#endif							/* ZKLOCK_CYCLE_H */
