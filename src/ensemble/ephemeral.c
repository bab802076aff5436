/*-------------------------------------------------------------------------
 *
 * ephemeral.c
 *	  Ephemeral znodes of other programs, below which there can be none.
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

bool
zklock_ephemeral_find(ZkRoundTrip *trip, const char *path,
					  int length, const ZkReply **reply,
					  char **found)
{
	int			nothers = list_length(trip->looks);
	const char *end = path + Max(length, 1) - 1;
	List	   *paths = NIL;

	*reply = NULL;
	*found = NULL;
	do
	{
		end = strchrnul(end + 1, '/');
		paths = lappend(paths, pnstrdup(path, end - path));
		(void) zklock_roundtrip_look(trip, ZK_GET, llast(paths));	/* asked for */
	} while (*end != '\0');
	if (!zklock_roundtrip_await_looks(trip))
		return false;
	foreach_ptr(char, one, paths)
	{
		*reply = zklock_roundtrip_look(trip, ZK_GET, one);
		*found = one;
		if (*reply != NULL && (*reply)->result == ZK_OK &&
			(*reply)->ephemeral_owner != 0)
			return true;
	}
	*reply = NULL;
	*found = NULL;
	zklock_roundtrip_end_looks_behind(trip, nothers);
	return true;
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
								  &found) && found != NULL)
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
