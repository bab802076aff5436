/*-------------------------------------------------------------------------
 *
 * test_recipe_alias.c
 *	  Unit test of src/recipe_alias.c: tables of cases, and all states that small
 *	  queues of contenders with aliases and other clients can get into.
 *
 * The second part is what the argument at the head of recipe_alias.c rests on.  It
 * goes through every order of the steps of up to four actors: each create,
 * each list, each delete is a step of its own.  Contenders with aliases decide
 * by alias_verdict(); the other clients by what docs/interop.md says that they
 * wait for.  Whoever has the lock exclusively lets go of it, or downgrades
 * first.  No two actors that exclude each other may hold the lock, and from
 * every state each actor must be able to get it though nobody gives up.  A
 * state is the order of the nodes, not their numbers; so there is a finite
 * number of states for actors that come again and again.
 *
 * Variants of the verdict, in which a part of the rule is left out, must fail.
 *
 * With the word "quick" it leaves out the second part.
 *
 *-------------------------------------------------------------------------
 */
#include "recipe_alias.h"
#include "tap.h"

#include <stdlib.h>

#define NELEMS(array) ((int) (sizeof(array) / sizeof((array)[0])))

/* Two contenders with aliases, and one without. */
#define A "_c_0f8fad5b-d9cb-8a13-a165-70867728950e"
#define B "_c_7c9e6679-7425-8a13-944b-e07fc1f90ae7"
#define SINGLE "_c_7c9e6679-7425-40de-944b-e07fc1f90ae7-lock-"
#define PERMITS2 "_c_7c9e6679-7425-40de-944b-e07fc1f90ae7-permits-2-lock-"
#define KAZOO "8d3dfc2a1b5e4f6f9d2c0a7b6e5d4c3b__lock__"

/* The longest list of the table. */
#define MAX_CHILDREN 8

static void
test_names(void)
{
	static const struct
	{
		int			rank;
		const char *child;
	}			cases[] = {
		{0, A "-lock-0000000001"},
		{1, A "-pg__lock__0000000001"},
		{2, A "-__WRIT__0000000001"},
		{0, A "-shared-lock-0000000001"},
		{1, A "-shared__lock__0000000001"},
		{2, A "-__READ__0000000001"},
		{-1, A "-__rlock__0000000001"},
		{-1, A "-permits-3-lock-0000000001"},
		{-1, A "-x-lock-0000000001"},
		{-1, A "__lock__0000000001"},
		{-1, A "-lock-"},
		{-1, A "-lock-000000001"},
		{-1, "x" A "-lock-0000000001"},
		{-1, SINGLE "0000000001"},
		{-1, "_c_0f8fad5b-d9cb-8a11-a165-70867728950e-lock-0000000001"},
		{-1, "_c_0f8fad5b-d9cb-8a12-a165-70867728950e-lock-0000000001"},
		{-1, "lock-0000000001"},
		{-1, "0000000001"},
		{-1, ""},
	};
	char		guid[RECIPE_GUID_LEN + 1] = "0f8fad5b-d9cb-469f-a165-70867728950e";
	char		name[RECIPE_NODE_SIZE];

	for (int i = 0; i < NELEMS(cases); i++)
		is_int(cases[i].rank, alias_rank(cases[i].child), "rank of \"%s\"",
			   cases[i].child);

	alias_mark(guid);
	is_str(A + 3, guid, "a marked GUID");
	for (int rank = 0; rank < ALIAS_COUNT; rank++)
	{
		alias_prefix(name, rank, RECIPE_EXCLUSIVE, guid);
		is_int(0, strncmp(name, cases[rank].child, strlen(name)),
			   "exclusive prefix of rank %d: %s", rank, name);
		alias_name(name, cases[0].child, rank, RECIPE_EXCLUSIVE, 1);
		is_str(cases[rank].child, name, "exclusive name of rank %d", rank);
		alias_name(name, cases[0].child, rank, RECIPE_SHARED, 1);
		is_str(cases[ALIAS_COUNT + rank].child, name,
			   "shared name of rank %d", rank);
	}
	ok(alias_is_same(A "-lock-0000000001", A "-__READ__0000000007"),
	   "aliases of one contender");
	ok(!alias_is_same(A "-lock-0000000001", B "-__WRIT__0000000002"),
	   "aliases of two");
	ok(!alias_is_same(SINGLE "0000000001", SINGLE "0000000001"),
	   "what is no alias is nobody's");
	ok(!alias_is_same(A, A "-lock-0000000001"), "nor is a name that ends early");
}

#define A3(a, b, c) A "-lock-000000000" #a, A "-pg__lock__000000000" #b, \
	A "-__WRIT__000000000" #c
#define B3(a, b, c) B "-lock-000000000" #a, B "-pg__lock__000000000" #b, \
	B "-__WRIT__000000000" #c
#define A3_SHARED(a, b, c) A "-shared-lock-000000000" #a, \
	A "-shared__lock__000000000" #b, A "-__READ__000000000" #c

static const char *
verdict_name(RecipeVerdict verdict)
{
	static const char *const names[] = {"held", "wait", "gone", "exhausted",
	"mismatch", "interposed"};

	return names[verdict];
}

static int
count_children(const char *const *children)
{
	int			n = 0;

	while (n < MAX_CHILDREN && children[n] != NULL)
		n++;
	return n;
}

/* The numbers of our aliases in a list, the first of each rank; -1: not there. */
static void
find_numbers(const char *const *children, int nchildren, const char *mine,
			 int32_t numbers[ALIAS_COUNT])
{
	memset(numbers, -1, ALIAS_COUNT * sizeof(*numbers));
	for (int i = nchildren - 1; i >= 0; i--)
		if (alias_is_same(children[i], mine))
			numbers[alias_rank(children[i])] =
				recipe_parse_node(children[i]).sequence;
}

static void
test_verdicts(void)
{
	static const struct
	{
		RecipeVerdict verdict;
		int			watch;
		RecipeMode	mode;
		const char *children[MAX_CHILDREN];
		const char *what;
	}			cases[] = {
		{RECIPE_HELD, -1, RECIPE_EXCLUSIVE, {A3(1, 2, 3)}, "alone"},
		{RECIPE_HELD, -1, RECIPE_EXCLUSIVE,
			{A3(1, 3, 6), "other", SINGLE "0000000007"},
		"numbers with gaps, somebody behind"},
		{RECIPE_WAIT, 4, RECIPE_EXCLUSIVE,
			{A3(5, 6, 7), SINGLE "0000000001", KAZOO "0000000003", SINGLE "0000000008"},
		"the nearest ahead of all"},
		{RECIPE_INTERPOSED, -1, RECIPE_EXCLUSIVE,
			{A3(5, 7, 8), KAZOO "0000000006"},
		"Kazoo behind the first alias"},
		{RECIPE_INTERPOSED, -1, RECIPE_EXCLUSIVE,
			{A3(5, 6, 8), SINGLE "0000000007", SINGLE "0000000001"},
		"a contender of ours with one node, and somebody ahead"},
		{RECIPE_INTERPOSED, -1, RECIPE_EXCLUSIVE,
			{A3(5, 6, 8), "x-123-0000000007"}, "ZooKeeper's own recipe"},
		{RECIPE_INTERPOSED, -1, RECIPE_EXCLUSIVE,
			{A3(5, 6, 8), "mylock_0000000007"}, "a stranger"},

		{RECIPE_WAIT, 3, RECIPE_EXCLUSIVE,
			{A3(1, 2, 3), SINGLE "0000000000"}, "number 0 counts"},
		{RECIPE_WAIT, 0, RECIPE_EXCLUSIVE,
			{SINGLE "0000000001", A3(2, 3, 4)}, "somebody ahead who is listed first"},
		{RECIPE_WAIT, 3, RECIPE_EXCLUSIVE,
			{A3(5, 6, 7), SINGLE "0000000001", KAZOO "0000000001"},
		"of two with the same number the one listed first"},

		/* with another one that has aliases */
		{RECIPE_WAIT, 5, RECIPE_EXCLUSIVE,
			{B "-lock-0000000001", A3(2, 4, 6), B "-pg__lock__0000000003", B "-__WRIT__0000000005"},
		"another one ahead, its first listed first"},
		{RECIPE_WAIT, 5, RECIPE_EXCLUSIVE, {A3(4, 5, 6), B3(1, 2, 3)},
		"another one ahead: its last alias"},
		{RECIPE_HELD, -1, RECIPE_EXCLUSIVE, {A3(1, 2, 3), B3(4, 5, 6)},
		"another one behind"},
		{RECIPE_HELD, -1, RECIPE_EXCLUSIVE, {A3(1, 3, 5), B3(2, 4, 6)},
		"another one in between, whose first is behind ours"},
		{RECIPE_WAIT, 5, RECIPE_EXCLUSIVE, {A3(2, 4, 6), B3(1, 3, 5)},
		"another one in between, whose first is ahead of ours"},
		{RECIPE_HELD, -1, RECIPE_EXCLUSIVE, {A3(1, 3, 4), B "-lock-0000000002"},
		"its others are not there yet"},
		{RECIPE_INTERPOSED, -1, RECIPE_EXCLUSIVE,
			{A3(1, 3, 4), B "-pg__lock__0000000002"},
		"its first is gone"},
		{RECIPE_WAIT, 3, RECIPE_EXCLUSIVE,
			{A3(2, 3, 4), B "-pg__lock__0000000001"},
		"its first is gone, but it was ahead in any case"},
		{RECIPE_HELD, -1, RECIPE_EXCLUSIVE,
			{A3(1, 2, 3), B "-pg__lock__0000000004", B "-__WRIT__0000000005"},
		"its first is gone, and the others are behind"},

		/* shared */
		{RECIPE_HELD, -1, RECIPE_SHARED, {A3_SHARED(1, 2, 3)},
		"alone, shared"},
		{RECIPE_HELD, -1, RECIPE_SHARED,
			{A3_SHARED(4, 5, 8), B "-shared-lock-0000000001", B "-__READ__0000000006", "_c_x-__READ__0000000007"},
		"readers ahead and in between"},
		{RECIPE_WAIT, 3, RECIPE_SHARED,
			{A3_SHARED(4, 5, 7), "_c_x-__WRIT__0000000001", "_c_x-__READ__0000000006"},
		"a writer ahead, a reader in between"},
		{RECIPE_INTERPOSED, -1, RECIPE_SHARED,
			{A3_SHARED(4, 5, 7), "_c_x-__WRIT__0000000006"},
		"a writer in between"},
		{RECIPE_INTERPOSED, -1, RECIPE_EXCLUSIVE,
			{A3(4, 5, 7), "_c_x-__READ__0000000006"},
		"a reader in between, and we are exclusive"},

		/* another one ahead that is being downgraded, node by node */
		{RECIPE_WAIT, 5, RECIPE_EXCLUSIVE,
			{A3(2, 4, 6), B "-shared-lock-0000000001", B "-lock-0000000001", B "-pg__lock__0000000003"},
		"a downgrade: two first nodes"},
		{RECIPE_WAIT, 5, RECIPE_EXCLUSIVE,
			{A3(2, 4, 6), B "-shared-lock-0000000001", B "-pg__lock__0000000003", B "-__READ__0000000005"},
		"a downgrade: some nodes are shared"},
		{RECIPE_WAIT, 4, RECIPE_SHARED,
			{A3_SHARED(2, 4, 6), B "-shared-lock-0000000001", B "-pg__lock__0000000003", B "-__READ__0000000005"},
		"a downgrade: a reader waits for the one that is not"},
		{RECIPE_HELD, -1, RECIPE_SHARED,
			{A3_SHARED(2, 4, 6), B "-shared-lock-0000000001", B "-shared__lock__0000000003", B "-__READ__0000000005"},
		"a downgrade: all are"},

		/* what is wrong */
		{RECIPE_GONE, -1, RECIPE_EXCLUSIVE,
			{A "-lock-0000000001", A "-__WRIT__0000000003"},
		"an alias of ours is gone"},
		{RECIPE_GONE, -1, RECIPE_EXCLUSIVE, {B3(1, 2, 3)}, "all are gone"},
		{RECIPE_GONE, -1, RECIPE_EXCLUSIVE, {A3(2, 1, 3)},
		"ours are in the wrong order"},
		{RECIPE_GONE, -1, RECIPE_EXCLUSIVE, {A3(1, 1, 2)},
		"or in none"},
		{RECIPE_EXHAUSTED, -1, RECIPE_EXCLUSIVE,
			{A "-lock-2147483647", A "-pg__lock__-2147483648", A "-__WRIT__-2147483647"},
		"the counter's end"},
		{RECIPE_EXHAUSTED, -1, RECIPE_EXCLUSIVE,
			{A3(1, 2, 3), SINGLE "2147483647"}, "somebody else at its end"},
		{RECIPE_EXHAUSTED, -1, RECIPE_EXCLUSIVE,
			{SINGLE "2147483000", A3(1, 2, 3)}, "the same at the limit, listed first"},
		{RECIPE_EXHAUSTED, -1, RECIPE_EXCLUSIVE,
			{A3(1, 2, 3), SINGLE "0000000001"}, "our first number twice"},
		{RECIPE_EXHAUSTED, -1, RECIPE_EXCLUSIVE,
			{A3(1, 2, 3), SINGLE "0000000002"}, "a number of ours twice"},
		/* the first of each rank is ours, more of our GUID somebody has made up */
		{RECIPE_WAIT, 3, RECIPE_EXCLUSIVE,
			{A3(7, 8, 9), A "-lock-0000000001", SINGLE "0000000000"},
		"one like ours below"},
		{RECIPE_WAIT, 4, RECIPE_EXCLUSIVE,
			{A3(7, 8, 9), SINGLE "0000000004", A "-lock-0000000005", A "-pg__lock__0000000002", A "-__WRIT__0000000003"},
		"a forged span below a holder"},
		{RECIPE_INTERPOSED, -1, RECIPE_EXCLUSIVE,
			{A3(5, 7, 9), A "-pg__lock__0000000006"},
		"one like ours in between"},
		{RECIPE_HELD, -1, RECIPE_EXCLUSIVE,
			{A3(5, 7, 9), A "-__WRIT__0000000011"},
		"one like ours behind"},
		{RECIPE_WAIT, 3, RECIPE_EXCLUSIVE,
			{A3(5, 7, 9), B "-lock-0000000008", B "-pg__lock__0000000006", B "-lock-0000000004"},
		"somebody else with two first aliases: the lower one counts"},

		{RECIPE_MISMATCH, 3, RECIPE_EXCLUSIVE,
			{A3(4, 5, 6), "_c_7c9e6679-7425-40de-944b-e07fc1f90ae7-permits-3-lock-0000000001"},
		"a semaphore"},
		{RECIPE_MISMATCH, 0, RECIPE_EXCLUSIVE,
			{PERMITS2 "0000000001", A3(4, 5, 6)}, "one with two permits, listed first"},
		{RECIPE_HELD, -1, RECIPE_EXCLUSIVE,
			{PERMITS2 "0000000008", PERMITS2 "0000000009", A3(4, 5, 6)}, "two behind"},
		{RECIPE_INTERPOSED, -1, RECIPE_EXCLUSIVE,
			{A3(1, 3, 4), PERMITS2 "0000000002"}, "one in between"},
		{RECIPE_WAIT, 4, RECIPE_EXCLUSIVE,
			{A3(4, 5, 6), SINGLE "0000000001", PERMITS2 "0000000002"},
		"one that came into a queue of plain ones"},
	};

	for (int i = 0; i < NELEMS(cases); i++)
	{
		const char *mine = cases[i].mode == RECIPE_SHARED ?
			A "-shared-lock-0000000001" : A "-lock-0000000001";
		int			watch = -4711;
		int32_t		numbers[ALIAS_COUNT];
		RecipeVerdict verdict;

		find_numbers(cases[i].children, count_children(cases[i].children), mine,
					 numbers);
		verdict = alias_verdict(cases[i].children,
								count_children(cases[i].children), mine,
								numbers, cases[i].mode, &watch);
		is_str(verdict_name(cases[i].verdict), verdict_name(verdict),
			   "verdict: %s", cases[i].what);
		is_int(cases[i].watch, watch, "verdict: %s: watch", cases[i].what);
	}
}

/* ---------------------------------------------------------------------
 * All states of small queues
 * ---------------------------------------------------------------------
 */

#define MAX_ACTORS 4
#define MAX_NODES 9

/* What one actor is. */
typedef enum Kind
{
	GROUP,						/* with aliases, exclusive */
	GROUP_SHARED,
	MUTEX,						/* Curator's, and the like */
	KAZOO_LOCK,
	KAZOO_READ,
	WRITER,						/* of Curator's read-write lock */
	READER,
	SEES_ALL,					/* a newer go-zookeeper */
	OURS,						/* one node of zklock, style curator */
	OURS_SHARED,
	NKINDS
} Kind;

/* Names of nodes, as sets. */
#define N_LOCK 1
#define N_SHARED_LOCK 2
#define N_KAZOO 4
#define N_RLOCK 8
#define N_WRIT 16
#define N_READ 32
#define N_KAZOO_SHARED 64
#define N_ALL 127

static const struct
{
	const char *word;
	bool		is_reader;		/* lets other readers in beside it */
	int			makes[ALIAS_COUNT]; /* 0: no node */
	int			sees;
}			kinds[NKINDS] = {
	[GROUP] = {"aliases", false, {N_LOCK, N_KAZOO, N_WRIT}, N_ALL},
	[GROUP_SHARED] = {"shared aliases", true,
	{N_SHARED_LOCK, N_KAZOO_SHARED, N_READ}, N_LOCK | N_KAZOO | N_WRIT},
	[MUTEX] = {"mutex", false, {N_LOCK}, N_LOCK | N_SHARED_LOCK},
	[KAZOO_LOCK] = {"Kazoo", false, {N_KAZOO}, N_KAZOO | N_KAZOO_SHARED},
	[KAZOO_READ] = {"Kazoo's reader", true, {N_RLOCK},
	N_KAZOO | N_KAZOO_SHARED},
	[WRITER] = {"writer", false, {N_WRIT}, N_WRIT | N_READ},
	[READER] = {"reader", true, {N_READ}, N_WRIT},
	[SEES_ALL] = {"one that sees all", false, {N_LOCK}, N_ALL},
	[OURS] = {"one node of ours", false, {N_LOCK}, N_ALL},
	[OURS_SHARED] = {"a shared node of ours", true, {N_SHARED_LOCK},
	N_LOCK | N_KAZOO | N_WRIT},
};

/* What an actor does next. */
typedef enum Step
{
	IDLE,						/* make the first node */
	MADE_1,						/* make the second */
	MADE_2,
	LIST,						/* list and decide */
	WAIT,						/* until `target` is gone */
	HOLD,						/* has the lock; let go of the first node */
	WITHDRAW,					/* delete the first node */
	DELETE_2,
	DELETE_3,
	DOWNGRADE_2,				/* holds it shared; replace the second node */
	DOWNGRADE_3,
	HOLD_SHARED,				/* let go of the first node */
} Step;

/* A variant of the verdict. */
typedef enum Variant
{
	AS_IT_IS,
	WAIT_FOR_INTERPOSED,		/* they are ahead */
	IGNORE_INTERPOSED,			/* they are behind */
	WAIT_FOR_GROUPS,			/* aliases in between are ahead, like others */
	WAIT_FOR_LEFTOVERS			/* an alias without its first is ahead */
} Variant;

typedef struct State
{
	unsigned char nnodes;
	unsigned char nodes[MAX_NODES]; /* in order: actor * 4 + rank */
	unsigned char steps[MAX_ACTORS];
	unsigned char targets[MAX_ACTORS];	/* valid for WAIT: as in nodes */
	unsigned char shared[MAX_ACTORS];	/* ranks of nodes that a downgrade has
										 * replaced, as bits */
} State;

/* One search. */
typedef struct Search
{
	Variant		variant;
	bool		has_stranger;	/* who deletes single aliases of waiters */
	int			nactors;
	Kind		actors[MAX_ACTORS];

	State	   *states;			/* found so far, in order */
	int			nstates;
	int			max_states;
	int		   *table;			/* hash: index of a state + 1 */
	int			table_size;
	struct Edge
	{
		int			from;
		int			to;
		int			granted;	/* actor, or -1 */
	}		   *edges;			/* those that nobody's giving up makes */
	int			nedges;
	int			max_edges;

	/* the outcome */
	bool		is_violated;	/* two holders */
	bool		is_stuck;		/* somebody for ever */
	bool		differs;		/* alias_verdict() is not the rule in words */
	int			ninterposed;
} Search;

static uint64_t
hash_state(const State *state)
{
	const unsigned char *bytes = (const unsigned char *) state;
	uint64_t	hash = UINT64_C(14695981039346656037);

	for (size_t i = 0; i < sizeof(*state); i++)
		hash = (hash ^ bytes[i]) * UINT64_C(1099511628211);
	return hash ^ (hash >> 29);
}

/* The index of a state, which is entered if it is new. */
static int
enter_state(Search *search, const State *state)
{
	uint64_t	slot;

	if (2 * search->nstates >= search->table_size)
	{
		search->table_size = search->table_size == 0 ? 4096 :
			4 * search->table_size;
		free(search->table);
		search->table = calloc(search->table_size, sizeof(int));
		for (int i = 0; i < search->nstates; i++)
		{
			slot = hash_state(&search->states[i]) % search->table_size;
			while (search->table[slot] != 0)
				slot = (slot + 1) % search->table_size;
			search->table[slot] = i + 1;
		}
	}
	slot = hash_state(state) % search->table_size;
	for (; search->table[slot] != 0; slot = (slot + 1) % search->table_size)
		if (memcmp(&search->states[search->table[slot] - 1], state,
				   sizeof(*state)) == 0)
			return search->table[slot] - 1;
	if (search->nstates == search->max_states)
	{
		search->max_states = search->max_states == 0 ? 1024 :
			2 * search->max_states;
		search->states = realloc(search->states,
								 search->max_states * sizeof(State));
	}
	search->states[search->nstates] = *state;
	search->table[slot] = search->nstates + 1;
	return search->nstates++;
}

static void
add_edge(Search *search, int from, const State *to, int granted)
{
	int			index = enter_state(search, to);

	if (search->nedges == search->max_edges)
	{
		search->max_edges = search->max_edges == 0 ? 1024 :
			2 * search->max_edges;
		search->edges = realloc(search->edges,
								search->max_edges * sizeof(struct Edge));
	}
	search->edges[search->nedges++] = (struct Edge) {from, index, granted};
}

static bool
is_group(Kind kind)
{
	return kind == GROUP || kind == GROUP_SHARED;
}

static Kind
kind_of(const Search *search, int node)
{
	return search->actors[node / 4];
}

/* Is this node a reader's, by its name? */
static bool
is_shared_node(const Search *search, const State *state, int node)
{
	return kinds[kind_of(search, node)].is_reader ||
		(state->shared[node / 4] & (1 << node % 4)) != 0;
}

static int
place_of(const State *state, int node)
{
	for (int i = 0; i < state->nnodes; i++)
		if (state->nodes[i] == node)
			return i;
	return -1;
}

static void
append_node(State *state, int node)
{
	state->nodes[state->nnodes++] = node;
}

/* Whoever waits for a node that goes looks again. */
static void
wake_waiters(State *state, int node)
{
	for (int i = 0; i < MAX_ACTORS; i++)
		if (state->steps[i] == WAIT && state->targets[i] == node)
		{
			state->steps[i] = LIST;
			state->targets[i] = 0;
		}
}

/* Delete a node if it is there. */
static void
delete_node(State *state, int node)
{
	int			place = place_of(state, node);

	if (place < 0)
		return;
	memmove(&state->nodes[place], &state->nodes[place + 1],
			state->nnodes - place - 1);
	state->nodes[--state->nnodes] = 0;
	state->shared[node / 4] &= ~(1 << node % 4);
	wake_waiters(state, node);
}

/* Put a shared node in the place of an exclusive one. */
static void
replace_node(State *state, int node)
{
	state->shared[node / 4] |= 1 << node % 4;
	wake_waiters(state, node);
}

/* The name of a node at a place of the queue. */
static void
write_name(char name[RECIPE_NODE_SIZE], const Search *search,
		   const State *state, int node, int place)
{
	Kind		kind = kind_of(search, node);
	char		guid[RECIPE_GUID_LEN + 1] = "00000000-0000-4000-8000-000000000000";
	char		prefix[RECIPE_NODE_SIZE];

	guid[0] = 'a' + node / 4;
	if (is_group(kind))
	{
		alias_mark(guid);
		alias_prefix(prefix, node % 4, is_shared_node(search, state, node) ?
					 RECIPE_SHARED : RECIPE_EXCLUSIVE, guid);
	}
	else if (kind == MUTEX || kind == SEES_ALL || kind == OURS)
		recipe_node_prefix(prefix, RECIPE_STYLE_CURATOR, RECIPE_EXCLUSIVE, 1,
						   guid);
	else if (kind == OURS_SHARED)
		recipe_node_prefix(prefix, RECIPE_STYLE_CURATOR, RECIPE_SHARED, 1,
						   guid);
	else if (kind == WRITER || kind == READER)
		recipe_node_prefix(prefix, RECIPE_STYLE_CURATOR_RW,
						   kind == WRITER ? RECIPE_EXCLUSIVE : RECIPE_SHARED,
						   1, guid);
	else
		snprintf(prefix, sizeof(prefix), "%c1b5e4f6f9d2c0a7b6e5d4c3b8d3dfc2a__%slock__",
				 'a' + node / 4, kind == KAZOO_READ ? "r" : "");
	snprintf(name, RECIPE_NODE_SIZE, "%.60s%010d", prefix, place + 1);
}

/* What zklock's code says. */
static RecipeVerdict
real_verdict(const Search *search, const State *state, int actor, int *watch)
{
	char		names[MAX_NODES][RECIPE_NODE_SIZE];
	const char *children[MAX_NODES];
	const char *mine = NULL;
	int32_t		numbers[ALIAS_COUNT];
	Kind		kind = search->actors[actor];
	RecipeMode	mode = kinds[kind].is_reader ? RECIPE_SHARED : RECIPE_EXCLUSIVE;
	int			own;

	for (int i = 0; i < state->nnodes; i++)
	{
		write_name(names[i], search, state, state->nodes[i], i);
		children[i] = names[i];
		if (state->nodes[i] / 4 == actor)
			mine = names[i];
	}
	if (mine == NULL)
		return RECIPE_GONE;
	if (is_group(kind))
	{
		find_numbers(children, state->nnodes, mine, numbers);
		return alias_verdict(children, state->nnodes, mine, numbers, mode,
							 watch);
	}
	return recipe_verdict(children, state->nnodes, mine, mode, &own, watch);
}

/* The rule of recipe_alias.c once more, and its variants. */
static RecipeVerdict
rule(const Search *search, const State *state, int actor, int *watch)
{
	int			first = place_of(state, actor * 4);
	int			last = place_of(state, actor * 4 + ALIAS_COUNT - 1);
	bool		is_reader = kinds[search->actors[actor]].is_reader;

	*watch = -1;
	if (first < 0 || place_of(state, actor * 4 + 1) < 0 || last < 0)
		return RECIPE_GONE;
	for (int i = last - 1; i >= 0; i--)
	{
		int			other = state->nodes[i] / 4;
		int			others_first = place_of(state, other * 4);
		bool		is_between = i > first;

		if (other == actor ||
			(is_reader && is_shared_node(search, state, state->nodes[i])))
			continue;
		if (is_between && is_group(search->actors[other]))
		{
			if (search->variant != WAIT_FOR_GROUPS && others_first > first)
				continue;
			if (others_first < 0 && search->variant != WAIT_FOR_LEFTOVERS &&
				search->variant != WAIT_FOR_GROUPS)
			{
				*watch = -1;
				return RECIPE_INTERPOSED;
			}
		}
		else if (is_between)
		{
			if (search->variant == IGNORE_INTERPOSED)
				continue;
			if (search->variant != WAIT_FOR_INTERPOSED)
			{
				*watch = -1;
				return RECIPE_INTERPOSED;
			}
		}
		if (*watch < 0)
			*watch = i;
	}
	return *watch < 0 ? RECIPE_HELD : RECIPE_WAIT;
}

/* What another client says. */
static RecipeVerdict
foreign_verdict(const Search *search, const State *state, int actor,
				int *watch)
{
	int			sees = kinds[search->actors[actor]].sees;

	for (*watch = place_of(state, actor * 4) - 1; *watch >= 0; (*watch)--)
	{
		int			node = state->nodes[*watch];
		Kind		kind = kind_of(search, node);

		if (is_group(kind) && is_shared_node(search, state, node))
			kind = GROUP_SHARED;
		if (kinds[kind].makes[node % 4] & sees)
			return RECIPE_WAIT;
	}
	return RECIPE_HELD;
}

static RecipeVerdict
decide(Search *search, const State *state, int actor, int *watch)
{
	Kind		kind = search->actors[actor];
	RecipeVerdict verdict;
	int			rules_watch;

	if (kind == OURS || kind == OURS_SHARED)
		return real_verdict(search, state, actor, watch);
	if (!is_group(kind))
		return foreign_verdict(search, state, actor, watch);
	verdict = rule(search, state, actor, watch);
	if (search->variant == AS_IT_IS)
	{
		rules_watch = *watch;
		if (verdict != real_verdict(search, state, actor, watch) ||
			rules_watch != *watch)
			search->differs = true;
	}
	if (verdict == RECIPE_INTERPOSED)
		search->ninterposed++;
	return verdict;
}

/* Has the actor the lock, and does it let readers in beside it? */
static bool
is_holder(const Search *search, const State *state, int actor,
		  bool *is_shared)
{
	Step		step = state->steps[actor];

	*is_shared = step != HOLD || kinds[search->actors[actor]].is_reader;
	return step == HOLD || step == DOWNGRADE_2 || step == DOWNGRADE_3 ||
		step == HOLD_SHARED;
}

/* Two that exclude each other, at least one of them with aliases. */
static bool
has_two_holders(const Search *search, const State *state)
{
	bool		is_shared;
	bool		is_other_shared;

	for (int i = 0; i < search->nactors; i++)
		for (int j = 0; j < i; j++)
			if ((is_group(search->actors[i]) || is_group(search->actors[j])) &&
				is_holder(search, state, i, &is_shared) &&
				is_holder(search, state, j, &is_other_shared) &&
				!(is_shared && is_other_shared))
				return true;
	return false;
}

/* All that one actor can do in a state. */
static void
step_actor(Search *search, int index, int actor)
{
	State		next = search->states[index];
	bool		has_aliases = is_group(search->actors[actor]);
	unsigned char *step = &next.steps[actor];
	int			granted = -1;
	int			watch;

	switch ((Step) *step)
	{
		case IDLE:
			append_node(&next, actor * 4);
			*step = has_aliases ? MADE_1 : LIST;
			break;
		case MADE_1:
			append_node(&next, actor * 4 + 1);
			*step = MADE_2;
			break;
		case MADE_2:
			append_node(&next, actor * 4 + 2);
			*step = LIST;
			break;
		case LIST:
			switch (decide(search, &next, actor, &watch))
			{
				case RECIPE_HELD:
					*step = HOLD;
					granted = actor;
					break;
				case RECIPE_WAIT:
					*step = WAIT;
					next.targets[actor] = next.nodes[watch];
					break;
				default:
					*step = WITHDRAW;
			}
			break;
		case WAIT:
			break;
		case DOWNGRADE_2:
			replace_node(&next, actor * 4 + 1);
			*step = DOWNGRADE_3;
			break;
		case DOWNGRADE_3:
			replace_node(&next, actor * 4 + 2);
			*step = HOLD_SHARED;
			break;
		case HOLD:
		case HOLD_SHARED:
		case WITHDRAW:
			delete_node(&next, actor * 4);
			*step = has_aliases ? DELETE_2 : IDLE;
			break;
		case DELETE_2:
			delete_node(&next, actor * 4 + 1);
			*step = DELETE_3;
			break;
		case DELETE_3:
			delete_node(&next, actor * 4 + 2);
			*step = IDLE;
			break;
	}
	if (search->states[index].steps[actor] != WAIT)
		add_edge(search, index, &next, granted);

	/* instead of letting go it downgrades */
	next = search->states[index];
	if (*step == HOLD && search->actors[actor] == GROUP)
	{
		replace_node(&next, actor * 4);
		*step = DOWNGRADE_2;
		add_edge(search, index, &next, -1);
	}

	/* it gives up, or only some of its creates reached the server */
	next = search->states[index];
	if (*step == WAIT || *step == MADE_1 || *step == MADE_2)
	{
		*step = WITHDRAW;
		next.targets[actor] = 0;
		enter_state(search, &next);
	}

	/* somebody deletes one of the aliases */
	if (!search->has_stranger || !has_aliases)
		return;
	for (int rank = 0; rank < ALIAS_COUNT; rank++)
	{
		next = search->states[index];
		if (*step != WAIT || place_of(&next, actor * 4 + rank) < 0)
			continue;
		delete_node(&next, actor * 4 + rank);
		enter_state(search, &next);
	}
}

/*
 * Can each actor get the lock from every state?  Go back from the grants, edge
 * by edge, until nothing is added.
 */
static void
find_stuck(Search *search)
{
	int		   *starts = calloc(search->nstates + 1, sizeof(int));
	int		   *sorted = malloc((search->nedges + 1) * sizeof(int));
	int		   *stack = malloc((search->nstates + 1) * sizeof(int));

	/* the edges by the state that they lead to */
	for (int i = 0; i < search->nedges; i++)
		starts[search->edges[i].to + 1]++;
	for (int i = 0; i < search->nstates; i++)
		starts[i + 1] += starts[i];
	for (int i = search->nedges - 1; i >= 0; i--)
		sorted[--starts[search->edges[i].to + 1]] = i;

	/* now starts[s + 1] is where those of s begin */
	for (int actor = 0; actor < search->nactors; actor++)
	{
		bool	   *reaches = calloc(search->nstates, sizeof(bool));
		int			nreached = 0;
		int			depth = 0;

		for (int i = 0; i < search->nedges; i++)
		{
			int			from = search->edges[i].from;

			if (search->edges[i].granted == actor && !reaches[from])
			{
				reaches[from] = true;
				stack[depth++] = from;
			}
		}
		while (depth > 0)
		{
			int			to = stack[--depth];
			int			end = to + 2 <= search->nstates ? starts[to + 2] :
				search->nedges;

			nreached++;
			for (int i = starts[to + 1]; i < end; i++)
			{
				int			from = search->edges[sorted[i]].from;

				if (!reaches[from])
				{
					reaches[from] = true;
					stack[depth++] = from;
				}
			}
		}
		search->is_stuck |= nreached < search->nstates;
		free(reaches);
	}
	free(starts);
	free(sorted);
	free(stack);
}

/* Go through all states of these actors. */
static Search
run_search(Variant variant, bool has_stranger, int nactors,
		   const Kind actors[MAX_ACTORS])
{
	Search		search = {.variant = variant,.has_stranger = has_stranger,
	.nactors = nactors};
	State		start = {0};

	memcpy(search.actors, actors, nactors * sizeof(*actors));
	enter_state(&search, &start);
	for (int i = 0; i < search.nstates && !search.is_violated; i++)
	{
		search.is_violated = has_two_holders(&search, &search.states[i]);
		for (int actor = 0; actor < nactors; actor++)
			step_actor(&search, i, actor);
	}
	if (!search.is_violated)
		find_stuck(&search);
	free(search.states);
	free(search.table);
	free(search.edges);
	return search;
}

/* All sets of actors with that many contenders with aliases and others. */
static void
test_states(bool has_stranger, int ngroups, int nothers)
{
	Kind		actors[MAX_ACTORS];
	int			nsearches = 0;
	long		nstates = 0;
	long		ninterposed = 0;
	int			nfailed = 0;
	int			nmodes = 1 << ngroups;
	int			nkinds = NKINDS - MUTEX;

	for (int modes = 0; modes < nmodes; modes++)
		for (int others = 0; others < (nothers == 2 ? nkinds * nkinds :
									   nothers == 1 ? nkinds : 1); others++)
		{
			Search		search;

			/* which of two has which mode, or is which, does not matter */
			if (ngroups == 2 && modes == 2)
				continue;
			if (ngroups == 3 && modes != 0 && modes != 1 && modes != 3 && modes != 7)
				continue;
			if (nothers == 2 && others / nkinds > others % nkinds)
				continue;
			for (int i = 0; i < ngroups; i++)
				actors[i] = modes & (1 << i) ? GROUP_SHARED : GROUP;
			if (nothers >= 1)
				actors[ngroups] = MUTEX + others % nkinds;
			if (nothers == 2)
				actors[ngroups + 1] = MUTEX + others / nkinds;
			search = run_search(AS_IT_IS, has_stranger, ngroups + nothers,
								actors);
			nsearches++;
			nstates += search.nstates;
			ninterposed += search.ninterposed;
			if (!search.is_violated && !search.is_stuck && !search.differs)
				continue;
			nfailed++;
			fprintf(stderr, "#   %s%s%s:", search.is_violated ? "two holders" : "",
					search.is_stuck ? "stuck" : "",
					search.differs ? " not the rule" : "");
			for (int i = 0; i < search.nactors; i++)
				fprintf(stderr, " %s,", kinds[actors[i]].word);
			fprintf(stderr, "\n");
		}
	note("%d with aliases, %d others%s: %d sets of actors, %ld states, %ld withdrawals",
		 ngroups, nothers, has_stranger ? ", a stranger who deletes nodes" : "",
		 nsearches, nstates, ninterposed);
	is_int(0, nfailed, "all states: %d with aliases, %d others%s: no two holders, nobody is stuck",
		   ngroups, nothers, has_stranger ? ", and a stranger" : "");
	if (nothers > 0)
		ok(ninterposed > 0, "and somebody was interposed");
}

/* Each part of the rule is needed. */
static void
test_variants(void)
{
	static const struct
	{
		Variant		variant;
		bool		has_stranger;
		bool		is_violated;
		int			nactors;
		Kind		actors[MAX_ACTORS];
		const char *what;
	}			cases[] = {
		{AS_IT_IS, true, false, 3, {GROUP, GROUP, KAZOO_LOCK},
		"the rule"},
		{IGNORE_INTERPOSED, false, true, 2, {GROUP, KAZOO_LOCK},
		"Kazoo in between is behind: two holders"},
		{WAIT_FOR_INTERPOSED, false, false, 2, {GROUP, MUTEX},
		"a mutex in between is ahead: both wait"},
		{WAIT_FOR_INTERPOSED, false, false, 2, {GROUP, OURS},
		"one node of ours in between is ahead: both wait"},
		{WAIT_FOR_INTERPOSED, false, false, 3, {GROUP, KAZOO_LOCK, SEES_ALL},
		"Kazoo in between is ahead: a ring of three"},
		{WAIT_FOR_GROUPS, false, false, 2, {GROUP, GROUP},
		"other aliases in between are ahead: both wait"},
		{WAIT_FOR_LEFTOVERS, true, false, 3, {GROUP, GROUP, MUTEX},
		"an alias whose first was deleted is ahead: both wait"},
	};

	for (int i = 0; i < NELEMS(cases); i++)
	{
		Search		search = run_search(cases[i].variant, cases[i].has_stranger,
										cases[i].nactors, cases[i].actors);
		bool		is_rule = cases[i].variant == AS_IT_IS;

		ok(search.is_violated == cases[i].is_violated, "variant: %s: holders",
		   cases[i].what);
		ok(search.is_violated || search.is_stuck == !is_rule,
		   "variant: %s: stuck", cases[i].what);
	}
}

int
main(int argc, char **argv)
{
	test_names();
	test_verdicts();
	if (argc > 1 && strcmp(argv[1], "quick") == 0)
		return done_testing();
	test_variants();
	test_states(false, 1, 1);
	test_states(false, 1, 2);
	test_states(false, 2, 0);
	test_states(false, 2, 1);
	test_states(true, 2, 1);

	/* a minute with optimization: by hand */
	if (getenv("BIG") != NULL)
	{
		test_states(false, 3, 0);
		test_states(false, 2, 2);
	}
	return done_testing();
}
