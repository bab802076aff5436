/*-------------------------------------------------------------------------
 *
 * lease_roots.c
 *	  Below which roots the lease worker looks for leases, and when it begins.
 *
 * A cluster in which no session has ever asked for a lease needs no worker
 * with a ZooKeeper session.  So each backend notes its root before it makes a
 * lease: that of postgresql.conf, or what its role, database or session has
 * instead.  The worker looks below these roots and no others.  They stand in
 * shared memory, and in a file of the data directory: a lease outlives a
 * restart of the server.  The file is written before the lease is made.
 *
 * A root without names of locks (lease_names.c) is idle.  When all roots are
 * idle the worker sleeps, without a ZooKeeper session, until a backend has
 * written a name and wakes it.  A look of the worker that began before a
 * backend's note does not show what came after the note.  A look after the
 * wake sees the name.
 *
 * There is room for ROOTS_MAX roots.  A new root takes the place of an idle
 * one if all are taken.  A role that may set zklock.root has no more than
 * ROOTS_PER_ROLE of them, unless it is a superuser, so that some are left for
 * other roles.
 *
 * Leases below roots that have found no room are not looked after: the log says
 * so, once.
 *
 *-------------------------------------------------------------------------
 */
#include "lease_roots.h"

#include <unistd.h>

#include "miscadmin.h"
#include "pgstat.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/guc.h"

#include "board.h"
#include "compat.h"
#include "nodedata.h"
#include "recipe.h"
#include "session.h"
#include "text.h"

/* Room for so many roots, and for so many of one role. */
#define ROOTS_MAX 64
#define ROOTS_PER_ROLE 8

/*
 * The file, and what it is written to at first.  A line for each root: the OID
 * of the role that was the first to note it, a space, and the root.
 */
#define ROOTS_FILE PGSTAT_STAT_PERMANENT_DIRECTORY "/zklock_lease_roots"
#define ROOTS_FILE_NEW ROOTS_FILE ".new"

/* OID, space, root, newline and NUL. */
#define LINE_SIZE (10 + 1 + RECIPE_ROOT_MAX + 2)

/* What the log says once. */
typedef enum Untold
{
	UNTOLD_ROOT,				/* there is no room for a root */
	UNTOLD_FILE					/* it could not be written */
} Untold;
#define NUNTOLD 2

/* What became of a note. */
typedef enum Noting
{
	NOTING_DONE,
	NOTING_NO_ROOM				/* there is no room for the root */
} Noting;

typedef struct Root
{
	Oid			role;			/* that has logged in, and noted it first */
	uint64		noted;			/* when it was noted, or waked for, last: a
								 * value of nnotes */
	bool		is_idle;
	char		root[RECIPE_ROOT_MAX + 1];	/* a value of zklock.root */
} Root;

/* In shared memory. */
typedef struct Roots
{
	LWLock	   *lock;			/* for all that follows */
	Latch	   *worker;			/* NULL: it does not run */
	bool		is_asleep;		/* the next name is to wake it */
	bool		is_said[NUNTOLD];
	bool		is_saved;		/* the file has all roots */
	uint64		nnotes;			/* how often any root was noted, or waked for */
	int			count;
	Root		roots[ROOTS_MAX];
} Roots;

/* It belongs to the server; this is where this process sees it. */
static Roots *shared;

/* This process is the worker, and takes back its latch when it ends. */
static bool is_worker;

static Noting note_root(const char *value, bool is_bounded);
static void report_no_room(const char *value);
static void read_file(void);
static void save_roots(void);
static Root *find_root(const char *root);
static Root *choose_place(bool is_bounded);
static bool say_once(Untold what);
static void forget_worker(int code, Datum arg);

void
zklock_lease_roots_request_memory(void)
{
	RequestAddinShmemSpace(sizeof(Roots));
	RequestNamedLWLockTranche("zklock_lease_roots", 1);
}

void
zklock_lease_roots_make_memory(void)
{
	bool		found;

	shared = ShmemInitStruct("zklock lease roots", sizeof(Roots), &found);
	if (found)
		return;
	memset(shared, 0, sizeof(Roots));
	shared->lock = &GetNamedLWLockTranche("zklock_lease_roots")->lock;
	read_file();
}

/* ---------------------------------------------------------------------
 * Backends
 * ---------------------------------------------------------------------
 */

void
zklock_lease_roots_note(void)
{
	const char *value = GetConfigOption("zklock.root", false, false);

	/* ahead of the lock, under which no catalog is read */
	bool		is_bounded = !superuser_arg(GetSessionUserId());
	Noting		noting;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	noting = note_root(value, is_bounded);
	LWLockRelease(shared->lock);
	switch (noting)
	{
		case NOTING_DONE:
			break;
		case NOTING_NO_ROOM:
			if (say_once(UNTOLD_ROOT))
				report_no_room(value);
			break;
	}
}

/* Under the lock: note that root, in the file if it is new. */
static Noting
note_root(const char *value, bool is_bounded)
{
	Root	   *root;

	root = find_root(value);
	if (root == NULL)
	{
		if (strlen(value) > RECIPE_ROOT_MAX)
			return NOTING_NO_ROOM;
		root = choose_place(is_bounded);
		if (root == NULL)
			return NOTING_NO_ROOM;
		*root = (Root) {.role = GetSessionUserId()};
		strcpy(root->root, value);
		shared->is_saved = false;
	}
	root->noted = ++shared->nnotes;
	root->is_idle = false;
	if (!shared->is_saved)
		save_roots();
	return NOTING_DONE;
}

static void
report_no_room(const char *value)
{
	ereport(LOG,
			(errmsg("the lease worker does not look after leases below znode \"%s\"",
					zklock_text_quotable_own(value)),
			 errdetail("It looks below at most %d roots, and at most %d of one role that is not a superuser.",
					   ROOTS_MAX, ROOTS_PER_ROLE),
			 errhint("Take leases below this \"%s\" also in another cluster that has a lease worker.",
					 "zklock.root")));
}

void
zklock_lease_roots_wake(void)
{
	Root	   *root;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	root = find_root(GetConfigOption("zklock.root", false, false));
	if (root != NULL)
	{
		root->noted = ++shared->nnotes;
		root->is_idle = false;
	}
	if (root != NULL && shared->is_asleep)
	{
		shared->is_asleep = false;
		if (shared->worker != NULL)
			SetLatch(shared->worker);
	}
	LWLockRelease(shared->lock);
}

/* Under the lock.  NULL: it was not noted. */
static Root *
find_root(const char *root)
{
	for (int i = 0; i < shared->count; i++)
		if (strcmp(shared->roots[i].root, root) == 0)
			return &shared->roots[i];
	return NULL;
}

/*
 * Under the lock: where a new root of this role can stand; NULL: nowhere.
 * is_bounded: the role has ROOTS_PER_ROLE at most.
 */
static Root *
choose_place(bool is_bounded)
{
	Oid			role = GetSessionUserId();
	Root	   *idle = NULL;
	Root	   *own_idle = NULL;
	int			nown = 0;

	for (int i = 0; i < shared->count; i++)
	{
		Root	   *root = &shared->roots[i];

		if (root->is_idle)
			idle = root;
		if (root->role != role)
			continue;
		nown++;
		if (root->is_idle)
			own_idle = root;
	}
	if (is_bounded && nown >= ROOTS_PER_ROLE)
		return own_idle;
	if (shared->count < ROOTS_MAX)
		return &shared->roots[shared->count++];
	return idle;
}

/* Is it to be said now, by all of this cluster for the first time? */
static bool
say_once(Untold what)
{
	bool		was_said;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	was_said = shared->is_said[what];
	shared->is_said[what] = true;
	LWLockRelease(shared->lock);
	return !was_said;
}

/* ---------------------------------------------------------------------
 * The file
 * ---------------------------------------------------------------------
 */

/* At the start of the server.  What is no line of ours is left out. */
static void
read_file(void)
{
	FILE	   *file = AllocateFile(ROOTS_FILE, "r");
	char		line[LINE_SIZE + 1];
	bool		is_good = true;

	if (file == NULL)
	{
		if (errno != ENOENT)
			ereport(LOG,
					(errcode_for_file_access(),
					 errmsg("could not read file \"%s\": %m", ROOTS_FILE)));
		return;
	}
	shared->is_saved = true;
	while (fgets(line, sizeof(line), file) != NULL)
	{
		char	   *end;
		Oid			role = strtoul(line, &end, 10);
		char	   *newline = strchr(line, '\n');

		if (newline != NULL)
			*newline = '\0';
		if (newline == NULL || *end != ' ' || !recipe_is_root(end + 1) ||
			shared->count == ROOTS_MAX || find_root(end + 1) != NULL)
		{
			is_good = false;
			continue;
		}
		shared->roots[shared->count].role = role;
		strcpy(shared->roots[shared->count++].root, end + 1);
	}
	if (ferror(file) || !is_good)
		ereport(LOG,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("could not read all of file \"%s\"", ROOTS_FILE),
				 errdetail("The file names the roots below which there may be leases.")));
	if (FreeFile(file) != 0)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not read file \"%s\": %m", ROOTS_FILE)));
}

/* false: it could not be done, as the log says. */
static bool
write_file(void)
{
	FILE	   *file = AllocateFile(ROOTS_FILE_NEW, "w");
	bool		is_written = file != NULL;

	for (int i = 0; i < shared->count && is_written; i++)
		is_written = fprintf(file, "%u %s\n", shared->roots[i].role,
							 shared->roots[i].root) > 0;
	is_written = is_written && fflush(file) == 0 && pg_fsync(fileno(file)) == 0;
	if (!is_written && !shared->is_said[UNTOLD_FILE])
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not write file \"%s\": %m", ROOTS_FILE_NEW)));
	if (file != NULL && FreeFile(file) != 0)
		is_written = false;
	return is_written;
}

/*
 * Under the lock: write the file.  If that fails the lease is taken all the
 * same, and the next one tries again.
 */
static void
save_roots(void)
{
	shared->is_saved = write_file() &&
		durable_rename(ROOTS_FILE_NEW, ROOTS_FILE, LOG) == 0;
	if (!shared->is_saved && !shared->is_said[UNTOLD_FILE])
		ereport(LOG,
				(errmsg("the lease worker may overlook leases after the next restart"),
				 errdetail("File \"%s\" could not be written.", ROOTS_FILE)));
	shared->is_said[UNTOLD_FILE] = !shared->is_saved;
}

/* ---------------------------------------------------------------------
 * The worker
 * ---------------------------------------------------------------------
 */

List *
zklock_lease_roots(void)
{
	const char *chroot = zklock_session_chroot();
	List	   *roots = NIL;
	Root	   *copy = palloc(sizeof(Root) * ROOTS_MAX);
	int			count;

	if (!is_worker)
		before_shmem_exit(forget_worker, (Datum) 0);
	is_worker = true;
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->worker = MyLatch;
	count = shared->count;
	memcpy(copy, shared->roots, count * sizeof(Root));
	LWLockRelease(shared->lock);
	for (int i = 0; i < count; i++)
	{
		ZkLeaseRoot *root = palloc(sizeof(*root));

		root->root = copy[i].root;
		root->path = psprintf("%s%s", chroot,
							  strcmp(root->root, "/") == 0 ? "" : root->root);
		root->noted = copy[i].noted;
		root->is_idle = copy[i].is_idle;
		if (recipe_is_root(root->root) && strlen(root->path) <= RECIPE_ROOT_MAX)
			roots = lappend(roots, root);
		else
			zklock_lease_roots_tell(root, true);	/* nobody can have a lease there */
	}
	return roots;
}

void
zklock_lease_roots_tell(const ZkLeaseRoot *root, bool is_idle)
{
	Root	   *entry;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	entry = find_root(root->root);
	if (entry != NULL && entry->noted == root->noted)
		entry->is_idle = is_idle;
	LWLockRelease(shared->lock);
}

bool
zklock_lease_roots_sleep(void)
{
	bool		is_idle = true;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < shared->count; i++)
		is_idle = is_idle && shared->roots[i].is_idle;
	shared->is_asleep = is_idle;
	LWLockRelease(shared->lock);
	return is_idle;
}

/* It ends. */
static void
forget_worker(int code, Datum arg)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->worker = NULL;
	LWLockRelease(shared->lock);
}
