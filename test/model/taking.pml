/*
 * taking.pml: how is a lease taken, and how many are there?
 *
 * A model of src/lease/lease_take.c and of what contender_step.c adds to a contender for it.
 * CALLS calls take a lease of one lock with PERMITS permits; all but the last one are of one
 * owner.  A call has a twin in the queue; when that is granted, one transaction deletes it and
 * makes the lease.  The reply may be lost, with its connection or with the session, and the
 * transaction may be executed late; a call may give up at any time.
 */

/*
 * CALLS, PERMITS: see above.  FAULTS: replies that are lost.  LOSSES: sessions that are.
 * GIVEUPS: calls that are canceled.  EVICTIONS: of a twin or a lease.
 */
#ifndef CALLS
#define CALLS 3
#define PERMITS 1
#define FAULTS 1
#define LOSSES 1
#define GIVEUPS 1
#define EVICTIONS 1
#endif

/* The properties; then what should be seen to happen. */
#define ONE			1			/* an owner has one lease */
#define FEW			2			/* there are not more leases than permits */
#define KEPT		4			/* no call deletes a lease that another has returned */
#define LEFT		8			/* at the end there is no lease that nobody has returned */
#define DONE_LATE	16			/* a transaction that is executed late makes a lease */
#define REFUSED		32			/* ... or none */
#define FOUND		64			/* a call finds the lease of another of its owner */
#define FOUND_OWN	128			/* ... or what it has made itself, without a reply */
#define SAVED		256			/* a call gives up what another one has renewed, and it stays */
#ifndef CHECKED
#define CHECKED 15
#endif
#define CHECK(what, condition) assert(!((CHECKED) & (what)) || (condition))
#define SEEN(what) CHECK(what, false)

/* Seeded bugs ... */
#define NO_TURN			1		/* who has a permit does not wait for his owner's twin */
#define NOT_FOUND		2		/* a contender does not look for its owner's lease */
#define NO_SETTLING		4		/* the next session does not delete the twin first */
#define LEASE_FIRST		8		/* who gives up deletes the lease, and then the twin */
#define ANY_VERSION		16		/* ... whatever its version */
#define TWIN_STAYS		32		/* who gives up leaves the twin alone */
#define TWO_STEPS		64		/* the twin is not deleted with the transaction */
#ifndef BUGS
#define BUGS 0
#endif
#define BUG(which) ((BUGS) & (which))

#define ATTEMPTS 2				/* of a call: the second behind a loss, or an eviction */
#define SLOTS 6					/* of three calls */
#define owner_of(slot) ((slot) / ATTEMPTS == CALLS - 1 -> 1 : 0)

mtype = { NONE, TWIN, LEASE };

/* The queue, by attempts.  A slot's twin and its lease have one number. */
mtype node[SLOTS] = NONE;
byte number[SLOTS];
byte next = 1;
bool is_renewed[SLOTS];			/* its version is not 0 any more */
bool is_returned[SLOTS];		/* a call has returned it */
bool is_late[SLOTS];			/* its transaction may be executed yet */
byte faults = FAULTS, losses = LOSSES, giveups = GIVEUPS, evictions = EVICTIONS;
byte nended;

/* It comes to the leader; done, or refused without the twin. */
inline make(slot)
{
	if
	:: node[slot] == TWIN || (BUG(TWO_STEPS) && node[slot] == NONE) ->
		node[slot] = LEASE; check_leases()
	:: else
	fi
}

inline check_leases()
{
	nof[0] = 0; nof[1] = 0; s = 0;
	do
	:: s < SLOTS ->
		if
		:: node[s] == LEASE -> nof[owner_of(s)]++
		:: else
		fi;
		s++
	:: else -> break
	od;
	CHECK(ONE, nof[0] <= 1 && nof[1] <= 1);
	CHECK(FEW, nof[0] + nof[1] <= PERMITS);
	nof[0] = 0; nof[1] = 0; s = 0
}

/* What a list tells that slot: the lease of its owner, or whether it has a permit. */
inline judge(slot)
{
	found = SLOTS; nahead = 0; must_wait = false; s = 0;
	do
	:: s < SLOTS ->
		if
		:: s != slot && node[s] != NONE && (node[slot] == NONE || number[s] < number[slot]) ->
			nahead++;
			if
			:: owner_of(s) == owner_of(slot) && node[s] == LEASE && !BUG(NOT_FOUND) -> found = s
			:: owner_of(s) == owner_of(slot) && node[s] == TWIN && !BUG(NO_TURN) -> must_wait = true
			:: else
			fi
		:: else
		fi;
		s++
	:: else -> break
	od;
	must_wait = must_wait || nahead >= PERMITS;
	nahead = 0; s = 0
}

/* A server that has lost the reply has executed it, or will, or never. */
inline lose_reply(slot)
{
	if
	:: make(slot)
	:: is_late[slot] = true
	:: skip
	fi
}

proctype Call(byte me)
{
	byte slot = me * ATTEMPTS;
	byte found, nahead, s;
	byte nof[2];
	bool must_wait;

look:
	/* list_before_joining(): before a node is made */
	atomic { judge(slot) };
	if
	:: found < SLOTS -> goto renew
	:: else
	fi;
	atomic { node[slot] = TWIN; number[slot] = next; next++ };
list:
	atomic {
		if
		:: node[slot] == TWIN -> judge(slot)
		:: else -> found = SLOTS; must_wait = false
		fi
	};
	if
	:: found < SLOTS ->
		atomic {
			SEEN(FOUND);
			if
			:: node[slot] == TWIN -> node[slot] = NONE; number[slot] = 0
			:: else
			fi
		};
		goto renew
	:: found == SLOTS && node[slot] == NONE -> goto over		/* evicted while it waits */
	:: found == SLOTS && must_wait ->
		if
		:: goto list
		:: giveups > 0 -> atomic { giveups--; node[slot] = NONE; number[slot] = 0 }; goto over
		fi
	:: else
	fi;

move:
	if
	:: atomic { node[slot] == TWIN ->
			make(slot);
			is_returned[slot] = true };
		goto over
	:: node[slot] == NONE -> goto anew
	:: atomic { node[slot] == LEASE -> SEEN(FOUND_OWN); found = slot }; goto renew
	:: atomic { faults > 0 -> faults--; lose_reply(slot) }; goto move
	:: atomic { losses > 0 && slot % ATTEMPTS == 0 -> losses--; lose_reply(slot) }; goto settle
	:: atomic { giveups > 0 -> giveups--; lose_reply(slot) }; goto give_up
	fi;

settle:
	/* remove_twin(); without it the ensemble does that when the session has expired */
	if
	:: BUG(NO_SETTLING)
	:: else -> atomic {
			if
			:: node[slot] == TWIN -> node[slot] = NONE; number[slot] = 0
			:: else
			fi }
	fi;
anew:
	if
	:: slot % ATTEMPTS == ATTEMPTS - 1 -> goto over
	:: else -> slot++; goto look
	fi;

renew:
	/* renew_owned(): by whatever version it has */
	if
	:: atomic { node[found] == LEASE -> is_renewed[found] = true; is_returned[found] = true };
		goto over
	:: else ->
		if
		:: node[slot] == NONE && !is_late[slot] -> goto look
		:: else -> goto anew
		fi
	fi;

give_up:
	/* zklock_lease_end_taking() */
	if
	:: BUG(LEASE_FIRST) -> goto delete_lease
	:: else
	fi;
delete_twin:
	if
	:: BUG(TWIN_STAYS)
	:: else -> atomic {
			if
			:: node[slot] == TWIN -> node[slot] = NONE; number[slot] = 0
			:: else
			fi }
	fi;
	if
	:: BUG(LEASE_FIRST) -> goto over
	:: else
	fi;
delete_lease:
	atomic {
		if
		:: node[slot] == LEASE && (!is_renewed[slot] || BUG(ANY_VERSION)) ->
			CHECK(KEPT, !is_returned[slot]);
			node[slot] = NONE; number[slot] = 0
		:: node[slot] == LEASE && is_renewed[slot] && !BUG(ANY_VERSION) -> SEEN(SAVED)
		:: else
		fi
	};
	if
	:: BUG(LEASE_FIRST) -> goto delete_twin
	:: else
	fi;

over:
	atomic {
		nended++; found = 0; must_wait = false
	}
}

#define LATE(slot) \
	atomic { is_late[slot] -> \
		if \
		:: node[slot] == TWIN -> SEEN(DONE_LATE) \
		:: else -> SEEN(REFUSED) \
		fi; \
		make(slot); is_late[slot] = false }

/* What is executed late; and the end. */
proctype Leader()
{
	byte s;
	byte nof[2];
end:
	do
	:: LATE(0)
	:: LATE(1)
	:: LATE(2)
	:: LATE(3)
	:: LATE(4)
	:: LATE(5)
	:: atomic { nended == CALLS ->
			s = 0;
			do
			:: s < SLOTS ->
				CHECK(LEFT, node[s] != LEASE || is_returned[s] || is_late[s]);
				s++
			:: else -> break
			od;
			nended++; s = 0 }
	od
}

#define EVICT(slot) \
	atomic { evictions > 0 && node[slot] != NONE -> \
		evictions--; node[slot] = NONE; number[slot] = 0 }

/* Somebody evicts a contender, or gives up a lease that he was told of. */
proctype Evictor()
{
end:
	do
	:: EVICT(0)
	:: EVICT(1)
	:: EVICT(2)
	:: EVICT(3)
	:: EVICT(4)
	:: EVICT(5)
	od
}

init
{
	atomic {
		run Leader(); run Evictor();
		run Call(0); run Call(1);
		if
		:: CALLS > 2 -> run Call(2)
		:: else
		fi
	}
}
