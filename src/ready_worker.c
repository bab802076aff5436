/*-------------------------------------------------------------------------
 *
 * ready_worker.c
 *	  The background worker that keeps sessions ready for backends.
 *
 * It starts programs for sessions as a backend does, with the settings of
 * postgresql.conf.  Once such a session is connected, its program listens at
 * a name that nobody can guess, and the name is put in the list of ready.c.
 * A backend whose settings are the same takes it from there and goes to the
 * program, which is its own from then on (program_ready.c).
 *
 *-------------------------------------------------------------------------
 */
#include "ready_worker.h"

#include <signal.h>
#include <sys/wait.h>

#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

#include "client.h"
#include "ready.h"
#include "session.h"

/* Name of the function that runs the worker. */
#define WORKER_FUNCTION "zklock_ready_worker_main"

/* How long the worker waits after a session could not be had, or was lost. */
#define RETRY_MS 1000

/*
 * How long after one was taken.  The start of a program costs a processor a
 * millisecond, and two that the server would need for the taker's first lock:
 * it should have that by then.  (Seen with perf sched: the server's log
 * thread waited for 1.25 ms behind it.)
 */
#define REFILL_MS 20

/*
 * When the worker is started again after an error, a bad setting for example.
 */
#define WORKER_RESTART_S 5

/* A session on its way to be ready, or that is. */
typedef struct Prepared
{
	ZkClient   *client;			/* NULL: none, and not before this time */
	int64		begin_at;
	bool		is_listed;
	ZkReady		ready;
} Prepared;

/*
 * zklock.ready_sessions: how many connected sessions are kept for backends
 * that need one.  Each costs a process and what a session costs the ensemble.
 * Without any when the server starts there is no worker to heed a later
 * change.
 */
static int	ready_sessions;

static void maintain(Prepared *prepared);
static void put_in_list(Prepared *prepared);
static void take_from_list(Prepared *prepared);
static void close_all(Prepared *prepared);
static void wait_for_news(Prepared *prepared);
static long until_next(const Prepared *prepared);
static void reap_programs(void);
static void leave_list(int code, Datum arg);
static void wake_worker(SIGNAL_ARGS);

void
zklock_ready_worker_init(void)
{
	BackgroundWorker worker = {0};

	DefineCustomIntVariable("zklock.ready_sessions",
							"Connected ZooKeeper sessions kept for backends that need one.",
							"Only if zklock is in shared_preload_libraries, and if it is not 0 when the server starts.",
							&ready_sessions, 0, 0, ZK_READY_MAX,
							PGC_SIGHUP, 0,
							NULL, NULL, NULL);
	if (!process_shared_preload_libraries_in_progress || ready_sessions == 0)
		return;
	zklock_ready_init();

	strlcpy(worker.bgw_name, "zklock ready sessions", BGW_MAXLEN);
	strlcpy(worker.bgw_type, "zklock ready sessions", BGW_MAXLEN);
	strlcpy(worker.bgw_library_name, "zklock", BGW_MAXLEN);
	strlcpy(worker.bgw_function_name, WORKER_FUNCTION, BGW_MAXLEN);
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS;
	worker.bgw_start_time = BgWorkerStart_PostmasterStart;
	worker.bgw_restart_time = WORKER_RESTART_S;
	RegisterBackgroundWorker(&worker);
}

/*
 * Its programs are children of the worker, those that backends have taken,
 * too, so it reaps whatever child has ended.
 */
void
zklock_ready_worker_main(Datum arg)
{
	Prepared   *prepared;
	MemoryContext context = AllocSetContextCreate(TopMemoryContext,
												  "zklock ready sessions",
												  ALLOCSET_SMALL_SIZES);

	pqsignal(SIGTERM, die);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGCHLD, wake_worker);
	BackgroundWorkerUnblockSignals();
	prepared = MemoryContextAllocZero(TopMemoryContext,
									  ZK_READY_MAX * sizeof(*prepared));
	before_shmem_exit(leave_list, 0);
	zklock_ready_clear(MyProcPid);

	for (;;)
	{
		MemoryContextReset(context);
		MemoryContextSwitchTo(context);
		CHECK_FOR_INTERRUPTS();
		reap_programs();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
			close_all(prepared);
		}
		for (int i = 0; i < ready_sessions; i++)
			maintain(&prepared[i]);
		wait_for_news(prepared);
	}
}

/* Have a session there that is ready, or on its way. */
static void
maintain(Prepared *prepared)
{
	int64		now = zklock_client_now();
	ZkClientStatus status;

	if (prepared->client == NULL)
	{
		if (now < prepared->begin_at)
			return;
		prepared->is_listed = false;
		prepared->client = zklock_session_prepare(prepared->ready.name,
												  &prepared->ready.settings,
												  &prepared->ready.has_identity);
		if (prepared->client == NULL)	/* no servers are set */
		{
			prepared->begin_at = now + RETRY_MS;
			return;
		}
		zklock_client_flush(prepared->client);
	}
	zklock_client_receive(prepared->client);
	zklock_client_status(prepared->client, &status);
	if (status.state == ZK_CLIENT_CONNECTED)
		put_in_list(prepared);
	else
		take_from_list(prepared);
	if (status.state != ZK_CLIENT_LOST)
		return;
	zklock_session_note_refusal(&status, prepared->ready.has_identity);
	zklock_client_close(prepared->client, 0);
	prepared->client = NULL;
	prepared->begin_at = now + (status.is_taken ? REFILL_MS : RETRY_MS);
}

static void
put_in_list(Prepared *prepared)
{
	if (prepared->is_listed)
		return;
	prepared->is_listed = true;
	zklock_ready_put(&prepared->ready);
}

/* If it is in the list: a backend may have taken it. */
static void
take_from_list(Prepared *prepared)
{
	if (!prepared->is_listed)
		return;
	prepared->is_listed = false;
	zklock_ready_withdraw(prepared->ready.name);
}

/*
 * For other settings; a backend that is on its way to one finds nobody there.
 */
static void
close_all(Prepared *prepared)
{
	for (int i = 0; i < ZK_READY_MAX; i++)
	{
		take_from_list(&prepared[i]);
		if (prepared[i].client != NULL)
			zklock_client_close(prepared[i].client, 0);
		prepared[i].client = NULL;
		prepared[i].begin_at = 0;
	}
}

/*
 * A set of its own each time: it happens as often as a backend needs a
 * session.
 */
static void
wait_for_news(Prepared *prepared)
{
	WaitEventSet *set;
	WaitEvent	event;

	set = CreateWaitEventSet_compat(ready_sessions + 2);
	AddWaitEventToSet(set, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(set, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
	for (int i = 0; i < ready_sessions; i++)
		if (prepared[i].client != NULL &&
			zklock_client_fd(prepared[i].client) >= 0)
			AddWaitEventToSet(set, WL_SOCKET_READABLE,
							  zklock_client_fd(prepared[i].client), NULL, NULL);
	(void) WaitEventSetWait(set, until_next(prepared), &event, 1,
							PG_WAIT_EXTENSION);
	FreeWaitEventSet(set);
	ResetLatch(MyLatch);
}

/* Milliseconds until the next one may be begun; -1 if none is missing. */
static long
until_next(const Prepared *prepared)
{
	int64		now = zklock_client_now();
	int64		next = PG_INT64_MAX;

	for (int i = 0; i < ready_sessions; i++)
		if (prepared[i].client == NULL)
			next = Min(next, Max(prepared[i].begin_at, now));
	return next < PG_INT64_MAX ? (long) (next - now) : -1;
}

static void
reap_programs(void)
{
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
}

static void
wake_worker(SIGNAL_ARGS)
{
	int			error = errno;

	SetLatch(MyLatch);
	errno = error;
}

static void
leave_list(int code, Datum arg)
{
	zklock_ready_clear(0);
}
