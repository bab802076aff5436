/*-------------------------------------------------------------------------
 *
 * lease_roots.c
 *	  Below which roots the lease worker looks for leases.
 *
 * Its own root is that of postgresql.conf.  ALTER ROLE and ALTER DATABASE can
 * name others.  The catalog that has these settings can be read in a database
 * only, and the lease worker has none, so that it stands in nobody's way.  So
 * another worker, of a moment, connects to some database and reads it.
 * Superusers can SET a root in their session: each backend that takes a lease
 * notes its root.  Both are kept in shared memory until the next restart.  A
 * root that nobody uses any more costs one request a round.
 *
 * The worker has one ensemble, that of postgresql.conf.  Leases in another
 * one, and below more roots than there is room for, are not looked after: the
 * log says so, once.
 *
 *-------------------------------------------------------------------------
 */
#include "lease_roots.h"

#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "executor/spi.h"
#include "storage/shmem.h"
#include "storage/spin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "board.h"
#include "compat.h"
#include "name.h"
#include "nodedata.h"
#include "protocol.h"
#include "recipe.h"
#include "session.h"
#include "worker.h"

/* Room for so many other roots. */
#define ROOTS_MAX 64

/* How long after they were read settings are read again. */
#define REFRESH_MS 30000

/* What is not looked after, and was said. */
typedef enum Untold
{
	UNTOLD_ROOT,				/* there is no room for a root */
	UNTOLD_SERVERS				/* another ensemble */
} Untold;
#define NUNTOLD 2

/* In shared memory. */
typedef struct Roots
{
	slock_t		mutex;			/* for all that follows */
	uint32		servers;		/* zklock_board_servers() of the worker; 0: it
								 * has not run yet */
	bool		is_said[NUNTOLD];
	int			count;
	char		roots[ROOTS_MAX][RECIPE_ROOT_MAX + 1];	/* zklock.root's
														 * values */
} Roots;

static Roots *shared;

/* zklock.servers of postgresql.conf; in the worker of a moment. */
static char *own_servers;

/* When settings were read, protocol_now(); 0: they are to be read now. */
static int64 refreshed_at;

static void add(const char *root, uint32 servers);
static void say(Untold what, const char *value);
static Oid	choose_database(void);
static void read_settings(void);

PGDLLEXPORT void zk_lease_roots(Datum argument);

void
zklock_lease_roots_request_memory(void)
{
	RequestAddinShmemSpace(sizeof(Roots));
}

void
zklock_lease_roots_make_memory(void)
{
	bool		found;

	shared = ShmemInitStruct("zklock lease roots", sizeof(Roots), &found);
	if (found)
		return;
	memset(shared, 0, sizeof(Roots));
	SpinLockInit(&shared->mutex);
}

void
zklock_lease_roots_note(void)
{
	add(GetConfigOption("zklock.root", false, false),
		zklock_board_servers());
}

/* A root with leases, in that ensemble; 0: the worker's. */
static void
add(const char *root, uint32 servers)
{
	bool		is_elsewhere;
	bool		is_known = false;
	bool		is_full = false;

	SpinLockAcquire(&shared->mutex);
	is_elsewhere = servers != 0 && shared->servers != 0 &&
		servers != shared->servers;
	for (int i = 0; i < shared->count && !is_known; i++)
		is_known = strcmp(shared->roots[i], root) == 0;
	is_full = shared->count == ROOTS_MAX || strlen(root) > RECIPE_ROOT_MAX;
	if (!is_elsewhere && !is_known && !is_full)
		strcpy(shared->roots[shared->count++], root);
	SpinLockRelease(&shared->mutex);
	if (is_elsewhere)
		say(UNTOLD_SERVERS, root);
	else if (!is_known && is_full)
		say(UNTOLD_ROOT, root);
}

/* For the log, once for all of this cluster. */
static void
say(Untold what, const char *value)
{
	bool		was_said;

	SpinLockAcquire(&shared->mutex);
	was_said = shared->is_said[what];
	shared->is_said[what] = true;
	SpinLockRelease(&shared->mutex);
	if (was_said)
		return;
	if (what == UNTOLD_ROOT)
		ereport(LOG,
				(errmsg("the lease worker does not look after leases below znode \"%s\"",
						zklock_nodedata_quotable_own(value)),
				 errdetail("It has room for %d other roots than that of postgresql.conf.",
						   ROOTS_MAX),
				 errhint("Let other clusters with that \"%s\" have a lease worker.",
						 "zklock.root")));
	else
		ereport(LOG,
				(errmsg("the lease worker does not look after leases in other ensembles than that of postgresql.conf"),
				 errdetail("Some session, role or database has another \"%s\".",
						   "zklock.servers"),
				 errhint("Let a cluster whose postgresql.conf names these servers have a lease worker.")));
}

List *
zklock_lease_roots(void)
{
	int			length;
	char	   *own = zklock_name_path("any", &length);
	const char *chroot = zklock_session_chroot();
	List	   *roots = NIL;
	int			count;

	own[length] = '\0';
	roots = lappend(roots, own);
	SpinLockAcquire(&shared->mutex);
	shared->servers = zklock_board_servers();
	count = shared->count;
	SpinLockRelease(&shared->mutex);

	/* those that are there do not change */
	for (int i = 0; i < count; i++)
	{
		const char *root = shared->roots[i];
		char	   *path = psprintf("%s%s", chroot,
									strcmp(root, "/") == 0 ? "" : root);

		if (strcmp(path, own) != 0 && recipe_is_root(root) &&
			strlen(path) <= RECIPE_ROOT_MAX)
			roots = lappend(roots, path);
	}
	return roots;
}

void
zklock_lease_roots_forget(void)
{
	refreshed_at = 0;
}

/* If there is no room for a worker, a later round tries again. */
void
zklock_lease_roots_refresh(void)
{
	static ZkWorker reader = {
		.name = "zklock lease roots",
		.function = "zk_lease_roots",
		.purpose = "leases below the roots of roles and databases may stay when their term is over",
		.is_on_standby = true
	};
	Oid			database;

	if ((refreshed_at != 0 && protocol_now() < refreshed_at + REFRESH_MS) ||
		zklock_worker_runs(&reader))
		return;
	database = choose_database();
	if (database != InvalidOid &&
		zklock_worker_start(&reader, ObjectIdGetDatum(database)))
		refreshed_at = protocol_now();
}

/* Some database that can be connected to: "postgres", if it is there. */
static Oid
choose_database(void)
{
	Relation	relation;
	TableScanDesc scan;
	Oid			chosen = InvalidOid;
	bool		is_good = false;
	HeapTuple	tuple;

	/* the transaction's first snapshot, ahead of the scan's: see snapmgr.c */
	(void) GetTransactionSnapshot();
	relation = table_open(DatabaseRelationId, AccessShareLock);
	scan = table_beginscan_catalog(relation, 0, NULL);
	while (!is_good && (tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		Form_pg_database database = (Form_pg_database) GETSTRUCT(tuple);

		/* -2: a DROP DATABASE was interrupted */
		if (!database->datallowconn || database->datconnlimit == -2)
			continue;
		is_good = strcmp(NameStr(database->datname), "postgres") == 0;
		if (is_good || chosen == InvalidOid || !database->datistemplate)
			chosen = database->oid;
	}
	table_endscan(scan);
	table_close(relation, AccessShareLock);
	return chosen;
}

/* The worker of a moment. */
void
zk_lease_roots(Datum argument)
{
	/* ahead of the settings of that database */
	own_servers = MemoryContextStrdup(TopMemoryContext,
									  GetConfigOption("zklock.servers", false, false));
	zklock_worker_serve(argument, 0, read_settings, NULL);
}

/* Read the settings of roles and databases. */
static void
read_settings(void)
{
	uint64		nrows = 0;

	SetConfigOption("search_path", "", PGC_USERSET, PGC_S_SESSION);
	PushActiveSnapshot(GetTransactionSnapshot());
	SPI_connect();
	if (SPI_execute("SELECT DISTINCT lower(split_part(c.line, '='::text, 1)), substr(c.line, strpos(c.line, '='::text) + 1)"
					" FROM pg_db_role_setting AS s, unnest(s.setconfig) AS c(line)"
					" WHERE lower(split_part(c.line, '='::text, 1)) IN ('zklock.root', 'zklock.servers')",
					true, 0) == SPI_OK_SELECT)
		nrows = SPI_processed;
	for (uint64 i = 0; i < nrows; i++)
	{
		HeapTuple	row = SPI_tuptable->vals[i];
		const char *name = SPI_getvalue(row, SPI_tuptable->tupdesc, 1);
		const char *value = SPI_getvalue(row, SPI_tuptable->tupdesc, 2);

		if (strcmp(name, "zklock.root") == 0)
			add(value, 0);
		else if (strcmp(value, own_servers) != 0)
			say(UNTOLD_SERVERS, value);
	}
	SPI_finish();
	PopActiveSnapshot();
}
