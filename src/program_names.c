/*-------------------------------------------------------------------------
 *
 * program_names.c
 *	  The session's program: the hosts of a list of servers, what is known of
 *	  them, and their look-ups.
 *
 * A look-up is a child process.  It writes what it has found into a pipe of its
 * own, as a whole, and ends; a pipe that ends without that is a look-up that
 * has failed.  The child keeps nothing of the program's open, ends with it, and
 * ends as the program does, not by a signal: PostgreSQL as process 1 would
 * inherit it (program_main.c).
 *
 *-------------------------------------------------------------------------
 */
#include "program_names.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program.h"
#include "program_tls.h"

/*
 * How long a look-up may take, in seconds: longer than anybody waits for it,
 * and than the resolver of libc tries with its defaults and three servers.
 */
#define LOOK_UP_S 60

/* The child's end of the pipe.  Nothing above it is open there. */
#define CHILD_FD 3

_Static_assert(sizeof(HostAddresses) <= PIPE_BUF, "it is written as a whole");

/* A host of the list; servers that differ by the port share it. */
typedef struct Name
{
	char		host[SERVERS_HOST_MAX + 1];
	HostAddresses known;
	pid_t		child;			/* it looks the host up; 0: none does.  The
								 * rest is valid if there is one */
	bool		has_answered;
	int			fd;				/* of its pipe */
	int64_t		since;			/* when it was started */
} Name;

struct Names
{
	ServerList	list;
	int			places[SERVERS_MAX];	/* of each server's host in all */
	int			epoll;			/* on the pipes of all */
	int			count;
	Name		all[];			/* as many as there are servers: each session
								 * has its own */
};

static Name *find(Names *names, const char *host);
static void begin_look_up(Names *names, Name *name);
static void look_up(const char *host, int fd, pid_t parent)
			__attribute__((noreturn));
static void note_failure(Name *name, const char *why);
static bool take(Names *names, Name *name);
static void forget_child(Names *names, Name *name);
static void end_child(Names *names, Name *name);

Names *
names_begin(const ServerList *list)
{
	Names	   *names = program_need(calloc(1, sizeof(*names) +
												 list->nservers * sizeof(Name)));

	names->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (names->epoll < 0)
		exit(1);
	names->list = *list;
	for (int i = 0; i < list->nservers; i++)
	{
		const char *host = list->servers[i].host;
		Name	   *name = find(names, host);

		if (name == NULL)
		{
			name = &names->all[names->count++];
			strcpy(name->host, host);
			if (servers_is_numeric(host))
				servers_look_up(host, &name->known);
		}
		names->places[i] = (int) (name - names->all);
	}
	return names;
}

/* NULL: it is not among them. */
static Name *
find(Names *names, const char *host)
{
	for (int i = 0; i < names->count; i++)
		if (strcmp(names->all[i].host, host) == 0)
			return &names->all[i];
	return NULL;
}

const ServerList *
names_list(const Names *names)
{
	return &names->list;
}

bool
names_can_change(const Names *names)
{
	for (int i = 0; i < names->count; i++)
		if (!servers_is_numeric(names->all[i].host))
			return true;
	return false;
}

int
names_descriptor(const Names *names)
{
	return names->epoll;
}

bool
names_is_awaited(const Names *names, int server)
{
	const Name *name = &names->all[names->places[server]];

	return name->child != 0 && !name->has_answered;
}

int64_t
names_awaited_since(const Names *names)
{
	int64_t		since = INT64_MAX;

	for (int i = 0; i < names->list.nservers; i++)
		if (names_is_awaited(names, i) &&
			names->all[names->places[i]].since < since)
			since = names->all[names->places[i]].since;
	return since;
}

const HostAddresses *
names_known(const Names *names, int server)
{
	return &names->all[names->places[server]].known;
}

bool
names_collect(const Names *names, ServerAddresses *result)
{
	const HostAddresses *known[SERVERS_MAX];

	for (int i = 0; i < names->list.nservers; i++)
		known[i] = names_known(names, i);
	return servers_collect(&names->list, known, result);
}

void
names_end(Names *names)
{
	for (int i = 0; i < names->count; i++)
		end_child(names, &names->all[i]);
	close(names->epoll);
	free(names);
}

/* ---------------------------------------------------------------------
 * Look-ups
 * ---------------------------------------------------------------------
 */

void
names_look_up(Names *names)
{
	for (int i = 0; i < names->count; i++)
	{
		Name	   *name = &names->all[i];

		if (name->child != 0 && name->has_answered)
			forget_child(names, name);
		if (name->child == 0 && !servers_is_numeric(name->host))
			begin_look_up(names, name);
	}
}

static void
begin_look_up(Names *names, Name *name)
{
	struct epoll_event event = {.events = EPOLLIN};
	pid_t		parent = getpid();
	int			ends[2] = {-1, -1};

	name->has_answered = false;
	name->since = protocol_now();
	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
	{
		note_failure(name, strerror(errno));
		return;
	}
	event.data.fd = name->fd = ends[0];
	name->child = epoll_ctl(names->epoll, EPOLL_CTL_ADD, ends[0], &event) == 0 ?
		fork() : -1;
	if (name->child == 0)
		look_up(name->host, ends[1], parent);
	if (name->child < 0)
	{
		note_failure(name, strerror(errno));
		name->child = 0;
		close(ends[0]);
	}
	close(ends[1]);
}

/*
 * In the child: look that host up, say what is found, and end.  The signal is
 * one that ends it in an orderly manner (end_at_signal() of program_main.c).
 */
static void
look_up(const char *host, int fd, pid_t parent)
{
	HostAddresses found;

	prctl(PR_SET_PDEATHSIG, SIGALRM, 0, 0, 0);
	if (getppid() != parent || dup2(fd, CHILD_FD) < 0)
		_exit(1);
	alarm(LOOK_UP_S);
	closefrom(CHILD_FD + 1);
	tls_leave();
	servers_look_up(host, &found);
	_exit(write(CHILD_FD, &found, sizeof(found)) == sizeof(found) ? 0 : 1);
}

static void
note_failure(Name *name, const char *why)
{
	if (name->known.count == 0)
		snprintf(name->known.complaint, sizeof(name->known.complaint),
				 "could not be looked up: %s", why);
}

bool
names_take(Names *names)
{
	struct epoll_event events[SERVERS_MAX];
	int			nevents = epoll_wait(names->epoll, events, SERVERS_MAX, 0);
	bool		is_any = false;

	for (int i = 0; i < nevents; i++)
		for (int j = 0; j < names->count; j++)
			if (names->all[j].child != 0 &&
				names->all[j].fd == events[i].data.fd)
			{
				is_any |= take(names, &names->all[j]);
				break;
			}
	return is_any;
}

/* Take what its child has said; did the look-up end? */
static bool
take(Names *names, Name *name)
{
	HostAddresses found;
	ssize_t		nread = read(name->fd, &found, sizeof(found));
	bool		is_end = !name->has_answered;

	if (nread == sizeof(found))
	{
		if (found.count > 0 || name->known.count == 0)
			name->known = found;
		name->has_answered = true;
		return true;
	}
	if (nread < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (is_end)
		note_failure(name, "no answer");
	forget_child(names, name);
	return is_end;
}

/* Its child is ending, or was told to. */
static void
forget_child(Names *names, Name *name)
{
	epoll_ctl(names->epoll, EPOLL_CTL_DEL, name->fd, NULL);
	close(name->fd);
	while (waitpid(name->child, NULL, 0) < 0 && errno == EINTR)
		;
	name->child = 0;
}

/* One that stands still has to go on for that. */
static void
end_child(Names *names, Name *name)
{
	if (name->child == 0)
		return;
	kill(name->child, SIGALRM);
	kill(name->child, SIGCONT);
	forget_child(names, name);
}
