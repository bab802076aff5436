/*-------------------------------------------------------------------------
 *
 * check_private.h
 *	  A call of zk_check_facts(), for the modules of the family check_*.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CHECK_PRIVATE_H
#define ZKLOCK_CHECK_PRIVATE_H

#include "postgres.h"

#include "nodes/execnodes.h"

#include "servers.h"

/* A call under way. */
typedef struct Check
{
	ReturnSetInfo *result;
	bool		has_session;	/* may one be opened? */
	int64		deadline;		/* protocol_now(); of everything */
	ServerList	list;
	bool		is_heard[SERVERS_MAX];	/* what was said of that server came in
										 * time */
	bool		may_serve;		/* something listens at an address, or a
								 * server's address was not known in time */
} Check;

/* ---- check_fact.c ---- */

/* Put a row; see the comment on _zk_check_facts().  All texts may be NULL. */
extern void check_put_fact(const Check *check, const char *item,
						   const char *fact, int place, const char *subject,
						   const char *value, int64 number);

/* ---- check_servers.c ---- */

/*
 * Have the program ask the servers, without a session.  Takes at most a moment
 * more than the servers have.  No process is left behind, but by a backend that
 * is terminated: that one ends by itself.
 */
extern void check_ask_servers(Check *check);

/* ---- check_session.c ---- */

/*
 * Is a lock lost, or is the session on which locks hang not connected?  Then put
 * that as the fact: the ensemble is not to be asked, for it would be by another
 * session.
 */
extern bool check_put_trouble(const Check *check);

/*
 * Ask what only a session can tell.  It is the backend's own, which stays.
 * Whether locks can be taken is tried: an ephemeral znode is made in the root,
 * or in the nearest znode above, and taken away at once.
 */
extern void check_ask_session(Check *check);

#endif							/* ZKLOCK_CHECK_PRIVATE_H */
