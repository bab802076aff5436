/*-------------------------------------------------------------------------
 *
 * answer.h
 *	  What an answer means for the request that it is for: done, not done, or
 *	  unknown; who goes on; and what becomes of a request that is executed
 *	  late.
 *
 * Pure: a table.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ANSWER_H
#define ZKLOCK_ANSWER_H

#include "protocol.h"
#include "terms.h"

typedef enum AnswerMeaning
{
	ANSWER_DONE = 'D',		/* it is as it was to be, by whomever; or it
								 * does not matter */
	ANSWER_REPEAT = 'R',	/* not done, and to be done: again, later */
	ANSWER_TELL = 'T',		/* not done: who asked has to know, and raises
								 * or does without */
	ANSWER_UNKNOWN = 'U',	/* done or not: find out */
	ANSWER_OVER = 'O'		/* the session is over, and its nodes with it */
} AnswerMeaning;

/*
 * A request whose answer was lost with the connection may be executed later: a
 * server that held it up sends it to the leader when the session comes back to
 * that server.  Until then the session may have repeated the request over
 * another server, or given it up.  It is executed once, and not after the end
 * of the session; no time is a bound.
 */
typedef enum AnswerLate
{
	ANSWER_CHANGES_NOTHING = '-',	/* it reads, or speaks of its connection */
	ANSWER_REFUSED = 'R',		/* a condition on a version, or on a node that
								 * never comes again, refuses it */
	ANSWER_HARMLESS = 'H',		/* it is done, and that harms nobody: answer.c
								 * says why */
	ANSWER_SOUGHT = 'S'			/* the node that it has made is looked for with
								 * each new connection, and deleted */
} AnswerLate;

/* node_kind: what it makes, if it makes anything. */
extern AnswerLate answer_late(RequestKind kind, ZkNodeKind node_kind);

/*
 * is_repeated: nobody waits for it, and it is not given up as long as the
 * session lives (SET, DELETE, LEAVE).
 */
extern AnswerMeaning answer_meaning(RequestKind kind, bool is_repeated,
									ZkResult result);

#endif							/* ZKLOCK_ANSWER_H */
