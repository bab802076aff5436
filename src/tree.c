/*-------------------------------------------------------------------------
 *
 * tree.c
 *	  All locks that somebody holds or waits for, with how many do.
 *
 * Walks the znodes below the root, depth first, and lists the children of
 * each: contenders make a lock of it, all others are names to go on with.
 * Nothing but the children's names is read, so a lock costs one request,
 * however long its queue.  A bounded number of requests is under way at a
 * time.
 *
 * Requests are malloc'ed memory of client_request.c, freed by end_walk().
 * All other memory is in the caller's context, where a path goes as soon as
 * it is done.
 *
 *-------------------------------------------------------------------------
 */
#include "tree.h"

#include "miscadmin.h"

#include "name.h"
#include "queue.h"
#include "recipe.h"
#include "roundtrip.h"
#include "session.h"

/* How many lists are under way at once; as in queue.c. */
#define LISTS_AT_ONCE 64

/* A walk under way. */
typedef struct Walk
{
	const char *name;			/* where to begin, "" for the root */
	int			root_length;	/* of the paths; the names are behind it */
	List	   *left;			/* a stack of paths that are still to be
								 * listed */
	ZkRequest  *lists[LISTS_AT_ONCE];	/* of some of them; NULL: answered */
	List	   *locks;			/* found so far: ZkLockCount */
	int			ndenied;		/* lists that ZooKeeper denied */
} Walk;

static bool walk_tree(ZkRoundTrip *trip, void *argument);
static char *start_path(Walk *walk);
static void end_walk(void *argument);
static bool take_lists(const ZkRoundTrip *trip, Walk *walk);
static void visit(Walk *walk, const char *path, const ZkReply *list);
static void add_lock(Walk *walk, const char *path, int nholders,
					 int nwaiters);
static bool is_root(const Walk *walk, const char *path);
static bool is_name(const Walk *walk, const char *path, const char *child);
static int	compare_locks(const ListCell *a, const ListCell *b);

List *
zklock_count_locks(const char *name)
{
	Walk	   *walk = palloc0(sizeof(*walk));

	walk->name = name;

	/* a bad name needs no connection */
	pfree(start_path(walk));
	zklock_roundtrip_run(walk_tree, end_walk, walk);
	if (walk->ndenied > 0)
		ereport(WARNING,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg_plural("could not list the contenders of %d znode",
							   "could not list the contenders of %d znodes",
							   walk->ndenied, walk->ndenied),
				 errdetail("ZooKeeper denied access. Locks there are not shown.")));
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
	walk->ndenied = 0;
	while (walk->left != NIL)
	{
		if (!take_lists(trip, walk))
			return false;
	}
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

/* Free the requests. */
static void
end_walk(void *argument)
{
	Walk	   *walk = argument;

	for (int i = 0; i < LISTS_AT_ONCE; i++)
	{
		zklock_client_free(walk->lists[i]);
		walk->lists[i] = NULL;
	}
}

/*
 * List some of the paths that are left, all at once.  false if the session was
 * lost.
 */
static bool
take_lists(const ZkRoundTrip *trip, Walk *walk)
{
	char	   *paths[LISTS_AT_ONCE];
	int			nlists = Min(list_length(walk->left), LISTS_AT_ONCE);

	for (int i = 0; i < nlists; i++)
	{
		paths[i] = llast(walk->left);
		walk->left = list_delete_last(walk->left);
		walk->lists[i] = zklock_client_list(zklock_session_client(), paths[i]);
	}
	for (int i = 0; i < nlists; i++)
	{
		const ZkReply *list = zklock_roundtrip_await(trip, walk->lists[i]);

		CHECK_FOR_INTERRUPTS();
		switch (list->result)
		{
			case ZK_OK:
				visit(walk, paths[i], list);
				break;
			case ZK_NO_NODE:
				break;
			case ZK_NO_AUTH:
				walk->ndenied++;
				break;
			case ZK_UNKNOWN_OUTCOME:
				walk->left = lappend(walk->left, pstrdup(paths[i]));
				break;
			case ZK_SESSION_LOST:
				return false;
			default:
				zklock_session_raise(list, "read a lock's queue", paths[i]);
		}
		pfree(paths[i]);
	}
	end_walk(walk);
	return true;
}

/* Count the contenders among the children, and note the others. */
static void
visit(Walk *walk, const char *path, const ZkReply *list)
{
	int			ncontenders;
	ZkQueueEntry *entries = zklock_order_queue(list->children, list->nchildren,
											   &ncontenders);
	int			nholders = 0;
	int			nwaiters = 0;

	for (int i = 0; i < ncontenders; i++)
	{
		if (entries[i].is_holder)
			nholders++;
		else
			nwaiters++;
	}
	if (ncontenders > 0)
		add_lock(walk, path, nholders, nwaiters);
	pfree(entries);
	for (int i = 0; i < list->nchildren; i++)
		if (is_name(walk, path, list->children[i]))
			walk->left = lappend(walk->left,
								 psprintf("%s/%s", strcmp(path, "/") == 0 ? "" :
										  path, list->children[i]));
}

/* The root itself has no name, whatever stands in it. */
static void
add_lock(Walk *walk, const char *path, int nholders, int nwaiters)
{
	ZkLockCount *lock;

	if (is_root(walk, path))
		return;
	lock = palloc(sizeof(*lock));
	lock->name = pstrdup(path + walk->root_length + 1);
	lock->nholders = nholders;
	lock->nwaiters = nwaiters;
	walk->locks = lappend(walk->locks, lock);
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
