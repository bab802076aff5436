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

static int	send_create(Request *request);
static int	send_list(Request *request);
static int	send_get(Request *request);
static int	send_sync(Request *request);
static int	send_check(Request *request);
static int	send_set(Request *request);
static int	send_delete(Request *request);
static int	send_delete_guarded(Request *request);
static int	send_create_guarded(Request *request);
static int	send_move(Request *request);
static int	send_several(Request *request, const zoo_op_t *ops, int count);
static int	send_erase(Request *request);
static int	send_get_acl(Request *request);
static int	send_unwatch(Request *request);
static bool after_list(Request *request);
static bool after_get(Request *request);
static bool after_delete(Request *request);
static bool after_leave(Request *request);
static bool tell_left(Request *request);
static bool after_erase(Request *request);
static bool after_replace(Request *request);
static bool after_replace_find(Request *request);
static bool after_replace_check(Request *request);
static bool undo_replace(Request *request);
static bool after_unwatch(Request *request);
static void note_answer(Request *request, int rc, const struct Stat *stat);
static void create_done(int rc, const char *value, const struct Stat *stat,
						const void *data);
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
static void erase_write_done(int rc, const void *data);
static void note_look(Request *request);
static void stat_done(int rc, const struct Stat *stat, const void *data);
static void string_done(int rc, const char *value, const void *data);
static int	flags_of(ZkNodeKind kind);
static const struct ACL_vector *acl_for(const Session *session,
										ZkNodeKind kind);
static bool is_open(const struct ACL_vector *acl);
static bool is_path(const char *path);

/*
 * A verb for the log, how a step is sent, what follows from its answer (NULL: nothing), and
 * whether the leader has to answer it: see the functions below.
 */
static const struct
{
	const char *word;
	int			(*send) (Request *request);
	bool		(*after) (Request *request);
	bool		is_led;
}			steps[] =

{
	[REQUEST_CREATE] = {"create", send_create, NULL, true},
	[REQUEST_LIST] = {"list", send_list, after_list, false},
	[REQUEST_GET] = {"read", send_get, after_get, false},
	[REQUEST_GET_ACL] = {"read the ACL of", send_get_acl, NULL, false},
	[REQUEST_CHECK] = {"check", send_check, NULL, true},
	[REQUEST_SET] = {"set", send_set, NULL, true},
	[REQUEST_DELETE] = {"delete", send_delete, after_delete, true},
	[REQUEST_LEAVE] = {"delete", send_delete, after_leave, true},
	[REQUEST_LEAVE_CHECK] = {"check", send_check, tell_left, true},
	[REQUEST_HELD] = {"list", send_list, held_listed, false},
	[REQUEST_DELETE_GUARDED] = {"delete nodes guarded by", send_delete_guarded, NULL, true},
	[REQUEST_CREATE_GUARDED] = {"create", send_create_guarded, NULL, true},
	[REQUEST_MOVE] = {"create", send_move, NULL, true},
	[REQUEST_REPLACE] = {"create", send_create, after_replace, true},
	[REQUEST_REPLACE_FIND] = {"read", send_get, after_replace_find, false},
	[REQUEST_REPLACE_CHECK] = {"check the node that is replaced by", send_check, after_replace_check, true},
	[REQUEST_ERASE] = {"look for", send_erase, after_erase, false},
	[REQUEST_UNWATCH] = {"remove the watch of", send_unwatch, after_unwatch, false},
	[REQUEST_HEARTBEAT] = {"sync", send_sync, NULL, true},
	[REQUEST_NUDGE] = {"read", send_get, NULL, false},
};

int
step_send(Request *request)
{
	return steps[request->kind].send(request);
}

AnswerMeaning
step_meaning(const Request *request)
{
	return answer_meaning(request->kind, request->is_repeated,
						  request->answer.reply.result);
}

/*
 * What a backend waits for is not repeated here, but where it has several
 * steps.
 */
bool
step_after(Request *request)
{
	bool		is_ours = request->is_repeated ||
		request->kind >= REQUEST_REPLACE;
	AnswerMeaning meaning = step_meaning(request);

	if (request_put_off(request))
		return true;
	request->is_in_doubt |= meaning == ANSWER_UNKNOWN;
	if (request->is_withdrawn && request_undo(request))
		return true;
	if (meaning == ANSWER_REPEAT && request->kind == REQUEST_LEAVE &&
		!request->is_unwanted)
		request_check_left(request);
	if (meaning == ANSWER_REPEAT ||
		(meaning == ANSWER_UNKNOWN && is_ours && request->session->link.is_up))
		return request_defer(request);
	if (meaning == ANSWER_UNKNOWN && is_ours)
	{
		/* it goes out with the next connection */
		backend_note(request->session, "asks again with the next connection to %s \"%s\": %s",
					 steps[request->kind].word, request->path,
					 code_words(request->answer.code));
		return true;
	}
	return steps[request->kind].after != NULL &&
		steps[request->kind].after(request);
}

const char *
step_word(RequestKind kind)
{
	return steps[kind].word;
}

bool
step_is_led(RequestKind kind)
{
	return steps[kind].is_led;
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
	return zoo_awget_children(request->session->zh, request->path,
							  request->is_watched ? follow_event : NULL,
							  request->session, list_done, request);
}

static int
send_get(Request *request)
{
	return zoo_awget(request->session->zh, request->path,
					 request->is_watched ? follow_event : NULL,
					 request->session, get_done, request);
}

static int
send_sync(Request *request)
{
	return zoo_async(request->session->zh, request->path, string_done, request);
}

/*
 * The check tells that there is a node of that name, and whose it is a look
 * right behind it: our server knows by then what the check has met.  A node
 * that somebody has deleted and made anew has another czxid, and he cannot
 * choose it.
 */
static int
send_check(Request *request)
{
	zhandle_t  *zh = request->session->zh;
	const char *path = request->kind == REQUEST_REPLACE_CHECK ?
		request->other_path : request->path;
	int			rc;

	request->check.is_looked_at = false;
	zoo_check_op_init(&request->check.op, path, -1);
	rc = zoo_amulti(zh, 1, &request->check.op, &request->check.result,
					check_done, request);	/* R6 */
	if (rc == ZOK && request->check.czxid != 0)
		request->check.is_looked_at = zoo_aexists(zh, path, 0, look_done,
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

/* The guard goes first: if that is refused, nothing else is looked at. */
static int
send_delete_guarded(Request *request)
{
	const char *path = request->data;
	zoo_op_t	ops[1 + ZK_REMOVE_MAX];
	int			count = 0;

	if (!is_path(request->path))
		return ZBADARGUMENTS;
	zoo_set_op_init(&ops[count++], request->path, "", 0, request->version, NULL);
	for (; path < request->data + request->data_length;
		 path += strlen(path) + 1)
	{
		if (!is_path(path))
			return ZBADARGUMENTS;
		zoo_delete_op_init(&ops[count++], path, request->node_version);
	}
	return send_several(request, ops, count);
}

/* That it is there already comes ahead of what the guard says. */
static int
send_create_guarded(Request *request)
{
	zoo_op_t	ops[2];

	if (!is_path(request->path) || !is_path(request->other_path))
		return ZBADARGUMENTS;
	zoo_create_op_init(&ops[0], request->path, request->data,
					   request->data_length,
					   acl_for(request->session, request->node_kind),
					   flags_of(request->node_kind), NULL, 0);
	zoo_check_op_init(&ops[1], request->other_path, request->version);
	return send_several(request, ops, 2);
}

/* The node that goes is checked first: if it is gone that is the answer. */
static int
send_move(Request *request)
{
	zoo_op_t	ops[2];

	if (!is_path(request->other_path) || !is_path(request->path))
		return ZBADARGUMENTS;
	zoo_delete_op_init(&ops[0], request->other_path, -1);
	zoo_create_op_init(&ops[1], request->path, request->data,
					   request->data_length,
					   acl_for(request->session, request->node_kind),
					   flags_of(request->node_kind), NULL, 0);
	return send_several(request, ops, 2);
}

static int
send_several(Request *request, const zoo_op_t *ops, int count)
{
	if (is_unrecoverable(request->session->zh))
		return ZINVALIDSTATE;	/* R6 */
	request->op_results = calloc((size_t) count, sizeof(*request->op_results));
	if (request->op_results == NULL)
		return ZMARSHALLINGERROR;
	return zoo_amulti(request->session->zh, count, ops, request->op_results,
					  step_void_done, request);
}

/*
 * The server that we are connected to now may not have heard of the node yet:
 * a write goes first, whatever comes of it, since the look is not older than
 * what the quorum agreed on then.  (A sync may be answered by a leader that
 * has been deposed and does not know it.)  Both go out together; nobody waits
 * for the write.
 */
static int
send_erase(Request *request)
{
	zoo_check_op_init(&request->check.op, request->path, -1);
	zoo_amulti(request->session->zh, 1, &request->check.op,
			   &request->check.result, erase_write_done, request->session);
	return request->other_path != NULL ? send_list(request) :
		send_get(request);
}

static int
send_get_acl(Request *request)
{
	return zoo_aget_acl(request->session->zh, request->path, acl_done, request);
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
	if (!request->session->link.is_up)
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
after_list(Request *request)
{
	return request->is_watched &&
		(request->id != 0 ? after_get(request) : keep_listed(request));
}

/* Without an answer, or a node, there is no watch. */
static bool
after_get(Request *request)
{
	Session    *session = request->session;

	if (!request->is_watched || session->wait.path == NULL ||
		session->wait.id != request->id)
		return false;
	session->wait.is_set = request->answer.reply.result == ZK_OK;
	if (!session->wait.is_set)
		wait_forget(session);
	return false;
}

/*
 * It has gone before: somebody else deleted it, unless an attempt of ours did
 * whose answer was lost.
 */
static bool
after_leave(Request *request)
{
	const Frame frame = {
		.kind = FRAME_REPLY,
		.u.reply = {.czxid = request->check.czxid,.nchildren = 1}
	};
	const FrameBlob blobs[FRAME_NBLOBS] = {
		frame_text(request->path), {0}, frame_text(request->data)
	};

	if (!request->is_unwanted)
		return tell_left(request);
	if (request->answer.reply.result == ZK_NO_NODE && !request->is_in_doubt)
		backend_put(request->session, &frame, blobs, true);
	return false;
}

/* The backend wants to know whether the node was there. */
static bool
tell_left(Request *request)
{
	ZkResult	result = request->answer.reply.result;

	if (result != ZK_OK && (result != ZK_NO_NODE || request->is_in_doubt))
		request->told = ZK_UNKNOWN_OUTCOME;
	return false;
}

/* Not there: if it may be made late, look again with the next connection. */
static bool
after_erase(Request *request)
{
	if (request->answer.reply.result == ZK_OK &&
		request_become_delete_of_found(request))
		return true;
	if (request->lateness == LATE_SEARCH)
		request_search_on(request);
	return false;
}

/*
 * A node that has a name may be made late more than once, if it was asked for
 * more than once.
 */
static bool
after_delete(Request *request)
{
	if (request->lateness == LATE_SEARCH && request->other_path == NULL)
		request_search_on(request);
	return false;
}

static bool
after_replace(Request *request)
{
	if (step_meaning(request) != ANSWER_DONE)
		return false;
	request->kind = request->answer.reply.result == ZK_OK ?
		REQUEST_REPLACE_CHECK : REQUEST_REPLACE_FIND;
	return true;
}

/*
 * The reply to our create was lost, so what it has made is not known; or it
 * was not us.
 */
static bool
after_replace_find(Request *request)
{
	FrameReply *reply = &request->answer.reply;

	if (reply->result == ZK_NO_AUTH ||	/* ours can be read */
		(step_meaning(request) == ANSWER_DONE && reply->ephemeral_owner !=
		 request->session->status.ticket.session_id))
		reply->result = ZK_NO_NODE;
	if (step_meaning(request) != ANSWER_DONE)
		return undo_replace(request);
	request->kind = REQUEST_REPLACE_CHECK;
	return true;
}

/*
 * Both nodes at one time: nobody can have been let in between, and the old one
 * goes, however often that takes.  If the old one had been deleted before the
 * new one was there, the new one must not stand ahead of who was.
 */
static bool
after_replace_check(Request *request)
{
	if (step_meaning(request) != ANSWER_DONE)
		return undo_replace(request);
	request_submit_delete(request->session, request->other_path);
	request->has_replaced = true;
	return false;
}

/* The new node of a REPLACE goes, and whoever asked is told why. */
static bool
undo_replace(Request *request)
{
	if (step_meaning(request) == ANSWER_OVER)
		return false;
	request->told = request->answer.reply.result;
	return request_become_delete(request);
}

/*
 * A server that knows of no watch, or a connection that has gone, has none;
 * but the library would ask for it again after the next reconnect.  Whoever
 * has begun to watch the node since has no answer yet.
 */
static bool
after_unwatch(Request *request)
{
	if (request->answer.reply.result != ZK_OK)
		follow_remove_here(request->session, request->path,
						   request->is_of_list);
	return false;
}

/* ---------------------------------------------------------------------
 * Completions of the library
 * ---------------------------------------------------------------------
 */

static void
note_answer(Request *request, int rc, const struct Stat *stat)
{
	FrameReply *reply = &request->answer.reply;

	request_note_answer(request, rc);
	if (rc != ZOK || stat == NULL)
		return;
	reply->czxid = stat->czxid;
	reply->ephemeral_owner = stat->ephemeralOwner;
	reply->ctime_ms = stat->ctime;
	reply->mtime_ms = stat->mtime;
	reply->version = stat->version;
	reply->nbelow = stat->numChildren;
	reply->nchanges = stat->cversion;
}

static void
create_done(int rc, const char *value, const struct Stat *stat,
			const void *data)
{
	Request    *request = (Request *) data;

	note_answer(request, rc, stat);
	if (rc == ZOK && protocol_is_made(request->path, value))
		request->answer.path = strdup(value);
	if (rc == ZOK && request->answer.path == NULL)
		request->answer.reply.result = ZK_UNKNOWN_OUTCOME; /* found by its GUID */
	request_complete(request);
}

static void
list_done(int rc, const struct String_vector *strings, const void *data)
{
	Request    *request = (Request *) data;

	request_note_answer(request, rc);
	if (rc == ZOK)
		copy_children(request, strings);
	note_look(request);
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
	free(request->answer.children);
	request->answer.children = next = malloc(size + 1);
	request->answer.children_size = next != NULL ? size : 0;
	request->answer.reply.nchildren = next != NULL && count > 0 ? count : 0;
	if (next == NULL)
		request->answer.reply.result = ZK_NO_MEMORY;
	for (int i = 0; next != NULL && i < count; i++)
		next = stpcpy(next, strings->data[i] != NULL ? strings->data[i] : "") +
			1;
}

static void
get_done(int rc, const char *value, int length, const struct Stat *stat,
		 const void *data)
{
	Request    *request = (Request *) data;
	Answer	   *answer = &request->answer;
	bool		has_data = rc == ZOK && value != NULL && length > 0;

	note_answer(request, rc, stat);
	if (request->kind == REQUEST_ERASE && answer->reply.result == ZK_NO_AUTH)
		answer->reply.result = ZK_NO_NODE;	/* ours can be read */
	free(answer->data);
	answer->data = has_data ? malloc((size_t) length) : NULL;
	answer->data_length = answer->data != NULL ? length : 0;
	if (answer->data != NULL)
		memcpy(answer->data, value, (size_t) length);
	else if (has_data)
		answer->reply.result = ZK_NO_MEMORY;
	note_look(request);
	request_complete(request);
}

static void
acl_done(int rc, struct ACL_vector *acl, struct Stat *stat, const void *data)
{
	Request    *request = (Request *) data;

	request_note_answer(request, rc);
	request->answer.reply.is_open = rc == ZOK && is_open(acl);
	request_complete(request);
}

/* The answer of the quorum, which dates the proof; look_done() is to come. */
static void
check_done(int rc, const void *data)
{
	Request    *request = (Request *) data;

	request_note_answer(request, rc);
	if (request->check.is_looked_at)
		return;
	if (rc == ZOK && request->check.czxid != 0)
		request->answer.reply.result = ZK_UNKNOWN_OUTCOME; /* it could not be sent */
	request_complete(request);
}

static void
look_done(int rc, const struct Stat *stat, const void *data)
{
	Request    *request = (Request *) data;

	if (request->answer.reply.result == ZK_OK && rc != ZOK)
		request->answer.reply.result = code_result(rc);
	else if (request->answer.reply.result == ZK_OK &&
			 (stat == NULL || stat->czxid != request->check.czxid))
		request->answer.reply.result = ZK_NO_NODE;
	request_complete(request);
}

static void
stat_done(int rc, const struct Stat *stat, const void *data)
{
	Request    *request = (Request *) data;

	note_answer(request, rc, stat);
	request_complete(request);
}

static void
string_done(int rc, const char *value, const void *data)
{
	step_void_done(rc, data);
}

void
step_void_done(int rc, const void *data)
{
	request_note_answer((Request *) data, rc);
	request_complete((Request *) data);
}

/*
 * For the write that an ERASE sends ahead of its look nobody waits.  But if it
 * was not executed, the look, whose answer is the next one of an ERASE, may be
 * as old as ever.
 */
static void
erase_write_done(int rc, const void *data)
{
	((Session *) data)->traffic.is_write_put_off =
		code_result(rc) == ZK_NOT_EXECUTED;
}

/* A look was answered, whatever it brought. */
static void
note_look(Request *request)
{
	if (request->kind == REQUEST_ERASE &&
		request->session->traffic.is_write_put_off &&
		request->answer.reply.result != ZK_SESSION_LOST)
		request->answer.reply.result = ZK_NOT_EXECUTED;
}

/* ---------------------------------------------------------------------
 * The library's terms
 * ---------------------------------------------------------------------
 */

static int
flags_of(ZkNodeKind kind)
{
	const int	flags[] = {
		[ZK_CONTAINER] = ZOO_CONTAINER,
		[ZK_EPHEMERAL] = ZOO_EPHEMERAL,
		[ZK_EPHEMERAL_SEQUENTIAL] = ZOO_EPHEMERAL_SEQUENTIAL,
		[ZK_PERSISTENT_SEQUENTIAL] = ZOO_PERSISTENT_SEQUENTIAL
	};

	return flags[kind];
}

/*
 * The ACL of a node that is to be created.  Everybody may read it, which other
 * clients of the recipe need to wait behind us; the rest is for whoever has
 * the credentials that this session has presented ("auth").  If these are its
 * own alone, they are to keep others from writing to its nodes, and parents
 * and leases are everybody's, as with every other client.
 */
static const struct ACL_vector *
acl_for(const Session *session, ZkNodeKind kind)
{
	static struct ACL entries[2];
	static const struct ACL_vector ours = {2, entries};
	bool		is_shared = kind == ZK_PERSISTENT || kind == ZK_CONTAINER ||
		kind == ZK_PERSISTENT_SEQUENTIAL;

	if (!session->has_auth ||
		(session->open.is_auth_private && is_shared))
		return &ZOO_OPEN_ACL_UNSAFE;
	entries[0] = (struct ACL) {ZOO_PERM_ALL, ZOO_AUTH_IDS};
	entries[1] = (struct ACL) {ZOO_PERM_READ, ZOO_ANYONE_ID_UNSAFE};
	return &ours;
}

/*
 * May everybody create or delete something in a node with that ACL?  It may be
 * what a hostile server has sent: without entries, or with one that has no
 * scheme or id.
 */
static bool
is_open(const struct ACL_vector *acl)
{
	for (int i = 0; acl != NULL && acl->data != NULL && i < acl->count; i++)
	{
		const struct ACL *entry = &acl->data[i];

		if ((entry->perms & (ZOO_PERM_CREATE | ZOO_PERM_DELETE |
							 ZOO_PERM_ADMIN)) != 0 &&
			entry->id.scheme != NULL && entry->id.id != NULL &&
			strcmp(entry->id.scheme, ZOO_ANYONE_ID_UNSAFE.scheme) == 0 &&
			strcmp(entry->id.id, ZOO_ANYONE_ID_UNSAFE.id) == 0)
			return true;
	}
	return false;
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
