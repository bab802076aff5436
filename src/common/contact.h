/*-------------------------------------------------------------------------
 *
 * contact.h
 *
 * The leader alone ends sessions, one session timeout (T) after it was last
 * told that the session is active.  It is told
 *	- by a client that is connected to it, with everything that it sends;
 *	- of a client that is connected to a follower: when the connection is made
 *	  (Leader.revalidateSession(), or the request that creates the session);
 *	  and then by the follower's answers to the leader's pings, one each half
 *	  tick, which name the sessions that were active since the last one
 *	  (Learner.ping(), LearnerHandler, case PING).
 * A request that a follower forwards, for example a write, does not tell the
 * leader that: PrepRequestProcessor only checks that the session exists.  So
 * the reply to a write proves that the session was alive, and not how long it
 * will live.
 *
 * But the follower's answers to pings and the requests that it forwards go to
 * the leader in one stream.  What the follower had answered half a tick before
 * a write came was reported to the leader ahead of that write.  That gives the
 * date of a proof.  Take the requests that were answered at least three tenths
 * of T before the write was sent: the date is when the latest of them was
 * sent.  The session ends at the date plus T at the earliest.
 *
 * A tick is at most half of T (minSessionTimeout), so half a tick is at most
 * T/4; the rest of the three tenths is a margin for threads that are late.  A
 * leader or follower that stands still for longer than that margin breaks the
 * rule.  So does a race in the server, some microseconds wide: a request that
 * comes while a report is made is not reported
 * (LearnerSessionTracker.touchSession() and snapshot()).
 *
 * It does not matter which server had answered those requests.  A read that
 * the follower answers from its memory makes the session as active as a sync
 * that the leader answers.  But a sync's answer also says that leader and
 * follower were in touch; a read is answered while the network between them
 * stands still.  Then the report of it is late by as much, which comes out of
 * the same margin.  test/model/proof.pml has followers that answer while they
 * are cut off.
 *
 * The date is no later than a third of T before the write.  That bounds how
 * long a session relies on a node that has been deleted meanwhile.
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
 * A moment on two clocks.  CLOCK_BOOTTIME goes on while the machine is
 * suspended, but not while a hypervisor stops it.  The time of day is set
 * right after such a stop, on a machine whose clock is synchronized.  All
 * zero: never.
 */
typedef struct Moment
{
	int64_t		boot_ms;
	int64_t		wall_ms;
} Moment;

/* How many of the latest answered requests are kept, at most. */
#define CONTACT_SIZE 16

/*
 * What was sent over one connection and answered, by the leader or as a pulse.
 * All zero: nothing.
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

/* How old an answer must be before its request can date a proof. */
extern int	contact_delay_ms(int timeout_ms);

/*
 * Of answers that take less time, each as much, a fresh proof comes in any
 * case: it is as old as the answer before, the delay, and its own answer.
 * Answers that take a third of T give none.
 */
extern int	contact_answer_ms(int timeout_ms);

/* How long after the last request to the leader a heartbeat is due. */
extern int	contact_heartbeat_ms(int timeout_ms);

/*
 * While nothing depends on the session there are no heartbeats.  A read is due
 * so long after the last request that could date a proof: our server answers
 * it, and the leader hears of it in the server's next report.  What is asked
 * then has a fresh proof at once.
 */
extern int	contact_pulse_ms(int timeout_ms);

/*
 * The date for two proofs both of which are needed: the earlier one, by each
 * clock.
 */
extern Moment contact_earlier(Moment a, Moment b);

#endif							/* ZKLOCK_CONTACT_H */
