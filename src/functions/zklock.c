/*-------------------------------------------------------------------------
 *
 * zklock.c
 *	  _PG_init() and the hooks of shared memory; functions of one lock;
 *	  zk_commit_and_lock(), zk_disconnect(); what is held: fencing tokens,
 *	  fences, zk_is_held().
 *
 * What each function promises stands with its COMMENT ON in
 * sql/zklock--2.0.sql and is not repeated here.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "nodes/parsenodes.h"
#include "nodes/value.h"
#include "parser/parse_func.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"

#include "args.h"
#include "auth.h"
#include "board.h"
#include "cancel.h"
#include "compat.h"
#include "given_name.h"
#include "handover.h"
#include "hooks.h"
#include "keep.h"
#include "lease_roots.h"
#include "lease_sweep.h"
#include "lock.h"
#include "lock_proof.h"
#include "name.h"
#include "name_allowed.h"
#include "nodedata.h"
#include "root.h"
#include "row.h"
#include "session.h"
#include "stat.h"
#include "take_rate.h"

PG_MODULE_MAGIC;

/*
 * How long zk_disconnect() waits until the session is closed; a healthy
 * ensemble does that within milliseconds.
 */
#define DISCONNECT_MS 2000

void		_PG_init(void);

PG_FUNCTION_INFO_V1(zk_commit_and_lock);
PG_FUNCTION_INFO_V1(zk_unlock);
PG_FUNCTION_INFO_V1(zk_unlock_shared);
PG_FUNCTION_INFO_V1(zk_unlock_all);
PG_FUNCTION_INFO_V1(zk_disconnect);
PG_FUNCTION_INFO_V1(zk_fencing_token);
PG_FUNCTION_INFO_V1(zk_is_held);
PG_FUNCTION_INFO_V1(zk_fence_own_lock);
PG_FUNCTION_INFO_V1(zk_fence_claim);

static shmem_request_hook_type previous_request_hook;
static shmem_startup_hook_type previous_startup_hook;

pg_noreturn static void refuse_late_load(void);
static void request_memory(void);
static void make_memory(void);
static Datum take_lock(FunctionCallInfo fcinfo, RecipeMode mode, ZkScope scope,
					   bool is_try);
static void end_transaction(FunctionCallInfo fcinfo);
pg_noreturn static void refuse_to_end(int code, const char *message,
									  const char *hint);
static ZkOrder read_order(FunctionCallInfo fcinfo, RecipeMode mode,
						  ZkScope scope, bool is_try);

void
_PG_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
		refuse_late_load();
	zklock_session_init();
	zklock_take_rate_init();
	zklock_root_init();
	zklock_auth_init();
	zklock_name_init();
	zklock_name_allowed_init();
	zklock_nodedata_init();
	zklock_board_init();
	zklock_lock_init();
	zklock_keep_init();
	zklock_hooks_init();
	zklock_cancel_init();
	zklock_lease_roots_init();
	zklock_lease_worker_init();
	MarkGUCPrefixReserved("zklock");
	previous_request_hook = shmem_request_hook;
	shmem_request_hook = request_memory;
	previous_startup_hook = shmem_startup_hook;
	shmem_startup_hook = make_memory;
}

/*
 * A library that is loaded late finds values that a client has left at the
 * door: one that a start-up option gives for a setting that nobody has defined
 * yet outranks postgresql.conf, and is then thrown away in favour of the
 * compiled default, because the client may not set it.  So it would undo what
 * the administrator has set.  Nor is there memory then that backends share.
 */
static void
refuse_late_load(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("zklock must be loaded by shared_preload_libraries"),
			 errdetail("If it were loaded later, any client could override its settings."),
			 errhint("Set shared_preload_libraries = 'zklock' in postgresql.conf, behind what is there already, and restart PostgreSQL.")));
}

static void
request_memory(void)
{
	if (previous_request_hook != NULL)
		previous_request_hook();
	zklock_handover_request_memory();
	zklock_board_request_memory();
	zklock_stat_request_memory();
	zklock_lease_roots_request_memory();
}

static void
make_memory(void)
{
	if (previous_startup_hook != NULL)
		previous_startup_hook();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	zklock_handover_make_memory();
	zklock_board_make_memory();
	zklock_stat_make_memory();
	zklock_lease_roots_make_memory();
	LWLockRelease(AddinShmemInitLock);
}

/* ---------------------------------------------------------------------
 * Taking and releasing
 * ---------------------------------------------------------------------
 */

/* The functions that take a lock differ in its mode and scope: is it a try? */
#define LOCK_FUNCTION(function, mode, scope, is_try) \
PG_FUNCTION_INFO_V1(function); \
Datum \
function(PG_FUNCTION_ARGS) \
{ \
	return take_lock(fcinfo, mode, scope, is_try); \
}

LOCK_FUNCTION(zk_lock, RECIPE_EXCLUSIVE, ZK_SCOPE_SESSION, false)
LOCK_FUNCTION(zk_lock_shared, RECIPE_SHARED, ZK_SCOPE_SESSION, false)
LOCK_FUNCTION(zk_xact_lock, RECIPE_EXCLUSIVE, ZK_SCOPE_TRANSACTION, false)
LOCK_FUNCTION(zk_xact_lock_shared, RECIPE_SHARED, ZK_SCOPE_TRANSACTION, false)
LOCK_FUNCTION(zk_try_lock, RECIPE_EXCLUSIVE, ZK_SCOPE_SESSION, true)
LOCK_FUNCTION(zk_try_lock_shared, RECIPE_SHARED, ZK_SCOPE_SESSION, true)
LOCK_FUNCTION(zk_try_xact_lock, RECIPE_EXCLUSIVE, ZK_SCOPE_TRANSACTION, true)
LOCK_FUNCTION(zk_try_xact_lock_shared, RECIPE_SHARED, ZK_SCOPE_TRANSACTION, true)
LOCK_FUNCTION(zk_call_lock, RECIPE_EXCLUSIVE, ZK_SCOPE_CALL, false)
LOCK_FUNCTION(zk_try_call_lock, RECIPE_EXCLUSIVE, ZK_SCOPE_CALL, true)

/*
 * Waits in a transaction that holds back nobody: one that has just begun.  A
 * snapshot is taken by the first statement that reads, and those of the
 * catalogs the wait loop drops (session_wait.c).  So vacuum goes on, and what
 * is read afterwards is newer than the grant.  The time for the wait begins
 * before the caller's transaction is ended.
 */
Datum
zk_commit_and_lock(PG_FUNCTION_ARGS)
{
	ZkOrder		order = read_order(fcinfo, RECIPE_EXCLUSIVE, ZK_SCOPE_SESSION,
								   false);

	/* what is refused commits nothing */
	zklock_check_scope(order.scope, order.name.text);
	end_transaction(fcinfo);
	zklock_hooks_follow();
	(void) zklock_lock_acquire(&order, NULL);	/* raises unless it is taken */
	PG_RETURN_VOID();
}

Datum
zk_unlock(PG_FUNCTION_ARGS)
{
	ZkName		name = zklock_given_name(fcinfo, ZK_GIVEN_TO_PROVE);

	zklock_args_refuse_restricted();
	PG_RETURN_BOOL(zklock_lock_release(&name, RECIPE_EXCLUSIVE,
									   zklock_hooks_has_written()));
}

Datum
zk_unlock_shared(PG_FUNCTION_ARGS)
{
	ZkName		name = zklock_given_name(fcinfo, ZK_GIVEN_TO_PROVE);

	zklock_args_refuse_restricted();
	PG_RETURN_BOOL(zklock_lock_release(&name, RECIPE_SHARED,
									   zklock_hooks_has_written()));
}

Datum
zk_unlock_all(PG_FUNCTION_ARGS)
{
	zklock_args_refuse_restricted();
	zklock_release_session_scope(zklock_hooks_has_written());
	PG_RETURN_VOID();
}

Datum
zk_disconnect(PG_FUNCTION_ARGS)
{
	int64		deadline = protocol_now() + DISCONNECT_MS;

	zklock_args_refuse_restricted();
	if (zklock_has_locks() && zklock_hooks_has_written())
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("cannot disconnect from ZooKeeper in a transaction that has written and holds locks"),
				 errdetail("Locks that are released in such a transaction are held until it ends, so that others see what it has written."),
				 errhint("End the transaction first.")));
	if (zklock_has_xact_locks())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot disconnect from ZooKeeper while holding locks of transaction or call scope"),
				 errhint("End the transaction first.")));
	zklock_release_session_scope(false);
	zklock_session_close(Max(deadline - protocol_now(), 0));
	PG_RETURN_VOID();
}

/* ---------------------------------------------------------------------
 * What is held: tokens, fences
 * ---------------------------------------------------------------------
 */

Datum
zk_fencing_token(PG_FUNCTION_ARGS)
{
	ZkName		name = zklock_given_name(fcinfo, ZK_GIVEN_TO_PROVE);
	int64		token = zklock_tell_token(&name, NULL);

	if (token == 0)
		PG_RETURN_NULL();
	PG_RETURN_INT64(token);
}

Datum
zk_is_held(PG_FUNCTION_ARGS)
{
	ZkName		name = zklock_given_name(fcinfo, ZK_GIVEN_TO_PROVE);

	PG_RETURN_BOOL(zklock_confirm_held(&name));
}

Datum
zk_fence_own_lock(PG_FUNCTION_ARGS)
{
	ZkName		name = zklock_given_name(fcinfo, ZK_GIVEN_TO_PROVE);
	ZkTokenOf	of;
	int64		token = zklock_tell_token(&name, &of);
	ZkRow		row = {0};

	zklock_args_refuse_restricted();
	if (token == 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("lock \"%s\" is not held by this session", name.text),
				 errhint("Take it with zk_lock(), or give the token of its holder to zk_fence().")));
	if (!of.is_sole)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("lock \"%s\" is held in shared mode or as a semaphore",
					name.text),
				 errdetail("Several sessions can hold it at a time, and zk_fence() would refuse all of them but the newest."),
				 errhint("Take the lock exclusively and with one permit, as zk_lock() does without further arguments.")));
	zklock_row_add_text(&row, of.root);
	zklock_row_add_text(&row, of.name);
	zklock_row_add(&row, true, Int64GetDatum(token));
	return zklock_row_datum(fcinfo, &row);
}

/*
 * zk_fence(name, token): whether the caller may is asked here, the rest of it
 * runs as the owner of the table.  If the lock is held here its token is asked
 * for, so that it is not kept (zklock.keep).
 */
Datum
zk_fence_claim(PG_FUNCTION_ARGS)
{
	Oid			types[] = {TEXTOID, TEXTOID, INT8OID};
	ZkName		name = zklock_given_name(fcinfo, ZK_GIVEN_TO_USE);
	int64		token = zklock_args_token(fcinfo, 1);
	Oid			namespace = get_func_namespace(fcinfo->flinfo->fn_oid);
	char	   *schema = get_namespace_name(namespace);

	zklock_args_refuse_restricted();
	if (schema == NULL)
		elog(ERROR, "cache lookup failed for namespace %u", namespace);
	(void) zklock_tell_token(&name, NULL);	/* the caller has one already */
	return OidFunctionCall3Coll(LookupFuncName(list_make2(makeString(schema),
														  makeString("_zk_fence_claim")),
											   lengthof(types), types, false),
								DEFAULT_COLLATION_OID,
								CStringGetTextDatum(zklock_name_root()),
								CStringGetTextDatum(name.text),
								Int64GetDatum(token));
}

/* ---------------------------------------------------------------------
 * Arguments and results
 * ---------------------------------------------------------------------
 */

/* Take a lock.  Result: its token, or of a try whether it was granted. */
static Datum
take_lock(FunctionCallInfo fcinfo, RecipeMode mode, ZkScope scope, bool is_try)
{
	ZkOrder		order;
	int64		token;

	zklock_args_refuse_restricted();
	order = read_order(fcinfo, mode, scope, is_try);
	zklock_hooks_follow();
	token = zklock_lock_acquire(&order, NULL);
	if (is_try)
		PG_RETURN_BOOL(token != 0);
	PG_RETURN_INT64(token);
}

/*
 * Commit the transaction of a procedure's caller, and go on in another one,
 * which has no snapshot, no transaction id and no locks.  What the arguments
 * point to may be gone then; what was palloc'ed by the procedure is not.
 * Raises 25001 or 2D000 where it cannot be ended, and what a commit raises:
 * then nothing is committed.
 */
static void
end_transaction(FunctionCallInfo fcinfo)
{
	/* must it go on, whatever is called in it? */
	bool		is_atomic = fcinfo->context == NULL ||
		!IsA(fcinfo->context, CallContext) ||
		castNode(CallContext, fcinfo->context)->atomic;

	if (IsSubTransaction())
		refuse_to_end(ERRCODE_INVALID_TRANSACTION_TERMINATION,
					  "zk_commit_and_lock() cannot run while a subtransaction is active",
					  "CALL it outside of blocks with EXCEPTION and of savepoints, or use zk_lock().");
	if (is_atomic && IsTransactionBlock())
		refuse_to_end(ERRCODE_ACTIVE_SQL_TRANSACTION,
					  "zk_commit_and_lock() cannot run inside a transaction block",
					  "CALL it before BEGIN, or use zk_lock() or zk_xact_lock().");
	if (is_atomic)
		refuse_to_end(ERRCODE_INVALID_TRANSACTION_TERMINATION,
					  "zk_commit_and_lock() cannot end the transaction that it is called in",
					  "CALL it by itself, in a DO block, or in a procedure without SECURITY DEFINER and SET that is called so; not in a function, and not by EXECUTE. Or use zk_lock().");
	SPI_connect_ext(SPI_OPT_NONATOMIC);
	SPI_commit();
	SPI_finish();
}

static void
refuse_to_end(int code, const char *message, const char *hint)
{
	ereport(ERROR,
			(errcode(code),
			 errmsg_internal("%s", message),
			 errdetail("It commits the transaction before it waits, so that the wait does not hold up vacuum, and later reads are newer than the grant."),
			 errhint("%s", hint)));
}

/* Read (name, timeout), and permits where the function has them. */
static ZkOrder
read_order(FunctionCallInfo fcinfo, RecipeMode mode, ZkScope scope,
		   bool is_try)
{
	ZkName		name = zklock_given_name(fcinfo, ZK_GIVEN_TO_USE);
	ZkOrder		order = zklock_order_acquisition(&name, scope, is_try,
												 zklock_args_timeout(fcinfo, 1, is_try));

	order.mode = mode;
	order.wants_list = zklock_hooks_asks_quorum();
	if (PG_NARGS() > 2)
		order.permits = zklock_args_permits(fcinfo, 2);
	return order;
}
