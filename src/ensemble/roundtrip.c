/*-------------------------------------------------------------------------
 *
 * roundtrip.c
 *	  Requests to the ensemble, one at a time and awaited: retries, removals.
 *
 * Requests are malloc'ed memory of client.c, which no memory context
 * frees.  So zklock_roundtrip_run() has a PG_TRY.  A request that is freed
 * before its answer goes on: what it asks for may still be done.
 *
 *-------------------------------------------------------------------------
 */
#include "roundtrip.h"

#include "common/pg_prng.h"

#include "nodedata.h"
#include "text.h"

/*
 * A list of n znodes costs n names.  So up to LISTED_ALWAYS they are listed
 * each time, and beyond that once in LISTED_SELDOM times.  If one in k is
 * outdated, whoever makes one znode deletes on average ZK_SAMPLE_MAX / k,
 * beyond LISTED_ALWAYS ZK_SAMPLE_MAX / LISTED_SELDOM / k = 8 / k.  So old ones
 * go faster than new ones come as long as more than one in eight is outdated.
 */
#define LISTED_ALWAYS 256
#define LISTED_SELDOM 4

/*
 * For how long it is looked for who is in the way of what was to be made: a
 * healthy server takes a millisecond.
 */
#define IN_THE_WAY_MS 1000

/* One of many reads, palloc'ed. */
typedef struct Look
{
	ZkRead		read;
	ZkRequest  *request;
	char		path[FLEXIBLE_ARRAY_MEMBER];
} Look;

pg_noreturn static void raise_in_the_way(const ZkReply *reply,
										 const char *found);
static Look *find_look(const ZkRoundTrip *trip, ZkRead read, const char *path);
static const ZkReply *create(ZkRoundTrip *trip, ZkWriteTerms terms,
							 const char *path, ZkNodeKind kind,
							 const char *data);
static void end_talk(ZkRoundTrip *trip, void (*forget) (void *argument),
					 void *argument);

void
zklock_roundtrip_run(bool (*talk) (ZkRoundTrip *trip, void *argument),
					 void (*forget) (void *argument), void *argument)
{
	ZkBounds	bounds = zklock_bounds_of_task();

	zklock_roundtrip_run_within(&bounds, talk, forget, argument);
}

void
zklock_roundtrip_run_within(const ZkBounds *bounds,
							bool (*talk) (ZkRoundTrip *trip, void *argument),
							void (*forget) (void *argument), void *argument)
{
	ZkRoundTrip trip = {0};
	volatile bool is_over = false;
	bool		was_used = zklock_session_is_used();

	for (volatile bool is_again = false; !is_over; is_again = true)
	{
		/* whatever an attempt before has made of it */
		trip.deadline = bounds->deadline;
		trip.by = bounds->by;
		trip.terms = ZK_WRITE_BOUNDED;
		zklock_session_renew(is_again);
		zklock_session_open();
		PG_TRY();
		{
			is_over = talk(&trip, argument);
		}
		PG_CATCH();
		{
			/* a container that was made for what was refused */
			if (zklock_session_client() != NULL)
				zklock_roundtrip_unmake(&trip);
			end_talk(&trip, forget, argument);
			if (!was_used)
				zklock_session_end_use();
			PG_RE_THROW();
		}
		PG_END_TRY();
		end_talk(&trip, forget, argument);
	}
	if (!was_used)
		zklock_session_end_use();
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

	if (reply == NULL && trip->by == ZK_BY_LOCK_TIMEOUT)
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("canceling statement due to lock timeout"),
				 zklock_session_explain_silence()));
	if (reply == NULL && trip->by == ZK_BY_CONNECT_TIMEOUT)
		zklock_session_raise_silence(NULL);
	return reply;
}

const ZkReply *
zklock_roundtrip_read(ZkRoundTrip *trip, ZkRead read, const char *path)
{
	const ZkReply *reply;

	do
	{
		if (read == ZK_CHECK)
			zklock_write_note(trip->terms, 1);
		reply = zklock_roundtrip_ask(trip,
									 zklock_client_read(zklock_session_client(),
														read, path));
	} while (reply != NULL && reply->result == ZK_UNKNOWN_OUTCOME);
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
		const ZkReply *reply = zklock_roundtrip_read(trip, ZK_CHECK, path);

		if (reply == NULL || reply->result == ZK_SESSION_LOST)
			return reply;
		reply = zklock_roundtrip_ask(trip,
									 zklock_client_read(zklock_session_client(),
														read, path));
		if (reply == NULL || reply->result != ZK_UNKNOWN_OUTCOME)
			return reply;
	}
}

const ZkReply *
zklock_roundtrip_look(ZkRoundTrip *trip, ZkRead read, const char *path)
{
	Look	   *look = find_look(trip, read, path);

	if (look != NULL && look->request == NULL)
		return NULL;			/* no memory: who awaits it is told */
	if (look != NULL)
		return zklock_client_reply(look->request);
	look = palloc0(offsetof(Look, path) + strlen(path) + 1);
	look->read = read;
	strcpy(look->path, path);
	trip->looks = lappend(trip->looks, look);
	look->request = zklock_client_read(zklock_session_client(), read, path);
	return NULL;
}

/* NULL: that was not asked for. */
static Look *
find_look(const ZkRoundTrip *trip, ZkRead read, const char *path)
{
	foreach_ptr(Look, look, trip->looks)
		if (look->read == read && strcmp(look->path, path) == 0)
			return look;
	return NULL;
}

bool
zklock_roundtrip_await_looks(ZkRoundTrip *trip)
{
	foreach_ptr(Look, look, trip->looks)
	{
		const ZkReply *reply;

		while ((reply = zklock_roundtrip_await(trip, look->request)) != NULL &&
			   reply->result == ZK_UNKNOWN_OUTCOME)
		{
			zklock_client_free(look->request);
			look->request = zklock_client_read(zklock_session_client(),
											   look->read, look->path);
		}
		if (reply == NULL || reply->result == ZK_SESSION_LOST)
			return false;
	}
	return true;
}

void
zklock_roundtrip_end_looks(ZkRoundTrip *trip)
{
	zklock_roundtrip_end_looks_behind(trip, 0);
}

void
zklock_roundtrip_end_looks_behind(ZkRoundTrip *trip, int nkept)
{
	while (list_length(trip->looks) > nkept)
	{
		Look	   *look = llast(trip->looks);

		zklock_client_free(look->request);
		pfree(look);
		trip->looks = list_delete_last(trip->looks);
	}
}

bool
zklock_roundtrip_find_ephemeral(ZkRoundTrip *trip, const char *path,
								int length, const ZkReply **reply,
								char **found)
{
	int			nothers = list_length(trip->looks);
	const char *end = path + Max(length, 1) - 1;
	List	   *paths = NIL;

	*reply = NULL;
	*found = NULL;
	do
	{
		end = strchrnul(end + 1, '/');
		paths = lappend(paths, pnstrdup(path, end - path));
		(void) zklock_roundtrip_look(trip, ZK_GET, llast(paths));	/* asked for */
	} while (*end != '\0');
	if (!zklock_roundtrip_await_looks(trip))
		return false;
	foreach_ptr(char, one, paths)
	{
		*reply = zklock_roundtrip_look(trip, ZK_GET, one);
		*found = one;
		if (*reply != NULL && (*reply)->result == ZK_OK &&
			(*reply)->ephemeral_owner != 0)
			return true;
	}
	*reply = NULL;
	*found = NULL;
	zklock_roundtrip_end_looks_behind(trip, nothers);
	return true;
}

void
zklock_roundtrip_refuse_ephemeral(const ZkReply *reply, const char *path)
{
	ZkRoundTrip trip = {.deadline = protocol_now() + IN_THE_WAY_MS};
	const ZkReply *in_the_way;
	char	   *found;

	if (reply->result != ZK_FAILED)
		return;
	PG_TRY();
	{
		if (zklock_roundtrip_find_ephemeral(&trip, path, 1, &in_the_way,
											&found) && found != NULL)
			raise_in_the_way(in_the_way, found);
	}
	PG_CATCH();
	{
		zklock_roundtrip_end(&trip);
		PG_RE_THROW();
	}
	PG_END_TRY();
	zklock_roundtrip_end(&trip);
}

/* Raise that.  Only who may know is told whose it is. */
static void
raise_in_the_way(const ZkReply *reply, const char *found)
{
	unsigned long long owner = (unsigned long long) reply->ephemeral_owner;
	ZkNodeData	who;
	const char *whose;

	zklock_nodedata_parse(reply->data, reply->data_length, &who);
	whose = zklock_nodedata_describe(&who);
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("ephemeral znode \"%s\" is in the way",
					zklock_text_quotable(found)),
			 zklock_nodedata_may_be_shown() ?
			 errdetail("It belongs to session 0x%llx, %s. There can be no znode below it.",
					   owner, whose) :
			 errdetail("It belongs to another client's session. There can be no znode below it."),
			 errdetail_log("It belongs to session 0x%llx, %s. There can be no znode below it.",
						   owner, whose),
			 errhint("Another program may use that path for a lock of its own, which zklock cannot wait for. Use another name; or let that program use a recipe that docs/interop.md names.")));
}

void
zklock_roundtrip_get_ahead(ZkRoundTrip *trip, const char *path)
{
	zklock_roundtrip_ask_ahead(trip,
							   zklock_client_read(zklock_session_client(),
												  ZK_GET, path));
}

void
zklock_roundtrip_ask_ahead(ZkRoundTrip *trip, ZkRequest *request)
{
	zklock_client_free(trip->ahead);
	trip->ahead = request;
}

const ZkReply *
zklock_roundtrip_reply_ahead(ZkRoundTrip *trip)
{
	return trip->ahead != NULL ? zklock_client_reply(trip->ahead) : NULL;
}

int
zklock_roundtrip_count_parents(const char *path)
{
	int			count = 0;

	while ((path = strchr(path + 1, '/')) != NULL)
		count++;
	return count;
}

const ZkReply *
zklock_roundtrip_make_parents(ZkRoundTrip *trip, const char *path,
							  int root_length)
{
	const char *end = path;

	zklock_write_note(trip->terms, zklock_roundtrip_count_parents(path) + 1);
	while ((end = strchr(end + 1, '/')) != NULL)
	{
		char	   *parent = pnstrdup(path, end - path);
		const char *data = zklock_nodedata_of_parent(parent);
		bool		is_root = end - path <= root_length;
		const ZkReply *reply = is_root ?
			create(trip, ZK_WRITE_PAID, parent, ZK_PERSISTENT,
				   zklock_nodedata_build(0, NULL)) :
			create(trip, ZK_WRITE_PAID, parent, ZK_CONTAINER, data);

		/* where the server knows no containers, a znode that stays */
		if (reply != NULL && reply->result == ZK_UNIMPLEMENTED)
			reply = create(trip, ZK_WRITE_COUNTED, parent, ZK_PERSISTENT, data);
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

/* What stands in it by now keeps it; who was about to join makes it anew. */
void
zklock_roundtrip_unmake(ZkRoundTrip *trip)
{
	if (trip->made != NULL)
		zklock_client_free(zklock_client_remove(zklock_session_client(),
												trip->made, ZK_ANY_VERSION));
	trip->made = NULL;
}

const ZkReply *
zklock_roundtrip_create(ZkRoundTrip *trip, const char *path, int root_length,
						ZkNodeKind kind, const char *data)
{
	const ZkReply *reply = create(trip, trip->terms, path, kind, data);

	for (int attempts = 0; reply != NULL && reply->result == ZK_NO_NODE &&
		 attempts < PARENT_ATTEMPTS; attempts++)
	{
		reply = zklock_roundtrip_make_parents(trip, path, root_length);
		if (reply == NULL)
			reply = create(trip, ZK_WRITE_PAID, path, kind, data);
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

ZkSample *
zklock_roundtrip_begin_sample(ZkRoundTrip *trip, const char *parent,
							  int wait_ms)
{
	ZkSample   *sample = palloc0(sizeof(*sample));
	const ZkReply *list;
	int			first;

	if (trip->sample != NULL)
		zklock_roundtrip_end(&trip->sample->trip);
	trip->sample = sample;
	sample->trip.deadline = Min(trip->deadline, protocol_now() + wait_ms);
	list = zklock_roundtrip_read(&sample->trip, ZK_LIST, parent);
	if (list == NULL || list->result != ZK_OK || list->nchildren == 0)
		return sample;
	first = pg_prng_uint64_range(&pg_global_prng_state, 0, list->nchildren - 1);
	for (int i = 0; i < Min(list->nchildren, ZK_SAMPLE_MAX); i++)
	{
		sample->paths[i] =
			psprintf("%s/%s", parent[1] == '\0' ? "" : parent,
					 list->children[(first + i) % list->nchildren]);

		/* asked for: zklock_roundtrip_await_sample() has the reply */
		(void) zklock_roundtrip_look(&sample->trip, ZK_GET, sample->paths[i]);
		sample->nnodes++;
	}
	return sample;
}

const ZkReply *
zklock_roundtrip_await_sample(const ZkSample *sample, int index)
{
	return zklock_roundtrip_await(&sample->trip,
								  find_look(&sample->trip, ZK_GET,
											sample->paths[index])->request);
}

/*
 * A delete whose reply was lost is sent again only if the very same znode is
 * still there: at a path that can be used again, as that of a record of
 * zk_run_once(), a later one is somebody else's.
 */
bool
zklock_roundtrip_remove(ZkRoundTrip *trip, ZkRemoval *removal)
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
			zklock_roundtrip_advance(removal->guard);
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
zklock_roundtrip_advance(const char *guard)
{
	zklock_client_free(zklock_write_set(ZK_WRITE_COUNTED, guard, "",
										ZK_ANY_VERSION));
}

void
zklock_roundtrip_end(ZkRoundTrip *trip)
{
	zklock_client_free(trip->ahead);
	trip->ahead = NULL;
	zklock_client_free(trip->request);
	trip->request = NULL;
	zklock_roundtrip_end_looks(trip);
	if (trip->sample != NULL)
		zklock_roundtrip_end(&trip->sample->trip);
	trip->sample = NULL;
}

static void
end_talk(ZkRoundTrip *trip, void (*forget) (void *argument), void *argument)
{
	zklock_roundtrip_end(trip);
	if (forget != NULL)
		forget(argument);
}

static const ZkReply *
create(ZkRoundTrip *trip, ZkWriteTerms terms, const char *path,
	   ZkNodeKind kind, const char *data)
{
	return zklock_roundtrip_ask(trip,
								zklock_write_create(terms, path, kind, data));
}
