/*-------------------------------------------------------------------------
 *
 * contact.c
 *	  What a proof proves, and for how long.
 *
 * Pure: values in, values out; libc only, no clock.
 *
 *-------------------------------------------------------------------------
 */
#include "contact.h"

#include <string.h>

/*
 * Entries are at least that part of T apart, so that as many as are kept
 * reach back further than contact_delay_ms().
 */
#define SPACING(timeout_ms) ((timeout_ms) / 32)

void
contact_begin(ContactLog *contact, Moment begun)
{
	contact->begun = begun;
	contact->count = 0;
}

void
contact_note(ContactLog *contact, Moment sent, Moment answered, int timeout_ms)
{
	int			last = contact->count - 1;

	if (last >= 0 && sent.boot_ms <
		contact->sent[last].boot_ms + SPACING(timeout_ms))
		return;
	if (contact->count == CONTACT_SIZE)
	{
		memmove(contact->sent, contact->sent + 1,
				last * sizeof(contact->sent[0]));
		memmove(contact->answered, contact->answered + 1,
				last * sizeof(contact->answered[0]));
		contact->count--;
	}
	contact->sent[contact->count] = sent;
	contact->answered[contact->count] = answered;
	contact->count++;
}

Moment
contact_date(const ContactLog *contact, Moment sent, int timeout_ms)
{
	Moment		latest = {
		sent.boot_ms - timeout_ms / 3, sent.wall_ms - timeout_ms / 3
	};
	Moment		date = contact->begun;

	for (int i = 0; i < contact->count; i++)
		if (contact->answered[i].boot_ms + contact_delay_ms(timeout_ms) <=
			sent.boot_ms &&
			contact->sent[i].boot_ms > date.boot_ms)
			date = contact->sent[i];
	return contact_earlier(date, latest);
}

Moment
contact_fresh_since(Moment now, int timeout_ms)
{
	int64_t		most = (int64_t) timeout_ms * 2 / 3;

	return (Moment)
	{
		now.boot_ms - most, now.wall_ms - most
	};
}

bool
contact_is_after(Moment date, Moment since)
{
	return date.boot_ms > since.boot_ms && date.wall_ms > since.wall_ms;
}

int
contact_delay_ms(int timeout_ms)
{
	return (int) ((int64_t) timeout_ms * 3 / 10);
}

/* Twice this, contact_delay_ms() and SPACING are less than the 2/3 of a proof. */
int
contact_answer_ms(int timeout_ms)
{
	return timeout_ms / 6;
}

int
contact_heartbeat_ms(int timeout_ms)
{
	return timeout_ms / 6;
}

/* This and contact_delay_ms() are 11/20 of T, less than the 2/3 of a proof. */
int
contact_pulse_ms(int timeout_ms)
{
	return timeout_ms / 4;
}

Moment
contact_earlier(Moment a, Moment b)
{
	Moment		earlier = a;

	/* each clock by itself: they are of different speed, or one was set */
	if (b.boot_ms < a.boot_ms)
		earlier.boot_ms = b.boot_ms;
	if (b.wall_ms < a.wall_ms)
		earlier.wall_ms = b.wall_ms;
	return earlier;
}
