/*-------------------------------------------------------------------------
 *
 * ask.h
 *	  What the program says of servers that it was started to ask.
 *
 * "zklock-session --ask SERVERS DEADLINE" asks all servers of a list at once,
 * until that protocol_now(), how they are, writes a record for each address to descriptor
 * PROTOCOL_CHANNEL_FD as soon as it is known, and ends.  The first record is
 * about the program itself.  Of a server without a record
 * nothing was heard in time.  Each record is one write() that a pipe does not
 * tear; its first eight bytes stay as they are for ever.
 *
 * libc only: neither PostgreSQL nor ZooKeeper.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ASK_H
#define ZKLOCK_ASK_H

#include <stdint.h>

#include "protocol.h"
#include "servers.h"

/* The argument that asks for this, ahead of the two others. */
#define ASK_OPTION "--ask"

/* Most records: one for the program, and those of all addresses. */
#define ASK_RECORDS_MAX (1 + SERVERS_MAX * ASK_ADDRESSES_MAX)

/* Most addresses of one name that are asked. */
#define ASK_ADDRESSES_MAX 4

/* A number that is not known. */
#define ASK_UNKNOWN (-1)

typedef enum AskVerdict
{
	ASK_PROGRAM,				/* no server: the program has started */
	ASK_NOT_ASKED,				/* for reasons of our own; said: why */
	ASK_UNRESOLVED,				/* the name has no address; said: why */
	ASK_UNREACHABLE,			/* no connection; said: why */
	ASK_NO_CONNECTION,			/* not in time, nor was it refused */
	ASK_CLOSED,					/* closed without a word */
	ASK_SILENT,					/* not a word in time */
	ASK_STRANGER,				/* no ZooKeeper; said: what it said */
	ASK_IDLE,					/* a ZooKeeper that serves nobody: no quorum */
	ASK_SERVING
} AskVerdict;
#define ASK_LAST ASK_SERVING

typedef enum AskMode
{
	ASK_MODE_UNKNOWN,
	ASK_STANDALONE,
	ASK_LEADER,
	ASK_FOLLOWER,
	ASK_OBSERVER,
	ASK_READ_ONLY
} AskMode;
#define ASK_LAST_MODE ASK_READ_ONLY

typedef struct AskRecord
{
	uint32_t	length;			/* of the record */
	uint32_t	version;		/* PROTOCOL_VERSION */
	int32_t		server;			/* its place in the list, from 0 on */
	int32_t		verdict;		/* AskVerdict */
	int32_t		mode;			/* AskMode; valid if it is SERVING */
	int32_t		latency_us;		/* from connecting to the answer; likewise */

	/* By "conf" and "cons"; each may be ASK_UNKNOWN. */
	int32_t		tick_ms;
	int32_t		sync_limit;		/* ticks; unknown of a standalone server, too */
	int32_t		min_timeout_ms;
	int32_t		max_timeout_ms;
	int32_t		max_connections;	/* from one address; 0: any number */
	int32_t		nconnections;	/* from ours, that of the question among them */

	char		address[SERVERS_ADDRESS_SIZE];	/* with its port; or "" */
	char		release[48];	/* of the server, or of the program's library */
	char		said[160];		/* one line, in nobody knows what encoding */
} AskRecord;

#endif							/* ZKLOCK_ASK_H */
