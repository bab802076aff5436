/*-------------------------------------------------------------------------
 *
 * order.h
 *
 * The one rule: an order is made once, when the call begins, by one of the
 * functions below.  Everything that the call waits for has the order's bounds;
 * nothing below makes bounds of its own.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ORDER_H
#define ZKLOCK_ORDER_H

#include "postgres.h"

#include "board.h"
#include "bounds.h"
#include "compat.h"
#include "name.h"
#include "place.h"
#include "recipe.h"

/* For whom the lock is. */
typedef enum ZkTaker
{
	ZK_TAKER_SESSION,			/* this session: an acquisition, in a scope */
	ZK_TAKER_HOLD,				/* a permanent hold, which outlives the
								 * session */
	ZK_TAKER_OWNER				/* the owner of a lease, who need not be
								 * connected */
} ZkTaker;

typedef struct ZkOrder
{
	/* for whom */
	ZkTaker		taker;
	ZkScope		scope;			/* valid for ZK_TAKER_SESSION */
	const char *owner;			/* of ZK_TAKER_OWNER, in UTF-8; else NULL */

	/* what */
	ZkName		name;			/* of the lock */
	RecipeMode	mode;
	int			permits;		/* 1, or of a counting semaphore */
	RecipeStyle style;			/* of the queue node's name */
	bool		is_of_set;		/* one of several that the call takes */

	/* how */
	bool		is_try;			/* that others have the lock is an answer, and
								 * no error */
	bool		wants_list;		/* do not believe a holder that says that it
								 * lets go, unless its node was the first in
								 * our list */

	/* until when; of the call, also if it takes several locks */
	ZkBounds	bounds;
} ZkOrder;

/*
 * An acquisition of this session that begins now: exclusive and with one
 * permit, unless the caller says otherwise before the order is used.  name: NULL
 * for one of a set (zklock_order_one_of()).
 */
extern ZkOrder zklock_order_acquisition(const ZkName *name, ZkScope scope,
										bool is_try, int64 timeout_ms);

/* The lock of that name and mode, as one of a set whose orders have the rest. */
extern ZkOrder zklock_order_one_of(const ZkOrder *set, const ZkName *name,
								   RecipeMode mode);

/*
 * An exclusive lock for a permanent hold.  Its maker makes sure that it has the
 * lock before it gives up its own node (wants_list).
 */
extern ZkOrder zklock_order_hold(const ZkName *name, int64 timeout_ms);

/*
 * A place for it that nobody has won yet.  The names are those of the order, and
 * must live as long.
 */
extern ZkPlace zklock_order_place(const ZkOrder *order);

/*
 * A lock for that owner of a lease, who may find it busy.  Whoever takes it
 * makes sure that he has it before he gives up his own node (wants_list).
 */
extern ZkOrder zklock_order_lease(const ZkName *name, const char *owner,
								  RecipeMode mode, int permits,
								  int64 timeout_ms);

/*
 * The time of the order is over, and others have the lock: raise 55P03.
 * ahead: who holds the lock and how many are ahead, for the client and for the
 * log.
 */
pg_noreturn extern void zklock_order_raise_busy(const ZkOrder *order,
												const char *ahead,
												const char *ahead_log);

/*
 * The time of the order is over, and ZooKeeper has not said whether the lock is
 * to be had: raise 08001 for a try, 55P03 for a wait.
 */
pg_noreturn extern void zklock_order_raise_silence(const ZkOrder *order);

#endif							/* ZKLOCK_ORDER_H */
