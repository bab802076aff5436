/*
 * Leads the connections of a session's program elsewhere, as a network may: in the directory
 * LD_TEST_ROUTES a file that is called as the process id of its backend has a port of
 * 127.0.0.1, to which it connects whatever the address. Without such a file all is as ever.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static pid_t backend;

/* It is in the title, and may have ended before this program begins. */
__attribute__((constructor)) static void
find_backend(int argc, char **argv)
{
	const char *number = argc > 0 ? strstr(argv[0], "of backend ") : NULL;

	backend = number != NULL ? atoi(number + strlen("of backend ")) : getppid();
}

static int
read_port(void)
{
	const char *directory = getenv("LD_TEST_ROUTES");
	char		path[4096];
	FILE	   *file;
	int			port = 0;

	if (directory == NULL)
		return 0;
	snprintf(path, sizeof(path), "%s/%d", directory, (int) backend);
	file = fopen(path, "r");
	if (file == NULL)
		return 0;
	if (fscanf(file, "%d", &port) != 1)
		port = 0;
	fclose(file);
	return port;
}

/* Where that address leads: to itself, unless there is a route. */
static const struct sockaddr *
lead(const struct sockaddr *address, struct sockaddr_in *route)
{
	int			port = address->sa_family == AF_INET ? read_port() : 0;

	if (port == 0)
		return address;
	*route = *(const struct sockaddr_in *) address;
	route->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	route->sin_port = htons(port);
	return (const struct sockaddr *) route;
}

/* The library calls this one in zklock-session. */
int
connect(int fd, const struct sockaddr *address, socklen_t length)
{
	return (int) syscall(SYS_connect, fd, address, length);
}

/* zklock-session-tls has a connect() of its own, which makes its calls so. */
long
syscall(long number,...)
{
	static long (*real) (long number,...);
	struct sockaddr_in route;
	long		arg[6];
	va_list		args;

	if (real == NULL)
		real = dlsym(RTLD_NEXT, "syscall");
	va_start(args, number);
	for (int i = 0; i < 6; i++)
		arg[i] = va_arg(args, long);
	va_end(args);
	if (number == SYS_connect)
		arg[1] = (long) lead((const struct sockaddr *) arg[1], &route);
	return real(number, arg[0], arg[1], arg[2], arg[3], arg[4], arg[5]);
}
