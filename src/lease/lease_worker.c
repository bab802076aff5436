/*-------------------------------------------------------------------------
 *
 * lease_worker.c
 *	  The background worker that deletes leases whose term is over: its
 *	  rounds, and when it has a session.
 *
 * A contender of zklock deletes the leases ahead of it whose term is over.
 * Another ZooKeeper client that waits behind such a lease would wait for ever.
 * So each cluster has a worker that looks at all leases now and then
 * (lease_sweep.c).
 *
 * It works in rounds.  First it tells sessions of what they have lost, as far
 * as this cluster knows (loss_notice.c): that needs no ensemble.  Then it looks
 * at leases, then it asks for more losses, each for a while: whatever there is
 * to do, the next round begins soon, and goes on where this one stopped.
 *
 * It has a session as long as there is something to ask: names of locks below
 * one of its roots, or locks of sessions with a zklock.loss_channel.  Where no
 * names are left, a backend of this cluster wakes the worker when it has written
 * one (lease_roots.c).  What others write nobody tells: so it looks below its
 * roots now and then, in a session of a moment.
 *
 *-------------------------------------------------------------------------
 */
#include "lease_sweep.h"

#include "access/xact.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "utils/guc.h"

#include "compat.h"
#include "lease_roots.h"
#include "pause.h"
#include "session.h"
#include "brief_worker.h"

#define WORKER_NAME "zklock lease worker"

/* How long a round begins after the one before, at most and at least. */
#define ROUND_MS 5000
#define ROUND_MIN_MS 500

/* How long a round looks at leases, and how long it asks for losses. */
#define SLICE_MS 1500

/* How long after an error, at first and at most. */
#define RETRY_MIN_MS 1000
#define RETRY_MAX_MS 5000

/* How long without servers, and to wait for the end of a session. */
#define IDLE_MS 30000
#define CLOSE_MS 1000

/* How a step of a round ended. */
typedef enum StepEnd
{
	STEP_OVER,					/* nothing was left to do */
	STEP_UNFINISHED,			/* its time was over first */
	STEP_SILENT,				/* nobody has answered */
	STEP_FAILED					/* by an error */
} StepEnd;

/* One step of a round, until that time. */
typedef StepEnd (*StepWork) (int64 until);

/* The worker, in its own process. */
static struct
{
	bool		is_failing;		/* the log knows that something went wrong,
								 * and no round has gone well since */
	int64		retry_ms;		/* how long after the last failure; 0: none */
}			Worker;

/*
 * zklock.lease_worker: has this cluster such a worker?  It has a ZooKeeper
 * session of its own.
 */
static bool lease_worker;

static int64 do_round(void);
static int64 pause_after_failure(void);
static int64 pause_until_next(void);
static StepEnd do_step(StepWork work, int64 until);
static void report_silence(void);
static StepEnd tell_known(int64 until);
static StepEnd sweep_leases(int64 until);
static StepEnd ask_for_losses(int64 until);

PGDLLEXPORT void zk_lease_worker(Datum argument);

void
zklock_lease_worker_init(void)
{
	BackgroundWorker worker = {
		.bgw_name = WORKER_NAME,
		.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION,
		.bgw_start_time = BgWorkerStart_ConsistentState,
		.bgw_restart_time = RETRY_MAX_MS / 1000,
		.bgw_library_name = "zklock",
		.bgw_function_name = "zk_lease_worker"
	};

	DefineCustomBoolVariable("zklock.lease_worker",
							 "Removes leases whose term is over, also where only other clients wait.",
							 "The worker has a ZooKeeper session while there are leases, and for a moment every five minutes.",
							 &lease_worker, true,
							 PGC_SIGHUP, 0,
							 NULL, NULL, NULL);
	RegisterBackgroundWorker(&worker);
	if (!is_worker_registered_compat(WORKER_NAME))
		zklock_worker_log_no_slot(WORKER_NAME,
								  "leases whose term is over may stay, and no session is told of locks that it has lost");
}

/* Without a database: it stands in the way of no DROP DATABASE. */
void
zk_lease_worker(Datum argument)
{
	int64		wait_ms = 0;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, zklock_worker_handle_shutdown);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	SetDatabaseEncoding(PG_UTF8);	/* of what it reads in znodes */

	/* what it remembers from round to round is of one session */
	SetConfigOption("zklock.idle_timeout", "0", PGC_USERSET, PGC_S_OVERRIDE);
	while (!ShutdownRequestPending)
	{
		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 wait_ms, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		HOLD_CANCEL_INTERRUPTS();
		CHECK_FOR_INTERRUPTS();
		RESUME_CANCEL_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
			zklock_lease_sweep_begin_anew();
		}
		if (lease_worker && zklock_session_servers()[0] != '\0')
			wait_ms = do_round();
		else
		{
			zklock_session_close(CLOSE_MS);
			zklock_lease_sweep_begin_anew();
			wait_ms = IDLE_MS;
		}
	}
	proc_exit(1);				/* with 0 it would not be started again */
}

/*
 * Do a round.  Result: how long to wait for the next one.  Where nobody answers
 * that has taken a while already.
 */
static int64
do_round(void)
{
	StepEnd		known = do_step(tell_known, ZK_NO_DEADLINE);
	StepEnd		sweep = do_step(sweep_leases, protocol_now() + SLICE_MS);
	StepEnd		losses = STEP_OVER;

	if (sweep == STEP_SILENT && !zklock_session_is_connected())
		return RETRY_MIN_MS;
	if (known != STEP_FAILED && sweep != STEP_FAILED &&
		zklock_loss_notice_is_wanted())
		losses = do_step(ask_for_losses, protocol_now() + SLICE_MS);
	if (known == STEP_FAILED || sweep == STEP_FAILED ||
		losses == STEP_FAILED || sweep == STEP_SILENT)
		return pause_after_failure();
	Worker.retry_ms = 0;
	Worker.is_failing = false;
	if (losses == STEP_UNFINISHED)
		return ROUND_MIN_MS;
	return pause_until_next();
}

/* Longer after each failure. */
static int64
pause_after_failure(void)
{
	Worker.retry_ms = pause_after(Worker.retry_ms, RETRY_MIN_MS,
								  RETRY_MAX_MS);
	return Worker.retry_ms;
}

/* All is done for now.  Without leases the worker needs no session for them. */
static int64
pause_until_next(void)
{
	if (zklock_lease_sweep_is_idle())
	{
		if (!zklock_lease_roots_sleep())
		{
			zklock_lease_sweep_begin_anew();	/* a name was written */
			return ROUND_MIN_MS;
		}
		zklock_lease_sweep_rest();
		if (!zklock_loss_notice_is_wanted())
			zklock_session_close(CLOSE_MS);
	}
	return Max(ROUND_MIN_MS,
			   Min(ROUND_MS, zklock_lease_sweep_next_at() - protocol_now()));
}

/*
 * Do a step in a transaction of its own.  An error is logged unless one was
 * before, and no round has gone well since, or the worker is to end.  So is the
 * silence of the ensemble.  What is palloc'ed ends with the transaction.
 */
static StepEnd
do_step(StepWork work, int64 until)
{
	volatile StepEnd end = STEP_FAILED;

	PG_TRY();
	{
		StepEnd		done;

		StartTransactionCommand();
		done = work(until);
		CommitTransactionCommand();
		end = done;
	}
	PG_CATCH();
	{
		HOLD_INTERRUPTS();
		if (!Worker.is_failing && !ShutdownRequestPending)
			EmitErrorReport();
		Worker.is_failing = true;
		AbortCurrentTransaction();
		FlushErrorState();
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
	if (end == STEP_SILENT && !Worker.is_failing)
	{
		Worker.is_failing = true;
		report_silence();
	}
	return end;
}

/* No error, for the session goes on, and tries to connect. */
static void
report_silence(void)
{
	ereport(LOG,
			(errmsg("the lease worker gets no answer from ZooKeeper"),
			 zklock_session_explain_silence()));
}

/* ---------------------------------------------------------------------
 * The steps
 * ---------------------------------------------------------------------
 */

static StepEnd
tell_known(int64 until)
{
	return zklock_loss_notice_send(false, until) ? STEP_OVER : STEP_UNFINISHED;
}

static StepEnd
sweep_leases(int64 until)
{
	return zklock_lease_sweep(until) == ZK_ANSWERED ? STEP_OVER : STEP_SILENT;
}

static StepEnd
ask_for_losses(int64 until)
{
	return zklock_loss_notice_send(true, until) ? STEP_OVER : STEP_UNFINISHED;
}
