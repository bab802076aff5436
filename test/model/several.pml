/*
 * several.pml: contenders that want two locks (src/functions/lock_set.c): one after the
 * other, in the order of their names, and in no later queue while they wait in
 * an earlier one.
 */

/* Bounds: contenders; 1 if they may give up. */
#ifndef N
#define N 3
#define IMPATIENT 0
#endif
#define LOCKS 2
#define NONE 255
#define NEWS 254

#define EXCLUSION	1			/* one holder of each lock */
#define PROGRESS	2			/* who does not give up gets both */
#define AT_ONCE		4			/* a lock is granted without a wait */
#define ONE_ONLY	8			/* one waits for the second and has the first */
#ifndef CHECKED
#define CHECKED 3
#endif
#define CHECK(what, condition) assert(!((CHECKED) & (what)) || (condition))
#define SEEN(what) CHECK(what, false)

#define STAY		1			/* who waits stands in the later queue, too */
#define ANY_ORDER	2			/* the last contender takes the locks the other way round */
#ifndef BUGS
#define BUGS 0
#endif
#define BUG(which) ((BUGS) & (which))

typedef Queue { byte number[N]; byte counter; byte holder };
Queue q[LOCKS];
byte watch[N] = NONE;			/* of the queue that it waits in */
byte place[N];					/* that queue */
byte nfinished;

inline leave(l) {
	d_step {
		q[l].number[c] = 0; q[l].holder = (q[l].holder == c -> NONE : q[l].holder);
		for (i : 0 .. N - 1) {
			if
			:: watch[i] == c && place[i] == l -> watch[i] = NEWS
			:: else
			fi
		}
		i = 0
	}
}

inline join(l) {
	d_step {
		if
		:: q[l].number[c] == 0 -> q[l].counter++; q[l].number[c] = q[l].counter
		:: else
		fi
	}
}

/* ahead: who is just ahead of us, or NONE */
inline judge(l) {
	d_step {
		ahead = NONE;
		for (i : 0 .. N - 1) {
			if
			:: q[l].number[i] != 0 && q[l].number[i] < q[l].number[c] &&
				(ahead == NONE -> true : q[l].number[i] > q[l].number[ahead]) -> ahead = i
			:: else
			fi
		}
		i = 0
	}
}

inline grant(l) { CHECK(EXCLUSION, q[l].holder == NONE || q[l].holder == c); q[l].holder = c }

#define in_order(k) (BUG(ANY_ORDER) && c == N - 1 -> LOCKS - 1 - (k) : (k))

proctype Contender(byte c)
{
	byte i, ahead, next;		/* how many locks are held */

	do
	:: next == LOCKS -> break
	:: next < LOCKS ->
		/* zklock_lock_acquire() */
		join(in_order(next));
		if
		:: next + 1 < LOCKS && BUG(STAY) -> join(in_order(next + 1))
		:: else
		fi;
		atomic {
			judge(in_order(next));
			if
			:: ahead == NONE -> SEEN(AT_ONCE); grant(in_order(next)); next++; goto held
			:: ahead != NONE && next > 0 -> SEEN(ONE_ONLY)
			:: else
			fi
		}
wait:	/* stand_in_queue() for one lock */
		if
		:: IMPATIENT -> goto give_up
		:: true
		fi;
		atomic {
			judge(in_order(next));
			if
			:: ahead == NONE -> grant(in_order(next)); next++; goto held
			:: ahead != NONE -> place[c] = in_order(next); watch[c] = ahead
			fi
		}
		if
		:: watch[c] == NEWS -> watch[c] = NONE; goto wait
		:: IMPATIENT -> watch[c] = NONE; goto give_up
		fi;
held:	skip
	od;
give_up:
	leave(0); leave(1); nfinished++
}

proctype End() { timeout -> CHECK(PROGRESS, nfinished == N) }

init
{
	byte i;

	atomic {
		for (i : 0 .. LOCKS - 1) { q[i].holder = NONE }
		for (i : 0 .. N - 1) { run Contender(i) }
		run End()
	}
}
