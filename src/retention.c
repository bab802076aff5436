/*-------------------------------------------------------------------------
 *
 * retention.c
 *	  How long records of runs are kept, and how old ones are found (and
 *	  requests to release a lock that nobody hears any more), as pure
 *	  functions.
 *
 * Values in, verdict out; libc only.
 *
 *-------------------------------------------------------------------------
 */
#include "retention.h"

#include <string.h>

/*
 * A list of n records costs n names, so a claim lists them with probability
 * min(1, LISTED / n): LISTED names on average, however many there are.  Of a
 * list it looks at max(LOOKED_AT, n / PART) records.  If one in k is old, a
 * claim makes one record and deletes on average
 *
 *	LOOKED_AT / k				up to LISTED = 256 records,
 *	LISTED / PART / k = 8 / k	from LOOKED_AT * PART = 512 records on,
 *
 * and in between more than that.  So old ones go faster than new ones come as
 * long as more than one in eight is old, however many there are.
 */
#define LISTED 256
#define LOOKED_AT 16
#define PART 32

/* A list longer than the most there should be holds strangers' nodes. */
#define SAMPLE_MAX (RETENTION_RECORDS_MAX / PART)

/*
 * Not by a parser: whether a record goes must not hang on the encoding of who
 * looks at it.  In a JSON text a quote inside a string is escaped, so this is
 * the key, and the last one is ours.
 */
int64_t
retention_read(const char *data, int length)
{
	static const char key[] = ",\"" RETENTION_KEY "\":\"";
	const int	key_length = sizeof(key) - 1;
	int64_t		retain_ms = 0;
	int			i;

	for (i = length - key_length; i >= 0; i--)
		if (memcmp(data + i, key, key_length) == 0)
			break;
	if (i < 0)
		return RETENTION_UNKNOWN;
	i += key_length;
	if (i >= length || data[i] == '"')
		return RETENTION_UNKNOWN;
	for (; i < length && data[i] >= '0' && data[i] <= '9'; i++)
	{
		if (retain_ms > (INT64_MAX - 9) / 10)
			return RETENTION_UNKNOWN;
		retain_ms = retain_ms * 10 + (data[i] - '0');
	}
	return length - i == 2 && data[i] == '"' && data[i + 1] == '}' ?
		retain_ms : RETENTION_UNKNOWN;
}

/* Whoever answers may be a server that lies: no sum may overflow. */
bool
retention_is_over(int64_t retain_ms, int64_t ctime_ms, int64_t now_ms)
{
	return retain_ms >= 0 && ctime_ms >= 0 && now_ms >= 0 &&
		now_ms - ctime_ms > retain_ms;
}

bool
retention_should_list(int nrecords, double chance)
{
	return chance * nrecords < LISTED;
}

int
retention_sample(int nrecords)
{
	int			part = nrecords / PART;

	if (part > SAMPLE_MAX)
		part = SAMPLE_MAX;
	return part > LOOKED_AT ? part : LOOKED_AT;
}
