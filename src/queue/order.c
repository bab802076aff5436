/*-------------------------------------------------------------------------
 *
 * order.c
 *	  Makes an order: which lock, for whom, how, until when.  Raises "could not
 *	  obtain lock".
 *
 *-------------------------------------------------------------------------
 */
#include "order.h"

#include "session.h"
#include "stat.h"

static int	timeout_message(const ZkOrder *order, bool is_busy);

ZkOrder
zklock_order_acquisition(const ZkName *name, ZkScope scope, bool is_try,
						 int64 timeout_ms)
{
	ZkOrder		order = {
		.taker = ZK_TAKER_SESSION,
		.scope = scope,
		.mode = RECIPE_EXCLUSIVE,
		.permits = 1,
		.style = zklock_name_style(),
		.is_try = is_try,
		.bounds = zklock_bounds_of_wait(timeout_ms)
	};

	if (name != NULL)
		order.name = *name;
	return order;
}

ZkOrder
zklock_order_one_of(const ZkOrder *set, const ZkName *name, RecipeMode mode)
{
	ZkOrder		order = *set;

	Assert(set->name.text == NULL && set->permits == 1);
	order.name = *name;
	order.mode = mode;
	order.is_of_set = true;
	return order;
}

/* The hold will have the style that its maker's node has. */
ZkOrder
zklock_order_hold(const ZkName *name, int64 timeout_ms)
{
	ZkOrder		order = {
		.taker = ZK_TAKER_HOLD,
		.name = *name,
		.mode = RECIPE_EXCLUSIVE,
		.permits = 1,
		.style = RECIPE_STYLE_CURATOR,
		.wants_list = true,
		.bounds = zklock_bounds_of_wait(timeout_ms)
	};

	return order;
}

ZkOrder
zklock_order_lease(const ZkName *name, const char *owner, RecipeMode mode,
				   int permits, int64 timeout_ms)
{
	ZkOrder		order = {
		.taker = ZK_TAKER_OWNER,
		.owner = owner,
		.name = *name,
		.mode = mode,
		.permits = permits,
		.style = zklock_name_style(),
		.is_try = true,
		.wants_list = true,
		.bounds = zklock_bounds_of_wait(timeout_ms)
	};

	return order;
}

ZkPlace
zklock_order_place(const ZkOrder *order)
{
	ZkPlace		place = {
		.name = order->name.text,
		.lock_path = order->name.path,
		.root_length = order->name.root_length,
		.mode = order->mode,
		.permits = order->permits
	};

	return place;
}

void
zklock_order_raise_busy(const ZkOrder *order, const char *ahead,
						const char *ahead_log)
{
	zklock_stat_count(ZK_STAT_TIMEOUT);
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 timeout_message(order, true),
			 errdetail("%s", ahead),
			 errdetail_log("%s", ahead_log),
			 errcontext("while waiting for ZooKeeper lock \"%s\"",
						order->name.text)));
}

void
zklock_order_raise_silence(const ZkOrder *order)
{
	if (order->is_try)
		zklock_session_raise_silence(order->name.text);
	zklock_stat_count(ZK_STAT_TIMEOUT);
	zklock_stat_count(ZK_STAT_UNANSWERED);
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 timeout_message(order, false),
			 zklock_session_explain_silence(),
			 errcontext("while waiting for ZooKeeper lock \"%s\"",
						order->name.text)));
}

/*
 * Inside ereport(): the message, which names the bound that has ended the
 * call.  is_busy: others have the lock.  A call that does not wait for others
 * fails because of them, then, whichever bound was near.
 */
static int
timeout_message(const ZkOrder *order, bool is_busy)
{
	const ZkBounds *bounds = &order->bounds;

	if (bounds->by == ZK_BY_LOCK_TIMEOUT && !(is_busy && bounds->is_at_once))
		return errmsg("canceling statement due to lock timeout");
	if (bounds->is_at_once)
		return errmsg("could not obtain lock \"%s\"", order->name.text);
	return errmsg("could not obtain lock \"%s\" within " INT64_FORMAT " ms",
				  order->name.text, bounds->timeout_ms);
}
