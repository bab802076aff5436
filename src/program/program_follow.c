/*-------------------------------------------------------------------------
 *
 * program_follow.c
 *	  The paths that the program watches, for a wait and for kept locks.
 *
 * There are three uses of a watch, and one callback for all.  The one ahead in
 * a queue, or a whole queue, is followed while the backend waits: it is told
 * what happens.  And the queue of each lock that is kept, or that is held and
 * may be kept, is followed from the grant on.  As soon as another contender is
 * there, or the time of the kept lock is over, the program gives up a kept
 * lock, whatever the backend does at that moment (keep_state.h).  A lock that
 * is held will not be kept, and the data of its node tells the other contender
 * that it is held, and not merely kept.  And the place of each lock is
 * followed that is held for more than a moment (program_step.c): if it is
 * gone, and it was not we who deleted it, the backend is interrupted.
 *
 * The library keeps a watch per path, callback and context.  There is but one
 * callback with one context, so that watches of waits that were given up do
 * not pile up.  What is of interest is in the session: the event of any other
 * path, left over from before, does nothing.
 *
 * The watch of a kept lock is on the children of the lock's znode.  It is not
 * removed when the lock is kept no more: its node goes then, and that uses the
 * watch up; if it was gone before, the next contender that comes does.  That
 * of a place that is held is on its children, too: it has none, so that only
 * its end is an event.
 *
 *-------------------------------------------------------------------------
 */
#include "program_request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recipe.h"

/*
 * While a lock is held its time is not looked at more often than that: a
 * shorter one may be over so much later.
 */
#define LOOK_MS 1000

/*
 * Below the znode of a lock there may be those of other locks.  Each that
 * comes or goes makes us read all their names; with more than this it is
 * not worth it.
 */
#define STRANGERS_MAX 64

/* A lock that is kept, or that is held and may be. */
struct Keep
{
	KeptLock   *shared;			/* in the page */
	uint32_t	generation;		/* of that; 0: there is none */
	char	   *node;			/* path of the queue node */
	char	   *lock;			/* and of the lock's znode */
	char	   *data;			/* of the node, as it was made */
	bool		has_strangers;	/* children that wait for nothing */
	Request    *list;			/* of the queue, under way; NULL: none is */
	int64_t		look_at;		/* when its time is looked at */
};

static bool is_queue_of_keep(const Session *session, const char *path);
static void tell_waiter(Session *session, int type);
static void end_keep(Keep *keep);
static Keep *next_keep(const Session *session, Keep *keep);
static void end_keep_in_time(Session *session, Keep *keep, int64_t now);
static void give_way(Session *session, Keep *keep);
static void list_queue(Session *session, Keep *keep);
static void note_listed(Request *list);
static void announce_held(Session *session, const Keep *keep);
static void judge_list(Session *session, Keep *keep, const Request *list);

/* ---------------------------------------------------------------------
 * Watches
 * ---------------------------------------------------------------------
 */

/*
 * Session events reach every callback too, without using up the watch:
 * session_event() has them.  The event that comes while a list is under way is
 * of an earlier watch, and of what that list will show.  If there are only
 * contenders in the queue of a kept lock, the new child is one, too, and there
 * is no need for a list.
 */
void
follow_event(zhandle_t *zh, int type, int state, const char *path,
			 void *context)
{
	Session    *session = context;
	Wait	   *wait = &session->wait;
	Request    *watched;

	if (type == ZOO_SESSION_EVENT || path == NULL)
		return;
	for (Keep *keep = NULL; (keep = next_keep(session, keep)) != NULL;)
	{
		bool		is_gone = strcmp(keep->node, path) == 0;

		if (!is_gone &&
			(strcmp(keep->lock, path) != 0 || keep->list != NULL))
			continue;
		if (!is_gone && keep->has_strangers)
			list_queue(session, keep);
		else
			give_way(session, keep);
	}
	watched = request_find_watched(session, path);
	if (watched != NULL && watched->state != REQUEST_SENT)
		step_submit(watched);
	if (wait->path != NULL && strcmp(wait->path, path) == 0)
		tell_waiter(session, type);
}

/* Is the list of that path followed for a kept lock? */
static bool
is_queue_of_keep(const Session *session, const char *path)
{
	for (Keep *keep = NULL; (keep = next_keep(session, keep)) != NULL;)
		if (strcmp(keep->lock, path) == 0)
			return true;
	return false;
}

/*
 * Once the session has come to its end nothing is to be watched after the next
 * connect: that may be the reason of its end, and must not be in the way of the
 * close.
 */
void
follow_tick(Session *session)
{
	if (!session->is_watch_over)
		return;
	session->is_watch_over = false;
	for (Keep *keep = NULL; (keep = next_keep(session, keep)) != NULL;)
		library_forget_watch(session, keep->lock, WATCH_CHILDREN);
	for (Request *watched = session->traffic.all; watched != NULL;
		 watched = watched->next)
		if (watched->step == REQUEST_WATCHED)
			library_forget_watch(session, watched->path, WATCH_CHILDREN);
	wait_end(session);
}

/* ---------------------------------------------------------------------
 * The wait
 * ---------------------------------------------------------------------
 */

void
wait_begin(Session *session, Request *request)
{
	Wait	   *wait = &session->wait;

	assert(request->id != 0 && request->watch != WATCH_NONE);
	if (wait->path == NULL || wait->watch != request->watch ||
		strcmp(wait->path, request->path) != 0)
	{
		wait_end(session);
		wait->path = program_need(strdup(request->path));
	}
	wait->id = request->id;
	wait->watch = request->watch;
	wait->is_set = false;
}

/*
 * If there was no event the watch would stay on the server until its node
 * goes, and in all that is said again after a reconnect (ZOOKEEPER-706).
 */
void
wait_end(Session *session)
{
	Wait		ended = session->wait;
	Request    *removal;

	session->wait.path = NULL;
	if (ended.path != NULL &&
		(ended.watch == WATCH_DATA || !is_queue_of_keep(session, ended.path)))
	{
		removal = request_new_silent(session, REQUEST_UNWATCH, ended.path);
		removal->watch = ended.watch;
		step_submit(removal);
	}
	free(ended.path);
}

static void
tell_waiter(Session *session, int type)
{
	Frame		frame = {
		.kind = FRAME_WATCH,.id = session->wait.id,
		.u.watch_news = ZK_WATCH_LOOK_AGAIN
	};

	if (type == ZOO_CHANGED_EVENT)
		frame.u.watch_news = ZK_WATCH_SET;
	backend_put(session, &frame, NULL, true);
	if (session->wait.is_set)
		wait_forget(&session->wait);	/* it is used up */
}

/* ---------------------------------------------------------------------
 * Kept locks
 * ---------------------------------------------------------------------
 */

void
keep_take(Session *session, const FrameTaken *taken)
{
	const char *node = taken->blobs[0];
	Keep	   *keep;

	if (session->keeps == NULL)
		session->keeps = program_need(calloc(KEEP_SLOTS,
											 sizeof(*session->keeps)));
	keep = &session->keeps[taken->frame.u.keep.slot];
	end_keep(keep);				/* what was in its slot is over */
	keep->shared = &session->page->kept[taken->frame.u.keep.slot];
	keep->generation = taken->frame.u.keep.generation;
	keep->node = program_need(strdup(node));
	keep->lock = program_need(strndup(node, (size_t) (strrchr(node, '/') - node)));
	keep->data = program_need(strdup(taken->blobs[1]));
	keep->look_at = protocol_now();
	list_queue(session, keep);
}

/* There are few of them, and mostly none. */
void
keep_tick(Session *session, int64_t now)
{
	for (Keep *keep = NULL; (keep = next_keep(session, keep)) != NULL;)
	{
		if (now >= keep->look_at)
			end_keep_in_time(session, keep, now);
		if (keep->generation != 0)
			program_wake_at(session, keep->look_at);
	}
}

bool
keep_is_any(const Session *session)
{
	return next_keep(session, NULL) != NULL;
}

static void
end_keep(Keep *keep)
{
	free(keep->node);
	free(keep->lock);
	free(keep->data);
	memset(keep, 0, sizeof(*keep));
}

/* The one behind that one, or with NULL the first; NULL if there is none. */
static Keep *
next_keep(const Session *session, Keep *keep)
{
	Keep	   *next = session->keeps;

	if (next == NULL)
		return NULL;
	if (keep != NULL)
		next = keep + 1;
	while (next < session->keeps + KEEP_SLOTS && next->generation == 0)
		next++;
	return next < session->keeps + KEEP_SLOTS ? next : NULL;
}

/*
 * If its time is over, and the backend has not taken it back, its node goes.
 * While it is held nobody tells us when it is kept again: look again after
 * that time.
 */
static void
end_keep_in_time(Session *session, Keep *keep, int64_t now)
{
	KeptLock   *shared = keep->shared;
	int32_t		keep_ms = atomic_load(&shared->keep_ms);

	keep->look_at = atomic_load(&shared->since) + keep_ms;
	if (now < keep->look_at)
		return;
	if (keep_state_expire(shared, keep->generation))
	{
		step_submit_delete(session, keep->node);
		end_keep(keep);
	}
	else
		keep->look_at = now + (keep_ms > LOOK_MS ? keep_ms : LOOK_MS);
}

/*
 * Give it up, or see to it that it is not kept again, and tell the other
 * contenders that it is held.
 */
static void
give_way(Session *session, Keep *keep)
{
	KeepState	state = keep_state_want(keep->shared, keep->generation);

	assert(keep->generation != 0);

	/* in any other state the backend has ended it */
	if (state == KEEP_GIVEN_UP)
		step_submit_delete(session, keep->node);
	else if (state == KEEP_HELD_WANTED)
		announce_held(session, keep);
	end_keep(keep);
}

/* Read the queue, and watch it from then on. */
static void
list_queue(Session *session, Keep *keep)
{
	keep->list = request_new_silent(session, REQUEST_LIST, keep->lock);
	keep->list->watch = WATCH_CHILDREN;
	keep->list->listed = note_listed;
	step_submit(keep->list);
}

/*
 * A reply that was lost with the connection is asked for again before this, and
 * the watch with it.  A queue that we may not read, or that is not there, is no
 * place to keep anything.
 */
static void
note_listed(Request *list)
{
	Session    *session = list->session;
	Keep	   *keep = NULL;

	while ((keep = next_keep(session, keep)) != NULL && keep->list != list)
		;
	if (keep == NULL)
		return;
	keep->list = NULL;
	if (list->answer.reply.result == ZK_OK)
		judge_list(session, keep, list);
	else if (list->answer.reply.result != ZK_SESSION_LOST)
		give_way(session, keep);
}

/* Say in the data of the node that it is held and will not be kept. */
static void
announce_held(Session *session, const Keep *keep)
{
	Request    *request = request_new_silent(session, REQUEST_SET,
											 keep->node);
	int			length = asprintf(&request->content.data, "%.*s,\"kept\":false}",
								  (int) strlen(keep->data) - 1, keep->data);

	if (length < 0)
		exit(1);				/* the end of the session removes it */
	request->content.length = length;
	step_submit(request);
}

/* Does anybody else stand in the queue?  Our own node has to. */
static void
judge_list(Session *session, Keep *keep, const Request *list)
{
	const char *own = strrchr(keep->node, '/') + 1;
	const char *end_of_list = list->answer.children +
		list->answer.children_size;
	int			nstrangers = 0;
	int			ncontenders = 0;
	bool		is_there = false;

	for (const char *child = list->answer.children; child < end_of_list;
		 child += strlen(child) + 1)
	{
		bool		is_own = strcmp(child, own) == 0;

		is_there |= is_own;
		if (recipe_parse_node(child).style == RECIPE_STYLE_NONE)
			nstrangers++;
		else if (!is_own)
			ncontenders++;
	}
	keep->has_strangers = nstrangers > 0;
	if (!is_there || ncontenders > 0 || nstrangers > STRANGERS_MAX)
		give_way(session, keep);
}
