/*-------------------------------------------------------------------------
 *
 * session.c
 *	  This backend's ZooKeeper session, as PostgreSQL sees it: settings, the
 *	  one wait loop, deadlines, interrupts, and errors.
 *
 * The one rule: every wait of zklock for the ensemble goes through wait_for(),
 * which ends at an interrupt, at a deadline, and when the session is lost.
 * This end of the session lives in malloc'ed memory of client.c; the wait
 * event set lives in TopMemoryContext as long as the session.
 *
 *-------------------------------------------------------------------------
 */
#include "session.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/parallel.h"
#include "access/xact.h"
#include "common/hashfn.h"
#include "common/pg_prng.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "replication/walsender.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

#include "identity.h"
#include "neighbor.h"
#include "ready.h"
#include "recipe.h"
#include "servers.h"

/* The session's program, which is installed beside this library. */
#define PROGRAM_NAME "zklock-session"

/*
 * How long the end of a backend waits for its session to be closed.  A healthy
 * server takes a few milliseconds; past this the session's program does it
 * alone.
 */
#define EXIT_CLOSE_MS 200

/* How long a session is waited for that is closed because settings changed. */
#define CLOSE_MS 500

/*
 * How long a new session gives one server to answer before it turns to the
 * next one.  The client library would wait two thirds of the session timeout
 * for a machine that is switched off, as long as zklock.connect_timeout.
 */
#define SERVER_ATTEMPT_MS 3000

/*
 * zklock.servers: where the ensemble is.  Read when a session is opened; a
 * change takes effect with the next session.
 */
static char *servers_setting;

/* zklock.session_timeout: milliseconds, asked of the ensemble, which clamps it. */
static int	session_timeout_setting;

/* zklock.connect_timeout: milliseconds until the first connection is given up. */
static int	connect_timeout_setting;

/*
 * zklock.auth: "scheme:credentials", or "@/path/of/a/file" that holds that
 * line.  The file keeps the secret out of the server's log, where a reload
 * shows every changed setting.
 */
static char *auth_setting;

/* Values of zklock.on_lock_loss. */
typedef enum OnLockLoss
{
	LOSS_CANCEL,				/* cancel the running statement */
	LOSS_WAIT					/* learn of it at the next use or commit */
} OnLockLoss;

/*
 * zklock.on_lock_loss: what to do about a statement that runs when a lock of
 * its session is lost.  A change takes effect with the next lock granted.
 */
static int	on_lock_loss = LOSS_CANCEL;

static const struct config_enum_entry on_lock_loss_options[] = {
	{"cancel", LOSS_CANCEL, false},
	{"wait", LOSS_WAIT, false},
	{NULL, 0, false}
};

/*
 * Every session has an identity of its own, a random password, so that its queue
 * nodes can be handed over (contend.c); save for those with credentials of another
 * scheme.  Has the ensemble refused that?  It may have digest authentication
 * disabled.
 */
static bool identity_refused;
static bool has_private_identity;	/* has the current session one? */
static bool has_credentials;	/* and those of zklock.auth? */

/* Has a setting changed that the current session was opened with? */
static bool settings_changed;

/* The current session, NULL if there is none. */
static ZkClient *client;

/*
 * Is the current session not to be used again?  Set where an error leaves
 * while requests may be outstanding; zklock_session_reap() closes it.
 */
static bool given_up;

/* Its number; of the last one if there is none. */
static ZkSessionNumber session_number;

/* When a session that has never been connected is given up, after how long. */
static int64 connect_deadline;
static int	connect_bound_ms;

/*
 * Which server a new session tries first, and until when; counted on from a
 * random start, so that the backends spread over the servers.
 */
static unsigned first_server;
static int	nattempts;
static int64 attempt_until;

/* Chroot part of the servers, valid while there is a session. */
static char session_chroot[sizeof(((ServerList *) 0)->chroot)];

/* When and why the last lost session was lost; valid once one was. */
static TimestampTz lost_since;
static TimestampTz loss_noticed_at;
static char loss_text[256];

/* The set that every wait of the session uses: latch, its program, postmaster. */
static WaitEventSet *wait_set;

/* Path of the session's program. */
static char program_path[MAXPGPATH];

/* What a request on a lost session brought. */
static const ZkReply lost_reply = {.result = ZK_SESSION_LOST};

static ZkWaitEnd wait_for(ZkRequest *request, bool (*is_over) (void),
						  int64 deadline, ZkWaitReason reason);
static void note_refusal(const ZkClientStatus *status);
static void refuse_wrong_process(void);
static void prepare_once(void);
static void find_program(void);
static void start_session(void);
static void choose_auth(ZkClientOptions *options);
static void open_client(const ZkClientOptions *options);
static void fill_in_options(ZkClientOptions *options);
static bool adopt_session(const ZkClientOptions *options);
static void forget_credentials(const ZkClientOptions *options);
static uint64 hash_of(const char *text);
static void make_wait_set(void);
static char *make_identity(void);
static void read_auth(char **scheme, char **credentials);
static char *read_auth_file(const char *path);
static void warn_of_readers(const char *path, int file);
static void raise_if_lost(const ZkClientStatus *status);
pg_noreturn static void raise_not_connected(void);
static void note_loss(const ZkClientStatus *status);
static const char *connection_hint(const char *error);
static void close_at_exit(int code, Datum arg);
static bool check_servers(char **newval, void **extra, GucSource source);
static bool check_auth(char **newval, void **extra, GucSource source);
static bool is_stored_in_catalog(GucSource source);
static void assign_servers(const char *newval, void *extra);
static void assign_auth(const char *newval, void *extra);
static void assign_session_timeout(int newval, void *extra);
static const char *show_auth(void);
static bool is_silent(void);
static bool is_undone(void);
static bool has_watch_news(void);
static bool is_never_over(void);
static int	milliseconds_until(int64 when, int64 now);
static uint32 wait_event_of(ZkWaitReason reason);

/* ---------------------------------------------------------------------
 * Public functions
 * ---------------------------------------------------------------------
 */

void
zklock_session_init(void)
{
	DefineCustomStringVariable("zklock.servers",
							   "ZooKeeper servers that zklock uses.",
							   "host:port,host:port[/chroot]; IPv6 addresses in brackets.",
							   &servers_setting, "",
							   PGC_SUSET, 0,
							   check_servers, assign_servers, NULL);
	DefineCustomIntVariable("zklock.session_timeout",
							"Session timeout asked of the ensemble.",
							"Should exceed syncLimit * tickTime of the ensemble.",
							&session_timeout_setting, 15000, 1000, 3600000,
							PGC_SUSET, GUC_UNIT_MS,
							NULL, assign_session_timeout, NULL);
	DefineCustomIntVariable("zklock.connect_timeout",
							"Longest time to wait for a connection to the ensemble.",
							NULL,
							&connect_timeout_setting, 10000, 100, 3600000,
							PGC_USERSET, GUC_UNIT_MS,
							NULL, NULL, NULL);
	DefineCustomStringVariable("zklock.auth",
							   "Credentials for ZooKeeper.",
							   "scheme:credentials, or @ and the path of a file with that line.",
							   &auth_setting, "",
							   PGC_SUSET,
							   GUC_SUPERUSER_ONLY | GUC_NO_SHOW_ALL |
							   GUC_NOT_IN_SAMPLE,
							   check_auth, assign_auth, show_auth);
	DefineCustomEnumVariable("zklock.on_lock_loss",
							 "What happens to a running statement when a lock is lost.",
							 "cancel, or wait until the next use of a lock or the commit.",
							 &on_lock_loss, LOSS_CANCEL, on_lock_loss_options,
							 PGC_SUSET, 0,
							 NULL, NULL, NULL);
}

void
zklock_session_open(bool is_retry)
{
	ZkClientStatus status;

	refuse_wrong_process();
	prepare_once();
	zklock_session_reap();
	if (!is_retry)
	{
		connect_bound_ms = connect_timeout_setting;
		connect_deadline = zklock_client_now() + connect_bound_ms;
		nattempts = 0;
	}
	if (client == NULL)
		start_session();
	zklock_client_status(client, &status);
	if (!status.was_connected)
		raise_if_lost(&status);
}

bool
zklock_session_is_turning(void)
{
	ZkClientStatus status;

	if (zklock_session_status(&status))
		note_refusal(&status);
	return given_up;
}

void
zklock_session_interrupt_on_loss(bool is_wanted)
{
	if (client != NULL)
		zklock_client_interrupt_on_loss(client, is_wanted &&
										on_lock_loss == LOSS_CANCEL);
}

void
zklock_session_adopt_settings(void)
{
	if (client != NULL && settings_changed)
		zklock_session_close(CLOSE_MS);
}

bool
zklock_session_can_hand_over(void)
{
	ZkClientStatus status;

	return has_private_identity && zklock_session_status(&status) &&
		(!has_credentials || status.can_hand_over);
}

bool
zklock_session_has_credentials(void)
{
	return client != NULL && has_credentials;
}

Moment
zklock_session_fresh_since(void)
{
	ZkClientStatus status;

	if (!zklock_session_status(&status) || !status.was_connected)
		return ZK_NO_PROOF;
	return contact_fresh_since(zklock_client_moment(),
							   status.session_timeout_ms);
}

void
zklock_session_await_contact(void)
{
	ZkClientStatus status;

	if (zklock_session_status(&status))
		wait_for(NULL, is_never_over, zklock_client_now() + 1 +
				 contact_delay_ms(status.session_timeout_ms),
				 ZK_WAITING_TO_COMMIT);
}

void
zklock_session_look(void)
{
	if (client != NULL)
		zklock_client_receive(client);
}

ZkClient *
zklock_session_client(void)
{
	return client;
}

ZkSessionNumber
zklock_session_number(void)
{
	return client != NULL ? session_number : 0;
}

/*
 * A lost session is closed, in the background: should the ensemble take it
 * back after all, its nodes would block others for nobody's benefit.
 */
void
zklock_session_reap(void)
{
	ZkClientStatus status;

	if (client == NULL)
		return;
	zklock_client_status(client, &status);
	if (status.state == ZK_CLIENT_LOST && status.was_connected)
		note_loss(&status);
	note_refusal(&status);
	if (status.state == ZK_CLIENT_LOST || given_up)
		zklock_session_close(0);
}

TimestampTz
zklock_session_lost_since(void)
{
	return lost_since;
}

bool
zklock_session_loss_interrupts(void)
{
	return on_lock_loss == LOSS_CANCEL &&
		loss_noticed_at >= GetCurrentStatementStartTimestamp();
}

const char *
zklock_session_loss_text(void)
{
	return loss_text;
}

const ZkReply *
zklock_session_await(ZkRequest *request, int64 deadline, ZkWaitReason reason)
{
	if (request == NULL)
		zklock_session_raise_memory();
	switch (wait_for(request, NULL, deadline, reason))
	{
		case ZK_WAIT_OVER:
			return zklock_client_reply(request);
		case ZK_WAIT_TIMEOUT:
			return NULL;
		case ZK_WAIT_LOST:
			return &lost_reply;
	}
	return NULL;
}

ZkWaitEnd
zklock_session_await_watch(int64 deadline)
{
	return wait_for(NULL, has_watch_news, deadline, ZK_WAITING_FOR_LOCK);
}

ZkWaitEnd
zklock_session_pause(int64 deadline)
{
	return wait_for(NULL, is_never_over, deadline, ZK_WAITING_FOR_LOCK);
}

bool
zklock_session_await_silence(int64 deadline)
{
	if (client == NULL)
		return true;
	zklock_client_report_silence(client);
	return wait_for(NULL, is_silent, deadline,
					ZK_WAITING_FOR_REPLY) == ZK_WAIT_OVER;
}

bool
zklock_session_await_undone(int64 deadline)
{
	return wait_for(NULL, is_undone, deadline,
					ZK_WAITING_FOR_REPLY) != ZK_WAIT_TIMEOUT;
}

bool
zklock_session_was_connected(void)
{
	ZkClientStatus status;

	return zklock_session_status(&status) && status.was_connected;
}

int64
zklock_session_reply_deadline(void)
{
	return zklock_session_was_connected() ?
		zklock_client_now() + connect_timeout_setting : ZK_NO_DEADLINE;
}

/* The session stays: it may be connected by the next try. */
void
zklock_session_raise_silence(const char *name)
{
	char		error[512] = "";

	if (client != NULL && !zklock_session_was_connected())
		zklock_client_last_error(client, error, sizeof(error));
	ereport(ERROR,
			(errcode(ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION),
			 errmsg("could not ask ZooKeeper for lock \"%s\" in the time given",
					name),
			 error[0] != '\0' ? errdetail("%s.", error) :
			 zklock_session_errdetail_silence(),
			 errhint("Whether somebody holds it is not known. %s",
					 connection_hint(error))));
}

int
zklock_session_errdetail_silence(void)
{
	ZkClientStatus status;

	if (!zklock_session_status(&status) || !status.was_connected)
		return errdetail("There was no connection to ZooKeeper.");
	if (status.state != ZK_CLIENT_CONNECTED)
		return errdetail("The connection to ZooKeeper is down.");
	return errdetail("ZooKeeper has not answered.");
}

void
zklock_session_raise(const ZkReply *reply, const char *doing,
					 const char *path)
{
	const char *code = reply->code_text;
	char	   *znode = zklock_identity_quotable(path);
	ZkClientStatus status;

	CHECK_FOR_INTERRUPTS();
	switch (reply->result)
	{
		case ZK_SESSION_LOST:
			if (zklock_session_status(&status))
			{
				if (!status.was_connected)
					raise_if_lost(&status);
				note_loss(&status);
			}
			ereport(ERROR,
					(errcode(ERRCODE_CONNECTION_FAILURE),
					 errmsg("could not %s: the ZooKeeper session was lost", doing),
					 errdetail("%s", loss_text),
					 errhint("Run the statement again; it will use a new session.")));
			break;
		case ZK_UNKNOWN_OUTCOME:
			ereport(ERROR,
					(errcode(ERRCODE_CONNECTION_FAILURE),
					 errmsg("could not %s: the connection to ZooKeeper was lost", doing),
					 errdetail("Znode \"%s\": %s.", znode, code)));
			break;
		case ZK_NO_AUTH:
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					 errmsg("could not %s: ZooKeeper denied access", doing),
					 errdetail("Znode \"%s\": %s.", znode, code),
					 errhint("Check the znode's ACL and the setting \"%s\".",
							 "zklock.auth")));
			break;
		case ZK_QUOTA_EXCEEDED:
			ereport(ERROR,
					(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
					 errmsg("could not %s: a quota of ZooKeeper is exceeded", doing),
					 errdetail("Znode \"%s\".", path),
					 errhint("See what \"listquota\" in ZooKeeper's shell says of the znodes above it.")));
			break;
		case ZK_NO_MEMORY:
			zklock_session_raise_memory();
			break;
		case ZK_BAD_ARGUMENTS:
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("could not %s: ZooKeeper refused the path", doing),
					 errdetail("Znode \"%s\": %s.", znode, code)));
			break;
		default:
			ereport(ERROR,
					(errcode(ERRCODE_SYSTEM_ERROR),
					 errmsg("could not %s: request to ZooKeeper failed", doing),
					 errdetail("Znode \"%s\": %s.", znode, code)));
	}
	pg_unreachable();
}

void
zklock_session_raise_memory(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_OUT_OF_MEMORY),
			 errmsg("out of memory"),
			 errdetail("Failed on a request to ZooKeeper.")));
}

const char *
zklock_session_chroot(void)
{
	ServerList	list;
	char		why[256];

	if (client == NULL)
		strlcpy(session_chroot,
				servers_parse(servers_setting, &list, why, sizeof(why)) ?
				list.chroot : "", sizeof(session_chroot));
	return session_chroot;
}

void
zklock_session_close(int wait_ms)
{
	ZkClient   *closing = client;

	if (closing == NULL)
		return;
	client = NULL;
	given_up = false;
	if (wait_set != NULL)
	{
		FreeWaitEventSet(wait_set);
		wait_set = NULL;
		ReleaseExternalFD();
	}
	zklock_client_close(closing, wait_ms);
}

uint64
zklock_session_settings(void)
{
	uint64		hash = hash_combine64(hash_of(servers_setting),
									  hash_of(auth_setting));

	return hash_combine64(hash, session_timeout_setting);
}

ZkClient *
zklock_session_prepare(char name[READY_NAME_SIZE], uint64 *settings,
					   bool *has_identity)
{
	ZkClientOptions options = {0};
	uint8		random[16];
	char		hex[2 * sizeof(random) + 1];
	ZkClient   *prepared;

	if (servers_setting[0] == '\0' || !pg_strong_random(random, sizeof(random)))
		return NULL;
	prepare_once();
	hex_encode((const char *) random, sizeof(random), hex);
	hex[sizeof(hex) - 1] = '\0';
	snprintf(name, READY_NAME_SIZE, "zklock/%d/%s", MyProcPid, hex);
	choose_auth(&options);
	fill_in_options(&options);
	options.ready_name = name;
	*settings = zklock_session_settings();
	*has_identity = has_private_identity;
	prepared = zklock_client_open(&options);
	forget_credentials(&options);
	return prepared;
}

void
zklock_session_note_refusal(const ZkClientStatus *status, bool has_identity)
{
	identity_refused |= status->loss == ZK_LOSS_AUTH && has_identity;
}

bool
zklock_session_status(ZkClientStatus *status)
{
	if (client == NULL)
		return false;
	zklock_client_status(client, status);
	return true;
}

/* ---------------------------------------------------------------------
 * The wait loop
 * ---------------------------------------------------------------------
 */

/*
 * Wait for a request's reply, or with request NULL until is_over() says so.
 *
 * The order matters: a reply that is there is taken even if a cancel came at
 * the same time (the caller's next wait sees it); then interrupts win over our
 * own reasons to end.
 */
static ZkWaitEnd
wait_for(ZkRequest *request, bool (*is_over) (void), int64 deadline,
		 ZkWaitReason reason)
{
	zklock_client_flush(client);
	for (;;)
	{
		ZkClientStatus status;
		WaitEvent	event;
		int64		now;
		int64		wake_at = deadline;
		uint64		progress = zklock_client_progress(client);

		if (request != NULL ? zklock_client_reply(request) != NULL : is_over())
			return ZK_WAIT_OVER;
		CHECK_FOR_INTERRUPTS();

		zklock_client_status(client, &status);
		now = zklock_client_now();
		if (status.state == ZK_CLIENT_LOST)
		{
			note_refusal(&status);

			/* a new session would not fare better than one that never was */
			if (!given_up &&
				(!status.was_connected || status.loss == ZK_LOSS_AUTH ||
				 status.loss == ZK_LOSS_PROTOCOL))
				raise_if_lost(&status);
			return ZK_WAIT_LOST;
		}
		if (now >= deadline)
			return ZK_WAIT_TIMEOUT;
		if (!status.was_connected)
		{
			if (now >= connect_deadline)
				raise_not_connected();
			wake_at = Min(wake_at, connect_deadline);
			if (status.state == ZK_CLIENT_CONNECTING &&
				status.naddresses > 1)
			{
				/* looking up names and closing the last session come first */
				if (attempt_until == 0)
					attempt_until = now + SERVER_ATTEMPT_MS *
						(1 + nattempts++ / status.naddresses);
				if (now >= attempt_until)
				{
					given_up = true;
					return ZK_WAIT_LOST;
				}
				wake_at = Min(wake_at, attempt_until);
			}
		}
		if (status.state == ZK_CLIENT_SUSPENDED ||
			status.state == ZK_CLIENT_CONNECTED)
			wake_at = Min(wake_at, status.lost_deadline);

		/*
		 * Each of the looks above may have taken in what the one before it
		 * was for, and then nothing will wake us for that any more.
		 */
		if (zklock_client_progress(client) != progress)
			continue;
		if (wait_set == NULL)
			make_wait_set();
		if (WaitEventSetWait(wait_set, milliseconds_until(wake_at, now),
							 &event, 1,
							 wait_event_of(status.state == ZK_CLIENT_CONNECTED ?
										   reason : ZK_WAITING_TO_CONNECT)) != 1)
			continue;
		if ((event.events & WL_LATCH_SET) != 0)
			ResetLatch(MyLatch);
		else
			zklock_client_receive(client);
	}
}

/*
 * If the ensemble does not take the identity that we chose ourselves, the next
 * session does without, and has all its time to connect.  To be called
 * wherever the loss may be seen first: a request's reply can be there ahead of
 * it.
 */
static void
note_refusal(const ZkClientStatus *status)
{
	if (status->state != ZK_CLIENT_LOST || status->loss != ZK_LOSS_AUTH ||
		!has_private_identity || given_up)
		return;
	identity_refused = true;
	given_up = true;
	connect_deadline = zklock_client_now() + connect_bound_ms;
}

/* For WaitEventSetWait(): -1 waits for ever. */
static int
milliseconds_until(int64 when, int64 now)
{
	if (when == ZK_NO_DEADLINE)
		return -1;
	if (when <= now)
		return 0;
	return (int) Min(when - now, INT_MAX / 2);
}

static bool
is_silent(void)
{
	ZkClientStatus status;

	zklock_client_status(client, &status);
	return status.npending == 0;
}

/* Has everything that was withdrawn been undone? */
static bool
is_undone(void)
{
	ZkClientStatus status;

	zklock_client_status(client, &status);
	return status.nwithdrawn == 0;
}

static bool
has_watch_news(void)
{
	return zklock_client_watch_news(client) != ZK_WATCH_QUIET ||
		zklock_neighbor_has_told();
}

static bool
is_never_over(void)
{
	return false;
}

/*
 * The wait event.  Its name is registered at the first wait: that takes a
 * lightweight lock, which _PG_init() in the postmaster must not.
 */
static uint32
wait_event_of(ZkWaitReason reason)
{
	static const char *const names[ZK_NWAIT_REASONS] = {
		"ZkLockConnect", "ZkLockAcquire", "ZkLockRequest", "ZkLockCommit"
	};
	static uint32 events[ZK_NWAIT_REASONS];

	if (events[reason] == 0)
		events[reason] = WaitEventExtensionNew_compat(names[reason]);
	return events[reason];
}

/* ---------------------------------------------------------------------
 * Opening
 * ---------------------------------------------------------------------
 */

/*
 * Locks need a backend that ends through our exit callback and runs whole
 * transactions.  A parallel worker runs part of its leader's; autovacuum would
 * meet us in an index expression, and hold up the table; a walsender is in the
 * way of a shutdown.
 */
static void
refuse_wrong_process(void)
{
	const char *process = NULL;

	if (IsParallelWorker())
		process = "a parallel worker";
	else if (AmAutoVacuumWorkerProcess())
		process = "an autovacuum worker";
	else if (am_walsender)
		process = "a walsender";
	if (process != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("ZooKeeper locks cannot be used in %s", process)));
}

/* What every session of this backend shares, made before the first. */
static void
prepare_once(void)
{
	if (program_path[0] != '\0')
		return;
	find_program();
	on_proc_exit(close_at_exit, 0);
}

/*
 * The program is beside the library, wherever that was loaded from: another
 * place than at installation, for all we know.
 */
static void
find_program(void)
{
	Dl_info		library;

	if (dladdr((void *) find_program, &library) == 0 ||
		library.dli_fname == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_SYSTEM_ERROR),
				 errmsg("could not find out where the library of zklock is")));
	strlcpy(program_path, library.dli_fname, sizeof(program_path));
	get_parent_directory(program_path);
	join_path_components(program_path, program_path, PROGRAM_NAME);
}

/* Start a session; it has a client when this returns. */
static void
start_session(void)
{
	ZkClientOptions options = {0};
	ServerList	list;
	char		why[256];

	if (servers_setting[0] == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("ZooKeeper servers are not configured"),
				 errdetail("The setting \"%s\" is empty.", "zklock.servers"),
				 errhint("Set it in postgresql.conf to the servers of your ensemble, for example 'zk1:2181,zk2:2181,zk3:2181', and reload.")));
	if (!servers_parse(servers_setting, &list, why, sizeof(why)))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid list of ZooKeeper servers"),
				 errdetail("%s.", why)));
	choose_auth(&options);
	attempt_until = 0;
	fill_in_options(&options);
	session_number++;
	settings_changed = false;
	strlcpy(session_chroot, list.chroot, sizeof(session_chroot));
	if (!adopt_session(&options))
		open_client(&options);
}

/* All options but the credentials, by the settings. */
static void
fill_in_options(ZkClientOptions *options)
{
	static bool has_start = false;

	if (!has_start)
		first_server = pg_prng_uint32(&pg_global_prng_state);
	has_start = true;
	options->program = program_path;
	options->servers = servers_setting;
	options->session_timeout_ms = session_timeout_setting;
	options->first_server = first_server++;
}

/* Take a session that is ready for us; false if there is none. */
static bool
adopt_session(const ZkClientOptions *options)
{
	char		name[READY_NAME_SIZE];
	bool		has_identity;

	if (!zklock_ready_take(zklock_session_settings(), name, &has_identity))
		return false;
	client = zklock_client_adopt(options, name);
	if (client == NULL)
		return false;
	forget_credentials(options);
	has_private_identity = has_identity;
	return true;
}

/* The credentials of the next session: the user's, an identity of its own, or both. */
static void
choose_auth(ZkClientOptions *options)
{
	char	   *scheme = NULL;
	char	   *credentials = NULL;
	char	   *identity = NULL;

	read_auth(&scheme, &credentials);
	has_credentials = credentials != NULL;
	if (!identity_refused && (!has_credentials || strcmp(scheme, "digest") == 0))
		identity = make_identity();
	has_private_identity = identity != NULL;
	if (has_credentials)
		options->identity = identity;
	else if (has_private_identity)
	{
		scheme = "digest";
		credentials = identity;
		options->is_auth_private = true;
	}
	options->auth_scheme = scheme;
	options->auth_credentials = credentials;
}

/* Open the client, and forget the credentials. */
static void
open_client(const ZkClientOptions *options)
{
	client = zklock_client_open(options);
	forget_credentials(options);
	if (client == NULL)
		zklock_session_raise_memory();
}

static void
forget_credentials(const ZkClientOptions *options)
{
	const char *const secrets[] = {options->auth_credentials, options->identity};

	for (int i = 0; i < (int) lengthof(secrets); i++)
		if (secrets[i] != NULL)
			explicit_bzero(unconstify(char *, secrets[i]), strlen(secrets[i]));
}

static uint64
hash_of(const char *text)
{
	return hash_bytes_extended((const unsigned char *) text, strlen(text), 0);
}

/* Raises without descriptors; the next wait tries again. */
static void
make_wait_set(void)
{
	WaitEventSet *set;

	set = CreateWaitEventSet_compat(3);
	AddWaitEventToSet(set, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(set, WL_SOCKET_READABLE, zklock_client_fd(client),
					  NULL, NULL);
	if (IsUnderPostmaster)
		AddWaitEventToSet(set, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET,
						  NULL, NULL);
	ReserveExternalFD();
	wait_set = set;
}

/* "user:password" that nobody can guess, palloc'ed; NULL without randomness. */
static char *
make_identity(void)
{
	uint8		random[16];
	char		hex[2 * sizeof(random) + 1];

	if (!pg_strong_random(random, sizeof(random)))
		return NULL;
	hex_encode((const char *) random, sizeof(random), hex);
	hex[sizeof(hex) - 1] = '\0';
	return psprintf("zklock:%s", hex);
}

/* Split the setting, or the file it names, into palloc'ed parts. */
static void
read_auth(char **scheme, char **credentials)
{
	char	   *line;
	char	   *colon;

	if (auth_setting[0] == '\0')
		return;
	line = auth_setting[0] == '@' ? read_auth_file(auth_setting + 1) :
		pstrdup(auth_setting);
	colon = strchr(line, ':');
	if (colon == NULL || colon == line)
	{
		explicit_bzero(line, strlen(line));
		ereport(ERROR,
				(errcode(ERRCODE_CONFIG_FILE_ERROR),
				 errmsg("invalid credentials for ZooKeeper"),
				 errdetail("The file that \"%s\" names does not hold a line of the form scheme:credentials.",
						   "zklock.auth")));
	}
	*colon = '\0';
	*scheme = line;
	*credentials = colon + 1;
}

/*
 * The first line of a file, palloc'ed.  Raises if there is none.  Not by stdio,
 * which leaves what it has read in memory.
 */
static char *
read_auth_file(const char *path)
{
	char		line[1024];
	int			file = OpenTransientFile(path, O_RDONLY | PG_BINARY);
	ssize_t		length;
	char	   *result;

	if (file < 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not open file \"%s\": %m", path)));
	warn_of_readers(path, file);
	length = read(file, line, sizeof(line) - 1);
	if (length < 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not read file \"%s\": %m", path)));
	CloseTransientFile(file);
	line[length] = '\0';
	line[strcspn(line, "\r\n")] = '\0';
	result = pstrdup(line);
	explicit_bzero(line, sizeof(line));
	return result;
}

/*
 * A file of credentials is for the server's user alone, or belongs to root, and
 * then its group may read it, as PostgreSQL has it with the keys of ssl_key_file.
 * Otherwise warn, once, and use it: to refuse it would take the locks away from a
 * cluster that has run so far, and would not take the secret back.  Where the file
 * is, is for the log, and for superusers, whose setting it is.
 */
static void
warn_of_readers(const char *path, int file)
{
	static bool has_warned = false;
	struct stat status;
	mode_t		others;
	bool		is_ours = IsTransactionState() &&
		superuser_arg(GetSessionUserId());

	if (has_warned || fstat(file, &status) != 0)
		return;
	others = status.st_uid == 0 ? S_IWGRP | S_IXGRP | S_IRWXO :
		S_IRWXG | S_IRWXO;
	if (!S_ISREG(status.st_mode) || (status.st_mode & others) == 0)
		return;
	has_warned = true;
	ereport(is_ours ? WARNING : LOG_SERVER_ONLY,
			(errcode(ERRCODE_WARNING),
			 errmsg("file \"%s\" with the credentials for ZooKeeper has group or world access",
					path),
			 errdetail("File must have permissions u=rw (0600) or less if owned by the server's user, or permissions u=rw,g=r (0640) or less if owned by root.")));
}

/* ---------------------------------------------------------------------
 * Failures
 * ---------------------------------------------------------------------
 */

/* Raise for a lost session that there is no point in replacing; give it up. */
static void
raise_if_lost(const ZkClientStatus *status)
{
	char		error[512];
	ZkClientLoss loss = status->loss;

	if (status->state != ZK_CLIENT_LOST)
		return;
	zklock_client_last_error(client, error, sizeof(error));
	given_up = true;
	switch (loss)
	{
		case ZK_LOSS_RESOLVE:
			ereport(ERROR,
					(errcode(ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION),
					 errmsg("could not resolve the ZooKeeper servers"),
					 errdetail("%s.", error),
					 errhint("Check the setting \"%s\".", "zklock.servers")));
			break;
		case ZK_LOSS_AUTH:
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION),
					 errmsg("ZooKeeper refused the credentials"),
					 errhint("Check the setting \"%s\": its scheme must be enabled in the ensemble.",
							 "zklock.auth")));
			break;
		case ZK_LOSS_RESOURCES:
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
					 errmsg("could not start a ZooKeeper session"),
					 errdetail("%s.", error),
					 errhint("A session needs a process, three file descriptors and memory.")));
			break;
		case ZK_LOSS_PROTOCOL:
			ereport(ERROR,
					(errcode(ERRCODE_PROTOCOL_VIOLATION),
					 errmsg("the server does not answer like ZooKeeper"),
					 errdetail("%s.", error),
					 errhint("Check the ports in the setting \"%s\".",
							 "zklock.servers")));
			break;
		case ZK_LOSS_PROGRAM:
			ereport(ERROR,
					(errcode(ERRCODE_CONNECTION_FAILURE),
					 errmsg("could not start a ZooKeeper session"),
					 errdetail("%s.", error)));
			break;
		case ZK_LOSS_NONE:
		case ZK_LOSS_EXPIRED:
		case ZK_LOSS_SILENCE:
		case ZK_LOSS_STANDSTILL:
		case ZK_LOSS_UNANSWERED:
			ereport(ERROR,
					(errcode(ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION),
					 errmsg("could not connect to ZooKeeper"),
					 errdetail("%s.", error)));
	}
}

/* Raise for a first connection that took too long, and give it up. */
static void
raise_not_connected(void)
{
	char		error[512];
	const char *hint;

	zklock_client_last_error(client, error, sizeof(error));
	hint = connection_hint(error);
	given_up = true;
	ereport(ERROR,
			(errcode(ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION),
			 errmsg("could not connect to ZooKeeper within %d ms",
					connect_bound_ms),
			 error[0] != '\0' ? errdetail("%s.", error) :
			 errdetail("No server of \"%s\" has answered.", servers_setting),
			 errhint("%s", hint)));
}

/* What to do about the library's last words. */
static const char *
connection_hint(const char *error)
{
	if (strstr(error, "Connection refused") != NULL)
		return "Check that ZooKeeper is running and that the setting \"zklock.servers\" names its client port.";
	if (strstr(error, "failed while receiving a server response") != NULL ||
		strstr(error, "refused to accept the client") != NULL ||
		strstr(error, "Connection reset") != NULL)
		return "The server closed the connection during the handshake: check that the ensemble has a quorum, and its maxClientCnxns (by default 60 connections from one address; zklock uses one for each backend).";
	return "Check that the servers in the setting \"zklock.servers\" can be reached, and see \"zklock.connect_timeout\".";
}

/* Keep the circumstances of a loss for messages to come. */
static void
note_loss(const ZkClientStatus *status)
{
	int64		ago = zklock_client_now() - status->suspended_at;

	loss_noticed_at = GetCurrentTimestamp();
	lost_since = TimestampTzPlusMilliseconds(loss_noticed_at, -ago);
	switch (status->loss)
	{
		case ZK_LOSS_SILENCE:
			snprintf(loss_text, sizeof(loss_text),
					 "No contact with ZooKeeper for the session timeout of %d ms.",
					 status->session_timeout_ms);
			break;
		case ZK_LOSS_AUTH:
			snprintf(loss_text, sizeof(loss_text),
					 "ZooKeeper refused the credentials after a reconnect.");
			break;
		case ZK_LOSS_PROTOCOL:
			snprintf(loss_text, sizeof(loss_text),
					 "What answered after a reconnect is not a usable ZooKeeper server.");
			break;
		case ZK_LOSS_PROGRAM:
			zklock_client_last_error(client, loss_text, sizeof(loss_text) - 1);
			strlcat(loss_text, ".", sizeof(loss_text));
			break;
		case ZK_LOSS_STANDSTILL:
			snprintf(loss_text, sizeof(loss_text),
					 "This backend stood still for the session timeout of %d ms.",
					 status->session_timeout_ms);
			break;
		case ZK_LOSS_UNANSWERED:
			snprintf(loss_text, sizeof(loss_text),
					 "ZooKeeper kept the session, and answered none of its requests for the session timeout of %d ms.",
					 status->session_timeout_ms);
			break;
		case ZK_LOSS_NONE:
		case ZK_LOSS_EXPIRED:
		case ZK_LOSS_RESOLVE:
		case ZK_LOSS_RESOURCES:
			snprintf(loss_text, sizeof(loss_text),
					 "ZooKeeper ended session 0x%llx.",
					 (unsigned long long) status->session_id);
			break;
	}
}

/*
 * End of the backend.  on_proc_exit comes after the transaction was aborted,
 * so a server that does not answer holds up the process, not its row locks.
 */
static void
close_at_exit(int code, Datum arg)
{
	zklock_session_close(EXIT_CLOSE_MS);
}

/* ---------------------------------------------------------------------
 * Settings
 * ---------------------------------------------------------------------
 */

static bool
check_servers(char **newval, void **extra, GucSource source)
{
	ServerList	list;
	char		why[256];
	size_t		offset;
	size_t		length;

	if ((*newval)[0] == '\0')
		return true;
	if (!servers_parse(*newval, &list, why, sizeof(why)))
	{
		GUC_check_errdetail("%s.", why);
		return false;
	}
	if (list.chroot[0] != '\0' &&
		recipe_check_root(list.chroot, &offset, &length) != RECIPE_NAME_OK)
	{
		GUC_check_errdetail("\"%s\" is not a valid path for a chroot.",
							list.chroot);
		return false;
	}
	return true;
}

/*
 * A bad value is refused without showing it, as the default message would.  So are
 * credentials where everybody can read them: pg_db_role_setting and pg_proc.  What
 * was stored there while this library was not loaded is not applied, with a
 * WARNING, as PostgreSQL does with every stored setting that has become invalid;
 * but that of a function comes as that of a SET.
 */
static bool
check_auth(char **newval, void **extra, GucSource source)
{
	const char *colon = strchr(*newval, ':');

	if ((*newval)[0] == '\0' || (*newval)[0] == '@')
		return true;
	if (is_stored_in_catalog(source))
	{
		GUC_check_errmsg("parameter \"%s\" of a database, role or function must not hold credentials",
						 "zklock.auth");
		GUC_check_errdetail("Everybody can read them there.");
		GUC_check_errhint("Write them to a file, and give @ and its path instead.");
		return false;
	}
	if (colon != NULL && colon != *newval)
		return true;
	GUC_check_errmsg("invalid value for parameter \"%s\"", "zklock.auth");
	GUC_check_errhint("Use scheme:credentials, for example digest:user:password, or @ and the path of a file with that line.");
	return false;
}

/* PGC_S_TEST is that of ALTER ROLE, ALTER DATABASE and CREATE FUNCTION. */
static bool
is_stored_in_catalog(GucSource source)
{
	return source == PGC_S_TEST || source == PGC_S_GLOBAL ||
		source == PGC_S_DATABASE || source == PGC_S_USER ||
		source == PGC_S_DATABASE_USER;
}

static const char *
show_auth(void)
{
	return auth_setting[0] == '\0' || auth_setting[0] == '@' ?
		auth_setting : "********";
}

/* A reload assigns every setting anew, changed or not. */
static void
assign_servers(const char *newval, void *extra)
{
	if (servers_setting == NULL || strcmp(newval, servers_setting) != 0)
	{
		settings_changed = true;
		identity_refused = false;	/* by another ensemble, perhaps */
	}
}

static void
assign_auth(const char *newval, void *extra)
{
	if (auth_setting == NULL || strcmp(newval, auth_setting) != 0)
		settings_changed = true;
}

static void
assign_session_timeout(int newval, void *extra)
{
	if (newval != session_timeout_setting)
		settings_changed = true;
}
