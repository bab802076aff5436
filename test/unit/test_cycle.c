/*-------------------------------------------------------------------------
 *
 * test_cycle.c
 *	  Unit test of src/common/cycle.c: a deadlock is found in a graph of waits,
 *	  and nothing else is taken for one.  Tables of cases, the expected value
 *	  first.
 *
 *-------------------------------------------------------------------------
 */
#include "cycle.h"
#include "tap.h"

#define NELEMS(array) ((int) (sizeof(array) / sizeof((array)[0])))

/*
 * A graph in words: "0>1 1>0" are edges, said in this order (1, 2, ...); "2?"
 * makes a node one that needs one only, "2!" one that has a way out besides.
 */
static CycleGraph
make_graph(const char *words, int latest)
{
	CycleGraph	graph = {0};

	for (int i = 0; i < 10; i++)
		cycle_add_node(&graph);
	for (const char *c = words; *c != '\0'; c++)
	{
		if (c[0] == ' ')
			continue;
		if (c[1] == '>')
		{
			cycle_add_edge(&graph, c[0] - '0', c[2] - '0', graph.nedges + 1);
			c += 2;
			continue;
		}
		graph.nodes[c[0] - '0'].needs_one = true;
		graph.nodes[c[0] - '0'].has_way_out = c[1] == '!';
		c++;
	}
	cycle_mark_stuck(&graph, latest);
	return graph;
}

static void
test_settle(void)
{
	static const struct
	{
		const char *expected;	/* who is stuck */
		const char *words;
	}			cases[] = {
		{"", ""},
		{"", "0>1"},
		{"", "0>1 1>2 2>3"},
		{"0", "0>0"},
		{"01", "0>1 1>0"},
		{"012", "0>1 1>0 2>0"},
		{"01", "0>1 1>0 0>2"},
		{"012", "0>1 1>2 2>0"},
		{"", "0>1 1>0 0>2 0?"},
		{"012", "0>1 1>0 0>2 2>0 0?"},
		{"", "0>1 1>0 0!"},
		{"01", "0>1 1>0 0?"},
		{"", "0>1 1>2 1>0 0? 1?"},
		{"0123", "0>1 1>0 2>3 3>2"},
	};

	for (int i = 0; i < NELEMS(cases); i++)
	{
		CycleGraph	graph = make_graph(cases[i].words, 9);
		char		stuck[11];
		int			nstuck = 0;

		for (int j = 0; j < graph.nnodes; j++)
			if (graph.nodes[j].is_stuck)
				stuck[nstuck++] = '0' + j;
		stuck[nstuck] = '\0';
		is_str(cases[i].expected, stuck, "stuck: %s", cases[i].words);
	}
}

static void
test_find(void)
{
	static const struct
	{
		const char *expected;	/* edges of the way, counted from 0 */
		int			from;
		int			to;
		int			latest;
		const char *words;
	}			cases[] = {
		{"0", 0, 0, 9, "0>0"},
		{"01", 0, 0, 9, "0>1 1>0"},
		{"10", 1, 1, 9, "0>1 1>0"},
		{"", 2, 2, 9, "0>1 1>0 2>0"},
		{"20", 2, 1, 9, "0>1 1>0 2>0"},
		{"", 0, 0, 1, "0>1 1>0"},
		{"01", 0, 0, 2, "0>1 1>0"},
		/* the shortest */
		{"43", 0, 0, 9, "0>1 1>2 2>0 3>0 0>3"},
		{"420", 0, 0, 9, "1>0 2>0 3>1 1>2 0>3"},
		/* not over who is not stuck */
		{"", 0, 0, 9, "0>1 1>0 1>2 1?"},
		{"012", 0, 0, 3, "0>1 1>2 2>0 2>1"},
		/* not over what was said later */
		{"012", 0, 0, 3, "0>1 1>2 2>0 1>0"},
		/* nor over who was not, as long as the last had not said so */
		{"", 1, 1, 3, "0>1 0>2 1>0 2>0 0?"},
		{"31", 2, 2, 4, "0>1 0>2 1>0 2>0 0?"},
	};

	for (int i = 0; i < NELEMS(cases); i++)
	{
		CycleGraph	graph = make_graph(cases[i].words,
											   cases[i].latest);
		int			way[CYCLE_NODES_MAX];
		char		found[11];
		int			length = cycle_find(&graph, cases[i].from, cases[i].to,
										cases[i].latest, way);

		for (int j = 0; j < length; j++)
			found[j] = '0' + way[j];
		found[length] = '\0';
		is_str(cases[i].expected, found, "from %d to %d until %d: %s",
			   cases[i].from, cases[i].to, cases[i].latest, cases[i].words);
	}
}

static void
test_room(void)
{
	static CycleGraph graph;
	int			way[CYCLE_NODES_MAX];

	graph.nodes[0] = (CycleNode) {true, true, true};
	is_int(0, cycle_add_node(&graph), "the first node");
	ok(!graph.nodes[0].needs_one && !graph.nodes[0].has_way_out &&
	   !graph.nodes[0].is_stuck, "nothing is known of a new node");
	is_int(1, cycle_add_node(&graph), "the second one");
	is_int(0, cycle_add_edge(&graph, 0, 1, 1), "the first edge");
	is_int(1, cycle_add_edge(&graph, 1, 0, 1), "the second one");
	graph.nnodes = graph.nedges = 0;
	for (int i = 0; i < CYCLE_NODES_MAX; i++)
		cycle_add_node(&graph);
	is_int(-1, cycle_add_node(&graph), "no room for a node");
	is_int(-1, cycle_add_edge(&graph, 0, -1, 1), "no room for an edge to a node that is not there");
	for (int i = 0; i < CYCLE_EDGES_MAX; i++)
		cycle_add_edge(&graph, i % CYCLE_NODES_MAX,
					   (i + 1) % CYCLE_NODES_MAX, i);
	is_int(-1, cycle_add_edge(&graph, 0, 0, 0), "no room for an edge");
	cycle_mark_stuck(&graph, INT64_MAX);
	is_int(CYCLE_NODES_MAX, cycle_find(&graph, 0, 0, INT64_MAX, way),
		   "a cycle of all nodes");

	/* the last two wait for each other, all others for the next one */
	graph.nedges = 0;
	for (int i = 0; i < CYCLE_NODES_MAX - 1; i++)
		cycle_add_edge(&graph, i, i + 1, 1);
	cycle_add_edge(&graph, CYCLE_NODES_MAX - 1, CYCLE_NODES_MAX - 2, 1);
	cycle_mark_stuck(&graph, INT64_MAX);
	is_int(0, cycle_find(&graph, 0, 0, INT64_MAX, way),
		   "all are stuck, and the first in no cycle");
}

int
main(void)
{
	test_settle();
	test_find();
	test_room();
	return done_testing();
}
