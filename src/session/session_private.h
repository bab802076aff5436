/*-------------------------------------------------------------------------
 *
 * session_private.h
 *	  The one session of this backend, for the modules of the family session*.
 *
 * From the top down: session.c (its life), session_interrupt.c, session_wait.c,
 * session_error.c, session_news.c (which attends to it), session_loss.c,
 * session_current.c (which is asked), session_settings.c.  Each calls those behind
 * it, and none ahead of it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SESSION_PRIVATE_H
#define ZKLOCK_SESSION_PRIVATE_H

#include "postgres.h"

#include "client.h"
#include "session.h"
#include "session_settings.h"

/* What the next session takes over from those before. */
typedef struct SessionHeritage
{
	int64		connect_deadline;	/* by when the session of a call is to be
									 * granted */
	bool		keeps_deadline; /* the next one has that deadline, too: the one
								 * before was given up to go without an
								 * identity, or was short */
	int			nshort;			/* so many in a row were granted, and lost
								 * within zklock.connect_timeout */
	bool		is_identity_refused;	/* an ensemble does not take identities:
										 * it may have digest authentication
										 * disabled */
} SessionHeritage;

/* The credentials that a session was opened with. */
typedef enum SessionCredentials
{
	SESSION_ANONYMOUS,			/* none */
	SESSION_IDENTITY,			/* an identity of its own: a random password,
								 * so that its queue nodes can be handed over
								 * (contender_watch.c) */
	SESSION_CONFIGURED			/* those of zklock.auth */
} SessionCredentials;

/* What a session was opened with. */
typedef struct SessionOpening
{
	SessionCredentials credentials;
	uint64		settings;		/* session_settings_hash() */
} SessionOpening;

/* The session of this backend. */
typedef struct CurrentSession
{
	ZkClient   *client;			/* with its state; NULL: there is no session */
	ZkSessionNumber number;		/* of the last session, open or not; 0: there
								 * has been none */
	bool		is_in_use;		/* locks hang on it, or on the one before that
								 * was lost with them */

	/* valid if there is one */
	bool		is_given_up;	/* it is not used any more, and closed as soon
								 * as no request is under way: set where an
								 * error leaves while some are */
	int64		opened_at;		/* protocol_now() */
	int64		connect_deadline;	/* until it is granted: when it is given up */

	/* of the last session, open or not */
	SessionOpening opening;
	bool		needs_check;	/* it was used since zklock_session_rest() */
	uint64		ncounted;		/* of its requests, by stat.c */

	SessionHeritage heritage;
	uint64		statement;		/* how many statements have begun */
} CurrentSession;

extern CurrentSession MySession;

/* ---- questions: session_current.c ---- */

/* Has it been granted, whatever has become of it? */
extern bool session_is_granted(void);

/* Is there one, and is it over or given up? */
extern bool session_is_over(void);

/*
 * Is it over, and was there anything to lose?  A program that has taken a
 * session for idle on which locks hang was wrong.
 */
extern bool session_is_loss(void);

/* ---- its beginning and its end, which are news: session_news.c ---- */

/* There is a session from now on, with that client. */
extern void session_begin(ZkClient *client);

/* It is not to be used again. */
extern void session_give_up(void);

/* It is over for this process: the client is the caller's to close. */
extern ZkClient *session_end(void);

/* ---- the loss: session_loss.c.  Never raises. ---- */

/* Keep the circumstances of a loss, once, for messages to come. */
extern void session_loss_note(void);

/* Why that session was lost which was lost last, in a sentence. */
extern const char *session_loss_text(void);

/* In which statement that was noticed. */
extern uint64 session_loss_noticed_in(void);

/* ---- waits: session_wait.c ---- */

/*
 * Wait until that protocol_now(), without a session.  Raises on cancel
 * and termination.
 */
extern void session_sleep(int64 until);

/* The session is about to be closed: nothing waits for it any more. */
extern void session_wait_end(void);

/* ---- errors: session_error.c ---- */

/*
 * Raise what it is that the session is over, before it was granted or for
 * good; it is given up.
 */
pg_noreturn extern void session_raise_over(void);

/* Raise 08001 for a first connection that took too long, and give it up. */
pg_noreturn extern void session_raise_not_connected(void);

/* ---- interrupts: session_interrupt.c ---- */

/* The session is about to be closed: what it has sent stays known. */
extern void session_interrupt_note_close(void);

#endif							/* ZKLOCK_SESSION_PRIVATE_H */
