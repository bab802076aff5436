/*-------------------------------------------------------------------------
 *
 * run_once.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_RUN_ONCE_H
#define ZKLOCK_RUN_ONCE_H

#include "postgres.h"

#include "name.h"

/*
 * Record that this caller runs that slot of the job of that name; the record
 * is kept for so many milliseconds.  false: somebody else has run it, or will.
 * After a true, some records of the same name whose time is over by the
 * servers' clocks and by ours are deleted; with too many that are not, 54000
 * and nothing is left.  If this raises, the slot may have been claimed; then
 * nobody has got a true for it, and the next call in this session for the same
 * slot will.
 */
extern bool zklock_run_claim(const ZkName *name, const char *slot,
							 int64 retain_ms);

/*
 * Delete the record that is there at the first look, and no later one.  false:
 * there is none.
 */
extern bool zklock_run_forget(const ZkName *name, const char *slot);

/*
 * How long the slot is whose record that znode beside the lock is; 0 if it is
 * no record.
 */
extern int	zklock_run_slot_length(const char *child);

#endif							/* ZKLOCK_RUN_ONCE_H */
