/*-------------------------------------------------------------------------
 *
 * moves.h
 *	  State machines: the form of those that outlive a call, and can be moved
 *	  wrongly.
 *
 * Such a machine is an enum with a comment for each state, a table with a row
 * of legal moves for each state, and one function that moves it, which asks the
 * table.  A move that is not legal is a fault of ours: an assertion, and
 * without assertions an error of its own.  A backend warns
 * (zklock_session_warn_illegal()), and the place of a lock counts as lost; the
 * program tells its backend and ends (session_end_illegal()).
 *
 * Who may come late asks before: what was known first counts.  And what the
 * other process says is no move of ours: if it is not legal the message is
 * garbled.
 *
 * Pure: libc only.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_MOVES_H
#define ZKLOCK_MOVES_H

#include <stdbool.h>
#include <stdint.h>

/* A row: the states to which the machine can be moved from one. */
typedef uint32_t Moves;
#define MOVE_TO(state) ((Moves) 1 << (state))

static inline bool
move_is_legal(const Moves *rows, int from, int to)
{
	return (rows[from] & MOVE_TO(to)) != 0;
}

#endif							/* ZKLOCK_MOVES_H */
