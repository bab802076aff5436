/*-------------------------------------------------------------------------
 *
 * test_protocol.c
 *	  Frames of src/common/protocol.c between a backend and its program: good ones
 *	  are taken, bad ones are refused, and neither end crashes or hangs on any
 *	  bytes.
 *
 * Three parts: a table of frames with what is to become of them; frames that are
 * changed at random, in a buffer of just their size; and both real ends, each
 * with a peer that sends such frames: client.c with a program that is this test,
 * started as hostile_program, and zklock-session, which lies beside it.  With the
 * word "quick" it leaves out the ends, and needs no program.
 *
 *-------------------------------------------------------------------------
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client.h"
#include "protocol.h"
#include "tap.h"

#define NRANDOM 300000			/* frames that are changed and taken */
#define NPROGRAMS 100			/* hostile programs */
#define NBACKENDS 80			/* hostile backends */

/* How long an end may take to see that its peer is no good, or a call. */
#define PATIENCE_MS 20000
#define CALL_MS 5500

static uint64_t seed = 1;

/* Sum of what was read of replies, so that the sanitizer sees it read. */
static volatile unsigned checksum;

/* What clock_gettime() says, if that is not { 0 }. */
static struct timespec fixed_time;

int
clock_gettime(clockid_t clock, struct timespec *now)
{
	if (fixed_time.tv_sec == 0)
		return (int) syscall(SYS_clock_gettime, clock, now);
	*now = fixed_time;
	return 0;
}

/* How many bytes were wiped. */
static size_t nwiped;

void
explicit_bzero(void *bytes, size_t length)
{
	memset(bytes, 0, length);
	nwiped += length;
}

static uint32_t
choose(uint32_t limit)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (uint32_t) (seed >> 32) % limit;
}

/* A frame of that kind that is as it should be, appended to the buffer. */
static void
put_good(FrameBuffer *buffer, FrameKind kind, uint64_t id)
{
	Frame		frame = {.kind = kind, .id = id};
	FrameBlob	blobs[FRAME_NBLOBS] = {0};

	switch (kind)
	{
		case FRAME_OPEN:
			frame.u.open.backend_pid = getpid();
			frame.u.open.session_timeout_ms = 1000;
			frame.u.open.first_server = choose(4);
			blobs[0] = frame_text("127.0.0.1:1");
			break;
		case FRAME_REQUEST:
			/* a LEAVE has blobs of its own, and no number: test_kinds() */
			frame.u.request.kind = (int32_t) choose(REQUEST_LAST_OF_BACKEND);
			frame.u.request.kind += frame.u.request.kind >= REQUEST_LEAVE;
			frame.u.request.node_kind = (int32_t) choose(ZK_NODE_LAST + 1);
			frame.id = REQUEST_MAY_BE_SILENT(frame.u.request.kind) && choose(2) == 0 ? 0 : id;
			blobs[0] = frame_text("/a/b");
			if (frame.u.request.kind == REQUEST_MOVE ||
				frame.u.request.kind == REQUEST_CREATE_GUARDED)
				blobs[1] = frame_text("/a/c");
			if (frame.u.request.kind == REQUEST_MOVE && choose(2) == 0)
				blobs[3] = (FrameBlob) {"/a/d\0set", 9};
			blobs[2] = (FrameBlob) {"\0data", choose(6)};
			break;
		case FRAME_STATUS:
			frame.u.status.state = (int32_t) choose(ZK_CLIENT_LOST + 1);
			frame.u.status.loss = (int32_t) choose(ZK_LOSS_LAST + 1);
			frame.u.status.was_connected = 1;
			frame.u.status.session_timeout_ms = 1000;
			blobs[0] = frame_text("127.0.0.1:2181");
			blobs[1] = frame_text("an error");
			blobs[2] = frame_text("3.8.0");
			break;
		case FRAME_REPLY:
			frame.u.reply.result = (int32_t) choose(ZK_RESULT_LAST + 1);
			frame.u.reply.nchildren = 3;
			blobs[0] = frame_text(choose(8) ? "/a0000000001" : "/a/b");
			blobs[1] = (FrameBlob) {"\0data", choose(6)};
			blobs[2] = (FrameBlob) {"x\0\0yz", 6};
			break;
		case FRAME_WATCH:
			frame.u.watch_news = (int32_t) choose(ZK_WATCH_LOOK_AGAIN + 1);
			break;
		case FRAME_KEEP:
			frame.u.keep.slot = choose(KEEP_SLOTS);
			frame.u.keep.generation = 1 + choose(3);
			blobs[0] = frame_text("/a/b/c");
			blobs[1] = frame_text("{}");
			break;
		case FRAME_ASK:
			blobs[0] = frame_text("127.0.0.1:1");
			break;
		case FRAME_ANSWER:
			frame.u.answer.server = (int32_t) choose(4);
			blobs[0] = frame_text("127.0.0.1:1");
			blobs[1] = frame_text("an answer");
			break;
		case FRAME_FREE:
		case FRAME_WITHDRAW:
		case FRAME_UNWATCH:
		case FRAME_WAKE:
			break;
	}
	if (!frame_put(buffer, &frame, blobs))
		abort();
}

static FrameDirection
direction_of(FrameKind kind)
{
	return kind <= FRAME_LAST_TO_PROGRAM ? FRAME_TO_PROGRAM : FRAME_FROM_PROGRAM;
}

/* ---------------------------------------------------------------------
 * The table
 * ---------------------------------------------------------------------
 */

/* A good frame in which one number, of so many bytes, is another. */
typedef struct Case
{
	const char *what;
	FrameKind	kind;
	size_t		at;
	size_t		size;
	int64_t		value;
	FrameVerdict verdict;
} Case;

#define FIELD(member) offsetof(Frame, member), sizeof(((Frame *) 0)->member)

static const Case cases[] = {
	{"another version", FRAME_WAKE, FIELD(version), PROTOCOL_VERSION + 1, FRAME_WRONG_VERSION},
	{"version 0", FRAME_OPEN, FIELD(version), 0, FRAME_WRONG_VERSION},
	{"kind 0", FRAME_WAKE, FIELD(kind), 0, FRAME_INVALID},
	{"a kind beyond the last", FRAME_WAKE, FIELD(kind), FRAME_LAST + 1, FRAME_INVALID},
	{"a kind of the other direction", FRAME_WAKE, FIELD(kind), FRAME_FREE, FRAME_INVALID},
	{"a kind of the other direction", FRAME_FREE, FIELD(kind), FRAME_WAKE, FRAME_INVALID},
	{"length 0", FRAME_WAKE, FIELD(length), 0, FRAME_INVALID},
	{"one byte less than the head", FRAME_WAKE, FIELD(length), sizeof(Frame) - 1, FRAME_INVALID},
	{"one byte more than there are", FRAME_WAKE, FIELD(length), sizeof(Frame) + 1, FRAME_INVALID},
	{"the greatest length", FRAME_WAKE, FIELD(length), UINT32_MAX, FRAME_INVALID},
	{"a blob that is too long", FRAME_REPLY, FIELD(blob_lengths[1]), UINT32_MAX, FRAME_INVALID},
	{"a blob where none belongs", FRAME_WAKE, FIELD(blob_lengths[0]), 1, FRAME_INVALID},
	{"an opening for no process", FRAME_OPEN, FIELD(u.open.backend_pid), 0, FRAME_INVALID},
	{"an opening for all processes", FRAME_OPEN, FIELD(u.open.backend_pid), -1, FRAME_INVALID},
	{"an opening for process 1", FRAME_OPEN, FIELD(u.open.backend_pid), 1, FRAME_INVALID},
	{"session timeout 0", FRAME_OPEN, FIELD(u.open.session_timeout_ms), 0, FRAME_INVALID},
	{"a negative session timeout", FRAME_OPEN, FIELD(u.open.session_timeout_ms), -1, FRAME_INVALID},
	{"a text without its end", FRAME_OPEN, sizeof(Frame) + 11, 1, 'x', FRAME_INVALID},
	{"a text that ends before", FRAME_OPEN, sizeof(Frame) + 3, 1, 0, FRAME_INVALID},
	{"no such request", FRAME_REQUEST, FIELD(u.request.kind), REQUEST_LAST_OF_BACKEND + 1, FRAME_INVALID},
	{"a negative request", FRAME_REQUEST, FIELD(u.request.kind), -1, FRAME_INVALID},
	{"only a LEAVE is awaited", FRAME_REQUEST, FIELD(u.request.is_awaited), 1, FRAME_INVALID},
	{"news of nothing", FRAME_REPLY, FIELD(id), 0, FRAME_INVALID},
	{"no such node", FRAME_REQUEST, FIELD(u.request.node_kind), ZK_NODE_LAST + 1, FRAME_INVALID},
	{"a negative node", FRAME_REQUEST, FIELD(u.request.node_kind), -1, FRAME_INVALID},
	{"a path without its end", FRAME_REQUEST, sizeof(Frame) + 4, 1, 'x', FRAME_INVALID},
	{"no such state", FRAME_STATUS, FIELD(u.status.state), ZK_CLIENT_LOST + 1, FRAME_INVALID},
	{"a negative state", FRAME_STATUS, FIELD(u.status.state), -1, FRAME_INVALID},
	{"no such loss", FRAME_STATUS, FIELD(u.status.loss), ZK_LOSS_LAST + 1, FRAME_INVALID},
	{"a negative timeout", FRAME_STATUS, FIELD(u.status.session_timeout_ms), -1, FRAME_INVALID},
	{"no such result", FRAME_REPLY, FIELD(u.reply.result), ZK_RESULT_LAST + 1, FRAME_INVALID},
	{"a negative result", FRAME_REPLY, FIELD(u.reply.result), -1, FRAME_INVALID},
	{"a child too many", FRAME_REPLY, FIELD(u.reply.nchildren), 4, FRAME_INVALID},
	{"a child too few", FRAME_REPLY, FIELD(u.reply.nchildren), 2, FRAME_INVALID},
	{"a negative number of children", FRAME_REPLY, FIELD(u.reply.nchildren), -1, FRAME_INVALID},
	{"no such news", FRAME_WATCH, FIELD(u.watch_news), ZK_WATCH_LOOK_AGAIN + 1, FRAME_INVALID},
	{"no such slot", FRAME_KEEP, FIELD(u.keep.slot), KEEP_SLOTS, FRAME_INVALID},
	{"no generation", FRAME_KEEP, FIELD(u.keep.generation), 0, FRAME_INVALID},
	{"one too high", FRAME_KEEP, FIELD(u.keep.generation), KEEP_GENERATIONS, FRAME_INVALID},
	{"a path without its end", FRAME_KEEP, sizeof(Frame) + 6, 1, 'x', FRAME_INVALID},
	{"a path without a slash", FRAME_KEEP, sizeof(Frame), 6, 0x656565656565, FRAME_INVALID},
	{"negative news", FRAME_WATCH, FIELD(u.watch_news), -1, FRAME_INVALID},
	{"the first news", FRAME_WATCH, FIELD(u.watch_news), 0, FRAME_COMPLETE},
	{"the last news", FRAME_WATCH, FIELD(u.watch_news), ZK_WATCH_LOOK_AGAIN, FRAME_COMPLETE},
	{"the last state", FRAME_STATUS, FIELD(u.status.state), ZK_CLIENT_LOST, FRAME_COMPLETE},
	{"the last loss", FRAME_STATUS, FIELD(u.status.loss), ZK_LOSS_LAST, FRAME_COMPLETE},
	{"a negative loss", FRAME_STATUS, FIELD(u.status.loss), -1, FRAME_INVALID},
	{"the last result", FRAME_REPLY, FIELD(u.reply.result), ZK_RESULT_LAST, FRAME_COMPLETE},
	{"any id", FRAME_REPLY, FIELD(id), -1, FRAME_COMPLETE},
};

static void
test_table(void)
{
	FrameBuffer buffer = {0};
	FrameTaken	taken;

	for (FrameKind kind = FRAME_OPEN; kind <= FRAME_LAST; kind++)
	{
		size_t		length;

		put_good(&buffer, kind, 7);
		length = buffer.end;
		for (buffer.end = 0; buffer.end < length; buffer.end++)
			if (frame_take(&buffer, direction_of(kind), &taken) != FRAME_INCOMPLETE)
				break;
		is_int((long long) length, (long long) buffer.end,
			   "kind %d: no part of it is enough", kind);
		buffer.end = length;
		is_int(FRAME_COMPLETE,
			   frame_take(&buffer, direction_of(kind), &taken), "kind %d: the whole is enough", kind);
		ok(buffer.start == buffer.end && taken.frame.kind == kind,
		   "kind %d: the frame is taken off", kind);
		frame_buffer_free(&buffer);
	}
	for (FrameKind kind = FRAME_OPEN; kind <= FRAME_LAST; kind++)
	{
		put_good(&buffer, kind, 7);
		is_int(FRAME_INVALID,
			   frame_take(&buffer, direction_of(kind) == FRAME_TO_PROGRAM ?
						  FRAME_FROM_PROGRAM : FRAME_TO_PROGRAM, &taken),
			   "kind %d: not in the other direction", kind);
		frame_buffer_free(&buffer);
	}
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		put_good(&buffer, cases[i].kind, 7);
		memcpy(buffer.bytes + cases[i].at, &cases[i].value, cases[i].size);
		is_int(cases[i].verdict,
			   frame_take(&buffer, direction_of(cases[i].kind), &taken),
			   "kind %d: %s", cases[i].kind, cases[i].what);
		frame_buffer_free(&buffer);
	}
}

/* One frame behind the other, the last of them in part. */
static void
test_several(void)
{
	FrameBuffer buffer = {0};
	FrameTaken	taken;

	for (uint64_t id = 1; id <= 3; id++)
		put_good(&buffer, FRAME_REPLY, id);
	buffer.end--;
	for (uint64_t id = 1; id <= 2; id++)
		ok(frame_take(&buffer, FRAME_FROM_PROGRAM, &taken) == FRAME_COMPLETE &&
		   taken.frame.id == id, "frame %d of three", (int) id);
	is_int(FRAME_INCOMPLETE, frame_take(&buffer, FRAME_FROM_PROGRAM, &taken),
		   "the third lacks a byte");
	frame_buffer_free(&buffer);

	put_good(&buffer, FRAME_WAKE, 0);
	((Frame *) buffer.bytes)->version = PROTOCOL_VERSION + 1;
	buffer.end = offsetof(Frame, id);
	is_int(FRAME_WRONG_VERSION, frame_take(&buffer, FRAME_FROM_PROGRAM, &taken),
		   "eight bytes tell another version");
	buffer.end--;
	is_int(FRAME_INCOMPLETE, frame_take(&buffer, FRAME_FROM_PROGRAM, &taken),
		   "seven do not");
	frame_buffer_free(&buffer);
}

/* What a create of "/a/b-" can have made, and what not. */
static const struct
{
	const char *node;
	bool		is_made;
}			nodes[] =
{
	{"/a/b-", true},
	{"/a/b-0000000000", true},
	{"/a/b-2147483647", true},
	{"/a/b--2147483648", true},
	{"/a/b-00000000000", true},
	{"/a/b-000000000000", false},
	{"/a/b-x", false},
	{"/a/b-0/0", false},
	{"/a/b", false},
	{"/a/c-0000000000", false},
	{"a/b-0000000000", false},
	{"b-0000000000", false},
	{"", false},
	{NULL, false}
};

static void
test_made(void)
{
	for (size_t i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++)
		ok(protocol_is_made("/a/b-", nodes[i].node) == nodes[i].is_made,
		   "a node \"%s\" %s", nodes[i].node != NULL ? nodes[i].node : "(none)",
		   nodes[i].is_made ? "may be what was made" : "is not");
}

/* A frame whose blobs are these texts; NULL: none. */
static const struct
{
	FrameVerdict verdict;
	FrameKind	kind;
	const char *blobs[FRAME_NBLOBS];
	const char *what;
}			blob_cases[] =
{
	{FRAME_COMPLETE, FRAME_OPEN, {"a", NULL, NULL}, "without credentials"},
	{FRAME_COMPLETE, FRAME_OPEN, {"a", "b", "c"}, "with credentials"},
	{FRAME_COMPLETE, FRAME_OPEN, {"", "", "c"}, "with an empty text"},
	{FRAME_COMPLETE, FRAME_OPEN, {"a", "b", ""}, "with another"},
	{FRAME_INVALID, FRAME_OPEN, {"a", "b", NULL}, "with a scheme alone"},
	{FRAME_INVALID, FRAME_OPEN, {"a", NULL, "c"}, "with credentials of no scheme"},
	{FRAME_INVALID, FRAME_OPEN, {NULL, NULL, NULL}, "without servers"},
	{FRAME_COMPLETE, FRAME_OPEN, {"a", NULL, NULL, "d"}, "with TLS"},
	{FRAME_COMPLETE, FRAME_OPEN, {"a", "b", "c", "d"}, "with all"},
	{FRAME_INVALID, FRAME_REQUEST, {"/a", NULL, "data", "d"}, "with a fourth text"},
	{FRAME_INVALID, FRAME_REQUEST, {"/a", NULL, "data", ""}, "with an empty one"},
	{FRAME_INVALID, FRAME_REPLY, {"/a", "data", NULL, "d"}, "with a fourth text"},
	{FRAME_COMPLETE, FRAME_REQUEST, {"/a", NULL, NULL}, "with a path"},
	{FRAME_COMPLETE, FRAME_REQUEST, {"/a", NULL, "data"}, "with a path and data"},
	{FRAME_INVALID, FRAME_REQUEST, {NULL, NULL, "data"}, "without a path"},
	{FRAME_COMPLETE, FRAME_REQUEST, {"", NULL, NULL}, "with an empty path"},
	{FRAME_INVALID, FRAME_REQUEST, {"/a", "/b", NULL}, "with a path too many"},
	{FRAME_INVALID, FRAME_REQUEST, {"/a", "", NULL}, "with an empty one too many"},
	{FRAME_COMPLETE, FRAME_STATUS, {NULL, NULL, NULL}, "that says nothing"},
	{FRAME_COMPLETE, FRAME_STATUS, {"a", "b", "c", "d"}, "that says all"},
	{FRAME_COMPLETE, FRAME_REPLY, {NULL, NULL, NULL}, "with nothing"},
	{FRAME_COMPLETE, FRAME_REPLY, {"/a", "data", NULL}, "with a node"},
	{FRAME_INVALID, FRAME_REPLY, {NULL, NULL, "x"}, "with a child that was not counted"},
	{FRAME_COMPLETE, FRAME_KEEP, {"/a", "b", NULL}, "with both"},
	{FRAME_INVALID, FRAME_KEEP, {NULL, NULL, NULL}, "with none"},
	{FRAME_COMPLETE, FRAME_KEEP, {"/a", "", NULL}, "with empty data"},
	{FRAME_INVALID, FRAME_KEEP, {"", "b", NULL}, "with an empty path"},
	{FRAME_INVALID, FRAME_KEEP, {"/a", NULL, NULL}, "with a path alone"},
	{FRAME_INVALID, FRAME_KEEP, {NULL, "b", NULL}, "with data alone"},
	{FRAME_INVALID, FRAME_KEEP, {"/a", "b", "c"}, "with a third text"},
	{FRAME_COMPLETE, FRAME_ASK, {"a", NULL, NULL}, "without TLS"},
	{FRAME_COMPLETE, FRAME_ASK, {"a", "b", NULL}, "with TLS"},
	{FRAME_INVALID, FRAME_ASK, {NULL, "b", NULL}, "without servers"},
	{FRAME_INVALID, FRAME_ASK, {"a", "b", "c"}, "with a third text"},
	{FRAME_COMPLETE, FRAME_ANSWER, {"a", "b", NULL}, "with both"},
	{FRAME_COMPLETE, FRAME_ANSWER, {NULL, NULL, NULL}, "that says nothing"},
	{FRAME_INVALID, FRAME_ANSWER, {"a", "b", "c"}, "with a third text"},
	{FRAME_COMPLETE, FRAME_WAKE, {NULL, NULL, NULL}, "with nothing"},
	{FRAME_INVALID, FRAME_WAKE, {"a", NULL, NULL}, "with a text"},
	{FRAME_INVALID, FRAME_WAKE, {NULL, "b", NULL}, "with another"},
	{FRAME_INVALID, FRAME_WAKE, {NULL, NULL, "c"}, "with a third"},
};

/* A frame in which all but blobs is as it should be. */
static Frame
make_frame(FrameKind kind)
{
	Frame		frame = {.kind = kind, .id = 7};

	if (kind == FRAME_OPEN)
	{
		frame.u.open.backend_pid = 2;
		frame.u.open.session_timeout_ms = 1;
	}
	if (kind == FRAME_REQUEST)
		frame.u.request.kind = REQUEST_GET;
	if (kind == FRAME_KEEP)
		frame.u.keep.generation = 1;
	return frame;
}

/* What becomes of a frame, with no byte behind it that could be read unnoticed. */
static FrameVerdict
judge(const Frame *frame, const FrameBlob blobs[FRAME_NBLOBS])
{
	FrameBuffer buffer = {0};
	FrameBuffer exact = {0};
	FrameTaken	taken;
	FrameVerdict verdict;

	if (!frame_put(&buffer, frame, blobs))
		abort();
	exact.end = exact.size = buffer.end;
	exact.bytes = malloc(exact.size);
	memcpy(exact.bytes, buffer.bytes, exact.size);
	verdict = frame_take(&exact, direction_of(frame->kind), &taken);
	frame_buffer_free(&buffer);
	frame_buffer_free(&exact);
	return verdict;
}

static void
test_blobs(void)
{
	for (size_t i = 0; i < sizeof(blob_cases) / sizeof(blob_cases[0]); i++)
	{
		Frame		frame = make_frame(blob_cases[i].kind);
		FrameBlob	blobs[FRAME_NBLOBS];

		for (int j = 0; j < FRAME_NBLOBS; j++)
			blobs[j] = frame_text(blob_cases[i].blobs[j]);
		is_int(blob_cases[i].verdict, judge(&frame, blobs), "kind %d: %s",
			   blob_cases[i].kind, blob_cases[i].what);
	}
	for (int i = 0; i < FRAME_NBLOBS; i++)
	{
		static const FrameKind kinds[] = {FRAME_OPEN, FRAME_REQUEST, FRAME_STATUS, FRAME_REPLY};

		for (size_t j = 0; j < sizeof(kinds) / sizeof(kinds[0]); j++)
		{
			Frame		frame = make_frame(kinds[j]);
			FrameBlob	blobs[FRAME_NBLOBS] = {
				frame_text("/a"), frame_text("/b"), frame_text("/c")
			};
			bool		has_four = kinds[j] == FRAME_OPEN || kinds[j] == FRAME_STATUS;

			if (has_four)
				blobs[3] = frame_text("/d");
			else if (i == 3)
				continue;
			if (kinds[j] == FRAME_REQUEST)
				frame.u.request.kind = REQUEST_MOVE;
			frame.u.reply.nchildren += kinds[j] == FRAME_REPLY;
			is_int(FRAME_COMPLETE, judge(&frame, blobs), "kind %d: all texts", kinds[j]);
			blobs[i].length--;
			is_int((kinds[j] == FRAME_REQUEST && i == 2) ||
				   (kinds[j] == FRAME_REPLY && i == 1) ? FRAME_COMPLETE : FRAME_INVALID,
				   judge(&frame, blobs), "kind %d: number %d has no end", kinds[j], i);
		}
	}
	is_int(FRAME_COMPLETE, judge(&(Frame) {.kind = FRAME_REPLY, .id = 7, .u.reply.nchildren = 1},
								 (FrameBlob[FRAME_NBLOBS]) {{0}, {0}, {"", 1}}),
		   "a child without a name");
	is_int(FRAME_INVALID, judge(&(Frame) {.kind = FRAME_REPLY, .id = 7},
								(FrameBlob[FRAME_NBLOBS]) {{0}, {0}, {"x", 1}}),
		   "a child's name without its end");
}

/*
 * What a session that leaves a lock writes down, and what it is told of that: a reply
 * without a number; and what it says of a kept lock.
 */
static void
test_leaving(void)
{
	const FrameBlob cut = {"lock", 4};
	Frame		leave = make_frame(FRAME_REQUEST);
	Frame		news = {.kind = FRAME_REPLY, .u.reply.nchildren = 1};
	Frame		keep = make_frame(FRAME_KEEP);

	leave.u.request.kind = REQUEST_LEAVE;
	is_int(FRAME_INVALID, judge(&leave, (FrameBlob[FRAME_NBLOBS]) {
		frame_text("/a"), {0}, frame_text("lock")
	}), "a LEAVE with a number");
	leave.id = 0;
	is_int(FRAME_COMPLETE, judge(&leave, (FrameBlob[FRAME_NBLOBS]) {
		frame_text("/a"), {0}, frame_text("")
	}), "a LEAVE of a lock with an empty name");
	is_int(FRAME_INVALID, judge(&leave, (FrameBlob[FRAME_NBLOBS]) {
		frame_text("/a")
	}), "a LEAVE of no lock");
	is_int(FRAME_INVALID, judge(&leave, (FrameBlob[FRAME_NBLOBS]) {
		frame_text("/a"), {0}, cut
	}), "a LEAVE of a lock whose name has no end");

	is_int(FRAME_COMPLETE, judge(&news, (FrameBlob[FRAME_NBLOBS]) {
		frame_text("/a"), {0}, frame_text("")
	}), "news");
	is_int(FRAME_INVALID, judge(&news, (FrameBlob[FRAME_NBLOBS]) {
		frame_text("a"), {0}, frame_text("lock")
	}), "news of what has no slash");
	news.u.reply.result = ZK_NO_NODE;
	is_int(FRAME_INVALID, judge(&news, (FrameBlob[FRAME_NBLOBS]) {
		frame_text("/a"), {0}, frame_text("lock")
	}), "news that are a refusal");
	news.u.reply.result = ZK_OK;
	news.u.reply.nchildren = 0;
	is_int(FRAME_INVALID, judge(&news, (FrameBlob[FRAME_NBLOBS]) {frame_text("/a")}),
		   "news of no lock");

	is_int(FRAME_COMPLETE, judge(&keep, (FrameBlob[FRAME_NBLOBS]) {
		frame_text("/a"), frame_text("")
	}), "a kept lock");
	is_int(FRAME_INVALID, judge(&keep, (FrameBlob[FRAME_NBLOBS]) {
		frame_text("/a"), cut
	}), "a kept lock whose data have no end");

	for (ZkClientState state = ZK_CLIENT_STARTING; state <= ZK_CLIENT_LOST; state++)
		is_str(state <= ZK_CLIENT_CONNECTING ? "connecting" :
			   state == ZK_CLIENT_CONNECTED ? "connected" :
			   state == ZK_CLIENT_SUSPENDED ? "suspended" : "lost",
			   protocol_state(state), "the word for state %d", state);
}

/*
 * A second path: of MOVE and CREATE_GUARDED. No number: of SET and DELETE, which may have one,
 * and of LEAVE, which has none.
 */
static void
test_kinds(void)
{
	for (int32_t kind = 0; kind <= REQUEST_LAST_OF_BACKEND; kind++)
	{
		Frame		frame = make_frame(FRAME_REQUEST);
		FrameBlob	blobs[FRAME_NBLOBS] = {frame_text("/a"), {0}, {0}};
		bool		has_two = kind == REQUEST_MOVE || kind == REQUEST_CREATE_GUARDED;

		if (kind == REQUEST_LEAVE)
		{
			blobs[2] = frame_text("the lock");
			frame.id = 0;
		}
		frame.u.request.kind = kind;
		is_int(has_two ? FRAME_INVALID : FRAME_COMPLETE,
			   judge(&frame, blobs), "request %d with one path", kind);
		blobs[1] = frame_text("/b");
		is_int(has_two ? FRAME_COMPLETE : FRAME_INVALID,
			   judge(&frame, blobs), "request %d with two paths", kind);
		if (!has_two)
			blobs[1] = (FrameBlob) {0};
		frame.id = 0;
		is_int(kind == REQUEST_SET || kind == REQUEST_DELETE || kind == REQUEST_LEAVE ?
			   FRAME_COMPLETE : FRAME_INVALID, judge(&frame, blobs), "request %d without a number", kind);
		frame.id = 7;
		is_int(kind == REQUEST_LEAVE ? FRAME_INVALID : FRAME_COMPLETE,
			   judge(&frame, blobs), "request %d with a number", kind);
		blobs[3] = (FrameBlob) {"/c\0x", 5};
		is_int(kind == REQUEST_MOVE ? FRAME_COMPLETE : FRAME_INVALID,
			   judge(&frame, blobs), "request %d with a node to be set", kind);
		blobs[3].length--;
		is_int(FRAME_INVALID, judge(&frame, blobs), "request %d whose data to be set has no end", kind);
		blobs[3].length -= 1;
		is_int(FRAME_INVALID, judge(&frame, blobs), "request %d with one text to be set", kind);
		blobs[3] = (FrameBlob) {0};
		frame.u.request.is_watched = true;
		is_int(kind == REQUEST_LIST || kind == REQUEST_GET ? FRAME_COMPLETE :
			   FRAME_INVALID, judge(&frame, blobs), "request %d watched", kind);
	}
}

/* A frame may be as long as FRAME_MAX, and no longer. */
static void
test_longest(void)
{
	FrameBuffer buffer = {0};
	FrameTaken	taken;
	Frame		frame = {.kind = FRAME_REPLY, .id = 7};
	size_t		most = FRAME_MAX - sizeof(Frame);
	char	   *bytes = calloc(1, most + 1);

	ok(!frame_put(&buffer, &frame, (FrameBlob[FRAME_NBLOBS]) {{0}, {bytes, most + 1}, {0}}),
	   "a frame that is too long");
	is_int(0, (long long) buffer.end, "is not put");
	ok(frame_put(&buffer, &frame, (FrameBlob[FRAME_NBLOBS]) {{0}, {bytes, most}, {0}}),
	   "the longest frame is put");
	is_int(FRAME_MAX, (long long) buffer.end, "the longest frame has FRAME_MAX bytes");
	is_int(FRAME_COMPLETE, frame_take(&buffer, FRAME_FROM_PROGRAM, &taken), "the longest frame is taken");
	frame_buffer_free(&buffer);

	if (!frame_put(&buffer, &frame, NULL))
		abort();
	((Frame *) buffer.bytes)->length = FRAME_MAX + 1;
	((Frame *) buffer.bytes)->blob_lengths[1] = (uint32_t) most + 1;
	is_int(FRAME_INVALID, frame_take(&buffer, FRAME_FROM_PROGRAM, &taken),
		   "a longer one is not waited for");
	frame_buffer_free(&buffer);
	free(bytes);
}

/* ---------------------------------------------------------------------
 * Buffers
 * ---------------------------------------------------------------------
 */

static void
test_buffers(void)
{
	FrameBuffer buffer = {0};
	char	   *bytes;

	ok(frame_buffer_reserve(&buffer, 1), "room for a byte");
	is_int(4096, (long long) buffer.size, "is room for some");
	bytes = buffer.bytes;
	memset(bytes, 'x', 4096);
	memcpy(bytes, "0123456789", 10);
	buffer.end = 10;
	ok(frame_buffer_reserve(&buffer, 4086) && buffer.size == 4096,
	   "a buffer does not grow as long as all fits");
	frame_buffer_consume(&buffer, 4);
	ok(buffer.start == 4 && buffer.end == 10 && memcmp(bytes, "0123456789", 10) == 0,
	   "bytes that are left stay where they are");
	ok(frame_buffer_reserve(&buffer, 4090) && buffer.size == 4096 &&
	   buffer.start == 0 && buffer.end == 6 && memcmp(buffer.bytes, "456789", 6) == 0,
	   "bytes are moved to the front if there is room then");
	buffer.start = 1;
	ok(frame_buffer_reserve(&buffer, 4092) && buffer.size == 8192 &&
	   buffer.start == 0 && buffer.end == 5 && memcmp(buffer.bytes, "56789", 5) == 0,
	   "a buffer gets twice its size if there is no room");
	buffer.start = 4;
	buffer.end = 8192;
	ok(frame_buffer_reserve(&buffer, 4) && buffer.size == 8192 && buffer.end == 8188,
	   "a full one is moved as well");
	memset(buffer.bytes, 'x', 8192);
	buffer.end = 5;
	ok(frame_buffer_reserve(&buffer, 5 * 8192) && buffer.size == 8 * 8192,
	   "a buffer is doubled as often as it takes");
	ok(frame_buffer_reserve(&buffer, 8 * 8192 - 5) && buffer.size == 8 * 8192,
	   "a buffer that has room does not grow");
	memset(buffer.bytes, 'x', 100);
	buffer.end = 100;
	frame_buffer_consume(&buffer, 100);
	ok(buffer.start == 0 && buffer.end == 0 && buffer.size == 8 * 8192,
	   "an empty buffer begins at its front");
	ok(buffer.bytes[0] == 0 && buffer.bytes[99] == 0 && memcmp(buffer.bytes, buffer.bytes + 1, 99) == 0,
	   "bytes that were taken are wiped");
	ok(frame_buffer_reserve(&buffer, 256 * 1024) && buffer.size == 256 * 1024,
	   "a big one");
	buffer.end = 1;
	frame_buffer_consume(&buffer, 1);
	is_int(256 * 1024, (long long) buffer.size, "is kept");
	ok(frame_buffer_reserve(&buffer, 256 * 1024 + 1), "a bigger one");
	buffer.end = 1;
	frame_buffer_consume(&buffer, 1);
	ok(buffer.bytes == NULL && buffer.size == 0, "is not");
	frame_buffer_reserve(&buffer, 10);
	memset(buffer.bytes, 'x', 10);
	buffer.end = 10;
	nwiped = 0;
	frame_buffer_free(&buffer);
	is_int(10, (long long) nwiped, "a buffer that is freed is wiped");
	frame_buffer_free(&buffer);
	ok(buffer.bytes == NULL, "an empty buffer can be freed");
	is_int(0, (long long) frame_text(NULL).length, "no text is no blob");
	is_int(1, (long long) frame_text("").length, "an empty one has its end");
}

/* The sanitizers have their own way to run out of memory. */
static void
test_memory(void)
{
#ifndef __SANITIZE_ADDRESS__
	static const char blob[4 * 1024 * 1024];
	FrameBlob	blobs[FRAME_NBLOBS] = {{"/", 2}, {NULL, 0}, {blob, sizeof(blob)}};
	const Frame frame = {.kind = FRAME_REQUEST};
	FrameBuffer buffer = {0};
	struct rlimit before;
	struct rlimit none;
	bool		is_reserved;
	bool		is_put;

	ok(frame_buffer_reserve(&buffer, 10), "some memory");
	memcpy(buffer.bytes, "0123456789", 10);
	buffer.end = 10;
	getrlimit(RLIMIT_AS, &before);
	none = (struct rlimit) {0, before.rlim_max};
	setrlimit(RLIMIT_AS, &none);
	is_reserved = frame_buffer_reserve(&buffer, sizeof(blob));
	is_put = frame_put(&buffer, &frame, blobs);
	setrlimit(RLIMIT_AS, &before);
	ok(!is_reserved, "no room is reserved without memory");
	ok(!is_put, "no frame is put without memory");
	ok(buffer.size == 4096 && buffer.end == 10 && memcmp(buffer.bytes, "0123456789", 10) == 0,
	   "a buffer keeps its bytes if there is no memory");
	frame_buffer_free(&buffer);
#endif
}

/* ---------------------------------------------------------------------
 * Clocks and interrupts
 * ---------------------------------------------------------------------
 */

static int64_t
read_clock(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

static void
test_clocks(void)
{
	int64_t		boot = read_clock(CLOCK_BOOTTIME);
	int64_t		wall = read_clock(CLOCK_REALTIME);
	Moment		moment = protocol_moment();

	ok(moment.boot_ms >= boot && moment.boot_ms <= read_clock(CLOCK_BOOTTIME),
	   "milliseconds of the clock that goes on while the machine is suspended");
	ok(moment.wall_ms >= wall && moment.wall_ms <= read_clock(CLOCK_REALTIME),
	   "milliseconds of the time of day");
	for (int i = 0; i < 2; i++)
	{
		fixed_time = (struct timespec) {5, i == 0 ? 999000000 : 999999999};
		moment = protocol_moment();
		fixed_time = (struct timespec) {0};
		is_int(5999, moment.boot_ms, "milliseconds of the boot clock are cut off");
		is_int(5999, moment.wall_ms, "milliseconds of the wall clock are cut off");
	}
}

/* The program, which has sent the signal a moment later. */
static void *
end_soon(void *page)
{
	usleep(50000);
	atomic_store(&((SharedPage *) page)->loss_interrupt, INTERRUPT_SENT);
	return NULL;
}

static volatile sig_atomic_t ninterrupts;

static void
count_interrupt(int signal)
{
	(void) signal;
	ninterrupts++;
}

/* What each call makes of each state. */
/* Who ends a session that is used, and who uses one that was ended? */
static void
test_use(void)
{
	SharedPage	page = {0};

	ok(!use_is_begun(&page), "a new session is not used");
	ok(use_begin(&page), "a use begins");
	ok(use_is_begun(&page), "a use that has begun is seen");
	is_int(1, atomic_load(&page.use), "the word of use is odd during a use");
	ok(!use_finish(&page, 0), "a session seen unused before a use is not ended");
	ok(!use_finish(&page, 1), "a session is not ended while it is used");
	ok(use_begin(&page), "the same use goes on");
	is_int(1, atomic_load(&page.use), "a use that goes on does not change the word of use");
	use_end(&page);
	ok(!use_is_begun(&page), "a use that has ended is not seen any more");
	is_int(2, atomic_load(&page.use), "the word of use is another one after the use");
	use_end(&page);
	is_int(2, atomic_load(&page.use), "a use ends only once");
	ok(!use_finish(&page, 0), "a session seen unused before a use is not ended after it");
	ok(use_finish(&page, 2), "a session not used since is ended");
	ok(!use_begin(&page), "no use begins of a session that is ended");
	ok(!use_is_begun(&page), "no use is seen of a session that is ended");
	use_end(&page);
	ok(atomic_load(&page.use) == USE_OVER, "a session that is ended stays so");
	atomic_store(&page.use, 0);
	for (int i = 1; i <= 12; i++)
	{
		ok(use_begin(&page) && use_is_begun(&page), "use %d begins", i);
		ok(use_begin(&page) && use_is_begun(&page), "use %d goes on", i);
		use_end(&page);
		ok(!use_is_begun(&page), "use %d is over", i);
		is_int(2 * i, atomic_load(&page.use), "each use has a word of its own");
	}
	is_str("idle", protocol_end_state(ZK_CLIENT_LOST, ZK_LOSS_IDLE), "the word for that");
	is_str("lost", protocol_end_state(ZK_CLIENT_LOST, ZK_LOSS_EXPIRED), "another one is lost");
	is_str("connected", protocol_end_state(ZK_CLIENT_CONNECTED, ZK_LOSS_NONE), "or neither");
}

static void
test_interrupts(void)
{
	static const struct
	{
		InterruptState from;
		InterruptState wanted;
		int			nsent;
		InterruptState sent;
	}			states[] = {
		{INTERRUPT_OFF, INTERRUPT_WANTED, 0, INTERRUPT_OFF},
		{INTERRUPT_WANTED, INTERRUPT_WANTED, 1, INTERRUPT_SENT},
		{INTERRUPT_UNDER_WAY, INTERRUPT_UNDER_WAY, 0, INTERRUPT_UNDER_WAY},
		{INTERRUPT_SENT, INTERRUPT_SENT, 0, INTERRUPT_SENT},
	};
	static SharedPage page;
	_Atomic uint32_t *interrupt = &page.loss_interrupt;
	pthread_t	program;
	int64_t		begun;
	int64_t		took;

	signal(SIGINT, count_interrupt);
	for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++)
	{
		*interrupt = states[i].from;
		interrupt_want(&page);
		is_int(states[i].wanted, *interrupt, "state %d: wanted", states[i].from);
		*interrupt = states[i].from;
		page.ninterrupts = ninterrupts = 0;
		interrupt_send(&page, getpid());
		is_int(states[i].nsent, ninterrupts, "number of interrupts that were sent");
		is_int(states[i].sent, *interrupt, "state of the interrupt after the send");
		is_int(states[i].nsent, (int) page.ninterrupts, "number of interrupts that were counted");
		if (states[i].from == INTERRUPT_UNDER_WAY)
			continue;
		*interrupt = states[i].from;
		begun = protocol_now();
		ok(interrupt_refuse(&page), "interrupts are refused where none is under way");
		is_int(INTERRUPT_OFF, *interrupt, "refused interrupts are off");
		ok(protocol_now() - begun < 1000, "interrupts are refused at once");
	}
	signal(SIGINT, SIG_DFL);

	*interrupt = INTERRUPT_UNDER_WAY;
	pthread_create(&program, NULL, end_soon, &page);
	ok(interrupt_refuse(&page), "an interrupt under way is waited for");
	is_int(INTERRUPT_OFF, *interrupt, "interrupts are off after the one under way");
	pthread_join(program, NULL);

	*interrupt = INTERRUPT_UNDER_WAY;
	begun = protocol_now();
	ok(!interrupt_refuse(&page), "interrupt_refuse() gives up on an interrupt that stays under way");
	took = protocol_now() - begun;
	ok(took >= 1000 && took < 60000, "an interrupt that stays under way is waited for a second");
	is_int(INTERRUPT_OFF, *interrupt, "interrupts are off, though one stays under way");
}

/* ---------------------------------------------------------------------
 * Frames changed at random
 * ---------------------------------------------------------------------
 */

/* Let something be otherwise in what is in the buffer, mostly in the heads. */
static void
mutate(FrameBuffer *buffer)
{
	static const uint32_t numbers[] = {
		0, 1, 2, 0x7fffffff, 0x80000000, 0xffffffff, 0xfffffffe, 64 * 1024 * 1024,
		64 * 1024 * 1024 + 1, 4096, 4097, 0xffff, 0x10000
	};

	for (uint32_t n = choose(3); n-- > 0 && buffer->end >= sizeof(Frame);)
	{
		size_t		at = choose(8) > 0 ? 4 * choose(sizeof(Frame) / 4) :
			choose((uint32_t) buffer->end - 3);
		uint32_t	number = numbers[choose(sizeof(numbers) / sizeof(numbers[0]))];

		switch (choose(5))
		{
			case 0:
				buffer->bytes[at] ^= (char) (1 << choose(8));
				break;
			case 1:
				memcpy(buffer->bytes + at, &number, sizeof(number));
				break;
			case 2:
				memcpy(&number, buffer->bytes + at, sizeof(number));
				number += choose(5) - 2;
				memcpy(buffer->bytes + at, &number, sizeof(number));
				break;
			case 3:
				buffer->bytes[choose((uint32_t) buffer->end)] = (char) choose(256);
				break;
			case 4:
				if (choose(4) == 0)
					buffer->end = choose((uint32_t) buffer->end + 1);
				break;
		}
	}
}

/* Whatever was taken is all there, and is what its kind may be. */
static bool
is_sound(const FrameTaken *taken)
{
	const uint32_t *lengths = taken->frame.blob_lengths;
	unsigned	sum = 0;

	for (int i = 0; i < FRAME_NBLOBS; i++)
	{
		if ((taken->blobs[i] == NULL) != (lengths[i] == 0))
			return false;
		for (uint32_t j = 0; j < lengths[i]; j++)
			sum += (unsigned char) taken->blobs[i][j];
	}
	if (taken->blobs[0] != NULL && strlen(taken->blobs[0]) + 1 != lengths[0])
		return false;
	return sum < UINT_MAX;
}

static void
test_random(void)
{
	int			counts[FRAME_INVALID + 1] = {0};
	bool		is_good = true;

	for (int i = 0; i < NRANDOM && is_good; i++)
	{
		FrameKind	kind = 1 + choose(FRAME_LAST);
		FrameBuffer made = {0};
		FrameBuffer exact = {0};
		FrameTaken	taken;
		FrameVerdict verdict;

		put_good(&made, kind, choose(3));
		mutate(&made);
		/* nothing behind it that could be read unnoticed */
		exact.bytes = malloc(made.end > 0 ? made.end : 1);
		memcpy(exact.bytes, made.bytes, made.end);
		exact.end = exact.size = made.end;
		verdict = frame_take(&exact, choose(2), &taken);
		counts[verdict]++;
		is_good = verdict != FRAME_COMPLETE ||
			(is_sound(&taken) && exact.start == taken.frame.length);
		frame_buffer_free(&made);
		frame_buffer_free(&exact);
	}
	ok(is_good, "%d frames changed at random are taken whole or not at all",
	   NRANDOM);
	note("%d complete, %d incomplete, %d of another version, %d invalid",
		 counts[FRAME_COMPLETE], counts[FRAME_INCOMPLETE],
		 counts[FRAME_WRONG_VERSION], counts[FRAME_INVALID]);
	for (int i = 0; i <= FRAME_INVALID; i++)
		ok(counts[i] > 0, "there was verdict %d", i);
}

/* ---------------------------------------------------------------------
 * A hostile program
 * ---------------------------------------------------------------------
 */

/* Write it all, or as much as anybody reads. */
static void
write_all(int fd, const FrameBuffer *buffer)
{
	size_t		done = 0;

	while (done < buffer->end)
	{
		ssize_t		sent = send(fd, buffer->bytes + done, buffer->end - done,
								MSG_NOSIGNAL);
		struct pollfd writable = {fd, POLLOUT, 0};

		if (sent > 0)
			done += (size_t) sent;
		else if (errno == EAGAIN && poll(&writable, 1, 1000) == 1)
			continue;
		else
			return;
	}
}

/*
 * Send frames, most of them good, none at the right time; write nonsense to the
 * page; and end, or close the channel without ending, or do neither.
 */
static int
hostile_program(const char *number)
{
	SharedPage *page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE,
							MAP_SHARED, PROTOCOL_PAGE_FD, 0);
	sigset_t	none;
	int			nframes;

	/* programs are started with all signals blocked */
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	seed = strtoull(number, NULL, 10) * 2654435761U + 1;
	nframes = (int) choose(40);
	for (int i = 0; i < nframes; i++)
	{
		FrameBuffer buffer = {0};
		FrameKind	kind = choose(10) == 0 ? 1 + choose(FRAME_LAST) :
			FRAME_LAST_TO_PROGRAM + 1 + choose(FRAME_LAST - FRAME_LAST_TO_PROGRAM);

		/* as client.c numbers its requests */
		put_good(&buffer, kind, (uint64_t) (1 + choose(20)) << 16 | choose(20));
		if (choose(10) == 0)
			mutate(&buffer);
		write_all(PROTOCOL_CHANNEL_FD, &buffer);
		frame_buffer_free(&buffer);
		if (page != MAP_FAILED && choose(3) == 0)
		{
			static const int64_t times[] = {0, -1, INT64_MAX, INT64_MIN, 1};

			atomic_store(&page->alive_at, times[choose(5)]);
			atomic_store(&page->nfinished, choose(2) ? UINT64_MAX : choose(9));
			atomic_store(&page->nundone, choose(2) ? UINT64_MAX : choose(9));
			atomic_store(&page->lost, choose(3));
			atomic_store(&page->loss_interrupt, choose(6));
		}
		if (page != MAP_FAILED)
			atomic_fetch_add(&page->nflushed, 1);
	}
	switch (choose(4))
	{
		case 0:
			close(PROTOCOL_CHANNEL_FD);
			/* FALLTHROUGH */
		case 1:
			/* neither reads nor ends, but not for ever */
			signal(SIGTERM, SIG_IGN);
			alarm(6);
			for (;;)
				pause();
		case 2:
			kill(getpid(), SIGKILL);
	}
	return (int) choose(3);
}

/* Where a program is that is this one with arguments. */
static const char *
program_path(void)
{
	static char program[PATH_MAX];
	const char *directory = getenv("TMPDIR");

	snprintf(program, sizeof(program), "%s/program_that.%d",
			 directory != NULL ? directory : "/tmp", (int) getpid());
	return program;
}

/*
 * The path of one with those arguments; the next call changes it.  client.c hands no
 * arguments down.
 */
static const char *
program_that(const char *does, const char *argument)
{
	const char *program = program_path();
	char		path[PATH_MAX];
	ssize_t		length = readlink("/proc/self/exe", path, sizeof(path) - 1);
	FILE	   *script;

	path[length > 0 ? length : 0] = '\0';
	script = fopen(program, "we");
	fprintf(script, "#!/bin/sh\nexec '%s' %s '%s'\n", path, does, argument);
	fclose(script);
	chmod(program, 0755);
	return program;
}

static void
ignore_signal(int number)
{
	(void) number;
}

/* Look at the session: what is asked after that is answered by what was there. */
static ZkClientStatus
look_at(ZkClient *client)
{
	zklock_client_poll(client);
	return *zklock_client_status(client);
}

/* Texts for the log that a client has said, and those of them that could harm it. */
static int	nerrors;
static int	nbad_errors;

/* They are one line each, of printable ASCII, whatever the program has sent. */
static void
check_error(const char *error)
{
	nerrors += *error != '\0';
	for (; *error != '\0'; error++)
		if (*error < ' ' || *error > '~')
			nbad_errors++;
}

/*
 * Everything that a client can do, with that program for a session, for 100 ms from its
 * first word: on a busy machine it takes longer than that to be started.
 */
static int64_t
use_client(const char *program, int number)
{
	ZkRequest  *requests[12];
	ZkClient   *client;
	ZkClientStatus status;
	char		error[512];
	int64_t		until;
	int64_t		began;

	client = zklock_client_open(&(ZkClientOptions) {
		.program = program, .servers = "127.0.0.1:1", .session_timeout_ms = 1000
	});
	requests[0] = zklock_client_create(client, "/a", ZK_EPHEMERAL_SEQUENTIAL, "x");
	requests[1] = zklock_client_read(client, ZK_LIST, "/a");
	requests[2] = zklock_client_read(client, ZK_GET_AND_WATCH, "/a");
	requests[3] = zklock_client_check(client, "/a", 0);
	requests[4] = zklock_client_move(client, &(ZkMove) {
		.from = "/a", .to = "/b", .data = "", .kind = ZK_PERSISTENT, .set = "/c", .set_data = "x"
	});
	for (int i = 5; i < 12; i++)
		requests[i] = zklock_client_read(client, ZK_GET, "/a");
	zklock_client_leave(client, "/a", "a", 1, number % 2);
	zklock_client_interrupt_on_loss(client, number % 2);
	zklock_client_flush(client);
	/* a program without a frame to send may only pause, so the wait has a bound */
	poll(&(struct pollfd) {zklock_client_fd(client), POLLIN, 0}, 1, 2000);
	until = protocol_now() + 100;
	do
	{
		struct pollfd readable = {zklock_client_fd(client), POLLIN, 0};

		poll(&readable, 1, 5);
		zklock_client_receive(client);
		status = look_at(client);
		snprintf(error, sizeof(error), "%s", zklock_client_last_error(client));
		check_error(error);
		for (int i = 0; i < 12; i++)
		{
			const ZkReply *reply = zklock_client_reply(requests[i]);

			for (int j = 0; reply != NULL && j < reply->nchildren; j++)
				checksum += (unsigned) strlen(reply->children[j]);
			if (reply != NULL && reply->path != NULL)
				checksum += (unsigned) strlen(reply->path);
		}
	} while (status.state != ZK_CLIENT_LOST && protocol_now() < until);
	began = protocol_now();
	zklock_client_withdraw(requests[0]);
	zklock_client_free(requests[5]);
	zklock_client_close(client, 50);
	return protocol_now() - began;
}

static void
test_hostile_programs(void)
{
	struct sigaction action = {.sa_handler = ignore_signal};
	int64_t		longest = 0;
	int64_t		deadline;

	sigaction(SIGINT, &action, NULL);
	for (int i = 0; i < NPROGRAMS; i++)
	{
		char		number[16];
		int64_t		took;

		snprintf(number, sizeof(number), "%d", i);
		took = use_client(program_that("hostile_program", number), i);
		if (took > longest)
			longest = took;
	}
	unlink(program_path());
	ok(true, "%d hostile programs are survived", NPROGRAMS);
	ok(nerrors > 0, "%d of their texts are for the log", nerrors);
	is_int(0, nbad_errors, "no text of a hostile program can harm the log");
	ok(longest < CALL_MS, "no hostile program holds up the end of its session: %d ms",
	   (int) longest);

	/* those that pause end by their alarm clock; then they are ours to reap */
	deadline = protocol_now() + 2 * PATIENCE_MS;
	while (waitpid(-1, NULL, WNOHANG) >= 0 && protocol_now() < deadline)
		poll(NULL, 0, 20);
	ok(waitpid(-1, NULL, WNOHANG) < 0, "no hostile program is left");
}

/* ---------------------------------------------------------------------
 * News of what is watched
 * ---------------------------------------------------------------------
 */

static void
say(const Frame *frame, const char *text)
{
	SharedPage *page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE,
							MAP_SHARED, PROTOCOL_PAGE_FD, 0);
	const FrameBlob blobs[FRAME_NBLOBS] = {{0}, frame_text(text)};
	FrameBuffer out = {0};

	frame_put(&out, frame, blobs);
	write_all(PROTOCOL_CHANNEL_FD, &out);
	frame_buffer_free(&out);
	atomic_store(&page->alive_at, INT64_MAX / 2);
	atomic_store(&page->nfinished, UINT64_MAX / 2);
	atomic_fetch_add(&page->nflushed, 1);
	munmap(page, sizeof(*page));
}

/*
 * Answer what is watched by the script: r is the reply and n one that there is no node; s
 * and l are news, that it was set and that it is to be looked at; o is news for another
 * request; p is the loss of the connection.  Behind the next request, tell whether the
 * watch was given up before.  All times are such as nobody has seen.
 */
static int
scripted_program(const char *script)
{
	Frame		status = {.kind = FRAME_STATUS};
	FrameBuffer in = {0};
	FrameTaken	taken;
	ssize_t		received;
	bool		is_unwatched = false;

	status.u.status.was_connected = true;
	status.u.status.session_timeout_ms = PATIENCE_MS;
	status.u.status.suspended_at = INT64_MAX;
	status.u.status.state = ZK_CLIENT_CONNECTING;
	say(&status, NULL);
	status.u.status.state = ZK_CLIENT_CONNECTED;
	while (frame_buffer_reserve(&in, 4096) &&
		   (received = recv(PROTOCOL_CHANNEL_FD, in.bytes + in.end, 4096, 0)) > 0)
	{
		in.end += (size_t) received;
		while (frame_take(&in, FRAME_TO_PROGRAM, &taken) == FRAME_COMPLETE)
		{
			bool		is_watch = taken.frame.kind == FRAME_REQUEST &&
				taken.frame.u.request.is_watched;

			is_unwatched |= taken.frame.kind == FRAME_UNWATCH;
			for (const char *next = script; is_watch && *next != '\0'; next++)
			{
				Frame		frame = {.kind = FRAME_WATCH, .id = taken.frame.id};

				frame.id += *next == 'o' ? 1 << 16 : 0;
				if (*next == 'r' || *next == 'n')
				{
					frame.kind = FRAME_REPLY;
					frame.u.reply.result = *next == 'r' ? ZK_OK : ZK_NO_NODE;
					frame.u.reply.proof = (Moment) {INT64_MAX, INT64_MAX};
					frame.u.reply.nbelow = -1;
				}
				else if (*next == 'p')
					status.u.status.state = ZK_CLIENT_SUSPENDED;
				else
					frame.u.watch_news = *next == 's' ? ZK_WATCH_SET : ZK_WATCH_LOOK_AGAIN;
				say(*next == 'p' ? &status : &frame, NULL);
			}
			if (taken.frame.kind != FRAME_UNWATCH)
				say(&status, taken.frame.kind == FRAME_OPEN ? "open\x7f\n\xe4" : is_watch ? "played" :
					is_unwatched ? "unwatched" : "watched");
		}
	}
	frame_buffer_free(&in);
	return 0;
}

/*
 * Say how it was started, in one word for each thing that is not as it should be; a number is
 * that of the descriptor that should not be open.  Or for a script mark a loss in the page, x
 * and y (of no kind that there is), or die while an interrupt is under way, u; or say that the
 * session is lost and end, e; or say the states of these numbers, behind j, and with the last
 * one that all is told.
 */
static int
telling_program(const char *script)
{
	SharedPage *page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE,
							MAP_SHARED, PROTOCOL_PAGE_FD, 0);
	Frame		status = {.kind = FRAME_STATUS};
	char		said[128] = "as it should";
	int			seals = fcntl(PROTOCOL_PAGE_FD, F_GET_SEALS);
	sigset_t	blocked;
	char		byte;

	sigprocmask(SIG_SETMASK, NULL, &blocked);
	if ((seals & F_SEAL_SHRINK) == 0 || (seals & F_SEAL_GROW) == 0 || (seals & F_SEAL_SEAL) == 0)
		strcpy(said, "seals");
	else if (getpgrp() != getpid())
		strcpy(said, "group");
	else if (!sigismember(&blocked, SIGINT) || !sigismember(&blocked, SIGTERM))
		strcpy(said, "signals");
	else if (isdigit((unsigned char) *script) && fcntl(atoi(script), F_GETFD) >= 0)
		strcpy(said, "descriptors");
	status.u.status.state = *script == 'e' ? ZK_CLIENT_LOST : ZK_CLIENT_CONNECTING;
	status.u.status.loss = *script == 'e' ? ZK_LOSS_RESOLVE : ZK_LOSS_NONE;
	say(&status, said);
	for (const char *next = script + 1; *script == 'j' && *next != '\0'; next++)
	{
		status.u.status.was_connected = true;
		status.u.status.session_timeout_ms = PATIENCE_MS;
		status.u.status.state = *next - '0';
		say(&status, next[1] == '\0' ? "all told" : said);
	}
	if (*script == 'x' || *script == 'y')
		atomic_store(&page->lost, *script == 'x' ? ZK_LOSS_EXPIRED : 999);
	else if (*script == 'u')
	{
		while (atomic_load(&page->loss_interrupt) != INTERRUPT_WANTED)
			poll(NULL, 0, 5);
		atomic_store(&page->loss_interrupt, INTERRUPT_UNDER_WAY);
	}
	if (*script == 'u' || *script == 'e')
		return 0;
	while (recv(PROTOCOL_CHANNEL_FD, &byte, 1, 0) > 0)
		;
	return 0;
}

/* What the program has said last, once it is another text than that. */
static const char *
await_words(ZkClient *client, const char *before)
{
	int64_t		deadline = protocol_now() + PATIENCE_MS;

	look_at(client);
	while (strcmp(zklock_client_last_error(client), before) == 0 &&
		   protocol_now() < deadline)
	{
		poll(&(struct pollfd) {zklock_client_fd(client), POLLIN, 0}, 1, 50);
		look_at(client);
	}
	return zklock_client_last_error(client);
}

static void
test_watch_news(void)
{
	static const struct
	{
		const char *script;
		ZkWatchNews news;
		const char *end;
		const char *what;
	}			rows[] = {
		{"r", ZK_WATCH_QUIET, "unwatched", "a watch without news is given up"},
		{"rs", ZK_WATCH_SET, "watched", "its event uses it up"},
		{"rl", ZK_WATCH_LOOK_AGAIN, "watched", "so does another one"},
		{"rls", ZK_WATCH_LOOK_AGAIN, "watched", "that the node is to be looked at stays, whatever comes"},
		{"rsl", ZK_WATCH_LOOK_AGAIN, "watched", "and counts more than what came before"},
		{"sr", ZK_WATCH_SET, "unwatched", "an event ahead of the answer is that of an earlier watch"},
		{"n", ZK_WATCH_QUIET, "watched", "without a node there is no watch"},
		{"ro", ZK_WATCH_QUIET, "unwatched", "what is for another request is nothing"},
		{"rp", ZK_WATCH_LOOK_AGAIN, "unwatched", "without a connection there may have been events"}
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
	{
		ZkClient   *client = zklock_client_open(&(ZkClientOptions) {
			.program = program_that("scripted_program", rows[i].script),
			.servers = "127.0.0.1:1", .session_timeout_ms = PATIENCE_MS
		});
		ZkRequest  *watched;
		const ZkReply *reply;
		ZkClientStatus status;

		zklock_client_flush(client);
		is_str("open???", await_words(client, ""), "a program for %s", rows[i].script);
		watched = zklock_client_read(client, ZK_GET_AND_WATCH, "/a");
		zklock_client_flush(client);
		is_str("played", await_words(client, "open???"), "the program for %s was asked", rows[i].script);
		is_int(rows[i].news, zklock_client_watch_news(client), "%s", rows[i].what);
		zklock_client_unwatch(client);
		zklock_client_read(client, ZK_GET, "/a");
		zklock_client_flush(client);
		is_str(rows[i].end, await_words(client, "played"), "the program for %s knows of the watch at the end", rows[i].script);
		reply = zklock_client_reply(watched);
		status = look_at(client);
		ok(reply->proof.boot_ms <= status.now && reply->nbelow == 0 &&
		   reply->proof.wall_ms <= protocol_moment().wall_ms,
		   "no proof is from the future, and less than no children are none");
		ok(status.suspended_at <= status.now && status.lost_at >= status.suspended_at,
		   "no loss is from the future, or from before the connection broke");
		ok(status.lost_deadline <= status.now + PATIENCE_MS,
		   "no program is alive for longer than its session");
		is_int(0, zklock_client_count_pending(client), "no more requests are over than there were");
		zklock_client_close(client, 50);
	}
	unlink(program_path());
}

static ZkClient *
open_telling(const char *script)
{
	return zklock_client_open(&(ZkClientOptions) {
		.program = program_that("telling_program", script),
		.servers = "127.0.0.1:1", .session_timeout_ms = PATIENCE_MS
	});
}

/* The session is lost as by an invalid message. */
static void
is_refused(ZkClient *client, const char *what)
{
	int64_t		deadline = protocol_now() + PATIENCE_MS;
	ZkClientStatus status = look_at(client);

	while (status.state != ZK_CLIENT_LOST && protocol_now() < deadline)
	{
		poll(&(struct pollfd) {zklock_client_fd(client), POLLIN, 0}, 1, 50);
		status = look_at(client);
	}
	is_int(ZK_CLIENT_LOST, status.state, "%s: the state", what);
	is_int(ZK_LOSS_PROGRAM, status.loss, "%s: the loss", what);
	ok(strstr(zklock_client_last_error(client), "has sent an invalid message") != NULL,
	   "%s: the words: %s", what, zklock_client_last_error(client));
	zklock_client_close(client, 50);
}

/* Which states a session may have after another one, and what becomes of the others. */
static void
test_states(void)
{
	/* from STARTING, CONNECTING, CONNECTED, SUSPENDED, LOST, to each of them */
	static const char *const legal[] = {".C..L", "..C.L", "..CSL", "..C.L", "....."};
	/* the first one that a program says is CONNECTING, 1; that it says one again is no move */
	static const struct
	{
		const char *script;
		int			state;		/* -1: it is refused */
	}			rows[] = {
		{"j2", ZK_CLIENT_CONNECTED},
		{"j11223322", ZK_CLIENT_CONNECTED},
		{"j23", ZK_CLIENT_SUSPENDED},
		{"j0", -1},
		{"j3", -1},
		{"j21", -1},
		{"j231", -1},
		{"j20", -1}
	};
	ZkClient   *client;

	for (int from = 0; from <= ZK_CLIENT_LOST; from++)
		for (int to = 0; to <= ZK_CLIENT_LOST; to++)
			is_int(legal[from][to] != '.', move_is_legal(protocol_session_moves, from, to), "state %d after %d", to, from);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
	{
		client = open_telling(rows[i].script);
		if (rows[i].state < 0)
		{
			is_refused(client, rows[i].script);
			continue;
		}
		/* the last one may be one of those before, too */
		await_words(client, "");
		is_str("all told", await_words(client, "as it should"), "%s: all is told", rows[i].script);
		is_int(rows[i].state, look_at(client).state, "%s: the state", rows[i].script);
		zklock_client_close(client, 50);
	}
	client = open_telling("j");
	zklock_client_refuse_page(client);
	is_refused(client, "a page that makes no sense");
	client = zklock_client_open(&(ZkClientOptions) {
		.program = program_that("scripted_program", "rr"),
		.servers = "127.0.0.1:1", .session_timeout_ms = PATIENCE_MS
	});
	zklock_client_read(client, ZK_GET_AND_WATCH, "/a");
	zklock_client_flush(client);
	is_refused(client, "two replies to one request");
	unlink(program_path());
}

/* How a program is started, and what its page and its end tell. */
static void
test_start_and_end(void)
{
	struct sigaction action = {.sa_handler = count_interrupt};
	int			open_fd = fcntl(0, F_DUPFD, 30);
	char		number[16];
	ZkClient   *client;
	ZkClientStatus status;
	int64_t		deadline;
	int			before;

	snprintf(number, sizeof(number), "%d", open_fd);
	client = open_telling(number);
	is_str("as it should", await_words(client, ""), "it is started with the page sealed, a group of its own, no signal, and nothing else open");
	close(open_fd);
	zklock_client_close(client, PATIENCE_MS);

	for (int i = 0; i < 2; i++)
	{
		int			pid;

		client = open_telling(i == 0 ? "x" : "y");
		status = look_at(client);
		pid = status.program_pid;
		await_words(client, "");
		deadline = protocol_now() + PATIENCE_MS;
		do
			status = look_at(client);
		while (status.state != ZK_CLIENT_LOST && protocol_now() < deadline && poll(NULL, 0, 5) == 0);
		is_int(i == 0 ? ZK_LOSS_EXPIRED : ZK_LOSS_PROGRAM, status.loss, "a loss that only the page tells");
		while (kill(pid, 0) == 0 && protocol_now() < deadline)
			poll(NULL, 0, 5);
		ok(kill(pid, 0) != 0, "the program of a session that is over ends");
		zklock_client_close(client, PATIENCE_MS);
	}

	sigaction(SIGINT, &action, NULL);
	before = ninterrupts;
	client = open_telling("u");
	zklock_client_interrupt_on_loss(client, true);
	deadline = protocol_now() + PATIENCE_MS;
	while (ninterrupts == before && protocol_now() < deadline)
		poll(NULL, 0, 5);
	ok(ninterrupts > before, "a program that dies as it interrupts us has done so");
	zklock_client_close(client, PATIENCE_MS);

	client = open_telling("e");
	poll(&(struct pollfd) {zklock_client_fd(client), POLLHUP, 0}, 1, PATIENCE_MS);
	poll(&(struct pollfd) {zklock_client_fd(client), 0, 0}, 1, PATIENCE_MS);
	zklock_client_flush(client);
	status = look_at(client);
	is_int(ZK_LOSS_RESOLVE, status.loss, "what a program said before its end is read by the next send");
	zklock_client_close(client, PATIENCE_MS);
	unlink(program_path());
}

/* ---------------------------------------------------------------------
 * A hostile backend
 * ---------------------------------------------------------------------
 */

/* Start the real program with such a channel; -1 if it cannot be. */
static pid_t
start_program(const char *program, int fds[2])
{
	int			page = memfd_create("page", MFD_CLOEXEC);
	pid_t		pid;

	if (page < 0 || ftruncate(page, sizeof(SharedPage)) != 0 ||
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0)
		return -1;
	pid = fork();
	if (pid == 0)
	{
		int			channel = fcntl(fds[1], F_DUPFD, 20);

		dup2(fcntl(page, F_DUPFD, 20), PROTOCOL_PAGE_FD);
		dup2(channel, PROTOCOL_CHANNEL_FD);
		execl(program, "zklock: session of a test", (char *) NULL);
		_exit(127);
	}
	close(page);
	close(fds[1]);
	return pid;
}

/* What the program ends with, as from wait(); -1 if it does not. */
static int
await_program(pid_t pid)
{
	int64_t		deadline = protocol_now() + PATIENCE_MS;
	int			status = -1;

	while (waitpid(pid, &status, WNOHANG) == 0)
	{
		if (protocol_now() >= deadline)
		{
			kill(pid, SIGKILL);
			waitpid(pid, &status, 0);
			return -1;
		}
		poll(NULL, 0, 2);
	}
	return status;
}

static void
test_hostile_backends(void)
{
	char		program[PATH_MAX];
	ssize_t		length = readlink("/proc/self/exe", program, sizeof(program) - 20);
	int			nbad = 0;
	int			nrefused = 0;

	program[length > 0 ? length : 0] = '\0';
	strcpy(strrchr(program, '/') + 1, "zklock-session");
	for (int i = 0; i < NBACKENDS; i++)
	{
		FrameBuffer buffer = {0};
		int			fds[2];
		int			status;
		pid_t		pid;

		seed = (uint64_t) (i + 1) * 2654435761U;
		pid = start_program(program, fds);
		for (int j = (int) choose(60); j >= 0; j--)
		{
			FrameBuffer one = {0};
			FrameKind	kind = 1 + choose(FRAME_LAST_TO_PROGRAM);

			if (buffer.end == 0)
				kind = FRAME_OPEN;	/* there is no more than one */
			else if (kind == FRAME_OPEN && choose(20) > 0)
				kind = FRAME_REQUEST;
			put_good(&one, kind, (uint64_t) choose(choose(4) ? 8 : 0x20000));
			if (choose(kind == FRAME_OPEN ? 4 : 30) == 0)
				mutate(&one);
			if (!frame_buffer_reserve(&buffer, one.end))
				abort();
			memcpy(buffer.bytes + buffer.end, one.bytes, one.end);
			buffer.end += one.end;
			frame_buffer_free(&one);
		}
		write_all(fds[0], &buffer);
		frame_buffer_free(&buffer);
		if (choose(2))
			shutdown(fds[0], SHUT_WR);
		else
			close(fds[0]);
		status = await_program(pid);
		nrefused += status != 0;
		if (status == -1 || !WIFEXITED(status) || WEXITSTATUS(status) > 1)
		{
			nbad++;
			note("backend %d: wait status %d", i, status);
		}
		close(fds[0]);
	}
	is_int(0, nbad, "after %d hostile backends the program ends with 0 or 1",
		   NBACKENDS);
	ok(nrefused > 0 && nrefused < NBACKENDS, "some hostile backends are refused and some are not: %d were refused",
	   nrefused);
}

/*
 * What the program ends with after so many openings and a request of that kind,
 * whether it fits or not; with an id of its own, or without, as those for which
 * nobody waits.  If all is good it ends once we have gone, and we go when it has
 * said something.
 */
static int
status_after(int nopenings, RequestKind kind, uint64_t id, const char *data, int length)
{
	char		program[PATH_MAX];
	ssize_t		size = readlink("/proc/self/exe", program, sizeof(program) - 20);
	FrameBuffer buffer = {0};
	Frame		frame = {.kind = FRAME_REQUEST, .id = id};
	FrameBlob	blobs[FRAME_NBLOBS] = {frame_text("/a/b"), {NULL, 0}, {data, (size_t) length}};
	int			fds[2];
	int			status;
	pid_t		pid;

	program[size > 0 ? size : 0] = '\0';
	strcpy(strrchr(program, '/') + 1, "zklock-session");
	pid = start_program(program, fds);
	for (int i = 0; i < nopenings; i++)
		put_good(&buffer, FRAME_OPEN, 0);
	frame.u.request.kind = (int32_t) kind;
	frame.u.request.version = ZK_ANY_VERSION;
	if (!frame_put(&buffer, &frame, blobs))
		abort();
	write_all(fds[0], &buffer);
	frame_buffer_free(&buffer);
	poll(&(struct pollfd) {fds[0], POLLIN, 0}, 1, PATIENCE_MS);
	shutdown(fds[0], SHUT_WR);
	status = await_program(pid);
	close(fds[0]);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Frames that are good, each by itself. */
static void
test_senseless_backends(void)
{
	is_int(0, status_after(1, REQUEST_GET, 1, NULL, 0), "an opening and a request");
	is_int(1, status_after(0, REQUEST_GET, 1, NULL, 0), "a request first");
	is_int(1, status_after(2, REQUEST_GET, 1, NULL, 0), "two openings");
	is_int(1, status_after(1, REQUEST_GET, 0, NULL, 0), "a question of nobody's");
	is_int(0, status_after(1, REQUEST_DELETE, 1, NULL, 0), "a delete that is waited for");
	is_int(0, status_after(1, REQUEST_DELETE_GUARDED, 1, "/a\0/b", 6), "a guarded removal");
	is_int(1, status_after(1, REQUEST_DELETE_GUARDED, 1, "/a\0/b", 5), "a guarded removal whose text has no end is refused");
	is_int(1, status_after(1, REQUEST_DELETE_GUARDED, 1, NULL, 0), "a guarded removal of nothing is refused");
}

int
main(int argc, char **argv)
{
	if (argc > 2 && strcmp(argv[1], "scripted_program") == 0)
		return scripted_program(argv[2]);
	if (argc > 2 && strcmp(argv[1], "telling_program") == 0)
		return telling_program(argv[2]);
	if (argc > 2 && strcmp(argv[1], "hostile_program") == 0)
		return hostile_program(argv[2]);
	test_table();
	test_several();
	test_made();
	test_blobs();
	test_kinds();
	test_leaving();
	test_longest();
	test_buffers();
	test_memory();
	test_clocks();
	test_random();
	test_interrupts();
	test_use();
	if (argc > 1 && strcmp(argv[1], "quick") == 0)
		return done_testing();
	test_hostile_backends();
	test_senseless_backends();
	test_hostile_programs();
	test_watch_news();
	test_states();
	test_start_and_end();
	return done_testing();
}
