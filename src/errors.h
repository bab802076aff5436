/*-------------------------------------------------------------------------
 *
 * errors.h
 *	  Errors of ZooKeeper, and of connections to it, as PostgreSQL's errors:
 *	  the one table from results and losses (terms.h) to SQLSTATEs and texts.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ERRORS_H
#define ZKLOCK_ERRORS_H

#include "postgres.h"

#include "client_request.h"
#include "compat.h"

/*
 * Raise the error of a reply; doing completes "could not ...", loss says how
 * the session was lost, if it was; has_credentials: those of zklock.auth.
 */
pg_noreturn extern void zklock_errors_raise(const ZkReply *reply,
											const char *doing,
											const char *path,
											const char *loss,
											bool has_credentials);

/* Raise out of memory for a request that could not even be made. */
pg_noreturn extern void zklock_errors_raise_memory(void);

/*
 * Raise for a session that cannot be opened. error, here and below: the
 * client's last error text.
 */
pg_noreturn extern void zklock_errors_raise_no_session(ZkClientLoss loss,
													   const char *error);

/* Raise 08001 for a first connection that took longer than bound_ms. */
pg_noreturn extern void zklock_errors_raise_not_connected(int bound_ms,
														  const char *servers,
														  const char *error);

/*
 * Raise 08001 for a try that was not answered; why, unless there is an error.
 */
pg_noreturn extern void zklock_errors_raise_silence(const char *name,
													const char *error,
													const char *why);

/* Inside ereport(): the errhint() for the library's last words, or for none. */
extern int	zklock_errors_connection_hint(const char *error);

/* How the session of that status was lost, in a sentence. */
extern void zklock_errors_describe_loss(const ZkClientStatus *status,
										const char *error, char *text,
										size_t size);

#endif							/* ZKLOCK_ERRORS_H */
