/*-------------------------------------------------------------------------
 *
 * lock_set.c
 *	  Takes or releases several locks in one call, all or nothing:
 *	  zk_lock_set(), zk_lock_path() and their kin.
 *
 * The one rule: every call takes its locks in the order of the bytes of their
 * znodes' paths, whatever order they were named in.  So two calls that want
 * the same locks do not deadlock.  For the same reason a call stands in one
 * queue at a time.  A name comes before the names below it.
 *
 * A call that fails gives back what it has taken, in either scope.  All memory
 * is the caller's context.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"

#include "args.h"
#include "given_name.h"
#include "hooks.h"
#include "lock.h"
#include "lock_proof.h"
#include "row.h"
#include "session.h"
#include "take_rate.h"

/*
 * Most names of a call: as many as zklock.max_locks may be, in both modes.  The
 * locks of more could not be held, and to look at them takes time and memory.
 */
#define NAMES_MAX 20000

/* One of the locks of a call. */
typedef struct Wanted
{
	ZkName		name;
	RecipeMode	mode;
	int			argument;		/* its place among the arguments */
	struct Lock *taken;			/* NULL: this call does not hold it (yet) */
	int64		token;			/* valid once taken */
} Wanted;

/* A call. */
typedef struct Call
{
	int			nwanted;
	Wanted	   *wanted;			/* sorted before anything is taken */
} Call;

/* Where the modes of a call stand: of one that takes, and of a release. */
#define MODES_ARGUMENT 2
#define MODES_OF_RELEASE 1

PG_FUNCTION_INFO_V1(zk_unlock_set);
PG_FUNCTION_INFO_V1(zk_unlock_path);

static Datum lock_names(FunctionCallInfo fcinfo, ZkScope scope, bool is_try);
static Datum lock_path(FunctionCallInfo fcinfo, ZkScope scope, bool is_try);
static ZkOrder begin_set(FunctionCallInfo fcinfo, ZkScope scope, bool is_try);
static bool release_all(const Call *call);
static Call read_names(FunctionCallInfo fcinfo, int modes_argument,
					   ZkGivenFor what_for);
static Call read_with_ancestors(FunctionCallInfo fcinfo, int mode_argument,
								ZkGivenFor what_for);
static Datum *read_array(FunctionCallInfo fcinfo, int argument,
						 const char *what, int *nelements);
static RecipeMode read_mode(Datum argument);
static int	compare_wanted(const void *a, const void *b);
static int	count_new(const Call *call);
static bool take_all(Call *call, const ZkOrder *set);
static void give_back(Call *call, ZkScope scope);
pg_noreturn static void give_back_and_rethrow(Call *call, ZkScope scope);

/* ---------------------------------------------------------------------
 * SQL functions
 * ---------------------------------------------------------------------
 */

/* The functions that take locks differ in their scope: is it a try? */
#define LOCK_FUNCTION(function, take, scope, is_try) \
PG_FUNCTION_INFO_V1(function); \
Datum \
function(PG_FUNCTION_ARGS) \
{ \
	return take(fcinfo, scope, is_try); \
}

LOCK_FUNCTION(zk_lock_set, lock_names, ZK_SCOPE_SESSION, false)
LOCK_FUNCTION(zk_xact_lock_set, lock_names, ZK_SCOPE_TRANSACTION, false)
LOCK_FUNCTION(zk_try_lock_set, lock_names, ZK_SCOPE_SESSION, true)
LOCK_FUNCTION(zk_try_xact_lock_set, lock_names, ZK_SCOPE_TRANSACTION, true)
LOCK_FUNCTION(zk_lock_path, lock_path, ZK_SCOPE_SESSION, false)
LOCK_FUNCTION(zk_xact_lock_path, lock_path, ZK_SCOPE_TRANSACTION, false)
LOCK_FUNCTION(zk_try_lock_path, lock_path, ZK_SCOPE_SESSION, true)
LOCK_FUNCTION(zk_try_xact_lock_path, lock_path, ZK_SCOPE_TRANSACTION, true)

Datum
zk_unlock_set(PG_FUNCTION_ARGS)
{
	Call		call = read_names(fcinfo, MODES_OF_RELEASE, ZK_GIVEN_TO_PROVE);

	PG_RETURN_BOOL(release_all(&call));
}

Datum
zk_unlock_path(PG_FUNCTION_ARGS)
{
	Call		call = read_with_ancestors(fcinfo, MODES_OF_RELEASE,
										   ZK_GIVEN_TO_PROVE);

	PG_RETURN_BOOL(release_all(&call));
}

/* ---------------------------------------------------------------------
 * Arguments and results
 * ---------------------------------------------------------------------
 */

/*
 * Take the locks of (names, timeout, modes); the bounds count from here.  Of a
 * try, whether all are taken; else the tokens, where the names stood.
 */
static Datum
lock_names(FunctionCallInfo fcinfo, ZkScope scope, bool is_try)
{
	ZkOrder		set = begin_set(fcinfo, scope, is_try);
	Call		call = read_names(fcinfo, MODES_ARGUMENT, ZK_GIVEN_TO_USE);
	Datum	   *tokens = palloc(call.nwanted * sizeof(*tokens));
	bool		all_taken = take_all(&call, &set);

	if (is_try)
		PG_RETURN_BOOL(all_taken);
	for (int i = 0; i < call.nwanted; i++)
		tokens[call.wanted[i].argument] = Int64GetDatum(call.wanted[i].token);
	PG_RETURN_ARRAYTYPE_P(construct_array(tokens, call.nwanted, INT8OID,
										  sizeof(int64), FLOAT8PASSBYVAL,
										  TYPALIGN_DOUBLE));
}

/* Likewise the locks of a path (name, timeout, mode); its own token. */
static Datum
lock_path(FunctionCallInfo fcinfo, ZkScope scope, bool is_try)
{
	ZkOrder		set = begin_set(fcinfo, scope, is_try);
	Call		call = read_with_ancestors(fcinfo, MODES_ARGUMENT,
										   ZK_GIVEN_TO_USE);
	bool		all_taken = take_all(&call, &set);

	if (is_try)
		PG_RETURN_BOOL(all_taken);
	PG_RETURN_INT64(call.wanted[call.nwanted - 1].token);
}

/* What the locks of a call have in common; argument 1 is its timeout. */
static ZkOrder
begin_set(FunctionCallInfo fcinfo, ZkScope scope, bool is_try)
{
	ZkOrder		set = zklock_order_acquisition(NULL, scope, is_try,
											   zklock_args_timeout(fcinfo, 1, is_try));

	set.wants_list = zklock_hooks_asks_quorum();
	return set;
}

/*
 * Let go of one acquisition of session scope of each, the last first.  false,
 * with a WARNING for each that is not held or was lost, unless all were good.
 */
static bool
release_all(const Call *call)
{
	bool		all_good = true;
	bool		has_written = zklock_hooks_has_written();

	zklock_args_refuse_restricted();
	for (int i = call->nwanted - 1; i >= 0; i--)
		all_good &= zklock_lock_release(&call->wanted[i].name,
										call->wanted[i].mode, has_written);
	return all_good;
}

/*
 * Read the names, and the modes, which may be left out, and sort them.  Raises
 * as zklock_given_text() for each name.
 */
static Call
read_names(FunctionCallInfo fcinfo, int modes_argument, ZkGivenFor what_for)
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
		Wanted	   *wanted = &call.wanted[i];

		CHECK_FOR_INTERRUPTS();
		wanted->name = zklock_given_text(TextDatumGetCString(names[i]),
										 what_for);
		wanted->mode = RECIPE_EXCLUSIVE;
		if (modes != NULL)
			wanted->mode = read_mode(modes[i]);
		wanted->argument = i;
	}
	qsort(call.wanted, call.nwanted, sizeof(*call.wanted), compare_wanted);
	return call;
}

/*
 * Read a name and its mode: the lock of that name, behind those of its
 * ancestors in shared mode.  zklock.names is asked for the name alone.
 */
static Call
read_with_ancestors(FunctionCallInfo fcinfo, int mode_argument,
					ZkGivenFor what_for)
{
	ZkName		name = zklock_given_name(fcinfo, what_for);
	Call		call = {.nwanted = 1};
	Wanted	   *wanted;

	zklock_args_require(fcinfo, mode_argument, "lock mode", NULL);
	for (const char *c = name.text; (c = strchr(c, '/')) != NULL; c++)
		call.nwanted++;
	wanted = palloc0(call.nwanted * sizeof(*wanted));
	call.wanted = wanted;
	for (const char *c = name.text; (c = strchr(c, '/')) != NULL; c++)
	{
		wanted->name = zklock_name_make(pnstrdup(name.text, c - name.text));
		wanted->mode = RECIPE_SHARED;
		wanted++;
	}
	wanted->name = name;
	wanted->mode = read_mode(PG_GETARG_DATUM(mode_argument));
	return call;
}

/* The elements of an array without NULLs; errors call one of them what. */
static Datum *
read_array(FunctionCallInfo fcinfo, int argument, const char *what,
		   int *nelements)
{
	ArrayType  *array;
	Datum	   *elements;

	if (PG_ARGISNULL(argument))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("array of %ss must not be null", what)));
	array = PG_GETARG_ARRAYTYPE_P(argument);
	if (ARR_NDIM(array) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("array of %ss must be one-dimensional", what)));
	if (ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array)) > NAMES_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("too many %ss in one call", what),
				 errdetail("There are %d, and one call may have %d.",
						   ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array)),
						   NAMES_MAX)));
	if (array_contains_nulls(array))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be null", what)));
	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT,
					  &elements, NULL, nelements);
	return elements;
}

/* In the words of zk_session_locks. */
static RecipeMode
read_mode(Datum argument)
{
	char	   *word = TextDatumGetCString(argument);

	for (RecipeMode mode = RECIPE_EXCLUSIVE; mode <= RECIPE_SHARED; mode++)
		if (strcmp(word, zklock_row_mode_name(mode)) == 0)
			return mode;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid lock mode \"%.*s\"",
					pg_mbcliplen(word, strlen(word), RECIPE_NAME_MAX), word),
			 errdetail("A mode is \"exclusive\" or \"shared\".")));
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
	int			by_path = strcmp(left->name.path, right->name.path);

	if (by_path != 0)
		return by_path;
	if (left->mode != right->mode)
		return left->mode == RECIPE_EXCLUSIVE ? -1 : 1;
	return left->argument - right->argument;
}

/* ---------------------------------------------------------------------
 * All or nothing
 * ---------------------------------------------------------------------
 */

/* How many locks the call takes that this session does not have at hand. */
static int
count_new(const Call *call)
{
	int			count = 0;

	for (int i = 0; i < call->nwanted; i++)
	{
		const Wanted *wanted = &call->wanted[i];

		/* of one lock in two modes both stand on one queue node */
		if (i > 0 && strcmp(wanted->name.path, call->wanted[i - 1].name.path) == 0)
			continue;
		if (!zklock_has_at_hand(&wanted->name))
			count++;
	}
	return count;
}

/*
 * Take all locks of the call, by orders of that set: true.  false if a try
 * found one of them busy. Raises what zklock_lock_acquire() does.  On failure
 * nothing is held that was not held before.
 */
static bool
take_all(Call *call, const ZkOrder *set)
{
	volatile bool all_taken = true;

	zklock_args_refuse_restricted();
	zklock_attend_locks();
	zklock_take_rate_count(count_new(call));
	zklock_hooks_follow();
	PG_TRY();
	{
		for (int i = 0; i < call->nwanted && all_taken; i++)
		{
			Wanted	   *wanted = &call->wanted[i];
			ZkOrder		order = zklock_order_one_of(set, &wanted->name,
													wanted->mode);

			CHECK_FOR_INTERRUPTS();
			wanted->token = zklock_lock_acquire(&order, &wanted->taken);
			all_taken = wanted->token != 0;
		}
	}
	PG_CATCH();
	{
		give_back_and_rethrow(call, set->scope);
	}
	PG_END_TRY();
	if (!all_taken)
		give_back(call, set->scope);
	return all_taken;
}

/*
 * Give back what was taken, the last first: a shared acquisition then goes
 * before the exclusive one on whose node it stands.  A warning on the way must
 * not end it.
 */
static void
give_back(Call *call, ZkScope scope)
{
	HOLD_INTERRUPTS();
	for (int i = call->nwanted - 1; i >= 0; i--)
	{
		Wanted	   *wanted = &call->wanted[i];

		if (wanted->taken != NULL)
			zklock_give_back(wanted->taken, wanted->mode, scope);
		wanted->taken = NULL;
	}
	RESUME_INTERRUPTS();
}

/*
 * The call has failed.  If the reason is that one of its locks was lost,
 * nothing shows that any more once the locks are given back (see hooks.c), and
 * the hint to release the lock would be wrong.  So the loss is described
 * before, and raised here; but not for a timeout that came ahead of the
 * interrupt of the loss, which is still to come then.
 */
static void
give_back_and_rethrow(Call *call, ZkScope scope)
{
	ZkLoss		loss;
	ZkLoss		others;
	int			code = geterrcode();
	bool		is_by_loss;

	HOLD_INTERRUPTS();
	zklock_attend_locks();
	is_by_loss = zklock_describe_loss(&loss) &&
		(code == ERRCODE_T_R_SERIALIZATION_FAILURE ||
		 (code == ERRCODE_QUERY_CANCELED && zklock_session_interrupt() == 0 &&
		  zklock_session_has_interrupted()));
	give_back(call, scope);
	is_by_loss &= !zklock_describe_loss(&others);
	RESUME_INTERRUPTS();
	if (is_by_loss)
	{
		FlushErrorState();
		loss.hint = _("Run the transaction again.");
		zklock_loss_raise(&loss);
	}
	PG_RE_THROW();
}
