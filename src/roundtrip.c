/*-------------------------------------------------------------------------
 *
 * roundtrip.c
 *	  Requests to the ensemble, one at a time and awaited: bounds, retries,
 *	  removals.
 *
 * Requests are malloc'ed memory of client.c, which no memory context
 * frees.  So zklock_roundtrip_run() has a PG_TRY.  A request that is freed
 * before its answer goes on: what it asks for may still be done.
 *
 *-------------------------------------------------------------------------
 */
#include "roundtrip.h"

#include "common/pg_prng.h"
#include "storage/proc.h"

#include "nodedata.h"

/*
 * A list of n znodes costs n names.  So up to LISTED_ALWAYS they are listed
 * each time, and beyond that once in LISTED_SELDOM times.  If one in k is
 * outdated, whoever makes one znode deletes on average ZK_SAMPLE_MAX / k,
 * beyond LISTED_ALWAYS ZK_SAMPLE_MAX / LISTED_SELDOM / k = 8 / k.  So old ones
 * go faster than new ones come as long as more than one in eight is outdated.
 */
#define LISTED_ALWAYS 256
#define LISTED_SELDOM 4

/* One of many reads; all but the request is palloc'ed. */
typedef struct Look
{
	ZkRead		read;
	const char *path;
	ZkRequest  *request;
} Look;

static const ZkReply *make_container(ZkRoundTrip *trip, const char *path);
static const ZkReply *create(ZkRoundTrip *trip, const char *path,
							 ZkNodeKind kind, const char *data);
static void end_talk(ZkRoundTrip *trip, void (*forget) (void *argument),
					 void *argument);

int64
zklock_roundtrip_lock_deadline(void)
{
	return LockTimeout > 0 ? zklock_client_now() + LockTimeout :
		ZK_NO_DEADLINE;
}

void
zklock_roundtrip_run(bool (*talk) (ZkRoundTrip *trip, void *argument),
					 void (*forget) (void *argument), void *argument)
{
	ZkRoundTrip trip = {
		.deadline = zklock_roundtrip_lock_deadline(),
		.is_lock_timeout = true
	};
	volatile bool is_over = false;

	while (!is_over)
	{
		zklock_session_renew();
		zklock_session_open();
		PG_TRY();
		{
			is_over = talk(&trip, argument);
		}
		PG_CATCH();
		{
			end_talk(&trip, forget, argument);
			PG_RE_THROW();
		}
		PG_END_TRY();
		end_talk(&trip, forget, argument);
	}
}

const ZkReply *
zklock_roundtrip_ask(ZkRoundTrip *trip, ZkRequest *request)
{
	zklock_client_free(trip->request);
	trip->request = request;
	return zklock_roundtrip_await(trip, request);
}

const ZkReply *
zklock_roundtrip_await(const ZkRoundTrip *trip, ZkRequest *request)
{
	const ZkReply *reply = zklock_session_await(request, trip->deadline,
												ZK_WAITING_FOR_REPLY);

	if (reply == NULL && trip->is_lock_timeout)
		zklock_roundtrip_raise_timeout();
	return reply;
}

const ZkReply *
zklock_roundtrip_read(ZkRoundTrip *trip, ZkRead read, const char *path)
{
	const ZkReply *reply;

	do
		reply = zklock_roundtrip_ask(trip, read(zklock_session_client(), path));
	while (reply != NULL && reply->result == ZK_UNKNOWN_OUTCOME);
	return reply;
}

const ZkReply *
zklock_roundtrip_check(ZkRoundTrip *trip, const char *path, int64 czxid)
{
	const ZkReply *reply;

	do
		reply = zklock_roundtrip_ask(trip,
									 zklock_client_check(zklock_session_client(),
														 path, czxid));
	while (reply != NULL && reply->result == ZK_UNKNOWN_OUTCOME);
	return reply;
}

/*
 * A server may lag behind, or be a former leader that does not know it yet;
 * then its reads are old.  Such a server cannot answer the check, which goes
 * through the quorum, so a read behind the check is not older than it,
 * whatever the check's result.  That holds for one connection: after a
 * reconnect both are asked again.
 */
const ZkReply *
zklock_roundtrip_read_newest(ZkRoundTrip *trip, ZkRead read, const char *path)
{
	for (;;)
	{
		const ZkReply *reply = zklock_roundtrip_check(trip, path, 0);

		if (reply == NULL || reply->result == ZK_SESSION_LOST)
			return reply;
		reply = zklock_roundtrip_ask(trip,
									 read(zklock_session_client(), path));
		if (reply == NULL || reply->result != ZK_UNKNOWN_OUTCOME)
			return reply;
	}
}

const ZkReply *
zklock_roundtrip_look(ZkRoundTrip *trip, ZkRead read, const char *path)
{
	Look	   *look;
	ListCell   *cell;

	foreach(cell, trip->looks)
	{
		look = lfirst(cell);
		if (look->read == read && strcmp(look->path, path) == 0)
			return zklock_client_reply(look->request);
	}
	look = palloc0(sizeof(*look));
	look->read = read;
	look->path = pstrdup(path);
	trip->looks = lappend(trip->looks, look);
	look->request = read(zklock_session_client(), path);
	return NULL;
}

bool
zklock_roundtrip_await_looks(ZkRoundTrip *trip)
{
	ListCell   *cell;

	foreach(cell, trip->looks)
	{
		Look	   *look = lfirst(cell);
		const ZkReply *reply = zklock_roundtrip_await(trip, look->request);

		if (reply == NULL || reply->result == ZK_SESSION_LOST)
			return false;
		if (reply->result != ZK_UNKNOWN_OUTCOME)
			continue;
		zklock_client_free(look->request);
		look->request = NULL;
		look->request = look->read(zklock_session_client(), look->path);
	}
	return true;
}

void
zklock_roundtrip_send_ahead(ZkRoundTrip *trip, ZkRequest *request)
{
	zklock_client_free(trip->ahead);
	trip->ahead = request;
}

const ZkReply *
zklock_roundtrip_reply_ahead(ZkRoundTrip *trip)
{
	return trip->ahead != NULL ? zklock_client_reply(trip->ahead) : NULL;
}

/*
 * Create a container, which the server removes when it is empty; where it
 * knows none, a znode that stays.  The reply as of
 * zklock_roundtrip_ask().
 */
static const ZkReply *
make_container(ZkRoundTrip *trip, const char *path)
{
	const ZkReply *reply = create(trip, path, ZK_CONTAINER, NULL);

	return reply != NULL && reply->result == ZK_UNIMPLEMENTED ?
		create(trip, path, ZK_PERSISTENT, NULL) : reply;
}

const ZkReply *
zklock_roundtrip_make_parents(ZkRoundTrip *trip, const char *path,
							  int root_length)
{
	const char *end = path;

	while ((end = strchr(end + 1, '/')) != NULL)
	{
		char	   *parent = pnstrdup(path, end - path);
		const ZkReply *reply = end - path <= root_length ?
			create(trip, parent, ZK_PERSISTENT, zklock_nodedata_build(0)) :
			make_container(trip, parent);

		if (reply == NULL)
			return NULL;
		switch (reply->result)
		{
			case ZK_OK:
			case ZK_NODE_EXISTS:
				break;
			case ZK_NO_NODE:	/* an empty one above was removed */
			case ZK_UNKNOWN_OUTCOME:
			case ZK_SESSION_LOST:
				return NULL;
			default:
				return reply;
		}
		pfree(parent);
	}
	return NULL;
}

const ZkReply *
zklock_roundtrip_create(ZkRoundTrip *trip, const char *path, int root_length,
						ZkNodeKind kind, const char *data)
{
	const ZkReply *reply = create(trip, path, kind, data);

	for (int attempts = 0; reply != NULL && reply->result == ZK_NO_NODE &&
		 attempts < PARENT_ATTEMPTS; attempts++)
	{
		reply = zklock_roundtrip_make_parents(trip, path, root_length);
		if (reply == NULL)
			reply = create(trip, path, kind, data);
	}
	return reply;
}

bool
zklock_roundtrip_should_sample(int nchildren)
{
	return nchildren > 0 &&
		(nchildren <= LISTED_ALWAYS ||
		 pg_prng_uint64_range(&pg_global_prng_state, 1, LISTED_SELDOM) == 1);
}

void
zklock_roundtrip_begin_sample(ZkSample *sample, const char *parent,
							  int wait_ms)
{
	ZkClient   *client = zklock_session_client();
	const ZkReply *list;
	int			nnodes;
	int			first;

	zklock_roundtrip_end_sample(sample);
	sample->deadline = zklock_client_now() + wait_ms;
	sample->list = zklock_client_list(client, parent);
	list = zklock_session_await(sample->list, sample->deadline,
								ZK_WAITING_FOR_REPLY);
	if (list == NULL || list->result != ZK_OK || list->nchildren == 0)
		return;
	nnodes = Min(list->nchildren, ZK_SAMPLE_MAX);
	first = pg_prng_uint64_range(&pg_global_prng_state, 0, list->nchildren - 1);
	for (int i = 0; i < nnodes; i++)
	{
		sample->paths[i] =
			psprintf("%s/%s", parent[1] == '\0' ? "" : parent,
					 list->children[(first + i) % list->nchildren]);
		sample->reads[i] = zklock_client_get(client, sample->paths[i]);
		sample->nnodes++;
	}
}

const ZkReply *
zklock_roundtrip_await_sample(const ZkSample *sample, int index)
{
	return zklock_session_await(sample->reads[index], sample->deadline,
								ZK_WAITING_FOR_REPLY);
}

void
zklock_roundtrip_end_sample(ZkSample *sample)
{
	zklock_client_free(sample->list);
	for (int i = 0; i < sample->nnodes; i++)
		zklock_client_free(sample->reads[i]);
	memset(sample, 0, sizeof(*sample));
}

/*
 * A delete whose reply was lost is sent again only if the very same znode is
 * still there: at a path that can be used again, as that of a record of
 * zk_run_once(), a later one is somebody else's.
 */
bool
zklock_roundtrip_remove(ZkRoundTrip *trip, ZkRemoval *removal)
{
	for (;;)
	{
		const ZkReply *reply = zklock_roundtrip_read_newest(trip, zklock_client_get,
															removal->path);
		bool		was_tried = removal->is_tried;

		if (reply->result == ZK_SESSION_LOST)
			return false;
		if (reply->result != ZK_OK && reply->result != ZK_NO_NODE)
			zklock_session_raise(reply, removal->doing, removal->path);
		if (reply->result == ZK_OK && removal->czxid == 0)
			removal->czxid = reply->czxid;
		if (reply->result == ZK_NO_NODE || reply->czxid != removal->czxid)
		{
			removal->is_removed = was_tried;
			return true;
		}
		removal->is_tried = true;
		reply = zklock_roundtrip_ask(trip,
									 zklock_client_remove(zklock_session_client(),
														  removal->path,
														  ZK_ANY_VERSION));
		if (reply->result == ZK_SESSION_LOST)
			return false;
		if (reply->result == ZK_UNKNOWN_OUTCOME)
			continue;
		if (reply->result != ZK_OK && reply->result != ZK_NO_NODE)
			zklock_session_raise(reply, removal->doing, removal->path);
		removal->is_removed = reply->result == ZK_OK || was_tried;
		return true;
	}
}

void
zklock_roundtrip_end(ZkRoundTrip *trip)
{
	ListCell   *cell;

	zklock_client_free(trip->ahead);
	trip->ahead = NULL;
	zklock_client_free(trip->request);
	trip->request = NULL;
	foreach(cell, trip->looks)
		zklock_client_free(((Look *) lfirst(cell))->request);
	trip->looks = NIL;
}

void
zklock_roundtrip_raise_timeout(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("canceling statement due to lock timeout"),
			 zklock_session_explain_silence()));
}

static void
end_talk(ZkRoundTrip *trip, void (*forget) (void *argument), void *argument)
{
	zklock_roundtrip_end(trip);
	if (forget != NULL)
		forget(argument);
}

static const ZkReply *
create(ZkRoundTrip *trip, const char *path, ZkNodeKind kind, const char *data)
{
	ZkRequest  *request = zklock_client_create(zklock_session_client(), path,
											   kind, data,
											   data != NULL ? strlen(data) : 0);

	return zklock_roundtrip_ask(trip, request);
}
