/*
 * proof.pml: for how long does an acknowledged write prove a session?
 *
 * A model in discrete time of one session: its program (program_session.c,
 * program_pulse.c), the backend with its commit guard (lock.c), the follower
 * that they are connected to, and the leader, which alone ends sessions.
 * README.md says what is left out; test/model/run checks it.
 *
 * A step takes no time; time passes where Clock steps.  Whoever need not step
 * before that may be stopped, frozen or slow for any time.  The one who must is
 * the follower: it reports to the leader each GAP, see below.
 */

/*
 * T: the session timeout, a multiple of 10.  GAP: within this time a follower
 * that is not cut off tells the leader who was active: half a tick, and as much
 * as a report is late because somebody is frozen or the network slow.  RESERVE:
 * so long after the guard the commit record is written at most.  PROMPT: nobody
 * is slow or frozen, from the beginning or from the end of a long stop on.
 */
#ifndef T
#define T 10
#define GAP 2
#define RESERVE 2
#define PROMPT 0
#endif

/* The times of contact.c, rounded to what is worse. */
#define SIXTH ((T + 5) / 6)		/* contact_heartbeat_ms() */
#define QUARTER ((T + 3) / 4)	/* contact_pulse_ms() */
#define DELAY (3 * T / 10)		/* contact_delay_ms() */
#define CAP (T / 3)				/* contact_date() gives no date later than that */
#define STALE ((2 * T + 2) / 3)	/* contact_fresh_since(): from that age on */
#define EARLY (T - T / 10)		/* note_disconnected(): gives up the session */

/* What is checked, by default the properties; then what should be seen to happen. */
#define COMMIT			1		/* no commit when the session has ended */
#define GRANT			2		/* no lock handed over to one that has ended */
#define FREED			4		/* a session that was given up is ended */
#define ONCE			8		/* the guard need not ask twice */
#define ENDS			16		/* it comes to an end, also after a stop */
#define BY_LEASE		32		/* the guard passes without asking */
#define BY_QUORUM		64		/* ... by an answer */
#define ASKED_AGAIN		128		/* it asks twice */
#define REFUSED			256		/* it refuses */
#define BY_GREETING		512		/* a proof is dated by the connection */
#define BY_REQUEST		1024	/* ... by a request */
#define HANDED_OVER		2048	/* a lock is handed over by a fresh proof */
#define HANDED_STALE	4096	/* ... to one that asks */
#define JUST_AFTER		8192	/* the session ends right behind the reserve */
#define CUT_OFF			16384	/* a follower that is cut off answers */
#define IDLE_HOLDER		32768	/* a session ends, and its idle holder believes */
#define BY_PULSE		65536	/* the first lock's proof is dated by a pulse */
#define READY			131072	/* a property: that proof is fresh when it comes */
#ifndef CHECKED
#define CHECKED 31
#endif
#define CHECK(what, condition) assert(!((CHECKED) & (what)) || (condition))
#define SEEN(what) CHECK(what, false)

/* Seeded bugs ... */
#define GUARD_OFF		1		/* commit_guard = off */
#define BY_WRITE		2		/* a proof is dated by the write itself */
#define BY_SENT			4		/* by a request sent before, answered or not */
#define NO_DELAY		8		/* by one answered before, however lately */
#define BY_ANSWER		16		/* by when its answer was read */
#define BY_CONNECTED	32		/* by when the connection was there */
#define FROM_ANSWER		64		/* a proof counts from its acknowledgement */
#define ANY_ANSWER		128		/* the guard takes any answer for a proof */
#define ANY_AGE			256		/* lease: however old the proof is */
#define EARLY_CLOCK		512		/* the clock is read before the backend stops */
#define UNPROVED		1024	/* a lock is handed over without a proof */
#define KEEP			2048	/* a session that was given up is kept */
#define SLOW			4096	/* heartbeats as rare as the library's pings */
#define UNCOUNTED		8192	/* an answered check does not date the next one */
#define SLOW_PULSE		16384	/* pulses as rare as these */
#ifndef BUGS
#define BUGS 0
#endif
#define BUG(which) ((BUGS) & (which))

mtype:line = { DOWN, GREETING, GREETED, UP };
mtype:request = { NONE, SENT, FORWARDED, ANSWERED };
mtype:packet = { REPORT, WRITE };
mtype:phase = { JOIN, WAIT, HOLD, LEASE, QUORUM, ASK, PAUSE, PASSED, OVER };

/* The leader, and what the follower has sent to it. */
byte left = T;					/* until it ends the session */
bool has_ended;
chan stream = [2] of { mtype:packet };

/* The follower. */
byte gap;						/* since it last reported */
bool is_active;					/* the session is to be reported */
bool is_cut_off;				/* from the leader */

/* The program. */
mtype:line line = DOWN;
mtype:request heartbeat = NONE;
mtype:request write = NONE;
bool is_given_up;				/* known or declared to be lost */

/*
 * What can date a proof: how long ago the attempt to connect was begun, and
 * requests of this connection were sent and answered.  Unless all are prompt the
 * model keeps one of these only, whichever it likes: so whatever the code takes
 * to date a proof, it is taken here.
 */
#define MEMORY (PROMPT -> 3 : 1)
byte connected = STALE;
byte beat_sent = STALE;			/* the heartbeat under way */
byte sent[3] = STALE, answered[3] = DELAY;

/* The backend. */
mtype:phase phase = JOIN;
mtype:phase purpose = WAIT;		/* the phase behind ASK or PAUSE */
byte date = T;					/* age of the one proof that is of interest */
byte since;						/* PAUSE or PASSED began */
byte attempts;					/* answers in this guard */
bool is_told;					/* the lock was handed over */

/* With PROMPT only. */
byte idle;						/* since something was sent */
byte write_sent;
byte guarding;					/* since the guard began */
byte stuck;						/* since the session was given up */
bool was_stopped;

#define is_fresh(age) (age < STALE)

/*
 * Nothing depends on the session before it joins a queue: until then there are
 * pulses, which the follower answers.  So it does with heartbeats here.
 */
#define PULSE (BUG(SLOW_PULSE) -> STALE / 2 : QUARTER)
#define BEAT (BUG(SLOW) -> STALE / 2 : SIXTH)

/* ---- Time ---- */

inline grow(age, limit) { age = (age < limit -> age + 1 : limit) }

#define is_report_due (line == UP && !is_cut_off && gap >= GAP)
#define is_heartbeat_due \
	(line == UP && heartbeat == NONE && write == NONE && !has_ended && \
	 idle >= (phase == JOIN -> PULSE : BEAT) && !(is_given_up && !BUG(KEEP)))
#define is_program_due \
	((line == DOWN && !has_ended) || len(stream) > 0 || \
	 (line != DOWN && line != UP && connected >= 1) || \
	 is_heartbeat_due || (heartbeat != NONE && beat_sent >= 1) || \
	 (write != NONE && write_sent >= 1) || \
	 (is_given_up && line == UP && !has_ended && !BUG(KEEP)))
#define is_backend_due \
	(((phase == LEASE || phase == QUORUM) && (line == UP || is_given_up)) || \
	 (phase == PAUSE && since >= DELAY && line == UP) || \
	 (phase == ASK && (write == ANSWERED || (write == NONE && line == UP))))

proctype Clock()
{
	byte i;
end:
	do
	:: d_step { !is_report_due && !(PROMPT && (is_program_due || is_backend_due)) ->
		left = (left > 0 -> left - 1 : 0);
		gap = (line == UP && !is_cut_off -> gap + 1 : gap);
		grow(connected, STALE);
		grow(beat_sent, STALE);
		for (i : 0 .. 2) {
			grow(sent[i], STALE);
			answered[i] = (sent[i] < STALE && answered[i] < DELAY ->
				answered[i] + 1 : DELAY)
		}
		grow(date, T);
		if
		:: phase == PASSED -> grow(since, RESERVE + 1)
		:: phase == PAUSE && PROMPT -> grow(since, DELAY)
		:: else
		fi;
		if
		:: PROMPT -> grow(idle, T); grow(write_sent, 1); grow(guarding, T); grow(stuck, T)
		:: else
		fi;
		CHECK(FREED, !is_given_up || has_ended || stuck < T);
		CHECK(ENDS, guarding < DELAY + 4 || phase == WAIT || phase == HOLD ||
			phase == PASSED || phase == OVER || phase == JOIN) }
	od
}

/* ---- The ensemble ---- */

proctype Leader()
{
end:
	do
	:: d_step { left == 0 && !has_ended ->
		has_ended = true;
		CHECK(IDLE_HOLDER, phase != HOLD || is_given_up);
		CHECK(JUST_AFTER, phase != PASSED || since <= RESERVE || PROMPT) }
	:: d_step { stream?[REPORT] -> stream?REPORT; left = (has_ended -> 0 : T) }
	:: d_step { stream?[WRITE] -> stream?WRITE;
		if
		:: has_ended -> is_given_up = true; write = NONE
		:: else -> write = ANSWERED
		fi }
	/* The session is created, or revalidated. */
	:: d_step { line == GREETING && !has_ended -> line = GREETED; left = T }
	:: d_step { line == GREETING && has_ended -> line = DOWN; is_given_up = true }
	/* It is deposed; a new leader gives each session its whole time. */
	:: d_step { !PROMPT && line == UP && left < T && !has_ended -> left = T; is_cut_off = true }
	od
}

proctype Follower()
{
end:
	do
	/* Answer a ping of the leader's. */
	:: d_step { line == UP && !is_cut_off && (PROMPT -> gap == GAP : gap > 0 || is_active) &&
		nfull(stream) ->
		gap = 0;
		if
		:: is_active -> stream!REPORT; is_active = false
		:: else
		fi }
	/* What a client sends is activity; writes are forwarded. */
	:: d_step { heartbeat == SENT -> heartbeat = ANSWERED; is_active = true;
		CHECK(CUT_OFF, !is_cut_off) }
	:: d_step { write == SENT && nfull(stream) -> write = FORWARDED; is_active = true;
		if
		:: !is_cut_off -> stream!WRITE
		:: else
		fi }
	/* What it has sent already may arrive yet. */
	:: d_step { !PROMPT && line == UP && !is_cut_off -> is_cut_off = true; gap = 0 }
	od
}

/* ---- The program ---- */

inline clear_memory() {
	connected = STALE; beat_sent = STALE;
	for (i : 0 .. 2) { sent[i] = STALE; answered[i] = DELAY }
}

/* A request of that age was answered: the latest that counts, and two to come. */
inline remember(age) {
	if
	:: PROMPT && sent[1] < STALE && answered[1] == DELAY ->
		sent[0] = sent[1];
		sent[1] = sent[2]; answered[1] = answered[2]; sent[2] = STALE
	:: else
	fi;
	if
	:: !PROMPT -> sent[0] = age; answered[0] = 0
	:: PROMPT && sent[1] == STALE -> sent[1] = age; answered[1] = 0
	:: else -> sent[2] = age; answered[2] = 0
	fi
}

/* The proof that a write sent now will be. */
inline set_date() {
	date = connected;
	for (i : 0 .. 2) {
		if
		:: sent[i] < date && (answered[i] == DELAY || BUG(NO_DELAY)) -> date = sent[i]
		:: else
		fi
	}
	if
	:: BUG(BY_SENT) && beat_sent < date && beat_sent >= DELAY -> date = beat_sent
	:: BUG(BY_WRITE) -> date = 0
	:: else
	fi;
	date = (date < CAP && !BUG(BY_WRITE) -> CAP : date);
	CHECK(BY_GREETING, date == STALE || connected == STALE);
	CHECK(BY_REQUEST, date == STALE || connected < STALE);
	date = (date == STALE -> T : date)
}

proctype Program()
{
	byte i;
end:
	do
	:: atomic { line == DOWN && !has_ended ->
		line = GREETING;
		if
		:: connected = 0
		:: !PROMPT
		fi }
	:: d_step { line == GREETED -> line = UP; idle = 0;
		connected = (BUG(BY_CONNECTED) -> 0 : connected) }
	/* A heartbeat; one to be remembered. */
	:: d_step { line == UP && heartbeat == NONE && (!is_given_up || BUG(KEEP)) &&
		(!PROMPT || is_heartbeat_due) ->
		if
		:: !PROMPT -> clear_memory()
		:: else
		fi;
		heartbeat = SENT; beat_sent = 0; idle = 0 }
	:: d_step { heartbeat == ANSWERED ->
		beat_sent = (BUG(BY_ANSWER) -> 0 : beat_sent);
		remember(beat_sent); heartbeat = NONE; beat_sent = STALE }
	/* The connection is lost, the follower dies, or the network. */
	:: d_step { !PROMPT && line != DOWN ->
		clear_memory();
		heartbeat = NONE; date = (write != NONE -> T : date); write = NONE;
		is_active = false; is_cut_off = false; gap = 0;
		do
		:: stream?[REPORT] -> stream?REPORT
		:: stream?[WRITE] -> stream?WRITE
		:: empty(stream) -> break
		od;
		line = DOWN }
	/* lost_deadline(): no contact since the last proof was acknowledged. */
	:: d_step { !PROMPT && line != UP && !is_given_up && date >= EARLY -> is_given_up = true }
	/* Whoever declares a session lost ends it, whatever the backend does. */
	:: d_step { line == UP && is_given_up && !has_ended && !BUG(KEEP) ->
		has_ended = true; left = 0 }
	od
}

/* ---- The backend ---- */

/* A create, or zklock_client_check(). */
inline ask_quorum(why) {
	set_date(); write = SENT; write_sent = 0; idle = 0; purpose = why; phase = ASK;
	guarding = (why == LEASE || why == QUORUM -> guarding : 0)
}

inline pass() { phase = PASSED; since = 0; attempts = 0 }

#define can_ask (line == UP && write == NONE && !is_given_up)

proctype Backend()
{
	byte i;
	byte clock = STALE;			/* what it has said of the proof's age */
end:
	do
	/* join(), await_watch(), confirm_queued() */
	:: d_step { phase == JOIN && can_ask -> ask_quorum(WAIT);
		CHECK(BY_PULSE, connected < STALE || date == T) }
	:: d_step { phase == WAIT && !is_told -> is_told = true }
	:: d_step { phase == WAIT && is_told && !is_given_up && (is_fresh(date) || BUG(UNPROVED)) ->
		SEEN(HANDED_OVER); CHECK(GRANT, !has_ended); phase = HOLD; is_told = false }
	:: d_step { phase == WAIT && is_told && !is_fresh(date) && can_ask ->
		SEEN(HANDED_STALE); is_told = false; ask_quorum(HOLD) }

	/* zklock_prove_locks() in lock_proof.c, at each commit */
	:: atomic { phase == HOLD ->
		attempts = 0; guarding = 0;
		if
		:: phase = LEASE
		:: phase = QUORUM
		fi }
	:: d_step { (phase == LEASE || phase == QUORUM) && is_given_up && !BUG(GUARD_OFF) ->
		SEEN(REFUSED); phase = OVER }
	:: d_step { phase == LEASE && BUG(GUARD_OFF) -> pass() }
	:: d_step { phase == LEASE && BUG(EARLY_CLOCK) -> clock = date }
	:: d_step { phase == LEASE && BUG(EARLY_CLOCK) && is_fresh(clock) -> clock = STALE; pass() }
	:: d_step { phase == LEASE && !is_given_up && (is_fresh(date) || BUG(ANY_AGE)) ->
		CHECK(BY_LEASE, attempts > 0); pass() }
	:: d_step { phase == QUORUM && attempts > 0 && !is_given_up &&
		(is_fresh(date) || BUG(ANY_ANSWER)) -> SEEN(BY_QUORUM); pass() }
	:: d_step { (phase == LEASE || phase == QUORUM) && can_ask && attempts < 2 &&
		!(is_fresh(date) && (phase == LEASE || attempts > 0)) ->
		CHECK(ONCE, attempts == 0 || was_stopped || !PROMPT); ask_quorum(phase) }
	/* zklock_session_await_contact(): what is answered now can date the next one */
	:: d_step { (phase == LEASE || phase == QUORUM) && !is_fresh(date) && attempts == 2 &&
		!is_given_up -> purpose = phase; phase = PAUSE; since = 0; date = T }
	:: d_step { phase == PAUSE && (since == DELAY || !PROMPT) && can_ask ->
		SEEN(ASKED_AGAIN); ask_quorum(purpose) }
	:: d_step { phase == ASK && write == ANSWERED ->
		CHECK(READY, purpose != WAIT || is_fresh(date) || was_stopped || !PROMPT);
		date = (BUG(FROM_ANSWER) -> 0 : date);
		if
		:: PROMPT && !BUG(UNCOUNTED) -> remember(write_sent)
		:: else
		fi;
		write = NONE; attempts = (attempts < 2 -> attempts + 1 : 2); phase = purpose }
	:: d_step { phase == ASK && can_ask -> ask_quorum(purpose) }
	:: d_step { (phase == ASK || phase == WAIT || phase == PAUSE) && is_given_up -> phase = OVER }

	/* What stands between the guard and the commit record may take its time. */
	:: d_step { phase == PASSED && since <= RESERVE ->
		CHECK(COMMIT, !has_ended); phase = HOLD; since = 0; date = T }
	:: d_step { phase == PASSED && since > RESERVE -> phase = OVER; since = 0 }
	od
}

init
{
	atomic {
		/* PROMPT: as it begins, or at the end of a long stop. */
		if
		:: true
		:: PROMPT -> was_stopped = true; line = UP; left = 1;
			if
			:: phase = LEASE
			:: phase = QUORUM
			:: phase = HOLD; line = DOWN; is_given_up = true
			fi
		fi;
		run Clock(); run Leader(); run Follower(); run Program(); run Backend()
	}
}
