/*-------------------------------------------------------------------------
 *
 * session_private.h
 *	  The one session of this backend, for the modules of the family session*.
 *
 * From the top down: session.c (its life), session_interrupt.c, session_wait.c,
 * session_error.c, session_current.c (which alone moves its state),
 * session_news.c, session_loss.c, session_settings.c, session_state.c.  Each
 * calls those behind it, and none ahead of it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SESSION_PRIVATE_H
#define ZKLOCK_SESSION_PRIVATE_H

#include "postgres.h"

#include "client.h"
#include "session.h"
#include "session_settings.h"
#include "session_state.h"

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
	ZkSession	known;			/* its state */
	ZkClient   *client;			/* NULL exactly if that is NONE */

	/* of the last session, open or not */
	SessionOpening opening;
	bool		needs_check;	/* it was used since zklock_session_rest() */
	uint64		ncounted;		/* of its requests, by stat.c */

	SessionHeritage heritage;
	uint64		statement;		/* how many statements have begun */
} CurrentSession;

extern CurrentSession MySession;

/* ---- moving the state: session_current.c ---- */

/* There is a session from now on, with that client. */
extern void session_begin(ZkClient *client);

/* It is not to be used again. */
extern void session_give_up(void);

/* It is over for this process: the client is the caller's to close. */
extern ZkClient *session_end(void);

/* ---- what is told of it: session_news.c.  Never raises, never waits. ---- */

/* A new session begins, of which nothing was told. */
extern void session_news_begin(void);

/* If anything has changed, tell the board, the counters and the log. */
extern void session_news_tell(const ZkSession *session, ZkClient *client);

/* For developers: its state was that, and is another one now. */
extern void session_news_trace(const ZkSession *session, ZkClient *client,
							   ZkSessionState before);

/* ---- the loss: session_loss.c.  Never raises. ---- */

/*
 * Keep the circumstances of a loss, once, for messages to come.  error is the
 * client's last one.
 */
extern void session_loss_note(const ZkSession *session, uint64 statement,
							  const char *error);

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

/* A statement begins: see zklock_session_begin_statement(). */
extern void session_interrupt_begin_statement(void);

#endif							/* ZKLOCK_SESSION_PRIVATE_H */
