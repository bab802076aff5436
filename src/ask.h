/*-------------------------------------------------------------------------
 *
 * ask.h
 *	  What the program says of servers that it was started to ask.
 *
 * "zklock-session --ask SERVERS DEADLINE [TLS]" asks all servers of a list
 * how they are, until that protocol_now(), writes what it learns to descriptor
 * PROTOCOL_CHANNEL_FD as soon as it is known, and ends.  A message is text:
 * the number of the server in the list, an AskVerdict, an address with its
 * port, microseconds, and some text, with tabs between them and a NUL behind.
 * The first message is about the program itself.  Of a server without a
 * message nothing was heard in time.
 *
 * libc only: neither PostgreSQL nor ZooKeeper.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ASK_H
#define ZKLOCK_ASK_H

#include "protocol.h"
#include "servers.h"

/* The argument that asks for this, ahead of the two others. */
#define ASK_OPTION "--ask"

/* Most addresses of one name, and of all names, that are asked. */
#define ASK_ADDRESSES_MAX 4
#define ASK_ALL_MAX (SERVERS_MAX * ASK_ADDRESSES_MAX)

/* Most of a text that is passed on, and the longest message. */
#define ASK_TEXT_MAX 2048
#define ASK_MESSAGE_SIZE (ASK_TEXT_MAX + SERVERS_ADDRESS_SIZE + 64)

/* In brackets: what the text is.  Of two, the later one is the better. */
typedef enum AskVerdict
{
	ASK_PROGRAM,				/* no server: the program has started
								 * (PROTOCOL_VERSION, its library's version) */
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
	ASK_COUNTERS,				/* likewise (some of its reply to "mntr") */
	ASK_ENCRYPTED				/* over TLS (tls_describe()) */
} AskVerdict;

#endif							/* ZKLOCK_ASK_H */
