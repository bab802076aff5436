/*-------------------------------------------------------------------------
 *
 * program_pulse.c
 *	  What the program asks by itself: heartbeats, pulses, nudges.
 *
 *-------------------------------------------------------------------------
 */
#include "program_request.h"

static bool has_pulse(const Session *session);
static int64_t next_heartbeat(const Session *session);

/*
 * The heartbeat is more frequent than the library's, so that proofs are
 * young, and the leader answers it (FollowerRequestProcessor, case sync):
 * behind a follower that has lost its leader the connection falls silent, and
 * the library gives it up; reads do not keep it alive, for they wait behind
 * the heartbeat.  It is no proof: a leader that has been deposed answers,
 * too.
 *
 * All sessions' heartbeats are the leader's work.  So there are none while
 * nothing depends on the session: a pulse, the same read as a nudge, is
 * answered by our server, and dates the proof of the first lock (contact.h).
 * Whether the server has lost its leader is then found out by that lock
 * (session_cut_at()).
 */
void
pulse_tick(Session *session, int64_t now)
{
	Traffic    *traffic = &session->traffic;
	int64_t		silent_ms = now - traffic->pending_since;
	RequestKind beat = REQUEST_HEARTBEAT;

	if (has_pulse(session))
		beat = REQUEST_NUDGE;
	if (now >= next_heartbeat(session))
		step_submit(request_new_silent(session, beat, "/"));
	else if (session->link.is_up && traffic->npending > 0 &&
			 now >= traffic->nudge_at)
	{
		step_submit(request_new_silent(session, REQUEST_NUDGE, "/"));
		traffic->nudge_at = now +
			(silent_ms > NUDGE_MS ? silent_ms : NUDGE_MS);
	}
	program_wake_at(session, next_heartbeat(session));
	if (session->link.is_up && traffic->npending > 0)
		program_wake_at(session, traffic->nudge_at);
}

/*
 * Is it a pulse that is due next, and no heartbeat?  A connection of which
 * the leader is to be asked at once (note_connected()) has none before that.
 */
static bool
has_pulse(const Session *session)
{
	return session->link.contact.asked_leader_at != 0 && idle_is(session);
}

/* When the next heartbeat or pulse is due. */
static int64_t
next_heartbeat(const Session *session)
{
	if (!session->link.is_up || session_is_ending(session))
		return INT64_MAX;
	if (has_pulse(session))
		return session->link.contact.asked_at +
			contact_pulse_ms(session->status.session_timeout_ms);
	return session->link.contact.asked_leader_at +
		contact_heartbeat_ms(session->status.session_timeout_ms);
}
