/*-------------------------------------------------------------------------
 *
 * released.h
 *	  The locks that a transaction has released before its commit, and whether
 *	  they had been lost.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_RELEASED_H
#define ZKLOCK_RELEASED_H

#include "postgres.h"

#include "access/xlogdefs.h"
#include "place.h"

/* What the current transaction has to commit so far. */
typedef enum ZkWork
{
	ZK_WORK_NONE,
	ZK_WORK_CHANGES,			/* to the database */
	ZK_WORK_NOTIFICATIONS		/* and perhaps changes, too */
} ZkWork;

/* How far the current transaction has come: to be compared later. */
typedef struct ZkWorkMark
{
	uint64		transaction;
	CommandId	command;
	XLogRecPtr	wal;
} ZkWorkMark;

/* To be called at the grant of a lock. */
extern ZkWorkMark zklock_released_mark(void);

/*
 * Has the current transaction written since the mark was made?  work is what
 * it has to commit by now.  If the mark is of an earlier transaction, whatever
 * it wrote was written since.
 */
extern bool zklock_released_wrote_since(const ZkWorkMark *mark, ZkWork work);

/* Define what this module needs.  For _PG_init(). */
extern void zklock_released_init(void);

/*
 * The current transaction lets go of that place, and has written while it held
 * the lock.  answer: of zklock_place_leave(), which is ours from now on.
 * Never raises, never waits.
 */
extern void zklock_released_note(const ZkPlace *place, ZkRequest *answer);

/* The same for a place that is known to be lost, of which the user is told. */
extern void zklock_released_note_lost(const ZkPlace *place);

/*
 * Attend to the session, and read the answers that are there: the questions
 * below are answered by those.  Never raises, never waits.
 */
extern void zklock_released_hear(void);

/*
 * Hear, and tell, in the log and by a WARNING, of locks that were released, in this
 * transaction or before, and had been lost by then, as far as that is known
 * and was not told yet.  Was one of them that with the token (0: any)?  Never
 * waits; needs a transaction.
 */
extern bool zklock_released_tell(int64 token);

/*
 * Wait for the answers to the releases of this transaction.  Raises on
 * interrupts.
 */
extern void zklock_released_await(int64 deadline);

/* ---- for the commit guard ---- */

/* Has the current transaction noted anything that is not known to be good? */
extern bool zklock_released_matters(void);

/* Was something of that lost, or refused by the guard?  Never raises. */
extern bool zklock_released_has_lost(void);

/*
 * Raise 40001 unless all that the current transaction has noted was held until
 * it was released.  Waits for the answers: with always_ask, or where a place
 * had no fresh proof when it was released, until all are there, the session is
 * lost, or a session timeout is over; otherwise for zklock.connect_timeout, and
 * then the proof will do.  Raises on interrupts.
 */
extern void zklock_released_prove(bool always_ask);

/* Has that been done, and nothing come since that speaks against it? */
extern bool zklock_released_are_proved(void);

/* The transaction is over.  Never raises, never waits. */
extern void zklock_released_end_transaction(void);

#endif							/* ZKLOCK_RELEASED_H */
