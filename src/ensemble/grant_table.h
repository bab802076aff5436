/*-------------------------------------------------------------------------
 *
 * grant_table.h
 *	  The tables zk_privileges and zk_closed, for the functions and triggers
 *	  that change them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_GRANT_TABLE_H
#define ZKLOCK_GRANT_TABLE_H

#include "postgres.h"

#include "access/htup.h"
#include "nodes/pg_list.h"
#include "utils/relcache.h"

/* Columns of zk_privileges; the first one is that of zk_closed, too. */
#define ZK_COLUMN_PREFIX 1
#define ZK_COLUMN_ROLE 2
#define ZK_COLUMN_PRIVILEGE 3

/* How zk_grant(), zk_revoke() and the log call everybody. */
#define ZK_PUBLIC_NAME "public"

/* Most parameters of a command. */
#define ZK_PARAMETERS_MAX 4

/* Parameters of a command that reads or changes the tables; zeros at first. */
typedef struct ZkParameters
{
	int			number;
	Oid			types[ZK_PARAMETERS_MAX];
	Datum		values[ZK_PARAMETERS_MAX];
	char		nulls[ZK_PARAMETERS_MAX];	/* 'n', or ' ' if there is a value */
} ZkParameters;

/* The role of the caller, while another role acts. */
typedef struct ZkIdentity
{
	Oid			user;
	int			context;
} ZkIdentity;

/* ---- commands that read or change them, by SPI ---- */

/* Run a command; how many rows it has found or changed. */
extern uint64 zklock_grant_run(const char *text, ZkParameters *parameters);

/*
 * Add a parameter: what the row has in that column (a NULL where it is refused
 * later), a value, or a text.
 */
extern void zklock_grant_add_column(ZkParameters *parameters, HeapTuple row,
									Relation table, int column);
extern void zklock_grant_add_parameter(ZkParameters *parameters, Oid type,
									   Datum value);
extern void zklock_grant_add_text(ZkParameters *parameters, const char *value);

/* Likewise a zk_role; a NULL unless it is known. */
extern void zklock_grant_add_role(ZkParameters *parameters, Oid schema,
								  bool is_known, Oid role);

/* The schema's name as a command has it, palloc'ed. */
extern const char *zklock_grant_quoted_schema(Oid schema);

/* ---- what is done with them ---- */

/* To the end of the transaction: nobody else changes the tables. */
extern void zklock_grant_lock_changes(Oid schema);

/* Have a row of zk_closed for the prefix. */
extern void zklock_grant_close_prefix(Oid schema, const char *prefix);

/*
 * Had zk_closed rows that were lost?  By a look at the table.
 */
extern bool zklock_grant_has_lost_rows(Oid schema);

/*
 * Has the table no row, whatever the transaction's snapshot, as this statement
 * leaves it?
 */
extern bool zklock_grant_is_empty(Relation table);

/* Is it zk_privileges, or zk_closed? */
extern bool zklock_grant_is_privileges(Relation table);

/*
 * From here to zklock_grant_end_as_owner() SPI can be used, as the table's
 * owner; *before is who acts otherwise.
 */
extern void zklock_grant_begin_as_owner(Relation table, ZkIdentity *before);
extern void zklock_grant_end_as_owner(const ZkIdentity *before);

/* Run a command as the table's owner. */
extern void zklock_grant_run_as_owner(Relation table, const char *text);

/* ---- for hooks.c ---- */

/*
 * Delete what zk_privileges of this database, if there is one, gives to the
 * roles (a list of OIDs).  The names stay closed.
 */
extern void zklock_grant_forget_roles(List *roles);

/* An extension is dropped; the log says who does it if it is this one. */
extern void zklock_grant_log_drop(Oid extension);

#endif							/* ZKLOCK_GRANT_TABLE_H */
