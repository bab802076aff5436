/*-------------------------------------------------------------------------
 *
 * answer.c
 *	  What an answer means for the request that it is for: the one table of
 *	  request kinds and results.
 *
 * The one rule: no result is final because it is not named.  What we have made
 * is removed until the ensemble says that it is gone.
 *
 *-------------------------------------------------------------------------
 */
#include "answer.h"

/* A row beside those of RequestKind: of a SET, DELETE or LEAVE that is repeated. */
#define REPEATED (REQUEST_NUDGE + 1)

/*
 * Rows are by kind; in each there is an AnswerMeaning for each ZkResult: OK,
 * NO_NODE, NODE_EXISTS, BAD_VERSION, NO_AUTH; UNKNOWN_OUTCOME, SESSION_LOST;
 * BAD_ARGUMENTS, UNIMPLEMENTED, QUOTA_EXCEEDED, NO_MEMORY, FAILED.
 *
 * A create that FAILED is not believed, for that is said of errors that we do
 * not know, too.  What EXISTS where a REPLACE is to be may have been made by
 * an attempt of it: the next step finds out.
 */
static const char *const meanings[] = {
	[REQUEST_CREATE] = "DTTTT" "UO" "TTTTU",
	[REQUEST_LIST] = "DTTTT" "UO" "TTTTT",
	[REQUEST_GET] = "DTTTT" "UO" "TTTTT",
	[REQUEST_GET_ACL] = "DTTTT" "UO" "TTTTT",
	[REQUEST_CHECK] = "DTTTT" "UO" "TTTTT",
	[REQUEST_SET] = "DTTTT" "UO" "TTTTT",
	[REQUEST_DELETE] = "DTTTT" "UO" "TTTTT",
	[REQUEST_LEAVE] = "DTTTT" "UO" "TTTTT",
	[REQUEST_LEAVE_CHECK] = "DTTTT" "UO" "TTTTT",
	[REQUEST_HELD] = "DDDDD" "DO" "DDDDD",
	[REQUEST_DELETE_GUARDED] = "DTTTT" "UO" "TTTTT",
	[REQUEST_MOVE] = "DTTTT" "UO" "TTTTT",
	[REQUEST_REPLACE] = "DTDTT" "UO" "TTTTT",
	[REQUEST_REPLACE_FIND] = "DTTTT" "UO" "TTTTT",
	[REQUEST_REPLACE_CHECK] = "DTTTT" "UO" "TTTTT",
	[REQUEST_ERASE] = "DDRRR" "UO" "RRRRR",
	[REQUEST_UNWATCH] = "DDDDD" "DO" "DDDDD",
	[REQUEST_HEARTBEAT] = "DDDDD" "DO" "DDDDD",
	[REQUEST_NUDGE] = "DDDDD" "DO" "DDDDD",
	[REPEATED] = "DDRDR" "UO" "RRRRR",
};

AnswerMeaning
answer_meaning(RequestKind kind, bool is_repeated, ZkResult result)
{
	int			row = is_repeated && REQUEST_MAY_BE_SILENT(kind) ?
		REPEATED : (int) kind;

	return (AnswerMeaning) meanings[row][result];
}
