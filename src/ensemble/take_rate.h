/*-------------------------------------------------------------------------
 *
 * take_rate.h
 *
 * It bounds mistakes, such as a loop without an end.  It is no border against
 * malice, for each new connection may take as much again.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_TAKE_RATE_H
#define ZKLOCK_TAKE_RATE_H

#include "postgres.h"

/* The setting. */
extern void zklock_take_rate_init(void);

/*
 * So many locks, leases, holds, runs or requests to release are going to be
 * taken: count them, or raise 53400 if they are too many for now.  To be called
 * once for each, before anything is written for it.
 */
extern void zklock_take_rate_count(int count);

#endif							/* ZKLOCK_TAKE_RATE_H */
