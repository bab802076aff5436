/*
 * slow_sync.c
 *		Each fsync() and fdatasync() of the process takes as many milliseconds
 *		as the file says that ZKLOCK_TEST_SYNC names.  Without the file they
 *		take none.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int
sync_late(void)
{
	const char *name = getenv("ZKLOCK_TEST_SYNC");
	FILE	   *file = name != NULL ? fopen(name, "r") : NULL;
	int			ms = 0;

	if (file == NULL)
		return 0;
	if (fscanf(file, "%d", &ms) == 1)
		usleep(ms * 1000);
	fclose(file);
	return 0;
}

int
fsync(int fd)
{
	return sync_late();
}

int
fdatasync(int fd)
{
	return sync_late();
}
