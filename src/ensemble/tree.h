/*-------------------------------------------------------------------------
 *
 * tree.h
 *	  All locks below a name, with the numbers of their holders and waiters.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_TREE_H
#define ZKLOCK_TREE_H

#include "postgres.h"

#include "nodes/pg_list.h"

/* A lock in use. */
typedef struct ZkLockCount
{
	const char *name;			/* UTF-8 */
	int			nholders;
	int			nwaiters;
} ZkLockCount;

/*
 * Read the queues of the lock of that name and of all names below it, or with
 * "" of all names there are.  Result: ZkLockCount, sorted by name, palloc'ed.
 * Each queue is read at a time of its own.  WARNING if ZooKeeper denies to
 * list some, or has too many names there.  Raises 42602 for a bad name, 55P03 at lock_timeout, and as the
 * session does.
 */
extern List *zklock_count_locks(const char *name);

#endif							/* ZKLOCK_TREE_H */
