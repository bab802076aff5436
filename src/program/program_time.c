/*-------------------------------------------------------------------------
 *
 * program_time.c
 *	  When something is to be done next, and how long pauses are.
 *
 *-------------------------------------------------------------------------
 */
#include "program.h"

#include <stdlib.h>

#include "pause.h"

void
program_wake_at(Session *session, int64_t at)
{
	if (at < session->wake_at)
		session->wake_at = at;
}

int64_t
program_pause_ms(int64_t least_ms, int nbefore, int64_t most_ms)
{
	int64_t		pause_ms = least_ms;

	if (most_ms < least_ms)
		most_ms = least_ms;
	while (nbefore-- > 0 && pause_ms < most_ms)
		pause_ms = pause_after(pause_ms, least_ms, most_ms);
	return pause_ms / 2 + (int64_t) (drand48() * (double) pause_ms);
}
