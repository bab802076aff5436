/*-------------------------------------------------------------------------
 *
 * deadlock_local.c
 *	  Who waits for this backend in PostgreSQL's own lock manager.
 *
 * A backend that waits for a ZooKeeper lock looks here every now and then, so
 * the first look is at its own locks alone: as a rule nobody waits for these.
 *
 *-------------------------------------------------------------------------
 */
#include "deadlock_private.h"

#include "miscadmin.h"
#include "storage/lock.h"
#include "storage/lmgr.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/array.h"
#include "utils/fmgrprotos.h"

#include "board.h"

/* So many processes are looked at to find out whom one waits for. */
#define CHAIN_MAX 64

static bool is_waited_for(PROCLOCK *held);
static bool is_waiting(int pid);
static bool waits_for_us(int pid);
static int	add_blockers(int pid, int *chain, int nchain);

/* Each partition of the lock table has a list of ours. */
bool
deadlock_is_waited_for(void)
{
	for (int i = 0; i < NUM_LOCK_PARTITIONS; i++)
	{
		LWLock	   *lock = LockHashPartitionLockByIndex(i);
		bool		is_found = false;

		/* nobody but us adds to it, or takes from it */
		if (proc_locks_are_empty_compat(MyProc, i))
			continue;
		LWLockAcquire(lock, LW_SHARED);
		foreach_proc_lock_compat(held, MyProc, i)
			is_found |= is_waited_for(held);
		LWLockRelease(lock);
		if (is_found)
			return true;
	}
	return false;
}

List *
deadlock_local_candidates(void)
{
	ZkBoardRow *row = palloc(sizeof(*row));
	List	   *candidates = NIL;

	for (int i = 0; i < zklock_board_size(); i++)
	{
		LocalWaiter *candidate;

		if (!zklock_board_read(i, row) || row->session_id == 0)
			continue;
		candidate = palloc0(sizeof(*candidate));
		candidate->pid = row->pid;
		candidate->session = row->session_id;
		candidates = lappend(candidates, candidate);
	}
	pfree(row);
	return candidates;
}

List *
deadlock_local_waiters(List *candidates)
{
	List	   *waiters = NIL;
	ListCell   *cell;

	foreach(cell, candidates)
	{
		LocalWaiter *candidate = lfirst(cell);

		CHECK_FOR_INTERRUPTS();
		if (candidate->pid != MyProcPid && is_waiting(candidate->pid) &&
			waits_for_us(candidate->pid))
			waiters = lappend(waiters, candidate);
	}
	return waiters;
}

/* Reads the whole lock table, so it is for what is news. */
char *
deadlock_describe_wait(int pid)
{
	LockData   *locks = GetLockStatusData();
	StringInfoData text;

	initStringInfo(&text);
	for (int i = 0; i < locks->nelements; i++)
	{
		LockInstanceData *lock = &locks->locks[i];

		if (lock->pid != pid || lock->waitLockMode == NoLock)
			continue;
		appendStringInfo(&text, "%s on ",
						 GetLockmodeName(lock->locktag.locktag_lockmethodid,
										 lock->waitLockMode));
		DescribeLockTag(&text, &lock->locktag);
		break;
	}
	return text.data;
}

/* Has somebody asked for more of that lock than is granted? */
static bool
is_waited_for(PROCLOCK *held)
{
	const LOCK *lock = held->tag.myLock;

	return lock->nRequested > lock->nGranted;
}

/* Without a lock: if it waits for long, the next look sees it. */
static bool
is_waiting(int pid)
{
	const PGPROC *proc = BackendPidGetProc(pid);

	return proc != NULL && proc->waitStatus == PROC_WAIT_STATUS_WAITING;
}

/* Does it wait for this backend, or for one that does, and so on? */
static bool
waits_for_us(int pid)
{
	int			chain[CHAIN_MAX];
	int			nchain = 1;

	chain[0] = pid;
	for (int i = 0; i < nchain; i++)
	{
		nchain = add_blockers(chain[i], chain, nchain);
		for (int j = i + 1; j < nchain; j++)
			if (chain[j] == MyProcPid)
				return true;
	}
	return false;
}

/* Add whom a process waits for, as far as they are new and there is room. */
static int
add_blockers(int pid, int *chain, int nchain)
{
	ArrayType  *blockers =
		DatumGetArrayTypeP(DirectFunctionCall1(pg_blocking_pids,
											   Int32GetDatum(pid)));
	const int32 *pids = (const int32 *) ARR_DATA_PTR(blockers);
	int			npids = ArrayGetNItems(ARR_NDIM(blockers), ARR_DIMS(blockers));

	for (int i = 0; i < npids && nchain < CHAIN_MAX; i++)
	{
		bool		is_known = false;

		for (int j = 0; j < nchain; j++)
			is_known |= chain[j] == pids[i];
		if (!is_known)
			chain[nchain++] = pids[i];
	}
	pfree(blockers);
	return nchain;
}
