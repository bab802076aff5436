/*-------------------------------------------------------------------------
 *
 * ready.c
 *	  The list of sessions that are connected before a backend needs one.
 *
 * In shared memory.  It is changed by the worker (ready_worker.c) and by
 * backends, which take one off; nothing that raises stands between taking and
 * giving back its lock.
 *
 * The one rule: a ready session is a convenience.  Whatever is wrong with it,
 * the backend starts one of its own, as it would have without.
 *
 *-------------------------------------------------------------------------
 */
#include "ready.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

/* In shared memory. */
typedef struct ReadyList
{
	int			worker_pid;		/* 0: it does not run */
	int			nready;
	ZkReady		ready[FLEXIBLE_ARRAY_MEMBER];
} ReadyList;

/* NULL: there is none. */
static ReadyList *list;
static LWLock *list_lock;

static shmem_request_hook_type previous_request_hook;
static shmem_startup_hook_type previous_startup_hook;

static void request_memory(void);
static void make_list(void);
static Size list_size(void);

void
zklock_ready_init(void)
{
	previous_request_hook = shmem_request_hook;
	shmem_request_hook = request_memory;
	previous_startup_hook = shmem_startup_hook;
	shmem_startup_hook = make_list;
}

bool
zklock_ready_take(uint64 settings, ZkReady *taken)
{
	bool		found = false;

	if (list == NULL || list->nready == 0)
		return false;
	LWLockAcquire(list_lock, LW_EXCLUSIVE);
	for (int i = list->nready - 1; i >= 0 && !found; i--)
	{
		if (list->ready[i].settings != settings)
			continue;
		found = true;
		*taken = list->ready[i];
		list->ready[i] = list->ready[--list->nready];
	}
	LWLockRelease(list_lock);
	return found;
}

int
zklock_ready_count(int *worker_pid)
{
	int			nready;

	*worker_pid = 0;
	if (list == NULL)
		return 0;
	LWLockAcquire(list_lock, LW_SHARED);
	nready = list->nready;
	*worker_pid = list->worker_pid;
	LWLockRelease(list_lock);
	return nready;
}

void
zklock_ready_put(const ZkReady *ready)
{
	LWLockAcquire(list_lock, LW_EXCLUSIVE);
	if (list->nready < ZK_READY_MAX)
		list->ready[list->nready++] = *ready;
	LWLockRelease(list_lock);
}

void
zklock_ready_withdraw(const char *name)
{
	LWLockAcquire(list_lock, LW_EXCLUSIVE);
	for (int i = 0; i < list->nready; i++)
		if (strcmp(list->ready[i].name, name) == 0)
			list->ready[i] = list->ready[--list->nready];
	LWLockRelease(list_lock);
}

void
zklock_ready_clear(int worker_pid)
{
	LWLockAcquire(list_lock, LW_EXCLUSIVE);
	list->nready = 0;
	list->worker_pid = worker_pid;
	LWLockRelease(list_lock);
}

static Size
list_size(void)
{
	return offsetof(ReadyList, ready) + ZK_READY_MAX * sizeof(ZkReady);
}

static void
request_memory(void)
{
	if (previous_request_hook != NULL)
		previous_request_hook();
	RequestAddinShmemSpace(list_size());
	RequestNamedLWLockTranche("zklock ready", 1);
}

static void
make_list(void)
{
	bool		found;

	if (previous_startup_hook != NULL)
		previous_startup_hook();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	list = ShmemInitStruct("zklock ready sessions", list_size(), &found);
	if (!found)
		memset(list, 0, list_size());
	list_lock = &GetNamedLWLockTranche("zklock ready")->lock;
	LWLockRelease(AddinShmemInitLock);
}
