/*-------------------------------------------------------------------------
 *
 * eviction.h
 *	  The word that is left for whoever is evicted: by whom.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_EVICTION_H
#define ZKLOCK_EVICTION_H

#include "postgres.h"

#include "roundtrip.h"

/* Longest text about who it was, with its NUL. */
#define ZK_EVICTOR_SIZE 256

/*
 * Leave word that it is us who evict the owner of that queue node of the lock
 * of that name: to be called before.  If it cannot be had within a second, or
 * too much of the kind lies there, there is none.  false if the session was
 * lost.  Raises on interrupts.
 */
extern bool zklock_eviction_tell(ZkRoundTrip *trip, const char *name,
								 const char *node);

/*
 * Our queue node was deleted: who says that it was he?  A
 * zklock_nodedata_describe(), palloc'ed; NULL if nobody does, or if that
 * takes longer than it is worth.  The word goes, for it is for us alone.
 * Raises on interrupts.
 */
extern char *zklock_eviction_hear(ZkRoundTrip *trip, const char *lock_path,
								  int root_length, const char *node);

#endif							/* ZKLOCK_EVICTION_H */
