/*-------------------------------------------------------------------------
 *
 * program_names.h
 *
 * Nothing bounds getaddrinfo(): it takes as long as DNS does.  So each look-up
 * has a process of its own, all at a time, while the program goes on.  A
 * numeric address needs none.
 *
 * The one rule: what was found stays known until a look-up has found something
 * else.  A DNS that is away takes no server away.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_PROGRAM_NAMES_H
#define ZKLOCK_PROGRAM_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "servers.h"

typedef struct Names Names;

/* Those of a list.  Numeric addresses are known, nothing is looked up yet. */
extern Names *names_begin(const ServerList *list);

/* That list. */
extern const ServerList *names_list(const Names *names);

/* Look them up, but those that are being looked up. */
extern void names_look_up(Names *names);

/* Is anything of the list to be looked up, or is all of it numeric? */
extern bool names_can_change(const Names *names);

/* A descriptor to be polled: if there is input names_take() has to do. */
extern int	names_descriptor(const Names *names);

/* Take what look-ups have found; did any end? */
extern bool names_take(Names *names);

/* Is the host of that server being looked up? */
extern bool names_is_awaited(const Names *names, int server);

/* Since when are hosts being looked up?  INT64_MAX: none is. */
extern int64_t names_awaited_since(const Names *names);

/* What is known of the host of that server. */
extern const HostAddresses *names_known(const Names *names, int server);

/* What is known of all of them, as servers_collect() has it. */
extern bool names_collect(const Names *names, ServerAddresses *result);

/* End all look-ups, and forget them. */
extern void names_end(Names *names);

#endif							/* ZKLOCK_PROGRAM_NAMES_H */
