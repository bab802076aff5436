/*-------------------------------------------------------------------------
 *
 * program_tls_module.h
 *	  What lies between the session's program and its module for TLS.
 *
 * The module is a shared object beside the program, which has OpenSSL.  It
 * exports one symbol, a TlsModule.  It calls nothing of the program's but
 * close(), which every library finds there.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_PROGRAM_TLS_MODULE_H
#define ZKLOCK_PROGRAM_TLS_MODULE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "program_tls.h"

/* The module's file, and its symbol. */
#define TLS_MODULE_FILE "zklock-session-tls.so"
#define TLS_MODULE_SYMBOL "zklock_tls_module"

/*
 * Counts up with each change of TlsModule.  A program that is running may find
 * the module of another version once its files have been replaced.
 */
#define TLS_MODULE_VERSION 4

/*
 * How long the passphrase command may take: a program that has not connected
 * yet holds up nothing but its backend's first lock, others hold up what keeps
 * a session alive.
 */
#define TLS_PATIENCE_S 5
#define TLS_PATIENCE_CONNECTED_S 1

/*
 * A line is one connection with TLS: the TCP connection, and what has been
 * sent and is not on its way yet.  It lives until close().  If it fails
 * before, its caller finds the end of its input, and error() says why.
 */
typedef struct TlsLine TlsLine;

typedef struct TlsModule
{
	int			version;		/* TLS_MODULE_VERSION, in all versions */

	/*
	 * Take these settings for the lines that are opened from now on, as
	 * tls_begin() says.  The passphrase command has that many seconds.  With
	 * the settings that were taken before the last ones nothing is read until
	 * a line is opened, and this does not fail.
	 */
	bool		(*begin) (const char *text, int seconds, char why[TLS_WHY_SIZE]);

	/*
	 * Over that socket, which is being connected, to the server at that
	 * address (SERVERS_ADDRESS_SIZE), whose certificate must be for that host
	 * (SERVERS_HOST_MAX), a numeric address or a name.  With an error of the
	 * system's the line has failed already, and the socket may be -1.  NULL
	 * without memory: the socket is still the caller's.
	 */
	TlsLine    *(*open) (int socket, const char *address, const char *host,
						 bool is_numeric, int error);

	/* Sends what it can of what is left, and closes the socket. */
	void		(*close) (TlsLine *line);

	/*
	 * As send() and recv() of a socket that does not block.  What is peeked at
	 * is received again by the next call.
	 */
	ssize_t		(*send) (TlsLine *line, const void *bytes, size_t length);
	ssize_t		(*receive) (TlsLine *line, void *bytes, size_t size,
							bool is_peek);

	/*
	 * Go on as far as possible without a wait.  Result: which of these events
	 * its caller has already.  What the socket is to be polled for goes to
	 * awaited.
	 */
	short		(*before_poll) (TlsLine *line, short events, short *awaited);

	/* The same, once the socket has those revents. */
	short		(*after_poll) (TlsLine *line, short events, short revents);

	/* As tls_error() and tls_describe(). */
	const char *(*error) (const TlsLine *line);
	const char *(*describe) (const TlsLine *line, char *text, size_t size);
} TlsModule;

#endif							/* ZKLOCK_PROGRAM_TLS_MODULE_H */
