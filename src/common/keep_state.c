/*-------------------------------------------------------------------------
 *
 * keep_state.c
 *	  Decides between backend and program whether a kept lock is taken back or
 *	  given up.
 *
 * Pure: libc only, no clock.
 *
 *-------------------------------------------------------------------------
 */
#include "keep_state.h"

#define STATE_BITS 3
#define STATE_MASK (((uint32_t) 1 << STATE_BITS) - 1)
#define WORD(generation, state) (((generation) << STATE_BITS) | (uint32_t) (state))

KeepState
keep_state_read(const KeptLock *kept, uint32_t generation)
{
	uint32_t	word = atomic_load(&kept->word);

	if (word >> STATE_BITS != generation)
		return KEEP_FREE;
	return (KeepState) (word & STATE_MASK);
}

/* From one state to another; false, and no change, if it is in a third one. */
static bool
change_state(KeptLock *kept, uint32_t generation, KeepState from,
			 KeepState to)
{
	uint32_t	expected = WORD(generation, from);

	return atomic_compare_exchange_strong(&kept->word, &expected,
										  WORD(generation, to));
}

void
keep_state_begin(KeptLock *kept, uint32_t generation, int keep_ms,
				 int64_t now)
{
	atomic_store(&kept->keep_ms, keep_ms);
	atomic_store(&kept->since, now);
	atomic_store(&kept->word, WORD(generation, KEEP_HELD));
}

bool
keep_state_take(KeptLock *kept, uint32_t generation)
{
	return change_state(kept, generation, KEEP_KEPT, KEEP_HELD);
}

bool
keep_state_put(KeptLock *kept, uint32_t generation, int64_t now)
{
	atomic_store(&kept->since, now);
	return change_state(kept, generation, KEEP_HELD, KEEP_KEPT);
}

void
keep_state_end(KeptLock *kept)
{
	atomic_store(&kept->word, KEEP_FREE);
}

/*
 * The backend may change the state at any time.  So a change is tried from the
 * state that was just read, until one succeeds or none is needed.
 */
KeepState
keep_state_want(KeptLock *kept, uint32_t generation)
{
	for (;;)
	{
		KeepState	state = keep_state_read(kept, generation);
		KeepState	wanted;

		if (state == KEEP_HELD)
			wanted = KEEP_HELD_WANTED;
		else if (state == KEEP_KEPT)
			wanted = KEEP_GIVEN_UP;
		else
			return state;
		if (change_state(kept, generation, state, wanted))
			return wanted;
	}
}

bool
keep_state_expire(KeptLock *kept, uint32_t generation)
{
	return change_state(kept, generation, KEEP_KEPT, KEEP_FREE);
}
