/*-------------------------------------------------------------------------
 *
 * durable.c
 *	  Makes what a holder has committed safe, also on synchronous standbys,
 *	  before the next holder builds on it.
 *
 * A lock is passed on after its holder's COMMIT has returned.  So that must
 * not return before the work is as safe as synchronous_commit = on makes it.
 *
 * A lock stays while COMMIT waits for a standby, however long that takes: its
 * session lives.  A lease does not: its term goes on.  So a transaction that rests
 * on a lease waits for the standbys before its guard proves the lease, and not
 * for long.  All that is left to wait for after that is the commit record, by
 * standbys that have just answered.
 *
 * The one rule: all of this comes before the commit record is written, so it
 * may wait and raise.
 *
 *-------------------------------------------------------------------------
 */
#include "durable.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "miscadmin.h"
#include "replication/syncrep.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"
#include "storage/lwlock.h"
#include "utils/guc.h"

#include "compat.h"
#include "pause.h"
#include "protocol.h"

/*
 * The pause between two looks at what the standbys have confirmed: at first, and
 * at most.  PostgreSQL wakes only backends that are committing already, which
 * nothing but a cancel could stop any more.
 */
#define PAUSE_MIN_MS 1
#define PAUSE_MAX_MS 50

static bool is_asked_for(void);
static XLogRecPtr flush_all(void);
static bool is_confirmed(XLogRecPtr end);

/*
 * The setting ends with the transaction, as by SET LOCAL, which is after the
 * commit record.  Without a transaction id it is of no use, but what there is
 * of WAL is flushed all the same.
 */
void
zklock_durable_insist(void)
{
	Assert(IsTransactionState());
	if (synchronous_commit < SYNCHRONOUS_COMMIT_ON)
		(void) set_config_option("synchronous_commit", "on", PGC_USERSET,
								 PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0,
								 false);
	ForceSyncCommit();
}

void
zklock_durable_await_standbys(int64 most_ms)
{
	int64		deadline = protocol_now() + most_ms;
	int64		pause_ms = 0;
	XLogRecPtr	end;

	Assert(IsTransactionState());
	if (RecoveryInProgress() || max_wal_senders == 0 || !is_asked_for())
		return;
	end = flush_all();
	while (!is_confirmed(end) && is_asked_for())
	{
		int64		left_ms = deadline - protocol_now();

		if (left_ms <= 0)
			ereport(ERROR,
					(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
					 errmsg("synchronous standbys are too slow for a commit that rests on a lease"),
					 errdetail("They have not confirmed what the transaction wrote within " INT64_FORMAT " ms. The lease could end before the commit is done.",
							   most_ms),
					 errhint("Run the transaction again when the standbys answer, or with a lease of a longer term.")));
		CHECK_FOR_INTERRUPTS();
		pause_ms = pause_after(pause_ms, PAUSE_MIN_MS, PAUSE_MAX_MS);
		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 Min(left_ms, pause_ms), WAIT_EVENT_SYNC_REP);
		ResetLatch(MyLatch);
	}
}

/* On a standby nothing commits. */
void
zklock_durable_flush_commits(void)
{
	if (!RecoveryInProgress())
		(void) flush_all();
}

/*
 * Are there synchronous standbys?  What the checkpointer has read of the
 * setting counts, as it does for SyncRepWaitForLSN(): this backend reads a
 * changed setting between its client's messages only.
 */
static bool
is_asked_for(void)
{
	const volatile WalSndCtlData *shared = WalSndCtl;

	if ((shared->sync_standbys_status & SYNC_STANDBY_INIT) != 0)
		return (shared->sync_standbys_status & SYNC_STANDBY_DEFINED) != 0;
	return SyncRepStandbyNames != NULL && SyncRepStandbyNames[0] != '\0';
}

/*
 * Flush all records that have been written.  Each is ahead of the place where
 * the next record will begin, which is the result.  Where a page begins, that
 * place is behind the page's header, but there is nothing to flush of that
 * page yet.
 */
static XLogRecPtr
flush_all(void)
{
	XLogRecPtr	end = GetXLogInsertRecPtr();
	uint32		header = XLogSegmentOffset(end, wal_segment_size) < XLOG_BLCKSZ ?
		SizeOfXLogLongPHD : SizeOfXLogShortPHD;

	if (end % XLOG_BLCKSZ == header)
		end -= header;
	XLogFlush(end);
	return end;
}

/* Have as many standbys flushed that as synchronous_standby_names asks for? */
static bool
is_confirmed(XLogRecPtr end)
{
	XLogRecPtr	confirmed;

	LWLockAcquire(SyncRepLock, LW_SHARED);
	confirmed = WalSndCtl->lsn[SYNC_REP_WAIT_FLUSH];
	LWLockRelease(SyncRepLock);
	return confirmed >= end;
}
