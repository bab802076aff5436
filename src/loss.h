/*-------------------------------------------------------------------------
 *
 * loss.h
 *	  What the client is told when the loss of a lock, or a request to release
 *	  it, cancels its statement.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LOSS_H
#define ZKLOCK_LOSS_H

/* Install the hook.  For _PG_init(). */
extern void zklock_loss_init(void);

#endif							/* ZKLOCK_LOSS_H */
