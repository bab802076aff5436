/*-------------------------------------------------------------------------
 *
 * keep_state.h
 *
 * A lock is kept after its last release: its queue node stays.  The backend
 * may take it back, without a system call, and the program may give it up,
 * because somebody waits or its time is over.  Both change the same state by
 * compare-and-swap, so just one of them does:
 *
 *	who			from		to
 *	backend		FREE		HELD			begin
 *	backend		KEPT		HELD			take
 *	backend		HELD		KEPT			put
 *	backend		any			FREE			end
 *	program		KEPT		GIVEN_UP		want
 *	program		HELD		HELD_WANTED		want
 *	program		KEPT		FREE			its time is over
 *
 * The program deletes the node only after it has changed KEPT, and the backend
 * uses it only after HELD.  The struct is used again for other locks, so the
 * state carries a generation: a change for an older one changes nothing.
 *
 * The form of moves.h is for states that one process moves.  Here each move is
 * a function, so that no other one can be made.  If it was not made, the state
 * tells why: what the other process may have done by then stands above, and
 * anything else is not legal.
 *
 * Pure: libc only, no clock.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_KEEP_STATE_H
#define ZKLOCK_KEEP_STATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* How many locks one session can keep: so many structs are in the page. */
#define KEEP_SLOTS 64

typedef enum KeepState
{
	KEEP_FREE,					/* of no lock, or of one whose time is over */
	KEEP_HELD,					/* the backend uses it */
	KEEP_HELD_WANTED,			/* and must not keep it: others wait */
	KEEP_KEPT,					/* it may be taken back, and given up */
	KEEP_GIVEN_UP				/* for somebody else: its node is deleted, or
								 * was by others */
} KeepState;

typedef struct KeptLock
{
	_Atomic uint32_t word;		/* generation and state */
	_Atomic int32_t keep_ms;	/* for how long it is kept after each use; set
								 * when it is begun, ahead of the word */
	_Atomic int64_t since;		/* when it was kept last, or begun,
								 * protocol_now(); likewise */
} KeptLock;

/* Generations are below this, and none is 0. */
#define KEEP_GENERATIONS ((uint32_t) 1 << 29)

/* The state, FREE if the struct is used for another generation. */
extern KeepState keep_state_read(const KeptLock *kept, uint32_t generation);

/* ---- the backend ---- */

/* The lock of that generation is held, and may be kept when it is released. */
extern void keep_state_begin(KeptLock *kept, uint32_t generation,
							 int keep_ms, int64_t now);

/*
 * Take it back.  false if the program was first: it is GIVEN_UP or FREE then,
 * or its state is not legal.
 */
extern bool keep_state_take(KeptLock *kept, uint32_t generation);

/*
 * Keep it again. false if others wait for it: it is HELD_WANTED then, or its
 * state is not legal.
 */
extern bool keep_state_put(KeptLock *kept, uint32_t generation, int64_t now);

/* It is released, or gone. */
extern void keep_state_end(KeptLock *kept);

/* ---- the program ---- */

/*
 * Somebody wants it.  Result: GIVEN_UP or HELD_WANTED by this call; or what
 * else the state is, and nothing was changed.
 */
extern KeepState keep_state_want(KeptLock *kept, uint32_t generation);

/* Its time is over.  false if the backend has it. */
extern bool keep_state_expire(KeptLock *kept, uint32_t generation);

#endif							/* ZKLOCK_KEEP_STATE_H */
