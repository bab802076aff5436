/*-------------------------------------------------------------------------
 *
 * lease_worker.c
 *	  A background worker that deletes leases whose term is over.
 *
 * Contenders of zklock's see to those that are ahead of them.  Another client
 * of ZooKeeper that waits behind one would wait for ever.  So each cluster
 * has a worker that looks at the queues of all locks that have leases, its own
 * and those of others, below all roots that this cluster has ever asked for a
 * lease below (lease_roots.c).  Several of them do no harm: see expiry.c.
 *
 * It works in rounds.  First it tells sessions of what they have lost, as far
 * as this cluster knows (loss_notice.c): that needs no ensemble.  Then it looks
 * at leases, then it asks for more losses, each for a while: whatever there is
 * to do, the next round begins soon, and goes on where this one stopped.  Each
 * root has its share of that while, and its own progress: many leases below one
 * do not keep the worker from those below another.
 *
 * It has a session as long as there is something to ask: names of locks below
 * a root, or locks of sessions with a zklock.loss_channel.  Where no names are
 * left the root is idle.  Then a backend of this cluster wakes the worker when
 * it has written a name.  What others write nobody tells: so it looks at idle
 * roots now and then, in a session of a moment.
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
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#include "compat.h"
#include "expiry.h"
#include "lease_roots.h"
#include "loss_notice.h"
#include "name.h"
#include "session.h"
#include "stat.h"
#include "worker.h"
#include "write.h"

#define WORKER_NAME "zklock lease worker"

/* How long a round begins after the one before, at most and at least. */
#define ROUND_MS 5000
#define ROUND_MIN_MS 500

/* How long after a look at an idle root the next one is. */
#define LOOK_MS 300000

/* How long a round looks at leases, and how long it asks for losses. */
#define SLICE_MS 1500

/* How many locks are asked for at once, and how many leases of each. */
#define LOCKS_AT_ONCE 64
#define LEASES_AT_ONCE 32

/* How long after an error, at first and at most. */
#define RETRY_MIN_MS 1000
#define RETRY_MAX_MS 5000

/* How long without servers, and to wait for the end of a session. */
#define IDLE_MS 30000
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

/* One step of a round. */
typedef struct Step
{
	int64		until;			/* protocol_now(): when to stop */
	bool		is_over;		/* nothing was left to do */
	bool		is_silent;		/* nobody has answered */
	List	   *removals;		/* deletes under way: requests */
} Step;

/*
 * How far all leases below a root are looked at: one pass over them, in steps
 * of several rounds.
 */
typedef struct Sweep
{
	ZkLeaseRoot root;			/* as it was when the pass began */
	char	   *name;			/* of the last lock that was looked at; "": it
								 * begins */
	int64		look_at;		/* when the next lease may be over */
	int64		due_at;			/* protocol_now(): when to go on, or the next
								 * pass is to begin */
	bool		is_known;		/* the root still is one */
} Sweep;

/* Of Sweep, one for each root, with all of it in SweepContext. */
static List *sweeps;
static MemoryContext SweepContext;

/* With which of them the next step begins: the one behind the last. */
static int	next_sweep;

/* The log knows that something went wrong, and no round has gone well since. */
static bool is_failing;

/* What this session of the worker's has seen; NULL: nothing. */
static HTAB *idle_names;
static ZkSessionNumber idle_names_of;

/* Beyond so many all are forgotten: they are dropped later then. */
#define IDLE_NAMES_MAX 100000

/*
 * zklock.lease_worker: has this cluster such a worker?  It has a ZooKeeper
 * session of its own.
 */
static bool lease_worker;

static int64 do_round(void);
static int64 next_round_at(void);
static bool has_leases(void);
static bool do_step(void (*work) (Step *step), Step *step);
static void report_failure(void);
static void tell_known(Step *step);
static void look_at_leases(Step *step);
static void ask_for_losses(Step *step);
static void read_roots(void);
static void begin_anew(void);
static bool is_due(const Sweep *sweep);
static bool sweep_all(ZkRoundTrip *trip, void *argument);
static bool sweep_root(ZkRoundTrip *trip, Sweep *sweep, Step *step);
static void end_pass(Sweep *sweep, bool is_idle);
static List *list_names(const ZkReply *list, const char *behind);
static int	compare_names(const ListCell *a, const ListCell *b);
static void note_progress(Sweep *sweep, const char *name);
static bool sweep_locks(ZkRoundTrip *trip, Sweep *sweep, const List *names,
						Step *step);
static bool list_leases(ZkRoundTrip *trip, const char *root,
						const List *names, List **leases, List **idle);
static bool end_leases(ZkRoundTrip *trip, Sweep *sweep, const List *leases,
					   Step *step);
static bool end_overdue(ZkRoundTrip *trip, Sweep *sweep, const List *leases,
						Step *step);
static void free_removals(void *argument);
static bool drop_names(ZkRoundTrip *trip, const char *root, const List *idle);
static int64 idle_since(const ZkReply *name);

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
							 "Removes leases whose term is over from queues in which only other clients wait.",
							 "It has a ZooKeeper session while there are leases.",
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
			begin_anew();
		}
		if (lease_worker &&
			GetConfigOption("zklock.servers", false, false)[0] != '\0')
			wait_ms = do_round();
		else
		{
			zklock_session_close(CLOSE_MS);
			begin_anew();
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
	static int64 retry_ms = RETRY_MIN_MS;
	int64		pause_ms = retry_ms;
	bool		is_well;
	Step		known = {.until = ZK_NO_DEADLINE};
	Step		sweep = {.until = protocol_now() + SLICE_MS};
	Step		losses = {.is_over = true};

	is_well = do_step(tell_known, &known);
	is_well = do_step(look_at_leases, &sweep) && is_well;
	if (sweep.is_silent && !zklock_session_is_connected())
		return RETRY_MIN_MS;
	losses.until = protocol_now() + SLICE_MS;
	if (is_well && zklock_loss_notice_is_wanted())
		is_well = do_step(ask_for_losses, &losses);
	if (!is_well || sweep.is_silent)
	{
		retry_ms = Min(2 * retry_ms, RETRY_MAX_MS);
		return pause_ms;
	}
	retry_ms = RETRY_MIN_MS;
	is_failing = false;
	if (!losses.is_over)
		return ROUND_MIN_MS;
	if (!has_leases())
	{
		if (!zklock_lease_roots_sleep())
			return ROUND_MIN_MS;	/* a root was noted meanwhile */
		if (!zklock_loss_notice_is_wanted())
			zklock_session_close(CLOSE_MS);
	}
	return Max(ROUND_MIN_MS,
			   Min(ROUND_MS, next_round_at() - protocol_now()));
}

/* When the first of them is to be gone on with. */
static int64
next_round_at(void)
{
	int64		at = ZK_NO_DEADLINE;

	foreach_ptr(const Sweep, sweep, sweeps)
		at = Min(at, sweep->due_at);
	return at;
}

/* Is any root not idle, as far as this worker knows? */
static bool
has_leases(void)
{
	foreach_ptr(const Sweep, sweep, sweeps)
		if (!sweep->root.is_idle)
		return true;
	return false;
}

/*
 * Do a step in a transaction of its own.  An error is logged unless one was
 * before, and no round has gone well since, or the worker is to end; false
 * then.  So is the silence of the ensemble.  What is palloc'ed ends with the
 * transaction.
 */
static bool
do_step(void (*work) (Step *step), Step *step)
{
	volatile bool is_done = false;

	PG_TRY();
	{
		StartTransactionCommand();
		work(step);
		CommitTransactionCommand();
		is_done = true;
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
	if (is_done && step->is_silent && !is_failing)
	{
		report_failure();
		is_failing = true;
	}
	return is_done;
}

/* No error, for the session goes on, and tries to connect. */
static void
report_failure(void)
{
	ereport(LOG,
			(errmsg("the lease worker gets no answer from ZooKeeper"),
			 zklock_session_explain_silence()));
}

/* ---------------------------------------------------------------------
 * The steps
 * ---------------------------------------------------------------------
 */

static void
tell_known(Step *step)
{
	step->is_over = zklock_loss_notice_send(false, step->until);
}

static void
look_at_leases(Step *step)
{
	bool		has_work = false;

	read_roots();
	foreach_ptr(const Sweep, sweep, sweeps)
		has_work |= is_due(sweep);
	if (has_work)
		zklock_roundtrip_run(sweep_all, free_removals, step);
}

static void
ask_for_losses(Step *step)
{
	step->is_over = zklock_loss_notice_send(true, step->until);
}

/* ---------------------------------------------------------------------
 * Leases
 * ---------------------------------------------------------------------
 */

/*
 * Have a sweep for each root, and none for others.  One that was idle and has
 * been noted since is due.
 */
static void
read_roots(void)
{
	List	   *roots = zklock_lease_roots();

	if (SweepContext == NULL)
		SweepContext = AllocSetContextCreate(TopMemoryContext, "zklock lease worker",
											 ALLOCSET_SMALL_SIZES);
	foreach_ptr(Sweep, sweep, sweeps)
		sweep->is_known = false;
	foreach_ptr(const ZkLeaseRoot, root, roots)
	{
		Sweep	   *mine = NULL;
		MemoryContext caller;

		foreach_ptr(Sweep, sweep, sweeps)
			if (strcmp(sweep->root.root, root->root) == 0 &&
				strcmp(sweep->root.path, root->path) == 0)
			mine = sweep;
		if (mine == NULL)
		{
			caller = MemoryContextSwitchTo(SweepContext);
			mine = palloc0(sizeof(*mine));
			mine->root.root = pstrdup(root->root);
			mine->root.path = pstrdup(root->path);
			mine->name = pstrdup("");
			mine->look_at = ZK_NO_DEADLINE;
			sweeps = lappend(sweeps, mine);
			MemoryContextSwitchTo(caller);
		}
		if (mine->root.is_idle && mine->root.noted != root->noted)
			mine->due_at = 0;
		if (mine->name[0] == '\0')
			mine->root.noted = root->noted;
		mine->root.is_idle = root->is_idle;
		mine->is_known = true;
	}
	for (int i = list_length(sweeps) - 1; i >= 0; i--)
	{
		Sweep	   *sweep = list_nth(sweeps, i);

		if (sweep->is_known)
			continue;
		sweeps = list_delete_nth_cell(sweeps, i);
		pfree(sweep->root.root);
		pfree(sweep->root.path);
		pfree(sweep->name);
		pfree(sweep);
	}
}

/* All are to be looked at in the next round. */
static void
begin_anew(void)
{
	foreach_ptr(Sweep, sweep, sweeps)
		sweep->due_at = 0;
}

static bool
is_due(const Sweep *sweep)
{
	return sweep->due_at <= protocol_now();
}

/*
 * Go on with all leases below the roots that are due: each has an equal share
 * of the time that is left.  false if the session was lost.
 */
static bool
sweep_all(ZkRoundTrip *trip, void *argument)
{
	Step	   *step = argument;
	int64		until = step->until;
	int			ndue = 0;
	int			count = list_length(sweeps);

	trip->by = ZK_BY_CALLER;
	foreach_ptr(const Sweep, sweep, sweeps)
		ndue += is_due(sweep);
	for (int n = 0; n < count && ndue > 0; n++)
	{
		Sweep	   *sweep = list_nth(sweeps, next_sweep % count);
		bool		is_swept;

		next_sweep = (next_sweep + 1) % count;
		if (!is_due(sweep))
			continue;
		step->until = protocol_now() +
			Max(0, until - protocol_now()) / ndue--;
		is_swept = sweep_root(trip, sweep, step);
		step->until = until;
		if (!is_swept)
			return step->is_silent || zklock_session_live() != 0;
	}
	return true;
}

/*
 * Go on with the leases below one root, until that time.  false if there is no
 * session, or no answer.
 */
static bool
sweep_root(ZkRoundTrip *trip, Sweep *sweep, Step *step)
{
	char	   *path = psprintf("%s/" ZK_LEASES_NAME, sweep->root.path);
	const ZkReply *list;
	List	   *names;
	List	   *batch = NIL;

	trip->deadline = zklock_worker_deadline();
	list = zklock_roundtrip_read(trip, ZK_LIST, path);

	/* a server that lags may not have a name that was just written */
	if (list != NULL && list->result != ZK_SESSION_LOST &&
		list->nchildren == 0)
		list = zklock_roundtrip_read_newest(trip, ZK_LIST, path);
	step->is_silent = list == NULL;
	if (list == NULL || list->result == ZK_SESSION_LOST)
		return false;
	if (list->result != ZK_OK || list->nchildren == 0)
	{
		end_pass(sweep, true);
		return true;
	}
	names = list_names(list, sweep->name);
	foreach_ptr(char, name, names)
	{
		batch = lappend(batch, name);
		if (list_length(batch) < LOCKS_AT_ONCE && name != llast(names))
			continue;
		CHECK_FOR_INTERRUPTS();

		/* what cannot be read in time does not keep the worker from others */
		if (!sweep_locks(trip, sweep, batch, step) &&
			zklock_session_live() == 0)
			return false;
		note_progress(sweep, name);
		if (protocol_now() >= step->until && name != llast(names))
			return true;
		list_free(batch);
		batch = NIL;
	}
	end_pass(sweep, false);
	return true;
}

/* All is looked at.  When is the next pass?  That of an idle root is far off. */
static void
end_pass(Sweep *sweep, bool is_idle)
{
	int64		now = protocol_now();

	zklock_lease_roots_tell(&sweep->root, is_idle);
	sweep->root.is_idle = is_idle;
	sweep->due_at = is_idle ? now + LOOK_MS :
		Max(now + ROUND_MIN_MS, Min(now + ROUND_MS, sweep->look_at));
	sweep->look_at = ZK_NO_DEADLINE;
	note_progress(sweep, "");
}

/* The names in that list that come behind that one, in order. */
static List *
list_names(const ZkReply *list, const char *behind)
{
	List	   *names = NIL;

	for (int i = 0; i < list->nchildren; i++)
		if (strcmp(list->children[i], behind) > 0)
			names = lappend(names, pstrdup(list->children[i]));
	list_sort(names, compare_names);
	return names;
}

static int
compare_names(const ListCell *a, const ListCell *b)
{
	return strcmp(lfirst(a), lfirst(b));
}

static void
note_progress(Sweep *sweep, const char *name)
{
	char	   *former = sweep->name;

	sweep->name = MemoryContextStrdup(SweepContext, name);
	pfree(former);
}

/*
 * Look at the leases of some locks, all at once.  false if the session is
 * lost, or if they could not be read in time.
 */
static bool
sweep_locks(ZkRoundTrip *trip, Sweep *sweep, const List *names, Step *step)
{
	const char *root = sweep->root.path;
	List	   *leases;
	List	   *idle;

	trip->deadline = zklock_worker_deadline();
	return list_leases(trip, root, names, &leases, &idle) &&
		end_leases(trip, sweep, leases, step) &&
		drop_names(trip, root, idle);
}

/*
 * List the queues of some locks: the leases in them, ZkLeased with name and
 * path, and the names of those that have none.  Of a queue the first ones will
 * do: the others are looked at when those are gone.  What others wrote below
 * .leases is skipped.
 */
static bool
list_leases(ZkRoundTrip *trip, const char *root, const List *names,
			List **leases, List **idle)
{
	List	   *paths = NIL;
	ListCell   *path_cell;
	ListCell   *name_cell;
	bool		is_read;

	*leases = *idle = NIL;
	foreach_ptr(const char, name, names)
	{
		char	   *path = zklock_name_leased_path(root, name);

		paths = lappend(paths, path);
		if (path != NULL)
			(void) zklock_roundtrip_look(trip, ZK_LIST, path);	/* read below */
	}
	is_read = zklock_roundtrip_await_looks(trip);
	forboth(path_cell, paths, name_cell, names)
	{
		char	   *path = lfirst(path_cell);
		const ZkReply *list = path != NULL && is_read ?
			zklock_roundtrip_look(trip, ZK_LIST, path) : NULL;
		List	   *nodes = list == NULL || list->result != ZK_OK ? NIL :
			zklock_expiry_nodes(list->children, list->nchildren);

		if (nodes == NIL && list != NULL &&
			(list->result == ZK_OK || list->result == ZK_NO_NODE))
			*idle = lappend(*idle, lfirst(name_cell));
		for (int i = 0; i < Min(list_length(nodes), LEASES_AT_ONCE); i++)
		{
			ZkLeased   *one = palloc0(sizeof(*one));

			one->node = list_nth(nodes, i);
			one->path = psprintf("%s/%s", path, one->node);
			*leases = lappend(*leases, one);
		}
	}
	zklock_roundtrip_end_looks(trip);
	return is_read;
}

/* Read them, and delete those whose term is over. */
static bool
end_leases(ZkRoundTrip *trip, Sweep *sweep, const List *leases, Step *step)
{
	List	   *batch = NIL;

	foreach_ptr(ZkLeased, lease, leases)
	{
		List	   *read;

		batch = lappend(batch, lease);
		if (list_length(batch) < ZK_READS_AT_ONCE && lease != llast(leases))
			continue;
		trip->deadline = zklock_worker_deadline();
		if (!zklock_expiry_read_paths(trip, batch, &read))
			return false;
		trip->deadline = zklock_worker_deadline();
		if (!end_overdue(trip, sweep, read, step))
			return false;
		list_free(batch);
		batch = NIL;
	}
	return true;
}

/*
 * Delete those of them whose term is over, all in one flush.  Who renews one
 * meanwhile keeps it.  What is not answered in time, or refused, is found again.
 */
static bool
end_overdue(ZkRoundTrip *trip, Sweep *sweep, const List *leases, Step *step)
{
	List	   *overdue = NIL;
	ListCell   *lease_cell;
	ListCell   *request_cell;

	free_removals(step);		/* those that were not answered in time */
	foreach_ptr(ZkLeased, lease, leases)
	{
		char	   *lock_path;

		if (protocol_now() < lease->over_at)
		{
			sweep->look_at = Min(sweep->look_at, lease->over_at);
			continue;
		}
		if (lease->version == ZK_ANY_VERSION)
			continue;			/* the counter has wrapped: no condition */
		lock_path = pnstrdup(lease->path,
							 strrchr(lease->path, '/') - lease->path);
		zklock_expiry_log(lock_path, lease);
		overdue = lappend(overdue, lease);
		step->removals = lappend(step->removals,
								 zklock_client_remove(zklock_session_client(),
													  lease->path,
													  lease->version));
	}
	forboth(lease_cell, overdue, request_cell, step->removals)
	{
		const ZkLeased *lease = lfirst(lease_cell);
		const ZkReply *reply = zklock_roundtrip_await(trip,
													  lfirst(request_cell));
		bool		is_gone;

		if (reply == NULL || reply->result == ZK_SESSION_LOST)
			return false;
		is_gone = reply->result == ZK_OK || reply->result == ZK_NO_NODE;
		if (is_gone && lease->who.owner != NULL)
			zklock_stat_count(ZK_STAT_LEASE_END);

		/* renewed meanwhile, or refused: in a term again, which may be forged */
		sweep->look_at = is_gone ? 0 :
			Min(sweep->look_at,
				protocol_now() + Max(lease->ttl_ms, ZK_TERM_MIN));
	}
	free_removals(step);
	return true;
}

/* Also at the end of an attempt. */
static void
free_removals(void *argument)
{
	Step	   *step = argument;

	foreach_ptr(ZkRequest, request, step->removals)
		zklock_client_free(request);
	list_free(step->removals);
	step->removals = NIL;
}

/*
 * Locks without a lease: are their names still needed?  The guard is read
 * first.  Each delete counts it up by one, and they are done in order: so each
 * names its own version of it, and behind one that fails all fail.
 */
static bool
drop_names(ZkRoundTrip *trip, const char *root, const List *idle)
{
	char	   *guard = psprintf("%s/" ZK_LEASES_NAME, root);
	const ZkReply *guarding;
	int			version;
	bool		is_read;

	if (idle == NIL)
		return true;
	trip->deadline = zklock_worker_deadline();
	guarding = zklock_roundtrip_read(trip, ZK_GET, guard);
	if (guarding == NULL || guarding->result != ZK_OK)
		return guarding != NULL && guarding->result != ZK_SESSION_LOST;
	version = guarding->version;
	foreach_ptr(const char, name, idle)
		(void) zklock_roundtrip_look(trip, ZK_GET,	/* read below */
									 psprintf("%s/%s", guard, name));
	is_read = zklock_roundtrip_await_looks(trip);
	foreach_ptr(const char, name, idle)
	{
		const char *path = psprintf("%s/%s", guard, name);
		const ZkReply *reply = is_read ?
			zklock_roundtrip_look(trip, ZK_GET, path) : NULL;

		if (reply == NULL || reply->result != ZK_OK ||
			protocol_now() - idle_since(reply) <= NAME_MS ||
			reply->version == ZK_ANY_VERSION)
			continue;
		if (version == ZK_ANY_VERSION)
		{
			zklock_roundtrip_advance(guard);
			break;
		}
		zklock_client_free(zklock_write_remove_guarded(guard, version++,
													   &path, 1,
													   reply->version));
	}
	zklock_roundtrip_end_looks(trip);
	return is_read;
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
