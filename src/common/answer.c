/*-------------------------------------------------------------------------
 *
 * answer.c
 *	  Tables of what an answer means for each kind of request, its SQLSTATE,
 *	  and what becomes of a request that is executed late.
 *
 * Three tables.  KINDS has a row for each kind of request.  It says which
 * column of RESULTS is the request's: there is a row for each result, and what
 * it means.  NODES says what becomes of a create that is executed late, by the
 * kind of node.  A row or a column that is missing, or is there twice, does not
 * compile.
 *
 * The one rule: no result is final because it is not named.  What we have made
 * is removed until the ensemble says that it is gone.
 *
 *-------------------------------------------------------------------------
 */
#include "answer.h"

/* The columns of RESULTS. */
typedef enum AnswerColumn
{
	COLUMN_ASKED,				/* the backend has asked, and is told */
	COLUMN_CREATE,				/* a create */
	COLUMN_ERASE,				/* what a create has made is looked for */
	COLUMN_REPEATED,			/* a SET, DELETE or LEAVE that is repeated */
	COLUMN_IGNORED,				/* whatever the answer */
	NCOLUMNS
} AnswerColumn;

/*
 * The results.
 *
 * NOT_EXECUTED is not told before the request was asked again for a session
 * timeout (put_off() of program_step.c).
 *
 * A create that FAILED is not believed: errors that we do not know are FAILED,
 * too.  A create that is given up or withdrawn as NOT_EXECUTED is not believed
 * either: a node that nobody knows of would be in everybody's way.
 *
 * The SQLSTATE is that of the caller who cannot go on: a caller for whom a
 * missing node, one that is there, or another version is part of the way a lock
 * works does not raise it.
 */
#define RESULTS(ROW) \
	/*	result				ASKED	 CREATE	  ERASE	REPEATED IGNORED  SQLSTATE */ \
	ROW(ZK_OK,				DONE,	 DONE,	  DONE,	DONE,	 DONE,	  "00000") \
	ROW(ZK_NO_NODE,			TELL,	 TELL,	  DONE,	DONE,	 DONE,	  "58000") \
	ROW(ZK_NODE_EXISTS,		TELL,	 TELL,	  REPEAT,	REPEAT,	 DONE,	  "58000") \
	ROW(ZK_BAD_VERSION,		TELL,	 TELL,	  REPEAT,	DONE,	 DONE,	  "58000") \
	ROW(ZK_NO_AUTH,			TELL,	 TELL,	  REPEAT,	REPEAT,	 DONE,	  "42501") \
	ROW(ZK_UNKNOWN_OUTCOME, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, DONE,	  "08006") \
	ROW(ZK_SESSION_LOST,	OVER,	 OVER,	  OVER,	OVER,	 OVER,	  "08006") \
	ROW(ZK_BAD_ARGUMENTS,	TELL,	 TELL,	  REPEAT,	REPEAT,	 DONE,	  "22023") \
	ROW(ZK_UNIMPLEMENTED,	TELL,	 TELL,	  REPEAT,	REPEAT,	 DONE,	  "58000") \
	ROW(ZK_QUOTA_EXCEEDED,	TELL,	 TELL,	  REPEAT,	REPEAT,	 DONE,	  "53400") \
	ROW(ZK_NO_MEMORY,		TELL,	 TELL,	  REPEAT,	REPEAT,	 DONE,	  "53200") \
	ROW(ZK_FAILED,			TELL,	 UNKNOWN, REPEAT,	REPEAT,	 DONE,	  "58000") \
	ROW(ZK_NOT_EXECUTED,	TELL,	 UNKNOWN, REPEAT,	REPEAT,	 DONE,	  "53000") \
	ROW(ZK_LOCAL_SESSION,	TELL,	 TELL,	  REPEAT,	REPEAT,	 DONE,	  "0A000")

/*
 * The kinds of requests.
 *
 * A SET without a version is of a node of ours, whose name never comes again
 * and which goes in the next request (a hand-over); or it says once more what
 * was true a moment ago (a fact of a wait, a request to release).
 *
 * A DELETE without a version is of a node whose name never comes again; or of
 * one that is made anew if it is missing (a fact of a wait), or does nothing by
 * itself (a request to release).  A LEAVE is of our place.
 *
 * DELETE_GUARDED and CREATE_GUARDED: what deletes a node of that kind sets the
 * guard.  MOVE: the node that goes has gone, or is deleted ahead of the other.
 */
#define KINDS(ROW) \
	/*	kind					column	  who is told  if it is executed late */ \
	ROW(REQUEST_CREATE,			CREATE,	  CALLER,	   BY_NODE) \
	ROW(REQUEST_LIST,			ASKED,	  CALLER,	   CHANGES_NOTHING) \
	ROW(REQUEST_GET,			ASKED,	  CALLER,	   CHANGES_NOTHING) \
	ROW(REQUEST_GET_ACL,		ASKED,	  CALLER,	   CHANGES_NOTHING) \
	ROW(REQUEST_CHECK,			ASKED,	  CALLER,	   CHANGES_NOTHING) \
	ROW(REQUEST_SET,			ASKED,	  CALLER,	   HARMLESS) \
	ROW(REQUEST_DELETE,			ASKED,	  CALLER,	   HARMLESS) \
	ROW(REQUEST_LEAVE,			ASKED,	  CALLER,	   HARMLESS) \
	ROW(REQUEST_DELETE_GUARDED, ASKED,	  CALLER,	   REFUSED) \
	ROW(REQUEST_CREATE_GUARDED, ASKED,	  CALLER,	   REFUSED) \
	ROW(REQUEST_MOVE,			ASKED,	  CALLER,	   REFUSED) \
	ROW(REQUEST_WATCHED,			IGNORED,  HOLDER,	   CHANGES_NOTHING) \
	ROW(REQUEST_ERASE,			ERASE,	  NOBODY,	   CHANGES_NOTHING) \
	ROW(REQUEST_UNWATCH,		IGNORED,  NOBODY,	   CHANGES_NOTHING) \
	ROW(REQUEST_HEARTBEAT,		IGNORED,  NOBODY,	   CHANGES_NOTHING) \
	ROW(REQUEST_NUDGE,			IGNORED,  NOBODY,	   CHANGES_NOTHING)

/*
 * The nodes that a create makes.  An empty parent without owner, a request to
 * release of a lock that was released, and the name of a lock without leases
 * do nothing, and are deleted in time.
 */
#define NODES(ROW) \
	/*	node						if its create is executed late */ \
	ROW(ZK_PERSISTENT,				HARMLESS) \
	ROW(ZK_PERSISTENT_OWN,			REFUSED)	/* only guarded, and by a MOVE */ \
	ROW(ZK_CONTAINER,				HARMLESS) \
	ROW(ZK_EPHEMERAL,				SOUGHT) \
	ROW(ZK_EPHEMERAL_SEQUENTIAL,	SOUGHT) \
	ROW(ZK_ROOT,					HARMLESS)

/* The tables as C has them. */
typedef struct ResultRow
{
	AnswerMeaning meanings[NCOLUMNS];
	char		sqlstate[6];
} ResultRow;

typedef struct KindRow
{
	AnswerColumn column;
	AnswerTold	told;
	AnswerLate	late;
} KindRow;

#define RESULT_ROW(result, asked, create, erase, repeated, ignored, state) \
	[result] = { \
		.meanings = { \
			[COLUMN_ASKED] = ANSWER_##asked, [COLUMN_CREATE] = ANSWER_##create, \
			[COLUMN_ERASE] = ANSWER_##erase, \
			[COLUMN_REPEATED] = ANSWER_##repeated, [COLUMN_IGNORED] = ANSWER_##ignored \
		}, \
		.sqlstate = state \
	},
#define KIND_ROW(kind, of, who, what) \
	[kind] = {.column = COLUMN_##of,.told = ANSWER_TO_##who,.late = ANSWER_##what},
#define NODE_ROW(node, what) [node] = ANSWER_##what,

static const ResultRow results[] = {RESULTS(RESULT_ROW)};
static const KindRow kinds[] = {KINDS(KIND_ROW)};
static const AnswerLate nodes[] = {NODES(NODE_ROW)};

/* A row that is there twice is a warning of the compiler's (-Wextra). */
#define ONE_MORE(...) + 1
_Static_assert(RESULTS(ONE_MORE) == ZK_RESULT_LAST + 1, "each result has a row");
_Static_assert(KINDS(ONE_MORE) == REQUEST_LAST + 1, "each kind of request has a row");
_Static_assert(NODES(ONE_MORE) == ZK_NODE_LAST + 1, "each kind of node has a row");

AnswerMeaning
answer_meaning(RequestKind kind, bool is_repeated, ZkResult result)
{
	AnswerColumn column = kinds[kind].column;

	if (is_repeated && REQUEST_MAY_BE_SILENT(kind))
		column = COLUMN_REPEATED;
	return results[result].meanings[column];
}

AnswerTold
answer_told(RequestKind kind)
{
	return kinds[kind].told;
}

bool
answer_is_ignored(RequestKind kind)
{
	return kinds[kind].column == COLUMN_IGNORED &&
		kinds[kind].told == ANSWER_TO_NOBODY;
}

AnswerLate
answer_late(RequestKind kind, ZkNodeKind node_kind)
{
	if (kinds[kind].late == ANSWER_BY_NODE)
		return nodes[node_kind];
	return kinds[kind].late;
}

const char *
answer_sqlstate(ZkResult result)
{
	return results[result].sqlstate;
}
