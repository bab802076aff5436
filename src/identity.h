/*-------------------------------------------------------------------------
 *
 * identity.h
 *	  Who stands in a queue: the data that we write into our queue nodes, and
 *	  what can be read out of anybody's.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_IDENTITY_H
#define ZKLOCK_IDENTITY_H

#include "postgres.h"

#include "recipe.h"

/* Longest reason that somebody can give for what he does, in bytes. */
#define ZK_REASON_MAX 512

/* What a node's data says; strings are palloc'ed, NULL where unknown. */
typedef struct ZkIdentity
{
	char	   *client;			/* "zklock" for our own nodes */
	char	   *cluster;		/* setting cluster_name */
	char	   *database;
	char	   *username;
	char	   *application;
	char	   *host;
	int			pid;			/* 0: unknown */
	int64		token;			/* 0: the node's own czxid is the token */
	char	   *twin;			/* of a hold that is not finished: the queue
								 * node that it is to take the place of */
	char	   *text;			/* data of a stranger, as text; of a hold or of a
								 * request, why */
} ZkIdentity;

/* Define the settings of this room.  For _PG_init(). */
extern void zklock_identity_init(void);

/*
 * The data for a node of this backend, JSON in UTF-8, palloc'ed and NUL-
 * terminated.  A token other than 0 is written too: the node stands in for an
 * earlier one that had it.
 */
extern char *zklock_identity_build(int64 token);

/*
 * Such data with one more member at its end, palloc'ed; the value is in this
 * database's encoding.
 */
extern char *zklock_identity_add(const char *data, const char *key,
								 const char *value);

/*
 * Raise 22023 unless the reason, for what, is one line of text of at most
 * ZK_REASON_MAX bytes.
 */
extern void zklock_identity_check_reason(const char *reason, const char *what,
										 const char *hint);

/* Text for what must be unique.  Raises if there is no randomness. */
extern void zklock_identity_make_guid(char guid[RECIPE_GUID_LEN + 1]);

/*
 * Read a node's data, whoever wrote it.  Never raises save for lack of memory:
 * what is not ours ends up in text, with bytes that are not printable in this
 * database replaced by '?'.
 */
extern void zklock_identity_parse(const char *data, int length,
								  ZkIdentity *identity);

/* A copy of UTF-8 text, with '?' for what this database cannot show. */
extern char *zklock_identity_printable(const char *text);

/* One line for a log message, palloc'ed. */
extern char *zklock_identity_describe(const ZkIdentity *identity);

#endif							/* ZKLOCK_IDENTITY_H */
