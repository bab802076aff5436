/*-------------------------------------------------------------------------
 *
 * eviction.c
 *	  The word that is left for whoever is evicted: by whom.
 *
 * An eviction deletes a queue node, and the ensemble tells its owner that it
 * is gone, but not who it was.  So who evicts makes a znode beforehand,
 * beside the requests to release (recall_ask.c), where no lock's queue is,
 *
 *		<root>/.release/evicted-<queue node>.release
 *
 * and whoever finds his node gone looks for it, and deletes it.  One that
 * nobody fetches looks like a request to a queue node that is not there, and
 * is swept away as such by those who ask others.
 *
 * The one rule: nothing depends on it.  Without the word an eviction is the
 * same, and anybody may leave one.
 *
 *-------------------------------------------------------------------------
 */
#include "eviction.h"

#include "name.h"
#include "nodedata.h"
#include "recall.h"

/* How long an eviction, and an error, may be held up by it. */
#define TELL_MS 1000
#define HEAR_MS 1000

/* With so much below ".release" nobody leaves word any more. */
#define WORDS_MAX 1000

static bool word_path(char path[ZK_RECALL_PATH_SIZE], const char *lock_path,
					  int root_length, const char *node);
static const ZkReply *ask(ZkRoundTrip *trip, int64 deadline,
						  ZkRequest *request);

bool
zklock_eviction_tell(ZkRoundTrip *trip, const char *name, const char *node)
{
	ZkClient   *client = zklock_session_client();
	int64		deadline = zklock_client_now() + TELL_MS;
	int			root_length;
	char	   *lock_path = zklock_name_path(name, &root_length);
	char	   *data = zklock_nodedata_add(zklock_nodedata_build(0), "lock",
										   name);
	char	   *parent = psprintf("%.*s/" ZK_RELEASE_SUFFIX, root_length,
								  lock_path);
	char		path[ZK_RECALL_PATH_SIZE];
	const ZkReply *reply;

	if (!word_path(path, lock_path, root_length, node))
		return true;
	reply = ask(trip, deadline, zklock_client_get(client, parent));
	if (reply != NULL && reply->result == ZK_OK && reply->nbelow >= WORDS_MAX)
		return true;
	if (reply != NULL && reply->result == ZK_NO_NODE)
		reply = ask(trip, deadline,
					zklock_client_create(client, parent, ZK_CONTAINER, NULL,
										 0));
	if (reply != NULL && reply->result != ZK_SESSION_LOST)
		reply = ask(trip, deadline,
					zklock_client_create(client, path, ZK_PERSISTENT, data,
										 strlen(data)));
	return reply == NULL || reply->result != ZK_SESSION_LOST;
}

char *
zklock_eviction_hear(ZkRoundTrip *trip, const char *lock_path,
					 int root_length, const char *node)
{
	ZkClient   *client = zklock_session_client();
	ZkClientStatus status;
	ZkNodeData	who;
	char		path[ZK_RECALL_PATH_SIZE];
	const ZkReply *reply;

	if (!zklock_session_status(&status) ||
		status.state != ZK_CLIENT_CONNECTED ||
		!word_path(path, lock_path, root_length, node))
		return NULL;
	reply = ask(trip, zklock_client_now() + HEAR_MS,
				zklock_client_get(client, path));
	if (reply == NULL || reply->result != ZK_OK)
		return NULL;
	zklock_nodedata_parse(reply->data, reply->data_length, &who);
	zklock_client_free(zklock_client_remove(client, path, ZK_ANY_VERSION));
	return who.pid != 0 ? zklock_nodedata_describe(&who) : NULL;
}

/* false if the node's name is too long. */
static bool
word_path(char path[ZK_RECALL_PATH_SIZE], const char *lock_path,
		  int root_length, const char *node)
{
	char	   *word = psprintf("evicted-%s", node);

	return zklock_recall_path(path, lock_path, root_length, word);
}

/* A question of the trip with a deadline of its own, at which it is NULL. */
static const ZkReply *
ask(ZkRoundTrip *trip, int64 deadline, ZkRequest *request)
{
	ZkRoundTrip bounds = *trip;
	const ZkReply *reply;

	trip->deadline = Min(trip->deadline, deadline);
	trip->is_lock_timeout = false;
	reply = zklock_roundtrip_ask(trip, request);
	trip->deadline = bounds.deadline;
	trip->is_lock_timeout = bounds.is_lock_timeout;
	return reply;
}
