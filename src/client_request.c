/*-------------------------------------------------------------------------
 *
 * client_request.c
 *	  Requests of a backend: made, followed, freed.
 *
 * Each request is a frame to the session's program, and its reply one back;
 * what has to go on while the backend is busy or idle (repeating, undoing) is
 * the program's.  The program is handed numbers: a reply to a request that no
 * longer exists finds nothing.
 *
 *-------------------------------------------------------------------------
 */
#include "client_private.h"

#include <stdlib.h>
#include <string.h>

/* No data, paths or texts with a frame. */
static const FrameBlob no_blobs[FRAME_NBLOBS];

/* What is asked for, and the blobs that go with it; see FrameRequest. */
typedef struct Order
{
	FrameRequest what;
	const char *path;
	const char *other_path;		/* or NULL */
	const char *data;			/* or NULL */
	int			length;
} Order;

static ZkRequest *new_request(ZkClient *client, RequestKind kind);
static ZkRequest *start_request(ZkClient *client, const Order *order);
static ZkRequest *start_plain(ZkClient *client, RequestKind kind,
							  const char *path);
static ZkRequest *start_watching(ZkClient *client, RequestKind kind,
								 const char *path);
static bool start_silent(ZkClient *client, RequestKind kind, const char *path,
						 const char *data, int length);
static bool put_request(ZkClient *client, uint64_t id, const Order *order);

ZkRequest *
zklock_client_create(ZkClient *client, const char *path, ZkNodeKind kind,
					 const char *data, int length)
{
	return start_request(client, &(Order) {
		.what.kind = REQUEST_CREATE, .what.node_kind = kind,
		.path = path, .data = data, .length = length
	});
}

ZkRequest *
zklock_client_list(ZkClient *client, const char *path)
{
	return start_plain(client, REQUEST_LIST, path);
}

ZkRequest *
zklock_client_get(ZkClient *client, const char *path)
{
	return start_plain(client, REQUEST_GET, path);
}

ZkRequest *
zklock_client_check(ZkClient *client, const char *path, int64_t czxid)
{
	return start_request(client, &(Order) {
		.what.kind = REQUEST_CHECK, .what.czxid = czxid,
		.path = path
	});
}

ZkRequest *
zklock_client_get_acl(ZkClient *client, const char *path)
{
	return start_plain(client, REQUEST_GET_ACL, path);
}

ZkRequest *
zklock_client_get_and_watch(ZkClient *client, const char *path)
{
	return start_watching(client, REQUEST_GET, path);
}

ZkRequest *
zklock_client_list_and_watch(ZkClient *client, const char *path)
{
	return start_watching(client, REQUEST_LIST, path);
}

ZkWatchNews
zklock_client_watch_news(ZkClient *client)
{
	client_look(client);
	return client->watch_news;
}

void
zklock_client_unwatch(ZkClient *client)
{
	if (client == NULL || client->watch_id == 0)
		return;
	client_look(client);
	if (!client->is_watch_used)
		client_put_note(client, FRAME_UNWATCH, client->watch_id);
	client->watch_id = 0;
}

ZkRequest *
zklock_client_replace(ZkClient *client, const char *from, int64_t czxid,
					  const char *to, const char *data)
{
	return start_request(client, &(Order) {
		.what.kind = REQUEST_REPLACE,
		.what.node_kind = ZK_EPHEMERAL, .what.czxid = czxid,
		.path = to, .other_path = from,
		.data = data, .length = (int) strlen(data)
	});
}

ZkRequest *
zklock_client_move(ZkClient *client, const char *from, const char *to,
				   const char *data, int length)
{
	return start_request(client, &(Order) {
		.what.kind = REQUEST_MOVE,
		.what.node_kind = ZK_PERSISTENT_OWN, .path = to,
		.other_path = from, .data = data, .length = length
	});
}

ZkRequest *
zklock_client_remove(ZkClient *client, const char *path, int version)
{
	return start_request(client, &(Order) {
		.what.kind = REQUEST_DELETE, .what.version = version,
		.path = path
	});
}

ZkRequest *
zklock_client_remove_guarded(ZkClient *client, const char *guard, int version,
							 const char *const *paths, int npaths)
{
	size_t		length = 0;
	char	   *data;
	char	   *next;
	ZkRequest  *request;

	for (int i = 0; i < npaths; i++)
		length += strlen(paths[i]) + 1;
	data = next = malloc(length);
	if (data == NULL)
		return NULL;
	for (int i = 0; i < npaths; i++)
		next = stpcpy(next, paths[i]) + 1;
	request = start_request(client, &(Order) {
		.what.kind = REQUEST_DELETE_GUARDED,
		.what.version = version, .path = guard, .data = data,
		.length = (int) length
	});
	free(data);
	return request;
}

ZkRequest *
zklock_client_set(ZkClient *client, const char *path, const char *data,
				  int length, int version)
{
	return start_request(client, &(Order) {
		.what.kind = REQUEST_SET, .what.version = version,
		.path = path, .data = data, .length = length
	});
}

const ZkReply *
zklock_client_reply(ZkRequest *request)
{
	if (!request->done)
		client_look(request->client);
	return request->done ? &request->reply : NULL;
}

/*
 * Of a request without an answer, at least the request must be sent: what it
 * asks for is done all the same.
 */
void
zklock_client_free(ZkRequest *request)
{
	if (request == NULL)
		return;
	if (request->kind == REQUEST_CREATE || request->kind == REQUEST_REPLACE)
		client_put_note(request->client, FRAME_FREE, request->id);
	if (!request->done)
		client_flush_unless_many(request->client);
	client_free_request(request);
}

void
zklock_client_withdraw(ZkRequest *request)
{
	if (request == NULL)
		return;
	client_put_note(request->client, FRAME_WITHDRAW, request->id);
	request->client->nwithdrawn++;
	client_flush_unless_many(request->client);
	client_free_request(request);
}

bool
zklock_client_delete(ZkClient *client, const char *path)
{
	return start_silent(client, REQUEST_DELETE, path, NULL, 0);
}

void
zklock_client_begin_many(ZkClient *client)
{
	if (client != NULL)
		client->many_depth++;
}

void
zklock_client_end_many(ZkClient *client)
{
	if (client != NULL && --client->many_depth == 0 && client->is_flush_due)
		zklock_client_flush(client);
}

bool
zklock_client_hand_over(ZkClient *client, const char *path)
{
	bool		is_set;

	zklock_client_begin_many(client);
	is_set = start_silent(client, REQUEST_SET, path, NULL, 0) &&
		start_silent(client, REQUEST_DELETE, path, NULL, 0);
	zklock_client_end_many(client);
	return is_set;
}

bool
zklock_client_announce(ZkClient *client, const char *path,
					   const char *data, int length)
{
	return start_silent(client, REQUEST_SET, path, data, length);
}

KeptLock *
zklock_client_kept(ZkClient *client)
{
	return client != NULL && client->channel.page != NULL ?
		client->channel.page->kept : NULL;
}

void
zklock_client_tell_kept(ZkClient *client, int slot, uint32_t generation,
						const char *node, const char *data)
{
	Frame		frame = {.kind = FRAME_KEEP};
	const FrameBlob blobs[FRAME_NBLOBS] = {
		frame_text(node), frame_text(data)
	};

	frame.u.keep.slot = (uint32_t) slot;
	frame.u.keep.generation = generation;
	client_put_frame(client, &frame, blobs);
	client_flush_unless_many(client);
}

/* ---------------------------------------------------------------------
 * For the family
 * ---------------------------------------------------------------------
 */

ZkRequest *
client_find_request(ZkClient *client, uint64_t id)
{
	uint64_t	slot = id & SLOT_MASK;
	ZkRequest  *request = slot < client->nslots ? client->slots[slot] : NULL;

	return request != NULL && request->id == id ? request : NULL;
}

void
client_free_request(ZkRequest *request)
{
	request->client->slots[request->id & SLOT_MASK] = NULL;
	free(request->path);
	free(request->texts);
	free(request);
}

void
client_put_note(ZkClient *client, FrameKind kind, uint64_t id)
{
	const Frame frame = {.kind = kind, .id = id};

	client_put_frame(client, &frame, no_blobs);
}

void
client_put_frame(ZkClient *client, const Frame *frame,
				 const FrameBlob blobs[FRAME_NBLOBS])
{
	if (client->status.state != ZK_CLIENT_LOST &&
		!zklock_channel_put(&client->channel, frame, blobs))
	{
		zklock_channel_break(&client->channel, ZK_CHANNEL_NO_MEMORY);
		client_note_end(client);
	}

	/* who frees what is answered is in no hurry */
	client->is_flush_due |= frame->kind != FRAME_FREE;
}

void
client_flush_unless_many(ZkClient *client)
{
	client->is_flush_due = true;
	if (client->many_depth == 0)
		zklock_client_flush(client);
}

/* ---------------------------------------------------------------------
 * Helpers
 * ---------------------------------------------------------------------
 */

/*
 * Make a request and give it a number.  NULL without memory, or with 2^16
 * requests under way.
 */
static ZkRequest *
new_request(ZkClient *client, RequestKind kind)
{
	ZkRequest  *request = calloc(1, sizeof(*request));
	uint64_t	slot = 0;
	bool		found = false;

	if (request == NULL)
		return NULL;
	for (uint64_t i = 0; i < client->nslots && !found; i++)
	{
		slot = (client->next_slot + i) % client->nslots;
		found = client->slots[slot] == NULL;
	}
	if (!found && client->nslots <= SLOT_MASK)
	{
		uint64_t	wider = client->nslots > 0 ? client->nslots * 2 : 64;
		ZkRequest **more = realloc(client->slots, wider * sizeof(*more));

		if (more != NULL)
		{
			memset(more + client->nslots, 0,
				   (wider - client->nslots) * sizeof(*more));
			slot = client->nslots;
			client->slots = more;
			client->nslots = wider;
			found = true;
		}
	}
	if (!found)
	{
		free(request);
		return NULL;
	}
	client->next_slot = (slot + 1) % client->nslots;
	client->generation++;
	request->id = (client->generation << SLOT_BITS) | slot;
	request->client = client;
	request->kind = kind;
	client->slots[slot] = request;
	return request;
}

/* Make a request and have it sent; NULL without memory. */
static ZkRequest *
start_request(ZkClient *client, const Order *order)
{
	bool		is_create = order->what.kind == REQUEST_CREATE;
	ZkRequest  *request = new_request(client, order->what.kind);

	if (request == NULL)
		return NULL;
	if (is_create)
		request->path = strdup(order->path);
	if ((!is_create || request->path != NULL) &&
		put_request(client, request->id, order))
		return request;
	client_free_request(request);
	return NULL;
}

/* The same for one that takes nothing but a path. */
static ZkRequest *
start_plain(ZkClient *client, RequestKind kind, const char *path)
{
	return start_request(client, &(Order) {
		.what.kind = kind, .path = path
	});
}

/* The same for a read whose node, or list, is watched from then on. */
static ZkRequest *
start_watching(ZkClient *client, RequestKind kind, const char *path)
{
	ZkRequest  *request = start_request(client, &(Order) {
		.what.kind = kind, .what.is_watched = true, .path = path
	});

	if (request == NULL)
		return NULL;
	client->watch_id = request->id;
	client->watch_news = ZK_WATCH_QUIET;
	client->is_watch_used = false;
	return request;
}

/* The same for one whose answer nobody waits for; false without memory. */
static bool
start_silent(ZkClient *client, RequestKind kind, const char *path,
			 const char *data, int length)
{
	const Order order = {
		.what.kind = kind, .what.version = ZK_ANY_VERSION,
		.path = path, .data = data, .length = length
	};

	if (!put_request(client, 0, &order))
		return false;
	client_flush_unless_many(client);
	return true;
}

/* Nothing is kept for a session that is over: nobody would send it. */
static bool
put_request(ZkClient *client, uint64_t id, const Order *order)
{
	const Frame frame = {
		.kind = FRAME_REQUEST, .id = id, .u.request = order->what
	};
	const FrameBlob blobs[FRAME_NBLOBS] = {
		frame_text(order->path), frame_text(order->other_path),
		{order->data, (size_t) order->length}
	};

	if (client->status.state == ZK_CLIENT_LOST)
		return true;
	if (!zklock_channel_put(&client->channel, &frame, blobs))
		return false;
	client->nrequests++;
	client->is_flush_due = true;
	return true;
}
