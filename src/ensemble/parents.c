/*-------------------------------------------------------------------------
 *
 * parents.c
 *	  Creation of the znodes above a path.
 *
 *-------------------------------------------------------------------------
 */
#include "parents.h"

#include "name.h"
#include "nodedata.h"
#include "session.h"
#include "text.h"

/*
 * So often a server has to refuse a container before it is believed to have
 * none: a connection may break for another reason.
 */
#define CONTAINER_ATTEMPTS 3

static const char *describe_refusal(const ZkReply *reply);
static const ZkReply *create(ZkRoundTrip *trip, const char *path,
							 ZkNodeKind kind, const char *data);

const ZkReply *
zklock_parents_make(ZkRoundTrip *trip, const char *path,
					int root_length)
{
	const char *end = path;
	int			lasting_length = root_length;

	/* what is made for good may be more than the root */
	root_length = strlen(zklock_name_root_path());
	while ((end = strchr(end + 1, '/')) != NULL)
	{
		char	   *parent = pnstrdup(path, end - path);
		bool		is_lasting = end - path <= lasting_length;
		ZkNodeKind	kind = ZK_PERSISTENT;
		const ZkReply *reply;
		const char *refusal = NULL;

		if (end - path == root_length)
			kind = ZK_ROOT;
		if (is_lasting)
			reply = create(trip, parent, kind,
						   zklock_nodedata_build(0, (char *) NULL));
		else
			reply = zklock_parents_try_container(trip, parent, &refusal);
		if (refusal != NULL)
			zklock_session_raise_no_containers(parent, refusal);
		if (reply == NULL)
			return NULL;
		switch (reply->result)
		{
			case ZK_OK:
				if (!is_lasting)
					trip->made = pstrdup(parent);
				break;
			case ZK_NODE_EXISTS:
				break;
			case ZK_NO_NODE:	/* an empty one above was removed */
			case ZK_UNKNOWN_OUTCOME:
			case ZK_SESSION_LOST:
				return NULL;
			default:
				zklock_roundtrip_unmake(trip);
				return reply;
		}
		pfree(parent);
	}
	return NULL;
}

const ZkReply *
zklock_parents_create(ZkRoundTrip *trip, const char *path, int root_length,
					  ZkNodeKind kind, const char *data)
{
	const ZkReply *reply = create(trip, path, kind, data);

	for (int attempts = 0; reply != NULL && reply->result == ZK_NO_NODE &&
		 attempts < PARENT_ATTEMPTS; attempts++)
	{
		reply = zklock_parents_make(trip, path, root_length);
		if (reply == NULL)
			reply = create(trip, path, kind, data);
	}
	return reply;
}

void
zklock_parents_raise_deleted(const char *path)
{
	ereport(ERROR,
			(errcode(ERRCODE_SYSTEM_ERROR),
			 errmsg("could not create znode \"%s\"",
					zklock_text_quotable(path)),
			 errdetail("It was deleted %d times before this session could create its queue node in it.",
					   PARENT_ATTEMPTS),
			 errhint("Find out which program deletes znodes below the root, and stop it.")));
}

/*
 * Servers of other kinds that have no containers close the connection, or
 * answer with an error that can mean something else.  So the server is asked
 * in between whether it has a znode of that path: if it answers that there is
 * none, the connection was good, and so is the path.
 */
const ZkReply *
zklock_parents_try_container(ZkRoundTrip *trip, const char *path,
							 const char **refusal)
{
	for (int attempt = 1;; attempt++)
	{
		const ZkReply *reply = create(trip, path, ZK_CONTAINER,
									  zklock_nodedata_of_parent(path));
		const char *how = describe_refusal(reply);

		*refusal = NULL;
		if (how == NULL)
			return reply;
		reply = zklock_roundtrip_read(trip, ZK_CHECK, path);
		if (reply == NULL || reply->result != ZK_NO_NODE)
			return reply;
		*refusal = how;
		if (attempt == CONTAINER_ATTEMPTS)
			return reply;
	}
}

/* In which way a server without containers may have refused one; else NULL. */
static const char *
describe_refusal(const ZkReply *reply)
{
	if (reply == NULL)
		return NULL;
	switch (reply->result)
	{
		case ZK_UNIMPLEMENTED:
			return "it answered \"unimplemented\"";
		case ZK_BAD_ARGUMENTS:
			return "it answered \"bad arguments\"";
		case ZK_UNKNOWN_OUTCOME:
			return "it closed the connection";
		default:
			return NULL;
	}
}

static const ZkReply *
create(ZkRoundTrip *trip, const char *path, ZkNodeKind kind,
	   const char *data)
{
	return zklock_roundtrip_ask(trip,
								zklock_client_create(zklock_session_client(),
													 path, kind, data));
}
