/*-------------------------------------------------------------------------
 *
 * program_step.c
 *	  The session's program: the steps of requests.  For each there is a row in
 *	  the table: what to send, and what follows from the answer.
 *
 *-------------------------------------------------------------------------
 */
#include "program_request.h"

#include <stdlib.h>
#include <string.h>

/*
 * QUOTAEXCEEDED of the server's KeeperException; no release of the library
 * has it.
 */
#define QUOTA_EXCEEDED (-125)

static int	send_create(Request *request);
static int	send_list(Request *request);
static int	send_list_and_watch(Request *request);
static int	send_get(Request *request);
static int	send_get_and_watch(Request *request);
static int	send_sync(Request *request);
static int	send_check(Request *request);
static int	send_check_of_other(Request *request);
static int	send_find(Request *request);
static int	send_check_of_path(Request *request, const char *path);
static int	send_set(Request *request);
static int	send_delete(Request *request);
static int	send_delete_of_other(Request *request);
static int	send_remove_guarded(Request *request);
static int	send_move(Request *request);
static int	send_exists(Request *request);
static int	send_erase(Request *request);
static int	send_get_acl(Request *request);
static int	send_keep_list(Request *request);
static int	send_unwatch(Request *request);
static bool after_create(Request *request);
static bool after_last(Request *request);
static bool after_watch(Request *request);
static bool after_announce(Request *request);
static bool after_move(Request *request);
static bool after_delete(Request *request);
static bool after_erase(Request *request);
static bool after_replace_create(Request *request);
static bool after_replace_find(Request *request);
static bool after_replace_check(Request *request);
static bool after_replace_delete(Request *request);
static bool after_unwatch(Request *request);
static void copy_stat(FrameReply *reply, const struct Stat *stat);
static void create_done(int rc, const char *value, const struct Stat *stat,
						const void *data);
static void learn_acl(Session *session, const char *path, int64_t czxid);
static void list_done(int rc, const struct String_vector *strings,
					  const void *data);
static void copy_children(Request *request,
						  const struct String_vector *strings);
static void get_done(int rc, const char *value, int length,
					 const struct Stat *stat, const void *data);
static void acl_done(int rc, struct ACL_vector *acl, struct Stat *stat,
					 const void *data);
static void check_done(int rc, const void *data);
static void look_done(int rc, const struct Stat *stat, const void *data);
static void find_done(int rc, const struct Stat *stat, const void *data);
static void stat_done(int rc, const struct Stat *stat, const void *data);
static void string_done(int rc, const char *value, const void *data);
static int	flags_of(ZkNodeKind kind);
static bool is_path(const char *path);

/*
 * How a step is sent, what follows from its answer, and whether the leader
 * has to answer it: see the functions below.
 */
static const struct
{
	int			(*send) (Request *request);
	bool		(*after) (Request *request);
	bool		is_led;
}			steps[] =

{
	[STEP_CREATE] = {send_create, after_create, true},
	[STEP_LIST] = {send_list, after_last, false},
	[STEP_LIST_AND_WATCH] = {send_list_and_watch, after_watch, false},
	[STEP_GET] = {send_get, after_last, false},
	[STEP_GET_AND_WATCH] = {send_get_and_watch, after_watch, false},
	[STEP_CHECK] = {send_check, after_last, true},
	[STEP_SET] = {send_set, after_last, true},
	[STEP_REMOVE] = {send_delete, after_last, true},
	[STEP_REMOVE_GUARDED] = {send_remove_guarded, after_last, true},
	[STEP_MOVE] = {send_move, after_move, true},
	[STEP_ANNOUNCE] = {send_set, after_announce, true},
	[STEP_DELETE] = {send_delete, after_delete, true},
	[STEP_ERASE] = {send_erase, after_erase, false},
	[STEP_REPLACE_CREATE] = {send_create, after_replace_create, true},
	[STEP_REPLACE_FIND] = {send_find, after_replace_find, false},
	[STEP_REPLACE_CHECK] = {send_check_of_other, after_replace_check, true},
	[STEP_REPLACE_DELETE] = {send_delete_of_other, after_replace_delete, true},
	[STEP_IS_CLOSED] = {send_get_acl, after_last, false},
	[STEP_LEARN_ACL] = {send_get_acl, after_last, false},
	[STEP_KEEP_LIST] = {send_keep_list, keep_listed, false},
	[STEP_UNWATCH] = {send_unwatch, after_unwatch, false},
	[STEP_HEARTBEAT] = {send_sync, after_last, true},
	[STEP_NUDGE] = {send_exists, after_last, false},
};

int
step_send(Request *request)
{
	return steps[request->step].send(request);
}

bool
step_after(Request *request)
{
	return steps[request->step].after(request);
}

bool
step_is_led(Step step)
{
	return steps[step].is_led;
}

/* ---------------------------------------------------------------------
 * Sending
 * ---------------------------------------------------------------------
 */

static int
send_create(Request *request)
{
	return zoo_acreate2(request->session->zh, request->path, request->data,
						request->data_length,
						acl_for(request->session, request->node_kind),
						flags_of(request->node_kind), create_done, request);
}

static int
send_list(Request *request)
{
	return zoo_aget_children(request->session->zh, request->path, 0,
							 list_done, request);
}

static int
send_list_and_watch(Request *request)
{
	return zoo_awget_children(request->session->zh, request->path,
							  follow_event, request->session,
							  list_done, request);
}

static int
send_get(Request *request)
{
	return zoo_awget(request->session->zh, request->path, NULL, NULL,
					 get_done, request);
}

static int
send_get_and_watch(Request *request)
{
	return zoo_awget(request->session->zh, request->path,
					 follow_event, request->session, get_done, request);
}

static int
send_sync(Request *request)
{
	return zoo_async(request->session->zh, request->path, string_done, request);
}

static int
send_check(Request *request)
{
	return send_check_of_path(request, request->path);
}

static int
send_check_of_other(Request *request)
{
	return send_check_of_path(request, request->other_path);
}

/* Who has made the new node of a REPLACE. */
static int
send_find(Request *request)
{
	return zoo_aexists(request->session->zh, request->path, 0, find_done,
					   request);
}

/*
 * The check tells that there is a node of that name, and whose it is a look
 * right behind it: our server knows by then what the check has met.  A node
 * that somebody has deleted and made anew has another czxid, and he cannot
 * choose it.
 */
static int
send_check_of_path(Request *request, const char *path)
{
	zhandle_t  *zh = request->session->zh;
	int			rc;

	request->is_looked_at = false;
	zoo_check_op_init(&request->op, path, -1);
	rc = zoo_amulti(zh, 1, &request->op, &request->op_result, check_done,
					request);	/* R6 */
	if (rc == ZOK && request->czxid != 0)
		request->is_looked_at = zoo_aexists(zh, path, 0, look_done,
											request) == ZOK;
	return rc;
}

static int
send_set(Request *request)
{
	return zoo_aset(request->session->zh, request->path,
					request->data != NULL ? request->data : "",
					request->data_length, request->version, stat_done, request);
}

static int
send_delete(Request *request)
{
	return zoo_adelete(request->session->zh, request->path, request->version,
					   step_void_done, request);
}

static int
send_delete_of_other(Request *request)
{
	return zoo_adelete(request->session->zh, request->other_path, -1,
					   step_void_done, request);
}

/* The guard goes first: if that is refused, nothing else is looked at. */
static int
send_remove_guarded(Request *request)
{
	const char *path = request->data;
	zoo_op_t	ops[1 + ZK_REMOVE_MAX];
	int			count = 0;

	if (is_unrecoverable(request->session->zh))
		return ZINVALIDSTATE;	/* R6 */
	request->op_results = calloc(1 + ZK_REMOVE_MAX,
								 sizeof(*request->op_results));
	if (request->op_results == NULL)
		return ZMARSHALLINGERROR;
	if (!is_path(request->path))
		return ZBADARGUMENTS;
	zoo_set_op_init(&ops[count++], request->path, "", 0, request->version, NULL);
	for (; path < request->data + request->data_length;
		 path += strlen(path) + 1)
	{
		if (!is_path(path))
			return ZBADARGUMENTS;
		zoo_delete_op_init(&ops[count++], path, -1);
	}
	return zoo_amulti(request->session->zh, count, ops, request->op_results,
					  step_void_done, request);
}

/* The node that goes is checked first: if it is gone that is the answer. */
static int
send_move(Request *request)
{
	zoo_op_t	ops[2];

	if (is_unrecoverable(request->session->zh))
		return ZINVALIDSTATE;	/* R6 */
	if (!is_path(request->other_path) || !is_path(request->path))
		return ZBADARGUMENTS;
	request->op_results = calloc(2, sizeof(*request->op_results));
	if (request->op_results == NULL)
		return ZMARSHALLINGERROR;
	zoo_delete_op_init(&ops[0], request->other_path, -1);
	zoo_create_op_init(&ops[1], request->path, request->data,
					   request->data_length,
					   acl_for(request->session, request->node_kind),
					   flags_of(request->node_kind), NULL, 0);
	return zoo_amulti(request->session->zh, 2, ops, request->op_results,
					  step_void_done, request);
}

static int
send_exists(Request *request)
{
	return zoo_aexists(request->session->zh, request->path, 0, stat_done,
					   request);
}

/*
 * The server that we are connected to now may not have heard of the node yet:
 * a write goes first, whatever comes of it, since the list is not older than
 * what the quorum agreed on then.  (A sync may be answered by a leader that
 * has been deposed and does not know it.)  Both go out together; nobody waits
 * for the write.
 */
static int
send_erase(Request *request)
{
	zoo_check_op_init(&request->op, request->path, -1);
	zoo_amulti(request->session->zh, 1, &request->op, &request->op_result,
			   step_void_done, NULL);
	return send_list(request);
}

static int
send_get_acl(Request *request)
{
	return zoo_aget_acl(request->session->zh, request->path, acl_done, request);
}

static int
send_keep_list(Request *request)
{
	return zoo_awget_children(request->session->zh, request->path,
							  follow_event, request->session,
							  list_done, request);
}

/*
 * Not zoo_aremove_watches(), which only asks the server whether there is a
 * watch.  The completion's type is a mistake in the library's header: it
 * takes the function itself.
 *
 * Without a connection the watch must not be among those that the library
 * asks for after the next one; but the request that sets it may be in its
 * queue.
 */
static int
send_unwatch(Request *request)
{
	if (!request->session->is_up)
		follow_remove_here(request->session, request->path,
						   request->is_of_list);
	return zoo_aremove_all_watches(request->session->zh, request->path,
								   request->is_of_list ? ZWATCHTYPE_CHILD :
								   ZWATCHTYPE_DATA, 0,
								   (void_completion_t *) step_void_done,
								   request);
}

/* ---------------------------------------------------------------------
 * What follows
 * ---------------------------------------------------------------------
 */

static bool
after_create(Request *request)
{
	return request->is_withdrawn && request_undo(request);
}

static bool
after_last(Request *request)
{
	(void) request;
	return false;
}

/* Without an answer, or a node, there is no watch. */
static bool
after_watch(Request *request)
{
	Session    *session = request->session;

	if (session->wait.path == NULL || session->wait.id != request->id)
		return false;
	session->wait.is_set = request->reply.result == ZK_OK;
	if (request->reply.result == ZK_NO_NODE)
		request->is_followed = wait_keep_promise(session);
	if (!session->wait.is_set)
		wait_forget(session);
	return false;
}

static bool
after_announce(Request *request)
{
	return request->reply.result == ZK_UNKNOWN_OUTCOME;
}

static bool
after_move(Request *request)
{
	if (request->reply.result == ZK_OK)
		parents_note_gone(request->session, request->other_path);
	return false;
}

static bool
after_delete(Request *request)
{
	ZkResult	result = request->reply.result;

	if (result == ZK_UNKNOWN_OUTCOME)
		return true;
	if (result != ZK_OK && result != ZK_NO_NODE && result != ZK_SESSION_LOST)
		session_set_error(request->session,
						  "Could not delete znode \"%s\": %s", request->path,
						  zerror(request->reply.code));
	else
		parents_note_gone(request->session, request->path);
	if (request->came_too_late)
		request->reply.result = ZK_NO_NODE;
	return false;
}

static bool
after_erase(Request *request)
{
	return request->reply.result == ZK_UNKNOWN_OUTCOME ||
		(request->reply.result == ZK_OK &&
		 request_become_delete_of_child(request));
}

static bool
after_replace_create(Request *request)
{
	ZkResult	result = request->reply.result;

	if (result == ZK_UNKNOWN_OUTCOME && !request->is_withdrawn)
		return true;
	if (result != ZK_OK && result != ZK_NODE_EXISTS &&
		result != ZK_UNKNOWN_OUTCOME)
		return false;
	request->step = request->is_withdrawn ? STEP_DELETE :
		result == ZK_OK ? STEP_REPLACE_CHECK : STEP_REPLACE_FIND;
	return true;
}

/*
 * The reply to our create was lost, so what it has made is not known; or it
 * was not us.
 */
static bool
after_replace_find(Request *request)
{
	FrameReply *reply = &request->reply;

	if (reply->result == ZK_UNKNOWN_OUTCOME && !request->is_withdrawn)
		return true;
	if (reply->result == ZK_SESSION_LOST)
		return false;
	request->came_too_late = reply->result != ZK_OK ||
		reply->ephemeral_owner != request->session->status.ticket.session_id;
	request->step = request->came_too_late || request->is_withdrawn ?
		STEP_DELETE : STEP_REPLACE_CHECK;
	return true;
}

/*
 * Both nodes at one time: nobody can have been let in between.  If the old
 * one had been deleted before the new one was there, the new one must not
 * stand ahead of who was.
 */
static bool
after_replace_check(Request *request)
{
	ZkResult	result = request->reply.result;

	if (result == ZK_UNKNOWN_OUTCOME && !request->is_withdrawn)
		return true;
	if (result == ZK_SESSION_LOST)
		return false;
	request->came_too_late = result == ZK_NO_NODE;
	request->step = result == ZK_OK && !request->is_withdrawn ?
		STEP_REPLACE_DELETE : STEP_DELETE;
	return true;
}

static bool
after_replace_delete(Request *request)
{
	if (request->reply.result == ZK_UNKNOWN_OUTCOME)
		return true;
	if (request->reply.result == ZK_NO_NODE)
		request->reply.result = ZK_OK;
	parents_note_gone(request->session, request->other_path);
	return request->is_withdrawn && request_undo(request);
}

/*
 * A server that knows of no watch, or a connection that has gone, has none;
 * but the library would ask for it again after the next reconnect.  Whoever
 * has begun to watch the node since has no answer yet.
 */
static bool
after_unwatch(Request *request)
{
	if (request->reply.result != ZK_OK)
		follow_remove_here(request->session, request->path,
						   request->is_of_list);
	return false;
}

/* ---------------------------------------------------------------------
 * Completions of the library
 * ---------------------------------------------------------------------
 */

static void
copy_stat(FrameReply *reply, const struct Stat *stat)
{
	reply->czxid = stat->czxid;
	reply->ephemeral_owner = stat->ephemeralOwner;
	reply->ctime_ms = stat->ctime;
	reply->mtime_ms = stat->mtime;
	reply->pzxid = stat->pzxid;
	reply->version = stat->version;
	reply->nbelow = stat->numChildren;
}

static void
create_done(int rc, const char *value, const struct Stat *stat,
			const void *data)
{
	Request    *request = (Request *) data;

	request_note_answer(request, rc);
	if (rc == ZOK && protocol_is_made(request->path, value))
		request->reply_path = strdup(value);
	if (rc == ZOK && request->reply_path == NULL)
		request->reply.result = ZK_UNKNOWN_OUTCOME; /* found by its GUID */
	if (rc == ZOK && stat != NULL)
		copy_stat(&request->reply, stat);
	if (rc == ZOK && request->node_kind == ZK_CONTAINER)
		parents_note_made(request->session, request->path);
	if (request->reply_path != NULL && request->node_kind >= ZK_EPHEMERAL)
		parents_note_node(request->session, request->reply_path);
	if (request->reply_path != NULL &&
		acl_wants_to_learn(request->session, request->node_kind))
		learn_acl(request->session, request->reply_path, request->reply.czxid);
	request_complete(request);
}

/* Nobody waits for it. */
static void
learn_acl(Session *session, const char *path, int64_t czxid)
{
	Request    *request = request_new_silent(session, STEP_LEARN_ACL, path);

	request->czxid = czxid;
	request_submit(request);
}

static void
list_done(int rc, const struct String_vector *strings, const void *data)
{
	Request    *request = (Request *) data;

	request_note_answer(request, rc);
	if (rc == ZOK)
		copy_children(request, strings);
	request_complete(request);
}

/*
 * A server can say that there are strings and send none, or say that one has
 * a negative length: the library hands on NULL then.
 */
static void
copy_children(Request *request, const struct String_vector *strings)
{
	int			count = strings != NULL && strings->data != NULL ?
		strings->count : 0;
	size_t		size = 0;
	char	   *next;

	for (int i = 0; i < count; i++)
		size += strings->data[i] != NULL ? strlen(strings->data[i]) + 1 : 1;
	free(request->reply_children);
	request->reply_children = next = malloc(size + 1);
	request->reply_children_size = next != NULL ? size : 0;
	request->reply.nchildren = next != NULL && count > 0 ? count : 0;
	if (next == NULL)
		request->reply.result = ZK_NO_MEMORY;
	for (int i = 0; next != NULL && i < count; i++)
	{
		const char *child = strings->data[i] != NULL ? strings->data[i] : "";
		size_t		length = strlen(child) + 1;

		memcpy(next, child, length);
		next += length;
	}
}

static void
get_done(int rc, const char *value, int length, const struct Stat *stat,
		 const void *data)
{
	Request    *request = (Request *) data;

	request_note_answer(request, rc);
	if (rc == ZOK && stat != NULL)
		copy_stat(&request->reply, stat);
	free(request->reply_data);	/* of an earlier attempt */
	request->reply_data = NULL;
	request->reply_data_length = 0;
	if (rc == ZOK && value != NULL && length > 0)
	{
		request->reply_data = malloc((size_t) length);
		if (request->reply_data != NULL)
		{
			memcpy(request->reply_data, value, (size_t) length);
			request->reply_data_length = length;
		}
		else
			request->reply.result = ZK_NO_MEMORY;
	}
	request_complete(request);
}

/* Names are learnt from the node that we have made, as we have made it. */
static void
acl_done(int rc, struct ACL_vector *acl, struct Stat *stat, const void *data)
{
	Request    *request = (Request *) data;

	request_note_answer(request, rc);
	if (rc == ZOK && acl != NULL && request->step == STEP_LEARN_ACL &&
		stat != NULL && stat->czxid == request->czxid && stat->aversion == 0)
		acl_learn(request->session, acl);
	request->reply.is_closed = rc == ZOK &&
		acl_is_closed(request->session, acl, stat);
	request->reply.is_open = rc == ZOK && acl_is_open(acl);
	request_complete(request);
}

/* The answer of the quorum, which dates the proof; look_done() is to come. */
static void
check_done(int rc, const void *data)
{
	Request    *request = (Request *) data;

	request_note_answer(request, rc);
	if (request->is_looked_at)
		return;
	if (rc == ZOK && request->czxid != 0)
		request->reply.result = ZK_UNKNOWN_OUTCOME; /* it could not be sent */
	request_complete(request);
}

static void
look_done(int rc, const struct Stat *stat, const void *data)
{
	Request    *request = (Request *) data;

	if (request->reply.result == ZK_OK && rc != ZOK)
		request->reply.result = step_result_of(rc);
	else if (request->reply.result == ZK_OK &&
			 (stat == NULL || stat->czxid != request->czxid))
		request->reply.result = ZK_NO_NODE;
	request_complete(request);
}

static void
find_done(int rc, const struct Stat *stat, const void *data)
{
	Request    *request = (Request *) data;

	request_note_answer(request, rc);
	if (rc == ZOK && stat != NULL)
		copy_stat(&request->reply, stat);
	request_complete(request);
}

/* An exists or a set: what it says of the node is not of interest. */
static void
stat_done(int rc, const struct Stat *stat, const void *data)
{
	(void) stat;
	step_void_done(rc, data);
}

static void
string_done(int rc, const char *value, const void *data)
{
	(void) value;
	step_void_done(rc, data);
}

/* For the write that an ERASE sends ahead of its list nobody waits. */
void
step_void_done(int rc, const void *data)
{
	if (data == NULL)
		return;
	request_note_answer((Request *) data, rc);
	request_complete((Request *) data);
}

/* ---------------------------------------------------------------------
 * The library's terms
 * ---------------------------------------------------------------------
 */

static int
flags_of(ZkNodeKind kind)
{
	switch (kind)
	{
		case ZK_PERSISTENT:
		case ZK_PERSISTENT_OWN:
			return 0;
		case ZK_CONTAINER:
			return ZOO_CONTAINER;
		case ZK_EPHEMERAL:
			return ZOO_EPHEMERAL;
		case ZK_EPHEMERAL_SEQUENTIAL:
			return ZOO_EPHEMERAL_SEQUENTIAL;
	}
	return 0;
}

/*
 * Does the library take that path?  Its parts may be names that a server has
 * listed, which can be anything.  NULL is none.
 */
static bool
is_path(const char *path)
{
	if (path == NULL)
		return false;
	do
	{
		size_t		length;

		if (*path++ != '/')
			return false;
		length = strcspn(path, "/");
		if (length == 0 || (length == 1 && path[0] == '.') ||
			(length == 2 && path[0] == '.' && path[1] == '.'))
			return false;
		for (size_t i = 0; i < length; i++)
			if ((unsigned char) path[i] < ' ')
				return false;
		path += length;
	} while (*path != '\0');
	return true;
}

ZkResult
step_result_of(int rc)
{
	switch (rc)
	{
		case ZOK:
			return ZK_OK;
		case ZNONODE:
			return ZK_NO_NODE;
		case ZNODEEXISTS:
			return ZK_NODE_EXISTS;
		case ZBADVERSION:
			return ZK_BAD_VERSION;
		case ZNOAUTH:
		case ZINVALIDACL:
			return ZK_NO_AUTH;
		case ZCONNECTIONLOSS:
		case ZOPERATIONTIMEOUT: /* R8: the server may execute it yet */
		case ZSYSTEMERROR:		/* no socket for the next attempt */
		case ZSESSIONMOVED:
		case ZRUNTIMEINCONSISTENCY: /* a reply out of order: it hangs up */
			return ZK_UNKNOWN_OUTCOME;
		case ZSESSIONEXPIRED:
		case ZINVALIDSTATE:
		case ZCLOSING:
		case ZAUTHFAILED:
		case ZSESSIONCLOSEDREQUIRESASLAUTH:
			return ZK_SESSION_LOST;
		case ZBADARGUMENTS:
			return ZK_BAD_ARGUMENTS;
		case ZUNIMPLEMENTED:
			return ZK_UNIMPLEMENTED;
		case QUOTA_EXCEEDED:
			return ZK_QUOTA_EXCEEDED;
		case ZMARSHALLINGERROR: /* before sending: out of memory */
			return ZK_NO_MEMORY;
		default:
			return ZK_FAILED;
	}
}
