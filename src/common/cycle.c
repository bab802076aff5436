/*-------------------------------------------------------------------------
 *
 * cycle.c
 *	  Finds the waiters that are stuck in a graph, and their cycle.
 *
 * In the queue of a semaphore a cycle alone is no deadlock: a holder that is
 * not in the cycle may leave first.  So the nodes that are stuck are computed
 * first.  They are the largest set of nodes in which each waits for a node of
 * the set, and each that needs only one of several (needs_one) waits for
 * nodes of the set only.
 *
 *-------------------------------------------------------------------------
 */
#include "cycle.h"

static bool may_go_on(const CycleGraph *graph, int node, int64_t latest);

int
cycle_add_node(CycleGraph *graph)
{
	if (graph->nnodes >= CYCLE_NODES_MAX)
		return -1;
	graph->nodes[graph->nnodes] = (CycleNode) {0};
	return graph->nnodes++;
}

int
cycle_add_edge(CycleGraph *graph, int from, int to, int64_t said)
{
	if (to < 0 || graph->nedges >= CYCLE_EDGES_MAX)
		return -1;
	graph->edges[graph->nedges] = (CycleEdge) {from, to, said};
	return graph->nedges++;
}

void
cycle_mark_stuck(CycleGraph *graph, int64_t latest)
{
	bool		has_changed = true;

	for (int i = 0; i < graph->nnodes; i++)
		graph->nodes[i].is_stuck = true;
	while (has_changed)
	{
		has_changed = false;
		for (int i = 0; i < graph->nnodes; i++)
		{
			if (!graph->nodes[i].is_stuck || !may_go_on(graph, i, latest))
				continue;
			graph->nodes[i].is_stuck = false;
			has_changed = true;
		}
	}
}

int
cycle_find(const CycleGraph *graph, int from, int to, int64_t latest,
		   int way[CYCLE_NODES_MAX])
{
	int			goes_by[CYCLE_NODES_MAX];	/* edge; -1: not reached */
	int			reached[CYCLE_NODES_MAX];
	int			nreached = 1;

	if (!graph->nodes[to].is_stuck)
		return 0;
	for (int i = 0; i < graph->nnodes; i++)
		goes_by[i] = -1;
	reached[0] = to;
	for (int next = 0; next < nreached && goes_by[from] < 0; next++)
	{
		for (int i = 0; i < graph->nedges; i++)
		{
			const CycleEdge *edge = &graph->edges[i];

			if (edge->to != reached[next] || edge->said > latest ||
				!graph->nodes[edge->from].is_stuck || goes_by[edge->from] >= 0)
				continue;
			goes_by[edge->from] = i;

			/* the end is reached once more, and that ends the cycle */
			if (edge->from != to)
				reached[nreached++] = edge->from;
		}
	}
	if (goes_by[from] < 0)
		return 0;

	nreached = 0;
	for (int node = from; nreached == 0 || node != to;
		 node = graph->edges[goes_by[node]].to)
		way[nreached++] = goes_by[node];
	return nreached;
}

/* May this node get what it waits for, if each node does that is not stuck? */
static bool
may_go_on(const CycleGraph *graph, int node, int64_t latest)
{
	bool		needs_one = graph->nodes[node].needs_one;
	int			nstuck = 0;

	if (needs_one && graph->nodes[node].has_way_out)
		return true;
	for (int i = 0; i < graph->nedges; i++)
	{
		if (graph->edges[i].from != node || graph->edges[i].said > latest)
			continue;
		if (graph->nodes[graph->edges[i].to].is_stuck)
			nstuck++;
		else if (needs_one)
			return true;
	}
	return nstuck == 0;
}
