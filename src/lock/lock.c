/*-------------------------------------------------------------------------
 *
 * lock.c
 *	  Takes and releases locks: counts, scopes, limits, and when a released
 *	  lock is left.
 *
 * What is held is in the table (lock_table.c).  The one rule: between a grant
 * and its count nothing may raise; so zklock_lock_acquire() has the entry and the
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
#include "lock_proof.h"
#include "lock_table.h"
#include "loss.h"
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
 * half is for what is not counted: the facts of a wait (deadlock.c), and the
 * queues of kept locks, which are watched, too.
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
	bool		stays;			/* what is taken in session scope, and is
								 * released, stays to the end of the
								 * transaction, for that has written */
	ZkSessionNumber live;
	bool		is_awaited;		/* the caller waits for the answer to the
								 * delete of the place's node */
} Ending;

static void make_room(const Lock *lock);
static int64 take_again(const ZkOrder *order, Lock *lock, Lock **taken);
pg_noreturn static void refuse_leaving(const Lock *lock, const char *why);
static int64 grant_lock(const ZkOrder *order, Lock *lock, Lock **taken);
static int64 count_one(const ZkOrder *order, Lock *lock, Lock **taken);
static void confirm_own(const ZkOrder *order, Lock *lock);
static ZkOutcome win_place(const ZkOrder *order, Lock *lock);
static void notice_exclusive(const Lock *lock);
static ZkLossOf loss_of(const Lock *lock, ZkSessionNumber live);
static void end_unless_taken(Lock *lock, const Ending *ending);
static int64 held_ms(const ZkPlace *place);
static int64 patience_of(const ZkPlace *place);
static List *losses_of_session_scope(void);
static void end_scopes(unsigned scopes, Ending ending);
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
zklock_lock_acquire(const ZkOrder *order, struct Lock **taken)
{
	zklock_check_scope(order->scope, order->name.text);
	for (bool is_again = false;; is_again = true)
	{
		Lock	   *lock;
		ZkOutcome	outcome;

		zklock_session_poll();
		zklock_refuse_if_lost();
		(void) zklock_loss_tell_gone(0);	/* it matters to no lock of now */
		zklock_session_renew(is_again);
		lock = zklock_lock_enter(&order->name);
		if (order->scope == ZK_SCOPE_CALL)
			follow_call();
		zklock_lock_reserve(lock, order->mode, order->scope);
		if (zklock_lock_is_held(lock))
			return take_again(order, lock, taken);
		zklock_lock_log_holder(lock);
		zklock_warn_of_snapshot();

		/* if it is taken back, nothing may raise until it is counted */
		if (order->mode == RECIPE_EXCLUSIVE && order->permits == 1 &&
			zklock_keep_take(&lock->place))
			return grant_lock(order, lock, taken);
		make_room(lock);
		if (!order->is_of_set && !is_again)
			zklock_take_rate_count(1);
		outcome = win_place(order, lock);
		if (outcome == ZK_ANSWERED)
			return grant_lock(order, lock, taken);
		zklock_lock_forget_if_empty(lock);
		if (outcome == ZK_LATE)
			return 0;

		/*
		 * If nothing else hung on the session, start again with a new one, at
		 * the end of the queue.
		 */
	}
}

void
zklock_refuse_own(const ZkName *name, const char *why)
{
	Lock	   *lock = zklock_lock_find(name);

	if (lock == NULL || !zklock_lock_is_held(lock))
		return;
	if (zklock_lock_is_leaving(lock))
		refuse_leaving(lock, why);
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("lock \"%s\" is held by this session", lock->name),
			 errdetail_internal("%s", why),
			 errhint("Release the lock first.")));
}

bool
zklock_has_at_hand(const ZkName *name)
{
	Lock	   *lock = zklock_lock_find(name);

	return lock != NULL &&
		(zklock_lock_is_held(lock) || zklock_keep_is_kept(&lock->place));
}

void
zklock_drop_kept(const ZkName *name)
{
	Lock	   *lock = zklock_lock_find(name);

	if (lock != NULL)
		zklock_keep_drop(&lock->place, "something else stands in its queue");
}

void
zklock_give_back(Lock *lock, RecipeMode mode, ZkScope scope)
{
	Ending		ending = {.how = "given back"};

	zklock_session_attend();
	zklock_lock_count_back(lock, mode, scope);
	ending.live = zklock_session_live();
	end_unless_taken(lock, &ending);
	zklock_lock_forget_if_empty(lock);
}

/* ---------------------------------------------------------------------
 * Public functions: release
 * ---------------------------------------------------------------------
 */

bool
zklock_lock_release(const ZkName *name, RecipeMode mode, bool has_written)
{
	Lock	   *lock = zklock_lock_find(name);
	Ending		ending = {.how = "unlocked"};
	ZkLossOf	loss;
	int64		patience = 0;

	if (lock == NULL || lock->taken[mode].counts[ZK_SCOPE_SESSION] == 0)
	{
		zklock_lock_warn_not_held(name, lock, mode);
		return false;
	}
	zklock_session_poll();
	ending.live = zklock_session_reap(false);
	zklock_place_find_loss(&lock->place, ending.live);
	loss = loss_of(lock, ending.live);
	zklock_place_log_deletion(&lock->place);

	/* a WARNING would look for interrupts, too */
	HOLD_INTERRUPTS();
	if (!has_written)
		patience = patience_of(&lock->place);
	ending.is_awaited = patience > 0;
	zklock_lock_count_back(lock, mode, ZK_SCOPE_SESSION);
	if (has_written)
		zklock_lock_stay_to_end(lock);
	end_unless_taken(lock, &ending);
	if (mode == RECIPE_EXCLUSIVE)
		notice_exclusive(lock);
	zklock_lock_forget_if_empty(lock);
	RESUME_INTERRUPTS();
	/* whatever came in that time is told */
	if (patience > 0)
		(void) zklock_session_await_undone(protocol_now() + patience);
	if (zklock_loss_tell_gone(loss.token))
		return false;
	if (loss.kind == ZK_LOST_NOT)
		return true;
	zklock_loss_warn(&loss);
	return false;
}

void
zklock_release_session_scope(bool has_written)
{
	bool		had_locks = zklock_has_locks();
	List	   *losses;

	zklock_session_poll();
	losses = losses_of_session_scope();

	/* a WARNING would look for interrupts, too */
	HOLD_INTERRUPTS();
	if (had_locks)
		end_scopes(ENDS(ZK_SCOPE_SESSION), (Ending)
				   {
					   .how = "unlocked with all",.stays = has_written
				   });
	zklock_keep_drop_all("all locks are released",
						 had_locks && zklock_session_is_connected());
	RESUME_INTERRUPTS();
	if (had_locks)
		(void) zklock_session_await_undone(protocol_now() + RELEASE_MS);
	(void) zklock_loss_tell_gone(0);
	foreach_ptr(const ZkLossOf, loss, losses)
		zklock_loss_warn(loss);
}

/*
 * Each transaction of a backend that holds locks comes here, so the table is gone
 * through only where something ends or may have changed: whatever proves or loses
 * a lock is news of the session.
 */
void
zklock_end_transaction(void)
{
	static uint64 news_seen = 0;
	bool		had_locks = zklock_has_locks();
	unsigned	scopes = ENDS(ZK_SCOPE_TRANSACTION);

	if (Call.state == CALL_OVER)
	{
		scopes |= ENDS(ZK_SCOPE_CALL);
		Call.state = CALL_NONE;
	}
	zklock_keep_review();
	if (zklock_lock_has_unkept() &&
		(zklock_lock_has_ending() || zklock_session_live() == 0 ||
		 zklock_session_count_news() != news_seen))
		end_scopes(scopes, (Ending)
				   {
					   .how = "ended with its transaction or call"
				   });
	news_seen = zklock_session_count_news();
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
		bool		was_taken = zklock_lock_is_taken(lock);
		bool		is_same = was_taken;

		foreach_mode(mode)
			is_same &= !zklock_lock_end_sub(lock, mode, is_commit, mine,
											parent);
		if (was_taken && !zklock_lock_is_taken(lock))
		{
			Ending		ending = {.how = "rolled back"};

			zklock_session_attend();
			ending.live = zklock_session_live();
			end_unless_taken(lock, &ending);
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
	const char *bound = NULL;
	int			nleaving;

	if (nheld >= max_locks_setting)
		bound = "zklock.max_locks";
	else if (held_bytes + next > most)
		bound = "zklock.max_lock_bytes";
	nleaving = bound != NULL ? zklock_lock_count_leaving() : 0;
	if (nleaving > 0)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("too many ZooKeeper locks"),
				 errdetail("This session holds %d, which is all that \"%s\" allows. It has released %d of them in this transaction, which has written: they are held until it ends.",
						   nheld, bound, nleaving),
				 errhint("COMMIT more often, for example in a procedure, or increase \"%s\".",
						 bound)));
	if (nheld >= max_locks_setting)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("too many ZooKeeper locks"),
				 errdetail("Number of locks that this session holds: %d.", nheld),
				 errhint("Release some of them, or increase \"%s\".", bound)));
	if (bound != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("too many ZooKeeper locks"),
				 errdetail("This session holds %d, and the paths of their queue nodes would have %zu bytes in total. The limit is %zu bytes.",
						   nheld, held_bytes, most),
				 errhint("Release some of them, or use shorter names. You can increase \"%s\" to at most half of jute.maxbuffer of the ZooKeeper servers: zk_check() compares them.",
						 bound)));
	zklock_keep_drop_down_to(max_locks_setting - nheld - 1,
							 most - held_bytes - next);
}

/* There is one warning a statement. */
void
zklock_warn_of_snapshot(void)
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
 * Shared mode besides exclusive mode is granted at once, on the exclusive node,
 * which keeps others out until the last of both is released.  A lock that was
 * released, and stays to the end of the transaction, is taken back with its
 * token: nobody else has had it in between.
 */
static int64
take_again(const ZkOrder *order, Lock *lock, Lock **taken)
{
	bool		is_exclusive = lock->place.mode == RECIPE_EXCLUSIVE;
	bool		has_others = is_exclusive ?
		lock->place.permits != order->permits :
		order->mode == RECIPE_EXCLUSIVE;

	if (has_others && zklock_lock_is_leaving(lock))
		refuse_leaving(lock, _("It can be taken again only in the same mode, and with the same number of permits."));
	if (is_exclusive && has_others)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("lock \"%s\" is held here with another number of permits",
						lock->name),
				 errdetail("This call names permits => %d, and the lock was taken with permits => %d.",
						   order->permits, lock->place.permits),
				 errhint("Name the same number of permits as before, which zk_session_locks shows; a shared lock has 1.")));
	if (has_others)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot upgrade lock \"%s\" from shared to exclusive",
						lock->name),
				 errdetail("Two sessions that upgrade the same lock would wait for each other for ever."),
				 errhint("Release the shared lock first, or take the exclusive lock from the start.")));
	if (!contact_is_after(lock->place.proof, zklock_session_fresh_since()))
		confirm_own(order, lock);
	zklock_refuse_if_lost();
	return count_one(order, lock, taken);
}

/* Raise 55000: the lock is leaving.  why: a sentence for the DETAIL. */
static void
refuse_leaving(const Lock *lock, const char *why)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("lock \"%s\" is held by this session until the transaction ends",
					lock->name),
			 errdetail("It was released in this transaction, which has written. %s",
					   why),
			 errhint("COMMIT first.")));
}

/*
 * Ask whether the lock is still held, of which there is no fresh proof; what
 * comes of that is for zklock_refuse_if_lost().  Without an answer within the
 * bounds of the order, raise as for a lock that was not held before.
 */
static void
confirm_own(const ZkOrder *order, Lock *lock)
{
	if (zklock_confirm_by(lock, order->bounds.deadline))
		return;
	zklock_attend_locks();
	if (!zklock_has_lost())
		zklock_order_raise_silence(order);
}

/* The place is won: the lock is held.  Result: its token. */
static int64
grant_lock(const ZkOrder *order, Lock *lock, Lock **taken)
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
static ZkOutcome
win_place(const ZkOrder *order, Lock *lock)
{
	ZkOutcome	outcome;

	/* the node of the kept lock would be ahead of the new one */
	zklock_keep_drop(&lock->place, "its lock is wanted anew");
	lock->place.mode = order->mode;
	lock->place.permits = order->permits;
	zklock_session_open();
	outcome = zklock_contender_win_place(order, &lock->place);
	if (outcome == ZK_ANSWERED)
		lock->nbytes = ZK_PATH_BYTES(lock->place.node);
	return outcome;
}

/* ---------------------------------------------------------------------
 * Release
 * ---------------------------------------------------------------------
 */

/*
 * Say so if the last exclusive acquisition was released of a lock that is still
 * taken in shared mode.  There is no downgrade: it would put a second node in
 * the queue, ahead of those who wait, and nobody is known to need it.
 */
static void
notice_exclusive(const Lock *lock)
{
	if (lock->place.mode == RECIPE_EXCLUSIVE && zklock_lock_is_taken(lock) &&
		!zklock_board_is_taken(&lock->taken[RECIPE_EXCLUSIVE]))
		ereport(NOTICE,
				(errmsg("lock \"%s\" is still held in exclusive mode", lock->name),
				 errdetail("This session has also taken it in shared mode, and keeps all others out until that is released, too.")));
}

/* How the lock was lost, as far as is known. */
static ZkLossOf
loss_of(const Lock *lock, ZkSessionNumber live)
{
	return (ZkLossOf) {
		.kind = zklock_place_loss(&lock->place, live),
		.name = pstrdup(lock->name),
		.token = lock->place.token,
		.is_of_session = zklock_lock_is_of_session(lock)
	};
}

/*
 * Those of the locks of session scope: a list of ZkLossOf.  The log is told of
 * them, too.
 */
static List *
losses_of_session_scope(void)
{
	ZkSessionNumber live = zklock_session_live();
	List	   *places = NIL;
	List	   *losses = NIL;
	HASH_SEQ_STATUS scan;
	Lock	   *lock;

	if (!zklock_has_locks())
		return NIL;
	foreach_lock(scan, lock)
	{
		ZkLossOf   *loss;

		zklock_place_find_loss(&lock->place, live);
		if (!zklock_lock_is_of_session(lock) ||
			!zklock_place_is_lost(&lock->place, live))
			continue;
		loss = palloc(sizeof(*loss));
		*loss = loss_of(lock, live);
		losses = lappend(losses, loss);
		places = lappend(places, &lock->place);
	}

	/* which looks for interrupts */
	foreach_ptr(ZkPlace, place, places)
		zklock_place_log_deletion(place);
	return losses;
}

/*
 * The counts of these scopes end, and with them the places of locks that have
 * no other counts; with transaction scope also those that have stayed to the end
 * of the transaction.  Answers to the release of session scope are for the caller
 * to wait for, all together.  Never raises or waits.
 */
static void
end_scopes(unsigned scopes, Ending ending)
{
	HASH_SEQ_STATUS scan;
	Lock	   *lock;
	bool		can_answer;

	ending.live = zklock_session_reap(false);
	can_answer = zklock_session_can_answer();
	zklock_client_begin_many(zklock_session_client());
	foreach_lock(scan, lock)
	{
		bool		was_held = zklock_lock_is_held(lock);

		zklock_place_find_loss(&lock->place, ending.live);
		ending.is_awaited = can_answer &&
			(scopes & ENDS(ZK_SCOPE_SESSION)) != 0 &&
			zklock_lock_is_of_session(lock) &&
			held_ms(&lock->place) >= AWAITED_MS;
		if (ending.stays && zklock_lock_is_of_session(lock))
			zklock_lock_stay_to_end(lock);
		foreach_mode(mode)
			for (int scope = 0; scope < ZK_NSCOPES; scope++)
			if ((scopes & ENDS(scope)) != 0)
				zklock_lock_drop_counts(lock, mode, scope);
		if ((scopes & ENDS(ZK_SCOPE_TRANSACTION)) != 0)
			zklock_lock_stay_no_more(lock);
		if (was_held)
			end_unless_taken(lock, &ending);
		zklock_lock_forget_if_empty(lock);
	}
	zklock_client_end_many(zklock_session_client());
}

/* Keep the place or leave it.  Never raises or waits. */
static void
keep_or_leave_place(Lock *lock, const Ending *ending)
{
	ZkPlace    *place = &lock->place;

	zklock_place_find_loss(place, ending->live);
	if (zklock_place_is_lost(place, ending->live))
		zklock_lock_note_late_loss(lock);
	if (!zklock_keep_put(place, ending->live))
		zklock_place_leave(place, ending->live, ending->how,
						   ending->is_awaited);
}

/*
 * The last count may be gone: then the lock is released, at once or when the
 * transaction ends.  Never raises or waits.
 */
static void
end_unless_taken(Lock *lock, const Ending *ending)
{
	if (zklock_lock_is_taken(lock) || lock->stays_to_end)
		return;

	/* ahead of the delete, or loss_notice.c misses a node of what is held */
	zklock_board_remove_lock(&lock->line);
	zklock_lock_log_end(lock, ending->how);
	keep_or_leave_place(lock, ending);
	zklock_lock_note_unheld(lock);
	if (zklock_has_locks())
		return;
	zklock_session_note_use(false);
	zklock_session_interrupt_on_loss(false);
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
	end_scopes(ENDS(ZK_SCOPE_CALL), (Ending)
			   {
				   .how = "ended with its transaction or call"
			   });
	RESUME_INTERRUPTS();
}
