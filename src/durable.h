/*-------------------------------------------------------------------------
 *
 * durable.h
 *	  Holds that outlive their maker, and the eviction of contenders.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_DURABLE_H
#define ZKLOCK_DURABLE_H

#include "postgres.h"

/* What somebody asks for.  In the database's encoding. */
typedef struct ZkHoldOrder
{
	const char *name;
	const char *reason;			/* why, for zk_lock_queue() */
	bool		has_timeout;
	int64		timeout_ms;		/* valid if has_timeout; 0 or more */
} ZkHoldOrder;

/*
 * Take a lock exclusively, and leave it to a persistent queue node that belongs
 * to nobody.  Result: its fencing token.  Raises 55000 if this session holds the
 * lock, 22023 for a bad reason, 57000 if somebody removed one of the nodes
 * meanwhile, and as zklock_acquire().  If it raises there is no hold, or a
 * WARNING says that there may be one.
 */
extern int64 zklock_hold(const ZkHoldOrder *order);

/*
 * Delete the hold with that token, whoever made it, and await the confirmation.
 * false with a WARNING if there is none.  Raises as zklock_evict().
 */
extern bool zklock_release_hold(const char *name, int64 token);

/*
 * Delete whatever stands in the queue of a lock with that fencing token, and
 * await the confirmation; false if there is no such contender.  Says so in the
 * server's log beforehand.  Raises 42602 for a bad name, 55P03 at lock_timeout,
 * 42501 if ZooKeeper refuses, and as the session does.
 */
extern bool zklock_evict(const char *name, int64 token);

#endif							/* ZKLOCK_DURABLE_H */
