/*-------------------------------------------------------------------------
 *
 * lease_binding.h
 *	  The binding of a lease: the role and cluster that it is bound to, and the
 *	  user that has renewed it last.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LEASE_BINDING_H
#define ZKLOCK_LEASE_BINDING_H

#include "postgres.h"

#include "expiry.h"
#include "nodedata.h"

/* Bind it to the current role of this cluster: bound and bound_role, palloc'ed. */
extern void zklock_lease_bind(ZkNodeData *who);

/*
 * May the current role use it?  One that is bound to nobody, yes; otherwise a
 * role of that cluster that has the privileges of that role.
 */
extern bool zklock_lease_may_use(const ZkNodeData *who);

/* Raise 42501 if it may not. */
extern void zklock_lease_check_binding(const char *name, const ZkNodeData *who);

/* Raise 55000: the owner's lease is not bound, and the call asks for that. */
pg_noreturn extern void zklock_lease_raise_unbound(const char *name);

/*
 * For the server's log, unless its data says that this user, of this database
 * and cluster, has renewed the lease last.  That it is about to be given up,
 * whatever zklock.log_locks says, and also if the data does not say who it was;
 * delay_ms: after so long.
 */
extern void zklock_lease_log_release(const char *name, const ZkLeased *leased,
									 int64 delay_ms);

/* That this session has renewed it; not if the data does not say who it was. */
extern void zklock_lease_log_renewal(const char *name, const ZkLeased *leased);

#endif							/* ZKLOCK_LEASE_BINDING_H */
