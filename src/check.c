/*-------------------------------------------------------------------------
 *
 * check.c
 *	  zk_check(): what is wrong, and what helps.
 *
 * The one rule: it raises for interrupts alone.  Each step runs in a
 * subtransaction of its own, and an error that it meets becomes a row.  Where
 * there can be none, in parallel mode, the error is dropped without one: what
 * raises then holds no locks of PostgreSQL's, for no catalog is read.
 *
 * What is shown of the cluster is read as the bootstrap superuser, so that
 * every caller who may call it is told the same; the credentials are not.
 *
 *-------------------------------------------------------------------------
 */
#include "check_private.h"

#include <sys/stat.h>
#include <unistd.h>

#include "access/xact.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/resowner.h"
#include "utils/tuplestore.h"

#include "args.h"
#include "handover.h"
#include "nodedata.h"
#include "session.h"

PG_FUNCTION_INFO_V1(zk_check);

/* A step, and what an error is that it meets. */
typedef struct CheckItem
{
	const char *name;
	CheckStep	step;
	CheckState	error_state;
} CheckItem;

static void run_step(Check *check, const CheckItem *item);
static void guard(Check *check, const CheckItem *item);
static void put_error(Check *check, const CheckItem *item, ErrorData *error);
static void check_program(Check *check);
static void check_preload(Check *check);

Datum
zk_check(PG_FUNCTION_ARGS)
{
	static const CheckItem items[] = {
		{"extension", check_extension, CHECK_ERROR},
		{"extension files", check_extension_files, CHECK_NOTE},
		{"program", check_program, CHECK_ERROR},
		{"preloading", check_preload, CHECK_ERROR},
		{"settings", check_settings, CHECK_ERROR},
		{"settings", check_refused_settings, CHECK_ERROR},
		{"servers", check_probe, CHECK_ERROR},
		{"servers", check_servers, CHECK_ERROR},
		{"ensemble", check_ensemble, CHECK_ERROR},
		{"release", check_releases, CHECK_ERROR},
		{"connections", check_connections, CHECK_ERROR},
		{"session timeout", check_timeouts, CHECK_ERROR},
		{"credentials", check_credentials, CHECK_ERROR},
		{"session", check_session, CHECK_ERROR}
	};
	Check		check = {.servers = ""};

	check.result = zklock_args_begin_rows(fcinfo);
	check.has_session = !PG_ARGISNULL(0) && PG_GETARG_BOOL(0);
	check.deadline = zklock_client_now() +
		check_setting_int("zklock.connect_timeout");
	for (int i = 0; i < (int) lengthof(items); i++)
		run_step(&check, &items[i]);
	return (Datum) 0;
}

void
check_put(Check *check, const char *item, CheckState state,
		  const char *remedy, const char *what,...)
{
	static const char *const states[] = {
		[CHECK_OK] = "ok",
		[CHECK_NOTE] = "note",
		[CHECK_WARNING] = "warning",
		[CHECK_ERROR] = "error"
	};
	StringInfoData text;
	Datum		values[4] = {0};
	bool		nulls[4] = {0};
	va_list		args;
	int			needed;

	initStringInfo(&text);
	for (;;)
	{
		va_start(args, what);
		needed = appendStringInfoVA(&text, what, args);
		va_end(args);
		if (needed == 0)
			break;
		enlargeStringInfo(&text, needed);
	}
	values[0] = CStringGetTextDatum(item);
	values[1] = CStringGetTextDatum(states[state]);
	values[2] = CStringGetTextDatum(text.data);
	values[3] = zklock_args_text_or_null(remedy, &nulls[3]);
	tuplestore_putvalues(check->result->setResult, check->result->setDesc,
						 values, nulls);
}

const char *
check_setting(const char *name)
{
	const char *value = GetConfigOption(name, true, false);

	return value != NULL ? value : "";
}

int
check_setting_int(const char *name)
{
	return atoi(check_setting(name));
}

/* ---------------------------------------------------------------------
 * Steps
 * ---------------------------------------------------------------------
 */

static void
run_step(Check *check, const CheckItem *item)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;

	CHECK_FOR_INTERRUPTS();
	if (IsInParallelMode())
	{
		guard(check, item);
		return;
	}
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		item->step(check);
		ReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
		put_error(check, item, error);
	}
	PG_END_TRY();
}

/* Without a subtransaction. */
static void
guard(Check *check, const CheckItem *item)
{
	MemoryContext context = CurrentMemoryContext;
	Oid			user;
	int			security;

	GetUserIdAndSecContext(&user, &security);
	PG_TRY();
	{
		item->step(check);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		SetUserIdAndSecContext(user, security);
		put_error(check, item, error);
	}
	PG_END_TRY();
}

/* Interrupts are not ours to keep. */
static void
put_error(Check *check, const CheckItem *item, ErrorData *error)
{
	if (error->sqlerrcode == ERRCODE_QUERY_CANCELED ||
		error->sqlerrcode == ERRCODE_ADMIN_SHUTDOWN)
		ReThrowError(error);
	check_put(check, item->name, item->error_state, error->hint,
			  "%s%s%s (SQLSTATE %s)",
			  error->message != NULL ? error->message : "",
			  error->detail != NULL ? ": " : "",
			  error->detail != NULL ? error->detail : "",
			  unpack_sql_state(error->sqlerrcode));
	FreeErrorData(error);
}

/* ---------------------------------------------------------------------
 * What is installed
 * ---------------------------------------------------------------------
 */

/* Whether it can be started tells the asking of the servers. */
static void
check_program(Check *check)
{
	struct stat file;
	const char *shown;

	check->program = zklock_session_program();
	shown = zklock_nodedata_printable(check->program);
	if (stat(check->program, &file) != 0)
		check_put(check, "program", CHECK_ERROR,
				  "Install zklock again: the program belongs beside zklock.so.",
				  "\"%s\" is not to be had: %m", shown);
	else if (!S_ISREG(file.st_mode) || access(check->program, X_OK) != 0)
		check_put(check, "program", CHECK_ERROR,
				  "Make it a file that the server's user may execute.",
				  "\"%s\" cannot be executed", shown);
	else
		return;
	check->program = NULL;
}

static void
check_preload(Check *check)
{
	if (zklock_handover_is_shared())
		check_put(check, "preloading", CHECK_OK, NULL,
				  "zklock is preloaded");
	else
		check_put(check, "preloading", CHECK_NOTE,
				  "Add zklock to shared_preload_libraries, and restart.",
				  "zklock is not preloaded: no hand-over of locks through shared memory, and settings are checked late");
}
