/*-------------------------------------------------------------------------
 *
 * program_code.c
 *	  What each of ZooKeeper's codes means for a request and for the session.
 *
 * The one rule: every code of zookeeper.h and of the servers'
 * KeeperException.Code has a row; test/unit/test_program_code.c compares.  A
 * code that no row has is ZK_FAILED, of which answer.c knows that it may have
 * been done.
 *
 *-------------------------------------------------------------------------
 */
#include "program.h"

#include <stdio.h>
#include <string.h>

/* Codes that only later releases of the library have a name for, or none. */
#define UNKNOWN_SESSION (-12)
#define SSL_CONNECTION_ERROR (-15)
#define REQUEST_TIMEOUT (-122)
#define QUOTA_EXCEEDED (-125)
#define THROTTLED_OP (-127)

/*
 * What a code means for a request, and, if a server says it, for the session:
 * ZK_LOSS_NONE where it goes on.  words: for codes that zerror() of a release
 * that is supported does not know, or for which it has too many.
 */
typedef struct CodeMeaning
{
	int			code;
	ZkResult	result;
	ZkClientLoss loss;
	const char *words;			/* NULL: those of zerror() */
} CodeMeaning;

static const CodeMeaning meanings[] = {
	{ZOK, ZK_OK, ZK_LOSS_NONE, NULL},

	/* of servers: an answer to that request */
	{ZNONODE, ZK_NO_NODE, ZK_LOSS_NONE, NULL},
	{ZNODEEXISTS, ZK_NODE_EXISTS, ZK_LOSS_NONE, NULL},
	{ZBADVERSION, ZK_BAD_VERSION, ZK_LOSS_NONE, NULL},
	{ZNOAUTH, ZK_NO_AUTH, ZK_LOSS_NONE, NULL},
	{ZINVALIDACL, ZK_NO_AUTH, ZK_LOSS_NONE, NULL},
	{ZBADARGUMENTS, ZK_BAD_ARGUMENTS, ZK_LOSS_NONE, NULL},
	{ZUNIMPLEMENTED, ZK_UNIMPLEMENTED, ZK_LOSS_NONE, NULL},
	{QUOTA_EXCEEDED, ZK_QUOTA_EXCEEDED, ZK_LOSS_NONE, "quota exceeded"},
	{ZEPHEMERALONLOCALSESSION, ZK_LOCAL_SESSION, ZK_LOSS_NONE, NULL},
	{ZNOCHILDRENFOREPHEMERALS, ZK_FAILED, ZK_LOSS_NONE, NULL},
	{ZNOTEMPTY, ZK_FAILED, ZK_LOSS_NONE, NULL},
	{ZNOWATCHER, ZK_FAILED, ZK_LOSS_NONE, NULL},
	{ZAPIERROR, ZK_FAILED, ZK_LOSS_NONE, NULL},
	{ZDATAINCONSISTENCY, ZK_FAILED, ZK_LOSS_NONE, NULL},

	/* of servers: not executed, and it may be the next time */
	{THROTTLED_OP, ZK_NOT_EXECUTED, ZK_LOSS_NONE, "operation was throttled due to high load"},
	{ZSESSIONMOVED, ZK_NOT_EXECUTED, ZK_LOSS_NONE, "session moved to another server"},
	{ZNOTREADONLY, ZK_NOT_EXECUTED, ZK_LOSS_NONE, "server is read-only"},

	/* of servers: not executed, nor anything else in this session */
	{ZSESSIONCLOSEDREQUIRESASLAUTH, ZK_NOT_EXECUTED, ZK_LOSS_DEMAND, NULL},
	{ZAUTHFAILED, ZK_SESSION_LOST, ZK_LOSS_AUTH, NULL},
	{ZSESSIONEXPIRED, ZK_SESSION_LOST, ZK_LOSS_EXPIRED, NULL},

	/* of servers: to a reconfiguration, or never; a timeout tells nothing */
	{ZNEWCONFIGNOQUORUM, ZK_FAILED, ZK_LOSS_NONE, "no quorum of the new configuration"},
	{ZRECONFIGINPROGRESS, ZK_FAILED, ZK_LOSS_NONE, "another reconfiguration is in progress"},
	{ZRECONFIGDISABLED, ZK_FAILED, ZK_LOSS_NONE, "reconfiguration is disabled"},
	{UNKNOWN_SESSION, ZK_FAILED, ZK_LOSS_NONE, "unknown session"},
	{REQUEST_TIMEOUT, ZK_UNKNOWN_OUTCOME, ZK_LOSS_NONE, "request timed out"},

	/* of the library: the connection has gone with the request */
	{ZCONNECTIONLOSS, ZK_UNKNOWN_OUTCOME, ZK_LOSS_NONE, NULL},
	{ZOPERATIONTIMEOUT, ZK_UNKNOWN_OUTCOME, ZK_LOSS_NONE, NULL},	/* R8: it may be
																	 * executed yet */
	{ZSYSTEMERROR, ZK_UNKNOWN_OUTCOME, ZK_LOSS_NONE, NULL}, /* no socket for the
															 * next attempt */
	{ZRUNTIMEINCONSISTENCY, ZK_UNKNOWN_OUTCOME, ZK_LOSS_NONE, NULL},	/* a reply out of
																		 * order: it
																		 * hangs up */
	{SSL_CONNECTION_ERROR, ZK_UNKNOWN_OUTCOME, ZK_LOSS_NONE, "no TLS connection"},

	/* of the library: the session is over, as its state says, too */
	{ZINVALIDSTATE, ZK_SESSION_LOST, ZK_LOSS_NONE, NULL},
	{ZCLOSING, ZK_SESSION_LOST, ZK_LOSS_NONE, NULL},

	/* of the library: nothing was sent, for want of memory */
	{ZMARSHALLINGERROR, ZK_NO_MEMORY, ZK_LOSS_NONE, NULL},

	/* of the library: to calls that are not made */
	{ZINVALIDCALLBACK, ZK_FAILED, ZK_LOSS_NONE, NULL},
	{ZNOTHING, ZK_FAILED, ZK_LOSS_NONE, NULL}
};

static const CodeMeaning *find_code(int code);

ZkResult
code_result(int code)
{
	const CodeMeaning *meaning = find_code(code);

	return meaning != NULL ? meaning->result : ZK_FAILED;
}

ZkClientLoss
code_loss(int code)
{
	const CodeMeaning *meaning = find_code(code);

	return meaning != NULL ? meaning->loss : ZK_LOSS_NONE;
}

const char *
code_text(int code)
{
	static char unknown[40];
	const CodeMeaning *meaning = find_code(code);

	if (meaning != NULL && meaning->words != NULL)
		return meaning->words;
	if (meaning != NULL)
		return zerror(code);
	snprintf(unknown, sizeof(unknown), "unknown error %d", code);
	return unknown;
}

static const CodeMeaning *
find_code(int code)
{
	for (size_t i = 0; i < sizeof(meanings) / sizeof(meanings[0]); i++)
		if (meanings[i].code == code)
			return &meanings[i];
	return NULL;
}
