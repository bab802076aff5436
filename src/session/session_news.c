/*-------------------------------------------------------------------------
 *
 * session_news.c
 *	  News of this backend's session: to the board, to the counters, and to the
 *	  server's log.
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
#include "utils/timestamp.h"

#include "board.h"
#include "stat.h"

/* What was told last, of the current session. */
typedef struct Told
{
	ZkClientState state;
	TimestampTz since;			/* of that; 0: nothing was told yet */
	int			nconnects;
	int			nrefused;
} Told;

/* It is of one session at a time, as the session is. */
static Told told;

static void count_news(const ZkSession *session, const Told *before);
static TimestampTz state_since(const ZkClientStatus *status);
static void log_notes(const ZkClientStatus *status, ZkClient *client);
static void trace(const ZkSession *session, const char *what, const char *why);
static void log_refusal(const ZkClientStatus *status, const char *error);
static void log_news(const ZkSession *session, const Told *before,
					 const char *error);
static void log_reconnect(const ZkClientStatus *status, const Told *before,
						  const char *error);

void
session_news_begin(void)
{
	told = (Told) {0};
}

void
session_news_tell(const ZkSession *session, ZkClient *client)
{
	const ZkClientStatus *status = &session->client;
	Told		before = told;

	told.nrefused = status->nrefused;
	HOLD_INTERRUPTS();
	log_notes(status, client);
	if (status->nrefused > 0 && before.nrefused == 0)
		log_refusal(status, zklock_client_last_error(client));
	if (before.since == 0 || before.state != status->state ||
		before.nconnects != status->nconnects)
	{
		told.state = status->state;
		told.nconnects = status->nconnects;
		told.since = state_since(status);
		zklock_board_put_session(session->number, status, told.since);
		count_news(session, &before);
		if (session_state_is_granted(session) &&
			(zklock_board_is_concerned() || status->loss == ZK_LOSS_REFUSED))
			log_news(session, &before, zklock_client_last_error(client));
	}
	RESUME_INTERRUPTS();
}

static void
count_news(const ZkSession *session, const Told *before)
{
	int			nconnects = session->client.nconnects;

	if (before->nconnects == 0 && nconnects > 0)
		zklock_stat_count(ZK_STAT_SESSION);
	if (nconnects > Max(before->nconnects, 1))
		zklock_stat_add(ZK_STAT_RECONNECT,
						nconnects - Max(before->nconnects, 1));
	if (session_state_is_loss(session) && before->state != ZK_CLIENT_LOST)
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
log_refusal(const ZkClientStatus *status, const char *error)
{
	ereport(LOG_SERVER_ONLY,
			(errmsg("ZooKeeper refuses to delete znodes that session 0x%llx has released",
					(unsigned long long) status->session_id),
			 errdetail("%s.", error),
			 errhint("Check the ACL of the znode above it. The release is repeated until it succeeds. When everything else is released, the session is ended after its timeout, and its znodes are deleted with it."),
			 errhidestmt(true), errhidecontext(true)));
}

/* A line about a session on which locks hang. */
static void
log_news(const ZkSession *session, const Told *before, const char *error)
{
	const ZkClientStatus *status = &session->client;
	unsigned long long id = status->session_id;

	if (status->state == ZK_CLIENT_SUSPENDED)
		ereport(LOG_SERVER_ONLY,
				(errmsg("ZooKeeper session 0x%llx lost its connection to server \"%s\"",
						id, status->server),
				 errdetail("It keeps its locks and its places in queues if it is connected again in time."),
				 errhidestmt(true), errhidecontext(true)));
	else if (session_state_is_loss(session))
		ereport(LOG_SERVER_ONLY,
				(errmsg("ZooKeeper session 0x%llx is lost, and its locks with it",
						id),
				 errdetail("%s", session_loss_text()),
				 errhidestmt(true), errhidecontext(true)));
	else if (status->state == ZK_CLIENT_CONNECTED &&
			 status->nconnects > Max(before->nconnects, 1))
		log_reconnect(status, before, error);
}

static void
log_reconnect(const ZkClientStatus *status, const Told *before,
			  const char *error)
{
	bool		lacks_file = strstr(error, "Could not load file") != NULL;
	const char *detail = _("Its locks are still held.");

	if (before->state == ZK_CLIENT_SUSPENDED)
		detail = psprintf(_("It had no connection since %s."),
						  timestamptz_to_str(before->since));
	ereport(LOG_SERVER_ONLY,
			(errmsg("ZooKeeper session 0x%llx is connected again, to server \"%s\"",
					(unsigned long long) status->session_id, status->server),
			 errdetail_internal("%s", detail),
			 lacks_file ?
			 errhint("Correct the file, or the setting that names it: new sessions will fail. %s.", error) : 0,
			 errhidestmt(true), errhidecontext(true)));
}

/* ---------------------------------------------------------------------
 * For developers
 * ---------------------------------------------------------------------
 */

/* What the session's program has said for the log since the last look. */
static void
log_notes(const ZkClientStatus *status, ZkClient *client)
{
	const char *note;

	while ((note = zklock_client_take_note(client)) != NULL)
		ereport(DEBUG1,
				(errmsg_internal("zklock: program of session 0x%llx: %s",
								 (unsigned long long) status->session_id, note),
				 errhidestmt(true), errhidecontext(true)));
}

void
session_news_trace(const ZkSession *session, ZkClient *client,
				   ZkSessionState before)
{
	const ZkClientStatus *status = &session->client;
	char		move[64];
	char		why[640] = "";

	if (!message_level_is_interesting(DEBUG1))
		return;
	switch (session->state)
	{
		case SESSION_OPENING:
			snprintf(why, sizeof(why), "asked for, with a session timeout of %d ms",
					 session_settings.session_timeout);
			break;
		case SESSION_CONNECTED:
			snprintf(why, sizeof(why), "server \"%s\", session timeout %d ms",
					 status->server, status->session_timeout_ms);
			break;
		case SESSION_SUSPENDED:
			snprintf(why, sizeof(why), "no connection to server \"%s\" for %lld ms",
					 status->server,
					 (long long) (status->now - status->suspended_at));
			break;
		case SESSION_LOST:
			if (session_state_is_loss(session))
				strlcpy(why, session_loss_text(), sizeof(why));
			else
				strlcpy(why, "it was idle", sizeof(why));
			break;
		case SESSION_FAILED:
			strlcpy(why, zklock_client_last_error(client), sizeof(why));
			break;
		case SESSION_GIVEN_UP:
			strlcpy(why, "it is not used any more", sizeof(why));
			break;
		case SESSION_NONE:
			strlcpy(why, "closed", sizeof(why));
			break;
	}
	snprintf(move, sizeof(move), "%s -> %s", session_state_name(before),
			 session_state_name(session->state));
	trace(session, move, why);
}

/* A line for the readers of the log. */
static void
trace(const ZkSession *session, const char *what, const char *why)
{
	HOLD_INTERRUPTS();
	ereport(DEBUG1,
			(errmsg_internal("zklock: session %llu, 0x%llx: %s: %s",
							 (unsigned long long) session->number,
							 (unsigned long long) session->client.session_id,
							 what, why),
			 errhidestmt(true), errhidecontext(true)));
	RESUME_INTERRUPTS();
}
