/*-------------------------------------------------------------------------
 *
 * session.h
 *
 * Also declares what the other modules of the family session* have for the rest
 * of the library.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SESSION_H
#define ZKLOCK_SESSION_H

#include "postgres.h"

#include "client_request.h"
#include "compat.h"
#include "contact.h"
#include "protocol.h"
#include "utils/timestamp.h"

/*
 * The state of the session is what its program has said last, as the client has it
 * (ZkClientStatus); all that this backend adds is whether it has given it up.
 * Questions are answered by that, and change nothing.  zklock_session_attend(),
 * _poll() and _read() take in what is new; each step begins with one of them, and
 * so does each turn of a wait.
 */

/*
 * Number of a session of this backend, counted from 1; a znode belongs to the
 * session under which it was made and to no later one.
 */
typedef uint64 ZkSessionNumber;

/* A deadline on protocol_now()'s clock that never comes. */
#define ZK_NO_DEADLINE INT64_MAX

/* As good as no bound in milliseconds, and can be added to a date. */
#define ZK_MS_MAX (PG_INT64_MAX / 4)

/*
 * How a question to the ensemble ended, or a wait for news.  Each layer hands it
 * on as it is, unless its comment says what becomes of it.  At ZK_LOST the caller of the outermost loop begins anew with
 * another session (zklock_roundtrip_run_within(), zklock_lock_acquire()).
 */
typedef enum ZkOutcome
{
	ZK_ANSWERED,				/* what was waited for is there */
	ZK_LATE,					/* the caller's deadline came first; of a
								 * contender also: others have the lock, and it
								 * waits for nobody */
	ZK_UNKNOWN,					/* the session lives, and the answer was lost
								 * with its connection: done, not done, or
								 * still to be done */
	ZK_LOST						/* the session was lost first */
} ZkOutcome;

/* What a wait is for, as pg_stat_activity shows it from PostgreSQL 17 on. */
typedef enum ZkWaitReason
{
	ZK_WAITING_TO_CONNECT,
	ZK_WAITING_FOR_LOCK,
	ZK_WAITING_FOR_REPLY,
	ZK_WAITING_TO_COMMIT
} ZkWaitReason;
#define ZK_NWAIT_REASONS 4

/* Define the settings of this module.  For _PG_init(). */
extern void zklock_session_init(void);

/*
 * Attend to the session: take in what its program has said since, and tell the
 * board, the counters and the log.  One comparison, if that is nothing.  Never
 * raises, never waits.
 */
extern void zklock_session_attend(void);

/*
 * The same, and look at the clock, too: a program that stands still says nothing,
 * and its session is given up when it has stood still for the session timeout.
 * For what relies on the session from now on, or tells whether it was there: an
 * acquisition, a release by the user, views, a turn of a wait.
 */
extern void zklock_session_poll(void);

/*
 * How often it was found that its program has said anything: what was known
 * before may be another thing now if the number is.
 */
extern uint64 zklock_session_count_news(void);

/* The same, and read also what the shared page does not speak of yet. */
extern void zklock_session_read(void);

/*
 * Make sure that there is a session; it need not be connected yet.  To be
 * called after zklock_session_renew(); again, if the session was lost before
 * it was connected and all its requests are freed.  Raises 0A000 in a process
 * that must not hold locks, 55000 without servers, 53000 if its program cannot
 * be started.  A new session has a new number.
 */
extern void zklock_session_open(void);

/*
 * Shall the loss of the session cancel the running statement, as
 * pg_cancel_backend() would?  Not at first.  Never raises.
 */
extern void zklock_session_interrupt_on_loss(bool is_wanted);

/* If the session is lost, and an interrupt is wanted and was not sent: send it. */
extern void zklock_session_interrupt_if_lost(void);

/*
 * Before the ensemble is asked: close a session that is over, and one that
 * was opened with other settings unless it is in use.  is_again: the session
 * before is of this call, whose time to connect goes on.  Never raises.
 */
extern void zklock_session_renew(bool is_again);

/* Was it opened with other settings than there are now? */
extern bool zklock_session_is_outdated(void);

/* Does this session hold locks?  Not at first. */
extern void zklock_session_note_use(bool is_in_use);

/*
 * zklock_session_open() begins a use of the session, which lasts until this is
 * called: at the end of a transaction, or of what has begun it.  Without it
 * the session may be ended: as idle (zklock.idle_timeout), or because deletes
 * stay refused.  Never raises.
 */
extern void zklock_session_end_use(void);

/* Has a use begun?  Then its end is for the caller that has begun it. */
extern bool zklock_session_is_used(void);

/*
 * At the end of a transaction: zklock_session_reap() if the session was used
 * since the last call, or still has requests without a reply.
 */
extern void zklock_session_rest(void);

/* How many of its requests are not over. */
extern int	zklock_session_count_pending(void);

/* Count the requests of the session (stat.h).  Never raises. */
extern void zklock_session_count_requests(void);

/*
 * Has the session an identity of its own, so that nobody else can write to
 * the queue nodes that it makes from now on?
 */
extern bool zklock_session_can_hand_over(void);

/* Has it the user's credentials (zklock.auth)? */
extern bool zklock_session_has_credentials(void);

/* No proof is fresh since then. */
#define ZK_NO_PROOF ((Moment) {INT64_MAX, INT64_MAX})

/*
 * With commit_guard = fresh: a proof (contact.h) is good if its date is after this.  Then
 * the ensemble keeps the session for another third of its timeout, even if the
 * machine was suspended since.
 */
extern Moment zklock_session_fresh_since(void);

/*
 * Wait until what the ensemble has answered by now can date a proof, the
 * deadline comes, or the session is lost.  Raises on cancel and termination.
 */
extern void zklock_session_await_contact(int64 deadline);

/*
 * The client, valid after zklock_session_open() until control leaves zklock.
 */
extern ZkClient *zklock_session_client(void);

/* Number of the current session, good or not; 0 if there is none. */
extern ZkSessionNumber zklock_session_number(void);

/*
 * Its id in ZooKeeper, 0 until it was connected: with one, a time-out is the
 * queue's.
 */
extern int64 zklock_session_id(void);

/* The session timeout that was granted; 0 until it was connected. */
extern int	zklock_session_timeout_ms(void);

/* The number of the current one if it is good as far as is known, else 0. */
extern ZkSessionNumber zklock_session_live(void);

/*
 * Attend to the session, and close it if it was lost or could not be connected.
 * Until then it may still be the current one.  Never raises, never waits.
 * Frees all requests, so none may be outstanding. may_cancel: cancel the
 * statement if it is the first one that notices the loss.  Result: as of
 * zklock_session_live().
 */
extern ZkSessionNumber zklock_session_reap(bool may_cancel);

/*
 * When and why the session was lost that was lost last, in words.  Never
 * raises.
 */
extern void zklock_session_describe_loss(char *text, size_t size);

/*
 * A statement begins: what one message of the client does.  What was sent
 * before does not interrupt it, unless it is still to take effect.  Never
 * raises.
 */
extern void zklock_session_begin_statement(void);

/*
 * The number of the interrupt that a loss has sent, if that is not over yet; 0:
 * there is none.  Never raises.
 */
extern int64 zklock_session_interrupt(void);

/* An error has come of it: it is over.  Never raises. */
extern void zklock_session_end_interrupt(void);

/*
 * Something is raised that is not the error of the interrupt.  If PostgreSQL has
 * taken the interrupt for it, the interrupt is pending again.  Never raises.
 */
extern void zklock_session_keep_interrupt(void);

/*
 * Has the loss of a session interrupted the running statement, or is about to?
 * Never raises.
 */
extern bool zklock_session_has_interrupted(void);

/*
 * Wait for a reply.  *reply: with ZK_ANSWERED; with ZK_UNKNOWN it has the words
 * of an error, and with the others it is not to be read.  Raises on cancel and
 * termination, and 08001 when the first connection takes longer than
 * zklock.connect_timeout.  The request stays the caller's in every case.
 */
pg_nodiscard extern ZkOutcome zklock_session_await(ZkRequest *request,
												   int64 deadline,
												   ZkWaitReason reason,
												   const ZkReply **reply);

/* The outcome that a reply has which is there: never ZK_LATE. */
pg_nodiscard extern ZkOutcome zklock_session_outcome(const ZkReply *reply);

/*
 * Wait until there is news of the watched node, or from a neighbor
 * (handover.h).  Never ZK_UNKNOWN.  Raises likewise.
 */
pg_nodiscard extern ZkOutcome zklock_session_await_watch(int64 deadline);

/*
 * Wait until nothing is left in any queue of what this session has withdrawn
 * there, if only because the session was lost; false at the deadline.
 */
extern bool zklock_session_await_undone(int64 deadline);

/* Is it connected, and nothing under way that is waited for like that? */
extern bool zklock_session_can_answer(void);

/* Is there one that is connected, as far as is known? */
extern bool zklock_session_is_connected(void);

/*
 * Until when a question is to be answered that was asked then and does not
 * wait for anybody else: in zklock.connect_timeout; where there is no
 * connection yet that has the same time, and raises when it is over.
 */
extern int64 zklock_session_reply_deadline(int64 asked_at);

/*
 * The list of servers in use, as zklock.servers: that of the settings page
 * (settings_page.h), for all sessions of this cluster.  "": none.  Valid until
 * the next call of this or the next function.
 */
extern const char *zklock_session_servers(void);

/* Its chroot, "" if none. */
extern const char *zklock_session_chroot(void);

/*
 * Close the session if there is one, taking at most about wait_ms.  Never
 * raises.  The locks that hung on it are gone with it.
 */
extern void zklock_session_close(int wait_ms);

/*
 * The path of the session's program, with TLS if the setting says so,
 * palloc'ed, be it there or not.  Raises 58000 if the place of the library is
 * not known.
 */
extern char *zklock_session_program(void);

/* How it is to use TLS (program_tls.h), palloc'ed; NULL: not at all. */
extern char *zklock_session_tls(void);

/* What its client says of it; NULL if there is no session. */
extern const ZkClientStatus *zklock_session_status(void);

/* ---- errors, in session_error.c ---- */

/*
 * A state machine of this backend (moves.h) was to make a move that is not
 * legal: an assertion, and without assertions a WARNING.  Never raises; looks
 * for no interrupts.
 */
extern void zklock_session_warn_illegal(const char *machine, const char *from,
										const char *to);

/* Raise out of memory for a request that could not even be made. */
pg_noreturn extern void zklock_session_raise_memory(void);

/*
 * Raise what a failed request calls for; doing completes "could not ..." for
 * the znode at path.
 */
pg_noreturn extern void zklock_session_raise(const ZkReply *reply,
											 const char *doing,
											 const char *path);

/*
 * Raise 58000: the server to which this session is connected shows data of that
 * znode that its leader does not have, or the other way round.  how: in which
 * way, the end of a sentence about the znode.
 */
pg_noreturn extern void zklock_session_raise_difference(const char *path,
														const char *how);

/*
 * Raise 0A000: the server has refused container znodes, as that one.  how: in
 * which way, the end of a sentence about the server.
 */
pg_noreturn extern void zklock_session_raise_no_containers(const char *path,
														   const char *how);

/*
 * Raise 08001 for a try of that lock whose time is over before the ensemble
 * has answered; NULL: for a call that waits for no other session.
 */
pg_noreturn extern void zklock_session_raise_silence(const char *name);

/*
 * Inside ereport(): the errdetail() that says how it is that nobody answered,
 * and if there is no connection the errhint().
 */
extern int	zklock_session_explain_silence(void);

/*
 * Inside ereport(): the errdetail() and errhint() of a commit whose proofs were
 * too old again and again.  The last ones had taken so long.
 */
extern int	zklock_session_explain_late_proof(int64 took_ms);

#endif							/* ZKLOCK_SESSION_H */
