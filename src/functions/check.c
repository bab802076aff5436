/*-------------------------------------------------------------------------
 *
 * check.c
 *	  The facts that zk_check() tells: of the program, the servers, the
 *	  credentials, and what only a session knows.
 *
 * What they mean, and what helps, is decided in SQL, in zk_check() itself.
 *
 * The one rule: it raises for interrupts alone, and not for that of a loss.
 * Each step runs in a subtransaction of its own, and an error that it meets
 * becomes a fact.  A session with locks that is lost stays as it is.
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

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "storage/latch.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/resowner.h"
#include "utils/timestamp.h"

#include "args.h"
#include "ask.h"
#include "auth.h"
#include "channel.h"
#include "compat.h"
#include "expiry.h"
#include "lock.h"
#include "lock_proof.h"
#include "name.h"
#include "nested.h"
#include "nodedata.h"
#include "recipe.h"
#include "roundtrip.h"
#include "session.h"
#include "text.h"
#include "write.h"

PG_FUNCTION_INFO_V1(zk_check_facts);

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

/* Below how many znodes in the root it is looked for unused ones, too. */
#define UNUSED_PARENTS 4

/* Most of what a stranger replied that is shown, in bytes. */
#define SAID_MAX 160

/* A call under way. */
typedef struct Check
{
	ReturnSetInfo *result;
	bool		has_session;	/* may one be opened? */
	int64		deadline;		/* protocol_now(); of everything */
	ServerList	list;
	bool		is_heard[SERVERS_MAX];	/* what was said of that server came in
										 * time */
	int			nlistening;		/* addresses at which anything listens */

	/* the questions that only a session answers */
	bool		is_late;		/* the deadline came first */
	ZkRequest  *making;			/* to be withdrawn; NULL: none is */
} Check;

/* One thing that is looked at, and puts facts.  May raise. */
typedef void (*CheckStep) (Check *check);

static void run_step(Check *check, const char *item, CheckStep step);
static void put_fact(const Check *check, const char *item, const char *fact,
					 int place, const char *subject, const char *value,
					 int64 number);
static void check_credentials(Check *check);
static void ask_servers(Check *check);
static bool put_trouble(const Check *check);
static void check_session(Check *check);
static int	read_answers(Check *check, ZkChannel *channel, int64 deadline);
pg_noreturn static void raise_no_answer(const char *program,
										ZkChannelState state, int status);
static bool put_answer(Check *check, const FrameTaken *taken, bool is_first);
static void put_server(Check *check, int place, AskVerdict verdict,
					   const char *address, const char *text, int64 us);
static bool talk(ZkRoundTrip *trip, void *argument);
static bool put_node(ZkRoundTrip *trip, Check *check, const char *item,
					 const char *path);
static bool try_to_make(ZkRoundTrip *trip, Check *check, const char *root);
static void put_siblings(ZkRoundTrip *trip, const Check *check,
						 const char *root);
static void put_unused(ZkRoundTrip *trip, const Check *check, const char *root);
static int	find_unused(ZkRoundTrip *trip, const Check *check,
						const char *parent, List **unused, List **used);
static void put_leases(ZkRoundTrip *trip, const Check *check, const char *root);
static void put_reply(const Check *check, const char *item,
					  const char *path, const ZkReply *reply);
static void put_clock(const Check *check, TimestampTz theirs,
					  TimestampTz before, TimestampTz after);
static void forget(void *argument);
static bool is_lost(Check *check, const ZkReply *reply);

Datum
zk_check_facts(PG_FUNCTION_ARGS)
{
	Check		check = {
		.result = zklock_args_begin_rows(fcinfo),
		.has_session = PG_GETARG_BOOL(0),
		.deadline = protocol_now() +
		atoi(GetConfigOption("zklock.connect_timeout", false, false))
	};
	ZkClientStatus status;

	if (zklock_session_status(&status) && status.nrefused > 0)
		put_fact(&check, "releases", NULL, 0, NULL, NULL, status.nrefused);
	zklock_session_interrupt_on_loss(false);
	run_step(&check, "program", ask_servers);
	run_step(&check, "credentials", check_credentials);
	if (!put_trouble(&check) && check.has_session && check.list.nservers > 0)
		run_step(&check, "session", check_session);
	if (zklock_has_locks() && zklock_session_live() != 0)
		zklock_session_interrupt_on_loss(true);
	return (Datum) 0;
}

static void
run_step(Check *check, const char *item, CheckStep step)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ErrorData  *volatile error = NULL;

	CHECK_FOR_INTERRUPTS();
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		step(check);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	if (error == NULL)
		return;

	/* interrupts are not ours to keep */
	if (error->sqlerrcode == ERRCODE_QUERY_CANCELED)
		ReThrowError(error);
	put_fact(check, item, "error", 0, error->hint,
			 psprintf("%s%s%s (SQLSTATE %s)",
					  error->message != NULL ? error->message : "",
					  error->detail != NULL ? ": " : "",
					  error->detail != NULL ? error->detail : "",
					  unpack_sql_state(error->sqlerrcode)), 0);
	FreeErrorData(error);
}

/* A row; see the comment on _zk_check_facts().  All texts may be NULL. */
static void
put_fact(const Check *check, const char *item, const char *fact, int place,
		 const char *subject, const char *value, int64 number)
{
	ZkRow		row = {0};

	zklock_row_add_text(&row, item);
	zklock_row_add_text(&row, fact);
	zklock_row_add(&row, true, Int32GetDatum(place));
	zklock_row_add_text(&row, subject);
	zklock_row_add_text(&row, value);
	zklock_row_add(&row, true, Int64GetDatum(number));
	zklock_row_put(check->result, &row);
}

/*
 * Are there any?  Reading them may fail, or they must not go to these servers;
 * that is a fact, too.
 */
static void
check_credentials(Check *check)
{
	char	   *scheme = NULL;
	char	   *credentials = NULL;

	zklock_session_check_secret();
	zklock_auth_read(&scheme, &credentials);
	if (scheme != NULL)
		explicit_bzero(credentials, strlen(credentials));
	put_fact(check, "credentials", scheme == NULL ? "none" : "set", 0,
			 scheme == NULL ? NULL : zklock_text_quotable_own(scheme),
			 NULL, 0);
}

/* ---------------------------------------------------------------------
 * The servers, asked without a session
 * ---------------------------------------------------------------------
 */

/*
 * By the program.  Takes at most PROGRAM_EXTRA_MS more than the servers have.
 * No process is left behind, but by a backend that is terminated: that one
 * ends by itself.
 */
static void
ask_servers(Check *check)
{
	const char *servers = GetConfigOption("zklock.servers", false, false);
	const char *program = zklock_session_program();
	char	   *tls = zklock_session_tls();
	int			left = (int) (check->deadline - protocol_now());
	int64		until = protocol_now() +
		(!check->has_session ? ANSWER_MS :
		 Min(ANSWER_FULL_MS, Max(left / 2, 100)));
	/* a server that answers is given more time, a dead one is not */
	int64		answered_until = !check->has_session ? until :
		Max(until, protocol_now() + left / 2);
	const Frame frame = {
		.kind = FRAME_ASK,.u.ask = {until, answered_until,
		check->has_session ? zklock_lock_request_bytes() : 0}
	};
	const FrameBlob blobs[FRAME_NBLOBS] = {
		frame_text(servers), frame_text(tls)
	};
	ZkChannel	channel = {0};
	char		why[SERVERS_WHY_SIZE];
	int			error = ENOMEM;
	volatile int nanswers = 0;
	volatile int status = 0;

	if (!servers_parse(servers, &check->list, why))
		return;
	if (!AcquireExternalFD())
		error = EMFILE;
	else if (frame_put(&channel.out, &frame, blobs) &&
			 zklock_channel_open(&channel, program, "zklock: asks servers"))
		error = 0;
	else
	{
		error = errno;
		ReleaseExternalFD();
		frame_buffer_free(&channel.out);
	}
	errno = error;
	if (error != 0)
		ereport(ERROR,
				(errcode(ERRCODE_SYSTEM_ERROR),
				 errmsg("\"%s\" could not be started: %m",
						zklock_text_printable(program)),
				 error == ENOENT ?
				 errhint("Install zklock again: the program belongs beside zklock.so.") :
				 error == EACCES || error == EPERM ?
				 errhint("Make it executable for the server's user; look for a noexec mount, SELinux or AppArmor.") :
				 errhint("See the limits of processes and descriptors (docs/background.md, Processes).")));
	PG_TRY();
	{
		zklock_channel_flush(&channel);
		nanswers = read_answers(check, &channel,
								answered_until + PROGRAM_EXTRA_MS);
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
		if (!check->is_heard[i])
			put_server(check, i, ASK_PROGRAM, "", "", 0);
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
				 errhint("The files were replaced under a running server: restart it.")));
	ereport(ERROR,
			(errcode(ERRCODE_SYSTEM_ERROR),
			 state == ZK_CHANNEL_OPEN ?
			 errmsg("\"%s\" was started and has not said a word in time",
					shown) :
			 WIFEXITED(status) && WEXITSTATUS(status) == 127 ?
			 errmsg("\"%s\" could not be executed: a library that it needs is missing",
					shown) :
			 errmsg("\"%s\" was started and has ended without a word", shown),
			 state == ZK_CHANNEL_OPEN ?
			 errhint("Try again when the machine is less busy, and look for a security policy that holds the program up.") :
			 errhint("See whether ldd finds all its libraries, and install ZooKeeper's client library (libzookeeper-st2).")));
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
		answer->verdict > ASK_REQUESTS ||
		is_first != (answer->verdict == ASK_PROGRAM))
		return false;
	if (is_first)
		put_fact(check, "program", "runs", 0,
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
	bool		has_lines = verdict >= ASK_SERVING || verdict == ASK_UNTRUSTED;
	char	   *shown = pstrdup(text);

	/* ASCII and ends of lines stay; all else becomes a question mark */
	for (char *at = shown; has_lines && *at != '\0'; at++)
		if ((*at < ' ' && *at != '\n') || *at > '~')
			*at = '?';
	if (!has_lines)
		shown = zklock_text_quotable(pnstrdup(text, Min(strcspn(text, "\r\n"),
															SAID_MAX)));
	check->is_heard[place] = true;
	check->nlistening += verdict >= ASK_CLOSED;
	put_fact(check, psprintf(strchr(server->host, ':') != NULL ?
							 "server [%s]:%d" : "server %s:%d", server->host,
							 server->port),
			 psprintf("%d", verdict), place,
			 zklock_text_printable(address), shown, us);
}

/* ---------------------------------------------------------------------
 * What only a session can tell
 * ---------------------------------------------------------------------
 */

/*
 * Is a lock lost, or is the session on which locks hang not connected?  Then
 * that is the fact, and the ensemble is not asked: it would be by another
 * session.
 */
static bool
put_trouble(const Check *check)
{
	ZkClientStatus status;
	ZkLoss		loss;

	zklock_session_look();
	if (zklock_describe_loss(&loss))
		put_fact(check, "session", "lost", 0, loss.hint,
				 psprintf("%s: %s", loss.message, loss.detail), 0);
	else if (zklock_has_locks() && zklock_session_status(&status) &&
			 status.state == ZK_CLIENT_SUSPENDED)
		put_fact(check, "session", "suspended", 0, NULL, NULL, 0);
	else
		return false;
	return true;
}

/*
 * It is the backend's own, which stays.  Whether locks can be taken is tried:
 * an ephemeral znode is made in the root, and taken away at once.
 */
static void
check_session(Check *check)
{
	bool		was_there = zklock_session_number() != 0;
	int64		start = protocol_now();
	ZkClientStatus status;

	if (!was_there && check->nlistening == 0)
	{
		put_fact(check, "session", "not tried", 0, NULL, NULL, 0);
		return;
	}
	zklock_roundtrip_run(talk, forget, check);
	if (check->is_late && !put_trouble(check))
	{
		put_fact(check, "session", zklock_session_id() != 0 ?
				 "late" : "not granted", 0, NULL, NULL, 0);
		if (!was_there && zklock_session_id() == 0)
			zklock_session_close(0);
	}
	else if (!check->is_late && zklock_session_status(&status))
		put_fact(check, "session", zklock_session_can_hand_over() ?
				 "identity" : "no identity", status.session_timeout_ms,
				 zklock_text_printable(status.server), NULL,
				 protocol_now() - start);
}

/* All questions; false if the session was lost on the way. */
static bool
talk(ZkRoundTrip *trip, void *argument)
{
	Check	   *check = argument;
	const char *chroot_path;
	char	   *root;
	int			root_length;

	check->is_late = false;
	trip->deadline = check->deadline;
	trip->by = ZK_BY_CALLER;

	/* the paths belong to the session */
	chroot_path = zklock_session_chroot();
	root = zklock_name_path("check", &root_length);
	root[root_length] = '\0';

	if ((chroot_path[0] != '\0' &&
		 !put_node(trip, check, "chroot", chroot_path)) ||
		!put_node(trip, check, "root", root_length == 0 ? "/" : root))
		return check->is_late;
	put_siblings(trip, check, root);
	put_leases(trip, check, root);
	put_unused(trip, check, root);
	return true;
}

/* What a znode is; of the root, unless there is none, what can be done there. */
static bool
put_node(ZkRoundTrip *trip, Check *check, const char *item, const char *path)
{
	const ZkReply *reply = zklock_roundtrip_read(trip, ZK_GET, path);

	if (is_lost(check, reply))
		return false;
	put_reply(check, item, path, reply);
	if (reply->result == ZK_OK && reply->ephemeral_owner != 0)
		put_fact(check, item, "ephemeral", 0, zklock_text_quotable(path),
				 zklock_args_session_id(reply->ephemeral_owner), 0);
	if (reply->result == ZK_NO_NODE || strcmp(item, "root") != 0)
		return true;
	reply = zklock_roundtrip_read(trip, ZK_GET_ACL, path);
	if (is_lost(check, reply))
		return false;
	put_reply(check, "acl", path, reply);
	return try_to_make(trip, check, path);
}

/*
 * Make a znode in the root, and take it away.  Its name ends as those of
 * requests to release a lock do: no lock has such a one.
 */
static bool
try_to_make(ZkRoundTrip *trip, Check *check, const char *root)
{
	char		guid[RECIPE_GUID_LEN + 1];
	char	   *data = zklock_nodedata_build(0, NULL);
	TimestampTz before = GetCurrentTimestamp();
	const ZkReply *reply;
	char	   *path;

	zklock_nodedata_make_guid(guid);
	path = psprintf("%s/%s" ZK_RELEASE_SUFFIX,
					strcmp(root, "/") == 0 ? "" : root, guid);
	check->making = zklock_write_create(ZK_WRITE_BOUNDED, path, ZK_EPHEMERAL,
										data);
	reply = zklock_roundtrip_await(trip, check->making);
	if (is_lost(check, reply))
		return false;
	put_reply(check, "writing", root, reply);
	if (reply->result == ZK_OK)
		put_clock(check, zklock_nodedata_date(reply->ctime_ms), before,
				  GetCurrentTimestamp());
	forget(check);

	/* at the deadline it is undone later */
	(void) zklock_session_await_undone(trip->deadline);
	return true;
}

/*
 * What zklock has made beside the root, and beside each znode above it: data
 * of ours are in roots and what is above them (see
 * zklock_roundtrip_make_parents()), and in queue nodes.
 */
static void
put_siblings(ZkRoundTrip *trip, const Check *check, const char *root)
{
	for (const char *slash = root; slash != NULL && *slash != '\0';
		 slash = strchr(slash + 1, '/'))
	{
		const ZkSample *sample =
			zklock_roundtrip_begin_sample(trip,
										  pnstrdup(root, Max(slash - root, 1)),
										  (int) (check->deadline - protocol_now()));

		for (int i = 0; i < sample->nnodes; i++)
		{
			const ZkReply *reply = zklock_roundtrip_await_sample(sample, i);
			const char *path = sample->paths[i];
			const char *name = strrchr(path, '/') + 1;
			size_t		length = strlen(path);
			ZkNodeData	who = {0};

			if (reply != NULL && reply->result == ZK_OK)
				zklock_nodedata_parse(reply->data, reply->data_length, &who);
			if (who.client != NULL && !zklock_name_is_reserved(name) &&
				recipe_parse_node(name).style == RECIPE_STYLE_NONE &&
				!(strncmp(path, root, length) == 0 &&
				  (root[length] == '/' || root[length] == '\0')))
				put_fact(check, "sibling", "found", 0,
						 zklock_text_quotable(path),
						 zklock_nodedata_describe(&who), 0);
		}
	}
}

/*
 * Of some znodes of locks and what is above them: how many never had a child,
 * of how many.  A container is one whose maker was killed before the first
 * child, and the server does not remove it.  One that is being used just now
 * has its child by the second look.
 */
static void
put_unused(ZkRoundTrip *trip, const Check *check, const char *root)
{
	List	   *unused = NIL;
	List	   *used = NIL;
	List	   *below = NIL;
	const char *first = NULL;
	int			nfound = find_unused(trip, check, root, &unused, &used);
	int			nunused = 0;

	for (int i = 0; i < Min(list_length(used), UNUSED_PARENTS); i++)
		nfound += find_unused(trip, check, list_nth(used, i), &unused, &below);
	foreach_ptr(const char, path, unused)
	{
		const ZkReply *reply = zklock_roundtrip_read(trip, ZK_GET, path);

		if (reply == NULL || reply->result != ZK_OK || reply->nchanges != 0)
			continue;
		nunused++;
		first = path;
	}
	put_fact(check, "containers", "counted", nunused,
			 first == NULL ? NULL : zklock_text_quotable(first), NULL,
			 nfound);
}

/*
 * Add the paths of some znodes below the parent to those that have, or had
 * children, or to those that never did.  Queue nodes and what zklock has
 * besides locks are left out.  Result: how many there were.
 */
static int
find_unused(ZkRoundTrip *trip, const Check *check, const char *parent,
			List **unused, List **used)
{
	const ZkSample *sample =
		zklock_roundtrip_begin_sample(trip, parent,
									  (int) (check->deadline - protocol_now()));
	int			nfound = 0;

	for (int i = 0; i < sample->nnodes; i++)
	{
		const ZkReply *reply = zklock_roundtrip_await_sample(sample, i);
		const char *path = sample->paths[i];
		const char *name = strrchr(path, '/') + 1;
		List	  **list;

		if (reply == NULL || reply->result != ZK_OK ||
			reply->ephemeral_owner != 0 || zklock_name_is_reserved(name) ||
			strcmp(path, "/zookeeper") == 0 ||
			(recipe_parse_node(name).style != RECIPE_STYLE_NONE &&
			 !zklock_nested_is_lock(name, reply)))
			continue;
		nfound++;
		list = reply->nchanges != 0 ? used : unused;
		*list = lappend(*list, pstrdup(path));
	}
	return nfound;
}

/* Of some locks that have leases the first one: for how long is it over? */
static void
put_leases(ZkRoundTrip *trip, const Check *check, const char *root)
{
	ZkSample   *sample =
		zklock_roundtrip_begin_sample(trip,
									  psprintf("%s/" ZK_LEASES_NAME, root),
									  (int) (check->deadline - protocol_now()));

	for (int i = 0; i < sample->nnodes; i++)
	{
		const char *path =
			zklock_name_leased_path(root, strrchr(sample->paths[i], '/') + 1);
		const ZkReply *list = path == NULL ? NULL :
			zklock_roundtrip_read(&sample->trip, ZK_LIST, path);
		List	   *nodes = list == NULL ? NIL :
			zklock_expiry_nodes(list->children, list->nchildren);
		List	   *leased;

		/* what is not there in time is not told */
		(void) zklock_expiry_read(&sample->trip, path,
								  list_truncate(nodes, 1), &leased);
		foreach_ptr(const ZkLeased, first, leased)
			put_fact(check, "leases", "first", 0,
					 zklock_text_quotable(path + strlen(root) + 1),
					 first->who.owner == NULL ? NULL :
					 zklock_text_quotable(first->who.owner),
					 protocol_moment().wall_ms - first->mtime_ms - first->ttl_ms);
	}
}

static void
put_reply(const Check *check, const char *item, const char *path,
		  const ZkReply *reply)
{
	const char *code = reply->code_text != NULL ? reply->code_text : "";

	put_fact(check, item,
			 reply->result == ZK_NO_NODE ? "no node" :
			 reply->result == ZK_NO_AUTH ? "denied" :
			 reply->result == ZK_QUOTA_EXCEEDED ? "quota" :
			 reply->result == ZK_LOCAL_SESSION ? "local" :
			 reply->result != ZK_OK ? "failed" :
			 reply->is_open ? "open" : "done",
			 reply->nbelow, zklock_text_quotable(path),
			 zklock_text_printable(code), reply->ctime_ms);
}

/*
 * How far the ensemble's clock, the leader's, is ahead of ours at least: it
 * was read between two looks at ours, and says milliseconds.
 */
static void
put_clock(const Check *check, TimestampTz theirs, TimestampTz before,
		  TimestampTz after)
{
	put_fact(check, "clock", "read", (int) (after - before), NULL, NULL,
			 (theirs > after ? theirs - after :
			  theirs < before - 1000 ? theirs - before : 0) / 1000);
}

/* At the end of each attempt; also if it raises. */
static void
forget(void *argument)
{
	Check	   *check = argument;

	if (check->making != NULL)
		zklock_client_withdraw(check->making);
	check->making = NULL;
}

/* Is there no answer, for it is late or the session is over? */
static bool
is_lost(Check *check, const ZkReply *reply)
{
	bool		is_gone = reply == NULL || reply->result == ZK_SESSION_LOST;

	check->is_late = reply == NULL || (is_gone && zklock_has_locks());
	return is_gone;
}
