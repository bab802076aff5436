/*-------------------------------------------------------------------------
 *
 * ready.c
 *	  Sessions that are connected before a backend needs one.
 *
 * A background worker starts programs for sessions as a backend does, with the
 * settings of postgresql.conf.  Once such a session is connected, its program
 * listens at a name that nobody can guess, and the name is in shared memory.
 * A backend whose settings are the same takes it from there and goes to the
 * program, which is its own from then on (program_ready.c).
 *
 * The one rule: a ready session is a convenience.  Whatever is wrong with it,
 * the backend starts one of its own, as it would have without.
 *
 * The shared list is changed by the worker (all of it) and by backends (which
 * take one off); nothing that raises stands between taking and giving back its
 * lock.
 *
 *-------------------------------------------------------------------------
 */
#include "ready.h"

#include <signal.h>
#include <sys/wait.h>

#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

#include "session.h"

#define READY_MAX 100

/* How long the worker waits after a session could not be had, or was lost. */
#define RETRY_MS 1000

/* When the worker is started again after an error, a bad setting for example. */
#define WORKER_RESTART_S 5

/* A session that waits for a backend. */
typedef struct Ready
{
	char		name[READY_NAME_SIZE];
	uint64		settings;		/* zklock_session_settings() it was opened with */
	bool		has_identity;
} Ready;

/* In shared memory. */
typedef struct ReadyList
{
	int			nready;
	Ready		ready[FLEXIBLE_ARRAY_MEMBER];
} ReadyList;

/* A session on its way to be ready, or that is; the worker's. */
typedef struct Prepared
{
	ZkClient   *client;			/* NULL: none */
	bool		is_listed;
	Ready		ready;
} Prepared;

/*
 * zklock.ready_sessions: how many connected sessions are kept for backends
 * that need one.  Each costs a process and what a session costs the ensemble.
 * Without any when the server starts there is no worker to heed a later
 * change.
 */
static int	ready_sessions;

static ReadyList *list;
static LWLock *list_lock;

static shmem_request_hook_type previous_request_hook;
static shmem_startup_hook_type previous_startup_hook;

static void request_memory(void);
static void make_list(void);
static Size list_size(void);
static bool maintain(Prepared *prepared);
static void put_in_list(Prepared *prepared);
static void take_from_list(Prepared *prepared);
static void close_all(Prepared *prepared);
static void wait_for_news(Prepared *prepared, bool is_trouble);
static void reap_programs(void);
static void leave_list(int code, Datum arg);
static void wake_worker(SIGNAL_ARGS);

void
zklock_ready_init(void)
{
	BackgroundWorker worker = {0};

	DefineCustomIntVariable("zklock.ready_sessions",
							"Connected ZooKeeper sessions kept for backends that need one.",
							"Only if zklock is in shared_preload_libraries, and if it is not 0 when the server starts.",
							&ready_sessions, 0, 0, READY_MAX,
							PGC_SIGHUP, 0,
							NULL, NULL, NULL);
	if (!process_shared_preload_libraries_in_progress || ready_sessions == 0)
		return;
	previous_request_hook = shmem_request_hook;
	shmem_request_hook = request_memory;
	previous_startup_hook = shmem_startup_hook;
	shmem_startup_hook = make_list;

	strlcpy(worker.bgw_name, "zklock ready sessions", BGW_MAXLEN);
	strlcpy(worker.bgw_type, "zklock ready sessions", BGW_MAXLEN);
	strlcpy(worker.bgw_library_name, "zklock", BGW_MAXLEN);
	strlcpy(worker.bgw_function_name, ZK_READY_WORKER, BGW_MAXLEN);
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS;
	worker.bgw_start_time = BgWorkerStart_PostmasterStart;
	worker.bgw_restart_time = WORKER_RESTART_S;
	RegisterBackgroundWorker(&worker);
}

bool
zklock_ready_take(uint64 settings, char name[READY_NAME_SIZE],
				  bool *has_identity)
{
	bool		found = false;

	if (list == NULL || list->nready == 0)
		return false;
	LWLockAcquire(list_lock, LW_EXCLUSIVE);
	for (int i = list->nready - 1; i >= 0 && !found; i--)
	{
		Ready	   *ready = &list->ready[i];

		if (ready->settings != settings)
			continue;
		found = true;
		memcpy(name, ready->name, READY_NAME_SIZE);
		*has_identity = ready->has_identity;
		*ready = list->ready[--list->nready];
	}
	LWLockRelease(list_lock);
	return found;
}

/* ---------------------------------------------------------------------
 * The worker
 * ---------------------------------------------------------------------
 */

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
									  READY_MAX * sizeof(*prepared));
	before_shmem_exit(leave_list, 0);
	LWLockAcquire(list_lock, LW_EXCLUSIVE);
	list->nready = 0;
	LWLockRelease(list_lock);

	for (;;)
	{
		bool		is_trouble = false;

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
			is_trouble |= !maintain(&prepared[i]);
		wait_for_news(prepared, is_trouble);
	}
}

/*
 * Have a session there that is ready, or on its way.  false if it was lost or
 * could not be had: then not again at once.
 */
static bool
maintain(Prepared *prepared)
{
	ZkClientStatus status;

	if (prepared->client == NULL)
	{
		prepared->is_listed = false;
		prepared->client = zklock_session_prepare(prepared->ready.name,
												  &prepared->ready.settings,
												  &prepared->ready.has_identity);
		if (prepared->client == NULL)
			return false;		/* no servers are set */
		zklock_client_flush(prepared->client);
	}
	zklock_client_receive(prepared->client);
	zklock_client_status(prepared->client, &status);
	if (status.state == ZK_CLIENT_CONNECTED)
		put_in_list(prepared);
	else
		take_from_list(prepared);
	if (status.state != ZK_CLIENT_LOST)
		return true;
	zklock_session_note_refusal(&status, prepared->ready.has_identity);
	zklock_client_close(prepared->client, 0);
	prepared->client = NULL;
	return status.is_taken && maintain(prepared);
}

static void
put_in_list(Prepared *prepared)
{
	if (prepared->is_listed)
		return;
	prepared->is_listed = true;
	LWLockAcquire(list_lock, LW_EXCLUSIVE);
	if (list->nready < READY_MAX)
		list->ready[list->nready++] = prepared->ready;
	LWLockRelease(list_lock);
}

/* If it is in the list: a backend may have taken it. */
static void
take_from_list(Prepared *prepared)
{
	if (!prepared->is_listed)
		return;
	prepared->is_listed = false;
	LWLockAcquire(list_lock, LW_EXCLUSIVE);
	for (int i = 0; i < list->nready; i++)
		if (strcmp(list->ready[i].name, prepared->ready.name) == 0)
			list->ready[i] = list->ready[--list->nready];
	LWLockRelease(list_lock);
}

/* For other settings; a backend that is on its way to one finds nobody there. */
static void
close_all(Prepared *prepared)
{
	for (int i = 0; i < READY_MAX; i++)
	{
		take_from_list(&prepared[i]);
		if (prepared[i].client != NULL)
			zklock_client_close(prepared[i].client, 0);
		prepared[i].client = NULL;
	}
}

/* A set of its own each time: it happens as often as a backend needs a session. */
static void
wait_for_news(Prepared *prepared, bool is_trouble)
{
	WaitEventSet *set;
	WaitEvent	event;

	set = CreateWaitEventSet_compat(ready_sessions + 2);
	AddWaitEventToSet(set, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(set, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
	for (int i = 0; i < ready_sessions; i++)
		if (prepared[i].client != NULL && zklock_client_fd(prepared[i].client) >= 0)
			AddWaitEventToSet(set, WL_SOCKET_READABLE,
							  zklock_client_fd(prepared[i].client), NULL, NULL);
	(void) WaitEventSetWait(set, is_trouble ? RETRY_MS : -1, &event, 1,
							PG_WAIT_EXTENSION);
	FreeWaitEventSet(set);
	ResetLatch(MyLatch);
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
	LWLockAcquire(list_lock, LW_EXCLUSIVE);
	list->nready = 0;
	LWLockRelease(list_lock);
}

/* ---------------------------------------------------------------------
 * Shared memory
 * ---------------------------------------------------------------------
 */

static Size
list_size(void)
{
	return offsetof(ReadyList, ready) + READY_MAX * sizeof(Ready);
}

static void
request_memory(void)
{
	if (previous_request_hook != NULL)
		previous_request_hook();
	RequestAddinShmemSpace(list_size());
	RequestNamedLWLockTranche("zklock ready", 1);
}

static void
make_list(void)
{
	bool		found;

	if (previous_startup_hook != NULL)
		previous_startup_hook();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	list = ShmemInitStruct("zklock ready sessions", list_size(), &found);
	if (!found)
		memset(list, 0, list_size());
	list_lock = &GetNamedLWLockTranche("zklock ready")->lock;
	LWLockRelease(AddinShmemInitLock);
}
