/*-------------------------------------------------------------------------
 *
 * auth.c
 *	  Credentials for ZooKeeper: the user's, and those that a session makes up
 *	  for itself.
 *
 * Secrets are palloc'ed for as long as it takes to hand them to the session's
 * program, and wiped then.  They are in no message.
 *
 *-------------------------------------------------------------------------
 */
#include "auth.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/parallel.h"
#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "tcop/pquery.h"
#include "utils/acl.h"
#include "utils/guc.h"

#include "origin.h"
#include "protocol.h"

/*
 * zklock.auth: "scheme:credentials", or "@/path/of/a/file" that holds that
 * line.  The file keeps the secret out of the server's log, where a reload
 * shows every changed setting.  Or PROTOCOL_CERTIFICATE: then the credentials
 * are the certificate that the connection shows by itself.
 */
static char *auth_setting;
static Origin auth_origin;

static char *read_auth_file(const char *path);
static void warn_of_readers(const char *path, const struct stat *status);
static bool check_auth(char **newval, void **extra, GucSource source);
static void assign_auth(const char *newval, void *extra);
static const char *show_auth(void);
static bool has_secret(const char *setting);

void
zklock_auth_init(void)
{
	DefineCustomStringVariable("zklock.auth",
							   "Credentials for ZooKeeper.",
							   "The value is scheme:credentials, or @ and the path of a file with such a line, or x509 for the client certificate.",
							   &auth_setting, "",
							   PGC_SUSET,
							   GUC_SUPERUSER_ONLY | GUC_NO_SHOW_ALL |
							   GUC_NOT_IN_SAMPLE,
							   check_auth, assign_auth, show_auth);
}

uint64
zklock_auth_hash(void)
{
	return hash_bytes_extended((const unsigned char *) auth_setting,
							   strlen(auth_setting), 0);
}

bool
zklock_auth_is_secret(Origin *origin)
{
	*origin = auth_origin;
	return auth_setting[0] == '@' || has_secret(auth_setting);
}

void
zklock_auth_read(char **scheme, char **credentials)
{
	char	   *line;
	char	   *colon;

	if (auth_setting[0] == '\0')
		return;
	if (auth_setting[0] == '@')
		line = read_auth_file(auth_setting + 1);
	else
		line = pstrdup(auth_setting);
	*scheme = line;
	*credentials = line + strlen(line);
	if (strcmp(line, PROTOCOL_CERTIFICATE) == 0)
		return;
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
	*credentials = colon + 1;
}

char *
zklock_auth_make_identity(void)
{
	unsigned long long random[2];

	if (!pg_strong_random(random, sizeof(random)))
		return NULL;
	return psprintf("zklock:%016llx%016llx", random[0], random[1]);
}

/*
 * The first line of a file, palloc'ed.  Raises if there is none; its path is
 * for the log, for everybody gets here.  Not by stdio, which leaves what it
 * has read in memory.  A FIFO would hold the backend up for as long as nobody
 * writes to it: it is refused.
 */
static char *
read_auth_file(const char *path)
{
	char		line[1024];
	int			file = OpenTransientFile(path, O_RDONLY | O_NONBLOCK |
										 PG_BINARY);
	struct stat status;
	ssize_t		length = -1;
	char	   *result;

	if (file >= 0 && (fstat(file, &status) != 0 || !S_ISREG(status.st_mode)))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("the file with the credentials for ZooKeeper is not a regular file"),
				 errdetail_log("It is \"%s\".", path),
				 errhint("Set \"%s\" to @ and the path of a regular file.",
						 "zklock.auth")));
	if (file >= 0)
		length = read(file, line, sizeof(line) - 1);
	if (length < 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not read the file with the credentials for ZooKeeper: %m"),
				 errdetail_log("It is \"%s\".", path)));
	warn_of_readers(path, &status);
	CloseTransientFile(file);
	line[length] = '\0';
	line[strcspn(line, "\r\n")] = '\0';
	result = pstrdup(line);
	explicit_bzero(line, sizeof(line));
	return result;
}

/*
 * Warn, once, of a file of credentials that others can read.  It is to be
 * readable by the server's user alone, or to belong to root with read access
 * for a group, as PostgreSQL requires of ssl_key_file.  It is used all the
 * same: to refuse it would take the locks away from a cluster that has run so
 * far, and the secret is known already.  The path is shown in the log, and to
 * superusers, whose setting it is.
 */
static void
warn_of_readers(const char *path, const struct stat *status)
{
	static bool has_warned = false;
	mode_t		others = S_IRWXG | S_IRWXO;
	bool		is_ours = IsTransactionState() &&
		superuser_arg(GetSessionUserId());

	if (status->st_uid == 0)
		others = S_IWGRP | S_IXGRP | S_IRWXO;
	if (has_warned || (status->st_mode & others) == 0)
		return;
	has_warned = true;
	ereport(is_ours ? WARNING : LOG_SERVER_ONLY,
			(errcode(ERRCODE_WARNING),
			 errmsg("file \"%s\" with the credentials for ZooKeeper has group or world access",
					path),
			 errdetail("File must have permissions u=rw (0600) or less if owned by the server's user, or permissions u=rw,g=r (0640) or less if owned by root.")));
}

/*
 * A role that was granted SET on this parameter must not read files that way.
 * The source of ALTER SYSTEM is PGC_S_FILE, as that of a reload, which happens
 * outside portals.
 *
 * A bad value is refused without showing it, as the default message would.
 * So are credentials where everybody can read them: pg_db_role_setting and
 * pg_proc.  What was stored there while the server ran without this library is
 * not applied, with a WARNING, as PostgreSQL does with every stored setting
 * that has become invalid; but that of a function comes as that of a SET.
 */
static bool
check_auth(char **newval, void **extra, GucSource source)
{
	const char *colon = strchr(*newval, ':');

	if (**newval == '@' && IsTransactionState() &&
		(source >= PGC_S_CLIENT || ActivePortal != NULL) &&
		!InitializingParallelWorker &&
		!has_privs_of_role(GetUserId(), ROLE_PG_READ_SERVER_FILES))
	{
		GUC_check_errcode(ERRCODE_INSUFFICIENT_PRIVILEGE);
		GUC_check_errmsg("permission denied to name a file in parameter \"%s\"",
						 "zklock.auth");
		GUC_check_errdetail("Only members of role \"%s\" may do that.", "pg_read_server_files");
		return false;
	}
	if (!has_secret(*newval))
	{
		*extra = zklock_origin_make("zklock.auth", source);
		return true;
	}

	/* PGC_S_TEST is that of ALTER ROLE, ALTER DATABASE and CREATE FUNCTION */
	if (source == PGC_S_TEST ||
		(source >= PGC_S_GLOBAL && source <= PGC_S_DATABASE_USER))
	{
		GUC_check_errmsg("parameter \"%s\" of a database, role or function must not hold credentials",
						 "zklock.auth");
		GUC_check_errdetail("Everybody can read credentials that are stored there.");
		GUC_check_errhint("Write the credentials to a file, and give @ and the path of the file instead.");
		return false;
	}
	if (colon != NULL && colon != *newval)
	{
		*extra = zklock_origin_make("zklock.auth", source);
		return true;
	}
	GUC_check_errmsg("invalid value for parameter \"%s\"", "zklock.auth");
	GUC_check_errhint("Use scheme:credentials, for example digest:user:password, or @ and the path of a file with that line, or x509.");
	return false;
}

static void
assign_auth(const char *newval, void *extra)
{
	auth_origin = zklock_origin_read(extra);
}

static const char *
show_auth(void)
{
	return has_secret(auth_setting) ? "********" : auth_setting;
}

/* Are the credentials in the setting itself? */
static bool
has_secret(const char *setting)
{
	return setting[0] != '\0' && setting[0] != '@' &&
		strcmp(setting, PROTOCOL_CERTIFICATE) != 0;
}
