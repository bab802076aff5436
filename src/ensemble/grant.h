/*-------------------------------------------------------------------------
 *
 * grant.h
 *	  Privileges by name are given and taken: what DROP OWNED needs of that.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_GRANT_H
#define ZKLOCK_GRANT_H

#include "postgres.h"

#include "nodes/pg_list.h"

/*
 * Delete what zk_privileges of this database, if there is one, gives to the
 * roles (a list of OIDs).  The names stay closed.
 */
extern void zklock_grant_forget_roles(List *roles);

/* An extension is dropped; the log says who does it if it is this one. */
extern void zklock_grant_log_drop(Oid extension);

#endif							/* ZKLOCK_GRANT_H */
