/*-------------------------------------------------------------------------
 *
 * probe.c
 *	  How the servers of a list are: starts the program that asks them, and
 *	  reads what it says.
 *
 * Not by the backend itself, for a name is looked up for as long as it takes.
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
	char	   *answer;			/* palloc'ed */
	size_t		length;
	bool		is_over;		/* it has said all */
} Asking;

/* Room for all records, and some of what should not be there. */
#define ANSWER_SIZE ((ASK_RECORDS_MAX + 1) * sizeof(AskRecord))

static void await_answer(Asking *asking);
static void take_answer(Asking *asking);
static int	end_program(Asking *asking);
static void read_records(const Asking *asking, int status, ZkProbe *probe);
static bool is_sound(AskRecord *record);
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
	Asking		asking = {.answer = palloc(ANSWER_SIZE)};
	int			error;
	volatile int status = 0;

	memset(probe, 0, sizeof(*probe));
	asking.deadline = deadline + PROBE_EXTRA_MS;
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
	read_records(&asking, status, probe);
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
	while (asking->length < ANSWER_SIZE)
	{
		ssize_t		taken = read(asking->fd, asking->answer + asking->length,
								 ANSWER_SIZE - asking->length);

		if (taken > 0)
			asking->length += (size_t) taken;
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
read_records(const Asking *asking, int status, ZkProbe *probe)
{
	AskRecord  *records = (AskRecord *) asking->answer;
	int			count = (int) (asking->length / sizeof(*records));

	if (asking->length < 2 * sizeof(uint32))
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
	if (records[0].length != sizeof(*records) ||
		records[0].version != PROTOCOL_VERSION || count == 0 ||
		records[0].verdict != ASK_PROGRAM || !is_sound(&records[0]))
	{
		probe->error =
			pstrdup("It is of another version of zklock than the library that this connection has loaded.");
		probe->hint = "The files were replaced under a running server: connect again; if zklock is preloaded, restart the server.";
		return;
	}
	strlcpy(probe->library, records[0].release, sizeof(probe->library));
	probe->records = records;
	for (int i = 1; i < count; i++)
		if (is_sound(&records[i]) && records[i].verdict != ASK_PROGRAM)
			records[probe->nrecords++] = records[i];
}

/* Read as a stranger's. */
static bool
is_sound(AskRecord *record)
{
	record->address[sizeof(record->address) - 1] = '\0';
	record->release[sizeof(record->release) - 1] = '\0';
	record->said[sizeof(record->said) - 1] = '\0';
	return record->length == sizeof(*record) &&
		record->server >= 0 && record->server < SERVERS_MAX &&
		record->verdict >= 0 && record->verdict <= ASK_LAST &&
		record->mode >= 0 && record->mode <= ASK_LAST_MODE;
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
