/*-------------------------------------------------------------------------
 *
 * session.c
 *	  Opens, uses, renews and closes the ZooKeeper session.
 *
 * The session itself is in a program of its own; this end of it lives in
 * malloc'ed memory of client.c.
 *
 *-------------------------------------------------------------------------
 */
#include "session_private.h"

#include <dlfcn.h>

#include "access/parallel.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "replication/walsender.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "utils/guc.h"

#include "auth.h"
#include "board.h"
#include "channel.h"
#include "pause.h"
#include "stat.h"

/* The session's programs, which are installed beside this library. */
#define PROGRAM_PLAIN "zklock-session"
#define PROGRAM_TLS "zklock-session-tls"

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

/* How much later a session follows short ones, at first and at most. */
#define PAUSE_MIN_MS 100
#define PAUSE_MAX_MS 1000

/*
 * zklock.idle_timeout: milliseconds after which a session is closed that is
 * not used and has no locks; 0: never.  It is here and not with the others, for
 * the program of an open session is told of a change at once.
 */
static int	idle_timeout_setting;

/* Path of the session's program, once it was asked for. */
static char library_directory[MAXPGPATH];

static void refuse_wrong_process(void);
static void pace_sessions(bool is_retry);
static void start_session(void);
static void choose_auth(ZkClientOptions *options);
static void close_at_exit(int code, Datum arg);
static void assign_idle_timeout(int newval, void *extra);

/* ---------------------------------------------------------------------
 * Opening, use, renewal
 * ---------------------------------------------------------------------
 */

void
zklock_session_init(void)
{
	zklock_channel_keep_environment();
	session_settings_init();
	DefineCustomIntVariable("zklock.idle_timeout",
							"Time without use and without locks after which a ZooKeeper session is closed.",
							"The next lock opens another one. 0 turns this off.",
							&idle_timeout_setting, 0, 0, 86400000,
							PGC_USERSET, GUC_UNIT_MS,
							NULL, assign_idle_timeout, NULL);
}

void
zklock_session_open(void)
{
	SessionHeritage *heritage = &MySession.heritage;
	bool		is_retry = heritage->keeps_deadline;

	refuse_wrong_process();
	MySession.needs_check = true;
	heritage->keeps_deadline = false;
	if (!is_retry)
		heritage->connect_deadline = protocol_now() +
			session_settings.connect_timeout;
	MySession.connect_deadline = heritage->connect_deadline;
	if (MySession.client != NULL &&
		zklock_client_begin_use(MySession.client))
		return;
	pace_sessions(is_retry);
	do
	{
		zklock_session_close(0);	/* it was ended as idle */
		start_session();
	} while (!zklock_client_begin_use(MySession.client));
	Assert(zklock_session_live() != 0);
}

void
zklock_session_end_use(void)
{
	if (MySession.client != NULL)
		zklock_client_end_use(MySession.client);
}

bool
zklock_session_is_used(void)
{
	return MySession.client != NULL &&
		zklock_client_is_used(MySession.client);
}

void
zklock_session_renew(bool is_again)
{
	SessionHeritage *heritage = &MySession.heritage;

	(void) zklock_session_reap(true);	/* the next one is opened by need */
	heritage->keeps_deadline = heritage->keeps_deadline && is_again;
	if (!MySession.is_in_use && zklock_session_is_outdated())
		zklock_session_close(CLOSE_MS);
}

bool
zklock_session_is_outdated(void)
{
	return MySession.client != NULL &&
		MySession.opening.settings != session_settings_hash();
}

void
zklock_session_note_use(bool is_in_use)
{
	MySession.is_in_use = is_in_use;
	if (MySession.client != NULL)
		zklock_client_note_use(MySession.client, is_in_use);
	MySession.needs_check = true;
}

/*
 * The requests that were sent last, for example the deletes of a release, are
 * lost if the session's program ends before they are answered.  Then only
 * zklock_client_close() removes the nodes.  So the session is checked after
 * each transaction until all requests are answered.
 */
void
zklock_session_rest(void)
{
	if (!MySession.needs_check)
		return;
	MySession.needs_check = zklock_session_reap(false) != 0 &&
		zklock_session_count_pending() > 0;
	MySession.heritage.keeps_deadline = false;
}

int
zklock_session_count_pending(void)
{
	return MySession.client == NULL ? 0 :
		zklock_client_count_pending(MySession.client);
}

void
zklock_session_count_requests(void)
{
	uint64		now;

	if (MySession.client == NULL)
		return;
	now = zklock_client_count_requests(MySession.client);
	if (now == MySession.ncounted)
		return;
	zklock_stat_add(ZK_STAT_REQUEST, now - MySession.ncounted);
	MySession.ncounted = now;
}

/*
 * The programs are beside the library, wherever that was loaded from: another
 * place than at installation, for all we know.
 */
char *
zklock_session_program(void)
{
	Dl_info		library;

	if (library_directory[0] == '\0')
	{
		if (dladdr((void *) zklock_session_program, &library) == 0 ||
			library.dli_fname == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_SYSTEM_ERROR),
					 errmsg("could not find out where the library of zklock is")));
		strlcpy(library_directory, library.dli_fname,
				sizeof(library_directory));
		get_parent_directory(library_directory);
	}
	return psprintf("%s/%s", library_directory,
					session_settings.ssl ? PROGRAM_TLS : PROGRAM_PLAIN);
}

/* The program of the session has it at once, also where no use follows. */
static void
assign_idle_timeout(int newval, void *extra)
{
	if (MySession.client == NULL)
		return;
	zklock_client_set_idle_timeout(MySession.client, newval);
	zklock_board_put_idle_timeout(newval);
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

/*
 * What grants a session and does not answer like ZooKeeper costs the session
 * and its program, again and again: so a session that follows short ones
 * comes later each time.  Those of one call share the deadline of the first;
 * raises 08006 when it is over.
 */
static void
pace_sessions(bool is_retry)
{
	int			nshort = MySession.heritage.nshort;
	int64		deadline = MySession.heritage.connect_deadline;
	int64		pause_ms = 0;

	for (int i = 2; i <= nshort && pause_ms < PAUSE_MAX_MS; i++)
		pause_ms = pause_after(pause_ms, PAUSE_MIN_MS, PAUSE_MAX_MS);
	if (pause_ms > 0)
		session_sleep(Min(MySession.opened_at + pause_ms, deadline));
	if (!is_retry || nshort == 0 || protocol_now() < deadline)
		return;
	ereport(ERROR,
			(zklock_stat_errcode(ERRCODE_CONNECTION_FAILURE),
			 errmsg("ZooKeeper sessions are lost as soon as they are granted"),
			 errdetail("%d in a row were lost. The last one: %s",
					   nshort, session_loss_text()),
			 errhint("Check that the setting \"%s\" names ZooKeeper servers, see their logs, and run zk_check(false).",
					 "zklock.servers")));
}

/* Start a session; it has a client when this returns. */
static void
start_session(void)
{
	ZkClientOptions options = {
		.program = zklock_session_program(),
		.servers = zklock_session_servers(),
		.session_timeout_ms = session_settings.session_timeout,
		.tls = zklock_session_tls()
	};
	ZkClient   *client;

	if (options.servers[0] == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("ZooKeeper servers are not configured"),
				 errdetail("The setting \"%s\" is empty.", "zklock.servers"),
				 errhint("Set it in postgresql.conf to the servers of your ensemble, for example 'zk1:2181,zk2:2181,zk3:2181', and reload.")));
	zklock_board_enter();
	choose_auth(&options);
	if (MySession.number == 0)
		on_proc_exit(close_at_exit, 0);

	/* backends spread over the servers, and the next session tries another */
	options.first_server = hash_bytes_uint32(MyProcPid) +
		MySession.number + 1;
	MySession.opening.settings = session_settings_hash();
	MySession.ncounted = 0;
	client = zklock_client_open(&options);
	if (options.auth_credentials != NULL)
		explicit_bzero(unconstify(char *, options.auth_credentials),
					   strlen(options.auth_credentials));
	if (client == NULL)
		zklock_session_raise_memory();
	ReserveExternalFD();
	session_begin(client);
	zklock_client_set_idle_timeout(client, idle_timeout_setting);
	zklock_board_put_idle_timeout(idle_timeout_setting);
	if (session_is_over())
		session_raise_over();
}

/*
 * The credentials of the next session: the user's, or without any an identity
 * of its own.
 */
static void
choose_auth(ZkClientOptions *options)
{
	SessionOpening *opening = &MySession.opening;
	char	   *scheme = "digest";
	char	   *credentials = NULL;

	zklock_auth_read(&scheme, &credentials);
	if (credentials != NULL && strcmp(scheme, PROTOCOL_CERTIFICATE) == 0 &&
		(!session_settings.ssl || session_settings.ssl_cert_file[0] == '\0'))
		ereport(ERROR,
				(errcode(ERRCODE_CONFIG_FILE_ERROR),
				 errmsg("there is no client certificate to use as the credentials for ZooKeeper"),
				 errdetail("The setting \"%s\" is \"%s\", but \"%s\" is off, or \"%s\" is empty.",
						   "zklock.auth", PROTOCOL_CERTIFICATE, "zklock.ssl",
						   "zklock.ssl_cert_file"),
				 errhint("Turn TLS on, and name a certificate and its key; or set other credentials.")));
	opening->credentials = SESSION_ANONYMOUS;
	if (credentials != NULL)
		opening->credentials = SESSION_CONFIGURED;
	else if (!MySession.heritage.is_identity_refused)
	{
		credentials = zklock_auth_make_identity();
		if (credentials != NULL)	/* there is randomness, as a rule */
			opening->credentials = SESSION_IDENTITY;
	}
	options->is_auth_private = opening->credentials == SESSION_IDENTITY;
	options->auth_scheme = credentials != NULL ? scheme : NULL;
	options->auth_credentials = credentials;
}

/* ---------------------------------------------------------------------
 * Closing
 * ---------------------------------------------------------------------
 */

/*
 * Close a lost session, in the background: if the ensemble still has it, its
 * nodes would block others for nothing.
 *
 * After that its program does not cancel the statement any more.  A statement
 * that asks the ensemble and then goes on with another session would never
 * hear of the loss.  So with may_cancel we send the interrupt here, unless an
 * earlier statement has noticed the loss.
 */
ZkSessionNumber
zklock_session_reap(bool may_cancel)
{
	SessionHeritage *heritage = &MySession.heritage;

	zklock_session_attend();
	if (may_cancel && session_is_loss() &&
		session_loss_noticed_in() == MySession.statement)
		zklock_client_interrupt_if_lost(MySession.client);
	if (!session_is_over())
		return zklock_session_live();
	if (session_is_granted() &&
		zklock_session_status()->state == ZK_CLIENT_LOST)
	{
		heritage->keeps_deadline = session_is_loss() &&
			protocol_now() - MySession.opened_at <
			session_settings.connect_timeout;
		heritage->nshort = heritage->keeps_deadline ? heritage->nshort + 1 : 0;
	}
	zklock_session_close(0);
	return 0;
}

void
zklock_session_close(int wait_ms)
{
	ZkClient   *closing;

	if (MySession.client == NULL)
		return;
	/* a process without a postmaster has no shared memory at its very end */
	if (IsUnderPostmaster || !proc_exit_inprogress)
		zklock_session_count_requests();
	session_interrupt_note_close();
	session_wait_end();
	closing = session_end();
	ReleaseExternalFD();
	zklock_board_end_session();
	zklock_client_close(closing, wait_ms);
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
