/*-------------------------------------------------------------------------
 *
 * args.c
 *	  Reads the arguments of SQL functions.
 *
 *-------------------------------------------------------------------------
 */
#include "args.h"

#include <math.h>

#include "catalog/pg_type_d.h"
#include "miscadmin.h"
#include "replication/logicalworker.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "name_spelling.h"
#include "recipe.h"
#include "session.h"

/*
 * An apply worker runs triggers in such an operation since PostgreSQL 16, and
 * holds nobody's locks but its own.
 */
void
zklock_args_refuse_restricted(void)
{
	if (InSecurityRestrictedOperation() && !IsLogicalWorker())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("ZooKeeper locks cannot be used in a security-restricted operation"),
				 errdetail("An index expression, a materialized view or a similar function of an object's owner is being evaluated."),
				 errhint("Call the function in a statement of its own.")));
}

void
zklock_args_require(FunctionCallInfo fcinfo, int number, const char *what,
					const char *hint)
{
	if (PG_ARGISNULL(number))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be null", what),
				 hint != NULL ? errhint("%s", hint) : 0));
}

char *
zklock_args_text(FunctionCallInfo fcinfo, int number, const char *what)
{
	zklock_args_require(fcinfo, number, what, NULL);
	return text_to_cstring(PG_GETARG_TEXT_PP(number));
}

char *
zklock_args_spelled(FunctionCallInfo fcinfo, int number, const char *what)
{
	return zklock_name_spell(what, zklock_args_text(fcinfo, number, what));
}

int64
zklock_args_token(FunctionCallInfo fcinfo, int number)
{
	zklock_args_require(fcinfo, number, "fencing token", NULL);
	if (PG_GETARG_INT64(number) <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("fencing token must be greater than zero")));
	return PG_GETARG_INT64(number);
}

int
zklock_args_permits(FunctionCallInfo fcinfo, int number)
{
	int			permits;

	zklock_args_require(fcinfo, number, "number of permits", NULL);
	permits = PG_GETARG_INT32(number);
	if (permits < 1 || permits > RECIPE_PERMITS_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("number of permits must be between 1 and %d",
						RECIPE_PERMITS_MAX)));
	return permits;
}

int64
zklock_args_timeout(FunctionCallInfo fcinfo, int number, bool is_try)
{
	if (is_try)
		zklock_args_require(fcinfo, number, "timeout of a try",
							"Leave it out, or use zk_lock() to wait without a bound.");
	if (PG_ARGISNULL(number))
		return ZK_MS_MAX;
	return zklock_args_interval(fcinfo, number, "timeout");
}

int64
zklock_args_interval(FunctionCallInfo fcinfo, int number, const char *what)
{
	const Interval *interval = PG_GETARG_INTERVAL_P(number);
	double		ms = interval->time / 1000.0 +
		(interval->day + interval->month * (double) DAYS_PER_MONTH) *
		SECS_PER_DAY * 1000.0;

	if (ms < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not be negative", what)));
	return (int64) Min(ceil(ms), (double) ZK_MS_MAX);
}
