/*-------------------------------------------------------------------------
 *
 * evict.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_EVICT_H
#define ZKLOCK_EVICT_H

#include "postgres.h"

#include "name.h"

/* Which contenders with a token are to go. */
typedef enum ZkEvictees
{
	ZK_EVICT_HOLDS,				/* those that zk_hold() has made */
	ZK_EVICT_ALL				/* an eviction */
} ZkEvictees;

/* What came of that. */
typedef enum ZkEviction
{
	ZK_EVICTED_NONE,			/* there is no such contender */
	ZK_EVICTED_NO_HOLD,			/* there is one, but zk_hold() has not made it */
	ZK_EVICTED
} ZkEviction;

/*
 * Remove the contenders with that token, of whichever client, and await the
 * confirmation.  Says so in the server's log beforehand.  Raises 42602 for a
 * bad name, 55P03 at lock_timeout, 42501 if ZooKeeper refuses, also to show
 * whose the token is, and as the session does.
 */
extern ZkEviction zklock_evict_contenders(const ZkName *name, int64 token,
										  ZkEvictees which);

#endif							/* ZKLOCK_EVICT_H */
