/*-------------------------------------------------------------------------
 *
 * test_session_state.c
 *	  Unit test of src/session/session_state.c: each event in each state leads to
 *	  the right state, and no question changes anything.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "session_state.h"
#include "tap.h"

#define NELEMS(array) ((int) (sizeof(array) / sizeof((array)[0])))

#define TIMEOUT_MS 15000
#define ID 0x1234

/* What a client may say of its session. */
typedef enum Said
{
	SAID_STARTING,
	SAID_CONNECTING,
	SAID_CONNECTED,
	SAID_SUSPENDED,
	SAID_LOST,					/* granted, and lost */
	SAID_FAILED,				/* lost, and never granted */
	SAID_ODD,					/* connected, and never granted: a lie */
	SAID_NEW					/* connecting, though it was granted: a lie */
} Said;
#define NSAID 8

static ZkClientStatus
status_of(Said said)
{
	static const ZkClientState states[NSAID] = {
		[SAID_STARTING] = ZK_CLIENT_STARTING,
		[SAID_CONNECTING] = ZK_CLIENT_CONNECTING,
		[SAID_CONNECTED] = ZK_CLIENT_CONNECTED,
		[SAID_SUSPENDED] = ZK_CLIENT_SUSPENDED,
		[SAID_LOST] = ZK_CLIENT_LOST,
		[SAID_FAILED] = ZK_CLIENT_LOST,
		[SAID_ODD] = ZK_CLIENT_CONNECTED,
		[SAID_NEW] = ZK_CLIENT_CONNECTING
	};
	ZkClientStatus status;

	memset(&status, 0, sizeof(status));
	status.state = states[said];
	status.was_connected = said == SAID_CONNECTED || said == SAID_SUSPENDED ||
		said == SAID_LOST || said == SAID_NEW;
	if (status.state == ZK_CLIENT_LOST)
		status.loss = ZK_LOSS_EXPIRED;
	if (status.was_connected)
	{
		status.session_id = ID;
		status.session_timeout_ms = TIMEOUT_MS;
		status.lost_deadline = 900;
	}
	return status;
}

/* A session in that state, number 1, opened at 100, to be granted by 500. */
static ZkSession
session_in(ZkSessionState state)
{
	static const Said said[NSESSION_STATES] = {
		[SESSION_OPENING] = SAID_CONNECTING,
		[SESSION_CONNECTED] = SAID_CONNECTED,
		[SESSION_SUSPENDED] = SAID_SUSPENDED,
		[SESSION_LOST] = SAID_LOST,
		[SESSION_FAILED] = SAID_FAILED,
		[SESSION_GIVEN_UP] = SAID_CONNECTED
	};
	ZkSession	session;
	ZkClientStatus status = status_of(said[state]);

	memset(&session, 0, sizeof(session));
	session_state_open(&session, 100, 500);
	session_state_see(&session, &status);
	if (state == SESSION_GIVEN_UP)
		session_state_give_up(&session);
	if (state == SESSION_NONE)
		session_state_close(&session);
	is_int(state, session.state, "a session that is %s",
		   session_state_name(state));
	return session;
}

/* What becomes of each state with what the client says, in the order of Said. */
static void
test_what_is_seen(void)
{
	static const ZkSessionState after[NSESSION_STATES][NSAID] = {
		[SESSION_NONE] = {
			SESSION_NONE, SESSION_NONE, SESSION_NONE, SESSION_NONE,
			SESSION_NONE, SESSION_NONE, SESSION_NONE, SESSION_NONE
		},
		[SESSION_OPENING] = {
			SESSION_OPENING, SESSION_OPENING, SESSION_CONNECTED, SESSION_SUSPENDED,
			SESSION_LOST, SESSION_FAILED, SESSION_OPENING, SESSION_SUSPENDED
		},
		[SESSION_CONNECTED] = {
			SESSION_SUSPENDED, SESSION_SUSPENDED, SESSION_CONNECTED, SESSION_SUSPENDED,
			SESSION_LOST, SESSION_LOST, SESSION_CONNECTED, SESSION_SUSPENDED
		},
		[SESSION_SUSPENDED] = {
			SESSION_SUSPENDED, SESSION_SUSPENDED, SESSION_CONNECTED, SESSION_SUSPENDED,
			SESSION_LOST, SESSION_LOST, SESSION_CONNECTED, SESSION_SUSPENDED
		},
		[SESSION_LOST] = {
			SESSION_LOST, SESSION_LOST, SESSION_LOST, SESSION_LOST,
			SESSION_LOST, SESSION_LOST, SESSION_LOST, SESSION_LOST
		},
		[SESSION_FAILED] = {
			SESSION_FAILED, SESSION_FAILED, SESSION_FAILED, SESSION_FAILED,
			SESSION_FAILED, SESSION_FAILED, SESSION_FAILED, SESSION_FAILED
		},
		[SESSION_GIVEN_UP] = {
			SESSION_GIVEN_UP, SESSION_GIVEN_UP, SESSION_GIVEN_UP, SESSION_GIVEN_UP,
			SESSION_GIVEN_UP, SESSION_GIVEN_UP, SESSION_GIVEN_UP, SESSION_GIVEN_UP
		}
	};

	for (ZkSessionState state = 0; state < NSESSION_STATES; state++)
		for (Said said = 0; said < NSAID; said++)
		{
			ZkSession	session = session_in(state);
			ZkClientStatus status = status_of(said);

			session_state_see(&session, &status);
			is_int(after[state][said], session.state, "%s, and seen as %d",
				   session_state_name(state), (int) said);
			ok(session_state_may_move(state, session.state), "%s: session_state_may_move() allows the move", session_state_name(state));
			ok(memcmp(&session.client, &status, sizeof(status)) == 0,
			   "the status that was told is kept");
		}
}

/* The other events, in each state. */
static void
test_events(void)
{
	for (ZkSessionState state = 0; state < NSESSION_STATES; state++)
	{
		bool		is_open = state != SESSION_NONE;
		ZkSession	session = session_in(state);

		session_state_give_up(&session);
		is_int(is_open ? SESSION_GIVEN_UP : SESSION_NONE, session.state,
			   "%s, and given up", session_state_name(state));
		session = session_in(state);
		session_state_await_grant(&session, 700);
		is_int(state == SESSION_OPENING ? 700 : 500, session.connect_deadline,
			   "only one that opens is given another deadline");
		session_state_close(&session);
		is_int(SESSION_NONE, session.state, "a session that is closed is none");
		is_int(0, session_state_number(&session), "a closed session has no number");
		session_state_open(&session, 1000, 2000);
		is_int(SESSION_OPENING, session.state, "another session is opened after that");
		is_int(2, session_state_number(&session), "another session has the next number");
		is_int(0, session_state_id(&session), "another session is without the earlier id");
	}
}

/* What each question answers in each state, in the order of ZkSessionState. */
static void
test_answers(void)
{
	static const struct
	{
		bool		is_live;
		bool		is_over;
		bool		is_hopeless;
		bool		is_loss;
		bool		is_granted;
		bool		is_connected;
		int64_t		wake_at;	/* of a wait until 1000 */
	}			rows[NSESSION_STATES] = {
		[SESSION_NONE] = {.wake_at = 1000},
		[SESSION_OPENING] = {.is_live = true,.wake_at = 500},
		[SESSION_CONNECTED] = {.is_live = true,.is_granted = true,
		.is_connected = true,.wake_at = 900},
		[SESSION_SUSPENDED] = {.is_live = true,.is_granted = true,.wake_at = 900},
		[SESSION_LOST] = {.is_over = true,.is_loss = true,.is_granted = true,
		.wake_at = 1000},
		[SESSION_FAILED] = {.is_over = true,.is_hopeless = true,.wake_at = 1000},
		[SESSION_GIVEN_UP] = {.is_over = true,.is_granted = true,.wake_at = 900}
	};

	for (ZkSessionState state = 0; state < NSESSION_STATES; state++)
	{
		const ZkSession session = session_in(state);
		bool		is_open = state != SESSION_NONE;
		bool		is_granted = rows[state].is_granted;
		ZkSession	before;
		Moment		now = {100000, 200000};

		memcpy(&before, &session, sizeof(session));
		for (int time = 0; time < 2; time++)
		{
			Moment		since = session_state_fresh_since(&session, now);
			Moment		expected = is_granted ?
				contact_fresh_since(now, TIMEOUT_MS) : ZK_NO_PROOF;

			is_int(is_open ? 1 : 0, session_state_number(&session), "number of the session");
			is_int(rows[state].is_live ? 1 : 0, session_state_live(&session),
				   "is it live?");
			is_int(rows[state].is_over, session_state_is_over(&session), "over?");
			is_int(rows[state].is_hopeless, session_state_is_hopeless(&session),
				   "hopeless?");
			is_int(rows[state].is_loss, session_state_is_loss(&session), "a loss?");
			is_int(rows[state].is_loss, session_state_is_short(&session, 599, 500),
				   "is the loss a short one?");
			is_int(false, session_state_is_short(&session, 600, 500),
				   "a loss is not a short one any more after 100 ms");
			is_int(rows[state].is_connected, session_state_is_connected(&session),
				   "connected?");
			is_int(is_granted, session_state_is_granted(&session), "granted?");
			is_int(is_granted ? ID : 0, session_state_id(&session), "id of the session");
			is_int(is_granted ? TIMEOUT_MS : 0, session_state_timeout_ms(&session),
				   "timeout of the session");
			is_int(rows[state].wake_at, session_state_wake_at(&session, 1000),
				   "time to look again");
			ok(session_state_wake_at(&session, 400) == 400,
			   "the time to look again is not after the deadline");
			ok(since.boot_ms == expected.boot_ms &&
			   since.wall_ms == expected.wall_ms, "since when proofs are fresh");
			ok(memcmp(&before, &session, sizeof(session)) == 0,
			   "no question has changed anything, time %d", time);
		}
	}
}

/* Losses that are none, and those after which another session would fare no better. */
static void
test_losses(void)
{
	static const struct
	{
		ZkClientLoss loss;
		bool		is_in_use;
		bool		is_loss;
		bool		is_hopeless;
	}			rows[] = {
		{ZK_LOSS_EXPIRED, false, true, false},
		{ZK_LOSS_SILENCE, true, true, false},
		{ZK_LOSS_IDLE, false, false, false},
		{ZK_LOSS_IDLE, true, true, false},
		{ZK_LOSS_AUTH, true, true, true},
		{ZK_LOSS_DEMAND, true, true, true},
		{ZK_LOSS_PROTOCOL, false, true, true},
		{ZK_LOSS_PROGRAM, false, true, false}
	};

	for (int i = 0; i < NELEMS(rows); i++)
	{
		ZkSession	session = session_in(SESSION_CONNECTED);
		ZkClientStatus status = status_of(SAID_LOST);

		session.is_in_use = rows[i].is_in_use;
		status.loss = rows[i].loss;
		session_state_see(&session, &status);
		is_int(rows[i].is_loss, session_state_is_loss(&session), "loss %d", i);
		is_int(rows[i].is_hopeless, session_state_is_hopeless(&session),
			   "is there a point in another one?");
		session_state_give_up(&session);
		is_int(rows[i].is_loss, session_state_is_loss(&session),
			   "a session that is given up: is it a loss?");
		ok(!session_state_is_hopeless(&session), "a session that is given up by us is not hopeless");
	}
}

/* A session that is opened knows nothing of the one before; and what states are called. */
static void
test_next(void)
{
	static const char *const names[NSESSION_STATES] = {
		[SESSION_NONE] = "none",
		[SESSION_OPENING] = "opening",
		[SESSION_CONNECTED] = "connected",
		[SESSION_SUSPENDED] = "suspended",
		[SESSION_LOST] = "lost",
		[SESSION_FAILED] = "failed",
		[SESSION_GIVEN_UP] = "given up"
	};
	ZkClientStatus starting = status_of(SAID_STARTING);

	for (ZkSessionState state = 0; state < NSESSION_STATES; state++)
	{
		ZkSession	session = session_in(state);

		session_state_open(&session, 1000, 2000);
		is_int(2, session.number, "the next session");
		ok(memcmp(&session.client, &starting, sizeof(starting)) == 0, "has heard nothing of its program");
		is_str(names[state], session_state_name(state), "the name of a state");
	}
}

int
main(void)
{
	test_what_is_seen();
	test_next();
	test_events();
	test_answers();
	test_losses();
	return done_testing();
}
