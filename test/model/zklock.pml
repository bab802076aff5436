/*
 * zklock.pml: the lock recipe, its faults, and the commit that it guards.
 *
 * A model of src/queue/contender*.c with those parts of src/program/program_step.c (withdraw, undo,
 * erase, delete), src/lock/lock.c (acquire, commit guard, release) and the SQL
 * function zk_fence() that safety rests on.  README.md says what is left out;
 * test/model/run checks it.
 *
 * A step is what one party does without the others: the ensemble executes a
 * request, or the client acts on a reply.  Between two steps anything may
 * happen, and take any time; so a holder that pauses is one that does not step.
 */

/*
 * Bounds: contenders, holds that each asks for, lost connections, faults of
 * sessions (expired, given up by the client's clock, client crashed), removals
 * of the lock's znode while it is empty, which restart the sequence numbers,
 * acts of strangers (they delete a queue node, or set one whose ACL lets them),
 * downgrades as Curator makes them; whether contenders may give up, any number of
 * them; how many of the contenders, from the first on, are backends of one cluster;
 * and how often a leader is deposed that goes on answering reads and syncs for a
 * while.
 */
#ifndef N
#define N 2
#define ROUNDS 1
#define LOSSES 1
#define FAULTS 1
#define REMOVALS 1
#define STRANGERS 0
#define DOWNGRADES 0
#define IMPATIENT 1
#define NEIGHBORS 0
#define DEPOSALS 0
#endif

/* Creates at most: one for each hold, and each repetition costs a fault. */
#ifndef NODES
#define NODES (N * ROUNDS + LOSSES + FAULTS + DOWNGRADES)
#endif
#define NONE 255

/* What a watch, which is a node's number until then, has brought. */
#define PASSED_ON 254			/* NodeDataChanged, and the node bears the mark */
#define FOUND_SET 253			/* version > 0 in the reply to get+watch */
#define OTHER_EVENT 252			/* NodeDeleted, or whatever calls for a list */
#define NO_NEWS 251				/* a deposed leader has the watch */

/* What is checked, by default the properties; then what should be seen to happen. */
#define ORDER			1		/* commits in the order of grants */
#define UPDATE			2		/* no commit on a row that changed meanwhile */
#define REFUSAL			4		/* zk_fence() refuses only older holders */
#define PROOF			8		/* no commit after a guard without a node */
#define EXCLUSION		16	/* one holder whose session is alive */
#define FIFO			32	/* nobody in the queue is overtaken */
#define PROGRESS		64	/* who does not give up is granted */
#define NO_ORPHAN		128	/* no node is left when all have finished */
#define MADE_TWICE		256	/* a node whose reply was lost was made anew */
#define LATE_CREATE		512	/* a create was executed after its withdrawal */
#define LATE_GRANT		1024	/* granted by a list older than the session's end */
#define FENCED_OFF		2048	/* zk_fence() refused */
#define GUARDED			4096	/* the guard refused */
#define BEHIND_ITSELF	8192	/* waited for its own old session's node */
#define BY_EVENT		16384	/* granted by NodeDataChanged */
#define BY_VERSION		32768	/* granted by version > 0 */
#define BY_CHECK		65536	/* passed on with a stale proof, confirmed */
#define SET_LOST		131072	/* the set was lost, the delete was not */
#define DELETE_LATE		262144	/* a commit ahead of the delete behind the set */
#define EVICTED			524288	/* an evicted waiter was passed the lock */
#define BY_TELLING		1048576	/* granted by what a neighbor said */
#define TOLD_BY_LOST	2097152	/* by one whose session was over by then */
#define TOLD_STALE		4194304	/* said to one whose proof was stale */
#define UNHEARD_OF		8388608	/* the deposed leader knows nothing of a node */
#define OLD_LIST		16777216	/* granted by what the deposed leader lists */
#define OLD_WATCH		33554432	/* a watch that the deposed leader has */
#ifndef CHECKED
#define CHECKED 255
#endif
#define CHECK(what, condition) assert(!((CHECKED) & (what)) || (condition))
#define SEEN(what) CHECK(what, false)

/* Seeded bugs: what other code does wrong, or what this code would without ... */
#define NO_GUARD			1	/* commit_guard = off */
#define NO_FENCE			2	/* zk_fence() is not called */
#define GUARD_BY_STATE		4	/* the guard believes the client's state */
#define TOKEN_IS_NUMBER		8	/* token = sequence number */
#define WAKE_IS_GRANT		16	/* a wake-up is taken for the lock */
#define WATCH_BY_EXISTS		32	/* a watch on a node that is gone */
#define WATCH_AGAIN			64	/* NoNode: the watch is tried again */
#define LEAVE_NODE			128	/* a timeout leaves the node there */
#define NO_ERASE			256	/* a withdrawn create is not looked for */
#define AFTER_ERASE			512	/* the ensemble executes it later still */
#define DELETE_ONCE			1024	/* a delete is not sent again */
#define BLIND_RETRY			2048	/* a lost create is just sent again */
#define ADOPT_OLD			4096	/* a new session takes the old one's node */
#define ORDER_BY_NAME		8192	/* the GUID decides, not the number */
#define NO_MARK				16384	/* any node that is set passes the lock on */
#define NO_ACL				32768	/* strangers may set marked nodes */
#define LEAVE_SETS			65536	/* who gives up sets, too */
#define WAITER_SETS			131072	/* who waits sets its node */
#define EARLY_SET			262144	/* the set comes ahead of the commit */
#define NO_CLOCK			524288	/* the event is believed whenever it is read */
#define OLD_EVENT			1048576	/* also if it was for the session before */
#define SET_AGAIN			2097152	/* a lost set hits the client's next node */
#define DELETE_IS_GRANT		4194304	/* of the lowest node, when it was next */
#define TOLD_UNPROVED		8388608	/* a neighbor is believed whenever it was read */
#define LEAVE_TELLS			16777216	/* who gives up tells its neighbor, too */
#define EARLY_TELL			33554432	/* a neighbor is told ahead of the commit */
#define TOLD_AND_LEFT		67108864	/* who tells a neighbor does not delete */
#define SYNC				134217728	/* a sync, not a write, ahead of such a list */
#define ASK_SERVER			268435456	/* a read of one's own node, not a check */
#ifndef BUGS
#define BUGS 0
#endif
#define BUG(which) ((BUGS) & (which))

mtype:answer = { UNSENT, SENT, MADE, KNOWN, LATE, LOST };
mtype:removal = { IDLE, WITHDRAWN, ERASE, SET, DELETE };

/* A create request (program_step.c) with its GUID, and the queue node it makes. */
typedef Node
{
	byte number;				/* sequence number; 0: does not exist */
	byte zxid;					/* czxid, while it exists */
	byte client;				/* who sent the create */
	byte session;				/* which of the client's sessions did */
	bool is_set;				/* version > 0 */
#if NEIGHBORS
	bool is_left;				/* its owner has told a neighbor */
#endif
#if DEPOSALS
	byte old_number;			/* what the deposed leader lists; 0: nothing */
#endif
	mtype:answer create;		/* MADE: executed, reply to come; LATE, LOST: no
								 * reply, not (yet) executed, or executed */
	mtype:removal job;
};

Node n[NODES];
byte used;						/* GUIDs so far */
byte nnodes;					/* that exist */
byte counter;					/* for sequence numbers; kept by the parent */
byte zxid;						/* counts creates only */
byte session[N];				/* number of the client's session */
bool is_alive[N];				/* that session, in the ensemble's eyes */
bool is_zombie[N];				/* an older session of the client lives on */
bool is_crashed[N];
bool is_holder[N];				/* granted, and not let go yet */
bool is_evicted[N];				/* a stranger deleted its node */
byte watch[N];					/* the node watched by get+watch; then what came */
#if NEIGHBORS
byte waits_for[NEIGHBORS];		/* in shared memory: the node, or NONE ... */
bool is_told[NEIGHBORS];		/* ... and that its owner has let go */
#endif
byte nfinished;					/* contenders */
byte losses = LOSSES, faults = FAULTS, removals = REMOVALS;
byte strangers = STRANGERS, downgrades = DOWNGRADES, deposals = DEPOSALS;
bool is_split;					/* the deposed leader still answers */
bool is_calm;					/* no more faults; who waits, waits for ever */

/* The guarded resource, and its row in zk_fences. */
byte last_commit;				/* czxid of the holder whose work it is */
byte row_lock = NONE;
byte fence;						/* greatest token that has committed */

#define exists(g) (n[g].number != 0)
#define has_no_reply(g) (n[g].create == LATE || n[g].create == LOST)
#define is_current(g) (n[g].session == session[n[g].client])
#define may_execute(g) (is_current(g) -> is_alive[n[g].client] : is_zombie[n[g].client])
#define is_reachable(g) \
	(is_current(g) && is_alive[n[g].client] && !is_crashed[n[g].client])

/*
 * Where there are strangers, contender 0 is one whose nodes anybody may write
 * and which do not bear the mark; it sets none.
 */
#define is_marked(g) (STRANGERS == 0 || n[g].client != 0)
#define has_passed_on(g) (n[g].is_set && (is_marked(g) || BUG(NO_MARK)))

/* zklock_handover_tell(); job is what is left to be done. */
#if NEIGHBORS
#define is_told_now(c) (c < NEIGHBORS && is_told[c])
#define has_left(g) n[g].is_left
inline tell(g, job_if_told) {
	for (i : 0 .. NEIGHBORS - 1) {
		if
		:: waits_for[i] == g && n[g].client < NEIGHBORS ->
			is_told[i] = true; n[g].is_left = exists(g); n[g].job = job_if_told
		:: else
		fi
	}
	i = 0
}
/* zklock_handover_forget() */
inline forget_neighbor() {
	if
	:: c < NEIGHBORS -> waits_for[c] = NONE; is_told[c] = false
	:: else
	fi
}
#else
#define is_told_now(c) false
#define has_left(g) false
inline tell(g, job_if_told) { skip }
inline forget_neighbor() { skip }
#endif

/* What the deposed leader says, as long as it says anything. */
#if DEPOSALS
#define old_number(g) n[g].old_number
inline depose() {
	for (i : 0 .. NODES - 1) { n[i].old_number = n[i].number }
	i = 0; is_split = true
}
inline step_down() {
	for (i : 0 .. NODES - 1) { n[i].old_number = 0 }
	for (i : 0 .. N - 1) { watch[i] = (watch[i] == NO_NEWS -> OTHER_EVENT : watch[i]) }
	i = 0; is_split = false
}
#else
#define old_number(g) 0
inline depose() { skip }
inline step_down() { skip }
#endif

/* The watches on a node fire, for sessions that are alive. */
inline fire(g, event) {
	for (k : 0 .. N - 1) {
		if
		:: watch[k] == g && is_alive[k] -> watch[k] = event
		:: else
		fi
	}
	k = 0
}

/* The owner's set, or a stranger's. */
inline set_node(g) {
	if
	:: exists(g) ->
		n[g].is_set = true;
		fire(g, (has_passed_on(g) -> PASSED_ON : OTHER_EVENT))
	:: else
	fi
}

inline make_node(g, answer) {
	counter++; zxid++; nnodes++;
	n[g].number = counter; n[g].zxid = zxid; n[g].create = answer
}

inline drop_node(g) {
	nnodes = nnodes - exists(g);
	n[g].number = 0; n[g].zxid = 0; n[g].is_set = false;
#if NEIGHBORS
	n[g].is_left = false;
#endif
	fire(g, OTHER_EVENT)
}

/* Nothing will come of this request any more.  (Saves states.) */
inline forget(g) {
	n[g].create = UNSENT; n[g].job = IDLE; n[g].client = 0; n[g].session = 0
}

/* ---- A create and its undoing: end_request() and undo() in program_step.c ---- */

/* undo(), where there is a reply or will be none. */
inline undo(g) {
	if
	:: has_no_reply(g) -> n[g].job = (BUG(NO_ERASE) -> IDLE : ERASE)
	:: else -> n[g].create = KNOWN; n[g].job = DELETE
	fi
}

/* zklock_client_withdraw() */
inline withdraw(g) {
	if
	:: n[g].create == SENT || n[g].create == MADE -> n[g].job = WITHDRAWN
	:: else -> undo(g)
	fi
}

proctype Request(byte g)
{
	byte i, k;
end:
	do
	/* The server executes it, perhaps after its connection has gone. */
	:: d_step { n[g].create == SENT && may_execute(g) -> make_node(g, MADE) }
	:: d_step { n[g].create == LATE && may_execute(g) -> make_node(g, LOST);
		CHECK(LATE_CREATE, n[g].job != ERASE) }
	/* The connection is lost: ZK_UNKNOWN_OUTCOME. */
	:: d_step { n[g].create == SENT && losses > 0 -> losses--; n[g].create = LATE }
	:: d_step { n[g].create == MADE && losses > 0 -> losses--; n[g].create = LOST }
	/* The reply, or that there is none, reaches a withdrawn request. */
	:: d_step { n[g].job == WITHDRAWN && (n[g].create == MADE || has_no_reply(g)) -> undo(g) }
	/* ERASE: a write and a list.  What is not executed by now never will be. */
	:: d_step { n[g].job == ERASE && is_reachable(g) ->
		if
		:: exists(g) -> CHECK(UNHEARD_OF, !is_split || old_number(g) != 0);
			n[g].create = KNOWN; n[g].job = DELETE
		:: !exists(g) && BUG(AFTER_ERASE) -> n[g].job = IDLE
		:: else -> forget(g)
		fi }
	:: d_step { BUG(SYNC) && n[g].job == ERASE && is_reachable(g) &&
		is_split && old_number(g) == 0 ->
		n[g].job = IDLE }
	/* SET, sent once, ahead of the delete: it is executed, or lost. */
	:: d_step { n[g].job == SET && may_execute(g) -> set_node(g); n[g].job = DELETE }
	:: d_step { n[g].job == SET && losses > 0 ->
		losses--; n[g].job = DELETE; SEEN(SET_LOST) }
	:: d_step { BUG(SET_AGAIN) && n[g].job == SET && losses > 0 ->
		losses--; n[g].job = DELETE;
		for (i : g + 1 .. NODES - 1) {
			if
			:: n[i].client == n[g].client && is_current(i) -> set_node(i)
			:: else
			fi
		}
		i = 0 }
	/* DELETE, until confirmed; its reply may be lost, or itself. */
	:: d_step { n[g].job == DELETE && is_reachable(g) -> drop_node(g); forget(g) }
	:: d_step { n[g].job == DELETE && is_reachable(g) && losses > 0 -> losses--; drop_node(g) }
	:: d_step { n[g].job == DELETE && BUG(DELETE_ONCE) && losses > 0 ->
		losses--; n[g].job = IDLE }
	/* A stranger sets the node, where the ACL lets it, or deletes it. */
	:: d_step { strangers > 0 && exists(g) && (!is_marked(g) || BUG(NO_ACL)) ->
		strangers--; set_node(g) }
	:: d_step { strangers > 0 && exists(g) -> strangers--;
		is_evicted[n[g].client] = is_evicted[n[g].client] ||
			(is_current(g) && n[g].job == IDLE);
		drop_node(g) }
	od
}

/* ---- The ensemble: sessions, and the container of the queue ---- */

/* A session of client c ends, the current or an old one: its nodes go. */
inline end_session(is_old) {
	for (i : 0 .. NODES - 1) {
		if
		:: n[i].create != UNSENT && n[i].client == c && is_current(i) == !is_old ->
			drop_node(i);
			if
			:: is_old || n[i].job != IDLE -> forget(i)
			:: else
			fi
		:: else
		fi
	}
	i = 0
}

/* Any session may end; one that its client has left does so for sure. */
proctype Session(byte c)
{
	byte i, k;
end:
	do
	:: d_step { is_alive[c] && (is_crashed[c] || faults > 0) ->
		faults = faults - !is_crashed[c];
		is_alive[c] = false; end_session(false) }
	:: d_step { is_zombie[c] -> is_zombie[c] = false; end_session(true) }
	od
}

proctype Ensemble()
{
	byte i;

	do
	/* An empty container may be removed. */
	:: d_step { removals > 0 && counter > 0 && nnodes == 0 -> removals--; counter = 0 }
	/* A leader is deposed, and does not know it yet. */
	:: d_step { deposals > 0 -> deposals--; depose() }
	:: d_step { is_split -> step_down() }
	/* From some moment on nothing fails: nothing may depend on faults to come. */
	:: d_step { !is_calm -> is_calm = true; losses = 0; faults = 0; strangers = 0;
		deposals = 0 }
	/* The end: no other step is possible. */
	:: timeout -> break
	od;
	CHECK(PROGRESS, nfinished == N);
	CHECK(NO_ORPHAN, nnodes == 0)
}

/* ---- A backend ---- */

/* A new session.  If the old one lives, the ensemble ends it later. */
inline open_session() {
	is_zombie[c] = is_zombie[c] || is_alive[c];
	session[c]++; is_alive[c] = true;
	watch[c] = (BUG(OLD_EVENT) -> watch[c] : NONE)
}

/*
 * recipe_verdict(): `ahead` becomes the nearest node ahead of g, or NONE, in the
 * list of a leader that is deposed or of one that is not.
 */
#define number(g, is_old) (is_old -> old_number(g) : n[g].number)
#define place(g, is_old) (BUG(ORDER_BY_NAME) -> g + 1 : number(g, is_old))
inline find_place(is_old) {
	d_step {
		ahead = NONE; is_next = false;
		for (i : 0 .. NODES - 1) {
			if
			:: number(i, is_old) != 0 && place(i, is_old) < place(g, is_old) ->
				is_next = BUG(DELETE_IS_GRANT) && ahead == NONE;
				if
				:: (ahead == NONE -> true : place(i, is_old) > place(ahead, is_old)) -> ahead = i
				:: else
				fi
			:: else
			fi
		}
		i = 0
	}
}

/*
 * is_late excuses a grant by a read that was answered while the session lived.
 * Who was evicted is excused, too: nobody can know, until the next proof.
 */
inline grant(is_late) {
	d_step {
		CHECK(LATE_GRANT, is_alive[c]);
		for (i : 0 .. N - 1) {
			CHECK(EXCLUSION, (is_late) || is_evicted[c] ||
				!is_holder[i] || !is_alive[i] || is_evicted[i])
		}
		for (i : 0 .. NODES - 1) {
			CHECK(FIFO, !exists(g) || !exists(i) || n[i].zxid >= czxid ||
				has_passed_on(i) || has_left(i))
		}
		is_holder[c] = true; is_behind = false; i = 0; ahead = 0; watch[c] = NONE;
		forget_neighbor()
	}
}

/* PostgreSQL's part of the end, and nothing is remembered. */
inline let_go() {
	is_holder[c] = false; row_lock = (row_lock == c -> NONE : row_lock);
	token = 0; czxid = 0; seen = 0; ahead = 0; is_proved = false;
	has_waited = false; is_next = false; is_behind = false; is_evicted[c] = false;
	forget_neighbor()
}

inline finish_round() { round--; nfinished = nfinished + (round == 0) }

/* leave_queue() in contender.c */
inline leave() {
	let_go(); finish_round(); watch[c] = NONE;
	if
	:: BUG(LEAVE_TELLS) && n[g].create == KNOWN -> tell(g, IDLE); withdraw(g)
	:: BUG(LEAVE_SETS) && n[g].create == KNOWN -> n[g].job = SET
	:: BUG(LEAVE_NODE)
	:: else -> withdraw(g)
	fi
}

/* ZK_LOST: a new session, at the end of the queue */
inline lose_session() {
	open_session(); let_go();
	if
	:: BUG(ADOPT_OLD) -> n[g].create = (n[g].create == SENT -> LATE : LOST); goto look
	:: !BUG(ADOPT_OLD) && !may_execute(g) && !exists(g) -> forget(g)
	:: else
	fi
}

inline crash() { let_go(); is_crashed[c] = true; watch[c] = NONE; nfinished++ }

/* What may end any wait. */
#define INTERRUPTS \
	:: IMPATIENT && !is_calm -> leave(); goto next			/* deadline, cancel */ \
	:: !is_alive[c] -> lose_session(); goto acquire			/* so we are told */ \
	:: faults > 0 -> faults--; lose_session(); goto acquire	/* so says our clock */ \
	:: faults > 0 -> faults--; crash(); goto end

proctype Contender(byte c)
{
	byte g, ahead, token, czxid, seen, i, k, round = ROUNDS;
	bool has_waited, is_next, is_proved, is_behind;

	used >= c;					/* they are all alike: start them in order */

acquire:						/* zklock_lock_acquire(), join(): create and list */
	atomic {
		if
		:: !is_alive[c] -> open_session()
		:: else
		fi;
		is_evicted[c] = false;
		g = used; used++;
		n[g].client = c; n[g].session = session[c]; n[g].create = SENT
	}

look:							/* stand_in_queue(): await the list */
	atomic {
		if
		INTERRUPTS
		/* take_node() */
		:: (n[g].create == MADE || n[g].create == KNOWN) && is_alive[c] && exists(g) ->
			n[g].create = KNOWN; czxid = n[g].zxid;
			token = (BUG(TOKEN_IS_NUMBER) -> n[g].number : czxid);
			find_place(false)
		/* the same from a server of the deposed leader: its list is an older one */
		:: n[g].create == KNOWN && czxid != 0 && is_split && old_number(g) != 0 ->
			is_behind = true; find_place(true); CHECK(OLD_LIST, ahead != NONE)
		/* raise_evicted() */
		:: (n[g].create == MADE || n[g].create == KNOWN) && is_alive[c] && !exists(g) ->
			CHECK(PROGRESS, is_evicted[c]); leave(); goto next
		/* take_node(): withdraw it, and join again */
		:: has_no_reply(g) && is_alive[c] && !BUG(ADOPT_OLD | BLIND_RETRY) ->
			CHECK(MADE_TWICE, !exists(g)); withdraw(g); goto acquire
		:: has_no_reply(g) && is_alive[c] && BUG(ADOPT_OLD) && exists(g) ->
			n[g].create = KNOWN; goto look
		:: has_no_reply(g) && is_alive[c] && BUG(ADOPT_OLD) && !exists(g) -> withdraw(g); goto acquire
		:: has_no_reply(g) && is_alive[c] && BUG(BLIND_RETRY) -> goto acquire
		fi
	}

#if NEIGHBORS
	atomic {					/* zklock_handover_await() */
		if
		:: c < NEIGHBORS && ahead != NONE -> waits_for[c] = ahead
		:: else
		fi
	}
#endif

verdict:						/* perhaps long after the list was read */
	atomic {
		if
		INTERRUPTS
		:: ahead == NONE -> grant(!is_alive[c]); goto granted
		/* at a deposed leader, as long as it answers */
		:: ahead != NONE && is_behind ->
			is_behind = false;
			if
			:: is_split -> SEEN(OLD_WATCH); has_waited = true; watch[c] = NO_NEWS
			:: else -> forget_neighbor(); goto look
			fi
		/* watch(): get_and_watch */
		:: ahead != NONE && is_alive[c] && !is_behind ->
			has_waited = true;
			if
			:: BUG(OLD_EVENT) && watch[c] == PASSED_ON
			:: exists(ahead) && has_passed_on(ahead) -> watch[c] = FOUND_SET
			:: exists(ahead) && !has_passed_on(ahead) ->
				CHECK(BEHIND_ITSELF, n[ahead].client != c); watch[c] = ahead
			:: !exists(ahead) && BUG(WATCH_BY_EXISTS)
			:: !exists(ahead) && BUG(WATCH_AGAIN) -> goto verdict
			:: !exists(ahead) && !BUG(WATCH_BY_EXISTS | WATCH_AGAIN) &&
				!is_told_now(c) -> forget_neighbor(); goto look
			:: is_told_now(c)
			fi
		fi
	}
	atomic {					/* zklock_session_await_watch() */
		if
		INTERRUPTS
		:: watch[c] == PASSED_ON || watch[c] == FOUND_SET || watch[c] == OTHER_EVENT
		:: is_told_now(c)
		:: losses > 0 -> losses--; watch[c] = OTHER_EVENT /* lost and back */
		:: BUG(WAITER_SETS) && exists(g) && !n[g].is_set ->
			set_node(g); watch[c] = OTHER_EVENT
		fi;
		if
		:: BUG(WAKE_IS_GRANT) || (is_next && watch[c] == OTHER_EVENT && !exists(ahead)) ->
			ahead = NONE; goto verdict
		:: watch[c] == OTHER_EVENT && !BUG(WAKE_IS_GRANT) && !is_told_now(c) ->
			watch[c] = NONE; forget_neighbor(); goto look
		/* A neighbor has told us, and our proof is fresh ... */
		:: is_told_now(c) && (is_alive[c] || BUG(TOLD_UNPROVED)) ->
			SEEN(BY_TELLING); CHECK(TOLD_BY_LOST, is_alive[n[ahead].client]);
			grant(false); goto granted
		/* ... or stale. */
		:: is_told_now(c) -> SEEN(TOLD_STALE); watch[c] = NONE; forget_neighbor()
		/* Passed on.  The clock, which is read now, calls our proof fresh ... */
		:: (watch[c] == PASSED_ON || watch[c] == FOUND_SET) &&
			(is_alive[c] || BUG(NO_CLOCK)) ->
			CHECK(BY_EVENT, watch[c] != PASSED_ON); CHECK(BY_VERSION, watch[c] != FOUND_SET);
			CHECK(EVICTED, !is_evicted[c]);
			grant(false); goto granted
		/* ... or stale. */
		:: watch[c] == PASSED_ON || watch[c] == FOUND_SET ->
			watch[c] = NONE; forget_neighbor()
		fi
	}
	atomic {					/* confirm_queued(): a check of our own node */
		if
		INTERRUPTS
		:: is_alive[c] && exists(g) -> SEEN(BY_CHECK); ahead = NONE; goto verdict
		:: BUG(ASK_SERVER) && is_split && old_number(g) != 0 -> grant(false); goto granted
		:: is_alive[c] && !exists(g) -> CHECK(PROGRESS, is_evicted[c]); leave(); goto next
		:: losses > 0 -> losses--; goto look
		fi
	}

granted:						/* zk_fence(), which waits for the row; a read */
	atomic {
		if
		:: BUG(NO_FENCE)
		:: !BUG(NO_FENCE) && row_lock == NONE && token >= fence -> row_lock = c
		:: !BUG(NO_FENCE) && row_lock == NONE && token < fence ->
			SEEN(FENCED_OFF); CHECK(REFUSAL, czxid < last_commit); goto release
		fi;
		seen = last_commit
	}

	atomic {					/* zklock_prove_locks(): check */
		if
		:: is_alive[c] && is_current(g) && exists(g) -> is_proved = true
		:: !(is_alive[c] && exists(g)) && !BUG(NO_GUARD) -> SEEN(GUARDED); goto release
		:: BUG(EARLY_SET) && has_waited -> is_proved = exists(g); set_node(g)
		:: BUG(EARLY_TELL) -> is_proved = exists(g); tell(g, IDLE)
		:: BUG(NO_GUARD) -> is_proved = true
		:: BUG(GUARD_BY_STATE) -> is_proved = exists(g)
		:: faults > 0 -> faults--; let_go(); open_session(); goto release
		:: faults > 0 -> faults--; crash(); goto end
		fi
	}

	atomic {					/* the window between proof and commit record */
		if
		:: faults > 0 -> faults--; crash(); goto end
		:: true
		fi;
		CHECK(PROOF, is_proved);
		CHECK(ORDER, czxid > last_commit);
		CHECK(UPDATE, seen == last_commit);
		d_step {
			for (i : 0 .. NODES - 1) {
				CHECK(DELETE_LATE, !(n[i].is_set || has_left(i)) || i == g)
			}
			i = 0
		}
		last_commit = czxid;
		fence = (token > fence -> token : fence)
	}

release:						/* zklock_end_transaction() */
	atomic {
		if
		:: true
		/* as Curator's: a node with the same number, then the old one goes */
		:: downgrades > 0 && is_reachable(g) && exists(g) ->
			downgrades--; ahead = used; used++;
			n[ahead].client = c; n[ahead].session = session[c];
			make_node(ahead, KNOWN); counter--; n[ahead].number = n[g].number;
			n[g].job = DELETE;
			g = ahead; ahead = 0; has_waited = false;
			row_lock = (row_lock == c -> NONE : row_lock)
		fi
	}
	atomic {					/* leave(): pass the lock on, or just delete */
		if
		:: is_reachable(g) -> n[g].job = (has_waited && is_marked(g) -> SET : DELETE)
		:: else
		fi;
		/* A neighbor is told instead, if there is one, whatever our session is. */
		if
		:: is_current(g) && is_marked(g) && n[g].create == KNOWN && is_holder[c] ->
			tell(g, (!is_reachable(g) || BUG(TOLD_AND_LEFT) -> IDLE : DELETE))
		:: else
		fi;
		if
		:: !is_reachable(g) && !exists(g) -> forget(g)
		:: else
		fi;
		let_go(); finish_round()
	}
next:
	if
	:: round > 0 -> goto acquire
	:: else
	fi;
end:
	skip
}

init
{
	byte i;

	atomic {
		for (i : 0 .. NODES - 1) { forget(i); run Request(i) }
#if NEIGHBORS
		for (i : 0 .. NEIGHBORS - 1) { waits_for[i] = NONE }
#endif
		for (i : 0 .. N - 1) {
			is_alive[i] = true; watch[i] = NONE;
			run Session(i); run Contender(i)
		}
		run Ensemble()
	}
}
