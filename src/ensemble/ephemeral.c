/*-------------------------------------------------------------------------
 *
 * ephemeral.c
 *	  Finds ephemeral znodes of other programs, below which nothing can be
 *	  made.
 *
 *-------------------------------------------------------------------------
 */
#include "ephemeral.h"

#include "compat.h"
#include "nodedata.h"
#include "session.h"
#include "text.h"

/*
 * How long the search for what is in the way may take: a
 * healthy server takes a millisecond.
 */
#define IN_THE_WAY_MS 1000

pg_noreturn static void raise_in_the_way(const ZkReply *reply, const char *found);

ZkOutcome
zklock_ephemeral_find(ZkRoundTrip *trip, const char *path,
					  int length, const ZkReply **reply,
					  char **found)
{
	const char *end = path + Max(length, 1) - 1;
	int			most = strlen(path) / 2 + 1;
	char	  **paths = palloc(most * sizeof(*paths));
	const ZkReply **replies = palloc(most * sizeof(*replies));
	int			npaths = 0;
	ZkOutcome	outcome;

	*reply = NULL;
	*found = NULL;
	do
	{
		end = strchrnul(end + 1, '/');
		paths[npaths++] = pnstrdup(path, end - path);
	} while (*end != '\0');
	outcome = zklock_roundtrip_read_all(trip, ZK_GET, paths, npaths, replies);
	if (outcome != ZK_ANSWERED)
		return outcome;
	for (int i = 0; i < npaths; i++)
		if (replies[i]->result == ZK_OK && replies[i]->ephemeral_owner != 0)
		{
			*reply = replies[i];
			*found = paths[i];
			return ZK_ANSWERED;
		}
	zklock_roundtrip_end_reads(trip, npaths);
	return ZK_ANSWERED;
}

void
zklock_ephemeral_refuse(const ZkReply *reply, const char *path)
{
	ZkRoundTrip trip = {.deadline = protocol_now() + IN_THE_WAY_MS};
	const ZkReply *in_the_way;
	char	   *found;

	if (reply->result != ZK_FAILED)
		return;
	PG_TRY();
	{
		if (zklock_ephemeral_find(&trip, path, 1, &in_the_way,
								  &found) == ZK_ANSWERED && found != NULL)
			raise_in_the_way(in_the_way, found);
	}
	PG_CATCH();
	{
		zklock_roundtrip_end(&trip);
		PG_RE_THROW();
	}
	PG_END_TRY();
	zklock_roundtrip_end(&trip);
}

/* Raise that.  Only members of pg_monitor, and the log, are told whose it is. */
static void
raise_in_the_way(const ZkReply *reply, const char *found)
{
	unsigned long long owner = (unsigned long long) reply->ephemeral_owner;
	ZkNodeData	who;
	const char *whose;

	zklock_nodedata_parse(reply->data, reply->data_length, &who);
	whose = zklock_nodedata_describe(&who);
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("ephemeral znode \"%s\" is in the way",
					zklock_text_quotable(found)),
			 zklock_nodedata_may_be_shown() ?
			 errdetail("It belongs to session 0x%llx, %s. ZooKeeper allows no znode below it.",
					   owner, whose) :
			 errdetail("It belongs to the session of another client. ZooKeeper allows no znode below it."),
			 errdetail_log("It belongs to session 0x%llx, %s. ZooKeeper allows no znode below it.",
						   owner, whose),
			 errhint("Use another name. Or let the program that made the znode use a lock recipe that docs/interop.md names: zklock cannot wait for a lock that is itself an ephemeral znode.")));
}
