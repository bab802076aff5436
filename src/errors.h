/*-------------------------------------------------------------------------
 *
 * errors.h
 *	  Errors of ZooKeeper, and of connections to it, as PostgreSQL's errors.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ERRORS_H
#define ZKLOCK_ERRORS_H

#include "postgres.h"

#include "client_request.h"
#include "compat.h"

/* Raise out of memory for a request that could not even be made. */
pg_noreturn extern void zklock_errors_raise_memory(void);

/*
 * Raise what a failed request calls for; doing completes "could not ..." for
 * the znode at path.
 */
pg_noreturn extern void zklock_session_raise(const ZkReply *reply,
											 const char *doing,
											 const char *path);

/*
 * Raise 08001 for a try of that lock whose time is over before the ensemble
 * has answered.
 */
pg_noreturn extern void zklock_session_raise_silence(const char *name);

/*
 * Inside ereport(): the errdetail() that says how it is that nobody answered,
 * and if there is no connection the errhint().
 */
extern int	zklock_session_explain_silence(void);

#endif							/* ZKLOCK_ERRORS_H */
