/*-------------------------------------------------------------------------
 *
 * session_private.h
 *	  The state of the session, for the modules of the family session_*.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SESSION_PRIVATE_H
#define ZKLOCK_SESSION_PRIVATE_H

#include "postgres.h"

#include "client.h"
#include "origin.h"
#include "servers.h"
#include "session.h"

/* What the log and the board know of a session. */
typedef struct NotedSession
{
	ZkClientState state;
	TimestampTz since;			/* of that; 0: nothing is known yet */
	int			nconnects;
	int			nrefused;
	int			nmoves;
} NotedSession;

/* The current session of this backend. */
typedef struct CurrentSession
{
	ZkClient   *client;			/* NULL: there is none */
	ZkSessionNumber number;		/* of the last one if there is none */
	bool		is_given_up;	/* not to be used again: set where an error
								 * leaves while requests may be outstanding;
								 * then zklock_session_reap() closes it */
	bool		is_in_use;		/* locks hang on it */
	bool		needs_check;	/* it was used since zklock_session_rest() */
	bool		has_identity;	/* of its own */
	bool		has_credentials;	/* those of zklock.auth */
	bool		has_secret;		/* they are one, so not the certificate */
	Origin		auth_origin;	/* of these credentials */
	bool		is_kept_away;	/* other servers are set, which its secret
								 * must not go to: so it was not told */
	uint64		opened_with;	/* settings() */
	uint64		told_servers;	/* servers_hash() as it was told last */
	char		chroot[sizeof(((ServerList *) 0)->chroot)]; /* of its servers */
	Origin		chroot_origin;	/* of the server list that has it */
	bool		knows_chosen;	/* it has had servers beside those of the
								 * configuration that its user may have chosen */

	/* Until it is connected for the first time. */
	int64		connect_deadline;	/* when it is given up */
	bool		is_retry;		/* the next session has the same deadline: the
								 * one before it was given up to go without
								 * an identity, or was short */

	int64		started_at;		/* valid if number is not 0 */
	int			nshort;			/* so many in a row were connected, and lost
								 * within zklock.connect_timeout */

	NotedSession noted;
	int			nmoves_shown;	/* on the board, as noted.nmoves */
	uint64		ncounted;		/* of its requests, by stat.c */
} CurrentSession;

/* The session that was lost last. */
typedef struct LostSession
{
	ZkSessionNumber number;		/* 0: none was; the rest is valid if one was */
	TimestampTz broken_at;		/* when the connection broke, and */
	TimestampTz lost_at;		/* when the session was given up; not earlier */
	uint64		noticed_in;		/* which statement; see session.c */
	char		text[512];		/* why, in words */
} LostSession;

extern CurrentSession MySession;
extern LostSession LastLoss;

/*
 * Wait until that protocol_now(), without a session.  Raises on cancel
 * and termination.
 */
extern void session_sleep(int64 until);

/* If its state has changed, tell the board, the counters and the log. */
extern void session_note_state(const ZkClientStatus *status);

/*
 * Raise for a lost session that there is no point in replacing; give it up.
 */
extern void session_raise_if_lost(const ZkClientStatus *status);

/* Keep the circumstances of a loss, once, for messages to come. */
extern void session_note_loss(const ZkClientStatus *status);

/* How the session of that status was lost, in a sentence. */
extern void session_describe_loss(const ZkClientStatus *status,
								  const char *error, char *text, size_t size);

/* Raise 08001 for a first connection that took too long, and give it up. */
pg_noreturn extern void session_raise_not_connected(void);

/* Inside ereport(): the errhint() for the library's last words, or for none. */
extern int	session_connection_hint(const char *error);

#endif							/* ZKLOCK_SESSION_PRIVATE_H */
