/*
 * crowd.c: drives a crowd of backends that do the same at the same time, and
 * bears it if some of them fail.
 *
 * Usage: crowd CONNECTION-STRING; commands on standard input, see README.md.
 * SQL in commands stands on one line; # in it is the session's number. One
 * thread; libpq never blocks while somebody else's answer may come.
 */

#include <stdbool.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <libpq-fe.h>

#include "cycles.h"

#define MAX_SESSIONS 5000

typedef struct Session
{
	PGconn	   *connection;
	bool		is_pending;		/* an answer is to come */
	bool		is_second;		/* it is that of the second statement */
	int64_t		sent;
	int64_t		answered;
	char		state[8];		/* SQLSTATE of the first one's answer */
	char		second[8];		/* and of the second one's, or "-" */
	char		value[64];		/* first value of the first one's answer */
} Session;

static const char *connection_string;
static Session sessions[MAX_SESSIONS];

static void
open_session(Session *session)
{
	if (session->connection)
		return;
	session->connection = PQconnectdb(connection_string);
	if (PQstatus(session->connection) != CONNECTION_OK)
		die("connect", PQerrorMessage(session->connection));
}

static void
close_session(Session *session)
{
	if (session->connection)
		PQfinish(session->connection);
	memset(session, 0, sizeof(*session));
}

/* With the session's number in the place of each #. */
static void
send_sql(int number, const char *sql)
{
	static char text[2 * LINE_SIZE];
	Session    *session = &sessions[number];
	char	   *end = text;

	for (; *sql && end < text + LINE_SIZE; sql++)
	{
		if (*sql == '#')
			end += sprintf(end, "%d", number);
		else
			*end++ = *sql;
	}
	*end = '\0';
	session->is_pending = PQsendQuery(session->connection, text);
	if (!session->is_pending)
		strcpy(session->is_second ? session->second : session->state, "08006");
}

static void
start_sql(int number, const char *sql)
{
	Session    *session = &sessions[number];

	session->is_second = false;
	session->value[0] = '\0';
	strcpy(session->state, "late");
	strcpy(session->second, "-");
	session->sent = now();
	session->answered = 0;
	send_sql(number, sql);
	if (!session->is_pending)
		session->answered = session->sent;
}

/* Its answer has come as a whole: note it, and send what comes second. */
static void
take_answer(int number, const char *second)
{
	Session    *session = &sessions[number];
	char	   *state = session->is_second ? session->second : session->state;
	PGresult   *result;

	strcpy(state, "00000");
	while ((result = PQgetResult(session->connection)))
	{
		ExecStatusType status = PQresultStatus(result);

		if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
		{
			const char *code = PQresultErrorField(result, PG_DIAG_SQLSTATE);

			if (strcmp(state, "00000") == 0)
				fprintf(stderr, "session %d: %s", number,
						PQresultErrorMessage(result));
			snprintf(state, sizeof session->state, "%s", code ? code : "08006");
		}
		else if (!session->is_second && status == PGRES_TUPLES_OK &&
				 PQntuples(result) > 0 && PQnfields(result) > 0)
			snprintf(session->value, sizeof session->value, "%s",
					 PQgetvalue(result, 0, 0));
		PQclear(result);
	}
	session->is_pending = false;
	if (session->is_second)
		return;
	session->answered = now();
	if (!second[0] || strcmp(state, "00000") != 0)
		return;
	session->is_second = true;
	send_sql(number, second);
}

static void
watch_sessions(int epoll, int from, int to, int *npending)
{
	for (int i = from; i < to; i++)
	{
		struct epoll_event event = {.events = EPOLLIN, .data.u32 = (unsigned) i};

		if (!sessions[i].is_pending)
			continue;
		PQflush(sessions[i].connection);
		epoll_ctl(epoll, EPOLL_CTL_ADD, PQsocket(sessions[i].connection), &event);
		(*npending)++;
	}
}

/*
 * The answers of these sessions as they come, for so many seconds; who has
 * answered well runs the second statement at once, if there is one.  Returns
 * how many are still to come.
 */
static int
collect(int from, int to, double seconds, const char *file, const char *second)
{
	int			epoll = epoll_create1(0);
	int			npending = 0;
	int64_t		end = now() + (int64_t) (seconds * 1000000);
	FILE	   *out = open_log(file);

	watch_sessions(epoll, from, to, &npending);
	while (npending > 0 && now() < end)
	{
		struct epoll_event event;
		int			wait = (int) ((end - now()) / 1000) + 1;
		Session    *session;

		if (epoll_wait(epoll, &event, 1, wait > 0 ? wait : 0) != 1)
			continue;
		session = &sessions[event.data.u32];
		if (PQconsumeInput(session->connection) &&
			PQisBusy(session->connection))
			continue;
		/* the descriptor may be closed by what follows */
		if (PQstatus(session->connection) != CONNECTION_OK)
			epoll_ctl(epoll, EPOLL_CTL_DEL, PQsocket(session->connection), NULL);
		take_answer((int) event.data.u32, second);
		if (!session->is_pending)
		{
			epoll_ctl(epoll, EPOLL_CTL_DEL, PQsocket(session->connection), NULL);
			npending--;
		}
	}
	for (int i = from; i < to; i++)
		if (sessions[i].sent)
			fprintf(out, "%d %lld %lld %s %s %s\n", i,
					(long long) sessions[i].sent,
					(long long) sessions[i].answered, sessions[i].state,
					sessions[i].second, sessions[i].value);
	fclose(out);
	close(epoll);
	return npending;
}

int
main(int argc, char **argv)
{
	static char line[LINE_SIZE];
	static char sql[LINE_SIZE];
	char		file[1024];
	int			from;
	int			to;
	double		seconds;

	if (argc != 2)
		die("start", "usage: crowd CONNECTION-STRING");
	connection_string = argv[1];
	raise_limit();
	while (read_line(line))
	{
		if (sscanf(line, "%*s %d %d", &from, &to) != 2 || from < 0 ||
			to > MAX_SESSIONS)
			die("understand", line);
		if (strncmp(line, "open ", 5) == 0)
			for (int i = from; i < to; i++)
				open_session(&sessions[i]);
		else if (strncmp(line, "close ", 6) == 0)
			for (int i = from; i < to; i++)
				close_session(&sessions[i]);
		else if (strncmp(line, "send ", 5) == 0)
		{
			need_line(sql);
			for (int i = from; i < to; i++)
				start_sql(i, sql);
		}
		else if (sscanf(line, "collect %d %d %lf %1023s", &from, &to, &seconds,
						file) == 4)
		{
			need_line(sql);
			printf("ok %d\n", collect(from, to, seconds, file, sql));
			fflush(stdout);
			continue;
		}
		else
			die("understand", line);
		say("ok");
	}
	return 0;
}
