/*-------------------------------------------------------------------------
 *
 * check_private.h
 *	  What the modules of zk_check() share.
 *
 *	check.c				the function, its rows, what is installed
 *	check_settings.c	settings, and what else PostgreSQL knows
 *	check_servers.c		what the servers say without a session
 *	check_session.c		what only a session can tell
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CHECK_PRIVATE_H
#define ZKLOCK_CHECK_PRIVATE_H

#include "postgres.h"

#include "nodes/execnodes.h"

#include "probe.h"
#include "servers.h"

typedef enum CheckState
{
	CHECK_OK,
	CHECK_NOTE,					/* to be known, or not to be known */
	CHECK_WARNING,				/* works, until something else happens */
	CHECK_ERROR					/* does not work */
} CheckState;

/* A call under way. */
typedef struct Check
{
	ReturnSetInfo *result;
	bool		has_session;	/* may one be opened? */
	int64		deadline;		/* zklock_client_now(); of everything */
	const char *program;		/* its path; NULL: not known */
	const char *servers;		/* zklock.servers; "": there are none */
	ServerList	list;			/* valid if there are */
	ZkProbe		probe;			/* likewise */
	int			nreached;		/* servers of the list that anything listens
								 * on; likewise */
	int			nserving;		/* servers of the list; likewise */
	char	   *auth_scheme;	/* of zklock.auth; NULL: there is none, or it
								 * cannot be read */
} Check;

/* One thing that is looked at, and puts rows.  May raise. */
typedef void (*CheckStep) (Check *check);

/*
 * Put a row.  remedy: NULL for none.  what: a format; what others wrote must
 * be printable by now.
 */
extern void check_put(Check *check, const char *item, CheckState state,
					  const char *remedy, const char *what,...)
			__attribute__((format(printf, 5, 6)));

/* What a setting is at the moment, whoever asks; "" if there is none. */
extern const char *check_setting(const char *name);
extern int	check_setting_int(const char *name);

/* check_settings.c */
extern void check_settings(Check *check);
extern void check_refused_settings(Check *check);
extern void check_extension(Check *check);
extern void check_extension_files(Check *check);

/* check_servers.c */
extern void check_probe(Check *check);
extern void check_servers(Check *check);
extern void check_ensemble(Check *check);
extern void check_releases(Check *check);
extern void check_connections(Check *check);
extern void check_timeouts(Check *check);

/*
 * syncLimit * tickTime of the servers, and the bounds of what they grant; 0
 * as far as that is not known.
 */
extern void check_read_timeouts(const Check *check, int *sync_ms, int *min_ms,
								int *max_ms);

/* May a session be had?  Not if all servers have been found wanting. */
extern bool check_may_connect(const Check *check);

/* check_session.c */
extern void check_credentials(Check *check);
extern void check_session(Check *check);

#endif							/* ZKLOCK_CHECK_PRIVATE_H */
