/*-------------------------------------------------------------------------
 *
 * recall.c
 *	  What others write for the owner of a queue node: requests to release
 *	  the lock, and who has evicted it.
 *
 * Both are znodes below the root, named for the queue node and with the
 * writer's identity as data.  No lock's queue is there.
 *
 *		<root>/.release/<queue node>.release			a request
 *		<root>/.release/evicted-<queue node>.release	an eviction
 *
 * recall_ask.c makes requests.  Nothing watches them: the holder reads its own
 * when zk_release_requested() is called, and at no other time.
 *
 * An eviction deletes a queue node.  Its owner learns from the ensemble that
 * the node is gone, but not who has deleted it.  So the session that evicts
 * writes down who it is before, and the owner reads and deletes that.  If the
 * owner does not, the znode is outdated like a request whose queue node is
 * gone, and is deleted with those (recall_ask.c).
 *
 * The one rule: nothing depends on these znodes, and anybody may write them.
 * If the ensemble does not answer soon there is none, and errors of ZooKeeper
 * are not reported.
 *
 *-------------------------------------------------------------------------
 */
#include "recall.h"

#include "utils/timestamp.h"

#include "nodedata.h"

/*
 * How long any of this may take at most.  A healthy server takes a
 * millisecond.
 */
#define PATIENCE_MS 1000

/* From that many znodes below ".release" on evictions are not written down. */
#define EVICTIONS_MAX 1000

static void be_brief(ZkRoundTrip *trip);
static void tell_user(const char *name, const ZkReply *request);
static char *describe_request(const ZkReply *request, bool with_who);

bool
zklock_recall_path(char path[ZK_RECALL_PATH_SIZE], const char *lock_path,
				   int root_length, const char *prefix, const char *node)
{
	return snprintf(path, ZK_RECALL_PATH_SIZE,
					"%.*s/" ZK_RELEASE_SUFFIX "/%s%s" ZK_RELEASE_SUFFIX,
					root_length, lock_path, prefix,
					node) < (int) ZK_RECALL_PATH_SIZE;
}

bool
zklock_recall_read(const char *name, const char *lock_path, int root_length,
				   const char *node, int64 *told)
{
	ZkRoundTrip trip = {.deadline = protocol_now() + PATIENCE_MS};
	char		path[ZK_RECALL_PATH_SIZE];
	const ZkReply *request;
	bool		is_there = false;

	if (!zklock_session_is_connected() ||
		!zklock_recall_path(path, lock_path, root_length, ZK_REQUEST, node))
		return false;
	PG_TRY();
	{
		request = zklock_roundtrip_read(&trip, ZK_GET, path);
		is_there = request != NULL && request->result == ZK_OK;
		if (is_there && request->czxid + request->version != *told)
		{
			*told = request->czxid + request->version;
			tell_user(name, request);
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
zklock_recall_remove(const char *lock_path, int root_length, const char *node)
{
	char		path[ZK_RECALL_PATH_SIZE];

	if (zklock_session_client() != NULL &&
		zklock_recall_path(path, lock_path, root_length, ZK_REQUEST, node))
		zklock_client_delete(zklock_session_client(), path);
}

bool
zklock_recall_tell_eviction(ZkRoundTrip *trip, const char *name, const char *node)
{
	int			root_length;
	char	   *lock_path = zklock_name_path(name, &root_length);
	char	   *data = zklock_nodedata_build(0, "lock",
											 zklock_nodedata_to_utf8(name), NULL);
	char		path[ZK_RECALL_PATH_SIZE];
	const ZkReply *reply;

	if (!zklock_recall_path(path, lock_path, root_length, ZK_EVICTION, node))
		return true;
	be_brief(trip);
	reply = zklock_roundtrip_read(trip, ZK_GET,
								  pnstrdup(path, strrchr(path, '/') - path));
	if (reply == NULL ||
		(reply->result == ZK_OK && reply->nbelow >= EVICTIONS_MAX))
		return true;
	reply = zklock_roundtrip_create(trip, path, root_length, ZK_PERSISTENT,
									data);
	return reply == NULL || reply->result != ZK_SESSION_LOST;
}

char *
zklock_recall_read_eviction(ZkRoundTrip *trip, const char *lock_path,
					 int root_length, const char *node)
{
	char		path[ZK_RECALL_PATH_SIZE];
	const ZkReply *reply;

	if (!zklock_session_is_connected() ||
		!zklock_recall_path(path, lock_path, root_length, ZK_EVICTION, node))
		return NULL;
	be_brief(trip);
	reply = zklock_roundtrip_read(trip, ZK_GET, path);
	if (reply == NULL || reply->result != ZK_OK)
		return NULL;
	zklock_client_free(zklock_client_remove(zklock_session_client(), path,
											ZK_ANY_VERSION));
	return zklock_recall_evictor(reply);
}

char *
zklock_recall_evictor(const ZkReply *written)
{
	ZkNodeData	who;

	zklock_nodedata_parse(written->data, written->data_length, &who);
	return who.pid != 0 ? zklock_nodedata_describe(&who) : NULL;
}

/* Bound the trip by PATIENCE_MS from now on, without an error at its end. */
static void
be_brief(ZkRoundTrip *trip)
{
	trip->deadline = Min(trip->deadline, protocol_now() + PATIENCE_MS);
	trip->by = ZK_BY_CALLER;
}

/* The log says who asks, and the client is told if he may know. */
static void
tell_user(const char *name, const ZkReply *request)
{
	ereport(LOG_SERVER_ONLY,
			(errmsg("release of ZooKeeper lock \"%s\" was requested",
					zklock_nodedata_quotable_own(name)),
			 errdetail("Requested %s.", describe_request(request, true))));
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
