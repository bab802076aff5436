/*-------------------------------------------------------------------------
 *
 * crash.h
 *	  Release the locks of backends that crashed, ahead of the session timeout.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CRASH_H
#define ZKLOCK_CRASH_H

#include "postgres.h"

/* Name of the function that runs the background worker. */
#define ZK_CRASH_WORKER "zklock_crash_worker_main"

/*
 * If the library is being preloaded, register the background worker.  For
 * _PG_init().
 */
extern void zklock_crash_init(void);

/*
 * Leave a note of this backend's session for the worker, once per session and
 * only if there is a worker.  Never raises: a WARNING at most.
 */
extern void zklock_crash_note_session(void);

/* The worker. */
extern PGDLLEXPORT void zklock_crash_worker_main(Datum arg)
			pg_attribute_noreturn();

#endif							/* ZKLOCK_CRASH_H */
