/*
 * sql.c: drives many backends at once, for what pgbench cannot do: queues of
 * waiting backends, statements timed one by one, new connections.
 *
 * Usage: sql CONNECTION-STRING...; commands on standard input, see README.md.
 * With several clusters the sessions take turns. SQL in commands stands on one
 * line. One thread; libpq never blocks while somebody
 * else's answer may come.
 */

#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <libpq-fe.h>

#include "cycles.h"

#define MAX_SESSIONS 1100

typedef struct Session
{
	PGconn	   *connection;
	int			number;
	bool		releasing;		/* its answer is that of the release */
	Cycle		cycle;
	Cycles		cycles;
} Session;

/* Of the clusters, in which the sessions take turns. */
static char **connection_strings;
static int	nclusters;
static Session sessions[MAX_SESSIONS];

static void
must(bool fine, PGconn *connection, const char *what)
{
	if (!fine)
		die(what, PQerrorMessage(connection));
}

/* In the cluster of the session of that number. */
static PGconn *
connect_now(int number)
{
	PGconn	   *connection = PQconnectdb(connection_strings[number % nclusters]);

	must(PQstatus(connection) == CONNECTION_OK, connection, "connect");
	return connection;
}

static void
open_sessions(int count)
{
	if (count > MAX_SESSIONS)
		die("open sessions", "too many");
	for (int i = 0; i < count; i++)
		if (!sessions[i].connection)
		{
			sessions[i].connection = connect_now(i);
			sessions[i].number = i;
		}
}

static void
send_query(PGconn *connection, const char *sql)
{
	must(PQsendQuery(connection, sql), connection, "send a query");
}

/* Wait for the answer; the first value of its last row-giving result. */
static const char *
collect(PGconn *connection)
{
	static char value[LINE_SIZE * 16];
	PGresult   *result;

	value[0] = '\0';
	while ((result = PQgetResult(connection)))
	{
		ExecStatusType status = PQresultStatus(result);

		must(status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK,
			 connection, "run a query");
		if (status == PGRES_TUPLES_OK && PQntuples(result) > 0)
			snprintf(value, sizeof value, "%s", PQgetvalue(result, 0, 0));
		PQclear(result);
	}
	return value;
}

static const char *
query(PGconn *connection, const char *sql)
{
	send_query(connection, sql);
	return collect(connection);
}

/*
 * Each session runs the same SQL at the same time; its answer is what goes to
 * the file, a cycle a line.
 */
static void
run_all(int count, const char *sql, const char *file)
{
	FILE	   *out = open_log(file);

	open_sessions(count);
	for (int i = 0; i < count; i++)
		send_query(sessions[i].connection, sql);
	for (int i = 0; i < count; i++)
	{
		char	   *answer = (char *) collect(sessions[i].connection);

		for (char *one = strtok(answer, "\n"); one; one = strtok(NULL, "\n"))
			fprintf(out, "%d %s\n", i, one);
	}
	fclose(out);
}

static void
release(Session *session, const char *unlock)
{
	session->releasing = true;
	session->cycle.releasing = now();
	send_query(session->connection, unlock);
}

/* Whether the list "1,10" names the number. */
static bool
is_among(int number, const char *list)
{
	for (const char *one = list; one; one = strchr(one, ','))
	{
		one += *one == ',';
		if (atoi(one) == number)
			return true;
	}
	return false;
}

/* See README.md: a queue of that depth that stops at these grants. */
static void
queue(int depth, const char *stops, const char *file)
{
	char		lock[LINE_SIZE];
	char		unlock[LINE_SIZE];
	char		go[LINE_SIZE];
	FILE	   *out = open_log(file);
	int			epoll = epoll_create1(0);
	int			grants = 0;
	int			done = 0;

	need_line(lock);
	need_line(unlock);
	open_sessions(depth + 1);
	for (int i = 0; i <= depth; i++)
	{
		struct epoll_event event = {.events = EPOLLIN, .data.ptr = &sessions[i]};

		sessions[i].releasing = false;
		sessions[i].cycle.requested = now();
		if (i == 0)
		{
			query(sessions[0].connection, lock);
			sessions[0].cycle.granted = now();
		}
		else
			send_query(sessions[i].connection, lock);
		epoll_ctl(epoll, EPOLL_CTL_ADD, PQsocket(sessions[i].connection), &event);
	}
	say("held");
	need_line(go);
	release(&sessions[0], unlock);
	while (done <= depth)
	{
		struct epoll_event event;
		Session    *session;

		if (epoll_wait(epoll, &event, 1, -1) != 1)
			continue;
		session = event.data.ptr;
		must(PQconsumeInput(session->connection), session->connection, "read");
		if (PQisBusy(session->connection))
			continue;
		if (session->releasing)
		{
			session->cycle.released = now();
			collect(session->connection);
			add_cycle(&session->cycles, session->cycle);
			done++;
			continue;
		}
		session->cycle.granted = now();
		collect(session->connection);
		if (is_among(++grants, stops))
		{
			say("stopped");
			need_line(go);
		}
		release(session, unlock);
	}
	for (int i = 0; i <= depth; i++)
		write_cycles(out, i, &sessions[i].cycles);
	fclose(out);
	close(epoll);
}

/*
 * Sessions that take turns: one takes the lock and releases it, then another
 * one does, the next or a random one.  Until so many seconds are over.
 */
static void
turns(int count, double seconds, bool is_random, const char *file)
{
	char		lock[LINE_SIZE];
	char		unlock[LINE_SIZE];
	FILE	   *out = open_log(file);
	int64_t		until;
	int			turn = 0;

	need_line(lock);
	need_line(unlock);
	open_sessions(count);
	until = now() + (int64_t) (seconds * 1e6);
	while (now() < until)
	{
		Session    *session = &sessions[turn % count];

		session->cycle.requested = now();
		query(session->connection, lock);
		session->cycle.granted = session->cycle.releasing = now();
		query(session->connection, unlock);
		session->cycle.released = now();
		add_cycle(&session->cycles, session->cycle);
		turn = is_random ? random() % count : turn + 1;
	}
	for (int i = 0; i < count; i++)
		write_cycles(out, i, &sessions[i].cycles);
	fclose(out);
}

/* End a connection and wait for the end of its backend, on this machine. */
static void
finish_and_wait(PGconn *connection)
{
	pid_t		backend = PQbackendPID(connection);

	PQfinish(connection);
	while (kill(backend, 0) == 0)
		usleep(1000);
}

/*
 * New connections, one after the other, each with SQL before the lock, or none.
 * Only the first lock is timed. The next one begins when the old backend is gone:
 * the end of its session would cost the server a flush at just that time.
 */
static void
fresh(int count, const char *file)
{
	char		before[LINE_SIZE];
	char		lock[LINE_SIZE];
	char		unlock[LINE_SIZE];
	FILE	   *out = open_log(file);
	Cycles		cycles = {0};

	need_line(before);
	need_line(lock);
	need_line(unlock);
	for (int i = 0; i < count; i++)
	{
		PGconn	   *connection = connect_now(0);
		Cycle		cycle;

		if (before[0])
			query(connection, before);
		cycle.requested = now();
		query(connection, lock);
		cycle.granted = cycle.releasing = cycle.released = now();
		add_cycle(&cycles, cycle);
		query(connection, unlock);
		finish_and_wait(connection);
	}
	write_cycles(out, 0, &cycles);
	free(cycles.cycle);
	fclose(out);
}

/* In one session, so many times: SQL, SQL that is timed, SQL. */
static void
time_query(int number, int count, const char *file)
{
	char		before[LINE_SIZE];
	char		timed[LINE_SIZE];
	char		after[LINE_SIZE];
	FILE	   *out = open_log(file);
	PGconn	   *connection;
	Cycles		cycles = {0};

	need_line(before);
	need_line(timed);
	need_line(after);
	open_sessions(number + 1);
	connection = sessions[number].connection;
	for (int i = 0; i < count; i++)
	{
		Cycle		cycle;

		if (before[0])
			query(connection, before);
		cycle.requested = now();
		query(connection, timed);
		cycle.granted = cycle.releasing = cycle.released = now();
		if (after[0])
			query(connection, after);
		add_cycle(&cycles, cycle);
	}
	write_cycles(out, number, &cycles);
	free(cycles.cycle);
	fclose(out);
}

int
main(int argc, char **argv)
{
	static char line[LINE_SIZE];
	static char sql[LINE_SIZE];
	char		file[1024];
	char		stops[64];
	double		seconds;
	int			count;
	int			number;
	struct rlimit files;

	if (argc < 2)
		die("start", "usage: sql CONNECTION-STRING...");
	connection_strings = argv + 1;
	nclusters = argc - 1;
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);

	while (read_line(line))
	{
		if (sscanf(line, "all %d %1023s", &count, file) == 2)
		{
			need_line(sql);
			run_all(count, sql, file);
		}
		else if (sscanf(line, "queue %d %63s %1023s", &count, stops, file) == 3)
			queue(count, stops, file);
		else if (sscanf(line, "turns %d %lf %63s %1023s",
						&count, &seconds, stops, file) == 4)
			turns(count, seconds, strcmp(stops, "random") == 0, file);
		else if (sscanf(line, "fresh %d %1023s", &count, file) == 2)
			fresh(count, file);
		else if (sscanf(line, "time %d %d %1023s", &number, &count, file) == 3)
			time_query(number, count, file);
		else if (sscanf(line, "query %d", &number) == 1)
		{
			const char *value;

			need_line(sql);
			open_sessions(number + 1);
			value = query(sessions[number].connection, sql);
			printf("ok %lld %s\n", (long long) now(), value);
			fflush(stdout);
			continue;
		}
		else if (sscanf(line, "close %d", &count) == 1)
		{
			/* All sessions from this one on. */
			for (int i = count; i < MAX_SESSIONS; i++)
			{
				if (sessions[i].connection)
					PQfinish(sessions[i].connection);
				sessions[i].connection = NULL;
			}
		}
		else
			die("understand", line);
		say("ok");
	}
	return 0;
}
