/*-------------------------------------------------------------------------
 *
 * handover.c
 *	  Backends of one cluster hand a lock to each other directly.
 *
 * A backend that waits for a lock makes an entry in shared memory: the queue
 * node of the contender just ahead.  A holder that lets go of the lock looks
 * for an entry with its own node.  If there is one it marks the entry and sets
 * the waiter's latch, and the waiter need not wait for the ensemble.  Why that
 * is a grant: see the head of contender_watch.c.
 *
 * The one rule: the holder always deletes its node, too, and the waiter
 * watches that node before it makes the entry.  So a waiter that gets no
 * message here gets one from the ensemble.
 *
 * Each waiting backend makes and removes its own entry, which goes when the
 * backend leaves shared memory.  Nothing raises while the lock of the table is
 * held.
 *
 *-------------------------------------------------------------------------
 */
#include "handover.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "utils/hsearch.h"

#include "compat.h"
#include "recipe.h"

/*
 * The node that somebody waits for.  Its path alone would not do: whoever may
 * create nodes can copy the name into another queue or another ensemble.  The
 * czxid he cannot choose.
 */
typedef struct WaiterKey
{
	int64		czxid;
	char		node[RECIPE_PATH_SIZE];
} WaiterKey;

/* A backend that waits. */
typedef struct Waiter
{
	WaiterKey	key;
	PGPROC	   *proc;			/* whose latch is to be set */
	bool		is_told;		/* the node's owner has let go of its lock */
} Waiter;

/*
 * The table and its lock, in shared memory; NULL if the library was not
 * preloaded.  Inherited from the postmaster.
 */
static HTAB *waiters;
static LWLock *waiters_lock;

/* This backend's entry, NULL if it does not wait. */
static Waiter *own;

/* Is the callback registered that removes it? */
static bool is_exit_registered;

static bool make_key(WaiterKey *key, const char *node, int64 czxid);
static uint32 hash_key(const void *key, Size size);
static void forget_at_exit(int code, Datum arg);

bool
zklock_handover_is_shared(void)
{
	return waiters != NULL;
}

void
zklock_handover_await(const char *node, int64 czxid)
{
	WaiterKey	key;
	Waiter	   *waiter;
	bool		found;

	zklock_handover_forget();
	if (waiters == NULL || !make_key(&key, node, czxid))
		return;

	/*
	 * Not before_shmem_exit(): PG_ENSURE_ERROR_CLEANUP, in which zk_hold()
	 * waits, demands that its own callback be the latest of those at its end.
	 * This comes after the transaction was aborted, while there is still a
	 * PGPROC, for whatever was registered last is called first.
	 */
	if (!is_exit_registered)
	{
		on_shmem_exit(forget_at_exit, 0);
		is_exit_registered = true;
	}
	LWLockAcquire(waiters_lock, LW_EXCLUSIVE);
	waiter = hash_search(waiters, &key, HASH_ENTER_NULL, &found);

	/* only one can be next to a node; if it is not us, let it be */
	if (waiter != NULL && !found)
	{
		waiter->proc = MyProc;
		waiter->is_told = false;
		own = waiter;
	}
	LWLockRelease(waiters_lock);
}

bool
zklock_handover_has_told(void)
{
	bool		is_told;

	if (own == NULL)
		return false;
	LWLockAcquire(waiters_lock, LW_SHARED);
	is_told = own->is_told;
	LWLockRelease(waiters_lock);
	return is_told;
}

void
zklock_handover_forget(void)
{
	if (own == NULL)
		return;
	LWLockAcquire(waiters_lock, LW_EXCLUSIVE);
	hash_search(waiters, &own->key, HASH_REMOVE, NULL);
	LWLockRelease(waiters_lock);
	own = NULL;
}

/*
 * Locks that are released by the end of a process are left to the ensemble: by
 * then there may be no PGPROC, which waiting for the lock of the table needs.
 * A waiter that comes just after the table was found empty is left to it, too.
 *
 * The latch is set after the lock was released.  Setting it is a system call;
 * a process that is stopped in it (SIGSTOP, a debugger) would block all
 * backends of the cluster that wait for locks.  If the waiter is gone by then,
 * another backend that has its PGPROC wakes up once for nothing.
 */
bool
zklock_handover_tell(const char *node, int64 czxid)
{
	WaiterKey	key;
	Waiter	   *waiter;
	PGPROC	   *told = NULL;

	if (waiters == NULL || hash_get_num_entries(waiters) == 0 ||
		proc_exit_inprogress || MyProc == NULL ||
		!make_key(&key, node, czxid))
		return false;
	LWLockAcquire(waiters_lock, LW_EXCLUSIVE);
	waiter = hash_search(waiters, &key, HASH_FIND, NULL);
	if (waiter != NULL)
	{
		waiter->is_told = true;
		told = waiter->proc;
	}
	LWLockRelease(waiters_lock);
	if (told != NULL)
		SetLatch(&told->procLatch);
	return told != NULL;
}

/*
 * The padding is zeroed, for all bytes are compared. false for a path that is
 * too long.
 */
static bool
make_key(WaiterKey *key, const char *node, int64 czxid)
{
	memset(key, 0, sizeof(*key));
	key->czxid = czxid;
	return strlcpy(key->node, node, sizeof(key->node)) < sizeof(key->node);
}

/* The czxid tells nodes of one ensemble apart, and is a hundredth of the key. */
static uint32
hash_key(const void *key, Size size)
{
	return tag_hash(&((const WaiterKey *) key)->czxid, sizeof(int64));
}

/* ---------------------------------------------------------------------
 * Shared memory
 * ---------------------------------------------------------------------
 */

void
zklock_handover_request_memory(void)
{
	RequestAddinShmemSpace(hash_estimate_size(MaxBackends, sizeof(Waiter)));
	RequestNamedLWLockTranche("zklock", 1);
}

void
zklock_handover_make_memory(void)
{
	HASHCTL		control = {0};

	control.keysize = sizeof(WaiterKey);
	control.entrysize = sizeof(Waiter);
	control.hash = hash_key;
	waiters = ShmemInitHash_compat("zklock waiters", MaxBackends, &control,
								   HASH_ELEM | HASH_FUNCTION | HASH_FIXED_SIZE);
	waiters_lock = &GetNamedLWLockTranche("zklock")->lock;
}

static void
forget_at_exit(int code, Datum arg)
{
	zklock_handover_forget();
}
