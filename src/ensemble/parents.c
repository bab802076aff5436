/*-------------------------------------------------------------------------
 *
 * parents.c
 *	  Creation of the znodes above a path.
 *
 *-------------------------------------------------------------------------
 */
#include "parents.h"

#include "nodedata.h"
#include "session.h"
#include "text.h"

static const ZkReply *make_container(ZkRoundTrip *trip, const char *path);
static const ZkReply *create(ZkRoundTrip *trip, ZkWriteTerms terms,
							 const char *path, ZkNodeKind kind,
							 const char *data);

int
zklock_parents_count(const char *path)
{
	int			count = 0;

	while ((path = strchr(path + 1, '/')) != NULL)
		count++;
	return count;
}

const ZkReply *
zklock_parents_make(ZkRoundTrip *trip, const char *path,
					int root_length)
{
	const char *end = path;

	zklock_write_note(trip->terms, zklock_parents_count(path) + 1);
	while ((end = strchr(end + 1, '/')) != NULL)
	{
		char	   *parent = pnstrdup(path, end - path);
		bool		is_root = end - path <= root_length;
		const ZkReply *reply;

		if (is_root)
			reply = create(trip, ZK_WRITE_PAID, parent, ZK_PERSISTENT,
						   zklock_nodedata_build(0, (char *) NULL));
		else
			reply = make_container(trip, parent);
		if (reply == NULL)
			return NULL;
		switch (reply->result)
		{
			case ZK_OK:
				if (!is_root)
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
	const ZkReply *reply = create(trip, trip->terms, path, kind, data);

	for (int attempts = 0; reply != NULL && reply->result == ZK_NO_NODE &&
		 attempts < PARENT_ATTEMPTS; attempts++)
	{
		reply = zklock_parents_make(trip, path, root_length);
		if (reply == NULL)
			reply = create(trip, ZK_WRITE_PAID, path, kind, data);
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
 * Create a container, which the server removes when it is empty; where it
 * knows none, a znode that stays.
 */
static const ZkReply *
make_container(ZkRoundTrip *trip, const char *path)
{
	const char *data = zklock_nodedata_of_parent(path);
	const ZkReply *reply = create(trip, ZK_WRITE_PAID, path, ZK_CONTAINER,
								  data);

	if (reply != NULL && reply->result == ZK_UNIMPLEMENTED)
		reply = create(trip, ZK_WRITE_COUNTED, path, ZK_PERSISTENT, data);
	return reply;
}

static const ZkReply *
create(ZkRoundTrip *trip, ZkWriteTerms terms, const char *path,
	   ZkNodeKind kind, const char *data)
{
	return zklock_roundtrip_ask(trip,
								zklock_write_create(terms, path, kind, data));
}
