/*-------------------------------------------------------------------------
 *
 * test_answer.c
 *	  Unit test of src/common/answer.c: for each request and each result, the
 *	  table says the right thing about whether the request is over, what it has
 *	  changed, and who must be told.
 *
 * The table itself is not copied here.  These are the rules that it was made
 * by: which answers end a request, and whose word for what has been made is
 * believed.
 *
 *-------------------------------------------------------------------------
 */
#include "answer.h"
#include "tap.h"

#include <ctype.h>

#define NELEMS(array) ((int) (sizeof(array) / sizeof((array)[0])))

/* Requests of which nobody hears, or of which their own step decides. */
static bool
is_idle_talk(RequestKind kind)
{
	return kind == REQUEST_UNWATCH || kind == REQUEST_HEARTBEAT ||
		kind == REQUEST_NUDGE || kind == REQUEST_WATCHED;
}

/* The rules for all kinds, and for a refusal in whatever words. */
static void
test_rules(void)
{
	for (int kind = REQUEST_CREATE; kind <= REQUEST_LAST; kind++)
	{
		is_int(ANSWER_OVER, answer_meaning(kind, false, ZK_SESSION_LOST),
			   "kind %d: the session is over", kind);
		is_int(ANSWER_DONE, answer_meaning(kind, false, ZK_OK),
			   "kind %d: done", kind);
		is_int(is_idle_talk(kind) ? ANSWER_DONE : ANSWER_UNKNOWN,
			   answer_meaning(kind, false, ZK_UNKNOWN_OUTCOME),
			   "kind %d: done or not", kind);
		for (int result = ZK_BAD_VERSION; result <= ZK_RESULT_LAST; result++)
		{
			AnswerMeaning meaning = answer_meaning(kind, false, result);

			if (result == ZK_UNKNOWN_OUTCOME || result == ZK_SESSION_LOST)
				continue;
			ok(kind == REQUEST_ERASE ?
			   meaning == ANSWER_REPEAT :
			   is_idle_talk(kind) ? meaning == ANSWER_DONE :
			   kind == REQUEST_CREATE &&
			   (result == ZK_FAILED || result == ZK_NOT_EXECUTED) ?
			   meaning == ANSWER_UNKNOWN : meaning == ANSWER_TELL,
			   "kind %d: refused with result %d", kind, result);
		}
	}
}

/* What is repeated ends when it is done, when it is moot, with the session. */
static void
test_repeated(void)
{
	static const RequestKind repeated[] = {REQUEST_SET, REQUEST_DELETE, REQUEST_LEAVE};

	for (int i = 0; i < NELEMS(repeated); i++)
		for (int result = ZK_OK; result <= ZK_RESULT_LAST; result++)
			is_int(result == ZK_OK || result == ZK_NO_NODE ||
				   result == ZK_BAD_VERSION ? ANSWER_DONE :
				   result == ZK_SESSION_LOST ? ANSWER_OVER :
				   result == ZK_UNKNOWN_OUTCOME ? ANSWER_UNKNOWN :
				   ANSWER_REPEAT,
				   answer_meaning(repeated[i], true, result),
				   "kind %d, repeated: result %d", repeated[i], result);
}

static void
test_no_node(void)
{
	static const struct
	{
		AnswerMeaning expected;
		RequestKind kind;
		ZkResult	result;
		const char *what;
	}			cases[] = {
		{ANSWER_TELL, REQUEST_DELETE, ZK_NO_NODE, "who deletes another's node hears that it was gone"},
		{ANSWER_DONE, REQUEST_ERASE, ZK_NO_NODE, "nothing is left to be erased"},
		{ANSWER_TELL, REQUEST_CREATE, ZK_NODE_EXISTS, "who creates hears that it is there"},
		{ANSWER_TELL, REQUEST_MOVE, ZK_NO_NODE, "who moves hears that it was gone"},
	};

	for (int i = 0; i < NELEMS(cases); i++)
		is_int(cases[i].expected,
			   answer_meaning(cases[i].kind, false, cases[i].result),
			   "%s", cases[i].what);
}

/*
 * Executed late: nothing that changes anything is left without a word, and
 * what makes a node with an owner is looked for.
 */
static void
test_late(void)
{
	for (int kind = REQUEST_CREATE; kind <= REQUEST_LAST; kind++)
	{
		bool		changes = kind == REQUEST_CREATE || kind == REQUEST_SET ||
			kind == REQUEST_DELETE || kind == REQUEST_LEAVE ||
			kind == REQUEST_DELETE_GUARDED || kind == REQUEST_CREATE_GUARDED ||
			kind == REQUEST_MOVE;

		for (int node_kind = ZK_PERSISTENT; node_kind <= ZK_NODE_LAST; node_kind++)
		{
			AnswerLate	late = answer_late(kind, node_kind);
			bool		makes = kind == REQUEST_CREATE &&
				node_kind >= ZK_EPHEMERAL && node_kind != ZK_ROOT;

			ok(late == ANSWER_CHANGES_NOTHING || late == ANSWER_REFUSED ||
			   late == ANSWER_HARMLESS || late == ANSWER_SOUGHT,
			   "kind %d, node %d: it is known what becomes of it late", kind, node_kind);
			is_int(changes, late != ANSWER_CHANGES_NOTHING,
			       "kind %d, node %d: does it change anything?", kind, node_kind);
			is_int(makes, late == ANSWER_SOUGHT,
			       "kind %d, node %d: is there a node to look for?", kind, node_kind);
		}
	}
}

/* What a backend asks is told to the call, and what becomes of its place to the holder. */
static void
test_told(void)
{
	for (int kind = REQUEST_CREATE; kind <= REQUEST_LAST; kind++)
	{
		is_int(kind <= REQUEST_LAST_OF_BACKEND ? ANSWER_TO_CALLER :
			   kind == REQUEST_WATCHED ? ANSWER_TO_HOLDER : ANSWER_TO_NOBODY,
			   answer_told(kind), "kind %d: who is told", kind);
		ok(answer_is_ignored(kind) == (is_idle_talk(kind) && kind != REQUEST_WATCHED),
		   "kind %d: is its answer looked at?", kind);
	}
}

/*
 * Of each result that a caller may be told.  The SQLSTATEs are written out, for
 * applications act by them.
 */
static void
test_sqlstates(void)
{
	static const struct
	{
		const char *expected;
		ZkResult	result;
	}			cases[] = {
		{"00000", ZK_OK}, {"42501", ZK_NO_AUTH}, {"08006", ZK_UNKNOWN_OUTCOME},
		{"08006", ZK_SESSION_LOST}, {"22023", ZK_BAD_ARGUMENTS},
		{"53400", ZK_QUOTA_EXCEEDED}, {"53200", ZK_NO_MEMORY}, {"53000", ZK_NOT_EXECUTED},
		{"0A000", ZK_LOCAL_SESSION}, {"58000", ZK_NO_NODE}, {"58000", ZK_NODE_EXISTS},
		{"58000", ZK_BAD_VERSION}, {"58000", ZK_UNIMPLEMENTED}, {"58000", ZK_FAILED},
	};

	is_int(ZK_RESULT_LAST + 1, NELEMS(cases), "the cases have each result once");
	for (int i = 0; i < NELEMS(cases); i++)
		is_str(cases[i].expected, answer_sqlstate(cases[i].result),
			   "result %d: its SQLSTATE", cases[i].result);
	for (int result = ZK_OK; result <= ZK_RESULT_LAST; result++)
	{
		const char *state = answer_sqlstate(result);

		is_int(5, (int) strlen(state), "result %d: its length", result);
		for (int i = 0; i < 5; i++)
			ok(isdigit((unsigned char) state[i]) || isupper((unsigned char) state[i]),
			   "result %d: character %d", result, i);
	}
}

int
main(void)
{
	test_told();
	test_sqlstates();
	test_late();
	test_rules();
	test_repeated();
	test_no_node();
	return done_testing();
}
