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
 * so it is about one wait), and so all of it at once.  That holds of queues
 * and of waits for ZooKeeper locks.  A fact of a wait in PostgreSQL may be
 * outdated until its maker looks again: unless it is ours, made anew just
 * now, its maker is asked to say so once more in between.
 *
 * Errors of ZooKeeper's do not end a wait that may be granted: then nothing
 * is found.
 *
 *-------------------------------------------------------------------------
 */
#include "deadlock_private.h"

#include "miscadmin.h"
#include "pgstat.h"
#include "storage/proc.h"
#include "utils/backend_status.h"
#include "utils/memutils.h"

#include "board.h"
#include "name.h"

/* Time between two looks at PostgreSQL's locks, at least. */
#define LOOK_AGAIN_MS 1000

/* How long a look may take; it is done again later. */
#define LOOK_MS 5000

/*
 * How long to wait for another waiter to say once more who waits for it, and
 * how often to see whether it has.  It looks every LOOK_AGAIN_MS.
 */
#define ASK_MS 4000
#define ASK_AGAIN_MS 100

/* A cycle that was found. */
typedef struct Cycle
{
	Graph	   *graph;
	int			length;			/* 0: there is none */
	int			way[CYCLE_NODES_MAX];	/* its edges, from node 0 on */
} Cycle;

static List *find_blocked(ZkDetector *detector, const ZkPlace *place);
static void forget_gone(ZkDetector *detector, List *waiters);
static bool say_wait(ZkDetector *detector, const ZkPlace *place);
static bool say_blocked(ZkDetector *detector, const ZkPlace *place,
						const LocalWaiter *waiter);
static ZkFact *say(ZkDetector *detector, const ZkPlace *place,
				   const char *path, const char *data);
static bool make_fact(ZkDetector *detector, const ZkPlace *place,
					  ZkFact *fact);
static bool is_made_already(ZkDetector *detector, ZkFact *fact);
static bool make_directories(ZkDetector *detector, const ZkPlace *place,
							 const char *path);
static void take_back(const ZkDetector *detector, ZkFact *fact);
static void answer(ZkDetector *detector, const ZkPlace *place);
static void look_for_cycle(ZkDetector *detector, const ZkPlace *place);
static bool find_cycle(ZkDetector *detector, const ZkPlace *place,
					   bool is_newest, Cycle *cycle);
static bool is_same(const Cycle *a, const Cycle *b);
static bool is_confirmed(ZkDetector *detector, const ZkPlace *place,
						 const Cycle *cycle);
static bool is_said_again(ZkDetector *detector, const ZkPlace *place,
						  const Graph *graph, int edge);
static int64 own_session(void);
pg_noreturn static void raise_deadlock(const ZkPlace *place, const Cycle *cycle);
static char *describe_cycle(const ZkPlace *place, const Cycle *cycle);
static void append_member(StringInfo text, const Member *member,
						  const char *process);
static const char *name_of_lock(const ZkPlace *place, const char *lock_path);
static void append_statements(StringInfo text, const Cycle *cycle);

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
												  ALLOCSET_SMALL_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(scratch);
	List	   *waiters;
	ListCell   *cell;
	bool		is_news = false;

	if (detector->session != zklock_session_number())
		zklock_deadlock_end(detector);
	detector->session = zklock_session_number();
	detector->trip.deadline = Min(deadline, zklock_client_now() + LOOK_MS);

	waiters = find_blocked(detector, place);
	forget_gone(detector, waiters);

	/* its own wait first: it is a part of each cycle */
	if (holds_locks || waiters != NIL)
		is_news = say_wait(detector, place);
	foreach(cell, waiters)
		is_news |= say_blocked(detector, place, lfirst(cell));
	answer(detector, place);
	if (detector->wait != NULL && (is_news || detector->is_suspicious))
		look_for_cycle(detector, place);

	zklock_roundtrip_end(&detector->trip);
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(scratch);
	detector->look_at = zklock_client_now() +
		(detector->blocked != NIL ? LOOK_AGAIN_MS :
		 Max(DeadlockTimeout, LOOK_AGAIN_MS));
}

void
zklock_deadlock_end(ZkDetector *detector)
{
	ListCell   *cell;

	zklock_roundtrip_end(&detector->trip);
	if (detector->session == zklock_session_number())
		zklock_client_free(detector->listening);
	detector->listening = NULL;
	foreach(cell, detector->blocked)
		take_back(detector, lfirst(cell));
	detector->blocked = NIL;
	take_back(detector, detector->asking);
	detector->asking = NULL;
	take_back(detector, detector->wait);
	detector->wait = NULL;
	detector->is_suspicious = false;
}

/* ---------------------------------------------------------------------
 * Facts
 * ---------------------------------------------------------------------
 */

/*
 * Who waits for us in PostgreSQL, and may hold ZooKeeper locks?  Without
 * shared memory we know of those only that hold the lock that we wait for.
 */
static List *
find_blocked(ZkDetector *detector, const ZkPlace *place)
{
	if (!deadlock_is_waited_for())
		return NIL;
	return deadlock_local_waiters(zklock_board_size() > 1 ?
								  deadlock_local_candidates() :
								  deadlock_local_holders(&detector->trip, place));
}

/* Take back that somebody waits for us in PostgreSQL who does so no more. */
static void
forget_gone(ZkDetector *detector, List *waiters)
{
	ListCell   *cell;

	foreach(cell, detector->blocked)
	{
		ZkFact	   *fact = lfirst(cell);
		ListCell   *other;
		bool		is_gone = true;

		foreach(other, waiters)
			is_gone &= ((LocalWaiter *) lfirst(other))->session != fact->waiter;
		if (!is_gone)
			continue;
		take_back(detector, fact);
		detector->blocked = foreach_delete_current(detector->blocked, cell);
	}
}

/* Say that we wait with this queue node.  Result: is that news? */
static bool
say_wait(ZkDetector *detector, const ZkPlace *place)
{
	char	   *path;
	char	   *data;

	if (detector->wait != NULL &&
		strncmp(detector->wait->data, place->node, strlen(place->node)) == 0)
		return false;
	take_back(detector, detector->wait);
	detector->wait = NULL;
	path = deadlock_path_of_wait(place, own_session());
	data = psprintf("%s\n%s", place->node, zklock_nodedata_build(0));
	detector->wait = say(detector, place, path, data);
	return detector->wait != NULL;
}

/* Say that it waits for us in PostgreSQL.  Result: is that news? */
static bool
say_blocked(ZkDetector *detector, const ZkPlace *place,
			const LocalWaiter *waiter)
{
	MemoryContext caller;
	ListCell   *cell;
	ZkFact	   *fact;

	foreach(cell, detector->blocked)
		if (((ZkFact *) lfirst(cell))->waiter == waiter->session)
		return false;
	fact = say(detector, place,
			   deadlock_path_of_blocked(place, waiter->session, own_session()),
			   deadlock_describe_wait(waiter->pid));
	if (fact == NULL)
		return false;
	fact->waiter = waiter->session;
	caller = MemoryContextSwitchTo(detector->context);
	detector->blocked = lappend(detector->blocked, fact);
	MemoryContextSwitchTo(caller);
	return true;
}

/*
 * Make a fact.  NULL if that was refused, or came to no end.  An interrupt
 * leaves it to zklock_deadlock_end().
 */
static ZkFact *
say(ZkDetector *detector, const ZkPlace *place, const char *path,
	const char *data)
{
	ZkFact	   *fact = MemoryContextAllocZero(detector->context, sizeof(*fact));

	fact->path = MemoryContextStrdup(detector->context, path);
	fact->data = MemoryContextStrdup(detector->context, data);
	detector->asking = fact;
	if (!make_fact(detector, place, fact))
	{
		take_back(detector, fact);
		fact = NULL;
	}
	detector->asking = NULL;
	return fact;
}

static bool
make_fact(ZkDetector *detector, const ZkPlace *place, ZkFact *fact)
{
	for (int attempts = 0; attempts < PARENT_ATTEMPTS; attempts++)
	{
		const ZkReply *reply;

		fact->is_tried = true;
		fact->request = zklock_client_create(zklock_session_client(),
											 fact->path, ZK_EPHEMERAL,
											 fact->data, strlen(fact->data));
		reply = zklock_roundtrip_await(&detector->trip, fact->request);
		if (reply == NULL || reply->result == ZK_SESSION_LOST)
			return false;
		fact->czxid = reply->result == ZK_OK ? reply->czxid : 0;
		switch (reply->result)
		{
			case ZK_OK:
				zklock_client_free(fact->request);
				fact->request = NULL;
				return true;
			case ZK_NODE_EXISTS:
				return is_made_already(detector, fact);
			case ZK_NO_NODE:
				if (!make_directories(detector, place, fact->path))
					return false;
				break;
			case ZK_UNKNOWN_OUTCOME:
				break;
			default:
				ereport(DEBUG1,
						(errmsg_internal("could not say what is waited for"),
						 errdetail_internal("%s: %s", fact->path,
											reply->code_text)));
				return false;
		}
		zklock_client_free(fact->request);
		fact->request = NULL;
	}
	return false;
}

/* By an attempt whose reply was lost; somebody else's is in the way. */
static bool
is_made_already(ZkDetector *detector, ZkFact *fact)
{
	const ZkReply *reply =
		zklock_roundtrip_read(&detector->trip, zklock_client_get, fact->path);

	if (reply == NULL || reply->result != ZK_OK ||
		reply->ephemeral_owner != own_session())
		return false;
	fact->czxid = reply->czxid;
	return true;
}

/*
 * Make what a fact is in: for good, so that who says something pays for one
 * znode.  false if that is refused, or there is no answer.
 */
static bool
make_directories(ZkDetector *detector, const ZkPlace *place, const char *path)
{
	const char *end = path + place->root_length;

	while ((end = strchr(end + 1, '/')) != NULL)
	{
		const ZkReply *reply =
			zklock_roundtrip_ask(&detector->trip,
								 zklock_client_create(zklock_session_client(),
													  pnstrdup(path, end - path),
													  ZK_PERSISTENT, NULL, 0));

		if (reply == NULL || (reply->result != ZK_OK &&
							  reply->result != ZK_NODE_EXISTS &&
							  reply->result != ZK_UNKNOWN_OUTCOME))
			return false;
	}
	return true;
}

/* Never raises, never waits.  What has gone with its session is gone. */
static void
take_back(const ZkDetector *detector, ZkFact *fact)
{
	if (fact == NULL)
		return;
	if (detector->session == zklock_session_number())
	{
		if (fact->request != NULL && fact->czxid == 0)
			zklock_client_withdraw(fact->request);
		else
			zklock_client_free(fact->request);
		if (fact->is_tried)
			zklock_client_delete(zklock_session_client(), fact->path);
	}
	pfree(fact->path);
	pfree(fact->data);
	pfree(fact);
}

/*
 * If somebody asks whether those who wait for us in PostgreSQL still do: they
 * do, as we have just seen.
 */
static void
answer(ZkDetector *detector, const ZkPlace *place)
{
	ZkClient   *client = zklock_session_client();
	ListCell   *cell;
	ZkHeard		heard;

	if (detector->blocked == NIL)
	{
		zklock_client_free(detector->listening);
		detector->listening = NULL;
		return;
	}
	if (detector->listening == NULL)
		detector->listening =
			zklock_client_listen(client,
								 deadlock_path_of_question(place, own_session()),
								 false, 0);
	if (detector->listening == NULL ||
		!zklock_client_heard(detector->listening, &heard) || !heard.is_present)
		return;
	foreach(cell, detector->blocked)
	{
		ZkFact	   *fact = lfirst(cell);

		zklock_client_announce(client, fact->path, fact->data,
							   strlen(fact->data));
	}
}

/* ---------------------------------------------------------------------
 * Cycles
 * ---------------------------------------------------------------------
 */

/* Give way if there is a cycle of which we have said the last. */
static void
look_for_cycle(ZkDetector *detector, const ZkPlace *place)
{
	Cycle		first;
	Cycle		second;

	detector->is_suspicious = !find_cycle(detector, place, false, &first) ||
		first.length > 0;
	if (!detector->is_suspicious || first.length == 0)
		return;
	ereport(DEBUG1,
			(errmsg_internal("lock \"%s\": this may be a deadlock",
							 place->name),
			 errdetail_internal("%s", describe_cycle(place, &first))));
	if (is_confirmed(detector, place, &first) &&
		find_cycle(detector, place, true, &second) && is_same(&first, &second))
		raise_deadlock(place, &second);
}

/*
 * Find a cycle with us in it, of which the newest fact is ours: our wait, or
 * that somebody waits for us in PostgreSQL.  false if there was no end to it.
 */
static bool
find_cycle(ZkDetector *detector, const ZkPlace *place, bool is_newest,
		   Cycle *cycle)
{
	int64		self = own_session();
	CycleGraph *shape;

	cycle->length = 0;
	cycle->graph = deadlock_follow(&detector->trip, place, self,
								   detector->wait->czxid, is_newest);
	if (cycle->graph == NULL)
		return false;
	shape = &cycle->graph->shape;
	cycle_settle(shape);
	cycle->length = cycle_find(shape, 0, 0, detector->wait->czxid, cycle->way);
	for (int i = 0; i < shape->nedges && cycle->length == 0; i++)
	{
		const CycleEdge *edge = &shape->edges[i];

		if (edge->to != 0 || cycle->graph->in_postgres[i] == NULL)
			continue;
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

/* Do those who know say once more who waits in PostgreSQL? */
static bool
is_confirmed(ZkDetector *detector, const ZkPlace *place, const Cycle *cycle)
{
	for (int i = 0; i < cycle->length; i++)
		if (!is_said_again(detector, place, cycle->graph, cycle->way[i]))
			return false;
	return true;
}

/*
 * Of one edge.  Our own facts are those of a moment ago.  Another waiter
 * hears the question at its next look.  The end of our own wait ends it.
 */
static bool
is_said_again(ZkDetector *detector, const ZkPlace *place, const Graph *graph,
			  int edge)
{
	int64		maker = graph->members[graph->shape.edges[edge].to].session;
	int64		waiter = graph->members[graph->shape.edges[edge].from].session;
	int64		until = zklock_client_now() + ASK_MS;
	char	   *path;
	ZkFact	   *question;
	bool		is_again = false;

	if (graph->in_postgres[edge] == NULL || maker == own_session())
		return true;
	path = deadlock_path_of_blocked(place, waiter, maker);
	detector->trip.deadline = Max(detector->trip.deadline, until);
	question = say(detector, place, deadlock_path_of_question(place, maker), "");
	detector->asking = question;
	while (!is_again && zklock_client_now() < until)
	{
		const ZkReply *reply;

		if (zklock_session_await_watch(zklock_client_now() + ASK_AGAIN_MS) !=
			ZK_WAIT_TIMEOUT)
			break;
		reply = zklock_roundtrip_read(&detector->trip, zklock_client_get, path);
		if (reply == NULL || reply->result != ZK_OK ||
			reply->czxid != graph->shape.edges[edge].said)
			break;
		is_again = reply->version > graph->versions[edge];
	}
	take_back(detector, question);
	detector->asking = NULL;
	return is_again;
}

static int64
own_session(void)
{
	ZkClientStatus status;

	return zklock_session_status(&status) ? status.session_id : 0;
}

/* ---------------------------------------------------------------------
 * The error, as PostgreSQL words it
 * ---------------------------------------------------------------------
 */

static void
raise_deadlock(const ZkPlace *place, const Cycle *cycle)
{
	char	   *detail;
	StringInfoData log;

	detail = describe_cycle(place, cycle);
	initStringInfo(&log);
	appendStringInfoString(&log, detail);
	append_statements(&log, cycle);
	pgstat_report_deadlock();
	ereport(ERROR,
			(errcode(ERRCODE_T_R_DEADLOCK_DETECTED),
			 errmsg("deadlock detected"),
			 errdetail_internal("%s", detail),
			 errdetail_log("%s", log.data),
			 errhint("See server log for query details.")));
}

/* A line for each of those who wait. */
static char *
describe_cycle(const ZkPlace *place, const Cycle *cycle)
{
	const Graph *graph = cycle->graph;
	StringInfoData text;

	initStringInfo(&text);
	for (int i = 0; i < cycle->length; i++)
	{
		int			number = cycle->way[i];
		const CycleEdge *edge = &graph->shape.edges[number];
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
	if (member->session == own_session())
		appendStringInfo(text, "%s %d", process, MyProcPid);
	else if (member->who.pid != 0)
		appendStringInfo(text, "%s %d", process, member->who.pid);
	else
		appendStringInfo(text, "%s of ZooKeeper session 0x%llx", process,
						 (unsigned long long) member->session);
	if (member->who.cluster != NULL)
		appendStringInfo(text, " of cluster \"%s\"", member->who.cluster);
	if (member->who.database != NULL)
		appendStringInfo(text, "%s database \"%s\"",
						 member->who.cluster != NULL ? "," : " of",
						 member->who.database);
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
		const CycleEdge *edge = &cycle->graph->shape.edges[cycle->way[i]];
		int64		session = cycle->graph->members[edge->from].session;
		int			pid = session == own_session() ? MyProcPid :
			zklock_board_pid_of(session);

		if (pid != 0)
			appendStringInfo(text, "\nProcess %d: %s", pid,
							 pgstat_get_backend_current_activity(pid, false));
	}
}
