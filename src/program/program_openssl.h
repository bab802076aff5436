/*-------------------------------------------------------------------------
 *
 * program_openssl.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_PROGRAM_OPENSSL_H
#define ZKLOCK_PROGRAM_OPENSSL_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "program_tls.h"

/*
 * How long the passphrase command may take: a program that has not connected
 * yet holds up nothing but its backend's first lock, others hold up what keeps
 * a session alive.
 */
#define TLS_PATIENCE_S 5
#define TLS_PATIENCE_CONNECTED_S 1

/*
 * A line is one connection with TLS: the TCP connection, and what has been
 * sent and is not on its way yet.  It lives until line_close().  If it fails
 * before, its caller finds the end of its input, and line_error() says why.
 */
typedef struct TlsLine TlsLine;

/*
 * Take these settings for the lines that are opened from now on, as
 * tls_begin() says.  The passphrase command has that many seconds.
 */
extern bool line_begin(const char *text, int seconds, char why[TLS_WHY_SIZE]);

/*
 * Over that socket, which is being connected, to the server at that address
 * (SERVERS_ADDRESS_SIZE), whose certificate must be for that host
 * (SERVERS_HOST_MAX), a numeric address or a name.  With an error of the
 * system's the line has failed already, and the socket may be -1; and so it
 * has before line_begin().  NULL without memory: the socket is still the
 * caller's.
 */
extern TlsLine *line_open(int socket, const char *address, const char *host,
						  bool is_numeric, int error);

/* Sends what it can of what is left, and closes the socket. */
extern void line_close(TlsLine *line);

/*
 * As send() and recv() of a socket that does not block.  What is peeked at is
 * received again by the next call.
 */
extern ssize_t line_send(TlsLine *line, const void *bytes, size_t length);
extern ssize_t line_receive(TlsLine *line, void *bytes, size_t size,
							bool is_peek);

/*
 * Go on as far as possible without a wait.  Result: which of these events its
 * caller has already.  What the socket is to be polled for goes to awaited.
 */
extern short line_before_poll(TlsLine *line, short events, short *awaited);

/* The same, once the socket has those revents. */
extern short line_after_poll(TlsLine *line, short events, short revents);

/* As tls_error() and tls_describe(). */
extern const char *line_error(const TlsLine *line);
extern const char *line_describe(const TlsLine *line, char *text, size_t size);

#endif							/* ZKLOCK_PROGRAM_OPENSSL_H */
