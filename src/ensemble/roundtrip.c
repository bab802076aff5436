/*-------------------------------------------------------------------------
 *
 * roundtrip.c
 *	  Requests to the ensemble that are awaited, one or many at a time: bounds,
 *	  retries, and the loop that begins anew with another session.
 *
 * Requests are malloc'ed memory of client.c, which no memory context
 * frees.  So zklock_roundtrip_run() cleans up after errors.  A request that is
 * freed before its answer goes on: what it asks for may still be done.
 *
 *-------------------------------------------------------------------------
 */
#include "roundtrip.h"

#include "storage/ipc.h"

#include "nodedata.h"
#include "stat.h"
#include "text.h"

/*
 * How often in a row answers about a znode may contradict each other: nobody
 * changes it just then so often.
 */
#define DOUBTS_MAX 10

/* One of many reads, palloc'ed. */
typedef struct Look
{
	ZkRead		read;
	ZkRequest  *request;
	char		path[FLEXIBLE_ARRAY_MEMBER];
} Look;

/* One call of zklock_roundtrip_run_within(). */
typedef struct Talk
{
	ZkRoundTrip trip;
	void		(*forget) (void *argument); /* or NULL */
	void	   *argument;		/* of forget */
	bool		was_used;		/* the session, before the call */
} Talk;

static Look *find_look(const ZkRoundTrip *trip, ZkRead read, const char *path);
static void end_talk(Talk *talk);
static void abandon_talk(int code, Datum arg);

void
zklock_roundtrip_run(bool (*talk) (ZkRoundTrip *trip, void *argument),
					 void (*forget) (void *argument), void *argument)
{
	ZkBounds	bounds = zklock_bounds_of_task();

	zklock_roundtrip_run_within(&bounds, talk, forget, argument);
}

void
zklock_roundtrip_run_within(const ZkBounds *bounds,
							bool (*talk) (ZkRoundTrip *trip, void *argument),
							void (*forget) (void *argument), void *argument)
{
	Talk		talking = {
		.forget = forget,
		.argument = argument,
		.was_used = zklock_session_is_used()
	};
	ZkRoundTrip *trip = &talking.trip;
	volatile bool is_over = false;

	for (volatile bool is_again = false; !is_over; is_again = true)
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
			is_over = talk(trip, argument);
		}
		PG_END_ENSURE_ERROR_CLEANUP(abandon_talk, PointerGetDatum(&talking));
		end_talk(&talking);
	}
	if (!talking.was_used)
		zklock_session_end_use();
}

const ZkReply *
zklock_roundtrip_ask(ZkRoundTrip *trip, ZkRequest *request)
{
	zklock_client_free(trip->request);
	trip->request = request;
	return zklock_roundtrip_await(trip, request);
}

const ZkReply *
zklock_roundtrip_await(const ZkRoundTrip *trip, ZkRequest *request)
{
	const ZkReply *reply = zklock_session_await(request, trip->deadline,
												ZK_WAITING_FOR_REPLY);

	if (reply == NULL && trip->by == ZK_BY_LOCK_TIMEOUT)
	{
		zklock_stat_count(ZK_STAT_UNANSWERED);
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("canceling statement due to lock timeout"),
				 zklock_session_explain_silence()));
	}
	if (reply == NULL && trip->by == ZK_BY_CONNECT_TIMEOUT)
		zklock_session_raise_silence(NULL);
	return reply;
}

const ZkReply *
zklock_roundtrip_read(ZkRoundTrip *trip, ZkRead read, const char *path)
{
	const ZkReply *reply;

	do
	{
		reply = zklock_roundtrip_ask(trip,
									 zklock_client_read(zklock_session_client(),
														read, path));
	} while (reply != NULL && reply->result == ZK_UNKNOWN_OUTCOME);
	return reply;
}

/*
 * A server may lag behind, or be a former leader that does not know it yet;
 * then its reads are old.  Such a server cannot answer the check, which goes
 * through the quorum, so a read behind the check is not older than it,
 * whatever the check's result.  That holds for one connection: after a
 * reconnect both are asked again.
 */
const ZkReply *
zklock_roundtrip_read_newest(ZkRoundTrip *trip, ZkRead read, const char *path)
{
	for (;;)
	{
		const ZkReply *reply = zklock_roundtrip_read(trip, ZK_CHECK, path);

		if (reply == NULL || reply->result == ZK_SESSION_LOST)
			return reply;
		reply = zklock_roundtrip_ask(trip,
									 zklock_client_read(zklock_session_client(),
														read, path));
		if (reply == NULL || reply->result != ZK_UNKNOWN_OUTCOME)
			return reply;
	}
}

/*
 * The leader decides on a write, and a server answers reads from its own copy
 * of the data.  One read is proof: a session never reads what is older than the
 * answer to its last write, also after it has moved to another server, which
 * would not have taken it otherwise.  Copies that differed were seen in the
 * field (ZOOKEEPER-2355, -3144, -4837): a follower kept an ephemeral znode.
 */
void
zklock_roundtrip_check_refusal(ZkRoundTrip *trip, ZkResult refusal,
							   const char *path, int64 czxid, int version)
{
	const ZkReply *reply;

	if (refusal != ZK_NO_NODE && refusal != ZK_BAD_VERSION)
		return;
	reply = zklock_roundtrip_read(trip, ZK_GET, path);
	if (reply == NULL || reply->result != ZK_OK ||
		(czxid != 0 && reply->czxid != czxid))
		return;
	if (refusal == ZK_NO_NODE)
		zklock_session_raise_difference(path, "the server shows it, and the leader does not have it");
	if (reply->version == version)
		zklock_session_raise_difference(path, "the server shows another version of it than the leader has");
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

const ZkReply *
zklock_roundtrip_look(ZkRoundTrip *trip, ZkRead read, const char *path)
{
	Look	   *look = find_look(trip, read, path);

	if (look != NULL && look->request == NULL)
		return NULL;			/* no memory: awaiting it raises */
	if (look != NULL)
		return zklock_client_reply(look->request);
	look = palloc0(offsetof(Look, path) + strlen(path) + 1);
	look->read = read;
	strcpy(look->path, path);
	trip->looks = lappend(trip->looks, look);
	look->request = zklock_client_read(zklock_session_client(), read, path);
	return NULL;
}

/* NULL: that was not asked for. */
static Look *
find_look(const ZkRoundTrip *trip, ZkRead read, const char *path)
{
	foreach_ptr(Look, look, trip->looks)
		if (look->read == read && strcmp(look->path, path) == 0)
			return look;
	return NULL;
}

bool
zklock_roundtrip_await_looks(ZkRoundTrip *trip)
{
	foreach_ptr(Look, look, trip->looks)
	{
		const ZkReply *reply;

		while ((reply = zklock_roundtrip_await(trip, look->request)) != NULL &&
			   reply->result == ZK_UNKNOWN_OUTCOME)
		{
			zklock_client_free(look->request);
			look->request = zklock_client_read(zklock_session_client(),
											   look->read, look->path);
		}
		if (reply == NULL || reply->result == ZK_SESSION_LOST)
			return false;
	}
	return true;
}

const ZkReply *
zklock_roundtrip_await_look(const ZkRoundTrip *trip, ZkRead read,
							const char *path)
{
	return zklock_roundtrip_await(trip, find_look(trip, read, path)->request);
}

void
zklock_roundtrip_end_looks(ZkRoundTrip *trip)
{
	zklock_roundtrip_end_looks_behind(trip, 0);
}

void
zklock_roundtrip_end_looks_behind(ZkRoundTrip *trip, int nkept)
{
	while (list_length(trip->looks) > nkept)
	{
		Look	   *look = llast(trip->looks);

		zklock_client_free(look->request);
		pfree(look);
		trip->looks = list_delete_last(trip->looks);
	}
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

const ZkReply *
zklock_roundtrip_reply_ahead(ZkRoundTrip *trip)
{
	return trip->ahead != NULL ? zklock_client_reply(trip->ahead) : NULL;
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
	zklock_roundtrip_end_looks(trip);
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
