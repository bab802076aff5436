/*-------------------------------------------------------------------------
 *
 * lock.c
 *	  Locks are taken and released: reentrancy, scopes, and what ends them.
 *
 * What is held is in the table (lock_table.c).  The one rule: between a grant
 * and its count nothing may raise; so zklock_acquire() has the entry and the
 * count made before the queue is joined.
 *
 *-------------------------------------------------------------------------
 */
#include "lock.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "board.h"
#include "contender.h"
#include "keep.h"
#include "lock_log.h"
#include "lock_proof.h"
#include "lock_table.h"
#include "loss.h"
#include "name.h"
#include "take_rate.h"

/* zklock.max_locks: how many locks one backend may hold. */
static int	max_locks_setting;

/*
 * zklock.max_lock_bytes, in kB: how much the paths of the session's queue
 * nodes may take, of locks that are held, kept and awaited, whatever
 * zklock.max_locks is.
 *
 * The end of a session is one transaction that names all its ephemeral znodes
 * (CloseSessionTxn).  If that is longer than jute.maxbuffer and
 * zookeeper.jute.maxbuffer.extrasize together allow, 1 kB at least, the servers
 * write it and cannot read it again, and none of them starts any more
 * (ZOOKEEPER-4306).  After a reconnect the client library names all paths that
 * it watches, one for each lock that is held, in one request, which may have
 * jute.maxbuffer and no more.
 *
 * So the bound is half of jute.maxbuffer, whose default is 1 MB.  The other
 * half is for what is not counted: the second node of each downgrade under way,
 * the facts of a wait (deadlock.c), and the queues of kept locks, which are
 * watched, too.
 */
static int	max_lock_bytes_setting;

/*
 * zklock.snapshot_warning: is there a warning when a lock is taken by a
 * transaction that has its snapshot already?
 */
static bool snapshot_warning;

/* zklock.session_scope: may locks of session scope be taken? */
typedef enum SessionScope
{
	SESSION_SCOPE_ALLOW,
	SESSION_SCOPE_WARN,
	SESSION_SCOPE_REFUSE
} SessionScope;

static const struct config_enum_entry session_scope_options[] = {
	{"allow", SESSION_SCOPE_ALLOW, false},
	{"warn", SESSION_SCOPE_WARN, false},
	{"refuse", SESSION_SCOPE_REFUSE, false},
	{NULL, 0, false}
};

/*
 * Behind a pooler that lends a server connection for one transaction such a
 * lock is also that of the next client of the connection.
 */
static int	session_scope = SESSION_SCOPE_ALLOW;

/* Whether locks of call scope are held, and when they end. */
typedef enum CallState
{
	CALL_NONE,					/* there are none */
	CALL_RUNS,					/* the present call has taken some, and perhaps
								 * former calls of its transaction have, too:
								 * at_end is registered */
	CALL_OVER					/* the calls that took them are over, but their
								 * transaction goes on: they end with it */
} CallState;

static struct
{
	CallState	state;
	MemoryContextCallback at_end;	/* in MessageContext */
}			Call;

/*
 * The release of a lock that was held for AWAITED_MS or longer waits for the
 * answer, which tells whether the lock had been taken away.  The wait is bounded
 * by the time for which the lock was held, and by RELEASE_MS.  A lock that was
 * held for less is released without: the wait would be too large a part of the
 * whole.
 */
#define AWAITED_MS 5
#define RELEASE_MS 1000

/* A member of a set of scopes. */
#define ENDS(scope) (1u << (scope))

/* How counts end. */
typedef struct Ending
{
	const char *how;			/* for the log */
	ZkWork		work;			/* see zklock_release() */
	ZkSessionNumber live;
	bool		is_awaited;		/* the caller waits for the answer to the
								 * delete of the place's node */
} Ending;

static void make_room(const Lock *lock);
static void warn_of_snapshot(void);
static int64 take_again(const ZkOrder *order, Lock *lock, Lock **taken);
static int64 grant(const ZkOrder *order, Lock *lock, Lock **taken);
static int64 count_one(const ZkOrder *order, Lock *lock, Lock **taken);
static void confirm_own(const ZkOrder *order, Lock *lock);
static ZkWaitEnd win_place(const ZkOrder *order, Lock *lock);
static ZkWork work_of_changes(void);
static void end_mode(Lock *lock, RecipeMode mode, const Ending *ending);
static void leave(Lock *lock, const Ending *ending);
static int64 held_ms(const ZkPlace *place);
static int64 patience_of(const ZkPlace *place);
static void end_scopes(unsigned scopes, ZkWork work, const char *how);
static void follow_call(void);
static void end_call(void *arg);

/* ---------------------------------------------------------------------
 * Public functions: acquire
 * ---------------------------------------------------------------------
 */

void
zklock_lock_init(void)
{
	DefineCustomIntVariable("zklock.max_locks",
							"Maximum number of locks that one backend may hold.",
							NULL,
							&max_locks_setting, 1000, 1, 10000,
							PGC_SUSET, 0,
							NULL, NULL, NULL);
	DefineCustomIntVariable("zklock.max_lock_bytes",
							"Maximum size of the paths of one backend's queue nodes together.",
							"It should be at most half of jute.maxbuffer of the ZooKeeper servers.",
							&max_lock_bytes_setting, 512, 4, 32 * 1024,
							PGC_SUSET, GUC_UNIT_KB,
							NULL, NULL, NULL);
	DefineCustomBoolVariable("zklock.snapshot_warning",
							 "Warns when a lock is taken in a transaction whose snapshot is already fixed.",
							 NULL,
							 &snapshot_warning, true,
							 PGC_USERSET, 0,
							 NULL, NULL, NULL);
	DefineCustomEnumVariable("zklock.session_scope",
							 "Whether locks of session scope may be taken.",
							 "allow, warn or refuse. Set warn or refuse for databases behind a pooler in transaction mode.",
							 &session_scope, SESSION_SCOPE_ALLOW,
							 session_scope_options,
							 PGC_SUSET, 0,
							 NULL, NULL, NULL);
}

/* By default it is as long as jute.maxbuffer allows by default. */
int
zklock_lock_request_bytes(void)
{
	return max_lock_bytes_setting * 2048 - 1;
}

void
zklock_check_scope(ZkScope scope, const char *name)
{
	static TimestampTz warned_in;	/* this statement has its warning */
	const char *hint = _("Use a function of transaction or call scope, such as zk_xact_lock() or zk_call_lock().");
	bool		is_refused = session_scope == SESSION_SCOPE_REFUSE;
	const char *value = "warn";

	if (scope != ZK_SCOPE_SESSION || session_scope == SESSION_SCOPE_ALLOW)
		return;
	if (!is_refused && warned_in == GetCurrentStatementStartTimestamp())
		return;
	warned_in = GetCurrentStatementStartTimestamp();
	if (zklock_name_is_advisory(name))
		hint = _("Use a function of transaction scope, such as pg_advisory_xact_lock().");
	if (is_refused)
		value = "refuse";
	ereport(is_refused ? ERROR : WARNING,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("locks of session scope are not allowed for this database or role"),
			 errdetail("\"%s\" is \"%s\". Behind a pooler such a lock stays with the server connection, and the next client of that connection has it, too.",
					   "zklock.session_scope", value),
			 errhint("%s", hint)));
}

int64
zklock_acquire(const ZkOrder *order, struct Lock **taken)
{
	zklock_check_scope(order->scope, order->name);
	for (bool is_again = false;; is_again = true)
	{
		Lock	   *lock;
		ZkWaitEnd	end;

		zklock_session_attend();
		zklock_refuse_if_lost();
		(void) zklock_released_tell(0); /* it matters to no lock of now */
		zklock_session_renew(is_again);
		lock = zklock_lock_enter(order->name);
		if (order->scope == ZK_SCOPE_CALL)
			follow_call();
		zklock_lock_reserve(lock, order->mode, order->scope);
		if (zklock_lock_is_held(lock))
			return take_again(order, lock, taken);
		zklock_lock_log_holder(lock);
		warn_of_snapshot();

		/* if it is taken back, nothing may raise until it is counted */
		if (order->mode == RECIPE_EXCLUSIVE && order->permits == 1 &&
			zklock_keep_take(&lock->place))
			return grant(order, lock, taken);
		make_room(lock);
		if (!order->is_of_set && !is_again)
			zklock_take_rate_count(1);
		end = win_place(order, lock);
		if (end == ZK_WAIT_OVER)
			return grant(order, lock, taken);
		zklock_lock_forget_if_empty(lock);
		if (end != ZK_WAIT_LOST)
			return 0;

		/*
		 * If nothing else hung on the session, start again with a new one, at
		 * the end of the queue.
		 */
	}
}

bool
zklock_has_at_hand(const char *name)
{
	Lock	   *lock = zklock_lock_find(name);

	return lock != NULL &&
		(zklock_lock_is_held(lock) || zklock_keep_is_kept(&lock->place));
}

void
zklock_drop_kept(const char *name)
{
	Lock	   *lock = zklock_lock_find(name);

	if (lock != NULL)
		zklock_keep_drop(&lock->place, "something else stands in its queue");
}

void
zklock_give_back(Lock *lock, RecipeMode mode, ZkScope scope)
{
	Ending		ending = {.how = "given back",.work = ZK_WORK_NONE};

	zklock_session_attend();
	zklock_lock_count_back(lock, mode, scope);
	ending.live = zklock_session_live();
	if (!zklock_board_is_taken(&lock->taken[mode]))
		end_mode(lock, mode, &ending);
	zklock_lock_forget_if_empty(lock);
}

/* ---------------------------------------------------------------------
 * Public functions: release
 * ---------------------------------------------------------------------
 */

bool
zklock_release(const char *name, RecipeMode mode, ZkWork work)
{
	Lock	   *lock = zklock_lock_find(name);
	Ending		ending = {.how = "unlocked",.work = work};
	ZkLossOf	loss = {.name = name};
	int64		patience;

	if (lock == NULL || lock->taken[mode].counts[ZK_SCOPE_SESSION] == 0)
	{
		zklock_lock_warn_not_held(name, lock, mode);
		return false;
	}
	ending.live = zklock_session_reap(false);
	zklock_place_settle(&lock->place, ending.live);
	loss.token = lock->place.token;
	if (zklock_place_is_lost(&lock->place, ending.live))
		loss.kind = ZK_LOST_RELEASED;

	/* all or none of its nodes: a WARNING would look for interrupts, too */
	HOLD_INTERRUPTS();
	patience = patience_of(&lock->place);
	ending.is_awaited = patience > 0;
	zklock_lock_count_back(lock, mode, ZK_SCOPE_SESSION);
	if (!zklock_board_is_taken(&lock->taken[mode]))
		end_mode(lock, mode, &ending);
	zklock_lock_forget_if_empty(lock);
	RESUME_INTERRUPTS();
	/* whatever came in that time is told */
	if (patience > 0)
		(void) zklock_session_await_undone(protocol_now() + patience);
	if (zklock_released_tell(loss.token))
		return false;
	if (loss.kind == ZK_LOST_NOT)
		return true;
	zklock_loss_warn(&loss);
	return false;
}

void
zklock_release_session_scope(ZkWork work)
{
	bool		had_locks = zklock_has_locks();

	(void) zklock_released_tell(0); /* of what was released before */

	/* a WARNING would look for interrupts, too */
	HOLD_INTERRUPTS();
	if (had_locks)
		end_scopes(ENDS(ZK_SCOPE_SESSION), work, "unlocked with all");
	zklock_keep_drop_all("all locks are released",
						 had_locks && zklock_session_is_connected());
	RESUME_INTERRUPTS();
	if (had_locks)
		(void) zklock_session_await_undone(protocol_now() + RELEASE_MS);
	(void) zklock_released_tell(0); /* the guard looks for itself */
}

/* A backend that holds and keeps nothing pays two comparisons. */
void
zklock_end_transaction(void)
{
	bool		had_locks = zklock_has_locks();
	unsigned	scopes = ENDS(ZK_SCOPE_TRANSACTION);

	if (Call.state == CALL_OVER)
	{
		scopes |= ENDS(ZK_SCOPE_CALL);
		Call.state = CALL_NONE;
	}
	zklock_released_end_transaction();
	zklock_keep_settle();
	if (zklock_lock_has_unkept())
		end_scopes(scopes, ZK_WORK_NONE,
				   "ended with its transaction or call");
	if (!had_locks)
		zklock_session_rest();

	/* the commit guard has stopped it; with no lock left it stays stopped */
	if (zklock_has_locks())
		zklock_session_interrupt_on_loss(true);
	zklock_session_end_use();
}

void
zklock_end_subtransaction(bool is_commit, SubTransactionId mine,
						  SubTransactionId parent)
{
	HASH_SEQ_STATUS scan;
	Lock	   *lock;

	if (!zklock_lock_has_unkept())
		return;
	foreach_lock(scan, lock)
	{
		bool		is_same = zklock_lock_is_held(lock);

		foreach_mode(mode)
		{
			bool		was_taken = zklock_board_is_taken(&lock->taken[mode]);

			if (!zklock_lock_end_sub(lock, mode, is_commit, mine, parent))
				continue;
			if (was_taken && !zklock_board_is_taken(&lock->taken[mode]))
			{
				Ending		ending = {
					.how = "rolled back",.work = work_of_changes()
				};

				zklock_session_attend();
				ending.live = zklock_session_live();
				end_mode(lock, mode, &ending);
			}
			is_same = false;
		}
		if (!is_same)
			zklock_lock_forget_if_empty(lock);
	}
}

/* ---------------------------------------------------------------------
 * Acquire
 * ---------------------------------------------------------------------
 */

/*
 * Raise 53400 if one more lock would be past zklock.max_locks or
 * zklock.max_lock_bytes.  Kept locks count, too, and are given up to make
 * room.
 */
static void
make_room(const Lock *lock)
{
	Size		next = ZK_PATH_BYTES(lock->path) + RECIPE_NODE_SIZE;
	Size		most = (Size) max_lock_bytes_setting * 1024;
	int			nheld = zklock_lock_count_held();
	Size		held_bytes = zklock_lock_held_bytes();

	if (nheld >= max_locks_setting)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("too many ZooKeeper locks"),
				 errdetail("Number of locks that this session holds: %d.", nheld),
				 errhint("Release some of them, or increase \"%s\".",
						 "zklock.max_locks")));
	if (held_bytes + next > most)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("too many ZooKeeper locks"),
				 errdetail("This session holds %d, and the paths of their queue nodes would have %zu bytes in total. The limit is %zu bytes.",
						   nheld, held_bytes, most),
				 errhint("Release some of them, or use shorter names. You can increase \"%s\" to at most half of jute.maxbuffer of the ZooKeeper servers: zk_check() compares them.",
						 "zklock.max_lock_bytes")));
	zklock_keep_drop_down_to(max_locks_setting - nheld - 1,
							 most - held_bytes - next);
}

/*
 * In REPEATABLE READ and above a transaction block reads what was committed
 * before its snapshot, which is older than the grant: the work of the previous
 * holder is invisible.  There is one warning a statement.
 */
static void
warn_of_snapshot(void)
{
	static TimestampTz warned_in;	/* this statement has its warning */

	if (!snapshot_warning || !IsolationUsesXactSnapshot() ||
		!IsTransactionBlock() ||
		warned_in == GetCurrentStatementStartTimestamp())
		return;
	warned_in = GetCurrentStatementStartTimestamp();
	ereport(WARNING,
			(errcode(ERRCODE_WARNING),
			 errmsg("a lock taken in a transaction with a fixed snapshot does not protect what it reads"),
			 errdetail("The transaction does not see what earlier holders of the lock have committed meanwhile."),
			 errhint("Take the lock before the transaction, or use READ COMMITTED and read in a later statement.")));
}

/*
 * Take a lock that is held already, in whatever mode, on the place that it has.
 * Shared mode besides exclusive mode is granted at once, on the exclusive node;
 * see place.c.
 */
static int64
take_again(const ZkOrder *order, Lock *lock, Lock **taken)
{
	const ZkTaken *exclusive = &lock->taken[RECIPE_EXCLUSIVE];
	bool		is_exclusive = zklock_board_is_taken(exclusive);

	if (is_exclusive && lock->place.permits != order->permits)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("lock \"%s\" is held here with another number of permits",
						lock->name),
				 errdetail("This call names permits => %d, and the lock was taken with permits => %d.",
						   order->permits, lock->place.permits),
				 errhint("Name the same number of permits as before, which zk_session_locks shows; a shared lock has 1.")));
	if (order->mode == RECIPE_EXCLUSIVE && !is_exclusive)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot upgrade lock \"%s\" from shared to exclusive",
						lock->name),
				 errdetail("Two sessions that upgrade the same lock would wait for each other for ever."),
				 errhint("Release the shared lock first, or take the exclusive lock from the start.")));
	if (!contact_is_after(lock->place.proof, zklock_session_fresh_since()))
		confirm_own(order, lock);
	zklock_refuse_if_lost();
	if (!zklock_board_is_taken(&lock->taken[order->mode]))
		zklock_place_prepare_downgrade(&lock->place, zklock_lock_memory());
	return count_one(order, lock, taken);
}

/*
 * Ask whether the lock is still held, of which there is no fresh proof; what
 * comes of that is for zklock_refuse_if_lost().  Without an answer within the
 * bounds of the order, raise as for a lock that was not held before.
 */
static void
confirm_own(const ZkOrder *order, Lock *lock)
{
	if (zklock_confirm_by(order->name, order->bounds.deadline))
		return;
	zklock_attend_locks();
	if (!zklock_has_lost())
		zklock_order_raise_silence(order);
}

/* The place is won: the lock is held.  Result: its token. */
static int64
grant(const ZkOrder *order, Lock *lock, Lock **taken)
{
	int64		token = count_one(order, lock, taken);

	/* from here on an error finds the lock held and counted */
	zklock_session_interrupt_on_loss(true);
	zklock_lock_log_taken(lock, order->mode);
	return token;
}

/* Count one more, in what was reserved.  Result: the token. */
static int64
count_one(const ZkOrder *order, Lock *lock, Lock **taken)
{
	if (!zklock_has_locks())
		zklock_session_note_use(true);
	zklock_lock_count(lock, order->mode, order->scope);
	if (taken != NULL)
		*taken = lock;
	return lock->place.token;
}

/* Contend for a lock that is not held here. */
static ZkWaitEnd
win_place(const ZkOrder *order, Lock *lock)
{
	ZkWaitEnd	end;

	/* the node of the kept lock would be ahead of the new one */
	zklock_keep_drop(&lock->place, "its lock is wanted anew");
	lock->place.mode = order->mode;
	lock->place.permits = order->permits;
	zklock_session_open();
	end = zklock_contend(order, &lock->place);
	if (end == ZK_WAIT_OVER)
		lock->nbytes = ZK_PATH_BYTES(lock->place.node);
	return end;
}

/* ---------------------------------------------------------------------
 * Release
 * ---------------------------------------------------------------------
 */

/*
 * The counts of these scopes end, and with them the places of locks that have
 * no other counts.  work: see zklock_release().  how: for the log.  Answers to
 * the release of session scope are for the caller to wait for, all together.
 * Never raises or waits.
 */
static void
end_scopes(unsigned scopes, ZkWork work, const char *how)
{
	HASH_SEQ_STATUS scan;
	Lock	   *lock;
	Ending		ending = {.how = how,.work = work};
	bool		can_answer;

	ending.live = zklock_session_reap(false);
	can_answer = zklock_session_can_answer();
	zklock_client_begin_many(zklock_session_client());
	foreach_lock(scan, lock)
	{
		zklock_place_settle(&lock->place, ending.live);
		foreach_mode(mode)
		{
			ZkTaken    *taken = &lock->taken[mode];
			bool		was_held = zklock_board_is_taken(taken);

			ending.is_awaited = can_answer &&
				(scopes & ENDS(ZK_SCOPE_SESSION)) != 0 &&
				taken->counts[ZK_SCOPE_SESSION] > 0 &&
				held_ms(&lock->place) >= AWAITED_MS;
			for (int scope = 0; scope < ZK_NSCOPES; scope++)
				if ((scopes & ENDS(scope)) != 0)
					zklock_lock_drop_counts(lock, mode, scope);
			if (was_held && !zklock_board_is_taken(taken))
				end_mode(lock, mode, &ending);
		}
		zklock_lock_forget_if_empty(lock);
	}
	zklock_client_end_many(zklock_session_client());
}

/*
 * What the transaction has to commit by now, without notifications: a savepoint
 * that is rolled back takes back those that were made since.
 */
static ZkWork
work_of_changes(void)
{
	if (TransactionIdIsValid(GetTopTransactionIdIfAny()))
		return ZK_WORK_CHANGES;
	return ZK_WORK_NONE;
}

/*
 * The last count of that mode is gone.  If the lock is still held in shared
 * mode, its place is downgraded; if it is held no more, its place is kept or
 * left.  Never raises or waits.
 */
static void
end_mode(Lock *lock, RecipeMode mode, const Ending *ending)
{
	Assert(!zklock_board_is_taken(&lock->taken[mode]));
	if (!zklock_lock_is_held(lock))
	{
		/* ahead of the delete, or loss_notice.c misses a node of what is held */
		zklock_board_remove_lock(&lock->line);
		zklock_lock_log_end(lock, mode, ending->how);
		leave(lock, ending);
		zklock_lock_note_unheld(lock);
		if (zklock_has_locks())
			return;
		zklock_session_note_use(false);
		zklock_session_interrupt_on_loss(false);
	}
	else if (mode == RECIPE_EXCLUSIVE)
		zklock_place_downgrade(&lock->place, ending->live);
}

/*
 * Keep the place or leave it.  If the transaction has written while it held the
 * lock, its commit has to know whether the lock had been lost by now.  The answer
 * to the delete of the node tells that, so such a place is not kept.  Never
 * raises or waits.
 */
static void
leave(Lock *lock, const Ending *ending)
{
	ZkPlace    *place = &lock->place;
	bool		is_relied_on = zklock_released_wrote_since(&lock->granted_in,
														   ending->work);
	bool		is_lost;
	ZkLeave		leaving = {.why = ending->how,.is_awaited = ending->is_awaited};
	ZkRequest  *answer;

	zklock_place_settle(place, ending->live);
	is_lost = zklock_place_is_lost(place, ending->live);
	if (is_lost)
		zklock_lock_note_late_loss(lock);
	if (is_lost && is_relied_on)
		zklock_released_note_lost(place);
	if (zklock_keep_put(place, ending->live, !is_relied_on))
		return;
	leaving.is_asking = is_relied_on && !is_lost;
	answer = zklock_place_leave(place, ending->live, &leaving);
	if (leaving.is_asking)
		zklock_released_note(place, answer);
}

/* For how long its lock has been held. */
static int64
held_ms(const ZkPlace *place)
{
	return protocol_now() - place->grant.at_ms;
}

/*
 * How long to wait for the answer to its release, which is to come.  0: not at
 * all, as without a connection, and while an earlier release is not answered.
 */
static int64
patience_of(const ZkPlace *place)
{
	int64		most_ms = held_ms(place);

	if (most_ms < AWAITED_MS || !zklock_session_can_answer())
		return 0;
	return Min(most_ms, RELEASE_MS);
}

/* ---------------------------------------------------------------------
 * Call scope
 *
 * A client's message is one call, whatever is called in it: CALL, DO, SELECT,
 * several statements in one string.  PostgreSQL keeps what belongs to it in
 * MessageContext, and clears that when it is done and about to be idle: after
 * the commit, or after the abort that an error or a cancellation has led to,
 * and before the client is told that it may go on.  So a callback of that
 * context is where these locks end: PostgreSQL has no hook there.
 *
 * A call need not be the end of its transaction: in a transaction block, and
 * in the extended protocol before Sync.  What it wrote is not committed then,
 * so its locks stay until the transaction ends.
 * ---------------------------------------------------------------------
 */

/*
 * A lock of call scope is about to be taken: follow the call to its end.  Raises
 * 0A000 where there are no calls.
 */
static void
follow_call(void)
{
	if (MessageContext == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("locks of call scope cannot be used in a background worker"),
				 errdetail("It has no client whose calls could end."),
				 errhint("Use locks of session or of transaction scope.")));
	if (Call.state == CALL_RUNS)
		return;
	Call.at_end.func = end_call;
	MemoryContextRegisterResetCallback(MessageContext, &Call.at_end);
	Call.state = CALL_RUNS;
}

/*
 * The call is over.  If its transaction goes on, its locks end with that
 * (zklock_end_transaction()).  A transaction that has failed does not go on,
 * unless it is a subtransaction that has failed: then ROLLBACK TO may come.
 * Never raises, never waits.
 */
static void
end_call(void *arg)
{
	Assert(Call.state == CALL_RUNS);
	Call.state = CALL_NONE;
	if (proc_exit_inprogress || in_error_recursion_trouble())
		return;
	if (IsTransactionState() || GetCurrentTransactionNestLevel() > 1)
	{
		Call.state = CALL_OVER;
		return;
	}
	if (!zklock_has_locks())
		return;

	/* a WARNING would look for interrupts, too */
	HOLD_INTERRUPTS();
	end_scopes(ENDS(ZK_SCOPE_CALL), ZK_WORK_NONE,
			   "ended with its transaction or call");
	RESUME_INTERRUPTS();
}
