/*-------------------------------------------------------------------------
 *
 * deadlock_local.c
 *	  Finds the processes that wait for this backend in PostgreSQL.
 *
 * The first look is at this backend's own locks alone: as a rule nobody waits
 * for these.  Only then all of PostgreSQL's lock table is read.
 *
 *-------------------------------------------------------------------------
 */
#include "deadlock_private.h"

#include "access/xact.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "nodes/bitmapset.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/array.h"
#include "utils/fmgrprotos.h"
#include "utils/wait_event.h"

#include "board.h"
#include "compat.h"

static bool waits_for_us(int pid, Bitmapset **asked, Bitmapset **stuck);
static bool is_waited_for(void);
static List *local_candidates(void);
static bool waits_for_snapshot(int pid);
static ArrayType *ask_blockers(int pid);

List *
deadlock_local_waiters(void)
{
	Bitmapset  *asked = bms_make_singleton(MyProcPid);
	Bitmapset  *stuck = bms_copy(asked);
	List	   *waiters = NIL;

	if (!is_waited_for())
		return NIL;
	foreach_ptr(LocalWaiter, candidate, local_candidates())
		if (waits_for_us(candidate->pid, &asked, &stuck))
			waiters = lappend(waiters, candidate);
	return waiters;
}

/*
 * Does that process wait for this backend, or for one that does?  Each is
 * asked for once, for that takes all of PostgreSQL's lock table, and no more of
 * them than it takes: of a crowd that waits for one row each waits for all
 * ahead of it.  In a cycle without us, which PostgreSQL ends itself, one may
 * count as not waiting for us.
 */
static bool
waits_for_us(int pid, Bitmapset **asked, Bitmapset **stuck)
{
	ArrayType  *blockers;
	const int32 *pids;
	int			npids;

	check_stack_depth();
	CHECK_FOR_INTERRUPTS();
	if (bms_is_member(pid, *asked))
		return bms_is_member(pid, *stuck);
	*asked = bms_add_member(*asked, pid);
	blockers = ask_blockers(pid);
	pids = (const int32 *) ARR_DATA_PTR(blockers);
	npids = ArrayGetNItems(ARR_NDIM(blockers), ARR_DIMS(blockers));
	for (int i = 0; i < npids; i++)
	{
		if (!waits_for_us(pids[i], asked, stuck))
			continue;
		*stuck = bms_add_member(*stuck, pid);
		return true;
	}
	return false;
}

/*
 * May anybody wait in PostgreSQL for this backend?  That is no more than a look
 * at its own locks: each partition of the lock table has a list of them.  No
 * lock tells who waits for the end of a SERIALIZABLE transaction, so there
 * somebody may.
 */
static bool
is_waited_for(void)
{
	if (IsolationIsSerializable())
		return true;
	for (int i = 0; i < NUM_LOCK_PARTITIONS; i++)
	{
		LWLock	   *lock = LockHashPartitionLockByIndex(i);
		bool		is_found = false;

		/* what others transfer to it the next look sees */
		if (next_proc_lock_compat(MyProc, i, NULL) == NULL)
			continue;
		LWLockAcquire(lock, LW_SHARED);
		/* has somebody asked for more than is granted? */
		foreach_proc_lock_compat(held, MyProc, i)
			is_found |= held->tag.myLock->nRequested > held->tag.myLock->nGranted;
		LWLockRelease(lock);
		if (is_found)
			return true;
	}
	return false;
}

/* The other backends of this cluster that hold locks: a list of LocalWaiter. */
static List *
local_candidates(void)
{
	List	   *candidates = NIL;
	ZkBoardRow	row;

	for (int i = 0; i < zklock_board_size(); i++)
	{
		LocalWaiter *candidate;

		if (!zklock_board_read(i, &row) || row.session.id == 0 ||
			row.nheld == 0 || row.pid == MyProcPid)
			continue;
		candidate = palloc(sizeof(*candidate));
		candidate->pid = row.pid;
		candidate->session = row.session.id;
		candidates = lappend(candidates, candidate);
	}
	return candidates;
}

/* Reads the whole lock table. */
char *
deadlock_describe_wait(int pid)
{
	StringInfoData text;
	LockData   *locks;

	if (waits_for_snapshot(pid))
		return pstrdup("a safe snapshot");
	locks = GetLockStatusData();
	initStringInfo(&text);
	for (int i = 0; i < locks->nelements; i++)
	{
		LockInstanceData *lock = &locks->locks[i];

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

/*
 * Does it wait until its SERIALIZABLE READ ONLY DEFERRABLE transaction can
 * have a snapshot that is safe?  That is no lock.
 */
static bool
waits_for_snapshot(int pid)
{
	const PGPROC *proc = BackendPidGetProc(pid);

	return proc != NULL &&
		*(const volatile uint32 *) &proc->wait_event_info ==
		WAIT_EVENT_SAFE_SNAPSHOT;
}

/* For which processes does that one wait?  They are integers. */
static ArrayType *
ask_blockers(int pid)
{
	PGFunction	ask = pg_blocking_pids;

	if (waits_for_snapshot(pid))
		ask = pg_safe_snapshot_blocking_pids;
	return DatumGetArrayTypeP(DirectFunctionCall1(ask, Int32GetDatum(pid)));
}
