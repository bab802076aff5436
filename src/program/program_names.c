/*-------------------------------------------------------------------------
 *
 * program_names.c
 *	  Looks up the servers' names, in processes of their own.
 *
 * Look-ups are done by a child process.  It writes each host's addresses into a
 * pipe of its own, as a whole, and ends; a pipe that ends without those of a
 * host is a look-up that has failed.  The child keeps nothing of the program's
 * open, ends with it, and ends as the program does, not by a signal: PostgreSQL
 * as process 1 would inherit it (program_main.c).
 *
 * One child looks up all hosts, one after the other: when servers restart,
 * thousands of sessions do so at the same time, and each child costs a
 * millisecond.  As soon as one of them takes long that child is ended, and each
 * host that is left has a child of its own, side by side.
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
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program.h"
#include "program_tls.h"

/*
 * How long a look-up may take, in seconds: longer than anybody waits for it,
 * and than the resolver of libc tries with its defaults and three servers.
 */
#define LOOK_UP_S 60

/* So long one look-up may hold up those behind it. */
#define SHARED_MS 100

/* The child's end of the pipe.  Nothing above it is open there. */
#define CHILD_FD 3

/* What a child writes for each host. */
typedef struct Found
{
	int			name;			/* its place in all */
	HostAddresses addresses;
} Found;

_Static_assert(sizeof(Found) <= PIPE_BUF, "it is written as a whole");

/* A process that looks up one host or several.  All zero: there is none. */
typedef struct Child
{
	pid_t		pid;
	int			fd;				/* of its pipe; valid if there is one */
} Child;

/* A host of the list; servers that differ by the port share it. */
typedef struct Name
{
	char		host[SERVERS_HOST_MAX + 1];
	HostAddresses known;
	bool		is_awaited;		/* it is being looked up */
	int64_t		since;			/* when that was begun; valid if it is */
	Child		child;			/* that looks it up; or there is none, and if it
								 * is awaited the shared one does */
} Name;

struct Names
{
	ServerList	list;
	int			places[SERVERS_MAX];	/* of each server's host in all */
	int			epoll;			/* on the pipes of all, and the timer */
	int			timer;			/* when the shared child has taken too long */
	Child		shared;
	int			count;
	Name		all[];			/* as many as there are servers: each session
								 * has its own */
};

static Name *find_name(Names *names, const char *host);
static bool watch_descriptor(Names *names, int fd);
static void begin_look_up(Names *names, Child *child, int first, int last);
static void look_up(const Names *names, int first, int last, int fd,
					pid_t parent)
			__attribute__((noreturn));
static void set_timer(Names *names, int ms);
static void note_name_failure(Name *name, const char *why);
static bool take_found(Names *names, Child *child, int first, int last);
static void share_no_more(Names *names);
static void forget_child(Names *names, Child *child);
static void end_child(Names *names, Child *child);

Names *
names_begin(const ServerList *list)
{
	Names	   *names = program_need(calloc(1, sizeof(*names) +
												 list->nservers * sizeof(Name)));

	names->epoll = epoll_create1(EPOLL_CLOEXEC);
	names->timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
	if (names->epoll < 0 || names->timer < 0 ||
		!watch_descriptor(names, names->timer))
		exit(1);
	names->list = *list;
	for (int i = 0; i < list->nservers; i++)
	{
		const char *host = list->servers[i].host;
		Name	   *name = find_name(names, host);

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
find_name(Names *names, const char *host)
{
	for (int i = 0; i < names->count; i++)
		if (strcmp(names->all[i].host, host) == 0)
			return &names->all[i];
	return NULL;
}

static bool
watch_descriptor(Names *names, int fd)
{
	struct epoll_event event = {.events = EPOLLIN,.data.fd = fd};

	return epoll_ctl(names->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
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
	return names->all[names->places[server]].is_awaited;
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
		end_child(names, &names->all[i].child);
	end_child(names, &names->shared);
	close(names->timer);
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
	int			nawaited = 0;
	int			last = 0;

	share_no_more(names);
	for (int i = 0; i < names->count; i++)
	{
		Name	   *name = &names->all[i];

		if (name->is_awaited || servers_is_numeric(name->host))
			continue;
		if (name->child.pid != 0)
			forget_child(names, &name->child);	/* it has answered */
		name->is_awaited = true;
		name->since = protocol_now();
		nawaited++;
		last = i;
	}
	if (nawaited == 1)
		begin_look_up(names, &names->all[last].child, last, last + 1);
	else if (nawaited > 1)
		begin_look_up(names, &names->shared, 0, names->count);
	if (names->shared.pid != 0)
		set_timer(names, SHARED_MS);
}

/*
 * Have a child look up those of these hosts that are awaited and have no child
 * of their own.
 */
static void
begin_look_up(Names *names, Child *child, int first, int last)
{
	pid_t		parent = getpid();
	int			ends[2] = {-1, -1};
	int			error;

	child->pid = -1;
	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0 &&
		watch_descriptor(names, ends[0]))
		child->pid = fork();
	if (child->pid == 0)
		look_up(names, first, last, ends[1], parent);
	error = errno;
	if (ends[1] >= 0)
		close(ends[1]);
	child->fd = ends[0];
	if (child->pid > 0)
		return;
	child->pid = 0;
	if (ends[0] >= 0)
		close(ends[0]);
	for (int i = first; i < last; i++)
		if (names->all[i].is_awaited && names->all[i].child.pid == 0)
			note_name_failure(&names->all[i], strerror(error));
}

/*
 * In the child: look these hosts up, say what is found, and end.  The signal is
 * one that ends it in an orderly manner (end_at_signal() of program_main.c).
 */
static void
look_up(const Names *names, int first, int last, int fd, pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGALRM, 0, 0, 0);
	if (getppid() != parent || dup2(fd, CHILD_FD) < 0)
		_exit(1);
	alarm(LOOK_UP_S);
	closefrom(CHILD_FD + 1);
	tls_leave();
	for (int i = first; i < last; i++)
	{
		const Name *name = &names->all[i];
		Found		found = {.name = i};

		if (!name->is_awaited || name->child.pid > 0)
			continue;
		servers_look_up(name->host, &found.addresses);
		if (write(CHILD_FD, &found, sizeof(found)) != sizeof(found))
			_exit(1);
	}
	_exit(0);
}

/* After so many milliseconds; 0: it is not wanted. */
static void
set_timer(Names *names, int ms)
{
	const struct itimerspec time = {.it_value.tv_nsec = ms * 1000000L};

	timerfd_settime(names->timer, 0, &time, NULL);
}

/* Its look-up is over, in vain. */
static void
note_name_failure(Name *name, const char *why)
{
	name->is_awaited = false;
	if (name->known.count == 0)
		snprintf(name->known.complaint, sizeof(name->known.complaint),
				 "could not be looked up: %s", why);
}

bool
names_take(Names *names)
{
	struct epoll_event events[SERVERS_MAX + 2];
	int			nevents = epoll_wait(names->epoll, events, SERVERS_MAX + 2, 0);
	bool		is_any = false;
	bool		is_late = false;

	for (int i = 0; i < nevents; i++)
	{
		int			fd = events[i].data.fd;

		is_late |= fd == names->timer;
		if (names->shared.pid != 0 && names->shared.fd == fd)
			is_any |= take_found(names, &names->shared, 0, names->count);
		for (int j = 0; j < names->count; j++)
			if (names->all[j].child.pid != 0 && names->all[j].child.fd == fd)
			{
				is_any |= take_found(names, &names->all[j].child, j, j + 1);
				break;
			}
	}

	/* what it has found by now is taken */
	if (is_late)
		share_no_more(names);
	return is_any;
}

/* Take what a child has said of these hosts; did a look-up end? */
static bool
take_found(Names *names, Child *child, int first, int last)
{
	Found		found;
	ssize_t		nread;
	bool		is_any = false;

	while ((nread = read(child->fd, &found, sizeof(found))) == sizeof(found))
	{
		Name	   *name;

		if (found.name < first || found.name >= last)
			continue;			/* it writes nothing of the kind */
		name = &names->all[found.name];
		if (found.addresses.count > 0 || name->known.count == 0)
			name->known = found.addresses;
		name->is_awaited = false;
		is_any = true;
		if (child == &names->shared)
			set_timer(names, SHARED_MS);
	}
	if (nread < 0 && (errno == EAGAIN || errno == EINTR))
		return is_any;
	forget_child(names, child);
	for (int i = first; i < last; i++)
		if (names->all[i].is_awaited && names->all[i].child.pid == 0)
		{
			note_name_failure(&names->all[i], "no answer");
			is_any = true;
		}
	return is_any;
}

/* Each host that the shared child has not looked up yet gets its own. */
static void
share_no_more(Names *names)
{
	if (names->shared.pid == 0)
		return;
	end_child(names, &names->shared);
	for (int i = 0; i < names->count; i++)
		if (names->all[i].is_awaited && names->all[i].child.pid == 0)
			begin_look_up(names, &names->all[i].child, i, i + 1);
}

/* That child is ending, or was told to. */
static void
forget_child(Names *names, Child *child)
{
	if (child == &names->shared)
		set_timer(names, 0);
	epoll_ctl(names->epoll, EPOLL_CTL_DEL, child->fd, NULL);
	close(child->fd);
	while (waitpid(child->pid, NULL, 0) < 0 && errno == EINTR)
		;
	child->pid = 0;
}

/* One that stands still has to go on for that. */
static void
end_child(Names *names, Child *child)
{
	if (child->pid == 0)
		return;
	kill(child->pid, SIGALRM);
	kill(child->pid, SIGCONT);
	forget_child(names, child);
}
