/*-------------------------------------------------------------------------
 *
 * zklock.h
 *	  How SQL functions read arguments, where more than one file has such
 *	  functions.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ZKLOCK_H
#define ZKLOCK_ZKLOCK_H

#include "postgres.h"

#include "datatype/timestamp.h"

/*
 * Milliseconds, rounded up so that a bound that is not zero does not become
 * zero.  A month is 30 days, as in comparisons of intervals.  Raises 22023 if
 * it is negative.
 */
extern int64 zklock_interval_to_ms(const Interval *interval);

#endif							/* ZKLOCK_ZKLOCK_H */
