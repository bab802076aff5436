/*-------------------------------------------------------------------------
 *
 * lock_private.h
 *	  The table of locks, for lock.c and lock_proof.c.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LOCK_PRIVATE_H
#define ZKLOCK_LOCK_PRIVATE_H

#include "postgres.h"

#include "lock.h"
#include "place.h"
#include "released.h"
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
	ZkWorkMark	granted_in;		/* how far the transaction was at the grant */
	ZkPlace		place;			/* of both modes; ours while there are counts */
} Lock;

/* The table; NULL until the first lock. */
extern HTAB *zklock_locks;

/*
 * The entry of a lock, NULL if there is none.  Raises 42602 for a bad name.
 */
extern Lock *zklock_lock_find(const char *name);

/* Is the lock held here, in any mode? */
extern bool zklock_lock_is_held(const Lock *lock);

/*
 * Warn that it has no count of session scope in that mode to take back, and
 * how what there is is let go of.  lock: its entry, NULL if there is none.
 */
extern void zklock_lock_warn_not_held(const char *name, const Lock *lock,
									  RecipeMode mode);

/*
 * It is let go of, and had been lost: an interrupt for that may be still to
 * come.  Never raises.
 */
extern void zklock_lock_note_late_loss(const Lock *lock);

/* In session scope, so that the user has to release it? */
extern bool zklock_lock_is_of_session(const Lock *lock);

/* Loop over the entries of the table, which may be removed as they come. */
#define foreach_lock(scan, lock) \
	for (hash_seq_init(&(scan), zklock_locks); \
		 ((lock) = (Lock *) hash_seq_search(&(scan))) != NULL;)

/*
 * Shared first: where both modes end, the exclusive one then ends last, and
 * no downgrade is begun for nothing.
 */
#define foreach_mode(mode) \
	for (int mode = RECIPE_SHARED; mode >= RECIPE_EXCLUSIVE; mode--)

#endif							/* ZKLOCK_LOCK_PRIVATE_H */
