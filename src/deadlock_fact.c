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

/* Most facts of waits in PostgreSQL at a time. */
#define BLOCKED_MAX 64

/*
 * How often one question is answered: who asks waits for less.  It may be a
 * stranger's, and stay.
 */
#define ANSWERS_MAX 6

static ZkFact *new_fact(ZkDetector *detector, const char *path,
						const char *data);
static List *keep(ZkDetector *detector, List *list, ZkFact *fact);
static bool make(ZkDetector *detector, const ZkPlace *place, ZkFact *fact);
static bool is_made_already(ZkDetector *detector, ZkFact *fact);
static bool make_directories(ZkDetector *detector, const ZkPlace *place,
							 const char *path);
static void note_refusal(ZkDetector *detector, const ZkFact *fact,
						 const ZkReply *reply);
static bool is_deleted(ZkDetector *detector, const ZkFact *fact);
static void take_back(const ZkDetector *detector, ZkFact *fact);

int64
deadlock_own_session(void)
{
	ZkClientStatus status;

	return zklock_session_status(&status) ? status.session_id : 0;
}

bool
deadlock_say_wait(ZkDetector *detector, const ZkPlace *place)
{
	if (detector->is_refused ||
		(detector->wait != NULL &&
		 strncmp(detector->wait->data, place->node, strlen(place->node)) == 0))
		return false;
	take_back(detector, detector->wait);
	detector->wait = NULL;
	detector->wait = new_fact(detector,
							  deadlock_path_of_wait(place,
													deadlock_own_session()),
							  psprintf("%s\n%s", place->node,
									   zklock_nodedata_build(0)));
	if (make(detector, place, detector->wait))
		return true;
	take_back(detector, detector->wait);
	detector->wait = NULL;
	return false;
}

bool
deadlock_say_blocked(ZkDetector *detector, const ZkPlace *place,
					 const LocalWaiter *waiter, LockData **locks)
{
	ZkFact	   *fact;

	if (detector->wait == NULL || detector->is_refused ||
		deadlock_has_said(detector, waiter->session) ||
		list_length(detector->blocked) >= BLOCKED_MAX)
		return false;
	fact = new_fact(detector,
					deadlock_path_of_blocked(place, waiter->session,
											 deadlock_own_session()),
					deadlock_describe_wait(waiter->pid, locks));
	fact->waiter = waiter->session;
	detector->blocked = keep(detector, detector->blocked, fact);
	if (make(detector, place, fact))
		return true;
	detector->blocked = list_delete_ptr(detector->blocked, fact);
	take_back(detector, fact);
	return false;
}

bool
deadlock_has_said(const ZkDetector *detector, int64 waiter)
{
	ListCell   *cell;

	foreach(cell, detector->blocked)
		if (((ZkFact *) lfirst(cell))->waiter == waiter)
		return true;
	return false;
}

void
deadlock_forget_gone(ZkDetector *detector, List *waiters)
{
	ListCell   *cell;

	foreach(cell, detector->blocked)
	{
		ZkFact	   *fact = lfirst(cell);
		ListCell   *other;
		bool		is_gone = true;

		foreach(other, waiters)
			is_gone &= ((LocalWaiter *) lfirst(other))->session != fact->waiter;
		if (!is_gone)
			continue;
		detector->blocked = foreach_delete_current(detector->blocked, cell);
		take_back(detector, fact);
	}
}

void
deadlock_forget_deleted(ZkDetector *detector)
{
	ListCell   *cell;

	foreach(cell, detector->blocked)
	{
		ZkFact	   *fact = lfirst(cell);

		if (!is_deleted(detector, fact))
			continue;
		detector->blocked = foreach_delete_current(detector->blocked, cell);
		take_back(detector, fact);
	}
	if (!is_deleted(detector, detector->wait))
		return;
	take_back(detector, detector->wait);
	detector->wait = NULL;
}

void
deadlock_ask(ZkDetector *detector, const ZkPlace *place, int64 maker)
{
	ZkFact	   *question =
		new_fact(detector, deadlock_path_of_question(place, maker), "");

	question->is_question = true;
	detector->questions = keep(detector, detector->questions, question);

	/* if another one asks, that will do */
	if (!make(detector, place, question))
		question->is_tried = false;
}

void
deadlock_end_questions(ZkDetector *detector)
{
	ListCell   *cell;

	foreach(cell, detector->questions)
		take_back(detector, lfirst(cell));
	list_free(detector->questions);
	detector->questions = NIL;
}

void
deadlock_answer(ZkDetector *detector, const ZkPlace *place)
{
	ZkClient   *client = zklock_session_client();
	ListCell   *cell;
	ZkHeard		heard;

	if (detector->blocked == NIL)
	{
		zklock_client_free(detector->listening);
		detector->listening = NULL;
		return;
	}
	if (detector->listening == NULL)
		detector->listening =
			zklock_client_listen(client,
								 deadlock_path_of_question(place,
														   deadlock_own_session()),
								 false, 0);
	if (detector->listening == NULL ||
		!zklock_client_heard(detector->listening, &heard) || !heard.is_present)
		return;
	if (heard.mzxid != detector->question)
		detector->nanswers = 0;
	detector->question = heard.mzxid;
	if (detector->nanswers++ >= ANSWERS_MAX)
		return;
	foreach(cell, detector->blocked)
	{
		ZkFact	   *fact = lfirst(cell);

		zklock_client_announce(client, fact->path, fact->data,
							   strlen(fact->data));
	}
}

void
deadlock_take_back_all(ZkDetector *detector)
{
	ListCell   *cell;

	if (detector->session == zklock_session_number())
		zklock_client_free(detector->listening);
	detector->listening = NULL;
	foreach(cell, detector->blocked)
		take_back(detector, lfirst(cell));
	list_free(detector->blocked);
	detector->blocked = NIL;
	deadlock_end_questions(detector);
	take_back(detector, detector->wait);
	detector->wait = NULL;
}

/* One that is not made yet. */
static ZkFact *
new_fact(ZkDetector *detector, const char *path, const char *data)
{
	ZkFact	   *fact = MemoryContextAllocZero(detector->context, sizeof(*fact));

	fact->path = MemoryContextStrdup(detector->context, path);
	fact->data = MemoryContextStrdup(detector->context, data);
	return fact;
}

static List *
keep(ZkDetector *detector, List *list, ZkFact *fact)
{
	MemoryContext caller = MemoryContextSwitchTo(detector->context);

	list = lappend(list, fact);
	MemoryContextSwitchTo(caller);
	return list;
}

/* false if that was refused, or came to no end. */
static bool
make(ZkDetector *detector, const ZkPlace *place, ZkFact *fact)
{
	for (int attempts = 0; attempts < PARENT_ATTEMPTS; attempts++)
	{
		const ZkReply *reply;

		fact->is_tried = true;
		zklock_client_free(fact->request);
		fact->request = zklock_client_create(zklock_session_client(),
											 fact->path, ZK_EPHEMERAL,
											 fact->data, strlen(fact->data));
		reply = zklock_roundtrip_await(&detector->trip, fact->request);
		if (reply == NULL)
			return false;
		switch (reply->result)
		{
			case ZK_OK:
				fact->czxid = reply->czxid;
				return true;
			case ZK_NODE_EXISTS:
				if (is_made_already(detector, fact))
					return true;
				if (fact->is_tried)
					break;
				if (!fact->is_question)
					note_refusal(detector, fact, reply);
				return false;
			case ZK_NO_NODE:
				if (!make_directories(detector, place, fact->path))
					return false;
				break;
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
 * By an attempt whose reply was lost?  Another fact of ours at that path is
 * one that was to be taken back: it goes, and is_tried says to try again.
 * Somebody else's stays.
 */
static bool
is_made_already(ZkDetector *detector, ZkFact *fact)
{
	const ZkReply *reply =
		zklock_roundtrip_read(&detector->trip, zklock_client_get, fact->path);

	fact->is_tried = false;
	if (reply == NULL || reply->result != ZK_OK ||
		reply->ephemeral_owner != deadlock_own_session())
		return false;
	fact->is_tried = true;
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
 * Make what a fact is in: for good, so that who says something pays for one
 * znode.  false if that is refused, or there is no answer.
 */
static bool
make_directories(ZkDetector *detector, const ZkPlace *place, const char *path)
{
	const char *end = path + place->root_length;

	while ((end = strchr(end + 1, '/')) != NULL)
	{
		const ZkReply *reply =
			zklock_roundtrip_ask(&detector->trip,
								 zklock_client_create(zklock_session_client(),
													  pnstrdup(path, end - path),
													  ZK_PERSISTENT, NULL, 0));

		if (reply == NULL || (reply->result != ZK_OK &&
							  reply->result != ZK_NODE_EXISTS &&
							  reply->result != ZK_UNKNOWN_OUTCOME))
			return false;
	}
	return true;
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

static bool
is_deleted(ZkDetector *detector, const ZkFact *fact)
{
	const ZkReply *reply =
		zklock_roundtrip_read(&detector->trip, zklock_client_get, fact->path);

	return reply != NULL &&
		(reply->result == ZK_NO_NODE ||
		 (reply->result == ZK_OK && reply->czxid != fact->czxid));
}

/* Never raises, never waits.  What has gone with its session is gone. */
static void
take_back(const ZkDetector *detector, ZkFact *fact)
{
	if (fact == NULL)
		return;
	if (detector->session == zklock_session_number())
	{
		zklock_client_free(fact->request);
		if (fact->is_tried)
			zklock_client_delete(zklock_session_client(), fact->path);
	}
	pfree(fact->path);
	pfree(fact->data);
	pfree(fact);
}
