/*-------------------------------------------------------------------------
 *
 * name.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_NAME_H
#define ZKLOCK_NAME_H

#include "postgres.h"

#include "recipe.h"

/* Define the settings of this module.  For _PG_init(). */
extern void zklock_name_init(void);

/*
 * The name of a lock or a job, checked, with the path of its znode.  It is made
 * once in a call, where that is given the name (given_name.h), and handed on.  The
 * chroot is one for the life of the cluster, so the path stays the same.
 */
typedef struct ZkName
{
	const char *text;			/* as users write it, in the database's
								 * encoding */
	const char *path;			/* chroot of the server list, zklock.root, the
								 * name in UTF-8 */
	int			root_length;	/* of the first two */
} ZkName;

/*
 * Make it, palloc'ed, of a text that stays the caller's.  Raises 42602 with the
 * reason if ZooKeeper or the recipe does not allow the name.
 */
extern ZkName zklock_name_make(const char *text);

/* The name in UTF-8, without the root, as ZooKeeper has it. */
extern const char *zklock_name_below_root(const ZkName *name);

/*
 * The path of a lock whose name is as znodes have it, in UTF-8, and is not looked
 * at; palloc'ed.
 */
extern char *zklock_name_path_of_utf8(const char *utf8);

/*
 * For the check of a setting: is that a root?  If it is none, the error's DETAIL
 * says what a root is.
 */
extern bool zklock_name_check_root(const char *root);

/*
 * The path of the root itself, palloc'ed; "" if it is "/".  Its length is that
 * of the root of each name of this session.
 */
extern char *zklock_name_root_path(void);

/*
 * The root below which the names of this session live, chroot of the server list
 * and zklock.root, as tables have it; palloc'ed.  It is ASCII, with escapes for
 * all other characters: the same whatever the encodings of database and client.
 */
extern char *zklock_name_root(void);

/* The same of a path of a lock, whose root has that length. */
extern char *zklock_name_root_of(const char *path, int root_length);

/* The style of queue nodes that zklock.node_style asks for. */
extern RecipeStyle zklock_name_style(void);

/*
 * Path of the znode that keeps the records of zk_run_once() for a name,
 * palloc'ed, and of the record of one slot in it.  They are below a znode of
 * the root that keeps all records, whose path they begin with: *root_length,
 * unless NULL, is set to its length.  No lock's queue is there.  Raise 42602
 * likewise.
 */
extern char *zklock_name_runs_path(const ZkName *name, int *root_length);
extern char *zklock_name_run_path(const ZkName *name, const char *slot,
								  int *root_length);

/*
 * The suffix of both names.  By itself it is the name of the znode that keeps
 * all records.
 */
#define ZK_RUNS_SUFFIX ".once"

/*
 * The suffix of requests to release a lock.  By itself it is the name of their
 * parent.
 */
#define ZK_RELEASE_SUFFIX ".release"

/*
 * The znode of the facts of deadlock.c, and the one in it for waits in
 * PostgreSQL. zklock_name_waits_path() makes the path of the latter below the
 * present root.
 */
#define ZK_WAITS_NAME ".waits"
#define ZK_WAITS_IN_POSTGRES "pg"
extern char *zklock_name_waits_path(void);

/*
 * The znode in which each lock that has, or had, leases is named: a child
 * whose data is the lock's name in UTF-8.  zklock_name_lease_path() makes the
 * path of that child, and zklock_name_leased_path() of the child's name the
 * path of the lock, palloc'ed, NULL if no lock can have that name.
 */
#define ZK_LEASES_NAME ".leases"
extern char *zklock_name_lease_path(const ZkName *name);
extern char *zklock_name_leased_path(const char *root, const char *child);

/*
 * Is this a name that the drop-in for PostgreSQL's advisory locks makes
 * (docs/migrating/advisory.sql)?  Its users know the functions by other names,
 * and HINTs call them so.
 */
#define ZK_ADVISORY_PREFIX "advisory/"
extern bool zklock_name_is_advisory(const char *name);

/*
 * Is this component of a path a name of zklock's own, which no lock can have?
 */
extern bool zklock_name_is_reserved(const char *component);

#endif							/* ZKLOCK_NAME_H */
