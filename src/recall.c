/*-------------------------------------------------------------------------
 *
 * recall.c
 *	  Requests to release a lock, as its holder reads and removes them.
 *
 * A request is a znode below the root, named for the queue node of the holder
 * that is asked (recall_ask.c makes it).  Nothing watches it: the holder reads
 * it when zk_release_requested() is called, and at no other time.
 *
 * The one rule: requests are polite.  Where the ensemble does not answer soon
 * there was no request, and errors of ZooKeeper are not reported.
 *
 *-------------------------------------------------------------------------
 */
#include "recall.h"

#include "utils/timestamp.h"

#include "nodedata.h"
#include "roundtrip.h"

/*
 * How long the holder waits for the reply at most.  A healthy server takes a
 * millisecond.
 */
#define READ_MS 1000

/* Milliseconds between the Unix epoch and PostgreSQL's. */
#define EPOCH_DIFFERENCE_MS \
	((int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * SECS_PER_DAY * 1000)

static void tell_user(const char *name, const ZkReply *request);
static char *describe_request(const ZkReply *request, bool with_who);

bool
zklock_recall_path(char path[ZK_RECALL_PATH_SIZE], const char *lock_path,
				   int root_length, const char *node)
{
	return snprintf(path, ZK_RECALL_PATH_SIZE,
					"%.*s/" ZK_RELEASE_SUFFIX "/%s" ZK_RELEASE_SUFFIX,
					root_length, lock_path,
					node) < (int) ZK_RECALL_PATH_SIZE;
}

bool
zklock_recall_read(const char *name, const char *lock_path, int root_length,
				   const char *node, int64 *told_at)
{
	ZkRoundTrip trip = {.deadline = zklock_client_now() + READ_MS};
	ZkClientStatus status;
	char		path[ZK_RECALL_PATH_SIZE];
	const ZkReply *request;
	bool		is_there = false;

	if (!zklock_session_status(&status) ||
		status.state != ZK_CLIENT_CONNECTED ||
		!zklock_recall_path(path, lock_path, root_length, node))
		return false;
	PG_TRY();
	{
		request = zklock_roundtrip_read(&trip, zklock_client_get, path);
		is_there = request != NULL && request->result == ZK_OK;
		if (is_there && request->mtime_ms != *told_at)
		{
			*told_at = request->mtime_ms;
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
		zklock_recall_path(path, lock_path, root_length, node))
		zklock_client_delete(zklock_session_client(), path);
}

/* Who asks is in the log, and the client is told if he may know. */
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
 * "at ... by ...", or why instead of by whom, palloc'ed.  Both are what the
 * request says itself.
 */
static char *
describe_request(const ZkReply *request, bool with_who)
{
	ZkNodeData	who;
	TimestampTz when = (request->mtime_ms - EPOCH_DIFFERENCE_MS) * 1000;

	zklock_nodedata_parse(request->data, request->data_length, &who);
	if (with_who)
		return psprintf("at %s by %s", timestamptz_to_str(when),
						zklock_nodedata_describe(&who));
	if (who.text == NULL)
		return psprintf("at %s", timestamptz_to_str(when));
	return psprintf("at %s (%s)", timestamptz_to_str(when),
					zklock_nodedata_reason(&who));
}
