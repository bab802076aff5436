/*-------------------------------------------------------------------------
 *
 * contender_watch.c
 *	  Waits behind the contender ahead, and takes a lock that is handed over.
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
 * kind: a waiter deletes its node when it gives up.  Readers always list, for
 * several are granted together.
 *
 * A client that may create nodes in the queue can make one with the mark and
 * set its data, and never have held the lock.  So the message of the contender
 * ahead is certain only if its node was the first of our own list: then that
 * node held the lock, whichever client made it.  Otherwise the message is
 * believed if this contender does not need certainty (wants_list of its
 * order), and the grant is confirmed before more depends on it
 * (zklock_contend_confirm()).
 *
 * A client with the credentials of zklock.auth may write to all nodes that
 * were made with them.  So a session with credentials does not mark its nodes,
 * and a waiter behind it lists.
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
 * read of it is no proof.  Without a connection we are in contender_join(), and
 * wait for no such message.
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
#include "lease_roots.h"
#include "nodedata.h"
#include "text.h"
#include "queue_list.h"

/*
 * How many session timeouts to wait behind a node of zklock's, see
 * list_again_at().
 */
#define OWN_TIMEOUTS 10

/* Of so many locks a session warns that others may not wait for it. */
#define WARNED_MAX 100

/*
 * Paths of locks of which this backend has warned that others may not wait for
 * it; in TopMemoryContext, and as long as the backend: once is enough.
 */
static List *warned_of = NIL;

/* What may be learnt of the one ahead by watching its node. */
typedef enum WatchedNews
{
	NEWS_DELETION,				/* that it is gone */
	NEWS_GRANT,					/* or that it was granted a permit */
	NEWS_HAND_OVER				/* or that it hands the lock over to us */
} WatchedNews;

static ZkOutcome watch_next(Contender *contender, bool *is_handed_over);
static WatchedNews news_of(const Contender *contender);
static void warn_once(const Contender *contender, const ZkReply *reply);
static bool may_be_kept(const Contender *contender);
static bool says_held(const ZkReply *reply);
static bool is_hand_over_believed(const Contender *contender);
static int64 list_again_behind(const char *ahead);
static int64 list_again_at(int timeouts);
static bool note_version(Contender *contender, const ZkReply *reply);
static const char *path_of_next(const Contender *contender,
								char path[RECIPE_PATH_SIZE]);
static ZkOutcome await_news(Contender *contender, int64 list_at);
static ZkOutcome set_watch(Contender *contender, const ZkReply **reply);

/*
 * Nobody in particular is ahead of the first waiter for a permit: from now on its
 * lists are watched.  If the last list was not, read one that is before waiting.
 */
ZkOutcome
contender_watch(Contender *contender, bool *is_handed_over)
{
	bool		was_of_queue = contender->watch.is_of_queue;

	*is_handed_over = false;
	contender->watch.is_of_queue = contender->ahead.next == NULL;
	if (!contender->watch.is_of_queue)
		return watch_next(contender, is_handed_over);
	if (was_of_queue)
		return await_news(contender, list_again_at(OWN_TIMEOUTS));
	return ZK_ANSWERED;
}

ZkOutcome
contender_is_held(Contender *contender, bool *is_held)
{
	char		path[RECIPE_PATH_SIZE];
	const ZkReply *reply;
	ZkOutcome	outcome;

	*is_held = true;
	if (!may_be_kept(contender))
		return ZK_ANSWERED;
	outcome = zklock_roundtrip_read(&contender->trip, ZK_GET,
									path_of_next(contender, path), &reply);
	if (outcome != ZK_ANSWERED)
		return outcome;
	if (reply->result == ZK_OK)
		*is_held = says_held(reply);
	else
		*is_held = reply->result != ZK_NO_NODE;
	return ZK_ANSWERED;
}

ZkOutcome
contender_ask_keeper(Contender *contender, bool *is_held)
{
	AheadWatch *watch = &contender->watch;
	int64		now = protocol_now();
	const ZkReply *reply;
	ZkOutcome	outcome;

	*is_held = true;
	if (!may_be_kept(contender))
		return ZK_ANSWERED;
	if (watch->keeper_until == 0)
		watch->keeper_until = Min(contender->order->bounds.deadline,
								  now + ZK_KEEPER_MS);
	if (now >= watch->keeper_until)
		return ZK_ANSWERED;
	watch->is_of_queue = false;
	outcome = set_watch(contender, &reply);
	if (outcome != ZK_ANSWERED)
		return outcome;
	*is_held = reply->result == ZK_OK && says_held(reply);
	if (*is_held || reply->result != ZK_OK)
		return ZK_ANSWERED;

	/* no search for deadlocks: this wait is short */
	outcome = zklock_session_await_watch(watch->keeper_until);
	if (outcome == ZK_LATE)
	{
		*is_held = true;
		return ZK_ANSWERED;
	}
	return outcome;
}

/*
 * The trip's deadline ends a wait, too, so that it need not be told here.  A
 * session that comes once and goes times nothing, however often others like it
 * come.  So the worker is to look.
 */
ZkOutcome
contender_end_leases(Contender *contender, bool *are_gone)
{
	Ahead	   *ahead = &contender->ahead;
	ZkOutcome	outcome;

	*are_gone = false;
	if (ahead->leases == NIL)
		return ZK_ANSWERED;
	outcome = zklock_expiry_sweep(&contender->trip, contender->place->lock_path,
								  ahead->leases, &ahead->lease_at);
	if (outcome != ZK_ANSWERED)
		ahead->lease_at = ZK_NO_DEADLINE;
	*are_gone = ahead->lease_at == ZK_LOOK_NOW;
	if (!*are_gone)
		zklock_lease_roots_wake();
	return outcome;
}

/*
 * May the one ahead merely keep the lock?  Its name says that it keeps locks,
 * and nobody is ahead of it.
 */
static bool
may_be_kept(const Contender *contender)
{
	const Ahead *ahead = &contender->ahead;

	return ahead->next != NULL && ahead->is_next_first &&
		recipe_read_mark(ahead->next) == RECIPE_MARK_KEEPER;
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

/*
 * Watch the contender just ahead.  It may have let go, or been granted a permit,
 * before we watched it: then its data was set.
 */
static ZkOutcome
watch_next(Contender *contender, bool *is_handed_over)
{
	WatchedNews news = news_of(contender);
	bool		is_set = false;
	char		path[RECIPE_PATH_SIZE];
	const ZkReply *reply;
	ZkOutcome	outcome = set_watch(contender, &reply);

	if (outcome == ZK_ANSWERED && reply->result == ZK_OK)
	{
		if (news == NEWS_HAND_OVER)
			zklock_handover_await(path_of_next(contender, path), reply->czxid);
		warn_once(contender, reply);
		is_set = reply->version > 0 &&
			(news == NEWS_HAND_OVER ||
			 (news == NEWS_GRANT && note_version(contender, reply)));
		if (!is_set)
		{
			outcome = await_news(contender,
								 list_again_behind(contender->ahead.next));
			is_set = outcome == ZK_ANSWERED &&
				zklock_client_watch_news(zklock_session_client()) == ZK_WATCH_SET;
		}
	}
	if (news == NEWS_HAND_OVER && is_set)
	{
		contender->way = ZK_STAT_GRANT_HANDED_OVER;
		*is_handed_over = true;
	}
	if (news == NEWS_HAND_OVER && outcome != ZK_LOST &&
		zklock_handover_has_told())
	{
		contender->way = ZK_STAT_GRANT_TOLD;
		*is_handed_over = true;
		outcome = ZK_ANSWERED;
	}
	zklock_handover_forget();
	return outcome;
}

/* Can the one ahead hand the lock over, or be granted a permit? */
static WatchedNews
news_of(const Contender *contender)
{
	const ZkPlace *place = contender->place;
	const char *next = contender->ahead.next;

	if (place->permits > 1 &&
		recipe_parse_node(next).permits == place->permits)
		return NEWS_GRANT;
	/* calls by the token of a lease look whether it is the first in the queue */
	if (place->permits == 1 && place->mode == RECIPE_EXCLUSIVE &&
		contender->order->owner == NULL &&
		recipe_read_mark(next) == RECIPE_MARK_HAND_OVER &&
		is_hand_over_believed(contender))
		return NEWS_HAND_OVER;
	return NEWS_DELETION;
}

/*
 * We wait for the one ahead; does it wait for us?  Warn once of each lock if
 * that is in doubt, for as many locks as are remembered.
 */
static void
warn_once(const Contender *contender, const ZkReply *reply)
{
	RecipeStyle ours = contender->order->style;
	RecipeStyle theirs = recipe_parse_node(contender->ahead.next).style;
	const char *lock_path = contender->place->lock_path;
	MemoryContext caller;
	ZkNodeData	who;

	if (recipe_waits_for(theirs, ours) ||
		list_length(warned_of) == WARNED_MAX)
		return;
	foreach_ptr(char, path, warned_of)
		if (strcmp(path, lock_path) == 0)
			return;
	zklock_nodedata_parse(reply->data, reply->data_length, &who);

	/* a cancellation behind the warning would have it come twice */
	HOLD_INTERRUPTS();
	if (zklock_warn_of_style(theirs, &who, ours))
	{
		caller = MemoryContextSwitchTo(TopMemoryContext);
		warned_of = lappend(warned_of, pstrdup(lock_path));
		MemoryContextSwitchTo(caller);
	}
	RESUME_INTERRUPTS();
}

/*
 * Is a message of the contender ahead that it releases the lock to be
 * believed?  A client that may create a node here may have made one that says
 * so, and never have held the lock.  That does no harm if that node was the
 * first of our list: then it held the lock, whichever client made it.
 * Otherwise a session with credentials believes no message, because sessions
 * with credentials hand nothing over.
 */
static bool
is_hand_over_believed(const Contender *contender)
{
	return contender->ahead.is_next_first ||
		(!contender->order->wants_list &&
		 !zklock_session_has_credentials());
}

/* Until when to wait for news of the one ahead, of that name. */
static int64
list_again_behind(const char *ahead)
{
	switch (recipe_read_mark(ahead))
	{
		case RECIPE_MARK_HAND_OVER:
		case RECIPE_MARK_KEEPER:
		case RECIPE_MARK_LEASE:
		case RECIPE_MARK_TAKER:
			return list_again_at(OWN_TIMEOUTS);
		case RECIPE_MARK_NONE:
		case RECIPE_MARK_HOLD:
			break;
	}
	return list_again_at(1);
}

/*
 * Until when to wait for news before the queue is read again, in session
 * timeouts.  Servers tell what becomes of a node only to clients that may read
 * it then (NIOServerCnxn.process, 3.8.4 and 3.9.2 on): the owner of the node
 * ahead can hide it from us, and our mark is in a name that every client can
 * forge.
 */
static int64
list_again_at(int timeouts)
{
	if (zklock_session_number() == 0)
		return ZK_NO_DEADLINE;
	return protocol_now() + timeouts * (int64) zklock_session_timeout_ms();
}

/*
 * Has the data of the one ahead been set since we last looked at it?  Anybody
 * may do so who may write to it: the list tells whether it was granted a
 * permit, once for each time.
 */
static bool
note_version(Contender *contender, const ZkReply *reply)
{
	AheadWatch *watch = &contender->watch;
	const char *next = contender->ahead.next;

	if (watch->seen != NULL && strcmp(watch->seen, next) == 0 &&
		watch->seen_version == reply->version)
		return false;
	if (watch->seen != NULL)
		pfree(watch->seen);
	watch->seen = pstrdup(next);
	watch->seen_version = reply->version;
	return true;
}

/*
 * Watch the one ahead by reading it, not by exists: that would leave a watch
 * for ever behind on a node that is gone already (CURATOR-107).  The result is
 * ZK_OK or ZK_NO_NODE: then there is nothing to wait for.
 */
static ZkOutcome
set_watch(Contender *contender, const ZkReply **reply)
{
	char		path[RECIPE_PATH_SIZE];
	ZkOutcome	outcome;

	outcome = contender_read(&contender->trip, ZK_GET_AND_WATCH,
							 path_of_next(contender, path), reply);
	if (outcome != ZK_ANSWERED)
		return outcome;
	if ((*reply)->result == ZK_OK)
	{
		contender->ahead.next_read = contender->trip.nasked;
		contender->trip.ndoubts = 0;
	}
	else
		zklock_roundtrip_note_doubt(&contender->trip, path, ZK_LISTED_ONLY);
	return ZK_ANSWERED;
}

/* Write the path of the one ahead; raises if it is too long. */
static const char *
path_of_next(const Contender *contender, char path[RECIPE_PATH_SIZE])
{
	const char *next = contender->ahead.next;

	if (snprintf(path, RECIPE_PATH_SIZE, "%s/%s",
				 contender->place->lock_path, next) >= RECIPE_PATH_SIZE)
		ereport(ERROR,
				(errcode(ERRCODE_NAME_TOO_LONG),
				 errmsg("queue node \"%s\" has too long a name",
						zklock_text_quotable(next)),
				 errhint("Delete the znode, which another ZooKeeper client has made.")));
	return path;
}

/*
 * Wait for news of what is watched.  Log the wait when it takes long, and
 * search for deadlocks then.  At list_at the wait is over without news.
 */
static ZkOutcome
await_news(Contender *contender, int64 list_at)
{
	int64		deadline = contender->order->bounds.deadline;
	ContenderWait *wait = &contender->wait;
	const Ahead *ahead = &contender->ahead;
	bool		are_gone = false;

	while (!are_gone)
	{
		int64		until = Min(Min(deadline, list_at),
								Min(Min(wait->log_at, ahead->lease_at),
									contender->detector.check_at));
		ZkOutcome	outcome = zklock_session_await_watch(until);

		if (outcome != ZK_LATE || until == deadline)
			return outcome;
		if (until == list_at)
			return ZK_ANSWERED;

		if (until == ahead->lease_at)
		{
			outcome = contender_end_leases(contender, &are_gone);
			if (outcome != ZK_ANSWERED)
				return outcome;
		}
		if (until == wait->log_at)
		{
			wait->log_at = ZK_NO_DEADLINE;
			contender_log_wait(contender);
		}
		if (until == contender->detector.check_at)
			zklock_deadlock_search(&contender->detector, contender->place,
								   deadline);
	}
	return ZK_ANSWERED;
}
