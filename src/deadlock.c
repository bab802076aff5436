/*-------------------------------------------------------------------------
 *
 * deadlock.c
 *	  Deadlocks: who waits says so, looks for a cycle, and gives way.
 *
 * A wait is left alone for deadlock_timeout.  Then the waiter makes a fact of
 * it, a znode (deadlock_private.h), and after that follows who waits for whom
 * (deadlock_graph.c).  It does so once for each fact that it makes, for a
 * cycle is complete only when its last fact is there, and whoever made that
 * one finds all others: its own create was answered, so its server knows
 * whatever was made before it.  For the same reason it is who gives way: of a
 * cycle that one backend whose fact is the newest, by czxid.  All others see
 * that theirs is older, and leave it.  With the same deadlock_timeout
 * everywhere that is who came to wait last.
 *
 * Who holds no lock, and blocks nobody in PostgreSQL, is waited for by nobody:
 * it says nothing and looks for nothing, so that a long queue costs nothing.
 *
 * Nobody tells us when a backend begins to wait for us in PostgreSQL, so a
 * waiter looks at its own locks there every now and then, in this cluster's
 * memory; that somebody waits for it is a fact of its own.
 *
 * No false alarm: what two looks have found alike, the second one with the
 * leader's knowledge, was there all the time in between (a fact has a czxid,
 * so it is about one wait), and so all of it at once.  A fact of a wait in
 * PostgreSQL may be outdated until its maker looks again: its maker is asked
 * to say so once more in between, and those of our own are looked at again.
 * What remains: somebody whose session is suspended may have given up, which
 * the ensemble does not know; and who gives up at that very moment.
 *
 * A session that holds a lock by the word of the one ahead stands behind that
 * one's node for a while, for all that others can tell; a fact may be deleted
 * by strangers; an answer may be an error that passes.  So who waits long
 * looks once more after a session timeout, and then after twice as long each
 * time.
 *
 * Errors of ZooKeeper's do not end a wait that may be granted: then nothing
 * is found.
 *
 *-------------------------------------------------------------------------
 */
#include "deadlock_private.h"

#include "storage/lock.h"
#include "storage/proc.h"
#include "utils/memutils.h"

#include "board.h"

/* Time between two looks at PostgreSQL's locks, at least. */
#define LOOK_AGAIN_MS 1000

/*
 * How long a look may take.  It is done again later, with twice the time if
 * that was too short: its reads go one by one.
 */
#define LOOK_MS 5000
#define LOOK_MAX_MS 60000

/*
 * How often in a row to look for a cycle that cannot be confirmed: somebody
 * may have made it up.  After that once in a session timeout.
 */
#define SUSPICIONS_MAX 10

/* How often those are looked up who are not on the board. */
#define HOLDERS_MS 10000

/*
 * How long to wait for other waiters to say once more who waits for them, and
 * how often to see whether they have.  They look every LOOK_AGAIN_MS.
 */
#define ASK_MS 4000
#define ASK_AGAIN_MS 100

static void begin_look(ZkDetector *detector, int64 deadline);
static void schedule(ZkDetector *detector);
static bool is_due(ZkDetector *detector);
static bool note_blocked(ZkDetector *detector, const ZkPlace *place,
						 List *waiters);
static List *find_blocked(ZkDetector *detector, const ZkPlace *place);
static List *look_up_holders(ZkDetector *detector, const ZkPlace *place);
static void look_for_cycle(ZkDetector *detector, const ZkPlace *place,
						   int64 deadline);
static void note_suspicion(ZkDetector *detector, bool is_over, bool is_found);
static bool find_cycle(ZkDetector *detector, const ZkPlace *place,
					   bool is_newest, Cycle *cycle);
static bool is_same(const Cycle *a, const Cycle *b);
static bool is_confirmed(ZkDetector *detector, const ZkPlace *place,
						 const Cycle *cycle, int64 deadline);
static bool needs_word(const Cycle *cycle, int step);
static bool is_said_again(ZkDetector *detector, const ZkPlace *place,
						  const Cycle *cycle, int step);
static bool is_true_still(ZkDetector *detector, const ZkPlace *place,
						  const Cycle *cycle);

void
zklock_deadlock_begin(ZkDetector *detector)
{
	detector->look_at = zklock_client_now() + DeadlockTimeout;
	detector->context = CurrentMemoryContext;
}

void
zklock_deadlock_look(ZkDetector *detector, const ZkPlace *place,
					 bool holds_locks, int64 deadline)
{
	MemoryContext scratch = AllocSetContextCreate(CurrentMemoryContext,
												  "zklock deadlock",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(scratch);
	List	   *waiters;
	bool		is_news;

	begin_look(detector, deadline);
	waiters = find_blocked(detector, place);
	deadlock_forget_gone(detector, waiters);
	is_news = is_due(detector);

	/* its own wait first: it is a part of each cycle */
	if (holds_locks || waiters != NIL)
		is_news |= deadlock_say_wait(detector, place);
	is_news |= note_blocked(detector, place, waiters);
	deadlock_answer(detector, place);
	if (detector->wait != NULL &&
		(is_news || (detector->is_suspicious &&
					 zklock_client_now() >= detector->suspicious_at)))
		look_for_cycle(detector, place, deadline);

	zklock_roundtrip_end(&detector->trip);
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(scratch);
	schedule(detector);
}

void
zklock_deadlock_end(ZkDetector *detector)
{
	zklock_roundtrip_end(&detector->trip);
	deadlock_take_back_all(detector);
	detector->again_at = 0;
	detector->holders_at = 0;
	detector->is_suspicious = false;
	detector->nsuspicions = 0;
	detector->is_refused = false;
}

/* ---------------------------------------------------------------------
 * When, and what there is to say
 * ---------------------------------------------------------------------
 */

static void
begin_look(ZkDetector *detector, int64 deadline)
{
	if (detector->session != zklock_session_number())
		zklock_deadlock_end(detector);
	detector->session = zklock_session_number();
	if (detector->look_ms == 0)
		detector->look_ms = LOOK_MS;
	detector->trip.deadline = Min(deadline,
								  zklock_client_now() + detector->look_ms);
}

/* When to look at PostgreSQL's locks again. */
static void
schedule(ZkDetector *detector)
{
	detector->look_at = zklock_client_now() +
		(detector->blocked != NIL || detector->is_suspicious ?
		 LOOK_AGAIN_MS : Max(DeadlockTimeout, LOOK_AGAIN_MS));
}

/*
 * Is it time to look for a cycle, though nothing is new?  Then the next time
 * is set, and a fact that somebody has deleted is forgotten, to be made anew.
 */
static bool
is_due(ZkDetector *detector)
{
	int64		now = zklock_client_now();
	ZkClientStatus status;

	if (detector->wait == NULL || !zklock_session_status(&status))
		return false;
	if (detector->again_at == 0)
	{
		detector->again_ms = status.session_timeout_ms;
		detector->again_at = now + detector->again_ms;
	}
	if (now < detector->again_at)
		return false;
	detector->again_ms *= 2;
	detector->again_at = now + detector->again_ms;
	deadlock_forget_deleted(detector);
	return true;
}

/* Say who waits for us in PostgreSQL.  Result: is anybody new? */
static bool
note_blocked(ZkDetector *detector, const ZkPlace *place, List *waiters)
{
	LockData   *locks = NULL;
	ListCell   *cell;
	bool		is_news = false;

	foreach(cell, waiters)
		is_news |= deadlock_say_blocked(detector, place, lfirst(cell), &locks);
	return is_news;
}

/*
 * Who waits for us in PostgreSQL, and holds ZooKeeper locks?  Without shared
 * memory we know of those only that hold the lock that we wait for.
 */
static List *
find_blocked(ZkDetector *detector, const ZkPlace *place)
{
	if (!deadlock_is_waited_for())
		return NIL;
	return deadlock_local_waiters(zklock_board_size() > 1 ?
								  deadlock_local_candidates() :
								  look_up_holders(detector, place));
}

static List *
look_up_holders(ZkDetector *detector, const ZkPlace *place)
{
	int64		now = zklock_client_now();
	MemoryContext caller;
	ListCell   *cell;

	if (now >= detector->holders_at)
	{
		List	   *holders = deadlock_local_holders(&detector->trip, place);

		list_free_deep(detector->holders);
		caller = MemoryContextSwitchTo(detector->context);
		detector->holders = NIL;
		foreach(cell, holders)
		{
			LocalWaiter *holder = palloc(sizeof(*holder));

			*holder = *(LocalWaiter *) lfirst(cell);
			detector->holders = lappend(detector->holders, holder);
		}
		MemoryContextSwitchTo(caller);
		detector->holders_at = now + HOLDERS_MS;
	}
	return detector->holders;
}

/* ---------------------------------------------------------------------
 * Cycles
 * ---------------------------------------------------------------------
 */

/* Give way if there is a cycle of which we have said the last. */
static void
look_for_cycle(ZkDetector *detector, const ZkPlace *place, int64 deadline)
{
	Cycle		first;
	Cycle		second;
	bool		is_over = find_cycle(detector, place, false, &first);

	note_suspicion(detector, is_over, is_over && first.length > 0);
	if (!is_over || first.length == 0)
		return;
	ereport(DEBUG1,
			(errmsg_internal("lock \"%s\": this may be a deadlock",
							 place->name),
			 errdetail_internal("%s", deadlock_describe(place, &first))));
	if (!is_confirmed(detector, place, &first, deadline))
		return;
	detector->trip.deadline = Min(deadline,
								  zklock_client_now() + detector->look_ms);
	if (find_cycle(detector, place, true, &second) &&
		is_same(&first, &second) && is_true_still(detector, place, &second))
		deadlock_raise(place, &second);
}

/* A look has come to its end, or not; it has found something, or not. */
static void
note_suspicion(ZkDetector *detector, bool is_over, bool is_found)
{
	int64		now = zklock_client_now();
	ZkClientStatus status;

	detector->is_suspicious = !is_over || is_found;
	detector->nsuspicions = is_found ? detector->nsuspicions + 1 : 0;
	detector->suspicious_at = now;
	if (!is_over && now >= detector->trip.deadline)
		detector->look_ms = Min(2 * detector->look_ms, LOOK_MAX_MS);
	if (detector->nsuspicions > SUSPICIONS_MAX &&
		zklock_session_status(&status))
		detector->suspicious_at = now + status.session_timeout_ms;
}

/*
 * Find a cycle with us in it, of which the newest fact is ours: our wait, or
 * that somebody waits for us in PostgreSQL.  false if there was no end to it.
 */
static bool
find_cycle(ZkDetector *detector, const ZkPlace *place, bool is_newest,
		   Cycle *cycle)
{
	int64		said = detector->wait->czxid;
	CycleGraph *shape;

	cycle->length = 0;
	cycle->graph = deadlock_follow(&detector->trip, place,
								   deadlock_own_session(), said, is_newest);
	if (cycle->graph == NULL)
		return false;
	shape = &cycle->graph->shape;
	cycle_settle(shape, said);
	cycle->length = cycle_find(shape, 0, 0, said, cycle->way);
	for (int i = 0; i < shape->nedges && cycle->length == 0; i++)
	{
		const CycleEdge *edge = &shape->edges[i];

		if (edge->to != 0 || cycle->graph->in_postgres[i] == NULL)
			continue;
		cycle_settle(shape, edge->said);
		cycle->length = cycle_find(shape, 0, edge->from, edge->said - 1,
								   cycle->way);
		if (cycle->length > 0)
			cycle->way[cycle->length++] = i;
	}
	return true;
}

/* Are both made of the same facts? */
static bool
is_same(const Cycle *a, const Cycle *b)
{
	if (a->length != b->length)
		return false;
	for (int i = 0; i < a->length; i++)
	{
		const CycleEdge *one = &a->graph->shape.edges[a->way[i]];
		const CycleEdge *other = &b->graph->shape.edges[b->way[i]];

		if (one->said != other->said ||
			a->graph->members[one->from].session !=
			b->graph->members[other->from].session ||
			a->graph->members[one->to].session !=
			b->graph->members[other->to].session)
			return false;
	}
	return true;
}

/*
 * Do those who know say once more who waits in PostgreSQL?  All are asked at
 * the same time; meanwhile others may ask us.  News of our own wait, and its
 * end, end this.
 */
static bool
is_confirmed(ZkDetector *detector, const ZkPlace *place, const Cycle *cycle,
			 int64 deadline)
{
	int64		until = Min(deadline, zklock_client_now() + ASK_MS);
	int64		answer_at = 0;
	int			nopen = 0;
	bool		is_open[CYCLE_NODES_MAX];

	detector->trip.deadline = until;
	for (int i = 0; i < cycle->length; i++)
	{
		is_open[i] = needs_word(cycle, i);
		if (is_open[i])
			deadlock_ask(detector, place,
						 cycle->graph->members[cycle->graph->shape.edges[cycle->way[i]].to].session);
		nopen += is_open[i];
	}
	while (nopen > 0 && zklock_client_now() < until &&
		   zklock_session_await_watch(zklock_client_now() + ASK_AGAIN_MS) ==
		   ZK_WAIT_TIMEOUT)
	{
		for (int i = 0; i < cycle->length; i++)
		{
			if (!is_open[i] || !is_said_again(detector, place, cycle, i))
				continue;
			is_open[i] = false;
			nopen--;
		}
		if (zklock_client_now() < answer_at)
			continue;
		deadlock_forget_gone(detector, find_blocked(detector, place));
		deadlock_answer(detector, place);
		answer_at = zklock_client_now() + LOOK_AGAIN_MS;
	}
	deadlock_end_questions(detector);
	return nopen == 0;
}

/* Is that step a wait in PostgreSQL that somebody else has told of? */
static bool
needs_word(const Cycle *cycle, int step)
{
	int			edge = cycle->way[step];

	return cycle->graph->in_postgres[edge] != NULL &&
		cycle->graph->shape.edges[edge].to != 0;
}

static bool
is_said_again(ZkDetector *detector, const ZkPlace *place, const Cycle *cycle,
			  int step)
{
	const Graph *graph = cycle->graph;
	int			number = cycle->way[step];
	const CycleEdge *edge = &graph->shape.edges[number];
	char	   *path = deadlock_path_of_blocked(place,
												graph->members[edge->from].session,
												graph->members[edge->to].session);
	const ZkReply *reply = zklock_roundtrip_read(&detector->trip,
												 zklock_client_get, path);

	pfree(path);
	return reply != NULL && reply->result == ZK_OK &&
		reply->czxid == edge->said && reply->version > graph->versions[number];
}

/*
 * After all these looks: is there no news for us, and does whoever is to wait
 * for us in PostgreSQL still do?
 */
static bool
is_true_still(ZkDetector *detector, const ZkPlace *place, const Cycle *cycle)
{
	const Graph *graph = cycle->graph;
	int			last = cycle->way[cycle->length - 1];

	if (graph->in_postgres[last] != NULL)
	{
		deadlock_forget_gone(detector, find_blocked(detector, place));
		if (!deadlock_has_said(detector,
							   graph->members[graph->shape.edges[last].from].session))
			return false;
	}
	return zklock_session_await_watch(zklock_client_now()) == ZK_WAIT_TIMEOUT;
}
