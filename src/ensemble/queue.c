/*-------------------------------------------------------------------------
 *
 * queue.c
 *	  Views over the ensemble: who stands in the queue of a lock.
 *
 * Only reads.  Requests are the trip's; results are palloc'ed in the caller's context.
 *
 *-------------------------------------------------------------------------
 */
#include "queue.h"

#include "miscadmin.h"

#include "ephemeral.h"
#include "expiry.h"
#include "name.h"
#include "nested.h"
#include "recipe.h"
#include "roundtrip.h"
#include "session.h"
#include "text.h"

/*
 * How many reads are under way at once.  Enough to hide the round trips, few
 * enough not to fill the server's queue for everybody else.
 */
#define READS_AT_ONCE 64

/* A queue that is being read. */
typedef struct Reading
{
	ZkPathOf	path_of;		/* what the name stands for */
	const char *name;
	bool		is_newest;		/* a list that is not older than the call */
	bool		is_first;		/* only its first */
	const char *path;			/* of the znode, in the session of the moment */
	ZkQueueEntry *entries;		/* the result */
	int			nentries;
} Reading;

static bool read_entries(ZkRoundTrip *trip, void *argument);
static bool read_stranger(ZkRoundTrip *trip, Reading *reading);
static const ZkReply *look_at_child(ZkRoundTrip *trip, const Reading *reading,
									const char *child);
static bool take_child(const Reading *reading, const ZkReply *reply,
					   const char *child, ZkQueueEntry *entry);
static void put_nested_last(ZkQueueEntry *entries, int nentries);
static void mark_holders(ZkQueueEntry *entries, int nentries);
static int	compare_children(const void *a, const void *b);

ZkQueueEntry *
zklock_read_queue(const ZkBounds *bounds, ZkPathOf path_of, const char *name,
				  bool is_newest, int *nentries)
{
	Reading		reading = {.path_of = path_of,.name = name,.is_newest = is_newest};

	/* a bad name needs no connection */
	pfree(path_of(name, NULL));
	if (bounds != NULL)
		zklock_roundtrip_run_within(bounds, read_entries, NULL, &reading);
	else
		zklock_roundtrip_run(read_entries, NULL, &reading);
	*nentries = reading.nentries;
	return reading.entries;
}

ZkQueueEntry *
zklock_order_queue(const char *const *children, int nchildren, int *nentries)
{
	ZkQueueEntry *entries = palloc_extended((nchildren + 1) * sizeof(*entries),
											MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	const char **sorted = palloc_extended((nchildren + 1) * sizeof(*sorted),
										  MCXT_ALLOC_HUGE);
	int			count = 0;

	for (int i = 0; i < nchildren; i++)
		if (recipe_parse_node(children[i]).style != RECIPE_STYLE_NONE)
			sorted[count++] = children[i];
	qsort(sorted, count, sizeof(*sorted), compare_children);
	for (int i = 0; i < count; i++)
	{
		entries[i].node = sorted[i];
		entries[i].parsed = recipe_parse_node(sorted[i]);
	}
	mark_holders(entries, count);
	pfree(sorted);
	*nentries = count;
	return entries;
}

ZkQueueEntry *
zklock_read_first(const char *name)
{
	Reading		reading = {.path_of = zklock_name_path,.name = name,
	.is_newest = true,.is_first = true};

	pfree(zklock_name_path(name, NULL));
	zklock_roundtrip_run(read_entries, NULL, &reading);
	return reading.nentries > 0 && reading.entries->position > 0 ?
		reading.entries : NULL;
}

/*
 * List the children, then read the data of each, many at a time; or of the
 * first contender, and if that has gone meanwhile, list again.  false if the
 * session was lost.
 */
static bool
read_entries(ZkRoundTrip *trip, void *argument)
{
	Reading    *reading = argument;
	const ZkReply *list;
	const char **children;
	ZkQueueEntry *entries;
	int			nchildren;
	int			nread = 0;

	/* the chroot, and so the path, belongs to the session */
	reading->path = reading->path_of(reading->name, NULL);
	reading->nentries = 0;

	/* who reads all of the newest queue is about to remove one of it */
	if (!reading->is_first)
		trip->terms = ZK_WRITE_COUNTED;
	list = reading->is_newest ?
		zklock_roundtrip_read_newest(trip, ZK_LIST, reading->path) :
		zklock_roundtrip_read(trip, ZK_LIST, reading->path);
	if (list->result == ZK_SESSION_LOST)
		return false;
	if (list->result == ZK_NO_NODE ||
		(list->result == ZK_OK && list->nchildren == 0))
		return read_stranger(trip, reading);
	if (list->result != ZK_OK)
		zklock_session_raise(list, "read a lock's queue", reading->path);

	entries = palloc_extended((list->nchildren + 1) * sizeof(*entries),
							  MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	children = palloc((list->nchildren + 1) * sizeof(*children));
	memcpy(children, list->children, list->nchildren * sizeof(*children));
	qsort(children, list->nchildren, sizeof(*children), compare_children);
	nchildren = list->nchildren;

	for (int first = 0, last; first < nchildren; first = last)
	{
		last = reading->is_first ? first + 1 :
			Min(first + READS_AT_ONCE, nchildren);
		CHECK_FOR_INTERRUPTS();
		for (int i = first; i < last; i++)
			(void) look_at_child(trip, reading, children[i]);	/* asked for */
		if (!zklock_roundtrip_await_looks(trip))
			return false;
		for (int i = first; i < last; i++)
			nread += take_child(reading, look_at_child(trip, reading, children[i]),
								children[i], &entries[nread]);
		zklock_roundtrip_end_looks(trip);
		if (!reading->is_first)
			continue;
		if (nread == 0)
			return read_entries(trip, argument);
		if (entries->parsed.style != RECIPE_STYLE_NONE)
			break;
		nread = 0;				/* a lock below, or no contender is left */
		*entries = (ZkQueueEntry) {0};
	}
	put_nested_last(entries, nread);
	mark_holders(entries, nread);
	for (int i = 0; i < nread && !reading->is_first; i++)
		if (zklock_warn_of_style(entries[i].parsed.style, &entries[i].who,
								 zklock_name_style()))
			break;
	reading->entries = entries;
	reading->nentries = nread;
	return true;
}

/*
 * There is no queue.  If another program has an ephemeral znode where it would
 * be, or above, that is the only entry, and the holder: nobody else can have
 * the lock.  Only the former one has a token, by which it can be removed.  Who
 * asks for the first contender alone is not told: a stranger is none.  false
 * if the session was lost.
 */
static bool
read_stranger(ZkRoundTrip *trip, Reading *reading)
{
	int			root_length;
	const ZkReply *reply;
	char	   *found;
	ZkQueueEntry *entry;

	if (reading->path_of != zklock_name_path || reading->is_first)
		return true;
	pfree(zklock_name_path(reading->name, &root_length));
	if (!zklock_ephemeral_find(trip, reading->path, root_length,
							   &reply, &found))
		return false;
	if (reply == NULL)
		return true;
	entry = reading->entries = palloc0(sizeof(*entry));
	reading->nentries = take_child(reading, reply, found, entry);
	entry->position = 1;
	entry->is_holder = entry->is_stranger = true;
	entry->is_releasing = false;
	entry->expires = 0;
	entry->parsed = (RecipeNode) {
		.style = RECIPE_STYLE_NONE,.mode = RECIPE_EXCLUSIVE,.permits = 1
	};
	if (strcmp(found, reading->path) != 0)
		entry->token = 0;
	return true;
}

bool
zklock_warn_of_style(RecipeStyle theirs, const ZkNodeData *who,
					 RecipeStyle ours)
{
	if (recipe_waits_for(theirs, ours) || who->client != NULL)
		return false;
	ereport(WARNING,
			(errcode(ERRCODE_WARNING),
			 errmsg("a contender of style \"%s\" may take no notice of the queue nodes that this session makes",
					recipe_style_name(theirs)),
			 errhint("See the setting \"%s\", and the matrix in docs/interop.md.",
					 "zklock.node_style")));
	return true;
}

/* Ask for the data of a child, or read the reply. */
static const ZkReply *
look_at_child(ZkRoundTrip *trip, const Reading *reading, const char *child)
{
	char	   *path = psprintf("%s/%s", reading->path, child);
	const ZkReply *reply = zklock_roundtrip_look(trip, ZK_GET, path);

	pfree(path);
	return reply;
}

/* Fill in an entry from the reply; false if the child has vanished. */
static bool
take_child(const Reading *reading, const ZkReply *reply, const char *child,
		   ZkQueueEntry *entry)
{
	if (reply->result == ZK_NO_NODE)
		return false;
	if (reply->result != ZK_OK && reply->result != ZK_NO_AUTH)
		zklock_session_raise(reply, "read a lock's queue", reading->path);
	entry->node = pstrdup(child);
	entry->parsed = recipe_parse_node(child);
	if (reply->result == ZK_NO_AUTH)
		return true;
	if (zklock_nested_is_lock(child, reply))
		entry->parsed = (RecipeNode) {.style = RECIPE_STYLE_NONE,.permits = 1};
	zklock_nodedata_parse(reply->data, reply->data_length, &entry->who);
	entry->session_id = reply->ephemeral_owner;
	entry->since = zklock_nodedata_date(reply->ctime_ms);
	entry->is_releasing = reply->version > 0 && reply->data_length == 0 &&
		recipe_read_mark(child) == RECIPE_MARK_HAND_OVER;
	entry->czxid = reply->czxid;
	entry->token = entry->who.token != 0 ? entry->who.token :
		reply->czxid;
	if (recipe_read_mark(child) == RECIPE_MARK_LEASE &&
		entry->who.ttl_ms >= 0)
	{
		entry->expires = zklock_nodedata_date(reply->mtime_ms) +
			Min(entry->who.ttl_ms, ZK_TERM_MAX) * 1000;
		entry->who.text = zklock_text_printable(entry->who.note);
	}
	return true;
}

/*
 * The children were sorted by their names.  Those that look like contenders,
 * and are locks below this one, go to the end.
 */
static void
put_nested_last(ZkQueueEntry *entries, int nentries)
{
	ZkQueueEntry *nested = palloc_extended((nentries + 1) * sizeof(*nested),
										   MCXT_ALLOC_HUGE);
	int			nnested = 0;
	int			nleft = 0;

	for (int i = 0; i < nentries; i++)
		if (entries[i].parsed.style == RECIPE_STYLE_NONE)
			nested[nnested++] = entries[i];
		else
			entries[nleft++] = entries[i];
	memcpy(&entries[nleft], nested, nnested * sizeof(*nested));
	pfree(nested);
}

/*
 * Number the contenders and say who holds: the first, all shared ones behind
 * a first that is shared, up to the first exclusive one, and of a semaphore
 * as many as it has permits, as long as all agree on that.  A node that is
 * releasing has handed the lock over, if a writer of zklock's is behind it.
 */
static void
mark_holders(ZkQueueEntry *entries, int nentries)
{
	int			position = 0;
	bool		is_exclusive_ahead = false;
	bool		is_handed_over = false;
	int			permits = 0;

	for (int i = 0; i < nentries; i++)
	{
		ZkQueueEntry *entry = &entries[i];

		if (entry->parsed.style == RECIPE_STYLE_NONE)
			continue;
		entry->position = ++position;
		if (position == 1)
			permits = entry->parsed.permits;
		else if (entry->parsed.permits != permits)
			permits = 1;
		entry->is_holder = position <= permits || position == 1 ||
			(entry->parsed.mode == RECIPE_SHARED && !is_exclusive_ahead) ||
			(is_handed_over && entry->parsed.permits == 1 &&
			 entry->parsed.mode == RECIPE_EXCLUSIVE &&
			 (entry->is_releasing || entry->who.client != NULL));
		is_handed_over = entry->is_releasing && entry->is_holder;
		if (entry->parsed.mode == RECIPE_EXCLUSIVE)
			is_exclusive_ahead = true;
	}
}

static int
compare_children(const void *a, const void *b)
{
	return recipe_compare_nodes(*(const char *const *) a,
								*(const char *const *) b);
}
