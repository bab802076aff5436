/*-------------------------------------------------------------------------
 *
 * probe.h
 *	  How the servers of a list are, asked without a session.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_PROBE_H
#define ZKLOCK_PROBE_H

#include "postgres.h"

#include "ask.h"

/* A number that is not known. */
#define PROBE_UNKNOWN (-1)

typedef enum ServerMode
{
	SERVER_MODE_UNKNOWN,
	SERVER_STANDALONE,
	SERVER_LEADER,
	SERVER_FOLLOWER,
	SERVER_OBSERVER,
	SERVER_READ_ONLY
} ServerMode;

/* What is known of one address of a server. */
typedef struct ServerReport
{
	int			server;			/* its place in the list, from 0 on */
	AskVerdict	verdict;		/* UNRESOLVED to SERVING */
	const char *address;		/* with its port; or "" */
	const char *said;			/* a line: what the verdict has in brackets; in
								 * nobody knows what encoding */

	/* Valid if it is SERVING. */
	char	   *release;
	ServerMode	mode;
	int			latency_us;		/* from connecting to the reply */

	/* By "conf" and "cons"; each may be PROBE_UNKNOWN. */
	int			tick_ms;
	int			sync_limit;		/* ticks; unknown of a standalone server, too */
	int			min_timeout_ms;
	int			max_timeout_ms;
	int			max_connections;	/* from one address; 0: any number */
	int			nconnections;	/* from ours, that of the question among them */
} ServerReport;

/* What came of it.  Texts are palloc'ed. */
typedef struct ZkProbe
{
	char	   *error;			/* why the program did not do what it is for,
								 * a sentence; NULL: it did */
	char	   *hint;			/* valid if error is not NULL */
	const char *library;		/* version of its ZooKeeper library */
	int			nreports;
	ServerReport *reports;		/* in the order of their first messages */
} ZkProbe;

/*
 * Ask the servers of that list, which must be a good one, by the program at
 * that path.  Takes at most PROBE_EXTRA_MS more than answer_ms.  Raises on
 * interrupts and without memory; no process is left behind, but by a backend
 * that is terminated: that one ends by itself.
 */
#define PROBE_EXTRA_MS 200
extern void zklock_probe_servers(const char *program, const char *servers,
								 int answer_ms, ZkProbe *probe);

#endif							/* ZKLOCK_PROBE_H */
