/*-------------------------------------------------------------------------
 *
 * queue_list.c
 *	  Reads the queue of a lock for views, and tells by names alone which
 *	  contenders hold it.
 *
 * Only reads.  Requests are the trip's; results are palloc'ed in the caller's
 * context.
 *
 *-------------------------------------------------------------------------
 */
#include "queue_list.h"

#include "miscadmin.h"

#include "ephemeral.h"
#include "expiry.h"
#include "nested.h"
#include "recipe.h"
#include "roundtrip.h"
#include "session.h"
#include "text.h"

/* What is read of a queue. */
typedef enum ReadPart
{
	READ_ALL,
	READ_NEWEST,				/* all of a list that is not older than the
								 * call */
	READ_FIRST					/* the first contender of such a list */
} ReadPart;

/* What has no root_length: anything but the queue of a lock. */
#define NOT_A_QUEUE (-1)

/* A queue that is being read. */
typedef struct Reading
{
	const char *path;			/* of the znode */
	int			root_length;	/* of that; NOT_A_QUEUE: no lock's queue is there */
	ReadPart	part;
	ZkQueueEntry *entries;		/* the result */
	int			nentries;
} Reading;

static ZkOutcome read_entries(ZkRoundTrip *trip, void *argument);
static ZkOutcome read_once(ZkRoundTrip *trip, Reading *reading, bool *is_over);
static ZkOutcome read_stranger(ZkRoundTrip *trip, Reading *reading);
static ZkOutcome read_children(ZkRoundTrip *trip, Reading *reading,
							   const char *const *children, int nchildren);
static ZkOutcome read_first_contender(ZkRoundTrip *trip, Reading *reading,
									  const char *const *children, int nchildren,
									  bool *is_over);
static ZkOutcome read_some(ZkRoundTrip *trip, Reading *reading,
						   const char *const *children, int count);
static void warn_of_styles(const Reading *reading);
static bool take_child(const Reading *reading, const ZkReply *reply,
					   const char *child, ZkQueueEntry *entry);
static void put_nested_last(ZkQueueEntry *entries, int nentries);
static void mark_holders(ZkQueueEntry *entries, int nentries);
static int	compare_children(const void *a, const void *b);

ZkQueueEntry *
zklock_read_queue(const ZkBounds *bounds, const ZkName *name, bool is_newest,
				  int *nentries)
{
	Reading		reading = {
		.path = name->path,
		.root_length = name->root_length,
		.part = is_newest ? READ_NEWEST : READ_ALL
	};

	zklock_roundtrip_must_run(bounds, read_entries, NULL, &reading);
	*nentries = reading.nentries;
	return reading.entries;
}

ZkQueueEntry *
zklock_read_below(const char *path, int *nentries)
{
	Reading		reading = {
		.path = path,.root_length = NOT_A_QUEUE,.part = READ_ALL
	};

	zklock_roundtrip_must_run(NULL, read_entries, NULL, &reading);
	*nentries = reading.nentries;
	return reading.entries;
}

ZkQueueEntry *
zklock_queue_in_order(const char *const *children, int nchildren,
					  int *nentries)
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
zklock_read_first(const ZkName *name)
{
	Reading		reading = {
		.path = name->path,
		.root_length = name->root_length,
		.part = READ_FIRST
	};

	zklock_roundtrip_must_run(NULL, read_entries, NULL, &reading);
	if (reading.nentries == 0 || reading.entries->position == 0)
		return NULL;
	return reading.entries;
}

static ZkOutcome
read_entries(ZkRoundTrip *trip, void *argument)
{
	Reading    *reading = argument;
	bool		is_over = false;
	ZkOutcome	outcome = ZK_ANSWERED;

	while (!is_over && outcome == ZK_ANSWERED)
		outcome = read_once(trip, reading, &is_over);
	return outcome;
}

/*
 * List the children, and read the data of each, or of the first contender.
 * *is_over: false if that one has gone meanwhile.
 */
static ZkOutcome
read_once(ZkRoundTrip *trip, Reading *reading, bool *is_over)
{
	const ZkReply *list;
	const char **children;
	ZkOutcome	outcome;

	*is_over = true;
	reading->nentries = 0;
	if (reading->part == READ_ALL)
		outcome = zklock_roundtrip_read(trip, ZK_LIST, reading->path, &list);
	else
		outcome = zklock_roundtrip_read_newest(trip, ZK_LIST, reading->path,
											   &list);
	if (outcome != ZK_ANSWERED)
		return outcome;
	if (list->result == ZK_NO_NODE ||
		(list->result == ZK_OK && list->nchildren == 0))
		return read_stranger(trip, reading);
	if (list->result != ZK_OK)
		zklock_session_raise(list, "read a lock's queue", reading->path);

	reading->entries = palloc_extended((list->nchildren + 1) *
									   sizeof(*reading->entries),
									   MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	children = palloc((list->nchildren + 1) * sizeof(*children));
	memcpy(children, list->children, list->nchildren * sizeof(*children));
	qsort(children, list->nchildren, sizeof(*children), compare_children);
	if (reading->part == READ_FIRST)
		outcome = read_first_contender(trip, reading, children,
									   list->nchildren, is_over);
	else
		outcome = read_children(trip, reading, children, list->nchildren);
	put_nested_last(reading->entries, reading->nentries);
	mark_holders(reading->entries, reading->nentries);
	if (outcome == ZK_ANSWERED && reading->part != READ_FIRST)
		warn_of_styles(reading);
	return outcome;
}

/* Read all children, many at a time. */
static ZkOutcome
read_children(ZkRoundTrip *trip, Reading *reading, const char *const *children,
			  int nchildren)
{
	ZkOutcome	outcome = ZK_ANSWERED;

	for (int first = 0; first < nchildren && outcome == ZK_ANSWERED;
		 first += ZK_READS_AT_ONCE)
		outcome = read_some(trip, reading, children + first,
							Min(ZK_READS_AT_ONCE, nchildren - first));
	return outcome;
}

/*
 * Read the children in order, until one is a contender, and no lock below.
 * *is_over: false if one has gone meanwhile.
 */
static ZkOutcome
read_first_contender(ZkRoundTrip *trip, Reading *reading, const char *const *children,
					 int nchildren, bool *is_over)
{
	for (int i = 0; i < nchildren; i++)
	{
		ZkOutcome	outcome;

		reading->nentries = 0;
		*reading->entries = (ZkQueueEntry) {0};
		outcome = read_some(trip, reading, children + i, 1);
		if (outcome != ZK_ANSWERED)
			return outcome;
		if (reading->nentries == 0)
		{
			zklock_roundtrip_note_doubt(trip, psprintf("%s/%s", reading->path,
													   children[i]),
										ZK_LISTED_ONLY);
			*is_over = false;
			return ZK_ANSWERED;
		}
		if (reading->entries->parsed.style != RECIPE_STYLE_NONE)
			return ZK_ANSWERED;
	}
	reading->nentries = 0;
	return ZK_ANSWERED;
}

/* Read these, at once, and add an entry for each that is still there. */
static ZkOutcome
read_some(ZkRoundTrip *trip, Reading *reading, const char *const *children,
		  int count)
{
	char	   *paths[ZK_READS_AT_ONCE];
	const ZkReply *replies[ZK_READS_AT_ONCE];
	ZkOutcome	outcome;

	Assert(count <= ZK_READS_AT_ONCE);
	for (int i = 0; i < count; i++)
		paths[i] = psprintf("%s/%s", reading->path, children[i]);
	outcome = zklock_roundtrip_read_all(trip, ZK_GET, paths, count, replies);
	for (int i = 0; i < count; i++)
	{
		if (outcome == ZK_ANSWERED &&
			take_child(reading, replies[i], children[i],
					   &reading->entries[reading->nentries]))
			reading->nentries++;
		pfree(paths[i]);
	}
	if (outcome == ZK_ANSWERED)
		zklock_roundtrip_end_reads(trip, count);
	return outcome;
}

/* One WARNING will do. */
static void
warn_of_styles(const Reading *reading)
{
	for (int i = 0; i < reading->nentries; i++)
	{
		const ZkQueueEntry *entry = &reading->entries[i];

		if (zklock_warn_of_style(entry->parsed.style, &entry->who,
								 zklock_name_style()))
			return;
	}
}

/*
 * There is no queue.  If another program has an ephemeral znode where it would
 * be, or above, that is the only entry, and the holder: nobody else can have
 * the lock.  Only the former one has a token, by which it can be removed.  It
 * is no contender, so a call that reads the first contender gets none.
 */
static ZkOutcome
read_stranger(ZkRoundTrip *trip, Reading *reading)
{
	const ZkReply *reply;
	char	   *found;
	ZkQueueEntry *entry;
	ZkOutcome	outcome;

	if (reading->root_length == NOT_A_QUEUE || reading->part == READ_FIRST)
		return ZK_ANSWERED;
	outcome = zklock_ephemeral_find(trip, reading->path, reading->root_length,
									&reply, &found);
	if (outcome != ZK_ANSWERED || reply == NULL)
		return outcome;
	entry = palloc0(sizeof(*entry));
	reading->entries = entry;
	reading->nentries = take_child(reading, reply, found, entry) ? 1 : 0;
	entry->position = 1;
	entry->is_holder = true;
	entry->is_stranger = true;
	entry->is_releasing = false;
	entry->expires = 0;
	entry->parsed = (RecipeNode) {
		.style = RECIPE_STYLE_NONE,.mode = RECIPE_EXCLUSIVE,.permits = 1
	};
	if (strcmp(found, reading->path) != 0)
		entry->token = 0;
	return ZK_ANSWERED;
}

bool
zklock_warn_of_style(RecipeStyle theirs, const ZkNodeData *who,
					 RecipeStyle ours)
{
	if (recipe_waits_for(theirs, ours) || who->client != NULL)
		return false;
	ereport(WARNING,
			(errcode(ERRCODE_WARNING),
			 errmsg("a contender of style \"%s\" may ignore the queue nodes of this session",
					recipe_style_name(theirs)),
			 errhint("Set \"%s\" to the style that this client understands: docs/interop.md has a table.",
					 "zklock.node_style")));
	return true;
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
	if (recipe_read_mark(child) != RECIPE_MARK_LEASE)
		return true;
	entry->token = recipe_read_token(child);
	if (entry->who.term_ms >= 0)
	{
		entry->expires = zklock_nodedata_date(reply->mtime_ms) +
			Min(entry->who.term_ms, ZK_TERM_MAX) * 1000;
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
 * Number the contenders and say who holds, by the recipe.  A node that is
 * releasing has handed the lock over besides, if a writer of zklock's is behind
 * it.
 */
static void
mark_holders(ZkQueueEntry *entries, int nentries)
{
	RecipeAhead ahead = {0};
	bool		is_handed_over = false;

	for (int i = 0; i < nentries; i++)
	{
		ZkQueueEntry *entry = &entries[i];
		const RecipeNode *node = &entry->parsed;

		if (node->style == RECIPE_STYLE_NONE)
			continue;
		entry->position = ahead.count + 1;
		entry->is_holder = recipe_holds(node->mode, node->permits, &ahead) ||
			(is_handed_over && node->permits == 1 &&
			 node->mode == RECIPE_EXCLUSIVE &&
			 (entry->is_releasing || entry->who.client != NULL));
		is_handed_over = entry->is_releasing && entry->is_holder;
		recipe_add_ahead(&ahead, node);
	}
}

static int
compare_children(const void *a, const void *b)
{
	return recipe_compare_nodes(*(const char *const *) a,
								*(const char *const *) b);
}
