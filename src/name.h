/*-------------------------------------------------------------------------
 *
 * name.h
 *	  Lock names as users write them, and the znode paths that they stand for.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_NAME_H
#define ZKLOCK_NAME_H

#include "postgres.h"

#include "recipe.h"

/* Define the settings of this room.  For _PG_init(). */
extern void zklock_name_init(void);

/*
 * Path of the znode of a lock, palloc'ed, RECIPE_PATH_SIZE bytes: chroot of the
 * server list, zklock.root, name in UTF-8.  *root_length, unless NULL, is set
 * to the length of the first two.  Raises 42602 with the reason if ZooKeeper
 * or the recipe does not allow the name.
 */
extern char *zklock_name_path(const char *name, int *root_length);

/* The style of queue nodes that zklock.node_style asks for. */
extern RecipeStyle zklock_name_style(void);

#endif							/* ZKLOCK_NAME_H */
