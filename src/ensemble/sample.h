/*-------------------------------------------------------------------------
 *
 * sample.h
 *	  Some znodes below a parent, read at random.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SAMPLE_H
#define ZKLOCK_SAMPLE_H

#include "postgres.h"

#include "roundtrip.h"

/* Most znodes of a sample: fewer than one transaction may delete. */
#define ZK_SAMPLE_MAX 32

/* Some znodes below a parent, being read. */
typedef struct ZkSample
{
	ZkRoundTrip trip;			/* until the deadline of all replies; its looks
								 * are the reads */
	int			nnodes;
	char	   *paths[ZK_SAMPLE_MAX];
} ZkSample;

/*
 * Outdated znodes are deleted bit by bit, by the calls that make new ones: is
 * it time to read a sample of so many?  Decided at random.
 */
extern bool zklock_sample_is_due(int nchildren);

/*
 * List the children of a znode and send reads for some of them, chosen at
 * random, so that none stays whatever its name.  The replies must be there
 * within wait_ms.  Without a list the sample is empty.  It ends with the trip,
 * or when another one begins.  Raises on interrupts.
 */
extern ZkSample *zklock_sample_begin(ZkRoundTrip *trip,
									 const char *parent, int wait_ms);

/* Await the reply to one of the reads.  NULL at the deadline. */
extern const ZkReply *zklock_sample_await(const ZkSample *sample,
										  int index);

#endif							/* ZKLOCK_SAMPLE_H */
