/*-------------------------------------------------------------------------
 *
 * deadlock_graph.c
 *	  Reads from the ensemble which session waits for which.
 *
 * The queue of a lock shows its holders, and the server tells to which session
 * a queue node belongs (ephemeralOwner).  What a session waits for is in its
 * fact.  A fact counts if it belongs to that session, by the word of the
 * server, and if the queue node that it names is in the queue and does not
 * hold the lock.  So an outdated fact says nothing.
 *
 * Only holders matter, not the waiters in between: each of these waits for the
 * same holders.  Only the queues of the waits on the way are read.  Reads
 * only.
 *
 * Servers may be far away, so nothing is asked one by one.  The graph is made
 * again and again of the answers that are there, and what is missing is asked
 * for in one flush, until nothing is.  In a cycle each step needs the answers
 * about the one before it; so if a holder waits, too, the same is asked about
 * all waiters.
 *
 *-------------------------------------------------------------------------
 */
#include "deadlock_private.h"

#include "nested.h"
#include "queue_list.h"
#include "text.h"

/* Of how many holders of one lock it is asked what they wait for. */
#define HOLDERS_FOLLOWED 64

/* About how many waiters the ensemble is asked without need. */
#define WAITS_AT_ONCE 64

/* Most questions; what would take more is not known. */
#define QUESTIONS_MAX (2 * CYCLE_EDGES_MAX)

/* How much is shown of what somebody else has written, in bytes. */
#define TEXT_SHOWN_MAX 256

/* A reading under way. */
typedef struct Reading
{
	ZkRoundTrip *trip;
	const ZkPlace *place;
	Graph	   *graph;
	int64		said;			/* czxid of the fact of node 0 */
	bool		is_missing;		/* the graph lacks an answer */
	bool		is_deep;		/* a holder waits, too */
} Reading;

static void enter_all(Reading *reading);
static const ZkReply *read_path(Reading *reading, ZkRead read, const char *path);
static int	enter_member(Reading *reading, int64 session);
static bool follow_lock(Reading *reading, int index);
static ZkQueueEntry *contenders_of(Reading *reading, const char *lock_path,
								   const ZkReply *list, const char *own,
								   int *nentries);
static bool read_wait(Reading *reading, int index, const char **node, int64 *said);
static void follow_holder(Reading *reading, int index, const char *holder,
						  int64 said);
static bool surely_holds(const char *holder, const ZkReply *reply,
						 const ZkNodeData *who);
static bool is_left(int64 session);
static void follow_postgres(Reading *reading, int index);

/*
 * The graph is made until no answer is missing, or there are no more answers,
 * or news of our own wait.
 */
Graph *
deadlock_follow(ZkRoundTrip *trip, const ZkPlace *place, int64 session,
				int64 said, GraphAge age)
{
	Reading		reading = {
		.trip = trip,.place = place,.said = said,.is_deep = age == GRAPH_NEWEST
	};
	const ZkReply *reply;
	const CycleGraph *shape;

	if (age == GRAPH_NEWEST)
	{
		/*
		 * Whatever it says: what this connection brings behind it is not
		 * older.
		 */
		if (zklock_roundtrip_read(trip, ZK_CHECK, place->node,
								  &reply) != ZK_ANSWERED)
			return NULL;
	}
	do
	{
		/* what of ours is still to be deleted: see is_left() */
		zklock_session_poll();
		reading.is_missing = false;
		reading.graph = palloc0(sizeof(Graph));
		shape = &reading.graph->shape;
		(void) enter_member(&reading, session);	/* the first: there is room */
		zklock_nodedata_read_own(&reading.graph->members[0].who);
		for (int i = 0; i < shape->nnodes; i++)
		{
			if (!follow_lock(&reading, i))
				follow_postgres(&reading, i);
			if (i == shape->nnodes - 1 && reading.is_missing &&
				reading.is_deep)
				enter_all(&reading);
		}
	} while (reading.is_missing &&
			 zklock_roundtrip_await_reads(trip) == ZK_ANSWERED &&
			 zklock_client_watch_news(zklock_session_client()) ==
			 ZK_WATCH_QUIET);
	zklock_roundtrip_end(trip);
	return reading.is_missing ? NULL : reading.graph;
}

/* Have it asked about all who wait, if those are not too many. */
static void
enter_all(Reading *reading)
{
	const ZkReply *waits = read_path(reading, ZK_LIST,
									 deadlock_facts_directory(reading->place));

	if (waits == NULL || waits->nchildren > WAITS_AT_ONCE)
		return;
	for (int i = 0; i < waits->nchildren; i++)
	{
		int64		waiter;

		/* without room it is not asked about ahead */
		if (deadlock_parse_waiter(waits->children[i], &waiter))
			(void) enter_member(reading, waiter);
	}
}

/*
 * A read; NULL, with is_missing set, if there is no answer yet.  Whatever
 * ZooKeeper refuses is not known, that is all: NULL, too.
 */
static const ZkReply *
read_path(Reading *reading, ZkRead read, const char *path)
{
	const ZkReply *reply;

	if (list_length(reading->trip->reads) >= QUESTIONS_MAX)
		return NULL;
	reply = zklock_roundtrip_find_reply(reading->trip, read, path);
	if (reply == NULL)
	{
		zklock_roundtrip_begin_read(reading->trip, read, path);
		reading->is_missing = true;
		return NULL;
	}
	return reply->result == ZK_OK ? reply : NULL;
}

/* The node of a session; -1 if there is no room for one more. */
static int
enter_member(Reading *reading, int64 session)
{
	Graph	   *graph = reading->graph;
	int			index;

	for (int i = 0; i < graph->shape.nnodes; i++)
		if (graph->members[i].session == session)
			return i;
	index = cycle_add_node(&graph->shape);
	if (index >= 0)
		graph->members[index].session = session;
	return index;
}

/* Add whom a session waits for in a lock's queue; false if it does not. */
static bool
follow_lock(Reading *reading, int index)
{
	Member	   *member = &reading->graph->members[index];
	CycleNode  *node = &reading->graph->shape.nodes[index];
	const ZkReply *reply;
	ZkQueueEntry *entries = NULL;
	int			nentries = 0;
	const char *own;
	int64		said;
	int			number = 0;
	int			nfollowed = 0;

	if (!read_wait(reading, index, &own, &said))
		return false;
	reply = read_path(reading, ZK_LIST, member->lock_path);
	if (reply != NULL)
		entries = contenders_of(reading, member->lock_path, reply, own,
								&nentries);
	while (number < nentries && strcmp(entries[number].node, own) != 0)
		number++;
	if (number == nentries || entries[number].is_holder)
	{
		member->lock_path = NULL;
		return false;
	}
	member->mode = entries[number].parsed.mode;
	node->needs_one = entries[number].parsed.permits > 1;
	for (int i = 0; i < number; i++)
	{
		if (!entries[i].is_holder)
			continue;
		if (nfollowed++ < HOLDERS_FOLLOWED)
			follow_holder(reading, index, entries[i].node, said);
		else
			node->has_way_out = true;
	}
	return true;
}

/*
 * The contenders of a queue, in order, as zklock_queue_in_order() gives them,
 * with what is behind the one called own only as far as its name tells what it
 * is.
 * A child that has not been read yet counts, and makes the reading go on.
 */
static ZkQueueEntry *
contenders_of(Reading *reading, const char *lock_path, const ZkReply *list,
			  const char *own, int *nentries)
{
	const char **children = palloc_extended((list->nchildren + 1) * sizeof(*children),
											MCXT_ALLOC_HUGE);
	int64		own_number = recipe_parse_node(own).sequence;
	int			nchildren = 0;

	for (int i = 0; i < list->nchildren; i++)
	{
		const char *child = list->children[i];
		const ZkReply *reply;

		if (recipe_may_be_name(child))
		{
			if (recipe_parse_node(child).sequence > own_number)
				continue;
			reply = read_path(reading, ZK_GET,
							  psprintf("%s/%s", lock_path, child));
			if (reply != NULL && zklock_nested_is_lock(child, reply))
				continue;
		}
		children[nchildren++] = child;
	}
	return zklock_queue_in_order(children, nchildren, nentries);
}

/*
 * What does it wait for, by its own word?  The fact is read, but for node 0.
 * Sets the member's lock_path, *node, the name of its queue node, and *said.
 */
static bool
read_wait(Reading *reading, int index, const char **node, int64 *said)
{
	Member	   *member = &reading->graph->members[index];
	const ZkReply *reply;
	SaidWait	wait;

	if (index == 0)
	{
		*node = strrchr(reading->place->node, '/') + 1;
		*said = reading->said;
		member->lock_path = pstrdup(reading->place->lock_path);
		return true;
	}
	reply = read_path(reading, ZK_GET,
					  deadlock_fact_path(reading->place, member->session,
										 member->session));
	if (reply == NULL || reply->data == NULL ||
		reply->ephemeral_owner != member->session)
		return false;
	reading->is_deep = true;
	if (!deadlock_parse_wait(reply, &wait))
		return false;
	*node = wait.node;
	*said = reply->czxid;
	member->lock_path = wait.lock_path;
	member->has_searched = wait.has_searched;
	if (member->who.pid == 0)
		member->who = wait.who;
	return true;
}

/* Add that it waits for one of the holders. */
static void
follow_holder(Reading *reading, int index, const char *holder, int64 said)
{
	Graph	   *graph = reading->graph;
	const ZkReply *reply = read_path(reading, ZK_GET,
									 psprintf("%s/%s",
											  graph->members[index].lock_path,
											  holder));
	ZkNodeData	who = {0};
	int			to = -1;
	int			edge;

	if (reply != NULL)
		zklock_nodedata_parse(reply->data, reply->data_length, &who);
	if (reply != NULL && surely_holds(holder, reply, &who) &&
		!(index == 0 && is_left(reply->ephemeral_owner)))
		to = enter_member(reading, reply->ephemeral_owner);
	edge = cycle_add_edge(&graph->shape, index, to, said);
	if (edge < 0)
	{
		graph->shape.nodes[index].has_way_out = true;
		return;
	}
	if (graph->members[to].who.client == NULL)
		graph->members[to].who = who;
}

/*
 * Does the holder hold the lock until it lets go of it?  One of whom that
 * cannot be told may let go at any time: a permanent hold, a client of another
 * make, one that has just gone, one that may merely keep the lock, one that has
 * let go and whose node may not be deleted: that is without data then.
 */
static bool
surely_holds(const char *holder, const ZkReply *reply, const ZkNodeData *who)
{
	if (reply->ephemeral_owner == 0)
		return false;
	if (recipe_read_mark(holder) == RECIPE_MARK_KEEPER && !who->says_held)
		return false;
	return reply->version == 0 || reply->data_length > 0;
}

/*
 * Does this session stand behind a node of its own?  As long as deletes are to
 * be done, that is what it has released.
 */
static bool
is_left(int64 session)
{
	return session == zklock_session_id() &&
		zklock_session_count_pending() > 0;
}

/* Add whom it waits for in PostgreSQL, as these say of themselves. */
static void
follow_postgres(Reading *reading, int index)
{
	Graph	   *graph = reading->graph;
	const ZkReply *facts = read_path(reading, ZK_LIST,
									 deadlock_postgres_directory(reading->place));

	for (int i = 0; facts != NULL && i < facts->nchildren; i++)
	{
		int64		waiter;
		int64		blocker;
		const ZkReply *reply;
		int			edge;

		if (!zklock_deadlock_parse_fact(facts->children[i], &waiter, &blocker) ||
			waiter != graph->members[index].session)
			continue;
		reply = read_path(reading, ZK_GET,
						  deadlock_fact_path(reading->place, waiter,
											 blocker));
		/* it counts if it is its maker's own */
		if (reply == NULL || reply->ephemeral_owner != blocker)
			continue;
		edge = cycle_add_edge(&graph->shape, index, enter_member(reading, blocker),
							  reply->czxid);
		if (edge < 0)
			continue;
		graph->versions[edge] = reply->version;
		graph->in_postgres[edge] = "";
		if (reply->data != NULL)
			graph->in_postgres[edge] =
				zklock_text_printable(pnstrdup(reply->data,
											   Min(reply->data_length,
												   TEXT_SHOWN_MAX)));
	}
}
