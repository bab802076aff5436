/*-------------------------------------------------------------------------
 *
 * durable.h
 *	  What is done to a queue from outside of it: contenders are evicted.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_DURABLE_H
#define ZKLOCK_DURABLE_H

#include "postgres.h"

/*
 * Delete whatever stands in the queue of a lock with that fencing token, and
 * await the confirmation; false if there is no such contender.  Says so in the
 * server's log beforehand.  Raises 42602 for a bad name, 55P03 at lock_timeout,
 * 42501 if ZooKeeper refuses, and as the session does.
 */
extern bool zklock_evict(const char *name, int64 token);

#endif							/* ZKLOCK_DURABLE_H */
