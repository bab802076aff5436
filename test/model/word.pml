/*
 * word.pml: whose word is believed.  A stranger makes nodes that bear the mark,
 * sets and deletes them, and copies names; who waits behind one believes it or
 * not (is_hand_over_believed() in src/queue/contender_watch.c, src/session/handover.c), and looks again at what
 * it has believed (confirm_grant() in src/lock/lock_proof.c).
 *
 * Each step is one request, executed at once; none is lost, no session ends and
 * nobody gives up: zklock.pml has that.  README.md says what is left out.
 */

/*
 * Bounds: contenders; nodes that the stranger may make, its sets and deletes of
 * these, nodes of others that it deletes, or replaces by its own of the same name;
 * looks at the queue without a cause, as after a reconnect.
 */
#ifndef N
#define N 3
#define FORGED 1
#define ACTS 2
#define EVICTIONS 0
#define REPLACES 0
#define LOOKS 1
#endif
#ifndef NODES
#define NODES (N + FORGED)
#endif
#define NONE 255
#define WAS_SET 254				/* what a watch has brought */
#define HAS_GONE 253

#define EXCLUSION	1			/* under quorum nobody is granted past an honest node */
#define UPDATE		2			/* no commit over what was not read */
#define STANDS		4			/* nobody is told yes with an honest node ahead */
#define WORD		8			/* who is believed has said so, and not against better
								 * knowledge */
#define PROGRESS	16			/* whoever waits for ever waits behind the stranger */
#define NO_FALSE_REFUSAL 32		/* who is refused has somebody ahead */
#define BY_FIRST	64			/* quorum: believed, for it was the first */
#define UNBELIEVED	128			/* quorum: not believed, and granted by a list */
#define BY_TELLING	256			/* a neighbor is believed */
#define CONFIRMED	512			/* a word is confirmed behind a node that lingers */
#define MISTAKEN	1024		/* a word is looked at again, and was false */
#define TWO_HOLDERS	2048		/* lease: a false word makes two holders */
#define TOO_LATE	4096		/* the guard is raised behind the read */
#define STOOD_BEFORE 8192		/* a true word is refused, for the stranger is ahead */
#ifndef CHECKED
#define CHECKED 63
#endif
#define CHECK(what, condition) assert(!((CHECKED) & (what)) || (condition))
#define SEEN(what) CHECK(what, false)

#define ANY_WORD		1		/* every word is believed, whatever depends on it */
#define FIRST_ONCE		2		/* ... once somebody ahead was the first of a list */
#define NO_CONFIRM		4		/* what was believed is not looked at again */
#define RASH			8		/* ... but not waited for */
#define BLAMELESS		16		/* who has learnt that it was mistaken passes on, too */
#define BY_NAME			32		/* neighbors know each other by the node's name */
#define DEAF			64		/* a word that is not believed is no news */
#define BY_PATH			128		/* a node of that name proves one's own */
#ifndef BUGS
#define BUGS 0
#endif
#define BUG(which) ((BUGS) & (which))

/*
 * Contenders have even numbers, in the order in which they come; those of the
 * stranger's nodes are odd.
 */
typedef Node
{
	byte number;				/* 0: was not made yet */
	bool is_there;
	bool is_copy;				/* the stranger's, in the place of a contender's */
	bool is_set;
	bool has_left;				/* its owner, an honest one, has let go */
	bool has_spoken;			/* and has said so as a holder; or it was forged */
};

Node n[NODES];					/* those of the contenders come first */
byte used;						/* contenders that have come */
byte watch[N] = NONE;			/* the node; then what came */
byte waits_for[N] = NONE;		/* in shared memory: the node ... */
bool is_told[N];				/* ... and that its owner has let go */
bool is_holder[N];
byte version;					/* of what the lock guards */
byte acts = ACTS, evictions = EVICTIONS, replaces = REPLACES, looks = LOOKS;

inline fire(g, news) {
	for (k : 0 .. N - 1) {
		if
		:: watch[k] == g -> watch[k] = news
		:: else
		fi
	}
	k = 0
}
inline drop_node(g) { n[g].is_there = false; n[g].is_copy = false; fire(g, HAS_GONE) }
inline set_node(g, speaks) {
	if
	:: n[g].is_there -> n[g].is_set = true; fire(g, WAS_SET);
		n[g].has_spoken = n[g].has_spoken || (speaks)
	:: else
	fi
}
inline tell(g) {
	for (k : 0 .. N - 1) {
		if
		:: waits_for[k] == g -> is_told[k] = true
		:: else
		fi
	}
	k = 0
}

#define is_own(c) (n[c].is_there && !n[c].is_copy)
#define is_strangers(g) (g >= N || n[g].is_copy)
#define is_ahead(g) (n[g].is_there && n[g].number < n[c].number)
/* A contender that has not let go, by its own node. */
#define stands_ahead(i) (is_ahead(i) && !n[i].is_copy && !n[i].has_left)

proctype Stranger()
{
	byte i, k;

	do
	:: atomic { acts > 0 -> select(i : 0 .. NODES - 1);
		if
		:: i >= N && n[i].number == 0 -> select(k : 0 .. N);
			d_step { n[i].number = 2 * k + 1; n[i].is_there = true; k = 0 }
		:: is_strangers(i) && n[i].is_there -> d_step { acts--; set_node(i, true) }
		:: is_strangers(i) && n[i].is_there -> d_step { acts--; drop_node(i) }
		:: else
		fi;
		i = 0 }
	:: atomic { evictions > 0 -> select(i : 0 .. N - 1);
		d_step { evictions--; drop_node(i); i = 0 } }
	:: atomic { replaces > 0 -> select(i : 0 .. N - 1);
		d_step {
			if
			:: is_own(i) -> replaces--; drop_node(i);
				n[i].is_there = true; n[i].is_copy = true; n[i].is_set = false
			:: else
			fi;
			i = 0
		} }
	:: break					/* silent for ever */
	od
}

/*
 * In another queue a neighbor lets go of a node that has the name of the
 * stranger's first one.
 */
proctype Elsewhere()
{
	byte k;

	d_step {
		if
		:: BUG(BY_NAME) -> tell(N)
		:: else
		fi
	}
}

/* list, judge(), is_first(): who is just ahead, and is anybody ahead of that one? */
inline judge() {
	d_step {
		ahead = NONE; nahead = 0;
		for (i : 0 .. NODES - 1) {
			if
			:: is_ahead(i) -> nahead++;
				if
				:: (ahead == NONE -> true : n[i].number > n[ahead].number) -> ahead = i
				:: else
				fi
			:: else
			fi
		}
		i = 0;
		is_first = nahead == 1 || (is_first && BUG(FIRST_ONCE)); nahead = 0
	}
}

/* zklock_client_check() with our node's czxid */
#define has_proof (is_own(c) || (n[c].is_there && BUG(BY_PATH)))

/* is_hand_over_believed(); wants_list */
#define is_good (is_first || !asks_quorum || BUG(ANY_WORD))

proctype Contender(byte c)
{
	byte i, k, ahead, nahead, seen;
	bool asks_quorum;			/* wants_list; or the guard was raised since */
	bool is_first;				/* the one ahead in our own list */
	bool has_doubted;			/* a word, and looked */
	bool is_on_word, was_true;	/* granted so, and rightly */
	bool has_read, was_early;	/* what the lock guards; while on word */
	bool knows;					/* that it is no holder */

	atomic { used == c -> used++;
		d_step { n[c].number = 2 * c + 2; n[c].is_there = true };
		if
		:: asks_quorum = true
		:: true
		fi }
look:
	atomic {
		if
		:: n[c].is_there -> judge()
		:: else -> goto out		/* raise_evicted() */
		fi
	}
	atomic {					/* perhaps long after the list was read */
		if
		:: ahead == NONE -> CHECK(UNBELIEVED, !has_doubted); goto granted
		:: ahead != NONE && !n[ahead].is_there -> goto look
		:: ahead != NONE && n[ahead].is_there && n[ahead].is_set && is_good ->
			goto handed_over
		:: ahead != NONE && n[ahead].is_there && !(n[ahead].is_set && is_good) ->
			watch[c] = ahead
		fi;
		/* zklock_handover_await(): if both have shared memory, and there is room */
		if
		:: is_good -> waits_for[c] = ahead
		:: true
		fi
	}
	atomic {
		if
		:: is_told[c] -> SEEN(BY_TELLING); goto handed_over
		:: watch[c] == WAS_SET && is_good -> goto handed_over
		:: watch[c] == WAS_SET && !is_good && !BUG(DEAF) -> has_doubted = true
		:: watch[c] == HAS_GONE && !is_told[c]
		:: looks > 0 && watch[c] == ahead && !is_told[c] -> looks--
		fi;
		d_step { waits_for[c] = NONE; is_told[c] = false; watch[c] = NONE };
		goto look
	}

handed_over:
	atomic {
		d_step {
			CHECK(WORD, n[ahead].has_spoken);
			CHECK(BY_FIRST, !asks_quorum);
			waits_for[c] = NONE; is_told[c] = false; watch[c] = NONE;
			is_on_word = !is_first; was_true = true;
			for (i : 0 .. N - 1) { was_true = was_true && !stands_ahead(i) }
			i = 0
		}
granted:	skip;
		d_step {
			for (i : 0 .. N - 1) {
				CHECK(EXCLUSION, !asks_quorum || !is_own(c) || !stands_ahead(i));
				CHECK(TWO_HOLDERS, !is_on_word || !stands_ahead(i) || !is_holder[i])
			}
			i = 0; is_holder[c] = true; has_doubted = false; is_first = false; ahead = 0
		}
		if
		:: is_on_word -> goto confirm	/* zk_is_held() */
		:: true
		fi
	}
read:
	atomic {
		seen = version; has_read = true; was_early = is_on_word && !asks_quorum;
		if
		:: !asks_quorum -> asks_quorum = true
		:: true
		fi
	}
commit:							/* zklock_prove_locks() */
	atomic {
		if
		:: asks_quorum && is_on_word -> goto confirm
		:: asks_quorum && !is_on_word && !has_proof -> knows = true; goto release
		:: else
		fi;
		/* The proof, and the commit right behind it; lease may have no need to ask. */
		d_step {
			for (i : 0 .. N - 1) { CHECK(STANDS, !asks_quorum || !stands_ahead(i)) }
			i = 0;
			/* Of commits under lease those count that were granted rightly. */
			if
			:: asks_quorum || (!is_on_word && is_own(c)) ->
				CHECK(UPDATE, was_early || seen == version);
				CHECK(TOO_LATE, !was_early || seen == version);
				version++
			:: else
			fi
		}
		goto release
	}

confirm:						/* await_first_place() */
	atomic {
		if
		:: !n[c].is_there -> knows = true; goto release
		:: n[c].is_there -> judge(); is_first = false
		fi
	}
	atomic {
		if
		:: ahead == NONE || BUG(NO_CONFIRM) ->
			d_step {
				CHECK(CONFIRMED, !has_doubted);
				for (i : 0 .. N - 1) { CHECK(STANDS, !stands_ahead(i)) }
				i = 0; ahead = 0; is_on_word = false; has_doubted = false
			}
			if
			:: has_read -> goto commit
			:: else -> goto read
			fi
		:: ahead != NONE && !n[ahead].is_there && !BUG(NO_CONFIRM) -> goto confirm
		:: ahead != NONE && n[ahead].is_there && !BUG(NO_CONFIRM) ->
			watch[c] = ahead; has_doubted = n[ahead].has_left
		fi
	}
	atomic {
		if
		:: (watch[c] == WAS_SET || watch[c] == HAS_GONE) && !BUG(RASH) ->
			watch[c] = NONE; goto confirm
		/* The deadline; whoever lets go is done by then. */
		:: watch[c] == ahead && !n[ahead].has_left || BUG(RASH)
		fi;
		d_step {
			for (i : 0 .. NODES - 1) {
				nahead = (is_ahead(i) && (is_strangers(i) || !n[i].has_left) ->
					nahead + 1 : nahead)
			}
			CHECK(NO_FALSE_REFUSAL, nahead > 0);
			CHECK(STOOD_BEFORE, !was_true);
			CHECK(MISTAKEN, was_true);
			watch[c] = NONE; i = 0; nahead = 0; knows = true
		}
	}

release:						/* remove_nodes() */
	atomic {
		d_step {
			is_holder[c] = false; n[c].has_left = true; asks_quorum = false; ahead = 0;
			seen = 0; has_read = false; was_early = false; was_true = false;
			is_on_word = false; has_doubted = false;
			do
			:: k < N && waits_for[k] != c -> k++
			:: else -> break
			od
		}
		if
		:: knows && !BUG(BLAMELESS) -> k = 0; goto out
		:: (!knows || BUG(BLAMELESS)) && k < N ->
			d_step { k = 0; tell(c); n[c].has_spoken = n[c].has_spoken || !knows }
			goto out
		:: (!knows || BUG(BLAMELESS)) && k == N -> k = 0
		fi
	}
	/* It sets its node if it had to wait for the lock. */
	if
	:: d_step { set_node(c, !knows) }
	:: true
	fi;
out:
	atomic {
		d_step { n[c].has_left = true; drop_node(c) }
	}
}

proctype End()
{
	byte i, c;
	bool may_wait;

	timeout ->
	d_step {
		for (c : 0 .. N - 1) {
			may_wait = n[c].has_left;	/* it has finished */
			for (i : 0 .. NODES - 1) {
				may_wait = may_wait || (is_strangers(i) && is_ahead(i))
			}
			CHECK(PROGRESS, may_wait)
		}
	}
}

init
{
	byte i;

	atomic {
		run Stranger(); run Elsewhere(); run End();
		for (i : 0 .. N - 1) { run Contender(i) }
	}
}
