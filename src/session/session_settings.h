/*-------------------------------------------------------------------------
 *
 * session_settings.h
 *	  The settings of a session: which servers, by TLS or not, and how long is
 *	  waited for them.  For the family session*.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SESSION_SETTINGS_H
#define ZKLOCK_SESSION_SETTINGS_H

#include "postgres.h"

#include "origin.h"
#include "servers.h"

typedef struct SessionSettings
{
	/*
	 * zklock.servers: where the ensemble is.  Read when a session is opened; a
	 * session that is in use follows a change, if the servers know it
	 * (program_move.c).
	 */
	char	   *servers;
	Origin		servers_origin; /* where it was set */
	char		chroot[sizeof(((ServerList *) 0)->chroot)]; /* of these servers,
															 * "" for none */

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

	/*
	 * How often the servers, TLS, or where these settings come from have been
	 * assigned: a session that was told another number may have to be told
	 * again.
	 */
	uint64		nchanges;
} SessionSettings;

extern SessionSettings session_settings;

/* Define them.  For _PG_init(). */
extern void session_settings_init(void);

/*
 * What they come to without the servers, with the credentials: sessions with
 * the same number are as good as one another.
 */
extern uint64 session_settings_hash(void);

/* The same of the servers, of TLS, and of where they come from. */
extern uint64 session_settings_hash_servers(void);

/* May credentials of that origin go to the servers that are set (origin.h)? */
extern bool session_settings_allow_secret(const Origin *auth);

/*
 * May the role that has logged in, not a superuser, have chosen servers that
 * are not those of the configuration?
 */
extern bool session_settings_are_chosen(void);

#endif							/* ZKLOCK_SESSION_SETTINGS_H */
