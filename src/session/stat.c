/*-------------------------------------------------------------------------
 *
 * stat.c
 *	  In shared memory: counters.
 *
 * In shared memory, for each database.  They start with 0 when the server
 * does, and after a crash.  Those of a dropped database stay where they are.
 *
 * The one rule: counting is an addition, and nothing else.  It happens at the
 * end of transactions and of backends, and each time that a lock is taken.
 *
 *-------------------------------------------------------------------------
 */
#include "stat.h"

#include "miscadmin.h"
#include "port/atomics.h"
#include "utils/timestamp.h"

#include "compat.h"

/*
 * How many databases have counters of their own.  What happens in others is
 * counted together, in the entry behind those.
 */
#define STAT_DATABASES 127
#define STAT_ENTRIES (STAT_DATABASES + 1)

/* Of one database. */
typedef struct StatEntry
{
	pg_atomic_uint32 database;	/* InvalidOid: free, or the one for the rest */
	pg_atomic_uint64 since;		/* a TimestampTz */
	pg_atomic_uint64 counts[ZK_NSTATS];
} StatEntry;

/* Upper bounds of the waits, in microseconds, but for the longest. */
static const uint64 bounds[ZK_STAT_WAITS - 1] = {
	1000, 3000, 10000, 30000, 100000, 300000,
	1000000, 3000000, 10000000, 30000000, 100000000, 300000000
};

/* In shared memory, STAT_ENTRIES of them, taken in turn. */
static StatEntry *entries;

/* Where this backend counts; NULL: it has not counted yet. */
static StatEntry *own;

static StatEntry *database_entry(void);
static StatEntry *take_database_entry(Oid database);
static void make_entry(StatEntry *entry);

void
zklock_stat_add(ZkStat which, uint64 count)
{
	pg_atomic_fetch_add_u64(&database_entry()->counts[which], count);
}

int
zklock_stat_errcode(int sqlstate)
{
	if (strncmp(unpack_sql_state(sqlstate), "08", 2) == 0)
		zklock_stat_count(ZK_STAT_UNANSWERED);
	return errcode(sqlstate);
}

void
zklock_stat_wait(uint64 microseconds)
{
	int			bucket = 0;

	while (bucket < (int) lengthof(bounds) && microseconds >= bounds[bucket])
		bucket++;
	zklock_stat_count(ZK_STAT_WAIT + bucket);
	zklock_stat_add(ZK_STAT_WAIT_US, microseconds);
}

int
zklock_stat_size(void)
{
	return STAT_ENTRIES;
}

bool
zklock_stat_read(int number, ZkStatRow *row)
{
	StatEntry  *entry = &entries[number];
	uint64		sum = 0;

	row->database = pg_atomic_read_u32(&entry->database);
	row->since = (TimestampTz) pg_atomic_read_u64(&entry->since);
	for (int i = 0; i < ZK_NSTATS; i++)
		sum += row->counts[i] = pg_atomic_read_u64(&entry->counts[i]);
	return row->database != InvalidOid || sum > 0;
}

/* What is counted at the same time may be lost. */
void
zklock_stat_reset(void)
{
	StatEntry  *entry = database_entry();

	for (int i = 0; i < ZK_NSTATS; i++)
		pg_atomic_write_u64(&entry->counts[i], 0);
	pg_atomic_write_u64(&entry->since, (uint64) GetCurrentTimestamp());
}

static StatEntry *
database_entry(void)
{
	if (own == NULL)
		own = take_database_entry(MyDatabaseId);
	return own;
}

/* The entry of that database, or the one for the rest. */
static StatEntry *
take_database_entry(Oid database)
{
	for (int i = 0; i < STAT_DATABASES && database != InvalidOid; i++)
	{
		uint32		taken_by = InvalidOid;

		if (pg_atomic_compare_exchange_u32(&entries[i].database, &taken_by,
										   database) ||
			taken_by == database)
			return &entries[i];
	}
	return &entries[STAT_DATABASES];
}

static void
make_entry(StatEntry *entry)
{
	pg_atomic_init_u32(&entry->database, InvalidOid);
	pg_atomic_init_u64(&entry->since, (uint64) GetCurrentTimestamp());
	for (int i = 0; i < ZK_NSTATS; i++)
		pg_atomic_init_u64(&entry->counts[i], 0);
}

/* ---------------------------------------------------------------------
 * Shared memory
 * ---------------------------------------------------------------------
 */

void
zklock_stat_request_memory(void)
{
	RequestAddinShmemSpace(STAT_ENTRIES * sizeof(StatEntry));
}

void
zklock_stat_make_memory(void)
{
	bool		found;

	entries = ShmemInitStruct("zklock statistics",
							  STAT_ENTRIES * sizeof(StatEntry), &found);
	for (int i = 0; !found && i < STAT_ENTRIES; i++)
		make_entry(&entries[i]);
}
