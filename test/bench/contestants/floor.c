/*
 * floor.c: the floor of the benchmark: what ZooKeeper's C client needs for the
 * two requests without which nobody holds a lock, create (ephemeral, sequential)
 * and delete, each awaited. No lock recipe: nobody is waited for.
 *
 * Usage: floor SERVERS SESSION-TIMEOUT-MS; commands on standard input, see
 * README.md. The client is used with its defaults.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <zookeeper/zookeeper.h>

#include "cycles.h"

#define MAX_SESSIONS 64

typedef struct Session
{
	zhandle_t  *handle;
	sem_t		connected;
} Session;

/* What one thread does in "loop". */
typedef struct Contender
{
	pthread_t	thread;
	int			number;
	int64_t		until;
	const char *path;			/* of the lock, or of the first part of many */
	int			locks;			/* of this contender; 0: the one at path */
	Cycles		cycles;
} Contender;

static const char *servers;
static char *timeout;
static int	timeout_ms;
static Session sessions[MAX_SESSIONS];

static void
check(int rc, const char *what)
{
	if (rc != ZOK)
		die(what, zerror(rc));
}

static void
watch_session(zhandle_t *handle, int type, int state, const char *path,
			  void *context)
{
	Session    *session = context;

	(void) handle;
	(void) path;
	if (type == ZOO_SESSION_EVENT && state == ZOO_CONNECTED_STATE)
		sem_post(&session->connected);
}

static void
open_session(Session *session)
{
	sem_init(&session->connected, 0, 0);
	session->handle = zookeeper_init(servers, watch_session, timeout_ms, NULL,
									 session, 0);
	if (!session->handle)
		die("start a session", strerror(errno));
	while (sem_wait(&session->connected) != 0)
		;
}

static void
make_path(zhandle_t *handle, const char *path)
{
	char		part[1024];
	int			rc;

	for (const char *end = strchr(path + 1, '/');; end = strchr(end + 1, '/'))
	{
		snprintf(part, sizeof part, "%.*s",
				 (int) (end ? end - path : (long) strlen(path)), path);
		rc = zoo_create(handle, part, "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0);
		if (rc != ZNODEEXISTS)
			check(rc, "create a path");
		if (!end)
			return;
	}
}

/* Create below the lock's path; the node's path goes to made. */
static void
take(zhandle_t *handle, const char *path, char *made, int size)
{
	char		name[1024];

	snprintf(name, sizeof name, "%s/lock-", path);
	check(zoo_create(handle, name, "", 0, &ZOO_OPEN_ACL_UNSAFE,
					 ZOO_EPHEMERAL | ZOO_SEQUENCE, made, size), "create a node");
}

static void *
contend(void *argument)
{
	Contender  *me = argument;
	zhandle_t  *handle = sessions[me->number].handle;
	unsigned int seed = me->number;
	char		path[1024];
	char		made[1024];
	Cycle		cycle;

	while ((cycle.requested = now()) < me->until)
	{
		if (me->locks)
			snprintf(path, sizeof path, "%s-%d", me->path,
					 me->number * me->locks + (int) (rand_r(&seed) % me->locks));
		take(handle, me->locks ? path : me->path, made, sizeof made);
		cycle.granted = cycle.releasing = now();
		check(zoo_delete(handle, made, -1), "delete a node");
		cycle.released = now();
		add_cycle(&me->cycles, cycle);
	}
	return NULL;
}

/* The sessions stay open for the next loop. */
static void
loop(int count, double seconds, int locks, const char *path, const char *file)
{
	Contender	contenders[MAX_SESSIONS] = {0};
	FILE	   *out = open_log(file);

	if (count > MAX_SESSIONS)
		die("open sessions", "too many");
	for (int i = 0; i < count; i++)
		if (!sessions[i].handle)
			open_session(&sessions[i]);
	/* Many locks are there already. */
	if (locks == 1)
		make_path(sessions[0].handle, path);
	for (int i = 0; i < count; i++)
	{
		contenders[i].number = i;
		contenders[i].until = now() + (int64_t) (seconds * 1e6);
		contenders[i].path = path;
		contenders[i].locks = locks > 1 ? locks / count : 0;
		pthread_create(&contenders[i].thread, NULL, contend, &contenders[i]);
	}
	for (int i = 0; i < count; i++)
	{
		pthread_join(contenders[i].thread, NULL);
		write_cycles(out, i, &contenders[i].cycles);
		free(contenders[i].cycles.cycle);
	}
	fclose(out);
}

/* A new session; ending it is not part of the cycle. */
static Cycle
take_in_new_session(const char *path)
{
	Cycle		cycle;
	Session		session;
	char		made[1024];

	cycle.requested = now();
	open_session(&session);
	take(session.handle, path, made, sizeof made);
	cycle.granted = cycle.releasing = now();
	check(zoo_delete(session.handle, made, -1), "delete a node");
	cycle.released = now();
	zookeeper_close(session.handle);
	return cycle;
}

/*
 * What is asked of a child of its own: a process that has not used the library
 * before, as a backend of PostgreSQL has not.
 */
static Cycle
take_in_new_process(const char *path)
{
	Cycle		cycle;
	int			ends[2];
	pid_t		child;

	if (pipe(ends) != 0 || (child = fork()) < 0)
		die("start a process", strerror(errno));
	if (child == 0)
	{
		cycle = take_in_new_session(path);
		_exit(write(ends[1], &cycle, sizeof cycle) != sizeof cycle);
	}
	close(ends[1]);
	if (read(ends[0], &cycle, sizeof cycle) != sizeof cycle)
		die("measure", "the child failed");
	close(ends[0]);
	waitpid(child, NULL, 0);
	return cycle;
}

/*
 * What is asked of a program of its own, from the call that starts it: no
 * client that keeps its session in one, as a backend does, can do with less.
 */
static Cycle
take_in_new_program(const char *path)
{
	char	   *arguments[] = {
		"floor", (char *) servers, timeout, "take", (char *) path, NULL
	};
	posix_spawn_file_actions_t actions;
	int64_t		requested = now();
	Cycle		cycle;
	int			ends[2];
	pid_t		child;

	posix_spawn_file_actions_init(&actions);
	if (pipe2(ends, O_CLOEXEC) != 0 ||
		posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO) != 0 ||
		posix_spawn(&child, "/proc/self/exe", &actions, NULL, arguments,
					environ) != 0)
		die("start a program", strerror(errno));
	close(ends[1]);
	if (read(ends[0], &cycle, sizeof cycle) != sizeof cycle)
		die("measure", "the program failed");
	close(ends[0]);
	waitpid(child, NULL, 0);
	posix_spawn_file_actions_destroy(&actions);
	cycle.requested = requested;
	return cycle;
}

/* That program. */
static int
take_once(const char *path)
{
	Cycle		cycle = take_in_new_session(path);

	return write(STDOUT_FILENO, &cycle, sizeof cycle) != sizeof cycle;
}

/* The path of a lock, by a process that is not used for anything else. */
static void
make_path_in_new_process(const char *path)
{
	pid_t		child = fork();
	int			status;

	if (child == 0)
	{
		open_session(&sessions[0]);
		make_path(sessions[0].handle, path);
		zookeeper_close(sessions[0].handle);
		_exit(0);
	}
	if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
		die("create a path", "the child failed");
}

/* New sessions, one after the other. */
static void
fresh(int count, const char *path, const char *file,
	  Cycle (*take_once) (const char *path))
{
	FILE	   *out = open_log(file);
	Cycles		cycles = {0};

	for (int i = 0; i < count; i++)
		add_cycle(&cycles, take_once(path));
	write_cycles(out, 0, &cycles);
	free(cycles.cycle);
	fclose(out);
}

int
main(int argc, char **argv)
{
	char		line[4096];
	char		word[8];
	char		path[1024];
	char		file[1024];
	int			count;
	int			locks;
	double		seconds;

	if (argc != 3 && argc != 5)
		die("start", "usage: floor SERVERS SESSION-TIMEOUT-MS");
	servers = argv[1];
	timeout = argv[2];
	timeout_ms = atoi(timeout);
	zoo_set_debug_level(0);
	if (argc == 5)
		return take_once(argv[4]);

	while (fgets(line, sizeof line, stdin))
	{
		if (sscanf(line, "loop %d %lf %d %1023s %1023s",
				   &count, &seconds, &locks, path, file) == 5)
			loop(count, seconds, locks, path, file);
		else if (sscanf(line, "fresh %d %1023s %1023s",
						&count, path, file) == 3)
		{
			if (!sessions[0].handle)
				open_session(&sessions[0]);
			make_path(sessions[0].handle, path);
			fresh(count, path, file, take_in_new_session);
		}
		else if (sscanf(line, "%5s %d %1023s %1023s",
						word, &count, path, file) == 4 &&
				 (strcmp(word, "fork") == 0 || strcmp(word, "spawn") == 0))
		{
			if (sessions[0].handle)
				die(word, "this process has sessions");
			make_path_in_new_process(path);
			fresh(count, path, file, strcmp(word, "fork") == 0 ?
				  take_in_new_process : take_in_new_program);
		}
		else
			die("understand", line);
		say("ok");
	}
	for (int i = 0; i < MAX_SESSIONS; i++)
		if (sessions[i].handle)
			zookeeper_close(sessions[i].handle);
	return 0;
}
