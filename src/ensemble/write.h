/*-------------------------------------------------------------------------
 *
 * write.h
 *	  What is written to the ensemble: each request that ZooKeeper must log,
 *	  counted for the role that causes it, and sent.
 *
 * All of them are sent from here, or end what was made from here:
 *
 *	ZK_WRITE_BOUNDED	creates of places in queues, of their containers, of
 *						leases and their names, records, requests to release;
 *						renewals of leases; proofs that a function asks for.
 *						Besides, sessions (session.c), and zk_is_held().
 *	ZK_WRITE_COUNTED	what must not fail for want of room: facts about
 *						waiters and claims of deadlocks, the word that a permit
 *						was granted, downgrades, guards of deletions, proofs
 *						at a commit.
 *	ZK_WRITE_PAID		what zklock_write_claim() has counted; and what ends a
 *						znode: its delete, the set that hands a lock over or
 *						gives a lease up.  They are never refused, nor delayed.
 *						The create of the znode has paid for them.
 *
 * Deletes, all of the third kind, are client_request.h's.  What the session's
 * program does by itself is of the third kind, too: it deletes, tells the one
 * behind a place that is on its way out, or says that a lock is not kept.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_WRITE_H
#define ZKLOCK_WRITE_H

#include "postgres.h"

#include "session.h"
#include "write_bound.h"

typedef enum ZkWriteTerms
{
	ZK_WRITE_BOUNDED,			/* counted; raises 53400 past the bound, and
								 * nothing is sent then */
	ZK_WRITE_COUNTED,			/* counted; never raises */
	ZK_WRITE_PAID				/* not counted */
} ZkWriteTerms;

/* Count so many, on these terms; see also zklock_write_need(). */
extern void zklock_write_note(ZkWriteTerms terms, int count);

/*
 * The requests of client_request.h of the same names, to the session of this
 * backend.  Those without terms are ZK_WRITE_COUNTED.
 */
extern ZkRequest *zklock_write_create(ZkWriteTerms terms, const char *path,
									  ZkNodeKind kind, const char *data);
extern ZkRequest *zklock_write_create_guarded(ZkWriteTerms terms,
											  const char *path,
											  const char *guard, int version,
											  const char *data);
extern ZkRequest *zklock_write_move(ZkWriteTerms terms, const char *from,
									const char *to, const char *data);
extern ZkRequest *zklock_write_set(ZkWriteTerms terms, const char *path,
								   const char *data, int version);
extern bool zklock_write_announce(ZkWriteTerms terms, const char *path,
								  const char *data);
extern ZkRequest *zklock_write_replace(const char *from, int64 czxid,
									   const char *to, const char *data);
extern ZkRequest *zklock_write_remove_guarded(const char *guard, int version,
											  const char *const *paths,
											  int npaths, int node_version);

/* A proof changes nothing, and is logged as what changes something. */
extern ZkRequest *zklock_write_check(const char *path, int64 czxid);

#endif							/* ZKLOCK_WRITE_H */
