/*-------------------------------------------------------------------------
 *
 * deadlock_graph.c
 *	  Who waits for whom, read from the ensemble; and who waits for this backend
 *	  in PostgreSQL's own lock manager.
 *
 * A session that waits is waited for by whoever waits for a lock that it
 * holds.  Who holds a lock its queue tells, and whose a queue node is the
 * server (ephemeralOwner).  What a session waits for only it can say: its
 * fact, which counts if the server says that it is its own, and if the queue
 * node it names stands in the queue and does not hold the lock.  So a fact
 * that is outdated says nothing.
 *
 * Only holders matter, not those who wait in between: each of these waits for
 * the same holders.  Nobody else's queue is read than those of the waits that
 * we come to.  Reads only.
 *
 * Servers may be far away, so nothing is asked one by one.  The graph is made
 * again and again of the answers that are there, and what is missing is asked
 * for in one flush, until nothing is.  In a cycle each needs the answers about
 * the one before it; so if a holder waits, too, the same is asked about all
 * who wait.
 *
 * In PostgreSQL's lock manager the first look is at this backend's own locks
 * alone: as a rule nobody waits for these.
 *
 *-------------------------------------------------------------------------
 */
#include "deadlock_private.h"

#include "access/xact.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "nodes/bitmapset.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/array.h"
#include "utils/fmgrprotos.h"
#include "utils/wait_event.h"

#include "board.h"
#include "name.h"
#include "nested.h"
#include "queue.h"
#include "text.h"

/* Of how many holders of one lock it is asked what they wait for. */
#define HOLDERS_FOLLOWED 64

/* About how many of those who wait it is asked without need. */
#define WAITS_AT_ONCE 64

/* Most questions; what would take more is not known. */
#define QUESTIONS_MAX (2 * CYCLE_EDGES_MAX)

/* How much is shown of what somebody else has written, in bytes. */
#define TEXT_SHOWN_MAX 256

/* Length of the name of a fact that a session waits for a lock. */
#define SESSION_DIGITS 16

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

static char *directory(const ZkPlace *place);
static void enter_all(Reading *reading);
static const ZkReply *read_path(Reading *reading, ZkRead read, const char *path);
static int	enter_member(Reading *reading, int64 session);
static bool follow_lock(Reading *reading, int index);
static ZkQueueEntry *contenders_of(Reading *reading, const char *lock_path,
								   const ZkReply *list, const char *own,
								   int *nentries);
static bool read_wait(Reading *reading, int index, char **node, int64 *said);
static void follow_holder(Reading *reading, int index, const char *holder,
						  int64 said);
static bool is_left(int64 session);
static void follow_postgres(Reading *reading, int index);
static bool waits_for_us(int pid, Bitmapset **asked, Bitmapset **stuck);
static bool is_waited_for(void);
static List *local_candidates(void);
static bool waits_for_snapshot(int pid);
static ArrayType *ask_blockers(int pid);

char *
deadlock_path(const ZkPlace *place, int64 session, int64 maker)
{
	char	   *parent = directory(place);
	unsigned long long about = session;

	if (session == maker)
		return psprintf("%s/%016llx", parent, about);
	return psprintf("%s/" ZK_WAITS_IN_POSTGRES "/%016llx-%016llx", parent,
					about, (unsigned long long) maker);
}

char *
deadlock_claim_path(const ZkPlace *place, int64 newest)
{
	return psprintf("%s/" ZK_WAITS_CLAIMS "/%016llx", directory(place),
					(unsigned long long) newest);
}

/*
 * The graph is made until no answer is missing, or there are no more answers,
 * or news of our own wait.
 */
Graph *
deadlock_follow(ZkRoundTrip *trip, const ZkPlace *place, int64 session,
				int64 said, bool is_newest)
{
	Reading		reading = {
		.trip = trip,.place = place,.said = said,.is_deep = is_newest
	};
	const ZkReply *reply;
	const CycleGraph *shape;

	if (is_newest)
	{
		/* what this connection brings behind it is not older */
		reply = zklock_roundtrip_read(trip, ZK_CHECK, place->node);
		if (reply == NULL || reply->result == ZK_SESSION_LOST)
			return NULL;
	}
	do
	{
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
	} while (reading.is_missing && zklock_roundtrip_await_looks(trip) &&
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
									 directory(reading->place));

	if (waits == NULL || waits->nchildren > WAITS_AT_ONCE)
		return;
	for (int i = 0; i < waits->nchildren; i++)
	{
		if (strlen(waits->children[i]) != SESSION_DIGITS)
			continue;

		/* without room it is not asked about ahead */
		(void) enter_member(reading, (int64) strtoull(waits->children[i], NULL, 16));
	}
}

static char *
directory(const ZkPlace *place)
{
	return psprintf("%.*s/" ZK_WAITS_NAME, place->root_length,
					place->lock_path);
}

/*
 * A read; NULL, with is_missing set, if there is no answer yet.  Whatever
 * ZooKeeper refuses is not known, that is all: NULL, too.
 */
static const ZkReply *
read_path(Reading *reading, ZkRead read, const char *path)
{
	const ZkReply *reply;

	if (list_length(reading->trip->looks) >= QUESTIONS_MAX)
		return NULL;
	reply = zklock_roundtrip_look(reading->trip, read, path);
	reading->is_missing |= reply == NULL;
	return reply != NULL && reply->result == ZK_OK ? reply : NULL;
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
	char	   *own;
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
 * The contenders of a queue, in order, as zklock_order_queue() gives them, with
 * what is behind the one called own only as far as its name tells what it is.
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
	return zklock_order_queue(children, nchildren, nentries);
}

/*
 * What does it wait for, by its own word?  The fact is read, but for node 0.
 * Sets the member's lock_path, *node, the name of its queue node, and *said.
 */
static bool
read_wait(Reading *reading, int index, char **node, int64 *said)
{
	Member	   *member = &reading->graph->members[index];
	const ZkReply *reply;
	const char *end;
	int			length;
	char	   *slash;
	char	   *path;

	if (index == 0)
	{
		path = pstrdup(reading->place->node);
		*said = reading->said;
	}
	else
	{
		reply = read_path(reading, ZK_GET,
						  deadlock_path(reading->place, member->session,
										member->session));
		if (reply == NULL || reply->data == NULL ||
			reply->ephemeral_owner != member->session)
			return false;
		reading->is_deep = true;
		end = memchr(reply->data, '\n', reply->data_length);
		if (end == NULL || end - reply->data >= RECIPE_PATH_SIZE)
			return false;
		path = pnstrdup(reply->data, end - reply->data);
		*said = reply->czxid;
		length = reply->data + reply->data_length - end - 1;
		member->has_looked = length >= (int) strlen(ZK_FACT_LOOKED) &&
			memcmp(end + 1 + length - strlen(ZK_FACT_LOOKED), ZK_FACT_LOOKED,
				   strlen(ZK_FACT_LOOKED)) == 0;
		if (member->has_looked)
			length -= strlen(ZK_FACT_LOOKED);
		if (member->who.pid == 0)
			zklock_nodedata_parse(end + 1, length, &member->who);
	}
	slash = strrchr(path, '/');
	if (slash == NULL || slash == path)
		return false;
	*slash = '\0';
	*node = slash + 1;
	member->lock_path = path;
	return true;
}

/*
 * Add that it waits for one of the holders.  One of whom nothing can be told
 * may let go at any time: a hold of zk_hold(), a client of another make, one
 * that has just gone, one that may merely keep the lock, one that has let go
 * and whose node may not be deleted: that is without data then.
 */
static void
follow_holder(Reading *reading, int index, const char *holder, int64 said)
{
	Graph	   *graph = reading->graph;
	const ZkReply *reply = read_path(reading, ZK_GET,
				  psprintf("%s/%s", graph->members[index].lock_path, holder));
	ZkNodeData	who = {0};
	int			to = -1;
	int			edge;

	if (reply != NULL)
		zklock_nodedata_parse(reply->data, reply->data_length, &who);
	if (reply != NULL && reply->ephemeral_owner != 0 &&
		(recipe_read_mark(holder) != RECIPE_MARK_KEEPER || who.says_held) &&
		(reply->version == 0 || reply->data_length > 0) &&
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
 * Does this session stand behind a node of its own?  As long as deletes are to
 * be done, that is what it has released.
 */
static bool
is_left(int64 session)
{
	ZkClientStatus status;

	return session == zklock_session_id() && zklock_session_status(&status) &&
		status.npending > 0;
}

/* Add whom it waits for in PostgreSQL, as these say of themselves. */
static void
follow_postgres(Reading *reading, int index)
{
	Graph	   *graph = reading->graph;
	const ZkReply *facts = read_path(reading, ZK_LIST,
				  psprintf("%s/" ZK_WAITS_IN_POSTGRES,
						   directory(reading->place)));

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
						  deadlock_path(reading->place, waiter, blocker));
		/* it counts if it is its maker's own */
		if (reply == NULL || reply->ephemeral_owner != blocker)
			continue;
		edge = cycle_add_edge(&graph->shape, index, enter_member(reading, blocker),
							  reply->czxid);
		if (edge < 0)
			continue;
		graph->versions[edge] = reply->version;
		graph->in_postgres[edge] = reply->data == NULL ? "" :
			zklock_text_printable(pnstrdup(reply->data,
											   Min(reply->data_length,
												   TEXT_SHOWN_MAX)));
	}
}

bool
zklock_deadlock_parse_fact(const char *name, int64 *waiter, int64 *blocker)
{
	unsigned long long about;
	unsigned long long maker;
	char		proper[2 * SESSION_DIGITS + 2];

	if (sscanf(name, "%16llx-%16llx", &about, &maker) != 2)
		return false;
	snprintf(proper, sizeof(proper), "%016llx-%016llx", about, maker);
	if (strcmp(name, proper) != 0)
		return false;
	*waiter = about;
	*blocker = maker;
	return true;
}

List *
deadlock_local_waiters(void)
{
	Bitmapset  *asked = bms_make_singleton(MyProcPid);
	Bitmapset  *stuck = bms_copy(asked);
	List	   *waiters = NIL;

	if (!is_waited_for())
		return NIL;
	foreach_ptr(LocalWaiter, candidate, local_candidates())
		if (waits_for_us(candidate->pid, &asked, &stuck))
			waiters = lappend(waiters, candidate);
	return waiters;
}

/*
 * Does that process wait for this backend, or for one that does?  Each is
 * asked for once, for that takes all of PostgreSQL's lock table, and no more of
 * them than it takes: of a crowd that waits for one row each waits for all
 * ahead of it.  In a cycle without us, which PostgreSQL ends itself, one may
 * count as not waiting for us.
 */
static bool
waits_for_us(int pid, Bitmapset **asked, Bitmapset **stuck)
{
	ArrayType  *blockers;
	const int32 *pids;
	int			npids;

	check_stack_depth();
	CHECK_FOR_INTERRUPTS();
	if (bms_is_member(pid, *asked))
		return bms_is_member(pid, *stuck);
	*asked = bms_add_member(*asked, pid);
	blockers = ask_blockers(pid);
	pids = (const int32 *) ARR_DATA_PTR(blockers);
	npids = ArrayGetNItems(ARR_NDIM(blockers), ARR_DIMS(blockers));
	for (int i = 0; i < npids; i++)
	{
		if (!waits_for_us(pids[i], asked, stuck))
			continue;
		*stuck = bms_add_member(*stuck, pid);
		return true;
	}
	return false;
}

/*
 * May anybody wait in PostgreSQL for this backend?  That is no more than a look
 * at its own locks: each partition of the lock table has a list of them.  No lock tells who
 * waits for the end of a SERIALIZABLE transaction, so that one may be.
 */
static bool
is_waited_for(void)
{
	if (IsolationIsSerializable())
		return true;
	for (int i = 0; i < NUM_LOCK_PARTITIONS; i++)
	{
		LWLock	   *lock = LockHashPartitionLockByIndex(i);
		bool		is_found = false;

		/* what others transfer to it the next look sees */
		if (next_proc_lock_compat(MyProc, i, NULL) == NULL)
			continue;
		LWLockAcquire(lock, LW_SHARED);
		/* has somebody asked for more than is granted? */
		foreach_proc_lock_compat(held, MyProc, i)
			is_found |= held->tag.myLock->nRequested > held->tag.myLock->nGranted;
		LWLockRelease(lock);
		if (is_found)
			return true;
	}
	return false;
}

/* The other backends of this cluster that hold locks: a list of LocalWaiter. */
static List *
local_candidates(void)
{
	List	   *candidates = NIL;
	ZkBoardRow	row;

	for (int i = 0; i < zklock_board_size(); i++)
	{
		LocalWaiter *candidate;

		if (!zklock_board_read(i, &row) || row.session_id == 0 ||
			row.nheld == 0 || row.pid == MyProcPid)
			continue;
		candidate = palloc(sizeof(*candidate));
		candidate->pid = row.pid;
		candidate->session = row.session_id;
		candidates = lappend(candidates, candidate);
	}
	return candidates;
}

/* Reads the whole lock table. */
char *
deadlock_describe_wait(int pid)
{
	StringInfoData text;
	LockData   *locks;

	if (waits_for_snapshot(pid))
		return pstrdup("a safe snapshot");
	locks = GetLockStatusData();
	initStringInfo(&text);
	for (int i = 0; i < locks->nelements; i++)
	{
		LockInstanceData *lock = &locks->locks[i];

		if (lock->leaderPid != pid || lock->waitLockMode == NoLock)
			continue;
		appendStringInfo(&text, "%s on ",
						 GetLockmodeName(lock->locktag.locktag_lockmethodid,
										 lock->waitLockMode));
		DescribeLockTag(&text, &lock->locktag);
		break;
	}
	return pg_server_to_any(text.data, text.len, PG_UTF8);
}

/*
 * Does it wait until its SERIALIZABLE READ ONLY DEFERRABLE transaction can
 * have a snapshot that is safe?  That is no lock.
 */
static bool
waits_for_snapshot(int pid)
{
	const PGPROC *proc = BackendPidGetProc(pid);

	return proc != NULL &&
		*(const volatile uint32 *) &proc->wait_event_info ==
		WAIT_EVENT_SAFE_SNAPSHOT;
}

/* For which processes does that one wait?  They are integers. */
static ArrayType *
ask_blockers(int pid)
{
	return DatumGetArrayTypeP(DirectFunctionCall1(waits_for_snapshot(pid) ?
												  pg_safe_snapshot_blocking_pids :
												  pg_blocking_pids,
												  Int32GetDatum(pid)));
}
