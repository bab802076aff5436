/*-------------------------------------------------------------------------
 *
 * program_follow.c
 *	  The session's program: the paths that it follows for its backend.
 *
 * There are two uses of a watch, and one callback for both.  The one ahead in
 * a queue, or a whole queue, is followed while the backend waits: it is told
 * what happens.  And the queue of each lock that is kept, or that is held and
 * may be kept, is followed from the grant on.  As soon as anybody else stands
 * there, or its time is over, the program gives up what is kept, whatever the
 * backend does at that moment (keep_word.h).  What is held will not be kept,
 * and the data of the node tells whoever has come: it is held, and not merely
 * kept.
 *
 * The library keeps a watch per path, callback and context.  There is but one
 * callback with one context, so that watches of waits that were given up do
 * not pile up.  What is of interest is in the session: the event of any other
 * path, left over from before, does nothing.
 *
 * The watch of a kept lock is on the children of the lock's znode.  It is not
 * removed when the lock is kept no more: its node goes then, and that uses
 * the watch up; if it was gone before, the next one who comes does.
 *
 *-------------------------------------------------------------------------
 */
#include "program_request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recipe.h"

/*
 * A lock that has been kept for so long shows in ZooKeeper, in the data of
 * its node; or after half of its time, if that is less.
 */
#define SHOW_MS 1000

/*
 * Below the znode of a lock there may be those of other locks.  Each that
 * comes or goes makes us read all their names; with more than this it is
 * not worth it.
 */
#define STRANGERS_MAX 64

/* A lock that is kept, or that is held and may be. */
struct Keep
{
	uint32_t	generation;		/* of its KeptLock; 0: there is none */
	char	   *node;			/* path of the queue node */
	char	   *lock;			/* and of the lock's znode */
	char	   *data;			/* of the node, as it was made */
	bool		is_shown;		/* the node's data says that it is kept */
	bool		has_strangers;	/* children that wait for nothing */
	Request    *list;			/* of the queue, under way; NULL: none is */
	int64_t		look_at;		/* when its time is looked at; INT64_MAX: when
								 * the backend says so */
};

static bool is_followed(const Session *session, const char *path,
						bool is_of_list);
static void forget_promise(Wait *wait);
static void tell_waiter(Session *session, int type);
static void begin_keep(Keep *keep, const FrameTaken *taken);
static void end_keep(Keep *keep);
static KeptLock *shared_part(const Session *session, const Keep *keep);
static Keep *next_keep(const Session *session, Keep *keep);
static void look_at_time(Session *session, Keep *keep, int64_t now);
static void give_way(Session *session, Keep *keep);
static void list_queue(Session *session, Keep *keep);
static void say(Session *session, const Keep *keep, const char *addition);
static void judge_list(Session *session, Keep *keep, const Request *list);

/* ---------------------------------------------------------------------
 * Watches
 * ---------------------------------------------------------------------
 */

/*
 * Session events reach every callback too, without using up the watch:
 * session_event() has them.  The event that comes while a list is under way
 * is of an earlier watch, and of what that list will show.  If there are only
 * contenders in the queue of a kept lock, whoever has come is one, and there
 * is no need for a list.
 */
void
follow_event(zhandle_t *zh, int type, int state, const char *path,
			 void *context)
{
	Session    *session = context;
	Wait	   *wait = &session->wait;

	(void) zh;
	(void) state;
	if (type == ZOO_SESSION_EVENT || path == NULL)
		return;
	for (Keep *keep = NULL; (keep = next_keep(session, keep)) != NULL;)
	{
		if (strcmp(keep->lock, path) != 0 || keep->list != NULL)
			continue;
		if (keep->has_strangers)
			list_queue(session, keep);
		else
			give_way(session, keep);
	}
	if (wait->path != NULL && strcmp(wait->path, path) == 0)
		tell_waiter(session, type);
}

/* Is that path's list, or its data, followed for anything? */
static bool
is_followed(const Session *session, const char *path, bool is_of_list)
{
	if (is_of_list)
		for (Keep *keep = NULL; (keep = next_keep(session, keep)) != NULL;)
			if (strcmp(keep->lock, path) == 0)
				return true;
	return session->wait.path != NULL &&
		session->wait.is_of_list == is_of_list &&
		strcmp(session->wait.path, path) == 0;
}

void
follow_remove_here(const Session *session, const char *path, bool is_of_list)
{
	zoo_aremove_all_watches(session->zh, path, is_of_list ?
							ZWATCHTYPE_CHILD : ZWATCHTYPE_DATA, 1, NULL, NULL);
}

void
follow_give_up(Session *session)
{
	for (Keep *keep = NULL; (keep = next_keep(session, keep)) != NULL;)
		follow_remove_here(session, keep->lock, true);
	wait_end(session);
}

void
follow_free(Session *session)
{
	for (Keep *keep = NULL; (keep = next_keep(session, keep)) != NULL;)
		end_keep(keep);
	free(session->keeps);
	wait_forget(session);
}

/* ---------------------------------------------------------------------
 * The wait
 * ---------------------------------------------------------------------
 */

void
wait_begin(Session *session, Request *request)
{
	Wait	   *wait = &session->wait;
	bool		is_of_list = request->step == STEP_LIST_AND_WATCH;

	if (wait->path == NULL || wait->is_of_list != is_of_list ||
		strcmp(wait->path, request->path) != 0)
	{
		wait_end(session);
		wait->path = strdup(request->path);
		if (wait->path == NULL)
			exit(1);
	}
	wait->id = request->id;
	wait->is_of_list = is_of_list;
	wait->is_set = false;
	forget_promise(wait);
	if (request->promise_id != 0)
	{
		wait->promise_id = request->promise_id;
		wait->promise_path = request->other_path;
		request->other_path = NULL;
	}
}

/*
 * The backend, which may have given up its wait, or been told of the lock by
 * a neighbor, takes the promise from the page itself then: one of us gets it.
 */
bool
wait_keep_promise(Session *session)
{
	Wait	   *wait = &session->wait;
	uint64_t	id = wait->promise_id;
	bool		is_wanted = wait->promise_path != NULL &&
		atomic_compare_exchange_strong(&session->page->promise_id, &id, 0);

	if (is_wanted)
	{
		program_cork(session, true);
		request_submit(request_new(session, id, STEP_LIST,
								   wait->promise_path));
		program_cork(session, false);
	}
	forget_promise(wait);
	return is_wanted;
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
	forget_promise(&session->wait);
	if (ended.path != NULL &&
		!is_followed(session, ended.path, ended.is_of_list))
	{
		removal = request_new_silent(session, STEP_UNWATCH, ended.path);
		removal->is_of_list = ended.is_of_list;
		request_submit(removal);
	}
	free(ended.path);
}

void
wait_forget(Session *session)
{
	free(session->wait.path);
	session->wait.path = NULL;
	forget_promise(&session->wait);
}

static void
forget_promise(Wait *wait)
{
	free(wait->promise_path);
	wait->promise_path = NULL;
}

/* The list that was promised wakes the backend, if there is one. */
static void
tell_waiter(Session *session, int type)
{
	Frame		frame = {.kind = FRAME_WATCH,.id = session->wait.id};
	const FrameBlob none[FRAME_NBLOBS] = {0};
	bool		is_followed;

	frame.u.watch.news = type == ZOO_CHANGED_EVENT ?
		ZK_WATCH_SET : ZK_WATCH_LOOK_AGAIN;
	is_followed = type == ZOO_DELETED_EVENT && wait_keep_promise(session);
	program_put(session, &frame, none, !is_followed);
	if (session->wait.is_set)
		wait_forget(session);	/* it is used up */
}

/* ---------------------------------------------------------------------
 * Kept locks
 * ---------------------------------------------------------------------
 */

/* While it was shown as kept, the backend tells that it has taken it. */
void
keep_take(Session *session, const FrameTaken *taken)
{
	const FrameKeep *told = &taken->frame.u.keep;
	Keep	   *keep;

	if (session->keeps == NULL)
		session->keeps = calloc(KEEP_SLOTS, sizeof(*session->keeps));
	if (session->keeps == NULL)
		exit(1);				/* as take_request() explains */
	keep = &session->keeps[told->slot];
	if (taken->blobs[0] != NULL)
	{
		int32_t		keep_ms = atomic_load(&shared_part(session, keep)->keep_ms);

		begin_keep(keep, taken);
		keep->look_at = protocol_now() +
			(keep_ms < SHOW_MS ? keep_ms : SHOW_MS);
		list_queue(session, keep);
		return;
	}
	if (keep->generation != told->generation)
		return;					/* given up meanwhile */
	if (keep->is_shown && keep_word_state(shared_part(session, keep),
										  keep->generation) != KEEP_SHOWN)
	{
		keep->is_shown = false;
		say(session, keep, "");
	}
	look_at_time(session, keep, protocol_now());
}

/* There are few of them, and mostly none. */
int64_t
keep_next_tick(const Session *session)
{
	int64_t		next = INT64_MAX;

	for (Keep *keep = NULL; (keep = next_keep(session, keep)) != NULL;)
		if (keep->look_at < next)
			next = keep->look_at;
	return next;
}

void
keep_tick(Session *session, int64_t now)
{
	for (Keep *keep = NULL; (keep = next_keep(session, keep)) != NULL;)
		if (now >= keep->look_at)
			look_at_time(session, keep, now);
}

/*
 * A reply that was lost with the connection is asked for again, and the watch
 * with it.  A queue that we may not read, or that is not there, is no place
 * to keep anything.
 */
bool
keep_listed(Request *request)
{
	Session    *session = request->session;
	Keep	   *keep = NULL;

	while ((keep = next_keep(session, keep)) != NULL && keep->list != request)
		;
	if (keep == NULL)
		return false;
	if (request->reply.result == ZK_UNKNOWN_OUTCOME)
		return true;
	keep->list = NULL;
	if (request->reply.result == ZK_OK)
		judge_list(session, keep, request);
	else if (request->reply.result != ZK_SESSION_LOST)
		give_way(session, keep);
	return false;
}

/* A lock is held that may be kept; what was in its slot is over. */
static void
begin_keep(Keep *keep, const FrameTaken *taken)
{
	const char *node = taken->blobs[0];

	end_keep(keep);
	keep->generation = taken->frame.u.keep.generation;
	keep->node = strdup(node);
	keep->lock = strndup(node, (size_t) (strrchr(node, '/') - node));
	keep->data = strdup(taken->blobs[1]);
	if (keep->node == NULL || keep->lock == NULL || keep->data == NULL)
		exit(1);				/* the end of the session removes it */
}

static void
end_keep(Keep *keep)
{
	free(keep->node);
	free(keep->lock);
	free(keep->data);
	memset(keep, 0, sizeof(*keep));
}

static KeptLock *
shared_part(const Session *session, const Keep *keep)
{
	return &session->page->kept[keep - session->keeps];
}

/* The one behind that one, or with NULL the first; NULL if there is none. */
static Keep *
next_keep(const Session *session, Keep *keep)
{
	if (session->keeps == NULL)
		return NULL;
	for (keep = keep == NULL ? session->keeps : keep + 1;
		 keep < session->keeps + KEEP_SLOTS; keep++)
		if (keep->generation != 0)
			return keep;
	return NULL;
}

/*
 * Is its time over, or is it time to show it?  While the backend holds it,
 * time is not looked at: it tells when it keeps it again.
 */
static void
look_at_time(Session *session, Keep *keep, int64_t now)
{
	KeptLock   *shared = shared_part(session, keep);
	KeepState	state = keep_word_state(shared, keep->generation);
	int32_t		keep_ms = atomic_load(&shared->keep_ms);
	int64_t		since = atomic_load(&shared->since);	/* or later */
	int64_t		show_at = since + (keep_ms / 2 < SHOW_MS ?
								   keep_ms / 2 : SHOW_MS);
	KeepState	next = state;

	keep->look_at = INT64_MAX;
	if (state == KEEP_HELD)
		next = KEEP_HELD_TELL;
	else if (state == KEEP_KEPT || state == KEEP_SHOWN)
	{
		keep->look_at = since + keep_ms;
		if (now >= keep->look_at)
			next = KEEP_EXPIRED;
		else if (state == KEEP_KEPT && now >= show_at)
			next = KEEP_SHOWN;
		else if (state == KEEP_KEPT)
			keep->look_at = show_at;
	}
	if (next == state)
		return;
	if (!keep_word_change(shared, keep->generation, state, next))
		keep->look_at = now;	/* the backend has changed it meanwhile */
	else if (next == KEEP_SHOWN)
	{
		keep->is_shown = true;
		say(session, keep, ",\"kept\":true");
	}
	else if (next == KEEP_EXPIRED)
	{
		request_submit_delete(session, keep->node);
		end_keep(keep);
	}
}

/*
 * Give it up, or see to it that it is not kept again, and tell those who have
 * come that it is held.
 */
static void
give_way(Session *session, Keep *keep)
{
	switch (keep_word_want(shared_part(session, keep), keep->generation))
	{
		case KEEP_GIVEN_UP:
			request_submit_delete(session, keep->node);
			break;
		case KEEP_HELD_WANTED:
			say(session, keep, ",\"kept\":false");
			break;
		default:				/* the backend has ended it */
			break;
	}
	end_keep(keep);
}

/* Read the queue, and watch it from then on. */
static void
list_queue(Session *session, Keep *keep)
{
	keep->list = request_new_silent(session, STEP_KEEP_LIST, keep->lock);
	request_submit(keep->list);
}

/* Set the data of the node, until it is confirmed. */
static void
say(Session *session, const Keep *keep, const char *addition)
{
	Request    *request = request_new_silent(session, STEP_ANNOUNCE,
											 keep->node);
	int			length = asprintf(&request->data, "%.*s%s}",
								  (int) strlen(keep->data) - 1, keep->data,
								  addition);

	if (length < 0)
		exit(1);				/* the end of the session removes it */
	request->data_length = length;
	request_submit(request);
}

/* Does anybody else stand in the queue?  Our own node has to. */
static void
judge_list(Session *session, Keep *keep, const Request *list)
{
	const char *own = strrchr(keep->node, '/') + 1;
	const char *end_of_list = list->reply_children + list->reply_children_size;
	int			nstrangers = 0;
	int			ncontenders = 0;
	bool		is_there = false;

	for (const char *child = list->reply_children; child < end_of_list;
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
