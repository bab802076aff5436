/*-------------------------------------------------------------------------
 *
 * ready_worker.h
 *	  The background worker that keeps sessions ready for backends.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_READY_WORKER_H
#define ZKLOCK_READY_WORKER_H

#include "postgres.h"

#include "compat.h"

/*
 * Define zklock.ready_sessions; if the library is being preloaded and
 * sessions are wanted, ask for shared memory and register the worker.  For
 * _PG_init().
 */
extern void zklock_ready_worker_init(void);

/* The worker. */
pg_noreturn extern PGDLLEXPORT void zklock_ready_worker_main(Datum arg);

#endif							/* ZKLOCK_READY_WORKER_H */
