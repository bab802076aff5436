/*-------------------------------------------------------------------------
 *
 * handover.c
 *	  In shared memory: tells a waiter of the same cluster that the lock is
 *	  its own.
 *
 * A backend that waits for a lock writes into shared memory what it waits for:
 * the queue node of the contender just ahead.  A holder that lets go of the lock
 * looks for a backend that has written the holder's node.  If there is one, the
 * holder puts TOLD in its place and sets the waiter's latch, and the waiter need
 * not wait for the ensemble.  Why that is a grant: see the head of
 * contender_watch.c.
 *
 * The one rule: the holder always deletes its node, too, and the waiter
 * watches that node before it says so.  So a waiter that gets no message here
 * gets one from the ensemble, and no lock is needed.
 *
 * Shared memory has a slot for each possible backend, and a hash table of those
 * that wait, by the czxid that they wait for.  A holder looks at one bucket of
 * that: its cost depends neither on max_connections nor on how many wait for
 * other locks.  A waiter whose bucket is full gets its message from the
 * ensemble.  That is rare, for usually one backend waits for a node, and there
 * are at least as many buckets as backends.
 *
 *-------------------------------------------------------------------------
 */
#include "handover.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "port/pg_bitutils.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "storage/shmem.h"

#include "compat.h"
#include "recipe.h"

/* In place of a czxid: there is no wait; the waiter was told. */
#define NOBODY 0
#define TOLD PG_UINT64_MAX

/* How many backends may wait in one bucket. */
#define BUCKET_SIZE 8

/*
 * Proc numbers of those that wait for a czxid of that hash, plus 1; or
 * NO_WAITER.
 */
typedef struct Bucket
{
	pg_atomic_uint32 waiters[BUCKET_SIZE];
} Bucket;

#define NO_WAITER 0

/* In shared memory: who waits for whom. */
static struct
{
	/*
	 * By proc number: the czxid and the path of the node that the backend waits
	 * for.  The path alone would not do: a client that may create nodes can
	 * copy the name into another queue or another ensemble.  No client can
	 * choose a czxid.
	 * It is written last, and a waiter is told only if it is the same before
	 * and after the path was read.
	 */
	pg_atomic_uint64 *awaited;
	char		(*nodes)[RECIPE_PATH_SIZE];

	/*
	 * By hash of the czxid.  A waiter enters it when its slot above is written,
	 * and leaves it when that is cleared.  So this tells only where to look;
	 * what the slot says counts.
	 */
	Bucket	   *buckets;
}			shared;

/* Our own entry there; NULL: this backend does not wait for a message. */
static pg_atomic_uint32 *own_entry;

static Bucket *bucket_of(int64 czxid);
static pg_atomic_uint32 *enter_waiter(Bucket *bucket, int procno);
static bool wake_waiter(int procno, const char *node, uint64 czxid);
static void forget_at_exit(int code, Datum arg);

void
zklock_handover_await(const char *node, int64 czxid)
{
	static bool is_registered = false;
	int			own = MyProcNumber_compat();

	zklock_handover_forget();
	/* no znode has such a czxid, whatever a server says */
	if (strlen(node) >= RECIPE_PATH_SIZE || czxid <= NOBODY)
		return;
	if (!is_registered)
		on_shmem_exit(forget_at_exit, 0);
	is_registered = true;
	strcpy(shared.nodes[own], node);
	pg_atomic_exchange_u64(&shared.awaited[own], czxid);
	own_entry = enter_waiter(bucket_of(czxid), own);
	if (own_entry == NULL)
		pg_atomic_exchange_u64(&shared.awaited[own], NOBODY);
}

bool
zklock_handover_has_told(void)
{
	return own_entry != NULL &&
		pg_atomic_read_u64(&shared.awaited[MyProcNumber_compat()]) == TOLD;
}

void
zklock_handover_forget(void)
{
	if (own_entry == NULL)
		return;
	pg_atomic_exchange_u64(&shared.awaited[MyProcNumber_compat()], NOBODY);
	pg_atomic_write_u32(own_entry, NO_WAITER);
	own_entry = NULL;
}

/*
 * A wait that was ended by FATAL.  PGPROC is still ours: PostgreSQL's own
 * callback was registered before this one, and runs after it.
 */
static void
forget_at_exit(int code, Datum arg)
{
	zklock_handover_forget();
}

/*
 * Locks that are released by the end of a process are left to the ensemble: by
 * then there may be no shared memory.
 */
bool
zklock_handover_tell(const char *node, int64 czxid)
{
	bool		is_told = false;
	Bucket	   *bucket;

	if (proc_exit_inprogress || czxid <= NOBODY)
		return false;
	bucket = bucket_of(czxid);
	for (int i = 0; i < BUCKET_SIZE; i++)
	{
		uint32		entry = pg_atomic_read_u32(&bucket->waiters[i]);

		if (entry != NO_WAITER && wake_waiter(entry - 1, node, czxid))
			is_told = true;
	}
	return is_told;
}

/*
 * Tell that backend, if it waits for that node.  If it is gone since, another
 * one that has its PGPROC wakes up once for nothing.
 */
static bool
wake_waiter(int procno, const char *node, uint64 czxid)
{
	uint64		expected = czxid;

	pg_read_barrier();
	if (pg_atomic_read_u64(&shared.awaited[procno]) != czxid)
		return false;
	pg_read_barrier();
	if (strncmp(shared.nodes[procno], node, RECIPE_PATH_SIZE) != 0 ||
		!pg_atomic_compare_exchange_u64(&shared.awaited[procno], &expected, TOLD))
		return false;
	SetLatch(&GetPGProcByNumber(procno)->procLatch);
	return true;
}

/* ---------------------------------------------------------------------
 * The hash table
 * ---------------------------------------------------------------------
 */

static uint32
count_buckets(void)
{
	return pg_nextpower2_32(MaxBackends);
}

/* Both halves: zxids count up in the lower one, and epochs in the upper one. */
static Bucket *
bucket_of(int64 czxid)
{
	uint32		hash = murmurhash32((uint32) czxid ^ (uint32) (czxid >> 32));

	return &shared.buckets[hash & (count_buckets() - 1)];
}

/* Take a free entry for that backend; NULL: there is none. */
static pg_atomic_uint32 *
enter_waiter(Bucket *bucket, int procno)
{
	for (int i = 0; i < BUCKET_SIZE; i++)
	{
		uint32		expected = NO_WAITER;

		if (pg_atomic_compare_exchange_u32(&bucket->waiters[i], &expected,
										   procno + 1))
			return &bucket->waiters[i];
	}
	return NULL;
}

/* ---------------------------------------------------------------------
 * Shared memory
 * ---------------------------------------------------------------------
 */

/* What all backends can say, and the table of those that wait. */
static Size
memory_size(void)
{
	return add_size(mul_size(MaxBackends, sizeof(*shared.awaited) + sizeof(*shared.nodes)),
					mul_size(count_buckets(), sizeof(Bucket)));
}

void
zklock_handover_request_memory(void)
{
	RequestAddinShmemSpace(memory_size());
}

void
zklock_handover_make_memory(void)
{
	bool		found;

	shared.awaited = ShmemInitStruct("zklock waiters", memory_size(), &found);
	shared.buckets = (Bucket *) (shared.awaited + MaxBackends);
	shared.nodes = (void *) (shared.buckets + count_buckets());
	if (found)
		return;
	for (int i = 0; i < MaxBackends; i++)
		pg_atomic_init_u64(&shared.awaited[i], NOBODY);
	for (uint32 i = 0; i < count_buckets(); i++)
		for (int j = 0; j < BUCKET_SIZE; j++)
			pg_atomic_init_u32(&shared.buckets[i].waiters[j], NO_WAITER);
}
