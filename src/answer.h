/*-------------------------------------------------------------------------
 *
 * answer.h
 *	  What an answer means for the request that it is for: done, not done, or
 *	  unknown; and who goes on.
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
 * is_repeated: nobody waits for it, and it is not given up as long as the
 * session lives (SET, DELETE, LEAVE).
 */
extern AnswerMeaning answer_meaning(RequestKind kind, bool is_repeated,
									ZkResult result);

#endif							/* ZKLOCK_ANSWER_H */
