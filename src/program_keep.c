/*-------------------------------------------------------------------------
 *
 * program_keep.c
 *	  The session's program: locks that its backend keeps after their release.
 *
 * The program watches the queue of each of them from the grant on, held or
 * kept.  As soon as anybody else stands there, or its time is over, it gives
 * up what is kept, whatever the backend does just then (keep_word.h).  What
 * is held will not be kept, and the data of the node tells whoever has come:
 * it is held, and not merely kept.
 *
 * The watch is on the children of the lock's znode.  It is not removed when
 * the lock is kept no more: its node goes then, and that uses the watch up;
 * if it was gone before, the next one who comes does.
 *
 * Servers tell what happens only to those who may still read the znode, and
 * whoever may change its ACL can shut us out.  So the queue is read again once
 * in a while, as waiters do (contender_watch.c).
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

/* After so many session timeouts the queue is read again. */
#define LIST_TIMEOUTS 10

/* A lock that is kept, or that is held and may be. */
struct Keep
{
	uint32_t	generation;		/* of its word; 0: there is none */
	int			keep_ms;
	char	   *node;			/* path of the queue node */
	char	   *lock;			/* and of the lock's znode */
	char	   *data;			/* of the node, as it was made */
	int64_t		begun_at;
	bool		is_shown;		/* the node's data says that it is kept */
	bool		is_listing;		/* a list is on its way */
	bool		is_outdated;	/* and something has happened since */
	bool		has_strangers;	/* children that wait for nothing */
	int64_t		look_at;		/* when its time is looked at; INT64_MAX: when
								 * the backend says so */
	int64_t		list_at;		/* when the queue is to be read again */
};

static void begin(Keep *keep, const FrameTaken *taken);
static void end(Keep *keep);
static KeepWord *word_of(const Session *session, const Keep *keep);
static Keep *find_by_lock(const Session *session, const char *lock);
static void look_at_time(Session *session, Keep *keep, int64_t now);
static void give_way(Session *session, Keep *keep);
static void list_queue(Session *session, Keep *keep);
static void say(Session *session, const Keep *keep, const char *addition);
static void judge_list(Session *session, Keep *keep, const Request *list);

void
keep_take(Session *session, const FrameTaken *taken)
{
	const FrameKeep *wanted = &taken->frame.u.keep;
	Keep	   *keep;

	if (session->keeps == NULL)
		session->keeps = calloc(KEEP_SLOTS, sizeof(*session->keeps));
	if (session->keeps == NULL)
		exit(1);				/* as take_request() explains */
	keep = &session->keeps[wanted->slot];
	if (taken->blobs[0] != NULL)
	{
		begin(keep, taken);
		list_queue(session, keep);
		return;
	}
	if (keep->generation != wanted->generation)
		return;					/* given up meanwhile */
	if (wanted->keep_ms == 0)
	{
		end(keep);
		return;
	}
	keep->keep_ms = wanted->keep_ms;
	if (keep->is_shown &&
		!keep_word_change(word_of(session, keep), keep->generation,
						  KEEP_KEPT, KEEP_SHOWN))
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

	for (int i = 0; session->keeps != NULL && i < KEEP_SLOTS; i++)
	{
		const Keep *keep = &session->keeps[i];

		if (keep->generation != 0 && keep->look_at < next)
			next = keep->look_at;
		if (keep->generation != 0 && !keep->is_listing && keep->list_at < next)
			next = keep->list_at;
	}
	return next;
}

void
keep_tick(Session *session, int64_t now)
{
	for (int i = 0; session->keeps != NULL && i < KEEP_SLOTS; i++)
	{
		Keep	   *keep = &session->keeps[i];

		if (keep->generation != 0 && !keep->is_listing && now >= keep->list_at)
			list_queue(session, keep);
		if (keep->generation != 0 && now >= keep->look_at)
			look_at_time(session, keep, now);
	}
}

/*
 * Something has come or gone in a queue.  If there are only contenders below
 * the lock's znode that was one, and there is no need to look.
 */
void
keep_event(zhandle_t *zh, int type, int state, const char *path,
		   void *context)
{
	Session    *session = context;
	Keep	   *keep;

	(void) zh;
	(void) state;
	if (type == ZOO_SESSION_EVENT || path == NULL)
		return;
	keep = find_by_lock(session, path);
	if (keep == NULL)
		return;
	if (keep->is_listing)
		keep->is_outdated = true;
	else if (keep->has_strangers)
		list_queue(session, keep);
	else
		give_way(session, keep);
}

/*
 * An answer that was lost with the connection is asked for again, and the
 * watch with it.  A queue that we may not read, or that is not there, is no
 * place to keep anything.
 */
bool
keep_listed(Request *request)
{
	Session    *session = request->session;
	Keep	   *keep = find_by_lock(session, request->path);

	if (keep == NULL || !keep->is_listing ||
		request->reply.result == ZK_SESSION_LOST)
		return false;
	if (request->reply.result == ZK_UNKNOWN_OUTCOME || keep->is_outdated)
	{
		keep->is_outdated = false;
		return true;
	}
	keep->is_listing = false;
	if (request->reply.result == ZK_OK)
		judge_list(session, keep, request);
	else
		give_way(session, keep);
	return false;
}

void
keep_give_up(Session *session)
{
	for (int i = 0; session->keeps != NULL && i < KEEP_SLOTS; i++)
		if (session->keeps[i].generation != 0)
			zoo_aremove_all_watches(session->zh, session->keeps[i].lock,
									ZWATCHTYPE_CHILD, 1, NULL, NULL);
}

void
keep_free(Session *session)
{
	for (int i = 0; session->keeps != NULL && i < KEEP_SLOTS; i++)
		end(&session->keeps[i]);
	free(session->keeps);
}

/* A lock is held that may be kept; what was in its slot is over. */
static void
begin(Keep *keep, const FrameTaken *taken)
{
	const char *node = taken->blobs[0];

	end(keep);
	keep->generation = taken->frame.u.keep.generation;
	keep->keep_ms = taken->frame.u.keep.keep_ms;
	keep->node = strdup(node);
	keep->lock = strndup(node, (size_t) (strrchr(node, '/') - node));
	keep->data = strdup(taken->blobs[1]);
	keep->begun_at = protocol_now();
	if (keep->node == NULL || keep->lock == NULL || keep->data == NULL)
		exit(1);				/* the end of the session removes it */
	keep->look_at = keep->begun_at +
		(keep->keep_ms < SHOW_MS ? keep->keep_ms : SHOW_MS);
}

static void
end(Keep *keep)
{
	free(keep->node);
	free(keep->lock);
	free(keep->data);
	memset(keep, 0, sizeof(*keep));
}

static KeepWord *
word_of(const Session *session, const Keep *keep)
{
	return &session->page->keeps[keep - session->keeps];
}

static Keep *
find_by_lock(const Session *session, const char *lock)
{
	for (int i = 0; session->keeps != NULL && i < KEEP_SLOTS; i++)
		if (session->keeps[i].generation != 0 &&
			strcmp(session->keeps[i].lock, lock) == 0)
			return &session->keeps[i];
	return NULL;
}

/*
 * Is its time over, or is it time to show it?  While the backend holds it,
 * time is not looked at: it tells when it keeps it again.
 */
static void
look_at_time(Session *session, Keep *keep, int64_t now)
{
	KeepWord   *word = word_of(session, keep);
	KeepState	state = keep_word_state(word, keep->generation);
	int64_t		since = atomic_load(&word->since);	/* or later */
	int64_t		end_at = since + keep->keep_ms;
	int64_t		show_at = since + (keep->keep_ms / 2 < SHOW_MS ?
								   keep->keep_ms / 2 : SHOW_MS);

	keep->look_at = now;		/* again, if the word changes meanwhile */
	switch (state)
	{
		case KEEP_HELD:
			if (keep_word_change(word, keep->generation, KEEP_HELD,
								 KEEP_HELD_TELL))
				keep->look_at = INT64_MAX;
			break;
		case KEEP_KEPT:
		case KEEP_SHOWN:
			if (now < show_at || (keep->is_shown && now < end_at))
				keep->look_at = keep->is_shown ? end_at : show_at;
			else if (!keep_word_change(word, keep->generation, state,
									   now < end_at ?
									   KEEP_SHOWN : KEEP_EXPIRED))
				break;
			else if (now < end_at)
			{
				keep->is_shown = true;
				keep->look_at = end_at;
				say(session, keep, ",\"kept\":true");
			}
			else
			{
				request_submit_delete(session, keep->node);
				end(keep);
			}
			break;
		case KEEP_FREE:
		case KEEP_HELD_TELL:
		case KEEP_HELD_WANTED:
		case KEEP_GIVEN_UP:
		case KEEP_EXPIRED:
			keep->look_at = INT64_MAX;
			break;
	}
}

/*
 * Give it up, or see to it that it is not kept again, and tell those who have
 * come that it is held.
 */
static void
give_way(Session *session, Keep *keep)
{
	switch (keep_word_want(word_of(session, keep), keep->generation))
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
	end(keep);
}

/* Read the queue, and watch it from then on. */
static void
list_queue(Session *session, Keep *keep)
{
	Request    *request = request_new_silent(session, STEP_KEEP_LIST,
											 keep->lock);

	keep->is_listing = true;
	keep->is_outdated = false;
	keep->list_at = session->status.session_timeout_ms == 0 ?
		INT64_MAX : protocol_now() +
		LIST_TIMEOUTS * (int64_t) session->status.session_timeout_ms;
	request_submit(request);
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
