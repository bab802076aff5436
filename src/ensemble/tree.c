/*-------------------------------------------------------------------------
 *
 * tree.c
 *	  Lists all locks below a name, with the numbers of holders and waiters.
 *
 * Only reads.  The znodes below the root are walked, depth first.  A znode with
 * contenders is a lock; its other children are walked in turn.  Only names are
 * read, so a lock costs one request, however long its queue; and one more for
 * each child of a lock that may be a contender or a lock below.
 *
 * Requests are the trip's; results are palloc'ed in the caller's context.
 *
 *-------------------------------------------------------------------------
 */
#include "queue_list.h"

#include "miscadmin.h"

#include "compat.h"
#include "name.h"
#include "nested.h"
#include "recipe.h"
#include "roundtrip.h"
#include "session.h"

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

static ZkOutcome walk_tree(ZkRoundTrip *trip, void *argument);
static char *start_path(Walk *walk);
static ZkOutcome take_lists(ZkRoundTrip *trip, Walk *walk);
static ZkOutcome take_empty(ZkRoundTrip *trip, Walk *walk);
static void add_lock(Walk *walk, const char *path, int nholders, int nwaiters);
static void add_left(Walk *walk, const char *path, const char *child);
static bool is_root(const Walk *walk, const char *path);
static bool is_name(const Walk *walk, const char *path, const char *child);
static int  compare_locks(const ListCell *a, const ListCell *b);

List *
zklock_count_locks(const char *name)
{
	Walk	   *walk = palloc0(sizeof(*walk));

	walk->name = name;

	/* a bad name needs no connection */
	pfree(start_path(walk));
	zklock_roundtrip_must_run(NULL, walk_tree, NULL, walk);
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

static ZkOutcome
walk_tree(ZkRoundTrip *trip, void *argument)
{
	Walk	   *walk = argument;
	ZkOutcome	outcome = ZK_ANSWERED;

	walk->left = list_make1(start_path(walk));
	walk->locks = NIL;
	walk->empty = NIL;
	walk->nhidden = 0;
	while (walk->left != NIL && outcome == ZK_ANSWERED)
	{
		outcome = take_lists(trip, walk);
		if (outcome == ZK_ANSWERED)
			outcome = take_empty(trip, walk);
	}
	return outcome;
}

/* Path of the znode to begin with, palloc'ed; sets root_length. */
static char *
start_path(Walk *walk)
{
	char	   *root = zklock_name_root_path();

	walk->root_length = strlen(root);
	if (walk->name[0] != '\0')
		return unconstify(char *, zklock_name_make(walk->name).path);
	return root[0] != '\0' ? root : pstrdup("/");
}

/* Count the contenders among the children, and note the others. */
static ZkOutcome
visit_znode(ZkRoundTrip *trip, Walk *walk, const char *path,
			const ZkReply *list)
{
	ZkChildren	children = {.names = list->children,.count = list->nchildren};
	int			ncontenders;
	int			nholders = 0;
	ZkQueueEntry *entries;
	ZkOutcome	outcome = ZK_ANSWERED;

	if (list->nchildren == 0 && !is_root(walk, path))
		walk->empty = lappend(walk->empty, pstrdup(path));

	/* the root is no lock */
	if (!is_root(walk, path))
		outcome = zklock_nested_leave_out(trip, path, list, zklock_nested_all(),
										  NULL, &children);
	if (outcome != ZK_ANSWERED)
		return outcome;
	entries = zklock_queue_in_order(children.names, children.count, &ncontenders);
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
	return ZK_ANSWERED;
}

/* List some of the paths that are left, all at once. */
static ZkOutcome
take_lists(ZkRoundTrip *trip, Walk *walk)
{
	char	   *paths[ZK_READS_AT_ONCE];
	const ZkReply *lists[ZK_READS_AT_ONCE];
	int			nlists = Min(list_length(walk->left), ZK_READS_AT_ONCE);
	ZkOutcome	outcome;

	for (int i = 0; i < nlists; i++)
	{
		paths[i] = llast(walk->left);
		walk->left = list_delete_last(walk->left);
	}
	outcome = zklock_roundtrip_read_all(trip, ZK_LIST, paths, nlists, lists);
	if (outcome != ZK_ANSWERED)
		return outcome;
	for (int i = 0; i < nlists && outcome == ZK_ANSWERED; i++)
	{
		ZkResult	result = lists[i]->result;

		if (result == ZK_OK)
			outcome = visit_znode(trip, walk, paths[i], lists[i]);
		else if (result == ZK_NO_AUTH || result == ZK_NO_MEMORY)
			walk->nhidden++;
		else if (result != ZK_NO_NODE)
			zklock_session_raise(lists[i], "read a lock's queue", paths[i]);
		pfree(paths[i]);
	}
	zklock_roundtrip_end_reads(trip, nlists);
	return outcome;
}

/*
 * Read those of the paths without children, all at once: an ephemeral one is
 * another program's lock.
 */
static ZkOutcome
take_empty(ZkRoundTrip *trip, Walk *walk)
{
	char	   *paths[ZK_READS_AT_ONCE];
	const ZkReply *replies[ZK_READS_AT_ONCE];
	int			nempty = 0;
	ZkOutcome	outcome;

	/* no more than were listed */
	Assert(list_length(walk->empty) <= ZK_READS_AT_ONCE);
	foreach_ptr(char, path, walk->empty)
		paths[nempty++] = path;
	outcome = zklock_roundtrip_read_all(trip, ZK_GET, paths, nempty, replies);
	if (outcome != ZK_ANSWERED)
		return outcome;
	for (int i = 0; i < nempty; i++)
		if (replies[i]->result == ZK_OK && replies[i]->ephemeral_owner != 0)
			add_lock(walk, paths[i], 1, 0);
	zklock_roundtrip_end_reads(trip, nempty);
	list_free_deep(walk->empty);
	walk->empty = NIL;
	return ZK_ANSWERED;
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
