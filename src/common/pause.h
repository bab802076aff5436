/*-------------------------------------------------------------------------
 *
 * pause.h
 *	  Pauses between attempts, twice as long each time.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_PAUSE_H
#define ZKLOCK_PAUSE_H

#include <stdint.h>

/*
 * How long to pause when the last pause was that long, 0 if there was none yet:
 * least at first, twice as long each time, and most in the end, which counts if
 * least is more.  All in one unit.
 */
static inline int64_t
pause_after(int64_t last, int64_t least, int64_t most)
{
	int64_t		pause = last > 0 && last >= least ? 2 * last : least;

	return pause < most ? pause : most;
}

#endif							/* ZKLOCK_PAUSE_H */
