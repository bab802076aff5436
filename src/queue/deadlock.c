/*-------------------------------------------------------------------------
 *
 * deadlock.c
 *	  Decides when a waiter searches for a deadlock, claims it, and gives way.
 *	  Has the error.
 *
 * A wait is left alone for a moment, PUBLISH_MS.  Then the waiter makes a fact
 * of it, a znode (deadlock_fact.c), however long its deadlock_timeout is: the
 * others of a cycle need it.  When deadlock_timeout is over the waiter notes
 * that in its fact, reads who waits for whom from there (deadlock_graph.c), and
 * gives way if it finds a cycle with itself in it.  So the one whose time is over
 * first gives way, as in PostgreSQL.
 *
 * A cycle may be completed later than that.  So each waiter also searches when
 * it makes a fact.  It gives way if that fact has completed a cycle and
 * another member that is stuck has looked already, because no other member may
 * look again.  If none has looked, their deadlock_timeouts are still to come.
 * The ensemble puts the creation of a fact and the note of another waiter that
 * it has looked in one order.  What is read after either of them shows what
 * was done before.  So one of the two sees the other, or both do.
 *
 * Only one member may give way.  So a waiter that is about to do so first
 * makes a claim on the cycle: a znode whose name is the czxid of the newest
 * fact of all waiters that are stuck there, be it in one cycle or in several
 * that have members in common.  A waiter that finds the claim of another one
 * looks again in a moment.  After the claim the cycle is read again: if
 * another member had claimed it and given way before, its fact is gone by
 * then.  At the end of a wait the facts are deleted first, and the claim last.
 *
 * A member of a cycle that waits inside PostgreSQL has no deadlock_timeout of
 * ours, and never gives way.
 *
 * No session waits for a backend that holds no lock and blocks no process in
 * PostgreSQL.  Such a backend makes no fact and searches for nothing, so that
 * a long queue costs nothing.
 *
 * Nobody tells us when a backend begins to wait for us in PostgreSQL.  So a
 * waiter checks its own locks there once a second or so, in this cluster's
 * memory.  The wait of another process for it is a fact of its own.
 *
 * No false alarm.  A fact has a czxid, so it is about one wait.  What two
 * searches have found alike, the second one with the leader's knowledge, was
 * there all the time in between, and so all of it at once.  A fact of a wait
 * in PostgreSQL may be outdated until its maker checks again.  So it counts
 * only if its maker confirms it in between, as it does with every check, and
 * our own facts are checked again.  What remains: a session that is suspended
 * may have given up, which the ensemble does not know; and one that gives up
 * at that very moment.
 *
 * Some cycles are not seen at first.  A session to which the contender ahead
 * handed the lock still seems to wait behind that contender's node for a
 * while; another client may delete a fact; an answer may be a temporary error;
 * a member may be another ZooKeeper client, which does not search.  So a long
 * wait is followed by another search after a session timeout, and then after
 * twice as long each time.
 *
 * Errors of ZooKeeper's do not end a wait that may be granted: then nothing
 * is found.  Nor does a search hand on that an answer was late or the session
 * lost: the wait itself finds that.
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
#include "parents.h"
#include "pause.h"
#include "stat.h"
#include "text.h"

/*
 * How long a wait is not said.  Most are over by then.
 */
#define PUBLISH_MS 100

/*
 * Least time until a waiter searches because its deadlock_timeout is over: by
 * then the waiters that came before it have made their facts.
 */
#define SEARCH_MIN_MS 250

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
#define SEARCH_AGAIN_MS 250

/* Why a waiter searches for a cycle now. */
typedef enum SearchReason
{
	SEARCH_NOT,					/* there is none */
	SEARCH_NEWS,				/* it has said something that may have
								 * completed a cycle */
	SEARCH_TIMER,				/* its deadlock_timeout is over */
	SEARCH_PAUSE				/* so is the pause behind the last search */
} SearchReason;

/* A cycle that was found. */
typedef struct Cycle
{
	Graph	   *graph;
	int			length;			/* 0: there is none */
	int			way[CYCLE_NODES_MAX];	/* its edges, from node 0 on */
	int64		newest;			/* czxid of the newest fact of those who are
								 * stuck */
} Cycle;

/* What a second reading of a cycle has brought. */
typedef enum CycleProof
{
	CYCLE_GONE,					/* it is not there any more, or not known */
	CYCLE_UNSAID,				/* it is, but not all have said so again */
	CYCLE_CERTAIN				/* it was there all the time in between */
} CycleProof;

static SearchReason update_facts(ZkDetector *detector, const ZkPlace *place,
								 List *waiters);
static void schedule_search(ZkDetector *detector);
static void search_cycle(ZkDetector *detector, const ZkPlace *place,
						 SearchReason reason, int64 deadline);
static const char *describe_reason(SearchReason reason);
static CycleProof prove_cycle(ZkDetector *detector, const ZkPlace *place,
							  const Cycle *first, Cycle *second,
							  int64 deadline);
static bool is_completed_by_us(const Cycle *cycle);
static void search_again_soon(ZkDetector *detector);
static bool is_stuck(const Graph *graph, int64 session);
static void drop_claim(ZkDetector *detector);
static bool find_cycle(ZkDetector *detector, const ZkPlace *place,
					   GraphAge age, int64 deadline, Cycle *cycle);
static int64 newest_fact_of_stuck(const CycleGraph *shape);
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

void
zklock_deadlock_begin(ZkDetector *detector, int64 now)
{
	detector->check_at = now + Min(PUBLISH_MS, DeadlockTimeout);
	detector->timer_at = now + Max(SEARCH_MIN_MS, DeadlockTimeout);
	detector->cycle_at = ZK_NO_DEADLINE;
	detector->context = CurrentMemoryContext;
}

void
zklock_deadlock_search(ZkDetector *detector, const ZkPlace *place,
					   int64 deadline)
{
	MemoryContext scratch = AllocSetContextCreate(CurrentMemoryContext,
												  "zklock deadlock",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(scratch);
	List	   *waiters;
	SearchReason reason;

	/* what was said went with its session */
	if (detector->session != zklock_session_number())
		zklock_deadlock_end(detector);
	detector->session = zklock_session_number();
	detector->trip.deadline = Min(deadline, protocol_now() + SEARCH_MS);
	waiters = deadlock_local_waiters();
	reason = update_facts(detector, place, waiters);
	if (reason != SEARCH_NOT &&
		deadlock_find_fact(detector, zklock_session_id()) != NULL)
		search_cycle(detector, place, reason, deadline);

	zklock_roundtrip_end(&detector->trip);
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(scratch);
	schedule_search(detector);
}

void
zklock_deadlock_end(ZkDetector *detector)
{
	if (detector->session == 0)
		return;					/* nothing was ever asked */
	zklock_roundtrip_end(&detector->trip);
	deadlock_take_all_back(detector);
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
 * Say what is new, and take back what is not so any more.  The own wait comes
 * first: it is a part of each cycle.  Result: why to search now.
 */
static SearchReason
update_facts(ZkDetector *detector, const ZkPlace *place, List *waiters)
{
	int64		now = protocol_now();
	SearchReason reason = SEARCH_NOT;
	bool		is_news = false;

	deadlock_forget_gone(detector, waiters);
	if (now >= detector->cycle_at)
	{
		reason = SEARCH_PAUSE;
		deadlock_forget_deleted(detector);
	}
	if (!detector->has_searched && now >= detector->timer_at)
	{
		reason = SEARCH_TIMER;
		detector->has_searched = true;
	}
	if (zklock_board_has_locks() || waiters != NIL)
		is_news = deadlock_publish_wait(detector, place);
	if (reason == SEARCH_TIMER)
		deadlock_publish_searched(detector);
	deadlock_repeat(detector);
	is_news |= deadlock_publish_blocked(detector, place, waiters);
	if (!is_news)
		return reason;
	detector->pause_ms = 0;
	return SEARCH_NEWS;
}

/*
 * When to check again: PostgreSQL's locks, also for others whose
 * deadlock_timeout may be shorter; and whether our own is over.  A process
 * that waits for us in PostgreSQL is confirmed each time.
 */
static void
schedule_search(ZkDetector *detector)
{
	int64		now = protocol_now();

	detector->check_at = Min(now + CHECK_AGAIN_MS,
							 Max(now + SEARCH_AGAIN_MS, detector->cycle_at));
	if (!detector->has_searched)
		detector->check_at = Min(detector->check_at,
								 Max(now, detector->timer_at));
}

/* ---------------------------------------------------------------------
 * Cycles
 * ---------------------------------------------------------------------
 */

/* A search has come to its end: is there a cycle that is ours to end? */
static void
debug_search(const ZkPlace *place, SearchReason reason, const Cycle *cycle,
			 bool is_found)
{
	const char *node = zklock_text_quotable(place->node);
	const char *why = describe_reason(reason);

	if (cycle->length == 0)
		elog(DEBUG1, "zklock: contender \"%s\": no deadlock; searched for one because %s",
			 node, why);
	else
		elog(DEBUG1, "zklock: contender \"%s\": a deadlock of %d waits, %s; searched for one because %s",
			 node, cycle->length,
			 is_found ? "ours to end" : "others' to end", why);
}

static const char *
describe_reason(SearchReason reason)
{
	switch (reason)
	{
		case SEARCH_NEWS:
			return "a wait was published";
		case SEARCH_TIMER:
			return "deadlock_timeout is over";
		case SEARCH_PAUSE:
			return "the wait goes on";
		case SEARCH_NOT:
			break;
	}
	pg_unreachable();
}

/*
 * The cycle is claimed.  Read it from the leader until its members have
 * confirmed the waits in PostgreSQL, as each does with every check; meanwhile
 * others may await our confirmation.  Give way when it is certain.  News of
 * our own wait end this.
 */
static void
confirm_cycle(ZkDetector *detector, const ZkPlace *place, const Cycle *first,
			  int64 deadline)
{
	int64		until = Min(deadline, protocol_now() + CONFIRM_MS);
	Cycle		second;

	do
	{
		CycleProof	proof = prove_cycle(detector, place, first, &second,
										deadline);
		int			pause_ms = proof == CYCLE_CERTAIN ? 0 : SEARCH_AGAIN_MS;

		if (proof == CYCLE_GONE ||
			zklock_session_await_watch(protocol_now() + pause_ms) != ZK_LATE)
			return;
		if (proof == CYCLE_CERTAIN)
			give_way(place, &second);
	} while (protocol_now() < until);
}

/* Read the cycle once more, and say what we know of it. */
static CycleProof
prove_cycle(ZkDetector *detector, const ZkPlace *place, const Cycle *first,
			Cycle *second, int64 deadline)
{
	if (!find_cycle(detector, place, GRAPH_NEWEST, deadline, second) ||
		!is_same(first, second))
		return CYCLE_GONE;
	deadlock_forget_gone(detector, deadlock_local_waiters());
	deadlock_repeat(detector);
	return is_said_again(detector, first, second) ?
		CYCLE_CERTAIN : CYCLE_UNSAID;
}

/*
 * Is it for us to end the cycle?  Our time is over; or we have completed it,
 * and the time of another member that is stuck is over.
 */
static bool
is_ours(const ZkDetector *detector, const Cycle *cycle)
{
	const Graph *graph = cycle->graph;
	bool		has_searched = false;

	for (int i = 0; i < graph->shape.nnodes; i++)
		has_searched |= graph->shape.nodes[i].is_stuck &&
			graph->members[i].has_searched;
	return detector->has_searched || (has_searched && is_completed_by_us(cycle));
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
		maker = edge->from;
		if (cycle->graph->in_postgres[cycle->way[i]] != NULL)
			maker = edge->to;
	}
	return maker == 0;
}

/*
 * Claim the cycle.  false if another member that is stuck has claimed it, or
 * if that is not known: then look again soon.  A claim of our own, of which
 * the reply was lost, is good; and that of a session that does not wait, which
 * left it behind, is none.
 */
static bool
claim_cycle(ZkDetector *detector, const ZkPlace *place, const Cycle *cycle)
{
	char	   *path = deadlock_claim_path(place, cycle->newest);
	const ZkReply *reply;
	ZkOutcome	outcome = zklock_parents_create(&detector->trip, path,
												place->root_length,
												ZK_EPHEMERAL,
												zklock_nodedata_build(0, NULL),
												&reply);
	bool		is_our_claim;

	if (outcome == ZK_ANSWERED && reply->result == ZK_NODE_EXISTS)
		outcome = zklock_roundtrip_read(&detector->trip, ZK_GET, path, &reply);
	if (outcome != ZK_ANSWERED || reply->result != ZK_OK)
	{
		search_again_soon(detector);
		return false;
	}
	is_our_claim = reply->ephemeral_owner == zklock_session_id();
	if (message_level_is_interesting(DEBUG1))
		elog(DEBUG1, "zklock: contender \"%s\": session 0x%llx has claimed the deadlock with \"%s\"",
			 zklock_text_quotable(place->node),
			 (unsigned long long) reply->ephemeral_owner,
			 zklock_text_quotable(path));
	if (is_our_claim)
		detector->claim = MemoryContextStrdup(detector->context, path);
	if (is_our_claim || !is_stuck(cycle->graph, reply->ephemeral_owner))
		return true;
	search_again_soon(detector);
	return false;
}

/* Without news, for what has become of a claim. */
static void
search_again_soon(ZkDetector *detector)
{
	detector->pause_ms = 0;
	detector->cycle_at = protocol_now() + SEARCH_AGAIN_MS;
}

/* Is it one of the members that are stuck, in the cycle or beyond? */
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
		(void) zklock_client_delete(zklock_session_client(), detector->claim,
									ZK_ANY_VERSION);
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
	int			least = CHECK_AGAIN_MS;

	if (!is_found && zklock_session_number() != 0)
		least = zklock_session_timeout_ms();
	detector->pause_ms = pause_after(detector->pause_ms, least, INT_MAX / 4);
	detector->cycle_at = protocol_now() + detector->pause_ms;
}

/* Search for a cycle, and give way if it is ours to end. */
static void
search_cycle(ZkDetector *detector, const ZkPlace *place, SearchReason reason,
			 int64 deadline)
{
	Cycle		cycle;
	bool		is_found = find_cycle(detector, place, GRAPH_OF_SERVER,
									  deadline, &cycle) &&
		is_ours(detector, &cycle);

	if (message_level_is_interesting(DEBUG1))
		debug_search(place, reason, &cycle, is_found);
	note_search(detector, is_found);
	if (!is_found || !claim_cycle(detector, place, &cycle))
		return;
	confirm_cycle(detector, place, &cycle, deadline);
	drop_claim(detector);
}

/* Find a shortest cycle with us in it.  false if none is known. */
static bool
find_cycle(ZkDetector *detector, const ZkPlace *place, GraphAge age,
		   int64 deadline, Cycle *cycle)
{
	int64		own = zklock_session_id();
	const ZkFact *wait = deadlock_find_fact(detector, own);
	CycleGraph *shape;

	cycle->length = 0;
	cycle->newest = 0;
	detector->trip.deadline = Min(deadline, protocol_now() + SEARCH_MS);
	cycle->graph = deadlock_follow(&detector->trip, place, own,
								   wait != NULL ? wait->czxid : 0, age);
	if (cycle->graph == NULL)
		return false;
	shape = &cycle->graph->shape;
	cycle_mark_stuck(shape, PG_INT64_MAX);
	cycle->length = cycle_find(shape, 0, 0, PG_INT64_MAX, cycle->way);
	cycle->newest = newest_fact_of_stuck(shape);
	return cycle->length > 0;
}

/* 0: nobody is stuck. */
static int64
newest_fact_of_stuck(const CycleGraph *shape)
{
	int64		newest = 0;

	for (int i = 0; i < shape->nedges; i++)
		if (shape->nodes[shape->edges[i].from].is_stuck &&
			shape->nodes[shape->edges[i].to].is_stuck)
			newest = Max(newest, shape->edges[i].said);
	return newest;
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
		bool		is_again;

		if (graph->in_postgres[number] == NULL)
			continue;
		if (edge->to == 0)
			is_again = deadlock_find_fact(detector,
										  graph->members[edge->from].session) != NULL;
		else
			is_again = graph->versions[number] >
				first->graph->versions[first->way[i]];
		if (!is_again)
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
	if (zklock_board_is_leaving())
		appendStringInfoString(&text, "\nThis process has released locks in its transaction, which has written: others get them when it ends.");
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

/* A line for each waiter. */
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
							 waiter->mode == RECIPE_SHARED ? "ShareLock" : "ExclusiveLock",
							 name_of_lock(place, waiter->lock_path));
		append_member(text, &graph->members[edge->to], "process");
		appendStringInfoChar(text, '.');
	}
}

static void
append_member(StringInfo text, const Member *member, const char *process)
{
	int			pid = member->who.pid;

	if (member->session == zklock_session_id())
		pid = MyProcPid;
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
	if (strncmp(lock_path, place->lock_path, place->root_length) == 0 &&
		lock_path[place->root_length] == '/')
		lock_path += place->root_length + 1;
	return zklock_text_quotable(lock_path);
}

/* Those of this cluster; the others' are in the logs of theirs. */
static void
append_statements(StringInfo text, const Cycle *cycle)
{
	for (int i = 0; i < cycle->length; i++)
	{
		const CycleEdge *edge = edge_of(cycle, i);
		ZkBoardRow	row;

		if (zklock_board_find(cycle->graph->members[edge->from].session,
							  &row))
			appendStringInfo(text, "\nProcess %d: %s", row.pid,
							 pgstat_get_backend_current_activity(row.pid, false));
	}
}
