/*-------------------------------------------------------------------------
 *
 * release_request.c
 *	  Reads release requests, for the holder.
 *
 * A request is a znode below the root, named for the holder's queue node and
 * with the writer's identity as data.  No lock's queue is there.
 *
 *		<root>/.release/<queue node>.release
 *
 * release_request_ask.c makes requests.  Nothing watches them: a session reads its own
 * when zk_release_requested() is called, and at no other time.  That of a lease is
 * read with each renewal by its token (lease_node.c).
 *
 * The one rule: nothing depends on these znodes, and every client may write
 * them.  Without an answer of the ensemble in time there is no request, and
 * errors of ZooKeeper are not reported.
 *
 *-------------------------------------------------------------------------
 */
#include "release_request.h"

#include "utils/timestamp.h"

#include "nodedata.h"
#include "text.h"

/*
 * How long a read of a request may take at most.  A healthy server takes a
 * millisecond.
 */
#define PATIENCE_MS 1000

static void log_request(const char *name, const ZkReply *request);
static char *describe_request(const ZkReply *request, bool with_who);

bool
zklock_release_request_path(char path[ZK_RELEASE_REQUEST_SIZE], const char *lock_path,
							int root_length, const char *node)
{
	return snprintf(path, ZK_RELEASE_REQUEST_SIZE,
					"%.*s/" ZK_RELEASE_SUFFIX "/%s" ZK_RELEASE_SUFFIX,
					root_length, lock_path,
					node) < (int) ZK_RELEASE_REQUEST_SIZE;
}

bool
zklock_release_request_read(const char *name, const char *lock_path, int root_length,
							const char *node, int64 *told)
{
	ZkRoundTrip trip = {.deadline = protocol_now() + PATIENCE_MS};
	char		path[ZK_RELEASE_REQUEST_SIZE];
	const ZkReply *request;
	bool		is_there = false;

	if (!zklock_session_is_connected() ||
		!zklock_release_request_path(path, lock_path, root_length, node))
		return false;
	PG_TRY();
	{
		is_there = zklock_roundtrip_read(&trip, ZK_GET, path,
										 &request) == ZK_ANSWERED &&
			request->result == ZK_OK;
		if (is_there && request->czxid + request->version != *told)
		{
			*told = request->czxid + request->version;
			log_request(name, request);
			zklock_release_request_tell(name, request);
		}
	}
	PG_FINALLY();
	{
		zklock_roundtrip_end(&trip);
	}
	PG_END_TRY();
	return is_there;
}

void
zklock_release_request_get_ahead(ZkRoundTrip *trip, const char *lock_path,
								 int root_length, const char *node)
{
	char		path[ZK_RELEASE_REQUEST_SIZE];

	if (zklock_release_request_path(path, lock_path, root_length, node))
		zklock_roundtrip_get_ahead(trip, path);
	else
		zklock_roundtrip_ask_ahead(trip, NULL);
}

const ZkReply *
zklock_release_request_reply_ahead(const ZkRoundTrip *trip)
{
	const ZkReply *request;

	if (zklock_roundtrip_reply_ahead(trip, &request) == ZK_ANSWERED &&
		request->result == ZK_OK)
		return request;
	return NULL;
}

void
zklock_release_request_remove(const char *lock_path, int root_length, const char *node)
{
	char		path[ZK_RELEASE_REQUEST_SIZE];

	if (zklock_session_client() == NULL ||
		!zklock_release_request_path(path, lock_path, root_length, node))
		return;

	/* without memory it stays until somebody finds it outdated */
	(void) zklock_client_delete(zklock_session_client(), path,
								ZK_ANY_VERSION);
}

static void
log_request(const char *name, const ZkReply *request)
{
	ereport(LOG_SERVER_ONLY,
			(errmsg("release of ZooKeeper lock \"%s\" was requested",
					zklock_text_quotable_own(name)),
			 errdetail("Requested %s.", describe_request(request, true))));
}

/* Who asks is told if the client may know. */
void
zklock_release_request_tell(const char *name, const ZkReply *request)
{
	ereport(NOTICE,
			(errmsg("release of lock \"%s\" was requested", name),
			 errdetail("Requested %s.",
					   describe_request(request,
										zklock_nodedata_may_be_shown())),
			 errhint("Release it as soon as the work allows.")));
}

/*
 * "at ... by ...", or the reason instead of who, palloc'ed.  The request
 * itself says both.
 */
static char *
describe_request(const ZkReply *request, bool with_who)
{
	ZkNodeData	who;
	TimestampTz when = zklock_nodedata_date(request->mtime_ms);

	zklock_nodedata_parse(request->data, request->data_length, &who);
	if (with_who)
		return psprintf("at %s by %s", timestamptz_to_str(when),
						zklock_nodedata_describe(&who));
	if (who.text == NULL)
		return psprintf("at %s", timestamptz_to_str(when));
	return psprintf("at %s (%s)", timestamptz_to_str(when),
					zklock_nodedata_reason(&who));
}
