/*-------------------------------------------------------------------------
 *
 * given_name.h
 *
 * A name is spelled here, checked (42602), and asked for in zklock.names
 * (42501), before anything is asked of ZooKeeper.  All results are palloc'ed.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_GIVEN_NAME_H
#define ZKLOCK_GIVEN_NAME_H

#include "postgres.h"

#include "fmgr.h"
#include "name.h"

/* What a name is given for. */
typedef enum ZkGivenFor
{
	ZK_GIVEN_TO_USE,			/* zklock.names must allow it */
	ZK_GIVEN_TO_PROVE			/* or this session must hold the lock: to
								 * release it, show it, or prove it */
} ZkGivenFor;

/*
 * The name that is argument 0, in its one spelling.  A NULL raises 22004: a
 * strict function would let the caller go on.
 */
extern ZkName zklock_given_name(FunctionCallInfo fcinfo, ZkGivenFor what_for);

/* The same of a text. */
extern ZkName zklock_given_text(const char *text, ZkGivenFor what_for);

/*
 * The prefix that is argument 0 of a function that shows names: empty, or a
 * name that is allowed or has such names below it.
 */
extern char *zklock_given_prefix(FunctionCallInfo fcinfo);

#endif							/* ZKLOCK_GIVEN_NAME_H */
