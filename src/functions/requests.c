/*-------------------------------------------------------------------------
 *
 * requests.c
 *	  zk_request_release(), and zk_release_requested() for a lock.
 *
 * What each promises stands with its COMMENT ON in sql/zklock--2.0.sql.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/builtins.h"

#include "args.h"
#include "given_name.h"
#include "lock_proof.h"
#include "nodedata.h"
#include "release_request.h"

PG_FUNCTION_INFO_V1(zk_request_release);
PG_FUNCTION_INFO_V1(zk_release_requested);

Datum
zk_request_release(PG_FUNCTION_ARGS)
{
	ZkName		name = zklock_given_name(fcinfo, ZK_GIVEN_TO_USE);
	char	   *reason = NULL;

	zklock_args_refuse_restricted();
	if (!PG_ARGISNULL(1))
	{
		reason = text_to_cstring(PG_GETARG_TEXT_PP(1));
		zklock_nodedata_check_line(reason, "reason", "a request",
								   "Write one line that tells the holders why the lock is wanted.");
	}
	PG_RETURN_INT32(zklock_release_request_ask(&name, reason));
}

Datum
zk_release_requested(PG_FUNCTION_ARGS)
{
	ZkName		name = zklock_given_name(fcinfo, ZK_GIVEN_TO_PROVE);

	PG_RETURN_BOOL(zklock_read_release_request(&name));
}
