/*-------------------------------------------------------------------------
 *
 * privilege.h
 *	  Privileges by name: what each role may do below a prefix.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_PRIVILEGE_H
#define ZKLOCK_PRIVILEGE_H

#include "postgres.h"

#include "fmgr.h"

/* What a call does with a name, in the words of zk_grant(). */
#define ZK_MAY_SHARE "share"
#define ZK_MAY_LOCK "lock"		/* which includes to share */
#define ZK_MAY_LOOK "look"
#define ZK_MAY_REQUEST "request"
#define ZK_MAY_RUN "run"
#define ZK_MAY_HOLD "hold"
#define ZK_MAY_LEASE "lease"
#define ZK_MAY_EVICT "evict"

/* Nothing but with what the own session holds: no privilege is needed. */
#define ZK_OWN NULL

/*
 * Raise 42501, with the row that is missing, unless the current role may do
 * that with the name.  fcinfo is that of an SQL function of this extension.
 */
extern void zklock_privilege_check(FunctionCallInfo fcinfo, const char *name,
								   const char *what);

/* The same as a question. */
extern bool zklock_privilege_allows(FunctionCallInfo fcinfo, const char *name,
									const char *what);

/* Is the name closed?  By *prefix, the longest one that covers it, then. */
extern bool zklock_privilege_is_closed(FunctionCallInfo fcinfo,
									   const char *name, const char **prefix);

/*
 * Do privileges that a dump has say that zk_closed had rows (grant_trigger.c)?  schema is
 * that of the extension.  If it has none, they were lost.
 */
extern bool zklock_privilege_is_marked(Oid schema);

/* The type that has these privileges. */
#define ZK_CLOSED_MARK "_zk_unclosed"

#endif							/* ZKLOCK_PRIVILEGE_H */
