/*-------------------------------------------------------------------------
 *
 * check_private.h
 *	  A call of zk_check(): what has been found, for the modules of the family
 *	  check_*.
 *
 * The modules have two kinds of functions.  Those called check_ask_... find
 * something out, may take time, and fill the struct Check.  Those called
 * check_tell_... look at the struct, or into a catalog, and put the rows of an
 * item.  Both may raise; check.c makes a row of the error.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CHECK_PRIVATE_H
#define ZKLOCK_CHECK_PRIVATE_H

#include "postgres.h"

#include "nodes/execnodes.h"

#include "ask.h"
#include "terms.h"

/* The column state of zk_check(); docs/monitoring.md says what each means. */
typedef enum CheckState
{
	CHECK_OK,
	CHECK_NOTE,
	CHECK_WARNING,
	CHECK_ERROR
} CheckState;

/* What the program has said of one address of a server; all texts can be shown. */
typedef struct CheckAnswer
{
	int			server;			/* its place in the list */
	AskVerdict	verdict;		/* ASK_PROGRAM: nothing was heard in time */
	const char *address;
	const char *text;			/* as AskVerdict says */
	const char *mode;			/* SERVING: in the server's word, or "" */
	int64		us;				/* how long it took */
} CheckAnswer;

/* How far the session was asked. */
typedef enum CheckAsked
{
	CHECK_NOT_ASKED,			/* it was not to be */
	CHECK_NOT_TRIED,			/* no server could have granted one */
	CHECK_NOT_GRANTED,			/* none was in time */
	CHECK_LATE,					/* not all was answered in time */
	CHECK_LOST,					/* a lock is lost */
	CHECK_SUSPENDED,			/* locks hang on it, and it is not connected */
	CHECK_ANSWERED
} CheckAsked;

/* The reply to a question about a znode. */
typedef struct CheckZnode
{
	const char *path;			/* can be quoted; NULL: it was not asked, or
								 * there was no reply */
	ZkResult	result;
	const char *why;			/* not OK: the library's words */
	bool		is_open;		/* GET_ACL: everybody may change it */
	int			nbelow;			/* GET */
	int64		ctime_ms;		/* GET */
} CheckZnode;

/* What was found through the session. */
typedef struct CheckTree
{
	CheckZnode	chroot;
	CheckZnode	root;
	CheckZnode	acl;			/* of the root */
	const char *stranger;		/* who besides our credentials and those that
								 * are trusted may change it, can be quoted; or
								 * NULL */
	CheckZnode	writing;		/* a create in the root, or above it */
	const char *no_containers;	/* how the server refuses one; NULL: it does
								 * not */
	int64		writing_us;		/* valid if writing was OK */
	int64		clock_ms;		/* likewise: by how much the ensemble's clock
								 * is ahead of ours, at least */
	CheckZnode	quota;			/* the ACL of the root's quota, or of the
								 * uppermost znode above it that is open */
	int			nleases;		/* that were looked at */
	const char *overdue;		/* a list of those that are; or NULL */
} CheckTree;

/* A call under way.  All is valid when all was asked. */
typedef struct Check
{
	ReturnSetInfo *result;
	Oid			function;		/* zk_check() itself */
	bool		has_session;	/* may one be opened? */
	int64		deadline;		/* protocol_now(); of everything */

	/* check_servers.c */
	ServerList	list;			/* no servers: none are set */
	const char *library;		/* version of the client's library; NULL: the
								 * program does not run */
	List	   *answers;		/* of CheckAnswer, in the order in which they
								 * came */
	bool		may_serve;		/* something listens at an address, or a
								 * server's address was not known in time */

	/* check_session.c */
	const char *scheme;			/* of the credentials; NULL: none are set, or
								 * they cannot be read */
	CheckAsked	asked;
	const char *loss;			/* LOST: what and how */
	const char *loss_hint;
	const char *server;			/* ANSWERED: connected to */
	int			timeout_ms;		/* ANSWERED: as it was granted */
	int64		asking_ms;		/* ANSWERED: how long that took */
	bool		has_identity;	/* ANSWERED: one of its own */
	CheckTree	tree;			/* what was answered, if anything was */
	int64		nconnected;		/* sessions of this cluster that are connected */
} Check;

/* ---- check_row.c ---- */

/* Put a row.  remedy may be NULL. */
extern void check_put(const Check *check, const char *item, CheckState state,
					  const char *what, const char *remedy);

/* ---- check_settings.c: what PostgreSQL knows ---- */

extern void check_tell_extension(Check *check);
extern void check_tell_settings(Check *check);
extern void check_tell_other_settings(Check *check);
extern void check_tell_refused_settings(Check *check);
extern void check_tell_lease_worker(Check *check);
extern void check_tell_triggers(Check *check);

/* The greatest token of zk_fences; 0: there is none. */
extern int64 check_read_token(const Check *check);

/* ---- check_servers.c: what servers say without a session ---- */

/*
 * Have the program ask the servers.  Takes at most a moment more than the
 * servers have.  No process is left behind, but by a backend that is terminated:
 * that one ends by itself.
 */
extern void check_ask_servers(Check *check);

extern void check_tell_program(Check *check);
extern void check_tell_servers(Check *check);
extern void check_tell_certificates(Check *check);
extern void check_tell_ensemble(Check *check);
extern void check_tell_connections(Check *check);
extern void check_tell_request_size(Check *check);
extern void check_tell_session_timeout(Check *check);
extern void check_tell_data(Check *check);
extern void check_tell_moved_servers(Check *check);

/* ---- check_session.c: credentials, the session, and what only it can tell ---- */

extern void check_ask_credentials(Check *check);

/*
 * Ask through the session, if the call may have one.  It is the backend's own,
 * which stays.  Whether locks can be taken is tried: an ephemeral znode is made
 * in the root, or in the nearest znode above, and taken away at once.  Where a
 * lock is lost, or locks hang on a session that is not connected, nothing is
 * asked: it would be by another session.
 */
extern void check_ask_session(Check *check);

/* How many sessions of this cluster are connected: Check.nconnected. */
extern void check_ask_others(Check *check);

extern void check_tell_credentials(Check *check);
extern void check_tell_session(Check *check);
extern void check_tell_releases(Check *check);
extern void check_tell_granted_timeout(Check *check);
extern void check_tell_digest(Check *check);
extern void check_tell_chroot(Check *check);
extern void check_tell_root(Check *check);
extern void check_tell_acl(Check *check);
extern void check_tell_writing(Check *check);
extern void check_tell_clock(Check *check);
extern void check_tell_quota(Check *check);
extern void check_tell_leases(Check *check);

#endif							/* ZKLOCK_CHECK_PRIVATE_H */
