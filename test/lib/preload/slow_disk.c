/*
 * slow_disk.c
 *		A disk that is slow or full: each flush of a file takes the milliseconds
 *		that stand in the file which LD_TEST_DISK names. If "full" stands there,
 *		it fails as on a disk without space.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int
flush_late(const char *function, int fd)
{
	int			(*libc) (int) = dlsym(RTLD_NEXT, function);
	const char *name = getenv("LD_TEST_DISK");
	FILE	   *file = name != NULL ? fopen(name, "re") : NULL;
	char		word[16] = "";

	if (file != NULL)
	{
		if (fgets(word, sizeof(word), file) == NULL)
			word[0] = '\0';
		fclose(file);
	}
	if (strncmp(word, "full", 4) == 0)
	{
		errno = ENOSPC;
		return -1;
	}
	usleep((useconds_t) atoi(word) * 1000);
	return libc(fd);
}

int
fsync(int fd)
{
	return flush_late("fsync", fd);
}

int
fdatasync(int fd)
{
	return flush_late("fdatasync", fd);
}
