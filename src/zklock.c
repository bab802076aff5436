/*-------------------------------------------------------------------------
 *
 * zklock.c
 *	  Entry points of the extension: _PG_init() and the SQL functions, which
 *	  read their arguments, check them and delegate.
 *
 * What each function promises stands with its COMMENT ON in
 * sql/zklock--1.0.sql and is not repeated here.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/htup_details.h"
#include "fmgr.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "census.h"
#include "durable.h"
#include "ear.h"
#include "identity.h"
#include "lock.h"
#include "loss.h"
#include "name.h"
#include "neighbor.h"
#include "once.h"
#include "queue.h"
#include "ready.h"
#include "release.h"
#include "session.h"
#include "xact.h"
#include "zklock.h"

PG_MODULE_MAGIC;

/*
 * How long zk_disconnect() waits until the ensemble has confirmed what was
 * released; a healthy one does within milliseconds.
 */
#define DISCONNECT_MS 2000

/*
 * How much the upper half of a fencing token, the number of the ensemble's
 * election, can have grown: by one a second, for years, is more than any
 * ensemble does.  Elections that fail count too, so it may be ahead by some.
 */
#define ELECTIONS_AHEAD 1000

/* Days from PostgreSQL's epoch to 2008-01-01; there was no ZooKeeper before. */
#define FIRST_ELECTION_DAYS 2922

void		_PG_init(void);

PG_FUNCTION_INFO_V1(zk_lock);
PG_FUNCTION_INFO_V1(zk_lock_shared);
PG_FUNCTION_INFO_V1(zk_xact_lock);
PG_FUNCTION_INFO_V1(zk_xact_lock_shared);
PG_FUNCTION_INFO_V1(zk_try_lock);
PG_FUNCTION_INFO_V1(zk_try_lock_shared);
PG_FUNCTION_INFO_V1(zk_try_xact_lock);
PG_FUNCTION_INFO_V1(zk_try_xact_lock_shared);
PG_FUNCTION_INFO_V1(zk_unlock);
PG_FUNCTION_INFO_V1(zk_unlock_shared);
PG_FUNCTION_INFO_V1(zk_unlock_all);
PG_FUNCTION_INFO_V1(zk_disconnect);
PG_FUNCTION_INFO_V1(zk_fencing_token);
PG_FUNCTION_INFO_V1(zk_is_held);
PG_FUNCTION_INFO_V1(zk_fence_token);
PG_FUNCTION_INFO_V1(zk_fence_check);
PG_FUNCTION_INFO_V1(zk_lock_queue);
PG_FUNCTION_INFO_V1(zk_all_locks);
PG_FUNCTION_INFO_V1(zk_locks);
PG_FUNCTION_INFO_V1(zk_session);
PG_FUNCTION_INFO_V1(zk_run_once);
PG_FUNCTION_INFO_V1(zk_forget_run);
PG_FUNCTION_INFO_V1(zk_runs);
PG_FUNCTION_INFO_V1(zk_evict);
PG_FUNCTION_INFO_V1(zk_hold);
PG_FUNCTION_INFO_V1(zk_release_hold);
PG_FUNCTION_INFO_V1(zk_request_release);
PG_FUNCTION_INFO_V1(zk_release_requested);

static Datum lock_or_raise(FunctionCallInfo fcinfo, RecipeMode mode,
						   ZkScope scope);
static Datum try_to_lock(FunctionCallInfo fcinfo, RecipeMode mode,
						 ZkScope scope);
static ZkLockOrder read_order(FunctionCallInfo fcinfo, RecipeMode mode,
							  ZkScope scope);
static char *read_name(FunctionCallInfo fcinfo);
static char *read_text(FunctionCallInfo fcinfo, int number, const char *what);
static int64 read_token(FunctionCallInfo fcinfo, int number);
static void check_first_token(const char *name, int64 token, TimestampTz now);
static void check_next_token(const char *name, int64 token, int64 newest,
							 int64 seconds);
pg_noreturn static void raise_implausible(const char *name, char *detail);
static double milliseconds_of(const Interval *interval);
static ReturnSetInfo *begin_rows(FunctionCallInfo fcinfo);
static Datum text_or_null(const char *text, bool *is_null);
static char *hex_text(int64 number);
static const char *mode_name(RecipeMode mode);
static void put_lock(const ZkLockInfo *info, void *argument);

void
_PG_init(void)
{
	zklock_session_init();
	zklock_name_init();
	zklock_identity_init();
	zklock_lock_init();
	zklock_ear_init();
	zklock_xact_init();
	zklock_loss_init();
	zklock_neighbor_init();
	zklock_ready_init();
	MarkGUCPrefixReserved("zklock");
}

/* ---------------------------------------------------------------------
 * Taking and releasing
 * ---------------------------------------------------------------------
 */

Datum
zk_lock(PG_FUNCTION_ARGS)
{
	return lock_or_raise(fcinfo, RECIPE_EXCLUSIVE, ZK_SCOPE_SESSION);
}

Datum
zk_lock_shared(PG_FUNCTION_ARGS)
{
	return lock_or_raise(fcinfo, RECIPE_SHARED, ZK_SCOPE_SESSION);
}

Datum
zk_xact_lock(PG_FUNCTION_ARGS)
{
	return lock_or_raise(fcinfo, RECIPE_EXCLUSIVE, ZK_SCOPE_TRANSACTION);
}

Datum
zk_xact_lock_shared(PG_FUNCTION_ARGS)
{
	return lock_or_raise(fcinfo, RECIPE_SHARED, ZK_SCOPE_TRANSACTION);
}

Datum
zk_try_lock(PG_FUNCTION_ARGS)
{
	return try_to_lock(fcinfo, RECIPE_EXCLUSIVE, ZK_SCOPE_SESSION);
}

Datum
zk_try_lock_shared(PG_FUNCTION_ARGS)
{
	return try_to_lock(fcinfo, RECIPE_SHARED, ZK_SCOPE_SESSION);
}

Datum
zk_try_xact_lock(PG_FUNCTION_ARGS)
{
	return try_to_lock(fcinfo, RECIPE_EXCLUSIVE, ZK_SCOPE_TRANSACTION);
}

Datum
zk_try_xact_lock_shared(PG_FUNCTION_ARGS)
{
	return try_to_lock(fcinfo, RECIPE_SHARED, ZK_SCOPE_TRANSACTION);
}

Datum
zk_unlock(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(zklock_release(read_name(fcinfo), RECIPE_EXCLUSIVE));
}

Datum
zk_unlock_shared(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(zklock_release(read_name(fcinfo), RECIPE_SHARED));
}

Datum
zk_unlock_all(PG_FUNCTION_ARGS)
{
	zklock_release_session_holds(zklock_xact_has_written());
	PG_RETURN_VOID();
}

Datum
zk_disconnect(PG_FUNCTION_ARGS)
{
	if (zklock_has_xact_locks())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot disconnect from ZooKeeper while holding locks of transaction scope"),
				 errhint("End the transaction first.")));
	zklock_release_session_holds(zklock_xact_has_written());
	zklock_session_await_silence(zklock_client_now() + DISCONNECT_MS);
	zklock_session_close(DISCONNECT_MS);
	PG_RETURN_VOID();
}

/* ---------------------------------------------------------------------
 * Looking
 * ---------------------------------------------------------------------
 */

Datum
zk_fencing_token(PG_FUNCTION_ARGS)
{
	int64		token = zklock_token(read_name(fcinfo));

	if (token == 0)
		PG_RETURN_NULL();
	PG_RETURN_INT64(token);
}

Datum
zk_is_held(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(zklock_is_held(read_name(fcinfo)));
}

Datum
zk_fence_token(PG_FUNCTION_ARGS)
{
	char	   *name = read_name(fcinfo);
	int64		token = zklock_token(name);

	if (token == 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("lock \"%s\" is not held by this session", name),
				 errhint("Take it with zk_lock(), or give the token of its holder to zk_fence().")));
	if (zklock_permits(name) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("lock \"%s\" is held with more than one permit", name),
				 errdetail("Its holders do not exclude each other: a fence would refuse all but the newest of them."),
				 errhint("Take a lock with one permit for what must not be changed by two at a time.")));
	zklock_use(name);
	PG_RETURN_INT64(token);
}

Datum
zk_fence_check(PG_FUNCTION_ARGS)
{
	char	   *name = read_name(fcinfo);
	int64		token = read_token(fcinfo, 1);
	int64		newest;
	TimestampTz now;

	if (PG_ARGISNULL(4) || PG_ARGISNULL(2) != PG_ARGISNULL(3))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("time of a claim must not be null")));
	now = PG_GETARG_TIMESTAMPTZ(4);
	if (PG_ARGISNULL(2))
	{
		check_first_token(name, token, now);
		PG_RETURN_VOID();
	}
	newest = PG_GETARG_INT64(2);
	if (newest > token)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("a newer holder of lock \"%s\" has been here", name),
				 errdetail("Fencing token " INT64_FORMAT " is older than " INT64_FORMAT ".",
						   token, newest),
				 errhint("Take the lock again and run the transaction again.")));
	check_next_token(name, token, newest,
					 Max(0, now / USECS_PER_SEC -
						 PG_GETARG_TIMESTAMPTZ(3) / USECS_PER_SEC));
	PG_RETURN_VOID();
}

Datum
zk_lock_queue(PG_FUNCTION_ARGS)
{
	char	   *name = read_name(fcinfo);
	ReturnSetInfo *result = begin_rows(fcinfo);
	ZkQueueEntry *entries;
	int			nentries;

	entries = zklock_read_queue(name, &nentries);
	for (int i = 0; i < nentries; i++)
	{
		ZkQueueEntry *entry = &entries[i];
		ZkIdentity *who = &entry->identity;
		bool		is_contender = entry->position > 0;
		Datum		values[17] = {0};
		bool		nulls[17] = {0};

		values[0] = Int32GetDatum(entry->position);
		nulls[0] = !is_contender;
		values[1] = text_or_null(!is_contender ? NULL :
								 entry->is_pending ? "pending" :
								 entry->is_holder ? "held" : "waiting",
								 &nulls[1]);
		values[2] = text_or_null(is_contender ? mode_name(entry->mode) : NULL,
								 &nulls[2]);
		values[3] = text_or_null(recipe_style_name(entry->style), &nulls[3]);
		values[4] = CStringGetTextDatum(zklock_identity_printable(entry->node));
		values[5] = text_or_null(entry->session_id == 0 ? NULL :
								 hex_text(entry->session_id), &nulls[5]);
		values[6] = text_or_null(who->client, &nulls[6]);
		values[7] = text_or_null(who->cluster, &nulls[7]);
		values[8] = text_or_null(who->database, &nulls[8]);
		values[9] = text_or_null(who->username, &nulls[9]);
		values[10] = text_or_null(who->application, &nulls[10]);
		values[11] = Int32GetDatum(who->pid);
		nulls[11] = who->pid == 0;
		values[12] = text_or_null(who->host, &nulls[12]);
		values[13] = TimestampTzGetDatum(entry->since);
		nulls[13] = entry->token == 0;
		values[14] = Int64GetDatum(entry->token);
		nulls[14] = entry->token == 0;
		values[15] = text_or_null(who->text, &nulls[15]);
		values[16] = Int32GetDatum(entry->permits);
		nulls[16] = !is_contender;
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}

Datum
zk_all_locks(PG_FUNCTION_ARGS)
{
	char	   *name = read_name(fcinfo);
	ReturnSetInfo *result = begin_rows(fcinfo);
	int			nlocks;
	ZkLockCount *locks = zklock_count_locks(name, &nlocks);

	for (int i = 0; i < nlocks; i++)
	{
		Datum		values[3];
		bool		nulls[3] = {0};

		values[0] = CStringGetTextDatum(zklock_identity_printable(locks[i].name));
		values[1] = Int32GetDatum(locks[i].nholders);
		values[2] = Int32GetDatum(locks[i].nwaiters);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}

Datum
zk_locks(PG_FUNCTION_ARGS)
{
	zklock_visit_locks(put_lock, begin_rows(fcinfo));
	return (Datum) 0;
}

/* Put one row of zk_locks(); argument is the ReturnSetInfo. */
static void
put_lock(const ZkLockInfo *info, void *argument)
{
	ReturnSetInfo *result = argument;
	Datum		values[9] = {0};
	bool		nulls[9] = {0};

	values[0] = CStringGetTextDatum(info->name);
	values[1] = CStringGetTextDatum(mode_name(info->mode));
	values[2] = CStringGetTextDatum(info->is_lost ? "lost" : "held");
	values[3] = Int32GetDatum(info->session_count);
	values[4] = Int32GetDatum(info->xact_count);
	values[5] = Int64GetDatum(info->token);
	/* the root in it may be of another encoding than the name */
	values[6] = CStringGetTextDatum(zklock_identity_printable(info->node));
	values[7] = TimestampTzGetDatum(info->granted_at);
	values[8] = Int32GetDatum(info->permits);
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

Datum
zk_session(PG_FUNCTION_ARGS)
{
	static const char *const states[] = {
		[ZK_CLIENT_STARTING] = "connecting",
		[ZK_CLIENT_CONNECTING] = "connecting",
		[ZK_CLIENT_CONNECTED] = "connected",
		[ZK_CLIENT_SUSPENDED] = "suspended",
		[ZK_CLIENT_LOST] = "lost"
	};
	TupleDesc	desc;
	ZkClientStatus status;
	bool		exists = zklock_session_status(&status);
	bool		is_granted = exists && status.was_connected;
	bool		has_program = exists && status.program_pid != 0;
	Datum		values[7] = {0};
	bool		nulls[7] = {0};

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	values[0] = CStringGetTextDatum(exists ? states[status.state] : "none");
	values[1] = text_or_null(is_granted ? status.server : NULL, &nulls[1]);
	values[2] = text_or_null(is_granted ? hex_text(status.session_id) : NULL,
							 &nulls[2]);
	values[3] = Int32GetDatum(is_granted ? status.session_timeout_ms : 0);
	nulls[3] = !is_granted;
	values[4] = Int32GetDatum(exists ? status.npending : 0);
	values[5] = text_or_null(exists && status.library[0] != '\0' ?
							 status.library : NULL, &nulls[5]);
	values[6] = Int32GetDatum(has_program ? status.program_pid : 0);
	nulls[6] = !has_program;
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc),
													  values, nulls)));
}

/* ---------------------------------------------------------------------
 * Jobs that run once
 * ---------------------------------------------------------------------
 */

Datum
zk_run_once(PG_FUNCTION_ARGS)
{
	char	   *name = read_name(fcinfo);
	char	   *slot = read_text(fcinfo, 1, "slot");
	double		retain_ms;

	if (PG_ARGISNULL(2))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("retention must not be null"),
				 errhint("To keep all records, give a long interval.")));
	retain_ms = milliseconds_of(PG_GETARG_INTERVAL_P(2));
	if (retain_ms < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("retention must not be negative")));
	PG_RETURN_BOOL(zklock_run_once(name, slot,
								   (int64) Min(retain_ms,
											   (double) (PG_INT64_MAX / 4))));
}

Datum
zk_forget_run(PG_FUNCTION_ARGS)
{
	char	   *name = read_name(fcinfo);

	PG_RETURN_BOOL(zklock_forget_run(name, read_text(fcinfo, 1, "slot")));
}

Datum
zk_runs(PG_FUNCTION_ARGS)
{
	char	   *name = read_name(fcinfo);
	ReturnSetInfo *result = begin_rows(fcinfo);
	int			nruns;
	ZkQueueEntry *runs = zklock_read_runs(name, &nruns);

	for (int i = 0; i < nruns; i++)
	{
		ZkIdentity *who = &runs[i].identity;
		Datum		values[9] = {0};
		bool		nulls[9] = {0};

		values[0] = CStringGetTextDatum(zklock_identity_printable(runs[i].node));
		values[1] = TimestampTzGetDatum(runs[i].since);
		nulls[1] = runs[i].token == 0;
		values[2] = text_or_null(who->cluster, &nulls[2]);
		values[3] = text_or_null(who->database, &nulls[3]);
		values[4] = text_or_null(who->username, &nulls[4]);
		values[5] = text_or_null(who->application, &nulls[5]);
		values[6] = Int32GetDatum(who->pid);
		nulls[6] = who->pid == 0;
		values[7] = text_or_null(who->host, &nulls[7]);
		values[8] = text_or_null(who->text, &nulls[8]);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* ---------------------------------------------------------------------
 * Holds and evictions
 * ---------------------------------------------------------------------
 */

Datum
zk_evict(PG_FUNCTION_ARGS)
{
	char	   *name = read_name(fcinfo);

	PG_RETURN_BOOL(zklock_evict(name, read_token(fcinfo, 1)));
}

Datum
zk_hold(PG_FUNCTION_ARGS)
{
	ZkHoldOrder order = {.name = read_name(fcinfo)};

	order.reason = read_text(fcinfo, 1, "reason");
	order.has_timeout = !PG_ARGISNULL(2);
	if (order.has_timeout)
		order.timeout_ms = zklock_interval_to_ms(PG_GETARG_INTERVAL_P(2));
	PG_RETURN_INT64(zklock_hold(&order));
}

Datum
zk_release_hold(PG_FUNCTION_ARGS)
{
	char	   *name = read_name(fcinfo);

	PG_RETURN_BOOL(zklock_release_hold(name, read_token(fcinfo, 1)));
}

/* ---------------------------------------------------------------------
 * Requests to release
 * ---------------------------------------------------------------------
 */

Datum
zk_request_release(PG_FUNCTION_ARGS)
{
	char	   *name = read_name(fcinfo);

	PG_RETURN_INT32(zklock_request_release(name, PG_ARGISNULL(1) ? NULL :
										   text_to_cstring(PG_GETARG_TEXT_PP(1))));
}

Datum
zk_release_requested(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(zklock_is_release_requested(read_name(fcinfo)));
}

/* ---------------------------------------------------------------------
 * Arguments and results
 * ---------------------------------------------------------------------
 */

static Datum
lock_or_raise(FunctionCallInfo fcinfo, RecipeMode mode, ZkScope scope)
{
	ZkLockOrder order = read_order(fcinfo, mode, scope);

	zklock_xact_follow();
	PG_RETURN_INT64(zklock_acquire(&order));
}

static Datum
try_to_lock(FunctionCallInfo fcinfo, RecipeMode mode, ZkScope scope)
{
	ZkLockOrder order = read_order(fcinfo, mode, scope);

	/* NULL must not turn a try into a wait without end */
	if (!order.has_timeout)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("timeout of a try must not be null"),
				 errhint("Leave it out, or use zk_lock() to wait without a bound.")));
	order.is_try = true;
	zklock_xact_follow();
	PG_RETURN_BOOL(zklock_acquire(&order) != 0);
}

/* Read (name, timeout), and permits where the function has them. */
static ZkLockOrder
read_order(FunctionCallInfo fcinfo, RecipeMode mode, ZkScope scope)
{
	ZkLockOrder order = {.mode = mode, .scope = scope, .permits = 1};

	order.name = read_name(fcinfo);
	order.has_timeout = !PG_ARGISNULL(1);
	if (order.has_timeout)
		order.timeout_ms = zklock_interval_to_ms(PG_GETARG_INTERVAL_P(1));
	if (PG_NARGS() > 2)
	{
		if (PG_ARGISNULL(2))
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("number of permits must not be null")));
		order.permits = PG_GETARG_INT32(2);
		if (order.permits < 1 || order.permits > RECIPE_PERMITS_MAX)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("number of permits must be between 1 and %d",
							RECIPE_PERMITS_MAX)));
	}
	return order;
}

/* A NULL name is an error: a strict function would let the caller go on. */
static char *
read_name(FunctionCallInfo fcinfo)
{
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("lock name must not be null")));
	return text_to_cstring(PG_GETARG_TEXT_PP(0));
}

/* Likewise for another argument, which what names. */
static char *
read_text(FunctionCallInfo fcinfo, int number, const char *what)
{
	if (PG_ARGISNULL(number))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be null", what)));
	return text_to_cstring(PG_GETARG_TEXT_PP(number));
}

static int64
read_token(FunctionCallInfo fcinfo, int number)
{
	if (PG_ARGISNULL(number))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("fencing token must not be null")));
	if (PG_GETARG_INT64(number) <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("fencing token must be greater than zero")));
	return PG_GETARG_INT64(number);
}

/* Can an ensemble have come to that token by now?  Raises 22023 if not. */
static void
check_first_token(const char *name, int64 token, TimestampTz now)
{
	int64		elections = now / USECS_PER_SEC -
		(int64) FIRST_ELECTION_DAYS * SECS_PER_DAY;

	if (token >> 32 > elections)
		raise_implausible(name,
						  psprintf("Its ensemble would have elected " INT64_FORMAT " leaders, more than one a second since 2008.",
								   token >> 32));
}

/* Likewise, if it was at the newest token so many seconds ago. */
static void
check_next_token(const char *name, int64 token, int64 newest, int64 seconds)
{
	int64		elections = (token >> 32) - (newest >> 32);

	if (elections > ELECTIONS_AHEAD && elections - ELECTIONS_AHEAD > seconds)
		raise_implausible(name,
						  psprintf("Fencing token " INT64_FORMAT " is " INT64_FORMAT " elections of a leader ahead of " INT64_FORMAT ", which claimed the lock " INT64_FORMAT " seconds ago.",
								   token, elections, newest, seconds));
}

static void
raise_implausible(const char *name, char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("implausible fencing token for lock \"%s\"", name),
			 errdetail("%s", detail),
			 errhint("A greater token than there can be would refuse all holders for ever. If it is right, delete the lock's row of zk_fence_tokens first, as a superuser.")));
}

int64
zklock_interval_to_ms(const Interval *interval)
{
	double		ms = milliseconds_of(interval);

	if (ms < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("timeout must not be negative")));
	return ms > (double) (PG_INT64_MAX / 4) ? PG_INT64_MAX / 4 :
		(int64) ceil(ms);
}

static double
milliseconds_of(const Interval *interval)
{
	return interval->time / 1000.0 +
		(interval->day + interval->month * (double) DAYS_PER_MONTH) *
		SECS_PER_DAY * 1000.0;
}

/* Prepare a set-returning function that fills a tuplestore. */
static ReturnSetInfo *
begin_rows(FunctionCallInfo fcinfo)
{
	InitMaterializedSRF(fcinfo, 0);
	return (ReturnSetInfo *) fcinfo->resultinfo;
}

static Datum
text_or_null(const char *text, bool *is_null)
{
	*is_null = text == NULL;
	return text != NULL ? CStringGetTextDatum(text) : (Datum) 0;
}

/* A session id as ZooKeeper's own tools write it. */
static char *
hex_text(int64 number)
{
	return psprintf("0x%llx", (unsigned long long) number);
}

static const char *
mode_name(RecipeMode mode)
{
	return mode == RECIPE_SHARED ? "shared" : "exclusive";
}
