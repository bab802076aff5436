/*-------------------------------------------------------------------------
 *
 * holds.c
 *	  zk_hold(), zk_release_hold(), zk_evict().
 *
 * What each promises stands with its COMMENT ON in sql/zklock--2.0.sql.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"

#include "args.h"
#include "evict.h"
#include "given_name.h"
#include "hold.h"
#include "nodedata.h"
#include "stat.h"

PG_FUNCTION_INFO_V1(zk_evict);
PG_FUNCTION_INFO_V1(zk_hold);
PG_FUNCTION_INFO_V1(zk_release_hold);

Datum
zk_hold(PG_FUNCTION_ARGS)
{
	ZkName		name = zklock_given_name(fcinfo, ZK_GIVEN_TO_USE);
	char	   *reason = zklock_args_text(fcinfo, 1, "reason");
	ZkOrder		order;

	zklock_args_refuse_restricted();
	zklock_nodedata_check_line(reason, "reason", "a permanent hold",
							   "Write one line that tells the waiters why the lock is held.");
	order = zklock_order_hold(&name, zklock_args_timeout(fcinfo, 2, false));
	PG_RETURN_INT64(zklock_hold_make(&order, reason));
}

Datum
zk_release_hold(PG_FUNCTION_ARGS)
{
	ZkName		name = zklock_given_name(fcinfo, ZK_GIVEN_TO_USE);
	ZkEviction	end;

	zklock_args_refuse_restricted();
	end = zklock_evict_contenders(&name, zklock_args_token(fcinfo, 1), ZK_EVICT_HOLDS);
	if (end == ZK_EVICTED)
		PG_RETURN_BOOL(true);
	ereport(WARNING,
			(errcode(ERRCODE_WARNING),
			 errmsg("there is no permanent hold of lock \"%s\" with that token",
					name.text),
			 end == ZK_EVICTED_NO_HOLD ?
			 errhint("The token is that of a contender which zk_hold() did not make. Remove it with zk_evict().") : 0));
	PG_RETURN_BOOL(false);
}

Datum
zk_evict(PG_FUNCTION_ARGS)
{
	ZkName		name = zklock_given_name(fcinfo, ZK_GIVEN_TO_USE);

	zklock_args_refuse_restricted();
	if (zklock_evict_contenders(&name, zklock_args_token(fcinfo, 1),
								ZK_EVICT_ALL) == ZK_EVICTED)
	{
		zklock_stat_count(ZK_STAT_EVICTION);
		PG_RETURN_BOOL(true);
	}
	ereport(WARNING,
			(errcode(ERRCODE_WARNING),
			 errmsg("no contender in the queue of lock \"%s\" has that token",
					name.text),
			 errhint("See the contenders and their tokens with zk_lock_queue().")));
	PG_RETURN_BOOL(false);
}
