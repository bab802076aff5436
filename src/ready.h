/*-------------------------------------------------------------------------
 *
 * ready.h
 *	  Sessions that are connected before a backend needs one.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_READY_H
#define ZKLOCK_READY_H

#include "postgres.h"

#include "compat.h"
#include "protocol.h"

/* Name of the function that runs the background worker. */
#define ZK_READY_WORKER "zklock_ready_worker_main"

/*
 * Define zklock.ready_sessions; if the library is being preloaded and sessions
 * are wanted, ask for shared memory and register the worker.  For _PG_init().
 */
extern void zklock_ready_init(void);

/*
 * A ready session of these settings (zklock_session_settings()): its name, and
 * whether it has an identity of its own.  false if there is none.  Nobody else
 * is given it.
 */
extern bool zklock_ready_take(uint64 settings, char name[READY_NAME_SIZE],
							  bool *has_identity);

/* The worker. */
pg_noreturn extern PGDLLEXPORT void zklock_ready_worker_main(Datum arg);

#endif							/* ZKLOCK_READY_H */
