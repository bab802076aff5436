/*
 * fail_once.c
 *		malloc() and its kin return NULL to zklock.so, once, in the process
 *		whose number stands in a file, when they have been called there that
 *		often.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);

/* That process, and how many calls are still to come; it is mapped from the file. */
static struct
{
	_Atomic int pid;
	_Atomic int countdown;
}		   *fault;

static void __attribute__((constructor))
map_file(void)
{
	const char *name = getenv("ZKLOCK_TEST_FAULT");
	int			file = name != NULL ? open(name, O_RDWR | O_CLOEXEC) : -1;
	void	   *page = file < 0 ? MAP_FAILED :
		mmap(NULL, sizeof(*fault), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);

	fault = page == MAP_FAILED ? NULL : page;
	close(file);
}

static int
fails(const void *caller)
{
	Dl_info		info;

	if (fault == NULL || fault->pid != getpid() || dladdr(caller, &info) == 0 ||
		strstr(info.dli_fname, "zklock.so") == NULL ||
		atomic_fetch_sub(&fault->countdown, 1) != 1)
		return 0;
	errno = ENOMEM;
	return 1;
}

void *
malloc(size_t size)
{
	return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(size);
}

void *
calloc(size_t count, size_t size)
{
	return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(count, size);
}

void *
realloc(void *old, size_t size)
{
	return fails(__builtin_return_address(0)) ? NULL : __libc_realloc(old, size);
}
