/*-------------------------------------------------------------------------
 *
 * check_settings.c
 *	  Items of zk_check() that PostgreSQL tells: extension, settings, lease
 *	  worker, trigger of zk_fences.
 *
 * The catalogs are read by the owner of the extension, so that all callers are
 * told the same; only pg_monitor may call zk_check().  Of settings that hold
 * secrets no value is read.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_proc.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "check_private.h"
#include "compat.h"
#include "servers.h"

/* The version whose script makes the objects that this library knows. */
#define ZKLOCK_VERSION "2.0"

/* Who asked, and what his search_path was, while a query is read. */
typedef struct CatalogQuery
{
	Oid			user;
	int			context;
	int			nest_level;
} CatalogQuery;

static uint64 begin_query(const Check *check, CatalogQuery *query, const char *text);
static void end_query(const CatalogQuery *query);
static char *value_of(uint64 row, int column);
static const char *fences_of(const Check *check);
static Oid	owner_of(const Check *check);

/* Which version made the objects of this database, and which one is loaded? */
void
check_tell_extension(Check *check)
{
	CatalogQuery query;

	if (begin_query(check, &query, "SELECT e.extversion FROM pg_extension AS e"
					" WHERE e.extname = 'zklock'") > 0)
	{
		const char *made = value_of(0, 1);

		if (strcmp(made, ZKLOCK_VERSION) != 0)
			check_put(check, "extension", CHECK_WARNING,
					  psprintf("version %s in this database, library of version %s",
							   made, ZKLOCK_VERSION),
					  "If the library is the newer one, ALTER EXTENSION zklock UPDATE in each database. Otherwise install the files of the newer version, and restart PostgreSQL.");
		else
			check_put(check, "extension", CHECK_OK,
					  psprintf("version %s in this database, PostgreSQL %s",
							   made, GetConfigOption("server_version", false, false)),
					  NULL);
	}
	end_query(&query);
}

/* Those that decide which lock a name is, and what a lock is worth. */
void
check_tell_settings(Check *check)
{
	CatalogQuery query;
	uint64		nrows = begin_query(check, &query,
									"SELECT s.name, s.setting,"
									" concat(', source: ', s.source, ' ' || s.sourcefile, ':' || s.sourceline),"
									" s.source"
									" FROM pg_settings AS s"
									" WHERE s.name IN ('zklock.commit_guard', 'zklock.root', 'zklock.servers')"
									" ORDER BY s.name");

	for (uint64 i = 0; i < nrows; i++)
	{
		const char *name = value_of(i, 1);
		const char *value = value_of(i, 2);
		char	   *shown = psprintf("%s%s", value, value_of(i, 3));

		if (strcmp(name, "zklock.servers") == 0 && value[0] == '\0')
			check_put(check, name, CHECK_ERROR, "no servers are set",
					  "Set it in postgresql.conf to the servers of your ensemble, for example 'zk1:2181,zk2:2181,zk3:2181', and reload.");
		else if (strcmp(name, "zklock.servers") == 0 &&
				 strcmp(value_of(i, 4), "default") == 0)
			check_put(check, name, CHECK_ERROR,
					  psprintf("%s; but it is not set any more, so that there are no servers after the next start", value),
					  "Set it in postgresql.conf again, and reload.");
		else if (strcmp(name, "zklock.commit_guard") == 0 &&
				 strcmp(value, "off") == 0)
			check_put(check, name, CHECK_WARNING,
					  psprintf("%s; no commit is refused here, even if a lock is lost", shown),
					  "Set it to lease, which is the default, or to quorum, wherever commits need their locks.");
		else
			check_put(check, name, CHECK_OK, shown, NULL);
	}
	end_query(&query);
}

/* The same of sessions of other roles and databases, where it differs. */
void
check_tell_other_settings(Check *check)
{
	CatalogQuery query;
	uint64		nrows = begin_query(check, &query,
									"SELECT a.name, a.value, COALESCE(a.whose, 'all roles'), a.kind FROM ("
									"SELECT lower(split_part(c.line, '=', 1)) AS name,"
									" substr(c.line, strpos(c.line, '=') + 1) AS value, r.rolname, d.datname,"
									" NULLIF(concat_ws(' in ', 'role \"' || r.rolname || '\"',"
									" 'database \"' || d.datname || '\"'), '') AS whose,"
									" CASE WHEN s.setrole = 0 AND s.setdatabase <> 0 THEN 'DATABASE' ELSE 'ROLE' END AS kind"
									" FROM pg_db_role_setting AS s"
									" CROSS JOIN LATERAL unnest(s.setconfig) AS c(line)"
									" LEFT JOIN pg_roles AS r ON r.oid = s.setrole"
									" LEFT JOIN pg_database AS d ON d.oid = s.setdatabase) AS a"
									" WHERE a.name = 'zklock.commit_guard' AND a.value = 'off'"
									" AND current_setting(a.name) <> 'off'"
									" OR a.name = 'zklock.root' AND a.value <> current_setting(a.name)"
									" ORDER BY a.name, a.rolname, a.datname");

	for (uint64 i = 0; i < nrows; i++)
	{
		const char *name = value_of(i, 1);
		char	   *what = psprintf("%s for sessions of %s, by ALTER %s",
									value_of(i, 2), value_of(i, 3), value_of(i, 4));

		if (strcmp(name, "zklock.root") == 0)
			check_put(check, name, CHECK_NOTE, what,
					  "Locks below another root are other locks. If that is not intended, RESET the setting.");
		else
			check_put(check, name, CHECK_WARNING, what,
					  "No commit of these sessions is refused when a lock is lost. If that is not intended, RESET the setting.");
	}
	end_query(&query);
}

/*
 * A line of a configuration file that is refused leaves the former value; a line
 * without a name that cannot be read keeps the server from taking any.
 */
void
check_tell_refused_settings(Check *check)
{
	CatalogQuery query;
	uint64		nrows = begin_query(check, &query,
									"SELECT COALESCE(f.name, 'postgresql.conf'), f.setting,"
									" format('what stands in %s line %s is refused: %s', f.sourcefile, f.sourceline, f.error)"
									" FROM pg_file_settings AS f"
									" WHERE f.error IS NOT NULL AND (f.name IS NULL OR lower(f.name) LIKE 'zklock.%')"
									" ORDER BY f.seqno");

	for (uint64 i = 0; i < nrows; i++)
	{
		const char *name = value_of(i, 1);
		char	   *what = value_of(i, 3);
		const char *remedy = "Correct the file, and reload; see the server's log.";

		if (pg_strcasecmp(name, "zklock.servers") == 0)
		{
			ServerList	list;
			char		why[SERVERS_WHY_SIZE];

			/* the view does not tell it */
			if (!servers_parse(value_of(i, 2), &list, why))
				what = psprintf("%s: %s.", what, why);
			remedy = "The server's log says why. Correct the file, and reload. A list that has no server in common with the one in use, or another chroot, is used after a restart.";
		}
		check_put(check, name, CHECK_ERROR, what, remedy);
	}
	end_query(&query);
}

/* Whether it runs is seen, not concluded from the settings. */
void
check_tell_lease_worker(Check *check)
{
	CatalogQuery query;
	bool		runs = begin_query(check, &query,
								   "SELECT a.pid FROM pg_stat_activity AS a"
								   " WHERE a.backend_type = 'zklock lease worker'") > 0;

	if (strcmp(GetConfigOption("zklock.lease_worker", false, false), "off") == 0)
		check_put(check, "lease worker", CHECK_OK,
				  "switched off (zklock.lease_worker)", NULL);
	else if (runs)
		check_put(check, "lease worker", CHECK_OK,
				  psprintf("it runs, as process %s", value_of(0, 1)), NULL);
	else
		check_put(check, "lease worker", CHECK_WARNING,
				  "it does not run: leases whose term is over may stay, and no session is told of lost locks (zklock.loss_channel)",
				  "If the log says that there is no slot for it, increase max_worker_processes, and restart. Otherwise the log says why it ended.");
	end_query(&query);
}

/* Is the trigger that compares tokens of a subscription as it was made? */
void
check_tell_triggers(Check *check)
{
	CatalogQuery query;
	const char *fences = fences_of(check);

	if (begin_query(check, &query,
					psprintf("SELECT FROM pg_trigger AS t WHERE t.tgrelid = %s::regclass"
							 " AND t.tgname = 'applied' AND t.tgenabled <> 'R'",
							 quote_literal_cstr(fences))) > 0)
		check_put(check, "triggers", CHECK_WARNING,
				  "trigger \"applied\" of zk_fences does not compare the tokens that a subscription applies, as it must",
				  psprintf("pg_restore --disable-triggers leaves it so. ALTER TABLE %s ENABLE REPLICA TRIGGER applied.",
						   fences));
	end_query(&query);
}

int64
check_read_token(const Check *check)
{
	CatalogQuery query;
	int64		token;

	(void) begin_query(check, &query,	/* there is always one row */
					   psprintf("SELECT COALESCE(max(f.token), 0) FROM %s AS f",
								fences_of(check)));
	token = strtoll(value_of(0, 1), NULL, 10);
	end_query(&query);
	return token;
}

/* The table, qualified and quoted: it is where zk_check() is. */
static const char *
fences_of(const Check *check)
{
	Oid			schema = get_func_namespace(check->function);

	return quote_qualified_identifier(get_namespace_name(schema), "zk_fences");
}

static Oid
owner_of(const Check *check)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(check->function));
	Oid			owner;

	Assert(HeapTupleIsValid(tuple));	/* it is running */
	owner = ((Form_pg_proc) GETSTRUCT(tuple))->proowner;
	ReleaseSysCache(tuple);
	return owner;
}

/*
 * Run that as the owner of zk_check(); its names are those of pg_catalog.
 * Result: the number of rows, which value_of() reads until end_query().  An
 * error leaves nothing behind once the subtransaction is rolled back.
 */
static uint64
begin_query(const Check *check, CatalogQuery *query, const char *text)
{
	int			result PG_USED_FOR_ASSERTS_ONLY;

	SPI_connect();
	GetUserIdAndSecContext(&query->user, &query->context);
	SetUserIdAndSecContext(owner_of(check),
						   query->context | SECURITY_LOCAL_USERID_CHANGE);
	query->nest_level = NewGUCNestLevel();
	(void) set_config_option("search_path", "pg_catalog, pg_temp",
							 PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE,
							 true, 0, false);	/* what fails raises */
	result = SPI_execute(text, true, 0);
	Assert(result == SPI_OK_SELECT);	/* what fails raises */
	return SPI_processed;
}

static void
end_query(const CatalogQuery *query)
{
	AtEOXact_GUC(false, query->nest_level);
	SetUserIdAndSecContext(query->user, query->context);
	SPI_finish();
}

/* As text, "" of a NULL, until end_query(). */
static char *
value_of(uint64 row, int column)
{
	char	   *value = SPI_getvalue(SPI_tuptable->vals[row],
									 SPI_tuptable->tupdesc, column);

	return value != NULL ? value : pstrdup("");
}
