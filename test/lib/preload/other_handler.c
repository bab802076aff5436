/*
 * other_handler.c
 *		Another library takes the handler of SIGCHLD away: whoever opens a
 *		directory called "other_handler" has the default one from then on.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <signal.h>
#include <string.h>

DIR *
opendir(const char *path)
{
	DIR		   *(*libc) (const char *) = dlsym(RTLD_NEXT, "opendir");

	if (strcmp(path, "other_handler") == 0)
		signal(SIGCHLD, SIG_DFL);
	return libc(path);
}
