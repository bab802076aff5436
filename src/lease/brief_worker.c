/*-------------------------------------------------------------------------
 *
 * brief_worker.c
 *	  Starts short-lived background workers for the lease worker.
 *
 *-------------------------------------------------------------------------
 */
#include "brief_worker.h"

#include "access/xact.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
#include "utils/memutils.h"

#include "compat.h"
#include "protocol.h"
#include "session.h"

#define REPLY_MS 5000

bool
zklock_worker_runs(const ZkWorker *worker)
{
	pid_t		pid;

	return worker->handle != NULL &&
		GetBackgroundWorkerPid(worker->handle, &pid) != BGWH_STOPPED;
}

bool
zklock_worker_start(ZkWorker *worker, Datum argument)
{
	BackgroundWorker order = {
		.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION,
		.bgw_start_time = BgWorkerStart_RecoveryFinished,
		.bgw_restart_time = BGW_NEVER_RESTART,
		.bgw_library_name = "zklock",
		.bgw_main_arg = argument
	};
	MemoryContext caller = MemoryContextSwitchTo(TopMemoryContext);
	bool		was_refused = worker->is_refused;

	strlcpy(order.bgw_name, worker->name, sizeof(order.bgw_name));
	strlcpy(order.bgw_function_name, worker->function,
			sizeof(order.bgw_function_name));
	if (worker->handle != NULL)
		pfree(worker->handle);
	worker->is_refused = !RegisterDynamicBackgroundWorker(&order,
														  &worker->handle);
	MemoryContextSwitchTo(caller);
	if (!worker->is_refused)
		return true;
	worker->handle = NULL;
	if (!was_refused)
		zklock_worker_log_no_slot(worker->name, worker->purpose);
	return false;
}

void
zklock_worker_serve(Datum database, int flags, void (*work) (void),
					void (*rest) (void))
{
	pqsignal(SIGTERM, zklock_worker_handle_shutdown);
	BackgroundWorkerUnblockSignals();
	PG_TRY();
	{
		BackgroundWorkerInitializeConnectionByOid(DatumGetObjectId(database),
												  InvalidOid, flags);
		SetCurrentStatementStartTimestamp();
		StartTransactionCommand();
		work();
		CommitTransactionCommand();
		if (rest != NULL)
			rest();
	}
	PG_CATCH();
	{
		if (!ShutdownRequestPending)
			PG_RE_THROW();
		proc_exit(0);
	}
	PG_END_TRY();
}

void
zklock_worker_handle_shutdown(SIGNAL_ARGS)
{
	SignalHandlerForShutdownRequest(SIGNAL_ARGS_HANDED_ON);
	StatementCancelHandler(SIGNAL_ARGS_HANDED_ON);
}

int64
zklock_worker_deadline(void)
{
	int64		now = protocol_now();

	return Min(now + REPLY_MS, zklock_session_reply_deadline(now));
}

void
zklock_worker_log_no_slot(const char *name, const char *purpose)
{
	ereport(LOG,
			(errmsg("there is no slot for the background worker \"%s\"", name),
			 errdetail("Without it, %s.", purpose),
			 errhint("Increase \"%s\", and restart PostgreSQL.", "max_worker_processes")));
}
