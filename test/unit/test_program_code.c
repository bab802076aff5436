/*-------------------------------------------------------------------------
 *
 * test_program_code.c
 *	  Unit test of src/program/program_code.c: what each of ZooKeeper's error
 *	  codes means, and that the table lacks none of them.
 *
 *-------------------------------------------------------------------------
 */
#include "program_request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tap.h"

/* The words of the library, which is not here. */
#define LIBRARYS "as the library says"

#define NELEMS(array) ((int) (sizeof(array) / sizeof((array)[0])))

const char *
zerror(int code)
{
	return LIBRARYS;
}

/* Has the table a row for it?  Others have these words. */
static bool
is_in_table(int code)
{
	return strncmp(code_text(code), "unknown error ", 14) != 0;
}

/*
 * All members of the header's enum, as the compiler reads it: their names begin
 * with a Z and have a value.
 */
static void
test_header(void)
{
	FILE	   *header = popen("echo '#include <zookeeper/zookeeper.h>' | ${CC:-cc} -E -P -", "r");
	char		line[1000];
	char		name[100];
	int			code;
	int			ncodes = 0;

	while (header != NULL && fgets(line, sizeof(line), header) != NULL)
		for (char *rest = line; rest != NULL && (rest = strstr(rest, " Z")) != NULL; rest++)
			if (sscanf(rest, " %99[A-Z] = %d", name, &code) == 2)
			{
				ok(is_in_table(code), "%s, %d, is in the table", name, code);
				ncodes++;
			}
	ok(header != NULL && pclose(header) == 0 && ncodes >= 30, "the header has %d codes", ncodes);
}

/* KeeperException.Code of ZooKeeper 3.9.5; later ones have no more. */
static void
test_servers(void)
{
	static const int codes[] = {
		0, -1, -2, -3, -4, -5, -6, -7, -8, -12, -13, -14, -100, -101, -102, -103,
		-108, -110, -111, -112, -113, -114, -115, -118, -119, -120, -121, -122,
		-123, -124, -125, -127
	};

	for (int i = 0; i < NELEMS(codes); i++)
		ok(is_in_table(codes[i]), "%d, of servers, is in the table", codes[i]);
}

static void
test_meanings(void)
{
	static const struct
	{
		int			code;
		ZkResult	result;
		ZkClientLoss loss;
		const char *words;
	}			cases[] = {
		{ZOK, ZK_OK, ZK_LOSS_NONE, LIBRARYS},
		{ZNONODE, ZK_NO_NODE, ZK_LOSS_NONE, LIBRARYS},
		{ZNODEEXISTS, ZK_NODE_EXISTS, ZK_LOSS_NONE, LIBRARYS},
		{ZBADVERSION, ZK_BAD_VERSION, ZK_LOSS_NONE, LIBRARYS},
		{ZNOAUTH, ZK_NO_AUTH, ZK_LOSS_NONE, LIBRARYS},
		{ZINVALIDACL, ZK_NO_AUTH, ZK_LOSS_NONE, LIBRARYS},
		{ZCONNECTIONLOSS, ZK_UNKNOWN_OUTCOME, ZK_LOSS_NONE, LIBRARYS},
		{ZOPERATIONTIMEOUT, ZK_UNKNOWN_OUTCOME, ZK_LOSS_NONE, LIBRARYS},
		{ZSYSTEMERROR, ZK_UNKNOWN_OUTCOME, ZK_LOSS_NONE, LIBRARYS},
		{ZRUNTIMEINCONSISTENCY, ZK_UNKNOWN_OUTCOME, ZK_LOSS_NONE, LIBRARYS},
		{-122, ZK_UNKNOWN_OUTCOME, ZK_LOSS_NONE, "request timed out"},
		{ZSESSIONEXPIRED, ZK_SESSION_LOST, ZK_LOSS_EXPIRED, LIBRARYS},
		{ZINVALIDSTATE, ZK_SESSION_LOST, ZK_LOSS_NONE, LIBRARYS},
		{ZCLOSING, ZK_SESSION_LOST, ZK_LOSS_NONE, LIBRARYS},
		{ZAUTHFAILED, ZK_SESSION_LOST, ZK_LOSS_AUTH, LIBRARYS},
		{-124, ZK_NOT_EXECUTED, ZK_LOSS_DEMAND, LIBRARYS},
		{-127, ZK_NOT_EXECUTED, ZK_LOSS_NONE, "operation was throttled due to high load"},
		{ZSESSIONMOVED, ZK_NOT_EXECUTED, ZK_LOSS_NONE, "session moved to another server"},
		{ZNOTREADONLY, ZK_NOT_EXECUTED, ZK_LOSS_NONE, "server is read-only"},
		{ZEPHEMERALONLOCALSESSION, ZK_LOCAL_SESSION, ZK_LOSS_NONE, LIBRARYS},
		{ZBADARGUMENTS, ZK_BAD_ARGUMENTS, ZK_LOSS_NONE, LIBRARYS},
		{ZUNIMPLEMENTED, ZK_UNIMPLEMENTED, ZK_LOSS_NONE, LIBRARYS},
		{-125, ZK_QUOTA_EXCEEDED, ZK_LOSS_NONE, "quota exceeded"},
		{ZMARSHALLINGERROR, ZK_NO_MEMORY, ZK_LOSS_NONE, LIBRARYS},
		{ZNOTEMPTY, ZK_FAILED, ZK_LOSS_NONE, LIBRARYS},
		{ZDATAINCONSISTENCY, ZK_FAILED, ZK_LOSS_NONE, LIBRARYS},
		{ZAPIERROR, ZK_FAILED, ZK_LOSS_NONE, LIBRARYS},
		{-199, ZK_FAILED, ZK_LOSS_NONE, "unknown error -199"},
		{1, ZK_FAILED, ZK_LOSS_NONE, "unknown error 1"},
	};

	for (int i = 0; i < NELEMS(cases); i++)
	{
		is_int(cases[i].result, code_result(cases[i].code), "code %d: the result", cases[i].code);
		is_int(cases[i].loss, code_loss(cases[i].code), "code %d: the end of the session", cases[i].code);
		is_str(cases[i].words, code_text(cases[i].code), "code %d: the words", cases[i].code);
	}
}

int
main(void)
{
	test_header();
	test_servers();
	test_meanings();
	return done_testing();
}
