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

/* What came of it.  Texts are palloc'ed or the records'. */
typedef struct ZkProbe
{
	char	   *error;			/* why the program did not do what it is for,
								 * a sentence; NULL: it did */
	char	   *hint;			/* valid if error is not NULL */
	char		library[48];	/* version of its ZooKeeper library, or "" */
	int			nrecords;
	AskRecord  *records;		/* of servers, in the order of their answers;
								 * checked, texts are terminated */
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
