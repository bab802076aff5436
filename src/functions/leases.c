/*-------------------------------------------------------------------------
 *
 * leases.c
 *	  Functions of leases, also zk_leader(), and zk_release_requested() with a
 *	  token.
 *
 * What each promises stands with its COMMENT ON in sql/zklock--2.0.sql.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/timestamp.h"

#include "args.h"
#include "durable.h"
#include "given_name.h"
#include "hooks.h"
#include "lease_guard.h"
#include "lease_known.h"
#include "lease_take.h"
#include "lock.h"
#include "lock_proof.h"
#include "name_spelling.h"
#include "queue_list.h"
#include "release_request.h"
#include "row.h"
#include "session.h"
#include "stat.h"
#include "text.h"

PG_FUNCTION_INFO_V1(zk_try_lease);
PG_FUNCTION_INFO_V1(zk_try_lease_shared);
PG_FUNCTION_INFO_V1(zk_renew_lease);
PG_FUNCTION_INFO_V1(zk_release_lease);
PG_FUNCTION_INFO_V1(zk_require_lease);
PG_FUNCTION_INFO_V1(zk_lease_release_requested);
PG_FUNCTION_INFO_V1(zk_leader);

static Datum take_for_owner(FunctionCallInfo fcinfo, RecipeMode mode);
static ZkLeaseTaking read_taking(FunctionCallInfo fcinfo, RecipeMode mode);
static void refuse_to_release(const ZkLeasing *leasing);
static ZkLeasing read_token(FunctionCallInfo fcinfo);
static char *leader_shown(const ZkNodeData *who);
static char *read_line(FunctionCallInfo fcinfo, int number, const char *noun,
					   const char *hint);
static void warn_of_no_lease(const ZkLeasing *leasing);
static int64 read_term(FunctionCallInfo fcinfo);
static int64 read_span(FunctionCallInfo fcinfo, int number, const char *what,
					   int64 least, const char *hint);
static void log_lease(const ZkLeasing *leasing, const char *done);

Datum
zk_try_lease(PG_FUNCTION_ARGS)
{
	return take_for_owner(fcinfo, RECIPE_EXCLUSIVE);
}

Datum
zk_try_lease_shared(PG_FUNCTION_ARGS)
{
	return take_for_owner(fcinfo, RECIPE_SHARED);
}

static Datum
take_for_owner(FunctionCallInfo fcinfo, RecipeMode mode)
{
	ZkLeaseTaking taking = read_taking(fcinfo, mode);
	ZkLeasing  *leasing = &taking.leasing;

	zklock_args_refuse_restricted();
	zklock_attend_locks();
	zklock_refuse_own(&leasing->name,
					  _("A lease takes the lock anew, and would wait for this session for ever."));
	zklock_drop_kept(&leasing->name);	/* we do not stand in our own way */
	zklock_roundtrip_must_run(&taking.order.bounds, zklock_lease_take,
							  zklock_lease_end_taking, &taking);
	if (leasing->end != ZK_LEASE_HELD)
		PG_RETURN_NULL();
	(void) zklock_known_note(leasing);	/* no transaction rests on it yet */
	log_lease(leasing, "holds");
	if (taking.is_new)
		zklock_warn_of_snapshot();
	PG_RETURN_INT64(leasing->mine->token);
}

Datum
zk_renew_lease(PG_FUNCTION_ARGS)
{
	ZkBounds	bounds = zklock_bounds_of_question();
	ZkLeasing	leasing = read_token(fcinfo);

	zklock_args_refuse_restricted();
	leasing.term_ms = read_term(fcinfo);
	zklock_roundtrip_must_run(&bounds, zklock_lease_renew, NULL, &leasing);
	if (leasing.end != ZK_LEASE_HELD)
	{
		warn_of_no_lease(&leasing);
		PG_RETURN_BOOL(false);
	}
	(void) zklock_known_note(&leasing); /* no transaction rests on it yet */
	PG_RETURN_BOOL(true);
}

Datum
zk_release_lease(PG_FUNCTION_ARGS)
{
	ZkLeaseReleasing releasing = {
		.leasing = read_token(fcinfo)
	};
	ZkLeasing  *leasing = &releasing.leasing;

	zklock_args_refuse_restricted();
	releasing.delay_ms = read_span(fcinfo, 2, "delay", 0, NULL);
	refuse_to_release(leasing);
	zklock_durable_flush_commits();
	zklock_known_distrust(leasing->name.path, leasing->token);
	zklock_roundtrip_must_run(NULL, zklock_lease_release, NULL, &releasing);
	if (leasing->end != ZK_LEASE_RELEASED)
	{
		warn_of_no_lease(leasing);
		PG_RETURN_BOOL(false);
	}
	zklock_stat_count(ZK_STAT_LEASE_END);
	log_lease(leasing, "gives up");
	PG_RETURN_BOOL(true);
}

Datum
zk_require_lease(PG_FUNCTION_ARGS)
{
	ZkBounds	bounds = zklock_bounds_of_question();
	ZkLeasing	leasing = read_token(fcinfo);

	zklock_args_refuse_restricted();
	zklock_roundtrip_must_run(&bounds, zklock_lease_renew, NULL, &leasing);
	if (leasing.end != ZK_LEASE_HELD)
		zklock_lease_raise_lost(leasing.name.text, leasing.token);
	zklock_hooks_follow();
	zklock_lease_use(zklock_known_note(&leasing));
	PG_RETURN_VOID();
}

Datum
zk_lease_release_requested(PG_FUNCTION_ARGS)
{
	static int64 told = 0;		/* the last request that a user was told of */
	ZkBounds	bounds = zklock_bounds_of_question();
	ZkLeasing	leasing = read_token(fcinfo);

	zklock_args_refuse_restricted();
	zklock_roundtrip_must_run(&bounds, zklock_lease_locate, NULL, &leasing);
	if (leasing.end != ZK_LEASE_HELD)
	{
		warn_of_no_lease(&leasing);
		PG_RETURN_BOOL(false);
	}
	PG_RETURN_BOOL(zklock_release_request_read(leasing.name.text,
											   leasing.name.path,
											   leasing.name.root_length,
											   leasing.mine->node, &told));
}

Datum
zk_leader(PG_FUNCTION_ARGS)
{
	ZkName		name = zklock_given_name(fcinfo, ZK_GIVEN_TO_PROVE);
	const ZkQueueEntry *first = zklock_read_first(&name);
	ZkRow		row = {0};

	if (first == NULL)
		PG_RETURN_NULL();
	zklock_row_add_text(&row, leader_shown(&first->who));
	zklock_row_add_text(&row, first->who.text);
	zklock_row_add(&row, first->token != 0, TimestampTzGetDatum(first->since));
	zklock_row_add(&row, first->token != 0, Int64GetDatum(first->token));
	zklock_row_add(&row, first->expires != 0,
				   TimestampTzGetDatum(first->expires));
	zklock_row_add(&row, first->expires != 0,
				   BoolGetDatum(first->expires < GetCurrentTimestamp()));
	return zklock_row_datum(fcinfo, &row);
}

/* ---------------------------------------------------------------------
 * Helpers
 * ---------------------------------------------------------------------
 */

/* Nothing was renewed, or given up. */
static void
warn_of_no_lease(const ZkLeasing *leasing)
{
	ereport(WARNING,
			(errcode(ERRCODE_WARNING),
			 errmsg("there is no lease of lock \"%s\" with that token",
					leasing->name.text),
			 errdetail("The lease was removed after its term, given up or evicted, or there never was one.")));
}

/* Others would see the lock free, and not what was written under it. */
static void
refuse_to_release(const ZkLeasing *leasing)
{
	if (!zklock_lease_is_required(leasing->name.path, leasing->token) ||
		!zklock_hooks_has_written())
		return;
	ereport(ERROR,
			(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
			 errmsg("cannot release a lease in a transaction that requires it and has written"),
			 errdetail("The next holder of lock \"%s\" would not see what this transaction has written.",
					   leasing->name.text),
			 errhint("End the transaction first.")));
}

/* The arguments of a lease: the owner, the lock, and the times. */
static ZkLeaseTaking
read_taking(FunctionCallInfo fcinfo, RecipeMode mode)
{
	ZkLeaseTaking taking = {0};
	ZkLeasing  *leasing = &taking.leasing;
	int			permits = 1;
	int64		timeout_ms;
	char	   *owner;

	leasing->name = zklock_given_name(fcinfo, ZK_GIVEN_TO_USE);
	owner = read_line(fcinfo, 1, "owner",
					  "Name the owner of the lease: the same text in each call, and a text that no other owner uses.");
	leasing->term_ms = read_term(fcinfo);
	timeout_ms = zklock_args_timeout(fcinfo, 3, true);
	if (!PG_ARGISNULL(4))
		leasing->note = read_line(fcinfo, 4, "data",
								  "Write one line of what other sessions need to know about the owner.");
	if (PG_NARGS() > 5)
		permits = zklock_args_permits(fcinfo, 5);
	taking.order = zklock_order_lease(&leasing->name, owner, mode, permits,
									  timeout_ms);
	return taking;
}

/* The lease of that lock which has that token. */
static ZkLeasing
read_token(FunctionCallInfo fcinfo)
{
	ZkLeasing	leasing = {.name = zklock_given_name(fcinfo, ZK_GIVEN_TO_USE)};

	leasing.token = zklock_args_token(fcinfo, 1);
	return leasing;
}

/* The owner of a lease; of another holder, who it is, if the user may know. */
static char *
leader_shown(const ZkNodeData *who)
{
	if (who->owner != NULL)
		return zklock_name_shown(who->owner);
	if (zklock_nodedata_may_be_shown())
		return zklock_nodedata_describe(who);
	return NULL;
}

/* One line of text, in UTF-8. */
static char *
read_line(FunctionCallInfo fcinfo, int number, const char *noun,
		  const char *hint)
{
	char	   *text =
		zklock_text_to_utf8(zklock_args_text(fcinfo, number, noun));

	zklock_nodedata_check_line(text, noun, "a lease", hint);
	return text;
}

static int64
read_term(FunctionCallInfo fcinfo)
{
	return read_span(fcinfo, 2, "term", ZK_TERM_MIN,
					 "Renew a lease at least three times within its term.");
}

/*
 * Milliseconds of an interval that is neither shorter than least nor longer
 * than any term.  hint: what to do instead; NULL: that is clear.
 */
static int64
read_span(FunctionCallInfo fcinfo, int number, const char *what, int64 least,
		  const char *hint)
{
	int64		ms;

	zklock_args_require(fcinfo, number, what, NULL);
	ms = zklock_args_interval(fcinfo, number, what);
	if (ms < least || ms > ZK_TERM_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s is out of range", what),
				 errdetail("The %s must be between " INT64_FORMAT " s and one day.",
						   what, least / 1000),
				 hint != NULL ? errhint("%s", hint) : 0));
	return ms;
}

/* For the log, if each lock is to be there. */
static void
log_lease(const ZkLeasing *leasing, const char *done)
{
	ereport(zklock_nodedata_logs(true) ? LOG_SERVER_ONLY : DEBUG1,
			(errmsg("%s %s a lease of ZooKeeper lock \"%s\"",
					zklock_nodedata_caller(), done,
					zklock_text_quotable_own(leasing->name.text)),
			 errdetail_log("Owner \"%s\", fencing token " INT64_FORMAT ".",
						   zklock_text_quotable(leasing->mine->who.owner),
						   leasing->mine->token)));
}
