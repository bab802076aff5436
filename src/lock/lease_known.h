/*-------------------------------------------------------------------------
 *
 * lease_known.h
 *	  What this backend knows of the leases that it has taken or renewed.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LEASE_KNOWN_H
#define ZKLOCK_LEASE_KNOWN_H

#include "postgres.h"

#include "lib/ilist.h"

#include "contact.h"
#include "lease_node.h"

/* What is known of such a lease. */
typedef enum ZkKnownState
{
	ZK_KNOWN_QUEUED,			/* its node waits in the queue */
	ZK_KNOWN_HELD,				/* it was held when it was renewed last, and had
								 * this version */
	ZK_KNOWN_OUTDATED			/* likewise; but since then another renewal was
								 * refused, or its outcome is not known, so that
								 * the version may be another one */
} ZkKnownState;

/* A lease that this backend has taken or renewed. */
typedef struct ZkKnownLease
{
	int64		token;			/* key */
	char	   *name;			/* of the lock */
	ZkLeased	leased;			/* path, token, version, term; of who: owner,
								 * note, binding */
	ZkKnownState state;
	Moment		proof;			/* when the last renewal was sent; all zeros:
								 * none proves anything */

	/* for lease_guard.c */
	SubTransactionId user;		/* what rests on it; Invalid: nothing */
	dlist_node	use;			/* in its list, unless nothing does */
} ZkKnownLease;

/* The lease with that token; NULL: this backend has not renewed it. */
extern ZkKnownLease *zklock_known_find(int64 token);

/* Is that version of its data this backend's? */
extern bool zklock_known_is_renewed_here(const ZkLeased *leased);

/* Note what was renewed, for the next renewal. */
extern ZkKnownLease *zklock_known_note(const ZkLeasing *leasing);

/* Note where mine waits, so that the next call of its owner need not search. */
extern void zklock_known_note_place(const ZkLeasing *leasing);

/* Take what a read has shown of that lease. */
extern void zklock_known_take(ZkKnownLease *known, const ZkLeased *read);

/*
 * Where does the owner stand in the queue, as far as this backend knows?  Sets
 * place and read_to then.
 */
extern void zklock_known_guess_place(ZkLeasing *leasing);

/*
 * This session deletes the lease with that token, or gives it up: no renewal
 * of the past is worth anything.
 */
extern void zklock_known_distrust(int64 token);

/* A transaction rests on one, which is not to be forgotten; or does no more. */
extern void zklock_known_pin(void);
extern void zklock_known_unpin(void);

#endif							/* ZKLOCK_LEASE_KNOWN_H */
