/*
 * cycles.h: what the benchmark's C programs share: the clock, the log of
 * their cycles, and commands.
 */

#ifndef CYCLES_H
#define CYCLES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

/* Longest line of a command, or of SQL behind one. */
#define LINE_SIZE 65536

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

/* Read one line from standard input, without its end. */
static inline bool
read_line(char line[LINE_SIZE])
{
	if (!fgets(line, LINE_SIZE, stdin))
		return false;
	line[strcspn(line, "\n")] = '\0';
	return true;
}

/* The same; its end is that of the program. */
static inline void
need_line(char line[LINE_SIZE])
{
	if (!read_line(line))
		exit(0);
}

/* As many descriptors as this process may have. */
static inline void
raise_limit(void)
{
	struct rlimit files;

	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
}

/* An answer to the benchmark. */
static inline void
say(const char *answer)
{
	puts(answer);
	fflush(stdout);
}

#endif
