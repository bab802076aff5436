/*-------------------------------------------------------------------------
 *
 * parents.c
 *	  Creates the znodes above one that is to be made.
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

static const char *describe_refusal(ZkOutcome outcome, const ZkReply *reply);
static ZkOutcome create_znode(ZkRoundTrip *trip, const char *path,
							  ZkNodeKind kind, const char *data,
							  const ZkReply **reply);

ZkOutcome
zklock_parents_make(ZkRoundTrip *trip, const char *path,
					int root_length, const ZkReply **refusal)
{
	const char *end = path;
	int			lasting_length = root_length;

	*refusal = NULL;
	/* what is made for good may be more than the root */
	root_length = strlen(zklock_name_root_path());
	while ((end = strchr(end + 1, '/')) != NULL)
	{
		char	   *parent = pnstrdup(path, end - path);
		bool		is_lasting = end - path <= lasting_length;
		ZkNodeKind	kind = ZK_PERSISTENT;
		const ZkReply *reply;
		const char *how = NULL;
		ZkOutcome	outcome;

		if (end - path == root_length)
			kind = ZK_ROOT;
		if (is_lasting)
			outcome = create_znode(trip, parent, kind,
								   zklock_nodedata_build(0, (char *) NULL),
								   &reply);
		else
			outcome = zklock_parents_try_container(trip, parent, &reply, &how);
		if (how != NULL)
			zklock_session_raise_no_containers(parent, how);
		if (outcome == ZK_UNKNOWN)
			return ZK_ANSWERED;
		if (outcome != ZK_ANSWERED)
			return outcome;
		switch (reply->result)
		{
			case ZK_OK:
				if (!is_lasting)
					trip->made = pstrdup(parent);
				break;
			case ZK_NODE_EXISTS:
				break;
			case ZK_NO_NODE:	/* an empty one above was removed */
				return ZK_ANSWERED;
			default:
				zklock_roundtrip_unmake(trip);
				*refusal = reply;
				return ZK_ANSWERED;
		}
		pfree(parent);
	}
	return ZK_ANSWERED;
}

ZkOutcome
zklock_parents_create(ZkRoundTrip *trip, const char *path, int root_length,
					  ZkNodeKind kind, const char *data, const ZkReply **reply)
{
	ZkOutcome	outcome = create_znode(trip, path, kind, data, reply);

	for (int attempts = 0; outcome == ZK_ANSWERED &&
		 (*reply)->result == ZK_NO_NODE && attempts < PARENT_ATTEMPTS; attempts++)
	{
		outcome = zklock_parents_make(trip, path, root_length, reply);
		if (outcome == ZK_ANSWERED && *reply == NULL)
			outcome = create_znode(trip, path, kind, data, reply);
	}
	return outcome;
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
ZkOutcome
zklock_parents_try_container(ZkRoundTrip *trip, const char *path,
							 const ZkReply **reply, const char **refusal)
{
	const char *data = zklock_nodedata_of_parent(path);

	*refusal = NULL;
	for (int attempt = 1;; attempt++)
	{
		ZkOutcome	outcome = create_znode(trip, path, ZK_CONTAINER, data, reply);
		const char *how = describe_refusal(outcome, *reply);

		if (how == NULL)
			return outcome;
		outcome = zklock_roundtrip_read(trip, ZK_CHECK, path, reply);
		if (outcome != ZK_ANSWERED || (*reply)->result != ZK_NO_NODE)
			return outcome;
		if (attempt == CONTAINER_ATTEMPTS)
		{
			*refusal = how;
			return outcome;
		}
	}
}

/* In which way a server without containers may have refused one; else NULL. */
static const char *
describe_refusal(ZkOutcome outcome, const ZkReply *reply)
{
	if (outcome == ZK_UNKNOWN)
		return "it closed the connection";
	if (outcome == ZK_ANSWERED && reply->result == ZK_UNIMPLEMENTED)
		return "it answered \"unimplemented\"";
	if (outcome == ZK_ANSWERED && reply->result == ZK_BAD_ARGUMENTS)
		return "it answered \"bad arguments\"";
	return NULL;
}

static ZkOutcome
create_znode(ZkRoundTrip *trip, const char *path, ZkNodeKind kind,
			 const char *data, const ZkReply **reply)
{
	return zklock_roundtrip_ask(trip,
								zklock_client_create(zklock_session_client(),
													 path, kind, data),
								reply);
}
