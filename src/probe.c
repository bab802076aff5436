/*-------------------------------------------------------------------------
 *
 * probe.c
 *	  How the servers of a list are: starts the program that asks them, and
 *	  reads what it says.
 *
 * Not by the backend itself, for the look-up of a name can block without bound.
 * The one rule: whatever the program does, it is waited for until the
 * deadline, interruptibly, then killed, and reaped here.
 *
 *-------------------------------------------------------------------------
 */
#include "probe.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "storage/latch.h"

#include "channel.h"
#include "compat.h"

/* The program, while it answers. */
typedef struct Asking
{
	pid_t		pid;
	int			fd;				/* of its answer */
	int64		deadline;		/* protocol_now() */
	StringInfoData answer;		/* its messages */
	bool		is_over;		/* it has said all */
} Asking;

/* All messages: one of the program, three of each address. */
#define ANSWER_MAX ((1 + 3 * ASK_ALL_MAX) * ASK_MESSAGE_SIZE)
#define READ_SIZE 8192

/* Most of what a stranger replied that is shown, in bytes. */
#define SAID_MAX 160

/* One message of the program's, see ask.h; texts are parts of its answer. */
typedef struct Message
{
	int			server;
	int			verdict;		/* AskVerdict */
	const char *address;
	int			us;
	const char *text;
} Message;

static void await_answer(Asking *asking);
static void take_answer(Asking *asking);
static int	end_program(Asking *asking);
static void read_answer(Asking *asking, int status, ZkProbe *probe);
static bool read_message(char **next, Message *message);
static void take_message(const Message *message, ZkProbe *probe);
static void read_state(ServerReport *report, const char *text);
static void read_settings(ServerReport *report, const char *text);
static int	read_number(const char *text, const char *name);
static char *first_line(const char *text);
static void note_start_failure(const char *program, int error,
							   ZkProbe *probe);

void
zklock_probe_servers(const char *program, const char *servers, int answer_ms,
					 ZkProbe *probe)
{
	int64		deadline = protocol_now() + answer_ms;
	char	   *until = psprintf(INT64_FORMAT, deadline);
	char	   *list = pstrdup(servers);
	char		title[] = "zklock: asks servers";
	char		option[] = ASK_OPTION;
	char	   *arguments[] = {title, option, list, until, NULL};
	Asking		asking = {.deadline = deadline + PROBE_EXTRA_MS};
	int			error;
	volatile int status = 0;

	memset(probe, 0, sizeof(*probe));
	initStringInfo(&asking.answer);
	if (!AcquireExternalFD())
		error = EMFILE;
	else
	{
		error = zklock_channel_ask(program, arguments, &asking.fd,
								   &asking.pid);
		if (error != 0)
			ReleaseExternalFD();
	}
	if (error != 0)
	{
		note_start_failure(program, error, probe);
		return;
	}
	PG_TRY();
	{
		await_answer(&asking);
	}
	PG_FINALLY();
	{
		status = end_program(&asking);
	}
	PG_END_TRY();
	read_answer(&asking, status, probe);
}

static void
await_answer(Asking *asking)
{
	static uint32 wait_event;

	if (wait_event == 0)
		wait_event = WaitEventExtensionNew_compat("ZkLockCheck");
	while (!asking->is_over)
	{
		int64		left = asking->deadline - protocol_now();
		int			events;

		CHECK_FOR_INTERRUPTS();
		if (left <= 0)
			return;
		events = WaitLatchOrSocket(MyLatch, WL_LATCH_SET | WL_SOCKET_READABLE |
								   WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
								   asking->fd, (long) left, wait_event);
		if (events & WL_LATCH_SET)
			ResetLatch(MyLatch);
		if (events & WL_SOCKET_READABLE)
			take_answer(asking);
	}
}

/* As much as is there.  Of a program that says too much the rest is left. */
static void
take_answer(Asking *asking)
{
	StringInfo	answer = &asking->answer;

	while (answer->len < ANSWER_MAX)
	{
		ssize_t		taken;

		enlargeStringInfo(answer, READ_SIZE);
		taken = read(asking->fd, answer->data + answer->len, READ_SIZE);
		if (taken > 0)
			answer->len += (int) taken;
		else if (taken == 0 || (errno != EAGAIN && errno != EINTR))
			break;
		else if (errno == EAGAIN)
			return;
	}
	asking->is_over = true;
}

/* The status that it has ended with; 0 if that cannot be known. */
static int
end_program(Asking *asking)
{
	int			status = 0;

	close(asking->fd);
	ReleaseExternalFD();
	if (waitpid(asking->pid, &status, WNOHANG) != 0)
		return status;
	kill(asking->pid, SIGKILL);
	while (waitpid(asking->pid, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

static void
read_answer(Asking *asking, int status, ZkProbe *probe)
{
	StringInfo	answer = &asking->answer;
	Message		message;
	char	   *next = answer->data;
	char	   *space;

	if (answer->len == 0)
	{
		probe->error = !asking->is_over ?
			pstrdup("It was started and has not said a word in time.") :
			WIFEXITED(status) && WEXITSTATUS(status) == 127 ?
			pstrdup("It could not be executed: a library that it needs is missing.") :
			pstrdup("It was started and has ended without a word.");
		probe->hint = !asking->is_over ?
			"The machine is too busy; or a security policy holds the program up." :
			"See whether ldd finds all its libraries, and install ZooKeeper's client library (libzookeeper-st2).";
		return;
	}

	/* the last one may be incomplete */
	while (answer->len > 0 && answer->data[answer->len - 1] != '\0')
		answer->len--;
	if (answer->len == 0 || !read_message(&next, &message) ||
		message.verdict != ASK_PROGRAM ||
		strtol(message.text, &space, 10) != PROTOCOL_VERSION || *space != ' ')
	{
		probe->error =
			pstrdup("It is of another version of zklock than the library that this connection has loaded.");
		probe->hint = "The files were replaced under a running server: connect again; if zklock is preloaded, restart the server.";
		return;
	}
	probe->library = space + 1;
	probe->reports = palloc(ASK_ALL_MAX * sizeof(ServerReport));
	while (next < answer->data + answer->len)
		if (read_message(&next, &message))
			take_message(&message, probe);
}

/*
 * Read the message at *next, which is terminated, as a stranger's, and step
 * over it.  false if it is none.
 */
static bool
read_message(char **next, Message *message)
{
	char	   *text = *next;
	const char *field[4] = {0};

	*next += strlen(*next) + 1;
	for (int i = 0; i < 4 && text != NULL; i++)
		field[i] = strsep(&text, "\t");
	if (text == NULL)
		return false;
	message->server = atoi(field[0]);
	message->verdict = atoi(field[1]);
	message->address = field[2];
	message->us = atoi(field[3]);
	message->text = text;
	return message->server >= 0 && message->server < SERVERS_MAX &&
		message->verdict >= ASK_PROGRAM && message->verdict <= ASK_CONNECTIONS;
}

static void
take_message(const Message *message, ZkProbe *probe)
{
	ServerReport *report = NULL;

	for (int i = 0; i < probe->nreports; i++)
		if (probe->reports[i].server == message->server &&
			strcmp(probe->reports[i].address, message->address) == 0)
			report = &probe->reports[i];
	if (report != NULL && message->verdict == ASK_SETTINGS)
		read_settings(report, message->text);
	else if (report != NULL && message->verdict == ASK_CONNECTIONS)
		report->nconnections = atoi(message->text);
	if (report != NULL || probe->nreports == ASK_ALL_MAX ||
		message->verdict == ASK_PROGRAM || message->verdict > ASK_SERVING)
		return;
	report = &probe->reports[probe->nreports++];
	report->server = message->server;
	report->verdict = message->verdict;
	report->address = message->address;
	report->said = first_line(message->text);
	report->latency_us = message->us;
	report->nconnections = PROBE_UNKNOWN;
	read_state(report, message->text);
	read_settings(report, "");
}

/* The reply to "srvr". */
static void
read_state(ServerReport *report, const char *text)
{
	static const char *const modes[] = {
		[SERVER_MODE_UNKNOWN] = "",
		[SERVER_STANDALONE] = "standalone",
		[SERVER_LEADER] = "leader",
		[SERVER_FOLLOWER] = "follower",
		[SERVER_OBSERVER] = "observer",
		[SERVER_READ_ONLY] = "read-only"
	};
	const char *release = text + strcspn(text, "0123456789\n");
	const char *mode = strstr(text, "\nMode: ");

	report->release = pnstrdup(release, strspn(release, "0123456789."));
	report->mode = SERVER_MODE_UNKNOWN;
	for (int i = 1; mode != NULL && i < (int) lengthof(modes); i++)
		if (strncmp(mode + strlen("\nMode: "), modes[i],
					strlen(modes[i])) == 0)
			report->mode = i;
}

/* The reply to "conf"; a server that refuses it has none of these lines. */
static void
read_settings(ServerReport *report, const char *text)
{
	report->tick_ms = read_number(text, "tickTime=");
	report->sync_limit = read_number(text, "syncLimit=");
	report->min_timeout_ms = read_number(text, "minSessionTimeout=");
	report->max_timeout_ms = read_number(text, "maxSessionTimeout=");
	report->max_connections = read_number(text, "maxClientCnxns=");
}

/* The number of the line that begins so. */
static int
read_number(const char *text, const char *name)
{
	for (const char *line = text; line != NULL; line = strchr(line, '\n'))
	{
		long		number;
		char	   *end;

		line += line != text;
		if (strncmp(line, name, strlen(name)) != 0)
			continue;
		errno = 0;
		number = strtol(line + strlen(name), &end, 10);
		return end != line + strlen(name) && errno == 0 && number >= 0 &&
			number <= PG_INT32_MAX ? (int) number : PROBE_UNKNOWN;
	}
	return PROBE_UNKNOWN;
}

/* As much of it as is worth showing. */
static char *
first_line(const char *text)
{
	text += strspn(text, "\r\n");
	return pnstrdup(text, Min(strcspn(text, "\r\n"), SAID_MAX));
}

static void
note_start_failure(const char *program, int error, ZkProbe *probe)
{
	probe->error = psprintf("\"%s\" could not be started: %s.", program,
							strerror(error));
	probe->hint =
		error == ENOENT ?
		"Install zklock again: the program belongs beside zklock.so." :
		error == EACCES || error == EPERM ?
		"Make it executable for the server's user; look for a noexec mount, SELinux or AppArmor." :
		"See the limits of processes and descriptors (docs/operations.md, Processes).";
}
