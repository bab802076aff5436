/*-------------------------------------------------------------------------
 *
 * hooks.c
 *	  What PostgreSQL calls at the end of transactions and savepoints, at
 *	  PREPARE and DISCARD. Has the commit guard.
 *
 * The one rule: PRE_COMMIT and PRE_PREPARE may raise, wait and be cancelled;
 * the other events of the callbacks may do none of that.  What they call only
 * sends deletes, which nobody waits for, and changes memory of our own.
 *
 * Locks of transaction scope are released when PostgreSQL has released its
 * own, advisory locks among them.  That comes after the commit is visible to
 * others, in catalogs too (XACT_EVENT_COMMIT is ahead of the invalidation
 * messages), and durable: on disk, and on synchronous standbys if there are
 * any, whatever synchronous_commit says (durable.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "hooks.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_database.h"
#include "commands/async.h"
#include "commands/user.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "replication/logicalworker.h"
#include "storage/lmgr.h"
#include "tcop/tcopprot.h"
#include "tcop/utility.h"
#include "utils/guc.h"
#include "utils/resowner.h"

#include "cancel.h"
#include "compat.h"
#include "durable.h"
#include "lease_guard.h"
#include "lock.h"
#include "lock_proof.h"
#include "session.h"
#include "stat.h"

/* Values of zklock.commit_guard. */
typedef enum CommitGuard
{
	GUARD_OFF,					/* commit whatever happened to the locks */
	GUARD_FRESH,				/* a fresh proof will do */
	GUARD_QUORUM				/* ask at every commit */
} CommitGuard;

/*
 * zklock.commit_guard: how a transaction that wrote, or that took locks of
 * its own, proves at its commit that this backend still holds all its locks.
 */
static int	commit_guard = GUARD_FRESH;

static const struct config_enum_entry commit_guard_options[] = {
	{"off", GUARD_OFF, false},
	{"fresh", GUARD_FRESH, false},
	{"quorum", GUARD_QUORUM, false},
	{NULL, 0, false}
};

/*
 * With "quorum" a proof may be that old when the commit goes on: behind the
 * callbacks of others, and with the lock of NOTIFY's queue.  With "fresh" it
 * has to be fresh there.
 */
#define GUARD_AGAIN_MS 10

/*
 * For how much of a lease's term its transaction may wait for standbys, before
 * the lease is proved.
 */
#define STANDBY_TENTHS 3

/* How far the current transaction has come, as far as it matters here. */
typedef enum TransactionStage
{
	TRANSACTION_OPEN,			/* no guard has come yet; or there is none */
	TRANSACTION_GUARDED,		/* one has: the locks were proved, or it has
								 * raised */
	TRANSACTION_OVER			/* its locks are still to be let go of, by
								 * at_resource_release() */
} TransactionStage;

static struct
{
	bool		is_followed;	/* this backend has had a lock, so that all
								 * callbacks are registered: for good */
	TransactionStage stage;
	bool		has_work;		/* it does, as was found at its commit */
	int64		guarded_at;		/* GUARDED: when the locks were to be proved
								 * last */
}			Transaction;

/* The next in the chains of hooks; the latter may be NULL. */
static ProcessUtility_hook_type next_ProcessUtility;

static void guard_commit(void);
static bool is_to_be_guarded(void);
static bool has_work(void);
static void guard_prepared(const Node *statement);
static void prove_locks(void);
static bool has_notified(void);
static void prove_behind_others(void);
static bool is_proof_recent(int64 most_ms);
static void stop_interruptions(void);
static void refuse_to_prepare(void);
static void finish_transaction(XactEvent event);
static void at_transaction_event(XactEvent event, void *arg);
static void guard_ahead(XactEvent event, void *arg);
static void at_subtransaction_event(SubXactEvent event, SubTransactionId mine,
									SubTransactionId parent, void *arg);
static void at_resource_release(ResourceReleasePhase phase, bool is_commit,
								bool is_top_level, void *arg);
static void process_utility(PlannedStmt *pstmt, const char *query,
							bool read_only_tree,
							ProcessUtilityContext context,
							ParamListInfo params,
							QueryEnvironment *environment,
							DestReceiver *dest, QueryCompletion *completion);

void
zklock_hooks_init(void)
{
	DefineCustomEnumVariable("zklock.commit_guard",
							 "How COMMIT makes sure that the locks of the session are still held.",
							 "off, fresh (a proof younger than a third of the session timeout is enough), or quorum (asks ZooKeeper at each COMMIT).",
							 &commit_guard, GUARD_FRESH, commit_guard_options,
							 PGC_SUSET, 0,
							 NULL, NULL, NULL);
	next_ProcessUtility = ProcessUtility_hook != NULL ? ProcessUtility_hook :
		standard_ProcessUtility;
	ProcessUtility_hook = process_utility;

	/* the callback that is registered first is called last: guard_commit() */
	RegisterXactCallback(at_transaction_event, NULL);
}

void
zklock_hooks_follow(void)
{
	if (Transaction.is_followed)
		return;
	zklock_cancel_follow();
	RegisterXactCallback(guard_ahead, NULL);
	RegisterSubXactCallback(at_subtransaction_event, NULL);
	RegisterResourceReleaseCallback(at_resource_release, NULL);
	Transaction.is_followed = true;
}

/*
 * A transaction gets its id with the first row that it writes, and a statement
 * may call a function ahead of that: INSERT ... VALUES (zk_unlock('a')).  An apply
 * worker of logical replication writes without statements, and calls triggers.
 */
bool
zklock_hooks_has_written(void)
{
	return TransactionIdIsValid(GetTopTransactionIdIfAny()) ||
		zklock_cancel_runs_writer() || IsLogicalWorker() || has_notified();
}

bool
zklock_hooks_asks_quorum(void)
{
	return commit_guard == GUARD_QUORUM;
}

/* ---------------------------------------------------------------------
 * Callbacks
 * ---------------------------------------------------------------------
 */

static void
at_transaction_event(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			Assert(IsTransactionState());
			Assert(Transaction.stage != TRANSACTION_OVER);
			(void) zklock_loss_tell_gone(0);	/* the guard looks for itself */
			guard_commit();
			break;
		case XACT_EVENT_PRE_PREPARE:
			Assert(IsTransactionState());
			Assert(Transaction.stage != TRANSACTION_OVER);
			refuse_to_prepare();
			guard_commit();
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_PREPARE:
			Assert(Transaction.stage != TRANSACTION_OVER);
			finish_transaction(event);
			break;
		case XACT_EVENT_ABORT:
			finish_transaction(event);
			break;
		case XACT_EVENT_PARALLEL_PRE_COMMIT:
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_PARALLEL_ABORT:
			/* workers hold nothing */
			Assert(!zklock_has_locks());
			break;
	}
}

/* A prepared transaction outlives us; our queue nodes do not. */
static void
refuse_to_prepare(void)
{
	if (zklock_lock_count_leaving() > 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot PREPARE a transaction that has written and released ZooKeeper locks"),
				 errdetail("They are held until the transaction ends, and a prepared transaction ends without this session."),
				 errhint("Release them after COMMIT PREPARED, or commit in one phase.")));
	if (zklock_has_xact_locks())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot PREPARE a transaction that holds ZooKeeper locks of transaction or call scope"),
				 errhint("Use locks of session scope, or commit in one phase.")));
	if (zklock_lease_is_used())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot PREPARE a transaction that has called zk_require_lease()"),
				 errhint("Commit in one phase.")));
}

/*
 * The one place where what is noted of a transaction ends.  Its locks are let
 * go of in at_resource_release(), if there have been any in this backend;
 * behind PREPARE only locks of session scope are left, which stay.  Never
 * raises or waits.
 */
static void
finish_transaction(XactEvent event)
{
	bool		is_in_trouble = in_error_recursion_trouble();

	Assert(InterruptHoldoffCount > 0);	/* nothing here may be interrupted */
	if (event == XACT_EVENT_ABORT && !is_in_trouble &&
		Transaction.stage == TRANSACTION_GUARDED)
	{
		zklock_attend_locks();
		if (zklock_has_lost())
			zklock_stat_count(ZK_STAT_REFUSED_COMMIT);
	}
	Transaction.stage = TRANSACTION_OPEN;
	Transaction.guarded_at = 0;
	Transaction.has_work = false;
	zklock_cancel_end_transaction();
	zklock_lease_end_use(InvalidSubTransactionId, InvalidSubTransactionId);
	if (Transaction.is_followed && !is_in_trouble)
		Transaction.stage = TRANSACTION_OVER;
	else
		zklock_session_count_requests();
}

/*
 * Callbacks of other extensions may commit something elsewhere, and
 * guard_commit() comes behind them.  So the locks are proved ahead of them, too,
 * at least ahead of those that were registered before the first lock.
 */
static void
guard_ahead(XactEvent event, void *arg)
{
	Assert(Transaction.is_followed);
	if (event != XACT_EVENT_PRE_COMMIT)
		return;
	if (is_to_be_guarded())
		prove_locks();
}

static void
at_subtransaction_event(SubXactEvent event, SubTransactionId mine,
						SubTransactionId parent, void *arg)
{
	switch (event)
	{
		case SUBXACT_EVENT_COMMIT_SUB:
			Assert(parent != InvalidSubTransactionId);
			zklock_end_subtransaction(true, mine, parent);
			zklock_lease_end_use(mine, parent);
			break;
		case SUBXACT_EVENT_ABORT_SUB:
			Assert(InterruptHoldoffCount > 0);
			if (!in_error_recursion_trouble())
				zklock_end_subtransaction(false, mine, parent);
			zklock_lease_end_use(mine, InvalidSubTransactionId);
			break;
		case SUBXACT_EVENT_START_SUB:
		case SUBXACT_EVENT_PRE_COMMIT_SUB:
			break;
	}
}

/*
 * A transaction releases its resources right after the event of its end, in
 * phases; this one comes after PostgreSQL's own locks were released.  It is
 * called for each owner of resources, and the first call will do.
 */
static void
at_resource_release(ResourceReleasePhase phase, bool is_commit,
					bool is_top_level, void *arg)
{
	if (phase != RESOURCE_RELEASE_AFTER_LOCKS || !is_top_level ||
		Transaction.stage != TRANSACTION_OVER)
		return;
	Assert(InterruptHoldoffCount > 0 && !IsTransactionState());
	Transaction.stage = TRANSACTION_OPEN;
	zklock_end_transaction();
	zklock_session_count_requests();
}

/*
 * COMMIT PREPARED writes its commit record in this function, and not where
 * other commits do, so the guard runs here.  It does not run in a transaction
 * block: there the command is going to be refused, and the transaction may go on.
 *
 * DISCARD ALL releases locks of session scope, as it does advisory locks;
 * poolers rely on it.  It fails in a transaction block, and then nothing may be
 * released; so the locks go when it has succeeded, and at once: dropping temporary
 * tables is a change, but none that relied on a lock.
 */
static void
process_utility(PlannedStmt *pstmt, const char *query, bool read_only_tree,
				ProcessUtilityContext context, ParamListInfo params,
				QueryEnvironment *environment, DestReceiver *dest,
				QueryCompletion *completion)
{
	/* a command that ends its transaction may free its own statement */
	bool		is_discard_all = IsA(pstmt->utilityStmt, DiscardStmt) &&
		((DiscardStmt *) pstmt->utilityStmt)->target == DISCARD_ALL;
	bool		is_notify PG_USED_FOR_ASSERTS_ONLY =
		IsA(pstmt->utilityStmt, NotifyStmt);
	bool		is_writer = GetCommandLogLevel(pstmt->utilityStmt) <= LOGSTMT_MOD;
	ErrorContextCallback frame;

	Assert(next_ProcessUtility != NULL);
	zklock_cancel_enter(&frame, is_writer);
	if (context == PROCESS_UTILITY_TOPLEVEL && !IsTransactionBlock())
		guard_prepared(pstmt->utilityStmt);
	next_ProcessUtility(pstmt, query, read_only_tree, context, params,
						environment, dest, completion);

	Assert(!is_notify || has_notified());
	if (is_discard_all)
		zklock_release_session_scope(false);
	zklock_cancel_leave(&frame);
}

/* ---------------------------------------------------------------------
 * Helpers
 * ---------------------------------------------------------------------
 */

/*
 * The commit guard: the last moment at which a transaction can be refused.  A
 * transaction that neither wrote nor notified nor took locks of its own may
 * commit without: so zk_session_locks can be read after a loss.
 *
 * It comes behind the callbacks of others as far as possible, namely of those
 * that were registered after this library was loaded: postgres_fdw's waits
 * for commits elsewhere, which takes time, and which may notify on this very
 * cluster and wait for the lock that prove_behind_others() takes.
 *
 * The commit is made synchronous: with synchronous_commit off the lock would
 * be passed on before this transaction's WAL is on disk, or on the standbys,
 * and after a crash or a failover the next holder has worked on what never
 * happened.
 */
static void
guard_commit(void)
{
	if (!zklock_has_locks() && !zklock_lease_is_used())
		return;
	zklock_durable_insist();
	if (is_to_be_guarded())
	{
		if (zklock_lease_is_used() && zklock_hooks_has_written())
			zklock_durable_await_standbys(zklock_lease_shortest_term() *
										  STANDBY_TENTHS / 10);
		prove_behind_others();
	}
	if (has_work())
		stop_interruptions();
}

/*
 * Does the current transaction rest on locks: has it written, or taken locks of
 * its own?  What has nothing to commit waits for nobody in its commit, and an
 * interrupt that comes behind it is for the next statement, which would go on
 * without its lock.
 */
static bool
has_work(void)
{
	Transaction.has_work = Transaction.has_work || zklock_has_xact_locks() ||
		zklock_hooks_has_written();
	return Transaction.has_work;
}

/* Is there a commit to refuse, and a lock to refuse it for? */
static bool
is_to_be_guarded(void)
{
	if (commit_guard == GUARD_OFF)
		return false;
	if (zklock_lease_is_used())
		return true;
	return zklock_has_locks() && has_work();
}

/*
 * The guard for the transaction that COMMIT PREPARED commits: it may be taken to
 * have written, so there is something to refuse if a lock is held.
 */
static void
guard_prepared(const Node *statement)
{
	if (!IsA(statement, TransactionStmt) || !zklock_has_locks())
		return;
	if (((const TransactionStmt *) statement)->kind !=
		TRANS_STMT_COMMIT_PREPARED)
		return;
	zklock_durable_insist();
	if (commit_guard != GUARD_OFF)
		prove_locks();
	stop_interruptions();
}

/*
 * Prove the locks and the leases.  While the leases are renewed the proof of
 * the locks becomes older: then both are asked again.
 */
static void
prove_locks(void)
{
	bool		always_ask = zklock_hooks_asks_quorum();
	int64		took_ms = 0;

	Assert(IsTransactionState() && Transaction.stage != TRANSACTION_OVER);
	Transaction.stage = TRANSACTION_GUARDED;
	Transaction.guarded_at = protocol_now();
	zklock_session_read();
	for (int attempts = 0; attempts < ZK_PROOF_ATTEMPTS; attempts++)
	{
		int64		asked_at = protocol_now();

		zklock_prove_locks(always_ask);
		zklock_lease_prove(always_ask);
		Transaction.guarded_at = protocol_now();
		took_ms = Transaction.guarded_at - asked_at;
		zklock_attend_locks();
		if (!zklock_lease_is_used() ||
			(zklock_are_proved() && zklock_lease_is_proved()))
			return;
		always_ask = false;
	}
	zklock_lease_raise_unproved(took_ms);
}

/*
 * From here to the end of the transaction a loss must not interrupt it.  The one
 * thing that can still be cancelled is the wait for a synchronous standby, and
 * then PostgreSQL tells the client that the commit is done.  A signal that was
 * sent already ends the transaction here.
 */
static void
stop_interruptions(void)
{
	zklock_session_interrupt_on_loss(false);
	CHECK_FOR_INTERRUPTS();
}

/*
 * Has the current transaction notified, in whatever way?  PostgreSQL tells
 * nobody, but refuses to prepare such a transaction: the function that does
 * so does nothing but raise, and may be called at any time.  It takes LISTEN
 * and UNLISTEN for the same.  process_utility() asserts that it still raises.
 */
static bool
has_notified(void)
{
	MemoryContext context = CurrentMemoryContext;
	uint32		interrupt_holdoff = InterruptHoldoffCount;
	uint32		cancel_holdoff = QueryCancelHoldoffCount;
	bool		exit_on_error = ExitOnAnyError;
	volatile bool found = false;

	PG_TRY();
	{
		error_context_stack = NULL; /* nobody reads the error */
		ExitOnAnyError = false;
		AtPrepare_Notify();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		FlushErrorState();
		InterruptHoldoffCount = interrupt_holdoff;
		QueryCancelHoldoffCount = cancel_holdoff;
		found = true;
	}
	PG_END_TRY();
	ExitOnAnyError = exit_on_error;
	return found;
}

/*
 * A transaction that notifies takes this lock of the whole cluster later in
 * its commit, and keeps it to the end (PreCommit_Notify()).  The process that
 * has it may be waiting for a standby, for any time: a proof from before that
 * wait would be worth nothing.  So we wait here, and look at the proof again.
 * But while we ask ZooKeeper we must not have the lock ourselves: everybody
 * who notifies would wait for ZooKeeper.  Where many notify, each wait for the
 * lock may take longer than a proof may be old, so it may be older each time.
 */
static void
prove_behind_others(void)
{
	bool		is_locking = !RecoveryInProgress() && has_notified();

	for (int64 most_ms = GUARD_AGAIN_MS;; most_ms *= 4)
	{
		if (is_locking)
			LockSharedObject(DatabaseRelationId, InvalidOid, 0,
							 AccessExclusiveLock);
		zklock_attend_locks();	/* what has come in the wait for others */
		if (zklock_are_proved() && zklock_lease_is_proved() &&
			is_proof_recent(most_ms))
			return;
		if (is_locking)
			UnlockSharedObject(DatabaseRelationId, InvalidOid, 0,
							   AccessExclusiveLock);
		prove_locks();
	}
}

/*
 * Was the quorum asked that short a time ago?  "fresh" does not want it to be.
 */
static bool
is_proof_recent(int64 most_ms)
{
	if (!zklock_hooks_asks_quorum())
		return true;
	return Transaction.stage == TRANSACTION_GUARDED &&
		protocol_now() - Transaction.guarded_at < most_ms;
}
