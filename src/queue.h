/*-------------------------------------------------------------------------
 *
 * queue.h
 *	  Views over the ensemble: who stands in the queue of a lock.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_QUEUE_H
#define ZKLOCK_QUEUE_H

#include "postgres.h"

#include "nodedata.h"
#include "recipe.h"
#include "utils/timestamp.h"

/* One child of a lock's znode. */
typedef struct ZkQueueEntry
{
	int			position;		/* 1 is first; 0: not a contender */
	bool		is_holder;
	bool		is_releasing;	/* its owner is letting go of the lock */
	bool		is_kept;		/* it is first, and merely keeps the lock; of
								 * zklock_read_queue() only */
	RecipeMode	mode;
	RecipeStyle style;
	int			permits;
	const char *node;			/* name of the child, UTF-8 */
	int64		session_id;		/* 0: not ephemeral */
	TimestampTz since;			/* by ZooKeeper's clock */
	TimestampTz held_since;		/* a holder's, likewise: it had the lock then,
								 * and since that or earlier; see queue.c; 0:
								 * not known.  Of zklock_read_queue() only */
	TimestampTz set_at;			/* when its data was set last */
	int			version;		/* how often that was */
	int64		token;
	int64		czxid;			/* of the znode; 0: it may not be read */
	ZkNodeData	who;
} ZkQueueEntry;

/*
 * Read the queue of a lock, contenders in order first, then other children.
 * *nentries is set; the array is palloc'ed.  A snapshot that may be outdated
 * at once, and not a single one: entries that vanish while it is read are
 * left out.  Raises as the session does.
 */
extern ZkQueueEntry *zklock_read_queue(const char *name, int *nentries);

/*
 * The same for the children of the znode that path_of makes of the name, but
 * without held_since.
 */
typedef char *(*ZkPathOf) (const char *name, int *root_length);
extern ZkQueueEntry *zklock_read_children(ZkPathOf path_of, const char *name,
										  int *nentries);

/*
 * The contenders among the children of a lock's znode in order, as far as
 * their names tell of them: position, is_holder, mode, style,
 * permits, node (not copied).  Asks nobody.  The array is palloc'ed.
 */
extern ZkQueueEntry *zklock_order_queue(const char *const *children,
										int nchildren, int *nentries);

#endif							/* ZKLOCK_QUEUE_H */
