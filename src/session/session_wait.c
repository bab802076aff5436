/*-------------------------------------------------------------------------
 *
 * session_wait.c
 *	  The one loop that waits: for a reply, for news of a watch, for time to
 *	  pass.
 *
 * The one rule: every wait of a backend for the ensemble, save for the close,
 * goes through wait_for(), which ends at an interrupt, at a deadline, and
 * when the session is lost.
 *
 *-------------------------------------------------------------------------
 */
#include "session_private.h"

#include <limits.h>

#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/snapmgr.h"

#include "handover.h"
#include "stat.h"

/* See events_of_session(). */
#define NEVENTS 3
static WaitEventSet *session_events;

static ZkOutcome wait_for(ZkRequest *request, bool (*is_over) (void),
						  int64 deadline, ZkWaitReason reason);
static bool is_hopeless(void);
static int64 wake_at(int64 deadline);
static void count_cancel(bool is_asking);
static void sleep_until(int64 wake_at, ZkWaitReason reason);
static WaitEventSet *events_of_session(void);
static bool is_undone(void);
static bool has_watch_news(void);
static uint32 wait_event_of(ZkWaitReason reason);

void
zklock_session_await_contact(int64 deadline)
{
	int64		until = protocol_now() + 1 +
		contact_delay_ms(zklock_session_timeout_ms());

	if (MySession.client == NULL)
		return;

	/* the caller looks what time it is, and whether the session is there */
	(void) wait_for(NULL, NULL, Min(deadline, until), ZK_WAITING_TO_COMMIT);
}

ZkOutcome
zklock_session_await(ZkRequest *request, int64 deadline, ZkWaitReason reason,
					 const ZkReply **reply)
{
	ZkOutcome	outcome;

	*reply = NULL;
	if (request == NULL)
		zklock_session_raise_memory();
	outcome = wait_for(request, NULL, deadline, reason);
	if (outcome != ZK_ANSWERED)
		return outcome;
	*reply = zklock_client_reply(request);
	return zklock_session_outcome(*reply);
}

ZkOutcome
zklock_session_outcome(const ZkReply *reply)
{
	if (reply->result == ZK_UNKNOWN_OUTCOME)
		return ZK_UNKNOWN;
	return reply->result == ZK_SESSION_LOST ? ZK_LOST : ZK_ANSWERED;
}

ZkOutcome
zklock_session_await_watch(int64 deadline)
{
	return wait_for(NULL, has_watch_news, deadline, ZK_WAITING_FOR_LOCK);
}

bool
zklock_session_await_undone(int64 deadline)
{
	return MySession.client == NULL || is_undone() ||
		wait_for(NULL, is_undone, deadline, ZK_WAITING_FOR_REPLY) != ZK_LATE;
}

bool
zklock_session_can_answer(void)
{
	return zklock_session_is_connected() && is_undone();
}

/* The loop below needs a session; nothing but a latch is left without one. */
void
session_sleep(int64 until)
{
	int64		left_ms;

	CHECK_FOR_INTERRUPTS();
	while ((left_ms = until - protocol_now()) > 0)
	{
		WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
				  left_ms, wait_event_of(ZK_WAITING_TO_CONNECT));
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

/* ---------------------------------------------------------------------
 * The loop
 * ---------------------------------------------------------------------
 */

/*
 * Wait for a request's reply; with request NULL until is_over() says so, or
 * if that is NULL, too, for time to pass.
 *
 * Each turn begins with a look at the session, and all that the turn decides
 * it decides by what was there then.  Whatever comes later makes the
 * descriptor readable, which ends the wait below.
 *
 * The order matters: a reply that is there is taken even if a cancel came at
 * the same time (the caller's next wait sees it); then interrupts win over
 * our own reasons to end.
 */
static ZkOutcome
wait_for(ZkRequest *request, bool (*is_over) (void), int64 deadline,
		 ZkWaitReason reason)
{
	const ZkClientStatus *status = zklock_session_status();

	Assert(MySession.client != NULL);
	Assert(request == NULL || is_over == NULL);
	zklock_client_flush(MySession.client);
	for (;;)
	{
		zklock_session_poll();
		if ((request != NULL && zklock_client_reply(request) != NULL) ||
			(is_over != NULL && is_over()))
			return ZK_ANSWERED;
		count_cancel(request != NULL);
		CHECK_FOR_INTERRUPTS();
		if (session_is_over())
		{
			if (is_hopeless())
				session_raise_over();
			return ZK_LOST;
		}
		if (status->now >= deadline)
			return ZK_LATE;
		if (!session_is_granted() &&
			status->now >= MySession.connect_deadline)
			session_raise_not_connected();
		sleep_until(wake_at(deadline), reason);
	}
}

/* The session is over: would another one fare no better? */
static bool
is_hopeless(void)
{
	const ZkClientStatus *status = zklock_session_status();

	if (MySession.is_given_up)
		return false;
	return !status->was_connected || status->loss == ZK_LOSS_AUTH ||
		status->loss == ZK_LOSS_DEMAND || status->loss == ZK_LOSS_PROTOCOL;
}

/*
 * When a wait with that deadline has to look at the session also if there is no
 * news: at the deadline, or when the session is given up.
 */
static int64
wake_at(int64 deadline)
{
	const ZkClientStatus *status = zklock_session_status();

	if (!status->was_connected)
		return Min(deadline, MySession.connect_deadline);
	return Min(deadline, status->lost_deadline);
}

/*
 * A cancellation, also by statement_timeout, is about to end a call that waits
 * for an answer, or has no connection.  Those of a loss are losses.
 */
static void
count_cancel(bool is_asking)
{
	if (QueryCancelPending && INTERRUPTS_CAN_BE_PROCESSED() &&
		(is_asking || !zklock_session_is_connected()) &&
		!zklock_session_has_interrupted())
		zklock_stat_count(ZK_STAT_UNANSWERED);
}

/* Sleep until then, or until there is news or something else to look at. */
static void
sleep_until(int64 wake_at, ZkWaitReason reason)
{
	int64		left_ms = Max(wake_at - zklock_session_status()->now, 0);
	WaitEvent	occurred[NEVENTS];
	int			noccurred;

	if (!zklock_session_is_connected())
		reason = ZK_WAITING_TO_CONNECT;

	/* a snapshot that was taken to read catalogs would hold back vacuum */
	InvalidateCatalogSnapshotConditionally();
	noccurred = WaitEventSetWait(events_of_session(),
								 Min(left_ms, INT_MAX / 2), occurred,
								 NEVENTS, wait_event_of(reason));
	for (int i = 0; i < noccurred; i++)
	{
		if (occurred[i].events == WL_LATCH_SET)
			ResetLatch(MyLatch);
		else
			zklock_client_receive(MySession.client);
	}
}

/*
 * What the waits of this session are for: made once, for that takes five system
 * calls.  A session whose program could not be started is not waited for.
 */
static WaitEventSet *
events_of_session(void)
{
	pgsocket	fd = zklock_client_fd(MySession.client);
	WaitEventSet *events;

	Assert(fd != PGINVALID_SOCKET);
	if (session_events != NULL)
		return session_events;
	events = CreateWaitEventSet_compat(NEVENTS);
	AddWaitEventToSet(events, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	if (IsUnderPostmaster)
		AddWaitEventToSet(events, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL,
						  NULL);
	AddWaitEventToSet(events, WL_SOCKET_READABLE, fd, NULL, NULL);
	session_events = events;
	return session_events;
}

void
session_wait_end(void)
{
	if (session_events != NULL)
		FreeWaitEventSet(session_events);
	session_events = NULL;
}

/* Has everything that was withdrawn been undone? */
static bool
is_undone(void)
{
	return zklock_client_is_undone(MySession.client);
}

static bool
has_watch_news(void)
{
	return zklock_client_watch_news(MySession.client) != ZK_WATCH_QUIET ||
		zklock_handover_has_told();
}

/*
 * The wait event.  Its name is registered at the first wait: that takes a
 * lightweight lock, which _PG_init() in the postmaster must not.
 */
static uint32
wait_event_of(ZkWaitReason reason)
{
	static const char *const names[ZK_NWAIT_REASONS] = {
		"ZkLockConnect", "ZkLockAcquire", "ZkLockRequest", "ZkLockCommit"
	};
	static uint32 events[ZK_NWAIT_REASONS];

	if (events[reason] == 0)
		events[reason] = WaitEventExtensionNew_compat(names[reason]);
	return events[reason];
}
