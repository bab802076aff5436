/*-------------------------------------------------------------------------
 *
 * roundtrip.c
 *	  Sends requests and waits for the replies: bounds, retries, and the loop
 *	  that begins anew with another session.
 *
 * Requests are malloc'ed memory of client.c, which no memory context
 * frees.  So zklock_roundtrip_run_within() cleans up after errors.  A request that is
 * freed before its answer goes on: what it asks for may still be done.
 *
 *-------------------------------------------------------------------------
 */
#include "roundtrip.h"

#include "miscadmin.h"
#include "storage/ipc.h"

#include "nodedata.h"
#include "stat.h"
#include "text.h"

/*
 * How often in a row answers about a znode may contradict each other: nobody
 * changes it just then so often.
 */
#define DOUBTS_MAX 10

/* One of several reads, palloc'ed. */
typedef struct Read
{
	ZkRead		read;
	ZkRequest  *request;
	char		path[FLEXIBLE_ARRAY_MEMBER];
} Read;

/* One call of zklock_roundtrip_run_within(). */
typedef struct Talk
{
	ZkRoundTrip trip;
	void		(*forget) (void *argument); /* or NULL */
	void	   *argument;		/* of forget */
	bool		was_used;		/* the session, before the call */
} Talk;

static void add_read(ZkRoundTrip *trip, ZkRead read, const char *path);
static ZkOutcome await_read(ZkRoundTrip *trip, Read *one,
							const ZkReply **reply);
static Read *find_read(const ZkRoundTrip *trip, ZkRead read, const char *path);
static void end_talk(Talk *talk);
static void abandon_talk(int code, Datum arg);

void
zklock_roundtrip_must_run(const ZkBounds *bounds, ZkTalk talk,
						  void (*forget) (void *argument), void *argument)
{
	ZkBounds	of_task = zklock_bounds_of_task();

	if (bounds == NULL)
		bounds = &of_task;
	if (zklock_roundtrip_run_within(bounds, talk, forget,
									argument) != ZK_ANSWERED)
		elog(ERROR, "a deadline that raises has passed in silence");
}

ZkOutcome
zklock_roundtrip_run_within(const ZkBounds *bounds, ZkTalk talk,
							void (*forget) (void *argument), void *argument)
{
	Talk		talking = {
		.forget = forget,
		.argument = argument,
		.was_used = zklock_session_is_used()
	};
	ZkRoundTrip *trip = &talking.trip;
	volatile ZkOutcome outcome = ZK_LOST;

	for (volatile bool is_again = false; outcome == ZK_LOST; is_again = true)
	{
		/* whatever an attempt before has made of it */
		trip->deadline = bounds->deadline;
		trip->by = bounds->by;
		zklock_session_renew(is_again);
		zklock_session_open();

		/*
		 * The end of the backend must not leave behind what was made either:
		 * only ephemeral znodes go with the session.
		 */
		PG_ENSURE_ERROR_CLEANUP(abandon_talk, PointerGetDatum(&talking));
		{
			outcome = talk(trip, argument);
		}
		PG_END_ENSURE_ERROR_CLEANUP(abandon_talk, PointerGetDatum(&talking));
		end_talk(&talking);
	}
	if (!talking.was_used)
		zklock_session_end_use();
	Assert(outcome != ZK_UNKNOWN);
	return outcome;
}

ZkOutcome
zklock_roundtrip_ask(ZkRoundTrip *trip, ZkRequest *request,
					 const ZkReply **reply)
{
	zklock_client_free(trip->request);
	trip->request = request;
	trip->nasked++;
	return zklock_roundtrip_await(trip, request, reply);
}

ZkOutcome
zklock_roundtrip_await(const ZkRoundTrip *trip, ZkRequest *request,
					   const ZkReply **reply)
{
	ZkOutcome	outcome = zklock_session_await(request, trip->deadline,
											   ZK_WAITING_FOR_REPLY, reply);

	if (outcome == ZK_LATE && trip->by == ZK_BY_LOCK_TIMEOUT)
	{
		zklock_stat_count(ZK_STAT_UNANSWERED);
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("canceling statement due to lock timeout"),
				 zklock_session_explain_silence()));
	}
	if (outcome == ZK_LATE && trip->by == ZK_BY_CONNECT_TIMEOUT)
		zklock_session_raise_silence(NULL);
	return outcome;
}

ZkOutcome
zklock_roundtrip_read(ZkRoundTrip *trip, ZkRead read, const char *path,
					  const ZkReply **reply)
{
	ZkOutcome	outcome;

	do
		outcome = zklock_roundtrip_ask(trip,
									   zklock_client_read(zklock_session_client(),
														  read, path),
									   reply);
	while (outcome == ZK_UNKNOWN);
	return outcome;
}

/*
 * A server may lag behind, or be a former leader that does not know it yet;
 * then its reads are old.  Such a server cannot answer the check, which goes
 * through the quorum, so a read behind the check is not older than it,
 * whatever the check's result.  That holds for one connection: after a
 * reconnect both are asked again.
 */
ZkOutcome
zklock_roundtrip_read_newest(ZkRoundTrip *trip, ZkRead read, const char *path,
							 const ZkReply **reply)
{
	ZkOutcome	outcome;

	do
	{
		outcome = zklock_roundtrip_read(trip, ZK_CHECK, path, reply);
		if (outcome == ZK_ANSWERED)
			outcome = zklock_roundtrip_ask(trip,
										   zklock_client_read(zklock_session_client(),
															  read, path),
										   reply);
	} while (outcome == ZK_UNKNOWN);
	return outcome;
}

ZkOutcome
zklock_roundtrip_read_all(ZkRoundTrip *trip, ZkRead read, char **paths,
						  int npaths, const ZkReply **replies)
{
	int			nbefore = list_length(trip->reads);
	ZkOutcome	outcome = ZK_ANSWERED;

	CHECK_FOR_INTERRUPTS();
	for (int i = 0; i < npaths; i++)
		add_read(trip, read, paths[i]);
	for (int i = 0; i < npaths && outcome == ZK_ANSWERED; i++)
		outcome = await_read(trip, list_nth(trip->reads, nbefore + i),
							 &replies[i]);
	if (outcome != ZK_ANSWERED)
		zklock_roundtrip_end_reads(trip, npaths);
	return outcome;
}

void
zklock_roundtrip_end_reads(ZkRoundTrip *trip, int nreads)
{
	while (nreads-- > 0)
	{
		Read	   *one = llast(trip->reads);

		zklock_client_free(one->request);
		pfree(one);
		trip->reads = list_delete_last(trip->reads);
	}
}

/*
 * The trip has it before there is a request, so that this is freed whatever
 * raises.  Without memory for it awaiting it raises.
 */
static void
add_read(ZkRoundTrip *trip, ZkRead read, const char *path)
{
	Read	   *one = palloc0(offsetof(Read, path) + strlen(path) + 1);

	one->read = read;
	strcpy(one->path, path);
	trip->reads = lappend(trip->reads, one);
	one->request = zklock_client_read(zklock_session_client(), read, path);
}

/* Asked again as long as the answer is lost with the connection. */
static ZkOutcome
await_read(ZkRoundTrip *trip, Read *one, const ZkReply **reply)
{
	ZkOutcome	outcome;

	while ((outcome = zklock_roundtrip_await(trip, one->request,
											 reply)) == ZK_UNKNOWN)
	{
		zklock_client_free(one->request);
		one->request = zklock_client_read(zklock_session_client(), one->read,
										  one->path);
	}
	return outcome;
}

/*
 * The leader decides on a write, and a server answers reads from its own copy
 * of the data.  One read is proof: a session never reads what is older than the
 * answer to its last write, also after it has moved to another server, which
 * would not have taken it otherwise.  Copies that differed were seen in the
 * field (ZOOKEEPER-2355, -3144, -4837): a follower kept an ephemeral znode.
 */
ZkOutcome
zklock_roundtrip_check_refusal(ZkRoundTrip *trip, ZkResult refusal,
							   const char *path, int64 czxid, int version)
{
	const ZkReply *reply;
	ZkOutcome	outcome;

	if (refusal != ZK_NO_NODE && refusal != ZK_BAD_VERSION)
		return ZK_ANSWERED;
	outcome = zklock_roundtrip_read(trip, ZK_GET, path, &reply);
	if (outcome != ZK_ANSWERED || reply->result != ZK_OK ||
		(czxid != 0 && reply->czxid != czxid))
		return outcome;
	if (refusal == ZK_NO_NODE)
		zklock_session_raise_difference(path, "the server shows it, and the leader does not have it");
	if (reply->version == version)
		zklock_session_raise_difference(path, "the server shows another version of it than the leader has");
	return ZK_ANSWERED;
}

void
zklock_roundtrip_note_doubt(ZkRoundTrip *trip, const char *path,
							const char *how)
{
	if (strncmp(trip->doubted, path, sizeof(trip->doubted) - 1) != 0)
		trip->ndoubts = 0;
	strlcpy(trip->doubted, path, sizeof(trip->doubted));
	if (++trip->ndoubts > DOUBTS_MAX)
		zklock_session_raise_difference(path, how);
}

void
zklock_roundtrip_begin_read(ZkRoundTrip *trip, ZkRead read, const char *path)
{
	if (find_read(trip, read, path) == NULL)
		add_read(trip, read, path);
}

/* NULL: that was not begun. */
static Read *
find_read(const ZkRoundTrip *trip, ZkRead read, const char *path)
{
	foreach_ptr(Read, one, trip->reads)
		if (one->read == read && strcmp(one->path, path) == 0)
			return one;
	return NULL;
}

ZkOutcome
zklock_roundtrip_await_reads(ZkRoundTrip *trip)
{
	foreach_ptr(Read, one, trip->reads)
	{
		const ZkReply *reply;	/* zklock_roundtrip_find_reply() finds it */
		ZkOutcome	outcome = await_read(trip, one, &reply);

		if (outcome != ZK_ANSWERED)
			return outcome;
	}
	return ZK_ANSWERED;
}

const ZkReply *
zklock_roundtrip_find_reply(const ZkRoundTrip *trip, ZkRead read,
							const char *path)
{
	const Read *one = find_read(trip, read, path);

	/* a request that could not be made raises where it is awaited */
	if (one == NULL || one->request == NULL)
		return NULL;
	return zklock_client_reply(one->request);
}

void
zklock_roundtrip_get_ahead(ZkRoundTrip *trip, const char *path)
{
	zklock_roundtrip_ask_ahead(trip,
							   zklock_client_read(zklock_session_client(),
												  ZK_GET, path));
}

void
zklock_roundtrip_ask_ahead(ZkRoundTrip *trip, ZkRequest *request)
{
	zklock_client_free(trip->ahead);
	trip->ahead = request;
}

ZkOutcome
zklock_roundtrip_reply_ahead(const ZkRoundTrip *trip, const ZkReply **reply)
{
	*reply = NULL;
	if (trip->ahead != NULL)
		*reply = zklock_client_reply(trip->ahead);
	if (*reply == NULL)
		return ZK_UNKNOWN;
	return zklock_session_outcome(*reply);
}

/*
 * A child that is in it by now keeps it; a contender that was about to join makes
 * it anew.
 */
void
zklock_roundtrip_unmake(ZkRoundTrip *trip)
{
	if (trip->made != NULL)
		zklock_roundtrip_drop(trip->made);
	trip->made = NULL;
}

void
zklock_roundtrip_drop(const char *path)
{
	zklock_client_free(zklock_client_remove(zklock_session_client(), path,
											ZK_ANY_VERSION));
}

void
zklock_roundtrip_end(ZkRoundTrip *trip)
{
	zklock_client_free(trip->ahead);
	trip->ahead = NULL;
	zklock_client_free(trip->request);
	trip->request = NULL;
	zklock_roundtrip_end_reads(trip, list_length(trip->reads));
	if (trip->inner != NULL)
		zklock_roundtrip_end(trip->inner);
	trip->inner = NULL;
}

static void
end_talk(Talk *talk)
{
	zklock_roundtrip_end(&talk->trip);
	if (talk->forget != NULL)
		talk->forget(talk->argument);
}

/*
 * It has raised, or the backend is terminated in the middle of it.  Then what
 * is sent here is answered before the session is closed, if the ensemble
 * answers soon.  Never raises, never waits.
 */
static void
abandon_talk(int code, Datum arg)
{
	Talk	   *talk = (Talk *) DatumGetPointer(arg);

	/* a container that was made for what was refused */
	if (zklock_session_client() != NULL)
		zklock_roundtrip_unmake(&talk->trip);
	end_talk(talk);
	if (!talk->was_used && !proc_exit_inprogress)
		zklock_session_end_use();
}
