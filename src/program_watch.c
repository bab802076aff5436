/*-------------------------------------------------------------------------
 *
 * program_watch.c
 *	  The session's program: the one watch of a wait.
 *
 *-------------------------------------------------------------------------
 */
#include "program_request.h"

#include <stdlib.h>
#include <string.h>

static void forget_promise(Session *session);

void
watch_begin(Session *session, Request *request)
{
	bool		is_of_list = request->step == STEP_LIST_AND_WATCH;

	if (session->watch_path == NULL ||
		session->is_watch_of_list != is_of_list ||
		strcmp(session->watch_path, request->path) != 0)
	{
		watch_end(session);
		session->watch_path = strdup(request->path);
		if (session->watch_path == NULL)
			exit(1);
	}
	session->watch_id = request->id;
	session->is_watch_of_list = is_of_list;
	session->is_watch_set = false;
	forget_promise(session);
	if (request->promise_id != 0)
	{
		session->promise_id = request->promise_id;
		session->promise_path = request->other_path;
		request->other_path = NULL;
	}
}

/*
 * The backend, which may have given up its wait, or been told of the lock by
 * a neighbor, takes the promise from the page itself then: one of us gets it.
 */
bool
watch_keep_promise(Session *session)
{
	uint64_t	id = session->promise_id;
	char	   *path = session->promise_path;
	bool		is_wanted = path != NULL &&
		atomic_compare_exchange_strong(&session->page->promise_id, &id, 0);

	if (is_wanted)
	{
		program_cork(session, true);
		request_submit(request_new(session, id, STEP_LIST, path));
		program_cork(session, false);
	}
	forget_promise(session);
	return is_wanted;
}

/*
 * Nobody waits for its event any more.  If there was none the watch would
 * stay on the server until its node goes, and in all that is said again after
 * a reconnect (ZOOKEEPER-706).
 */
void
watch_end(Session *session)
{
	Request    *removal;
	char	   *path = session->watch_path;

	session->watch_path = NULL;
	forget_promise(session);
	if (path != NULL && !watch_is_wanted(session, path,
										 session->is_watch_of_list))
	{
		removal = request_new_silent(session, STEP_UNWATCH, path);
		removal->is_of_list = session->is_watch_of_list;
		request_submit(removal);
	}
	free(path);
}

void
watch_forget(Session *session)
{
	free(session->watch_path);
	session->watch_path = NULL;
	forget_promise(session);
}

bool
watch_is_wanted(const Session *session, const char *path, bool is_of_list)
{
	return session->watch_path != NULL &&
		session->is_watch_of_list == is_of_list &&
		strcmp(session->watch_path, path) == 0;
}

/* In the library's memory alone. */
void
watch_remove_here(const Request *request)
{
	zoo_aremove_all_watches(request->session->zh, request->path,
							request->is_of_list ? ZWATCHTYPE_CHILD :
							ZWATCHTYPE_DATA, 1, NULL, NULL);
}

/*
 * One watcher function with one context serves every watch of a wait: the
 * library keeps a watch per (function, context), so that contexts of given-up
 * waits would pile up until their node goes.  Which node is of interest is
 * kept in the session; an event of any other node, left over from a wait that
 * was given up, wakes nobody.  Session events reach every watcher too,
 * without using up the watch: session_event() has them.
 */
void
watch_node_event(zhandle_t *zh, int type, int state, const char *path,
				 void *context)
{
	Session    *session = context;
	Frame		frame = {.kind = FRAME_WATCH,.id = session->watch_id};
	const FrameBlob none[FRAME_NBLOBS] = {0};
	bool		is_followed;

	(void) zh;
	(void) state;
	if (type == ZOO_SESSION_EVENT || path == NULL ||
		session->watch_path == NULL || strcmp(session->watch_path, path) != 0)
		return;
	frame.u.watch.news = type == ZOO_CHANGED_EVENT ?
		ZK_WATCH_SET : ZK_WATCH_LOOK_AGAIN;
	is_followed = type == ZOO_DELETED_EVENT && watch_keep_promise(session);
	program_put(session, &frame, none, !is_followed);
	if (session->is_watch_set)
		watch_forget(session);	/* it is used up */
}

void
watch_give_up(Session *session)
{
	keep_give_up(session);
	watch_end(session);
}

static void
forget_promise(Session *session)
{
	free(session->promise_path);
	session->promise_path = NULL;
}
