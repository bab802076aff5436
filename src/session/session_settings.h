/*-------------------------------------------------------------------------
 *
 * session_settings.h
 *
 * For the family session*.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SESSION_SETTINGS_H
#define ZKLOCK_SESSION_SETTINGS_H

#include "postgres.h"

typedef struct SessionSettings
{
	/*
	 * zklock.servers, as this process has read it last.  The list that is used
	 * is zklock_session_servers().
	 */
	char	   *servers;

	/*
	 * zklock.ssl: is all that is said to ZooKeeper to be encrypted?  This and
	 * the other settings of TLS are called as PostgreSQL's own for its
	 * clients, and can be set where these can: for the whole server.
	 */
	bool		ssl;
	char	   *ssl_ca_file;	/* authorities that sign servers' certificates */
	char	   *ssl_cert_file;	/* who we are to the servers, and */
	char	   *ssl_key_file;	/* the private key of that certificate */
	char	   *ssl_crl_file;	/* certificates that are not valid any more */

	/*
	 * zklock.ssl_passphrase_command: says the passphrase of that key, for
	 * which %p is a prompt.  It may have the passphrase in it, so it is shown
	 * to no others than PostgreSQL's own is.
	 */
	char	   *ssl_passphrase_command;
	int			ssl_min_protocol_version;

	/* zklock.session_timeout, in ms: asked of the ensemble, which clamps it */
	int			session_timeout;

	/* zklock.connect_timeout, in ms: until the first connection is given up */
	int			connect_timeout;
} SessionSettings;

extern SessionSettings session_settings;

/* Define them.  For _PG_init(). */
extern void session_settings_init(void);

/*
 * What they come to, with the credentials: sessions with the same number are as
 * good as one another.  The servers are not in it, for sessions follow the list
 * in use, unless there is no settings page.
 */
extern uint64 session_settings_hash(void);

#endif							/* ZKLOCK_SESSION_SETTINGS_H */
