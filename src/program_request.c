/*-------------------------------------------------------------------------
 *
 * program_request.c
 *	  The session's program: requests of the backend, from the frame to the reply.
 *
 * A request goes through steps.  For each there is a row in the table of
 * steps: what to send, and what follows from the answer.  What is to be
 * repeated or undone is so without the backend, which may be busy or idle for
 * hours.
 *
 * Who owns what: a request is in the list of its session and freed with its
 * last step, save for those that the backend may still undo or listen to:
 * these wait for its word.  The library has the pointer of a request from the
 * sending to the answer, and gives exactly one, with the end of the connection
 * at the latest.
 *
 *-------------------------------------------------------------------------
 */
#include "program.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * How long a request may stay unanswered before a nudge goes out behind it,
 * and between two nudges: a server 3.6.0 to 3.8.0 may forget to answer until
 * something else happens (R10, ZOOKEEPER-4537).
 */
#define NUDGE_MS 300

/* QUOTAEXCEEDED of the server's KeeperException; no release of the library has it. */
#define QUOTA_EXCEEDED (-125)

/* What is asked of the server at one time.  Rows of the table below. */
typedef enum Step
{
	STEP_CREATE,
	STEP_LIST,
	STEP_LIST_AND_WATCH,
	STEP_GET,
	STEP_GET_AND_WATCH,
	STEP_CHECK,
	STEP_SET,
	STEP_REMOVE,
	STEP_REMOVE_GUARDED,
	STEP_ANNOUNCE,
	STEP_DELETE,
	STEP_SWEEP,					/* is it there?  Then DELETE */
	STEP_ERASE,					/* list, then DELETE of the child found */
	STEP_REPLACE_CREATE,		/* first step of a replace */
	STEP_REPLACE_FIND,			/* it was there already: by us? */
	STEP_REPLACE_CHECK,			/* second: is the old node still there? */
	STEP_REPLACE_DELETE,		/* third */
	STEP_IS_CLOSED,
	STEP_LEARN_ACL,				/* of a node of ours */
	STEP_LISTEN,				/* is it there, with a watch */
	STEP_LISTEN_GET,			/* it is: what is in it? */
	STEP_UNWATCH,				/* remove a watch */
	STEP_HEARTBEAT,
	STEP_NUDGE					/* whatever the answer */
} Step;

struct Request
{
	uint64_t	id;				/* the backend's number; 0: it has none */
	Session    *session;
	Request    *next;			/* in the session's list, and the one before */
	Request    *previous;
	Step		step;
	bool		is_pending;		/* the library has it */
	bool		is_counted;		/* finished as far as the backend counts */
	bool		is_unwanted;	/* nobody waits for a reply */
	bool		is_withdrawn;	/* unwanted, and its node is to be removed */
	bool		came_too_late;	/* REPLACE: the old node was gone before */
	bool		is_outdated;	/* LISTEN: news came after it was sent */
	bool		is_urgent;		/* LISTEN: news interrupt the backend */
	bool		is_of_list;		/* UNWATCH: of children, not of data */
	ZkNodeKind	node_kind;		/* CREATE */
	int			version;		/* SET and REMOVE: that the node must have;
								 * REMOVE_GUARDED: the guard */
	Moment		sent_at;		/* the last attempt */
	int64_t		signalled_mzxid;	/* LISTEN: what the backend knows; 0: nothing */
	int64_t		signalled_at;	/* LISTEN: when it was interrupted for it */
	char	   *path;			/* node, or parent for LIST and ERASE */
	char	   *other_path;		/* ERASE: prefix of the child; REPLACE: the
								 * node to go */
	char	   *data;			/* CREATE, REPLACE, SET and ANNOUNCE;
								 * REMOVE_GUARDED: the nodes' paths */
	int			data_length;
	zoo_op_t	op;				/* CHECK; must outlive the call */
	zoo_op_result_t op_result;
	int64_t		czxid;			/* CHECK: that the node must have; 0: any */
	bool		is_looked_at;	/* CHECK: a look at the node is under way, too */
	zoo_op_result_t *op_results;	/* the same for REMOVE_GUARDED */

	/* the last answer */
	FrameReply	reply;
	char	   *reply_path;
	char	   *reply_data;
	int			reply_data_length;
	char	   *reply_children; /* one behind the other, with their NULs */
	size_t		reply_children_size;
};

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
static int	send_exists(Request *request);
static int	send_erase(Request *request);
static int	send_get_acl(Request *request);
static int	send_listen(Request *request);
static int	send_listen_get(Request *request);
static int	send_unwatch(Request *request);
static bool after_create(Request *request);
static bool after_last(Request *request);
static bool after_watch(Request *request);
static bool after_announce(Request *request);
static bool after_delete(Request *request);
static bool after_sweep(Request *request);
static bool after_erase(Request *request);
static bool after_replace_create(Request *request);
static bool after_replace_find(Request *request);
static bool after_replace_check(Request *request);
static bool after_replace_delete(Request *request);
static bool after_listen(Request *request);
static bool after_unwatch(Request *request);

/*
 * How a step is sent, and whether its answer leads to another: then the
 * request is changed as need be and sent once more.  What the leader has to
 * answer, and not our server from what it remembers, tells that both are in
 * touch.
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
	[STEP_ANNOUNCE] = {send_set, after_announce, true},
	[STEP_DELETE] = {send_delete, after_delete, true},
	[STEP_SWEEP] = {send_exists, after_sweep, false},
	[STEP_ERASE] = {send_erase, after_erase, false},
	[STEP_REPLACE_CREATE] = {send_create, after_replace_create, true},
	[STEP_REPLACE_FIND] = {send_find, after_replace_find, false},
	[STEP_REPLACE_CHECK] = {send_check_of_other, after_replace_check, true},
	[STEP_REPLACE_DELETE] = {send_delete_of_other, after_replace_delete, true},
	[STEP_IS_CLOSED] = {send_get_acl, after_last, false},
	[STEP_LEARN_ACL] = {send_get_acl, after_last, false},
	[STEP_LISTEN] = {send_listen, after_listen, false},
	[STEP_LISTEN_GET] = {send_listen_get, after_listen, false},
	[STEP_UNWATCH] = {send_unwatch, after_unwatch, false},
	[STEP_HEARTBEAT] = {send_sync, after_last, true},
	[STEP_NUDGE] = {send_exists, after_last, false},
};

/* With which step a request begins. */
static const Step first_steps[] = {
	[REQUEST_CREATE] = STEP_CREATE,
	[REQUEST_LIST] = STEP_LIST,
	[REQUEST_LIST_AND_WATCH] = STEP_LIST_AND_WATCH,
	[REQUEST_GET] = STEP_GET,
	[REQUEST_GET_AND_WATCH] = STEP_GET_AND_WATCH,
	[REQUEST_CHECK] = STEP_CHECK,
	[REQUEST_SET] = STEP_SET,
	[REQUEST_REMOVE] = STEP_REMOVE,
	[REQUEST_REMOVE_GUARDED] = STEP_REMOVE_GUARDED,
	[REQUEST_REPLACE] = STEP_REPLACE_CREATE,
	[REQUEST_LISTEN] = STEP_LISTEN,
	[REQUEST_IS_CLOSED] = STEP_IS_CLOSED,
	[REQUEST_DELETE] = STEP_DELETE,
	[REQUEST_HAND_OVER] = STEP_DELETE,
	[REQUEST_ANNOUNCE] = STEP_ANNOUNCE,
	[REQUEST_SWEEP] = STEP_SWEEP
};

static bool take_request(Session *session, const FrameTaken *taken);
static void forget(Request *request);
static void withdraw(Session *session, uint64_t id);
static void begin_watch(Session *session, const Request *request);
static void end_watch(Session *session);
static void forget_watch(Session *session);
static void submit_delete(Session *session, const char *path);
static void count_undone(Session *session);
static bool is_kept(const Request *request);
static Request *new_request(Session *session, Step step, const char *path);
static Request *new_silent(Session *session, Step step, const char *path);
static char *copy_blob(const FrameTaken *taken, int blob);
static bool has_paths(const FrameTaken *taken);
static bool remember(Session *session, Request *request);
static Request *find_request(const Session *session, uint64_t id);
static void free_request(Request *request);
static void submit(Request *request);
static int64_t next_ask(const Session *session);
static int64_t next_heartbeat(const Session *session);
static void note_answer(Request *request, int rc);
static void complete(Request *request);
static void put_reply(Request *request);
static void report_silence(Session *session);
static bool undo(Request *request);
static bool become_delete_of_child(Request *request);
static void resume_news(Session *session);
static int64_t next_interrupt(const Session *session);
static void put_heard(Request *request, bool is_settled);
static void tell_heard(Request *request);
static Request *listening_for(const Session *session, const char *path);
static bool is_watched(const Session *session, const char *path,
					   bool is_of_list);
static void remove_watches_here(const Request *request);
static void node_event(zhandle_t *zh, int type, int state, const char *path,
					   void *context);
static void heard_event(zhandle_t *zh, int type, int state, const char *path,
						void *context);
static void copy_stat(FrameReply *reply, const struct Stat *stat);
static void copy_children(Request *request, const struct String_vector *strings);
static void create_done(int rc, const char *value, const struct Stat *stat,
						const void *data);
static void list_done(int rc, const struct String_vector *strings,
					  const void *data);
static void get_done(int rc, const char *value, int length,
					 const struct Stat *stat, const void *data);
static void acl_done(int rc, struct ACL_vector *acl, struct Stat *stat,
					 const void *data);
static void learn_acl(Session *session, const char *path, int64_t czxid);
static void check_done(int rc, const void *data);
static void look_done(int rc, const struct Stat *stat, const void *data);
static void find_done(int rc, const struct Stat *stat, const void *data);
static void stat_done(int rc, const struct Stat *stat, const void *data);
static void string_done(int rc, const char *value, const void *data);
static void void_done(int rc, const void *data);
static int	flags_of(ZkNodeKind kind);
static ZkResult result_of_code(int rc);

/* ---------------------------------------------------------------------
 * From the backend
 * ---------------------------------------------------------------------
 */

bool
request_take(Session *session, const FrameTaken *taken)
{
	Request    *request;

	switch ((FrameKind) taken->frame.kind)
	{
		case FRAME_REQUEST:
			return take_request(session, taken);
		case FRAME_FREE:
			request = find_request(session, taken->frame.id);
			if (request != NULL)
				forget(request);
			return true;
		case FRAME_WITHDRAW:
			withdraw(session, taken->frame.id);
			return true;
		case FRAME_REPORT_SILENCE:
			session->reports_silence = true;
			report_silence(session);
			return true;
		case FRAME_RESUME_NEWS:
			resume_news(session);
			return true;
		case FRAME_UNWATCH:
			if (session->watch_path != NULL &&
				session->watch_id == taken->frame.id)
				end_watch(session);
			return true;
		case FRAME_OPEN:
		case FRAME_STATUS:
		case FRAME_REPLY:
		case FRAME_WATCH:
		case FRAME_HEARD:
		case FRAME_WAKE:
		case FRAME_TAKEN:
			break;
	}
	return false;
}

/*
 * Without memory the program ends: the backend cannot be told of a request
 * that nobody waits for, and its session goes with it.
 */
static bool
take_request(Session *session, const FrameTaken *taken)
{
	const FrameRequest *wanted = &taken->frame.u.request;
	Request    *request;

	if ((taken->frame.id == 0) != REQUEST_IS_SILENT(wanted->kind))
		return false;
	if (wanted->kind == REQUEST_REMOVE_GUARDED && !has_paths(taken))
		return false;
	if (wanted->kind == REQUEST_HAND_OVER)
	{
		/* a set of nothing, once, right ahead of the delete */
		request = new_silent(session, STEP_SET, taken->blobs[0]);
		submit(request);
	}
	request = new_request(session, first_steps[wanted->kind], taken->blobs[0]);
	request->id = taken->frame.id;
	request->is_unwanted = REQUEST_IS_SILENT(wanted->kind);
	request->node_kind = wanted->node_kind;
	if (wanted->kind == REQUEST_SET || wanted->kind == REQUEST_REMOVE ||
		wanted->kind == REQUEST_REMOVE_GUARDED)
		request->version = wanted->version;
	request->czxid = wanted->czxid;
	request->is_urgent = wanted->is_urgent != 0;
	request->signalled_mzxid = wanted->known_mzxid;
	request->other_path = copy_blob(taken, 1);
	request->data = copy_blob(taken, 2);
	request->data_length = (int) taken->frame.blob_lengths[2];
	if (is_kept(request) && !remember(session, request))
		exit(1);
	if (request->step == STEP_LIST_AND_WATCH ||
		request->step == STEP_GET_AND_WATCH)
		begin_watch(session, request);
	submit(request);
	return true;
}

/* The backend is done with a request that is kept for it. */
static void
forget(Request *request)
{
	request->is_unwanted = true;
	if (request->is_pending)
		return;
	if (request->step == STEP_LISTEN &&
		!is_watched(request->session, request->path, false))
	{
		request->step = STEP_UNWATCH;
		submit(request);
	}
	else
		free_request(request);
}

/*
 * Undo a create or a replace.  If it is not answered yet, its completion does
 * that.  A replace names its node, so that the delete can go out at once: what
 * this session asks next will not find the node any more.
 */
static void
withdraw(Session *session, uint64_t id)
{
	Request    *request = find_request(session, id);

	if (request == NULL || request->is_withdrawn || !is_kept(request))
	{
		count_undone(session);
		return;
	}
	request->is_unwanted = true;
	request->is_withdrawn = true;
	if (!request->is_pending)
	{
		if (undo(request))
			submit(request);
		else
		{
			free_request(request);
			count_undone(session);
		}
	}
	else if (request->step != STEP_CREATE)
		submit_delete(session, request->path);
}

/* Delete a node, until it is confirmed; nobody hears of it. */
static void
submit_delete(Session *session, const char *path)
{
	Request    *request = new_silent(session, STEP_DELETE, path);

	submit(request);
}

static void
count_undone(Session *session)
{
	const Frame wake = {.kind = FRAME_WAKE};
	const FrameBlob none[FRAME_NBLOBS] = {0};

	atomic_fetch_add(&session->page->nundone, 1);
	program_put(session, &wake, none, true);
}

/* ---------------------------------------------------------------------
 * Requests
 * ---------------------------------------------------------------------
 */

/* May the backend come back to it after it was answered? */
static bool
is_kept(const Request *request)
{
	switch (request->step)
	{
		case STEP_CREATE:
		case STEP_REPLACE_CREATE:
		case STEP_REPLACE_FIND:
		case STEP_REPLACE_CHECK:
		case STEP_REPLACE_DELETE:
		case STEP_LISTEN:
		case STEP_LISTEN_GET:
			return request->id != 0;
		case STEP_DELETE:
			return request->id != 0 && request->came_too_late;
		default:
			return false;
	}
}

/* Ends the program without memory, as take_request() explains. */
static Request *
new_request(Session *session, Step step, const char *path)
{
	Request    *request = calloc(1, sizeof(*request));

	if (request == NULL || (request->path = strdup(path)) == NULL)
		exit(1);
	request->session = session;
	request->step = step;
	request->version = -1;
	request->next = session->requests;
	if (session->requests != NULL)
		session->requests->previous = request;
	session->requests = request;
	return request;
}

/* One of our own, of which the backend knows nothing and hears nothing. */
static Request *
new_silent(Session *session, Step step, const char *path)
{
	Request    *request = new_request(session, step, path);

	request->is_unwanted = request->is_counted = true;
	return request;
}

static char *
copy_blob(const FrameTaken *taken, int blob)
{
	uint32_t	length = taken->frame.blob_lengths[blob];
	char	   *copy;

	if (length == 0)
		return NULL;
	copy = malloc(length);
	if (copy == NULL)
		exit(1);
	return memcpy(copy, taken->blobs[blob], length);
}

/* Is the data of a REMOVE_GUARDED as many paths as there may be? */
static bool
has_paths(const FrameTaken *taken)
{
	uint32_t	length = taken->frame.blob_lengths[2];
	int			count = 0;

	if (length == 0 || taken->blobs[2][length - 1] != '\0')
		return false;
	for (uint32_t i = 0; i < length; i++)
		count += taken->blobs[2][i] == '\0';
	return count <= ZK_REMOVE_MAX;
}

/* The backend may name it again: keep it by its slot, the low bits of its id. */
#define SLOT_MASK ((uint64_t) 0xffff)

static bool
remember(Session *session, Request *request)
{
	uint64_t	slot = request->id & SLOT_MASK;

	if (slot >= session->nslots)
	{
		uint64_t	wider = session->nslots > 0 ? session->nslots : 64;
		Request   **slots;

		while (wider <= slot)
			wider *= 2;
		slots = realloc(session->slots, wider * sizeof(*slots));
		if (slots == NULL)
			return false;
		memset(slots + session->nslots, 0,
			   (wider - session->nslots) * sizeof(*slots));
		session->slots = slots;
		session->nslots = wider;
	}
	session->slots[slot] = request;
	return true;
}

static Request *
find_request(const Session *session, uint64_t id)
{
	uint64_t	slot = id & SLOT_MASK;
	Request    *request = slot < session->nslots ? session->slots[slot] : NULL;

	return request != NULL && request->id == id ? request : NULL;
}

static void
free_request(Request *request)
{
	Session    *session = request->session;

	if (find_request(session, request->id) == request)
		session->slots[request->id & SLOT_MASK] = NULL;
	if (request->next != NULL)
		request->next->previous = request->previous;
	if (request->previous != NULL)
		request->previous->next = request->next;
	else
		session->requests = request->next;
	free(request->path);
	free(request->other_path);
	free(request->data);
	free(request->op_results);
	free(request->reply_path);
	free(request->reply_data);
	free(request->reply_children);
	free(request);
}

void
request_free_all(Session *session)
{
	while (session->requests != NULL)
		free_request(session->requests);
	free(session->slots);
	free(session->watch_path);
}

/*
 * Hand a request to the library.  A refusal by the library itself is completed
 * here, like an answer.
 */
static void
submit(Request *request)
{
	Session    *session = request->session;
	int			rc = ZINVALIDSTATE;

	request->sent_at = protocol_moment();
	if (steps[request->step].is_led)
		session->asked_leader_at = request->sent_at.boot_ms;
	request->is_pending = true;
	if (session->npending++ == 0)
	{
		session->pending_since = request->sent_at.boot_ms;
		session->nudge_at = request->sent_at.boot_ms + NUDGE_MS;
	}
	if (session->zh != NULL)
	{
		rc = steps[request->step].send(request);

		/* what zoo_amulti() says on a handle that is over */
		if (rc == ZMARSHALLINGERROR && is_unrecoverable(session->zh))
			rc = ZINVALIDSTATE;
		session_check_connection(session);
	}
	if (rc != ZOK)
		void_done(rc, request);
}

int64_t
request_next_tick(const Session *session)
{
	int64_t		next = next_ask(session);

	return session->resume_news_at != 0 && session->resume_news_at < next ?
		session->resume_news_at : next;
}

/* When the ensemble is to be asked something of our own. */
static int64_t
next_ask(const Session *session)
{
	int64_t		heartbeat_at = next_heartbeat(session);

	if (!session->is_up || session->nudge_at == 0)
		return heartbeat_at;
	return session->nudge_at < heartbeat_at ? session->nudge_at : heartbeat_at;
}

/* When the next heartbeat is due. */
static int64_t
next_heartbeat(const Session *session)
{
	if (!session->is_up || session_is_ending(session))
		return INT64_MAX;
	return session->asked_leader_at +
		contact_heartbeat_ms(session->status.session_timeout_ms);
}

/*
 * The heartbeat is more frequent than the library's, so that proofs are young,
 * and the leader answers it (FollowerRequestProcessor, case sync): behind a
 * follower that has lost its leader the connection falls silent, and the library
 * gives it up; reads do not keep it alive, for they wait behind the heartbeat.
 * It is no proof: a leader that has been deposed answers, too.
 */
void
request_tick(Session *session, int64_t now)
{
	Step		step = now >= next_heartbeat(session) ?
		STEP_HEARTBEAT : STEP_NUDGE;
	Request    *request;

	if (session->resume_news_at != 0 && now >= session->resume_news_at)
		resume_news(session);
	if (now < next_ask(session))
		return;
	request = new_silent(session, step, "/");
	submit(request);
	if (step == STEP_NUDGE)
		session->nudge_at = now + NUDGE_MS;
}

/* ---------------------------------------------------------------------
 * Answers
 * ---------------------------------------------------------------------
 */

/* Note what every answer tells. */
static void
note_answer(Request *request, int rc)
{
	Session    *session = request->session;
	int			timeout = session->status.session_timeout_ms;

	request->reply.code = rc;
	request->reply.result = result_of_code(rc);
	if ((rc != ZOK && rc > ZAPIERROR) ||
		request->reply.result == ZK_SESSION_LOST)
		return;					/* no server has said that */
	request->reply.proof = contact_date(&session->contact, request->sent_at,
										timeout);
	if (steps[request->step].is_led)
		contact_note(&session->contact, request->sent_at, protocol_moment(),
					 timeout);
	session->nunanswered = 0;
}

void
request_remove(Session *session, const char *path, const char *name)
{
	char	   *child = NULL;
	Request    *request;

	if (name != NULL && asprintf(&child, "%s/%s", path, name) < 0)
		return;
	request = new_silent(session, STEP_REMOVE, child != NULL ? child : path);
	free(child);
	submit(request);
}

/* Decide what follows from an answer, and do it. */
static void
complete(Request *request)
{
	Session    *session = request->session;
	bool		again;

	session->npending--;
	session->nudge_at = 0;
	if (session->npending > 0)
	{
		session->pending_since = protocol_now();
		session->nudge_at = session->pending_since + NUDGE_MS;
	}
	request->is_pending = false;
	again = steps[request->step].after(request) &&
		session->status.loss != ZK_LOSS_UNANSWERED;
	if (!again && !request->is_counted)
	{
		request->is_counted = true;
		atomic_fetch_add(&session->page->nfinished, 1);
	}
	if (again)
		submit(request);
	else
	{
		bool		was_withdrawn = request->is_withdrawn;

		/* what becomes of requests of a lost session goes without saying */
		if (!request->is_unwanted && request->step != STEP_LISTEN &&
			session->status.state != ZK_CLIENT_LOST)
			put_reply(request);
		if (request->is_unwanted || !is_kept(request))
			free_request(request);
		if (was_withdrawn)
			count_undone(session);
	}
	report_silence(session);
}

/* That of a contender's create wakes nobody: the list behind it will. */
static void
put_reply(Request *request)
{
	Frame		frame = {.kind = FRAME_REPLY, .id = request->id};
	FrameBlob	blobs[FRAME_NBLOBS] = {
		frame_text(request->reply.result == ZK_OK ? request->reply_path :
				   zerror(request->reply.code)),
		{request->reply_data, (size_t) request->reply_data_length},
		{request->reply_children, request->reply_children_size}
	};

	frame.u.reply = request->reply;
	if (blobs[1].length + blobs[2].length > FRAME_MAX - 64 * 1024)
	{
		frame.u.reply.result = ZK_NO_MEMORY;
		frame.u.reply.nchildren = 0;
		blobs[1].length = blobs[2].length = 0;
	}
	program_put(request->session, &frame, blobs,
				request->step != STEP_CREATE ||
				request->node_kind != ZK_EPHEMERAL_SEQUENTIAL);
}

static void
report_silence(Session *session)
{
	const Frame wake = {.kind = FRAME_WAKE};
	const FrameBlob none[FRAME_NBLOBS] = {0};

	if (!session->reports_silence || session->npending > 0)
		return;
	session->reports_silence = false;
	program_put(session, &wake, none, true);
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

	if (session->watch_path == NULL || session->watch_id != request->id)
		return false;
	session->is_watch_set = request->reply.result == ZK_OK;
	if (!session->is_watch_set)
		forget_watch(session);
	return false;
}

static bool
after_create(Request *request)
{
	return request->is_withdrawn && undo(request);
}

static bool
after_announce(Request *request)
{
	return request->reply.result == ZK_UNKNOWN_OUTCOME;
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
after_sweep(Request *request)
{
	if (request->reply.result == ZK_OK)
		request->step = STEP_DELETE;
	return request->reply.result == ZK_OK ||
		request->reply.result == ZK_UNKNOWN_OUTCOME;
}

static bool
after_erase(Request *request)
{
	return request->reply.result == ZK_UNKNOWN_OUTCOME ||
		(request->reply.result == ZK_OK && become_delete_of_child(request));
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

/* The reply to our create was lost, so what it has made is not known; or it was not us. */
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
 * Both nodes at one time: nobody can have been let in between.  If the old one
 * had been deleted before the new one was there, the new one must not stand
 * ahead of who was.
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
	return request->is_withdrawn && undo(request);
}

/* ---------------------------------------------------------------------
 * Undoing
 * ---------------------------------------------------------------------
 */

/*
 * Turn an answered create or replace into the request that removes what it
 * made. false if there is nothing to remove.
 *
 * After a lost reply the node may exist or not, and we do not know its
 * number: look for its GUID.  A create that the server executes later still,
 * when it wakes up, is ahead of our list: both belong to one session, and
 * reconnecting closed the connection that brought the create.
 */
static bool
undo(Request *request)
{
	ZkResult	result = request->reply.result;
	char	   *slash;

	if (request->step == STEP_REPLACE_DELETE)
	{
		request->step = STEP_DELETE;	/* of request->path, the new node */
		return true;
	}
	if (request->step != STEP_CREATE)
		return false;
	if (result == ZK_OK && request->reply_path != NULL)
	{
		free(request->path);
		request->path = request->reply_path;
		request->reply_path = NULL;
		request->step = STEP_DELETE;
		return true;
	}
	slash = strrchr(request->path, '/');
	if (result != ZK_UNKNOWN_OUTCOME || slash == NULL || slash == request->path)
		return false;
	request->other_path = strdup(slash + 1);
	if (request->other_path == NULL)
		exit(1);				/* the end of the session removes it */
	*slash = '\0';
	request->step = STEP_ERASE;
	return true;
}

/*
 * Turn an answered ERASE into the delete of the child that carries the prefix.
 * false if there is none.  If there are several, somebody has made the others up:
 * they go, too, for there is no telling which one is ours.
 */
static bool
become_delete_of_child(Request *request)
{
	const char *child = request->reply_children;
	const char *end = child + request->reply_children_size;
	size_t		prefix_length = strlen(request->other_path);
	char	   *found = NULL;

	for (; child < end; child += strlen(child) + 1)
	{
		char	   *path;

		if (strncmp(child, request->other_path, prefix_length) != 0)
			continue;
		if (asprintf(&path, "%s/%s", request->path, child) < 0)
			exit(1);			/* the end of the session removes it */
		if (found != NULL)
			submit_delete(request->session, found);
		free(found);
		found = path;
	}
	if (found == NULL)
		return false;
	free(request->path);
	request->path = found;
	request->step = STEP_DELETE;
	return true;
}

/* ---------------------------------------------------------------------
 * Watching and listening
 * ---------------------------------------------------------------------
 */

/*
 * One watcher function with one context serves every watch of a wait: the
 * library keeps a watch per (function, context), so that contexts of given-up
 * waits would pile up until their node goes.  Which node is of interest is
 * kept in the session; an event of any other node, left over from a wait that
 * was given up, wakes nobody.  Session events reach every watcher too, without
 * using up the watch: session_event() has them.
 */
static void
node_event(zhandle_t *zh, int type, int state, const char *path, void *context)
{
	Session    *session = context;
	Frame		frame = {.kind = FRAME_WATCH, .id = session->watch_id};
	const FrameBlob none[FRAME_NBLOBS] = {0};

	(void) zh;
	(void) state;
	if (type == ZOO_SESSION_EVENT || path == NULL ||
		session->watch_path == NULL || strcmp(session->watch_path, path) != 0)
		return;
	frame.u.watch.news = type == ZOO_CHANGED_EVENT ?
		ZK_WATCH_SET : ZK_WATCH_LOOK_AGAIN;
	program_put(session, &frame, none, true);
	if (session->is_watch_set)
		forget_watch(session);	/* it is used up */
}

/* From now on that request's node is the one that is watched. */
static void
begin_watch(Session *session, const Request *request)
{
	bool		is_of_list = request->step == STEP_LIST_AND_WATCH;

	if (session->watch_path == NULL ||
		session->is_watch_of_list != is_of_list ||
		strcmp(session->watch_path, request->path) != 0)
	{
		end_watch(session);
		session->watch_path = strdup(request->path);
		if (session->watch_path == NULL)
			exit(1);
	}
	session->watch_id = request->id;
	session->is_watch_of_list = is_of_list;
	session->is_watch_set = false;
}

/*
 * Nobody waits for its event any more.  If there was none the watch would stay
 * on the server until its node goes, and in all that is said again after a
 * reconnect (ZOOKEEPER-706).
 */
static void
end_watch(Session *session)
{
	Request    *removal;
	char	   *path = session->watch_path;

	session->watch_path = NULL;
	if (path != NULL && !is_watched(session, path, session->is_watch_of_list))
	{
		removal = new_silent(session, STEP_UNWATCH, path);
		removal->is_of_list = session->is_watch_of_list;
		submit(removal);
	}
	free(path);
}

/* There is none any more. */
static void
forget_watch(Session *session)
{
	free(session->watch_path);
	session->watch_path = NULL;
}

/*
 * One request, which never ends as long as it is wanted: its watch's event
 * sends it again, see heard_event().
 */
static bool
after_listen(Request *request)
{
	ZkResult	result = request->reply.result;
	bool		is_get = request->step == STEP_LISTEN_GET;

	request->step = STEP_LISTEN;
	if (result == ZK_UNKNOWN_OUTCOME)
		return !request->is_unwanted;	/* the watch went with the connection */
	if (result == ZK_SESSION_LOST)
		return false;
	if (request->is_unwanted)
	{
		request->step = STEP_UNWATCH;
		return !is_watched(request->session, request->path, false);
	}
	if (!is_get && result == ZK_OK)
	{
		request->step = STEP_LISTEN_GET;
		return true;
	}

	/* an event from before this answer: what it told may be old */
	if ((is_get && result == ZK_NO_NODE) || request->is_outdated)
	{
		request->is_outdated = false;
		return true;
	}
	if (result == ZK_OK && request->signalled_mzxid != request->reply.mzxid)
		request->signalled_at = 0;
	tell_heard(request);
	return false;
}

/*
 * A server that knows of no watch, or a connection that has gone, has none; but
 * the library would ask for it again after the next reconnect.  Whoever has
 * begun to watch the node since has no answer yet.
 */
static bool
after_unwatch(Request *request)
{
	if (request->reply.result != ZK_OK)
		remove_watches_here(request);
	return false;
}

void
request_give_up(Session *session)
{
	for (Request *request = session->requests; request != NULL;
		 request = request->next)
		if (request->step == STEP_LISTEN || request->step == STEP_LISTEN_GET)
			remove_watches_here(request);
	end_watch(session);
}

/* In the library's memory alone. */
static void
remove_watches_here(const Request *request)
{
	zoo_aremove_all_watches(request->session->zh, request->path,
							request->is_of_list ? ZWATCHTYPE_CHILD :
							ZWATCHTYPE_DATA, 1, NULL, NULL);
}

/*
 * Tell what an answered LISTEN says, or that it is being asked again.  An
 * answer that is none (no right to read it) says that there is nothing.
 */
static void
put_heard(Request *request, bool is_settled)
{
	Frame		frame = {.kind = FRAME_HEARD, .id = request->id};
	FrameBlob	blobs[FRAME_NBLOBS] = {0};

	frame.u.heard.is_settled = is_settled;
	frame.u.heard.is_present = request->reply.result == ZK_OK;
	frame.u.heard.mzxid = request->reply.mzxid;
	frame.u.heard.mtime_ms = request->reply.mtime_ms;
	frame.u.heard.signalled_at = request->signalled_at;
	if (is_settled && frame.u.heard.is_present)
	{
		blobs[1].bytes = request->reply_data;
		blobs[1].length = request->reply_data_length < ZK_HEARD_SIZE ?
			(size_t) request->reply_data_length : ZK_HEARD_SIZE;
	}
	program_put(request->session, &frame, blobs, is_settled);
}

/* Look again at all that is listened for: it may have to interrupt the backend. */
static void
resume_news(Session *session)
{
	session->resume_news_at = 0;
	for (Request *request = session->requests; request != NULL;
		 request = request->next)
		if (request->step == STEP_LISTEN && !request->is_pending &&
			!request->is_unwanted)
			tell_heard(request);
}

/* From when on the backend may be interrupted again. */
static int64_t
next_interrupt(const Session *session)
{
	return session->interrupted_at == 0 ? 0 : session->interrupted_at +
		atomic_load(&session->page->news_pause_ms);
}

/*
 * Tell what was heard, and interrupt the backend for it if it is urgent, once
 * for each change, and not too soon after the last time.  The frame goes first:
 * who is interrupted looks for the reason.
 */
static void
tell_heard(Request *request)
{
	Session    *session = request->session;
	_Atomic uint32_t *interrupt = &session->page->news_interrupt;
	bool		is_news = request->is_urgent && !request->is_unwanted &&
		request->reply.result == ZK_OK && request->reply.mzxid != 0 &&
		request->reply.mzxid != request->signalled_mzxid;

	if (is_news && protocol_now() < next_interrupt(session))
	{
		session->resume_news_at = next_interrupt(session);
		is_news = false;
	}
	if (!is_news || !interrupt_begin(interrupt))
	{
		put_heard(request, true);
		return;
	}
	request->signalled_mzxid = request->reply.mzxid;
	request->signalled_at = session->interrupted_at = protocol_now();
	put_heard(request, true);
	program_flush(session);
	program_interrupt(session);
	interrupt_end(interrupt, false);
}

/*
 * The request that listens for the path and is wanted, or NULL.  While there
 * is one the watch is its, whoever has set it.
 */
static Request *
listening_for(const Session *session, const char *path)
{
	for (Request *request = session->requests; request != NULL;
		 request = request->next)
		if (!request->is_unwanted &&
			(request->step == STEP_LISTEN || request->step == STEP_LISTEN_GET) &&
			strcmp(request->path, path) == 0)
			return request;
	return NULL;
}

/* Does anybody want to know what becomes of that node's list, or of its data? */
static bool
is_watched(const Session *session, const char *path, bool is_of_list)
{
	return (session->watch_path != NULL &&
			session->is_watch_of_list == is_of_list &&
			strcmp(session->watch_path, path) == 0) ||
		(!is_of_list && listening_for(session, path) != NULL);
}

/*
 * Something happened to a node that is listened for: look at it again.  Its
 * watch is used up.
 */
static void
heard_event(zhandle_t *zh, int type, int state, const char *path,
			void *context)
{
	Request    *request;

	(void) zh;
	(void) state;
	if (type == ZOO_SESSION_EVENT || path == NULL)
		return;
	request = listening_for(context, path);
	if (request == NULL)
		return;
	if (request->is_pending)
	{
		request->is_outdated = true;
		return;
	}
	put_heard(request, false);
	submit(request);
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
							  node_event, request->session,
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
					 node_event, request->session, get_done, request);
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

/*
 * The check tells that there is a node of that name, and whose it is a look right
 * behind it: our server knows by then what the check has met.  A node that somebody
 * has deleted and made anew has another czxid, and he cannot choose it.
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

/* Who has made the new node of a REPLACE. */
static int
send_find(Request *request)
{
	return zoo_aexists(request->session->zh, request->path, 0, find_done,
					   request);
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
					   void_done, request);
}

static int
send_delete_of_other(Request *request)
{
	return zoo_adelete(request->session->zh, request->other_path, -1,
					   void_done, request);
}

/* The guard goes first: if that is refused, nothing else is looked at. */
static int
send_remove_guarded(Request *request)
{
	const char *path = request->data;
	zoo_op_t	ops[1 + ZK_REMOVE_MAX];
	int			count = 0;

	request->op_results = calloc(1 + ZK_REMOVE_MAX,
								 sizeof(*request->op_results));
	if (request->op_results == NULL)
		return ZMARSHALLINGERROR;
	zoo_set_op_init(&ops[count++], request->path, "", 0, request->version, NULL);
	for (; path < request->data + request->data_length;
		 path += strlen(path) + 1)
		zoo_delete_op_init(&ops[count++], path, -1);
	return zoo_amulti(request->session->zh, count, ops, request->op_results,
					  void_done, request);
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
			   void_done, NULL);
	return send_list(request);
}

static int
send_get_acl(Request *request)
{
	return zoo_aget_acl(request->session->zh, request->path, acl_done, request);
}

/*
 * The one exists that leaves a watch: nothing else watches a node that is not
 * there.  UNWATCH removes it.
 */
static int
send_listen(Request *request)
{
	return zoo_awexists(request->session->zh, request->path, heard_event,
						request->session, stat_done, request);
}

static int
send_listen_get(Request *request)
{
	return zoo_awget(request->session->zh, request->path, heard_event,
					 request->session, get_done, request);
}

/*
 * Not zoo_aremove_watches(), which only asks the server whether there is a
 * watch.  The completion's type is a mistake in the library's header: it takes
 * the function itself.
 *
 * Without a connection the watch must not be among those that the library asks
 * for after the next one; but the request that sets it may be in its queue.
 */
static int
send_unwatch(Request *request)
{
	if (!request->session->is_up)
		remove_watches_here(request);
	return zoo_aremove_all_watches(request->session->zh, request->path,
								   request->is_of_list ? ZWATCHTYPE_CHILD :
								   ZWATCHTYPE_DATA, 0,
								   (void_completion_t *) void_done, request);
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
	reply->mzxid = stat->mzxid;
	reply->mtime_ms = stat->mtime;
	reply->version = stat->version;
	reply->nbelow = stat->numChildren;
}

static void
create_done(int rc, const char *value, const struct Stat *stat,
			const void *data)
{
	Request    *request = (Request *) data;

	note_answer(request, rc);
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
	complete(request);
}

/* Nobody waits for it. */
static void
learn_acl(Session *session, const char *path, int64_t czxid)
{
	Request    *request = new_silent(session, STEP_LEARN_ACL, path);

	request->czxid = czxid;
	submit(request);
}

static void
list_done(int rc, const struct String_vector *strings, const void *data)
{
	Request    *request = (Request *) data;

	note_answer(request, rc);
	if (rc == ZOK)
		copy_children(request, strings);
	complete(request);
}

/*
 * A server can say that there are strings and send none, or say that one has a
 * negative length: the library hands on NULL then.
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

	note_answer(request, rc);
	if (rc == ZOK && stat != NULL)
		copy_stat(&request->reply, stat);
	free(request->reply_data);	/* of a LISTEN's last time */
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
	complete(request);
}

/* Names are learnt from the node that we have made, as we have made it. */
static void
acl_done(int rc, struct ACL_vector *acl, struct Stat *stat, const void *data)
{
	Request    *request = (Request *) data;

	note_answer(request, rc);
	if (rc == ZOK && acl != NULL && request->step == STEP_LEARN_ACL &&
		stat != NULL && stat->czxid == request->czxid && stat->aversion == 0)
		acl_learn(request->session, acl);
	request->reply.is_closed = rc == ZOK &&
		acl_is_closed(request->session, acl, stat);
	complete(request);
}

/* The answer of the quorum, which dates the proof; look_done() is to come. */
static void
check_done(int rc, const void *data)
{
	Request    *request = (Request *) data;

	note_answer(request, rc);
	if (request->is_looked_at)
		return;
	if (rc == ZOK && request->czxid != 0)
		request->reply.result = ZK_UNKNOWN_OUTCOME;	/* it could not be sent */
	complete(request);
}

static void
look_done(int rc, const struct Stat *stat, const void *data)
{
	Request    *request = (Request *) data;

	if (request->reply.result == ZK_OK && rc != ZOK)
		request->reply.result = result_of_code(rc);
	else if (request->reply.result == ZK_OK &&
			 (stat == NULL || stat->czxid != request->czxid))
		request->reply.result = ZK_NO_NODE;
	complete(request);
}

static void
find_done(int rc, const struct Stat *stat, const void *data)
{
	Request    *request = (Request *) data;

	note_answer(request, rc);
	if (rc == ZOK && stat != NULL)
		copy_stat(&request->reply, stat);
	complete(request);
}

/* An exists or a set: what it says of the node is not of interest. */
static void
stat_done(int rc, const struct Stat *stat, const void *data)
{
	(void) stat;
	void_done(rc, data);
}

static void
string_done(int rc, const char *value, const void *data)
{
	(void) value;
	void_done(rc, data);
}

/* For the write that an ERASE sends ahead of its list nobody waits. */
static void
void_done(int rc, const void *data)
{
	if (data == NULL)
		return;
	note_answer((Request *) data, rc);
	complete((Request *) data);
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

/* The one table from the library's codes to ours. */
static ZkResult
result_of_code(int rc)
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
