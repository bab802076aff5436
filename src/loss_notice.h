/*-------------------------------------------------------------------------
 *
 * loss_notice.h
 *	  Tells sessions of this cluster, also idle ones, that a lock is lost.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LOSS_NOTICE_H
#define ZKLOCK_LOSS_NOTICE_H

/*
 * Look at the locks of all sessions that have a zklock.loss_channel, and send
 * a NOTIFY for each one that is lost, once.  In a transaction of a process that
 * lives as long as the cluster.  Raises as the session does.
 */
extern void zklock_loss_notice_send(void);

#endif							/* ZKLOCK_LOSS_NOTICE_H */
