/*-------------------------------------------------------------------------
 *
 * check_servers.c
 *	  Items of zk_check() about the servers, which a program asks without a
 *	  ZooKeeper session.
 *
 * The servers are asked by the program, not by the backend itself: neither the
 * look-up of a name nor OpenSSL is for a backend.  Whatever the program does, it is
 * waited for until a deadline, interruptibly, then killed, and reaped here.
 * What servers say is the word of strangers.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <errno.h>
#include <sys/wait.h>

#include "access/xact.h"
#include "miscadmin.h"
#include "nodes/value.h"
#include "storage/fd.h"
#include "storage/latch.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "ask.h"
#include "board.h"
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

/* How long before a certificate expires there is a warning, in days. */
#define EXPIRES_DAYS 30

/* A server whose fsync takes longer on average has a slow disk. */
#define SLOW_FSYNC_MS 100

/* A server that takes longer to answer is noted. */
#define SLOW_ANSWER_US 100000

/* syncLimit * tickTime in ZooKeeper's example of a zoo.cfg: 5 ticks of 2 s. */
#define DEFAULT_SYNC_MS 10000

/* A server's number with more digits is none. */
#define CONF_DIGITS_MAX 9

/* The end of the year 9999; PostgreSQL has dates until then, and beyond. */
#define CERTIFICATE_UNTIL_MAX INT64CONST(253402300799)

/* Until when the servers are waited for; protocol_now(). */
typedef struct Deadlines
{
	int64		until;			/* those that have not answered at all */
	int64		answered_until; /* those that have; not earlier */
} Deadlines;

/* The servers of the list, counted. */
typedef struct Counts
{
	int			named;
	int			unheard;
	int			reached;
	int			serving;
	int			without_quorum;
	int			standalone;		/* each server once, also if it is named twice */
	int			leaders;
	int			members;		/* of an ensemble: the leaders, too */
	int64		sessions;		/* of this cluster that are connected */
} Counts;

/* What the servers say to "conf", taken together; -1: not known. */
typedef struct Settings
{
	int64		min_ms;			/* session timeouts that all of them grant */
	int64		max_ms;
	int64		sync_ms;		/* syncLimit * tickTime, of no standalone one */
	int64		connections;	/* the fewest from one address; 0: any number */
	char	   *volatile_data;	/* who keeps data where a restart deletes it;
								 * or NULL */
} Settings;

static Deadlines choose_deadlines(const Check *check);
static void start_program(const Check *check, ZkChannel *channel,
						  const char *program, const Deadlines *deadlines);
pg_noreturn static void raise_not_started(const char *program, int error);
static int	read_answers(Check *check, ZkChannel *channel, int64 deadline);
pg_noreturn static void raise_no_answer(const char *program,
										ZkChannelState state, int status);
static bool take_answer(Check *check, const FrameTaken *taken, bool is_first);
static void add_answer(Check *check, int server, AskVerdict verdict,
					   const char *address, const char *text, int64 us);
static char *show_said(AskVerdict verdict, const char *text);
static char *mode_of(const char *text);
static bool is_address(const CheckAnswer *answer);
static bool only_reads(const CheckAnswer *answer);
static int	quality_of(const CheckAnswer *answer);
static int	compare_addresses(const ListCell *a, const ListCell *b);
static const CheckAnswer *find_answer(const Check *check, const CheckAnswer *of,
									  AskVerdict verdict);
static bool is_of_list(const Check *check, const char *address);
static const char *name_of(const Check *check, const char *kind, int server);
static Counts count_servers(const Check *check);
static bool is_first_of_address(const CheckAnswer *const best[], int index);
static void put_address(const Check *check, const Counts *counts,
						const CheckAnswer *answer);
static void put_serving(const Check *check, const Counts *counts,
						const CheckAnswer *answer, const char *item);
static const char *tls_remedy(const char *reason);
static void put_certificate(const Check *check, const char *item, int64 until,
							const char *what, const char *remedy);
static Settings read_settings(const Check *check);
static int64 conf_number(const char *conf, const char *setting);
static const char *find_volatile(const char *conf);
static const char *find_line(const char *text, const char *prefix);
static TimestampTz date_of(int64 until);
static char *show_date(int64 until);

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
		bool		is_heard = false;

		foreach_ptr(const CheckAnswer, answer, check->answers)
		{
			if (answer->server == i)
				is_heard = true;
		}
		if (!is_heard)
			add_answer(check, i, ASK_PROGRAM, "", "", 0);
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
			if (!take_answer(check, &taken, count == 0))
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
take_answer(Check *check, const FrameTaken *taken, bool is_first)
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
		check->library = zklock_text_printable(text);
	else
		add_answer(check, answer->server, answer->verdict, address, text,
				   answer->us);
	return true;
}

/* Keep what is known of a server, by a stranger's words. */
static void
add_answer(Check *check, int server, AskVerdict verdict, const char *address,
		   const char *text, int64 us)
{
	CheckAnswer *answer = palloc0(sizeof(CheckAnswer));

	answer->server = server;
	answer->verdict = verdict;
	answer->address = zklock_text_printable(address);
	answer->text = show_said(verdict, text);
	answer->mode = verdict == ASK_SERVING ? mode_of(answer->text) : "";
	answer->us = us;
	check->answers = lappend(check->answers, answer);
	check->may_serve |= verdict == ASK_PROGRAM || verdict >= ASK_CLOSED;
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

/* Of a reply to "srvr", palloc'ed; "": it has none. */
static char *
mode_of(const char *text)
{
	const char *mode = find_line(text, "Mode: ");

	if (mode == NULL)
		return pstrdup("");
	return pnstrdup(mode, strspn(mode, "abcdefghijklmnopqrstuvwxyz-"));
}

/* ---------------------------------------------------------------------
 * The rows
 * ---------------------------------------------------------------------
 */

void
check_tell_program(Check *check)
{
	if (check->library != NULL)
		check_put(check, "program", CHECK_OK,
				  psprintf("\"%s\" runs, protocol %d, ZooKeeper's client library %s",
						   zklock_text_printable(zklock_session_program()),
						   PROTOCOL_VERSION, check->library),
				  NULL);
}

/* Each address of each server has a row. */
void
check_tell_servers(Check *check)
{
	Counts		counts = count_servers(check);
	List	   *answers = list_copy(check->answers);

	list_sort(answers, compare_addresses);
	foreach_ptr(const CheckAnswer, answer, answers)
	{
		if (is_address(answer))
			put_address(check, &counts, answer);
	}
}

static void
put_address(const Check *check, const Counts *counts, const CheckAnswer *answer)
{
	const char *item = name_of(check, "server", answer->server);
	const char *address = answer->address;
	CheckState	state = CHECK_ERROR;	/* unless another one serves */

	if (counts->serving > 0 || counts->sessions > 0)
		state = CHECK_WARNING;
	switch (answer->verdict)
	{
		case ASK_PROGRAM:
			check_put(check, item, state, "there was no answer in time",
					  check->has_session ?
					  "Check the DNS of this machine, or name the server by its address. If it is named by its address, this machine is too busy, or zklock.ssl_passphrase_command is slow: try again." :
					  "Run zk_check(true), which waits longer. If it says the same, check the DNS of this machine, or name the server by its address. zklock.ssl_passphrase_command may be slow, too.");
			break;
		case ASK_UNRESOLVED:
			check_put(check, item, state,
					  psprintf("its name has no address: %s", answer->text),
					  "Correct the name in zklock.servers, or the DNS.");
			break;
		case ASK_UNREACHABLE:
			check_put(check, item, state,
					  psprintf("%s cannot be reached: %s", address, answer->text),
					  "Find out why the server does not run: see its log, and whether its disk is full (df on dataDir and dataLogDir). Start it, or correct its port in zklock.servers.");
			break;
		case ASK_NO_CONNECTION:
			check_put(check, item, state,
					  psprintf("%s does not answer: no connection in time", address),
					  "Check that the machine is up, and that no firewall is in between.");
			break;
		case ASK_CLOSED:
			check_put(check, item, state,
					  psprintf("%s closes connections without an answer", address),
					  "Raise its maxClientCnxns (connections from one address) or maxCnxns (all connections) if they are reached. If its disk is full (df on dataDir and dataLogDir), free space. If it wants TLS, set zklock.ssl. If it is no ZooKeeper server, correct zklock.servers.");
			break;
		case ASK_UNTRUSTED:
			check_put(check, item, state,
					  psprintf("no TLS: %s", answer->text),
					  tls_remedy(answer->text));
			break;
		case ASK_SILENT:
			check_put(check, item, state,
					  psprintf("%s accepts connections, but does not answer", address),
					  "If that is its port for TLS, set zklock.ssl. If it is another port of a ZooKeeper server, the server hangs: see its log, and restart it.");
			break;
		case ASK_STRANGER:
			check_put(check, item, CHECK_ERROR,
					  psprintf("%s is not a ZooKeeper server; it answered \"%s\"",
							   address, answer->text),
					  "Correct the port in zklock.servers.");
			break;
		case ASK_IDLE:
			check_put(check, item, state,
					  psprintf("%s is a ZooKeeper server that serves no clients", address),
					  "It has no quorum, or has just been started, or its disk is full (df on dataDir and dataLogDir). Start the other servers, and see its log.");
			break;
		case ASK_SERVING:
			put_serving(check, counts, answer, item);
			break;
		case ASK_SETTINGS:
		case ASK_ENCRYPTED:
		case ASK_REQUESTS:
		case ASK_FSYNC:
			break;				/* said besides */
	}
}

/* Of a server that answers as ZooKeeper does. */
static void
put_serving(const Check *check, const Counts *counts, const CheckAnswer *answer,
			const char *item)
{
	static const char *const kinds[][2] = {
		{"standalone", "standalone server"},
		{"read-only", "server that only reads"},
		{"leader", "leader"},
		{"follower", "follower"},
		{"observer", "observer"}
	};
	const CheckAnswer *fsync = find_answer(check, answer, ASK_FSYNC);
	const char *kind = "server of an unknown kind";
	const char *release = answer->text + strcspn(answer->text, "0123456789");
	int64		outstanding = -1;
	double		average_ms = 0;
	StringInfoData what;

	for (int i = 0; i < (int) lengthof(kinds); i++)
	{
		if (strcmp(answer->mode, kinds[i][0]) == 0)
			kind = kinds[i][1];
	}
	initStringInfo(&what);
	appendStringInfo(&what, "%s is a %s, release %.*s, answers in %.1f ms",
					 answer->address, kind,
					 (int) strspn(release, "0123456789."), release,
					 answer->us / 1000.0);
	outstanding = conf_number(answer->text, "Outstanding: ");
	if (outstanding >= 0)
		appendStringInfo(&what, ", outstanding requests: " INT64_FORMAT,
						 outstanding);
	if (fsync != NULL && conf_number(fsync->text, "zk_cnt_fsynctime?") != 0)
	{
		const char *average = find_line(fsync->text, "zk_avg_fsynctime?");
		int64		longest_ms = conf_number(fsync->text, "zk_max_fsynctime?");

		if (average != NULL && longest_ms >= 0)
		{
			average_ms = Max(0, Min(strtod(average, NULL), 1e9));
			appendStringInfo(&what, ", fsync since its start: %.1f ms on average, "
							 INT64_FORMAT " ms at most", average_ms, longest_ms);
		}
	}

	if (only_reads(answer))
		check_put(check, item,
				  counts->serving > 0 || counts->sessions > 0 ?
				  CHECK_WARNING : CHECK_ERROR,
				  what.data, "It has no quorum: start the other servers.");
	else if (average_ms > SLOW_FSYNC_MS)
		check_put(check, item, CHECK_WARNING, what.data,
				  "Its disk is slow, and each lock waits for it. Give dataLogDir a disk of its own, and find out what else writes to this disk.");
	else if (answer->us > SLOW_ANSWER_US)
		check_put(check, item, CHECK_NOTE, what.data,
				  "Check the network and the load of the server.");
	else
		check_put(check, item, CHECK_OK, what.data, NULL);
}

/* The first line that fits counts; the reason is one of program_openssl.c. */
static const char *
tls_remedy(const char *reason)
{
	static const struct
	{
		const char *words;
		const char *remedy;
	}			remedies[] = {
		{"\"zklock.ssl_cert_file\" has expired",
		"Renew the client certificate, and replace the file that zklock.ssl_cert_file names; or set the clock of this machine, or of the server, if it is wrong."},
		{" alert certificate expired",
		"Renew the client certificate, and replace the file that zklock.ssl_cert_file names; or set the clock of this machine, or of the server, if it is wrong."},
		{"Could not load file",
		"Correct that file, or the setting that names it. See docs/tls.md."},
		{"CRL",
		"Renew the lists in the file that zklock.ssl_crl_file names: it must have one in date of each authority."},
		{"certificate has expired",
		"Renew that certificate, and restart the server if it does not read the new one; or set the clock of this machine if it is wrong."},
		{"not yet valid",
		"Set the clock of this machine (NTP), or wait until that certificate is valid."},
		{"certificate revoked",
		"Give the server a new certificate, or correct the list in the file that zklock.ssl_crl_file names."},
		{"it has no subjectAltName",
		"Issue the server a certificate that has its name or address, as it stands in zklock.servers, as subjectAltName: its CN is not looked at."},
		{"is not for \"",
		"Name the server in zklock.servers as its certificate does, or issue one for that name."},
		{"is not good",
		"Let zklock.ssl_ca_file name a file with the authority that has signed the server's certificate."},
		{" alert ",
		"The server may want a client certificate of an authority that it knows: see zklock.ssl_cert_file and zklock.ssl_key_file, and the server's log."},
		{"right after the TLS handshake",
		"The server may want a client certificate of an authority that it knows: see zklock.ssl_cert_file and zklock.ssl_key_file, and the server's log."},
		{"closed the connection",
		"Name the port where it speaks TLS, its secureClientPort, in zklock.servers, or set zklock.ssl to off. Or its maxClientCnxns or maxCnxns are reached: raise them."},
		{"in the TLS handshake",
		"Name the port where it speaks TLS, its secureClientPort, in zklock.servers; or set zklock.ssl to off."},
		{"TLS with server",
		"Name the port where it speaks TLS, its secureClientPort, in zklock.servers; or set zklock.ssl to off."},
		{"Could not connect",
		"Start the server, or correct its port in zklock.servers."}
	};

	for (int i = 0; i < (int) lengthof(remedies); i++)
	{
		if (strstr(reason, remedies[i].words) != NULL)
			return remedies[i].remedy;
	}
	return "See docs/tls.md.";
}

/* When does a certificate expire?  Its text is tls_describe()'s. */
void
check_tell_certificates(Check *check)
{
	int64		client_until = 0;	/* 0: there is none */

	foreach_ptr(const CheckAnswer, answer, check->answers)
	{
		char		version[16];
		char		cipher[64];
		long long	until;
		long long	ours;
		int			subject = 0;

		if (answer->verdict != ASK_ENCRYPTED ||
			sscanf(answer->text, "%15s %63s %12lld %12lld %n",
				   version, cipher, &until, &ours, &subject) != 4 ||
			subject == 0)
			continue;
		put_certificate(check, name_of(check, "tls", answer->server), until,
						psprintf("%s speaks %s, %s; its certificate, of %s, and its authorities are valid until %s",
								 answer->address, version, cipher,
								 answer->text + subject, show_date(until)),
						"Renew what expires first: the server's certificate, or that of an authority.");
		if (ours != 0 && (client_until == 0 || ours < client_until))
			client_until = ours;
	}
	if (client_until != 0)
		put_certificate(check, "client certificate", client_until,
						psprintf("it is valid until %s", show_date(client_until)),
						"Renew it, and replace the file that zklock.ssl_cert_file names.");
}

static void
put_certificate(const Check *check, const char *item, int64 until,
				const char *what, const char *remedy)
{
	TimestampTz soon = GetCurrentTransactionStartTimestamp() +
		EXPIRES_DAYS * USECS_PER_DAY;

	if (date_of(until) < soon)
		check_put(check, item, CHECK_WARNING, what, remedy);
	else
		check_put(check, item, CHECK_OK, what, NULL);
}

void
check_tell_ensemble(Check *check)
{
	Counts		counts = count_servers(check);

	if (counts.named == 0)
		return;
	if (counts.serving == 0 && counts.sessions > 0)
		check_put(check, "ensemble", CHECK_WARNING,
				  psprintf("none of the %d servers has answered zk_check(), but ZooKeeper sessions of this cluster are connected: "
						   INT64_FORMAT, counts.named, counts.sessions),
				  "Locks of these sessions are not affected. A new ZooKeeper session may be late, or get no connection: see the rows of the servers.");
	else if (counts.reached == 0 && counts.unheard > 0)
		check_put(check, "ensemble", CHECK_ERROR,
				  psprintf("none of the %d servers has answered in time", counts.named),
				  "See the rows of the servers. Run zk_check(true), which waits longer.");
	else if (counts.reached == 0)
		check_put(check, "ensemble", CHECK_ERROR,
				  psprintf("none of the %d servers can be reached", counts.named),
				  "No lock can be taken until a server serves. See the rows of the servers.");
	else if (counts.serving == 0)
		check_put(check, "ensemble", CHECK_ERROR,
				  psprintf("none of the %d servers serves%s", counts.named,
						   counts.without_quorum > 0 ? ": no quorum" : ""),
				  "No lock can be taken until a server serves. See the rows of the servers.");
	else if (counts.standalone > 1 ||
			 (counts.standalone > 0 && counts.members > 0))
		check_put(check, "ensemble", CHECK_ERROR,
				  psprintf("the servers are not of one ensemble: %d standalone, %d members",
						   counts.standalone, counts.members),
				  "Name the servers of one ensemble in zklock.servers: the same name is another lock in each.");
	else if (counts.leaders > 1)
		check_put(check, "ensemble", CHECK_WARNING,
				  psprintf("%d of the servers are leaders: an election may be under way",
						   counts.leaders),
				  "Try again. If it stays so, zklock.servers names several ensembles: the same name is another lock in each.");
	else if (counts.serving < counts.named)
		check_put(check, "ensemble", CHECK_WARNING,
				  psprintf("only %d of %d servers serve", counts.serving, counts.named),
				  "See the rows of the other servers.");
	else if (counts.standalone == 1)
		check_put(check, "ensemble", CHECK_NOTE, "a single server",
				  "Run three servers where locks must survive the loss of one.");
	else if (counts.named == 1)
		check_put(check, "ensemble", CHECK_OK, "the one server named serves", NULL);
	else
		check_put(check, "ensemble", CHECK_OK,
				  psprintf("all %d servers serve", counts.named), NULL);
}

void
check_tell_connections(Check *check)
{
	int64		allowed = read_settings(check).connections;
	char	   *what;

	if (count_servers(check).serving == 0)
		return;
	if (allowed < 0)
	{
		check_put(check, "connections", CHECK_NOTE,
				  "how many the servers allow cannot be known: they do not answer \"conf\"",
				  "Compare maxClientCnxns (60 by default) of the servers with the sum of max_connections behind one address; or add conf to 4lw.commands.whitelist.");
		return;
	}
	if (allowed == 0)
	{
		check_put(check, "connections", CHECK_OK,
				  "the servers allow any number from an address", NULL);
		return;
	}
	what = psprintf("a server allows " INT64_FORMAT " from one address; max_connections is %d",
					allowed, MaxConnections);
	if (allowed < MaxConnections)
		check_put(check, "connections", CHECK_NOTE, what,
				  "Raise maxClientCnxns of the servers, set it to 0, or use a pooler, if so many backends may lock at a time.");
	else
		check_put(check, "connections", CHECK_OK, what, NULL);
}

/*
 * An answer has the length of the longest request that the server was seen to
 * take.  There is none of a server that could not be tried in time.
 */
void
check_tell_request_size(Check *check)
{
	int			wanted = zklock_lock_request_bytes();
	int			serving = count_servers(check).serving;
	int64		shortest = INT64_MAX;
	StringInfoData too_short;
	bool		is_known[SERVERS_MAX] = {0};
	int			known = 0;

	if (serving == 0)
		return;
	initStringInfo(&too_short);
	foreach_ptr(const CheckAnswer, answer, check->answers)
	{
		int64		taken;

		if (answer->verdict != ASK_REQUESTS)
			continue;
		taken = strtoll(answer->text, NULL, 10);
		shortest = Min(shortest, taken);
		if (taken < wanted)
			appendStringInfo(&too_short, "%s%s", too_short.len > 0 ? ", " : "",
							 answer->address);
		if (!is_known[answer->server])
			known++;
		is_known[answer->server] = true;
	}
	if (too_short.len > 0)
		check_put(check, "jute.maxbuffer", CHECK_ERROR,
				  psprintf("it is less than twice zklock.max_lock_bytes: %s takes no request of %d bytes, but one of "
						   INT64_FORMAT, too_short.data, wanted, shortest),
				  psprintf("Set zklock.max_lock_bytes to " INT64_FORMAT "kB or less wherever this ensemble is used, or raise jute.maxbuffer of all servers. The end of a session that holds more makes a transaction that the servers cannot read again: after a restart none of them starts.",
						   (shortest + 1) / 2048));
	else if (known < serving)
		check_put(check, "jute.maxbuffer", CHECK_NOTE,
				  psprintf("of some servers it could not be found out whether they take requests of %d bytes, twice zklock.max_lock_bytes",
						   wanted),
				  "Try again; or compare zklock.max_lock_bytes with jute.maxbuffer of all servers (1 MB by default), of which it may be half.");
	else
		check_put(check, "jute.maxbuffer", CHECK_OK,
				  psprintf("all servers take requests of %d bytes: twice zklock.max_lock_bytes",
						   wanted),
				  NULL);
}

/*
 * An ensemble waits for syncLimit * tickTime for a leader that hangs.  A session
 * should survive that, with a third more.
 */
void
check_tell_session_timeout(Check *check)
{
	Settings	settings = read_settings(check);
	int64		asked_ms = atoi(GetConfigOption("zklock.session_timeout", false, false));
	bool		is_too_short = 3 * asked_ms < 4 * settings.sync_ms;

	if (count_servers(check).serving == 0)
		return;
	if (settings.max_ms >= 0 &&
		(asked_ms < settings.min_ms || asked_ms > settings.max_ms))
		check_put(check, "session timeout", CHECK_WARNING,
				  psprintf(INT64_FORMAT " ms are asked for, the servers grant "
						   INT64_FORMAT " to " INT64_FORMAT " ms",
						   asked_ms, settings.min_ms, settings.max_ms),
				  "Set zklock.session_timeout to what they grant, or minSessionTimeout and maxSessionTimeout (2 and 20 ticks by default) of the servers.");
	else if (is_too_short)
		check_put(check, "session timeout", CHECK_WARNING,
				  psprintf(INT64_FORMAT " ms are less than four thirds of syncLimit * tickTime, "
						   INT64_FORMAT " ms", asked_ms, settings.sync_ms),
				  "Set zklock.session_timeout to four thirds of syncLimit * tickTime of the ensemble or more: the ensemble waits for syncLimit * tickTime for a leader that hangs.");
	else if (settings.max_ms < 0)
	{
		char	   *what = psprintf(INT64_FORMAT " ms are asked for; syncLimit and tickTime cannot be known, for the servers do not answer \"conf\"",
									asked_ms);

		if (3 * asked_ms < 4 * DEFAULT_SYNC_MS)
			check_put(check, "session timeout", CHECK_NOTE, what,
					  "Compare zklock.session_timeout with syncLimit * tickTime of the ensemble, of which it must be at least four thirds (13.4 s by default); or add conf to 4lw.commands.whitelist.");
		else
			check_put(check, "session timeout", CHECK_OK, what, NULL);
	}
	else if (settings.sync_ms >= 0)
		check_put(check, "session timeout", CHECK_OK,
				  psprintf(INT64_FORMAT " ms, at least four thirds of syncLimit * tickTime, "
						   INT64_FORMAT " ms", asked_ms, settings.sync_ms),
				  NULL);
	else
		check_put(check, "session timeout", CHECK_OK,
				  psprintf(INT64_FORMAT " ms, within what the servers grant", asked_ms),
				  NULL);
}

/*
 * A fencing token is a zxid.  If zk_fences has a greater one than the ensemble
 * has come to, the ensemble has begun anew.
 */
void
check_tell_data(Check *check)
{
	const char *volatile_data = read_settings(check).volatile_data;
	int64		token = check_read_token(check);
	bool		has_zxid = false;
	int64		come_to = 0;

	foreach_ptr(const CheckAnswer, answer, check->answers)
	{
		const char *zxid = answer->verdict != ASK_SERVING ? NULL :
			find_line(answer->text, "Zxid: 0x");

		if (zxid == NULL)
			continue;
		come_to = Max(come_to, (int64) strtoull(zxid, NULL, 16));
		has_zxid = true;
	}
	if (count_servers(check).serving == 0)
		return;
	if (has_zxid && token > come_to)
		check_put(check, "data", CHECK_ERROR,
				  psprintf("the ensemble has lost its data, or is another one: it has come to "
						   INT64_FORMAT ", and zk_fences to token " INT64_FORMAT,
						   come_to, token),
				  "Permanent holds are gone, and slots of jobs run again. See docs/operations.md, Fencing tokens and a new ensemble.");
	else if (volatile_data != NULL)
		check_put(check, "data", CHECK_WARNING,
				  psprintf("servers keep their data where a restart of the machine deletes it: %s",
						   volatile_data),
				  "Set dataDir (and dataLogDir) in zoo.cfg to a directory on a disk, and move all of the old one there, with its file myid. In Debian's /var/lib/zookeeper, myid is a link to a file with a text: write the number of the server into that file, or no member of an ensemble starts.");
	else
		check_put(check, "data", CHECK_OK, "nothing was found that would lose it",
				  NULL);
}

/*
 * Sessions at servers to which no name of zklock.servers leads.  There is no
 * row where a name has more addresses than are asked, or where its addresses
 * were not known in time: then it cannot be told.
 */
void
check_tell_moved_servers(Check *check)
{
	const ZkClientStatus *status = zklock_session_status();
	const char *own = NULL;
	int			naddresses[SERVERS_MAX] = {0};
	bool		is_known = false;
	bool		is_own_moved;
	List	   *others = NIL;
	StringInfoData names;
	int			nothers = 0;
	ZkBoardRow	row;

	if (check->asked == CHECK_ANSWERED)
		own = check->server;
	else if (status != NULL && status->state == ZK_CLIENT_CONNECTED)
		own = status->server;
	is_own_moved = own != NULL && !is_of_list(check, own);
	foreach_ptr(const CheckAnswer, answer, check->answers)
	{
		if (!is_address(answer))
			continue;
		if (answer->verdict <= ASK_UNRESOLVED ||
			++naddresses[answer->server] >= ASK_ADDRESSES_MAX)
			return;
		is_known = true;
	}
	if (!is_known)
		return;
	for (int i = 0; i < zklock_board_size(); i++)
	{
		if (!zklock_board_read_live(i, &row) || !row.session.is_open ||
			row.session.state != ZK_CLIENT_CONNECTED || row.pid == MyProcPid ||
			is_of_list(check, row.session.server))
			continue;
		nothers++;
		others = list_append_unique(others,
									makeString(zklock_text_printable(row.session.server)));
	}
	initStringInfo(&names);
	foreach_ptr(String, other, others)
		appendStringInfo(&names, "%s%s", names.len > 0 ? ", " : "", strVal(other));
	if (is_own_moved)
		check_put(check, "moved servers", CHECK_WARNING,
				  psprintf("%s, where this connection's session is, is behind no name of zklock.servers",
						   zklock_text_printable(own)),
				  "Check that server: it may be outdated, or no longer in its ensemble. When its connection ends, the session goes on at another server by itself: stop that server, or end the connection when its locks are released.");
	else if (nothers > 0)
		check_put(check, "moved servers", CHECK_NOTE,
				  psprintf("other backends whose sessions are, as far as they know, at servers behind no name of zklock.servers: %d (%s)",
						   nothers, names.data),
				  "Check these servers: they may be outdated, or no longer in their ensemble. When their connections end, the sessions go on at other servers by themselves. See zk_backends.");
}

/* ---------------------------------------------------------------------
 * What the answers say
 * ---------------------------------------------------------------------
 */

/* Is it what was found at an address, and nothing that was said besides? */
static bool
is_address(const CheckAnswer *answer)
{
	return answer->verdict <= ASK_SERVING;
}

/* It has lost its quorum, and serves reads (readonlymode.enabled). */
static bool
only_reads(const CheckAnswer *answer)
{
	return strcmp(answer->mode, "read-only") == 0;
}

/* The greater the better. */
static int
quality_of(const CheckAnswer *answer)
{
	return 2 * answer->verdict + (only_reads(answer) ? 0 : 1);
}

static int
compare_addresses(const ListCell *a, const ListCell *b)
{
	const CheckAnswer *one = lfirst(a);
	const CheckAnswer *other = lfirst(b);

	if (one->server != other->server)
		return one->server - other->server;
	return strcmp(one->address, other->address);
}

/* What the server at the same address has said besides; or NULL. */
static const CheckAnswer *
find_answer(const Check *check, const CheckAnswer *of, AskVerdict verdict)
{
	foreach_ptr(const CheckAnswer, answer, check->answers)
	{
		if (answer->verdict == verdict && answer->server == of->server &&
			strcmp(answer->address, of->address) == 0)
			return answer;
	}
	return NULL;
}

static bool
is_of_list(const Check *check, const char *address)
{
	foreach_ptr(const CheckAnswer, answer, check->answers)
	{
		if (strcmp(answer->address, address) == 0)
			return true;
	}
	return false;
}

/* The item of a server, as zklock.servers names it. */
static const char *
name_of(const Check *check, const char *kind, int server)
{
	const Server *named = &check->list.servers[server];

	if (strchr(named->host, ':') != NULL)
		return psprintf("%s [%s]:%d", kind, named->host, named->port);
	return psprintf("%s %s:%d", kind, named->host, named->port);
}

/*
 * Each server of the list is as good as the best of its addresses.  It may be in
 * the list under several names.
 */
static Counts
count_servers(const Check *check)
{
	const CheckAnswer *best[SERVERS_MAX] = {0};
	Counts		counts = {0};

	foreach_ptr(const CheckAnswer, answer, check->answers)
	{
		const CheckAnswer **so_far = &best[answer->server];

		if (is_address(answer) &&
			(*so_far == NULL || quality_of(answer) > quality_of(*so_far)))
			*so_far = answer;
	}
	for (int i = 0; i < SERVERS_MAX; i++)
	{
		const CheckAnswer *answer = best[i];

		if (answer == NULL)
			continue;
		counts.named++;
		counts.unheard += answer->verdict == ASK_PROGRAM;
		counts.reached += answer->verdict >= ASK_CLOSED;
		counts.serving += answer->verdict == ASK_SERVING && !only_reads(answer);
		counts.without_quorum += answer->verdict == ASK_IDLE || only_reads(answer);
		if (!is_first_of_address(best, i))
			continue;
		counts.standalone += strcmp(answer->mode, "standalone") == 0;
		counts.leaders += strcmp(answer->mode, "leader") == 0;
		counts.members += strcmp(answer->mode, "leader") == 0 ||
			strcmp(answer->mode, "follower") == 0 ||
			strcmp(answer->mode, "observer") == 0;
	}
	/* one that does not answer its own questions is no proof that a server serves */
	if (check->asked != CHECK_LATE)
		counts.sessions = check->nconnected;
	return counts;
}

static bool
is_first_of_address(const CheckAnswer *const best[], int index)
{
	for (int i = 0; i < index; i++)
	{
		if (best[i] != NULL && strcmp(best[i]->address, best[index]->address) == 0)
			return false;
	}
	return true;
}

static Settings
read_settings(const Check *check)
{
	Settings	settings = {-1, -1, -1, -1, NULL};
	StringInfoData volatile_data;

	initStringInfo(&volatile_data);
	foreach_ptr(const CheckAnswer, answer, check->answers)
	{
		const CheckAnswer *conf;
		const char *directory;
		int64		tick_ms;
		int64		limit;
		int64		max_ms;
		int64		connections;

		if (answer->verdict != ASK_SERVING)
			continue;
		conf = find_answer(check, answer, ASK_SETTINGS);
		if (conf == NULL)
			continue;
		settings.min_ms = Max(settings.min_ms,
							  conf_number(conf->text, "minSessionTimeout="));
		max_ms = conf_number(conf->text, "maxSessionTimeout=");
		if (max_ms >= 0 && (settings.max_ms < 0 || max_ms < settings.max_ms))
			settings.max_ms = max_ms;
		tick_ms = conf_number(conf->text, "tickTime=");
		limit = conf_number(conf->text, "syncLimit=");
		if (strcmp(answer->mode, "standalone") != 0 && tick_ms >= 0 && limit >= 0)
			settings.sync_ms = Max(settings.sync_ms, tick_ms * limit);
		connections = conf_number(conf->text, "maxClientCnxns=");
		/* 0 is any number */
		if (connections > 0 &&
			(settings.connections <= 0 || connections < settings.connections))
			settings.connections = connections;
		else if (connections == 0)
			settings.connections = Max(settings.connections, 0);
		directory = find_volatile(conf->text);
		if (directory != NULL)
			appendStringInfo(&volatile_data, "%s%s in %s",
							 volatile_data.len > 0 ? ", " : "",
							 answer->address, directory);
	}
	if (volatile_data.len > 0)
		settings.volatile_data = volatile_data.data;
	return settings;
}

/* The number behind such a beginning of a line; -1: there is none. */
static int64
conf_number(const char *conf, const char *setting)
{
	const char *value = find_line(conf, setting);
	size_t		ndigits;

	if (value == NULL)
		return -1;
	ndigits = strspn(value, "0123456789");
	if (ndigits == 0 || ndigits > CONF_DIGITS_MAX)
		return -1;
	return strtoll(value, NULL, 10);
}

/* A directory of a server's where nothing stays, palloc'ed; or NULL. */
static const char *
find_volatile(const char *conf)
{
	static const char *const settings[] = {"dataDir=", "dataLogDir="};
	static const char *const places[] = {"/tmp/", "/run/", "/var/run/", "/dev/shm/"};

	for (int i = 0; i < (int) lengthof(settings); i++)
	{
		const char *directory = find_line(conf, settings[i]);

		for (int k = 0; directory != NULL && k < (int) lengthof(places); k++)
		{
			if (strncmp(directory, places[k], strlen(places[k])) == 0)
				return pnstrdup(directory, strcspn(directory, "\n"));
		}
	}
	return NULL;
}

/* What stands behind such a beginning of a line, the first one; or NULL. */
static const char *
find_line(const char *text, const char *prefix)
{
	for (const char *line = text; line != NULL; line = strchr(line, '\n'))
	{
		if (*line == '\n')
			line++;
		if (strncmp(line, prefix, strlen(prefix)) == 0)
			return line + strlen(prefix);
	}
	return NULL;
}

/* A date of a certificate, in seconds since 1970. */
static TimestampTz
date_of(int64 until)
{
	return time_t_to_timestamptz((pg_time_t) Min(until, CERTIFICATE_UNTIL_MAX));
}

static char *
show_date(int64 until)
{
	return pstrdup(timestamptz_to_str(date_of(until)));
}
