/*
 * deadlock.pml: who waits says so, looks for a cycle, and gives way
 * (src/deadlock.c, src/deadlock_graph.c).
 *
 * Each session takes locks one after the other, its own first and then any others, and
 * then lets go of all.  Each read of a look is a step of its own, of the state as it is then: a
 * server that lags behind shows what was a while ago, but no less than our own
 * fact, and on the second look no less than the sync.  README.md says what is left
 * out.
 */

/* Bounds: sessions, each of which takes so many of so many locks; time-outs. */
#ifndef N
#define N 3
#define LOCKS 3
#define TAKEN 2
#define TIMEOUTS 1
#endif

#define NO_FALSE_ALARM	1		/* between the two looks there was the cycle */
#define ONE_VICTIM	2			/* no other one of the cycle gave way */
#define PROGRESS	4			/* everybody comes to an end */
#define GIVES_WAY	8			/* somebody gives way */
#define WHOLE_RING	16			/* in a cycle of all */
#define CHANGED		32			/* the second look finds something else */
#define OUTDATED	64			/* a look meets a fact of a wait that is over */
#ifndef CHECKED
#define CHECKED 7
#endif
#define CHECK(what, condition) assert(!((CHECKED) & (what)) || (condition))
#define SEEN(what) CHECK(what, false)

#define ONE_LOOK	1			/* the first look will do */
#define ANYBODY		2			/* who finds a cycle gives way */
#define LOOKS_FIRST	4			/* ... before it says that it waits */
#define BY_NUMBER	8			/* it gives way who is the first session */
#ifndef MUTANTS
#define MUTANTS 0
#endif
#define MUTANT(which) ((MUTANTS) & (which))

#define NONE 255

byte holder[LOCKS] = NONE;		/* of a lock */
byte awaited[N] = NONE;			/* the lock that a session stands in line for */
byte joined[N];					/* when: the order of the line */
byte nholds[N];

byte fact[N];					/* when it was made, by czxid; 0: there is none */
byte said[N] = NONE;			/* the lock it is about */
bool is_over[N];				/* it is to be deleted */
byte nfacts;
bool has_given_way[N];
byte timeouts = TIMEOUTS;
byte nfinished;

/* Is nobody ahead in that line, and the lock free?  Of three sessions at most. */
#define AHEAD(j, i) \
	(j < N && j != i && awaited[(j < N -> j : 0)] == awaited[i] && \
	 joined[(j < N -> j : 0)] < joined[i])
#define IS_TURN(i) \
	(holder[awaited[i]] == NONE && !AHEAD(0, i) && !AHEAD(1, i) && !AHEAD(2, i))

/* At the end of the line.  Numbers are used again, so that there are fewer states. */
inline join(i) {
	joined[i] = 1;
	for (k : 0 .. N - 1) {
		if
		:: awaited[k] == lock && joined[k] >= joined[i] -> joined[i] = joined[k] + 1
		:: else
		fi
	}
	k = 0;
	awaited[i] = lock;
	lock = NONE
}

/* Let go of everything, and take back what was said, which takes its time. */
inline let_go(i) {
	for (k : 0 .. LOCKS - 1) {
		if
		:: holder[k] == i -> holder[k] = NONE
		:: else
		fi
	}
	k = 0;
	nholds[i] = 0;
	awaited[i] = NONE;
	joined[i] = 0;
	is_over[i] = fact[i] > 0
}

/* Does the session truly wait for itself, at this moment? */
inline find_truth(i) {
	truth = false;
	at = i;
	for (k : 1 .. N) {
		if
		:: at != NONE && awaited[at] != NONE ->
			at = holder[awaited[at]];
			truth = truth || at == i
		:: else -> at = NONE
		fi
	}
	k = 0;
	at = 0
}

/*
 * A look: from session to session, as facts and queues have it; found, and the
 * facts that it rests on.
 */
inline look(i, from, found) {
	at = i;
	found = false;
	d_step { for (k : from .. from + N - 1) { seen[k] = 0 } k = 0 }
	do
	:: d_step {
		(fact[at] == 0 && !(at == i && MUTANT(LOOKS_FIRST))) || seen[from + at] > 0 ||
		(fact[at] > fact[i] && !MUTANT(ANYBODY) && !MUTANT(BY_NUMBER)) ->
			lock = NONE }
		break
	:: d_step {
		(fact[at] > 0 || (at == i && MUTANT(LOOKS_FIRST))) && seen[from + at] == 0 &&
		(fact[at] <= fact[i] || MUTANT(ANYBODY) || MUTANT(BY_NUMBER)) ->
			lock = (at == i -> awaited[at] : said[at]);
			seen[from + at] = (fact[at] > 0 -> fact[at] : 1) }
		/* the queue: is it in it, and who holds the lock? */
		d_step {
			if
			:: awaited[at] == lock && holder[lock] != NONE -> at = holder[lock]
			:: else -> at = NONE
			fi;
			lock = NONE }
		if
		:: at == NONE -> SEEN(OUTDATED); break
		:: at == i -> found = true; break
		:: else
		fi
	od;
	at = 0
}

#define RELEVANT(i) (MUTANT(BY_NUMBER) == 0 || i == 0)

proctype Session(byte i)
{
	byte k, at, lock = NONE, seen[2 * N];
	bool is_all, truth, is_found, has_looked, is_same;

take:
	do
	:: nholds[i] == TAKEN -> break
	:: nholds[i] < TAKEN ->
		/* one that is its own at first, then any that it has not */
		has_looked = false;
		if
		:: nholds[i] == 0 -> lock = i
		:: nholds[i] > 0 && holder[0] != i -> lock = 0
		:: nholds[i] > 0 && holder[1] != i -> lock = 1
		:: nholds[i] > 0 && LOCKS > 2 && holder[(LOCKS > 2 -> 2 : 0)] != i -> lock = 2
		fi;
		/* what was said of the last wait goes before anything else is sent */
		d_step {
			fact[i] == 0 -> 
			join(i) }
wait:
		do
		:: d_step { IS_TURN(i) ->
			holder[awaited[i]] = i; awaited[i] = NONE; joined[i] = 0; nholds[i]++;
			is_over[i] = fact[i] > 0 }
			break
		:: d_step { timeouts > 0 -> timeouts--; let_go(i) }
			goto over
		:: d_step {
			nholds[i] > 0 && fact[i] == 0 && (!MUTANT(LOOKS_FIRST) || has_looked) ->
			nfacts++; fact[i] = nfacts; said[i] = awaited[i] }
		:: !has_looked && nholds[i] > 0 && (fact[i] > 0 || MUTANT(LOOKS_FIRST)) &&
			RELEVANT(i) ->
			look(i, 0, is_found);
			if
			:: !is_found -> has_looked = true
			:: is_found && MUTANT(ONE_LOOK) ->
				d_step { find_truth(i) }
				goto give_way
			:: else ->
				/* the sync */
				d_step { find_truth(i) }
				look(i, N, is_found);
				d_step {
					is_same = is_found;
					for (k : 0 .. N - 1) {
						is_same = is_same && seen[k] == seen[N + k]
					}
					k = 0 }
				if
				:: is_same -> goto give_way
				:: else -> SEEN(CHANGED)	/* look again later */
				fi
			fi
		od
	od;
	skip;
	d_step { let_go(i) }
	goto over;

give_way:
	atomic {
		CHECK(NO_FALSE_ALARM, truth);
		SEEN(GIVES_WAY);
		is_all = true;
		for (k : 0 .. N - 1) {
			CHECK(ONE_VICTIM, seen[k] == 0 || !has_given_way[k]);
			is_all = is_all && seen[k] > 0
		}
		k = 0;
		if
		:: is_all -> SEEN(WHOLE_RING)
		:: else
		fi;
		d_step { has_given_way[i] = true; let_go(i) }
	}
over:
	nfinished++
}

/* What was taken back goes. */
#define GO(i) d_step { i < N && is_over[(i < N -> i : 0)] -> \
		is_over[(i < N -> i : 0)] = false; fact[(i < N -> i : 0)] = 0; \
		said[(i < N -> i : 0)] = NONE }

proctype Ensemble()
{
end:
	do
	:: GO(0)
	:: GO(1)
	:: GO(2)
	od
}

proctype End()
{
	timeout -> CHECK(PROGRESS, nfinished == N)
}

init
{
	byte i;

	atomic {
		run Ensemble(); run End();
		for (i : 0 .. N - 1) { run Session(i) }
	}
}
