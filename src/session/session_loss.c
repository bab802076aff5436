/*-------------------------------------------------------------------------
 *
 * session_loss.c
 *	  Says how the session that was lost last was lost.
 *
 *-------------------------------------------------------------------------
 */
#include "session_private.h"

#include "utils/datetime.h"
#include "utils/timestamp.h"

/* How a session was lost, by the reason; with its timeout. */
static const char *const loss_texts[] = {
	[ZK_LOSS_AUTH] = "ZooKeeper refused the credentials after a reconnect.",
	[ZK_LOSS_STANDSTILL] = "This backend stood still for the session timeout of %d ms.",
	[ZK_LOSS_UNANSWERED] = "ZooKeeper kept the session, and answered none of its requests for the session timeout of %d ms.",
	[ZK_LOSS_REFUSED] = "ZooKeeper refused for the session timeout of %d ms to delete what had been released.",
	[ZK_LOSS_IDLE] = "Its zklock-session process closed it as idle."
};

/* The session that was lost last: its locks may be held until much later. */
static struct
{
	ZkSessionNumber number;		/* 0: none was; the rest is valid if one was */
	TimestampTz broken_at;		/* when the connection broke, and */
	TimestampTz lost_at;		/* when the session was given up; not earlier */
	uint64		noticed_in;		/* which statement */
	char		text[512];		/* why, in words */
}			LastLoss;

static void note_if_lost(void);
static void describe_end(const ZkClientStatus *status, const char *error,
					 char *text, size_t size);

void
session_loss_note(void)
{
	const ZkClientStatus *status = zklock_session_status();
	bool		is_over = status->state == ZK_CLIENT_LOST;
	TimestampTz wall_clock;
	int64		now;
	int64		lost_at;

	if (LastLoss.number == MySession.number)
		return;
	wall_clock = GetCurrentTimestamp();
	now = protocol_now();
	lost_at = is_over ? status->lost_at : now;

	/* a reply can be there ahead of the loss: then it is noted again */
	if (is_over)
		LastLoss.number = MySession.number;
	LastLoss.noticed_in = MySession.statement;
	LastLoss.broken_at = TimestampTzPlusMilliseconds(wall_clock,
													 status->suspended_at - now);
	LastLoss.lost_at = TimestampTzPlusMilliseconds(wall_clock, lost_at - now);
	describe_end(status, zklock_client_last_error(MySession.client),
				 LastLoss.text, sizeof(LastLoss.text));
}

const char *
session_loss_text(void)
{
	note_if_lost();
	return LastLoss.text;
}

/* It may have been found where nobody attends: as requests were sent. */
static void
note_if_lost(void)
{
	if (session_is_loss())
		session_loss_note();
}

uint64
session_loss_noticed_in(void)
{
	return LastLoss.noticed_in;
}

void
zklock_session_describe_loss(char *text, size_t size)
{
	char		broken_at[MAXDATELEN + 1];
	const char *lost_at;

	note_if_lost();
	/* it has but one buffer */
	strlcpy(broken_at, timestamptz_to_str(LastLoss.broken_at),
			sizeof(broken_at));
	lost_at = timestamptz_to_str(LastLoss.lost_at);
	if (LastLoss.broken_at < LastLoss.lost_at)
		snprintf(text, size,
				 _("The connection broke at %s, and the lock was given up at %s. %s"),
				 broken_at, lost_at, LastLoss.text);
	else
		snprintf(text, size, _("The lock was given up at %s. %s"), lost_at,
				 LastLoss.text);
}

/* How the session of that status was lost, in a sentence. */
static void
describe_end(const ZkClientStatus *status, const char *error, char *text,
		 size_t size)
{
	if (status->loss == ZK_LOSS_SILENCE)
		snprintf(text, size,
				 "No contact with ZooKeeper for %lld ms, with a session timeout of %d ms.",
				 (long long) (status->lost_at - status->suspended_at),
				 status->session_timeout_ms);
	else if (status->loss == ZK_LOSS_PROTOCOL)
		snprintf(text, size,
				 "What answered after a reconnect is not a usable ZooKeeper server: %s.",
				 error);
	else if (status->loss == ZK_LOSS_PROGRAM)
		snprintf(text, size, "%s.", error);
	else if (status->loss == ZK_LOSS_DEMAND)
		snprintf(text, size,
				 "ZooKeeper demands another kind of authentication: %s.",
				 error);
	else if (status->loss < lengthof(loss_texts) &&
			 loss_texts[status->loss] != NULL)
		snprintf(text, size, loss_texts[status->loss],
				 status->session_timeout_ms);
	else
		snprintf(text, size, "ZooKeeper ended session 0x%llx.",
				 (unsigned long long) status->session_id);
	if ((status->loss == ZK_LOSS_SILENCE || status->loss == ZK_LOSS_EXPIRED) &&
		error[0] != '\0')
		snprintf(text + strlen(text), size - strlen(text), " %s.", error);
}
