/*-------------------------------------------------------------------------
 *
 * program_request.c
 *	  Makes, finds and frees requests; where each stands; what the backend is
 *	  told.
 *
 * Nothing here sends anything to the ensemble.
 *
 *-------------------------------------------------------------------------
 */
#include "program_request.h"

#include <string.h>

/*
 * How many nodes are looked for at most that a late request may make.  A
 * session has so many only if that many creates were lost with connections.
 * Beyond that the oldest one is forgotten: if its node is made late, it goes
 * with the session, and a lease when its term is over.
 */
#define SEARCHES_MAX 256

/* Longest data and children of a reply: its other parts have room beside them. */
#define REPLY_MAX (FRAME_MAX - 64 * 1024)

/* Which step may follow which; none follows any other one. */
static const Moves legal_steps[REQUEST_LAST + 1] = {
	[REQUEST_CREATE] = MOVE_TO(REQUEST_WATCHED) | MOVE_TO(REQUEST_ERASE) |
	MOVE_TO(REQUEST_DELETE),
	[REQUEST_WATCHED] = MOVE_TO(REQUEST_DELETE),
	[REQUEST_ERASE] = MOVE_TO(REQUEST_ERASE) | MOVE_TO(REQUEST_DELETE),
	[REQUEST_DELETE] = MOVE_TO(REQUEST_ERASE)
};

/* Which state may follow which. */
static const Moves legal_states[] = {
	[REQUEST_NEW] = MOVE_TO(REQUEST_SENT) | MOVE_TO(REQUEST_AWAITS_CONNECTION),
	[REQUEST_SENT] = MOVE_TO(REQUEST_ANSWERED),
	[REQUEST_ANSWERED] = MOVE_TO(REQUEST_SENT) | MOVE_TO(REQUEST_DUE) |
	MOVE_TO(REQUEST_AWAITS_CONNECTION),
	[REQUEST_DUE] = MOVE_TO(REQUEST_SENT) | MOVE_TO(REQUEST_DUE),
	[REQUEST_AWAITS_CONNECTION] = MOVE_TO(REQUEST_SENT)
};

/* ---------------------------------------------------------------------
 * The list
 * ---------------------------------------------------------------------
 */

Request *
request_new(Session *session, uint64_t id, RequestKind step, const char *path)
{
	Request    *request = program_need(calloc(1, sizeof(*request)));

	request->path = program_need(strdup(path));
	request->id = id;
	request->order = ++session->traffic.nmade;
	request->session = session;
	request->step = step;
	request->version = -1;
	request->wish = id != 0 ? WISH_HEAR : WISH_DO;
	request->owed = OWED_FINISHED;
	request->next = session->traffic.all;
	if (session->traffic.all != NULL)
		session->traffic.all->previous = request;
	session->traffic.all = request;
	return request;
}

Request *
request_new_silent(Session *session, RequestKind step, const char *path)
{
	Request    *request = request_new(session, 0, step, path);

	request->is_repeated = true;
	request->owed = 0;
	return request;
}

void
request_free(Request *request)
{
	Session    *session = request->session;

	assert(request->state != REQUEST_SENT);
	if (request->next != NULL)
		request->next->previous = request->previous;
	if (request->previous != NULL)
		request->previous->next = request->next;
	else
		session->traffic.all = request->next;
	request_end_putting_off(request);
	request_end_refusal(request);
	if (request->search.lateness == LATE_SEARCH)
		session->traffic.nsearches--;
	free(request->path);
	free(request->content.data);
	free(request->leaving.lock);
	free(request->several.guard);
	free(request->several.old_node);
	free(request->several.set_node);
	free(request->several.nodes);
	free(request->several.results);
	free(request->search.prefix);
	free(request->answer.path);
	free(request->answer.data);
	free(request->answer.children);
	free(request);
}

bool
request_is_kept(const Request *request)
{
	return request->id != 0 &&
		(request->step == REQUEST_CREATE || request->step == REQUEST_WATCHED);
}

/* It is among the latest, and these come first. */
Request *
request_find(const Session *session, uint64_t id)
{
	Request    *request = session->traffic.all;

	while (request != NULL &&
		   (request->id != id || !request_is_kept(request)))
		request = request->next;
	return request;
}

Request *
request_find_watched(const Session *session, const char *path)
{
	Request    *request = session->traffic.all;

	while (request != NULL &&
		   (request->step != REQUEST_WATCHED || strcmp(request->path, path) != 0))
		request = request->next;
	return request;
}

Request *
request_find_oldest(const Session *session)
{
	Request    *request = session->traffic.all;

	while (request != NULL && request->next != NULL)
		request = request->next;
	return request;
}

Request *
request_find_search(const Session *session, const char *path)
{
	Request    *request = session->traffic.all;

	if (session->traffic.nsearches == 0)
		return NULL;
	while (request != NULL &&
		   (request->search.lateness != LATE_SEARCH ||
			request->search.prefix != NULL ||
			strcmp(request->path, path) != 0))
		request = request->next;
	return request;
}

/* ---------------------------------------------------------------------
 * Where a request stands
 * ---------------------------------------------------------------------
 */

void
request_set_state(Request *request, RequestState state)
{
	if (!move_is_legal(legal_states, request->state, state))
		session_end_illegal(request->session, "a request", request->state,
							state);
	request->state = state;
}

void
request_set_due(Request *request, int64_t at)
{
	Traffic    *traffic = &request->session->traffic;

	request_set_state(request, REQUEST_DUE);
	request->due_at = at;
	if (at < traffic->retry_at)
		traffic->retry_at = at;
}

void
request_go_on(Request *request, RequestKind step, char *path)
{
	assert(request->state != REQUEST_SENT);
	if (!move_is_legal(legal_steps, request->step, step))
		session_end_illegal(request->session, "the step of a request",
							request->step, step);
	request->step = step;
	if (path == NULL)
		return;
	free(request->path);
	request->path = path;
}

void
request_end_refusal(Request *request)
{
	Session    *session = request->session;

	if (request->refusal.since == 0)
		return;
	assert(session->status.nrefused > 0);
	session->status.nrefused--;
	session->is_status_news = true;
	request->refusal = (Refusal) {0};
}

void
request_end_putting_off(Request *request)
{
	Session    *session = request->session;

	if (request->put_off.since == 0)
		return;
	assert(session->status.nput_off > 0);
	request->put_off = (PutOff) {0};
	session->is_status_news |= --session->status.nput_off == 0;
}

void
request_begin_search(Request *request)
{
	Session    *session = request->session;
	Request    *oldest = NULL;

	assert(request->step == REQUEST_ERASE &&
		   request->search.lateness != LATE_SEARCH);
	request->search.lateness = LATE_SEARCH;
	if (++session->traffic.nsearches <= SEARCHES_MAX)
		return;
	for (Request *other = session->traffic.all; other != NULL;
		 other = other->next)
		if (other->state == REQUEST_AWAITS_CONNECTION && other != request)
			oldest = other;
	if (oldest != NULL)
		request_free(oldest);
}

/* ---------------------------------------------------------------------
 * What the backend is told
 * ---------------------------------------------------------------------
 */

void
request_count_finished(Request *request)
{
	if ((request->owed & OWED_FINISHED) == 0)
		return;
	request->owed &= ~(unsigned) OWED_FINISHED;
	atomic_fetch_add(&request->session->page->nfinished, 1);
}

void
request_count_undone(Request *request)
{
	if ((request->owed & OWED_UNDONE) == 0)
		return;
	request->owed &= ~(unsigned) OWED_UNDONE;
	request_tell_undone(request->session);
}

void
request_tell_undone(Session *session)
{
	const Frame wake = {.kind = FRAME_WAKE};

	atomic_fetch_add(&session->page->nundone, 1);
	backend_put(session, &wake, NULL, true);
}

/* That of a contender's create wakes nobody: the list behind it will. */
void
request_reply(Request *request)
{
	const Answer *answer = &request->answer;
	Frame		frame = {
		.kind = FRAME_REPLY,.id = request->id,.u.reply = answer->reply
	};
	bool		is_urgent = request->step != REQUEST_CREATE ||
		request->node_kind != ZK_EPHEMERAL_SEQUENTIAL;
	FrameBlob	blobs[FRAME_NBLOBS] = {
		frame_text(code_text(answer->code)),
		{answer->data, (size_t) answer->data_length},
		{answer->children, answer->children_size}
	};

	if (answer->reply.result == ZK_OK)
		blobs[0] = frame_text(answer->path);
	if (blobs[1].length + blobs[2].length > REPLY_MAX)
	{
		frame.u.reply.result = ZK_NO_MEMORY;
		frame.u.reply.nchildren = 0;
		blobs[1].length = blobs[2].length = 0;
	}
	backend_put(request->session, &frame, blobs, is_urgent);
}
