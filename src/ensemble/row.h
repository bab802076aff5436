/*-------------------------------------------------------------------------
 *
 * row.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ROW_H
#define ZKLOCK_ROW_H

#include "postgres.h"

#include "fmgr.h"
#include "nodes/execnodes.h"

#include "board.h"
#include "nodedata.h"
#include "recipe.h"

/* Most columns of a function's result. */
#define ZK_COLUMNS_MAX 26

/* Prepare a set-returning function that fills a tuplestore. */
extern ReturnSetInfo *zklock_row_begin(FunctionCallInfo fcinfo);

/*
 * What columns show: the mode of a lock, and a session id as ZooKeeper's own
 * tools write it (palloc'ed).
 */
extern const char *zklock_row_mode_name(RecipeMode mode);
extern char *zklock_row_session_id(int64 session_id);

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

#endif							/* ZKLOCK_ROW_H */
