/*-------------------------------------------------------------------------
 *
 * removal.c
 *	  Deletes a znode for certain, and no later one at the same path.
 *
 *-------------------------------------------------------------------------
 */
#include "removal.h"

#include "session.h"

/* What is to be done about a removal next? */
typedef enum RemovalStep
{
	REMOVAL_DELETE,
	REMOVAL_LOOK,				/* again */
	REMOVAL_OVER,
	REMOVAL_SESSION_LOST
} RemovalStep;

static RemovalStep look_at_removed(ZkRoundTrip *trip, ZkRemoval *removal,
								   int *guard_version);
static RemovalStep judge_guard(const ZkRemoval *removal, const ZkReply *guard,
							   int *guard_version);
static RemovalStep delete_removed(ZkRoundTrip *trip, ZkRemoval *removal,
								  int guard_version);

bool
zklock_removal_do(ZkRoundTrip *trip, ZkRemoval *removal)
{
	RemovalStep step = REMOVAL_LOOK;
	int			guard_version = ZK_ANY_VERSION;

	while (step == REMOVAL_LOOK || step == REMOVAL_DELETE)
	{
		if (step == REMOVAL_LOOK)
			step = look_at_removed(trip, removal, &guard_version);
		else
			step = delete_removed(trip, removal, guard_version);
	}
	return step == REMOVAL_OVER;
}

/*
 * Is the very same znode still there?  A delete whose reply was lost is sent
 * again only then: at a path that can be used again, as that of a record of
 * zk_run_once(), a later one is somebody else's.  With a guard, *guard_version
 * is as of before that look.
 */
static RemovalStep
look_at_removed(ZkRoundTrip *trip, ZkRemoval *removal, int *guard_version)
{
	const ZkReply *guard = NULL;
	const ZkReply *reply;

	if (removal->guard != NULL)
		zklock_roundtrip_get_ahead(trip, removal->guard);
	reply = zklock_roundtrip_read_newest(trip, ZK_GET, removal->path);
	if (removal->guard != NULL)
		guard = zklock_roundtrip_reply_ahead(trip);
	if (reply->result == ZK_SESSION_LOST)
		return REMOVAL_SESSION_LOST;
	if (reply->result != ZK_OK && reply->result != ZK_NO_NODE)
		zklock_session_raise(reply, removal->doing, removal->path);
	if (reply->result == ZK_NO_NODE || reply->czxid != removal->czxid ||
		(guard != NULL && guard->result == ZK_NO_NODE))
	{
		removal->is_removed = removal->is_tried;
		return REMOVAL_OVER;
	}
	if (removal->guard == NULL)
		return REMOVAL_DELETE;
	return judge_guard(removal, guard, guard_version);
}

/* By the reply to the read of the guard; NULL: it was lost. */
static RemovalStep
judge_guard(const ZkRemoval *removal, const ZkReply *guard,
			int *guard_version)
{
	if (guard == NULL || guard->result == ZK_UNKNOWN_OUTCOME)
		return REMOVAL_LOOK;
	if (guard->result != ZK_OK)
		zklock_session_raise(guard, removal->doing, removal->guard);
	if (guard->version == ZK_ANY_VERSION)
	{
		zklock_removal_advance(removal->guard);
		return REMOVAL_LOOK;
	}
	*guard_version = guard->version;
	return REMOVAL_DELETE;
}

static RemovalStep
delete_removed(ZkRoundTrip *trip, ZkRemoval *removal, int guard_version)
{
	bool		was_tried = removal->is_tried;
	ZkRequest  *request;
	const ZkReply *reply;

	if (removal->guard != NULL)
		request = zklock_client_remove_guarded(zklock_session_client(),
											   removal->guard, guard_version,
											   &removal->path, 1,
											   ZK_ANY_VERSION);
	else
		request = zklock_client_remove(zklock_session_client(), removal->path,
									   ZK_ANY_VERSION);
	removal->is_tried = true;
	reply = zklock_roundtrip_ask(trip, request);
	switch (reply->result)
	{
		case ZK_OK:
			removal->is_removed = true;
			return REMOVAL_OVER;
		case ZK_NO_NODE:
			removal->is_tried = was_tried;	/* this one was not done */
			zklock_roundtrip_check_refusal(trip, ZK_NO_NODE, removal->path,
										   removal->czxid, ZK_ANY_VERSION);
			return REMOVAL_LOOK;
		case ZK_BAD_VERSION:
			if (removal->guard == NULL) /* no version was the condition */
				zklock_session_raise(reply, removal->doing, removal->path);
			removal->is_tried = was_tried;	/* likewise */
			zklock_roundtrip_check_refusal(trip, ZK_BAD_VERSION,
										   removal->guard, 0, guard_version);
			return REMOVAL_LOOK;
		case ZK_UNKNOWN_OUTCOME:
			return REMOVAL_LOOK;
		case ZK_SESSION_LOST:
			return REMOVAL_SESSION_LOST;
		default:
			zklock_session_raise(reply, removal->doing, removal->path);
	}
}

void
zklock_removal_advance(const char *guard)
{
	zklock_client_free(zklock_client_set(zklock_session_client(), guard, "",
										 ZK_ANY_VERSION));
}
