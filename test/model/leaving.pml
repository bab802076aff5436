/*
 * leaving.pml: places that are left when the transaction ends.
 *
 * One lock.  Backends take it in session and in transaction scope, write under it and
 * beside it, release it, go back to a savepoint, commit, abort, or end.  The counts of
 * src/lock/lock.c and src/lock/lock_table.c, the order of what src/lock/hooks.c does at
 * the end of a transaction, and what PostgreSQL makes visible in between.  How the lock
 * goes from one contender to the next is in zklock.pml: here the first in the queue has it.
 * What a proof proves is in proof.pml: here no node goes between guard and commit record.
 */

/*
 * Bounds: backends, transactions of each, what is done in these by all together, nodes
 * that go without being asked (an eviction, or the end of a session).
 */
#ifndef N
#define N 2
#define ROUNDS 2
#define ACTS 7
#define LOSSES 1
#endif

#define VISIBLE		1			/* no next holder before the commit is visible */
#define TAKEN		2			/* what the user has taken has its place */
#define LEFT		4			/* no place stays of what is released */
#define SAME		8			/* taken again in between: the same node */
#define PROGRESS	16			/* who waits is granted the lock */
#define TAKEN_BACK	32			/* taken again while it is being left */
#define BACK_TO_IT	64			/* ROLLBACK TO: it is being left again */
#define GOES_BACK	128			/* ROLLBACK TO: it is left at once */
#define NOT_LAST	256			/* ... of a lock whose release was not the last */
#define REFUSED		512			/* the guard refuses for a place that is being left */
#define AT_ABORT	1024		/* a place is left when the transaction aborts */
#define AT_END		2048		/* a backend ends, and its place was being left */
#ifndef CHECKED
#define CHECKED 31
#endif
#define CHECK(what, condition) assert(!((CHECKED) & (what)) || (condition))
#define SEEN(what) CHECK(what, false)

#define AT_ONCE		1			/* a release is one at once, whatever was written */
#define BY_OWN_XID	2			/* what only the subtransaction has written counts */
#define BY_XID		4			/* the statement that runs is not looked at */
#define EARLY		8			/* the place is left at PRE_COMMIT */
#define FORGETS		16			/* ROLLBACK TO leaves what was being left before */
#define LAST_ONLY	32			/* a release that leaves other counts is forgotten */
#define UNGUARDED	64			/* the guard proves only what is taken */
#define ANEW		128			/* what is being left is queued for anew */
#define ALWAYS_LEFT	256			/* ... is left at the end, though it was taken again */
#define STAYS_ON	512			/* that it is being left outlives the transaction */
#define ABORT_KEEPS	1024		/* at an abort nothing is left */
#ifndef BUGS
#define BUGS 0
#endif
#define BUG(which) ((BUGS) & (which))

/* In ZooKeeper: the number of the backend's queue node; 0: it has none. */
byte number[N], counter;

/* The backend: its place, and how often the lock is taken on it (lock_table.h). */
bool is_held[N];				/* it has a place, lost or not, and be it leaving */
byte in_session[N];				/* counts of session scope */
byte in_transaction[2 * N];		/* of transaction scope: outside, inside the savepoint */
bool stays[N];					/* stays_to_end */

/* The transaction, as PostgreSQL knows it. */
bool has_xid[N];
bool has_own_xid[N];			/* the subtransaction has one, too */
bool is_inside[N];				/* a savepoint */
bool has_passed[N];				/* the guard */

/* Known to nobody: was anything written under the lock, outside, inside a savepoint? */
bool has_used[2 * N];
bool was_granted[2 * N];		/* and somebody else was granted the lock since */
bool was_left[N];				/* the lock was released, behind something written */

byte acts = ACTS, losses = LOSSES, nfinished;

#define outside(b) (2 * (b))
#define inside(b) (2 * (b) + 1)
#define here(b) (2 * (b) + is_inside[b])
#define is_taken(b) (in_session[b] + in_transaction[outside(b)] + in_transaction[inside(b)] > 0)
#define is_leaving(b) (stays[b] && !is_taken(b))
#define is_lost(b) (is_held[b] && number[b] == 0)
#define is_ahead(a, b) (number[a] != 0 && number[a] < number[b])
#define is_first(b) (!is_ahead(0, b) && !is_ahead(1, b) && !is_ahead(N - 1, b))

/* Nodes go that nobody has deleted. */
proctype Others()
{
	byte i;

	do
	:: atomic { losses > 0 ->
		select(i : 0 .. N - 1);
		d_step {
			losses--;
			number[i] = (has_passed[i] -> number[i] : 0);
			i = 0
		} }
	:: timeout -> break
	od;
	CHECK(PROGRESS, nfinished == N);
	d_step {
		for (i : 0 .. N - 1) { CHECK(LEFT, number[i] == 0) }
		i = 0
	}
}

/* ---- within a step of the caller ---- */

/* The delete of a node, which is repeated until it is done. */
inline drop_node() {
	number[b] = 0;
	for (i : 0 .. N - 1) { ahead = ahead + number[i] }
	counter = (ahead == 0 -> 0 : counter);	/* only the order matters */
	i = 0; ahead = 0
}

/* end_unless_taken() */
inline end_unless_taken() {
	if
	:: is_held[b] && !is_taken(b) && !stays[b] -> is_held[b] = false; drop_node()
	:: else
	fi
}

inline grant() {
	is_held[b] = true;
	for (i : 0 .. 2 * N - 1) {
		was_granted[i] = was_granted[i] || (has_used[i] && i / 2 != b)
	}
	i = 0
}

/* take_again(), zklock_lock_count() */
inline count() {
	if
	:: is_of_session -> in_session[b]++
	:: else -> in_transaction[here(b)]++
	fi
}

inline write() {
	has_xid[b] = true; has_own_xid[b] = is_inside[b]
}

inline use() {
	has_used[here(b)] = true;
	was_granted[here(b)] = was_granted[here(b)] || is_lost(b)
}

inline forget(which) {
	has_used[which] = false; was_granted[which] = false
}

/* zklock_hooks_has_written() */
inline look_for_work(is_writer) {
	has_written = (is_writer) && !BUG(BY_XID);
	has_written = has_written ||
		(BUG(BY_OWN_XID) && is_inside[b] -> has_own_xid[b] : has_xid[b]);
	has_written = has_written && !BUG(AT_ONCE)
}

/* zklock_lock_release() */
inline release() {
	in_session[b]--;
	stays[b] = stays[b] || (has_written && !(BUG(LAST_ONLY) && is_taken(b)));
	has_written = false;
	end_unless_taken();
	CHECK(LEFT, !is_held[b] || is_taken(b) || has_xid[b])
}

/* zklock_end_transaction() */
inline end_transaction(is_abort) {
	in_transaction[outside(b)] = 0; in_transaction[inside(b)] = 0;
	if
	:: BUG(ALWAYS_LEFT) && stays[b] -> is_held[b] = false; drop_node()
	:: else
	fi;
	stays[b] = stays[b] && BUG(STAYS_ON);
	if
	:: BUG(ABORT_KEEPS) && (is_abort)
	:: else -> end_unless_taken()
	fi;
	has_xid[b] = false; has_own_xid[b] = false; is_inside[b] = false;
	has_passed[b] = false; was_left[b] = false;
	CHECK(LEFT, !is_held[b] || is_taken(b));
	CHECK(TAKEN, !is_taken(b) || is_held[b])
}

proctype Backend(byte b)
{
	byte round, i, ahead;
	bool is_of_session, has_written, is_shut;

act:
	do
	/* zk_lock(), zk_xact_lock() */
	:: atomic { acts > 0 && in_session[b] < 2 && in_transaction[here(b)] == 0 ->
		acts--;
		if
		:: is_of_session = true
		:: is_of_session = false
		fi }
		goto lock
	/* zk_unlock(), by a plain SELECT */
	:: d_step { acts > 0 && in_session[b] > 0 ->
		acts--;
		look_for_work(false);
		release();
		was_left[b] = was_left[b] || (has_xid[b] && !is_taken(b)) }
	/* INSERT ... VALUES (zk_unlock()): the row belongs to what the lock is for */
	:: d_step { acts > 0 && in_session[b] > 0 ->
		acts--;
		use();
		look_for_work(true);
		write();
		release();
		was_left[b] = was_left[b] || !is_taken(b) }
	/* a row is written, under the lock if that is taken */
	:: d_step { acts > 0 ->
		acts--;
		write();
		if
		:: is_taken(b) -> use()
		:: else
		fi }
	:: d_step { acts > 0 && !is_inside[b] -> acts--; is_inside[b] = true }
	/* RELEASE SAVEPOINT */
	:: d_step { acts > 0 && is_inside[b] ->
		acts--;
		in_transaction[outside(b)] = in_transaction[outside(b)] + in_transaction[inside(b)];
		in_transaction[inside(b)] = 0;
		has_used[outside(b)] = has_used[outside(b)] || has_used[inside(b)];
		was_granted[outside(b)] = was_granted[outside(b)] || was_granted[inside(b)];
		forget(inside(b));
		is_inside[b] = false; has_own_xid[b] = false }
	/* ROLLBACK TO: zklock_end_subtransaction() */
	:: d_step { acts > 0 && is_inside[b] ->
		acts--;
		forget(inside(b));
		has_written = is_taken(b);
		in_transaction[inside(b)] = 0;
		if
		:: has_written && !is_taken(b) ->
			stays[b] = stays[b] && !BUG(FORGETS);
			end_unless_taken();
			CHECK(BACK_TO_IT, !stays[b]);
			CHECK(NOT_LAST, !stays[b] || was_left[b]);
			CHECK(GOES_BACK, stays[b])
		:: else
		fi;
		is_inside[b] = false; has_own_xid[b] = false; has_written = false }
	:: goto commit
	/* ROLLBACK, or an error; and FATAL */
	:: atomic { is_held[b] || has_xid[b] -> goto abort }
	:: atomic { is_held[b] -> is_shut = true; goto abort }
	od;

lock:
	atomic {
		if
		/* zklock_refuse_if_lost(), unless nobody knows of that yet */
		:: is_lost(b) -> goto abort
		:: is_held[b] && !(BUG(ANEW) && is_leaving(b)) ->
			d_step { CHECK(TAKEN_BACK, !is_leaving(b)); count() }
			goto act
		:: !is_held[b] -> d_step { CHECK(SAME, !was_left[b]); counter++; number[b] = counter }
		:: is_held[b] && BUG(ANEW) && is_leaving(b)
		fi
	}
	atomic {					/* win_place() */
		if
		:: !is_held[b] && number[b] != 0 && is_first(b) -> d_step { grant(); count() } goto act
		:: !is_held[b] -> d_step { drop_node() } goto abort		/* 55P03 */
		:: is_lost(b) -> goto abort
		fi
	}

commit:
	atomic {					/* PRE_COMMIT: guard_commit() */
		if
		:: is_lost(b) && !(BUG(UNGUARDED) && is_leaving(b)) &&
			(has_xid[b] || is_leaving(b) || in_transaction[outside(b)] +
			 in_transaction[inside(b)] > 0) ->
			CHECK(REFUSED, !is_leaving(b)); goto abort
		:: else -> has_passed[b] = true;
			if
			:: BUG(EARLY) && is_leaving(b) -> d_step { drop_node() }
			:: else
			fi
		fi
	}
	atomic {
		if
		:: is_held[b] -> goto abort		/* another callback raises */
		:: d_step {				/* the commit record, and that it is visible */
			CHECK(VISIBLE, !(has_used[outside(b)] && was_granted[outside(b)]));
			CHECK(VISIBLE, !(has_used[inside(b)] && was_granted[inside(b)]));
			forget(outside(b)); forget(inside(b)) }
		fi
	}
	atomic { d_step { end_transaction(false) } goto next }

abort:							/* nobody will see what was written */
	atomic {
		CHECK(AT_ABORT, !is_held[b] || !is_leaving(b));
		CHECK(AT_END, !is_held[b] || !is_leaving(b) || !is_shut);
		d_step { forget(outside(b)); forget(inside(b)); end_transaction(true) }
next:
		round++;
		if
		:: round < ROUNDS && !is_shut -> goto act
		:: else
		fi;
		/* the end of the backend, and of its session */
		d_step { in_session[b] = 0; stays[b] = false; is_held[b] = false;
			drop_node(); nfinished++; is_of_session = false; is_shut = false }
	}
}

init
{
	byte i;

	atomic {
		run Others();
		for (i : 0 .. N - 1) { run Backend(i) }
	}
}
