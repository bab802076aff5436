/*-------------------------------------------------------------------------
 *
 * loss.h
 *
 * Also declares what loss_notice.c has.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LOSS_H
#define ZKLOCK_LOSS_H

#include "postgres.h"

#include "compat.h"
#include "recipe.h"

/* How a lock or a lease was lost. */
typedef enum ZkLossKind
{
	ZK_LOST_NOT,				/* it was not, as far as is known */

	/* Of a lock that is held. */
	ZK_LOST_SESSION,			/* its ZooKeeper session is over: for which of
								 * the reasons (ZkClientLoss), the session
								 * knows */
	ZK_LOST_DELETED,			/* somebody else deleted its queue node */
	ZK_LOST_MISLED,				/* it was granted because the client just
								 * ahead said that it lets go, while somebody
								 * further ahead held it */
	ZK_LOST_IN_DOUBT,			/* a fault of ours: its place was to make a
								 * move that is not legal (place.c) */

	/* Of a lease. */
	ZK_LOST_LEASE				/* it is not held any more, or nobody can say
								 * whether it is */
} ZkLossKind;

/* What was lost. */
typedef struct ZkLossOf
{
	ZkLossKind	kind;			/* not ZK_LOST_NOT */
	const char *name;			/* of the lock */
	int64		token;			/* its fencing token */
	bool		is_of_session;	/* of one that is held: it is held in session
								 * scope, so the user has to release
								 * it */
} ZkLossOf;

/* The loss in words, for an error with SQLSTATE 40001. */
typedef struct ZkLoss
{
	char		message[RECIPE_NAME_MAX + 256];
	char		detail[RECIPE_NAME_MAX + 256];
	const char *hint;
} ZkLoss;

/* Say it in words.  Never raises. */
extern void zklock_loss_describe(const ZkLossOf *of, ZkLoss *loss);

/*
 * Raise 40001 with these words: then the retry loops of applications run the
 * transaction again.
 */
pg_noreturn extern void zklock_loss_raise(const ZkLoss *loss);

/* Both. */
pg_noreturn extern void zklock_loss_raise_of(const ZkLossOf *of);

/*
 * Warn that a lock was released that had been lost by then.  Looks for
 * interrupts unless they are held.
 */
extern void zklock_loss_warn(const ZkLossOf *of);

/*
 * Attend to the session.  Then tell, in the log and by a WARNING, of each node of
 * a lock that was released before, and that somebody else had deleted by then.
 * Was one of them that with the token (0: any)?  Never waits; looks for interrupts
 * unless they are held; needs a transaction.
 */
extern bool zklock_loss_tell_gone(int64 token);

/*
 * Tell the log that a queue node of ours was deleted by somebody else, and count
 * it; node is its name.  If zk_evict() did it, the log of its cluster has the same token.
 * Looks for interrupts unless they are held; needs a transaction.
 */
extern void zklock_loss_log_deletion(const char *name, const char *node,
									 int64 token);

/* Raise 57000 for a waiter whose queue node was deleted by somebody else. */
pg_noreturn extern void zklock_loss_raise_waiter(const char *name,
												 const char *node,
												 int64 token);

#endif							/* ZKLOCK_LOSS_H */
