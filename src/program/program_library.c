/*-------------------------------------------------------------------------
 *
 * program_library.c
 *	  Translates a step into calls of ZooKeeper's library, and its answer
 *	  back.
 *
 * No other module sends anything to the ensemble through the library.  What
 * follows from an answer is not decided here: request->answered is called.
 *
 *-------------------------------------------------------------------------
 */
#include "program_request.h"

#include <string.h>

static int	send_create(Request *request);
static int	send_root(Request *request);
static int	send_list(Request *request);
static int	send_get(Request *request);
static int	send_sync(Request *request);
static int	send_check(Request *request);
static int	send_set(Request *request);
static int	send_delete(Request *request);
static int	send_delete_guarded(Request *request);
static int	send_create_guarded(Request *request);
static int	send_move(Request *request);
static int	send_several(Request *request, const zoo_op_t *ops, int count,
						 void_completion_t done);
static int	send_erase(Request *request);
static int	send_get_acl(Request *request);
static int	send_unwatch(Request *request);
static watcher_fn watcher_of(const Request *request);
static bool dates_proofs(RequestKind step);
static void note_answer(Request *request, int rc, const struct Stat *stat);
static void create_done(int rc, const char *value, const struct Stat *stat,
						const void *data);
static void root_done(int rc, const void *data);
static void list_done(int rc, const struct String_vector *strings,
					  const void *data);
static void copy_children(Request *request,
						  const struct String_vector *strings);
static const char *name_of(const struct String_vector *strings, int i);
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
static void move_done(int rc, const void *data);
static void void_done(int rc, const void *data);
static int	flags_of(ZkNodeKind kind);
static void copy_writers(Request *request, const struct ACL_vector *acl);
static const struct ACL_vector *acl_for(const Session *session,
										ZkNodeKind kind);
static bool is_open(const struct ACL_vector *acl);
static bool is_path(const char *path);
static bool is_from_server(const Session *session);
static bool note_end(Session *session, int code);

/*
 * How the step is sent, and whether the leader has to answer it: see the
 * functions below.
 */
typedef struct LibraryStep
{
	int			(*send) (Request *request);
	bool		is_led;
} LibraryStep;

static const LibraryStep library_steps[] = {
	[REQUEST_CREATE] = {send_create, true},
	[REQUEST_LIST] = {send_list, false},
	[REQUEST_GET] = {send_get, false},
	[REQUEST_GET_ACL] = {send_get_acl, false},
	[REQUEST_CHECK] = {send_check, true},
	[REQUEST_SET] = {send_set, true},
	[REQUEST_DELETE] = {send_delete, true},
	[REQUEST_LEAVE] = {send_delete, true},
	[REQUEST_WATCHED] = {send_list, false},
	[REQUEST_DELETE_GUARDED] = {send_delete_guarded, true},
	[REQUEST_CREATE_GUARDED] = {send_create_guarded, true},
	[REQUEST_MOVE] = {send_move, true},
	[REQUEST_ERASE] = {send_erase, false},
	[REQUEST_UNWATCH] = {send_unwatch, false},
	[REQUEST_HEARTBEAT] = {send_sync, true},
	[REQUEST_NUDGE] = {send_get, false},
};
_Static_assert(sizeof(library_steps) / sizeof(library_steps[0]) == REQUEST_LAST + 1,
			   "each step is sent in some way");

bool
library_is_led(RequestKind step)
{
	return library_steps[step].is_led;
}

/* Is an answer to it noted in the contact log? */
static bool
dates_proofs(RequestKind step)
{
	return library_is_led(step) || step == REQUEST_NUDGE;
}

int
library_send(Request *request)
{
	Session    *session = request->session;
	Link	   *link = &session->link;
	int			rc;

	assert(request->state == REQUEST_SENT && request->answered != NULL);
	request->sent_over = link->number;
	if (library_is_led(request->step))
	{
		link->contact.asked_leader_at = request->sent_at.boot_ms;
		if (link->contact.unled_at == 0)
			link->contact.unled_at = request->sent_at.boot_ms;
	}
	if (dates_proofs(request->step))
		link->contact.asked_at = request->sent_at.boot_ms;
	if (session->zh == NULL)
		return ZINVALIDSTATE;
	rc = library_steps[request->step].send(request);

	/* what zoo_amulti() says on a handle that is over */
	if (rc == ZMARSHALLINGERROR && is_unrecoverable(session->zh))
		rc = ZINVALIDSTATE;
	session_check_connection(session);
	return rc;
}

/* ---------------------------------------------------------------------
 * Sending
 * ---------------------------------------------------------------------
 */

static int
send_create(Request *request)
{
	if (request->node_kind == ZK_ROOT)
		return send_root(request);
	return zoo_acreate2(request->session->zh, request->path,
						request->content.data, request->content.length,
						acl_for(request->session, request->node_kind),
						flags_of(request->node_kind), create_done, request);
}

/* The root and its child: both or none. */
static int
send_root(Request *request)
{
	const struct ACL_vector *acl = acl_for(request->session, ZK_ROOT);
	zoo_op_t	ops[2];
	char	   *child;
	int			rc;

	if (!is_path(request->path) ||
		asprintf(&child, "%s/" ZK_ROOT_CHILD, request->path) < 0)
		return ZBADARGUMENTS;
	zoo_create_op_init(&ops[0], request->path, request->content.data,
					   request->content.length, acl, 0, NULL, 0);
	zoo_create_op_init(&ops[1], child, NULL, -1, acl, 0, NULL, 0);
	rc = send_several(request, ops, 2, root_done);
	free(child);
	return rc;
}

static int
send_list(Request *request)
{
	return zoo_awget_children(request->session->zh, request->path,
							  watcher_of(request),
							  request->session, list_done, request);
}

static int
send_get(Request *request)
{
	return zoo_awget(request->session->zh, request->path,
					 watcher_of(request),
					 request->session, get_done, request);
}

static int
send_sync(Request *request)
{
	return zoo_async(request->session->zh, request->path, string_done, request);
}

/*
 * The check tells that there is a node of that name, and a look right behind
 * it tells whose it is: our server knows by then what the check has met.  A
 * node that another client has deleted and made again has another czxid, which
 * no client can choose.
 */
static int
send_check(Request *request)
{
	zhandle_t  *zh = request->session->zh;
	const char *path = request->path;
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
					request->content.data != NULL ? request->content.data : "",
					request->content.length, request->version, stat_done,
					request);
}

static int
send_delete(Request *request)
{
	return zoo_adelete(request->session->zh, request->path, request->version,
					   void_done, request);
}

/* The guard goes first: if that is refused, nothing else is looked at. */
static int
send_delete_guarded(Request *request)
{
	const Several *several = &request->several;
	const char *path = several->nodes;
	zoo_op_t	ops[1 + ZK_REMOVE_MAX];
	int			count = 0;

	if (!is_path(request->path))
		return ZBADARGUMENTS;
	zoo_set_op_init(&ops[count++], request->path, "", 0,
					several->guard_version, NULL);
	for (; path < several->nodes + several->nodes_length;
		 path += strlen(path) + 1)
	{
		if (!is_path(path))
			return ZBADARGUMENTS;
		zoo_delete_op_init(&ops[count++], path, several->node_version);
	}
	return send_several(request, ops, count, void_done);
}

/* That it is there already comes ahead of what the guard says. */
static int
send_create_guarded(Request *request)
{
	zoo_op_t	ops[2];

	if (!is_path(request->path) || !is_path(request->several.guard))
		return ZBADARGUMENTS;
	zoo_create_op_init(&ops[0], request->path,
					   request->content.data, request->content.length,
					   acl_for(request->session, request->node_kind),
					   flags_of(request->node_kind), NULL, 0);
	zoo_check_op_init(&ops[1], request->several.guard,
					  request->several.guard_version);
	return send_several(request, ops, 2, void_done);
}

/* The node that goes is checked first: if it is gone that is the answer. */
static int
send_move(Request *request)
{
	const Several *several = &request->several;
	zoo_op_t	ops[3];
	int			count = 2;

	if (!is_path(several->old_node) || !is_path(request->path) ||
		(several->set_node != NULL && !is_path(several->set_node)))
		return ZBADARGUMENTS;
	zoo_delete_op_init(&ops[0], several->old_node, -1);
	zoo_create_op_init(&ops[1], request->path,
					   request->content.data, request->content.length,
					   acl_for(request->session, request->node_kind),
					   flags_of(request->node_kind), NULL, 0);
	if (several->set_node != NULL)
		zoo_set_op_init(&ops[count++], several->set_node, several->set_data,
						(int) strlen(several->set_data), -1,
						&request->several.set_stat);
	return send_several(request, ops, count, move_done);
}

static int
send_several(Request *request, const zoo_op_t *ops, int count,
			 void_completion_t done)
{
	if (is_unrecoverable(request->session->zh))
		return ZINVALIDSTATE;	/* R6 */
	free(request->several.results);
	request->several.results = calloc((size_t) count,
									  sizeof(*request->several.results));
	if (request->several.results == NULL)
		return ZMARSHALLINGERROR;
	return zoo_amulti(request->session->zh, count, ops,
					  request->several.results, done, request);
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
	if (request->search.prefix != NULL)
		return send_list(request);
	return send_get(request);
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
	ZooWatcherType type = request->watch == WATCH_CHILDREN ? ZWATCHTYPE_CHILD :
		ZWATCHTYPE_DATA;

	if (!request->session->link.is_up)
		library_forget_watch(request->session, request->path, request->watch);
	return zoo_aremove_all_watches(request->session->zh, request->path, type, 0,
								   (void_completion_t *) void_done, request);
}

void
library_forget_watch(const Session *session, const char *path, WatchOf watch)
{
	ZooWatcherType type = watch == WATCH_CHILDREN ? ZWATCHTYPE_CHILD :
		ZWATCHTYPE_DATA;

	zoo_aremove_all_watches(session->zh, path, type, 1, NULL, NULL);
}

/* The watcher of a read: NULL if nothing is watched. */
static watcher_fn
watcher_of(const Request *request)
{
	return request->watch != WATCH_NONE ? request->session->watcher : NULL;
}

/* ---------------------------------------------------------------------
 * Completions of the library
 * ---------------------------------------------------------------------
 */

/* Does the library hand on what a server says, rather than that none does? */
static bool
is_from_server(const Session *session)
{
	return session->link.is_up &&
		zoo_state(session->zh) == ZOO_CONNECTED_STATE;
}

/*
 * A server that ends the session says so in its answer to the first request.
 * Result: was it that?
 */
static bool
note_end(Session *session, int code)
{
	if (!is_from_server(session) || code_loss(code) == ZK_LOSS_NONE)
		return false;
	session_note_end(session, code);
	return true;
}

/* Note what every answer tells. */
void
library_note_answer(Request *request, int code)
{
	Session    *session = request->session;
	Link	   *link = &session->link;
	FrameReply *reply = &request->answer.reply;
	int			timeout = session->status.session_timeout_ms;
	bool		is_said = is_from_server(session);

	assert(request->state == REQUEST_SENT);
	request->answer.code = code;
	reply->result = code_result(code);
	if (note_end(session, code))
	{
		if (session->status.state == ZK_CLIENT_LOST)
			reply->result = ZK_SESSION_LOST;
		return;
	}

	/* a server said that, and will say it again: nobody is to ask at once */
	if (reply->result == ZK_UNKNOWN_OUTCOME && is_said)
		reply->result = ZK_FAILED;
	if ((code != ZOK && code > ZAPIERROR) || reply->result == ZK_SESSION_LOST)
		return;					/* no server has said that */
	link->pace.nunanswered = link->pace.ndemands = 0;
	link->pace.nrounds = 0;
	if (reply->result == ZK_NOT_EXECUTED)
		return;					/* the leader may not have heard of it */
	reply->proof = contact_date(&link->contact.log, request->sent_at, timeout);
	if (dates_proofs(request->step))
		contact_note(&link->contact.log, request->sent_at, protocol_moment(),
					 timeout);
	if (library_is_led(request->step))
	{
		link->contact.led_at = protocol_now();
		link->contact.unled_at = 0;
	}
}

static void
note_answer(Request *request, int rc, const struct Stat *stat)
{
	FrameReply *reply = &request->answer.reply;

	library_note_answer(request, rc);
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
	request->answered(request);
}

static void
root_done(int rc, const void *data)
{
	Request    *request = (Request *) data;

	if (rc == ZOK)
		request->answer.path = program_need(strdup(request->path));
	void_done(rc, data);
}

static void
list_done(int rc, const struct String_vector *strings, const void *data)
{
	Request    *request = (Request *) data;

	library_note_answer(request, rc);
	if (rc == ZOK)
		copy_children(request, strings);
	note_look(request);
	request->answered(request);
}

/*
 * A server can say that there are strings and send none, or say that one has
 * a negative length: the library hands on NULL then.
 */
static void
copy_children(Request *request, const struct String_vector *strings)
{
	Answer	   *answer = &request->answer;
	size_t		size = 0;
	int			count = 0;
	char	   *next;

	if (strings != NULL && strings->data != NULL && strings->count > 0)
		count = strings->count;
	for (int i = 0; i < count; i++)
		size += strlen(name_of(strings, i)) + 1;
	free(answer->children);
	answer->children = next = malloc(size + 1);
	answer->children_size = 0;
	answer->reply.nchildren = 0;
	if (next == NULL)
	{
		request->answer.reply.result = ZK_NO_MEMORY;
		return;
	}
	answer->children_size = size;
	answer->reply.nchildren = count;
	for (int i = 0; i < count; i++)
		next = stpcpy(next, name_of(strings, i)) + 1;
}

/* One of them. */
static const char *
name_of(const struct String_vector *strings, int i)
{
	return strings->data[i] != NULL ? strings->data[i] : "";
}

static void
get_done(int rc, const char *value, int length, const struct Stat *stat,
		 const void *data)
{
	Request    *request = (Request *) data;
	Answer	   *answer = &request->answer;
	bool		has_data = rc == ZOK && value != NULL && length > 0;

	note_answer(request, rc, stat);
	if (request->step == REQUEST_ERASE && answer->reply.result == ZK_NO_AUTH)
		answer->reply.result = ZK_NO_NODE;	/* ours can be read */
	free(answer->data);
	answer->data = NULL;
	answer->data_length = 0;
	if (has_data)
		answer->data = malloc((size_t) length);
	if (answer->data != NULL)
	{
		memcpy(answer->data, value, (size_t) length);
		answer->data_length = length;
	}
	else if (has_data)
		answer->reply.result = ZK_NO_MEMORY;
	note_look(request);
	request->answered(request);
}

static void
acl_done(int rc, struct ACL_vector *acl, struct Stat *stat, const void *data)
{
	Request    *request = (Request *) data;

	library_note_answer(request, rc);
	request->answer.reply.is_open = rc == ZOK && is_open(acl);
	if (rc == ZOK)
		copy_writers(request, acl);
	request->answered(request);
}

/*
 * Each "scheme:id" that may do more than read.  One that has no scheme or no id,
 * which a hostile server can send, is a name that nobody has.
 */
static void
copy_writers(Request *request, const struct ACL_vector *acl)
{
	const int	writes = ZOO_PERM_CREATE | ZOO_PERM_DELETE | ZOO_PERM_WRITE |
		ZOO_PERM_ADMIN;
	struct String_vector names = {0};

	if (acl != NULL && acl->data != NULL && acl->count > 0)
		names.data = program_need(calloc((size_t) acl->count, sizeof(char *)));
	for (int i = 0; names.data != NULL && i < acl->count; i++)
	{
		const struct ACL *entry = &acl->data[i];
		const char *scheme = entry->id.scheme != NULL ? entry->id.scheme : "";
		const char *id = entry->id.id != NULL ? entry->id.id : "";

		if ((entry->perms & writes) == 0)
			continue;
		if (asprintf(&names.data[names.count], "%s:%s", scheme, id) < 0)
			(void) program_need(NULL);	/* it does not return */
		names.count++;
	}
	copy_children(request, &names);
	for (int i = 0; i < names.count; i++)
		free(names.data[i]);
	free(names.data);
}

/* The answer of the quorum, which dates the proof; look_done() is to come. */
static void
check_done(int rc, const void *data)
{
	Request    *request = (Request *) data;

	library_note_answer(request, rc);
	if (request->check.is_looked_at)
		return;
	if (rc == ZOK && request->check.czxid != 0)
		request->answer.reply.result = ZK_UNKNOWN_OUTCOME; /* it could not be sent */
	request->answered(request);
}

static void
look_done(int rc, const struct Stat *stat, const void *data)
{
	Request    *request = (Request *) data;

	(void) note_end(request->session, rc);	/* its result says the same */
	if (request->answer.reply.result == ZK_OK && rc != ZOK)
		request->answer.reply.result = code_result(rc);
	else if (request->answer.reply.result == ZK_OK &&
			 (stat == NULL || stat->czxid != request->check.czxid))
		request->answer.reply.result = ZK_NO_NODE;
	request->answered(request);
}

static void
stat_done(int rc, const struct Stat *stat, const void *data)
{
	Request    *request = (Request *) data;

	note_answer(request, rc, stat);
	request->answered(request);
}

static void
string_done(int rc, const char *value, const void *data)
{
	void_done(rc, data);
}

/*
 * One transaction has one zxid: the node that was made has that of the one that
 * was set.
 */
static void
move_done(int rc, const void *data)
{
	Request    *request = (Request *) data;

	library_note_answer(request, rc);
	if (rc == ZOK && request->several.set_node != NULL)
		request->answer.reply.czxid = request->several.set_stat.mzxid;
	request->answered(request);
}

static void
void_done(int rc, const void *data)
{
	Request    *request = (Request *) data;

	library_note_answer(request, rc);
	request->answered(request);
}

/*
 * For the write that an ERASE sends ahead of its look nobody waits.  But if it
 * was not executed, the look, whose answer is the next one of an ERASE, may be
 * as old as ever.
 */
static void
erase_write_done(int rc, const void *data)
{
	Session    *session = (Session *) data;
	bool		is_end = note_end(session, rc);

	session->traffic.is_write_put_off = !is_end &&
		code_result(rc) == ZK_NOT_EXECUTED;
}

/* A look was answered, whatever it brought. */
static void
note_look(Request *request)
{
	if (request->step == REQUEST_ERASE &&
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
		[ZK_ROOT] = 0
	};

	return flags[kind];
}

/*
 * The ACL of a node that is to be created.  Everybody may read it, which other
 * clients of the recipe need to wait behind us; the other rights are for
 * clients with the credentials that this session has presented ("auth").  If
 * these are its own alone, they are to keep others from writing to its nodes,
 * and parents and leases are everybody's, as with every other client.
 */
static const struct ACL_vector *
acl_for(const Session *session, ZkNodeKind kind)
{
	static struct ACL entries[2];
	static const struct ACL_vector ours = {2, entries};
	bool		is_shared = kind == ZK_PERSISTENT || kind == ZK_ROOT ||
		kind == ZK_CONTAINER;

	if (!session->has_auth ||
		(session->open.is_auth_private && is_shared))
		return &ZOO_OPEN_ACL_UNSAFE;
	entries[0] = (struct ACL) {ZOO_PERM_ALL, ZOO_AUTH_IDS};
	entries[1] = (struct ACL) {ZOO_PERM_READ, ZOO_ANYONE_ID_UNSAFE};
	return &ours;
}

/*
 * May everybody change a node with that ACL, or something in it?  It may be
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
							 ZOO_PERM_WRITE | ZOO_PERM_ADMIN)) != 0 &&
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
