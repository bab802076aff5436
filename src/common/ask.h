/*-------------------------------------------------------------------------
 *
 * ask.h
 *	  What the program says of servers that it was started to ask.
 *
 * A program whose first frame is a FRAME_ASK asks all servers of its list how
 * they are.  It sends each result as soon as it is known, in a FRAME_ANSWER,
 * and ends when the time is over.  The first answer is about the program
 * itself.  A server without an answer has not replied in time.
 *
 * libc only: neither PostgreSQL nor ZooKeeper.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ASK_H
#define ZKLOCK_ASK_H

#include "servers.h"

/* Most addresses of one name, and of all names, that are asked. */
#define ASK_ADDRESSES_MAX 4
#define ASK_ALL_MAX (SERVERS_MAX * ASK_ADDRESSES_MAX)

/*
 * The shortest request that is tried.  A server that closes the connection is
 * asked for half as much.
 */
#define ASK_REQUEST_MIN 4096

/* Most of a text that is passed on, in bytes. */
#define ASK_TEXT_MAX 2048

/* In brackets: what the text is.  Of two, the later one is the better. */
typedef enum AskVerdict
{
	ASK_PROGRAM,				/* no server: the program has started
								 * (its library's version) */
	ASK_UNRESOLVED,				/* the name has no address (why) */
	ASK_UNREACHABLE,			/* no connection (why) */
	ASK_NO_CONNECTION,			/* not in time, nor was it refused */
	ASK_CLOSED,					/* the server closed it without a reply */
	ASK_UNTRUSTED,				/* no TLS with it (why) */
	ASK_SILENT,					/* no reply in time */
	ASK_STRANGER,				/* no ZooKeeper (its reply) */
	ASK_IDLE,					/* a ZooKeeper that serves nobody: no quorum */
	ASK_SERVING,				/* (its reply to "srvr") */
	ASK_SETTINGS,				/* of one that serves (its reply to "conf") */
	ASK_ENCRYPTED,				/* over TLS (tls_describe()) */
	ASK_REQUESTS,				/* of one that serves: how long a request it
								 * takes (bytes) */
	ASK_FSYNC					/* of one that serves: how long fsync() has
								 * taken (what "mntr" says of it) */
} AskVerdict;

#endif							/* ZKLOCK_ASK_H */
