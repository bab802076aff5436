/*-------------------------------------------------------------------------
 *
 * nodedata.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_NODEDATA_H
#define ZKLOCK_NODEDATA_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "recipe.h"

/* Longest reason that a caller can give for an action, in bytes. */
#define ZK_REASON_MAX 512

/* What a node's data says; strings are palloc'ed, NULL where unknown. */
typedef struct ZkNodeData
{
	char	   *client;			/* "zklock" for our own nodes, else NULL */
	char	   *cluster;		/* setting cluster_name */
	char	   *database;
	char	   *username;
	char	   *application;
	char	   *host;
	int			pid;			/* 0: unknown */
	int64		token;			/* 0: the node's own czxid is the token */
	bool		is_name;		/* it is part of the path of a lock, and no
								 * contender (nested.h) */
	bool		says_held;		/* of one who may keep a lock: it is held, and
								 * will not be kept (program_follow.c) */
	char	   *lock;			/* of a request to release a lock: its name,
								 * in UTF-8 and not made printable */
	int64		retain_ms;		/* of a record of a run, of any client: for
								 * how long it is kept; -1: it does not say */
	int64		claimed_ms;		/* of the same: when it was made, by the
								 * clock of the database that did, Unix epoch;
								 * likewise */
	char	   *owner;			/* of a lease, and what it has added: in UTF-8
								 * and not made printable */
	char	   *note;
	int64		term_ms;			/* of a lease: its term; -1: it does not say */
	char	   *text;			/* data of a stranger, as text; of a hold or
								 * of a request, why */
} ZkNodeData;

/* Define the settings of this module.  For _PG_init(). */
extern void zklock_nodedata_init(void);

/*
 * The data for a node of this backend, JSON in UTF-8, palloc'ed and NUL-
 * terminated.  A token other than 0 is written too: the node stands in for an
 * earlier one that had it.  More members are added at its end, key and value
 * in turn up to a NULL as key.  The values are texts in UTF-8; without one, by
 * a NULL too, the member is left out.
 */
extern char *zklock_nodedata_build(int64 token,...) __attribute__((sentinel));

/*
 * The data for a znode on the way to a lock, below the root: a constant, or
 * NULL if nobody takes the znode for a contender.
 */
extern const char *zklock_nodedata_of_parent(const char *path);

/*
 * Raise 22023 unless the text, which is the noun ("reason") for what, is one
 * line of at most ZK_REASON_MAX bytes.
 */
extern void zklock_nodedata_check_line(const char *text, const char *noun,
									   const char *what, const char *hint);

/*
 * Does zklock.log_locks want a line for each deed that touches others, or for
 * each lock as well?
 */
extern bool zklock_nodedata_logs(bool each_lock);

/* At which level to report a deed that touches others. */
#define ZK_LOG_DEED (zklock_nodedata_logs(false) ? LOG : DEBUG1)

/*
 * The caller of a function that affects other sessions, for the server's log,
 * palloc'ed: the subject of a sentence.
 */
extern char *zklock_nodedata_caller(void);

/* Text for what must be unique.  Raises if there is no randomness. */
extern void zklock_nodedata_make_guid(char guid[RECIPE_GUID_LEN + 1]);

/*
 * Read a node's data, whichever client wrote it.  Never raises save for lack
 * of memory: what is not ours ends up in text.  All is as
 * zklock_text_printable() has it.
 */
extern void zklock_nodedata_parse(const char *data, int length,
								  ZkNodeData *who);

/* What a node of this backend says, as others read it. */
extern void zklock_nodedata_read_own(ZkNodeData *who);

/* Does it say which session wrote it? */
extern bool zklock_nodedata_is_known(const ZkNodeData *who);

/* Does it name this user, database, cluster and host, as ours do? */
extern bool zklock_nodedata_is_by_us(const ZkNodeData *who);

/*
 * One line for the server's log, palloc'ed.  Among users only members of
 * pg_monitor may see it (errdetail_log() for all others).
 */
extern char *zklock_nodedata_describe(const ZkNodeData *who);

/* Is this session's user a member? */
extern bool zklock_nodedata_may_be_shown(void);

/*
 * A date of a server's, in milliseconds of the Unix epoch.  A value out of
 * range becomes a date that is obviously wrong.
 */
extern TimestampTz zklock_nodedata_date(int64 unix_ms);

/* Its text, which must not be NULL, in quotes. */
extern char *zklock_nodedata_reason(const ZkNodeData *who);

#endif							/* ZKLOCK_NODEDATA_H */
