/*-------------------------------------------------------------------------
 *
 * test_bucket.c
 *	  Unit test of src/common/bucket.c: zklock.max_creates lets through as many
 *	  writes a second as it says, also after pauses and when the clock
 *	  wraps.  Tables of cases, the expected value first.
 *
 * The clock is ours: it stands still, jumps, and wraps when a test wants it to.
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
		{20, 1, 1, "a call is possible with the smallest bound"},
		{20, 20, 1, "a bound of 20"},
		{21, 21, 1, "as many as in a second"},
		{5000, 5000, 1, "5000"},
		{BUCKET_BOUND_MAX, BUCKET_BOUND_MAX, 1, "the largest bound"},
		{6, 1, 3, "all of a call or none"},
		{1666, 5000, 3, "all of a call or none, of many"},
		{1, 1, 100, "a call of more than it holds, once"},
		{2, 1, 10, "halves"},
		{1, 1, 11, "more than a half leaves no room for another half"},
	};

	for (int i = 0; i < NELEMS(cases); i++)
	{
		Bucket		bucket = 0;

		is_int(cases[i].expected,
			   pour_all(&bucket, START, cases[i].bound, cases[i].count,
						2 * BUCKET_BOUND_MAX), "%s", cases[i].what);
	}
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
		int			held = bound > BUCKET_AT_ONCE ? bound : BUCKET_AT_ONCE;
		int64_t		until = START + cases[i].seconds * SECOND;
		Bucket		bucket = 0;
		int64_t		ndone = 0;
		bool		is_right = true;

		for (int64_t now = START; now <= until; now += cases[i].pause_us)
		{
			ndone += bucket_pour(&bucket, now, bound, 1);
			is_right &= ndone * SECOND <=
				held * SECOND + bound * (now - START);
		}
		ok(is_right, "never more than %d a second", bound);
		ok(ndone >= (held + (int64_t) bound * cases[i].seconds) * 96 / 100,
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
		{0, -1, "a process that is slower by a microsecond"},
		{0, -30 * SECOND, "a process that has stood still for half a minute"},
		{0, -60 * SECOND, "one that has for a minute"},
		{100, -60 * SECOND - 1, "earlier than that is long ago"},
		{0, 9999, "not yet one more"},
		{1, 10000, "one more"},
		{50, SECOND / 2, "half a second"},
		{100, SECOND, "a second"},
		{100, 3600 * SECOND, "an hour"},
		{100, 50 * 86400 * SECOND, "fifty days"},
		{100, 101 * 86400 * SECOND, "about as long as a date lasts"},
		{100, 400 * 86400 * SECOND, "a year and more"},
	};

	for (int i = 0; i < NELEMS(cases); i++)
	{
		Bucket		bucket = 0;

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
	Bucket		bucket = 0;

	is_int(20, pour_all(&bucket, START, 3, 1, 100), "an empty bucket takes twenty calls at once");
	is_int(1, pour_all(&bucket, START + SECOND / 2, 3, 1, 100), "half a second later one and a half have run out, so one call is taken");
	is_int(1, pour_all(&bucket, START + SECOND * 7 / 10, 3, 1, 100), "two and a bit");
	bucket = 0;
	is_int(20, pour_all(&bucket, START, 3, 1, 100), "a new bucket takes twenty calls at once");
	is_int(20, pour_all(&bucket, START + SECOND * 69 / 10, 3, 1, 100),
		   "it has just run empty");
	is_int(0, pour_all(&bucket, START + SECOND * 71 / 10, 3, 1, 100),
		   "nothing is saved from before that");
}

/* The date of a bucket starts anew with 0 in the middle of a second. */
static void
test_wrap(void)
{
	int64_t		wrap = INT64_C(1) << 43;
	Bucket		bucket = 0;

	is_int(100, pour_all(&bucket, wrap - SECOND / 2, 100, 1, 1000), "a hundred calls are taken before the date starts anew");
	is_int(100, pour_all(&bucket, wrap + SECOND / 2, 100, 1, 1000),
		   "a second later");
	is_int(0, pour_all(&bucket, wrap - SECOND / 4, 100, 1, 1000),
		   "a process that is slower");
	is_int(10, pour_all(&bucket, wrap + SECOND * 6 / 10, 100, 1, 1000), "ten more calls are taken a tenth of a second later");
}

/* Two sessions of a role may have different bounds. */
static void
test_bounds(void)
{
	Bucket		bucket = 0;

	is_int(5000, pour_all(&bucket, START, 5000, 1, 10000), "the larger one");
	is_int(0, pour_all(&bucket, START, 100, 1, 10000), "leaves nothing");
	is_int(5000, bucket_level(bucket, START, 100), "the level says what the larger bound has let in");
	is_int(0, pour_all(&bucket, START + 10 * SECOND, 100, 1, 10000),
		   "it runs out as slowly as the smaller one lets");
	is_int(5000, pour_all(&bucket, START + 11 * SECOND, 5000, 1, 10000),
		   "it runs out as fast as the larger bound lets");

	bucket = 0;
	is_int(20, pour_all(&bucket, START, 1, 1, 10000), "the smaller one");
	is_int(4980, pour_all(&bucket, START, 5000, 1, 10000),
		   "leaves the rest to the larger one");
}

static void
test_force(void)
{
	int64_t		later = START + 2 * SECOND;
	Bucket		bucket = 0;

	bucket_force(&bucket, START, 100, 30);
	is_int(30, bucket_level(bucket, START, 100), "what is forced in counts in the level");
	is_int(70, pour_all(&bucket, START, 100, 1, 1000), "what is forced in takes room");
	bucket_force(&bucket, START, 100, 1);
	is_int(101, bucket_level(bucket, START, 100), "it is counted even without room");
	for (int i = 0; i < 1000; i++)
		bucket_force(&bucket, START, 100, 7);
	is_int(200, bucket_level(bucket, START, 100), "a level is never more than twice the bound");
	ok(!bucket_has_room(bucket, START + SECOND, 100, 1), "the bucket is still full a second later");
	ok(bucket_has_room(bucket, START + SECOND + 10000, 100, 1),
	   "the bucket has room for one ten milliseconds after that");
	is_int(99, bucket_level(bucket, START + SECOND + 10000, 100),
		   "asking for room pours nothing");
	for (int i = 0; i < 10; i++)
		bucket_force(&bucket, later, BUCKET_BOUND_MAX, BUCKET_BOUND_MAX);
	is_int(2 * BUCKET_BOUND_MAX, bucket_level(bucket, later, BUCKET_BOUND_MAX),
		   "there is a place for each level");
	bucket_force(&bucket, later + SECOND, 10, 5);
	is_int(2 * BUCKET_BOUND_MAX - 10, bucket_level(bucket, later + SECOND, 10),
		   "a smaller bound never makes it emptier");
}

/* Where there is room for a call, none of its parts is refused. */
static void
test_room(void)
{
	Bucket		nearly_half = 0;
	static const int bounds[] = {1, 19, 20, 21, 50, 5000};
	static const int parents[] = {1, 2, 5, 8, 9, 10, 11, 12, 24, 25, 26, 100, 3000};

	for (int i = 0; i < NELEMS(bounds); i++)
		for (int j = 0; j < NELEMS(parents); j++)
		{
			Bucket		bucket = 0;
			int			ncalls = 0;
			bool		is_whole = true;

			while (bucket_has_room(bucket, START, bounds[i], parents[j] + 2))
			{
				is_whole &= bucket_pour(&bucket, START, bounds[i], 1) &&
					bucket_pour(&bucket, START, bounds[i], parents[j] + 1);
				ncalls++;
			}
			ok(is_whole && ncalls > 0, "bound %d, %d parents: %d calls",
			   bounds[i], parents[j], ncalls);
		}
	bucket_force(&nearly_half, START, 20, 9);
	ok(bucket_has_room(nearly_half, START, 20, 1000), "half and one more are enough for any");
	bucket_force(&nearly_half, START, 20, 1);
	ok(!bucket_has_room(nearly_half, START, 20, 1000), "half of the bound is not enough for a call");
}

int
main(void)
{
	test_at_once();
	test_rate();
	test_clock();
	test_parts();
	test_wrap();
	test_bounds();
	test_force();
	test_room();
	return done_testing();
}
