/*-------------------------------------------------------------------------
 *
 * lock_set.c
 *	  Several locks as one call, all or nothing: zk_lock(names) and its kin.
 *
 * The one rule: every call takes its locks in the same order, that of the
 * bytes of their znodes' paths, whatever order they were asked in.  Of two
 * calls that want the same locks neither can then hold one that the other
 * waits for and wait for one that the other holds.  For the same reason
 * nobody may wait for one lock while standing in the queue of a later one.  A
 * name comes before the names below it, so that ancestors come first.
 *
 * What a call has taken is given back when it fails, in either scope, so that
 * it leaves what it found.  All memory is the caller's context.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"

#include "args.h"
#include "hooks.h"
#include "lock.h"
#include "name.h"
#include "session.h"

/* One of the locks of a call. */
typedef struct Wanted
{
	ZkLockOrder order;
	int			argument;		/* its place among the arguments */
	char	   *path;			/* of its znode; for the order only: the
								 * chroot in it may change before the lock is
								 * taken */
	bool		needs_place;	/* in a queue; false too if an order before
								 * this one sees to that; valid once checked */
	struct Lock *taken;			/* NULL: this call does not hold it (yet) */
	int64		token;			/* valid once taken */
} Wanted;

/*
 * How many locks are asked for in one flush; it bounds the requests under
 * way, which are several for each lock.
 */
#define FLUSH_LOCKS 100

/* A call. */
typedef struct Call
{
	int			nwanted;
	Wanted	   *wanted;			/* sorted before anything is taken */
} Call;

PG_FUNCTION_INFO_V1(zk_lock_names);
PG_FUNCTION_INFO_V1(zk_xact_lock_names);
PG_FUNCTION_INFO_V1(zk_try_lock_names);
PG_FUNCTION_INFO_V1(zk_try_xact_lock_names);
PG_FUNCTION_INFO_V1(zk_unlock_names);

static Datum lock_names(FunctionCallInfo fcinfo, ZkScope scope);
static Datum try_names(FunctionCallInfo fcinfo, ZkScope scope);
static Call read_call(FunctionCallInfo fcinfo, ZkScope scope, bool is_try);
static Call read_names(FunctionCallInfo fcinfo, int modes_argument,
					   const ZkLockOrder *terms);
static Datum *read_array(FunctionCallInfo fcinfo, int argument,
						 const char *what, int *nelements);
static RecipeMode read_mode(Datum word);
static void sort_call(Call *call);
static int	compare_wanted(const void *a, const void *b);
static bool take_all(Call *call);
static void check_call(Call *call);
static bool take_in_order(Call *call);
static bool take_at_once(Call *call, int first, bool *is_hopeless);
static void note_busy(Call *call, int first);
static void give_back(Call *call);
pg_noreturn static void give_back_and_rethrow(Call *call);
static bool release_all(Call *call);

/* ---------------------------------------------------------------------
 * SQL functions
 * ---------------------------------------------------------------------
 */

Datum
zk_lock_names(PG_FUNCTION_ARGS)
{
	return lock_names(fcinfo, ZK_SCOPE_SESSION);
}

Datum
zk_xact_lock_names(PG_FUNCTION_ARGS)
{
	return lock_names(fcinfo, ZK_SCOPE_TRANSACTION);
}

Datum
zk_try_lock_names(PG_FUNCTION_ARGS)
{
	return try_names(fcinfo, ZK_SCOPE_SESSION);
}

Datum
zk_try_xact_lock_names(PG_FUNCTION_ARGS)
{
	return try_names(fcinfo, ZK_SCOPE_TRANSACTION);
}

Datum
zk_unlock_names(PG_FUNCTION_ARGS)
{
	const ZkLockOrder terms = {0};
	Call		call = read_names(fcinfo, 1, &terms);

	PG_RETURN_BOOL(release_all(&call));
}

/* ---------------------------------------------------------------------
 * Arguments and results
 * ---------------------------------------------------------------------
 */

/* The tokens stand where the names did. */
static Datum
lock_names(FunctionCallInfo fcinfo, ZkScope scope)
{
	Call		call = read_call(fcinfo, scope, false);
	Datum	   *tokens = palloc(call.nwanted * sizeof(*tokens));

	take_all(&call);
	for (int i = 0; i < call.nwanted; i++)
		tokens[call.wanted[i].argument] = Int64GetDatum(call.wanted[i].token);
	PG_RETURN_ARRAYTYPE_P(construct_array(tokens, call.nwanted, INT8OID,
										  sizeof(int64), FLOAT8PASSBYVAL,
										  TYPALIGN_DOUBLE));
}

static Datum
try_names(FunctionCallInfo fcinfo, ZkScope scope)
{
	Call		call = read_call(fcinfo, scope, true);

	PG_RETURN_BOOL(take_all(&call));
}

/* Read (names, timeout, modes); the bounds of the call count from here. */
static Call
read_call(FunctionCallInfo fcinfo, ZkScope scope, bool is_try)
{
	ZkLockOrder terms = {
		.scope = scope,
		.permits = 1,
		.is_try = is_try,
		.wants_list = zklock_hooks_asks_quorum(),
		.asked_at = zklock_client_now(),
		.is_checked = true
	};

	terms.has_timeout = zklock_args_timeout(fcinfo, 1, is_try,
											&terms.timeout_ms);
	return read_names(fcinfo, 2, &terms);
}

/*
 * Read the names, and the modes, which may be left out; terms is what the
 * orders have in common.
 */
static Call
read_names(FunctionCallInfo fcinfo, int modes_argument,
		   const ZkLockOrder *terms)
{
	Call		call;
	Datum	   *names = read_array(fcinfo, 0, "lock name", &call.nwanted);
	Datum	   *modes = NULL;
	int			nmodes;

	if (!PG_ARGISNULL(modes_argument))
	{
		modes = read_array(fcinfo, modes_argument, "lock mode", &nmodes);
		if (nmodes != call.nwanted)
			ereport(ERROR,
					(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
					 errmsg("there must be as many lock modes as lock names"),
					 errdetail("Number of names: %d, of modes: %d.",
							   call.nwanted, nmodes)));
	}
	call.wanted = palloc0(call.nwanted * sizeof(*call.wanted));
	for (int i = 0; i < call.nwanted; i++)
	{
		call.wanted[i].order = *terms;
		call.wanted[i].order.name = TextDatumGetCString(names[i]);
		call.wanted[i].order.mode = modes != NULL ? read_mode(modes[i]) :
			RECIPE_EXCLUSIVE;
		call.wanted[i].argument = i;
	}
	sort_call(&call);
	return call;
}

/* The elements of an array without NULLs; what says what they are. */
static Datum *
read_array(FunctionCallInfo fcinfo, int argument, const char *what,
		   int *nelements)
{
	ArrayType  *array;
	Datum	   *elements;
	bool	   *nulls;

	if (PG_ARGISNULL(argument))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("array of %ss must not be null", what)));
	array = PG_GETARG_ARRAYTYPE_P(argument);
	if (ARR_NDIM(array) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("array of %ss must be one-dimensional", what)));
	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT,
					  &elements, &nulls, nelements);
	for (int i = 0; i < *nelements; i++)
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("%s must not be null", what)));
	return elements;
}

/* In the words of zk_locks. */
static RecipeMode
read_mode(Datum word)
{
	char	   *mode = TextDatumGetCString(word);

	if (strcmp(mode, "exclusive") == 0)
		return RECIPE_EXCLUSIVE;
	if (strcmp(mode, "shared") == 0)
		return RECIPE_SHARED;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid lock mode \"%s\"", mode),
			 errdetail("A mode is \"exclusive\" or \"shared\".")));
}

/* Put what is wanted in order.  Raises 42602 for a bad name. */
static void
sort_call(Call *call)
{
	for (int i = 0; i < call->nwanted; i++)
	{
		char	   *path = zklock_name_path(call->wanted[i].order.name, NULL);

		call->wanted[i].path = pstrdup(path);	/* has room to spare */
		pfree(path);
	}
	qsort(call->wanted, call->nwanted, sizeof(*call->wanted), compare_wanted);
}

/*
 * Of the two modes of a lock exclusive comes first: shared is granted to its
 * holder, but not the other way round.
 */
static int
compare_wanted(const void *a, const void *b)
{
	const Wanted *left = a;
	const Wanted *right = b;
	int			by_path = strcmp(left->path, right->path);

	if (by_path != 0)
		return by_path;
	if (left->order.mode != right->order.mode)
		return left->order.mode == RECIPE_EXCLUSIVE ? -1 : 1;
	return left->argument - right->argument;
}

/* ---------------------------------------------------------------------
 * All or nothing
 * ---------------------------------------------------------------------
 */

/*
 * Take all locks of the call: true.  false if a try found one of them busy.
 * Raises what zklock_acquire() does.  On failure nothing is held that was not
 * held before.
 */
static bool
take_all(Call *call)
{
	volatile bool all_taken = false;

	zklock_hooks_follow();
	check_call(call);
	PG_TRY();
	{
		all_taken = take_in_order(call);
	}
	PG_CATCH();
	{
		give_back_and_rethrow(call);
	}
	PG_END_TRY();
	if (!all_taken)
		give_back(call);
	return all_taken;
}

/* Refuse at once what would be refused after waiting for others. */
static void
check_call(Call *call)
{
	int			nmore = 0;

	for (int i = 0; i < call->nwanted; i++)
	{
		Wanted	   *wanted = &call->wanted[i];
		bool		is_again = i > 0 &&
			strcmp(wanted->path, wanted[-1].path) == 0;

		wanted->order.counted = &wanted->taken;
		wanted->needs_place = !is_again && zklock_needs_place(&wanted->order);
		nmore += wanted->needs_place ? 1 : 0;
	}
	if (nmore > 0)
		zklock_check_room(nmore);
}

/*
 * false if one is busy; perhaps some are taken then.  As many as possible are
 * taken together; from the first on that is not granted at once it goes one
 * by one.  The first lock of a session goes alone, too: it has to wait for
 * the connection, which is told of in other errors.
 */
static bool
take_in_order(Call *call)
{
	bool		at_once = true;
	bool		is_hopeless = false;

	for (int i = 0; i < call->nwanted; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (call->wanted[i].taken != NULL)
			continue;
		if (at_once && call->wanted[i].needs_place &&
			zklock_session_was_connected())
			at_once = take_at_once(call, i, &is_hopeless);
		if (is_hopeless)
			return false;
		if (call->wanted[i].taken != NULL)
			continue;
		call->wanted[i].token = zklock_acquire(&call->wanted[i].order);
		if (call->wanted[i].token == 0)
			return false;
	}
	return true;
}

/*
 * Take the next locks from that one on in one flush, those which are held
 * already left out.  Result: whether all of them were granted.  *is_hopeless:
 * a try that must not wait need not go on.
 */
static bool
take_at_once(Call *call, int first, bool *is_hopeless)
{
	const ZkLockOrder *orders[FLUSH_LOCKS];
	int			places[FLUSH_LOCKS];
	int64		tokens[FLUSH_LOCKS];
	int			norders = 0;
	int			ntaken;
	bool		is_busy;

	for (int i = first; i < call->nwanted && norders < FLUSH_LOCKS; i++)
	{
		if (!call->wanted[i].needs_place)
			continue;
		orders[norders] = &call->wanted[i].order;
		places[norders++] = i;
	}
	if (norders == 1)
		return false;
	ntaken = zklock_acquire_at_once(orders, norders, tokens, &is_busy);
	Assert(ntaken <= norders);
	for (int i = 0; i < ntaken; i++)
		call->wanted[places[i]].token = tokens[i];
	if (is_busy)
		note_busy(call, first);
	*is_hopeless = is_busy && orders[0]->is_try &&
		orders[0]->timeout_ms == 0;
	return ntaken == norders;
}

/*
 * The ensemble has said that one is busy: that is an answer to the whole
 * call.
 */
static void
note_busy(Call *call, int first)
{
	for (int i = first; i < call->nwanted; i++)
		call->wanted[i].order.is_known_busy = true;
}

/*
 * Give back what was taken, the last first: a shared hold then goes before
 * the exclusive one on whose node it stands.  A warning on the way must not
 * end it.
 */
static void
give_back(Call *call)
{
	HOLD_INTERRUPTS();
	for (int i = call->nwanted - 1; i >= 0; i--)
	{
		Wanted	   *wanted = &call->wanted[i];

		if (wanted->taken != NULL)
			zklock_give_back(wanted->taken, wanted->order.mode,
							 wanted->order.scope);
		wanted->taken = NULL;
	}
	RESUME_INTERRUPTS();
}

/*
 * The call has failed.  If that is because one of its locks was lost
 * meanwhile there is nothing left to tell so after they are given back (see
 * hooks.c), and nothing to release, as the hint would have it.  So the loss
 * is described before, and raised here.
 */
static void
give_back_and_rethrow(Call *call)
{
	char		message[ZK_LOSS_TEXT_SIZE];
	char		detail[ZK_LOSS_TEXT_SIZE];
	char		others_message[ZK_LOSS_TEXT_SIZE];
	char		others_detail[ZK_LOSS_TEXT_SIZE];
	const char *hint;
	bool		is_recent;
	int			code = geterrcode();
	bool		is_by_loss;

	HOLD_INTERRUPTS();
	is_by_loss = zklock_describe_loss(message, detail, &hint, &is_recent) &&
		(code == ERRCODE_T_R_SERIALIZATION_FAILURE ||
		 (code == ERRCODE_QUERY_CANCELED && is_recent));
	give_back(call);
	is_by_loss &= !zklock_describe_loss(others_message, others_detail, &hint,
										&is_recent);
	RESUME_INTERRUPTS();
	if (is_by_loss)
	{
		FlushErrorState();
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg_internal("%s", message),
				 errdetail_internal("%s", detail),
				 errhint("Run the transaction again.")));
	}
	PG_RE_THROW();
}

/*
 * Let go of one session-scope hold of each, the last first.  false, with a
 * WARNING for each that is not held or was lost, unless all were good.
 */
static bool
release_all(Call *call)
{
	bool		all_good = true;
	bool		has_written = zklock_hooks_has_written();

	for (int i = call->nwanted - 1; i >= 0; i--)
		all_good &= zklock_release(call->wanted[i].order.name,
								   call->wanted[i].order.mode, has_written);
	return all_good;
}
