/*-------------------------------------------------------------------------
 *
 * lease_worker.c
 *	  A background worker that deletes leases whose term is over.
 *
 * Contenders of zklock's see to those that are ahead of them.  Another client
 * of ZooKeeper that waits behind one would wait for ever.  So each cluster
 * that has preloaded the library has a worker that looks at the queues of all
 * locks that have leases.  Several of them do no harm: see expiry.c.
 *
 * Who makes a lease names its lock below <root>/.leases first.  The worker
 * deletes such a name when there is no lease in the queue and the name was not
 * set for a while: whoever has just set it is about to make his node.  How long
 * that is the worker finds out by its own clock, from when it has seen this
 * version of the name first.  When the name was set is known by ZooKeeper's
 * clock alone, and two clocks are not compared.
 *
 * The delete has two conditions.  The name's version must be the one that was
 * read.  And the version of <root>/.leases, which counts the names that were
 * deleted so far, must be that from before: a name that was deleted and made
 * anew begins with the same versions, and a worker that lags, or whose delete
 * is executed late, must not delete that one.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "lease_worker.h"

#include "access/xact.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/hsearch.h"

#include "compat.h"
#include "expiry.h"
#include "loss_notice.h"
#include "name.h"
#include "session.h"

/* How long a round begins after the one before, at most and at least. */
#define ROUND_MS 5000
#define ROUND_MIN_MS 500

/* How long after an error, and to wait for the end of a session. */
#define RETRY_MS 30000
#define CLOSE_MS 1000

/*
 * How long a name stays that nobody sets and that has no leases, once it was
 * seen so.
 */
#define NAME_MS 10000

/* A version of a name that was seen without leases. */
typedef struct IdleName
{
	int64		czxid;			/* key: of the name's znode, one of a kind */
	int			version;
	int64		since;			/* protocol_now() */
} IdleName;

/* What this session of the worker's has seen; NULL: nothing. */
static HTAB *idle_names;
static ZkSessionNumber idle_names_of;

/* Beyond so many all are forgotten: they are dropped later then. */
#define IDLE_NAMES_MAX 100000

/*
 * zklock.lease_worker: has this cluster such a worker?  It needs the library
 * in shared_preload_libraries, and has a ZooKeeper session of its own.
 */
static bool lease_worker;

static void handle_shutdown(SIGNAL_ARGS);
static int64 do_round(void);
static bool sweep_all(ZkRoundTrip *trip, void *argument);
static bool sweep_lock(ZkRoundTrip *trip, const char *root,
					   const char *pointer, int64 *look_at);
static bool drop_name(ZkRoundTrip *trip, const char *path);
static int64 idle_since(const ZkReply *name);

PGDLLEXPORT void zk_lease_worker(Datum argument);

void
zklock_lease_worker_init(void)
{
	BackgroundWorker worker = {
		.bgw_name = "zklock lease worker",
		.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION,
		.bgw_start_time = BgWorkerStart_ConsistentState,
		.bgw_restart_time = RETRY_MS / 1000,
		.bgw_library_name = "zklock",
		.bgw_function_name = "zk_lease_worker"
	};

	DefineCustomBoolVariable("zklock.lease_worker",
							 "Removes leases whose term is over from queues in which only other clients wait.",
							 "It needs the library in shared_preload_libraries.",
							 &lease_worker, true,
							 PGC_SIGHUP, 0,
							 NULL, NULL, NULL);
	if (process_shared_preload_libraries_in_progress)
		RegisterBackgroundWorker(&worker);
}

/* Without a database: it reads no catalog. */
void
zk_lease_worker(Datum argument)
{
	int64		wait_ms = 0;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, handle_shutdown);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
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
		}
		if (lease_worker &&
			GetConfigOption("zklock.servers", false, false)[0] != '\0')
			wait_ms = do_round();
		else
		{
			zklock_session_close(CLOSE_MS);
			wait_ms = RETRY_MS;
		}
	}
	proc_exit(1);				/* with 0 it would not be started again */
}

/* A round ends as a statement that is cancelled; then the worker does. */
static void
handle_shutdown(SIGNAL_ARGS)
{
	SignalHandlerForShutdownRequest(SIGNAL_ARGS_HANDED_ON);
	StatementCancelHandler(SIGNAL_ARGS_HANDED_ON);
}

/*
 * Look at all names.  Result: how long to wait for the next round.  An error
 * is logged unless the round before had one, or the worker is to end.  What is
 * palloc'ed ends with the transaction.
 */
static int64
do_round(void)
{
	static bool is_failing;
	int64		look_at = ZK_NO_DEADLINE;

	PG_TRY();
	{
		StartTransactionCommand();
		zklock_roundtrip_run(sweep_all, NULL, &look_at);
		zklock_loss_notice_send();
		CommitTransactionCommand();
		is_failing = false;
	}
	PG_CATCH();
	{
		HOLD_INTERRUPTS();
		if (!is_failing && !ShutdownRequestPending)
			EmitErrorReport();
		is_failing = true;
		AbortCurrentTransaction();
		FlushErrorState();
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
	return is_failing ? RETRY_MS :
		Max(ROUND_MIN_MS, Min(ROUND_MS, look_at - protocol_now()));
}

/* The argument becomes the time when the next lease may be over, at most. */
static bool
sweep_all(ZkRoundTrip *trip, void *argument)
{
	const ZkReply *list;
	List	   *pointers = NIL;
	int			root_length;
	char	   *root = zklock_name_path("any", &root_length);

	root[root_length] = '\0';
	trip->by = ZK_BY_CALLER;
	trip->deadline = zklock_session_reply_deadline(protocol_now());
	list = zklock_roundtrip_read(trip, ZK_LIST,
								 psprintf("%s/" ZK_LEASES_NAME, root));
	if (list == NULL || list->result == ZK_SESSION_LOST)
		return list == NULL;
	for (int i = 0; list->result == ZK_OK && i < list->nchildren; i++)
		pointers = lappend(pointers, pstrdup(list->children[i]));
	foreach_ptr(const char, pointer, pointers)
	{
		CHECK_FOR_INTERRUPTS();
		trip->deadline = zklock_session_reply_deadline(protocol_now());

		/* one that cannot be read in time does not keep the worker from others */
		if (!sweep_lock(trip, root, pointer, argument) &&
			zklock_session_live() == 0)
			return false;
	}
	return true;
}

/* Look at the leases of one lock.  What others wrote below .leases is skipped. */
static bool
sweep_lock(ZkRoundTrip *trip, const char *root, const char *pointer,
		   int64 *look_at)
{
	char	   *path = zklock_name_leased_path(root, pointer);
	const ZkReply *list;
	List	   *nodes;
	int64		over_at;

	if (path == NULL)
		return true;
	list = zklock_roundtrip_read(trip, ZK_LIST, path);
	if (list == NULL || list->result == ZK_SESSION_LOST)
		return false;
	nodes = list->result != ZK_OK ? NIL :
		zklock_expiry_nodes(list->children, list->nchildren);
	if (nodes == NIL)
		return (list->result != ZK_OK && list->result != ZK_NO_NODE) ||
			drop_name(trip, psprintf("%s/" ZK_LEASES_NAME "/%s", root,
									 pointer));
	if (!zklock_expiry_sweep(trip, path, nodes, &over_at))
		return false;
	*look_at = Min(*look_at, over_at);
	return true;
}

/* No lease is there: is the name still needed? */
static bool
drop_name(ZkRoundTrip *trip, const char *path)
{
	const char *guard = pnstrdup(path, strrchr(path, '/') - path);
	const ZkReply *guarding;
	const ZkReply *reply;

	zklock_roundtrip_get_ahead(trip, guard);
	reply = zklock_roundtrip_read(trip, ZK_GET, path);
	if (reply == NULL || reply->result == ZK_SESSION_LOST)
		return false;
	guarding = zklock_roundtrip_reply_ahead(trip);
	if (reply->result != ZK_OK || protocol_now() - idle_since(reply) <= NAME_MS ||
		reply->version == ZK_ANY_VERSION || guarding == NULL ||
		guarding->result != ZK_OK)
		return true;
	if (guarding->version == ZK_ANY_VERSION)
		zklock_roundtrip_advance(guard);
	else
		zklock_client_free(zklock_client_remove_guarded(zklock_session_client(),
														guard,
														guarding->version,
														&path, 1,
														reply->version));
	return true;
}

/*
 * Since when the worker knows that version of a name, and no lease of it; from
 * now on if it does not.  Another session may be one with another ensemble,
 * where a czxid is another name's.
 */
static int64
idle_since(const ZkReply *name)
{
	HASHCTL		control = {.keysize = sizeof(int64),.entrysize = sizeof(IdleName)};
	bool		is_known;
	IdleName   *idle;

	if (idle_names != NULL &&
		(idle_names_of != zklock_session_number() ||
		 hash_get_num_entries(idle_names) >= IDLE_NAMES_MAX))
	{
		hash_destroy(idle_names);
		idle_names = NULL;
	}
	if (idle_names == NULL)
		idle_names = hash_create("zklock idle names", 16, &control,
								 HASH_ELEM | HASH_BLOBS);
	idle_names_of = zklock_session_number();
	idle = hash_search(idle_names, &name->czxid, HASH_ENTER, &is_known);
	if (!is_known || idle->version != name->version)
	{
		idle->version = name->version;
		idle->since = protocol_now();
	}
	return idle->since;
}
