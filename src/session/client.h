/*-------------------------------------------------------------------------
 *
 * client.h
 *
 * For session.c and those that do as it does; what all others ask is in
 * client_request.h.
 *
 * The session itself, with the ZooKeeper library, is in a program of its own
 * (see program.h), which this module starts and talks to.  No type of the
 * ZooKeeper library and none of PostgreSQL stands here.  No function raises
 * or waits for the network, save for the bounded waits of
 * zklock_client_close() and of sending to a program that does not read.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CLIENT_H
#define ZKLOCK_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client_request.h"

typedef struct ZkClientOptions
{
	const char *program;		/* path of the session's program */
	const char *servers;		/* as servers_parse() takes them */
	int			session_timeout_ms; /* asked for; the server clamps it */
	unsigned	first_server;	/* begin with this one of the addresses, taken
								 * modulo their number */
	const char *auth_scheme;	/* NULL for none */
	const char *auth_credentials;	/* with auth_scheme */
	const char *tls;			/* how to use it (program_tls.h), NULL: without it */
	bool		is_auth_private;	/* they are this session's alone, to guard
									 * its queue nodes and nothing else */
} ZkClientOptions;

/*
 * Start a session, with a program of its own.  Never NULL save without
 * memory; every other failure shows as ZK_CLIENT_LOST with its reason.
 * Requests may follow at once: they go out behind the handshake.
 */
extern ZkClient *zklock_client_open(const ZkClientOptions *options);

/*
 * The descriptor that becomes readable when there is news; -1 if none will
 * be.
 */
extern int	zklock_client_fd(ZkClient *client);

/* Send what is still to be sent. */
extern void zklock_client_flush(ZkClient *client);

/*
 * Take in what the program has said, if the shared page says that there is
 * anything: a look costs no system call.  A session whose program has not moved
 * for the session timeout is LOST from then on; every other loss is declared by
 * the program.  What is asked below, and of requests, is answered by what is
 * known since the last look.
 */
extern void zklock_client_poll(ZkClient *client);

/* Take it in without asking the page: reads the socket, and not the clock. */
extern void zklock_client_receive(ZkClient *client);

/* May such a look find anything new, but for the time?  One comparison. */
extern bool zklock_client_has_news(const ZkClient *client);

/* How often there was any, so far. */
extern uint64_t zklock_client_count_news(const ZkClient *client);

/* How many of its requests are not over, as the page says now. */
extern int	zklock_client_count_pending(const ZkClient *client);

/* How many requests it has got so far. */
extern uint64_t zklock_client_count_requests(const ZkClient *client);

/* The session as of the last look.  Valid as long as the client. */
extern const ZkClientStatus *zklock_client_status(const ZkClient *client);

/* Is everything undone that was withdrawn, and over that is awaited? */
extern bool zklock_client_is_undone(const ZkClient *client);

/*
 * Do locks hang on it?  Not at first.  A session without locks, and without a
 * wait for one, is ended if it cannot delete what it has made.
 */
extern void zklock_client_note_use(ZkClient *client, bool is_in_use);

/*
 * A transaction uses it from now on, and does not any more.  In between the
 * program does not end it as idle.  false: it has done so before, and no
 * request is to be sent.
 */
extern bool zklock_client_begin_use(ZkClient *client);
extern void zklock_client_end_use(ZkClient *client);

/* Has that begun, and not ended? */
extern bool zklock_client_is_used(const ZkClient *client);

/*
 * After so many milliseconds without any use, and without locks, the program
 * ends it: ZK_LOSS_IDLE.  0: never, as at first.
 */
extern void zklock_client_set_idle_timeout(ZkClient *client, int timeout_ms);

/*
 * Send this process SIGINT when the session becomes LOST, even if it is busy
 * elsewhere, or do not.  Once refused, none comes any more.
 */
extern void zklock_client_interrupt_on_loss(ZkClient *client, bool is_wanted);

/*
 * If the session is lost, as far as is known: send the interrupt now if it is
 * wanted and was not sent.
 */
extern void zklock_client_interrupt_if_lost(ZkClient *client);

/* How many were sent. */
extern uint64_t zklock_client_count_interrupts(const ZkClient *client);

/* Is one being sent, so that the signal may be still to come? */
extern bool zklock_client_is_interrupt_under_way(const ZkClient *client);

/*
 * The library's or our own last error text, one line, "" if there is none.
 * Valid until there is another one.
 */
extern const char *zklock_client_last_error(const ZkClient *client);

/*
 * Close the session, which removes its nodes, and free the client with all
 * its requests.  Takes at most about wait_ms; what is not done by then the
 * program goes on with alone.
 */
extern void zklock_client_close(ZkClient *client, int wait_ms);

#endif							/* ZKLOCK_CLIENT_H */
