/*
 * cycles.h: what the benchmark's C programs share: the clock and the log of
 * their cycles.
 */

#ifndef CYCLES_H
#define CYCLES_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* One use of a lock, in microseconds of the clock that all programs share. */
typedef struct Cycle
{
	int64_t		requested;
	int64_t		granted;
	int64_t		releasing;
	int64_t		released;
} Cycle;

/* The cycles of one contender. */
typedef struct Cycles
{
	Cycle	   *cycle;
	size_t		count;
	size_t		size;
} Cycles;

/* Say what went wrong and end; the benchmark shows standard error. */
static inline void
die(const char *what, const char *why)
{
	fprintf(stderr, "could not %s: %s\n", what, why);
	exit(1);
}

static inline int64_t
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return t.tv_sec * INT64_C(1000000) + t.tv_nsec / 1000;
}

static inline void
add_cycle(Cycles *all, Cycle one)
{
	if (all->count == all->size)
	{
		all->size = all->size ? 2 * all->size : 1024;
		all->cycle = realloc(all->cycle, all->size * sizeof(Cycle));
		if (!all->cycle)
			die("remember a cycle", "out of memory");
	}
	all->cycle[all->count++] = one;
}

/* Append a contender's cycles to the file and forget them. */
static inline void
write_cycles(FILE *out, int contender, Cycles *all)
{
	for (size_t i = 0; i < all->count; i++)
		fprintf(out, "%d %lld %lld %lld %lld\n", contender,
				(long long) all->cycle[i].requested,
				(long long) all->cycle[i].granted,
				(long long) all->cycle[i].releasing,
				(long long) all->cycle[i].released);
	all->count = 0;
}

static inline FILE *
open_log(const char *file)
{
	FILE	   *out = fopen(file, "w");

	if (!out)
		die("open a log", file);
	return out;
}

/* An answer to the benchmark. */
static inline void
say(const char *answer)
{
	puts(answer);
	fflush(stdout);
}

#endif
