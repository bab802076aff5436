/*-------------------------------------------------------------------------
 *
 * args.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ARGS_H
#define ZKLOCK_ARGS_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "fmgr.h"
#include "nodes/execnodes.h"

#include "board.h"
#include "nodedata.h"
#include "recipe.h"
#include "terms.h"

/* Most columns of a function's result. */
#define ZK_COLUMNS_MAX 26

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

/* Prepare a set-returning function that fills a tuplestore. */
extern ReturnSetInfo *zklock_args_begin_rows(FunctionCallInfo fcinfo);

/*
 * What columns show: the mode of a lock, and a session id as ZooKeeper's own
 * tools write it (palloc'ed).
 */
extern const char *zklock_args_mode(RecipeMode mode);
extern char *zklock_args_session_id(int64 session_id);

/* A row of a result, filled column by column; all zeros at first. */
typedef struct ZkRow
{
	bool		is_hidden;		/* from here on all is a NULL */
	int			ncolumns;
	Datum		values[ZK_COLUMNS_MAX];
	bool		nulls[ZK_COLUMNS_MAX];
	bool		is_text[ZK_COLUMNS_MAX];
} ZkRow;

/* Fill the next column; a NULL unless is_known. */
extern void zklock_row_add(ZkRow *row, bool is_known, Datum value);

/* Likewise with a text, which may be NULL. */
extern void zklock_row_add_text(ZkRow *row, const char *text);

/* Likewise the id of a ZooKeeper session; 0: a NULL. */
extern void zklock_row_add_session(ZkRow *row, int64 session_id);

/* cluster, database, username, application, pid and host, so far as known. */
extern void zklock_row_add_who(ZkRow *row, const ZkNodeData *who);

/* How a lock is held: its name, the mode, a word for the state, and so on. */
extern void zklock_row_add_taken(ZkRow *row, const char *name,
								 RecipeMode mode, const char *state,
								 const ZkTaken *taken, int64 token);

/*
 * Put the row to those of a set-returning function; raise 55000 if the
 * function is declared with other columns.
 */
extern void zklock_row_put(ReturnSetInfo *result, ZkRow *row);

/* The row as the result of a function that returns one; raise likewise. */
extern Datum zklock_row_datum(FunctionCallInfo fcinfo, ZkRow *row);

#endif							/* ZKLOCK_ARGS_H */
