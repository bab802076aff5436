/*-------------------------------------------------------------------------
 *
 * session_current.c
 *	  The session of this backend: what moves its state, and what others may
 *	  ask of it.
 *
 * The one rule: its state is moved here, by zklock_session_attend() and by the
 * functions beside it, and nowhere else.  They are called at the beginning of
 * what has to know how the session is; each turn of a wait does so.  Questions
 * tell what was known then.  So all that a step decides it decides on one and
 * the same state.
 *
 * No look can tell what the ensemble has done a moment ago.  Where that matters, a
 * fresh proof decides (contact.h): its age is taken by the clock when the question
 * is asked.
 *
 *-------------------------------------------------------------------------
 */
#include "session_private.h"

#include "miscadmin.h"
#include "storage/ipc.h"

/* The state of this module, and of the family; there is one for each backend. */
CurrentSession MySession = {.statement = 1};

static void see(void);
static void move(ZkSessionState before);
static void drop_identity(void);

/* ---------------------------------------------------------------------
 * Moving the state
 * ---------------------------------------------------------------------
 */

void
zklock_session_attend(void)
{
	if (MySession.client != NULL)
		see();
}

void
zklock_session_read(void)
{
	if (MySession.client == NULL)
		return;
	zklock_client_receive(MySession.client);
	see();
}

void
session_begin(ZkClient *client)
{
	Assert(MySession.client == NULL && client != NULL);
	MySession.client = client;
	session_state_open(&MySession.known, protocol_now(),
					   MySession.heritage.connect_deadline);
	session_news_begin();
	move(SESSION_NONE);
	see();
}

void
session_give_up(void)
{
	ZkSessionState before = MySession.known.state;

	Assert(MySession.client != NULL);
	session_state_give_up(&MySession.known);
	move(before);
}

ZkClient *
session_end(void)
{
	ZkSessionState before = MySession.known.state;
	ZkClient   *client = MySession.client;

	Assert(client != NULL);
	session_state_close(&MySession.known);
	move(before);
	MySession.client = NULL;
	return client;
}

/* Look at the session, and tell what is new. */
static void
see(void)
{
	ZkSessionState before = MySession.known.state;

	zklock_client_look(MySession.client);
	session_state_see(&MySession.known, zklock_client_status(MySession.client));
	if (session_state_is_loss(&MySession.known))
		session_loss_note(&MySession.known, MySession.statement,
						  zklock_client_last_error(MySession.client));
	move(before);

	/* a process without a postmaster has no shared memory at its very end */
	if (IsUnderPostmaster || !proc_exit_inprogress)
		session_news_tell(&MySession.known, MySession.client);
}

/* The state has been moved, from that one. */
static void
move(ZkSessionState before)
{
	ZkSessionState state = MySession.known.state;

	Assert(session_state_may_move(before, state));
	if (state == before)
		return;
	session_news_trace(&MySession.known, MySession.client, before);
	if (state == SESSION_LOST || state == SESSION_FAILED)
		drop_identity();
}

/*
 * The session is over.  If that is because the ensemble does not take the
 * identity that we chose ourselves, the next session does without, and has all
 * its time to connect.
 */
static void
drop_identity(void)
{
	SessionHeritage *heritage = &MySession.heritage;

	if (MySession.known.client.loss != ZK_LOSS_AUTH ||
		MySession.opening.credentials != SESSION_IDENTITY)
		return;
	heritage->is_identity_refused = true;
	heritage->keeps_deadline = true;
	heritage->connect_deadline = protocol_now() +
		session_settings.connect_timeout;
	session_give_up();
}

/* ---------------------------------------------------------------------
 * Questions
 * ---------------------------------------------------------------------
 */

ZkClient *
zklock_session_client(void)
{
	return MySession.client;
}

ZkSessionNumber
zklock_session_number(void)
{
	return session_state_number(&MySession.known);
}

ZkSessionNumber
zklock_session_live(void)
{
	return session_state_live(&MySession.known);
}

int64
zklock_session_id(void)
{
	return session_state_id(&MySession.known);
}

int
zklock_session_timeout_ms(void)
{
	return session_state_timeout_ms(&MySession.known);
}

bool
zklock_session_is_connected(void)
{
	return session_state_is_connected(&MySession.known);
}

const ZkClientStatus *
zklock_session_status(void)
{
	return MySession.client != NULL ? &MySession.known.client : NULL;
}

Moment
zklock_session_fresh_since(void)
{
	return session_state_fresh_since(&MySession.known, protocol_moment());
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
