/*-------------------------------------------------------------------------
 *
 * lock_table.c
 *	  The table of locks: of each lock the counts by mode and scope, and the
 *	  one place.
 *
 * One entry per lock: how often it is taken in each mode and scope, and the
 * one place in its queue that all of them stand on.  The place lives as long
 * as a count does, and longer in a transaction that has written: to its end.  The table and what hangs on it live in a context of their
 * own until the backend exits.
 *
 * The one rule: between a grant and its count nothing may raise.  So the
 * entry, with its place, and the transaction count are allocated before the
 * queue is joined; an entry without counts is as good as none and is swept
 * away later, unless its place is kept (keep.c).
 *
 * Nothing here takes a lock or lets go of one: lock.c does.
 *
 *-------------------------------------------------------------------------
 */
#include "lock_table.h"

#include <limits.h>

#include "access/xact.h"
#include "utils/memutils.h"

#include "keep.h"

/* The table, and sums over the locks in it that are held. */
static struct
{
	HTAB	   *entries;		/* NULL until the first lock */
	MemoryContext memory;		/* likewise */
	int			nheld;
	int			nending;		/* counts of call and of transaction scope, and
								 * locks that stay to the end of the transaction */
	Size		held_bytes;		/* of the paths of their queue nodes */
}			Table;

static void make_table(void);
static bool is_placed(const Lock *lock) pg_attribute_unused();
static void drop_xact_counts(XactCount **list);
static void post_lock(Lock *lock);

/* ---------------------------------------------------------------------
 * What is held
 * ---------------------------------------------------------------------
 */

bool
zklock_has_locks(void)
{
	return Table.nheld > 0;
}

bool
zklock_has_xact_locks(void)
{
	HASH_SEQ_STATUS scan;
	Lock	   *lock;
	bool		found = false;

	if (Table.nending == 0)
		return false;
	foreach_lock(scan, lock)
		foreach_mode(mode)
		found |= lock->taken[mode].counts[ZK_SCOPE_CALL] > 0 ||
			lock->taken[mode].counts[ZK_SCOPE_TRANSACTION] > 0 ||
			zklock_lock_is_leaving(lock);
	return found;
}

int
zklock_lock_count_held(void)
{
	return Table.nheld;
}

int
zklock_lock_count_leaving(void)
{
	HASH_SEQ_STATUS scan;
	Lock	   *lock;
	int			count = 0;

	if (Table.nending == 0)
		return 0;
	foreach_lock(scan, lock)
		count += zklock_lock_is_leaving(lock);
	return count;
}

Size
zklock_lock_held_bytes(void)
{
	return Table.held_bytes;
}

bool
zklock_lock_has_ending(void)
{
	return Table.nending > 0 ||
		zklock_lock_count_entries() != Table.nheld + zklock_place_count_kept();
}

bool
zklock_lock_has_unkept(void)
{
	return zklock_lock_count_entries() > zklock_place_count_kept();
}

bool
zklock_lock_is_taken(const Lock *lock)
{
	return zklock_board_is_taken(&lock->taken[RECIPE_EXCLUSIVE]) ||
		zklock_board_is_taken(&lock->taken[RECIPE_SHARED]);
}

bool
zklock_lock_is_leaving(const Lock *lock)
{
	return lock->stays_to_end && !zklock_lock_is_taken(lock);
}

bool
zklock_lock_is_held(const Lock *lock)
{
	return lock->stays_to_end || zklock_lock_is_taken(lock);
}

bool
zklock_lock_is_shown(const Lock *lock, RecipeMode mode)
{
	return zklock_board_is_taken(&lock->taken[mode]) ||
		(zklock_lock_is_held(lock) && lock->place.mode == mode);
}

bool
zklock_lock_is_of_session(const Lock *lock)
{
	return lock->taken[RECIPE_EXCLUSIVE].counts[ZK_SCOPE_SESSION] > 0 ||
		lock->taken[RECIPE_SHARED].counts[ZK_SCOPE_SESSION] > 0;
}

/* ---------------------------------------------------------------------
 * Entries
 * ---------------------------------------------------------------------
 */

Lock *
zklock_lock_find(const ZkName *name)
{
	if (Table.entries == NULL)
		return NULL;
	return hash_search(Table.entries, name->path, HASH_FIND, NULL);
}

Lock *
zklock_lock_enter(const ZkName *name)
{
	Lock	   *lock;
	bool		found;

	if (Table.entries == NULL)
		make_table();
	lock = hash_search(Table.entries, name->path, HASH_ENTER, &found);
	if (!found)
		memset((char *) lock + RECIPE_PATH_SIZE, 0,
			   sizeof(*lock) - RECIPE_PATH_SIZE);

	/* the name and the root are those of the first acquisition */
	if (!zklock_lock_is_held(lock))
	{
		char	   *former = lock->name;

		if (former == NULL || strcmp(former, name->text) != 0)
		{
			lock->name = MemoryContextStrdup(Table.memory, name->text);
			if (former != NULL)
				pfree(former);
		}
		lock->place.root_length = name->root_length;
	}
	lock->place.name = lock->name;
	lock->place.lock_path = lock->path;
	return lock;
}

static void
make_table(void)
{
	HASHCTL		control = {0};

	if (Table.memory == NULL)
		Table.memory = AllocSetContextCreate(TopMemoryContext, "zklock",
											 ALLOCSET_DEFAULT_SIZES);
	control.keysize = RECIPE_PATH_SIZE;
	control.entrysize = sizeof(Lock);
	control.hcxt = Table.memory;
	Table.entries = hash_create("zklock locks", 16, &control,
								HASH_ELEM | HASH_STRINGS | HASH_CONTEXT);
}

void
zklock_lock_forget_if_empty(Lock *lock)
{
	if (zklock_lock_is_held(lock))
	{
		Assert(is_placed(lock));
		post_lock(lock);
		return;
	}
	Assert(!is_placed(lock));
	foreach_mode(mode)
		drop_xact_counts(&lock->xact[mode]);
	if (zklock_keep_is_kept(&lock->place))
		return;
	if (lock->name != NULL)
		pfree(lock->name);
	if (lock->holder != NULL)
		pfree(lock->holder);
	hash_search(Table.entries, lock->path, HASH_REMOVE, NULL);
}

/* Has it a place, on which acquisitions of the lock can stand? */
static bool
is_placed(const Lock *lock)
{
	switch (lock->place.state)
	{
		case ZK_PLACE_HELD:
		case ZK_PLACE_LOST:
			return true;
		case ZK_PLACE_NONE:
		case ZK_PLACE_WANTED:
		case ZK_PLACE_KEPT:
			break;
	}
	return false;
}

MemoryContext
zklock_lock_memory(void)
{
	Assert(Table.memory != NULL);
	return Table.memory;
}

void
zklock_lock_scan(HASH_SEQ_STATUS *scan)
{
	Assert(Table.entries != NULL);
	hash_seq_init(scan, Table.entries);
}

int
zklock_lock_count_entries(void)
{
	if (Table.entries == NULL)
		return 0;
	return (int) hash_get_num_entries(Table.entries);
}

/* ---------------------------------------------------------------------
 * Counts
 * ---------------------------------------------------------------------
 */

/* All counts of a scope, in whatever subtransactions, fit into one int. */
void
zklock_lock_reserve(Lock *lock, RecipeMode mode, ZkScope scope)
{
	XactCount **xact = &lock->xact[mode];
	SubTransactionId subid = GetCurrentSubTransactionId();

	if (lock->taken[mode].counts[scope] == INT_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("too many acquisitions of lock \"%s\"", lock->name),
				 errdetail("This session has taken it %d times.", INT_MAX),
				 errhint("Release the lock once for each time that it was taken. The end of a transaction does not release a lock of session scope.")));
	if (scope == ZK_SCOPE_TRANSACTION &&
		(*xact == NULL || (*xact)->subid != subid))
	{
		XactCount  *more = MemoryContextAlloc(Table.memory, sizeof(*more));

		more->subid = subid;
		more->count = 0;
		more->next = *xact;
		*xact = more;
	}
}

void
zklock_lock_count(Lock *lock, RecipeMode mode, ZkScope scope)
{
	ZkTaken    *taken = &lock->taken[mode];

	Assert(is_placed(lock) && lock->place.state != ZK_PLACE_LOST);
	if (!zklock_lock_is_held(lock))
	{
		Table.held_bytes += lock->nbytes;
		Table.nheld++;
	}
	if (!zklock_board_is_taken(taken))
	{
		taken->since = GetCurrentTimestamp();
		lock->taken_ms[mode] = protocol_now();
	}
	taken->counts[scope]++;
	Table.nending += scope != ZK_SCOPE_SESSION;
	if (scope == ZK_SCOPE_TRANSACTION)
	{
		Assert(lock->xact[mode]->subid == GetCurrentSubTransactionId());
		lock->xact[mode]->count++;
	}
	post_lock(lock);
}

void
zklock_lock_count_back(Lock *lock, RecipeMode mode, ZkScope scope)
{
	Assert(lock->taken[mode].counts[scope] > 0);
	lock->taken[mode].counts[scope]--;
	Table.nending -= scope != ZK_SCOPE_SESSION;
	if (scope == ZK_SCOPE_TRANSACTION)
	{
		Assert(lock->xact[mode]->subid == GetCurrentSubTransactionId());
		Assert(lock->xact[mode]->count > 0);
		lock->xact[mode]->count--;
	}
}

void
zklock_lock_drop_counts(Lock *lock, RecipeMode mode, ZkScope scope)
{
	if (scope != ZK_SCOPE_SESSION)
		Table.nending -= lock->taken[mode].counts[scope];
	lock->taken[mode].counts[scope] = 0;
	if (scope == ZK_SCOPE_TRANSACTION)
		drop_xact_counts(&lock->xact[mode]);
}

bool
zklock_lock_end_sub(Lock *lock, RecipeMode mode, bool is_commit,
					SubTransactionId mine, SubTransactionId parent)
{
	XactCount **link = &lock->xact[mode];
	XactCount  *ending = *link;

	/* inner subtransactions come first in the list */
	if (ending == NULL || ending->subid != mine)
		return false;
	if (is_commit && (ending->next == NULL || ending->next->subid != parent))
	{
		ending->subid = parent;
		return true;
	}
	*link = ending->next;
	if (is_commit)
		(*link)->count += ending->count;
	else
	{
		lock->taken[mode].counts[ZK_SCOPE_TRANSACTION] -= ending->count;
		Table.nending -= ending->count;
	}
	Assert(lock->taken[mode].counts[ZK_SCOPE_TRANSACTION] >= 0);
	pfree(ending);
	return true;
}

void
zklock_lock_stay_to_end(Lock *lock)
{
	Table.nending += !lock->stays_to_end;
	lock->stays_to_end = true;
}

void
zklock_lock_stay_no_more(Lock *lock)
{
	Table.nending -= lock->stays_to_end;
	lock->stays_to_end = false;
}

void
zklock_lock_note_unheld(const Lock *lock)
{
	Assert(!zklock_lock_is_held(lock));
	Assert(Table.nheld > 0 && Table.held_bytes >= lock->nbytes);
	Table.held_bytes -= lock->nbytes;
	Table.nheld--;
}

static void
drop_xact_counts(XactCount **list)
{
	while (*list != NULL)
	{
		XactCount  *dropped = *list;

		*list = dropped->next;
		pfree(dropped);
	}
}

/*
 * Put on the board (board.h) how the lock is held now.  Never raises, never
 * waits.
 */
static void
post_lock(Lock *lock)
{
	const ZkPlace *place = &lock->place;
	ZkBoardHeld held = {
		.mode = place->mode,
		.permits = place->permits,
		.token = place->token,
		.proof_ms = place->proof.wall_ms,
		.session_number = place->grant.session,
		.is_lost = place->state == ZK_PLACE_LOST,
		.is_leaving = zklock_lock_is_leaving(lock)
	};

	memcpy(held.taken, lock->taken, sizeof(held.taken));
	zklock_board_put_lock(&lock->line, lock->path, place->root_length, &held);
}
