/*-------------------------------------------------------------------------
 *
 * test_keep_state.c
 *	  Unit test of src/common/keep_state.c: a kept lock is taken back by its
 *	  backend or given up by its program, never both.  Every change from every
 *	  state, and two threads that make them as fast as they can.
 *
 *-------------------------------------------------------------------------
 */
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "keep_state.h"
#include "tap.h"

#define NELEMS(array) ((int) (sizeof(array) / sizeof((array)[0])))

#define OLD 7
#define NEW 8

/* A word of generation OLD in that state. */
static KeptLock
make_word(KeepState state)
{
	KeptLock	keep;

	memset(&keep, 0, sizeof(keep));
	keep_state_begin(&keep, OLD, 500, 1000);
	if (state == KEEP_FREE)
		keep_state_end(&keep);
	if ((state == KEEP_KEPT || state == KEEP_GIVEN_UP) && !keep_state_put(&keep, OLD, 1000))
		ok(false, "a held word can be set to the state of the test");
	if (state == KEEP_HELD_WANTED || state == KEEP_GIVEN_UP)
		is_int(state, keep_state_want(&keep, OLD), "so can one that is wanted");
	return keep;
}

/* What each call makes of each state, in the order of KeepState. */
static void
test_changes(void)
{
	static const struct
	{
		KeepState	from;
		KeepState	taken;
		bool		can_take;
		KeepState	put;
		bool		can_put;
		KeepState	wanted;
		KeepState	expired;
		bool		can_expire;
	}			cases[] = {
		{KEEP_FREE, KEEP_FREE, false, KEEP_FREE, false, KEEP_FREE, KEEP_FREE, false},
		{KEEP_HELD, KEEP_HELD, false, KEEP_KEPT, true, KEEP_HELD_WANTED, KEEP_HELD, false},
		{KEEP_HELD_WANTED, KEEP_HELD_WANTED, false, KEEP_HELD_WANTED, false, KEEP_HELD_WANTED, KEEP_HELD_WANTED, false},
		{KEEP_KEPT, KEEP_HELD, true, KEEP_KEPT, false, KEEP_GIVEN_UP, KEEP_FREE, true},
		{KEEP_GIVEN_UP, KEEP_GIVEN_UP, false, KEEP_GIVEN_UP, false, KEEP_GIVEN_UP, KEEP_GIVEN_UP, false},
	};

	for (int i = 0; i < NELEMS(cases); i++)
	{
		KeptLock	keep = make_word(cases[i].from);

		is_int(cases[i].can_take, keep_state_take(&keep, OLD), "state %d: take", i);
		is_int(cases[i].taken, keep_state_read(&keep, OLD), "state %d: state after take", i);
		keep = make_word(cases[i].from);
		is_int(cases[i].can_put, keep_state_put(&keep, OLD, 2000), "state %d: put", i);
		is_int(cases[i].put, keep_state_read(&keep, OLD), "state %d: state after put", i);
		is_int(2000, atomic_load(&keep.since), "state %d: time of put", i);
		is_int(500, atomic_load(&keep.keep_ms), "state %d: for how long it is kept", i);
		keep = make_word(cases[i].from);
		is_int(cases[i].wanted, keep_state_want(&keep, OLD), "state %d: want", i);
		is_int(cases[i].wanted, keep_state_read(&keep, OLD), "state %d: state after want", i);
		keep = make_word(cases[i].from);
		is_int(cases[i].can_expire, keep_state_expire(&keep, OLD), "state %d: expire", i);
		is_int(cases[i].expired, keep_state_read(&keep, OLD), "state %d: state after expire", i);

		/* who comes late, with the word in use for another lock */
		keep = make_word(cases[i].from);
		keep_state_begin(&keep, NEW, 700, 3000);
		is_int(3000, atomic_load(&keep.since), "state %d: begun anew: the time", i);
		ok(!keep_state_take(&keep, OLD), "state %d: another generation: take", i);
		ok(!keep_state_put(&keep, OLD, 1), "put");
		ok(!keep_state_expire(&keep, OLD), "expire");
		is_int(KEEP_FREE, keep_state_want(&keep, OLD), "want");
		is_int(KEEP_FREE, keep_state_read(&keep, OLD), "state");
		is_int(KEEP_HELD, keep_state_read(&keep, NEW), "an old owner's want leaves the word as it was");
	}
}

/* ---------------------------------------------------------------------
 * Two at a time
 * ---------------------------------------------------------------------
 */

/* How often the program is to come in between. */
#define TIMES 1000

/* What both threads have to do with. */
static KeptLock shared;

/*
 * Generation that the program must not touch any more, and one of which it
 * has deleted the node.
 */
static _Atomic uint32_t in_use;
static _Atomic uint32_t deleted;
static _Atomic int is_over;
static _Atomic int nbroken;
static _Atomic int ngiven_up;

/* The program: gives up whatever it finds, by its own clock. */
static void *
play_program(void *argument)
{
	unsigned	random = 1;

	(void) argument;
	while (!is_over)
	{
		uint32_t	generation = atomic_load(&shared.word) >> 3;

		random = random * 1103515245 + 12345;
		if (generation == 0)
			continue;
		switch (random >> 16 & 7)
		{
			case 0:
				if (!keep_state_expire(&shared, generation))
					break;
				if (in_use == generation)
					nbroken++;	/* it deletes what is held */
				deleted = generation;
				break;
			case 1:
				if (keep_state_want(&shared, generation) != KEEP_GIVEN_UP ||
					deleted == generation)
					break;
				if (in_use == generation)
					nbroken++;	/* it deletes what is held */
				deleted = generation;
				ngiven_up++;
				break;
			default:
				break;
		}
	}
	return NULL;
}

/* The backend: takes, uses and puts back; begins anew when it was given up. */
static void
test_race(void)
{
	pthread_t	program;
	uint32_t	generation = 0;
	int			ntaken = 0;
	bool		is_kept = false;

	memset(&shared, 0, sizeof(shared));
	pthread_create(&program, NULL, play_program, NULL);
	for (int i = 0; i < TIMES || ngiven_up < TIMES; i++)
	{
		if (i % TIMES == 0)
			sched_yield();
		if (!is_kept)
		{
			in_use = generation + 1;
			keep_state_begin(&shared, ++generation, 1, i);
		}
		else if (!keep_state_take(&shared, generation))
		{
			is_kept = false;
			continue;
		}
		in_use = generation;
		ntaken++;
		if (deleted == generation)
			nbroken++;
		in_use = 0;
		is_kept = keep_state_put(&shared, generation, i);
	}
	is_over = true;
	pthread_join(program, NULL);
	is_int(0, nbroken, "no lock that is held is deleted, and none that was deleted is taken");
	ok(ntaken > 0, "each had its turn");
}

int
main(void)
{
	test_changes();
	test_race();
	return done_testing();
}
