/*-------------------------------------------------------------------------
 *
 * session_interrupt.c
 *	  The interrupt by which a loss cancels the running statement.
 *
 * It is SIGINT, as pg_cancel_backend() sends it.  The session's program sends
 * it, or this backend where the program cannot; the page that both share counts
 * them.  So an interrupt has a number, and none is told from another by a clock.
 * cancel.c makes the error of the loss out of PostgreSQL's.
 *
 *-------------------------------------------------------------------------
 */
#include "session_private.h"

#include <unistd.h>

#include "miscadmin.h"

/* Of all sessions of this backend: an interrupt outlives the one that sends it. */
static struct
{
	int64		nclosed;		/* sent by sessions that are closed */
	int64		nsent;			/* sent, as far as was noted */
	int64		nover;			/* so many of them are over: an error has come
								 * of each, or none will */
	uint64		canceled;		/* which statement a loss canceled last */
}			Interrupts;

static bool was_dropped(void);
static int64 count_sent(void);

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
zklock_session_interrupt_if_lost(void)
{
	if (MySession.client != NULL)
		zklock_client_interrupt_if_lost(MySession.client);
}

void
session_interrupt_note_close(void)
{
	Interrupts.nsent = count_sent();
	Interrupts.nclosed = Interrupts.nsent;
}

/* While a backend is idle PostgreSQL ignores SIGINT. */
void
zklock_session_begin_statement(void)
{
	MySession.statement++;
	Interrupts.nsent = count_sent();
	Assert(Interrupts.nover <= Interrupts.nsent);
	if (was_dropped())
		Interrupts.nover = Interrupts.nsent;
}

/*
 * All that cancels a statement, lock_timeout and recovery on a standby for example,
 * has one flag, and PostgreSQL raises one error for all that it finds.
 */
void
zklock_session_keep_interrupt(void)
{
	Interrupts.nsent = count_sent();
	if (!was_dropped())
		return;
	QueryCancelPending = true;
	InterruptPending = true;
}

/*
 * Has PostgreSQL taken an interrupt of which no error has come?  The signal has
 * come by the end of any system call, if it was sent.
 */
static bool
was_dropped(void)
{
	if (Interrupts.nover == Interrupts.nsent ||
		(MySession.client != NULL &&
		 zklock_client_is_interrupt_under_way(MySession.client)))
		return false;
	getppid();
	return !QueryCancelPending;
}

int64
zklock_session_interrupt(void)
{
	int64		nsent = count_sent();

	return nsent != Interrupts.nover ? nsent : 0;
}

void
zklock_session_end_interrupt(void)
{
	Interrupts.nsent = count_sent();
	Interrupts.nover = Interrupts.nsent;
	Interrupts.canceled = MySession.statement;
}

bool
zklock_session_has_interrupted(void)
{
	return zklock_session_interrupt() != 0 ||
		Interrupts.canceled == MySession.statement;
}

/* How many were sent.  The page may say anything, but takes none of them back. */
static int64
count_sent(void)
{
	uint64		nsent = Interrupts.nclosed;

	if (MySession.client != NULL)
		nsent += zklock_client_count_interrupts(MySession.client);
	return Max((int64) nsent, Interrupts.nsent);
}
