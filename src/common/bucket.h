/*-------------------------------------------------------------------------
 *
 * bucket.h
 *	  A bound on events in a second: a leaky bucket, in one word of memory.
 *
 * Pure: neither PostgreSQL nor ZooKeeper, no memory, no clock.
 *
 * Each event is poured into the bucket, and as many as the bound run out of it
 * each second.  So in any t seconds there are at most bound * t events, and
 * those that the bucket holds: as many as in a second, or BUCKET_AT_ONCE where
 * that is more.  The word has the level and its date, so that one atomic
 * operation can change it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_BUCKET_H
#define ZKLOCK_BUCKET_H

#include <stdbool.h>
#include <stdint.h>

/* One call may need that many, whatever the bound. */
#define BUCKET_AT_ONCE 20

/* The largest bound. */
#define BUCKET_BOUND_MAX 1000000

/* A level, and its date; 0: an empty one. */
typedef uint64_t Bucket;

/*
 * Pour `count` into it.  false, and nothing is changed, if there is no room.
 * What is more than half of what the bucket holds needs room for no more than
 * that half, or it would never be possible.  bound is greater than 0.  now_us
 * is of a clock that never goes back; of two processes the one may be slower
 * to come here.
 *
 * Processes may have different bounds for the same bucket.  Since the last
 * call as much has run out as the bound of this one lets.
 */
extern bool bucket_pour(Bucket *bucket, int64_t now_us, int bound, int count);

/* The same, whether there is room or not; at most twice what it holds. */
extern void bucket_force(Bucket *bucket, int64_t now_us, int bound, int count);

/*
 * Is there room for so many, the first of which is poured before the rest?  A
 * caller that needs several calls for one action asks this first.  If a call
 * were refused in the middle each time, the action would never be done,
 * however often it is repeated.
 */
extern bool bucket_has_room(Bucket bucket, int64_t now_us, int bound,
							int count);

/* How much is in it then. */
extern int	bucket_level(Bucket bucket, int64_t now_us, int bound);

#endif							/* ZKLOCK_BUCKET_H */
