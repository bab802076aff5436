/*
 * queue.pml: readers and writers, permits, and a downgrade in its steps.
 *
 * The verdicts of src/common/recipe.c, what is watched by src/lock/contender_watch.c, and the replace
 * of src/program/program_step.c; requests are executed at once and none is lost:
 * zklock.pml has that.  README.md says what is left out.
 */

/*
 * Bounds: contenders, permits (0: readers and writers), 1 if the session of the
 * first one may end, nodes that strangers delete, downgrades; 1 if contenders may
 * give up.
 */
#ifndef N
#define N 3
#define PERMITS 0
#define FAULTS 0
#define STRANGERS 0
#define DOWNGRADES 0
#define IMPATIENT 1
#endif
#ifndef NODES
#define NODES (N + DOWNGRADES)
#endif
#define NONE 255
#define QUEUE 254				/* the list itself is watched */
#define NEWS 253

#define EXCLUSION	1			/* nobody commits beside who excludes it */
#define ORDER		2			/* nobody is granted past a node to wait for */
#define PROGRESS	4			/* who does not give up is granted */
#define NO_ORPHAN	8			/* no node is left when all have finished */
#define TOGETHER	16			/* two hold the lock at a time */
#define ANNOUNCED	32			/* a waiter learns that the one ahead was granted */
#define BY_QUEUE	64			/* the first of those who wait learns of a release */
#define REPLACED	128			/* a downgrade comes to its end */
#define TOO_LATE	256			/* it finds the old node gone */
#define PASSED		512			/* a reader gets in beside one that downgraded */
#ifndef CHECKED
#define CHECKED 15
#endif
#define CHECK(what, condition) assert(!((CHECKED) & (what)) || (condition))
#define SEEN(what) CHECK(what, false)

#define READERS_PASS	1		/* a reader looks at those who hold only */
#define WATCH_NEXT		2		/* the first who waits for a permit watches the one ahead */
#define NO_ANNOUNCE		4		/* who is granted a permit keeps it to itself */
#define OLD_LIST		8		/* the queue's watch is set behind the list */
#define DELETE_FIRST	16		/* a downgrade deletes the old node, then makes the new */
#define NO_CHECK		32		/* it does not ask whether the old one is there */
#define NEW_NUMBER		64		/* the new node stands at the end */
#define KEEP_NEW		128		/* a downgrade that came too late leaves the new node */
#define TOO_MANY		256		/* one permit too many */
#ifndef MUTANTS
#define MUTANTS 0
#endif
#define MUTANT(which) ((MUTANTS) & (which))

typedef Node
{
	byte number;				/* 0: does not exist */
	bool is_shared;
	bool is_announced;			/* its data was set: it has a permit */
	bool is_pending;			/* made by a downgrade that is not over */
};

Node n[NODES];
byte counter, nfinished, used = N;
bool is_alive[N] = true;		/* its session */
bool is_holder[N], is_settled[N] = true;
byte node[N];					/* where its hold stands */
byte watch[N] = NONE;
byte faults = FAULTS, strangers = STRANGERS, downgrades = DOWNGRADES;

#define exists(g) (n[g].number != 0)
#define excludes(a, b) (PERMITS == 0 && !(n[a].is_shared && n[b].is_shared))

inline fire(g, is_of_queue) {
	for (k : 0 .. N - 1) {
		if
		:: watch[k] == g || ((is_of_queue) && watch[k] == QUEUE) -> watch[k] = NEWS
		:: else
		fi
	}
	k = 0
}

inline make_node(g, is_reader) {
	counter++; n[g].number = counter; n[g].is_shared = is_reader; fire(NODES, true)
}

inline drop_node(g) {
	if
	:: exists(g) -> n[g].number = 0; n[g].is_announced = false; fire(g, true)
	:: else
	fi
}

/* The ensemble, and strangers. */
proctype Others()
{
	byte i, k;
	do
	:: d_step { faults > 0 ->
		faults--;
		if
		:: is_alive[0] -> is_alive[0] = false; drop_node(0);
			if
			:: node[0] != 0 -> drop_node(node[0])
			:: else
			fi
		:: else
		fi }
	:: atomic { strangers > 0 ->
		select(i : 0 .. NODES - 1);
		d_step { strangers--; drop_node(i); i = 0 } }
	:: timeout -> break
	od;
	CHECK(PROGRESS, nfinished == N);
	d_step {
		for (i : 0 .. NODES - 1) { CHECK(NO_ORPHAN, !exists(i)) }
		i = 0
	}
}

/* recipe_verdict(), recipe_permit_verdict() */
inline judge() {
	d_step {
		ahead = NONE; nahead = 0;
		for (i : 0 .. NODES - 1) {
			if
			:: exists(i) && i != g && n[i].number <= n[g].number &&
				(PERMITS > 0 || excludes(i, g)) &&
				!(MUTANT(READERS_PASS) && n[g].is_shared && !is_holder[i]) ->
				nahead++;
				if
				:: (ahead == NONE -> true : n[i].number > n[ahead].number) -> ahead = i
				:: else
				fi
			:: else
			fi
		}
		i = 0
	}
}
#define may_enter (PERMITS == 0 -> nahead == 0 : \
	nahead < (MUTANT(TOO_MANY) -> PERMITS + 1 : PERMITS))
#define is_first_to_wait (PERMITS > 0 && nahead == PERMITS && !MUTANT(WATCH_NEXT))

/* is_anybody_behind(), act_on() */
inline announce() {
	for (i : 0 .. NODES - 1) {
		if
		:: PERMITS > 1 && exists(i) && n[i].number > n[g].number && !MUTANT(NO_ANNOUNCE) ->
			n[g].is_announced = true
		:: else
		fi
	}
	if
	:: n[g].is_announced -> fire(g, false)
	:: else
	fi;
	i = 0
}

inline finish() { is_holder[c] = false; watch[c] = NONE; nfinished++; ahead = 0; nahead = 0 }

proctype Contender(byte c)
{
	byte g, ahead, nahead, i, k, seen = NONE;
	bool watches_queue;

	atomic {
		g = c; node[c] = c;
		if
		:: PERMITS == 0 -> d_step { make_node(g, true) }
		:: d_step { make_node(g, false) }
		fi
	}

look:
	atomic {
		if
		:: IMPATIENT -> d_step { drop_node(g); finish() } goto end
		:: !is_alive[c] || !exists(g) -> d_step { drop_node(g); finish() } goto end
		:: is_alive[c] && exists(g) ->
			watch[c] = (watches_queue -> QUEUE : NONE); judge()
		fi
	}
verdict:						/* perhaps long after the list was read */
	atomic {
		if
		:: IMPATIENT -> d_step { drop_node(g); finish() } goto end
		:: !is_alive[c] || !exists(g) -> d_step { drop_node(g); finish() } goto end
		:: may_enter ->
			d_step {
				for (i : 0 .. NODES - 1) {
					CHECK(ORDER, !exists(g) || !exists(i) || i == g || n[i].is_pending ||
						PERMITS > 0 ||
						!excludes(i, g) || n[i].number > n[g].number);
					CHECK(TOGETHER, i >= N || i == c || !is_holder[i]);
					CHECK(PASSED, i < N || !exists(i) || !n[g].is_shared)
				}
				i = 0;
				if
				:: is_alive[c] -> announce()
				:: else
				fi;
				is_holder[c] = true; watch[c] = NONE; ahead = 0; nahead = 0
			}
			goto granted
		/* contender_watch() */
		:: !may_enter && is_first_to_wait && !watches_queue ->
			watches_queue = true;
			if
			:: MUTANT(OLD_LIST) -> watch[c] = QUEUE
			:: else -> goto look
			fi
		:: !may_enter && is_first_to_wait && watches_queue
		/* watch(): get_and_watch, and what it finds; one look for each version */
		:: !may_enter && !is_first_to_wait && exists(ahead) &&
			(!n[ahead].is_announced || seen == ahead) ->
			watches_queue = false; watch[c] = ahead
		:: !may_enter && !is_first_to_wait && exists(ahead) &&
			n[ahead].is_announced && seen != ahead -> watches_queue = false;
			SEEN(ANNOUNCED); seen = ahead; goto look
		:: !may_enter && !is_first_to_wait && !exists(ahead) ->
			watches_queue = false; goto look
		fi
	}
	atomic {
		if
		:: IMPATIENT -> d_step { drop_node(g); finish() } goto end
		:: !is_alive[c] -> d_step { drop_node(g); finish() } goto end
		:: watch[c] == NEWS -> CHECK(BY_QUEUE, !watches_queue); goto look
		fi
	}

granted:						/* commits under the lock; a downgrade */
	do
	:: atomic { is_settled[c] && exists(g) && is_alive[c] ->
		d_step {
			for (i : 0 .. N - 1) {
				if
				:: i != c && is_holder[i] && exists(node[i]) && is_settled[i] -> nahead++;
					CHECK(EXCLUSION, !excludes(node[i], g))
				:: else
				fi
			}
			CHECK(EXCLUSION, PERMITS == 0 || nahead < PERMITS);
			nahead = 0; i = 0
		}
		break }
	:: !exists(g) -> break
	:: atomic { downgrades > 0 && !n[g].is_shared && exists(g) && PERMITS == 0 ->
		downgrades--; is_settled[c] = false; ahead = used; used++; nahead = n[g].number;
		if
		:: MUTANT(DELETE_FIRST) -> d_step { drop_node(g) }
		:: else
		fi }
		/* STEP_REPLACE_CREATE */
		atomic {
			if
			:: is_alive[c] -> d_step {
				make_node(ahead, true); n[ahead].is_pending = true;
				if
				:: !MUTANT(NEW_NUMBER) -> counter--; n[ahead].number = nahead
				:: else
				fi }
			:: else -> d_step { finish() } goto end
			fi
		}
		/* STEP_REPLACE_CHECK */
		atomic {
			if
			:: !is_alive[c] -> d_step { drop_node(ahead); finish() } goto end
			:: is_alive[c] && !exists(g) && !MUTANT(NO_CHECK | DELETE_FIRST) ->
				SEEN(TOO_LATE);
				d_step {
					if
					:: !MUTANT(KEEP_NEW) -> drop_node(ahead)
					:: else
					fi;
					finish() }
				goto end
			:: is_alive[c] && (exists(g) || MUTANT(NO_CHECK | DELETE_FIRST))
			fi
		}
		/* the delete behind it, which is repeated until it is done */
		atomic {
			if
			:: !is_alive[c] -> d_step { drop_node(ahead); finish() } goto end
			:: is_alive[c] -> SEEN(REPLACED);
				d_step { n[ahead].is_pending = false; drop_node(g);
					g = ahead; node[c] = g; ahead = 0; nahead = 0; is_settled[c] = true }
			fi
		}
	od;
	/* Of those with permits the first keeps it until nobody is left. */
	atomic { PERMITS == 0 || c != 0 || nfinished == N - 1 || !exists(g) ->
		d_step { drop_node(g); finish() } }
end:
	skip
}

init
{
	byte i;

	atomic {
		run Others();
		for (i : 0 .. N - 1) { run Contender(i) }
	}
}
