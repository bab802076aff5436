/*-------------------------------------------------------------------------
 *
 * queue_list.h
 *
 * Also declares what tree.c has.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_QUEUE_LIST_H
#define ZKLOCK_QUEUE_LIST_H

#include "postgres.h"

#include "name.h"
#include "nodedata.h"
#include "nodes/pg_list.h"
#include "recipe.h"
#include "roundtrip.h"
#include "utils/timestamp.h"

/* One child of a lock's znode. */
typedef struct ZkQueueEntry
{
	int			position;		/* 1 is first; 0: not a contender */
	bool		is_holder;
	bool		is_releasing;	/* its owner is letting go of the lock */
	bool		is_stranger;	/* no child: an ephemeral znode is the lock's
								 * znode, or above it, so that there is no
								 * queue */
	const char *node;			/* name of the child, UTF-8; the path of a
								 * stranger */
	RecipeNode	parsed;			/* what it tells */
	int64		session_id;		/* 0: not ephemeral */
	TimestampTz since;			/* by ZooKeeper's clock */
	int64		token;
	int64		czxid;			/* of the znode; 0: it may not be read */
	TimestampTz expires;		/* of a lease: when its term is over, by
								 * ZooKeeper's clock; 0: it is none */
	ZkNodeData	who;
} ZkQueueEntry;

/* A lock in use. */
typedef struct ZkLockCount
{
	const char *name;			/* UTF-8 */
	int			nholders;
	int			nwaiters;
} ZkLockCount;

/*
 * Read the first contender in the queue of a lock, palloc'ed; NULL: there is
 * none.  The queue is not older than the call.  Raises as zklock_read_queue().
 */
extern ZkQueueEntry *zklock_read_first(const ZkName *name);

/*
 * Read the queue of a lock: contenders in order, then other children, or the
 * stranger that is in its place.  The entries are read one by one, so the
 * result may be outdated, and entries that vanish meanwhile are left out.
 * is_newest: the list is not older than the call.  bounds: of the call; NULL:
 * lock_timeout.  *nentries is set; the array is palloc'ed.  Raises as the session
 * does.
 */
extern ZkQueueEntry *zklock_read_queue(const ZkBounds *bounds,
									   const ZkName *name, bool is_newest,
									   int *nentries);

/* The same of what is below any znode. */
extern ZkQueueEntry *zklock_read_below(const char *path, int *nentries);

/*
 * The contenders among the children of a lock's znode, in order, with what
 * their names tell: position, is_holder, parsed, node (not copied).  Sends no
 * request.  The array is palloc'ed.
 */
extern ZkQueueEntry *zklock_queue_in_order(const char *const *children,
										   int nchildren, int *nentries);

/*
 * Warn, and return true, if a contender with such a node may not wait for
 * nodes of the style `ours`.  Other backends do: zklock counts every style.
 * For Kazoo, and for unknown clients, that depends on settings that zklock
 * cannot see.
 */
extern bool zklock_warn_of_style(RecipeStyle theirs, const ZkNodeData *who,
								 RecipeStyle ours);

/*
 * Read the queues of the lock of that name and of all names below it, or with
 * "" of all names there are.  Result: ZkLockCount, sorted by name, palloc'ed.
 * Each queue is read at a time of its own.  WARNING if ZooKeeper denies to
 * list some, or has too many names there.  Raises 42602 for a bad name, 55P03
 * at lock_timeout, and as the session does.
 */
extern List *zklock_count_locks(const char *name);

#endif							/* ZKLOCK_QUEUE_LIST_H */
