/*-------------------------------------------------------------------------
 *
 * name_allowed.h
 *
 * What asks by itself, as the lease worker does, needs no name of the list.
 * SQL functions ask where they are given a name (functions/given_name.h), and
 * leave out rows of other names.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_NAME_ALLOWED_H
#define ZKLOCK_NAME_ALLOWED_H

#include "postgres.h"

#include "compat.h"

/* Define the setting.  For _PG_init(). */
extern void zklock_name_allowed_init(void);

/* May this session use that name, in UTF-8? */
extern bool zklock_name_is_allowed(const char *utf8);

/* May it use that name or, as far as the list tells, one below it? */
extern bool zklock_name_is_reached(const char *utf8);

/* Raise 42501 for a name that it may not use. */
pg_noreturn extern void zklock_name_refuse(const char *name);

#endif							/* ZKLOCK_NAME_ALLOWED_H */
