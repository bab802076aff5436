/*
 * keep.pml: a lock that is kept after its release, taken back and given up
 * (src/common/keep_state.h, src/queue/keep.c, src/program/program_follow.c).
 *
 * One session keeps a lock: its backend, its program, and what is on its way between the
 * two and the ensemble, in order.  Others come to the queue one after the other, of whatever
 * make; some of them do not wait, but for the answer whether the lock is held.  That a node
 * is there proves that its session lives: what becomes of proofs is in proof.pml.
 */

/* Bounds: how often the backend takes the lock, how many others come, lost replies,
 * nodes deleted by strangers, times that are over. */
#ifndef ROUNDS
#define ROUNDS 3
#define OTHERS 1
#define FAULTS 1
#define EVICTIONS 1
#define EXPIRIES 1
#endif

#define EXCLUSION	1			/* never two holders, but for one that was evicted */
#define PROGRESS	2			/* whoever comes has it, or is told that it is held */
#define TRUTH		4			/* who is told that was there when it was so */
#define NO_ORPHAN	8			/* no node stays that nobody keeps */
#define TAKEN_BACK	16			/* it is taken back */
#define FOR_OTHERS	32			/* it is given up for somebody */
#define TOLD		64			/* somebody is told that it is held */
#define LATE		128			/* an event comes of a queue whose lock is not kept any more */
#ifndef CHECKED
#define CHECKED 15
#endif
#define CHECK(what, condition) assert(!((CHECKED) & (what)) || (condition))
#define SEEN(what) CHECK(what, false)

#define NO_SWAP		1			/* the backend looks at the word, and then writes it */
#define DELETE_FIRST	2			/* the program deletes the node, and then says so */
#define NO_LIST		4			/* who was there before the watch is not looked for */
#define KEEP_AGAIN	8			/* what is held when somebody comes is kept again all the same */
#define NOBODY_SAYS	16			/* nobody tells that the lock is held */
#define ALWAYS_HELD	32			/* ... or everybody is told so */
#ifndef BUGS
#define BUGS 0
#endif
#define BUG(which) ((BUGS) & (which))

mtype = {FREE, HELD, WANTED, KEPT, GIVEN_UP, CREATE, DELETE, LIST, SAY, KEEP, EVENT, LISTED}

/* The word, and of which generation it is. */
mtype word = FREE;
byte word_of;

/* The queue: numbers of the nodes of the session, by generation, and of the other. */
#define GENERATIONS 5
byte node[GENERATIONS];
byte theirs;
byte next_number = 1;
bool says_held[GENERATIONS];
bool is_watched;

bool holds;						/* the backend has the lock */
byte holds_of;
bool they_hold;
bool was_held;					/* at some moment since the other has come */
byte nserved;
byte faults = FAULTS;
byte evictions = EVICTIONS;
byte expiries = EXPIRIES;
bool was_evicted;
bool is_over;					/* the backend has let go of all */
bool is_stuck;					/* or it holds the lock, and goes on with it */
bool they_wait;

chan to_program = [3] of {mtype, byte};
chan to_server = [6] of {mtype, byte};
chan from_server = [3] of {mtype, byte};
#define CAN_TELL (len(from_server) < 3)

/* Whoever is there when something comes or goes hears of it, once. */
inline changed()
{
	if
	:: is_watched -> is_watched = false; from_server!EVENT, 0
	:: else
	fi
}

#define IS_FIRST(g) (node[g] > 0 && (theirs == 0 || theirs > node[g]))
#define ANY_NODE (node[0] + node[1] + node[2] + node[3] + node[4] > 0)
#define AHEAD(g) (node[g] > 0 && node[g] < theirs)
#define ANY_AHEAD (AHEAD(0) || AHEAD(1) || AHEAD(2) || AHEAD(3) || AHEAD(4))

proctype Server()
{
	byte g;

end:
	do
	:: CAN_TELL -> atomic {
		if
		:: to_server?CREATE, g -> node[g] = next_number; next_number++; changed()
		:: to_server?DELETE, g ->
			if
			:: node[g] > 0 -> node[g] = 0; changed()
			:: else
			fi
		:: to_server?SAY, g -> says_held[g] = node[g] > 0
		:: to_server?LIST, g ->
			is_watched = true;
			from_server!LISTED, (theirs > 0 || node[g] == 0 -> 1 : 0)
		fi }
	od
}

/*
 * keep_state_want(), and what follows from it.
 */
inline give_way()
{
	if
	:: BUG(DELETE_FIRST) -> to_server!DELETE, kept
	:: else
	fi;
	atomic {
		if
		:: word_of == kept && word == KEPT ->
			word = GIVEN_UP; found = GIVEN_UP
		:: word_of == kept && word == HELD ->
			if
			:: BUG(KEEP_AGAIN)
			:: else -> word = WANTED
			fi;
			found = HELD
		:: else -> found = FREE
		fi
	}
	if
	:: found == GIVEN_UP && !BUG(DELETE_FIRST) -> to_server!DELETE, kept
	:: found == HELD && !BUG(NOBODY_SAYS) -> to_server!SAY, kept
	:: else
	fi;
	found = FREE;
	kept = 0
}

proctype Program()
{
	byte kept, g;
	bool others;
	mtype found = FREE;

end:
	do
	:: to_program?CREATE, g -> to_server!CREATE, g
	:: to_program?DELETE, g -> to_server!DELETE, g
	:: to_program?KEEP, g -> kept = g; 
		if
		:: BUG(NO_LIST) -> is_watched = true
		:: else -> to_server!LIST, g
		fi
	:: from_server?LISTED, others ->
		if
		:: kept > 0 && others -> give_way()
		/* the reply is lost with the connection: asked again, watch and all */
		:: kept > 0 && faults > 0 -> faults--; to_server!LIST, kept
		:: else
		fi
	:: from_server?EVENT, _ ->
		if
		:: kept > 0 -> give_way()
		:: else -> SEEN(LATE)
		fi
	/* its time is over, whoever is there */
	:: expiries > 0 && kept > 0 && word == KEPT && word_of == kept ->
		expiries--; give_way()
	od
}

/* Give up what is kept, unless that is done already. */
inline drop()
{
	atomic {
		is_kept = false;
		if
		:: word_of == g && word == KEPT -> word = FREE; is_kept = true
		:: else
		fi }
	if
	:: is_kept -> to_program!DELETE, g; is_kept = false
	:: else
	fi
}

proctype Backend()
{
	byte g, round;
	bool is_taken, is_kept, may_keep;

	do
	:: round == ROUNDS -> break
	:: round < ROUNDS ->
		round++;
		is_taken = false;
		if
		:: is_kept -> drop()		/* for another mode of the lock */
		:: g > 0 && word_of == g && word == KEPT ->
			if
			:: BUG(NO_SWAP) -> word = HELD; is_taken = true; was_held = true
			:: !BUG(NO_SWAP) ->
				atomic {
					if
					:: word == KEPT -> word = HELD; is_taken = true; was_held = true
					:: else
					fi }
			fi
		:: else
		fi;
		if
		:: is_taken -> SEEN(TAKEN_BACK)
		:: else ->
			/* our own node must not be in our way; deletes are ahead of it */
			g++;
			to_program!CREATE, g;
			if
			:: IS_FIRST(g) ->
				/* it may be kept; or it may not: then it is nothing to the program */
				if
				:: atomic { word = HELD; word_of = g; was_held = true }
					to_program!KEEP, g; may_keep = true
				:: may_keep = false
				fi
			:: g == 1 && was_evicted -> goto over	/* 57000 */
			fi
		fi;
		atomic { holds = true; holds_of = g; was_held = true;
			CHECK(EXCLUSION, !they_hold || was_evicted) }
		if
		:: may_keep -> is_stuck = true; goto over	/* for ever, or at least for long */
		:: true
		fi;
		holds = false;

		/* the last release: keep it, or let it go */
		atomic {
			if
			:: may_keep && word_of == g && word == HELD -> word = KEPT; is_kept = true
			:: else -> is_kept = false
			fi }
		if
		:: is_kept
		:: !is_kept -> to_program!DELETE, g
		fi
	od;

	/* DISCARD ALL, or nothing more for ever */
	if
	:: is_kept -> drop(); is_over = true
	:: is_kept
	:: !is_kept -> is_over = true
	fi;
over:
	skip
}

/* Somebody else, of any make; a client that asks and does not wait is zklock's. */
proctype Other()
{
	byte i;
	bool was_there;

	for (i : 1 .. OTHERS) {
		atomic {
			if
			:: they_wait = true
			:: they_wait = false
			fi;
			CAN_TELL;
			theirs = next_number; next_number++;
			was_held = holds || word == HELD || word == WANTED;
			was_there = ANY_AHEAD;
			changed() }
		if
		:: atomic { !ANY_AHEAD ->
			they_hold = true; CHECK(EXCLUSION, !holds || was_evicted);
			if
			:: was_there && word == GIVEN_UP -> SEEN(FOR_OTHERS)
			:: else
			fi }
		:: atomic { !they_wait && (BUG(ALWAYS_HELD) || (says_held[1] && AHEAD(1)) ||
			(says_held[2] && AHEAD(2)) || (says_held[3] && AHEAD(3)) ||
			(says_held[4] && AHEAD(4))) ->
			CHECK(TRUTH, was_held);
			SEEN(TOLD) }
		fi;
		atomic { CAN_TELL -> they_hold = false; theirs = 0; changed() }
	}
	nserved++
}

/* A stranger deletes a node. */
proctype Stranger()
{
	do
	:: atomic { evictions > 0 && CAN_TELL && node[1] > 0 ->
		evictions--; was_evicted = true; node[1] = 0; changed() }
	:: break
	od
}

proctype End()
{
	timeout ->
	CHECK(PROGRESS, nserved == 1 || (is_stuck && they_wait));
	CHECK(NO_ORPHAN, !is_over || !ANY_NODE)
}

init
{
	atomic {
		run Server(); run Program(); run End();
		run Backend(); run Other(); run Stranger()
	}
}
