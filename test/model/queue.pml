/*
 * queue.pml: readers and writers, and permits.
 *
 * The verdicts of src/common/recipe.c, and what is watched by src/queue/contender_watch.c;
 * requests are executed at once and none is lost: zklock.pml has that.  README.md says
 * what is left out.
 */

/*
 * Bounds: contenders, permits (0: readers and writers), 1 if the session of the
 * first one may end, nodes that strangers delete; 1 if contenders may give up.
 */
#ifndef N
#define N 3
#define PERMITS 0
#define FAULTS 0
#define STRANGERS 0
#define IMPATIENT 1
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
#ifndef CHECKED
#define CHECKED 15
#endif
#define CHECK(what, condition) assert(!((CHECKED) & (what)) || (condition))
#define SEEN(what) CHECK(what, false)

#define READERS_PASS	1		/* a reader looks at those who hold only */
#define WATCH_NEXT		2		/* the first who waits for a permit watches the one ahead */
#define NO_ANNOUNCE		4		/* who is granted a permit keeps it to itself */
#define OLD_LIST		8		/* the queue's watch is set behind the list */
#define TOO_MANY		16		/* one permit too many */
#define LEAVE_NODE		32		/* who gives up leaves its node */
#ifndef BUGS
#define BUGS 0
#endif
#define BUG(which) ((BUGS) & (which))

/* The node of the contender with the same index. */
typedef Node
{
	byte number;				/* 0: does not exist */
	bool is_shared;
	bool is_announced;			/* its data was set: it has a permit */
};

Node n[N];
byte counter, nfinished;
bool is_alive[N] = true;		/* its session */
bool is_holder[N];
byte watch[N] = NONE;
byte faults = FAULTS, strangers = STRANGERS;

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
	counter++; n[g].number = counter; n[g].is_shared = is_reader; fire(N, true)
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
		:: is_alive[0] -> is_alive[0] = false; drop_node(0)
		:: else
		fi }
	:: atomic { strangers > 0 ->
		select(i : 0 .. N - 1);
		d_step { strangers--; drop_node(i); i = 0 } }
	:: timeout -> break
	od;
	CHECK(PROGRESS, nfinished == N);
	d_step {
		for (i : 0 .. N - 1) { CHECK(NO_ORPHAN, !exists(i)) }
		i = 0
	}
}

/* recipe_verdict(), recipe_permit_verdict() */
inline judge() {
	d_step {
		ahead = NONE; nahead = 0;
		for (i : 0 .. N - 1) {
			if
			:: exists(i) && i != g && n[i].number <= n[g].number &&
				(PERMITS > 0 || excludes(i, g)) &&
				!(BUG(READERS_PASS) && n[g].is_shared && !is_holder[i]) ->
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
	nahead < (BUG(TOO_MANY) -> PERMITS + 1 : PERMITS))
#define is_first_to_wait (PERMITS > 0 && nahead == PERMITS && !BUG(WATCH_NEXT))

/* is_anybody_behind(), act_on() */
inline announce() {
	for (i : 0 .. N - 1) {
		if
		:: PERMITS > 1 && exists(i) && n[i].number > n[g].number && !BUG(NO_ANNOUNCE) ->
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

inline give_up() {
	if
	:: BUG(LEAVE_NODE)
	:: else -> drop_node(g)
	fi;
	finish()
}

proctype Contender(byte c)
{
	byte g, ahead, nahead, i, k, seen = NONE;
	bool watches_queue;

	atomic {
		g = c;
		if
		:: PERMITS == 0 -> d_step { make_node(g, true) }
		:: d_step { make_node(g, false) }
		fi
	}

look:
	atomic {
		if
		:: IMPATIENT -> d_step { give_up() } goto end
		:: !is_alive[c] || !exists(g) -> d_step { drop_node(g); finish() } goto end
		:: is_alive[c] && exists(g) ->
			watch[c] = (watches_queue -> QUEUE : NONE); judge()
		fi
	}
verdict:						/* perhaps long after the list was read */
	atomic {
		if
		:: IMPATIENT -> d_step { give_up() } goto end
		:: !is_alive[c] || !exists(g) -> d_step { drop_node(g); finish() } goto end
		:: may_enter ->
			d_step {
				for (i : 0 .. N - 1) {
					CHECK(ORDER, !exists(g) || !exists(i) || i == g || PERMITS > 0 ||
						!excludes(i, g) || n[i].number > n[g].number);
					CHECK(TOGETHER, i == c || !is_holder[i])
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
			:: BUG(OLD_LIST) -> watch[c] = QUEUE
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
		:: IMPATIENT -> d_step { give_up() } goto end
		:: !is_alive[c] -> d_step { drop_node(g); finish() } goto end
		:: watch[c] == NEWS -> CHECK(BY_QUEUE, !watches_queue); goto look
		fi
	}

granted:						/* commits under the lock */
	if
	:: atomic { exists(g) && is_alive[c] ->
		d_step {
			for (i : 0 .. N - 1) {
				if
				:: i != c && is_holder[i] && exists(i) -> nahead++;
					CHECK(EXCLUSION, !excludes(i, g))
				:: else
				fi
			}
			CHECK(EXCLUSION, PERMITS == 0 || nahead < PERMITS);
			nahead = 0; i = 0
		} }
	:: !exists(g)
	fi;
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
