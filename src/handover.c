/*-------------------------------------------------------------------------
 *
 * handover.c
 *	  Backends of one cluster hand a lock to each other directly.
 *
 * A backend that waits for a lock says in shared memory for which: the queue
 * node of the contender just ahead.  A holder that lets go of the lock looks
 * who says its own node.  If somebody does it puts TOLD in place of that and
 * sets the waiter's latch, and the waiter need not wait for the ensemble.  Why
 * that is a grant: see the head of contender_watch.c.
 *
 * The one rule: the holder always deletes its node, too, and the waiter
 * watches that node before it says so.  So a waiter that gets no message here
 * gets one from the ensemble, and no lock is needed.
 *
 * What a backend has said stays when it ends, until another one has its place
 * and waits.  Then a holder may tell nobody: the next in the queue learns it
 * from the ensemble.
 *
 *-------------------------------------------------------------------------
 */
#include "handover.h"

#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "storage/shmem.h"

#include "compat.h"
#include "recipe.h"

/* In place of a czxid: nobody waits; who waits was told. */
#define NOBODY 0
#define TOLD PG_UINT64_MAX

/*
 * In shared memory, by proc number: the czxid and the path of the node that
 * somebody waits for; NULL if the library was not preloaded.  The path alone
 * would not do: whoever may create nodes can copy the name into another queue
 * or another ensemble.  The czxid he cannot choose.  It is written last, and a
 * waiter is told only if it is the same before and after the path was read.
 */
static pg_atomic_uint64 *awaited;
static char (*nodes)[RECIPE_PATH_SIZE];

/* Has this backend said for which node it waits? */
static bool is_waiting;

void
zklock_handover_await(const char *node, int64 czxid)
{
	int			own = MyProcNumber_compat();

	zklock_handover_forget();
	if (awaited == NULL || strlen(node) >= RECIPE_PATH_SIZE)
		return;
	strcpy(nodes[own], node);
	pg_atomic_exchange_u64(&awaited[own], czxid);
	is_waiting = true;
}

bool
zklock_handover_has_told(void)
{
	return is_waiting &&
		pg_atomic_read_u64(&awaited[MyProcNumber_compat()]) == TOLD;
}

void
zklock_handover_forget(void)
{
	if (is_waiting)
		pg_atomic_exchange_u64(&awaited[MyProcNumber_compat()], NOBODY);
	is_waiting = false;
}

/*
 * Locks that are released by the end of a process are left to the ensemble: by
 * then there may be no shared memory.  If the waiter is gone, another backend
 * that has its PGPROC wakes up once for nothing.
 */
bool
zklock_handover_tell(const char *node, int64 czxid)
{
	bool		is_told = false;

	if (awaited == NULL || proc_exit_inprogress)
		return false;
	for (int i = 0; i < MaxBackends; i++)
	{
		uint64		expected = czxid;

		if (pg_atomic_read_u64(&awaited[i]) != expected)
			continue;
		pg_read_barrier();
		if (strncmp(nodes[i], node, RECIPE_PATH_SIZE) != 0 ||
			!pg_atomic_compare_exchange_u64(&awaited[i], &expected, TOLD))
			continue;
		SetLatch(&GetPGProcByNumber(i)->procLatch);
		is_told = true;
	}
	return is_told;
}

/* ---------------------------------------------------------------------
 * Shared memory
 * ---------------------------------------------------------------------
 */

/* What all backends can say. */
static Size
memory_size(void)
{
	return mul_size(MaxBackends, sizeof(*awaited) + sizeof(*nodes));
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

	awaited = ShmemInitStruct("zklock waiters", memory_size(), &found);
	nodes = (void *) (awaited + MaxBackends);
	for (int i = 0; i < MaxBackends && !found; i++)
		pg_atomic_init_u64(&awaited[i], NOBODY);
}
