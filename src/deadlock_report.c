/*-------------------------------------------------------------------------
 *
 * deadlock_report.c
 *	  What is said of a deadlock, as PostgreSQL words it.
 *
 * The client is told which processes of which clusters and databases are in
 * it, and which locks: without that nobody can mend what caused it.  Users
 * and hosts are not told.
 *
 *-------------------------------------------------------------------------
 */
#include "deadlock_private.h"

#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "utils/backend_status.h"

#include "board.h"
#include "stat.h"

static void append_member(StringInfo text, const Member *member,
						  const char *process);
static const char *name_of_lock(const ZkPlace *place, const char *lock_path);
static void append_statements(StringInfo text, const Cycle *cycle);

void
deadlock_raise(const ZkPlace *place, const Cycle *cycle)
{
	char	   *detail;
	StringInfoData log;

	detail = deadlock_describe(place, cycle);
	initStringInfo(&log);
	appendStringInfoString(&log, detail);
	append_statements(&log, cycle);
	pgstat_report_deadlock();
	zklock_stat_count(ZK_STAT_DEADLOCK);
	ereport(ERROR,
			(errcode(ERRCODE_T_R_DEADLOCK_DETECTED),
			 errmsg("deadlock detected"),
			 errdetail_internal("%s", detail),
			 errdetail_log("%s", log.data),
			 errhint("See server log for query details.")));
}

char *
deadlock_describe(const ZkPlace *place, const Cycle *cycle)
{
	const Graph *graph = cycle->graph;
	StringInfoData text;

	initStringInfo(&text);
	for (int i = 0; i < cycle->length; i++)
	{
		int			number = cycle->way[i];
		const CycleEdge *edge = &graph->shape.edges[number];
		const Member *waiter = &graph->members[edge->from];

		if (i > 0)
			appendStringInfoChar(&text, '\n');
		append_member(&text, waiter, "Process");
		if (graph->in_postgres[number] != NULL)
			appendStringInfo(&text, " waits for %s; blocked by ",
							 graph->in_postgres[number]);
		else
			appendStringInfo(&text, " waits for %s on ZooKeeper lock \"%s\"; blocked by ",
							 waiter->mode == RECIPE_SHARED ?
							 "ShareLock" : "ExclusiveLock",
							 name_of_lock(place, waiter->lock_path));
		append_member(&text, &graph->members[edge->to], "process");
		appendStringInfoChar(&text, '.');
	}
	return text.data;
}

static void
append_member(StringInfo text, const Member *member, const char *process)
{
	if (member->session == deadlock_own_session())
		appendStringInfo(text, "%s %d", process, MyProcPid);
	else if (member->who.pid != 0)
		appendStringInfo(text, "%s %d", process, member->who.pid);
	else
		appendStringInfo(text, "%s of ZooKeeper session 0x%llx", process,
						 (unsigned long long) member->session);
	if (member->who.cluster != NULL)
		appendStringInfo(text, " of cluster \"%s\"",
						 zklock_nodedata_quotable_own(member->who.cluster));
	if (member->who.database != NULL)
		appendStringInfo(text, "%s database \"%s\"",
						 member->who.cluster != NULL ? "," : " of",
						 zklock_nodedata_quotable_own(member->who.database));
}

/* As users call it who have our root; anything else is a path. */
static const char *
name_of_lock(const ZkPlace *place, const char *lock_path)
{
	bool		is_below_root =
		strncmp(lock_path, place->lock_path, place->root_length) == 0 &&
		lock_path[place->root_length] == '/';

	return zklock_nodedata_quotable(is_below_root ?
									lock_path + place->root_length + 1 :
									lock_path);
}

/* Those of this cluster; the others' are in the logs of theirs. */
static void
append_statements(StringInfo text, const Cycle *cycle)
{
	for (int i = 0; i < cycle->length; i++)
	{
		const CycleEdge *edge = &cycle->graph->shape.edges[cycle->way[i]];
		int64		session = cycle->graph->members[edge->from].session;
		int			pid = session == deadlock_own_session() ? MyProcPid :
			zklock_board_pid_of(session);

		if (pid != 0)
			appendStringInfo(text, "\nProcess %d: %s", pid,
							 pgstat_get_backend_current_activity(pid, false));
	}
}
