/*-------------------------------------------------------------------------
 *
 * once.h
 *	  Jobs that run once: records of who ran which slot of a job.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ONCE_H
#define ZKLOCK_ONCE_H

#include "postgres.h"

#include "queue.h"

/*
 * Claim a slot of a job: true for exactly one caller for as long as the record
 * exists, for retain_ms at least.  After a true, some records of the same name
 * whose time is over by the servers' clock are deleted; with too many that are
 * not, 54000 and nothing is left.  If this raises, the slot may have been
 * claimed; then nobody has got a true for it, and the next call in this session
 * for the same slot will.  Raises 42602 for a bad name or slot, 55P03 at lock_timeout, and
 * as the session does.
 */
extern bool zklock_run_once(const char *name, const char *slot,
							int64 retain_ms);

/* Delete the record of a slot; false if there is none.  Raises likewise. */
extern bool zklock_forget_run(const char *name, const char *slot);

/*
 * Read all records of a job, in the order of their slots.  An entry's node is
 * the name of the slot, UTF-8.  As zklock_read_queue().
 */
extern ZkQueueEntry *zklock_read_runs(const char *name, int *nruns);

#endif							/* ZKLOCK_ONCE_H */
