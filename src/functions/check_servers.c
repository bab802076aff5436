/*-------------------------------------------------------------------------
 *
 * check_servers.c
 *	  Facts about the servers, asked without a session.
 *
 * The servers are asked by the program, not by the backend itself: neither the
 * look-up of a name nor OpenSSL is for a backend.  Whatever the program does, it is
 * waited for until a deadline, interruptibly, then killed, and reaped here.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <errno.h>
#include <sys/wait.h>

#include "miscadmin.h"
#include "storage/fd.h"
#include "storage/latch.h"
#include "utils/guc.h"

#include "ask.h"
#include "channel.h"
#include "check_private.h"
#include "compat.h"
#include "lock.h"
#include "session.h"
#include "text.h"

/*
 * How long the servers are waited for, when all of it has a second; and with
 * a session, which is a question of connect_timeout.
 */
#define ANSWER_MS 600
#define ANSWER_FULL_MS 2000

/* How much longer the program is waited for. */
#define PROGRAM_EXTRA_MS 200

/* Most answers: one of the program, five of each address. */
#define ANSWERS_MAX (1 + 5 * ASK_ALL_MAX)

/* Most of what a stranger replied that is shown, in bytes. */
#define SAID_MAX 160

/* Until when the servers are waited for; protocol_now(). */
typedef struct Deadlines
{
	int64		until;			/* those that have not answered at all */
	int64		answered_until; /* those that have; not earlier */
} Deadlines;

static Deadlines choose_deadlines(const Check *check);
static void start_program(const Check *check, ZkChannel *channel,
						  const char *program, const Deadlines *deadlines);
pg_noreturn static void raise_not_started(const char *program, int error);
static int	read_answers(Check *check, ZkChannel *channel, int64 deadline);
pg_noreturn static void raise_no_answer(const char *program,
										ZkChannelState state, int status);
static bool put_answer(Check *check, const FrameTaken *taken, bool is_first);
static void put_server(Check *check, int place, AskVerdict verdict,
					   const char *address, const char *text, int64 us);
static char *show_said(AskVerdict verdict, const char *text);

void
check_ask_servers(Check *check)
{
	const char *program = zklock_session_program();
	Deadlines	deadlines = choose_deadlines(check);
	ZkChannel	channel = {0};
	char		why[SERVERS_WHY_SIZE];
	volatile int nanswers = 0;
	volatile int status = 0;

	if (!servers_parse(zklock_session_servers(),
					   &check->list, why))
		return;
	start_program(check, &channel, program, &deadlines);
	PG_TRY();
	{
		zklock_channel_flush(&channel);
		nanswers = read_answers(check, &channel,
								deadlines.answered_until + PROGRAM_EXTRA_MS);
	}
	PG_FINALLY();
	{
		status = zklock_channel_close(&channel, ZK_CHANNEL_KILL);
		ReleaseExternalFD();
	}
	PG_END_TRY();
	if (nanswers == 0)
		raise_no_answer(program, channel.state, status);
	for (int i = 0; i < check->list.nservers; i++)
	{
		if (!check->is_heard[i])
			put_server(check, i, ASK_PROGRAM, "", "", 0);
	}
}

/* A server that answers is given more time, a dead one is not. */
static Deadlines
choose_deadlines(const Check *check)
{
	int64		now = protocol_now();
	int			left = (int) (check->deadline - now);
	Deadlines	deadlines = {.until = now + ANSWER_MS};

	if (check->has_session)
		deadlines.until = now + Min(ANSWER_FULL_MS, Max(left / 2, 100));
	deadlines.answered_until = deadlines.until;
	if (check->has_session)
		deadlines.answered_until = Max(deadlines.until, now + left / 2);
	return deadlines;
}

/*
 * Start the program, and tell it what to ask.  Raises 58000 if it cannot be
 * started.
 */
static void
start_program(const Check *check, ZkChannel *channel, const char *program,
			  const Deadlines *deadlines)
{
	const Frame frame = {
		.kind = FRAME_ASK,.u.ask = {
			deadlines->until, deadlines->answered_until,
			check->has_session ? zklock_lock_request_bytes() : 0
		}
	};
	char	   *tls = zklock_session_tls();
	const FrameBlob blobs[FRAME_NBLOBS] = {
		frame_text(zklock_session_servers()),
		frame_text(tls)
	};

	if (!AcquireExternalFD())
		raise_not_started(program, EMFILE);
	if (!frame_put(&channel->out, &frame, blobs) ||
		!zklock_channel_open(channel, program, "zklock: asks servers"))
	{
		int			error = errno;

		ReleaseExternalFD();
		frame_buffer_free(&channel->out);
		raise_not_started(program, error);
	}
}

static void
raise_not_started(const char *program, int error)
{
	const char *hint;

	switch (error)
	{
		case ENOENT:
			hint = "Install zklock again: the program belongs beside zklock.so.";
			break;
		case EACCES:
		case EPERM:
			hint = "Make it executable for the server's user; look for a noexec mount, SELinux or AppArmor.";
			break;
		default:
			hint = "See the limits of processes and descriptors (docs/sizing.md, Processes).";
			break;
	}
	errno = error;
	ereport(ERROR,
			(errcode(ERRCODE_SYSTEM_ERROR),
			 errmsg("\"%s\" could not be started: %m",
					zklock_text_printable(program)),
			 errhint("%s", hint)));
}

/*
 * Until the program has said all, or the time is over; of one that says too
 * much the rest is left.  Result: how many there were.
 */
static int
read_answers(Check *check, ZkChannel *channel, int64 deadline)
{
	uint32		wait_event = WaitEventExtensionNew_compat("ZkLockCheck");
	FrameTaken	taken;
	int			count = 0;

	for (;;)
	{
		int64		left = deadline - protocol_now();
		int			events;

		while (zklock_channel_take(channel, &taken))
		{
			if (!put_answer(check, &taken, count == 0))
				zklock_channel_break(channel, ZK_CHANNEL_GARBLED);
			else
				count++;
			frame_buffer_consume(&channel->in, 0);
		}
		CHECK_FOR_INTERRUPTS();
		if (channel->state != ZK_CHANNEL_OPEN || left <= 0 ||
			count >= ANSWERS_MAX)
			return count;
		events = WaitLatchOrSocket(MyLatch, WL_LATCH_SET | WL_SOCKET_READABLE |
								   WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
								   channel->fd, (long) left, wait_event);
		if (events & WL_LATCH_SET)
			ResetLatch(MyLatch);
		if (events & WL_SOCKET_READABLE)
			(void) zklock_channel_receive(channel, true);	/* seen above */
	}
}

/* The program was started, and does not do what it is for. */
static void
raise_no_answer(const char *program, ZkChannelState state, int status)
{
	const char *shown = zklock_text_printable(program);

	if (state == ZK_CHANNEL_WRONG_VERSION || state == ZK_CHANNEL_GARBLED)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("\"%s\" is of another version of zklock than the library that this server has loaded",
						shown),
				 errhint("Restart PostgreSQL: the files were replaced while it was running.")));
	if (state == ZK_CHANNEL_OPEN)
		ereport(ERROR,
				(errcode(ERRCODE_SYSTEM_ERROR),
				 errmsg("\"%s\" was started, but has not answered in time",
						shown),
				 errhint("Try again when the machine is less busy. If that does not help, look for a security policy, such as SELinux or AppArmor, that stops the program.")));
	ereport(ERROR,
			(errcode(ERRCODE_SYSTEM_ERROR),
			 WIFEXITED(status) && WEXITSTATUS(status) == 127 ?
			 errmsg("\"%s\" could not be executed: a library that it needs is missing",
					shown) :
			 errmsg("\"%s\" was started, but has ended without an answer", shown),
			 errhint("Run ldd on the program to see which library is missing, and install ZooKeeper's client library (libzookeeper-st2).")));
}

/* One of the program's answers; false if it makes no sense. */
static bool
put_answer(Check *check, const FrameTaken *taken, bool is_first)
{
	const FrameAnswer *answer = &taken->frame.u.answer;
	const char *address = taken->blobs[0] != NULL ? taken->blobs[0] : "";
	const char *text = taken->blobs[1] != NULL ? taken->blobs[1] : "";

	if (taken->frame.kind != FRAME_ANSWER || answer->server < 0 ||
		answer->server >= check->list.nservers || answer->verdict < 0 ||
		answer->verdict > ASK_FSYNC ||
		is_first != (answer->verdict == ASK_PROGRAM))
		return false;
	if (is_first)
		check_put_fact(check, "program", "runs", 0,
					   zklock_text_printable(zklock_session_program()),
					   zklock_text_printable(text), PROTOCOL_VERSION);
	else
		put_server(check, answer->server, answer->verdict, address, text,
				   answer->us);
	return true;
}

/* What is known of a server, by a stranger's words. */
static void
put_server(Check *check, int place, AskVerdict verdict, const char *address,
		   const char *text, int64 us)
{
	const Server *server = &check->list.servers[place];
	bool		is_ipv6 = strchr(server->host, ':') != NULL;
	const char *item = psprintf(is_ipv6 ? "server [%s]:%d" : "server %s:%d",
								server->host, server->port);

	check->is_heard[place] = true;
	check->may_serve |= verdict == ASK_PROGRAM || verdict >= ASK_CLOSED;
	check_put_fact(check, item, psprintf("%d", verdict), place,
				   zklock_text_printable(address), show_said(verdict, text),
				   us);
}

/*
 * What it said, palloc'ed.  Of several lines ASCII and the ends of lines stay,
 * and all else becomes a question mark; otherwise the beginning of the first.
 */
static char *
show_said(AskVerdict verdict, const char *text)
{
	bool		has_lines = verdict >= ASK_SERVING || verdict == ASK_UNTRUSTED;
	char	   *shown;

	if (!has_lines)
	{
		shown = pnstrdup(text, Min(strcspn(text, "\r\n"), SAID_MAX));
		/* the row has what a stranger said in quotes, and no other text */
		if (verdict == ASK_STRANGER)
			return zklock_text_quotable(shown);
		return zklock_text_printable(shown);
	}
	shown = pstrdup(text);
	for (char *at = shown; *at != '\0'; at++)
	{
		if ((*at < ' ' && *at != '\n') || *at > '~')
			*at = '?';
	}
	return shown;
}
