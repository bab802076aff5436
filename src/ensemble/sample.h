/*-------------------------------------------------------------------------
 *
 * sample.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SAMPLE_H
#define ZKLOCK_SAMPLE_H

#include "postgres.h"

#include "roundtrip.h"

/* Most znodes of a sample: fewer than one transaction may delete. */
#define ZK_SAMPLE_MAX 32

/* Some znodes below a parent, and what they are. */
typedef struct ZkSample
{
	ZkRoundTrip trip;			/* until the deadline of all replies; for
								 * more questions */
	int			nnodes;
	char	   *paths[ZK_SAMPLE_MAX];
	const ZkReply *replies[ZK_SAMPLE_MAX];	/* to a ZK_GET of each */
} ZkSample;

/*
 * Outdated znodes are deleted bit by bit, by the calls that make new ones: is
 * it time to read a sample of so many?  Decided at random.
 */
extern bool zklock_sample_is_due(int nchildren);

/*
 * List the children of a znode, and read some of them, chosen at random, so that
 * none stays whatever its name.  Empty if that takes more than wait_ms, or the
 * session is lost: the caller does without, and its next question finds a loss.
 * It ends with the trip, or when another one begins.  Raises on interrupts.
 */
extern ZkSample *zklock_sample_read(ZkRoundTrip *trip, const char *parent,
									int wait_ms);

#endif							/* ZKLOCK_SAMPLE_H */
