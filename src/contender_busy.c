/*-------------------------------------------------------------------------
 *
 * contender_busy.c
 *	  What a contender that does not get its lock tells its client: for what
 *	  it waited, and who was in the way.
 *
 * The one rule: whoever is only trying pays nothing for this.  The error of
 * one that is past its bound costs a read at most, and REASON_MS at most.
 *
 *-------------------------------------------------------------------------
 */
#include "contender_private.h"

#include "nodedata.h"
#include "stat.h"

/*
 * How long a contender whose time is over waits to hear who holds the lock: a
 * healthy ensemble answers within milliseconds.
 */
#define REASON_MS 200

static int	errdetail_ahead(const ZkBusy *busy);

void
contender_note_busy(Standing *standing)
{
	ZkBusy	   *busy = standing->contender->busy;
	ZkClientStatus status;
	int64		deadline = 0;

	if (busy == NULL || standing->first == NULL)
		return;
	if (zklock_session_status(&status) && status.state == ZK_CLIENT_CONNECTED)
		deadline = zklock_client_now() + REASON_MS;
	busy->nahead = standing->nahead;
	busy->holder = contender_describe_holder(standing, deadline);
}

/* A line of the log has no SQLSTATE, and needs no context: it has the name. */
void
contender_add_context(void *name)
{
	if (geterrcode() != ERRCODE_SUCCESSFUL_COMPLETION)
		errcontext("while waiting for ZooKeeper lock \"%s\"",
				   (const char *) name);
}

void
zklock_contend_raise_busy(const char *name, int64 timeout_ms, bool is_known,
						  const ZkBusy *busy)
{
	zklock_stat_count(ZK_STAT_TIMEOUT);
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 timeout_ms == ZK_BY_LOCK_TIMEOUT ?
			 errmsg("canceling statement due to lock timeout") :
			 timeout_ms == 0 ?
			 errmsg("could not obtain lock \"%s\"", name) :
			 errmsg("could not obtain lock \"%s\" within " INT64_FORMAT " ms",
					name, timeout_ms),
			 is_known ? errdetail_ahead(busy) :
			 zklock_session_errdetail_silence(),
			 errcontext("while waiting for ZooKeeper lock \"%s\"", name)));
}

/*
 * Inside ereport(): the errdetail() of what is known, and for the log all of
 * it.
 */
static int
errdetail_ahead(const ZkBusy *busy)
{
	int			nahead = busy->nahead;

	if (nahead == 0)
		return 0;
	if (busy->holder != NULL)
		errdetail_log_plural("Held by %s. %d contender is ahead.",
							 "Held by %s. Up to %d contenders are ahead.",
							 nahead, busy->holder, nahead);
	if (busy->holder != NULL && zklock_nodedata_may_be_shown())
		return errdetail_plural("Held by %s. %d contender is ahead.",
								"Held by %s. Up to %d contenders are ahead.",
								nahead, busy->holder, nahead);
	return errdetail_plural("%d contender is ahead.",
							"Up to %d contenders are ahead.", nahead, nahead);
}
