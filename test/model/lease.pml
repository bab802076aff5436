/*
 * lease.pml: for how long does the renewal of a lease protect a transaction?
 *
 * A model in discrete time of one lease (src/ensemble/expiry.c, src/lease/lease_*.c): a backend that
 * renews it and commits, another backend of the same owner, and two contenders that time
 * it; one of them may as well be a sweeper.  Time is that of the contenders.  The owner's
 * clock may be slower by a tenth.  Whoever need not step may be stopped for any time.
 */

/*
 * N: contenders.  LONG, SHORT: the terms that renewals name, in units of time.  FRESH: for so many tenths of its
 * term the guard relies on a renewal.  RESERVE: and so many later the commit record is
 * written at most.  SLOW: is the owner's clock slower?  SETS: renewals in all.  FAULTS: lost
 * replies.
 */
#ifndef N
#define N 2
#define FRESH 6
#define RESERVE 2
#define SLOW 1
#define SETS 3
#define FAULTS 1
#endif
#define LONG 10
#define SHORT 6

/* The property; then what should be seen to happen. */
#define COMMIT		1			/* no commit when somebody else was granted the lock */
#define BY_AGE		2			/* the guard passes by a former renewal */
#define BY_RENEWAL	4			/* ... by one of its own */
#define REFUSED		8			/* it refuses */
#define BEATEN		16			/* a delete comes too late: renewed meanwhile */
#define LATE_SET	32			/* a renewal is executed when its reply was given up */
#define JUST_AFTER	64			/* somebody is granted the lock right behind the reserve */
#define BOTH_DELETE	128			/* two contenders delete it */
#ifndef CHECKED
#define CHECKED 1
#endif
#define CHECK(what, condition) assert(!((CHECKED) & (what)) || (condition))
#define SEEN(what) CHECK(what, false)

/* Seeded bugs ... */
#define BY_EXISTENCE	1		/* the guard asks whether the node is there */
#define BY_REPLY		2		/* a renewal is dated by its reply */
#define ANY_VERSION		4		/* who deletes it names no version */
#define SAME_VERSION	8		/* a version is timed from when another one was read */
#define OTHER_TERM		16		/* ... or by the term of another one */
#define LOST_IS_DONE	32		/* a reply that is lost is taken for a renewal */
#define ANY_AGE			64		/* every renewal is fresh */
#define SHORTER			128		/* a renewal may shorten the term */
#define BLIND_SET		256		/* a renewal names no version, and so not its term either */
#ifndef BUGS
#define BUGS 0
#endif
#define BUG(which) ((BUGS) & (which))

mtype:phase = { HOLD, ASKED, EXISTS, LOOK, PASSED, OVER };
mtype:request = { NONE, SENT, DONE, FAILED };

/* The node. */
bool is_there = true;
byte version;
byte term = LONG;
bool is_granted;				/* somebody else has the lock */

/* The owner's backend. */
mtype:phase phase = HOLD;
mtype:request request = NONE;
byte asked_version, asked_term, known, known_term;
byte sent = LONG;				/* age of the request */
byte proof;						/* ... of the last renewal, of that term */
byte proof_term;
bool has_renewed;
bool is_late;					/* a renewal whose reply is not awaited any more */
byte late_version, late_term;
byte faults = FAULTS;
byte since;						/* the guard has passed, by the contenders' clock */

/* The contenders. */
byte age[2];					/* since they have read the version that they time */

#define reserve (RESERVE * proof_term / 10)
#define is_fresh ((SLOW -> proof * 9 / 10 : proof) <= FRESH * proof_term / 10)

inline grow(counter, limit) { counter = (counter < limit -> counter + 1 : limit) }

proctype Clock()
{
end:
	do
	:: d_step {
		grow(sent, LONG);
		grow(proof, LONG);
		grow(age[0], LONG);
		grow(age[1], LONG);
		if
		:: phase == PASSED -> grow(since, reserve + 1)
		:: else
		fi }
	od
}

/* A renewal comes to the leader. */
inline set_node(of_version, of_term, is_done)
{
	is_done = is_there && (version == of_version || BUG(BLIND_SET));
	if
	:: is_done -> version++; term = of_term
	:: else
	fi
}

proctype Leader()
{
	bool is_done;
end:
	do
	:: d_step { request == SENT ->
		set_node(asked_version, asked_term, is_done);
		request = (is_done -> DONE : FAILED) }
	:: d_step { is_late ->
		set_node(late_version, late_term, is_done);
		CHECK(LATE_SET, !is_done);
		is_late = false; late_version = 0; late_term = 0 }
	od
}

inline choose_term(chosen, least)
{
	if
	:: chosen = LONG
	:: least == SHORT || BUG(SHORTER) -> chosen = SHORT
	fi
}

/* What nobody reads any more makes no two states of one. */
inline forget_request() { request = NONE; sent = LONG; asked_version = 0; asked_term = 0 }
inline finish() {
	phase = OVER; since = 0; sent = LONG; proof = LONG; known = 0; known_term = 0
}

proctype Owner()
{
end:
	do
	/* zklock_lease_prove(): is_fresh() */
	:: d_step { phase == HOLD && (is_fresh || BUG(ANY_AGE)) ->
		CHECK(BY_AGE, has_renewed);
		CHECK(BY_RENEWAL, !has_renewed);
		phase = PASSED; since = 0 }
	/* zklock_lease_renew(), zklock_lease_renew_node() */
	:: atomic { phase == HOLD && version < SETS && !is_late ->
		choose_term(asked_term, known_term);
		asked_version = known; sent = 0; request = SENT; phase = ASKED }
	:: d_step { phase == ASKED && request == DONE ->
		proof = (BUG(BY_REPLY) -> 0 : sent);
		proof_term = asked_term; known_term = asked_term; known = asked_version + 1;
		has_renewed = true; forget_request(); phase = HOLD }
	:: d_step { phase == ASKED && request == FAILED -> forget_request(); phase = LOOK }
	:: d_step { phase == ASKED && faults > 0 ->
		faults--;
		if
		:: request == SENT ->
			is_late = true; late_version = asked_version; late_term = asked_term
		:: else
		fi;
		if
		:: BUG(LOST_IS_DONE) -> proof = sent; proof_term = asked_term; phase = HOLD
		:: else -> phase = LOOK
		fi;
		forget_request() }
	/* find() */
	:: d_step { phase == LOOK && is_there ->
		known = version; known_term = term; phase = HOLD }
	:: d_step { phase == LOOK && !is_there -> SEEN(REFUSED); finish() }

	:: d_step { phase == HOLD && BUG(BY_EXISTENCE) -> sent = 0; phase = EXISTS }
	:: d_step { phase == EXISTS && is_there -> proof = sent; sent = LONG; phase = HOLD }
	:: d_step { phase == EXISTS && !is_there -> finish() }

	/* What stands between the guard and the commit record may take its time. */
	:: d_step { phase == PASSED && since <= reserve ->
		CHECK(COMMIT, !is_granted); phase = HOLD; since = 0 }
	:: d_step { phase == PASSED && since > reserve -> finish() }
	od
}

/* Another backend of the same owner renews it. */
proctype Other()
{
	byte of_version, of_term;
	bool is_done;
end:
	do
	:: atomic { is_there && version < SETS ->
		of_version = version;
		choose_term(of_term, term) };
		d_step { set_node(of_version, of_term, is_done); of_version = 0; of_term = 0 }
	od
}

/*
 * zklock_expiry_sweep().  A version is timed from when the server has read it: an answer that
 * comes later, or from a server that lags behind, is timed later, too.
 */
proctype Contender(byte me)
{
	byte seen, seen_term;		/* seen_term 0: nothing yet */

look:
	atomic {
		if
		:: !is_there -> seen = SETS + 1
		:: is_there && (seen_term == 0 || (seen != version && !BUG(SAME_VERSION))) ->
			age[me] = 0;
			seen_term = (seen_term != 0 && BUG(OTHER_TERM) -> seen_term : term);
			seen = version
		:: else -> seen_term = (BUG(OTHER_TERM) -> seen_term : term); seen = version
		fi
	}
	if
	:: seen > SETS -> goto granted
	:: seen <= SETS && age[me] < seen_term -> goto look
	:: seen <= SETS && age[me] >= seen_term
	fi;
	d_step {
		if
		:: is_there && (version == seen || BUG(ANY_VERSION)) -> is_there = false
		:: is_there && version != seen && !BUG(ANY_VERSION) -> SEEN(BEATEN)
		:: else -> SEEN(BOTH_DELETE)
		fi
	}
	goto look;
granted:
	atomic {
		CHECK(JUST_AFTER, phase != PASSED || since <= reserve);
		is_granted = true; age[me] = LONG; seen = 0; seen_term = 0
	}
}

init
{
	atomic {
		/* Its create was sent just now. */
		if
		:: term = LONG
		:: term = SHORT
		fi;
		known_term = term; proof_term = term;
		run Clock(); run Leader(); run Owner(); run Other(); run Contender(0);
		if
		:: N > 1 -> run Contender(1)
		:: else
		fi
	}
}
