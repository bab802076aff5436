/*-------------------------------------------------------------------------
 *
 * session_news.c
 *	  Attends to the session: takes in what its program has said, and tells
 *	  board, counters and log.
 *
 * A backend looks at its session while it waits and at the end of its
 * statements.  So an idle backend reports late what has happened.
 *
 * The one rule: nothing here raises or waits, for it is called at the end of
 * transactions, too.  A message would look for interrupts, so these are held.
 *
 *-------------------------------------------------------------------------
 */
#include "session_private.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/timestamp.h"

#include "board.h"
#include "stat.h"

/*
 * The status of the current session that was told last.  What is new is the
 * difference: the client may have taken it in where nobody attends, as requests
 * were sent.
 */
static ZkClientStatus told;

static void take_in_news(void);
static void drop_identity(void);
static void tell_news(const ZkClientStatus *before);
static void count_news(const ZkClientStatus *before);
static TimestampTz state_since(const ZkClientStatus *status);
static void log_refusal(const char *error);
static void log_news(const ZkClientStatus *before, const char *error);
static void log_reconnect(const ZkClientStatus *before, const char *error);
static const char *state_name(const ZkClientStatus *status);
static void trace_news(const char *before, const char *word);
static void describe_state(char *text, size_t size);

/* ---------------------------------------------------------------------
 * Attending
 * ---------------------------------------------------------------------
 */

void
zklock_session_attend(void)
{
	if (MySession.client != NULL && zklock_client_has_news(MySession.client))
		zklock_session_poll();
}

void
zklock_session_poll(void)
{
	if (MySession.client == NULL)
		return;
	zklock_client_poll(MySession.client);
	take_in_news();
}

void
zklock_session_read(void)
{
	if (MySession.client == NULL)
		return;
	zklock_client_receive(MySession.client);
	zklock_session_poll();
}

uint64
zklock_session_count_news(void)
{
	uint64		count = 0;

	if (MySession.client != NULL)
		count = zklock_client_count_news(MySession.client);
	return (MySession.number << 32) + count;	/* another one for each session */
}

void
session_begin(ZkClient *client)
{
	Assert(MySession.client == NULL && client != NULL);
	MySession.client = client;
	MySession.number++;
	MySession.is_given_up = false;
	MySession.opened_at = protocol_now();
	MySession.connect_deadline = MySession.heritage.connect_deadline;
	told = *zklock_client_status(client);
	zklock_board_put_session(MySession.number, &told, state_since(&told));
	trace_news("none", state_name(&told));
	zklock_session_poll();
}

void
session_give_up(void)
{
	const char *before = state_name(&told);

	Assert(MySession.client != NULL);
	MySession.is_given_up = true;
	trace_news(before, state_name(&told));
}

ZkClient *
session_end(void)
{
	ZkClient   *client = MySession.client;

	Assert(client != NULL);
	trace_news(state_name(&told), "none");
	MySession.client = NULL;
	return client;
}

static void
take_in_news(void)
{
	const ZkClientStatus *status = zklock_session_status();
	ZkClientStatus before;

	if (session_is_loss())
		session_loss_note();
	if (status->state == told.state && status->nconnects == told.nconnects &&
		status->nrefused == told.nrefused)
		return;
	before = told;
	told = *status;
	trace_news(state_name(&before), state_name(&told));

	/* a process without a postmaster has no shared memory at its very end */
	if (IsUnderPostmaster || !proc_exit_inprogress)
		tell_news(&before);
	drop_identity();
}

/*
 * If the session is over because the ensemble does not take the identity that we
 * chose ourselves, the next session does without, and has all its time to connect.
 */
static void
drop_identity(void)
{
	const ZkClientStatus *status = zklock_session_status();
	SessionHeritage *heritage = &MySession.heritage;

	if (MySession.is_given_up || status->state != ZK_CLIENT_LOST ||
		status->loss != ZK_LOSS_AUTH ||
		MySession.opening.credentials != SESSION_IDENTITY)
		return;
	heritage->is_identity_refused = true;
	heritage->keeps_deadline = true;
	heritage->connect_deadline = protocol_now() +
		session_settings.connect_timeout;
	session_give_up();
}

/* ---------------------------------------------------------------------
 * Telling
 * ---------------------------------------------------------------------
 */

/* Tell the board, the counters and the log what is new since that status. */
static void
tell_news(const ZkClientStatus *before)
{
	const char *error = zklock_client_last_error(MySession.client);

	HOLD_INTERRUPTS();
	if (told.nrefused > 0 && before->nrefused == 0)
		log_refusal(error);
	if (told.state != before->state || told.nconnects != before->nconnects)
	{
		zklock_board_put_session(MySession.number, &told, state_since(&told));
		count_news(before);
		if (session_is_granted() &&
			(zklock_board_is_concerned() || told.loss == ZK_LOSS_REFUSED))
			log_news(before, error);
	}
	RESUME_INTERRUPTS();
}

static void
count_news(const ZkClientStatus *before)
{
	if (before->nconnects == 0 && told.nconnects > 0)
		zklock_stat_count(ZK_STAT_SESSION);
	if (told.nconnects > Max(before->nconnects, 1))
		zklock_stat_add(ZK_STAT_RECONNECT,
						told.nconnects - Max(before->nconnects, 1));
	if (session_is_loss() && before->state != ZK_CLIENT_LOST)
		zklock_stat_count(ZK_STAT_LOSS);
}

/* Since when it is in its state, as far as that is known. */
static TimestampTz
state_since(const ZkClientStatus *status)
{
	int64		now = protocol_now();
	int64		since = now;

	if (status->state == ZK_CLIENT_SUSPENDED)
		since = status->suspended_at;
	else if (status->state == ZK_CLIENT_LOST)
		since = status->lost_at;
	return TimestampTzPlusMilliseconds(GetCurrentTimestamp(), since - now);
}

/* ---------------------------------------------------------------------
 * The log, for the person on call.  To the log alone: a client may not read what
 * it is sent, and a backend that waits for its client may be releasing locks.
 * ---------------------------------------------------------------------
 */

/*
 * Something that is released blocks others all the same: a line for the first
 * one, until all are gone.
 */
static void
log_refusal(const char *error)
{
	ereport(LOG_SERVER_ONLY,
			(errmsg("ZooKeeper refuses to delete znodes that session 0x%llx has released",
					(unsigned long long) told.session_id),
			 errdetail("%s.", error),
			 errhint("Check the ACL of the znode above it. The release is repeated until it succeeds. When everything else is released and its transaction is over, the session is ended after its timeout, and its znodes are deleted with it."),
			 errhidestmt(true), errhidecontext(true)));
}

/* A line about a session on which locks hang. */
static void
log_news(const ZkClientStatus *before, const char *error)
{
	unsigned long long id = told.session_id;

	if (told.state == ZK_CLIENT_SUSPENDED)
		ereport(LOG_SERVER_ONLY,
				(errmsg("ZooKeeper session 0x%llx lost its connection to server \"%s\"",
						id, told.server),
				 errdetail("It keeps its locks and its places in queues if it is connected again in time."),
				 errhidestmt(true), errhidecontext(true)));
	else if (session_is_loss())
		ereport(LOG_SERVER_ONLY,
				(errmsg("ZooKeeper session 0x%llx is lost, and its locks with it",
						id),
				 errdetail("%s", session_loss_text()),
				 errhidestmt(true), errhidecontext(true)));
	else if (told.state == ZK_CLIENT_CONNECTED &&
			 told.nconnects > Max(before->nconnects, 1))
		log_reconnect(before, error);
}

static void
log_reconnect(const ZkClientStatus *before, const char *error)
{
	bool		lacks_file = strstr(error, "Could not load file") != NULL;
	const char *detail = _("Its locks are still held.");

	if (before->state == ZK_CLIENT_SUSPENDED)
		detail = psprintf(_("It had no connection since %s."),
						  timestamptz_to_str(state_since(before)));
	ereport(LOG_SERVER_ONLY,
			(errmsg("ZooKeeper session 0x%llx is connected again, to server \"%s\"",
					(unsigned long long) told.session_id, told.server),
			 errdetail_internal("%s", detail),
			 lacks_file ?
			 errhint("Correct the file, or the setting that names it: new sessions will fail. %s.", error) : 0,
			 errhidestmt(true), errhidecontext(true)));
}

/* ---------------------------------------------------------------------
 * For developers
 * ---------------------------------------------------------------------
 */

/* The state of a session with that status, in a word; without one it is "none". */
static const char *
state_name(const ZkClientStatus *status)
{
	if (MySession.is_given_up)
		return "given up";
	switch (status->state)
	{
		case ZK_CLIENT_LOST:
			return status->was_connected ? "lost" : "failed";
		case ZK_CLIENT_CONNECTED:
			return status->was_connected ? "connected" : "opening";
		case ZK_CLIENT_STARTING:
		case ZK_CLIENT_CONNECTING:
		case ZK_CLIENT_SUSPENDED:
			break;
	}
	return status->was_connected ? "suspended" : "opening";
}

/* Its state was this word, and is that one now: if that is news, say so. */
static void
trace_news(const char *before, const char *word)
{
	char		why[640] = "closed";

	if (strcmp(word, before) == 0 || !message_level_is_interesting(DEBUG1))
		return;
	if (strcmp(word, "none") != 0)
		describe_state(why, sizeof(why));
	HOLD_INTERRUPTS();
	ereport(DEBUG1,
			(errmsg_internal("zklock: session %llu, 0x%llx: %s -> %s: %s",
							 (unsigned long long) MySession.number,
							 (unsigned long long) told.session_id,
							 before, word, why),
			 errhidestmt(true), errhidecontext(true)));
	RESUME_INTERRUPTS();
}

/* What there is to say of the state that it is in. */
static void
describe_state(char *text, size_t size)
{
	const ZkClientStatus *status = zklock_session_status();

	if (MySession.is_given_up)
		strlcpy(text, "it is not used any more", size);
	else if (session_is_loss())
		strlcpy(text, session_loss_text(), size);
	else if (session_is_over() && session_is_granted())
		strlcpy(text, "it was idle", size);
	else if (session_is_over())
		strlcpy(text, zklock_client_last_error(MySession.client), size);
	else if (!session_is_granted())
		snprintf(text, size, "asked for, with a session timeout of %d ms",
				 session_settings.session_timeout);
	else if (zklock_session_is_connected())
		snprintf(text, size, "server \"%s\", session timeout %d ms",
				 status->server, status->session_timeout_ms);
	else
		snprintf(text, size, "no connection to server \"%s\" for %lld ms",
				 status->server,
				 (long long) (status->now - status->suspended_at));
}
