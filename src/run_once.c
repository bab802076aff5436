/*-------------------------------------------------------------------------
 *
 * run_once.c
 *	  Jobs that run once: records of who ran which slot of a job.
 *
 * A lock keeps two from running a job at the same time.  It does not keep the
 * second from running it again when the first has finished: a cluster whose
 * clock is late, or that had to wait for its connection.  So each run of the
 * job has a slot, a text that all clusters derive in the same way (the minute
 * that it was due, a file's name), and the first to create the record of the
 * slot, a persistent znode, runs it.
 *
 * Why never two get true for one record.  The server creates a path once.
 * Each record carries a GUID that its creator made up, and true is returned
 * only for a record with the caller's own GUID; hence to its creator only.  A
 * create is repeated, with the same GUID, until its outcome is known: when
 * the reply was lost the record is found and read, whichever attempt made it,
 * in this session or in the next.  Should the server carry out an attempt
 * later still, it finds the path taken.
 *
 * What can happen instead is that nobody gets true: at most once, not at
 * least once.  An error may leave while a create is under way (a cancel, a
 * time-out, no connection).  Deleting the record then would not do: the
 * delete, or its repetition, could hit the record of somebody who got true
 * meanwhile.  So the GUID is kept, and the next call of this backend for the
 * same slot goes on where this one stopped.  If the backend ends before, the
 * slot is taken and was not run; its record says by whom, and zk_forget_run()
 * gives it free.
 *
 * When a record is deleted its slot can be claimed anew, and a delete names a
 * path and nothing that tells the old record from the new one.  So all
 * records of a root have a guard, the znode that they are below, and records
 * are deleted in one transaction with a set of the guard's data, for which it
 * must have the version that it had before the record was read.  If anybody
 * has deleted a record since, ours goes nowhere, however late it comes; and
 * if nobody has, the record is the one that was read.  The guard is never
 * deleted, so its version does not begin anew.  Nobody waits for anybody,
 * whatever strangers put beside the records.
 *
 * Old records are deleted with one attempt, by those who claim others: one
 * that is lost does not matter, somebody will try again.  Who has more of
 * them than one transaction takes must see each done before the next: the
 * version that it would have left may be somebody else's doing.  How long a
 * record is kept it says itself, so that nobody prunes what others rely on.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/pg_prng.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "args.h"
#include "name.h"
#include "nodedata.h"
#include "queue.h"
#include "retention.h"
#include "roundtrip.h"
#include "session.h"

/* How long a claim may be held up by deleting old records. */
#define PRUNE_MS 2000

/* A claim under way. */
typedef struct Claim
{
	const char *name;
	const char *slot;
	int64		retain_ms;
	const char *caller;			/* and what he claims, for the log */
	const char *run;
	bool		may_be_there;	/* a create was sent, and what came of it is
								 * not known, or not told to anybody */
	bool		is_ours;		/* the result, valid when it is over */
} Claim;

/* What pruning asks. */
typedef struct Pruning
{
	int64		deadline;
	int64		now_ms;			/* the servers' clock */
	const char *guard;
	const char *claimed;		/* path of the new record, which stays */
	ZkRequest  *list;
	ZkRequest  *guarded;		/* get of the guard, ahead of the records' */
	ZkRequest **gets;
	ZkRequest  *removal;		/* of some records, the last that was sent */
	char	  **paths;
	int			ngets;
} Pruning;

/* What zk_forget_run() asks. */
typedef struct Forgetting
{
	const char *name;
	const char *slot;
	ZkRemoval	removal;
} Forgetting;

/* The claim whose outcome is not known yet. */
static struct
{
	char	   *path;			/* in TopMemoryContext; NULL: there is none */
	char		guid[RECIPE_GUID_LEN + 1];
}			Unsettled;

PG_FUNCTION_INFO_V1(zk_run_once);
PG_FUNCTION_INFO_V1(zk_forget_run);
PG_FUNCTION_INFO_V1(zk_runs);

static bool claim_once(const char *name, const char *slot, int64 retain_ms);
static bool forget_run(const char *name, const char *slot);
static ZkQueueEntry *read_runs(const char *name, int *nruns);
static void log_unsettled(int code, Datum arg);
static char *describe_run(const char *name, const char *slot);
static bool claim_slot(ZkRoundTrip *trip, void *argument);
static void begin_claim(const char *path);
static void settle_claim(void);
static char *record_data(int64 retain_ms);
static bool take_record(const ZkReply *reply);
static int	count_records(ZkRoundTrip *trip);
static bool finish_claim(ZkRoundTrip *trip, Claim *claim,
						 const char *path, const char *guard,
						 const ZkReply *record, int nothers);
static void prune(const char *guard, const char *claimed, int64 now_ms,
				  int nrecords);
static void ask_for_records(Pruning *pruning);
static void remove_old_records(Pruning *pruning);
static bool is_old(Pruning *pruning, int index);
static bool remove_some(Pruning *pruning, int version, char **paths,
						int npaths, bool is_last);
static bool forget_slot(ZkRoundTrip *trip, void *argument);
static bool read_record(ZkRoundTrip *trip, ZkRemoval *removal);
static bool remove_record(ZkRoundTrip *trip, const char *guard,
						  ZkRemoval *removal);
static bool is_usable(const char *guard, int version);
static char *directory_of(const char *record);
static bool is_record(const char *child);

/* ---------------------------------------------------------------------
 * SQL functions
 * ---------------------------------------------------------------------
 */

Datum
zk_run_once(PG_FUNCTION_ARGS)
{
	char	   *name = zklock_args_name(fcinfo);
	char	   *slot = zklock_args_text(fcinfo, 1, "slot");
	double		retain_ms;

	if (PG_ARGISNULL(2))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("retention must not be null"),
				 errhint("To keep all records, give a long interval.")));
	retain_ms = zklock_args_milliseconds(PG_GETARG_INTERVAL_P(2));
	if (retain_ms < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("retention must not be negative")));
	PG_RETURN_BOOL(claim_once(name, slot,
							  (int64) Min(retain_ms,
										  (double) (PG_INT64_MAX / 4))));
}

Datum
zk_forget_run(PG_FUNCTION_ARGS)
{
	char	   *name = zklock_args_name(fcinfo);

	PG_RETURN_BOOL(forget_run(name, zklock_args_text(fcinfo, 1, "slot")));
}

Datum
zk_runs(PG_FUNCTION_ARGS)
{
	char	   *name = zklock_args_name(fcinfo);
	ReturnSetInfo *result = zklock_args_begin_rows(fcinfo);
	int			nruns;
	ZkQueueEntry *runs = read_runs(name, &nruns);

	for (int i = 0; i < nruns; i++)
	{
		ZkNodeData *who = &runs[i].who;
		Datum		values[9] = {0};
		bool		nulls[9] = {0};

		values[0] = CStringGetTextDatum(zklock_nodedata_printable(runs[i].node));
		values[1] = TimestampTzGetDatum(runs[i].since);
		nulls[1] = runs[i].token == 0;
		values[2] = zklock_args_text_or_null(who->cluster, &nulls[2]);
		values[3] = zklock_args_text_or_null(who->database, &nulls[3]);
		values[4] = zklock_args_text_or_null(who->username, &nulls[4]);
		values[5] = zklock_args_text_or_null(who->application, &nulls[5]);
		values[6] = Int32GetDatum(who->pid);
		nulls[6] = who->pid == 0;
		values[7] = zklock_args_text_or_null(who->host, &nulls[7]);
		values[8] = zklock_args_text_or_null(who->text, &nulls[8]);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/*
 * Claim a slot of a job: true for exactly one caller for as long as the
 * record exists, for retain_ms at least.  After a true, some records of the
 * same name whose time is over by the servers' clock are deleted; with too
 * many that are not, 54000 and nothing is left.  If this raises, the slot may
 * have been claimed; then nobody has got a true for it, and the next call in
 * this session for the same slot will.  Raises 42602 for a bad name or slot,
 * 55P03 at lock_timeout, and as the session does.
 */
static bool
claim_once(const char *name, const char *slot, int64 retain_ms)
{
	Claim	   *claim = palloc0(sizeof(*claim));

	/* a bad argument needs no connection */
	pfree(zklock_name_run_path(name, slot, NULL));
	claim->name = name;
	claim->slot = slot;
	claim->retain_ms = retain_ms;
	claim->caller = zklock_nodedata_caller();
	claim->run = describe_run(name, slot);

	/* the end of the backend, too, may leave a record that nobody knows of */
	PG_ENSURE_ERROR_CLEANUP(log_unsettled, PointerGetDatum(claim));
	{
		zklock_roundtrip_run(claim_slot, NULL, claim);
	}
	PG_END_ENSURE_ERROR_CLEANUP(log_unsettled, PointerGetDatum(claim));

	/* which looks for interrupts, too */
	if (claim->is_ours)
		ereport(LOG,
				(errmsg("%s recorded a %s", claim->caller, claim->run),
				 errdetail("The record is kept for " INT64_FORMAT " ms.", retain_ms)));

	/* a cancel that came with the last reply: nobody has got the answer yet */
	CHECK_FOR_INTERRUPTS();
	settle_claim();
	return claim->is_ours;
}

/* Delete the record of a slot; false if there is none.  Raises likewise. */
static bool
forget_run(const char *name, const char *slot)
{
	Forgetting	forgetting = {.name = name,.slot = slot};

	/* a bad argument needs no connection */
	pfree(zklock_name_run_path(name, slot, NULL));
	zklock_roundtrip_run(forget_slot, NULL, &forgetting);
	return forgetting.removal.is_removed;
}

/*
 * Read all records of a job, in the order of their slots.  An entry's node is
 * the name of the slot, UTF-8.  As zklock_read_queue().
 */
static ZkQueueEntry *
read_runs(const char *name, int *nruns)
{
	int			nentries;
	ZkQueueEntry *entries;

	entries = zklock_read_children(zklock_name_runs_path, name, &nentries);
	*nruns = 0;
	for (int i = 0; i < nentries; i++)
	{
		if (!is_record(entries[i].node))
			continue;
		entries[i].node = pnstrdup(entries[i].node,
								   strlen(entries[i].node) -
								   strlen(ZK_RUNS_SUFFIX));
		entries[(*nruns)++] = entries[i];
	}
	return entries;
}

/* ---------------------------------------------------------------------
 * Claiming
 * ---------------------------------------------------------------------
 */

/* An error, or the end of the backend, while a record may be there. */
static void
log_unsettled(int code, Datum arg)
{
	const Claim *claim = (const Claim *) DatumGetPointer(arg);

	if (claim->may_be_there)
		ereport(LOG,
				(errmsg("%s may have recorded a %s", claim->caller, claim->run),
				 errdetail("The call ended before it was known.")));
}

/* For the log, palloc'ed. */
static char *
describe_run(const char *name, const char *slot)
{
	return psprintf("run of slot \"%s\" of ZooKeeper job \"%s\"",
					zklock_nodedata_quotable_own(slot),
					zklock_nodedata_quotable_own(name));
}

static bool
claim_slot(ZkRoundTrip *trip, void *argument)
{
	Claim	   *claim = argument;
	ZkClient   *client = zklock_session_client();
	int			guard_length;
	char	   *path = zklock_name_run_path(claim->name, claim->slot,
											&guard_length);
	char	   *guard = pnstrdup(path, guard_length);
	char	   *directory = directory_of(path);
	char	   *data;
	const ZkReply *reply;
	int			attempts = 0;

	begin_claim(path);
	data = record_data(claim->retain_ms);
	claim->may_be_there = true;
	for (;;)
	{
		zklock_roundtrip_send_ahead(trip, zklock_client_get(client, directory));
		reply = zklock_roundtrip_ask(trip,
									 zklock_client_create(client, path,
														  ZK_PERSISTENT_OWN,
														  data, strlen(data)));
		switch (reply->result)
		{
			case ZK_OK:
				claim->is_ours = true;
				return finish_claim(trip, claim, path, guard, reply,
									count_records(trip));
			case ZK_NODE_EXISTS:
				break;
			case ZK_NO_NODE:
				if (++attempts > PARENT_ATTEMPTS)
					zklock_session_raise(reply, "record a run", path);
				zklock_roundtrip_make_parents(trip, path, guard_length);
				continue;
			case ZK_UNKNOWN_OUTCOME:
				continue;
			case ZK_SESSION_LOST:
				return false;
			default:
				zklock_session_raise(reply, "record a run", path);
		}

		/* our server knows at least what it has just refused */
		reply = zklock_roundtrip_ask(trip, zklock_client_get(client, path));
		switch (reply->result)
		{
			case ZK_OK:
				claim->is_ours = take_record(reply);
				if (!claim->is_ours)
					return true;
				return finish_claim(trip, claim, path, guard, reply,
									count_records(trip) - 1);
			case ZK_NO_AUTH:	/* ours we could read */
				claim->is_ours = false;
				return true;
			case ZK_NO_NODE:	/* deleted meanwhile */
			case ZK_UNKNOWN_OUTCOME:
				continue;
			case ZK_SESSION_LOST:
				return false;
			default:
				zklock_session_raise(reply, "record a run", path);
		}
	}
}

/*
 * Have a GUID for the record: the one of an earlier claim of that slot whose
 * outcome is not known, or a new one.
 */
static void
begin_claim(const char *path)
{
	char		guid[RECIPE_GUID_LEN + 1];
	char	   *copy;

	if (Unsettled.path != NULL && strcmp(Unsettled.path, path) == 0)
		return;
	zklock_nodedata_make_guid(guid);
	copy = MemoryContextStrdup(TopMemoryContext, path);
	settle_claim();
	Unsettled.path = copy;
	strlcpy(Unsettled.guid, guid, sizeof(Unsettled.guid));
}

/* The outcome is known, or does not matter any more. */
static void
settle_claim(void)
{
	if (Unsettled.path != NULL)
		pfree(Unsettled.path);
	Unsettled.path = NULL;
}

/*
 * Who claims, the GUID, and at the end, where it is looked for, the
 * retention.
 */
static char *
record_data(int64 retain_ms)
{
	char	   *data = zklock_nodedata_add(zklock_nodedata_build(0), "run",
										   Unsettled.guid);

	return zklock_nodedata_add(data, RETENTION_KEY,
							   psprintf(INT64_FORMAT, retain_ms));
}

/* Is the record that was read the one of this claim? */
static bool
take_record(const ZkReply *reply)
{
	return reply->data != NULL &&
		memmem(reply->data, reply->data_length, Unsettled.guid,
			   RECIPE_GUID_LEN) != NULL;
}

/*
 * How many records there are, by what was asked ahead of the last question.
 */
static int
count_records(ZkRoundTrip *trip)
{
	const ZkReply *directory = zklock_roundtrip_reply_ahead(trip);

	return directory != NULL && directory->result == ZK_OK ?
		directory->nbelow : 0;
}

/*
 * The record is ours.  Delete old ones; if there are too many others, also
 * ours again, and raise 54000: nobody has got a true for it.  false if the
 * session was lost on the way.
 */
static bool
finish_claim(ZkRoundTrip *trip, Claim *claim, const char *path,
			 const char *guard, const ZkReply *record, int nothers)
{
	ZkRemoval	removal = {
		.path = path,
		.doing = "delete the record of a run",
		.czxid = record->czxid
	};

	prune(guard, path, record->ctime_ms, nothers + 1);
	if (nothers < RETENTION_RECORDS_MAX)
		return true;
	if (!remove_record(trip, guard, &removal))
		return false;
	claim->may_be_there = false;
	ereport(ERROR,
			(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
			 errmsg("too many records of runs of \"%s\"", claim->name),
			 errdetail("There are %d records, and %d may be kept.",
					   nothers, RETENTION_RECORDS_MAX),
			 errhint("Each is kept for as long as its run asked for. Ask for less, spread slots over several names, or delete records with zk_forget_run().")));
}

/* ---------------------------------------------------------------------
 * Old records
 * ---------------------------------------------------------------------
 */

/*
 * Delete some records whose time is over.  Whatever ZooKeeper has against it
 * must not cost the caller the claim.  An interrupt does raise: the claim is
 * not settled yet.
 */
static void
prune(const char *guard, const char *claimed, int64 now_ms, int nrecords)
{
	Pruning    *pruning;

	if (!retention_should_list(nrecords, pg_prng_double(&pg_global_prng_state)))
		return;
	pruning = palloc0(sizeof(*pruning));
	pruning->guard = guard;
	pruning->claimed = claimed;
	pruning->now_ms = now_ms;
	pruning->deadline = zklock_client_now() + PRUNE_MS;
	PG_TRY();
	{
		ask_for_records(pruning);
		if (pruning->ngets > 0)
			remove_old_records(pruning);
	}
	PG_FINALLY();
	{
		zklock_client_free(pruning->list);
		zklock_client_free(pruning->guarded);
		zklock_client_free(pruning->removal);
		for (int i = 0; i < pruning->ngets; i++)
			zklock_client_free(pruning->gets[i]);
	}
	PG_END_TRY();
	pfree(pruning);
}

/*
 * List the records, and ask for the guard and then for some of them, chosen
 * at random, so that none stays however the slots are named.
 */
static void
ask_for_records(Pruning *pruning)
{
	ZkClient   *client = zklock_session_client();
	char	   *parent = directory_of(pruning->claimed);
	const ZkReply *list;
	int			first;
	int			nsample;

	pruning->list = zklock_client_list(client, parent);
	list = zklock_session_await(pruning->list, pruning->deadline,
								ZK_WAITING_FOR_REPLY);
	if (list == NULL || list->result != ZK_OK || list->nchildren == 0)
		return;
	nsample = Min(list->nchildren, retention_sample(list->nchildren));
	pruning->gets = palloc(nsample * sizeof(*pruning->gets));
	pruning->paths = palloc(nsample * sizeof(*pruning->paths));
	pruning->guarded = zklock_client_get(client, pruning->guard);
	first = pg_prng_uint64_range(&pg_global_prng_state, 0, list->nchildren - 1);
	for (int i = 0; i < nsample; i++)
	{
		const char *child = list->children[(first + i) % list->nchildren];
		char	   *path = psprintf("%s/%s", parent, child);

		if (!is_record(child) || strcmp(path, pruning->claimed) == 0)
			continue;
		pruning->paths[pruning->ngets] = path;
		pruning->gets[pruning->ngets++] = zklock_client_get(client, path);
	}
}

/*
 * Read the answers, and delete those that are over, as many in a transaction
 * as it may have, one after the other.
 */
static void
remove_old_records(Pruning *pruning)
{
	const ZkReply *guard = zklock_session_await(pruning->guarded,
												pruning->deadline,
												ZK_WAITING_FOR_REPLY);
	uint32		version;
	int			nold = 0;

	if (guard == NULL || guard->result != ZK_OK)
		return;
	version = guard->version;
	for (int i = 0; i < pruning->ngets; i++)
		if (is_old(pruning, i))
			pruning->paths[nold++] = pruning->paths[i];
	for (int i = 0; i < nold && is_usable(pruning->guard, version);
		 i += ZK_REMOVE_MAX)
		if (!remove_some(pruning, version++, pruning->paths + i,
						 Min(nold - i, ZK_REMOVE_MAX),
						 nold - i <= ZK_REMOVE_MAX))
			return;
}

/* Await one of the answers: is it a record that is to go? */
static bool
is_old(Pruning *pruning, int index)
{
	const ZkReply *reply = zklock_session_await(pruning->gets[index],
												pruning->deadline,
												ZK_WAITING_FOR_REPLY);

	/* one with children would spoil the transaction for all */
	return reply != NULL && reply->result == ZK_OK &&
		reply->ephemeral_owner == 0 && reply->nbelow == 0 &&
		retention_is_over(retention_read(reply->data, reply->data_length),
						  reply->ctime_ms, pruning->now_ms);
}

/*
 * Delete them if the guard has that version.  true if it has surely the next
 * one now by that; nobody waits for the last answer.
 */
static bool
remove_some(Pruning *pruning, int version, char **paths, int npaths,
			bool is_last)
{
	const ZkReply *reply;

	zklock_client_free(pruning->removal);
	pruning->removal = zklock_client_remove_guarded(zklock_session_client(),
													pruning->guard, version,
													(const char *const *) paths,
													npaths);
	if (is_last)
		return true;
	reply = zklock_session_await(pruning->removal, pruning->deadline,
								 ZK_WAITING_FOR_REPLY);
	return reply != NULL && reply->result == ZK_OK;
}

/* ---------------------------------------------------------------------
 * Forgetting
 * ---------------------------------------------------------------------
 */

/* Delete the record that is there at the first look, and no later one. */
static bool
forget_slot(ZkRoundTrip *trip, void *argument)
{
	Forgetting *forgetting = argument;
	ZkRemoval  *removal = &forgetting->removal;
	int			guard_length;

	removal->path = zklock_name_run_path(forgetting->name, forgetting->slot,
										 &guard_length);
	removal->doing = "delete the record of a run";
	if (removal->czxid == 0)
	{
		if (!read_record(trip, removal))
			return false;
		if (removal->czxid == 0)
			return true;

		/* before it is done: it may be interrupted, and be done all the same */
		ereport(LOG,
				(errmsg("%s deletes the record of a %s", zklock_nodedata_caller(),
						describe_run(forgetting->name, forgetting->slot))));
	}
	return remove_record(trip, pnstrdup(removal->path, guard_length), removal);
}

/*
 * Which record is there?  czxid stays 0 if there is none; false: session
 * lost.
 */
static bool
read_record(ZkRoundTrip *trip, ZkRemoval *removal)
{
	const ZkReply *reply = zklock_roundtrip_read_newest(trip, zklock_client_get, removal->path);

	if (reply->result == ZK_SESSION_LOST)
		return false;
	if (reply->result != ZK_OK && reply->result != ZK_NO_NODE)
		zklock_session_raise(reply, removal->doing, removal->path);
	if (reply->result == ZK_OK)
		removal->czxid = reply->czxid;
	return true;
}

/*
 * Delete the record with that czxid, if it is still there, as often as others
 * are faster with theirs.  false if the session was lost.
 */
static bool
remove_record(ZkRoundTrip *trip, const char *guard, ZkRemoval *removal)
{
	ZkClient   *client = zklock_session_client();

	for (;;)
	{
		bool		was_tried = removal->is_tried;
		const ZkReply *reply;
		const ZkReply *guarded;
		int			version;

		zklock_roundtrip_send_ahead(trip, zklock_client_get(client, guard));
		reply = zklock_roundtrip_ask(trip,
									 zklock_client_get(client, removal->path));
		guarded = zklock_roundtrip_reply_ahead(trip);
		if (reply->result == ZK_SESSION_LOST)
			return false;
		if (reply->result == ZK_UNKNOWN_OUTCOME || guarded == NULL ||
			guarded->result == ZK_UNKNOWN_OUTCOME)
			continue;
		if (reply->result != ZK_OK && reply->result != ZK_NO_NODE)
			zklock_session_raise(reply, removal->doing, removal->path);
		if (reply->result == ZK_NO_NODE || reply->czxid != removal->czxid ||
			guarded->result == ZK_NO_NODE)
		{
			removal->is_removed = was_tried;
			return true;
		}
		if (guarded->result != ZK_OK)
			zklock_session_raise(guarded, removal->doing, guard);

		version = guarded->version;
		if (!is_usable(guard, version))
			continue;
		removal->is_tried = true;
		reply = zklock_roundtrip_ask(trip,
									 zklock_client_remove_guarded(client,
																  guard,
																  version,
																  &removal->path, 1));
		switch (reply->result)
		{
			case ZK_OK:
				removal->is_removed = true;
				return true;
			case ZK_NO_NODE:
			case ZK_BAD_VERSION:
				removal->is_tried = was_tried;
				continue;
			case ZK_UNKNOWN_OUTCOME:
				continue;
			case ZK_SESSION_LOST:
				return false;
			default:
				zklock_session_raise(reply, removal->doing, removal->path);
		}
	}
}

/* ---------------------------------------------------------------------
 * Helpers
 * ---------------------------------------------------------------------
 */

/*
 * Versions have 32 bits and wrap.  One of them means any version to the
 * server: go past it.
 */
static bool
is_usable(const char *guard, int version)
{
	if (version != ZK_ANY_VERSION)
		return true;
	zklock_client_free(zklock_client_set(zklock_session_client(), guard,
										 "", 0, ZK_ANY_VERSION));
	return false;
}

/* The znode that a record is in. */
static char *
directory_of(const char *record)
{
	return pnstrdup(record, strrchr(record, '/') - record);
}

/* Is this child of the directory the record of a slot? */
static bool
is_record(const char *child)
{
	size_t		length = strlen(child);
	size_t		suffix_length = strlen(ZK_RUNS_SUFFIX);

	return length > suffix_length &&
		strcmp(child + length - suffix_length, ZK_RUNS_SUFFIX) == 0;
}
