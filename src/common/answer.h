/*-------------------------------------------------------------------------
 *
 * answer.h
 *
 * Pure: tables.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ANSWER_H
#define ZKLOCK_ANSWER_H

#include "protocol.h"
#include "terms.h"

typedef enum AnswerMeaning
{
	ANSWER_DONE,				/* it is as it was asked, by this or another
								 * request; or it does not matter */
	ANSWER_REPEAT,				/* not done, and to be done: again, later */
	ANSWER_TELL,				/* not done: the caller has to know, and raises
								 * an error or does without */
	ANSWER_UNKNOWN,				/* done or not: find out */
	ANSWER_OVER					/* the session is over, and its nodes with it */
} AnswerMeaning;

/* Where an answer goes.  The answer to a withdrawn request goes nowhere. */
typedef enum AnswerTold
{
	ANSWER_TO_CALLER,			/* the call that waits for the reply; without a
								 * number (id 0) nobody does */
	ANSWER_TO_HOLDER,			/* the backend that holds the place, by an
								 * interrupt, and only if the place is gone */
	ANSWER_TO_NOBODY
} AnswerTold;

/*
 * A request whose answer was lost with the connection may be executed later: a
 * server that held it up sends it to the leader when the session comes back to
 * that server.  Until then the session may have repeated the request over
 * another server, or given it up.  It is executed once, and not after the end
 * of the session; no time is a bound.
 */
typedef enum AnswerLate
{
	ANSWER_CHANGES_NOTHING,		/* it reads, or speaks of its connection */
	ANSWER_REFUSED,				/* a condition on a version, or on a node that
								 * never comes again, refuses it */
	ANSWER_HARMLESS,			/* it is done, and that harms nobody: answer.c
								 * says why */
	ANSWER_SOUGHT,				/* the node that it has made is looked for with
								 * each new connection, and deleted */
	ANSWER_BY_NODE				/* only inside answer.c: what it makes decides */
} AnswerLate;

/* node_kind: what the request makes, if it makes anything. */
extern AnswerLate answer_late(RequestKind kind, ZkNodeKind node_kind);

extern AnswerTold answer_told(RequestKind kind);

/*
 * Is it one of those whose answer is never looked at?  A heartbeat, a nudge, a
 * watch that is removed.
 */
extern bool answer_is_ignored(RequestKind kind);

/*
 * is_repeated: nobody waits for it, and it is not given up as long as the
 * session lives (SET, DELETE, LEAVE).
 */
extern AnswerMeaning answer_meaning(RequestKind kind, bool is_repeated,
									ZkResult result);

/*
 * The SQLSTATE, five characters, of the error that a caller raises who was told
 * of that result and cannot do without; "00000" for ZK_OK.
 */
extern const char *answer_sqlstate(ZkResult result);

#endif							/* ZKLOCK_ANSWER_H */
