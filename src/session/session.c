/*-------------------------------------------------------------------------
 *
 * session.c
 *	  This backend's ZooKeeper session, as PostgreSQL sees it: settings,
 *	  beginning, loss and end; and what is told of it as it changes: to the
 *	  board, to the counters, and to the server's log.
 *
 * A backend polls its session while it waits and at the end of its statements.
 * So an idle backend notices and reports late what has happened.
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
#include "miscadmin.h"
#include "replication/walsender.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "utils/datetime.h"
#include "utils/guc.h"

#include "auth.h"
#include "board.h"
#include "channel.h"
#include "origin.h"
#include "recipe.h"
#include "settings_page.h"
#include "stat.h"
#include "write_bound.h"

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

/* How much later a session follows short ones, at first and at most. */
#define PAUSE_MIN_MS 100
#define PAUSE_MAX_MS 1000

/*
 * zklock.servers: where the ensemble is.  Read when a session is opened; a
 * session that is in use follows a change, if the servers know it
 * (program_move.c).
 */
static char *servers_setting;

/* Who has set it: see origin.h. */
static Origin servers_origin;

/*
 * zklock.ssl: is all that is said to ZooKeeper to be encrypted?  This and the
 * rest are called as PostgreSQL's own for its clients, and can be set where
 * these can: for the whole server.
 */
static bool ssl_setting;

/* zklock.ssl_ca_file: the authorities that sign servers' certificates. */
static char *ssl_ca_file_setting;

/* zklock.ssl_cert_file, zklock.ssl_key_file: who we are to the servers. */
static char *ssl_cert_file_setting;
static char *ssl_key_file_setting;

/* zklock.ssl_crl_file: certificates that are not valid any more. */
static char *ssl_crl_file_setting;

/*
 * zklock.ssl_passphrase_command: says the passphrase of that key, for which %p
 * is a prompt.  It may have the passphrase in it, so it is shown to no others
 * than PostgreSQL's own is.
 */
static char *ssl_passphrase_command_setting;

/* zklock.ssl_min_protocol_version */
static int	ssl_version_setting = 2;

static const struct config_enum_entry ssl_versions[] = {
	{"TLSv1.2", 2, false}, {"TLSv1.3", 3, false}, {NULL, 0, false}
};

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

/*
 * zklock.idle_timeout: milliseconds after which a session is closed that is
 * not used and has no locks; 0: never.
 */
static int	idle_timeout_setting;

/*
 * Every session without credentials of the user's has an identity of its own,
 * a random password, so that its queue nodes can be handed over
 * (contender_watch.c).  Has an ensemble refused that?  It may have digest
 * authentication disabled.
 */
static bool is_identity_refused;

CurrentSession MySession;
LostSession LastLoss;

/*
 * When the last interrupt for a loss was sent that we know of; and the same of
 * the last one that is over: an error has come of it, or none will.
 */
static int64 interrupt_sent_at;
static int64 interrupt_over_at;

/* How many statements have begun; and the one that a loss canceled last. */
static uint64 statement = 1;
static uint64 canceled_statement;

/* Path of the session's program. */
static char program_path[MAXPGPATH];

/*
 * In the postmaster, once all settings are defined.  NULL if it could not be
 * made, and in a server without a postmaster (postgres --single).
 */
static SettingsPage *settings_page;

/* By which its children find that page; -1: there is none. */
static int	settings_page_fd = -1;

/*
 * May these settings, or where they come from, have changed since the session
 * was told?
 */
static bool is_servers_news;

/* See zklock_session_hear_at_close(). */
static void (*hear_at_close) (void);

static void refuse_wrong_process(void);
static void pace_sessions(bool is_retry);
static void start_session(void);
static void note_chroot(void);
static bool are_servers_chosen(void);
static void choose_auth(ZkClientOptions *options);
static bool may_have_secret(const Origin *auth);
static uint64 settings(void);
static void note_interrupt(void);
static void note_session_end(const ZkClientStatus *status);
static bool is_loss(const ZkClientStatus *status);
static void close_at_exit(int code, Datum arg);
static bool check_servers(char **newval, void **extra, GucSource source);
static void assign_servers(const char *newval, void *extra);
static bool check_ssl_file(char **newval, void **extra, GucSource source);
static void assign_idle_timeout(int newval, void *extra);
static void assign_ssl(bool newval, void *extra);
static void assign_ssl_ca_file(const char *newval, void *extra);
static void assign_ssl_cert_file(const char *newval, void *extra);
static void assign_ssl_key_file(const char *newval, void *extra);
static void assign_ssl_crl_file(const char *newval, void *extra);
static void assign_ssl_passphrase_command(const char *newval, void *extra);
static void assign_ssl_version(int newval, void *extra);
static void make_settings_page(void);
static void note_text(char **setting, const char *newval);
static void note_servers(void);
static void tell_servers(void);
static uint64 servers_hash(void);
static bool uses_servers(void);
static void count_news(const ZkClientStatus *status,
					   const NotedSession *before);
static TimestampTz state_since(const ZkClientStatus *status);
static void log_refusal(const ZkClientStatus *status);
static void log_move(const ZkClientStatus *status);
static void log_notes(const ZkClientStatus *status);
static void log_news(const ZkClientStatus *status, const NotedSession *before);

/* ---------------------------------------------------------------------
 * Public functions
 * ---------------------------------------------------------------------
 */

void
zklock_session_init(void)
{
	zklock_channel_keep_environment();
	DefineCustomStringVariable("zklock.servers",
							   "ZooKeeper servers that zklock uses.",
							   "host:port,host:port[/chroot]; IPv6 addresses in brackets.",
							   &servers_setting, "",
							   PGC_SUSET, 0,
							   check_servers, assign_servers, NULL);
	DefineCustomBoolVariable("zklock.ssl",
							 "Whether connections to ZooKeeper are encrypted, and its servers verified.",
							 NULL, &ssl_setting, false, PGC_SIGHUP, 0,
							 NULL, assign_ssl, NULL);
	DefineCustomStringVariable("zklock.ssl_ca_file",
							   "File with the authorities that sign the certificates of ZooKeeper's servers.",
							   NULL, &ssl_ca_file_setting, "", PGC_SIGHUP, 0,
							   check_ssl_file, assign_ssl_ca_file, NULL);
	DefineCustomStringVariable("zklock.ssl_cert_file",
							   "File with the certificate that is shown to ZooKeeper's servers.",
							   NULL, &ssl_cert_file_setting, "", PGC_SIGHUP, 0,
							   check_ssl_file, assign_ssl_cert_file, NULL);
	DefineCustomStringVariable("zklock.ssl_key_file",
							   "File with the private key of that certificate.",
							   NULL, &ssl_key_file_setting, "", PGC_SIGHUP, 0,
							   check_ssl_file, assign_ssl_key_file, NULL);
	DefineCustomStringVariable("zklock.ssl_crl_file",
							   "File with the revoked certificates of ZooKeeper's servers.",
							   NULL, &ssl_crl_file_setting, "", PGC_SIGHUP, 0,
							   check_ssl_file, assign_ssl_crl_file, NULL);
	DefineCustomStringVariable("zklock.ssl_passphrase_command",
							   "Command that says the passphrase of that key.",
							   NULL, &ssl_passphrase_command_setting, "", PGC_SIGHUP,
							   GUC_SUPERUSER_ONLY, NULL,
							   assign_ssl_passphrase_command, NULL);
	DefineCustomEnumVariable("zklock.ssl_min_protocol_version",
							 "Lowest version of TLS that is used with ZooKeeper.",
							 NULL, &ssl_version_setting, 2, ssl_versions,
							 PGC_SIGHUP, 0, NULL, assign_ssl_version, NULL);
	make_settings_page();
	DefineCustomIntVariable("zklock.session_timeout",
							"Session timeout asked of the ensemble.",
							"At least four thirds of syncLimit * tickTime of the ensemble.",
							&session_timeout_setting, 15000, 1000, 3600000,
							PGC_SUSET, GUC_UNIT_MS,
							NULL, NULL, NULL);
	DefineCustomIntVariable("zklock.connect_timeout",
							"Longest time to wait for a connection to the ensemble.",
							NULL,
							&connect_timeout_setting, 10000, 100, 3600000,
							PGC_USERSET, GUC_UNIT_MS,
							NULL, NULL, NULL);
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
	bool		is_retry = MySession.is_retry;

	refuse_wrong_process();
	MySession.needs_check = true;
	MySession.is_retry = false;
	if (!is_retry)
		MySession.connect_deadline = protocol_now() + connect_timeout_setting;
	if (MySession.client != NULL && MySession.is_kept_away)
		zklock_origin_refuse(&MySession.auth_origin, &servers_origin);
	if (MySession.client != NULL &&
		zklock_client_begin_use(MySession.client))
		return;
	pace_sessions(is_retry);
	do
	{
		zklock_session_close(0);	/* it was ended as idle */
		zklock_write_claim(1);
		start_session();
	} while (!zklock_client_begin_use(MySession.client));
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
zklock_session_interrupt_on_loss(bool is_wanted)
{
	if (MySession.client != NULL)
		zklock_client_interrupt_on_loss(MySession.client, is_wanted);
}

void
zklock_session_renew(bool is_again)
{
	(void) zklock_session_reap(true);	/* the next one is opened by need */
	MySession.is_retry = MySession.is_retry && is_again;
	if (!MySession.is_in_use && zklock_session_is_outdated())
		zklock_session_close(CLOSE_MS);
	tell_servers();
}

bool
zklock_session_is_outdated(void)
{
	return MySession.client != NULL &&
		(MySession.opened_with != settings() || !uses_servers());
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
	ZkClientStatus status;

	if (!MySession.needs_check)
		return;
	MySession.needs_check = zklock_session_reap(false) != 0 &&
		zklock_session_status(&status) && status.npending > 0;
	MySession.is_retry = false;
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

bool
zklock_session_can_hand_over(void)
{
	return MySession.client != NULL && MySession.has_identity;
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
	return contact_fresh_since(protocol_moment(), status.session_timeout_ms);
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

int64
zklock_session_id(void)
{
	ZkClientStatus status;

	return zklock_session_status(&status) && status.was_connected ?
		status.session_id : 0;
}

ZkSessionNumber
zklock_session_live(void)
{
	ZkClientStatus status;

	return zklock_session_status(&status) &&
		status.state != ZK_CLIENT_LOST && !MySession.is_given_up ?
		MySession.number : 0;
}

/*
 * While a backend is idle PostgreSQL ignores SIGINT.  The signal has come by
 * the end of any system call, if it was sent.
 */
void
zklock_session_begin_statement(void)
{
	statement++;
	tell_servers();
	note_interrupt();
	if (interrupt_over_at == interrupt_sent_at ||
		(MySession.client != NULL &&
		 zklock_client_is_interrupt_under_way(MySession.client)))
		return;
	getppid();
	if (!QueryCancelPending)
		interrupt_over_at = interrupt_sent_at;
}

int64
zklock_session_interrupt(void)
{
	note_interrupt();
	return interrupt_sent_at != interrupt_over_at ? interrupt_sent_at : 0;
}

void
zklock_session_end_interrupt(void)
{
	interrupt_over_at = interrupt_sent_at;
	canceled_statement = statement;
}

bool
zklock_session_has_interrupted(void)
{
	return zklock_session_interrupt() != 0 || canceled_statement == statement;
}

void
zklock_session_describe_loss(char *text, size_t size)
{
	char		broken_at[MAXDATELEN + 1];
	const char *lost_at;

	/* it has but one buffer */
	strlcpy(broken_at, timestamptz_to_str(LastLoss.broken_at),
			sizeof(broken_at));
	lost_at = timestamptz_to_str(LastLoss.lost_at);
	if (LastLoss.broken_at < LastLoss.lost_at)
		snprintf(text, size,
				 _("The connection broke at %s, and the lock was given up at %s. %s"),
				 broken_at, lost_at, LastLoss.text);
	else
		snprintf(text, size, _("The lock was given up at %s. %s"), lost_at,
				 LastLoss.text);
}

int64
zklock_session_reply_deadline(int64 asked_at)
{
	return asked_at + connect_timeout_setting *
		(zklock_session_id() != 0 ? 1 : 2);
}

const char *
zklock_session_chroot(void)
{
	if (MySession.client == NULL)
		note_chroot();
	return MySession.chroot;
}

bool
zklock_session_knows_chosen(void)
{
	return MySession.knows_chosen;
}

bool
zklock_session_is_chroot_chosen(void)
{
	if (MySession.client == NULL)
		note_chroot();
	return MySession.chroot_origin.is_chosen;
}

void
zklock_session_hear_at_close(void (*hear) (void))
{
	hear_at_close = hear;
}

void
zklock_session_close(int wait_ms)
{
	ZkClient   *closing = MySession.client;

	if (closing == NULL)
		return;

	if (hear_at_close != NULL && !proc_exit_inprogress)
		hear_at_close();

	/* a process without a postmaster has no shared memory at its very end */
	if (IsUnderPostmaster || !proc_exit_inprogress)
		zklock_session_count_requests();
	note_interrupt();
	MySession.client = NULL;
	MySession.is_given_up = false;
	ReleaseExternalFD();
	zklock_board_end_session();
	zklock_client_close(closing, wait_ms);
}

/*
 * The program is beside the library, wherever that was loaded from: another
 * place than at installation, for all we know.
 */
const char *
zklock_session_program(void)
{
	Dl_info		library;

	if (program_path[0] == '\0')
	{
		if (dladdr((void *) zklock_session_program, &library) == 0 ||
			library.dli_fname == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_SYSTEM_ERROR),
					 errmsg("could not find out where the library of zklock is")));
		strlcpy(program_path, library.dli_fname, sizeof(program_path));
		get_parent_directory(program_path);
		join_path_components(program_path, program_path, PROGRAM_NAME);
	}
	return program_path;
}

void
zklock_session_check_secret(void)
{
	Origin		auth;

	if (servers_setting[0] != '\0' && zklock_auth_is_secret(&auth) &&
		!may_have_secret(&auth))
		zklock_origin_refuse(&auth, &servers_origin);
}

char *
zklock_session_tls(void)
{
	StringInfoData text;

	if (!ssl_setting)
		return NULL;
	initStringInfo(&text);
	appendStringInfo(&text, "%s\n%s\n%s\n%s\n%d\n", ssl_ca_file_setting,
					 ssl_cert_file_setting, ssl_key_file_setting,
					 ssl_crl_file_setting, ssl_version_setting);
	for (const char *at = ssl_passphrase_command_setting; *at != '\0'; at++)
		if (at[0] == '%' && (at[1] == 'p' || at[1] == '%'))
			appendStringInfoString(&text, *++at == 'p' ? "Enter passphrase of the key for ZooKeeper:" : "%");
		else
			appendStringInfoChar(&text, *at);
	return text.data;
}

bool
zklock_session_status(ZkClientStatus *status)
{
	if (MySession.client == NULL)
		return false;
	zklock_client_status(MySession.client, status);
	if (status->state == ZK_CLIENT_LOST)
		note_session_end(status);
	return true;
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
	const char *process = IsParallelWorker() ? "a parallel worker" :
		AmAutoVacuumWorkerProcess() ? "an autovacuum worker" :
		am_walsender ? "a walsender" : NULL;

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
	int			pause_ms = MySession.nshort < 2 ? 0 :
		Min(PAUSE_MIN_MS << Min(MySession.nshort - 2, 8), PAUSE_MAX_MS);

	if (pause_ms > 0)
		session_sleep(Min(MySession.started_at + pause_ms,
						  MySession.connect_deadline));
	if (!is_retry || MySession.nshort == 0 ||
		protocol_now() < MySession.connect_deadline)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_CONNECTION_FAILURE),
			 errmsg("ZooKeeper sessions are lost as soon as they are granted"),
			 errdetail("%d in a row were. The last one: %s",
					   MySession.nshort, LastLoss.text),
			 errhint("Check that the setting \"%s\" names ZooKeeper servers, see their logs, and run zk_check(false).",
					 "zklock.servers")));
}

/* Start a session; it has a client when this returns. */
static void
start_session(void)
{
	ZkClientOptions options = {
		.program = zklock_session_program(),
		.servers = servers_setting,
		.session_timeout_ms = session_timeout_setting,
		.tls = zklock_session_tls(),
		.follows_configuration = zklock_origin_is_configuration(&servers_origin),
		.wants_notes = message_level_is_interesting(DEBUG1)
	};
	ZkClientStatus status;

	if (servers_setting[0] == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("ZooKeeper servers are not configured"),
				 errdetail("The setting \"%s\" is empty.", "zklock.servers"),
				 errhint("Set it in postgresql.conf to the servers of your ensemble, for example 'zk1:2181,zk2:2181,zk3:2181', and reload.")));
	zklock_board_enter();
	choose_auth(&options);
	if (MySession.number++ == 0)
		on_proc_exit(close_at_exit, 0);

	/* backends spread over the servers, and the next session tries another */
	options.first_server = hash_bytes_uint32(MyProcPid) + MySession.number;
	MySession.started_at = protocol_now();
	MySession.noted = (NotedSession) {0};
	MySession.nmoves_shown = 0;
	MySession.ncounted = 0;
	MySession.opened_with = settings();
	MySession.told_servers = servers_hash();
	MySession.is_kept_away = false;
	is_servers_news = false;
	note_chroot();
	MySession.knows_chosen = are_servers_chosen();
	MySession.client = zklock_client_open(&options);
	if (options.auth_credentials != NULL)
		explicit_bzero(unconstify(char *, options.auth_credentials),
					   strlen(options.auth_credentials));
	if (MySession.client == NULL)
		zklock_session_raise_memory();
	ReserveExternalFD();
	zklock_client_set_idle_timeout(MySession.client, idle_timeout_setting);
	zklock_board_put_idle_timeout(idle_timeout_setting);
	if (zklock_session_status(&status))
		session_raise_if_lost(&status);
}

/* That of the setting, "" if it has none. */
static void
note_chroot(void)
{
	ServerList	list;
	char		why[SERVERS_WHY_SIZE];

	strlcpy(MySession.chroot, servers_parse(servers_setting, &list, why) ?
			list.chroot : "", sizeof(MySession.chroot));
	MySession.chroot_origin = servers_origin;
}

/*
 * The credentials of the next session: the user's, or without any an identity
 * of its own.
 */
static void
choose_auth(ZkClientOptions *options)
{
	char	   *scheme = "digest";
	char	   *credentials = NULL;

	MySession.has_secret = zklock_auth_is_secret(&MySession.auth_origin);
	zklock_session_check_secret();
	zklock_auth_read(&scheme, &credentials);
	if (credentials != NULL && strcmp(scheme, PROTOCOL_CERTIFICATE) == 0 &&
		(!ssl_setting || ssl_cert_file_setting[0] == '\0'))
		ereport(ERROR,
				(errcode(ERRCODE_CONFIG_FILE_ERROR),
				 errmsg("there is no certificate to be the credentials for ZooKeeper"),
				 errdetail("The setting \"%s\" says \"%s\", and \"%s\" is off, or \"%s\" is empty.",
						   "zklock.auth", PROTOCOL_CERTIFICATE, "zklock.ssl",
						   "zklock.ssl_cert_file"),
				 errhint("Turn TLS on, and name a certificate and its key; or set other credentials.")));
	MySession.has_credentials = credentials != NULL;
	if (!MySession.has_credentials && !is_identity_refused)
		credentials = zklock_auth_make_identity();
	MySession.has_identity = !MySession.has_credentials && credentials != NULL;
	options->is_auth_private = MySession.has_identity;
	options->auth_scheme = credentials != NULL ? scheme : NULL;
	options->auth_credentials = credentials;
}

/*
 * May credentials of that origin go to the servers that are set?  What the
 * configuration says is in the page of the postmaster's, whatever this session
 * has set.
 */
static bool
may_have_secret(const Origin *auth)
{
	static const SettingsPage *page;
	static char configured[SETTINGS_TEXT_SIZE];

	if (page == NULL && settings_page_fd >= 0)
		page = settings_page_map(settings_page_fd);
	return zklock_origin_allows(auth, &servers_origin, servers_setting,
								page != NULL && settings_page_read_servers(page, configured) ?
								configured : NULL);
}

/*
 * May whoever has logged in, who is no superuser, have chosen servers that are
 * not the configuration's?
 */
static bool
are_servers_chosen(void)
{
	const Origin configuration = {.source = PGC_S_FILE};

	return servers_origin.is_chosen && !may_have_secret(&configuration);
}

/*
 * What the settings of the moment come to: sessions with the same result are
 * as good as one another.
 */
static uint64
settings(void)
{
	return hash_bytes_uint32_extended((uint32) session_timeout_setting,
									  zklock_auth_hash());
}

/* The same of the servers, of TLS, and of where they come from. */
static uint64
servers_hash(void)
{
	char	   *tls = zklock_session_tls();
	char	   *all = psprintf("%d\n%s\n%s",
							   zklock_origin_is_configuration(&servers_origin),
							   servers_setting, tls != NULL ? tls : "");
	uint64		hash = hash_bytes_extended((unsigned char *) all, strlen(all), 0);

	pfree(all);
	if (tls != NULL)
		pfree(tls);
	return hash;
}

/*
 * If the session has been told of other servers, or of another origin of
 * them, tell it.  What becomes of that its program says
 * (session_note_state()).  It would take the secret with it with which it was
 * opened: where that must not go, it stays with the servers of before until it
 * is closed, and zklock_session_open() refuses its use.
 */
static void
tell_servers(void)
{
	char	   *tls;

	if (MySession.client == NULL || servers_setting[0] == '\0')
		return;
	if (MySession.nmoves_shown != MySession.noted.nmoves && uses_servers())
	{
		zklock_board_enter();	/* it has these servers now */
		MySession.nmoves_shown = MySession.noted.nmoves;
	}
	if (!is_servers_news)
		return;
	is_servers_news = false;
	MySession.is_kept_away = MySession.has_secret &&
		!may_have_secret(&MySession.auth_origin);
	if (MySession.is_kept_away || servers_hash() == MySession.told_servers)
		return;
	MySession.told_servers = servers_hash();
	MySession.knows_chosen |= are_servers_chosen();
	tls = zklock_session_tls();
	zklock_client_move_to(MySession.client, servers_setting, tls,
						  zklock_origin_is_configuration(&servers_origin));
	if (tls != NULL)
		pfree(tls);
}

/*
 * Does the session use the servers that are set?  It may have come to them
 * while it lived; another chroot is for the next one alone.
 */
static bool
uses_servers(void)
{
	char	   *tls = zklock_session_tls();
	bool		is_used = zklock_client_uses(MySession.client, servers_setting,
											 tls);
	ServerList	list;
	char		why[SERVERS_WHY_SIZE];

	if (tls != NULL)
		pfree(tls);
	return is_used && (MySession.noted.nmoves == 0 ||
					   (servers_parse(servers_setting, &list, why) &&
						strcmp(list.chroot, MySession.chroot) == 0));
}

/* ---------------------------------------------------------------------
 * Failures
 * ---------------------------------------------------------------------
 */

void
session_raise_not_connected(void)
{
	const char *error = zklock_client_last_error(MySession.client);

	MySession.is_given_up = true;
	ereport(ERROR,
			(errcode(ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION),
			 errmsg("could not connect to ZooKeeper within %d ms",
					connect_timeout_setting),
			 error[0] != '\0' ? errdetail("%s.", error) :
			 errdetail("No server of \"%s\" has answered.", servers_setting),
			 session_connection_hint(error)));
}

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
	ZkClientStatus status;

	if (!zklock_session_status(&status))
		return 0;
	if (may_cancel && is_loss(&status) &&
		LastLoss.noticed_in == statement)
		zklock_client_interrupt_if_lost(MySession.client);
	session_note_state(&status);
	if (status.state != ZK_CLIENT_LOST && !MySession.is_given_up)
		return MySession.number;
	if (status.state == ZK_CLIENT_LOST && status.was_connected)
	{
		MySession.is_retry = is_loss(&status) && protocol_now() - MySession.started_at <
			connect_timeout_setting;
		MySession.nshort = MySession.is_retry ? MySession.nshort + 1 : 0;
	}
	zklock_session_close(0);
	return 0;
}

static void
note_interrupt(void)
{
	int64		sent_at = MySession.client == NULL ? 0 :
		zklock_client_interrupted_at(MySession.client);

	interrupt_sent_at = Max(interrupt_sent_at, sent_at);
}

/*
 * The session is lost.  If the ensemble does not take the identity that we
 * chose ourselves, the next session does without, and has all its time to
 * connect.
 */
static void
note_session_end(const ZkClientStatus *status)
{
	if (is_loss(status))
		session_note_loss(status);
	if (status->loss != ZK_LOSS_AUTH || !MySession.has_identity ||
		MySession.is_given_up)
		return;
	is_identity_refused = true;
	MySession.is_given_up = true;
	MySession.is_retry = true;
	MySession.connect_deadline = protocol_now() + connect_timeout_setting;
}

/*
 * Is it over, and was there anything to lose?  A program that has taken a
 * session for idle on which locks hang was wrong.
 */
static bool
is_loss(const ZkClientStatus *status)
{
	return status->state == ZK_CLIENT_LOST && status->was_connected &&
		(status->loss != ZK_LOSS_IDLE || MySession.is_in_use);
}

void
session_note_loss(const ZkClientStatus *status)
{
	int64		now = protocol_now();
	int64		lost_at = status->state == ZK_CLIENT_LOST ?
		status->lost_at : now;
	TimestampTz wall_clock = GetCurrentTimestamp();

	if (LastLoss.number == MySession.number)
		return;

	/* a reply can be there ahead of the loss: then it is noted again */
	if (status->state == ZK_CLIENT_LOST)
		LastLoss.number = MySession.number;
	LastLoss.noticed_in = statement;
	LastLoss.broken_at = TimestampTzPlusMilliseconds(wall_clock,
													 status->suspended_at - now);
	LastLoss.lost_at = TimestampTzPlusMilliseconds(wall_clock, lost_at - now);
	session_describe_loss(status, zklock_client_last_error(MySession.client),
						  LastLoss.text, sizeof(LastLoss.text));
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
	char		why[SERVERS_WHY_SIZE];

	list.chroot[0] = '\0';
	if ((*newval)[0] != '\0' && !servers_parse(*newval, &list, why))
	{
		GUC_check_errdetail("%s.", why);
		return false;
	}
	if (list.chroot[0] != '\0' && !recipe_is_root(list.chroot))
	{
		GUC_check_errdetail("\"%s\" is not a valid path for a chroot.",
							list.chroot);
		return false;
	}

	*extra = zklock_origin_make("zklock.servers", source);
	return true;
}

/*
 * Where the value comes from goes with it, also when it comes back at the end
 * of a transaction or by RESET.  What the postmaster was started with is as
 * good as its files: it is the same for all, and a reload does not change it.
 */
static void
assign_servers(const char *newval, void *extra)
{
	servers_origin = zklock_origin_read(extra);
	note_text(&servers_setting, newval);
}

static void
assign_ssl(bool newval, void *extra)
{
	ssl_setting = newval;
	note_servers();
}

static void
assign_ssl_ca_file(const char *newval, void *extra)
{
	note_text(&ssl_ca_file_setting, newval);
}

static void
assign_ssl_cert_file(const char *newval, void *extra)
{
	note_text(&ssl_cert_file_setting, newval);
}

static void
assign_ssl_key_file(const char *newval, void *extra)
{
	note_text(&ssl_key_file_setting, newval);
}

static void
assign_ssl_crl_file(const char *newval, void *extra)
{
	note_text(&ssl_crl_file_setting, newval);
}

static void
assign_ssl_passphrase_command(const char *newval, void *extra)
{
	note_text(&ssl_passphrase_command_setting, newval);
}

static void
assign_ssl_version(int newval, void *extra)
{
	ssl_version_setting = newval;
	note_servers();
}

/*
 * Where the postmaster tells programs of the configuration (settings_page.h).
 * Without the page all else works, and a session hears of a change when its
 * backend's next statement comes.
 */
static void
make_settings_page(void)
{
	int			fd;

	if (!IsPostmasterEnvironment)
		return;
	settings_page = settings_page_make(&fd);
	if (settings_page == NULL)
	{
		ereport(LOG,
				(errmsg("could not make the page by which ZooKeeper sessions of idle connections follow \"zklock.servers\": %m"),
				 errhint("Each of them follows a reload with its next statement.")));
		return;
	}
	settings_page_fd = fd;
	zklock_channel_hand_on(fd);
	note_servers();
}

/*
 * That text is about to be the value of a setting.  PostgreSQL stores it when
 * the hook returns, and frees the one that it finds there.
 */
static void
note_text(char **setting, const char *newval)
{
	char	   *former = *setting;

	*setting = unconstify(char *, newval);
	note_servers();
	*setting = former;
}

/*
 * One of the settings was assigned, of which the others may still be to come.
 * Children of the postmaster have the pointer, and not the memory.
 */
static void
note_servers(void)
{
	char	   *tls;

	is_servers_news = true;
	if (settings_page == NULL || IsUnderPostmaster)
		return;
	tls = zklock_session_tls();
	settings_page_write(settings_page, servers_setting, tls);
	if (tls != NULL)
		pfree(tls);
}

/*
 * A file that cannot be read now may be there when a session needs it, so it
 * is no reason to refuse the setting.  The postmaster says so, and nobody
 * else, or each backend would.
 */
static bool
check_ssl_file(char **newval, void **extra, GucSource source)
{
	if (!IsUnderPostmaster && (*newval)[0] != '\0' &&
		access(*newval, R_OK) != 0)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not access file \"%s\" for TLS with ZooKeeper: %m",
						*newval),
				 errhint("Sessions that are connected stay; new ones need it.")));
	return true;
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
 * What is told of it.  This never raises and never waits: it is called at the
 * end of transactions, too.  A message would look for interrupts, so these
 * are held.
 * ---------------------------------------------------------------------
 */

void
session_note_state(const ZkClientStatus *status)
{
	NotedSession before = MySession.noted;
	NotedSession *noted = &MySession.noted;

	log_notes(status);
	noted->nrefused = status->nrefused;
	noted->nmoves = status->nmoves;
	if (status->nmoves != before.nmoves && zklock_board_is_concerned())
		log_move(status);
	if (status->nrefused > 0 && before.nrefused == 0)
		log_refusal(status);
	if (before.since != 0 && before.state == status->state &&
		before.nconnects == status->nconnects)
		return;
	noted->state = status->state;
	noted->nconnects = status->nconnects;
	noted->since = state_since(status);
	zklock_board_put_session(MySession.number, status, noted->since);
	count_news(status, &before);

	HOLD_INTERRUPTS();
	if (status->was_connected &&
		(zklock_board_is_concerned() || status->loss == ZK_LOSS_REFUSED))
		log_news(status, &before);
	RESUME_INTERRUPTS();
}

static void
count_news(const ZkClientStatus *status, const NotedSession *before)
{
	if (before->nconnects == 0 && status->nconnects > 0)
		zklock_stat_count(ZK_STAT_SESSION);
	if (status->nconnects > Max(before->nconnects, 1))
		zklock_stat_add(ZK_STAT_RECONNECT,
						status->nconnects - Max(before->nconnects, 1));
	if (is_loss(status) && before->state != ZK_CLIENT_LOST)
		zklock_stat_count(ZK_STAT_LOSS);
}

/* Since when it is in its state, as far as that is known. */
static TimestampTz
state_since(const ZkClientStatus *status)
{
	int64		now = protocol_now();
	int64		since = now;

	if (status->state == ZK_CLIENT_SUSPENDED)
		since = status->suspended_at;
	else if (status->state == ZK_CLIENT_LOST)
		since = status->lost_at;
	return TimestampTzPlusMilliseconds(GetCurrentTimestamp(), since - now);
}

/* What the program of the session has said for the log since it was last looked at. */
static void
log_notes(const ZkClientStatus *status)
{
	const char *note;

	HOLD_INTERRUPTS();
	while ((note = zklock_client_take_note(MySession.client)) != NULL)
		ereport(DEBUG1,
				(errmsg_internal("zklock: program of session 0x%llx: %s",
								 (unsigned long long) status->session_id, note),
				 errhidestmt(true), errhidecontext(true)));
	RESUME_INTERRUPTS();
}

/*
 * Something that is released blocks others all the same: a line for the first
 * one, until all are gone.
 */
static void
log_refusal(const ZkClientStatus *status)
{
	HOLD_INTERRUPTS();
	ereport(LOG_SERVER_ONLY,
			(errmsg("ZooKeeper refuses to let go of what session 0x%llx has released",
					(unsigned long long) status->session_id),
			 errdetail("%s.", zklock_client_last_error(MySession.client)),
			 errhint("It is repeated until it is done; when all else is released, the session is ended after its timeout, and its znodes go with it. See the ACL of the znode above."),
			 errhidestmt(true), errhidecontext(true)));
	RESUME_INTERRUPTS();
}

/*
 * Other servers were set, and the session cannot use them: who turns off the
 * ones of before would end it.
 */
static void
log_move(const ZkClientStatus *status)
{
	unsigned long long id = status->session_id;
	const char *said = zklock_client_said_of_move(MySession.client);

	HOLD_INTERRUPTS();
	if (status->move == ZK_MOVE_UNKNOWN)
		ereport(LOG_SERVER_ONLY,
				(errmsg("the servers in \"zklock.servers\" do not know ZooKeeper session 0x%llx, which stays with those of before",
						id),
				 errdetail("Server \"%s\" says so: it is of another ensemble.", said),
				 errhint("Until it has released its locks the session needs the servers of before. New sessions use the new ones."),
				 errhidestmt(true), errhidecontext(true)));
	else if (status->move == ZK_MOVE_TLS)
		ereport(LOG_SERVER_ONLY,
				(errmsg("ZooKeeper session 0x%llx stays with the servers and the TLS of before",
						id),
				 errdetail("TLS cannot be had as the settings say now: %s.", said),
				 errhint("Correct the settings \"zklock.ssl...\" or their files, and reload."),
				 errhidestmt(true), errhidecontext(true)));
	else if (status->move == ZK_MOVE_SILENT)
		ereport(LOG_SERVER_ONLY,
				(errmsg("ZooKeeper session 0x%llx stays with the servers of before until one of those in \"zklock.servers\" answers",
						id),
				 errdetail("%s.", said),
				 errhint("They are tried again and again. Check the setting, and run zk_check(false)."),
				 errhidestmt(true), errhidecontext(true)));
	RESUME_INTERRUPTS();
}

/*
 * A line for the person on call, about a session on which locks hang.  To the
 * log alone: a client may not read, and who waits for that may be letting go
 * of locks.
 */
static void
log_news(const ZkClientStatus *status, const NotedSession *before)
{
	unsigned long long id = status->session_id;
	const char *error = zklock_client_last_error(MySession.client);

	if (status->state == ZK_CLIENT_SUSPENDED)
		ereport(LOG_SERVER_ONLY,
				(errmsg("ZooKeeper session 0x%llx lost its connection to server \"%s\"",
						id, status->server),
				 errdetail("It keeps its locks and its places in queues if it is connected again in time."),
				 errhidestmt(true), errhidecontext(true)));
	else if (is_loss(status))
		ereport(LOG_SERVER_ONLY,
				(errmsg("ZooKeeper session 0x%llx is lost, and its locks with it",
						id),
				 errdetail("%s", LastLoss.text),
				 errhidestmt(true), errhidecontext(true)));
	else if (status->state == ZK_CLIENT_CONNECTED &&
			 status->nconnects > Max(before->nconnects, 1))
		ereport(LOG_SERVER_ONLY,
				(errmsg("ZooKeeper session 0x%llx is connected again, to server \"%s\"",
						id, status->server),
				 before->state == ZK_CLIENT_SUSPENDED ?
				 errdetail("It had no connection since %s.",
						   timestamptz_to_str(before->since)) :
				 errdetail("Its locks are kept."),
				 strstr(error, "Could not load file") != NULL ?
				 errhint("It uses what it has read before. New sessions will fail: %s.", error) : 0,
				 errhidestmt(true), errhidecontext(true)));
}
