/*-------------------------------------------------------------------------
 *
 * deadlock.c
 *	  Deadlocks: who waits says so, searches for a cycle, and gives way.
 *
 * A wait is left alone for a moment, PUBLISH_MS.  Then the waiter makes a fact
 * of it, a znode (deadlock_private.h), however long its deadlock_timeout is: the
 * others of a cycle need it.  When deadlock_timeout is over the waiter notes
 * that in its fact, reads who waits for whom from there (deadlock_graph.c), and
 * gives way if it finds a cycle with itself in it.  So the one whose time is over
 * first gives way, as in PostgreSQL.
 *
 * A cycle may be completed later than that.  So each waiter also searches when
 * it makes a fact, and gives way if that one has completed a cycle and another
 * one who is stuck has looked already: nobody else may look again.  If none has,
 * their deadlock_timeouts are still to come.  Of the create of a fact and the
 * note of another one that it has looked, the ensemble does one first.  What is
 * read behind either knows whatever was done before.  So one of the two sees
 * the other, or both do.
 *
 * Only one may give way.  So whoever is about to do so first makes a claim on
 * the cycle: a znode whose name is the czxid of the newest fact of all who are
 * stuck there, be it in one cycle or in several that have members in common.
 * Whoever finds the claim of another one looks again in a moment.  After the
 * claim the cycle is read anew: if somebody else had claimed it and given way
 * before, its fact is gone by then.  With the wait the facts go first, and the
 * claim last.
 *
 * A member of a cycle that waits inside PostgreSQL has no deadlock_timeout of
 * ours, and never gives way.
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
 * passes; a member may be of another make, and not search.  So a long wait is
 * followed by another search after a session timeout, and then after twice as
 * long each time.
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
#include "storage/proc.h"
#include "utils/backend_status.h"
#include "utils/memutils.h"

#include "board.h"
#include "lock_table.h"
#include "stat.h"
#include "text.h"
#include "write.h"

/*
 * How long a wait is not said.  Most are over by then.
 */
#define PUBLISH_MS 100

/*
 * Least time until a waiter searches because its deadlock_timeout is over: by
 * then those who came to wait before it have said so.
 */
#define LOOK_MIN_MS 250

/* Time between two checks of PostgreSQL's locks, at least. */
#define CHECK_AGAIN_MS 1000

/*
 * How long one reading of who waits for whom may take.  What takes longer is
 * not known, until the next search.
 */
#define SEARCH_MS 20000

/*
 * How long to wait for other waiters to say once more who waits for them,
 * which they do every CHECK_AGAIN_MS, and how often to look; also for what has
 * become of a claim.
 */
#define CONFIRM_MS 4000
#define LOOK_AGAIN_MS 250

/* Most facts at a time. */
#define FACTS_MAX 64

static void schedule(ZkDetector *detector);
static void forget_gone(ZkDetector *detector, List *waiters);
static bool say_wait(ZkDetector *detector, const ZkPlace *place);
static void say_looked(ZkDetector *detector);
static bool say_blocked(ZkDetector *detector, const ZkPlace *place,
						List *waiters);
static void search(ZkDetector *detector, const ZkPlace *place, int64 deadline);
static bool is_ours(const ZkDetector *detector, const Cycle *cycle);
static bool is_completed_by_us(const Cycle *cycle);
static bool claim(ZkDetector *detector, const ZkPlace *place,
				  const Cycle *cycle);
static bool is_stuck(const Graph *graph, int64 session);
static void drop_claim(ZkDetector *detector);
static void note_search(ZkDetector *detector, bool is_found);
static bool find_cycle(ZkDetector *detector, const ZkPlace *place,
					   bool is_newest, int64 deadline, Cycle *cycle);
static bool is_same(const Cycle *a, const Cycle *b);
static const CycleEdge *edge_of(const Cycle *cycle, int step);
static bool is_said_again(const ZkDetector *detector, const Cycle *first,
						  const Cycle *second);
pg_noreturn static void give_way(const ZkPlace *place, const Cycle *cycle);
static void append_waits(StringInfo text, const ZkPlace *place,
						 const Cycle *cycle);
static void append_member(StringInfo text, const Member *member,
						  const char *process);
static const char *name_of_lock(const ZkPlace *place, const char *lock_path);
static void append_statements(StringInfo text, const Cycle *cycle);
static bool say(ZkDetector *detector, const ZkPlace *place, int64 session,
				const char *data);
static ZkFact *find_fact(const ZkDetector *detector, int64 session);
static void take_back(ZkDetector *detector, ZkFact *fact);
static void forget_deleted(ZkDetector *detector);
static void repeat(const ZkDetector *detector);
static bool make_fact(ZkDetector *detector, const ZkPlace *place, ZkFact *fact);
static void note_refusal(ZkDetector *detector, const ZkFact *fact,
						 const char *reason);

void
zklock_deadlock_begin(ZkDetector *detector, int64 now)
{
	detector->look_at = now + Min(PUBLISH_MS, DeadlockTimeout);
	detector->timer_at = now + Max(LOOK_MIN_MS, DeadlockTimeout);
	detector->cycle_at = ZK_NO_DEADLINE;
	detector->context = CurrentMemoryContext;
}

void
zklock_deadlock_look(ZkDetector *detector, const ZkPlace *place,
					 int64 deadline)
{
	MemoryContext scratch = AllocSetContextCreate(CurrentMemoryContext,
												  "zklock deadlock",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(scratch);
	List	   *waiters;
	bool		is_due;
	bool		is_time;
	bool		is_news = false;

	if (detector->session != zklock_session_number())
		zklock_deadlock_end(detector);
	detector->session = zklock_session_number();
	detector->trip.deadline = Min(deadline, protocol_now() + SEARCH_MS);
	detector->trip.terms = ZK_WRITE_COUNTED;	/* the wait goes on */
	waiters = deadlock_local_waiters();
	forget_gone(detector, waiters);
	is_due = protocol_now() >= detector->cycle_at;
	is_time = !detector->has_looked && protocol_now() >= detector->timer_at;
	detector->has_looked |= is_time;
	if (is_due)
		forget_deleted(detector);

	/* its own wait first: it is a part of each cycle */
	if (zklock_has_locks() || waiters != NIL)
		is_news = say_wait(detector, place);
	if (is_time)
		say_looked(detector);
	repeat(detector);
	is_news |= say_blocked(detector, place, waiters);
	if (is_news)
		detector->pause_ms = 0;
	if (is_news || is_due || is_time)
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
	drop_claim(detector);
	detector->cycle_at = ZK_NO_DEADLINE;
	detector->pause_ms = 0;
	detector->is_refused = false;
}

/* ---------------------------------------------------------------------
 * When, and what there is to say
 * ---------------------------------------------------------------------
 */

/*
 * When to check again: PostgreSQL's locks, also for others whose
 * deadlock_timeout may be shorter; and whether our own is over.  Whoever is
 * said to wait for us in PostgreSQL is said so again each time.
 */
static void
schedule(ZkDetector *detector)
{
	int64		now = protocol_now();

	detector->look_at = Min(now + CHECK_AGAIN_MS,
							Max(now + LOOK_AGAIN_MS, detector->cycle_at));
	if (!detector->has_looked)
		detector->look_at = Min(detector->look_at,
								Max(now, detector->timer_at));
}

/* Take back what is said of those who are not among the waiters. */
static void
forget_gone(ZkDetector *detector, List *waiters)
{
	foreach_ptr(ZkFact, fact, list_copy(detector->facts))
	{
		bool		is_gone = fact->session != zklock_session_id();

		foreach_ptr(const LocalWaiter, waiter, waiters)
			is_gone &= waiter->session != fact->session;
		if (is_gone)
			take_back(detector, fact);
	}
}

/* Say that we wait with the place's queue node.  Result: is that new? */
static bool
say_wait(ZkDetector *detector, const ZkPlace *place)
{
	int64		own = zklock_session_id();
	ZkFact	   *said = find_fact(detector, own);

	if (said != NULL &&
		strncmp(said->data, place->node, strlen(place->node)) == 0)
		return false;
	if (said != NULL)
		take_back(detector, said);
	return say(detector, place, own,
			   psprintf("%s\n%s%s", place->node, zklock_nodedata_build(0, NULL),
						detector->has_looked ? ZK_FACT_LOOKED : ""));
}

/*
 * Note in our fact that our time is over.  Nobody waits for the reply: what is
 * read behind it is not older.
 */
static void
say_looked(ZkDetector *detector)
{
	ZkFact	   *fact = find_fact(detector, zklock_session_id());
	char	   *data;

	if (fact == NULL ||
		strcmp(fact->data + Max((int) strlen(fact->data) -
								(int) strlen(ZK_FACT_LOOKED), 0),
			   ZK_FACT_LOOKED) == 0)
		return;
	data = MemoryContextStrdup(detector->context,
							   psprintf("%s" ZK_FACT_LOOKED, fact->data));
	pfree(fact->data);
	fact->data = data;

	/* without memory for it: who completes a cycle looks at its own time */
	(void) zklock_write_announce(ZK_WRITE_COUNTED, fact->path, data);
}

/* Say who waits for us in PostgreSQL.  Result: is anybody new? */
static bool
say_blocked(ZkDetector *detector, const ZkPlace *place, List *waiters)
{
	bool		is_news = false;

	if (find_fact(detector, zklock_session_id()) == NULL)
		return false;
	foreach_ptr(const LocalWaiter, waiter, waiters)
		if (find_fact(detector, waiter->session) == NULL)
			is_news |= say(detector, place, waiter->session,
						   deadlock_describe_wait(waiter->pid));
	return is_news;
}

/* ---------------------------------------------------------------------
 * Cycles
 * ---------------------------------------------------------------------
 */

/*
 * Give way if there is a cycle that is ours to end.  It is claimed first.  Then it
 * is read from the leader until those who know have said once more who waits
 * in PostgreSQL, as each does with every check; meanwhile others may await
 * ours.  News of our own wait end this.
 */
static void
search(ZkDetector *detector, const ZkPlace *place, int64 deadline)
{
	Cycle		first;
	Cycle		second;
	bool		is_found;
	bool		is_certain;
	int64		until;

	if (find_fact(detector, zklock_session_id()) == NULL)
		return;
	is_found = find_cycle(detector, place, false, deadline, &first) &&
		is_ours(detector, &first);
	note_search(detector, is_found);
	if (!is_found || !claim(detector, place, &first))
		return;
	until = Min(deadline, protocol_now() + CONFIRM_MS);
	do
	{
		is_certain = false;
		if (!find_cycle(detector, place, true, deadline, &second) ||
			!is_same(&first, &second))
			break;
		forget_gone(detector, deadlock_local_waiters());
		repeat(detector);
		is_certain = is_said_again(detector, &first, &second);
		if (zklock_session_await_watch(protocol_now() +
									   (is_certain ? 0 : LOOK_AGAIN_MS)) !=
			ZK_WAIT_TIMEOUT)
		{
			is_certain = false;
			break;
		}
	} while (!is_certain && protocol_now() < until);
	if (is_certain)
		give_way(place, &second);
	drop_claim(detector);
}

/*
 * Is it for us to end the cycle?  Our time is over; or we have completed it, and
 * that of another one who is stuck is over.
 */
static bool
is_ours(const ZkDetector *detector, const Cycle *cycle)
{
	const Graph *graph = cycle->graph;
	bool		has_looked = false;

	for (int i = 0; i < graph->shape.nnodes; i++)
		has_looked |= graph->shape.nodes[i].is_stuck &&
			graph->members[i].has_looked;
	return detector->has_looked || (has_looked && is_completed_by_us(cycle));
}

/* Have we made its newest fact? */
static bool
is_completed_by_us(const Cycle *cycle)
{
	int64		newest = 0;
	int			maker = 0;

	for (int i = 0; i < cycle->length; i++)
	{
		const CycleEdge *edge = edge_of(cycle, i);

		if (edge->said <= newest)
			continue;
		newest = edge->said;
		maker = cycle->graph->in_postgres[cycle->way[i]] != NULL ?
			edge->to : edge->from;
	}
	return maker == 0;
}

/*
 * Claim the cycle.  false if another one who is stuck has, or if it is not known:
 * then look again soon.  A claim of our own, of which the reply was lost, is
 * good; and that of a session that does not wait, which left it behind, is none.
 */
static bool
claim(ZkDetector *detector, const ZkPlace *place, const Cycle *cycle)
{
	char	   *path = deadlock_claim_path(place, cycle->newest);
	const ZkReply *reply = zklock_roundtrip_create(&detector->trip, path,
												   place->root_length,
												   ZK_EPHEMERAL,
												   zklock_nodedata_build(0, NULL));

	if (reply != NULL && reply->result == ZK_NODE_EXISTS)
		reply = zklock_roundtrip_read(&detector->trip, ZK_GET, path);
	if (reply != NULL && reply->result == ZK_OK &&
		reply->ephemeral_owner == zklock_session_id())
	{
		detector->claim = MemoryContextStrdup(detector->context, path);
		return true;
	}
	if (reply != NULL && reply->result == ZK_OK &&
		!is_stuck(cycle->graph, reply->ephemeral_owner))
		return true;
	detector->pause_ms = 0;
	detector->cycle_at = protocol_now() + LOOK_AGAIN_MS;
	return false;
}

/* Is it one of those who are stuck, in the cycle or beyond? */
static bool
is_stuck(const Graph *graph, int64 session)
{
	for (int i = 0; i < graph->shape.nnodes; i++)
		if (graph->shape.nodes[i].is_stuck &&
			graph->members[i].session == session)
			return true;
	return false;
}

/* Never raises, never waits. */
static void
drop_claim(ZkDetector *detector)
{
	if (detector->claim == NULL)
		return;
	/* without memory it stays, and counts no more: we do not wait */
	if (detector->session == zklock_session_number())
		(void) zklock_client_delete(zklock_session_client(), detector->claim);
	pfree(detector->claim);
	detector->claim = NULL;
}

/*
 * Set when to search without news: soon if there may be a cycle, else after a
 * session timeout; and then after twice as long each time.
 */
static void
note_search(ZkDetector *detector, bool is_found)
{
	ZkClientStatus status;
	int			least = is_found || !zklock_session_status(&status) ?
		CHECK_AGAIN_MS : status.session_timeout_ms;

	detector->pause_ms = Max(least, Min(2 * detector->pause_ms, INT_MAX / 4));
	detector->cycle_at = protocol_now() + detector->pause_ms;
}

/* Find a shortest cycle with us in it.  false if none is known. */
static bool
find_cycle(ZkDetector *detector, const ZkPlace *place, bool is_newest,
		   int64 deadline, Cycle *cycle)
{
	int64		own = zklock_session_id();
	const ZkFact *wait = find_fact(detector, own);
	int64		said = wait != NULL ? wait->czxid : 0;
	CycleGraph *shape;

	cycle->length = 0;
	detector->trip.deadline = Min(deadline, protocol_now() + SEARCH_MS);
	cycle->graph = deadlock_follow(&detector->trip, place, own, said,
								   is_newest);
	if (cycle->graph == NULL)
		return false;
	shape = &cycle->graph->shape;
	cycle_settle(shape, PG_INT64_MAX);
	cycle->length = cycle_find(shape, 0, 0, PG_INT64_MAX, cycle->way);
	cycle->newest = 0;
	for (int i = 0; i < shape->nedges; i++)
		if (shape->nodes[shape->edges[i].from].is_stuck &&
			shape->nodes[shape->edges[i].to].is_stuck)
			cycle->newest = Max(cycle->newest, shape->edges[i].said);
	return cycle->length > 0;
}

/* Are both made of the same facts, by the same sessions? */
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
 * Has each wait in PostgreSQL been said once more since the first of two
 * readings of one cycle?  That somebody waits for us we say ourselves, if it is
 * so.
 */
static bool
is_said_again(const ZkDetector *detector, const Cycle *first,
			  const Cycle *second)
{
	const Graph *graph = second->graph;

	for (int i = 0; i < second->length; i++)
	{
		int			number = second->way[i];
		const CycleEdge *edge = edge_of(second, i);

		if (graph->in_postgres[number] == NULL)
			continue;
		if (edge->to == 0 ?
			find_fact(detector, graph->members[edge->from].session) == NULL :
			graph->versions[number] <= first->graph->versions[first->way[i]])
			return false;
	}
	return true;
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
	StringInfoData text;

	initStringInfo(&text);
	append_waits(&text, place, cycle);
	detail = pstrdup(text.data);
	append_statements(&text, cycle);
	pgstat_report_deadlock();
	zklock_stat_count(ZK_STAT_DEADLOCK);
	ereport(ERROR,
			(errcode(ERRCODE_T_R_DEADLOCK_DETECTED),
			 errmsg("deadlock detected"),
			 errdetail_internal("%s", detail),
			 errdetail_log("%s", text.data),
			 errhint("See server log for query details.")));
}

/* A line for each of those who wait. */
static void
append_waits(StringInfo text, const ZkPlace *place, const Cycle *cycle)
{
	const Graph *graph = cycle->graph;

	for (int i = 0; i < cycle->length; i++)
	{
		int			number = cycle->way[i];
		const CycleEdge *edge = edge_of(cycle, i);
		const Member *waiter = &graph->members[edge->from];

		if (i > 0)
			appendStringInfoChar(text, '\n');
		append_member(text, waiter, "Process");
		if (graph->in_postgres[number] != NULL)
			appendStringInfo(text, " waits for %s; blocked by ",
							 graph->in_postgres[number]);
		else
			appendStringInfo(text, " waits for %s on ZooKeeper lock \"%s\"; blocked by ",
							 waiter->mode == RECIPE_SHARED ?
							 "ShareLock" : "ExclusiveLock",
							 name_of_lock(place, waiter->lock_path));
		append_member(text, &graph->members[edge->to], "process");
		appendStringInfoChar(text, '.');
	}
}

static void
append_member(StringInfo text, const Member *member, const char *process)
{
	int			pid = member->session == zklock_session_id() ? MyProcPid :
		member->who.pid;

	if (pid != 0)
		appendStringInfo(text, "%s %d", process, pid);
	else
		appendStringInfo(text, "%s of ZooKeeper session 0x%llx", process,
						 (unsigned long long) member->session);
	if (member->who.cluster != NULL)
		appendStringInfo(text, " of cluster \"%s\"",
						 zklock_text_quotable_own(member->who.cluster));
	if (member->who.database != NULL)
		appendStringInfo(text, "%s database \"%s\"",
						 member->who.cluster != NULL ? "," : " of",
						 zklock_text_quotable_own(member->who.database));
}

/* As users call it who have our root; anything else is a path. */
static const char *
name_of_lock(const ZkPlace *place, const char *lock_path)
{
	bool		is_below_root =
		strncmp(lock_path, place->lock_path, place->root_length) == 0 &&
		lock_path[place->root_length] == '/';

	return zklock_text_quotable(is_below_root ?
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

		if (zklock_board_find(cycle->graph->members[edge_of(cycle, i)->from].session,
							  &row))
			appendStringInfo(text, "\nProcess %d: %s", row.pid,
							 pgstat_get_backend_current_activity(row.pid, false));
	}
}

/*
 * Say that a session waits, which is not said yet, with that text.  false if
 * ZooKeeper refuses it, or if it is not known to be there: then the next check
 * says it.  Raises on interrupts.
 */
static bool
say(ZkDetector *detector, const ZkPlace *place, int64 session,
	const char *data)
{
	const char *path = deadlock_path(place, session, zklock_session_id());
	MemoryContext caller;
	ZkFact	   *fact;

	if (detector->is_refused || list_length(detector->facts) >= FACTS_MAX)
		return false;
	caller = MemoryContextSwitchTo(detector->context);
	fact = palloc0(sizeof(*fact));
	fact->session = session;
	fact->path = pstrdup(path);
	fact->data = pstrdup(data);
	detector->facts = lappend(detector->facts, fact);
	MemoryContextSwitchTo(caller);
	if (make_fact(detector, place, fact))
		return true;
	take_back(detector, fact);
	return false;
}

/* The fact that a session waits, or NULL. */
static ZkFact *
find_fact(const ZkDetector *detector, int64 session)
{
	foreach_ptr(ZkFact, fact, detector->facts)
		if (fact->session == session)
			return fact;
	return NULL;
}

/*
 * Take one back, by a delete that is sent again until it is confirmed; what
 * has gone with its session is gone.  Never raises, never waits.
 */
static void
take_back(ZkDetector *detector, ZkFact *fact)
{
	detector->facts = list_delete_ptr(detector->facts, fact);
	if (!fact->is_others && detector->session == zklock_session_number())
	{
		/* without memory it stays until the session ends */
		(void) zklock_client_delete(zklock_session_client(), fact->path);
	}
	pfree(fact->path);
	pfree(fact->data);
	pfree(fact);
}

/* Check whether all that was said is there; what is not may be said anew. */
static void
forget_deleted(ZkDetector *detector)
{
	foreach_ptr(ZkFact, fact, list_copy(detector->facts))
	{
		const ZkReply *reply = zklock_roundtrip_read(&detector->trip, ZK_GET,
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
	foreach_ptr(const ZkFact, fact, detector->facts)
	{
		if (fact->session == zklock_session_id())
			continue;

		/* without memory the one before stands there */
		(void) zklock_write_announce(ZK_WRITE_COUNTED, fact->path,
									 fact->data);
	}
}

/*
 * Create a fact's znode.  false if that was refused, or came to no end.  There
 * may be one at its path: another one of ours, that is being taken back, goes
 * with this one; somebody else's stays.
 */
static bool
make_fact(ZkDetector *detector, const ZkPlace *place, ZkFact *fact)
{
	const ZkReply *reply = zklock_roundtrip_create(&detector->trip, fact->path,
												   place->root_length,
												   ZK_EPHEMERAL, fact->data);
	const char *reason;

	if (reply == NULL || reply->result == ZK_UNKNOWN_OUTCOME ||
		reply->result == ZK_SESSION_LOST)
		return false;
	fact->czxid = reply->czxid;
	if (reply->result == ZK_OK)
		return true;
	reason = pstrdup(reply->code_text);
	if (reply->result == ZK_NODE_EXISTS)
	{
		reply = zklock_roundtrip_read(&detector->trip, ZK_GET, fact->path);
		fact->is_others = reply == NULL || reply->result != ZK_OK ||
			reply->ephemeral_owner != zklock_session_id();
		if (!fact->is_others)
			return false;
	}
	note_refusal(detector, fact, reason);
	return false;
}

/*
 * Nothing more is said in this wait, for it would be refused again, or there
 * is somebody else's in its place; the log has it once.
 */
static void
note_refusal(ZkDetector *detector, const ZkFact *fact, const char *reason)
{
	static bool is_logged;

	detector->is_refused = true;
	if (!is_logged)
		ereport(LOG,
				(errmsg("deadlocks over ZooKeeper locks go unseen by process %d",
						MyProcPid),
				 errdetail("Znode \"%s\" cannot be created: %s.",
						   zklock_text_quotable(fact->path), reason),
				 errhint("All who share a root must have the same credentials, \"%s\". Nobody else may create below it.",
						 "zklock.auth")));
	is_logged = true;
}
