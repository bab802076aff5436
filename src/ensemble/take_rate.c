/*-------------------------------------------------------------------------
 *
 * take_rate.c
 *	  Bounds how much this session may take in a second (zklock.max_creates).
 *
 *-------------------------------------------------------------------------
 */
#include "take_rate.h"

#include <time.h>

#include "utils/guc.h"

#include "bucket.h"
#include "stat.h"

/* 0: no bound */
static int	max_creates_setting;

static int64 now_us(void);

void
zklock_take_rate_init(void)
{
	DefineCustomIntVariable("zklock.max_creates",
							"Maximum number of locks, leases, runs and requests that a session may take in a second.",
							"0 means no bound.",
							&max_creates_setting, 5000, 0, BUCKET_BOUND_MAX,
							PGC_SUSET, 0,
							NULL, NULL, NULL);
}

void
zklock_take_rate_count(int count)
{
	static Bucket taken;

	if (max_creates_setting == 0 ||
		bucket_pour(&taken, now_us(), max_creates_setting, count))
		return;
	zklock_stat_count(ZK_STAT_REFUSED_CREATE);
	if (count > max_creates_setting)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("too many locks in one call"),
				 errdetail("The call takes %d, and this session may take %d in a second.",
						   count, max_creates_setting),
				 errhint("Take fewer locks in one call, or have a superuser increase \"%s\".",
						 "zklock.max_creates")));
	ereport(ERROR,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("too many locks, leases, runs or requests in one second"),
			 errdetail("This session may take %d in a second.",
					   max_creates_setting),
			 errhint("Run the call again after a second, or have a superuser increase \"%s\".",
					 "zklock.max_creates")));
}

/* That of protocol_now(), in microseconds. */
static int64
now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	return (int64) now.tv_sec * 1000000 + now.tv_nsec / 1000;
}
