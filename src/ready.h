/*-------------------------------------------------------------------------
 *
 * ready.h
 *	  The list of sessions that are connected before a backend needs one.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_READY_H
#define ZKLOCK_READY_H

#include "postgres.h"

#include "protocol.h"

/* Most of them. */
#define ZK_READY_MAX 100

/* A session that waits for a backend. */
typedef struct ZkReady
{
	char		name[READY_NAME_SIZE];	/* where its program listens */
	uint64		settings;		/* zklock_session_settings() it was opened
								 * with */
	bool		has_identity;	/* of its own */
} ZkReady;

/* Ask for shared memory, as the library is being preloaded. */
extern void zklock_ready_init(void);

/*
 * Take a session of these settings off the list: nobody else is given it.
 * false if there is none.
 */
extern bool zklock_ready_take(uint64 settings, ZkReady *taken);

/* How many there are, and the process of the worker; 0: it does not run. */
extern int	zklock_ready_count(int *worker_pid);

/*
 * For the worker: put a session on the list, take it back, or all of them as
 * the worker begins, and as it ends (pid 0).
 */
extern void zklock_ready_put(const ZkReady *ready);
extern void zklock_ready_withdraw(const char *name);
extern void zklock_ready_clear(int worker_pid);

#endif							/* ZKLOCK_READY_H */
