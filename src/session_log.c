/*-------------------------------------------------------------------------
 *
 * session_log.c
 *	  What is told of the session as it changes: to the board, to the
 *	  counters, and to the server's log.
 *
 * A backend looks at its session where it waits and at the end of its
 * statements.  One that is idle sees what has happened, and tells it, late.
 *
 * The one rule: this never raises and never waits; it is called at the end of
 * transactions, too.  A message would look for interrupts, so these are held.
 *
 *-------------------------------------------------------------------------
 */
#include "session_private.h"

#include "miscadmin.h"

#include "board.h"
#include "errors.h"
#include "stat.h"

static void count_news(const ZkClientStatus *status, int noted_connects,
					   bool is_noted_lost);
static TimestampTz state_since(const ZkClientStatus *status);
static void log_news(const ZkClientStatus *status, int noted_connects,
					 TimestampTz suspended_since);

void
session_note_state(const ZkClientStatus *status)
{
	bool		is_new = MySession.noted_number != MySession.number;
	int			noted_connects = is_new ? 0 : MySession.noted_connects;
	ZkClientState noted_state = is_new ? ZK_CLIENT_STARTING :
		MySession.noted_state;
	TimestampTz suspended_since = noted_state == ZK_CLIENT_SUSPENDED ?
		MySession.noted_since : 0;

	if (!is_new && noted_state == status->state &&
		noted_connects == status->nconnects)
		return;
	count_news(status, noted_connects, noted_state == ZK_CLIENT_LOST);
	MySession.noted_number = MySession.number;
	MySession.noted_state = status->state;
	MySession.noted_connects = status->nconnects;
	MySession.noted_since = state_since(status);
	zklock_board_put_session(MySession.number, status, MySession.noted_since);

	HOLD_INTERRUPTS();
	if (status->was_connected && zklock_board_is_concerned())
		log_news(status, noted_connects, suspended_since);
	RESUME_INTERRUPTS();
}

/*
 * From its first grant on the board has the session's number, and it is not
 * said to be suspended when it has got an answer.
 */
void
session_note_beginning(void)
{
	ZkClientStatus status;

	if ((MySession.noted_number != MySession.number ||
		 MySession.noted_connects == 0 ||
		 MySession.noted_state == ZK_CLIENT_SUSPENDED) &&
		zklock_session_status(&status))
		session_note_state(&status);
}

/* Against what was noted last of this session. */
static void
count_news(const ZkClientStatus *status, int noted_connects,
		   bool is_noted_lost)
{
	if (noted_connects == 0 && status->nconnects > 0)
		zklock_stat_count(ZK_STAT_SESSION);
	if (status->nconnects > Max(noted_connects, 1))
		zklock_stat_add(ZK_STAT_RECONNECT,
						status->nconnects - Max(noted_connects, 1));
	if (status->state == ZK_CLIENT_LOST && status->was_connected &&
		!is_noted_lost)
		zklock_stat_count(ZK_STAT_LOSS);
}

/* Since when it is in its state, as far as that is known. */
static TimestampTz
state_since(const ZkClientStatus *status)
{
	TimestampTz now = GetCurrentTimestamp();
	int64		since;

	if (status->state == ZK_CLIENT_SUSPENDED)
		since = status->suspended_at;
	else if (status->state == ZK_CLIENT_LOST)
		since = status->lost_at;
	else
		return now;
	return TimestampTzPlusMilliseconds(now, since - zklock_client_now());
}

/*
 * A line for the person on call, about a session on which locks hang.  To the
 * log alone: a client may not read, and who waits for that may be letting go
 * of locks.
 */
static void
log_news(const ZkClientStatus *status, int noted_connects,
		 TimestampTz suspended_since)
{
	unsigned long long id = status->session_id;
	char		why[256];

	switch (status->state)
	{
		case ZK_CLIENT_STARTING:
		case ZK_CLIENT_CONNECTING:
			break;
		case ZK_CLIENT_SUSPENDED:
			ereport(LOG_SERVER_ONLY,
					(errmsg("ZooKeeper session 0x%llx lost its connection to server \"%s\"",
							id, status->server),
					 errdetail("It keeps its locks and its places in queues if it is connected again in time."),
					 errhidestmt(true), errhidecontext(true)));
			break;
		case ZK_CLIENT_CONNECTED:
			if (status->nconnects <= Max(noted_connects, 1))
				break;
			ereport(LOG_SERVER_ONLY,
					(errmsg("ZooKeeper session 0x%llx is connected again, to server \"%s\"",
							id, status->server),
					 suspended_since != 0 ?
					 errdetail("It had no connection since %s.",
							   timestamptz_to_str(suspended_since)) :
					 errdetail("Its locks are kept."),
					 errhidestmt(true), errhidecontext(true)));
			break;
		case ZK_CLIENT_LOST:
			zklock_errors_describe_loss(status,
										zklock_client_last_error(MySession.client),
										why, sizeof(why));
			ereport(LOG_SERVER_ONLY,
					(errmsg("ZooKeeper session 0x%llx is lost, and its locks with it",
							id),
					 errdetail("%s", why),
					 errhidestmt(true), errhidecontext(true)));
			break;
	}
}
