/*-------------------------------------------------------------------------
 *
 * lease_guard.c
 *	  Knows the leases on which a transaction rests, and proves them at its
 *	  commit.
 *
 * A commit needs a renewal of each of them that leaves enough of the term.  Those
 * that have none are renewed then, by the version that this backend knows;
 * if it is outdated, the node is read first.
 *
 *-------------------------------------------------------------------------
 */
#include "lease_guard.h"

#include "access/xact.h"

#include "compat.h"
#include "lease_node.h"
#include "loss.h"
#include "place.h"
#include "session.h"
#include "stat.h"

/*
 * A commit may rest on a renewal for that many tenths of the term.  The rest is
 * for the commit itself, and a tenth of it for clocks of different speed.
 */
#define FRESH_TENTHS 6

/* How far a lease is at a commit. */
typedef enum RenewalState
{
	RENEWAL_NONE,				/* this commit has not renewed it */
	RENEWAL_SENT,				/* request, or its reply, is valid */
	RENEWAL_DONE				/* this commit has renewed it */
} RenewalState;

/* A lease at a commit. */
typedef struct Renewal
{
	ZkKnownLease *known;
	RenewalState state;
	bool		is_due;			/* to be renewed by the present attempt */
	Moment		sent;			/* valid with a request */
	ZkRequest  *request;		/* NULL: none is under way */
} Renewal;

/* The proof of one commit; zeros but always_ask at first. */
typedef struct Proving
{
	bool		always_ask;		/* also for leases with a fresh proof */
	int			attempts;		/* how often renewals were sent */
	int64		took_ms;		/* how long the last attempt took */
	int64		begun_at;		/* protocol_now() */
	int64		deadline;		/* likewise, by when it must be done */
	int			nrenewals;		/* one for each lease that is used */
	Renewal    *renewals;		/* palloc'ed */
} Proving;

/*
 * ZkKnownLease, those that this transaction rests on.  What a subtransaction
 * uses first is put ahead of all that was used before it began.  It belongs to
 * the backend's transaction.
 */
static dlist_head used = DLIST_STATIC_INIT(used);

static bool is_fresh(const ZkKnownLease *known);
static ZkOutcome prove_leases(ZkRoundTrip *trip, void *argument);
static void begin_proving(Proving *proving);
static int64 proving_deadline(int64 begun_at);
static bool choose_due(Proving *proving);
static ZkOutcome read_outdated(ZkRoundTrip *trip, const Proving *proving);
static void note_read(ZkKnownLease *known, const ZkReply *reply);
static ZkOutcome renew_due(ZkRoundTrip *trip, Proving *proving);
static void send_renewal(Renewal *renewal);
static ZkOutcome note_renewal(ZkRoundTrip *trip, Renewal *renewal,
							  const ZkReply *reply);
static void end_renewals(void *argument);
pg_noreturn static void raise_silence(const Proving *proving);
static void refuse_if_over(int64 begun_at);
pg_noreturn static void refuse_commit(const ZkKnownLease *known,
									  const char *why);

/* ---------------------------------------------------------------------
 * What the transaction rests on
 * ---------------------------------------------------------------------
 */

void
zklock_lease_use(ZkKnownLease *known)
{
	if (known->user != InvalidSubTransactionId)
		return;
	zklock_known_pin(known, GetCurrentSubTransactionId());
	dlist_push_head(&used, &known->use);
}

bool
zklock_lease_is_used(void)
{
	return !dlist_is_empty(&used);
}

bool
zklock_lease_is_required(const char *lock_path, int64 token)
{
	const ZkKnownLease *known = zklock_known_find(lock_path, token);

	return known != NULL && known->user != InvalidSubTransactionId;
}

int64
zklock_lease_shortest_term(void)
{
	int64		shortest_ms = ZK_TERM_MAX;
	dlist_iter	iterator;

	dlist_foreach(iterator, &used)
	{
		const ZkKnownLease *known = dlist_container(ZkKnownLease, use,
													iterator.cur);

		shortest_ms = Min(shortest_ms, known->leased.term_ms);
	}
	return shortest_ms;
}

void
zklock_lease_prove(bool always_ask)
{
	Proving		proving = {.always_ask = always_ask};

	if (zklock_lease_is_used() && (always_ask || !zklock_lease_is_proved()))
		zklock_roundtrip_must_run(NULL, prove_leases, end_renewals, &proving);
}

bool
zklock_lease_is_proved(void)
{
	dlist_iter	iterator;

	dlist_foreach(iterator, &used)
	{
		if (!is_fresh(dlist_container(ZkKnownLease, use, iterator.cur)))
			return false;
	}
	return true;
}

void
zklock_lease_end_use(SubTransactionId mine, SubTransactionId heir)
{
	dlist_mutable_iter iterator;

	dlist_foreach_modify(iterator, &used)
	{
		ZkKnownLease *known = dlist_container(ZkKnownLease, use, iterator.cur);

		if (mine != InvalidSubTransactionId && known->user != mine)
			break;				/* all others were used before it began */
		known->user = heir;
		if (heir != InvalidSubTransactionId)
			continue;
		dlist_delete(&known->use);
		zklock_known_unpin(known);
	}
}

void
zklock_lease_raise_lost(const char *name, int64 token)
{
	const ZkLossOf of = {
		.kind = ZK_LOST_LEASE,
		.name = name,
		.token = token
	};

	zklock_loss_raise_of(&of);
}

void
zklock_lease_raise_unproved(int64 took_ms)
{
	refuse_if_over(protocol_now() - took_ms);
	zklock_stat_count(ZK_STAT_REFUSED_COMMIT);
	ereport(ERROR,
			(zklock_stat_errcode(ERRCODE_CONNECTION_FAILURE),
			 errmsg("could not prove that the leases of this transaction are held"),
			 zklock_session_explain_late_proof(took_ms)));
}

/*
 * Was it renewed so lately that enough of its term is left for a commit?  It
 * may have been evicted or given up since, which its term does not bound: so it
 * is trusted no longer than a lock of a session, and a lease for a day costs a
 * commit that comes late one renewal.
 */
static bool
is_fresh(const ZkKnownLease *known)
{
	Moment		since = protocol_moment();
	int64		usable_ms = Min(known->leased.term_ms * FRESH_TENTHS / 10,
								zklock_session_timeout_ms() / 3);

	since.boot_ms -= usable_ms;
	since.wall_ms -= usable_ms;
	return contact_is_after(known->proof, since);
}

/* ---------------------------------------------------------------------
 * Renewals at a commit
 * ---------------------------------------------------------------------
 */

/*
 * Renew all that are to be, in one flush, until each has a fresh proof.
 * Raises if one is lost, or the session, at the deadline, and when answers
 * come too late for that again and again.
 */
static ZkOutcome
prove_leases(ZkRoundTrip *trip, void *argument)
{
	Proving    *proving = argument;

	begin_proving(proving);		/* or go on, over another session */
	trip->deadline = proving->deadline;
	trip->by = ZK_BY_CALLER;
	while (choose_due(proving))
	{
		int64		asked_at = protocol_now();
		ZkOutcome	outcome;

		if (proving->attempts++ == ZK_PROOF_ATTEMPTS)
			zklock_lease_raise_unproved(proving->took_ms);
		outcome = read_outdated(trip, proving);
		if (outcome == ZK_ANSWERED)
			outcome = renew_due(trip, proving);
		if (outcome == ZK_LOST && protocol_now() < trip->deadline)
			return ZK_LOST;
		if (outcome != ZK_ANSWERED)
			raise_silence(proving);
		proving->took_ms = protocol_now() - asked_at;
	}
	return ZK_ANSWERED;
}

/* Of all that this transaction rests on, none is renewed yet; once a commit. */
static void
begin_proving(Proving *proving)
{
	dlist_iter	iterator;
	int			nused = 0;

	if (proving->renewals != NULL)
		return;
	dlist_foreach(iterator, &used)
		nused++;
	Assert(nused > 0);
	proving->begun_at = protocol_now();
	proving->deadline = proving_deadline(proving->begun_at);
	proving->renewals = palloc0(nused * sizeof(Renewal));
	proving->nrenewals = 0;
	dlist_foreach(iterator, &used)
		proving->renewals[proving->nrenewals++].known =
		dlist_container(ZkKnownLease, use, iterator.cur);
}

/*
 * Until when all of it must be done: after its term a lease may be another's.
 * Without any answer the session is lost before; an ensemble that answers
 * heartbeats alone has twice that time.  The session may be a new one, which has
 * no timeout yet: the one before was idle, or lost.
 */
static int64
proving_deadline(int64 begun_at)
{
	int64		deadline = zklock_session_reply_deadline(begun_at);
	int			timeout_ms = zklock_session_timeout_ms();

	if (timeout_ms > 0)
		deadline = begun_at + 2 * timeout_ms;
	return Min(deadline, begun_at + zklock_lease_shortest_term());
}

/*
 * Find those that are to be renewed now; false: none.  Once one is, all are
 * that this commit has not renewed: then none of these becomes too old while
 * others are renewed.  Whether one was asked is not decided by time: a renewal of
 * the same millisecond came before the commit.
 */
static bool
choose_due(Proving *proving)
{
	bool		is_any_due = false;

	end_renewals(proving);
	for (int i = 0; i < proving->nrenewals; i++)
	{
		const Renewal *renewal = &proving->renewals[i];
		bool		must_ask = proving->always_ask &&
			renewal->state != RENEWAL_DONE;

		is_any_due |= must_ask || !is_fresh(renewal->known);
	}
	for (int i = 0; i < proving->nrenewals; i++)
	{
		Renewal    *renewal = &proving->renewals[i];

		renewal->is_due = is_any_due &&
			(renewal->state != RENEWAL_DONE || !is_fresh(renewal->known));
	}
	return is_any_due;
}

/*
 * Read anew what somebody else has renewed meanwhile, or this commit itself
 * without an answer.
 */
static ZkOutcome
read_outdated(ZkRoundTrip *trip, const Proving *proving)
{
	int			most = proving->nrenewals;
	ZkKnownLease **outdated = palloc(most * sizeof(*outdated));
	char	  **paths = palloc0(most * sizeof(*paths));
	const ZkReply **replies = palloc(most * sizeof(*replies));
	int			noutdated = 0;
	ZkOutcome	outcome;

	for (int i = 0; i < most; i++)
	{
		const Renewal *renewal = &proving->renewals[i];

		if (!renewal->is_due || !renewal->known->is_outdated)
			continue;
		outdated[noutdated] = renewal->known;
		paths[noutdated++] = renewal->known->leased.path;
	}
	outcome = zklock_roundtrip_read_all(trip, ZK_GET, paths, noutdated,
										replies);
	if (outcome != ZK_ANSWERED)
		return outcome;
	for (int i = 0; i < noutdated; i++)
		note_read(outdated[i], replies[i]);
	zklock_roundtrip_end_reads(trip, noutdated);
	return ZK_ANSWERED;
}

/*
 * Take what the read says.  A server that lags behind may not have the node
 * yet: the renewal tells.  Without its owner it was given up.
 */
static void
note_read(ZkKnownLease *known, const ZkReply *reply)
{
	ZkLeased	read = {.node = known->leased.node};

	if (reply->result == ZK_NO_NODE)
		return;
	if (reply->result != ZK_OK)
		zklock_session_raise(reply, "use a lease", known->leased.path);
	if (!zklock_expiry_take(&read, reply) ||
		read.czxid != known->leased.czxid)
		refuse_commit(known, "another node has its name");
	if (read.who.owner == NULL ||
		strcmp(read.who.owner, known->leased.who.owner) != 0)
		refuse_commit(known, "it was given up");
	zklock_known_take(known, &read);
}

/* Send the renewals together, and await all. */
static ZkOutcome
renew_due(ZkRoundTrip *trip, Proving *proving)
{
	for (int i = 0; i < proving->nrenewals; i++)
		if (proving->renewals[i].is_due)
			send_renewal(&proving->renewals[i]);
	for (int i = 0; i < proving->nrenewals; i++)
	{
		Renewal    *renewal = &proving->renewals[i];
		const ZkReply *reply;
		ZkOutcome	outcome;

		if (renewal->state != RENEWAL_SENT)
			continue;
		outcome = zklock_roundtrip_await(trip, renewal->request, &reply);
		if (outcome == ZK_LATE || outcome == ZK_LOST)
			return outcome;
		renewal->state = RENEWAL_NONE;
		if (outcome == ZK_UNKNOWN)
		{
			/* it stays outdated, so the next attempt reads it */
			zklock_expiry_debug(renewal->known->leased.path,
								renewal->known->leased.token,
								"not known to be renewed by a commit, which reads it: the answer was lost");
			continue;
		}
		outcome = note_renewal(trip, renewal, reply);
		if (outcome != ZK_ANSWERED)
			return outcome;
	}
	return ZK_ANSWERED;
}

static void
send_renewal(Renewal *renewal)
{
	ZkKnownLease *known = renewal->known;
	const ZkLeased *leased = &known->leased;
	char	   *data = zklock_lease_build_data(leased->who.owner, leased->who.note,
											   leased->term_ms);

	known->is_outdated = true;	/* until there is an answer */
	renewal->state = RENEWAL_SENT;
	renewal->sent = protocol_moment();
	renewal->request = zklock_client_set(zklock_session_client(), leased->path,
										 data, leased->version);
}

static ZkOutcome
note_renewal(ZkRoundTrip *trip, Renewal *renewal, const ZkReply *reply)
{
	ZkKnownLease *known = renewal->known;

	switch (reply->result)
	{
		case ZK_OK:
			if (reply->czxid != known->leased.czxid)
				refuse_commit(known, "another node has its name");
			known->leased.version = reply->version;
			known->is_outdated = false;
			known->proof = renewal->sent;
			renewal->state = RENEWAL_DONE;
			zklock_expiry_debug(known->leased.path, known->leased.token,
								"renewed by a commit");
			return ZK_ANSWERED;
		case ZK_NO_NODE:
			refuse_commit(known, "its node is gone");
		case ZK_BAD_VERSION:
			zklock_expiry_debug(known->leased.path, known->leased.token,
								"not renewed by a commit, which reads it: its version is not %d any more",
								known->leased.version);
			return zklock_roundtrip_check_refusal(trip, reply->result,
												  known->leased.path,
												  known->leased.czxid,
												  known->leased.version);
		default:
			zklock_session_raise(reply, "use a lease", known->leased.path);
	}
}

/* At the end of each attempt.  What had no answer is read by the next one. */
static void
end_renewals(void *argument)
{
	Proving    *proving = argument;

	for (int i = 0; i < proving->nrenewals; i++)
	{
		zklock_client_free(proving->renewals[i].request);
		proving->renewals[i].request = NULL;
		if (proving->renewals[i].state == RENEWAL_SENT)
			proving->renewals[i].state = RENEWAL_NONE;
	}
}

/*
 * The time is over: that of a lease, which another may have by now, or that
 * for the answer.
 */
static void
raise_silence(const Proving *proving)
{
	int64		waited_ms = protocol_now() - proving->begun_at;

	refuse_if_over(proving->begun_at);
	zklock_stat_count(ZK_STAT_REFUSED_COMMIT);
	ereport(ERROR,
			(zklock_stat_errcode(ERRCODE_CONNECTION_FAILURE),
			 errmsg("could not prove that the leases of this transaction are held"),
			 errdetail("The commit has waited for answers of ZooKeeper for " INT64_FORMAT " ms.",
					   waited_ms),
			 errhint("Run zk_check() to find what slows the ensemble down. Then run the transaction again.")));
}

/*
 * Another may have one of them by now whose term is over since its last renewal
 * was sent; without any, since then.
 */
static void
refuse_if_over(int64 begun_at)
{
	dlist_iter	iterator;

	dlist_foreach(iterator, &used)
	{
		const ZkKnownLease *known = dlist_container(ZkKnownLease, use,
													iterator.cur);
		int64		since = known->proof.boot_ms;

		if (since == 0)
			since = begun_at;
		if (protocol_now() - since >= known->leased.term_ms)
			refuse_commit(known, "its term was over before ZooKeeper answered");
	}
}

static void
refuse_commit(const ZkKnownLease *known, const char *why)
{
	zklock_expiry_debug(known->leased.path, known->leased.token, "lost: %s",
						why);
	zklock_stat_count(ZK_STAT_REFUSED_COMMIT);
	zklock_lease_raise_lost(known->name, known->leased.token);
}
