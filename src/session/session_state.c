/*-------------------------------------------------------------------------
 *
 * session_state.c
 *	  The state of a backend's ZooKeeper session: what moves it, and questions
 *	  on it.
 *
 * What a client says of its session (ZkClientStatus) comes from the session's
 * program, which a hostile server may have misled.  So no status can bring a
 * session back to life, or make one that was granted look as if it never had
 * been.
 *
 *-------------------------------------------------------------------------
 */
#include "session_state.h"

#include <stddef.h>

/* A set of states. */
#define TO(state) (1u << (SESSION_ ## state))

/* To which states each of them may go. */
static const unsigned moves[NSESSION_STATES] = {
	[SESSION_NONE] = TO(OPENING),

	/* one look may bring more than one piece of news */
	[SESSION_OPENING] = TO(CONNECTED) | TO(SUSPENDED) | TO(LOST) |
	TO(FAILED) | TO(GIVEN_UP) | TO(NONE),
	[SESSION_CONNECTED] = TO(SUSPENDED) | TO(LOST) | TO(GIVEN_UP) | TO(NONE),
	[SESSION_SUSPENDED] = TO(CONNECTED) | TO(LOST) | TO(GIVEN_UP) | TO(NONE),
	[SESSION_LOST] = TO(GIVEN_UP) | TO(NONE),
	[SESSION_FAILED] = TO(GIVEN_UP) | TO(NONE),
	[SESSION_GIVEN_UP] = TO(NONE)
};

static const char *const names[NSESSION_STATES] = {
	[SESSION_NONE] = "none",
	[SESSION_OPENING] = "opening",
	[SESSION_CONNECTED] = "connected",
	[SESSION_SUSPENDED] = "suspended",
	[SESSION_LOST] = "lost",
	[SESSION_FAILED] = "failed",
	[SESSION_GIVEN_UP] = "given up"
};

static void enter_state(ZkSession *session, ZkSessionState state);
static ZkSessionState state_seen(const ZkSession *session);

/* ---------------------------------------------------------------------
 * Events
 * ---------------------------------------------------------------------
 */

void
session_state_open(ZkSession *session, int64_t now, int64_t connect_deadline)
{
	session->number++;
	session->opened_at = now;
	session->connect_deadline = connect_deadline;
	session->client = (ZkClientStatus) {0};
	enter_state(session, SESSION_OPENING);
}

void
session_state_await_grant(ZkSession *session, int64_t connect_deadline)
{
	if (session->state == SESSION_OPENING)
		session->connect_deadline = connect_deadline;
}

void
session_state_see(ZkSession *session, const ZkClientStatus *seen)
{
	session->client = *seen;
	if (session->state == SESSION_NONE || session_state_is_over(session))
		return;
	enter_state(session, state_seen(session));
}

void
session_state_give_up(ZkSession *session)
{
	enter_state(session, SESSION_GIVEN_UP);
}

void
session_state_close(ZkSession *session)
{
	enter_state(session, SESSION_NONE);
}

/* The one place where the state changes.  What it may not become it is not. */
static void
enter_state(ZkSession *session, ZkSessionState state)
{
	if (session_state_may_move(session->state, state))
		session->state = state;
}

/* The state of a session that was not over, by what its client says now. */
static ZkSessionState
state_seen(const ZkSession *session)
{
	bool		is_granted = session_state_is_granted(session);

	switch (session->client.state)
	{
		case ZK_CLIENT_LOST:
			return is_granted ? SESSION_LOST : SESSION_FAILED;
		case ZK_CLIENT_CONNECTED:
			return is_granted ? SESSION_CONNECTED : SESSION_OPENING;
		case ZK_CLIENT_STARTING:
		case ZK_CLIENT_CONNECTING:
		case ZK_CLIENT_SUSPENDED:
			break;
	}
	return is_granted ? SESSION_SUSPENDED : SESSION_OPENING;
}

/* ---------------------------------------------------------------------
 * Questions
 * ---------------------------------------------------------------------
 */

bool
session_state_may_move(ZkSessionState from, ZkSessionState to)
{
	return from == to || (moves[from] & (1u << to)) != 0;
}

const char *
session_state_name(ZkSessionState state)
{
	return names[state];
}

ZkSessionNumber
session_state_number(const ZkSession *session)
{
	return session->state != SESSION_NONE ? session->number : 0;
}

ZkSessionNumber
session_state_live(const ZkSession *session)
{
	return session_state_is_over(session) ? 0 : session_state_number(session);
}

bool
session_state_is_over(const ZkSession *session)
{
	return session->state == SESSION_LOST ||
		session->state == SESSION_FAILED ||
		session->state == SESSION_GIVEN_UP;
}

bool
session_state_is_hopeless(const ZkSession *session)
{
	ZkClientLoss loss = session->client.loss;

	if (session->state == SESSION_FAILED)
		return true;
	return session->state == SESSION_LOST &&
		(loss == ZK_LOSS_AUTH || loss == ZK_LOSS_DEMAND ||
		 loss == ZK_LOSS_PROTOCOL);
}

bool
session_state_is_loss(const ZkSession *session)
{
	return session_state_is_granted(session) &&
		session->client.state == ZK_CLIENT_LOST &&
		(session->client.loss != ZK_LOSS_IDLE || session->is_in_use);
}

bool
session_state_is_short(const ZkSession *session, int64_t now, int least_ms)
{
	return session_state_is_loss(session) &&
		now - session->opened_at < least_ms;
}

bool
session_state_is_connected(const ZkSession *session)
{
	return session->state == SESSION_CONNECTED;
}

bool
session_state_is_granted(const ZkSession *session)
{
	switch (session->state)
	{
		case SESSION_NONE:
		case SESSION_FAILED:
			return false;
		case SESSION_CONNECTED:
		case SESSION_SUSPENDED:
		case SESSION_LOST:
			return true;
		case SESSION_OPENING:
		case SESSION_GIVEN_UP:
			break;
	}
	return session->client.was_connected;
}

int64_t
session_state_id(const ZkSession *session)
{
	return session_state_is_granted(session) ? session->client.session_id : 0;
}

int
session_state_timeout_ms(const ZkSession *session)
{
	return session_state_is_granted(session) ?
		session->client.session_timeout_ms : 0;
}

Moment
session_state_fresh_since(const ZkSession *session, Moment now)
{
	if (!session_state_is_granted(session))
		return ZK_NO_PROOF;
	return contact_fresh_since(now, session->client.session_timeout_ms);
}

/*
 * The client gives a session up at its lost_deadline, which it keeps while it
 * is connected or suspended.
 */
int64_t
session_state_wake_at(const ZkSession *session, int64_t deadline)
{
	int64_t		wake_at = deadline;

	if (session->state == SESSION_OPENING)
		wake_at = session->connect_deadline;
	else if (session->client.state == ZK_CLIENT_CONNECTED ||
			 session->client.state == ZK_CLIENT_SUSPENDED)
		wake_at = session->client.lost_deadline;
	return wake_at < deadline ? wake_at : deadline;
}
