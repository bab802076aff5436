/*-------------------------------------------------------------------------
 *
 * deadlock_fact.c
 *	  What a waiter says: facts, made, asked for, taken back.
 *
 * A fact is in the detector before its create is sent, so that whatever
 * raises leaves it to zklock_deadlock_end().  It is taken back by a delete,
 * which this session's server does behind the create, answered or not, and
 * which is sent again until it is confirmed.
 *
 *-------------------------------------------------------------------------
 */
#include "deadlock_private.h"

#include "miscadmin.h"

/* Most facts at a time. */
#define FACTS_MAX 64

static ZkFact *new_fact(ZkDetector *detector, FactKind kind, int64 session,
						const char *path, const char *data);
static bool make(ZkDetector *detector, const ZkPlace *place, ZkFact *fact);
static bool adopt_or_delete(ZkDetector *detector, ZkFact *fact);
static void note_refusal(ZkDetector *detector, const ZkFact *fact,
						 const ZkReply *reply);

bool
deadlock_say(ZkDetector *detector, const ZkPlace *place, FactKind kind,
			 int64 session, const char *data)
{
	ZkFact	   *fact;

	if (detector->is_refused ||
		deadlock_said(detector, kind, session) != NULL ||
		list_length(detector->facts) >= FACTS_MAX)
		return false;
	fact = new_fact(detector, kind, session,
					deadlock_path(place, kind, session,
								  zklock_session_id()),
					data);
	if (make(detector, place, fact))
		return true;
	deadlock_take_back(detector, fact);
	return false;
}

ZkFact *
deadlock_said(const ZkDetector *detector, FactKind kind, int64 session)
{
	ListCell   *cell;

	foreach(cell, detector->facts)
	{
		ZkFact	   *fact = lfirst(cell);

		if (fact->kind == kind && fact->session == session)
			return fact;
	}
	return NULL;
}

bool
deadlock_blocks_somebody(const ZkDetector *detector)
{
	ListCell   *cell;

	foreach(cell, detector->facts)
		if (((const ZkFact *) lfirst(cell))->kind == FACT_BLOCKED)
		return true;
	return false;
}

/* What has gone with its session is gone. */
void
deadlock_take_back(ZkDetector *detector, ZkFact *fact)
{
	detector->facts = list_delete_ptr(detector->facts, fact);
	if (fact->is_tried && detector->session == zklock_session_number())
		zklock_client_delete(zklock_session_client(), fact->path);
	pfree(fact->path);
	pfree(fact->data);
	pfree(fact);
}

void
deadlock_forget_deleted(ZkDetector *detector)
{
	ListCell   *cell;

	foreach(cell, list_copy(detector->facts))
	{
		ZkFact	   *fact = lfirst(cell);
		const ZkReply *reply = zklock_roundtrip_read(&detector->trip,
													 zklock_client_get,
													 fact->path);

		if (reply != NULL &&
			(reply->result == ZK_NO_NODE ||
			 (reply->result == ZK_OK && reply->czxid != fact->czxid)))
			deadlock_take_back(detector, fact);
	}
}

void
deadlock_repeat(const ZkDetector *detector)
{
	ListCell   *cell;

	foreach(cell, detector->facts)
	{
		const ZkFact *fact = lfirst(cell);

		if (fact->kind == FACT_BLOCKED)
			zklock_client_announce(zklock_session_client(), fact->path,
								   fact->data, strlen(fact->data));
	}
}

/* One that is not made yet, the detector's. */
static ZkFact *
new_fact(ZkDetector *detector, FactKind kind, int64 session, const char *path,
		 const char *data)
{
	MemoryContext caller = MemoryContextSwitchTo(detector->context);
	ZkFact	   *fact = palloc0(sizeof(*fact));

	fact->kind = kind;
	fact->session = session;
	fact->path = pstrdup(path);
	fact->data = pstrdup(data);
	detector->facts = lappend(detector->facts, fact);
	MemoryContextSwitchTo(caller);
	return fact;
}

/*
 * Create a fact's znode.  false if that was refused, or came to no end: then
 * is_tried tells whether there may be one of ours.
 */
static bool
make(ZkDetector *detector, const ZkPlace *place, ZkFact *fact)
{
	for (int attempts = 0; attempts < PARENT_ATTEMPTS; attempts++)
	{
		const ZkReply *reply;

		fact->is_tried = true;
		reply = zklock_roundtrip_create(&detector->trip, fact->path,
										place->root_length, ZK_EPHEMERAL,
										fact->data);
		if (reply == NULL)
			return false;
		switch (reply->result)
		{
			case ZK_OK:
				fact->czxid = reply->czxid;
				return true;
			case ZK_NODE_EXISTS:
				if (adopt_or_delete(detector, fact))
					return true;
				if (fact->is_tried)
					break;
				note_refusal(detector, fact, reply);
				return false;
			case ZK_UNKNOWN_OUTCOME:
				break;
			case ZK_SESSION_LOST:
				return false;
			default:
				note_refusal(detector, fact, reply);
				return false;
		}
	}
	return false;
}

/*
 * There is a znode at the fact's path.  If it is what was to be made, by an
 * attempt whose reply was lost: take it for that.  If it is another one of
 * ours, one that was to be taken back: delete it, and leave is_tried set: try
 * again.  Somebody else's stays.
 */
static bool
adopt_or_delete(ZkDetector *detector, ZkFact *fact)
{
	const ZkReply *reply =
		zklock_roundtrip_read(&detector->trip, zklock_client_get, fact->path);

	fact->is_tried = reply != NULL && reply->result == ZK_OK &&
		reply->ephemeral_owner == zklock_session_id();
	if (!fact->is_tried)
		return false;
	if (reply->data != NULL &&
		reply->data_length == (int) strlen(fact->data) &&
		memcmp(reply->data, fact->data, reply->data_length) == 0)
	{
		fact->czxid = reply->czxid;
		return true;
	}
	zklock_client_delete(zklock_session_client(), fact->path);
	return false;
}

/*
 * Nothing more is said in this wait, for it would be refused again, or there
 * is somebody else's in its place; the log has it once.
 */
static void
note_refusal(ZkDetector *detector, const ZkFact *fact, const ZkReply *reply)
{
	static bool is_logged;

	detector->is_refused = true;
	if (!is_logged)
		ereport(LOG,
				(errmsg("deadlocks over ZooKeeper locks go unseen by process %d",
						MyProcPid),
				 errdetail("Znode \"%s\" cannot be created: %s.",
						   zklock_nodedata_quotable(fact->path),
						   reply->code_text),
				 errhint("All who share a root must have the same credentials, \"%s\". Nobody else may create below it.",
						 "zklock.auth")));
	is_logged = true;
}
