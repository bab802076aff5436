/*-------------------------------------------------------------------------
 *
 * brief_worker.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_BRIEF_WORKER_H
#define ZKLOCK_BRIEF_WORKER_H

#include "postgres.h"

#include "postmaster/bgworker.h"

typedef struct ZkWorker
{
	const char *name;
	const char *function;
	const char *purpose;		/* for the log: completes "without it, ..." */

	BackgroundWorkerHandle *handle; /* NULL: none was started */
	bool		is_refused;		/* there was no slot, as the log says */
} ZkWorker;

/* Is the one that was started last under way? */
extern bool zklock_worker_runs(const ZkWorker *worker);

/*
 * Start one; of its kind none runs.  false if there is no slot, which the log
 * says until there has been one.
 */
extern bool zklock_worker_start(ZkWorker *worker, Datum argument);

/*
 * The life of such a worker: connect to the database, with those flags, work in
 * a transaction, and then, unless NULL, do the rest.  The end of the server
 * interrupts it without a word.
 */
extern void zklock_worker_serve(Datum database, int flags,
								void (*work) (void), void (*rest) (void));

/*
 * For SIGTERM: what the worker does ends as a statement that is canceled, and then
 * the worker itself.
 */
extern void zklock_worker_handle_shutdown(SIGNAL_ARGS);

/*
 * Until when a worker waits for a reply to what it asks now, protocol_now().
 * Others wait for what it does besides, so it does not wait for long.
 */
extern int64 zklock_worker_deadline(void);

/* For the log: that worker has no slot. */
extern void zklock_worker_log_no_slot(const char *name, const char *purpose);

/* ---- notices of losses (loss_notice.c), for the lease worker ---- */

/*
 * Look at the locks of all sessions that have a zklock.loss_channel, and send
 * a NOTIFY for each one that is lost, once.  What is known without the
 * ensemble; asks: it is asked, too, for as many as there is time for until
 * then (protocol_now()).  false if there are more: the next call goes on with
 * them.  In a transaction of a process that lives as long as the cluster.
 * Raises as the session does.
 */
extern bool zklock_loss_notice_send(bool asks, int64 until);

/* Are there any such locks, so that asking is worth a session?  Never raises. */
extern bool zklock_loss_notice_is_wanted(void);

#endif							/* ZKLOCK_BRIEF_WORKER_H */
