/*-------------------------------------------------------------------------
 *
 * runs.c
 *	  zk_run_once(), zk_forget_run(), zk_runs().
 *
 * What each promises stands with its COMMENT ON in sql/zklock--2.0.sql.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"

#include "args.h"
#include "given_name.h"
#include "name_spelling.h"
#include "queue_list.h"
#include "row.h"
#include "run_once.h"

PG_FUNCTION_INFO_V1(zk_run_once);
PG_FUNCTION_INFO_V1(zk_forget_run);
PG_FUNCTION_INFO_V1(zk_runs);

Datum
zk_run_once(PG_FUNCTION_ARGS)
{
	ZkName		name = zklock_given_name(fcinfo, ZK_GIVEN_TO_USE);
	char	   *slot;

	zklock_args_refuse_restricted();
	slot = zklock_args_spelled(fcinfo, 1, "slot");
	zklock_args_require(fcinfo, 2, "retention",
						"To keep all records, give a long interval.");
	PG_RETURN_BOOL(zklock_run_claim(&name, slot,
									zklock_args_interval(fcinfo, 2, "retention")));
}

Datum
zk_forget_run(PG_FUNCTION_ARGS)
{
	ZkName		name = zklock_given_name(fcinfo, ZK_GIVEN_TO_USE);
	char	   *slot;

	zklock_args_refuse_restricted();
	slot = zklock_args_spelled(fcinfo, 1, "slot");
	if (zklock_run_forget(&name, slot))
		PG_RETURN_BOOL(true);
	ereport(WARNING,
			(errcode(ERRCODE_WARNING),
			 errmsg("there is no record of slot \"%s\" of job \"%s\"",
					slot, name.text),
			 errhint("See the records that there are with zk_runs().")));
	PG_RETURN_BOOL(false);
}

Datum
zk_runs(PG_FUNCTION_ARGS)
{
	ZkName		name = zklock_given_name(fcinfo, ZK_GIVEN_TO_USE);
	ReturnSetInfo *result = zklock_row_begin(fcinfo);
	int			nchildren;
	ZkQueueEntry *runs = zklock_read_below(zklock_name_runs_path(&name, NULL),
										   &nchildren);

	for (int i = 0; i < nchildren; i++)
	{
		int			slot_length = zklock_run_slot_length(runs[i].node);
		ZkRow		row = {0};

		if (slot_length == 0)
			continue;
		zklock_row_add_text(&row,
							zklock_name_shown(pnstrdup(runs[i].node,
													   slot_length)));
		zklock_row_add(&row, runs[i].token != 0,
					   TimestampTzGetDatum(runs[i].since));
		zklock_row_add_who(&row, &runs[i].who);
		zklock_row_add_text(&row, runs[i].who.text);
		zklock_row_put(result, &row);
	}
	return (Datum) 0;
}
