/*-------------------------------------------------------------------------
 *
 * program_idle.c
 *	  Ends a session on which nothing has depended for long, and one whose
 *	  backend stands still.
 *
 *-------------------------------------------------------------------------
 */
#include "program_request.h"

#include <stdio.h>

/*
 * How often it is looked at least whether a transaction still uses a session
 * that is otherwise idle.
 */
#define USE_LOOK_MS 100

static void end_if_idle(Session *session, int64_t now);
static bool is_to_run(const Session *session);
static void check_backend(Session *session, int64_t now);
static bool is_stopped(pid_t pid, long long *switches);

bool
idle_is(const Session *session)
{
	if (atomic_load(&session->page->is_in_use) != 0 ||
		session->wait.path != NULL || keep_is_any(session))
		return false;
	for (Request *request = session->traffic.all; request != NULL;
		 request = request->next)
		if (request->state != REQUEST_AWAITS_CONNECTION &&
			!answer_is_ignored(request->step))
			return false;
	return true;
}

void
idle_tick(Session *session, int64_t now)
{
	if (session_is_ending(session))
		return;
	if (is_to_run(session) && now >= session->standstill.next_check_at)
		check_backend(session, now);
	if (is_to_run(session))
		program_wake_at(session, session->standstill.next_check_at);
	if (!session_is_ending(session))
		end_if_idle(session, now);
}

/*
 * End a session on which nothing has depended for zklock.idle_timeout: its
 * backend sleeps, and will open another one by need.
 */
static void
end_if_idle(Session *session, int64_t now)
{
	Idleness   *idleness = &session->idleness;
	uint64_t	use = atomic_load(&session->page->use);
	int32_t		idle_ms = atomic_load(&session->page->idle_ms);

	if (!idle_is(session))
	{
		idleness->since = 0;
		return;
	}
	if (idleness->since == 0 || idleness->use != use)
		*idleness = (Idleness) {now, use};
	if (idle_ms <= 0 || session->status.state != ZK_CLIENT_CONNECTED)
		return;
	if (now - idleness->since < idle_ms)
		program_wake_at(session, idleness->since + idle_ms);
	else if (backend_finish_use(session, use))
		session_end(session, ZK_LOSS_IDLE);
	else
	{
		/* a transaction uses it: nobody tells when that is over */
		idleness->since = now;
		program_wake_at(session, now +
						(idle_ms > USE_LOOK_MS ? idle_ms : USE_LOOK_MS));
	}
}

/* Does it have anything that it must not keep while it stands still? */
static bool
is_to_run(const Session *session)
{
	return session->status.was_connected && !idle_is(session);
}

/*
 * A backend that stands still (SIGSTOP, a debugger) is not to keep its locks
 * for ever, only because its session has a program of its own.  It is looked
 * at as often as the library pings; seen so for two thirds of the session
 * timeout, without having run in between, it has stood still for up to a
 * whole one.
 */
static void
check_backend(Session *session, int64_t now)
{
	int			timeout = session->status.session_timeout_ms;
	long long	switches;

	session->standstill.next_check_at = now + timeout / 3;
	if (!is_stopped(session->open.backend_pid, &switches))
		session->standstill.since = 0;
	else if (session->standstill.since == 0 ||
			 switches != session->standstill.switches)
	{
		session->standstill.since = now;
		session->standstill.switches = switches;
	}
	else if (now - session->standstill.since >= timeout * 2 / 3 - timeout / 20)
		session_lose(session, ZK_LOSS_STANDSTILL);
}

/*
 * Does it stand still, and how often has it been switched to or from until
 * now? See proc(5), /proc/PID/status.  Where that cannot be read nobody
 * stands still.
 */
static bool
is_stopped(pid_t pid, long long *switches)
{
	char		line[256];
	FILE	   *file;
	bool		is_stopped = false;
	long long	count;
	char		state;

	*switches = 0;
	snprintf(line, sizeof(line), "/proc/%d/status", (int) pid);
	file = fopen(line, "re");
	if (file == NULL)
		return false;
	while (fgets(line, sizeof(line), file) != NULL)
	{
		if (sscanf(line, "State: %c", &state) == 1)
			is_stopped = state == 'T' || state == 't';
		else if (sscanf(line, "voluntary_ctxt_switches: %lld", &count) == 1 ||
				 sscanf(line, "nonvoluntary_ctxt_switches: %lld", &count) == 1)
			*switches += count;
	}
	fclose(file);
	return is_stopped;
}
