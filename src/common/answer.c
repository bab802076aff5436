/*-------------------------------------------------------------------------
 *
 * answer.c
 *	  What an answer means for the request that it is for, and what becomes of
 *	  one that is executed late: the one table of request kinds and results.
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
 * BAD_ARGUMENTS, UNIMPLEMENTED, QUOTA_EXCEEDED, NO_MEMORY, FAILED;
 * NOT_EXECUTED, LOCAL_SESSION.  Behind it stands what becomes of the request
 * if it is executed late.
 *
 * NOT_EXECUTED is not told before it was asked again for a session timeout
 * (request_put_off()).
 *
 * A create that FAILED is not believed, for that is said of errors that we do
 * not know, too; nor is one that is given up, or withdrawn, as NOT_EXECUTED,
 * for a node that nobody knows of would be in everybody's way.  What EXISTS
 * where a REPLACE is to be may have been made by an attempt of it: the next
 * step finds out.
 */
static const struct
{
	const char *meanings;
	AnswerLate	late;
}			rows[] = {
	[REQUEST_CREATE] = {"DTTTT" "UO" "TTTTU" "UT", ANSWER_SOUGHT},	/* creates_late */
	[REQUEST_LIST] = {"DTTTT" "UO" "TTTTT" "TT", ANSWER_CHANGES_NOTHING},
	[REQUEST_GET] = {"DTTTT" "UO" "TTTTT" "TT", ANSWER_CHANGES_NOTHING},
	[REQUEST_GET_ACL] = {"DTTTT" "UO" "TTTTT" "TT", ANSWER_CHANGES_NOTHING},
	[REQUEST_CHECK] = {"DTTTT" "UO" "TTTTT" "TT", ANSWER_CHANGES_NOTHING},

	/*
	 * A set without a version is of a node of ours, whose name never comes
	 * again and which goes in the next request (a hand-over); or it says once
	 * more what was true a moment ago (a fact of a wait, a request to release,
	 * the name of a lease's lock).
	 */
	[REQUEST_SET] = {"DTTTT" "UO" "TTTTT" "TT", ANSWER_HARMLESS},

	/*
	 * A delete without a version is of a node whose name never comes again; or
	 * of one that is made anew if it is missing (a fact of a wait), or does
	 * nothing by itself (a request to release).
	 */
	[REQUEST_DELETE] = {"DTTTT" "UO" "TTTTT" "TT", ANSWER_HARMLESS},
	[REQUEST_LEAVE] = {"DTTTT" "UO" "TTTTT" "TT", ANSWER_HARMLESS},	/* of our place */
	[REQUEST_LEAVE_CHECK] = {"DTTTT" "UO" "TTTTT" "TT", ANSWER_CHANGES_NOTHING},
	[REQUEST_HELD] = {"DDDDD" "DO" "DDDDD" "DD", ANSWER_CHANGES_NOTHING},

	/* whatever deletes a node of that kind sets the guard */
	[REQUEST_CREATE_GUARDED] = {"DTTTT" "UO" "TTTTT" "TT", ANSWER_REFUSED},
	[REQUEST_DELETE_GUARDED] = {"DTTTT" "UO" "TTTTT" "TT", ANSWER_REFUSED},

	/* the node that goes has gone, or is deleted ahead of the other one */
	[REQUEST_MOVE] = {"DTTTT" "UO" "TTTTT" "TT", ANSWER_REFUSED},
	[REQUEST_REPLACE] = {"DTDTT" "UO" "TTTTT" "TT", ANSWER_SOUGHT},
	[REQUEST_REPLACE_FIND] = {"DTTTT" "UO" "TTTTT" "TT", ANSWER_CHANGES_NOTHING},
	[REQUEST_REPLACE_CHECK] = {"DTTTT" "UO" "TTTTT" "TT", ANSWER_CHANGES_NOTHING},
	[REQUEST_ERASE] = {"DDRRR" "UO" "RRRRR" "RR", ANSWER_CHANGES_NOTHING},
	[REQUEST_UNWATCH] = {"DDDDD" "DO" "DDDDD" "DD", ANSWER_CHANGES_NOTHING},
	[REQUEST_HEARTBEAT] = {"DDDDD" "DO" "DDDDD" "DD", ANSWER_CHANGES_NOTHING},
	[REQUEST_NUDGE] = {"DDDDD" "DO" "DDDDD" "DD", ANSWER_CHANGES_NOTHING},
	[REPEATED] = {"DDRDR" "UO" "RRRRR" "RR", ANSWER_HARMLESS},
};

/*
 * What a create makes.  An empty parent without owner, a request to release of
 * a lock that was released, and the name of a lock without leases do nothing,
 * and are deleted in time.
 */
static const AnswerLate creates_late[] = {
	[ZK_PERSISTENT] = ANSWER_HARMLESS,
	[ZK_PERSISTENT_OWN] = ANSWER_REFUSED,	/* only guarded, and by a MOVE */
	[ZK_CONTAINER] = ANSWER_HARMLESS,
	[ZK_EPHEMERAL] = ANSWER_SOUGHT,
	[ZK_EPHEMERAL_SEQUENTIAL] = ANSWER_SOUGHT,
	[ZK_PERSISTENT_SEQUENTIAL] = ANSWER_SOUGHT
};

AnswerMeaning
answer_meaning(RequestKind kind, bool is_repeated, ZkResult result)
{
	int			row = is_repeated && REQUEST_MAY_BE_SILENT(kind) ?
		REPEATED : (int) kind;

	return (AnswerMeaning) rows[row].meanings[result];
}

AnswerLate
answer_late(RequestKind kind, ZkNodeKind node_kind)
{
	return kind == REQUEST_CREATE ? creates_late[node_kind] : rows[kind].late;
}
