/*-------------------------------------------------------------------------
 *
 * program_request.c
 *	  The session's program: requests of the backend, from the frame to the
 *	  reply.
 *
 * A request goes through steps.  For each there is a row in the table of
 * steps: what to send, and what follows from the answer.  What is to be
 * repeated or undone is so without the backend, which may be busy or idle for
 * hours.
 *
 * Who owns what: a request is in the list of its session and freed with its
 * last step, save for those that the backend may still undo or listen to:
 * these wait for its word.  The library has the pointer of a request from the
 * sending to the answer, and gives exactly one, with the end of the
 * connection at the latest.
 *
 *-------------------------------------------------------------------------
 */
#include "program_request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recipe.h"

/*
 * How long a request may stay unanswered before a nudge goes out behind it: a
 * server 3.6.0 to 3.8.0 may forget to answer until something else happens
 * (R10, ZOOKEEPER-4537).  The next one goes out when it has taken twice as
 * long: behind a network that was silent for half a session timeout, and then
 * delivered all that 2,000 sessions had sent, those of a fixed pace were most
 * of it (make bench SCALE=1 STORMS=silence).
 */
#define NUDGE_MS 300

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
 * How many nodes are looked for at most that a late request may make.  A
 * session has so many only if that many creates were lost with connections.
 * Beyond that the oldest one is forgotten: if its node is made late, it goes
 * with the session, and a lease when its term is over.
 */
#define SEARCHES_MAX 256

static bool take_request(Session *session, const FrameTaken *taken);
static void follow_replace(Request *leave);
static void let_go(Request *request);
static void withdraw(Session *session, uint64_t id);
static void count_undone(Session *session);
static bool is_kept(const Request *request);
static char *copy_blob(const FrameTaken *taken, int blob);
static Request *find_request(const Session *session, uint64_t id);
static void free_request(Request *request);
static bool dates_proofs(RequestKind kind);
static bool has_pulse(const Session *session);
static int64_t next_heartbeat(const Session *session);
static void note_refusal(Request *request, int64_t now);
static bool blocks_others(const Request *request);
static bool is_unused(const Session *session);
static void retry(Session *session, int64_t now);
static void put_reply(Request *request);
static void end_refusal(Request *request);
static void end_putting_off(Request *request);
static bool is_of_interest(const Request *request);
static const Request *find_ahead(const Request *request);
static Request *find_oldest(const Session *session);
static bool is_sequential(const Request *request);
static void note_lateness(Request *request);
static void search(Request *made);
static Request *find_search(const Session *session, const char *path);
static void begin_search(Request *request);

/* ---------------------------------------------------------------------
 * From the backend
 * ---------------------------------------------------------------------
 */

bool
request_take(Session *session, const FrameTaken *taken)
{
	switch (taken->frame.kind)
	{
		case FRAME_REQUEST:
			return take_request(session, taken);
		case FRAME_FREE:
			/* the backend is done with a request that is kept for it */
			let_go(find_request(session, taken->frame.id));
			return true;
		case FRAME_WITHDRAW:
			withdraw(session, taken->frame.id);
			return true;
		case FRAME_UNWATCH:
			if (session->wait.path != NULL &&
				session->wait.id == taken->frame.id)
				wait_end(session);
			return true;
		case FRAME_KEEP:
			keep_take(session, taken);
			return true;
		case FRAME_SERVERS:
			move_take(session, taken);
			return true;
	}
	return false;
}

static bool
take_request(Session *session, const FrameTaken *taken)
{
	const FrameRequest *wanted = &taken->frame.u.request;
	int			npaths = frame_count_texts(taken, 2);
	Request    *request;

	if (wanted->kind == REQUEST_DELETE_GUARDED &&
		(npaths < 1 || npaths > ZK_REMOVE_MAX))
		return false;
	request = request_new(session, taken->frame.id,
						  (RequestKind) wanted->kind, taken->blobs[0]);
	request->is_unwanted = taken->frame.id == 0;
	request->is_repeated = taken->frame.id == 0 ||
		wanted->kind == REQUEST_LEAVE;
	request->is_watched = wanted->is_watched != 0;
	request->is_withdrawn = wanted->is_awaited != 0;
	request->node_kind = wanted->node_kind;
	request->version = wanted->version;
	request->node_version = wanted->node_version;
	request->check.czxid = wanted->czxid;
	request->other_path = copy_blob(taken, 1);
	request->data = copy_blob(taken, 2);
	request->data_length = (int) taken->frame.blob_lengths[2];
	if (request->is_watched)
		wait_begin(session, request);
	if (request->kind == REQUEST_LEAVE)
		follow_replace(request);
	request_submit(request);
	return true;
}

/*
 * Has a REPLACE come so far that its end deletes the node of a LEAVE, or has done
 * so?  Then our place is its new node, and that is the one to leave.  The backend
 * does not know that yet, and withdraws the REPLACE right behind.  If it has done
 * so before, the new node goes already, and nobody can tell who deleted it.
 */
static void
follow_replace(Request *leave)
{
	Request    *request = leave->session->traffic.all;
	char	   *path;

	while (request != NULL &&
		   !(request->has_replaced &&
			 strcmp(request->other_path, leave->path) == 0))
		request = request->next;
	if (request == NULL)
		return;
	leave->is_in_doubt = request->is_withdrawn;
	request->is_unwanted = true;	/* that its node goes is no loss */
	path = program_need(strdup(request->path));
	free(leave->path);
	leave->path = path;
	if (leave->id != 0)
		leave->check.czxid = request->answer.reply.czxid;
}

/*
 * Undo a create or a replace.  If it is not answered yet, its completion does
 * that.  A replace names its node, so that the delete can go out at once:
 * what this session asks next will not find the node any more.
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
	request->is_unwanted = request->is_withdrawn = true;
	end_putting_off(request);
	if (request->is_pending && request->kind != REQUEST_CREATE)
		request_submit_delete(session, request->path);
	else if (!request->is_pending && request_undo(request))
		request_submit(request);
	else if (!request->is_pending)
	{
		free_request(request);
		count_undone(session);
	}
}

void
request_submit_delete(Session *session, const char *path)
{
	Request    *request = request_new_silent(session, REQUEST_DELETE, path);

	let_go(request_find_held(session, path));
	request_submit(request);
}

/* Nobody wants to hear of it any more.  NULL is fine. */
static void
let_go(Request *request)
{
	if (request != NULL)
		request->is_unwanted = true;
	if (request != NULL && !request->is_pending)
		free_request(request);
}

static void
count_undone(Session *session)
{
	const Frame wake = {.kind = FRAME_WAKE};

	atomic_fetch_add(&session->page->nundone, 1);
	backend_put(session, &wake, NULL, true);
}

/* ---------------------------------------------------------------------
 * Requests
 * ---------------------------------------------------------------------
 */

/* May the backend come back to it after it was answered? */
static bool
is_kept(const Request *request)
{
	return request->id != 0 &&
		(request->kind == REQUEST_CREATE || request->kind == REQUEST_REPLACE ||
		 request->kind == REQUEST_REPLACE_FIND ||
		 request->kind == REQUEST_REPLACE_CHECK ||
		 request->kind == REQUEST_HELD);
}

Request *
request_new(Session *session, uint64_t id, RequestKind kind, const char *path)
{
	Request    *request = program_need(calloc(1, sizeof(*request)));

	request->path = program_need(strdup(path));
	request->id = id;
	request->order = ++session->traffic.nmade;
	request->session = session;
	request->kind = kind;
	request->version = -1;
	request->next = session->traffic.all;
	if (session->traffic.all != NULL)
		session->traffic.all->previous = request;
	session->traffic.all = request;
	return request;
}

Request *
request_new_silent(Session *session, RequestKind kind, const char *path)
{
	Request    *request = request_new(session, 0, kind, path);

	request->is_unwanted = request->is_counted = request->is_repeated = true;
	return request;
}

static char *
copy_blob(const FrameTaken *taken, int blob)
{
	uint32_t	length = taken->frame.blob_lengths[blob];

	return length == 0 ? NULL :
		memcpy(program_need(malloc(length)), taken->blobs[blob], length);
}

/* It is among the latest, and these come first. */
static Request *
find_request(const Session *session, uint64_t id)
{
	Request    *request = session->traffic.all;

	while (request != NULL && (request->id != id || !is_kept(request)))
		request = request->next;
	return request;
}

Request *
request_find_held(const Session *session, const char *path)
{
	Request    *request = session->traffic.all;

	while (request != NULL &&
		   (request->kind != REQUEST_HELD || strcmp(request->path, path) != 0))
		request = request->next;
	return request;
}

static void
free_request(Request *request)
{
	Session    *session = request->session;

	if (request->next != NULL)
		request->next->previous = request->previous;
	if (request->previous != NULL)
		request->previous->next = request->next;
	else
		session->traffic.all = request->next;
	end_putting_off(request);
	end_refusal(request);
	if (request->lateness == LATE_SEARCH)
		session->traffic.nsearches--;
	free(request->path);
	free(request->other_path);
	free(request->data);
	free(request->op_results);
	free(request->answer.path);
	free(request->answer.data);
	free(request->answer.children);
	free(request);
}

void
request_submit(Request *request)
{
	Session    *session = request->session;
	int			rc = ZINVALIDSTATE;

	request->sent_at = protocol_moment();
	request->sent_over = session->link.number;
	if (step_is_led(request->kind))
	{
		session->link.asked_leader_at = request->sent_at.boot_ms;
		if (session->link.unled_at == 0)
			session->link.unled_at = request->sent_at.boot_ms;
	}
	if (dates_proofs(request->kind))
		session->link.asked_at = request->sent_at.boot_ms;
	request->is_pending = true;
	request->retry.due_at = 0;
	if (session->traffic.npending++ == 0)
	{
		session->traffic.pending_since = request->sent_at.boot_ms;
		session->traffic.nudge_at = request->sent_at.boot_ms + NUDGE_MS;
	}
	if (session->zh != NULL)
	{
		rc = step_send(request);

		/* what zoo_amulti() says on a handle that is over */
		if (rc == ZMARSHALLINGERROR && is_unrecoverable(session->zh))
			rc = ZINVALIDSTATE;
		session_check_connection(session);
	}
	if (rc != ZOK)
		step_void_done(rc, request);
}

/* Is an answer to it noted in the contact log? */
static bool
dates_proofs(RequestKind kind)
{
	return step_is_led(kind) || kind == REQUEST_NUDGE;
}

bool
request_is_idle(const Session *session)
{
	if (atomic_load(&session->page->is_in_use) != 0 ||
		session->wait.path != NULL || keep_is_any(session))
		return false;
	for (Request *request = session->traffic.all; request != NULL;
		 request = request->next)
	{
		bool		is_search = request->lateness == LATE_SEARCH &&
			request->retry.due_at == DUE_WITH_CONNECTION;

		if (!is_search && request->kind != REQUEST_NUDGE &&
			request->kind != REQUEST_HEARTBEAT &&
			request->kind != REQUEST_UNWATCH)
			return false;
	}
	return true;
}

/*
 * Is it a pulse that is due next, and no heartbeat?  A connection of which
 * the leader is to be asked at once (note_connected()) has none before that.
 */
static bool
has_pulse(const Session *session)
{
	return session->link.asked_leader_at != 0 && request_is_idle(session);
}

/* When the next heartbeat or pulse is due. */
static int64_t
next_heartbeat(const Session *session)
{
	if (!session->link.is_up || session_is_ending(session))
		return INT64_MAX;
	if (has_pulse(session))
		return session->link.asked_at +
			contact_pulse_ms(session->status.session_timeout_ms);
	return session->link.asked_leader_at +
		contact_heartbeat_ms(session->status.session_timeout_ms);
}

/*
 * The heartbeat is more frequent than the library's, so that proofs are
 * young, and the leader answers it (FollowerRequestProcessor, case sync):
 * behind a follower that has lost its leader the connection falls silent, and
 * the library gives it up; reads do not keep it alive, for they wait behind
 * the heartbeat.  It is no proof: a leader that has been deposed answers,
 * too.
 *
 * All sessions' heartbeats are the leader's work.  So there are none while
 * nothing depends on the session: a pulse, the same read as a nudge, is
 * answered by our server, and dates the proof of the first lock (contact.h).
 * Whether the server has lost its leader is then found out by that lock
 * (session_cut_at()).
 */
void
request_tick(Session *session, int64_t now)
{
	Traffic    *traffic = &session->traffic;
	int64_t		silent_ms = now - traffic->pending_since;

	if (now >= traffic->retry_at)
		retry(session, now);
	if (now >= next_heartbeat(session))
		request_submit(request_new_silent(session, has_pulse(session) ?
										  REQUEST_NUDGE : REQUEST_HEARTBEAT,
										  "/"));
	else if (session->link.is_up && traffic->npending > 0 &&
			 now >= traffic->nudge_at)
	{
		request_submit(request_new_silent(session, REQUEST_NUDGE, "/"));
		traffic->nudge_at = now +
			(silent_ms > NUDGE_MS ? silent_ms : NUDGE_MS);
	}
	program_wake_at(session, traffic->retry_at);
	program_wake_at(session, next_heartbeat(session));
	if (session->link.is_up && traffic->npending > 0)
		program_wake_at(session, traffic->nudge_at);
}

bool
request_defer(Request *request)
{
	Session    *session = request->session;
	Traffic    *traffic = &session->traffic;
	Retry	   *retry = &request->retry;
	int64_t		now = protocol_now();

	if (session->status.state == ZK_CLIENT_LOST)
		return false;
	if (request->id != 0 && !request->is_unwanted)
	{
		/* whoever waits for this one must not wait for hours */
		request_submit_delete(session, request->path);
		return false;
	}
	if (retry->refused_at == 0)
		note_refusal(request, now);
	else if (now - retry->refused_at >= session->status.session_timeout_ms &&
			 blocks_others(request) && is_unused(session))
	{
		session_end(session, ZK_LOSS_REFUSED);
		return false;
	}
	retry->delay_ms = retry->delay_ms == 0 ? RETRY_MIN_MS :
		2 * retry->delay_ms;
	if (retry->delay_ms > session->status.session_timeout_ms / 4)
		retry->delay_ms = session->status.session_timeout_ms / 4;
	retry->due_at = now + retry->delay_ms;
	backend_note(session, "asks again in %d ms to %s \"%s\": %s",
				 retry->delay_ms, step_word(request->kind), request->path,
				 code_words(request->answer.code));
	if (retry->due_at < traffic->retry_at)
		traffic->retry_at = retry->due_at;
	return true;
}

bool
request_put_off(Request *request)
{
	Session    *session = request->session;
	Retry	   *retry = &request->retry;
	const Request *ahead = find_ahead(request);
	int			timeout = session->status.session_timeout_ms;
	int64_t		now = protocol_now();
	int64_t		until;

	if ((request->answer.reply.result != ZK_NOT_EXECUTED && ahead == NULL) ||
		session->status.state == ZK_CLIENT_LOST || !is_of_interest(request))
	{
		end_putting_off(request);
		return false;
	}
	if (retry->put_off_at == 0)
	{
		backend_note(session, "asks again to %s \"%s\": %s",
					 step_word(request->kind), request->path,
					 ahead != NULL ? "what was asked before was not executed" :
					 code_words(request->answer.code));
		retry->put_off_at = now;
		session->is_status_news |= session->status.nput_off++ == 0;
	}
	until = retry->put_off_at + timeout;
	if (now >= until && request->kind != REQUEST_HELD)
	{
		end_putting_off(request);
		return false;
	}
	if (request->answer.reply.result == ZK_NOT_EXECUTED)
		session_set_error(session, "Server \"%s\" has not executed a request: %s",
						  session->server, code_words(request->answer.code));
	retry->due_at = now + program_pause_ms(PUT_OFF_MIN_MS, retry->nput_off++,
										   timeout / PUT_OFF_PART);
	if (ahead != NULL && retry->due_at < ahead->retry.due_at)
		retry->due_at = ahead->retry.due_at;
	if (now < until && retry->due_at > until)
		retry->due_at = until;
	if (retry->due_at < session->traffic.retry_at)
		session->traffic.retry_at = retry->due_at;
	free(request->op_results);
	request->op_results = NULL;
	return true;
}

/* It was executed, or is not asked for any more. */
static void
end_putting_off(Request *request)
{
	Session    *session = request->session;

	if (request->retry.put_off_at == 0)
		return;
	request->retry.put_off_at = request->retry.nput_off = 0;
	session->is_status_news |= --session->status.nput_off == 0;
}

/*
 * Is it to be done yet?  Not heartbeats and the like, for which there will be
 * others; what the backend has withdrawn; or a wait that it has ended.
 */
static bool
is_of_interest(const Request *request)
{
	const Wait *wait = &request->session->wait;

	if (request->kind == REQUEST_UNWATCH ||
		request->kind == REQUEST_HEARTBEAT || request->kind == REQUEST_NUDGE)
		return false;
	if (is_kept(request) && request->is_unwanted)
		return false;
	return !request->is_watched || request->id == 0 ||
		(wait->path != NULL && wait->id == request->id);
}

/*
 * If it is a read of the backend's: a request that was made before, and that was
 * put off.  The read is to see what that one does: a create, or the delete of
 * what was released.
 */
static const Request *
find_ahead(const Request *request)
{
	const Session *session = request->session;

	if (session->status.nput_off == 0 || request->id == 0 ||
		request->kind > REQUEST_LAST_OF_BACKEND ||
		answer_late(request->kind, request->node_kind) !=
		ANSWER_CHANGES_NOTHING)
		return NULL;
	for (const Request *other = session->traffic.all; other != NULL;
		 other = other->next)
		if (other->retry.put_off_at != 0 && other->kind != REQUEST_HELD &&
			other->order < request->order && !other->is_pending)
			return other;
	return NULL;
}

/*
 * It is refused for the first time.  Whoever waits for it to be undone waits
 * no more; it is under way again for who counts; and a lock that was released
 * is handed over.  The backend may not look for hours.
 */
static void
note_refusal(Request *request, int64_t now)
{
	Session    *session = request->session;
	bool		is_backends = !request->is_counted;

	request->retry.refused_at = now;
	session->status.nrefused++;
	session_set_error(session, "Znode \"%s\" cannot be %s: %s", request->path,
					  request->kind == REQUEST_ERASE ? "listed" :
					  request->kind == REQUEST_SET ? "set" : "deleted",
					  code_words(request->answer.code));
	session->is_status_news = true;
	if (request->is_withdrawn)
		count_undone(session);
	request->is_withdrawn = false;
	if (!is_backends)
		atomic_fetch_sub(&session->page->nfinished, 1);
	request->is_counted = false;
	if (is_backends && request->id == 0 &&
		request->kind != REQUEST_SET && blocks_others(request))
		request_submit(request_new_silent(session, REQUEST_SET,
										  request->path));
}

/*
 * The check goes out right behind the attempt that was refused, and well ahead
 * of the next one.
 */
void
request_check_left(Request *leave)
{
	Request    *check = request_new(leave->session, leave->id,
									REQUEST_LEAVE_CHECK, leave->path);

	check->is_counted = true;
	check->check.czxid = leave->check.czxid;
	check->is_in_doubt = leave->is_in_doubt;
	leave->id = 0;
	leave->is_unwanted = true;
	leave->kind = REQUEST_DELETE;
	request_submit(check);
}

/* Does it remove a queue node that would go with the session? */
static bool
blocks_others(const Request *request)
{
	const char *child = strrchr(request->path, '/') + 1;

	return request->kind == REQUEST_ERASE ||
		((request->kind == REQUEST_DELETE || request->kind == REQUEST_LEAVE) &&
		 recipe_parse_node(child).style != RECIPE_STYLE_NONE &&
		 !recipe_is_lasting(child));
}

/* Does the backend hold nothing, and wait for nothing? */
static bool
is_unused(const Session *session)
{
	if (atomic_load(&session->page->is_in_use) != 0 ||
		session->wait.path != NULL)
		return false;
	for (Request *request = session->traffic.all; request != NULL;
		 request = request->next)
		if (is_kept(request) && request->kind != REQUEST_HELD &&
			!request->is_unwanted)
			return false;
	return true;
}

/*
 * Send those that are due, the oldest first, and find out when the next one is.
 * What was put off goes out with the next connection at the latest, and not
 * without one: its outcome is known.  A place that waits for its lock is not
 * HELD yet: look again with the next heartbeat.
 */
static void
retry(Session *session, int64_t now)
{
	Request    *next;

	session->traffic.retry_at = INT64_MAX;
	for (Request *request = find_oldest(session); request != NULL;
		 request = next)
	{
		next = request->previous;
		if (request->retry.due_at == 0 ||
			(request->retry.put_off_at != 0 && !session->link.is_up))
			continue;
		if ((request->retry.due_at == DUE_WITH_CONNECTION ||
			 request->retry.put_off_at != 0) &&
			request->sent_over != session->link.number)
			request->retry.due_at = now;
		if (now >= request->retry.due_at && held_is_queued(request))
			request->retry.due_at = now +
				contact_heartbeat_ms(session->status.session_timeout_ms);
		if (now >= request->retry.due_at)
			request_submit(request);
		else if (request->retry.due_at < session->traffic.retry_at)
			session->traffic.retry_at = request->retry.due_at;
	}
}

static Request *
find_oldest(const Session *session)
{
	Request    *request = session->traffic.all;

	while (request != NULL && request->next != NULL)
		request = request->next;
	return request;
}

/* ---------------------------------------------------------------------
 * Answers
 * ---------------------------------------------------------------------
 */

void
request_note_answer(Request *request, int rc)
{
	Session    *session = request->session;
	FrameReply *reply = &request->answer.reply;
	int			timeout = session->status.session_timeout_ms;
	bool		is_said = session->link.is_up &&
		zoo_state(session->zh) == ZOO_CONNECTED_STATE;

	request->answer.code = rc;
	reply->result = code_result(rc);
	if (is_said && code_loss(rc) != ZK_LOSS_NONE)
	{
		session_note_end(session, rc);
		if (session->status.state == ZK_CLIENT_LOST)
			reply->result = ZK_SESSION_LOST;
		return;
	}

	/* a server said that, and will say it again: nobody is to ask at once */
	if (reply->result == ZK_UNKNOWN_OUTCOME && is_said)
		reply->result = ZK_FAILED;
	if ((rc != ZOK && rc > ZAPIERROR) || reply->result == ZK_SESSION_LOST)
		return;					/* no server has said that */
	session->link.nunanswered = session->link.ndemands = 0;
	session->link.nrounds = 0;
	if (reply->result == ZK_NOT_EXECUTED)
		return;					/* the leader may not have heard of it */
	reply->proof = contact_date(&session->link.contact, request->sent_at,
								timeout);
	if (dates_proofs(request->kind))
		contact_note(&session->link.contact, request->sent_at,
					 protocol_moment(), timeout);
	if (step_is_led(request->kind))
	{
		session->link.led_at = protocol_now();
		session->link.unled_at = 0;
	}
}

void
request_complete(Request *request)
{
	Session    *session = request->session;
	bool		again;

	session->traffic.npending--;
	session->traffic.pending_since = protocol_now();
	session->traffic.nudge_at = session->traffic.pending_since + NUDGE_MS;
	request->is_pending = false;
	note_lateness(request);
	again = step_after(request) && session->status.state != ZK_CLIENT_LOST;
	if (!again && !request->is_counted)
	{
		request->is_counted = true;
		atomic_fetch_add(&session->page->nfinished, 1);
	}
	if (again && request->retry.due_at == 0)
		request_submit(request);
	else if (!again)
	{
		bool		was_withdrawn = request->is_withdrawn;

		if (request->told != ZK_OK)
			request->answer.reply.result = request->told;

		/* what becomes of requests of a lost session goes without saying */
		if (!request->is_unwanted && request->kind != REQUEST_HELD &&
			session->status.state != ZK_CLIENT_LOST)
			put_reply(request);
		if (request->lateness == LATE_PERHAPS)
			search(request);
		if (request->retry.due_at == DUE_WITH_CONNECTION)
			request->is_withdrawn = false;	/* that is told once */
		else if (request->is_unwanted || !is_kept(request))
			free_request(request);
		else
			held_begin(request);
		if (was_withdrawn)
			count_undone(session);
	}
}

/* That of a contender's create wakes nobody: the list behind it will. */
static void
put_reply(Request *request)
{
	Frame		frame = {.kind = FRAME_REPLY,.id = request->id};
	FrameBlob	blobs[FRAME_NBLOBS] = {
		frame_text(request->answer.reply.result == ZK_OK ? request->answer.path :
				   code_words(request->answer.code)),
		{request->answer.data, (size_t) request->answer.data_length},
		{request->answer.children, request->answer.children_size}
	};

	frame.u.reply = request->answer.reply;
	if (blobs[1].length + blobs[2].length > FRAME_MAX - 64 * 1024)
	{
		frame.u.reply.result = ZK_NO_MEMORY;
		frame.u.reply.nchildren = 0;
		blobs[1].length = blobs[2].length = 0;
	}
	backend_put(request->session, &frame, blobs,
				request->kind != REQUEST_CREATE ||
				request->node_kind != ZK_EPHEMERAL_SEQUENTIAL);
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
 * when it wakes up, is ahead of our look: both belong to one session, and
 * reconnecting closed the connection that brought the create.  If that was
 * another server, the leader refuses what comes from there
 * (SessionTrackerImpl.checkSession), but not if the session goes back to it
 * (AnswerLate).  So it is looked for again with each new connection.
 */
bool
request_undo(Request *request)
{
	AnswerMeaning meaning = step_meaning(request);
	char	   *slash;

	if (meaning == ANSWER_OVER || !is_kept(request))
		return false;
	if (request->kind != REQUEST_CREATE)
		return request_become_delete(request);	/* of the new node */
	if (meaning == ANSWER_DONE)
	{
		free(request->path);
		request->path = request->answer.path;
		request->answer.path = NULL;
		return request_become_delete(request);
	}
	slash = strrchr(request->path, '/');
	if (meaning != ANSWER_UNKNOWN || slash == NULL || slash == request->path)
		return false;
	if (is_sequential(request))
	{
		request->other_path = program_need(strdup(slash + 1));
		*slash = '\0';
	}
	request->kind = REQUEST_ERASE;
	if (request->lateness == LATE_PERHAPS)
		begin_search(request);
	return true;
}

/*
 * With a prefix it is the child that carries it.  If there are several,
 * somebody has made the others up: they go, too, for there is no telling which
 * one is ours.  Without a prefix it is the node of that path, unless it is
 * somebody else's, or the one that was made in time.
 */
bool
request_become_delete_of_found(Request *request)
{
	const FrameReply *reply = &request->answer.reply;
	const char *child = request->answer.children;
	const char *end = child + request->answer.children_size;
	size_t		prefix_length = request->other_path != NULL ?
		strlen(request->other_path) : 0;
	char	   *found = NULL;

	if (request->other_path == NULL && request->check.czxid == MADE_IN_TIME)
		request->check.czxid = reply->czxid;
	if (request->other_path == NULL)
		return reply->czxid != request->check.czxid &&
			reply->ephemeral_owner ==
			request->session->status.ticket.session_id &&
			request_become_delete(request);
	for (; child < end; child += strlen(child) + 1)
	{
		char	   *path;

		if (strncmp(child, request->other_path, prefix_length) != 0)
			continue;
		if (asprintf(&path, "%s/%s", request->path, child) < 0)
			exit(1);			/* the end of the session removes it */
		if (found != NULL)
			request_submit_delete(request->session, found);
		free(found);
		found = path;
	}
	if (found == NULL)
		return false;
	free(request->path);
	request->path = found;
	return request_become_delete(request);
}

bool
request_become_delete(Request *request)
{
	request->kind = REQUEST_DELETE;

	/* a lease may have been found and renewed by another call of its owner */
	request->version = request->node_kind == ZK_PERSISTENT_SEQUENTIAL ? 0 : -1;
	request->is_repeated = true;
	return true;
}

/* ---------------------------------------------------------------------
 * Requests that are executed late
 * ---------------------------------------------------------------------
 */

/* Is the node's name known before it is made? */
static bool
is_sequential(const Request *request)
{
	return request->node_kind == ZK_EPHEMERAL_SEQUENTIAL ||
		request->node_kind == ZK_PERSISTENT_SEQUENTIAL;
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

	if (answer_late(request->kind, request->node_kind) != ANSWER_SOUGHT)
		return;
	if (reply->result == ZK_UNKNOWN_OUTCOME &&
		request->lateness == LATE_NEVER)
		request->lateness = LATE_PERHAPS;
	if (reply->result == ZK_OK && !is_sequential(request))
	{
		searching = find_search(request->session, request->path);
		if (searching != NULL)
			searching->check.czxid = reply->czxid;
	}
}

/*
 * That request is over, and an attempt of it may be executed yet: from now on
 * look for the node at its path, if it is another one than the backend knows
 * of.  The name of a sequential one is not known: that is looked for if the
 * create is withdrawn (request_undo()).
 */
static void
search(Request *made)
{
	Session    *session = made->session;
	Request    *searching;

	if (is_sequential(made))
		return;
	made->lateness = LATE_NEVER;
	searching = find_search(session, made->path);
	if (searching == NULL)
	{
		searching = request_new_silent(session, REQUEST_ERASE, made->path);
		searching->node_kind = ZK_EPHEMERAL;
		searching->sent_over = session->link.number;
		searching->retry.due_at = DUE_WITH_CONNECTION;
		begin_search(searching);
	}
	searching->check.czxid = 0;
	if (made->kind == REQUEST_CREATE)
		searching->check.czxid = MADE_IN_TIME;
	else if (made->kind != REQUEST_DELETE &&
			 made->answer.reply.result == ZK_OK)
		searching->check.czxid = made->answer.reply.czxid;
}

/* The search for the node at that path, or NULL. */
static Request *
find_search(const Session *session, const char *path)
{
	Request    *request = session->traffic.nsearches > 0 ?
		session->traffic.all : NULL;

	while (request != NULL &&
		   (request->lateness != LATE_SEARCH || request->other_path != NULL ||
			strcmp(request->path, path) != 0))
		request = request->next;
	return request;
}

/* It is a search now.  If there are too many the oldest one is forgotten. */
static void
begin_search(Request *request)
{
	Session    *session = request->session;
	Request    *oldest = NULL;

	request->lateness = LATE_SEARCH;
	if (++session->traffic.nsearches <= SEARCHES_MAX)
		return;
	for (Request *other = session->traffic.all; other != NULL;
		 other = other->next)
		if (other->lateness == LATE_SEARCH && !other->is_pending &&
			other->retry.due_at == DUE_WITH_CONNECTION && other != request)
			oldest = other;
	if (oldest != NULL)
		free_request(oldest);
}

void
request_search_on(Request *request)
{
	end_refusal(request);
	if (request->check.czxid == MADE_IN_TIME)
		request->check.czxid = 0;	/* there was none */
	request->kind = REQUEST_ERASE;
	request->retry.due_at = DUE_WITH_CONNECTION;
}

/* It is refused no more, or nobody asks for it any more. */
static void
end_refusal(Request *request)
{
	Session    *session = request->session;

	if (request->retry.refused_at == 0)
		return;
	session->status.nrefused--;
	session->is_status_news = true;
	memset(&request->retry, 0, sizeof(request->retry));
}
