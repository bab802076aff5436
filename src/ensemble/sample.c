/*-------------------------------------------------------------------------
 *
 * sample.c
 *	  Reads some znodes below a parent, chosen at random, to find outdated
 *	  ones.
 *
 *-------------------------------------------------------------------------
 */
#include "sample.h"

#include "common/pg_prng.h"

#include "session.h"

/*
 * A list of n znodes costs n names.  So up to LISTED_ALWAYS they are listed
 * each time, and beyond that once in LISTED_SELDOM times.  If one in k is
 * outdated, a call that makes one znode deletes on average ZK_SAMPLE_MAX / k,
 * beyond LISTED_ALWAYS ZK_SAMPLE_MAX / LISTED_SELDOM / k = 8 / k.  So old ones
 * go faster than new ones come as long as more than one in eight is outdated.
 */
#define LISTED_ALWAYS 256
#define LISTED_SELDOM 4

bool
zklock_sample_is_due(int nchildren)
{
	return nchildren > 0 &&
		(nchildren <= LISTED_ALWAYS ||
		 pg_prng_uint64_range(&pg_global_prng_state, 1, LISTED_SELDOM) == 1);
}

ZkSample *
zklock_sample_read(ZkRoundTrip *trip, const char *parent, int wait_ms)
{
	ZkSample   *sample = palloc0(sizeof(*sample));
	const ZkReply *list;
	int			nnodes;
	int			first;

	if (trip->inner != NULL)
		zklock_roundtrip_end(trip->inner);
	trip->inner = &sample->trip;
	sample->trip.deadline = Min(trip->deadline, protocol_now() + wait_ms);
	if (zklock_roundtrip_read(&sample->trip, ZK_LIST, parent,
							  &list) != ZK_ANSWERED ||
		list->result != ZK_OK || list->nchildren == 0)
		return sample;
	first = pg_prng_uint64_range(&pg_global_prng_state, 0, list->nchildren - 1);
	nnodes = Min(list->nchildren, ZK_SAMPLE_MAX);
	for (int i = 0; i < nnodes; i++)
		sample->paths[i] =
			psprintf("%s/%s", parent[1] == '\0' ? "" : parent,
					 list->children[(first + i) % list->nchildren]);
	if (zklock_roundtrip_read_all(&sample->trip, ZK_GET, sample->paths, nnodes,
								  sample->replies) == ZK_ANSWERED)
		sample->nnodes = nnodes;
	return sample;
}
