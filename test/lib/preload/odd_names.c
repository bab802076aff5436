/*
 * odd_names.c
 *		The look-up of a name that begins with "slow" takes for ever. Nothing
 *		can bound it. The name "twice" has two addresses: 127.0.0.2, and then
 *		127.0.0.1.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

int
getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
			struct addrinfo **result)
{
	int			(*libc) (const char *, const char *, const struct addrinfo *,
						 struct addrinfo **) = dlsym(RTLD_NEXT, "getaddrinfo");

	while (host != NULL && strncmp(host, "slow", 4) == 0)
		sleep(60);
	if (host != NULL && strcmp(host, "twice") == 0)
	{
		if (libc("127.0.0.2", service, hints, result) != 0)
			return EAI_FAIL;
		while (*result != NULL)
			result = &(*result)->ai_next;
		host = "127.0.0.1";
	}
	return libc(host, service, hints, result);
}
