/*-------------------------------------------------------------------------
 *
 * root.h
 *
 * A client that may delete or administer the znode of the root, or create and
 * delete in it, can end every lock below it, whatever the ACLs of the locks'
 * znodes are.  So a session with credentials (zklock.auth) uses no root that
 * others could change.  It reads the ACL once for each root, before anything
 * that it has made there counts; and that of the znode of each lock, which may
 * be older than the ACL of the root.  A session without credentials asks
 * nothing: its znodes are everybody's.
 *
 * That holds for as long as the session does: a root is never empty (ZK_ROOT),
 * so only who may delete in it can make another one in its place.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ROOT_H
#define ZKLOCK_ROOT_H

#include "postgres.h"

#include "roundtrip.h"

/* The setting zklock.trusted_identities. */
extern void zklock_root_init(void);

/*
 * Ask about the znode of a lock at that path, and about the root, the first
 * root_length bytes of it, unless that is known, without waiting: it goes out with the next question of the trip, ahead
 * of it.  Then await the answer.  Raises 42501 if others could change either.
 * *is_safe: false if one was not there, or the connection broke in between: ask
 * again.  Only for sessions with credentials.  No outcome here is ZK_UNKNOWN.
 */
extern void zklock_root_ask(ZkRoundTrip *trip, const char *path,
							int root_length);
pg_nodiscard extern ZkOutcome zklock_root_judge(ZkRoundTrip *trip,
												const char *path,
												int root_length,
												bool *is_safe);

/*
 * Ask and await, if the session has credentials; make the root if it is missing.
 * That znode itself may be missing.  Raises 42501 likewise.
 */
pg_nodiscard extern ZkOutcome zklock_root_prove(ZkRoundTrip *trip,
												const char *path,
												int root_length);

/*
 * Asked anew: who could change that root, though these are neither this session's
 * identities nor trusted: one of them, palloc'ed; NULL if there is none, if the
 * root is missing, or if the session may make no znode in it.
 */
pg_nodiscard extern ZkOutcome zklock_root_find_stranger(ZkRoundTrip *trip,
														const char *path,
														int root_length,
														char **stranger);

#endif							/* ZKLOCK_ROOT_H */
