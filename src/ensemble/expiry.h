/*-------------------------------------------------------------------------
 *
 * expiry.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_EXPIRY_H
#define ZKLOCK_EXPIRY_H

#include "postgres.h"

#include "nodes/pg_list.h"

#include "nested.h"
#include "nodedata.h"
#include "roundtrip.h"

/* The shortest term of an owner, and the longest one, in milliseconds. */
#define ZK_TERM_MIN INT64CONST(2000)
#define ZK_TERM_MAX INT64CONST(86400000)

/* A leased queue node, palloc'ed. */
typedef struct ZkLeased
{
	const char *node;			/* name of the child, UTF-8 */
	char	   *path;
	int64		token;			/* as its name says */
	int64		czxid;			/* of the znode; another one at the same path
								 * was forged, or came later */
	int			version;		/* how often its data was set: its heartbeat */
	int64		term_ms;			/* for how long a version is good */
	int64		over_at;		/* protocol_now(): when this session may
								 * delete it, unless it is renewed */
	int64		mtime_ms;		/* when it was renewed last, by ZooKeeper's
								 * clock */
	ZkNodeData	who;
} ZkLeased;

/* When to look at a queue again: now, for a lease ahead is gone. */
#define ZK_LOOK_NOW 0

/*
 * The leased ones among the children of a lock's znode, in order: names,
 * palloc'ed.
 */
extern List *zklock_expiry_nodes(const char *const *children, int nchildren);

/* Sort names of queue nodes: in the order of the queue. */
extern void zklock_expiry_sort(List *nodes);

/*
 * Read and time those: ZkLeased, in the same order; those that are gone, or
 * that ZooKeeper does not let us read, are left out.  What the trip has asked
 * before stays valid.  No outcome here is ZK_UNKNOWN.
 */
pg_nodiscard extern ZkOutcome zklock_expiry_read(ZkRoundTrip *trip,
												 const char *lock_path,
												 const List *nodes,
												 List **leased);

/*
 * The same of ZkLeased with name and path alone, of whatever locks; of
 * ZK_READS_AT_ONCE at most.
 */
pg_nodiscard extern ZkOutcome zklock_expiry_read_paths(ZkRoundTrip *trip,
													   const List *asked,
													   List **leased);

/*
 * Take what the reply to a read says of a lease, whose name is set.  Path and
 * over_at are the caller's.  false: it is none.
 */
extern bool zklock_expiry_take(ZkLeased *one, const ZkReply *reply);

/*
 * Does that child of the queue hold the lock?  A lease does, unless a client
 * has made it that was never granted the lock.
 */
extern bool zklock_expiry_holds(const ZkChildren *children, const char *node);

/*
 * Set over_at.  The time of each version begins when this backend reads it
 * first, in whatever call.
 */
extern void zklock_expiry_time(ZkLeased *leased);

/*
 * Delete that lease if it has not been renewed since it was read.  *is_gone:
 * it is deleted, by this call or by another client.  Raises 58000 if the server
 * differs from its leader.
 */
pg_nodiscard extern ZkOutcome zklock_expiry_remove(ZkRoundTrip *trip,
												   const ZkLeased *leased,
												   bool *is_gone);

/*
 * Delete that one if its term is over, with a line in the log.  *look_at: the
 * earlier of what it was and when that one may be over (protocol_now()), or
 * ZK_LOOK_NOW: it is gone, and the queue is to be listed again.
 */
pg_nodiscard extern ZkOutcome zklock_expiry_end(ZkRoundTrip *trip,
												const char *lock_path,
												const ZkLeased *leased,
												int64 *look_at);

/*
 * The delete of that one, whose term was over, was answered: is it gone?  Sets
 * *look_at likewise.
 */
extern void zklock_expiry_note_end(const ZkLeased *leased, bool is_gone,
								   int64 *look_at);

/*
 * A line for the log that one is about to be deleted, whose term is over: it
 * may be interrupted, and be done all the same.  The lease was timed.
 */
extern void zklock_expiry_log(const char *lock_path, const ZkLeased *leased);

/*
 * A line of the log at DEBUG1: what has become of the lease with that node.
 * Does nothing below DEBUG1.
 */
extern void zklock_expiry_debug(const char *path, int64 token,
								const char *format,...)
			__attribute__((format(printf, 3, 4)));

/* Read them, and do that with each.  *look_at: ZK_NO_DEADLINE if there is none. */
pg_nodiscard extern ZkOutcome zklock_expiry_sweep(ZkRoundTrip *trip,
												  const char *lock_path,
												  const List *nodes,
												  int64 *look_at);

#endif							/* ZKLOCK_EXPIRY_H */
