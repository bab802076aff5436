/*-------------------------------------------------------------------------
 *
 * lease_known.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LEASE_KNOWN_H
#define ZKLOCK_LEASE_KNOWN_H

#include "postgres.h"

#include "lib/ilist.h"

#include "contact.h"
#include "lease_node.h"

/* One token may be that of two leases, of different ensembles. */
typedef struct ZkLeaseKey
{
	int64		token;
	uint64		lock;			/* hash of the lock's path */
} ZkLeaseKey;

/* A lease that this backend has taken or renewed. */
typedef struct ZkKnownLease
{
	ZkLeaseKey	key;
	char	   *name;			/* of the lock */
	ZkLeased	leased;			/* of it name, path, token, czxid, version,
								 * term; of who: owner and note */
	bool		is_outdated;	/* since the last renewal another one was
								 * refused, or its outcome is not known: the
								 * version may be another one */
	Moment		proof;			/* when the last renewal was sent; all zeros:
								 * none proves anything */

	/* for lease_guard.c */
	SubTransactionId user;		/* what rests on it; Invalid: nothing */
	dlist_node	use;			/* in its list, unless nothing does */
} ZkKnownLease;

/*
 * The lease of the lock at that path with that token; NULL: this backend has
 * not renewed it, or has forgotten it.
 */
extern ZkKnownLease *zklock_known_find(const char *lock_path, int64 token);

/* Is that version of its data this backend's? */
extern bool zklock_known_is_renewed_here(const char *lock_path,
										 const ZkLeased *leased);

/*
 * Note what was renewed, for the next renewal.  It stays as long as a
 * transaction rests on it, and valid until the next call of this otherwise.
 */
extern ZkKnownLease *zklock_known_note(const ZkLeasing *leasing);

/* Take what a read has shown of that lease. */
extern void zklock_known_take(ZkKnownLease *known, const ZkLeased *read);

/*
 * This session deletes the lease with that token, or gives it up: no renewal
 * of the past is worth anything.
 */
extern void zklock_known_distrust(const char *lock_path, int64 token);

/* A transaction rests on one, which is not to be forgotten; or does no more. */
extern void zklock_known_pin(ZkKnownLease *known, SubTransactionId user);
extern void zklock_known_unpin(ZkKnownLease *known);

#endif							/* ZKLOCK_LEASE_KNOWN_H */
