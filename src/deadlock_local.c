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

#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "storage/lmgr.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/array.h"
#include "utils/fmgrprotos.h"

#include "board.h"

/* Most processes that one check asks PostgreSQL for. */
#define PROCESSES_MAX 256

/* A process of this cluster whose wait was looked at, or is. */
typedef struct Process
{
	int			pid;
	bool		waits_for_us;	/* as far as it has been found out */
} Process;

/* The processes of one check. */
typedef struct Chain
{
	int			nprocesses;
	Process		processes[PROCESSES_MAX];
} Chain;

static bool is_waited_for(PROCLOCK *held);
static bool is_waiting(int pid);
static bool waits_for_us(Chain *chain, int pid);

/* Each partition of the lock table has a list of ours. */
bool
deadlock_is_waited_for(void)
{
	for (int i = 0; i < NUM_LOCK_PARTITIONS; i++)
	{
		LWLock	   *lock = LockHashPartitionLockByIndex(i);
		bool		is_found = false;

		/* what others transfer to it the next look sees */
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

		if (!zklock_board_read(i, row) || row->session_id == 0 ||
			row->nheld == 0 || row->pid == MyProcPid)
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
	Chain	   *chain = palloc0(sizeof(*chain));
	List	   *waiters = NIL;
	ListCell   *cell;

	foreach(cell, candidates)
	{
		LocalWaiter *candidate = lfirst(cell);

		if (candidate->pid != MyProcPid && is_waiting(candidate->pid) &&
			waits_for_us(chain, candidate->pid))
			waiters = lappend(waiters, candidate);
	}
	return waiters;
}

/* Reads the whole lock table, once for a look. */
char *
deadlock_describe_wait(int pid, LockData **locks)
{
	StringInfoData text;

	if (*locks == NULL)
		*locks = GetLockStatusData();
	initStringInfo(&text);
	for (int i = 0; i < (*locks)->nelements; i++)
	{
		LockInstanceData *lock = &(*locks)->locks[i];

		if (lock->leaderPid != pid || lock->waitLockMode == NoLock)
			continue;
		appendStringInfo(&text, "%s on ",
						 GetLockmodeName(lock->locktag.locktag_lockmethodid,
										 lock->waitLockMode));
		DescribeLockTag(&text, &lock->locktag);
		break;
	}
	return pg_server_to_any(text.data, text.len, PG_UTF8);
}

/* Has somebody asked for more of that lock than is granted? */
static bool
is_waited_for(PROCLOCK *held)
{
	const LOCK *lock = held->tag.myLock;

	return lock->nRequested > lock->nGranted;
}

/*
 * Does it wait, or one of its parallel workers?  What is read is of no
 * moment: if it waits for long, the next look sees it.
 */
static bool
is_waiting(int pid)
{
	PGPROC	   *proc = BackendPidGetProc(pid);
	LWLock	   *lock;
	bool		is_found;
	dlist_iter	member;

	if (proc == NULL)
		return false;
	is_found = proc->waitStatus == PROC_WAIT_STATUS_WAITING;
	if (is_found || proc->lockGroupLeader != proc)
		return is_found;
	lock = LockHashPartitionLockByProc(proc);
	LWLockAcquire(lock, LW_SHARED);
	dlist_foreach(member, &proc->lockGroupMembers)
		is_found |= dlist_container(PGPROC, lockGroupLink,
									member.cur)->waitStatus ==
		PROC_WAIT_STATUS_WAITING;
	LWLockRelease(lock);
	return is_found;
}

/*
 * Does that process wait for this backend, or for one that does?  Each is
 * asked for once, for that takes all of PostgreSQL's lock table; in a cycle
 * without us, which PostgreSQL ends itself, the one that it began with counts
 * as not waiting for us.
 */
static bool
waits_for_us(Chain *chain, int pid)
{
	Process    *process = &chain->processes[chain->nprocesses];
	ArrayType  *blockers;
	const int32 *pids;
	int			npids;

	check_stack_depth();
	CHECK_FOR_INTERRUPTS();
	for (int i = 0; i < chain->nprocesses; i++)
		if (chain->processes[i].pid == pid)
			return chain->processes[i].waits_for_us;
	if (chain->nprocesses == PROCESSES_MAX)
		return false;
	chain->nprocesses++;
	process->pid = pid;
	blockers = DatumGetArrayTypeP(DirectFunctionCall1(pg_blocking_pids,
													  Int32GetDatum(pid)));
	pids = (const int32 *) ARR_DATA_PTR(blockers);
	npids = ArrayGetNItems(ARR_NDIM(blockers), ARR_DIMS(blockers));
	for (int i = 0; i < npids && !process->waits_for_us; i++)
		process->waits_for_us = pids[i] == MyProcPid ||
			waits_for_us(chain, pids[i]);
	return process->waits_for_us;
}
