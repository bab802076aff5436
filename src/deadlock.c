/*-------------------------------------------------------------------------
 *
 * deadlock.c
 *	  Deadlocks: who waits says so, searches for a cycle, and gives way.
 *
 * A wait is left alone for deadlock_timeout.  Then the waiter makes a fact of
 * it, a znode (deadlock_private.h), and reads who waits for whom from there
 * (deadlock_graph.c).  A cycle is complete only when its last fact is there.
 * Whoever made that one finds all others: its own create was answered, so its
 * server knows whatever was made before it.  So each waiter searches once for
 * each fact that it makes, and the one whose fact is the newest of the cycle,
 * by czxid, gives way.  All others see that theirs is older, and leave it.
 * With the same deadlock_timeout everywhere that is who came to wait last.
 *
 * A backend that holds no lock, and blocks nobody in PostgreSQL, is waited for
 * by nobody.  It says nothing and searches for nothing, so that a long queue
 * costs nothing.
 *
 * Nobody tells us when a backend begins to wait for us in PostgreSQL.  So a
 * waiter checks its own locks there once a second or so, in this cluster's
 * memory.  That somebody waits for it is a fact of its own.
 *
 * No false alarm.  A fact has a czxid, so it is about one wait.  What two
 * searches have found alike, the second one with the leader's knowledge, was
 * there all the time in between, and so all of it at once.  A fact of a wait
 * in PostgreSQL may be outdated until its maker checks again.  So it counts
 * only if its maker says it once more in between, as he does with every check,
 * and those of our own are checked again.  What remains: a session that is
 * suspended may have given up, which the ensemble does not know; and one that
 * gives up at that very moment.
 *
 * Some cycles are not seen at first.  A session that was handed a lock by the
 * one ahead stands behind that one's node for a while, for all that others can
 * tell; a fact may be deleted by strangers; an answer may be an error that
 * passes.  So a long wait is followed by another search after a session
 * timeout, and then after twice as long each time.
 *
 * A fact is in the detector before its create is sent, so that whatever raises
 * leaves it to zklock_deadlock_end().
 *
 * Errors of ZooKeeper's do not end a wait that may be granted: then nothing
 * is found.
 *
 *-------------------------------------------------------------------------
 */
#include "deadlock_private.h"

#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "utils/backend_status.h"
#include "utils/memutils.h"

#include "board.h"
#include "stat.h"

/* Time between two checks of PostgreSQL's locks, at least. */
#define CHECK_AGAIN_MS 1000

/*
 * How long a search may take.  It is done again later, with twice the time if
 * that was too short.
 */
#define SEARCH_MS 5000
#define SEARCH_MAX_MS 60000

/*
 * How often in a row to search for a cycle that cannot be confirmed: somebody
 * may have made it up.
 */
#define SUSPICIONS_MAX 10

/*
 * How long to wait for other waiters to say once more who waits for them,
 * which they do every CHECK_AGAIN_MS, and how often to look.
 */
#define CONFIRM_MS 4000
#define LOOK_AGAIN_MS 100

/* Most facts at a time. */
#define FACTS_MAX 64

static void schedule(ZkDetector *detector);
static List *find_blocked(ZkDetector *detector, const ZkPlace *place);
static void forget_gone(ZkDetector *detector, List *waiters);
static bool say_wait(ZkDetector *detector, const ZkPlace *place);
static bool say_blocked(ZkDetector *detector, const ZkPlace *place,
						List *waiters);
static void search(ZkDetector *detector, const ZkPlace *place, int64 deadline);
static void note_search(ZkDetector *detector, bool is_over, bool is_found);
static bool find_cycle(ZkDetector *detector, const ZkPlace *place,
					   bool is_newest, Cycle *cycle);
static bool is_same(const Cycle *a, const Cycle *b);
static bool confirm(ZkDetector *detector, const ZkPlace *place,
					const Cycle *cycle, int64 deadline);
static const CycleEdge *edge_of(const Cycle *cycle, int step);
static bool is_said_again(ZkDetector *detector, const ZkPlace *place,
						  const Cycle *cycle, int step);
static bool is_true_still(ZkDetector *detector, const ZkPlace *place,
						  const Cycle *cycle);
pg_noreturn static void give_way(const ZkPlace *place, const Cycle *cycle);
static char *describe(const ZkPlace *place, const Cycle *cycle);
static void append_member(StringInfo text, const Member *member,
						  const char *process);
static const char *name_of_lock(const ZkPlace *place, const char *lock_path);
static void append_statements(StringInfo text, const Cycle *cycle);
static bool say(ZkDetector *detector, const ZkPlace *place, FactKind kind,
				int64 session, const char *data);
static ZkFact *find_fact(const ZkDetector *detector, FactKind kind,
						 int64 session);
static bool blocks_somebody(const ZkDetector *detector);
static void take_back(ZkDetector *detector, ZkFact *fact);
static void forget_deleted(ZkDetector *detector);
static void repeat(const ZkDetector *detector);
static ZkFact *new_fact(ZkDetector *detector, FactKind kind, int64 session,
						const char *path, const char *data);
static bool make(ZkDetector *detector, const ZkPlace *place, ZkFact *fact);
static bool adopt_or_delete(ZkDetector *detector, ZkFact *fact);
static void note_refusal(ZkDetector *detector, const ZkFact *fact,
						 const ZkReply *reply);

void
zklock_deadlock_begin(ZkDetector *detector, int64 now)
{
	detector->look_at = now + DeadlockTimeout;
	detector->context = CurrentMemoryContext;
	detector->search_ms = SEARCH_MS;
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
	bool		is_due;
	bool		is_news = false;

	if (detector->session != zklock_session_number())
		zklock_deadlock_end(detector);
	detector->session = zklock_session_number();
	detector->trip.deadline = Min(deadline,
								  zklock_client_now() + detector->search_ms);
	waiters = find_blocked(detector, place);
	forget_gone(detector, waiters);
	is_due = detector->cycle_at != 0 &&
		zklock_client_now() >= detector->cycle_at;
	if (is_due)
		forget_deleted(detector);

	/* its own wait first: it is a part of each cycle */
	if (holds_locks || waiters != NIL)
		is_news = say_wait(detector, place);
	repeat(detector);
	is_news |= say_blocked(detector, place, waiters);
	if (is_news || is_due)
		search(detector, place, deadline);

	zklock_roundtrip_end(&detector->trip);
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(scratch);
	schedule(detector);
}

void
zklock_deadlock_end(ZkDetector *detector)
{
	if (detector->session == 0)
		return;					/* nothing was ever asked */
	zklock_roundtrip_end(&detector->trip);
	while (detector->facts != NIL)
		take_back(detector, llast(detector->facts));
	detector->cycle_at = 0;
	detector->pause_ms = 0;
	detector->nsuspicions = 0;
	detector->is_refused = false;
}

/* ---------------------------------------------------------------------
 * When, and what there is to say
 * ---------------------------------------------------------------------
 */

/* When to check PostgreSQL's locks again. */
static void
schedule(ZkDetector *detector)
{
	int64		now = zklock_client_now();
	bool		is_suspicious = detector->cycle_at != 0 &&
		detector->cycle_at <= now + CHECK_AGAIN_MS;

	detector->look_at = now +
		(blocks_somebody(detector) || is_suspicious ?
		 CHECK_AGAIN_MS : Max(DeadlockTimeout, CHECK_AGAIN_MS));
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
								  deadlock_local_holders(&detector->trip,
														 place));
}

/* Take back what is said of those who are not among the waiters. */
static void
forget_gone(ZkDetector *detector, List *waiters)
{
	ListCell   *cell;

	foreach(cell, list_copy(detector->facts))
	{
		ZkFact	   *fact = lfirst(cell);
		ListCell   *other;
		bool		is_gone = fact->kind == FACT_BLOCKED;

		foreach(other, waiters)
			is_gone &= ((LocalWaiter *) lfirst(other))->session != fact->session;
		if (is_gone)
			take_back(detector, fact);
	}
}

/* Say that we wait with the place's queue node.  Result: is that new? */
static bool
say_wait(ZkDetector *detector, const ZkPlace *place)
{
	int64		own = zklock_session_id();
	ZkFact	   *said = find_fact(detector, FACT_WAIT, own);

	if (said != NULL &&
		strncmp(said->data, place->node, strlen(place->node)) == 0)
		return false;
	if (said != NULL)
		take_back(detector, said);
	return say(detector, place, FACT_WAIT, own,
						psprintf("%s\n%s", place->node,
								 zklock_nodedata_build(0)));
}

/* Say who waits for us in PostgreSQL.  Result: is anybody new? */
static bool
say_blocked(ZkDetector *detector, const ZkPlace *place, List *waiters)
{
	LockData   *locks = NULL;
	ListCell   *cell;
	bool		is_news = false;

	if (find_fact(detector, FACT_WAIT, zklock_session_id()) == NULL)
		return false;
	foreach(cell, waiters)
	{
		const LocalWaiter *waiter = lfirst(cell);

		if (find_fact(detector, FACT_BLOCKED, waiter->session) == NULL)
			is_news |= say(detector, place, FACT_BLOCKED,
									waiter->session,
									deadlock_describe_wait(waiter->pid,
														   &locks));
	}
	return is_news;
}

/* ---------------------------------------------------------------------
 * Cycles
 * ---------------------------------------------------------------------
 */

/* Give way if there is a cycle of which we have said the last. */
static void
search(ZkDetector *detector, const ZkPlace *place, int64 deadline)
{
	Cycle		first;
	Cycle		second;
	bool		is_over;

	if (find_fact(detector, FACT_WAIT, zklock_session_id()) == NULL)
		return;
	is_over = find_cycle(detector, place, false, &first);
	note_search(detector, is_over, is_over && first.length > 0);
	if (!is_over || first.length == 0)
		return;
	ereport(DEBUG1,
			(errmsg_internal("lock \"%s\": this may be a deadlock",
							 place->name),
			 errdetail_internal("%s", describe(place, &first))));
	if (!confirm(detector, place, &first, deadline))
		return;
	detector->trip.deadline = Min(deadline,
								  zklock_client_now() + detector->search_ms);
	if (find_cycle(detector, place, true, &second) &&
		is_same(&first, &second) && is_true_still(detector, place, &second))
		give_way(place, &second);
}

/*
 * A search has come to its end, or not; it has found something, or not.  Set
 * when to search without news: soon if there may be a cycle; else after a
 * session timeout, and then after twice as long each time.
 */
static void
note_search(ZkDetector *detector, bool is_over, bool is_found)
{
	int64		now = zklock_client_now();
	ZkClientStatus status;

	if (!is_over && now >= detector->trip.deadline)
		detector->search_ms = Min(2 * detector->search_ms, SEARCH_MAX_MS);
	detector->nsuspicions = is_over && !is_found ? 0 :
		detector->nsuspicions + 1;
	detector->cycle_at = now;
	if (detector->nsuspicions > 0 && detector->nsuspicions <= SUSPICIONS_MAX)
		return;
	if (detector->pause_ms == 0 && zklock_session_status(&status))
		detector->pause_ms = status.session_timeout_ms;
	detector->cycle_at += Max(detector->pause_ms, CHECK_AGAIN_MS);
	detector->pause_ms = Min(2 * detector->pause_ms, INT_MAX / 4);
}

/*
 * Find a cycle with us in it, of which the newest fact is ours: our wait, or
 * that somebody waits for us in PostgreSQL.  false if there was no end to it.
 */
static bool
find_cycle(ZkDetector *detector, const ZkPlace *place, bool is_newest,
		   Cycle *cycle)
{
	int64		own = zklock_session_id();
	const ZkFact *wait = find_fact(detector, FACT_WAIT, own);
	int64		said = wait != NULL ? wait->czxid : 0;
	CycleGraph *shape;

	cycle->length = 0;
	cycle->graph = deadlock_follow(&detector->trip, place, own, said,
								   is_newest);
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
		const CycleEdge *one = edge_of(a, i);
		const CycleEdge *other = edge_of(b, i);

		if (one->said != other->said ||
			a->graph->members[one->from].session !=
			b->graph->members[other->from].session ||
			a->graph->members[one->to].session !=
			b->graph->members[other->to].session)
			return false;
	}
	return true;
}

/* One step of a cycle. */
static const CycleEdge *
edge_of(const Cycle *cycle, int step)
{
	return &cycle->graph->shape.edges[cycle->way[step]];
}

/*
 * Do those who know say once more who waits in PostgreSQL, as each does with
 * every check?  That is awaited of each step that somebody else has told of;
 * meanwhile others may await ours.  News of our own wait end this.
 */
static bool
confirm(ZkDetector *detector, const ZkPlace *place, const Cycle *cycle,
		int64 deadline)
{
	int64		until = Min(deadline, zklock_client_now() + CONFIRM_MS);
	int64		check_at = 0;
	int			step = 0;

	detector->trip.deadline = until;
	for (;;)
	{
		while (step < cycle->length &&
			   is_said_again(detector, place, cycle, step))
			step++;
		if (step == cycle->length)
			return true;
		if (zklock_client_now() >= until ||
			zklock_session_await_watch(zklock_client_now() + LOOK_AGAIN_MS) !=
			ZK_WAIT_TIMEOUT)
			return false;
		if (zklock_client_now() < check_at)
			continue;
		forget_gone(detector, find_blocked(detector, place));
		repeat(detector);
		check_at = zklock_client_now() + CHECK_AGAIN_MS;
	}
}

/* Of a wait for a lock of ours, and of what we say ourselves, that is known. */
static bool
is_said_again(ZkDetector *detector, const ZkPlace *place, const Cycle *cycle,
			  int step)
{
	const Graph *graph = cycle->graph;
	const CycleEdge *edge = edge_of(cycle, step);
	const ZkReply *reply;

	if (graph->in_postgres[cycle->way[step]] == NULL || edge->to == 0)
		return true;
	reply = zklock_roundtrip_read(&detector->trip, zklock_client_get,
								  deadlock_path(place, FACT_BLOCKED,
												graph->members[edge->from].session,
												graph->members[edge->to].session));
	return reply != NULL && reply->result == ZK_OK &&
		reply->czxid == edge->said &&
		reply->version > graph->versions[cycle->way[step]];
}

/*
 * After all these requests: is there no news for us, and does whoever is to
 * wait for us in PostgreSQL still do?
 */
static bool
is_true_still(ZkDetector *detector, const ZkPlace *place, const Cycle *cycle)
{
	const Graph *graph = cycle->graph;
	int			last = cycle->length - 1;

	if (graph->in_postgres[cycle->way[last]] != NULL)
	{
		forget_gone(detector, find_blocked(detector, place));
		if (find_fact(detector, FACT_BLOCKED,
						  graph->members[edge_of(cycle, last)->from].session) ==
			NULL)
			return false;
	}
	return zklock_session_await_watch(zklock_client_now()) == ZK_WAIT_TIMEOUT;
}

/* ---------------------------------------------------------------------
 * The error, as PostgreSQL words it
 *
 * The client is told which processes of which clusters and databases are in
 * it, and which locks: without that nobody can mend what caused it.  Users
 * and hosts are not told.
 * ---------------------------------------------------------------------
 */

/* Raise 40P01. */
static void
give_way(const ZkPlace *place, const Cycle *cycle)
{
	char	   *detail;
	StringInfoData log;

	detail = describe(place, cycle);
	initStringInfo(&log);
	appendStringInfoString(&log, detail);
	append_statements(&log, cycle);
	pgstat_report_deadlock();
	zklock_stat_count(ZK_STAT_DEADLOCK);
	ereport(ERROR,
			(errcode(ERRCODE_T_R_DEADLOCK_DETECTED),
			 errmsg("deadlock detected"),
			 errdetail_internal("%s", detail),
			 errdetail_log("%s", log.data),
			 errhint("See server log for query details.")));
}

/* A line for each of those who wait, palloc'ed. */
static char *
describe(const ZkPlace *place, const Cycle *cycle)
{
	const Graph *graph = cycle->graph;
	StringInfoData text;

	initStringInfo(&text);
	for (int i = 0; i < cycle->length; i++)
	{
		int			number = cycle->way[i];
		const CycleEdge *edge = edge_of(cycle, i);
		const Member *waiter = &graph->members[edge->from];

		if (i > 0)
			appendStringInfoChar(&text, '\n');
		append_member(&text, waiter, "Process");
		if (graph->in_postgres[number] != NULL)
			appendStringInfo(&text, " waits for %s; blocked by ",
							 graph->in_postgres[number]);
		else
			appendStringInfo(&text, " waits for %s on ZooKeeper lock \"%s\"; blocked by ",
							 waiter->mode == RECIPE_SHARED ?
							 "ShareLock" : "ExclusiveLock",
							 name_of_lock(place, waiter->lock_path));
		append_member(&text, &graph->members[edge->to], "process");
		appendStringInfoChar(&text, '.');
	}
	return text.data;
}

static void
append_member(StringInfo text, const Member *member, const char *process)
{
	if (member->session == zklock_session_id())
		appendStringInfo(text, "%s %d", process, MyProcPid);
	else if (member->who.pid != 0)
		appendStringInfo(text, "%s %d", process, member->who.pid);
	else
		appendStringInfo(text, "%s of ZooKeeper session 0x%llx", process,
						 (unsigned long long) member->session);
	if (member->who.cluster != NULL)
		appendStringInfo(text, " of cluster \"%s\"",
						 zklock_nodedata_quotable_own(member->who.cluster));
	if (member->who.database != NULL)
		appendStringInfo(text, "%s database \"%s\"",
						 member->who.cluster != NULL ? "," : " of",
						 zklock_nodedata_quotable_own(member->who.database));
}

/* As users call it who have our root; anything else is a path. */
static const char *
name_of_lock(const ZkPlace *place, const char *lock_path)
{
	bool		is_below_root =
		strncmp(lock_path, place->lock_path, place->root_length) == 0 &&
		lock_path[place->root_length] == '/';

	return zklock_nodedata_quotable(is_below_root ?
									lock_path + place->root_length + 1 :
									lock_path);
}

/* Those of this cluster; the others' are in the logs of theirs. */
static void
append_statements(StringInfo text, const Cycle *cycle)
{
	for (int i = 0; i < cycle->length; i++)
	{
		ZkBoardRow	row;

		if (zklock_board_find(0, cycle->graph->members[edge_of(cycle, i)->from].session,
							  &row))
			appendStringInfo(text, "\nProcess %d: %s", row.pid,
							 pgstat_get_backend_current_activity(row.pid, false));
	}
}

/*
 * Say a fact of that kind about a session, with that text, unless it is said
 * already.  Result: is it new?  false too if ZooKeeper refuses it.  Raises on
 * interrupts.
 */
static bool
say(ZkDetector *detector, const ZkPlace *place, FactKind kind,
			 int64 session, const char *data)
{
	ZkFact	   *fact;

	if (detector->is_refused ||
		find_fact(detector, kind, session) != NULL ||
		list_length(detector->facts) >= FACTS_MAX)
		return false;
	fact = new_fact(detector, kind, session,
					deadlock_path(place, kind, session,
								  zklock_session_id()),
					data);
	if (make(detector, place, fact))
		return true;
	take_back(detector, fact);
	return false;
}

/* The fact of that kind about a session, or NULL. */
static ZkFact *
find_fact(const ZkDetector *detector, FactKind kind, int64 session)
{
	ListCell   *cell;

	foreach(cell, detector->facts)
	{
		ZkFact	   *fact = lfirst(cell);

		if (fact->kind == kind && fact->session == session)
			return fact;
	}
	return NULL;
}

/* Is anybody said to wait for us in PostgreSQL? */
static bool
blocks_somebody(const ZkDetector *detector)
{
	ListCell   *cell;

	foreach(cell, detector->facts)
		if (((const ZkFact *) lfirst(cell))->kind == FACT_BLOCKED)
		return true;
	return false;
}

/*
 * Take one back, by a delete that is sent again until it is confirmed; what
 * has gone with its session is gone.  Never raises, never waits.
 */
static void
take_back(ZkDetector *detector, ZkFact *fact)
{
	detector->facts = list_delete_ptr(detector->facts, fact);
	if (fact->is_tried && detector->session == zklock_session_number())
		zklock_client_delete(zklock_session_client(), fact->path);
	pfree(fact->path);
	pfree(fact->data);
	pfree(fact);
}

/* Check whether all that was said is there; what is not may be said anew. */
static void
forget_deleted(ZkDetector *detector)
{
	ListCell   *cell;

	foreach(cell, list_copy(detector->facts))
	{
		ZkFact	   *fact = lfirst(cell);
		const ZkReply *reply = zklock_roundtrip_read(&detector->trip,
													 zklock_client_get,
													 fact->path);

		if (reply != NULL &&
			(reply->result == ZK_NO_NODE ||
			 (reply->result == ZK_OK && reply->czxid != fact->czxid)))
			take_back(detector, fact);
	}
}

/*
 * Say once more who waits for us in PostgreSQL, as we have just seen.  Nobody
 * waits for the replies.
 */
static void
repeat(const ZkDetector *detector)
{
	ListCell   *cell;

	foreach(cell, detector->facts)
	{
		const ZkFact *fact = lfirst(cell);

		if (fact->kind == FACT_BLOCKED)
			zklock_client_announce(zklock_session_client(), fact->path,
								   fact->data, strlen(fact->data));
	}
}

/* One that is not made yet, the detector's. */
static ZkFact *
new_fact(ZkDetector *detector, FactKind kind, int64 session, const char *path,
		 const char *data)
{
	MemoryContext caller = MemoryContextSwitchTo(detector->context);
	ZkFact	   *fact = palloc0(sizeof(*fact));

	fact->kind = kind;
	fact->session = session;
	fact->path = pstrdup(path);
	fact->data = pstrdup(data);
	detector->facts = lappend(detector->facts, fact);
	MemoryContextSwitchTo(caller);
	return fact;
}

/*
 * Create a fact's znode.  false if that was refused, or came to no end: then
 * is_tried tells whether there may be one of ours.
 */
static bool
make(ZkDetector *detector, const ZkPlace *place, ZkFact *fact)
{
	for (int attempts = 0; attempts < PARENT_ATTEMPTS; attempts++)
	{
		const ZkReply *reply;

		fact->is_tried = true;
		reply = zklock_roundtrip_create(&detector->trip, fact->path,
										place->root_length, ZK_EPHEMERAL,
										fact->data);
		if (reply == NULL)
			return false;
		switch (reply->result)
		{
			case ZK_OK:
				fact->czxid = reply->czxid;
				return true;
			case ZK_NODE_EXISTS:
				if (adopt_or_delete(detector, fact))
					return true;
				if (fact->is_tried)
					break;
				note_refusal(detector, fact, reply);
				return false;
			case ZK_UNKNOWN_OUTCOME:
				break;
			case ZK_SESSION_LOST:
				return false;
			default:
				note_refusal(detector, fact, reply);
				return false;
		}
	}
	return false;
}

/*
 * There is a znode at the fact's path.  If it is what was to be made, by an
 * attempt whose reply was lost: take it for that.  If it is another one of
 * ours, one that was to be taken back: delete it, and leave is_tried set: try
 * again.  Somebody else's stays.
 */
static bool
adopt_or_delete(ZkDetector *detector, ZkFact *fact)
{
	const ZkReply *reply =
		zklock_roundtrip_read(&detector->trip, zklock_client_get, fact->path);

	fact->is_tried = reply != NULL && reply->result == ZK_OK &&
		reply->ephemeral_owner == zklock_session_id();
	if (!fact->is_tried)
		return false;
	if (reply->data != NULL &&
		reply->data_length == (int) strlen(fact->data) &&
		memcmp(reply->data, fact->data, reply->data_length) == 0)
	{
		fact->czxid = reply->czxid;
		return true;
	}
	zklock_client_delete(zklock_session_client(), fact->path);
	return false;
}

/*
 * Nothing more is said in this wait, for it would be refused again, or there
 * is somebody else's in its place; the log has it once.
 */
static void
note_refusal(ZkDetector *detector, const ZkFact *fact, const ZkReply *reply)
{
	static bool is_logged;

	detector->is_refused = true;
	if (!is_logged)
		ereport(LOG,
				(errmsg("deadlocks over ZooKeeper locks go unseen by process %d",
						MyProcPid),
				 errdetail("Znode \"%s\" cannot be created: %s.",
						   zklock_nodedata_quotable(fact->path),
						   reply->code_text),
				 errhint("All who share a root must have the same credentials, \"%s\". Nobody else may create below it.",
						 "zklock.auth")));
	is_logged = true;
}
