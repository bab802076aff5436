/*-------------------------------------------------------------------------
 *
 * origin.h
 *	  Where the value of a setting comes from, and whether credentials may go
 *	  to servers from there.
 *
 * A role that was granted SET on zklock.servers may name a server of its own.
 * It must not get the credentials of somebody else that way: those of
 * postgresql.conf, or of a function that runs with other rights.
 *
 * An origin goes with the value, as what the check hook leaves for the assign
 * hook: PostgreSQL brings it back together with the value, at the end of a
 * transaction, a savepoint or a function, and at RESET.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ORIGIN_H
#define ZKLOCK_ORIGIN_H

#include "postgres.h"

#include "compat.h"
#include "utils/guc.h"

/* The origin of a value that is not from the configuration. */
typedef enum OriginChoice
{
	ORIGIN_OF_USER,				/* the role that has logged in, no superuser,
								 * may have chosen it for this session */
	ORIGIN_OF_OTHERS,			/* it is stored for a role or a database, and
								 * may be of a role that is no superuser */
	ORIGIN_OF_SUPERUSERS		/* a superuser has set it in a session, or nobody
								 * else could have stored it */
} OriginChoice;

typedef struct Origin
{
	GucSource	source;
	OriginChoice choice;		/* valid unless it is of the configuration */
	Oid			role;			/* the role that has set it in a session;
								 * else, and where that is not known,
								 * InvalidOid */
} Origin;

/* With nothing else known, nothing is sent anywhere. */
#define ORIGIN_UNKNOWN \
	((Origin) {.source = PGC_S_SESSION,.choice = ORIGIN_OF_USER})

/*
 * For a check hook of the setting of that name: the origin of the value that
 * is checked, to be its *extra.  NULL without memory.
 */
extern void *zklock_origin_make(const char *setting, GucSource source);

/* For an assign hook: what the check hook has left, be it nothing. */
extern Origin zklock_origin_read(const void *extra);

/*
 * Is it of the configuration, which is the same for all sessions:
 * postgresql.conf, ALTER SYSTEM, the command line, or the default?
 */
extern bool zklock_origin_is_configuration(const Origin *origin);

/* May the role that has logged in, no superuser, have chosen it? */
extern bool zklock_origin_is_chosen(const Origin *origin);

/*
 * May credentials of that origin go to the servers in list, which are of the
 * other one?  configured is the list of the configuration, NULL if it is not
 * known.  Never raises.
 */
extern bool zklock_origin_allows(const Origin *auth, const Origin *servers,
								 const char *list, const char *configured);

/* Raise 42501, for they may not. */
pg_noreturn extern void zklock_origin_refuse(const Origin *auth,
											 const Origin *servers);

#endif							/* ZKLOCK_ORIGIN_H */
