/*-------------------------------------------------------------------------
 *
 * auth.c
 *	  Credentials: the user's (zklock.auth), and the identity that a session
 *	  makes up.
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
#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "utils/guc.h"

#include "compat.h"
#include "protocol.h"

/* Room for the line of a file. */
#define AUTH_LINE_SIZE 1024

/* What load_line() says of a file that is not a regular one. */
#define NOT_REGULAR (-1)

/*
 * zklock.auth: "scheme:credentials", or "@/path/of/a/file" that holds that
 * line.  The file keeps the secret out of the server's log, where a reload
 * shows every changed setting.  Or PROTOCOL_CERTIFICATE: then the credentials
 * are the certificate that the connection shows by itself.
 */
static char *auth_setting;

/*
 * Of what it comes to, with the file: what the check hook has left for the
 * assign hook.
 */
static uint64 auth_hash;

static char *read_auth_file(const char *path);
static int	load_line(const char *path, char line[AUTH_LINE_SIZE],
					  struct stat *status);
static void warn_of_readers(const char *path, const struct stat *status);
static bool check_auth(char **newval, void **extra, GucSource source);
static void assign_auth(const char *newval, void *extra);
static const char *show_auth(void);
static bool has_secret(const char *setting);
static bool is_usable(const char *line);

void
zklock_auth_init(void)
{
	DefineCustomStringVariable("zklock.auth",
							   "Credentials for ZooKeeper.",
							   "The value is scheme:credentials, or @ and the path of a file with such a line, or x509 for the client certificate.",
							   &auth_setting, "",
							   PGC_SIGHUP,
							   GUC_SUPERUSER_ONLY | GUC_NO_SHOW_ALL |
							   GUC_NOT_IN_SAMPLE,
							   check_auth, assign_auth, show_auth);
}

uint64
zklock_auth_hash(void)
{
	return auth_hash;
}

void
zklock_auth_read(char **scheme, char **credentials)
{
	char	   *line;

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
	if (!is_usable(line))
	{
		explicit_bzero(line, strlen(line));
		ereport(ERROR,
				(errcode(ERRCODE_CONFIG_FILE_ERROR),
				 errmsg("invalid credentials for ZooKeeper"),
				 errdetail("The file that \"%s\" names does not hold a line of the form scheme:credentials.",
						   "zklock.auth")));
	}
	*credentials = strchr(line, ':') + 1;
	(*credentials)[-1] = '\0';
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
 * for the log, for everybody gets here.
 */
static char *
read_auth_file(const char *path)
{
	char		line[AUTH_LINE_SIZE];
	struct stat status;
	char	   *result;

	errno = load_line(path, line, &status);
	if (errno == NOT_REGULAR)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("the file with the credentials for ZooKeeper is not a regular file"),
				 errdetail_log("It is \"%s\".", path),
				 errhint("Set \"%s\" to @ and the path of a regular file.",
						 "zklock.auth")));
	if (errno != 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not read the file with the credentials for ZooKeeper: %m"),
				 errdetail_log("It is \"%s\".", path)));
	warn_of_readers(path, &status);
	result = pstrdup(line);
	explicit_bzero(line, sizeof(line));
	return result;
}

/*
 * The same into line.  Result: 0, or NOT_REGULAR, or errno.  Not by stdio, which
 * leaves what it has read in memory.  A FIFO would hold the caller up for as
 * long as nobody writes to it.  Nothing raises while the file is open.
 */
static int
load_line(const char *path, char line[AUTH_LINE_SIZE], struct stat *status)
{
	int			file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	ssize_t		length = 0;
	int			result = 0;

	*status = (struct stat) {0};
	if (file < 0)
		return errno;
	if (fstat(file, status) < 0)
		result = errno;
	else if (!S_ISREG(status->st_mode))
		result = NOT_REGULAR;
	else if ((length = read(file, line, AUTH_LINE_SIZE - 1)) < 0)
		result = errno;
	close(file);
	if (result != 0)
		return result;
	line[length] = '\0';
	line[strcspn(line, "\r\n")] = '\0';
	return 0;
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
 * A value that cannot be used is refused without showing it, as the default
 * message would, and the former one stays.  But when the server starts there is
 * no former one, and without credentials the znodes would be open to all: so
 * the value stays, and sessions are refused (zklock_auth_read()).  A parallel
 * worker takes its leader's value, and opens no session.
 */
static bool
check_auth(char **newval, void **extra, GucSource source)
{
	bool		is_file = (*newval)[0] == '@';
	char		line[AUTH_LINE_SIZE] = "";
	const char *read = is_file ? line : *newval;
	struct stat status;
	int			error = 0;
	bool		is_good;

	if (is_file)
		error = load_line(*newval + 1, line, &status);
	is_good = error == 0 && (is_usable(read) || (*newval)[0] == '\0');
	if (is_good || process_shared_preload_libraries_in_progress ||
		InitializingParallelWorker)
	{
		*extra = guc_malloc_compat(sizeof(uint64));
		if (*extra != NULL)
			*(uint64 *) *extra = hash_bytes_extended((const unsigned char *) read,
													 strlen(read), 0);
	}
	explicit_bzero(line, sizeof(line));
	if (!is_good && *extra != NULL && !InitializingParallelWorker)
		ereport(LOG,
				(errmsg("the credentials for ZooKeeper in \"zklock.auth\" cannot be used, and sessions are refused"),
				 errhint("Correct the setting or the file that it names, and reload.")));
	if (*extra != NULL)
		return true;
	GUC_check_errmsg("invalid value for parameter \"%s\"", "zklock.auth");
	if (error == NOT_REGULAR)
		GUC_check_errdetail("File \"%s\" is not a regular file.", *newval + 1);
	else if (error != 0)
		GUC_check_errdetail("File \"%s\" could not be read: %s.", *newval + 1,
							strerror(error));
	else if (is_file)
		GUC_check_errdetail("File \"%s\" does not hold a line of the form scheme:credentials.",
							*newval + 1);
	GUC_check_errhint("Use scheme:credentials, for example digest:user:password, or @ and the path of a file with that line, or x509.");
	return false;
}

static void
assign_auth(const char *newval, void *extra)
{
	auth_hash = extra != NULL ? *(uint64 *) extra : 0;
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

/* The client's certificate, or a scheme and credentials? */
static bool
is_usable(const char *line)
{
	return strcmp(line, PROTOCOL_CERTIFICATE) == 0 ||
		(strchr(line, ':') != NULL && line[0] != ':');
}
