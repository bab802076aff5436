/*-------------------------------------------------------------------------
 *
 * contact.h
 *	  How long the ensemble will surely keep a session: what a proof proves.
 *
 * The leader alone ends sessions, one session timeout (T) after it was last
 * told that the session is active.  It is told
 *	- by a client that is connected to it, with everything that it sends;
 *	- of a client that is connected to a follower: when the connection is made
 *	  (Leader.revalidateSession(), or the request that creates the session);
 *	  and then by the follower's answers to the leader's pings, one each half
 *	  tick, which name the sessions that were active since the last one
 *	  (Learner.ping(), LearnerHandler, case PING).
 * A request that a follower hands on, a write for example, is no such
 * telling: PrepRequestProcessor only looks whether the session is there.  So
 * an answered write says that the session was alive, and nothing of how long
 * it will be.
 *
 * But the follower's answers to pings and the requests that it hands on go to
 * the leader in one stream.  What it had answered half a tick before a write
 * came was reported ahead of that write.  Hence the date of a proof: the
 * latest moment at which something was sent that was answered three tenths of
 * T before the write was sent.  The session ends at the date plus T at the
 * earliest.
 *
 * A tick is at most half of T, see minSessionTimeout, so half of one is at
 * most T/4; the rest is for threads that come late.  A leader or follower
 * that stands still between the two for longer than the three tenths less
 * half a tick breaks this.  So does one race in the server, some microseconds
 * wide: a sign of life that comes just as a report is taken is lost
 * (LearnerSessionTracker.touchSession() and snapshot()).
 *
 * A date that is later than a third of T before the write is put there: then
 * nobody relies for longer on a node that has been deleted meanwhile.
 *
 * Pure: values in, values out; libc only, no clock.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CONTACT_H
#define ZKLOCK_CONTACT_H

#include <stdbool.h>
#include <stdint.h>

/*
 * A moment on two clocks.  The first one goes on while the machine is
 * suspended (CLOCK_BOOTTIME), but not while a hypervisor stops it; the second
 * one, the time of day, is set right after that, on a machine that looks
 * after it.  All zero: never.
 */
typedef struct Moment
{
	int64_t		boot_ms;
	int64_t		wall_ms;
} Moment;

/* How many of the latest answered requests are kept, at most. */
#define CONTACT_SIZE 16

/*
 * What was sent over one connection and answered by the leader.  All zero:
 * nothing.
 */
typedef struct ContactLog
{
	Moment		begun;			/* no later than the request to connect */
	int			count;			/* of the entries, the oldest first */
	Moment		sent[CONTACT_SIZE];
	Moment		answered[CONTACT_SIZE];
} ContactLog;

/* A connection was made, of which the attempt was begun then. */
extern void contact_begin(ContactLog *contact, Moment begun);

/* Something was sent over it and answered; of a session with that timeout. */
extern void contact_note(ContactLog *contact, Moment sent, Moment answered,
						 int timeout_ms);

/* The date of a proof: of an answered quorum operation that was sent then. */
extern Moment contact_date(const ContactLog *contact, Moment sent,
						   int timeout_ms);

/*
 * A proof is fresh if its date is after this moment: no more than two thirds
 * of T have passed, so that a third is left to act on it.
 */
extern Moment contact_fresh_since(Moment now, int timeout_ms);

/* Is it after that, by both clocks? */
extern bool contact_is_after(Moment date, Moment since);

/* How long after an answer what it answered can date a proof. */
extern int	contact_delay_ms(int timeout_ms);

/* How long the leader may not have been asked until a heartbeat is due. */
extern int	contact_heartbeat_ms(int timeout_ms);

/*
 * The date of two proofs that are needed both: the earlier one, by each
 * clock.
 */
extern Moment contact_earlier(Moment a, Moment b);

#endif							/* ZKLOCK_CONTACT_H */
