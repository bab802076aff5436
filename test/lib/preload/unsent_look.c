/*
 * unsent_look.c
 *		ZooKeeper's client library cannot send a look at a node, once, when
 *		there is a file with the name of this library and ".once", which goes
 *		then.  The session's program has no variable of the environment that
 *		could name it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

int
zoo_aexists(void *zh, const char *path, int watch, void *completion, const void *data)
{
	int			(*zookeeper) (void *, const char *, int, void *, const void *) =
		dlsym(RTLD_NEXT, "zoo_aexists");
	Dl_info		library;
	char		flag[4096] = "";

	if (dladdr((void *) zoo_aexists, &library) != 0)
		snprintf(flag, sizeof(flag), "%s.once", library.dli_fname);
	return unlink(flag) == 0 ? -2 : zookeeper(zh, path, watch, completion, data);
}
