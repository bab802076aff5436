/*-------------------------------------------------------------------------
 *
 * recipe.c
 *	  The lock recipe: the verdict over a list of children.
 *
 * Values in, verdict out.  Where there is room for doubt the answer is the
 * one that can only make us wait: numbers that do not order the queue are
 * never guessed at.
 *
 *-------------------------------------------------------------------------
 */
#include "recipe.h"

#include <string.h>

static int	find_own(const char *const *children, int nchildren,
					 const char *mine);
static RecipeVerdict judge_queue(const char *const *children, int nchildren,
								 RecipeMode mode, int own, int *watch);
static bool is_orderly(int32_t sequence);
static bool may_share_number(const RecipeNode *node);

RecipeVerdict
recipe_verdict(const char *const *children, int nchildren, const char *mine,
			   RecipeMode mode, int *own, int *watch)
{
	*watch = -1;
	*own = find_own(children, nchildren, mine);
	if (*own < 0)
		return RECIPE_GONE;
	return judge_queue(children, nchildren, mode, *own, watch);
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

RecipeVerdict
recipe_permit_verdict(const char *const *children, int nchildren,
					  const char *mine, int permits, int *watch)
{
	int			own = mine != NULL ? find_own(children, nchildren, mine) : -1;
	int32_t		own_sequence = own < 0 ? RECIPE_SEQUENCE_LIMIT :
		recipe_parse_node(children[own]).sequence;
	int32_t		first_sequence = RECIPE_SEQUENCE_LIMIT;
	int32_t		nearest_sequence = -1;
	int			first = -1;
	int			nearest = -1;
	bool		is_mixed = false;
	int			nahead = 0;

	*watch = -1;
	if (mine != NULL && own < 0)
		return RECIPE_GONE;

	for (int i = 0; i < nchildren; i++)
	{
		RecipeNode	node = recipe_parse_node(children[i]);

		if (node.style == RECIPE_STYLE_NONE)
			continue;
		if (!is_orderly(node.sequence) ||
			(i != own && node.sequence == own_sequence))
			return RECIPE_EXHAUSTED;
		if (i == own || node.sequence > own_sequence)
			continue;

		nahead++;
		is_mixed |= node.permits != permits;
		if (node.sequence < first_sequence)
		{
			first_sequence = node.sequence;
			first = i;
		}
		if (node.sequence > nearest_sequence)
		{
			nearest_sequence = node.sequence;
			nearest = i;
		}
	}

	if (first >= 0 && recipe_parse_node(children[first]).permits != permits)
	{
		*watch = first;
		return RECIPE_MISMATCH;
	}
	if (nahead < permits && !is_mixed)
		return RECIPE_HELD;

	/* one who counts otherwise is waited for: it gives up, or has its turn */
	if (nahead > permits || is_mixed)
		*watch = nearest;
	return RECIPE_WAIT;
}

RecipeVerdict
recipe_verdict_newcomer(const char *const *children, int nchildren,
						RecipeMode mode, int *watch)
{
	return judge_queue(children, nchildren, mode, -1, watch);
}

/*
 * The index of the child that `mine` names, or -1.  A prefix fits a child
 * that has just the sequence number behind it.  Should it fit several (a
 * create sent twice), the first in order is ours: to wait for our own other
 * node would be to wait for ever.
 */
static int
find_own(const char *const *children, int nchildren, const char *mine)
{
	size_t		mine_length = strlen(mine);
	size_t		prefix_length;
	int32_t		sequence;
	bool		is_full_name = recipe_split_node(mine, mine_length,
												 &prefix_length,
												 &sequence);
	int			own = -1;

	for (int i = 0; i < nchildren; i++)
	{
		const char *child = children[i];

		if (strncmp(child, mine, mine_length) != 0)
			continue;
		if (is_full_name)
		{
			if (child[mine_length] == '\0')
				return i;
		}
		else if (recipe_split_node(child, strlen(child), &prefix_length,
								   &sequence) &&
				 prefix_length == mine_length &&
				 (own < 0 || recipe_compare_nodes(child, children[own]) < 0))
			own = i;
	}
	return own;
}

/*
 * The verdict for a contender of this mode whose node is children[own], or
 * for a newcomer if own is -1.  Never RECIPE_GONE; *watch is -1 save for
 * RECIPE_WAIT and RECIPE_MISMATCH.
 */
static RecipeVerdict
judge_queue(const char *const *children, int nchildren, RecipeMode mode,
			int own, int *watch)
{
	/* A newcomer stands behind every number that we accept. */
	int32_t		own_sequence = own < 0 ? RECIPE_SEQUENCE_LIMIT :
		recipe_parse_node(children[own]).sequence;
	int32_t		first_sequence = RECIPE_SEQUENCE_LIMIT;
	int32_t		nearest_sequence = -1;
	int			first = -1;
	int			nearest = -1;

	*watch = -1;

	for (int i = 0; i < nchildren; i++)
	{
		RecipeNode	node = recipe_parse_node(children[i]);

		if (node.style == RECIPE_STYLE_NONE)
			continue;
		if (!is_orderly(node.sequence))
			return RECIPE_EXHAUSTED;
		if (i == own || node.sequence > own_sequence)
			continue;
		if (node.sequence == own_sequence && !may_share_number(&node))
			return RECIPE_EXHAUSTED;
		if (node.sequence < first_sequence)
		{
			first_sequence = node.sequence;
			first = i;
		}
		if (mode == RECIPE_SHARED && node.mode == RECIPE_SHARED)
			continue;

		if (node.sequence > nearest_sequence)
		{
			nearest_sequence = node.sequence;
			nearest = i;
		}
	}

	if (first >= 0 && recipe_parse_node(children[first]).permits > 1)
	{
		*watch = first;
		return RECIPE_MISMATCH;
	}
	*watch = nearest;
	return nearest < 0 ? RECIPE_HELD : RECIPE_WAIT;
}

/* Does this number lie where the server's counter orders contenders? */
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
