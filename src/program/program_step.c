/*-------------------------------------------------------------------------
 *
 * program_step.c
 *	  The steps of requests: sends one, and decides what follows from its
 *	  answer.
 *
 * The program repeats and undoes requests without the backend, which may be
 * busy or idle for hours.
 *
 *-------------------------------------------------------------------------
 */
#include "program_request.h"

#include <stdio.h>
#include <string.h>

#include "pause.h"
#include "recipe.h"

/*
 * How long after a refusal a request is sent again, at first; at most a
 * quarter of the session timeout.
 */
#define RETRY_MIN_MS 100

/*
 * How long after it was not executed a request is sent again, at first.  The
 * greatest pause is a part of the session timeout: a sixtieth is the pace at
 * which the library connects, and this is the least frequent of ours.
 */
#define PUT_OFF_MIN_MS 20
#define PUT_OFF_PART 15

/*
 * How long a lock is held before its place is watched.  A session that has
 * held a lock for so long can pay for one read more; a session that takes many
 * locks a second pays for none.
 */
#define MOMENT_MS 1000

static void step_answered(Request *request);
static void end_request(Request *request);
static bool is_more_to_do(Request *request);
static AnswerMeaning meaning_of(const Request *request);
static bool follow_up(Request *request);
static void after_read(Request *request);
static void after_delete(Request *request);
static void after_leave(Request *request);
static bool after_erase(Request *request);
static void after_unwatch(Request *request);
static void hold_place(Request *request);
static bool after_watched(Request *watched);
static void send_if_due(Request *request, int64_t now);
static bool defer_request(Request *request);
static void begin_refusal(Request *request, int64_t now);
static const char *undone_name(RequestKind step);
static bool blocks_others(const Request *request);
static bool put_off(Request *request);
static bool is_of_interest(const Request *request);
static const Request *find_ahead(const Request *request);
static bool undo_create(Request *request);
static bool go_on_to_delete(Request *request, char *path);
static bool delete_found(Request *request);
static bool is_sequential(const Request *request);
static void note_lateness(Request *request);
static void search_late_node(Request *made);
static void search_on(Request *request);

/* ---------------------------------------------------------------------
 * Sending, and the answer
 * ---------------------------------------------------------------------
 */

void
step_submit(Request *request)
{
	Traffic    *traffic = &request->session->traffic;
	int			rc;

	request_set_state(request, REQUEST_SENT);
	request->answered = step_answered;
	request->sent_at = protocol_moment();
	if (traffic->npending++ == 0)
	{
		traffic->pending_since = request->sent_at.boot_ms;
		traffic->nudge_at = traffic->pending_since + NUDGE_MS;
	}
	rc = library_send(request);
	if (rc != ZOK)
	{
		library_note_answer(request, rc);
		step_answered(request);
	}
}

void
step_submit_delete(Session *session, const char *path)
{
	Request    *request = request_new_silent(session, REQUEST_DELETE, path);

	step_let_go(request_find_watched(session, path));
	step_submit(request);
}

void
step_let_go(Request *request)
{
	if (request == NULL)
		return;
	if (request->wish == WISH_HEAR)
		request->wish = WISH_DO;
	if (request->state != REQUEST_SENT)
		request_free(request);
}

/* If it is not answered yet, its answer does that. */
bool
step_withdraw(Request *request)
{
	if (request->wish == WISH_UNDO)
		return false;
	request->wish = WISH_UNDO;
	request_end_putting_off(request);
	if (request->state == REQUEST_SENT)
		request->owed |= OWED_UNDONE;
	else if (undo_create(request))
	{
		request->owed |= OWED_UNDONE;
		step_submit(request);
	}
	else
	{
		request_free(request);
		return false;
	}
	return true;
}

/* What the library, or nobody but us, has said is in the request. */
static void
step_answered(Request *request)
{
	Session    *session = request->session;
	Traffic    *traffic = &session->traffic;
	bool		is_over;

	assert(traffic->npending > 0);
	traffic->npending--;
	traffic->pending_since = protocol_now();
	traffic->nudge_at = traffic->pending_since + NUDGE_MS;
	request_set_state(request, REQUEST_ANSWERED);
	note_lateness(request);
	is_over = !is_more_to_do(request) || session->status.state == ZK_CLIENT_LOST;
	if (is_over)
		end_request(request);
	else if (request->state == REQUEST_ANSWERED)
		step_submit(request);
}

/*
 * Nothing more is to be done for now: tell the backend.  What becomes of
 * requests of a lost session goes without saying.
 */
static void
end_request(Request *request)
{
	Session    *session = request->session;

	assert(request->state != REQUEST_NEW && request->state != REQUEST_SENT);
	request_count_finished(request);
	if (request->wish == WISH_HEAR && session->status.state != ZK_CLIENT_LOST &&
		answer_told(request->step) == ANSWER_TO_CALLER)
		request_reply(request);
	if (request->search.lateness == LATE_PERHAPS)
		search_late_node(request);
	request_count_undone(request);
	if (request->state == REQUEST_AWAITS_CONNECTION)
		return;
	if (request->wish != WISH_HEAR || !request_is_kept(request))
		request_free(request);
	else
		hold_place(request);
}

/* What its last answer means. */
static AnswerMeaning
meaning_of(const Request *request)
{
	return answer_meaning(request->step, request->is_repeated,
						  request->answer.reply.result);
}

/*
 * Is the request to be sent once more: now, or, if it is DUE, later?  It has
 * been changed for that as need be.  What a backend waits for is not repeated
 * here.
 */
static bool
is_more_to_do(Request *request)
{
	bool		is_ours = request->is_repeated ||
		request->step > REQUEST_LAST_OF_BACKEND;
	AnswerMeaning meaning = meaning_of(request);

	if (put_off(request))
		return true;
	if (meaning == ANSWER_UNKNOWN && request->step == REQUEST_LEAVE)
		request->leaving.is_in_doubt = true;
	if (request->wish == WISH_UNDO && undo_create(request))
		return true;
	if (meaning == ANSWER_REPEAT)
		return defer_request(request);
	if (meaning == ANSWER_UNKNOWN && is_ours)
	{
		/* without a connection it goes out with the next one */
		return !request->session->link.is_up || defer_request(request);
	}
	return follow_up(request);
}

/* Does the answer lead to another step?  All of them are here. */
static bool
follow_up(Request *request)
{
	switch (request->step)
	{
		case REQUEST_LIST:
		case REQUEST_GET:
			after_read(request);
			break;
		case REQUEST_DELETE:
			after_delete(request);
			break;
		case REQUEST_LEAVE:
			after_leave(request);
			break;
		case REQUEST_WATCHED:
			return after_watched(request);
		case REQUEST_ERASE:
			return after_erase(request);
		case REQUEST_UNWATCH:
			after_unwatch(request);
			break;
		case REQUEST_CREATE:
		case REQUEST_GET_ACL:
		case REQUEST_CHECK:
		case REQUEST_SET:
		case REQUEST_DELETE_GUARDED:
		case REQUEST_CREATE_GUARDED:
		case REQUEST_MOVE:
		case REQUEST_HEARTBEAT:
		case REQUEST_NUDGE:
			break;
	}
	return false;
}

/* ---------------------------------------------------------------------
 * What follows
 * ---------------------------------------------------------------------
 */

/* Of a watched one: without an answer, or a node, there is no watch. */
static void
after_read(Request *request)
{
	Wait	   *wait = &request->session->wait;

	if (request->listed != NULL)
		request->listed(request);
	if (request->watch == WATCH_NONE || request->id == 0 ||
		wait->path == NULL || wait->id != request->id)
		return;
	wait->is_set = request->answer.reply.result == ZK_OK;
	if (!wait->is_set)
		wait_forget(wait);
}

/*
 * It has gone before: somebody else deleted it, unless an attempt of ours did
 * whose answer was lost.
 */
static void
after_leave(Request *request)
{
	const Leaving *leaving = &request->leaving;
	const Frame frame = {
		.kind = FRAME_REPLY,
		.u.reply = {.czxid = leaving->token,.nchildren = 1}
	};
	const FrameBlob blobs[FRAME_NBLOBS] = {
		frame_text(request->path), {0}, frame_text(leaving->lock)
	};

	if (request->answer.reply.result == ZK_NO_NODE && !leaving->is_in_doubt)
		backend_put(request->session, &frame, blobs, true);
}

/* Not there: if it may be made late, look again with the next connection. */
static bool
after_erase(Request *request)
{
	if (request->answer.reply.result == ZK_OK && delete_found(request))
		return true;
	if (request->search.lateness == LATE_SEARCH)
		search_on(request);
	return false;
}

/*
 * A node that has a name may be made late more than once, if it was asked for
 * more than once.
 */
static void
after_delete(Request *request)
{
	if (request->search.lateness == LATE_SEARCH &&
		request->search.prefix == NULL)
		search_on(request);
}

/*
 * A server that knows of no watch, or a connection that has gone, has none;
 * but the library would ask for it again after the next reconnect.  A request
 * that has begun to watch the node since has no answer yet.
 */
static void
after_unwatch(Request *request)
{
	if (request->answer.reply.result != ZK_OK)
		library_forget_watch(request->session, request->path, request->watch);
}

/* ---------------------------------------------------------------------
 * Held locks
 * ---------------------------------------------------------------------
 */

/*
 * A request is answered, and stays for the backend.  If it is a create that has
 * made a place in a queue, it is WATCHED from now on.
 */
static void
hold_place(Request *request)
{
	char	   *node = request->answer.path;

	if (request->step != REQUEST_CREATE ||
		request->answer.reply.result != ZK_OK ||
		request->node_kind != ZK_EPHEMERAL_SEQUENTIAL)
		return;
	request->answer.path = NULL;
	request_go_on(request, REQUEST_WATCHED, node);
	request->watch = WATCH_CHILDREN;
	request_set_due(request, protocol_now() + MOMENT_MS);
}

/*
 * It is watched, or gone; then the backend is told, and interrupted.  The answer
 * also proves that the session lives, whose end deletes the place, too, and is
 * told otherwise.
 */
static bool
after_watched(Request *watched)
{
	Session    *session = watched->session;
	const Frame frame = {
		.kind = FRAME_REPLY,.id = watched->id,.u.reply.result = ZK_NO_NODE
	};

	if (watched->wish != WISH_HEAR)
		return false;
	if (watched->answer.reply.result != ZK_NO_NODE || step_is_queued(watched))
		return watched->answer.reply.result == ZK_UNKNOWN_OUTCOME;
	backend_put(session, &frame, NULL, true);
	backend_flush(session);
	if (!session->is_out_urgent)	/* it can read why */
		backend_interrupt(session);
	return false;
}

/* It waits for somebody there, or for any change. */
bool
step_is_queued(const Request *request)
{
	const char *wait = request->session->wait.path;
	size_t		length;

	if (request->step != REQUEST_WATCHED || wait == NULL)
		return false;
	length = (size_t) (strrchr(request->path, '/') - request->path);
	return strncmp(wait, request->path, length) == 0 &&
		(wait[length] == '\0' ||
		 (wait[length] == '/' && strchr(wait + length + 1, '/') == NULL));
}

/* ---------------------------------------------------------------------
 * Once more
 * ---------------------------------------------------------------------
 */

/* The oldest first. */
void
step_tick(Session *session, int64_t now)
{
	Traffic    *traffic = &session->traffic;
	Request    *next;

	if (now < traffic->retry_at)
	{
		program_wake_at(session, traffic->retry_at);
		return;
	}
	traffic->retry_at = INT64_MAX;
	for (Request *request = request_find_oldest(session); request != NULL;
		 request = next)
	{
		next = request->previous;
		send_if_due(request, now);
	}
	program_wake_at(session, traffic->retry_at);
}

/*
 * Send it if it is due; else see to it that the loop comes back in time.  What
 * was put off goes out with the next connection at the latest, and not without
 * one: its outcome is known.  A place that waits for its lock is not WATCHED yet:
 * look again with the next heartbeat.
 */
static void
send_if_due(Request *request, int64_t now)
{
	Session    *session = request->session;
	bool		is_put_off = request->put_off.since != 0;
	bool		is_other_connection = request->sent_over != session->link.number;
	bool		is_due;

	if (is_put_off && !session->link.is_up)
		return;
	if (request->state == REQUEST_AWAITS_CONNECTION)
		is_due = is_other_connection;
	else if (request->state == REQUEST_DUE)
		is_due = now >= request->due_at || (is_put_off && is_other_connection);
	else
		return;
	if (is_due && step_is_queued(request))
		request_set_due(request, now +
						contact_heartbeat_ms(session->status.session_timeout_ms));
	else if (is_due)
		step_submit(request);
	else if (request->state == REQUEST_DUE)
		request_set_due(request, request->due_at);
}

/* ---------------------------------------------------------------------
 * Refused
 * ---------------------------------------------------------------------
 */

/*
 * It was refused: to be sent again, after a delay that doubles each time.
 * false if it is over, for the session is, or has been ended for that.
 */
static bool
defer_request(Request *request)
{
	Session    *session = request->session;
	Refusal    *refusal = &request->refusal;
	int			timeout = session->status.session_timeout_ms;
	int64_t		now = protocol_now();

	if (session->status.state == ZK_CLIENT_LOST)
		return false;
	if (refusal->since == 0)
		begin_refusal(request, now);
	else if (now - refusal->since >= timeout && blocks_others(request) &&
			 backend_finish_use(session,
								atomic_load(&session->page->use)))
	{
		session_end(session, ZK_LOSS_REFUSED);
		return false;
	}
	refusal->pause_ms = (int) pause_after(refusal->pause_ms, RETRY_MIN_MS,
										  timeout / 4);
	request_set_due(request, now + refusal->pause_ms);
	return true;
}

/*
 * It is refused for the first time.  A caller that waits for it to be undone
 * waits no more; it counts as under way again; and a lock that was released
 * is handed over.  The backend may not look for hours.
 */
static void
begin_refusal(Request *request, int64_t now)
{
	Session    *session = request->session;
	bool		was_counted = (request->owed & OWED_FINISHED) == 0;

	request->refusal.since = now;
	session->status.nrefused++;
	session_set_error(session, "Znode \"%s\" cannot be %s: %s", request->path,
					  undone_name(request->step),
					  code_text(request->answer.code));
	session->is_status_news = true;
	request_count_undone(request);
	if (was_counted)
		atomic_fetch_sub(&session->page->nfinished, 1);
	request->owed |= OWED_FINISHED;
	if (!was_counted && request->id == 0 && request->step != REQUEST_SET &&
		blocks_others(request))
		step_submit(request_new_silent(session, REQUEST_SET, request->path));
}

/* What cannot be done. */
static const char *
undone_name(RequestKind step)
{
	if (step == REQUEST_ERASE)
		return "listed";
	if (step == REQUEST_SET)
		return "set";
	return "deleted";
}

/* Does it remove a queue node that would go with the session? */
static bool
blocks_others(const Request *request)
{
	const char *child = strrchr(request->path, '/') + 1;

	return request->step == REQUEST_ERASE ||
		((request->step == REQUEST_DELETE || request->step == REQUEST_LEAVE) &&
		 recipe_parse_node(child).style != RECIPE_STYLE_NONE &&
		 !recipe_is_lasting(child));
}

/* ---------------------------------------------------------------------
 * Not executed
 * ---------------------------------------------------------------------
 */

/*
 * Was it not executed, or is it a read of the backend's behind one that was not?
 * Then it is sent again after a pause that grows each time, for at most a session
 * timeout: true.  A read relies on what was sent ahead of it: the list of a
 * queue on the create, or on the delete of what was released.
 */
static bool
put_off(Request *request)
{
	Session    *session = request->session;
	PutOff	   *delays = &request->put_off;
	const Request *ahead = find_ahead(request);
	bool		is_executed = request->answer.reply.result != ZK_NOT_EXECUTED;
	int			timeout = session->status.session_timeout_ms;
	int64_t		now = protocol_now();
	int64_t		until;
	int64_t		due_at;

	if ((is_executed && ahead == NULL) ||
		session->status.state == ZK_CLIENT_LOST || !is_of_interest(request))
	{
		request_end_putting_off(request);
		return false;
	}
	if (delays->since == 0)
	{
		delays->since = now;
		session->is_status_news |= session->status.nput_off++ == 0;
	}
	until = delays->since + timeout;
	if (now >= until && request->step != REQUEST_WATCHED)
	{
		request_end_putting_off(request);
		return false;
	}
	if (!is_executed)
		session_set_error(session, "Server \"%s\" has not executed a request: %s",
						  session->server, code_text(request->answer.code));
	due_at = now + program_pause_ms(PUT_OFF_MIN_MS, delays->count++,
									timeout / PUT_OFF_PART);
	if (ahead != NULL && due_at < ahead->due_at)
		due_at = ahead->due_at;
	if (now < until && due_at > until)
		due_at = until;
	request_set_due(request, due_at);
	return true;
}

/*
 * Is it to be done yet?  Not heartbeats and the like, for which there will be
 * others; what the backend has withdrawn; or a wait that it has ended.
 */
static bool
is_of_interest(const Request *request)
{
	const Wait *wait = &request->session->wait;

	if (answer_is_ignored(request->step))
		return false;
	if (request_is_kept(request) && request->wish != WISH_HEAR)
		return false;
	return request->watch == WATCH_NONE || request->id == 0 ||
		(wait->path != NULL && wait->id == request->id);
}

/*
 * If it is a read of the backend's: a request that was made before, and that was
 * put off.  The read is to see what that one does: a create, or the delete of
 * what was released.  One that is with the library again has no answer yet, and
 * answers come in the order of sending: so it was sent behind the read.
 */
static const Request *
find_ahead(const Request *request)
{
	const Session *session = request->session;

	if (session->status.nput_off == 0 || request->id == 0 ||
		request->step > REQUEST_LAST_OF_BACKEND ||
		answer_late(request->step, request->node_kind) !=
		ANSWER_CHANGES_NOTHING)
		return NULL;
	for (const Request *other = session->traffic.all; other != NULL;
		 other = other->next)
		if (other->put_off.since != 0 && other->step != REQUEST_WATCHED &&
			other->order < request->order)
			return other;
	return NULL;
}

/* ---------------------------------------------------------------------
 * Undoing
 * ---------------------------------------------------------------------
 */

/*
 * Turn an answered create into the request that removes what it made. false if
 * there is nothing to remove.
 *
 * After a lost reply the node may exist or not, and we do not know its
 * number: look for its GUID.  A create that the server executes later still,
 * when it wakes up, is ahead of our look: both belong to one session, and
 * reconnecting closed the connection that brought the create.  If that was
 * another server, the leader refuses what comes from there
 * (SessionTrackerImpl.checkSession), but not if the session goes back to it
 * (AnswerLate).  So it is looked for again with each new connection.
 */
static bool
undo_create(Request *request)
{
	AnswerMeaning meaning = meaning_of(request);
	char	   *node;
	char	   *parent = NULL;
	char	   *slash;

	if (meaning == ANSWER_OVER || !request_is_kept(request))
		return false;
	if (request->step == REQUEST_WATCHED)
		return go_on_to_delete(request, NULL);
	if (meaning == ANSWER_DONE)
	{
		node = request->answer.path;
		request->answer.path = NULL;
		return go_on_to_delete(request, node);
	}
	slash = strrchr(request->path, '/');
	if (meaning != ANSWER_UNKNOWN || slash == NULL || slash == request->path)
		return false;
	if (is_sequential(request))
	{
		request->search.prefix = program_need(strdup(slash + 1));
		parent = program_need(strndup(request->path,
									  (size_t) (slash - request->path)));
	}
	request_go_on(request, REQUEST_ERASE, parent);
	if (request->search.lateness == LATE_PERHAPS)
		request_begin_search(request);
	return true;
}

/*
 * It is the delete of that node from now on (NULL: of the same as before), which
 * is repeated until it is confirmed.
 */
static bool
go_on_to_delete(Request *request, char *path)
{
	request_go_on(request, REQUEST_DELETE, path);
	request->is_repeated = true;
	return true;
}

/*
 * Turn an answered ERASE into the delete of what it has found. false if that
 * is nothing.
 *
 * With a prefix it is the child that carries it.  If there are several,
 * somebody has made the others up: they go, too, for there is no telling which
 * one is ours.  Without a prefix it is the node of that path, unless it is
 * somebody else's, or the one that was made in time.
 */
static bool
delete_found(Request *request)
{
	Search	   *search = &request->search;
	const FrameReply *reply = &request->answer.reply;
	const char *child = request->answer.children;
	const char *end = child + request->answer.children_size;
	char	   *found = NULL;

	if (search->prefix == NULL)
	{
		if (search->spared == MADE_IN_TIME)
			search->spared = reply->czxid;
		return reply->czxid != search->spared &&
			reply->ephemeral_owner ==
			request->session->status.ticket.session_id &&
			go_on_to_delete(request, NULL);
	}
	for (; child < end; child += strlen(child) + 1)
	{
		char	   *path;

		if (strncmp(child, search->prefix, strlen(search->prefix)) != 0)
			continue;
		if (asprintf(&path, "%s/%s", request->path, child) < 0)
			exit(1);			/* the end of the session removes it */
		if (found != NULL)
			step_submit_delete(request->session, found);
		free(found);
		found = path;
	}
	return found != NULL && go_on_to_delete(request, found);
}

/* ---------------------------------------------------------------------
 * Requests that are executed late
 * ---------------------------------------------------------------------
 */

/* Is the node's name known only when it is made? */
static bool
is_sequential(const Request *request)
{
	return request->node_kind == ZK_EPHEMERAL_SEQUENTIAL;
}

/*
 * An answer: was it lost with its connection, so that the request may be
 * executed yet?  If it has made a node at a path where one is looked for, that
 * one is to stay.
 */
static void
note_lateness(Request *request)
{
	const FrameReply *reply = &request->answer.reply;
	Request    *searching;

	if (answer_late(request->step, request->node_kind) != ANSWER_SOUGHT)
		return;
	if (reply->result == ZK_UNKNOWN_OUTCOME &&
		request->search.lateness == LATE_NEVER)
		request->search.lateness = LATE_PERHAPS;
	if (reply->result == ZK_OK && !is_sequential(request))
	{
		searching = request_find_search(request->session, request->path);
		if (searching != NULL)
			searching->search.spared = reply->czxid;
	}
}

/*
 * That request is over, and an attempt of it may be executed yet: from now on
 * look for the node at its path, if it is another one than the backend knows
 * of.  The name of a sequential one is not known: that is looked for if the
 * create is withdrawn (undo_create()).
 */
static void
search_late_node(Request *made)
{
	Session    *session = made->session;
	Request    *searching;

	if (is_sequential(made))
		return;
	made->search.lateness = LATE_NEVER;
	searching = request_find_search(session, made->path);
	if (searching == NULL)
	{
		searching = request_new_silent(session, REQUEST_ERASE, made->path);
		searching->node_kind = ZK_EPHEMERAL;
		searching->sent_over = session->link.number;
		request_set_state(searching, REQUEST_AWAITS_CONNECTION);
		request_begin_search(searching);
	}
	searching->search.spared = made->step == REQUEST_CREATE ? MADE_IN_TIME : 0;
}

/*
 * An ERASE, or its DELETE, has no more to do over this connection: it goes out
 * again with the next one, as an ERASE.
 */
static void
search_on(Request *request)
{
	request_end_refusal(request);
	if (request->search.spared == MADE_IN_TIME)
		request->search.spared = 0; /* there was none */
	request_go_on(request, REQUEST_ERASE, NULL);
	request_set_state(request, REQUEST_AWAITS_CONNECTION);
}
