/*-------------------------------------------------------------------------
 *
 * retention.h
 *	  How long records of runs are kept, and how old ones are found (and
 *	  requests to release a lock that nobody hears any more), as pure
 *	  functions.
 *
 * Values in, verdict out; libc only.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_RETENTION_H
#define ZKLOCK_RETENTION_H

#include <stdbool.h>
#include <stdint.h>

/* Most records of one name. */
#define RETENTION_RECORDS_MAX 100000

/* The member of a record's data that says for how long it is kept. */
#define RETENTION_KEY "retain"

/* What a record without it counts as. */
#define RETENTION_UNKNOWN (-1)

/*
 * Read that member, the last one of the data: milliseconds, or
 * RETENTION_UNKNOWN if there is none or something else.
 */
extern int64_t retention_read(const char *data, int length);

/* Is a record of that age to go?  One that does not say is kept for ever. */
extern bool retention_is_over(int64_t retain_ms, int64_t ctime_ms,
							  int64_t now_ms);

/*
 * Is a claim to list the records, of which there are so many, and how many of
 * the list is it to look at?  chance is a random number from 0 to below 1.
 */
extern bool retention_should_list(int nrecords, double chance);
extern int	retention_sample(int nrecords);

#endif							/* ZKLOCK_RETENTION_H */
