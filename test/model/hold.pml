/*
 * hold.pml: a hold that is being made (src/hold.c), another client right behind
 * it, and contenders of zklock behind that one (src/contender_clear.c).
 *
 * The maker stands first in the queue.  Each step is one request.  README.md says
 * what is left out.
 */

/* Bounds: contenders of zklock; of others, ahead of them; faults of the maker. */
#ifndef N
#define N 2
#define FOREIGN 1
#define FAULTS 1
#endif
#define ALL (FOREIGN + N)

#define EXCLUSION	1			/* nobody is granted the lock beside a hold */
#define STANDS		2			/* a hold that its maker was told of is there */
#define PROGRESS	4			/* nobody waits, unless for a hold that stands */
#define CLEARED		8			/* a void hold is deleted */
#define TOO_LATE	16			/* it was finished just before its deletion */
#define REMOVED		32			/* the maker finds it deleted when it sets it */
#define SETTLED		64			/* the maker's next session deletes it */
#define SETTLED_SET	128			/* ... or finds that it was set */
#define EVICTED		256			/* the maker finds its twin gone */
#ifndef CHECKED
#define CHECKED 7
#endif
#define CHECK(what, condition) assert(!((CHECKED) & (what)) || (condition))
#define SEEN(what) CHECK(what, false)

#define NEXT_ONLY	1			/* only a hold just ahead is looked at */
#define ANY_VERSION	2			/* a void hold is deleted, set or not */
#define NO_CHECK	4			/* the maker does not ask for its twin */
#define ONE_LOOK	8			/* nobody looks again behind another client */
#ifndef MUTANTS
#define MUTANTS 0
#endif
#define MUTANT(which) ((MUTANTS) & (which))

#define TWIN 250				/* what is watched, if it is no contender */
#define HOLD 251
#define LIST 252
#define NEWS 253
#define NONE 255

bool has_twin = true, has_hold, is_set;
bool is_alive = true;			/* the maker's session */
bool is_told;					/* the maker was */
byte faults = FAULTS;
bool has_node[ALL] = true, is_holder[ALL];
byte watch[ALL] = NONE;
byte nfinished;

inline fire(what) {
	for (k : 0 .. ALL - 1) {
		if
		:: watch[k] == what || watch[k] == LIST -> watch[k] = NEWS
		:: else
		fi
	}
	k = 0
}
inline drop_twin() { has_twin = false; fire(TWIN) }
inline drop_hold() { has_hold = false; is_set = false; fire(HOLD) }

/* Its session ends, or somebody deletes the twin, at any moment. */
proctype Faults()
{
	byte k;
end:
	do
	:: d_step { faults > 0 && is_alive -> faults--; is_alive = false; drop_twin() }
	:: d_step { faults > 0 && has_twin -> faults--; drop_twin() }
	od
}

/* give_up() */
#define RAISE \
	d_step { \
		if \
		:: has_hold -> drop_hold() \
		:: else \
		fi; \
		drop_twin() }; \
	goto end

proctype Maker()
{
	byte i, k;

	/* create_pending() */
	atomic {
		if
		:: is_alive -> d_step { has_hold = true; fire(LIST) }
		:: !is_alive -> goto end
		fi
	}
	/* check_twin() */
	atomic {
		if
		:: is_alive && (has_twin || MUTANT(NO_CHECK))
		:: is_alive && !has_twin && !MUTANT(NO_CHECK) -> SEEN(EVICTED); RAISE
		:: is_alive -> RAISE			/* a cancel */
		:: !is_alive -> goto end
		fi
	}
	/* set_final(), of version 0; settle_lost() in another session */
	atomic {
		if
		:: is_alive && has_hold -> is_set = true
		:: is_alive && has_hold -> is_set = true; goto settle /* its reply is lost */
		:: is_alive && !has_hold -> SEEN(REMOVED); RAISE
		:: !is_alive -> goto settle
		fi
	}
	/* told, then delete_twin() */
	d_step { is_told = true; CHECK(STANDS, has_hold && is_set) }
	atomic {
		if
		:: has_twin -> d_step { drop_twin() }
		:: else
		fi
	}
	goto end;
settle:
	atomic {
		if
		:: has_hold && is_set -> SEEN(SETTLED_SET); is_told = true
		:: has_hold && !is_set -> SEEN(SETTLED); d_step { drop_hold() }
		:: !has_hold
		fi
	}
	atomic {
		if
		:: has_twin && is_alive -> d_step { drop_twin() }
		:: else
		fi
	}
end:
	skip
}

inline find_ahead() {
	d_step {
		ahead = (has_hold -> HOLD : (has_twin -> TWIN : NONE));
		for (i : 0 .. ALL - 1) {
			if
			:: i < c && has_node[i] -> ahead = i
			:: else
			fi
		}
		i = 0
	}
}

/*
 * look_again_at(): at times, that is at some time after the list has changed; a look
 * that finds nothing new need not be modelled.
 */
#define looks_again (c >= FOREIGN && ahead < FOREIGN && !MUTANT(ONE_LOOK))

proctype Contender(byte c)
{
	byte ahead, i, k;
	bool has_seen_hold, is_final;

look:
	atomic {
		find_ahead(); has_seen_hold = has_hold;
		watch[c] = (c >= FOREIGN && !MUTANT(ONE_LOOK) -> LIST : NONE)
	}
	/* look_at_holds(): those of zklock only */
	if
	:: c >= FOREIGN && has_seen_hold && !is_final && !(MUTANT(NEXT_ONLY) && ahead != HOLD) ->
		atomic {				/* get the hold */
			if
			:: !has_hold -> goto look
			:: has_hold && is_set -> is_final = true; goto wait
			:: has_hold && !is_set
			fi
		}
		atomic {				/* get the twin, with a watch */
			if
			:: has_twin -> watch[c] = TWIN; goto news
			:: !has_twin
			fi
		}
		atomic {				/* it is void: look_at_hold() */
			if
			:: has_hold && (!is_set || MUTANT(ANY_VERSION)) ->
				SEEN(CLEARED); d_step { drop_hold() }
			:: has_hold && is_set && !MUTANT(ANY_VERSION) -> SEEN(TOO_LATE)
			:: !has_hold
			fi
		}
		goto look
	:: else
	fi;
wait:
	atomic {
		if
		:: ahead == NONE -> goto granted
		:: ahead == HOLD && has_hold -> watch[c] = HOLD
		:: ahead == TWIN && has_twin -> watch[c] = TWIN
		:: ahead < ALL && has_node[ahead] && !looks_again -> watch[c] = ahead
		:: ahead < ALL && has_node[ahead] && looks_again
		:: else -> goto look
		fi
	}
news:
	atomic { watch[c] == NEWS -> watch[c] = NONE; goto look }
granted:
	skip;
	d_step {
		CHECK(EXCLUSION, !(has_hold && is_set));
		is_holder[c] = true;
		for (i : 0 .. ALL - 1) { CHECK(EXCLUSION, i == c || !is_holder[i]) }
		i = 0
	}
	d_step {
		CHECK(EXCLUSION, !(has_hold && is_set) && !is_told);
		is_holder[c] = false; has_node[c] = false; nfinished++; fire(c)
	}
}

proctype End()
{
	timeout -> CHECK(PROGRESS, nfinished == ALL || (has_hold && is_set));
	CHECK(STANDS, !is_told || (has_hold && is_set))
}

init
{
	byte i;

	atomic {
		run Faults(); run Maker(); run End();
		for (i : 0 .. ALL - 1) { run Contender(i) }
	}
}
