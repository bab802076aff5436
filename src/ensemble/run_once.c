/*-------------------------------------------------------------------------
 *
 * run_once.c
 *	  Writes, reads and deletes the records of jobs that run once.
 *
 * A lock keeps two clusters from running a job at the same time.  It does not
 * keep the second one from running it again when the first has finished: its
 * clock may be late, or it may have had to wait for its connection.  So each
 * run of the job has a slot, a text that all clusters derive in the same way
 * (the minute that it was due, a file's name), and the first to create the
 * record of the slot, a persistent znode, runs it.
 *
 * Why no two callers get true for one record.  The server creates a path once.
 * Each record carries a GUID that its creator made up, and true is returned
 * only for a record with the caller's own GUID; hence to its creator only.  A
 * create is repeated, with the same GUID, until its outcome is known: when the
 * reply was lost the record is found and read, whichever attempt made it, in
 * this session or in the next.  Should the server carry out an attempt later
 * still, it finds the path taken; or, if the record was deleted, the guard
 * (below) set: each create has the guard's version as a condition.
 *
 * What can happen instead is that no caller gets true: at most once, not at
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
 * Old records are deleted with one attempt, by calls that claim other slots:
 * an attempt that is lost does not matter, another call will try again.  Each
 * record says itself how long it is kept, so that no call deletes a record on
 * which others rely.
 *
 * Clocks differ, by days if one is wrong, and an age is a difference of two.
 * So no single clock decides that a record is old: it was made at the later
 * of two dates, of the server that led and of the database that claimed; and
 * now is the earlier of two, of the server that leads and of the database that
 * deletes.
 *
 *-------------------------------------------------------------------------
 */
#include "run_once.h"

#include "common/string.h"
#include "miscadmin.h"
#include "storage/ipc.h"

#include "compat.h"
#include "ephemeral.h"
#include "nodedata.h"
#include "parents.h"
#include "removal.h"
#include "root.h"
#include "roundtrip.h"
#include "sample.h"
#include "session.h"
#include "take_rate.h"
#include "text.h"

/* Most records of one name. */
#define RECORDS_MAX 100000

/* How long a claim may be held up by deleting old records. */
#define PRUNE_MS 2000

/* The record of a slot. */
typedef struct Record
{
	ZkName		name;
	const char *run;			/* name and slot, for the log */
	ZkRemoval	removal;		/* its path, and how it is deleted, if it is */
} Record;

/* A claim under way. */
typedef struct Claim
{
	Record		record;
	int64		retain_ms;
	const char *caller;			/* who claims, for the log */
	int			attempts;		/* of this session */
	bool		may_be_there;	/* a create was sent, and what came of it is
								 * not known, or not told to anybody */
	bool		is_ours;		/* the result, valid when it is over */
	int			nrecords;		/* of the name, ahead of the create */
} Claim;

/*
 * The claim whose outcome is not known yet.  It belongs to the backend: its next
 * call for that slot goes on with it, in whatever session and transaction.
 */
static struct
{
	char		path[RECIPE_PATH_SIZE + RECIPE_NAME_MAX +
					 3 * sizeof(ZK_RUNS_SUFFIX)];	/* "": there is none */
	char		guid[RECIPE_GUID_LEN + 1];
}			Unresolved;

static void log_unresolved(int code, Datum arg);
static Record name_record(const ZkName *name, const char *slot);
static ZkOutcome claim_slot(ZkRoundTrip *trip, void *argument);
static ZkOutcome try_to_claim(ZkRoundTrip *trip, Claim *claim,
							  const char *data, bool *is_over);
static bool has_our_guid(const ZkReply *record);
static ZkOutcome go_on_claiming(ZkRoundTrip *trip, const Claim *claim,
								int version, const ZkReply *made);
static ZkOutcome read_guard(ZkRoundTrip *trip, Claim *claim, int *version);
static ZkOutcome make_directory(ZkRoundTrip *trip, const Claim *claim);
static char *begin_claim(const Claim *claim);
static ZkOutcome finish_claim(ZkRoundTrip *trip, Claim *claim,
							  const ZkReply *record, bool was_there);
static void prune_records(ZkRoundTrip *trip, Claim *claim, int64 now_ms);
static ZkOutcome forget_slot(ZkRoundTrip *trip, void *argument);
static char *directory_of(const char *record);

bool
zklock_run_claim(const ZkName *name, const char *slot, int64 retain_ms)
{
	Claim	   *claim = palloc0(sizeof(*claim));
	ZkBounds	bounds = zklock_bounds_of_question();

	claim->record = name_record(name, slot);
	claim->retain_ms = retain_ms;
	claim->caller = zklock_nodedata_caller();
	zklock_take_rate_count(1);

	/* the end of the backend, too, may leave a record that nobody knows of */
	PG_ENSURE_ERROR_CLEANUP(log_unresolved, PointerGetDatum(claim));
	{
		zklock_roundtrip_must_run(&bounds, claim_slot, NULL, claim);
	}
	PG_END_ENSURE_ERROR_CLEANUP(log_unresolved, PointerGetDatum(claim));

	/* which looks for interrupts, too */
	if (claim->is_ours)
		ereport(ZK_LOG_DEED,
				(errmsg("%s recorded a %s", claim->caller, claim->record.run),
				 errdetail("The record is kept for " INT64_FORMAT " ms.",
						   claim->retain_ms)));

	/* a cancel that came with the last reply: nobody has got the answer yet */
	CHECK_FOR_INTERRUPTS();
	Unresolved.path[0] = '\0';
	return claim->is_ours;
}

bool
zklock_run_forget(const ZkName *name, const char *slot)
{
	Record		record = name_record(name, slot);

	zklock_roundtrip_must_run(NULL, forget_slot, NULL, &record);
	return record.removal.is_removed;
}

int
zklock_run_slot_length(const char *child)
{
	if (!pg_str_endswith(child, ZK_RUNS_SUFFIX))
		return 0;
	return strlen(child) - strlen(ZK_RUNS_SUFFIX);
}

/* ---------------------------------------------------------------------
 * Claiming
 * ---------------------------------------------------------------------
 */

/* An error, or the end of the backend, while a record may be there. */
static void
log_unresolved(int code, Datum arg)
{
	const Claim *claim = (const Claim *) DatumGetPointer(arg);

	if (claim->may_be_there)
		ereport(ZK_LOG_DEED,
				(errmsg("%s may have recorded a %s", claim->caller, claim->record.run),
				 errdetail("The call ended before it was known.")));
}

/*
 * The record of that slot, with its path.  Raises if the names make too long a
 * path, and needs no connection.
 */
static Record
name_record(const ZkName *name, const char *slot)
{
	int			guard_length;
	Record		record = {
		.name = *name,
		.removal = {
			.path = zklock_name_run_path(name, slot, &guard_length),
			.doing = "delete the record of a run"
		}
	};

	record.removal.guard = pnstrdup(record.removal.path, guard_length);
	record.run = psprintf("run of slot \"%s\" of ZooKeeper job \"%s\"",
						  zklock_text_quotable_own(slot),
						  zklock_text_quotable_own(name->text));
	return record;
}

static ZkOutcome
claim_slot(ZkRoundTrip *trip, void *argument)
{
	Claim	   *claim = argument;
	const ZkName *name = &claim->record.name;
	ZkOutcome	outcome = zklock_root_prove(trip, name->path,
											name->root_length);
	bool		is_over = false;
	char	   *data;

	if (outcome != ZK_ANSWERED)
		return outcome;
	data = begin_claim(claim);
	claim->attempts = 0;
	while (outcome == ZK_ANSWERED && !is_over)
		outcome = try_to_claim(trip, claim, data, &is_over);
	return outcome;
}

/*
 * Create the record by the guard's version, and read it in the same flush.
 * *is_over: it is known whose the record is; otherwise try again.
 */
static ZkOutcome
try_to_claim(ZkRoundTrip *trip, Claim *claim, const char *data, bool *is_over)
{
	const char *path = claim->record.removal.path;
	const ZkReply *record;
	const ZkReply *made;
	ZkResult	result;			/* of the create */
	ZkOutcome	outcome;
	int			version;

	*is_over = false;
	claim->attempts++;
	outcome = read_guard(trip, claim, &version);
	if (outcome != ZK_ANSWERED || version == ZK_ANY_VERSION)
		return outcome;
	claim->may_be_there = true;
	zklock_roundtrip_ask_ahead(trip,
							   zklock_client_create_guarded(zklock_session_client(),
															path,
															claim->record.removal.guard,
															version, data));
	outcome = zklock_roundtrip_ask(trip,
								   zklock_client_read(zklock_session_client(),
													  ZK_GET, path),
								   &record);
	if (outcome == ZK_LATE || outcome == ZK_LOST)
		return outcome;
	result = ZK_UNKNOWN_OUTCOME;
	if (zklock_roundtrip_reply_ahead(trip, &made) == ZK_ANSWERED)
		result = made->result;
	claim->is_ours = result == ZK_OK || has_our_guid(record);
	if (claim->is_ours && outcome == ZK_ANSWERED)
	{
		*is_over = true;
		return finish_claim(trip, claim, record, result != ZK_OK);
	}
	*is_over = record->result == ZK_OK ||	/* ours we could read */
		(result == ZK_NODE_EXISTS && record->result == ZK_NO_AUTH);
	if (*is_over || result == ZK_UNKNOWN_OUTCOME)
		return ZK_ANSWERED;
	return go_on_claiming(trip, claim, version, made);
}

static bool
has_our_guid(const ZkReply *record)
{
	return record->result == ZK_OK && record->data != NULL &&
		memmem(record->data, record->data_length, Unresolved.guid,
			   RECIPE_GUID_LEN) != NULL;
}

/*
 * The record is not known to be there: by the reply to its create, which went by
 * that version of the guard.
 */
static ZkOutcome
go_on_claiming(ZkRoundTrip *trip, const Claim *claim, int version,
			   const ZkReply *made)
{
	const char *path = claim->record.removal.path;

	switch (made->result)
	{
		case ZK_NODE_EXISTS:	/* deleted meanwhile */
			zklock_roundtrip_note_doubt(trip, path, "the leader has it, and the server does not show it");
			return ZK_ANSWERED;
		case ZK_BAD_VERSION:	/* another one was */
			return zklock_roundtrip_check_refusal(trip, ZK_BAD_VERSION,
												  claim->record.removal.guard,
												  0, version);
		case ZK_OK:				/* its record could not be read yet */
			return ZK_ANSWERED;
		case ZK_NO_NODE:
			if (claim->attempts <= PARENT_ATTEMPTS)
				return make_directory(trip, claim);
			pg_fallthrough;
		default:
			zklock_ephemeral_refuse(made, path);
			zklock_session_raise(made, "record a run", path);
	}
}

/*
 * Read the version of the guard, and how many records there are.
 * ZK_ANY_VERSION: try again.
 */
static ZkOutcome
read_guard(ZkRoundTrip *trip, Claim *claim, int *version)
{
	const ZkReply *guard;
	const ZkReply *directory;
	ZkOutcome	outcome;

	*version = ZK_ANY_VERSION;
	zklock_roundtrip_get_ahead(trip, directory_of(claim->record.removal.path));
	outcome = zklock_roundtrip_read(trip, ZK_GET, claim->record.removal.guard,
									&guard);
	if (outcome != ZK_ANSWERED)
		return outcome;
	claim->nrecords = 0;
	if (zklock_roundtrip_reply_ahead(trip, &directory) == ZK_ANSWERED &&
		directory->result == ZK_OK)
		claim->nrecords = directory->nbelow;
	if (guard->result == ZK_NO_NODE)
	{
		zklock_roundtrip_note_doubt(trip, claim->record.removal.guard,
									"it is made again and again, and the server does not show it");
		return make_directory(trip, claim);
	}
	if (guard->result != ZK_OK)
		zklock_session_raise(guard, "record a run", claim->record.removal.guard);
	if (guard->version == ZK_ANY_VERSION)
		zklock_removal_advance(claim->record.removal.guard);
	*version = guard->version;
	return ZK_ANSWERED;
}

/* Make what the record is to be in, and the guard. */
static ZkOutcome
make_directory(ZkRoundTrip *trip, const Claim *claim)
{
	const char *path = claim->record.removal.path;
	const ZkReply *refusal;
	ZkOutcome	outcome =
		zklock_parents_make(trip, path, strlen(claim->record.removal.guard),
							&refusal);

	if (outcome == ZK_ANSWERED && refusal != NULL)
	{
		zklock_ephemeral_refuse(refusal, path);
		zklock_session_raise(refusal, "record a run", path);
	}
	return outcome;
}

/*
 * Have a GUID for the record: the one of an earlier claim of that slot whose
 * outcome is not known, or a new one.  Result: the record's data: who claims,
 * the GUID, for how long it is kept, and since when.
 */
static char *
begin_claim(const Claim *claim)
{
	int64		now_ms = protocol_moment().wall_ms;

	if (strcmp(Unresolved.path, claim->record.removal.path) != 0)
	{
		zklock_nodedata_make_guid(Unresolved.guid);	/* or it raises, and leaves it */
		strlcpy(Unresolved.path, claim->record.removal.path, sizeof(Unresolved.path));
	}
	return zklock_nodedata_build(0, "run", Unresolved.guid, "retain",
								 psprintf(INT64_FORMAT, claim->retain_ms),
								 "claimed", psprintf(INT64_FORMAT, now_ms),
								 NULL);
}

/*
 * The record is ours, by this attempt or because it was there.  Delete old
 * ones; if there are too many others, as was asked ahead of the create,
 * also ours again, and raise 54000: nobody has got a true for it.
 */
static ZkOutcome
finish_claim(ZkRoundTrip *trip, Claim *claim, const ZkReply *record,
			 bool was_there)
{
	int			nothers = Max(claim->nrecords - was_there, 0);
	ZkOutcome	outcome;

	claim->record.removal.czxid = record->czxid;
	if (zklock_sample_is_due(nothers))
		prune_records(trip, claim,
					  Min(record->ctime_ms, protocol_moment().wall_ms));
	if (nothers < RECORDS_MAX)
		return ZK_ANSWERED;
	outcome = zklock_removal_do(trip, &claim->record.removal);
	if (outcome != ZK_ANSWERED)
		return outcome;
	claim->may_be_there = false;
	ereport(ERROR,
			(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
			 errmsg("too many records of runs of \"%s\"",
					claim->record.name.text),
			 errdetail("There are %d records, and %d may be kept.",
					   nothers, RECORDS_MAX),
			 errhint("Use a shorter retain, spread the slots over several names, or delete records with zk_forget_run().")));
}

/* ---------------------------------------------------------------------
 * Old records
 * ---------------------------------------------------------------------
 */

/*
 * Is that znode of the sample a record that is to go, and not our own?  The
 * server that answers may lie: no sum may overflow.
 */
static bool
is_old(const ZkSample *sample, int index, const char *own, int64 now_ms)
{
	const char *path = sample->paths[index];
	const ZkReply *reply = sample->replies[index];
	ZkNodeData	record;

	/* one with children would spoil the transaction for all */
	if (reply->result != ZK_OK ||
		zklock_run_slot_length(strrchr(path, '/') + 1) == 0 ||
		strcmp(path, own) == 0 ||
		reply->ephemeral_owner != 0 || reply->nbelow != 0)
		return false;
	zklock_nodedata_parse(reply->data, reply->data_length, &record);
	return record.retain_ms >= 0 && reply->ctime_ms >= 0 && now_ms >= 0 &&
		now_ms - Max(reply->ctime_ms, record.claimed_ms) > record.retain_ms;
}

/*
 * Delete some records whose time is over now, all in one transaction with the
 * guard.  Nobody waits for the reply, and whatever ZooKeeper has against it
 * does not cost the caller the claim.  An interrupt does raise: the claim is
 * not over yet.
 */
static void
prune_records(ZkRoundTrip *trip, Claim *claim, int64 now_ms)
{
	const ZkSample *sample;
	const char *old[ZK_SAMPLE_MAX];
	const ZkReply *reply;
	int			nold = 0;

	zklock_roundtrip_get_ahead(trip, claim->record.removal.guard);
	sample = zklock_sample_read(trip,
								directory_of(claim->record.removal.path),
								PRUNE_MS);
	for (int i = 0; i < sample->nnodes; i++)
		if (is_old(sample, i, claim->record.removal.path, now_ms))
			old[nold++] = sample->paths[i];
	if (nold == 0 ||
		zklock_roundtrip_reply_ahead(trip, &reply) != ZK_ANSWERED ||
		reply->result != ZK_OK)
		return;
	if (reply->version == ZK_ANY_VERSION)
		zklock_removal_advance(claim->record.removal.guard);
	else
		zklock_client_free(zklock_client_remove_guarded(zklock_session_client(),
														claim->record.removal.guard,
														reply->version, old,
														nold, ZK_ANY_VERSION));
}

/* ---------------------------------------------------------------------
 * Forgetting
 * ---------------------------------------------------------------------
 */

/* Delete the record that is there at the first look, and no later one. */
static ZkOutcome
forget_slot(ZkRoundTrip *trip, void *argument)
{
	Record	   *record = argument;
	ZkRemoval  *removal = &record->removal;

	if (removal->czxid == 0)
	{
		const ZkReply *reply;
		ZkOutcome	outcome = zklock_roundtrip_read_newest(trip, ZK_GET,
														   removal->path,
														   &reply);

		if (outcome != ZK_ANSWERED || reply->result == ZK_NO_NODE)
			return outcome;
		if (reply->result != ZK_OK)
			zklock_session_raise(reply, removal->doing, removal->path);
		removal->czxid = reply->czxid;

		/* before it is done: it may be interrupted, and be done all the same */
		ereport(ZK_LOG_DEED,
				(errmsg("%s deletes the record of a %s",
						zklock_nodedata_caller(), record->run)));
	}
	return zklock_removal_do(trip, removal);
}

/* ---------------------------------------------------------------------
 * Helpers
 * ---------------------------------------------------------------------
 */

/* The znode that a record is in. */
static char *
directory_of(const char *record)
{
	return pnstrdup(record, strrchr(record, '/') - record);
}
