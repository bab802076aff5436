/*-------------------------------------------------------------------------
 *
 * expiry.c
 *	  Reads and times the leases of a queue, and deletes those whose term is
 *	  over.
 *
 * A lease is a persistent node of the queue.  Its heartbeat is the version of
 * its data: the owner sets the data at least once in the term that the data
 * names.  A contender that waits behind the lease reads version v, waits for
 * the term by its own CLOCK_BOOTTIME, and then deletes the node with v as
 * condition.  So a renewal and the delete cannot both win, and no two clocks
 * are compared.
 *
 * Why an owner may rely on that.  Let the owner send a renewal at s, which
 * makes version v and is confirmed.  No contender can have read v before s.  So
 * none deletes v before s plus the term, by its own clock.  The owner stops to
 * rely on the lease a tenth of the term earlier, for clocks of different speed.
 * A contender that was stopped, or whose clock was, deletes later; one that
 * reads v late begins late.  A contender that has read v-1 before can no longer
 * delete it.
 *
 * The term is that of the data of the same version.  A client that may create
 * nodes in the queue may also set the data of a lease, as Curator's Revoker
 * does: data that names no term has the longest one, so that the owner loses
 * nothing that it relies on.
 *
 *-------------------------------------------------------------------------
 */
#include "expiry.h"

#include "miscadmin.h"
#include "utils/hsearch.h"

#include "compat.h"
#include "recipe.h"
#include "stat.h"
#include "text.h"

/*
 * Which node: somebody may have given the name to another one, in whatever
 * queue, and another ensemble counts zxids from the beginning again.
 */
typedef struct SeenKey
{
	int64		czxid;
	char		node[RECIPE_NODE_SIZE]; /* zeros behind the name */
} SeenKey;

/* A version that this backend has read. */
typedef struct Seen
{
	SeenKey		key;
	int			version;
	bool		is_logged;		/* the log says that its term is over */
	int64		since;			/* protocol_now() */
	int64		unused_at;		/* protocol_now(): nobody looks at it any more,
								 * if nobody has until then */
} Seen;

/*
 * Seen; NULL until there is one.  It belongs to the backend, whatever its
 * session: a version goes on being timed when the session was lost.
 */
static HTAB *all_seen;

/*
 * Most versions that are remembered.  When there are so many, a lease that is
 * read for the first time is not timed yet.  It is timed when it is read again
 * and there is room.  Room is made by each lease that is deleted, that is renewed
 * (it is alive, and begins again when its turn comes), or that nobody looks at
 * any more.  So each lease has a turn, however many there are.
 */
#define SEEN_MAX 100000

/*
 * Whoever waits for the end of a term looks again when it is over, and the lease
 * worker in each pass.  So long after that the version is of no use.
 */
#define UNUSED_MS 600000

/* If there is no room, those of no use are searched for so often, at most. */
#define SEARCH_MS 60000

/* protocol_now(): when the next search may be. */
static int64 search_at;

static int	compare_nodes(const ListCell *a, const ListCell *b);
static int64 seen_since(const ZkLeased *leased);
static bool is_memory_full(void);
static void forget_unused(int64 now);
static SeenKey seen_key(const ZkLeased *leased);
static void forget_seen(SeenKey key);

List *
zklock_expiry_nodes(const char *const *children, int nchildren)
{
	List	   *nodes = NIL;

	for (int i = 0; i < nchildren; i++)
		if (recipe_read_mark(children[i]) == RECIPE_MARK_LEASE)
			nodes = lappend(nodes, pstrdup(children[i]));
	zklock_expiry_sort(nodes);
	return nodes;
}

void
zklock_expiry_sort(List *nodes)
{
	list_sort(nodes, compare_nodes);
}

ZkOutcome
zklock_expiry_read(ZkRoundTrip *trip, const char *lock_path,
				   const List *nodes, List **leased)
{
	List	   *asked = NIL;
	ZkOutcome	outcome = ZK_ANSWERED;

	*leased = NIL;
	foreach_ptr(const char, node, nodes)
	{
		ZkLeased   *one = palloc0(sizeof(*one));
		List	   *more;

		one->node = node;
		one->path = psprintf("%s/%s", lock_path, node);
		asked = lappend(asked, one);
		if (list_length(asked) < ZK_READS_AT_ONCE && node != llast(nodes))
			continue;
		outcome = zklock_expiry_read_paths(trip, asked, &more);
		if (outcome != ZK_ANSWERED)
			break;
		*leased = list_concat(*leased, more);
		list_free(asked);
		asked = NIL;
	}
	return outcome;
}

ZkOutcome
zklock_expiry_read_paths(ZkRoundTrip *trip, const List *asked, List **leased)
{
	char	   *paths[ZK_READS_AT_ONCE];
	const ZkReply *replies[ZK_READS_AT_ONCE];
	int			npaths = 0;
	int			nread = 0;
	ZkOutcome	outcome;

	*leased = NIL;
	Assert(list_length(asked) <= ZK_READS_AT_ONCE);
	foreach_ptr(const ZkLeased, one, asked)
		paths[npaths++] = one->path;
	outcome = zklock_roundtrip_read_all(trip, ZK_GET, paths, npaths, replies);
	if (outcome != ZK_ANSWERED)
		return outcome;
	foreach_ptr(ZkLeased, one, asked)
	{
		const ZkReply *reply = replies[nread++];

		if (!zklock_expiry_take(one, reply))
			continue;
		zklock_expiry_time(one);
		*leased = lappend(*leased, one);
	}
	zklock_roundtrip_end_reads(trip, npaths);
	return ZK_ANSWERED;
}

/*
 * One that belongs to a session has a forged mark, and one without a czxid is
 * a lie of the server's.
 */
bool
zklock_expiry_take(ZkLeased *one, const ZkReply *reply)
{
	if (reply->result != ZK_OK || reply->ephemeral_owner != 0 ||
		reply->czxid <= 0)
		return false;
	zklock_nodedata_parse(reply->data, reply->data_length, &one->who);
	one->token = recipe_read_token(one->node);
	one->czxid = reply->czxid;
	one->version = reply->version;
	one->mtime_ms = reply->mtime_ms;
	one->term_ms = ZK_TERM_MAX;
	if (one->who.term_ms >= 0)
		one->term_ms = Min(one->who.term_ms, ZK_TERM_MAX);
	return true;
}

bool
zklock_expiry_holds(const ZkChildren *children, const char *node)
{
	RecipeNode	parsed = recipe_parse_node(node);
	RecipeWish	wish = {
		.mine = node,.mode = parsed.mode,.permits = parsed.permits
	};
	int			ahead;

	return recipe_verdict(children->names, children->count, &wish,
						  &ahead) == RECIPE_HELD;
}

void
zklock_expiry_time(ZkLeased *leased)
{
	leased->over_at = seen_since(leased) + leased->term_ms;
}

ZkOutcome
zklock_expiry_remove(ZkRoundTrip *trip, const ZkLeased *leased, bool *is_gone)
{
	const ZkReply *reply;
	ZkOutcome	outcome;

	*is_gone = false;
	if (leased->version == ZK_ANY_VERSION)
		return ZK_ANSWERED;		/* the counter has wrapped: no condition */
	do
		outcome = zklock_roundtrip_ask(trip,
									   zklock_client_remove(zklock_session_client(),
															leased->path,
															leased->version),
									   &reply);
	while (outcome == ZK_UNKNOWN);
	if (outcome != ZK_ANSWERED)
		return outcome;
	*is_gone = reply->result == ZK_OK || reply->result == ZK_NO_NODE;
	return zklock_roundtrip_check_refusal(trip, reply->result, leased->path,
										  leased->czxid, leased->version);
}

ZkOutcome
zklock_expiry_end(ZkRoundTrip *trip, const char *lock_path,
				  const ZkLeased *leased, int64 *look_at)
{
	bool		is_gone;
	ZkOutcome	outcome;

	if (protocol_now() < leased->over_at)
	{
		*look_at = Min(*look_at, leased->over_at);
		return ZK_ANSWERED;
	}
	zklock_expiry_log(lock_path, leased);
	outcome = zklock_expiry_remove(trip, leased, &is_gone);
	if (outcome == ZK_ANSWERED)
		zklock_expiry_note_end(leased, is_gone, look_at);
	return outcome;
}

/* One without an owner was given up, and was counted then. */
void
zklock_expiry_note_end(const ZkLeased *leased, bool is_gone, int64 *look_at)
{
	if (is_gone)
	{
		forget_seen(seen_key(leased));
		zklock_expiry_debug(leased->path, leased->token,
							"deleted: its term was over");
		if (leased->who.owner != NULL)
			zklock_stat_count(ZK_STAT_LEASE_END);
		*look_at = ZK_LOOK_NOW;
	}
	else
	{
		zklock_expiry_debug(leased->path, leased->token,
							"not deleted: it was gone or renewed, or ZooKeeper refused");

		/* in a term again, which may be forged */
		*look_at = Min(*look_at,
					   protocol_now() + Max(leased->term_ms, ZK_TERM_MIN));
	}
}

void
zklock_expiry_debug(const char *path, int64 token, const char *format,...)
{
	StringInfoData what;

	if (!message_level_is_interesting(DEBUG1))
		return;
	initStringInfo(&what);
	for (;;)
	{
		va_list		arguments;
		int			missing;

		va_start(arguments, format);
		missing = appendStringInfoVA(&what, format, arguments);
		va_end(arguments);
		if (missing == 0)
			break;
		enlargeStringInfo(&what, missing);
	}
	ereport(DEBUG1,
			(errmsg_internal("zklock: lease \"%s\", fencing token " INT64_FORMAT ": %s",
							 zklock_text_quotable(path), token, what.data)));
	pfree(what.data);
}

ZkOutcome
zklock_expiry_sweep(ZkRoundTrip *trip, const char *lock_path,
					const List *nodes, int64 *look_at)
{
	/* a waiter may look for hours */
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "zklock leases",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	List	   *leased;
	ZkOutcome	outcome;

	*look_at = ZK_NO_DEADLINE;
	outcome = zklock_expiry_read(trip, lock_path, nodes, &leased);
	foreach_ptr(const ZkLeased, one, leased)
	{
		if (outcome != ZK_ANSWERED)
			break;
		outcome = zklock_expiry_end(trip, lock_path, one, look_at);
	}
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
	return outcome;
}

static int
compare_nodes(const ListCell *a, const ListCell *b)
{
	return recipe_compare_nodes(lfirst(a), lfirst(b));
}

/*
 * Since when this backend knows that version of the node; from now on if it
 * does not, or if there is no room to remember it.  The reply was here before
 * the clock is read.
 */
static int64
seen_since(const ZkLeased *leased)
{
	HASHCTL		control = {.keysize = sizeof(SeenKey),.entrysize = sizeof(Seen)};
	SeenKey		key = seen_key(leased);
	int64		now = protocol_now();
	bool		is_alive;
	Seen	   *seen;

	if (all_seen == NULL)
		all_seen = hash_create("zklock leases seen", 16, &control,
							   HASH_ELEM | HASH_BLOBS);
	seen = hash_search(all_seen, &key, HASH_FIND, NULL);
	is_alive = seen != NULL && seen->version != leased->version;
	if (is_alive && is_memory_full())
	{
		forget_seen(key);		/* another one is to be timed */
		return now;
	}
	if (seen == NULL && is_memory_full())
		forget_unused(now);
	if (seen == NULL && is_memory_full())
		return now;
	if (seen == NULL || is_alive)
	{
		seen = hash_search(all_seen, &key, HASH_ENTER, NULL);
		seen->version = leased->version;
		seen->is_logged = false;
		seen->since = now;
	}
	seen->unused_at = now + leased->term_ms + UNUSED_MS;
	return seen->since;
}

static bool
is_memory_full(void)
{
	return hash_get_num_entries(all_seen) >= SEEN_MAX;
}

/* Make room, unless that was tried a moment ago. */
static void
forget_unused(int64 now)
{
	HASH_SEQ_STATUS scan;
	Seen	   *seen;

	if (now < search_at)
		return;
	search_at = now + SEARCH_MS;
	hash_seq_init(&scan, all_seen);
	while ((seen = hash_seq_search(&scan)) != NULL)
	{
		if (seen->unused_at < now)
			forget_seen(seen->key);
	}
}

static SeenKey
seen_key(const ZkLeased *leased)
{
	SeenKey		key = {.czxid = leased->czxid};

	strlcpy(key.node, leased->node, sizeof(key.node));
	return key;
}

static void
forget_seen(SeenKey key)
{
	(void) hash_search(all_seen, &key, HASH_REMOVE, NULL);	/* it may be gone */
}

/* Once for each version: the delete may be refused, again and again. */
void
zklock_expiry_log(const char *lock_path, const ZkLeased *leased)
{
	SeenKey		key = seen_key(leased);
	Seen	   *seen = hash_search(all_seen, &key, HASH_FIND, NULL);

	if (seen != NULL && seen->is_logged)
		return;
	if (seen != NULL)
		seen->is_logged = true;
	ereport(ZK_LOG_DEED,
			(errmsg("removing a lease below znode \"%s\" that was not renewed for " INT64_FORMAT " ms",
					zklock_text_quotable(lock_path), leased->term_ms),
			 leased->who.owner == NULL ?
			 errdetail_log("It has no owner: it was given up with a delay, or another client has written to its znode. Fencing token " INT64_FORMAT ".",
						   leased->token) :
			 errdetail_log("Owner \"%s\", fencing token " INT64_FORMAT ".",
						   zklock_text_quotable(leased->who.owner),
						   leased->token)));
}
