/*-------------------------------------------------------------------------
 *
 * bucket.c
 *	  A leaky bucket: bounds the events in a second.
 *
 * The level counts whole events.  Its date is not that of the last call, but
 * the moment until which whole events have run out: no part of an event is
 * lost when calls follow one another closely.
 *
 *-------------------------------------------------------------------------
 */
#include "bucket.h"

#define SECOND_US INT64_C(1000000)

static void drain_bucket(Bucket *bucket, int64_t now_us, int bound);

bool
bucket_pour(Bucket *bucket, int64_t now_us, int bound, int count)
{
	drain_bucket(bucket, now_us, bound);
	if (bucket->level > bound)	/* it was greater before */
		bucket->level = bound;
	if (count > 0 && count > bound - bucket->level)
		return false;
	bucket->level += count;
	return true;
}

/* What has run out until now is gone. */
static void
drain_bucket(Bucket *bucket, int64_t now_us, int bound)
{
	int64_t		elapsed = now_us - bucket->date_us;
	int64_t		drained;

	/* never more than the level, which is small: no product is too large */
	if (elapsed >= (bucket->level * SECOND_US + bound - 1) / bound)
	{
		*bucket = (Bucket) {.date_us = now_us};
		return;
	}
	drained = elapsed * bound / SECOND_US;
	bucket->level -= (int) drained;

	/* rounded up: never more than the bound */
	bucket->date_us += (drained * SECOND_US + bound - 1) / bound;
}
