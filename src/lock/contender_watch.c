/*-------------------------------------------------------------------------
 *
 * contender_watch.c
 *	  A contender's wait behind the one just ahead: the watch, and the lock
 *	  that is handed over.
 *
 * Hand-over through the ensemble saves the waiter the second list.  A holder
 * that had to wait for the lock sets the data of its node before it deletes
 * the node.  Nobody else can set it: a session without credentials of the
 * user's has a random identity, which the ACL of its nodes names, and the mark
 * RECIPE_MARK_HAND_OVER in their names says so.  So when the data is set we
 * know three things: the lock was held; nobody was ahead of its holder; and
 * the holder lets go.  By our own list we are the next, so the lock is ours,
 * however late we learn of it.  That supposes that our own node still exists,
 * which a list would have shown: without a fresh proof of that the quorum is
 * asked (confirm_queued()).  A deletion of the node proves nothing of that
 * kind: a waiter deletes its node when it gives up, and a downgrade deletes it
 * while the lock is held.  Readers always list, for several are granted
 * together.
 *
 * Whoever may create nodes in the queue can make one with the mark and set its
 * data, and never have held the lock.  So the message of the one ahead is
 * certain only if its node was the first of our own list: then the lock was
 * its, whoever made it.  Otherwise the message is believed if the contender
 * does not need certainty (wants_list), and the grant is confirmed before more
 * depends on it (zklock_contend_confirm()).
 *
 * Whoever has the credentials of zklock.auth may write to all nodes that were
 * made with them.  So a session with credentials does not mark its nodes, and
 * a waiter behind it lists.
 *
 * Hand-over through shared memory saves the waiter the ensemble.  A holder
 * that lets go tells a backend of the same cluster that waits for its node
 * (handover.c), and deletes its node without setting it.  The same conclusion
 * holds, also if the holder's session is not alive any more: it was granted
 * the lock, so nobody was ahead of it, and nobody can have come in between.
 * Its node may exist for a while.  Contenders that list meanwhile wait for it,
 * and those to which we hand the lock over need no list.  But the message does
 * not say what the ensemble has done since.  We may have been evicted, and the
 * lock granted to those behind us, while our server still has our node.  So a
 * read of it is no proof.  Without a connection we are in join() of
 * contender.c, and wait for no such message.
 *
 * Semaphores: any of the holders may leave first.  So the first waiter watches
 * the whole queue, and each other waiter watches the one just ahead.  A
 * contender that is granted a permit while others are behind it sets the data
 * of its node; then the next one is the first waiter.  A release wakes one
 * backend, and a grant one more.
 *
 *-------------------------------------------------------------------------
 */
#include "contender_private.h"

#include "utils/memutils.h"

#include "expiry.h"
#include "handover.h"
#include "nodedata.h"
#include "queue.h"
#include "text.h"

/*
 * How many session timeouts to wait behind a node of zklock's, see
 * look_again_at().
 */
#define OWN_LOOKS 10

/* Of so many locks a session warns that others may not wait for it. */
#define WARNED_MAX 100

static ZkWaitEnd watch_next(Standing *standing, const char *ahead);
static void warn_once(const Standing *standing, const char *ahead,
					  const ZkReply *reply);
static bool may_be_kept(const Standing *standing, const char *ahead);
static bool says_held(const ZkReply *reply);
static bool is_word_good(const Standing *standing);
static int64 look_again_at(int timeouts);
static bool note_version(Standing *standing, const char *ahead,
						 const ZkReply *reply);
static const char *child_path(const Standing *standing, const char *child,
							  char path[RECIPE_PATH_SIZE]);
static ZkWaitEnd await_watch(Standing *standing, int64 look_at);
static const ZkReply *set_watch(Standing *standing, const char *child,
								ZkWaitEnd *end);

ZkWaitEnd
contender_watch(Standing *standing, const char *ahead)
{
	bool		is_watched = standing->watches_queue;

	standing->is_handed_over = standing->is_told = false;
	if (ahead != NULL)
		return watch_next(standing, ahead);

	/*
	 * The first waiter for a permit: from now on its lists are watched.  If
	 * the last list was not, read one that is before waiting.
	 */
	standing->watches_queue = true;
	return is_watched ? await_watch(standing, look_again_at(OWN_LOOKS)) :
		ZK_WAIT_OVER;
}

bool
contender_is_held(Standing *standing, const char *ahead)
{
	char		path[RECIPE_PATH_SIZE];

	return !may_be_kept(standing, ahead) ||
		zklock_contend_is_held(&standing->trip,
							   child_path(standing, ahead, path));
}

bool
zklock_contend_is_held(ZkRoundTrip *trip, const char *path)
{
	const ZkReply *reply = zklock_roundtrip_read(trip, ZK_GET, path);

	if (reply == NULL || reply->result == ZK_OK)
		return reply == NULL || says_held(reply);
	return reply->result != ZK_NO_NODE && reply->result != ZK_SESSION_LOST;
}

ZkWaitEnd
contender_await_keeper(Standing *standing, const char *ahead)
{
	const ZkReply *reply;
	ZkWaitEnd	end;

	if (!may_be_kept(standing, ahead))
		return ZK_WAIT_TIMEOUT;
	if (standing->keeper_until == 0)
		standing->keeper_until = Min(standing->contender->bounds.deadline,
									 protocol_now() + ZK_KEEPER_MS);
	else if (protocol_now() >= standing->keeper_until)
		return ZK_WAIT_TIMEOUT;
	standing->watches_queue = false;
	reply = set_watch(standing, ahead, &end);

	/* no search for deadlocks: this wait is short */
	if (reply != NULL)
		end = says_held(reply) ? ZK_WAIT_TIMEOUT :
			zklock_session_await_watch(standing->keeper_until);
	return end;
}

/* The trip's deadline ends a wait, too, so that it need not be told here. */
ZkWaitEnd
contender_time_out(Standing *standing)
{
	if (standing->leases == NIL)
		return ZK_WAIT_OVER;
	standing->is_ahead_read = false;
	if (!zklock_expiry_sweep(&standing->trip,
							 standing->contender->place->lock_path,
							 standing->leases, &standing->lease_at))
	{
		standing->lease_at = ZK_NO_DEADLINE;
		return zklock_session_live() == 0 ? ZK_WAIT_LOST : ZK_WAIT_TIMEOUT;
	}
	return standing->lease_at == 0 ? ZK_WAIT_NO_NODE : ZK_WAIT_OVER;
}

/*
 * May the one ahead merely keep the lock?  Its name says that it keeps locks,
 * and nobody is ahead of it.
 */
static bool
may_be_kept(const Standing *standing, const char *ahead)
{
	return ahead != NULL && standing->is_next_first &&
		recipe_read_mark(ahead) == RECIPE_MARK_KEEPER;
}

/*
 * Does the data say that the lock is held?  Its program writes that when
 * somebody has come.
 */
static bool
says_held(const ZkReply *reply)
{
	ZkNodeData	who;

	zklock_nodedata_parse(reply->data, reply->data_length, &who);
	return who.says_held;
}

/* Watch the contender just ahead. */
static ZkWaitEnd
watch_next(Standing *standing, const char *ahead)
{
	ZkContender *contender = standing->contender;
	RecipeMark	mark = recipe_read_mark(ahead);

	/* can the one ahead hand the lock over, and can we take it so? */
	bool		is_set_news = contender->place->mode == RECIPE_EXCLUSIVE &&
		contender->place->permits == 1 && mark == RECIPE_MARK_HAND_OVER &&
		is_word_good(standing);
	bool		is_grant_news = contender->place->permits > 1 &&
		recipe_parse_node(ahead).permits == contender->place->permits;
	char		path[RECIPE_PATH_SIZE];
	const ZkReply *reply;
	ZkWaitEnd	end;

	standing->watches_queue = false;
	reply = set_watch(standing, ahead, &end);
	if (reply != NULL && is_set_news)
		zklock_handover_await(child_path(standing, ahead, path), reply->czxid);
	if (reply != NULL)
		warn_once(standing, ahead, reply);
	if (reply != NULL && reply->version > 0 &&
		(is_set_news ||
		 (is_grant_news && note_version(standing, ahead, reply))))
	{
		/* it let go, or was granted a permit, before we watched it */
		standing->is_handed_over = is_set_news;
		end = ZK_WAIT_OVER;
	}
	else if (reply != NULL)
	{
		end = await_watch(standing, zklock_contend_look_at(ahead));
		standing->is_handed_over = is_set_news && end == ZK_WAIT_OVER &&
			zklock_client_watch_news(zklock_session_client()) == ZK_WATCH_SET;
	}
	if (is_set_news && end != ZK_WAIT_LOST && zklock_handover_has_told())
	{
		standing->is_handed_over = standing->is_told = true;
		end = ZK_WAIT_OVER;
	}
	zklock_handover_forget();
	return end;
}

/*
 * We wait for the one ahead; does it wait for us?  Warn once of each lock if
 * that is in doubt, for as many locks as are remembered.
 */
static void
warn_once(const Standing *standing, const char *ahead, const ZkReply *reply)
{
	static List *warned = NIL;	/* paths, in TopMemoryContext */
	const ZkContender *contender = standing->contender;
	RecipeStyle theirs = recipe_parse_node(ahead).style;
	MemoryContext caller;
	ZkNodeData	who;

	if (recipe_waits_for(theirs, contender->style) ||
		list_length(warned) == WARNED_MAX)
		return;
	foreach_ptr(char, path, warned)
		if (strcmp(path, contender->place->lock_path) == 0)
			return;
	zklock_nodedata_parse(reply->data, reply->data_length, &who);
	if (!zklock_warn_of_style(theirs, &who, contender->style))
		return;
	caller = MemoryContextSwitchTo(TopMemoryContext);
	warned = lappend(warned, pstrdup(contender->place->lock_path));
	MemoryContextSwitchTo(caller);
}

/*
 * Is a message of the one ahead that it lets go to be believed?  Whoever may
 * create a node here may have made one that says so, and never held the lock.
 * That does no harm if that node was the first of our list: then the lock was
 * its, whoever made it.  Otherwise a session with credentials believes nobody,
 * for those who have them hand nothing over.
 */
static bool
is_word_good(const Standing *standing)
{
	return standing->is_next_first ||
		(!standing->contender->wants_list &&
		 !zklock_session_has_credentials());
}

int64
zklock_contend_look_at(const char *ahead)
{
	RecipeMark	mark = recipe_read_mark(ahead);

	return look_again_at(mark == RECIPE_MARK_HAND_OVER ||
						 mark == RECIPE_MARK_KEEPER ||
						 mark == RECIPE_MARK_LEASE ? OWN_LOOKS : 1);
}

/*
 * Until when to wait for news before the queue is read again, in session
 * timeouts.  Servers tell what becomes of a node only to those who may read
 * it then (NIOServerCnxn.process, 3.8.4 and 3.9.2 on): whoever owns the one
 * ahead can hide it from us, and our mark is in a name that anybody can forge.
 */
static int64
look_again_at(int timeouts)
{
	ZkClientStatus status;

	if (!zklock_session_status(&status))
		return ZK_NO_DEADLINE;
	return protocol_now() + timeouts * (int64) status.session_timeout_ms;
}

/*
 * Has the data of the one ahead been set since we last looked at it?  Anybody
 * may do so who may write to it: the list tells whether it was granted a
 * permit, once for each time.
 */
static bool
note_version(Standing *standing, const char *ahead, const ZkReply *reply)
{
	if (standing->seen != NULL && strcmp(standing->seen, ahead) == 0 &&
		standing->seen_version == reply->version)
		return false;
	if (standing->seen != NULL)
		pfree(standing->seen);
	standing->seen = pstrdup(ahead);
	standing->seen_version = reply->version;
	return true;
}

/*
 * Watch a child of the lock's znode by reading it, not by exists: that would
 * leave a watch for ever behind on a node that is gone already
 * (CURATOR-107).  NULL if there is nothing to wait for, *end then says why.
 */
static const ZkReply *
set_watch(Standing *standing, const char *child, ZkWaitEnd *end)
{
	char		path[RECIPE_PATH_SIZE];
	const ZkReply *reply;

	standing->is_ahead_read = false;
	reply = zklock_roundtrip_read(&standing->trip, ZK_GET_AND_WATCH,
								  child_path(standing, child, path));
	*end = contender_step(reply, path);
	standing->is_ahead_read = *end == ZK_WAIT_OVER;
	if (*end == ZK_WAIT_NO_NODE)
		*end = ZK_WAIT_OVER;
	return standing->is_ahead_read ? reply : NULL;
}

/* Write the path of a child of the lock's znode; raises if it is too long. */
static const char *
child_path(const Standing *standing, const char *child,
		   char path[RECIPE_PATH_SIZE])
{
	if (snprintf(path, RECIPE_PATH_SIZE, "%s/%s",
				 standing->contender->place->lock_path, child) >=
		RECIPE_PATH_SIZE)
		ereport(ERROR,
				(errcode(ERRCODE_NAME_TOO_LONG),
				 errmsg("queue node \"%s\" has too long a name",
						zklock_text_quotable(child))));
	return path;
}

/*
 * Wait for news of what is watched.  Log the wait when it takes long, and
 * search for deadlocks then.  At look_at the wait is over without news.
 */
static ZkWaitEnd
await_watch(Standing *standing, int64 look_at)
{
	int64		deadline = standing->contender->bounds.deadline;

	for (;;)
	{
		int64		until = Min(Min(deadline, look_at),
								Min(Min(standing->log_at, standing->lease_at),
									standing->detector.look_at));
		ZkWaitEnd	end = zklock_session_await_watch(until);

		if (end != ZK_WAIT_TIMEOUT || until == deadline)
			return end;
		if (until == look_at)
			return ZK_WAIT_OVER;
		if (until == standing->lease_at &&
			contender_time_out(standing) == ZK_WAIT_NO_NODE)
			return ZK_WAIT_OVER;
		if (until == standing->log_at)
		{
			standing->log_at = ZK_NO_DEADLINE;
			contender_log_wait(standing);
		}
		if (until == standing->detector.look_at)
			zklock_deadlock_look(&standing->detector,
								 standing->contender->place,
								 standing->contender->holds_locks, deadline);
	}
}
