/*-------------------------------------------------------------------------
 *
 * lease_node.h
 *	  The node of a lease: how it is taken, found, renewed and given up; and
 *	  which leases a transaction rests on.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LEASE_NODE_H
#define ZKLOCK_LEASE_NODE_H

#include "postgres.h"

#include "expiry.h"
#include "recipe.h"

/* What a call asks for, and what it has found. */
typedef struct ZkLeasing
{
	const char *name;			/* of the lock */
	const char *owner;			/* in UTF-8; NULL: whose token it is */
	int64		token;			/* 0: whose owner it is */
	int64		ttl_ms;			/* 0: as it is */
	const char *note;			/* in UTF-8; NULL: as it is */
	bool		has_place;		/* a place in the queue is kept */
	bool		is_bound;		/* to this role and cluster; false: as it is */
	ZkBounds	bounds;			/* of the call; not of a renewal at commit */

	bool		is_busy;		/* others were ahead at the last look; false at
								 * first */
	bool		is_over;		/* and the time was over before the next */

	/* What the call knows of the queue; "" at first. */
	char		place[RECIPE_NODE_SIZE];	/* name of mine, as far as is known */
	char		read_to[RECIPE_NODE_SIZE];	/* up to this one all leases were
											 * read: none but mine is wanted */

	/* Of the last look at the queue; valid when the call is over. */
	MemoryContext context;		/* in which that is; NULL at first */
	char	   *lock_path;
	ZkLeased   *mine;			/* NULL: there is none */
	bool		is_first;		/* is nobody ahead of it, or would be? */
	bool		has_parent;		/* is the lock's znode there? */
	char	   *ahead;			/* path of the node just ahead; NULL: none */
	bool		is_ahead_keeper;	/* may the lock merely be kept there? */
	int64		look_at;		/* when the term of one ahead may be over; 0:
								 * one was deleted, a look again is due */

	/* Of what was written. */
	int64		renewed;		/* token of the one that was renewed or made by
								 * this call last; 0: none */
	Moment		proof;			/* when that was sent */
	ZkRequest  *create;			/* of the one made; NULL: none was, or it stays */
	char		guid[RECIPE_GUID_LEN + 1];	/* in its name; "": likewise */
	ZkLeased   *tried;			/* one that may be given up by this call, with
								 * its token and owner; NULL: none */
} ZkLeasing;

/*
 * Talks of zklock_roundtrip_run() about a ZkLeasing.
 *
 * Take a lease for an owner, or renew the one he has: mine, if is_first.
 * Without has_place nothing of this call stays in the queue otherwise.  Raises
 * 08001 if the ensemble does not answer in time, and 55000 with is_bound if the
 * owner has one that is not.
 *
 * All raise 42501 for a lease, or a place, that is bound to another role or
 * cluster (lease_binding.h).
 */
extern bool zklock_lease_take(ZkRoundTrip *trip, void *leasing);

/* Renew the lease with that token: mine, NULL if it is not held. */
extern bool zklock_lease_renew(ZkRoundTrip *trip, void *leasing);

/*
 * Give it up, now, or with ttl_ms in that time: mine is NULL if there was
 * none.
 */
extern bool zklock_lease_release(ZkRoundTrip *trip, void *leasing);

/*
 * At the end of each attempt of zklock_lease_take(): what it made and nobody
 * needs is deleted.  Never raises.
 */
extern void zklock_lease_end(void *leasing);

/*
 * Note what was renewed, for the next renewal; and with is_used that this
 * transaction rests on it from here on.
 */
extern void zklock_lease_note(const ZkLeasing *leasing, bool is_used);

/* Note where mine waits, so that the next call of its owner need not search. */
extern void zklock_lease_note_place(const ZkLeasing *leasing);

/* Raise 40001: the lease with that token is not its owner's any more. */
pg_noreturn extern void zklock_lease_raise_lost(const char *name, int64 token);

/*
 * This session deletes the lease with that token, or gives it up: no renewal
 * of the past is worth anything.
 */
extern void zklock_lease_distrust(int64 token);

/* ---- for hooks.c ---- */

/* Does this transaction rest on any lease? */
extern bool zklock_lease_is_used(void);

/* The shortest ttl of those, at most a day. */
extern int64 zklock_lease_shortest_ttl(void);

/*
 * Raise 40001 unless each of them is still its owner's: by a renewal that
 * leaves enough of its term, or if there is none or with always_ask, by
 * another one.  Those go out in one flush, ZK_PROOF_ATTEMPTS times at most.
 * Waits for the shortest term or twice the session timeout, whichever is
 * less; raises 40001 when it was a term, or the session is lost first, and
 * 08006 otherwise.
 */
extern void zklock_lease_prove(bool always_ask);

/*
 * Raise 08006 for a commit: there is no proof, though the ensemble has
 * answered, or because it has not.
 */
pg_noreturn extern void zklock_lease_raise_unproved(bool is_answered);

/* Has each of them such a renewal?  Never raises or waits. */
extern bool zklock_lease_is_proved(void);

/*
 * That subtransaction is over, or with Invalid the transaction: what rests on
 * leases passes to the heir; Invalid: to nobody.  Never raises or waits.
 */
extern void zklock_lease_end_use(SubTransactionId mine,
								 SubTransactionId heir);

#endif							/* ZKLOCK_LEASE_NODE_H */
