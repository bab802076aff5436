/*-------------------------------------------------------------------------
 *
 * removal.c
 *	  A znode is deleted for certain, and no later one at its path.
 *
 *-------------------------------------------------------------------------
 */
#include "removal.h"

#include "session.h"
#include "write.h"

/*
 * A delete whose reply was lost is sent again only if the very same znode is
 * still there: at a path that can be used again, as that of a record of
 * zk_run_once(), a later one is somebody else's.
 */
bool
zklock_removal_do(ZkRoundTrip *trip, ZkRemoval *removal)
{
	ZkClient   *client = zklock_session_client();

	trip->terms = ZK_WRITE_COUNTED; /* no bound keeps anybody from removing */
	for (;;)
	{
		const ZkReply *reply;
		const ZkReply *guard;
		bool		was_tried = removal->is_tried;

		if (removal->guard != NULL)
			zklock_roundtrip_get_ahead(trip, removal->guard);
		reply = zklock_roundtrip_read_newest(trip, ZK_GET, removal->path);
		guard = removal->guard != NULL ? zklock_roundtrip_reply_ahead(trip) : NULL;
		if (reply->result == ZK_SESSION_LOST)
			return false;
		if (reply->result != ZK_OK && reply->result != ZK_NO_NODE)
			zklock_session_raise(reply, removal->doing, removal->path);
		if (reply->result == ZK_NO_NODE || reply->czxid != removal->czxid ||
			(guard != NULL && guard->result == ZK_NO_NODE))
		{
			removal->is_removed = was_tried;
			return true;
		}
		if (guard != NULL && guard->result != ZK_OK &&
			guard->result != ZK_UNKNOWN_OUTCOME)
			zklock_session_raise(guard, removal->doing, removal->guard);
		if (removal->guard != NULL &&
			(guard == NULL || guard->result != ZK_OK))
			continue;
		if (guard != NULL && guard->version == ZK_ANY_VERSION)
		{
			zklock_removal_advance(removal->guard);
			continue;
		}
		removal->is_tried = true;
		reply = zklock_roundtrip_ask(trip, guard == NULL ?
									 zklock_client_remove(client, removal->path,
														  ZK_ANY_VERSION) :
									 zklock_write_remove_guarded(removal->guard,
																 guard->version,
																 &removal->path, 1,
																 ZK_ANY_VERSION));
		switch (reply->result)
		{
			case ZK_OK:
				removal->is_removed = true;
				return true;
			case ZK_NO_NODE:
			case ZK_BAD_VERSION:
				removal->is_tried = was_tried;
				break;
			case ZK_UNKNOWN_OUTCOME:
				break;
			case ZK_SESSION_LOST:
				return false;
			default:
				zklock_session_raise(reply, removal->doing, removal->path);
		}
	}
}

void
zklock_removal_advance(const char *guard)
{
	zklock_client_free(zklock_write_set(ZK_WRITE_COUNTED, guard, "",
										ZK_ANY_VERSION));
}
