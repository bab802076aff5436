/*-------------------------------------------------------------------------
 *
 * cancel.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CANCEL_H
#define ZKLOCK_CANCEL_H

#include "postgres.h"

/* Install the hooks of this module.  For _PG_init(). */
extern void zklock_cancel_init(void);

/* See to what is reported to this backend's client; before the first lock. */
extern void zklock_cancel_follow(void);

/*
 * Around what a statement does: an error that is raised in between gets the
 * words of the loss.  is_writer: it may write.  The frame is the caller's;
 * nothing is to be done where an error leaves.
 */
extern void zklock_cancel_enter(ErrorContextCallback *frame, bool is_writer);
extern void zklock_cancel_leave(const ErrorContextCallback *frame);

/* Does a statement run that may write, or in one that does? */
extern bool zklock_cancel_runs_writer(void);

/* A transaction is over, and in a background worker the statement with it. */
extern void zklock_cancel_end_transaction(void);

#endif							/* ZKLOCK_CANCEL_H */
