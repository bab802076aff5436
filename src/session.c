/*-------------------------------------------------------------------------
 *
 * session.c
 *	  This backend's ZooKeeper session, as PostgreSQL sees it: settings,
 *	  beginning, loss and end.
 *
 * This end of the session lives in malloc'ed memory of client.c.
 *
 *-------------------------------------------------------------------------
 */
#include "session_private.h"

#include <dlfcn.h>

#include "access/parallel.h"
#include "access/xact.h"
#include "common/hashfn.h"
#include "common/pg_prng.h"
#include "miscadmin.h"
#include "replication/walsender.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/guc.h"

#include "auth.h"
#include "board.h"
#include "errors.h"
#include "recipe.h"
#include "servers.h"
#include "stat.h"

/* The session's program, which is installed beside this library. */
#define PROGRAM_NAME "zklock-session"

/*
 * How long the end of a backend waits for its session to be closed.  A
 * healthy server takes a few milliseconds; past this the session's program
 * does it alone.
 */
#define EXIT_CLOSE_MS 200

/*
 * How long a session is waited for that is closed because settings changed.
 */
#define CLOSE_MS 500

/*
 * zklock.servers: where the ensemble is.  Read when a session is opened; a
 * change takes effect with the next session.
 */
static char *servers_setting;

/*
 * zklock.session_timeout: milliseconds, asked of the ensemble, which clamps
 * it.
 */
static int	session_timeout_setting;

/*
 * zklock.connect_timeout: milliseconds until the first connection is given
 * up.
 */
static int	connect_timeout_setting;

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
 * Every session has an identity of its own, a random password, so that its
 * queue nodes can be handed over (contender_watch.c); save for those with
 * credentials of another scheme.  Has an ensemble refused that?  It may have
 * digest authentication disabled.  0, or the hash of its servers.
 */
static uint64 identity_refused_by;

/*
 * Which server a new session tries first; counted on from a random start, so
 * that the backends spread over the servers.
 */
static unsigned first_server;

CurrentSession MySession;

/* The session that was lost last. */
static struct
{
	ZkSessionNumber number;		/* 0: none was; the rest is valid if one was */
	TimestampTz broken_at;		/* when the connection broke, and */
	TimestampTz lost_at;		/* when the session was given up; not earlier */
	TimestampTz noticed_at;
	char		text[256];		/* why, in words */
}			LastLoss;

/* Path of the session's program. */
static char program_path[MAXPGPATH];

static void refuse_wrong_process(void);
static void prepare_once(void);
static void find_program(void);
static void start_session(void);
static void choose_auth(ZkClientOptions *options);
static uint64 settings(void);
static unsigned next_server(void);
static void open_client(const ZkClientOptions *options);
static uint64 hash_of(const char *text);
static void note_loss(const ZkClientStatus *status);
static void reap(bool is_question);
static void close_at_exit(int code, Datum arg);
static bool check_servers(char **newval, void **extra, GucSource source);
static const char *silence_text(void);

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
							   check_servers, NULL, NULL);
	DefineCustomIntVariable("zklock.session_timeout",
							"Session timeout asked of the ensemble.",
							"Should exceed syncLimit * tickTime of the ensemble.",
							&session_timeout_setting, 15000, 1000, 3600000,
							PGC_SUSET, GUC_UNIT_MS,
							NULL, NULL, NULL);
	DefineCustomIntVariable("zklock.connect_timeout",
							"Longest time to wait for a connection to the ensemble.",
							NULL,
							&connect_timeout_setting, 10000, 100, 3600000,
							PGC_USERSET, GUC_UNIT_MS,
							NULL, NULL, NULL);
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
	reap(true);
	MySession.needs_look = true;
	if (!is_retry)
	{
		MySession.connect_bound_ms = connect_timeout_setting;
		MySession.connect_deadline = zklock_client_now() +
			MySession.connect_bound_ms;
		MySession.nattempts = 0;
	}
	if (MySession.client == NULL)
		start_session();
	zklock_client_status(MySession.client, &status);
	if (!status.was_connected)
		session_raise_if_lost(&status);
}

bool
zklock_session_is_turning(void)
{
	ZkClientStatus status;

	if (zklock_session_status(&status))
		session_note_refusal(&status);
	return MySession.is_given_up;
}

void
zklock_session_interrupt_on_loss(bool is_wanted)
{
	if (MySession.client != NULL)
		zklock_client_interrupt_on_loss(MySession.client, is_wanted &&
										on_lock_loss == LOSS_CANCEL);
}

void
zklock_session_renew(void)
{
	reap(true);
	if (!MySession.is_in_use && zklock_session_is_outdated())
		zklock_session_close(CLOSE_MS);
}

bool
zklock_session_is_outdated(void)
{
	return MySession.client != NULL &&
		MySession.opened_with != settings();
}

void
zklock_session_note_use(bool is_in_use)
{
	MySession.is_in_use = is_in_use;
	MySession.needs_look = true;
}

/*
 * What was sent last, the deletes of a release for example, may be lost with
 * the program of the session, whose nodes only zklock_client_close() removes
 * then: it is looked at until all is answered.
 */
void
zklock_session_rest(void)
{
	ZkClientStatus status;

	if (!MySession.needs_look)
		return;
	zklock_session_reap();
	MySession.needs_look = zklock_session_status(&status) &&
		status.npending > 0;
}

/* A backend without a session, or that has not used it, pays a comparison. */
void
zklock_session_count_traffic(void)
{
	ZkTraffic  *counted = &MySession.counted;
	ZkTraffic	now;

	if (MySession.client == NULL)
		return;
	now = zklock_client_traffic(MySession.client);
	if (now.nsent == counted->nsent && now.nreceived == counted->nreceived)
		return;
	zklock_stat_add(ZK_STAT_REQUEST, now.nrequests - counted->nrequests);
	zklock_stat_add(ZK_STAT_BYTES_SENT, now.nsent - counted->nsent);
	zklock_stat_add(ZK_STAT_BYTES_RECEIVED, now.nreceived - counted->nreceived);
	*counted = now;
}

bool
zklock_session_can_hand_over(void)
{
	ZkClientStatus status;

	return MySession.has_identity && zklock_session_status(&status) &&
		(!MySession.has_credentials || status.can_hand_over);
}

bool
zklock_session_has_credentials(void)
{
	return MySession.client != NULL && MySession.has_credentials;
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
zklock_session_look(void)
{
	if (MySession.client != NULL)
		zklock_client_receive(MySession.client);
}

ZkClient *
zklock_session_client(void)
{
	return MySession.client;
}

ZkSessionNumber
zklock_session_number(void)
{
	return MySession.client != NULL ? MySession.number : 0;
}

ZkSessionNumber
zklock_session_live(void)
{
	ZkClientStatus status;

	if (MySession.client == NULL)
		return 0;
	zklock_client_status(MySession.client, &status);
	if (status.state == ZK_CLIENT_LOST && status.was_connected)
		note_loss(&status);
	return status.state == ZK_CLIENT_LOST || MySession.is_given_up ? 0 :
		MySession.number;
}

void
zklock_session_reap(void)
{
	reap(false);
}

TimestampTz
zklock_session_broken_at(void)
{
	return LastLoss.broken_at;
}

TimestampTz
zklock_session_lost_at(void)
{
	return LastLoss.lost_at;
}

bool
zklock_session_loss_interrupts(void)
{
	return on_lock_loss == LOSS_CANCEL &&
		LastLoss.noticed_at >= GetCurrentStatementStartTimestamp();
}

bool
zklock_session_has_interrupted(void)
{
	return MySession.is_in_use && zklock_session_live() == 0 &&
		zklock_session_loss_interrupts();
}

const char *
zklock_session_loss_text(void)
{
	return LastLoss.text;
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

void
zklock_session_raise(const ZkReply *reply, const char *doing,
					 const char *path)
{
	ZkClientStatus status;

	CHECK_FOR_INTERRUPTS();
	if (reply->result == ZK_SESSION_LOST && zklock_session_status(&status))
	{
		if (!status.was_connected)
			session_raise_if_lost(&status);
		note_loss(&status);
	}
	zklock_errors_raise(reply, doing, path, LastLoss.text,
						zklock_session_has_credentials());
}

/* The session stays: it may be connected by the next try. */
void
zklock_session_raise_silence(const char *name)
{
	char		error[512] = "";

	if (MySession.client != NULL && !zklock_session_was_connected())
		zklock_client_last_error(MySession.client, error, sizeof(error));
	zklock_errors_raise_silence(name, error, silence_text());
}

int
zklock_session_errdetail_silence(void)
{
	return errdetail("%s", silence_text());
}

const char *
session_servers(void)
{
	return servers_setting;
}

const char *
zklock_session_chroot(void)
{
	ServerList	list;
	char		why[256];

	if (MySession.client == NULL)
		strlcpy(MySession.chroot,
				servers_parse(servers_setting, &list, why, sizeof(why)) ?
				list.chroot : "", sizeof(MySession.chroot));
	return MySession.chroot;
}

void
zklock_session_close(int wait_ms)
{
	ZkClient   *closing = MySession.client;

	if (closing == NULL)
		return;

	/* a process without a postmaster has no shared memory at its very end */
	if (IsUnderPostmaster || !proc_exit_inprogress)
		zklock_session_count_traffic();
	MySession.client = NULL;
	MySession.is_given_up = false;
	if (MySession.wait_set != NULL)
	{
		FreeWaitEventSet(MySession.wait_set);
		MySession.wait_set = NULL;
		ReleaseExternalFD();
	}
	zklock_board_end_session();
	zklock_client_close(closing, wait_ms);
}

const char *
zklock_session_program(void)
{
	if (program_path[0] == '\0')
		prepare_once();
	return program_path;
}

bool
zklock_session_status(ZkClientStatus *status)
{
	if (MySession.client == NULL)
		return false;
	zklock_client_status(MySession.client, status);
	return true;
}

void
session_note_refusal(const ZkClientStatus *status)
{
	if (status->state != ZK_CLIENT_LOST || status->loss != ZK_LOSS_AUTH ||
		!MySession.has_identity || MySession.is_given_up)
		return;
	identity_refused_by = hash_of(servers_setting);
	MySession.is_given_up = true;
	MySession.connect_deadline = zklock_client_now() +
		MySession.connect_bound_ms;
}

/* Why there has been no answer. */
static const char *
silence_text(void)
{
	ZkClientStatus status;

	if (!zklock_session_status(&status) || !status.was_connected)
		return _("There was no connection to ZooKeeper.");
	if (status.state != ZK_CLIENT_CONNECTED)
		return _("The connection to ZooKeeper is down.");
	return _("ZooKeeper has not answered.");
}

/* ---------------------------------------------------------------------
 * Opening
 * ---------------------------------------------------------------------
 */

/*
 * Locks need a backend that ends through our exit callback and runs whole
 * transactions.  A parallel worker runs part of its leader's; autovacuum
 * would meet us in an index expression, and hold up the table; a walsender is
 * in the way of a shutdown.
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
	ZkClientOptions options = {
		.program = program_path,
		.servers = servers_setting,
		.session_timeout_ms = session_timeout_setting
	};
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
	zklock_board_enter();
	choose_auth(&options);
	MySession.attempt_until = 0;
	options.first_server = next_server();
	MySession.number++;
	memset(&MySession.counted, 0, sizeof(MySession.counted));
	MySession.opened_with = settings();
	strlcpy(MySession.chroot, list.chroot, sizeof(MySession.chroot));
	open_client(&options);
}

/* The number of the server that the next session tries first. */
static unsigned
next_server(void)
{
	static bool has_start = false;

	if (!has_start)
		first_server = pg_prng_uint32(&pg_global_prng_state);
	has_start = true;
	return first_server++;
}

/*
 * The credentials of the next session: the user's, an identity of its own, or
 * both.
 */
static void
choose_auth(ZkClientOptions *options)
{
	char	   *scheme = NULL;
	char	   *credentials = NULL;
	char	   *identity = NULL;

	zklock_auth_read(&scheme, &credentials);
	MySession.has_credentials = credentials != NULL;
	if (identity_refused_by != hash_of(servers_setting) && (!MySession.has_credentials || strcmp(scheme, "digest") == 0))
		identity = zklock_auth_make_identity();
	MySession.has_identity = identity != NULL;
	if (MySession.has_credentials)
		options->identity = identity;
	else if (MySession.has_identity)
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
	const char *const secrets[] = {options->auth_credentials,
	options->identity};

	MySession.client = zklock_client_open(options);
	for (int i = 0; i < (int) lengthof(secrets); i++)
		if (secrets[i] != NULL)
			explicit_bzero(unconstify(char *, secrets[i]), strlen(secrets[i]));
	if (MySession.client == NULL)
		zklock_errors_raise_memory();
}

/*
 * What the settings of the moment come to: sessions with the same result are
 * as good as one another.
 */
static uint64
settings(void)
{
	uint64		hash = hash_combine64(hash_of(servers_setting),
									  zklock_auth_hash());

	return hash_combine64(hash, session_timeout_setting);
}

static uint64
hash_of(const char *text)
{
	return hash_bytes_extended((const unsigned char *) text, strlen(text), 0);
}

/* ---------------------------------------------------------------------
 * Failures
 * ---------------------------------------------------------------------
 */

void
session_raise_if_lost(const ZkClientStatus *status)
{
	char		error[512];

	if (status->state != ZK_CLIENT_LOST)
		return;
	zklock_client_last_error(MySession.client, error, sizeof(error));
	MySession.is_given_up = true;
	zklock_errors_raise_no_session(status->loss, error);
}

/*
 * A lost session is closed, in the background: should the ensemble take it
 * back after all, its nodes would block others for nobody's benefit.
 *
 * Closing keeps its program from interrupting the statement: it may stand
 * still, or be just about to.  So if a question has found the loss, which
 * perhaps needs no lock and goes on with another session, we do that.  A loss
 * that an earlier statement has noticed is no news to this one.
 */
static void
reap(bool is_question)
{
	ZkClientStatus status;

	if (MySession.client == NULL)
		return;
	zklock_client_status(MySession.client, &status);
	if (status.state == ZK_CLIENT_LOST && status.was_connected)
	{
		note_loss(&status);
		if (is_question && zklock_session_loss_interrupts())
			zklock_client_interrupt_if_lost(MySession.client);
	}
	session_note_state(&status);
	session_note_refusal(&status);
	if (status.state == ZK_CLIENT_LOST || MySession.is_given_up)
		zklock_session_close(0);
}

/* Keep the circumstances of a loss, once, for messages to come. */
static void
note_loss(const ZkClientStatus *status)
{
	int64		now = zklock_client_now();
	int64		lost_at = status->state == ZK_CLIENT_LOST ?
		status->lost_at : now;
	char		error[512];

	if (LastLoss.number == MySession.number)
		return;

	/* a reply can be there ahead of the loss: then it is noted again */
	if (status->state == ZK_CLIENT_LOST)
		LastLoss.number = MySession.number;
	LastLoss.noticed_at = GetCurrentTimestamp();
	LastLoss.broken_at = TimestampTzPlusMilliseconds(LastLoss.noticed_at,
													 status->suspended_at - now);
	LastLoss.lost_at = TimestampTzPlusMilliseconds(LastLoss.noticed_at,
												   lost_at - now);
	zklock_client_last_error(MySession.client, error, sizeof(error));
	zklock_errors_describe_loss(status, error, LastLoss.text,
								sizeof(LastLoss.text));
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
