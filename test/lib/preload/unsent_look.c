/*
 * unsent_look.c
 *		ZooKeeper's client library cannot send a look at a node, once, when
 *		there is the file that ZKLOCK_TEST_FLAG names, which goes then.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

int
zoo_aexists(void *zh, const char *path, int watch, void *completion, const void *data)
{
	int			(*zookeeper) (void *, const char *, int, void *, const void *) =
		dlsym(RTLD_NEXT, "zoo_aexists");
	const char *flag = getenv("ZKLOCK_TEST_FLAG");

	return flag != NULL && unlink(flag) == 0 ? -2 : zookeeper(zh, path, watch, completion, data);
}
