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

/* What a look has room for; what does not fit is not seen to wait for us. */
#define PROCESSES_MAX 256
#define LINKS_MAX 2048

/* A process of this cluster. */
typedef struct Process
{
	int			pid;
	bool		waits_for_us;	/* as far as it has been found out */
} Process;

/* One waits for the other; indexes of processes. */
typedef struct Link
{
	int			from;
	int			to;
} Link;

typedef struct Chain
{
	int			nprocesses;
	int			nlinks;
	Process		processes[PROCESSES_MAX];
	Link		links[LINKS_MAX];
} Chain;

static bool is_waited_for(PROCLOCK *held);
static bool is_waiting(int pid);
static int	enter_process(Chain *chain, int pid);
static void add_blockers(Chain *chain, int from);

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

/*
 * From the candidates on, whom each waits for; then backward from us.  Each
 * process is asked for once: that takes all of PostgreSQL's lock table.
 */
List *
deadlock_local_waiters(List *candidates)
{
	Chain	   *chain = palloc0(sizeof(*chain));
	List	   *waiters = NIL;
	ListCell   *cell;
	bool		has_changed = true;

	foreach(cell, candidates)
	{
		const LocalWaiter *candidate = lfirst(cell);

		if (candidate->pid != MyProcPid && is_waiting(candidate->pid))
			enter_process(chain, candidate->pid);
	}
	for (int i = 0; i < chain->nprocesses; i++)
		add_blockers(chain, i);
	while (has_changed)
	{
		has_changed = false;
		for (int i = 0; i < chain->nlinks; i++)
		{
			const Link *link = &chain->links[i];

			if (!chain->processes[link->to].waits_for_us ||
				chain->processes[link->from].waits_for_us)
				continue;
			chain->processes[link->from].waits_for_us = true;
			has_changed = true;
		}
	}
	foreach(cell, candidates)
	{
		LocalWaiter *candidate = lfirst(cell);

		for (int i = 0; i < chain->nprocesses; i++)
			if (chain->processes[i].pid == candidate->pid &&
				chain->processes[i].waits_for_us)
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

/* The index of a process; -1 if there is no room for one more. */
static int
enter_process(Chain *chain, int pid)
{
	for (int i = 0; i < chain->nprocesses; i++)
		if (chain->processes[i].pid == pid)
			return i;
	if (chain->nprocesses == PROCESSES_MAX)
		return -1;
	chain->processes[chain->nprocesses].pid = pid;
	chain->processes[chain->nprocesses].waits_for_us = false;
	return chain->nprocesses++;
}

/* Add whom a process waits for; that it waits for us always has room. */
static void
add_blockers(Chain *chain, int from)
{
	MemoryContext scratch = AllocSetContextCreate(CurrentMemoryContext,
												  "zklock blockers",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(scratch);
	ArrayType  *blockers;
	const int32 *pids;
	int			npids;

	CHECK_FOR_INTERRUPTS();
	blockers = DatumGetArrayTypeP(DirectFunctionCall1(pg_blocking_pids,
													  Int32GetDatum(chain->processes[from].pid)));
	pids = (const int32 *) ARR_DATA_PTR(blockers);
	npids = ArrayGetNItems(ARR_NDIM(blockers), ARR_DIMS(blockers));
	for (int i = 0; i < npids; i++)
	{
		int			to;

		if (pids[i] == MyProcPid)
		{
			chain->processes[from].waits_for_us = true;
			continue;
		}
		to = enter_process(chain, pids[i]);
		if (to >= 0 && chain->nlinks < LINKS_MAX)
			chain->links[chain->nlinks++] = (Link) {from, to};
	}
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(scratch);
}
