/*-------------------------------------------------------------------------
 *
 * write_bound.c
 *	  How much a role may write to the ensemble: zklock.max_creates.
 *
 * What may be refused is counted before it is sent (write.h says what that
 * is).  So the bound holds however many backends write at a time.  The bound
 * and its counters stay in shared memory when a backend ends: a role that
 * connects anew has no more than before.
 *
 * Rows are taken in turn, without a lock, and are never given back before the
 * server restarts.  Roles that come when all are taken share the last one, and
 * its bound.
 *
 *-------------------------------------------------------------------------
 */
#include "write_bound.h"

#include <time.h>

#include "common/hashfn.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "bucket.h"
#include "compat.h"
#include "stat.h"

/* How many pairs of database and role have a row of their own. */
#define ROLES 1000

/*
 * zklock.max_creates: how much all backends of the role may write in a second;
 * 0: as much as they like.
 */
static int	max_creates_setting;

/* Of a role in a database. */
typedef struct RoleEntry
{
	pg_atomic_uint64 owner;		/* pair(); 0: free, or the one for the rest */
	pg_atomic_uint64 bucket;
	pg_atomic_uint64 nwrites;
	pg_atomic_uint64 nrefused;
	pg_atomic_uint64 since;		/* a TimestampTz */
	pg_atomic_uint32 max_creates;	/* as used last */
	char		padding[64 - 5 * sizeof(uint64) - sizeof(uint32)];	/* a cache line */
} RoleEntry;

/* In shared memory: ROLES of them, and the one for the rest. */
static RoleEntry *entries;

/* Where this backend counts; NULL: it has not counted yet. */
static RoleEntry *own;

static bool count(int count, bool may_refuse);
pg_noreturn static void refuse_write(void);
static bool change_bucket(RoleEntry *entry, int count, bool may_refuse);
static RoleEntry *role_entry(void);
static RoleEntry *take_role_entry(uint64 owner);
static int64 now_us(void);

void
zklock_write_claim(int writes)
{
	if (!count(writes, MyDatabaseId != InvalidOid))
		refuse_write();
}

void
zklock_write_need(int writes)
{
	if (max_creates_setting > 0 &&
		!bucket_has_room(pg_atomic_read_u64(&role_entry()->bucket), now_us(),
						 max_creates_setting, writes))
		refuse_write();
}

void
zklock_write_count(int writes)
{
	(void) count(writes, false);	/* it never refuses those */
}

int
zklock_write_bound_size(void)
{
	return ROLES + 1;
}

bool
zklock_write_bound_read(int number, ZkWriteRow *row)
{
	RoleEntry  *entry = &entries[number];
	uint64		owner = pg_atomic_read_u64(&entry->owner);

	row->database = (Oid) (owner >> 32);
	row->role = (Oid) owner;
	row->max_creates = pg_atomic_read_u32(&entry->max_creates);
	row->level = 0;
	if (row->max_creates > 0)
		row->level = bucket_level(pg_atomic_read_u64(&entry->bucket), now_us(),
								  row->max_creates);
	row->nwrites = pg_atomic_read_u64(&entry->nwrites);
	row->nrefused = pg_atomic_read_u64(&entry->nrefused);
	row->since = (TimestampTz) pg_atomic_read_u64(&entry->since);
	return owner != 0 || row->nwrites > 0 || row->nrefused > 0;
}

/* What is counted at the same time may be lost. */
void
zklock_write_bound_reset(void)
{
	for (int i = 0; i < ROLES; i++)
	{
		uint64		owner = pg_atomic_read_u64(&entries[i].owner);

		if (owner == 0 || (Oid) (owner >> 32) != MyDatabaseId)
			continue;
		pg_atomic_write_u64(&entries[i].nwrites, 0);
		pg_atomic_write_u64(&entries[i].nrefused, 0);
		pg_atomic_write_u64(&entries[i].since, (uint64) GetCurrentTimestamp());
	}
}

/* Count them; false if they are refused: nothing of a process of our own. */
static bool
count(int count, bool may_refuse)
{
	RoleEntry  *entry = role_entry();

	if (max_creates_setting > 0 && !change_bucket(entry, count, may_refuse))
		return false;
	pg_atomic_fetch_add_u64(&entry->nwrites, count);
	return true;
}

static void
refuse_write(void)
{
	pg_atomic_fetch_add_u64(&role_entry()->nrefused, 1);
	zklock_stat_count(ZK_STAT_REFUSED_CREATE);
	ereport(ERROR,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("too many writes to ZooKeeper in one second"),
			 errdetail("All sessions of role \"%s\" in database \"%s\" may make %d a second together.",
					   GetUserNameFromId(GetAuthenticatedUserId(), false),
					   get_database_name(MyDatabaseId),
					   max_creates_setting),
			 errhint("Run the call again after a second, or have a superuser increase \"%s\" for the role.",
					 "zklock.max_creates")));
}

static bool
change_bucket(RoleEntry *entry, int count, bool may_refuse)
{
	int64		now = now_us();
	uint64		before = pg_atomic_read_u64(&entry->bucket);
	Bucket		after;

	do
	{
		after = before;
		if (!may_refuse)
			bucket_force(&after, now, max_creates_setting, count);
		else if (!bucket_pour(&after, now, max_creates_setting, count))
			return false;
	} while (!pg_atomic_compare_exchange_u64(&entry->bucket, &before, after));
	return true;
}

/* That of this backend, whose database and whose role never change. */
static RoleEntry *
role_entry(void)
{
	if (own == NULL)
		own = take_role_entry((uint64) MyDatabaseId << 32 |
							  GetAuthenticatedUserId());

	/* the same for all, as a rule: not to be written again and again */
	if (pg_atomic_read_u32(&own->max_creates) != (uint32) max_creates_setting)
		pg_atomic_write_u32(&own->max_creates, max_creates_setting);
	return own;
}

/* The entry of that database and role, or the one for the rest. */
static RoleEntry *
take_role_entry(uint64 owner)
{
	uint32		first = hash_bytes((const unsigned char *) &owner,
								   sizeof(owner)) % ROLES;

	for (uint32 i = 0; i < ROLES; i++)
	{
		RoleEntry  *entry = &entries[(first + i) % ROLES];
		uint64		taken_by = 0;

		if (pg_atomic_compare_exchange_u64(&entry->owner, &taken_by, owner) ||
			taken_by == owner)
			return entry;
	}
	return &entries[ROLES];
}

/* That of protocol_now(), in microseconds. */
static int64
now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	return (int64) now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* ---------------------------------------------------------------------
 * The setting, and shared memory
 * ---------------------------------------------------------------------
 */

void
zklock_write_bound_init(void)
{
	DefineCustomIntVariable("zklock.max_creates",
							"Maximum number of writes to ZooKeeper in a second, of all sessions of one role in one database together.",
							"Up to 20 may be made at once, even if the value is less. 0 means no bound.",
							&max_creates_setting, 5000, 0, BUCKET_BOUND_MAX,
							PGC_SUSET, 0,
							NULL, NULL, NULL);
}

void
zklock_write_bound_request_memory(void)
{
	RequestAddinShmemSpace((ROLES + 1) * sizeof(RoleEntry));
}

void
zklock_write_bound_make_memory(void)
{
	bool		found;

	entries = ShmemInitStruct("zklock writes of roles",
							  (ROLES + 1) * sizeof(RoleEntry), &found);
	for (int i = 0; !found && i < ROLES + 1; i++)
	{
		pg_atomic_init_u64(&entries[i].owner, 0);
		pg_atomic_init_u64(&entries[i].bucket, 0);
		pg_atomic_init_u64(&entries[i].nwrites, 0);
		pg_atomic_init_u64(&entries[i].nrefused, 0);
		pg_atomic_init_u64(&entries[i].since, (uint64) GetCurrentTimestamp());
		pg_atomic_init_u32(&entries[i].max_creates, 0);
	}
}
