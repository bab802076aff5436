/*-------------------------------------------------------------------------
 *
 * program_tls.h
 *
 * There are two programs: zklock-session has no TLS (program_plain.c), and
 * zklock-session-tls makes no connection without it (program_tls.c).  To load
 * OpenSSL takes longer than all else that a program does until it connects.
 *
 * ZooKeeper's client library has no TLS as Debian builds it.  But it calls
 * connect(), send(), recv() and close() as every library does, so that those
 * of zklock-session-tls are the ones that are called.  Its connect() puts a
 * socket in the place of the caller's that leads nowhere, and connects that
 * itself; and what is sent to, or received from, the one in its place goes
 * through OpenSSL.  The caller, the library or program_ask.c, goes on as with
 * a socket of its own, but polls it with tls_poll().
 *
 * The one rule: no connection of zklock-session-tls over TCP is made without
 * TLS, and none whose certificate was not verified carries a byte of its
 * caller's.  A look-up of a name may take connections, too: it has a process
 * of its own, which is left out.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_PROGRAM_TLS_H
#define ZKLOCK_PROGRAM_TLS_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "servers.h"

/* Room for a reason, a sentence without a full stop. */
#define TLS_WHY_SIZE 480

/*
 * What connections are made with from now on: read the files that the text
 * names, and prove that the library calls our connect().  The text's lines:
 * the file of the authorities, of the certificate, of the key, of revocations,
 * any of them empty; the lowest version, 2 or 3; and the rest is the command
 * that says the key's passphrase, or empty: it has five seconds, one if
 * anything was connected before.
 * Relative paths lead to the data directory, where the program runs.  Files
 * that are replaced later are read again for the next connection.  May be
 * called again, with another text.
 * false with a reason in why, and all stays as it was.
 */
extern bool tls_begin(const char *text, char why[TLS_WHY_SIZE]);

/*
 * The certificate at each of these addresses, ASK_ALL_MAX at most, is to be
 * that of its server, from the next connection on; there are no others.
 */
extern void tls_expect(const ServerList *list,
					   const ServerAddress addresses[], int count);

/*
 * Was the connection made with TLS that the caller of connect() knows by that
 * descriptor?
 */
extern bool tls_is_used(int fd);

/* In a child process: all connections are left alone, and made without TLS. */
extern void tls_leave(void);

/*
 * What is sent from now on over the connection that the caller of connect()
 * knows by that descriptor goes out together, with the next tls_poll(); -1: what
 * waits goes out now, and what is sent later at once.  With TLS it is always so.
 */
extern void tls_gather(int fd);

/*
 * As poll(), and at most ASK_ALL_MAX + 1 of them: what has been sent goes out
 * first.  A connection with TLS gets no revents that are not its events.
 */
extern int	tls_poll(struct pollfd *polled, int count, int timeout_ms);

/*
 * What is wrong with the connection that the caller of connect() knows by that
 * descriptor: until the handshake is done that it is not.  "" if nothing is,
 * and without TLS.
 */
extern const char *tls_error(int fd);

/*
 * The socket of that connection, without TLS the descriptor itself; and when
 * anything was last received over it that TLS has found to be the server's,
 * INT64_MAX without TLS.
 */
extern int	tls_socket(int fd, int64_t *received_at);

/*
 * What a connection is like whose handshake is done, as a text without a line
 * end: version, cipher, when the first certificate of the server's chain
 * expires, when our own does (seconds since 1970, 0 without one), and the
 * subject of the server's, as RFC 2253 has it.  "" without TLS.  Result: what
 * is wrong with the files, if it was made with those of before, or "".
 */
extern const char *tls_describe(int fd, char *text, size_t size);

#endif							/* ZKLOCK_PROGRAM_TLS_H */
