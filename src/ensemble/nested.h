/*-------------------------------------------------------------------------
 *
 * nested.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_NESTED_H
#define ZKLOCK_NESTED_H

#include "postgres.h"

#include "nodes/pg_list.h"
#include "roundtrip.h"

/* A list of children, sorted. */
typedef struct ZkChildren
{
	const char *const *names;	/* contenders, and what looks like none: the
								 * reply's strings, in no order */
	int			count;
	List	   *locks;			/* those read that are locks' znodes, or gone:
								 * likewise */
	const char **copy;			/* palloc'ed, or NULL if nothing was left out */
} ZkChildren;

/* Which children are read. */
typedef struct ZkNestedBound
{
	int64		last_sequence;	/* none with a greater sequence number */
	int			most;			/* no more than that */
} ZkNestedBound;

/*
 * Which of them concern the contender of that name: none that is behind it.
 * NULL: one that has no node yet, and would be behind them all.  It reads some:
 * whether those are all that there are only a node in the queue can tell.
 */
extern ZkNestedBound zklock_nested_bound(const char *mine);

/* All of them. */
extern ZkNestedBound zklock_nested_all(void);

/*
 * Leave out of the list of a queue which children are no contenders though
 * they look like some, and those that are not to be read, whatever they are.
 * The others are read, unless they are in *known: names that were read before
 * for the same contender, to which these are added, as far as there is room.
 * NULL: nothing is known, or kept.
 *
 * The reply has to stay.  Without such children nothing is sent or allocated.
 * With an outcome other than ZK_ANSWERED, never ZK_UNKNOWN, there is nothing to
 * be freed.
 */
pg_nodiscard extern ZkOutcome zklock_nested_leave_out(ZkRoundTrip *trip,
													  const char *lock_path,
													  const ZkReply *list,
													  ZkNestedBound bound,
													  List **known,
													  ZkChildren *children);

/* Free what is palloc'ed. */
extern void zklock_nested_free(ZkChildren *children);

/*
 * Is this child of a queue the znode of a lock below, and no contender?  The
 * reply is that to a ZK_GET.  What cannot be read is a contender.
 */
extern bool zklock_nested_is_lock(const char *child, const ZkReply *reply);

#endif							/* ZKLOCK_NESTED_H */
