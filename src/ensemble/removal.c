/*-------------------------------------------------------------------------
 *
 * removal.c
 *	  Deletes a znode for certain, and no later one at the same path.
 *
 *-------------------------------------------------------------------------
 */
#include "removal.h"

#include "session.h"

static ZkOutcome read_removed(ZkRoundTrip *trip, const ZkRemoval *removal,
							  bool *is_there, int *guard_version);
static ZkOutcome delete_removed(ZkRoundTrip *trip, ZkRemoval *removal,
								int guard_version);

/*
 * A delete whose reply was lost is sent again only if the very same znode is
 * still there: at a path that can be used again, as that of a record of
 * zk_run_once(), a later one is somebody else's.
 */
ZkOutcome
zklock_removal_do(ZkRoundTrip *trip, ZkRemoval *removal)
{
	for (;;)
	{
		bool		is_there;
		int			guard_version;
		ZkOutcome	outcome = read_removed(trip, removal, &is_there,
										   &guard_version);

		if (outcome != ZK_ANSWERED)
			return outcome;
		if (!is_there)
		{
			removal->is_removed = removal->is_tried;
			return ZK_ANSWERED;
		}
		if (removal->guard != NULL && guard_version == ZK_ANY_VERSION)
			continue;
		outcome = delete_removed(trip, removal, guard_version);
		if (removal->is_removed || outcome == ZK_LATE || outcome == ZK_LOST)
			return outcome;
	}
}

/*
 * Is the very same znode still there?  With a guard, *guard_version is as of
 * before that look; ZK_ANY_VERSION: look again.
 */
static ZkOutcome
read_removed(ZkRoundTrip *trip, const ZkRemoval *removal, bool *is_there,
			 int *guard_version)
{
	const ZkReply *guard;
	const ZkReply *reply;
	ZkOutcome	outcome;

	*guard_version = ZK_ANY_VERSION;
	if (removal->guard != NULL)
		zklock_roundtrip_get_ahead(trip, removal->guard);
	outcome = zklock_roundtrip_read_newest(trip, ZK_GET, removal->path, &reply);
	if (outcome != ZK_ANSWERED)
		return outcome;
	if (reply->result != ZK_OK && reply->result != ZK_NO_NODE)
		zklock_session_raise(reply, removal->doing, removal->path);
	*is_there = reply->result == ZK_OK && reply->czxid == removal->czxid;
	if (!*is_there || removal->guard == NULL ||
		zklock_roundtrip_reply_ahead(trip, &guard) != ZK_ANSWERED)
		return ZK_ANSWERED;
	if (guard->result == ZK_NO_NODE)
		*is_there = false;
	else if (guard->result != ZK_OK)
		zklock_session_raise(guard, removal->doing, removal->guard);
	else if (guard->version == ZK_ANY_VERSION)
		zklock_removal_advance(removal->guard);
	else
		*guard_version = guard->version;
	return ZK_ANSWERED;
}

/* Sets removal->is_removed if it was this delete. */
static ZkOutcome
delete_removed(ZkRoundTrip *trip, ZkRemoval *removal, int guard_version)
{
	bool		was_tried = removal->is_tried;
	ZkRequest  *request;
	const ZkReply *reply;
	ZkOutcome	outcome;

	if (removal->guard != NULL)
		request = zklock_client_remove_guarded(zklock_session_client(),
											   removal->guard, guard_version,
											   &removal->path, 1,
											   ZK_ANY_VERSION);
	else
		request = zklock_client_remove(zklock_session_client(), removal->path,
									   ZK_ANY_VERSION);
	removal->is_tried = true;
	outcome = zklock_roundtrip_ask(trip, request, &reply);
	if (outcome != ZK_ANSWERED)
		return outcome;
	if (reply->result == ZK_OK)
	{
		removal->is_removed = true;
		return ZK_ANSWERED;
	}
	removal->is_tried = was_tried;	/* this one was not done */
	if (reply->result == ZK_NO_NODE)
		return zklock_roundtrip_check_refusal(trip, ZK_NO_NODE, removal->path,
											  removal->czxid, ZK_ANY_VERSION);
	if (reply->result == ZK_BAD_VERSION && removal->guard != NULL)
		return zklock_roundtrip_check_refusal(trip, ZK_BAD_VERSION,
											  removal->guard, 0, guard_version);
	zklock_session_raise(reply, removal->doing, removal->path);
}

void
zklock_removal_advance(const char *guard)
{
	zklock_client_free(zklock_client_set(zklock_session_client(), guard, "",
										 ZK_ANY_VERSION));
}
