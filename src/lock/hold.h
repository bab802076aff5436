/*-------------------------------------------------------------------------
 *
 * hold.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_HOLD_H
#define ZKLOCK_HOLD_H

#include "postgres.h"

#include "order.h"

/*
 * Take a lock exclusively, and leave it to a persistent queue node that
 * belongs to nobody, with that reason, a line in the database's encoding.
 * Result: its fencing token.  Raises 55000 if this session holds the lock,
 * 57000 if somebody removed one of the nodes meanwhile, and as
 * zklock_lock_acquire().  If it raises there is no hold, or a WARNING says that
 * there may be one.
 */
extern int64 zklock_hold_make(const ZkOrder *order, const char *reason);

#endif							/* ZKLOCK_HOLD_H */
