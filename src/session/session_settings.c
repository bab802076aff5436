/*-------------------------------------------------------------------------
 *
 * session_settings.c
 *	  The settings of a session: which servers, by TLS or not, and how long is
 *	  waited for them.
 *
 * The postmaster writes the servers and TLS of the configuration to a page
 * (settings_page.h), where the programs of idle backends' sessions read them.
 *
 *-------------------------------------------------------------------------
 */
#include "session_settings.h"

#include <unistd.h>

#include "common/hashfn.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/guc.h"

#include "auth.h"
#include "channel.h"
#include "recipe.h"
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

static bool check_servers(char **newval, void **extra, GucSource source);
static void assign_servers(const char *newval, void *extra);
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
static const char *read_configured(char text[SETTINGS_TEXT_SIZE]);

void
session_settings_init(void)
{
	SessionSettings *settings = &session_settings;

	DefineCustomStringVariable("zklock.servers",
							   "ZooKeeper servers that zklock uses.",
							   "The form is host:port,host:port[/chroot], with IPv6 addresses in brackets.",
							   &settings->servers, "",
							   PGC_SUSET, 0,
							   check_servers, assign_servers, NULL);
	DefineCustomBoolVariable("zklock.ssl",
							 "Encrypts the connections to ZooKeeper, and verifies its servers.",
							 NULL, &settings->ssl, false, PGC_SIGHUP, 0,
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
	return hash_bytes_uint32_extended((uint32) session_settings.session_timeout,
									  zklock_auth_hash());
}

uint64
session_settings_hash_servers(void)
{
	char	   *tls = zklock_session_tls();
	char	   *all = psprintf("%d\n%s\n%s",
							   zklock_origin_is_configuration(&session_settings.servers_origin),
							   session_settings.servers, tls != NULL ? tls : "");
	uint64		hash = hash_bytes_extended((unsigned char *) all, strlen(all), 0);

	pfree(all);
	if (tls != NULL)
		pfree(tls);
	return hash;
}

/* What the configuration says counts, whatever this session has set. */
bool
session_settings_allow_secret(const Origin *auth)
{
	char		configured[SETTINGS_TEXT_SIZE];

	return zklock_origin_allows(auth, &session_settings.servers_origin,
								session_settings.servers,
								read_configured(configured));
}

bool
session_settings_are_chosen(void)
{
	const Origin configuration = {.source = PGC_S_FILE};

	return zklock_origin_is_chosen(&session_settings.servers_origin) &&
		!session_settings_allow_secret(&configuration);
}

void
zklock_session_check_secret(void)
{
	Origin		auth;

	if (session_settings.servers[0] != '\0' && zklock_auth_is_secret(&auth) &&
		!session_settings_allow_secret(&auth))
		zklock_origin_refuse(&auth, &session_settings.servers_origin);
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

/* The servers of the configuration; NULL: they are not known. */
static const char *
read_configured(char text[SETTINGS_TEXT_SIZE])
{
	if (page.read == NULL && page.fd >= 0)
		page.read = settings_page_map(page.fd);
	if (page.read == NULL || !settings_page_read_servers(page.read, text))
		return NULL;
	return text;
}

/* ---------------------------------------------------------------------
 * Hooks of the settings
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
	ServerList	list;
	char		why[SERVERS_WHY_SIZE];

	session_settings.chroot[0] = '\0';
	if (servers_parse(newval, &list, why))
		strlcpy(session_settings.chroot, list.chroot,
				sizeof(session_settings.chroot));
	session_settings.servers_origin = zklock_origin_read(extra);
	note_text(&session_settings.servers, newval);
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
	page.written = settings_page_make(&fd);
	if (page.written == NULL)
	{
		ereport(LOG,
				(errmsg("could not create the shared page by which ZooKeeper sessions of idle connections follow \"zklock.servers\": %m"),
				 errhint("The session of an idle connection follows a reload only with its next statement.")));
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

	session_settings.nchanges++;
	if (page.written == NULL || IsUnderPostmaster)
		return;
	tls = zklock_session_tls();
	settings_page_write(page.written, session_settings.servers, tls);
	if (tls != NULL)
		pfree(tls);
}
