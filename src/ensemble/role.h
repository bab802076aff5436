/*-------------------------------------------------------------------------
 *
 * role.h
 *	  The type zk_role: the role of a row of zk_privileges.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ROLE_H
#define ZKLOCK_ROLE_H

#include "postgres.h"

/*
 * Whom does the value stand for?  InvalidOid: for everybody if *is_everybody,
 * else for nobody.  A role that is gone keeps its OID.
 */
extern Oid zklock_role_oid(Datum value, bool *is_everybody);

/* The value for a role, or with InvalidOid for everybody; palloc'ed. */
extern Datum zklock_role_value(Oid role);

/* What people read of the value; palloc'ed. */
extern char *zklock_role_shown(Datum value);

#endif							/* ZKLOCK_ROLE_H */
