/*-------------------------------------------------------------------------
 *
 * contender.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CONTENDER_H
#define ZKLOCK_CONTENDER_H

#include "postgres.h"

#include "order.h"
#include "place.h"
#include "recipe.h"
#include "roundtrip.h"

/*
 * Queue up and wait for the lock of that order.  Of the place the first part is
 * set; the grant sets the rest.
 *
 * ZK_ANSWERED: the lock is granted.  ZK_LATE, of a try: others are ahead, and its
 * time is over; or the owner of the order has a lease already (owned of the
 * place).  Never ZK_UNKNOWN.  When it ends in any other way than granted, by an
 * error too, nothing of ours stays in the queue.  Needs an open session.  Raises
 * 55P03 at the deadline, and says who holds the lock to members of pg_monitor
 * and to the log; 08001 for a try if the ensemble has not said that somebody
 * does; 57000 when somebody removed our node; 54000 when the queue's sequence
 * numbers are used up; 55000 when the first of the queue has another number of
 * permits; for an owner 53400 past zklock.max_creates.  Also on interrupts, and
 * when ZooKeeper refuses.
 */
pg_nodiscard extern ZkOutcome zklock_contender_win_place(const ZkOrder *order,
														 ZkPlace *place);

/*
 * Confirm a grant that rests on a message of the one ahead: is nobody ahead of
 * this place?  A node ahead may be about to be deleted; this waits for that
 * until the deadline.  *is_first: valid with ZK_ANSWERED.  Never ZK_UNKNOWN.
 * Raises on interrupts, and when ZooKeeper refuses to answer.
 */
pg_nodiscard extern ZkOutcome zklock_contend_confirm(const ZkPlace *place,
													 int64 deadline,
													 bool *is_first);

/*
 * How long a contender that does not wait for others waits to hear whether the
 * lock is held or merely kept: two writes of the ensemble, and a margin for a
 * busy machine.
 */
#define ZK_KEEPER_MS 1000

#endif							/* ZKLOCK_CONTENDER_H */
