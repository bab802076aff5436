/*-------------------------------------------------------------------------
 *
 * test_program_step.c
 *	  Unit test of src/program/program_step.c, and of src/program/program_request.c and
 *	  src/program/program_follow.c, with a library and clocks of the test's own
 *	  (fake_library.h): what requests send, what follows from each answer, and what is
 *	  watched.
 *
 * Needs no server.
 *
 *-------------------------------------------------------------------------
 */
#include "fake_library.h"

#include "recipe.h"

#define OWN "_c_11111111-1111-1111-1111-111111111111-lock-0000000007"
#define FOREIGN "_c_22222222-2222-2222-2222-222222222222-lock-0000000009"
#define NODE "/l/_c_11111111-1111-1111-1111-111111111111-lock-0000000007"
#define OTHER "/l/_c_22222222-2222-2222-2222-222222222222-lock-0000000009"
#define PREFIX "/l/_c_11111111-1111-1111-1111-111111111111-lock-"

/* The frame that was read last. */
static FrameTaken read_last;

static void begin_wait(uint64_t id, RequestKind kind, const char *path);

/* ---- requests and replies ---- */

/* With a fourth blob: two texts. */
static void
ask_move(FrameRequest wanted, const char *to, const char *from, const char *data,
		 const char *set, size_t set_length)
{
	FrameTaken	taken = {
		.frame = {
			.kind = FRAME_REQUEST,.id = 1,.u.request = wanted
		},
		.blobs = {to, from, data, set}
	};

	taken.frame.blob_lengths[0] = (uint32_t) strlen(to) + 1;
	taken.frame.blob_lengths[1] = (uint32_t) strlen(from) + 1;
	taken.frame.blob_lengths[2] = (uint32_t) strlen(data);
	taken.frame.blob_lengths[3] = (uint32_t) set_length;
	ok(command_take(session, &taken), "a move that sets a node is taken");
}

static void
ask_bytes(FrameRequest wanted, uint64_t id, const char *path, const char *other,
		  const char *data, size_t length)
{
	FrameTaken	taken = {
		.frame = {
			.kind = FRAME_REQUEST,.id = id,.u.request = wanted
		},
		.blobs = {path, other, data}
	};

	taken.frame.blob_lengths[0] = (uint32_t) strlen(path) + 1;
	taken.frame.blob_lengths[1] = other != NULL ? (uint32_t) strlen(other) + 1 : 0;
	taken.frame.blob_lengths[2] = (uint32_t) length;
	ok(command_take(session, &taken), "the request is taken");
}

static void
ask(FrameRequest wanted, uint64_t id, const char *path)
{
	ask_bytes(wanted, id, path, NULL, NULL, 0);
}

static void
send_frame(FrameKind kind, uint64_t id)
{
	const FrameTaken taken = {.frame = {.kind = kind,.id = id}};

	command_take(session, &taken);
}

static void
start(void)
{
	open_and_connect(THREE);
	tick_requests(boot_ms);
	count_frames(FRAME_STATUS);
}

/* The next frame that is no status. */
static FrameTaken
read_frame(void)
{
	/* one that is not urgent waits for another */
	session->is_out_urgent = session->out.start < session->out.end;
	do
		read_last = next_frame();
	while (read_last.frame.kind == FRAME_STATUS);
	return read_last;
}

static void
is_reply(uint64_t id, ZkResult result, const char *what)
{
	read_frame();
	is_int(FRAME_REPLY, read_last.frame.kind, "%s: there is a reply", what);
	is_int((long long) id, (long long) read_last.frame.id, "%s: to that request", what);
	is_int(result, read_last.frame.u.reply.result, "%s: the result", what);
}

static void
is_quiet(const char *what)
{
	is_int(0, read_frame().frame.kind, "%s: the backend is told nothing", what);
}

static void
is_call(const char *function, const char *path, const char *what)
{
	is_str(function, last_call()->what, "%s: what is sent", what);
	is_str(path, last_call()->path, "%s: of that node", what);
}

static int
count_finished(void)
{
	return (int) atomic_load(&session->page->nfinished);
}

/* Those that are not over, besides heartbeats and nudges. */
static int
count_requests(void)
{
	int			n = 0;

	for (Request *request = session->traffic.all; request != NULL; request = request->next)
		n += request->step != REQUEST_HEARTBEAT && request->step != REQUEST_NUDGE;
	return n;
}

/* The connection goes; the library answers all that is outstanding. */
static void
lose_connection(Call *outstanding, int count)
{
	disconnect_now(-4);
	for (int i = 0; i < count; i++)
		answer(&outstanding[i], ZCONNECTIONLOSS);
}

/* ---- the library's terms ---- */

/* What the leader answers counts for proofs. */
static void
test_led(void)
{
	static const RequestKind led[] = {
		REQUEST_CREATE, REQUEST_CHECK, REQUEST_SET, REQUEST_DELETE, REQUEST_LEAVE,
		REQUEST_DELETE_GUARDED, REQUEST_CREATE_GUARDED, REQUEST_MOVE, REQUEST_HEARTBEAT
	};

	for (RequestKind kind = REQUEST_CREATE; kind <= REQUEST_NUDGE; kind++)
	{
		bool		is_led = false;

		for (int i = 0; i < NELEMS(led); i++)
			is_led |= led[i] == kind;
		ok(library_is_led(kind) == is_led, "has the leader to answer a request of kind %d?", kind);
	}

	start();
	boot_ms += 500;
	ask((FrameRequest) {.kind = REQUEST_GET}, 1, "/l");
	is_int(1000000, session->link.contact.asked_leader_at, "a read is no question to the leader");
	boot_ms += 100;
	answer(last_call(), ZOK);
	is_int(0, session->link.contact.log.count, "the answer to a read is none of the leader's");
	is_int(0, session->link.pace.nunanswered, "the answer to a read counts as an answer");
	is_reply(1, ZK_OK, "a read is answered");
	is_int(0, read_last.frame.u.reply.proof.boot_ms, "a read is dated by the attempt to connect");
	session->link.contact.log.begun = (Moment) {999000, 999000 + wall_ahead};
	ask((FrameRequest) {.kind = REQUEST_CREATE}, 2, "/l");
	is_int(boot_ms, session->link.contact.asked_leader_at, "a write is a question to the leader");
	boot_ms += 100;
	answer_with(last_call(), ZOK, "/l", NULL, NULL);
	is_int(1, session->link.contact.log.count, "the answer to a write is the leader's");
	is_int(1000600, session->link.contact.log.sent[0].boot_ms, "the answer to a write counts from when it was sent");
	is_int(1000700, session->link.contact.log.answered[0].boot_ms, "the answer to a write has the time of the answer");
	is_reply(2, ZK_OK, "a write is answered");
	is_int(1000600 - 4000, read_last.frame.u.reply.proof.boot_ms, "the answer to a write dates a proof");

	/* what no server has said is no answer */
	start();
	ask((FrameRequest) {.kind = REQUEST_CREATE}, 1, "/l");
	session->link.pace.nunanswered = 3;
	lose_connection(last_call(), 1);
	is_int(3, session->link.pace.nunanswered, "a connection that is lost is no answer");
	is_int(0, session->link.contact.log.count, "a connection that is lost proves nothing");
	is_reply(1, ZK_UNKNOWN_OUTCOME, "a write whose connection is lost has an unknown outcome");
	start();
	ask((FrameRequest) {.kind = REQUEST_CREATE}, 1, "/l");
	answer(last_call(), ZNOTEMPTY);
	is_int(0, session->link.pace.nunanswered, "a refusal is an answer");
	is_reply(1, ZK_FAILED, "a write that is refused fails");
	start();
	ask((FrameRequest) {.kind = REQUEST_GET}, 1, "/l");
	answer(last_call(), ZOPERATIONTIMEOUT);
	is_reply(1, ZK_FAILED, "a read fails when a server says that it took too long");
}

static void
test_nodes(void)
{
	static const struct
	{
		ZkNodeKind	kind;
		int			flags;
		bool		is_shared;
	}			cases[] = {
		{ZK_PERSISTENT, 0, true}, {ZK_PERSISTENT_OWN, 0, false}, {ZK_CONTAINER, 4, true},
		{ZK_EPHEMERAL, 1, false}, {ZK_EPHEMERAL_SEQUENTIAL, 3, false},
	};

	for (int i = 0; i < NELEMS(cases); i++)
		for (int credentials = 0; credentials < 3; credentials++)
		{
			start();
			session->has_auth = credentials > 0;
			session->open.is_auth_private = credentials == 2;
			ask_bytes((FrameRequest) {.kind = REQUEST_CREATE,.node_kind = cases[i].kind}, 1, "/a", NULL, "xyz", 3);
			is_call("create", "/a", "a node is created");
			is_str("xyz", last_call()->data, "the node is created with its data");
			is_int(cases[i].flags, last_call()->mode, "the node is created with its flags");
			ok(last_call()->is_open == (credentials == 0 || (credentials == 2 && cases[i].is_shared)),
			   "kind %d, credentials %d: is it everybody's?", cases[i].kind, credentials);
		}
}

/* ---- one step ---- */

/* It was not found; its create may be executed late. */
static void
test_late(void)
{
	is_int(1, count_requests(), "a create whose node was not found is remembered");
	tick_requests(boot_ms + 1999);
	boot_ms += 1000;
	tick_requests(boot_ms);
	is_int(1, count_calls("list", "/l"), "the node is not looked for again over the same connection");
	disconnect_now(-4);
	tick_requests(boot_ms);
	is_int(1, count_calls("list", "/l"), "the node is not looked for without a connection");
	boot_ms += 1000;
	connect_now();
	tick_requests(boot_ms);
	is_int(2, count_calls("list", "/l"), "the node is looked for over the next connection");
	answer_list(last_of("list"), "x");
	is_int(1, (int) atomic_load(&session->page->nundone), "a create that is undone is told once");
	disconnect_now(-4);
	boot_ms += 1000;
	connect_now();
	tick_requests(boot_ms);
	answer_list(last_of("list"), OWN);
	is_call("delete", NODE, "a node that has come late is deleted");
	answer(last_call(), ZOK);
	is_int(0, count_requests(), "nothing is left of a create whose late node was deleted");

	start();
	ask((FrameRequest) {.kind = REQUEST_CREATE,.node_kind = ZK_EPHEMERAL_SEQUENTIAL}, 1, PREFIX);
	lose_connection(last_call(), 1);
	connect_now();
	send_frame(FRAME_WITHDRAW, 1);
	answer_list(last_call(), "x");
	disconnect_now(-4);
	boot_ms += 24 * 60 * 60 * 1000;
	session->lost_deadline = session->early_deadline = INT64_MAX;
	connect_now();
	tick_requests(boot_ms);
	is_int(2, count_calls("list", "/l"), "after a day it is looked for");
	answer_list(last_of("list"), "x");
	is_int(1, count_requests(), "a node not found after a day is looked for again");

	start();
	ask((FrameRequest) {.kind = REQUEST_CREATE,.node_kind = ZK_EPHEMERAL_SEQUENTIAL}, 1, PREFIX);
	answer(last_call(), -108);
	send_frame(FRAME_WITHDRAW, 1);
	answer_list(last_call(), "x");
	is_int(0, count_requests(), "a create that a server has answered is not remembered");

	start();
	ask((FrameRequest) {.kind = REQUEST_CREATE,.node_kind = ZK_EPHEMERAL_SEQUENTIAL}, 1, PREFIX);
	lose_connection(last_call(), 1);
	connect_now();
	send_frame(FRAME_WITHDRAW, 1);
	answer(last_call(), ZNOAUTH);
	is_int(1, session->status.nrefused, "a list that is refused");
	boot_ms += 150;
	tick_requests(boot_ms);
	answer_list(last_of("list"), "x");
	is_int(0, session->status.nrefused, "a list that is no longer refused does not count as refused");
	is_int(1, count_requests(), "a create whose list was refused once is remembered");

	/* no more of them than that */
	start();
	disconnect_now(-4);
	for (uint64_t id = 1; id <= 300; id++)
	{
		char		path[80];

		ncalls = 0;
		snprintf(path, sizeof(path), "/l/named%llu", (unsigned long long) id);
		ask((FrameRequest) {.kind = REQUEST_CREATE,.node_kind = ZK_EPHEMERAL}, id, path);
		answer(last_call(), ZCONNECTIONLOSS);
		send_frame(FRAME_FREE, id);
		while (read_frame().frame.kind != 0)
			;
	}
	is_int(256, session->traffic.nsearches, "no more than 256 nodes are looked for");
}

/* The next connection, and the look at a node that may come late. */
static void
look_again(const char *path, struct Stat *found)
{
	int			before = count_calls("get", path);
	Call	   *look = NULL;

	disconnect_now(-4);
	boot_ms += 1000;
	connect_now();
	tick_requests(boot_ms);
	is_int(before + 1, count_calls("get", path), "the node is looked for over the next connection");
	for (int i = 0; i < ncalls; i++)
		if (strcmp(calls[i].what, "get") == 0 && strcmp(calls[i].path, path) == 0)
			look = &calls[i];
	if (found != NULL)
		answer_with(look, ZOK, "", found, NULL);
	else
		answer(look, ZNONODE);
}

/* A create of a node whose name is known may be executed late, too. */
static void
test_late_names(void)
{
	struct Stat first = {.ephemeralOwner = 4711,.czxid = 33};
	struct Stat second = {.ephemeralOwner = 4711,.czxid = 34};
	struct Stat foreign = {.ephemeralOwner = 4712,.czxid = 35};

	/* one that is given up, and one that is made anew at the same path */
	start();
	ask((FrameRequest) {.kind = REQUEST_CREATE,.node_kind = ZK_EPHEMERAL}, 1, "/w/fact");
	lose_connection(last_call(), 1);
	is_reply(1, ZK_UNKNOWN_OUTCOME, "the outcome of a create without an answer is not known");
	send_frame(FRAME_FREE, 1);
	look_again("/w/fact", NULL);
	ask((FrameRequest) {.kind = REQUEST_CREATE,.node_kind = ZK_EPHEMERAL}, 2, "/w/fact");
	answer_with(last_call(), ZOK, "/w/fact", &second, NULL);
	is_reply(2, ZK_OK, "the node is made anew at the same path");
	send_frame(FRAME_FREE, 2);
	look_again("/w/fact", &second);
	is_int(0, count_calls("delete", "/w/fact"), "the node that was made anew stays");
	ask((FrameRequest) {.kind = REQUEST_DELETE,.version = -1}, 0, "/w/fact");
	answer(last_call(), ZOK);
	look_again("/w/fact", NULL);
	look_again("/w/fact", &foreign);
	is_int(1, count_calls("delete", "/w/fact"), "a node of another session is not deleted");
	look_again("/w/fact", &first);
	is_int(2, count_calls("delete", "/w/fact"), "the node that was made late is deleted");
	answer(last_of("delete"), ZOK);
	is_quiet("the delete of a node that was made late is not told of");
	look_again("/w/fact", NULL);
	is_int(0, session->status.nrefused, "the search for a node that was made late refuses nothing");

	/* without a lost answer nobody looks */
	start();
	ask((FrameRequest) {.kind = REQUEST_CREATE,.node_kind = ZK_EPHEMERAL}, 1, "/w/fact");
	answer_with(last_call(), ZOK, "/w/fact", &first, NULL);
	send_frame(FRAME_FREE, 1);
	disconnect_now(-4);
	connect_now();
	tick_requests(boot_ms);
	is_int(0, count_calls("get", "/w/fact"), "nothing is looked for when all was answered");

	/* one that was made in time, which the backend will find */
	start();
	ask((FrameRequest) {.kind = REQUEST_CREATE,.node_kind = ZK_EPHEMERAL}, 1, "/w/fact");
	lose_connection(last_call(), 1);
	is_reply(1, ZK_UNKNOWN_OUTCOME, "the outcome of another create without an answer is not known");
	send_frame(FRAME_FREE, 1);
	look_again("/w/fact", &first);
	look_again("/w/fact", &first);
	is_int(0, count_calls("delete", "/w/fact"), "a node made in time, which the backend will find, stays");
	look_again("/w/fact", &second);
	is_int(1, count_calls("delete", "/w/fact"), "a node made later at its path is deleted");
}

static void
test_create(void)
{
	const FrameRequest wanted = {.kind = REQUEST_CREATE,.node_kind = ZK_EPHEMERAL_SEQUENTIAL};
	struct Stat stat = {.czxid = 33,.ephemeralOwner = 4711,.ctime = 5,.mtime = 6,.version = 7,.numChildren = 8};
	Request    *held;

	start();
	ask(wanted, 1, PREFIX);
	answer_with(last_call(), ZOK, NODE, &stat, NULL);
	ok(!session->is_out_urgent, "the reply to a contender's create wakes nobody");
	is_reply(1, ZK_OK, "the create of a contender is answered");
	is_str(NODE, read_last.blobs[0], "the reply has the node of the contender");
	is_int(33, read_last.frame.u.reply.czxid, "the reply has the token of the contender");
	is_int(4711, read_last.frame.u.reply.ephemeral_owner, "the reply has the session of the node");
	is_int(5, read_last.frame.u.reply.ctime_ms, "the reply has the time of the create");
	is_int(6, read_last.frame.u.reply.mtime_ms, "the reply has the time of the last set");
	is_int(7, read_last.frame.u.reply.version, "the reply has the version of the node");
	is_int(8, read_last.frame.u.reply.nbelow, "the reply has the number of children");
	is_int(1, count_finished(), "an answered create counts as finished");
	held = request_find_watched(session, NODE);
	ok(held != NULL && held->id == 1, "an answered contender is held");
	is_int(boot_ms + 1000, held->due_at, "a place is due to be watched in a second");
	is_int(boot_ms + 1000, session->traffic.retry_at, "the loop wakes up to watch the place");

	start();
	ask(wanted, 1, PREFIX);
	answer_with(last_call(), ZOK, "/somewhere/else", &stat, NULL);
	is_reply(1, ZK_UNKNOWN_OUTCOME, "a node that the create cannot have made is an unknown outcome");
	ok(request_find_watched(session, PREFIX) == NULL, "a node that the create cannot have made is not held");

	start();
	ask((FrameRequest) {.kind = REQUEST_CREATE,.node_kind = ZK_EPHEMERAL}, 1, "/a");
	answer_with(last_call(), ZOK, "/a", &stat, NULL);
	ok(session->is_out_urgent, "the reply to any other create wakes the backend");
	is_int(INT64_MAX, session->traffic.retry_at, "a node of another kind is not to be watched");
	is_int(1, count_requests(), "an answered create can still be withdrawn");
	send_frame(FRAME_FREE, 1);
	is_int(0, count_requests(), "an answered create is forgotten when the backend frees it");

	/* somebody has made another one with its name */
	start();
	ask(wanted, 1, PREFIX);
	lose_connection(last_call(), 1);
	connect_now();
	send_frame(FRAME_WITHDRAW, 1);
	answer_list(last_call(), OWN " _c_11111111-1111-1111-1111-111111111111-lock-0000000008");
	is_int(1, count_calls("delete", NODE), "of two nodes that a withdrawn create may have made the first is deleted");
	is_int(1, count_calls("delete", PREFIX "0000000008"), "of two nodes that a withdrawn create may have made the second is deleted");

	/* withdrawn, before and after the answer */
	start();
	ask(wanted, 1, PREFIX);
	send_frame(FRAME_WITHDRAW, 1);
	answer_with(last_call(), ZOK, NODE, &stat, NULL);
	is_call("delete", NODE, "the node of a create withdrawn before its answer is deleted");
	is_int(-1, last_call()->version, "a contender's node is deleted whatever its version");
	is_int(0, (int) atomic_load(&session->page->nundone), "a withdrawn create is not undone before the answer to the delete");
	answer(last_call(), ZOK);
	is_int(1, (int) atomic_load(&session->page->nundone), "a withdrawn create is undone with the answer to the delete");
	is_int(0, count_requests(), "nothing is left of a create that is undone");
	is_int(FRAME_WAKE, read_frame().frame.kind, "the backend is woken up when a create is undone");

	start();
	ask(wanted, 1, PREFIX);
	send_frame(FRAME_WITHDRAW, 1);
	answer(last_call(), ZNOAUTH);
	is_int(1, ncalls, "nothing is looked for of a withdrawn create that is refused");
	is_int(1, (int) atomic_load(&session->page->nundone), "a withdrawn create that is refused is undone");

	/* its reply is lost, and it is withdrawn: it is looked for */
	start();
	ask(wanted, 1, PREFIX);
	lose_connection(last_call(), 1);
	is_reply(1, ZK_UNKNOWN_OUTCOME, "a create whose reply is lost has an unknown outcome");
	connect_now();
	send_frame(FRAME_WITHDRAW, 1);
	is_call("list", "/l", "a node that may be there is looked for");
	is_str("multi", calls[ncalls - 2].what, "a write goes ahead of the look for a node");
	is_str("/l", calls[ncalls - 2].path, "the write ahead of the look names the same queue");
	ok((void *) calls[ncalls - 2].request == session, "no request waits for the write ahead of the look");
	answer(&calls[ncalls - 2], ZNONODE);
	answer_list(last_call(), "x _c_11111111-1111-1111-1111-111111111111-lock-0000000007");
	is_call("delete", NODE, "a node that is found is deleted");
	answer(last_call(), ZOK);
	is_int(1, (int) atomic_load(&session->page->nundone), "a create whose node was found and deleted is undone");

	start();
	ask(wanted, 1, PREFIX);
	lose_connection(last_call(), 1);
	connect_now();
	send_frame(FRAME_WITHDRAW, 1);
	answer_list(last_call(), "x y");
	is_int(1, (int) atomic_load(&session->page->nundone), "a create whose node is not there is undone");
	test_late();
}

static void
test_check(void)
{
	static const struct
	{
		int			check_rc;
		int			look_rc;
		int64_t		czxid;		/* of the node; 0: no answer */
		ZkResult	expected;
		const char *what;
	}			cases[] = {
		{ZOK, ZOK, 33, ZK_OK, "the node is there"},
		{ZOK, ZOK, 34, ZK_NO_NODE, "another one of that name"},
		{ZOK, ZOK, 0, ZK_NO_NODE, "no answer"},
		{ZOK, ZNONODE, 0, ZK_NO_NODE, "it went in between"},
		{ZOK, ZCONNECTIONLOSS, 0, ZK_FAILED, "the look is refused"},
		{ZNONODE, ZOK, 33, ZK_NO_NODE, "the check decides"},
	};

	for (int i = 0; i < NELEMS(cases); i++)
	{
		struct Stat stat = {.czxid = cases[i].czxid};

		start();
		ask((FrameRequest) {.kind = REQUEST_CHECK,.czxid = 33}, 1, NODE);
		is_int(2, ncalls, "a check of a token makes a check and a look");
		is_int('c', calls[0].ops[0].type, "the check goes ahead of the look");
		is_int(-1, calls[0].ops[0].check_op.version, "the node is checked whatever its version");
		is_str("exists", calls[1].what, "the look follows the check");
		is_str(NODE, calls[1].path, "the look is at the same node");
		answer(&calls[0], cases[i].check_rc);
		is_quiet("nothing is told before the look is answered");
		if (cases[i].look_rc == ZCONNECTIONLOSS)
			disconnect_now(-4);
		answer_with(&calls[1], cases[i].look_rc, NULL, cases[i].czxid != 0 ? &stat : NULL, NULL);
		is_reply(1, cases[i].look_rc == ZCONNECTIONLOSS ? ZK_UNKNOWN_OUTCOME : cases[i].expected, cases[i].what);
		is_int(0, session->traffic.npending, "nothing is outstanding after a check");
	}

	start();
	ask((FrameRequest) {.kind = REQUEST_CHECK}, 1, NODE);
	is_int(1, ncalls, "any node will do: there is no look");
	answer(&calls[0], ZOK);
	is_reply(1, ZK_OK, "a check alone");

	start();
	library.refused = "exists";
	ask((FrameRequest) {.kind = REQUEST_CHECK,.czxid = 33}, 1, NODE);
	answer(&calls[0], ZOK);
	is_reply(1, ZK_UNKNOWN_OUTCOME, "the look could not be sent");
	is_int(0, session->traffic.npending, "nothing is outstanding");
}

/* May everybody create or delete something there? */
static void
test_acl(void)
{
	static const struct
	{
		bool		expected;
		int			perms;
		char	   *scheme;
		char	   *id;
	}			cases[] = {
		{true, 31, "world", "anyone"}, {true, 2, "world", "anyone"}, {true, 4, "world", "anyone"}, {true, 8, "world", "anyone"},
		{true, 16, "world", "anyone"}, {false, 1, "world", "anyone"}, {false, 31, "digest", "anyone"},
		{false, 31, "world", "else"}, {false, 31, NULL, "anyone"}, {false, 31, "world", NULL},
	};

	for (int i = 0; i < NELEMS(cases); i++)
	{
		struct ACL	entries[] = {
			{1, {"world", "anyone"}}, {cases[i].perms, {cases[i].scheme, cases[i].id}}
		};
		struct ACL_vector acl = {2, entries};

		start();
		ask((FrameRequest) {.kind = REQUEST_GET_ACL}, 1, "/l");
		is_call("get_acl", "/l", "the ACL of the node is asked for");
		last_call()->done.acl(ZOK, &acl, NULL, last_call()->request);
		is_reply(1, ZK_OK, "an ACL is answered");
		is_int(cases[i].expected, read_last.frame.u.reply.is_open, "permissions %d of %s", cases[i].perms,
			   cases[i].scheme != NULL ? cases[i].scheme : "nobody");
	}
	start();
	ask((FrameRequest) {.kind = REQUEST_GET_ACL}, 1, "/l");
	last_call()->done.acl(ZOK, &(struct ACL_vector) {2, NULL}, NULL, last_call()->request);
	is_reply(1, ZK_OK, "an ACL with a length that is a lie is answered");
	is_int(0, read_last.frame.u.reply.is_open, "an ACL with a length that is a lie is not open");
	is_int(0, read_last.frame.u.reply.nchildren, "an ACL with a length that is a lie names nobody");

	/* who may do more than read */
	for (int bit = 0; bit < 5; bit++)
	{
		struct ACL	entries[] = {
			{1, {"world", "anyone"}}, {1 << bit, {"digest", "a:b="}}, {1 << bit | 1, {NULL, NULL}}
		};

		start();
		ask((FrameRequest) {.kind = REQUEST_GET_ACL}, 1, "/l");
		last_call()->done.acl(ZOK, &(struct ACL_vector) {3, entries}, NULL, last_call()->request);
		is_reply(1, ZK_OK, "an ACL is answered with those who may write");
		is_int(bit == 0 ? 0 : 2, read_last.frame.u.reply.nchildren, "who may do more than read, with permission %d", 1 << bit);
		ok(bit == 0 || (read_last.frame.blob_lengths[2] == 14 && memcmp(read_last.blobs[2], "digest:a:b=\0:", 14) == 0),
		   "they are named by scheme and id, with permission %d", 1 << bit);
	}
}

static void
test_reads(void)
{
	struct Stat stat = {.czxid = 3,.mtime = 9};
	FrameTaken	frame;

	start();
	ask((FrameRequest) {.kind = REQUEST_LIST}, 1, "/l");
	ok(!last_call()->is_watched, "a list without a watch");
	answer_list(last_call(), "one two three");
	is_reply(1, ZK_OK, "a list is answered");
	is_int(3, read_last.frame.u.reply.nchildren, "a list has the number of its children");
	ok(read_last.frame.blob_lengths[2] == 14 && memcmp(read_last.blobs[2], "one\0two\0three", 14) == 0, "a list has the names of its children");
	is_int(0, count_requests(), "nothing is left of a list that was answered");

	/* what a server can lie about */
	for (int i = 0; i < 4; i++)
	{
		char	   *names[] = {"a", NULL};
		struct String_vector lies[] = {{-5, names}, {5, NULL}, {2, names}};

		start();
		ask((FrameRequest) {.kind = REQUEST_LIST}, 1, "/l");
		answer_with(last_call(), ZOK, NULL, NULL, i < 3 ? &lies[i] : NULL);
		is_reply(1, ZK_OK, "a list with a length that is a lie is answered");
		is_int(i == 2 ? 2 : 0, read_last.frame.u.reply.nchildren, "a list has the names that there are");
	}

	start();
	ask((FrameRequest) {.kind = REQUEST_GET}, 1, "/l");
	answer_with(last_call(), ZOK, "data", &stat, NULL);
	frame = read_frame();
	ok(frame.frame.blob_lengths[1] == 4 && memcmp(frame.blobs[1], "data", 4) == 0, "a get has the data of the node");
	is_int(3, frame.frame.u.reply.czxid, "a get has the token of the node");
	is_int(9, frame.frame.u.reply.mtime_ms, "a get has the time of the last set");
	start();
	ask((FrameRequest) {.kind = REQUEST_GET}, 1, "/l");
	answer_with(last_call(), ZNONODE, "data", &stat, NULL);
	is_reply(1, ZK_NO_NODE, "a get of a node that is not there is answered");
	is_str("no node", read_last.blobs[0], "the library's word for no node is told");
	ok(read_last.blobs[1] == NULL && read_last.frame.u.reply.czxid == 0, "a node that is not there has no data and no token");

	start();
	ask((FrameRequest) {.kind = REQUEST_SET,.version = 5}, 1, "/l");
	is_str("", last_call()->data, "a set without data sets empty data");
	is_int(5, last_call()->version, "a set has the version that was asked for");
	answer_with(last_call(), ZBADVERSION, NULL, NULL, NULL);
	is_reply(1, ZK_BAD_VERSION, "a set of another version is answered");
	is_int(1, ncalls, "a set of another version is not repeated");
}

/* What nobody waits for is repeated until it is done. */
static void
test_repeated(void)
{
	int64_t		due;

	start();
	ask((FrameRequest) {.kind = REQUEST_DELETE,.version = -1}, 0, NODE);
	answer(last_call(), ZNONODE);
	is_quiet("a delete of a node that is not there is not answered");
	is_int(1, count_finished(), "a delete of a node that is not there is done");
	is_int(0, count_requests(), "nothing is left of a delete of a node that is not there");

	/* the connection goes before the answer, and comes back */
	start();
	ask((FrameRequest) {.kind = REQUEST_DELETE,.version = -1}, 0, NODE);
	disconnect_now(-4);
	answer(last_call(), ZCONNECTIONLOSS);
	is_int(2, ncalls, "a delete is sent again with the next connection");
	is_call("delete", NODE, "the request sent again is the delete");
	is_int(0, count_finished(), "a delete without an answer is not done");
	connect_now();
	answer(last_call(), ZOK);
	is_int(1, count_finished(), "the repeated delete is done");

	/* nothing goes out of a session that is lost */
	start();
	ask((FrameRequest) {.kind = REQUEST_DELETE,.version = -1}, 0, NODE);
	session_end(session, ZK_LOSS_UNANSWERED);
	disconnect_now(-4);
	answer(last_call(), ZCONNECTIONLOSS);
	is_int(1, ncalls, "lost: it is not repeated");
	is_int(1, count_finished(), "a delete of a lost session is over");
	is_int(0, count_requests(), "nothing is left of a delete of a lost session");

	/* the library is connected, and has not said so yet */
	start();
	ask((FrameRequest) {.kind = REQUEST_DELETE,.version = -1}, 0, NODE);
	disconnect_now(-4);
	library.state = ZOO_CONNECTED_STATE;
	answer(last_call(), ZCONNECTIONLOSS);
	is_int(0, session->status.nrefused, "the end of the connection before is no refusal");

	/* a refusal that ends */
	start();
	ask((FrameRequest) {.kind = REQUEST_DELETE,.version = -1}, 0, "/a/b");
	answer(last_call(), ZNOTEMPTY);
	is_int(0, count_calls("set", NULL), "no lock is handed over by a node that is none's");
	boot_ms += 100;
	tick_requests(boot_ms);
	session->is_status_news = false;
	answer(last_call(), ZOK);
	is_int(0, session->status.nrefused, "a delete that was done after a refusal counts as refused no more");
	ok(session->is_status_news, "the end of the refusal is told");
	is_int(1, count_finished(), "a delete that was repeated counts as finished once");

	/* a server refuses it */
	start();
	ask((FrameRequest) {.kind = REQUEST_DELETE,.version = -1}, 0, NODE);
	answer(last_call(), ZNOTEMPTY);
	is_int(1, session->status.nrefused, "a refusal is told");
	ok(strstr(session->last_error, NODE "\" cannot be deleted") != NULL, "the last error says that the node cannot be deleted");
	is_int(1, count_calls("set", NODE), "the lock is handed over");
	due = boot_ms + 100;
	for (int i = 0; i < 7; i++)
	{
		int			delay = i < 5 ? 100 << i : 3000;

		is_int(due, session->traffic.retry_at, "attempt %d: when it is due", i + 1);
		tick_requests(due - 1);
		is_int(i + 1, count_calls("delete", NODE), "attempt %d: not sent before it is due", i + 1);
		boot_ms = due;
		session->link.contact.asked_leader_at = boot_ms;
		tick_requests(boot_ms);
		is_int(i + 2, count_calls("delete", NODE), "attempt %d: sent when it is due", i + 1);
		atomic_store(&session->page->is_in_use, 1);
		answer(last_of("delete"), ZNOTEMPTY);
		delay = delay * 2 > 3000 ? 3000 : delay * 2;
		due = boot_ms + delay;
	}
	is_int(1, session->status.nrefused, "a delete refused many times counts as refused once");

	/* and nothing is held: the session has to end, for others wait */
	atomic_store(&session->page->is_in_use, 0);
	boot_ms = due;
	while (boot_ms < 1000000 + 12000)
		boot_ms += 1000;
	session->link.contact.asked_leader_at = boot_ms;
	tick_requests(boot_ms);
	answer(last_of("delete"), ZNOTEMPTY);
	is_int(ZK_LOSS_REFUSED, session->status.loss, "nothing is held: the session ends");
}

/* When does a session end, since what blocks others cannot be deleted? */
static void
test_refused(void)
{
	static const struct
	{
		const char *path;
		int			kind;
		int			after_ms;
		bool		is_in_use;	/* as the page says */
		bool		is_used;	/* a call, or a transaction, uses the session */
		bool		is_lost;
		const char *what;
	}			cases[] = {
		{NODE, REQUEST_DELETE, 12000, false, false, true, "nothing is held"},
		{NODE, REQUEST_LEAVE, 12000, false, false, true, "a place that is left"},
		{NODE, REQUEST_DELETE, 11999, false, false, false, "not for the session timeout"},
		{NODE, REQUEST_DELETE, 12000, true, false, false, "locks are held"},
		{NODE, REQUEST_DELETE, 12000, false, true, false, "a call is under way"},
		{"/a/b", REQUEST_DELETE, 12000, false, false, false, "it is in nobody's way"},
		{NODE, REQUEST_SET, 12000, false, false, false, "it is only set"},
	};

	for (int i = 0; i < NELEMS(cases); i++)
	{
		const char *function = cases[i].kind == REQUEST_SET ? "set" : "delete";

		start();
		if (cases[i].kind == REQUEST_LEAVE)
			ask_bytes((FrameRequest) {.kind = REQUEST_LEAVE,.version = -1}, 0, cases[i].path, NULL, "name", 5);
		else
			ask((FrameRequest) {.kind = cases[i].kind,.version = -1}, 0, cases[i].path);
		answer(last_of(function), ZNOTEMPTY);
		is_int(strcmp(cases[i].path, NODE) == 0, count_calls("set", NODE), "%s: others are told once", cases[i].what);
		if (cases[i].is_used)
			ok(use_begin(session->page), "%s: a use begins", cases[i].what);
		atomic_store(&session->page->is_in_use, cases[i].is_in_use);
		boot_ms += cases[i].after_ms;
		session->link.contact.asked_leader_at = boot_ms;
		tick_requests(boot_ms);
		answer(last_of(function), ZNOTEMPTY);
		is_int(cases[i].is_lost ? ZK_LOSS_REFUSED : ZK_LOSS_NONE, session->status.loss, "%s", cases[i].what);
		ok(use_begin(session->page) != cases[i].is_lost, "%s: does a use begin?", cases[i].what);
		if (!cases[i].is_used)
			continue;

		use_end(session->page);
		boot_ms += 3000;
		session->link.contact.asked_leader_at = boot_ms;
		tick_requests(boot_ms);
		answer(last_of(function), ZNOTEMPTY);
		is_int(ZK_LOSS_REFUSED, session->status.loss, "%s: the session ends with the next refusal behind it", cases[i].what);
	}

	start();
	ask((FrameRequest) {.kind = REQUEST_DELETE,.version = -1}, 0, NODE);
	session_end(session, ZK_LOSS_EXPIRED);
	answer(last_call(), ZNOTEMPTY);
	is_int(1, ncalls, "a session that is lost asks for nothing more");
	is_int(0, session->status.nrefused, "a session that is lost counts no refusals");

	/* a create that was withdrawn */
	start();
	ask((FrameRequest) {.kind = REQUEST_CREATE,.node_kind = ZK_EPHEMERAL_SEQUENTIAL}, 1, PREFIX);
	send_frame(FRAME_WITHDRAW, 1);
	answer_with(last_call(), ZOK, NODE, NULL, NULL);
	answer(last_call(), ZNOTEMPTY);
	is_int(1, session->status.nrefused, "the delete of a withdrawn create is refused");
	is_int(1, (int) atomic_load(&session->page->nundone), "a withdrawn create whose delete is refused counts as undone");
	boot_ms += 100;
	tick_requests(boot_ms);
	is_int(2, count_calls("delete", NODE), "the refused delete of a withdrawn create is repeated");
	answer(last_of("delete"), ZOK);
	is_int(1, (int) atomic_load(&session->page->nundone), "a withdrawn create counts as undone once");
	is_int(0, count_requests() - count_calls("set", NODE), "nothing is left of a withdrawn create but the handed over lock");

	start();
	send_frame(FRAME_WITHDRAW, 77);
	is_int(1, (int) atomic_load(&session->page->nundone), "an unknown request that is withdrawn counts as undone");
}

/* A place that is left, and was gone before. */
static void
leave(FrameRequest request)
{
	request.kind = REQUEST_LEAVE;
	request.version = -1;
	start();
	ask_bytes(request, 0, NODE, NULL, "name", 5);
}

static void
test_leave(void)
{
	leave((FrameRequest) {.czxid = 33});
	is_call("delete", NODE, "a place that is left is deleted");
	answer(last_call(), ZOK);
	is_quiet("a place that was there is not told of");
	is_int(1, ncalls, "a place that was there takes one request");
	is_int(1, count_finished(), "the leave of a place that was there is finished");

	leave((FrameRequest) {.czxid = 33});
	answer(last_call(), ZNONODE);
	is_reply(0, ZK_OK, "a place that had gone before is told to the backend");
	is_str(NODE, read_last.blobs[0], "the report of a place that had gone names its node");
	is_str("name", read_last.blobs[2], "the report of a place that had gone names its lock");
	is_int(33, read_last.frame.u.reply.czxid, "the report of a place that had gone has its token");
	is_int(1, ncalls, "a place that had gone takes one request");
	is_int(0, count_requests(), "nothing is left of a place that had gone");

	leave((FrameRequest) {0});
	lose_connection(last_call(), 1);
	connect_now();
	answer(last_call(), ZNONODE);
	is_quiet("a place that our own lost delete may have deleted is not told of");
	is_int(0, count_requests(), "nothing is left of a place that our own delete may have deleted");

	/* refused: it is repeated, and what it finds then is told */
	for (int is_there = 0; is_there < 2; is_there++)
	{
		leave((FrameRequest) {.czxid = 33});
		answer(last_call(), ZNOTEMPTY);
		is_quiet("a leave that is refused is not told of");
		is_int(1, session->status.nrefused, "a leave that is refused counts as refused");
		boot_ms += 100;
		tick_requests(boot_ms);
		is_int(2, count_calls("delete", NODE), "the delete of a refused leave is repeated");
		answer(last_of("delete"), is_there ? ZOK : ZNONODE);
		if (is_there)
			is_quiet("a place that was there when its delete was repeated is not told of");
		else
			is_reply(0, ZK_OK, "a place that had gone when its delete was repeated is told of");
		is_int(0, session->status.nrefused, "a leave that is done does not count as refused");
	}

	leave((FrameRequest) {.is_awaited = 1});
	answer(last_call(), ZOK);
	is_int(1, (int) atomic_load(&session->page->nundone), "a leave that is awaited is counted");
}

/* Transactions of several operations. */
static void
test_transactions(void)
{
	start();
	ask_bytes((FrameRequest) {.kind = REQUEST_CREATE_GUARDED,.node_kind = ZK_PERSISTENT_OWN,.version = 4}, 1, "/a/b", "/guard", "xyz", 3);
	is_int(2, last_call()->nops, "a guarded create has a create and a guard");
	is_int('c', last_call()->ops[1].type, "the guard of a create is checked");
	is_int(4, last_call()->ops[1].check_op.version, "the guard of a create is checked for the version");
	answer(last_call(), ZBADVERSION);
	is_reply(1, ZK_BAD_VERSION, "a guard of another version is told");
	is_int(0, count_requests(), "nothing is left of a guarded create");

	start();
	ask_bytes((FrameRequest) {.kind = REQUEST_DELETE_GUARDED,.version = 4,.node_version = 2}, 1, "/guard", NULL, "/a/b\0/a/c", 10);
	is_int(3, last_call()->nops, "a guarded delete has a guard and two deletes");
	is_int('s', last_call()->ops[0].type, "the guard of a delete is set");
	is_int(4, last_call()->ops[0].check_op.version, "the guard of a delete is set if it has the version");
	is_int('d', last_call()->ops[1].type, "a guarded delete deletes the first node");
	is_int('d', last_call()->ops[2].type, "a guarded delete deletes the second node");
	is_int(2, last_call()->ops[2].check_op.version, "the second node is deleted if it has the version");

	answer(last_call(), ZBADVERSION);
	is_reply(1, ZK_BAD_VERSION, "a guard of another version refuses the deletes");

	start();
	ask_bytes((FrameRequest) {.kind = REQUEST_MOVE,.node_kind = ZK_EPHEMERAL_SEQUENTIAL}, 1, "/a/new", "/a/old", "x", 1);
	is_int(2, last_call()->nops, "a move has two operations");
	is_int('d', last_call()->ops[0].type, "a move deletes the old node first");
	is_str("/a/old", last_call()->path, "a move deletes the node it names");
	is_int('+', last_call()->ops[1].type, "a move makes the new node second");
	is_int(3, last_call()->ops[1].check_op.version, "a move makes the new node with its flags");

	start();
	ask_move((FrameRequest) {.kind = REQUEST_MOVE,.node_kind = ZK_PERSISTENT}, "/a/new", "/a/old", "x", "/names/a\0name", 14);
	is_int(3, last_call()->nops, "a move that sets a node has three operations");
	is_int('d', last_call()->ops[0].type, "a move that sets a node deletes the old node first");
	is_int('+', last_call()->ops[1].type, "a move that sets a node makes the new node second");
	is_int(0, last_call()->ops[1].check_op.version, "a move makes a lasting node without flags");
	is_int('s', last_call()->ops[2].type, "a move sets a node third");
	is_int(-1, last_call()->ops[2].check_op.version, "a move sets a node whatever its version");
	answer(last_call(), ZNONODE);
	is_reply(1, ZK_NO_NODE, "a move does not say which node is missing");

	for (int i = 0; i < 7; i++)
	{
		static const char *bad[] = {"a", "/", "/a/", "/a//b", "/./a", "/a/..", "/a\x1F"};
		char		set[16];

		snprintf(set, sizeof(set), "%s%cx", bad[i], 0);
		start();
		ask_move((FrameRequest) {.kind = REQUEST_MOVE}, "/a", "/b", "x", set, strlen(bad[i]) + 3);
		is_int(0, ncalls, "a move with the path \"%s\" to be set is not sent", bad[i]);
		is_reply(1, ZK_BAD_ARGUMENTS, "a move refuses a path to be set that makes no sense");

		start();
		ask_bytes((FrameRequest) {.kind = REQUEST_DELETE_GUARDED}, 1, "/guard", NULL, bad[i], strlen(bad[i]) + 1);
		is_int(0, ncalls, "not with the path \"%s\"", bad[i]);
		is_reply(1, ZK_BAD_ARGUMENTS, "a guarded delete refuses a path that makes no sense");
		start();
		ask_bytes((FrameRequest) {.kind = REQUEST_MOVE}, 1, "/a", bad[i], NULL, 0);
		is_reply(1, ZK_BAD_ARGUMENTS, "a move refuses an old path that makes no sense");
		start();
		ask_bytes((FrameRequest) {.kind = REQUEST_MOVE}, 1, bad[i], "/a", NULL, 0);
		is_reply(1, ZK_BAD_ARGUMENTS, "a move refuses a new path that makes no sense");
	}
	start();
	ask_bytes((FrameRequest) {.kind = REQUEST_MOVE}, 1, "/...", "/a/.b/..c", NULL, 0);
	is_int(1, ncalls, "a name may begin with dots");
	start();
	ask_bytes((FrameRequest) {.kind = REQUEST_MOVE}, 1, "/a", "/\xC3\xA9/\x7F ", NULL, 0);
	is_int(1, ncalls, "a name may have letters beyond ASCII");
	start();
	library.is_over = true;
	ask_bytes((FrameRequest) {.kind = REQUEST_MOVE}, 1, "/a", "/b", NULL, 0);
	is_int(0, ncalls, "nothing is asked in a session that is over");
	is_reply(1, ZK_SESSION_LOST, "a request in a session that is over says so");
}

/* A root is made together with its child: both or none. */
static void
test_root(void)
{
	for (int credentials = 0; credentials < 3; credentials++)
	{
		start();
		session->has_auth = credentials > 0;
		session->open.is_auth_private = credentials == 2;
		ask_bytes((FrameRequest) {.kind = REQUEST_CREATE,.node_kind = ZK_ROOT}, 1, "/a/b", NULL, "xyz", 3);
		is_call("multi", "/a/b", "a root is made first");
		is_int(2, last_call()->nops, "a root has one child");
		is_int('+', last_call()->ops[0].type, "a root is created");
		is_int('+', last_call()->ops[1].type, "the child of a root is created");
		is_str("/a/b/.root", last_call()->last_path, "the child of a root has a reserved name");
		is_int(0, last_call()->ops[0].create_op.flags, "a root lasts");
		is_int(0, last_call()->ops[1].create_op.flags, "the child of a root lasts");
		for (int i = 0; i < 2; i++)
			ok((last_call()->ops[i].create_op.acl == &ZOO_OPEN_ACL_UNSAFE) == (credentials != 1),
			   "node %d of a root, credentials %d: is it everybody's?", i, credentials);
		answer(last_call(), ZOK);
		is_reply(1, ZK_OK, "a root that is made is told");
		is_str("/a/b", read_last.blobs[0], "the reply has the path of the root");
		send_frame(FRAME_FREE, 1);
		is_int(0, count_requests(), "nothing is left of a root that was made");
	}

	start();
	ask((FrameRequest) {.kind = REQUEST_CREATE,.node_kind = ZK_ROOT}, 1, "/a");
	answer(last_call(), ZNODEEXISTS);
	is_reply(1, ZK_NODE_EXISTS, "a root that is there is told");
	is_int(1, ncalls, "a root that is there is not made again");

	start();
	ask((FrameRequest) {.kind = REQUEST_CREATE,.node_kind = ZK_ROOT}, 1, "/a");
	lose_connection(last_call(), 1);
	connect_now();
	is_reply(1, ZK_UNKNOWN_OUTCOME, "a root without an answer is told as unknown");
	send_frame(FRAME_FREE, 1);
	is_int(0, count_requests(), "a root that comes late does no harm, and is not looked for");

	start();
	ask((FrameRequest) {.kind = REQUEST_CREATE,.node_kind = ZK_ROOT}, 1, "/a//b");
	is_int(0, ncalls, "a root with a path that makes no sense is not asked for");
	is_reply(1, ZK_BAD_ARGUMENTS, "a root with a path that makes no sense is refused");
}

/* ---- what is watched for a wait ---- */

static void
event(int type, const char *path)
{
	follow_event(session->zh, type, ZOO_CONNECTED_STATE, path, session);
}

static void
begin_wait(uint64_t id, RequestKind kind, const char *path)
{
	ask((FrameRequest) {.kind = (int32_t) kind,.is_watched = 1}, id, path);
	ok(last_call()->is_watched, "the read of a wait sets a watch");
}

static void
test_wait(void)
{
	start();
	begin_wait(1, REQUEST_GET, OTHER);
	ok(session->wait.path != NULL && !session->wait.is_set && session->wait.watch == WATCH_DATA, "a wait for a node");
	answer(last_call(), ZOK);
	ok(session->wait.is_set, "the watch is there");
	is_reply(1, ZK_OK, "the read of a wait is answered");
	event(ZOO_CHANGED_EVENT, NODE);
	event(ZOO_SESSION_EVENT, OTHER);
	is_quiet("events of others are not told");
	event(ZOO_CHANGED_EVENT, OTHER);
	is_int(FRAME_WATCH, read_frame().frame.kind, "a set of the data is told as an event of the watch");
	is_int(ZK_WATCH_SET, read_last.frame.u.watch_news, "the event says that the data was set");
	is_int(1, (int) read_last.frame.id, "the event names the request of the wait");
	ok(session->wait.path == NULL, "the watch is used up");

	start();
	begin_wait(1, REQUEST_GET, OTHER);
	event(ZOO_DELETED_EVENT, OTHER);
	ok(session->wait.path != NULL, "a wait goes on when an event comes before its answer");
	is_int(FRAME_WATCH, read_frame().frame.kind, "an event before the answer is told");
	is_int(ZK_WATCH_LOOK_AGAIN, read_last.frame.u.watch_news, "an event before the answer says to look again");
	answer(last_call(), ZNONODE);
	ok(session->wait.path == NULL, "a wait for a node that is not there has no watch");

	start();
	begin_wait(1, REQUEST_LIST, "/l");
	answer_list(last_call(), "a b");
	ok(session->wait.is_set && session->wait.watch == WATCH_CHILDREN, "a wait for a list");
	begin_wait(2, REQUEST_LIST, "/l");
	is_int(0, count_calls("unwatch", NULL), "a second wait for the same list keeps the watch");
	is_int(2, (int) session->wait.id, "the second wait has the id of its request");
	ok(!session->wait.is_set, "the watch of the second wait is not surely there");
	begin_wait(3, REQUEST_LIST, "/l");
	answer_list(&calls[1], "a");
	ok(!session->wait.is_set, "an answer to the second wait says nothing of the third");
	answer_list(&calls[2], "a");
	ok(session->wait.is_set, "the answer to the third wait says that its watch is there");
	begin_wait(3, REQUEST_GET, "/l");
	is_int(1, count_calls("unwatch", "/l"), "a wait for the node's data ends the watch of the list");
	begin_wait(4, REQUEST_GET, OTHER);
	is_int(2, count_calls("unwatch", "/l"), "a wait for another node ends the watch of the one before");
	send_frame(FRAME_UNWATCH, 3);
	ok(session->wait.path != NULL, "the end of an earlier wait does not end the wait");
	send_frame(FRAME_UNWATCH, 4);
	ok(session->wait.path == NULL, "the end of the wait itself ends it");
	is_call("unwatch", OTHER, "the end of the wait removes the watch");
	is_int(ZWATCHTYPE_DATA, last_call()->mode, "the watch of the data is removed");
	ok(!last_call()->is_local, "the watch is removed from the server as well");
	answer(last_call(), ZOK);
	is_int(1, count_calls("unwatch", OTHER), "the watch is removed once");

	/* a server that knows of no watch */
	start();
	begin_wait(1, REQUEST_LIST, "/l");
	send_frame(FRAME_UNWATCH, 1);
	is_int(ZWATCHTYPE_CHILD, last_call()->mode, "the watch of the list is removed");
	answer(last_call(), ZNOWATCHER);
	is_call("unwatch", "/l", "the library is not to ask for it again");
	ok(last_call()->is_local, "the watch is removed from the library's memory alone");
	is_int(ZWATCHTYPE_CHILD, last_call()->mode, "the watch removed from the library's memory is that of the list");

	/* without a connection */
	start();
	begin_wait(1, REQUEST_GET, OTHER);
	answer(last_call(), ZOK);
	disconnect_now(-4);
	send_frame(FRAME_UNWATCH, 1);
	is_int(2, count_calls("unwatch", OTHER), "without a connection a watch is removed twice");
	ok(calls[1].is_local && !calls[2].is_local, "without a connection a watch is removed first from the library's memory");
}

/* ---- places that are held ---- */

static Request *
begin_held(void)
{
	start();
	ask((FrameRequest) {.kind = REQUEST_CREATE,.node_kind = ZK_EPHEMERAL_SEQUENTIAL}, 1, PREFIX);
	answer_with(last_call(), ZOK, NODE, NULL, NULL);
	while (read_frame().frame.kind != 0)
		;
	return request_find_watched(session, NODE);
}

static void
test_held(void)
{
	Request    *held = begin_held();

	interrupt_want(session->page);
	around.parent = 999999999;
	tick_requests(boot_ms + 999);
	is_int(1, ncalls, "a place is not watched at once");
	boot_ms += 1000;
	tick_requests(boot_ms);
	is_call("list", NODE, "a place is read after a second");
	ok(last_call()->is_watched, "a place is read with a watch");
	answer_list(last_call(), "");
	is_quiet("a place that is there is not told of");
	is_int(REQUEST_ANSWERED, held->state, "a place that is there is not read again");
	event(ZOO_CHILD_EVENT, OTHER);
	is_int(2, ncalls, "the event of another node reads no place");
	event(ZOO_DELETED_EVENT, NODE);
	is_call("list", NODE, "the event of a place reads it again");
	event(ZOO_DELETED_EVENT, NODE);
	is_int(3, ncalls, "two events of a place read it again once");
	answer(last_call(), ZNONODE);
	is_reply(1, ZK_NO_NODE, "a place that is gone is told to the backend");
	is_int(1, around.nkilled, "the backend is interrupted when its place is gone");
	is_int(2, (int) around.told_frames - 1, "the backend is interrupted once it can read why");

	/* released: its end is ours */
	held = begin_held();
	ask((FrameRequest) {.kind = REQUEST_DELETE,.version = -1}, 0, NODE);
	step_submit_delete(session, NODE);
	ok(request_find_watched(session, NODE) == NULL, "a place that we delete is not held");

	held = begin_held();
	boot_ms += 1000;
	tick_requests(boot_ms);
	interrupt_want(session->page);
	around.parent = 999999999;
	step_submit_delete(session, NODE);
	answer(&calls[1], ZNONODE);
	is_quiet("a place that we delete while it is read is not told of");
	is_int(0, around.nkilled, "a place that we delete interrupts no backend");

	/* the connection is lost while it is looked at */
	held = begin_held();
	boot_ms += 1000;
	tick_requests(boot_ms);
	lose_connection(last_call(), 1);
	is_int(3, ncalls, "a place is read again with the next connection");
	is_call("list", NODE, "the request with the next connection reads the place");
	connect_now();
	answer(last_call(), ZNOAUTH);
	is_quiet("what cannot be read is not gone");
	is_int(3, ncalls, "a place that cannot be read is not read again");

	/* it begins to wait there while it is looked at */
	held = begin_held();
	boot_ms += 1000;
	tick_requests(boot_ms);
	begin_wait(2, REQUEST_GET, OTHER);
	answer(&calls[1], ZNONODE);
	is_quiet("who waits learns by his own read");

	/* a backend that does not read is not interrupted before it could see why */
	held = begin_held();
	boot_ms += 1000;
	tick_requests(boot_ms);
	interrupt_want(session->page);
	around.parent = 999999999;
	while (send(PROTOCOL_CHANNEL_FD, &held, sizeof(held), MSG_DONTWAIT) > 0)
		;
	answer(last_call(), ZNONODE);
	is_int(0, around.nkilled, "a backend whose channel is full is not interrupted");
	ok(session->is_out_urgent, "the reply to a backend whose channel is full waits");
}

/* A place that waits for its lock is not held yet. */
static void
test_held_waits(void)
{
	static const struct
	{
		const char *wait;
		bool		is_queued;
	}			cases[] = {
		{OTHER, true}, {"/l", true}, {"/l/x/y", false}, {"/k", false}, {"/lx", false},
		{"/", false}, {NULL, false},
	};

	for (int i = 0; i < NELEMS(cases); i++)
	{
		Request    *held = begin_held();

		if (cases[i].wait != NULL)
			begin_wait(2, REQUEST_GET, cases[i].wait);
		ok(step_is_queued(held) == cases[i].is_queued, "it waits for \"%s\"", cases[i].wait != NULL ? cases[i].wait : "");
		boot_ms += 1000;
		session->link.contact.asked_leader_at = boot_ms;
		ncalls = 0;
		tick_requests(boot_ms);
		is_int(cases[i].is_queued ? 0 : 1, count_calls("list", NODE), "is the place read after a second?");
		if (cases[i].is_queued)
			is_int(boot_ms + 2000, session->traffic.retry_at, "the read of a place that waits is put off until the next heartbeat");
		else
		{
			answer(last_call(), ZOK);
			ok(request_find_watched(session, NODE) == held, "a place that does not wait is held");
		}
	}
}

/* That is not so of a delete. */
static void
test_delete_while_waiting(void)
{
	begin_held();
	ask((FrameRequest) {.kind = REQUEST_DELETE,.version = -1}, 0, NODE);
	answer(last_call(), ZNOTEMPTY);
	begin_wait(2, REQUEST_GET, OTHER);
	boot_ms += 100;
	tick_requests(boot_ms);
	is_int(2, count_calls("delete", NODE), "a delete goes out though something is waited for");
}

/* ---- kept locks ---- */

#define GENERATION 5
#define KEEP_MS 3000

static void
take_keep(uint32_t generation, const char *node)
{
	const FrameTaken taken = {
		.frame = {
			.kind = FRAME_KEEP,.u.keep = {.slot = KEEP_SLOTS - 1,.generation = generation}
		},
		.blobs = {node, "{\"a\":1}"}
	};

	command_take(session, &taken);
}

static KeptLock *
begin_keep(bool is_kept)
{
	KeptLock   *kept;

	start();
	kept = &session->page->kept[KEEP_SLOTS - 1];
	keep_state_begin(kept, GENERATION, KEEP_MS, boot_ms);
	if (is_kept)
		keep_state_put(kept, GENERATION, boot_ms);
	take_keep(GENERATION, NODE);
	is_call("list", "/l", "the queue of a kept lock is read");
	ok(last_call()->is_watched, "the queue of a kept lock is watched");
	return kept;
}

static KeepState
state_of(const KeptLock *kept)
{
	return keep_state_read(kept, GENERATION);
}

static void
test_keep(void)
{
	static const struct
	{
		const char *names;
		bool		gives_way;
		const char *what;
	}			cases[] = {
		{OWN, false, "no other node is there"},
		{OWN " x y", false, "strangers"},
		{OWN " " FOREIGN, true, "a contender"},
		{FOREIGN, true, "another one, and ours is gone"},
		{"", true, "ours is gone"},
	};
	KeptLock   *kept;
	char		many[2000] = OWN;

	for (int i = 0; i < NELEMS(cases); i++)
		for (int is_kept = 0; is_kept < 2; is_kept++)
		{
			kept = begin_keep(is_kept);
			answer_list(last_call(), cases[i].names);
			is_int(!cases[i].gives_way ? (is_kept ? KEEP_KEPT : KEEP_HELD) : is_kept ? KEEP_GIVEN_UP : KEEP_HELD_WANTED,
				   state_of(kept), "%s: the state", cases[i].what);
			is_int(cases[i].gives_way && is_kept, count_calls("delete", NODE), "%s: does it go?", cases[i].what);
			is_int(cases[i].gives_way && !is_kept, count_calls("set", NODE), "%s: or is it said that it is held?", cases[i].what);
			if (cases[i].gives_way && !is_kept)
				is_str("{\"a\":1,\"kept\":false}", last_call()->data, "the data of the node says that it is not kept");
			is_quiet(cases[i].what);
			if (cases[i].gives_way)
			{
				int			before = ncalls;

				event(ZOO_CHILD_EVENT, "/l");
				is_int(before, ncalls, "%s: it is not followed any more", cases[i].what);
			}
		}

	/* who comes later */
	kept = begin_keep(true);
	event(ZOO_CHILD_EVENT, "/l");
	is_int(1, ncalls, "an event while the list is under way");
	answer_list(last_call(), OWN);
	ok(!idle_is(session), "a session with a kept lock is not idle");
	event(ZOO_CHILD_EVENT, "/k");
	is_int(KEEP_KEPT, state_of(kept), "the event of another queue");
	event(ZOO_CHILD_EVENT, "/l");
	is_int(KEEP_GIVEN_UP, state_of(kept), "a kept lock is given up when another contender may have come");
	is_call("delete", NODE, "the node of a kept lock that is given up is deleted at once");
	kept = begin_keep(true);
	answer_list(last_call(), OWN " x");
	event(ZOO_CHILD_EVENT, "/l");
	is_call("list", "/l", "beside strangers it is looked who has come");
	is_int(KEEP_KEPT, state_of(kept), "a kept lock stays kept while the queue is read");
	event(ZOO_DELETED_EVENT, NODE);
	is_int(KEEP_GIVEN_UP, state_of(kept), "the node itself is gone");

	kept = begin_keep(true);
	for (int i = 0; i < 64; i++)
		strcat(many, " x");
	answer_list(last_call(), many);
	is_int(KEEP_KEPT, state_of(kept), "64 strangers are no reason");
	kept = begin_keep(true);
	strcat(many, " x");
	answer_list(last_call(), many);
	is_int(KEEP_GIVEN_UP, state_of(kept), "65 are too many to be read each time");

	/* the slot is used for another lock */
	kept = begin_keep(true);
	keep_state_begin(kept, GENERATION + 1, KEEP_MS, boot_ms);
	take_keep(GENERATION + 1, OTHER);
	is_int(2, count_calls("list", "/l"), "the next lock of that slot is followed");
	answer_list(&calls[0], OWN " " FOREIGN);
	is_int(KEEP_HELD, keep_state_read(kept, GENERATION + 1), "a list of the one before says nothing of it");
	answer_list(&calls[1], FOREIGN);
	is_int(KEEP_HELD, keep_state_read(kept, GENERATION + 1), "an answer without its node does not end the next lock");
	event(ZOO_DELETED_EVENT, NODE);
	is_int(KEEP_HELD, keep_state_read(kept, GENERATION + 1), "the end of the one before is none of its own");

	/* lists that fail */
	kept = begin_keep(true);
	answer(last_call(), ZNOAUTH);
	is_int(KEEP_GIVEN_UP, state_of(kept), "a queue that cannot be read");
	kept = begin_keep(true);
	answer(last_call(), ZSESSIONEXPIRED);
	is_int(KEEP_KEPT, state_of(kept), "a list of a session that is over gives no lock up");
	kept = begin_keep(true);
	lose_connection(last_call(), 1);
	is_int(KEEP_KEPT, state_of(kept), "a lost connection gives no lock up");
	is_call("list", "/l", "the list is read again");
	connect_now();
	answer_list(last_call(), OWN " " FOREIGN);
	is_int(KEEP_GIVEN_UP, state_of(kept), "a list read again shows another contender");

	/* its time */
	kept = begin_keep(true);
	answer_list(last_call(), OWN);
	session->wake_at = INT64_MAX;
	keep_tick(session, boot_ms);
	is_int(boot_ms + KEEP_MS, session->wake_at, "the loop wakes up when its time is over");
	keep_tick(session, boot_ms + KEEP_MS - 1);
	is_int(KEEP_KEPT, state_of(kept), "a kept lock is not given up before its time is over");
	session->wake_at = INT64_MAX;
	keep_tick(session, boot_ms + KEEP_MS);
	is_int(KEEP_FREE, state_of(kept), "a kept lock is over when its time is over");
	is_call("delete", NODE, "the node of a kept lock is deleted when its time is over");
	is_int(INT64_MAX, session->wake_at, "the loop does not wake up for a kept lock that is over");
	event(ZOO_CHILD_EVENT, "/l");
	is_int(1, count_calls("delete", NODE), "a kept lock that is over is not followed");

	kept = begin_keep(false);
	answer_list(last_call(), OWN);
	keep_tick(session, boot_ms);
	session->wake_at = INT64_MAX;
	keep_tick(session, boot_ms + KEEP_MS);
	is_int(KEEP_HELD, state_of(kept), "a lock that is held is not given up when the time to keep is over");
	is_int(boot_ms + 2 * KEEP_MS, session->wake_at, "a lock that is held is looked at again after the time to keep");
	session->wake_at = INT64_MAX;
	keep_tick(session, boot_ms + KEEP_MS + 500);
	is_int(boot_ms + 2 * KEEP_MS, session->wake_at, "an early look does not put off the next one");
	atomic_store(&kept->keep_ms, 10);
	session->wake_at = INT64_MAX;
	keep_tick(session, boot_ms + 2 * KEEP_MS);
	is_int(boot_ms + 2 * KEEP_MS + 1000, session->wake_at, "a lock that is held is not looked at more often than each second");
	keep_state_put(kept, GENERATION, boot_ms + 2 * KEEP_MS + 995);
	session->wake_at = INT64_MAX;
	keep_tick(session, boot_ms + 2 * KEEP_MS + 1000);
	is_int(KEEP_KEPT, state_of(kept), "a lock that was kept a moment ago is not given up");
	is_int(boot_ms + 2 * KEEP_MS + 1005, session->wake_at, "the time to keep counts from when the lock was kept");
}

/* A wait ends; a kept lock may need the same watch. */
static void
test_wait_beside_keep(void)
{
	begin_keep(false);
	answer_list(last_call(), OWN);
	begin_wait(3, REQUEST_LIST, "/l");
	answer_list(last_call(), OWN);
	send_frame(FRAME_UNWATCH, 3);
	ok(session->wait.path == NULL, "the wait is over");
	is_int(0, count_calls("unwatch", NULL), "the watch stays for the lock that may be kept");
	begin_wait(4, REQUEST_GET, "/l");
	send_frame(FRAME_UNWATCH, 4);
	is_int(1, count_calls("unwatch", "/l"), "the watch of a queue's data is removed beside a kept lock");
	begin_wait(5, REQUEST_LIST, "/k");
	send_frame(FRAME_UNWATCH, 5);
	is_int(1, count_calls("unwatch", "/k"), "the watch of another queue is removed beside a kept lock");

	/* the end of a session: nothing is watched after the next connection */
	begin_keep(true);
	answer_list(last_call(), OWN);
	ask((FrameRequest) {.kind = REQUEST_CREATE,.node_kind = ZK_EPHEMERAL_SEQUENTIAL}, 1, "/m/_c_33333333-3333-3333-3333-333333333333-lock-");
	answer_with(last_call(), ZOK, "/m/_c_33333333-3333-3333-3333-333333333333-lock-0000000001", NULL, NULL);
	begin_wait(6, REQUEST_GET, OTHER);
	disconnect_now(-4);
	session_end(session, ZK_LOSS_UNANSWERED);
	follow_tick(session);
	is_int(1, count_calls("unwatch", "/l"), "the watch of a kept lock goes");
	is_int(1, count_calls("unwatch", "/m/_c_33333333-3333-3333-3333-333333333333-lock-0000000001"), "the watch of a place is removed at the end of a session");
	is_int(2, count_calls("unwatch", OTHER), "the watch of the wait is removed at the end of a session");
	for (int i = 0; i < ncalls; i++)
		if (strcmp(calls[i].what, "unwatch") == 0 && strncmp(calls[i].path, "/l/", 3) != 0)
			ok(calls[i].is_local && calls[i].mode == ZWATCHTYPE_CHILD, "the watch is removed from the library's memory: %s", calls[i].path);
}

/* ---- heartbeats and nudges ---- */

static void
test_tick(void)
{
	start();
	atomic_store(&session->page->is_in_use, 1);
	tick_requests(boot_ms + 1999);
	is_int(0, ncalls, "no heartbeat is sent before it is due");
	is_int(boot_ms + 2000, session->wake_at, "the loop wakes up for the heartbeat");
	boot_ms += 2000;
	tick_requests(boot_ms);
	is_call("sync", "/", "a heartbeat is sent when it is due");
	tick_requests(boot_ms + 299);
	is_int(1, ncalls, "a heartbeat may take 299 ms without a nudge");
	boot_ms += 300;
	session->wake_at = INT64_MAX;
	tick_requests(boot_ms);
	is_call("get", "/", "a nudge is sent behind the heartbeat");
	is_int(boot_ms + 300, session->wake_at, "the next nudge is due 300 ms later");
	tick_requests(boot_ms + 299);
	is_int(2, ncalls, "the next nudge is not sent before it is due");
	boot_ms += 300;
	session->wake_at = INT64_MAX;
	tick_requests(boot_ms);
	is_int(3, ncalls, "the next nudge is sent when it is due");
	is_int(boot_ms + 600, session->wake_at, "the third nudge is due 600 ms later");
	answer(&calls[0], ZOK);
	is_int(boot_ms + 300, session->traffic.nudge_at, "an answer puts it off");
	is_int(boot_ms, session->traffic.pending_since, "the others have time from there");
	is_int(2, session->traffic.npending, "two nudges are outstanding");
	answer(&calls[1], ZOK);
	answer(&calls[2], ZOK);
	is_int(0, session->traffic.npending, "nothing is outstanding after the answers");
	is_quiet("heartbeats and nudges are not told of");
	ok(session->traffic.all == NULL, "nothing is left of heartbeats and nudges");

	disconnect_now(-4);
	session->wake_at = INT64_MAX;
	ncalls = 0;
	tick_requests(boot_ms + 99999);
	is_int(0, ncalls, "no heartbeat is sent without a connection");
	is_int(INT64_MAX, session->wake_at, "no heartbeat is due without a connection");
	connect_now();
	session_end(session, ZK_LOSS_EXPIRED);
	tick_requests(boot_ms + 99999);
	is_int(0, ncalls, "no heartbeat is sent in a session that ends");

	/* the library drops the connection as it is asked */
	start();
	library.drops = true;
	ask((FrameRequest) {.kind = REQUEST_GET}, 1, "/l");
	is_int(ZK_CLIENT_SUSPENDED, session->status.state, "a connection that is dropped is noticed");
	start();
	library.refusal = ZMARSHALLINGERROR;
	ask((FrameRequest) {.kind = REQUEST_GET}, 1, "/l");
	is_reply(1, ZK_NO_MEMORY, "the library has no memory");
	is_int(0, session->traffic.npending, "nothing is outstanding after a request without memory");
	start();
	library.refusal = ZMARSHALLINGERROR;
	library.is_over = true;
	ask((FrameRequest) {.kind = REQUEST_GET}, 1, "/l");
	is_reply(1, ZK_SESSION_LOST, "a request that the library has no session for says so");
}

/* What depends on a session, so that there are heartbeats, and no pulses. */
static void
test_idle(void)
{
	int64_t		connected_at;

	start();
	connected_at = boot_ms;
	ok(idle_is(session), "nothing depends on a new session");
	session->wake_at = INT64_MAX;
	tick_requests(boot_ms + 2999);
	is_int(0, ncalls, "no pulse is sent before it is due");
	is_int(3000, session->wake_at - boot_ms, "the loop wakes up for the pulse");
	boot_ms += 3000;
	tick_requests(boot_ms);
	is_call("get", "/", "a pulse, which our server answers");
	is_int(connected_at, session->link.contact.asked_leader_at, "a pulse does not ask the leader");
	ok(idle_is(session), "a pulse is nothing to depend on");
	boot_ms += 100;
	answer(last_call(), ZOK);
	is_int(1, session->link.contact.log.count, "the answer to a pulse can date a proof");
	is_int(1003000, session->link.contact.log.sent[0].boot_ms, "the answer to a pulse counts from when it was sent");
	is_int(connected_at, session->link.contact.led_at, "the answer to a pulse is not the leader's");
	session->wake_at = INT64_MAX;
	tick_requests(boot_ms);
	is_int(1, ncalls, "no second pulse is sent at once");
	is_int(1006000, session->wake_at, "the next pulse counts from when the last was sent");

	/* used: a heartbeat, and that at once */
	boot_ms = 1005000;
	atomic_store(&session->page->is_in_use, 1);
	ok(!idle_is(session), "a session with locks is not idle");
	tick_requests(boot_ms);
	is_call("sync", "/", "a heartbeat is due at once");
	answer(last_call(), ZOK);
	is_int(boot_ms, session->link.contact.led_at, "the answer to a heartbeat is the leader's");
	atomic_store(&session->page->is_in_use, 0);
	ok(idle_is(session), "a session without locks is idle again");

	/* a request, a wait */
	ask((FrameRequest) {.kind = REQUEST_CREATE, .node_kind = ZK_EPHEMERAL_SEQUENTIAL}, 1, "/l/a-");
	ok(!idle_is(session), "a session with a request under way is not idle");
	session->wake_at = INT64_MAX;
	tick_requests(boot_ms);
	is_int(boot_ms + 300, session->wake_at, "the nudge of the request is due next");
	answer_with(last_call(), ZOK, "/l/a-0000000001", NULL, NULL);
	ok(!idle_is(session), "a session with a node in a queue is not idle");
	session->wake_at = INT64_MAX;
	session->traffic.retry_at = INT64_MAX;
	tick_requests(boot_ms);
	is_int(boot_ms + 2000, session->wake_at, "a heartbeat a sixth of the timeout after it");

	start();
	ask((FrameRequest) {.kind = REQUEST_GET, .is_watched = true}, 1, "/l/a");
	answer(last_call(), ZOK);
	ok(session->traffic.all == NULL && !idle_is(session), "a session that waits is not idle");
	wait_end(session);
	ok(idle_is(session), "the end of the watch is nothing to depend on");

	/* a connection over which the leader is to be asked at once */
	start();
	session->link.contact.asked_leader_at = 0;
	tick_requests(boot_ms);
	is_call("sync", "/", "a heartbeat comes first where nothing was answered before");
}

/* ---- what was not executed ---- */

/* So much time passes that what is put off is due. */
static void
wait_for_retry(void)
{
	boot_ms += 2000;
	session->link.contact.asked_leader_at = session->link.contact.asked_at = boot_ms;
	tick_requests(boot_ms);
}

static void
test_put_off(void)
{
	static const RequestKind read_kinds[] = {REQUEST_LIST, REQUEST_GET, REQUEST_GET_ACL};
	FrameRequest create = {.kind = REQUEST_CREATE,.node_kind = ZK_EPHEMERAL_SEQUENTIAL};
	int64_t		since;

	/* a read: after pauses that grow, and then told */
	start();
	since = boot_ms;
	session->link.pace.nunanswered = session->link.pace.nrounds = 3;
	ask((FrameRequest) {.kind = REQUEST_GET}, 1, "/l");
	answer(last_call(), ZTHROTTLEDOP);
	is_quiet("a read that is put off is not told of");
	is_int(1, session->status.nput_off, "a read that is put off is counted");
	is_int(0, session->link.pace.nunanswered, "a server that puts off has answered");
	is_int(0, session->link.pace.nrounds, "rounds count anew after a server has answered");
	is_int(0, session->link.contact.log.count, "an answer that puts off proves nothing");
	is_int(0, session->traffic.npending, "nothing is outstanding while a read is put off");
	is_int(boot_ms + 20, session->traffic.retry_at, "the first pause is short");
	boot_ms += 20;
	tick_requests(boot_ms);
	is_int(2, ncalls, "a read that is put off is sent again after the pause");
	answer(last_call(), ZTHROTTLEDOP);
	is_int(boot_ms + 2 * 20, session->traffic.retry_at, "the next pause is twice as long");
	for (int i = 0; i < 10; i++)
	{
		boot_ms = session->traffic.retry_at;
		session->link.contact.asked_leader_at = session->link.contact.asked_at = boot_ms;
		tick_requests(boot_ms);
		answer(last_call(), ZTHROTTLEDOP);
	}
	is_int(800, session->traffic.retry_at - boot_ms, "the pause grows up to the greatest one");
	boot_ms = since + TIMEOUT_MS - 300;
	session->link.contact.asked_leader_at = session->link.contact.asked_at = boot_ms;
	tick_requests(boot_ms);
	answer(last_call(), ZTHROTTLEDOP);
	is_int(since + TIMEOUT_MS, session->traffic.retry_at, "no pause ends after a session timeout");
	boot_ms = session->traffic.retry_at;
	session->link.contact.asked_leader_at = session->link.contact.asked_at = boot_ms;
	tick_requests(boot_ms);
	answer(last_call(), ZTHROTTLEDOP);
	is_reply(1, ZK_NOT_EXECUTED, "a read put off for a session timeout says that it was not executed");
	is_int(0, session->status.nput_off, "a read that has failed is not put off any more");
	ok(session->traffic.all == NULL, "nothing is left of a read that has failed");

	/* a read behind a create sees what that makes */
	for (int i = 0; i < NELEMS(read_kinds); i++)
	{
		start();
		ask(create, 1, PREFIX);
		ask((FrameRequest) {.kind = read_kinds[i]}, 2, "/l");
		answer(&calls[0], ZTHROTTLEDOP);
		answer(&calls[1], ZOK);
		is_quiet("a read executed ahead of a create that was put off is not told");
		wait_for_retry();
		is_int(4, ncalls, "the create and the read are sent again");
		is_str("create", calls[2].what, "the create is sent again ahead of the read");
		answer_with(&calls[2], ZOK, NODE, NULL, NULL);
		answer(&calls[3], ZOK);
		is_reply(1, ZK_OK, "the create is answered");
		is_reply(2, ZK_OK, "the read is answered behind the create");
		is_int(0, session->status.nput_off, "nothing is put off any more");
	}

	/* also if it is answered once the create is sent again, ahead of that */
	start();
	ask(create, 1, PREFIX);
	ask((FrameRequest) {.kind = REQUEST_LIST}, 2, "/l");
	answer(&calls[0], ZTHROTTLEDOP);
	wait_for_retry();
	is_str("create", calls[2].what, "the create is sent again while the read is under way");
	answer_list(&calls[1], OTHER);
	is_quiet("a list that was sent ahead of the repeated create is not told");
	answer_with(&calls[2], ZOK, NODE, NULL, NULL);
	is_reply(1, ZK_OK, "the repeated create is answered");
	wait_for_retry();
	answer_list(last_of("list"), OWN);
	is_reply(2, ZK_OK, "the list that is told was sent behind the repeated create");
	is_int(0, session->status.nput_off, "neither is put off any more");

	/* and is not asked in vain before the create is */
	start();
	ask(create, 1, PREFIX);
	answer(&calls[0], ZTHROTTLEDOP);
	wait_for_retry();
	answer(&calls[1], ZTHROTTLEDOP);
	ask((FrameRequest) {.kind = REQUEST_GET}, 2, "/l");
	answer(&calls[2], ZOK);
	is_int(boot_ms + 2 * 20, session->traffic.retry_at, "a read waits as long as the create");
	wait_for_retry();
	is_int(5, ncalls, "the create and the later read are sent again");

	/* and one behind a delete that nobody waits for */
	start();
	ask((FrameRequest) {.kind = REQUEST_DELETE,.version = -1}, 0, NODE);
	ask((FrameRequest) {.kind = REQUEST_LIST}, 1, "/l");
	answer(&calls[0], ZTHROTTLEDOP);
	is_int(0, session->status.nrefused, "a delete that is put off is no refusal");
	answer_list(&calls[1], OWN);
	is_quiet("a list with the node that was released is not told");
	wait_for_retry();
	answer(&calls[2], ZOK);
	answer_list(&calls[3], "");
	is_reply(1, ZK_OK, "a list without the node that was released is told");

	/* a delete is refused only when that has gone on for long */
	start();
	ask((FrameRequest) {.kind = REQUEST_DELETE,.version = -1}, 0, NODE);
	answer(last_call(), ZTHROTTLEDOP);
	boot_ms += TIMEOUT_MS;
	session->link.contact.asked_leader_at = session->link.contact.asked_at = boot_ms;
	tick_requests(boot_ms);
	answer(last_of("delete"), ZTHROTTLEDOP);
	is_int(1, session->status.nrefused, "a delete put off for a session timeout is refused");
	is_int(0, session->status.nput_off, "a delete that is refused is not put off any more");

	/* over another connection it is sent at once, and without one not at all */
	start();
	ask((FrameRequest) {.kind = REQUEST_GET}, 1, "/l");
	answer(last_call(), ZSESSIONMOVED);
	disconnect_now(-4);
	wait_for_retry();
	is_int(1, ncalls, "nothing is sent without a connection");
	connect_now();
	tick_requests(boot_ms);
	is_int(1, count_calls("get", "/l") - 1, "a read that is put off is sent with the next connection");

	/* what nobody wants any more */
	start();
	ask(create, 1, PREFIX);
	answer(last_call(), ZTHROTTLEDOP);
	send_frame(FRAME_WITHDRAW, 1);
	is_int(0, session->status.nput_off, "a create that is withdrawn is not put off");
	is_call("list", "/l", "the node of a create that is withdrawn is looked for");
	answer_list(last_call(), "");
	is_int(0, count_requests(), "nothing is left of a create that is withdrawn");
	start();
	begin_wait(2, REQUEST_GET, OTHER);
	send_frame(FRAME_UNWATCH, 2);
	answer(&calls[0], ZTHROTTLEDOP);
	is_int(0, session->status.nput_off, "a wait that has ended is not put off");

	/* the write ahead of a look for a node */
	start();
	ask(create, 1, PREFIX);
	lose_connection(last_call(), 1);
	connect_now();
	send_frame(FRAME_WITHDRAW, 1);
	answer(&calls[ncalls - 2], ZTHROTTLEDOP);
	answer_list(last_call(), "");
	is_int(1, session->status.nput_off, "a look without the write ahead of it says nothing");
	wait_for_retry();
	answer(&calls[ncalls - 2], ZNONODE);
	answer_list(last_call(), OWN);
	is_call("delete", NODE, "a look with the write ahead of it finds the node");

	/* heartbeats, and a place that is held */
	start();
	step_submit(request_new_silent(session, REQUEST_HEARTBEAT, "/"));
	answer(last_call(), ZTHROTTLEDOP);
	is_int(0, session->status.nput_off, "a heartbeat is not sent again");
}

/* ---- codes that end the session ---- */

static void
test_end_codes(void)
{
	static const struct
	{
		int			code;
		ZkClientLoss loss;
	}			cases[] = {
		{ZSESSIONEXPIRED, ZK_LOSS_EXPIRED}, {ZAUTHFAILED, ZK_LOSS_AUTH},
		{ZSESSIONCLOSEDREQUIRESASLAUTH, ZK_LOSS_DEMAND},
	};

	for (int i = 0; i < NELEMS(cases); i++)
	{
		start();
		session->link.servers.naddresses = 1;
		ask((FrameRequest) {.kind = REQUEST_CREATE}, 1, "/l");
		answer(last_call(), cases[i].code);
		is_int(ZK_CLIENT_LOST, session->status.state, "code %d ends the session", cases[i].code);
		is_int(cases[i].loss, session->status.loss, "the loss has the reason of code %d", cases[i].code);
		is_int(0, session->link.contact.log.count, "code %d proves nothing", cases[i].code);
		ok(strstr(session->last_error, "has said: ") != NULL, "the last error has the words of code %d", cases[i].code);
	}

	/* each server has its turn */
	start();
	session->link.servers.naddresses = 2;
	ask((FrameRequest) {.kind = REQUEST_CREATE}, 1, "/l");
	ask((FrameRequest) {.kind = REQUEST_GET}, 2, "/l");
	answer(&calls[0], ZSESSIONCLOSEDREQUIRESASLAUTH);
	answer(&calls[1], ZSESSIONCLOSEDREQUIRESASLAUTH);
	is_quiet("the demand of the first server is not told");
	is_int(ZK_CLIENT_CONNECTED, session->status.state, "the demand of the first server does not end the session");
	is_int(1, session->link.pace.ndemands, "two demands of one server count once");
	is_int(2, session->status.nput_off, "both requests are put off");
	disconnect_now(-4);
	connect_now();
	tick_requests(boot_ms);
	is_int(1, session->link.pace.ndemands, "the next server has not demanded anything yet");
	answer_with(last_of("create"), ZOK, "/l", NULL, NULL);
	is_reply(1, ZK_OK, "the next server executes the create");
	is_int(0, session->link.pace.ndemands, "the count of demands begins anew");
	start();
	session->link.servers.naddresses = 2;
	session->link.pace.ndemands = 1;
	session->link.pace.demanded_over = session->link.number - 1;
	ask((FrameRequest) {.kind = REQUEST_CREATE}, 1, "/l");
	answer(last_call(), ZSESSIONCLOSEDREQUIRESASLAUTH);
	is_int(ZK_LOSS_DEMAND, session->status.loss, "the demand of both servers ends the session");
	ok(!session_may_live(session), "a session that ended by a demand is not to be closed");
}

/* ---- what must not be ---- */

static RequestState state_from;
static RequestState state_to;
static RequestKind step_from;
static RequestKind step_to;

static void
move_state(void)
{
	Request    *request = request_new(session, 7, REQUEST_GET, "/l");

	request->state = state_from;
	request_set_state(request, state_to);
}

static void
move_step(void)
{
	Request    *request = request_new(session, 7, step_from, "/l");

	request_go_on(request, step_to, NULL);
}

/* All that are not legal, of the states; and of the steps what is near to those that are. */
static void
test_illegal_moves(void)
{
	/* from NEW, SENT, ANSWERED, DUE, AWAITS_CONNECTION, to each of them */
	static const char *const legal[] = {".S..A", "..A..", ".S.DA", ".S.D.", ".S..."};
	static const RequestKind steps[][2] = {
		{REQUEST_GET, REQUEST_DELETE},
		{REQUEST_CREATE, REQUEST_CREATE},
		{REQUEST_WATCHED, REQUEST_ERASE},
		{REQUEST_WATCHED, REQUEST_CREATE},
		{REQUEST_ERASE, REQUEST_WATCHED},
		{REQUEST_DELETE, REQUEST_DELETE},
		{REQUEST_NUDGE, REQUEST_DELETE}
	};
	char		error[100];

	for (int from = 0; from < NELEMS(legal); from++)
		for (int to = 0; to < NELEMS(legal); to++)
		{
			start();
			state_from = from;
			state_to = to;
			snprintf(error, sizeof(error), "The session's program is at fault: illegal state of a request, %d after %d", to, from);
			if (legal[from][to] == '.')
				is_end_of_process(error, move_state, error);
			else
			{
				move_state();
				is_int(to, session->traffic.all->state, "state %d may follow %d", to, from);
			}
		}
	for (int i = 0; i < NELEMS(steps); i++)
	{
		start();
		step_from = steps[i][0];
		step_to = steps[i][1];
		snprintf(error, sizeof(error), "The session's program is at fault: illegal state of the step of a request, %d after %d", step_to, step_from);
		is_end_of_process(error, move_step, error);
	}
}

int
main(void)
{
	test_led();
	test_nodes();
	test_create();
	test_check();
	test_acl();
	test_reads();
	test_repeated();
	test_refused();
	test_leave();
	test_transactions();
	test_root();
	test_late_names();
	test_wait();
	test_held();
	test_held_waits();
	test_delete_while_waiting();
	test_keep();
	test_wait_beside_keep();
	test_tick();
	test_idle();
	test_put_off();
	test_end_codes();
	test_illegal_moves();
	return done_testing();
}
