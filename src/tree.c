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

/* A list that is under way. */
typedef struct Asked
{
	char	   *path;
	ZkRequest  *request;
} Asked;

/* A walk under way. */
typedef struct Walk
{
	const char *name;			/* where to begin, "" for the root */
	int			root_length;	/* of the paths; the names are behind it */

	Asked		asked[LISTS_AT_ONCE];	/* a ring; from first on, nasked are
										 * valid */
	int			first;
	int			nasked;

	char	  **left;			/* a stack of paths that are still to be
								 * listed */
	int			nleft;
	int			left_size;

	ZkLockCount *locks;			/* found so far */
	int			nlocks;
	int			locks_size;
	int			ndenied;		/* lists that ZooKeeper denied */
} Walk;

static bool walk_tree(ZkRoundTrip *trip, void *argument);
static char *start_path(Walk *walk);
static void begin_walk(Walk *walk);
static void end_walk(void *argument);
static void ask_more(Walk *walk);
static bool take_list(const ZkRoundTrip *trip, Walk *walk);
static void visit(Walk *walk, const char *path, const ZkReply *list);
static void add_lock(Walk *walk, const char *path, int nholders,
					 int nwaiters);
static void leave_for_later(Walk *walk, const char *path, const char *child);
static bool is_root(const Walk *walk, const char *path);
static bool is_name(const Walk *walk, const char *path, const char *child);
static int	compare_locks(const void *a, const void *b);

ZkLockCount *
zklock_count_locks(const char *name, int *nlocks)
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
	qsort(walk->locks, walk->nlocks, sizeof(*walk->locks), compare_locks);
	*nlocks = walk->nlocks;
	return walk->locks;
}

/* false if the session was lost on the way. */
static bool
walk_tree(ZkRoundTrip *trip, void *argument)
{
	Walk	   *walk = argument;

	begin_walk(walk);
	for (ask_more(walk); walk->nasked > 0; ask_more(walk))
	{
		CHECK_FOR_INTERRUPTS();
		if (!take_list(trip, walk))
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

/* With nothing found; the chroot, and so the path, belongs to the session. */
static void
begin_walk(Walk *walk)
{
	walk->nlocks = 0;
	walk->ndenied = 0;
	walk->first = 0;
	walk->nleft = 0;
	leave_for_later(walk, start_path(walk), NULL);
}

/* Free the requests. */
static void
end_walk(void *argument)
{
	Walk	   *walk = argument;

	for (; walk->nasked > 0; walk->nasked--)
	{
		zklock_client_free(walk->asked[walk->first].request);
		walk->first = (walk->first + 1) % LISTS_AT_ONCE;
	}
}

/* Ask for lists, the youngest first, until there are enough under way. */
static void
ask_more(Walk *walk)
{
	while (walk->nleft > 0 && walk->nasked < LISTS_AT_ONCE)
	{
		Asked	   *asked = &walk->asked[(walk->first +
										  walk->nasked) % LISTS_AT_ONCE];

		asked->path = walk->left[--walk->nleft];
		asked->request = zklock_client_list(zklock_session_client(),
											asked->path);
		walk->nasked++;
	}
}

/* Await the oldest list.  false if the session was lost. */
static bool
take_list(const ZkRoundTrip *trip, Walk *walk)
{
	Asked	   *asked = &walk->asked[walk->first];
	const ZkReply *list = zklock_roundtrip_await(trip, asked->request);

	switch (list->result)
	{
		case ZK_OK:
			visit(walk, asked->path, list);
			break;
		case ZK_NO_NODE:
			break;
		case ZK_NO_AUTH:
			walk->ndenied++;
			break;
		case ZK_UNKNOWN_OUTCOME:
			leave_for_later(walk, asked->path, NULL);
			break;
		case ZK_SESSION_LOST:
			return false;
		default:
			zklock_session_raise(list, "read a lock's queue", asked->path);
	}
	zklock_client_free(asked->request);
	pfree(asked->path);
	walk->first = (walk->first + 1) % LISTS_AT_ONCE;
	walk->nasked--;
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
			leave_for_later(walk, path, list->children[i]);
}

/* The root itself has no name, whatever stands in it. */
static void
add_lock(Walk *walk, const char *path, int nholders, int nwaiters)
{
	if (is_root(walk, path))
		return;
	if (walk->nlocks == walk->locks_size)
	{
		walk->locks_size = Max(64, 2 * walk->locks_size);
		walk->locks = walk->locks == NULL ?
			palloc(walk->locks_size * sizeof(*walk->locks)) :
			repalloc_huge(walk->locks, walk->locks_size * sizeof(*walk->locks));
	}
	walk->locks[walk->nlocks].name = pstrdup(path + walk->root_length + 1);
	walk->locks[walk->nlocks].nholders = nholders;
	walk->locks[walk->nlocks].nwaiters = nwaiters;
	walk->nlocks++;
}

/* List the child of that path later, or with NULL the path itself. */
static void
leave_for_later(Walk *walk, const char *path, const char *child)
{
	if (walk->nleft == walk->left_size)
	{
		walk->left_size = Max(64, 2 * walk->left_size);
		walk->left = walk->left == NULL ?
			palloc(walk->left_size * sizeof(*walk->left)) :
			repalloc_huge(walk->left, walk->left_size * sizeof(*walk->left));
	}
	walk->left[walk->nleft++] = child == NULL ? pstrdup(path) :
		psprintf("%s/%s", strcmp(path, "/") == 0 ? "" : path, child);
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
compare_locks(const void *a, const void *b)
{
	return strcmp(((const ZkLockCount *) a)->name,
				  ((const ZkLockCount *) b)->name);
}
