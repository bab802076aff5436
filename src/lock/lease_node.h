/*-------------------------------------------------------------------------
 *
 * lease_node.h
 *	  The queue node of a lease: found in its queue, read, renewed.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LEASE_NODE_H
#define ZKLOCK_LEASE_NODE_H

#include "postgres.h"

#include "contact.h"
#include "expiry.h"
#include "order.h"
#include "recipe.h"

/* How a call about a lease ended. */
typedef enum ZkLeaseEnd
{
	ZK_LEASE_NONE,				/* no lease has that token */
	ZK_LEASE_BUSY,				/* others have the lock, and nothing of this
								 * call stays in the queue */
	ZK_LEASE_QUEUED,			/* others have the lock, and the owner's node
								 * stays in the queue */
	ZK_LEASE_HELD,				/* it was taken, or renewed */
	ZK_LEASE_RELEASED
} ZkLeaseEnd;

/* What is ahead of the node of a lease, or would be if there were one? */
typedef enum ZkLeaseAhead
{
	ZK_AHEAD_NOBODY,			/* the lease is held, or can be taken */
	ZK_AHEAD_KEEPER,			/* a session that may merely keep the lock
								 * after its release */
	ZK_AHEAD_OTHER
} ZkLeaseAhead;

/*
 * What the last look at the queue has shown, in a memory context of its own;
 * valid until the next look.
 */
typedef struct ZkLeaseView
{
	MemoryContext context;		/* NULL before the first look */
	const char *lock_path;
	bool		has_parent;		/* the lock's znode is there */
	ZkLeaseAhead who_ahead;		/* also valid during the next look */
	char	   *ahead;			/* path of the node just ahead; NULL: none */
	const char *unread;			/* path of a lease that ZooKeeper did not let us
								 * read; NULL: none */
	int64		look_at;		/* when the term of one ahead may be over;
								 * ZK_LOOK_NOW: one was deleted */
} ZkLeaseView;

/* What every call about a lease asks for, and what it has found. */
typedef struct ZkLeasing
{
	/* what is asked for */
	ZkOrder		order;			/* which lock, and the bounds of the call */
	const char *owner;			/* in UTF-8; NULL: the token says which lease */
	int64		token;			/* 0: the owner says which lease */
	int64		ttl_ms;			/* 0: as it is */
	const char *note;			/* in UTF-8; NULL: as it is */

	/* what the call knows of the queue; empty at first */
	char		place[RECIPE_NODE_SIZE];	/* name of the lease's node, as far as
											 * is known */
	char		read_to[RECIPE_NODE_SIZE];	/* up to this one all leases were
											 * read: none but mine is wanted */
	bool		reads_behind;	/* the call has sent a create: nodes of the
								 * same owner behind mine are looked for */
	ZkLeaseView view;

	/* what the call has found and done */
	ZkLeased   *mine;			/* of the last look, or as this backend knew
								 * it; NULL: there is none */
	int64		renewed;		/* token of the lease that the call has made or
								 * renewed last; 0: none */
	Moment		proof;			/* when that request was sent */
	ZkLeaseEnd	end;			/* valid when the call is over */
} ZkLeasing;

/* Is nobody ahead of mine?  Then it is held. */
extern bool zklock_lease_is_first(const ZkLeasing *leasing);

/*
 * Look for the owner's node, or that with the token: mine, and for the
 * contenders ahead of it.  Leases whose term is over are deleted on the way.
 * Never ZK_UNKNOWN.  Raises as zklock_lease_check().
 */
pg_nodiscard extern ZkOutcome zklock_lease_find(ZkRoundTrip *trip,
												ZkLeasing *leasing);

/*
 * Renew mine: leasing->renewed is its token if that was done.  Otherwise it was
 * deleted or set by somebody else, or the reply was lost; a look tells.  So it
 * is never ZK_UNKNOWN.
 */
pg_nodiscard extern ZkOutcome zklock_lease_renew_node(ZkRoundTrip *trip,
													  ZkLeasing *leasing);

/*
 * The answer to a request of the call: raise unless its result is _OK,
 * _NO_NODE, _NODE_EXISTS or _BAD_VERSION.
 */
extern void zklock_lease_check(const ZkLeasing *leasing,
							   const ZkReply *reply);

/*
 * Data of the node: who writes it, the owner and the note, and the term.  owner
 * is NULL so that nobody can renew it.
 */
extern char *zklock_lease_build_data(const char *owner, const char *note,
									 int64 ttl_ms);

#endif							/* ZKLOCK_LEASE_NODE_H */
