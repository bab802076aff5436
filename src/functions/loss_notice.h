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
 * a NOTIFY for each one that is lost, once.  What is known without the
 * ensemble; asks: it is asked, too, for as many as there is time for until
 * then (protocol_now()).  false if there are more: the next call goes on with
 * them.  In a transaction of a process that lives as long as the cluster.
 * Raises as the session does.
 */
extern bool zklock_loss_notice_send(bool asks, int64 until);

/* Are there any such locks, so that asking is worth a session?  Never raises. */
extern bool zklock_loss_notice_is_wanted(void);

#endif							/* ZKLOCK_LOSS_NOTICE_H */
