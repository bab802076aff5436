/*-------------------------------------------------------------------------
 *
 * session_state.h
 *	  The state of a backend's ZooKeeper session: what moves it, and questions
 *	  on it.
 *
 * A question changes nothing, and reads neither a socket nor a clock.  Its
 * answer is what was known when the state was moved last.  Nobody moves the
 * state of this backend's session but session_current.c.
 *
 * Pure: values in, values out; libc only.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SESSION_STATE_H
#define ZKLOCK_SESSION_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "contact.h"
#include "terms.h"

/*
 * Number of a session of this backend, counted from 1; a znode belongs to the
 * session under which it was made and to no later one.
 */
typedef uint64_t ZkSessionNumber;

typedef enum ZkSessionState
{
	SESSION_NONE,				/* no session is open */
	SESSION_OPENING,			/* no server has granted it yet */
	SESSION_CONNECTED,			/* granted; a server answers for it */
	SESSION_SUSPENDED,			/* granted; without a connection, and the
								 * ensemble may keep it */
	SESSION_LOST,				/* it was granted, and is over: its nodes are
								 * gone, or will be */
	SESSION_FAILED,			/* it is over, and was never granted */
	SESSION_GIVEN_UP			/* this backend does not use it any more, and
								 * closes it as soon as no request is under
								 * way; set where an error leaves while some
								 * are */
} ZkSessionState;
#define NSESSION_STATES 7

/* A session, as far as it is known.  All zero: there has been none. */
typedef struct ZkSession
{
	ZkSessionState state;
	ZkSessionNumber number;		/* NONE: of the session before */
	bool		is_in_use;		/* locks hang on it, or on the one before that
								 * was lost with them */

	/* valid in any state but NONE */
	int64_t		opened_at;		/* protocol_now() */
	int64_t		connect_deadline;	/* OPENING: when it is given up */
	ZkClientStatus client;		/* what its program and its channel said last */
} ZkSession;

/* ---- events.  Each moves the state, and nothing else does. ---- */

/* Another session was asked for: from NONE. */
extern void session_state_open(ZkSession *session, int64_t now,
							   int64_t connect_deadline);

/* It has until then to be granted, if it is not yet. */
extern void session_state_await_grant(ZkSession *session,
									  int64_t connect_deadline);

/*
 * The client says that, which may be no news.  What is over stays over,
 * whatever is said.
 */
extern void session_state_see(ZkSession *session, const ZkClientStatus *seen);

/* It is not to be used again: from any state but NONE. */
extern void session_state_give_up(ZkSession *session);

/* It was closed: from any state. */
extern void session_state_close(ZkSession *session);

/* ---- questions ---- */

/* May the state go from one to the other? */
extern bool session_state_may_move(ZkSessionState from, ZkSessionState to);

/* For messages to developers. */
extern const char *session_state_name(ZkSessionState state);

/* The number of the session, good or not; 0 if there is none. */
extern ZkSessionNumber session_state_number(const ZkSession *session);

/* Its number if it is not over, and not given up; else 0. */
extern ZkSessionNumber session_state_live(const ZkSession *session);

/* Is there one, and is it over or given up? */
extern bool session_state_is_over(const ZkSession *session);

/* Is it over so that another one would fare no better? */
extern bool session_state_is_hopeless(const ZkSession *session);

/*
 * Is it over, and was there anything to lose?  A program that has taken a
 * session for idle on which locks hang was wrong.
 */
extern bool session_state_is_loss(const ZkSession *session);

/* Was it lost so soon after it had been opened? */
extern bool session_state_is_short(const ZkSession *session, int64_t now,
								   int least_ms);

extern bool session_state_is_connected(const ZkSession *session);

/* Has it been granted, whatever has become of it? */
extern bool session_state_is_granted(const ZkSession *session);

/* Its id in ZooKeeper; 0 until it is granted. */
extern int64_t session_state_id(const ZkSession *session);

/* Its session timeout, as the servers have granted it; 0 until then. */
extern int	session_state_timeout_ms(const ZkSession *session);

/*
 * Since when a proof is fresh (contact.h), at that moment.  ZK_NO_PROOF if
 * none can be.
 */
extern Moment session_state_fresh_since(const ZkSession *session, Moment now);

/* No proof is fresh since then. */
#define ZK_NO_PROOF ((Moment) {INT64_MAX, INT64_MAX})

/*
 * When a wait with that deadline has to look at the session also if there is
 * no news: no later than the deadline.
 */
extern int64_t session_state_wake_at(const ZkSession *session,
									 int64_t deadline);

#endif							/* ZKLOCK_SESSION_STATE_H */
