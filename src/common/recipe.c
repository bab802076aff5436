/*-------------------------------------------------------------------------
 *
 * recipe.c
 *	  The verdict over a queue, and whom to watch.
 *
 * Values in, verdict out.  In doubt the verdict is the one that can only make
 * us wait.  If the numbers do not order the queue, no order is guessed.
 *
 *-------------------------------------------------------------------------
 */
#include "recipe.h"

#include <string.h>

/* The contenders ahead of a contender, among all. */
typedef struct Ahead
{
	bool		is_own_there;	/* is our own node in the list? */
	bool		is_orderly;		/* do the numbers order the queue?  Else the
								 * rest is not valid */
	RecipeAhead all;
	int			first;			/* index of the first, -1: nobody is ahead */
	int			nearest;		/* and of the nearest that excludes us, or -1 */
} Ahead;

static Ahead look_ahead(const char *const *children, int nchildren,
						const RecipeWish *wish);
static bool is_orderly(int32_t sequence);
static bool may_share_number(const RecipeNode *node);

RecipeVerdict
recipe_verdict(const char *const *children, int nchildren,
			   const RecipeWish *wish, int *watch)
{
	const Ahead ahead = look_ahead(children, nchildren, wish);

	*watch = -1;
	if (wish->mine != NULL && !ahead.is_own_there)
		return RECIPE_GONE;
	if (!ahead.is_orderly)
		return RECIPE_EXHAUSTED;
	if (ahead.first >= 0 &&
		recipe_parse_node(children[ahead.first]).permits != wish->permits)
	{
		*watch = ahead.first;
		return RECIPE_MISMATCH;
	}
	if (recipe_holds(wish->mode, wish->permits, &ahead.all))
		return RECIPE_HELD;

	/* one who counts otherwise is waited for: it gives up, or has its turn */
	if (wish->permits == 1 || ahead.all.count > wish->permits ||
		ahead.all.is_mixed)
		*watch = ahead.nearest;
	return RECIPE_WAIT;
}

void
recipe_add_ahead(RecipeAhead *ahead, const RecipeNode *node)
{
	if (ahead->count++ == 0)
		ahead->permits = node->permits;
	ahead->is_mixed |= node->permits != ahead->permits;
	ahead->nexclusive += node->mode == RECIPE_EXCLUSIVE;
}

bool
recipe_holds(RecipeMode mode, int permits, const RecipeAhead *ahead)
{
	if (ahead->count == 0)
		return true;
	if (permits > 1)
		return ahead->count < permits && !ahead->is_mixed &&
			ahead->permits == permits;
	return mode == RECIPE_SHARED && ahead->nexclusive == 0;
}

bool
recipe_is_first(const char *const *children, int nchildren, const char *child)
{
	int32_t		sequence = recipe_parse_node(child).sequence;

	for (int i = 0; i < nchildren; i++)
	{
		RecipeNode	node = recipe_parse_node(children[i]);

		if (node.style != RECIPE_STYLE_NONE && node.sequence <= sequence &&
			strcmp(children[i], child) != 0)
			return false;
	}
	return true;
}

/* A newcomer stands behind every number that we accept. */
static int32_t
sequence_of(const RecipeWish *wish)
{
	if (wish->mine == NULL)
		return RECIPE_SEQUENCE_LIMIT;
	return recipe_parse_node(wish->mine).sequence;
}

/* Which contenders are ahead of the one with that wish? */
static Ahead
look_ahead(const char *const *children, int nchildren, const RecipeWish *wish)
{
	int32_t		own_sequence = sequence_of(wish);
	int32_t		first_sequence = RECIPE_SEQUENCE_LIMIT;
	int32_t		nearest_sequence = -1;
	Ahead		ahead = {
		.is_orderly = wish->mine == NULL || is_orderly(own_sequence),
		.first = -1,
		.nearest = -1
	};

	for (int i = 0; i < nchildren; i++)
	{
		RecipeNode	node;

		if (wish->mine != NULL && !ahead.is_own_there &&
			strcmp(children[i], wish->mine) == 0)
		{
			ahead.is_own_there = true;
			continue;
		}
		node = recipe_parse_node(children[i]);
		if (node.style == RECIPE_STYLE_NONE)
			continue;
		if (!is_orderly(node.sequence) ||
			(node.sequence == own_sequence && !may_share_number(&node)))
			ahead.is_orderly = false;
		if (node.sequence > own_sequence)
			continue;
		recipe_add_ahead(&ahead.all, &node);
		if (node.sequence < first_sequence)
		{
			first_sequence = node.sequence;
			ahead.first = i;
		}
		if (wish->mode == RECIPE_SHARED && node.mode == RECIPE_SHARED)
			continue;
		if (node.sequence > nearest_sequence)
		{
			nearest_sequence = node.sequence;
			ahead.nearest = i;
		}
	}
	return ahead;
}

/* Is this a number by which the server orders contenders? */
static bool
is_orderly(int32_t sequence)
{
	return sequence >= 0 && sequence < RECIPE_SEQUENCE_LIMIT;
}

/*
 * May this node have the number of another contender without the counter
 * being at its end?  A writer of Curator 5.5 or later that takes the read
 * lock too creates that node with its own number; it counts as ahead of us.
 */
static bool
may_share_number(const RecipeNode *node)
{
	return node->style == RECIPE_STYLE_CURATOR_RW &&
		node->mode == RECIPE_SHARED;
}
