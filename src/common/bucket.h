/*-------------------------------------------------------------------------
 *
 * bucket.h
 *
 * Pure: neither PostgreSQL nor ZooKeeper, no memory, no clock.
 *
 * Each event is poured into the bucket, which holds as many as the bound, and
 * as many run out of it each second.  So there are at most bound events at
 * once, and in t seconds at most bound * t more.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_BUCKET_H
#define ZKLOCK_BUCKET_H

#include <stdbool.h>
#include <stdint.h>

/* The largest bound. */
#define BUCKET_BOUND_MAX 1000000

/* All zeros: an empty one. */
typedef struct Bucket
{
	int64_t		date_us;		/* until when whole events have run out */
	int			level;			/* at that date */
} Bucket;

/*
 * Pour `count` into it.  false, and nothing is poured, if there is no room; for
 * more than the bound there never is.  bound is greater than 0, and may change
 * from call to call.  now_us is of a clock that never goes back.
 */
extern bool bucket_pour(Bucket *bucket, int64_t now_us, int bound, int count);

#endif							/* ZKLOCK_BUCKET_H */
