/*-------------------------------------------------------------------------
 *
 * queue.c
 *	  Views over the ensemble: who stands in the queue of a lock, and all locks
 *	  below a name, with how many hold and wait.
 *
 * Only reads.  For all locks the znodes below the root are walked, depth
 * first.  A znode with contenders is a lock; its other children are walked in
 * turn.  Only names are read, so a lock costs one request, however long its
 * queue; and one more for each child of a lock that may be a contender or a
 * lock below.
 *
 * Requests are the trip's; results are palloc'ed in the caller's context.
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

/* A walk under way. */
typedef struct Walk
{
	const char *name;			/* where to begin, "" for the root */
	int			root_length;	/* of the paths; the names are behind it */
	List	   *left;			/* a stack of paths that are still to be
								 * listed */
	List	   *locks;			/* found so far: ZkLockCount */
	List	   *empty;			/* paths without children, to be read */
	int			nhidden;		/* lists that were denied, or too long */
} Walk;

static bool read_entries(ZkRoundTrip *trip, void *argument);
static bool read_stranger(ZkRoundTrip *trip, Reading *reading);
static const ZkReply *look_at_child(ZkRoundTrip *trip, const Reading *reading,
									const char *child);
static bool take_child(const Reading *reading, const ZkReply *reply,
					   const char *child, ZkQueueEntry *entry);
static void put_nested_last(ZkQueueEntry *entries, int nentries);
static void mark_holders(ZkQueueEntry *entries, int nentries);
static int	compare_children(const void *a, const void *b);
static bool walk_tree(ZkRoundTrip *trip, void *argument);
static char *start_path(Walk *walk);
static bool take_lists(ZkRoundTrip *trip, Walk *walk);
static bool take_empty(ZkRoundTrip *trip, Walk *walk);
static void add_lock(Walk *walk, const char *path, int nholders, int nwaiters);
static bool visit(ZkRoundTrip *trip, Walk *walk, const char *path,
				  const ZkReply *list);
static void add_left(Walk *walk, const char *path, const char *child);
static bool is_root(const Walk *walk, const char *path);
static bool is_name(const Walk *walk, const char *path, const char *child);
static int	compare_locks(const ListCell *a, const ListCell *b);

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

List *
zklock_count_locks(const char *name)
{
	Walk	   *walk = palloc0(sizeof(*walk));

	walk->name = name;

	/* a bad name needs no connection */
	pfree(start_path(walk));
	zklock_roundtrip_run(walk_tree, NULL, walk);
	if (walk->nhidden > 0)
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg_plural("could not list the contenders of %d znode",
							   "could not list the contenders of %d znodes",
							   walk->nhidden, walk->nhidden),
				 errdetail("ZooKeeper denied access, or their names take more than 64 MB. Locks there are not shown.")));
	list_sort(walk->locks, compare_locks);
	return walk->locks;
}

/* false if the session was lost on the way. */
static bool
walk_tree(ZkRoundTrip *trip, void *argument)
{
	Walk	   *walk = argument;

	/* the chroot, and so the path, belongs to the session */
	walk->left = list_make1(start_path(walk));
	walk->locks = NIL;
	walk->empty = NIL;
	walk->nhidden = 0;
	while (walk->left != NIL)
		if (!take_lists(trip, walk) || !take_empty(trip, walk))
			return false;
	return true;
}

/* Path of the znode to begin with, palloc'ed; sets root_length. */
static char *
start_path(Walk *walk)
{
	char	   *path;

	if (walk->name[0] != '\0')
		return zklock_name_path(walk->name, &walk->root_length);

	/* there is no path without a name, but every path begins with the root */
	path = zklock_name_path("any", &walk->root_length);
	strcpy(path + walk->root_length, walk->root_length > 0 ? "" : "/");
	return path;
}

/*
 * List some of the paths that are left, all at once.  false if the session was
 * lost.
 */
static bool
take_lists(ZkRoundTrip *trip, Walk *walk)
{
	char	   *paths[READS_AT_ONCE];
	int			nlists = Min(list_length(walk->left), READS_AT_ONCE);

	CHECK_FOR_INTERRUPTS();

	for (int i = 0; i < nlists; i++)
	{
		paths[i] = llast(walk->left);
		walk->left = list_delete_last(walk->left);
		(void) zklock_roundtrip_look(trip, ZK_LIST, paths[i]);	/* asked for */
	}
	if (!zklock_roundtrip_await_looks(trip))
		return false;
	for (int i = 0; i < nlists; i++)
	{
		const ZkReply *list = zklock_roundtrip_look(trip, ZK_LIST, paths[i]);

		if (list->result == ZK_OK)
		{
			if (!visit(trip, walk, paths[i], list))
				return false;
		}
		else if (list->result == ZK_NO_AUTH || list->result == ZK_NO_MEMORY)
			walk->nhidden++;
		else if (list->result != ZK_NO_NODE)
			zklock_session_raise(list, "read a lock's queue", paths[i]);
		pfree(paths[i]);
	}
	zklock_roundtrip_end_looks(trip);
	return true;
}

/*
 * Read those of the paths without children, all at once: an ephemeral one is
 * another program's lock.  false if the session was lost.
 */
static bool
take_empty(ZkRoundTrip *trip, Walk *walk)
{
	foreach_ptr(char, path, walk->empty)
		(void) zklock_roundtrip_look(trip, ZK_GET, path);	/* asked for */
	if (!zklock_roundtrip_await_looks(trip))
		return false;
	foreach_ptr(char, path, walk->empty)
	{
		const ZkReply *reply = zklock_roundtrip_look(trip, ZK_GET, path);

		if (reply->result == ZK_OK && reply->ephemeral_owner != 0)
			add_lock(walk, path, 1, 0);
	}
	zklock_roundtrip_end_looks(trip);
	list_free_deep(walk->empty);
	walk->empty = NIL;
	return true;
}

static void
add_lock(Walk *walk, const char *path, int nholders, int nwaiters)
{
	ZkLockCount *lock = palloc0(sizeof(*lock));

	lock->name = pstrdup(path + walk->root_length + 1);
	lock->nholders = nholders;
	lock->nwaiters = nwaiters;
	walk->locks = lappend(walk->locks, lock);
}

/*
 * Count the contenders among the children, and note the others.  false if the
 * session was lost.
 */
static bool
visit(ZkRoundTrip *trip, Walk *walk, const char *path, const ZkReply *list)
{
	ZkChildren	children = {.names = list->children,.count = list->nchildren};
	int			ncontenders;
	int			nholders = 0;
	ZkQueueEntry *entries;

	if (list->nchildren == 0 && !is_root(walk, path))
		walk->empty = lappend(walk->empty, pstrdup(path));

	/* the root is no lock */
	if (!is_root(walk, path) &&
		!zklock_nested_leave_out(trip, path, list, zklock_nested_all(),
								 NULL, &children))
		return false;
	entries = zklock_order_queue(children.names, children.count, &ncontenders);
	if (ncontenders > 0 && !is_root(walk, path))
	{
		for (int i = 0; i < ncontenders; i++)
			nholders += entries[i].is_holder;
		add_lock(walk, path, nholders, ncontenders - nholders);
	}
	pfree(entries);
	for (int i = 0; i < children.count; i++)
		if (is_name(walk, path, children.names[i]))
			add_left(walk, path, children.names[i]);
	foreach_ptr(const char, child, children.locks)
		add_left(walk, path, child);
	zklock_nested_free(&children);
	return true;
}

/* Have a znode listed. */
static void
add_left(Walk *walk, const char *path, const char *child)
{
	walk->left = lappend(walk->left,
						 psprintf("%s/%s", strcmp(path, "/") == 0 ? "" : path,
								  child));
}

static bool
is_root(const Walk *walk, const char *path)
{
	return path[walk->root_length] == '\0' ||
		path[walk->root_length + 1] == '\0';
}

/*
 * Is this child part of lock names?  Contenders are not, but in the root there
 * are none; nor are the records of zk_run_once(), nor what is ZooKeeper's own.
 */
static bool
is_name(const Walk *walk, const char *path, const char *child)
{
	return (is_root(walk, path) ||
			recipe_parse_node(child).style == RECIPE_STYLE_NONE) &&
		!zklock_name_is_reserved(child) &&
		!(strcmp(path, "/") == 0 && strcmp(child, "zookeeper") == 0);
}

static int
compare_locks(const ListCell *a, const ListCell *b)
{
	return strcmp(((const ZkLockCount *) lfirst(a))->name,
				  ((const ZkLockCount *) lfirst(b))->name);
}
