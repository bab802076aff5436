/*-------------------------------------------------------------------------
 *
 * test_retention.c
 *	  Unit test of src/retention.c: tables of cases, the expected value first.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "retention.h"
#include "tap.h"

#define NELEMS(array) ((int) (sizeof(array) / sizeof((array)[0])))

static void
test_read(void)
{
	static const struct
	{
		int64_t		expected;
		const char *data;
	}			cases[] = {
		{0, "{\"run\":\"x\",\"retain\":\"0\"}"},
		{2592000000, "{\"run\":\"x\",\"retain\":\"2592000000\"}"},
		{INT64_MAX / 4, "{\"run\":\"x\",\"retain\":\"2305843009213693951\"}"},
		{7, "{\"run\":\"x\",\"retain\":\"3\",\"retain\":\"7\"}"},
		/* another member must not be taken for it: quotes in it are escaped */
		{RETENTION_UNKNOWN, "{\"user\":\",\\\"retain\\\":\\\"0\\\"}\"}"},
		{9, "{\"user\":\",\\\"retain\\\":\\\"0\\\"}\",\"retain\":\"9\"}"},
		{RETENTION_UNKNOWN, "{\"retain\":\"0\"}"},
		/* nothing need stand before it, as long as something did */
		{0, ",\"retain\":\"0\"}"},
		{INT64_MAX - 8, "{\"run\":\"x\",\"retain\":\"9223372036854775799\"}"},
		{RETENTION_UNKNOWN, "{\"run\":\"x\",\"retain\":\"9223372036854775800\"}"},
		{RETENTION_UNKNOWN, "{\"run\":\"x\",\"retain\":\"1:\"}"},
		{RETENTION_UNKNOWN, "{\"run\":\"x\",\"retain\":\"1x}"},
		{RETENTION_UNKNOWN, "{\"run\":\"x\",\"retain\":\"1\"x"},
		{RETENTION_UNKNOWN, "{\"run\":\"x\",\"retain\":\"\"}"},
		{RETENTION_UNKNOWN, "{\"run\":\"x\",\"retain\":\"-1\"}"},
		{RETENTION_UNKNOWN, "{\"run\":\"x\",\"retain\":\"1.5\"}"},
		{RETENTION_UNKNOWN, "{\"run\":\"x\",\"retain\":\"1\",\"more\":\"2\"}"},
		{RETENTION_UNKNOWN, "{\"run\":\"x\",\"retain\":\"99999999999999999999\"}"},
		{RETENTION_UNKNOWN, "{\"run\":\"x\",\"retain\":\"0"},
		{RETENTION_UNKNOWN, "{\"run\":\"x\",\"retain\":\""},
		{RETENTION_UNKNOWN, "{\"run\":\"x\",\"retain\":0}"},
		{RETENTION_UNKNOWN, "{\"run\":\"x\"}"},
		{RETENTION_UNKNOWN, "retain"},
		{RETENTION_UNKNOWN, ""},
	};

	for (int i = 0; i < NELEMS(cases); i++)
	{
		/* of just its length, so that the sanitizers see a look beyond its end */
		size_t		length = strlen(cases[i].data);
		char	   *data = malloc(length > 0 ? length : 1);

		memcpy(data, cases[i].data, length);
		ok(cases[i].expected == retention_read(data, (int) length),
		   "\"%s\"", cases[i].data);
		free(data);
	}
	ok(retention_read(NULL, 0) == RETENTION_UNKNOWN, "no data");
}

static void
test_over(void)
{
	static const struct
	{
		bool		expected;
		int64_t		retain_ms;
		int64_t		ctime_ms;
		int64_t		now_ms;
		const char *what;
	}			cases[] = {
		{true, 0, 1000, 1001, "kept for no time"},
		{false, 0, 1000, 1000, "made at the same moment"},
		{true, 0, 0, 1, "made at the beginning of time"},
		{false, 100, 1000, 1100, "not yet"},
		{true, 100, 1000, 1101, "then"},
		{false, 0, 1000, 900, "a clock that was set back"},
		{false, RETENTION_UNKNOWN, 1000, INT64_MAX, "one that does not say"},
		{false, INT64_MAX, 0, INT64_MAX, "kept for ever"},
		{false, 0, INT64_MIN, INT64_MAX, "a time that is none"},
		{false, 0, INT64_MAX, INT64_MIN, "nor this"},
	};

	for (int i = 0; i < NELEMS(cases); i++)
		ok(cases[i].expected == retention_is_over(cases[i].retain_ms,
												  cases[i].ctime_ms,
												  cases[i].now_ms),
		   "%s", cases[i].what);
}

/* What a claim does on average, for every number of records. */
static void
test_costs(void)
{
	static const int numbers[] = {
		0, 1, 255, 256, 257, 511, 512, 2047, 10000, 99999, RETENTION_RECORDS_MAX,
		10 * RETENTION_RECORDS_MAX
	};
	const int	steps = 1000000;

	for (int i = 0; i < NELEMS(numbers); i++)
	{
		int			n = numbers[i];
		int			nlists = 0;
		double		part;

		for (int j = 0; j < steps; j++)
			nlists += retention_should_list(n, (double) j / steps);
		part = (double) nlists / steps;
		ok(part * n <= 257, "of %d records a claim lists 256 at most", n);
		ok(n > 256 || nlists == steps, "of %d records: always if they are few", n);
		ok(part * retention_sample(n) > 7.5 || n > RETENTION_RECORDS_MAX,
		   "of %d records it looks at some 8 at least", n);
		ok(retention_sample(n) <= RETENTION_RECORDS_MAX / 32,
		   "of %d records never at very many at a time", n);
	}
	ok(!retention_should_list(512, 0.5), "of 512 a claim lists them less often than each second time");
	is_int(16, retention_sample(512), "it looks at 16 records");
	is_int(32, retention_sample(1024), "of many at a 32nd of them");
	ok(retention_should_list(-1, 0.999), "a number that is none");
	is_int(16, retention_sample(-1), "nor does it spoil the sample");
}

int
main(void)
{
	test_read();
	test_over();
	test_costs();
	return done_testing();
}
