/*-------------------------------------------------------------------------
 *
 * bucket.c
 *	  A bound on events in a second: a leaky bucket, in one word of memory.
 *
 * The level counts whole events.  Its date is not that of the last call, but
 * the moment until which whole events have run out: no part of an event is
 * lost when calls follow one another closely.
 *
 *-------------------------------------------------------------------------
 */
#include "bucket.h"

/*
 * The level is in the low bits: up to two million, twice the largest bound.
 * The date in the rest starts again with 0 after 101 days.  A bucket that
 * nobody has used for that long may seem to be of a moment ago, and as full
 * as it was then; a second later it is right again.
 */
#define LEVEL_BITS 21
#define LEVEL_MAX ((1 << LEVEL_BITS) - 1)
#define DATE_MASK ((UINT64_C(1) << (64 - LEVEL_BITS)) - 1)

#define SECOND_US UINT64_C(1000000)

/*
 * The date of the bucket may be later than now by so much: a process reads the
 * clock, and another one is faster to pour.
 */
#define LATER_US (60 * SECOND_US)

typedef struct State
{
	uint64_t	date;			/* in microseconds; the high bits do not count */
	int			level;
} State;

static State drain(Bucket bucket, int64_t now_us, int bound);
static Bucket pack(State state, int added);
static int	capacity(int bound);
static int	smaller(int a, int b);
static int	larger(int a, int b);

bool
bucket_pour(Bucket *bucket, int64_t now_us, int bound, int count)
{
	State		state = drain(*bucket, now_us, bound);

	if (state.level + smaller(count, capacity(bound) / 2) > capacity(bound))
		return false;
	*bucket = pack(state, count);
	return true;
}

void
bucket_force(Bucket *bucket, int64_t now_us, int bound, int count)
{
	State		state = drain(*bucket, now_us, bound);
	int			free = larger(2 * capacity(bound) - state.level, 0);

	*bucket = pack(state, smaller(count, free));
}

bool
bucket_has_room(Bucket bucket, int64_t now_us, int bound, int count)
{
	return bucket_level(bucket, now_us, bound) +
		smaller(count, capacity(bound) / 2 + 1) <= capacity(bound);
}

int
bucket_level(Bucket bucket, int64_t now_us, int bound)
{
	return drain(bucket, now_us, bound).level;
}

/* What has run out until now is gone. */
static State
drain(Bucket bucket, int64_t now_us, int bound)
{
	State		state = {bucket >> LEVEL_BITS, (int) (bucket & LEVEL_MAX)};
	uint64_t	now = (uint64_t) now_us & DATE_MASK;
	uint64_t	elapsed = (now - state.date) & DATE_MASK;
	uint64_t	drained;

	if (bucket == 0)
		return (State) {now, 0};	/* it has no date yet */
	if (elapsed > DATE_MASK - LATER_US)
		return state;
	drained = elapsed * (uint64_t) bound / SECOND_US;
	if (drained >= (uint64_t) state.level)
		return (State) {now, 0};
	state.level -= (int) drained;

	/* rounded up: never more than the bound */
	state.date += (drained * SECOND_US + bound - 1) / bound;
	return state;
}

static Bucket
pack(State state, int added)
{
	return state.date << LEVEL_BITS |
		(uint64_t) smaller(state.level + added, LEVEL_MAX);
}

static int
capacity(int bound)
{
	return larger(bound, BUCKET_AT_ONCE);
}

static int
smaller(int a, int b)
{
	return a < b ? a : b;
}

static int
larger(int a, int b)
{
	return a > b ? a : b;
}
