/*-------------------------------------------------------------------------
 *
 * session_current.c
 *	  Answers questions about the state of the session.
 *
 * The one rule: what is known of the session is what the client has of its
 * program's words, which it checks, and nothing is kept twice.  A session that is
 * over stays over, whatever is said: the client sees to that, and here that it
 * was given up.
 *
 * No look can tell what the ensemble has done a moment ago.  Where that matters, a
 * fresh proof decides (contact.h): its age is taken by the clock when the question
 * is asked.
 *
 *-------------------------------------------------------------------------
 */
#include "session_private.h"

/* The state of this module, and of the family; there is one for each backend. */
CurrentSession MySession = {.statement = 1};

ZkClient *
zklock_session_client(void)
{
	return MySession.client;
}

const ZkClientStatus *
zklock_session_status(void)
{
	return MySession.client != NULL ?
		zklock_client_status(MySession.client) : NULL;
}

bool
session_is_granted(void)
{
	return MySession.client != NULL &&
		zklock_session_status()->was_connected;
}

bool
session_is_over(void)
{
	return MySession.client != NULL &&
		(MySession.is_given_up ||
		 zklock_session_status()->state == ZK_CLIENT_LOST);
}

bool
session_is_loss(void)
{
	const ZkClientStatus *status = zklock_session_status();

	return session_is_granted() && status->state == ZK_CLIENT_LOST &&
		(status->loss != ZK_LOSS_IDLE || MySession.is_in_use);
}

ZkSessionNumber
zklock_session_number(void)
{
	return MySession.client != NULL ? MySession.number : 0;
}

ZkSessionNumber
zklock_session_live(void)
{
	return session_is_over() ? 0 : zklock_session_number();
}

int64
zklock_session_id(void)
{
	return session_is_granted() ? zklock_session_status()->session_id : 0;
}

int
zklock_session_timeout_ms(void)
{
	return session_is_granted() ?
		zklock_session_status()->session_timeout_ms : 0;
}

bool
zklock_session_is_connected(void)
{
	return zklock_session_live() != 0 && session_is_granted() &&
		zklock_session_status()->state == ZK_CLIENT_CONNECTED;
}

Moment
zklock_session_fresh_since(void)
{
	if (!session_is_granted())
		return ZK_NO_PROOF;
	return contact_fresh_since(protocol_moment(), zklock_session_timeout_ms());
}

bool
zklock_session_can_hand_over(void)
{
	return MySession.client != NULL &&
		MySession.opening.credentials == SESSION_IDENTITY;
}

bool
zklock_session_has_credentials(void)
{
	return MySession.client != NULL &&
		MySession.opening.credentials == SESSION_CONFIGURED;
}

/* Where there is no connection yet, that has the same time. */
int64
zklock_session_reply_deadline(int64 asked_at)
{
	int64		timeout_ms = session_settings.connect_timeout;

	if (zklock_session_id() == 0)
		timeout_ms *= 2;
	return asked_at + timeout_ms;
}
