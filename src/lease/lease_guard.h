/*-------------------------------------------------------------------------
 *
 * lease_guard.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LEASE_GUARD_H
#define ZKLOCK_LEASE_GUARD_H

#include "postgres.h"

#include "lease_known.h"

/* This transaction rests on that lease from here on. */
extern void zklock_lease_use(ZkKnownLease *known);

/* Does this transaction rest on any lease?  On that of this lock and token? */
extern bool zklock_lease_is_used(void);
extern bool zklock_lease_is_required(const char *lock_path, int64 token);

/* The shortest term of those, at most a day. */
extern int64 zklock_lease_shortest_term(void);

/*
 * Raise 40001 unless each of them is still its owner's: by a renewal that
 * leaves enough of its term, or if there is none or with always_ask, by
 * another one.  Those go out in one flush, ZK_PROOF_ATTEMPTS times at most,
 * over another session if this one is lost.  Waits for the shortest term or
 * twice the session timeout, whichever is less.  Raises 40001 if the term of
 * one is over then since its last renewal was sent; otherwise 08006, and 08001
 * if there is no other session to be had.
 */
extern void zklock_lease_prove(bool always_ask);

/* Has each of them such a renewal?  Never raises or waits. */
extern bool zklock_lease_is_proved(void);

/*
 * That subtransaction is over, or with Invalid the transaction: what rests on
 * leases passes to the heir; Invalid: to nobody.  Never raises or waits.
 */
extern void zklock_lease_end_use(SubTransactionId mine,
								 SubTransactionId heir);

/* Raise 40001: the lease with that token is not its owner's any more. */
pg_noreturn extern void zklock_lease_raise_lost(const char *name, int64 token);

/*
 * Raise 08006 for a commit: the proofs were too old again and again, and the last
 * ones had taken so long; or 40001, if the term of one is over.
 */
pg_noreturn extern void zklock_lease_raise_unproved(int64 took_ms);

#endif							/* ZKLOCK_LEASE_GUARD_H */
