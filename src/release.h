/*-------------------------------------------------------------------------
 *
 * release.h
 *	  Requests to release a lock: asking whoever holds it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_RELEASE_H
#define ZKLOCK_RELEASE_H

#include "postgres.h"

/*
 * Ask all holders of a lock but this session to release it, each as its make can
 * be asked.  reason may be NULL.  Result: how many were asked; a WARNING names
 * those that could not be.  Some requests to holders that are gone go.
 * Waits for the ensemble, not for the holders.  Raises 42602 for a bad name, 22023
 * for a bad reason, 54000 with too many requests, 55P03 at lock_timeout, 42501
 * if ZooKeeper refuses, and as the session does; some holders may have been asked
 * then.
 */
extern int	zklock_request_release(const char *name, const char *reason);

#endif							/* ZKLOCK_RELEASE_H */
