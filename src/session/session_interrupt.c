/*-------------------------------------------------------------------------
 *
 * session_interrupt.c
 *	  The interrupt by which the loss of a session cancels the running statement:
 *	  when it may come, and whether one has been sent of which no error has come
 *	  yet.
 *
 * It is SIGINT, as pg_cancel_backend() sends it.  The session's program sends
 * it, or this backend where the program cannot; the page that both share has
 * the date of the last one.  cancel.c makes the error of the loss out of
 * PostgreSQL's.
 *
 *-------------------------------------------------------------------------
 */
#include "session_private.h"

#include <unistd.h>

#include "miscadmin.h"

/*
 * Interrupts outlive the session that has sent them.  A date names the interrupt
 * that was sent then; nothing is done when a time is over.
 */
static struct
{
	int64		sent_at;		/* of a session that is closed: its last one */
	int64		over_at;		/* the last one that is over: an error has come
								 * of it, or none will */
	uint64		canceled;		/* which statement a loss canceled last */
}			Interrupts;

static int64 last_sent_at(void);

void
zklock_session_interrupt_on_loss(bool is_wanted)
{
	if (MySession.client == NULL)
		return;
	zklock_client_interrupt_on_loss(MySession.client, is_wanted);

	/* it may have found that the session is over */
	zklock_session_attend();
}

void
session_interrupt_note(void)
{
	Interrupts.sent_at = last_sent_at();
}

/*
 * While a backend is idle PostgreSQL ignores SIGINT.  The signal has come by
 * the end of any system call, if it was sent.
 */
void
session_interrupt_begin_statement(void)
{
	session_interrupt_note();
	Assert(Interrupts.over_at <= Interrupts.sent_at);
	if (Interrupts.over_at == Interrupts.sent_at ||
		(MySession.client != NULL &&
		 zklock_client_is_interrupt_under_way(MySession.client)))
		return;
	getppid();
	if (!QueryCancelPending)
		Interrupts.over_at = Interrupts.sent_at;
}

int64
zklock_session_interrupt(void)
{
	int64		sent_at = last_sent_at();

	return sent_at != Interrupts.over_at ? sent_at : 0;
}

void
zklock_session_end_interrupt(void)
{
	session_interrupt_note();
	Interrupts.over_at = Interrupts.sent_at;
	Interrupts.canceled = MySession.statement;
}

bool
zklock_session_has_interrupted(void)
{
	return zklock_session_interrupt() != 0 ||
		Interrupts.canceled == MySession.statement;
}

/* When the last interrupt was sent that is known of; 0: none was. */
static int64
last_sent_at(void)
{
	int64		sent_at = Interrupts.sent_at;

	if (MySession.client != NULL)
		sent_at = Max(sent_at,
					  zklock_client_interrupted_at(MySession.client));
	return sent_at;
}
