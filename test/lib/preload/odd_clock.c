/*
 * odd_clock.c
 *		The time of day is wrong by so many seconds as a file says, which has
 *		the name of this library and ".offset", and must be there when a process
 *		begins.  It may change at any time; other clocks are right.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int *offset;

static void __attribute__((constructor))
map_file(void)
{
	Dl_info		library;
	char		name[4096] = "";
	int			file;
	void	   *page;

	if (dladdr((void *) map_file, &library) != 0)
		snprintf(name, sizeof(name), "%s.offset", library.dli_fname);
	file = open(name, O_RDONLY | O_CLOEXEC);
	page = file < 0 ? MAP_FAILED : mmap(NULL, sizeof(*offset), PROT_READ, MAP_SHARED, file, 0);
	if (file >= 0)
		close(file);
	offset = page == MAP_FAILED ? NULL : page;
}

int
clock_gettime(clockid_t clock, struct timespec *now)
{
	int			result = (int) syscall(SYS_clock_gettime, clock, now);

	if (result == 0 && clock == CLOCK_REALTIME && offset != NULL)
		now->tv_sec += *offset;
	return result;
}

int
gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	struct timespec precise;
	int			result = clock_gettime(CLOCK_REALTIME, &precise);

	(void) zone;
	now->tv_sec = precise.tv_sec;
	now->tv_usec = precise.tv_nsec / 1000;
	return result;
}

time_t
time(time_t *now)
{
	struct timespec precise;

	clock_gettime(CLOCK_REALTIME, &precise);
	if (now != NULL)
		*now = precise.tv_sec;
	return precise.tv_sec;
}
