/*-------------------------------------------------------------------------
 *
 * recipe_alias.h
 *	  A contender with several queue nodes, its aliases, one for each kind of
 *	  client that is to wait for it: their names, and the verdict over a list.
 *
 * Pure, as recipe.c is.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_RECIPE_ALIAS_H
#define ZKLOCK_RECIPE_ALIAS_H

#include "recipe.h"

/* How many nodes such a contender has. */
#define ALIAS_COUNT 3

/*
 * Turn a GUID into one that marks the nodes of such a contender; all of them
 * have the same.
 */
extern void alias_mark(char guid[RECIPE_GUID_LEN + 1]);

/*
 * What the alias of that rank is called before the server appends the
 * sequence number.  They are to be made in the order of their ranks, from 0
 * on.
 */
extern void alias_prefix(char prefix[RECIPE_NODE_SIZE], int rank,
						 RecipeMode mode, const char *guid);

/* The rank of the alias with that name, -1 if it is not one. */
extern int	alias_rank(const char *child);

/* Do two aliases belong to one contender? */
extern bool alias_is_same(const char *a, const char *b);

/*
 * Write the name of the alias of that rank and number, of the contender one
 * of whose aliases is called `any`.
 */
extern void alias_name(char name[RECIPE_NODE_SIZE], const char *any, int rank,
					   RecipeMode mode, int32_t sequence);

/*
 * recipe_verdict() for a contender one of whose aliases has the full name
 * `mine`, and whose numbers these are, by rank; see the head of
 * recipe_alias.c. Aliases with our GUID and another number are a stranger's.
 * RECIPE_GONE: one of ours is missing.  RECIPE_INTERPOSED: withdraw all
 * aliases and join again.
 */
extern RecipeVerdict alias_verdict(const char *const *children, int nchildren,
								   const char *mine,
								   const int32_t numbers[ALIAS_COUNT],
								   RecipeMode mode, int *watch);

#endif							/* ZKLOCK_RECIPE_ALIAS_H */
