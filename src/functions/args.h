/*-------------------------------------------------------------------------
 *
 * args.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ARGS_H
#define ZKLOCK_ARGS_H

#include "postgres.h"

#include "fmgr.h"

/*
 * What takes, releases or writes begins with this.  Raises 42501 in a
 * security-restricted operation: there the functions of a table's or view's
 * owner run as their owner, and in the session of whoever maintains it, so that
 * they could release that session's locks.
 */
extern void zklock_args_refuse_restricted(void);

/*
 * Raise 22004 if the argument is a NULL: a strict function would let the caller
 * go on.  The error calls it what.  hint may be NULL.
 */
extern void zklock_args_require(FunctionCallInfo fcinfo, int number,
								const char *what, const char *hint);

/* Likewise another text. */
extern char *zklock_args_text(FunctionCallInfo fcinfo, int number,
							  const char *what);

/* Likewise a text that becomes part of a path, in its one spelling. */
extern char *zklock_args_spelled(FunctionCallInfo fcinfo, int number,
								 const char *what);

/* Likewise a fencing token; raises 22023 unless it is greater than zero. */
extern int64 zklock_args_token(FunctionCallInfo fcinfo, int number);

/* Likewise the number of permits of a lock; raises 22023 out of range. */
extern int	zklock_args_permits(FunctionCallInfo fcinfo, int number);

/*
 * Milliseconds of a timeout.  A NULL is no bound, and of a try raises 22004:
 * it would turn it into a wait without end.
 */
extern int64 zklock_args_timeout(FunctionCallInfo fcinfo, int number,
								 bool is_try);

/*
 * Milliseconds of an interval, rounded up so that a bound that is not zero does
 * not become zero; a month is 30 days, as in comparisons of intervals.  Raises 22023 if it is negative.  What is longer than
 * ZK_MS_MAX (session.h) becomes that.
 */
extern int64 zklock_args_interval(FunctionCallInfo fcinfo, int number,
								  const char *what);

#endif							/* ZKLOCK_ARGS_H */
