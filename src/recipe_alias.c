/*-------------------------------------------------------------------------
 *
 * recipe_alias.c
 *	  A contender with several queue nodes, its aliases, one for each kind of
 *	  client that is to wait for it: their names, and the verdict over a list.
 *
 * No name of a queue node is seen by every client of the recipe, so node
 * style "all" makes three, back to back.  Their numbers S1 < S2 < S3 rise,
 * for the server executes the requests of a session in their order, but
 * others may come in between.  Of these, who sees only our first node waits
 * for us, and who sees only the second does not.  So neither order will do:
 * if we waited for all of them, we and the former would wait for each other
 * for ever; if we waited for none, one of the latter could be a second
 * holder.  Nor does it help to tell them apart: the one may wait for the
 * other, and then there is a ring of three.  The rule that makes three single
 * creates do:
 *
 *	- Whoever has a number below S1 is ahead, whoever has one above S3 is
 *	  behind.
 *	- In between, another contender with aliases is ahead or behind as its
 *	  first alias is.  It is known by a mark in its GUID, and its first alias
 *	  by the name; of several that somebody has made up, by the lowest.
 *	- Anybody else in between who excludes us is interposed, and so is an
 *	  alias whose first one is gone.  Then all our aliases are withdrawn and
 *	  made anew, at the end of the queue: we neither wait for whoever is
 *	  interposed, nor go ahead of it.
 *
 * The verdict is over a list that was read behind the creates in the same
 * session.  So it has everybody who came before S3 and is still there;
 * whoever comes later has a higher number.  (The nodes that a downgrade and a
 * hold add have the number of a node of theirs that is still there.)
 *
 * Exclusion.  Let us be granted the lock by such a list.  A client P that
 * excludes us and has one node, of number n: if n < S3 it was in our list or
 * had left; it was not in the list, or we would wait or withdraw; so it had
 * left.  If n > S3, all our aliases were there when P made its node, hence in
 * every list that P decides upon until we let go, whichever of them it sees.
 * That P may see our first alias before there is a second does not matter:
 * then it is interposed, and we are not granted anything.  Nor does it matter
 * that a contender of ours may be handed the lock without a list
 * (contender_watch.c): it was next to one that held the lock, so none of our
 * aliases was ahead of it.  Another contender with aliases, T its first
 * number: if T < S1 it was in our list or had left; if T > S1 our first alias
 * was there before its own, and stands in its lists as ahead until we let
 * go.  Whoever has yet to withdraw only makes others wait.
 *
 * No ring.  Whoever is to withdraw waits for nobody.  When all have, nobody
 * stands between the aliases of a contender but others with aliases, and
 * readers between those of a reader.  Then let the place of a client be its
 * number, and that of a contender with aliases its S1: everybody waits for
 * smaller places only.  A client with a number n has each contender with
 * aliases wholly ahead of itself or wholly behind, since none reaches across
 * n; those go by S1 among themselves, and all know it.  A reader between the
 * aliases of a reader may wait for it, but it does not wait for the other.
 *
 * An alias whose first one is gone belongs to somebody who lets go, or had a
 * node deleted by hand.  In the latter case its owner notices only when it
 * looks, and may be waiting for us.  So we do not wait for it where we cannot
 * tell its place.  The first alias is deleted first and the last one last:
 * whoever watches the nearest one ahead is woken when all are gone.
 *
 * What remains is livelock: somebody may be interposed again and again.  The
 * window is that of three requests in a row; contender_watch.c makes it
 * unlikely still by waiting a random time.
 *
 * test/unit/test_recipe_alias.c goes through all states of small queues with
 * this verdict, and shows what the parts of the rule are needed for.
 *
 *-------------------------------------------------------------------------
 */
#include "recipe_alias.h"

#include <stdio.h>
#include <string.h>

/* The third group of a GUID that several nodes bear; recipe.c has others. */
#define ALIAS_GROUP "8a13"
#define ALIAS_GROUP_OFFSET 14	/* in the GUID */

/* Where the GUID starts in the name of a node. */
#define GUID_OFFSET 3			/* behind "_c_" */

/* The server appends the sequence number as "%010d". */
#define SEQUENCE_DIGITS 10

/* How a rank's node is named, and what recipe.c takes it for when shared. */
static const struct
{
	RecipeStyle style;
	RecipeStyle shared_style;
}			ranks[ALIAS_COUNT] = {

	/* Curator's mutex, ZooKeeper's recipes, go-zookeeper */
	{RECIPE_STYLE_CURATOR, RECIPE_STYLE_ZKLOCK_SHARED},
	/* Kazoo */
	{RECIPE_STYLE_KAZOO, RECIPE_STYLE_KAZOO},
	/* Curator's read-write lock */
	{RECIPE_STYLE_CURATOR_RW, RECIPE_STYLE_CURATOR_RW}
};

static bool is_orderly(const char *const *children, int nchildren);
static bool is_own(const char *child, const char *mine,
				   const int32_t numbers[ALIAS_COUNT]);
static bool are_all_there(const char *const *children, int nchildren,
						  const char *mine, const int32_t numbers[ALIAS_COUNT]);
static bool is_ahead(const char *const *children, int nchildren,
					 const char *child, const char *mine,
					 const int32_t numbers[ALIAS_COUNT], bool *is_interposed);

void
alias_mark(char guid[RECIPE_GUID_LEN + 1])
{
	memcpy(guid + ALIAS_GROUP_OFFSET, ALIAS_GROUP, strlen(ALIAS_GROUP));
}

void
alias_prefix(char prefix[RECIPE_NODE_SIZE], int rank, RecipeMode mode,
			 const char *guid)
{
	recipe_node_prefix(prefix, ranks[rank].style, mode, 1, guid);
}

int
alias_rank(const char *child)
{
	size_t		length = strlen(child);
	RecipeNode	node;
	char		prefix[RECIPE_NODE_SIZE];

	if (length < GUID_OFFSET + RECIPE_GUID_LEN + SEQUENCE_DIGITS ||
		memcmp(child + GUID_OFFSET + ALIAS_GROUP_OFFSET, ALIAS_GROUP,
			   strlen(ALIAS_GROUP)) != 0)
		return -1;
	node = recipe_parse_node(child);
	for (int rank = 0; rank < ALIAS_COUNT; rank++)
	{
		if (node.style != (node.mode == RECIPE_SHARED ?
						   ranks[rank].shared_style : ranks[rank].style))
			continue;
		/* the whole name must be as we would have made it */
		alias_prefix(prefix, rank, node.mode, child + GUID_OFFSET);
		if (strlen(prefix) < length &&
			memcmp(child, prefix, strlen(prefix)) == 0)
			return rank;
	}
	return -1;
}

bool
alias_is_same(const char *a, const char *b)
{
	/* the cheap question first: neither is read beyond its end */
	return strncmp(a, b, GUID_OFFSET + RECIPE_GUID_LEN) == 0 &&
		alias_rank(a) >= 0 && alias_rank(b) >= 0;
}

void
alias_name(char name[RECIPE_NODE_SIZE], const char *any, int rank,
		   RecipeMode mode, int32_t sequence)
{
	char		prefix[RECIPE_NODE_SIZE];

	alias_prefix(prefix, rank, mode, any + GUID_OFFSET);
	snprintf(name, RECIPE_NODE_SIZE, "%.*s%010d",
			 RECIPE_NODE_SIZE - SEQUENCE_DIGITS - 2, prefix, (int) sequence);
}

RecipeVerdict
alias_verdict(const char *const *children, int nchildren, const char *mine,
			  const int32_t numbers[ALIAS_COUNT], RecipeMode mode, int *watch)
{
	int32_t		first_sequence = RECIPE_SEQUENCE_LIMIT;
	int32_t		nearest_sequence = -1;
	int			first = -1;
	int			nearest = -1;
	bool		is_interposed = false;

	*watch = -1;
	if (!is_orderly(children, nchildren))
		return RECIPE_EXHAUSTED;
	if (!are_all_there(children, nchildren, mine, numbers))
		return RECIPE_GONE;
	for (int i = 0; i < nchildren; i++)
	{
		RecipeNode	node = recipe_parse_node(children[i]);

		if (node.style == RECIPE_STYLE_NONE ||
			is_own(children[i], mine, numbers))
			continue;
		for (int rank = 0; rank < ALIAS_COUNT; rank++)
			if (node.sequence == numbers[rank])
				return RECIPE_EXHAUSTED;
		if (node.sequence < numbers[0] && node.sequence < first_sequence)
		{
			first_sequence = node.sequence;
			first = i;
		}
		if ((mode == RECIPE_SHARED && node.mode == RECIPE_SHARED) ||
			!is_ahead(children, nchildren, children[i], mine, numbers,
					  &is_interposed))
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
	if (is_interposed)
		return RECIPE_INTERPOSED;
	*watch = nearest;
	return nearest < 0 ? RECIPE_HELD : RECIPE_WAIT;
}

/* Are all numbers those that the server's counter orders contenders by? */
static bool
is_orderly(const char *const *children, int nchildren)
{
	for (int i = 0; i < nchildren; i++)
	{
		RecipeNode	node = recipe_parse_node(children[i]);

		if (node.style != RECIPE_STYLE_NONE &&
			(node.sequence < 0 || node.sequence >= RECIPE_SEQUENCE_LIMIT))
			return false;
	}
	return true;
}

/* Is it one of ours, and not one that somebody has made up with our GUID? */
static bool
is_own(const char *child, const char *mine, const int32_t numbers[ALIAS_COUNT])
{
	return alias_is_same(child, mine) &&
		recipe_parse_node(child).sequence == numbers[alias_rank(child)];
}

/* Are all of ours there, in the order in which they were made? */
static bool
are_all_there(const char *const *children, int nchildren, const char *mine,
			  const int32_t numbers[ALIAS_COUNT])
{
	int			nfound = 0;

	for (int rank = 1; rank < ALIAS_COUNT; rank++)
		if (numbers[rank] <= numbers[rank - 1])
			return false;
	for (int i = 0; i < nchildren; i++)
		nfound += is_own(children[i], mine, numbers);
	return nfound == ALIAS_COUNT;
}

/*
 * Is this node of somebody who excludes us ahead of us?  If there is no
 * saying, *is_interposed is set.
 */
static bool
is_ahead(const char *const *children, int nchildren, const char *child,
		 const char *mine, const int32_t numbers[ALIAS_COUNT],
		 bool *is_interposed)
{
	int32_t		sequence = recipe_parse_node(child).sequence;
	int32_t		first = RECIPE_SEQUENCE_LIMIT;

	if (sequence < numbers[0])
		return true;
	if (sequence > numbers[ALIAS_COUNT - 1])
		return false;
	for (int i = 0; i < nchildren && !alias_is_same(child, mine); i++)
		if (alias_rank(children[i]) == 0 &&
			alias_is_same(children[i], child) &&
			recipe_parse_node(children[i]).sequence < first)
			first = recipe_parse_node(children[i]).sequence;
	*is_interposed |= first == RECIPE_SEQUENCE_LIMIT;
	return first < numbers[0];
}
