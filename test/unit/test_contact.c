/*-------------------------------------------------------------------------
 *
 * test_contact.c
 *	  Unit test of src/common/contact.c: which answers of a server prove that the
 *	  leader has heard of the session, and from when.  Tables of cases, the
 *	  expected value first.
 *
 * The session timeout is 12,000 ms throughout, so that what was answered 3,600
 * ms before a request was sent can date the proof that it is.
 *
 *-------------------------------------------------------------------------
 */
#include "contact.h"
#include "tap.h"

#define NELEMS(array) ((int) (sizeof(array) / sizeof((array)[0])))

#define TIMEOUT_MS 12000

/* The time of day runs a million ahead of the other clock. */
#define WALL_AHEAD 1000000

static Moment
at(int64_t ms)
{
	return (Moment) {ms, ms + WALL_AHEAD};
}

static void
test_date(void)
{
	static const struct
	{
		int			expected;
		int			begun;
		int			sent[4];	/* and answered; 0: no more */
		int			answered[4];
		int			asked;		/* when the proof was sent */
		const char *what;
	}			cases[] = {
		{10000, 10000, {0}, {0}, 20000, "a connection"},
		{6010, 10000, {0}, {0}, 10010, "not later than a third of the timeout before"},
		{10000, 10000, {20000}, {21500}, 25099, "what was answered may be unreported"},
		{20000, 10000, {20000}, {21500}, 25100, "when it was answered long enough ago, its sending counts"},
		{22000, 10000, {20000, 22000, 24000}, {20001, 22001, 24001}, 26001, "the latest of several"},
		{24000, 10000, {20000, 22000, 24000}, {20001, 22001, 24001}, 60000, "a pause after it makes it old, not new"},
		{10000, 10000, {9000}, {9001}, 30000, "the connection, if it was made after that"},
	};

	for (int i = 0; i < NELEMS(cases); i++)
	{
		ContactLog	contact = {0};
		Moment		date;

		contact_begin(&contact, at(cases[i].begun));
		for (int j = 0; j < 4 && cases[i].sent[j] != 0; j++)
			contact_note(&contact, at(cases[i].sent[j]),
						 at(cases[i].answered[j]), TIMEOUT_MS);
		date = contact_date(&contact, at(cases[i].asked), TIMEOUT_MS);
		is_int(cases[i].expected, date.boot_ms, cases[i].what);
		ok(date.wall_ms == date.boot_ms + WALL_AHEAD,
		   "%s, on both clocks", cases[i].what);
	}
}

/* However much is sent, the log reaches back far enough, and is no older. */
static void
test_log(void)
{
	for (int step = 1; step <= 4000; step += 37)
	{
		ContactLog	contact = {0};
		int			worst = 0;

		contact_begin(&contact, at(1));
		for (int now = 1; now <= 60000; now += step)
		{
			Moment		date = contact_date(&contact, at(now), TIMEOUT_MS);

			if (now > 2 * TIMEOUT_MS && now - date.boot_ms > worst)
				worst = (int) (now - date.boot_ms);
			contact_note(&contact, at(now), at(now), TIMEOUT_MS);
		}
		ok(worst >= 4000 && worst <= 4000 + 2 * step + TIMEOUT_MS / 32,
		   "one request each %d ms: proofs are %d ms old at worst",
		   step, worst);
	}
}

/* What the log keeps: not all, and the latest. */
static void
test_entries(void)
{
	ContactLog	contact = {0};
	bool		is_kept = true;

	contact_begin(&contact, at(0));
	contact_note(&contact, at(1000), at(1001), TIMEOUT_MS);
	contact_note(&contact, at(1374), at(1375), TIMEOUT_MS);
	is_int(1, contact.count, "less than a 32nd of the timeout after the last is nothing new");
	contact_note(&contact, at(1375), at(1376), TIMEOUT_MS);
	is_int(2, contact.count, "a 32nd is");

	contact_begin(&contact, at(0));
	for (int i = 0; i <= CONTACT_SIZE; i++)
		contact_note(&contact, at(1000 * i), at(1000 * i + 1 + i), TIMEOUT_MS);
	is_int(CONTACT_SIZE, contact.count, "as many contacts as CONTACT_SIZE are noted");
	for (int i = 0; i < CONTACT_SIZE; i++)
		is_kept &= contact.sent[i].boot_ms == 1000 * (i + 1) &&
			contact.answered[i].boot_ms == 1000 * (i + 1) + 2 + i;
	ok(is_kept, "the oldest contact makes room for the newest");
}

static void
test_new_connection(void)
{
	ContactLog	contact = {0};
	Moment		date;

	contact_begin(&contact, at(1000));
	contact_note(&contact, at(5000), at(5001), TIMEOUT_MS);
	contact_begin(&contact, at(2000));
	date = contact_date(&contact, at(20000), TIMEOUT_MS);
	is_int(2000, date.boot_ms, "contacts over an earlier connection do not date a proof");

	contact.sent[0] = at(5000);
	contact.answered[0] = at(5001);
	contact_begin(&contact, at(2000));
	date = contact_date(&contact, at(20000), TIMEOUT_MS);
	is_int(2000, date.boot_ms, "all contacts over earlier connections are forgotten");

	/* the time of day may have been set within a millisecond */
	contact_begin(&contact, (Moment) {2000, 2000});
	contact_note(&contact, at(2000), at(2001), TIMEOUT_MS);
	date = contact_date(&contact, at(20000), TIMEOUT_MS);
	is_int(2000, date.wall_ms, "a request of the same millisecond is no later");
}

/*
 * A hypervisor stops the machine right after an answer.  Whenever the proof is
 * sent after that, it is from before the pause, by the time of day.
 */
static void
test_pause(void)
{
	const int	pause_ms = 9000;

	for (int sent = 3600; sent <= 4400; sent += 50)
	{
		ContactLog	contact = {0};
		Moment		asked = {20000 + sent, at(20000 + sent + pause_ms).wall_ms};
		Moment		date;

		contact_begin(&contact, at(10000));
		contact_note(&contact, at(20000), at(20000), TIMEOUT_MS);
		date = contact_date(&contact, asked, TIMEOUT_MS);
		ok(date.wall_ms <= at(20000).wall_ms,
		   "%d ms after an answer and a pause: the pause is seen", sent);
	}
}

static void
test_fresh(void)
{
	static const struct
	{
		bool		expected;
		Moment		date;
		Moment		now;
		const char *what;
	}			cases[] = {
		{true, {1000, 5000}, {8999, 12999}, "less than two thirds of the timeout"},
		{false, {1000, 5000}, {9000, 13000}, "two thirds"},
		{false, {1000, 5000}, {9000, 5000}, "by the first clock alone"},
		{false, {1000, 5000}, {1000, 13000}, "by the time of day alone: a hypervisor stopped the machine"},
		{true, {1000, 5000}, {8999, 100}, "the time of day was set back"},
		{false, {0, 0}, {20000, 5000000}, "no proof"},
	};

	for (int i = 0; i < NELEMS(cases); i++)
		ok(cases[i].expected ==
		   contact_is_after(cases[i].date,
							contact_fresh_since(cases[i].now, TIMEOUT_MS)),
		   "%s", cases[i].what);
}

/* Each answer takes so long, and an earlier entry has just kept the last one out. */
static bool
is_fresh_after(int answer_ms)
{
	const int	first = 20000;
	const int	last = first + TIMEOUT_MS / 32 - 1;
	const int	asked = last + answer_ms + contact_delay_ms(TIMEOUT_MS) + 1;
	ContactLog	contact = {0};

	contact_begin(&contact, at(10000));
	contact_note(&contact, at(first), at(first + answer_ms), TIMEOUT_MS);
	contact_note(&contact, at(last), at(last + answer_ms), TIMEOUT_MS);
	return contact_is_after(contact_date(&contact, at(asked), TIMEOUT_MS),
							contact_fresh_since(at(asked + answer_ms),
												TIMEOUT_MS));
}

int
main(void)
{
	test_date();
	test_log();
	test_entries();
	test_new_connection();
	test_pause();
	test_fresh();
	is_int(644245094, contact_delay_ms(INT32_MAX), "the longest timeout has its delay");
	is_int(1431655764, -contact_fresh_since((Moment) {0, 0}, INT32_MAX).boot_ms, "the longest timeout has its lease");
	is_int(2000, contact_answer_ms(TIMEOUT_MS), "a proof comes of answers within a sixth of the timeout");
	ok(is_fresh_after(contact_answer_ms(TIMEOUT_MS)), "a proof of such answers is fresh");
	ok(!is_fresh_after(TIMEOUT_MS / 3), "a proof of answers within a third of the timeout is not");
	is_int(2000, contact_heartbeat_ms(TIMEOUT_MS), "a heartbeat each sixth of the timeout");
	is_int(3000, contact_pulse_ms(TIMEOUT_MS), "a pulse each quarter");
	ok(contact_pulse_ms(TIMEOUT_MS) + contact_delay_ms(TIMEOUT_MS) < TIMEOUT_MS * 2 / 3,
	   "the latest pulse that dates a proof leaves it fresh");
	return done_testing();
}
