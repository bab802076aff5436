/*-------------------------------------------------------------------------
 *
 * lease_node.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LEASE_NODE_H
#define ZKLOCK_LEASE_NODE_H

#include "postgres.h"

#include "bounds.h"
#include "contact.h"
#include "expiry.h"
#include "name.h"

/* How a call about a lease ended. */
typedef enum ZkLeaseEnd
{
	ZK_LEASE_NONE,				/* no lease has that token */
	ZK_LEASE_BUSY,				/* others have the lock */
	ZK_LEASE_HELD,				/* it was taken, or renewed */
	ZK_LEASE_RELEASED
} ZkLeaseEnd;

/* What every call about a lease asks for, and what it has found. */
typedef struct ZkLeasing
{
	/* what is asked for */
	ZkName		name;			/* of the lock */
	int64		token;			/* 0: the owner says which (lease_take.h) */
	int64		term_ms;			/* 0: as it is */
	const char *note;			/* in UTF-8; NULL: as it is */

	/* what the call has found and done */
	int64		czxid;			/* of the lease, as it was known or read first;
								 * 0: not yet */
	ZkLeased   *mine;			/* as it was read or renewed last, or as this
								 * backend knew it; NULL: there is none */
	bool		is_renewed;		/* this call has renewed mine, or made it */
	Moment		proof;			/* when that request was sent */
	ZkLeaseEnd	end;			/* valid when the call is over */
} ZkLeasing;

/*
 * Look in the queue for the lease with the token: mine.  The list is not older
 * than the call.  Never ZK_UNKNOWN.  Raises as zklock_lease_check().
 */
pg_nodiscard extern ZkOutcome zklock_lease_find(ZkRoundTrip *trip,
												ZkLeasing *leasing);

/* The same of the lease at that path, which becomes mine if it has an owner. */
pg_nodiscard extern ZkOutcome zklock_lease_read(ZkRoundTrip *trip,
												ZkLeasing *leasing,
												const char *path);

/* The same of one that was read, palloc'ed. */
extern void zklock_lease_accept(ZkLeasing *leasing, ZkLeased *read);

/*
 * Renew mine: is_renewed tells whether that was done.  Otherwise it was deleted
 * or set by somebody else, or the reply was lost; a look tells.  So it is never
 * ZK_UNKNOWN.
 */
pg_nodiscard extern ZkOutcome zklock_lease_renew_node(ZkRoundTrip *trip,
													  ZkLeasing *leasing);

/*
 * The answer to a request about that lock's leases: raise unless its result is
 * ZK_OK, _NO_NODE or _BAD_VERSION.
 */
extern void zklock_lease_check(const ZkName *name, const ZkReply *reply);

/*
 * Data of the node: who writes it, the owner and the note, and the term.  owner
 * is NULL so that nobody can renew it.
 */
extern char *zklock_lease_build_data(const char *owner, const char *note,
									 int64 term_ms);

#endif							/* ZKLOCK_LEASE_NODE_H */
