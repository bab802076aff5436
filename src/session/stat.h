/*-------------------------------------------------------------------------
 *
 * stat.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_STAT_H
#define ZKLOCK_STAT_H

#include "postgres.h"

#include "datatype/timestamp.h"

/* What is counted; up to REQUEST in the order of the columns of zk_stat(). */
typedef enum ZkStat
{
	ZK_STAT_GRANT_AT_ONCE,		/* nobody was ahead */
	ZK_STAT_GRANT_HANDED_OVER,	/* by the one ahead, through the ensemble */
	ZK_STAT_GRANT_TOLD,			/* by the one ahead, in shared memory */
	ZK_STAT_GRANT_LISTED,		/* after a wait, by a look at the queue */
	ZK_STAT_GRANT_KEPT,			/* taken back; it had been kept */
	ZK_STAT_KEPT_FOR_OTHERS,	/* and was given up for somebody else; noticed
								 * later */
	ZK_STAT_TRY_IN_VAIN,		/* a try that was not granted */
	ZK_STAT_TIMEOUT,			/* 55P03 */
	ZK_STAT_CANCEL,				/* of a session in a queue, or on its way there */
	ZK_STAT_DEADLOCK,			/* 40P01 */
	ZK_STAT_UNANSWERED,			/* a call: class 08, or out of time or
								 * canceled without an answer */
	ZK_STAT_LOSS,				/* of a session */
	ZK_STAT_DELETION,			/* of the queue node of a held lock, by
								 * somebody else */
	ZK_STAT_REFUSED_COMMIT,		/* by the commit guard, 40001 */
	ZK_STAT_EVICTION,			/* by zk_evict() */
	ZK_STAT_LEASE,				/* that was taken */
	ZK_STAT_LEASE_END,			/* given up, or removed after its term */
	ZK_STAT_REFUSED_CREATE,		/* past zklock.max_creates */
	ZK_STAT_SESSION,			/* that was connected for the first time */
	ZK_STAT_RECONNECT,			/* of a session, to whichever server */
	ZK_STAT_REQUEST,			/* to a session's program */
	ZK_STAT_WAIT_US,			/* how long all waits took */
	ZK_STAT_WAIT				/* the first of ZK_STAT_WAITS */
} ZkStat;

/*
 * Waits are counted by how long they took: less than 1 ms, 3 ms, 10 ms, 30
 * ms, 100 ms, 300 ms, 1 s, 3 s, 10 s, 30 s, 100 s, 300 s, or longer.
 */
#define ZK_STAT_WAITS 13
#define ZK_NSTATS (ZK_STAT_WAIT + ZK_STAT_WAITS)

/* The counters of one database. */
typedef struct ZkStatRow
{
	Oid			database;		/* InvalidOid: of those that have no counters
								 * of their own */
	TimestampTz since;			/* all were 0 then */
	uint64		counts[ZK_NSTATS];
} ZkStatRow;

/* For the hooks of shared memory (zklock.c). */
extern void zklock_stat_request_memory(void);
extern void zklock_stat_make_memory(void);

/* Count for this database.  Never raises, never waits, takes no lock. */
extern void zklock_stat_add(ZkStat which, uint64 count);
#define zklock_stat_count(which) zklock_stat_add((which), 1)

/*
 * Inside ereport(): errcode() of that SQLSTATE.  One of class 08 is counted: a
 * call ends without an answer of the ensemble.
 */
extern int	zklock_stat_errcode(int sqlstate);

/* A wait is over, however it ended. */
extern void zklock_stat_wait(uint64 microseconds);

/* How many rows there may be; copy one of them, false if it was never used. */
extern int	zklock_stat_size(void);
extern bool zklock_stat_read(int number, ZkStatRow *row);

/* This database's start again with 0. */
extern void zklock_stat_reset(void);

#endif							/* ZKLOCK_STAT_H */
