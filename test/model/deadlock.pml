/*
 * deadlock.pml: who waits says so, looks for a cycle, and gives way
 * (src/queue/deadlock.c, src/queue/deadlock_graph.c).
 *
 * A session looks when it has said that it waits, and when its deadlock_timeout is over,
 * which it notes first. Only some sessions have one that is ever over (TIMERS); a cycle
 * with one of them must end. Before a session gives way it claims the newest fact of the cycle.
 *
 * Each session takes locks one after the other, its own first and then any others, and
 * then lets go of all.  Each read of a look is a step of its own, of the state as it is then: a
 * server that lags behind shows what was a while ago, but no less than our own
 * fact, and on the second look no less than the sync.  README.md says what is left
 * out.
 */

/*
 * Bounds: sessions, each of which takes so many of so many locks; time-outs; sessions whose
 * deadlock_timeout is ever over.
 */
#ifndef N
#define N 3
#define LOCKS 3
#define TAKEN 2
#define TIMEOUTS 1
#define TIMERS 3
#endif

#define NO_FALSE_ALARM	1		/* between the two looks there was the cycle */
#define ONE_VICTIM	2			/* no other one of the cycle gave way */
#define PROGRESS	4			/* everybody comes to an end */
#define GIVES_WAY	8			/* somebody gives way */
#define WHOLE_RING	16			/* in a cycle of all */
#define CHANGED		32			/* the second look finds something else */
#define OUTDATED	64			/* a look meets a fact of a wait that is over */
#define BEHIND		128			/* another one has claimed the cycle */
#ifndef CHECKED
#define CHECKED 7
#endif
#define CHECK(what, condition) assert(!((CHECKED) & (what)) || (condition))
#define SEEN(what) CHECK(what, false)

#define ONE_LOOK	1			/* the first look will do */
#define ANYBODY		2			/* who finds a cycle gives way, without a claim */
#define LOOKS_FIRST	4			/* who waits looks before it says so */
#define LEAVES_IT	8			/* ... and leaves a cycle to who has looked before */
#define STALE_CLAIM	16			/* behind the claim nothing is read again */
#ifndef BUGS
#define BUGS 0
#endif
#define BUG(which) ((BUGS) & (which))

#define NONE 255

byte holder[LOCKS] = NONE;		/* of a lock */
byte awaited[N] = NONE;			/* the lock that a session stands in line for */
byte joined[N];					/* when: the order of the line */
byte nholds[N];

byte fact[N];					/* when it was made, by czxid; 0: there is none */
byte said[N] = NONE;			/* the lock it is about */
bool is_over[N];				/* it is to be deleted */
bool is_late[N];				/* it says that the time is over */
byte claimed[N];				/* the newest fact of what a session claims; 0: nothing */
bool is_dropped[N];				/* that claim is to be deleted, behind the fact */
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
	is_over[i] = fact[i] > 0;
	is_dropped[i] = claimed[i] > 0
}

#define CLAIMS(k, z) (k < N && claimed[(k < N -> k : 0)] == z)
#define IS_CLAIMED(z) (CLAIMS(0, z) || CLAIMS(1, z) || CLAIMS(2, z))

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
 * A look: from session to session, as facts and queues have it; found, the
 * facts that it rests on, the newest of them, and whether another one has looked.
 */
inline look(i, from, found) {
	at = i;
	found = false;
	d_step { for (k : from .. from + N - 1) { seen[k] = 0 } k = 0; newest = 0; others_late = false }
	do
	:: d_step {
		(fact[at] == 0 && !(at == i && BUG(LOOKS_FIRST))) || seen[from + at] > 0 ->
			lock = NONE }
		break
	:: d_step {
		(fact[at] > 0 || (at == i && BUG(LOOKS_FIRST))) && seen[from + at] == 0 ->
			lock = (at == i -> awaited[at] : said[at]);
			seen[from + at] = (fact[at] > 0 -> fact[at] : 1);
			newest = (seen[from + at] > newest -> seen[from + at] : newest);
			others_late = others_late || (at != i && is_late[at]) }
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

/* Is it for this session to end the cycle that it has found? */
#define IS_OURS(i) (is_late[i] || BUG(ANYBODY) || \
	(others_late && newest == fact[i] && !BUG(LEAVES_IT)))

proctype Session(byte i)
{
	byte k, at, lock = NONE, seen[2 * N];
	bool is_all, truth, is_found, has_searched, is_same, others_late;
	byte newest, behind;

take:
	do
	:: nholds[i] == TAKEN -> break
	:: nholds[i] < TAKEN ->
		/* one that is its own at first, then any that it has not */
		has_searched = false;
		behind = 0;
		if
		:: nholds[i] == 0 -> lock = i
		:: nholds[i] > 0 && holder[0] != i -> lock = 0
		:: nholds[i] > 0 && holder[1] != i -> lock = 1
		:: nholds[i] > 0 && LOCKS > 2 && holder[(LOCKS > 2 -> 2 : 0)] != i -> lock = 2
		fi;
		/* what was said of the last wait goes before anything else is sent */
		d_step {
			fact[i] == 0 && claimed[i] == 0 ->
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
			nholds[i] > 0 && fact[i] == 0 && (!BUG(LOOKS_FIRST) || has_searched) ->
			nfacts++; fact[i] = nfacts; said[i] = awaited[i] }
		/* deadlock_timeout is over */
		:: d_step {
			i < TIMERS && nholds[i] > 0 && fact[i] > 0 && !is_late[i] ->
			is_late[i] = true; has_searched = false }
		/* a claim of another one: look when it has gone */
		:: !has_searched && nholds[i] > 0 && (fact[i] > 0 || BUG(LOOKS_FIRST)) &&
			(behind == 0 || !IS_CLAIMED(behind)) ->
			behind = 0;
			look(i, 0, is_found);
			if
			:: !is_found || !IS_OURS(i) -> has_searched = true
			:: is_found && IS_OURS(i) && (BUG(ONE_LOOK) || BUG(ANYBODY)) ->
				d_step { find_truth(i) }
				goto give_way
			:: is_found && IS_OURS(i) && !BUG(ONE_LOOK) && !BUG(ANYBODY) ->
				d_step {
					if
					:: IS_CLAIMED(newest) -> behind = newest
					:: else -> claimed[i] = newest
					fi }
				if
				:: behind > 0 -> SEEN(BEHIND)
				:: behind == 0 ->
					/* the sync */
					d_step { find_truth(i) }
					if
					:: BUG(STALE_CLAIM) -> is_same = true
					:: else ->
						look(i, N, is_found);
						d_step {
							is_same = is_found;
							for (k : 0 .. N - 1) {
								is_same = is_same && seen[k] == seen[N + k]
							}
							k = 0 }
					fi;
					if
					:: is_same -> goto give_way
					:: else ->			/* look again later */
						SEEN(CHANGED);
						claimed[i] = 0
					fi
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

/* What was taken back goes, the fact first. */
#define GO(i) d_step { i < N && is_over[(i < N -> i : 0)] -> \
		is_over[(i < N -> i : 0)] = false; fact[(i < N -> i : 0)] = 0; \
		is_late[(i < N -> i : 0)] = false; said[(i < N -> i : 0)] = NONE }
#define DROP(i) d_step { i < N && is_dropped[(i < N -> i : 0)] && !is_over[(i < N -> i : 0)] -> \
		is_dropped[(i < N -> i : 0)] = false; claimed[(i < N -> i : 0)] = 0 }

proctype Ensemble()
{
end:
	do
	:: GO(0)
	:: GO(1)
	:: GO(2)
	:: DROP(0)
	:: DROP(1)
	:: DROP(2)
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
