/*-------------------------------------------------------------------------
 *
 * lock_board.c
 *	  What the board (board.h) says of a lock that this backend holds.
 *
 * Called at the end of transactions too: never raises, never waits.
 *
 *-------------------------------------------------------------------------
 */
#include "lock_private.h"

#include "board.h"

void
zklock_lock_post(Lock *lock)
{
	const ZkPlace *place = &lock->place;
	ZkBoardHeld held = {
		.permits = place->permits,
		.token = place->token,
		.proof_ms = place->proof.wall_ms,
		.session_number = place->session,
		.is_evicted = place->is_evicted
	};

	for (int mode = 0; mode < (int) lengthof(lock->counts); mode++)
	{
		held.session_counts[mode] = lock->counts[mode].session;
		held.call_counts[mode] = lock->counts[mode].call;
		held.xact_counts[mode] = zklock_lock_xact_total(&lock->counts[mode]);
		held.since[mode] = lock->counts[mode].since;
	}
	zklock_board_put_lock(&lock->line, lock->path + place->root_length + 1,
						  &held);
}

void
zklock_lock_unpost(Lock *lock)
{
	zklock_board_remove_lock(&lock->line);
}
