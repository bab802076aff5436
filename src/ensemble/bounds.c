/*-------------------------------------------------------------------------
 *
 * bounds.c
 *	  Until when a call may wait for other contenders and for replies.
 *
 *-------------------------------------------------------------------------
 */
#include "bounds.h"

#include "storage/proc.h"

#include "session.h"

static ZkBounds earlier_lock_timeout(ZkBounds bounds, int64 now);

ZkBounds
zklock_bounds_of_wait(int64 timeout_ms)
{
	int64		now = protocol_now();
	ZkBounds	bounds = {
		.timeout_ms = timeout_ms,
		.deadline = now + timeout_ms,
		.by = ZK_BY_TIMEOUT
	};

	if (timeout_ms == 0)
		return zklock_bounds_of_question();
	bounds = earlier_lock_timeout(bounds, now);
	bounds.wait_until = bounds.deadline;
	return bounds;
}

/* Not to wait for others is not the same as not to wait for a reply. */
ZkBounds
zklock_bounds_of_question(void)
{
	int64		now = protocol_now();
	ZkBounds	bounds = {
		.is_at_once = true,
		.wait_until = now,
		.by = ZK_BY_CONNECT_TIMEOUT
	};

	zklock_session_attend();	/* is it connected by now? */
	bounds.deadline = zklock_session_reply_deadline(now);
	return earlier_lock_timeout(bounds, now);
}

ZkBounds
zklock_bounds_of_task(void)
{
	return zklock_bounds_of_wait(ZK_MS_MAX);
}

int64
zklock_bounds_next_reply(const ZkBounds *bounds)
{
	return Min(bounds->deadline,
			   zklock_session_reply_deadline(protocol_now()));
}

/* The same bounds, or lock_timeout if that is over before. */
static ZkBounds
earlier_lock_timeout(ZkBounds bounds, int64 now)
{
	if (LockTimeout > 0 && now + LockTimeout < bounds.deadline)
	{
		bounds.deadline = now + LockTimeout;
		bounds.by = ZK_BY_LOCK_TIMEOUT;
	}
	return bounds;
}
