/*-------------------------------------------------------------------------
 *
 * lease_roots.c
 *	  Says below which roots the lease worker looks (zklock.lease_roots), and
 *	  wakes it.
 *
 * The worker looks below its own zklock.root, which is that of postgresql.conf,
 * and below those of zklock.lease_roots.  A role, a database or a session may
 * have another zklock.root.  Unless the list has it, the leases there are
 * deleted by contenders of zklock alone, and zk_check() says so.
 *
 * A worker that finds no names of locks (lease_names.c) below its roots sleeps,
 * without a ZooKeeper session.  A backend that has written a name below one of
 * them wakes it.  The backend knows the list, but not the worker's root, if its
 * own was set by ALTER ROLE or SET.  So that root is in shared memory, too.
 *
 *-------------------------------------------------------------------------
 */
#include "lease_roots.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/guc.h"
#include "utils/varlena.h"

#include "compat.h"
#include "name.h"
#include "recipe.h"
#include "session.h"

/* In shared memory: whom to wake, and for what. */
typedef struct Sleeper
{
	LWLock	   *lock;			/* for all that follows */
	Latch	   *worker;			/* NULL: it does not run */
	bool		is_asleep;		/* the next name is to wake it */
	char		root[RECIPE_ROOT_MAX + 1];	/* the worker's zklock.root; "": it
											 * does not run */
} Sleeper;

/*
 * zklock.lease_roots: roots below which the worker looks, besides that of
 * postgresql.conf.  One value for the whole cluster.
 */
static char *roots_setting;

/* It belongs to the server; this is where this process sees it. */
static Sleeper *sleeper;

/* This process is the worker, and takes back its latch when it ends. */
static bool is_worker;

static List *split_roots(char *text);
static bool is_root_listed(const char *root);
static List *add_root(List *paths, const char *root);
static void forget_worker(int code, Datum arg);
static bool check_roots(char **newval, void **extra, GucSource source);

void
zklock_lease_roots_init(void)
{
	DefineCustomStringVariable("zklock.lease_roots",
							   "Roots below which the lease worker looks, besides the root of postgresql.conf.",
							   "A list of values of zklock.root, with commas in between. Double quotes enclose one with a comma or a space.",
							   &roots_setting, "",
							   PGC_SIGHUP, GUC_SUPERUSER_ONLY | GUC_LIST_INPUT,
							   check_roots, NULL, NULL);
}

void
zklock_lease_roots_request_memory(void)
{
	RequestAddinShmemSpace(sizeof(Sleeper));
	RequestNamedLWLockTranche("zklock_lease_roots", 1);
}

void
zklock_lease_roots_make_memory(void)
{
	bool		found;

	sleeper = ShmemInitStruct("zklock lease roots", sizeof(Sleeper), &found);
	if (found)
		return;
	memset(sleeper, 0, sizeof(Sleeper));
	sleeper->lock = &GetNamedLWLockTranche("zklock_lease_roots")->lock;
}

/* ---------------------------------------------------------------------
 * Backends
 * ---------------------------------------------------------------------
 */

void
zklock_lease_roots_wake(void)
{
	const char *root = GetConfigOption("zklock.root", false, false);
	bool		is_in_list = is_root_listed(root);	/* ahead of the lock */

	LWLockAcquire(sleeper->lock, LW_EXCLUSIVE);
	if (sleeper->is_asleep &&
		(is_in_list || strcmp(sleeper->root, root) == 0))
	{
		Assert(sleeper->worker != NULL);	/* it takes back both at its end */
		sleeper->is_asleep = false;
		SetLatch(sleeper->worker);
	}
	LWLockRelease(sleeper->lock);
}

bool
zklock_lease_roots_have_own(void)
{
	const char *root = GetConfigOption("zklock.root", false, false);
	bool		is_in_list = is_root_listed(root);
	bool		is_own;

	LWLockAcquire(sleeper->lock, LW_SHARED);
	is_own = sleeper->worker != NULL &&
		(is_in_list || strcmp(sleeper->root, root) == 0);
	LWLockRelease(sleeper->lock);
	return is_own;
}

/* A waiter asks that for hours, so nothing of it stays in memory. */
static bool
is_root_listed(const char *root)
{
	char	   *text = pstrdup(roots_setting);
	List	   *roots = split_roots(text);
	bool		is_listed = false;

	foreach_ptr(const char, one, roots)
		is_listed |= strcmp(one, root) == 0;
	list_free(roots);
	pfree(text);
	return is_listed;
}

/* ---------------------------------------------------------------------
 * The worker
 * ---------------------------------------------------------------------
 */

List *
zklock_lease_roots(void)
{
	const char *own = GetConfigOption("zklock.root", false, false);
	List	   *paths = NIL;

	if (!is_worker)
		before_shmem_exit(forget_worker, (Datum) 0);
	is_worker = true;
	LWLockAcquire(sleeper->lock, LW_EXCLUSIVE);
	sleeper->worker = MyLatch;
	strlcpy(sleeper->root, own, sizeof(sleeper->root));
	LWLockRelease(sleeper->lock);
	paths = add_root(paths, own);
	foreach_ptr(const char, root, split_roots(pstrdup(roots_setting)))
		paths = add_root(paths, root);
	return paths;
}

/* Add the path of that root, unless it is there, or so long that no lock is. */
static List *
add_root(List *paths, const char *root)
{
	const char *below = strcmp(root, "/") == 0 ? "" : root;
	char	   *path = psprintf("%s%s", zklock_session_chroot(), below);

	if (strlen(path) > RECIPE_ROOT_MAX)
		return paths;
	foreach_ptr(const char, former, paths)
	{
		if (strcmp(former, path) == 0)
			return paths;
	}
	return lappend(paths, path);
}

bool
zklock_lease_roots_sleep(void)
{
	bool		was_asleep;

	LWLockAcquire(sleeper->lock, LW_EXCLUSIVE);
	was_asleep = sleeper->is_asleep;
	sleeper->is_asleep = true;
	LWLockRelease(sleeper->lock);
	return was_asleep;
}

/* It ends. */
static void
forget_worker(int code, Datum arg)
{
	LWLockAcquire(sleeper->lock, LW_EXCLUSIVE);
	sleeper->worker = NULL;
	sleeper->is_asleep = false;
	sleeper->root[0] = '\0';
	LWLockRelease(sleeper->lock);
}

/* ---------------------------------------------------------------------
 * The setting
 * ---------------------------------------------------------------------
 */

/* The names are in that text, which is a value of the setting. */
static List *
split_roots(char *text)
{
	List	   *roots;

	if (!SplitGUCList(text, ',', &roots))
		Assert(false);			/* check_roots() has */
	return roots;
}

static bool
check_roots(char **newval, void **extra, GucSource source)
{
	List	   *roots;

	if (!SplitGUCList(pstrdup(*newval), ',', &roots))
	{
		GUC_check_errdetail("List syntax is invalid.");
		GUC_check_errhint("Example: \"/zklock/prod, /zklock/test\".");
		return false;
	}
	foreach_ptr(const char, root, roots)
	{
		if (zklock_name_check_root(root))
			continue;
		GUC_check_errhint("Correct \"%s\" in the list, or take it out. Example: \"/zklock/prod, /zklock/test\".",
						  root);
		return false;
	}
	return true;
}
