/*-------------------------------------------------------------------------
 *
 * lease_sweep.c
 *	  Leads that worker through all leases below the roots of this cluster.
 *
 * Below each of its roots (lease_roots.c) the worker looks at the queues of all
 * locks that have leases, this cluster's and those of others (lease_names.c),
 * and deletes the leases whose term is over.  Several workers do no harm: see
 * expiry.c.
 *
 * A pass over the leases of one root takes several turns.  In a turn the worker
 * lists the queues of ZK_READS_AT_ONCE locks, or reads so many of the leases that
 * it has found there.  The roots take turns, so many leases below one root do not
 * keep the worker from those below another.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "lease_sweep.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#include "compat.h"
#include "expiry.h"
#include "lease_names.h"
#include "lease_roots.h"
#include "name.h"
#include "session.h"
#include "brief_worker.h"

/* How long after the end of a pass the next one begins, at most and at least. */
#define PASS_MS 5000
#define PASS_MIN_MS 500

/* The same if there are no names of locks below any root. */
#define LOOK_MS 300000

/*
 * How far the leases below a root are looked at: one pass over them, in several
 * turns.
 */
typedef struct Sweep
{
	MemoryContext context;		/* of the two lists */
	char	   *path;			/* of the root */
	List	   *names;			/* of all locks with leases, as the pass has
								 * found them; NIL: it has to list them */
	int			next_name;		/* the first of them to be looked at */
	List	   *leases;			/* paths of those of the locks that were
								 * looked at last */
	int			next_lease;		/* the first of them to be read */
	bool		has_names;		/* the last list had some, or there was none
								 * yet */
	int64		look_at;		/* when the next lease may be over */
	int64		due_at;			/* protocol_now(): when the next turn may be */
} Sweep;

/* All of them.  They live until the settings may have changed. */
static struct
{
	MemoryContext context;		/* of all that follows; NULL: the roots are to
								 * be read */
	List	   *all;			/* Sweep, one for each root */
	int			next;			/* whose turn is next */
	int64		rest_until;		/* protocol_now(): nothing is due before; 0: it
								 * does not rest */
}			Sweeps;

/* What the turns of one call share. */
typedef struct Turns
{
	int64		until;			/* protocol_now(): when to stop */
	List	   *removals;		/* deletes under way: requests */
} Turns;

static void read_roots(void);
static bool is_due(const Sweep *sweep);
static ZkOutcome take_turns(ZkRoundTrip *trip, void *argument);
static ZkOutcome take_turn(ZkRoundTrip *trip, Sweep *sweep, Turns *turns);
static ZkOutcome begin_pass(ZkRoundTrip *trip, Sweep *sweep);
static ZkOutcome list_root(ZkRoundTrip *trip, const char *root,
						   const ZkReply **list);
static void end_pass(Sweep *sweep);
static List *next_portion(const List *all, int next);
static ZkOutcome sweep_locks(ZkRoundTrip *trip, Sweep *sweep,
							 const List *names);
static ZkOutcome list_leases(ZkRoundTrip *trip, Sweep *sweep,
							 const List *names, List **idle);
static bool take_leases(Sweep *sweep, const char *path, const ZkReply *list);
static ZkOutcome end_leases(ZkRoundTrip *trip, Sweep *sweep,
							const List *paths, Turns *turns);
static ZkOutcome end_overdue(ZkRoundTrip *trip, Sweep *sweep,
							 const List *leases, Turns *turns);
static List *send_removals(Sweep *sweep, const List *leases, Turns *turns);
static void free_removals(void *argument);

ZkOutcome
zklock_lease_sweep(int64 until)
{
	Turns		turns = {.until = until};
	ZkBounds	bounds = zklock_bounds_of_task();
	bool		has_work = false;

	if (Sweeps.context == NULL)
		read_roots();
	foreach_ptr(const Sweep, sweep, Sweeps.all)
		has_work |= is_due(sweep);
	if (!has_work)
		return ZK_ANSWERED;
	Sweeps.rest_until = 0;
	return zklock_roundtrip_run_within(&bounds, take_turns, free_removals,
									   &turns);
}

int64
zklock_lease_sweep_next_at(void)
{
	int64		at = ZK_NO_DEADLINE;

	foreach_ptr(const Sweep, sweep, Sweeps.all)
		at = Min(at, sweep->due_at);
	return Max(at, Sweeps.rest_until);
}

bool
zklock_lease_sweep_is_idle(void)
{
	foreach_ptr(const Sweep, sweep, Sweeps.all)
	{
		if (sweep->has_names || is_due(sweep))
			return false;
	}
	return true;
}

void
zklock_lease_sweep_rest(void)
{
	if (Sweeps.rest_until == 0)
		Sweeps.rest_until = protocol_now() + LOOK_MS;
}

void
zklock_lease_sweep_begin_anew(void)
{
	if (Sweeps.context != NULL)
		MemoryContextDelete(Sweeps.context);
	memset(&Sweeps, 0, sizeof(Sweeps));
}

/* Begin a sweep for each root. */
static void
read_roots(void)
{
	List	   *paths = zklock_lease_roots();
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "zklock lease worker",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	List	   *all = NIL;

	foreach_ptr(const char, path, paths)
	{
		Sweep	   *sweep = palloc0(sizeof(*sweep));

		sweep->context = AllocSetContextCreate(context,
											   "zklock lease names",
											   ALLOCSET_SMALL_SIZES);
		sweep->path = pstrdup(path);
		sweep->has_names = true;
		sweep->look_at = ZK_NO_DEADLINE;
		all = lappend(all, sweep);
	}
	MemoryContextSwitchTo(caller);
	MemoryContextSetParent(context, TopMemoryContext);
	Sweeps.context = context;
	Sweeps.all = all;
}

static bool
is_due(const Sweep *sweep)
{
	return Max(sweep->due_at, Sweeps.rest_until) <= protocol_now();
}

/* ---------------------------------------------------------------------
 * Passes
 * ---------------------------------------------------------------------
 */

/*
 * The roots that are due take turns until the time is over, or none is due any
 * more.  ZK_LATE: nobody has answered about one, so the others are left to the
 * next call.
 */
static ZkOutcome
take_turns(ZkRoundTrip *trip, void *argument)
{
	Turns	   *turns = argument;
	int			count = list_length(Sweeps.all);
	int			nskipped = 0;	/* in a row */

	trip->by = ZK_BY_CALLER;
	while (nskipped < count)
	{
		Sweep	   *sweep = list_nth(Sweeps.all, Sweeps.next);
		ZkOutcome	outcome;

		Sweeps.next = (Sweeps.next + 1) % count;
		if (!is_due(sweep))
		{
			nskipped++;
			continue;
		}
		nskipped = 0;
		CHECK_FOR_INTERRUPTS();
		outcome = take_turn(trip, sweep, turns);
		if (outcome != ZK_ANSWERED)
			return outcome;
		if (protocol_now() >= turns->until)
			break;
	}
	return ZK_ANSWERED;
}

/*
 * Read the next leases below one root, or look for them in the queues of the next
 * locks.  ZK_LATE: the locks could not be listed.
 */
static ZkOutcome
take_turn(ZkRoundTrip *trip, Sweep *sweep, Turns *turns)
{
	ZkOutcome	outcome = ZK_ANSWERED;
	List	   *names = NIL;
	List	   *leases;

	if (sweep->names == NIL)
		outcome = begin_pass(trip, sweep);
	if (outcome != ZK_ANSWERED)
		return outcome;
	leases = next_portion(sweep->leases, sweep->next_lease);
	if (leases == NIL)
		names = next_portion(sweep->names, sweep->next_name);
	if (leases != NIL)
		outcome = end_leases(trip, sweep, leases, turns);
	else if (names != NIL)
		outcome = sweep_locks(trip, sweep, names);

	/* what cannot be read in time does not keep the worker from others */
	if (outcome == ZK_LOST)
		return ZK_LOST;
	sweep->next_lease += list_length(leases);
	sweep->next_name += list_length(names);
	if (sweep->next_lease == list_length(sweep->leases) &&
		sweep->next_name == list_length(sweep->names))
		end_pass(sweep);
	return ZK_ANSWERED;
}

/* List the names of locks below the root. */
static ZkOutcome
begin_pass(ZkRoundTrip *trip, Sweep *sweep)
{
	const ZkReply *list;
	ZkOutcome	outcome = list_root(trip, sweep->path, &list);
	MemoryContext caller;
	List	   *names = NIL;

	if (outcome != ZK_ANSWERED)
		return outcome;
	caller = MemoryContextSwitchTo(sweep->context);
	for (int i = 0; list->result == ZK_OK && i < list->nchildren; i++)
		names = lappend(names, pstrdup(list->children[i]));
	MemoryContextSwitchTo(caller);
	sweep->names = names;
	sweep->has_names = names != NIL;
	return ZK_ANSWERED;
}

/* The names of locks below that root. */
static ZkOutcome
list_root(ZkRoundTrip *trip, const char *root, const ZkReply **list)
{
	char	   *path = psprintf("%s/" ZK_LEASES_NAME, root);
	ZkOutcome	outcome;

	trip->deadline = zklock_worker_deadline();
	outcome = zklock_roundtrip_read(trip, ZK_LIST, path, list);

	/* a server that lags may not have a name that was just written */
	if (outcome == ZK_ANSWERED && (*list)->nchildren == 0)
		outcome = zklock_roundtrip_read_newest(trip, ZK_LIST, path, list);
	return outcome;
}

/* All is looked at. */
static void
end_pass(Sweep *sweep)
{
	int64		now = protocol_now();

	sweep->due_at = Max(now + PASS_MIN_MS, Min(now + PASS_MS, sweep->look_at));
	sweep->look_at = ZK_NO_DEADLINE;
	sweep->names = NIL;
	sweep->next_name = 0;
	sweep->leases = NIL;
	sweep->next_lease = 0;
	MemoryContextReset(sweep->context);
}

/* From that one on, ZK_READS_AT_ONCE at most. */
static List *
next_portion(const List *all, int next)
{
	List	   *portion = NIL;

	while (next < list_length(all) && list_length(portion) < ZK_READS_AT_ONCE)
		portion = lappend(portion, list_nth(all, next++));
	return portion;
}

/* Find the leases of some locks, and drop the names of those that have none. */
static ZkOutcome
sweep_locks(ZkRoundTrip *trip, Sweep *sweep, const List *names)
{
	ZkOutcome	outcome;
	List	   *idle;

	trip->deadline = zklock_worker_deadline();
	outcome = list_leases(trip, sweep, names, &idle);
	if (outcome != ZK_ANSWERED || idle == NIL)
		return outcome;
	trip->deadline = zklock_worker_deadline();
	return zklock_lease_names_drop(trip, sweep->path, idle);
}

/*
 * List the queues of some locks: sweep->leases becomes the leases in them, and
 * *idle the names of those that have none.  What others wrote below .leases is
 * skipped.
 */
static ZkOutcome
list_leases(ZkRoundTrip *trip, Sweep *sweep, const List *names, List **idle)
{
	char	   *locks[ZK_READS_AT_ONCE];
	char	   *paths[ZK_READS_AT_ONCE] = {0};	/* of the queue of each */
	const ZkReply *lists[ZK_READS_AT_ONCE];
	int			nlocks = 0;
	ZkOutcome	outcome;
	List	   *former = sweep->leases;

	Assert(list_length(names) <= ZK_READS_AT_ONCE);
	*idle = NIL;
	sweep->leases = NIL;
	sweep->next_lease = 0;
	list_free_deep(former);
	foreach_ptr(char, name, names)
	{
		char	   *path = zklock_name_leased_path(sweep->path, name);

		if (path == NULL)
			continue;
		locks[nlocks] = name;
		paths[nlocks++] = path;
	}
	outcome = zklock_roundtrip_read_all(trip, ZK_LIST, paths, nlocks, lists);
	if (outcome != ZK_ANSWERED)
		return outcome;
	for (int i = 0; i < nlocks; i++)
	{
		if (lists[i]->result != ZK_OK && lists[i]->result != ZK_NO_NODE)
			continue;
		if (!take_leases(sweep, paths[i], lists[i]))
			*idle = lappend(*idle, locks[i]);
	}
	zklock_roundtrip_end_reads(trip, nlocks);
	return ZK_ANSWERED;
}

/* Add the leases of a queue to sweep->leases.  false: it has none. */
static bool
take_leases(Sweep *sweep, const char *path, const ZkReply *list)
{
	MemoryContext caller;
	List	   *nodes;

	if (list->result != ZK_OK)
		return false;
	nodes = zklock_expiry_nodes(list->children, list->nchildren);
	caller = MemoryContextSwitchTo(sweep->context);
	foreach_ptr(const char, node, nodes)
		sweep->leases = lappend(sweep->leases, psprintf("%s/%s", path, node));
	MemoryContextSwitchTo(caller);
	return nodes != NIL;
}

/* Read some leases, and delete those whose term is over. */
static ZkOutcome
end_leases(ZkRoundTrip *trip, Sweep *sweep, const List *paths, Turns *turns)
{
	List	   *asked = NIL;
	List	   *read;
	ZkOutcome	outcome;

	foreach_ptr(char, path, paths)
	{
		ZkLeased   *one = palloc0(sizeof(*one));

		one->node = strrchr(path, '/') + 1;
		one->path = path;
		asked = lappend(asked, one);
	}
	trip->deadline = zklock_worker_deadline();
	outcome = zklock_expiry_read_paths(trip, asked, &read);
	if (outcome != ZK_ANSWERED)
		return outcome;
	trip->deadline = zklock_worker_deadline();
	return end_overdue(trip, sweep, read, turns);
}

/*
 * Delete those of them whose term is over, all in one flush.  One that is renewed
 * meanwhile stays.  What is not answered in time, refused, or lost with the
 * connection is found again.
 */
static ZkOutcome
end_overdue(ZkRoundTrip *trip, Sweep *sweep, const List *leases, Turns *turns)
{
	List	   *overdue;
	ListCell   *lease_cell;
	ListCell   *request_cell;

	free_removals(turns);		/* those that were not answered in time */
	overdue = send_removals(sweep, leases, turns);
	forboth(lease_cell, overdue, request_cell, turns->removals)
	{
		const ZkReply *reply;
		ZkOutcome	outcome = zklock_roundtrip_await(trip,
													 lfirst(request_cell),
													 &reply);

		if (outcome == ZK_LATE || outcome == ZK_LOST)
			return outcome;

		/*
		 * One that was gone already is not a reason to look at once: if the
		 * server shows it for ever, the sessions behind it raise the error.
		 */
		zklock_expiry_note_end(lfirst(lease_cell), reply->result == ZK_OK,
							   &sweep->look_at);
	}
	free_removals(turns);
	return ZK_ANSWERED;
}

/* Send the deletes.  Result: the leases that they are about, in order. */
static List *
send_removals(Sweep *sweep, const List *leases, Turns *turns)
{
	List	   *overdue = NIL;

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
		turns->removals = lappend(turns->removals,
								  zklock_client_remove(zklock_session_client(),
													   lease->path,
													   lease->version));
	}
	return overdue;
}

/* Also at the end of an attempt. */
static void
free_removals(void *argument)
{
	Turns	   *turns = argument;

	foreach_ptr(ZkRequest, request, turns->removals)
		zklock_client_free(request);
	list_free(turns->removals);
	turns->removals = NIL;
}
