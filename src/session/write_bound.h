/*-------------------------------------------------------------------------
 *
 * write_bound.h
 *	  How much a role may write to the ensemble: zklock.max_creates.
 *
 * It is one bound for all backends of a role in a database, in shared memory.
 * The role is the one that logged in: neither SET ROLE nor SET SESSION
 * AUTHORIZATION changes it, nor a function of somebody else's.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_WRITE_BOUND_H
#define ZKLOCK_WRITE_BOUND_H

#include "postgres.h"

#include "datatype/timestamp.h"

/* What is known of one role in one database. */
typedef struct ZkWriteRow
{
	Oid			database;		/* InvalidOid: of a process without one */
	Oid			role;			/* InvalidOid: of all that have no row of
								 * their own; so is the database */
	int			max_creates;	/* zklock.max_creates of the session that
								 * wrote last */
	int			level;			/* writes that the bound holds against the
								 * next; valid if max_creates is not 0 */
	uint64		nwrites;
	uint64		nrefused;		/* calls that were refused */
	TimestampTz since;			/* both were 0 then */
} ZkWriteRow;

/* The setting; and for the hooks of shared memory (zklock.c). */
extern void zklock_write_bound_init(void);
extern void zklock_write_bound_request_memory(void);
extern void zklock_write_bound_make_memory(void);

/*
 * Count writes that are about to be sent, all or none: raise 53400 if they are
 * past the bound.
 */
extern void zklock_write_claim(int count);

/*
 * Ahead of a call that is going to claim so many, one first and the others
 * later: raise 53400 unless there is room for all.  Counts none.
 */
extern void zklock_write_need(int count);

/*
 * The same for those that cannot be refused.  Never raises, never waits, takes
 * no lock.
 */
extern void zklock_write_count(int count);

/* How many rows there may be; copy one of them, false if it was never used. */
extern int	zklock_write_bound_size(void);
extern bool zklock_write_bound_read(int number, ZkWriteRow *row);

/* The counters of this database's roles start again with 0; no bound does. */
extern void zklock_write_bound_reset(void);

#endif							/* ZKLOCK_WRITE_BOUND_H */
