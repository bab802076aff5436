/*-------------------------------------------------------------------------
 *
 * session_settings.c
 *	  The settings of a session.  Decides which list of servers is in use.
 *
 * The postmaster writes the servers and TLS of the configuration to a page
 * (settings_page.h).  The list there is the one in use, for all sessions of the
 * cluster.
 *
 * The rule: a reload takes a list only if it has a server in common with the
 * one in use.  A slip must not lead part of the cluster to another ensemble,
 * where the same names are other locks.  Postmaster and backends come to the
 * same result, for all of them ask what is in use: the postmaster has it in the
 * setting, a backend reads it from the page, also if it has missed reloads.
 *
 *-------------------------------------------------------------------------
 */
#include "session_settings.h"

#include <unistd.h>

#include "common/hashfn.h"
#include "access/parallel.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "tcop/pquery.h"
#include "utils/guc.h"

#include "auth.h"
#include "channel.h"
#include "recipe.h"
#include "servers.h"
#include "session.h"
#include "settings_page.h"

/* What stands for %p in zklock.ssl_passphrase_command. */
#define PASSPHRASE_PROMPT "Enter passphrase of the key for ZooKeeper:"

static const struct config_enum_entry ssl_versions[] = {
	{"TLSv1.2", 2, false}, {"TLSv1.3", 3, false}, {NULL, 0, false}
};

/* PostgreSQL keeps pointers to its members: it has to be static. */
SessionSettings session_settings = {.ssl_min_protocol_version = 2};

/*
 * The page of the postmaster, made once all settings are defined.  Its
 * children inherit the descriptor, and map the page anew where they read it.
 */
static struct
{
	SettingsPage *written;		/* in the postmaster; NULL if it could not be
								 * made, and in a server without a postmaster
								 * (postgres --single) */
	int			fd;				/* valid if there is one */
	const SettingsPage *read;	/* NULL: not mapped yet */
}			page = {.fd = -1};

/* How often one of the settings of servers and of TLS was assigned. */
static uint64 nchanges;

/* The list in use, as it was read last, in a child of the postmaster. */
static struct
{
	char		servers[SETTINGS_TEXT_SIZE];
	uint32		state;			/* of the page then; odd: nothing was read */
}			in_use = {.state = 1};

static bool check_servers(char **newval, void **extra, GucSource source);
static void assign_servers(const char *newval, void *extra);
static const char *show_servers(void);
static bool check_ssl_file(char **newval, void **extra, GucSource source);
static void assign_ssl(bool newval, void *extra);
static void assign_ssl_ca_file(const char *newval, void *extra);
static void assign_ssl_cert_file(const char *newval, void *extra);
static void assign_ssl_key_file(const char *newval, void *extra);
static void assign_ssl_crl_file(const char *newval, void *extra);
static void assign_ssl_passphrase_command(const char *newval, void *extra);
static void assign_ssl_version(int newval, void *extra);
static void make_settings_page(void);
static void note_text(char **setting, const char *newval);
static void note_change(void);
static const char *find_servers_in_use(void);
static bool parse_servers(const char *text, ServerList *list);
static bool may_follow(const char *text, const ServerList *list);

void
session_settings_init(void)
{
	SessionSettings *settings = &session_settings;

	DefineCustomStringVariable("zklock.servers",
							   "ZooKeeper servers that zklock uses.",
							   "The form is host:port,host:port[/chroot], with IPv6 addresses in brackets.",
							   &settings->servers, "",
							   PGC_SIGHUP, 0,
							   check_servers, assign_servers, show_servers);
	DefineCustomBoolVariable("zklock.ssl",
							 "Encrypts the connections to ZooKeeper, and verifies its servers.",
							 NULL, &settings->ssl, false, PGC_POSTMASTER, 0,
							 NULL, assign_ssl, NULL);
	DefineCustomStringVariable("zklock.ssl_ca_file",
							   "File with the authorities that sign the certificates of ZooKeeper's servers.",
							   NULL, &settings->ssl_ca_file, "", PGC_SIGHUP, 0,
							   check_ssl_file, assign_ssl_ca_file, NULL);
	DefineCustomStringVariable("zklock.ssl_cert_file",
							   "File with the certificate that is shown to ZooKeeper's servers.",
							   NULL, &settings->ssl_cert_file, "", PGC_SIGHUP, 0,
							   check_ssl_file, assign_ssl_cert_file, NULL);
	DefineCustomStringVariable("zklock.ssl_key_file",
							   "File with the private key of the certificate in zklock.ssl_cert_file.",
							   NULL, &settings->ssl_key_file, "", PGC_SIGHUP, 0,
							   check_ssl_file, assign_ssl_key_file, NULL);
	DefineCustomStringVariable("zklock.ssl_crl_file",
							   "File with the revoked certificates of ZooKeeper's servers.",
							   NULL, &settings->ssl_crl_file, "", PGC_SIGHUP, 0,
							   check_ssl_file, assign_ssl_crl_file, NULL);
	DefineCustomStringVariable("zklock.ssl_passphrase_command",
							   "Command that prints the passphrase of the private key in zklock.ssl_key_file.",
							   NULL, &settings->ssl_passphrase_command, "", PGC_SIGHUP,
							   GUC_SUPERUSER_ONLY, NULL,
							   assign_ssl_passphrase_command, NULL);
	DefineCustomEnumVariable("zklock.ssl_min_protocol_version",
							 "Lowest version of TLS that is used with ZooKeeper.",
							 NULL, &settings->ssl_min_protocol_version, 2, ssl_versions,
							 PGC_SIGHUP, 0, NULL, assign_ssl_version, NULL);
	make_settings_page();
	DefineCustomIntVariable("zklock.session_timeout",
							"Session timeout that zklock asks the ensemble for.",
							"It should be at least four thirds of the ensemble's syncLimit * tickTime.",
							&settings->session_timeout, 15000, 1000, 3600000,
							PGC_SUSET, GUC_UNIT_MS,
							NULL, NULL, NULL);
	DefineCustomIntVariable("zklock.connect_timeout",
							"Longest time to wait for a connection to the ensemble.",
							NULL,
							&settings->connect_timeout, 10000, 100, 3600000,
							PGC_USERSET, GUC_UNIT_MS,
							NULL, NULL, NULL);
}

/* ---------------------------------------------------------------------
 * Questions
 * ---------------------------------------------------------------------
 */

uint64
session_settings_hash(void)
{
	static uint64 hash;			/* of the texts, as of that change */
	static uint64 hashed = UINT64_MAX;

	if (hashed != nchanges)
	{
		char	   *tls = zklock_session_tls();
		const char *servers = page.fd < 0 ? session_settings.servers : "";
		char	   *texts = psprintf("%s\n%s", servers, tls != NULL ? tls : "");

		hash = hash_bytes_extended((unsigned char *) texts, strlen(texts), 0);
		hashed = nchanges;
		pfree(texts);
		if (tls != NULL)
			pfree(tls);
	}
	return hash_combine64(hash_combine64(hash, zklock_auth_hash()),
						  session_settings.session_timeout);
}

const char *
zklock_session_servers(void)
{
	const char *servers = find_servers_in_use();

	return servers != NULL ? servers : "";
}

const char *
zklock_session_chroot(void)
{
	const char *servers = zklock_session_servers();
	const char *slash = strchr(servers, '/');
	static char chroot[SERVERS_CHROOT_MAX + 1];
	ServerList	list;
	char		why[SERVERS_WHY_SIZE];

	/* as a rule there is none */
	if (slash == NULL || !servers_parse(servers, &list, why))
		return "";
	strlcpy(chroot, list.chroot, sizeof(chroot));
	return chroot;
}

char *
zklock_session_tls(void)
{
	StringInfoData text;

	if (!session_settings.ssl)
		return NULL;
	initStringInfo(&text);
	appendStringInfo(&text, "%s\n%s\n%s\n%s\n%d\n",
					 session_settings.ssl_ca_file,
					 session_settings.ssl_cert_file,
					 session_settings.ssl_key_file,
					 session_settings.ssl_crl_file,
					 session_settings.ssl_min_protocol_version);
	for (const char *at = session_settings.ssl_passphrase_command; *at != '\0'; at++)
	{
		if (strncmp(at, "%p", 2) == 0)
		{
			appendStringInfoString(&text, PASSPHRASE_PROMPT);
			at++;
		}
		else if (strncmp(at, "%%", 2) == 0)
		{
			appendStringInfoChar(&text, '%');
			at++;
		}
		else
			appendStringInfoChar(&text, *at);
	}
	return text.data;
}

/*
 * NULL: none was set yet, while the settings are defined.  Without a page,
 * which a server without a postmaster has not, what this process has read last.
 */
static const char *
find_servers_in_use(void)
{
	char		servers[SETTINGS_TEXT_SIZE];

	if (!IsUnderPostmaster || page.fd < 0)
		return session_settings.servers;
	if (page.read == NULL)
		page.read = settings_page_map(page.fd);
	if (page.read == NULL)
		return session_settings.servers;
	if (settings_page_state(page.read) != in_use.state &&
		settings_page_read_servers(page.read, servers, &in_use.state))
		strcpy(in_use.servers, servers);
	return in_use.servers;
}

/* ---------------------------------------------------------------------
 * Hooks of the settings
 * ---------------------------------------------------------------------
 */

static bool
check_servers(char **newval, void **extra, GucSource source)
{
	ServerList	list;

	return parse_servers(*newval, &list) && may_follow(*newval, &list);
}

static void
assign_servers(const char *newval, void *extra)
{
	note_text(&session_settings.servers, newval);
}

static const char *
show_servers(void)
{
	return zklock_session_servers();
}

/* An empty list has no servers.  On failure the DETAIL is set. */
static bool
parse_servers(const char *text, ServerList *list)
{
	char		why[SERVERS_WHY_SIZE];

	list->nservers = 0;
	list->chroot[0] = '\0';
	if (strlen(text) >= SETTINGS_TEXT_SIZE)
	{
		GUC_check_errdetail("The list has more than %d bytes.",
							SETTINGS_TEXT_SIZE - 1);
		return false;
	}
	if (text[0] != '\0' && !servers_parse(text, list, why))
	{
		GUC_check_errdetail("%s.", why);
		return false;
	}
	if (list->chroot[0] != '\0' && !recipe_is_root(list->chroot))
	{
		GUC_check_errdetail("\"%s\" is not a valid path for a chroot.",
							list->chroot);
		return false;
	}
	return true;
}

/*
 * May that list, which was read, take the place of the one in use, while
 * sessions may hold locks?  At the start of the server there is none in use; a
 * parallel worker begins with the default, and takes its leader's value.  ALTER
 * SYSTEM stores a list for the next restart, too.
 */
static bool
may_follow(const char *text, const ServerList *list)
{
	const char *servers = find_servers_in_use();
	ServerList	former;
	char		why[SERVERS_WHY_SIZE];

	if (InitializingParallelWorker || servers == NULL ||
		strcmp(servers, text) == 0 || !servers_parse(servers, &former, why) ||
		servers_overlap(&former, list))
		return true;
	if (ActivePortal != NULL && ActivePortal->commandTag == CMDTAG_ALTER_SYSTEM)
	{
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg("the new value of \"zklock.servers\" takes effect with the next restart"),
				 errdetail("It has no server in common with the list in use, or another chroot."),
				 errhint("To move an ensemble without a restart, set both lists first, reload, and then set the new one.")));
		return true;
	}
	GUC_check_errdetail("The list has no server in common with the one in use, \"%s\", or another chroot.",
						servers);
	GUC_check_errhint("The list in use stays until the server is restarted. To move an ensemble without a restart, set both lists first, reload, and then set the new one.");
	return false;
}

static void
assign_ssl(bool newval, void *extra)
{
	session_settings.ssl = newval;
	note_change();
}

static void
assign_ssl_ca_file(const char *newval, void *extra)
{
	note_text(&session_settings.ssl_ca_file, newval);
}

static void
assign_ssl_cert_file(const char *newval, void *extra)
{
	note_text(&session_settings.ssl_cert_file, newval);
}

static void
assign_ssl_key_file(const char *newval, void *extra)
{
	note_text(&session_settings.ssl_key_file, newval);
}

static void
assign_ssl_crl_file(const char *newval, void *extra)
{
	note_text(&session_settings.ssl_crl_file, newval);
}

static void
assign_ssl_passphrase_command(const char *newval, void *extra)
{
	note_text(&session_settings.ssl_passphrase_command, newval);
}

static void
assign_ssl_version(int newval, void *extra)
{
	session_settings.ssl_min_protocol_version = newval;
	note_change();
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
				 errhint("Correct the setting or the file. Sessions that are connected stay connected; new sessions need the file.")));
	return true;
}

/* ---------------------------------------------------------------------
 * The page
 * ---------------------------------------------------------------------
 */

/*
 * Where the postmaster tells all others of the list in use
 * (settings_page.h).  Without the page all else works, and a reload counts for
 * the next session of each backend.
 */
static void
make_settings_page(void)
{
	int			fd;

	if (!IsPostmasterEnvironment)
		return;
	page.written = settings_page_make(&fd);
	if (page.written == NULL)
	{
		ereport(LOG,
				(errmsg("could not create the shared page by which ZooKeeper sessions follow \"zklock.servers\": %m"),
				 errhint("Sessions that are open stay with their servers after a reload. Restart the server when memory is available.")));
		return;
	}
	page.fd = fd;
	zklock_channel_hand_on(fd);
	note_change();
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
	note_change();
	*setting = former;
}

/*
 * One of the settings was assigned, of which the others may still be to come.
 * Children of the postmaster have the pointer, and not the memory.
 */
static void
note_change(void)
{
	char	   *tls;

	nchanges++;
	if (page.written == NULL || IsUnderPostmaster)
		return;
	tls = zklock_session_tls();
	settings_page_write(page.written, session_settings.servers, tls);
	if (tls != NULL)
		pfree(tls);
}
