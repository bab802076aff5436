/*-------------------------------------------------------------------------
 *
 * recall.c
 *	  What the holder of a lock hears of requests to release it.
 *
 * A request is a znode below the root, named for the queue node of the holder
 * that is asked (recall_ask.c makes it).  An open listener is a request of
 * client.c that follows this znode with a watch; a closed one costs nothing.
 * It is open from the grant on only where a request is to cancel statements.
 * Otherwise the first use after the grant opens it, so that who takes a lock
 * and lets go of it again pays nothing for requests that hardly ever come.
 *
 * The watch is on a znode that is not there, as a rule.  Such a watch stays
 * on the server until it is removed, so closing the listener removes it.
 *
 * Requests are polite: nothing here may keep anybody from his work.  Where
 * the ensemble does not answer soon nothing was heard, and errors are not
 * reported.
 *
 * Canceling is done as for the loss of a lock (hooks.c): the session's
 * program sends SIGINT, and the error is rewritten when it is reported.
 * Unlike a loss, a request leaves the lock as it is, so the error stays
 * 57014: nobody should run the transaction again by himself.
 *
 * Memory: a listener is part of its place; listening is client.c's,
 * freed with the session at the latest.
 *
 *-------------------------------------------------------------------------
 */
#include "recall.h"

#include "access/xact.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "nodedata.h"

/* Values of zklock.on_release_request. */
typedef enum OnReleaseRequest
{
	REQUEST_IGNORE,				/* only zk_release_requested() tells */
	REQUEST_NOTICE,				/* a NOTICE at the next use of the lock */
	REQUEST_CANCEL				/* cancel the running statement */
} OnReleaseRequest;

/*
 * How long a use of a lock is held up at most to hear whether its release was
 * requested.  A healthy server takes a millisecond.
 */
#define HEAR_MS 1000

/* Milliseconds between the Unix epoch and PostgreSQL's. */
#define EPOCH_DIFFERENCE_MS \
	((int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * SECS_PER_DAY * 1000)

/*
 * zklock.on_release_request: what a holder does when somebody asks it to
 * release a lock.  Everybody's own affair, for it harms nobody else to be
 * asked in vain.  Counts for a lock from its next grant or use on.
 */
static int	on_release_request = REQUEST_NOTICE;

/*
 * zklock.release_cancel_interval: least milliseconds between two
 * cancellations.  Anybody may ask, from other clusters too, as often as he
 * likes, and who is asked has to have a chance to get his work done.  A
 * request that comes sooner waits.  Counts from the next grant or use on.
 */
static int	release_cancel_interval;

static const struct config_enum_entry on_release_request_options[] = {
	{"ignore", REQUEST_IGNORE, false},
	{"notice", REQUEST_NOTICE, false},
	{"cancel", REQUEST_CANCEL, false},
	{NULL, 0, false}
};

/* What this backend hears of recalls. */
static struct
{
	int			nurgent;		/* listeners that are open and cancel */
	bool		is_deferred;	/* between the commit guard and the end of the
								 * transaction: nothing is canceled */
	bool		is_who_shown;	/* may the client be told who asks?  Looked up
								 * before a lock is asked for, and at its
								 * uses: neither a grant nor an error that is
								 * being reported is the place */
	ZkHeard		late;			/* a request that canceled something, but
								 * whose lock was released before that took
								 * effect; valid while its signalled_at is not
								 * 0 */
	char		late_name[RECIPE_NAME_MAX + 1];
}			Recalls;

static void open_listener(ZkRecallListener *listener, const char *lock_path,
						  int root_length,
						  const char *node, bool is_urgent);
static void close_listener(ZkRecallListener *listener);
static bool is_open(const ZkRecallListener *listener);
static bool hear(const ZkRecallListener *listener, ZkHeard *heard);
static bool has_canceled(const ZkRecallListener *listener,
						 const ZkHeard *heard);
static bool is_recent(int64 signalled_at);
static void describe_cancellation(const ZkHeard *heard, const char *name,
								  ZkRecallText *text);
static char *describe_request(const ZkHeard *heard, bool with_who);

/* ---------------------------------------------------------------------
 * Public functions
 * ---------------------------------------------------------------------
 */

void
zklock_recall_init(void)
{
	DefineCustomEnumVariable("zklock.on_release_request",
							 "What happens when the release of a lock held here is requested.",
							 "ignore, notice (at the next use of the lock) or cancel (the running statement).",
							 &on_release_request, REQUEST_NOTICE,
							 on_release_request_options,
							 PGC_USERSET, 0,
							 NULL, NULL, NULL);
	DefineCustomIntVariable("zklock.release_cancel_interval",
							"Least time between two statements that requests to release a lock cancel.",
							NULL,
							&release_cancel_interval, 60000, 0, 86400000,
							PGC_USERSET, GUC_UNIT_MS,
							NULL, NULL, NULL);
}

bool
zklock_recall_path(char path[ZK_RECALL_PATH_SIZE], const char *lock_path,
				   int root_length, const char *node)
{
	return snprintf(path, ZK_RECALL_PATH_SIZE,
					"%.*s/" ZK_RELEASE_SUFFIX "/%s" ZK_RELEASE_SUFFIX,
					root_length, lock_path,
					node) < (int) ZK_RECALL_PATH_SIZE;
}

void
zklock_recall_prepare(void)
{
	if (on_release_request == REQUEST_CANCEL)
		Recalls.is_who_shown = zklock_nodedata_may_be_shown();
}

void
zklock_recall_note_grant(ZkRecallListener *listener, const char *lock_path,
						 int root_length,
						 const char *node)
{
	if (on_release_request == REQUEST_CANCEL)
		open_listener(listener, lock_path, root_length, node, true);
}

void
zklock_recall_open(ZkRecallListener *listener, const char *lock_path,
				   int root_length,
				   const char *node, bool is_wanted)
{
	zklock_recall_prepare();
	if (on_release_request != REQUEST_IGNORE || is_wanted)
		open_listener(listener, lock_path, root_length, node,
					  on_release_request == REQUEST_CANCEL);
}

void
zklock_recall_report(ZkRecallListener *listener, const char *name)
{
	ZkClientStatus status;
	ZkHeard		heard;

	if (!is_open(listener))
		return;

	/* nobody waits twice for one answer */
	if (zklock_client_reply(listener->listening) != NULL)
		listener->is_slow = false;
	else if (!listener->is_slow && zklock_session_status(&status) &&
			 status.state == ZK_CLIENT_CONNECTED)
		listener->is_slow = zklock_session_await(listener->listening,
												 zklock_client_now() + HEAR_MS,
												 ZK_WAITING_FOR_REPLY) == NULL;
	if (on_release_request == REQUEST_IGNORE ||
		!hear(listener, &heard) || !heard.is_present || heard.mzxid ==
		listener->told)
		return;
	listener->told = heard.mzxid;
	ereport(LOG_SERVER_ONLY,
			(errmsg("release of ZooKeeper lock \"%s\" was requested",
					zklock_nodedata_quotable_own(name)),
			 errdetail("Requested %s.", describe_request(&heard, true))));
	ereport(NOTICE,
			(errmsg("release of lock \"%s\" was requested", name),
			 errdetail("Requested %s.",
					   describe_request(&heard,
										zklock_nodedata_may_be_shown())),
			 errhint("Release it as soon as the work allows. A job that runs can ask zk_release_requested().")));
}

bool
zklock_recall_is_asked(const ZkRecallListener *listener)
{
	ZkHeard		heard;

	return hear(listener, &heard) && heard.is_present;
}

void
zklock_recall_close(ZkRecallListener *listener, const char *name,
					const char *lock_path,
					int root_length, const char *node, bool is_long)
{
	ZkClient   *client = zklock_session_client();
	char		path[ZK_RECALL_PATH_SIZE];
	ZkHeard		heard;
	bool		has_heard = hear(listener, &heard);
	bool		is_there = has_heard && heard.is_present;

	if ((is_there || (!has_heard && is_long)) && client != NULL &&
		zklock_recall_path(path, lock_path, root_length, node))
	{
		if (is_there)
			zklock_client_delete(client, path);
		else
			zklock_client_sweep(client, path);
	}
	if (has_heard && has_canceled(listener, &heard))
	{
		Recalls.late = heard;
		strlcpy(Recalls.late_name, name, sizeof(Recalls.late_name));
	}
	close_listener(listener);
}

void
zklock_recall_defer(bool is_deferred)
{
	if (Recalls.is_deferred == is_deferred || (is_deferred && Recalls.nurgent == 0))
		return;
	Recalls.is_deferred = is_deferred;
	if (zklock_session_client() != NULL && Recalls.nurgent > 0)
		zklock_client_defer_signals(zklock_session_client(), is_deferred);
}

bool
zklock_recall_explain(ZkRecallListener *listener, const char *name,
					  ZkRecallText *text)
{
	ZkHeard		heard;

	if (listener == NULL)
	{
		if (!is_recent(Recalls.late.signalled_at))
			return false;
		describe_cancellation(&Recalls.late, Recalls.late_name, text);
		Recalls.late.signalled_at = 0;
		return true;
	}
	if (!hear(listener, &heard) || !has_canceled(listener, &heard))
		return false;
	listener->told = heard.mzxid;
	listener->explained = heard.mzxid;
	describe_cancellation(&heard, name, text);
	return true;
}

/* ---------------------------------------------------------------------
 * Helpers
 * ---------------------------------------------------------------------
 */

/*
 * Open the listener for that queue node, if it is not, or not in that
 * manner.  Where there are too many, and without memory, it stays closed.
 */
static void
open_listener(ZkRecallListener *listener, const char *lock_path,
			  int root_length, const char *node,
			  bool is_urgent)
{
	char		path[ZK_RECALL_PATH_SIZE];
	int64		told = 0;
	int64		explained = 0;

	if (is_urgent && zklock_session_client() != NULL)
		zklock_client_space_signals(zklock_session_client(),
									release_cancel_interval);

	if (is_open(listener) && strcmp(listener->node, node) == 0)
	{
		if (listener->is_urgent == is_urgent)
			return;
		told = listener->told;
		explained = listener->explained;
	}
	close_listener(listener);
	if (zklock_session_client() == NULL ||
		strlen(node) >= sizeof(listener->node) ||
		!zklock_recall_path(path, lock_path, root_length, node))
		return;
	listener->listening = zklock_client_listen(zklock_session_client(), path,
											   is_urgent, told);
	if (listener->listening == NULL)
		return;
	listener->session = zklock_session_number();
	listener->is_urgent = is_urgent;
	listener->is_slow = false;
	listener->told = told;
	listener->explained = explained;
	strlcpy(listener->node, node, sizeof(listener->node));
	Recalls.nurgent += is_urgent ? 1 : 0;
}

/* If its session is over, listening was freed with it. */
static void
close_listener(ZkRecallListener *listener)
{
	if (listener->listening == NULL)
		return;
	if (is_open(listener))
		zklock_client_free(listener->listening);
	listener->listening = NULL;
	Recalls.nurgent -= listener->is_urgent ? 1 : 0;

	/* what was on its way must not meet a backend that nobody asks any more */
	if (listener->is_urgent && Recalls.nurgent == 0 && zklock_session_client() != NULL)
		zklock_client_defer_signals(zklock_session_client(), true);
}

static bool
is_open(const ZkRecallListener *listener)
{
	return listener->listening != NULL && listener->session ==
		zklock_session_number();
}

/* What has been heard; false if nothing yet. */
static bool
hear(const ZkRecallListener *listener, ZkHeard *heard)
{
	return is_open(listener) && zklock_client_heard(listener->listening, heard);
}

/*
 * Has a request interrupted the current statement, and not been named for it?
 */
static bool
has_canceled(const ZkRecallListener *listener, const ZkHeard *heard)
{
	return heard->is_present && heard->mzxid != listener->explained &&
		is_recent(heard->signalled_at);
}

/*
 * Was the signal sent while the current statement ran?  One that found the
 * session idle had no effect, and a later cancellation is somebody else's.
 */
static bool
is_recent(int64 signalled_at)
{
	TimestampTz when = TimestampTzPlusMilliseconds(GetCurrentTimestamp(),
												   signalled_at - zklock_client_now());

	/* both clocks were cut to milliseconds */
	return signalled_at != 0 &&
		TimestampTzPlusMilliseconds(when, 2) >=
		GetCurrentStatementStartTimestamp();
}

static void
describe_cancellation(const ZkHeard *heard, const char *name,
					  ZkRecallText *text)
{
	char	   *who = describe_request(heard, true);
	char	   *shown = describe_request(heard, Recalls.is_who_shown);

	zklock_nodedata_clip(text->message, sizeof(text->message),
						 psprintf(_("canceling statement due to a request to release lock \"%s\""),
								  name));
	zklock_nodedata_clip(text->detail, sizeof(text->detail),
						 psprintf(_("Requested %s."), shown));
	zklock_nodedata_clip(text->detail_log, sizeof(text->detail_log),
						 psprintf(_("Requested %s."), who));
}

/*
 * "at ... by ...", or why instead of by whom, palloc'ed.  Both are what he
 * says himself.
 */
static char *
describe_request(const ZkHeard *heard, bool with_who)
{
	ZkNodeData	who;
	TimestampTz when = (heard->mtime_ms - EPOCH_DIFFERENCE_MS) * 1000;

	zklock_nodedata_parse(heard->data, heard->data_length, &who);
	if (with_who)
		return psprintf("at %s by %s", timestamptz_to_str(when),
						zklock_nodedata_describe(&who));
	if (who.text == NULL)
		return psprintf("at %s", timestamptz_to_str(when));
	return psprintf("at %s (%s)", timestamptz_to_str(when),
					zklock_nodedata_reason(&who));
}
