/*-------------------------------------------------------------------------
 *
 * lock_table.h
 *
 * Also declares what lock_log.c has.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LOCK_TABLE_H
#define ZKLOCK_LOCK_TABLE_H

#include "postgres.h"

#include "board.h"
#include "name.h"
#include "place.h"
#include "recipe.h"
#include "utils/hsearch.h"

/* How often a mode was taken in transaction scope by one subtransaction. */
typedef struct XactCount
{
	SubTransactionId subid;
	int			count;			/* 0: reserved for a grant under way */
	struct XactCount *next;
} XactCount;

typedef struct Lock
{
	char		path[RECIPE_PATH_SIZE]; /* key: znode of the lock; all behind it
										 * is zeros at first */
	char	   *name;			/* as the user wrote it */
	ZkTaken		taken[2];		/* by RecipeMode */
	int64		taken_ms[2];	/* its `since`, by protocol_now() */
	XactCount  *xact[2];		/* what is taken in transaction scope,
								 * likewise; innermost first */
	int			line;			/* on the board, see zklock_board_put_lock() */
	char	   *holder;			/* and the lock, for the log; NULL: it is not
								 * logged */
	Size		nbytes;			/* what the path of its node takes, from the
								 * grant on */
	bool		stays_to_end;	/* it was released, at least once, by the
								 * current transaction, which has written: its
								 * place is not left before that ends, whatever
								 * ends what else is taken of it */
	ZkPlace		place;			/* of both modes; ours while the lock is held */
} Lock;

/* ---- what is held ---- */

/* Does this backend hold any lock? */
extern bool zklock_has_locks(void);

/*
 * One of transaction or call scope, which ends by itself, or one that is
 * leaving?
 */
extern bool zklock_has_xact_locks(void);

/*
 * How many it holds, how many of these are leaving, and how many bytes the
 * paths of their queue nodes have.
 */
extern int	zklock_lock_count_held(void);
extern int	zklock_lock_count_leaving(void);
extern Size zklock_lock_held_bytes(void);

/*
 * Does the end of the transaction, or of a call, end any of it, or is there an
 * entry that holds nothing?
 */
extern bool zklock_lock_has_ending(void);

/* Are there entries of other locks than those that are kept? */
extern bool zklock_lock_has_unkept(void);

/* Has the user any acquisition of it? */
extern bool zklock_lock_is_taken(const Lock *lock);

/*
 * Has the user released it, and its place is left when the transaction ends?
 * Until then it is held, and can be taken again.
 */
extern bool zklock_lock_is_leaving(const Lock *lock);

/* Is the lock held: taken, or leaving? */
extern bool zklock_lock_is_held(const Lock *lock);

/*
 * Has it a row of that mode in the views: one for each mode in which it is
 * taken, and one for the mode of its node?
 */
extern bool zklock_lock_is_shown(const Lock *lock, RecipeMode mode);

/* In session scope, so that the user has to release it? */
extern bool zklock_lock_is_of_session(const Lock *lock);

/* ---- entries ---- */

/* The entry of a lock, NULL if there is none. */
extern Lock *zklock_lock_find(const ZkName *name);

/* The entry of a lock, made if need be. */
extern Lock *zklock_lock_enter(const ZkName *name);

/*
 * Remove an entry that holds nothing, and whose place is not kept; tell the
 * board of any other.  Never raises or waits.
 */
extern void zklock_lock_forget_if_empty(Lock *lock);

/* In which the entries and what hangs on them live; there is one entry. */
extern MemoryContext zklock_lock_memory(void);

/*
 * Loop over the entries, which may be removed as they come.  There must have
 * been one; the loop must run to its end.
 */
#define foreach_lock(scan, lock) \
	for (zklock_lock_scan(&(scan)); \
		 ((lock) = (Lock *) hash_seq_search(&(scan))) != NULL;)

extern void zklock_lock_scan(HASH_SEQ_STATUS *scan);

/* How many entries such a loop has. */
extern int	zklock_lock_count_entries(void);

#define foreach_mode(mode) \
	for (int mode = RECIPE_EXCLUSIVE; mode <= RECIPE_SHARED; mode++)

/* ---- counts.  Nothing but the first raises; nothing waits. ---- */

/*
 * Allocate the count that a grant will need.  Raises 54000 if there cannot be
 * one more.
 */
extern void zklock_lock_reserve(Lock *lock, RecipeMode mode, ZkScope scope);

/* The lock is ours: count it once more, in what was reserved. */
extern void zklock_lock_count(Lock *lock, RecipeMode mode, ZkScope scope);

/*
 * Take one count back.  One of transaction scope must be the current
 * subtransaction's.
 */
extern void zklock_lock_count_back(Lock *lock, RecipeMode mode, ZkScope scope);

/* Drop all counts of that mode and scope. */
extern void zklock_lock_drop_counts(Lock *lock, RecipeMode mode,
									ZkScope scope);

/*
 * A subtransaction is over, the innermost one: its count passes to the parent,
 * or ends.  Result: was there one?
 */
extern bool zklock_lock_end_sub(Lock *lock, RecipeMode mode, bool is_commit,
								SubTransactionId mine,
								SubTransactionId parent);

/*
 * It was released by a transaction that has written: its place is not left before
 * that ends.  That has come.
 */
extern void zklock_lock_stay_to_end(Lock *lock);
extern void zklock_lock_stay_no_more(Lock *lock);

/* It is held no more, and its place is left or kept. */
extern void zklock_lock_note_unheld(const Lock *lock);

/* ---- what the server's log says of them (lock_log.c) ---- */

/*
 * Note who takes the lock, if the log is to say it, while the catalog may
 * still be read: at the end of a transaction it may not.
 */
extern void zklock_lock_log_holder(Lock *lock);

/*
 * Say that the lock is taken in that mode, or how it has ended.  Interrupts
 * wait: the caller of a lock must hear that the lock is held.
 */
extern void zklock_lock_log_taken(const Lock *lock, RecipeMode mode);
extern void zklock_lock_log_end(const Lock *lock, const char *how);

#endif							/* ZKLOCK_LOCK_TABLE_H */
