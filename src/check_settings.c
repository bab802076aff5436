/*-------------------------------------------------------------------------
 *
 * check_settings.c
 *	  zk_check(): settings, and what else PostgreSQL knows.
 *
 * Catalogs and files are read by SQL, as the bootstrap superuser, with names
 * that no search_path changes.  The value of zklock.auth is never fetched.
 *
 *-------------------------------------------------------------------------
 */
#include "check_private.h"

#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "handover.h"
#include "nodedata.h"

static void read_rows(Check *check, const char *item, const char *sql,
					  void (*put) (Check *check));
static void put_setting(Check *check);
static void put_refused(Check *check);
static void put_extension(Check *check);
static void put_files(Check *check);
static const char *field(int number);

/* A row for each setting of ours, and who has set it. */
void
check_settings(Check *check)
{
	check->servers = check_setting("zklock.servers");
	if (check->servers[0] == '\0')
		check_put(check, "zklock.servers", CHECK_ERROR,
				  "Set it in postgresql.conf to the servers of your ensemble, for example 'zk1:2181,zk2:2181,zk3:2181', and reload.",
				  "no servers are set");
	read_rows(check, "settings",
			  "SELECT s.name, pg_catalog.current_setting(s.name),"
			  " s.source, s.sourcefile, s.sourceline, s.pending_restart"
			  " FROM pg_catalog.pg_settings s"
			  " WHERE pg_catalog.starts_with(s.name, 'zklock.'::pg_catalog.text)"
			  " AND s.name OPERATOR(pg_catalog.<>) 'zklock.auth'::pg_catalog.text"
			  " ORDER BY 1",
			  put_setting);
}

static void
put_setting(Check *check)
{
	const char *name = field(1);
	const char *line = field(5);
	bool		is_pending = strcmp(field(6), "t") == 0;

	if (strcmp(name, "zklock.servers") == 0 && check->servers[0] == '\0')
		return;
	check_put(check, name, is_pending ? CHECK_WARNING : CHECK_OK,
			  is_pending ? "Restart the server." : NULL,
			  "%s%s%s%s%s%s%s%s",
			  field(2), ", source: ", field(3), field(4)[0] != '\0' ? " " : "",
			  field(4), line[0] != '\0' ? ":" : "", line,
			  is_pending ? "; the file has another value, which waits for a restart" : "");
}

/*
 * What the files say and the server does not take: it goes on with what it
 * had, and only its log has a word about it.  A line without a name that it
 * cannot read keeps it from taking anything.
 */
void
check_refused_settings(Check *check)
{
	read_rows(check, "postgresql.conf",
			  "SELECT COALESCE(s.name, 'postgresql.conf'::pg_catalog.text),"
			  " s.sourcefile, s.sourceline, s.error,"
			  " CASE WHEN pg_catalog.lower(s.name) OPERATOR(pg_catalog.=) 'zklock.servers'::pg_catalog.text THEN s.setting END"
			  " FROM pg_catalog.pg_file_settings s"
			  " WHERE s.error IS NOT NULL AND (s.name IS NULL OR"
			  " pg_catalog.starts_with(pg_catalog.lower(s.name), 'zklock.'::pg_catalog.text))"
			  " ORDER BY s.seqno",
			  put_refused);
}

static void
put_refused(Check *check)
{
	ServerList *list = palloc(sizeof(*list));
	char		why[256] = "";
	const char *servers = field(5);

	if (servers[0] != '\0')
		servers_parse(servers, list, why, sizeof(why));
	check_put(check, field(1), CHECK_ERROR,
			  "Correct the file, and reload; see the server's log.",
			  "what stands in %s line %s is refused: %s%s%s",
			  field(2), field(3), field(4), why[0] != '\0' ? ": " : "",
			  zklock_nodedata_printable(why));
	pfree(list);
}

/* The objects of this database, and the library in memory. */
void
check_extension(Check *check)
{
	read_rows(check, "extension",
			  "SELECT e.extversion FROM pg_catalog.pg_extension e"
			  " WHERE e.extname OPERATOR(pg_catalog.=) 'zklock'::pg_catalog.name",
			  put_extension);
}

static void
put_extension(Check *check)
{
	check_put(check, "extension", CHECK_OK, NULL,
			  "version %s in this database, protocol %d, PostgreSQL %s",
			  field(1), PROTOCOL_VERSION, check_setting("server_version"));
}

/*
 * The files.  PostgreSQL reads those of all extensions, and raises if one of
 * them is broken.
 */
void
check_extension_files(Check *check)
{
	read_rows(check, "extension files",
			  "SELECT e.extversion, a.default_version"
			  " FROM pg_catalog.pg_extension e"
			  " JOIN pg_catalog.pg_available_extensions() AS a"
			  " ON a.name OPERATOR(pg_catalog.=) e.extname"
			  " WHERE e.extname OPERATOR(pg_catalog.=) 'zklock'::pg_catalog.name",
			  put_files);
}

static void
put_files(Check *check)
{
	if (strcmp(field(1), field(2)) != 0)
		check_put(check, "extension files", CHECK_WARNING,
				  "ALTER EXTENSION zklock UPDATE in each database.",
				  "version %s in this database, files of version %s", field(1),
				  field(2));
}

/* ---------------------------------------------------------------------
 * Helpers
 * ---------------------------------------------------------------------
 */

/*
 * Call put for each row, which reads it with field().  In parallel mode there
 * is no subtransaction to undo what an error leaves open: a row says so.
 */
static int	row_number;

static void
read_rows(Check *check, const char *item, const char *sql,
		  void (*put) (Check *check))
{
	Oid			user;
	int			security;

	if (IsInParallelMode())
	{
		check_put(check, item, CHECK_NOTE,
				  "Call zk_check() by itself: SELECT * FROM zk_check().",
				  "not looked at in a query that runs in parallel");
		return;
	}
	SPI_connect();
	GetUserIdAndSecContext(&user, &security);
	SetUserIdAndSecContext(BOOTSTRAP_SUPERUSERID,
						   security | SECURITY_LOCAL_USERID_CHANGE);
	if (SPI_execute(sql, true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not read what zk_check() looks at");
	SetUserIdAndSecContext(user, security);
	for (row_number = 0; row_number < (int) SPI_processed; row_number++)
		put(check);
	SPI_finish();
}

/* A column of it as text, "" for NULL. */
static const char *
field(int number)
{
	char	   *value = SPI_getvalue(SPI_tuptable->vals[row_number],
									 SPI_tuptable->tupdesc, number);

	return value != NULL ? value : "";
}
