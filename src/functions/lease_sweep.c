/*-------------------------------------------------------------------------
 *
 * lease_sweep.c
 *	  The lease worker's way through all leases of this cluster's roots.
 *
 * Below each root that this cluster has ever asked for a lease below
 * (lease_roots.c) it looks at the queues of all locks that have leases, this
 * cluster's and those of others (lease_names.c), and deletes the leases whose
 * term is over.  Several workers do no harm: see expiry.c.
 *
 * A pass over the leases of one root takes several slices of time if need be.
 * Each root has its share of a slice, and its own progress: many leases below
 * one do not keep the worker from those below another.
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
#include "worker.h"

/* How long after its begin a pass may begin anew, at most and at least. */
#define PASS_MS 5000
#define PASS_MIN_MS 500

/* How long after a look at an idle root the next one is. */
#define LOOK_MS 300000

/* How many leases of one lock are looked at in a pass. */
#define LEASES_AT_ONCE 32

/*
 * How far all leases below a root are looked at: one pass over them, in several
 * slices.
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

/* All of them.  They live as long as the worker's process. */
static struct
{
	MemoryContext context;		/* of all that follows; NULL at first */
	List	   *all;			/* Sweep, one for each root */
	int			next;			/* with which the next slice begins: the one
								 * behind the last */
}			Sweeps;

/* A slice of time. */
typedef struct Slice
{
	int64		until;			/* protocol_now(): when to stop */
	List	   *removals;		/* deletes under way: requests */
} Slice;

static void read_roots(void);
static void take_root(const ZkLeaseRoot *root);
static Sweep *find_sweep(const ZkLeaseRoot *root);
static Sweep *begin_sweep(const ZkLeaseRoot *root);
static void forget_unknown(void);
static bool is_due(const Sweep *sweep);
static ZkOutcome sweep_all(ZkRoundTrip *trip, void *argument);
static ZkOutcome sweep_root(ZkRoundTrip *trip, Sweep *sweep, Slice *slice);
static ZkOutcome list_root(ZkRoundTrip *trip, const char *root,
						   const ZkReply **list);
static void end_pass(Sweep *sweep, bool is_idle);
static List *list_names(const ZkReply *list, const char *behind);
static int	compare_names(const ListCell *a, const ListCell *b);
static void note_progress(Sweep *sweep, const char *name);
static ZkOutcome sweep_locks(ZkRoundTrip *trip, Sweep *sweep,
							 const List *names, Slice *slice);
static ZkOutcome list_leases(ZkRoundTrip *trip, const char *root,
							 const List *names, List **leases, List **idle);
static void take_leases(const char *path, const ZkReply *list, List **leases);
static ZkOutcome end_leases(ZkRoundTrip *trip, Sweep *sweep,
							const List *leases, Slice *slice);
static ZkOutcome end_overdue(ZkRoundTrip *trip, Sweep *sweep,
							 const List *leases, Slice *slice);
static List *send_removals(Sweep *sweep, const List *leases, Slice *slice);
static void free_removals(void *argument);

ZkOutcome
zklock_lease_sweep(int64 until)
{
	Slice		slice = {.until = until};
	ZkBounds	bounds = zklock_bounds_of_task();
	bool		has_work = false;

	read_roots();
	foreach_ptr(const Sweep, sweep, Sweeps.all)
		has_work |= is_due(sweep);
	if (!has_work)
		return ZK_ANSWERED;
	return zklock_roundtrip_run_within(&bounds, sweep_all, free_removals,
									   &slice);
}

int64
zklock_lease_sweep_next_at(void)
{
	int64		at = ZK_NO_DEADLINE;

	foreach_ptr(const Sweep, sweep, Sweeps.all)
		at = Min(at, sweep->due_at);
	return at;
}

bool
zklock_lease_sweep_is_idle(void)
{
	foreach_ptr(const Sweep, sweep, Sweeps.all)
	{
		if (!sweep->root.is_idle)
			return false;
	}
	return true;
}

void
zklock_lease_sweep_begin_anew(void)
{
	foreach_ptr(Sweep, sweep, Sweeps.all)
	{
		sweep->due_at = 0;
	}
}

/* ---------------------------------------------------------------------
 * Roots
 * ---------------------------------------------------------------------
 */

/* Have a sweep for each root, and none for others. */
static void
read_roots(void)
{
	List	   *roots = zklock_lease_roots();

	if (Sweeps.context == NULL)
		Sweeps.context = AllocSetContextCreate(TopMemoryContext,
											   "zklock lease worker",
											   ALLOCSET_SMALL_SIZES);
	foreach_ptr(Sweep, sweep, Sweeps.all)
	{
		sweep->is_known = false;
	}
	foreach_ptr(const ZkLeaseRoot, root, roots)
	{
		take_root(root);
	}
	forget_unknown();
}

/* One that was idle and has been noted since is due. */
static void
take_root(const ZkLeaseRoot *root)
{
	Sweep	   *sweep = find_sweep(root);

	if (sweep == NULL)
		sweep = begin_sweep(root);
	if (sweep->root.is_idle && sweep->root.noted != root->noted)
		sweep->due_at = 0;
	if (sweep->name[0] == '\0')
		sweep->root.noted = root->noted;
	sweep->root.is_idle = root->is_idle;
	sweep->is_known = true;
}

static Sweep *
find_sweep(const ZkLeaseRoot *root)
{
	foreach_ptr(Sweep, sweep, Sweeps.all)
	{
		if (strcmp(sweep->root.root, root->root) == 0 &&
			strcmp(sweep->root.path, root->path) == 0)
			return sweep;
	}
	return NULL;
}

static Sweep *
begin_sweep(const ZkLeaseRoot *root)
{
	MemoryContext caller = MemoryContextSwitchTo(Sweeps.context);
	Sweep	   *sweep = palloc0(sizeof(*sweep));

	sweep->root.root = pstrdup(root->root);
	sweep->root.path = pstrdup(root->path);
	sweep->name = pstrdup("");
	sweep->look_at = ZK_NO_DEADLINE;
	Sweeps.all = lappend(Sweeps.all, sweep);
	MemoryContextSwitchTo(caller);
	return sweep;
}

static void
forget_unknown(void)
{
	for (int i = list_length(Sweeps.all) - 1; i >= 0; i--)
	{
		Sweep	   *sweep = list_nth(Sweeps.all, i);

		if (sweep->is_known)
			continue;
		Sweeps.all = list_delete_nth_cell(Sweeps.all, i);
		pfree(sweep->root.root);
		pfree(sweep->root.path);
		pfree(sweep->name);
		pfree(sweep);
	}
}

static bool
is_due(const Sweep *sweep)
{
	return sweep->due_at <= protocol_now();
}

/* ---------------------------------------------------------------------
 * Passes
 * ---------------------------------------------------------------------
 */

/*
 * Go on with all leases below the roots that are due: each has an equal share
 * of the time that is left.  ZK_LATE: nobody has answered about one, so the
 * others are left to the next slice.
 */
static ZkOutcome
sweep_all(ZkRoundTrip *trip, void *argument)
{
	Slice	   *slice = argument;
	int64		until = slice->until;
	int			ndue = 0;
	int			count = list_length(Sweeps.all);

	trip->by = ZK_BY_CALLER;
	foreach_ptr(const Sweep, sweep, Sweeps.all)
		ndue += is_due(sweep);
	for (int n = 0; n < count && ndue > 0; n++)
	{
		Sweep	   *sweep = list_nth(Sweeps.all, Sweeps.next % count);
		ZkOutcome	outcome;

		Sweeps.next = (Sweeps.next + 1) % count;
		if (!is_due(sweep))
			continue;
		slice->until = protocol_now() +
			Max(0, until - protocol_now()) / ndue--;
		outcome = sweep_root(trip, sweep, slice);
		slice->until = until;
		if (outcome != ZK_ANSWERED)
			return outcome;
	}
	return ZK_ANSWERED;
}

/*
 * Go on with the leases below one root, until that time.  ZK_LATE: its locks
 * could not be listed.
 */
static ZkOutcome
sweep_root(ZkRoundTrip *trip, Sweep *sweep, Slice *slice)
{
	const ZkReply *list;
	ZkOutcome	outcome = list_root(trip, sweep->root.path, &list);
	List	   *names;
	List	   *batch = NIL;

	if (outcome != ZK_ANSWERED)
		return outcome;
	if (list->result != ZK_OK || list->nchildren == 0)
	{
		end_pass(sweep, true);
		return ZK_ANSWERED;
	}
	names = list_names(list, sweep->name);
	foreach_ptr(char, name, names)
	{
		batch = lappend(batch, name);
		if (list_length(batch) < ZK_READS_AT_ONCE && name != llast(names))
			continue;
		CHECK_FOR_INTERRUPTS();

		/* what cannot be read in time does not keep the worker from others */
		if (sweep_locks(trip, sweep, batch, slice) == ZK_LOST)
			return ZK_LOST;
		note_progress(sweep, name);
		if (protocol_now() >= slice->until && name != llast(names))
			return ZK_ANSWERED;
		list_free(batch);
		batch = NIL;
	}
	end_pass(sweep, false);
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

/* All is looked at.  When is the next pass?  That of an idle root is far off. */
static void
end_pass(Sweep *sweep, bool is_idle)
{
	int64		now = protocol_now();

	zklock_lease_roots_tell(&sweep->root, is_idle);
	sweep->root.is_idle = is_idle;
	if (is_idle)
		sweep->due_at = now + LOOK_MS;
	else
		sweep->due_at = Max(now + PASS_MIN_MS,
							Min(now + PASS_MS, sweep->look_at));
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

	sweep->name = MemoryContextStrdup(Sweeps.context, name);
	pfree(former);
}

/* Look at the leases of some locks, ZK_READS_AT_ONCE at most, all at once. */
static ZkOutcome
sweep_locks(ZkRoundTrip *trip, Sweep *sweep, const List *names, Slice *slice)
{
	const char *root = sweep->root.path;
	ZkOutcome	outcome;
	List	   *leases;
	List	   *idle;

	trip->deadline = zklock_worker_deadline();
	outcome = list_leases(trip, root, names, &leases, &idle);
	if (outcome == ZK_ANSWERED)
		outcome = end_leases(trip, sweep, leases, slice);
	if (outcome != ZK_ANSWERED || idle == NIL)
		return outcome;
	trip->deadline = zklock_worker_deadline();
	return zklock_lease_names_drop(trip, root, idle);
}

/*
 * List the queues of some locks: the leases in them, ZkLeased with name and
 * path, and the names of those that have none.  What others wrote below .leases
 * is skipped.
 */
static ZkOutcome
list_leases(ZkRoundTrip *trip, const char *root, const List *names,
			List **leases, List **idle)
{
	char	   *locks[ZK_READS_AT_ONCE];
	char	   *paths[ZK_READS_AT_ONCE] = {0};	/* of the queue of each */
	const ZkReply *lists[ZK_READS_AT_ONCE];
	int			nlocks = 0;
	ZkOutcome	outcome;

	Assert(list_length(names) <= ZK_READS_AT_ONCE);
	*leases = NIL;
	*idle = NIL;
	foreach_ptr(char, name, names)
	{
		char	   *path = zklock_name_leased_path(root, name);

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
		int			nbefore = list_length(*leases);

		if (lists[i]->result != ZK_OK && lists[i]->result != ZK_NO_NODE)
			continue;
		if (lists[i]->result == ZK_OK)
			take_leases(paths[i], lists[i], leases);
		if (list_length(*leases) == nbefore)
			*idle = lappend(*idle, locks[i]);
	}
	zklock_roundtrip_end_reads(trip, nlocks);
	return ZK_ANSWERED;
}

/*
 * Add the leases of a queue.  Of many the first ones will do: the others are
 * looked at when those are gone.
 */
static void
take_leases(const char *path, const ZkReply *list, List **leases)
{
	List	   *nodes = zklock_expiry_nodes(list->children, list->nchildren);

	foreach_ptr(const char, node, list_truncate(nodes, LEASES_AT_ONCE))
	{
		ZkLeased   *one = palloc0(sizeof(*one));

		one->node = node;
		one->path = psprintf("%s/%s", path, node);
		*leases = lappend(*leases, one);
	}
}

/* Read them, and delete those whose term is over. */
static ZkOutcome
end_leases(ZkRoundTrip *trip, Sweep *sweep, const List *leases, Slice *slice)
{
	List	   *batch = NIL;

	foreach_ptr(ZkLeased, lease, leases)
	{
		ZkOutcome	outcome;
		List	   *read;

		batch = lappend(batch, lease);
		if (list_length(batch) < ZK_READS_AT_ONCE && lease != llast(leases))
			continue;
		trip->deadline = zklock_worker_deadline();
		outcome = zklock_expiry_read_paths(trip, batch, &read, NULL);
		if (outcome != ZK_ANSWERED)
			return outcome;
		trip->deadline = zklock_worker_deadline();
		outcome = end_overdue(trip, sweep, read, slice);
		if (outcome != ZK_ANSWERED)
			return outcome;
		list_free(batch);
		batch = NIL;
	}
	return ZK_ANSWERED;
}

/*
 * Delete those of them whose term is over, all in one flush.  One that is renewed
 * meanwhile stays.  What is not answered in time, refused, or lost with the
 * connection is found again.
 */
static ZkOutcome
end_overdue(ZkRoundTrip *trip, Sweep *sweep, const List *leases, Slice *slice)
{
	List	   *overdue;
	ListCell   *lease_cell;
	ListCell   *request_cell;

	free_removals(slice);		/* those that were not answered in time */
	overdue = send_removals(sweep, leases, slice);
	forboth(lease_cell, overdue, request_cell, slice->removals)
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
	free_removals(slice);
	return ZK_ANSWERED;
}

/* Send the deletes.  Result: the leases that they are about, in order. */
static List *
send_removals(Sweep *sweep, const List *leases, Slice *slice)
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
		slice->removals = lappend(slice->removals,
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
	Slice	   *slice = argument;

	foreach_ptr(ZkRequest, request, slice->removals)
		zklock_client_free(request);
	list_free(slice->removals);
	slice->removals = NIL;
}
