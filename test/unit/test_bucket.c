/*-------------------------------------------------------------------------
 *
 * test_bucket.c
 *	  Unit test of src/common/bucket.c: zklock.max_creates lets through as many
 *	  calls a second as it says, also after pauses.  Tables of cases, the
 *	  expected value first.
 *
 * The clock is ours: it stands still, and jumps when a test wants it to.
 *
 *-------------------------------------------------------------------------
 */
#include "bucket.h"
#include "tap.h"

#define NELEMS(array) ((int) (sizeof(array) / sizeof((array)[0])))

#define SECOND INT64_C(1000000)

/* Some moment: eleven days after the machine has started. */
#define START (11 * 86400 * SECOND + 17)

/* How many of those it takes, one after another, at one moment. */
static int
pour_all(Bucket *bucket, int64_t now_us, int bound, int count, int ncalls)
{
	int			ndone = 0;

	while (ncalls-- > 0 && bucket_pour(bucket, now_us, bound, count))
		ndone++;
	return ndone;
}

static void
test_at_once(void)
{
	static const struct
	{
		int			expected;
		int			bound;
		int			count;		/* of each call */
		const char *what;
	}			cases[] = {
		{1, 1, 1, "the smallest bound"},
		{20, 20, 1, "a bound of 20"},
		{5000, 5000, 1, "5000"},
		{BUCKET_BOUND_MAX, BUCKET_BOUND_MAX, 1, "the largest bound"},
		{1, BUCKET_BOUND_MAX, BUCKET_BOUND_MAX, "all of the largest bound in one call"},
		{6, 20, 3, "all of a call or none"},
		{1666, 5000, 3, "all of a call or none, of many"},
		{1, 100, 100, "a call of as many as the bound"},
		{0, 100, 101, "a call of more than the bound"},
		{0, 1, INT32_MAX, "a call of more than anything"},
	};

	for (int i = 0; i < NELEMS(cases); i++)
	{
		Bucket		bucket = {0};

		is_int(cases[i].expected,
			   pour_all(&bucket, START, cases[i].bound, cases[i].count,
						2 * BUCKET_BOUND_MAX), "%s", cases[i].what);
	}
}

/* A call that is refused takes no room. */
static void
test_refusal(void)
{
	Bucket		bucket = {0};

	ok(!bucket_pour(&bucket, START, 10, 11), "more than the bound is refused");
	ok(bucket_pour(&bucket, START, 10, 4), "four of ten are taken");
	ok(!bucket_pour(&bucket, START, 10, 7), "seven more are refused");
	ok(bucket_pour(&bucket, START, 10, 6), "and six more are taken then");
	ok(bucket_pour(&bucket, START, 10, 0), "none needs no room");
}

/* What was taken under a greater bound is over within a second under a lower one. */
static void
test_lower(void)
{
	Bucket		bucket = {0};

	ok(bucket_pour(&bucket, START, 5000, 900), "900 of 5000 are taken");
	ok(!bucket_pour(&bucket, START, 2, 1), "then none of two");
	ok(bucket_pour(&bucket, START + SECOND, 2, 2), "a second later two of two");
}

/*
 * Whatever the pace of the calls, there are never more than the bound allows,
 * and hardly fewer.
 */
static void
test_rate(void)
{
	static const struct
	{
		int			bound;
		int64_t		pause_us;	/* between two calls */
		int			seconds;
	}			cases[] = {
		{1, 10000, 100}, {3, 1, 3}, {7, 333, 50}, {20, 999, 20}, {1000, 7, 5},
		{1500, 13, 5}, {5000, 1, 3}, {5000, 100, 10}, {4999, 100, 10},
	};

	for (int i = 0; i < NELEMS(cases); i++)
	{
		int			bound = cases[i].bound;
		int64_t		until = START + cases[i].seconds * SECOND;
		Bucket		bucket = {0};
		int64_t		ndone = 0;
		bool		is_right = true;

		for (int64_t now = START; now <= until; now += cases[i].pause_us)
		{
			ndone += bucket_pour(&bucket, now, bound, 1);
			is_right &= ndone * SECOND <=
				bound * SECOND + bound * (now - START);
		}
		ok(is_right, "never more than %d a second", bound);
		ok(ndone >= (int64_t) bound * (cases[i].seconds + 1) * 96 / 100,
		   "and hardly fewer: %lld", (long long) ndone);
	}
}

static void
test_clock(void)
{
	static const struct
	{
		int			expected;	/* how many more it takes, of a bound of 100 */
		int64_t		later_us;	/* when it is full */
		const char *what;
	}			cases[] = {
		{0, 0, "it is full"},
		{0, 9999, "not yet one more"},
		{1, 10000, "one more"},
		{50, SECOND / 2, "half a second"},
		{100, SECOND, "a second"},
		{100, 3600 * SECOND, "an hour"},
		{100, INT64_C(1000) * 365 * 86400 * SECOND, "a thousand years"},
	};

	for (int i = 0; i < NELEMS(cases); i++)
	{
		Bucket		bucket = {0};

		pour_all(&bucket, START, 100, 1, 1000);
		is_int(cases[i].expected,
			   pour_all(&bucket, START + cases[i].later_us, 100, 1, 1000),
			   "%s", cases[i].what);
	}
}

/* What is less than one runs on, but not once the bucket is empty. */
static void
test_parts(void)
{
	Bucket		bucket = {0};

	is_int(3, pour_all(&bucket, START, 3, 1, 100), "an empty bucket takes three at once");
	is_int(1, pour_all(&bucket, START + SECOND / 2, 3, 1, 100), "half a second later one and a half have run out, so one call is taken");
	is_int(1, pour_all(&bucket, START + SECOND * 7 / 10, 3, 1, 100), "two and a bit");
	bucket = (Bucket) {0};
	is_int(3, pour_all(&bucket, START, 3, 1, 100), "a new bucket takes three at once");
	is_int(3, pour_all(&bucket, START + SECOND * 11 / 10, 3, 1, 100),
		   "it has just run empty");
	is_int(0, pour_all(&bucket, START + SECOND * 14 / 10, 3, 1, 100),
		   "nothing is saved from before that");
}

/* The setting may change from call to call. */
static void
test_bounds(void)
{
	Bucket		bucket = {0};

	is_int(5000, pour_all(&bucket, START, 5000, 1, 10000), "the larger one");
	is_int(0, pour_all(&bucket, START, 100, 1, 10000), "leaves nothing");
	ok(bucket_pour(&bucket, START, 100, 0), "but none is always taken");
	is_int(100, pour_all(&bucket, START + 10 * SECOND, 100, 1, 10000),
		   "what is more than the smaller bound does not count");
	is_int(5000, pour_all(&bucket, START + 11 * SECOND, 5000, 1, 10000),
		   "it runs out as fast as the larger bound lets");

	bucket = (Bucket) {0};
	is_int(1, pour_all(&bucket, START, 1, 1, 10000), "the smaller one");
	is_int(4999, pour_all(&bucket, START, 5000, 1, 10000),
		   "leaves the rest to the larger one");
}

int
main(void)
{
	test_at_once();
	test_refusal();
	test_lower();
	test_rate();
	test_clock();
	test_parts();
	test_bounds();
	return done_testing();
}
